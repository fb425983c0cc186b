//! Connected sockets: byte by byte, half open, full, reset, and read and written at once.

use super::alarm::Alarm;
use super::dialing::{assert_fails, dial};
use super::peer::{Line, Peer, pattern};
use super::{Hosted, Subject, case_of_threads, run_case};
use crate::suite::Suite;
use alloc::sync::Arc;
use core::future::poll_fn;
use core::pin::pin;
use core::task::{Context, Poll};
use core::time::Duration;
use embedded_io_async::{Read, Write};
use futures_lite::FutureExt;
use futures_lite::future::zip;
use poolhouse_client::Platform;
use poolhouse_driver::BaseRuntime as _;
use poolhouse_driver::Runtime;
use std::thread;

/// How long a write must stay pending to prove that the buffers on its way are full.
const FULL: Duration = Duration::from_millis(50);

pub(super) fn add<S: Subject>(suite: Suite) -> Suite {
    suite
        .case("streams::byte_by_byte", || run_case::<S>(byte_by_byte))
        .case("streams::end_from_one_side_leaves_the_other_open", || {
            run_case::<S>(end_from_one_side_leaves_the_other_open)
        })
        .case("streams::write_waits_for_a_peer_that_reads_late", || {
            run_case::<S>(write_waits_for_a_peer_that_reads_late)
        })
        .case("streams::reset_ends_what_waits", || run_case::<S>(reset_ends_what_waits))
        .case("streams::both_directions_continue_when_both_are_full", || {
            run_case::<S>(both_directions_continue_when_both_are_full)
        })
        .case("streams::dropped_reads_lose_no_bytes", || run_case::<S>(dropped_reads_lose_no_bytes))
}

/// Adds the cases that need threads.
pub(super) fn add_hosted<P: Platform + Default>(suite: Suite) -> Suite {
    case_of_threads(suite, "streams::can_move_to_other_threads", || run_case::<Hosted<P>>(can_move_to_other_threads))
}

/// Creates a connection, and returns both ends.
async fn connection<S: Subject>(subject: &S) -> (Checked<S>, Line) {
    let peer = Peer::listen();
    subject.open_way_to(peer.address());
    let (stream, line) = zip(dial(subject.runtime(), peer.address()), peer.accept()).await;
    (Checked { stream: stream.expect("it listens"), written: 0, read: 0 }, line)
}

/// The runtime's end of a connection. Both directions carry the pattern.
struct Checked<S: Subject> {
    stream: <S::Runtime as Runtime>::Stream,
    written: usize,
    read: usize,
}

impl<S: Subject> Checked<S> {
    /// Number of bytes of one write or read.
    const AT_ONCE: usize = if S::LIMITS.message_bytes < 1 << 16 { S::LIMITS.message_bytes } else { 1 << 16 };
    /// More bytes than all buffers hold.
    const MANY: usize = 16 * Self::AT_ONCE;

    /// Starts a write of the next bytes. A pending write is dropped, and must have written nothing.
    fn poll_write(&mut self, context: &mut Context<'_>, count: usize) -> Poll<usize> {
        let bytes = pattern(self.written..self.written + count.min(Self::AT_ONCE));
        let polled = pin!(self.stream.write(&bytes)).poll(context);
        polled.map(|written| {
            let written = written.expect("a connection");
            assert!((1..=bytes.len()).contains(&written), "{written} of {} bytes are written", bytes.len());
            self.written += written;
            written
        })
    }

    /// Starts a read. A pending read is dropped, and must lose no bytes. 0 is the end.
    fn poll_read(&mut self, context: &mut Context<'_>, room: usize) -> Poll<usize> {
        let mut bytes = vec![0; room.min(Self::AT_ONCE)];
        let polled = pin!(self.stream.read(&mut bytes)).poll(context);
        polled.map(|read| {
            let read = read.expect("a connection");
            assert_eq!(bytes.get(..read), Some(pattern(self.read..self.read + read).as_slice()));
            self.read += read;
            read
        })
    }

    async fn write_all(&mut self, count: usize) {
        let end = self.written + count;
        while self.written < end {
            poll_fn(|context| self.poll_write(context, end - self.written)).await;
        }
    }

