//! Calls: what an application sends, with its options.
//!
//! [`Session::query`], [`Session::execute`] and [`Session::batch`] make a [`Call`], whose methods set
//! its options. It ends in one of three ways: [`Call::send`] returns the answer, [`Call::rows`] and
//! [`Call::pages`] read a result in pages. [`Session::request_all`](super::Session::request_all) sends
//! many calls by one future.

use super::batch::Batch;
use super::error::RequestError;
use super::pages::{Pages, RowStream};
use super::prepared::Statement;
use super::request::{Flight, settle};
use super::retry::RetryPolicy;
use super::routing::Routing;
use super::speculation::Speculation;
use super::timed::timed;
use super::{Reply, Session, Shared};
use crate::Platform;
#[cfg(feature = "tracing")]
use crate::spans::RequestSpan;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use poolhouse_core::mux::MuxId;
use poolhouse_cql::{
    BatchParameters, BindError, BodyWriter, BoundValues, Columns, Consistency, CqlEncodeError, Flags, Limits, Opcode,
    Outgoing, Parameters, Request, Values, Version, encode_envelope,
};
use serde::Serialize;
use serde::ser::Error as _;

/// A statement or a batch with its options: [`Session::query`], [`Session::execute`],
/// [`Session::batch`]. Nothing is sent before [`Call::send`], [`Call::rows`] or [`Call::pages`].
///
/// ```
/// use core::time::Duration;
/// use poolhouse_client::Platform;
/// use poolhouse_client::mux::{RequestError, Session, Statement};
/// use poolhouse_cql::Consistency;
///
/// async fn rename<P: Platform>(session: &Session<P>, id: i32, name: &str) -> Result<(), RequestError> {
///     let update = session.query("UPDATE shop.teas SET name = ? WHERE id = ?");
///     update.values((name, id)).consistency(Consistency::Quorum).idempotent(true).send().await?;
///     Ok(())
/// }
/// ```
#[must_use = "a call is sent by one of its methods send, rows and pages"]
pub struct Call<'a, P: Platform> {
    pub(super) shared: &'a Shared<P>,
    pub(super) body: Body<'a>,
    pub(super) hosts: Option<&'a [MuxId]>,
    pub(super) timeout: Option<Duration>,
    /// `None`: not, unless the call is read in pages.
    pub(super) idempotent: Option<bool>,
    pub(super) retry: Option<RetryPolicy>,
}

impl<P: Platform> Clone for Call<'_, P> {
    fn clone(&self) -> Self {
        Self { body: self.body.clone(), ..*self }
    }
}

/// The content of a call and the options that are sent with it.
#[derive(Clone)]
pub(super) struct Body<'a> {
    pub(super) content: Content<'a>,
    timestamp_us: Option<i64>,
    page_size: Option<i32>,
    consistency: Consistency,
    serial_consistency: Option<Consistency>,
    skip_metadata: bool,
    /// Options that few calls have.
    rare: Option<Box<Rare<'a>>>,
}

