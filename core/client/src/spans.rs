//! Spans of operations and of their commands, as spans of the [`tracing`] crate (feature `tracing`),
//! with the attributes of OpenTelemetry.
//!
//! Read first: OpenTelemetry, "Instrumenting Driver Operations" and "Instrumenting Server Commands".
//!
//! [`TracingOptions::enabled`] turns them on. An operation is one span, from its call to its result,
//! with server selection, check-out, retries and pauses. Its parent is the current span of the
//! application, or that of its transaction. Each command that it sends is one span within it, from the
//! writing of the command to its reply. Both are entered only while the future of the operation is
//! polled, have the target [`SPANS`] and the level *info*, and end early if the future is dropped;
//! those of the batch of a [`Cursor`](crate::Cursor) end with the batch or the cursor.
//!
//! A transaction is a span, too, with the fields `db.system.name`, `otel.kind` and `otel.name`, which is
//! `transaction`. It begins with the transaction, and ends when the outcome is known or the session runs
//! another command. The spans of its operations, of its commit and of its abort are within it. One call
//! of [`with_transaction`](crate::ClientSession::with_transaction) is one such span, with all its
//! attempts.
//!
//! The name of a span is `operation`, `command` or `transaction`. The field `otel.name`, by which a
//! layer for OpenTelemetry names its span, is the summary of the operation, `find shop.orders`, or the
//! name of the command, `find`. A field with an unknown value is left out.
//!
//! | field | span | value |
//! |---|---|---|
//! | `otel.kind` | all | `client` |
//! | `otel.status_code` | both | `ERROR` after an error |
//! | `db.system.name` | all | `mongodb` |
//! | `db.namespace` | both | the database |
//! | `db.collection.name` | both | the collection, of a command that is known to have one, unless the database is `admin` |
//! | `db.operation.name` | operation | the name of its command: `find`, `getMore`, `commitTransaction`; for `create` and `drop`, `createCollection` and `dropCollection` |
//! | `db.operation.summary` | operation | the name, the database and the collection |
//! | `db.command.name` | command | the name of the command |
//! | `db.query.summary` | command | the name, the database and the collection |
//! | `db.query.text` | command | the command that is sent, without `lsid`, `$clusterTime`, `$db` and `signature`, if [`TracingOptions::query_text_length_max`] is not 0 |
//! | `server.address`, `server.port` | command | host and port of the server, or the path of its socket |
//! | `network.transport` | command | `tcp` or `unix` |
//! | `db.mongodb.driver_connection_id` | command | the number of the connection in its pool |
//! | `db.mongodb.server_connection_id` | command | the server's number of the connection |
//! | `db.mongodb.cursor_id` | command | the cursor of a `getMore`, the first of a `killCursors`, or that of the reply |
//! | `db.mongodb.lsid` | command | the id of its session, a UUID |
//! | `db.mongodb.txn_number` | command | the number of its transaction or retryable write |
//! | `db.response.status_code` | both | the code of the server's error |
//! | `exception.type` | both | the variant of [`Error`] |
//! | `exception.message` | both | the text of the error |
//!
//! A request of a Cassandra session is an operation, if [`SessionOptions::tracing`] turns spans on:
//! [`Call::send`], and each page of [`Call::rows`] and [`Call::pages`]. Its attempts have no spans of their
//! own. `db.system.name` is `cassandra`, `db.operation.name` is `QUERY`, `EXECUTE` or `BATCH`, `db.namespace` the
//! keyspace of the session, and it has two more fields, `cassandra.consistency.level` and
//! `cassandra.query.idempotent`. `exception.type` is the `error.type` of [`metrics`](crate::metrics). Requests of
//! [`Session::request_all`](crate::mux::Session::request_all), preparations and the control connection have no
//! spans; generic pools have none, because OpenTelemetry defines none for them.
//!
//! [`SessionOptions::tracing`]: crate::mux::SessionOptions#structfield.tracing
//! [`Call::send`]: crate::mux::Call::send
//! [`Call::rows`]: crate::mux::Call::rows
//! [`Call::pages`]: crate::mux::Call::pages
//!
//! A command that may contain a secret has no span of its own, and its operation has no
//! `exception.message`. Commands of handshakes, monitors and ends of sessions, those that the
//! application writes by [`Connection::raw`](crate::Connection::raw), and check-outs have no spans.

