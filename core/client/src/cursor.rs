//! Cursors: the documents of commands that reply with batches.
//!
//! Read first: Run Command, "Cursor related commands"; Find, getMore and killCursors commands,
//! "getMore"; Driver Sessions, on cursors and implicit sessions.

use super::connection::{self, reply_of};
use super::session::SessionState;
use super::transaction::PinnedConnection;
use super::{Client, ClientSession, CommandOptions, Database, Error, Net, Platform};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::future::poll_fn;
use core::marker::PhantomData;
use core::ops::Range;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use futures_core::Stream;
use poolhouse_core::pool::Pinned;
use poolhouse_core::{Instant, ServerType};
use poolhouse_driver::{BaseRuntime as _, Guard, OperationError, Runtime, overload_pause, yield_now};
use poolhouse_wire::EncodeError;
use poolhouse_wire::bson::{DocumentWriter, ElementType, RawDocument, RawValue};
use serde::de::DeserializeOwned;

/// How long the client waits in the background until the server has closed a cursor.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// The options of the `getMore` commands of a [`Cursor`].
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

impl<P: Platform> Client<P> {
    /// Runs a command that replies with a cursor, such as `find`, `aggregate`, `listCollections` or
    /// `listIndexes`, and returns the cursor.
    ///
    /// - `options`: of the command. Its timeout, or that of the client, also applies to each further
    ///   batch.
    /// - `cursor_options`: of the commands for further batches.
    ///
    /// Cost: five allocations for the cursor and its first batch, and two for each further batch.
    /// A cursor holds one batch, and another one while it is received. Behind a load balancer, a
    /// cursor of several batches holds its connection until its end.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`]; [`Error::Cursor`] if the reply is no cursor or belongs to another
    /// database. The server's cursor is closed then.
    ///
    /// Source: Run Command, "Cursor related commands"; Load Balancers, "Behaviour With Cursors".
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
        let mut batches = Box::new(begun?);
        batches.session = session;
        Ok(Cursor { batches: Some(batches), item: PhantomData })
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
        let timeout = options.timeout.or(self.options().timeout);
        let command = connection::encoded(&command)?;
        let begin = async |guard: Guard<'_, Net<P>>, session: &mut SessionState<P>| {
            begin(self, guard, session, database, timeout).await
        };
        let first = match self.operation_span(database, &command) {
            None => self.run_then(session, database, &command, options, false, begin).await,
            Some(span) => Box::pin(span.run(self.run_then(session, database, &command, options, false, begin))).await,
        };
        let First { server, namespace, id, reply, rest, connection } = first?;
        let is_pinned = connection.is_some();
        let (client, database) = (self.clone(), database.to_owned());
        Ok(Batches {
            origin: Arc::new(Origin { client, server, database, namespace, is_pinned }),
            id,
            reply,
            rest,
            session: SessionState::default(),
            connection,
            options: cursor_options,
            timeout,
            fetch: None,
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
/// trait. After an error it has no further documents. A request for a batch is not retried, except
/// after an overload, on the same server.
///
/// Dropping it closes the server's cursor in the background; [`Cursor::close`] waits for that. Each
/// future may be dropped at each await: the next call continues with the same batch. A server may
/// reply with empty batches without end; other tasks run between them. Until its end, a cursor has
/// its own session, and keeps the client open.
#[must_use = "a cursor that is dropped is closed on its server"]
pub struct Cursor<P: Platform, T = bson::Document> {
    /// `None` after its end.
    batches: Option<Box<Batches<P>>>,
    item: PhantomData<fn() -> T>,
}

/// A cursor in a [`ClientSession`]: as [`Cursor`], but it borrows the session, and has the session's
/// transaction or snapshot.
///
/// Dropping it closes the server's cursor in the background; in a transaction, the server closes it
/// at the end of the transaction. A future of [`try_next`](Self::try_next) that is dropped while it
/// waits for a batch ends the cursor, because the batch is lost.
#[must_use = "a cursor that is dropped is closed on its server"]
pub struct SessionCursor<'s, P: Platform, T = bson::Document> {
    session: &'s mut ClientSession<P>,
    /// `None` after its end.
    batches: Option<Box<Batches<P>>>,
    /// A request for a batch has begun, and has not ended.
    is_fetching: bool,
    item: PhantomData<fn() -> T>,
}

impl<P: Platform> ClientSession<P> {
    /// Runs a command that replies with a cursor in this session, as [`Client::run_cursor_command`]
    /// does.
    ///
    /// # Errors
    ///
    /// As [`Client::run_cursor_command`] and [`ClientSession::run_command`].
    pub async fn run_cursor_command<T>(
        &mut self,
        database: &str,
        command: bson::Document,
        options: CommandOptions<'_>,
        cursor_options: CursorOptions,
    ) -> Result<SessionCursor<'_, P, T>, Error> {
        let begun = self.client.begin_cursor(&mut self.state, database, command, options, cursor_options).await;
        let batches = Some(Box::new(begun?));
        Ok(SessionCursor { session: self, batches, is_fetching: false, item: PhantomData })
    }
}

