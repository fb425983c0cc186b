//! Hosts and plans without a network: the tests act as the connections.

mod failure;
mod group;
mod session;

use super::call::{Body, Content};
use super::failure::{Finding, LinkFailure};
use super::host::{Change, Effects, Failure, Host, Outcome, Output};
use super::options::CqlHost;
use super::plan::{Hosts, Plan};
use super::routing::{Keyspaces, Routes, Routing};
use super::{Rejection, RejectionReason, Reply, RequestError};
use crate::events::Events;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicU32, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use poolhouse_core::cluster::Node;
use poolhouse_core::mux::{AcquireError, Distance, HostOptions, HostState, MuxConnId, MuxId, MuxOptions};
use poolhouse_core::{Cause, Instant, Reason};
use poolhouse_cql::{
    Consistency, CqlEncodeError, Decoder, Direction, Flags, Limits, Opcode, Replication, Token, Version,
};
use poolhouse_driver::Subscribers;

const LIMITS: Limits = Limits { body_bytes_max: 1024 };

fn message(text: &str) -> Body<'_> {
    Body::new(Content::Text(text), Consistency::One)
}

/// Options for one connection with this many requests.
const fn one_connection(requests: u32) -> MuxOptions {
    let host = HostOptions {
        core_connections: 1,
        max_connections: 1,
        max_requests_per_connection: requests,
        new_connection_threshold: requests,
    };
    MuxOptions { local: host, remote: host, ..MuxOptions::DEFAULT }
}

/// A host with the clock and the connections of a test.
struct Rig {
    host: Arc<Host>,
    now: Instant,
    /// The connections that the host requested.
    establish: Vec<MuxConnId>,
}

impl Rig {
    fn new(options: MuxOptions) -> Self {
        Self::with_limits(options, LIMITS)
    }

    fn with_limits(options: MuxOptions, limits: Limits) -> Self {
        let events = Events::of_test();
        let config = options.validate().expect("good options");
        let now = Instant::from_nanos(1_000_000_000);
        let address = CqlHost::local("db");
        let host = Arc::new(Host::new(now, MuxId::new(7), &address, config, Version::V5, limits, &events));
        let mut rig = Self { host, now, establish: Vec::new() };
        rig.step(|_| ());
        rig
    }

