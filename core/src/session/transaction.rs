//! Transactions of several commands, without I/O: which fields a command gets, which errors get a
//! label, and when a transaction is pinned to its router or connection.
//!
//! ```text
//! None ──start──▶ Starting ──command──▶ InProgress ──commit──▶ Committed
//!                    │                       └──────abort────▶ Aborted
//!                    └── commit, abort: nothing is sent
//! ```
//!
//! From `Committed` and `Aborted`, a further transaction may start; a command outside of a
//! transaction leads to `None`.
//!
//! Read first: Transactions, "Constructing commands within a transaction", "When to unpin", "Error
//! Labels", "Interaction with Client Backpressure"; Convenient API for Transactions, "Sequence of
//! Actions".

#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use poolhouse_wire::bson::{DocumentWriter, RawDocument};
use poolhouse_wire::{EncodeError, Labels, Sink};

/// How long a transaction and its commit are retried as a whole, without a time limit of the
/// operation.
///
/// Source: Convenient API for Transactions, "ClientSession.withTransaction".
pub const TRANSACTION_RETRY_TIMEOUT: Duration = Duration::from_secs(120);

/// The maximum size of a recovery token, in bytes. A larger one is ignored. Routers send some 50.
pub const RECOVERY_TOKEN_BYTES_MAX: usize = 1024;

/// The state of a session's transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransactionState {
    /// The session has no transaction.
    #[default]
    None,
    /// No command was sent yet: the servers have no transaction.
    Starting,
    /// At least one command was sent.
    InProgress,
    /// It was committed, successfully or not. The commit may be repeated.
    Committed {
        /// No command was sent in it, so no commit is sent either.
        is_empty: bool,
    },
    /// It was aborted.
    Aborted,
}

/// The position of a command in its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionRole {
    /// It starts the transaction on the server.
    First,
    /// It follows another one, or ends the transaction.
    Further,
}

impl TransactionRole {
    /// Appends `txnNumber`, `startTransaction` and `autocommit` to a command.
    ///
    /// # Errors
    ///
    /// [`EncodeError::Full`].
    ///
    /// Source: Transactions, "Constructing the first command within a transaction".
    pub fn append<S: Sink>(self, command: &mut DocumentWriter<'_, S>, number: i64) -> Result<(), EncodeError> {
        command.int64("txnNumber", number)?;
        if self == Self::First {
            command.boolean("startTransaction", true)?;
        }
        command.boolean("autocommit", false).map(drop)
    }
}

/// A call that does not fit the state of the session's transaction. Nothing was sent or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransactionMisuse {
    /// A transaction is started while another one is open.
    AlreadyStarted,
    /// A transaction is ended, but none was started.
    NotStarted,
    /// A transaction is committed after it was aborted.
    CommitAfterAbort,
    /// A transaction is aborted after it was committed.
    AbortAfterCommit,
    /// A transaction is aborted twice.
    AbortAfterAbort,
}

impl TransactionMisuse {
    /// Returns the message, whose text all drivers have in common.
    ///
    /// Source: Transactions, "ClientSession changes".
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::AlreadyStarted => "Transaction already in progress",
            Self::NotStarted => "No transaction started",
            Self::CommitAfterAbort => "Cannot call commitTransaction after calling abortTransaction",
            Self::AbortAfterCommit => "Cannot call abortTransaction after calling commitTransaction",
            Self::AbortAfterAbort => "Cannot call abortTransaction twice",
        }
    }
}

impl fmt::Display for TransactionMisuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for TransactionMisuse {}

/// The failure of a command of a transaction, from which its labels follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionFailure {
    /// No reply was received: no server was selected, no connection was available, or it failed.
    NoReply,
    /// The server refused the command with this code.
    Command {
        /// The code.
        code: i32,
        /// Whether a write would be retried after it.
        is_retryable: bool,
    },
    /// The command succeeded, but its write concern failed with this code.
    WriteConcern {
        /// The code.
        code: i32,
    },
}