impl<P: Platform, T> SessionCursor<'_, P, T> {
    /// Returns the next document, as [`Cursor::try_next`] does.
    ///
    /// # Errors
    ///
    /// As [`Cursor::try_next`]; [`Error::Cursor`] if an earlier future of this function was dropped
    /// while it waited for a batch.
    pub async fn try_next(&mut self) -> Result<Option<T>, Error>
    where
        T: DeserializeOwned,
    {
        let Some(document) = self.next_raw().await? else { return Ok(None) };
        bson::deserialize_from_slice(document.as_bytes()).map(Some).map_err(|error| Error::Bson(error.to_string()))
    }

    /// Returns the next document as its bytes, as [`Cursor::next_raw`] does.
    ///
    /// # Errors
    ///
    /// As [`SessionCursor::try_next`].
    pub async fn next_raw(&mut self) -> Result<Option<&bson::RawDocument>, Error> {
        let document = match self.next_range().await {
            Ok(Some(document)) => document,
            Ok(None) => {
                self.batches = None;
                return Ok(None);
            }
            Err(error) => {
                self.end();
                return Err(error);
            }
        };
        let bytes = self.batches.as_ref().and_then(|batches| batches.reply.get(document)).unwrap_or_default();
        bson::RawDocument::from_bytes(bytes).map(Some).map_err(|error| Error::Bson(error.to_string()))
    }

    /// Closes the cursor, and waits until its server has closed it.
    ///
    /// # Errors
    ///
    /// As [`Cursor::close`].
    pub async fn close(mut self) -> Result<(), Error> {
        let Some(batches) = &mut self.batches else { return Ok(()) };
        let outcome = batches.kill_in(&mut self.session.state).await;
        self.batches = None;
        outcome
    }

    /// Waits for the next document, and returns its range in the last reply.
    async fn next_range(&mut self) -> Result<Option<Range<usize>>, Error> {
        let Some(batches) = &mut self.batches else { return Ok(None) };
        if self.is_fetching {
            return Err(Error::Cursor("a request for a batch was dropped before its reply"));
        }
        while batches.rest.is_empty() {
            if batches.id == 0 {
                return Ok(None);
            }
            let command = batches.get_more()?;
            let origin = Arc::clone(&batches.origin);
            let state = &mut self.session.state;
            let deadline = origin.client.deadline(batches.timeout);
            let deadline = deadline.into_iter().chain(state.transaction_deadline()).min();
            let mut reply = core::mem::take(&mut batches.reply);
            self.is_fetching = true;
            let fetched = origin.fetch(state, &mut batches.connection, &command, deadline, &mut reply).await;
            self.is_fetching = false;
            batches.take_reply(fetched.map(|()| reply))?;
            if batches.rest.is_empty() && batches.id != 0 {
                // The server may reply with empty batches at once, without end.
                yield_now().await;
            }
        }
        batches.take().map(Some)
    }

    fn end(&mut self) {
        let Some(batches) = self.batches.take() else { return };
        if !self.session.in_transaction() {
            batches.kill_in_background();
        }
    }
}

