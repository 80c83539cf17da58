//! Runs: segments one after another, kernels one after another, regions inside.
#![allow(unsafe_code, reason = "kernels are launched with pointers")]

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use fuseline::error::{Allowance, Context, Error, Result};
use fuseline::ops::Prim;
use fuseline::ops::prim::Regions;
use fuseline::reference::{Buffer, Limits, Pending, Reading};
use fuseline::run::{Origin, Way};
use fuseline::tensor::{DType, Dim, Env, Literal, Symbol};
use fuseline::tile::interp;
use rustc_hash::FxHashMap;

use super::constant::Constants;
use super::specialize::{LoadedGraph, Pure, Segment, Special, Step, specialize};
use super::value::Value;
use super::workshop::{Compiled, Workshop};
use crate::cublas::{ALIGNMENT, Cublas, Places, Shape};
use crate::driver::TensorMap;
use crate::gpu::{BLOCKING, Gpu, Tiles};
use crate::memory::{Block, DeviceTensor};
use crate::print::{Library, Matrix, Parameter, TileMap};

/// What the graphs and runs of a session share.
#[derive(Debug)]
pub(super) struct Engine {
    pub gpu: Arc<Gpu>,
    pub limits: Limits,
    pub workshop: Arc<Workshop>,
    pub constants: Constants,
    /// where the checks of kernels report, a place for each kernel of a graph
    pub faults: Block,
    /// kernels for which there is no code, with the reason
    pub refused: Mutex<Vec<String>>,
    /// whether its graph is run once, for outputs that have memory of their own
    pub runs_once: bool,
    /// runs take turns: they share memory
    pub turn: Mutex<()>,
}

/// Bytes of a report.
const FAULT_BYTES: usize = 16;

/// Kernels of a graph that have a place to report of their own; later ones share the last.
const MOST_FAULTS: usize = 4096;

impl Engine {
    pub fn new(gpu: Arc<Gpu>, limits: Limits, workshop: Arc<Workshop>, constants: Constants) -> Result<Engine> {
        let faults = gpu.take(FAULT_BYTES * MOST_FAULTS)?;
        gpu.clear(faults.at(), FAULT_BYTES * MOST_FAULTS)?;
        let (refused, turn) = (Mutex::default(), Mutex::default());
        Ok(Engine { gpu, limits, workshop, constants, faults, refused, runs_once: false, turn })
    }

    /// Notes that there is no code for a kernel.
    pub fn note_refused(&self, line: String) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if !refused.contains(&line) {
            refused.push(line);
        }
    }

    /// What the checks of the only kernel that was launched say, in its words.
    pub fn check_fault(&self, sites: &[String]) -> Result<()> {
        let mut report = [0u8; FAULT_BYTES];
        self.gpu.read(self.faults.at(), &mut report)?;
        if report[..4] == [0; 4] {
            return Ok(());
        }
        self.gpu.clear(self.faults.at(), FAULT_BYTES)?;
        Err(failed_check(&report, sites)?)
    }

    fn fault_of(&self, k: usize) -> u64 {
        self.faults.at() + (k.min(MOST_FAULTS - 1) * FAULT_BYTES) as u64
    }
}

/// The state of a run.
pub(super) struct Run<'e> {
    pub engine: &'e Engine,
    pub env: Env,
    /// trips of loops so far
    trips: u64,
    /// what the kernels of the outermost graph stored, if somebody wants to know
    stored: Option<Vec<Vec<Literal>>>,
}

/// What the checks of launched kernels say where they fail, by kernel of a graph.
type Checks = FxHashMap<usize, Arc<Compiled>>;

impl<'e> Run<'e> {
    /// A run of nothing yet.
    pub fn new(engine: &'e Engine) -> Run<'e> {
        Run { engine, env: Env::new(), trips: 0, stored: None }
    }

    /// The sizes that are bound.
    pub fn sizes(&self) -> &Env {
        &self.env
    }

    /// What kernels store in what follows is taken down.
    pub fn traced(self) -> Run<'e> {
        Run { stored: Some(Vec::new()), ..self }
    }

    /// What kernels stored, if that was taken down.
    pub fn into_values(self) -> Vec<Vec<Literal>> {
        self.stored.unwrap_or_default()
    }

