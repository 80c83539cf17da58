//! Pure values by what they are: a table of numbers, for what a value is stands in the program.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use super::{Op, Value};

/// Values by the hash of what they are.
#[derive(Debug)]
pub(super) struct Known {
    /// the number of a value, or nothing; a power of two of them, of which no more than half are taken
    table: Vec<u32>,
    taken: usize,
}

/// What a value turns out to be.
pub(super) enum Seen {
    /// what was looked for
    Same,
    /// something else
    Other,
    /// nothing that may be used any more
    Gone,
}

/// What was found.
pub(super) enum Found {
    /// the value
    Value(Value),
    /// where it belongs
    Nothing(usize),
}

const NOTHING: u32 = u32::MAX;

/// Values that there is room for at first.
const FEW: usize = 256;

impl Known {
    /// No values, in memory that is used again.
    pub(super) fn new(mut table: Vec<u32>) -> Known {
        table.clear();
        table.resize(2 * FEW, NOTHING);
        Known { table, taken: 0 }
    }

    /// The memory, once nothing is asked for any more.
    pub(super) fn into_table(self) -> Vec<u32> {
        self.table
    }

    /// By what operations are told apart at first.
    pub(super) fn hash(op: &Op) -> u32 {
        let mut hasher = FxHasher::default();
        op.hash(&mut hasher);
        hasher.finish() as u32
    }

    /// The value with a hash that is what is looked for.
    pub(super) fn find(&self, hash: u32, see: impl Fn(Value) -> Seen) -> Found {
        let last = self.table.len() - 1;
        let (mut at, mut gone) = (hash as usize & last, None);
        loop {
            match self.table[at] {
                NOTHING => return Found::Nothing(gone.unwrap_or(at)),
                number => match see(Value(number)) {
                    Seen::Same => return Found::Value(Value(number)),
                    Seen::Other => {}
                    Seen::Gone => gone = gone.or(Some(at)),
                },
            }
            at = (at + 1) & last;
        }
    }

    /// A value where it belongs. `hash_of` tells that of any.
    pub(super) fn put(&mut self, at: usize, value: Value, hash_of: impl Fn(Value) -> u32) {
        self.taken += usize::from(self.table[at] == NOTHING);
        self.table[at] = value.0;
        if 2 * self.taken > self.table.len() {
            let old = std::mem::take(&mut self.table);
            self.table = vec![NOTHING; 2 * old.len()];
            for number in old.into_iter().filter(|number| *number != NOTHING) {
                if let Found::Nothing(at) = self.find(hash_of(Value(number)), |_| Seen::Other) {
                    self.table[at] = number;
                }
            }
        }
    }
}
