//! Handles of a client without running tasks.

use super::resolver::tests::timers::Hasty;
use super::*;
use alloc::format;
use poolhouse_core::pool::{PoolEvent, PoolId};
use poolhouse_driver::{Event, EventKinds, EventRef, Notice, Publish};

fn client(options: ClientOptions) -> Client<Hasty> {
    Client::with_platform(Hasty::default(), options, Subscribers::default()).expect("the options are right")
}

#[test]
fn database_is_shown_by_its_name() {
    let client = client(ClientOptions::new("a").default_database("d"));
    for database in [client.database("d"), client.default_database().expect("the options name it")] {
        assert_eq!(format!("{database:?}"), "Database { name: \"d\", .. }");
    }
}

/// Subscribers also receive an event that was published without a context.
#[test]
fn events_with_and_without_context_reach_subscribers() {
    let events = Events::new(
        System::Mongodb,
        Subscribers::default(),
        #[cfg(feature = "tracing")]
        ClientOptions::new("a").log,
    );
    let mut subscription = events.subscribers().subscribe(EventKinds::ALL, 8, |_| true);
    assert!(events.kinds() != EventKinds::NONE);
    let event = PoolEvent::PoolReady { pool: PoolId::new(77) };
    events.publish(Instant::ORIGIN, EventRef::Pool(&event));
    events.of_server("a:1").publish(Instant::ORIGIN, EventRef::Pool(&event));
    for _ in 0..2 {
        let Some(Notice::Event { at, event: Event::Pool(heard) }) = subscription.try_next() else { panic!("heard") };
        assert_eq!((at, heard), (Instant::ORIGIN, event));
    }
    assert!(subscription.try_next().is_none());
}

/// Each handle is checked a constant number of times, however many handles are kept.
#[test]
fn handles_of_ended_tasks_are_dropped() {
    let tasks = Tasks::<Hasty>::new(Subscribers::default());
    for _ in 0..1000 {
        tasks.spawn(&Hasty::default(), async {});
        assert!(tasks.kept() <= 2, "this platform ends each task at once");
    }
}
