#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuseline_fuzz::run("pipeline", data));
