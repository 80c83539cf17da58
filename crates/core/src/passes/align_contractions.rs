//! Contractions that read their operands in the order in which they lie.

mod plain;
mod products;
mod short;

use super::{Context, Numerics, Pass};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced, rewrite};
use crate::graph::{Graph, Value};
use crate::ops::Prim;
use crate::ops::prim::{Contract, Guard, Label, View};
use crate::tensor::{Dim, Shape, Symbol};

pub(super) const PASS: Pass = Pass {
    name: "align-contractions",
    doc: "A contraction names the axes of its operands in the order in which they lie, with letters in the order of its result.",
    run,
};

/// In: any graph. Out: no contraction reads a view that only permutes axes, or that repeats its operand along an axis that
/// the other operand has too; other views that it reads have their axes in the order of the operand's; axes of the result
/// are a, b, c …, those that are summed follow; weights are the second operand, unless both or neither are; none is a sum of products that share nothing, or of multiples of one number, or of a few products with
/// parts of a concat, and no sum of products is a contraction.
/// So a product with a transposed matrix, heads that are split and moved to the front, and means that are written as products
/// have one form however they were written.
fn run(graph: &Graph, context: &Context) -> Result<Option<Graph>> {
    rewrite(graph, &context.budget, |rebuild, node, args| {
        let row = match node.prim() {
            Prim::Contract(row) => row,
            Prim::Reduce(row) if context.numerics != Numerics::Strict => {
                return products::contraction(rebuild, row, args[0], &node.types()[0]);
            }
            _ => return Ok(None),
        };
        // Not under strict numerics: 0 + −0 is not −0, and products are not rounded before they are summed.
        if context.numerics != Numerics::Strict {
            let ty = &node.types()[0];
            let plainer = match plain::plainer(rebuild, row, args, ty)? {
                Some(values) => Some(values),
                None => short::written_out(rebuild, row, args, ty)?,
            };
            if plainer.is_some() {
                return Ok(plainer);
            }
        }
        match has_weights_first(rebuild.graph(), args) {
            true => {
                let turned = Contract { a: row.b.clone(), b: row.a.clone(), ..row.clone() };
                let args = [args[1], args[0]];
                let aligned = align(rebuild, &turned, &args)?;
                aligned.map_or_else(|| replaced(rebuild.add(relettered(&turned), &args)?), |values| Ok(Some(values)))
            }
            false => align(rebuild, row, args),
        }
    })
}

/// Whether the first operand is made of constants and the second one is not: rows are those of what is computed, as whoever writes it the other
/// way round has them.
fn has_weights_first(graph: &Graph, args: &[Value]) -> bool {
    is_of_constants(graph, args[0]) && !is_of_constants(graph, args[1])
}

/// So many values are looked at between weights and constants, each as often as it is read.
const MOST_STEPS: usize = 32;

/// Whether a value is made of constants, as far as a short look shows. (Nodes of regions are looked at too: there are no facts about all.)
fn is_of_constants(graph: &Graph, value: Value) -> bool {
    let mut todo = vec![value];
    for _ in 0..MOST_STEPS {
        let Some(value) = todo.pop() else { return true };
        let node = graph.node_of(value);
        match node.prim() {
            Prim::Const(_) => {}
            Prim::View(_) | Prim::Map(_) | Prim::Concat(_) if !node.args().is_empty() => todo.extend(node.args()),
            _ => return false,
        }
    }
    todo.is_empty()
}

fn align(rebuild: &mut Rebuild<'_>, row: &Contract, args: &[Value]) -> Result<Option<Values>> {
    let graph = rebuild.graph();
    let first = aligned(graph, args[0], &row.a, &row.b, &row.out);
    let labels = first.as_ref().map_or(&row.a, |(_, labels)| labels).clone();
    let second = aligned(graph, args[1], &row.b, &labels, &row.out);
    let mut spec = row.clone();
    let mut operands = [args[0], args[1]];
    for (found, (operand, labels)) in
        [first, second].into_iter().zip(operands.iter_mut().zip([&mut spec.a, &mut spec.b]))
    {
        let Some((view, order)) = found else { continue };
        let source = rebuild.graph().node_of(*operand).args()[0];
        let identity = view.is_identity(&rebuild.graph().ty(source).shape);
        *operand = if identity { source } else { rebuild.add(view, &[source])? };
        *labels = order;
    }
    let spec = relettered(&spec);
    if spec == *row {
        return Ok(None);
    }
    replaced(rebuild.add(spec, &operands)?)
}

