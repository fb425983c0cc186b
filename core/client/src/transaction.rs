//! Transactions of a [`ClientSession`].
//!
//! Read first: Transactions, "ClientSession changes", "Sharded Transactions"; Convenient API for
//! Transactions, "Sequence of Actions".

use super::connection::{self, Parts};
use super::convert;
use super::options::no_limit_if_zero;
use super::session::{Additions, LIMIT_IN_TRANSACTION, SessionState, max_time_ms};
use super::spans::TransactionSpan;
use super::{Client, ClientSession, CommandOptions, Error, Net, Platform, WriteConcern};
use crate::command::end;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use poolhouse_core::pool::Pinned;
use poolhouse_core::session::transaction::{
    TRANSACTION_RETRY_TIMEOUT, TransactionFailure, TransactionMisuse, TransactionRole, TransactionState,
    transaction_pause,
};
use poolhouse_core::{Instant, ServerType};
use poolhouse_driver::{
    AttemptError as _, Attempts, BaseRuntime as _, Guard, OperationError, Parked, RetryPolicy, Runtime,
};
use poolhouse_uri::W;
use poolhouse_wire::bson::DocumentWriter;
use poolhouse_wire::{EncodeError, Labels};

/// `wtimeout` of a repeated commit without one, in milliseconds. A commit with a time limit has no
/// default, because that limit applies.
///
/// Source: Transactions, "writeConcern for commitTransaction attempts".
const REPEATED_COMMIT_TIMEOUT_MS: i64 = 10_000;

/// The options of a transaction.
///
/// All reads of a transaction run on the primary, the only read preference that servers allow.
///
/// Source: Transactions, "TransactionOptions".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionOptions {
    /// The level of the read concern: `local`, `majority` or `snapshot`; `None` is that of
    /// [`ClientOptions::read_concern_level`](super::ClientOptions#structfield.read_concern_level),
    /// or else that of the server.
    pub read_concern_level: Option<String>,
    /// The write concern of the commit; `None` is that of
    /// [`ClientOptions::write_concern`](super::ClientOptions#structfield.write_concern), or else that
    /// of the server. It must require an acknowledgement.
    pub write_concern: Option<WriteConcern>,
    /// `maxTimeMS` of the commit: how long the server may work on it. If the commit has a time limit,
    /// the shorter of both applies. `None` is no limit of its own.
    pub max_commit_time: Option<Duration>,
    /// The time limit of [`with_transaction`](ClientSession::with_transaction) as a whole; otherwise of
    /// each call that commits or aborts the transaction and has no limit of its own. `None` is
    /// [`ClientSessionOptions::default_timeout`](super::ClientSessionOptions#structfield.default_timeout),
    /// or else that of the client. Zero and [`Duration::MAX`] are never reached.
    ///
    /// Source: Client Side Operations Timeout, "Sessions".
    pub timeout: Option<Duration>,
}

impl TransactionOptions {
    /// The default.
    #[must_use]
    pub const fn new() -> Self {
        Self { read_concern_level: None, write_concern: None, max_commit_time: None, timeout: None }
    }

    /// See [`read_concern_level`](#structfield.read_concern_level).
    #[must_use]
    pub fn read_concern_level(self, level: impl Into<String>) -> Self {
        Self { read_concern_level: Some(level.into()), ..self }
    }

    /// See [`write_concern`](#structfield.write_concern).
    #[must_use]
    pub fn write_concern(self, concern: WriteConcern) -> Self {
        Self { write_concern: Some(concern), ..self }
    }

    /// See [`max_commit_time`](#structfield.max_commit_time).
    #[must_use]
    pub fn max_commit_time(self, time: Duration) -> Self {
        Self { max_commit_time: Some(time), ..self }
    }

    /// See [`timeout`](#structfield.timeout).
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }
}

/// The router or connection of all commands of a transaction in a sharded cluster.
pub(super) enum Pin<P: Platform> {
    /// The router.
    Router(<Net<P> as Runtime>::ServerHandle),
    /// The connection behind a load balancer.
    Connection(PinnedConnection<P>),
}

/// A connection that stays checked out between commands. Dropping it returns it to its pool.
pub(super) struct PinnedConnection<P: Platform> {
    client: Client<P>,
    parked: Option<Parked<Net<P>>>,
}

impl<P: Platform> PinnedConnection<P> {
    /// Returns `None` if the connection cannot be used any more: it is returned to its pool then.
    pub(super) fn new(client: &Client<P>, mut guard: Guard<'_, Net<P>>, pinned: Pinned) -> Option<Self> {
        guard.pin(pinned);
        Some(Self { parked: Some(guard.park()?), client: client.clone() })
    }

