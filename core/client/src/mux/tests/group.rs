//! Groups: many requests of one future at a host.

use super::*;
use crate::mux::reply::copy_body;
use bytes::BytesMut;
use core::ops::Range;

/// Counts the calls of its waker.
#[derive(Default)]
struct Bell(AtomicU32);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Rig {
    /// Begins requests with these indices.
    fn begin_all(&mut self, group: Option<u32>, indices: Range<usize>, deadline: Option<Instant>) -> u32 {
        let body = message("a");
        let requests = indices.map(|index| (index, &body, true));
        self.step(|change| change.begin_all(group, requests, deadline))
    }

    /// Takes all outcomes, and sends the requests that have waited.
    fn outcomes(&mut self, group: u32, waker: &Waker) -> Vec<(usize, Outcome)> {
        let body = message("a");
        let mut all = Vec::new();
        loop {
            let mut some = Vec::new();
            let are_granted = self.host.take_outcomes(group, &mut some, &mut Some(waker.clone()));
            all.append(&mut some);
            if !are_granted {
                return all;
            }
            self.step(|change| change.send_granted(group, |_| &body));
        }
    }

    /// Returns the stream ids that a connection has to send.
    fn ids(&self, conn: MuxConnId) -> Vec<i16> {
        self.take(conn).into_iter().map(|(stream, _)| stream).collect()
    }
}

/// The indices and bodies of outcomes that are all replies.
fn bodies(outcomes: Vec<(usize, Outcome)>) -> Vec<(usize, Vec<u8>)> {
    outcomes.into_iter().map(|(index, outcome)| (index, outcome.expect("a reply").into_body())).collect()
}

#[test]
fn replies_of_one_read_wake_a_group_once() {
    let mut rig = Rig::new(MuxOptions::DEFAULT);
    let conn = rig.establish();
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let group = rig.begin_all(None, 0..4, None);
    assert!(rig.outcomes(group, &waker).is_empty());
    let sent = rig.ids(conn);
    rig.reply(conn, &[sent[2], sent[0], sent[3]]);
    assert_eq!(bell.0.load(Ordering::Relaxed), 1);
    let body = |id: i16| id.to_be_bytes().to_vec();
    let expected = vec![(2, body(sent[2])), (0, body(sent[0])), (3, body(sent[3]))];
    assert_eq!(bodies(rig.outcomes(group, &waker)), expected);
    rig.reply(conn, &[sent[1]]);
    assert_eq!(bell.0.load(Ordering::Relaxed), 2);
    assert_eq!(bodies(rig.outcomes(group, &waker)), [(1, body(sent[1]))]);
    rig.step(|change| change.cancel_all(group));
    drop(waker);
    assert_eq!(Arc::strong_count(&bell), 1, "no waker is kept");
    assert!(rig.is_idle());
}

#[test]
fn requests_that_cannot_begin_have_outcomes_at_once() {
    let mut rig = Rig::new(MuxOptions { max_queue_size: 1, ..one_connection(2) });
    let conn = rig.establish();
    let group = rig.begin_all(None, 0..5, None);
    assert_eq!(rig.ids(conn).len(), 2);
    let outcomes = rig.outcomes(group, Waker::noop());
    let is_busy = |outcome: &Outcome| matches!(outcome, Err(Failure::Rejected(AcquireError::Busy { .. })));
    assert!(outcomes.iter().all(|(_, outcome)| is_busy(outcome)), "{outcomes:?}");
    assert_eq!(outcomes.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [3, 4]);
    assert_eq!((rig.state().in_flight, rig.state().queued), (2, 1));
    let long = String::from_utf8(vec![b'a'; 2000]).expect("text");
    let body = message(&long);
    rig.step(|change| change.begin_all(Some(group), [(5, &body, true)].into_iter(), None));
    // It waits for an id, and is encoded then.
    rig.step(|change| change.cancel_all(group));
    assert_eq!((rig.state().in_flight, rig.state().queued), (0, 0));
}

