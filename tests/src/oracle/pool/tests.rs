//! For each id, the shortest history that breaks only that invariant; and correct histories, which
//! pass.

use super::{Action, Answer, CHECKED, Event, Input, Oracle, Outputs, Owed, Room, Seen};
use crate::oracle::tests::{assert_all_broken, breaks};
use crate::oracle::{Checks, Violation};
use core::time::Duration;
use poolhouse_core::pool::{
    CheckOutError, CheckOutFailedReason, Clear, ClosedReason, EstablishError, Health, PoolCounts, PoolOptions,
    PoolState,
};
use poolhouse_core::{Cause, Instant, ObjectId};

/// The time, the call, its result, its events, and the getters after it.
type Step = (u64, Input, Answer, Vec<Event>, Option<Seen>);

const ONE: PoolOptions = PoolOptions { max_pool_size: 1, max_connecting: 1, ..PoolOptions::DEFAULT };
const HASTY: PoolOptions = PoolOptions { wait_queue_timeout: Some(Duration::from_millis(10)), ..ONE };
const CLEARED: CheckOutError = CheckOutError::PoolCleared { cause: None };
const LATE: CheckOutError = CheckOutError::WaitQueueTimeout { usage: None };
const TOLD: Event = Event::PoolCleared { service: None, interrupt: false, cause: None };

const fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn failed(error: CheckOutError, after: u64) -> Event {
    let reason = match error {
        CheckOutError::PoolClosed => CheckOutFailedReason::PoolClosed,
        CheckOutError::WaitQueueTimeout { .. } => CheckOutFailedReason::Timeout,
        _ => CheckOutFailedReason::ConnectionError,
    };
    Event::Failed(reason, error, ms(after))
}

fn seen(counts: [u32; 4], state: PoolState, timeout: Option<u64>) -> Option<Seen> {
    let [pending, available, in_use, waiting] = counts;
    let counts = PoolCounts { pending, available, in_use, waiting };
    Some(Seen { counts, state, generation: 0, services: 0, fill_target: 0, timeout: timeout.map(at) })
}

fn step(now: u64, input: Input, answer: Answer, events: &[Event]) -> Step {
    (now, input, answer, events.to_vec(), None)
}

fn new(options: PoolOptions) -> Step {
    step(0, Input::New, Answer::None, &[Event::PoolCreated(options)])
}

fn ready(now: u64) -> Step {
    step(now, Input::Ready, Answer::None, &[Event::PoolReady])
}

fn clear(now: u64, interrupt_in_use_connections: bool, events: &[Event]) -> Step {
    let input = Input::Clear { clear: Clear::All { interrupt_in_use_connections }, cause: None };
    step(now, input, Answer::Done, events)
}

/// A check-out that waits under this number, and its further events.
fn wait(now: u64, number: u64, more: &[Event]) -> Step {
    let events = [&[Event::Started], more].concat();
    step(now, Input::CheckOut { deadline: None }, Answer::Queued(number), &events)
}

/// A check-out that is granted connection 1.
fn take(now: u64) -> Step {
    let events = [Event::Started, Event::CheckedOut(1, ms(0))];
    step(now, Input::CheckOut { deadline: None }, Answer::Granted(1), &events)
}

fn polled(owed: Owed, action: Option<Action>) -> Step {
    step(0, Input::Poll(owed), Answer::Action(action), &[])
}

fn check_in(now: u64, more: &[Event]) -> Step {
    let input = Input::CheckIn { conn: Some(1), health: Health::Healthy };
    step(now, input, Answer::Done, &[&[Event::CheckedIn(1)], more].concat())
}

fn look((now, input, answer, events, _): Step, seen: Option<Seen>) -> Step {
    (now, input, answer, events, seen)
}

/// A ready pool with a first check-out that waits for connection 1.
fn waiting(options: PoolOptions) -> Vec<Step> {
    vec![new(options), ready(0), wait(0, 1, &[Event::Created(1)]), polled(Owed::Any, Some(Action::Establish(1)))]
}

/// Connection 1 is in use.
fn in_use(options: PoolOptions) -> Vec<Step> {
    let events = [Event::Ready(1, ms(0)), Event::CheckedOut(1, ms(0))];
    let granted = step(0, Input::Established { conn: 1 }, Answer::Done, &events);
    let woken = polled(Owed::Any, Some(Action::Wake(1)));
    let claimed = step(0, Input::Claim { waiter: 1 }, Answer::Granted(1), &[]);
    [waiting(options), vec![granted, woken, claimed]].concat()
}

/// Connection 1 is available.
fn idle(options: PoolOptions) -> Vec<Step> {
    [in_use(options), vec![check_in(0, &[])]].concat()
}