    fn step<T>(&mut self, change: impl FnOnce(&mut Change<'_>) -> T) -> T {
        let mut effects = Effects::default();
        let result = self.host.change(self.now, &mut effects, change);
        self.establish.extend(effects.establish.drain(..).map(|(_, conn)| conn));
        effects.wake_all();
        result
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.saturating_add(time);
    }

    /// Lets the pause after the failure of a connection pass, and returns the number of connections that
    /// the host requested.
    fn requested_after_pause(&mut self) -> usize {
        self.pass(MuxOptions::DEFAULT.backoff_min);
        self.step(|change| change.expire());
        self.establish.len()
    }

    /// Establishes the connection that the host requested.
    fn establish(&mut self) -> MuxConnId {
        let conn = self.establish.remove(0);
        self.step(|change| change.established(conn, Version::V4)).expect("it is wanted");
        conn
    }

    fn begin(&mut self, text: &str, deadline: Option<Instant>) -> Result<u32, Failure> {
        self.step(|change| change.begin(&message(text), true, deadline, Waker::noop().clone()))
    }

    fn poll(&mut self, slot: u32, text: &str) -> Poll<Outcome> {
        if let Some(outcome) = self.host.outcome(slot) {
            return Poll::Ready(outcome);
        }
        self.step(|change| change.poll(slot, &message(text), &mut Some(Waker::noop().clone())))
    }

    /// Returns the stream ids and opcodes of the requests that a connection has to send.
    fn take(&self, conn: MuxConnId) -> Vec<(i16, Opcode)> {
        let mut bytes = Vec::new();
        if !matches!(self.host.take_output(conn, &mut bytes, Waker::noop()), Output::Taken) {
            return Vec::new();
        }
        let mut decoder = Decoder::new(Version::V4, Direction::Request, LIMITS, Vec::new(), Vec::new());
        let (mut rest, mut sent) = (&bytes[..], Vec::new());
        loop {
            let step = decoder.decode(rest).expect("whole envelopes");
            rest = &rest[step.consumed_bytes..];
            let Some(envelope) = step.envelope else { return sent };
            sent.push((envelope.header.stream, envelope.header.opcode));
        }
    }

    /// Delivers replies with these ids. The body of each is its id.
    fn reply(&mut self, conn: MuxConnId, streams: &[i16]) {
        let mut replies = Vec::new();
        for stream in streams {
            let header = poolhouse_cql::Header {
                version: Version::V4,
                direction: Direction::Response,
                flags: Flags::NONE,
                stream: *stream,
                opcode: Opcode::Result,
                length_bytes: 2,
            };
            replies.push(Reply { host: self.host.id, header, body: stream.to_be_bytes().to_vec().into() });
        }
        self.step(|change| change.dispatch(conn, &mut replies));
    }

    fn state(&self) -> HostState {
        self.host.look(self.now, |mux, _, _| mux.state())
    }

    /// Whether nothing is left of any request.
    fn is_idle(&self) -> bool {
        let HostState { in_flight, orphaned, queued, .. } = self.state();
        (in_flight, orphaned, queued) == (0, 0, 0)
    }
}

#[test]
fn replies_reach_their_requests_in_any_order() {
    let mut rig = Rig::new(MuxOptions::DEFAULT);
    let conn = rig.establish();
    let slots: Vec<_> = (0..3).map(|_| rig.begin("a", None).expect("a slot")).collect();
    let sent: Vec<i16> = rig.take(conn).into_iter().map(|(stream, _)| stream).collect();
    assert_eq!(sent.len(), 3);
    rig.reply(conn, &[sent[2], sent[0]]);
    assert!(matches!(rig.poll(slots[1], "a"), Poll::Pending));
    for place in [0, 2] {
        let Poll::Ready(Ok(answer)) = rig.poll(slots[place], "a") else { panic!("it is answered") };
        assert_eq!(answer.body(), sent[place].to_be_bytes());
    }
    rig.reply(conn, &[sent[1]]);
    assert!(matches!(rig.poll(slots[1], "a"), Poll::Ready(Ok(_))));
    assert!(rig.is_idle());
}

#[test]
fn a_reply_to_an_unsent_request_closes_the_connection() {
    let mut rig = Rig::new(MuxOptions::DEFAULT);
    let conn = rig.establish();
    let early = rig.begin("a", None).expect("a slot");
    let [(sent, _)] = rig.take(conn)[..] else { panic!("one") };
    let late = rig.begin("b", None).expect("a slot");
    rig.reply(conn, &[sent, sent + 1]);
    assert!(matches!(rig.poll(early, "a"), Poll::Ready(Ok(_))), "it was answered before");
    let lost = rig.poll(late, "b");
    let Poll::Ready(Err(Failure::Lost { cause: Cause::Protocol, reason, sent: false })) = lost else {
        panic!("lost: {lost:?}")
    };
    let text = alloc::format!("the server sent RESULT on stream {}, on which no request waits for a reply", sent + 1);
    assert_eq!(reason.to_string(), text);
    assert!(rig.is_idle());
    assert_eq!(rig.requested_after_pause(), 1, "another one is wanted");
}

#[test]
fn requests_of_a_failed_connection_report_whether_they_were_sent() {
    let mut rig = Rig::new(MuxOptions::DEFAULT);
    let conn = rig.establish();
    let sent = rig.begin("a", None).expect("a slot");
    assert_eq!(rig.take(conn).len(), 1);
    let unsent = rig.begin("b", None).expect("a slot");
    rig.step(|change| change.failed(conn, &Cause::Network.into()));
    let lost = rig.poll(sent, "a");
    assert!(matches!(lost, Poll::Ready(Err(Failure::Lost { cause: Cause::Network, sent: true, .. }))));
    let lost = rig.poll(unsent, "b");
    assert!(matches!(lost, Poll::Ready(Err(Failure::Lost { cause: Cause::Network, sent: false, .. }))));
    let mut bytes = Vec::new();
    assert!(matches!(rig.host.take_output(conn, &mut bytes, Waker::noop()), Output::Gone));
    assert!(rig.is_idle());
}

#[test]
fn requests_time_out_in_every_state_and_late_replies_are_dropped() {
    let mut rig = Rig::new(one_connection(2));
    let conn = rig.establish();
    let at = rig.now.saturating_add(Duration::from_millis(10));
    let sent = rig.begin("a", Some(at)).expect("a slot");
    let [(stream, _)] = rig.take(conn)[..] else { panic!("one") };
    let unsent = rig.begin("b", Some(at)).expect("a slot");
    let queued = rig.begin("c", Some(at)).expect("a slot");
    assert_eq!(rig.state().queued, 1);
    rig.now = at;
    assert!(rig.step(|change| change.expire()).is_some_and(|next| next > at));
    // The second request will be sent, because it is in the output buffer between other requests.
    for slot in [sent, unsent] {
        assert!(matches!(rig.poll(slot, "a"), Poll::Ready(Err(Failure::TimedOut { sent: true }))));
    }
    // The pool may have reported the timeout first.
    let ended = rig.poll(queued, "c");
    let timed_out = matches!(ended, Poll::Ready(Err(Failure::TimedOut { sent: false })));
    let rejected = matches!(ended, Poll::Ready(Err(Failure::Rejected(AcquireError::TimedOut { .. }))));
    assert!(timed_out || rejected);
    assert_eq!((rig.state().in_flight, rig.state().orphaned), (0, 2));
    let [(other, _)] = rig.take(conn)[..] else { panic!("what stands between others is sent all the same") };
    rig.reply(conn, &[stream, other]);
    assert!(rig.is_idle());
    let next = rig.begin("d", None).expect("a slot");
    assert!(matches!(rig.poll(next, "d"), Poll::Pending), "no late reply is its");
}

#[test]
fn cancelled_requests_free_their_slots_and_ids() {
    let mut rig = Rig::new(one_connection(1));
    let conn = rig.establish();
    let first = rig.begin("a", None).expect("a slot");
    let [(stream, _)] = rig.take(conn)[..] else { panic!("one") };
    let (second, third) = (rig.begin("b", None).expect("a slot"), rig.begin("c", None).expect("a slot"));
    rig.step(|change| change.cancel(second));
    assert_eq!(rig.state().queued, 1);
    rig.reply(conn, &[stream]);
    // The request was granted the id, and is cancelled before it uses the id.
    rig.step(|change| change.cancel(third));
    assert!(matches!(rig.poll(first, "a"), Poll::Ready(Ok(_))));
    assert!(rig.is_idle());
    assert!(rig.take(conn).is_empty(), "nothing was sent for them");
    let again = rig.begin("d", None).expect("a slot");
    assert!([first, second, third].contains(&again), "slots are used again");
}

#[test]
fn a_request_that_cannot_be_encoded_uses_no_id() {
    let mut rig = Rig::new(MuxOptions::DEFAULT);
    let conn = rig.establish();
    let large = String::from_utf8(vec![b'a'; 2000]).expect("text");
    let refused = rig.begin(&large, None);
    assert!(matches!(refused, Err(Failure::Encode(CqlEncodeError::BodyTooLarge { .. }))));
    assert!(rig.is_idle());
    assert!(rig.take(conn).is_empty());
}

#[test]
fn a_silent_peer_receives_a_heartbeat_and_is_closed_without_a_reply() {
    let mut rig = Rig::new(MuxOptions::DEFAULT);
    let conn = rig.establish();
    let due = rig.step(|change| change.expire()).expect("a heartbeat is due");
    assert_eq!(due.saturating_since(rig.now), MuxOptions::DEFAULT.heartbeat_interval);
    rig.now = due;
    rig.step(|change| change.expire());
    let [(stream, Opcode::Options)] = rig.take(conn)[..] else { panic!("it is asked") };
    rig.reply(conn, &[stream]);
    let due = rig.step(|change| change.expire()).expect("the next one");
    rig.now = due;
    let due = rig.step(|change| change.expire()).expect("its time");
    let waits = rig.begin("a", None).expect("a slot");
    assert_eq!(rig.take(conn).len(), 2);
    rig.now = due;
    rig.step(|change| change.expire());
    let lost = rig.poll(waits, "a");
    assert!(matches!(lost, Poll::Ready(Err(Failure::Lost { cause: Cause::NetworkTimeout, sent: true, .. }))));
}

#[test]
fn waiters_are_woken_once_although_a_waker_panics() {
    struct Count(AtomicU32, bool);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
            assert!(!self.1, "a waker that panics");
        }
    }
    let mut rig = Rig::new(MuxOptions::DEFAULT);
    let conn = rig.establish();
    let counts: Vec<_> = (0..3).map(|place| Arc::new(Count(AtomicU32::new(0), place == 0))).collect();
    for count in &counts {
        let waker = Waker::from(Arc::clone(count));
        rig.step(|change| change.begin(&message("a"), true, None, waker)).expect("a slot");
    }
    let sent: Vec<i16> = rig.take(conn).into_iter().map(|(stream, _)| stream).collect();
    rig.reply(conn, &sent);
    rig.step(|change| change.failed(conn, &Cause::Network.into()));
    assert_eq!(counts.iter().map(|count| count.0.load(Ordering::Relaxed)).collect::<Vec<_>>(), [1, 1, 1]);
}

