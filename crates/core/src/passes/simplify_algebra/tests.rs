//! Every rule on an expression that it was made for.

use super::super::testing::{applied, check, check_real, count};
use super::*;
use crate::graph::{Builder, Tensor};
use crate::ops::prim::Monoid;
use crate::passes::inline_splats;
use crate::tensor::{DType, Shape};

type Case = for<'b> fn(&'b Builder, Tensor<'b>, Tensor<'b>, Tensor<'b>) -> Tensor<'b>;

/// A rule, what it is tried on (a float x, an integer i, a bool c, all of shape [9]) and how many maps are left.
const CASES: &[(&str, Case, usize)] = &[
    ("fold-step", |b, _, i, _| i * b.int(DType::I64, 3).expand(i.shape().unwrap()).max(5), 1),
    ("constant-right", |b, x, _, _| b.scalar(DType::F32, 2.5).expand(x.shape().unwrap()) + x, 1),
    ("add-zero", |_, _, i, _| i + 0, 0),
    ("add-zero", |_, x, _, _| x - 0.0, 0),
    ("add-zero", |_, x, _, _| x + -0.0, 0),
    ("mul-one", |_, x, _, _| (x * 1.0 / 1.0).pow(1.0), 0),
    ("mul-zero", |b, _, i, _| i * b.int(DType::I64, 0), 1),
    ("mul-minus-one", |_, x, _, _| x * -1.0, 1),
    ("mul-minus-one", |_, _, i, _| i / -1, 1),
    ("neg-neg", |_, x, _, _| -(-x), 0),
    ("neg-neg", |_, _, _, c| c.not().not(), 0),
    ("add-neg", |_, x, _, _| x.exp() + (-x), 2),
    ("add-neg", |_, x, _, _| x.exp() - (-x), 2),
    ("abs-neg", |_, x, _, _| (-x).abs().abs(), 1),
    ("select-known", |b, x, _, _| b.int(DType::Bool, 1).expand(x.shape().unwrap()).select(x, x.exp()), 0),
    ("select-known", |_, x, _, c| c.select(x, x), 0),
    ("select-not", |_, x, _, c| c.not().select(x, x.exp()), 2),
    (
        "select-truth",
        |b, _, _, c| {
            let truth = |n: i64| b.int(DType::Bool, n).expand(c.shape().unwrap());
            c.select(truth(0), truth(1))
        },
        1,
    ),
    ("same-twice", |_, x, _, _| x.max(x), 0),
    ("logic-known", |b, _, _, c| c.and(b.int(DType::Bool, 1)).or(b.int(DType::Bool, 0)), 0),
    ("clip-clip", |_, x, _, _| x.max(-1.0).max(0.5), 1),
    ("round-whole", |_, _, i, _| i.cast(DType::F32).round(), 1),
    ("cast-cast", |_, _, _, c| c.cast(DType::F32).cast(DType::I64).cast(DType::Bool), 0),
    ("cast-cast", |_, x, _, _| x.cast(DType::F64).cast(DType::F16), 1),
    ("div-power-of-two", |_, x, _, _| x / 8.0, 1),
    (
        "compare-ranges",
        |b, x, _, _| {
            let at = b.coordinate(0, &x.shape().unwrap());
            at.lt(0).select(x.exp(), x)
        },
        0,
    ),
    (
        "choice-of-constants",
        |b, _, _, c| {
            let number = |n: f64| b.scalar(DType::F32, n).expand(c.shape().unwrap());
            c.select(number(1.0), number(0.0)).cast(DType::Bool)
        },
        0,
    ),
    ("choice-of-constants", |b, _, _, c| c.select(b.int(DType::I64, 3), 7).lt(5), 0),
    ("truth-of-converted", |_, _, i, _| i.cast(DType::F32).cast(DType::Bool), 1),
    ("arithmetic-of-choice", |_, x, _, c| x + (c.cast(DType::F32) - 1.0) * 10000.0, 2),
    ("arithmetic-of-choice", |_, x, _, c| x + (-c.cast(DType::F32) + 1.0) * -2.5, 2),
    ("arithmetic-of-choice", |b, _, i, c| i + (b.int(DType::I64, 1) - c.cast(DType::I64)), 2),
    (
        "logic-order",
        |b, _, _, c| {
            let at = b.coordinate(0, &c.shape().unwrap());
            c.and(at.le(4))
        },
        1,
    ),
    (
        "choice-in-choice",
        |b, x, _, c| {
            let at = b.coordinate(0, &c.shape().unwrap());
            c.select(at.lt(3).select(x, 0.5), 0.5)
        },
        1,
    ),
    (
        "choice-in-choice",
        |b, x, _, c| {
            let at = b.coordinate(0, &c.shape().unwrap());
            c.select(x, at.lt(3).select(x, 0.5))
        },
        1,
    ),
    ("choice-of-truths", |b, _, i, c| c.select(i.lt(3), b.int(DType::Bool, 0)), 2),
    (
        "truth-of-choice",
        |b, _, i, c| {
            let int = |n: i64| b.int(DType::I64, n).expand(c.shape().unwrap());
            c.select(i.lt(3).select(int(1), int(0)), int(0)).cast(DType::Bool)
        },
        2,
    ),
    ("choice-by-either", |_, x, i, c| c.not().or(i.lt(3)).select(x, x.exp()), 3),
    ("function-of-truth", |_, _, _, c| c.cast(DType::F32).log(), 1),
    ("function-of-truth", |_, _, _, c| c.cast(DType::I64).equal(1), 0),
    ("equal-to-itself", |_, x, _, _| x.equal(x).select(x, 0.5), 1),
    ("other-tail", |b, x, _, _| b.scalar(DType::F32, 1.0) - (-x).sigmoid(), 1),
    ("compare-converted", |_, _, i, _| i.cast(DType::F32).lt((i * i).cast(DType::F32)), 2),
    ("zero-is-false", |_, x, i, _| i.equal(0).select(x, x.exp()), 2),
    ("zero-is-false", |_, _, _, c| c.cast(DType::I64).equal(0), 1),
    (
        "compare-indices",
        |b, x, i, _| {
            let at = b.coordinate(0, &x.shape().unwrap());
            i.lt(3).and((at - 4).lt(0))
        },
        2,
    ),
    (
        "choice-by-indices",
        |b, x, _, _| {
            let at = b.coordinate(0, &x.shape().unwrap());
            b.int(DType::I64, 5).le(at).select(x, x.exp())
        },
        2,
    ),
    ("power-of-two", |_, _, i, _| i.cast(DType::U8).apply2(Scalar::Mod, 16).apply2(Scalar::Div, 4), 3),
    ("idle-mask", |_, _, i, _| i.cast(DType::U8).apply2(Scalar::Shr, 4).apply2(Scalar::And, 15), 2),
    ("sum-constants", |_, _, i, _| i + 5 + 7, 1),
    ("add-plus-zero", |_, x, _, _| x + 0.0, 0),
    ("zero-minus", |b, x, _, _| b.scalar(DType::F32, 0.0).expand(x.shape().unwrap()) - x, 1),
    ("log-exp", |_, x, _, _| x.exp().log(), 0),
    ("log-exp", |_, x, _, _| (x.exp() / (x.abs() + 1.0)).log(), 2),
    ("div-constant", |_, x, _, _| x / 3.0, 1),
    ("pow-constant", |_, x, _, _| x.pow(2.0), 1),
    ("pow-constant", |_, x, _, _| x.abs().pow(-0.5), 2),
    ("constants-together", |_, x, _, _| x * 1.1 * 1.3, 1),
    ("sigmoid", |b, x, _, _| b.scalar(DType::F32, 1.0) / ((-x).exp() + 1.0), 1),
    ("sigmoid", |b, x, _, _| b.scalar(DType::F32, 1.0) / (b.scalar(DType::F32, 1.0) + (x * -1.0).exp()), 1),
    ("pow-constant", |b, x, _, _| b.scalar(DType::F32, 2.0).expand(x.shape().unwrap()).pow(x), 1),
    ("choice-again", |_, x, _, c| c.select(c.select(x, 0.5), 2.0), 1),
    ("choice-again", |_, x, _, c| c.select(x, c.select(x.tanh(), x.exp())), 2),
    ("less-choice", |b, x, _, c| x - c.select(b.scalar(DType::F32, 0.0), f64::INFINITY), 1),
    ("hide-by-choice", |b, x, _, c| x + c.select(b.scalar(DType::F32, 0.0), f64::NEG_INFINITY), 1),
    ("choice-by-less", |_, x, i, _| i.lt(i * i).select(x, x.exp()), 3),
    ("multiple-of-choice", |_, x, _, c| c.select(x, f64::NEG_INFINITY) * 0.125, 1),
    ("truth-of-product", |_, _, i, c| (c.cast(DType::I64) * i).cast(DType::Bool), 1),
    (
        "add-converted",
        |b, x, _, _| {
            let at = b.coordinate(0, &x.shape().unwrap());
            at.cast(DType::F32) - (at * 3).cast(DType::F32)
        },
        1,
    ),
    ("idle-bound", |_, x, _, _| (x * x).max(0.0), 1),
    ("idle-bound", |_, x, _, _| x.exp().abs(), 1),
    ("bound-by-choice", |b, x, _, c| x.min(c.select(b.scalar(DType::F32, f64::INFINITY), f64::NEG_INFINITY)), 1),
    ("bound-by-choice", |b, x, _, c| c.select(b.scalar(DType::F32, f64::INFINITY), f64::NEG_INFINITY).max(x), 1),
    (
        "choice-of-signs",
        |b, x, _, _| {
            let at = b.coordinate(0, &x.shape().unwrap());
            at.le(3).select(-x, x)
        },
        1,
    ),
    ("at-most-least", |b, x, _, _| x.le(b.scalar(DType::F32, f64::NEG_INFINITY)), 1),
    ("log1p", |_, x, _, _| (x.exp() + 1.0).log(), 2),
    ("log1p", |_, x, _, _| x.exp() - 1.0, 1),
];

