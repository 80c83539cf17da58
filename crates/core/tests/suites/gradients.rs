//! Every gradient rule against finite differences.

use std::sync::Arc;

use fuseline::error::Kind;
use fuseline::graph::gradient::differentiate;
use fuseline::graph::{Builder, Graph, Tensor, WindowAxis};
use fuseline::ops::prim::{Combine, Gather, Monoid, Scatter, View, identity_map};
use fuseline::ops::{Expr, Scalar, Signature, Term};
use fuseline::passes::{Context, run_passes};
use fuseline::reference::{Options, evaluate};
use fuseline::tensor::{DType, Dim, Literal, Shape, Symbol};

/// A float input: its declared sizes, and the ones it is run with.
struct Given {
    declared: Shape,
    sizes: Vec<usize>,
    values: Vec<f64>,
}

/// An input of fixed sizes with values between 0.2 and 0.8, no two of them equal.
fn given(sizes: &[usize]) -> Given {
    let count: usize = sizes.iter().product();
    let values = (0..count).map(|k| 0.2 + 0.6 * ((k * 7 + 3) % count.max(1)) as f64 / count.max(1) as f64).collect();
    Given { declared: Shape::new(sizes.iter().copied()), sizes: sizes.to_vec(), values }
}

fn symbolic(declared: Shape, sizes: &[usize]) -> Given {
    Given { declared, ..given(sizes) }
}

