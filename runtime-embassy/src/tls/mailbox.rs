//! The mailbox of one socket: a stream and the lane of its socket exchange orders and bytes in it.
//!
//! Orders go from the stream to the lane, bytes in both directions. Each side wakes the other;
//! neither awaits while it holds the lock. The mailbox does no I/O.

use core::fmt;
use core::future::poll_fn;
use core::task::{Context, Poll, Waker};
use poolhouse_core::{Cause, CertificateFault};
use poolhouse_driver::Locked;

use crate::layout::{ADDRESS_BYTES_MAX, Zero};
use crate::lock::ExecutorLock;

/// The order to start a session.
pub(super) struct Order<S> {
    /// The connected socket.
    pub(super) socket: S,
    /// The name or address of the server.
    pub(super) host: heapless::String<ADDRESS_BYTES_MAX, u8>,
}

/// The mailbox of a stream and a lane.
pub(crate) struct Mailbox<S>(ExecutorLock<State<S>>);

struct State<S> {
    stage: Stage,
    /// The cause of the failure, if the stage is `Stage::Failed`.
    failure: Cause,
    /// A session that has not started.
    order: Option<Order<S>>,
    /// Whether a stream exists.
    has_stream: bool,
    /// Bytes that were decrypted, and bytes that will be encrypted.
    incoming: Pipe,
    outgoing: Pipe,
    /// Whether the stream waits for bytes.
    is_awaiting: bool,
    /// Whether the lane waits for bytes from the peer.
    is_reading: bool,
    /// Whether the outgoing bytes must be flushed.
    is_flushing: bool,
    /// The wakers of both sides, while they wait.
    stream: Option<Waker>,
    lane: Option<Waker>,
}

#[derive(Clone, Copy)]
enum Stage {
    /// The peer has ended the session, or there has been none.
    Over,
    Handshake,
    Open,
    /// The session has failed.
    Failed,
}

/// A buffer of bytes between a stream and its session.
struct Pipe {
    bytes: Option<&'static mut [u8]>,
    begin: usize,
    end: usize,
}

impl Pipe {
    const NONE: Self = Self { bytes: None, begin: 0, end: 0 };

    const fn is_empty(&self) -> bool {
        self.begin == self.end
    }

    fn is_full(&self) -> bool {
        self.bytes.as_ref().is_some_and(|bytes| self.end == bytes.len())
    }

    fn clear(&mut self) {
        self.begin = 0;
        self.end = 0;
    }

    fn put(&mut self, from: &[u8]) -> usize {
        let Some(bytes) = &mut self.bytes else { return 0 };
        let count = copy(bytes.get_mut(self.end..).unwrap_or_default(), from);
        self.end += count;
        count
    }

    fn take(&mut self, to: &mut [u8]) -> usize {
        let Some(bytes) = &self.bytes else { return 0 };
        let count = copy(to, bytes.get(self.begin..self.end).unwrap_or_default());
        self.begin += count;
        if self.is_empty() {
            self.clear();
        }
        count
    }
}

fn copy(to: &mut [u8], from: &[u8]) -> usize {
    let count = to.len().min(from.len());
    if let (Some(to), Some(from)) = (to.get_mut(..count), from.get(..count)) {
        to.copy_from_slice(from);
    }
    count
}

/// Work of a lane for its stream.
pub(super) enum Task {
    Write { flush: bool },
    Read,
}

impl<S: 'static> Zero for Mailbox<S> {
    /// A mailbox without a lane.
    const ZERO: Self = Self(ExecutorLock::holding(State {
        stage: Stage::Over,
        failure: Cause::Network,
        order: None,
        has_stream: false,
        incoming: Pipe::NONE,
        outgoing: Pipe::NONE,
        is_awaiting: false,
        is_reading: false,
        is_flushing: false,
        stream: None,
        lane: None,
    }));
}

