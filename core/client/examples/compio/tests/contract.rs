//! The contract that every adapter must pass: its runtime.
//!
//! With the environment variable `COMPIO_POLLING`, the runtime polls as on a kernel without
//! io_uring.

use compio::driver::{DriverType, ProactorBuilder};
use compio::runtime::{Runtime, RuntimeBuilder};
use poolhouse_compio::Compio;
use poolhouse_tests::contract::Contract;
use std::process::ExitCode;

fn main() -> ExitCode {
    Contract::new("compio").on_one_thread(|case| runtime().block_on(case)).run_platform::<Compio>()
}

fn runtime() -> Runtime {
    let mut proactor = ProactorBuilder::new();
    if std::env::var_os("COMPIO_POLLING").is_some() {
        proactor.driver_type(DriverType::Poll);
    }
    RuntimeBuilder::new().with_proactor(proactor).build().expect("a runtime")
}
