//! One falsified output of a control machine.

use crate::choices::Choices;
use crate::oracle::control::tests::version;
use crate::oracle::control::watched::{Answer, Event, Seen};
use crate::oracle::monitor::{Action, Wire};
use crate::oracle::tests::falsify::{self, Kind, at_another_time, change, flip, missing, reversed, twice, verdicts};
use crate::rng::Rng;
use expect_test::expect;
use poolhouse_core::control::ControlAction;
use poolhouse_core::monitor::MonitorConnKind;
use poolhouse_core::monitor::MonitorEvent::{HeartbeatFailed, HeartbeatStarted, HeartbeatSucceeded};
use poolhouse_core::pool::Clear;
use poolhouse_core::topology::{PoolCommand, TopologyType, Verdict};
use poolhouse_core::{Cause, Instant, ServerId};

type Step<'e> = (Answer, &'e mut Vec<(Instant, Event)>, Seen);

pub(in crate::oracle::control) fn step(
    answer: Answer,
    events: &mut Vec<(Instant, Event)>,
    seen: Seen,
) -> (Answer, Seen) {
    let mut step = (answer, events, seen);
    falsify::step(&mut step, &kinds());
    (step.0, step.2)
}

const DIAL: Action = Action::Dial(Wire { kind: MonitorConnKind::Check, number: 1 });
const READ: Action = Action::Read(Wire { kind: MonitorConnKind::Check, number: 1 });

fn kinds<'e>() -> [Kind<Step<'e>>; 18] {
    [
        ("an event is missing", |(_, events, _), rng| missing(events, rng)),
        ("an event is emitted twice", |(_, events, _), rng| twice(events, rng)),
        ("events are in another order", |(_, events, _), _| reversed(events)),
        ("an event has another time", |(_, events, _), rng| at_another_time(events, rng)),
        ("awaited is wrong", |(_, events, _), _| match events.last_mut() {
            Some((_, Event::Beat(HeartbeatStarted { awaited, .. } | HeartbeatSucceeded { awaited, .. }))) => {
                flip(awaited)
            }
            Some((_, Event::Beat(HeartbeatFailed { awaited, .. }))) => flip(awaited),
            _ => false,
        }),
        ("a cause is wrong", |(_, events, _), rng| {
            let other = rng.one_of(&[Cause::Network, Cause::NetworkTimeout, Cause::Protocol, Cause::Closed]);
            events.iter_mut().any(|(_, event)| match event {
                Event::Beat(HeartbeatFailed { cause, .. }) => change(cause, other),
                _ => false,
            })
        }),
        ("a success is reported as a failure", |(_, events, _), rng| {
            let cause = rng.one_of(&[Cause::Network, Cause::Protocol, Cause::Cancelled]);
            events.iter_mut().any(|(_, event)| match *event {
                Event::Beat(HeartbeatSucceeded { id, awaited, duration }) => {
                    change(event, Event::Beat(HeartbeatFailed { id, awaited, duration, cause }))
                }
                _ => false,
            })
        }),
        ("another check begins", |(_, events, _), _| match events.last() {
            Some(&(at, Event::Beat(beat))) => {
                events.push((at, Event::Beat(HeartbeatStarted { id: *beat.id(), awaited: false })));
                true
            }
            _ => false,
        }),
        ("a description is wrong", |(_, events, _), rng| {
            let place = rng.below(4);
            events.iter_mut().any(|(_, event)| match event {
                Event::Changed(_, looks) => match place {
                    0 => flip(&mut looks.known),
                    1 => flip(&mut looks.data),
                    2 => flip(&mut looks.failed),
                    _ => change(&mut looks.version, Some(version(7))),
                },
                _ => false,
            })
        }),
        ("the last event is emitted", |(_, events, _), _| {
            events.push((Instant::ORIGIN, Event::Ended));
            true
        }),
        ("a current report is stale", |(answer, ..), _| *answer == Answer::Done && change(answer, Answer::Stale)),
        ("a verdict has no consequence", |(answer, ..), _| match answer {
            Answer::Verdict(verdict) => change(verdict, Verdict::default()),
            _ => false,
        }),
        ("a verdict has another consequence", |(answer, ..), rng| match answer {
            Answer::Verdict(verdict) => match rng.below(4) {
                0 => flip(&mut verdict.marked_unknown),
                1 => flip(&mut verdict.cancel_check),
                2 => flip(&mut verdict.request_check),
                _ => {
                    let clears = [true, false].map(|it| Some(Clear::All { interrupt_in_use_connections: it }));
                    change(&mut verdict.clear, rng.one_of(&[None, clears[0], clears[1]]))
                }
            },
            _ => false,
        }),
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
        ("a clear interrupts wrongly", |(answer, ..), _| match answer {
            Answer::Action(Some(ControlAction::Pool(
                _,
                PoolCommand::Clear { interrupt_in_use_connections: interrupts, .. },
            ))) => flip(interrupts),
            _ => false,
        }),
        ("a connection is also used", |(answer, ..), rng| match answer {
            Answer::MonitorAction(action) => change(action, rng.one_of(&[Some(DIAL), Some(READ)])),
            _ => false,
        }),
        ("a getter is wrong", |(.., seen), rng| {
            use TopologyType::{LoadBalanced, ReplicaSetNoPrimary, Single};
            if rng.one_in(2) {
                return change(&mut seen.timeout, Some(Instant::ORIGIN));
            }
            change(&mut seen.topology, rng.one_of(&[Single, ReplicaSetNoPrimary, LoadBalanced]))
        }),
    ]
}

fn any_action(rng: &mut Rng) -> ControlAction {
    let id = ServerId::new(rng.below(4));
    let clear = PoolCommand::Clear { interrupt_in_use_connections: rng.one_in(2), cause: Cause::Network };
    rng.one_of(&[
        ControlAction::ServerAdded(id),
        ControlAction::ServerRemoved(id),
        ControlAction::WakeSelectors,
        ControlAction::Pool(id, PoolCommand::Ready),
        ControlAction::Pool(id, clear),
    ])
}

#[test]
fn falsified_outputs_break_these_invariants() {
    expect![[r#"
        a cause is wrong: S3 1, S7 37, nothing 16
        a clear interrupts wrongly: S7 48
        a connection is also used: S18 19, nothing 56
        a current report is stale: S21 12, nothing 52
        a description is wrong: S12 2, S7 12, S8 9, S9 1, nothing 30
        a getter is wrong: S18 1, S21 3, nothing 66
        a success is reported as a failure: S3 1
        a verdict has another consequence: S10 5, S11 6, S12 18, nothing 34
        a verdict has no consequence: S11 8, S12 7, S7 1, nothing 11
        an action is another: S21 22, S7 17, S8 19, nothing 6
        an action is missing, or one is too much: S21 17, S7 8, S8 18, nothing 26
        an event has another time: S21 41, nothing 29
        an event is emitted twice: S1 12, S2 9, S21 21, nothing 26
        an event is missing: S12 1, S2 13, S21 10, S7 6, S8 2, nothing 44
        another check begins: S1 43, S3 7, S6 2
        awaited is wrong: S2 10, S3 40
        events are in another order: S1 2, S21 21, nothing 46
        the last event is emitted: S18 44, S21 23
    "#]]
    .assert_eq(&verdicts(1_500, 600, crate::fuzz::control));
}
