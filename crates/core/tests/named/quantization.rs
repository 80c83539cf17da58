use crate::call::{f32s, op};
use fuseline::ops::named::Attribute;
use fuseline::tensor::{DType, Literal};

fn ints(dtype: DType, sizes: &[usize], values: &[i64]) -> Literal {
    Literal::from_ints(dtype, sizes.to_vec(), values).unwrap()
}

#[test]
fn quantising_rounds_half_to_even_and_saturates() {
    let y = op("QuantizeLinear")
        .arg(f32s(&[7], &[0., 1., 3., 5., 1000., -254., -1000.]))
        .arg(f32s(&[], &[2.]))
        .arg(ints(DType::U8, &[], &[128]))
        .run();
    assert_eq!(y[0].to_ints(), [128, 128, 130, 130, 255, 1, 0]);
    let y = op("QuantizeLinear").str("output_dtype", "i16").arg(f32s(&[2], &[-9e9, 2.5])).arg(f32s(&[1], &[1.])).run();
    assert_eq!((y[0].dtype(), y[0].to_ints()), (DType::I16, vec![-32768, 2]));
}

#[test]
fn scales_lie_along_an_axis_or_in_blocks() {
    let x = ints(DType::I8, &[2, 3], &[1, 2, 3, 4, 5, 6]);
    let per_axis = op("DequantizeLinear")
        .int("axis", -2)
        .arg(x.clone())
        .arg(f32s(&[2], &[1., 10.]))
        .arg(ints(DType::I8, &[2], &[0, 4]))
        .run();
    assert_eq!(per_axis[0].to_f64s(), [1., 2., 3., 0., 10., 20.]);
    let blocked = op("DequantizeLinear")
        .int("axis", 1)
        .int("block_size", 2)
        .arg(x)
        .arg(f32s(&[2, 2], &[1., 10., 100., 1000.]))
        .run();
    assert_eq!(blocked[0].to_f64s(), [1., 2., 30., 400., 500., 6000.]);
    let vendor =
        op("DequantizeLinear").domain("com.microsoft", 1).arg(ints(DType::U16, &[1], &[7])).arg(f32s(&[], &[2.]));
    assert_eq!(vendor.run()[0].to_f64s(), [14.]);
}

#[test]
fn a_dynamic_range_contains_zero() {
    let y = op("DynamicQuantizeLinear").arg(f32s(&[3], &[1., 2., 510.])).outputs(3).run();
    assert_eq!((y[0].to_ints(), y[1].to_f64s(), y[2].to_ints()), (vec![0, 1, 255], vec![2.], vec![0]));
    let y = op("DynamicQuantizeLinear").arg(f32s(&[2], &[0., 0.])).outputs(3).run();
    assert_eq!((y[0].to_ints(), y[2].to_ints()), (vec![0, 0], vec![0]));
    let y = op("DynamicQuantizeLinear").arg(f32s(&[2], &[-1., -255.])).outputs(3).run();
    assert_eq!((y[0].to_ints(), y[2].to_ints()), (vec![254, 0], vec![255]));
}

#[test]
fn products_of_integers_take_zero_points_of_rows_and_columns() {
    let y = op("MatMulInteger")
        .arg(ints(DType::U8, &[2, 2], &[10, 11, 22, 23]))
        .arg(ints(DType::I8, &[2, 2], &[1, 2, 3, 4]))
        .arg(ints(DType::U8, &[2], &[10, 20]))
        .arg(ints(DType::I8, &[2], &[0, 2]))
        .run();
    assert_eq!(y[0].to_ints(), [3, 2, 11, 6]);
}

#[test]
fn a_general_product_scales_transposes_and_broadcasts() {
    let y = op("Gemm")
        .with("alpha", Attribute::Float(2.0))
        .with("beta", Attribute::Float(0.5))
        .int("transA", 1)
        .int("transB", 1)
        .arg(f32s(&[3, 2], &[1., 2., 3., 4., 5., 6.]))
        .arg(f32s(&[1, 3], &[1., 10., 100.]))
        .arg(f32s(&[1], &[4.]))
        .run();
    assert_eq!((y[0].sizes(), y[0].to_f64s()), (&[2, 1][..], vec![1064., 1286.]));
}