impl<S> Mailbox<S> {
    /// Sets the buffers of both directions.
    pub(crate) fn set_buffers(&self, incoming: &'static mut [u8], outgoing: &'static mut [u8]) {
        self.0.with(|state| {
            state.incoming.bytes = Some(incoming);
            state.outgoing.bytes = Some(outgoing);
        });
    }

    /// Starts a session over a connected socket. No other session exists, because the lane has only
    /// one socket.
    ///
    /// Not `async`, so the future of connecting does not store the socket and the name.
    ///
    /// # Errors
    ///
    /// [`Cause::Certificate`] if `host` is a name that no certificate can contain.
    pub(crate) fn begin(&self, socket: S, host: &str) -> Result<(), Cause> {
        let host = host.try_into().map_err(|_| Cause::Certificate(CertificateFault::WrongName))?;
        let lane = self.0.with(|state| {
            state.stage = Stage::Handshake;
            state.order = Some(Order { socket, host });
            state.has_stream = true;
            state.incoming.clear();
            state.outgoing.clear();
            state.is_awaiting = false;
            state.is_flushing = false;
            state.lane.take()
        });
        wake(lane);
        Ok(())
    }

    /// Marks the stream as dropped.
    pub(crate) fn release(&self) {
        let (lane, _stream) = self.0.with(|state| {
            state.has_stream = false;
            (state.lane.take(), state.stream.take())
        });
        wake(lane);
    }

    /// Polls `step` for the stream until it is ready. Wakes the lane if `step` returns that the
    /// lane has work.
    async fn as_stream<T>(&self, mut step: impl FnMut(&mut State<S>) -> (Poll<T>, bool)) -> T {
        poll_fn(|context| {
            let (poll, lane, _before) = self.0.with(|state| {
                let (poll, has_work) = step(state);
                let before = if poll.is_pending() { keep(&mut state.stream, context) } else { None };
                (poll, if has_work { state.lane.take() } else { None }, before)
            });
            wake(lane);
            poll
        })
        .await
    }

    /// Polls `step` for the lane until it returns a value.
    async fn as_lane<T>(&self, mut step: impl FnMut(&mut State<S>) -> Option<T>) -> T {
        poll_fn(|context| {
            let (output, _before) = self.0.with(|state| match step(state) {
                Some(output) => (Poll::Ready(output), None),
                None => (Poll::Pending, keep(&mut state.lane, context)),
            });
            output
        })
        .await
    }

    /// Applies a change and wakes the stream.
    fn update<T>(&self, change: impl FnOnce(&mut State<S>) -> T) -> T {
        let (output, stream) = self.0.with(|state| (change(state), state.stream.take()));
        wake(stream);
        output
    }

    /// Waits until the handshake is done.
    pub(crate) async fn opened(&self) -> Result<(), Cause> {
        self.as_stream(|state| match state.stage {
            Stage::Handshake => (Poll::Pending, false),
            Stage::Open => (Poll::Ready(Ok(())), false),
            Stage::Over => (Poll::Ready(Err(Cause::Network)), false),
            Stage::Failed => (Poll::Ready(Err(state.failure)), false),
        })
        .await
    }

