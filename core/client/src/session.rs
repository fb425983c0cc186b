//! Sessions: the state that commands add to themselves and take from replies.
//!
//! Every command on a deployment that supports sessions carries the id of one. The client takes it
//! from its pool of server sessions for one operation (an implicit session), or the application
//! holds it in a [`ClientSession`].
//!
//! Read first: Driver Sessions, "Implicit sessions", "Gossipping the cluster time"; Causal
//! Consistency, "Causal consistency"; Snapshot Reads, "Specification".

use super::connection::Parts;
use super::convert;
use super::spans::TransactionSpan;
use super::transaction::{Pin, TransactionOptions, millis, misuse};
use super::{Client, CommandOptions, Error, Net, Platform, lock};
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use poolhouse_core::selection::{ReadMode, ReadPreference};
use poolhouse_core::session::transaction::{Transaction, TransactionMisuse, TransactionRole};
use poolhouse_core::session::{ClusterTime, ServerSession, SessionPool};
use poolhouse_core::{Instant, ServerType};
use poolhouse_driver::{Guard, OperationError, append_read_preference};
use poolhouse_wire::bson::{DocumentWriter, RawDocument, RawValue, Timestamp};
use poolhouse_wire::command::CommandShape;
use poolhouse_wire::{EncodeError, WireError};
use serde::de::DeserializeOwned;
use std::sync::Mutex;

/// How long the client waits, when it is closed, until the servers have ended its cursors and
/// transactions, and then its sessions.
pub(super) const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The sessions of a client.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    pool: Mutex<SessionPool>,
    cluster_time: Mutex<ClusterTime>,
}

/// The session of one operation, or of a [`ClientSession`].
pub(super) struct SessionState<P: Platform> {
    /// Taken from the pool for the first command that is sent, or the first transaction.
    server: Option<ServerSession>,
    /// The state of a session that the application holds.
    pub(super) own: Option<Box<OwnState<P>>>,
}

impl<P: Platform> Default for SessionState<P> {
    fn default() -> Self {
        Self { server: None, own: None }
    }
}

/// The state of a [`ClientSession`] besides its server session.
pub(super) struct OwnState<P: Platform> {
    /// Tells this session from all others. Its server session cannot: another one may have it later.
    id: usize,
    pub(super) options: ClientSessionOptions,
    /// The cluster time of the application, which is not verified.
    cluster_time: ClusterTime,
    /// The latest operation that it has seen.
    operation_time: Option<Timestamp>,
    /// The time of the data that a snapshot session reads; set by its first read.
    snapshot_time: Option<Timestamp>,
    pub(super) transaction: Transaction<Pin<P>>,
    pub(super) transaction_options: TransactionOptions,
    /// The end of the time limit for the transaction as a whole.
    pub(super) transaction_deadline: Option<Instant>,
    /// The last error by which a transaction with such a limit may be repeated.
    pub(super) transient_error: Option<Error>,
    pub(super) transaction_span: Option<TransactionSpan>,
}

/// The fields that an attempt adds to its command.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Additions {
    /// When the attempt began, if it has a session.
    session: Option<Instant>,
    has_cluster_time: bool,
    pub(super) txn_number: Option<i64>,
    /// The place of the command in its transaction.
    pub(super) role: Option<TransactionRole>,
    concern: Option<Concern>,
    /// `maxTimeMS`.
    max_time_ms: Option<i64>,
}

/// The `maxTimeMS` of an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) enum MaxTime {
    None,
    /// The time that the server has by the deadline of the guard, unless the command has its own.
    Rest,
    /// How long `getMore` waits for documents, but at most for the rest of the time, so that its empty
    /// batch is in time.
    Wait(Duration),
}

impl MaxTime {
    /// - `is_limited`: whether the deadline of the guard is the time limit of the operation.
    pub(super) const fn rest_if(is_limited: bool) -> Self {
        if is_limited { Self::Rest } else { Self::None }
    }
}

