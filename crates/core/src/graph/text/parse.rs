//! Graphs from text.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::print::{symbols_mentioned, types_text};
use super::{Resolve, host, literal, number, read_expr};
use crate::cursor::Cursor;
use crate::error::{Context as _, Error, Kind, Result};
use crate::graph::{Constraint, Graph, Origin, OriginSet, Value};
use crate::nearest::suggestion;
use crate::ops::prim::{
    Bind, Combine, Concat, Const, Contract, Gather, Guard, Host, If, Input, Loop, Map, Monoid, Prefix, Random, Reduce,
    Scatter, Sizes, Sort, View,
};
use crate::ops::{Number, Prim};
use crate::tensor::{DType, Dim, TensorType};

/// Reads a graph. One that says nothing of symbols hands out all that it mentions, a region none of them.
pub(crate) fn read_graph(cursor: &mut Cursor<'_>, resolve: &Resolve<'_>, is_region: bool) -> Result<Graph> {
    cursor.expect_word("graph")?;
    let graph = Graph::new(cursor.name("the name of the graph")?);
    let mut reader = Reader { cursor, resolve, graph, labels: FxHashMap::default(), inputs: FxHashMap::default() };
    let symbols = reader.heading()?;
    while reader.statement()? {}
    let mut graph = reader.graph;
    let mentioned = symbols_mentioned(&graph);
    let (first, next) = symbols.unwrap_or(if is_region { (mentioned, mentioned) } else { (0, mentioned) });
    graph.start_symbols(first);
    graph.reserve_symbols(next);
    Ok(graph)
}

/// Reads an element type and a shape.
pub(crate) fn read_type(cursor: &mut Cursor<'_>) -> Result<TensorType> {
    let dtype = read_dtype(cursor)?;
    cursor.expect("[")?;
    Ok(TensorType::new(dtype, cursor.list("]", Dim::read)?))
}

/// Reads an element type.
pub(crate) fn read_dtype(cursor: &mut Cursor<'_>) -> Result<DType> {
    let start = *cursor;
    let name = cursor.word("an element type")?;
    DType::from_name(name).ok_or_else(|| {
        let near = suggestion(name, DType::ALL.iter().map(|dtype| dtype.name()));
        start.error(format!("there is no element type {name}; {near}"))
    })
}

/// Reads guards and the value of this type that stands where one fails, if any come next.
pub(crate) fn read_guards(cursor: &mut Cursor<'_>, dtype: DType) -> Result<(Vec<Guard>, Option<Number>)> {
    let mut guards = Vec::new();
    if !cursor.eat_word("where") {
        return Ok((guards, None));
    }
    loop {
        cursor.expect("0")?;
        cursor.expect("<=")?;
        let index = Dim::read(cursor)?;
        cursor.expect("<")?;
        guards.push(Guard { index, bound: Dim::read(cursor)? });
        if !cursor.eat(",") {
            break;
        }
    }
    cursor.expect_word("else")?;
    let place = *cursor;
    let fill = number::read(cursor)?.number(dtype).at(|| place.place())?;
    Ok((guards, Some(fill)))
}

struct Reader<'c, 't, 'r> {
    cursor: &'c mut Cursor<'t>,
    resolve: &'r Resolve<'r>,
    graph: Graph,
    /// nodes by what stands behind `%`
    labels: FxHashMap<&'t str, usize>,
    /// inputs by name
    inputs: FxHashMap<String, Value>,
}

/// An operation without what stands behind the colon.
enum Pending<'t> {
    Ready(Prim),
    Const(literal::Data<'t>),
    Input(String),
    Random { stream: u64 },
    Map(crate::ops::Expr),
    View { map: Vec<Dim>, guard: Vec<Guard>, fill: Option<Number> },
    Gather { map: Vec<Dim> },
    If,
    Loop { carried: usize },
}

