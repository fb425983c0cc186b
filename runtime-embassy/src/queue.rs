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
use poolhouse_wire::{EncodeError, Labels, Sink, WireError, WireErrorKind};

/// The pause of [`WriteQueue::run`] after a failure.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The time for the majority of a replica set.
const WRITE_CONCERN_MS: i32 = 10_000;
/// The server's error for a document with a key that is stored already.
const DUPLICATE_KEY: i64 = 11000;
/// The errors of a document that no further attempt changes: a wrong value or type, an invalid `_id` or field name,
/// a key or document that is too large, failed validation, and [`DUPLICATE_KEY`].
const PERMANENT: [i64; 12] = [2, 9, 14, 22, 52, 53, 56, 57, 121, 10334, 17280, DUPLICATE_KEY];

/// A bounded queue of documents for one collection, for a device that is often offline.
///
/// [`push`](Self::push) stores a document in RAM and never waits. [`run`](Self::run), or
/// [`flush`](Self::flush) before the device sleeps, inserts the documents in their order, as many with
/// one command as the send buffer of a connection holds. A document leaves the queue when a server has
/// acknowledged it, in a replica set after a majority of the members has it.
///
/// If an acknowledgement is lost, its document is sent again, and the server refuses an `_id` that it has
/// stored. So each document needs an `_id` that no other document has, for example the name of the device
/// and a number. Time-series collections do not check it, nor do sharded ones without `_id` in their shard
/// key: there, such a document is stored twice.
///
/// A loss of power loses the queue.
///
/// - `BYTES`: the memory for documents.
///
/// ```no_run
/// use poolhouse_embassy::poolhouse_wire::SliceSink;
/// use poolhouse_embassy::{Client, DocumentWriter, PushError, RawDocument, Sizes, WhenFull, WriteQueue};
///
/// type Db = Sizes<1, 4, 8>;
/// // In a static, with static_cell: it is initialized with zeros, and takes no flash.
/// type Queue = WriteQueue<4096>;
/// const EMPTY: Queue = Queue::new();
///
/// fn measured(queue: &Queue, number: i64, celsius: f64) -> Result<(), PushError> {
///     let mut buffer = [0; 64];
///     let mut sink = SliceSink::new(&mut buffer);
///     DocumentWriter::write(&mut sink, |reading| {
///         reading.int64("_id", number)?.double("celsius", celsius).map(drop)
///     })
///     .expect("64 bytes are enough");
///     queue.push(RawDocument::new(sink.into_written()).expect("a document"), WhenFull::DiscardOldest)
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

/// What [`WriteQueue::push`] does when there is no room for the document.
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
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the queue has no room for the document",
            Self::NoId => "the document has no _id",
        })
    }
}

impl core::error::Error for PushError {}

/// The documents of a queue by their outcome. Each accepted document has exactly one; the numbers wrap
/// around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct QueueCounts {
    /// Documents in the queue.
    pub queued: u32,
    /// Documents that a server has acknowledged.
    pub inserted: u32,
    /// Documents that a server has refused, or that are too large: the send buffer of a connection must hold
    /// the command, some 120 bytes and the names of database and collection, and the receive buffer the refusal.
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

    /// Removes the oldest documents, up to this number.
    fn remove(&mut self, count: u32) {
        let removed = self.documents().take(count as usize).map(|document| document.as_bytes().len()).sum::<usize>();
        self.bytes.copy_within(removed..self.len, 0);
        self.len -= removed;
        self.counts.queued = self.counts.queued.saturating_sub(count);
    }

    fn push(&mut self, document: &[u8], when_full: WhenFull) -> Result<(), PushError> {
        let missing = (self.len + document.len()).saturating_sub(BYTES);
        if missing > 0 && (when_full == WhenFull::Refuse || document.len() > BYTES) {
            self.counts.refused = self.counts.refused.wrapping_add(1);
            return Err(PushError::Full);
        }
        if missing > 0 {
            let (mut count, mut freed) = (0, 0);
            for oldest in self.documents() {
                if freed >= missing {
                    break;
                }
                freed += oldest.as_bytes().len();
                count += 1;
            }
            self.remove(count);
            self.counts.discarded = self.counts.discarded.wrapping_add(count);
        }
        let place = self.bytes.get_mut(self.len..self.len + document.len()).ok_or(PushError::Full)?;
        place.copy_from_slice(document);
        self.len += document.len();
        self.counts.queued += 1;
        Ok(())
    }

    /// Writes a command that inserts the oldest documents, at most `max`.
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
        command.document("writeConcern", |concern| {
            concern.str("w", "majority")?.int32("wtimeout", WRITE_CONCERN_MS).map(drop)
        })?;
        Ok(())
    }

    /// Removes the first documents of a batch, of which a server has stored `inserted` and then refused
    /// one, or none.
    fn settle(&mut self, batch: Batch, inserted: u32, is_rejected: bool) {
        let discarded = self.first().wrapping_sub(batch.first);
        let inserted_here = inserted.saturating_sub(discarded);
        let rejected_here = u32::from(is_rejected && discarded <= inserted);
        self.remove(inserted_here + rejected_here);
        self.counts.inserted = self.counts.inserted.wrapping_add(inserted_here);
        self.counts.rejected = self.counts.rejected.wrapping_add(rejected_here);
    }
}

