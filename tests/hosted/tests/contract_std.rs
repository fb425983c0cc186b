//! The contract with the runtime of an example.

#[expect(clippy::std_instead_of_alloc, clippy::std_instead_of_core, reason = "an example of the standard library")]
#[path = "../../../core/client/examples/std_runtime/runtime.rs"]
mod runtime;

use poolhouse_tests::contract::Contract;
use poolhouse_tests::suite::as_one;
use runtime::Std;
use std::process::ExitCode;

fn main() -> ExitCode {
    as_one(|| Contract::new("std").with_threads_variable("STD_THREADS").run_platform::<Std>())
}