impl<'t> Reader<'_, 't, '_> {
    /// Reads what stands before the statements; returns the symbols that the graph hands out, if it says so.
    fn heading(&mut self) -> Result<Option<(u32, u32)>> {
        self.cursor.expect("(")?;
        let mut first = true;
        while !self.cursor.eat(")") {
            if !first && !self.cursor.eat(",") {
                return Err(self.cursor.expected("',' or ')'"));
            }
            first = false;
            let start = *self.cursor;
            let name = self.cursor.name("the name of an input")?;
            self.cursor.expect(":")?;
            let ty = read_type(self.cursor)?;
            self.add_input(name, ty, &OriginSet::default(), start)?;
        }
        let mut symbols = None;
        if self.cursor.eat_word("symbols") {
            self.cursor.expect("=")?;
            let first = self.symbol()?;
            self.cursor.expect("..")?;
            symbols = Some((first, self.symbol()?));
        }
        self.cursor.expect("{")?;
        Ok(symbols)
    }

    fn symbol(&mut self) -> Result<u32> {
        self.cursor.expect("$")?;
        self.cursor.suffix("the number of a value symbol")
    }

    /// Reads a statement; no more follow after a `return`.
    fn statement(&mut self) -> Result<bool> {
        if self.cursor.eat_word("return") {
            self.outputs()?;
            return Ok(false);
        }
        if self.cursor.eat_word("require") {
            let left = Dim::read(self.cursor)?;
            self.cursor.expect("==")?;
            let right = Dim::read(self.cursor)?;
            let why = self.cursor.string('"')?.into();
            self.graph.add_constraint(Constraint { left, right, why });
            return Ok(true);
        }
        if !self.cursor.eat("%") {
            return Err(self.cursor.expected("'%', 'require' or 'return'"));
        }
        let start = *self.cursor;
        let label = self.cursor.label("the label of a node")?;
        if self.labels.contains_key(label) {
            return Err(start.error(format!("%{label} has a meaning already")));
        }
        self.cursor.expect("=")?;
        let place = *self.cursor;
        let id = self.node(place)?;
        self.labels.insert(label, id);
        Ok(true)
    }

    fn outputs(&mut self) -> Result<()> {
        if !self.cursor.eat("}") {
            loop {
                let name = self.cursor.name("the name of an output")?;
                self.cursor.expect("=")?;
                let value = self.value()?;
                self.graph.add_output(&name, value);
                if self.cursor.eat("}") {
                    break;
                }
                if !self.cursor.eat(",") {
                    return Err(self.cursor.expected("',' or '}'"));
                }
            }
        }
        Ok(())
    }

    fn node(&mut self, place: Cursor<'t>) -> Result<usize> {
        let (pending, args) = self.operation()?;
        self.cursor.expect(":")?;
        let types_place = *self.cursor;
        let types = self.types()?;
        let origin = self.origins()?;
        if let Pending::Input(name) = pending {
            let ty = only(&types, types_place)?;
            return self.add_input(name, ty, &origin, place);
        }
        let prim = self.completed(pending, &types, types_place)?;
        let id = self.graph.add(prim, &args, &origin).map_err(users_error).at(|| place.place())?;
        let inferred = self.graph.nodes()[id].types();
        if inferred != types {
            let (inferred, types) = (types_text(inferred), types_text(&types));
            return Err(types_place.error(format!("this is {inferred}, not {types}")));
        }
        Ok(id)
    }

    fn add_input(&mut self, name: String, ty: TensorType, origin: &OriginSet, place: Cursor<'t>) -> Result<usize> {
        if self.inputs.contains_key(&name) {
            return Err(place.error(format!("two inputs are called \"{name}\"")));
        }
        let row = Input { name: name.as_str().into(), ty };
        let id = self.graph.add(row, &[], origin).map_err(users_error).at(|| place.place())?;
        self.inputs.insert(name, Value::new(id, 0));
        Ok(id)
    }

    fn types(&mut self) -> Result<Vec<TensorType>> {
        if self.cursor.eat("(") {
            self.cursor.expect(")")?;
            return Ok(Vec::new());
        }
        let mut types = vec![read_type(self.cursor)?];
        while self.cursor.eat(",") {
            types.push(read_type(self.cursor)?);
        }
        Ok(types)
    }

    fn origins(&mut self) -> Result<OriginSet> {
        let mut set = OriginSet::default();
        while self.cursor.eat("!") {
            let op = self.cursor.name("the operator that a node comes from")?.into();
            let name = self.cursor.string('"')?.into();
            set.merge(&OriginSet::of(Arc::new(Origin { op, name })));
        }
        Ok(set)
    }

