//! Prepared statements.

#[cfg(test)]
mod tests;

use super::call::{Bind, Call, Content, Text};
use super::error::{RequestError, ServerError};
use super::request::Flight;
use super::request_all::RequestAll;
use super::routing::Routing;
use super::timed::timed;
use super::{Reply, Session, Shared};
use crate::{Platform, lock};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use hashbrown::HashMap;
use poolhouse_core::Instant;
use poolhouse_core::mux::MuxId;
use poolhouse_cql::{
    BoundValues, Columns, CqlError, ErrorCode, Opcode, Outcome, OutcomeKind, Response, Value, Values, Version,
};
use serde::Serialize;
use std::hash::RandomState;

/// A statement that servers have prepared: [`Session::prepare`]. Cheap to clone. It can be used with
/// any session of the same cluster.
#[derive(Clone)]
pub struct Statement {
    inner: Arc<Inner>,
}

struct Inner {
    text: String,
    id: Vec<u8>,
    metadata_id: Option<Vec<u8>>,
    /// The keyspace of the partition key; empty if the variables do not contain the whole key.
    keyspace: String,
    /// The positions of the variables of the partition key, in its order.
    key: Vec<usize>,
    variable_count: usize,
    /// The answer to PREPARE, which describes the variables, and its version.
    description: Vec<u8>,
    version: Version,
    /// Whether a host has described other variables since then. Then values for it are of the wrong types.
    is_outdated: AtomicBool,
}

impl Statement {
    /// Reads the answer to PREPARE.
    fn read(text: &str, reply: &Reply) -> Result<Option<Self>, CqlError> {
        let Response::Result(outcome) = reply.response()? else { return Ok(None) };
        let version = reply.envelope().header.version;
        let Some(prepared) = outcome.prepared(version)? else { return Ok(None) };
        let mut variables = prepared.variables;
        let variable_count = variables.len();
        let key: Vec<usize> = prepared.key_positions().collect();
        let first = key.first().and_then(|position| variables.nth(*position));
        let inner = Inner {
            text: String::from(text),
            id: prepared.id.to_vec(),
            metadata_id: prepared.metadata_id.map(<[u8]>::to_vec),
            keyspace: String::from(first.map_or("", |column| column.keyspace)),
            key,
            variable_count,
            description: outcome.body.to_vec(),
            version,
            is_outdated: AtomicBool::new(false),
        };
        Ok(Some(Self { inner: Arc::new(inner) }))
    }

    /// Its text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.inner.text
    }

    /// The id that servers have given it.
    #[must_use]
    pub fn id(&self) -> &[u8] {
        &self.inner.id
    }

    /// The number of its bind variables.
    #[must_use]
    pub fn variable_count(&self) -> usize {
        self.inner.variable_count
    }

    /// The positions of the bind variables that are the partition key, in its order. Empty if the
    /// variables do not contain the whole key, and in version 3 of the protocol.
    #[must_use]
    pub fn key_positions(&self) -> &[usize] {
        &self.inner.key
    }

    /// The id of the description of its result, from version 5 on.
    pub(super) fn metadata_id(&self) -> Option<&[u8]> {
        self.inner.metadata_id.as_deref()
    }

    /// Its bind variables, as the server described them when it was prepared.
    fn variables(&self) -> Columns<'_> {
        let Inner { description, version, .. } = &*self.inner;
        let outcome = Outcome { kind: OutcomeKind::Prepared, body: description };
        // The description was read before: it is well-formed.
        outcome.prepared(*version).ok().flatten().map_or(Columns::EMPTY, |prepared| prepared.variables)
    }

    /// Whether both have the same bind variables.
    fn has_variables_of(&self, other: &Self) -> bool {
        self.variables().eq(other.variables())
    }

    /// Whether its variables have changed since it was prepared.
    pub(super) fn is_outdated(&self) -> bool {
        self.inner.is_outdated.load(Ordering::Acquire)
    }

    /// Serializes the values of all bind variables.
    ///
    /// Cost: linear in the values, and in the fields times the variables. Allocates the values.
    pub(super) fn bind<T: Serialize + ?Sized>(&self, values: &T) -> Result<BoundValues, RequestError> {
        if self.is_outdated() {
            return Err(RequestError::Outdated);
        }
        BoundValues::new(self.variables(), values).map_err(|error| RequestError::Bind(Box::new(error)))
    }

    fn bind_any(&self, values: &dyn Bind) -> Result<BoundValues, RequestError> {
        values.bind(self.variables()).map_err(|error| RequestError::Bind(Box::new(error)))
    }

    /// The location of the data for these values; `None` if they do not contain the whole key.
    pub(super) fn routing(&self, values: Values<'_>) -> Option<Routing<'_>> {
        Some(Routing::new(&self.inner.keyspace, &partition_key(&self.inner.key, values)?))
    }
}

