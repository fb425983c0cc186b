//! Commands on a connection that the client selects.
//!
//! Read first: Run Command, "Implementation requirements".

use super::convert::{self, Read, into_encoded};
use super::operations::Timer;
use super::options::tag_sets;
use super::session::{LIMIT_IN_TRANSACTION, MaxTime, SessionState};
use super::transaction::label_retryable_write;
use super::{Client, Error, Net, Platform, connection};
use alloc::boxed::Box;
use alloc::string::ToString;
use connection::Parts;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::selection::{ReadPreference, SelectionCriteria};
use poolhouse_driver::{
    AttemptError as _, Attempts, CommandOptions, EventKinds, Guard, Publish as _, RetryPolicy, SelectionRequest,
};
use poolhouse_wire::bson::RawDocument;
#[cfg(feature = "tracing")]
use poolhouse_wire::bson::RawValue;
use poolhouse_wire::command::{CommandShape, Retry};
use serde::de::DeserializeOwned;

/// The name of a command; empty if it is malformed: the operation refuses it at once.
pub(super) fn name_of(command: &[u8]) -> &str {
    let first = RawDocument::new(command).ok().and_then(|command| command.iter().next()?.ok());
    first.map_or("", |element| element.key)
}

/// Ends the measurement of an operation.
#[inline]
pub(super) fn end<T, P: Platform>(timer: Option<Timer<'_, P>>, result: &Result<T, Error>) {
    if let Some(timer) = timer {
        timer.end(result.as_ref().err().map(Error::type_name).as_deref());
    }
}

impl<P: Platform> Client<P> {
    /// Runs a command on a server that accepts writes, and returns the reply if its `ok` is 1 and it
    /// has no write errors.
    ///
    /// The command is sent unchanged, except that `$db` is added, `$readPreference` where the server
    /// requires it, `maxTimeMS` if the operation has a time limit, and on deployments with sessions
    /// `lsid` and `$clusterTime`, each unless the command has it. If the command has `$db` or
    /// `$readPreference`, servers refuse it. Of the client's options, only the time limits, the
    /// options of retries and [`ClientOptions::server_api`](super::ClientOptions#structfield.server_api)
    /// apply: see [`CommandOptions`].
    ///
    /// The operation may take as long as
    /// [`ClientOptions::timeout`](super::ClientOptions#structfield.timeout) allows; it is retried
    /// until then, without an end by time if the limit is zero, or once if there is no limit. If the pause
    /// before a retry (of at most 400 ms, or after an overload as below) would end after the limit, the
    /// operation ends with an [`Error::Timeout`], which contains the last error.
    /// Any command is retried if it was not sent. A command that reads (`find`, `aggregate`, `count`,
    /// `distinct`, `listDatabases`, `listCollections`, `listIndexes`) is retried after a network error
    /// or a change of the server's state. So is a write (`insert`, `update`, `delete`,
    /// `findAndModify`, `bulkWrite`) that affects a known number of documents, on deployments other
    /// than standalone servers: it is sent with `txnNumber`, by which the server executes it once.
    /// After an overload error, any command is retried up to
    /// [`max_adaptive_retries`](super::ClientOptions#structfield.max_adaptive_retries) times, after
    /// [pauses](poolhouse_driver::overload_pause). An overload error means that the server refused
    /// the command, or that the connection for it was refused, reset or timed out before the reply
    /// to hello. With `retryReads=false`, a read is never retried; with `retryWrites=false`, a write
    /// is neither numbered nor retried; with either, no other command is retried.
    ///
    /// The specification forbids drivers to examine, number or retry the command of a `runCommand`,
    /// because they have other functions for reads and writes. This function is the only one here,
    /// so it does what those do; [`CommandOptions::retry`] turns it off for one command.
    ///
    /// A write with the write concern `w: 0` (`insert`, `update`, `delete`, `bulkWrite`) is sent with
    /// the flag `moreToCome`: the server sends no reply, the operation ends when the command is written
    /// to the socket, and the result is `{ ok: 1 }`. The client learns of no error of the server. The
    /// command has no session, and is retried only if it was not sent. A server that is not the primary
    /// any more closes the connection, so the next operation may fail with a network error. Any other
    /// command with `w: 0`, such as `findAndModify`, has its reply, but no session and no number, so it
    /// is retried only if it was certainly not executed or is idempotent. With `j: true`, a write is
    /// acknowledged although `w` is 0.
    ///
    /// The reply to a command that returns a cursor (`find`, `aggregate`) has its first batch only, and
    /// leaves the cursor open on the server; with the feature `tracing`, the first such reply of a client
    /// is logged at *warn*. [`Client::run_cursor_command`] returns all documents.
    ///
    /// A `getMore` must run in the session of its cursor: see [`Client::run_cursor_command`]. A
    /// command with `txnNumber`, or of a transaction, needs its own `lsid`, because the client
    /// numbers the writes of its own sessions.
    ///
    /// # Errors
    ///
    /// [`Error::Command`] if the server refuses the command; [`Error::Write`] if writes of it failed
    /// or were not acknowledged as its write concern requires, unless
    /// [`CommandOptions::write_errors_in_reply`] returns such a reply; [`Error::Operation`] if no
    /// server can be selected, no connection is available, or no reply is received, with the label
    /// `RetryableWriteError` if a write failed in a way after which it is retried; [`Error::Timeout`] if
    /// no time is left to retry it after one of these;
    /// [`Error::Bson`] if a document cannot be encoded or is empty; [`Error::Session`] if the command
    /// needs an `lsid` and has none, or is a write with `w: 0` and has one. Nothing is sent then.
    ///
    /// Source: Run Command; Retryable Reads; Retryable Writes; Driver Sessions; OP_MSG, "moreToCome On
    /// Requests".
    pub async fn run_command(&self, database: &str, command: bson::Document) -> Result<bson::Document, Error> {
        self.run_command_with(database, command, CommandOptions::new()).await
    }

