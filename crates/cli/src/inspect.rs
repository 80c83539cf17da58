//! `fuseline inspect`: what a model takes, returns, computes and moves.

use fuseline::analysis::{Footprint, Footprints};
use fuseline::error::{Error, Kind};
use fuseline::graph::{Graph, Origin};
use fuseline::ops::Prim;
use fuseline::tensor::{Dim, Env};
use fuseline_frontend::onnx::dtype_of_code;
use fuseline_frontend::onnx::import::{Port, Signature};
use fuseline_frontend::onnx::schema::{GraphProto, ModelProto};
use fuseline_session::plan::name::cut_path;
use indexmap::IndexMap;
use serde_json::{Map, Value, json};

use crate::arguments::Inspect;
use crate::failure::Outcome;
use crate::formula::formula;
use crate::given_inputs;
use crate::histogram::Histogram;
use crate::model::{self, Content, Model, type_text};
use crate::quantity;
use crate::screen::{self, Column, Table, heading, title};

/// Inspects a model.
pub fn inspect(arguments: &Inspect) -> Outcome {
    let model = Model::open(&arguments.model, arguments.dtype, &arguments.limits)?;
    let mut env = model.bind_sizes(&arguments.sizes)?;
    let inputs = given_inputs::read(&model, &arguments.inputs, &mut env)?;
    let (graph, problem) = match model.graph(&inputs, &env) {
        Ok(graph) => (Some(graph), None),
        Err(error) if matches!(error.kind(), Kind::Unsupported | Kind::NeedsValue) => (None, Some(error)),
        Err(error) => return Err(model.failed(error)),
    };
    if let (true, Some(graph)) = (arguments.graph, &graph) {
        return screen::print_code(&format!("{:#}\n", **graph));
    }
    let inspection = Inspection::new(&model, graph.as_deref(), env, problem.as_ref());
    match arguments.json {
        true => screen::print_json(&inspection.json())?,
        false => screen::print(&inspection.text(arguments.top))?,
    }
    match problem {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

/// All that is told of a model.
struct Inspection<'a> {
    model: &'a Model,
    signature: Signature,
    env: Env,
    parameters: Parameters,
    operators: Histogram,
    primitives: Histogram,
    footprints: Option<Bound>,
    problem: Option<&'a Error>,
}

/// The constants of a model.
#[derive(Default)]
struct Parameters {
    tensors: usize,
    elements: u64,
    bytes: u64,
}

/// Footprints with the known sizes put in.
struct Bound {
    operators: Vec<(Origin, Footprint)>,
    total: Footprint,
    least: Footprint,
}

impl<'a> Inspection<'a> {
    fn new(model: &'a Model, graph: Option<&Graph>, env: Env, problem: Option<&'a Error>) -> Inspection<'a> {
        let footprints = graph.map(|graph| Bound::new(&Footprints::of(graph), &env));
        let (operators, parameters) = match &model.content {
            Content::Onnx(onnx) => (count_nodes(&onnx.file().model), count_parameters(&onnx.file().model)),
            Content::Gallery(..) | Content::Text(_) => {
                let mut operators = Histogram::default();
                footprints.iter().flat_map(|f| &f.operators).for_each(|(origin, _)| operators.add(&origin.op));
                (operators, graph.map_or_else(Parameters::default, count_constants))
            }
        };
        let mut primitives = Histogram::default();
        if let Some(graph) = graph {
            let live = graph.live_nodes();
            let nodes = graph.nodes().iter().zip(live).filter(|(_, live)| *live);
            nodes.for_each(|(node, _)| primitives.add(node.prim().name()));
        }
        let mut signature = model.signature.clone();
        if let Some(graph) = graph {
            // A graph knows the sizes of outputs that the file leaves open.
            signature.outputs = model::signature(graph).outputs;
            let texts = model.signature.outputs.iter().filter(|port| port.is_text);
            for text in texts {
                signature.outputs.iter_mut().filter(|port| text.has(&port.name)).for_each(|port| port.is_text = true);
            }
        }
        Inspection { model, signature, env, parameters, operators, primitives, footprints, problem }
    }
}

