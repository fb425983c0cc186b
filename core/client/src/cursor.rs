//! Cursors: the documents of commands that reply with batches.
//!
//! Read first: Run Command, "Cursor related commands"; Find, getMore and killCursors commands,
//! "getMore"; Driver Sessions, on cursors and implicit sessions.

use super::connection::{self, Parts};
use super::session::SessionState;
use super::{Client, CommandOptions, Database, Error, Net, Platform};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::future::poll_fn;
use core::marker::PhantomData;
use core::ops::Range;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use futures_core::Stream;
use poolhouse_core::ServerType;
use poolhouse_driver::{Guard, Runtime};
use poolhouse_wire::EncodeError;
use poolhouse_wire::bson::{DocumentWriter, ElementType, RawDocument, RawValue};
use poolhouse_wire::command::CommandShape;
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
    /// Cost: one allocation for the cursor, one for its first batch, and two for each further batch.
    /// A cursor holds one batch, and another one while it is received.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`]; [`Error::Cursor`] if the reply is no cursor or belongs to another
    /// database, or if the cursor is behind a load balancer: there it could be used on its
    /// connection only, which is not implemented.
    ///
    /// Source: Run Command, "Cursor related commands".
    pub async fn run_cursor_command<T>(
        &self,
        database: &str,
        command: bson::Document,
        options: CommandOptions<'_>,
        cursor_options: CursorOptions,
    ) -> Result<Cursor<P, T>, Error> {
        let timeout = options.timeout.or(self.options().timeout);
        let command = connection::encoded(&command)?;
        let mut session = SessionState::default();
        let begun = self.run_then(&mut session, database, &command, options, |guard| begin(guard, database)).await;
        let (server, first) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                session.end(self);
                return Err(error);
            }
        };
        if first.id == 0 {
            session.end(self);
        }
        let batches = Box::new(Batches {
            client: self.clone(),
            server,
            database: database.to_owned(),
            namespace: first.namespace,
            id: first.id,
            reply: first.reply,
            rest: first.batch,
            session,
            options: cursor_options,
            timeout,
        });
        Ok(Cursor { client: self.clone(), stage: Stage::Ready(batches), item: PhantomData })
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
/// trait. After an error it has no further documents.
///
/// Dropping it closes the server's cursor in the background; [`Cursor::close`] waits for that. Each
/// future may be dropped at each await: the next call continues with the same batch. A cursor has a
/// session of its own, and keeps the client open.
pub struct Cursor<P: Platform, T = bson::Document> {
    client: Client<P>,
    stage: Stage<P>,
    item: PhantomData<fn() -> T>,
}

/// A request for a batch, which returns the cursor's state.
type Fetch<P> = Pin<Box<dyn Future<Output = (Box<Batches<P>>, Result<(), Error>)> + Send>>;

enum Stage<P: Platform> {
    Ready(Box<Batches<P>>),
    Fetching(Fetch<P>),
    Ended,
}

