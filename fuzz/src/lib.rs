//! Programs that search for inputs which break Fuseline; what they call lives in `tests/src/fuzz`.

/// Runs a target by name.
pub fn run(name: &str, data: &[u8]) {
    let target = fuseline_tests::fuzz::find(name).expect("programs are called as targets are");
    (target.run)(data);
}
