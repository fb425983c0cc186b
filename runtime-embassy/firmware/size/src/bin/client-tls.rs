//! A client that authenticates by SCRAM-SHA-256 and encrypts. Arguments: `ADDRESS:PORT SECONDS CYCLES USER PASSWORD`.
//!
//! It is for its size. The authority that it trusts is none, so it ends at once; what runs is `demo_tls`.
#![no_std]
#![no_main]

#[cortex_m_rt::entry]
fn main() -> ! {
    poolhouse_size::client::run_with_user()
}