impl fmt::Debug for Statement {
    /// Omits the text, which may contain any data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Statement")
            .field("variable_count", &self.inner.variable_count)
            .field("key_positions", &self.inner.key)
            .finish_non_exhaustive()
    }
}

/// Returns the serialized partition key: that of one column is its value; that of several has the
/// length before each value, and a zero after it.
fn partition_key<'v>(positions: &[usize], values: Values<'v>) -> Option<Cow<'v, [u8]>> {
    let value = |position: &usize| match values.iter().nth(*position)? {
        Value::Bytes(bytes) => Some(bytes),
        Value::Null | Value::Unset => None,
    };
    match positions {
        [] => None,
        [position] => value(position).map(Cow::Borrowed),
        positions => {
            let mut key = Vec::new();
            for position in positions {
                let bytes = value(position)?;
                key.extend(u16::try_from(bytes.len()).ok()?.to_be_bytes());
                key.extend_from_slice(bytes);
                key.push(0);
            }
            Some(Cow::Owned(key))
        }
    }
}

/// The maximum length in bytes of the description of a statement that is kept for its text: 1,000 texts are the default.
/// One with a longer description is prepared for each call.
const DESCRIPTION_BYTES_MAX: usize = 1024 * 1024;

/// The prepared statements of the texts that were sent with values.
pub(super) struct Statements {
    by_text: HashMap<String, Entry, RandomState>,
    /// Counts uses.
    clock: u64,
    /// Counts changes of the keyspace, in which texts are prepared, and of the schema.
    epoch: u64,
}

struct Entry {
    statement: Statement,
    /// When it was used last.
    used: u64,
}

impl Statements {
    pub(super) fn new() -> Self {
        Self { by_text: HashMap::default(), clock: 0, epoch: 0 }
    }

    fn get(&mut self, text: &str) -> Option<Statement> {
        let entry = self.by_text.get_mut(text)?;
        self.clock += 1;
        entry.used = self.clock;
        Some(entry.statement.clone())
    }

    /// Keeps a statement, unless the keyspace or the schema has changed since it was prepared, or its description is too
    /// long. If there are too many, forgets the one that was not used for the longest time.
    fn insert(&mut self, statement: Statement, epoch: u64, max: usize) {
        if epoch != self.epoch || max == 0 || statement.inner.description.len() > DESCRIPTION_BYTES_MAX {
            return;
        }
        if self.by_text.len() >= max && !self.by_text.contains_key(statement.text()) {
            let oldest = self.by_text.iter().min_by_key(|(_, entry)| entry.used).map(|(text, _)| text.clone());
            if let Some(oldest) = oldest {
                self.by_text.remove(&oldest);
            }
        }
        self.clock += 1;
        let entry = Entry { used: self.clock, statement };
        self.by_text.insert(String::from(entry.statement.text()), entry);
    }

    /// Forgets a statement, unless its text was prepared again.
    fn forget(&mut self, statement: &Statement) {
        if self.by_text.get(statement.text()).is_some_and(|entry| Arc::ptr_eq(&entry.statement.inner, &statement.inner))
        {
            self.by_text.remove(statement.text());
        }
    }

    /// Forgets all: they were prepared in another keyspace, or their variables may have changed.
    pub(super) fn clear(&mut self) {
        self.by_text.clear();
        self.epoch += 1;
    }
}

