use super::*;
use crate::tile::{AxisSet, Builder, Schedule};

/// Every operation, guards, reads, layouts and roundings, as the printer writes them.
const EVERYTHING: &str = "\
kernel {
  axes i0: batch, i1: 'sequence length', i2: 768, i3: $2 + 1
  in   x0: f32[batch, 768], x1: i64[batch], x2: f16[768, 3] order=[1, 0], x3: bool[]
  out  y0: f32[batch, 768], y1: u32[batch]
  schedule row along=[i1, i2, i3] placement=split(4)
  rounding every
  %0 = load x1[i0]
  %1 = load x0[i0, i2 - 1] where 0 <= i2 - 1 < 768 else -inf
  %2 = load x2[@0, i3 % 3] reading (%0) where 0 <= i1 + @0 < 768, 0 <= i0 < 5 else 0.5
  %3 = load x3[]
  %4 = map(%3, %1, %2) select(a, b * 2.0, f32(c))
  %5 = map() f32(i2 + size(batch))
  %6 = reduce.sum %4 over [i1, i3]
  %7 = prefix.max %4 along i1 exclusive
  %8 = prefix.sum %5 along i2
  %9 = dot(%7, %4) over [i1, i3] acc=f64
  %10 = reduce.argmax_last %4 over [i2]
  %11 = random %0 stream=7 at [768*i0 + @0] reading (%0)
  %12 = map(%6, %9, %8) a + b + c
  store y0[i0, i2] = %12
  store y1[i0] = %11
}";

const SCHEDULES: &[&str] = &[
    "map",
    "row along=[] placement=registers",
    "row along=[i0] placement=on_chip",
    "row along=[i0, i1] placement=reread",
    "column across=[i0] along=[i1] parts=12",
    "contract dots=(%2, %3) rows=[i0] columns=[i1] sum=[i2] tile=64x128x32",
    "contract dots=(%2) rows=[i0] columns=[] sum=[i2] tile=1x1x1 whole_rows",
    "attention first=%2 second=%3 rows=[i0] stream=[i1] inner=[i2] columns=[] tile=16x64x4",
];

fn assert_survives(text: &str) {
    let kernel = parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(kernel.to_string(), text);
    assert_eq!(parse(&kernel.to_string()).unwrap(), kernel);
    assert_eq!(parse(&format!("{kernel:#}")).unwrap(), kernel, "types are comments");
}

#[test]
fn every_operation_survives() {
    assert_survives(EVERYTHING);
    let kernel = parse(EVERYTHING).unwrap();
    let axes = |k: usize| kernel.steps[k].axes.iter().collect::<Vec<_>>();
    assert_eq!((axes(2), axes(4), axes(6)), (vec![0, 1, 3], vec![0, 1, 2, 3], vec![0, 2]));
    assert_eq!((axes(8), axes(9), axes(10)), (vec![2], vec![0, 2], vec![0, 1, 3]));
}

#[test]
fn every_schedule_survives() {
    for schedule in SCHEDULES {
        assert_survives(&format!(
            "kernel {{\n  axes i0: n, i1: 8, i2: 4\n  in   x0: f32[n, 4], x1: f32[8, 4]\n  schedule {schedule}\n  \
             %0 = load x0[i0, i2]\n  %1 = load x1[i1, i2]\n  %2 = dot(%0, %1) over [i2] acc=f32\n  \
             %3 = dot(%0, %1) over [i2] acc=f64\n}}"
        ));
    }
    assert_survives(
        "kernel {\n  axes i0: n\n  in   x0: f32[n]\n  schedule attention first=%1 second=%2 rows=[] stream=[i0] inner=[] \
         columns=[] tile=1x2x3\n  %0 = load x0[i0]\n  %1 = reduce.max %0 over [i0]\n  %2 = reduce.sum %0 over [i0]\n  \
         correct %2 on %1 by { t0 = a - b; exp(t0) * t0 }\n  correct %1 on %2 by b / a\n}",
    );
    assert_survives(
        "kernel {\n  in   x0: f32[n, m]\n  out  y0: i64[2, $0]\n  schedule host graph nonzero(x: f32[n, m]) {\n    \
         %1 = host.nonzero(x) count=$0 : i64[2, $0]\n    return y = %1\n  }\n}",
    );
    assert_survives("kernel {\n  schedule map\n}");
}