impl<P: Platform, T> Drop for SessionCursor<'_, P, T> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<P: Platform, T> fmt::Debug for SessionCursor<'_, P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.batches.as_ref().map(|batches| &batches.origin.namespace);
        f.debug_struct("SessionCursor").field("namespace", &namespace).finish_non_exhaustive()
    }
}

/// A request for a batch. It returns the cursor's session and connection, and the reply.
type Fetch<P> = Pin<Box<dyn Future<Output = Fetched<P>> + Send>>;

type Fetched<P> = (SessionState<P>, Option<PinnedConnection<P>>, Result<Vec<u8>, Error>);

/// Where a cursor is.
struct Origin<P: Platform> {
    client: Client<P>,
    server: <Net<P> as Runtime>::ServerHandle,
    database: String,
    namespace: String,
    /// Whether the cursor can be used on its connection only.
    is_pinned: bool,
}

struct Batches<P: Platform> {
    origin: Arc<Origin<P>>,
    /// The server's id of the cursor; 0 if it has no further batch.
    id: i64,
    /// The last reply.
    reply: Vec<u8>,
    /// The elements of its batch that were not returned yet.
    rest: Range<usize>,
    /// Empty during a request, and if the application holds the session.
    session: SessionState<P>,
    /// The connection of the cursor behind a load balancer; `None` during a request.
    connection: Option<PinnedConnection<P>>,
    options: CursorOptions,
    timeout: Option<Duration>,
    fetch: Option<Fetch<P>>,
}

impl<P: Platform, T> Cursor<P, T> {
    /// Returns the next document, decoded by serde; `None` after the last one. A tailable cursor
    /// waits for further documents.
    ///
    /// # Errors
    ///
    /// [`Error::Command`], for example if the server has closed the cursor (code 43), and
    /// [`Error::Operation`]; [`Error::Cursor`] if a reply has no id or batch, or another id or
    /// namespace than the cursor; [`Error::Bson`] if the document is no `T`. After an
    /// [`Error::Bson`] the next call returns the next document, after any other error `None`.
    pub async fn try_next(&mut self) -> Result<Option<T>, Error>
    where
        T: DeserializeOwned,
    {
        poll_fn(|context| self.poll_try_next(context)).await
    }

    /// Returns the next document as its bytes, which are not copied; `None` after the last one.
    ///
    /// # Errors
    ///
    /// As [`Cursor::try_next`]; [`Error::Bson`] only if the document is malformed.
    pub async fn next_raw(&mut self) -> Result<Option<&bson::RawDocument>, Error> {
        let Some(document) = poll_fn(|context| self.poll_document(context)).await? else { return Ok(None) };
        let bytes = self.bytes(document);
        bson::RawDocument::from_bytes(bytes).map(Some).map_err(|error| Error::Bson(error.to_string()))
    }

    /// Closes the cursor, and waits until its server has closed it.
    ///
    /// # Errors
    ///
    /// [`Error::Command`] or [`Error::Operation`]: the server was not reached. It closes a cursor that
    /// is not used after some minutes.
    pub async fn close(mut self) -> Result<(), Error> {
        // If this future is dropped, the cursor is.
        let Some(batches) = &mut self.batches else { return Ok(()) };
        let outcome = batches.kill().await;
        self.batches = None;
        outcome
    }

    fn poll_try_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<T>, Error>>
    where
        T: DeserializeOwned,
    {
        let Some(document) = ready!(self.poll_document(context))? else { return Poll::Ready(Ok(None)) };
        let bytes = self.bytes(document);
        Poll::Ready(bson::deserialize_from_slice(bytes).map(Some).map_err(|error| Error::Bson(error.to_string())))
    }