fn host(distance: Distance, number: u64) -> (Distance, Arc<Host>) {
    let config = MuxOptions { distance, ..MuxOptions::DEFAULT }.validate().expect("good options");
    let address = CqlHost { address: number.to_string(), distance };
    let (now, events) = (Instant::ORIGIN, Events::of_test());
    (distance, Arc::new(Host::new(now, MuxId::new(number), &address, config, Version::V5, LIMITS, &events)))
}

#[test]
fn a_plan_rotates_local_hosts_before_remote_ones_and_omits_ignored_ones() {
    let hosts = Arc::new(Hosts::new(vec![
        host(Distance::Remote, 10),
        host(Distance::Local, 1),
        host(Distance::Ignored, 20),
        host(Distance::Local, 2),
        host(Distance::Remote, 11),
        host(Distance::Local, 3),
    ]));
    let asked = |turn, chosen: Option<&[MuxId]>| {
        let Some(first) = hosts.first(turn, chosen, None) else { return Vec::new() };
        let mut plan = Plan::after(first.id, Arc::clone(&hosts), turn, chosen, None);
        let mut asked = vec![first.id.get()];
        while let Some(host) = plan.next() {
            asked.push(host.id.get());
        }
        asked
    };
    assert_eq!(asked(0, None), [1, 2, 3, 10, 11]);
    assert_eq!(asked(1, None), [2, 3, 1, 11, 10]);
    assert_eq!(asked(usize::MAX, None), [1, 2, 3, 11, 10]);
    assert_eq!(asked(0, Some(&[MuxId::new(11), MuxId::new(99), MuxId::new(20)])), [11, 20]);
    assert_eq!(asked(0, Some(&[99, 2, 99, 2, 1].map(MuxId::new))), [2, 2, 1]);
    assert_eq!(asked(0, Some(&[MuxId::new(99)])), []);
    assert_eq!(asked(0, Some(&[])), []);
}

#[test]
fn a_plan_returns_hosts_that_were_put_off_after_the_others_of_their_distance() {
    let hosts = Arc::new(Hosts::new(vec![
        host(Distance::Local, 1),
        host(Distance::Local, 2),
        host(Distance::Local, 3),
        host(Distance::Remote, 10),
        host(Distance::Remote, 11),
    ]));
    let asked = |connecting: &[u64]| {
        let mut next = hosts.first(0, None, None).cloned();
        let mut plan = Plan::after(next.as_ref().expect("a host").id, Arc::clone(&hosts), 0, None, None);
        let mut asked = Vec::new();
        while let Some(host) = next {
            let number = host.id.get();
            asked.push((number, plan.waits()));
            if connecting.contains(&number) && !plan.waits() {
                plan.put_off(&host);
            }
            next = plan.next();
        }
        asked
    };
    let (at_once, waits) = (|number| (number, false), |number| (number, true));
    assert_eq!(asked(&[]), [1, 2, 3, 10, 11].map(at_once));
    let expected = [at_once(1), at_once(2), at_once(3), waits(1), waits(3), at_once(10), at_once(11), waits(10)];
    assert_eq!(asked(&[1, 3, 10]), expected);
    let remote = Arc::new(Hosts::new(vec![host(Distance::Remote, 10), host(Distance::Remote, 11)]));
    let first = remote.first(0, None, None).expect("a host");
    let mut plan = Plan::after(first.id, Arc::clone(&remote), 0, None, None);
    plan.put_off(first);
    let rest: Vec<_> = (0..3).map(|_| plan.next().map(|host| host.id.get())).collect();
    assert_eq!(rest, [Some(11), Some(10), None]);
}

