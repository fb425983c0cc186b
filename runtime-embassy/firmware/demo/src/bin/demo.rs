//! Telemetry from a microcontroller to MongoDB: see the library.
#![no_std]
#![no_main]

#[cortex_m_rt::entry]
fn main() -> ! {
    poolhouse_demo::run()
}
