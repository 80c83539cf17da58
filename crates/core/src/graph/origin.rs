//! Where nodes come from in the user's model.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::cursor::{name_text, quoted};

/// An operator of the user's model.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// the operator, such as `Softmax`
    pub op: Arc<str>,
    /// the name of the node, such as `encoder/layer.3/Softmax`
    pub name: Arc<str>,
}

/// On one line, whatever the model calls it: this stands in comments of code.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", name_text(&self.op), quoted(&self.name, '"'))
    }
}

/// The operators that a node is part of; several when equal computations were shared.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OriginSet(SmallVec<[Arc<Origin>; 1]>);

/// A shared node lists no more origins than this.
const MOST: usize = 64;

impl OriginSet {
    /// One origin.
    pub fn of(origin: Arc<Origin>) -> OriginSet {
        OriginSet(SmallVec::from_iter([origin]))
    }

    /// Adds the origins of another set.
    pub fn merge(&mut self, other: &OriginSet) {
        for origin in &other.0 {
            if self.0.len() < MOST && !self.0.contains(origin) {
                self.0.push(origin.clone());
            }
        }
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The origins, in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &Origin> {
        self.0.iter().map(AsRef::as_ref)
    }
}

impl fmt::Display for OriginSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (k, origin) in self.0.iter().take(3).enumerate() {
            write!(f, "{}{origin}", if k == 0 { "" } else { " + " })?;
        }
        if self.0.len() > 3 { write!(f, " + {} more", self.0.len() - 3) } else { Ok(()) }
    }
}