#[test]
fn a_request_that_does_not_wait_is_refused_while_the_first_connection_is_established() {
    let mut rig = Rig::new(MuxOptions::DEFAULT);
    let begin =
        |rig: &mut Rig, waits| rig.step(|change| change.begin(&message("a"), waits, None, Waker::noop().clone()));
    assert!(matches!(begin(&mut rig, false), Err(Failure::Connecting)));
    let queued = begin(&mut rig, true).expect("a slot");
    assert_eq!(rig.state().queued, 1);
    rig.establish();
    assert!(rig.poll(queued, "a").is_pending(), "it is sent");
    begin(&mut rig, false).expect("a connection is open");
    assert_eq!(rig.state().in_flight, 2);
}

#[test]
fn a_request_that_does_not_wait_begins_the_next_attempt_to_connect() {
    let mut rig = Rig::new(MuxOptions::DEFAULT);
    let conn = rig.establish.remove(0);
    rig.step(|change| change.failed(conn, &Cause::Network.into()));
    let begin = |rig: &mut Rig| rig.step(|change| change.begin(&message("a"), false, None, Waker::noop().clone()));
    assert!(matches!(begin(&mut rig), Err(Failure::Rejected(AcquireError::Down { .. }))));
    rig.pass(Duration::from_secs(60));
    assert!(matches!(begin(&mut rig), Err(Failure::Connecting)));
    assert_eq!((rig.state().establishing, rig.state().queued), (1, 0));
}

#[test]
fn a_reply_to_a_request_cancelled_before_sending_closes_the_connection() {
    let mut rig = Rig::new(MuxOptions::DEFAULT);
    let conn = rig.establish();
    let slot = rig.begin("a", None).expect("a slot");
    rig.step(|change| change.cancel(slot));
    assert_eq!(rig.state().orphaned, 1);
    rig.reply(conn, &[0]);
    assert_eq!(rig.requested_after_pause(), 1, "another one is wanted");
    assert!(rig.is_idle());
}

#[test]
fn a_reply_on_an_id_without_a_written_request_closes_the_connection() {
    let mut rig = Rig::new(one_connection(1));
    let conn = rig.establish();
    let (first, second) = (rig.begin("a", None).expect("a slot"), rig.begin("b", None).expect("a slot"));
    let [(stream, _)] = rig.take(conn)[..] else { panic!("one") };
    rig.reply(conn, &[stream, stream + 1]);
    assert!(matches!(rig.poll(first, "a"), Poll::Ready(Ok(_))));
    assert_eq!(rig.requested_after_pause(), 1, "another one is wanted");
    assert!(matches!(rig.poll(second, "b"), Poll::Ready(Err(Failure::Lost { sent: false, .. }))));
    assert!(rig.is_idle());
}

#[test]
fn load_during_a_pause_opens_a_connection_after_the_pause() {
    let local = HostOptions {
        core_connections: 1,
        max_connections: 2,
        max_requests_per_connection: 4,
        new_connection_threshold: 1,
    };
    let mut rig = Rig::new(MuxOptions { local, ..MuxOptions::DEFAULT });
    let conn = rig.establish();
    let slots = [(); 2].map(|()| rig.begin("a", None).expect("a slot"));
    let second = rig.establish.remove(0);
    let sent: Vec<i16> = rig.take(conn).into_iter().map(|(stream, _)| stream).collect();
    rig.reply(conn, &sent);
    for slot in slots {
        assert!(matches!(rig.poll(slot, "a"), Poll::Ready(Ok(_))));
    }
    // After the failure of the attempt no connection has load.
    rig.step(|change| change.failed(second, &Cause::Network.into()));
    let slots = [(); 2].map(|()| rig.begin("a", None).expect("a slot"));
    assert!(rig.establish.is_empty(), "a pause first");
    rig.now = rig.now.saturating_add(Duration::from_secs(1));
    let next = rig.step(|change| change.expire());
    assert_eq!(rig.establish.len(), 1, "{next:?}");
    for slot in slots {
        rig.step(|change| change.cancel(slot));
    }
}

/// The slot of a request keeps the deadline of its last request as a lower bound.
#[test]
fn a_slot_that_is_used_again_has_its_new_deadline() {
    let mut rig = Rig::new(MuxOptions::DEFAULT);
    let conn = rig.establish();
    let begun = rig.now;
    let after = |seconds| Some(begun.saturating_add(Duration::from_secs(seconds)));
    let mut slots = Vec::new();
    for deadline in [after(2), after(4), after(1), None] {
        let slot = rig.begin("a", deadline).expect("a slot");
        let [(stream, _)] = rig.take(conn)[..] else { panic!("one") };
        assert!(rig.host.armed() <= deadline || deadline.is_none(), "the keeper wakes in time");
        rig.reply(conn, &[stream]);
        assert!(matches!(rig.poll(slot, "a"), Poll::Ready(Ok(_))));
        slots.push(slot);
    }
    assert_eq!(slots, [slots[0]; 4], "one slot is used");
    let slot = rig.begin("a", after(3)).expect("a slot");
    assert_eq!(rig.take(conn).len(), 1);
    // The bound is that of the earliest of these requests.
    for (seconds, next) in [(1, after(3)), (2, after(3))] {
        rig.now = begun.saturating_add(Duration::from_secs(seconds));
        assert_eq!(rig.step(|change| change.expire()), next);
        assert!(rig.poll(slot, "a").is_pending(), "its time is not over after {seconds} s");
    }
    rig.now = begun.saturating_add(Duration::from_secs(3));
    rig.step(|change| change.expire());
    assert!(matches!(rig.poll(slot, "a"), Poll::Ready(Err(Failure::TimedOut { sent: true }))));
}

