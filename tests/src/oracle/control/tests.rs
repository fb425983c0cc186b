//! For each id, a short history that breaks only that invariant; and a correct history, which
//! passes.

use super::{Answer, CHECKED, Event, Fault, FaultKind, Input, Looks, Oracle, Outputs, Seen};
use crate::oracle::monitor::{Action, Wire};
use crate::oracle::tests::{assert_all_broken, breaks};
use crate::oracle::{Checks, Violation};
use core::time::Duration;
use poolhouse_core::control::ControlAction;
use poolhouse_core::monitor::{HeartbeatId, MonitorConnKind, MonitorEvent};
use poolhouse_core::pool::Clear;
use poolhouse_core::topology::{PoolCommand, TopologyType, Verdict};
use poolhouse_core::{Cause, Instant, ObjectId, ServerId, TopologyVersion};

/// The time, the call, its result, its events, and the next deadline after it.
type Step = (u64, Input, Answer, Vec<Event>, Option<Instant>);

const fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn server() -> ServerId {
    ServerId::new(1)
}

fn id() -> HeartbeatId {
    HeartbeatId { server: server(), connection: 1, server_connection: None }
}

fn begun() -> Event {
    Event::Beat(MonitorEvent::HeartbeatStarted { id: id(), awaited: false })
}

fn good() -> Event {
    Event::Beat(MonitorEvent::HeartbeatSucceeded { id: id(), awaited: false, duration: Duration::ZERO })
}

fn bad(cause: Cause) -> Event {
    Event::Beat(MonitorEvent::HeartbeatFailed { id: id(), awaited: false, duration: Duration::ZERO, cause })
}

pub(super) const fn version(counter: i64) -> TopologyVersion {
    TopologyVersion { process_id: ObjectId([1; 12]), counter }
}

const GOOD: Looks = Looks { known: true, data: true, failed: false, version: Some(version(5)) };
const FAILED: Looks = Looks { known: false, data: false, failed: true, version: None };

fn step(now: u64, input: Input, answer: Answer, events: &[Event]) -> Step {
    (now, input, answer, events.to_vec(), Some(at(1_000_000)))
}

fn polled(action: Option<ControlAction>) -> Step {
    step(0, Input::Poll, Answer::Action(action), &[])
}

/// The first check of a server begins.
fn begin() -> Vec<Step> {
    vec![
        step(0, Input::New, Answer::None, &[Event::Opened(server()), begun()]),
        polled(Some(ControlAction::ServerAdded(server()))),
        polled(None),
    ]
}

fn reply(now: u64, counter: i64, events: &[Event]) -> Step {
    step(now, Input::Reply(server(), Some(version(counter))), Answer::Done, events)
}

fn ready() -> Step {
    polled(Some(ControlAction::Pool(server(), PoolCommand::Ready)))
}

fn wake() -> Step {
    polled(Some(ControlAction::WakeSelectors))
}

/// The server is known, and its next check begins.
fn known() -> Vec<Step> {
    let answer = reply(0, 5, &[good(), Event::Changed(server(), GOOD)]);
    let next = step(10_000, Input::Timeout, Answer::None, &[begun()]);
    [begin(), vec![answer, ready(), wake(), polled(None), next, polled(None)]].concat()
}

fn failed(cause: Cause, events: &[Event]) -> Step {
    step(10_000, Input::Failed(server(), cause), Answer::Done, &[&[bad(cause)], events].concat())
}

fn fault(kind: FaultKind, stale: bool, verdict: Verdict) -> Step {
    let fault = Fault { stale, before: false, overloaded: false, kind };
    step(10_000, Input::Error(server(), fault), Answer::Verdict(verdict), &[])
}

fn judge(steps: &[Step], checks: &mut Checks) -> Result<Oracle, Violation> {
    let mut oracle = Oracle::new();
    for (now, input, answer, events, timeout) in steps {
        let events: Vec<_> = events.iter().map(|event| (at(*now), *event)).collect();
        let seen = Seen { topology: TopologyType::ReplicaSetWithPrimary, timeout: *timeout };
        oracle.step(at(*now), *input, &Outputs { answer: *answer, events: &events, seen }, checks)?;
    }
    Ok(oracle)
}

