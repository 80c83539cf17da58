//! Which instruction does what: one row an operation, whose forms for the widths of vectors follow each other in `iced`'s numbering.

use fuseline::tensor::DType;
use iced_x86::Code;

use super::machine::Size;
use crate::vector::{Binary, Compare, Convert, FmaOp, Ty, Unary};

/// The instruction sets that code is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// AVX-512 F, BW, DQ, VL
    Avx512,
    /// AVX2, FMA, F16C, BMI2
    Avx2,
}

/// One operation in its encodings: the narrowest form, behind which the wider ones follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// AVX2's
    pub vex: Code,
    /// AVX-512's
    pub evex: Code,
    /// bytes of an element that AVX-512 can take from memory for every lane; 0 if it cannot
    pub lane: u8,
    /// how wide the narrowest form is
    narrowest: Size,
}

const NONE: Code = Code::INVALID;

const fn row(vex: Code, evex: Code, lane: u8) -> Row {
    Row { vex, evex, lane, narrowest: Size::X }
}

const fn row_from_32(vex: Code, evex: Code, lane: u8) -> Row {
    Row { vex, evex, lane, narrowest: Size::Y }
}

impl Row {
    /// The instruction for this width, if the instruction set has it.
    pub fn code(self, level: Level, size: Size) -> Option<Code> {
        let (first, widest) = match level {
            Level::Avx512 => (self.evex, Size::Z),
            Level::Avx2 => (self.vex, Size::Y),
        };
        if first == NONE || size < self.narrowest || size > widest {
            return None;
        }
        Some(following(first, size as usize - self.narrowest as usize))
    }
}

/// The instruction so many places behind this one.
pub fn following(code: Code, places: usize) -> Code {
    Code::try_from(code as usize + places).unwrap_or(NONE)
}