    /// Waits for the next document, and returns its range in the last reply; `None` after the last
    /// one.
    fn poll_document(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Range<usize>>, Error>> {
        let Some(batches) = &mut self.batches else { return Poll::Ready(Ok(None)) };
        let outcome = ready!(batches.poll_document(context));
        if !matches!(outcome, Ok(Some(_))) {
            self.end();
        }
        Poll::Ready(outcome)
    }

    fn bytes(&self, document: Range<usize>) -> &[u8] {
        self.batches.as_ref().and_then(|batches| batches.reply.get(document)).unwrap_or_default()
    }

    fn end(&mut self) {
        if let Some(batches) = self.batches.take() {
            batches.kill_in_background();
        }
    }
}

impl<P: Platform, T: DeserializeOwned> Stream for Cursor<P, T> {
    type Item = Result<T, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_try_next(context).map(Result::transpose)
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

impl<P: Platform> Client<P> {
    /// Runs work in the background. [`Client::close`] waits for it, so it must have a time limit.
    pub(super) fn in_background(&self, work: impl Future<Output = ()> + Send + 'static) {
        if !self.is_forked() {
            self.inner.tasks.spawn(self.inner.core.runtime().platform(), work);
        }
    }

    /// - `timeout`: of the cursor.
    pub(super) fn kill_deadline(&self, timeout: Option<Duration>) -> Option<Instant> {
        self.deadline(Some(timeout.unwrap_or(KILL_TIMEOUT).min(KILL_TIMEOUT)))
    }
}

impl<P: Platform> Origin<P> {
    /// Runs a command on the server of the cursor, and copies the reply. After an overload, it pauses
    /// and runs it again.
    async fn fetch(
        &self,
        session: &mut SessionState<P>,
        connection: &mut Option<PinnedConnection<P>>,
        command: &[u8],
        deadline: Option<Instant>,
        reply: &mut Vec<u8>,
    ) -> Result<(), Error> {
        match self.client.operation_span(&self.database, command) {
            None => self.fetch_within(session, connection, command, deadline, reply).await,
            Some(span) => Box::pin(span.run(self.fetch_within(session, connection, command, deadline, reply))).await,
        }
    }

    async fn fetch_within(
        &self,
        session: &mut SessionState<P>,
        connection: &mut Option<PinnedConnection<P>>,
        command: &[u8],
        deadline: Option<Instant>,
        reply: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let (core, options) = (&self.client.inner.core, self.client.options());
        let retries_max = if options.retry_reads { options.max_adaptive_retries } else { 0 };
        let operation_id = self.client.operation_id();
        let mut retry = 0;
        loop {
            let error = match self.run(session, connection, command, (deadline, operation_id), reply).await {
                Ok(()) => return Ok(()),
                Err(error) if !error.is_overload() || retry == retries_max => return Err(error),
                Err(error) => error,
            };
            retry += 1;
            let until = self.client.now().saturating_add(overload_pause(retry, core.runtime().entropy()));
            if deadline.is_some_and(|deadline| until >= deadline) {
                return Err(error);
            }
            core.runtime().sleep_until(until).await;
        }
    }

