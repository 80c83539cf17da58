//! What is the same in every run: literals of the model, and what is prepared once.
//!
//! Machine code often reads a constant only in a packed form; then the source is dropped, and where another form is asked for
//! later, it is prepared again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use fuseline::error::Result;
use fuseline::run::ConstantPool;
use fuseline::tensor::Literal;
use rustc_hash::FxHashMap;

pub(super) use fuseline::run::ConstantId;

/// Is told of bytes that will hardly be read again.
pub type Release = fn(&Bytes);

/// The constants of a session.
#[derive(Debug)]
pub(super) struct Constants {
    entries: Vec<Entry>,
    literals: FxHashMap<Literal, ConstantId>,
    /// the bytes of prepared values that were not dropped
    prepared_bytes: AtomicU64,
    release: Release,
}

#[derive(Debug)]
struct Entry {
    /// how many segments and outputs read it
    readers: usize,
    /// its number among the prepared values
    prepared: Option<usize>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// none where it was dropped
    literal: Option<Literal>,
    /// the bytes, once somebody reads them in every run
    pinned: Option<Bytes>,
}

impl Entry {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Constants {
    /// None yet.
    pub fn new(release: Release) -> Constants {
        Constants { entries: Vec::new(), literals: FxHashMap::default(), prepared_bytes: AtomicU64::new(0), release }
    }

    /// A prepared value by its number.
    pub fn add_prepared(&mut self, number: usize, literal: Literal) -> ConstantId {
        self.prepared_bytes.fetch_add(literal.byte_count() as u64, Ordering::Relaxed);
        self.add(literal, Some(number))
    }

    fn add(&mut self, literal: Literal, prepared: Option<usize>) -> ConstantId {
        let state = Mutex::new(State { literal: Some(literal), pinned: None });
        self.entries.push(Entry { readers: 0, prepared, state });
        ConstantId(self.entries.len() - 1)
    }

    /// The constant; none if it was dropped.
    pub fn literal(&self, id: ConstantId) -> Option<Literal> {
        self.entries[id.0].state().literal.clone()
    }

    /// Whether it is computed or drawn, not read from the model.
    pub fn is_made(&self, id: ConstantId) -> bool {
        let entry = &self.entries[id.0];
        entry.prepared.is_some() || entry.state().literal.as_ref().is_some_and(|literal| literal.as_seeded().is_some())
    }

    /// The bytes of prepared values that were not dropped.
    pub fn prepared_bytes(&self) -> u64 {
        self.prepared_bytes.load(Ordering::Relaxed)
    }

    /// Its bytes, where they stay: every run reads them.
    pub fn pin(&self, id: ConstantId) -> Option<Bytes> {
        let mut state = self.entries[id.0].state();
        if state.pinned.is_none() {
            state.pinned = state.literal.as_ref().map(Literal::bytes);
        }
        state.pinned.clone()
    }

    /// Drops the bytes of what only the caller of this reads, unless they are pinned.
    pub fn release(&self, id: ConstantId) {
        let entry = &self.entries[id.0];
        let mut state = entry.state();
        if entry.readers > 1 || state.pinned.is_some() {
            return;
        }
        if entry.prepared.is_some() {
            if let Some(dropped) = state.literal.take() {
                self.prepared_bytes.fetch_sub(dropped.byte_count() as u64, Ordering::Relaxed);
            }
        } else if let Some(literal) = state.literal.as_ref().filter(|literal| literal.as_seeded().is_none()) {
            (self.release)(&literal.bytes());
        }
    }

    /// Puts back what was dropped; `prepare` gives all prepared values in order.
    pub fn restore(&self, prepare: impl FnOnce() -> Result<Vec<Literal>>) -> Result<()> {
        let values = prepare()?;
        for entry in &self.entries {
            if let Some(number) = entry.prepared {
                entry.state().literal.get_or_insert_with(|| {
                    self.prepared_bytes.fetch_add(values[number].byte_count() as u64, Ordering::Relaxed);
                    values[number].clone()
                });
            }
        }
        Ok(())
    }
}

impl ConstantPool for Constants {
    fn add_literal(&mut self, literal: &Literal) -> ConstantId {
        if let Some(known) = self.literals.get(literal) {
            return *known;
        }
        let id = self.add(literal.clone(), None);
        self.literals.insert(literal.clone(), id);
        id
    }

    fn count_reader(&mut self, id: ConstantId) {
        self.entries[id.0].readers += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_literals_are_one_constant() {
        let mut constants = Constants::new(|_| {});
        let a = constants.add_literal(&Literal::f32s(&[1.0, 2.0]));
        assert_eq!(constants.add_literal(&Literal::f32s(&[1.0, 2.0])), a);
        assert_ne!(constants.add_literal(&Literal::f32s(&[1.0, 3.0])), a);
    }

    #[test]
    fn what_is_prepared_is_dropped_unless_others_read_it_and_comes_back() {
        let mut constants = Constants::new(|_| {});
        let values = [Literal::f32s(&[1.0]), Literal::f32s(&[2.0]), Literal::f32s(&[3.0])];
        let ids: Vec<ConstantId> = (0..3).map(|k| constants.add_prepared(k, values[k].clone())).collect();
        ids.iter().for_each(|id| constants.count_reader(*id));
        constants.count_reader(ids[1]);
        assert_eq!(constants.pin(ids[2]), Some(values[2].bytes()));
        ids.iter().for_each(|id| constants.release(*id));
        assert_eq!(constants.literal(ids[0]), None);
        assert_eq!(constants.literal(ids[1]).as_ref(), Some(&values[1]));
        assert_eq!(constants.literal(ids[2]).as_ref(), Some(&values[2]));
        assert_eq!(constants.pin(ids[0]), None);
        assert_eq!(constants.prepared_bytes(), 8);
        constants.restore(|| Ok(values.to_vec())).unwrap();
        assert_eq!(constants.prepared_bytes(), 12);
        assert_eq!(constants.literal(ids[0]).as_ref(), Some(&values[0]));
    }
}
