//! One falsified output of a monitor.

use crate::choices::Choices;
use crate::oracle::monitor::watched::{Action, Answer, Seen, Wire};
use crate::oracle::tests::falsify::{
    self, Kind, at_another_time, change, flip, missing, next, reversed, twice, verdicts,
};
use crate::rng::Rng;
use core::time::Duration;
use expect_test::expect;
use poolhouse_core::monitor::MonitorEvent::{HeartbeatFailed, HeartbeatStarted, HeartbeatSucceeded};
use poolhouse_core::monitor::{CheckOutcome, HelloKind, MonitorConnKind, MonitorEvent, MonitorState};
use poolhouse_core::{Cause, Instant};

type Step<'e> = (Answer, &'e mut Vec<(Instant, MonitorEvent)>, Seen);

pub(in crate::oracle::monitor) fn step(
    answer: Answer,
    events: &mut Vec<(Instant, MonitorEvent)>,
    seen: Seen,
) -> (Answer, Seen) {
    let mut step = (answer, events, seen);
    falsify::step(&mut step, &kinds());
    (step.0, step.2)
}

fn kinds<'e>() -> [Kind<Step<'e>>; 19] {
    [
        ("an event is missing", |(_, events, _), rng| missing(events, rng)),
        ("an event is emitted twice", |(_, events, _), rng| twice(events, rng)),
        ("events are in another order", |(_, events, _), _| reversed(events)),
        ("an event has another time", |(_, events, _), rng| at_another_time(events, rng)),
        ("awaited is wrong", |(_, events, _), _| match events.last_mut() {
            Some((_, HeartbeatStarted { awaited, .. } | HeartbeatSucceeded { awaited, .. })) => flip(awaited),
            Some((_, HeartbeatFailed { awaited, .. })) => flip(awaited),
            _ => false,
        }),
        ("a check has another connection", |(_, events, _), _| match events.last_mut() {
            Some((_, HeartbeatStarted { id, .. })) => next(&mut id.connection),
            _ => false,
        }),
        ("a duration is wrong", |(_, events, _), _| match events.first_mut() {
            Some((_, HeartbeatSucceeded { duration, .. } | HeartbeatFailed { duration, .. })) => {
                change(duration, *duration + Duration::from_millis(1))
            }
            _ => false,
        }),
        ("a cause is wrong", |(_, events, _), rng| match events.first_mut() {
            Some((_, HeartbeatFailed { cause, .. })) => {
                change(cause, rng.one_of(&[Cause::Network, Cause::NetworkTimeout, Cause::Protocol, Cause::Closed]))
            }
            _ => false,
        }),
        ("a failure is reported as a success", |(_, events, _), _| match events.first_mut() {
            Some((_, event)) => match *event {
                HeartbeatFailed { id, awaited, duration, .. } => {
                    change(event, HeartbeatSucceeded { id, awaited, duration })
                }
                _ => false,
            },
            None => false,
        }),
        ("a current report is stale", |(answer, ..), _| *answer == Answer::Done && change(answer, Answer::Stale)),
        ("a stale report is current", |(answer, ..), _| *answer == Answer::Stale && change(answer, Answer::Done)),
        ("an action is missing, or one is too much", |(answer, ..), rng| match answer {
            Answer::Action(action) => {
                let other = if action.is_none() { Some(any_action(rng)) } else { None };
                change(action, other)
            }
            _ => false,
        }),
        ("an action is another", |(answer, ..), rng| match answer {
            Answer::Action(Some(action)) => change(action, any_action(rng)),
            _ => false,
        }),
        ("an action is for another connection", |(answer, ..), _| match answer {
            Answer::Action(Some(Action::Dial(wire) | Action::Hello(wire, _))) => next(&mut wire.number),
            Answer::Action(Some(Action::Read(wire) | Action::Hangup(wire))) => next(&mut wire.number),
            _ => false,
        }),
        ("a hello is of another kind", |(answer, ..), rng| match answer {
            Answer::Action(Some(Action::Hello(_, hello))) => {
                let legacy = rng.one_in(2);
                change(hello, rng.one_of(&[HelloKind::Handshake { legacy }, HelloKind::Poll { legacy }]))
            }
            _ => false,
        }),
        ("the state or the outcome is wrong", |(.., seen), rng| {
            use MonitorState::{Checking, Closed, Ended, New, Waiting};
            let outcome = CheckOutcome::Succeeded { awaited: false, sample: None };
            if rng.one_in(2) {
                return change(&mut seen.state, rng.one_of(&[New, Waiting, Checking, Ended, Closed]));
            }
            let other = if seen.outcome.is_none() { Some(outcome) } else { None };
            change(&mut seen.outcome, other)
        }),
        ("streaming is wrong", |(.., seen), _| flip(&mut seen.streaming)),
        ("the next deadline is wrong", |(.., seen), rng| {
            let now = seen.timeout.unwrap_or(Instant::ORIGIN);
            change(&mut seen.timeout, rng.one_of(&[None, Some(now.saturating_add(Duration::from_nanos(1))), Some(now)]))
        }),
        ("a round-trip time is wrong", |(.., seen), rng| {
            let time = if rng.one_in(2) { seen.average.get_or_insert_default() } else { &mut seen.minimum };
            change(time, *time + Duration::from_micros(1))
        }),
    ]
}

fn any_action(rng: &mut Rng) -> Action {
    let kind = rng.one_of(&[MonitorConnKind::Check, MonitorConnKind::Rtt]);
    let wire = Wire { kind, number: u64::from(rng.below(8)) };
    let hello = HelloKind::Poll { legacy: rng.one_in(2) };
    rng.one_of(&[Action::Dial(wire), Action::Hello(wire, hello), Action::Read(wire), Action::Hangup(wire)])
}

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
