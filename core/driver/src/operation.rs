//! Operations: selecting a server, checking a connection out, running a command, and retrying all
//! of it.
//!
//! Read first: Retryable Reads, "Implementing Retryable Reads"; Client Backpressure, "Overload
//! retry policy"; Server Selection, "Passing read preference to mongos and load balancers".

use super::client_core::ClientCore;
use super::error::OperationError;
#[cfg(feature = "alloc")]
use super::event::EventKinds;
use super::guard::Guard;
use super::runtime::Runtime;
use super::select::{Operation, SelectionRequest};
use core::fmt;
use core::time::Duration;
use poolhouse_core::selection::{ReadMode, ReadPreference, SelectionCriteria};
use poolhouse_core::topology::TopologyType;
use poolhouse_core::{Instant, ServerId, ServerType};
use poolhouse_wire::Labels;

/// The options of one command. By default the command runs on a server that accepts writes, within
/// the client's time limits, and is retried only if it was certainly not sent.
///
/// Of the client's options only the time limits apply automatically: a command does not inherit the
/// read preference, nor a read or write concern.
///
/// Source: Run Command, on inherited options.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CommandOptions<'a> {
    /// The members of a replica set that may run the command; `None` is the one that accepts
    /// writes, unless `client_read_preference` is set.
    pub read_preference: Option<ReadPreference<'a>>,
    /// Whether the client's read preference applies if `read_preference` is `None`.
    /// Default false.
    pub client_read_preference: bool,
    /// The time limit for all attempts; `None` is the limits of the client's options. If it is set,
    /// neither those nor `socketTimeoutMS` apply: [`Duration::MAX`] is never reached, but selection with
    /// check-out still takes at most `serverSelectionTimeoutMS`. Zero means the same, as `timeoutMS=0` in
    /// a connection string: no time ends its retries. In `with_transaction`, it is refused if
    /// the transaction has a limit.
    pub timeout: Option<Duration>,
    /// Whether the command may be executed twice without harm. Then it is also retried, preferably
    /// on another server, after a network error, an interruption, the end of `socketTimeoutMS` or a
    /// change of the server's state, and not only if it was certainly not sent. Hosted clients retry
    /// known reads, and writes that the server executes once, without this option. It has no effect on
    /// a write with `w: 0`, which has no reply. Default false.
    pub idempotent: bool,
    /// Whether a reply with `ok: 1` is returned although it has `writeErrors` or a
    /// `writeConcernError`. By default, hosted clients return an error for it. Default false.
    pub write_errors_in_reply: bool,
    /// Whether the command is retried where the client's options allow it. If not, it is sent at most
    /// once, and hosted clients do not add `txnNumber`. Default true.
    pub retry: bool,
}

impl<'a> CommandOptions<'a> {
    /// The default.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            read_preference: None,
            client_read_preference: false,
            timeout: None,
            idempotent: false,
            write_errors_in_reply: false,
            retry: true,
        }
    }

    /// See [`read_preference`](#structfield.read_preference).
    #[must_use]
    pub const fn read_preference(self, read_preference: ReadPreference<'a>) -> Self {
        Self { read_preference: Some(read_preference), ..self }
    }

    /// See [`client_read_preference`](#structfield.client_read_preference).
    #[must_use]
    pub const fn client_read_preference(self, applies: bool) -> Self {
        Self { client_read_preference: applies, ..self }
    }

    /// See [`timeout`](#structfield.timeout).
    #[must_use]
    pub const fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// The time limit of the operation: its own, or else that of the client, as written in the options.
    #[doc(hidden)]
    #[must_use]
    pub const fn limit_or(&self, client: Option<Duration>) -> Option<Duration> {
        match self.timeout {
            Some(Duration::ZERO) => Some(Duration::MAX),
            None => client,
            own => own,
        }
    }

    /// See [`idempotent`](#structfield.idempotent).
    #[must_use]
    pub const fn idempotent(self, idempotent: bool) -> Self {
        Self { idempotent, ..self }
    }

    /// See [`write_errors_in_reply`](#structfield.write_errors_in_reply).
    #[must_use]
    pub const fn write_errors_in_reply(self, returned: bool) -> Self {
        Self { write_errors_in_reply: returned, ..self }
    }

    /// See [`retry`](#structfield.retry).
    #[must_use]
    pub const fn retry(self, enabled: bool) -> Self {
        Self { retry: enabled, ..self }
    }
}

impl Default for CommandOptions<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// Classifies the errors of an operation for retries.
pub trait AttemptError: From<OperationError> {
    /// Whether the operation was certainly not executed: see [`OperationError::is_retryable`].
    fn is_retryable(&self) -> bool;

