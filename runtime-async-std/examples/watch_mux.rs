//! Puts load on multiplexed pools that rises and falls, and shows how they follow it: the program
//! of `poolhouse-smol`'s example, which says more of it, on async-std.
//!
//! ```text
//! cargo run -p poolhouse-async-std --example watch_mux [-- HOST[:PORT].. [--peak N] [--seconds S] [--user NAME --password WORD]]
//! ```

extern crate alloc;

#[path = "../../runtime-smol/examples/watch_mux/program.rs"]
mod program;

/// What the program has of its runtime.
mod runtime {
    pub(crate) use async_std::task::{block_on, sleep, spawn};
    pub(crate) use poolhouse_async_std::*;
}

fn main() -> std::process::ExitCode {
    program::main()
}
