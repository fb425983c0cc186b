//! Sessions that streams use through a mailbox.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::Future;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};

use embassy_futures::select::{Either, select};
use poolhouse_core::{Cause, CertificateFault};
use poolhouse_tests::tls::{CertificateRequest, Holder, Versions};

use super::super::lane;
use super::super::mailbox::Mailbox;
use super::stream::pattern;
use super::support::{Far, Fixture, HOST, Wire, leak, random, run, shows_identity, speaks};
use crate::layout::Zero as _;

/// A running lane and its mailbox.
struct Rig {
    mailbox: &'static Mailbox<Wire>,
    lane: Pin<Box<dyn Future<Output = ()>>>,
}

impl Rig {
    fn new(fixture: &Fixture, piece: usize) -> Self {
        let mailbox: &'static Mailbox<Wire> = leak(Box::new(Mailbox::ZERO));
        let buffer = |bytes: usize| leak(vec![0; bytes].into_boxed_slice());
        mailbox.set_buffers(buffer(piece), buffer(piece));
        let config = fixture.config();
        let (receive, send) = (buffer(16640), buffer(1152));
        let lane = Box::pin(async move {
            lane::run(mailbox, &config, random, receive, send).await;
        });
        Self { mailbox, lane }
    }

    /// Orders a session.
    fn begin(&self, wire: Wire) -> Rc<RefCell<Far>> {
        let far = wire.far();
        self.mailbox.begin(wire, HOST).unwrap();
        far
    }

    /// Runs a future together with the lane.
    fn run<T>(&mut self, future: impl Future<Output = T>) -> T {
        match run(select(&mut self.lane, future)) {
            Either::First(()) => unreachable!(),
            Either::Second(output) => output,
        }
    }

    /// Polls the lane three times.
    fn turn(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            assert!(self.lane.as_mut().poll(&mut context).is_pending());
        }
    }

    fn write_all(&mut self, mut bytes: &[u8]) {
        let mailbox = self.mailbox;
        while !bytes.is_empty() {
            let count = self.run(mailbox.write(bytes)).unwrap();
            bytes = &bytes[count..];
        }
    }

    fn receive(&mut self, count: usize) -> Vec<u8> {
        let mailbox = self.mailbox;
        let mut heard = vec![0; count];
        let mut at = 0;
        while at < count {
            let read = self.run(mailbox.read(&mut heard[at..])).unwrap();
            assert!(read > 0);
            at += read;
        }
        heard
    }
}

fn good(fixture: &Fixture) -> Wire {
    Wire::to(&speaks(fixture.server(), Versions::Tls13)).with(|far| far.patient = true)
}

#[test]
fn sessions_follow_each_other_in_the_same_memory() {
    let fixture = Fixture::new();
    for piece in [1, 100, 512] {
        let mut rig = Rig::new(&fixture, piece);
        let mailbox = rig.mailbox;
        for round in 0..5 {
            let far = rig.begin(good(&fixture));
            rig.run(mailbox.opened()).unwrap();
            let sent = pattern(5000 + round);
            rig.write_all(&sent);
            rig.run(mailbox.flush()).unwrap();
            assert_eq!(far.borrow().heard, sent);
            assert!(rig.receive(sent.len()) == sent);
            mailbox.release();
            rig.turn();
            let far = far.borrow();
            assert!(far.said_goodbye, "the server is told");
            assert_eq!(far.dropped, 1, "the socket has gone home");
        }
    }
}

#[test]
fn nothing_is_sent_before_it_is_flushed_or_waited_for() {
    let fixture = Fixture::new();
    let mut rig = Rig::new(&fixture, 512);
    let mailbox = rig.mailbox;
    let far = rig.begin(good(&fixture));
    rig.run(mailbox.opened()).unwrap();
    rig.write_all(b"abc");
    rig.write_all(b"def");
    rig.turn();
    assert_eq!(far.borrow().heard, b"");
    rig.run(mailbox.flush()).unwrap();
    assert_eq!(far.borrow().heard, b"abcdef");
    assert_eq!(rig.receive(6), b"abcdef");
    // A read also sends the written bytes, because the peer may be waiting for them.
    rig.write_all(b"ghi");
    assert_eq!(rig.receive(3), b"ghi");
    assert_eq!(rig.run(mailbox.read(&mut [])), Ok(0));
    assert_eq!(rig.run(mailbox.write(&[])), Ok(0));
}

