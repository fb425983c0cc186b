//! A client with SCRAM-SHA-256 and memory for a direct connection. Arguments: `ADDRESS:PORT SECONDS CYCLES USER PASSWORD`.
#![no_std]
#![no_main]

#[cortex_m_rt::entry]
fn main() -> ! {
    poolhouse_size::client::run_with_user()
}
