//! What one plan gains over another.

use std::fmt;

use super::decision::Cost;
use crate::device::DeviceSpec;

/// Predictions are off by this part of what kernels take, and by more where they weigh arithmetic against traffic.
pub const UNSURE: f64 = 0.05;

/// What another plan gains in all.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Gain {
    /// microseconds that it takes less; negative where it takes more
    pub us: f64,
    /// bytes that it moves less
    pub bytes: f64,
    /// what that is worth, in microseconds; nothing where it is not believed
    pub worth_us: f64,
}

impl Gain {
    /// What a plan gains over another; `changed_us` is what those kernels of the other take in whose place it has others.
    ///
    /// Of two plans, the one that moves more bytes has to save more time than predictions are off by. Where these are few, what they take from
    /// memory is enough to give up for moving fewer.
    pub(super) fn of(after: Cost, before: Cost, changed_us: f64, spec: &DeviceSpec) -> Gain {
        let (us, bytes) = (before.us - after.us, before.bytes - after.bytes);
        let unsure_us = UNSURE * changed_us;
        let worth_us = match bytes < 0.0 {
            true if us > unsure_us => us,
            true => 0.0,
            false => (us + spec.main_memory().us(bytes).min(unsure_us)).max(0.0),
        };
        Gain { us, bytes, worth_us }
    }

    /// The same, worth something only if it takes no longer.
    pub(super) fn in_time(self) -> Gain {
        let worth_us = if self.us < 0.0 { 0.0 } else { self.worth_us };
        Gain { worth_us, ..self }
    }
}

impl fmt::Display for Gain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Gain { us, .. } if us >= LEAST_SHOWN_US => write!(f, "takes {us:.2} µs less"),
            Gain { us, bytes, .. } if us > 0.0 && bytes < 1.0 => write!(f, "takes {:.2} ns less", us * 1e3),
            Gain { us, bytes, .. } if us <= -LEAST_SHOWN_US => {
                write!(f, "moves {} less, for {:.2} µs more,", bytes_text(bytes), -us)
            }
            Gain { bytes, .. } => write!(f, "takes as long and moves {} less", bytes_text(bytes)),
        }
    }
}

/// Less than this is shown as nothing.
const LEAST_SHOWN_US: f64 = 0.005;

/// Bytes, as people read them.
pub(crate) fn bytes_text(bytes: f64) -> String {
    match bytes {
        n if n >= 1e9 => format!("{:.2} GB", n / 1e9),
        n if n >= 1e6 => format!("{:.2} MB", n / 1e6),
        n if n >= 1e3 => format!("{:.1} kB", n / 1e3),
        n => format!("{n} B"),
    }
}
