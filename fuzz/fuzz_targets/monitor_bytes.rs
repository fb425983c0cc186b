#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| poolhouse_tests::fuzz::monitor_bytes(data));
