//! How long compiling may take, by the clock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fuseline::budget::Budget;
use fuseline::error::Error;

/// How long importing a model, and then compiling it, may take where nobody says otherwise: many times what the largest networks of ours
/// take on a busy machine.
pub const USUAL: Duration = Duration::from_secs(60);

/// A budget that ends so long after work begins.
pub fn budget(most: Duration) -> Budget {
    Budget::watched(move || {
        let start = Instant::now();
        Arc::new(move || match start.elapsed() > most {
            true => Err(Error::limit(format!("compiling takes longer than {} s", most.as_secs_f64()))),
            false => Ok(()),
        })
    })
}

#[cfg(test)]
mod tests {
    use fuseline::error::Kind;

    use super::*;

    #[test]
    fn time_is_up_when_it_is() {
        let never = budget(Duration::MAX).started();
        let at_once = budget(Duration::ZERO).started();
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(never.check(), Ok(()));
        let error = at_once.check().unwrap_err();
        assert_eq!((error.kind(), error.message()), (Kind::Limit, "compiling takes longer than 0 s"));
    }
}
