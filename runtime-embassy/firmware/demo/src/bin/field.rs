//! A device that sleeps and is offline for long: see the library.
#![no_std]
#![no_main]

#[cortex_m_rt::entry]
fn main() -> ! {
    poolhouse_demo::run_field()
}
