//! Kernels cut into stages that can be printed one by one: what a later stage reads of an earlier one lies in memory between them.
//!
//! This is how there is always a way: folds whose results are wanted at more points than they have are computed on their own.

mod ask_library;

use fuseline::error::{Error, Result};
use fuseline::ops::prim::Monoid;
use fuseline::tensor::{DType, Dim, Env, TensorType};
use fuseline::tile::{AxisSet, Kernel, Op, Param, Rounding, Schedule, Step, StepId, Store};
use smallvec::SmallVec;

use super::attention::Attention;
use super::columns::Columns;
use super::library::Asked;
use super::nest::{Nest, Parameters, slope};
use super::product::Product;
use super::tidy::tidied;
use super::{Options, Parameter, Scratch, row, split};

/// Folds of fewer terms are no rows where there are so many of them: one thread does each.
const SHORTEST_ROW: i64 = 32;
const MANY_WINDOWS: i64 = 1 << 15;

/// A kernel that becomes one function.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    pub kernel: Kernel,
    pub parameters: Parameters,
    pub way: Way,
    /// the stores that it does
    pub stores: Vec<usize>,
    /// whether the first and last columns of its product were computed before, so that a library may leave them out
    pub has_edges: bool,
}

/// How a stage runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// a thread computes some points
    Points,
    /// some threads own a row along these axes
    Rows(AxisSet),
    /// some threads own rows along these axes, one after another, and fold columns too; an axis counts the parts into which rows are divided
    RowsAndColumns { along: AxisSet, part: usize },
    /// some threads share the folds of some neighbouring points
    Columns,
    /// a thread walks along an axis, for the running fold that is the one thing stored
    Scan(StepId),
    /// blocks of threads own tiles of a product of matrices
    Product,
    /// blocks of threads own queries and walk along keys
    Attention,
}

/// The stages of a kernel, and the memory between them.
pub(super) fn stages(kernel: &Kernel, options: &Options) -> Result<(Vec<Stage>, Vec<Scratch>)> {
    if let Schedule::Host(_) = kernel.schedule {
        return Err(Error::unsupported("a kernel of the host as code for a GPU"));
    }
    let all: Vec<usize> = (0..kernel.stores.len()).collect();
    let mut cut = Cut {
        work: tidied(kernel).unwrap_or_else(|| kernel.clone()),
        parameters: Parameters {
            inputs: (0..kernel.inputs.len()).map(Parameter::Input).collect(),
            outputs: (0..kernel.outputs.len()).map(Parameter::Output).collect(),
        },
        options,
        stages: Vec::new(),
        scratch: Vec::new(),
    };
    if let Schedule::Row { along, .. } = kernel.schedule
        && cut.owns_rows(&all, along)?
        && !is_too_long(kernel, &options.fixed, along)
    {
        let (kernel, parameters) = (cut.work, cut.parameters);
        return Ok((
            vec![Stage { kernel, parameters, way: Way::Rows(along), stores: all, has_edges: false }],
            Vec::new(),
        ));
    }
    if cut.is_attention()? {
        let (kernel, parameters) = (cut.work, cut.parameters);
        cut.stages.push(Stage { kernel, parameters, way: Way::Attention, stores: all, has_edges: false });
        return Ok((cut.stages, cut.scratch));
    }
    cut.store_rows_and_columns()?;
    let mut k = 0;
    while k < cut.work.steps.len() {
        let id = StepId(k as u32);
        if cut.work.steps[k].op.is_fold() && cut.is_needed(id) {
            // The parts of a fold stand before it.
            let id = if cut.store_parts(id)? { StepId(id.0 + 1) } else { id };
            if cut.is_for_library(id)? {
                cut.store_steps(&[id], &|dtype| dtype)?;
            } else if !cut.is_folded_in_place(id) {
                cut.store_folds(id)?;
            }
            k = id.index();
        }
        k += 1;
    }
    cut.store_outputs()?;
    Ok((cut.stages, cut.scratch))
}

/// Whether rows are so few and so long that one block of threads each would leave a GPU idle.
fn is_too_long(kernel: &Kernel, fixed: &Env, along: AxisSet) -> bool {
    let count = |axes: AxisSet| {
        let mut extents = axes.iter().map(|axis| fixed.apply(&kernel.axes[axis]).as_int());
        extents.try_fold(1i64, |all, extent| all.checked_mul(extent?))
    };
    let all: AxisSet = (0..kernel.axes.len()).collect();
    let (rows, length) = (count(all.without(along)), count(along));
    matches!((rows, length), (Some(rows), Some(length)) if rows < 64 && length >= 1 << 17)
}

