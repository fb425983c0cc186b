//! The contract that every adapter must pass.

use poolhouse_async_std::AsyncStd;
use poolhouse_tests::contract::Contract;
use std::process::ExitCode;

fn main() -> ExitCode {
    Contract::new("async-std").with_threads_variable("ASYNC_STD_THREAD_COUNT").run_hosted::<AsyncStd>()
}
