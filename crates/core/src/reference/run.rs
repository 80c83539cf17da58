//! Running a graph node by node.

use std::cell::Cell;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{Buffer, Pending};
use crate::error::{Allowance, Context, Error, Result};
use crate::graph::{Graph, Node};
use crate::ops::Prim;
use crate::ops::prim::View;
use crate::tensor::{DType, Env, Literal, Shape, Symbol};

/// How floats are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reading {
    /// f64, rounded only where the graph says so: the meaning
    #[default]
    Exact,
    /// every scalar result rounded to its element type
    Rounded,
    /// as exact, but numbers of f16 and bf16 are held wider also behind a conversion to these types, as kernels may hold them inside
    Held,
    /// every scalar result moved by a random part of what it may err by itself, and rounded to the digits of its type
    Drawn {
        /// other numbers for every seed
        seed: u32,
        /// whether the signs of zeros are drawn, too
        signs: bool,
        /// whether what leaves the range of its type becomes what the type has for that
        ranges: bool,
    },
}

/// What an untrusted graph may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// trips of all loops together
    pub trips: u64,
    /// bytes of values alive at one time
    pub bytes: u64,
    /// so many bytes more for every byte of an input whose size the caller chooses
    pub share: u64,
    /// bytes of any text that is made
    pub text: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { trips: 250_000, bytes: 8 << 30, share: 0, text: 1 << 20 }
    }
}

impl Limits {
    /// The bytes that values may have in a run with these inputs, in the order of the graph's.
    pub fn bytes_for<'a>(&self, graph: &Graph, inputs: impl IntoIterator<Item = Option<(DType, &'a [usize])>>) -> u64 {
        let types = graph.inputs().iter().map(|value| graph.ty(*value));
        let chosen = types.zip(inputs).filter(|(ty, _)| ty.shape.as_ints().is_none());
        let bytes = |(dtype, sizes): (DType, &[usize])| {
            let count = sizes.iter().fold(1u64, |count, size| count.saturating_mul(*size as u64));
            count.saturating_mul(dtype.bits() as u64).div_ceil(8)
        };
        let given = chosen.filter_map(|(_, input)| input).map(bytes).fold(0, u64::saturating_add);
        self.bytes.saturating_add(self.share.saturating_mul(given))
    }

    /// Refuses constants of a graph that are drawn when they are read, where that would take more than a run may have.
    pub fn check_drawn(&self, graph: &Graph) -> Result<()> {
        let drawn = graph.nodes().iter().filter_map(|node| match node.prim() {
            Prim::Const(row) if row.literal.as_seeded().is_some() => Some(row.literal.byte_count() as u64),
            _ => None,
        });
        let (drawn, limit) = (drawn.fold(0, u64::saturating_add), self.bytes);
        if drawn > limit {
            return Err(Error::over(
                Allowance::Memory,
                format!("weights of {drawn} bytes drawn from seeds (the limit is {limit} bytes)"),
            ));
        }
        Ok(())
    }
}

/// Values of more elements than this are asked for before they are made.
const PROBED: usize = 1 << 24;

/// How to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// how floats are read
    pub reading: Reading,
    /// what the graph may use
    pub limits: Limits,
}

/// The outputs of a graph for the given inputs, by name, in the order of the graph's outputs.
pub fn evaluate(graph: &Graph, inputs: &FxHashMap<Arc<str>, Literal>, options: &Options) -> Result<Vec<Literal>> {
    evaluate_under(graph, inputs, &Env::new(), options)
}

/// As [`evaluate`], where some symbols are bound already.
pub fn evaluate_under(
    graph: &Graph,
    inputs: &FxHashMap<Arc<str>, Literal>,
    env: &Env,
    options: &Options,
) -> Result<Vec<Literal>> {
    let inputs = inputs.iter().map(|(name, literal)| (name.clone(), Buffer::from_literal(literal))).collect();
    let mut run = Run { inputs, ..Run::new(options, env.clone()) };
    let outputs = run.start(graph)?;
    run.literals(outputs)
}

/// As [`evaluate`], on values of the interpreter: floats are not rounded to their type on the way in and out.
pub fn evaluate_buffers(graph: &Graph, inputs: FxHashMap<Arc<str>, Buffer>, options: &Options) -> Result<Vec<Buffer>> {
    let mut run = Run { inputs, ..Run::new(options, Env::new()) };
    run.start(graph)
}

/// The results of one primitive on operands that are known, of types without free symbols.
pub fn evaluate_prim(prim: &Prim, args: &[Literal], options: &Options) -> Result<Vec<Literal>> {
    let args: Vec<Buffer> = args.iter().map(Buffer::from_literal).collect();
    let mut run = Run::new(options, Env::new());
    prim.eval(&args, &mut run)?.iter().map(Buffer::to_literal).collect()
}

