//! Signals that end the command: nothing half written stays, in files and on the screen.

use std::sync::Once;

/// From now on a signal that ends the command removes what is not whole first. Where signals cannot be watched, it may stay.
pub fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(system::watch);
}

#[cfg(unix)]
mod system {
    use std::sync::Arc;

    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
    use signal_hook::iterator::Signals;
    use signal_hook::{flag, low_level};

    use crate::{part, waiting};

    pub fn watch() {
        // A write beyond the limit on the size of files fails then, instead of ending the command without a word.
        let _ = flag::register(SIGXFSZ, Arc::default());
        let ignored = ignored();
        let ends = [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
        let Ok(mut signals) = Signals::new(ends) else { return };
        std::thread::spawn(move || {
            for signal in signals.forever() {
                // Ends the command while it can make no other part.
                let _none = part::remove_all();
                waiting::leave();
                let _ = low_level::emulate_default_handler(signal);
            }
        });
    }

    /// The signals that the command was started to ignore, as under `nohup`, a bit each; where the system tells.
    fn ignored() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    }
}

#[cfg(not(unix))]
mod system {
    /// There are no signals to watch.
    pub fn watch() {}
}
