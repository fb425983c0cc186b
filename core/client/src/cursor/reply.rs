//! Replies with a cursor.
//!
//! Read first: Find, getMore and killCursors commands; Load Balancers, "Behaviour With Cursors".

use crate::connection::{self, reply_of};
use crate::convert;
use crate::session::{MaxTime, SessionState};
use crate::transaction::PinnedConnection;
use crate::{Client, Error, Net, Platform};
use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;
use poolhouse_core::ServerType;
use poolhouse_core::pool::Pinned;
use poolhouse_driver::{Guard, OperationError, Runtime};
use poolhouse_wire::EncodeError;
use poolhouse_wire::bson::{DocumentWriter, RawDocument, RawValue, Timestamp};

/// Whether the server certainly has no cursor after this error of `getMore`: its connection failed,
/// or the cursor was not found or was killed.
pub(super) fn is_gone(error: &Error) -> bool {
    if let Error::Command(error) = error {
        return matches!(error.code, 43 | 237);
    }
    let failure = error.operation().filter(|failure| **failure != OperationError::Timeout);
    failure.is_some_and(|failure| failure.connection_cause().is_some())
}

pub(super) fn kill_command(collection: &str, id: i64) -> Result<Vec<u8>, Error> {
    let mut command = Vec::new();
    let write = |body: &mut DocumentWriter<'_, Vec<u8>>| -> Result<(), EncodeError> {
        body.str("killCursors", collection)?;
        body.array("cursors", |ids| ids.value(RawValue::Int64(id)).map(drop)).map(drop)
    };
    DocumentWriter::write(&mut command, write).map_err(|error| Error::Bson(error.to_string()))?;
    Ok(command)
}

/// Returns `maxTimeMS` of `killCursors`, which has none without a time limit of the application.
///
/// - `timeout`: of the cursor.
pub(super) fn kill_time(timeout: Option<Duration>) -> MaxTime {
    MaxTime::rest_if(timeout.is_some_and(|timeout| timeout < Duration::MAX))
}

/// The reply to a command that creates a cursor.
pub(super) struct First<P: Platform> {
    pub(super) server: <Net<P> as Runtime>::ServerHandle,
    pub(super) namespace: String,
    pub(super) id: i64,
    pub(super) reply: Reply,
    pub(super) rest: Range<usize>,
    /// The connection of a cursor that can be used on it only.
    pub(super) connection: Option<PinnedConnection<P>>,
    pub(super) operation_time: Option<Timestamp>,
    /// `postBatchResumeToken`; empty if there is none.
    pub(super) resume_token: Vec<u8>,
}

/// Reads the reply to a command that creates a cursor. A cursor that cannot be used is closed on the
/// same connection.
pub(super) async fn begin<P: Platform>(
    client: &Client<P>,
    mut guard: Guard<'_, Net<P>>,
    session: &mut SessionState<P>,
    database: &str,
    timeout: Option<Duration>,
) -> Result<First<P>, Error> {
    let reply = reply_of(&guard)?;
    let Batch { id, namespace, elements: rest, resume_token } = match Batch::parse(reply, "firstBatch") {
        Ok(batch) => batch,
        Err(error) => {
            session.keep(client, guard);
            return Err(session.failed(error));
        }
    };
    if !collection(namespace, database).is_empty() {
        let operation_time =
            if let Ok(Some(RawValue::Timestamp(time))) = reply.get("operationTime") { Some(time) } else { None };
        let resume_token = resume_token.map(RawDocument::as_bytes).unwrap_or_default().to_vec();
        let (namespace, reply) = (namespace.to_owned(), Reply::new(reply.as_bytes().to_vec()));
        let server = guard.server().clone();
        let is_balanced = guard.established().is_some_and(|it| it.server_type == ServerType::LoadBalancer);
        // A transaction has its own connection.
        let connection = if id != 0 && is_balanced && !session.in_transaction() {
            PinnedConnection::new(client, guard, Pinned::Cursor)
        } else {
            session.keep(client, guard);
            None
        };
        return Ok(First { server, namespace, id, reply, rest, connection, operation_time, resume_token });
    }
    if let Some((database, collection)) = namespace.split_once('.').filter(|_| id != 0) {
        let (database, command) = (database.to_owned(), kill_command(collection, id)?);
        guard.set_deadline(client.kill_deadline(timeout));
        // The fault of the cursor is the error that is returned.
        let command = convert::checked(&command)?;
        let max_time = kill_time(timeout);
        let _: Result<(), Error> =
            connection::run_once(&mut guard, client, session, &database, command, None, max_time).await;
    }
    session.keep(client, guard);
    Err(Error::Cursor("the cursor's namespace is not of the command's database"))
}

/// The memory of a reply.
#[derive(Default)]
pub(super) struct Reply {
    bytes: Vec<u8>,
    /// The place of the document in the bytes.
    body: Range<usize>,
}

impl Reply {
    fn new(bytes: Vec<u8>) -> Self {
        Self { body: 0..bytes.len(), bytes }
    }

    /// Reserves as much memory as another reply has. A buffer that grows while it receives a batch would
    /// have up to twice its size.
    pub(super) fn reserve_as(&mut self, other: &Self) {
        self.bytes.reserve_exact(other.bytes.len().saturating_sub(self.bytes.len()));
    }

    pub(super) fn body(&self) -> &[u8] {
        self.bytes.get(self.body.clone()).unwrap_or_default()
    }

    /// Lends the memory to a connection, for its next reply: a batch is as long as the last one as a
    /// rule, so its buffer need not grow. Returns whether that was done. The connection's own buffer is
    /// kept here meanwhile.
    pub(super) fn lend<P: Platform>(&mut self, guard: &mut Guard<'_, Net<P>>) -> bool {
        self.body = 0..0;
        guard.lend_buffer(&mut self.bytes)
    }

    /// Takes the last reply of a connection, without a copy if that is possible.
    ///
    /// - `lent`: what [`Reply::lend`] returned. Otherwise the connection keeps its buffer.
    pub(super) fn take<P: Platform>(&mut self, guard: &mut Guard<'_, Net<P>>, lent: bool) -> Result<(), Error> {
        if let Some(body) = lent.then(|| guard.take_reply(&mut self.bytes)).flatten() {
            self.body = body;
            return Ok(());
        }
        let reply = reply_of(guard)?.as_bytes();
        self.bytes.clear();
        self.bytes.extend_from_slice(reply);
        self.body = 0..reply.len();
        Ok(())
    }
}

/// The cursor document of a reply.
pub(super) struct Batch<'a> {
    pub(super) id: i64,
    pub(super) namespace: &'a str,
    /// The elements of the batch, as a range of the reply.
    pub(super) elements: Range<usize>,
    /// `postBatchResumeToken`, that of the end of the batch of a change stream.
    pub(super) resume_token: Option<RawDocument<'a>>,
}

impl<'a> Batch<'a> {
    /// - `name`: of the batch.
    pub(super) fn parse(reply: RawDocument<'a>, name: &str) -> Result<Self, Error> {
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
            resume_token: get(cursor, "postBatchResumeToken").and_then(RawValue::as_document),
        })
    }
}

/// Returns the collection of a namespace; empty if it is not of this database.
pub(super) fn collection<'a>(namespace: &'a str, database: &str) -> &'a str {
    namespace.strip_prefix(database).and_then(|rest| rest.strip_prefix('.')).unwrap_or_default()
}
