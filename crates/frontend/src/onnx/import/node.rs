//! One node: an operator of table 3, control flow, or a function of the model.

use std::collections::HashMap;

use fuseline::error::{Allowance, Error, Result};
use fuseline::graph::Origin;
use fuseline::ops::named::{self, Attributes, Call};

use super::super::schema::{FunctionProto, GraphProto, NodeProto};
use super::attributes::{attribute, attributes};
use super::datum::{Datum, Operand};
use super::scope::Scope;
use super::{Importer, node_name, opset_versions, order, standard_domain, structural, text};

/// What surrounds a node: its graph's names, the versions of the operator sets, how deep it lies, and the attributes of
/// the function call it is part of.
#[derive(Clone, Copy)]
pub(super) struct Place<'p, 's> {
    pub scope: &'p Scope<'s>,
    pub opsets: &'p HashMap<String, u32>,
    pub depth: usize,
    pub call: Option<&'p Attributes>,
}

impl<'m> Importer<'m> {
    pub(super) fn import_node(
        &self,
        node: &'m NodeProto,
        id: usize,
        scope: &Scope<'_>,
        opsets: &HashMap<String, u32>,
        depth: usize,
    ) -> Result<()> {
        self.import_at(node, id, Place { scope, opsets, depth, call: None })
    }

    /// Counts nodes against the limit.
    pub(super) fn count(&self, nodes: usize) -> Result<()> {
        self.imported.set(self.imported.get().saturating_add(nodes));
        self.limits.budget.check()?;
        let most = self.limits.nodes;
        if self.imported.get() > most {
            return Err(Error::over(
                Allowance::Nodes,
                format!("the model has more than {most} nodes once its functions and sequences are expanded"),
            ));
        }
        Ok(())
    }

    /// Imports a node and names its results. Gaps are noted and their results poisoned.
    fn import_at(&self, node: &'m NodeProto, id: usize, place: Place<'_, '_>) -> Result<()> {
        self.count(1)?;
        let builder = place.scope.builder();
        let names = [&node.name, &node.op_type, &node.domain, &node.overload];
        names.into_iter().chain(&node.input).chain(&node.output).try_for_each(|name| self.limits.check_name(name))?;
        let name = node_name(node, id);
        let label = || format!("node \"{name}\" ({})", node.op_type);
        if place.depth == 0 || place.call.is_none() {
            builder.set_origin(Some(Origin { op: node.op_type.as_str().into(), name: name.as_str().into() }));
        }
        let results = self.results(node, place);
        // Errors that operations kept to themselves come first: they are the cause.
        let results = match (builder.take_error(), results) {
            (Some(error), _) | (None, Err(error)) => Err(error),
            (None, Ok(results)) => Ok(results),
        };
        let results = match results {
            Ok(results) => results,
            Err(error) => vec![self.tolerate(error.at(label()), builder)?.into(); node.output.len()],
        };
        for (k, output) in node.output.iter().enumerate().filter(|(_, o)| !o.is_empty()) {
            let missing = || Error::invalid(format!("{} has no result {k}", node.op_type)).at(label());
            let result = results.get(k).ok_or_else(missing)?;
            place.scope.define(output, result.clone()).map_err(|e| e.at(label()))?;
        }
        let most = self.limits.nodes;
        match builder.with_graph(|graph| graph.nodes().len()) > most {
            true => {
                Err(Error::over(Allowance::Nodes, format!("the nodes of the model become more than {most} primitives"))
                    .at(label()))
            }
            false => Ok(()),
        }
    }