fn build(case: Case) -> Graph {
    let b = Builder::new("case");
    let shape = Shape::new([9usize]);
    let x = b.input("x", DType::F32, shape.clone());
    let i = b.input("i", DType::I64, shape.clone());
    let c = b.input("c", DType::Bool, shape);
    b.output("y", case(&b, x, i, c));
    applied(&inline_splats::PASS, &b.finish().unwrap(), &Context::default())
}

#[test]
fn every_rule_does_what_it_says() {
    for rule in RULES {
        assert!(CASES.iter().any(|(name, ..)| *name == rule.name), "{} has no case", rule.name);
        assert!(!rule.doc.is_empty());
    }
    for (name, case, maps) in CASES {
        let rule = RULES.iter().find(|rule| rule.name == *name).unwrap();
        let before = build(*case);
        let strict = check(&PASS, before.clone());
        assert!(rule.tier == Tier::Real || strict != before, "{name} does nothing to {before:?}");
        let after = check_real(&PASS, before.clone());
        assert_ne!(after, strict_or(rule.tier, &before, &strict), "{name} does nothing to {before:?}");
        assert_eq!(count(&after, "map"), *maps, "{name} leaves {after:?}");
    }
}

/// What the result must differ from: the original, and for real rules also what exact ones make of it.
fn strict_or(tier: Tier, before: &Graph, strict: &Graph) -> Graph {
    if tier == Tier::Real { strict.clone() } else { before.clone() }
}

