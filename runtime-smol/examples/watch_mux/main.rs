//! Puts rising and falling load on multiplexed pools, and shows how their size follows.
//!
//! ```text
//! cargo run --release -p poolhouse-smol --example watch_mux [-- HOST[:PORT].. [--peak N] [--seconds S] [--user NAME --password WORD]]
//! ```
//!
//! Without a host it starts three fake Cassandra servers in the process, which take 30 ms to
//! answer. The pools are small, and they grow, trash connections and resurrect them within seconds:
//! 1 to 4 connections to a host, 16 requests on each, a check for surplus connections every second,
//! and a trashed connection is closed after four seconds. Periodically a request is cancelled, and
//! its stream id stays reserved until the late reply arrives.
//!
//! On a terminal it draws a table five times a second; elsewhere it prints a line for each host a
//! second. It ends with a summary. The exit status is 0 only if requests were answered and none
//! failed; with the fake servers, only if growth, trashing and resurrection also occurred.

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