/// The read concern of a command in a session.
#[derive(Clone, Copy, Debug)]
enum Concern {
    /// It must see the operation at this time.
    After(Timestamp),
    /// It begins a transaction, which must see the operation at this time.
    Transaction(Option<Timestamp>),
    /// It reads the data of this time, or of a time that the server chooses.
    Snapshot(Option<Timestamp>),
}

/// The session of the application that a cursor belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CursorOwner {
    session: usize,
    /// The number of the transaction in which the cursor was opened.
    pub(super) transaction: Option<i64>,
}

impl CursorOwner {
    pub(super) const fn is_same_session(self, other: Self) -> bool {
        self.session == other.session
    }
}

impl<P: Platform> SessionState<P> {
    /// Returns the owner of a cursor that is opened now; `None` if the application does not hold the session.
    pub(super) fn cursor_owner(&self) -> Option<CursorOwner> {
        let own = self.own.as_ref()?;
        let transaction = own.transaction.number().filter(|_| own.transaction.is_open());
        Some(CursorOwner { session: own.id, transaction })
    }

    /// Decides which fields an attempt adds, and takes a server session if it needs one.
    ///
    /// - `numbered`: whether the command is sent with a transaction number, if the server supports
    ///   them.
    /// - `txn_number`: the number of the previous attempt.
    pub(super) fn begin(
        &mut self,
        client: &Client<P>,
        shape: &CommandShape<'_>,
        guard: &Guard<'_, Net<P>>,
        numbered: bool,
        txn_number: Option<i64>,
        max_time: MaxTime,
    ) -> Result<Additions, Error> {
        // Without it, the client was forked, and the command fails.
        let Some(established) = guard.established() else { return Ok(Additions::default()) };
        let balanced = established.server_type == ServerType::LoadBalancer;
        let is_supported = balanced || established.session_timeout_minutes.is_some();
        if (shape.has_txn_number || shape.in_transaction) && !shape.has_session {
            return Err(Error::Session("a command with txnNumber, or of a transaction, needs its own lsid"));
        }
        if !shape.has_reply && shape.has_session {
            // The server would refuse it, which no reply would report. Source: Driver Sessions, on
            // unacknowledged writes.
            return Err(Error::Session(UNACKNOWLEDGED));
        }
        if self.own.is_some() && shape.has_session {
            return Err(Error::Session("the command has its own lsid, but runs in a session"));
        }
        if self.own.is_some() && !shape.takes_session {
            return Err(Error::Session("hello and authentication take no session"));
        }
        if self.own.is_some() && !is_supported {
            return Err(Error::Session("the deployment supports no sessions"));
        }
        let is_member = !matches!(established.server_type, ServerType::Standalone | ServerType::Unknown);
        let max_time_ms = match max_time {
            MaxTime::Rest if shape.takes_max_time => max_time_ms(guard)?,
            MaxTime::Wait(time) => max_time_ms(guard)?.into_iter().chain(millis(time)).min(),
            MaxTime::Rest | MaxTime::None => None,
        };
        let has_cluster_time = is_member && !shape.has_cluster_time;
        let mut additions = Additions { has_cluster_time, max_time_ms, ..Additions::default() };
        if !is_supported || !shape.takes_session {
            return Ok(additions);
        }
        let now = client.now();
        let session = take(&mut self.server, client, now)?;
        additions.session = Some(now);
        let numbered = numbered && is_member;
        if let Some(own) = &mut self.own {
            own.begin(shape, guard, &mut additions)?;
            if additions.role.is_some() {
                return Ok(additions);
            }
        }
        if numbered {
            additions.txn_number = Some(txn_number.unwrap_or_else(|| session.next_txn_number()));
        }
        Ok(additions)
    }

    /// Starts a transaction, with the next number of the server session.
    pub(super) fn start_transaction(&mut self, client: &Client<P>) -> Result<(), Error> {
        if client.is_forked() {
            return Err(OperationError::Forked.into());
        }
        let Some(own) = &mut self.own else { return Err(misuse(TransactionMisuse::NotStarted)) };
        let session = take(&mut self.server, client, client.now())?;
        own.transaction.start(|| session.next_txn_number()).map_err(misuse)
    }

