#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| poolhouse_tests::fuzz::cql_values(data));
