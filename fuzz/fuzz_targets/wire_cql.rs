#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| poolhouse_tests::fuzz::cql(data));

libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let size = libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    poolhouse_tests::fuzz::lengths::repair_envelopes(&mut data[..size], seed);
    size
});
