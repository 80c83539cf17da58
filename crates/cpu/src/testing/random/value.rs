//! Values: constants, functions, conversions, checks, calls.

use super::{Generator, ROUTINES};
use crate::vector::verify::{has_binary, has_compare, has_convert};
use crate::vector::{Binary, Compare, Convert, FmaOp, FoldOp, IntOp, Ty, Unary, Value};

impl Generator {
    /// A value without operands, or of an integer.
    pub(super) fn leaf(&mut self, ty: Ty) -> Value {
        match ty {
            Ty::Int => match self.below(3) {
                0 => self.task,
                1 => self.read_int(),
                _ => {
                    let n = self.constant(Ty::Int);
                    self.b.number(n as i64)
                }
            },
            Ty::Mask => match self.below(4) {
                0 => {
                    let holds = self.chance(2);
                    self.b.truth(holds)
                }
                1 => self.load(Ty::Mask),
                _ => self.some_lanes(),
            },
            Ty::I32 | Ty::I64 if self.chance(4) => self.b.lane_numbers(ty),
            Ty::F32 | Ty::I32 if self.chance(4) => {
                let lanes: Vec<u32> = (0..self.options.lanes).map(|_| self.constant(ty) as u32).collect();
                self.b.numbers(ty, &lanes)
            }
            ty if self.chance(2) => self.load(ty),
            ty => {
                let bits = self.constant(ty);
                self.b.bits(ty, bits)
            }
        }
    }

    /// A mask of a few first lanes.
    pub(super) fn some_lanes(&mut self) -> Value {
        let n = self.below(self.options.lanes as usize + 2);
        self.b.first(n as u32)
    }

    fn constant(&mut self, ty: Ty) -> u64 {
        let bits = self.bits();
        let special_f32 = [0.0, -0.0, 1.0, -1.5, 0.1, 1e-40, 3e38, -7e9, 65520.0, f32::INFINITY, f32::NAN];
        let special_f64 = [0.0, -0.0, 1.0, -1.5, 0.1, 5e-324, 1e308, -7e19, 1e-310, f64::NEG_INFINITY, f64::NAN];
        let special_int = [0, 1, -1, 2, 7, 31, 32, 63, 255, -128, i64::MIN, i64::MAX, 1 << 31, -(1 << 31)];
        let special = self.below(11);
        match (ty, self.below(3)) {
            (Ty::F32, 0) => u64::from(bits as u32),
            (Ty::F32, 1) => u64::from((bits as i16 as f32 / 64.0).to_bits()),
            (Ty::F32, _) => u64::from(special_f32[special].to_bits()),
            (Ty::F64, 0) => bits,
            (Ty::F64, 1) => (f64::from(bits as i16) / 64.0).to_bits(),
            (Ty::F64, _) => special_f64[special].to_bits(),
            (Ty::I32, 0) => u64::from(bits as u32),
            (Ty::I32, 1) => u64::from(bits as i8 as u32),
            (Ty::I32, _) => u64::from(special_int[special] as u32),
            (_, 0) => bits,
            (_, 1) => bits as i8 as u64,
            (_, _) => (special_int[special + self.below(4)]) as u64,
        }
    }

    /// An integer in 0..n.
    pub(super) fn index(&mut self, n: usize) -> Value {
        let bound = self.b.number(n as i64);
        if self.chance(4) {
            let n = self.below(n);
            return self.b.number(n as i64);
        }
        let value = self.pick(Ty::Int);
        if self.chance(3) {
            return self.b.int(IntOp::FloorMod, value, bound);
        }
        if self.chance(2) {
            let last = self.b.number(n as i64 - 1);
            let zero = self.b.number(0);
            let least = self.b.int(IntOp::Max, value, zero);
            return self.b.int(IntOp::Min, least, last);
        }
        let site = self.site();
        self.b.check_int(value, bound, site)
    }

    /// Lanes in 0..n.
    pub(super) fn indices(&mut self, n: usize) -> Value {
        let ty = if self.wide() && self.chance(2) { Ty::I64 } else { Ty::I32 };
        let value = self.pick(ty);
        if self.chance(2) {
            let last = self.b.integer(ty, n as i64 - 1);
            return self.b.binary(Binary::MinUnsigned, value, last);
        }
        let bound = self.b.number(n as i64);
        let mask = if self.chance(2) { Some(self.pick(Ty::Mask)) } else { None };
        let site = self.site();
        self.b.check_lanes(value, bound, mask, site)
    }