#[test]
fn more_deadlines_than_one_call_handles_expire_at_the_next_call() {
    let mut rig = Rig::new(one_connection(3000));
    let conn = rig.establish();
    let at = rig.now.saturating_add(Duration::from_secs(1));
    let slots: Vec<u32> = (0..3000).map(|_| rig.begin("a", Some(at)).expect("a slot")).collect();
    assert_eq!(rig.take(conn).len(), 3000);
    rig.now = at;
    let calls = (1..10).find(|_| rig.step(|change| change.expire()).is_some_and(|next| next > at));
    assert_eq!(calls, Some(3));
    for slot in slots {
        assert!(matches!(rig.poll(slot, "a"), Poll::Ready(Err(Failure::TimedOut { sent: true }))));
    }
}

/// No heartbeat can be sent while no id is free, so the deadline includes the heartbeat timeout. It
/// returns to the usual interval when an id is free.
#[test]
fn the_keeper_is_woken_in_time_after_all_ids_were_in_use() {
    let options = MuxOptions { streams_per_connection: 1, ..one_connection(1) };
    let mut rig = Rig::new(options);
    let conn = rig.establish();
    let established = rig.now;
    let slot = rig.begin("a", None).expect("a slot");
    let [(stream, _)] = rig.take(conn)[..] else { panic!("one") };
    let tight = rig.step(|change| change.expire()).expect("a heartbeat");
    assert_eq!(tight, established.saturating_add(options.heartbeat_interval + options.heartbeat_timeout));
    rig.now = established.saturating_add(Duration::from_secs(1));
    rig.reply(conn, &[stream]);
    assert!(matches!(rig.poll(slot, "a"), Poll::Ready(Ok(_))));
    assert_eq!(rig.host.armed(), Some(established.saturating_add(options.heartbeat_interval)));
}

#[test]
fn a_connection_with_too_much_unread_output_takes_no_more_requests() {
    let limits = Limits { body_bytes_max: 20_000_000 };
    let mut rig = Rig::with_limits(MuxOptions::DEFAULT, limits);
    rig.establish();
    let large = String::from_utf8(vec![b'a'; 16_000_000]).expect("text");
    let mut taken = 0;
    let refused = loop {
        match rig.begin(&large, None) {
            // Cancelled at once, to leave no request in flight.
            Ok(slot) => drop(rig.step(|change| change.cancel(slot))),
            Err(failure) => break failure,
        }
        taken += 1;
    };
    assert!(matches!(refused, Failure::Rejected(AcquireError::Busy { .. })), "{refused:?}");
    assert_eq!(taken, 5);
}

#[test]
fn a_plan_continues_with_replaced_hosts() {
    use super::error::{Rejection, RejectionReason};
    let closed = |number| Rejection {
        host: MuxId::new(number),
        address: String::new(),
        reason: RejectionReason::Pool(AcquireError::Closed),
        refusal: None,
    };
    let before = Arc::new(Hosts::new(vec![host(Distance::Local, 1), host(Distance::Local, 2)]));
    let after = Arc::new(Hosts::new(vec![host(Distance::Local, 2), host(Distance::Local, 3)]));
    let mut plan = Plan::after(MuxId::new(1), Arc::clone(&before), 0, None, None);
    for id in [Some(2), None] {
        assert_eq!(plan.next().map(|host| host.id.get()), id);
    }
    let rejections = [closed(1), closed(2)];
    assert!(!plan.renew(Arc::clone(&before), &rejections), "they are the same");
    assert!(!plan.renew(Arc::clone(&after), &[]), "no host was removed");
    assert!(plan.renew(Arc::clone(&after), &rejections));
    assert_eq!(plan.next().map(|host| host.id.get()), Some(3));
    assert!(plan.next().is_none());
}

/// The rejection of a request by a host, for this reason.
fn rejection(reason: RejectionReason) -> Rejection {
    Rejection { host: MuxId::new(7), address: "db:1".into(), reason, refusal: None }
}

#[test]
fn errors_contain_each_host_and_its_reason() {
    use poolhouse_cql::ErrorCode;
    let address = || String::from("db:1");
    let refused =
        Rejection { refusal: Some("wrong password".into()), ..rejection(RejectionReason::Pool(AcquireError::Closed)) };
    let no_host = vec![
        refused,
        rejection(RejectionReason::Lost { cause: Cause::Network, sent: false }),
        rejection(RejectionReason::Refused(ErrorCode::IS_BOOTSTRAPPING)),
    ];
    let bootstrapping = ErrorCode::IS_BOOTSTRAPPING;
    let texts = [
        (
            RequestError::NoHost(Vec::new()),
            String::from(
                "no host took the request: no host is left that it may use; check the hosts of the request, or the data centre and the hosts of the session",
            ),
        ),
        (
            RequestError::NoHost(no_host),
            alloc::format!(
                "no host took the request: db:1: the pool is closed (wrong password); \
                 db:1: the connection failed: network error; db:1: the server refused: {bootstrapping}"
            ),
        ),
        (RequestError::TimedOut { address: address(), sent: true }, "db:1 did not answer in time".into()),
        (RequestError::TimedOut { address: address(), sent: false }, "db:1 did not take the request in time".into()),
        (
            RequestError::Lost { address: address(), cause: Cause::NetworkTimeout, reason: Reason::NONE },
            "the connection to db:1 failed: network timeout".into(),
        ),
        (
            RequestError::Lost { address: address(), cause: Cause::Network, reason: Finding::Closed.into() },
            "the connection to db:1 failed: network error: the server closed the connection".into(),
        ),
        (
            RequestError::Encode(CqlEncodeError::Full),
            "the request cannot be encoded: the buffer has no room for the message".into(),
        ),
        (RequestError::Unexpected(Opcode::Startup), "STARTUP is no answer to the request".into()),
        (RequestError::ManyRows { count: 2 }, "the answer has 2 rows, expected at most one".into()),
        (
            RequestError::SchemaDisagreement { limit: Duration::from_secs(10) },
            "the statement was executed, but not all hosts have the new schema after 10s: wait for \
             schema_agreement before the next request"
                .into(),
        ),
        (
            RequestError::Outdated,
            "the bind variables of the statement have changed since it was prepared: prepare it again".into(),
        ),
        (RequestError::Closed, "the session is closed".into()),
        (RequestError::Abandoned, "the executor dropped the tasks of the session: create a new session".into()),
        (
            RequestError::Forked,
            "the session was created before the fork of this process and belongs to the parent".into(),
        ),
    ];
    for (error, text) in texts {
        assert_eq!(error.to_string(), text);
        let is_of_a_host = matches!(&error, RequestError::NoHost(hosts) if !hosts.is_empty());
        let has_source = is_of_a_host || matches!(error, RequestError::Encode(_) | RequestError::Lost { .. });
        assert_eq!(core::error::Error::source(&error).is_some(), has_source, "{error}");
    }
}