    /// Waits for bytes; returns 0 at the end.
    pub(crate) async fn read(&self, buf: &mut [u8]) -> Result<usize, Cause> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.as_stream(|state| {
            let count = state.incoming.take(buf);
            if count > 0 {
                return (Poll::Ready(Ok(count)), false);
            }
            match state.stage {
                Stage::Over => (Poll::Ready(Ok(0)), false),
                Stage::Failed => (Poll::Ready(Err(state.failure)), false),
                Stage::Handshake | Stage::Open => {
                    state.is_awaiting = true;
                    (Poll::Pending, true)
                }
            }
        })
        .await
    }

    /// Takes bytes, waiting for room. They are sent by a flush, or when the buffer is full.
    pub(crate) async fn write(&self, buf: &[u8]) -> Result<usize, Cause> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.as_stream(|state| {
            if let Some(failed) = state.write_error() {
                return (Poll::Ready(Err(failed)), false);
            }
            let count = state.outgoing.put(buf);
            if count > 0 {
                return (Poll::Ready(Ok(count)), false);
            }
            (Poll::Pending, true)
        })
        .await
    }

    /// Waits until all bytes are sent.
    pub(crate) async fn flush(&self) -> Result<(), Cause> {
        let mut asked = false;
        self.as_stream(|state| {
            if let Some(failed) = state.write_error() {
                return (Poll::Ready(Err(failed)), false);
            }
            if !core::mem::replace(&mut asked, true) {
                state.is_flushing = true;
            }
            if state.is_flushing { (Poll::Pending, true) } else { (Poll::Ready(Ok(())), false) }
        })
        .await
    }

    /// Waits for the order of a session.
    pub(super) async fn ordered(&self) -> Order<S> {
        self.as_lane(|state| state.order.take()).await
    }

    /// Waits until the stream is dropped.
    pub(super) async fn released(&self) {
        self.as_lane(|state| (!state.has_stream).then_some(())).await;
    }

    /// Waits for work.
    pub(super) async fn task(&self) -> Task {
        self.as_lane(|state| {
            let is_due = state.is_flushing || (state.is_awaiting && !state.outgoing.is_empty());
            if is_due || state.outgoing.is_full() {
                return Some(Task::Write { flush: is_due });
            }
            let reads = state.is_awaiting && state.incoming.is_empty();
            state.is_awaiting = false;
            state.is_reading = reads;
            reads.then_some(Task::Read)
        })
        .await
    }

    /// Marks the handshake as done.
    pub(super) fn open(&self) {
        self.update(|state| state.stage = Stage::Open);
    }

    /// Takes bytes of the stream that will be encrypted. Returns their number.
    pub(super) fn take_outgoing(&self, to: &mut [u8]) -> usize {
        self.update(|state| state.outgoing.take(to))
    }

    /// Marks all outgoing bytes as sent.
    pub(super) fn flushed(&self) {
        self.update(|state| state.is_flushing = false);
    }

    /// Stores decrypted bytes for the stream. Returns the number of bytes that had room.
    pub(super) fn put_incoming(&self, bytes: &[u8]) -> usize {
        self.update(|state| {
            state.is_reading = false;
            state.incoming.put(bytes)
        })
    }

    /// Ends the session.
    pub(super) fn end(&self, outcome: Result<(), Cause>) {
        self.update(|state| {
            state.stage = if outcome.is_ok() { Stage::Over } else { Stage::Failed };
            state.failure = outcome.err().unwrap_or(Cause::Network);
            state.is_reading = false;
        });
    }
}

impl<S> State<S> {
    /// The error of a write: a session that waits for bytes of the peer cannot write.
    const fn write_error(&self) -> Option<Cause> {
        match self.stage {
            Stage::Failed => Some(self.failure),
            Stage::Over => Some(Cause::Network),
            Stage::Handshake | Stage::Open if self.is_reading => Some(Cause::Cancelled),
            Stage::Handshake | Stage::Open => None,
        }
    }
}

/// Stores the waker of one task. Returns the previous one, which must be dropped outside the lock.
#[must_use = "dropped outside the lock"]
fn keep(place: &mut Option<Waker>, context: &Context<'_>) -> Option<Waker> {
    match place {
        Some(kept) if kept.will_wake(context.waker()) => None,
        _ => place.replace(context.waker().clone()),
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl<S> fmt::Debug for Mailbox<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The bytes may be secrets: only the stage is shown.
        let stage = self.0.with(|state| match state.stage {
            Stage::Handshake => "Handshake",
            Stage::Open => "Open",
            Stage::Over => "Over",
            Stage::Failed => "Failed",
        });
        write!(f, "Mailbox({stage})")
    }
}
