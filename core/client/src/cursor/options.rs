//! The options of a cursor.
//!
//! Read first: Run Command, "Cursor related commands".

use core::time::Duration;

/// The options of the `getMore` commands of a [`Cursor`](super::Cursor).
///
/// Source: Run Command, "Cursor related commands".
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CursorOptions {
    /// `batchSize`: the maximum number of documents of a further batch; `None` leaves it to the
    /// server. The size of the first batch is in the command that creates the cursor.
    pub batch_size: Option<u32>,
    /// How long the server waits for documents of a tailable cursor with `awaitData`, such as that
    /// of a change stream; `None` leaves it to the server.
    pub max_await_time: Option<Duration>,
    /// `comment`: any value, for the server's log and profiler.
    pub comment: Option<bson::Bson>,
}

impl CursorOptions {
    /// The default.
    #[must_use]
    pub const fn new() -> Self {
        Self { batch_size: None, max_await_time: None, comment: None }
    }

    /// See [`batch_size`](#structfield.batch_size).
    #[must_use]
    pub fn batch_size(self, documents: u32) -> Self {
        Self { batch_size: Some(documents), ..self }
    }

    /// See [`max_await_time`](#structfield.max_await_time).
    #[must_use]
    pub fn max_await_time(self, time: Duration) -> Self {
        Self { max_await_time: Some(time), ..self }
    }

    /// See [`comment`](#structfield.comment).
    #[must_use]
    pub fn comment(self, comment: impl Into<bson::Bson>) -> Self {
        Self { comment: Some(comment.into()), ..self }
    }
}
