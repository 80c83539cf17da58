//! How work is cut into tasks: enough for all cores, and as few as that takes.
//!
//! No result depends on it: an element is computed by one task, in the same way whatever else the task does.

use super::bound::ceil_div;

/// Tasks for each core, where there is enough to do: who is held up leaves some to the others.
const TASKS_OF_CORE: i64 = 4;

/// Tasks that there should be where few cores are.
const FEWEST_TASKS: i64 = 16;

/// Elements of work that a task should have at most, and at least.
const MOST_ELEMENTS: i64 = 16 << 10;
const LEAST_ELEMENTS: i64 = 2 << 10;

/// How many elements a task of elementwise work should have, of so many in all; a multiple of 64.
pub(super) fn elements(all: i64, cores: usize) -> i64 {
    even(all, cores).clamp(LEAST_ELEMENTS, MOST_ELEMENTS) / 64 * 64
}

/// How much of something a task has if there are no more tasks than all cores need.
pub(super) fn even(all: i64, cores: usize) -> i64 {
    all / (TASKS_OF_CORE * cores as i64).max(1)
}

/// How many of `count` tiles, but at most `most`, a task takes, where `others` times as many are to be done in all: so many that
/// the last core is done early, and of numbers that are about as good the largest.
pub(super) fn tiles(count: i64, others: i64, most: i64, cores: usize) -> i64 {
    let cores = (cores as i64).max(1);
    let wanted = ceil_div((TASKS_OF_CORE * cores).max(FEWEST_TASKS), others.max(1));
    let most = ceil_div(count, wanted).min(most).max(1);
    let last = |together: i64| ceil_div(others * ceil_div(count, together), cores) * together;
    let best = (1..=most).map(last).min().unwrap_or(1);
    (1..=most).rev().find(|together| last(*together) * 20 <= best * 21).unwrap_or(1)
}

/// Into how many runs `count` rows are cut, of at most `most` rows each, where `others` times as many are to be done in all: all
/// cores have something to do, and the same number of runs, but no run is shorter than `least` for that.
pub(super) fn runs(count: i64, others: i64, (least, most): (i64, i64), cores: usize) -> i64 {
    let (cores, others) = ((cores as i64).max(1), others.max(1));
    let needed = ceil_div(count, most.max(1));
    let turns = ceil_div(needed * others, cores);
    ceil_div(turns * cores, others).clamp(needed, ceil_div(count, least.max(1)).max(needed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_small_where_there_is_little_to_do() {
        assert_eq!(elements(1 << 20, 2), MOST_ELEMENTS);
        assert_eq!(elements(128 * 256, 2), 4096);
        assert_eq!(elements(128 * 256, 16), LEAST_ELEMENTS);
        assert_eq!(elements(1 << 20, 64), 4096);
        assert_eq!(elements(100, 1), LEAST_ELEMENTS);
    }

    #[test]
    fn tiles_are_shared_so_that_no_core_is_late() {
        // 128 rows in 22 tiles by 4 panels: 88 tiles, 44 for each of two cores.
        assert_eq!(tiles(22, 4, 100, 2), 2);
        // 16 cores: 5.5 tiles each, so that somebody has six.
        let together = tiles(22, 4, 100, 16);
        assert_eq!((together, ceil_div(4 * ceil_div(22, together), 16) * together), (2, 6));
        assert_eq!(tiles(22, 48, 100, 2), 22, "there are enough panels to share");
        assert_eq!((tiles(1, 1, 100, 16), tiles(1000, 1, 7, 1)), (1, 7));
    }

    #[test]
    fn rows_are_shared_by_all_cores() {
        assert_eq!(runs(128, 1, (4, 66), 2), 2);
        assert_eq!(runs(128, 1, (4, 66), 16), 16);
        assert_eq!(runs(132 + 48, 1, (4, 66), 2), 4, "not three runs for two cores");
        assert_eq!(runs(128, 8, (4, 66), 16), 2);
        assert_eq!(runs(6, 1, (4, 66), 16), 2, "runs are not cut into rows");
        assert_eq!((runs(1, 1, (4, 66), 16), runs(3, 1, (4, 66), 64)), (1, 1));
    }
}