/// A function of two vectors in one instruction.
pub fn binary(op: Binary, ty: Ty) -> Option<Row> {
    use Binary::*;
    use Code::*;
    use Ty::*;
    Some(match (op, ty) {
        (Add, F32) => row(VEX_Vaddps_xmm_xmm_xmmm128, EVEX_Vaddps_xmm_k1z_xmm_xmmm128b32, 4),
        (Add, F64) => row(VEX_Vaddpd_xmm_xmm_xmmm128, EVEX_Vaddpd_xmm_k1z_xmm_xmmm128b64, 8),
        (Add, I32) => row(VEX_Vpaddd_xmm_xmm_xmmm128, EVEX_Vpaddd_xmm_k1z_xmm_xmmm128b32, 4),
        (Add, I64) => row(VEX_Vpaddq_xmm_xmm_xmmm128, EVEX_Vpaddq_xmm_k1z_xmm_xmmm128b64, 8),
        (Sub, F32) => row(VEX_Vsubps_xmm_xmm_xmmm128, EVEX_Vsubps_xmm_k1z_xmm_xmmm128b32, 4),
        (Sub, F64) => row(VEX_Vsubpd_xmm_xmm_xmmm128, EVEX_Vsubpd_xmm_k1z_xmm_xmmm128b64, 8),
        (Sub, I32) => row(VEX_Vpsubd_xmm_xmm_xmmm128, EVEX_Vpsubd_xmm_k1z_xmm_xmmm128b32, 4),
        (Sub, I64) => row(VEX_Vpsubq_xmm_xmm_xmmm128, EVEX_Vpsubq_xmm_k1z_xmm_xmmm128b64, 8),
        (Mul, F32) => row(VEX_Vmulps_xmm_xmm_xmmm128, EVEX_Vmulps_xmm_k1z_xmm_xmmm128b32, 4),
        (Mul, F64) => row(VEX_Vmulpd_xmm_xmm_xmmm128, EVEX_Vmulpd_xmm_k1z_xmm_xmmm128b64, 8),
        (Mul, I32) => row(VEX_Vpmulld_xmm_xmm_xmmm128, EVEX_Vpmulld_xmm_k1z_xmm_xmmm128b32, 4),
        (Mul, I64) => row(NONE, EVEX_Vpmullq_xmm_k1z_xmm_xmmm128b64, 8),
        (Div, F32) => row(VEX_Vdivps_xmm_xmm_xmmm128, EVEX_Vdivps_xmm_k1z_xmm_xmmm128b32, 4),
        (Div, F64) => row(VEX_Vdivpd_xmm_xmm_xmmm128, EVEX_Vdivpd_xmm_k1z_xmm_xmmm128b64, 8),
        (Min, F32) => row(VEX_Vminps_xmm_xmm_xmmm128, EVEX_Vminps_xmm_k1z_xmm_xmmm128b32, 4),
        (Min, F64) => row(VEX_Vminpd_xmm_xmm_xmmm128, EVEX_Vminpd_xmm_k1z_xmm_xmmm128b64, 8),
        (Min, I32) => row(VEX_Vpminsd_xmm_xmm_xmmm128, EVEX_Vpminsd_xmm_k1z_xmm_xmmm128b32, 4),
        (Min, I64) => row(NONE, EVEX_Vpminsq_xmm_k1z_xmm_xmmm128b64, 8),
        (Max, F32) => row(VEX_Vmaxps_xmm_xmm_xmmm128, EVEX_Vmaxps_xmm_k1z_xmm_xmmm128b32, 4),
        (Max, F64) => row(VEX_Vmaxpd_xmm_xmm_xmmm128, EVEX_Vmaxpd_xmm_k1z_xmm_xmmm128b64, 8),
        (Max, I32) => row(VEX_Vpmaxsd_xmm_xmm_xmmm128, EVEX_Vpmaxsd_xmm_k1z_xmm_xmmm128b32, 4),
        (Max, I64) => row(NONE, EVEX_Vpmaxsq_xmm_k1z_xmm_xmmm128b64, 8),
        (MinUnsigned, I32) => row(VEX_Vpminud_xmm_xmm_xmmm128, EVEX_Vpminud_xmm_k1z_xmm_xmmm128b32, 4),
        (MinUnsigned, I64) => row(NONE, EVEX_Vpminuq_xmm_k1z_xmm_xmmm128b64, 8),
        (MaxUnsigned, I32) => row(VEX_Vpmaxud_xmm_xmm_xmmm128, EVEX_Vpmaxud_xmm_k1z_xmm_xmmm128b32, 4),
        (MaxUnsigned, I64) => row(NONE, EVEX_Vpmaxuq_xmm_k1z_xmm_xmmm128b64, 8),
        (MulEven, I32) => rows::MUL_LOW,
        (JoinLow, I32) => row(VEX_Vpunpcklqdq_xmm_xmm_xmmm128, EVEX_Vpunpcklqdq_xmm_k1z_xmm_xmmm128b64, 8),
        (JoinHigh, I32) => row(VEX_Vpunpckhqdq_xmm_xmm_xmmm128, EVEX_Vpunpckhqdq_xmm_k1z_xmm_xmmm128b64, 8),
        (JoinLow, F32) => row(VEX_Vunpcklpd_xmm_xmm_xmmm128, EVEX_Vunpcklpd_xmm_k1z_xmm_xmmm128b64, 8),
        (JoinHigh, F32) => row(VEX_Vunpckhpd_xmm_xmm_xmmm128, EVEX_Vunpckhpd_xmm_k1z_xmm_xmmm128b64, 8),
        (MixLow, F32) => row(VEX_Vunpcklps_xmm_xmm_xmmm128, EVEX_Vunpcklps_xmm_k1z_xmm_xmmm128b32, 4),
        (MixHigh, F32) => row(VEX_Vunpckhps_xmm_xmm_xmmm128, EVEX_Vunpckhps_xmm_k1z_xmm_xmmm128b32, 4),
        (MixLow, I32) => row(VEX_Vpunpckldq_xmm_xmm_xmmm128, EVEX_Vpunpckldq_xmm_k1z_xmm_xmmm128b32, 4),
        (MixHigh, I32) => row(VEX_Vpunpckhdq_xmm_xmm_xmmm128, EVEX_Vpunpckhdq_xmm_k1z_xmm_xmmm128b32, 4),
        (And, F32) => row(VEX_Vandps_xmm_xmm_xmmm128, EVEX_Vandps_xmm_k1z_xmm_xmmm128b32, 4),
        (And, F64) => row(VEX_Vandpd_xmm_xmm_xmmm128, EVEX_Vandpd_xmm_k1z_xmm_xmmm128b64, 8),
        (And, I32) => row(VEX_Vpand_xmm_xmm_xmmm128, EVEX_Vpandd_xmm_k1z_xmm_xmmm128b32, 4),
        (And, I64) => row(VEX_Vpand_xmm_xmm_xmmm128, EVEX_Vpandq_xmm_k1z_xmm_xmmm128b64, 8),
        (Or, F32) => row(VEX_Vorps_xmm_xmm_xmmm128, EVEX_Vorps_xmm_k1z_xmm_xmmm128b32, 4),
        (Or, F64) => row(VEX_Vorpd_xmm_xmm_xmmm128, EVEX_Vorpd_xmm_k1z_xmm_xmmm128b64, 8),
        (Or, I32) => row(VEX_Vpor_xmm_xmm_xmmm128, EVEX_Vpord_xmm_k1z_xmm_xmmm128b32, 4),
        (Or, I64) => row(VEX_Vpor_xmm_xmm_xmmm128, EVEX_Vporq_xmm_k1z_xmm_xmmm128b64, 8),
        (Xor, F32) => row(VEX_Vxorps_xmm_xmm_xmmm128, EVEX_Vxorps_xmm_k1z_xmm_xmmm128b32, 4),
        (Xor, F64) => row(VEX_Vxorpd_xmm_xmm_xmmm128, EVEX_Vxorpd_xmm_k1z_xmm_xmmm128b64, 8),
        (Xor, I32) => row(VEX_Vpxor_xmm_xmm_xmmm128, EVEX_Vpxord_xmm_k1z_xmm_xmmm128b32, 4),
        (Xor, I64) => row(VEX_Vpxor_xmm_xmm_xmmm128, EVEX_Vpxorq_xmm_k1z_xmm_xmmm128b64, 8),
        (AndNot, F32) => row(VEX_Vandnps_xmm_xmm_xmmm128, EVEX_Vandnps_xmm_k1z_xmm_xmmm128b32, 4),
        (AndNot, F64) => row(VEX_Vandnpd_xmm_xmm_xmmm128, EVEX_Vandnpd_xmm_k1z_xmm_xmmm128b64, 8),
        (AndNot, I32) => row(VEX_Vpandn_xmm_xmm_xmmm128, EVEX_Vpandnd_xmm_k1z_xmm_xmmm128b32, 4),
        (AndNot, I64) => row(VEX_Vpandn_xmm_xmm_xmmm128, EVEX_Vpandnq_xmm_k1z_xmm_xmmm128b64, 8),
        (Shl, I32) => row(VEX_Vpsllvd_xmm_xmm_xmmm128, EVEX_Vpsllvd_xmm_k1z_xmm_xmmm128b32, 4),
        (Shl, I64) => row(VEX_Vpsllvq_xmm_xmm_xmmm128, EVEX_Vpsllvq_xmm_k1z_xmm_xmmm128b64, 8),
        (ShrUnsigned, I32) => row(VEX_Vpsrlvd_xmm_xmm_xmmm128, EVEX_Vpsrlvd_xmm_k1z_xmm_xmmm128b32, 4),
        (ShrUnsigned, I64) => row(VEX_Vpsrlvq_xmm_xmm_xmmm128, EVEX_Vpsrlvq_xmm_k1z_xmm_xmmm128b64, 8),
        (ShrSigned, I32) => row(VEX_Vpsravd_xmm_xmm_xmmm128, EVEX_Vpsravd_xmm_k1z_xmm_xmmm128b32, 4),
        (ShrSigned, I64) => row(NONE, EVEX_Vpsravq_xmm_k1z_xmm_xmmm128b64, 8),
        (Scale, F32) => row(NONE, EVEX_Vscalefps_xmm_k1z_xmm_xmmm128b32, 4),
        (Scale, F64) => row(NONE, EVEX_Vscalefpd_xmm_k1z_xmm_xmmm128b64, 8),
        _ => return None,
    })
}

