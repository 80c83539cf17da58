//! What holds of every graph. [`verify`] checks this list in its order; a broken invariant is a bug of whoever made the
//! graph, and the error says which node breaks which one.
//!
//! 1. The operands of a node are results of earlier nodes.
//! 2. The results of a node have the types that its primitive infers from its operands. (So maps mention only axes that
//!    are there, fill values go with guards, and regions take and return what their node says.)
//! 3. The inputs are the input nodes in the order of the nodes, and no two have one name.
//! 4. Outputs are results of nodes.
//! 5. No two nodes are equal: equal computations are one node.
//! 6. Constants of expressions and fill values are numbers of their type.
//! 7. Coordinates (`i0`) and elements of index operands (`@0`) occur in index maps and in guarded expressions only, never
//!    in sizes.
//! 8. Every size symbol has one binder, which precedes its uses. A name is bound by an input that has it as a size, before
//!    anything runs, and so is a value symbol of a region's input; other value symbols by a `bind`, a host operation, or
//!    the first `if` or `loop` that has it as a size of a result.
//! 9. Constraints mention bound symbols only.
//! 10. Regions keep this list, given the symbols bound around them; what they bind is not bound outside.

use std::cell::RefCell;
use std::collections::HashMap;

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::{Graph, Node, Value};
use crate::budget::Budget;
use crate::error::{Context, Error, Result};
use crate::ops::prim::View;
use crate::ops::{ExprNode, Number, Prim};
use crate::tensor::{Bound, DType, Dim, Symbol, TensorType};

/// Checks that a graph keeps every invariant of the list above.
pub fn verify(graph: &Graph) -> Result<()> {
    verify_within(graph, &Budget::UNLIMITED)
}

/// As [`verify`], as long as the budget lasts.
pub(crate) fn verify_within(graph: &Graph, budget: &Budget) -> Result<()> {
    verify_region(graph, Place { bound: Bound::default(), open: None, budget })
}

/// As [`verify`], for a graph that stands among others: symbols that it does not bind are bound around it.
pub(crate) fn verify_open(graph: &Graph) -> Result<()> {
    open_symbols(graph).map(|_| ())
}

/// As [`verify_open`]: the symbols that are bound around the graph, in the order in which it mentions them.
pub(crate) fn open_symbols(graph: &Graph) -> Result<Vec<Symbol>> {
    let open = RefCell::default();
    verify_region(graph, Place { bound: Bound::default(), open: Some(&open), budget: &Budget::UNLIMITED })?;
    Ok(open.into_inner())
}

/// What is known at a place of a graph.
#[derive(Debug)]
struct Place<'o> {
    bound: Bound<'o>,
    /// symbols that are bound around the graph, where it may have such
    open: Option<&'o RefCell<Vec<Symbol>>>,
    budget: &'o Budget,
}

impl Place<'_> {
    /// The begin of a region at this place.
    fn inside(&self) -> Place<'_> {
        Place { bound: Bound::inside(&self.bound), open: self.open, budget: self.budget }
    }

    fn bind(&mut self, symbol: u32) -> Result<()> {
        match self.bound.bind(Symbol::Value(symbol)) {
            true => Ok(()),
            false => Err(Error::bug(format!("${symbol} is bound twice"))),
        }
    }

    fn check(&mut self, dim: &Dim) -> Result<()> {
        let mut free = None;
        dim.for_each_symbol(&mut |s| {
            let is_size = matches!(s, Symbol::Name(_) | Symbol::Value(_));
            if is_size && !self.bound.has(s) {
                match self.open {
                    Some(open) => {
                        self.bound.bind(s.clone());
                        let mut open = open.borrow_mut();
                        // A region does not bind for what is outside of it.
                        if !open.contains(s) {
                            open.push(s.clone());
                        }
                    }
                    None => {
                        free.get_or_insert_with(|| s.clone());
                    }
                }
            }
        });
        match free {
            Some(symbol) => Err(Error::bug(format!("nothing before this binds {symbol}"))),
            None => Ok(()),
        }
    }
}

fn verify_region(graph: &Graph, place: Place<'_>) -> Result<()> {
    let budget = place.budget;
    let each = |check: &dyn Fn(usize, &Node) -> Result<()>| -> Result<()> {
        let mut nodes = graph.nodes.iter().enumerate();
        nodes.try_for_each(|(id, node)| budget.check().and_then(|()| check(id, node).at(|| graph.describe(id))))
    };
    each(&|id, node| check_operands(graph, id, node))?;
    each(&|_, node| check_types(graph, node))?;
    check_inputs(graph)?;
    check_outputs(graph)?;
    check_sharing(graph, budget)?;
    each(&|_, node| check_constants(node))?;
    each(&|_, node| check_sizes(node))?;
    check_symbols(graph, place)
}

