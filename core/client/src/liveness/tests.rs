use super::*;
use poolhouse_core::Instant;
use poolhouse_core::mux::{Mux, MuxConfig, MuxId, MuxOnHeap, MuxOptions};

#[test]
fn host_is_down_after_its_last_connection_until_the_next() {
    let now = Instant::ORIGIN;
    let mut events: Vec<(Instant, MuxEvent)> = Vec::new();
    let mut mux = Mux::<MuxOnHeap>::new(now, MuxId::new(1), MuxConfig::DEFAULT, &mut events);
    mux.reconfigure(now, MuxConfig::DEFAULT, &mut events);
    let conns: Vec<_> = events
        .iter()
        .filter_map(|(_, event)| if let MuxEvent::ConnectionCreated { conn, .. } = event { Some(*conn) } else { None })
        .collect();
    let [first, ..] = conns[..] else { panic!("{events:?}") };
    let ready = |conn| MuxEvent::ConnectionReady { mux: MuxId::new(1), conn, duration: core::time::Duration::ZERO };
    let closed = |conn, reason| MuxEvent::ConnectionClosed { mux: MuxId::new(1), conn, reason, in_flight: 0 };
    let failed = |conn| closed(conn, MuxClosed::Error(Cause::Network));

    let mut liveness = Liveness::default();
    assert_eq!(liveness.on_mux_event(&ready(first)), None, "it was not down");
    assert_eq!(liveness.on_mux_event(&failed(first)), Some(Turn::Down(Cause::Network)));
    assert_eq!(liveness.on_mux_event(&failed(first)), None, "once");
    assert!(liveness.is_down());
    assert_eq!(liveness.on_mux_event(&ready(first)), Some(Turn::Up));
    assert_eq!(liveness.on_mux_event(&closed(first, MuxClosed::Idle)), None, "not by a failure");
    assert_eq!(liveness.on_mux_event(&closed(first, MuxClosed::Error(Cause::Cancelled))), None, "given up");
    assert_eq!(liveness.on_mux_event(&closed(first, MuxClosed::Error(Cause::Authentication))), None, "it answers");
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