/// The state of a run.
#[derive(Debug)]
pub struct Run<'o> {
    options: &'o Options,
    env: Env,
    inputs: FxHashMap<Arc<str>, Buffer>,
    trips: u64,
    live: u64,
    /// the most bytes of values alive at one time
    limit: u64,
    depth: u32,
    /// how often numbers were drawn
    pub(super) streams: Cell<u64>,
}

impl<'o> Run<'o> {
    /// A run of nothing yet, under a binding of symbols.
    pub(crate) fn new(options: &'o Options, env: Env) -> Run<'o> {
        let limit = options.limits.bytes;
        Run { options, env, inputs: FxHashMap::default(), trips: 0, live: 0, limit, depth: 0, streams: Cell::new(0) }
    }
}

impl Run<'_> {
    /// The symbols bound so far.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// How floats are read.
    pub fn reading(&self) -> Reading {
        self.options.reading
    }

    /// The value of an input.
    pub(crate) fn input(&self, name: &str) -> Result<Buffer> {
        self.inputs.get(name).cloned().ok_or_else(|| Error::invalid(format!("input \"{name}\" has no value")))
    }

    /// Binds a symbol.
    pub(crate) fn bind(&mut self, symbol: Symbol, value: i64) {
        self.env.bind(symbol, value);
    }

    /// The numbers of a shape.
    pub(crate) fn sizes(&self, shape: &Shape) -> Result<Vec<usize>> {
        shape.eval(&self.env)
    }

    /// Refuses a result of `count` elements when it would exceed the memory limit.
    pub(crate) fn reserve(&self, count: usize) -> Result<()> {
        let wanted = self.live.saturating_add((count as u64).saturating_mul(8));
        let limit = self.limit;
        if wanted > limit {
            return Err(Error::over(
                Allowance::Memory,
                format!("values of {wanted} bytes at one time (the limit is {limit} bytes)"),
            ));
        }
        // A probe: a machine that has no such memory refuses here, where there is an error to return.
        let refused = |_| Error::no_memory(count.saturating_mul(8));
        if count > PROBED { Vec::<f64>::new().try_reserve_exact(count).map_err(refused) } else { Ok(()) }
    }

    /// Refuses an operation that needs so many words of memory for its results and on its way to them, besides operands that it converts
    /// as a whole.
    pub(crate) fn reserve_work(&self, operands: &[&Buffer], words: usize) -> Result<()> {
        let converted = operands.iter().filter(|x| x.is_literal()).map(|x| x.count());
        self.reserve(converted.fold(words, usize::saturating_add))
    }

    /// Refuses a text of so many bytes where that is more than any may have.
    pub(crate) fn reserve_text(&self, bytes: usize) -> Result<()> {
        let limit = self.options.limits.text;
        if bytes as u64 > limit {
            return Err(Error::over(Allowance::Text, format!("a text of {bytes} bytes (the limit is {limit} bytes)")));
        }
        Ok(())
    }

    /// Refuses results that would exceed the memory limit, as far as their sizes are known before they are computed.
    /// Views take no memory until somebody needs their elements in a row.
    fn reserve_results(&self, node: &Node) -> Result<()> {
        if matches!(node.prim(), Prim::View(_) | Prim::Input(_) | Prim::Const(_)) {
            return Ok(());
        }
        let free = |s: &Symbol| self.env.get(s).is_none();
        let known = node.types().iter().filter(|ty| !ty.shape.dims().iter().any(|d| d.mentions(free)));
        let mut count = 0usize;
        for ty in known {
            count = count.saturating_add(self.sizes(&ty.shape)?.iter().product());
        }
        self.reserve(count)
    }

    /// The operand seen through a view, if there is memory for what has to be copied or converted.
    pub(crate) fn view(&self, operand: &Buffer, view: &View) -> Result<Buffer> {
        if operand.as_view().is_some() || operand.is_literal() {
            self.reserve(operand.count())?;
        }
        Buffer::view(operand, view, &self.env)
    }

    /// The tensor with its elements in a row, if there is memory for them.
    pub(crate) fn dense(&self, buffer: &Buffer) -> Result<Buffer> {
        if buffer.as_view().is_some() {
            self.reserve(buffer.count())?;
        }
        buffer.dense()
    }

    /// So many bytes are kept from now on, no longer those of before.
    pub(crate) fn hold(&mut self, before: u64, now: u64) -> Result<()> {
        self.live = self.live.saturating_sub(before).saturating_add(now);
        self.reserve(0)
    }

    /// Counts a trip of a loop against the limit.
    pub(crate) fn count_trip(&mut self) -> Result<()> {
        self.trips += 1;
        if self.trips > self.options.limits.trips {
            return Err(Error::over(Allowance::Trips, format!("more than {} loop trips", self.options.limits.trips)));
        }
        Ok(())
    }

    /// The results of a region whose inputs are the operands in order.
    pub(crate) fn region(&mut self, graph: &Graph, operands: &[Buffer]) -> Result<Vec<Buffer>> {
        let inputs = graph.inputs().iter().zip(operands);
        let inputs = inputs.map(|(v, b)| (graph.input_name(*v).clone(), b.clone())).collect();
        let outer_inputs = std::mem::replace(&mut self.inputs, inputs);
        let outer_env = self.env.mark();
        self.depth += 1;
        let results = self.execute(graph);
        self.depth -= 1;
        self.inputs = outer_inputs;
        self.env.undo(outer_env);
        results
    }