#[derive(Clone)]
pub(super) enum Content<'a> {
    /// A statement without values.
    Text(&'a str),
    /// A statement that is prepared before its values are serialized.
    TextWith(Text<'a>),
    /// A prepared statement with its values; the text and the values that the session has prepared it from.
    Bound(Cow<'a, Statement>, BoundValues, Option<Box<Text<'a>>>),
    Batch(&'a Batch<'a>),
    /// A batch after its texts with values were prepared, and as it was before.
    PreparedBatch(Box<Batch<'a>>, &'a Batch<'a>),
    /// Prepares a statement.
    Prepare(&'a str),
    /// The values do not fit.
    Misfit(Box<RequestError>),
}

#[derive(Clone, Default)]
struct Rare<'a> {
    routing: Option<Routing<'a>>,
    paging_state: Option<Vec<u8>>,
    payload: Vec<(String, Vec<u8>)>,
    speculation: Option<Speculation>,
    tracing: bool,
}

/// A text and its values.
#[derive(Clone)]
pub(super) struct Text<'a> {
    pub(super) text: Cow<'a, str>,
    pub(super) values: Arc<dyn Bind + Send + Sync + 'a>,
}

/// Values of types that are known only after their statement was prepared.
pub(super) trait Bind {
    fn bind(&self, variables: Columns<'_>) -> Result<BoundValues, BindError>;
}

impl<T: Serialize> Bind for T {
    fn bind(&self, variables: Columns<'_>) -> Result<BoundValues, BindError> {
        BoundValues::new(variables, self)
    }
}

impl<P: Platform> Session<P> {
    /// Makes a call of a statement in CQL.
    ///
    /// Without [values](Call::values) the text is sent as it is. With values it is prepared first, and
    /// the session keeps the prepared statement for the next call with the same text:
    /// [`SessionOptions::statements_max`](super::SessionOptions::statements_max).
    pub fn query<'a>(&'a self, text: &'a str) -> Call<'a, P> {
        self.inner.shared.call(Content::Text(text))
    }

    /// Makes a call of a [prepared](Session::prepare) statement. It goes to the hosts with the data
    /// first, if the values contain the whole partition key.
    ///
    /// If a host does not have the statement, because it is new, has restarted or has forgotten it, it
    /// prepares the statement and executes it then.
    ///
    /// - `values`: one for each bind variable, of a struct or a map by their names, of a tuple or a list
    ///   in their order. [`BoundValues::new`] has the table of types. They are serialized at once; if one
    ///   does not fit, sending fails with [`RequestError::Bind`].
    pub fn execute<'a, V: Serialize + ?Sized>(&'a self, statement: &'a Statement, values: &V) -> Call<'a, P> {
        self.inner.shared.call(match statement.bind(values) {
            Ok(values) => Content::Bound(Cow::Borrowed(statement), values, None),
            Err(error) => Content::Misfit(Box::new(error)),
        })
    }

    /// Makes a call of a batch. It goes to the hosts with the data of its first statement with values
    /// of the whole partition key.
    pub fn batch<'a>(&'a self, batch: &'a Batch<'a>) -> Call<'a, P> {
        self.inner.shared.call(Content::Batch(batch))
    }
}

impl<P: Platform> Shared<P> {
    #[inline]
    pub(super) fn call<'a>(&'a self, content: Content<'a>) -> Call<'a, P> {
        let body = Body::new(content, self.options.consistency);
        Call { shared: self, body, hosts: None, timeout: None, idempotent: None, retry: None }
    }
}