#[cfg(test)]
mod tests;

use crate::connection::Parts;
use crate::mux::{PORT_DEFAULT, RequestError};
use crate::session::SessionState;
use crate::{Client, Error, Net, Platform};
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use bson::Uuid;
use poolhouse_core::address::HostAddress;
use poolhouse_core::observe::Truncated;
use poolhouse_cql::Consistency;
use poolhouse_driver::Guard;
use poolhouse_wire::bson::{DocumentWriter, RawDocument, RawValue};
use poolhouse_wire::command::is_sensitive;
use poolhouse_wire::peer_text::OneLine;
use tracing::field::{Empty, display};
use tracing::{Instrument as _, Level, Span};

/// The target of the spans.
pub const SPANS: &str = "poolhouse::spans";

/// Whether operations have spans, and what these contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TracingOptions {
    /// Whether operations and commands have spans. Default false.
    pub enabled: bool,
    /// The maximum length of `db.query.text` in bytes; a longer text is cut, and `...` is appended.
    /// It contains data of the application. With 0, the default, there is no text.
    pub query_text_length_max: usize,
}

impl TracingOptions {
    /// The defaults: no spans.
    pub const DEFAULT: Self = Self { enabled: false, query_text_length_max: 0 };

    /// See [`enabled`](#structfield.enabled).
    #[must_use]
    pub const fn enabled(self, enabled: bool) -> Self {
        Self { enabled, ..self }
    }

    /// See [`query_text_length_max`](#structfield.query_text_length_max).
    #[must_use]
    pub const fn query_text_length_max(self, bytes: usize) -> Self {
        Self { query_text_length_max: bytes, ..self }
    }

    /// The defaults, changed by environment variables:
    /// `OTEL_RUST_INSTRUMENTATION_MONGODB_ENABLED` (`true`, `1` or `yes`) and
    /// `OTEL_RUST_INSTRUMENTATION_MONGODB_QUERY_TEXT_MAX_LENGTH` (a number). An invalid value counts as
    /// not set.
    ///
    /// - `variable`: returns the value of an environment variable.
    ///
    /// Source: OpenTelemetry, "Enabling and Disabling OpenTelemetry" and "db.query.text".
    #[must_use]
    pub fn from_environment<S: AsRef<str>>(mut variable: impl FnMut(&str) -> Option<S>) -> Self {
        let enabled = variable("OTEL_RUST_INSTRUMENTATION_MONGODB_ENABLED").is_some_and(|value| {
            let value = value.as_ref().trim();
            ["true", "1", "yes"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
        });
        let length = variable("OTEL_RUST_INSTRUMENTATION_MONGODB_QUERY_TEXT_MAX_LENGTH");
        let length = length.and_then(|value| value.as_ref().trim().parse().ok());
        Self { enabled, query_text_length_max: length.unwrap_or(Self::DEFAULT.query_text_length_max) }
    }
}

/// The span of an operation.
pub(crate) struct OperationSpan {
    span: Span,
    /// Whether the text of an error may contain a secret.
    is_sensitive: bool,
}

/// The span of a command.
pub(crate) struct CommandSpan(Span);

/// The span of a request of Cassandra.
pub(crate) struct RequestSpan(Span);

/// The span of a transaction. It ends when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct TransactionSpan(Span);

impl<P: Platform> Client<P> {
    /// Returns the span of an operation that begins now with this command; `None` if there is no
    /// subscriber to it. A malformed command has none: the operation refuses it at once.
    ///
    /// - `transaction`: the span of the transaction that the operation belongs to.
    #[inline]
    pub(crate) fn operation_span(
        &self,
        transaction: Option<&TransactionSpan>,
        database: &str,
        command: &[u8],
    ) -> Option<OperationSpan> {
        if self.options().tracing.enabled { OperationSpan::of(transaction, database, command) } else { None }
    }

    /// [`Client::operation_span`] of the end of a transaction.
    ///
    /// - `name`: the name of its command.
    #[inline]
    pub(crate) fn transaction_end_span(
        &self,
        transaction: Option<&TransactionSpan>,
        name: &str,
    ) -> Option<OperationSpan> {
        if self.options().tracing.enabled { OperationSpan::new(transaction, name, "admin", None, false) } else { None }
    }

