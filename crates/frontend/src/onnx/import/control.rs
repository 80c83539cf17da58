//! If and Loop: regions with explicit captures.

use fuseline::error::{Context, Error, Kind, Result};
use fuseline::graph::{Builder, Graph, Known, Tensor};
use fuseline::tensor::{DType, Shape, Symbol, TensorType};
use indexmap::IndexSet;

use super::super::schema::{GraphProto, NodeProto};
use super::datum::{Datum, Operand, tensors};
use super::node::Place;
use super::order::free_names;
use super::scope::Scope;
use super::sequence::{element_of, joined};
use super::{Importer, truth};

/// Trips of a loop that becomes part of the graph trip by trip.
const MAX_UNROLLED: i64 = 1 << 14;

/// The region that is an attribute of a node.
pub(super) fn region<'m>(node: &'m NodeProto, name: &str) -> Result<&'m GraphProto> {
    let found = optional_region(node, name);
    found.ok_or_else(|| Error::invalid(format!("{} lacks its region \"{name}\"", node.op_type)))
}

/// The region that may be an attribute of a node.
pub(super) fn optional_region<'m>(node: &'m NodeProto, name: &str) -> Option<&'m GraphProto> {
    node.attribute.iter().find(|a| a.name == name).and_then(|a| a.g.as_deref())
}

impl<'m> Importer<'m> {
    pub(super) fn import_if<'s>(
        &self,
        node: &'m NodeProto,
        inputs: &[Operand<'s>],
        place: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        let [condition] = inputs else { return Err(Error::invalid("If takes one operand, the condition")) };
        let condition = condition.tensor()?;
        let builder = place.scope.builder();
        let branches = [region(node, "then_branch")?, region(node, "else_branch")?];
        if let Some(known) = known_int(condition) {
            // The branch that is taken becomes part of the graph around it.
            return self.inline(branches[usize::from(known == 0)], &[], place);
        }
        let names: IndexSet<String> = branches.iter().flat_map(|branch| free_names(branch)).collect();
        let mut captures = Vec::new();
        let mut made = Vec::new();
        for branch in branches {
            let inner = builder.region(branch.name.clone());
            let scope = Scope::root(&inner);
            captures = self.capture(&names, &scope, place.scope)?;
            // A branch that does not fit these inputs may be the one that is not taken.
            self.import_region(branch, &scope, place).map_err(|error| match error.kind() {
                Kind::Invalid => {
                    builder.needs_value(condition, &format!("a branch does not fit unless it is never taken ({error})"))
                }
                _ => error,
            })?;
            let mut results = Vec::new();
            for output in &branch.output {
                let result = scope.lookup(&output.name)?;
                if result.is_poisoned() {
                    return Ok(vec![builder.poison().into(); node.output.len()]); // the cause is noted already
                }
                result.named(&output.name).into_iter().for_each(|(name, tensor)| inner.output(&name, *tensor));
                let kinds = result.tensors().iter().map(|t| Ok((t.dtype()?, t.rank()?))).collect::<Result<Vec<_>>>()?;
                results.push((result.values(), kinds));
            }
            made.push((inner.finish()?, results));
        }
        let (otherwise, other_results) = made.pop().expect("two branches");
        let (then, results) = made.pop().expect("two branches");
        let mut pairs = results.iter().zip(&other_results);
        let same = results.len() == other_results.len() && pairs.all(|(a, b)| a.0.is_like(&b.0) && a.1 == b.1);
        if !same {
            return Err(builder.needs_value(
                condition,
                "the branches of an If return values of different kinds, so its condition must be known",
            ));
        }
        let mut tensors = builder.if_else(condition, then, otherwise, &captures)?.into_iter();
        let joined = results.iter().map(|(result, _)| result.map(|_| tensors.next().expect("one for every output")));
        Ok(joined.collect())
    }

    /// The results of a region whose nodes become part of the graph around it.
    pub(super) fn inline<'s>(
        &self,
        region: &'m GraphProto,
        inputs: &[Operand<'s>],
        place: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        let scope = Scope::inside(place.scope);
        for (input, value) in region.input.iter().zip(inputs) {
            scope.define(&input.name, value.clone())?;
        }
        self.import_region(region, &scope, place)?;
        let outputs = region.output.iter().map(|o| scope.lookup(&o.name));
        outputs.map(|o| Ok(o?.of(place.scope.builder()))).collect()
    }