    fn site(&mut self) -> u32 {
        self.sites += 1;
        self.sites - 1
    }

    /// A new value of this type.
    pub(super) fn compute(&mut self, ty: Ty) -> Value {
        match ty {
            Ty::Int => self.int(),
            Ty::Mask => self.mask(),
            ty => self.vector(ty),
        }
    }

    fn int(&mut self) -> Value {
        match self.below(8) {
            0 => {
                let (which, a, b) = (self.pick(Ty::Int), self.pick(Ty::Int), self.pick(Ty::Int));
                self.b.choose(which, a, b)
            }
            1 => {
                let ty = self.one_of(if self.wide() { &[Ty::I32, Ty::I64, Ty::Mask] } else { &[Ty::I32, Ty::Mask] });
                let value = self.pick(ty);
                self.b.lane0(value)
            }
            2 => self.read_int(),
            3 => self.index(11),
            _ => {
                let op = self.one_of(IntOp::ALL);
                let a = self.pick(Ty::Int);
                let b = match op {
                    IntOp::FloorDiv | IntOp::FloorMod => {
                        let most = self.one_of(&[1, 8, 100, 1 << 40]);
                        let divisor = self.index(most);
                        self.b.plus(divisor, 1)
                    }
                    IntOp::Shl | IntOp::Shr => self.index(64),
                    _ => self.pick(Ty::Int),
                };
                self.b.int(op, a, b)
            }
        }
    }

    fn mask(&mut self) -> Value {
        match self.below(9) {
            0 => {
                let value = self.pick(Ty::Int);
                self.b.splat(Ty::Mask, value)
            }
            8 => {
                let value = self.pick(Ty::Mask);
                self.b.fold(FoldOp::By(Binary::Or), value)
            }
            1 | 2 => {
                let op = self.one_of(&[Binary::And, Binary::Or, Binary::Xor, Binary::AndNot]);
                let (a, b) = (self.pick(Ty::Mask), self.pick(Ty::Mask));
                self.b.binary(op, a, b)
            }
            3 => self.select(Ty::Mask),
            4 => self.load(Ty::Mask),
            _ => {
                let ty = self.vector_ty();
                let ops: Vec<Compare> = Compare::ALL.iter().copied().filter(|op| has_compare(*op, ty)).collect();
                let (op, a, b) = (self.one_of(&ops), self.pick(ty), self.pick(ty));
                self.b.compare(op, a, b)
            }
        }
    }

    fn vector_ty(&mut self) -> Ty {
        self.one_of(if self.wide() { &[Ty::F32, Ty::I32, Ty::F64, Ty::I64] } else { &[Ty::F32, Ty::I32] })
    }

    fn vector(&mut self, ty: Ty) -> Value {
        match self.below(16) {
            0 | 1 => self.load(ty),
            2 => self.gather(ty),
            3 => self.select(ty),
            4 | 5 => self.convert(ty),
            6 => {
                let op = self.binary_op(ty);
                let value = self.pick_for(op, ty);
                self.b.fold(FoldOp::By(op), value)
            }
            7 if self.chance(2) => self.call(ty),
            8..=10 if ty.is_float() => {
                let (op, a, b, c) = (self.one_of(FmaOp::ALL), self.pick(ty), self.pick(ty), self.pick(ty));
                self.b.fma(op, a, b, c)
            }
            11 | 12 if ty.is_float() => {
                let narrow = [Unary::RoundF16, Unary::RoundBf16];
                let ops = Unary::ALL.iter().copied().filter(|op| *op != Unary::Swap);
                let ops = ops.filter(|op| ty == Ty::F32 || !narrow.contains(op));
                let (op, a) = (self.one_of(&ops.collect::<Vec<_>>()), self.pick(ty));
                self.b.unary(op, a)
            }
            8 if !ty.is_float() => {
                let value = self.pick(Ty::Int);
                self.b.splat(ty, value)
            }
            9 if !ty.is_float() => self.shifted(ty),
            10 if ty == Ty::I32 => {
                let value = self.pick(ty);
                self.b.unary(Unary::Swap, value)
            }
            13 if matches!(ty, Ty::F32 | Ty::I32) => {
                let (from, lanes) = (self.pick(ty), self.pick(Ty::I32));
                self.b.pick(from, lanes)
            }
            _ => {
                let op = self.binary_op(ty);
                let (mut a, b) = (self.pick_for(op, ty), self.pick_for(op, ty));
                if op == Binary::Scale {
                    a = self.without_nan(a);
                }
                self.b.binary(op, a, b)
            }
        }
    }