    async fn read_exact(&mut self, count: usize) {
        let end = self.read + count;
        while self.read < end {
            assert_ne!(poll_fn(|context| self.poll_read(context, end - self.read)).await, 0, "the end");
        }
    }

    /// Writes until a write stays pending for [`FULL`].
    async fn fill(&mut self, runtime: &S::Runtime) {
        loop {
            let full = runtime.now().saturating_add(FULL);
            let written = async {
                poll_fn(|context| self.poll_write(context, Self::AT_ONCE)).await;
                true
            };
            let given_up = async {
                runtime.sleep_until(full).await;
                false
            };
            if !written.or(given_up).await {
                return;
            }
        }
    }

    /// Alternates writes and reads in one task until these numbers of bytes were read and written.
    /// Each write or read that is pending is dropped.
    ///
    /// For each byte that is read, eight more may be written: a peer that writes slowly and reads fast
    /// would receive gigabytes otherwise.
    async fn pump(&mut self, until_read: usize, until_written: usize, reads_first: bool) {
        let room = until_written.max(self.written + Self::AT_ONCE);
        let begin = self.read;
        poll_fn(|context| {
            loop {
                if self.read >= until_read && self.written >= until_written {
                    return Poll::Ready(());
                }
                let mut is_moving = false;
                for reads in [reads_first, !reads_first] {
                    is_moving |= if reads {
                        self.poll_read(context, Self::AT_ONCE).is_ready()
                    } else {
                        self.written < room + 8 * (self.read - begin)
                            && self.poll_write(context, Self::AT_ONCE).is_ready()
                    };
                }
                if !is_moving {
                    return Poll::Pending;
                }
            }
        })
        .await;
    }
}

async fn byte_by_byte<S: Subject>(subject: &S) {
    let (mut end, line) = connection(subject).await;
    let count = 100;
    for i in 0..count {
        end.write_all(1).await;
        assert_eq!(line.read(1).await, pattern(i..i + 1));
        line.write(pattern(i..i + 1), 1).await;
        // The buffer is larger than the available bytes.
        assert_eq!(poll_fn(|context| end.poll_read(context, 16)).await, 1);
    }
    let many = 3_000;
    let (sent, received) = (line.write(pattern(count..count + many), 1), line.read(many));
    for _ in 0..many {
        end.write_all(1).await;
        end.read_exact(1).await;
    }
    sent.await;
    assert_eq!(received.await, pattern(count..count + many));
}

async fn end_from_one_side_leaves_the_other_open<S: Subject>(subject: &S) {
    let (mut end, line) = connection(subject).await;
    line.write(pattern(0..10), 10).await;
    line.end();
    end.read_exact(10).await;
    for _ in 0..3 {
        assert_eq!(poll_fn(|context| end.poll_read(context, 16)).await, 0, "further reads return the end");
    }
    let all = line.read_to_end();
    end.write_all(10 * Checked::<S>::AT_ONCE).await;
    let written = end.written;
    drop(end);
    // The peer has sent its end and no bytes. Unread bytes would turn the close into a reset.
    assert_eq!(all.await, (pattern(0..written), true));
}

async fn write_waits_for_a_peer_that_reads_late<S: Subject>(subject: &S) {
    let (mut end, line) = connection(subject).await;
    end.fill(subject.runtime()).await;
    let full = end.written;
    // A write that is not dropped, and is pending before the peer reads.
    let alarm = Arc::new(Alarm::default());
    let bytes = pattern(full..full + Checked::<S>::AT_ONCE);
    let written = {
        let mut write = pin!(end.stream.write(&bytes));
        let polled = alarm.poll(write.as_mut());
        let reading = line.read(full);
        let written = match polled {
            Poll::Ready(written) => written,
            Poll::Pending => loop {
                alarm.rung().await;
                if let Poll::Ready(written) = alarm.poll(write.as_mut()) {
                    break written;
                }
            },
        };
        assert_eq!(reading.await, pattern(0..full));
        written.expect("a connection")
    };
    assert!((1..=bytes.len()).contains(&written));
    end.written += written;
    let rest = line.read_to_end();
    end.write_all(Checked::<S>::MANY).await;
    let written = end.written;
    drop(end);
    assert_eq!(rest.await, (pattern(full..written), true));
}