    pub(super) fn resume<'c>(mut self, client: &'c Client<P>, deadline: Option<Instant>) -> Option<Guard<'c, Net<P>>> {
        Some(self.parked.take()?.resume(&client.inner.core, deadline))
    }
}

impl<P: Platform> Drop for PinnedConnection<P> {
    fn drop(&mut self) {
        if let Some(parked) = self.parked.take() {
            drop(parked.resume(&self.client.inner.core, None));
        }
    }
}

impl<P: Platform> SessionState<P> {
    /// Whether commands belong to a transaction.
    pub(super) fn in_transaction(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.transaction.is_open())
    }

    /// Returns the end of the time limit for the open transaction as a whole.
    pub(super) fn transaction_deadline(&self) -> Option<Instant> {
        self.own.as_ref().filter(|own| own.transaction.is_open())?.transaction_deadline
    }

    /// Returns the span of the open transaction.
    pub(super) fn transaction_span(&self) -> Option<&TransactionSpan> {
        self.own.as_ref().filter(|own| own.transaction.is_open())?.transaction_span.as_ref()
    }

    /// Returns what the next command of the transaction must use. A router stays pinned.
    fn take_pin(&mut self) -> Option<Pin<P>> {
        let transaction = &mut self.own.as_mut()?.transaction;
        let pin = transaction.take_pin()?;
        if let Pin::Router(server) = &pin {
            transaction.pin(Pin::Router(server.clone()));
        }
        Some(pin)
    }

    /// Returns the connection behind a load balancer that the transaction is pinned to.
    pub(super) fn take_connection<'c>(
        &mut self,
        client: &'c Client<P>,
        deadline: Option<Instant>,
    ) -> Option<Guard<'c, Net<P>>> {
        match self.take_pin()? {
            Pin::Connection(connection) => connection.resume(client, deadline),
            Pin::Router(_) => None,
        }
    }

    /// Returns a connection to its pool. Behind a load balancer, the transaction keeps it.
    pub(super) fn keep(&mut self, client: &Client<P>, guard: Guard<'_, Net<P>>) {
        let Some(own) = &mut self.own else { return };
        let state = own.transaction.state();
        let is_kept = matches!(state, TransactionState::InProgress | TransactionState::Committed { is_empty: false });
        if is_kept && guard.established().is_some_and(|it| it.server_type == ServerType::LoadBalancer) {
            if let Some(connection) = PinnedConnection::new(client, guard, Pinned::Transaction) {
                own.transaction.pin(Pin::Connection(connection));
            }
        }
    }

    /// Records the error of an attempt that may be followed by another one.
    pub(super) fn handle_attempt_failed(&mut self, guard: &Guard<'_, Net<P>>, error: &Error, additions: &Additions) {
        let Some(own) = &mut self.own else { return };
        // A connection remains usable only if no reply is missing.
        let is_unsent = error.operation().is_some() && guard.is_usable();
        let is_refused = error.is_retryable() || error.is_overload();
        if additions.role == Some(TransactionRole::First) && (is_unsent || is_refused) {
            own.transaction.handle_first_refused();
        }
    }

    /// Adds the label of a failed command of the transaction to its error, and records the error.
    pub(super) fn failed(&mut self, error: Error) -> Error {
        if self.in_transaction() { self.labelled(error, false, false) } else { error }
    }

    /// Adds the labels to the error of an attempt to end the transaction that has sent nothing.
    fn unsent(&mut self, error: Error, is_commit: bool) -> Error {
        let was_sent = is_commit && self.own.as_ref().is_some_and(|own| own.transaction.is_commit_sent());
        let label = if was_sent { Labels::UNKNOWN_TRANSACTION_COMMIT_RESULT } else { Labels::NONE };
        self.labelled(error.with_label(label), is_commit, false)
    }

    /// - `is_commit`: whether the command was the commit.
    /// - `is_repeated`: whether an earlier commit may have been executed. Then the refusal of this
    ///   one leaves the outcome unknown.
    fn labelled(&mut self, error: Error, is_commit: bool, is_repeated: bool) -> Error {
        let Some(own) = &mut self.own else { return error };
        let failure = match error.last() {
            Error::Operation(error, _) if is_unanswered(error) => Some(TransactionFailure::NoReply),
            Error::Command(refused) => {
                let is_retryable = error.has_label("RetryableWriteError");
                Some(TransactionFailure::Command { code: refused.code, is_retryable })
            }
            Error::Write(error) if error.index.is_none() => Some(TransactionFailure::WriteConcern { code: error.code }),
            Error::Operation(..)
            | Error::Timeout(_)
            | Error::Write(_)
            | Error::Setup(_)
            | Error::Session(_)
            | Error::Cursor(_)
            | Error::Bson(_) => None,
        };
        let is_refused = error.is_retryable() || error.is_overload();
        let mut error = error.with_label(failure.map_or(Labels::NONE, |failure| failure.label(is_commit)));
        if is_commit && is_repeated && is_refused {
            error = error.with_label(Labels::UNKNOWN_TRANSACTION_COMMIT_RESULT);
        }
        let known = [Labels::TRANSIENT_TRANSACTION_ERROR, Labels::UNKNOWN_TRANSACTION_COMMIT_RESULT];
        let has = |label: &Labels| label.names().all(|name| error.has_label(name));
        own.transaction.handle_error(known.into_iter().filter(has).fold(Labels::NONE, Labels::union));
        if own.transaction_deadline.is_some() && own.transaction.is_transient() {
            own.transient_error = Some(error.clone());
        }
        error
    }

    /// Writes the command that ends the transaction. Returns whether a commit is repeated.
    ///
    /// - `is_limited`: whether the operation has a time limit.
    /// - `rest_ms`: `maxTimeMS` by that limit.
    fn end_command(
        &mut self,
        is_commit: bool,
        is_limited: bool,
        rest_ms: Option<i64>,
    ) -> Result<(Vec<u8>, bool), Error> {
        let Some(own) = &mut self.own else { return Err(misuse(TransactionMisuse::NotStarted)) };
        let is_repeated = is_commit && own.transaction.send_commit();
        let options = &own.transaction_options;
        let mut command = Vec::new();
        let write = |body: &mut DocumentWriter<'_, Vec<u8>>| {
            body.int32(if is_commit { "commitTransaction" } else { "abortTransaction" }, 1)?;
            write_concern(body, options.write_concern.as_ref(), is_repeated, is_limited)?;
            let own_ms = options.max_commit_time.filter(|_| is_commit).and_then(millis);
            if let Some(time_ms) = own_ms.into_iter().chain(rest_ms).min() {
                body.int64("maxTimeMS", time_ms)?;
            }
            let token = own.transaction.recovery_token();
            token.map_or(Ok(()), |token| body.raw_document("recoveryToken", token).map(drop))
        };
        DocumentWriter::write(&mut command, write).map_err(|error| Error::Bson(error.to_string()))?;
        Ok((command, is_repeated))
    }
}

