//! The accuracy column of the scalar table: a plain f32 implementation keeps what the table allows.

use fuseline::ops::{Scalar, Signature};
use fuseline::tensor::DType;

/// The functions as f32 arithmetic spells them; a new row does not compile without its arm.
fn in_f32(op: Scalar, x: &[f32]) -> Option<f32> {
    let a = x[0];
    let b = x.get(1).copied().unwrap_or(0.0);
    Some(match op {
        Scalar::Add => a + b,
        Scalar::Sub => a - b,
        Scalar::Mul => a * b,
        Scalar::Div => a / b,
        Scalar::Mod => {
            let r = a % b;
            if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
        }
        Scalar::Rem => a % b,
        Scalar::Pow => a.powf(b),
        Scalar::Max => a.max(b),
        Scalar::Min => a.min(b),
        Scalar::Neg => -a,
        Scalar::Abs => a.abs(),
        Scalar::Sign => {
            if a == 0.0 {
                a
            } else {
                a.signum()
            }
        }
        Scalar::Floor => a.floor(),
        Scalar::Ceil => a.ceil(),
        Scalar::Round => a.round_ties_even(),
        Scalar::Trunc => a.trunc(),
        Scalar::Sqrt => a.sqrt(),
        Scalar::Exp => a.exp(),
        Scalar::Exp2 => a.exp2(),
        Scalar::Log => a.ln(),
        Scalar::Log2 => a.log2(),
        Scalar::Log1p => a.ln_1p(),
        Scalar::Expm1 => a.exp_m1(),
        Scalar::Sin => a.sin(),
        Scalar::Cos => a.cos(),
        Scalar::Tan => a.tan(),
        Scalar::Asin => a.asin(),
        Scalar::Acos => a.acos(),
        Scalar::Atan => a.atan(),
        Scalar::Sinh => a.sinh(),
        Scalar::Cosh => a.cosh(),
        Scalar::Tanh => a.tanh(),
        Scalar::Erf => libm::erff(a),
        Scalar::Sigmoid => 1.0 / (1.0 + (-a).exp()),
        Scalar::Kept => a,
        // The standard library's formulas for these lose more than a careful implementation does.
        Scalar::Asinh => libm::asinhf(a),
        Scalar::Acosh => libm::acoshf(a),
        Scalar::Atanh => libm::atanhf(a),
        Scalar::Lt | Scalar::Le | Scalar::Eq | Scalar::IsNan => return None,
        Scalar::And | Scalar::Or | Scalar::Xor | Scalar::Not | Scalar::Shl | Scalar::Shr | Scalar::Select => {
            return None;
        }
    })
}

/// Distance in units of the last place of the exact value.
fn ulps(exact: f64, actual: f32) -> f64 {
    if exact.is_nan() && actual.is_nan() || f64::from(actual) == exact {
        return 0.0;
    }
    let rounded = exact as f32;
    if rounded.is_infinite() {
        return if actual == rounded { 0.0 } else { f64::INFINITY };
    }
    let exponent = (rounded.abs().max(f32::MIN_POSITIVE).to_bits() >> 23) as i32 - 127;
    (f64::from(actual) - exact).abs() / f64::from(exponent - 23).exp2()
}

#[test]
fn an_f32_implementation_keeps_the_claimed_accuracy() {
    let points: Vec<f32> =
        (-400..=400).map(|k| (k as f32) * 0.0437 + 0.001).chain([0.0, 1.0, -1.0, 87.0, -87.0]).collect();
    for &op in Scalar::ALL {
        let def = op.def();
        let Some(float) = def.float.filter(|_| def.signature == Signature::Same) else { continue };
        let others: &[f32] = if def.arity == 2 { &[0.37, -1.9, 2.0, 7.25] } else { &[0.0] };
        let mut worst = (0.0, 0.0, 0.0);
        for &a in &points {
            for &b in others {
                let args = &[a, b][..def.arity];
                let wide: Vec<f64> = args.iter().map(|x| f64::from(*x)).collect();
                let error = ulps(float(&wide), in_f32(op, args).expect("float functions are spelled above"));
                if error > worst.0 {
                    worst = (error, a, b);
                }
            }
        }
        // Correct rounding itself may be half a unit off.
        let allowed = f64::from(def.ulp) + 0.5;
        assert!(worst.0 <= allowed, "{} is {:.2} ulp off at ({}, {})", def.name, worst.0, worst.1, worst.2);
    }
    assert_eq!(DType::F32.epsilon(), f64::from(f32::EPSILON));
}