    /// Runs a command on the server of the cursor, and copies the reply.
    async fn run(
        &self,
        session: &mut SessionState<P>,
        connection: &mut Option<PinnedConnection<P>>,
        command: &[u8],
        (deadline, operation_id): (Option<Instant>, i64),
        reply: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let core = &self.client.inner.core;
        let pinned = match connection.take() {
            Some(connection) => connection.resume(&self.client, deadline),
            None => session.take_connection(&self.client, deadline),
        };
        let mut guard = match pinned {
            Some(guard) => guard,
            None => {
                let limit = core.check_out_limit(deadline);
                let checked_out = core.check_out_of(self.server.clone(), limit, deadline).await;
                checked_out.map_err(|error| session.failed(error.into()))?
            }
        };
        guard.set_operation_id(operation_id);
        if self.client.is_paced(deadline) {
            self.client.pace(&mut guard);
        }
        let command = connection::checked(command)?;
        let outcome =
            connection::run_once(&mut guard, &self.client, session, &self.database, command, None, false).await;
        if outcome.is_ok() {
            reply.clear();
            reply.extend_from_slice(reply_of(&guard)?.as_bytes());
        }
        if self.is_pinned {
            *connection = PinnedConnection::new(&self.client, guard, Pinned::Cursor);
        } else {
            session.keep(&self.client, guard);
        }
        outcome
    }
}

impl<P: Platform> Batches<P> {
    /// Waits for the next document, and returns its range in the last reply; `None` after the last
    /// one.
    fn poll_document(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Range<usize>>, Error>> {
        loop {
            if !self.rest.is_empty() {
                return Poll::Ready(self.take().map(Some));
            }
            if self.id == 0 {
                return Poll::Ready(Ok(None));
            }
            let mut fetch = self.fetch.take().unwrap_or_else(|| self.fetch());
            let Poll::Ready((session, connection, reply)) = fetch.as_mut().poll(context) else {
                self.fetch = Some(fetch);
                return Poll::Pending;
            };
            (self.session, self.connection) = (session, connection);
            let outcome = self.take_reply(reply);
            if self.id == 0 {
                self.session.end(&self.origin.client);
            }
            outcome?;
            if self.rest.is_empty() && self.id != 0 {
                // The server may reply with empty batches at once, without end.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Requests the next batch.
    fn fetch(&mut self) -> Fetch<P> {
        let command = self.get_more();
        let origin = Arc::clone(&self.origin);
        let deadline = origin.client.deadline(self.timeout);
        let (mut session, mut reply) = (core::mem::take(&mut self.session), core::mem::take(&mut self.reply));
        let mut connection = self.connection.take();
        Box::pin(async move {
            let fetched = async {
                origin.fetch(&mut session, &mut connection, &command?, deadline, &mut reply).await?;
                Ok(reply)
            };
            let fetched = fetched.await;
            (session, connection, fetched)
        })
    }

    /// Takes the reply to a request for a batch.
    fn take_reply(&mut self, reply: Result<Vec<u8>, Error>) -> Result<(), Error> {
        let outcome = reply.and_then(|reply| self.accept(reply));
        if outcome.as_ref().is_err_and(is_gone) {
            self.id = 0;
        }
        if self.id == 0 {
            self.connection = None;
        }
        outcome
    }

    fn get_more(&self) -> Result<Vec<u8>, Error> {
        let comment = self.options.comment.as_ref().map(|comment| bson::doc! { "": comment.clone() }.to_vec());
        let comment = comment.transpose().map_err(|error| Error::Bson(error.to_string()))?;
        let comment = comment.as_deref().and_then(|bytes| RawDocument::new(bytes).ok()?.get("").ok()?);
        let (id, options) = (self.id, &self.options);
        let collection = collection(&self.origin.namespace, &self.origin.database);
        let mut command = Vec::new();
        let write = |body: &mut DocumentWriter<'_, Vec<u8>>| {
            body.int64("getMore", id)?.str("collection", collection)?;
            if let Some(count) = options.batch_size {
                body.int64("batchSize", count.into())?;
            }
            if let Some(time) = options.max_await_time {
                body.int64("maxTimeMS", i64::try_from(time.as_millis()).unwrap_or(i64::MAX))?;
            }
            comment.map_or(Ok(()), |comment| body.value("comment", comment).map(drop))
        };
        DocumentWriter::write(&mut command, write).map_err(|error| Error::Bson(error.to_string()))?;
        Ok(command)
    }

    /// Takes the batch of a reply.
    fn accept(&mut self, reply: Vec<u8>) -> Result<(), Error> {
        let document = RawDocument::new(&reply).map_err(|error| Error::Bson(error.to_string()))?;
        let batch = Batch::parse(document, "nextBatch")?;
        if batch.namespace != self.origin.namespace {
            return Err(Error::Cursor("the reply to getMore has another namespace than the cursor"));
        }
        if batch.id != 0 && batch.id != self.id {
            return Err(Error::Cursor("the reply to getMore has another cursor id"));
        }
        self.id = batch.id;
        self.rest = batch.elements;
        self.reply = reply;
        Ok(())
    }

    /// Closes the server's cursor, if it has one. A request for a batch is abandoned. If this future
    /// is dropped, the cursor counts as open.
    async fn kill(&mut self) -> Result<(), Error> {
        self.fetch = None;
        let mut session = core::mem::take(&mut self.session);
        let outcome = self.kill_in(&mut session).await;
        session.end(&self.origin.client);
        outcome
    }

    /// Closes the server's cursor, if it has one, and if its connection is not lost.
    async fn kill_in(&mut self, session: &mut SessionState<P>) -> Result<(), Error> {
        let Origin { client, database, namespace, is_pinned, .. } = &*self.origin;
        if self.id == 0 || (*is_pinned && self.connection.is_none()) {
            return Ok(());
        }
        let command = kill_command(collection(namespace, database), self.id)?;
        let deadline = client.kill_deadline(self.timeout);
        let limits = (deadline, client.operation_id());
        let outcome = match client.operation_span(database, &command) {
            None => self.origin.run(session, &mut self.connection, &command, limits, &mut self.reply).await,
            Some(span) => {
                let running = self.origin.run(session, &mut self.connection, &command, limits, &mut self.reply);
                Box::pin(span.run(running)).await
            }
        };
        self.id = 0;
        self.connection = None;
        outcome
    }

    fn kill_in_background(mut self: Box<Self>) {
        let origin = Arc::clone(&self.origin);
        self.fetch = None;
        if self.id == 0 {
            return self.session.end(&origin.client);
        }
        origin.client.in_background(async move {
            let _: Result<(), Error> = self.kill().await;
        });
    }

    /// Takes the next element of the batch, and returns the range of its document in the reply.
    fn take(&mut self) -> Result<Range<usize>, Error> {
        let malformed = Error::Cursor("an element of the batch is no document");
        let rest = self.reply.get(self.rest.clone()).unwrap_or_default();
        let key_at = 1;
        let key_len = rest.get(key_at..).and_then(|rest| rest.iter().position(|byte| *byte == 0));
        let found = key_len.and_then(|key_len| {
            let at = key_at + key_len + 1;
            let (document, _) = RawDocument::split_first(rest.get(at..)?).ok()?;
            (rest.first() == Some(&ElementType::Document.tag())).then(|| at..at + document.as_bytes().len())
        });
        let Some(found) = found else {
            self.rest.start = self.rest.end;
            return Err(malformed);
        };
        let document = self.rest.start + found.start..self.rest.start + found.end;
        self.rest.start = document.end;
        Ok(document)
    }
}

/// Whether the server certainly has no cursor after this error of `getMore`: its connection failed,
/// or the cursor was not found or was killed.
fn is_gone(error: &Error) -> bool {
    if let Error::Command(error) = error {
        return matches!(error.code, 43 | 237);
    }
    let failure = error.operation().filter(|failure| **failure != OperationError::Timeout);
    failure.is_some_and(|failure| failure.connection_cause().is_some())
}

fn kill_command(collection: &str, id: i64) -> Result<Vec<u8>, Error> {
    let mut command = Vec::new();
    let write = |body: &mut DocumentWriter<'_, Vec<u8>>| -> Result<(), EncodeError> {
        body.str("killCursors", collection)?;
        body.array("cursors", |ids| ids.value(RawValue::Int64(id)).map(drop)).map(drop)
    };
    DocumentWriter::write(&mut command, write).map_err(|error| Error::Bson(error.to_string()))?;
    Ok(command)
}

/// The reply to a command that creates a cursor.
struct First<P: Platform> {
    server: <Net<P> as Runtime>::ServerHandle,
    namespace: String,
    id: i64,
    reply: Vec<u8>,
    rest: Range<usize>,
    /// The connection of a cursor that can be used on it only.
    connection: Option<PinnedConnection<P>>,
}

/// Reads the reply to a command that creates a cursor. A cursor that cannot be used is closed on the
/// same connection.
async fn begin<P: Platform>(
    client: &Client<P>,
    mut guard: Guard<'_, Net<P>>,
    session: &mut SessionState<P>,
    database: &str,
    timeout: Option<Duration>,
) -> Result<First<P>, Error> {
    let reply = reply_of(&guard)?;
    let Batch { id, namespace, elements: rest } = match Batch::parse(reply, "firstBatch") {
        Ok(batch) => batch,
        Err(error) => {
            session.keep(client, guard);
            return Err(session.failed(error));
        }
    };
    if !collection(namespace, database).is_empty() {
        let (namespace, reply) = (namespace.to_owned(), reply.as_bytes().to_vec());
        let server = guard.server().clone();
        let is_balanced = guard.established().is_some_and(|it| it.server_type == ServerType::LoadBalancer);
        // A transaction has its own connection.
        let connection = if id != 0 && is_balanced && !session.in_transaction() {
            PinnedConnection::new(client, guard, Pinned::Cursor)
        } else {
            session.keep(client, guard);
            None
        };
        return Ok(First { server, namespace, id, reply, rest, connection });
    }
    if let Some((database, collection)) = namespace.split_once('.').filter(|_| id != 0) {
        let (database, command) = (database.to_owned(), kill_command(collection, id)?);
        guard.set_deadline(client.kill_deadline(timeout));
        // The fault of the cursor is the error that is returned.
        let command = connection::checked(&command)?;
        let _: Result<(), Error> =
            connection::run_once(&mut guard, client, session, &database, command, None, false).await;
    }
    session.keep(client, guard);
    Err(Error::Cursor("the cursor's namespace is not of the command's database"))
}

/// The cursor document of a reply.
struct Batch<'a> {
    id: i64,
    namespace: &'a str,
    /// The elements of the batch, as a range of the reply.
    elements: Range<usize>,
}

impl<'a> Batch<'a> {
    /// - `name`: of the batch.
    fn parse(reply: RawDocument<'a>, name: &str) -> Result<Self, Error> {
        let get = |document: RawDocument<'a>, key: &str| document.get(key).ok().flatten();
        let cursor = get(reply, "cursor").and_then(RawValue::as_document);
        let cursor = cursor.ok_or(Error::Cursor("the reply has no cursor"))?;
        let id = get(cursor, "id").and_then(RawValue::as_integer);
        let namespace = get(cursor, "ns").and_then(RawValue::as_str);
        let batch = get(cursor, name).and_then(RawValue::as_array);
        let batch = batch.ok_or(Error::Cursor("the cursor has no batch"))?.as_document();
        // Both offsets are counted from the start of the message.
        let start = usize::try_from(batch.offset().saturating_sub(reply.offset())).unwrap_or(usize::MAX);
        Ok(Self {
            id: id.ok_or(Error::Cursor("the cursor has no id"))?,
            namespace: namespace.ok_or(Error::Cursor("the cursor has no namespace"))?,
            elements: start.saturating_add(4)..start.saturating_add(batch.as_bytes().len().saturating_sub(1)),
        })
    }
}

/// Returns the collection of a namespace; empty if it is not of this database.
fn collection<'a>(namespace: &'a str, database: &str) -> &'a str {
    namespace.strip_prefix(database).and_then(|rest| rest.strip_prefix('.')).unwrap_or_default()
}