    /// Returns the span of a transaction that begins now; `None` if there is no subscriber to it.
    #[inline]
    pub(crate) fn transaction_span(&self) -> Option<TransactionSpan> {
        if self.options().tracing.enabled { TransactionSpan::new() } else { None }
    }

    /// Returns the span of a command that is sent now; `None` if there is no subscriber to it, or if
    /// the command may contain a secret.
    #[inline]
    pub(crate) fn command_span(
        &self,
        guard: &Guard<'_, Net<P>>,
        session: &SessionState<P>,
        parts: &Parts<'_>,
    ) -> Option<CommandSpan> {
        if self.options().tracing.enabled { CommandSpan::new(self, guard, session, parts) } else { None }
    }
}

impl OperationSpan {
    #[cold]
    fn of(transaction: Option<&TransactionSpan>, database: &str, command: &[u8]) -> Option<Self> {
        let command = RawDocument::new(command).ok()?;
        let name = command.iter().next()?.ok()?.key;
        Self::new(transaction, name, database, collection(database, command), is_sensitive(command))
    }

    #[cold]
    fn new(
        transaction: Option<&TransactionSpan>,
        name: &str,
        database: &str,
        collection: Option<&str>,
        is_sensitive: bool,
    ) -> Option<Self> {
        if !tracing::span_enabled!(target: SPANS, Level::INFO) {
            return None;
        }
        let name = operation_name(name);
        let summary = summary(name, database, collection);
        let new = || {
            tracing::info_span!(
                target: SPANS,
                "operation",
                "otel.name" = summary,
                "otel.kind" = "client",
                "otel.status_code" = Empty,
                "db.system.name" = "mongodb",
                "db.namespace" = database,
                "db.collection.name" = collection,
                "db.operation.name" = name,
                "db.operation.summary" = summary,
                "db.response.status_code" = Empty,
                "exception.type" = Empty,
                "exception.message" = Empty,
            )
        };
        let span = transaction.map_or_else(new, |TransactionSpan(parent)| parent.in_scope(new));
        Some(Self { span, is_sensitive })
    }

    /// Runs the operation in the span, and records its error.
    pub(crate) async fn run<T>(self, operation: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let result = operation.instrument(self.span.clone()).await;
        if let Err(error) = &result {
            record_error(&self.span, error, self.is_sensitive);
        }
        result
    }
}

impl TransactionSpan {
    #[cold]
    fn new() -> Option<Self> {
        tracing::span_enabled!(target: SPANS, Level::INFO).then(|| {
            Self(tracing::info_span!(
                target: SPANS,
                "transaction",
                "otel.name" = "transaction",
                "otel.kind" = "client",
                "db.system.name" = "mongodb",
            ))
        })
    }
}

impl CommandSpan {
    #[cold]
    fn new<P: Platform>(
        client: &Client<P>,
        guard: &Guard<'_, Net<P>>,
        session: &SessionState<P>,
        parts: &Parts<'_>,
    ) -> Option<Self> {
        let &Parts { database, command, additions, .. } = parts;
        if is_sensitive(command) || !tracing::span_enabled!(target: SPANS, Level::INFO) {
            return None;
        }
        let first = command.iter().next()?.ok()?;
        let (name, collection) = (first.key, collection(database, command));
        let cursor_id = match name {
            "getMore" => first.value.as_integer(),
            "killCursors" => first_killed(command),
            _ => None,
        };
        let (host, port, transport) = match HostAddress::parse(guard.server().address()) {
            Some(HostAddress::Tcp { host, port }) => (Some(host), Some(i64::from(port)), Some("tcp")),
            Some(HostAddress::Unix(path)) => (Some(path), None, Some("unix")),
            None => (None, None, None),
        };
        let own_lsid = || {
            let lsid = command.get("lsid").ok()??.as_document()?;
            <[u8; 16]>::try_from(lsid.get("id").ok()??.as_binary()?.bytes).ok()
        };
        let lsid = session.server_session(&additions).map(|session| *session.id()).or_else(own_lsid);
        let own_number = || command.get("txnNumber").ok()??.as_integer();
        let text_length_max = client.options().tracing.query_text_length_max;
        let (mut sent, mut kept) = (Vec::new(), Vec::new());
        let text = (text_length_max > 0).then(|| {
            let is_written = DocumentWriter::write(&mut sent, |body| session.append(client, body, parts)).is_ok();
            // A command that cannot be written is not sent.
            let sent = if is_written { RawDocument::new(&sent).unwrap_or(command) } else { command };
            display(Truncated::new(shown(sent, &mut kept).relaxed_json(), text_length_max))
        });
        Some(Self(tracing::info_span!(
            target: SPANS,
            "command",
            "otel.name" = name,
            "otel.kind" = "client",
            "otel.status_code" = Empty,
            "db.system.name" = "mongodb",
            "db.namespace" = database,
            "db.collection.name" = collection,
            "db.command.name" = name,
            "db.query.summary" = summary(name, database, collection),
            "db.query.text" = text,
            "server.address" = host,
            "server.port" = port,
            "network.transport" = transport,
            "db.mongodb.driver_connection_id" = i64::try_from(guard.connection_id()).ok(),
            "db.mongodb.server_connection_id" = guard.established().and_then(|known| known.server_connection_id),
            "db.mongodb.cursor_id" = cursor_id,
            "db.mongodb.lsid" = lsid.map(|id| display(Uuid::from_bytes(id))),
            "db.mongodb.txn_number" = additions.txn_number.or_else(own_number),
            "db.response.status_code" = Empty,
            "exception.type" = Empty,
            "exception.message" = Empty,
        )))
    }

