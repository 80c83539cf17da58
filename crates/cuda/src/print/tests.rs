//! Stages of kernels, run one after another on the interpreter of kernels, give what the kernel gives.

use std::collections::BTreeMap;

use fuseline::compare::{Agreement, Tolerance, compare};
use fuseline::ops::{Expr, Scalar, Term};
use fuseline::reference::Buffer;
use fuseline::tensor::{DType, Dim, Env, Literal, Symbol};
use fuseline::tile::{AxisSet, Kernel, Op, Placement, Rounding, Schedule, Step, Store, interp, parse};

use super::library::{Activation, Asked, Library};
use super::stages::{Stage, Way, stages};
use super::tidy::tidied;
use super::{Options, Parameter, predict, print, split};

/// Numbers that look random, from −1 to 1, or small indices.
fn literal(dtype: DType, sizes: Vec<usize>, seed: usize) -> Literal {
    let count = sizes.iter().product();
    if dtype.is_float() {
        let value = |k: usize| (((k * 7919 + seed * 104_729) * 2_654_435_761) % 2001) as f64 / 1000.0 - 1.0;
        let values: Vec<f64> = (0..count).map(value).collect();
        return Literal::from_f64s(dtype, sizes, &values).unwrap();
    }
    let values: Vec<i64> = (0..count).map(|k| ((k * 31 + seed) % 3) as i64).collect();
    Literal::from_ints(dtype, sizes, &values).unwrap()
}

/// What is printed for a norm of so many rows and columns, of which `value` is stored: of the row `d`, and weights `a` and `b`.
pub fn norm_of(rows: &str, dtype: &str, columns: i64, value: &str) -> String {
    let kernel = format!(
        "kernel {{ axes i0: {rows}, i1: {columns} in b: {dtype}[{columns}], w: {dtype}[{columns}], x: {dtype}[{rows}, {columns}] \
         out y: {dtype}[{rows}, {columns}] schedule row along=[i1] placement=registers \
         %0 = load b[i1] %1 = load w[i1] %2 = load x[i0, i1] %3 = map(%2) f32(a) %4 = reduce.sum %3 over [i1] \
         %5 = map(%3, %4) {{ t0 = a - b; t0 * t0 }} %6 = reduce.sum %5 over [i1] \
         %7 = map(%0, %1, %6, %3, %4) {dtype}({value}) store y[i0, i1] = %7 }}"
    );
    print(&parse(&kernel).unwrap(), &made_for(&Env::new())).unwrap().functions
}

/// Where parts of the rows are folded by themselves, says so: a part has every row whose number leaves its own over.
fn say_parts(kernel: &mut Kernel, part: usize) {
    let parts = kernel.axes[part].as_int().unwrap();
    for k in 0..kernel.stores.len() {
        let Store { value: id, .. } = kernel.stores[k];
        let Op::Reduce { monoid, over, arg } = kernel.step(id).op else { continue };
        if !kernel.stores[k].axes().contains(part) {
            continue;
        }
        let (row, dtype) = (over.iter().next().unwrap(), kernel.step(arg).dtype);
        let expr = Expr::build(&[dtype], |scope, x| {
            let place = scope.index(&Dim::axis(row).modulo(&Dim::int(parts)));
            let is_own = Term::call(Scalar::Eq, &[place, scope.index(&Dim::axis(part))]);
            is_own.select(x[0], scope.constant(dtype, monoid.neutral(dtype)))
        });
        let axes = kernel.step(arg).axes.with(part);
        let args = smallvec::smallvec![arg];
        split::insert(kernel, id, Step { op: Op::Map { expr, args }, dtype, axes });
        let fold = &mut kernel.steps[id.index() + 1];
        fold.op = Op::Reduce { monoid, over, arg: id };
        fold.axes = fold.axes.with(part);
        // So does what is made of it, which no stage of rows stores.
        for k in id.index() + 2..kernel.steps.len() {
            let operands = kernel.steps[k].op.operands();
            if operands.iter().any(|operand| kernel.step(*operand).axes.contains(part) && operand.0 > id.0) {
                kernel.steps[k].axes = kernel.steps[k].axes.with(part);
            }
        }
    }
}

/// What a stage does, as a kernel: its own stores alone, and the outputs that these write.
fn own_part(stage: &Stage) -> (Kernel, Vec<Parameter>) {
    let mut whole = stage.kernel.clone();
    if let Way::RowsAndColumns { part, .. } = stage.way {
        say_parts(&mut whole, part);
    }
    let mut kernel = whole.clone();
    let mut outputs: Vec<usize> = Vec::new();
    kernel.stores = Vec::new();
    for number in &stage.stores {
        let mut store = whole.stores[*number].clone();
        let place = outputs.iter().position(|output| *output == store.output).unwrap_or_else(|| {
            outputs.push(store.output);
            outputs.len() - 1
        });
        store.output = place;
        kernel.stores.push(store);
    }
    // What stands behind the last value that is stored may not fit any more.
    let last = kernel.stores.iter().map(|store| store.value.index()).max().unwrap();
    kernel.steps.truncate(last + 1);
    kernel.outputs = outputs.iter().map(|output| stage.kernel.outputs[*output].clone()).collect();
    let is_prefix = |op: &Op| matches!(op, Op::Prefix { .. });
    let folded = kernel.steps.iter().filter(|step| !is_prefix(&step.op)).map(|step| step.op.folds());
    let along = folded.fold(AxisSet::EMPTY, AxisSet::union);
    let prefixes = kernel.steps.iter().filter(|step| is_prefix(&step.op)).map(|step| step.op.folds());
    let along = prefixes.fold(along, AxisSet::union);
    kernel.schedule = match along.is_empty() {
        true => Schedule::Map,
        false => Schedule::Row { along, placement: Placement::Reread },
    };
    (kernel, outputs.into_iter().map(|output| stage.parameters.outputs[output].clone()).collect())
}

