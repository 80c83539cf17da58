use fuseline::tensor::{DType, Literal};

use crate::call::{Op, op};

fn ints(dtype: DType, values: &[i64]) -> Literal {
    Literal::from_ints(dtype, [values.len()], values).unwrap()
}

fn floats(dtype: DType, values: &[f64]) -> Literal {
    Literal::from_f64s(dtype, [values.len()], values).unwrap()
}

fn to(dtype: DType) -> Op {
    op("Cast").str("to", dtype.name())
}

#[test]
fn every_type_converts_to_every_other() {
    for &from in DType::ALL {
        for &target in DType::ALL {
            let y = to(target).arg(ints(from, &[1, 1, 1])).run().remove(0);
            assert_eq!((y.dtype(), y.to_ints()), (target, vec![1; 3]), "{from} to {target}");
        }
    }
}

#[test]
fn integers_wrap_and_floats_round() {
    assert_eq!(to(DType::I8).arg(ints(DType::I16, &[200, -200])).values(), [-56.0, 56.0]);
    assert_eq!(to(DType::I4).arg(ints(DType::I16, &[9, -9])).values(), [-7.0, 7.0]);
    assert_eq!(to(DType::I32).arg(floats(DType::F32, &[1.9, -1.9])).values(), [1.0, -1.0]);
    assert_eq!(to(DType::Bool).arg(floats(DType::F32, &[0.0, -0.0, 0.3])).values(), [0.0, 0.0, 1.0]);
    assert_eq!(to(DType::F16).arg(floats(DType::F32, &[1e6, 2049.0])).values(), [f64::INFINITY, 2048.0]);
}

#[test]
fn eight_bits_saturate_unless_told_otherwise() {
    let x = floats(DType::F32, &[1000.0, -1e9, f64::INFINITY, 1.06, f64::NAN]);
    let y = to(DType::F8E4M3).arg(x.clone()).values();
    assert_eq!((&y[..4], y[4].is_nan()), (&[448.0, -448.0, 448.0, 1.0][..], true));
    let y = to(DType::F8E4M3).int("saturate", 0).arg(x.clone()).values();
    assert!(y[0].is_nan() && y[1].is_nan() && y[2].is_nan() && y[3] == 1.0);
    let y = to(DType::F8E5M2).int("saturate", 0).arg(x.clone()).values();
    assert_eq!(&y[..3], [1024.0, f64::NEG_INFINITY, f64::INFINITY]);
    // From one narrow type to a wider one, where the bound is no number of the first.
    assert_eq!(to(DType::F8E5M2).arg(floats(DType::F8E4M3, &[448.0, -2.0])).values(), [448.0, -2.0]);
    assert_eq!(to(DType::F8E4M3).arg(ints(DType::I64, &[3, 5000])).values(), [3.0, 448.0]);
    assert_eq!(to(DType::F4E2M1).arg(x).values()[..4], [6.0, -6.0, 6.0, 1.0]);
}

#[test]
fn scales_round_as_they_are_told() {
    let least = (-127f64).exp2();
    let x = floats(DType::F32, &[3.0, 2.5, 2.0, 0.0, least, least * 1.25, 3e38, f64::INFINITY]);
    let run = |mode: &str, saturate: i64| {
        to(DType::F8E8M0).str("round_mode", mode).int("saturate", saturate).arg(x.clone()).values()
    };
    let most = 127f64.exp2();
    assert_eq!(run("up", 1), [4.0, 4.0, 2.0, least, least, 2.0 * least, most, most]);
    assert_eq!(run("down", 1), [2.0, 2.0, 2.0, least, least, least, most, most]);
    assert_eq!(run("nearest", 1), [4.0, 2.0, 2.0, least, least, least, most, most]);
    let strict = run("nearest", 0);
    assert_eq!((&strict[..3], strict[4]), (&[4.0, 2.0, 2.0][..], least));
    assert!(strict[3].is_nan() && strict[6].is_nan() && strict[7].is_nan());
    assert!(to(DType::F8E8M0).arg(floats(DType::F32, &[f64::NAN])).values()[0].is_nan());
    assert!(to(DType::F8E8M0).str("round_mode", "odd").arg(x).refusal().contains("odd"));
}

#[test]
fn narrow_floats_quantise() {
    let scale = Literal::from_f64s(DType::F32, [], &[2.0]).unwrap();
    let zero = Literal::from_f64s(DType::F8E4M3, [], &[0.0]).unwrap();
    let quantised = op("QuantizeLinear").arg(floats(DType::F32, &[1.0, 2.2, -2000.0])).arg(scale.clone()).arg(zero);
    let quantised = quantised.run().remove(0);
    assert_eq!((quantised.dtype(), quantised.to_f64s()), (DType::F8E4M3, vec![0.5, 1.125, -448.0]));
    assert_eq!(op("DequantizeLinear").arg(quantised).arg(scale).values(), [1.0, 2.25, -896.0]);
}

#[test]
fn bits_are_read_as_another_type() {
    let x = floats(DType::F32, &[1.0, -2.5, 0.0]);
    let bits = op("BitCast").str("to", "i32").arg(x.clone()).run().remove(0);
    assert_eq!(bits.to_ints(), [0x3f80_0000, 0xc020_0000u32 as i32 as i64, 0]);
    assert_eq!(op("BitCast").str("to", "f32").arg(bits).values(), x.to_f64s());
    assert!(op("BitCast").str("to", "i64").arg(x).refusal().contains("not as wide"));
    let wide = floats(DType::F64, &[5e-324, -1.0]);
    let bits = op("BitCast").str("to", "u64").arg(wide).run().remove(0);
    assert_eq!(bits.to_ints(), [1, (-1f64).to_bits() as i64]);
    assert_eq!(op("BitCast").str("to", "bool").arg(ints(DType::U8, &[0, 1])).values(), [0.0, 1.0]);
}
