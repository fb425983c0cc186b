use super::*;
use poolhouse_wire::ObjectId;

const TIMEOUT: Option<Duration> = Some(Duration::from_secs(30 * 60));

fn at(minutes: u64) -> Instant {
    Instant::from_nanos(minutes * 60_000_000_000)
}

fn session(now: Instant, first: u8) -> ServerSession {
    ServerSession::new(now, [first; 16])
}

fn first_byte(session: Option<ServerSession>) -> Option<u8> {
    session.map(|session| session.id()[0])
}

#[test]
fn id_is_a_random_uuid() {
    let session = ServerSession::new(at(0), [0xff; 16]);
    assert_eq!((session.id()[6], session.id()[8]), (0x4f, 0xbf));
    let session = ServerSession::new(at(0), [0; 16]);
    assert_eq!((session.id()[6], session.id()[8]), (0x40, 0x80));
}

#[test]
fn last_session_is_used_first() {
    let mut pool = SessionPool::new();
    for first in 1..=3 {
        pool.check_in(at(0), session(at(0), first), TIMEOUT);
    }
    assert_eq!(first_byte(pool.check_out(at(1), TIMEOUT)), Some(3));
    assert_eq!(first_byte(pool.check_out(at(1), TIMEOUT)), Some(2));
    assert_eq!(pool.len(), 1);
}

#[test]
fn session_is_discarded_one_minute_before_its_timeout() {
    let mut pool = SessionPool::new();
    pool.check_in(at(0), session(at(0), 1), TIMEOUT);
    assert_eq!(first_byte(pool.check_out(at(29), TIMEOUT)), None);
    pool.check_in(at(0), session(at(0), 1), TIMEOUT);
    let almost = Instant::from_nanos(at(29).as_nanos() - 1);
    assert_eq!(first_byte(pool.check_out(almost, TIMEOUT)), Some(1));
    pool.check_in(at(29), session(at(0), 1), TIMEOUT);
    assert!(pool.is_empty(), "it expires while it is used");
}

#[test]
fn sessions_behind_a_load_balancer_do_not_expire() {
    let mut pool = SessionPool::new();
    pool.check_in(at(500), session(at(0), 1), None);
    assert_eq!(first_byte(pool.check_out(at(999), None)), Some(1));
}

#[test]
fn timeout_of_each_call_applies() {
    let short = Some(Duration::from_secs(10 * 60));
    let mut pool = SessionPool::new();
    pool.check_in(at(0), session(at(0), 1), TIMEOUT);
    assert_eq!(first_byte(pool.check_out(at(20), short)), None, "a server has ended it");
    pool.check_in(at(20), session(at(10), 2), short);
    assert!(pool.is_empty());
    pool.check_in(at(20), session(at(10), 3), TIMEOUT);
    assert_eq!(first_byte(pool.check_out(at(28), TIMEOUT)), Some(3));
}

#[test]
fn short_timeout_of_a_server_that_has_left_has_no_effect() {
    let mut pool = SessionPool::new();
    for minutes in [0, 1] {
        pool.check_in(at(0), session(at(0), 1), Some(Duration::from_secs(minutes * 60)));
        assert!(pool.is_empty(), "while the server is there");
        pool.check_in(at(0), session(at(0), 1), TIMEOUT);
        assert_eq!(first_byte(pool.check_out(at(1), TIMEOUT)), Some(1));
    }
}

#[test]
fn check_in_discards_the_oldest_sessions_that_expire() {
    let mut pool = SessionPool::new();
    pool.check_in(at(0), session(at(0), 1), TIMEOUT);
    pool.check_in(at(20), session(at(20), 2), TIMEOUT);
    pool.check_in(at(30), session(at(30), 3), TIMEOUT);
    assert_eq!(pool.len(), 2);
}

#[test]
fn timeout_that_is_shorter_than_the_margin_keeps_no_session() {
    let mut pool = SessionPool::new();
    for timeout in [Duration::ZERO, Duration::from_secs(60)] {
        pool.check_in(at(5), session(at(5), 1), Some(timeout));
        assert!(pool.is_empty());
    }
}