    /// The fields of an attempt to end the transaction.
    pub(super) fn begin_end(&self, client: &Client<P>) -> Additions {
        let number = self.own.as_ref().and_then(|own| own.transaction.number());
        // The command has its own `maxTimeMS`.
        Additions {
            session: Some(client.now()),
            has_cluster_time: true,
            txn_number: number,
            role: number.map(|_| TransactionRole::Further),
            concern: None,
            max_time_ms: None,
        }
    }

    /// Writes a command with the fields of an attempt, which is sent then.
    pub(super) fn write(
        &mut self,
        client: &Client<P>,
        body: &mut DocumentWriter<'_, Vec<u8>>,
        parts: &Parts<'_>,
    ) -> Result<(), EncodeError> {
        self.append(client, body, parts)?;
        if let (Some(session), Some(begun)) = (&mut self.server, parts.additions.session) {
            session.send(begun);
        }
        Ok(())
    }

    /// Appends a command with the fields of an attempt.
    pub(super) fn append(
        &self,
        client: &Client<P>,
        body: &mut DocumentWriter<'_, Vec<u8>>,
        parts: &Parts<'_>,
    ) -> Result<(), EncodeError> {
        let Parts { command, preference, additions, .. } = *parts;
        match (additions.concern, &self.own) {
            (Some(concern), Some(own)) => own.write(body, command, concern)?,
            _ => {
                body.extend(command)?;
            }
        }
        if let Some(time) = additions.max_time_ms {
            body.int64("maxTimeMS", time)?;
        }
        if let Some(session) = self.server_session(&additions) {
            session.append(body)?;
        }
        match (additions.txn_number, additions.role) {
            (Some(number), Some(role)) => role.append(body, number)?,
            (Some(number), None) => {
                body.int64("txnNumber", number)?;
            }
            (None, _) => {}
        }
        if additions.has_cluster_time {
            let seen = lock(&client.inner.sessions.cluster_time);
            let own = self.own.as_ref().map(|own| &own.cluster_time).filter(|own| own.time() > seen.time());
            own.unwrap_or(&seen).append(body)?;
        }
        if let Some(api) = &client.options().server_api {
            api.write(body)?;
        }
        preference.map_or(Ok(()), |preference| append_read_preference(body, preference))
    }

    /// The server session whose `lsid` an attempt adds.
    pub(super) fn server_session(&self, additions: &Additions) -> Option<&ServerSession> {
        self.server.as_ref().filter(|_| additions.session.is_some())
    }

    /// Takes the times of a reply, which may report an error of the command. A malformed time is
    /// ignored: the server has executed the command.
    pub(super) fn handle_reply(&mut self, client: &Client<P>, reply: RawDocument<'_>, additions: &Additions) {
        if let Some(session) = &mut self.server {
            session.handle_reply();
        }
        if !additions.has_cluster_time && self.own.is_none() {
            return;
        }
        for element in reply.iter().filter_map(Result::ok) {
            match (element.key, element.value) {
                ("$clusterTime", RawValue::Document(time)) => {
                    let _: Result<(), WireError> = lock(&client.inner.sessions.cluster_time).handle(time);
                }
                (key, value) => {
                    if let Some(own) = &mut self.own {
                        own.handle_reply(key, value, additions);
                    }
                }
            }
        }
    }

    /// Removes `$clusterTime`, which a server has refused, from a command that is sent again. The client
    /// and the session forget it, so that other commands are not refused because of it; the next reply
    /// has another one. Returns false if the command had none.
    #[cold]
    pub(super) fn forget_cluster_time(&mut self, client: &Client<P>, additions: &mut Additions) -> bool {
        if additions.has_cluster_time {
            *lock(&client.inner.sessions.cluster_time) = ClusterTime::NONE;
            if let Some(own) = &mut self.own {
                own.cluster_time = ClusterTime::NONE;
            }
        }
        core::mem::take(&mut additions.has_cluster_time)
    }