/// A shift of every lane by one number.
pub fn shift(op: Binary, ty: Ty) -> Option<Row> {
    use Code::*;
    Some(match (op, ty) {
        (Binary::Shl, Ty::I32) => row(VEX_Vpslld_xmm_xmm_imm8, EVEX_Vpslld_xmm_k1z_xmmm128b32_imm8, 4),
        (Binary::Shl, Ty::I64) => row(VEX_Vpsllq_xmm_xmm_imm8, EVEX_Vpsllq_xmm_k1z_xmmm128b64_imm8, 8),
        (Binary::ShrUnsigned, Ty::I32) => row(VEX_Vpsrld_xmm_xmm_imm8, EVEX_Vpsrld_xmm_k1z_xmmm128b32_imm8, 4),
        (Binary::ShrUnsigned, Ty::I64) => row(VEX_Vpsrlq_xmm_xmm_imm8, EVEX_Vpsrlq_xmm_k1z_xmmm128b64_imm8, 8),
        (Binary::ShrSigned, Ty::I32) => row(VEX_Vpsrad_xmm_xmm_imm8, EVEX_Vpsrad_xmm_k1z_xmmm128b32_imm8, 4),
        (Binary::ShrSigned, Ty::I64) => row(NONE, EVEX_Vpsraq_xmm_k1z_xmmm128b64_imm8, 8),
        _ => return None,
    })
}

/// A function of one vector in one instruction, and the number that it is given.
pub fn unary(op: Unary, ty: Ty) -> Option<(Row, Option<u8>)> {
    use Code::*;
    // bit 3: no exception where digits are lost
    let how = match op {
        Unary::Sqrt => None,
        Unary::Round => Some(8),
        Unary::Floor => Some(9),
        Unary::Ceil => Some(10),
        Unary::Trunc => Some(11),
        Unary::Swap => return Some((rows::SHUFFLE_32, Some(0xb1))),
        Unary::RoundF16 | Unary::RoundBf16 => return None,
    };
    let row = match (how, ty) {
        (None, Ty::F32) => row(VEX_Vsqrtps_xmm_xmmm128, EVEX_Vsqrtps_xmm_k1z_xmmm128b32, 4),
        (None, Ty::F64) => row(VEX_Vsqrtpd_xmm_xmmm128, EVEX_Vsqrtpd_xmm_k1z_xmmm128b64, 8),
        (Some(_), Ty::F32) => row(VEX_Vroundps_xmm_xmmm128_imm8, EVEX_Vrndscaleps_xmm_k1z_xmmm128b32_imm8, 4),
        (Some(_), Ty::F64) => row(VEX_Vroundpd_xmm_xmmm128_imm8, EVEX_Vrndscalepd_xmm_k1z_xmmm128b64_imm8, 8),
        _ => return None,
    };
    Some((row, how))
}

