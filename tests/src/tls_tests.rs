//! TLS of poolhouse-core against rustls servers in memory and on loopback.

mod configuration;
mod errors;
mod handshake;
mod loopback;
mod peers;
mod stream;
mod support;
