//! An idle client. Arguments: `ADDRESS:PORT SECONDS stream|poll HEARTBEAT`.
#![no_std]
#![no_main]

#[cortex_m_rt::entry]
fn main() -> ! {
    poolhouse_size::client::run_idle()
}
