//! Graphs as text.

use std::fmt::{self, Write as _};

use super::{expr, host, literal, number};
use crate::cursor::{name_text, quoted};
use crate::graph::{Graph, Node, Value};
use crate::ops::Prim;
use crate::ops::prim::Guard;
use crate::tensor::{Dim, Symbol, TensorType};

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print_graph(f, self, 0, false)
    }
}

/// Prints a graph that stands `depth` levels deep.
pub(crate) fn print_graph(f: &mut fmt::Formatter<'_>, graph: &Graph, depth: usize, is_region: bool) -> fmt::Result {
    let heading = heading_inputs(graph);
    let inputs = graph.inputs()[..heading].iter();
    let inputs: Vec<String> =
        inputs.map(|v| format!("{}: {}", name_text(graph.input_name(*v)), graph.ty(*v))).collect();
    write!(f, "graph {}({})", name_text(graph.name()), inputs.join(", "))?;
    let (first, next) = (graph.first_symbol(), graph.value_symbols());
    let handed_out = if is_region { next > first } else { (first, next) != (0, symbols_mentioned(graph)) };
    if handed_out {
        write!(f, " symbols=${first}..${next}")?;
    }
    f.write_str(" {\n")?;
    let indent = "  ".repeat(depth + 1);
    for (id, node) in graph.nodes().iter().enumerate().skip(heading) {
        write!(f, "{indent}%{id} = {} : {}", operation(graph, node), types_text(node.types()))?;
        if f.alternate() {
            for origin in graph.origin(id).iter() {
                write!(f, " !{} {}", name_text(&origin.op), quoted(&origin.name, '"'))?;
            }
        }
        f.write_char('\n')?;
        for (role, region) in regions(node.prim()) {
            write!(f, "{indent}  {role} ")?;
            print_graph(f, region, depth + 2, true)?;
            f.write_char('\n')?;
        }
    }
    for constraint in graph.constraints() {
        writeln!(f, "{indent}require {} == {} {}", constraint.left, constraint.right, quoted(&constraint.why, '"'))?;
    }
    let outputs: Vec<String> =
        graph.outputs().iter().map(|o| format!("{} = {}", name_text(&o.name), value_text(graph, o.value))).collect();
    let space = if outputs.is_empty() { "" } else { " " };
    writeln!(f, "{indent}return{space}{}", outputs.join(", "))?;
    write!(f, "{}}}", "  ".repeat(depth))
}

/// The number of inputs that stand before all other nodes and therefore in the heading.
fn heading_inputs(graph: &Graph) -> usize {
    graph.nodes().iter().take_while(|node| matches!(node.prim(), Prim::Input(_))).count()
}

/// One more than the largest value symbol in the graph and its regions.
pub(super) fn symbols_mentioned(graph: &Graph) -> u32 {
    let mut count = 0;
    graph.for_each_dim(&mut |dim| {
        dim.for_each_symbol(&mut |s| {
            if let Symbol::Value(n) = s {
                count = count.max(n.saturating_add(1));
            }
        });
    });
    for node in graph.nodes() {
        if let Prim::Bind(row) = node.prim() {
            count = count.max(row.symbol.saturating_add(1));
        }
        count = regions(node.prim()).iter().fold(count, |n, (_, region)| n.max(symbols_mentioned(region)));
    }
    count
}

/// The regions of a primitive and what they are to it.
fn regions(prim: &Prim) -> Vec<(&'static str, &Graph)> {
    match prim {
        Prim::If(row) => vec![("then", &row.then), ("else", &row.otherwise)],
        Prim::Loop(row) => vec![("body", &row.body)],
        _ => Vec::new(),
    }
}

pub(super) fn types_text(types: &[TensorType]) -> String {
    let texts: Vec<String> = types.iter().map(TensorType::to_string).collect();
    if texts.is_empty() { "()".to_owned() } else { texts.join(", ") }
}