    /// The outputs of a graph for its inputs in order; those that are constants need not be given.
    pub fn execute(&mut self, loaded: &LoadedGraph, inputs: &[Option<Value>]) -> Result<Vec<Value>> {
        self.bind(loaded, inputs)?;
        if let Some(special) = self.pure(loaded)? {
            return self.execute_pure(loaded, &special, inputs);
        }
        self.execute_steps(loaded, inputs)
    }

    /// The only segment at the sizes of this run, where it is nothing but launches.
    pub fn pure(&mut self, loaded: &LoadedGraph) -> Result<Option<Arc<Special>>> {
        let [only] = loaded.segments.as_slice() else { return Ok(None) };
        if self.stored.is_some() || !only.symbols.iter().all(|symbol| self.env.get(symbol).is_some()) {
            return Ok(None);
        }
        // Before anything runs: kernels rely on sizes that must agree.
        Pending::of(&loaded.graph, &self.env)?;
        Ok(Some(self.special(loaded, only)?).filter(|special| special.pure.is_some()))
    }

    /// Runs a graph kernel by kernel.
    pub fn execute_steps(&mut self, loaded: &LoadedGraph, inputs: &[Option<Value>]) -> Result<Vec<Value>> {
        let mut pending = Pending::of(&loaded.graph, &self.env)?;
        let mut values: Vec<Value> = vec![Value::default(); loaded.slots.len()];
        for (slot, input) in loaded.inputs.iter().zip(inputs) {
            if let (Origin::Input, Some(input)) = (loaded.slots[*slot].origin, input) {
                values[*slot] = input.clone();
            }
        }
        let mut checks = Checks::default();
        for segment in &loaded.segments {
            let special = self.special(loaded, segment)?;
            checks.extend(checks_of(&special, segment.kernels.start));
            for (k, step) in segment.kernels.clone().zip(&special.steps) {
                match step {
                    Some(step) => self.run_code(loaded, &special, k, step, &mut values),
                    None => self.run_otherwise(loaded, k, &mut values),
                }
                .at(|| loaded.describe(k))?;
                if let Some(stored) = &mut self.stored {
                    let slots = loaded.kernels[k].outputs.iter();
                    stored.push(slots.map(|slot| values[*slot].literal()).collect::<Result<_>>()?);
                }
                pending.check(&self.env)?;
                for slot in &loaded.kernels[k].released {
                    values[*slot] = Value::default();
                }
            }
        }
        self.check_faults(loaded, &checks)?;
        let output = |slot: &usize| match loaded.slots[*slot].origin {
            Origin::Constant(id) => Ok(self.engine.constants.literal(id)?.into()),
            _ => Ok(values[*slot].clone()),
        };
        loaded.outputs.iter().map(output).collect()
    }

    /// Binds the sizes that inputs show.
    pub fn bind(&mut self, loaded: &LoadedGraph, inputs: &[Option<Value>]) -> Result<()> {
        let graph = &*loaded.graph;
        // The second time around, sizes such as 2*n are checked whose symbols only a later input has bound.
        for _ in 0..2 {
            for (value, input) in graph.inputs().iter().zip(inputs) {
                let Some(input) = input else { continue };
                let place = || format!("input \"{}\"", graph.input_name(*value));
                let (dtype, sizes) = input.like()?;
                graph.ty(*value).bind(dtype, sizes, &mut self.env).at(place)?;
            }
        }
        Ok(())
    }

    /// The segment at the sizes of this run.
    pub fn special(&mut self, loaded: &LoadedGraph, segment: &Segment) -> Result<Arc<Special>> {
        segment.specials.get(segment.sizes(&self.env)?, || specialize(self.engine, loaded, segment, &self.env))
    }

    /// Runs a graph that is nothing but launches.
    fn execute_pure(
        &mut self,
        loaded: &LoadedGraph,
        special: &Special,
        inputs: &[Option<Value>],
    ) -> Result<Vec<Value>> {
        let pure = special.pure.as_ref().ok_or_else(|| Error::bug("more than launches"))?;
        self.write_inputs(loaded, pure, inputs)?;
        self.launch_pure(loaded, special, pure)?;
        self.check_faults(loaded, &checks_of(special, 0).collect())?;
        let gpu = &self.engine.gpu;
        let output = |slot: &usize| {
            let info = &loaded.slots[*slot];
            if let Origin::Constant(id) = info.origin {
                return Ok(self.engine.constants.literal(id)?.into());
            }
            let at = pure.by_slot.get(slot).ok_or_else(|| Error::bug("an output has no place"))?;
            let mut data = vec![0u8; info.bytes(&self.env)?];
            gpu.read(*at, &mut data).at(|| suspects(loaded))?;
            Ok(Literal::new(info.ty.dtype, info.ty.shape.eval(&self.env)?, data)?.into())
        };
        loaded.outputs.iter().map(output).collect()
    }

