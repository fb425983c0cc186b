//! Events that are stored and delivered.

use super::*;
use crate::{CommandEvent, CommandStage, Event, EventKinds, EventRef, Publish, SelectionEvent, SelectionStage};
use alloc::string::ToString;
use poolhouse_core::ServerId;
use poolhouse_core::cluster::ClusterEvent;
use poolhouse_core::monitor::{HeartbeatId, MonitorEvent};
use poolhouse_core::mux::{MuxEvent, MuxId};
use poolhouse_core::observe::{EventContext, Tee};
use poolhouse_core::pool::{PoolEvent, PoolId};
use poolhouse_core::topology::{SdamEvent, TopologyId};

#[test]
fn owned_event_equals_the_borrowed_event() {
    let pool = PoolEvent::PoolReady { pool: PoolId::new(1) };
    let id = HeartbeatId { server: ServerId::new(1), connection: 1, server_connection: None };
    let heartbeat = MonitorEvent::HeartbeatStarted { id, awaited: true };
    let sdam = SdamEvent::TopologyOpening { topology: TopologyId::new(1) };
    let mux = MuxEvent::PoolClosed { mux: MuxId::new(1) };
    let stage = CommandStage::Failed { duration: Duration::from_millis(2), error: &OperationError::Closed };
    let mut command = CommandEvent::new(stage, "ping");
    command.address = "a:1";
    let (_, core, _) = open();
    let topology = core.topology();
    let stage = SelectionStage::Waiting { remaining: Some(Duration::from_millis(3)), again: false };
    let mut selection = SelectionEvent::new(stage, "write", topology.get());
    selection.operation = Some("ping");
    let stage = SelectionStage::Failed { error: Some(&OperationError::Closed) };
    let failed = SelectionEvent::new(stage, "write", topology.get());
    let stage = SelectionStage::Failed { error: None };
    let dropped = SelectionEvent::new(stage, "read from nearest", topology.get());
    let events = [
        (EventRef::Pool(&pool), "PoolReady"),
        (EventRef::Heartbeat(&heartbeat), "ServerHeartbeatStarted awaited=true"),
        (EventRef::Sdam(&sdam), "TopologyOpening"),
        (EventRef::Mux(&mux), "PoolClosed"),
        (EventRef::Cluster(&ClusterEvent::SchemaChanged), "SchemaChanged"),
        (EventRef::Command(&command), "CommandFailed ping a:1 after 2ms: the client is closed"),
        (EventRef::Selection(&selection), "ServerSelectionWaiting ping (write), at most 3ms"),
        (EventRef::Selection(&failed), "ServerSelectionFailed (write): the client is closed"),
        (EventRef::Selection(&dropped), "ServerSelectionFailed (read from nearest): cancelled"),
    ];
    for (event, text) in events {
        let kept = event.to_owned();
        assert_eq!(kept.to_string(), text);
        let same_kind = matches!(
            (event, &kept),
            (EventRef::Pool(_), Event::Pool(_))
                | (EventRef::Heartbeat(_), Event::Heartbeat(_))
                | (EventRef::Sdam(_), Event::Sdam(_))
                | (EventRef::Mux(_), Event::Mux(_))
                | (EventRef::Cluster(_), Event::Cluster(_))
                | (EventRef::Command(_), Event::Command(_))
                | (EventRef::Selection(_), Event::Selection(_))
        );
        assert!(same_kind, "{kept:?}");
    }
}

/// An observer that is active or not, and counts its events.
#[derive(Clone)]
struct Ear {
    listens: bool,
    heard: Arc<AtomicUsize>,
    delivered: Arc<AtomicUsize>,
}

impl Ear {
    fn new(listens: bool) -> Self {
        Self { listens, heard: Arc::default(), delivered: Arc::default() }
    }

    fn counts(&self) -> (usize, usize) {
        (self.heard.load(Ordering::Relaxed), self.delivered.load(Ordering::Relaxed))
    }
}

impl Publish for Ear {
    fn kinds(&self) -> EventKinds {
        if self.listens { EventKinds::POOLS } else { EventKinds::NONE }
    }

    fn publish(&self, _now: Instant, _event: EventRef<'_>) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }

    fn deliver(&self) {
        self.delivered.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn each_of_two_observers_receives_its_events_once() {
    let event = PoolEvent::PoolReady { pool: PoolId::new(1) };
    for (first, second) in [(true, true), (true, false), (false, true), (false, false)] {
        let both = Tee(Ear::new(first), Ear::new(second)).of_server("a:1");
        assert_eq!(both.kinds().intersects(EventKinds::ALL), first || second);
        both.publish(Instant::ORIGIN, EventRef::Pool(&event));
        both.publish_in(Instant::ORIGIN, EventRef::Pool(&event), &EventContext::of_server("a:1"));
        both.deliver();
        assert_eq!(both.0.counts(), (2 * usize::from(first), 1));
        assert_eq!(both.1.counts(), (2 * usize::from(second), 1));
    }
}

/// Server Selection, "Passing read preference to mongos and load balancers"
#[test]
fn read_preference_is_sent_unchanged() {
    use crate::append_read_preference;
    use poolhouse_core::selection::{ReadMode, ReadPreference};
    use poolhouse_wire::bson::{DocumentWriter, RawDocument};
    let json = |preference: &ReadPreference<'_>| {
        let mut bytes = Vec::new();
        DocumentWriter::write(&mut bytes, |command| append_read_preference(command, preference)).expect("room");
        RawDocument::new(&bytes).expect("whole").relaxed_json().to_string()
    };
    for (mode, name) in [
        (ReadMode::Primary, "primary"),
        (ReadMode::PrimaryPreferred, "primaryPreferred"),
        (ReadMode::Secondary, "secondary"),
        (ReadMode::SecondaryPreferred, "secondaryPreferred"),
        (ReadMode::Nearest, "nearest"),
    ] {
        let text = alloc::format!("{{\"$readPreference\":{{\"mode\":\"{name}\"}}}}");
        assert_eq!(json(&ReadPreference::of(mode)), text);
    }
}
