//! The contract that every adapter must pass: its runtime.

use poolhouse_async_std::AsyncStd;
use poolhouse_tests::contract::Contract;
use poolhouse_tests::suite::as_one;
use std::process::ExitCode;

fn main() -> ExitCode {
    as_one(|| Contract::new("async-std").with_threads_variable("ASYNC_STD_THREAD_COUNT").run_platform::<AsyncStd>())
}
