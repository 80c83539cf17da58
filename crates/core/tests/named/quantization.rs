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

/// An operator of the vendor's set on the quantised operands `x = [0, 10, 20, 250]` with scale 0.5 and zero point 10.
fn vendor(name: &'static str) -> crate::call::Op {
    op(name)
        .domain("com.microsoft", 1)
        .arg(ints(DType::U8, &[1, 1, 2, 2], &[0, 10, 20, 250]))
        .arg(f32s(&[], &[0.5]))
        .arg(ints(DType::U8, &[], &[10]))
}

fn second(op: crate::call::Op) -> crate::call::Op {
    let op = op.arg(ints(DType::U8, &[2], &[4, 8])).arg(f32s(&[], &[0.25])).arg(ints(DType::U8, &[], &[0]));
    op.arg(f32s(&[], &[0.5])).arg(ints(DType::U8, &[], &[5]))
}

#[test]
fn quantised_arithmetic_is_real_arithmetic_between_roundings() {
    // x = [-5, 0, 5, 120], y = [1, 2]; results in halves, 5 means 0.
    assert_eq!(second(vendor("QLinearAdd")).run()[0].to_ints(), [0, 9, 17, 249]);
    assert_eq!(second(vendor("QLinearMul")).run()[0].to_ints(), [0, 5, 15, 255]);
    let result = |op: crate::call::Op| op.arg(f32s(&[], &[0.5])).arg(ints(DType::U8, &[1], &[5])).run()[0].to_ints();
    assert_eq!(result(vendor("QLinearLeakyRelu").with("alpha", Attribute::Float(0.5))), [0, 5, 15, 245]);
    assert_eq!(result(vendor("QLinearGlobalAveragePool")), [65]);
    assert_eq!(result(vendor("QLinearAveragePool").ints("kernel_shape", &[1, 2])), [0, 130]);
    assert_eq!(result(vendor("QLinearSoftmax").int("axis", -1)), [5, 7, 5, 7]);
}

#[test]
fn quantised_tensors_are_joined_in_the_units_of_the_result() {
    let y = op("QLinearConcat")
        .domain("com.microsoft", 1)
        .int("axis", 0)
        .arg(f32s(&[], &[2.]))
        .arg(ints(DType::I8, &[], &[-1]))
        .arg(ints(DType::I8, &[2], &[4, 8]))
        .arg(f32s(&[], &[1.]))
        .arg(ints(DType::I8, &[], &[0]))
        .arg(ints(DType::I8, &[1], &[10]))
        .arg(f32s(&[], &[0.5]))
        .arg(ints(DType::I8, &[], &[2]))
        .run();
    assert_eq!(y[0].to_ints(), [1, 3, 1]);
}

#[test]
fn quantised_products_and_their_real_cousins() {
    let a = ints(DType::U8, &[1, 2], &[3, 5]);
    let b = ints(DType::I8, &[2, 2], &[1, 2, 3, 4]);
    let (a_zero, b_zero) = (ints(DType::U8, &[], &[1]), ints(DType::I8, &[2], &[0, 1]));
    // (2, 4) · ((1, 1), (3, 3)) = (14, 14)
    let real = op("MatMulIntegerToFloat")
        .domain("com.microsoft", 1)
        .arg(a.clone())
        .arg(b.clone())
        .arg(f32s(&[], &[0.5]))
        .arg(f32s(&[2], &[1., 2.]))
        .arg(a_zero.clone())
        .arg(b_zero.clone())
        .arg(f32s(&[2], &[100., 0.]))
        .run();
    assert_eq!(real[0].to_f64s(), [107., 14.]);
    let general = |scaled: bool| {
        let op = op("QGemm")
            .domain("com.microsoft", 1)
            .with("alpha", Attribute::Float(2.0))
            .arg(a.clone())
            .arg(f32s(&[], &[0.5]))
            .arg(a_zero.clone())
            .arg(b.clone())
            .arg(f32s(&[2], &[1., 2.]))
            .arg(b_zero.clone())
            .arg(ints(DType::I32, &[2], &[1, -4]));
        if scaled { op.arg(f32s(&[], &[5.])).arg(ints(DType::U8, &[], &[7])) } else { op }
    };
    assert_eq!(general(false).run()[0].to_f64s(), [15., 20.]);
    assert_eq!(general(true).run()[0].to_ints(), [10, 11]);
    let dynamic = op("DynamicQuantizeMatMul")
        .domain("com.microsoft", 1)
        .arg(f32s(&[1, 2], &[0., 255.]))
        .arg(b)
        .arg(f32s(&[1], &[0.5]))
        .no_arg()
        .arg(f32s(&[2], &[0.5, 0.]))
        .run();
    assert_eq!(dynamic[0].to_f64s(), [383., 510.]);
}

#[test]
fn fused_operators_do_what_their_parts_do() {
    let a = f32s(&[2, 1, 2], &[1., 2., 3., 4.]);
    let y = op("FusedMatMul")
        .domain("com.microsoft", 1)
        .int("transBatchA", 1)
        .int("transB", 1)
        .with("alpha", Attribute::Float(0.5))
        .arg(a)
        .arg(f32s(&[1, 2], &[10., 100.]))
        .run();
    assert_eq!((y[0].sizes(), y[0].to_f64s()), (&[1, 2, 1][..], vec![105., 215.]));
    let y = op("FusedGemm")
        .domain("com.microsoft", 1)
        .str("activation", "LeakyRelu")
        .with("activation_alpha", Attribute::Float(0.5))
        .arg(f32s(&[1, 2], &[1., 2.]))
        .arg(f32s(&[2, 2], &[1., -1., 1., -1.]))
        .arg(f32s(&[2], &[1., 1.]))
        .run();
    assert_eq!(y[0].to_f64s(), [4., -1.]);
    let halved = |activation: &str| {
        let call = op("FusedGemm").domain("com.microsoft", 1).str("activation", activation);
        let call = call.with("activation_alpha", Attribute::Float(0.5));
        call.arg(f32s(&[1, 1], &[1.])).arg(f32s(&[1, 2], &[-1., 3.])).values()
    };
    assert_eq!(halved("Softsign"), [-0.5, 0.75]);
    assert_eq!(halved("ThresholdedRelu"), [0., 3.]);
    assert!((halved("Elu")[0] - 0.5 * ((-1f64).exp() - 1.)).abs() < 1e-7);
    assert!((halved("Softplus")[1] - (3f64.exp() + 1.).ln()).abs() < 1e-6);
    let y = op("FusedConv")
        .domain("com.microsoft", 1)
        .str("activation", "Clip")
        .with("activation_params", Attribute::Floats(vec![0., 6.]))
        .arg(f32s(&[1, 1, 3], &[1., 2., 3.]))
        .arg(f32s(&[1, 1, 1], &[2.]))
        .arg(f32s(&[1], &[-5.]))
        .arg(f32s(&[1, 1, 3], &[0., 4., 9.]))
        .run();
    assert_eq!(y[0].to_f64s(), [0., 3., 6.]);
}
