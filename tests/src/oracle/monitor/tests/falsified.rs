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
fn falsified_outputs_break_these_invariants() {
    expect![[r#"
        a cause is wrong: S15 25, S16 76, S18 21, S2 21
        a check has another connection: S1 111, S18 31, nothing 2
        a current report is stale: S21 138
        a duration is wrong: S2 141
        a failure is reported as a success: S15 30, S16 65, S18 13, S2 27
        a hello is of another kind: S1 6, S15 13, S17 122
        a round-trip time is wrong: S13 157
        a stale report is current: S21 156
        an action is another: S1 49, S14 63, S15 3, S17 3, S18 34
        an action is for another connection: S1 71, S15 11, S17 19, S18 38
        an action is missing, or one is too much: S1 35, S14 41, S15 2, S18 23, S21 57
        an event has another time: S21 147
        an event is emitted twice: S1 68, S2 73
        an event is missing: S15 3, S16 13, S18 6, S2 48, S4 69, S6 1
        awaited is wrong: S14 5, S15 5, S2 76, S3 58, S6 1
        streaming is wrong: S14 158
        the next deadline is wrong: S16 79, S18 6, S21 16, S4 47, S5 9
        the state or the outcome is wrong: S2 69, S7 89
    "#]]
    .assert_eq(&verdicts(3_000, 260, crate::fuzz::monitor));
}
