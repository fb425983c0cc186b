//! The client on smol against a real mongod, given by `MONGOD`.

extern crate alloc;

#[path = "mongod/suite.rs"]
mod suite;

/// The names that the suite uses of its runtime.
mod runtime {
    pub(crate) use poolhouse_smol::{Smol as Runtime, *};
    pub(crate) use smol::{Task, block_on, spawn, unblock};

    pub(crate) async fn sleep(time: core::time::Duration) {
        smol::Timer::after(time).await;
    }
}

fn main() -> std::process::ExitCode {
    suite::main("mongod")
}
