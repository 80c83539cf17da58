//! Layers that repeat: where a sequence of kernels is the same kernels again and again.

use std::ops::Range;

/// The longest stretch of kernels that is looked for as one layer.
const LONGEST: usize = 256;

/// A stretch of a sequence that is one layer, several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// where the first one begins
    pub begin: usize,
    /// how many elements one has
    pub period: usize,
    /// how many there are, at least three
    pub count: usize,
}

impl Repeat {
    /// All but the first one.
    pub fn others(&self) -> Range<usize> {
        self.begin + self.period..self.begin + self.period * self.count
    }
}

/// What repeats in a sequence, in order and apart: each time what shortens it most, then what is left on both sides.
pub fn repeats(classes: &[usize]) -> Vec<Repeat> {
    let Some(best) = longest(classes) else { return Vec::new() };
    let end = best.others().end;
    let mut found = repeats(&classes[..best.begin]);
    found.push(best);
    let moved = |repeat: Repeat| Repeat { begin: repeat.begin + end, ..repeat };
    found.extend(repeats(&classes[end..]).into_iter().map(moved));
    found
}

fn longest(classes: &[usize]) -> Option<Repeat> {
    let mut best: Option<Repeat> = None;
    for period in 1..=(classes.len() / 3).min(LONGEST) {
        let mut begin = 0;
        while begin + period < classes.len() {
            let equal = classes[begin..].iter().zip(&classes[begin + period..]).take_while(|(a, b)| a == b).count();
            let found = Repeat { begin, period, count: equal / period + 1 };
            if found.count >= 3 && best.is_none_or(|best| found.others().len() > best.others().len()) {
                best = Some(found);
            }
            begin += equal + 1;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_found_between_a_head_and_a_tail() {
        let layer = [5, 6, 7, 5, 8];
        let sequence = [&[1, 2][..], &layer.repeat(12), &[3, 4]].concat();
        let found = repeats(&sequence);
        assert_eq!(found, [Repeat { begin: 2, period: 5, count: 12 }]);
        assert_eq!(found[0].others(), 7..62);
    }

    #[test]
    fn what_differs_does_not_repeat() {
        assert_eq!(repeats(&[]), []);
        assert_eq!(repeats(&[1, 2, 3, 4, 5, 6]), []);
        assert_eq!(repeats(&[1, 2, 1, 2, 3]), [], "twice is not often");
        assert_eq!(
            repeats(&[1, 1, 1, 9, 2, 3, 2, 3, 2, 3]),
            [Repeat { begin: 0, period: 1, count: 3 }, Repeat { begin: 4, period: 2, count: 3 }]
        );
    }
}
