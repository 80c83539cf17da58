//! Choices made from bytes: an empty tape always answers 0, so that shorter tapes mean simpler graphs.

/// A source of choices.
#[derive(Clone, Debug)]
pub(super) struct Tape<'t> {
    bytes: std::slice::Iter<'t, u8>,
}

impl<'t> Tape<'t> {
    /// The choices that these bytes stand for.
    pub(super) fn new(bytes: &'t [u8]) -> Tape<'t> {
        Tape { bytes: bytes.iter() }
    }

    /// A number below `count` (0 where `count` is 0).
    pub(super) fn below(&mut self, count: usize) -> usize {
        let byte = usize::from(self.bytes.next().copied().unwrap_or(0));
        if count == 0 { 0 } else { byte % count }
    }

    /// A number of a small range around 0, which is the simplest.
    pub(super) fn signed(&mut self) -> i64 {
        let n = self.below(10) as i64;
        if n % 2 == 0 { n / 2 } else { -(n + 1) / 2 }
    }

    /// True in one case of `rarity`, false being simpler.
    pub(super) fn chance(&mut self, rarity: usize) -> bool {
        self.below(rarity) == 1
    }

    /// One of several; the first is the simplest.
    pub(super) fn one_of<T: Clone>(&mut self, options: &[T]) -> Option<T> {
        if options.is_empty() { None } else { Some(options[self.below(options.len())].clone()) }
    }
}
