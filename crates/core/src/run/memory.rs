//! Where the values of a run lie in one piece of memory.
//!
//! Comes in: how many bytes every value takes and over which steps of the run it must be kept. Goes out: an offset for each,
//! such that values that must be kept at one time do not overlap. Never here: memory itself.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use crate::device::Machine;

/// What processors want values to begin at multiples of: a line of memory, and the widest vector.
pub const ALIGNMENT: usize = 64;

/// How values lie beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spacing {
    /// every offset is a multiple of this
    pub alignment: usize,
    /// bytes behind every value that belong to nobody
    pub slack: usize,
}

impl Spacing {
    /// As a machine wants it.
    pub fn of(machine: Machine) -> Spacing {
        match machine {
            // Neighbours share no line, and do not lie whole pages apart: these are taken for each other by loads behind stores.
            Machine::Cpu => Spacing { alignment: ALIGNMENT, slack: ALIGNMENT },
            // What a warp reads or writes at once: 32 packs of 16 bytes. Off by half a line, each of them takes one line more (3 % of a copy).
            Machine::Gpu => Spacing { alignment: 512, slack: 0 },
        }
    }

    /// The bytes that a value takes with what is behind it.
    fn padded(self, bytes: usize) -> usize {
        if bytes == 0 { 0 } else { bytes.next_multiple_of(self.alignment).saturating_add(self.slack) }
    }
}

/// A value that wants a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// how large it is
    pub bytes: usize,
    /// the step that writes it
    pub first: usize,
    /// the last step that reads it, not before `first`
    pub last: usize,
    /// an earlier wish whose memory it may have: one whose last reader is the step that writes this, and reads no element
    /// of it after the same element of this was written
    pub heir_of: Option<usize>,
}

/// Where values lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// by wish; a multiple of the alignment
    pub offsets: Vec<usize>,
    /// how much memory that takes
    pub bytes: usize,
}

/// Some wishes that are fulfilled by one piece of memory: the first, its heir, the heir's heir, and so on.
#[derive(Clone, Copy, Debug)]
struct Line {
    bytes: usize,
    first: usize,
    last: usize,
    /// the heir who has no heir
    newest: usize,
}

/// Of more lines than this no pairs are compared.
const MOST_COMPARED: usize = 4096;

/// Finds a place for every wish: the largest first, each in the smallest gap that is large enough; where there are very many, one step of
/// the run after the other.
pub fn place(wishes: &[Wish], spacing: Spacing) -> Placement {
    let (lines, line_of) = trace_lines(wishes, spacing);
    let (offsets, bytes) = if lines.len() > MOST_COMPARED { by_steps(&lines) } else { by_size(&lines) };
    Placement { offsets: line_of.into_iter().map(|line| offsets[line]).collect(), bytes }
}

/// Offsets of lines, and how much memory they take: the largest line first. Looks at pairs of lines.
fn by_size(lines: &[Line]) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..lines.len()).filter(|k| lines[*k].bytes > 0).collect();
    order.sort_by_key(|k| (Reverse(lines[*k].bytes), lines[*k].first));
    let mut offsets = vec![0; lines.len()];
    // By offset, so that gaps are found in one walk.
    let mut placed: Vec<usize> = Vec::with_capacity(order.len());
    let mut bytes = 0;
    for k in order {
        offsets[k] = best_gap(lines, &offsets, &placed, k);
        bytes = bytes.max(offsets[k] + lines[k].bytes);
        let at = placed.partition_point(|other| offsets[*other] <= offsets[k]);
        placed.insert(at, k);
    }
    (offsets, bytes)
}

/// The same in the order of the steps, in n log n: who comes gets the smallest gap that those have left who are gone.
fn by_steps(lines: &[Line]) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..lines.len()).filter(|k| lines[*k].bytes > 0).collect();
    order.sort_by_key(|k| (lines[*k].first, Reverse(lines[*k].bytes)));
    let mut offsets = vec![0; lines.len()];
    let mut leaving: BinaryHeap<(Reverse<usize>, usize)> = BinaryHeap::new();
    let (mut gaps, mut bytes) = (Gaps::default(), 0);
    for k in order {
        let Line { bytes: wanted, first, last, .. } = lines[k];
        while let Some((Reverse(end), gone)) = leaving.peek().copied().filter(|(Reverse(end), _)| *end < first) {
            debug_assert!(end < first);
            leaving.pop();
            gaps.free(offsets[gone], lines[gone].bytes);
        }
        offsets[k] = gaps.take(wanted).unwrap_or_else(|| {
            // Behind all others; what is free at the end is a part of it.
            let start = gaps.take_last(bytes).unwrap_or(bytes);
            bytes = start + wanted;
            start
        });
        leaving.push((Reverse(last), k));
    }
    (offsets, bytes)
}