impl<'a, P: Platform> Call<'a, P> {
    /// Sets the values of the bind variables of a text: as [`Session::execute`] takes them, by value or by
    /// reference. Each statement of a batch has its own values instead.
    pub fn values<V: Serialize + Send + Sync + 'a>(mut self, values: V) -> Self {
        self.body.content = match self.body.content {
            Content::Text(text) => Content::TextWith(Text { text: text.into(), values: Arc::new(values) }),
            Content::TextWith(Text { text, .. }) => Content::TextWith(Text { text, values: Arc::new(values) }),
            Content::Bound(statement, ..) => match statement.bind(&values) {
                Ok(values) => Content::Bound(statement, values, None),
                Err(error) => Content::Misfit(Box::new(error)),
            },
            Content::Batch(_) | Content::PreparedBatch(..) => {
                let error = BindError::custom("each statement of a batch has its own values");
                Content::Misfit(Box::new(RequestError::Bind(Box::new(error))))
            }
            content @ (Content::Prepare(_) | Content::Misfit(_)) => content,
        };
        self
    }

    /// The number of replicas that must answer. Default:
    /// [`SessionOptions::consistency`](super::SessionOptions::consistency).
    pub const fn consistency(mut self, consistency: Consistency) -> Self {
        self.body.consistency = consistency;
        self
    }

    /// The consistency of the condition of a conditional statement: [`Consistency::Serial`], the
    /// default, or [`Consistency::LocalSerial`].
    pub const fn serial_consistency(mut self, consistency: Consistency) -> Self {
        self.body.serial_consistency = Some(consistency);
        self
    }

    /// The number of rows in a page. Default: [`Call::send`] returns all rows in one answer, and
    /// [`Call::rows`] and [`Call::pages`] ask for 5,000 at a time.
    pub const fn page_size(mut self, rows: i32) -> Self {
        self.body.page_size = Some(rows);
        self
    }

    /// The position to continue from: [`Reply::paging_state`] of the previous page. Default: the first
    /// row.
    pub fn paging_state(mut self, position: impl Into<Option<Vec<u8>>>) -> Self {
        let position = position.into();
        if position.is_some() || self.body.rare.is_some() {
            self.rare().paging_state = position;
        }
        self
    }

    /// The write timestamp in microseconds since 1970. Default: the server's time.
    pub const fn timestamp_us(mut self, timestamp_us: i64) -> Self {
        self.body.timestamp_us = Some(timestamp_us);
        self
    }

    /// Whether executing the statement twice is harmless. If so, it is sent to the next host when its
    /// connection fails, and after more errors of servers: see [`RetryPolicy`]. Default false.
    pub const fn idempotent(mut self, is_idempotent: bool) -> Self {
        self.idempotent = Some(is_idempotent);
        self
    }

    /// Limit on the time of the call, including all waiting, of [`Call::rows`] and [`Call::pages`] that
    /// of each page. [`Duration::MAX`] is no limit; with zero the call fails. Default:
    /// [`SessionOptions::request_timeout`](super::SessionOptions::request_timeout).
    pub const fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Whether the call is sent again after an error of a server. Default:
    /// [`SessionOptions::retry`](super::SessionOptions::retry).
    pub const fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }

    /// Sends the call to further hosts while no answer arrives. Executing it twice must be harmless:
    /// this sets [`Call::idempotent`], whatever it is. Default: no.
    pub fn speculation(mut self, speculation: Speculation) -> Self {
        self.rare().speculation = Some(speculation);
        self.idempotent(true)
    }

    /// The hosts to try, in this order; a host may be repeated, and other hosts are skipped. Default:
    /// the hosts with the data, then the other local hosts in rotation, then the remote hosts.
    pub const fn hosts(mut self, hosts: &'a [MuxId]) -> Self {
        self.hosts = Some(hosts);
        self
    }

    /// The location of the data, for a text without values: the local hosts that have replicas are tried
    /// first. A prepared statement needs no such option. Without effect if the session does not discover
    /// its hosts, or if the keyspace is unknown.
    ///
    /// - `partition_key`: as [`Token::of`](poolhouse_cql::Token::of) takes it.
    pub fn routing(mut self, keyspace: &'a str, partition_key: &[u8]) -> Self {
        self.rare().routing = Some(Routing::new(keyspace, partition_key));
        self
    }

    /// Whether the server traces the execution: [`Reply::tracing_id`] is the key of its tables
    /// `system_traces.sessions` and `system_traces.events`. Default false.
    pub fn tracing(mut self, is_traced: bool) -> Self {
        if is_traced || self.body.rare.is_some() {
            self.rare().tracing = is_traced;
        }
        self
    }

    /// Adds an entry of the custom payload, for a server with its own query handler. From version 4 of
    /// the protocol on.
    pub fn custom_payload(mut self, name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        self.rare().payload.push((name.into(), bytes.into()));
        self
    }

    /// Whether the answer omits the description of its columns: then only
    /// [`Reply::rows`] reads its rows. Default false.
    pub const fn skip_metadata(mut self, is_omitted: bool) -> Self {
        self.body.skip_metadata = is_omitted;
        self
    }

    fn rare(&mut self) -> &mut Rare<'a> {
        self.body.rare.get_or_insert_default()
    }

    /// The defaults of a result that is read in pages.
    pub(super) fn paged(mut self, rows: i32) -> Self {
        self.body.page_size.get_or_insert(rows);
        self.idempotent.get_or_insert(true);
        self
    }

    /// Sends the call, and waits for the answer.
    ///
    /// The pool of the next host in the query plan grants a stream id on its least busy connection,
    /// or queues the request for at most `pool_timeout`. If the host does not take the request, the
    /// next host is asked. A host without an open connection, which is being connected or will be after a
    /// pause, is asked after the other hosts of its distance, unless the options name it; then the request
    /// waits for the connection. If no host takes the request, the error contains the reason of each. After
    /// some errors of servers, the request is sent again: see [`RetryPolicy`].
    ///
    /// A host that does not have a prepared statement of the call prepares it, and then executes the call.
    /// A statement that has changed the schema returns after all hosts have the new schema, within
    /// [`SessionOptions::schema_agreement`](super::SessionOptions::schema_agreement).
    ///
    /// Dropping the future cancels the request. A request that already has a stream id is
    /// nevertheless sent and executed, and the id stays reserved until the answer arrives. A future
    /// that is not polled any more keeps its stream id or its position in the queue. A connection
    /// with more than 64 MiB of output, because its server does not read, takes no more requests.
    ///
    /// Cost: two short locks of the host. Allocates only the answer's body, or a share of a buffer:
    /// see [`Reply`]. Texts with values, batches, speculation, forgotten statements, changes of the schema,
    /// calls with routing, a paging state or a custom payload, and traced ones allocate more.
    ///
    /// # Errors
    ///
    /// [`RequestError`]. An answer of the server that is an error is [`RequestError::Server`].
    pub fn send(self) -> impl Future<Output = Result<Reply, RequestError>> + Send + use<'a, P> {
        #[cfg(feature = "tracing")]
        if self.shared.options.tracing.enabled {
            return timed(self.shared, self.body.opcode(), Sending::Boxed(Box::pin(send_in_span(self))));
        }
        if self.is_plain() {
            timed(self.shared, self.body.opcode(), Sending::Flight(Flight::new(self)))
        } else {
            timed(self.shared, self.body.opcode(), Sending::Boxed(Box::pin(send_any(self))))
        }
    }

    /// Whether the call is a statement that is sent as it is to one host after another.
    #[inline]
    fn is_plain(&self) -> bool {
        matches!(self.body.content, Content::Text(_) | Content::Bound(_, _, None)) && self.body.rare.is_none()
    }

    /// Reads the rows of a result as values of a type, as a stream that requests page after page:
    /// [`Rows::deserialize`](poolhouse_cql::Rows::deserialize) has the table of types. Errors are those
    /// of [`Call::pages`], and [`RequestError::Row`] for a row that is no `T`; after an error of a row the
    /// stream goes on.
    ///
    /// ```
    /// use poolhouse_client::Platform;
    /// use poolhouse_client::mux::{RequestError, Session};
    ///
    /// async fn total<P: Platform>(session: &Session<P>) -> Result<i64, RequestError> {
    ///     let mut prices = session.query("SELECT price FROM shop.teas").rows::<(i64,)>();
    ///     let mut total = 0;
    ///     while let Some(row) = prices.next_row().await {
    ///         total += row?.0;
    ///     }
    ///     Ok(total)
    /// }
    /// ```
    pub fn rows<T>(self) -> RowStream<'a, P, T> {
        RowStream::new(self.pages())
    }

    /// Reads a result in pages: a stream of answers.
    ///
    /// A page is requested again from another host if its connection fails: reading it twice is harmless. So
    /// the statement must only read, unless [`Call::idempotent`] is false: a conditional statement, which
    /// returns a row, is sent by [`Call::send`]. [`RequestError::RepeatedPage`]: the server has
    /// answered with the position of the page itself.
    pub fn pages(self) -> Pages<'a, P> {
        Pages::new(self)
    }
}

