#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = poolhouse_tests::fuzz::selection(data);
});