#[test]
fn cancelled_group_does_not_drop_an_error_of_the_platform_under_the_lock() {
    let mut rig = Rig::new(MuxOptions::DEFAULT);
    let conn = rig.establish();
    let group = rig.begin_all(None, 0..2, None);
    let drops = rig.fail_with_an_error_of_the_platform(conn);
    let outcomes = rig.step(|change| change.cancel_all(group));
    assert_eq!(outcomes.len(), 2);
    drop(outcomes);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    assert!(rig.is_idle());
}

/// Requests in every state: answered, in flight, written but not sent, granted an id, queued.
#[test]
fn cancelled_group_returns_every_slot_and_id() {
    let mut rig = Rig::new(one_connection(3));
    let conn = rig.establish();
    let group = rig.begin_all(None, 0..2, None);
    let sent = rig.ids(conn);
    assert_eq!(rig.begin_all(Some(group), 2..6, None), group);
    assert_eq!((rig.state().in_flight, rig.state().queued), (3, 3));
    rig.reply(conn, &[sent[0]]);
    assert_eq!((rig.state().in_flight, rig.state().queued), (3, 2), "one has been granted an id");
    rig.step(|change| change.cancel_all(group));
    let state = rig.state();
    assert_eq!((state.in_flight, state.queued, state.orphaned), (0, 0, 2));
    let slots: Vec<u32> = (0..3).map(|_| rig.begin("b", None).expect("a slot")).collect();
    assert!(slots.iter().all(|slot| *slot < 7), "slots are used again: {slots:?}");
    let [unsent, next, ..] = rig.ids(conn)[..] else { panic!("the cancelled one is sent all the same") };
    // Late replies reach no other request.
    rig.reply(conn, &[sent[1], unsent]);
    for slot in &slots {
        assert!(rig.poll(*slot, "b").is_pending());
    }
    rig.reply(conn, &[next]);
    let Poll::Ready(Ok(reply)) = rig.poll(slots[0], "b") else { panic!("its reply") };
    assert_eq!(reply.body(), next.to_be_bytes());
}

#[test]
fn requests_of_a_group_report_whether_they_were_sent_when_their_connection_fails() {
    let mut rig = Rig::new(one_connection(4));
    let conn = rig.establish();
    let group = rig.begin_all(None, 0..3, None);
    let sent = rig.ids(conn);
    rig.reply(conn, &[sent[1]]);
    rig.begin_all(Some(group), 3..4, None);
    rig.step(|change| change.failed(conn, &Cause::Network.into()));
    let outcomes = rig.outcomes(group, Waker::noop());
    let found: Vec<_> = outcomes
        .iter()
        .map(|(index, outcome)| match outcome {
            Ok(_) => (*index, None),
            Err(Failure::Lost { cause: Cause::Network, sent, .. }) => (*index, Some(*sent)),
            Err(failure) => panic!("{failure:?}"),
        })
        .collect();
    assert_eq!(found[0], (1, None));
    let mut lost = found[1..].to_vec();
    lost.sort_unstable();
    assert_eq!(lost, [(0, Some(true)), (2, Some(true)), (3, Some(false))]);
    assert!(rig.is_idle());
}