#[test]
fn names_and_order_are_the_writers() {
    let text = "kernel { axes i0: n in a: f32[n], w: f32[n] out sum: f32[n] schedule map # comment\n\
                %first = load a[i0] store sum[i0] = %first %w = load w[i0] }";
    let kernel = parse(text).unwrap();
    assert_eq!((kernel.steps.len(), kernel.stores.len()), (2, 1));
    assert!(kernel.to_string().contains("%1 = load x1[i0]\n  store y0[i0] = %0\n"));
}

#[test]
fn errors_say_what_is_wrong() {
    let heading = "kernel { axes i0: n in x: f32[n, 4], k: i64[n] out y: f32[n] schedule map\n";
    let cases = [
        ("%0 = load z[i0, 0] }", "line 2, column 11: z is not an input"),
        ("%0 = load x[i0] }", "line 2, column 6: 1 coordinates for f32[n, 4]"),
        ("%0 = load x[i0, i1] }", "line 2, column 6: there is no axis i1"),
        ("%0 = load x[i0, i200] }", "line 2, column 6: there is no axis i200"),
        ("%0 = load x[@0, 0] }", "line 2, column 6: @0, and 0 steps are read"),
        (
            "%0 = load x[i0, 0] where 0 <= i0 < i0 else 0.0 }",
            "line 2, column 6: the bound i0 of a guard mentions a coordinate",
        ),
        ("%0 = load x[i0, 0] where 0 <= i0 < 3 else true }", "line 2, column 43: true is not a number of type f32"),
        ("%0 = load x[i0, 0] %1 = load x[@0, 0] reading (%0) }", "line 2, column 25: %0 is f32, an index is i64"),
        ("%0 = load x[i0, 0] %0 = load x[i0, 0] }", "line 2, column 21: %0 has a meaning already"),
        ("%0 = map(%1) a }", "line 2, column 10: %1 is not known here"),
        ("%0 = map() i3 < i0 }", "line 2, column 6: there is no axis i3"),
        ("%0 = map() size(i0) }", "line 2, column 6: the size i0 mentions a coordinate"),
        ("%0 = load k[i0] %1 = map(%0) a + 1.5 }", "line 2, column 34: 1.5 is not a number of type i64"),
        ("%0 = load k[i0] %1 = reduce.argmax %0 over [] }", "line 2, column 22: argmax folds exactly one axis"),
        ("%0 = load k[i0] %1 = reduce.foo %0 over [] }", "line 2, column 29: foo is not a monoid"),
        ("%0 = load k[i0] %1 = reduce.sum %0 over [i1] }", "line 2, column 22: there is no axis i1"),
        ("%0 = load k[i0] %1 = reduce.sum %0 over [i0, i0] }", "line 2, column 46: i0 twice"),
        ("%0 = load k[i0] %1 = prefix.sum %0 along i7 }", "line 2, column 22: there is no axis i7"),
        ("%0 = load k[i0] %1 = prefix.argmin %0 along i0 }", "line 2, column 22: running argmin"),
        ("%0 = load k[i0] %1 = dot(%0, %0) over [i0] acc=f32 }", "line 2, column 22: products of i64 summed in f32"),
        ("%0 = load k[i0] store z[i0] = %0 }", "line 2, column 23: z is not an output"),
        ("%0 = convolve k }", "line 2, column 6: there is no operation convolve"),
        ("%0 = load k[i0] correct %0 on %0 by a }", "line 3, column 1: corrections go with the schedule attention"),
        ("hello }", "line 2, column 1: expected '%', 'store', 'correct' or '}', found 'hello'"),
    ];
    for (body, wanted) in cases {
        let error = parse(&format!("{heading}{body}\n")).unwrap_err().to_string();
        assert_eq!(error, format!("invalid input: {wanted}"), "{body}");
    }
    let cases = [
        ("kernel { axes i1: n schedule map }", "line 1, column 15: expected 'i0', found 'i1'"),
        ("kernel { in x: f32[2], x: f32[2] schedule map }", "line 1, column 24: two inputs are called x"),
        (
            "kernel { in x: f32[2, 2] order=[0, 0] schedule map }",
            "line 1, column 26: [0, 0] is no order of the axes of f32[2, 2]",
        ),
        ("kernel { schedule zigzag }", "line 1, column 19: there is no schedule zigzag"),
        ("kernel { schedule row along=[i0] placement=moon }", "line 1, column 44: there is no placement moon"),
        ("kernel { schedule row along=[64] }", "line 1, column 30: expected an axis such as i0, found '64'"),
        (
            "kernel { schedule contract dots=(%4) rows=[] columns=[] sum=[] tile=1x1x1 }",
            "line 1, column 34: there is no step %4",
        ),
    ];
    for (text, wanted) in cases {
        assert_eq!(parse(text).unwrap_err().to_string(), format!("invalid input: {wanted}"));
    }
}