/// The three forms of a fused multiply-add: 132, 213, 231.
pub fn fma(op: FmaOp, ty: Ty) -> Option<[Row; 3]> {
    use Code::*;
    Some(match (op, ty) {
        (FmaOp::Add, Ty::F32) => [
            row(VEX_Vfmadd132ps_xmm_xmm_xmmm128, EVEX_Vfmadd132ps_xmm_k1z_xmm_xmmm128b32, 4),
            row(VEX_Vfmadd213ps_xmm_xmm_xmmm128, EVEX_Vfmadd213ps_xmm_k1z_xmm_xmmm128b32, 4),
            row(VEX_Vfmadd231ps_xmm_xmm_xmmm128, EVEX_Vfmadd231ps_xmm_k1z_xmm_xmmm128b32, 4),
        ],
        (FmaOp::Add, Ty::F64) => [
            row(VEX_Vfmadd132pd_xmm_xmm_xmmm128, EVEX_Vfmadd132pd_xmm_k1z_xmm_xmmm128b64, 8),
            row(VEX_Vfmadd213pd_xmm_xmm_xmmm128, EVEX_Vfmadd213pd_xmm_k1z_xmm_xmmm128b64, 8),
            row(VEX_Vfmadd231pd_xmm_xmm_xmmm128, EVEX_Vfmadd231pd_xmm_k1z_xmm_xmmm128b64, 8),
        ],
        (FmaOp::Sub, Ty::F32) => [
            row(VEX_Vfmsub132ps_xmm_xmm_xmmm128, EVEX_Vfmsub132ps_xmm_k1z_xmm_xmmm128b32, 4),
            row(VEX_Vfmsub213ps_xmm_xmm_xmmm128, EVEX_Vfmsub213ps_xmm_k1z_xmm_xmmm128b32, 4),
            row(VEX_Vfmsub231ps_xmm_xmm_xmmm128, EVEX_Vfmsub231ps_xmm_k1z_xmm_xmmm128b32, 4),
        ],
        (FmaOp::Sub, Ty::F64) => [
            row(VEX_Vfmsub132pd_xmm_xmm_xmmm128, EVEX_Vfmsub132pd_xmm_k1z_xmm_xmmm128b64, 8),
            row(VEX_Vfmsub213pd_xmm_xmm_xmmm128, EVEX_Vfmsub213pd_xmm_k1z_xmm_xmmm128b64, 8),
            row(VEX_Vfmsub231pd_xmm_xmm_xmmm128, EVEX_Vfmsub231pd_xmm_k1z_xmm_xmmm128b64, 8),
        ],
        (FmaOp::NegAdd, Ty::F32) => [
            row(VEX_Vfnmadd132ps_xmm_xmm_xmmm128, EVEX_Vfnmadd132ps_xmm_k1z_xmm_xmmm128b32, 4),
            row(VEX_Vfnmadd213ps_xmm_xmm_xmmm128, EVEX_Vfnmadd213ps_xmm_k1z_xmm_xmmm128b32, 4),
            row(VEX_Vfnmadd231ps_xmm_xmm_xmmm128, EVEX_Vfnmadd231ps_xmm_k1z_xmm_xmmm128b32, 4),
        ],
        (FmaOp::NegAdd, Ty::F64) => [
            row(VEX_Vfnmadd132pd_xmm_xmm_xmmm128, EVEX_Vfnmadd132pd_xmm_k1z_xmm_xmmm128b64, 8),
            row(VEX_Vfnmadd213pd_xmm_xmm_xmmm128, EVEX_Vfnmadd213pd_xmm_k1z_xmm_xmmm128b64, 8),
            row(VEX_Vfnmadd231pd_xmm_xmm_xmmm128, EVEX_Vfnmadd231pd_xmm_k1z_xmm_xmmm128b64, 8),
        ],
        (FmaOp::NegSub, Ty::F32) => [
            row(VEX_Vfnmsub132ps_xmm_xmm_xmmm128, EVEX_Vfnmsub132ps_xmm_k1z_xmm_xmmm128b32, 4),
            row(VEX_Vfnmsub213ps_xmm_xmm_xmmm128, EVEX_Vfnmsub213ps_xmm_k1z_xmm_xmmm128b32, 4),
            row(VEX_Vfnmsub231ps_xmm_xmm_xmmm128, EVEX_Vfnmsub231ps_xmm_k1z_xmm_xmmm128b32, 4),
        ],
        (FmaOp::NegSub, Ty::F64) => [
            row(VEX_Vfnmsub132pd_xmm_xmm_xmmm128, EVEX_Vfnmsub132pd_xmm_k1z_xmm_xmmm128b64, 8),
            row(VEX_Vfnmsub213pd_xmm_xmm_xmmm128, EVEX_Vfnmsub213pd_xmm_k1z_xmm_xmmm128b64, 8),
            row(VEX_Vfnmsub231pd_xmm_xmm_xmmm128, EVEX_Vfnmsub231pd_xmm_k1z_xmm_xmmm128b64, 8),
        ],
        _ => return None,
    })
}

