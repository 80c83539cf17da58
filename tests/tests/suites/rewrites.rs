//! Rewrites keep the meaning of graphs, whichever of them are applied.

use fuseline::compare::{Agreement, Tolerance};
use fuseline::graph::{Builder, Graph, Tensor, WindowAxis};
use fuseline::ops::Prim;
use fuseline::ops::prim::Monoid;
use fuseline::passes::{Context, Numerics, run_passes};
use fuseline::reference::Reading;
use fuseline::rewrites::{Application, Permit, apply_rewrites};
use fuseline::tensor::{DType, Dim, Literal, Shape};
use fuseline_tests::agree::{is_smooth, same_meaning, sizes};
use fuseline_tests::drawn;
use fuseline_tests::generate::{Case, Inputs, cases};
use proptest::prelude::*;

fn rewritten(graph: &Graph, context: &Context, permit: &mut Permit<'_>) -> Graph {
    let graph = run_passes(graph.clone(), context, &mut |_| {}).unwrap();
    apply_rewrites(graph, context, permit, &mut |_| {}).unwrap()
}

/// Permission by the bits of a number, in turn.
fn by_bits(bits: u64) -> Permit<'static> {
    let mut turn = 0;
    Permit::by(move |_: &Application| {
        turn += 1;
        bits >> (turn % 64) & 1 == 1
    })
}

fn within_tolerance(case: &Case, after: &Graph) {
    let env = sizes(case);
    same_meaning(case, after, Reading::Exact, |k| Agreement::Within(Tolerance::of_output(&case.graph, k, &env)));
}

proptest! {
    #![proptest_config(drawn::cases(256))]

    #[test]
    fn any_selection_keeps_the_meaning(
        case in cases().prop_filter("smooth", |case| is_smooth(&case.graph)),
        bits in any::<u64>(),
    ) {
        within_tolerance(&case, &rewritten(&case.graph, &Context::default(), &mut by_bits(bits)));
    }

    #[test]
    fn under_strict_numerics_every_bit_is_kept(case in cases()) {
        let strict = Context { numerics: Numerics::Strict, ..Context::default() };
        let after = rewritten(&case.graph, &strict, &mut Permit::everything());
        same_meaning(&case, &after, Reading::Rounded, |_| Agreement::Exact);
    }
}

/// Where an attention scales its scores.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    Query,
    Key,
    Both,
    Scores,
    Divided,
}

/// What an attention does about rows without a key.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Guard {
    Nothing,
    NotANumber,
    AllMasked,
}

#[derive(Clone, Copy, Debug)]
struct Spelling {
    scale: Scale,
    guard: Guard,
    dropout: bool,
    joined: bool,
    rows: bool,
    dtype: DType,
}

fn spellings() -> impl Strategy<Value = Spelling> {
    let scale = prop::sample::select(vec![Scale::Query, Scale::Key, Scale::Both, Scale::Scores, Scale::Divided]);
    let guard = prop::sample::select(vec![Guard::Nothing, Guard::NotANumber, Guard::AllMasked]);
    let dtype = prop::sample::select(vec![DType::F32, DType::F16, DType::BF16, DType::F64]);
    (scale, guard, any::<[bool; 3]>(), dtype).prop_map(|(scale, guard, [dropout, joined, rows], dtype)| Spelling {
        scale,
        guard,
        dropout,
        joined,
        rows,
        dtype,
    })
}

const WIDTH: usize = 16;

