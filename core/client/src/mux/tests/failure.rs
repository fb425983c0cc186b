//! The reasons of failed connections.

use super::*;

/// Cassandra 5.0 sends such an error after requests have waited in its queue for too long. No request takes it for
/// its own.
#[test]
fn an_error_on_stream_0_closes_the_connection_and_is_named() {
    let mut rig = Rig::new(MuxOptions::DEFAULT);
    let conn = rig.establish();
    let slots = [rig.begin("a", None).expect("a slot"), rig.begin("b", None).expect("a slot")];
    let streams: Vec<i16> = rig.take(conn).iter().map(|(stream, _)| *stream).collect();
    assert_eq!(streams, [1, 2]);
    let body = b"\x00\x00\x10\x01\x00\x06queued".to_vec();
    let header = poolhouse_cql::Header {
        version: Version::V4,
        direction: Direction::Response,
        flags: Flags::NONE,
        stream: 0,
        opcode: Opcode::Error,
        length_bytes: 12,
    };
    let mut batch = vec![Reply { host: rig.host.id, header, body: body.into() }];
    rig.step(|change| change.dispatch(conn, &mut batch));
    for (slot, text) in slots.into_iter().zip(["a", "b"]) {
        let lost = rig.poll(slot, text);
        let Poll::Ready(Err(Failure::Lost { cause: Cause::Protocol, reason, sent: true })) = lost else {
            panic!("lost: {lost:?}")
        };
        let text = "the server sent ERROR on stream 0, on which no request waits for a reply: overloaded (0x1001)";
        assert_eq!(reason.to_string(), text);
    }
}

/// An error of a platform that uses the host when it is dropped. It has the number of drops.
struct UsesHost(Arc<Host>, Arc<AtomicU32>);

impl core::fmt::Debug for UsesHost {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("UsesHost")
    }
}

impl Drop for UsesHost {
    fn drop(&mut self) {
        // Does not return if the lock is held.
        self.0.look(Instant::ORIGIN, |_, _, _| ());
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

impl core::fmt::Display for UsesHost {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("an error of a platform")
    }
}

impl core::error::Error for UsesHost {}

impl Rig {
    /// Lets a connection fail with a [`UsesHost`]. Returns the number of its drops.
    pub(super) fn fail_with_an_error_of_the_platform(&mut self, conn: MuxConnId) -> Arc<AtomicU32> {
        let drops = Arc::new(AtomicU32::new(0));
        let reason = Reason::new(UsesHost(Arc::clone(&self.host), Arc::clone(&drops)));
        let failure = LinkFailure { cause: Cause::Network, reason };
        self.step(|change| change.failed(conn, &failure));
        drop(failure);
        assert_eq!(drops.load(Ordering::Relaxed), 0, "the outcome holds the error");
        drops
    }
}

#[test]
fn cancelled_request_does_not_drop_an_error_of_the_platform_under_the_lock() {
    let mut rig = Rig::new(MuxOptions::DEFAULT);
    let conn = rig.establish();
    let slot = rig.begin("a", None).expect("a slot");
    let drops = rig.fail_with_an_error_of_the_platform(conn);
    let outcome = rig.step(|change| change.cancel(slot));
    assert!(matches!(outcome, Some(Err(Failure::Lost { sent: false, .. }))), "{outcome:?}");
    drop(outcome);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    assert!(rig.is_idle());
}
