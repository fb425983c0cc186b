//! Documents that wait in RAM until a server has stored them. Depends on the client.

use crate::client::Client;
use crate::layout::Layout;
use crate::lock::ExecutorLock;
use core::fmt;
use core::future::poll_fn;
use core::task::{Poll, Waker};
use embassy_time::{Duration, Timer};
use poolhouse_driver::{ExchangeError, Locked, OperationError};
use poolhouse_wire::bson::{DocumentWriter, RawDocument, RawValue};
use poolhouse_wire::{EncodeError, Labels, Sink, SliceSink, WireError};

/// The pause of [`WriteQueue::run`] after a failure.
const PAUSE: Duration = Duration::from_millis(500);
/// The server's error for a document whose `_id` is stored already.
const DUPLICATE_KEY: i64 = 11000;

/// A bounded queue of documents for one collection, for a device that is often offline.
///
/// [`push`](Self::push) stores a document in RAM and never waits. [`run`](Self::run), or
/// [`flush`](Self::flush) before the device sleeps, inserts the documents in their order, as many with
/// one command as the send buffer of a connection holds. A document leaves the queue when a server has
/// acknowledged it, in a replica set by a majority of its members. It is not inserted twice: its `_id` stays the same in each attempt, and
/// the server refuses an `_id` that it has stored. So each document needs an `_id` that no other
/// document has, for example the name of the device and a number.
///
/// A loss of power loses the queue.
///
/// - `BYTES`: the memory for documents.
///
/// ```no_run
/// use poolhouse_embassy::{Client, PushError, Sizes, WhenFull, WriteQueue};
///
/// type Db = Sizes<1, 4, 8>;
/// // In a static, with static_cell: it contains zeros, and takes no flash.
/// type Queue = WriteQueue<4096>;
/// const EMPTY: Queue = Queue::new(WhenFull::DiscardOldest);
///
/// fn measured(queue: &Queue, number: i64, celsius: f64) -> Result<(), PushError> {
///     queue.push(|reading| reading.int64("_id", number)?.double("celsius", celsius).map(drop))
/// }
///
/// // #[embassy_executor::task]
/// async fn send(queue: &'static Queue, client: Client<Db>) {
///     let closed = queue.run(&client, "plant", "telemetry").await;
///     # let _ = closed;
/// }
/// # let _ = (EMPTY, measured, send);
/// ```
pub struct WriteQueue<const BYTES: usize> {
    state: ExecutorLock<State<BYTES>>,
}

/// What [`WriteQueue::push`] does when there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Refuses the new document.
    Refuse,
    /// Discards the oldest documents. One that was being sent may have been stored.
    DiscardOldest,
}

/// A document was not accepted by [`WriteQueue::push`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum PushError {
    /// There is no room for it.
    Full,
    /// It has no `_id`.
    NoId,
    /// It cannot be encoded.
    Encode(EncodeError),
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the queue has no room for the document"),
            Self::NoId => f.write_str("the document has no _id"),
            Self::Encode(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for PushError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Full | Self::NoId => None,
            Self::Encode(error) => Some(error),
        }
    }
}

/// The documents of a queue by their outcome. Each accepted document has exactly one; the numbers wrap
/// around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct QueueCounts {
    /// Documents in the queue.
    pub queued: u32,
    /// Documents that a server has acknowledged.
    pub inserted: u32,
    /// Documents that a server has refused, or that are larger than the send buffer of a connection.
    pub rejected: u32,
    /// Documents that were discarded for later ones.
    pub discarded: u32,
    /// Documents that were never accepted, because there was no room.
    pub refused: u32,
}

/// The state of a queue. All of it is zero at first.
struct State<const BYTES: usize> {
    /// The documents, the oldest first.
    bytes: [u8; BYTES],
    len: usize,
    counts: QueueCounts,
    discards: bool,
    /// The task that waits for a document.
    waker: Option<Waker>,
}

/// Documents of one command. The number of a document is that of documents that left the queue before
/// it, so documents that are discarded meanwhile do not count for others.
#[derive(Clone, Copy)]
struct Batch {
    /// The number of the first.
    first: u32,
    /// Those that were written.
    written: u32,
}

impl<const BYTES: usize> State<BYTES> {
    /// The number of the oldest document.
    const fn first(&self) -> u32 {
        let QueueCounts { inserted, rejected, discarded, .. } = self.counts;
        inserted.wrapping_add(rejected).wrapping_add(discarded)
    }