/// The same contraction with the letters a, b, c … for the axes of the result and then for those that are summed.
fn relettered(spec: &Contract) -> Contract {
    let labels: Vec<Label> = spec.out.iter().copied().chain(spec.summed()).collect();
    let letter = |label: &Label| {
        let place = labels.iter().position(|l| l == label).expect("a label is of the result or summed");
        ('a'..='z').chain('A'..='Z').nth(place).expect("labels are letters, of which there are no more")
    };
    let all = |labels: &[Label]| labels.iter().map(letter).collect();
    Contract { a: all(&spec.a), b: all(&spec.b), out: all(&spec.out), accumulator: spec.accumulator }
}

/// The view that an operand is, with its axes in the order of what it looks at, and their labels in that order; `None`
/// where the operand is no view or has that order already.
fn aligned(
    graph: &Graph,
    operand: Value,
    labels: &[Label],
    other: &[Label],
    out: &[Label],
) -> Option<(View, Vec<Label>)> {
    let Prim::View(view) = graph.node_of(operand).prim() else { return None };
    let mentions = |axis: usize| {
        let is_axis = |s: &Symbol| *s == Symbol::Axis(axis as u8);
        view.map.iter().any(|d| d.mentions(is_axis)) || view.guard.iter().any(|g| g.index.mentions(is_axis))
    };
    // Without the label here, the loop still exists through the other operand; one that is summed needs both.
    let needed = |axis: &usize| mentions(*axis) || !other.contains(&labels[*axis]) || !out.contains(&labels[*axis]);
    let mut order: Vec<usize> = (0..labels.len()).filter(needed).collect();
    // Stable: axes that lie inside of each other are ordered, those that overlap keep their order.
    order.sort_by_key(|axis| place(view, *axis));
    if order.iter().copied().eq(0..labels.len()) {
        return None;
    }
    let moved = |dim: &Dim| {
        dim.substitute(&|s| match s {
            Symbol::Axis(a) => order.iter().position(|o| *o == usize::from(*a)).map(Dim::axis),
            _ => None,
        })
    };
    let shape: Shape = order.iter().map(|a| view.shape[*a].clone()).collect();
    let map: Vec<Dim> = view.map.iter().map(moved).collect();
    let guard = view.guard.iter().map(|g| Guard { index: moved(&g.index), bound: g.bound.clone() }).collect();
    let view = match view.fill {
        Some(fill) => View::guarded(shape, map, guard, fill),
        None => View::new(shape, map),
    };
    Some((view, order.iter().map(|a| labels[*a]).collect()))
}

/// Where an axis of a view lies in what it looks at: the first axis that it moves along, and there, larger steps first if
/// no other axis of the view moves along it in between.
pub(super) fn place(view: &View, axis: usize) -> (usize, std::cmp::Reverse<i64>) {
    let is_axis = |s: &Symbol| *s == Symbol::Axis(axis as u8);
    let first = view.map.iter().position(|d| d.mentions(is_axis));
    let Some(first) = first else { return (0, std::cmp::Reverse(i64::MAX)) };
    (first, std::cmp::Reverse(nested_stride(view, &view.map[first], axis).unwrap_or(0)))
}

