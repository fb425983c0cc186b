use super::Trace;
use crate::machines::pool::Event;
use crate::oracle::Checks;
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::pool::{CheckOutError, CheckOutFailedReason, ClosedReason, PoolOptions};

fn trace(events: &[(u64, Event)]) -> Trace {
    Trace(events.iter().map(|(at, event)| (Instant::from_nanos(*at), 7, *event)).collect())
}

fn run() -> Vec<(u64, Event)> {
    let failed =
        |error, after| Event::Failed(CheckOutFailedReason::ConnectionError, error, Duration::from_nanos(after));
    vec![
        (0, Event::PoolCreated(PoolOptions::DEFAULT)),
        (1, Event::PoolReady),
        (2, Event::Started),
        (2, Event::Created(1)),
        (3, Event::Started),
        (4, failed(CheckOutError::Cancelled, 1)),
        (5, Event::Ready(1, Duration::from_nanos(3))),
        (5, Event::CheckedOut(1, Duration::from_nanos(3))),
        (6, Event::PoolCleared { service: None, interrupt: true, cause: None }),
        (7, Event::CheckedIn(1)),
        (7, Event::Closed(1, ClosedReason::Stale, None)),
        (8, Event::PoolClosed),
    ]
}

#[test]
fn trace_is_read_as_written_and_checked_again() {
    let whole = trace(&run());
    let text = whole.json().to_string();
    let read = Trace::parse(&serde_json::from_str(&text).expect("JSON")).expect("a trace");
    assert_eq!(read, whole);
    let mut checks = Checks::default();
    read.judge(&mut checks).expect("right");
    assert!(checks.of("P8") > 0 && checks.of("P27") > 0 && checks.of("P32") > 0);
    Trace::parse(&serde_json::json!([[0, 1, ["nonsense"]]])).expect_err("no event");
    for limit in ["maxIdleTimeNS", "waitQueueTimeoutNS"] {
        let mut left_out = whole.json();
        left_out[0][2][1].as_object_mut().expect("options").remove(limit).expect("a limit, or null");
        Trace::parse(&left_out).expect_err(limit);
    }
}

#[test]
fn each_error_is_read_as_itself() {
    for (number, error) in super::ERRORS.into_iter().enumerate() {
        assert_eq!(super::kind_of(error), number, "{error:?}");
    }
}

#[test]
fn events_are_checked_without_calls() {
    let without = |place: usize| {
        let mut events = run();
        events.remove(place);
        trace(&events)
    };
    let broken = |place| without(place).judge(&mut Checks::default()).expect_err("something is missing").id;
    // PoolCreated, PoolReady, the start of a check-out, the creation and the establishment of its
    // connection, its check-out.
    assert_eq!([0, 1, 2, 3, 6, 7].map(broken), ["P29", "P37", "P8", "P27", "P27", "P27"]);
    // A clear.
    assert_eq!(broken(8), "P31");
}
