//! The futures that run sessions, and their mailboxes.
//!
//! A lane is a future of the runner with memory for one session after the other. A stream and the
//! lane of its socket share a [`Post`]: orders go from the stream to the lane, bytes in both
//! directions. Each side wakes the other; neither awaits while it holds the lock.

use core::fmt;
use core::future::poll_fn;
use core::task::{Context, Poll, Waker};
use embassy_futures::select::{Either, select};
use embedded_io_async::{Read, Write};
use poolhouse_core::Cause;
use poolhouse_driver::Locked;

use super::options::TlsConfig;
use super::session::Session;
use super::watch::Watch;
use crate::Random;
use crate::embassy::ADDRESS_BYTES_MAX;
use crate::lock::ExecutorLock;
use crate::slot::{Slot, Socket};

/// The maximum number of bytes that are copied to a session at a time.
const MOUTHFUL: usize = 128;

/// The order to start a session.
pub(super) struct Order<S> {
    /// The connected socket.
    pub(super) socket: S,
    /// The name or address of the server.
    pub(super) host: heapless::String<ADDRESS_BYTES_MAX, u8>,
}

/// The mailbox of a stream and a lane.
pub(crate) struct Post<S = Socket>(ExecutorLock<Mail<S>>);

struct Mail<S> {
    stage: Stage,
    /// The cause of the failure, if the stage is `Stage::Failed`.
    failure: Cause,
    /// A session that has not started.
    order: Option<Order<S>>,
    /// Whether a stream exists.
    is_held: bool,
    /// Bytes that were decrypted, and bytes that will be encrypted.
    incoming: Pipe,
    outgoing: Pipe,
    /// Whether the stream waits for bytes.
    is_wanting: bool,
    /// Whether the lane waits for bytes from the peer.
    is_reading: bool,
    /// Whether the outgoing bytes must be flushed.
    is_flushing: bool,
    holder: Option<Waker>,
    lane: Option<Waker>,
}

#[derive(Clone, Copy)]
enum Stage {
    /// The peer has ended the session, or there has been none.
    Over,
    Shaking,
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
enum Task {
    Write { flush: bool },
    Read,
}

impl<S> Post<S> {
    /// A mailbox without a lane. All of its bytes are zero, so a static array of them takes no
    /// flash.
    #[allow(clippy::declare_interior_mutable_const, reason = "what an array of them begins as")]
    pub(crate) const VACANT: Self = Self(ExecutorLock::holding(Mail {
        stage: Stage::Over,
        failure: Cause::Network,
        order: None,
        is_held: false,
        incoming: Pipe::NONE,
        outgoing: Pipe::NONE,
        is_wanting: false,
        is_reading: false,
        is_flushing: false,
        holder: None,
        lane: None,
    }));

    /// Sets the buffers of both directions.
    pub(super) fn furnish(&self, incoming: &'static mut [u8], outgoing: &'static mut [u8]) {
        self.0.with(|mail| {
            mail.incoming.bytes = Some(incoming);
            mail.outgoing.bytes = Some(outgoing);
        });
    }

    /// Starts a session. No other session exists, because the lane has only one socket.
    pub(super) fn begin(&self, order: Order<S>) {
        let lane = self.0.with(|mail| {
            mail.stage = Stage::Shaking;
            mail.order = Some(order);
            mail.is_held = true;
            mail.incoming.clear();
            mail.outgoing.clear();
            mail.is_wanting = false;
            mail.is_flushing = false;
            mail.lane.take()
        });
        wake(lane);
    }

    /// Marks the stream as dropped.
    pub(super) fn release(&self) {
        let (lane, _holder) = self.0.with(|mail| {
            mail.is_held = false;
            (mail.lane.take(), mail.holder.take())
        });
        wake(lane);
    }

    /// Polls `step` for the stream until it is ready. Wakes the lane if `step` returns that the
    /// lane has work.
    async fn as_holder<T>(&self, mut step: impl FnMut(&mut Mail<S>) -> (Poll<T>, bool)) -> T {
        poll_fn(|context| {
            let (poll, lane, _before) = self.0.with(|mail| {
                let (poll, rouse) = step(mail);
                let before = if poll.is_pending() { keep(&mut mail.holder, context) } else { None };
                (poll, if rouse { mail.lane.take() } else { None }, before)
            });
            wake(lane);
            poll
        })
        .await
    }

