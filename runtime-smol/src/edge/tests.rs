use super::readiness::{News, Readiness};
use super::timers::Timers;
use super::{Edge, Socket, spawn};
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::panic::AssertUnwindSafe;
use core::pin::pin;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use poolhouse_client::Platform;
use poolhouse_client::poolhouse_core::Instant;
use poolhouse_tests::patience::{eventually, run};
use smol::future::{FutureExt as _, poll_once};
use smol::io::{AsyncReadExt as _, AsyncWriteExt as _};
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// A waker that counts.
#[derive(Default)]
struct Counter(AtomicUsize);

impl Counter {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

struct Panicking;

impl Wake for Panicking {
    fn wake(self: Arc<Self>) {
        // Unwinds without a message from the panic hook.
        std::panic::resume_unwind(Box::new("a waker that panics"));
    }
}

#[test]
fn news_is_taken_once_and_an_end_outranks_readiness() {
    let (readiness, waker) = (Readiness::new(), Waker::noop());
    let poll = || readiness.poll_take(&Context::from_waker(waker));
    assert_eq!(poll(), Poll::Pending);
    for (news, expected) in [
        (&[News::Ready][..], News::Ready),
        (&[News::Ready, News::Ended], News::Ended),
        (&[News::Ended, News::Ready], News::Ended),
    ] {
        news.iter().for_each(|news| readiness.add(*news));
        assert_eq!(poll(), Poll::Ready(expected));
        assert_eq!(poll(), Poll::Pending);
    }
}

#[test]
fn news_wakes_the_task_that_waits_and_drops_its_waker() {
    let (readiness, counter) = (Readiness::new(), Arc::new(Counter::default()));
    let waker = Waker::from(Arc::clone(&counter));
    for _ in 0..2 {
        assert_eq!(readiness.poll_take(&Context::from_waker(&waker)), Poll::Pending);
    }
    assert_eq!(counter.count(), 0, "the same task is not woken by its own poll");
    readiness.add(News::Ready);
    readiness.add(News::Ready);
    assert_eq!(counter.count(), 1);
    assert_eq!(Arc::strong_count(&counter), 2);
}

#[test]
fn only_the_task_that_has_polled_last_is_woken() {
    let (readiness, first, second) = (Readiness::new(), Arc::new(Counter::default()), Arc::new(Counter::default()));
    for counter in [&first, &second] {
        let waker = Waker::from(Arc::clone(counter));
        assert_eq!(readiness.poll_take(&Context::from_waker(&waker)), Poll::Pending);
    }
    assert_eq!(Arc::strong_count(&first), 1);
    readiness.add(News::Ready);
    assert_eq!((first.count(), second.count()), (0, 1));
}

#[test]
fn panic_of_a_waker_is_caught() {
    let readiness = Readiness::new();
    let waker = Waker::from(Arc::new(Panicking));
    assert_eq!(readiness.poll_take(&Context::from_waker(&waker)), Poll::Pending);
    readiness.add(News::Ready);
    assert_eq!(readiness.poll_take(&Context::from_waker(&waker)), Poll::Ready(News::Ready));
}

fn at(seconds: u64) -> Instant {
    Instant::ORIGIN.saturating_add(Duration::from_secs(seconds))
}

/// Sets a timer. Returns whether the reactor must be woken.
fn set(timers: &mut Timers, seconds: u64) -> bool {
    let key = timers.key(at(seconds));
    timers.set(key, Waker::noop().clone()).1
}

#[test]
fn reactor_is_woken_only_by_a_deadline_that_is_earlier_than_all_others() {
    let (mut timers, mut due) = (Timers::new(), Vec::new());
    assert_eq!(timers.advance(at(0), &mut due), None);
    assert!(set(&mut timers, 10));
    assert!(!set(&mut timers, 10));
    assert!(!set(&mut timers, 11));
    assert!(set(&mut timers, 9));
    assert_eq!(timers.advance(at(1), &mut due), Some(Duration::from_secs(8)));
    assert!(due.is_empty());
}

#[test]
fn timer_that_is_dropped_and_set_anew_does_not_wake_the_reactor() {
    let (mut timers, mut due) = (Timers::new(), Vec::new());
    assert!(set(&mut timers, 100));
    let key = timers.key(at(10));
    assert!(timers.set(key, Waker::noop().clone()).1);
    assert!(timers.remove(key).is_some());
    assert_eq!(timers.advance(at(1), &mut due), Some(Duration::from_secs(9)));
    assert!(!set(&mut timers, 11));
    // Without a timer that is due, the reactor wakes up once, and then waits for the next.
    assert_eq!(timers.advance(at(10), &mut due), Some(Duration::from_secs(1)));
    assert!(due.is_empty());
}

#[test]
fn timers_are_due_at_their_time_and_only_once() {
    let (mut timers, mut due) = (Timers::new(), Vec::new());
    for seconds in [3, 1, 2, 1] {
        set(&mut timers, seconds);
    }
    assert_eq!(timers.advance(at(2), &mut due), Some(Duration::from_secs(1)));
    assert_eq!(due.len(), 3);
    assert_eq!(timers.advance(at(3), &mut due), None);
    assert_eq!(due.len(), 4);
    assert_eq!(timers.advance(at(4), &mut due), None);
    assert_eq!(due.len(), 4);
}

#[test]
fn timer_of_the_end_of_time_is_never_due() {
    let (mut timers, mut due) = (Timers::new(), Vec::new());
    let key = timers.key(Instant::MAX);
    assert!(!timers.set(key, Waker::noop().clone()).1);
    assert_eq!(timers.advance(at(1), &mut due), None);
    assert!(timers.remove(key).is_some());
}

/// A stream that counts its reads.
struct Counted {
    stream: UnixStream,
    reads: AtomicUsize,
}

impl AsFd for Counted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Read for &Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        (&self.stream).read(buffer)
    }
}