/// A comparison of floats in either set, of integers in AVX-512; and its predicate.
pub fn compare(op: Compare, ty: Ty) -> Option<(Row, u8)> {
    use Code::*;
    if ty.is_float() {
        // quiet predicates: NaN raises nothing
        let predicate = match op {
            Compare::Lt => 0x11,
            Compare::Le => 0x12,
            Compare::Eq => 0x00,
            Compare::Ne => 0x04,
            Compare::Unordered => 0x03,
            Compare::LtUnsigned | Compare::LeUnsigned => return None,
        };
        let row = match ty {
            Ty::F32 => row(VEX_Vcmpps_xmm_xmm_xmmm128_imm8, EVEX_Vcmpps_kr_k1_xmm_xmmm128b32_imm8, 4),
            _ => row(VEX_Vcmppd_xmm_xmm_xmmm128_imm8, EVEX_Vcmppd_kr_k1_xmm_xmmm128b64_imm8, 8),
        };
        return Some((row, predicate));
    }
    let (predicate, unsigned) = match op {
        Compare::Eq => (0, false),
        Compare::Lt => (1, false),
        Compare::Le => (2, false),
        Compare::Ne => (4, false),
        Compare::LtUnsigned => (1, true),
        Compare::LeUnsigned => (2, true),
        Compare::Unordered => return None,
    };
    let row = match (ty, unsigned) {
        (Ty::I32, false) => row(NONE, EVEX_Vpcmpd_kr_k1_xmm_xmmm128b32_imm8, 4),
        (Ty::I32, true) => row(NONE, EVEX_Vpcmpud_kr_k1_xmm_xmmm128b32_imm8, 4),
        (Ty::I64, false) => row(NONE, EVEX_Vpcmpq_kr_k1_xmm_xmmm128b64_imm8, 8),
        (Ty::I64, true) => row(NONE, EVEX_Vpcmpuq_kr_k1_xmm_xmmm128b64_imm8, 8),
        _ => return None,
    };
    Some((row, predicate))
}

/// A conversion in one instruction; its forms are told apart by the wider of both sides.
pub fn convert(how: Convert, from: Ty, to: Ty) -> Option<Row> {
    use Code::*;
    use Ty::*;
    Some(match (how, from, to) {
        (Convert::Float, I32, F32) => row(VEX_Vcvtdq2ps_xmm_xmmm128, EVEX_Vcvtdq2ps_xmm_k1z_xmmm128b32, 4),
        (Convert::Float, I32, F64) => row(VEX_Vcvtdq2pd_xmm_xmmm64, EVEX_Vcvtdq2pd_xmm_k1z_xmmm64b32, 4),
        (Convert::Float, I64, F32) => row(NONE, EVEX_Vcvtqq2ps_xmm_k1z_xmmm128b64, 8),
        (Convert::Float, I64, F64) => row(NONE, EVEX_Vcvtqq2pd_xmm_k1z_xmmm128b64, 8),
        (Convert::Float, F32, F64) => row(VEX_Vcvtps2pd_xmm_xmmm64, EVEX_Vcvtps2pd_xmm_k1z_xmmm64b32, 4),
        (Convert::Float, F64, F32) => row(VEX_Vcvtpd2ps_xmm_xmmm128, EVEX_Vcvtpd2ps_xmm_k1z_xmmm128b64, 8),
        (Convert::FloatUnsigned, I32, F32) => row(NONE, EVEX_Vcvtudq2ps_xmm_k1z_xmmm128b32, 4),
        (Convert::FloatUnsigned, I32, F64) => row(NONE, EVEX_Vcvtudq2pd_xmm_k1z_xmmm64b32, 4),
        (Convert::FloatUnsigned, I64, F32) => row(NONE, EVEX_Vcvtuqq2ps_xmm_k1z_xmmm128b64, 8),
        (Convert::FloatUnsigned, I64, F64) => row(NONE, EVEX_Vcvtuqq2pd_xmm_k1z_xmmm128b64, 8),
        (Convert::Truncate, F32, I32) => row(VEX_Vcvttps2dq_xmm_xmmm128, EVEX_Vcvttps2dq_xmm_k1z_xmmm128b32, 4),
        (Convert::Truncate, F32, I64) => row(NONE, EVEX_Vcvttps2qq_xmm_k1z_xmmm64b32, 4),
        (Convert::Truncate, F64, I32) => row(VEX_Vcvttpd2dq_xmm_xmmm128, EVEX_Vcvttpd2dq_xmm_k1z_xmmm128b64, 8),
        (Convert::Truncate, F64, I64) => row(NONE, EVEX_Vcvttpd2qq_xmm_k1z_xmmm128b64, 8),
        (Convert::ExtendSigned, I32, I64) => rows::EXTEND_SIGNED,
        (Convert::ExtendUnsigned, I32, I64) => row(VEX_Vpmovzxdq_xmm_xmmm64, EVEX_Vpmovzxdq_xmm_k1z_xmmm64, 0),
        _ => return None,
    })
}