/// What is free between values, neighbours joined.
#[derive(Default)]
struct Gaps {
    /// by start
    sizes: BTreeMap<usize, usize>,
    /// by size, then start
    by_size: BTreeSet<(usize, usize)>,
}

impl Gaps {
    fn add(&mut self, start: usize, size: usize) {
        self.sizes.insert(start, size);
        self.by_size.insert((size, start));
    }

    fn remove(&mut self, start: usize, size: usize) {
        self.sizes.remove(&start);
        self.by_size.remove(&(size, start));
    }

    fn free(&mut self, start: usize, size: usize) {
        let (mut start, mut size) = (start, size);
        if let Some((before, length)) = self.sizes.range(..start).next_back().map(|(a, b)| (*a, *b))
            && before + length == start
        {
            self.remove(before, length);
            (start, size) = (before, size + length);
        }
        if let Some(length) = self.sizes.get(&(start + size)).copied() {
            self.remove(start + size, length);
            size += length;
        }
        self.add(start, size);
    }

    /// The start of the smallest gap that is large enough, of which the rest stays free.
    fn take(&mut self, wanted: usize) -> Option<usize> {
        let (size, start) = self.by_size.range((wanted, 0)..).next().copied()?;
        self.remove(start, size);
        if size > wanted {
            self.add(start + wanted, size - wanted);
        }
        Some(start)
    }

    /// The start of the gap that ends at `end`, which is no longer free.
    fn take_last(&mut self, end: usize) -> Option<usize> {
        let (start, size) = self.sizes.last_key_value().map(|(start, size)| (*start, *size))?;
        if start + size != end {
            return None;
        }
        self.remove(start, size);
        Some(start)
    }
}

/// The lines of heirs, and the line of every wish.
fn trace_lines(wishes: &[Wish], spacing: Spacing) -> (Vec<Line>, Vec<usize>) {
    let mut lines: Vec<Line> = Vec::with_capacity(wishes.len());
    let mut line_of: Vec<usize> = Vec::with_capacity(wishes.len());
    for (k, wish) in wishes.iter().enumerate() {
        debug_assert!(wish.first <= wish.last);
        let bytes = spacing.padded(wish.bytes);
        let heritage = wish.heir_of.filter(|left| {
            *left < k
                && spacing.padded(wishes[*left].bytes) >= bytes
                && wishes[*left].first < wish.first
                && wishes[*left].last == wish.first
                // Two heirs of one value would both have it.
                && lines[line_of[*left]].newest == *left
        });
        match heritage {
            Some(left) => {
                let line = &mut lines[line_of[left]];
                (line.last, line.newest) = (wish.last, k);
                line_of.push(line_of[left]);
            }
            None => {
                line_of.push(lines.len());
                lines.push(Line { bytes, first: wish.first, last: wish.last, newest: k });
            }
        }
    }
    (lines, line_of)
}