#[test]
fn errors_report_whether_a_request_may_have_been_executed() {
    use poolhouse_cql::ErrorCode;
    let address = || String::from("db:1");
    let lost = |sent| rejection(RejectionReason::Lost { cause: Cause::Network, sent });
    let busy = AcquireError::TimedOut { in_flight: 1, queued: 1 };
    let waited = || rejection(RejectionReason::Pool(busy));
    let overloaded = rejection(RejectionReason::Refused(ErrorCode::OVERLOADED));
    let bootstrapping = rejection(RejectionReason::Refused(ErrorCode::IS_BOOTSTRAPPING));
    let cases = [
        (RequestError::NoHost(vec![lost(false), waited(), bootstrapping]), false, false),
        (RequestError::NoHost(vec![waited(), lost(true)]), false, true),
        (RequestError::NoHost(vec![waited(), overloaded]), false, true),
        (RequestError::NoHost(vec![waited(), waited()]), true, false),
        (RequestError::NoHost(Vec::new()), false, false),
        (RequestError::TimedOut { address: address(), sent: true }, true, true),
        (RequestError::TimedOut { address: address(), sent: false }, true, false),
        (RequestError::Lost { address: address(), cause: Cause::Network, reason: Reason::NONE }, false, true),
        (RequestError::Encode(CqlEncodeError::Full), false, false),
        (RequestError::Unexpected(Opcode::Startup), false, true),
        (RequestError::ManyRows { count: 2 }, false, true),
        (RequestError::SchemaDisagreement { limit: Duration::from_secs(10) }, false, true),
        (RequestError::Outdated, false, false),
        (RequestError::Closed, false, true),
        (RequestError::Abandoned, false, true),
        (RequestError::Forked, false, false),
    ];
    for (error, is_timeout, may_have_executed) in cases {
        assert_eq!((error.is_timeout(), error.may_have_executed()), (is_timeout, may_have_executed), "{error}");
    }
}

#[test]
fn option_out_of_range_is_refused_by_name() {
    use super::{CqlHost, SessionOptions};
    let built = || SessionOptions::new(["db:1"]);
    let startup = |options: &[(&str, usize)]| {
        let options = options.iter().map(|(name, length)| ((*name).into(), "x".repeat(*length))).collect();
        SessionOptions { startup_options: options, ..built() }
    };
    let hosts = |count: u32| SessionOptions::new((0..count).map(|number| alloc::format!("db{number}")));
    let good = [
        SessionOptions { body_bytes_max: 1, ..built() },
        SessionOptions { body_bytes_max: 268_435_456, ..built() },
        startup(&[("APPLICATION_NAME", 32_768 - 16 - 4)]),
        hosts(4096),
        SessionOptions::new(["db", "db:9043", "other", "/db.sock"]),
    ];
    for options in good {
        options.validate().expect("within the limits");
    }
    let host_rule = "hosts is \"db:x\", but must be host, host:port, [ipv6]:port, or the path of a unix socket";
    let bad = [
        (SessionOptions { body_bytes_max: 0, ..built() }, "bodyBytesMax is 0, but must be from 1 to 268435456"),
        (
            SessionOptions { body_bytes_max: 268_435_457, ..built() },
            "bodyBytesMax is 268435457, but must be from 1 to 268435456",
        ),
        (built().connect_timeout(Duration::ZERO), "connectTimeoutMS is 0, but must be more than 0; None is no limit"),
        (built().request_timeout(Duration::ZERO), "requestTimeoutMS is 0, but must be more than 0; None is no limit"),
        (
            startup(&[("COMPRESSION", 1)]),
            "startupOptions is \"COMPRESSION\", but must not be an option that the session sets",
        ),
        (
            startup(&[("A", 1), ("APPLICATION_NAME", 32_768 - 16 - 4)]),
            "startupOptions is \"[too long]\", but must be at most 32768 bytes long in all",
        ),
        (hosts(0), "hosts is 0, but must be from 1 to 4096"),
        (hosts(4097), "hosts is 4097, but must be from 1 to 4096"),
        (SessionOptions::new(["db", "db:x"]), host_rule),
        (SessionOptions::new(["db", "other", "db:9042"]), "hosts is \"db:9042\", but must be listed once"),
    ];
    for (options, told) in bad {
        assert_eq!(options.validate().expect_err(told).to_string(), told);
    }
    // A whole connection string may contain a password.
    let error = SessionOptions::new(["cql://ann:hunter2@db"]).validate().expect_err("no host").to_string();
    assert!(error.contains("[redacted]") && !error.contains("hunter2"), "{error}");
    let shown = alloc::format!("{:?}", built().credential("ann", "hunter2"));
    assert!(shown.contains("CqlCredential([redacted])") && !shown.contains("ann"), "{shown}");
    assert_eq!(CqlHost::remote("db"), CqlHost { address: "db".into(), distance: Distance::Remote });
}

