use super::*;
use crate::log::LogOptions;
use crate::log::tests::capture::capture;
use poolhouse_core::pool::{PoolEvent, PoolId};
use poolhouse_wire::bson::RawDocument;

fn ready(number: u32) -> PoolEvent {
    PoolEvent::PoolReady { pool: PoolId::new(number.into()) }
}

fn publish(queue: &LogQueue) {
    if queue.kinds() != EventKinds::NONE {
        queue.publish_in(Instant::ORIGIN, EventRef::Pool(&ready(1)), &EventContext::of_server("a:1"));
    }
}

#[test]
fn queued_messages_are_emitted_at_delivery() {
    let queue = LogQueue::new(LogOptions::DEFAULT);
    let captured = capture(|| {
        publish(&queue);
        publish(&queue);
        assert!(queue.shared.lock().entries.counts() == (2, 0), "both are queued");
        queue.deliver();
    });
    assert_eq!(captured.len(), 2);
    assert_eq!(captured[0].text("serverHost"), "a");
    assert!(queue.shared.lock().entries.is_empty() && !queue.shared.lock().emptied);
}

#[test]
fn address_of_a_server_is_known_without_its_context() {
    let queue = LogQueue::new(LogOptions::DEFAULT).of_server("b:2");
    let captured = capture(|| {
        queue.publish(Instant::ORIGIN, EventRef::Pool(&ready(1)));
        queue.deliver();
    });
    assert_eq!(captured[0].text("serverHost"), "b");
}

#[test]
#[doc(alias = "LOG-37")]
fn without_a_subscriber_nothing_is_queued() {
    let queue = LogQueue::new(LogOptions::DEFAULT);
    publish(&queue);
    let off = LogQueue::new(LogOptions::OFF);
    capture(|| {
        off.publish(Instant::ORIGIN, EventRef::Pool(&ready(1)));
        assert!(off.kinds() == EventKinds::NONE);
    });
    assert!(queue.shared.lock().entries.is_empty() && off.shared.lock().entries.is_empty());
}

#[test]
fn queue_is_bounded_and_reports_the_number_of_dropped_messages() {
    let queue = LogQueue::new(LogOptions::DEFAULT);
    let captured = capture(|| {
        (0..LOG_QUEUE_EVENTS + 5).for_each(|_| publish(&queue));
        queue.deliver();
        publish(&queue);
        queue.deliver();
    });
    assert_eq!(captured.len(), LOG_QUEUE_EVENTS + 2);
    let lost = &captured[LOG_QUEUE_EVENTS];
    assert_eq!((lost.level, lost.message()), (tracing::Level::WARN, "Log messages were lost"));
    assert_eq!(captured[LOG_QUEUE_EVENTS + 1].message(), "Connection pool ready", "and it goes on");
}

/// The options may let the queue keep whole replies, and the server chooses the length of each
/// reply.
#[test]
fn security_5_log_queue_is_bounded_in_bytes() {
    let queue =
        LogQueue::new(LogOptions { document_length_max: usize::MAX, heartbeat_replies: true, ..LogOptions::DEFAULT });
    // { "me": "xx.." }
    let (length, text) = (1_u32 << 20, "x".repeat(1 << 20));
    let parts = [&(length + 14).to_le_bytes(), &b"\x02me\0"[..], &(length + 1).to_le_bytes(), text.as_bytes(), b"\0\0"];
    let bytes = parts.concat();
    let context = EventContext::of_server("a:1").with_reply(RawDocument::new(&bytes).unwrap());
    let captured = capture(|| {
        for _ in 0..20 {
            queue.publish_in(Instant::ORIGIN, EventRef::Pool(&ready(1)), &context);
        }
        let (kept, lost) = queue.shared.lock().entries.counts();
        assert!(kept < LOG_QUEUE_BYTES >> 20 && kept as u64 + lost == 20, "{kept} kept, {lost} lost");
        queue.deliver();
        publish(&queue);
        queue.deliver();
    });
    let warnings = captured.iter().filter(|message| message.level == tracing::Level::WARN);
    assert_eq!(warnings.map(|message| message.message()).collect::<alloc::vec::Vec<_>>(), ["Log messages were lost"]);
    assert_eq!(
        captured.last().map(|message| message.message()),
        Some("Connection pool ready"),
        "later messages are emitted"
    );
}

