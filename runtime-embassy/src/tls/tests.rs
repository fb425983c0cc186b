//! TLS in borrowed memory against servers in memory: rustls', and one that breaks the protocol.

mod certificates;
mod fuzz;
mod lane;
mod liar;
mod lies;
mod mongod;
mod stream;
mod support;
