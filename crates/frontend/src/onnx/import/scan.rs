//! Scan as a loop: slices are taken by the trip number, results are stacked.

use fuseline::error::{Error, Result};
use fuseline::graph::{Builder, Tensor};
use fuseline::ops::named::Attribute;
use fuseline::tensor::{DType, Shape};

use super::super::schema::NodeProto;
use super::attributes::attributes;
use super::control::region;
use super::datum::{Datum, Operand, optional_tensors};
use super::node::Place;
use super::order::free_names;
use super::scope::Scope;
use super::{Importer, truth};

impl<'m> Importer<'m> {
    pub(super) fn import_scan<'s>(
        &self,
        node: &'m NodeProto,
        inputs: &[Operand<'s>],
        place: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        let inputs = optional_tensors(inputs)?;
        let results = if place.opsets.get("").is_some_and(|v| *v < 9) {
            self.import_batched_scan(node, &inputs, place)?
        } else {
            self.scan(node, &inputs, place)?
        };
        Ok(results.into_iter().map(Datum::Tensor).collect())
    }

    /// Version 8: operands and results have a batch axis in front, over which the scan itself is repeated.
    fn import_batched_scan<'s>(
        &self,
        node: &'m NodeProto,
        inputs: &[Option<Tensor<'s>>],
        place: Place<'_, 's>,
    ) -> Result<Vec<Tensor<'s>>> {
        let builder = place.scope.builder();
        let (lengths, operands) = inputs.split_first().ok_or_else(|| Error::invalid("Scan without operands"))?;
        if lengths.is_some() {
            return Err(Error::unsupported("Scan of operator set version 8 with sequence_lens"));
        }
        let operands: Option<Vec<Tensor<'s>>> = operands.iter().copied().collect();
        let operands = operands.filter(|o| !o.is_empty());
        let mut captured = operands.ok_or_else(|| Error::invalid("an operand of Scan is missing"))?;
        let batch = captured[0].dim(0)?;
        let region_of_row = builder.region("row of Scan");
        let scope = Scope::root(&region_of_row);
        let trip = region_of_row.input("trip", DType::I64, Shape::scalar());
        let mut rows = Vec::with_capacity(captured.len());
        for (k, operand) in captured.iter().enumerate() {
            builder.require_equal(&batch, &operand.dim(0)?, "the batches of Scan's operands")?;
            let ty = operand.ty()?;
            rows.push(Some(region_of_row.input(&format!("operand:{k}"), ty.dtype, ty.shape).take(0, trip)));
        }
        captured.extend(self.capture(&free_names(region(node, "body")?), &scope, place.scope)?);
        let results = self.scan(node, &rows, Place { scope: &scope, ..place })?;
        if results.iter().any(|r| r.is_poisoned()) {
            return Ok(vec![builder.poison(); node.output.len()]); // the cause is noted already
        }
        region_of_row.output("go_on", truth(&region_of_row, true));
        for (k, result) in results.iter().enumerate() {
            region_of_row.output(&format!("{k}"), *result);
        }
        let trips = builder.size(&batch);
        builder.loop_(trips, truth(builder, true), &[], region_of_row.finish()?, &captured)
    }

    fn scan<'s>(
        &self,
        node: &'m NodeProto,
        inputs: &[Option<Tensor<'s>>],
        place: Place<'_, 's>,
    ) -> Result<Vec<Tensor<'s>>> {
        let builder = place.scope.builder();
        let given = attributes(node, place.call, self.file)?;
        let ints = |name: &str| match given.get(name) {
            Some(Attribute::Ints(list)) => list.clone(),
            _ => Vec::new(),
        };
        let Some(Attribute::Int(count)) = given.get("num_scan_inputs") else {
            return Err(Error::invalid("Scan lacks its attribute num_scan_inputs"));
        };
        let body = region(node, "body")?;
        let all: Option<Vec<Tensor<'s>>> = inputs.iter().copied().collect();
        let all = all.ok_or_else(|| Error::invalid("an operand of Scan is missing"))?;
        let states = usize::try_from(*count).ok().and_then(|n| all.len().checked_sub(n));
        let states = states.filter(|n| *n < all.len() && body.input.len() == all.len() && body.output.len() >= *n);
        let states =
            states.ok_or_else(|| Error::invalid(format!("num_scan_inputs = {count} for {} operands", all.len())))?;
        let (carried, scanned) = all.split_at(states);
        let flag = |list: &[i64], k: usize| list.get(k).is_some_and(|d| *d != 0);
        let (axes, mut directions) = (ints("scan_input_axes"), ints("scan_input_directions"));
        directions.extend(ints("directions")); // the name in version 8
        for list in [&directions, &ints("scan_output_directions")] {
            if let Some(other) = list.iter().find(|d| !(0..=1).contains(*d)) {
                return Err(Error::invalid(format!("a direction of Scan is {other}, not 0 (forward) or 1 (reverse)")));
            }
        }
        // Every scanned operand with its slices along axis 0, in the order in which they are taken.
        let mut lines = Vec::new();
        for (k, tensor) in scanned.iter().enumerate() {
            let axis = tensor.axis(axes.get(k).copied().unwrap_or(0))?;
            let tensor = if flag(&directions, k) { tensor.flip(axis) } else { *tensor };
            lines.push(move_axis(tensor, axis, 0)?);
        }
        let trips = lines[0].dim(0)?;
        for line in &lines[1..] {
            builder.require_equal(&trips, &line.dim(0)?, "the lengths of Scan's operands")?;
        }
        let make = |inner: &Builder, scope: &Scope<'_>, carried: &[Tensor<'_>], trip: Tensor<'_>| {
            for (info, value) in body.input.iter().zip(carried) {
                scope.define(&info.name, *value)?;
            }
            for (info, line) in body.input[states..].iter().zip(&lines) {
                let ty = line.ty()?;
                let whole = inner.input(&format!("scanned:{}", info.name), ty.dtype, ty.shape);
                scope.define(&info.name, inner.tensor(whole.take(0, inner.tensor(trip.value())).value()))?;
            }
            self.import_region(body, scope, place)?;
            let results = body.output.iter().map(|o| Ok(scope.lookup(&o.name)?.tensor()?.value()));
            let condition = std::iter::once(Ok(truth(inner, true).value()));
            condition.chain(results).collect::<Result<Vec<_>>>()
        };
        let Some((graph, mut captures)) = self.loop_body(body, carried, place, &make)? else {
            return Ok(vec![builder.poison(); node.output.len()]);
        };
        captures.extend(lines);
        let trips = builder.size(&trips).reshape(Shape::scalar()).cast(DType::I64);
        let mut results = builder.loop_(trips, truth(builder, true), carried, graph, &captures)?;
        let (axes, directions) = (ints("scan_output_axes"), ints("scan_output_directions"));
        for (k, stack) in results.iter_mut().enumerate().skip(states) {
            let k = k - states;
            if flag(&directions, k) {
                *stack = stack.flip(0);
            }
            let axis = stack.axis(axes.get(k).copied().unwrap_or(0))?;
            *stack = move_axis(*stack, 0, axis)?;
        }
        Ok(results)
    }
}

/// The tensor with axis `from` at place `to`.
fn move_axis(tensor: Tensor<'_>, from: usize, to: usize) -> Result<Tensor<'_>> {
    let mut order: Vec<usize> = (0..tensor.rank()?).collect();
    let axis = order.remove(from);
    order.insert(to, axis);
    Ok(tensor.permute(&order))
}
