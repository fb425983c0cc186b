//! A stream delivers all bytes in order, for all sizes of reads and writes and after dropped
//! futures.

use alloc::sync::Arc;
use alloc::task::Wake;
use core::pin::pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use std::io;

use embedded_io_async::{Read, Write};

use super::support::{Far, Fixture, HOST, Wire, connect, receive, run, run_for, send};
use crate::tls::Versions;
use poolhouse_client::tls::TlsStream;

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| u8::try_from((at * 31 + at / 251) % 256).unwrap()).collect()
}

fn open(fixture: &Fixture, versions: Versions, change: impl FnOnce(&mut Far)) -> (Wire, TlsStream<Wire>) {
    let mut server = fixture.server();
    server.versions = versions;
    let wire = Far::server(&server).with(change);
    let stream = connect(&fixture.config(), HOST, &wire).unwrap();
    (wire, stream)
}

#[test]
fn bytes_can_be_sent_and_received_one_at_a_time() {
    let fixture = Fixture::new();
    for versions in [Versions::Tls12, Versions::Tls13] {
        let (_, mut stream) = open(&fixture, versions, |far| {
            far.chunk = 1;
            far.slow = true;
            // Reads begin before all bytes are sent.
            far.patient = true;
        });
        let sent = pattern(3000);
        run(send(&mut stream, &sent)).unwrap();
        assert_eq!(run(receive(&mut stream, sent.len())).unwrap(), sent);
    }
}

#[test]
fn large_messages_pass_whole() {
    let fixture = Fixture::new();
    for versions in [Versions::Tls12, Versions::Tls13] {
        for chunk in [1021, usize::MAX] {
            let (_, mut stream) = open(&fixture, versions, |far| far.chunk = chunk);
            let sent = pattern(3_000_000);
            run(send(&mut stream, &sent)).unwrap();
            assert_eq!(run(receive(&mut stream, sent.len())).unwrap(), sent);
        }
    }
}

#[test]
fn nothing_is_sent_before_it_is_flushed_and_all_of_it_then() {
    let fixture = Fixture::new();
    let (wire, mut stream) = open(&fixture, Versions::All, |_| {});
    assert_eq!(run(stream.write(b"abc")).unwrap(), 3);
    assert_eq!(run(stream.write(b"def")).unwrap(), 3);
    assert_eq!(wire.0.borrow().heard, b"");
    run(stream.flush()).unwrap();
    assert_eq!(wire.0.borrow().heard, b"abcdef");
    // Empty reads and writes complete at once.
    assert_eq!(run(stream.write(b"")).unwrap(), 0);
    assert_eq!(run(stream.read(&mut [])).unwrap(), 0);
}

#[test]
fn written_bytes_are_sent_before_a_read_waits() {
    let fixture = Fixture::new();
    let (_, mut stream) = open(&fixture, Versions::All, |_| {});
    assert_eq!(run(stream.write(b"abc")).unwrap(), 3);
    assert_eq!(run(receive(&mut stream, 3)).unwrap(), b"abc");
}

#[test]
fn bytes_for_a_peer_that_does_not_read_are_bounded() {
    let fixture = Fixture::new();
    let (wire, mut stream) = open(&fixture, Versions::All, |_| {});
    wire.0.borrow_mut().stuck = true;
    let piece = pattern(10_000);
    let mut taken = 0;
    while let Some(count) = run_for(stream.write(&piece), 3) {
        taken += count.unwrap();
        assert!(taken < 200_000, "it accepts {taken} bytes");
    }
    assert!(taken >= 60_000, "it accepts only {taken} bytes");
    // Accepted bytes are sent in order once the socket is writable.
    wire.0.borrow_mut().stuck = false;
    run(stream.flush()).unwrap();
    let heard = wire.0.borrow().heard.clone();
    assert_eq!(heard.len(), taken);
    assert!(heard.chunks(piece.len()).all(|chunk| piece.starts_with(chunk) || chunk.len() < piece.len()));
}