impl<const BYTES: usize> WriteQueue<BYTES> {
    /// Creates an empty queue.
    #[must_use]
    pub const fn new() -> Self {
        let counts = QueueCounts { queued: 0, inserted: 0, rejected: 0, discarded: 0, refused: 0 };
        Self { state: ExecutorLock::holding(State { bytes: [0; BYTES], len: 0, counts, waker: None }) }
    }

    /// Stores a document.
    ///
    /// Cost: O(`BYTES`) if documents are discarded for it, else O(length).
    ///
    /// # Errors
    ///
    /// [`PushError`]: the queue is unchanged, except for the number of refused documents.
    pub fn push(&self, document: RawDocument<'_>, when_full: WhenFull) -> Result<(), PushError> {
        if !matches!(document.get("_id"), Ok(Some(_))) {
            return Err(PushError::NoId);
        }
        let (pushed, waker) = self.state.with(|state| (state.push(document.as_bytes(), when_full), state.waker.take()));
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
    /// document is lost. If [`Options::timeout`](crate::Options::timeout) is set, each command takes at most that time.
    ///
    /// # Errors
    ///
    /// [`OperationError`]; the documents that are not acknowledged stay in the queue. It is
    /// [`OperationError::Command`] if a majority of the set does not have them within 10 s, and if the server
    /// refuses a document for a reason that may pass, such as a full disk.
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
            max = match replied {
                Ok(reply) => {
                    let (inserted, refusal) = read_reply(reply, batch.written)?;
                    let is_permanent = refusal.is_some_and(|code| PERMANENT.contains(&code));
                    self.state.with(|state| state.settle(batch, inserted, is_permanent));
                    if let Some(code) = refusal.filter(|_| !is_permanent) {
                        return Err(command_error(code));
                    }
                    u32::MAX
                }
                // Either no document more had room, or only the end of the command had none.
                Err(OperationError::Exchange(ExchangeError::Encode(EncodeError::Full))) => {
                    let is_end = batch.written == max.min(self.counts().queued);
                    batch.written.saturating_sub(u32::from(is_end))
                }
                // The text of a refusal can be long.
                Err(OperationError::Exchange(ExchangeError::ReplyTooLarge { .. })) => batch.written / 2,
                Err(error) => return Err(error),
            };
            if max == 0 {
                self.state.with(|state| state.settle(batch, 0, true));
                max = u32::MAX;
            }
        }
        Ok(())
    }

    /// Inserts documents as they are pushed. After a failure it waits half a second, after further ones up to
    /// 30 s if nothing is stored in between. Returns the error of the first attempt after the client was closed;
    /// call it again when the client is open. For one task at a time: of several, only the last to wait is woken.
    pub async fn run<L: Layout>(&self, client: &Client<L>, database: &str, collection: &str) -> OperationError {
        let mut pause = PAUSE;
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
            let inserted = self.counts().inserted;
            let flushed = self.flush(client, database, collection).await;
            if flushed.is_ok() || self.counts().inserted != inserted {
                pause = PAUSE;
            }
            match flushed {
                Ok(()) => {}
                Err(error @ (OperationError::Closed | OperationError::Abandoned)) => return error,
                Err(_) => {
                    Timer::after(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }
}

impl<const BYTES: usize> Default for WriteQueue<BYTES> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const BYTES: usize> fmt::Debug for WriteQueue<BYTES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The documents may be secrets.
        f.debug_struct("WriteQueue").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// The number of documents that are stored, and the error of the next one, if it was refused. The server ends
/// a command at the first document that it refuses.
fn read_reply(reply: RawDocument<'_>, written: u32) -> Result<(u32, Option<i64>), OperationError> {
    let invalid = |error: WireError| OperationError::Exchange(ExchangeError::Wire(error));
    let number = |document: RawDocument<'_>, key: &str| {
        document.get(key).map(|value| value.and_then(RawValue::as_integer)).map_err(invalid)
    };
    if let Some(failure) = reply.get("writeConcernError").map_err(invalid)?.and_then(RawValue::as_document) {
        return Err(command_error(number(failure, "code")?.unwrap_or(0)));
    }
    let Some(failures) = reply.get("writeErrors").map_err(invalid)? else {
        let all = number(reply, "n")? == Some(written.into());
        return if all { Ok((written, None)) } else { Err(invalid(contradiction(reply))) };
    };
    let failure = failures.as_array().and_then(|failures| failures.iter().next()).transpose().map_err(invalid)?;
    let failure = failure.and_then(RawValue::as_document).ok_or_else(|| invalid(contradiction(reply)))?;
    let index = number(failure, "index")?.and_then(|index| u32::try_from(index).ok()).filter(|index| *index < written);
    let index = index.ok_or_else(|| invalid(contradiction(reply)))?;
    let code = number(failure, "code")?.unwrap_or(0);
    let pattern = failure.get("keyPattern").map_err(invalid)?.and_then(RawValue::as_document);
    let is_id = pattern.is_some_and(|pattern| {
        let mut keys = pattern.iter();
        keys.next().is_some_and(|key| key.is_ok_and(|key| key.key == "_id")) && keys.next().is_none()
    });
    // An earlier attempt has stored it.
    let is_stored = code == DUPLICATE_KEY && is_id;
    Ok(if is_stored { (index + 1, None) } else { (index, Some(code)) })
}

/// The error of a reply that contradicts the command.
const fn contradiction(reply: RawDocument<'_>) -> WireError {
    WireError::new(WireErrorKind::FieldValue { name: "n" }, reply.offset())
}

fn command_error(code: i64) -> OperationError {
    OperationError::Command { code: i32::try_from(code).unwrap_or(0), labels: Labels::default() }
}
