//! Results in pages.

use super::call::Call;
use super::{Reply, RequestError};
use crate::Platform;
use alloc::boxed::Box;
use alloc::vec::{IntoIter, Vec};
use core::fmt;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use futures_core::Stream;
use poolhouse_cql::{CqlError, Response};
use serde::de::DeserializeOwned;

/// The number of rows in a page, unless the call has another.
const PAGE_SIZE_DEFAULT: i32 = 5_000;

/// The pages of a result, as a stream: [`Call::pages`]. Each item is the reply with the rows of one
/// page. Ends after the last page, and after an error.
///
/// The next page is requested when it is polled for, not earlier. Dropping the stream cancels the
/// request for a page.
#[must_use = "a stream does nothing unless it is polled"]
pub struct Pages<'a, P: Platform> {
    call: Call<'a, P>,
    next: Next<'a>,
}

enum Next<'a> {
    /// The page at this position was not requested yet; `None`: at the position of the call.
    At(Option<Vec<u8>>),
    Requested {
        /// The position of the page.
        at: Option<Vec<u8>>,
        page: Pin<Box<dyn Future<Output = Result<Reply, RequestError>> + Send + 'a>>,
    },
    Ended,
}

impl<'a, P: Platform> Pages<'a, P> {
    pub(super) fn new(call: Call<'a, P>) -> Self {
        Self { call: call.paged(PAGE_SIZE_DEFAULT), next: Next::At(None) }
    }

    /// Returns the next page; `None` after the last one, and after an error. Dropping the future loses
    /// no page.
    ///
    /// # Errors
    ///
    /// As [`Call::send`]. The error is an item of the stream, which then ends.
    pub async fn next_page(&mut self) -> Option<Result<Reply, RequestError>> {
        poll_fn(|context| self.poll_page(context)).await
    }

    fn poll_page(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Reply, RequestError>>> {
        if let Next::At(position) = &mut self.next {
            let at = position.take();
            let mut call = self.call.clone();
            if at.is_some() {
                call = call.paging_state(at.clone());
            }
            self.next = Next::Requested { at, page: Box::pin(call.send()) };
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

/// The position after a page; `None` after the last. An empty position would be that of the first
/// page.
fn position_after(reply: &Reply) -> Result<Option<Vec<u8>>, CqlError> {
    let Response::Result(outcome) = reply.response()? else { return Ok(None) };
    let position = outcome.rows()?.and_then(|rows| rows.paging_state);
    Ok(position.filter(|position| !position.is_empty()).map(<[u8]>::to_vec))
}

impl<P: Platform> Stream for Pages<'_, P> {
    type Item = Result<Reply, RequestError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_page(context)
    }
}

impl<P: Platform> fmt::Debug for Pages<'_, P> {
    /// Omits the statement, its values and the position, which may contain any data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_ended = matches!(self.next, Next::Ended);
        f.debug_struct("Pages").field("has_ended", &has_ended).finish_non_exhaustive()
    }
}

/// The rows of a result as values of a type, as a stream: [`Call::rows`].
///
/// The rows of a page are decoded when it has arrived, and the next page is requested after they were
/// taken. Dropping the stream cancels the request for a page.
#[must_use = "a stream does nothing unless it is polled"]
pub struct RowStream<'a, P: Platform, T> {
    pages: Pages<'a, P>,
    rows: IntoIter<Result<T, RequestError>>,
}

impl<'a, P: Platform, T> RowStream<'a, P, T> {
    pub(super) fn new(pages: Pages<'a, P>) -> Self {
        Self { pages, rows: Vec::new().into_iter() }
    }
}

impl<P: Platform, T: DeserializeOwned> RowStream<'_, P, T> {
    /// Returns the next row; `None` after the last one. Dropping the future loses no row.
    ///
    /// # Errors
    ///
    /// As [`Call::rows`]. The error is an item of the stream.
    pub async fn next_row(&mut self) -> Option<Result<T, RequestError>> {
        poll_fn(|context| self.poll_row(context)).await
    }

    fn poll_row(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T, RequestError>>> {
        loop {
            if let Some(row) = self.rows.next() {
                return Poll::Ready(Some(row));
            }
            let Some(page) = ready!(self.pages.poll_page(context)) else { return Poll::Ready(None) };
            let rows = page.and_then(|page| {
                let rows = page.rows()?.deserialize();
                Ok(rows.map(|row| row.map_err(|error| RequestError::Row(Box::new(error)))).collect::<Vec<_>>())
            });
            match rows {
                Ok(rows) => self.rows = rows.into_iter(),
                Err(error) => {
                    self.pages.next = Next::Ended;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }
}

// No row is pinned.
impl<P: Platform, T> Unpin for RowStream<'_, P, T> {}

impl<P: Platform, T: DeserializeOwned> Stream for RowStream<'_, P, T> {
    type Item = Result<T, RequestError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_row(context)
    }
}

impl<P: Platform, T> fmt::Debug for RowStream<'_, P, T> {
    /// Omits the statement, its values and the rows, which may contain any data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowStream").field("pages", &self.pages).field("decoded_rows", &self.rows.len()).finish()
    }
}