#[test]
fn subscriber_may_publish_and_deliver_itself() {
    let queue = LogQueue::new(LogOptions::DEFAULT);
    capture(|| {
        publish(&queue);
        let mut count = 0;
        queue.shared.empty(|_| {
            count += 1;
            if count < 3 {
                publish(&queue);
                // This call does not emit: the thread that empties the queue also emits entries
                // that arrive meanwhile.
                queue.deliver();
            }
        });
        assert_eq!(count, 3);
    });
}

/// Changes by several threads are emitted in their order, and by one thread at a time.
#[test]
#[doc(alias = "LOG-01")]
fn events_of_several_threads_are_emitted_in_order_by_one_thread_at_a_time() {
    const THREADS: u32 = 4;
    const EACH: u32 = 1000;
    let queue = LogQueue::new(LogOptions::DEFAULT);
    // Represents the lock that protects the changes.
    let changes = Mutex::new(0);
    let (busy, emitted, begin) =
        (AtomicBool::new(false), Mutex::new(alloc::vec::Vec::new()), std::sync::Barrier::new(THREADS as usize));
    let emit = |next| {
        assert!(!busy.swap(true, Ordering::SeqCst), "two at once");
        let Next::Entry(Entry { content: Content::Event(Event::Pool(PoolEvent::PoolReady { pool })), .. }) = next
        else {
            panic!("none was lost")
        };
        emitted.lock().expect("not poisoned").push(pool);
        assert!(busy.swap(false, Ordering::SeqCst), "another one was here");
    };
    let work = || {
        capture(|| {
            begin.wait();
            for _ in 0..EACH {
                {
                    let mut changes = changes.lock().expect("not poisoned");
                    *changes += 1;
                    queue.publish(Instant::ORIGIN, EventRef::Pool(&ready(*changes)));
                }
                queue.shared.empty(emit);
            }
        });
    };
    std::thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
    let expected: alloc::vec::Vec<PoolId> = (1..=THREADS * EACH).map(|number| PoolId::new(number.into())).collect();
    assert_eq!(*emitted.lock().expect("not poisoned"), expected);
}

/// Only the message at which the subscriber panics is lost. The change that the message reports
/// takes effect, and later messages are emitted.
#[test]
fn panic_of_a_subscriber_loses_one_message() {
    let queue = LogQueue::new(LogOptions::DEFAULT);
    let captured = capture(|| {
        publish(&queue);
        queue.shared.empty(|_| panic!("a subscriber's"));
        publish(&queue);
        queue.deliver();
    });
    assert_eq!(captured.len(), 1);
}

/// Panics when `enabled` is called.
struct Undecided;