/// Cuts a kernel into stages and runs them; returns how many there were.
fn check(text: &str, sizes: &[(&str, i64)]) -> usize {
    let kernel = parse(text).unwrap();
    let env: Env = sizes.iter().map(|(name, n)| (Symbol::name(name), *n)).collect();
    let inputs = kernel.inputs.iter().enumerate().map(|(k, param)| {
        let sizes = param.ty.shape.eval(&env).unwrap();
        Buffer::from_literal(&literal(param.ty.dtype, sizes, k))
    });
    let inputs: Vec<Buffer> = inputs.collect();
    let options = interp::Options::default();
    let expected = interp::run(&kernel, &inputs, &env, &options).unwrap();
    let printing = Options {
        name: String::new(),
        fixed: env.clone(),
        wide: false,
        groups: false,
        asked: Asked::Nothing,
        processors: 132,
        about: Env::new(),
    };
    let (stages, _) = stages(&kernel, &printing).unwrap();
    let mut memory: BTreeMap<Parameter, Buffer> =
        inputs.into_iter().enumerate().map(|(k, input)| (Parameter::Input(k), input)).collect();
    for stage in &stages {
        let (part, outputs) = own_part(stage);
        let given: Vec<Buffer> = stage.parameters.inputs.iter().map(|parameter| memory[parameter].clone()).collect();
        let results = interp::run(&part, &given, &env, &options).unwrap_or_else(|e| panic!("{e}\n{part}"));
        memory.extend(outputs.into_iter().zip(results));
    }
    for (k, expected) in expected.iter().enumerate() {
        let actual = memory[&Parameter::Output(k)].to_literal().unwrap();
        let agreement = Agreement::Within(Tolerance::ulps(actual.dtype(), 64.0));
        if let Err(mismatch) = compare(&expected.to_literal().unwrap(), &actual, &agreement) {
            panic!("output {k}: {mismatch}\n{kernel}");
        }
    }
    stages.len()
}

#[test]
fn attention_is_computed_fold_by_fold() {
    let text = "kernel { axes i0: h, i1: n, i2: m, i3: 8, i4: 8 in x0: f32[h, n, 8], x1: f32[h, m, 8], x2: f32[h, m, 8] \
        out y0: f32[h, n, 8] schedule attention first=%3 second=%8 rows=[i1] stream=[i2] inner=[i3] columns=[i4] tile=64x64x64 \
        %0 = load x0[i0, i1, i3] %1 = load x1[i0, i2, i3] %2 = load x2[i0, i2, i4] %3 = dot(%0, %1) over [i3] acc=f32 \
        %4 = map(%3) select(i2 <= i1, a * 0.125, -inf) %5 = reduce.max %4 over [i2] %6 = map(%4, %5) exp(a - b) \
        %7 = reduce.sum %6 over [i2] %8 = dot(%6, %2) over [i2] acc=f32 %9 = map(%8, %7) a / b store y0[i0, i1, i4] = %9 \
        correct %7 on %5 by exp(a - b) correct %8 on %5 by exp(a - b) }";
    // Scores; the largest and the sum of a row, which is read once; the result.
    assert_eq!(check(text, &[("h", 2), ("n", 5), ("m", 7)]), 3);
}

#[test]
fn a_norm_before_a_product_reads_its_rows_once_for_all_that_is_folded() {
    let text = "kernel { axes i0: n, i1: 48, i2: 16 in x: f32[n, 48], w: f32[48, 16] out y: f32[n, 16] \
        schedule contract dots=(%8) rows=[i0] columns=[i2] sum=[i1] tile=64x64x16 \
        %0 = load x[i0, i1] %1 = load w[i1, i2] %2 = reduce.sum %0 over [i1] %3 = map(%0, %2) a - b * 0.0208333 %4 = map(%3) a * a \
        %5 = reduce.sum %4 over [i1] %6 = map(%3, %5) a / sqrt(b * 0.0208333 + 1e-5) %8 = dot(%6, %1) over [i1] acc=f32 \
        store y[i0, i2] = %8 }"
        .replace("%8", "%7");
    assert_eq!(check(&text, &[("n", 33)]), 2);
}

#[test]
fn equal_products_are_one_launch_though_another_stands_between() {
    let text = "kernel { axes i0: 16384, i1: 64, i2: 64, i3: 64, i4: 64 in x: f32[16384, 64], u: f32[64, 64], v: f32[64, 64], w: f32[64, 64], b: f32[64], c: f32[64] \
        out y: f32[16384, 64], z: f32[16384, 64], t: f32[16384, 64] \
        schedule contract dots=(%4, %5, %6) rows=[i0] columns=[i2, i3, i4] sum=[i1] tile=64x64x16 \
        %0 = load x[i0, i1] %1 = load u[i1, i2] %2 = load v[i1, i3] %3 = load w[i1, i4] \
        %4 = dot(%0, %1) over [i1] acc=f32 %5 = dot(%0, %2) over [i1] acc=f32 %6 = dot(%0, %3) over [i1] acc=f32 \
        %7 = load b[i2] %8 = load c[i4] %9 = map(%4, %7) a + b %10 = map(%6, %8) a + b \
        store y[i0, i2] = %9 store z[i0, i3] = %5 store t[i0, i4] = %10 }";
    let printed = print(&parse(text).unwrap(), &made_for(&Env::new())).unwrap();
    let blocks: Vec<_> = printed.launches.iter().map(|launch| launch.blocks.as_int()).collect();
    assert_eq!(blocks, [Some(512), Some(256)]);
}