fn reply_of(opcode: Opcode, body: &[u8]) -> super::Reply {
    let header = poolhouse_cql::Header {
        version: Version::V4,
        direction: Direction::Response,
        flags: Flags::NONE,
        stream: 3,
        opcode,
        length_bytes: u32::try_from(body.len()).expect("short"),
    };
    super::Reply { host: MuxId::new(7), header, body: body.to_vec().into() }
}

#[test]
fn reply_is_shown_without_its_body() {
    let reply = reply_of(Opcode::Result, b"hunter2");
    assert_eq!((reply.host(), reply.body()), (MuxId::new(7), &b"hunter2"[..]));
    let shown = alloc::format!("{reply:?}");
    assert!(shown.starts_with("Reply { host: MuxId(7), envelope: "), "{shown}");
    let numbers = alloc::format!("{:?}", b"hunter2");
    assert!(!shown.contains("hunter2") && !shown.contains(&numbers), "{shown}");
    assert_eq!(reply.into_body(), b"hunter2");
}

#[test]
fn error_of_a_server_contains_its_message_once() {
    use super::ServerError;
    use core::error::Error as _;
    use poolhouse_cql::ErrorCode;
    let (code, message) = (ErrorCode::OVERLOADED, String::from("later"));
    let server = ServerError { code, message, reply: reply_of(Opcode::Error, &[]), earlier: Vec::new() };
    let told = alloc::format!("{code}: later");
    assert_eq!(server.to_string(), told);
    let error = RequestError::Server(alloc::boxed::Box::new(server));
    assert_eq!(error.to_string(), told);
    assert!(error.source().is_none());
    assert!(error.may_have_executed() && !error.is_timeout());
    let wrong = reply_of(Opcode::Error, &[0, 0]).response().expect_err("that is no code");
    let error = RequestError::Reply(wrong);
    assert_eq!(error.to_string(), alloc::format!("malformed response: {wrong}"));
    assert_eq!(error.source().and_then(|source| source.downcast_ref()), Some(&wrong));
    assert!(error.may_have_executed() && !error.is_timeout());
}

/// A text that does not fit is cut off, and its formatter returns an error.
#[test]
fn text_that_does_not_fit_is_a_formatter_error() {
    struct Room(usize);
    impl core::fmt::Write for Room {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            self.0 = self.0.checked_sub(text.len()).ok_or(core::fmt::Error)?;
            Ok(())
        }
    }
    let reasons = [
        RejectionReason::Pool(AcquireError::Closed),
        RejectionReason::Lost { cause: Cause::Network, sent: false },
        RejectionReason::Refused(poolhouse_cql::ErrorCode::OVERLOADED),
    ];
    for reason in reasons {
        let rejection = Rejection { refusal: Some("no".into()), ..rejection(reason) };
        let len = rejection.to_string().len();
        for room in 0..=len {
            let result = core::fmt::write(&mut Room(room), format_args!("{rejection}"));
            assert_eq!(result.is_ok(), room == len, "{rejection} in {room}");
        }
    }
}

/// A slot that was never assigned, or that its owner has released already, is rejected.
#[test]
fn unknown_slot_has_no_outcome_and_cannot_be_cancelled() {
    let mut rig = Rig::new(MuxOptions::DEFAULT);
    let conn = rig.establish();
    let lost = rig.poll(9, "a");
    assert!(matches!(lost, Poll::Ready(Err(Failure::Lost { cause: Cause::Closed, sent: true, .. }))));
    rig.step(|change| change.cancel(9));
    let slot = rig.begin("a", None).expect("a slot");
    let [(stream, _)] = rig.take(conn)[..] else { panic!("one") };
    rig.reply(conn, &[stream]);
    assert!(matches!(rig.poll(slot, "a"), Poll::Ready(Ok(_))));
    assert!(matches!(rig.poll(slot, "a"), Poll::Pending), "its answer was taken");
    assert!(rig.is_idle());
}

/// The connection's task continues to read until it is notified of the close.
#[test]
fn replies_on_a_closed_connection_are_dropped() {
    let mut rig = Rig::new(MuxOptions::DEFAULT);
    let conn = rig.establish();
    let slot = rig.begin("a", None).expect("a slot");
    let [(stream, _)] = rig.take(conn)[..] else { panic!("one") };
    rig.step(|change| change.failed(conn, &Cause::Network.into()));
    rig.reply(conn, &[stream]);
    let lost = rig.poll(slot, "a");
    assert!(matches!(lost, Poll::Ready(Err(Failure::Lost { cause: Cause::Network, sent: true, .. }))));
    assert!(rig.is_idle());
    assert_eq!(rig.requested_after_pause(), 1, "one in its place is wanted");
}

#[test]
fn lower_version_applies_to_one_host_for_a_limited_time() {
    use super::LOWER_VERSION_FOR;
    let (mut rig, other) = (Rig::new(MuxOptions::DEFAULT), Rig::new(MuxOptions::DEFAULT));
    let version = |rig: &Rig| rig.host.look(rig.now, |_, version, _| version);
    assert_eq!(version(&rig), Version::V5);
    rig.step(|change| change.lower(Version::V4));
    assert_eq!((version(&rig), version(&other)), (Version::V4, Version::V5));
    rig.pass(LOWER_VERSION_FOR / 2);
    rig.step(|change| change.lower(Version::V3));
    // A connection that tried a newer version at the same time neither raises the version nor
    // extends the time.
    rig.pass(LOWER_VERSION_FOR / 2);
    rig.step(|change| change.lower(Version::V4));
    rig.pass(LOWER_VERSION_FOR / 2 - Duration::from_nanos(1));
    assert_eq!(version(&rig), Version::V3);
    rig.pass(Duration::from_nanos(1));
    assert_eq!(version(&rig), Version::V5);
    rig.step(|change| change.lower(Version::V4));
    assert_eq!(version(&rig), Version::V4);
}