/// Writes the write concern of the end of a transaction.
fn write_concern(
    body: &mut DocumentWriter<'_, Vec<u8>>,
    concern: Option<&WriteConcern>,
    is_repeated: bool,
    is_limited: bool,
) -> Result<(), EncodeError> {
    let default = WriteConcern::default();
    let concern = concern.unwrap_or(&default);
    let default_ms = is_repeated.then_some(REPEATED_COMMIT_TIMEOUT_MS);
    let given = no_limit_if_zero(concern.w_timeout);
    let timeout_ms = if is_limited { None } else { given.map_or(default_ms, millis) };
    if !is_repeated && concern.w.is_none() && concern.journal.is_none() && timeout_ms.is_none() {
        return Ok(());
    }
    let write = |document: &mut DocumentWriter<'_, Vec<u8>>| -> Result<(), EncodeError> {
        match &concern.w {
            _ if is_repeated => document.str("w", "majority").map(drop)?,
            Some(W::Nodes(count)) => document.int64("w", (*count).into()).map(drop)?,
            Some(W::Name(name)) => document.str("w", name).map(drop)?,
            None => {}
        }
        if let Some(journal) = concern.journal {
            document.boolean("j", journal)?;
        }
        timeout_ms.map_or(Ok(()), |timeout_ms| document.int64("wtimeout", timeout_ms).map(drop))
    };
    body.document("writeConcern", write).map(drop)
}

/// Returns a time limit for a server, in milliseconds: at least 1, because 0 is no limit. `None` if
/// it is longer than servers accept, so no limit is sent.
pub(super) fn millis(limit: Duration) -> Option<i64> {
    i32::try_from(limit.as_millis().max(1)).ok().map(i64::from)
}

pub(super) const fn misuse(error: TransactionMisuse) -> Error {
    Error::Session(error.text())
}

/// Whether no reply was received, for a reason of the network or of the deployment.
const fn is_unanswered(error: &OperationError) -> bool {
    matches!(error, OperationError::ServerSelection(_) | OperationError::CheckOut(_))
        || error.connection_cause().is_some()
        || error.is_retryable()
}