type Body<'f> = &'f dyn for<'b> Fn(&'b Builder, &[Tensor<'b>]) -> Tensor<'b>;

/// The graph of a weighted sum of what `body` computes; weights differ from element to element.
fn loss_of(inputs: &[Given], body: Body<'_>) -> Graph {
    let b = Builder::new("loss");
    let name = |k: usize| format!("x{k}");
    let args: Vec<_> =
        inputs.iter().enumerate().map(|(k, i)| b.input(&name(k), DType::F64, i.declared.clone())).collect();
    let y = body(&b, &args);
    let shape = y.shape().unwrap();
    let place = b.index(&shape.flat_index(&identity_map(shape.rank())), &shape).cast(DType::F64);
    let all: Vec<usize> = (0..shape.rank()).collect();
    b.output("loss", (y * ((place * 0.7).cos() + 1.3)).reduce(Monoid::Sum, &all));
    b.finish().unwrap()
}

fn run(graph: &Graph, inputs: &[Given], moved: Option<(usize, usize, f64)>) -> Vec<Vec<f64>> {
    let inputs = inputs.iter().enumerate().map(|(k, given)| {
        let mut values = given.values.clone();
        if let Some((input, element, by)) = moved.filter(|(input, ..)| *input == k) {
            assert_eq!(input, k);
            values[element] += by;
        }
        (Arc::from(format!("x{k}")), Literal::from_f64s(DType::F64, given.sizes.clone(), &values).unwrap())
    });
    let values = evaluate(graph, &inputs.collect(), &Options::default()).unwrap();
    values.iter().map(Literal::to_f64s).collect()
}

/// Compares the gradients of `body` with finite differences; returns the graph that computes them.
fn check(what: &str, inputs: &[Given], body: Body<'_>) -> Graph {
    let graph = loss_of(inputs, body);
    let names: Vec<String> = (0..inputs.len()).map(|k| format!("x{k}")).collect();
    let wrt: Vec<&str> = names.iter().map(String::as_str).collect();
    let with_gradients = differentiate(&graph, "loss", &wrt).unwrap();
    let exact = run(&with_gradients, inputs, None);
    let plainer = run_passes(with_gradients.clone(), &Context::default(), &mut |_| {}).unwrap();
    let simplified = run(&plainer, inputs, None);
    for (k, given) in inputs.iter().enumerate() {
        for element in 0..given.values.len() {
            let h = 1e-6;
            let at = |by: f64| run(&graph, inputs, Some((k, element, by)))[0][0];
            let numeric = (at(h) - at(-h)) / (2.0 * h);
            for gradients in [&exact, &simplified] {
                let gradient = gradients[k + 1][element];
                let close = (numeric - gradient).abs() <= 2e-6 * (1.0 + numeric.abs());
                assert!(close, "{what}: by x{k}[{element}] {gradient}, finite difference {numeric}");
            }
        }
    }
    plainer
}

fn count(graph: &Graph, name: &str) -> usize {
    graph.nodes().iter().filter(|n| n.prim().name() == name).count()
}

#[test]
fn every_scalar() {
    for &op in Scalar::ALL {
        let def = op.def();
        let float = def.float.is_some() && def.signature == Signature::Same;
        if !float || matches!(op, Scalar::Floor | Scalar::Ceil | Scalar::Round | Scalar::Trunc | Scalar::Sign) {
            continue;
        }
        let mut inputs: Vec<Given> = (0..def.arity).map(|_| given(&[5])).collect();
        // Acosh is defined from 1 upwards; elsewhere the operands differ from each other and from multiples.
        let shift = if op == Scalar::Acosh { 1.1 } else { 0.013 };
        inputs[0].values.iter_mut().for_each(|x| *x += shift);
        check(def.name, &inputs, &|b, args| {
            let expr = Expr::build(&vec![DType::F64; args.len()], |_, terms| Term::call(op, terms));
            b.map(&expr, args)
        });
    }
}

#[test]
fn steps_and_integers_have_no_slope() {
    let graph = check("floor", &[given(&[4])], &|_, x| (x[0] * 3.0).floor() + x[0].lt(0.47).cast(DType::F64));
    assert_eq!(count(&graph, "scatter"), 0);
}

#[test]
fn choices_and_expressions_of_several_steps() {
    check("select", &[given(&[6]), given(&[6])], &|_, x| (x[0] - 0.01).lt(0.5).select(x[0] * x[1], x[1].exp()));
    check("expression", &[given(&[4]), given(&[4])], &|b, x| {
        let f = [DType::F64; 2];
        b.map(&Expr::build(&f, |s, t| (t[0] * t[0] + t[1]).apply(Scalar::Log) / (s.one(t[1]) + t[1])), x)
    });
}

#[test]
fn views_that_move_elements_flow_back_through_views() {
    let n = Dim::named("n");
    let cases: &[(&str, Given, Body<'_>)] = &[
        ("permute", given(&[2, 3, 4]), &|_, x| x[0].permute(&[2, 0, 1])),
        ("expand", given(&[3, 1]), &|_, x| x[0].expand(Shape::new([2usize, 3, 4]))),
        ("reshape", given(&[2, 6]), &|_, x| x[0].reshape(Shape::new([3usize, 4]))),
        ("reshape of any size", symbolic(Shape::new([n.clone(), Dim::int(6)]), &[2, 6]), &|_, x| {
            x[0].reshape(Shape::new([Dim::named("n"), Dim::int(2), Dim::int(3)])).permute(&[1, 0, 2])
        }),
        ("slice", given(&[3, 7]), &|_, x| x[0].slice(1, 1usize, 3usize, 2)),
        ("flip", given(&[5]), &|_, x| x[0].flip(0)),
        ("slice backwards", given(&[9]), &|_, x| x[0].slice(0, 7usize, 3usize, -3)),
        ("element", given(&[3, 4]), &|_, x| x[0].element(1, 2usize)),
        ("pad", given(&[2, 3]), &|_, x| x[0].pad(&[0, 1].map(Dim::int), &[2, 0].map(Dim::int), 7.0)),
        ("cut off", given(&[5]), &|_, x| x[0].pad(&[Dim::int(-1)], &[Dim::int(-2)], 0.0)),
        ("diagonal", given(&[3, 3]), &|_, x| x[0].view(View::new(Shape::new([3usize]), vec![Dim::axis(0); 2]))),
        ("windows", given(&[2, 7]), &|_, x| {
            let axis =
                WindowAxis { size: 3usize.into(), stride: 2, dilation: 1, before: 1usize.into(), count: 4usize.into() };
            x[0].windows(&[axis], 0.0)
        }),
        ("dilated windows", given(&[9]), &|_, x| {
            let axis =
                WindowAxis { size: 3usize.into(), stride: 1, dilation: 3, before: 2usize.into(), count: 5usize.into() };
            x[0].windows(&[axis], 0.0)
        }),
    ];
    for (what, input, body) in cases {
        let graph = check(what, std::slice::from_ref(input), *body);
        assert_eq!(count(&graph, "scatter"), 0, "{what} scatters: {graph:?}");
    }
}

#[test]
fn views_that_cannot_be_turned_around_scatter() {
    let repeat = |shape: &[usize], map: Vec<Dim>| View::new(Shape::new(shape.iter().copied()), map);
    let halves = repeat(&[7], vec![Dim::axis(0).floordiv(&Dim::int(2))]);
    check("repeated elements", &[given(&[4])], &|_, x| x[0].view(halves.clone()));
    let cycle = repeat(&[7, 2], vec![Dim::axis(0).modulo(&Dim::int(3)), Dim::axis(1)]);
    check("cycles", &[given(&[3, 2])], &|_, x| x[0].view(cycle.clone()));
    let padded = View::guarded(
        Shape::new([8usize]),
        vec![Dim::axis(0).floordiv(&Dim::int(2)) - 1],
        vec![fuseline::ops::prim::Guard { index: Dim::axis(0).floordiv(&Dim::int(2)) - 1, bound: Dim::int(2) }],
        fuseline::ops::Number::new(DType::F64, 5.0),
    );
    check("repeated elements, padded", &[given(&[2])], &|_, x| x[0].view(padded.clone()));
}

#[test]
fn reductions() {
    for monoid in [Monoid::Sum, Monoid::Prod, Monoid::Max, Monoid::Min] {
        for axes in [&[0][..], &[1], &[0, 2], &[0, 1, 2], &[]] {
            check(monoid.name(), &[given(&[2, 3, 2])], &|_, x| x[0].reduce(monoid, axes));
        }
    }
    check("running sum", &[given(&[2, 4])], &|_, x| x[0].prefix(Monoid::Sum, 1, false));
    check("running sum before", &[given(&[4, 2])], &|_, x| x[0].prefix(Monoid::Sum, 0, true));
}

#[test]
fn contractions() {
    let cases: &[(&str, &[usize], &[usize])] = &[
        ("mk,kn->mn", &[2, 3], &[3, 2]),
        ("mk,nk->nm", &[2, 3], &[4, 3]),
        ("bmk,bkn->bmn", &[2, 2, 3], &[2, 3, 2]),
        ("bmk,kn->bmn", &[2, 2, 3], &[3, 2]),
        ("k,k->", &[4], &[4]),
        ("m,n->mn", &[3], &[2]),
        ("mk,k->m", &[3, 2], &[2]),
        ("b,b->b", &[3], &[3]),
        ("hsd,htd->sht", &[2, 3, 2], &[2, 2, 2]),
        ("ncxk,ock->nox", &[1, 2, 3, 2], &[2, 2, 2]),
    ];
    for (subscripts, a, b) in cases {
        check(subscripts, &[given(a), given(b)], &|_, x| x[0].contract(subscripts, x[1]));
    }
    check("an operand with itself", &[given(&[3, 3])], &|_, x| x[0].contract("mk,kn->mn", x[0]));
}

#[test]
fn indexing_and_concatenation() {
    check("take", &[given(&[4, 2])], &|b, x| x[0].take(0, b.constant(Literal::i64s(&[3, 0, 3, -1]))));
    let gather = Gather { shape: Shape::new([2usize, 2]), map: vec![Symbol::Read(0).into(), Dim::axis(1)] };
    check("gather", &[given(&[3, 2])], &|b, x| {
        let places = Literal::from_ints(DType::I64, [2, 2], &[2, 0, 2, 1]).unwrap();
        x[0].gather(gather.clone(), &[b.constant(places)])
    });
    check("scatter", &[given(&[3]), given(&[4])], &|b, x| {
        let places = b.constant(Literal::i64s(&[0, 2, 2, 0]));
        x[0].scatter(Scatter { combine: Combine::Add, map: vec![Symbol::Read(0).into()] }, x[1], &[places])
    });
    check("concat", &[given(&[2, 1]), given(&[2, 3])], &|b, x| b.concat(&[x[0], x[1], x[0]], 1));
}

#[test]
fn the_rest_refuses_by_name() {
    let refusal = |body: Body<'_>| {
        let graph = loss_of(&[given(&[3])], body);
        let error = differentiate(&graph, "loss", &["x0"]).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
        error.message().to_string()
    };
    assert_eq!(refusal(&|_, x| x[0].sort(0, false).0), "no gradient is defined for sort");
    assert_eq!(refusal(&|_, x| x[0].prefix(Monoid::Max, 0, false)), "no gradient is defined for prefix");
    let replace = Scatter { combine: Combine::Replace, map: vec![Dim::axis(0)] };
    assert_eq!(refusal(&|_, x| x[0].scatter(replace.clone(), x[0], &[])), "no gradient is defined for scatter");
    let branches: Body<'_> = &|b, x| {
        let branch = || {
            let region = b.region("branch");
            let x = region.input("x", DType::F64, Shape::new([3usize]));
            region.output("y", x.exp());
            region.finish().unwrap()
        };
        let condition = x[0].element(0, 0usize).lt(0.5);
        b.if_else(condition, branch(), branch(), &[x[0]]).unwrap()[0]
    };
    assert_eq!(refusal(branches), "no gradient is defined for if");
    let looped: Body<'_> = &|b, x| {
        let body = b.region("body");
        let _trip = body.input("trip", DType::I64, Shape::scalar());
        let carried = body.input("x", DType::F64, Shape::new([3usize]));
        body.output("go on", body.int(DType::Bool, 1));
        body.output("x", carried * 2.0);
        let body = body.finish().unwrap();
        b.loop_(b.int(DType::I64, 2), b.int(DType::Bool, 1), &[x[0]], body, &[]).unwrap()[0]
    };
    assert_eq!(refusal(looped), "no gradient is defined for loop");
}

