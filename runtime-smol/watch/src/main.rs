//! Puts load on a client and shows its servers, pools, throughput, latency and events.
//!
//! ```text
//! cargo run --release -p poolhouse-watch --
//!     [mongodb://..] [--calm] [--tasks N] [--seconds S] [--serve [PORT]]
//! cargo run --release -p poolhouse-watch --
//!     --cassandra [HOST[:PORT]..] [--user NAME --password WORD] [--tasks N] [--seconds S] [--serve [PORT]]
//! ```
//!
//! On a terminal it draws a screen until `q`; elsewhere it prints one line a second, for ten
//! seconds. `--seconds` sets another time. `--serve` also serves the screen as a web page on
//! loopback, until SIGINT or SIGTERM.
//!
//! # MongoDB
//!
//! A server that requires authentication or TLS needs `--features auth,tls` before the `--`.
//!
//! Without a connection string it starts a fake replica set in the process and fails its primary
//! over repeatedly, by step-downs and crashes in turn: every three seconds, or on a screen every
//! ten seconds until the first key or button; with `--calm` never.
//!
//! Options that the connection string does not set have values for demonstration: at most ten
//! connections (`maxPoolSize`), five seconds for each operation (`timeoutMS`), a check every second
//! (`heartbeatFrequencyMS`).
//!
//! The exit status is 0 only if operations succeeded, including the last one unless a user ended
//! the program.
//!
//! # Cassandra
//!
//! The hosts are contact points, from which the session finds its cluster. Without a host it starts three fake
//! nodes in the process, which take 30 ms to answer; keys and buttons kill and freeze them.
//!
//! The load rises and falls, to `--tasks` requests in flight at its peak. The pools are small, so that they
//! grow, trash connections and resurrect them within seconds. Periodically a request is cancelled, and its
//! stream id stays orphaned until the late reply arrives.
//!
//! The exit status is 0 only if requests were answered and, unless a user ended the program, none failed;
//! with the fake nodes, only if growth, trashing and resurrection also occurred.
#![forbid(unsafe_code)]

extern crate alloc;

mod arguments;
mod cassandra;
mod command;
mod demo;
mod load;
mod mongodb;
mod nodes;
mod page;
mod program;
mod screen;
mod state;
mod terminal;

fn main() -> std::process::ExitCode {
    program::main()
}