impl<P: Platform> Session<P> {
    /// Prepares a statement on the next host of the query plan. Other hosts prepare it when they
    /// execute it first.
    ///
    /// - `text`: with the keyspace in the name of the table, unless the session has one.
    ///
    /// # Errors
    ///
    /// As [`Call::send`], except that nothing was executed.
    pub async fn prepare(&self, text: &str) -> Result<Statement, RequestError> {
        // Preparing a statement twice is harmless.
        let call = self.inner.shared.call(Content::Prepare(text)).idempotent(true);
        let reply = timed(&self.inner.shared, Opcode::Prepare, Flight::new(call)).await;
        statement_of(text, &reply.map_err(RequestError::of_preparation)?)
    }
}

impl<P: Platform> Shared<P> {
    /// Prepares statements on a host that does not have all of them. Returns the result of each:
    ///
    /// - `unprepared`: the statement has another id on the host, as after a change of the keyspace;
    /// - [`RequestError::Outdated`]: its variables have changed;
    /// - an error of the preparation: nothing was executed.
    ///
    /// The variables are compared before the host has the statement: from then on it would accept values of
    /// the old types. For this, each text is prepared with a space behind it first, which has another id.
    pub(super) async fn prepare_on(
        &self,
        host: MuxId,
        statements: &[&Statement],
        deadline: Option<Instant>,
        unprepared: &ServerError,
    ) -> Vec<Result<(), RequestError>> {
        let probes: Vec<String> = statements.iter().map(|statement| [statement.text(), " "].concat()).collect();
        let probes: Vec<&str> = probes.iter().map(String::as_str).collect();
        let mut results = Vec::with_capacity(statements.len());
        for (statement, probed) in statements.iter().zip(self.prepare_all(host, &probes, deadline).await) {
            results.push(probed.and_then(|probed| {
                if probed.has_variables_of(statement) {
                    return Ok(());
                }
                statement.inner.is_outdated.store(true, Ordering::Release);
                lock(&self.statements).forget(statement);
                Err(RequestError::Outdated)
            }));
        }
        let texts: Vec<&str> = statements
            .iter()
            .zip(&results)
            .filter(|(_, result)| result.is_ok())
            .map(|(statement, _)| statement.text())
            .collect();
        let mut prepared = self.prepare_all(host, &texts, deadline).await.into_iter();
        for (statement, result) in statements.iter().zip(&mut results).filter(|(_, result)| result.is_ok()) {
            *result = prepared.next().unwrap_or(Err(RequestError::Closed)).and_then(|found| {
                if found.id() == statement.id() {
                    return Ok(());
                }
                lock(&self.statements).forget(statement);
                Err(RequestError::Server(Box::new(unprepared.clone())))
            });
        }
        results
    }

    /// Returns the known statement of a text and its values, if they fit it, and the epoch of the statements.
    fn known(&self, text: &Text<'_>) -> (u64, Option<(Statement, BoundValues)>) {
        let (epoch, statement) = {
            let mut statements = lock(&self.statements);
            (statements.epoch, statements.get(&text.text))
        };
        let bound = statement.and_then(|statement| Some((statement.clone(), statement.bind_any(&*text.values).ok()?)));
        (epoch, bound)
    }

    /// Prepares texts on a host.
    async fn prepare_all(
        &self,
        host: MuxId,
        texts: &[&str],
        deadline: Option<Instant>,
    ) -> Vec<Result<Statement, RequestError>> {
        let host = [host];
        let calls: Vec<_> =
            texts.iter().map(|text| self.call(Content::Prepare(text)).hosts(&host).idempotent(true)).collect();
        let replies = RequestAll::new(&calls, deadline, 0).await;
        let read = |(text, reply): (&&str, Result<Reply, RequestError>)| {
            statement_of(text, &reply.map_err(RequestError::of_preparation)?)
        };
        texts.iter().zip(replies).map(read).collect()
    }
}

