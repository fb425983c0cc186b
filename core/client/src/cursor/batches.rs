//! The batches of a cursor: requests for them, and the end of the server's cursor.
//!
//! Read first: Find, getMore and killCursors commands, "getMore", "killCursors".

use super::reply::{Batch, Reply, collection, is_gone, kill_command, kill_time};
use super::{CursorOptions, TimeoutMode};
use crate::command::{end, name_of};
use crate::session::{CursorOwner, MaxTime, SessionState};
use crate::transaction::PinnedConnection;
use crate::{Client, CommandOptions, Error, Net, Platform};
use crate::{connection, convert};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::pool::Pinned;
use poolhouse_driver::{AttemptError as _, BaseRuntime as _, OperationError, Runtime, overload_pause};
use poolhouse_wire::bson::{DocumentWriter, ElementType, RawDocument, Timestamp};
use serde::de::DeserializeOwned;

/// How long the client waits in the background until the server has closed a cursor.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// A request for a batch. It returns the cursor's session and connection, and the reply.
type Fetch<P> = Pin<Box<dyn Future<Output = Fetched<P>> + Send>>;

type Fetched<P> = (SessionState<P>, Option<PinnedConnection<P>>, Result<Reply, Error>);

/// The time limit of a cursor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// Of each call for a document, and of `killCursors`; `None` is no limit.
    ///
    /// Source: Client Side Operations Timeout, "Cursors".
    timeout: Option<Duration>,
    /// The deadline of the command and all requests together, if the timeout is that of the
    /// cursor's lifetime.
    end: Option<Instant>,
}

impl Limit {
    /// - `timeout`, `deadline`: of the command.
    pub(super) fn new(mode: Option<TimeoutMode>, timeout: Option<Duration>, deadline: Option<Instant>) -> Self {
        Self { timeout, end: deadline.filter(|_| mode == Some(TimeoutMode::CursorLifetime)) }
    }

    /// Whether it applies to the command and all requests together.
    pub(super) const fn is_of_lifetime(&self) -> bool {
        self.end.is_some()
    }

    /// Returns the deadline of a call for a document that begins now.
    fn deadline<P: Platform>(&self, client: &Client<P>) -> Option<Instant> {
        self.end.or_else(|| client.deadline(self.timeout))
    }
}

/// Where a cursor is.
pub(super) struct Origin<P: Platform> {
    pub(super) client: Client<P>,
    pub(super) server: <Net<P> as Runtime>::ServerHandle,
    pub(super) database: String,
    pub(super) namespace: String,
    /// Whether the cursor can be used on its connection only.
    pub(super) is_pinned: bool,
}

/// The state of a cursor.
pub(super) struct Batches<P: Platform> {
    pub(super) origin: Arc<Origin<P>>,
    /// The server's id of the cursor; 0 if it has no further batch.
    pub(super) id: i64,
    /// The last reply.
    pub(super) reply: Reply,
    /// The elements of its batch that were not returned yet.
    pub(super) rest: Range<usize>,
    /// Empty during a request, and if the application holds the session.
    pub(super) session: SessionState<P>,
    /// Set if the application holds the session.
    pub(super) owner: Option<CursorOwner>,
    /// The connection of the cursor behind a load balancer; `None` during a request.
    pub(super) connection: Option<PinnedConnection<P>>,
    pub(super) options: CursorOptions,
    pub(super) limit: Limit,
    /// The deadline of the call for a document whose batches were empty so far; `None` before its
    /// first request, and without a limit.
    pub(super) next_by: Option<Instant>,
    pub(super) fetch: Option<Fetch<P>>,
    /// Whether each batch is requested before the documents of the last one are returned.
    pub(super) reads_ahead: bool,
    /// The outcome of a request that ended before it was waited for.
    pub(super) fetched: Option<Fetched<P>>,
    /// The memory of the batch before the last one, for the next, if the cursor reads ahead.
    pub(super) spare: Reply,
    /// Of the reply to the command that created the cursor.
    pub(super) operation_time: Option<Timestamp>,
    /// `postBatchResumeToken` of the last batch; empty if it has none.
    pub(super) resume_token: Vec<u8>,
}