fn wrongs() -> Vec<(&'static str, Vec<Step>, Step)> {
    let clears = Verdict {
        clear: Some(Clear::All { interrupt_in_use_connections: false }),
        marked_unknown: true,
        ..Verdict::default()
    };
    let clear = |interrupt_in_use_connections, cause| {
        polled(Some(ControlAction::Pool(server(), PoolCommand::Clear { interrupt_in_use_connections, cause })))
    };
    let unknown = Event::Changed(server(), FAILED);
    let lost = |cause| [known(), vec![failed(cause, &[unknown])]].concat();
    let dial = |now| {
        let dial = Action::Dial(Wire { kind: MonitorConnKind::Check, number: 1 });
        step(now, Input::PollConn(server(), MonitorConnKind::Check), Answer::MonitorAction(Some(dial)), &[])
    };
    let dials = [known(), vec![dial(10_000), dial(10_100)]].concat();
    let marked = Event::Changed(server(), Looks { failed: false, ..FAILED });
    let mut state_change = fault(FaultKind::Command(Some(91), None), false, Verdict { clear: None, ..clears });
    state_change.3 = vec![marked];
    let ended =
        [begin(), vec![reply(0, 5, &[good(), Event::Changed(server(), GOOD)]), ready(), wake(), polled(None)]].concat();
    let slow = step(100, Input::Timeout, Answer::None, &[begun()]);
    let late = [begin(), vec![reply(0, 5, &[bad(Cause::Network), unknown])]].concat();
    vec![
        ("S1", begin(), step(1_000, Input::Timeout, Answer::None, &[begun()])),
        ("S2", ended.clone(), step(1, Input::Timeout, Answer::None, &[good()])),
        ("S3", ended, slow.clone()),
        ("S6", late, slow),
        ("S7", known(), failed(Cause::Network, &[])),
        ("S7", lost(Cause::NetworkTimeout), clear(false, Cause::NetworkTimeout)),
        ("S7", [lost(Cause::Network), vec![wake()]].concat(), polled(None)),
        ("S8", [begin(), vec![reply(0, 5, &[good(), Event::Changed(server(), GOOD)]), wake()]].concat(), polled(None)),
        ("S8", [begin(), vec![reply(0, 5, &[good(), Event::Changed(server(), GOOD)]), wake()]].concat(), ready()),
        ("S9", known(), reply(10_000, 4, &[good(), Event::Changed(server(), GOOD)])),
        ("S10", known(), fault(FaultKind::Network, true, clears)),
        ("S11", known(), state_change),
        ("S12", known(), fault(FaultKind::Timeout, false, clears)),
        ("S18", known(), (10_000, Input::Close, Answer::None, vec![Event::Closed(server()), Event::Ended], None)),
        ("S20", dials, dial(10_200)),
        ("S21", known(), step(10_000, Input::Dialed(server()), Answer::Stale, &[Event::Other])),
    ]
}

#[test]
fn each_wrong_history_breaks_only_its_invariant() {
    let mut broken = Vec::new();
    for (id, right, step) in wrongs() {
        breaks(id, &right, &step, |steps| judge(steps, &mut Checks::default()));
        broken.push(id);
    }
    assert_all_broken(&CHECKED, &broken);
}

#[test]
fn a_right_history_passes() {
    let mut checks = Checks::default();
    let unknown = Event::Changed(server(), FAILED);
    let command = PoolCommand::Clear { interrupt_in_use_connections: true, cause: Cause::NetworkTimeout };
    let cleared = polled(Some(ControlAction::Pool(server(), command)));
    let lost = failed(Cause::NetworkTimeout, &[unknown, begun()]);
    judge(&[known(), vec![lost, cleared, wake(), polled(None)]].concat(), &mut checks).expect("right");
    assert!(checks.of("S6") > 0 && checks.of("S8") > 0);
}
