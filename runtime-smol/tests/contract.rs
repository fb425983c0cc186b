//! The contract that every adapter must pass.

use poolhouse_smol::Smol;
use poolhouse_tests::contract::Contract;
use std::process::ExitCode;

fn main() -> ExitCode {
    Contract::new("smol").with_threads_variable("SMOL_THREADS").run_hosted::<Smol>()
}