#[test]
fn only_a_float_scalar_by_inputs_that_exist() {
    let b = Builder::new("names");
    let x = b.input("x", DType::F32, Shape::new([2usize]));
    b.output("vector", x);
    b.output("scalar", x.reduce(Monoid::Sum, &[0]));
    let graph = b.finish().unwrap();
    let message = |output: &str, wrt: &str| differentiate(&graph, output, &[wrt]).unwrap_err().message().to_string();
    assert_eq!(message("nothing", "x"), "no output is called \"nothing\"");
    assert_eq!(message("scalar", "y"), "no input is called \"y\"");
    assert_eq!(message("vector", "x"), "only a float scalar can be differentiated, not f32[2]");
}

fn layer_norm<'b>(x: Tensor<'b>, scale: Tensor<'b>, shift: Tensor<'b>) -> Tensor<'b> {
    let centred = x - x.mean(&[1]);
    centred / ((centred * centred).mean(&[1]) + 1e-5).sqrt() * scale + shift
}

#[test]
fn layer_norm_and_gelu() {
    let graph = check("layernorm + gelu", &[given(&[2, 5]), given(&[5]), given(&[5])], &|_, x| {
        let y = layer_norm(x[0], x[1], x[2]);
        y * 0.5 * ((y / std::f64::consts::SQRT_2).erf() + 1.0)
    });
    assert_eq!(count(&graph, "scatter"), 0);
}

