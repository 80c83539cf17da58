//! One node: an operator of table 3, control flow, or a function of the model.

use fuseline::error::{Error, Result};
use fuseline::graph::{Origin, Tensor};
use fuseline::ops::named::{self, Attributes, Call};
use rustc_hash::FxHashMap;

use super::super::schema::{FunctionProto, GraphProto, NodeProto};
use super::attributes::{attribute, attributes};
use super::scope::Scope;
use super::{Importer, MAX_DEPTH, MAX_NODES, node_name, opset_versions, order, standard_domain};

/// What surrounds a node: its graph's names, the versions of the operator sets, how deep it lies, and the attributes of
/// the function call it is part of.
#[derive(Clone, Copy)]
pub(super) struct Place<'p, 's> {
    pub scope: &'p Scope<'s>,
    pub opsets: &'p FxHashMap<String, u32>,
    pub depth: usize,
    pub call: Option<&'p Attributes>,
}

impl<'m> Importer<'m> {
    pub(super) fn import_node(
        &self,
        node: &'m NodeProto,
        id: usize,
        scope: &Scope<'_>,
        opsets: &FxHashMap<String, u32>,
        depth: usize,
    ) -> Result<()> {
        self.import_at(node, id, Place { scope, opsets, depth, call: None })
    }

    /// Imports a node and names its results. Gaps are noted and their results poisoned.
    fn import_at(&self, node: &'m NodeProto, id: usize, place: Place<'_, '_>) -> Result<()> {
        self.imported.set(self.imported.get() + 1);
        if self.imported.get() > MAX_NODES {
            return Err(Error::limit(format!(
                "the model has more than {MAX_NODES} nodes once its functions are expanded"
            )));
        }
        let builder = place.scope.builder();
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
            Err(error) => vec![self.tolerate(error.at(label()), builder)?; node.output.len()],
        };
        for (k, output) in node.output.iter().enumerate().filter(|(_, o)| !o.is_empty()) {
            let missing = || Error::invalid(format!("{} has no result {k}", node.op_type)).at(label());
            place.scope.define(output, *results.get(k).ok_or_else(missing)?).map_err(|e| e.at(label()))?;
        }
        Ok(())
    }

    fn results<'s>(&self, node: &'m NodeProto, place: Place<'_, 's>) -> Result<Vec<Tensor<'s>>> {
        let scope = place.scope;
        let domain = standard_domain(&node.domain);
        let inputs: Vec<Option<Tensor<'s>>> = node
            .input
            .iter()
            .map(|name| if name.is_empty() { Ok(None) } else { scope.lookup(name).map(Some) })
            .collect::<Result<_>>()?;
        let key = (node.domain.as_str(), node.op_type.as_str(), node.overload.as_str());
        if let Some(function) = self.functions.get(&key) {
            let given = attributes(node, place.call, self.file)?;
            return self.call_function(function, &inputs, given, place);
        }
        let opset = place.opsets.get(domain).copied();
        let opset = opset
            .ok_or_else(|| Error::invalid(format!("the model imports no version of the operator set \"{domain}\"")))?;
        let poisoned = || vec![scope.builder().poison(); node.output.len()];
        if inputs.iter().flatten().any(|t| t.is_poisoned()) {
            self.note_gap(node, domain);
            return Ok(poisoned()); // its cause is noted already
        }
        match (domain, node.op_type.as_str()) {
            ("", "If") => return self.import_if(node, &inputs, place),
            ("", "Loop") => return self.import_loop(node, &inputs, place),
            ("", "Scan") => return self.import_scan(node, &inputs, place),
            ("ai.onnx.preview", "FlexAttention") => return self.import_flex_attention(node, &inputs, place),
            ("ai.onnx.preview.training", "Gradient") => return self.import_gradient(node, &inputs, place),
            _ => {}
        }
        let op = named::find(domain, &node.op_type).ok_or_else(|| missing_operator(domain, &node.op_type))?;
        if opset < op.since {
            return Err(Error::unsupported(format!(
                "{} of operator set version {opset} (supported from {})",
                op.name, op.since
            )));
        }
        let attributes = attributes(node, place.call, self.file)?;
        if let Some(unknown) = attributes.keys().find(|a| !op.attributes.contains(&a.as_str())) {
            return Err(Error::unsupported(format!("attribute {unknown} of {}", op.name)));
        }
        let call = Call {
            builder: scope.builder(),
            op,
            inputs: &inputs,
            attributes: &attributes,
            outputs: node.output.iter().rposition(|o| !o.is_empty()).map_or(0, |k| k + 1),
            opset,
        };
        (op.expand)(&call)
    }

    /// An operator that is missing is told even where its operands could not be made.
    fn note_gap(&self, node: &NodeProto, domain: &str) {
        let imported_here = matches!(
            (domain, node.op_type.as_str()),
            ("", "If" | "Loop" | "Scan")
                | ("ai.onnx.preview", "FlexAttention")
                | ("ai.onnx.preview.training", "Gradient")
        );
        if !imported_here && named::find(domain, &node.op_type).is_none() {
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
        inputs: &[Option<Tensor<'s>>],
        mut given: Attributes,
        place: Place<'_, 's>,
    ) -> Result<Vec<Tensor<'s>>> {
        if place.depth >= MAX_DEPTH {
            return Err(Error::limit(format!("functions call each other more than {MAX_DEPTH} levels deep")));
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
        for (k, name) in function.input.iter().enumerate() {
            if let Some(value) = inputs.get(k).copied().flatten() {
                scope.define(name, value)?;
            }
        }
        let opsets = opset_versions(&function.opset_import)?;
        let inner = Place { scope: &scope, opsets: &opsets, depth: place.depth + 1, call: Some(&given) };
        for id in order::evaluation_order(&function.node)? {
            self.import_in_function(&function.node[id], id, inner, function)?;
        }
        function.output.iter().map(|name| scope.lookup(name)).collect()
    }

    fn import_in_function(
        &self,
        node: &'m NodeProto,
        id: usize,
        place: Place<'_, '_>,
        function: &FunctionProto,
    ) -> Result<()> {
        // A parameter that the call leaves out is an operand that is left out.
        let absent = |name: &String| !name.is_empty() && function.input.contains(name) && !place.scope.knows(name);
        if node.input.iter().any(absent) {
            let mut trimmed = node.clone();
            trimmed.input.iter_mut().filter(|n| absent(n)).for_each(String::clear);
            // The copy lives as long as the model's own nodes would: only its results are kept.
            return self.import_copy(&trimmed, id, place);
        }
        self.import_at(node, id, place)
    }

    fn import_copy(&self, node: &NodeProto, id: usize, place: Place<'_, '_>) -> Result<()> {
        let inner = Importer {
            file: self.file,
            pins: self.pins,
            opsets: self.opsets.clone(),
            functions: self.functions.iter().map(|(k, f)| (*k, *f)).collect(),
            trouble: std::cell::RefCell::default(),
            imported: self.imported.clone(),
        };
        let done = inner.import_at(node, id, place);
        self.imported.set(inner.imported.get());
        let found = inner.trouble.into_inner();
        let mut trouble = self.trouble.borrow_mut();
        trouble.gaps.extend(found.gaps);
        trouble.inputs.extend(found.inputs);
        trouble.needs = trouble.needs.take().or(found.needs);
        done
    }

    /// A region's own nodes, in its scope.
    pub(super) fn import_region(&self, graph: &'m GraphProto, scope: &Scope<'_>, place: Place<'_, '_>) -> Result<()> {
        if place.depth >= MAX_DEPTH {
            return Err(Error::limit(format!("regions are nested deeper than {MAX_DEPTH} levels")));
        }
        self.define_initializers(graph, scope)?;
        let inner = Place { scope, opsets: place.opsets, depth: place.depth + 1, call: place.call };
        for id in order::evaluation_order(&graph.node)? {
            self.import_at(&graph.node[id], id, inner)?;
        }
        Ok(())
    }
}

fn missing_operator(domain: &str, name: &str) -> Error {
    let domain = if domain.is_empty() { String::new() } else { format!("{domain}.") };
    Error::unsupported(format!("operator {domain}{name}"))
}
