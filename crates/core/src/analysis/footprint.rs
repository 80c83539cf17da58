//! Work and traffic of every node.

use rustc_hash::FxHashSet;

use super::operator::{self, Operator};
use super::stored::{self, Stored, Touched};
use crate::graph::{Graph, Node, Value};
use crate::ops::Prim;
use crate::tensor::{Dim, Env};

/// Arithmetic operations and bytes moved, as expressions in the sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// arithmetic operations, by the cost column of the scalar table
    pub flops: Dim,
    /// bytes read
    pub read: Dim,
    /// bytes written
    pub written: Dim,
}

impl Footprint {
    /// No work and no traffic.
    pub const NOTHING: Footprint = Footprint { flops: Dim::int(0), read: Dim::int(0), written: Dim::int(0) };

    /// All bytes moved.
    pub fn bytes(&self) -> Dim {
        &self.read + &self.written
    }

    /// With the sizes that `env` binds replaced by their numbers.
    pub fn bind(&self, env: &Env) -> Footprint {
        Footprint { flops: env.apply(&self.flops), read: env.apply(&self.read), written: env.apply(&self.written) }
    }

    /// Operations per byte moved, where that does not depend on sizes; `None` where it does or nothing is moved.
    pub fn intensity(&self) -> Option<f64> {
        let bytes = self.bytes();
        if let (Some(flops), Some(bytes)) = (self.flops.as_int(), bytes.as_int()) {
            return (bytes > 0).then(|| flops as f64 / bytes as f64);
        }
        // Two expressions are proportional if they are in the proportion they have where every size is 1.
        let at_ones = |dim: &Dim| dim.eval_with(&|_| Some(1)).ok();
        let (a, b) = (at_ones(&self.flops)?, at_ones(&bytes).filter(|b| *b > 0)?);
        (&self.flops * b == bytes * a).then(|| a as f64 / b as f64)
    }

    fn max_with(&self, other: &Footprint) -> Footprint {
        Footprint {
            flops: self.flops.max_with(&other.flops),
            read: self.read.max_with(&other.read),
            written: self.written.max_with(&other.written),
        }
    }

    fn times(&self, count: &Dim) -> Footprint {
        Footprint { flops: &self.flops * count, read: &self.read * count, written: &self.written * count }
    }
}

impl std::ops::AddAssign<&Footprint> for Footprint {
    fn add_assign(&mut self, other: &Footprint) {
        self.flops = &self.flops + &other.flops;
        self.read = &self.read + &other.read;
        self.written = &self.written + &other.written;
    }
}

impl<'a> std::iter::Sum<&'a Footprint> for Footprint {
    fn sum<I: Iterator<Item = &'a Footprint>>(all: I) -> Footprint {
        all.fold(Footprint::NOTHING, |mut sum, f| {
            sum += f;
            sum
        })
    }
}

/// The footprints of a graph. Nodes that no output needs count nothing.
///
/// Every node is taken as a loop nest of its own that reads what it touches of the stored values behind its operands,
/// each element once, and writes its results. A view is no loop: its reader touches the operand through it. What follows
/// from coordinates alone is not stored either. A region counts its larger branch, or one trip times the trips where
/// their number is known.
#[derive(Clone, Debug)]
pub struct Footprints {
    /// by node
    pub nodes: Vec<Footprint>,
    /// by operator of the user's model, in the order of the graph
    pub operators: Vec<Operator>,
    /// the least traffic of any plan: what is needed of inputs and constants read once, outputs written once
    pub least: Footprint,
}

impl Footprints {
    /// Derives the footprints of a graph.
    pub fn of(graph: &Graph) -> Footprints {
        let live = graph.live_nodes();
        let stored = Stored::of(graph);
        let outputs: FxHashSet<Value> = graph.outputs().iter().map(|o| o.value).collect();
        let node = |id: usize| match live[id] {
            true => of_node(graph, id, &stored, &outputs),
            false => Footprint::NOTHING,
        };
        let nodes: Vec<Footprint> = (0..graph.nodes().len()).map(node).collect();
        let operators = operator::operators(graph, &live, &outputs, &nodes);
        let least = least(graph, &live, &stored, &nodes);
        Footprints { nodes, operators, least }
    }

