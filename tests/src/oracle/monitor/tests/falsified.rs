//! One falsified output of a monitor.

use crate::choices::Choices;
use crate::model::monitor::{ModelAction, What};
use crate::oracle::monitor::watched::{Answer, Outputs};
use crate::oracle::tests::falsify::{self, Kind, at_another_time, change, flip, missing, next, twice, verdicts};
use core::time::Duration;
use expect_test::expect;
use poolhouse_core::Cause;
use poolhouse_core::monitor::MonitorEvent::{HeartbeatFailed, HeartbeatStarted, HeartbeatSucceeded};
use poolhouse_core::monitor::{CheckOutcome, HelloKind, MonitorConnKind, MonitorState};

pub(in crate::oracle::monitor) fn step(mut outputs: Outputs) -> Outputs {
    falsify::step(&mut outputs, &KINDS);
    outputs
}

const KINDS: [Kind<Outputs>; 16] = [
    ("an event is missing", |it, rng| missing(&mut it.events, rng)),
    ("an event is emitted twice", |it, rng| twice(&mut it.events, rng)),
    ("an event has another time", |it, rng| at_another_time(&mut it.events, rng)),
    ("awaited is wrong", |it, _| match it.events.last_mut() {
        Some((_, HeartbeatStarted { awaited, .. } | HeartbeatSucceeded { awaited, .. })) => flip(awaited),
        Some((_, HeartbeatFailed { awaited, .. })) => flip(awaited),
        _ => false,
    }),
    ("a check has another connection", |it, _| match it.events.last_mut() {
        Some((_, HeartbeatStarted { id, .. })) => next(&mut id.connection),
        _ => false,
    }),
    ("a duration is wrong", |it, _| match it.events.first_mut() {
        Some((_, HeartbeatSucceeded { duration, .. } | HeartbeatFailed { duration, .. })) => {
            change(duration, *duration + Duration::from_millis(1))
        }
        _ => false,
    }),
    ("a cause is wrong", |it, rng| match it.events.first_mut() {
        Some((_, HeartbeatFailed { cause, .. })) => {
            change(cause, rng.one_of(&[Cause::Network, Cause::NetworkTimeout, Cause::Protocol, Cause::Closed]))
        }
        _ => false,
    }),
    ("a failure is reported as a success", |it, _| match it.events.first_mut() {
        Some((_, event)) => match *event {
            HeartbeatFailed { id, awaited, duration, .. } => {
                change(event, HeartbeatSucceeded { id, awaited, duration })
            }
            _ => false,
        },
        None => false,
    }),
    ("a report is stale, or is not", |it, _| match &mut it.answer {
        Answer::Current(is_current) => flip(is_current),
        _ => false,
    }),
    ("an action is missing", |it, _| match &mut it.answer {
        Answer::Action(action) => action.take().is_some(),
        _ => false,
    }),
    ("an action is another, or one too much", |it, rng| match &mut it.answer {
        Answer::Action(action) => {
            let kind = rng.one_of(&[MonitorConnKind::Check, MonitorConnKind::Rtt]);
            let hellos = [HelloKind::Handshake { legacy: true }, HelloKind::Poll { legacy: rng.one_in(2) }];
            let what =
                rng.one_of(&[What::Dial, What::Hello(hellos[0]), What::Hello(hellos[1]), What::Read, What::Hangup]);
            change(action, Some(ModelAction { kind, number: u64::from(rng.below(8)), what }))
        }
        _ => false,
    }),
    ("the state is wrong", |it, rng| {
        use MonitorState::{Checking, Closed, Ended, New, Waiting};
        change(&mut it.state, rng.one_of(&[New, Waiting, Checking, Ended, Closed]))
    }),
    ("the outcome is wrong", |it, _| {
        let other = CheckOutcome::Succeeded { awaited: false, sample: None };
        let other = if it.outcome.is_none() { Some(other) } else { None };
        change(&mut it.outcome, other)
    }),
    ("streaming is wrong", |it, _| flip(&mut it.streaming)),
    ("the next deadline is wrong", |it, rng| {
        let later = it.due.map(|due| due.saturating_add(Duration::from_nanos(1)));
        change(&mut it.due, rng.one_of(&[None, later]))
    }),
    ("a round-trip time is wrong", |it, rng| {
        let (average, minimum) = &mut it.round_trip;
        if rng.one_in(2) {
            return change(average, Some(average.unwrap_or_default() + 1.0));
        }
        change(minimum, *minimum + Duration::from_micros(1))
    }),
];

#[test]
fn each_kind_of_falsified_output_breaks_these_invariants() {
    expect![[r#"
        a cause is wrong: S16 77, S18 24, S2 68
        a check has another connection: S15 21, S2 7, S4 138, S6 4
        a duration is wrong: S16 57, S18 13, S2 103
        a failure is reported as a success: S16 65, S18 29, S2 71
        a report is stale, or is not: S21 187
        a round-trip time is wrong: S13 187
        an action is another, or one too much: S1 49, S14 49, S15 18, S17 26, S18 45
        an action is missing: S1 78, S14 5, S15 17, S17 20, S18 48
        an event has another time: S16 28, S18 8, S2 67, S4 63, S6 2
        an event is emitted twice: S15 5, S16 27, S18 6, S2 53, S4 79
        an event is missing: S15 3, S16 31, S18 7, S2 47, S4 78
        awaited is wrong: S15 2, S16 29, S18 6, S2 67, S4 74, S6 2
        streaming is wrong: S14 187
        the next deadline is wrong: S16 79, S4 73, S5 2, S7 22
        the outcome is wrong: S7 187
        the state is wrong: S2 187
    "#]]
    .assert_eq(&verdicts(3_000, 260, crate::fuzz::monitor));
}
