//! A client with SCRAM-SHA-256 and TLS. Arguments: `ADDRESS:PORT SECONDS CYCLES USER PASSWORD`.
//!
//! Only its size is measured: its trusted authority is not a valid certificate, so it ends at once.
//! `demo_tls` is the program to run.
#![no_std]
#![no_main]

#[cortex_m_rt::entry]
fn main() -> ! {
    poolhouse_size::client::run_with_user()
}
