//! What was made for sizes, kept for the next run of the same.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Result;

/// It is kept for this many sizes.
const MOST_SIZES: usize = 64;

/// What was made for sizes, latest used last.
pub struct BySize<T>(Mutex<Vec<(Vec<i64>, Arc<T>)>>);

impl<T> BySize<T> {
    /// What there is for sizes; it is made unless it is there.
    pub fn get(&self, sizes: Vec<i64>, make: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        // Held while it is made: who waits mostly wants the same.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = match known.iter().rposition(|(other, _)| *other == sizes) {
            Some(last) if last + 1 == known.len() => return Ok(known[last].1.clone()),
            Some(k) => known.remove(k),
            None => (sizes, Arc::new(make()?)),
        };
        if known.len() == MOST_SIZES {
            known.remove(0);
        }
        let made = entry.1.clone();
        known.push(entry);
        Ok(made)
    }
}

impl<T> Default for BySize<T> {
    fn default() -> BySize<T> {
        BySize(Mutex::default())
    }
}

impl<T> fmt::Debug for BySize<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_list().entries(known.iter().map(|(sizes, _)| sizes)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_is_made_again() {
        let kept = BySize::default();
        let mut made = 0;
        let mut get = |n: i64| {
            let _ = kept.get(vec![n], || {
                made += 1;
                Ok(n)
            });
            made
        };
        let most = MOST_SIZES as i64;
        assert_eq!((0..most).map(&mut get).last(), Some(MOST_SIZES));
        assert_eq!(get(0), MOST_SIZES, "it is there, and used again");
        assert_eq!(get(most), MOST_SIZES + 1);
        assert_eq!(get(0), MOST_SIZES + 1);
        assert_eq!(get(1), MOST_SIZES + 2, "it was the least recently used");
    }
}