#[test]
fn sums_of_columns_are_cut_into_parts_that_need_not_be_equal() {
    let text = "kernel { axes i0: n, i1: 24 in x: f32[n, 24] out y: f32[24], z: f32[24] schedule column across=[i0] along=[] parts=4 \
        %0 = load x[i0, i1] %1 = reduce.sum %0 over [i0] %2 = map(%0) a * a + 1.0 %3 = reduce.sum %2 over [i0] \
        %4 = map(%3) sqrt(a) store y[i1] = %1 store z[i1] = %4 }";
    // In one part; in equal parts; in parts of which the last is shorter.
    assert_eq!(check(text, &[("n", 40)]), 1);
    assert_eq!(check(text, &[("n", 4096)]), 3);
    assert_eq!(check(text, &[("n", 4099)]), 3);
}

#[test]
fn long_folds_to_few_numbers_are_cut_into_parts() {
    let sum = "kernel { axes i0: n in x: f32[n] out y: f32[] schedule row along=[i0] placement=split(8) \
        %0 = load x[i0] %1 = map(%0) abs(a) %2 = reduce.sum %1 over [i0] %3 = map(%2) sqrt(a) store y[] = %3 }";
    assert_eq!(check(sum, &[("n", 262_144)]), 2);
    assert_eq!(check(sum, &[("n", 262_147)]), 2);
    let least = "kernel { axes i0: n in x: f32[n], w: f32[n] out y: f32[] schedule row along=[i0] placement=split(8) \
        %0 = load x[i0] %1 = load w[i0] %2 = map(%0, %1) max(a, b) + 2.0 %3 = reduce.min %2 over [i0] store y[] = %3 }";
    assert_eq!(check(least, &[("n", 262_147)]), 2);
    let products = "kernel { axes i0: 3, i1: k, i2: 2 in x: f32[3, k], w: f32[k, 2] out y: f32[3, 2] \
        schedule contract dots=(%2) rows=[i0] columns=[i2] sum=[i1] tile=8x8x8 \
        %0 = load x[i0, i1] %1 = load w[i1, i2] %2 = dot(%0, %1) over [i1] acc=f32 store y[i0, i2] = %2 }";
    // Threads share a sum before it is cut.
    assert_eq!(check(products, &[("k", 1000)]), 1);
    assert_eq!(check(products, &[("k", 10_000)]), 2);
    assert_eq!(check(products, &[("k", 10_003)]), 2);
}

#[test]
fn outputs_of_other_shapes_have_stages_of_their_own() {
    let text = "kernel { axes i0: n, i1: m in x: f32[n, m] out y: f32[n, m], z: f32[n], w: f32[m] \
        schedule column across=[i0] along=[i1] parts=2 %0 = load x[i0, i1] %1 = reduce.max %0 over [i1] \
        %2 = map(%0, %1) exp(a - b) %3 = reduce.sum %2 over [i1] %4 = map(%2, %3) a / b %5 = reduce.sum %0 over [i0] \
        store y[i0, i1] = %4 store z[i0] = %3 store w[i1] = %5 }";
    // Rows and columns in one pass, then what its parts have left.
    assert_eq!(check(text, &[("n", 6), ("m", 9)]), 2);
}

/// How many folds stand behind each other.
fn depth(kernel: &Kernel) -> usize {
    let mut depth = vec![0; kernel.steps.len()];
    for (k, step) in kernel.steps.iter().enumerate() {
        let below = step.op.operands().iter().map(|operand| depth[operand.index()]).max().unwrap_or(0);
        depth[k] = below + usize::from(step.op.is_fold());
    }
    depth.into_iter().max().unwrap_or(0)
}

#[test]
fn what_cancels_in_the_gradient_of_a_softmax_is_not_summed() {
    let text = "kernel { axes i0: n, i1: m in x0: f32[n, m], x1: f32[n, m] out y0: f32[n, m] \
        schedule row along=[i1] placement=registers \
        %0 = load x0[i0, i1] %1 = reduce.max %0 over [i1] %2 = map(%0, %1) exp(a - b) %3 = load x1[i0, i1] \
        %4 = reduce.sum %2 over [i1] %5 = map(%2, %3, %4) -(a * b / (c * c)) %6 = reduce.sum %5 over [i1] \
        %7 = map(%3, %4) a / b %8 = map(%2, %6, %7) a * (-b - c) %9 = reduce.sum %8 over [i1] \
        %10 = map(%1, %0) f32(a == b) %11 = reduce.sum %10 over [i1] \
        %12 = map(%2, %6, %7, %9, %10, %11) a * (b + c) + d * e / f store y0[i0, i1] = %12 }";
    assert_eq!(check(text, &[("n", 5), ("m", 11)]), 1);
    let kernel = parse(text).unwrap();
    let tidy = tidied(&kernel).unwrap();
    let folds = tidy.steps.iter().filter(|step| step.op.is_fold()).count();
    // The largest, the sum, and the sum of products; how many there are of the largest is asked by nobody.
    assert_eq!((depth(&kernel), depth(&tidy), folds), (4, 2, 3));
    // What does not cancel stays: the sum of a row's differences from a weighted mean, of numbers that may be far from 0.
    let centred = "kernel { axes i0: n, i1: m in x0: f32[n, m], x1: f32[n, m] out y0: f32[n, m] \
        schedule row along=[i1] placement=registers \
        %0 = load x0[i0, i1] %1 = load x1[i0, i1] %2 = reduce.sum %0 over [i1] %3 = map(%2) a / f32(size(m)) \
        %4 = map(%0, %1, %3) b * (a - c) %5 = reduce.sum %4 over [i1] %6 = map(%5, %1) a * b store y0[i0, i1] = %6 }";
    assert_eq!(tidied(&parse(centred).unwrap()), None);
}