    /// Polls `step` for the lane until it returns a value.
    async fn as_lane<T>(&self, mut step: impl FnMut(&mut Mail<S>) -> Option<T>) -> T {
        poll_fn(|context| {
            let (given, _before) = self.0.with(|mail| match step(mail) {
                Some(given) => (Poll::Ready(given), None),
                None => (Poll::Pending, keep(&mut mail.lane, context)),
            });
            given
        })
        .await
    }

    /// Applies a change and wakes the stream.
    fn tell<T>(&self, change: impl FnOnce(&mut Mail<S>) -> T) -> T {
        let (told, holder) = self.0.with(|mail| (change(mail), mail.holder.take()));
        wake(holder);
        told
    }

    /// Waits until the handshake is done.
    pub(super) async fn opened(&self) -> Result<(), Cause> {
        self.as_holder(|mail| match mail.stage {
            Stage::Shaking => (Poll::Pending, false),
            Stage::Open => (Poll::Ready(Ok(())), false),
            Stage::Over => (Poll::Ready(Err(Cause::Network)), false),
            Stage::Failed => (Poll::Ready(Err(mail.failure)), false),
        })
        .await
    }

    /// Waits for bytes; returns 0 at the end.
    pub(super) async fn read(&self, buf: &mut [u8]) -> Result<usize, Cause> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.as_holder(|mail| {
            let count = mail.incoming.take(buf);
            if count > 0 {
                return (Poll::Ready(Ok(count)), false);
            }
            match mail.stage {
                Stage::Over => (Poll::Ready(Ok(0)), false),
                Stage::Failed => (Poll::Ready(Err(mail.failure)), false),
                Stage::Shaking | Stage::Open => {
                    mail.is_wanting = true;
                    (Poll::Pending, true)
                }
            }
        })
        .await
    }

    /// Takes bytes, waiting for room. They are sent by a flush, or when the buffer is full.
    pub(super) async fn write(&self, buf: &[u8]) -> Result<usize, Cause> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.as_holder(|mail| {
            if let Some(failed) = mail.deaf() {
                return (Poll::Ready(Err(failed)), false);
            }
            let count = mail.outgoing.put(buf);
            if count > 0 {
                return (Poll::Ready(Ok(count)), false);
            }
            (Poll::Pending, true)
        })
        .await
    }

    /// Waits until all bytes are sent.
    pub(super) async fn flush(&self) -> Result<(), Cause> {
        let mut asked = false;
        self.as_holder(|mail| {
            if let Some(failed) = mail.deaf() {
                return (Poll::Ready(Err(failed)), false);
            }
            if !core::mem::replace(&mut asked, true) {
                mail.is_flushing = true;
            }
            if mail.is_flushing { (Poll::Pending, true) } else { (Poll::Ready(Ok(())), false) }
        })
        .await
    }

    /// Waits for the order of a session.
    async fn ordered(&self) -> Order<S> {
        self.as_lane(|mail| mail.order.take()).await
    }

    /// Waits until the stream is dropped.
    async fn released(&self) {
        self.as_lane(|mail| (!mail.is_held).then_some(())).await;
    }

    /// Waits for work.
    async fn task(&self) -> Task {
        self.as_lane(|mail| {
            let is_due = mail.is_flushing || (mail.is_wanting && !mail.outgoing.is_empty());
            if is_due || mail.outgoing.is_full() {
                return Some(Task::Write { flush: is_due });
            }
            let reads = mail.is_wanting && mail.incoming.is_empty();
            mail.is_wanting = false;
            mail.is_reading = reads;
            reads.then_some(Task::Read)
        })
        .await
    }
}

impl<S> Mail<S> {
    /// The error of a write: a session that waits for bytes of the peer cannot write.
    const fn deaf(&self) -> Option<Cause> {
        match self.stage {
            Stage::Failed => Some(self.failure),
            Stage::Over => Some(Cause::Network),
            Stage::Shaking | Stage::Open if self.is_reading => Some(Cause::Cancelled),
            Stage::Shaking | Stage::Open => None,
        }
    }
}

/// Runs one session after the other, for ever.
///
/// - `receive`, `send`: the record buffers of the sessions.
pub(super) async fn run<S: Read + Write>(
    post: &Post<S>,
    config: &TlsConfig,
    random: Random,
    receive: &mut [u8],
    send: &mut [u8],
) -> ! {
    loop {
        let mut order = post.ordered().await;
        let outcome = converse(post, &mut order, config, random, receive, send).await;
        post.tell(|mail| {
            mail.stage = if outcome.is_ok() { Stage::Over } else { Stage::Failed };
            mail.failure = outcome.err().unwrap_or(Cause::Network);
            mail.is_reading = false;
        });
        // The socket is returned only after the stream is dropped, so a stream never uses the
        // mailbox during the next session.
        post.released().await;
        drop(order);
    }
}

