//! Operations joined by the names of their tensors, in the order of their data, with a number for everything.

use indexmap::IndexMap;

use super::operation::{Operation, Tensor};
use super::shapes;
use crate::analysis::scorecard::Bottleneck;
use crate::device::DeviceSpec;
use crate::error::{Error, Result};
use crate::ops::prim::Class;
use crate::tensor::DType;

/// Sizes of the axes of tensors of which nothing is known.
const ASSUMED_SHAPE: [usize; 2] = [4096, 4096];

/// Registers of any kernel, for addresses and loop counters.
const BASE_REGISTERS: f64 = 8.0;

/// A tensor with its size and its neighbours.
#[derive(Clone, Debug)]
pub(super) struct Joined {
    pub(super) name: String,
    pub(super) bytes: f64,
    pub(super) shape: Option<Vec<usize>>,
    pub(super) dtype: DType,
    pub(super) is_constant: bool,
    pub(super) writer: Option<usize>,
    pub(super) readers: Vec<usize>,
}

impl Joined {
    fn of(tensor: &Tensor) -> Result<Joined> {
        Ok(Joined {
            name: tensor.name.clone(),
            bytes: own_bytes(tensor)?.expect("every tensor has been given a size"),
            shape: tensor.shape.clone(),
            dtype: tensor.dtype.unwrap_or(DType::F32),
            is_constant: tensor.constant == Some(true),
            writer: None,
            readers: Vec::new(),
        })
    }

    fn elements(&self) -> f64 {
        self.bytes / self.dtype.bits() as f64 * 8.0
    }
}

/// An operation with a number for everything.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) name: String,
    pub(super) inputs: Vec<usize>,
    pub(super) outputs: Vec<usize>,
    pub(super) class: Class,
    pub(super) bottleneck: Bottleneck,
    pub(super) flops: f64,
    pub(super) bytes: f64,
    pub(super) dtype: DType,
    /// beyond those of any kernel
    pub(super) registers: f64,
    pub(super) block: Option<usize>,
}

impl Known {
    pub(super) fn intensity(&self) -> f64 {
        if self.bytes > 0.0 { self.flops / self.bytes } else { 0.0 }
    }
}

/// Operations in the order of their data: whoever reads a tensor comes after who writes it.
#[derive(Clone, Debug)]
pub(super) struct Network<'s> {
    pub(super) spec: &'s DeviceSpec,
    pub(super) tensors: Vec<Joined>,
    pub(super) operations: Vec<Known>,
    pub(super) assumptions: Vec<String>,
    /// for every operation, what all before it touch: bytes of constants, bytes that grow with the batch
    pub(super) touched_before: Vec<[f64; 2]>,
}

