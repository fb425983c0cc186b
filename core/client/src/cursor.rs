//! Cursors: the documents of commands that reply with batches.
//!
//! Read first: Run Command, "Cursor related commands"; Find, getMore and killCursors commands,
//! "getMore"; Driver Sessions, on cursors and implicit sessions.

mod batches;
mod options;
mod reply;
mod session_cursor;

pub use options::{CursorOptions, TimeoutMode};
pub use session_cursor::SessionCursor;

use super::convert;
use super::session::SessionState;
use super::{Client, CommandOptions, Database, Error, Net, Platform};
use crate::command::{end, name_of};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use batches::{Batches, Limit, Origin};
use core::fmt;
use core::future::poll_fn;
use core::marker::PhantomData;
use core::ops::Range;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use futures_core::Stream;
use poolhouse_driver::Guard;
use poolhouse_wire::bson::Timestamp;
use poolhouse_wire::command::CommandShape;
use reply::{First, Reply, begin};
use serde::de::DeserializeOwned;

impl<P: Platform> Client<P> {
    /// Runs a command that replies with a cursor, such as `find`, `aggregate`, `listCollections` or
    /// `listIndexes`, and returns the cursor.
    ///
    /// - `options`: of the command. Its timeout, or that of the client, applies to the command and to
    ///   each call for a document, or to all of them together: see [`CursorOptions::timeout_mode`].
    /// - `cursor_options`: of the commands for further batches, and `timeout_mode`.
    ///
    /// Cost: five allocations for the cursor and its first batch, and two for each further batch. A batch
    /// is received into the memory of the last one; its bytes are copied only if they are compressed. A
    /// cursor holds one batch, or two with [`CursorOptions::read_ahead`]. Behind a load balancer, a
    /// cursor of several batches holds its connection until its end.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`]; [`Error::Cursor`] if the command has the write concern `w: 0`, or
    /// the options contradict each other or the command ([`CursorOptions::timeout_mode`],
    /// [`CursorOptions::max_await_time`]), and nothing is sent; and if the reply is no cursor or belongs
    /// to another database. The server's cursor is closed then.
    ///
    /// Source: Run Command, "Cursor related commands"; Load Balancers, "Behaviour With Cursors"; Client
    /// Side Operations Timeout, "Cursors".
    pub async fn run_cursor_command<T>(
        &self,
        database: &str,
        command: bson::Document,
        options: CommandOptions<'_>,
        cursor_options: CursorOptions,
    ) -> Result<Cursor<P, T>, Error> {
        let mut session = SessionState::default();
        let begun = self.begin_cursor(&mut session, database, command, options, cursor_options).await;
        if !matches!(&begun, Ok(batches) if batches.id != 0) {
            session.end(self);
        }
        let mut batches = begun?;
        batches.session = session;
        Ok(Cursor::new(batches))
    }

    /// Runs a command that replies with a cursor. The caller has its session.
    async fn begin_cursor(
        &self,
        session: &mut SessionState<P>,
        database: &str,
        command: bson::Document,
        options: CommandOptions<'_>,
        cursor_options: CursorOptions,
    ) -> Result<Batches<P>, Error> {
        let timeout = options.limit_or(self.options().timeout);
        let command = convert::into_encoded(command)?;
        let checked = convert::checked(&command)?;
        let shape = CommandShape::parse(checked).map_err(|error| Error::Bson(error.to_string()))?;
        if !shape.is_acknowledged {
            return Err(Error::Cursor("a command without acknowledgement (w: 0) has no cursor"));
        }
        let has_output = shape.writes && shape.name == "aggregate";
        cursor_options.check(checked, has_output, timeout)?;
        let deadline = self.deadline(timeout);
        let limit = Limit::new(cursor_options.timeout_mode, timeout, deadline);
        // The server would apply the limit of an iteration to all batches, unless the cursor awaits data.
        // An aggregation that writes its output has none.
        let is_timed = limit.is_of_lifetime() || cursor_options.awaits_data(checked) || has_output;
        let begin = async |guard: Guard<'_, Net<P>>, session: &mut SessionState<P>| {
            begin(self, guard, session, database, timeout).await
        };
        let timed = (deadline, is_timed);
        let span = self.operation_span(session.transaction_span(), database, &command);
        let running = self.run_then(session, database, &command, options, timed, begin);
        let timer = self.timer(|| name_of(&command));
        let first = match span {
            None => running.await,
            Some(span) => Box::pin(span.run(running)).await,
        };
        end(timer, &first);
        let First { server, namespace, id, reply, rest, connection, operation_time, resume_token } = first?;
        let is_pinned = connection.is_some();
        // A request that waits for the application must not be ended by the limit of a call. Without
        // its connection, a cursor behind a load balancer could not be closed.
        let is_limited = timeout.is_some() || self.options().socket_timeout.is_some();
        let reads_ahead = cursor_options.read_ahead
            && !is_pinned
            && session.own.is_none()
            && !cursor_options.is_tailable(checked)
            && (limit.is_of_lifetime() || !is_limited);
        let (client, database) = (self.clone(), database.to_owned());
        Ok(Batches {
            origin: Arc::new(Origin { client, server, database, namespace, is_pinned }),
            id,
            reply,
            rest,
            session: SessionState::default(),
            owner: session.cursor_owner(),
            connection,
            options: cursor_options,
            limit,
            next_by: None,
            fetch: None,
            reads_ahead,
            fetched: None,
            spare: Reply::default(),
            operation_time,
            resume_token,
        })
    }
}