/// A check-out waits for connection 1, which is in use.
fn blocked(options: PoolOptions) -> Vec<Step> {
    [in_use(options), vec![wait(0, 2, &[])]].concat()
}

fn judge(options: PoolOptions, steps: &[Step], checks: &mut Checks) -> Result<Oracle, Violation> {
    let mut oracle = Oracle::new(options, Room::ENDLESS);
    for (now, input, answer, events, seen) in steps {
        let events: Vec<_> = events.iter().map(|event| (at(*now), *event)).collect();
        let outputs = Outputs { answer: *answer, events: &events, seen: *seen };
        oracle.step(at(*now), *input, &outputs, checks)?;
    }
    Ok(oracle)
}

/// The correct steps, and the wrong one.
fn wrong(
    id: &'static str,
    options: PoolOptions,
    before: Vec<Step>,
    step: Step,
) -> (&'static str, PoolOptions, Vec<Step>) {
    (id, options, [before, vec![step]].concat())
}

#[test]
fn each_wrong_history_breaks_only_its_invariant() {
    let mut broken = vec!["P25"];
    for (id, options, steps) in [counts(), waiters(), time(), events(), ends()].concat() {
        let (wrong, right) = steps.split_last().expect("steps");
        breaks(id, right, wrong, |steps| judge(options, steps, &mut Checks::default()));
        broken.push(id);
    }
    assert_all_broken(&CHECKED, &broken);
}

