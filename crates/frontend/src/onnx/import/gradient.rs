//! The gradient of a value of the graph, which the node names in an attribute.

use fuseline::error::{Error, Result};
use fuseline::graph::gradient::gradients;
use fuseline::ops::named::Attribute;
use fuseline::tensor::Shape;

use super::super::schema::NodeProto;
use super::Importer;
use super::attributes::attributes;
use super::datum::{Datum, Operand, tensors};
use super::node::Place;

impl<'m> Importer<'m> {
    /// Operands are the values to differentiate by, then those that are constant; attributes name them, which makes
    /// sense here only if they are the same values.
    pub(super) fn import_gradient<'s>(
        &self,
        node: &'m NodeProto,
        inputs: &[Operand<'s>],
        place: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        let given = attributes(node, place.call, self.file)?;
        let names = |name: &str| match given.get(name) {
            Some(Attribute::Strs(list)) => list.clone(),
            _ => Vec::new(),
        };
        let (by, held) = (names("xs"), names("zs"));
        let Some(Attribute::Str(output)) = given.get("y") else {
            return Err(Error::invalid("Gradient lacks its attribute y"));
        };
        let operands = tensors(inputs)?;
        if operands.len() != by.len() + held.len() {
            return Err(Error::invalid("Gradient needs an operand for each of xs and zs"));
        }
        // Its operands could be made; what they are differentiated for, and what attributes call them, perhaps not.
        let named = by.iter().chain(&held).chain([output]).map(|name| place.scope.lookup(name));
        if named.collect::<Result<Vec<_>>>()?.iter().any(Datum::is_poisoned) {
            return Ok(vec![place.scope.builder().poison().into(); node.output.len()]); // the cause is noted already
        }
        for (name, operand) in by.iter().chain(&held).zip(&operands) {
            if place.scope.lookup(name)?.tensor()?.value() != operand.value() {
                return Err(Error::unsupported(format!("Gradient with another value for \"{name}\"")));
            }
        }
        let output = place.scope.lookup(output)?.tensor()?.reshape(Shape::scalar());
        Ok(gradients(output, &operands[..by.len()])?.into_iter().map(Datum::Tensor).collect())
    }
}