    /// Records that a command has succeeded.
    pub(super) fn handle_success(&mut self) {
        if let Some(own) = &mut self.own {
            own.transaction.handle_success();
        }
    }

    /// Returns the server session to the pool of the client. In the child of a fork, the session
    /// belongs to the parent, and the lock of the pool may never be released.
    pub(super) fn end(&mut self, client: &Client<P>) {
        if let Some(session) = self.server.take().filter(|_| !client.is_forked()) {
            let timeout = client.inner.core.session_timeout();
            lock(&client.inner.sessions.pool).check_in(client.now(), session, timeout);
        }
    }
}

/// Returns `maxTimeMS` of a command that is sent now; `None` without a deadline.
///
/// # Errors
///
/// [`OperationError::Timeout`]: the reply would be late.
pub(super) fn max_time_ms<P: Platform>(guard: &Guard<'_, Net<P>>) -> Result<Option<i64>, OperationError> {
    Ok(guard.time_for_server()?.and_then(millis))
}

/// The error of a call with a time limit of its own in `with_transaction`, if that has one.
pub(super) const LIMIT_IN_TRANSACTION: &str =
    "a command in with_transaction has no time limit of its own: the timeout of the transaction limits them all";

/// The error of a command with `w: 0` in a session.
const UNACKNOWLEDGED: &str = "a command without acknowledgement (w: 0) runs in no session and no transaction";

/// Whether servers accept `afterClusterTime` beside these fields of a read concern.
fn takes_operation_time(concern: RawDocument<'_>) -> bool {
    let has = |key| concern.get(key).is_ok_and(|value| value.is_some());
    let level = concern.get("level").ok().flatten().and_then(RawValue::as_str);
    !has("afterClusterTime") && !has("atClusterTime") && !matches!(level, Some("linearizable" | "available"))
}

impl<P: Platform> OwnState<P> {
    /// Decides on the fields of a command in this session.
    fn begin(
        &mut self,
        shape: &CommandShape<'_>,
        guard: &Guard<'_, Net<P>>,
        additions: &mut Additions,
    ) -> Result<(), Error> {
        const WIRE_VERSION_5_0: i32 = 13;
        let Some(established) = guard.established() else { return Ok(()) };
        let is_member = !matches!(established.server_type, ServerType::Standalone | ServerType::Unknown);
        if self.transaction.is_open() && !is_member {
            return Err(Error::Session("transactions need a replica set or a sharded cluster"));
        }
        let after = self.operation_time.filter(|_| self.is_causal() && is_member);
        if let Some((number, role)) = self.transaction.begin_command() {
            (additions.txn_number, additions.role) = (Some(number), Some(role));
            if role == TransactionRole::First {
                let has_concern = after.is_some() || self.transaction_options.read_concern_level.is_some();
                additions.concern = has_concern.then_some(Concern::Transaction(after));
                if established.server_type == ServerType::Mongos {
                    self.transaction.pin(Pin::Router(guard.server().clone()));
                }
            }
        } else if self.options.snapshot {
            if established.max_wire_version < WIRE_VERSION_5_0 {
                return Err(Error::Session("Snapshot reads require MongoDB 5.0 or later"));
            }
            // It makes servers refuse what cannot read the snapshot. `killCursors` reads nothing.
            additions.concern = (shape.name != "killCursors").then_some(Concern::Snapshot(self.snapshot_time));
        } else if shape.takes_cluster_time && shape.read_concern.is_none_or(takes_operation_time) {
            additions.concern = after.map(Concern::After);
        }
        Ok(())
    }

    /// Whether commands follow earlier operations of the session.
    const fn is_causal(&self) -> bool {
        self.options.causal_consistency && !self.options.snapshot
    }

