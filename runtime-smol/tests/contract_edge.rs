//! The contract with the edge-triggered reactor.

use poolhouse_smol::edge::Edge;
use poolhouse_tests::contract::Contract;
use poolhouse_tests::suite::as_one;
use std::process::ExitCode;

fn main() -> ExitCode {
    as_one(|| Contract::new("smol, edge-triggered").with_threads_variable("SMOL_THREADS").run_platform::<Edge>())
}