    /// Values as the caller gets them, if there is memory for both.
    fn literals(&mut self, values: Vec<Buffer>) -> Result<Vec<Literal>> {
        self.live = values.iter().map(|x| x.owned_bytes() as u64).fold(self.live, u64::saturating_add);
        let mut literals = Vec::with_capacity(values.len());
        for value in values {
            self.hold(0, value.literal_bytes())?;
            literals.push(value.to_literal()?);
            self.live = self.live.saturating_sub(value.owned_bytes() as u64);
        }
        Ok(literals)
    }

    /// Runs a whole graph on its inputs.
    fn start(&mut self, graph: &Graph) -> Result<Vec<Buffer>> {
        self.options.limits.check_drawn(graph)?;
        let inputs = graph.inputs().iter().map(|value| self.inputs.get(graph.input_name(*value)));
        let inputs = inputs.map(|input| input.map(|input| (input.dtype(), input.sizes())));
        self.limit = self.options.limits.bytes_for(graph, inputs);
        self.execute(graph)
    }

    fn execute(&mut self, graph: &Graph) -> Result<Vec<Buffer>> {
        let live = graph.live_nodes();
        let mut uses = vec![0u32; graph.nodes().len()];
        for (node, _) in graph.nodes().iter().zip(&live).filter(|(_, live)| **live) {
            node.args().iter().for_each(|a| uses[a.node()] += 1);
        }
        graph.outputs().iter().for_each(|o| uses[o.value.node()] += 1);
        let mut values: Vec<Vec<Buffer>> = vec![Vec::new(); graph.nodes().len()];
        // What counts for each of them.
        let mut bytes = vec![0u64; graph.nodes().len()];
        self.bind_inputs(graph)?;
        // Before anything runs: composed views rely on sizes that must agree.
        let mut pending = Pending::of(graph, &self.env)?;
        for (id, node) in graph.nodes().iter().enumerate() {
            if !live[id] {
                continue;
            }
            let mut args: Vec<Buffer> = node.args().iter().map(|a| values[a.node()][a.port()].clone()).collect();
            let place = || graph.describe(id);
            let before = self.live;
            if !node.prim().reads_views() {
                for arg in args.iter_mut().filter(|arg| arg.as_view().is_some()) {
                    *arg = self.dense(arg).at(place)?;
                    self.live = self.live.saturating_add(arg.owned_bytes() as u64);
                }
            }
            self.reserve_results(node).at(place)?;
            let mut results = node.prim().eval(&args, self).at(place)?;
            match self.options.reading {
                Reading::Rounded => results = results.iter().map(Buffer::rounded).collect::<Result<_>>().at(place)?,
                Reading::Drawn { .. } => results = self.drawn(node.prim(), &args, results).at(place)?,
                Reading::Exact | Reading::Held => {}
            }
            for (ty, result) in node.types().iter().zip(&results) {
                ty.bind(result.dtype(), result.sizes(), &mut self.env).at(place)?;
            }
            pending.check(&self.env)?;
            // Copies of operands are gone; whatever a region held is released by now.
            drop(args);
            // Literals are the caller's or the model's where they come from; those that are put together on the way are values.
            let is_made = !matches!(node.prim(), Prim::View(_) | Prim::Input(_) | Prim::Const(_));
            let size = |r: &Buffer| if is_made { r.kept_bytes() } else { r.owned_bytes() as u64 };
            bytes[id] = results.iter().map(size).fold(0, u64::saturating_add);
            self.live = before.saturating_add(bytes[id]);
            values[id] = results;
            for arg in node.args() {
                uses[arg.node()] -= 1;
                if uses[arg.node()] == 0 {
                    values[arg.node()] = Vec::new();
                    self.live = self.live.saturating_sub(std::mem::take(&mut bytes[arg.node()]));
                }
            }
        }
        let outputs = graph.outputs().iter().map(|o| {
            let value = &values[o.value.node()][o.value.port()];
            self.dense(value).at(|| graph.describe(o.value.node()))
        });
        let outputs: Result<Vec<Buffer>> = outputs.collect();
        self.live = self.live.saturating_sub(bytes.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes)));
        outputs
    }

    /// Binds the sizes of all inputs before anything runs. The second time around, sizes such as `2*n` are checked whose
    /// symbols only a later input has bound.
    fn bind_inputs(&mut self, graph: &Graph) -> Result<()> {
        for _ in 0..2 {
            for value in graph.inputs() {
                let name = graph.input_name(*value);
                let buffer = self.input(name)?;
                graph
                    .ty(*value)
                    .bind(buffer.dtype(), buffer.sizes(), &mut self.env)
                    .at(|| format!("input \"{name}\""))?;
            }
        }
        Ok(())
    }
}
