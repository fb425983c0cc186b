//! Probes logging with defmt: publishes an event of each kind; the standard output must contain defmt
//! frames, and the flash none of the texts of this library.
#![no_std]
#![no_main]

use core::time::Duration;
use poolhouse_board::host;
use poolhouse_embassy::poolhouse_core::monitor::{HeartbeatId, MonitorEvent};
use poolhouse_embassy::poolhouse_core::observe::EventContext;
use poolhouse_embassy::poolhouse_core::pool::{PoolEvent, PoolId};
use poolhouse_embassy::poolhouse_core::topology::{SdamEvent, TopologyId};
use poolhouse_embassy::poolhouse_core::{Cause, Instant, ServerId};
use poolhouse_embassy::{DefmtEvents, EventRef, Publish};

#[cortex_m_rt::entry]
fn main() -> ! {
    let (topology, server, address) = (TopologyId::new(1), ServerId::new(0), "db.example:27017");
    let context = EventContext::of_server(address);
    let publish = |event: EventRef<'_>| DefmtEvents.publish_in(Instant::from_nanos(7_000_000), event, &context);
    publish(EventRef::Sdam(&SdamEvent::ServerOpening { topology, server, address }));
    let id = HeartbeatId { server, connection: 1, server_connection: None };
    let (duration, cause) = (Duration::from_millis(3), Cause::NetworkTimeout);
    publish(EventRef::Heartbeat(&MonitorEvent::HeartbeatFailed { id, awaited: false, duration, cause }));
    publish(EventRef::Pool(&PoolEvent::PoolReady { pool: PoolId::new(1) }));
    host::exit(0)
}