#[test]
fn a_broken_kernel_can_be_looked_at() {
    let mut builder = Builder::new();
    builder.store(3, &[], crate::tile::StepId(7));
    let schedule = Schedule::Row { along: AxisSet::of(9), placement: crate::tile::Placement::Reread };
    assert!(builder.finish_unverified(schedule).to_string().contains("store y3[] = %7"));
}

/// The kernel of a short text, which is verified, and comes back from its long form.
fn short(text: &str) -> Kernel {
    let kernel = parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    crate::tile::verify(&kernel).unwrap_or_else(|error| panic!("{error}\n{kernel}"));
    assert_eq!(parse(&kernel.to_string()).unwrap(), kernel);
    kernel
}

#[test]
fn the_short_form_is_the_same_kernel() {
    let softmax =
        short("kernel softmax(x: f32[n, m: 1024]) -> y: f32[n, m] {\n  e = exp(x - max[m](x))\n  y = e / sum[m](e)\n}");
    let long = "\
kernel {
  axes i0: n, i1: 1024
  in   x0: f32[n, 1024]
  out  y0: f32[n, 1024]
  schedule row along=[i1] placement=registers
  %0 = load x0[i0, i1]
  %1 = reduce.max %0 over [i1]
  %2 = map(%0, %1) exp(a - b)
  %3 = reduce.sum %2 over [i1]
  %4 = map(%2, %3) a / b
  store y0[i0, i1] = %4
}";
    assert_eq!(softmax.to_string(), long);
    let product = short("kernel(a: bf16[m, k], b: bf16[k, n]) -> (c: f32[m, n]) { c = f32(dot[k](a, b)) }");
    let schedule = "schedule contract dots=(%2) rows=[i0] columns=[i1] sum=[i2] tile=64x64x64\n";
    assert!(product.to_string().contains(schedule), "{product}");
    let batch = short(
        "kernel (x: f32[b, i: n, k], y: f32[b, j: n, k]) -> (s: f32[b, i, j], m: f32[b, i]) { s = dot[k](x, y) \
         m = max[j](s) }",
    );
    let schedule = "dots=(%2) rows=[i1] columns=[i2] sum=[i3] tile=64x64x64 whole_rows\n";
    assert!(batch.to_string().contains(schedule), "{batch}");
    let plain = short("kernel relu(x: f16[n, 1]) -> y: f16[n, 1] { rounding every y = select(x > 0.0, x, 0.0) }");
    assert!(plain.to_string().contains("schedule map\n  rounding every\n  %0 = load x0[i0, 0]"), "{plain}");
    let mean = short("kernel(x: f32[n, m]) -> y: f32[1] { y = mean[n, m](x * f32(m)) }");
    assert!(mean.to_string().contains("a / f32(size(n*m))") || mean.to_string().contains("size(m*n)"), "{mean}");
}

#[test]
fn a_schedule_may_be_left_out() {
    let text = SCHEDULES[0];
    assert_eq!(text, "map");
    let long = "kernel {\n  axes i0: n\n  in   x0: f32[n]\n  out  y0: f32[n]\n  schedule map\n  %0 = load x0[i0]\n  \
                store y0[i0] = %0\n}";
    assert_eq!(parse(&long.replace("  schedule map\n", "")).unwrap(), parse(long).unwrap());
}