impl<P: Platform> fmt::Debug for Call<'_, P> {
    /// Omits statements and values, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Body { timestamp_us, page_size, consistency, serial_consistency, .. } = &self.body;
        f.debug_struct("Call")
            .field("opcode", &self.body.opcode())
            .field("consistency", consistency)
            .field("serial_consistency", serial_consistency)
            .field("page_size", page_size)
            .field("timestamp_us", timestamp_us)
            .field("idempotent", &self.idempotent)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl<'a> Body<'a> {
    /// - `consistency`: the default.
    pub(super) const fn new(content: Content<'a>, consistency: Consistency) -> Self {
        Self {
            content,
            timestamp_us: None,
            page_size: None,
            consistency,
            serial_consistency: None,
            skip_metadata: false,
            rare: None,
        }
    }

    pub(super) const fn opcode(&self) -> Opcode {
        match &self.content {
            Content::Text(_) => Opcode::Query,
            Content::TextWith(_) | Content::Bound(..) | Content::Misfit(_) => Opcode::Execute,
            Content::Batch(_) | Content::PreparedBatch(..) => Opcode::Batch,
            Content::Prepare(_) => Opcode::Prepare,
        }
    }

    fn flags(&self) -> Flags {
        let Some(rare) = &self.rare else { return Flags::NONE };
        let tracing = if rare.tracing { Flags::TRACING } else { Flags::NONE };
        if rare.payload.is_empty() { tracing } else { tracing.union(Flags::CUSTOM_PAYLOAD) }
    }

    #[inline]
    fn parameters<'b>(&'b self, values: Values<'b>, rare: Option<&'b Rare<'_>>) -> Parameters<'b> {
        let Self { timestamp_us, page_size, consistency, serial_consistency, skip_metadata, .. } = self;
        Parameters {
            consistency: *consistency,
            values,
            skip_metadata: *skip_metadata,
            page_size: *page_size,
            paging_state: rare.and_then(|rare| rare.paging_state.as_deref()),
            serial_consistency: *serial_consistency,
            timestamp_us: *timestamp_us,
        }
    }

    /// Writes the envelope at the end of `out`.
    #[inline]
    pub(super) fn encode(
        &self,
        out: &mut Vec<u8>,
        version: Version,
        stream: u16,
        limits: &Limits,
    ) -> Result<(), CqlEncodeError> {
        let outgoing = Outgoing::new(version, stream.cast_signed());
        // The code of a plain text, which nearly all calls are, is faster without the rest.
        let (Content::Text(text), None) = (&self.content, &self.rare) else {
            return self.encode_any(out, outgoing, limits);
        };
        let write = |body: &mut BodyWriter<'_, _>| {
            Request::Query { text, parameters: self.parameters(Values::NONE, None) }.write(body)
        };
        encode_envelope(out, outgoing, Opcode::Query, limits, write).map(drop)
    }

    #[inline(never)]
    fn encode_any(&self, out: &mut Vec<u8>, outgoing: Outgoing, limits: &Limits) -> Result<(), CqlEncodeError> {
        let rare = self.rare.as_deref();
        encode_envelope(out, outgoing.with_flags(self.flags()), self.opcode(), limits, |body| {
            if let Some(rare) = rare.filter(|rare| !rare.payload.is_empty()) {
                body.bytes_map(rare.payload.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())))?;
            }
            let batch = match &self.content {
                Content::Text(text) => {
                    return Request::Query { text, parameters: self.parameters(Values::NONE, rare) }.write(body);
                }
                Content::Bound(statement, values, _) => {
                    let (id, metadata_id) = (statement.id(), statement.metadata_id());
                    let parameters = self.parameters(values.values(), rare);
                    return Request::Execute { id, metadata_id, parameters }.write(body);
                }
                // A text with values is prepared, and a misfit is refused, before anything is sent.
                Content::Prepare(text) => return Request::Prepare(text).write(body),
                Content::TextWith(Text { text, .. }) => return Request::Prepare(text).write(body),
                Content::Misfit(_) => return Ok(()),
                Content::Batch(batch) => *batch,
                Content::PreparedBatch(batch, _) => batch,
            };
            let Self { timestamp_us, consistency, serial_consistency, .. } = *self;
            let parameters = BatchParameters { kind: batch.kind(), consistency, serial_consistency, timestamp_us };
            parameters.write(body, batch.entries())
        })
        .map(drop)
    }

    /// Whether the call is a text without values and without rare options.
    #[inline]
    pub(super) const fn is_plain_text(&self) -> bool {
        matches!(self.content, Content::Text(_)) && self.rare.is_none()
    }

    /// The location of the data; `None` if it is unknown.
    pub(super) fn routing(&self) -> Option<Routing<'_>> {
        match self.rare.as_ref().and_then(|rare| rare.routing) {
            None => match &self.content {
                Content::Bound(statement, values, _) => statement.routing(values.values()),
                Content::Batch(batch) => batch.routing(),
                Content::PreparedBatch(batch, _) => batch.routing(),
                Content::Text(_) | Content::TextWith(_) | Content::Prepare(_) | Content::Misfit(_) => None,
            },
            routing => routing,
        }
    }

    /// Whether the call has no prepared statement.
    #[inline]
    pub(super) const fn is_text(&self) -> bool {
        matches!(self.content, Content::Text(_) | Content::Prepare(_))
    }

    /// Whether the variables of a statement of the call have changed since it was prepared.
    #[inline]
    pub(super) fn is_outdated(&self) -> bool {
        match &self.content {
            Content::Bound(statement, ..) => statement.is_outdated(),
            Content::Batch(batch) => batch.is_outdated(),
            Content::PreparedBatch(batch, _) => batch.is_outdated(),
            Content::Text(_) | Content::TextWith(_) | Content::Prepare(_) | Content::Misfit(_) => false,
        }
    }

    /// The prepared statements that the host needs, each once.
    pub(super) fn statements(&self) -> Vec<&Statement> {
        match &self.content {
            Content::Bound(statement, ..) => Vec::from([&**statement]),
            Content::Batch(batch) => batch.statements(),
            Content::PreparedBatch(batch, _) => batch.statements(),
            Content::Text(_) | Content::TextWith(_) | Content::Prepare(_) | Content::Misfit(_) => Vec::new(),
        }
    }

    /// Whether the call can be sent: all of its texts with values were prepared.
    pub(super) fn is_ready(&self) -> bool {
        match &self.content {
            Content::Text(_) | Content::Bound(..) | Content::Prepare(_) | Content::PreparedBatch(..) => true,
            Content::Batch(batch) => batch.is_ready(),
            Content::TextWith(_) | Content::Misfit(_) => false,
        }
    }
}

