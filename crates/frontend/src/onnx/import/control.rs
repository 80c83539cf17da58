//! If and Loop: regions with explicit captures.

use fuseline::error::{Context, Error, Kind, Result};
use fuseline::graph::{Builder, Graph, Known, Tensor};
use fuseline::tensor::{DType, Shape, Symbol, TensorType};
use indexmap::IndexSet;

use super::super::schema::{GraphProto, NodeProto};
use super::node::Place;
use super::order::free_names;
use super::scope::Scope;
use super::{Importer, truth};

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
        inputs: &[Option<Tensor<'s>>],
        place: Place<'_, 's>,
    ) -> Result<Vec<Tensor<'s>>> {
        let [Some(condition)] = inputs else { return Err(Error::invalid("If takes one operand, the condition")) };
        let condition = *condition;
        let builder = place.scope.builder();
        let (then, otherwise) = (region(node, "then_branch")?, region(node, "else_branch")?);
        if let Some(Known::Int(known)) = builder.contents(condition).and_then(|c| c.first().cloned())
            && let Some(known) = known.as_int()
        {
            // The branch that is taken becomes part of the graph around it.
            let branch = if known != 0 { then } else { otherwise };
            let scope = Scope::inside(place.scope);
            self.import_region(branch, &scope, place)?;
            let outputs = branch.output.iter().map(|o| scope.lookup(&o.name));
            return outputs.map(|o| o.map(|t| builder.tensor(t.value()))).collect();
        }
        let names: IndexSet<String> = free_names(then).into_iter().chain(free_names(otherwise)).collect();
        let mut captures = Vec::new();
        let mut graphs = Vec::new();
        for branch in [then, otherwise] {
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
            for output in &branch.output {
                inner.output(&output.name, scope.lookup(&output.name)?);
            }
            let complete = inner.with_graph(|g| g.outputs().len()) == branch.output.len();
            if !complete {
                return Ok(vec![builder.poison(); node.output.len()]); // the cause is noted already
            }
            graphs.push(inner.finish()?);
        }
        let otherwise = graphs.pop().expect("two branches");
        let then = graphs.pop().expect("two branches");
        let same_kind = |g: &Graph, h: &Graph| {
            let kinds = |g: &Graph| {
                g.outputs().iter().map(|o| (g.ty(o.value).dtype, g.ty(o.value).shape.rank())).collect::<Vec<_>>()
            };
            kinds(g) == kinds(h)
        };
        if !same_kind(&then, &otherwise) {
            return Err(builder.needs_value(
                condition,
                "the branches of an If return tensors of different ranks, so its condition must be known",
            ));
        }
        builder.if_else(condition, then, otherwise, &captures)
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
            inner.capture_one(name, outer)?.into_iter().for_each(|t| captured.push(t));
        }
        Ok(captured)
    }

    pub(super) fn import_loop<'s>(
        &self,
        node: &'m NodeProto,
        inputs: &[Option<Tensor<'s>>],
        place: Place<'_, 's>,
    ) -> Result<Vec<Tensor<'s>>> {
        let builder = place.scope.builder();
        let body = region(node, "body")?;
        let trips = inputs.first().copied().flatten().unwrap_or_else(|| builder.int(DType::I64, i64::MAX));
        let start = inputs.get(1).copied().flatten().unwrap_or_else(|| truth(builder, true));
        let carried: Option<Vec<Tensor<'s>>> = inputs.iter().skip(2).copied().collect();
        let carried = carried.ok_or_else(|| Error::invalid("a carried value of Loop is missing"))?;
        if body.input.len() != carried.len() + 2 || body.output.len() < carried.len() + 1 {
            return Err(Error::invalid(format!(
                "the body of Loop takes {} and returns {} values for {} carried ones",
                body.input.len(),
                body.output.len(),
                carried.len()
            )));
        }
        let make = |inner: &Builder, scope: &Scope<'_>, carried: &[Tensor<'_>], trip: Tensor<'_>| {
            scope.define(&body.input[0].name, trip)?;
            scope.define(&body.input[1].name, truth(inner, true))?;
            for (name, value) in body.input[2..].iter().zip(carried) {
                scope.define(&name.name, *value)?;
            }
            self.import_region(body, scope, place)?;
            let outputs = body.output.iter().enumerate();
            let outputs = outputs.map(|(k, o)| {
                let value = scope.lookup(&o.name)?;
                Ok(if k == 0 { inner.tensor(value.value()).reshape(Shape::scalar()).value() } else { value.value() })
            });
            outputs.collect::<Result<Vec<_>>>()
        };
        let (graph, captures) = match self.loop_body(body, &carried, place, &make)? {
            Some(done) => done,
            None => return Ok(vec![builder.poison(); node.output.len()]),
        };
        builder.loop_(trips.cast(DType::I64), start, &carried, graph, &captures)
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

/// Fills the body of a loop: builder, scope, carried values, trip number → results, the condition first.
pub(super) type MakeBody<'f> =
    dyn Fn(&Builder, &Scope<'_>, &[Tensor<'_>], Tensor<'_>) -> Result<Vec<fuseline::graph::Value>> + 'f;
