//! How many cases a property is tried on, and which.

use proptest::test_runner::{Config, RngSeed};

/// So many cases, the same ones every time, so that a change is judged by itself. With `PROPTEST_CASES` set, as many as it says,
/// drawn from `PROPTEST_RNG_SEED` or anew.
pub fn cases(count: u32) -> Config {
    let usual = Config { failure_persistence: None, ..Config::default() };
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    if asked { usual } else { Config { cases: count, rng_seed: RngSeed::Fixed(1), ..usual } }
}