/// The start of the smallest gap between those that are needed at the same time, or of the end behind all of them.
fn best_gap(lines: &[Line], offsets: &[usize], placed: &[usize], k: usize) -> usize {
    let wanted = lines[k];
    let meets = |other: &&usize| lines[**other].first <= wanted.last && wanted.first <= lines[**other].last;
    let mut best: Option<(usize, usize)> = None;
    let mut end = 0;
    for other in placed.iter().filter(meets) {
        let gap = offsets[*other].saturating_sub(end);
        if gap >= wanted.bytes && best.is_none_or(|(smallest, _)| gap < smallest) {
            best = Some((gap, end));
        }
        end = end.max(offsets[*other] + lines[*other].bytes);
    }
    best.map_or(end, |(_, start)| start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox;

    fn wish(bytes: usize, first: usize, last: usize) -> Wish {
        Wish { bytes, first, last, heir_of: None }
    }

    const PROCESSOR: Spacing = Spacing { alignment: 64, slack: 64 };
    const GPU: Spacing = Spacing { alignment: 512, slack: 0 };

    fn check(wishes: &[Wish], placement: &Placement, spacing: Spacing) {
        for (a, wish) in wishes.iter().enumerate().filter(|(_, w)| w.bytes > 0) {
            let at = placement.offsets[a];
            assert_eq!(at % spacing.alignment, 0);
            assert!(at + wish.bytes <= placement.bytes);
            for (b, other) in wishes.iter().enumerate().take(a).filter(|(_, w)| w.bytes > 0) {
                let is_heritage = wish.heir_of == Some(b) && at == placement.offsets[b];
                let together = wish.first <= other.last && other.first <= wish.last;
                let (start, end) = (placement.offsets[b], placement.offsets[b] + other.bytes);
                assert!(!together || is_heritage || at + wish.bytes <= start || end <= at, "{a} and {b}: {wishes:?}");
            }
        }
    }

    #[test]
    fn a_chain_takes_the_memory_of_two() {
        let chain: Vec<Wish> = (0..10).map(|k| wish(1000, k, k + 1)).collect();
        let placement = place(&chain, PROCESSOR);
        check(&chain, &placement, PROCESSOR);
        assert_eq!(placement.bytes, 2 * (1024 + PROCESSOR.slack));
    }

    #[test]
    fn very_many_are_placed_without_comparing_them() {
        // Pairs of so many would take minutes.
        let count = 400_000;
        let chain: Vec<Wish> = (0..count).map(|k| wish(1000 + k % 3, k, k + 1)).collect();
        assert_eq!(place(&chain, PROCESSOR).bytes, 2 * (1024 + PROCESSOR.slack));
        let all: Vec<Wish> = (0..count).map(|k| wish(64, k, count)).collect();
        assert_eq!(place(&all, PROCESSOR).bytes, count * (64 + PROCESSOR.slack));
    }

    #[test]
    fn the_smallest_gap_is_taken() {
        // Between the first, third and fifth lie two gaps, once what was there is no longer needed.
        let sizes = [(6400, 9), (5000, 1), (4000, 9), (3000, 1), (2000, 9)];
        let mut wishes: Vec<Wish> = sizes.into_iter().map(|(bytes, last)| wish(bytes, 0, last)).collect();
        wishes.push(wish(1000, 2, 3));
        let placement = place(&wishes, PROCESSOR);
        check(&wishes, &placement, PROCESSOR);
        assert_eq!(placement.offsets[5], placement.offsets[3]);
    }

    #[test]
    fn an_heir_lies_where_the_other_lay() {
        let mut wishes = vec![wish(512, 0, 1), wish(512, 1, 2), wish(256, 2, 3), wish(256, 2, 3)];
        // The second heir of one value gets memory of its own.
        for (heir, left) in [(1, 0), (2, 1), (3, 1)] {
            wishes[heir].heir_of = Some(left);
        }
        let placement = place(&wishes, PROCESSOR);
        check(&wishes, &placement, PROCESSOR);
        assert_eq!(placement.offsets[..3], [placement.offsets[0]; 3]);
        assert_ne!(placement.offsets[3], placement.offsets[0]);
        // What is still read has no heir, nor has what is too small.
        for (left, heir) in [(wish(512, 0, 2), wish(512, 1, 3)), (wish(256, 0, 1), wish(512, 1, 3))] {
            let wishes = [left, Wish { heir_of: Some(0), ..heir }];
            let placement = place(&wishes, PROCESSOR);
            check(&wishes, &placement, PROCESSOR);
            assert_ne!(placement.offsets[0], placement.offsets[1]);
        }
    }

    #[test]
    fn nothing_takes_nothing() {
        assert_eq!(place(&[], PROCESSOR).bytes, 0);
        assert_eq!(place(&[wish(0, 0, 3), wish(0, 1, 1)], PROCESSOR).bytes, 0);
    }

    #[test]
    fn what_is_kept_at_one_time_never_overlaps() {
        for seed in 0..200 {
            let mut words = philox::words(seed, 0, 0);
            let mut draw = |below: usize| words.next().unwrap() as usize % below;
            let steps = 1 + draw(20);
            let mut wishes: Vec<Wish> = Vec::new();
            for k in 0..draw(40) {
                let first = draw(steps);
                let last = first + draw(steps - first);
                let heir_of = (k > 0 && draw(2) == 0).then(|| draw(k));
                wishes.push(Wish { bytes: draw(5) * draw(700), first, last, heir_of });
            }
            for spacing in [PROCESSOR, GPU] {
                let placement = place(&wishes, spacing);
                check(&wishes, &placement, spacing);
                let (lines, line_of) = trace_lines(&wishes, spacing);
                let (offsets, bytes) = by_steps(&lines);
                let offsets = line_of.into_iter().map(|line| offsets[line]).collect();
                check(&wishes, &Placement { offsets, bytes }, spacing);
                let padded = |wish: &Wish| spacing.padded(wish.bytes);
                let live = |t: usize| wishes.iter().filter(|w| w.first <= t && t <= w.last).map(padded).sum::<usize>();
                let at_least = (0..steps).map(live).max().unwrap();
                assert!(placement.bytes <= wishes.iter().map(padded).sum());
                assert!(wishes.iter().any(|w| w.heir_of.is_some()) || placement.bytes >= at_least);
            }
        }
    }
}