impl TransactionFailure {
    /// Returns the label that the client adds to the error. Servers add others.
    ///
    /// - `is_commit`: whether the command was the commit.
    ///
    /// Source: Transactions, "Error Labels".
    #[must_use]
    pub const fn label(self, is_commit: bool) -> Labels {
        const MAX_TIME_EXPIRED: i32 = 50;
        // Write concerns that no other attempt can satisfy.
        const UNKNOWN_CONCERN: i32 = 79;
        const UNSATISFIABLE_CONCERN: i32 = 100;
        let is_unknown = match self {
            Self::NoReply if !is_commit => return Labels::TRANSIENT_TRANSACTION_ERROR,
            Self::NoReply => true,
            Self::Command { code, is_retryable } => is_retryable || code == MAX_TIME_EXPIRED,
            Self::WriteConcern { code } => !matches!(code, UNKNOWN_CONCERN | UNSATISFIABLE_CONCERN),
        };
        if is_commit && is_unknown { Labels::UNKNOWN_TRANSACTION_COMMIT_RESULT } else { Labels::NONE }
    }
}

/// The transaction of one session.
///
/// - `P`: the router or the connection that all its commands use in a sharded cluster.
#[derive(Debug)]
pub struct Transaction<P> {
    state: TransactionState,
    number: Option<i64>,
    pin: Option<P>,
    /// `recoveryToken` of the latest reply; empty if there was none.
    recovery_token: Vec<u8>,
    /// A commit may have been executed.
    is_commit_sent: bool,
    /// The last command other than the abort has failed with the label `TransientTransactionError`.
    is_transient: bool,
    /// The command that aborts it has begun, and has not ended.
    is_aborting: bool,
}

