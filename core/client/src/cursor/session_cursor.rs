//! Cursors in a session of the application.
//!
//! Read first: Driver Sessions, on cursors.

use super::{Cursor, CursorOptions};
use crate::session::{CursorOwner, LIMIT_IN_TRANSACTION};
use crate::{ClientSession, CommandOptions, Error, Platform};
use alloc::sync::Arc;
use core::fmt;
use core::ops::Range;
use core::time::Duration;
use poolhouse_driver::yield_now;
use serde::de::DeserializeOwned;

/// A cursor in a [`ClientSession`]: as [`Cursor`], but each call for a document or a batch takes the session
/// that has opened it, and the cursor has that session's transaction or snapshot. Other commands of the session
/// may run between the calls.
///
/// ```
/// use bson::doc;
/// use poolhouse_client::{ClientSession, CommandOptions, CursorOptions, Error, Platform, SessionCursor};
///
/// async fn copy<P: Platform>(session: &mut ClientSession<P>) -> Result<(), Error> {
///     let (find, options, further) = (doc! { "find": "orders" }, CommandOptions::new(), CursorOptions::new());
///     let mut orders: SessionCursor<P> = session.run_cursor_command("shop", find, options, further).await?;
///     while let Some(order) = orders.try_next(session).await? {
///         session.run_command("shop", doc! { "insert": "copies", "documents": [order] }).await?;
///     }
///     Ok(())
/// }
/// ```
///
/// Dropping it closes the server's cursor in the background. The server closes a cursor that was opened in a
/// transaction at the end of the transaction: until then the cursor can be used, and then it has the
/// documents of its last batch. A cursor that was opened before a transaction has no further batch while the
/// transaction is open. A future of [`try_next`](Self::try_next) that is dropped while it waits for a batch
/// ends the cursor, because the batch is lost.
#[must_use = "a cursor that is dropped is closed on its server"]
pub struct SessionCursor<P: Platform, T = bson::Document> {
    cursor: Cursor<P, T>,
    /// A request for a batch has begun, and has not ended.
    is_fetching: bool,
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
    ) -> Result<SessionCursor<P, T>, Error> {
        let begun = self.client.begin_cursor(&mut self.state, database, command, options, cursor_options).await;
        Ok(SessionCursor { cursor: Cursor::new(begun?), is_fetching: false })
    }
}

impl<P: Platform, T> SessionCursor<P, T> {
    /// Returns the next document, as [`Cursor::try_next`] does.
    ///
    /// # Errors
    ///
    /// As [`Cursor::try_next`]; [`Error::Cursor`] if an earlier future of this function was dropped while it
    /// waited for a batch. [`Error::Session`], and nothing is sent: it is not the session that has opened the
    /// cursor, or the cursor needs a batch, and its transaction has ended or one was started after it was
    /// opened. The cursor has ended then only if its transaction has.
    pub async fn try_next(&mut self, session: &mut ClientSession<P>) -> Result<Option<T>, Error>
    where
        T: DeserializeOwned + Send,
    {
        let document = self.next(session, false).await?;
        self.cursor.decoded(document)
    }

    /// Returns the next document if there is any, as [`Cursor::next_if_any`] does.
    ///
    /// # Errors
    ///
    /// As [`SessionCursor::try_next`].
    pub async fn next_if_any(&mut self, session: &mut ClientSession<P>) -> Result<Option<T>, Error>
    where
        T: DeserializeOwned + Send,
    {
        let document = self.next(session, true).await?;
        self.cursor.decoded(document)
    }