/// Elements narrower than their lanes, from memory or a register to lanes; what is left to do follows from the type.
pub fn widen(memory: DType) -> Option<Row> {
    use Code::*;
    Some(match memory {
        DType::I8 => row(VEX_Vpmovsxbd_xmm_xmmm32, EVEX_Vpmovsxbd_xmm_k1z_xmmm32, 0),
        DType::U8 | DType::Bool => row(VEX_Vpmovzxbd_xmm_xmmm32, EVEX_Vpmovzxbd_xmm_k1z_xmmm32, 0),
        DType::I16 => row(VEX_Vpmovsxwd_xmm_xmmm64, EVEX_Vpmovsxwd_xmm_k1z_xmmm64, 0),
        DType::U16 | DType::BF16 => row(VEX_Vpmovzxwd_xmm_xmmm64, EVEX_Vpmovzxwd_xmm_k1z_xmmm64, 0),
        DType::F16 => row(VEX_Vcvtph2ps_xmm_xmmm64, EVEX_Vcvtph2ps_xmm_k1z_xmmm64, 0),
        _ => return None,
    })
}

/// Gathers by indices and elements of so many bytes; forms are told apart by the wider of both.
pub fn gather(index: usize, element: usize) -> Row {
    use Code::*;
    match (index, element) {
        (4, 4) => row(VEX_Vgatherdps_xmm_vm32x_xmm, EVEX_Vgatherdps_xmm_k1_vm32x, 0),
        (4, _) => row(VEX_Vgatherdpd_xmm_vm32x_xmm, EVEX_Vgatherdpd_xmm_k1_vm32x, 0),
        (_, 4) => row(VEX_Vgatherqps_xmm_vm64x_xmm, EVEX_Vgatherqps_xmm_k1_vm64x, 0),
        _ => row(VEX_Vgatherqpd_xmm_vm64x_xmm, EVEX_Vgatherqpd_xmm_k1_vm64x, 0),
    }
}

/// Scatters by indices and elements of so many bytes; forms are told apart by the wider of both.
pub fn scatter(index: usize, element: usize) -> Row {
    use Code::*;
    match (index, element) {
        (4, 4) => row(NONE, EVEX_Vscatterdps_vm32x_k1_xmm, 0),
        (4, _) => row(NONE, EVEX_Vscatterdpd_vm32x_k1_xmm, 0),
        (_, 4) => row(NONE, EVEX_Vscatterqps_vm64x_k1_xmm, 0),
        _ => row(NONE, EVEX_Vscatterqpd_vm64x_k1_xmm, 0),
    }
}

/// Rows that are known by name.
pub mod rows {
    use iced_x86::Code::*;

    use super::{NONE, Row, row, row_from_32};

    /// All of them.
    #[cfg(test)]
    pub const ALL: &[Row] = &[
        LOAD_32,
        LOAD_64,
        STORE_32,
        STORE_64,
        STREAM,
        SPLAT_32,
        SPREAD_32,
        SPREAD_64,
        SPLAT_INT_32,
        SPLAT_INT_64,
        XOR,
        BLEND_32,
        BLEND_64,
        BLEND_BY_32,
        BLEND_BY_64,
        EXTEND_SIGNED,
        SHUFFLE_32,
        PERMUTE_64,
        SHUFFLE_128,
        NARROW_F16,
        NARROW_8,
        NARROW_16,
        NARROW_32,
        TEST_32,
        MASK_LOAD_32,
        MASK_LOAD_64,
        INSERT,
        EXTRACT,
        MASK_STORE_32,
        MASK_STORE_64,
        EQUAL_32,
        EQUAL_64,
        GREATER_32,
        GREATER_64,
        MUL_LOW,
        SHUFFLE_8,
        THREE,
        PICK,
        PICK_OF_4,
    ];