/// A kernel that is being cut.
struct Cut<'k> {
    /// what is left of it: folds that were stored are loads
    work: Kernel,
    parameters: Parameters,
    options: &'k Options,
    stages: Vec<Stage>,
    scratch: Vec<Scratch>,
}

impl Cut<'_> {
    /// Whether rows along these axes can be owned as they are.
    fn owns_rows(&self, stores: &[usize], along: AxisSet) -> Result<bool> {
        let nest = Nest::new(&self.work, self.options, &self.parameters)?;
        let present: AxisSet = along.iter().filter(|axis| !nest.extents[*axis].is(1)).collect();
        Ok(row::fits(&nest, stores, present))
    }

    /// Whether what is left is attention, once folds that need no score were computed on their own; those are, if it is.
    fn is_attention(&mut self) -> Result<bool> {
        let Schedule::Attention { chain, .. } = &self.work.schedule else { return Ok(false) };
        let first = chain.first;
        let (work, parameters) = (self.work.clone(), self.parameters.clone());
        let mut depends = vec![false; work.steps.len()];
        for (k, step) in work.steps.iter().enumerate() {
            let id = StepId(k as u32);
            depends[k] = id == first || step.op.operands().iter().any(|operand| depends[operand.index()]);
            if self.work.step(id).op.is_fold() && !depends[k] && self.is_needed(id) {
                self.store_folds(id)?;
            }
        }
        let stores: Vec<usize> = (0..self.work.stores.len()).collect();
        let mut nest = Nest::new(&self.work, self.options, &self.parameters)?;
        nest.join_axes();
        let found = Attention::of(&nest, &stores).is_some();
        if !found {
            (self.work, self.parameters) = (work, parameters);
            self.stages.clear();
            self.scratch.clear();
        }
        Ok(found)
    }

    /// Where rows and columns are folded, does both in one pass, and all stores of rows; what is left are folds of what every part of the rows
    /// has found.
    fn store_rows_and_columns(&mut self) -> Result<()> {
        let Schedule::Column { across, along, .. } = self.work.schedule else { return Ok(()) };
        let nest = Nest::new(&self.work, self.options, &self.parameters)?;
        let present = |axes: AxisSet| axes.iter().filter(|axis| !nest.extents[*axis].is(1)).collect::<AxisSet>();
        let all: Vec<usize> = (0..self.work.stores.len()).collect();
        if !row::fits_columns(&nest, &all, present(along), present(across)) {
            return Ok(());
        }
        let needed = nest.needed(&all);
        let steps = &self.work.steps;
        let is_column = |k: &usize| needed[*k] && steps[*k].op.is_fold() && nest.folds[*k] == present(across);
        let folds: Vec<StepId> = (0..steps.len()).filter(is_column).map(|k| StepId(k as u32)).collect();
        // How many parts there are follows from what threads hold, whatever their number.
        let (kernel, parameters) = self.in_parts_of_rows(&folds, 2);
        let mut divided = Nest::new(&kernel, self.options, &parameters)?;
        divided.join_axes();
        let stores: Vec<usize> = (0..kernel.stores.len()).collect();
        let along_joined = along.iter().filter(|axis| !divided.extents[*axis].is(1)).collect();
        let part = self.work.axes.len();
        let parts = row::parts(&divided, &stores, along_joined, part);
        let (kernel, parameters) = self.in_parts_of_rows(&folds, parts);
        let found: Vec<Param> = kernel.outputs[self.work.outputs.len()..].to_vec();
        self.stages.push(Stage {
            kernel,
            parameters,
            way: Way::RowsAndColumns { along, part },
            stores,
            has_edges: false,
        });
        self.work.axes.push(Dim::int(parts));
        self.work.stores.retain(|store| store.axes().common(across).is_empty());
        // From the last on, so that places of earlier folds stay.
        for (id, param) in folds.into_iter().zip(found).rev() {
            let monoid = match self.work.step(id).op {
                Op::Reduce { monoid, .. } => monoid,
                _ => Monoid::Sum,
            };
            let index = self.part_index(id, part);
            let bytes = param.ty.shape.dims().iter().fold(Dim::int(1), |all, size| all * size);
            let bytes = bytes * i64::try_from(param.ty.dtype.bits() / 8).unwrap_or(8);
            self.scratch.push(Scratch { bytes });
            self.read_parts(id, param, self.scratch.len() - 1, index, part, monoid);
        }
        Ok(())
    }

    /// Where parts of a fold lie.
    fn part_index(&self, id: StepId, part: usize) -> Vec<Dim> {
        std::iter::once(part).chain(self.work.step(id).axes.iter()).map(Dim::axis).collect()
    }

    /// The kernel that stores what varies over rows, and of folds across rows what each of so many parts has found.
    fn in_parts_of_rows(&self, folds: &[StepId], parts: i64) -> (Kernel, Parameters) {
        let mut kernel = self.work.clone();
        let mut parameters = self.parameters.clone();
        let part = kernel.axes.len();
        kernel.axes.push(Dim::int(parts));
        let across = folds.iter().fold(AxisSet::EMPTY, |all, fold| all.union(self.work.step(*fold).op.folds()));
        kernel.stores.retain(|store| !store.axes().common(across).is_empty());
        for (k, id) in folds.iter().enumerate() {
            let step = self.work.step(*id);
            let dtype = match &step.op {
                Op::Dot { accumulator, .. } => *accumulator,
                _ => wide(step.dtype),
            };
            let sizes: Vec<Dim> =
                std::iter::once(part).chain(step.axes.iter()).map(|axis| kernel.axes[axis].clone()).collect();
            kernel.outputs.push(Param::row_major(TensorType::new(dtype, sizes)));
            // What a part has found is no result yet, and is not rounded as one.
            kernel.steps[id.index()].dtype = dtype;
            // The last fold has the first place.
            parameters.outputs.push(Parameter::Scratch(self.scratch.len() + folds.len() - 1 - k));
            let index = self.part_index(*id, part);
            kernel.stores.push(Store { output: kernel.outputs.len() - 1, index, value: *id });
        }
        (kernel, parameters)
    }

    /// A fold is from here on that of parts, which lie in memory.
    fn read_parts(&mut self, id: StepId, param: Param, number: usize, index: Vec<Dim>, part: usize, monoid: Monoid) {
        let (dtype, axes) = (param.ty.dtype, self.work.step(id).axes.with(part));
        self.work.inputs.push(param);
        self.parameters.inputs.push(Parameter::Scratch(number));
        let input = self.work.inputs.len() - 1;
        let op = Op::Load { input, index, guard: Vec::new(), fill: None, reads: SmallVec::new() };
        split::insert(&mut self.work, id, Step { op, dtype, axes });
        self.work.steps[id.index() + 1].op = Op::Reduce { monoid, over: AxisSet::of(part), arg: id };
    }

    fn is_needed(&self, id: StepId) -> bool {
        let mut needed = vec![false; self.work.steps.len()];
        self.work.stores.iter().for_each(|store| needed[store.value.index()] = true);
        for k in (id.index()..needed.len()).rev() {
            if needed[k] {
                self.work.steps[k].op.operands().iter().for_each(|operand| needed[operand.index()] = true);
            }
        }
        needed[id.index()]
    }

    /// Folds parts on their own, where that is better; what is left of the fold is the fold of its parts.
    fn store_parts(&mut self, id: StepId) -> Result<bool> {
        if self.is_of_parts(id) {
            return Ok(false);
        }
        let alone = self.alone(&[id]);
        let outputs = Parameters { inputs: self.parameters.inputs.clone(), outputs: vec![Parameter::Output(0)] };
        let owned = match way_of_folds(&alone, self.options, &outputs, &[0])? {
            Way::Rows(along) => {
                let nest = Nest::new(&alone, self.options, &outputs)?;
                nest.count(along).as_int().map_or(1, |length| (length / 32).clamp(1, 1024))
            }
            Way::Columns => {
                let mut nest = Nest::new(&alone, self.options, &outputs)?;
                nest.join_axes();
                Columns::of(&nest, &[0]).map_or(1, |columns| (columns.shares / columns.widest).max(1))
            }
            _ => 1,
        };
        let split = match self.product_of(&alone, &outputs)? {
            Some((blocks, depth)) => split::choose_tiles(&self.work, id, &self.options.fixed, blocks, depth),
            None => split::choose(&self.work, id, &self.options.fixed, owned),
        };
        let Some(split) = split else { return Ok(false) };
        let mut kernel = split::in_parts(&self.work, id, split, &self.options.fixed);
        // A step may stand before the fold now.
        let moved = StepId(id.0 + u32::try_from(kernel.steps.len() - self.work.steps.len()).unwrap_or(0));
        let step = kernel.step(moved).clone();
        let (monoid, dtype) = match &step.op {
            Op::Dot { accumulator, .. } => (Monoid::Sum, *accumulator),
            Op::Reduce { monoid, .. } => (*monoid, wide(step.dtype)),
            _ => return Err(Error::bug("a fold of what does not fold")),
        };
        kernel.steps[moved.index()].dtype = dtype;
        let part = self.work.axes.len();
        let axes: Vec<usize> = std::iter::once(part).chain(step.axes.iter().filter(|axis| *axis != part)).collect();
        let index: Vec<Dim> = axes.iter().copied().map(Dim::axis).collect();
        let sizes: Vec<Dim> = axes.iter().map(|axis| kernel.axes[*axis].clone()).collect();
        let (param, number) = self.between(dtype, sizes);
        kernel.outputs = vec![param.clone()];
        kernel.stores = vec![Store { output: 0, index: index.clone(), value: moved }];
        let parameters =
            Parameters { inputs: self.parameters.inputs.clone(), outputs: vec![Parameter::Scratch(number)] };
        let way = way_of_folds(&kernel, self.options, &parameters, &[0])?;
        self.stages.push(Stage { kernel, parameters, way, stores: vec![0], has_edges: false });
        self.work.axes.push(Dim::int(split.parts));
        self.read_parts(id, param, number, index, part, monoid);
        Ok(true)
    }

    /// Whether a fold is that of parts already.
    fn is_of_parts(&self, id: StepId) -> bool {
        let Op::Reduce { arg, .. } = self.work.step(id).op else { return false };
        let Op::Load { input, .. } = self.work.step(arg).op else { return false };
        matches!(self.parameters.inputs[input], Parameter::Scratch(_))
    }

    /// Where a kernel is a product: how many blocks of threads it has, if that is known, and how many steps these walk at a time.
    fn product_of(&self, kernel: &Kernel, parameters: &Parameters) -> Result<Option<(Option<i64>, i64)>> {
        let mut nest = Nest::new(kernel, self.options, parameters)?;
        nest.join_axes();
        Ok(Product::of(&nest, &[0]).map(|product| (product.blocks(&nest), product.depth())))
    }

    /// The kernel that stores nothing but some steps.
    fn alone(&self, ids: &[StepId]) -> Kernel {
        let mut kernel = self.work.clone();
        let ty = |id: &StepId| {
            let step = self.work.step(*id);
            let sizes: Vec<Dim> = step.axes.iter().map(|axis| self.work.axes[axis].clone()).collect();
            Param::row_major(TensorType::new(step.dtype, sizes))
        };
        let store = |(output, id): (usize, &StepId)| {
            let index = self.work.step(*id).axes.iter().map(Dim::axis).collect();
            Store { output, index, value: *id }
        };
        kernel.outputs = ids.iter().map(ty).collect();
        kernel.stores = ids.iter().enumerate().map(store).collect();
        kernel
    }

    /// Memory between stages.
    fn between(&mut self, dtype: DType, sizes: Vec<Dim>) -> (Param, usize) {
        let count = sizes.iter().fold(Dim::int(1), |all, size| all * size);
        self.scratch.push(Scratch { bytes: count * i64::try_from(dtype.bits() / 8).unwrap_or(8) });
        (Param::row_major(TensorType::new(dtype, sizes)), self.scratch.len() - 1)
    }

    /// Whether a fold is wanted exactly at the points of the outputs, and by no other fold.
    fn is_folded_in_place(&self, id: StepId) -> bool {
        let steps = &self.work.steps;
        if matches!(steps[id.index()].op, Op::Prefix { .. }) {
            return false;
        }
        // The steps that depend on it.
        let mut depends = vec![false; steps.len()];
        depends[id.index()] = true;
        for k in id.index() + 1..steps.len() {
            depends[k] = steps[k].op.operands().iter().any(|operand| depends[operand.index()]);
            if depends[k] && steps[k].op.is_fold() {
                return false;
            }
        }
        let readers = self.work.stores.iter().filter(|store| depends[store.value.index()]);
        readers.into_iter().all(|store| store.axes() == steps[id.index()].axes)
    }

    /// Computes a fold on its own, into memory, from where the rest of the kernel reads it, and with it the folds of the same rows that wait for
    /// nothing else: for its mean and its variance a row is read once. What is narrow stays wide between stages, unless every result is
    /// rounded: a library that computes it rounds nowhere but where it stores.
    fn store_folds(&mut self, id: StepId) -> Result<()> {
        let mut together = self.folds_of_rows(id);
        if together.len() > 1 {
            let stores: Vec<usize> = (0..together.len()).collect();
            let outputs = stores.iter().copied().map(Parameter::Output).collect();
            let parameters = Parameters { inputs: self.parameters.inputs.clone(), outputs };
            let way = way_of_folds(&self.alone(&together), self.options, &parameters, &stores)?;
            together.truncate(if matches!(way, Way::Rows(_)) { together.len() } else { 1 });
        }
        let is_rounded = self.work.rounding == Rounding::Every;
        self.store_steps(&together, &|dtype| if is_rounded { dtype } else { wide(dtype) })
    }

    /// A fold that is to be stored, and those behind it that fold the same axes for as many results and need no other fold.
    fn folds_of_rows(&self, id: StepId) -> Vec<StepId> {
        let (steps, first) = (&self.work.steps, self.work.step(id));
        let mut together = vec![id];
        // Whether a step waits for a fold that is not among these.
        let mut waits = vec![false; steps.len()];
        for (k, step) in steps.iter().enumerate() {
            let own = StepId(k as u32);
            waits[k] = step.op.operands().iter().any(|operand| waits[operand.index()]);
            if !step.op.is_fold() || waits[k] || own == id {
                continue;
            }
            let is_alike = matches!((&step.op, &first.op), (Op::Reduce { over, .. }, Op::Reduce { over: rows, .. }) if over == rows);
            if own > id && is_alike && step.axes == first.axes && self.is_needed(own) && !self.is_folded_in_place(own) {
                together.push(own);
            } else {
                waits[k] = true;
            }
        }
        together
    }

    /// Computes steps into memory, each as the type that is told for its own, from where the rest of the kernel reads them.
    fn store_steps(&mut self, ids: &[StepId], dtype_of: &dyn Fn(DType) -> DType) -> Result<()> {
        let mut kernel = self.alone(ids);
        let mut parameters =
            Parameters { inputs: self.parameters.inputs.clone(), outputs: Vec::with_capacity(ids.len()) };
        for (output, id) in kernel.outputs.iter_mut().zip(ids) {
            let (param, number) = self.between(dtype_of(self.work.step(*id).dtype), output.ty.shape.dims().to_vec());
            *output = param;
            parameters.outputs.push(Parameter::Scratch(number));
        }
        let stores: Vec<usize> = (0..ids.len()).collect();
        let way = match (ids, &self.work.step(ids[0]).op) {
            (&[id], Op::Prefix { .. }) => Way::Scan(id),
            _ => way_of_folds(&kernel, self.options, &parameters, &stores)?,
        };
        for (k, id) in ids.iter().enumerate() {
            let index = kernel.stores[k].index.clone();
            let load = Op::Load {
                input: self.work.inputs.len(),
                index,
                guard: Vec::new(),
                fill: None,
                reads: SmallVec::new(),
            };
            self.work.inputs.push(kernel.outputs[k].clone());
            self.parameters.inputs.push(parameters.outputs[k].clone());
            self.work.steps[id.index()].op = load;
        }
        self.stages.push(Stage { kernel, parameters, way, stores, has_edges: false });
        Ok(())
    }

    /// What is left: the outputs, those with the same axes together.
    fn store_outputs(&mut self) -> Result<()> {
        let mut groups: Vec<(AxisSet, Vec<usize>)> = Vec::new();
        for (k, store) in self.work.stores.iter().enumerate() {
            match groups.iter_mut().find(|(axes, _)| *axes == store.axes()) {
                Some((_, stores)) => stores.push(k),
                None => groups.push((store.axes(), vec![k])),
            }
        }
        let apart: Vec<Vec<usize>> = groups.into_iter().flat_map(|(_, stores)| self.apart(stores)).collect();
        for stores in apart {
            let way = way_of_folds(&self.work, self.options, &self.parameters, &stores)?;
            let (kernel, parameters) = (self.work.clone(), self.parameters.clone());
            let mut has_edges = false;
            if let Some(kernel) = self.edges(way, &stores)? {
                let (parameters, stores) = (parameters.clone(), stores.clone());
                self.stages.push(Stage { kernel, parameters, way, stores, has_edges: false });
                has_edges = true;
            }
            self.stages.push(Stage { kernel, parameters, way, stores, has_edges });
        }
        Ok(())
    }

    /// What a library is not asked for of some stores, as a kernel of its own.
    fn edges(&self, way: Way, stores: &[usize]) -> Result<Option<Kernel>> {
        if self.options.asked == Asked::Nothing || way != Way::Product {
            return Ok(None);
        }
        let mut nest = Nest::new(&self.work, self.options, &self.parameters)?;
        nest.join_axes();
        let product = Product::of(&nest, stores);
        Ok(product.and_then(|product| product.edges(&nest, &product.library(&nest, stores)?)))
    }

    /// Stores that need different sums of products, apart from each other.
    fn apart(&self, stores: Vec<usize>) -> Vec<Vec<usize>> {
        let dots = |store: usize| -> Vec<usize> {
            let mut needed = vec![false; self.work.steps.len()];
            needed[self.work.stores[store].value.index()] = true;
            for k in (0..needed.len()).rev() {
                if needed[k] {
                    self.work.steps[k].op.operands().iter().for_each(|operand| needed[operand.index()] = true);
                }
            }
            (0..needed.len()).filter(|k| needed[*k] && matches!(self.work.steps[*k].op, Op::Dot { .. })).collect()
        };
        let mut apart: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
        for store in stores {
            let own = dots(store);
            match apart.iter_mut().find(|(known, _)| own == *known || own.iter().any(|dot| known.contains(dot))) {
                Some((known, together)) => {
                    known.extend(own);
                    known.sort_unstable();
                    known.dedup();
                    together.push(store);
                }
                None => apart.push((own, vec![store])),
            }
        }
        apart.into_iter().map(|(_, stores)| stores).collect()
    }
}