#[test]
fn softmax_cross_entropy() {
    check("cross entropy", &[given(&[3, 4])], &|b, x| {
        let labels = b.constant(Literal::i64s(&[2, 0, 3]));
        let shifted = x[0] - x[0].reduce_keep(Monoid::Max, &[1]);
        let log_p = shifted - shifted.exp().sum(&[1]).log();
        let pick = Gather { shape: Shape::new([3usize]), map: vec![Dim::axis(0), Symbol::Read(0).into()] };
        -log_p.gather(pick, &[labels])
    });
}

#[test]
fn attention_with_any_batch() {
    let n = Dim::named("n");
    let shape = Shape::new([n, Dim::int(3), Dim::int(4)]);
    let inputs: Vec<Given> = (0..3).map(|_| symbolic(shape.clone(), &[2, 3, 4])).collect();
    let graph = check("attention", &inputs, &|_, x| {
        let heads = |t: Tensor<'_>| {
            let n = Dim::named("n");
            t.reshape(Shape::new([n, Dim::int(3), Dim::int(2), Dim::int(2)])).permute(&[0, 2, 1, 3]).value()
        };
        let b = x[0].builder();
        let [q, k, v] = [x[0], x[1], x[2]].map(|t| b.tensor(heads(t)));
        let scores = q.contract("nhsd,nhtd->nhst", k) * 0.7;
        let e = (scores - scores.reduce_keep(Monoid::Max, &[3])).exp();
        (e / e.sum(&[3])).contract("nhst,nhtd->nhsd", v).permute(&[0, 2, 1, 3])
    });
    assert_eq!(count(&graph, "scatter"), 0);
}

#[test]
fn a_gradient_of_a_gradient() {
    let b = Builder::new("cubic");
    let x = b.input("x", DType::F64, Shape::new([3usize]));
    b.output("loss", (x * x * x).reduce(Monoid::Sum, &[0]));
    let first = differentiate(&b.finish().unwrap(), "loss", &["x"]).unwrap();
    let again = Builder::from_graph(first);
    let slope = again.with_graph(|g| g.outputs()[1].value);
    again.output("sum", again.tensor(slope).reduce(Monoid::Sum, &[0]));
    let second = differentiate(&again.finish().unwrap(), "sum", &["x"]).unwrap();
    let x = Literal::from_f64s(DType::F64, [3], &[1.0, 2.0, -0.5]).unwrap();
    let values = evaluate(&second, &[(Arc::from("x"), x)].into_iter().collect(), &Options::default()).unwrap();
    assert_eq!(values.last().unwrap().to_f64s(), [6.0, 12.0, -3.0]);
}