    /// The whole graph, every primitive run by itself.
    pub fn by_primitive(&self) -> Footprint {
        self.nodes.iter().sum()
    }

    /// The whole graph, every operator of the user's model run as one kernel: unfused.
    pub fn by_operator(&self) -> Footprint {
        self.operators.iter().map(|o| &o.alone).sum()
    }
}

fn of_node(graph: &Graph, id: usize, stored: &Stored, outputs: &FxHashSet<Value>) -> Footprint {
    let node = &graph.nodes()[id];
    let types: Vec<_> = node.args().iter().map(|a| graph.ty(*a).clone()).collect();
    let flops = node.prim().flops(&types);
    match node.prim() {
        Prim::Input(_) | Prim::Const(_) | Prim::Bind(_) => return Footprint::NOTHING,
        Prim::If(row) => {
            let branches = [&row.then, &row.otherwise].map(|region| Footprints::of(region).by_primitive());
            return branches[0].max_with(&branches[1]);
        }
        Prim::Loop(row) => return Footprints::of(&row.body).by_primitive().times(&trips(graph, node)),
        Prim::View(_) if stored::is_reshape(graph, id) => return Footprint::NOTHING,
        _ => {}
    }
    // What is not stored is written only where the caller wants to have it.
    let is_output = (0..node.types().len()).any(|port| outputs.contains(&Value::new(id, port)));
    if !stored.is_stored(id) && !is_output {
        return Footprint { flops, ..Footprint::NOTHING };
    }
    let read = stored::bytes(graph, &stored::reads(graph, id, stored));
    let written = node.types().iter().map(|ty| ty.bytes()).sum();
    Footprint { flops, read, written }
}

/// The trips of a loop: a constant, or the length of what it stacks; one where nothing tells.
fn trips(graph: &Graph, node: &Node) -> Dim {
    let Prim::Loop(row) = node.prim() else { return Dim::int(1) };
    let constant = match graph.node_of(node.args()[0]).prim() {
        Prim::Const(row) if row.literal.int(0) < 1 << 40 => Some(Dim::int(row.literal.int(0).max(0))),
        _ => None,
    };
    let stacked = row.results.get(row.carried).and_then(|ty| ty.shape.dims().first().cloned());
    stacked.or(constant).unwrap_or(Dim::int(1))
}