struct Batches<P: Platform> {
    client: Client<P>,
    /// The server that has the cursor.
    server: <Net<P> as Runtime>::ServerHandle,
    database: String,
    namespace: String,
    /// The server's id of the cursor; 0 if it has no further batch.
    id: i64,
    /// The last reply.
    reply: Vec<u8>,
    /// The elements of its batch that were not returned yet.
    rest: Range<usize>,
    session: SessionState,
    options: CursorOptions,
    timeout: Option<Duration>,
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
        if !poll_fn(|context| self.poll_document(context)).await? {
            return Ok(None);
        }
        let Stage::Ready(batches) = &mut self.stage else { return Ok(None) };
        let document = batches.take()?;
        let bytes = batches.reply.get(document).unwrap_or_default();
        bson::RawDocument::from_bytes(bytes).map(Some).map_err(|error| Error::Bson(error.to_string()))
    }

    /// Closes the cursor, and waits until its server has closed it.
    ///
    /// # Errors
    ///
    /// [`Error::Command`] or [`Error::Operation`]: the server was not reached. It closes a cursor that
    /// is not used after some minutes.
    pub async fn close(mut self) -> Result<(), Error> {
        match core::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Ready(mut batches) => batches.kill().await,
            Stage::Fetching(fetch) => fetch.await.0.kill().await,
            Stage::Ended => Ok(()),
        }
    }

    fn poll_try_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<T>, Error>>
    where
        T: DeserializeOwned,
    {
        if !ready!(self.poll_document(context))? {
            return Poll::Ready(Ok(None));
        }
        let Stage::Ready(batches) = &mut self.stage else { return Poll::Ready(Ok(None)) };
        let document = batches.take()?;
        let bytes = batches.reply.get(document).unwrap_or_default();
        Poll::Ready(bson::deserialize_from_slice(bytes).map(Some).map_err(|error| Error::Bson(error.to_string())))
    }

    /// Waits until the batch has a document; false after the last one.
    fn poll_document(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, Error>> {
        loop {
            self.stage = match core::mem::replace(&mut self.stage, Stage::Ended) {
                Stage::Ended => return Poll::Ready(Ok(false)),
                Stage::Ready(batches) if !batches.rest.is_empty() => {
                    self.stage = Stage::Ready(batches);
                    return Poll::Ready(Ok(true));
                }
                Stage::Ready(batches) if batches.id == 0 => return Poll::Ready(Ok(false)),
                Stage::Ready(mut batches) => Stage::Fetching(Box::pin(async move {
                    let result = batches.fetch().await;
                    (batches, result)
                })),
                Stage::Fetching(mut fetch) => match fetch.as_mut().poll(context) {
                    Poll::Pending => {
                        self.stage = Stage::Fetching(fetch);
                        return Poll::Pending;
                    }
                    Poll::Ready((batches, Ok(()))) => Stage::Ready(batches),
                    Poll::Ready((batches, Err(error))) => {
                        self.client.kill_in_background(batches);
                        return Poll::Ready(Err(error));
                    }
                },
            };
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
        match core::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Ready(batches) => self.client.kill_in_background(batches),
            // Its reply shows whether the server still has the cursor.
            Stage::Fetching(fetch) => self.client.in_background(async move {
                let _: Result<(), Error> = fetch.await.0.kill().await;
            }),
            Stage::Ended => {}
        }
    }
}

impl<P: Platform, T> fmt::Debug for Cursor<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = match &self.stage {
            Stage::Ready(batches) => Some(&batches.namespace),
            Stage::Fetching(_) | Stage::Ended => None,
        };
        f.debug_struct("Cursor").field("namespace", &namespace).finish_non_exhaustive()
    }
}

impl<P: Platform> Client<P> {
    fn kill_in_background(&self, mut batches: Box<Batches<P>>) {
        if batches.id == 0 {
            return batches.session.end(self);
        }
        self.in_background(async move {
            let _: Result<(), Error> = batches.kill().await;
        });
    }

    /// Runs work that nothing waits for. It ends when the client is closed.
    fn in_background(&self, work: impl Future<Output = ()> + Send + 'static) {
        if !self.is_forked() {
            self.inner.tasks.spawn(self.inner.core.runtime().platform(), work);
        }
    }
}

