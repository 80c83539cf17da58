//! What a model may ask for where nobody says otherwise.
//!
//! A stranger's file that is made to take everything is small; a network that needs much brings its weights, or is given large inputs.
//! So something is allowed to everybody, and more for every byte that is brought. What is no file is ours, and may have more.

use std::time::Duration;

use fuseline::reference::Limits;

/// A second of a program that is optimised.
const SECOND: Duration = Duration::from_secs(if cfg!(debug_assertions) { 16 } else { 1 });

/// How long importing a model and compiling it may take, both together; `bytes` are those of its files, none where it has none.
pub fn time(bytes: Option<u64>) -> Duration {
    const LEAST: u64 = 7;
    const OURS: u64 = 60;
    const BYTES_PER_SECOND: u64 = 4 << 20;
    let seconds = bytes.map_or(OURS, |bytes| LEAST + bytes / BYTES_PER_SECOND);
    SECOND.saturating_mul(u32::try_from(seconds).unwrap_or(u32::MAX))
}

/// How long the first run of such a model may take by the clock, all that comes before it included. No honest model comes near it; what has no
/// end meets it, whatever it is doing.
pub fn run_time(bytes: Option<u64>) -> Duration {
    const LEAST: u64 = 600;
    const BYTES_PER_SECOND: u64 = 1 << 20;
    Duration::from_secs(LEAST + bytes.unwrap_or(0) / BYTES_PER_SECOND)
}

/// What a run of such a model may use. For a file of a megabyte that is less than a gigabyte, with all that is not counted.
pub fn run(bytes: Option<u64>) -> Limits {
    const LEAST: u64 = 512 << 20;
    const SHARE: u64 = 256;
    let usual = Limits::default();
    let Some(bytes) = bytes else { return usual };
    // Large models need not be a hundred times as large when they run.
    let most = usual.bytes.max(bytes.saturating_mul(8));
    Limits { bytes: LEAST.saturating_add(bytes.saturating_mul(SHARE)).min(most), share: SHARE, ..usual }
}

/// The same on a GPU, whose memory is not that of the system: where nobody has said how much, as much as ever.
pub fn on_gpu(limits: Limits) -> Limits {
    let is_usual = limits.share > 0;
    Limits { bytes: if is_usual { limits.bytes.max(Limits::default().bytes) } else { limits.bytes }, ..limits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_brings_more_may_have_more() {
        assert_eq!(time(Some(1 << 20)), 7 * SECOND);
        assert_eq!(time(Some(400 << 20)), 107 * SECOND);
        assert_eq!(time(None), 60 * SECOND);
        assert_eq!([None, Some(400 << 20)].map(run_time), [600, 1000].map(Duration::from_secs));
        assert!(run(Some(1 << 20)).bytes < 1 << 30);
        assert_eq!(run(Some(1 << 30)).bytes, 8 << 30);
        assert_eq!(run(Some(4 << 30)).bytes, 32 << 30);
        assert_eq!(run(None), Limits::default());
    }
}