#[test]
fn gradients_of_norms_are_said_with_less() {
    let text = "kernel { axes i0: n, i1: m in x0: f32[n, m], x1: f32[m], x2: f32[m], x3: f32[n, m] \
        out y0: f32[m], y1: f32[m], y2: f32[n, m] schedule column across=[i0] along=[i1] parts=2 \
        %0 = load x0[i0, i1] %1 = load x1[i1] %2 = load x2[i1] %3 = load x3[i0, i1] %4 = reduce.sum %3 over [i1] \
        %5 = map(%4) a / f32(size(m)) %6 = map(%5, %3) a - b %7 = map(%6) a * a %8 = reduce.sum %7 over [i1] \
        %9 = map(%1, %2, %8, %3, %5) tanh(a + b * (1.0 / sqrt(c / f32(size(m)) + 1e-5)) * (d - e)) \
        %10 = map(%0, %9) a * 0.5 * (1.0 - b * b) %11 = reduce.sum %10 over [i0] \
        %12 = map(%8, %0, %3, %5, %9) 1.0 / sqrt(a / f32(size(m)) + 1e-5) * 0.5 * b * (c - d) * (1.0 - e * e) \
        %13 = reduce.sum %12 over [i0] %14 = map(%2, %0, %3, %5, %9) a * 0.5 * b * (c - d) * (1.0 - e * e) \
        %15 = reduce.sum %14 over [i1] \
        %16 = map(%8, %15, %3, %5, %2, %0, %9) { t0 = f32(size(m)); t1 = a / t0 + 1e-5; t2 = 1.0 / sqrt(t1); \
        t2 * (b * (c - d) / t0 / t1 + e * f * (g * g - 1.0) * 0.5) } %17 = reduce.sum %16 over [i1] \
        %18 = map(%17, %15, %8, %6, %2, %0, %9) { t0 = f32(size(m)); t1 = c / t0 + 1e-5; t2 = 1.0 / sqrt(t1); \
        (a + b * t2 * d / t1) / t0 + e * t2 * f * (1.0 - g * g) * 0.5 } \
        store y0[i1] = %11 store y1[i1] = %13 store y2[i0, i1] = %18 }";
    assert_eq!(check(text, &[("n", 6), ("m", 9)]), 2);
    let kernel = parse(text).unwrap();
    // One pass less along a row: nothing that the third one sums needs what it finds.
    assert_eq!((depth(&kernel), depth(&tidied(&kernel).unwrap())), (4, 3));
    // What is rounded step by step stays as it is.
    assert_eq!(tidied(&Kernel { rounding: Rounding::Every, ..kernel }), None);
}

#[test]
fn a_library_is_asked_for_sets_of_rows_that_are_aligned() {
    let text = "kernel { axes i0: m, i1: 1001, i2: 64 in x: bf16[m, 64], w: bf16[1001, 64] out y: f32[m, 1001] \
        schedule contract dots=(%4) rows=[i0] columns=[i1] sum=[i2] tile=128x128x64 \
        %0 = load x[i0, i2] %1 = load w[i1, i2] %2 = map(%0) f32(a) %3 = map(%1) f32(a) \
        %4 = dot(%2, %3) over [i2] acc=f32 store y[i0, i1] = %4 }";
    let options = Options {
        name: "product".into(),
        fixed: Env::new(),
        wide: false,
        groups: true,
        asked: Asked::Products,
        processors: 132,
        about: Env::new(),
    };
    let printed = print(&parse(text).unwrap(), &options).unwrap();
    let [edges, product] = printed.launches.as_slice() else { panic!("{}", printed.functions) };
    assert_eq!(edges.library, None);
    let library = product.library.as_ref().unwrap();
    let spans: Vec<(i64, i64)> = (0..library.sets).map(|set| library.span(set).unwrap()).collect();
    // From where 16 bytes begin, multiples of eight; eight columns at each end are computed before.
    assert_eq!(spans, [(0, 1000), (3, 992), (2, 992), (1, 1000)]);
    for (set, (from, columns)) in spans.into_iter().enumerate() {
        assert_eq!((set as i64 * 1001 + from) % 4, 0);
        assert!(from <= 8 && from + columns >= 1001 - 8);
    }
    // What somebody folds along rows is stored whole, by whoever computes it.
    let behind = text
        .replace("out y: f32[m, 1001]", "out y: f32[m]")
        .replace("store y[i0, i1] = %4", "%5 = reduce.max %4 over [i1] store y[i0] = %5");
    let printed = print(&parse(&behind).unwrap(), &options).unwrap();
    assert!(printed.launches.iter().all(|launch| launch.library.as_ref().is_none_or(|library| library.sets == 1)));
}

/// What a library is asked for of a product of 4096 × `steps` × 4096 in a type, behind which comes an expression of the bias `a` and the sum `b`.
fn asked_of_library(steps: i64, dtype: &str, behind: &str, asked: Asked, rounding: Rounding) -> Vec<Option<Library>> {
    let text = format!(
        "kernel {{ axes i0: 4096, i1: 4096, i2: {steps} in b: {dtype}[4096], x: {dtype}[4096, {steps}], w: {dtype}[{steps}, 4096] \
         out y: {dtype}[4096, 4096] schedule contract dots=(%3) rows=[i0] columns=[i1] sum=[i2] tile=128x256x64 \
         %0 = load b[i1] %1 = load x[i0, i2] %2 = load w[i2, i1] %3 = dot(%1, %2) over [i2] acc=f32 \
         %4 = map(%0, %3) {{ t0 = f32(a) + f32(b); {dtype}({behind}) }} store y[i0, i1] = %4 }}"
    );
    let options = Options { asked, ..made_for(&Env::new()) };
    let kernel = Kernel { rounding, ..parse(&text).unwrap() };
    print(&kernel, &options).unwrap().launches.into_iter().map(|launch| launch.library).collect()
}