impl<P: Platform> Client<P> {
    /// Ends a cursor or a transaction in the background. [`Client::close`] waits for it, so it must
    /// have a time limit.
    pub(in super::super) fn in_background(&self, work: impl Future<Output = ()> + Send + 'static) {
        if !self.is_forked() {
            self.inner.tasks.spawn_end(self.inner.core.runtime().platform(), work);
        }
    }

    /// - `timeout`: of the cursor.
    pub(in super::super) fn kill_deadline(&self, timeout: Option<Duration>) -> Option<Instant> {
        self.deadline(Some(timeout.unwrap_or(KILL_TIMEOUT).min(KILL_TIMEOUT)))
    }
}

impl<P: Platform> Origin<P> {
    /// Runs a command on the server of the cursor, and takes the reply. After an overload, it pauses
    /// and runs it again.
    pub(super) async fn fetch(
        &self,
        session: &mut SessionState<P>,
        connection: &mut Option<PinnedConnection<P>>,
        (command, max_time): (&[u8], MaxTime),
        deadline: Option<Instant>,
        reply: &mut Reply,
    ) -> Result<(), Error> {
        let span = self.client.operation_span(session.transaction_span(), &self.database, command);
        let fetching = self.fetch_within(session, connection, (command, max_time), deadline, reply);
        let timer = self.client.timer(|| name_of(command));
        let result = match span {
            None => fetching.await,
            Some(span) => Box::pin(span.run(fetching)).await,
        };
        end(timer, &result);
        result
    }

