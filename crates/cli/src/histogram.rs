//! How often something occurs, the most frequent first.

use indexmap::IndexMap;

/// Counts by name.
#[derive(Clone, Debug, Default)]
pub struct Histogram(IndexMap<String, usize>);

impl Histogram {
    /// Counts one more.
    pub fn add(&mut self, name: &str) {
        *self.0.entry(name.to_string()).or_insert(0) += 1;
    }

    /// All that was counted.
    pub fn total(&self) -> usize {
        self.0.values().sum()
    }

    /// Names with their counts: the most frequent first, equal counts by name.
    pub fn sorted(&self) -> Vec<(&str, usize)> {
        let mut all: Vec<(&str, usize)> = self.0.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        all
    }
}