#[test]
fn a_zero_of_either_sign_is_told_apart() {
    let before = build(|_, x, _, _| x + 0.0);
    assert_eq!(check(&PASS, before.clone()), before, "−0 + 0 is +0");
}

#[test]
fn a_shared_value_is_not_computed_again() {
    let b = Builder::new("shared");
    let x = b.input("x", DType::F32, Shape::new([9usize]));
    let y = -x.exp();
    b.output("y", y);
    b.output("z", x.tanh() + y);
    let after = check(&PASS, b.finish().unwrap());
    // exp and tanh stay values: the difference reads them.
    assert_eq!(count(&after, "map"), 4);
    assert_eq!(after.node_of(after.outputs()[1].value).args().len(), 2);
}

#[test]
fn a_log_softmax_taken_back_is_a_softmax() {
    let taken_back = |other: bool| {
        let b = Builder::new("log_softmax");
        let x = b.input("x", DType::F32, Shape::new([4usize, 5]));
        let below = x - x.reduce_keep(Monoid::Max, &[1]);
        let summed = if other { below.abs() } else { below };
        b.output("y", (below - summed.exp().sum(&[1]).log()).exp());
        b.finish().unwrap()
    };
    let logarithms = |graph: &Graph| {
        let is_log =
            |n: &&crate::graph::Node| matches!(n.prim(), Prim::Map(m) if m.expr.as_call() == Some(Scalar::Log));
        let live = graph.live_nodes();
        graph.nodes().iter().enumerate().filter(|(id, n)| live[*id] && is_log(n)).count()
    };
    assert_eq!(logarithms(&check(&PASS, taken_back(false))), 1, "not bit by bit");
    assert_eq!(logarithms(&check_real(&PASS, taken_back(false))), 0);
    assert_eq!(logarithms(&check_real(&PASS, taken_back(true))), 1, "the sum of something else");
}