impl<P: Platform> Database<P> {
    /// Runs a command that replies with a cursor on this database, as
    /// [`Client::run_cursor_command`] does, without options.
    ///
    /// # Errors
    ///
    /// As [`Client::run_cursor_command`].
    pub async fn run_cursor_command<T>(&self, command: bson::Document) -> Result<Cursor<P, T>, Error> {
        self.run_cursor_command_with(command, CommandOptions::new(), CursorOptions::new()).await
    }

    /// Runs a command that replies with a cursor on this database, as
    /// [`Client::run_cursor_command`] does.
    ///
    /// # Errors
    ///
    /// As [`Client::run_cursor_command`].
    pub async fn run_cursor_command_with<T>(
        &self,
        command: bson::Document,
        options: CommandOptions<'_>,
        cursor_options: CursorOptions,
    ) -> Result<Cursor<P, T>, Error> {
        self.client().run_cursor_command(self.name(), command, options, cursor_options).await
    }
}

/// The documents of a command's reply and of its further batches, which are requested one by one
/// from the server that has the cursor.
///
/// It is a [`Stream`] of `Result<T, Error>`; [`Cursor::try_next`] and [`Cursor::next_raw`] need no
/// trait. After an error it has no further documents, but still its
/// [resume token](Cursor::post_batch_resume_token). A request for a batch is not retried, except
/// after an overload, on the same server.
///
/// Dropping it closes the server's cursor in the background; [`Cursor::close`] waits for that. Each
/// future may be dropped at each await: the next call continues with the same batch and the same time
/// limit. A server may reply with empty batches until the limit, or without end if there is none;
/// other tasks run between them. Until its end, a cursor has its own session, and keeps the client
/// open.
#[must_use = "a cursor that is dropped is closed on its server"]
pub struct Cursor<P: Platform, T = bson::Document> {
    /// `None` after its end.
    batches: Option<Box<Batches<P>>>,
    /// What is left of the batches after their end.
    resume_token: Vec<u8>,
    operation_time: Option<Timestamp>,
    item: PhantomData<fn() -> T>,
}

impl<P: Platform, T> Cursor<P, T> {
    fn new(batches: Batches<P>) -> Self {
        let batches = Some(Box::new(batches));
        Self { batches, resume_token: Vec::new(), operation_time: None, item: PhantomData }
    }

    /// Returns the next document, decoded by serde; `None` after the last one. A tailable cursor
    /// waits for further documents. If the call has a time limit, it ends with a timeout then, and so
    /// does the cursor.
    ///
    /// # Errors
    ///
    /// [`Error::Command`], for example if the server has closed the cursor (code 43), and
    /// [`Error::Operation`]; [`Error::Cursor`] if a reply has no id or batch, or another id or
    /// namespace than the cursor; [`Error::Bson`] if the document is no `T`, for example because one of its
    /// texts is not UTF-8 (a [`Utf8Lossy`](bson::Utf8Lossy) reads it). After an
    /// [`Error::Bson`] the next call returns the next document, after any other error `None`.
    pub async fn try_next(&mut self) -> Result<Option<T>, Error>
    where
        T: DeserializeOwned + Send,
    {
        poll_fn(|context| self.poll_try_next(context, false)).await
    }

    /// Returns the next document as [`Cursor::try_next`] does, but sends at most one request for a batch;
    /// `None` if that is empty. Then the cursor [is still alive](Cursor::is_alive), and the next call
    /// sends another request, with its own time limit. For a tailable cursor, whose application does
    /// something else while there are no documents.
    ///
    /// # Errors
    ///
    /// As [`Cursor::try_next`].
    pub async fn next_if_any(&mut self) -> Result<Option<T>, Error>
    where
        T: DeserializeOwned + Send,
    {
        poll_fn(|context| self.poll_try_next(context, true)).await
    }