    /// Sends the command in the span.
    pub(crate) async fn run<T>(&self, sending: impl Future<Output = T>) -> T {
        sending.instrument(self.0.clone()).await
    }

    /// Records the outcome of the command.
    pub(crate) fn record(&self, error: Option<&Error>, reply: Option<RawDocument<'_>>) {
        if let Some(error) = error {
            return record_error(&self.0, error, false);
        }
        let cursor = reply.and_then(|reply| reply.get("cursor").ok().flatten()).and_then(RawValue::as_document);
        let id = cursor.and_then(|cursor| cursor.get("id").ok().flatten()).and_then(RawValue::as_integer);
        if let Some(id) = id.filter(|id| *id != 0) {
            self.0.record("db.mongodb.cursor_id", id);
        }
    }
}

impl RequestSpan {
    /// Returns the span of a request that begins now; `None` if there is no subscriber to it.
    ///
    /// - `name`: of its operation.
    #[cold]
    pub(crate) fn new(name: &str, keyspace: Option<&str>, consistency: Consistency, idempotent: bool) -> Option<Self> {
        tracing::span_enabled!(target: SPANS, Level::INFO).then(|| {
            Self(tracing::info_span!(
                target: SPANS,
                "operation",
                "otel.name" = name,
                "otel.kind" = "client",
                "otel.status_code" = Empty,
                "db.system.name" = "cassandra",
                "db.namespace" = keyspace,
                "db.operation.name" = name,
                "cassandra.consistency.level" = consistency_name(consistency),
                "cassandra.query.idempotent" = idempotent,
                "server.address" = Empty,
                "server.port" = Empty,
                "db.response.status_code" = Empty,
                "exception.type" = Empty,
                "exception.message" = Empty,
            ))
        })
    }

    /// Runs the request in the span.
    pub(crate) async fn run<T>(&self, request: impl Future<Output = T>) -> T {
        request.instrument(self.0.clone()).await
    }

    /// Records the outcome of the request.
    ///
    /// - `address`: of the host that has answered.
    pub(crate) fn record(&self, address: Option<&str>, error: Option<&RequestError>) {
        let span = &self.0;
        match address.and_then(|address| HostAddress::parse_with_port(address, PORT_DEFAULT)) {
            Some(HostAddress::Tcp { host, port }) => {
                span.record("server.address", host);
                span.record("server.port", i64::from(port));
            }
            Some(HostAddress::Unix(path)) => {
                span.record("server.address", path);
            }
            None => {}
        }
        if let Some(error) = error {
            span.record("otel.status_code", "ERROR");
            span.record("exception.type", &*error.type_name());
            if let RequestError::Server(error) = error {
                span.record("db.response.status_code", &*format!("{:#06x}", error.code.number()));
            }
            span.record("exception.message", display(OneLine(&error.to_string())));
        }
    }
}

/// The value of OpenTelemetry's `cassandra.consistency.level`.
const fn consistency_name(consistency: Consistency) -> &'static str {
    match consistency {
        Consistency::Any => "any",
        Consistency::One => "one",
        Consistency::Two => "two",
        Consistency::Three => "three",
        Consistency::Quorum => "quorum",
        Consistency::All => "all",
        Consistency::LocalQuorum => "local_quorum",
        Consistency::EachQuorum => "each_quorum",
        Consistency::Serial => "serial",
        Consistency::LocalSerial => "local_serial",
        Consistency::LocalOne => "local_one",
    }
}