    pub fn write_inputs(&self, loaded: &LoadedGraph, pure: &Pure, inputs: &[Option<Value>]) -> Result<()> {
        for (slot, input) in loaded.inputs.iter().zip(inputs) {
            if let (Some(at), Some(input)) = (pure.by_slot.get(slot), input) {
                input.write(&self.engine.gpu, *at)?;
            }
        }
        Ok(())
    }

    /// Launches everything: recorded the first time, as one from then on.
    pub fn launch_pure(&self, loaded: &LoadedGraph, special: &Special, pure: &Pure) -> Result<()> {
        if self.engine.gpu.is_blocking {
            return self.launch_all(loaded, special, &self.tables(loaded, special, pure)?);
        }
        let mut graph = pure.graph.lock().unwrap_or_else(PoisonError::into_inner);
        if graph.is_none() {
            let tables = self.tables(loaded, special, pure)?;
            *graph = Some(self.engine.gpu.record(|| self.launch_all(loaded, special, &tables))?);
        }
        graph.as_ref().map_or(Ok(()), crate::gpu::Graph::launch)
    }

    /// Launches the kernels one after another.
    pub fn launch_all(&self, loaded: &LoadedGraph, special: &Special, tables: &[Table]) -> Result<()> {
        for (k, (step, table)) in special.steps.iter().flatten().zip(tables).enumerate() {
            self.launch(k, step, table).at(|| loaded.describe(k))?;
        }
        Ok(())
    }

    /// For every kernel, where its inputs, outputs and memory between launches lie. Constants are brought to the device here.
    pub fn tables(&self, loaded: &LoadedGraph, special: &Special, pure: &Pure) -> Result<Vec<Table>> {
        self.tables_with(loaded, special, pure, &FxHashMap::default())
    }

    /// The same where some values lie elsewhere, by slot.
    pub fn tables_with(
        &self,
        loaded: &LoadedGraph,
        special: &Special,
        pure: &Pure,
        elsewhere: &FxHashMap<usize, u64>,
    ) -> Result<Vec<Table>> {
        let place = |slot: &usize| match loaded.slots[*slot].origin {
            Origin::Constant(id) => Ok(self.engine.constants.tensor(id, &self.engine.gpu)?.at()),
            _ => {
                let at = elsewhere.get(slot).or_else(|| pure.by_slot.get(slot)).copied();
                at.ok_or_else(|| Error::bug("a value has no place"))
            }
        };
        let mut tables = Vec::with_capacity(special.steps.len());
        for (k, step) in special.steps.iter().enumerate() {
            let kernel = &loaded.kernels[k];
            let scratch = step.iter().flat_map(|step| &step.scratch).enumerate();
            let scratch = scratch.map(|(number, _)| pure.by_scratch.get(&(k, number)).copied().unwrap_or(0));
            tables.push(Table {
                inputs: kernel.inputs.iter().map(place).collect::<Result<Vec<u64>>>()?,
                outputs: kernel.outputs.iter().map(place).collect::<Result<Vec<u64>>>()?,
                scratch: scratch.collect(),
            });
        }
        Ok(tables)
    }

    /// Runs the launches of a kernel.
    fn run_code(
        &mut self,
        loaded: &LoadedGraph,
        special: &Special,
        k: usize,
        step: &Step,
        values: &mut [Value],
    ) -> Result<()> {
        let (gpu, kernel) = (&self.engine.gpu, &loaded.kernels[k]);
        let mut table = Table::default();
        for slot in &kernel.inputs {
            let tensor = match loaded.slots[*slot].origin {
                Origin::Constant(id) => self.engine.constants.tensor(id, gpu)?,
                _ => values[*slot].tensor(gpu)?,
            };
            table.inputs.push(tensor.at());
        }
        for slot in &kernel.outputs {
            let ty = &loaded.slots[*slot].ty;
            let block = Arc::new(gpu.take(special.bytes.get(slot).copied().unwrap_or(0))?);
            table.outputs.push(block.at());
            values[*slot] = DeviceTensor::new(ty.dtype, ty.shape.eval(&self.env)?, block).into();
        }
        let scratch = step.scratch.iter().map(|bytes| gpu.take(*bytes)).collect::<Result<Vec<Block>>>()?;
        table.scratch = scratch.iter().map(Block::at).collect();
        self.launch(k, step, &table)
    }

