//! Attention with regions that change scores and probabilities; their nodes go into the graph around it.

use std::cell::Cell;

use fuseline::error::{Error, Result};
use fuseline::graph::Tensor;
use fuseline::ops::named::{Attribute, flex_attention};
use fuseline::tensor::DType;

use super::super::schema::{GraphProto, NodeProto};
use super::Importer;
use super::attributes::attributes;
use super::control::optional_region;
use super::datum::{Datum, Operand};
use super::node::Place;
use super::scope::Scope;

impl<'m> Importer<'m> {
    pub(super) fn import_flex_attention<'s>(
        &self,
        node: &'m NodeProto,
        inputs: &[Operand<'s>],
        place: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        let &[Datum::Tensor(q), Datum::Tensor(k), Datum::Tensor(v)] = inputs else {
            return Err(Error::invalid("FlexAttention takes queries, keys and values"));
        };
        let (mut scale, mut precision) = (None, None);
        for (name, value) in attributes(node, place.call, self.file)? {
            match (name.as_str(), value) {
                ("scale", Attribute::Float(x)) => scale = Some(x),
                ("softmax_precision", Attribute::Str(dtype)) => precision = DType::from_name(&dtype),
                _ => return Err(Error::unsupported(format!("attribute {name} of FlexAttention"))),
            }
        }
        let has_gap = Cell::new(false);
        let change = |name: &'static str| {
            let has_gap = &has_gap;
            move |x: Tensor<'s>| match optional_region(node, name) {
                Some(region) => x.builder().keep_origin(|| self.change(region, x, place, has_gap)),
                None => Ok(x),
            }
        };
        match flex_attention([q, k, v], scale, precision, change("score_mod"), change("prob_mod")) {
            // What a region lacks is noted already.
            Err(_) if has_gap.get() => Ok(vec![place.scope.builder().poison().into()]),
            y => Ok(vec![y?.into()]),
        }
    }

    /// What a region of one operand makes of a tensor; its type stays the same. Where something in it is not supported, `has_gap`
    /// says so, and the error says nothing.
    fn change<'s>(
        &self,
        region: &'m GraphProto,
        x: Tensor<'s>,
        place: Place<'_, 's>,
        has_gap: &Cell<bool>,
    ) -> Result<Tensor<'s>> {
        let ([input], [output]) = (region.input.as_slice(), region.output.as_slice()) else {
            return Err(Error::invalid("a region of FlexAttention takes one tensor and returns one"));
        };
        let scope = Scope::inside(place.scope);
        scope.define(&input.name, x)?;
        self.import_region(region, &scope, place)?;
        let result = scope.lookup(&output.name)?;
        if result.is_poisoned() {
            has_gap.set(true);
            return Err(Error::unsupported("a region of FlexAttention"));
        }
        let changed = x.builder().tensor(result.tensor()?.value());
        let (before, after) = (x.ty()?, changed.ty()?);
        if before.dtype != after.dtype || before.shape.rank() != after.shape.rank() {
            return Err(Error::invalid(format!("a region of FlexAttention turns {before} into {after}")));
        }
        Ok(changed.expand(before.shape))
    }
}