fn value_text(graph: &Graph, value: Value) -> String {
    // A broken graph is printed too, to be looked at.
    match graph.nodes().get(value.node()).map(Node::prim) {
        Some(Prim::Input(row)) => name_text(&row.name),
        _ => format!("{value:?}"),
    }
}

/// Index expressions between brackets.
pub(crate) fn dims_text(dims: &[Dim]) -> String {
    let texts: Vec<String> = dims.iter().map(Dim::to_string).collect();
    format!("[{}]", texts.join(", "))
}

/// What stands between `=` and `:`. The shapes of results are not repeated: they stand behind the colon.
fn operation(graph: &Graph, node: &Node) -> String {
    let arg = |k: usize| node.args().get(k).map_or_else(String::new, |v| value_text(graph, *v));
    let args = |from: usize| {
        let texts: Vec<String> = node.args().iter().skip(from).map(|v| value_text(graph, *v)).collect();
        format!("({})", texts.join(", "))
    };
    let flag = |name: &str, set: bool| if set { format!(" {name}") } else { String::new() };
    match node.prim() {
        Prim::Input(row) => format!("input {}", name_text(&row.name)),
        Prim::Const(row) => format!("const {}", literal::text(&row.literal)),
        Prim::Sizes(row) => format!("sizes {}", dims_text(&row.dims)),
        Prim::Bind(row) => format!("bind ${} = {}", row.symbol, arg(0)),
        Prim::Random(row) => format!("random {} stream={}", arg(0), row.stream),
        Prim::Map(row) => format!("map{} {}", args(0), expr::text(&row.expr)),
        Prim::View(row) => {
            let dtype = node.types().first().map(|ty| ty.dtype);
            let fill = row.fill.zip(dtype).map_or_else(String::new, |(n, dtype)| number::text(dtype, n));
            format!("view {}{}{}", arg(0), dims_text(&row.map), guards_text(&row.guard, &fill))
        }
        Prim::Concat(row) => format!("concat{} axis={}", args(0), row.axis),
        Prim::Reduce(row) => format!("reduce.{} {} axes={:?}", row.monoid.name(), arg(0), row.axes),
        Prim::Prefix(row) => {
            format!("prefix.{} {} axis={}{}", row.monoid.name(), arg(0), row.axis, flag("exclusive", row.exclusive))
        }
        Prim::Contract(row) => format!("contract{} \"{}\" acc={}", args(0), row.subscripts(), row.accumulator),
        Prim::Gather(row) => format!("gather {}{} index={}", arg(0), dims_text(&row.map), args(1)),
        Prim::Scatter(row) => {
            let (name, map) = (row.combine.name(), dims_text(&row.map));
            format!("scatter.{name} {}{map} updates={} index={}", arg(0), arg(1), args(2))
        }
        Prim::Sort(row) => format!("sort {} axis={}{}", arg(0), row.axis, flag("descending", row.descending)),
        Prim::If(_) => format!("if {} capture={}", arg(0), args(1)),
        Prim::Loop(row) => {
            let carried: Vec<String> = (0..row.carried).map(|k| arg(2 + k)).collect();
            let capture = args(2 + row.carried);
            format!("loop trips={} start={} carry=({}) capture={capture}", arg(0), arg(1), carried.join(", "))
        }
        Prim::Host(row) => {
            let attributes = host::attributes(&row.kind).into_iter().map(|(key, value)| host::text(key, value));
            format!("host.{}{}{}", row.kind.name(), args(0), attributes.collect::<String>())
        }
    }
}

/// Where something is read, and what stands for it elsewhere; nothing without guards.
pub(crate) fn guards_text(guards: &[Guard], fill: &str) -> String {
    if guards.is_empty() {
        return String::new();
    }
    let guards: Vec<String> = guards.iter().map(|g| format!("0 <= {} < {}", g.index, g.bound)).collect();
    format!(" where {} else {fill}", guards.join(", "))
}