#[test]
fn a_library_computes_what_it_knows_behind_a_product() {
    let by = |steps: i64, dtype: &str, behind: &str, asked: Asked| {
        let libraries = asked_of_library(steps, dtype, behind, asked, Rounding::Ends);
        libraries.into_iter().map(|library| library.map(|library| library.activation)).collect::<Vec<_>>()
    };
    let whole = |activation: Activation| vec![Some(Some(activation))];
    let gelu = "t0 * sigmoid(t0 * 0.071354814 * (t0 * t0 + 22.363861))";
    let another = "t0 * sigmoid(t0 * (t0 * t0 * 0.07135482 + 1.5957692))";
    for dtype in ["bf16", "f16"] {
        assert_eq!(by(4096, dtype, gelu, Asked::Products), whole(Activation::GeluTanh));
        assert_eq!(by(4096, dtype, another, Asked::Products), whole(Activation::GeluTanh));
        assert_eq!(by(1024, dtype, "max(t0, 0.0)", Asked::Products), whole(Activation::Relu));
        assert_eq!(by(1024, dtype, gelu, Asked::Products), whole(Activation::GeluTanh));
        assert_eq!(by(4096, dtype, gelu, Asked::Nothing), [None]);
        // Functions that it does not know are a pass of their own: by the error function, with other numbers, cut off at another place.
        let others = [
            "t0 * 0.5 * (erf(t0 * 0.70710677) + 1.0)",
            "t0 * sigmoid(t0 * 0.0713 * (t0 * t0 + 22.363861))",
            "t0 * sigmoid(t0 * 1.702)",
            "max(t0, 0.01)",
            "max(t0, -0.0) * f32(b)",
            "min(max(t0, 0.0), 6.0)",
        ];
        for other in others {
            assert_eq!(by(4096, dtype, other, Asked::Products), [Some(None), None], "{other}");
        }
    }
    // It rounds once, where every operation is to be rounded.
    for (behind, rounding) in [("max(t0, 0.0)", Rounding::Every), (gelu, Rounding::Every)] {
        let libraries = asked_of_library(4096, "bf16", behind, Asked::Products, rounding);
        assert!(libraries.iter().flatten().all(|library| library.activation.is_none()), "{behind}");
    }
}

pub(super) fn made_for(env: &Env) -> Options {
    Options {
        name: "k".into(),
        fixed: env.clone(),
        wide: false,
        groups: true,
        asked: Asked::Nothing,
        processors: 132,
        about: Env::new(),
    }
}

#[test]
fn windows_that_move_by_two_have_one_thread_each() {
    let window = |size: usize| {
        let kernel = parse(&format!(
            "kernel {{
  axes i0: {size}, i1: 56, i2: 3
  in   x0: f32[{size}, 114]
  out  y0: f32[{size}, 56]
  schedule column across=[i2] along=[] parts=1
  %0 = load x0[i0, 2*i1 + i2]
  %1 = reduce.max %0 over [i2]
  store y0[i0, i1] = %1
}}"
        ));
        let (kernel, options) = (kernel.unwrap(), made_for(&Env::new()));
        stages(&kernel, &options).unwrap().0.iter().map(|stage| stage.way).collect::<Vec<Way>>()
    };
    assert_eq!(window(4096), [Way::Points]);
    // Of few windows, threads share each.
    assert!(matches!(window(4)[..], [Way::Rows(_)]));
}

#[test]
fn what_is_predicted_grows_with_the_work_and_has_a_time_for_every_launch() {
    let product = "kernel {
  axes i0: m, i1: 1024, i2: 1024
  in   x0: f32[m, 1024], x1: f32[1024, 1024]
  out  y0: f32[m, 1024]
  schedule contract dots=(%2) rows=[i0] columns=[i1] sum=[i2] tile=128x128x16
  %0 = load x0[i0, i2]
  %1 = load x1[i2, i1]
  %2 = dot(%0, %1) over [i2] acc=f32
  store y0[i0, i1] = %2
}";
    let kernel = parse(product).unwrap();
    let spec = fuseline::device::DeviceSpec::find("h200").unwrap();
    let us = |rows: i64| {
        let env: Env = [(Symbol::name("m"), rows)].into_iter().collect();
        let options = made_for(&Env::new());
        let times = predict(&kernel, &options, &env, spec).unwrap();
        assert_eq!(times.len(), print(&kernel, &options).unwrap().launches.len());
        times.iter().sum::<f64>()
    };
    // 4096 rows are 256 tiles, two for most of 132 processors: 8.6 GFLOP at about 40 TFLOP/s.
    assert!((150.0..300.0).contains(&us(4096)), "{}", us(4096));
    assert!(us(64) < us(4096) && us(4096) < us(40960) / 8.0, "{} {}", us(64), us(40960));
}

#[test]
fn what_rows_read_outlasts_what_they_write() {
    let norm = |dtype: &str, columns: i64, options: &Options| {
        let kernel = parse(&format!(
            "kernel {{ axes i0: n, i1: {columns} in x0: {dtype}[n, {columns}], x1: {dtype}[{columns}] out y0: {dtype}[n, {columns}] \
            schedule row along=[i1] placement=on_chip %0 = load x0[i0, i1] %1 = load x1[i1] %2 = map(%0) {{ t0 = f32(a); t0 * t0 }} \
            %3 = reduce.sum %2 over [i1] %4 = map(%0, %3, %1) {dtype}(f32(a) / sqrt(b) * f32(c)) store y0[i0, i1] = %4 }}"
        ));
        print(&kernel.unwrap(), options).unwrap().functions
    };
    let usual = made_for(&Env::new());
    let text = norm("f32", 4096, &usual);
    // Weights are for all rows, and stay anyway.
    assert_eq!((text.matches("lasting(x0)").count(), text.matches("lasting(").count()), (1, 1), "{text}");
    assert!(!norm("f32", 4096, &Options { groups: false, ..usual.clone() }).contains("lasting("));
    // Where lines begin elsewhere for every row, or the last turn is not for all threads, it was seen to be no gain.
    assert!(!norm("f32", 4095, &usual).contains("lasting(") && !norm("bf16", 20_000, &usual).contains("lasting("));
    // Two blocks cannot hold such rows, and read them again.
    for (dtype, columns) in [("f32", 16_384), ("bf16", 32_768)] {
        let text = norm(dtype, columns, &usual);
        assert!(text.contains("__launch_bounds__(1024, 2)") && !text.contains("lasting("), "{text}");
        assert_eq!((text.matches("load_to_stay<").count(), text.matches("load_to_leave<").count()), (1, 1), "{text}");
    }
    for (dtype, columns) in [("f32", 12_288), ("f32", 16_380), ("bf16", 24_576), ("bf16", 30_000), ("f64", 16_384)] {
        assert!(!norm(dtype, columns, &usual).contains("load_to_stay"), "{dtype} {columns}");
    }
}

