//! A socket of smol's edge-triggered platform: its readiness, with the lock of the model. The wake-up of
//! the reactor's thread, for tasks and for timers, has no model.

#[path = "../../../runtime-smol/src/edge/readiness.rs"]
mod readiness;

use super::engine;
use super::model::{Boxed, Depth, Turnstile as Mutex, explore, join, lock, poll, task};
use alloc::sync::Arc;
use core::future::poll_fn;
use core::task::Poll;
use readiness::{News, Readiness};

/// A direction of a socket, which the system fills.
struct Socket {
    inner: engine::Mutex<Inner>,
    readiness: Readiness,
}

#[derive(Default)]
struct Inner {
    /// The bytes or datagrams to receive.
    count: usize,
    is_ended: bool,
}

impl Socket {
    fn new() -> Arc<Self> {
        Arc::new(Self { inner: engine::Mutex::new(Inner::default()), readiness: Readiness::new() })
    }

    /// The system: something arrives, and is reported.
    fn deliver(&self) {
        lock(&self.inner).count += 1;
        self.readiness.add(News::Ready);
    }

    /// The system: the peer has closed the connection, which is reported.
    fn end(&self) {
        lock(&self.inner).is_ended = true;
        self.readiness.add(News::Ended);
    }

    /// Receives at most `room`, and zero at the end; `None` if it would block.
    fn receive(&self, room: usize) -> Option<usize> {
        let mut inner = lock(&self.inner);
        let received = room.min(inner.count);
        inner.count -= received;
        (received > 0 || inner.is_ended).then_some(received)
    }
}

/// The reads of a stream, none of which fills its buffer.
#[test]
fn bytes_and_end_that_arrive_during_a_read_are_reported_to_the_next() {
    let outcomes = explore("a reader of an edge-triggered stream", Depth::All, || {
        let socket = Socket::new();
        let stream = Arc::clone(&socket);
        let reader = task(async move {
            let (mut received, mut reads) = (0, 0);
            loop {
                let news = poll_fn(|context| stream.readiness.poll_take(context)).await;
                match stream.receive(8) {
                    Some(0) => break,
                    Some(length) => {
                        (received, reads) = (received + length, reads + 1);
                        if news == News::Ended {
                            stream.readiness.add(news);
                        }
                    }
                    None => {}
                }
            }
            assert_eq!(received, 2);
            reads
        });
        (0..2).for_each(|_| socket.deliver());
        socket.end();
        match join(reader) {
            1 => "one read",
            _ => "two reads",
        }
    });
    assert_eq!(outcomes, ["one read", "two reads"]);
}

/// The waker of its first executor has no effect any more.
#[test]
fn bytes_are_read_by_a_task_that_has_moved() {
    let outcomes = explore("a reader of an edge-triggered stream moves to another executor", Depth::All, || {
        let socket = Socket::new();
        let stream = Arc::clone(&socket);
        let system = engine::spawn(move || socket.deliver());
        let mut reader: Boxed<_> = Box::pin(async move {
            loop {
                poll_fn(|context| stream.readiness.poll_take(context)).await;
                if let Some(length) = stream.receive(8) {
                    break length;
                }
            }
        });
        let (length, outcome) = match poll(&mut reader) {
            Poll::Ready(length) => (length, "read at once"),
            Poll::Pending => (join(task(reader)), "read by another executor"),
        };
        assert_eq!(length, 1);
        join(system);
        outcome
    });
    assert_eq!(outcomes, ["read at once", "read by another executor"]);
}
