//! For each id, a short history that breaks only that invariant; and a correct history, which
//! passes.

use super::{Action, Answer, CHECKED, Input, Oracle, Outputs, Seen, Wire};
use crate::oracle::tests::{assert_all_broken, breaks};
use crate::oracle::{Checks, Violation};
use crate::reply::CheckReply;
use core::time::Duration;
use poolhouse_core::monitor::{HeartbeatId, HelloKind, MonitorConnKind, MonitorEvent, MonitorOptions, MonitorState};
use poolhouse_core::{Cause, Instant, ObjectId, ServerId, TopologyVersion};

/// The time, the call, its result, its events, and the getters after it.
type Step = (u64, Input, Answer, Vec<MonitorEvent>, Option<Seen>);

const fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

const fn wire(number: u64) -> Wire {
    Wire { kind: MonitorConnKind::Check, number }
}

fn id(connection: u64) -> HeartbeatId {
    HeartbeatId { server: ServerId::new(1), connection, server_connection: None }
}

fn begun(connection: u64, awaited: bool) -> MonitorEvent {
    MonitorEvent::HeartbeatStarted { id: id(connection), awaited }
}

fn good(connection: u64, awaited: bool) -> MonitorEvent {
    MonitorEvent::HeartbeatSucceeded { id: id(connection), awaited, duration: Duration::ZERO }
}

fn bad(connection: u64, cause: Cause, after: u64) -> MonitorEvent {
    let duration = Duration::from_millis(after);
    MonitorEvent::HeartbeatFailed { id: id(connection), awaited: false, duration, cause }
}

fn step(now: u64, input: Input, answer: Answer, events: &[MonitorEvent]) -> Step {
    (now, input, answer, events.to_vec(), None)
}

fn polled(action: Action) -> Step {
    step(0, Input::Poll(Some(MonitorConnKind::Check)), Answer::Action(Some(action)), &[])
}

fn seen(state: MonitorState, timeout: Option<u64>) -> Seen {
    let (average, minimum) = (None, Duration::ZERO);
    Seen { state, outcome: None, streaming: false, timeout: timeout.map(at), average, minimum }
}

fn look((now, input, answer, events, _): Step, seen: Seen) -> Step {
    (now, input, answer, events, Some(seen))
}

fn start() -> Vec<Step> {
    vec![step(0, Input::Start, Answer::None, &[begun(1, false)]), polled(Action::Dial(wire(1)))]
}

fn greeting() -> Action {
    Action::Hello(wire(1), HelloKind::Handshake { legacy: true })
}

fn asked() -> Vec<Step> {
    let dialed = step(0, Input::Dialed(wire(1)), Answer::Done, &[]);
    [start(), vec![dialed, polled(greeting())]].concat()
}

const VERSION: TopologyVersion = TopologyVersion { process_id: ObjectId([1; 12]), counter: 1 };

/// A successful reply, with an applied outcome.
fn answered(reply: CheckReply) -> Vec<Step> {
    [asked(), vec![step(0, Input::Reply(wire(1), reply), Answer::Done, &[good(1, false)])]].concat()
}

fn settle(now: u64, events: &[MonitorEvent]) -> Step {
    step(now, Input::Settle { known: true }, Answer::None, events)
}

fn waiting() -> Vec<Step> {
    [answered(CheckReply::OK), vec![settle(0, &[])]].concat()
}

/// The next check of a known server is in flight.
fn again() -> Vec<Step> {
    let begins = step(10_000, Input::Timeout, Answer::None, &[begun(1, false)]);
    [waiting(), vec![begins]].concat()
}

fn judge(steps: &[Step], checks: &mut Checks) -> Result<Oracle, Violation> {
    let mut oracle = Oracle::new(MonitorOptions::DEFAULT);
    for (now, input, answer, events, seen) in steps {
        let events: Vec<_> = events.iter().map(|event| (at(*now), *event)).collect();
        let outputs = Outputs { answer: *answer, events: &events, seen: *seen };
        oracle.step(at(*now), *input, &outputs, checks)?;
    }
    Ok(oracle)
}

fn wrongs() -> Vec<(&'static str, Vec<Step>, Step)> {
    let streaming = CheckReply { topology_version: Some(VERSION), ..CheckReply::OK };
    let requested = [waiting(), vec![step(100, Input::Request, Answer::None, &[])]].concat();
    let failed = |cause| step(10_005, Input::Failed(wire(1), cause), Answer::Done, &[bad(1, cause, 5)]);
    let refused = Cause::Command { code: 1 };
    let rtt = Wire { kind: MonitorConnKind::Rtt, number: 2 };
    let unsettled = look(failed(Cause::NetworkTimeout), seen(MonitorState::Ended, Some(10_005)));
    let wrong_mean = Seen { average: Some(Duration::from_secs(1)), ..seen(MonitorState::Waiting, Some(10_000)) };
    let late = Seen { average: Some(Duration::ZERO), ..seen(MonitorState::Waiting, Some(501)) };
    let poll = Action::Hello(wire(1), HelloKind::Poll { legacy: true });
    let dialed = step(0, Input::Dialed(wire(1)), Answer::Done, &[]);
    vec![
        ("S1", start(), step(10_000, Input::Timeout, Answer::None, &[begun(2, false)])),
        ("S2", waiting(), step(1, Input::Timeout, Answer::None, &[good(1, false)])),
        ("S3", waiting(), step(400, Input::Timeout, Answer::None, &[begun(1, false)])),
        ("S4", waiting(), step(600, Input::Timeout, Answer::None, &[begun(1, false)])),
        ("S5", requested, look(step(200, Input::Known(true), Answer::None, &[]), late)),
        ("S6", [again(), vec![failed(Cause::Network)]].concat(), settle(10_005, &[])),
        ("S6", [again(), vec![failed(refused)]].concat(), settle(10_005, &[begun(2, false)])),
        ("S7", again(), unsettled),
        ("S13", answered(CheckReply::OK), look(settle(0, &[]), wrong_mean)),
        (
            "S14",
            waiting(),
            step(0, Input::Poll(Some(MonitorConnKind::Rtt)), Answer::Action(Some(Action::Dial(rtt))), &[]),
        ),
        ("S15", answered(streaming), settle(0, &[])),
        ("S16", start(), step(10_000, Input::Timeout, Answer::None, &[])),
        ("S17", [start(), vec![dialed]].concat(), polled(poll)),
        ("S18", start(), step(0, Input::Close, Answer::None, &[])),
        ("S18", waiting(), polled(Action::Hangup(wire(1)))),
        ("S21", waiting(), step(0, Input::Reply(wire(7), CheckReply::OK), Answer::Done, &[])),
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
    let mean = Seen { average: Some(Duration::ZERO), ..seen(MonitorState::Waiting, Some(10_000)) };
    let steps = [answered(CheckReply::OK), vec![look(settle(0, &[]), mean)]].concat();
    judge(&steps, &mut checks).expect("right");
    let retried = settle(10_005, &[begun(2, false)]);
    let failed = step(10_005, Input::Failed(wire(1), Cause::Network), Answer::Done, &[bad(1, Cause::Network, 5)]);
    judge(&[again(), vec![failed, retried]].concat(), &mut checks).expect("right");
    assert!(checks.of("S6") > 0 && checks.of("S4") > 0);
}