fn check_operands(graph: &Graph, id: usize, node: &Node) -> Result<()> {
    for arg in &node.args {
        if arg.node() >= id {
            return Err(Error::bug(format!("the operand {arg:?} does not precede its reader")));
        }
        check_value(graph, *arg)?;
    }
    Ok(())
}

fn check_value(graph: &Graph, value: Value) -> Result<()> {
    let results = graph.nodes.get(value.node()).map(|node| node.types.len());
    match results {
        Some(count) if value.port() < count => Ok(()),
        Some(count) => Err(Error::bug(format!("{value:?} is one of {count} results"))),
        None => Err(Error::bug(format!("{value:?} is not in the graph"))),
    }
}

fn check_types(graph: &Graph, node: &Node) -> Result<()> {
    let args: Vec<TensorType> = node.args.iter().map(|a| graph.ty(*a).clone()).collect();
    let inferred = node.prim.infer(&args)?;
    if inferred.as_slice() != node.types() {
        return Err(Error::bug(format!("the types are {:?} instead of {inferred:?}", node.types)));
    }
    Ok(())
}

fn check_inputs(graph: &Graph) -> Result<()> {
    let mut names = FxHashSet::default();
    let mut found = Vec::with_capacity(graph.inputs.len());
    for (id, node) in graph.nodes.iter().enumerate() {
        if let Prim::Input(row) = node.prim() {
            found.push(Value::new(id, 0));
            if !names.insert(&row.name) {
                return Err(Error::bug(format!("two inputs are called \"{}\"", row.name)).at(graph.describe(id)));
            }
        }
    }
    if found != graph.inputs {
        return Err(Error::bug(format!("the input nodes are {found:?}, the inputs {:?}", graph.inputs)));
    }
    Ok(())
}

fn check_outputs(graph: &Graph) -> Result<()> {
    let mut outputs = graph.outputs.iter();
    outputs.try_for_each(|o| check_value(graph, o.value).at(|| format!("output \"{}\"", o.name)))
}

fn check_sharing(graph: &Graph, budget: &Budget) -> Result<()> {
    let mut known: HashMap<(u64, &[Value]), SmallVec<[usize; 1]>> = HashMap::new();
    for (id, node) in graph.nodes.iter().enumerate() {
        budget.check()?;
        let alike = known.entry((node.prim.key(), node.args())).or_default();
        let earlier = alike.iter().find(|other| graph.nodes[**other] == *node).copied();
        alike.push(id);
        if let Some(earlier) = earlier {
            return Err(Error::bug(format!("the same as %{earlier}")).at(graph.describe(id)));
        }
    }
    Ok(())
}

fn check_constants(node: &Node) -> Result<()> {
    let check = |number: Number, dtype: DType| {
        if number.is_of(dtype) {
            Ok(())
        } else {
            Err(Error::bug(format!("{number:?} is not a number of type {dtype}")))
        }
    };
    match node.prim() {
        Prim::Map(row) => row.expr.nodes().iter().try_for_each(|(step, dtype)| match step {
            ExprNode::Const(number) => check(*number, *dtype),
            _ => Ok(()),
        }),
        Prim::View(View { fill: Some(fill), .. }) => check(*fill, node.types[0].dtype),
        _ => Ok(()),
    }
}

fn check_sizes(node: &Node) -> Result<()> {
    let mut found = None;
    for_each_size(node, &mut |dim| {
        if dim.mentions(|s| matches!(s, Symbol::Axis(_) | Symbol::Read(_))) {
            found.get_or_insert_with(|| dim.clone());
        }
    });
    match found {
        Some(dim) => Err(Error::bug(format!("the size {dim} mentions a coordinate"))),
        None => Ok(()),
    }
}

/// Calls `f` with every integer expression of a node that is no index of an element. What stands inside regions is not
/// part of the node.
fn for_each_size(node: &Node, f: &mut dyn FnMut(&Dim)) {
    match node.prim() {
        Prim::View(row) => {
            row.shape.dims().iter().for_each(&mut *f);
            row.guard.iter().for_each(|g| f(&g.bound));
        }
        Prim::Gather(row) => row.shape.dims().iter().for_each(&mut *f),
        Prim::Scatter(_) | Prim::If(_) | Prim::Loop(_) => {}
        prim => prim.for_each_dim(f),
    }
    node.types.iter().flat_map(|ty| ty.shape.dims()).for_each(f);
}

fn check_symbols(graph: &Graph, mut place: Place<'_>) -> Result<()> {
    let sizes = graph.inputs.iter().flat_map(|v| graph.ty(*v).shape.dims());
    place.bound.extend(sizes.filter_map(Dim::as_symbol).cloned());
    for (id, node) in graph.nodes.iter().enumerate() {
        place.budget.check()?;
        check_node_symbols(node, &mut place).at(|| graph.describe(id))?;
    }
    for constraint in &graph.constraints {
        let of = || format!("constraint ({})", constraint.why);
        place.check(&constraint.left).and_then(|()| place.check(&constraint.right)).at(of)?;
    }
    Ok(())
}