fn attention(spelling: Spelling) -> Graph {
    let Spelling { scale, guard, dropout, joined, rows, dtype } = spelling;
    let b = Builder::new("attention");
    let [n, m] = ["n", "m"].map(Dim::named);
    let heads = Dim::int(2);
    let width = Dim::int(WIDTH as i64);
    let input = |name: &str, count: &Dim| {
        if rows {
            // Heads lie side by side in the rows, and are split off.
            let flat = b.input(name, dtype, Shape::new([count.clone(), &heads * &width]));
            flat.reshape(Shape::new([count.clone(), heads.clone(), width.clone()])).permute(&[1, 0, 2])
        } else {
            b.input(name, dtype, Shape::new([heads.clone(), count.clone(), width.clone()]))
        }
    };
    let (q, k, v) = (input("q", &n), input("k", &m), input("v", &m));
    let mask = b.input("mask", dtype, Shape::new([n.clone(), m.clone()]));
    let s = (WIDTH as f64).sqrt().recip();
    let (q, k) = match scale {
        Scale::Query => (q * s, k),
        Scale::Key => (q, k * s),
        Scale::Both => (q * s.sqrt(), k * s.sqrt()),
        Scale::Scores | Scale::Divided => (q, k),
    };
    let scores = q.contract("hnd,hdm->hnm", k.transpose());
    let scores = match scale {
        Scale::Scores => scores * s,
        Scale::Divided => scores / (WIDTH as f64).sqrt(),
        _ => scores,
    };
    let x = (scores + mask).cast(DType::F32);
    let e = (x - x.reduce_keep(Monoid::Max, &[2])).exp();
    let p = e / e.sum(&[2]);
    let zero = b.scalar(DType::F32, 0.0);
    let p = match guard {
        Guard::Nothing => p,
        Guard::NotANumber => p.is_nan().select(zero, p),
        Guard::AllMasked => x.equal(f64::NEG_INFINITY).reduce_keep(Monoid::Min, &[2]).select(zero, p),
    };
    let p = if dropout { b.input("keep", DType::Bool, p.shape().unwrap()).select(p, 0.0) * 1.25 } else { p };
    let p = p.cast(dtype);
    let p = if joined {
        let flat = p.reshape(Shape::new([&heads * &n, m.clone()]));
        flat.reshape(Shape::new([heads.clone(), n.clone(), m]))
    } else {
        p
    };
    let y = p.contract("hnm,hmd->hnd", v);
    let y = if rows { y.permute(&[1, 0, 2]).reshape(Shape::new([n, &heads * &width])) } else { y };
    b.output("y", y);
    b.finish().unwrap()
}

/// Everyday numbers, and a mask with rows that see everything, something and, if asked for, nothing, and what is no number.
fn fed(graph: Graph, keys: usize, masked: bool, special: bool) -> Case {
    const ROWS: usize = 5;
    let mut inputs = Inputs::default();
    for input in graph.inputs() {
        let ty = graph.ty(*input);
        let name = graph.input_name(*input).clone();
        let sizes: Vec<usize> = match name.as_ref() {
            "q" if ty.shape.rank() == 2 => vec![ROWS, 2 * WIDTH],
            "q" => vec![2, ROWS, WIDTH],
            "mask" => vec![ROWS, keys],
            "keep" => vec![2, ROWS, keys],
            _ if ty.shape.rank() == 2 => vec![keys, 2 * WIDTH],
            _ => vec![2, keys, WIDTH],
        };
        let value = |i: usize| match name.as_ref() {
            "mask" => match i / keys {
                1 => [0.0, f64::NEG_INFINITY][i % keys % 2],
                2 if masked => f64::NEG_INFINITY,
                3 if special => [0.5, f64::INFINITY][usize::from(i % keys == 1)],
                4 if special => [0.5, f64::NAN][usize::from(i.is_multiple_of(keys))],
                _ => 0.25,
            },
            "keep" => f64::from(u8::from(i % 3 != 1)),
            _ => ((i * 7 + name.len() * 5 + usize::from(name.as_bytes()[0])) % 23) as f64 * 0.21 - 2.2,
        };
        let values: Vec<f64> = (0..sizes.iter().product()).map(value).collect();
        inputs.insert(name, Literal::from_f64s(ty.dtype, sizes, &values).unwrap());
    }
    Case { graph, inputs }
}