impl<P: Platform> Client<P> {
    /// Returns a connection for the next attempt of a command in a session: that to which its
    /// transaction is pinned, or any.
    ///
    /// - `is_end`: whether the command ends the transaction. Then another attempt may use another
    ///   router.
    pub(super) async fn next_in<'c>(
        &'c self,
        session: &mut SessionState<P>,
        attempts: &mut Attempts<'c, Net<P>, Error>,
        deadline: Option<Instant>,
        is_end: bool,
    ) -> Result<Guard<'c, Net<P>>, Error> {
        loop {
            // First, because a pinned connection is lost with a future that is dropped.
            attempts.pause().await;
            let server = match session.take_pin() {
                None => return attempts.next().await,
                Some(Pin::Connection(connection)) => match connection.resume(self, deadline) {
                    Some(guard) => return Ok(guard),
                    None => continue,
                },
                Some(Pin::Router(server)) => server,
            };
            let error = match attempts.next_on(server).await {
                Ok(guard) => return Ok(guard),
                Err(error) => error,
            };
            let is_repeatable = is_end && attempts.is_transient(&error);
            attempts.failed_and(error, is_repeatable)?;
            if let Some(own) = session.own.as_mut().filter(|_| is_end) {
                own.transaction.take_pin();
            }
        }
    }

    /// Sends the command that ends the transaction of a session.
    ///
    /// Source: Transactions, "commitTransaction", "abortTransaction".
    async fn end_transaction(
        &self,
        session: &mut SessionState<P>,
        is_commit: bool,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        let name = if is_commit { "commitTransaction" } else { "abortTransaction" };
        let transaction = session.own.as_ref().and_then(|own| own.transaction_span.as_ref());
        let span = self.transaction_end_span(transaction, name);
        let ending = self.end_transaction_within(session, (is_commit, name), deadline);
        let timer = self.timer(|| name);
        let result = match span {
            None => ending.await,
            Some(span) => Box::pin(span.run(ending)).await,
        };
        end(timer, &result);
        result
    }

    /// - `name`: the name of the command.
    async fn end_transaction_within(
        &self,
        session: &mut SessionState<P>,
        (is_commit, name): (bool, &str),
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        let options = self.options();
        let policy = RetryPolicy {
            enabled: true,
            idempotent: false,
            max_adaptive_retries: options.max_adaptive_retries,
            enable_overload_retargeting: options.enable_overload_retargeting,
        };
        let (operation_id, kinds) = self.operation();
        let attempts = self.inner.core.attempts::<Error>(self.criteria(None), deadline, policy);
        let mut attempts = attempts.named(name, operation_id, kinds);
        loop {
            // After a network error, a commit has another connection, which nothing else needs.
            let is_pinned = session.own.as_ref().is_some_and(|own| own.transaction.pinned().is_some());
            let keep = |session: &mut SessionState<P>, guard: Guard<'_, Net<P>>| {
                if is_pinned {
                    session.keep(self, guard);
                }
            };
            let mut guard = match self.next_in(session, &mut attempts, deadline, true).await {
                Ok(guard) => guard,
                Err(error) => return Err(session.unsent(label_retryable_write(error, &attempts, None), is_commit)),
            };
            self.inner.core.events().retried(attempts.take_retries());
            guard.set_operation_id(operation_id);
            if self.is_paced(deadline) {
                self.pace(&mut guard);
            }
            let rest_ms = if deadline.is_some() { max_time_ms(&guard) } else { Ok(None) };
            let rest_ms = match rest_ms {
                Ok(rest_ms) => rest_ms,
                Err(error) => {
                    keep(session, guard);
                    let error = attempts.ended(error.into());
                    return Err(session.unsent(label_retryable_write(error, &attempts, None), is_commit));
                }
            };
            let (command, is_repeated) = session.end_command(is_commit, deadline.is_some(), rest_ms)?;
            let additions = session.begin_end(self);
            let command = convert::checked(&command)?;
            let parts = Parts { database: "admin", command, preference: None, additions, has_reply: true };
            let Err(error) = connection::exchange(&mut guard, self, session, &parts, false).await else {
                keep(session, guard);
                return Ok(());
            };
            let error = label_retryable_write(error, &attempts, Some(&guard));
            if let Some(own) = &mut session.own {
                if !is_commit {
                    // Another attempt may use another router.
                    own.transaction.take_pin();
                } else if error.is_retryable() || error.is_overload() {
                    own.transaction.handle_commit_refused(is_repeated);
                }
            }
            let error = session.labelled(error, is_commit, is_repeated);
            if !error.has_label("UnknownTransactionCommitResult") && !error.has_label("TransientTransactionError") {
                keep(session, guard);
            }
            let is_repeatable = error.has_label("RetryableWriteError");
            if let Err(error) = attempts.failed_and(error, is_repeatable) {
                return Err(label_retryable_write(error, &attempts, None));
            }
        }
    }
}