#[test]
fn session_without_a_reply_is_dirty() {
    let mut pool = SessionPool::new();
    let mut one = session(at(0), 1);
    one.send(at(1));
    pool.check_in(at(1), one, TIMEOUT);
    assert!(pool.is_empty());
    let mut other = session(at(0), 2);
    other.send(at(1));
    other.handle_reply();
    pool.check_in(at(1), other, TIMEOUT);
    assert_eq!(pool.len(), 1);
    let mut retried = session(at(0), 3);
    retried.send(at(1));
    retried.send(at(1));
    retried.handle_reply();
    pool.check_in(at(1), retried, TIMEOUT);
    assert_eq!(pool.len(), 1, "the first of two commands has no reply");
}

#[test]
fn transaction_numbers_grow_and_are_kept_with_the_session() {
    let mut pool = SessionPool::new();
    let mut one = session(at(0), 1);
    assert_eq!((one.next_txn_number(), one.next_txn_number()), (1, 2));
    pool.check_in(at(0), one, TIMEOUT);
    let mut again = pool.check_out(at(0), TIMEOUT).expect("it was checked in");
    assert_eq!(again.next_txn_number(), 3);
}

#[test]
fn pool_is_bounded_and_ends_in_batches() {
    let mut pool = SessionPool::new();
    for _ in 0..IDLE_SESSIONS_MAX + 5 {
        pool.check_in(at(0), session(at(0), 1), TIMEOUT);
    }
    assert_eq!(pool.len(), IDLE_SESSIONS_MAX);
    let mut batches = 0;
    while !pool.is_empty() {
        assert_eq!(pool.take_ending().len(), END_SESSIONS_MAX);
        batches += 1;
    }
    assert_eq!(batches, IDLE_SESSIONS_MAX / END_SESSIONS_MAX);
    assert!(pool.take_ending().is_empty());
}

fn cluster_time(time_s: u32, increment: u32, filler: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    DocumentWriter::write(&mut bytes, |document| {
        document.value("clusterTime", RawValue::Timestamp(Timestamp { time_s, increment }))?;
        document.binary("signature", 0, &alloc::vec![0; filler]).map(drop)
    })
    .expect("room");
    bytes
}

fn handle(time: &mut ClusterTime, bytes: &[u8]) -> Result<(), WireError> {
    time.handle(RawDocument::new(bytes).expect("opens"))
}

fn sent(time: &ClusterTime) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    DocumentWriter::write(&mut bytes, |command| time.append(command)).expect("room");
    let value = RawDocument::new(&bytes).expect("opens").get("$clusterTime").expect("well-formed")?;
    value.as_document().map(|document| document.as_bytes().to_vec())
}

#[test]
fn latest_cluster_time_is_sent_unchanged() {
    let mut time = ClusterTime::NONE;
    assert!(time.is_none());
    assert_eq!(sent(&time), None);
    let steps = [((5, 1), true), ((4, 9), false), ((5, 1), false), ((5, 2), true), ((6, 0), true)];
    let mut expected = Vec::new();
    for ((time_s, increment), advances) in steps {
        let bytes = cluster_time(time_s, increment, usize::from(advances));
        handle(&mut time, &bytes).expect("a cluster time");
        if advances {
            expected = bytes;
        }
        assert_eq!(sent(&time).as_deref(), Some(expected.as_slice()), "{time_s} {increment}");
    }
}

#[test]
fn hostile_cluster_times_are_errors_and_change_nothing() {
    let mut time = ClusterTime::NONE;
    handle(&mut time, &cluster_time(1, 1, 0)).expect("a cluster time");
    let before = time.clone();
    let mut wrong = Vec::new();
    DocumentWriter::write(&mut wrong, |document| document.object_id("clusterTime", ObjectId([9; 12])).map(drop))
        .expect("room");
    let mut missing = Vec::new();
    DocumentWriter::write(&mut missing, |document| document.int32("other", 1).map(drop)).expect("room");
    let mut malformed = cluster_time(9, 9, 4);
    let at = malformed.len() - 10;
    malformed[at] = 0xff;
    for bytes in [wrong, missing, malformed, cluster_time(9, 9, CLUSTER_TIME_BYTES_MAX)] {
        assert!(handle(&mut time, &bytes).is_err());
        assert_eq!(time, before);
    }
}
