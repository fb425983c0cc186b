//! The contract that every adapter must pass.

use compio::runtime::Runtime;
use poolhouse_compio::Compio;
use poolhouse_tests::contract::Contract;
use std::process::ExitCode;

fn main() -> ExitCode {
    Contract::new("compio")
        .on_one_thread(|case| Runtime::new().expect("a runtime").block_on(case))
        .run_hosted::<Compio>()
}