#[test]
fn failed_handshake_has_a_reason_and_the_next_one_succeeds() {
    let fixture = Fixture::new();
    let mut rig = Rig::new(&fixture, 512);
    let mailbox = rig.mailbox;
    let unknown = Cause::Certificate(CertificateFault::UnknownIssuer);
    for _ in 0..3 {
        let stranger = shows_identity(&Holder::root("stranger").issue(&CertificateRequest::server(&[HOST])).identity());
        let far = rig.begin(Wire::to(&stranger));
        assert_eq!(rig.run(mailbox.opened()), Err(unknown));
        // Repeated reads return the same error.
        assert_eq!(rig.run(mailbox.read(&mut [0; 8])), Err(unknown));
        assert_eq!(rig.run(mailbox.write(b"x")), Err(unknown));
        assert_eq!(rig.run(mailbox.flush()), Err(unknown));
        assert_eq!(far.borrow().dropped, 0, "it is somebody's still");
        mailbox.release();
        rig.turn();
        assert_eq!(far.borrow().dropped, 1);
        rig.begin(good(&fixture));
        rig.run(mailbox.opened()).unwrap();
        rig.write_all(b"hello");
        assert_eq!(rig.receive(5), b"hello");
        mailbox.release();
        rig.turn();
    }
}

#[test]
fn stream_dropped_at_any_time_returns_the_socket() {
    let fixture = Fixture::new();
    let mut rig = Rig::new(&fixture, 64);
    let mailbox = rig.mailbox;
    // Before the first poll of the lane, during the handshake, while reading, and while writing.
    for stage in 0..4 {
        let wire = good(&fixture);
        if stage == 1 {
            wire.0.borrow_mut().cut = Some(200);
        }
        let far = rig.begin(wire);
        let mut context = Context::from_waker(Waker::noop());
        if stage == 1 {
            rig.turn();
        }
        if stage >= 2 {
            rig.run(mailbox.opened()).unwrap();
        }
        if stage == 2 {
            assert!(pin!(mailbox.read(&mut [0; 8])).poll(&mut context).is_pending());
            rig.turn();
        }
        if stage == 3 {
            far.borrow_mut().stuck = true;
            rig.write_all(b"hello");
            let mut flushing = pin!(mailbox.flush());
            assert!(flushing.as_mut().poll(&mut context).is_pending());
            rig.turn();
            assert!(flushing.poll(&mut context).is_pending());
        }
        assert_eq!(far.borrow().dropped, 0);
        mailbox.release();
        rig.turn();
        let far = far.borrow();
        assert_eq!(far.dropped, 1, "{stage}");
        // close_notify is also sent if the session waits for bytes, but not in the middle of a
        // write.
        assert_eq!(far.said_goodbye, stage == 2, "{stage}");
        assert_eq!(far.failure, None, "{stage}");
    }
}

#[test]
fn dropped_read_loses_no_byte_and_blocks_writes_until_the_answer() {
    let fixture = Fixture::new();
    let mut rig = Rig::new(&fixture, 64);
    let mailbox = rig.mailbox;
    let far = rig.begin(good(&fixture));
    rig.run(mailbox.opened()).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    assert!(pin!(mailbox.read(&mut [0; 8])).poll(&mut context).is_pending());
    rig.turn();
    assert_eq!(rig.run(mailbox.write(b"x")), Err(Cause::Cancelled));
    assert_eq!(rig.run(mailbox.flush()), Err(Cause::Cancelled));
    far.borrow_mut().say(b"the answer");
    rig.turn();
    assert_eq!(rig.receive(10), b"the answer");
    rig.write_all(b"next");
    assert_eq!(rig.receive(4), b"next");
}

