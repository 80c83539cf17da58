//! Plans as text: written, compared, obeyed.
//!
//! A lock says for which graph it is and lists the kernels, a line each: their kind and their nodes.

use std::fmt;

use crate::error::{Error, Result};

/// The kernels of a plan, by the nodes that they compute.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Lock {
    /// the graph, as a hash of its structure
    pub graph: u64,
    /// the nodes of each kernel, ascending, in the order in which they run
    pub kernels: Vec<Vec<usize>>,
    /// the kind of each kernel
    pub kinds: Vec<String>,
}

impl fmt::Display for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "fuseline plan 1")?;
        writeln!(f, "graph {:016x}", self.graph)?;
        for (kind, nodes) in self.kinds.iter().zip(&self.kernels) {
            write!(f, "{kind}")?;
            for node in nodes {
                write!(f, " %{node}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Lock {
    type Err = Error;

    fn from_str(text: &str) -> Result<Lock> {
        let wrong = |line: usize, what: &str| Error::invalid(format!("line {line} of the plan: {what}"));
        let mut lines = text.lines().enumerate().map(|(k, l)| (k + 1, l.split('#').next().unwrap_or("").trim()));
        let mut lines = lines.by_ref().filter(|(_, l)| !l.is_empty());
        match lines.next() {
            Some((_, "fuseline plan 1")) => {}
            Some((k, _)) => return Err(wrong(k, "wanted \"fuseline plan 1\"")),
            None => return Err(Error::invalid("the plan is empty")),
        }
        let graph = lines.next().and_then(|(_, l)| u64::from_str_radix(l.strip_prefix("graph ")?.trim(), 16).ok());
        let mut lock =
            Lock { graph: graph.ok_or_else(|| wrong(2, "wanted \"graph\" and its hash"))?, ..Lock::default() };
        for (k, line) in lines {
            let mut words = line.split_whitespace();
            lock.kinds.push(words.next().unwrap_or_default().to_string());
            let nodes = words.map(|w| w.strip_prefix('%')?.parse().ok()).collect::<Option<Vec<usize>>>();
            let mut nodes = nodes.filter(|n| !n.is_empty()).ok_or_else(|| wrong(k, "wanted nodes such as %12"))?;
            nodes.sort_unstable();
            nodes.dedup();
            lock.kernels.push(nodes);
        }
        Ok(lock)
    }
}
