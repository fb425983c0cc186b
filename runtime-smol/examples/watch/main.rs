//! Keeps a pool to a server busy and shows what happens.
//!
//! ```text
//! cargo run --release -p poolhouse-smol --example watch [-- mongodb://host:port[,host:port..][/?replicaSet=name]] [--tasks N] [--seconds S]
//! ```
//!
//! What the string leaves open is set to what shows well: ten connections at most (`maxPoolSize`), five seconds for each operation
//! (`timeoutMS`), a check every second (`heartbeatFrequencyMS`). What is wrong with it is said first.
//!
//! Without a connection string it starts a fake replica set in the process and fails its primary over every three seconds. On a
//! terminal it draws a table twice a second; elsewhere it prints a line for each server a second. It ends with status 0 only if operations
//! succeeded and the last one did.

extern crate alloc;

mod program;

/// What the program has of its runtime.
mod runtime {
    pub(crate) use poolhouse_smol::*;
    pub(crate) use smol::{block_on, spawn};

    pub(crate) async fn sleep(time: core::time::Duration) {
        smol::Timer::after(time).await;
    }
}

fn main() -> std::process::ExitCode {
    program::main()
}