    /// Whether another attempt may succeed: see [`OperationError::is_transient`].
    fn is_transient(&self) -> bool;

    /// Whether an overloaded server refused it: see [`OperationError::is_overload`].
    fn is_overload(&self) -> bool;

    /// Whether the deadline of the connection had passed: [`OperationError::Timeout`].
    fn is_operation_timeout(&self) -> bool;

    /// Whether the server states that the attempt has written nothing: the label
    /// `NoWritesPerformed`.
    fn performed_no_writes(&self) -> bool;

    /// Whether the attempt has sent no command: no server was selected, or no connection was available.
    fn is_unsent(&self) -> bool;

    /// Returns the error of an operation that has no time for another attempt after this error. By
    /// default it is the same, because not every type can contain its cause.
    #[must_use]
    fn timed_out(self) -> Self {
        self
    }
}

impl AttemptError for OperationError {
    fn is_retryable(&self) -> bool {
        self.is_retryable()
    }

    fn is_transient(&self) -> bool {
        self.is_transient()
    }

    fn is_overload(&self) -> bool {
        self.is_overload()
    }

    fn is_operation_timeout(&self) -> bool {
        matches!(self, Self::Timeout)
    }

    fn performed_no_writes(&self) -> bool {
        matches!(self, Self::Command { labels, .. } if labels.contains(Labels::NO_WRITES_PERFORMED))
    }

    fn is_unsent(&self) -> bool {
        matches!(self, Self::ServerSelection(_) | Self::CheckOut(_) | Self::Authentication(_))
    }
}

/// When an operation is retried. An operation with a deadline is retried until then (without end if it
/// is [`Instant::MAX`]), any other once; after an overload, `max_adaptive_retries` applies to both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Whether it is retried at all.
    pub enabled: bool,
    /// Whether it may be executed twice without harm: then it is retried after any transient error,
    /// and not only if it was certainly not sent.
    pub idempotent: bool,
    /// `maxAdaptiveRetries`: the maximum number of retries after one attempt failed by
    /// [overload](OperationError::is_overload); a [pause](overload_pause) precedes each. A
    /// connection that was refused, reset or timed out before the reply to hello counts as overload.
    pub max_adaptive_retries: u32,
    /// `enableOverloadRetargeting`: whether a retry selects an overloaded server only if no other
    /// is suitable. An overloaded router is always avoided in this way.
    pub enable_overload_retargeting: bool,
}

impl RetryPolicy {
    /// Retries of an operation that was certainly not sent, two after an overload, on any suitable
    /// server.
    pub const DEFAULT: Self =
        Self { enabled: true, idempotent: false, max_adaptive_retries: 2, enable_overload_retargeting: false };
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Returns the pause before a retry after an overload: random, below a limit that is 100 ms at first
/// and doubles with each retry up to 10 s.
///
/// - `retry`: the number of the retry, from 1.
/// - `entropy`: uniform random bits.
///
/// Source: Client Backpressure, "Overload retry policy".
#[must_use]
pub fn overload_pause(retry: u32, entropy: u32) -> Duration {
    const FIRST_NS: u64 = 100_000_000;
    const LIMIT_NS: u64 = 10_000_000_000;
    let doublings = retry.saturating_sub(1).min(7);
    let limit = (FIRST_NS << doublings).min(LIMIT_NS);
    // The product needs up to 66 bits.
    let pause = (u128::from(limit) * u128::from(entropy)) >> 32;
    Duration::from_nanos(u64::try_from(pause).unwrap_or(LIMIT_NS))
}

/// The number of retries whose pauses become longer, if no overload is the reason: up to 400 ms, by
/// which an operation may end before its limit.
const RETRIES_OF_LONGER_PAUSES: u32 = 3;

/// The shortest pause. The random part may be zero; an operation without an end would never let another task
/// run then, if each attempt fails at once.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// The maximum number of servers that an operation avoids if others are suitable.
const DEPRIORITIZED_MAX: usize = 4;

/// The attempts of one operation: two, or with a deadline any number until then. Retries after an
/// overload are limited in number. A [pause](overload_pause), of at least 1 ms, precedes each of them, and each
/// retry after the first.
///
/// Source: Retryable Reads, "Implementing Retryable Reads"; Client Backpressure, "Overload retry
/// policy"; Client Side Operations Timeout, "Server Selection" and "Retryability".
pub struct Attempts<'a, R: Runtime, E> {
    core: &'a ClientCore<R>,
    /// For the events of selections; `None` before the first of an operation without a name.
    operation: Option<Operation<'a>>,
    criteria: SelectionCriteria<'a>,
    deadline: Option<Instant>,
    policy: RetryPolicy,
    /// The number of failed attempts, and of those that `take_retries` has returned.
    failures: u32,
    taken: u32,
    /// The number of attempts that may fail before the last.
    retries_max: u32,
    /// The server of the current or last attempt.
    server: Option<ServerId>,
    /// The servers of failed attempts: the first ones, if there are more than fit.
    deprioritized: heapless::Vec<ServerId, DEPRIORITIZED_MAX, u8>,
    /// The end of the pause before the next attempt; `None` if it begins at once.
    pause_until: Option<Instant>,
    /// The error of the previous attempt, or an earlier one if that has written nothing.
    failed: Option<E>,
}

