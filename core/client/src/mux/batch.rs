//! Batches: statements that are executed together.

#[cfg(feature = "tracing")]
use super::call::Content;
use super::call::{Call, Text};
use super::error::RequestError;
use super::prepared::Statement;
use super::routing::Routing;
use crate::Platform;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
#[cfg(feature = "tracing")]
use core::sync::atomic::Ordering;
use poolhouse_core::Instant;
use poolhouse_cql::{BatchEntry, BatchKind, BatchStatement, BoundValues, Values};
use serde::Serialize;

/// The size from which a batch is near the limit of Cassandra's default configuration, which refuses
/// more than 50 KiB for several partitions (`batch_size_fail_threshold`).
#[cfg(feature = "tracing")]
const LARGE_BYTES: usize = 40 * 1024;

/// Statements that a server executes together: [`Session::batch`](super::Session::batch) sends them. Texts and prepared
/// statements may be mixed.
///
/// A batch is for statements of one partition, which then take effect together, or for the few rows that
/// must all be written if one is. It is no means to write faster: a server that gets rows of many
/// partitions sends each to its replicas, and Cassandra refuses a batch of more than 50 KiB by default.
/// Many rows are faster with [`Session::request_all`](super::Session::request_all). With the feature `tracing`, the first batch of more
/// than 40 KiB is logged as a warning: see [`Batch::size_bytes`].
///
/// ```
/// use poolhouse_client::Platform;
/// use poolhouse_client::mux::{Batch, RequestError, Session, Statement};
///
/// // Prepared from: INSERT INTO shop.readings (sensor, at, value) VALUES (?, ?, ?)
/// async fn write<P: Platform>(
///     session: &Session<P>,
///     insert: &Statement,
///     sensor: i32,
///     values: &[(i64, f64)],
/// ) -> Result<(), RequestError> {
///     let mut batch = Batch::unlogged();
///     for (at, value) in values {
///         batch.execute(insert, &(sensor, at, value));
///     }
///     batch.query("UPDATE shop.sensors SET state = 'seen' WHERE id = 1");
///     session.batch(&batch).idempotent(true).send().await?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Default)]
pub struct Batch<'a> {
    kind: BatchKind,
    entries: Vec<Entry<'a>>,
    /// The first value that does not fit.
    misfit: Option<Box<RequestError>>,
}