impl Bound {
    fn new(footprints: &Footprints, env: &Env) -> Bound {
        let operators = footprints.operators.iter();
        Bound {
            operators: operators.map(|o| (o.origin.clone(), o.alone.bind(env))).collect(),
            total: footprints.by_operator().bind(env),
            least: footprints.least.bind(env),
        }
    }

    /// Sums by kind of operator with the number of operators, most traffic first.
    fn by_kind(&self) -> Vec<(&str, usize, Footprint)> {
        let mut kinds: IndexMap<&str, (usize, Footprint)> = IndexMap::new();
        for (origin, footprint) in &self.operators {
            let (count, sum) = kinds.entry(&origin.op).or_insert((0, Footprint::NOTHING));
            *count += 1;
            *sum += footprint;
        }
        let mut kinds: Vec<_> = kinds.into_iter().map(|(op, (count, sum))| (op, count, sum)).collect();
        kinds.sort_by(|a, b| nominal(&b.2.bytes()).total_cmp(&nominal(&a.2.bytes())).then(a.0.cmp(b.0)));
        kinds
    }

    /// The operators with the most traffic.
    fn heaviest(&self, count: usize) -> Vec<&(Origin, Footprint)> {
        let mut all: Vec<_> = self.operators.iter().collect();
        all.sort_by(|a, b| nominal(&b.1.bytes()).total_cmp(&nominal(&a.1.bytes())));
        all.truncate(count);
        all
    }
}

/// A number to sort by: sizes that are not known are taken as 128.
fn nominal(dim: &Dim) -> f64 {
    dim.eval_with(&|_| Some(128)).map_or(f64::INFINITY, |n| n as f64)
}

fn count_nodes(model: &ModelProto) -> Histogram {
    let mut histogram = Histogram::default();
    let mut graphs: Vec<&GraphProto> = model.graph.iter().collect();
    while let Some(graph) = graphs.pop() {
        for node in &graph.node {
            let domain = if node.domain.is_empty() || node.domain == "ai.onnx" { "" } else { node.domain.as_str() };
            let separator = if domain.is_empty() { "" } else { "." };
            histogram.add(&format!("{domain}{separator}{}", node.op_type));
            for attribute in &node.attribute {
                graphs.extend(attribute.g.as_deref());
                graphs.extend(attribute.graphs.iter());
            }
        }
    }
    histogram
}

fn count_constants(graph: &Graph) -> Parameters {
    let mut parameters = Parameters::default();
    for node in graph.nodes() {
        if let Prim::Const(row) = node.prim() {
            parameters.tensors += 1;
            parameters.elements += row.literal.count() as u64;
            parameters.bytes += row.literal.byte_count() as u64;
        }
    }
    parameters
}

fn count_parameters(model: &ModelProto) -> Parameters {
    let mut parameters = Parameters::default();
    for tensor in model.graph.iter().flat_map(|graph| &graph.initializer) {
        let elements = tensor.dims.iter().fold(1u64, |n, d| n.saturating_mul(u64::try_from(*d).unwrap_or(0)));
        let bits = dtype_of_code(tensor.data_type).map_or(0, |dtype| dtype.bits() as u64);
        parameters.tensors += 1;
        parameters.elements = parameters.elements.saturating_add(elements);
        parameters.bytes = parameters.bytes.saturating_add(elements.saturating_mul(bits).div_ceil(8));
    }
    parameters
}

