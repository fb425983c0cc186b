//! A client without authentication. Arguments: `ADDRESS:PORT [SECONDS [CYCLES]]`.
#![no_std]
#![no_main]

#[cortex_m_rt::entry]
fn main() -> ! {
    poolhouse_size::client::run()
}