    fn documents(&self) -> impl Iterator<Item = RawDocument<'_>> {
        let mut rest = self.bytes.get(..self.len).unwrap_or_default();
        core::iter::from_fn(move || {
            let (document, after) = RawDocument::split_first(rest).ok()?;
            rest = after;
            Some(document)
        })
    }

    /// Removes the oldest document. Cost: O(`BYTES`).
    fn remove(&mut self) {
        let removed = self.documents().next().map_or(self.len, |document| document.as_bytes().len());
        self.bytes.copy_within(removed..self.len, 0);
        self.len -= removed;
        self.counts.queued = self.counts.queued.saturating_sub(1);
    }

    fn push(
        &mut self,
        document: impl Fn(&mut DocumentWriter<'_, SliceSink<'_>>) -> Result<(), EncodeError>,
    ) -> Result<(), PushError> {
        loop {
            let mut sink = SliceSink::new(self.bytes.get_mut(self.len..).unwrap_or_default());
            match DocumentWriter::write(&mut sink, &document) {
                Ok(_) => {
                    let has_id = RawDocument::new(sink.written()).and_then(|it| it.get("_id"));
                    if !matches!(has_id, Ok(Some(_))) {
                        return Err(PushError::NoId);
                    }
                    self.len += sink.written().len();
                    self.counts.queued += 1;
                    return Ok(());
                }
                Err(EncodeError::Full) if self.discards && self.len > 0 => {
                    self.remove();
                    self.counts.discarded = self.counts.discarded.wrapping_add(1);
                }
                Err(EncodeError::Full) => {
                    self.counts.refused = self.counts.refused.wrapping_add(1);
                    return Err(PushError::Full);
                }
                Err(error) => return Err(PushError::Encode(error)),
            }
        }
    }

    /// Writes a command that inserts the oldest documents: at most `max`, and as many as there is room for.
    fn write_insert<S: Sink>(
        &self,
        command: &mut DocumentWriter<'_, S>,
        collection: &str,
        max: u32,
        batch: &mut Batch,
    ) -> Result<(), EncodeError> {
        *batch = Batch { first: self.first(), written: 0 };
        command.str("insert", collection)?.array("documents", |array| {
            for document in self.documents().take(max as usize) {
                array.value(RawValue::Document(document))?;
                batch.written += 1;
            }
            Ok(())
        })?;
        // In a replica set, only writes on a majority of members survive an election.
        command.document("writeConcern", |concern| concern.str("w", "majority").map(drop))?;
        Ok(())
    }

    /// Removes the first documents of a batch, of which a server has stored `inserted` and then refused
    /// one, or none.
    fn settle(&mut self, batch: Batch, inserted: u32, is_rejected: bool) {
        let discarded = self.first().wrapping_sub(batch.first);
        for number in discarded..inserted + u32::from(is_rejected) {
            self.remove();
            let outcome = if number < inserted { &mut self.counts.inserted } else { &mut self.counts.rejected };
            *outcome = outcome.wrapping_add(1);
        }
    }
}

impl<const BYTES: usize> WriteQueue<BYTES> {
    /// Creates an empty queue.
    #[must_use]
    pub const fn new(when_full: WhenFull) -> Self {
        let counts = QueueCounts { queued: 0, inserted: 0, rejected: 0, discarded: 0, refused: 0 };
        let discards = matches!(when_full, WhenFull::DiscardOldest);
        Self { state: ExecutorLock::holding(State { bytes: [0; BYTES], len: 0, counts, discards, waker: None }) }
    }

    /// Stores a document.
    ///
    /// - `document`: writes its elements. Called again for each document that is discarded for it. Must not
    ///   call the queue: that panics.
    ///
    /// Cost: O(`BYTES`) for each document that is discarded.
    ///
    /// # Errors
    ///
    /// [`PushError`]; the document is not stored then.
    pub fn push(
        &self,
        document: impl Fn(&mut DocumentWriter<'_, SliceSink<'_>>) -> Result<(), EncodeError>,
    ) -> Result<(), PushError> {
        let (pushed, waker) = self.state.with(|state| (state.push(document), state.waker.take()));
        if let Some(waker) = waker {
            waker.wake();
        }
        pushed
    }

