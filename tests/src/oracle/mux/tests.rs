//! For each id, a short history that breaks only that invariant; and a correct history, which
//! passes.

use super::{Answer, CHECKED, Event, Input, Oracle, Outputs, Seen};
use crate::oracle::tests::{assert_all_broken, breaks};
use crate::oracle::{Checks, Violation};
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::mux::{AcquireError, HostOptions, HostState, MuxConfig, MuxOptions, Reply, Written};

/// The time, the call, its result, its events, and the getters after it.
type Step = (u64, Input, Answer, Vec<Event>, Option<Seen>);

const HOST: HostOptions = HostOptions {
    core_connections: 1,
    max_connections: 2,
    max_requests_per_connection: 2,
    new_connection_threshold: 2,
};

fn config() -> MuxConfig {
    let pool_timeout = Duration::from_millis(10);
    let options = MuxOptions { local: HOST, streams_per_connection: 4, pool_timeout, ..MuxOptions::DEFAULT };
    MuxOptions { remote: HOST, ..options }.validate().expect("valid options")
}

const fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn step(now: u64, input: Input, answer: Answer, events: &[Event]) -> Step {
    (now, input, answer, events.to_vec(), None)
}

fn seen(establishing: u32, in_flight: u32, queued: u32) -> Option<Seen> {
    let state = HostState { open: 1, establishing, in_flight, queued, ..HostState::default() };
    Some(Seen { state, closed: false, timeout: Some(at(10)) })
}

/// Connection 1 accepts requests.
fn open() -> Vec<Step> {
    let polled = Answer::Action(Some(super::Action::Establish(1)));
    vec![
        step(0, Input::New, Answer::None, &[Event::Options(config()), Event::Created(1)]),
        step(0, Input::Poll, polled, &[]),
        step(0, Input::Established { conn: 1 }, Answer::Done, &[Event::Ready(1, ms(0))]),
    ]
}

fn acquire(now: u64, id: u16) -> Step {
    let granted = Event::Acquired(1, id, ms(0));
    step(now, Input::Acquire { deadline: None }, Answer::Granted(1, id), &[granted])
}

fn wait(now: u64, number: u64, queued: u32) -> Step {
    step(now, Input::Acquire { deadline: None }, Answer::Queued(number), &[Event::Queued(queued)])
}

/// Connection 1 has two requests in flight, its maximum, and two waiters wait for connection 2.
fn full() -> Vec<Step> {
    let events = [Event::Created(2), Event::Queued(1)];
    let first = step(0, Input::Acquire { deadline: None }, Answer::Queued(1), &events);
    let second = vec![acquire(0, 0), acquire(0, 1), first, wait(1, 2, 2)];
    [open(), second].concat()
}

const fn reply(stream: i32) -> Input {
    Input::Reply { conn: 1, stream }
}

const fn release(id: u16, written: Written) -> Input {
    Input::Release { stream: Some((1, id)), written }
}

fn judge(steps: &[Step], checks: &mut Checks) -> Result<Oracle, Violation> {
    let mut oracle = Oracle::new(config(), false);
    for (now, input, answer, events, seen) in steps {
        let events: Vec<_> = events.iter().map(|event| (at(*now), *event)).collect();
        let outputs = Outputs { answer: *answer, events: &events, seen: *seen };
        oracle.step(at(*now), *input, &outputs, checks)?;
    }
    Ok(oracle)
}

fn wrongs() -> Vec<(&'static str, Vec<Step>, Step)> {
    let one = || [open(), vec![acquire(0, 0)]].concat();
    let answered = Answer::Reply(Reply::Request);
    let freed = |now, conn, id, duration| {
        let events = [Event::Replied(1, 0), Event::Acquired(conn, id, duration)];
        step(now, reply(0), answered, &events)
    };
    let orphaned = |id, count| step(0, release(id, Written::Perhaps), Answer::Done, &[Event::Orphaned(1, id, count)]);
    let timeout = |now, events: &[Event]| step(now, Input::Timeout, Answer::None, events);
    let late = AcquireError::TimedOut { in_flight: 2, queued: 2 };
    let created = |conn| timeout(0, &[Event::Created(conn)]);
    let twice = step(0, Input::Claim { waiter: 1 }, Answer::Granted(1, 0), &[]);
    let woken = step(0, Input::Poll, Answer::Action(Some(super::Action::Wake(1))), &[]);
    let look = |(now, input, answer, events, _): Step, seen| (now, input, answer, events, seen);
    let worn = [open(), vec![acquire(0, 0), acquire(0, 1), orphaned(0, 1)]].concat();
    let half = step(0, Input::Release { stream: Some((1, 0)), written: Written::No }, Answer::Done, &[]);
    vec![
        ("M1", one(), acquire(0, 0)),
        ("M2", one(), step(0, reply(3), answered, &[Event::Replied(1, 3)])),
        ("M2", one(), step(0, reply(0), Answer::Unknown, &[Event::Unknown(1, 0)])),
        ("M3", worn, orphaned(1, 2)),
        ("M3", [one(), vec![orphaned(0, 1)]].concat(), acquire(0, 0)),
        ("M4", full(), twice),
        ("M5", full(), freed(5, 1, 2, ms(4))),
        ("M5", full(), look(half, seen(1, 1, 2))),
        (
            "M6",
            one(),
            step(0, Input::Acquire { deadline: None }, Answer::Granted(2, 0), &[Event::Acquired(2, 0, ms(0))]),
        ),
        ("P1", open(), look(acquire(0, 0), seen(0, 0, 0))),
        ("P2", [open(), vec![created(2)]].concat(), created(3)),
        ("P6", open(), created(3)),
        ("P8", full(), woken),
        ("P18", full(), timeout(5, &[Event::Failed(late, ms(5))])),
        ("P19", full(), look(timeout(10, &[]), seen(1, 2, 2))),
        ("P32", full(), freed(5, 1, 2, ms(3))),
    ]
}

#[test]
fn each_wrong_history_breaks_only_its_invariant() {
    let mut broken = vec!["P25"];
    for (id, right, step) in wrongs() {
        breaks(id, &right, &step, |steps| judge(steps, &mut Checks::default()));
        broken.push(id);
    }
    assert_all_broken(&CHECKED, &broken);
}

#[test]
fn an_event_of_another_time_breaks_p25() {
    let outputs = Outputs { answer: Answer::None, events: &[(at(4), Event::Created(1))], seen: None };
    let found = Oracle::new(config(), false).step(at(5), Input::New, &outputs, &mut Checks::default());
    assert_eq!(found.expect_err("it is earlier").id, "P25");
}

#[test]
fn a_right_history_passes() {
    let events = [Event::Replied(1, 0), Event::Acquired(1, 2, ms(5))];
    let served = step(5, reply(0), Answer::Reply(Reply::Request), &events);
    let closed = [
        Event::Failed(AcquireError::Closed, ms(5)),
        Event::Closed(1, poolhouse_core::mux::MuxClosed::PoolClosed, 2),
        Event::PoolClosed,
    ];
    let closed = step(6, Input::Close, Answer::None, &closed);
    let oracle = judge(&[full(), vec![served, closed]].concat(), &mut Checks::default()).expect("right");
    assert_eq!(oracle.after_close(&mut Checks::default()).expect_err("outcomes were not claimed").id, "M6");
    let oracle = judge(&full(), &mut Checks::default()).expect("right");
    assert_eq!(oracle.at_peace(&mut Checks::default()).expect_err("two wait").id, "M5");
}