    /// Launches what a kernel is made of.
    pub fn launch(&self, k: usize, step: &Step, table: &Table) -> Result<()> {
        (0..step.grids.len()).try_for_each(|number| self.launch_one(k, step, table, number).map(|_| ()))
    }

    /// Does one launch of a kernel; whether a library did the work.
    pub fn launch_one(&self, k: usize, step: &Step, table: &Table, number: usize) -> Result<bool> {
        let compiled = &step.compiled;
        let (launch, grid) = (&compiled.printed.launches[number], step.grids[number]);
        if grid.blocks == 0 {
            return Ok(false);
        }
        let argument = |parameter: &Parameter| -> Result<u64> {
            let missing = || Error::bug("a kernel takes what is not there");
            Ok(match parameter {
                Parameter::Input(number) => *table.inputs.get(*number).ok_or_else(missing)?,
                Parameter::Output(number) => *table.outputs.get(*number).ok_or_else(missing)?,
                Parameter::Scratch(number) => *table.scratch.get(*number).ok_or_else(missing)?,
                Parameter::Fault => self.engine.fault_of(k),
                // The low half comes first, which is all that a narrow size has.
                Parameter::Size(symbol) => step.env.get(symbol).ok_or_else(missing)? as u64,
                Parameter::Map(_) => return Err(Error::bug("a matrix as a number")),
            })
        };
        if let (Some(library), Some(cublas)) = (&launch.library, &compiled.library) {
            let way = step.ways.get(number).copied();
            if self.ask(library, cublas, &argument, way)? {
                self.engine.gpu.wait_if_blocking().at(|| launch.name.clone())?;
                return Ok(true);
            }
        }
        let maps = launch.maps.iter().map(|map| self.tensor_map(map, &argument));
        let mut maps = maps.collect::<Result<Vec<TensorMap>>>()?;
        // They come first, in order.
        let others = launch.parameters.iter().filter(|parameter| !matches!(parameter, Parameter::Map(_)));
        let mut arguments = others.map(argument).collect::<Result<Vec<u64>>>()?;
        let mut pointers: Vec<*mut c_void> = maps.iter_mut().map(|map| std::ptr::from_mut(map).cast()).collect();
        pointers.extend(arguments.iter_mut().map(|argument| std::ptr::from_mut(argument).cast::<c_void>()));
        debug_assert!(cfg!(target_endian = "little") || compiled.wide);
        // SAFETY: the table has memory of the sizes that the launch was prepared for, and the arguments are those that the text of the
        // function names, in order.
        let launched = unsafe { self.engine.gpu.launch(&compiled.functions[number], grid, &mut pointers) };
        launched.and_then(|()| self.engine.gpu.wait_if_blocking()).at(|| launch.name.clone())?;
        Ok(false)
    }

    /// A matrix at the sizes of this run, as the engine for copies sees it.
    fn tensor_map(&self, map: &TileMap, place: &dyn Fn(&Parameter) -> Result<u64>) -> Result<TensorMap> {
        let number = |dim: &Dim| -> Result<u64> {
            u64::try_from(dim.eval(&self.env)?).map_err(|_| Error::bug("a matrix of a negative size"))
        };
        let bytes = element_bytes(map.dtype);
        let (pitch, stride) = (number(&map.matrix.pitch)? * bytes, number(&map.matrix.stride)? * bytes);
        let sizes = [number(&map.sizes[0])?, number(&map.sizes[1])?, number(&map.sizes[2])?];
        // Where there is one matrix, any distance will do that is none.
        let stride = if stride == 0 { pitch } else { stride };
        self.engine.gpu.tensor_map(&Tiles {
            at: place(&map.matrix.parameter)?,
            sizes,
            bytes_between: [pitch, stride],
            lines: u32::try_from(map.lines).map_err(|_| Error::bug("a tile of too many lines"))?,
            is_bf16: map.dtype == DType::BF16,
        })
    }

