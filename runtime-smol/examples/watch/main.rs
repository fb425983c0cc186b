//! Puts load on a pool and shows its state and events.
//!
//! ```text
//! cargo run --release -p poolhouse-smol --example watch [-- mongodb://host:port[,host:port..][/?replicaSet=name]] [--tasks N] [--seconds S]
//! ```
//!
//! Options that the string does not set have values for demonstration: at most ten connections
//! (`maxPoolSize`), five seconds for each operation (`timeoutMS`), a check every second
//! (`heartbeatFrequencyMS`). Warnings about the string are printed first.
//!
//! Without a connection string it starts a fake replica set in the process, with a failover every
//! three seconds. On a terminal it draws a table twice a second; elsewhere it prints a line for
//! each server a second. The exit status is 0 only if operations succeeded, including the last one.

extern crate alloc;

mod program;

/// The names that the program uses of its runtime.
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
