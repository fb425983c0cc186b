//! A client without authentication. Arguments: `ADDRESS:PORT [SECONDS [CYCLES]]`.
#![no_std]
#![no_main]

use embassy_executor::Spawner;
use poolhouse_board::host;
use poolhouse_size::{client, end};

#[cortex_m_rt::entry]
fn main() -> ! {
    let Some(plan) = client::plan(&mut host::arguments()) else { end(Err(1)) };
    poolhouse_board::run(|spawner: Spawner| client::start(spawner, plan, client::options(plan)))
}