/// The peer may not read until its output was read: a read that waited for a write would deadlock.
#[test]
fn read_continues_while_writes_are_blocked() {
    let fixture = Fixture::new();
    for versions in [Versions::Tls12, Versions::Tls13] {
        let (wire, mut stream) = open(&fixture, versions, |far| far.echo = false);
        wire.0.borrow_mut().stuck = true;
        let piece = pattern(10_000);
        let mut taken = 0;
        while let Some(count) = run_for(stream.write(&piece), 3) {
            taken += count.unwrap();
        }
        let sent = pattern(100_000);
        wire.0.borrow_mut().send_unsolicited(&sent);
        assert!(run(receive(&mut stream, sent.len())).unwrap() == sent);
        // Accepted bytes are sent nevertheless.
        wire.0.borrow_mut().stuck = false;
        run(stream.flush()).unwrap();
        assert_eq!(wire.0.borrow().heard.len(), taken);
    }
}

#[test]
fn dropped_read_loses_no_bytes() {
    let fixture = Fixture::new();
    for versions in [Versions::Tls12, Versions::Tls13] {
        // With a single poll this socket never returns bytes.
        for polls in 2..7 {
            let (wire, mut stream) = open(&fixture, versions, |_| {});
            let sent = pattern(40_000);
            {
                let mut far = wire.0.borrow_mut();
                far.send_unsolicited(&sent);
                far.chunk = 97;
                far.slow = true;
            }
            let mut received = Vec::new();
            let mut buffer = [0; 500];
            while received.len() < sent.len() {
                if let Some(count) = run_for(stream.read(&mut buffer), polls) {
                    received.extend_from_slice(&buffer[..count.unwrap()]);
                }
            }
            assert!(received == sent, "{polls} polls");
        }
    }
}

#[test]
fn dropped_write_sends_its_accepted_bytes_once_and_in_order() {
    let fixture = Fixture::new();
    for versions in [Versions::Tls12, Versions::Tls13] {
        for polls in 1..8 {
            let (wire, mut stream) = open(&fixture, versions, |_| {});
            {
                let mut far = wire.0.borrow_mut();
                far.echo = false;
                far.chunk = 701;
                far.slow = true;
            }
            let sent = pattern(300_000);
            let mut taken = 0;
            let mut round = 0;
            while taken < sent.len() && round < 100_000 {
                round += 1;
                // A completed write has accepted bytes; a dropped one has accepted none.
                if let Some(count) = run_for(stream.write(&sent[taken..]), polls) {
                    taken += count.unwrap();
                }
                if round % 3 == 0 {
                    let _: Option<io::Result<()>> = run_for(stream.flush(), polls);
                }
            }
            run(stream.flush()).unwrap();
            assert_eq!(wire.0.borrow().heard, &sent[..taken], "{polls} polls");
            assert!(polls == 1 || taken == sent.len(), "{polls} polls");
        }
    }
}

#[test]
fn dropped_handshake_leaves_no_state() {
    let fixture = Fixture::new();
    let config = fixture.config();
    for polls in 1..60 {
        let wire = Far::server(&fixture.server()).with(|far| {
            far.chunk = 200;
            far.slow = true;
        });
        drop(run_for(TlsStream::connect(&config, HOST, wire.clone()), polls));
        assert_eq!(alloc::rc::Rc::strong_count(&wire.0), 1);
        assert_eq!(wire.0.borrow().failure, None);
    }
}

#[test]
fn dropping_a_stream_sends_close_notify() {
    let fixture = Fixture::new();
    for versions in [Versions::Tls12, Versions::Tls13] {
        let (wire, mut stream) = open(&fixture, versions, |_| {});
        run(send(&mut stream, b"abc")).unwrap();
        assert!(!wire.0.borrow_mut().side().said_goodbye());
        // Unflushed bytes are sent first.
        run(stream.write(b"def")).unwrap();
        drop(stream);
        assert!(wire.0.borrow_mut().side().said_goodbye());
        assert_eq!(wire.0.borrow().heard, b"abcdef");

        let (wire, stream) = open(&fixture, versions, |_| {});
        wire.0.borrow_mut().stuck = true;
        drop(stream);
        assert!(!wire.0.borrow_mut().side().said_goodbye(), "dropping does not wait");
    }
}