impl Inspection<'_> {
    fn text(&self, top: usize) -> String {
        let mut text = title(&self.model.name, screen::width());
        text.push_str(&screen::wrapped(&self.source(), 2, screen::width()));
        for (title, ports) in [("Inputs", &self.signature.inputs), ("Outputs", &self.signature.outputs)] {
            text.push_str(&section(title));
            let mut table = Table::new([Column::left("").cut(16), Column::left("").wrap(24)]);
            ports.iter().for_each(|port| table.row([port.name.clone(), type_text(port, &self.env)]));
            text.push_str(&table.text(screen::width()));
        }
        self.write_facts(&mut text);
        if let Some(footprints) = &self.footprints {
            write_kinds(&mut text, footprints);
            write_heaviest(&mut text, footprints, top);
        }
        text
    }

    fn source(&self) -> String {
        match &self.model.content {
            Content::Text(graph) => format!("graph \"{}\" in text form", graph.name()),
            Content::Gallery(entry, _) => format!("row {} of the gallery: {}", entry.row, entry.doc),
            Content::Onnx(onnx) => {
                let model = &onnx.file().model;
                let opsets = model.opset_import.iter().map(|o| match o.domain.as_str() {
                    "" | "ai.onnx" => format!("opset {}", o.version),
                    domain => format!("{domain} {}", o.version),
                });
                let producer = [model.producer_name.as_str(), model.producer_version.as_str()].join(" ");
                let producer = producer.trim();
                let by = if producer.is_empty() { String::new() } else { format!(", made by {producer}") };
                format!("ONNX, {}{by}", opsets.collect::<Vec<_>>().join(", "))
            }
        }
    }

    fn write_facts(&self, text: &mut String) {
        let mut table = Table::new([Column::left("").cut(16), Column::left("").wrap(24)]);
        let mut fact = |name: &str, value: String| table.row([name.to_string(), value]);
        let free = self.free_sizes();
        if !free.is_empty() {
            fact("free sizes", free.join(", "));
        }
        let Parameters { tensors, elements, bytes } = self.parameters;
        if tensors > 0 {
            let (elements, bytes) = (quantity::count(elements as f64), quantity::bytes(bytes as f64));
            fact("parameters", format!("{elements} in {tensors} tensors, {bytes}"));
        }
        fact("operators", listing(&self.operators));
        if self.primitives.total() > 0 {
            fact("primitives", listing(&self.primitives));
        }
        if let Some(Bound { total, least, .. }) = &self.footprints {
            fact("work", format!("{} operations", formula(&total.flops)));
            fact("traffic", format!("{} unfused", bytes_in_words(&total.bytes())));
            let saved = saved(total, least).map_or(String::new(), |s| format!(": fusion can save up to {s:.0} %"));
            fact("at least", format!("{}{saved}", bytes_in_words(&least.bytes())));
        }
        text.push_str(&section("Summary"));
        text.push_str(&table.text(screen::width()));
    }

    fn free_sizes(&self) -> Vec<String> {
        let names = self.model.free_sizes().into_iter();
        names.filter(|name| self.env.get(&fuseline::tensor::Symbol::name(name)).is_none()).collect()
    }

    fn json(&self) -> Value {
        let ports = |ports: &[Port]| ports.iter().map(|port| self.port_json(port)).collect::<Vec<_>>();
        let histogram =
            |h: &Histogram| h.sorted().into_iter().map(|(n, k)| (n.to_string(), json!(k))).collect::<Map<_, _>>();
        let sizes = self.model.free_sizes().into_iter();
        let sizes: Map<_, _> = sizes
            .map(|name| {
                let size = self.env.get(&fuseline::tensor::Symbol::name(&name));
                (name, json!(size))
            })
            .collect();
        let mut value = json!({
            "model": self.model.name,
            "source": self.source(),
            "inputs": ports(&self.signature.inputs),
            "outputs": ports(&self.signature.outputs),
            "sizes": sizes,
            "parameters": {
                "tensors": self.parameters.tensors,
                "elements": self.parameters.elements,
                "bytes": self.parameters.bytes,
            },
            "operators": histogram(&self.operators),
            "primitives": histogram(&self.primitives),
        });
        if let Some(f) = &self.footprints {
            value["unfused"] = footprint_json(&f.total);
            value["at_least"] = footprint_json(&f.least);
            let kinds = f.by_kind().into_iter().map(|(op, count, footprint)| {
                let mut kind = json!({ "operator": op, "nodes": count });
                extend(&mut kind, footprint_json(&footprint));
                kind
            });
            value["by_operator"] = kinds.collect();
            let nodes = f.operators.iter().map(|(origin, footprint)| {
                let mut node = json!({ "node": origin.name.as_ref(), "operator": origin.op.as_ref() });
                extend(&mut node, footprint_json(footprint));
                node
            });
            value["nodes"] = nodes.collect();
        }
        if let Some(problem) = self.problem {
            value["problem"] =
                json!({ "message": problem.message(), "path": problem.path(), "needs": problem.needs() });
        }
        value
    }

    fn port_json(&self, port: &Port) -> Value {
        let shape = port
            .shape
            .as_ref()
            .map(|shape| shape.dims().iter().map(|dim| dim_json(&self.env.apply(dim))).collect::<Vec<_>>());
        json!({ "name": port.name, "dtype": port.dtype.name(), "shape": shape })
    }
}

