//! Probes logging with defmt: publishes an event of a pool; the standard output must contain defmt
//! frames with the event's text.
#![no_std]
#![no_main]

use poolhouse_board::host;
use poolhouse_embassy::poolhouse_core::Instant;
use poolhouse_embassy::poolhouse_core::observe::EventContext;
use poolhouse_embassy::poolhouse_core::pool::{PoolEvent, PoolId};
use poolhouse_embassy::{DefmtEvents, EventRef, Publish};

#[cortex_m_rt::entry]
fn main() -> ! {
    let event = PoolEvent::PoolReady { pool: PoolId::new(1) };
    let context = EventContext::of_server("db.example:27017");
    DefmtEvents.publish_in(Instant::from_nanos(7_000_000), EventRef::Pool(&event), &context);
    host::exit(0)
}
