//! Puts load on multiplexed pools that rises and falls, and shows how they follow it.
//!
//! ```text
//! cargo run --release -p poolhouse-smol --example watch_mux [-- HOST[:PORT].. [--peak N] [--seconds S] [--user NAME --password WORD]]
//! ```
//!
//! Without a host it starts three fake Cassandra servers in the process, which take 30 ms to answer. The pools are small, so that they grow, trash
//! connections and take them back within seconds: 1 to 4 connections to a host, 16 requests on each, a look every second whether that many are needed, and four
//! seconds until one in the trash is closed. Now and then a request is given up, and its stream id is kept until the late reply comes.
//!
//! On a terminal it draws a table five times a second; elsewhere it prints a line for each host a second. It ends with a summary, and with status 0 only if requests
//! were answered and none failed; with the fake servers, only if growth, trashing and resurrection were seen as well.

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