impl tracing::Subscriber for Undecided {
    fn register_callsite(&self, _: &'static tracing::Metadata<'static>) -> tracing::subscriber::Interest {
        tracing::subscriber::Interest::sometimes()
    }

    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        panic!("a subscriber's");
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {}

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// `enabled` is called under the lock of the object that changes.
#[test]
fn subscriber_that_panics_in_enabled_receives_no_message() {
    let queue = LogQueue::new(LogOptions::DEFAULT);
    tracing::subscriber::with_default(Undecided, || {
        assert!(queue.kinds() == EventKinds::NONE);
        queue.publish(Instant::ORIGIN, EventRef::Pool(&ready(1)));
        assert!(queue.shared.lock().entries.is_empty());
        queue.deliver();
    });
}

#[test]
fn queued_reply_is_cut_to_the_logged_length() {
    let queue = LogQueue::new(LogOptions { document_length_max: 1, heartbeat_replies: true, ..LogOptions::DEFAULT });
    capture(|| {
        let context = EventContext::NONE.with_reply(RawDocument::EMPTY);
        let (entry, bytes) = queue.entry(&EventRef::Pool(&ready(1)), &context, &mut None);
        assert_eq!((entry.reply.as_deref(), bytes), (Some("{..."), entry.reply.as_ref().map_or(0, String::capacity)));
    });
}

/// The specification of logs has no messages for these events, even if everything is logged.
#[test]
fn events_of_multiplexed_pools_are_not_logged() {
    use poolhouse_core::mux::{MuxEvent, MuxId};
    let queue = LogQueue::new(LogOptions::DEFAULT);
    let event = MuxEvent::PoolClosed { mux: MuxId::new(1) };
    let captured = capture(|| {
        queue.publish(Instant::ORIGIN, EventRef::Mux(&event));
        assert!(queue.shared.lock().entries.is_empty());
        queue.emit(&queue.entry(&EventRef::Mux(&event), &EventContext::NONE, &mut None).0);
        queue.deliver();
    });
    assert_eq!(captured, []);
}

#[test]
fn address_in_the_context_of_an_event_takes_precedence() {
    let queue = LogQueue::new(LogOptions::DEFAULT).of_server("b:2");
    let captured = capture(|| {
        for address in ["b:2", "c:3"] {
            queue.publish_in(Instant::ORIGIN, EventRef::Pool(&ready(1)), &EventContext::of_server(address));
        }
        queue.deliver();
    });
    assert!(captured.iter().map(|event| event.text("serverHost")).eq(["b", "c"]), "{captured:?}");
}

/// If a server is down, only the server has a line, and its pool has none. A refused credential has
/// one line until the server accepts a connection.
#[test]
fn visible_failures_each_fact_of_a_pool_has_one_line() {
    use poolhouse_core::pool::ClosedReason;
    use poolhouse_core::{Cause, ObjectId};
    let (pool, conn) = (PoolId::new(1), crate::log::tests::connection_id());
    let refused =
        PoolEvent::ConnectionClosed { pool, conn, reason: ClosedReason::Error, cause: Some(Cause::Authentication) };
    let cleared = |service_id| PoolEvent::PoolCleared {
        pool,
        service_id,
        interrupt_in_use_connections: false,
        cause: Some(Cause::Network),
    };
    let ready = PoolEvent::ConnectionReady { pool, conn, duration: core::time::Duration::ZERO };
    let lines = LogOptions { connection: tracing::level_filters::LevelFilter::OFF, ..LogOptions::DEFAULT };
    let (one, other) = (LogQueue::new(lines).of_server("a:1"), LogQueue::new(lines).of_server("b:2"));
    let captured = capture(|| {
        let publish = |queue: &LogQueue, event: &PoolEvent| queue.publish(Instant::ORIGIN, EventRef::Pool(event));
        publish(&one, &cleared(None));
        publish(&one, &cleared(Some(ObjectId([0xcd; 12]))));
        (0..3).for_each(|_| publish(&one, &refused));
        publish(&other, &refused);
        publish(&one, &ready);
        publish(&one, &refused);
        one.deliver();
        other.deliver();
    });
    assert!(captured.iter().all(|event| event.target == crate::log::DEPLOYMENT), "{captured:?}");
    let lines: alloc::vec::Vec<_> = captured.iter().map(|event| event.message()).collect();
    let expected = [
        "pool cleared: a:1, service cdcdcdcdcdcdcdcdcdcdcdcd: network error",
        "authentication failed: a:1",
        "authentication failed: a:1",
        "authentication failed: b:2",
    ];
    assert_eq!(lines, expected);
}

/// Messages about check-outs have the level *debug*.
#[test]
fn log_of_warnings_does_not_observe_check_outs() {
    let warnings = LogOptions { connection: LevelFilter::WARN, topology: LevelFilter::WARN, ..LogOptions::DEFAULT };
    for (options, is_observed) in [(LogOptions::DEFAULT, true), (warnings, false)] {
        let queue = LogQueue::new(options);
        capture(|| {
            assert!(queue.kinds().intersects(EventKinds::POOLS) && queue.kinds().intersects(EventKinds::TOPOLOGY));
            assert_eq!(queue.kinds().intersects(EventKinds::CHECK_OUTS), is_observed);
        });
    }
}