    /// Checks that a command fits the transaction or the snapshot of the session, before a server is
    /// selected. A pin of a transaction that has ended is dropped.
    pub(super) fn check(
        &mut self,
        shape: &CommandShape<'_>,
        read_preference: Option<ReadPreference<'_>>,
    ) -> Result<(), Error> {
        let error = if !shape.is_acknowledged {
            UNACKNOWLEDGED
        } else if self.transaction.is_open() {
            if shape.read_concern.is_some() {
                "Cannot set read concern after starting a transaction: use TransactionOptions"
            } else if shape.has_write_concern {
                "Cannot set write concern after starting a transaction: use TransactionOptions"
            } else if read_preference.is_some_and(|preference| preference.options().mode != ReadMode::Primary) {
                "read preference in a transaction must be primary"
            } else {
                return Ok(());
            }
        } else {
            self.transaction.take_pin();
            self.transaction_span = None;
            if !self.options.snapshot || shape.read_concern.is_none() {
                return Ok(());
            }
            "a command of a snapshot session has no read concern of its own"
        };
        Err(Error::Session(error))
    }

    /// Writes a command with this read concern, in addition to its own.
    fn write(
        &self,
        body: &mut DocumentWriter<'_, Vec<u8>>,
        command: RawDocument<'_>,
        concern: Concern,
    ) -> Result<(), EncodeError> {
        let mut own = RawDocument::EMPTY;
        // All elements are well-formed: the shape of the command was read from them.
        for element in command.iter().flatten() {
            if let ("readConcern", RawValue::Document(concern)) = (element.key, element.value) {
                own = concern;
            } else {
                body.value(element.key, element.value)?;
            }
        }
        let (level, name, time) = match concern {
            Concern::After(after) => (None, "afterClusterTime", Some(after)),
            Concern::Transaction(after) => {
                (self.transaction_options.read_concern_level.as_deref(), "afterClusterTime", after)
            }
            Concern::Snapshot(at) => (Some("snapshot"), "atClusterTime", at),
        };
        let concern = |concern: &mut DocumentWriter<'_, Vec<u8>>| {
            concern.extend(own)?;
            if let Some(level) = level {
                concern.str("level", level)?;
            }
            time.map_or(Ok(()), |time| concern.value(name, RawValue::Timestamp(time)).map(drop))
        };
        body.document("readConcern", concern).map(drop)
    }

    /// Takes an element of a reply.
    fn handle_reply(&mut self, key: &str, value: RawValue<'_>, additions: &Additions) {
        let is_snapshot = matches!(additions.concern, Some(Concern::Snapshot(None)));
        match (key, value) {
            ("operationTime", RawValue::Timestamp(time)) => self.operation_time = self.operation_time.max(Some(time)),
            ("recoveryToken", RawValue::Document(token)) if additions.role.is_some() => {
                self.transaction.handle_recovery_token(token);
            }
            ("atClusterTime", RawValue::Timestamp(time)) if is_snapshot => self.snapshot_time = Some(time),
            ("cursor", RawValue::Document(cursor)) if is_snapshot => {
                if let Ok(Some(RawValue::Timestamp(time))) = cursor.get("atClusterTime") {
                    self.snapshot_time = Some(time);
                }
            }
            _ => {}
        }
    }
}

const fn of_timestamp(time: bson::Timestamp) -> Timestamp {
    Timestamp { time_s: time.time, increment: time.increment }
}

/// Returns the server session, which is taken from the pool if there is none.
fn take<'s, P: Platform>(
    server: &'s mut Option<ServerSession>,
    client: &Client<P>,
    now: Instant,
) -> Result<&'s mut ServerSession, Error> {
    if server.is_none() {
        let timeout = client.inner.core.session_timeout();
        *server = lock(&client.inner.sessions.pool).check_out(now, timeout);
    }
    match server {
        Some(session) => Ok(session),
        None => Ok(server.insert(create(client, now)?)),
    }
}

