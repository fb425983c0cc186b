//! Tests of TLS in borrowed memory against servers in memory: rustls, and one that violates the
//! protocol.

mod certificates;
mod fuzz;
mod lane;
mod liar;
mod lies;
mod mongod;
#[cfg(feature = "rsa")]
mod rsa;
mod stream;
mod support;