impl<P: Platform> Batches<P> {
    /// Requests the next batch.
    async fn fetch(&mut self) -> Result<(), Error> {
        let collection = collection(&self.namespace, &self.database).to_owned();
        let comment = self.options.comment.as_ref().map(|comment| bson::doc! { "": comment.clone() }.to_vec());
        let comment = comment.transpose().map_err(|error| Error::Bson(error.to_string()))?;
        let comment = comment.as_deref().and_then(|bytes| RawDocument::new(bytes).ok()?.get("").ok()?);
        let (id, options) = (self.id, &self.options);
        let mut command = Vec::new();
        let write = |body: &mut DocumentWriter<'_, Vec<u8>>| {
            body.int64("getMore", id)?.str("collection", &collection)?;
            if let Some(count) = options.batch_size {
                body.int64("batchSize", count.into())?;
            }
            if let Some(time) = options.max_await_time {
                body.int64("maxTimeMS", i64::try_from(time.as_millis()).unwrap_or(i64::MAX))?;
            }
            comment.map_or(Ok(()), |comment| body.value("comment", comment).map(drop))
        };
        DocumentWriter::write(&mut command, write).map_err(|error| Error::Bson(error.to_string()))?;
        let deadline = self.client.deadline(self.timeout);
        let result = self.run(&command, deadline).await;
        if let Err(Error::Operation(_) | Error::Command(_)) = result {
            // The connection failed, or the server no longer has the cursor.
            self.id = 0;
        }
        if self.id == 0 {
            self.session.end(&self.client);
        }
        result
    }

    /// Runs a command on the server of the cursor, and takes the batch of its reply, if it has one.
    async fn run(&mut self, command: &[u8], deadline: Option<poolhouse_core::Instant>) -> Result<(), Error> {
        let core = &self.client.inner.core;
        let limit = core.check_out_limit(deadline);
        let mut guard = core.check_out_of(self.server.clone(), limit, deadline).await?;
        if self.client.is_paced(deadline) {
            self.client.pace(&mut guard);
        }
        let command = connection::checked(command)?;
        let shape = CommandShape::parse(command).map_err(|error| Error::Bson(error.to_string()))?;
        let additions = self.session.begin(&self.client, &shape, &guard, false, None)?;
        let parts = Parts { database: &self.database, command, preference: None, additions };
        connection::exchange(&mut guard, &self.client, &mut self.session, &parts, false).await?;
        if shape.name != "getMore" {
            return Ok(());
        }
        let reply = guard.reply().ok_or(poolhouse_driver::OperationError::Broken(poolhouse_core::Cause::Closed))?;
        let batch = Batch::parse(reply, "nextBatch")?;
        if batch.namespace != self.namespace {
            return Err(Error::Cursor("the reply to getMore has another namespace than the cursor"));
        }
        if batch.id != 0 && batch.id != self.id {
            return Err(Error::Cursor("the reply to getMore has another cursor id"));
        }
        self.id = batch.id;
        self.rest = batch.elements;
        self.reply.clear();
        self.reply.extend_from_slice(reply.as_bytes());
        Ok(())
    }

    /// Closes the server's cursor, if it has one.
    async fn kill(&mut self) -> Result<(), Error> {
        if self.id == 0 {
            self.session.end(&self.client);
            return Ok(());
        }
        let collection = collection(&self.namespace, &self.database).to_owned();
        let id = core::mem::take(&mut self.id);
        let mut command = Vec::new();
        let write = |body: &mut DocumentWriter<'_, Vec<u8>>| -> Result<(), EncodeError> {
            body.str("killCursors", &collection)?;
            body.array("cursors", |ids| ids.value(RawValue::Int64(id)).map(drop)).map(drop)
        };
        DocumentWriter::write(&mut command, write).map_err(|error| Error::Bson(error.to_string()))?;
        let deadline = self.client.deadline(Some(self.timeout.unwrap_or(KILL_TIMEOUT).min(KILL_TIMEOUT)));
        let result = self.run(&command, deadline).await;
        self.session.end(&self.client);
        result
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

/// The reply to a command that creates a cursor.
struct First {
    namespace: String,
    id: i64,
    reply: Vec<u8>,
    batch: Range<usize>,
}

/// Reads the reply to a command that creates a cursor.
fn begin<P: Platform>(
    guard: &Guard<'_, Net<P>>,
    database: &str,
) -> Result<(<Net<P> as Runtime>::ServerHandle, First), Error> {
    let reply = guard.reply().ok_or(poolhouse_driver::OperationError::Broken(poolhouse_core::Cause::Closed))?;
    let batch = Batch::parse(reply, "firstBatch")?;
    if collection(batch.namespace, database).is_empty() {
        return Err(Error::Cursor("the cursor's namespace is not of the command's database"));
    }
    let is_balanced = guard.established().is_some_and(|it| it.server_type == ServerType::LoadBalancer);
    if batch.id != 0 && is_balanced {
        return Err(Error::Cursor("cursors with several batches are not implemented behind a load balancer"));
    }
    let namespace = batch.namespace.to_owned();
    let first = First { namespace, id: batch.id, reply: reply.as_bytes().to_vec(), batch: batch.elements };
    Ok((guard.server().clone(), first))
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
