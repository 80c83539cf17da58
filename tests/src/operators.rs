//! `docs/conformance.md`: operator by operator, what is supported, how many official tests use it, and what it becomes.
//!
//! Everything is derived: which operators there are from ONNX's own lists, what is supported from our tables, what is tested from
//! the official models and the list of those that pass, and what an operator becomes from the graphs that are imported.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use fuseline::error::Result;
use fuseline::graph::Graph;
use fuseline::lower::is_opaque;
use fuseline::ops::Prim;
use fuseline::ops::named;
use fuseline::ops::prim::Class;
use fuseline_frontend::Model;
use fuseline_frontend::onnx::import::{NEWEST, STRUCTURAL};
use fuseline_frontend::onnx::schema::NodeProto;

use crate::node_test;

/// Operator set and name.
type Key = (String, String);

/// What is known of an operator.
#[derive(Default)]
struct Row {
    /// the versions of the operator set in which ONNX defines or changes it
    versions: BTreeSet<u32>,
    /// the first version that is supported, and what it does
    support: Option<(u32, &'static str)>,
    /// official tests that use it and pass, and all that use it
    tests: (usize, usize),
    /// what became of it in the tests that pass
    becomes: BTreeSet<Becomes>,
}

/// What an operator becomes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Becomes {
    Kernel,
    Host,
    View,
}

impl Becomes {
    fn of(prim: &Prim) -> Option<Becomes> {
        match prim.class() {
            // A size that is read from data belongs to whatever has that size.
            _ if matches!(prim, Prim::Bind(_)) => None,
            _ if is_opaque(prim) => Some(Becomes::Host),
            Class::Source => None,
            Class::View => Some(Becomes::View),
            _ => Some(Becomes::Kernel),
        }
    }

    /// All of them in one word or two: views cost nothing beside anything else.
    fn text(all: &BTreeSet<Becomes>) -> &'static str {
        match (all.contains(&Becomes::Kernel), all.contains(&Becomes::Host), all.contains(&Becomes::View)) {
            (true, true, _) => "kernel, host",
            (true, false, _) => "kernel",
            (false, true, _) => "host",
            (false, false, true) => "view",
            (false, false, false) => "import",
        }
    }
}

/// A test of the official suites: its name, its folder, and whether it passes.
#[derive(Debug)]
pub struct Test {
    /// `suite/name`
    pub name: String,
    /// where its model lies
    pub folder: PathBuf,
    /// whether it stands in the list of those that pass
    pub passes: bool,
}

/// The page. `definitions` is the folder of ONNX's lists of operators; `gaps` are the tests that do not pass, with the reasons.
pub fn page(
    definitions: &Path,
    tests: &[Test],
    gaps: &BTreeMap<String, String>,
) -> std::result::Result<String, String> {
    let mut rows = supported();
    for (key, version) in defined(definitions, &rows)? {
        rows.entry(key).or_default().versions.insert(version);
    }
    for (domain, newest) in NEWEST {
        let of_domain = rows.iter().filter(|((own, _), _)| own == domain).flat_map(|(_, row)| &row.versions);
        if of_domain.max() > Some(&newest) {
            return Err(format!("ONNX defines versions of \"{domain}\" beyond {newest}: read them, and change NEWEST"));
        }
    }
    for test in tests {
        count(test, &mut rows).map_err(|error| format!("{}: {error}", test.name))?;
    }
    Ok(text(&rows, tests, gaps))
}

/// The rows of our tables.
fn supported() -> BTreeMap<Key, Row> {
    let named = named::all().map(|op| (op.domain, op.name, op.since, op.doc));
    let structural = STRUCTURAL.iter().map(|op| (op.domain, op.name, op.since, op.doc));
    let rows = named.chain(structural).map(|(domain, name, since, doc)| {
        ((domain.to_string(), name.to_string()), Row { support: Some((since, doc)), ..Row::default() })
    });
    rows.collect()
}

/// The operators that ONNX Runtime declares besides those of ONNX.
const CONTRIBUTED: &str = include_str!("../onnx/contributed.txt");

/// What ONNX defines, by version: lines such as `fn(GetOpSchema<ONNX_OPERATOR_SET_SCHEMA_CLASS_NAME(Onnx, 13, Abs)>());`.
fn defined(folder: &Path, known: &BTreeMap<Key, Row>) -> std::result::Result<Vec<(Key, u32)>, String> {
    let mut all = Vec::new();
    for file in ["operator_sets.h", "operator_sets_ml.h", "operator_sets_preview.h"] {
        let path = folder.join(file);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        for line in text.lines().filter(|line| line.contains("GetOpSchema<")) {
            let inside = line.split_once("CLASS_NAME(").and_then(|(_, rest)| rest.split_once(')'));
            let words: Vec<&str> = inside.map_or(Vec::new(), |(inside, _)| inside.split(", ").collect());
            let (domain, version, name) = match words[..] {
                ["Onnx", version, name] => (String::new(), version, name),
                ["OnnxML", version, name] => ("ai.onnx.ml".into(), version, name),
                // Two operator sets share this list, which does not tell them apart.
                [version, name] => {
                    let mut keys = known.keys().filter(|(domain, _)| domain.starts_with("ai.onnx.preview"));
                    let own = keys.find(|(_, own)| own == name).map(|(domain, _)| domain.clone());
                    (own.unwrap_or_else(|| "ai.onnx.preview".into()), version, name)
                }
                _ => return Err(format!("{}: {line}", path.display())),
            };
            let version = version.parse().map_err(|_| format!("{}: {line}", path.display()))?;
            all.push(((domain, name.to_string()), version));
        }
    }
    let contributed = CONTRIBUTED.lines().filter(|line| !line.starts_with('#'));
    all.extend(contributed.map(|name| (("com.microsoft".to_string(), name.to_string()), 1)));
    Ok(all)
}

