//! The contract that every adapter must pass.

use poolhouse_smol::Smol;
use poolhouse_tests::contract::Contract;
use poolhouse_tests::suite::as_one;
use std::process::ExitCode;

fn main() -> ExitCode {
    as_one(|| Contract::new("smol").with_threads_variable("SMOL_THREADS").run_hosted::<Smol>())
}