    /// Runs a command as [`Client::run_command`] does, with options for this command.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`].
    pub async fn run_command_with(
        &self,
        database: &str,
        command: bson::Document,
        options: CommandOptions<'_>,
    ) -> Result<bson::Document, Error> {
        self.run(database, &into_encoded(command)?, options, convert::to_document).await
    }

    /// Runs a command as [`Client::run_command`] does, and decodes the reply with serde.
    ///
    /// ```
    /// use bson::doc;
    /// use poolhouse_client::{Client, Error, Platform};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Count {
    ///     n: i64,
    /// }
    ///
    /// async fn orders<P: Platform>(client: &Client<P>) -> Result<i64, Error> {
    ///     let Count { n } = client.run_command_as("shop", doc! { "count": "orders" }).await?;
    ///     Ok(n)
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`]; [`Error::Bson`] if the reply is no `T`. The server has executed
    /// the command then.
    pub async fn run_command_as<T: DeserializeOwned + Send>(
        &self,
        database: &str,
        command: bson::Document,
    ) -> Result<T, Error> {
        self.run_command_as_with(database, command, CommandOptions::new()).await
    }

    /// Runs a command as [`Client::run_command_as`] does, with options for this command.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command_as`].
    pub async fn run_command_as_with<T: DeserializeOwned + Send>(
        &self,
        database: &str,
        command: bson::Document,
        options: CommandOptions<'_>,
    ) -> Result<T, Error> {
        self.run(database, &into_encoded(command)?, options, convert::to_value).await
    }

    /// Runs a command as [`Client::run_command`] does, without decoding documents: the bytes are
    /// sent, and the reply is returned, unchanged.
    ///
    /// Cost: one allocation, for the reply.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`].
    pub async fn run_raw_command(
        &self,
        database: &str,
        command: &bson::RawDocument,
    ) -> Result<bson::RawDocumentBuf, Error> {
        self.run_raw_command_with(database, command, CommandOptions::new()).await
    }

    /// Runs a command as [`Client::run_raw_command`] does, with options for this command.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`].
    pub async fn run_raw_command_with(
        &self,
        database: &str,
        command: &bson::RawDocument,
        options: CommandOptions<'_>,
    ) -> Result<bson::RawDocumentBuf, Error> {
        self.run(database, command.as_bytes(), options, convert::to_raw_document).await
    }

    async fn run<T>(
        &self,
        database: &str,
        command: &[u8],
        options: CommandOptions<'_>,
        read: Read<T>,
    ) -> Result<T, Error> {
        let mut session = SessionState::default();
        let result = self.run_in(&mut session, database, command, options, read).await;
        // If this future is dropped earlier, the session is too: the server may still use it.
        session.end(self);
        result
    }

    /// Runs a command in a session.
    pub(super) async fn run_in<T>(
        &self,
        session: &mut SessionState<P>,
        database: &str,
        command: &[u8],
        options: CommandOptions<'_>,
        read: Read<T>,
    ) -> Result<T, Error> {
        let finish = async |guard: Guard<'_, Net<P>>, session: &mut SessionState<P>| {
            #[cfg(feature = "tracing")]
            if let Some(reply) = guard.reply() {
                self.warn_of_open_cursor(command, reply);
            }
            let value = connection::converted(&guard, read);
            session.keep(self, guard);
            value
        };
        let deadline = self.deadline(options.limit_or(self.options().timeout));
        let limit = (deadline, true);
        let timer = self.timer(|| name_of(command));
        let result = match self.operation_span(session.transaction_span(), database, command) {
            None => self.run_then(session, database, command, options, limit, finish).await,
            Some(span) => Box::pin(span.run(self.run_then(session, database, command, options, limit, finish))).await,
        };
        end(timer, &result);
        result
    }

    /// Begins to measure an operation.
    #[inline]
    pub(super) fn timer<'a>(&'a self, name: impl FnOnce() -> &'a str) -> Option<Timer<'a, P>> {
        Timer::begin(self.inner.core.runtime(), self.inner.core.events(), name)
    }

    /// Logs a warning, once for each client, if the reply has the first batch of a cursor that stays open
    /// on the server: the caller probably takes it for the whole result.
    #[cfg(feature = "tracing")]
    fn warn_of_open_cursor(&self, command: &[u8], reply: RawDocument<'_>) {
        let name = name_of(command);
        if !matches!(name, "find" | "aggregate" | "listCollections" | "listIndexes") {
            return;
        }
        let cursor = reply.get("cursor").ok().flatten().and_then(RawValue::as_document);
        let id = cursor.and_then(|cursor| cursor.get("id").ok().flatten()?.as_integer());
        if id.is_some_and(|id| id != 0) && !self.inner.has_warned_of_cursor.swap(true, Ordering::Relaxed) {
            self.inner.core.events().logs().warn_of_open_cursor(name);
        }
    }

    /// Runs a command in a session, and calls `finish` with the connection that has its reply.
    ///
    /// - `deadline`: by the timeout of the options, or that of the client.
    /// - `is_timed`: whether the time limit is sent to the server.
    pub(super) async fn run_then<T>(
        &self,
        session: &mut SessionState<P>,
        database: &str,
        command: &[u8],
        options: CommandOptions<'_>,
        (mut deadline, is_timed): (Option<Instant>, bool),
        finish: impl AsyncFnOnce(Guard<'_, Net<P>>, &mut SessionState<P>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // Checked first, so an invalid command fails before a server is selected.
        let command = convert::checked(command)?;
        let shape = CommandShape::parse(command).map_err(|error| Error::Bson(error.to_string()))?;
        if shape.name == "getMore" && !shape.has_session && session.own.is_none() {
            return Err(Error::Session("getMore needs the session of its cursor: use run_cursor_command"));
        }
        let inherited = (options.client_read_preference && options.read_preference.is_none())
            .then_some(&self.options().read_preference);
        let pairs = inherited.map(|preference| preference.pairs()).unwrap_or_default();
        let tag_sets = tag_sets(&pairs);
        let read_preference = match inherited {
            Some(preference) => Some(preference.borrowed(&tag_sets).validate()?),
            None => options.read_preference,
        };
        if let Some(own) = &mut session.own {
            own.check(&shape, read_preference)?;
            if let Some(limit) = session.transaction_deadline() {
                if options.timeout.is_some() {
                    return Err(Error::Session(LIMIT_IN_TRANSACTION));
                }
                deadline = Some(limit);
            }
        }
        // Of a transaction, only its end may be repeated. Whether a command without a reply was
        // executed remains unknown.
        let in_transaction = session.in_transaction();
        let retry = match (in_transaction || !shape.has_reply, options.idempotent) {
            (true, _) => Retry::None,
            (false, true) => Retry::Read,
            (false, false) => shape.retry,
        };
        let max_time = MaxTime::rest_if(is_timed && deadline.is_some());
        let mut policy = self.retry_policy(retry, shape.in_transaction);
        policy.enabled &= options.retry;
        let (operation_id, kinds) = self.operation();
        let attempts = self.inner.core.attempts::<Error>(self.criteria(read_preference), deadline, policy);
        let mut attempts = attempts.named(shape.name, operation_id, kinds);
        let is_write = shape.retry == Retry::Write && !shape.has_session && !in_transaction;
        let numbered = is_write && self.options().retry_writes && options.retry;
        let has_own_number = retry == Retry::Write && shape.has_session && shape.has_txn_number;
        let is_labelled = numbered || has_own_number && policy.enabled;
        // If the command was sent, the label depends on whether the server accepts numbers: see below.
        let failed = |session: &mut SessionState<P>, attempts: &Attempts<'_, Net<P>, Error>, error: Error| {
            let is_labelled = is_labelled && error.is_unsent();
            session.failed(if is_labelled { label_retryable_write(error, attempts, None) } else { error })
        };
        let mut txn_number = None;
        loop {
            let taken = if session.own.is_some() {
                Box::pin(self.next_in(session, &mut attempts, deadline, false)).await
            } else {
                attempts.next().await
            };
            let mut guard = match taken {
                Ok(guard) => guard,
                Err(error) => return Err(failed(session, &attempts, error)),
            };
            self.inner.core.events().retried(attempts.take_retries());
            guard.set_operation_id(operation_id);
            // Servers accept no other mode than `primary` in a transaction.
            let direct = self.options().direct_connection && !in_transaction;
            let sent = guard.preference_to_send(read_preference, direct);
            if self.is_paced(deadline) {
                self.pace(&mut guard);
            }
            let additions = match session.begin(self, &shape, &guard, numbered, txn_number, max_time) {
                Ok(additions) => additions,
                Err(error) => {
                    session.keep(self, guard);
                    let error = attempts.ended(error);
                    return Err(failed(session, &attempts, error));
                }
            };
            if txn_number.is_some() && additions.txn_number.is_none() {
                // This server would execute the write again.
                if let Some(error) = attempts.take_error() {
                    return Err(failed(session, &attempts, error));
                }
            }
            txn_number = additions.txn_number;
            let has_reply = shape.has_reply;
            let parts = Parts { database, command, preference: sent.as_ref(), additions, has_reply };
            let outcome = connection::exchange(&mut guard, self, session, &parts, options.write_errors_in_reply).await;
            let Err(error) = outcome else { return finish(guard, session).await };
            let is_recognized = txn_number.is_some() || has_own_number;
            let error = if is_labelled && is_recognized {
                label_retryable_write(error, &attempts, Some(&guard))
            } else {
                error
            };
            let is_repeatable = match retry {
                Retry::None => false,
                Retry::Read => attempts.is_transient(&error),
                Retry::Write => is_recognized && error.has_label("RetryableWriteError"),
            };
            session.handle_attempt_failed(&guard, &error, &additions);
            session.keep(self, guard);
            if let Err(error) = attempts.failed_and(error, is_repeatable) {
                return Err(failed(session, &attempts, error));
            }
        }
    }

    /// Returns the id of an operation that begins now, and the kinds of events with a subscriber. Request
    /// ids have 32 bits, so it differs from all of them. 0 if the events of its commands and of its
    /// selections have no subscriber.
    pub(super) fn operation(&self) -> (i64, EventKinds) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let kinds = self.inner.core.events().kinds();
        if !kinds.intersects(EventKinds::COMMANDS | EventKinds::SELECTIONS | EventKinds::SELECTION_WAITS) {
            return (0, kinds);
        }
        (1 << 32 | i64::from(NEXT.fetch_add(1, Ordering::Relaxed)), kinds)
    }

    /// [`Client::operation`] without the kinds, for an operation that selects no server.
    pub(super) fn operation_id(&self) -> i64 {
        self.operation().0
    }

    /// Returns the retry policy of a command. If the client does not know whether the command reads
    /// or writes, both `retryReads` and `retryWrites` must be enabled for a retry. The end of a
    /// transaction is retried in any case.
    ///
    /// Source: Client Backpressure, "Overload retry policy", on runCommand; Transactions, on
    /// retrying commitTransaction and abortTransaction.
    fn retry_policy(&self, retry: Retry, in_transaction: bool) -> RetryPolicy {
        let options = self.options();
        RetryPolicy {
            enabled: match retry {
                Retry::Read => options.retry_reads,
                Retry::Write => options.retry_writes || in_transaction,
                Retry::None => options.retry_reads && options.retry_writes,
            },
            idempotent: retry == Retry::Read,
            max_adaptive_retries: options.max_adaptive_retries,
            enable_overload_retargeting: options.enable_overload_retargeting,
        }
    }

    /// Returns the criteria by which an operation selects a server.
    pub(super) fn criteria<'a>(&self, read_preference: Option<ReadPreference<'a>>) -> SelectionCriteria<'a> {
        let criteria = read_preference.map_or(SelectionCriteria::write(), SelectionCriteria::read);
        criteria
            .with_local_threshold(self.inner.options.local_threshold)
            .with_heartbeat_frequency(self.inner.options.monitor.heartbeat_frequency)
    }

    pub(super) fn selection_request<'a>(&self, read_preference: Option<ReadPreference<'a>>) -> SelectionRequest<'a> {
        SelectionRequest { criteria: self.criteria(read_preference), deprioritized: &[] }
    }

    /// Returns the deadline of an operation that starts now.
    pub(super) fn deadline(&self, timeout: Option<Duration>) -> Option<Instant> {
        timeout.map(|timeout| self.now().saturating_add(timeout))
    }

    /// Whether `socketTimeoutMS` limits each command, which is the case only without a deadline.
    pub(super) fn is_paced(&self, deadline: Option<Instant>) -> bool {
        deadline.is_none() && self.options().socket_timeout.is_some()
    }

    /// Starts the `socketTimeoutMS` of the next command.
    pub(super) fn pace(&self, guard: &mut Guard<'_, Net<P>>) {
        guard.set_deadline(self.deadline(self.options().socket_timeout));
    }
}