impl<R: Runtime> ClientCore<R> {
    /// Creates the attempts of an operation that begins now.
    ///
    /// - `deadline`: the operation's own, for all its attempts. Without one, an
    ///   [`OperationError::Timeout`] is the end of the time limit for one command, and counts as a
    ///   network error.
    pub fn attempts<'a, E: AttemptError>(
        &'a self,
        criteria: SelectionCriteria<'a>,
        deadline: Option<Instant>,
        policy: RetryPolicy,
    ) -> Attempts<'a, R, E> {
        let deprioritized = heapless::Vec::new();
        Attempts {
            core: self,
            operation: None,
            criteria,
            deadline,
            policy,
            failures: 0,
            taken: 0,
            retries_max: if deadline.is_some() { u32::MAX } else { 1 },
            server: None,
            deprioritized,
            pause_until: None,
            failed: None,
        }
    }
}

impl<'a, R: Runtime, E: AttemptError> Attempts<'a, R, E> {
    /// Names the operation, for the events of its selections
    /// ([`SelectionEvent`](super::SelectionEvent)).
    ///
    /// - `name`: of the command.
    /// - `id`: the id of the operation, which [`Guard::set_operation_id`] gives to its commands.
    /// - `kinds`: the kinds of events that had a subscriber when the operation began
    ///   ([`Publish::kinds`](super::Publish::kinds)). Other selections have no events.
    #[cfg(feature = "alloc")]
    #[must_use]
    pub fn named(self, name: &'a str, id: i64, kinds: EventKinds) -> Self {
        Self { operation: Some(Operation::named(name, id, kinds)), ..self }
    }