/// Adds `RetryableWriteError` to the error of a write with a number, if the write may be repeated after
/// it.
///
/// - `guard`: the connection, if the command was sent.
///
/// Source: Retryable Writes, "Determining Retryable Errors".
pub(super) fn label_retryable_write<P: Platform>(
    error: Error,
    attempts: &Attempts<'_, Net<P>, Error>,
    guard: Option<&Guard<'_, Net<P>>>,
) -> Error {
    let is_by_code = guard.and_then(Guard::established).is_some_and(|established| {
        let is_router = established.server_type == ServerType::Mongos;
        error.is_retryable_write_by_code(established.max_wire_version, is_router)
    });
    // An error of the client itself counts if another attempt may succeed.
    let is_own = error.operation().is_some() && attempts.is_transient(&error);
    error.with_label(if is_own || is_by_code { Labels::RETRYABLE_WRITE_ERROR } else { Labels::NONE })
}

/// The attempts of a transaction that is repeated where the errors of its commands allow it: see
/// [`ClientSession::transaction_attempts`].
///
/// If it is dropped between `begin` and `end`, the transaction stays open: abort it, or drop the session.
#[must_use = "nothing runs before `begin`"]
pub struct TransactionAttempts<'s, P: Platform> {
    session: &'s mut ClientSession<P>,
    options: TransactionOptions,
    /// The time limit of all attempts.
    timeout: Option<Duration>,
    /// The end of that limit, or of the retries without one.
    limit: Instant,
    /// The number of failed attempts.
    failures: u32,
    /// Whether an attempt has begun, and has not ended.
    is_begun: bool,
    span: Option<TransactionSpan>,
}

impl<P: Platform> TransactionAttempts<'_, P> {
    /// Starts the transaction of the next attempt, and returns the session, in which its commands run.
    ///
    /// # Errors
    ///
    /// As [`ClientSession::start_transaction`]. A transaction may be open because an attempt was begun and
    /// not ended.
    pub fn begin(&mut self) -> Result<&mut ClientSession<P>, Error> {
        self.session.begin_transaction(self.options.clone())?;
        if self.failures == 0 {
            self.span = self.session.client.transaction_span();
        }
        self.session.set_transaction_span(self.span.clone());
        self.is_begun = true;
        self.limit_transaction(self.timeout.map(|_| self.limit));
        Ok(&mut *self.session)
    }

    /// Commits the transaction if the commands of the attempt have succeeded, or else aborts it. Returns the
    /// value after the commit, or `None` if the attempt has failed and another one must begin, which is after
    /// a pause.
    ///
    /// - `outcome`: of the attempt. An error need not be that of a command.
    ///
    /// # Errors
    ///
    /// As [`ClientSession::with_transaction`]. There is no other attempt then. If none has begun, the error of
    /// `outcome`, or an [`Error::Session`].
    pub async fn end<T, E: From<Error>>(&mut self, outcome: Result<T, E>) -> Result<Option<T>, E> {
        if !self.is_begun {
            outcome?;
            return Err(misuse(TransactionMisuse::NotStarted).into());
        }
        let error = match outcome {
            Ok(value) if !self.session.in_transaction() => {
                self.unlimit();
                self.session.set_transaction_span(None);
                return Ok(Some(value));
            }
            Ok(value) => match self.session.commit_until(self.limit).await {
                Ok(()) => {
                    self.unlimit();
                    return Ok(Some(value));
                }
                Err(error) => E::from(error),
            },
            Err(error) => error,
        };
        self.unlimit();
        let session = &mut *self.session;
        let is_transient = session.state.own.as_ref().is_some_and(|own| own.transaction.is_transient());
        if session.in_transaction() {
            session.abort_transaction().await?;
        }
        self.failures += 1;
        if is_transient && session.pause_before(self.failures, self.limit).await {
            return Ok(None);
        }
        session.set_transaction_span(None);
        let last = session.state.own.as_mut().filter(|_| is_transient).and_then(|own| own.transient_error.take());
        Err(last.map_or(error, |last| last.timed_out().into()))
    }

    /// Removes the limit that the attempt has given to the session, unless it has none.
    fn unlimit(&mut self) {
        if core::mem::take(&mut self.is_begun) {
            self.limit_transaction(None);
        }
    }

    fn limit_transaction(&mut self, limit: Option<Instant>) {
        if let Some(own) = &mut self.session.state.own {
            own.transaction_deadline = limit;
        }
    }
}

impl<P: Platform> Drop for TransactionAttempts<'_, P> {
    fn drop(&mut self) {
        self.unlimit();
    }
}

impl<P: Platform> fmt::Debug for TransactionAttempts<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionAttempts").field("failures", &self.failures).finish_non_exhaustive()
    }
}