proptest! {
    #![proptest_config(drawn::cases(64))]

    #[test]
    fn attention_of_every_spelling_keeps_its_meaning(
        spelling in spellings(),
        keys in 1usize..7,
        bits in prop_oneof![Just(u64::MAX), any::<u64>()],
        numerics in prop::sample::select(vec![Numerics::Default, Numerics::Fast]),
    ) {
        // Real numbers do not say what a guard against what is no number makes of rows that are NaN and not masked, nor what 0 / NaN is
        // where all of a row is dropped.
        let Spelling { guard, dropout, .. } = spelling;
        let masked = guard != Guard::Nothing || !dropout;
        let special = guard != Guard::NotANumber && !dropout;
        let case = fed(attention(spelling), keys, masked, special);
        let context = Context { numerics, ..Context::default() };
        within_tolerance(&case, &rewritten(&case.graph, &context, &mut by_bits(bits)));
        let strict = Context { numerics: Numerics::Strict, ..Context::default() };
        let after = rewritten(&case.graph, &strict, &mut Permit::everything());
        same_meaning(&case, &after, Reading::Rounded, |_| Agreement::Exact);
    }

    #[test]
    fn attention_of_every_spelling_has_one_form(spelling in spellings()) {
        let spelling = Spelling { dtype: DType::F32, ..spelling };
        let form = |spelling| rewritten(&attention(spelling), &Context::default(), &mut Permit::everything());
        let after = form(spelling);
        let sibling = Spelling { scale: Scale::Scores, joined: false, ..spelling };
        let kinds = |graph: &Graph| {
            let mut kinds: Vec<String> = graph.nodes().iter().map(|node| format!("{:?}", node.prim())).collect();
            kinds.sort_unstable();
            kinds
        };
        prop_assert_eq!(kinds(&after), kinds(&form(sibling)), "{:?}", after);
        if spelling.guard != Guard::Nothing {
            let guarded = [Guard::NotANumber, Guard::AllMasked].map(|guard| form(Spelling { guard, ..sibling }));
            prop_assert_eq!(kinds(&guarded[0]), kinds(&guarded[1]));
        }
        // The product reads exponentials: nothing is divided before it.
        let contractions = after.nodes().iter().filter(|node| matches!(node.prim(), Prim::Contract(_)));
        prop_assert_eq!(contractions.count(), 2);
        let divides = |node: &fuseline::graph::Node| match node.prim() {
            Prim::Map(row) => row.expr.as_call() == Some(fuseline::ops::Scalar::Div),
            _ => false,
        };
        let division = after.nodes().iter().position(divides).unwrap();
        let is_product = |node: &fuseline::graph::Node| matches!(node.prim(), Prim::Contract(_));
        prop_assert!(after.nodes().iter().rposition(is_product).unwrap() < division);
    }
}

/// What stands before a chain of sums and products with constants.
#[derive(Clone, Copy, Debug)]
enum Core {
    Input,
    Product,
    Convolution,
    Grouped,
    Depthwise,
}

/// A sum or product with a constant: which, along which axes of `[n, 4, 6]`, and its numbers.
#[derive(Clone, Copy, Debug)]
struct Link {
    op: usize,
    axes: usize,
    seed: usize,
}

fn links() -> impl Strategy<Value = Vec<Link>> {
    let link = (0usize..5, 0usize..4, any::<u8>()).prop_map(|(op, axes, seed)| Link { op, axes, seed: seed.into() });
    prop::collection::vec(link, 1..6)
}

fn numbers<'b>(b: &'b Builder, sizes: &[usize], seed: usize) -> Tensor<'b> {
    let value = |k: usize| (((k + 1) * (seed + 3) % 13) as f64 + 2.0) * [0.125, -0.125][(k * seed) % 2];
    let values: Vec<f64> = (0..sizes.iter().product()).map(value).collect();
    b.constant(Literal::from_f64s(DType::F32, sizes.to_vec(), &values).unwrap())
}

fn affine(core: Core, links: &[Link]) -> Graph {
    let b = Builder::new("affine");
    let n = Dim::named("n");
    let x = b.input("x", DType::F32, Shape::new([n.clone(), Dim::int(4), Dim::int(6)]));
    let window =
        || WindowAxis { size: 3usize.into(), stride: 1, dilation: 1, before: 1usize.into(), count: 6usize.into() };
    let mut y = match core {
        Core::Input => x,
        Core::Product => x.contract("ncx,cm->nmx", numbers(&b, &[4, 4], 1)),
        Core::Convolution => x.windows(&[window()], 0.0).contract("ncxk,mck->nmx", numbers(&b, &[4, 4, 3], 2)),
        Core::Depthwise => x.windows(&[window()], 0.0).contract("ncxk,ck->ncx", numbers(&b, &[4, 3], 3)),
        Core::Grouped => {
            let grouped = x.reshape(Shape::new([n.clone(), Dim::int(2), Dim::int(2), Dim::int(6)]));
            let y = grouped.contract("ngcx,gmc->ngmx", numbers(&b, &[2, 2, 2], 4));
            y.reshape(Shape::new([n, Dim::int(4), Dim::int(6)]))
        }
    };
    for link in links {
        let sizes: &[usize] = [&[1][..], &[4, 1], &[6], &[4, 6]][link.axes];
        let c = numbers(&b, sizes, link.seed);
        y = match link.op {
            0 => y + c,
            1 => y - c,
            2 => c - y,
            3 => y * c,
            _ => y / c,
        };
    }
    b.output("y", y.max(0.0));
    b.finish().unwrap()
}