    /// Whether the server may have further documents, or some of the last batch were not returned yet.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.batches.as_ref().is_some_and(|batches| batches.is_alive())
    }

    /// Returns `operationTime` of the reply to the command that created the cursor; `None` if it had
    /// none. A change stream without a token can be resumed from it.
    ///
    /// Source: Change Streams, "startAtOperationTime".
    #[must_use]
    pub fn operation_time(&self) -> Option<bson::Timestamp> {
        let time = self.batches.as_ref().map_or(self.operation_time, |batches| batches.operation_time);
        time.map(convert::to_timestamp)
    }

    /// Returns `postBatchResumeToken` of the last batch, from which a change stream can be resumed after
    /// the last document of this batch; `None` if the batch has none. It is there after the end of the cursor,
    /// too.
    ///
    /// Source: Change Streams, "Updating the Cached Resume Token".
    #[must_use]
    pub fn post_batch_resume_token(&self) -> Option<&bson::RawDocument> {
        let token = self.batches.as_ref().map_or(&self.resume_token, |batches| &batches.resume_token);
        bson::RawDocument::from_bytes(token).ok()
    }

    /// Returns the next document as its bytes, which are not copied; `None` after the last one.
    ///
    /// # Errors
    ///
    /// As [`Cursor::try_next`]; [`Error::Bson`] only if the document is malformed.
    pub async fn next_raw(&mut self) -> Result<Option<&bson::RawDocument>, Error> {
        let document = poll_fn(|context| self.poll_document(context, false)).await?;
        self.raw(document)
    }

    /// Closes the cursor, and waits until its server has closed it, for at most 10 s, or the time limit of
    /// the cursor if that is shorter.
    ///
    /// # Errors
    ///
    /// [`Error::Command`] or [`Error::Operation`]: the server was not reached. It closes a cursor that
    /// is not used after some minutes.
    ///
    /// Source: Client Side Operations Timeout, "Cursors".
    pub async fn close(self) -> Result<(), Error> {
        self.close_by(None).await
    }

    /// Closes the cursor as [`Cursor::close`] does, with a time limit of this call instead of that of the
    /// cursor. Zero and [`Duration::MAX`] are never reached.
    ///
    /// # Errors
    ///
    /// As [`Cursor::close`].
    pub async fn close_within(self, limit: Duration) -> Result<(), Error> {
        self.close_by(Some(limit)).await
    }

    async fn close_by(mut self, limit: Option<Duration>) -> Result<(), Error> {
        // If this future is dropped, the cursor is.
        let Some(batches) = &mut self.batches else { return Ok(()) };
        let outcome = batches.kill(limit).await;
        self.batches = None;
        outcome
    }

    fn poll_try_next(&mut self, context: &mut Context<'_>, if_any: bool) -> Poll<Result<Option<T>, Error>>
    where
        T: DeserializeOwned + Send,
    {
        let document = ready!(self.poll_document(context, if_any))?;
        Poll::Ready(self.decoded(document))
    }

    /// Waits for the next document, and returns its range in the last reply; `None` after the last
    /// one.
    ///
    /// - `if_any`: whether it also returns `None` after an empty batch.
    fn poll_document(&mut self, context: &mut Context<'_>, if_any: bool) -> Poll<Result<Option<Range<usize>>, Error>> {
        let Some(batches) = &mut self.batches else { return Poll::Ready(Ok(None)) };
        let outcome = ready!(batches.poll_document(context, if_any));
        Poll::Ready(self.ended_by(outcome))
    }

    /// Ends the cursor with its last document, and with an error.
    fn ended_by(&mut self, outcome: Result<Option<Range<usize>>, Error>) -> Result<Option<Range<usize>>, Error> {
        if outcome.is_err() || (matches!(outcome, Ok(None)) && !self.is_alive()) {
            self.end();
        }
        outcome
    }

    fn decoded(&self, document: Option<Range<usize>>) -> Result<Option<T>, Error>
    where
        T: DeserializeOwned + Send,
    {
        self.batches.as_ref().zip(document).map(|(batches, document)| batches.decode(document)).transpose()
    }

    fn raw(&self, document: Option<Range<usize>>) -> Result<Option<&bson::RawDocument>, Error> {
        let bytes = self.batches.as_ref().zip(document).map(|(batches, document)| batches.bytes(document));
        let document = bytes.map(bson::RawDocument::from_bytes).transpose();
        document.map_err(|error| Error::Bson(error.to_string()))
    }

    fn end(&mut self) {
        if let Some(mut batches) = self.batches.take() {
            (self.resume_token, self.operation_time) =
                (core::mem::take(&mut batches.resume_token), batches.operation_time);
            batches.kill_in_background();
        }
    }
}

impl<P: Platform, T: DeserializeOwned + Send> Stream for Cursor<P, T> {
    type Item = Result<T, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_try_next(context, false).map(Result::transpose)
    }
}

impl<P: Platform, T> Drop for Cursor<P, T> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<P: Platform, T> fmt::Debug for Cursor<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.batches.as_ref().map(|batches| &batches.origin.namespace);
        f.debug_struct("Cursor").field("namespace", &namespace).finish_non_exhaustive()
    }
}