impl<P: Platform> ClientSession<P> {
    /// Starts a transaction, which takes the next `txnNumber`. Performs no I/O: the first command of the
    /// session starts it on the server. Until [`commit_transaction`](Self::commit_transaction) or
    /// [`abort_transaction`](Self::abort_transaction), all commands of this session belong to it; a
    /// failed command may have aborted it on the server.
    ///
    /// [`with_transaction`](Self::with_transaction) does all of this, with retries.
    ///
    /// # Errors
    ///
    /// [`Error::Session`] if a transaction is open, its write concern requires no acknowledgement, or
    /// the session is one of snapshot reads; [`OperationError::Forked`]. Nothing has changed.
    ///
    /// Source: Transactions, "startTransaction".
    pub fn start_transaction(&mut self, options: TransactionOptions) -> Result<(), Error> {
        self.begin_transaction(options)?;
        self.set_transaction_span(self.client.transaction_span());
        Ok(())
    }

    /// [`ClientSession::start_transaction`] without a span.
    fn begin_transaction(&mut self, options: TransactionOptions) -> Result<(), Error> {
        let of_client = self.client.options();
        let read_concern_level = options.read_concern_level.or_else(|| of_client.read_concern_level.clone());
        let write_concern = options.write_concern.unwrap_or_else(|| of_client.write_concern.clone());
        if write_concern.w == Some(W::Nodes(0)) {
            return Err(Error::Session("transactions do not support unacknowledged write concerns"));
        }
        if self.state.own.as_ref().is_some_and(|own| own.options.snapshot) {
            return Err(Error::Session("Transactions are not supported in snapshot sessions"));
        }
        let timeout = self.timeout(options.timeout);
        self.state.start_transaction(&self.client)?;
        let Some(own) = &mut self.state.own else { return Ok(()) };
        own.transaction_deadline = None;
        own.transient_error = None;
        own.transaction_options = TransactionOptions {
            read_concern_level,
            write_concern: Some(write_concern),
            max_commit_time: options.max_commit_time,
            timeout,
        };
        Ok(())
    }

    /// Returns the time limit of a transaction.
    ///
    /// - `own`: that of its options.
    fn timeout(&self, own: Option<Duration>) -> Option<Duration> {
        let mut options = CommandOptions::new();
        options.timeout = own.or_else(|| self.state.own.as_ref()?.options.default_timeout);
        options.limit_or(self.client.options().timeout)
    }

    /// Returns the time limit of a call that ends the transaction.
    ///
    /// - `own`: that of the call, if it has one.
    fn timeout_of_call(&self, own: Option<Duration>) -> Result<Option<Duration>, Error> {
        let Some(state) = &self.state.own else { return Ok(None) };
        match own {
            None => Ok(state.transaction_options.timeout),
            Some(_) if state.transaction_deadline.is_some() => Err(Error::Session(LIMIT_IN_TRANSACTION)),
            Some(limit) => Ok(CommandOptions::new().timeout(limit).limit_or(None)),
        }
    }

    /// Commits the transaction, with retries as a retryable write, whatever `retryWrites` is. If no
    /// command was sent in it, none is sent. After an unknown outcome, or after the future was dropped,
    /// the commit can be repeated by another call. [`TransactionOptions::timeout`] applies to each call.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`]. With the label `UnknownTransactionCommitResult`, the transaction
    /// may be committed: call this function again. With `TransientTransactionError`, it was not
    /// committed, and may be repeated as a whole. [`Error::Session`] if there is no transaction, or
    /// it was aborted. Nothing is sent then.
    ///
    /// Source: Transactions, "commitTransaction".
    pub async fn commit_transaction(&mut self) -> Result<(), Error> {
        self.commit(None).await
    }

    /// Commits the transaction as [`commit_transaction`](Self::commit_transaction) does, with a time limit of
    /// this call instead of that of the transaction. Zero and [`Duration::MAX`] are never reached.
    ///
    /// # Errors
    ///
    /// As [`commit_transaction`](Self::commit_transaction); [`Error::Session`] in
    /// [`with_transaction`](Self::with_transaction), if the transaction has a time limit.
    ///
    /// Source: Client Side Operations Timeout, "Sessions".
    pub async fn commit_transaction_within(&mut self, limit: Duration) -> Result<(), Error> {
        self.commit(Some(limit)).await
    }

    async fn commit(&mut self, limit: Option<Duration>) -> Result<(), Error> {
        let timeout = self.timeout_of_call(limit)?;
        let Some(own) = &mut self.state.own else { return Err(misuse(TransactionMisuse::NotStarted)) };
        let whole = own.transaction_deadline;
        if !own.transaction.begin_commit().map_err(misuse)? {
            self.set_transaction_span(None);
            return Ok(());
        }
        let deadline = whole.or_else(|| self.client.deadline(timeout));
        let result = self.client.end_transaction(&mut self.state, true, deadline).await;
        if !result.as_ref().is_err_and(|error| error.has_label("UnknownTransactionCommitResult")) {
            self.set_transaction_span(None);
        }
        result
    }