/// Routes for the nodes `1` to `4` of one rack, whose keyspace `shop` has two replicas. The node 4 is
/// in another data centre.
fn routes() -> Arc<Routes> {
    let node = |data_center: &str, token| {
        Arc::new(Node { data_center: data_center.into(), rack: "r1".into(), tokens: vec![token], is_up: true })
    };
    let address = |number: u8| SocketAddr::from(([10, 0, 0, number], 9042));
    let nodes = [
        (address(1), node("east", i64::MIN / 2)),
        (address(2), node("east", 0)),
        (address(3), node("east", i64::MAX / 2)),
        (address(4), node("west", i64::MIN / 4)),
    ];
    let mut keyspaces = Keyspaces::default();
    keyspaces.add(String::from("shop"), Replication::Simple { factor: 2 }, None);
    Arc::new(finish(Routes::new(&nodes.into_iter().collect(), &keyspaces, None)).expect("a small ring"))
}

/// The result of a computation that only yields.
fn finish<T>(work: impl Future<Output = T>) -> T {
    let mut work = core::pin::pin!(work);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut context) {
            return done;
        }
    }
}

#[test]
fn keyspaces_share_the_replicas_of_the_local_data_center() {
    let node = Node { data_center: "east".into(), rack: "r1".into(), tokens: vec![0], is_up: true };
    let nodes = [(SocketAddr::from(([10, 0, 0, 1], 9042)), Arc::new(node))].into();
    let keyspace = |name: String, west| {
        let factors = vec![(String::from("east"), 1), (String::from("west"), west)];
        (name, Replication::NetworkTopology { factors })
    };
    let own = (1..20).map(|factor| keyspace(alloc::format!("system_{factor}"), factor));
    let shops = (1..20).map(|factor| keyspace(alloc::format!("shop{factor}"), factor));
    let keyspaces: Vec<_> = own.chain(shops).collect();
    let routed = |local: Option<&str>| {
        let mut found = Keyspaces::default();
        for (name, replication) in keyspaces.clone() {
            found.add(name, replication, local);
        }
        finish(Routes::new(&nodes, &found, local)).expect("a small ring").keyspace_count()
    };
    assert_eq!(routed(Some("east")), 19);
    // Each replication has its own replicas, and their number is limited.
    assert_eq!(routed(None), 8);
}

/// The first key whose token is in a range.
fn key_in(range: core::ops::RangeInclusive<i64>) -> [u8; 4] {
    (0..u32::MAX).map(u32::to_be_bytes).find(|key| range.contains(&Token::of(key).number())).expect("a key")
}

#[test]
fn a_plan_begins_with_the_local_replicas() {
    let named = |distance, number: u8| {
        let config = MuxOptions { distance, ..MuxOptions::DEFAULT }.validate().expect("good options");
        let address = CqlHost { address: alloc::format!("10.0.0.{number}:9042"), distance };
        let (now, events) = (Instant::ORIGIN, Events::of_test());
        (distance, Arc::new(Host::new(now, MuxId::new(number.into()), &address, config, Version::V5, LIMITS, &events)))
    };
    let hosts = Hosts::new(vec![
        named(Distance::Remote, 4),
        named(Distance::Local, 1),
        named(Distance::Local, 2),
        named(Distance::Local, 3),
    ]);
    let hosts = Arc::new(hosts.with_routes(Some(routes())));
    let asked = |turn, chosen: Option<&[MuxId]>, keyspace, key: &[u8]| {
        let routing = Some(Routing::new(keyspace, key));
        let Some(first) = hosts.first(turn, chosen, routing) else { return Vec::new() };
        let mut plan = Plan::after(first.id, Arc::clone(&hosts), turn, chosen, routing);
        let mut asked = vec![first.id.get()];
        while let Some(host) = plan.next() {
            asked.push(host.id.get());
        }
        asked
    };
    // The replicas are 2 and 3.
    let key = key_in(i64::MIN / 4 + 1..=0);
    assert_eq!(asked(0, None, "shop", &key), [2, 3, 1, 4]);
    assert_eq!(asked(1, None, "shop", &key), [3, 2, 1, 4]);
    // The replicas are 4, which is remote, and 2.
    let key = key_in(i64::MIN / 2 + 1..=i64::MIN / 4);
    assert_eq!(asked(0, None, "shop", &key), [2, 1, 3, 4]);
    assert_eq!(asked(1, None, "shop", &key), [2, 3, 1, 4]);
    assert_eq!(asked(usize::MAX, None, "shop", &key)[0], 2);
    // An unknown keyspace, and chosen hosts.
    assert_eq!(asked(1, None, "elsewhere", &key), [2, 3, 1, 4]);
    assert_eq!(asked(0, Some(&[MuxId::new(3)]), "shop", &key), [3]);
}

#[test]
fn a_plan_continues_after_a_host_became_ignored() {
    let before = Arc::new(Hosts::new(vec![host(Distance::Local, 1)]));
    let after = Arc::new(Hosts::new(vec![host(Distance::Local, 2)]));
    let mut plan = Plan::after(MuxId::new(1), Arc::clone(&before), 0, None, None);
    assert!(plan.next().is_none());
    let ignored = Rejection { host: MuxId::new(1), ..rejection(RejectionReason::Pool(AcquireError::Ignored)) };
    assert!(plan.renew(after, &[ignored]));
    assert_eq!(plan.next().map(|host| host.id.get()), Some(2));
}