type Wrong = Vec<(&'static str, PoolOptions, Vec<Step>)>;

fn counts() -> Wrong {
    let two = PoolOptions { max_pool_size: 2, ..ONE };
    let foreign = Input::CheckIn { conn: Some(9), health: Health::Healthy };
    let twice = step(0, Input::CheckOut { deadline: None }, Answer::Granted(1), &take(0).3);
    vec![
        wrong("P1", ONE, vec![], look(new(ONE), seen([1, 0, 0, 0], PoolState::Paused, None))),
        wrong("P2", ONE, waiting(ONE), wait(0, 2, &[Event::Created(2)])),
        wrong("P3", two, waiting(two), wait(0, 2, &[Event::Created(2)])),
        wrong("P4", ONE, vec![new(ONE), ready(0)], step(0, Input::Timeout, Answer::None, &[Event::Created(1)])),
        wrong("P5", ONE, in_use(ONE), twice),
        wrong("P6", ONE, vec![new(ONE), ready(0)], wait(0, 1, &[Event::Created(2)])),
        wrong("P7", ONE, vec![new(ONE), ready(0)], step(0, foreign, Answer::Done, &[])),
    ]
}

fn waiters() -> Wrong {
    let two = PoolOptions { max_pool_size: 2, max_connecting: 2, ..ONE };
    let second = [waiting(two), vec![wait(0, 2, &[Event::Created(2)])]].concat();
    let ready_for_nobody = step(0, Input::Established { conn: 1 }, Answer::Done, &[Event::Ready(1, ms(0))]);
    let granted = in_use(ONE)[..5].to_vec();
    let later = [blocked(ONE), vec![wait(1, 3, &[])]].concat();
    let cancel = |waiter| step(0, Input::Cancel { waiter }, Answer::None, &[]);
    let before = [Event::Created(2), Event::Ready(1, ms(0)), Event::CheckedOut(1, ms(0))];
    let refused = step(0, Input::CheckIn { conn: Some(1), health: Health::Healthy }, Answer::Stale, &[]);
    vec![
        wrong("P8", ONE, waiting(ONE), step(0, Input::Claim { waiter: 1 }, Answer::Failed(CLEARED), &[])),
        wrong("P9", ONE, later, check_in(2, &[Event::CheckedOut(1, ms(1))])),
        wrong("P10", ONE, vec![new(ONE), ready(0)], look(wait(0, 1, &[]), seen([0, 0, 0, 1], PoolState::Ready, None))),
        wrong("P11", ONE, blocked(ONE), cancel(2)),
        wrong("P12", two, second, look(ready_for_nobody, seen([1, 1, 0, 2], PoolState::Ready, None))),
        wrong("P13", ONE, granted, cancel(1)),
        wrong("P14", ONE, blocked(ONE), look(check_in(0, &[]), seen([0, 1, 0, 1], PoolState::Ready, None))),
        wrong("P15", ONE, idle(ONE), wait(0, 2, &[])),
        wrong("P16", ONE, in_use(ONE), refused),
        wrong("P17", two, waiting(two), step(0, Input::Established { conn: 1 }, Answer::Done, &before)),
    ]
}

fn time() -> Wrong {
    let patient = PoolOptions { max_pool_size: 2, max_connecting: 2, ..HASTY };
    let idling = PoolOptions { max_idle_time: Some(ms(10)), ..ONE };
    let timeout = |now, events: &[Event]| step(now, Input::Timeout, Answer::None, events);
    let unserved = [blocked(patient), vec![wait(5, 3, &[])]].concat();
    let hung = EstablishError { cause: Cause::NetworkTimeout, overloaded: false, clear: None };
    let hung = Input::EstablishFailed { conn: 1, error: hung };
    let closed = [Event::Closed(1, ClosedReason::Error, Some(Cause::NetworkTimeout))];
    let served = seen([0, 0, 1, 1], PoolState::Ready, Some(15));
    vec![
        wrong("P18", HASTY, blocked(HASTY), timeout(5, &[failed(LATE, 5)])),
        wrong("P19", HASTY, blocked(HASTY), look(timeout(20, &[]), seen([0, 0, 1, 1], PoolState::Ready, Some(10)))),
        wrong("P20", ONE, vec![], look(new(ONE), seen([0; 4], PoolState::Paused, Some(5)))),
        wrong("P21", HASTY, blocked(HASTY), check_in(10, &[Event::CheckedOut(1, ms(10))])),
        wrong("P22", ONE, blocked(ONE), timeout(5, &[failed(LATE, 5)])),
        wrong("P23", patient, unserved, look(timeout(10, &[failed(LATE, 10)]), served)),
        wrong("P24", ONE, waiting(ONE), step(0, hung, Answer::Done, &closed)),
        wrong("P26", idling, idle(idling), take(20)),
    ]
}

fn events() -> Wrong {
    let interrupting = Event::PoolCleared { service: None, interrupt: true, cause: None };
    let abandoned = Event::Closed(1, ClosedReason::Stale, None);
    let closed = step(0, Input::Close, Answer::None, &[Event::PoolClosed]);
    let pairs = [Event::Started, failed(CheckOutError::PoolClosed, 0)].repeat(6);
    let refused = Answer::Failed(CheckOutError::PoolClosed);
    vec![
        wrong("P27", ONE, waiting(ONE), take(0)),
        wrong(
            "P28",
            ONE,
            vec![new(ONE), ready(0)],
            step(0, Input::CheckOut { deadline: None }, Answer::Queued(1), &[]),
        ),
        wrong("P29", ONE, vec![new(ONE), ready(0)], ready(0)),
        wrong("P30", ONE, waiting(ONE), clear(0, true, &[interrupting, failed(CLEARED, 0), abandoned])),
        wrong("P31", ONE, idle(ONE), step(0, Input::Timeout, Answer::None, &[abandoned])),
        wrong(
            "P32",
            ONE,
            waiting(ONE),
            step(5, Input::Established { conn: 1 }, Answer::Done, &[Event::Ready(1, ms(4))]),
        ),
        wrong("P33", ONE, vec![new(ONE), closed.clone()], ready(0)),
        wrong("P48", ONE, vec![new(ONE), closed], step(0, Input::CheckOut { deadline: None }, refused, &pairs)),
    ]
}

fn ends() -> Wrong {
    let two = PoolOptions { max_pool_size: 2, max_connecting: 2, ..ONE };
    let balanced = PoolOptions { load_balanced: true, ..ONE };
    let lazy = PoolOptions { background: false, ..ONE };
    let swept = step(0, Input::Timeout, Answer::None, &[Event::Closed(1, ClosedReason::Stale, None)]);
    let filled = PoolOptions { min_pool_size: 1, ..ONE };
    let cleared = |now| clear(now, false, &[TOLD]);
    let created = |now| step(now, Input::Timeout, Answer::None, &[Event::Created(1)]);
    let lost = [waiting(ONE), vec![clear(0, false, &[TOLD, failed(CLEARED, 0)]), ready(0)]].concat();
    let is_ready = step(0, Input::Established { conn: 1 }, Answer::Done, &[Event::Ready(1, ms(0))]);
    let both = [waiting(two), vec![wait(0, 2, &[Event::Created(2)])]].concat();
    let error = EstablishError { cause: Cause::Network, overloaded: true, clear: None };
    let gone = Event::Closed(1, ClosedReason::Error, Some(Cause::Network));
    let silent = failed(CheckOutError::EstablishFailed { cause: Cause::Network, overloaded: false }, 0);
    let unlabelled = step(0, Input::EstablishFailed { conn: 1, error }, Answer::Done, &[gone, silent]);
    let of_service = Input::Clear { clear: Clear::Service(ObjectId([1; 12])), cause: None };
    let background = step(0, Input::Ready, Answer::None, &[Event::PoolReady, Event::Created(1)]);
    let failure = step(0, Input::EstablishFailed { conn: 1, error }, Answer::Done, &[gone]);
    let hot = step(50, Input::Timeout, Answer::None, &[Event::Created(2)]);
    let service = Input::Service { conn: 9, service: ObjectId([1; 12]) };
    let paused = seen([0, 1, 0, 0], PoolState::Paused, None).map(|seen| Seen { generation: 1, ..seen });
    vec![
        wrong("P34", ONE, vec![new(ONE)], look(clear(0, false, &[]), seen([0; 4], PoolState::Paused, None))),
        wrong("P35", ONE, [idle(ONE), vec![cleared(0), ready(0)]].concat(), take(0)),
        wrong("P36", ONE, lost, is_ready),
        wrong("P37", ONE, vec![new(ONE)], created(0)),
        wrong("P38", ONE, vec![new(ONE), ready(0), cleared(0)], created(0)),
        wrong("P39", two, both, clear(0, false, &[TOLD, failed(CLEARED, 0)])),
        wrong("P40", ONE, in_use(ONE), polled(Owed::Prompt, Some(Action::Interrupt(1)))),
        wrong("P41", ONE, in_use(ONE), step(0, Input::Established { conn: 1 }, Answer::Done, &[])),
        wrong("P42", ONE, idle(ONE), step(0, Input::Close, Answer::None, &[Event::PoolClosed])),
        wrong("P44", ONE, idle(ONE), look(cleared(0), paused)),
        wrong("P45", balanced, vec![new(balanced), ready(0)], step(0, service, Answer::Generation(3), &[])),
        wrong("P46", ONE, waiting(ONE), unlabelled),
        wrong("P47", ONE, vec![new(ONE)], step(0, of_service, Answer::Done, &[])),
        wrong("P50", lazy, [idle(lazy), vec![look(cleared(0), paused)]].concat(), swept),
        wrong("P53", filled, vec![new(filled), background, failure], hot),
    ]
}

#[test]
fn an_event_of_another_time_breaks_p25() {
    let mut oracle = Oracle::new(ONE, Room::ENDLESS);
    let outputs = Outputs { answer: Answer::None, events: &[(at(4), Event::PoolCreated(ONE))], seen: None };
    let found = oracle.step(at(5), Input::New, &outputs, &mut Checks::default()).expect_err("it is earlier");
    assert_eq!(found.id, "P25");
}

#[test]
fn right_histories_pass() {
    let mut checks = Checks::default();
    for steps in [waiting(ONE), in_use(ONE), idle(ONE), blocked(ONE)] {
        judge(ONE, &steps, &mut checks).expect("right");
    }
    let served = check_in(3, &[Event::CheckedOut(1, ms(3))]);
    let served = look(served, seen([0, 0, 1, 0], PoolState::Ready, None));
    judge(ONE, &[blocked(ONE), vec![served]].concat(), &mut checks).expect("right");
    let late = step(10, Input::Timeout, Answer::None, &[failed(LATE, 10)]);
    let late = look(late, seen([0, 0, 1, 0], PoolState::Ready, None));
    judge(HASTY, &[blocked(HASTY), vec![late]].concat(), &mut checks).expect("right");
    assert!(checks.of("P9") > 0 && checks.of("P18") > 0);
}

#[test]
fn waiter_that_is_left_without_faults_breaks_p51_or_p52() {
    let mut checks = Checks::default();
    let oracle = judge(ONE, &blocked(ONE), &mut checks).expect("right");
    assert_eq!(oracle.at_peace(false, &mut checks).expect_err("one waits").id, "P51");
    oracle.at_peace(true, &mut checks).expect("the waiter has no limit");
    let oracle = judge(HASTY, &blocked(HASTY), &mut checks).expect("right");
    oracle.at_peace(true, &mut checks).expect("the deadline of the waiter is in the future");
    assert_eq!(oracle.last_limit(), Some(at(10)));
    let later = step(10, Input::Claim { waiter: 2 }, Answer::Waiting, &[]);
    let oracle = judge(HASTY, &[blocked(HASTY), vec![later]].concat(), &mut checks).expect("the getters were not read");
    assert_eq!(oracle.at_peace(true, &mut checks).expect_err("it is late").id, "P52");
    let oracle = judge(ONE, &idle(ONE), &mut checks).expect("right");
    oracle.at_peace(false, &mut checks).expect("no check-out waits");
}

#[test]
fn remains_after_the_close_break_p43() {
    let mut checks = Checks::default();
    let closed = Event::Closed(1, ClosedReason::PoolClosed, None);
    let close = step(0, Input::Close, Answer::None, &[closed, Event::PoolClosed]);
    let steps = [idle(ONE), vec![close]].concat();
    let oracle = judge(ONE, &steps, &mut checks).expect("right");
    assert_eq!(oracle.after_close(&mut checks).expect_err("a close action is owed").id, "P43");
    let steps = [steps, vec![polled(Owed::Any, Some(Action::Close(1)))]].concat();
    judge(ONE, &steps, &mut checks).expect("right").after_close(&mut checks).expect("nothing is left");
}