    /// Asks a library for a product; whether it has a way.
    fn ask(
        &self,
        library: &Library,
        cublas: &Cublas,
        place: &dyn Fn(&Parameter) -> Result<u64>,
        way: Option<usize>,
    ) -> Result<bool> {
        let shapes = (0..library.sets).map(|set| self.shape(library, set)).collect::<Result<Vec<Shape>>>()?;
        let shapes = || shapes.iter().zip(0..).filter(|(shape, _)| shape.rows > 0);
        if shapes().any(|(shape, _)| cublas.ways(shape) == 0) {
            return Ok(false);
        }
        let Library { left, right, result, added, .. } = library;
        let (bias, c) = (added.bias.as_ref(), added.matrix.as_ref().map(|added| &added.parameter));
        let (bytes, result_bytes) = (element_bytes(library.dtypes.0), element_bytes(library.dtypes.1));
        for (shape, set) in shapes() {
            // From the first row of the set on, and the first column that is not left out.
            let from = library.span(set).map_or(0, |(from, _)| from);
            let behind = |elements: i64, bytes: u64| elements.unsigned_abs() * bytes;
            let pitch = |matrix: &Matrix| matrix.pitch.eval(&self.env);
            let places = Places {
                a: place(&left.parameter)? + behind(set * pitch(left)?, bytes),
                b: place(&right.parameter)? + behind(from * pitch(right)?, bytes),
                c: c.map(place).transpose()?,
                d: place(&result.parameter)? + behind(set * pitch(result)? + from, result_bytes),
                bias: bias.map(place).transpose()?,
            };
            // SAFETY: the table has memory of the sizes that the launch was prepared for, of which the shape is a part, from these places on.
            unsafe { cublas.multiply(shape, places, way) }?;
        }
        Ok(true)
    }

    /// A product as the library knows it, at the sizes of this run: all of it, or that of one of the sets of rows that it is asked for.
    pub fn shape(&self, library: &Library, set: i64) -> Result<Shape> {
        let number = |dim: &Dim| dim.eval(&self.env);
        let sets = library.sets;
        let [rows, columns, steps, batches] = &library.sizes;
        let Library { left, right, result, turned, dtypes, .. } = library;
        Ok(Shape {
            rows: (number(rows)? - set + sets - 1) / sets,
            columns: library.span(set).map_or_else(|| number(columns), |(_, columns)| Ok(columns))?,
            steps: number(steps)?,
            batches: number(batches)?,
            a: (number(&left.pitch)? * sets, turned[0]),
            b: (number(&right.pitch)?, turned[1]),
            d: number(&result.pitch)? * sets,
            alignment: if sets == 1 { ALIGNMENT } else { 16 },
            strides: [number(&left.stride)?, number(&right.stride)?, number(&result.stride)?],
            dtypes: *dtypes,
            has_bias: library.added.bias.is_some(),
            activation: library.activation,
            c: match &library.added.matrix {
                Some(added) => Some((number(&added.pitch)?, number(&added.stride)?)),
                None => None,
            },
        })
    }

    /// An error where a check of a kernel failed. Where kernels have none, nothing is waited for.
    pub fn check_faults(&self, loaded: &LoadedGraph, checks: &Checks) -> Result<()> {
        if checks.is_empty() {
            return Ok(());
        }
        let count = loaded.kernels.len().min(MOST_FAULTS);
        let mut bytes = vec![0u8; count * FAULT_BYTES];
        self.engine.gpu.read(self.engine.faults.at(), &mut bytes).at(|| suspects(loaded))?;
        let Some(k) = bytes.chunks_exact(FAULT_BYTES).position(|report| report[..4] != [0; 4]) else { return Ok(()) };
        self.engine.gpu.clear(self.engine.faults.at(), count * FAULT_BYTES)?;
        let sites = checks.get(&k).map_or(&[][..], |compiled| &compiled.printed.sites);
        Err(failed_check(&bytes[k * FAULT_BYTES..][..FAULT_BYTES], sites)?.at(loaded.describe(k)))
    }