#[test]
fn blocks_of_a_cluster_hold_their_part_of_a_long_row_in_shared_memory() {
    let softmax = |columns: i64, rows: &str| {
        let kernel = parse(&format!(
            "kernel {{ axes i0: {rows}, i1: {columns} in x0: f32[{rows}, {columns}] out y0: f32[{rows}, {columns}] \
            schedule row along=[i1] placement=on_chip %0 = load x0[i0, i1] %1 = reduce.max %0 over [i1] \
            %2 = map(%0, %1) exp(a - b) %3 = reduce.sum %2 over [i1] %4 = map(%2, %3) a / b store y0[i0, i1] = %4 }}"
        ));
        print(&kernel.unwrap(), &made_for(&Env::new())).unwrap()
    };
    // Three blocks, each of another row, have room on a multiprocessor; no thread reads what another one has brought.
    for (columns, blocks, turns) in [(65_536, 4, 8), (100_000, 6, 9)] {
        let printed = softmax(columns, "n");
        assert!(printed.functions.contains(&format!("__cluster_dims__({blocks}, 1, 1)")), "{}", printed.functions);
        assert!(printed.functions.contains("__launch_bounds__(512, 3)"), "{}", printed.functions);
        assert_eq!(printed.launches[0].shared, turns * 512 * 16);
        assert_eq!(printed.functions.matches("fetch_last(").count(), 1);
    }
    // Rows that begin anywhere are read element by element, and held in registers.
    let printed = softmax(70_001, "n");
    assert!(printed.functions.contains("__cluster_dims__(8, 1, 1)"), "{}", printed.functions);
    assert_eq!(printed.launches[0].shared, 0);
    // So long that eight blocks hold a row, two of them on a multiprocessor; longer ones are not held in shared memory.
    let printed = softmax(200_000, "n");
    assert!(printed.functions.contains("__cluster_dims__(8, 1, 1) __launch_bounds__(512, 2)"), "{}", printed.functions);
    assert_eq!(softmax(800_000, "n").launches[0].shared, 0);
}

/// A row kernel of two tensors of rows and one that all rows read: what is printed for so many columns.
fn scaled_rows(dtype: &str, columns: i64) -> String {
    let kernel = parse(&format!(
        "kernel {{ axes i0: n, i1: {columns} in x0: {dtype}[{columns}], x1: {dtype}[n, {columns}] out y0: {dtype}[n, {columns}] \
        schedule row along=[i1] placement=on_chip %0 = load x0[i1] %1 = load x1[i0, i1] %2 = map(%1) f32(a) * f32(a) \
        %3 = reduce.sum %2 over [i1] %4 = map(%0, %1, %3) {dtype}(f32(a) * f32(b) * (1.0 / sqrt(c))) store y0[i0, i1] = %4 }}"
    ));
    print(&kernel.unwrap(), &made_for(&Env::new())).unwrap().functions
}

#[test]
fn packs_of_rows_that_begin_anywhere_begin_where_lines_do() {
    for (dtype, pack, last) in [("bf16", 8, 7), ("f32", 4, 3)] {
        let text = scaled_rows(dtype, 4095);
        let there = |what: &str| assert!(text.contains(what), "{what}: {text}");
        there(&format!("const int head = (int)(-(i0 * 4095) & {last});"));
        there(&format!("const int packs = (4095 - head) / {pack}, ends = 4095 - packs * {pack};"));
        there(&format!("load<{pack}>(x1 + i0 * 4095 + i1)"));
        there(&format!("load_across<{pack}>(x0 + i1, shift)"));
        there("by_shift(head, [&](auto shift) {");
        there(&format!("store<{pack}>(y0 + i0 * 4095 + i1, o0)"));
        // Elements at the ends: read once, folded, and stored.
        assert_eq!(text.matches("if (t < ends)").count(), 3, "{text}");
    }
    // Where packs begin is an even place of what all rows read.
    assert!(scaled_rows("bf16", 4094).contains("load<8, 2>(x0 + i1)"));
    assert!(scaled_rows("bf16", 257).contains("ends = 257 - packs * 8;"));
    // Rows of which four elements come at once, and short ones, are as they were.
    for columns in [4096, 4092, 255] {
        assert!(!scaled_rows("bf16", columns).contains("ends"));
    }
}

