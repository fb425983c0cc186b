//! Server sessions of MongoDB, without I/O: which session a command uses, when a session is
//! discarded, and the highest cluster time that was seen.
//!
//! A server keeps the state of retryable writes and of causally consistent reads under the id of a
//! session, for as long as the session is used. A client keeps unused sessions in a [`SessionPool`]:
//! the deployment then has as few sessions as possible.
//!
//! Read first: Driver Sessions, "Server Session Pool", "Gossipping the cluster time"; Retryable
//! Writes, "Generating Transaction IDs".

#[cfg(test)]
mod tests;
pub mod transaction;

use crate::Instant;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use poolhouse_wire::bson::{DocumentWriter, RawDocument, RawValue, Timestamp};
use poolhouse_wire::{EncodeError, Sink, WireError, WireErrorKind};

/// The maximum number of unused sessions that a pool keeps; further ones are discarded, and the
/// servers forget them after their timeout.
pub const IDLE_SESSIONS_MAX: usize = 100_000;

/// The maximum number of ids in one `endSessions` command.
///
/// Source: Driver Sessions, "endSessions".
pub const END_SESSIONS_MAX: usize = 10_000;

/// The maximum size of a cluster time with its signature, in bytes. Servers send some 120.
pub const CLUSTER_TIME_BYTES_MAX: usize = 1024;

/// The time before the end of its timeout at which a session is no longer used.
const MARGIN: Duration = Duration::from_secs(60);

/// A session of a deployment, for the exclusive use of its owner. [`SessionPool::check_in`] takes
/// it back.
#[derive(PartialEq, Eq, Hash)]
#[must_use = "a session that is not checked in is not used again"]
pub struct ServerSession {
    id: [u8; 16],
    txn_number: i64,
    last_use: Instant,
    /// A command was sent, and its reply was not received.
    outstanding: bool,
    /// The reply to an earlier command was never received: the server may still execute it.
    dirty: bool,
}

impl ServerSession {
    /// Creates a session. Its first command creates it on the server.
    ///
    /// - `random`: unpredictable, because the id must be unique among all clients.
    pub const fn new(now: Instant, random: [u8; 16]) -> Self {
        let mut id = random;
        // A random UUID: version 4, variant 1.
        id[6] = id[6] & 0x0f | 0x40;
        id[8] = id[8] & 0x3f | 0x80;
        Self { id, txn_number: 0, last_use: now, outstanding: false, dirty: false }
    }

    /// Returns the id, a UUID.
    #[must_use]
    pub const fn id(&self) -> &[u8; 16] {
        &self.id
    }

    /// Records that a command of this session is sent. If the previous command has no reply, because
    /// of a network error or because its operation was cancelled, the session is dirty from now on:
    /// it can be used by its owner, but not by others.
    ///
    /// Source: Driver Sessions, on dirty sessions and network errors.
    pub const fn send(&mut self, now: Instant) {
        self.last_use = now;
        self.dirty |= self.outstanding;
        self.outstanding = true;
    }

    /// Records that the server has replied to the command.
    pub const fn handle_reply(&mut self) {
        self.outstanding = false;
    }

    /// Returns the number of the next retryable write or transaction. All attempts of it use the
    /// same number.
    ///
    /// # Panics
    ///
    /// After 2⁶³ - 1 numbers.
    #[must_use]
    pub fn next_txn_number(&mut self) -> i64 {
        assert!(self.txn_number < i64::MAX, "a session has fewer than 2^63 writes");
        self.txn_number += 1;
        self.txn_number
    }

    /// Appends `lsid` to a command.
    ///
    /// # Errors
    ///
    /// [`EncodeError::Full`].
    pub fn append<S: Sink>(&self, command: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError> {
        command.document("lsid", |lsid| self.append_id(lsid)).map(drop)
    }

    /// Appends the fields of `lsid`, for an array of ids.
    ///
    /// # Errors
    ///
    /// [`EncodeError::Full`].
    pub fn append_id<S: Sink>(&self, lsid: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError> {
        const UUID: u8 = 4;
        lsid.binary("id", UUID, &self.id).map(drop)
    }

    /// Whether the server may forget the session within a minute.
    fn is_expiring(&self, now: Instant, timeout: Option<Duration>) -> bool {
        timeout.is_some_and(|timeout| now.saturating_since(self.last_use) >= timeout.saturating_sub(MARGIN))
    }
}

impl fmt::Debug for ServerSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSession").field("txn_number", &self.txn_number).finish_non_exhaustive()
    }
}

/// The unused sessions of a client. The last one that was checked in is used first, so the others can
/// expire.
///
/// Memory: up to [`IDLE_SESSIONS_MAX`] sessions of some 40 bytes.
#[derive(Debug, Default)]
pub struct SessionPool {
    /// The sessions by the time of their check-in, the oldest first.
    idle: VecDeque<ServerSession>,
}