    /// Aborts the transaction. If no command was sent in it, none is sent. Errors of the command are
    /// ignored: the server aborts a transaction that is not used after some time. If the future is
    /// dropped, the session aborts the transaction in the background when it is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Session`] if there is no transaction, or it was committed or aborted already. Nothing
    /// is sent then.
    ///
    /// Source: Transactions, "abortTransaction".
    pub async fn abort_transaction(&mut self) -> Result<(), Error> {
        self.abort(None).await
    }

    /// Aborts the transaction as [`abort_transaction`](Self::abort_transaction) does, with a time limit of
    /// this call instead of that of the transaction. Zero and [`Duration::MAX`] are never reached.
    ///
    /// # Errors
    ///
    /// As [`abort_transaction`](Self::abort_transaction); [`Error::Session`] in
    /// [`with_transaction`](Self::with_transaction), if the transaction has a time limit.
    ///
    /// Source: Client Side Operations Timeout, "Sessions".
    pub async fn abort_transaction_within(&mut self, limit: Duration) -> Result<(), Error> {
        self.abort(Some(limit)).await
    }

    async fn abort(&mut self, limit: Option<Duration>) -> Result<(), Error> {
        let timeout = self.timeout_of_call(limit)?;
        let Some(own) = &mut self.state.own else { return Err(misuse(TransactionMisuse::NotStarted)) };
        if own.transaction.begin_abort().map_err(misuse)? {
            let deadline = self.client.deadline(timeout);
            let _: Result<(), Error> = self.client.end_transaction(&mut self.state, false, deadline).await;
            if let Some(own) = &mut self.state.own {
                own.transaction.handle_abort_ended();
            }
        }
        self.set_transaction_span(None);
        Ok(())
    }

    fn set_transaction_span(&mut self, span: Option<TransactionSpan>) {
        if let Some(own) = &mut self.state.own {
            own.transaction_span = span;
        }
    }

    /// Whether a transaction was started, and neither committed nor aborted.
    #[must_use]
    pub fn in_transaction(&self) -> bool {
        self.state.in_transaction()
    }

