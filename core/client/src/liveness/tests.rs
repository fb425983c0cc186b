use super::*;
use poolhouse_core::Instant;
use poolhouse_core::mux::{HostOptions, Mux, MuxConfig, MuxConnId, MuxId, MuxOnHeap, MuxOptions};

/// Ids of two connections of a host.
pub(crate) fn conns() -> [MuxConnId; 2] {
    let mut events: Vec<(Instant, MuxEvent)> = Vec::new();
    let local = HostOptions { core_connections: 2, max_connections: 2, ..MuxOptions::DEFAULT.local };
    let config = MuxOptions { local, ..MuxOptions::DEFAULT }.validate().expect("valid options");
    let mut mux = Mux::<MuxOnHeap>::new(Instant::ORIGIN, MuxId::new(1), MuxConfig::DEFAULT, &mut events);
    mux.reconfigure(Instant::ORIGIN, config, &mut events);
    let created =
        |event: &MuxEvent| if let MuxEvent::ConnectionCreated { conn, .. } = event { Some(*conn) } else { None };
    let conns: Vec<_> = events.iter().filter_map(|(_, event)| created(event)).collect();
    conns.try_into().expect("two connections are being created")
}

#[test]
fn host_is_down_after_its_last_connection_until_the_next() {
    let [first, second] = conns();
    let ready = |conn| MuxEvent::ConnectionReady { mux: MuxId::new(1), conn, duration: core::time::Duration::ZERO };
    let closed = |conn, reason| MuxEvent::ConnectionClosed { mux: MuxId::new(1), conn, reason, in_flight: 0 };
    let failed = |conn| closed(conn, MuxClosed::Error(Cause::Network));

    let mut liveness = Liveness::default();
    assert_eq!(liveness.on_mux_event(&ready(first)), None, "it was not down");
    assert_eq!(liveness.on_mux_event(&failed(first)), Some(Turn::Down(Cause::Network)));
    assert_eq!(liveness.on_mux_event(&failed(first)), None, "once");
    assert!(liveness.is_down());
    assert_eq!(liveness.on_mux_event(&ready(first)), Some(Turn::Up));
    assert_eq!(liveness.on_mux_event(&ready(second)), None);
    assert_eq!(liveness.on_mux_event(&failed(first)), None, "the other connection is open");
    assert_eq!(liveness.on_mux_event(&failed(second)), Some(Turn::Down(Cause::Network)));
    let refused = closed(first, MuxClosed::Error(Cause::Authentication));
    assert_eq!(liveness.on_mux_event(&refused), Some(Turn::Up), "it answers");
    assert_eq!(liveness.on_mux_event(&failed(first)), Some(Turn::Down(Cause::Network)));
    assert_eq!(liveness.on_mux_event(&ready(first)), Some(Turn::Up));
    assert_eq!(liveness.on_mux_event(&closed(first, MuxClosed::Idle)), None, "not by a failure");
    assert_eq!(liveness.on_mux_event(&closed(first, MuxClosed::Error(Cause::Cancelled))), None, "given up");
    assert_eq!(liveness.on_mux_event(&refused), None);
    assert!(!liveness.is_down());
    assert_eq!(liveness.on_mux_event(&failed(first)), Some(Turn::Down(Cause::Network)));
    let ignored = MuxOptions { distance: Distance::Ignored, ..MuxOptions::DEFAULT }.validate().expect("valid");
    assert_eq!(liveness.on_mux_event(&MuxEvent::PoolReconfigured { mux: MuxId::new(1), config: ignored }), None);
    assert!(!liveness.is_down(), "a host that is not used");
    assert_eq!(liveness.on_mux_event(&failed(first)), None, "its last connections may fail");
    assert!(!liveness.is_down());
    let used = MuxEvent::PoolReconfigured { mux: MuxId::new(1), config: MuxConfig::DEFAULT };
    assert_eq!(liveness.on_mux_event(&used), None);
    assert_eq!(liveness.on_mux_event(&failed(first)), Some(Turn::Down(Cause::Network)), "it is used again");
    assert_eq!(liveness.on_mux_event(&MuxEvent::PoolClosed { mux: MuxId::new(1) }), None);
    assert_eq!(liveness.on_mux_event(&failed(first)), None, "nor does a closed pool show anything");
    assert!(!liveness.is_down());
}