/// Runs one session until it ends or its stream is dropped.
async fn converse<S: Read + Write>(
    post: &Post<S>,
    order: &mut Order<S>,
    config: &TlsConfig,
    random: Random,
    receive: &mut [u8],
    send: &mut [u8],
) -> Result<(), Cause> {
    let watch = Watch::new();
    let mut session = Some(Session::new(&mut order.socket, &watch, receive, send));
    let Some(open) = &mut session else { return Ok(()) };
    let served = select(post.released(), serve(post, open, &order.host, config, random)).await;
    if let Either::Second(outcome) = served {
        return outcome;
    }
    poll_fn(|context| {
        if let Some(session) = session.take() {
            session.goodbye(context);
        }
        Poll::Ready(())
    })
    .await;
    Ok(())
}

async fn serve<S: Read + Write>(
    post: &Post<S>,
    session: &mut Session<'_, &mut S>,
    host: &str,
    config: &TlsConfig,
    random: Random,
) -> Result<(), Cause> {
    session.open(host, config, random).await?;
    post.tell(|mail| mail.stage = Stage::Open);
    loop {
        match post.task().await {
            Task::Write { flush } => {
                let mut mouthful = [0; MOUTHFUL];
                loop {
                    let count = post.tell(|mail| mail.outgoing.take(&mut mouthful));
                    if count == 0 {
                        break;
                    }
                    session.write_all(mouthful.get(..count).unwrap_or_default()).await?;
                }
                if flush {
                    session.flush().await?;
                    post.tell(|mail| mail.is_flushing = false);
                }
            }
            Task::Read => {
                let goes_on = session
                    .read(|bytes| {
                        post.tell(|mail| {
                            mail.is_reading = false;
                            mail.incoming.put(bytes)
                        })
                    })
                    .await?;
                if !goes_on {
                    return Ok(());
                }
            }
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

impl<S> fmt::Debug for Post<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The bytes may be secrets: only the stage is shown.
        let stage = self.0.with(|mail| match mail.stage {
            Stage::Shaking => "Shaking",
            Stage::Open => "Open",
            Stage::Over => "Over",
            Stage::Failed => "Failed",
        });
        write!(f, "Post({stage})")
    }
}

/// An encrypted connection. Dropping it sends close_notify if possible, and returns its socket to
/// be closed.
///
/// Dropping a read loses no data, but the session continues to wait for the peer: a write before
/// the peer has sent something fails with [`Cause::Cancelled`].
pub struct TlsSocket {
    slot: &'static Slot,
}

impl TlsSocket {
    /// Starts a session over a connected socket, in the lane of its slot.
    ///
    /// Not `async`, so the future of connecting does not store the socket and the name.
    ///
    /// # Errors
    ///
    /// [`Cause::Certificate`] if `host` is a name that no certificate can contain.
    pub(crate) fn begin(socket: Socket, host: &str) -> Result<Self, Cause> {
        let slot = socket.slot();
        let host = heapless::String::try_from(host)
            .map_err(|_| Cause::Certificate(poolhouse_core::CertificateFault::WrongName))?;
        slot.post().begin(Order { socket, host });
        Ok(Self { slot })
    }

    /// Waits until the handshake is done.
    ///
    /// # Errors
    ///
    /// Those of the handshake.
    pub(crate) async fn opened(&self) -> Result<(), Cause> {
        self.slot.post().opened().await
    }

    pub(crate) const fn slot(&self) -> &'static Slot {
        self.slot
    }

    pub(crate) async fn read(&self, buf: &mut [u8]) -> Result<usize, Cause> {
        self.slot.post().read(buf).await
    }

    pub(crate) async fn write(&self, buf: &[u8]) -> Result<usize, Cause> {
        self.slot.post().write(buf).await
    }

    pub(crate) async fn flush(&self) -> Result<(), Cause> {
        self.slot.post().flush().await
    }
}

impl Drop for TlsSocket {
    fn drop(&mut self) {
        self.slot.post().release();
    }
}

impl fmt::Debug for TlsSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsSocket(..)")
    }
}
