//! Plans as text: written, compared, obeyed.
//!
//! A lock says for which device and numerics it was made, lists the rewrites that were applied, and then, for every graph,
//! the kernels, a line each: their kind and their nodes. What stands after `#` is for people.
//!
//! ```text
//! fuseline plan 1
//! target h200 53a1c9e27b0d4f68
//! numerics default
//! rewrite 7f01d2c3b4a5          # hoist-scales: Mul → MatMul
//! graph 0f1e2d3c4b5a6978        # run
//! row %4 %6 %7                  # Softmax
//! tune 5e6f708192a3b4c5 library 3
//! ```
//!
//! Lines with `tune` say how a device computes a kernel, in its own words, by a number that it has for it.

use std::collections::BTreeSet;
use std::fmt;

use super::decision::DecisionId;
use super::evaluate::Kind;
use crate::error::{Error, Result};
use crate::passes::Numerics;

/// Plans of the graphs of a program, as they are written.
#[derive(Clone, Debug, Default)]
pub struct Lock {
    /// the name and the fingerprint of the device that it was made for
    pub target: Option<(String, u64)>,
    /// the numerics that it was made with
    pub numerics: Option<Numerics>,
    /// the rewrites that are applied, each with a note; no others are
    pub rewrites: Vec<(DecisionId, String)>,
    /// the graphs, those of regions too
    pub graphs: Vec<LockedGraph>,
    /// how a device computes kernels, in its own words, by a number that it has for them
    pub tuned: Vec<(u64, String)>,
}

/// The kernels of one graph.
#[derive(Clone, Debug, Default)]
pub struct LockedGraph {
    /// the graph, as a hash of its structure
    pub graph: u64,
    /// the kernels in the order in which they run
    pub kernels: Vec<LockedKernel>,
    /// for people
    pub note: String,
}

/// A kernel by the nodes that it computes.
#[derive(Clone, Debug)]
pub struct LockedKernel {
    /// the kind of the kernel's schedule
    pub kind: Kind,
    /// the nodes, ascending
    pub nodes: Vec<usize>,
    /// the line on which it stands; 0 where it was not read
    pub line: usize,
    /// for people
    pub note: String,
}

impl Lock {
    /// The part about a graph, by the hash of its structure.
    pub fn graph(&self, name: u64) -> Option<&LockedGraph> {
        self.graphs.iter().find(|part| part.graph == name)
    }

    /// Whether a rewrite is among those to apply.
    pub fn has_rewrite(&self, id: DecisionId) -> bool {
        self.rewrites.iter().any(|(listed, _)| *listed == id)
    }
}

/// The column at which notes begin, unless a line is longer.
const NOTES_AT: usize = 40;

fn line(f: &mut fmt::Formatter<'_>, text: &str, note: &str) -> fmt::Result {
    match note {
        "" => writeln!(f, "{text}"),
        // A note ends with its line, whatever names are in it.
        note => writeln!(f, "{text:<NOTES_AT$} # {}", note.replace(char::is_control, " ")),
    }
}

impl fmt::Display for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "fuseline plan 1")?;
        if let Some((name, fingerprint)) = &self.target {
            writeln!(f, "target {name} {fingerprint:016x}")?;
        }
        if let Some(numerics) = self.numerics {
            writeln!(f, "numerics {}", numerics.name())?;
        }
        for (id, note) in &self.rewrites {
            line(f, &format!("rewrite {id}"), note)?;
        }
        for part in &self.graphs {
            line(f, &format!("graph {:016x}", part.graph), &part.note)?;
            for kernel in &part.kernels {
                let mut text = kernel.kind.name().to_string();
                kernel.nodes.iter().for_each(|node| text.push_str(&format!(" %{node}")));
                line(f, &text, &kernel.note)?;
            }
        }
        self.tuned.iter().try_for_each(|(name, choice)| writeln!(f, "tune {name:016x} {choice}"))
    }
}

impl std::str::FromStr for Lock {
    type Err = Error;

    fn from_str(text: &str) -> Result<Lock> {
        let mut lines = text.lines().enumerate().map(|(k, l)| (k + 1, l.split('#').next().unwrap_or("").trim()));
        let mut lines = lines.by_ref().filter(|(_, l)| !l.is_empty());
        match lines.next() {
            Some((_, "fuseline plan 1")) => {}
            Some((k, _)) => return Err(wrong(k, "wanted \"fuseline plan 1\"")),
            None => return Err(Error::invalid("the plan is empty")),
        }
        let mut lock = Lock::default();
        for (k, line) in lines {
            lock.read_line(k, line)?;
        }
        match lock.graphs.is_empty() {
            true => Err(Error::invalid("the plan has no line \"graph\" with a hash")),
            false => Ok(lock),
        }
    }
}

fn wrong(line: usize, what: impl fmt::Display) -> Error {
    Error::invalid(format!("line {line} of the plan: {what}"))
}