    /// Returns a connection for the next attempt. If the attempt fails, its error must be passed to
    /// [`Attempts::failed`].
    ///
    /// # Errors
    ///
    /// The error of the last attempt. If no server is suitable for a retry, or no connection is
    /// available, the error of the previous attempt, which may have executed the operation:
    /// [`AttemptError::timed_out`] if the deadline is the reason.
    pub async fn next(&mut self) -> Result<Guard<'a, R>, E> {
        loop {
            if self.pause_until.is_some() {
                self.pause().await;
            }
            let request = SelectionRequest { criteria: self.criteria, deprioritized: &self.deprioritized };
            let limit = self.core.check_out_limit(self.deadline);
            let operation = self.operation.get_or_insert_with(|| self.core.operation());
            let server = match self.core.select_server_for(operation, &request, limit).await {
                Ok(server) => server,
                Err(error) => return Err(self.ended(error.into())),
            };
            self.server = Some(server.id());
            match self.core.check_out_of(server, limit, self.deadline).await {
                Ok(guard) => return Ok(guard),
                Err(error) => self.failed(error.into())?,
            }
        }
    }

    /// Returns a connection to this server for the next attempt.
    ///
    /// # Errors
    ///
    /// No connection was available. The error must be passed to [`Attempts::failed_and`].
    pub async fn next_on(&mut self, server: R::ServerHandle) -> Result<Guard<'a, R>, E> {
        self.pause().await;
        self.server = Some(server.id());
        let limit = self.core.check_out_limit(self.deadline);
        Ok(self.core.check_out_of(server, limit, self.deadline).await?)
    }

    /// Waits until the next attempt may begin. [`Attempts::next`] and [`Attempts::next_on`] do it
    /// too.
    pub async fn pause(&mut self) {
        if let Some(until) = self.pause_until.take() {
            self.core.sleep_until(Some(until)).await;
        }
    }

    /// Records the error of an attempt, and returns `Ok` if there is another attempt.
    ///
    /// # Errors
    ///
    /// The same error, if there is none.
    pub fn failed(&mut self, error: E) -> Result<(), E> {
        let repeatable = self.policy.idempotent && self.is_transient(&error);
        self.failed_and(error, repeatable)
    }

    /// Returns the error of an operation that ends because its next attempt has sent nothing: that of the
    /// previous attempt, if there was one.
    pub fn ended(&mut self, error: E) -> E {
        let is_over = self.deadline.is_some_and(|end| error.is_operation_timeout() || self.core.now() >= end);
        match self.failed.take() {
            Some(earlier) if is_over => earlier.timed_out(),
            Some(earlier) => earlier,
            None => error,
        }
    }

    /// The number of attempts after the first, since the last call.
    pub const fn take_retries(&mut self) -> u32 {
        let taken = core::mem::replace(&mut self.taken, self.failures);
        self.failures - taken
    }

    /// Takes the error of the previous attempt, of an operation that makes no other attempt after all.
    pub const fn take_error(&mut self) -> Option<E> {
        self.failed.take()
    }

    /// Whether another attempt may succeed: [`AttemptError::is_transient`], and the end of the time
    /// limit for one command if the operation has no deadline.
    pub fn is_transient(&self, error: &E) -> bool {
        error.is_transient() || (self.deadline.is_none() && error.is_operation_timeout())
    }

    /// [`Attempts::failed`], if the caller decides about retries.
    ///
    /// - `repeatable`: whether the operation may be executed twice after this error. If not, it is
    ///   retried only if it was certainly not executed.
    ///
    /// # Errors
    ///
    /// If there is no other attempt, the same error, or an earlier one if this attempt has written
    /// nothing (`NoWritesPerformed`) or has sent nothing; [`AttemptError::timed_out`] if there would be
    /// another attempt without the deadline.
    pub fn failed_and(&mut self, error: E, repeatable: bool) -> Result<(), E> {
        let policy = self.policy;
        let is_overload = error.is_overload();
        if is_overload {
            self.retries_max = policy.max_adaptive_retries;
        }
        let again = is_overload || error.is_retryable() || repeatable;
        if !policy.enabled || !again || self.failures >= self.retries_max {
            return Err(self.cause_of(error));
        }
        // Without a pause, servers that fail at once would get attempts without end until the deadline.
        if is_overload || self.failures > 0 {
            let retry = if is_overload { self.failures + 1 } else { self.failures.min(RETRIES_OF_LONGER_PAUSES) };
            let pause = overload_pause(retry, self.core.runtime().entropy()).max(PAUSE_MIN);
            let until = self.core.now().saturating_add(pause);
            if self.deadline.is_some_and(|deadline| until >= deadline) {
                return Err(self.cause_of(error).timed_out());
            }
            self.pause_until = Some(until);
        }
        self.failures += 1;
        // Another router is equivalent. In a replica set, the application's option decides whether
        // an overloaded member is avoided.
        let is_sharded = self.core.topology_type() == TopologyType::Sharded;
        if !is_overload || policy.enable_overload_retargeting || is_sharded {
            let server = self.server.filter(|server| !self.deprioritized.contains(server));
            let _ = server.map(|server| self.deprioritized.push(server));
        }
        self.failed = Some(self.cause_of(error));
        Ok(())
    }

    /// Returns the earlier error if the attempt with this error has written or sent nothing: an
    /// earlier attempt may have written.
    ///
    /// Source: Retryable Writes, on the label `NoWritesPerformed`, and "Executing Retryable Write
    /// Commands", on errors of the driver itself.
    fn cause_of(&mut self, error: E) -> E {
        let has_no_effect = error.performed_no_writes() || error.is_unsent();
        if has_no_effect { self.ended(error) } else { error }
    }
}

impl<R: Runtime, E> fmt::Debug for Attempts<'_, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempts").field("server", &self.server).finish_non_exhaustive()
    }
}

impl<R: Runtime> Guard<'_, R> {
    /// Returns the read preference to send to the server
    /// ([`append_read_preference`](super::append_read_preference)): `None` for a standalone server,
    /// and for `primary`, which is the default. On a direct connection to a server that is not a
    /// router, `primaryPreferred` replaces `primary`, to allow any member of a replica set to
    /// reply.
    ///
    /// Source: Server Selection, "Passing read preference to mongos and load balancers".
    #[must_use]
    pub fn preference_to_send<'a>(
        &self,
        preference: Option<ReadPreference<'a>>,
        direct_connection: bool,
    ) -> Option<ReadPreference<'a>> {
        let server_type = self.established().map_or(ServerType::Unknown, |established| established.server_type);
        if server_type == ServerType::Standalone {
            return None;
        }
        let preference = preference.filter(|preference| preference.options().mode != ReadMode::Primary);
        let direct = direct_connection && server_type != ServerType::Mongos;
        preference.or_else(|| direct.then_some(ReadPreference::of(ReadMode::PrimaryPreferred)))
    }
}