    async fn fetch_within(
        &self,
        session: &mut SessionState<P>,
        connection: &mut Option<PinnedConnection<P>>,
        command: (&[u8], MaxTime),
        deadline: Option<Instant>,
        reply: &mut Reply,
    ) -> Result<(), Error> {
        let (core, options) = (&self.client.inner.core, self.client.options());
        // The limit of a cursor's lifetime may have passed while its documents were used.
        if deadline.is_some_and(|deadline| deadline <= self.client.now()) {
            // Nothing was sent, so the transaction has not failed.
            return Err(OperationError::Timeout.into());
        }
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
                return Err(error.timed_out());
            }
            core.runtime().sleep_until(until).await;
            core.events().retried(1);
        }
    }

    /// Runs a command on the server of the cursor, and takes the reply, which is received into the
    /// memory of an earlier one.
    async fn run(
        &self,
        session: &mut SessionState<P>,
        connection: &mut Option<PinnedConnection<P>>,
        (command, max_time): (&[u8], MaxTime),
        (deadline, operation_id): (Option<Instant>, i64),
        reply: &mut Reply,
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
        let command = convert::checked(command)?;
        let lent = reply.lend(&mut guard);
        let outcome =
            connection::run_once(&mut guard, &self.client, session, &self.database, command, None, max_time).await;
        if outcome.is_ok() {
            reply.take(&mut guard, lent)?;
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
    ///
    /// - `if_any`: whether it also returns `None` after an empty batch.
    pub(super) fn poll_document(
        &mut self,
        context: &mut Context<'_>,
        if_any: bool,
    ) -> Poll<Result<Option<Range<usize>>, Error>> {
        loop {
            if self.reads_ahead && self.id != 0 && self.fetch.is_none() && self.fetched.is_none() {
                self.read_ahead(context);
            }
            if !self.rest.is_empty() {
                return Poll::Ready(self.take().map(Some));
            }
            if self.id == 0 {
                return Poll::Ready(Ok(None));
            }
            if self.fetched.is_none() {
                let fetch = self.fetch.take().unwrap_or_else(|| self.fetch());
                self.poll_fetch(fetch, context);
            }
            let Some((session, connection, reply)) = self.fetched.take() else { return Poll::Pending };
            (self.session, self.connection) = (session, connection);
            let outcome = self.take_reply(reply);
            if self.id == 0 {
                self.session.end(&self.origin.client);
            }
            outcome?;
            if self.rest.is_empty() && self.id != 0 {
                if if_any {
                    self.next_by = None;
                    return Poll::Ready(Ok(None));
                }
                // The server may reply with empty batches at once, without end.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Sends the request for the next batch. Its reply is read when the last batch has no further
    /// document.
    #[cold]
    fn read_ahead(&mut self, context: &mut Context<'_>) {
        let fetch = self.fetch();
        self.poll_fetch(fetch, context);
    }

    fn poll_fetch(&mut self, mut fetch: Fetch<P>, context: &mut Context<'_>) {
        match fetch.as_mut().poll(context) {
            Poll::Ready(fetched) => self.fetched = Some(fetched),
            Poll::Pending => self.fetch = Some(fetch),
        }
    }

    /// Requests the next batch.
    fn fetch(&mut self) -> Fetch<P> {
        let (command, max_time) = (self.get_more(), self.options.max_time());
        let origin = Arc::clone(&self.origin);
        let deadline = self.next_deadline();
        let memory = if self.reads_ahead {
            self.spare.reserve_as(&self.reply);
            &mut self.spare
        } else {
            &mut self.reply
        };
        let (mut session, mut reply) = (core::mem::take(&mut self.session), core::mem::take(memory));
        let mut connection = self.connection.take();
        Box::pin(async move {
            let fetched = async {
                let command = command?;
                origin.fetch(&mut session, &mut connection, (&command, max_time), deadline, &mut reply).await?;
                Ok(reply)
            };
            let fetched = fetched.await;
            (session, connection, fetched)
        })
    }

    /// Returns the deadline of a request for a batch, which empty batches do not renew.
    ///
    /// Source: Client Side Operations Timeout, "Cursors".
    pub(super) fn next_deadline(&mut self) -> Option<Instant> {
        self.next_by = self.next_by.or_else(|| self.limit.deadline(&self.origin.client));
        self.next_by
    }

    /// Takes the reply to a request for a batch.
    pub(super) fn take_reply(&mut self, reply: Result<Reply, Error>) -> Result<(), Error> {
        let outcome = reply.and_then(|reply| self.accept(reply));
        if outcome.as_ref().is_err_and(is_gone) {
            self.id = 0;
        }
        if self.id == 0 {
            self.connection = None;
        }
        outcome
    }

    pub(super) fn get_more(&self) -> Result<Vec<u8>, Error> {
        let comment =
            self.options.comment.as_ref().map(|comment| convert::encoded(&bson::doc! { "": comment.clone() }));
        let comment = comment.transpose()?;
        let comment = comment.as_deref().and_then(|bytes| RawDocument::new(bytes).ok()?.get("").ok()?);
        let (id, options) = (self.id, &self.options);
        let collection = collection(&self.origin.namespace, &self.origin.database);
        let mut command = Vec::new();
        let write = |body: &mut DocumentWriter<'_, Vec<u8>>| {
            body.int64("getMore", id)?.str("collection", collection)?;
            if let Some(count) = options.batch_size {
                body.int64("batchSize", count.into())?;
            }
            comment.map_or(Ok(()), |comment| body.value("comment", comment).map(drop))
        };
        DocumentWriter::write(&mut command, write).map_err(|error| Error::Bson(error.to_string()))?;
        Ok(command)
    }

    /// Takes the batch of a reply.
    fn accept(&mut self, reply: Reply) -> Result<(), Error> {
        let document = RawDocument::new(reply.body()).map_err(|error| Error::Bson(error.to_string()))?;
        let batch = Batch::parse(document, "nextBatch")?;
        if batch.namespace != self.origin.namespace {
            return Err(Error::Cursor("the reply to getMore has another namespace than the cursor"));
        }
        if batch.id != 0 && batch.id != self.id {
            return Err(Error::Cursor("the reply to getMore has another cursor id"));
        }
        self.id = batch.id;
        self.rest = batch.elements;
        self.resume_token.clear();
        self.resume_token.extend_from_slice(batch.resume_token.map(RawDocument::as_bytes).unwrap_or_default());
        let last = core::mem::replace(&mut self.reply, reply);
        if self.reads_ahead {
            self.spare = last;
        }
        Ok(())
    }

    /// Closes the server's cursor, if it has one. A request for a batch is abandoned. If this future
    /// is dropped, the cursor counts as open.
    ///
    /// - `limit`: of this call, if the application has given one.
    pub(super) async fn kill(&mut self, limit: Option<Duration>) -> Result<(), Error> {
        self.abandon_fetch();
        let mut session = core::mem::take(&mut self.session);
        let outcome = self.kill_in(&mut session, limit).await;
        session.end(&self.origin.client);
        outcome
    }

    /// Closes the server's cursor, if it has one, and if its connection is not lost.
    pub(super) async fn kill_in(
        &mut self,
        session: &mut SessionState<P>,
        limit: Option<Duration>,
    ) -> Result<(), Error> {
        let Origin { client, database, namespace, is_pinned, .. } = &*self.origin;
        if self.id == 0 || (*is_pinned && self.connection.is_none()) {
            return Ok(());
        }
        let command = kill_command(collection(namespace, database), self.id)?;
        let (timeout, deadline) = match limit {
            None => (self.limit.timeout, client.kill_deadline(self.limit.timeout)),
            Some(limit) => {
                let timeout = CommandOptions::new().timeout(limit).limit_or(None);
                (timeout, client.deadline(timeout))
            }
        };
        // The limit of a transaction is that of all its commands together.
        let whole = session.transaction_deadline();
        let deadline = deadline.into_iter().chain(whole).min();
        let limits = (deadline, client.operation_id());
        let max_time = if whole.is_some() { MaxTime::Rest } else { kill_time(timeout) };
        let command = (command.as_slice(), max_time);
        let span = client.operation_span(session.transaction_span(), database, command.0);
        let running = self.origin.run(session, &mut self.connection, command, limits, &mut self.reply);
        let timer = client.timer(|| "killCursors");
        let outcome = match span {
            None => running.await,
            Some(span) => Box::pin(span.run(running)).await,
        };
        end(timer, &outcome);
        self.id = 0;
        self.connection = None;
        outcome
    }

    /// Drops a request for a batch. One that has ended returns the session.
    fn abandon_fetch(&mut self) {
        self.fetch = None;
        if let Some((session, connection, reply)) = self.fetched.take() {
            (self.session, self.connection) = (session, connection);
            // The server may have closed the cursor with this batch.
            let _: Result<(), Error> = self.take_reply(reply);
        }
    }

    /// Closes the server's cursor in the background. A server closes the cursors of a transaction when that
    /// ends.
    pub(super) fn kill_in_background(mut self: Box<Self>) {
        let origin = Arc::clone(&self.origin);
        if self.owner.is_some_and(|owner| owner.transaction.is_some()) {
            return;
        }
        self.abandon_fetch();
        if self.id == 0 {
            return self.session.end(&origin.client);
        }
        origin.client.in_background(async move {
            let _: Result<(), Error> = self.kill(None).await;
        });
    }

    /// Whether there is another batch, or a document of the last one.
    pub(super) fn is_alive(&self) -> bool {
        self.id != 0 || !self.rest.is_empty()
    }

    pub(super) fn bytes(&self, document: Range<usize>) -> &[u8] {
        self.reply.body().get(document).unwrap_or_default()
    }

    /// Decodes a document of the last reply.
    ///
    /// # Errors
    ///
    /// [`Error::Bson`]: this document is no `T`; the others may be.
    pub(super) fn decode<T: DeserializeOwned + Send>(&self, document: Range<usize>) -> Result<T, Error> {
        let decoded =
            RawDocument::new(self.bytes(document)).map_err(|error| error.to_string()).and_then(convert::to_value);
        decoded.map_err(|fault| {
            let Origin { server, namespace, .. } = &*self.origin;
            let server = server.address();
            Error::Bson(format!("{server}: a document of {namespace} was not converted: {fault}"))
        })
    }

    /// Takes the next element of the batch, and returns the range of its document in the reply.
    pub(super) fn take(&mut self) -> Result<Range<usize>, Error> {
        self.next_by = None;
        let malformed = Error::Cursor("an element of the batch is no document");
        let rest = self.reply.body().get(self.rest.clone()).unwrap_or_default();
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