/// The type in which a result lies between stages: what is narrow stays wide.
fn wide(dtype: DType) -> DType {
    if dtype.is_float() && dtype != DType::F64 { DType::F32 } else { dtype }
}

/// Tiles where they are a product; rows where folds run along what lies side by side in memory; otherwise points, whose neighbours then do.
fn way_of_folds(kernel: &Kernel, options: &Options, parameters: &Parameters, stores: &[usize]) -> Result<Way> {
    let nest = Nest::new(kernel, options, parameters)?;
    if kernel.steps.iter().any(|step| matches!(step.op, Op::Dot { .. })) {
        let mut joined = nest.clone();
        joined.join_axes();
        if Product::of(&joined, stores).is_some() {
            return Ok(Way::Product);
        }
    }
    let needed = nest.needed(stores);
    let Some(along) = (0..needed.len()).find(|k| needed[*k] && kernel.steps[*k].op.is_fold()) else {
        return Ok(Way::Points);
    };
    let along = nest.folds[along];
    let points = stores.iter().fold(AxisSet::EMPTY, |all, store| all.union(nest.stores[*store].axes));
    let is_in_line = |axes: AxisSet| {
        let is_term =
            |k: &usize| matches!(kernel.steps[*k].op, Op::Load { .. }) && !nest.axes[*k].common(along).is_empty();
        let loads = (0..needed.len()).filter(|k| needed[*k] && is_term(k));
        let mut offsets = loads.map(|k| &nest.load(StepId(k as u32)).offset);
        offsets.any(|offset| axes.iter().any(|axis| slope(offset, axis).is_some_and(|slope| slope.is(1))))
    };
    // Windows that move by two are no rows: every thread of one would have an element, and many none.
    let is_window = row::elements_at_once(&nest, along) == 1
        && nest.count(along).as_int().is_some_and(|terms| terms < SHORTEST_ROW)
        && nest.count(points).as_int().is_none_or(|results| results >= MANY_WINDOWS);
    let rows = is_in_line(along) && !is_in_line(points) && !is_window && row::fits(&nest, stores, along);
    if rows {
        return Ok(Way::Rows(along));
    }
    let mut joined = nest.clone();
    joined.join_axes();
    Ok(if Columns::of(&joined, stores).is_some() { Way::Columns } else { Way::Points })
}