    /// moves of 4-byte lanes: to a register
    pub const LOAD_32: Row = row(VEX_Vmovups_xmm_xmmm128, EVEX_Vmovups_xmm_k1z_xmmm128, 0);
    /// moves of 8-byte lanes: to a register
    pub const LOAD_64: Row = row(VEX_Vmovupd_xmm_xmmm128, EVEX_Vmovupd_xmm_k1z_xmmm128, 0);
    /// moves of 4-byte lanes: to memory
    pub const STORE_32: Row = row(VEX_Vmovups_xmmm128_xmm, EVEX_Vmovups_xmmm128_k1z_xmm, 0);
    /// moves of 8-byte lanes: to memory
    pub const STORE_64: Row = row(VEX_Vmovupd_xmmm128_xmm, EVEX_Vmovupd_xmmm128_k1z_xmm, 0);
    /// moves past the caches
    pub const STREAM: Row = row(VEX_Vmovntps_m128_xmm, EVEX_Vmovntps_m128_xmm, 0);
    /// 4 bytes of memory in every lane
    pub const SPLAT_32: Row = row(VEX_Vbroadcastss_xmm_m32, EVEX_Vbroadcastss_xmm_k1z_xmmm32, 0);
    /// the lowest 4 bytes of a register in every lane
    pub const SPREAD_32: Row = row(VEX_Vpbroadcastd_xmm_xmmm32, EVEX_Vpbroadcastd_xmm_k1z_xmmm32, 0);
    /// the lowest 8 bytes of memory or of a register in every lane
    pub const SPREAD_64: Row = row(VEX_Vpbroadcastq_xmm_xmmm64, EVEX_Vpbroadcastq_xmm_k1z_xmmm64, 0);
    /// an integer in every lane
    pub const SPLAT_INT_32: Row = row(NONE, EVEX_Vpbroadcastd_xmm_k1z_r32, 0);
    /// an integer in every lane
    pub const SPLAT_INT_64: Row = row(NONE, EVEX_Vpbroadcastq_xmm_k1z_r64, 0);
    /// no bit
    pub const XOR: Row = row(VEX_Vpxor_xmm_xmm_xmmm128, EVEX_Vpxord_xmm_k1z_xmm_xmmm128b32, 4);
    /// by a mask the third, otherwise the second
    pub const BLEND_32: Row = row(NONE, EVEX_Vblendmps_xmm_k1z_xmm_xmmm128b32, 4);
    /// by a mask the third, otherwise the second
    pub const BLEND_64: Row = row(NONE, EVEX_Vblendmpd_xmm_k1z_xmm_xmmm128b64, 8);
    /// by a vector of truths the third, otherwise the second
    pub const BLEND_BY_32: Row = row(VEX_Vblendvps_xmm_xmm_xmmm128_xmm, NONE, 0);
    /// by a vector of truths the third, otherwise the second
    pub const BLEND_BY_64: Row = row(VEX_Vblendvpd_xmm_xmm_xmmm128_xmm, NONE, 0);
    /// 4-byte lanes as 8-byte lanes, by their sign
    pub const EXTEND_SIGNED: Row = row(VEX_Vpmovsxdq_xmm_xmmm64, EVEX_Vpmovsxdq_xmm_k1z_xmmm64, 0);
    /// 4-byte lanes anew within 16 bytes
    pub const SHUFFLE_32: Row = row(VEX_Vpshufd_xmm_xmmm128_imm8, EVEX_Vpshufd_xmm_k1z_xmmm128b32_imm8, 4);
    /// 8-byte lanes anew within 32 bytes; there is no form for 16
    pub const PERMUTE_64: Row = row_from_32(VEX_Vpermq_ymm_ymmm256_imm8, EVEX_Vpermq_ymm_k1z_ymmm256b64_imm8, 8);
    /// parts of 16 bytes anew; there is no form for 16
    pub const SHUFFLE_128: Row = row_from_32(NONE, EVEX_Vshufi64x2_ymm_k1z_ymm_ymmm256b64_imm8, 8);
    /// 16 bits of f32 lanes, rounded to f16
    pub const NARROW_F16: Row = row(VEX_Vcvtps2ph_xmmm64_xmm_imm8, EVEX_Vcvtps2ph_xmmm64_k1z_xmm_imm8, 0);
    /// the low bytes of 4-byte lanes
    pub const NARROW_8: Row = row(NONE, EVEX_Vpmovdb_xmmm32_k1z_xmm, 0);
    /// the low halves of 4-byte lanes
    pub const NARROW_16: Row = row(NONE, EVEX_Vpmovdw_xmmm64_k1z_xmm, 0);
    /// the low halves of 8-byte lanes
    pub const NARROW_32: Row = row(NONE, EVEX_Vpmovqd_xmmm64_k1z_xmm, 0);
    /// which lanes have common bits
    pub const TEST_32: Row = row(NONE, EVEX_Vptestmd_kr_k1_xmm_xmmm128b32, 4);
    /// lanes of a mask, from memory
    pub const MASK_LOAD_32: Row = row(VEX_Vmaskmovps_xmm_xmm_m128, NONE, 0);
    /// lanes of a mask, from memory
    pub const MASK_LOAD_64: Row = row(VEX_Vmaskmovpd_xmm_xmm_m128, NONE, 0);
    /// lanes of a mask, to memory
    pub const MASK_STORE_32: Row = row(VEX_Vmaskmovps_m128_xmm_xmm, NONE, 0);
    /// four lanes into a wider vector
    pub const INSERT: Row =
        row_from_32(VEX_Vinsertf128_ymm_ymm_xmmm128_imm8, EVEX_Vinsertf32x4_ymm_k1z_ymm_xmmm128_imm8, 0);
    /// four lanes of a wider vector
    pub const EXTRACT: Row = row_from_32(VEX_Vextractf128_xmmm128_ymm_imm8, EVEX_Vextractf32x4_xmmm128_k1z_ymm_imm8, 0);
    /// lanes of a mask, to memory
    pub const MASK_STORE_64: Row = row(VEX_Vmaskmovpd_m128_xmm_xmm, NONE, 0);
    /// a truth for every lane: equal
    pub const EQUAL_32: Row = row(VEX_Vpcmpeqd_xmm_xmm_xmmm128, NONE, 0);
    /// a truth for every lane: equal
    pub const EQUAL_64: Row = row(VEX_Vpcmpeqq_xmm_xmm_xmmm128, NONE, 0);
    /// a truth for every lane: greater
    pub const GREATER_32: Row = row(VEX_Vpcmpgtd_xmm_xmm_xmmm128, NONE, 0);
    /// a truth for every lane: greater
    pub const GREATER_64: Row = row(VEX_Vpcmpgtq_xmm_xmm_xmmm128, NONE, 0);
    /// bits by the bits of three operands and a table of eight
    pub const THREE: Row = row(NONE, EVEX_Vpternlogd_xmm_k1z_xmm_xmmm128b32_imm8, 4);
    /// lanes of the third by the numbers in the second; there is no form for 16 bytes
    pub const PICK: Row = row_from_32(VEX_Vpermps_ymm_ymm_ymmm256, EVEX_Vpermps_ymm_k1z_ymm_ymmm256b32, 4);
    /// lanes of the second by the numbers in the third, within 16 bytes
    pub const PICK_OF_4: Row = row(VEX_Vpermilps_xmm_xmm_xmmm128, EVEX_Vpermilps_xmm_k1z_xmm_xmmm128b32, 4);
    /// products of the low halves of 8-byte lanes
    pub const MUL_LOW: Row = row(VEX_Vpmuludq_xmm_xmm_xmmm128, EVEX_Vpmuludq_xmm_k1z_xmm_xmmm128b64, 8);
    /// bytes anew within 16 bytes
    pub const SHUFFLE_8: Row = row(VEX_Vpshufb_xmm_xmm_xmmm128, EVEX_Vpshufb_xmm_k1z_xmm_xmmm128, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Row> {
        let tys = [Ty::F32, Ty::F64, Ty::I32, Ty::I64];
        let mut rows = rows::ALL.to_vec();
        for ty in tys {
            rows.extend(Binary::ALL.iter().filter_map(|op| binary(*op, ty)));
            rows.extend(Binary::ALL.iter().filter_map(|op| shift(*op, ty)));
            rows.extend(Unary::ALL.iter().filter_map(|op| unary(*op, ty).map(|(row, _)| row)));
            rows.extend(FmaOp::ALL.iter().filter_map(|op| fma(*op, ty)).flatten());
            rows.extend(Compare::ALL.iter().filter_map(|op| compare(*op, ty).map(|(row, _)| row)));
            rows.extend(tys.iter().flat_map(|to| Convert::ALL.iter().filter_map(|how| convert(*how, ty, *to))));
        }
        rows.extend(DType::ALL.iter().filter_map(|dtype| widen(*dtype)));
        for index in [4, 8] {
            rows.extend([4, 8].iter().flat_map(|element| [gather(index, *element), scatter(index, *element)]));
        }
        rows
    }

    /// The widest vector that an instruction names.
    fn widest(code: Code) -> Size {
        let name = format!("{code:?}");
        let has = |letter: char| {
            ["", "vm32", "vm64"].iter().any(|place| {
                let end = if place.is_empty() { "mm" } else { "" };
                name.contains(&format!("_{place}{letter}{end}"))
            })
        };
        if has('z') {
            Size::Z
        } else if has('y') {
            Size::Y
        } else {
            Size::X
        }
    }

    #[test]
    fn forms_of_a_row_are_one_instruction_in_its_widths() {
        for row in all() {
            for level in [Level::Avx512, Level::Avx2] {
                let first = if level == Level::Avx512 { row.evex } else { row.vex };
                for size in [Size::X, Size::Y, Size::Z] {
                    if let Some(code) = row.code(level, size) {
                        assert_eq!(code.mnemonic(), first.mnemonic(), "{row:?} {size:?}");
                        assert_eq!(widest(code), size, "{code:?}");
                        let expected = if level == Level::Avx512 { "EVEX" } else { "VEX" };
                        assert!(format!("{code:?}").starts_with(expected), "{code:?}");
                    }
                }
            }
            let name = format!("{:?}", row.evex);
            let bits = [(4, "b32"), (8, "b64")].into_iter().find(|(_, end)| name.contains(end));
            assert_eq!(bits.map_or(0, |(lane, _)| lane), row.lane, "{name}");
        }
    }
}