#[derive(Clone)]
enum Entry<'a> {
    Text(Cow<'a, str>),
    /// A statement that is prepared before its values are serialized.
    TextWith(Text<'a>),
    Bound(Statement, BoundValues),
}

impl<'a> Batch<'a> {
    /// Creates a batch of which all statements are executed, or none. The server stores it first, which costs
    /// time.
    #[must_use]
    pub fn logged() -> Self {
        Self::of(BatchKind::Logged)
    }

    /// Creates a batch of which some statements may be executed without the others, unless all are of one
    /// partition.
    #[must_use]
    pub fn unlogged() -> Self {
        Self::of(BatchKind::Unlogged)
    }

    /// Creates a batch of statements that change counters.
    #[must_use]
    pub fn counter() -> Self {
        Self::of(BatchKind::Counter)
    }

    fn of(kind: BatchKind) -> Self {
        Self { kind, ..Self::default() }
    }

    /// Adds a statement in CQL without values. It is sent as it is.
    pub fn query(&mut self, text: impl Into<Cow<'a, str>>) -> &mut Self {
        self.entries.push(Entry::Text(text.into()));
        self
    }

    /// Adds a statement in CQL with values, as [`Session::execute`](super::Session::execute) takes them. The session prepares it,
    /// and keeps the prepared statement for the next time.
    pub fn query_with<V>(&mut self, text: impl Into<Cow<'a, str>>, values: V) -> &mut Self
    where
        V: Serialize + Send + Sync + 'a,
    {
        self.entries.push(Entry::TextWith(Text { text: text.into(), values: Arc::new(values) }));
        self
    }

    /// Adds a prepared statement with its values, as [`Session::execute`](super::Session::execute) takes them. They are serialized
    /// at once; if one does not fit, sending fails with [`RequestError::Bind`].
    pub fn execute<V: Serialize + ?Sized>(&mut self, statement: &Statement, values: &V) -> &mut Self {
        match statement.bind(values) {
            Ok(values) => self.entries.push(Entry::Bound(statement.clone(), values)),
            Err(error) => {
                self.misfit.get_or_insert_with(|| Box::new(error));
            }
        }
        self
    }

    /// The number of statements: at most 65,535 can be sent.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The size of its texts and values. Those of [`Batch::query_with`] count from when they are serialized.
    /// A server measures the rows instead, which is about the same.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let size = |entry: BatchEntry<'_>| {
            let text = match entry.statement {
                BatchStatement::Text(text) => text.len(),
                BatchStatement::Prepared(_) => 0,
            };
            text + entry.values.size_bytes()
        };
        self.entries().map(size).sum()
    }

    /// Removes all statements, and keeps their memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.misfit = None;
    }

    pub(super) const fn kind(&self) -> BatchKind {
        self.kind
    }

    /// Whether all values are serialized.
    pub(super) fn is_ready(&self) -> bool {
        self.misfit.is_none() && !self.entries.iter().any(|entry| matches!(entry, Entry::TextWith(_)))
    }

    pub(super) fn entries(&self) -> impl ExactSizeIterator<Item = BatchEntry<'_>> {
        self.entries.iter().map(|entry| match entry {
            // A text with values is prepared before it is sent.
            Entry::Text(text) | Entry::TextWith(Text { text, .. }) => {
                BatchEntry { statement: BatchStatement::Text(text), values: Values::NONE }
            }
            Entry::Bound(statement, values) => {
                BatchEntry { statement: BatchStatement::Prepared(statement.id()), values: values.values() }
            }
        })
    }

    /// The location of the data of the first statement that has one.
    pub(super) fn routing(&self) -> Option<Routing<'_>> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::Bound(statement, values) => statement.routing(values.values()),
            Entry::Text(_) | Entry::TextWith(_) => None,
        })
    }

    /// Whether the variables of a statement have changed since it was prepared.
    pub(super) fn is_outdated(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry, Entry::Bound(statement, _) if statement.is_outdated()))
    }

    /// The prepared statements, each once.
    pub(super) fn statements(&self) -> Vec<&Statement> {
        let mut statements: Vec<&Statement> = Vec::new();
        for entry in &self.entries {
            if let Entry::Bound(statement, _) = entry {
                if !statements.iter().any(|known| known.id() == statement.id()) {
                    statements.push(statement);
                }
            }
        }
        statements
    }

    /// Prepares the texts with values.
    ///
    /// - `call`: sends the batch.
    pub(super) async fn prepared<P: Platform>(
        &self,
        call: &Call<'_, P>,
        deadline: Option<Instant>,
    ) -> Result<Self, RequestError> {
        if let Some(misfit) = &self.misfit {
            return Err((**misfit).clone());
        }
        let mut entries = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            entries.push(match entry {
                Entry::TextWith(text) => {
                    let (statement, values) = call.bind_text(text, deadline).await?;
                    Entry::Bound(statement, values)
                }
                entry @ (Entry::Text(_) | Entry::Bound(..)) => entry.clone(),
            });
        }
        Ok(Self { kind: self.kind, entries, misfit: None })
    }
}

impl<P: Platform> Call<'_, P> {
    /// Logs a warning about the first batch that is near the server's limit.
    #[cfg(feature = "tracing")]
    pub(super) fn warn_of_large(&self) {
        if self.shared.has_warned_of_batch.load(Ordering::Relaxed) {
            return;
        }
        let batch = match &self.body.content {
            Content::Batch(batch) => *batch,
            Content::PreparedBatch(batch, _) => batch,
            Content::Text(_) | Content::TextWith(_) | Content::Bound(..) | Content::Prepare(_) | Content::Misfit(_) => {
                return;
            }
        };
        let size_bytes = batch.size_bytes();
        if size_bytes > LARGE_BYTES && !self.shared.has_warned_of_batch.swap(true, Ordering::Relaxed) {
            self.shared.events.logs().warn_of_large_batch(batch.len(), size_bytes);
        }
    }

    /// Without the feature `tracing` there is no log.
    #[cfg(not(feature = "tracing"))]
    pub(super) const fn warn_of_large(&self) {}
}

impl fmt::Debug for Batch<'_> {
    /// Omits statements and values, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, entries, .. } = self;
        f.debug_struct("Batch").field("kind", kind).field("statements", &entries.len()).finish()
    }
}
