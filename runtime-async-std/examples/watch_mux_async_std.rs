//! Puts rising and falling load on multiplexed pools and shows how their size follows, on
//! async-std. The program is that of `poolhouse-smol`'s example, which describes it.
//!
//! ```text
//! cargo run -p poolhouse-async-std --example watch_mux_async_std [-- HOST[:PORT].. [--peak N] [--seconds S] [--user NAME --password WORD]]
//! ```

extern crate alloc;

#[path = "../../runtime-smol/examples/watch_mux/program.rs"]
mod program;

/// The names that the program uses of its runtime.
mod runtime {
    pub(crate) use async_std::task::{block_on, sleep, spawn};
    pub(crate) use poolhouse_async_std::*;
}

fn main() -> std::process::ExitCode {
    program::main()
}