impl Lock {
    fn read_line(&mut self, k: usize, line: &str) -> Result<()> {
        let (word, rest) = line.split_once(char::is_whitespace).map_or((line, ""), |(word, rest)| (word, rest.trim()));
        let hash = |text: &str| u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16);
        match word {
            "target" => {
                let parts = rest.rsplit_once(' ').and_then(|(name, number)| Some((name.trim(), hash(number)?)));
                let (name, fingerprint) = parts.ok_or_else(|| wrong(k, "wanted a device and its fingerprint"))?;
                self.target = Some((name.to_string(), fingerprint));
            }
            "numerics" => {
                let numerics = Numerics::from_name(rest);
                self.numerics = Some(numerics.ok_or_else(|| wrong(k, "wanted strict, default or fast"))?);
            }
            "rewrite" => {
                let id = rest.parse().map_err(|e: Error| wrong(k, e.message()))?;
                self.rewrites.push((id, String::new()));
            }
            "tune" => {
                let parts = rest.split_once(' ').and_then(|(name, choice)| Some((hash(name)?, choice.trim())));
                let (name, choice) = parts.ok_or_else(|| wrong(k, "wanted the number of a kernel and a choice"))?;
                self.tuned.push((name, choice.to_owned()));
            }
            "graph" => {
                let graph = hash(rest).ok_or_else(|| wrong(k, "wanted the hash of a graph"))?;
                if self.graph(graph).is_some() {
                    return Err(wrong(k, "this graph stands there twice"));
                }
                self.graphs.push(LockedGraph { graph, ..LockedGraph::default() });
            }
            word => {
                let kind =
                    Kind::from_name(word).ok_or_else(|| wrong(k, format!("\"{word}\" is no kind of kernels")))?;
                let part = self.graphs.last_mut().ok_or_else(|| wrong(k, "wanted \"graph\" before any kernel"))?;
                part.kernels.push(LockedKernel { kind, nodes: read_nodes(k, rest)?, line: k, note: String::new() });
            }
        }
        Ok(())
    }
}

fn read_nodes(line: usize, text: &str) -> Result<Vec<usize>> {
    let mut nodes = BTreeSet::new();
    for word in text.split_whitespace() {
        let node = word.strip_prefix('%').and_then(|number| number.parse::<usize>().ok());
        let node = node.ok_or_else(|| wrong(line, "wanted nodes such as %12"))?;
        if !nodes.insert(node) {
            return Err(wrong(line, format!("%{node} stands there twice")));
        }
    }
    match nodes.is_empty() {
        true => Err(wrong(line, "wanted nodes such as %12")),
        false => Ok(nodes.into_iter().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Lock {
        let kernel =
            |kind, nodes: &[usize]| LockedKernel { kind, nodes: nodes.to_vec(), line: 0, note: "LayerNorm".into() };
        Lock {
            target: Some(("my own".into(), 7)),
            numerics: Some(Numerics::Strict),
            rewrites: vec![(DecisionId(0xabc), "hoist-scales".into())],
            graphs: vec![LockedGraph {
                graph: 12,
                kernels: vec![kernel(Kind::Row, &[3, 4]), kernel(Kind::Map, &[7])],
                note: "run\nrow %1".into(),
            }],
            tuned: vec![(0xdef, "library 0 3".into())],
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        let text = sample().to_string();
        let read: Lock = text.parse().unwrap();
        assert_eq!(read.target, Some(("my own".into(), 7)));
        assert!(read.has_rewrite(DecisionId(0xabc)) && !read.has_rewrite(DecisionId(0xabd)));
        let part = read.graph(12).unwrap();
        assert_eq!(part.kernels.iter().map(|k| (k.kind, k.line)).collect::<Vec<_>>(), [(Kind::Row, 6), (Kind::Map, 7)]);
        assert_eq!(part.kernels[0].nodes, [3, 4]);
        assert_eq!(read.tuned, [(0xdef, "library 0 3".to_owned())]);
        let plain =
            |text: &str| text.lines().map(|l| l.split('#').next().unwrap().trim().to_string()).collect::<Vec<_>>();
        assert_eq!(plain(&read.to_string()), plain(&text));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, wanted) in [
            ("", "the plan is empty"),
            ("fuseline plan 2", "line 1 of the plan: wanted \"fuseline plan 1\""),
            ("fuseline plan 1\n", "the plan has no line \"graph\" with a hash"),
            ("fuseline plan 1\n\nnumerics loose", "line 3 of the plan: wanted strict, default or fast"),
            ("fuseline plan 1\ntarget h200 12", "line 2 of the plan: wanted a device and its fingerprint"),
            ("fuseline plan 1\nrow %1", "line 2 of the plan: wanted \"graph\" before any kernel"),
            ("fuseline plan 1\ngraph 000000000000000c\nrow 1", "line 3 of the plan: wanted nodes such as %12"),
            ("fuseline plan 1\ngraph 000000000000000c\nring %1", "line 3 of the plan: \"ring\" is no kind of kernels"),
            ("fuseline plan 1\ngraph 000000000000000c\nrow %1 %1", "line 3 of the plan: %1 stands there twice"),
            ("fuseline plan 1\ngraph c", "line 2 of the plan: wanted the hash of a graph"),
            ("fuseline plan 1\ntune c own", "line 2 of the plan: wanted the number of a kernel and a choice"),
            ("fuseline plan 1\nrewrite x", "line 2 of the plan: \"x\" is no decision (12 hexadecimal digits)"),
        ] {
            assert_eq!(text.parse::<Lock>().unwrap_err().message(), wanted);
        }
    }
}