#[test]
fn turns_that_draw_words_are_mixed_though_the_last_is_not_full() {
    let text = |columns: i64| {
        let text = format!(
            "kernel {{ axes i0: rows, i1: {columns} in x: bf16[rows, {columns}], s: i64[] out y: bf16[rows, {columns}] \
             schedule row along=[i1] placement=registers %0 = load x[i0, i1] %1 = load s[] \
             %2 = random %1 stream=0 at [{columns}*i0 + i1] \
             %3 = map(%0, %2) select(0.1 <= f32(shr(b, 8)) * 5.9604645e-8, f32(a) * 1.109375, 0.0) \
             %4 = reduce.sum %3 over [i1] %5 = map(%3, %4) bf16(a - b / f32(size({columns}))) store y[i0, i1] = %5 }}"
        );
        print(&parse(&text).unwrap(), &made_for(&Env::new())).unwrap().functions
    };
    let odd = text(4095);
    assert!(odd.contains("const Index i1 = head + (inside ? k * 128 + t : packs - 1) * 8;"), "{odd}");
    assert_eq!(odd.matches("if (inside) s4 = s4 + v3;").count(), 1, "{odd}");
    // Who is stored is asked for as before.
    assert_eq!(odd.matches("if (k < 3 || k * 128 + t < packs)").count(), 1, "{odd}");
    assert!(!text(4096).contains("inside"));
}

#[test]
fn pairs_of_blocks_leave_half_as_many_parts_of_columns() {
    let text = "kernel { axes i0: rows, i1: 4096 in x: bf16[rows, 4096], g: bf16[rows, 4096] \
        out y: f32[4096], z: bf16[rows, 4096] schedule column across=[i0] along=[i1] parts=528 \
        %0 = load x[i0, i1] %1 = load g[i0, i1] %2 = map(%0, %1) f32(a) * f32(b) \
        %3 = reduce.sum %2 over [i1] %4 = reduce.sum %2 over [i0] %5 = map(%3, %1) bf16(a * f32(b)) \
        store y[i1] = %4 store z[i0, i1] = %5 }";
    let kernel = parse(text).unwrap();
    let blocks = |groups: bool| {
        let printed = print(&kernel, &Options { groups, ..made_for(&Env::new()) }).unwrap();
        let bytes = printed.scratch[0].bytes.as_int().unwrap();
        (printed.launches[0].blocks.as_int().unwrap(), bytes / (4096 * 4), printed.functions)
    };
    let ((pairs, halved, text), (alone, parts, plain)) = (blocks(true), blocks(false));
    assert_eq!((pairs, halved), (alone, alone / 2), "{text}");
    assert_eq!(alone, parts);
    assert!(text.contains("if (keeps) fold_columns<") && text.contains("__cluster_dims__(2, 1, 1)"), "{text}");
    // Rows are walked along by all blocks, not by all pairs.
    assert!(text.contains(&format!("first += {pairs})")) && !plain.contains("cluster"), "{text}");
}

#[test]
fn rows_that_meet_once_ask_for_what_all_rows_read_before_they_meet() {
    let text = scaled_rows("f32", 4096);
    let (weights, meeting) = (text.find("load<4>(x0 + i1)").unwrap(), text.find("__syncthreads").unwrap());
    assert!(weights < meeting && text.contains("512 threads walk a row"), "{text}");
    let text = scaled_rows("bf16", 4096);
    assert!(text.find("load<8>(x0 + i1)").unwrap() > text.find("__syncthreads").unwrap(), "{text}");
}

/// What is stored by the first stage of a kernel of f16: the type in memory, and the one that the stored step is rounded to.
fn first_stored(text: &str, rounding: Rounding) -> (DType, DType) {
    let kernel = Kernel { rounding, ..parse(text).unwrap() };
    let about = Env::new();
    let printing = Options {
        name: String::new(),
        fixed: about.clone(),
        wide: false,
        groups: false,
        asked: Asked::Products,
        processors: 132,
        about,
    };
    let (stages, _) = stages(&kernel, &printing).unwrap();
    assert!(stages.len() > 1, "{kernel}");
    let stage = &stages[0].kernel;
    let store = &stage.stores[0];
    (stage.outputs[store.output].ty.dtype, stage.step(store.value).dtype)
}

#[test]
fn parts_of_a_sum_are_no_results_to_round() {
    let product = "kernel { axes i0: 3, i1: 10000, i2: 2 in x: f16[3, 10000], w: f16[10000, 2] out y: f16[3, 2] \
        schedule contract dots=(%2) rows=[i0] columns=[i2] sum=[i1] tile=8x8x8 \
        %0 = load x[i0, i1] %1 = load w[i1, i2] %2 = dot(%0, %1) over [i1] acc=f32 store y[i0, i2] = %2 }";
    let columns = "kernel { axes i0: 4096, i1: 24 in x: f16[4096, 24] out y: f16[24] schedule column across=[i0] along=[] parts=4 \
        %0 = load x[i0, i1] %1 = reduce.sum %0 over [i0] %2 = map(%1) sqrt(a) store y[i1] = %2 }";
    for text in [product, columns] {
        for rounding in [Rounding::Ends, Rounding::Every] {
            assert_eq!(first_stored(text, rounding), (DType::F32, DType::F32));
        }
    }
}

#[test]
fn a_sum_between_stages_is_stored_as_it_is_rounded() {
    // A product that the library computes, and a fold of its rows.
    let text = "kernel { axes i0: 4096, i1: 4096, i2: 1024 in x: f16[4096, 1024], w: f16[1024, 4096], b: f16[4096, 4096] out y: f16[4096, 4096] \
        schedule contract dots=(%2) rows=[i0] columns=[i1] sum=[i2] tile=8x8x8 whole_rows %0 = load x[i0, i2] %1 = load w[i2, i1] \
        %2 = dot(%0, %1) over [i2] acc=f32 %3 = load b[i0, i1] %4 = map(%2, %3) exp(a) * b %5 = reduce.sum %4 over [i1] \
        %6 = map(%4, %5) a / b store y[i0, i1] = %6 }";
    assert_eq!(first_stored(text, Rounding::Every), (DType::F16, DType::F16));
}

