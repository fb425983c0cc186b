//! Keeps a pool to a server busy and shows its state and events, on async-std. The program is that
//! of `poolhouse-smol`'s example, which describes it.
//!
//! ```text
//! cargo run -p poolhouse-async-std --example watch [-- mongodb://host:port[,host:port..][/?replicaSet=name]] [--tasks N] [--seconds S]
//! ```

extern crate alloc;

#[path = "../../runtime-smol/examples/watch/program.rs"]
mod program;

/// The names that the program uses of its runtime.
mod runtime {
    pub(crate) use async_std::task::{block_on, sleep, spawn};
    pub(crate) use poolhouse_async_std::*;
}

fn main() -> std::process::ExitCode {
    program::main()
}
