//! The options of a cursor.
//!
//! Read first: Run Command, "Cursor related commands"; Client Side Operations Timeout, "Cursors".

use crate::session::MaxTime;
use crate::{Error, convert};
use core::time::Duration;
use poolhouse_wire::bson::{RawDocument, RawValue};

/// The commands to which the time limit of a cursor applies.
///
/// Source: Client Side Operations Timeout, "Cursors".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimeoutMode {
    /// `ITERATION`: to the first command, and again to each call for a document, however many requests
    /// for batches it makes: the batches of a tailable cursor may be empty without end. The first command
    /// has no `maxTimeMS`, because the server would apply that to the whole cursor, unless it creates a
    /// change stream or a tailable cursor with `awaitData`. An aggregation with `$out` or `$merge` is
    /// refused.
    Iteration,
    /// `CURSOR_LIFETIME`: to the first command and all further batches together, for cursors that are
    /// not tailable. The first command has `maxTimeMS`. After the limit, the documents of the last
    /// batch are still returned; the next request for a batch fails, and nothing is sent but
    /// `killCursors`, which has its own limit.
    CursorLifetime,
}

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
    /// of a change stream; `None` leaves it to the server. It must be below the time limit of each
    /// call, if there is one. It is `maxTimeMS` of `getMore`, or the rest of the limit if that is shorter.
    pub max_await_time: Option<Duration>,
    /// `comment`: any value, for the server's log and profiler.
    pub comment: Option<bson::Bson>,
    /// Whether the timeout of the command, or that of the client, applies to each call or to all.
    /// [`TimeoutMode::CursorLifetime`] needs a timeout, and a cursor that is not tailable. `None`, the
    /// default, is [`TimeoutMode::Iteration`], but allows an aggregation with `$out` or `$merge`, which
    /// has no further batch: it has `maxTimeMS`.
    pub timeout_mode: Option<TimeoutMode>,
    /// Whether the next batch is requested before the documents of the last one are returned, so that
    /// the server prepares it meanwhile. Its reply is read when they are used up. Default `false`.
    ///
    /// The cursor holds a connection of the pool from its first document to its end, also while the
    /// application does not call it: an application that runs other commands meanwhile needs a larger
    /// pool than one. If it stops before the end, the server has prepared a batch in vain. An error of
    /// the request is returned after the documents before it. The cursor holds two batches. The
    /// duration in the events and spans of `getMore` ends when the reply is read.
    ///
    /// It has no effect on cursors that are tailable, have a session of the application, are behind a
    /// load balancer, or have a time limit of each call: with [`TimeoutMode::Iteration`] and a timeout,
    /// or with [`ClientOptions::socket_timeout`](crate::ClientOptions::socket_timeout).
    pub read_ahead: bool,
}

impl CursorOptions {
    /// The default.
    #[must_use]
    pub const fn new() -> Self {
        Self { batch_size: None, max_await_time: None, comment: None, timeout_mode: None, read_ahead: false }
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

    /// See [`timeout_mode`](#structfield.timeout_mode).
    #[must_use]
    pub fn timeout_mode(self, mode: TimeoutMode) -> Self {
        Self { timeout_mode: Some(mode), ..self }
    }

    /// See [`read_ahead`](#structfield.read_ahead).
    #[must_use]
    pub fn read_ahead(self, read_ahead: bool) -> Self {
        Self { read_ahead, ..self }
    }

    /// Returns `maxTimeMS` of `getMore`.
    pub(super) fn max_time(&self) -> MaxTime {
        self.max_await_time.map_or(MaxTime::None, MaxTime::Wait)
    }

    /// Whether the cursor stays open at the end of its documents.
    pub(super) fn is_tailable(&self, command: RawDocument<'_>) -> bool {
        self.max_await_time.is_some() || is_change_stream(command) || is_true(command, "tailable")
    }

    /// Whether the server waits for new documents.
    pub(super) fn awaits_data(&self, command: RawDocument<'_>) -> bool {
        self.max_await_time.is_some()
            || is_change_stream(command)
            || (is_true(command, "tailable") && is_true(command, "awaitData"))
    }

    /// Checks that the options agree with each other, with the command and with its timeout.
    ///
    /// - `has_output`: whether the command is an aggregation that writes its output.
    pub(super) fn check(
        &self,
        command: RawDocument<'_>,
        has_output: bool,
        timeout: Option<Duration>,
    ) -> Result<(), Error> {
        self.comment.as_ref().map_or(Ok(()), convert::check_depth)?;
        if self.timeout_mode == Some(TimeoutMode::Iteration) && has_output {
            return Err(Error::Cursor("timeout_mode Iteration is not for aggregations with $out or $merge"));
        }
        if self.timeout_mode == Some(TimeoutMode::CursorLifetime) {
            if timeout.is_none() {
                return Err(Error::Cursor("timeout_mode CursorLifetime needs a timeout"));
            }
            if self.is_tailable(command) {
                return Err(Error::Cursor(
                    "timeout_mode CursorLifetime is for cursors that are not tailable and have no max_await_time",
                ));
            }
        }
        if timeout.is_some_and(|timeout| self.max_await_time.is_some_and(|time| time >= timeout)) {
            return Err(Error::Cursor("max_await_time must be below the timeout"));
        }
        Ok(())
    }
}

fn is_change_stream(command: RawDocument<'_>) -> bool {
    let stages = command.get("pipeline").ok().flatten().and_then(RawValue::as_array);
    let first = stages.and_then(|stages| stages.iter().next()?.ok()?.as_document());
    first.is_some_and(|stage| stage.get("$changeStream").is_ok_and(|it| it.is_some()))
}

fn is_true(command: RawDocument<'_>, key: &str) -> bool {
    command.get(key).ok().flatten().and_then(RawValue::as_flag).unwrap_or(false)
}