    /// A value: `%label`, `%label.port`, or the name of an input.
    fn value(&mut self) -> Result<Value> {
        let start = *self.cursor;
        if self.cursor.eat("%") {
            let label = self.cursor.label("the label of a node")?;
            let id = self.labels.get(label).copied();
            let id = id.ok_or_else(|| start.error(format!("%{label} is not known here")))?;
            let port = if self.cursor.eat_adjacent(".") { self.cursor.suffix("the number of a result")? } else { 0 };
            if port >= self.graph.nodes()[id].types().len() {
                return Err(start.error(format!("%{label} has no result {port}")));
            }
            return Ok(Value::new(id, port));
        }
        let name = self.cursor.name("a value")?;
        self.inputs.get(&name).copied().ok_or_else(|| start.error(format!("there is no input called \"{name}\"")))
    }

    fn values(&mut self) -> Result<Vec<Value>> {
        self.cursor.expect("(")?;
        let mut values = Vec::new();
        while !self.cursor.eat(")") {
            if !values.is_empty() && !self.cursor.eat(",") {
                return Err(self.cursor.expected("',' or ')'"));
            }
            values.push(self.value()?);
        }
        Ok(values)
    }

    fn number_at(&mut self, key: &str) -> Result<usize> {
        self.cursor.key(key)?;
        self.cursor.integer("a number")
    }

    fn dims(&mut self) -> Result<Vec<Dim>> {
        self.cursor.expect("[")?;
        self.cursor.list("]", Dim::read)
    }

    fn operation(&mut self) -> Result<(Pending<'t>, Vec<Value>)> {
        let start = *self.cursor;
        let ready = |prim: Prim| Pending::Ready(prim);
        Ok(match self.cursor.word("an operation")? {
            "input" => (Pending::Input(self.cursor.name("the name of an input")?), Vec::new()),
            "const" => (Pending::Const(literal::read(self.cursor)?), Vec::new()),
            "sizes" => (ready(Sizes { dims: self.dims()? }.into()), Vec::new()),
            "bind" => {
                let symbol = self.symbol()?;
                self.cursor.expect("=")?;
                (ready(Bind { symbol }.into()), vec![self.value()?])
            }
            "random" => {
                let seed = self.value()?;
                self.cursor.key("stream")?;
                (Pending::Random { stream: self.cursor.integer("the number of a stream")? }, vec![seed])
            }
            "map" => {
                let args = self.values()?;
                let dtypes: Vec<DType> = args.iter().map(|a| self.graph.ty(*a).dtype).collect();
                (Pending::Map(read_expr::read(self.cursor, &dtypes)?), args)
            }
            "view" => self.view()?,
            "concat" => {
                let args = self.values()?;
                (ready(Concat { axis: self.number_at("axis")? }.into()), args)
            }
            "reduce" => self.reduce()?,
            "prefix" => self.prefix()?,
            "contract" => self.contract()?,
            "gather" => {
                let data = self.value()?;
                let map = self.dims()?;
                self.cursor.key("index")?;
                (Pending::Gather { map }, [vec![data], self.values()?].concat())
            }
            "scatter" => self.scatter()?,
            "sort" => {
                let x = self.value()?;
                let axis = self.number_at("axis")?;
                (ready(Sort { axis, descending: self.cursor.eat_word("descending") }.into()), vec![x])
            }
            "if" => {
                let condition = self.value()?;
                self.cursor.key("capture")?;
                (Pending::If, [vec![condition], self.values()?].concat())
            }
            "loop" => self.loop_()?,
            "host" => self.host()?,
            name => return Err(start.error(format!("there is no operation {name}"))),
        })
    }

    fn view(&mut self) -> Result<(Pending<'t>, Vec<Value>)> {
        let x = self.value()?;
        let map = self.dims()?;
        let (guard, fill) = read_guards(self.cursor, self.graph.ty(x).dtype)?;
        Ok((Pending::View { map, guard, fill }, vec![x]))
    }

    fn reduce(&mut self) -> Result<(Pending<'t>, Vec<Value>)> {
        let monoid = self.cursor.variant("a monoid", Monoid::from_name)?;
        let x = self.value()?;
        self.cursor.key("axes")?;
        self.cursor.expect("[")?;
        let axes = self.cursor.list("]", |cursor| cursor.integer("the number of an axis"))?;
        Ok((Pending::Ready(Reduce { monoid, axes }.into()), vec![x]))
    }