    /// The documents by their outcome.
    pub fn counts(&self) -> QueueCounts {
        self.state.with(|state| state.counts)
    }

    /// Inserts the documents until the queue is empty, or an attempt fails. May be dropped at any await: no
    /// document is lost.
    ///
    /// The reply to one refused document must fit in the client's receive buffer: 1,024 bytes are enough.
    ///
    /// # Errors
    ///
    /// [`OperationError`]; the documents that are not acknowledged stay in the queue. A server that has stored
    /// them, but does not reach their write concern, is an error too: [`OperationError::Command`].
    pub async fn flush<L: Layout>(
        &self,
        client: &Client<L>,
        database: &str,
        collection: &str,
    ) -> Result<(), OperationError> {
        let mut max = u32::MAX;
        while self.counts().queued > 0 {
            let mut guard = client.check_out().await?;
            // Another task may have emptied the queue meanwhile; a command without documents is invalid.
            if self.counts().queued == 0 {
                break;
            }
            let mut batch = Batch { first: 0, written: 0 };
            let replied = guard
                .run_command(database, |command| {
                    self.state.with(|state| state.write_insert(command, collection, max, &mut batch))
                })
                .await;
            match replied {
                Ok(reply) => {
                    let (inserted, is_rejected) = read_reply(reply, batch.written)?;
                    self.state.with(|state| state.settle(batch, inserted, is_rejected));
                }
                Err(OperationError::Exchange(ExchangeError::Encode(EncodeError::Full))) => {
                    // Either no document more had room, or only the end of the command had none.
                    let is_end = batch.written == max.min(self.counts().queued);
                    max = batch.written.saturating_sub(u32::from(is_end));
                    if max == 0 {
                        self.state.with(|state| state.settle(batch, 0, true));
                        max = u32::MAX;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Inserts documents as they are pushed, and tries again half a second after a failure. Returns the
    /// error once the client is closed; call it again when the client is open. For one task at a time: of several,
    /// only the last to wait is woken.
    pub async fn run<L: Layout>(&self, client: &Client<L>, database: &str, collection: &str) -> OperationError {
        loop {
            poll_fn(|context| {
                let mut waker = Some(context.waker().clone());
                self.state.with(|state| {
                    if state.counts.queued > 0 {
                        return Poll::Ready(());
                    }
                    core::mem::swap(&mut state.waker, &mut waker);
                    Poll::Pending
                })
            })
            .await;
            match self.flush(client, database, collection).await {
                Ok(()) => {}
                Err(error @ (OperationError::Closed | OperationError::Abandoned)) => return error,
                Err(_) => Timer::after(PAUSE).await,
            }
        }
    }
}

impl<const BYTES: usize> fmt::Debug for WriteQueue<BYTES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The documents may be secrets.
        f.debug_struct("WriteQueue").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// The number of documents that are stored, and whether the next one was refused. The server ends a command
/// at the first document that it refuses.
fn read_reply(reply: RawDocument<'_>, written: u32) -> Result<(u32, bool), OperationError> {
    let invalid = |error: WireError| OperationError::Exchange(ExchangeError::Wire(error));
    let code_of = |document: RawDocument<'_>| document.get("code").map(|code| code.and_then(RawValue::as_integer));
    if let Some(failure) = reply.get("writeConcernError").map_err(invalid)?.and_then(RawValue::as_document) {
        let code = code_of(failure).map_err(invalid)?.and_then(|code| i32::try_from(code).ok());
        return Err(OperationError::Command { code: code.unwrap_or(0), labels: Labels::default() });
    }
    let failures = reply.get("writeErrors").map_err(invalid)?.and_then(RawValue::as_array);
    let Some(failure) = failures.and_then(|failures| failures.iter().next()) else { return Ok((written, false)) };
    let failure = failure.map_err(invalid)?.as_document();
    let Some(failure) = failure else { return Ok((0, true)) };
    let index = failure.get("index").map_err(invalid)?.and_then(RawValue::as_integer);
    let index = index.and_then(|index| u32::try_from(index).ok()).unwrap_or(0).min(written.saturating_sub(1));
    let is_stored = code_of(failure).map_err(invalid)? == Some(DUPLICATE_KEY);
    Ok(if is_stored { (index + 1, false) } else { (index, true) })
}