proptest! {
    #![proptest_config(drawn::cases(64))]

    #[test]
    fn chains_of_sums_and_products_keep_their_meaning(
        core in prop::sample::select(vec![Core::Input, Core::Product, Core::Convolution, Core::Grouped, Core::Depthwise]),
        links in links(),
        bits in prop_oneof![Just(u64::MAX), any::<u64>()],
    ) {
        let graph = affine(core, &links);
        let values: Vec<f64> = (0..48).map(|k| (k * 7 % 19) as f64 * 0.3 - 2.5).collect();
        let x = Literal::from_f64s(DType::F32, [2, 4, 6], &values).unwrap();
        let case = Case { graph, inputs: [("x".into(), x)].into_iter().collect() };
        let after = rewritten(&case.graph, &Context::default(), &mut by_bits(bits));
        within_tolerance(&case, &after);
        if bits == u64::MAX {
            // At most a product, a sum, and the maximum are left.
            let maps = after.nodes().iter().filter(|node| matches!(node.prim(), Prim::Map(_)) && !node.args().is_empty());
            prop_assert!(maps.count() <= 3, "{after:?}");
        }
    }
}

/// An operand, quantised unless its type is a float: its type, whether it is known beforehand, and where zero point and scale come from.
#[derive(Clone, Copy, Debug)]
struct Quantised {
    dtype: DType,
    known: bool,
    zero: Parameter,
    scale: Parameter,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Parameter {
    Nothing,
    Number,
    Scalar,
    Row,
}

fn quantised() -> impl Strategy<Value = Quantised> {
    let parameter =
        || prop::sample::select(vec![Parameter::Nothing, Parameter::Number, Parameter::Scalar, Parameter::Row]);
    (prop::sample::select(vec![DType::U8, DType::I8, DType::F32]), any::<bool>(), parameter(), parameter())
        .prop_map(|(dtype, known, zero, scale)| Quantised { dtype, known, zero, scale })
}

/// A tensor of `[rows, 2, 48]` integers less their zero point, and its scale, which broadcasts against it.
fn centred<'b>(b: &'b Builder, name: &str, spec: Quantised, rows: &Dim) -> (Tensor<'b>, Option<Tensor<'b>>) {
    let shape = Shape::new([rows.clone(), Dim::int(2), Dim::int(48)]);
    let q = if spec.known {
        let values: Vec<i64> = (0..384).map(|k| k * 29 % 256 - 60).collect();
        b.constant(Literal::from_ints(spec.dtype, [4, 2, 48], &values).unwrap())
    } else {
        b.input(name, spec.dtype, shape)
    };
    let parameter = |kind: Parameter, suffix: &str, dtype: DType, number: f64| match kind {
        Parameter::Nothing => None,
        Parameter::Number => Some(b.scalar(dtype, number)),
        Parameter::Scalar => Some(b.input(&format!("{name} {suffix}"), dtype, Shape::scalar())),
        Parameter::Row if spec.known => {
            let values = [1.0, 3.0, 2.0, 5.0].map(|x| number * x);
            Some(b.constant(Literal::from_f64s(dtype, [4, 1, 1], &values).unwrap()))
        }
        Parameter::Row => {
            let rows = Shape::new([rows.clone(), Dim::int(1), Dim::int(1)]);
            Some(b.input(&format!("{name} {suffix}"), dtype, rows))
        }
    };
    let scale = parameter(spec.scale, "scale", DType::F32, 0.0625);
    if spec.dtype.is_float() {
        return (q, scale);
    }
    let q = q.cast(DType::I32);
    let centred = match parameter(spec.zero, "zero", spec.dtype, 17.0) {
        Some(zero) => q - zero.cast(DType::I32),
        None => q,
    };
    (centred, scale)
}