#[test]
fn a_division_by_a_repeated_root_is_a_product_with_its_reciprocal() {
    let b = Builder::new("norm");
    let x = b.input("x", DType::F32, Shape::new([4usize, 5]));
    b.output("rms", x / ((x * x).mean(&[1]) + 1e-5).sqrt());
    b.output("softmax", x.exp() / x.exp().sum(&[1]));
    let inlined = applied(&inline_splats::PASS, &b.finish().unwrap(), &Context::default());
    let divisions = |graph: &Graph| {
        let full = |n: &&crate::graph::Node| n.types()[0].shape.rank() == 2;
        let divides =
            |n: &&crate::graph::Node| matches!(n.prim(), Prim::Map(m) if m.expr.as_call() == Some(Scalar::Div));
        graph.nodes().iter().filter(full).filter(divides).count()
    };
    assert_eq!(divisions(&check(&PASS, inlined.clone())), 2);
    assert_eq!(divisions(&check_real(&PASS, inlined.clone())), 1, "only the root is safe to invert");
    let fast = Context { numerics: Numerics::Fast, ..Context::default() };
    assert_eq!(divisions(&applied(&PASS, &inlined, &fast)), 0);
}

fn folds(graph: &Graph) -> Vec<Monoid> {
    let live = graph.live_nodes();
    let fold = |(id, node): (usize, &crate::graph::Node)| match node.prim() {
        Prim::Reduce(row) if live[id] => Some(row.monoid),
        _ => None,
    };
    graph.nodes().iter().enumerate().filter_map(fold).collect()
}

#[test]
fn whether_a_count_is_zero_is_whether_none_holds() {
    type Ask = for<'b> fn(Tensor<'b>) -> Tensor<'b>;
    let asked = |ask: Ask, dtype: DType| {
        let b = Builder::new("count");
        let c = b.input("c", DType::Bool, Shape::new([3usize, 4]));
        b.output("y", ask(c.cast(dtype).reduce(Monoid::Sum, &[1])));
        let graph = applied(&inline_splats::PASS, &b.finish().unwrap(), &Context::default());
        folds(&check(&PASS, graph))
    };
    let some: &[Ask] = &[|n| n.equal(0), |n| n.lt(1), |n| n.cast(DType::Bool), |n| n.le(0)];
    for ask in some {
        assert_eq!(asked(*ask, DType::I64), [Monoid::Max]);
    }
    assert_eq!(asked(|n| n.lt(0.5), DType::F32), [Monoid::Max]);
    assert_eq!(asked(|n| (n * 0.25).equal(0.0), DType::F32), [Monoid::Sum], "two maps");
    assert_eq!(asked(|n| n.equal(4), DType::I64), [Monoid::Min]);
    let others: &[Ask] = &[|n| n.equal(1), |n| n.lt(2), |n| n.equal(3), |n| n.lt(0)];
    for ask in others {
        assert_eq!(asked(*ask, DType::I64), [Monoid::Sum]);
    }
    assert_eq!(asked(|n| n.equal(0), DType::I8), [Monoid::Sum], "256 of them are none");
}

#[test]
fn the_least_of_negated_numbers_is_the_largest_negated() {
    let b = Builder::new("least");
    let x = b.input("x", DType::F32, Shape::new([3usize, 4]));
    b.output("y", -(-x).reduce(Monoid::Min, &[1]));
    let after = check(&PASS, b.finish().unwrap());
    assert_eq!((folds(&after), count(&after, "map")), (vec![Monoid::Max], 0));
}

#[test]
fn what_is_folded_along_parts_of_one_element_is_folded_as_they_are() {
    let b = Builder::new("stacked");
    let [x, y] = ["x", "y"].map(|name| b.input(name, DType::F32, Shape::new([3usize, 4])));
    let both = b.concat(&[x.insert_axes(&[0]), y.insert_axes(&[0])], 0);
    b.output("sum", both.reduce(Monoid::Sum, &[0]));
    b.output("max", both.reduce(Monoid::Max, &[0]));
    let graph = b.finish().unwrap();
    assert_eq!(folds(&check_real(&PASS, graph.clone())), []);
    assert_eq!(folds(&check(&PASS, graph)), [Monoid::Sum], "−0 + 0 is not −0");
}

