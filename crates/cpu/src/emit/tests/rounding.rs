//! Where every result is rounded, so are those of folds before anything is computed of them: bit by bit as the interpreter of kernels does.

use fuseline::reference::{Buffer, Reading};
use fuseline::tensor::{DType, Env, Literal, Symbol};
use fuseline::tile::{Kernel, Rounding, interp, parse};

use super::run;
use crate::code::Isa;

/// Integers whose products and sums are exact in single precision, in any order, and most of them no numbers of a narrow type.
fn integers(dtype: DType, sizes: Vec<usize>, seed: usize) -> Literal {
    let value = |k: usize| ((k * 7919 + seed * 104_729).wrapping_mul(2_654_435_761) >> 7) % 32;
    let values: Vec<f64> = (0..sizes.iter().product()).map(|k| value(k) as f64 - 15.0).collect();
    Literal::from_f64s(dtype, sizes, &values).unwrap()
}

/// Whether it makes a difference that results are rounded inside of the kernel.
fn check(text: &str, sizes: &[(&str, i64)]) -> bool {
    let mut differs = false;
    for dtype in ["f16", "bf16"] {
        let kernel = parse(&text.replace("half", dtype)).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let env: Env = sizes.iter().map(|(name, n)| (Symbol::name(name), *n)).collect();
        let inputs = kernel.inputs.iter().enumerate().map(|(k, param)| {
            let sizes = param.ty.shape.dims().iter().map(|d| d.eval(&env).unwrap() as usize).collect();
            integers(param.ty.dtype, sizes, k)
        });
        let inputs: Vec<Literal> = inputs.collect();
        let buffers: Vec<Buffer> = inputs.iter().map(Buffer::from_literal).collect();
        let options = interp::Options { reading: Reading::Rounded, ..interp::Options::default() };
        let expected = interp::run(&kernel, &buffers, &env, &options).unwrap();
        let loose = Kernel { rounding: Rounding::Ends, ..kernel.clone() };
        let unrounded = interp::run(&loose, &buffers, &env, &options).unwrap();
        let literals = |all: &[Buffer]| all.iter().map(|y| y.to_literal().unwrap()).collect::<Vec<_>>();
        differs |= literals(&expected) != literals(&unrounded);
        for isa in Isa::available() {
            for cores in [1, 16] {
                let actual = run(&kernel, &env, &inputs, isa, cores);
                assert!(literals(&expected) == actual, "{isa:?}, {cores} cores\n{kernel}");
            }
        }
    }
    differs
}

#[test]
fn products() {
    let mut differs = [false; 2];
    for (n, m, k) in [(1, 9, 300), (7, 40, 64), (70, 130, 257), (3, 16, 9000)] {
        let sizes = [("n", n), ("m", m), ("k", k)];
        differs[0] |= check(
            "kernel { axes i0: n, i1: m, i2: k in b: half[m], x: half[n, k], w: half[k, m] out y: half[n, m] \
             schedule contract dots=(%3) rows=[i0] columns=[i1] sum=[i2] tile=6x64x256 rounding every \
             %0 = load b[i1] %1 = load x[i0, i2] %2 = load w[i2, i1] %3 = dot(%1, %2) over [i2] acc=f32 \
             %4 = map(%0, %3) a - b * 3.0 store y[i0, i1] = %4 }",
            &sizes,
        );
        // two products of one factor
        differs[1] |= check(
            "kernel { axes i0: n, i1: m, i2: k in x: half[n, k], v: half[k, m], w: half[k, m] out y: half[n, m] \
             schedule contract dots=(%3, %4) rows=[i0] columns=[i1] sum=[i2] tile=6x64x256 rounding every \
             %0 = load x[i0, i2] %1 = load v[i2, i1] %2 = load w[i2, i1] %3 = dot(%0, %1) over [i2] acc=f32 \
             %4 = dot(%0, %2) over [i2] acc=f32 %5 = map(%3, %4) a - b store y[i0, i1] = %5 }",
            &sizes,
        );
    }
    assert_eq!(differs, [true; 2]);
}

#[test]
fn products_with_folds_behind() {
    let mut differs = false;
    for (n, m, k) in [(5, 40, 64), (30, 130, 65)] {
        differs |= check(
            "kernel { axes i0: n, i1: m, i2: k in x: half[n, k], w: half[k, m] out y: half[n, m] \
             schedule contract dots=(%2) rows=[i0] columns=[i1] sum=[i2] tile=6x64x256 whole_rows rounding every \
             %0 = load x[i0, i2] %1 = load w[i2, i1] %2 = dot(%0, %1) over [i2] acc=f32 \
             %3 = reduce.max %2 over [i1] %4 = map(%2, %3) a * 3.0 - b store y[i0, i1] = %4 }",
            &[("n", n), ("m", m), ("k", k)],
        );
    }
    assert!(differs);
}

#[test]
fn two_products_in_a_row() {
    let differs = check(
        "kernel { axes i0: n, i1: 24, i2: m, i3: 64 in q: half[n, 64], k: half[m, 64], v: half[m, 24] out y: half[n, 24] \
         schedule attention first=%2 second=%4 rows=[i0] stream=[i2] inner=[i3] columns=[i1] tile=64x256x64 rounding every \
         %0 = load q[i0, i3] %1 = load k[i2, i3] %2 = dot(%0, %1) over [i3] acc=f32 %3 = load v[i2, i1] \
         %4 = dot(%2, %3) over [i2] acc=f32 %5 = map(%4) a * 0.01 store y[i0, i1] = %5 }",
        &[("n", 9), ("m", 20)],
    );
    assert!(differs);
}

#[test]
fn sums() {
    let mut differs = [false; 3];
    for (n, m) in [(1, 40_000), (6, 8333), (40, 5000)] {
        let sizes = [("n", n), ("m", m)];
        for schedule in ["row along=[i1] placement=registers", "row along=[i1] placement=reread"] {
            differs[0] |= check(
                &format!(
                    "kernel {{ axes i0: n, i1: m in x: half[n, m] out y: half[n], z: half[n, m] schedule {schedule} rounding every \
                     %0 = load x[i0, i1] %1 = reduce.sum %0 over [i1] %2 = map(%1) a * 3.0 %3 = map(%0, %1) a - b \
                     store y[i0] = %2 store z[i0, i1] = %3 }}"
                ),
                &sizes,
            );
        }
        differs[1] |= check(
            "kernel { axes i0: n, i1: m in x: half[m, n] out y: half[n] schedule column across=[i1] along=[i0] parts=4 rounding every \
             %0 = load x[i1, i0] %1 = reduce.sum %0 over [i1] %2 = map(%1) a * 3.0 store y[i0] = %2 }",
            &sizes,
        );
        differs[2] |= check(
            "kernel { axes i0: n, i1: m in x: half[n, m] out y: half[n, m] schedule row along=[i1] placement=registers rounding every \
             %0 = load x[i0, i1] %1 = prefix.sum %0 along i1 %2 = map(%1) a * 3.0 store y[i0, i1] = %2 }",
            &sizes,
        );
    }
    assert_eq!(differs, [true; 3]);
}
