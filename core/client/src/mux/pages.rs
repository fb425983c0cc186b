//! Results in pages.

use super::prepared::Statement;
use super::request::RequestOptions;
use super::{Reply, RequestError, Session};
use crate::Platform;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use futures_core::Stream;
use poolhouse_cql::{Consistency, CqlError, Parameters, Request, Response, Value};

/// A statement whose result is read in pages: its text, or a prepared statement.
#[derive(Clone)]
pub enum Paged {
    /// The statement in CQL.
    Text(String),
    /// A prepared statement.
    Prepared(Statement),
}

impl fmt::Debug for Paged {
    /// Omits the text, which may contain any data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text(..)"),
            Self::Prepared(statement) => f.debug_tuple("Prepared").field(statement).finish(),
        }
    }
}

impl From<&str> for Paged {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<&Statement> for Paged {
    fn from(statement: &Statement) -> Self {
        Self::Prepared(statement.clone())
    }
}

/// The pages of a result, as a stream: [`Session::pages`]. Each item is the reply with the rows of one
/// page. Ends after the last page, and after an error.
///
/// The next page is requested when it is polled for, not earlier. Dropping the stream cancels the
/// request for a page.
#[must_use = "a stream does nothing unless it is polled"]
pub struct Pages<P: Platform> {
    session: Session<P>,
    query: Arc<Query>,
    next: Next,
}

/// The statement, with its values and parameters.
struct Query {
    statement: Paged,
    values: Vec<Owned>,
    consistency: Consistency,
    serial_consistency: Option<Consistency>,
    skip_metadata: bool,
    timestamp_us: Option<i64>,
    page_size: i32,
    timeout: Option<Duration>,
}

/// A [`Value`] with its own memory.
enum Owned {
    Bytes(Vec<u8>),
    Null,
    Unset,
}

enum Next {
    /// The page at this position was not requested yet.
    At(Option<Vec<u8>>),
    Requested {
        /// The position of the page.
        at: Option<Vec<u8>>,
        page: Pin<Box<dyn Future<Output = Result<Reply, RequestError>> + Send>>,
    },
    Ended,
}

impl<P: Platform> Session<P> {
    /// Reads the result of a statement in pages.
    ///
    /// - `statement`: its text, or a [`Statement`], which goes to the hosts with the data.
    /// - `parameters`: with a value for each bind variable. `page_size` is the number of rows in a
    ///   page, by default 5,000. `paging_state` is the position of the first page.
    /// - `timeout`: the time limit of each page; `None`: that of the session's options.
    ///
    /// A page is requested again from another host if its connection fails: reading it twice is
    /// harmless, so the statement must only read. [`RequestError::RepeatedPage`]: the server has
    /// answered with the position of the page itself.
    pub fn pages(
        &self,
        statement: impl Into<Paged>,
        parameters: Parameters<'_>,
        timeout: Option<Duration>,
    ) -> Pages<P> {
        let values = parameters.values.iter().map(|value| match value {
            Value::Bytes(bytes) => Owned::Bytes(bytes.to_vec()),
            Value::Null => Owned::Null,
            Value::Unset => Owned::Unset,
        });
        let query = Query {
            statement: statement.into(),
            values: values.collect(),
            consistency: parameters.consistency,
            serial_consistency: parameters.serial_consistency,
            skip_metadata: parameters.skip_metadata,
            timestamp_us: parameters.timestamp_us,
            page_size: parameters.page_size.unwrap_or(5_000),
            timeout,
        };
        let next = Next::At(parameters.paging_state.map(<[u8]>::to_vec));
        Pages { session: self.clone(), query: Arc::new(query), next }
    }
}

impl<P: Platform> Pages<P> {
    /// Returns the next page; `None` after the last one, and after an error. Dropping the future loses
    /// no page.
    ///
    /// # Errors
    ///
    /// As [`Session::request`]. The error is an item of the stream, which then ends.
    pub async fn next_page(&mut self) -> Option<Result<Reply, RequestError>> {
        poll_fn(|context| self.poll_page(context)).await
    }

    fn poll_page(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Reply, RequestError>>> {
        if let Next::At(position) = &mut self.next {
            let at = position.take();
            let page = Box::pin(request_page(self.session.clone(), Arc::clone(&self.query), at.clone()));
            self.next = Next::Requested { at, page };
        }
        let Next::Requested { at, page } = &mut self.next else { return Poll::Ready(None) };
        let page = ready!(page.as_mut().poll(context));
        let before = at.take();
        self.next = Next::Ended;
        let page = page.and_then(|reply| match position_after(&reply) {
            Ok(None) => Ok(reply),
            Ok(after) if after == before => Err(RequestError::RepeatedPage),
            Ok(after) => {
                self.next = Next::At(after);
                Ok(reply)
            }
            Err(error) => Err(RequestError::Reply(error)),
        });
        Poll::Ready(Some(page))
    }
}

async fn request_page<P: Platform>(
    session: Session<P>,
    query: Arc<Query>,
    position: Option<Vec<u8>>,
) -> Result<Reply, RequestError> {
    let values: Vec<Value<'_>> = query
        .values
        .iter()
        .map(|value| match value {
            Owned::Bytes(bytes) => Value::Bytes(bytes),
            Owned::Null => Value::Null,
            Owned::Unset => Value::Unset,
        })
        .collect();
    let parameters = Parameters {
        consistency: query.consistency,
        values: &values,
        skip_metadata: query.skip_metadata,
        page_size: Some(query.page_size),
        paging_state: position.as_deref(),
        serial_consistency: query.serial_consistency,
        timestamp_us: query.timestamp_us,
    };
    let options = RequestOptions { timeout: query.timeout, idempotent: true, ..RequestOptions::default() };
    match &query.statement {
        Paged::Text(text) => session.request_with(&Request::Query { text, parameters }, options).await,
        Paged::Prepared(statement) => session.execute(statement, parameters, options).await,
    }
}

/// The position after a page; `None` after the last. An empty position would be that of the first
/// page.
fn position_after(reply: &Reply) -> Result<Option<Vec<u8>>, CqlError> {
    let Response::Result(outcome) = reply.response()? else { return Ok(None) };
    let position = outcome.rows()?.and_then(|rows| rows.paging_state);
    Ok(position.filter(|position| !position.is_empty()).map(<[u8]>::to_vec))
}

impl<P: Platform> Stream for Pages<P> {
    type Item = Result<Reply, RequestError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_page(context)
    }
}

impl<P: Platform> fmt::Debug for Pages<P> {
    /// Omits the statement, its values and the position, which may contain any data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_ended = matches!(self.next, Next::Ended);
        f.debug_struct("Pages").field("has_ended", &has_ended).finish_non_exhaustive()
    }
}
