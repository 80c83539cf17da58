//! Whether the shapes of an operation fit what it is said to do.

use indexmap::IndexMap;

use super::operation::{Operation, Tensor};
use crate::error::{Error, Result};
use crate::ops::prim::Class;

/// Refuses shapes that no operation of its kind can have. Only what is said is looked at: the kind, and shapes as given.
pub(super) fn check(operation: &Operation, tensors: &IndexMap<String, Tensor>) -> Result<()> {
    let shaped = |list: &[Tensor]| -> Vec<Shaped<'_>> {
        let known = list.iter().filter_map(|tensor| tensors.get(&tensor.name));
        known.filter_map(|tensor| Some(Shaped { name: &tensor.name, sizes: tensor.shape.as_deref()? })).collect()
    };
    let (inputs, outputs) = (shaped(&operation.inputs), shaped(&operation.outputs));
    match operation.class {
        Some(Class::Map) => outputs.iter().try_for_each(|output| elementwise(&inputs, output)),
        // With a shape missing, nothing can be said of a largest one.
        Some(Class::Reduce) if inputs.len() == operation.inputs.len() => {
            outputs.iter().try_for_each(|output| reduction(&inputs, output))
        }
        Some(Class::Contract) if inputs.len() == operation.inputs.len() => match (&inputs[..], &outputs[..]) {
            ([rows, weights, ..], [output]) => product(rows, weights, output),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Whether an operation whose kind is not said reads several tensors, none of them a weight, that may each have the elements of the one that
/// it writes: by shapes or bytes as given, where they are.
pub(super) fn could_be_elementwise(operation: &Operation, given: &IndexMap<String, Tensor>) -> bool {
    let [output] = operation.outputs.as_slice() else { return false };
    let Some(output) = given.get(&output.name) else { return false };
    let fits = |input: &Tensor| {
        given.get(&input.name).is_some_and(|input| {
            let as_large = |a: Option<f64>, b: Option<f64>| a.is_none() || b.is_none() || a == b;
            let same = match (&input.shape, &output.shape) {
                (Some(a), Some(b)) => a == b,
                _ => as_large(input.bytes, output.bytes),
            };
            input.constant != Some(true) && same
        })
    };
    operation.inputs.len() > 1 && operation.inputs.iter().all(fits)
}

/// Whether shapes as given are those of a product of matrices, the second one either way round, and of nothing that is elementwise.
pub(super) fn could_be_product(operation: &Operation, given: &IndexMap<String, Tensor>) -> bool {
    let sizes = |tensor: &Tensor| given.get(&tensor.name)?.shape.clone();
    let ([rows, weights, ..], [output]) = (operation.inputs.as_slice(), operation.outputs.as_slice()) else {
        return false;
    };
    let (Some(a), Some(b), Some(y)) = (sizes(rows), sizes(weights), sizes(output)) else { return false };
    let (Some((summed, kept)), Some((columns, of_rows)), [batch @ .., first, second]) =
        (a.split_last(), y.split_last(), b.as_slice())
    else {
        return false;
    };
    let turns = [(first, second), (second, first)];
    let is_product = turns.contains(&(summed, columns))
        && kept == of_rows
        && (batch.is_empty() || kept.split_last().is_some_and(|(_, outer)| outer == batch));
    let shaped = [(rows, &a), (weights, &b)].map(|(tensor, sizes)| Shaped { name: &tensor.name, sizes });
    is_product && elementwise(&shaped, &Shaped { name: &output.name, sizes: &y }).is_err()
}

/// A tensor whose shape was given.
struct Shaped<'t> {
    name: &'t str,
    sizes: &'t [usize],
}

impl Shaped<'_> {
    /// Its name and shape, for messages.
    fn text(&self) -> String {
        format!("\"{}\" {:?}", self.name, self.sizes)
    }

    fn elements(&self) -> f64 {
        self.sizes.iter().map(|size| *size as f64).product()
    }
}

/// Every operand has the result's shape, or is repeated along axes that it lacks or has once.
fn elementwise(inputs: &[Shaped<'_>], output: &Shaped<'_>) -> Result<()> {
    let fits = |input: &Shaped<'_>| {
        let pairs = input.sizes.iter().rev().zip(output.sizes.iter().rev());
        input.sizes.len() <= output.sizes.len() && pairs.into_iter().all(|(own, whole)| *own == 1 || own == whole)
    };
    match inputs.iter().find(|input| !fits(input)) {
        Some(input) => {
            Err(Error::invalid(format!("it is elementwise, but {} does not fit {}", input.text(), output.text())))
        }
        None => Ok(()),
    }
}

/// A reduction has no more results than elements.
fn reduction(inputs: &[Shaped<'_>], output: &Shaped<'_>) -> Result<()> {
    let Some(largest) = inputs.iter().max_by(|a, b| a.elements().total_cmp(&b.elements())) else { return Ok(()) };
    match output.elements() > largest.elements() {
        true => {
            Err(Error::invalid(format!("it is a reduction, but {} is larger than {}", output.text(), largest.text())))
        }
        false => Ok(()),
    }
}

/// A product with a matrix, either way round, puts one of the matrix's axes in the place of the other.
fn product(rows: &Shaped<'_>, weights: &Shaped<'_>, output: &Shaped<'_>) -> Result<()> {
    let &[first, second] = weights.sizes else { return Ok(()) };
    if rows.sizes.len() < 2 {
        return Ok(());
    }
    let fits = |summed: usize, kept: usize| {
        let is_there = rows.sizes.contains(&summed) && output.sizes.contains(&kept);
        is_there && output.elements() * summed as f64 == rows.elements() * kept as f64
    };
    match fits(first, second) || fits(second, first) {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "it is a contraction, but {} times {} is not {}",
            rows.text(),
            weights.text(),
            output.text()
        ))),
    }
}
