//! Puts load on a client and shows its servers, pools, throughput, latency and events.
//!
//! ```text
//! cargo run --release -p poolhouse-watch --
//!     [mongodb://..] [--tasks N] [--seconds S] [--serve [PORT]] [--calm]
//! ```
//!
//! A server that requires authentication or TLS needs `--features auth,tls` before the `--`.
//!
//! Without a connection string it starts a fake replica set in the process and fails its primary
//! over repeatedly, by step-downs and crashes in turn: every three seconds, or on a screen every
//! ten seconds until the first key or button; with `--calm` never.
//!
//! On a terminal it draws a screen until `q`; elsewhere it prints one line a second, for ten
//! seconds. `--seconds` sets another time. `--serve` also serves the screen as a web page on
//! loopback, until SIGINT or SIGTERM.
//!
//! Options that the connection string does not set have values for demonstration: at most ten
//! connections (`maxPoolSize`), five seconds for each operation (`timeoutMS`), a check every second
//! (`heartbeatFrequencyMS`).
//!
//! The exit status is 0 only if operations succeeded, including the last one unless a user ended
//! the program.
#![forbid(unsafe_code)]

extern crate alloc;

mod arguments;
mod command;
mod demo;
mod load;
mod page;
mod program;
mod screen;
mod state;
mod terminal;

fn main() -> std::process::ExitCode {
    program::main()
}
