//! A client that authenticates by SCRAM-SHA-256 and encrypts. Arguments: `ADDRESS:PORT SECONDS CYCLES USER PASSWORD`.
//!
//! It is for its size. The authority that it trusts is none, so it ends at once; what runs is `demo_tls`.
#![no_std]
#![no_main]

use embassy_executor::Spawner;
use poolhouse_board::host;
use poolhouse_embassy::{Credential, Mechanism, Options};
use poolhouse_size::{client, end};

#[cortex_m_rt::entry]
fn main() -> ! {
    let mut arguments = host::arguments();
    let Some(plan) = client::plan(&mut arguments) else { end(Err(1)) };
    let (Some(user), Some(password)) = (arguments.next(), arguments.next()) else { end(Err(3)) };
    let credential = Credential::new(user, password).with_mechanism(Mechanism::SCRAM_SHA_256);
    let options = Options { credential: Some(credential), ..client::options(plan) };
    poolhouse_board::run(|spawner: Spawner| client::start(spawner, plan, options))
}