#[test]
fn group_times_out_in_every_state() {
    let mut rig = Rig::new(one_connection(3));
    let conn = rig.establish();
    let at = rig.now.saturating_add(Duration::from_millis(10));
    let group = rig.begin_all(None, 0..2, Some(at));
    let sent = rig.ids(conn);
    rig.begin_all(Some(group), 2..5, Some(at));
    assert_eq!(rig.host.armed(), Some(at));
    rig.now = rig.now.saturating_add(Duration::from_millis(5));
    // The fourth request is granted the id of the first, and has not used it when its time is over.
    rig.reply(conn, &[sent[0]]);
    rig.now = at;
    rig.step(|change| change.expire());
    let mut outcomes = rig.outcomes(group, Waker::noop());
    outcomes.sort_by_key(|(index, _)| *index);
    let found: Vec<_> = outcomes
        .iter()
        .map(|(_, outcome)| match outcome {
            Ok(_) => "reply",
            Err(Failure::TimedOut { sent: true }) => "sent",
            Err(Failure::TimedOut { sent: false } | Failure::Rejected(AcquireError::TimedOut { .. })) => "not sent",
            Err(failure) => panic!("{failure:?}"),
        })
        .collect();
    assert_eq!(found, ["reply", "sent", "sent", "not sent", "not sent"]);
    let state = rig.state();
    assert_eq!((state.in_flight, state.queued, state.orphaned), (0, 0, 2));
    let unsent = rig.ids(conn);
    rig.reply(conn, &[sent[1], unsent[0]]);
    assert!(rig.outcomes(group, Waker::noop()).is_empty(), "late replies are dropped");
    assert!(rig.is_idle());
}

/// Another task may end the requests of a group before the group adds more, with a time that it
/// has read earlier.
#[test]
fn requests_that_a_group_adds_after_its_deadline_time_out() {
    let mut rig = Rig::new(MuxOptions::DEFAULT);
    rig.establish();
    let at = rig.now.saturating_add(Duration::from_millis(10));
    let group = rig.begin_all(None, 0..2, Some(at));
    rig.now = at;
    rig.step(|change| change.expire());
    rig.begin_all(Some(group), 2..4, Some(at));
    assert_eq!(rig.host.armed(), Some(at));
    rig.step(|change| change.expire());
    let outcomes = rig.outcomes(group, Waker::noop());
    let is_late = |(_, outcome): &(usize, Outcome)| matches!(outcome, Err(Failure::TimedOut { .. }));
    assert_eq!((outcomes.len(), outcomes.iter().all(is_late)), (4, true));
}

/// A request that waits has one outcome, although its wait ends before the group takes the news.
#[test]
fn request_of_a_closed_pool_has_one_outcome() {
    let mut rig = Rig::new(one_connection(1));
    let conn = rig.establish();
    let group = rig.begin_all(None, 0..3, None);
    let sent = rig.ids(conn);
    rig.reply(conn, &sent);
    rig.step(|change| change.close());
    let mut outcomes = rig.outcomes(group, Waker::noop());
    outcomes.sort_by_key(|(index, _)| *index);
    assert_eq!(outcomes.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 1, 2], "{outcomes:?}");
    assert!(outcomes[0].1.is_ok() && outcomes[1..].iter().all(|(_, outcome)| outcome.is_err()), "{outcomes:?}");
}

#[test]
fn small_bodies_share_a_buffer_of_4_kib_and_large_ones_have_their_own() {
    let mut buffer = BytesMut::new();
    let mut copied = Vec::new();
    for number in 0..1000_u32 {
        let body = number.to_be_bytes().repeat(1 + number as usize % 128);
        copied.push((copy_body(&body, &mut buffer).expect("memory"), body));
        assert!(buffer.capacity() <= 4096, "{}", buffer.capacity());
    }
    for (copy, body) in &copied {
        assert_eq!(copy, body);
    }
    let shared = copied.windows(2).filter(|pair| pair[0].0.as_ptr_range().end == pair[1].0.as_ptr()).count();
    assert!(shared > 900, "{shared} of 1,000 bodies follow another one");
    drop(copied);
    let end = buffer.as_ptr().addr() + buffer.capacity();
    for _ in 0..100 {
        let body = copy_body(&[7; 512], &mut buffer).expect("memory");
        assert!((end - 4096..end).contains(&body.as_ptr().addr()), "a buffer without replies is used again");
    }
    let large = copy_body(&[7; 513], &mut buffer).expect("memory");
    let own = Vec::from(large);
    assert_eq!((own.len(), own.capacity()), (513, 513));
}