/// Its state may be inconsistent.
#[test]
fn stream_dropped_by_a_panic_sends_no_further_bytes() {
    let fixture = Fixture::new();
    let (wire, stream) = open(&fixture, Versions::All, |_| {});
    let panicked = std::panic::catch_unwind(core::panic::AssertUnwindSafe(move || {
        let _stream = stream;
        panic!("a panic that is part of the test");
    }));
    assert!(panicked.is_err() && !wire.0.borrow_mut().side().said_goodbye());
}

#[test]
fn socket_that_accepts_no_bytes_is_an_error() {
    let fixture = Fixture::new();
    let (wire, mut stream) = open(&fixture, Versions::All, |_| {});
    wire.0.borrow_mut().chunk = 0;
    let error = run(send(&mut stream, b"hello")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WriteZero);
    assert_eq!(poolhouse_client::tls::cause_of(&error), poolhouse_core::Cause::Network);
}

#[test]
fn debug_output_of_a_stream_shows_its_version_and_get_ref_its_socket() {
    let fixture = Fixture::new();
    for (versions, version) in [(Versions::Tls12, "TLSv1_2"), (Versions::Tls13, "TLSv1_3")] {
        let (wire, stream) = open(&fixture, versions, |_| {});
        assert_eq!(format!("{stream:?}"), format!("TlsStream {{ protocol: Some({version:?}), .. }}"));
        assert!(alloc::rc::Rc::ptr_eq(&stream.get_ref().0, &wire.0));
    }
}

#[test]
fn failed_write_reports_a_reason_only_if_the_peer_sent_one() {
    let fixture = Fixture::new();
    // A closing stream does not read an endless peer forever.
    for (patient, chunk) in [(false, usize::MAX), (true, usize::MAX), (false, 97)] {
        let (wire, mut stream) = open(&fixture, Versions::All, |_| {});
        {
            let mut far = wire.0.borrow_mut();
            far.send_unsolicited(&pattern(100_000));
            far.broken = true;
            far.patient = patient;
            far.chunk = chunk;
        }
        let error = run(send(&mut stream, b"hello")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(poolhouse_client::tls::cause_of(&error), poolhouse_core::Cause::Network);
    }
}

#[test]
fn read_waits_while_the_peer_is_silent() {
    let fixture = Fixture::new();
    let (wire, mut stream) = open(&fixture, Versions::All, |_| {});
    wire.0.borrow_mut().patient = true;
    assert!(run_for(stream.read(&mut [0; 8]), 10).is_none());
    wire.0.borrow_mut().send_unsolicited(b"now");
    assert_eq!(run(receive(&mut stream, 3)).unwrap(), b"now");
}

/// Whether the task was woken.
#[derive(Debug, Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A peer that sends endless empty records must not block the task: the read yields, which
/// allows a deadline to be checked.
#[test]
fn records_without_plaintext_do_not_keep_a_read_from_its_deadline() {
    let fixture = Fixture::new();
    let mut server = fixture.server();
    server.versions = Versions::Tls13;
    let mut config = rustls::ServerConfig::clone(&server.config().unwrap());
    config.send_tls13_tickets = 500;
    let wire = Far::of(&Arc::new(config));
    let mut stream = connect(&fixture.config(), HOST, &wire).unwrap();
    let left = {
        let mut far = wire.0.borrow_mut();
        // About the size of a session ticket.
        far.chunk = 128;
        far.send_unsolicited(b"abc");
        far.output.len()
    };
    assert!(left > 40_000, "only {left} bytes are left");
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut buffer = [0; 10];
    let mut polls = 0;
    let count = {
        let mut read = pin!(stream.read(&mut buffer));
        loop {
            let before = wire.0.borrow().given;
            let polled = read.as_mut().poll(&mut Context::from_waker(&waker));
            let taken = wire.0.borrow().given - before;
            assert!(taken < left / 4, "{taken} bytes at once");
            match polled {
                Poll::Ready(count) => break count.unwrap(),
                Poll::Pending => assert!(woken.0.swap(false, Ordering::SeqCst), "the pending task was not woken"),
            }
            polls += 1;
        }
    };
    assert_eq!(&buffer[..count], b"abc");
    assert!(polls > 4, "{polls} polls");
}