/// Reads the answer to PREPARE.
fn statement_of(text: &str, reply: &Reply) -> Result<Statement, RequestError> {
    match Statement::read(text, reply) {
        Ok(Some(statement)) => Ok(statement),
        Ok(None) => Err(RequestError::Unexpected(reply.envelope().header.opcode)),
        Err(error) => Err(RequestError::Reply(error)),
    }
}

impl<'a, P: Platform> Call<'a, P> {
    /// Serializes the values of a text, if its statement is known and they fit it. Otherwise the call is not
    /// [ready](super::call::Body::is_ready): the types of a known statement may have changed.
    pub(super) fn bind_known(mut self) -> Self {
        // In the child of a fork, the lock may be held for ever.
        if let (Content::TextWith(text), false) = (&self.body.content, self.shared.is_forked()) {
            if let (_, Some((statement, values))) = self.shared.known(text) {
                self.body.content = Content::Bound(Cow::Owned(statement), values, Some(Box::new(text.clone())));
            }
        }
        self
    }

    /// Prepares what is left to prepare, on the hosts of the call, and leaves the rest of the time to it.
    pub(super) async fn prepared(mut self) -> Result<Self, RequestError> {
        self.shared.check_fork()?;
        let deadline = self.limit().map(|limit| self.shared.now().saturating_add(limit));
        match &self.body.content {
            Content::TextWith(text) => {
                let text = text.clone();
                let (statement, values) = self.bind_text(&text, deadline).await?;
                self.body.content = Content::Bound(Cow::Owned(statement), values, Some(Box::new(text)));
            }
            Content::Batch(batch) if !batch.is_ready() => {
                let batch = *batch;
                let prepared = batch.prepared(&self, deadline).await?;
                self.body.content = Content::PreparedBatch(Box::new(prepared), batch);
            }
            Content::Misfit(error) => return Err((**error).clone()),
            Content::Text(_)
            | Content::Bound(..)
            | Content::Batch(_)
            | Content::PreparedBatch(..)
            | Content::Prepare(_) => {}
        }
        Ok(self.until(deadline))
    }

    /// Returns the prepared statement of a text of the call, and its values. If the values do not fit a known
    /// statement, its types may have changed: it is prepared again.
    pub(super) async fn bind_text(
        &self,
        text: &Text<'_>,
        deadline: Option<Instant>,
    ) -> Result<(Statement, BoundValues), RequestError> {
        let (epoch, known) = self.shared.known(text);
        if let Some(known) = known {
            return Ok(known);
        }
        let Text { text, values } = text;
        let Self { hosts, timeout, retry, .. } = *self;
        let call = Call { hosts, timeout, retry, idempotent: Some(true), ..self.shared.call(Content::Prepare(text)) };
        let reply = Flight::new(call.until(deadline)).await.map_err(RequestError::of_preparation)?;
        let statement = statement_of(text, &reply)?;
        lock(&self.shared.statements).insert(statement.clone(), epoch, self.shared.options.statements_max);
        let bound = statement.bind_any(&**values)?;
        Ok((statement, bound))
    }

    /// The call with its texts as they were before the session has prepared them, if its result is that a statement
    /// has changed. `None`: it has prepared none, or the result is another one.
    pub(super) fn renewable(&self, result: &Result<Reply, RequestError>) -> Option<Self> {
        if !matches!(result, Err(RequestError::Outdated)) && !self.is_unprepared(result) {
            return None;
        }
        let content = match &self.body.content {
            Content::Bound(_, _, Some(text)) => Content::TextWith((**text).clone()),
            Content::PreparedBatch(_, batch) => Content::Batch(batch),
            Content::Bound(_, _, None)
            | Content::Text(_)
            | Content::TextWith(_)
            | Content::Batch(_)
            | Content::Prepare(_)
            | Content::Misfit(_) => return None,
        };
        let mut call = self.clone();
        call.body.content = content;
        Some(call)
    }

    /// Whether the result is an error of a host that does not have a prepared statement of the call.
    pub(super) fn is_unprepared(&self, result: &Result<Reply, RequestError>) -> bool {
        let Err(RequestError::Server(error)) = result else { return false };
        error.code == ErrorCode::UNPREPARED && !self.body.is_text()
    }
}