    /// Runs a kernel that has no launches.
    fn run_otherwise(&mut self, loaded: &LoadedGraph, k: usize, values: &mut [Value]) -> Result<()> {
        let (planned, kernel) = (&loaded.plan.kernels[k], &loaded.kernels[k]);
        let mut args = Vec::with_capacity(kernel.inputs.len());
        for slot in &kernel.inputs {
            let literal = match loaded.slots[*slot].origin {
                Origin::Constant(id) => self.engine.constants.literal(id)?,
                _ => values[*slot].literal()?,
            };
            args.push(Buffer::from_literal(&literal));
        }
        let prim = loaded.graph.nodes()[planned.members[0]].prim();
        let results = match (&kernel.way, prim) {
            (Way::If, Prim::If(row)) => row.run(&args, &mut Inner { run: self, regions: &kernel.regions })?,
            (Way::Loop, Prim::Loop(row)) => row.run(&args, &mut Inner { run: self, regions: &kernel.regions })?,
            (Way::Bind(symbol), _) => {
                self.env.bind(Symbol::Value(*symbol), args[0].to_ints()[0]);
                args
            }
            _ => {
                let (reading, limits) = (Reading::Rounded, self.engine.limits);
                interp::run(
                    &planned.kernel,
                    &args,
                    &self.env,
                    &interp::Options { reading, limits, ..Default::default() },
                )?
            }
        };
        for (slot, result) in kernel.outputs.iter().zip(results) {
            loaded.slots[*slot].ty.bind(result.dtype(), result.sizes(), &mut self.env)?;
            values[*slot] = result.to_literal()?.into();
        }
        Ok(())
    }
}

/// Which kernels something may come from that went wrong on the device, which tells only that it did, once it is waited for.
pub(super) fn suspects(loaded: &LoadedGraph) -> String {
    const MOST: usize = 4;
    let count = loaded.kernels.len();
    let names: Vec<String> = (0..count.min(MOST)).map(|k| loaded.describe(k)).collect();
    match count {
        1 => names.concat(),
        _ => {
            let others = if count > MOST { format!(" and {} more", count - MOST) } else { String::new() };
            format!("one of {}{others} ({BLOCKING}=1 tells which)", names.join(", "))
        }
    }
}

fn element_bytes(dtype: DType) -> u64 {
    dtype.bits() as u64 / 8
}

/// What a report of a check that failed says.
fn failed_check(report: &[u8], sites: &[String]) -> Result<Error> {
    let site = i32::from_le_bytes([report[0], report[1], report[2], report[3]]);
    let value = i64::from_le_bytes(report[8..].try_into().map_err(|_| Error::bug("a report is cut off"))?);
    let site = usize::try_from(site - 1).ok().and_then(|site| sites.get(site));
    Ok(Error::invalid(format!("index {value} {}", site.map_or("is out of range", String::as_str))))
}

/// The kernels of a segment that check something, from the number of its first kernel on.
pub(super) fn checks_of(special: &Special, first: usize) -> impl Iterator<Item = (usize, Arc<Compiled>)> {
    special.steps.iter().enumerate().filter_map(move |(k, step)| {
        let compiled = &step.as_ref()?.compiled;
        (!compiled.printed.sites.is_empty()).then(|| (first + k, compiled.clone()))
    })
}

/// Where the tensors of a kernel lie.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub inputs: Vec<u64>,
    pub outputs: Vec<u64>,
    /// what is between launches
    pub scratch: Vec<u64>,
}

/// The regions of a node, run by their plans.
struct Inner<'a, 'e> {
    run: &'a mut Run<'e>,
    regions: &'a [LoadedGraph],
}

impl Regions for Inner<'_, '_> {
    fn count_trip(&mut self) -> Result<()> {
        self.run.trips += 1;
        let most = self.run.engine.limits.trips;
        if self.run.trips > most {
            Err(Error::over(Allowance::Trips, format!("more than {most} loop trips")))
        } else {
            Ok(())
        }
    }

    fn hold(&mut self, _: u64, now: u64) -> Result<()> {
        let limit = self.run.engine.limits.bytes;
        match now > limit {
            true => Err(Error::over(
                Allowance::Memory,
                format!("values of {now} bytes at one time (the limit is {limit} bytes)"),
            )),
            false => Ok(()),
        }
    }

    fn region(&mut self, number: usize, operands: &[Buffer]) -> Result<Vec<Buffer>> {
        let outer = self.run.env.mark();
        let inputs =
            operands.iter().map(|operand| Ok(Some(operand.to_literal()?.into()))).collect::<Result<Vec<_>>>()?;
        // Regions belong to the kernel that they are in.
        let stored = self.run.stored.take();
        let results = self.run.execute(&self.regions[number], &inputs);
        self.run.env.undo(outer);
        self.run.stored = stored;
        results?.iter_mut().map(|value| Ok(Buffer::from_literal(&value.literal()?))).collect()
    }

    fn env(&self) -> &Env {
        &self.run.env
    }
}