    fn results<'s>(&self, node: &'m NodeProto, place: Place<'_, 's>) -> Result<Vec<Operand<'s>>> {
        let scope = place.scope;
        let domain = standard_domain(&node.domain);
        let inputs: Vec<Operand<'s>> = node
            .input
            .iter()
            .map(|name| if name.is_empty() { Ok(Datum::Nothing) } else { scope.lookup(name) })
            .collect::<Result<_>>()?;
        self.count_elements(inputs.iter().map(|input| input.tensors().len().saturating_sub(1)).sum())?;
        let key = (node.domain.as_str(), node.op_type.as_str(), node.overload.as_str());
        if let Some(function) = self.functions.get(&key) {
            let given = attributes(node, place.call, self.file)?;
            return self.call_function(function, &inputs, given, place);
        }
        let opset = place.opsets.get(domain).copied();
        let opset = opset
            .ok_or_else(|| Error::invalid(format!("the model imports no version of the operator set \"{domain}\"")))?;
        if inputs.iter().any(Datum::is_poisoned) {
            self.note_gap(node, domain);
            return Ok(vec![scope.builder().poison().into(); node.output.len()]); // its cause is noted already
        }
        if let Some(op) = structural::find(domain, &node.op_type) {
            check_version(op.name, op.since, opset)?;
            check_attributes(op.name, op.attributes, node.attribute.iter().map(|a| &a.name))?;
            return (op.import)(self, node, &inputs, place);
        }
        let op = named::find(domain, &node.op_type).ok_or_else(|| missing_operator(domain, &node.op_type))?;
        check_version(op.name, op.since, opset)?;
        if let ("", "Constant") = (op.domain, op.name)
            && let Some(texts) = self.constant_texts(node, place)?
        {
            return Ok(vec![texts]);
        }
        let attributes = attributes(node, place.call, self.file)?;
        check_attributes(op.name, op.attributes, attributes.keys())?;
        let call = Call {
            builder: scope.builder(),
            op,
            inputs: &[],
            attributes: &attributes,
            outputs: node.output.iter().rposition(|o| !o.is_empty()).map_or(0, |k| k + 1),
            opset,
        };
        text::expand(&call, &inputs)
    }

    /// An operator that is missing is told even where its operands could not be made.
    fn note_gap(&self, node: &NodeProto, domain: &str) {
        if structural::find(domain, &node.op_type).is_none() && named::find(domain, &node.op_type).is_none() {
            let error = missing_operator(domain, &node.op_type);
            self.trouble.borrow_mut().gaps.insert(format!(
                "node \"{}\" ({}): {}",
                node_name(node, 0),
                node.op_type,
                error.message()
            ));
        }
    }

    /// The body of a function with its parameters bound to the operands; its nodes go into the graph of the caller.
    fn call_function<'s>(
        &self,
        function: &'m FunctionProto,
        inputs: &[Operand<'s>],
        mut given: Attributes,
        place: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        let most = self.limits.nesting;
        if place.depth >= most {
            return Err(Error::over(
                Allowance::Nesting,
                format!("functions call each other more than {most} levels deep"),
            ));
        }
        for default in &function.attribute_proto {
            if !given.contains_key(&default.name)
                && let Some(value) = attribute(default, self.file)?
            {
                given.insert(default.name.clone(), value);
            }
        }
        if inputs.len() > function.input.len() {
            return Err(Error::invalid(format!(
                "{} operands for a function of {}",
                inputs.len(),
                function.input.len()
            )));
        }
        let scope = Scope::root(place.scope.builder());
        // A parameter that the call leaves out is an operand that is left out.
        let operands = inputs.iter().cloned().chain(std::iter::repeat(Datum::Nothing));
        for (name, operand) in function.input.iter().zip(operands) {
            scope.define(name, operand)?;
        }
        let opsets = opset_versions(&function.opset_import)?;
        let inner = Place { scope: &scope, opsets: &opsets, depth: place.depth + 1, call: Some(&given) };
        for id in order::evaluation_order(&function.node)? {
            self.import_at(&function.node[id], id, inner)?;
        }
        function.output.iter().map(|name| scope.lookup(name)).collect()
    }

    /// A region's own nodes, in its scope.
    pub(super) fn import_region(&self, graph: &'m GraphProto, scope: &Scope<'_>, place: Place<'_, '_>) -> Result<()> {
        let most = self.limits.nesting;
        if place.depth >= most {
            return Err(Error::over(Allowance::Nesting, format!("regions are nested deeper than {most} levels")));
        }
        self.define_initializers(graph, scope)?;
        let inner = Place { scope, opsets: place.opsets, depth: place.depth + 1, call: place.call };
        for id in order::evaluation_order(&graph.node)? {
            self.import_at(&graph.node[id], id, inner)?;
        }
        Ok(())
    }
}

fn check_version(name: &str, since: u32, opset: u32) -> Result<()> {
    if opset < since {
        let message = format!("{name} of operator set version {opset} (supported from {since})");
        return Err(Error::unsupported(message));
    }
    Ok(())
}

fn check_attributes<'a>(name: &str, known: &[&str], mut given: impl Iterator<Item = &'a String>) -> Result<()> {
    match given.find(|attribute| !known.contains(&attribute.as_str())) {
        Some(unknown) => Err(Error::unsupported(format!("attribute {unknown} of {name}"))),
        None => Ok(()),
    }
}

fn missing_operator(domain: &str, name: &str) -> Error {
    let domain = if domain.is_empty() { String::new() } else { format!("{domain}.") };
    Error::unsupported(format!("operator {domain}{name}"))
}