#[test]
fn a_positive_number_passes_a_maximum() {
    let power = |dtype: DType, number: f64, exp: for<'b> fn(Tensor<'b>) -> Tensor<'b>| {
        let b = Builder::new("scaled");
        let x = b.input("x", dtype, Shape::new([3usize, 4]));
        b.output("y", exp((x - x.reduce_keep(Monoid::Max, &[1])) * number));
        let inlined = applied(&inline_splats::PASS, &b.finish().unwrap(), &Context::default());
        applied(&crate::passes::compose_views::PASS, &inlined, &Context::default())
    };
    let multiplies_rows = |graph: &Graph| {
        let fold = graph.nodes().iter().find(|n| matches!(n.prim(), Prim::Reduce(_))).unwrap();
        matches!(graph.node_of(fold.args()[0]).prim(), Prim::Map(_))
    };
    let shifted = |number| power(DType::F32, number, |x| x.exp());
    assert!(multiplies_rows(&check_real(&PASS, shifted(0.125))));
    assert!(!multiplies_rows(&check_real(&PASS, shifted(-0.125))), "the maximum becomes the least");
    assert!(!multiplies_rows(&check(&PASS, shifted(0.125))), "not bit by bit");
    let of_two = |dtype| power(dtype, 0.125, |x| x.exp2());
    assert!(multiplies_rows(&check_real(&PASS, of_two(DType::F32))));
    assert!(!multiplies_rows(&check_real(&PASS, of_two(DType::BF16))), "ln 2 / 8 has more digits");
}

#[test]
fn the_least_of_negated_integers_stays_what_it_is() {
    for dtype in [DType::I32, DType::U8] {
        let b = Builder::new("least");
        let x = b.input("x", dtype, Shape::new([3usize, 4]));
        b.output("y", (-x).reduce(Monoid::Min, &[1]));
        // −x wraps around at the least integer, and everywhere without a sign.
        assert_eq!(folds(&check(&PASS, b.finish().unwrap())), [Monoid::Min], "{dtype}");
    }
}

#[test]
fn a_nan_is_not_above_the_least() {
    let before = build(|b, x, _, _| b.scalar(DType::F32, f64::NEG_INFINITY).lt(x));
    assert_eq!(check_real(&PASS, before.clone()), before);
}

/// What remains of sums after views are composed.
fn composed(b: Builder) -> Graph {
    let inlined = applied(&inline_splats::PASS, &b.finish().unwrap(), &Context::default());
    applied(&crate::passes::compose_views::PASS, &inlined, &Context::default())
}

#[test]
fn a_mean_of_squares_less_the_square_of_the_mean_is_that_of_differences() {
    type Spell = for<'b> fn(Tensor<'b>) -> Tensor<'b>;
    let after = |spell: Spell, check: fn(&Pass, Graph) -> Graph| {
        let b = Builder::new("variance");
        let x = b.input("x", DType::F32, Shape::new([3usize, 4]));
        b.output("y", spell(x));
        check(&PASS, composed(b))
    };
    // Differences are elements: a map that reads two tensors of their shape.
    let is_centred = |graph: &Graph| {
        let live = graph.live_nodes();
        let subtracts = |node: &crate::graph::Node| {
            let is_map = matches!(node.prim(), Prim::Map(row) if row.expr.as_call() == Some(Scalar::Sub));
            is_map && node.types()[0].shape.rank() == 2 && node.types()[0].shape[1].is(4)
        };
        graph.nodes().iter().enumerate().any(|(id, node)| live[id] && subtracts(node))
    };
    let spellings: &[Spell] = &[
        |x| (x * x).mean(&[1]) - x.mean(&[1]) * x.mean(&[1]),
        |x| (x * x).sum(&[1]) - x.sum(&[1]) * x.mean(&[1]),
        |x| (x * x).sum(&[1]) - x.sum(&[1]) * x.sum(&[1]) / 4.0,
        |x| (x * x).mean(&[1]) + x.mean(&[1]) * x.mean(&[1]) * -1.0,
    ];
    for (k, spell) in spellings.iter().enumerate() {
        assert!(is_centred(&after(*spell, check_real)), "spelling {k}");
        assert!(!is_centred(&after(*spell, check)), "not bit by bit");
    }
    let others: &[Spell] = &[
        |x| (x * x).mean(&[1]) - x.sum(&[1]) * x.sum(&[1]),
        |x| (x * x).mean(&[1]) + x.mean(&[1]) * x.mean(&[1]),
        |x| (x * x).mean(&[1]) - x.mean(&[1]) * x.mean(&[1]) * 2.0,
        |x| (x * x).mean(&[1]) - x.exp().mean(&[1]) * x.exp().mean(&[1]),
    ];
    for (k, spell) in others.iter().enumerate() {
        assert!(!is_centred(&after(*spell, check_real)), "other {k}");
    }
}