#[test]
fn points_go_on_in_the_next_row_where_rows_are_no_multiple_of_a_pack() {
    let text = |columns: i64, bias: &str, index: &str| {
        let text = format!(
            "kernel {{ axes i0: n, i1: {columns} in x: bf16[n, {columns}], b: bf16[{bias}] out y: bf16[n, {columns}] \
             schedule map %0 = load x[i0, i1] %1 = load b[{index}] %2 = map(%0, %1) bf16(f32(a) + f32(b)) store y[i0, i1] = %2 }}"
        );
        print(&parse(&text).unwrap(), &made_for(&Env::new())).unwrap().functions
    };
    let odd = text(513, "513", "i1");
    let there = |text: &str, what: &str| assert!(text.contains(what), "{what}: {text}");
    for what in [
        "if (i0 + 8 <= size_n * 513) {",
        "load<8>(x0 + i0)",
        "const Index i1 = within(rest + l, 513);",
        "store<8>(y0 + i0, o0);",
    ] {
        there(&odd, what);
    }
    // What is behind the last pack.
    there(&odd, "else for (Index i0 = thread * 8; i0 < size_n * 513; ++i0) {");
    // What rows have one of is found by the row; where all lies in line, no row is asked for.
    there(&text(513, "n", "i0"), "x1[(i0 + l) / 513]");
    assert!(!text(513, "n, 513", "i0, i1").contains("% 513"));
    // Packs that fit, and half ones, are as they were.
    for columns in [512, 516] {
        assert!(!text(columns, &columns.to_string(), "i1").contains("within"));
    }
}

/// The gradient of a layernorm and of a function that takes long, for so many rows.
fn gradient(dtype: &str, rows: i64) -> String {
    let kernel = parse(&format!(
        "kernel {{ axes i0: {rows}, i1: 4096 in g: {dtype}[{rows}, 4096], x: {dtype}[{rows}, 4096] out y: {dtype}[4096], z: {dtype}[{rows}, 4096] \
         schedule column across=[i0] along=[i1] parts=528 %0 = load g[i0, i1] %1 = load x[i0, i1] %2 = map(%1) f32(a) \
         %3 = reduce.sum %2 over [i1] %4 = map(%3) a / f32(size(4096)) %5 = map(%4, %2) a - b %6 = map(%5) a * a \
         %7 = reduce.sum %6 over [i1] %8 = map(%5, %7) erf(exp(a * (1.0 / sqrt(b / f32(size(4096)) + 1e-5)))) + sin(a) \
         %9 = map(%0, %8) f32(a) * b %10 = reduce.sum %9 over [i0] %11 = reduce.sum %9 over [i1] \
         %12 = map(%9, %11, %5) {dtype}(a - b * c) %13 = map(%10) {dtype}(a) store y[i1] = %13 store z[i0, i1] = %12 }}"
    ));
    print(&kernel.unwrap(), &made_for(&Env::new())).unwrap().functions
}

#[test]
fn mean_and_squares_of_a_row_are_found_with_one_meeting() {
    let text = gradient("bf16", 8192);
    let there = |what: &str| assert!(text.contains(what), "{what}: {text}");
    for what in [
        " - base3;",
        "larger(s6 - s3 * off3, 0.0f)",
        "off3 - h4[k].at[l]",
        "begin_arrivals<3>",
        "slot = slot == 2 ? 0 : slot + 1;",
    ] {
        there(what);
    }
    assert_eq!(text.matches("two_of_warps").count(), 1, "{text}");
    // Sums of wide numbers are taken as they are said.
    assert!(!gradient("f32", 8192).contains("base3"));
    // Of one row, nothing is folded across rows.
    assert!(!gradient("bf16", 1).contains("for (Index first"));
}

#[test]
fn what_is_known_of_a_single_query_stays_where_it_is_known() {
    let kernel = "kernel { axes i0: b, i1: 1, i2: t, i3: 3 in x0: f16[b, 1, 1, 3], x1: f16[b, 1, t, 3], x2: f16[b, 1, t, 1] \
        out y0: f16[b, 1] schedule attention first=%4 second=%12 rows=[i0, i1] stream=[i2] inner=[i3] columns=[] tile=64x64x64 \
        %0 = load x0[i0, 0, i1, i3] %1 = load x1[i0, 0, i2, i3] %2 = map(%0) f32(a) %3 = map(%1) f32(a) \
        %4 = dot(%2, %3) over [i3] acc=f32 %5 = map(%4) a * 0.57714844 %6 = reduce.max %5 over [i2] \
        %7 = map(%6) select(abs(a) < inf, a, 0.0) %8 = map(%5, %7) exp(a - b) %9 = load x2[i0, 0, i2, 0] \
        %10 = map(%8) f32(f16(a)) %11 = map(%9) f32(a) %12 = dot(%10, %11) over [i2] acc=f32 %13 = reduce.sum %8 over [i2] \
        %14 = map(%12, %6, %13) { t0 = select(0 < size(t), b * 0.0, 0.0); f16((a + t0) / select(size(t) <= 0, 1.0, c + t0)) } \
        store y0[i0, i1] = %14 correct %12 on %6 by select(a == b, 1.0, exp(a - b)) \
        correct %13 on %6 by select(a == b, 1.0, exp(a - b)) }";
    let text = print(&parse(kernel).unwrap(), &made_for(&Env::new())).unwrap().functions;
    let (line, read) = (text.rfind("const int line = (turn"), text.find(" + line]"));
    assert!(line.is_some() && line < read, "{text}");
}

#[test]
fn columns_of_which_there_are_none_are_printed() {
    let kernel = "kernel { axes i0: 512, i1: 0 in x: f32[512, 0] out y: f32[0] schedule column across=[i0] along=[] parts=4 \
        %0 = load x[i0, i1] %1 = reduce.sum %0 over [i0] store y[i1] = %1 }";
    let printed = print(&parse(kernel).unwrap(), &made_for(&Env::new())).unwrap();
    assert!(printed.launches.iter().all(|launch| launch.blocks.as_int() == Some(0)), "{printed:?}");
}