/// The answer to a call, when it has arrived.
pub(super) enum Sending<'a, P: Platform> {
    /// A plain call, as nearly all are.
    Flight(Flight<'a, P, Call<'a, P>>),
    /// Something else: a statement is prepared, the schema must agree, or further hosts are asked.
    Boxed(Pin<Box<dyn Future<Output = Result<Reply, RequestError>> + Send + 'a>>),
}

/// [`send_any`] in the span of an operation.
#[cfg(feature = "tracing")]
async fn send_in_span<P: Platform>(call: Call<'_, P>) -> Result<Reply, RequestError> {
    let shared = call.shared;
    // In the child of a fork, the lock may be held for ever.
    shared.check_fork()?;
    let keyspace = shared.keyspace();
    let span = RequestSpan::new(
        call.body.opcode().name(),
        keyspace.as_deref(),
        call.body.consistency,
        call.idempotent == Some(true),
    );
    let Some(span) = span else { return send_any(call).await };
    let result = span.run(send_any(call)).await;
    let address = result.as_ref().ok().and_then(|reply| shared.address_of(reply.host()));
    span.record(address.as_deref(), result.as_ref().err());
    result
}

/// Sends a call that is not plain. Its statements are looked up when the future is polled first: the keyspace may
/// have changed since the call was made.
async fn send_any<P: Platform>(call: Call<'_, P>) -> Result<Reply, RequestError> {
    let mut call = call.bind_known();
    if !call.body.is_ready() {
        call = call.prepared().await?;
    }
    call.warn_of_large();
    if let Some(speculation) = call.body.rare.as_ref().and_then(|rare| rare.speculation) {
        return call.shared.speculate(&call, speculation).await;
    }
    let mut flight = Flight::new(&call);
    let result = (&mut flight).await;
    if call.is_unsettled(&result) { settle(&call, flight.deadline(), result).await } else { result }
}

impl<P: Platform> Future for Sending<'_, P> {
    type Output = Result<Reply, RequestError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let flight = match this {
            Self::Flight(flight) => flight,
            Self::Boxed(boxed) => return boxed.as_mut().poll(context),
        };
        let result = ready!(Pin::new(&mut *flight).poll(context));
        if flight.call().is_unsettled(&result) { this.settle(result, context) } else { Poll::Ready(result) }
    }
}

impl<P: Platform> Sending<'_, P> {
    #[cold]
    fn settle(
        &mut self,
        result: Result<Reply, RequestError>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Reply, RequestError>> {
        let Self::Flight(flight) = &*self else { return Poll::Ready(result) };
        let (deadline, call) = (flight.deadline(), flight.call().clone());
        *self = Self::Boxed(Box::pin(async move { settle(&call, deadline, result).await }));
        Pin::new(self).poll(context)
    }
}