#[test]
fn errors_of_the_short_form_point_at_the_word() {
    let cases = [
        ("kernel k(x: f32[n]) -> y: f32[n] { y = z }", (1, 40), "z stands for nothing here"),
        ("kernel k(x: f32[n]) -> y: f32[n] { y = max[m](x) }", (1, 44), "m is not an axis of a tensor"),
        ("kernel k(x: f32[n]) -> y: f32[n] {\n  y = most[n](x)\n}", (2, 7), "most is no way to fold"),
        ("kernel k(x: f32[n]) -> y: f32[n] {\n  y = f16(x)\n}", (2, 7), "y is f32, and this is f16"),
        ("kernel k(x: f32[8]) -> y: f32[n] {}", (1, 17), "an axis of several elements needs a name"),
        ("kernel k(x: f32[n: 8]) -> y: f32[n: 9] {}", (1, 34), "has the size 8 elsewhere, not 9"),
        ("kernel k(x: f32[n: 2 - 5]) -> y: f32[n] {}", (1, 17), "the axis n has the negative size -3"),
        ("kernel k(x: f32[n]) -> x: f32[n] {}", (1, 24), "two tensors are called x"),
        ("kernel k(x: f32[n]) -> y: f32[n] { x = y }", (1, 36), "x has a meaning already"),
        ("kernel k(x: f32[n]) -> y: f32[n] { h = y }", (1, 40), "y is an output that has no value yet"),
        (
            "kernel k(x: f32[n]) -> y: f32[n] {\n  e = exp(x -\n  y = e\n}",
            (3, 3),
            "y is an output that has no value yet; is the line before it finished?",
        ),
        (
            "kernel k(x: f32[n]) -> y: f32[n] {\n  e = exp(x\n  y = e\n}",
            (3, 3),
            "found 'y'; is the line before it finished?",
        ),
        ("kernel k(x: i64[n]) -> y: i64[1] { y = mean[n](x) }", (1, 40), "the mean of i64"),
        ("kernel k(x: f32[n]) { y = x }", (1, 21), "expected '->', found '{'"),
        ("kernel k(x: f32[n]) -> y: f32[m] { y = x }", (1, 40), "this varies along n, and y does not"),
        ("kernel k(x: f32[n]) -> y: f32[n] { z = x }", (1, 24), "y is never assigned"),
        ("kernel k(x: f32[n, n]) -> y: f32[n] { y = sum[n](x) }", (1, 20), "n stands twice in x"),
    ];
    for (text, place, message) in cases {
        let error = parse(text).unwrap_err();
        assert!(error.message().contains(message), "{text}: {error}");
        assert_eq!(place_of(&error), Some(place), "{text}: {error}");
    }
}

#[test]
fn what_is_found_later_is_located_too() {
    let text = "kernel k(x: f32[n, m]) -> y: f32[n, m] {\n  e = exp(x)\n  y = e + sum[m](e)\n}";
    let source = read(text).unwrap();
    let error = Error::invalid("%1 and %2 of x0 at [i0, i1], y0; max2 and x9 are theirs");
    let error = error.at("store 0 (y0)").at("a run");
    assert_eq!(source.locate(&error), Some((3, 3)), "{error}");
    let told = source.in_own_words(error);
    assert_eq!(told.message(), "e and what is computed there of x at [n, m], y; max2 and x9 are theirs");
    assert_eq!(told.path(), ["a run"]);
    assert_eq!(source.locate(&Error::invalid("odd").at("step %2")), Some((3, 11)), "where it is folded");
    assert_eq!((source.name.as_deref(), &source.inputs[0][..], &source.outputs[0][..]), (Some("k"), "x", "y"));
    let long = "kernel {\n  axes i0: 8\n  in x: f32[7]\n  out y: f32[8]\n  schedule map\n  %0 = load x[i0]\n  store y[i0] = %0\n}";
    let source = read(long).unwrap();
    let error = crate::tile::verify(&source.kernel).unwrap_err();
    assert_eq!(source.locate(&error), Some((6, 4)), "{error}");
}