    /// Outer values as tensors of the outer graph, captured into a region.
    pub(super) fn capture<'s>(
        &self,
        names: &IndexSet<String>,
        inner: &Scope<'_>,
        outer: &Scope<'s>,
    ) -> Result<Vec<Tensor<'s>>> {
        let mut captured = Vec::new();
        for name in names {
            let value = inner.capture_one(name, outer)?;
            self.count(value.len().saturating_sub(1))?;
            captured.extend(value);
        }
        Ok(captured)
    }

    pub(super) fn import_loop<'s>(
        &self,
        node: &'m NodeProto,
        inputs: &[Operand<'s>],
        place: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        let builder = place.scope.builder();
        let body = region(node, "body")?;
        let limit = inputs.first().map_or(Ok(None), Datum::optional)?;
        let limit = limit.unwrap_or_else(|| builder.int(DType::I64, i64::MAX));
        let start = inputs.get(1).map_or(Ok(None), Datum::optional)?.unwrap_or_else(|| truth(builder, true));
        let carried = inputs.get(2..).unwrap_or_default();
        if body.input.len() != carried.len() + 2 || body.output.len() < carried.len() + 1 {
            return Err(Error::invalid(format!(
                "the body of Loop takes {} and returns {} values for {} carried ones",
                body.input.len(),
                body.output.len(),
                carried.len()
            )));
        }
        let names = free_names(body);
        let reads_sequence = || names.iter().any(|name| matches!(place.scope.lookup(name), Ok(Datum::Sequence(_))));
        if !carried.iter().all(Datum::is_tensor) || reads_sequence() {
            return self.unroll(body, limit, start, carried, place);
        }
        let carried = tensors(carried)?;
        let make = |inner: &Builder, scope: &Scope<'_>, carried: &[Tensor<'_>], trip: Tensor<'_>| {
            scope.define(&body.input[0].name, trip)?;
            scope.define(&body.input[1].name, truth(inner, true))?;
            for (name, value) in body.input[2..].iter().zip(carried) {
                scope.define(&name.name, *value)?;
            }
            self.import_region(body, scope, place)?;
            let outputs = body.output.iter().enumerate();
            let outputs = outputs.map(|(k, o)| {
                let value = scope.lookup(&o.name)?.tensor()?;
                Ok(if k == 0 { inner.tensor(value.value()).reshape(Shape::scalar()).value() } else { value.value() })
            });
            outputs.collect::<Result<Vec<_>>>()
        };
        let (graph, captures) = match self.loop_body(body, &carried, place, &make)? {
            Some(done) => done,
            None => return Ok(vec![builder.poison().into(); node.output.len()]),
        };
        let results = builder.loop_(limit.cast(DType::I64), start, &carried, graph, &captures)?;
        Ok(results.into_iter().map(Datum::Tensor).collect())
    }

    /// A loop over sequences, optional values or strings, trip by trip: what they are made of may change in every one, and is known
    /// before run time only. The number of trips and the condition must be known then.
    fn unroll<'s>(
        &self,
        body: &'m GraphProto,
        limit: Tensor<'s>,
        start: Tensor<'s>,
        carried: &[Operand<'s>],
        place: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        let builder = place.scope.builder();
        let known = |tensor: Tensor<'s>, what: &str| {
            let message =
                || format!("{what} of a Loop over sequences, optional values or strings must be known before run time");
            known_int(tensor).ok_or_else(|| builder.needs_value(tensor, &message()))
        };
        let limit = known(limit, "the number of trips")?;
        let mut carried = carried.to_vec();
        let mut stacks: Vec<Vec<Operand<'s>>> = vec![Vec::new(); body.output.len() - carried.len() - 1];
        let (mut trip, mut condition) = (0, start);
        while trip < limit && known(condition, "the condition")? != 0 {
            if trip == MAX_UNROLLED {
                let message =
                    format!("a Loop over sequences, optional values or strings makes more than {MAX_UNROLLED} trips");
                return Err(Error::limit(message));
            }
            let mut inputs = vec![builder.int(DType::I64, trip).into(), truth(builder, true).into()];
            inputs.append(&mut carried);
            let mut results = self.inline(body, &inputs, place).at(|| "body")?;
            if results.iter().any(Datum::is_poisoned) {
                return Ok(vec![builder.poison().into(); body.output.len() - 1]); // the cause is noted already
            }
            for (stack, result) in stacks.iter_mut().zip(results.split_off(inputs.len() - 1)) {
                stack.push(result);
            }
            carried = results.split_off(1);
            condition = results[0].tensor()?;
            trip += 1;
        }
        for stack in stacks {
            if stack.is_empty() {
                return Err(Error::unsupported(
                    "results stacked over no trips of a Loop over sequences, optional values or strings",
                ));
            }
            let kind = stack[0].element()?.0;
            let rows = stack.iter().enumerate().map(|(k, row)| Ok(element_of(kind, k, row)?.insert_axes(&[0])));
            carried.push(joined(kind, &rows.collect::<Result<Vec<_>>>()?, 0)?);
        }
        Ok(carried)
    }

    /// The graph of a loop's body and what it captures. Sizes of carried values that the body changes become symbols
    /// of the body, bound anew in every trip. `make` fills the body and returns its results: the condition first.
    /// `None` when something in it is not supported, which is noted.
    pub(super) fn loop_body<'s>(
        &self,
        body: &'m GraphProto,
        carried: &[Tensor<'s>],
        place: Place<'_, 's>,
        make: &MakeBody<'_>,
    ) -> Result<Option<(Graph, Vec<Tensor<'s>>)>> {
        let builder = place.scope.builder();
        let names = free_names(body);
        let initial: Vec<TensorType> = carried.iter().map(|c| c.ty()).collect::<Result<_>>()?;
        let mut varying: Vec<Vec<bool>> = initial.iter().map(|ty| vec![false; ty.shape.rank()]).collect();
        loop {
            let inner = builder.region(body.name.clone());
            let scope = Scope::root(&inner);
            let trip = inner.input("trip", DType::I64, Shape::scalar());
            let mut values = Vec::new();
            for (k, (ty, varying)) in initial.iter().zip(&varying).enumerate() {
                let dims = ty.shape.dims().iter().zip(varying);
                let dims = dims.map(|(d, v)| if *v { Symbol::Value(inner.fresh_symbol()).into() } else { d.clone() });
                values.push(inner.input(&format!("carried:{k}"), ty.dtype, dims.collect::<Shape>()));
            }
            let captures = self.capture(&names, &scope, place.scope)?;
            let outputs = make(&inner, &scope, &values, trip).at(|| "body")?;
            if outputs.iter().any(|v| inner.tensor(*v).is_poisoned()) {
                return Ok(None);
            }
            let mut stable = true;
            for (k, ty) in initial.iter().enumerate() {
                let (input, output) = (values[k].ty()?, inner.tensor(outputs[k + 1]).ty()?);
                if input.dtype != output.dtype || input.shape.rank() != output.shape.rank() {
                    return Err(Error::unsupported(format!("a carried value that turns from {ty} into {output}")));
                }
                for (axis, varies) in varying[k].iter_mut().enumerate() {
                    if input.shape[axis] != output.shape[axis] && !*varies {
                        *varies = true;
                        stable = false;
                    }
                }
            }
            if !stable {
                continue;
            }
            for (k, value) in outputs.iter().enumerate() {
                inner.output(&format!("{k}"), inner.tensor(*value));
            }
            return Ok(Some((inner.finish()?, captures)));
        }
    }
}

/// The integer that a tensor of one element is known to be.
pub(super) fn known_int(tensor: Tensor<'_>) -> Option<i64> {
    match tensor.builder().contents(tensor)?.as_ref() {
        [Known::Int(known)] => known.as_int(),
        _ => None,
    }
}

/// Fills the body of a loop: builder, scope, carried values, trip number → results, the condition first.
pub(super) type MakeBody<'f> =
    dyn Fn(&Builder, &Scope<'_>, &[Tensor<'_>], Tensor<'_>) -> Result<Vec<fuseline::graph::Value>> + 'f;