impl<'s> Network<'s> {
    pub(super) fn of(operations: &[Operation], spec: &'s DeviceSpec) -> Result<Network<'s>> {
        let mut tensors = join(operations)?;
        let given = tensors.clone();
        let order = sort(operations, &tensors)?;
        let mut assumptions = Vec::new();
        for at in &order {
            assume_sizes(&operations[*at], &mut tensors, &mut assumptions)?;
        }
        let joined = tensors.values().map(Joined::of).collect::<Result<_>>()?;
        let touched_before = vec![[0.0; 2]];
        let mut network = Network { spec, tensors: joined, operations: Vec::new(), assumptions, touched_before };
        for at in &order {
            let known = network.know(&operations[*at], &tensors, &given);
            let mut touched = network.touched_before[network.operations.len()];
            for tensor in known.inputs.iter().chain(&known.outputs).map(|t| &network.tensors[*t]) {
                touched[usize::from(!tensor.is_constant)] += tensor.bytes;
            }
            network.touched_before.push(touched);
            network.operations.push(known);
        }
        network.connect();
        Ok(network)
    }

    /// Registers of a thread of the kernel that these operations become.
    pub(super) fn registers(&self, members: &[usize]) -> f64 {
        BASE_REGISTERS + members.iter().map(|m| self.operations[*m].registers).sum::<f64>()
    }

    fn know(
        &mut self,
        operation: &Operation,
        tensors: &IndexMap<String, Tensor>,
        given: &IndexMap<String, Tensor>,
    ) -> Known {
        let indices = |list: &[Tensor]| -> Vec<usize> {
            let mut all: Vec<usize> = list.iter().filter_map(|t| tensors.get_index_of(&t.name)).collect();
            // What is read twice is there the second time.
            let mut seen = Vec::new();
            all.retain(|t| {
                !seen.contains(t) && {
                    seen.push(*t);
                    true
                }
            });
            all
        };
        let (inputs, outputs) = (indices(&operation.inputs), indices(&operation.outputs));
        let sum = |list: &[usize]| list.iter().map(|t| self.tensors[*t].bytes).sum::<f64>();
        let (read, written) = (sum(&inputs), sum(&outputs));
        let bytes = read + written;
        let dtype = inputs.iter().chain(&outputs).next().map_or(DType::F32, |t| self.tensors[*t].dtype);
        let balance = self.spec.balance(dtype);
        let stated = operation.flops.or(operation.intensity.map(|i| i * bytes));
        let intensity = stated.map(|flops| if bytes > 0.0 { flops / bytes } else { 0.0 });
        let hands_on = (written - read).abs() <= 1e-6 * read;
        let class = operation.class.unwrap_or_else(|| {
            let (class, what, why) = assumed_class(operation, intensity, balance, hands_on, given);
            self.assumptions.push(format!("{} {what}: {why}", operation.name));
            class
        });
        // Moves are not computed again where they are read.
        let stated = stated.filter(|_| operation.class.is_some() || class != Class::View);
        let flops = stated.unwrap_or_else(|| self.assume_flops(&operation.name, class, &inputs, &outputs));
        let bottleneck = operation.bottleneck.unwrap_or(match flops > balance * bytes {
            true => Bottleneck::Compute,
            false => Bottleneck::Memory,
        });
        let own = operation.registers.map(|r| (r - BASE_REGISTERS).max(0.0));
        let registers = own.unwrap_or(registers_of(class));
        let name = operation.name.clone();
        Known { name, inputs, outputs, class, bottleneck, flops, bytes, dtype, registers, block: operation.block }
    }

    /// Arithmetic operations of an operation that does not say how many it has.
    fn assume_flops(&mut self, name: &str, class: Class, inputs: &[usize], outputs: &[usize]) -> f64 {
        let all = inputs.iter().chain(outputs);
        let bytes: f64 = all.map(|t| self.tensors[*t].bytes).sum();
        let (flops, how) = match class {
            Class::View | Class::Source => return 0.0,
            Class::Contract => {
                let results: f64 = outputs.iter().map(|t| self.tensors[*t].elements()).sum();
                let first = inputs.first().map(|t| &self.tensors[*t]);
                if let Some(summed) = first.and_then(|t| t.shape.as_ref()?.last()) {
                    return 2.0 * results * *summed as f64;
                }
                (2.0 * results * first.map_or(1.0, Joined::elements).sqrt(), "multiplies square matrices")
            }
            Class::Map | Class::Index => (bytes, "does one operation for each byte"),
            Class::Reduce | Class::Control | Class::Opaque => (2.0 * bytes, "does two operations for each byte"),
        };
        self.assumptions.push(format!("{name} {how}"));
        flops
    }

    /// Finds who writes and who reads each tensor, and what does not grow with the batch.
    fn connect(&mut self) {
        for (at, operation) in self.operations.iter().enumerate() {
            operation.outputs.iter().for_each(|t| self.tensors[*t].writer = Some(at));
            operation.inputs.iter().for_each(|t| self.tensors[*t].readers.push(at));
        }
    }
}

/// What an operation does with its elements where it does not say so, in words, and why that is thought.
fn assumed_class(
    operation: &Operation,
    intensity: Option<f64>,
    balance: f64,
    hands_on: bool,
    given: &IndexMap<String, Tensor>,
) -> (Class, &'static str, &'static str) {
    let is_compute = operation.bottleneck == Some(Bottleneck::Compute);
    let several = operation.outputs.len() > 1;
    match intensity {
        Some(0.0) => (Class::View, "moves elements", "it computes nothing"),
        None if several && hands_on && !is_compute => {
            (Class::View, "moves elements", "it has several outputs, as large together as its inputs")
        }
        Some(intensity) if several && intensity < most_of_moves(operation) && !is_compute => {
            (Class::View, "moves elements", "it has several outputs, and its operations are so few that they are moves")
        }
        _ if is_compute => (Class::Contract, "multiplies matrices", "it is bound by arithmetic"),
        Some(intensity) if operation.bottleneck.is_none() && intensity > balance => {
            (Class::Contract, "multiplies matrices", "it has so many operations for each byte")
        }
        None if shapes::could_be_product(operation, given) => {
            (Class::Contract, "multiplies matrices", "its shapes are those of a product")
        }
        _ if shapes::could_be_elementwise(operation, given) => {
            (Class::Map, "is elementwise", "it reads several tensors as large as what it writes")
        }
        // Nobody says that elements stand by themselves: they may need their whole row.
        _ => (Class::Reduce, "needs whole rows", "nothing says that it is elementwise"),
    }
}

/// Operations for each byte of who only moves elements, if somebody counts the moves. Who makes several tensors of one with less than one for each
/// byte hands its parts on: statistics of rows take more.
fn most_of_moves(operation: &Operation) -> f64 {
    if operation.inputs.len() == 1 { 1.0 } else { 0.2 }
}

/// Registers that an operation of a class adds to those of any kernel: values that are alive at the same time.
fn registers_of(class: Class) -> f64 {
    match class {
        Class::Source | Class::View => 0.0,
        Class::Map => 2.0,
        Class::Index => 3.0,
        // a value, two running results, what they are compared with and added to
        Class::Reduce => 5.0,
        Class::Control | Class::Opaque => 16.0,
        // a small block of results with its operands
        Class::Contract => 32.0,
    }
}

/// All tensors by name, with all that any operation says of them.
fn join(operations: &[Operation]) -> Result<IndexMap<String, Tensor>> {
    let mut tensors: IndexMap<String, Tensor> = IndexMap::new();
    let mut names: IndexMap<&str, ()> = IndexMap::new();
    for operation in operations {
        if operation.name.is_empty() {
            return Err(Error::invalid("an operation has no name"));
        }
        if names.insert(&operation.name, ()).is_some() {
            return Err(Error::invalid(format!("two operations are called \"{}\"", operation.name)));
        }
        let place = || format!("operation \"{}\"", operation.name);
        check(operation).map_err(|e| e.at(place()))?;
        for tensor in operation.inputs.iter().chain(&operation.outputs) {
            let known = tensors.entry(tensor.name.clone()).or_insert_with(|| Tensor::named(&tensor.name));
            merge(known, tensor).map_err(|e| e.at(place()))?;
        }
    }
    // When all is known: another operation may have given the shape.
    for operation in operations {
        shapes::check(operation, &tensors).map_err(|e| e.at(format!("operation \"{}\"", operation.name)))?;
    }
    decide_constants(operations, &mut tensors);
    Ok(tensors)
}

fn check(operation: &Operation) -> Result<()> {
    if operation.outputs.is_empty() {
        return Err(Error::invalid("it has no outputs"));
    }
    let numbers = [("flops", operation.flops), ("intensity", operation.intensity), ("registers", operation.registers)];
    for (what, number) in numbers {
        if number.is_some_and(|x| !x.is_finite() || x < 0.0) {
            return Err(Error::invalid(format!("{what} must be a number that is not below zero")));
        }
    }
    match (operation.flops, operation.intensity) {
        (Some(_), Some(_)) => Err(Error::invalid("flops and intensity are both given; one follows from the other")),
        _ => Ok(()),
    }
}

/// Adds what a second mention says of a tensor.
fn merge(known: &mut Tensor, tensor: &Tensor) -> Result<()> {
    fn agree<T: PartialEq + Clone>(known: &mut Option<T>, new: &Option<T>, what: &str, name: &str) -> Result<()> {
        match (&*known, new) {
            (Some(a), Some(b)) if a != b => {
                Err(Error::invalid(format!("tensor \"{name}\" is given a second time, with another {what}")))
            }
            (None, Some(_)) => {
                known.clone_from(new);
                Ok(())
            }
            _ => Ok(()),
        }
    }
    if tensor.name.is_empty() {
        return Err(Error::invalid("a tensor has no name"));
    }
    agree(&mut known.shape, &tensor.shape, "shape", &tensor.name)?;
    agree(&mut known.dtype, &tensor.dtype, "element type", &tensor.name)?;
    agree(&mut known.bytes, &tensor.bytes, "number of bytes", &tensor.name)?;
    agree(&mut known.constant, &tensor.constant, "word on whether it is constant", &tensor.name)
}

/// What nobody writes, and contractions read as their second operand or later, are weights.
fn decide_constants(operations: &[Operation], tensors: &mut IndexMap<String, Tensor>) {
    for tensor in tensors.values_mut().filter(|t| t.constant.is_none()) {
        let is = |other: &Tensor| other.name == tensor.name;
        let is_written = operations.iter().any(|o| o.outputs.iter().any(is));
        let mut readers = operations.iter().filter(|o| o.inputs.iter().any(is)).peekable();
        let weighs = |o: &Operation| contracts(o) && !o.inputs.first().is_some_and(is);
        tensor.constant = Some(!is_written && readers.peek().is_some() && readers.all(weighs));
    }
}

/// Gives tensors of which nothing is known the size of the tensors around them.
fn assume_sizes(
    operation: &Operation,
    tensors: &mut IndexMap<String, Tensor>,
    assumptions: &mut Vec<String>,
) -> Result<()> {
    let mut largest = (-1.0, Tensor { shape: Some(ASSUMED_SHAPE.to_vec()), ..Tensor::default() });
    for tensor in operation.inputs.iter().chain(&operation.outputs).map(|t| &tensors[&t.name]) {
        let bytes = own_bytes(tensor)?.filter(|bytes| tensor.constant != Some(true) && *bytes > largest.0);
        if let Some(bytes) = bytes {
            largest = (bytes, tensor.clone());
        }
    }
    for input in &operation.inputs {
        assume_size(&mut tensors[&input.name], &largest.1, 1, assumptions)?;
    }
    if let [output] = &operation.outputs[..]
        && is_open(&tensors[&output.name])
        && let Some(shape) = product_shape(operation, tensors)
    {
        tensors[&output.name].shape = Some(shape);
    }
    let first = operation.inputs.first().map_or(largest.1, |t| tensors[&t.name].clone());
    // Several results of which nothing is known are the parts of what comes in.
    let parts = operation.outputs.iter().filter(|t| is_open(&tensors[&t.name])).count();
    let mut outputs = operation.outputs.iter();
    outputs.try_for_each(|output| assume_size(&mut tensors[&output.name], &first, parts, assumptions))
}

/// Whether it multiplies matrices, as far as that was said.
fn contracts(operation: &Operation) -> bool {
    match operation.class {
        Some(class) => class == Class::Contract,
        None => operation.bottleneck == Some(Bottleneck::Compute),
    }
}

/// The shape of a product of two matrices, or of rows with one, whose sizes agree.
fn product_shape(operation: &Operation, tensors: &IndexMap<String, Tensor>) -> Option<Vec<usize>> {
    let [left, right] = &operation.inputs[..] else { return None };
    let (left, right) = (tensors[&left.name].shape.as_ref()?, tensors[&right.name].shape.as_ref()?);
    let ([rows @ .., inner], [depth, columns]) = (&left[..], &right[..]) else { return None };
    (contracts(operation) && inner == depth).then(|| [rows, &[*columns]].concat())
}

fn is_open(tensor: &Tensor) -> bool {
    tensor.shape.is_none() && tensor.bytes.is_none()
}

/// Gives a tensor what it lacks from another, of which it is one of several parts.
fn assume_size(tensor: &mut Tensor, like: &Tensor, parts: usize, assumptions: &mut Vec<String>) -> Result<()> {
    tensor.dtype = tensor.dtype.or(like.dtype);
    if !is_open(tensor) {
        return Ok(());
    }
    let bits = |t: &Tensor| t.dtype.unwrap_or(DType::F32).bits() as f64;
    match &like.shape {
        Some(shape) if parts == 1 => tensor.shape = Some(shape.clone()),
        _ => tensor.bytes = own_bytes(like)?.map(|bytes| bytes * bits(tensor) / bits(like) / parts as f64),
    }
    let bytes = own_bytes(tensor)?.unwrap_or_default();
    assumptions.push(format!("{} has {bytes:.0} bytes", tensor.name));
    Ok(())
}

fn own_bytes(tensor: &Tensor) -> Result<Option<f64>> {
    let wrong = |why: &str| Err(Error::invalid(format!("tensor \"{}\" {why}", tensor.name)));
    if tensor.bytes.is_some_and(|b| !b.is_finite() || b < 0.0) {
        return wrong("has a number of bytes that is no number or below zero");
    }
    let Some(shape) = &tensor.shape else { return Ok(tensor.bytes) };
    let elements = shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
    let dtype = tensor.dtype.unwrap_or(DType::F32);
    let Some(bytes) = elements.and_then(|n| dtype.bytes(n)) else { return wrong("is too large") };
    match tensor.bytes {
        Some(given) if given != bytes as f64 => wrong(&format!("has {given} bytes, but its shape has {bytes}")),
        _ => Ok(Some(bytes as f64)),
    }
}

/// The order of the data: among those that could be next, the one that was given first.
fn sort(operations: &[Operation], tensors: &IndexMap<String, Tensor>) -> Result<Vec<usize>> {
    let mut writers: Vec<Option<usize>> = vec![None; tensors.len()];
    for (at, operation) in operations.iter().enumerate() {
        for output in &operation.outputs {
            let writer = &mut writers[tensors.get_index_of(&output.name).expect("every tensor was joined")];
            if let Some(other) = writer.replace(at) {
                let (a, b, name) = (&operations[other].name, &operation.name, &output.name);
                return Err(Error::invalid(format!("tensor \"{name}\" is written by \"{a}\" and by \"{b}\"")));
            }
        }
    }
    let (mut order, mut done) = (Vec::new(), vec![false; operations.len()]);
    while order.len() < operations.len() {
        let waits =
            |input: &Tensor| tensors.get_index_of(&input.name).and_then(|t| writers[t]).is_some_and(|w| !done[w]);
        let next = operations.iter().enumerate().find(|(at, o)| !done[*at] && !o.inputs.iter().any(waits));
        let Some((next, _)) = next else {
            let stuck: Vec<&str> =
                operations.iter().zip(&done).filter(|(_, d)| !**d).map(|(o, _)| o.name.as_str()).collect();
            return Err(Error::invalid(format!("these operations wait for each other: {}", stuck.join(", "))));
        };
        done[next] = true;
        order.push(next);
    }
    Ok(order)
}