fn record_error(span: &Span, error: &Error, is_sensitive: bool) {
    span.record("otel.status_code", "ERROR");
    span.record("exception.type", type_of(error));
    if let Some(code) = error.code() {
        span.record("db.response.status_code", code.to_string());
    }
    if !is_sensitive {
        // It may have characters of a server.
        span.record("exception.message", display(OneLine(&error.to_string())));
    }
}

const fn type_of(error: &Error) -> &'static str {
    match error {
        Error::Setup(_) => "Error::Setup",
        Error::Operation(..) => "Error::Operation",
        Error::Timeout(_) => "Error::Timeout",
        Error::Command(_) => "Error::Command",
        Error::Write(_) => "Error::Write",
        Error::Session(_) => "Error::Session",
        Error::Cursor(_) => "Error::Cursor",
        Error::Bson(_) => "Error::Bson",
    }
}

/// The name of the operation that a command executes, where it has another one.
///
/// Source: OpenTelemetry, "Covered operations".
fn operation_name(command: &str) -> &str {
    match command {
        "create" => "createCollection",
        "drop" => "dropCollection",
        other => other,
    }
}

fn summary(name: &str, database: &str, collection: Option<&str>) -> String {
    match collection {
        Some(collection) => format!("{name} {database}.{collection}"),
        None => format!("{name} {database}"),
    }
}

/// The first cursor of a `killCursors`.
fn first_killed(command: RawDocument<'_>) -> Option<i64> {
    command.get("cursors").ok()??.as_array()?.iter().next()?.ok()?.as_integer()
}

/// The command without the fields that a text must not have.
///
/// - `kept`: the memory of the copy, which is made only if the command has such a field.
///
/// Source: OpenTelemetry, "db.query.text".
fn shown<'a>(command: RawDocument<'a>, kept: &'a mut Vec<u8>) -> RawDocument<'a> {
    let is_left_out = |key: &str| matches!(key, "lsid" | "$clusterTime" | "$db" | "signature");
    if !command.iter().filter_map(Result::ok).any(|element| is_left_out(element.key)) {
        return command;
    }
    let write = |body: &mut DocumentWriter<'_, Vec<u8>>| {
        let mut elements = command.iter().filter_map(Result::ok).filter(|element| !is_left_out(element.key));
        elements.try_for_each(|element| body.value(element.key, element.value).map(drop))
    };
    let copied = DocumentWriter::write(kept, write).is_ok();
    if copied { RawDocument::new(kept).unwrap_or(RawDocument::EMPTY) } else { RawDocument::EMPTY }
}

/// The collection of a command. Only of commands that are known to have one: the value of others may
/// be the name of a user or of a parameter.
fn collection<'a>(database: &str, command: RawDocument<'a>) -> Option<&'a str> {
    const WITH_COLLECTION: [&str; 27] = [
        "aggregate",
        "collMod",
        "collStats",
        "compact",
        "convertToCapped",
        "count",
        "create",
        "createIndexes",
        "createSearchIndexes",
        "delete",
        "distinct",
        "drop",
        "dropIndexes",
        "dropSearchIndex",
        "find",
        "findAndModify",
        "findandmodify",
        "insert",
        "killCursors",
        "listIndexes",
        "mapReduce",
        "mapreduce",
        "planCacheClear",
        "reIndex",
        "update",
        "updateSearchIndex",
        "validate",
    ];
    if database == "admin" {
        return None;
    }
    let first = command.iter().next()?.ok()?;
    if first.key == "getMore" {
        return command.get("collection").ok()??.as_str();
    }
    if WITH_COLLECTION.contains(&first.key) { first.value.as_str() } else { None }
}