    /// Runs `work` in a transaction, and commits it. After an error of `work`, the transaction is
    /// aborted.
    ///
    /// If the last command other than the abort fails with the label `TransientTransactionError`,
    /// such as after a conflict with another transaction or a change of the primary, the whole
    /// transaction is repeated, after a [pause](transaction_pause). **`work` may therefore be called
    /// several times**: it must have no side effect outside of the transaction that must not be
    /// repeated. A commit with an unknown outcome is repeated too, after such a pause.
    ///
    /// If there is a [`timeout`](TransactionOptions#structfield.timeout), it limits all commands and
    /// commits together, and a command with another limit is refused while the transaction is open.
    /// If there is none, retries end after 120 s.
    ///
    /// `work` must return the errors of its commands, or errors of its own: a failed command may have
    /// aborted the transaction on the server, so a commit would fail. If it commits or aborts the
    /// transaction itself, nothing is committed after it.
    ///
    /// If the returned future is dropped, the transaction may stay open: drop the session, or abort
    /// the transaction, which is refused if its commit has begun.
    ///
    /// A task that is spawned must be `Send`. The compiler accepts that of an `async move` closure that
    /// owns its captures. If the closure borrows from outside of it, even `&str`, the compiler refuses
    /// to spawn the task: "implementation of `Send` is not general enough". Clone what `work` uses, as here, or
    /// write the loop of [`transaction_attempts`](Self::transaction_attempts), which may borrow:
    ///
    /// ```
    /// use bson::doc;
    /// use poolhouse_client::{Client, ClientSession, ClientSessionOptions, Error, Platform, TransactionOptions};
    ///
    /// async fn cancel<P: Platform>(client: &Client<P>, number: &str) -> Result<(), Error> {
    ///     let number = number.to_owned();
    ///     let work = async move |session: &mut ClientSession<P>| {
    ///         let deletes = [doc! { "q": { "number": &number }, "limit": 1 }];
    ///         session.run_command("shop", doc! { "delete": "orders", "deletes": deletes.to_vec() }).await?;
    ///         let cancelled = [doc! { "number": &number }];
    ///         session.run_command("shop", doc! { "insert": "cancelled", "documents": cancelled.to_vec() }).await?;
    ///         Ok(())
    ///     };
    ///     let mut session = client.start_session(ClientSessionOptions::new());
    ///     session.with_transaction(TransactionOptions::new(), work).await
    /// }
    ///
    /// fn spawnable<P: Platform>(client: Client<P>) -> impl Future<Output = Result<(), Error>> + Send {
    ///     async move { cancel(&client, "A-1").await }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of `work`; those of [`start_transaction`](Self::start_transaction) and
    /// [`commit_transaction`](Self::commit_transaction). If the timeout leaves no time to repeat the
    /// transaction or its commit, an [`Error::Timeout`] with the last error of a command. After 120 s
    /// without a timeout, the last error.
    ///
    /// Source: Convenient API for Transactions.
    pub async fn with_transaction<T, E: From<Error>>(
        &mut self,
        options: TransactionOptions,
        mut work: impl AsyncFnMut(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut attempts = self.transaction_attempts(options);
        loop {
            let outcome = work(attempts.begin()?).await;
            if let Some(value) = attempts.end(outcome).await? {
                return Ok(value);
            }
        }
    }

    /// Returns the attempts of a transaction, for a loop that does what
    /// [`with_transaction`](Self::with_transaction) does, where the compiler refuses its closure: in a task
    /// that is spawned, a closure must own what it uses, while the body of a loop may borrow. The time limit
    /// begins now.
    ///
    /// An attempt that has begun must be ended, also after an error, so its commands are best in a function of
    /// their own:
    ///
    /// ```
    /// use bson::{Document, doc};
    /// use poolhouse_client::{Client, ClientSession, ClientSessionOptions, Error, Platform, TransactionOptions};
    ///
    /// async fn add<P: Platform>(session: &mut ClientSession<P>, to: &str, lines: &[Document]) -> Result<(), Error> {
    ///     session.run_command("shop", doc! { "insert": "orders", "documents": [{ "_id": to }] }).await?;
    ///     session.run_command("shop", doc! { "insert": "lines", "documents": lines.to_vec() }).await?;
    ///     Ok(())
    /// }
    ///
    /// async fn order<P: Platform>(client: &Client<P>, number: &str, lines: &[Document]) -> Result<(), Error> {
    ///     let mut session = client.start_session(ClientSessionOptions::new());
    ///     let mut attempts = session.transaction_attempts(TransactionOptions::new());
    ///     loop {
    ///         let outcome = add(attempts.begin()?, number, lines).await;
    ///         if let Some(value) = attempts.end(outcome).await? {
    ///             return Ok(value);
    ///         }
    ///     }
    /// }
    ///
    /// fn spawnable<P: Platform>(client: Client<P>) -> impl Future<Output = Result<(), Error>> + Send + 'static {
    ///     async move {
    ///         let (number, lines) = (String::from("A-1"), vec![doc! { "tea": 1 }]);
    ///         order(&client, &number, &lines).await
    ///     }
    /// }
    /// ```
    pub fn transaction_attempts(&mut self, options: TransactionOptions) -> TransactionAttempts<'_, P> {
        let timeout = self.timeout(options.timeout);
        let limit = self.client.now().saturating_add(timeout.unwrap_or(TRANSACTION_RETRY_TIMEOUT));
        TransactionAttempts { session: self, options, timeout, limit, failures: 0, is_begun: false, span: None }
    }

    /// Commits the transaction, and repeats that while its outcome is unknown, after pauses: without
    /// them, a commit that fails at once would be repeated without end until the limit.
    async fn commit_until(&mut self, limit: Instant) -> Result<(), Error> {
        const MAX_TIME_EXPIRED: i32 = 50;
        let mut retry = 0;
        loop {
            let Err(error) = self.commit_transaction().await else { return Ok(()) };
            let is_unknown = error.has_label("UnknownTransactionCommitResult");
            retry += 1;
            if !is_unknown || error.code() == Some(MAX_TIME_EXPIRED) {
                return Err(error);
            }
            if !self.pause_before(retry, limit).await {
                let is_limited = self.state.own.as_ref().is_some_and(|own| own.transaction_deadline.is_some());
                return Err(if is_limited { error.timed_out() } else { error });
            }
        }
    }

    /// Waits before a transaction or its commit is repeated. Returns `false`, without waiting, if the
    /// pause would last until the limit.
    async fn pause_before(&self, retry: u32, limit: Instant) -> bool {
        let runtime = self.client.inner.core.runtime();
        let until = self.client.now().saturating_add(transaction_pause(retry, runtime.entropy()));
        if until >= limit {
            return false;
        }
        runtime.sleep_until(until).await;
        true
    }

    /// Aborts the transaction of a session that is dropped.
    pub(super) fn abort_in_background(&mut self) {
        let (client, mut state) = (self.client.clone(), core::mem::take(&mut self.state));
        self.client.in_background(async move {
            if let Some(own) = &mut state.own {
                // Refused if an earlier abort is outstanding, which this one replaces.
                let _: Result<bool, TransactionMisuse> = own.transaction.begin_abort();
            }
            let timeout = state.own.as_ref().and_then(|own| own.transaction_options.timeout);
            let deadline = client.kill_deadline(timeout);
            let _: Result<(), Error> = client.end_transaction(&mut state, false, deadline).await;
            state.end(&client);
        });
    }
}
