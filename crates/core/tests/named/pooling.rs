use crate::call::{at, coordinates, f32s, noise, op};
use fuseline::tensor::{DType, Literal};

#[test]
fn a_max_pool_finds_value_and_place() {
    let x = noise(&[2, 2, 5, 7], 5);
    for column_major in [0, 1] {
        let y = op("MaxPool")
            .ints("kernel_shape", &[2, 3])
            .ints("strides", &[2, 2])
            .ints("dilations", &[1, 2])
            .ints("pads", &[1, 1, 0, 2])
            .int("storage_order", column_major)
            .arg(x.clone())
            .outputs(2)
            .run();
        for (k, i) in coordinates(y[0].sizes()).into_iter().enumerate() {
            let mut best = (f64::NEG_INFINITY, 0);
            for t in coordinates(&[2, 3]) {
                let (h, w) = (i[2] as i64 * 2 + t[0] as i64 - 1, i[3] as i64 * 2 + t[1] as i64 * 2 - 1);
                let Some(v) = at(&x, &[i[0] as i64, i[1] as i64, h, w]) else { continue };
                if v > best.0 {
                    let inside = if column_major == 1 { w * 5 + h } else { h * 7 + w };
                    best = (v, (i[0] * 2 + i[1]) as i64 * 35 + inside);
                }
            }
            assert_eq!((y[0].float(k), y[1].int(k)), best, "at {i:?}");
        }
    }
}

#[test]
fn a_ceiling_keeps_windows_that_begin_inside() {
    let x = f32s(&[1, 1, 6], &[1., 2., 3., 4., 5., 6.]);
    let pool = |ceil: i64| {
        op("MaxPool").ints("kernel_shape", &[3]).ints("strides", &[2]).int("ceil_mode", ceil).arg(x.clone())
    };
    assert_eq!(pool(0).run()[0].to_f64s(), [3., 5.]);
    assert_eq!(pool(1).run()[0].to_f64s(), [3., 5., 6.]);
    let reduced =
        op("MaxPool").ints("kernel_shape", &[1]).ints("strides", &[2]).ints("pads", &[0, 1]).int("ceil_mode", 1);
    assert_eq!(reduced.arg(x).run()[0].to_f64s(), [1., 3., 5.]);
}

#[test]
fn a_max_pool_of_integers_never_sees_its_padding() {
    let x = Literal::from_ints(DType::I8, [1, 1, 2], &[-100, -128]).unwrap();
    let y = op("MaxPool").ints("kernel_shape", &[2]).ints("pads", &[1, 1]).arg(x).run();
    assert_eq!(y[0].to_ints(), [-100, -100, -128]);
}

#[test]
fn an_average_counts_what_lies_inside() {
    let x = f32s(&[1, 1, 5], &[1., 2., 3., 4., 5.]);
    let pool = |include: i64, ceil: i64, pads: [i64; 2]| {
        let op = op("AveragePool").ints("kernel_shape", &[3]).ints("strides", &[2]).ints("pads", &pads);
        op.int("count_include_pad", include).int("ceil_mode", ceil).arg(x.clone()).run()[0].to_f64s()
    };
    assert_eq!(pool(0, 0, [1, 1]), [1.5, 3., 4.5]);
    assert_eq!(pool(1, 0, [1, 1]), [1., 3., 3.]);
    // A window that overhangs counts its padding, but not what lies behind that.
    assert_eq!(pool(1, 1, [0, 1]), [2., 4., 2.5]);
    assert_eq!(pool(0, 1, [0, 1]), [2., 4., 5.]);
}

#[test]
fn global_pools_keep_their_axes() {
    let x = f32s(&[1, 2, 2, 2], &[1., 2., 3., 6., -1., -2., -3., -6.]);
    let mean = &op("GlobalAveragePool").arg(x.clone()).run()[0];
    assert_eq!((mean.sizes(), mean.to_f64s()), (&[1, 2, 1, 1][..], vec![3., -3.]));
    assert_eq!(op("GlobalMaxPool").arg(x).run()[0].to_f64s(), [6., -1.]);
}