/// A product, or a convolution with padding, of two quantised tensors, of reals or of integers.
fn quantised_product(a: Quantised, b: Quantised, windows: bool, reals: bool) -> Graph {
    let builder = Builder::new("quantised");
    let operand = |name: &str, spec: Quantised| {
        let rows = if spec.known { Dim::int(4) } else { Dim::named(name) };
        let (centred, scale) = centred(&builder, name, spec, &rows);
        match (reals, scale) {
            (false, _) => centred,
            (true, None) => centred.cast(DType::F32),
            (true, Some(scale)) => centred.cast(DType::F32) * scale,
        }
    };
    let (x, w) = (operand("a", a), operand("b", b));
    let y = if windows {
        let axis =
            WindowAxis { size: 3usize.into(), stride: 1, dilation: 1, before: 1usize.into(), count: 48usize.into() };
        x.windows(&[axis], 0.0).contract("ncxk,mck->nmx", w.slice(2, 2usize, 3usize, 1))
    } else {
        x.contract("nck,mck->nm", w)
    };
    builder.output("y", y);
    builder.finish().unwrap()
}

fn fed_integers(graph: Graph) -> Case {
    let mut inputs = Inputs::default();
    for (n, input) in graph.inputs().iter().enumerate() {
        let ty = graph.ty(*input);
        let sizes: Vec<usize> = ty.shape.dims().iter().map(|d| d.as_int().unwrap_or(3) as usize).collect();
        let values: Vec<f64> = (0..sizes.iter().product())
            .map(|k: usize| match ty.dtype {
                DType::F32 => 0.01 * (k + n + 1) as f64,
                _ => ((k * 37 + n * 11) % 128) as f64,
            })
            .collect();
        inputs.insert(graph.input_name(*input).clone(), Literal::from_f64s(ty.dtype, sizes, &values).unwrap());
    }
    Case { graph, inputs }
}

proptest! {
    #![proptest_config(drawn::cases(96))]

    #[test]
    fn quantised_products_keep_their_meaning(
        a in quantised(),
        b in quantised(),
        windows in any::<bool>(),
        bits in prop_oneof![Just(u64::MAX), any::<u64>()],
    ) {
        let case = fed_integers(quantised_product(a, b, windows, true));
        let after = rewritten(&case.graph, &Context::default(), &mut by_bits(bits));
        within_tolerance(&case, &after);
        let both = !a.dtype.is_float() && !b.dtype.is_float();
        if bits == u64::MAX && both && !(a.known && b.known) {
            let integer = |node: &fuseline::graph::Node| {
                matches!(node.prim(), Prim::Contract(row) if row.accumulator == DType::I32)
            };
            prop_assert!(after.nodes().iter().any(integer), "{after:?}");
        }
        if !both {
            return Ok(());
        }
        let case = fed_integers(quantised_product(a, b, windows, false));
        let strict = Context { numerics: Numerics::Strict, ..Context::default() };
        let after = rewritten(&case.graph, &strict, &mut by_bits(bits));
        same_meaning(&case, &after, Reading::Rounded, |_| Agreement::Exact);
    }
}

#[test]
fn a_rewrite_that_is_refused_leaves_everything_as_it_was() {
    let spelling = Spelling {
        scale: Scale::Both,
        guard: Guard::NotANumber,
        dropout: true,
        joined: false,
        rows: false,
        dtype: DType::F32,
    };
    let graph = run_passes(attention(spelling), &Context::default(), &mut |_| {}).unwrap();
    let mut permit = Permit::nothing();
    assert_eq!(apply_rewrites(graph.clone(), &Context::default(), &mut permit, &mut |_| {}).unwrap(), graph);
    let rules: Vec<_> = permit.applications().iter().map(|a| (a.rule, a.refused.is_some())).collect();
    // Behind a guard that is not asked of the row, no normaliser may move.
    assert_eq!(rules, [("hoist-scales", true), ("hoist-scales", true), ("guard-rows", true)]);
}