fn write_kinds(text: &mut String, footprints: &Bound) {
    text.push_str(&section("By operator"));
    let mut columns = vec![Column::left("operator").cut(12), Column::right("nodes")];
    columns.extend(["operations", "bytes"].map(|name| Column::right(name).wrap(12)));
    columns.push(Column::right("operations/byte").goes(1));
    // A share is a number only where the whole is one.
    let whole = footprints.total.bytes().as_int().filter(|whole| *whole > 0);
    columns.extend(whole.map(|_| Column::right("share of bytes")));
    let mut table = Table::new(columns);
    for (op, count, footprint) in footprints.by_kind() {
        let bytes = footprint.bytes();
        let share = whole.zip(bytes.as_int()).map(|(whole, part)| 100.0 * part as f64 / whole as f64);
        let mut cells = vec![op.to_string(), count.to_string(), formula(&footprint.flops), bytes_text(&bytes)];
        cells.push(intensity_text(&footprint));
        cells.extend(share.map(|share| format!("{share:.1} %")));
        table.row(cells);
    }
    text.push_str(&table.text(screen::width()));
}

fn write_heaviest(text: &mut String, footprints: &Bound, top: usize) {
    let heaviest = footprints.heaviest(top);
    // Where every kind occurs once, the table by kind has said it all.
    if heaviest.is_empty() || footprints.operators.len() == footprints.by_kind().len() {
        return;
    }
    text.push_str(&section("Most traffic"));
    let mut table = Table::new([
        Column::left("node").cut_by(16, cut_path),
        Column::left("operator").cut(12),
        Column::right("operations").wrap(10),
        Column::right("bytes").wrap(10),
        Column::right("operations/byte").goes(1),
    ]);
    for (origin, footprint) in heaviest {
        table.row([
            origin.name.to_string(),
            origin.op.to_string(),
            formula(&footprint.flops),
            bytes_text(&footprint.bytes()),
            intensity_text(footprint),
        ]);
    }
    text.push_str(&table.text(screen::width()));
}

/// A heading after an empty line.
fn section(title: &str) -> String {
    format!("\n{}", heading(title))
}

fn listing(histogram: &Histogram) -> String {
    let kinds: Vec<String> = histogram.sorted().into_iter().map(|(name, count)| format!("{name} {count}")).collect();
    format!("{}: {}", histogram.total(), kinds.join(", "))
}

fn bytes_text(dim: &Dim) -> String {
    match dim.as_int() {
        Some(n) => quantity::bytes(n as f64),
        None => formula(dim),
    }
}

fn bytes_in_words(dim: &Dim) -> String {
    let unit = if dim.as_int().is_some() { "" } else { " bytes" };
    format!("{}{unit}", bytes_text(dim))
}

fn intensity_text(footprint: &Footprint) -> String {
    footprint.intensity().map_or("–".into(), quantity::significant)
}

/// How much of the unfused traffic is not needed, in percent.
fn saved(total: &Footprint, least: &Footprint) -> Option<f64> {
    let (total, least) = (total.bytes(), least.bytes());
    let ratio = |a: &Dim, b: &Dim| Footprint { flops: a.clone(), read: b.clone(), written: Dim::int(0) }.intensity();
    ratio(&least, &total).map(|part| (1.0 - part) * 100.0).filter(|saved| *saved >= 0.5)
}

fn footprint_json(footprint: &Footprint) -> Value {
    json!({
        "flops": dim_json(&footprint.flops),
        "bytes_read": dim_json(&footprint.read),
        "bytes_written": dim_json(&footprint.written),
        "intensity": footprint.intensity(),
    })
}

/// A number where the size is one, otherwise the expression as text.
fn dim_json(dim: &Dim) -> Value {
    dim.as_int().map_or_else(|| json!(dim.to_string()), |n| json!(n))
}

fn extend(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}