fn check_node_symbols(node: &Node, place: &mut Place<'_>) -> Result<()> {
    let result_sizes = || node.types.iter().flat_map(|ty| ty.shape.dims());
    match node.prim() {
        Prim::Bind(row) => place.bind(row.symbol)?,
        Prim::Host(row) => row.kind.binds().try_for_each(|symbol| place.bind(symbol))?,
        Prim::If(row) => {
            verify_region(&row.then, place.inside()).at(|| "then")?;
            verify_region(&row.otherwise, place.inside()).at(|| "else")?;
        }
        Prim::Loop(row) => verify_region(&row.body, place.inside()).at(|| "body")?,
        prim => {
            let mut result = Ok(());
            prim.for_each_dim(&mut |dim| {
                if result.is_ok() {
                    result = place.check(dim);
                }
            });
            result?;
        }
    }
    if matches!(node.prim(), Prim::If(_) | Prim::Loop(_)) {
        let values = result_sizes().filter_map(Dim::as_symbol).filter(|s| matches!(s, Symbol::Value(_)));
        place.bound.extend(values.cloned());
    }
    result_sizes().try_for_each(|dim| place.check(dim))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::shared::Shared;
    use crate::graph::{Builder, Constraint, Output};
    use crate::ops::prim::{Bind, Guard, Map, Sizes};
    use crate::ops::{Expr, Scalar};
    use crate::tensor::Shape;
    use smallvec::smallvec;

    /// `y = -exp(x)` for x: f32[n, 2]
    fn sample() -> Graph {
        let b = Builder::new("sample");
        let x = b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::int(2)]));
        b.output("y", -x.exp());
        b.finish().unwrap()
    }

    fn refuses(graph: &Graph, message: &str) {
        let error = verify(graph).unwrap_err();
        assert_eq!(error.kind(), crate::error::Kind::Bug);
        assert_eq!(error.message(), message);
    }

    fn parsed(text: &str) -> Graph {
        Graph::parse(text).unwrap()
    }

    #[test]
    fn operands_precede_their_readers() {
        verify(&sample()).unwrap();
        let mut graph = sample();
        graph.nodes[1].args = smallvec![Value::new(2, 0)];
        refuses(&graph, "the operand %2 does not precede its reader");
        graph.nodes[1].args = smallvec![Value::new(0, 1)];
        refuses(&graph, "%0.1 is one of 1 results");
    }

    #[test]
    fn types_are_inferred_ones() {
        let mut graph = sample();
        let mut types = graph.nodes[2].types.to_vec();
        types[0].dtype = DType::F16;
        graph.nodes[2].types = types.into();
        refuses(&graph, "the types are [f16[n, 2]] instead of [f32[n, 2]]");
        let mut graph = sample();
        let wrong = Map { expr: Expr::call(Scalar::Neg, &[DType::F64]).unwrap(), shape: Shape::scalar() };
        graph.nodes[2].prim = Shared::new(wrong.into());
        refuses(&graph, "map: an operand is f32[n, 2], the expression takes f64[]");
    }

    #[test]
    fn inputs_are_listed_and_have_their_own_names() {
        let mut graph = sample();
        graph.inputs.clear();
        refuses(&graph, "the input nodes are [%0], the inputs []");
        let mut graph = parsed("graph g(x: f32[2], y: f32[3]) { return }");
        let Prim::Input(mut row) = graph.nodes[1].prim().clone() else { unreachable!() };
        row.name = "x".into();
        graph.nodes[1].prim = Shared::new(row.into());
        refuses(&graph, "two inputs are called \"x\"");
    }

    #[test]
    fn outputs_exist() {
        let mut graph = sample();
        graph.outputs.push(Output { name: "z".into(), value: Value::new(9, 0) });
        refuses(&graph, "%9 is not in the graph");
    }

    #[test]
    fn equal_nodes_are_one() {
        let mut graph = sample();
        graph.nodes.push(graph.nodes[1].clone());
        graph.origins.push(graph.origins[1].clone());
        refuses(&graph, "the same as %1");
    }

    #[test]
    fn constants_are_numbers_of_their_type() {
        let with = |dtype: DType, number: Number| {
            let mut graph = Graph::new("g");
            let expr = Expr::build(&[], |scope, _| scope.constant(dtype, number));
            graph.add(Map { expr, shape: Shape::scalar() }, &[], &Default::default()).unwrap();
            graph
        };
        verify(&with(DType::F32, Number::Float(f64::NAN.to_bits()))).unwrap();
        refuses(&with(DType::F32, Number::Float(0.1f64.to_bits())), "0.1 is not a number of type f32");
        refuses(&with(DType::U8, Number::Int(256)), "256 is not a number of type u8");
        refuses(&with(DType::I64, Number::Float(0)), "0.0 is not a number of type i64");
    }

    #[test]
    fn sizes_mention_no_coordinates() {
        let mut graph = Graph::new("g");
        graph.add(Sizes { dims: vec![Dim::axis(0)] }, &[], &Default::default()).unwrap();
        refuses(&graph, "the size i0 mentions a coordinate");
        let mut graph = parsed("graph g(x: f32[4]) { %1 = view x[i0] where 0 <= i0 < 3 else 0.0 : f32[4] return }");
        let Prim::View(mut row) = graph.nodes[1].prim().clone() else { unreachable!() };
        row.guard = vec![Guard { index: Dim::axis(0), bound: Dim::axis(0) }];
        graph.nodes[1].prim = Shared::new(row.into());
        refuses(&graph, "the size i0 mentions a coordinate");
    }

    #[test]
    fn symbols_are_bound_once_and_before_their_uses() {
        refuses(&parsed("graph g() { %0 = sizes [n] : i64[1] return }"), "nothing before this binds n");
        verify(&parsed("graph g() { %0 = sizes [n] : i64[1] %1 = input x : f32[n] return }")).unwrap();
        refuses(&parsed("graph g(x: f32[2*n]) { return }"), "nothing before this binds n");
        verify(&parsed("graph g(x: f32[2*n], y: f32[n]) { return }")).unwrap();
        let bind = "graph g(x: i64[]) { %1 = bind $0 = x : i64[] %2 = map() i0 : i64[$0] return }";
        verify(&parsed(bind)).unwrap();
        let early = "graph g(x: i64[]) { %2 = map() i0 : i64[$0] %1 = bind $0 = x : i64[] return }";
        refuses(&parsed(early), "nothing before this binds $0");
        let mut twice = parsed("graph g(x: i64[], y: i64[]) { %1 = bind $0 = x : i64[] return }");
        twice.add(Bind { symbol: 0 }, &[Value::new(1, 0)], &Default::default()).unwrap();
        refuses(&twice, "$0 is bound twice");
        refuses(
            &parsed(
                "graph g(x: i64[2]) { %1 = host.nonzero(x) count=$0 : i64[1, $0] %2 = host.nonzero(%1) count=$0 : i64[2, $0] return }",
            ),
            "$0 is bound twice",
        );
    }

    #[test]
    fn an_open_graph_leaves_symbols_to_others() {
        let open = parsed("graph g(x: f32[2*n]) { %1 = view x[min(i0 + $3, n)] : f32[m] return y = %1 }");
        refuses(&open, "nothing before this binds n");
        verify_open(&open).unwrap();
        assert_eq!(open_symbols(&open).unwrap(), [Symbol::name("n"), Symbol::name("m"), Symbol::Value(3)]);
        let late = parsed("graph g(x: f32[2*$0]) { %1 = host.nonzero(x) count=$0 : i64[1, $0] return y = %1 }");
        assert!(verify_open(&late).unwrap_err().to_string().contains("$0 is bound twice"));
    }

    #[test]
    fn constraints_mention_bound_symbols() {
        let mut graph = sample();
        let why = "reshape".into();
        graph.add_constraint(Constraint { left: Dim::named("n"), right: Dim::named("m"), why });
        refuses(&graph, "nothing before this binds m");
        assert_eq!(verify(&graph).unwrap_err().path(), ["constraint (reshape)"]);
    }

    #[test]
    fn regions_keep_the_list_and_their_symbols() {
        let text = |then: &str, result: &str| {
            parsed(&format!(
                "graph g(c: bool[], x: f32[n]) {{
                   %2 = if c capture=(x) : f32[{result}]
                     then graph then(x: f32[n]) {{ {then} }}
                     else graph else(x: f32[n]) {{ return y = x }}
                   %3 = sizes [{result}] : i64[1]
                   return y = %2
                 }}"
            ))
        };
        verify(&text("return y = x", "n")).unwrap();
        verify(&text("return y = x", "$0")).unwrap();
        verify(&text("%1 = sizes [n] : i64[1] return y = x", "n")).unwrap();
        let inner = "%1 = host.nonzero(x) count=$0 : i64[1, $0] %2 = map(%1) f32(a) : f32[1, $0]
                     %3 = view %2[0, i0] : f32[$0] return y = %3";
        verify(&text(inner, "$1")).unwrap();
        refuses(&text(inner, "n + $0"), "nothing before this binds $0");
        let broken = text("%1 = sizes [m] : i64[1] return y = x", "n");
        refuses(&broken, "nothing before this binds m");
        assert_eq!(verify(&broken).unwrap_err().path(), ["%2 (if)", "then", "%1 (sizes)"]);
    }
}