fn least(graph: &Graph, live: &[bool], stored: &Stored, nodes: &[Footprint]) -> Footprint {
    let is_source = |t: &Touched| matches!(graph.node_of(t.value).prim(), Prim::Input(_) | Prim::Const(_));
    let readers = (0..nodes.len()).filter(|id| live[*id] && !stored::is_view(graph.nodes()[*id].prim()));
    let by_nodes = readers.flat_map(|id| stored::reads(graph, id, stored));
    // An output that is a view of a source reads it as well.
    let by_outputs = graph.outputs().iter().flat_map(|o| stored.behind(graph, o.value));
    let sources = stored::merged(graph, by_nodes.chain(by_outputs).filter(is_source));
    let mut written: Vec<Value> = Vec::new();
    for output in graph.outputs() {
        if !written.contains(&output.value) {
            written.push(output.value);
        }
    }
    Footprint {
        flops: nodes.iter().map(|f| f.flops.clone()).sum(),
        read: stored::bytes(graph, &sources),
        written: written.iter().map(|v| graph.ty(*v).bytes()).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Builder, Origin, Tensor};
    use crate::ops::prim::Monoid;
    use crate::tensor::{DType, Shape, Symbol};

    fn dim(name: &str) -> Dim {
        Dim::named(name)
    }

    fn matrix<'b>(b: &'b Builder, name: &str, rows: &str, columns: &str) -> Tensor<'b> {
        b.input(name, DType::F32, Shape::new([dim(rows), dim(columns)]))
    }

    fn vector<'b>(b: &'b Builder, name: &str, size: &str) -> Tensor<'b> {
        b.input(name, DType::F32, Shape::new([dim(size)]))
    }

    fn begin(b: &Builder, op: &str) {
        b.set_origin(Some(Origin { op: op.into(), name: op.to_lowercase().as_str().into() }));
    }

    fn footprints(b: Builder) -> Footprints {
        Footprints::of(&b.finish().unwrap())
    }

    fn operator<'f>(f: &'f Footprints, op: &str) -> &'f Operator {
        f.operators.iter().find(|o| o.origin.op.as_ref() == op).unwrap()
    }

    #[test]
    fn three_elementwise_operators_move_three_times_what_one_kernel_must() {
        let b = Builder::new("chain");
        let x = vector(&b, "x", "n");
        begin(&b, "Sqrt");
        let y = x.sqrt();
        begin(&b, "Neg");
        let y = -y;
        begin(&b, "Relu");
        b.output("y", y.max(0.0));
        let f = footprints(b);
        assert_eq!(f.by_operator().bytes(), dim("n") * 24);
        assert_eq!(f.by_primitive().bytes(), dim("n") * 24);
        assert_eq!(f.least.bytes(), dim("n") * 8);
        assert_eq!(f.least.flops, dim("n") * 6);
        assert_eq!(f.least.intensity(), Some(0.75));
    }

    #[test]
    fn a_broadcast_operand_is_read_once() {
        let b = Builder::new("bias");
        let (x, bias) = (matrix(&b, "x", "m", "n"), vector(&b, "bias", "n"));
        b.output("y", x + bias);
        let f = footprints(b);
        assert_eq!(f.by_primitive().read, dim("m") * dim("n") * 4 + dim("n") * 4);
        assert_eq!(f.by_primitive().written, dim("m") * dim("n") * 4);
        assert_eq!(f.by_operator(), f.by_primitive());
    }

    #[test]
    fn a_square_reads_its_operand_once_and_two_halves_make_a_whole() {
        let b = Builder::new("square");
        let x = matrix(&b, "x", "m", "n");
        b.output("y", x * x);
        let two = b.input("z", DType::F16, Shape::new([dim("h") * 2]));
        b.output("gate", two.slice(0, 0usize, dim("h"), 1) * two.slice(0, dim("h"), dim("h"), 1));
        let f = footprints(b);
        assert_eq!(f.by_primitive().read, dim("m") * dim("n") * 4 + dim("h") * 4);
        assert_eq!(f.least.read, f.by_primitive().read);
    }

    #[test]
    fn an_operator_of_many_primitives_is_one_kernel() {
        let b = Builder::new("softmax");
        let x = matrix(&b, "x", "m", "n");
        begin(&b, "Softmax");
        let e = (x - x.reduce_keep(Monoid::Max, &[1])).exp();
        let p = e / e.sum(&[1]);
        begin(&b, "Transpose");
        b.output("y", p.transpose());
        let f = footprints(b);
        let elements = dim("m") * dim("n");
        let softmax = operator(&f, "Softmax");
        assert_eq!(softmax.alone.bytes(), &elements * 8);
        assert_eq!(softmax.apart.written, &elements * 12 + dim("m") * 8);
        assert_eq!(softmax.apart.read, &elements * 20 + dim("m") * 8);
        // exp 10, division 4, subtraction 1, two folds
        assert_eq!(softmax.alone.flops, &elements * 17);
        assert_eq!(operator(&f, "Transpose").alone.bytes(), &elements * 8);
    }

    #[test]
    fn a_constant_that_two_operators_share_is_not_moved_between_them() {
        let b = Builder::new("shared");
        let x = vector(&b, "x", "n");
        begin(&b, "First");
        let y = x * 0.5;
        begin(&b, "Second");
        b.output("y", y.exp() * 0.5);
        let f = footprints(b);
        assert_eq!(operator(&f, "First").alone.bytes(), dim("n") * 8);
        assert_eq!(operator(&f, "Second").alone.bytes(), dim("n") * 8);
    }

    #[test]
    fn reshapes_are_free_and_permuted_outputs_are_copies() {
        let b = Builder::new("views");
        let x = matrix(&b, "x", "m", "n");
        b.output("flat", x.reshape(Shape::new([dim("m") * dim("n")])));
        b.output("turned", x.transpose());
        let f = footprints(b);
        assert_eq!(f.by_primitive().bytes(), dim("m") * dim("n") * 8);
        assert_eq!(f.by_primitive().flops, Dim::int(0));
    }

    #[test]
    fn a_matrix_product_counts_two_operations_a_step() {
        let b = Builder::new("matmul");
        b.output("y", matrix(&b, "a", "m", "k").matmul(matrix(&b, "b", "k", "n")));
        let f = footprints(b).by_primitive();
        assert_eq!(f.flops, dim("m") * dim("k") * dim("n") * 2);
        assert_eq!(f.intensity(), None);
        let cube = f.bind(&["m", "k", "n"].map(|s| (Symbol::name(s), 128)).into_iter().collect());
        assert_eq!(cube.intensity(), Some(2.0 * 128.0 / 12.0));
    }

    #[test]
    fn a_gather_touches_no_more_than_it_takes() {
        let b = Builder::new("embedding");
        let table = b.input("table", DType::F32, Shape::new([dim("v"), Dim::int(64)]));
        let ids = b.input("ids", DType::I64, Shape::new([dim("s")]));
        b.output("y", table.take(0, ids));
        let f = footprints(b);
        let env = |v, s| [(Symbol::name("v"), v), (Symbol::name("s"), s)].into_iter().collect();
        let table_bytes = |v, s| f.least.bind(&env(v, s)).read.as_int().unwrap() - 8 * s;
        assert_eq!(table_bytes(50000, 10), 10 * 64 * 4);
        assert_eq!(table_bytes(5, 10), 5 * 64 * 4);
    }

    #[test]
    fn what_follows_from_coordinates_is_not_stored() {
        let b = Builder::new("mask");
        let x = matrix(&b, "x", "s", "s");
        let shape = Shape::new([dim("s"), dim("s")]);
        let keep = b.coordinate(1, &shape).le(b.coordinate(0, &shape));
        b.output("y", keep.select(x, f64::NEG_INFINITY));
        assert_eq!(footprints(b).by_primitive().bytes(), dim("s") * dim("s") * 8);
    }

    #[test]
    fn a_loop_counts_its_trips() {
        let b = Builder::new("loop");
        let x = vector(&b, "x", "n");
        let body = b.region("body");
        body.input("trip", DType::I64, Shape::scalar());
        let carried = body.input("carried", DType::F32, Shape::new([dim("n")]));
        body.output("go", body.constant(crate::tensor::Literal::from_ints(DType::Bool, [], &[1]).unwrap()));
        body.output("next", carried.sqrt());
        let body = body.finish().unwrap();
        let start = b.constant(crate::tensor::Literal::from_ints(DType::Bool, [], &[1]).unwrap());
        let y = b.loop_(b.int(DType::I64, 7), start, &[x], body, &[]).unwrap();
        b.output("y", y[0]);
        assert_eq!(footprints(b).by_primitive().bytes(), dim("n") * 8 * 7);
    }

    #[test]
    fn what_no_output_needs_costs_nothing() {
        let b = Builder::new("dead");
        let x = vector(&b, "x", "n");
        let _dead = x.exp();
        b.output("y", x);
        let f = footprints(b);
        assert_eq!(f.by_primitive(), Footprint::NOTHING);
        assert_eq!(f.least.bytes(), dim("n") * 8);
    }
}