impl SessionPool {
    /// Creates an empty pool.
    #[must_use]
    pub const fn new() -> Self {
        Self { idle: VecDeque::new() }
    }

    /// Takes the session that was checked in last; `None` if a new session must be created.
    ///
    /// - `timeout`: the least `logicalSessionTimeoutMinutes` of the deployment's servers that hold data,
    ///   because any of them may have used an idle session; `None` behind a load balancer, where
    ///   sessions do not expire. It is not stored: the timeout of a server that has left, or has
    ///   corrected itself, has no further effect.
    ///
    /// Cost: amortized O(1), no allocation. Sessions that expire within a minute are discarded.
    ///
    /// Source: Driver Sessions, "Algorithm to acquire a ServerSession instance from the server
    /// session pool".
    pub fn check_out(&mut self, now: Instant, timeout: Option<Duration>) -> Option<ServerSession> {
        while let Some(session) = self.idle.pop_back() {
            if !session.is_expiring(now, timeout) {
                return Some(session);
            }
        }
        None
    }

    /// Returns a session to the pool. It is discarded if it is dirty, if it expires within a minute,
    /// or if the pool is full. Expiring sessions among the oldest are discarded too.
    ///
    /// - `timeout`: as in [`SessionPool::check_out`].
    ///
    /// Cost: amortized O(1); allocates only at a new maximum of unused sessions.
    ///
    /// Source: Driver Sessions, "Algorithm to return a ServerSession instance to the server session
    /// pool".
    pub fn check_in(&mut self, now: Instant, session: ServerSession, timeout: Option<Duration>) {
        while self.idle.front().is_some_and(|oldest| oldest.is_expiring(now, timeout)) {
            self.idle.pop_front();
        }
        let is_dirty = session.dirty || session.outstanding;
        if !is_dirty && !session.is_expiring(now, timeout) && self.idle.len() < IDLE_SESSIONS_MAX {
            self.idle.push_back(session);
        }
    }

    /// Takes up to [`END_SESSIONS_MAX`] sessions, for one `endSessions` command; none if the pool is
    /// empty.
    #[must_use]
    pub fn take_ending(&mut self) -> Vec<ServerSession> {
        let count = self.idle.len().min(END_SESSIONS_MAX);
        self.idle.drain(..count).collect()
    }

    /// Returns the number of unused sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.idle.len()
    }

    /// Whether there is no unused session.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.idle.is_empty()
    }
}

/// The highest cluster time that was seen, with the signature of the server. Each command repeats it
/// to the members of the cluster.
///
/// Source: Driver Sessions, "Gossipping the cluster time".
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ClusterTime {
    time: Option<Timestamp>,
    /// The document as the server sent it.
    bytes: Vec<u8>,
}

impl ClusterTime {
    /// No cluster time was seen.
    pub const NONE: Self = Self { time: None, bytes: Vec::new() };

    /// Stores `$clusterTime` of a reply if it is later than the stored one.
    ///
    /// Cost: O(bytes); allocates only if the document is larger than any before.
    ///
    /// # Errors
    ///
    /// `clusterTime` is missing or no timestamp, the document is malformed or larger than
    /// [`CLUSTER_TIME_BYTES_MAX`]. Nothing has changed.
    pub fn handle(&mut self, document: RawDocument<'_>) -> Result<(), WireError> {
        let bytes = document.as_bytes();
        if bytes.len() > CLUSTER_TIME_BYTES_MAX {
            return Err(WireError::new(WireErrorKind::FieldValue { name: "$clusterTime" }, document.offset()));
        }
        let name = "$clusterTime.clusterTime";
        let time = match document.get("clusterTime")? {
            Some(RawValue::Timestamp(time)) => time,
            Some(other) => {
                let found = other.element_type();
                return Err(WireError::new(WireErrorKind::FieldType { name, found }, document.offset()));
            }
            None => return Err(WireError::new(WireErrorKind::FieldMissing { name }, document.offset())),
        };
        if self.time < Some(time) {
            document.validate()?;
            self.time = Some(time);
            self.bytes.clear();
            self.bytes.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// Appends `$clusterTime` to a command, if a cluster time was seen.
    ///
    /// # Errors
    ///
    /// [`EncodeError::Full`].
    pub fn append<S: Sink>(&self, command: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError> {
        let Some(document) = self.document() else { return Ok(()) };
        command.raw_document("$clusterTime", document).map(drop)
    }

    /// Whether no cluster time was seen.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.time.is_none()
    }

    /// Returns the time without its signature.
    #[must_use]
    pub const fn time(&self) -> Option<Timestamp> {
        self.time
    }

    /// Returns the document as the server sent it; `None` if no cluster time was seen.
    #[must_use]
    pub fn document(&self) -> Option<RawDocument<'_>> {
        RawDocument::new(&self.bytes).ok()
    }
}

/// Without the signature.
impl fmt::Debug for ClusterTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterTime").field("time", &self.time).finish_non_exhaustive()
    }
}