#[cold]
fn create<P: Platform>(client: &Client<P>, now: Instant) -> Result<ServerSession, Error> {
    let mut random = [0; 16];
    let filled = client.inner.core.runtime().platform().fill_secret(&mut random);
    filled.map_err(|_| Error::Session("the operating system supplies no random bytes for a session"))?;
    Ok(ServerSession::new(now, random))
}

/// The options of a [`ClientSession`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientSessionOptions {
    /// Whether each read and each write of the session follows its earlier operations, on whichever
    /// member of the deployment it runs. Default true; without effect if `snapshot` is true.
    ///
    /// It is guaranteed for reads with the read concern `majority` after writes with the write
    /// concern `majority`.
    pub causal_consistency: bool,
    /// Whether all reads of the session (`find`, `aggregate`, `distinct`) see the data of the same
    /// time, which the server chooses for the first one. It needs servers of release 5.0 or later,
    /// which refuse a read of a time before the last 5 minutes. All commands of the session have the
    /// read concern `snapshot`, so that servers refuse those that cannot read this data (code 72), such
    /// as writes and `listCollections`. The session can have no transaction. Default false.
    ///
    /// Source: Snapshot Reads, "Sending readConcern to the server on all commands".
    pub snapshot: bool,
    /// The time of the data that the first read of a snapshot session sees, such as
    /// [`ClientSession::snapshot_time`] of another session; `None` lets the server choose it. A time makes
    /// the session one of `snapshot`.
    pub snapshot_time: Option<bson::Timestamp>,
    /// `defaultTimeoutMS`: the time limit of transactions without a
    /// [`timeout`](super::TransactionOptions#structfield.timeout), and of the abort of one that is open when
    /// the session is dropped, which takes at most 10 s; `None` is that of the client. Zero and
    /// [`Duration::MAX`] are never reached. Commands outside of
    /// [`with_transaction`](ClientSession::with_transaction) have limits of their own.
    ///
    /// Source: Client Side Operations Timeout, "Sessions".
    pub default_timeout: Option<Duration>,
}

impl ClientSessionOptions {
    /// The default.
    #[must_use]
    pub const fn new() -> Self {
        Self { causal_consistency: true, snapshot: false, snapshot_time: None, default_timeout: None }
    }

    /// See [`causal_consistency`](#structfield.causal_consistency).
    #[must_use]
    pub const fn causal_consistency(self, enabled: bool) -> Self {
        Self { causal_consistency: enabled, ..self }
    }

    /// See [`snapshot`](#structfield.snapshot).
    #[must_use]
    pub const fn snapshot(self, enabled: bool) -> Self {
        Self { snapshot: enabled, ..self }
    }

    /// See [`snapshot_time`](#structfield.snapshot_time).
    #[must_use]
    pub const fn snapshot_time(self, time: bson::Timestamp) -> Self {
        Self { snapshot_time: Some(time), ..self }
    }

    /// See [`default_timeout`](#structfield.default_timeout).
    #[must_use]
    pub const fn default_timeout(self, timeout: Duration) -> Self {
        Self { default_timeout: Some(timeout), ..self }
    }
}

impl Default for ClientSessionOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// A session that the application holds, for several commands in order, and for transactions:
/// [`with_transaction`](Self::with_transaction). Dropping it aborts an open transaction in the
/// background, for at most 10 s, and returns its server session to the client's pool.
///
/// A session is used by one task at a time, so its commands take it by `&mut`. It keeps the client
/// open.
///
/// Source: Driver Sessions, "ClientSession"; Causal Consistency; Transactions.
#[must_use = "a session that is dropped has no effect"]
pub struct ClientSession<P: Platform> {
    pub(super) client: Client<P>,
    pub(super) state: SessionState<P>,
}

