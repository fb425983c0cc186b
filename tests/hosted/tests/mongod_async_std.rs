//! The client on async-std against a real mongod, given by `MONGOD`.

extern crate alloc;

#[path = "mongod/suite.rs"]
mod suite;

/// The names that the suite uses of its runtime.
mod runtime {
    pub(crate) use async_std::task::{JoinHandle as Task, block_on, sleep, spawn, spawn_blocking as unblock};
    pub(crate) use poolhouse_async_std::{AsyncStd as Runtime, *};
}

fn main() -> std::process::ExitCode {
    suite::main("mongod_async_std")
}