    /// As [`Cursor::is_alive`].
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.cursor.is_alive()
    }

    /// As [`Cursor::operation_time`].
    #[must_use]
    pub fn operation_time(&self) -> Option<bson::Timestamp> {
        self.cursor.operation_time()
    }

    /// As [`Cursor::post_batch_resume_token`].
    #[must_use]
    pub fn post_batch_resume_token(&self) -> Option<&bson::RawDocument> {
        self.cursor.post_batch_resume_token()
    }

    /// Returns the next document as its bytes, as [`Cursor::next_raw`] does.
    ///
    /// # Errors
    ///
    /// As [`SessionCursor::try_next`].
    pub async fn next_raw(&mut self, session: &mut ClientSession<P>) -> Result<Option<&bson::RawDocument>, Error> {
        let document = self.next(session, false).await?;
        self.cursor.raw(document)
    }

    /// Closes the cursor as [`Cursor::close`] does. Sends nothing if the transaction of the cursor has ended.
    ///
    /// # Errors
    ///
    /// As [`Cursor::close`]; [`Error::Session`] if it is not the session that has opened the cursor, which is
    /// closed as if it were dropped.
    pub async fn close(self, session: &mut ClientSession<P>) -> Result<(), Error> {
        self.close_by(session, None).await
    }

    /// Closes the cursor as [`SessionCursor::close`] does, with a time limit of this call instead of that of
    /// the cursor. Zero and [`Duration::MAX`] are never reached.
    ///
    /// # Errors
    ///
    /// As [`SessionCursor::close`]; [`Error::Session`] in
    /// [`with_transaction`](ClientSession::with_transaction), if the transaction has a time limit.
    pub async fn close_within(self, session: &mut ClientSession<P>, limit: Duration) -> Result<(), Error> {
        if session.state.transaction_deadline().is_some() {
            return Err(Error::Session(LIMIT_IN_TRANSACTION));
        }
        self.close_by(session, Some(limit)).await
    }

    async fn close_by(mut self, session: &mut ClientSession<P>, limit: Option<Duration>) -> Result<(), Error> {
        let owner = self.owner(session)?;
        let Some(batches) = &mut self.cursor.batches else { return Ok(()) };
        let outcome = match batches.owner.and_then(|owner| owner.transaction) {
            // Outside of a transaction that the session may have now.
            None if owner.transaction.is_some() => batches.kill(limit).await,
            transaction if transaction == owner.transaction => batches.kill_in(&mut session.state, limit).await,
            _ => Ok(()),
        };
        self.cursor.batches = None;
        outcome
    }

    /// Waits for the next document, and returns its range in the last reply. The cursor ends with its last
    /// document, and with an error of a request.
    ///
    /// - `if_any`: whether it also returns `None` after an empty batch.
    async fn next(&mut self, session: &mut ClientSession<P>, if_any: bool) -> Result<Option<Range<usize>>, Error> {
        let owner = self.owner(session)?;
        let Some(batches) = &self.cursor.batches else { return Ok(None) };
        if batches.rest.is_empty() && batches.id != 0 && batches.owner != Some(owner) {
            if batches.owner.is_none_or(|owner| owner.transaction.is_none()) {
                return Err(Error::Session("the cursor was opened before the transaction: it has no batch in it"));
            }
            self.cursor.end();
            return Err(Error::Session("the transaction in which the cursor was opened has ended"));
        }
        let next = self.next_range(session, if_any).await;
        self.cursor.ended_by(next)
    }

    /// Returns the session and its open transaction.
    ///
    /// # Errors
    ///
    /// It is not the session that has opened the cursor.
    fn owner(&self, session: &ClientSession<P>) -> Result<CursorOwner, Error> {
        let owner = session.state.cursor_owner();
        let own = self.cursor.batches.as_ref().map_or(owner, |batches| batches.owner);
        let is_same = |owner: &CursorOwner| own.is_some_and(|own| own.is_same_session(*owner));
        owner.filter(is_same).ok_or(Error::Session("the cursor was opened in another session"))
    }

    /// Waits for the next document, and returns its range in the last reply.
    async fn next_range(
        &mut self,
        session: &mut ClientSession<P>,
        if_any: bool,
    ) -> Result<Option<Range<usize>>, Error> {
        let Some(batches) = &mut self.cursor.batches else { return Ok(None) };
        if self.is_fetching {
            return Err(Error::Cursor("a request for a batch was dropped before its reply"));
        }
        while batches.rest.is_empty() {
            if batches.id == 0 {
                return Ok(None);
            }
            let (command, max_time) = (batches.get_more()?, batches.options.max_time());
            let origin = Arc::clone(&batches.origin);
            let state = &mut session.state;
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
}

impl<P: Platform, T> fmt::Debug for SessionCursor<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.cursor.batches.as_ref().map(|batches| &batches.origin.namespace);
        f.debug_struct("SessionCursor").field("namespace", &namespace).finish_non_exhaustive()
    }
}