    fn prefix(&mut self) -> Result<(Pending<'t>, Vec<Value>)> {
        let monoid = self.cursor.variant("a monoid", Monoid::from_name)?;
        let x = self.value()?;
        let axis = self.number_at("axis")?;
        let row = Prefix { monoid, axis, exclusive: self.cursor.eat_word("exclusive") };
        Ok((Pending::Ready(row.into()), vec![x]))
    }

    fn contract(&mut self) -> Result<(Pending<'t>, Vec<Value>)> {
        let args = self.values()?;
        let place = *self.cursor;
        let subscripts = self.cursor.string('"')?;
        self.cursor.key("acc")?;
        let row = Contract::parse(&subscripts, read_dtype(self.cursor)?).at(|| place.place())?;
        Ok((Pending::Ready(row.into()), args))
    }

    fn scatter(&mut self) -> Result<(Pending<'t>, Vec<Value>)> {
        let combine = self.cursor.variant("a way to combine", Combine::from_name)?;
        let data = self.value()?;
        let map = self.dims()?;
        self.cursor.key("updates")?;
        let updates = self.value()?;
        self.cursor.key("index")?;
        let args = [vec![data, updates], self.values()?].concat();
        Ok((Pending::Ready(Scatter { combine, map }.into()), args))
    }

    fn loop_(&mut self) -> Result<(Pending<'t>, Vec<Value>)> {
        self.cursor.key("trips")?;
        let trips = self.value()?;
        self.cursor.key("start")?;
        let start = self.value()?;
        self.cursor.key("carry")?;
        let carried = self.values()?;
        self.cursor.key("capture")?;
        let captures = self.values()?;
        Ok((Pending::Loop { carried: carried.len() }, [vec![trips, start], carried, captures].concat()))
    }

    fn host(&mut self) -> Result<(Pending<'t>, Vec<Value>)> {
        let start = *self.cursor;
        self.cursor.expect(".")?;
        let name = self.cursor.word("a host operation")?;
        let args = self.values()?;
        let mut attributes = Vec::new();
        while let Some(key) = self.cursor.peek_word() {
            self.cursor.eat_word(key);
            attributes.push((key.to_owned(), host::read(self.cursor)?));
        }
        let kind = host::kind(name, &attributes).at(|| start.place())?;
        Ok((Pending::Ready(Host { kind }.into()), args))
    }

    /// The primitive, now that the types of its results are known. Regions stand behind the types.
    fn completed(&mut self, pending: Pending<'t>, types: &[TensorType], place: Cursor<'t>) -> Result<Prim> {
        let shape = || only(types, place).map(|ty| ty.shape);
        Ok(match pending {
            Pending::Ready(prim) => prim,
            Pending::Const(data) => {
                let ty = only(types, place)?;
                Const { literal: data.of_type(&ty, place, self.resolve)? }.into()
            }
            Pending::Input(name) => Input { name: name.into(), ty: only(types, place)? }.into(),
            Pending::Random { stream } => Random { stream, shape: shape()? }.into(),
            Pending::Map(expr) => Map { expr, shape: shape()? }.into(),
            Pending::View { map, guard, fill } => View { shape: shape()?, map, guard, fill }.into(),
            Pending::Gather { map } => Gather { shape: shape()?, map }.into(),
            Pending::If => {
                let (then, otherwise) = (self.region("then")?, self.region("else")?);
                If { then, otherwise, results: types.to_vec() }.into()
            }
            Pending::Loop { carried } => Loop { body: self.region("body")?, carried, results: types.to_vec() }.into(),
        })
    }

    fn region(&mut self, role: &str) -> Result<Arc<Graph>> {
        self.cursor.expect_word(role)?;
        let resolve = self.resolve;
        self.cursor.nested(|cursor| read_graph(cursor, resolve, true)).map(Arc::new)
    }
}

fn only(types: &[TensorType], place: Cursor<'_>) -> Result<TensorType> {
    match types {
        [ty] => Ok(ty.clone()),
        _ => Err(place.error(format!("one result, not {}", types.len()))),
    }
}

/// What is a bug of ours when a front end builds a graph is a mistake of the writer in a text.
fn users_error(error: Error) -> Error {
    match error.kind() {
        Kind::Bug => Error::invalid(error.message()),
        _ => error,
    }
}