impl<P: Platform> Client<P> {
    /// Starts a session. Performs no I/O: the first command or transaction of the session takes a server
    /// session from the client's pool. A server may forget a session that is not used for the deployment's
    /// `logicalSessionTimeoutMinutes` (30 by default) less a minute.
    pub fn start_session(&self, options: ClientSessionOptions) -> ClientSession<P> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let snapshot = options.snapshot || options.snapshot_time.is_some();
        let own = OwnState {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            options: options.snapshot(snapshot),
            cluster_time: ClusterTime::NONE,
            operation_time: None,
            snapshot_time: options.snapshot_time.map(of_timestamp),
            transaction: Transaction::new(),
            transaction_options: TransactionOptions::new(),
            transaction_deadline: None,
            transient_error: None,
            transaction_span: None,
        };
        ClientSession {
            client: self.clone(),
            state: SessionState { own: Some(Box::new(own)), ..SessionState::default() },
        }
    }

    /// Ends the unused sessions on one server of the deployment, if a connection is available at
    /// once. Errors are ignored: servers end unused sessions after a time.
    ///
    /// Source: Driver Sessions, "endSessions".
    pub(super) async fn end_sessions(&self) {
        let begin = self.now();
        loop {
            let sessions = lock(&self.inner.sessions.pool).take_ending();
            if sessions.is_empty() {
                return;
            }
            let preference = ReadPreference::of(ReadMode::PrimaryPreferred);
            let request = self.selection_request(Some(preference));
            let Ok(mut guard) = self.inner.core.check_out(&request, Some(begin)).await else { return };
            guard.set_deadline(Some(begin.saturating_add(END_TIMEOUT)));
            let write = |body: &mut DocumentWriter<'_, Vec<u8>>| {
                let ids = |ids: &mut poolhouse_wire::bson::ArrayWriter<'_, '_, Vec<u8>>| {
                    sessions.iter().try_for_each(|session| ids.document(|id| session.append_id(id)).map(drop))
                };
                body.array("endSessions", ids)?;
                self.options().server_api.map_or(Ok(()), |api| api.write(body))?;
                lock(&self.inner.sessions.cluster_time).append(body)
            };
            if guard.run_command("admin", write).await.is_err() {
                return;
            }
        }
    }
}

impl<P: Platform> ClientSession<P> {
    /// Returns the client of this session.
    #[must_use]
    pub const fn client(&self) -> &Client<P> {
        &self.client
    }

    /// Returns the latest operation time that the session has seen, for
    /// [`ClientSession::advance_operation_time`] of another session.
    #[must_use]
    pub fn operation_time(&self) -> Option<bson::Timestamp> {
        self.own().and_then(|own| own.operation_time).map(convert::to_timestamp)
    }

    /// Returns the time of the data that a snapshot session reads, for
    /// [`ClientSessionOptions::snapshot_time`] of another session; `None` before its first read, and of
    /// other sessions.
    ///
    /// Source: Snapshot Reads, "Server Commands".
    #[must_use]
    pub fn snapshot_time(&self) -> Option<bson::Timestamp> {
        self.own().and_then(|own| own.snapshot_time).map(convert::to_timestamp)
    }

    /// Makes the reads and writes of this session follow the operation at this time. An earlier time than that of
    /// the session changes nothing.
    pub fn advance_operation_time(&mut self, time: bson::Timestamp) {
        if let Some(own) = &mut self.state.own {
            own.operation_time = own.operation_time.max(Some(of_timestamp(time)));
        }
    }

    /// Returns the latest cluster time that this session or its client has seen, for
    /// [`ClientSession::advance_cluster_time`] of a session of another client.
    #[must_use]
    pub fn cluster_time(&self) -> Option<bson::Document> {
        let seen = lock(&self.client.inner.sessions.cluster_time);
        let own = self.own().map(|own| &own.cluster_time).filter(|own| own.time() > seen.time());
        own.unwrap_or(&seen).document().and_then(|time| convert::to_document(time).ok())
    }