impl<P> Default for Transaction<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> Transaction<P> {
    /// Creates the state of a session without a transaction.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            state: TransactionState::None,
            number: None,
            pin: None,
            recovery_token: Vec::new(),
            is_commit_sent: false,
            is_transient: false,
            is_aborting: false,
        }
    }

    /// Starts a transaction: `None`, `Committed`, `Aborted -> Starting`. The pin of the previous
    /// transaction is dropped.
    ///
    /// - `next_number`: returns the next transaction number of the session, that of this transaction.
    ///
    /// # Errors
    ///
    /// [`TransactionMisuse::AlreadyStarted`].
    ///
    /// Source: Transactions, "startTransaction".
    pub fn start(&mut self, next_number: impl FnOnce() -> i64) -> Result<(), TransactionMisuse> {
        if self.is_open() {
            return Err(TransactionMisuse::AlreadyStarted);
        }
        *self = Self { state: TransactionState::Starting, number: Some(next_number()), ..Self::new() };
        Ok(())
    }

    /// Begins a command of the session other than the end of a transaction, and returns its number
    /// and its role: `Starting -> InProgress`. If no transaction is open, it returns `None`:
    /// `Committed`, `Aborted -> None`, and the pin is dropped. An abort that is owed stays owed.
    ///
    /// Source: Transactions, "Constructing commands within a transaction", "When to unpin".
    pub fn begin_command(&mut self) -> Option<(i64, TransactionRole)> {
        match self.state {
            TransactionState::Starting => {
                self.state = TransactionState::InProgress;
                self.number.map(|number| (number, TransactionRole::First))
            }
            TransactionState::InProgress => self.number.map(|number| (number, TransactionRole::Further)),
            TransactionState::None => None,
            TransactionState::Committed { .. } | TransactionState::Aborted => {
                let owed = self.owes_abort().then_some(self.number).flatten();
                *self = Self { number: owed, is_aborting: owed.is_some(), ..Self::new() };
                None
            }
        }
    }

    /// Begins to commit: `Starting`, `InProgress -> Committed`. Returns whether a command must be
    /// sent. A commit can be repeated.
    ///
    /// # Errors
    ///
    /// [`TransactionMisuse::NotStarted`], [`TransactionMisuse::CommitAfterAbort`].
    ///
    /// Source: Transactions, "commitTransaction".
    pub const fn begin_commit(&mut self) -> Result<bool, TransactionMisuse> {
        let is_empty = match self.state {
            TransactionState::None => return Err(TransactionMisuse::NotStarted),
            TransactionState::Aborted => return Err(TransactionMisuse::CommitAfterAbort),
            TransactionState::Starting => true,
            TransactionState::InProgress => false,
            TransactionState::Committed { is_empty } => is_empty,
        };
        self.state = TransactionState::Committed { is_empty };
        self.is_transient = false;
        Ok(!is_empty)
    }

    /// Begins to abort: `Starting`, `InProgress -> Aborted`. Returns whether a command must be sent.
    /// Then the abort is outstanding until [`Transaction::handle_abort_ended`]. An abort that is
    /// outstanding, because its future was dropped, can be repeated.
    ///
    /// # Errors
    ///
    /// [`TransactionMisuse::NotStarted`], [`TransactionMisuse::AbortAfterCommit`],
    /// [`TransactionMisuse::AbortAfterAbort`].
    ///
    /// Source: Transactions, "abortTransaction".
    pub const fn begin_abort(&mut self) -> Result<bool, TransactionMisuse> {
        let is_sent = match self.state {
            TransactionState::None => return Err(TransactionMisuse::NotStarted),
            TransactionState::Committed { .. } => return Err(TransactionMisuse::AbortAfterCommit),
            TransactionState::Aborted if !self.is_aborting => return Err(TransactionMisuse::AbortAfterAbort),
            TransactionState::Starting => false,
            TransactionState::InProgress | TransactionState::Aborted => true,
        };
        self.state = TransactionState::Aborted;
        self.is_aborting = is_sent;
        Ok(is_sent)
    }

    /// Records the end of the command that aborts the transaction, whatever its outcome. The pin is
    /// dropped.
    ///
    /// Source: Transactions, "When to unpin".
    pub fn handle_abort_ended(&mut self) {
        self.is_aborting = false;
        self.pin = None;
    }

    /// Records that a commit is sent, and returns whether it must be acknowledged by a majority: an
    /// earlier attempt may have been executed, and a primary that was elected since might not have
    /// it.
    ///
    /// Source: Transactions, "writeConcern for commitTransaction attempts".
    pub const fn send_commit(&mut self) -> bool {
        core::mem::replace(&mut self.is_commit_sent, true)
    }

    /// Records that no server has executed the first command, because it was not sent or an
    /// overloaded server refused it: `InProgress -> Starting`, so the next command is the first one
    /// again, on any router.
    ///
    /// Source: Transactions, "Interaction with Client Backpressure".
    pub fn handle_first_refused(&mut self) {
        if self.state == TransactionState::InProgress {
            self.state = TransactionState::Starting;
            self.pin = None;
        }
    }

    /// Records that no server has executed a commit.
    ///
    /// - `is_repeated`: the result of [`Transaction::send_commit`] for it.
    pub const fn handle_commit_refused(&mut self, is_repeated: bool) {
        self.is_commit_sent = is_repeated;
    }

    /// Stores `recoveryToken` of a reply. Routers send it.
    ///
    /// Source: Transactions, "recoveryToken field".
    pub fn handle_recovery_token(&mut self, token: RawDocument<'_>) {
        let bytes = token.as_bytes();
        let is_wanted = matches!(self.state, TransactionState::InProgress | TransactionState::Committed { .. });
        if is_wanted && bytes.len() <= RECOVERY_TOKEN_BYTES_MAX {
            self.recovery_token.clear();
            self.recovery_token.extend_from_slice(bytes);
        }
    }

    /// Records the error of a command, or of an attempt to end the transaction, with all its labels.
    /// After `TransientTransactionError` and `UnknownTransactionCommitResult`, the pin is dropped:
    /// its router may be unreachable.
    ///
    /// Source: Transactions, "When to unpin".
    pub fn handle_error(&mut self, labels: Labels) {
        let is_transient = labels.contains(Labels::TRANSIENT_TRANSACTION_ERROR);
        self.set_transient(is_transient);
        if is_transient || labels.contains(Labels::UNKNOWN_TRANSACTION_COMMIT_RESULT) {
            self.pin = None;
        }
    }

    /// Records that a command, or an attempt to end the transaction, has succeeded.
    pub fn handle_success(&mut self) {
        self.set_transient(false);
    }

    /// The outcome of the abort is no reason to repeat the transaction, nor against it.
    fn set_transient(&mut self, is_transient: bool) {
        if self.state != TransactionState::Aborted {
            self.is_transient = is_transient;
        }
    }

    /// Pins the transaction, if it is open, committed, or its abort is outstanding: all its further
    /// commands use the pin.
    ///
    /// Source: Transactions, "Mongos Pinning"; Load Balancers, "Behaviour With Transactions".
    pub fn pin(&mut self, pin: P) {
        let is_open =
            matches!(self.state, TransactionState::InProgress | TransactionState::Committed { is_empty: false });
        if is_open || self.is_aborting {
            self.pin = Some(pin);
        }
    }

    /// Takes the pin.
    pub const fn take_pin(&mut self) -> Option<P> {
        self.pin.take()
    }

    /// Returns the pin.
    #[must_use]
    pub const fn pinned(&self) -> Option<&P> {
        self.pin.as_ref()
    }

    /// Returns the state.
    #[must_use]
    pub const fn state(&self) -> TransactionState {
        self.state
    }

    /// Whether commands of the session belong to the transaction.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.state, TransactionState::Starting | TransactionState::InProgress)
    }

    /// Whether the last command other than the abort has failed with the label
    /// `TransientTransactionError`: the transaction as a whole may be retried. After a commit, only
    /// its own error counts.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        self.is_transient
    }

    /// Whether the transaction may be open on a server, without a commit: its session must abort it
    /// before it ends.
    #[must_use]
    pub const fn owes_abort(&self) -> bool {
        let is_open = match self.state {
            TransactionState::InProgress => true,
            TransactionState::Committed { is_empty } => !is_empty && !self.is_commit_sent,
            TransactionState::None | TransactionState::Starting | TransactionState::Aborted => false,
        };
        self.is_aborting || is_open
    }

    /// Whether a commit may have been executed.
    #[must_use]
    pub const fn is_commit_sent(&self) -> bool {
        self.is_commit_sent
    }

    /// Returns the transaction number; `None` without a transaction.
    #[must_use]
    pub const fn number(&self) -> Option<i64> {
        self.number
    }

    /// Returns the latest `recoveryToken`.
    #[must_use]
    pub fn recovery_token(&self) -> Option<RawDocument<'_>> {
        RawDocument::new(&self.recovery_token).ok()
    }
}

/// Returns the pause before another attempt of a whole transaction: random, below a limit that is
/// 5 ms at first and grows by half with each attempt, up to 500 ms.
///
/// - `retry`: the number of the retry, from 1.
/// - `entropy`: uniform random bits.
///
/// Source: Convenient API for Transactions, "Sequence of Actions".
#[must_use]
pub fn transaction_pause(retry: u32, entropy: u32) -> Duration {
    const FIRST_NS: u64 = 5_000_000;
    const LIMIT_NS: u64 = 500_000_000;
    // The limit is reached after 12 steps.
    let steps = retry.saturating_sub(1).min(12);
    let limit = ((FIRST_NS * 3_u64.pow(steps)) >> steps).min(LIMIT_NS);
    Duration::from_nanos((limit * u64::from(entropy)) >> 32)
}