/// The reset occurs during a read or write, before it is awaited or while it is.
async fn reset_ends_what_waits<S: Subject>(subject: &S) {
    for round in 0..12 {
        let (mut end, line) = connection(subject).await;
        line.write(pattern(0..10), 10).await;
        let alarm = Arc::new(Alarm::default());
        if round % 2 == 0 {
            end.read_exact(10).await;
            let mut byte = [0];
            let mut read = pin!(end.stream.read(&mut byte));
            assert!(alarm.poll(read.as_mut()).is_pending());
            line.reset();
            assert!(matches!(read.await, Ok(0) | Err(_)), "the peer sent no byte");
        } else {
            line.reset();
            let mut bytes = [0; 16];
            let mut begun = 0;
            // Bytes sent before the reset may be lost; bytes that arrive must be correct.
            while let Ok(count @ 1..) = end.stream.read(&mut bytes).await {
                assert_eq!(bytes.get(..count), Some(pattern(begun..begun + count).as_slice()));
                begun += count;
            }
            assert!(begun <= 10);
        }
        assert_fails::<S>(&mut end.stream).await;
        assert!(matches!(end.stream.read(&mut [0]).await, Ok(0) | Err(_)), "further reads return the end");
    }
    // The peer reads nothing, so the pending operation is a write.
    let (mut end, line) = connection(subject).await;
    end.fill(subject.runtime()).await;
    line.reset();
    assert_fails::<S>(&mut end.stream).await;
}

/// Registering one interest must not cancel the other one, neither when the other completes nor
/// while it waits.
async fn both_directions_continue_when_both_are_full<S: Subject>(subject: &S) {
    let (runtime, many) = (subject.runtime(), Checked::<S>::MANY);
    for reads_first in [true, false] {
        let (mut end, line) = connection(subject).await;
        let sent = line.write(pattern(0..many), many);
        end.fill(runtime).await;
        let full = end.written;
        // The peer does not read: only reads make progress, each beside a pending write.
        end.pump(many, 0, reads_first).await;
        sent.await;
        // The peer does not write: only writes make progress, each beside a pending read.
        let received = line.read(full + many);
        end.pump(0, full + many, reads_first).await;
        assert_eq!(received.await, pattern(0..full + many));
        // Both directions make progress.
        let (begin, more) = (full + many, 4 * many);
        let (sent, received) = (line.write(pattern(many..many + more), 1_000), line.read_to_end());
        end.pump(many + more, begin + more, reads_first).await;
        sent.await;
        let written = end.written;
        drop(end);
        assert_eq!(received.await, (pattern(begin..written), true));
    }
}

/// Reads are dropped before and after they were woken.
async fn dropped_reads_lose_no_bytes<S: Subject>(subject: &S) {
    let (mut end, line) = connection(subject).await;
    let count = 20_000;
    let sent = line.write(pattern(0..count), 7);
    let alarm = Arc::new(Alarm::default());
    while end.read < count {
        let room = 1 + end.read % 23;
        let polled = alarm.poll(pin!(poll_fn(|context| end.poll_read(context, room))));
        if polled.is_pending() {
            // The bytes have arrived, and the read that was woken for them has been dropped.
            alarm.rung().await;
        }
    }
    sent.await;
    line.end();
    assert_eq!(poll_fn(|context| end.poll_read(context, 16)).await, 0);
}

/// Connected on one thread, then read on another and dropped there.
async fn can_move_to_other_threads<P: Platform + Default>(subject: &Hosted<P>) {
    let (mut end, line) = connection(subject).await;
    let (alarm, elsewhere) = (Arc::new(Alarm::default()), Arc::new(Alarm::default()));
    assert!(alarm.poll(pin!(poll_fn(|context| end.poll_read(context, 16)))).is_pending());
    let sent = line.write(pattern(0..1), 1);
    let Checked { mut stream, .. } = end;
    let byte = thread::spawn(move || {
        let mut byte = [0];
        let count = {
            let mut read = pin!(stream.read(&mut byte));
            loop {
                match elsewhere.poll(read.as_mut()) {
                    Poll::Ready(count) => break count.expect("a connection"),
                    Poll::Pending => elsewhere.wait(),
                }
            }
        };
        assert_eq!(count, 1);
        byte
    });
    sent.await;
    assert_eq!(byte.join().expect("it ends"), *pattern(0..1));
    assert_eq!(line.read_to_end().await, (Vec::new(), true));
}