    /// Makes the commands of this session send this cluster time, unless the client has seen a later
    /// one. A server requires it before it accepts an operation time of another client.
    ///
    /// # Errors
    ///
    /// [`Error::Bson`] if it is no cluster time. Nothing has changed.
    pub fn advance_cluster_time(&mut self, time: &bson::Document) -> Result<(), Error> {
        let bytes = convert::encoded(time)?;
        let Some(own) = &mut self.state.own else { return Ok(()) };
        let handled = RawDocument::new(&bytes).and_then(|time| own.cluster_time.handle(time));
        handled.map_err(|error| Error::Bson(error.to_string()))
    }

    fn own(&self) -> Option<&OwnState<P>> {
        self.state.own.as_deref()
    }

    /// Runs a command in this session, as [`Client::run_command`] does. While a transaction is open,
    /// the command belongs to it, and is retried only if it was not sent or an overloaded server
    /// refused it. A command after the end of a transaction belongs to none.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`]; [`Error::Session`] if the command has its own `lsid`, `txnNumber`
    /// or `autocommit`, takes no session (hello, authentication, and commands with the write concern
    /// `w: 0`), or if the deployment supports no sessions; in a transaction also if it has
    /// a read or write concern, another read preference than `primary`, or in
    /// [`with_transaction`](Self::with_transaction) a time limit beside that of the transaction, or if the
    /// server is a standalone one; in a snapshot session, if the command has its own read concern, or the
    /// server is older than 5.0. Nothing is sent then.
    pub async fn run_command(&mut self, database: &str, command: bson::Document) -> Result<bson::Document, Error> {
        self.run_command_with(database, command, CommandOptions::new()).await
    }

    /// Runs a command with options in this session, as [`Client::run_command_with`] does.
    ///
    /// # Errors
    ///
    /// As [`ClientSession::run_command`].
    pub async fn run_command_with(
        &mut self,
        database: &str,
        command: bson::Document,
        options: CommandOptions<'_>,
    ) -> Result<bson::Document, Error> {
        let command = convert::into_encoded(command)?;
        self.client.run_in(&mut self.state, database, &command, options, convert::to_document).await
    }

    /// Runs a command in this session and decodes the reply, as [`Client::run_command_as`] does.
    ///
    /// # Errors
    ///
    /// As [`ClientSession::run_command`]; [`Error::Bson`] if the reply is no `T`. The server has
    /// executed the command then.
    pub async fn run_command_as<T: DeserializeOwned + Send>(
        &mut self,
        database: &str,
        command: bson::Document,
    ) -> Result<T, Error> {
        self.run_command_as_with(database, command, CommandOptions::new()).await
    }

    /// Runs a command in this session and decodes the reply, as [`Client::run_command_as_with`]
    /// does.
    ///
    /// # Errors
    ///
    /// As [`ClientSession::run_command`]; [`Error::Bson`] if the reply is no `T`.
    pub async fn run_command_as_with<T: DeserializeOwned + Send>(
        &mut self,
        database: &str,
        command: bson::Document,
        options: CommandOptions<'_>,
    ) -> Result<T, Error> {
        let command = convert::into_encoded(command)?;
        self.client.run_in(&mut self.state, database, &command, options, convert::to_value).await
    }

    /// Runs a raw command in this session, as [`Client::run_raw_command_with`] does.
    ///
    /// # Errors
    ///
    /// As [`ClientSession::run_command`].
    pub async fn run_raw_command_with(
        &mut self,
        database: &str,
        command: &bson::RawDocument,
        options: CommandOptions<'_>,
    ) -> Result<bson::RawDocumentBuf, Error> {
        let command = command.as_bytes();
        self.client.run_in(&mut self.state, database, command, options, convert::to_raw_document).await
    }
}

impl<P: Platform> Drop for ClientSession<P> {
    fn drop(&mut self) {
        if self.own().is_some_and(|own| own.transaction.owes_abort()) {
            return self.abort_in_background();
        }
        self.state.end(&self.client);
    }
}

impl<P: Platform> fmt::Debug for ClientSession<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSession").field("operation_time", &self.operation_time()).finish_non_exhaustive()
    }
}