#[test]
fn end_is_reported_after_all_received_bytes() {
    let fixture = Fixture::new();
    for announced in [false, true] {
        let mut rig = Rig::new(&fixture, 4);
        let mailbox = rig.mailbox;
        let far = rig.begin(good(&fixture));
        rig.run(mailbox.opened()).unwrap();
        {
            let mut far = far.borrow_mut();
            far.say(b"last words");
            if announced {
                far.end();
            }
            far.patient = false;
        }
        assert_eq!(rig.receive(10), b"last words");
        for _ in 0..2 {
            let expected = if announced { Ok(0) } else { Err(Cause::Network) };
            assert_eq!(rig.run(mailbox.read(&mut [0; 8])), expected);
        }
        assert_eq!(rig.run(mailbox.write(b"x")), Err(Cause::Network));
    }
}

/// A side is woken only when the other one has work for it.
#[test]
fn each_side_is_woken_only_when_it_can_continue() {
    use alloc::sync::Arc;
    use alloc::task::Wake;
    use core::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct Count(AtomicU32);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let count = || Arc::new(Count::default());
    let taken = |count: &Arc<Count>| count.0.swap(0, Ordering::Relaxed);

    let fixture = Fixture::new();
    let mut rig = Rig::new(&fixture, 64);
    let mailbox = rig.mailbox;
    let (lane, holder) = (count(), count());
    let (lane_waker, holder_waker) = (Waker::from(Arc::clone(&lane)), Waker::from(Arc::clone(&holder)));
    let mut of_lane = Context::from_waker(&lane_waker);
    let mut of_holder = Context::from_waker(&holder_waker);
    let mut turn = |rig: &mut Rig| assert!(rig.lane.as_mut().poll(&mut of_lane).is_pending());
    turn(&mut rig);
    let far = rig.begin(good(&fixture));
    assert_eq!(taken(&lane), 1);
    {
        let mut opened = pin!(mailbox.opened());
        assert!(opened.as_mut().poll(&mut of_holder).is_pending());
        turn(&mut rig);
        assert_eq!((taken(&lane), taken(&holder)), (0, 1));
        assert_eq!(opened.poll(&mut of_holder), Poll::Ready(Ok(())));
    }
    {
        let mut buffer = [0; 8];
        let mut read = pin!(mailbox.read(&mut buffer));
        assert!(read.as_mut().poll(&mut of_holder).is_pending());
        assert_eq!(taken(&lane), 1);
        turn(&mut rig);
        assert_eq!((taken(&lane), taken(&holder)), (0, 0));
        far.borrow_mut().say(b"hello");
        turn(&mut rig);
        assert_eq!((taken(&lane), taken(&holder)), (0, 1));
        assert_eq!(read.poll(&mut of_holder), Poll::Ready(Ok(5)));
    }
    assert_eq!(pin!(mailbox.write(b"abc")).poll(&mut of_holder), Poll::Ready(Ok(3)));
    assert_eq!(taken(&lane), 0);
    {
        let mut flush = pin!(mailbox.flush());
        assert!(flush.as_mut().poll(&mut of_holder).is_pending());
        assert_eq!(taken(&lane), 1);
        turn(&mut rig);
        assert!(taken(&holder) >= 1);
        assert_eq!(flush.poll(&mut of_holder), Poll::Ready(Ok(())));
    }
    mailbox.release();
    assert_eq!(taken(&lane), 1);
}

/// Each socket has a lane. A session that is moved into another future takes twice its memory.
#[test]
fn lane_takes_little_memory_besides_its_records() {
    let fixture = Fixture::new();
    let config = fixture.config();
    let mailbox: Mailbox<Wire> = Mailbox::ZERO;
    let (mut receive, mut send) = ([0; 768], [0; 640]);
    let lane = lane::run(&mailbox, &config, random, &mut receive, &mut send);
    // An RSA key of 4,096 bits is stored during the handshake.
    let bytes_max = if cfg!(feature = "rsa") { 3584 + 544 } else { 3584 };
    assert!(size_of_val(&lane) <= bytes_max, "{} bytes", size_of_val(&lane));
    assert!(size_of::<Mailbox<Wire>>() <= 256, "{} bytes", size_of::<Mailbox<Wire>>());
}