/// A registered stream, and its peer, which blocks.
fn pair() -> (Socket<Counted>, UnixStream) {
    let (stream, peer) = UnixStream::pair().expect("a pair");
    stream.set_nonblocking(true).expect("a mode");
    (Socket::new(Counted { stream, reads: AtomicUsize::new(0) }).expect("registered"), peer)
}

#[test]
fn read_that_does_not_fill_its_buffer_is_the_last_until_there_is_news() {
    run(async {
        let (mut socket, mut peer) = pair();
        let mut buffer = [0; 8];
        assert!(poll_once(socket.read(&mut buffer)).await.is_none());
        for round in 1..3 {
            peer.write_all(b"abc").expect("sent");
            assert_eq!(socket.read(&mut buffer).await.expect("received"), 3);
            assert!(poll_once(socket.read(&mut buffer)).await.is_none());
            assert_eq!(socket.get_ref().reads.load(Ordering::SeqCst), round);
        }
    });
}

#[test]
fn bytes_that_do_not_fit_into_the_buffer_are_read_without_news() {
    run(async {
        let (mut socket, mut peer) = pair();
        peer.write_all(b"abcdefg").expect("sent");
        let mut buffer = [0; 3];
        for expected in [&b"abc"[..], b"def", b"g"] {
            let length = socket.read(&mut buffer).await.expect("received");
            assert_eq!(buffer.get(..length), Some(expected));
        }
    });
}

#[test]
fn end_that_arrives_with_the_last_bytes_is_read() {
    run(async {
        let (mut socket, mut peer) = pair();
        peer.write_all(b"abc").expect("sent");
        drop(peer);
        let mut buffer = [0; 8];
        for expected in [3, 0, 0] {
            assert_eq!(socket.read(&mut buffer).await.expect("received"), expected);
        }
    });
}

#[test]
fn writer_continues_when_the_peer_has_made_room() {
    const LENGTH: usize = 4_000_000;
    run(async {
        let (stream, mut peer) = UnixStream::pair().expect("a pair");
        stream.set_nonblocking(true).expect("a mode");
        let mut socket = Socket::new(stream).expect("registered");
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            peer.read_to_end(&mut bytes).map(|_| bytes.len())
        });
        socket.write_all(&vec![7; LENGTH]).await.expect("sent");
        drop(socket);
        assert_eq!(reader.join().expect("no panic").expect("received"), LENGTH);
    });
}

#[test]
fn socket_that_is_dropped_leaves_the_reactor() {
    run(async {
        let (socket, peer) = pair();
        let source = socket.source();
        drop(socket);
        eventually("the reactor has forgotten the socket", || source.strong_count() == 0).await;
        drop(peer);
    });
}

#[test]
fn tasks_run_on_the_thread_of_the_reactor_and_a_panic_ends_only_its_own() {
    run(async {
        let name = || std::thread::current().name().map(str::to_owned);
        let task = spawn(async move {
            Edge.sleep_until(Edge.now().saturating_add(Duration::from_millis(2))).await;
            name()
        });
        let panicking = spawn(async { std::panic::resume_unwind(Box::new("on purpose")) });
        assert_eq!(task.await.as_deref(), Some("poolhouse-edge"));
        let panicking: smol::Task<()> = panicking;
        assert!(AssertUnwindSafe(panicking).catch_unwind().await.is_err());
        assert_eq!(spawn(async move { name() }).await.as_deref(), Some("poolhouse-edge"));
    });
}

#[test]
fn sleep_that_is_the_earliest_wakes_the_reactor() {
    run(async {
        let begun = Edge.now();
        let mut far = pin!(Edge.sleep_until(begun.saturating_add(Duration::from_secs(3600))));
        assert!(poll_once(far.as_mut()).await.is_none());
        let at = begun.saturating_add(Duration::from_millis(20));
        Edge.sleep_until(at).await;
        assert!(Edge.now() >= at);
        assert!(poll_once(far).await.is_none());
    });
}

#[test]
fn sockets_are_served_while_timers_are_always_due() {
    run(async {
        let is_over = Arc::new(AtomicBool::new(false));
        let busy = [(); 2].map(|()| {
            let is_over = Arc::clone(&is_over);
            spawn(async move {
                while !is_over.load(Ordering::SeqCst) {
                    // The timer of the other task is due meanwhile.
                    let begun = std::time::Instant::now();
                    while begun.elapsed() < Duration::from_millis(2) {
                        core::hint::spin_loop();
                    }
                    Edge.sleep_until(Edge.now().saturating_add(Duration::from_millis(1))).await;
                }
            })
        });
        let (mut socket, mut peer) = pair();
        let mut buffer = [0; 8];
        assert!(poll_once(socket.read(&mut buffer)).await.is_none());
        peer.write_all(b"abc").expect("sent");
        assert_eq!(socket.read(&mut buffer).await.expect("received"), 3);
        is_over.store(true, Ordering::SeqCst);
        for task in busy {
            task.await;
        }
    });
}