fn count(test: &Test, rows: &mut BTreeMap<Key, Row>) -> Result<()> {
    let model = Model::open(test.folder.join("model.onnx"))?;
    let proto = &model.file().model;
    let local: BTreeSet<(&str, &str)> = proto.functions.iter().map(|f| (f.domain.as_str(), f.name.as_str())).collect();
    let mut used = BTreeSet::new();
    let nodes = proto.graph.iter().flat_map(|graph| &graph.node);
    nodes.chain(proto.functions.iter().flat_map(|f| &f.node)).for_each(|node| collect(node, &mut used));
    used.retain(|(domain, name)| !local.contains(&(domain.as_str(), name.as_str())));
    for key in &used {
        let row = rows.entry(key.clone()).or_default();
        row.tests.0 += usize::from(test.passes);
        row.tests.1 += 1;
    }
    if test.passes {
        node_test::each_graph(&test.folder, |graph| look(graph, &used, rows))?;
    }
    Ok(())
}

/// The operators of a node and of its regions.
fn collect(node: &NodeProto, used: &mut BTreeSet<Key>) {
    let domain = if node.domain == "ai.onnx" { "" } else { &node.domain };
    used.insert((domain.to_string(), node.op_type.clone()));
    let regions = node.attribute.iter().flat_map(|a| a.g.as_deref().into_iter().chain(&a.graphs));
    regions.flat_map(|region| &region.node).for_each(|node| collect(node, used));
}

/// What the operators of a graph became.
fn look(graph: &Graph, used: &BTreeSet<Key>, rows: &mut BTreeMap<Key, Row>) {
    let live = graph.live_nodes();
    for (id, node) in graph.nodes().iter().enumerate().filter(|(id, _)| live[*id]) {
        if let Some(becomes) = Becomes::of(node.prim()) {
            for origin in graph.origin(id).iter() {
                for key in used.iter().filter(|(_, name)| **name == *origin.op) {
                    rows.entry(key.clone()).or_default().becomes.insert(becomes);
                }
            }
        }
        match node.prim() {
            Prim::If(row) => [&row.then, &row.otherwise].iter().for_each(|region| look(region, used, rows)),
            Prim::Loop(row) => look(&row.body, used, rows),
            _ => {}
        }
    }
}

const HEAD: &str = "\
# Conformance

What of ONNX is there, operator by operator. This page is written by `BLESS=1 cargo test -p fuseline-tests --test conformance`, from the tables of
operators, ONNX's own lists, and the official tests; a test fails where it is not what they say.

Tests that pass do so on the reference device, planned on the interpreter of kernels, and on the processor.
";

const LEGEND: &str = "
- **versions**: the versions of the operator set in which ONNX defines the operator or changes it; **from**: the first one that is supported
- **tests**: official tests that use the operator and pass, of all that use it
- **becomes**, in those tests: `kernel`: loops over tensors, which fuse with others · `view`: the same elements at other places, which costs nothing ·
  `host`: one portable implementation that runs between kernels, or control flow · `import`: nothing, it is known before anything runs ·
  –: no official test tells
";

fn text(rows: &BTreeMap<Key, Row>, tests: &[Test], gaps: &BTreeMap<String, String>) -> String {
    let mut page = String::from(HEAD);
    let lines = "writing to a string does not fail";
    writeln!(page, "\n| suite | tests | pass |\n|---|---:|---:|").expect(lines);
    let mut suites: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for test in tests {
        let suite = suites.entry(test.name.split('/').next().unwrap_or_default()).or_default();
        *suite = (suite.0 + 1, suite.1 + usize::from(test.passes));
    }
    for (suite, (all, pass)) in &suites {
        writeln!(page, "| {suite} | {all} | {pass} |").expect(lines);
    }
    page += LEGEND;
    let domains: BTreeSet<&str> = rows.keys().map(|(domain, _)| domain.as_str()).collect();
    for domain in domains {
        let own: Vec<(&str, &Row)> =
            rows.iter().filter(|(key, _)| key.0 == domain).map(|(key, row)| (key.1.as_str(), row)).collect();
        let there = own.iter().filter(|(_, row)| row.support.is_some()).count();
        let title = if domain.is_empty() { "ai.onnx" } else { domain };
        writeln!(page, "\n## {title}\n\n{there} of {} operators are supported.\n", own.len()).expect(lines);
        writeln!(page, "| operator | versions | from | tests | becomes | |\n|---|---|---:|---:|---|---|").expect(lines);
        own.iter().for_each(|(name, row)| page += &line(name, row));
    }
    page += "\n## Tests that do not pass\n\n";
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, reason) in gaps {
        reasons.entry(reason.trim_matches(['[', ']'])).or_default().push(name);
    }
    for (reason, names) in reasons {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        writeln!(page, "- {reason}: {}", names.join(", ")).expect(lines);
    }
    page
}

fn line(name: &str, row: &Row) -> String {
    let versions: Vec<String> = row.versions.iter().map(u32::to_string).collect();
    let versions = if versions.is_empty() { "–".into() } else { versions.join(", ") };
    let (from, doc) = row.support.map_or(("–".into(), ""), |(since, doc)| (since.to_string(), doc));
    let tests = match row.tests {
        (_, 0) => "–".into(),
        (pass, all) if pass == all => all.to_string(),
        (pass, all) => format!("{pass} of {all}"),
    };
    let becomes = match (row.support, row.tests) {
        (None, _) => "unsupported",
        (_, (0, _)) => "–",
        _ => Becomes::text(&row.becomes),
    };
    let doc = doc.replace('|', "\\|");
    format!("| {name} | {versions} | {from} | {tests} | {becomes} | {doc} |\n")
}