    /// What loops are for: a value and one more.
    pub(super) fn accumulated(&mut self, value: Value) -> Value {
        let ty = self.b.ty(value);
        let (a, b) = (self.pick(ty), self.pick(ty));
        if ty.is_float() && self.chance(2) {
            return self.b.fma(FmaOp::Add, a, b, value);
        }
        let op = self.one_of(&[Binary::Add, Binary::Mul, Binary::Min, Binary::Max]);
        self.b.binary(op, value, a)
    }

    fn binary_op(&mut self, ty: Ty) -> Binary {
        let ops: Vec<Binary> = Binary::ALL.iter().copied().filter(|op| has_binary(*op, ty)).collect();
        self.one_of(&ops)
    }

    /// An operand: one without NaN where its bits matter.
    fn pick_for(&mut self, op: Binary, ty: Ty) -> Value {
        let value = self.pick(ty);
        match op {
            Binary::And | Binary::Or | Binary::Xor | Binary::AndNot => self.without_nan(value),
            _ => value,
        }
    }

    /// The same with another number for NaN, whose bits are nobody's promise.
    fn without_nan(&mut self, value: Value) -> Value {
        let ty = self.b.ty(value);
        if !ty.is_float() {
            return value;
        }
        let nan = self.b.compare(Compare::Unordered, value, value);
        let other = self.b.float(ty, 3.0);
        self.b.select(nan, other, value)
    }

    /// A shift by a number that is often within the width.
    fn shifted(&mut self, ty: Ty) -> Value {
        let op = self.one_of(&[Binary::Shl, Binary::ShrSigned, Binary::ShrUnsigned]);
        let a = self.pick(ty);
        let by = if self.chance(2) {
            let n = self.below(ty.lane_bytes() * 8);
            self.b.integer(ty, n as i64)
        } else {
            let (by, most) = (self.pick(ty), self.b.integer(ty, 63));
            self.b.binary(Binary::And, by, most)
        };
        self.b.binary(op, a, by)
    }

    fn select(&mut self, ty: Ty) -> Value {
        let (mask, a, b) = (self.pick(Ty::Mask), self.pick(ty), self.pick(ty));
        if ty.is_float() && self.chance(3) {
            // one instruction, where masks are registers
            let (op, c, zero) = (self.one_of(FmaOp::ALL), self.pick(ty), self.b.float(ty, 0.0));
            let sum = self.b.fma(op, a, b, c);
            return self.b.select(mask, sum, zero);
        }
        self.b.select(mask, a, b)
    }

    fn convert(&mut self, ty: Ty) -> Value {
        let from = self.vector_ty();
        let ways: Vec<Convert> = Convert::ALL.iter().copied().filter(|how| has_convert(*how, from, ty)).collect();
        if ways.is_empty() {
            return self.pick(ty);
        }
        let (how, value) = (self.one_of(&ways), self.pick(from));
        let value = if how == Convert::Bits { self.without_nan(value) } else { value };
        self.b.convert(how, ty, value)
    }

    fn call(&mut self, ty: Ty) -> Value {
        let [mix, wave] = ROUTINES;
        let routine = if ty == Ty::F32 && self.chance(2) { wave } else { mix };
        let args: Vec<Value> = (0..1 + self.below(3))
            .map(|_| {
                let ty = self.vector_ty();
                let value = self.pick(ty);
                self.without_nan(value)
            })
            .collect();
        if self.chance(2) {
            return self.b.call(ty, routine, &args);
        }
        let (mask, otherwise) = (self.pick(Ty::Mask), self.pick(ty));
        self.b.call_where(mask, routine, &args, otherwise)
    }
}