/// The step of an axis in an index expression all of whose axes lie inside of each other, as after a reshape.
fn nested_stride(view: &View, index: &Dim, axis: usize) -> Option<i64> {
    let (parts, _) = index.separate(view.shape.rank())?;
    let mut steps = Vec::new();
    for (a, part) in parts.iter().enumerate().filter(|(_, part)| !part.is(0)) {
        steps.push((part.as_stride(a).filter(|s| *s > 0)?, a));
    }
    steps.sort_unstable();
    let inside = |pair: &[(i64, usize)]| {
        let (small, a) = pair[0];
        view.shape[a].as_int().is_some_and(|n| small.saturating_mul(n) <= pair[1].0)
    };
    let step = steps.iter().find(|(_, a)| *a == axis)?.0;
    steps.windows(2).all(inside).then_some(step)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{applied, check, count};
    use super::*;
    use crate::graph::Builder;
    use crate::tensor::{DType, Literal};

    fn subscripts(graph: &Graph) -> Vec<String> {
        let contractions = graph.nodes().iter().filter_map(|n| match n.prim() {
            Prim::Contract(row) => Some(row.subscripts()),
            _ => None,
        });
        contractions.collect()
    }

    #[test]
    fn a_product_with_a_transposed_matrix_reads_the_matrix() {
        let b = Builder::new("transposed");
        let x = b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::int(4)]));
        let w = b.input("w", DType::F32, Shape::new([3usize, 4]));
        b.output("y", x.contract("mk,kn->mn", w.transpose()));
        b.output("z", x.contract("mk,nk->mn", w));
        let after = check(&PASS, b.finish().unwrap());
        assert_eq!(subscripts(&after), ["ac,bc->ab"], "both are one");
        assert_eq!(count(&after, "view"), 0);
    }

    #[test]
    fn weights_are_the_second_operand() {
        let b = Builder::new("weights");
        let x = b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::int(4)]));
        let w = b.constant(Literal::from_f64s(DType::F32, [4, 3], &[0.5; 12]).unwrap());
        b.output("y", w.contract("kn,mk->mn", x));
        b.output("z", x.contract("mk,kn->mn", w));
        let after = check(&PASS, b.finish().unwrap());
        assert_eq!(subscripts(&after), ["ac,cb->ab"], "both are one");
    }

    /// What reads one value again and again is not walked again and again.
    #[test]
    fn a_look_for_constants_is_short() {
        let b = Builder::new("concats");
        let nothing = b.constant(Literal::from_f64s(DType::F32, [0, 4], &[]).unwrap());
        let w = (0..8).fold(nothing, |w, _| b.concat(&[w; 64], 0));
        b.output("w", w);
        let graph = b.finish().unwrap();
        assert!(!is_of_constants(&graph, graph.outputs()[0].value));
    }

    #[test]
    fn heads_are_read_where_they_lie() {
        let b = Builder::new("heads");
        let (n, s) = (Dim::named("n"), Dim::named("s"));
        let heads = |name: &str| {
            let x = b.input(name, DType::F32, Shape::new([n.clone(), s.clone(), Dim::int(6)]));
            x.reshape(Shape::new([n.clone(), s.clone(), Dim::int(2), Dim::int(3)])).permute(&[0, 2, 1, 3])
        };
        let (q, k) = (heads("q"), heads("k"));
        b.output("scores", q.contract("bhsd,bhdt->bhst", k.transpose()));
        let composed = applied(&super::super::compose_views::PASS, &b.finish().unwrap(), &Context::default());
        let after = check(&PASS, composed);
        assert_eq!(subscripts(&after), ["acbe,adbe->abcd"]);
        let maps: Vec<_> = after
            .nodes()
            .iter()
            .filter_map(|n| if let Prim::View(v) = n.prim() { Some(&v.map) } else { None })
            .collect();
        assert_eq!(maps.len(), 2);
        assert!(maps.iter().all(|m| **m == [Dim::axis(0), Dim::axis(1), Dim::axis(2) * 3 + Dim::axis(3)]), "{maps:?}");
    }

    #[test]
    fn an_axis_that_repeats_elements_is_left_to_the_other_operand() {
        let b = Builder::new("repeated");
        let x = b.input("x", DType::F32, Shape::new([5usize, 2, 4]));
        let w = b.input("w", DType::F32, Shape::new([4usize, 3]));
        let everywhere = w.expand(Shape::new([5usize, 4, 3]));
        b.output("y", x.contract("bmk,bkn->bmn", everywhere));
        b.output("summed", x.contract("bmk,bkn->mn", everywhere));
        let after = check(&PASS, b.finish().unwrap());
        assert_eq!(subscripts(&after), ["abd,dc->abc", "cad,cdb->ab"]);
    }

    #[test]
    fn a_sum_of_one_product_is_the_product() {
        let b = Builder::new("outer");
        let x = b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::int(1)]));
        let w = b.input("w", DType::F32, Shape::new([1usize, 4]));
        b.output("y", x.matmul(w));
        let graph = b.finish().unwrap();
        assert_eq!(count(&super::super::testing::check_real(&PASS, graph.clone()), "contract"), 0);
        assert_eq!(count(&check(&PASS, graph), "contract"), 1, "0 + −0 is 0");
    }

    #[test]
    fn products_that_share_nothing_and_multiples_of_one_number_are_sums() {
        let b = Builder::new("sums");
        let x = b.input("x", DType::F16, Shape::new([Dim::named("n"), Dim::int(3), Dim::int(4)]));
        let spec = |text: &str| Contract::parse(text, DType::F32).unwrap();
        b.output("squares", x.contract_with(spec("abc,abc->ab"), x));
        b.output("turned", x.contract_with(spec("abc,abc->ba"), x));
        let quarter = b.scalar(DType::F16, 0.25).expand(Shape::new([4usize, 2]));
        b.output("mean", x.contract_with(spec("abc,cd->abd"), quarter));
        let graph = b.finish().unwrap();
        let after = super::super::testing::check_real(&PASS, graph.clone());
        assert_eq!((count(&after, "contract"), count(&after, "reduce")), (0, 3), "{after}");
        assert_eq!(count(&check(&PASS, graph), "contract"), 3);
    }

    #[test]
    fn sums_of_products_that_meet_several_are_contractions() {
        let b = Builder::new("dots");
        let (n, s, t) = (Dim::named("n"), Dim::named("s"), Dim::named("t"));
        let input =
            |name: &str, dims: [&Dim; 3]| b.input(name, DType::F32, dims.into_iter().cloned().collect::<Shape>());
        let four = Dim::int(4);
        let (q, k, w) = (input("q", [&n, &s, &four]), input("k", [&n, &t, &four]), input("w", [&n, &s, &four]));
        let products = q.insert_axes(&[2]) * k.insert_axes(&[1]);
        b.output("scores", products.reduce(crate::ops::prim::Monoid::Sum, &[3]));
        b.output("scaled", (products * 0.5).sum(&[3]));
        b.output("rows", (q * w).sum(&[2]));
        b.output("three", (products * w.insert_axes(&[2])).sum(&[3]));
        b.output("all", (products * q.insert_axes(&[2]).exp()).sum(&[2, 3]));
        let graph = super::super::run_passes(b.finish().unwrap(), &Context::default(), &mut |_| {}).unwrap();
        assert_eq!(count(&graph, "contract"), 3, "{graph}");
        assert_eq!(count(&graph, "reduce"), 2, "{graph}");
    }

    #[test]
    fn a_product_that_rearranges_is_a_view() {
        use crate::tensor::Literal;
        let b = Builder::new("turned");
        let x = b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::int(6)]));
        let matrix = |number: &dyn Fn(usize, usize) -> f64| {
            let numbers: Vec<f64> = (0..36).map(|k| number(k / 6, k % 6)).collect();
            b.constant(Literal::from_f64s(DType::F32, [6, 6], &numbers).unwrap())
        };
        let turned = |k: usize, n: usize| f64::from(u8::from(n == k + 3)) - f64::from(u8::from(k == n + 3));
        b.output("turned", x.matmul(matrix(&turned)));
        b.output("transposed", x.contract("mk,nk->mn", matrix(&turned)));
        let graph = b.finish().unwrap();
        let after = super::super::testing::check_real(&PASS, graph.clone());
        assert_eq!(count(&after, "contract"), 0, "{after}");
        assert_eq!(count(&check(&PASS, graph), "contract"), 2, "0 · ∞ is no number");
        let b = Builder::new("other");
        let x = b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::int(6)]));
        let numbers: Vec<f64> = (0..36).map(|k| f64::from(u8::from(k / 6 <= k % 6))).collect();
        b.output("y", x.matmul(b.constant(Literal::from_f64s(DType::F32, [6, 6], &numbers).unwrap())));
        assert_eq!(count(&super::super::testing::check_real(&PASS, b.finish().unwrap()), "contract"), 1);
    }

    #[test]
    fn windows_keep_the_order_of_their_axes() {
        use crate::graph::WindowAxis;
        let b = Builder::new("windows");
        let x = b.input("x", DType::F32, Shape::new([1usize, 2, 9]));
        let w = b.input("w", DType::F32, Shape::new([3usize, 2, 3]));
        let axis =
            WindowAxis { size: 3usize.into(), stride: 1, dilation: 2, before: 1usize.into(), count: 6usize.into() };
        b.output("y", x.windows(&[axis], 0.0).contract("adce,bde->abc", w));
        let graph = b.finish().unwrap();
        assert_eq!(check(&PASS, graph.clone()), graph);
    }
}
