//! Cursors in a session of the application.
//!
//! Read first: Driver Sessions, on cursors.

use super::CursorOptions;
use super::batches::Batches;
use crate::{ClientSession, CommandOptions, Error, Platform, convert};
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::sync::Arc;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;
use poolhouse_driver::yield_now;
use serde::de::DeserializeOwned;

/// A cursor in a [`ClientSession`]: as [`Cursor`](super::Cursor), but it borrows the session, and
/// has the session's transaction or snapshot.
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
    /// Runs a command that replies with a cursor in this session, as
    /// [`Client::run_cursor_command`](crate::Client::run_cursor_command) does.
    ///
    /// # Errors
    ///
    /// As [`Client::run_cursor_command`](crate::Client::run_cursor_command) and
    /// [`ClientSession::run_command`].
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
    /// Returns the next document, as [`Cursor::try_next`](super::Cursor::try_next) does.
    ///
    /// # Errors
    ///
    /// As [`Cursor::try_next`](super::Cursor::try_next); [`Error::Cursor`] if an earlier future of
    /// this function was dropped while it waited for a batch.
    pub async fn try_next(&mut self) -> Result<Option<T>, Error>
    where
        T: DeserializeOwned + Send,
    {
        let Some(document) = self.next(false).await? else { return Ok(None) };
        self.batches.as_ref().map(|batches| batches.decode(document)).transpose()
    }

    /// Returns the next document if there is any, as [`Cursor::next_if_any`](super::Cursor::next_if_any)
    /// does.
    ///
    /// # Errors
    ///
    /// As [`SessionCursor::try_next`].
    pub async fn next_if_any(&mut self) -> Result<Option<T>, Error>
    where
        T: DeserializeOwned + Send,
    {
        let Some(document) = self.next(true).await? else { return Ok(None) };
        self.batches.as_ref().map(|batches| batches.decode(document)).transpose()
    }

    /// As [`Cursor::is_alive`](super::Cursor::is_alive).
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.batches.as_ref().is_some_and(|batches| batches.is_alive())
    }

    /// As [`Cursor::operation_time`](super::Cursor::operation_time).
    #[must_use]
    pub fn operation_time(&self) -> Option<bson::Timestamp> {
        self.batches.as_ref()?.operation_time.map(convert::to_timestamp)
    }

    /// As [`Cursor::post_batch_resume_token`](super::Cursor::post_batch_resume_token).
    #[must_use]
    pub fn post_batch_resume_token(&self) -> Option<&bson::RawDocument> {
        self.batches.as_ref()?.resume_token()
    }

    /// Returns the next document as its bytes, as [`Cursor::next_raw`](super::Cursor::next_raw) does.
    ///
    /// # Errors
    ///
    /// As [`SessionCursor::try_next`].
    pub async fn next_raw(&mut self) -> Result<Option<&bson::RawDocument>, Error> {
        let Some(document) = self.next(false).await? else { return Ok(None) };
        let bytes = self.batches.as_ref().and_then(|batches| batches.reply.body().get(document)).unwrap_or_default();
        bson::RawDocument::from_bytes(bytes).map(Some).map_err(|error| Error::Bson(error.to_string()))
    }

    /// Waits for the next document, and returns its range in the last reply. The cursor ends with its last
    /// document, and with an error.
    ///
    /// - `if_any`: whether it also returns `None` after an empty batch.
    async fn next(&mut self, if_any: bool) -> Result<Option<Range<usize>>, Error> {
        let next = self.next_range(if_any).await;
        match &next {
            Ok(Some(_)) => {}
            Ok(None) if self.is_alive() => {}
            Ok(None) => self.batches = None,
            Err(_) => self.end(),
        }
        next
    }

    /// Closes the cursor, and waits until its server has closed it.
    ///
    /// # Errors
    ///
    /// As [`Cursor::close`](super::Cursor::close).
    pub async fn close(mut self) -> Result<(), Error> {
        let Some(batches) = &mut self.batches else { return Ok(()) };
        let outcome = batches.kill_in(&mut self.session.state).await;
        self.batches = None;
        outcome
    }

    /// Waits for the next document, and returns its range in the last reply.
    async fn next_range(&mut self, if_any: bool) -> Result<Option<Range<usize>>, Error> {
        let Some(batches) = &mut self.batches else { return Ok(None) };
        if self.is_fetching {
            return Err(Error::Cursor("a request for a batch was dropped before its reply"));
        }
        while batches.rest.is_empty() {
            if batches.id == 0 {
                return Ok(None);
            }
            let (command, max_time) = (batches.get_more()?, batches.options.max_time());
            let origin = Arc::clone(&batches.origin);
            let state = &mut self.session.state;
            let deadline = batches.next_deadline();
            let deadline = deadline.into_iter().chain(state.transaction_deadline()).min();
            let mut reply = core::mem::take(&mut batches.reply);
            self.is_fetching = true;
            let fetched =
                origin.fetch(state, &mut batches.connection, (&command, max_time), deadline, &mut reply).await;
            self.is_fetching = false;
            batches.take_reply(fetched.map(|()| reply))?;
            if batches.rest.is_empty() && batches.id != 0 {
                if if_any {
                    batches.next_by = None;
                    return Ok(None);
                }
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
