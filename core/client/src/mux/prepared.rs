//! Prepared statements.

#[cfg(test)]
mod tests;

use super::error::RequestError;
use super::request::RequestOptions;
use super::routing::Routing;
use super::{Reply, Session};
use crate::Platform;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use poolhouse_core::mux::MuxId;
use poolhouse_cql::{
    BoundValues, CqlError, ErrorCode, Opcode, Outcome, OutcomeKind, Parameters, Request, Response, Value, Version,
};
use serde::Serialize;

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

    /// Serializes the values of all bind variables: those of a struct or a map by their names, those of
    /// a tuple or a list in their order. [`BoundValues::new`] has the table of types.
    ///
    /// The types are those that the server described when the statement was prepared. After a change
    /// of the schema, prepare the statement again.
    ///
    /// Cost: linear in the values, and in the fields times the variables. Allocates the values.
    ///
    /// # Errors
    ///
    /// [`RequestError::Bind`] names the variable and its type. Nothing was sent.
    pub fn bind<T: Serialize + ?Sized>(&self, values: &T) -> Result<BoundValues, RequestError> {
        let Inner { description, version, .. } = &*self.inner;
        let outcome = Outcome { kind: OutcomeKind::Prepared, body: description };
        let prepared = outcome.prepared(*version).map_err(RequestError::Reply)?;
        let prepared = prepared.ok_or(RequestError::Unexpected(Opcode::Result))?;
        BoundValues::new(prepared.variables, values).map_err(|error| RequestError::Bind(Box::new(error)))
    }

    /// The location of the data for these values; `None` if they do not contain the whole key.
    #[must_use]
    pub fn routing(&self, values: &[Value<'_>]) -> Option<Routing<'_>> {
        Some(Routing::new(&self.inner.keyspace, &partition_key(&self.inner.key, values)?))
    }

    fn request<'a>(&'a self, parameters: Parameters<'a>) -> Request<'a> {
        let Inner { id, metadata_id, .. } = &*self.inner;
        Request::ExecutePrepared { id, metadata_id: metadata_id.as_deref(), parameters }
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
fn partition_key<'v>(positions: &[usize], values: &[Value<'v>]) -> Option<Cow<'v, [u8]>> {
    let value = |position: &usize| match values.get(*position)? {
        Value::Bytes(bytes) => Some(*bytes),
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

impl<P: Platform> Session<P> {
    /// Prepares a statement on the next host of the query plan. Other hosts prepare it when they
    /// execute it first.
    ///
    /// - `text`: with the keyspace in the name of the table, unless the session has one.
    ///
    /// # Errors
    ///
    /// As [`Session::request`].
    pub async fn prepare(&self, text: &str) -> Result<Statement, RequestError> {
        self.prepare_with(text, RequestOptions::default()).await
    }

    async fn prepare_with(&self, text: &str, options: RequestOptions<'_>) -> Result<Statement, RequestError> {
        // Preparing a statement twice is harmless.
        let options = RequestOptions { idempotent: true, ..options };
        let reply = self.request_with(&Request::PrepareText(text), options).await?;
        match Statement::read(text, &reply) {
            Ok(Some(statement)) => Ok(statement),
            Ok(None) => Err(RequestError::Unexpected(reply.envelope().header.opcode)),
            Err(error) => Err(RequestError::Reply(error)),
        }
    }

    /// Executes a prepared statement. If the options have neither hosts nor a routing, the hosts with
    /// the data are tried first: see [`RequestOptions::routing`].
    ///
    /// If a host does not have the statement, because it has not executed it before, has restarted
    /// or has forgotten it, it prepares the statement and executes it then. If it does not take one
    /// of these requests, all begins once more. After an error of a host that has just prepared the
    /// statement, no other host is tried, even where [`RetryPolicy`](super::RetryPolicy) names the
    /// next one. Each of these requests has the time limit of the options.
    ///
    /// - `parameters`: with a value for each bind variable.
    ///
    /// # Errors
    ///
    /// As [`Session::request`]. [`ErrorCode::UNPREPARED`]: the host has prepared the statement with
    /// another id, as after [`Session::use_keyspace`], or has forgotten it at once.
    pub async fn execute(
        &self,
        statement: &Statement,
        parameters: Parameters<'_>,
        options: RequestOptions<'_>,
    ) -> Result<Reply, RequestError> {
        let routing = options.routing.or_else(|| statement.routing(parameters.values));
        let options = RequestOptions { routing, ..options };
        let request = statement.request(parameters);
        match self.execute_once(statement, &request, options).await {
            // A host without the statement has failed meanwhile: the others may take it.
            Err((RequestError::NoHost(_), true)) => self.execute_once(statement, &request, options).await,
            outcome => outcome,
        }
        .map_err(|(error, _)| error)
    }

    /// Executes a statement, after it was prepared if the host does not have it. An error is
    /// returned with whether it is that of a host without the statement.
    async fn execute_once(
        &self,
        statement: &Statement,
        request: &Request<'_>,
        options: RequestOptions<'_>,
    ) -> Result<Reply, (RequestError, bool)> {
        let error = match self.request_with(request, options).await {
            Err(RequestError::Server(error)) if error.code == ErrorCode::UNPREPARED => error,
            outcome => return outcome.map_err(|error| (error, false)),
        };
        // Nothing was executed there.
        let host: [MuxId; 1] = [error.reply.host()];
        let options = RequestOptions { hosts: Some(&host), ..options };
        let RequestOptions { timeout, hosts, .. } = options;
        let again = RequestOptions { timeout, hosts, ..RequestOptions::default() };
        let prepared = self.prepare_with(statement.text(), again).await.map_err(|error| (error, true))?;
        if prepared.id() != statement.id() {
            return Err((RequestError::Server(error), true));
        }
        // With the id of the columns that the caller has: the server describes other columns.
        self.request_with(request, options).await.map_err(|error| (error, true))
    }
}
