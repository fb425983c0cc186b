//! The selection of a server and of its connection.
//!
//! Read first: Server Selection, "Single-threaded server selection" and "Checking an Idle Socket
//! After socketCheckIntervalMS".

use super::action::ScanStep;
use super::link::{Socket, Step};
use super::{SOCKET_CHECK_INTERVAL, Scan};
use crate::control::ControlObserver;
use crate::monitor::MIN_HEARTBEAT_FREQUENCY;
use crate::selection::{Candidates, Selection, SelectionCriteria, SelectionError, SelectionFailure};
use crate::storage::Store;
use crate::topology::Memory;
use crate::{Instant, ServerId};

/// The selection of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Selecting {
    started: Instant,
    /// serverSelectionTimeoutMS after `started`.
    deadline: Instant,
    /// The number of scans that had ended when the selection began.
    ends: u32,
    /// The selected server that is being checked, because its connection must be checked before
    /// use.
    chosen: Option<ServerId>,
}

impl<M: Memory> Scan<M> {
    /// Begins the selection of an operation.
    ///
    /// Source: Server Selection, "Single-threaded server selection".
    #[must_use]
    pub fn begin(&self, now: Instant) -> Selecting {
        let started = self.clock.max(now);
        let deadline = started.saturating_add(self.config.options().server_selection_timeout);
        Selecting { started, deadline, ends: self.ends, chosen: None }
    }

    /// Takes the next step of a selection.
    ///
    /// [`ScanStep::Selected`] contains a connection that is now checked out. It was used within the
    /// last 5 s, or was just checked. If the check finds that the server no longer suits, another
    /// server is selected.
    ///
    /// - `criteria`: its heartbeatFrequencyMS is ignored; that of the scan is used.
    /// - `deprioritized`: servers that are selected only if no other suits.
    /// - `entropy`: 32 random bits, different in every call.
    ///
    /// Cost: O(servers x (tag sets + deprioritized)). Owes a `Hangup` of every connection that is
    /// still checked out, and the actions of the first check of a scan. Events: `HeartbeatStarted`
    /// if a check begins.
    ///
    /// # Errors
    ///
    /// [`SelectionError`]: no server suits after one scan (serverSelectionTryOnce);
    /// serverSelectionTimeoutMS has passed, or would pass before the next scan may begin; the
    /// topology's wire versions are not supported; the criteria are not valid for the topology; or
    /// the topology is closed.
    ///
    /// Source: Server Selection, "Single-threaded server selection".
    pub fn select(
        &mut self,
        now: Instant,
        selecting: &mut Selecting,
        criteria: &SelectionCriteria<'_>,
        deprioritized: &[ServerId],
        entropy: u32,
        observer: &mut impl ControlObserver,
    ) -> Result<ScanStep, SelectionError> {
        let now = self.advance(now);
        if self.topology.is_closed() {
            return Err(self.failed(SelectionFailure::Closed));
        }
        self.close_used();
        if self.check.is_some() || self.hangups > 0 {
            return Ok(ScanStep::Work);
        }
        let options = *self.config.options();
        let criteria = criteria.with_heartbeat_frequency(options.heartbeat_frequency);
        self.stale |= self.scan_ended.is_none_or(|at| now.saturating_since(at) >= options.heartbeat_frequency);
        let timed_out = SelectionFailure::TimedOut { waited: now.saturating_since(selecting.started) };
        loop {
            if self.stale && !self.is_load_balanced() {
                let earliest = self.scan_ended.map_or(now, |at| at.saturating_add(MIN_HEARTBEAT_FREQUENCY));
                if !options.server_selection_try_once && earliest > selecting.deadline {
                    return Err(self.failed(timed_out));
                }
                if earliest > now {
                    return Ok(ScanStep::Wait(earliest));
                }
                self.start_scan(now, entropy, observer);
                if self.check.is_some() {
                    return Ok(ScanStep::Work);
                }
            }
            if let Some(server) = self.choose(selecting, &criteria, deprioritized, entropy)? {
                if let Some(step) = self.take(now, server, selecting, observer) {
                    return Ok(step);
                }
            }
            selecting.chosen = None;
            let tried = self.is_load_balanced() || self.ends != selecting.ends;
            if options.server_selection_try_once && tried {
                self.stale = true;
                return Err(self.failed(SelectionFailure::TriedOnce));
            }
            if !options.server_selection_try_once && selecting.deadline <= now {
                self.stale = true;
                return Err(self.failed(timed_out));
            }
            if self.is_load_balanced() {
                let again = now.saturating_add(MIN_HEARTBEAT_FREQUENCY);
                return Ok(ScanStep::Wait(again.min(selecting.deadline)));
            }
            // If a scan ended within this call, the next iteration waits for another scan or fails.
            self.stale = true;
        }
    }

    /// The server that was checked for this selection, if it still suits; otherwise a random
    /// suitable one.
    fn choose(
        &self,
        selecting: &Selecting,
        criteria: &SelectionCriteria<'_>,
        deprioritized: &[ServerId],
        entropy: u32,
    ) -> Result<Option<ServerId>, SelectionError> {
        let topology = self.topology.description();
        if let Some(mismatch) = topology.wire_mismatch() {
            return Err(self.failed(SelectionFailure::Incompatible(mismatch)));
        }
        let selection = Selection::new(topology, criteria, deprioritized)
            .map_err(|error| self.failed(SelectionFailure::Criteria(error)))?;
        if let Some(chosen) = selecting.chosen.filter(|chosen| selection.is_suitable(*chosen)) {
            return Ok(Some(chosen));
        }
        Ok(selection.choose(|_| 0, entropy).map(|server| server.server()))
    }

    /// Checks out the connection to a server, or checks the server first. `None` if the server was
    /// already checked and its connection is still not usable.
    fn take(
        &mut self,
        now: Instant,
        server: ServerId,
        selecting: &mut Selecting,
        observer: &mut impl ControlObserver,
    ) -> Option<ScanStep> {
        if let Some(Socket { id, step, greeted: true, .. }) = self.link_mut(server)?.socket.as_mut() {
            if matches!(step, Step::Idle { since } if now.saturating_since(*since) < SOCKET_CHECK_INTERVAL) {
                *step = Step::InUse;
                return Some(ScanStep::Selected(*id));
            }
        }
        if selecting.chosen == Some(server) {
            return None;
        }
        selecting.chosen = Some(server);
        self.begin_check(now, server, false, observer);
        Some(ScanStep::Work)
    }

    /// Closes connections that were not checked in.
    fn close_used(&mut self) {
        for index in 0..self.links.slots().len() {
            let link = &self.links.slots()[index];
            let is_used = link.socket.is_some_and(|socket| socket.step == Step::InUse);
            if let Some(server) = link.server.filter(|_| is_used) {
                self.hang_up(server);
            }
        }
    }

    fn failed(&self, failure: SelectionFailure) -> SelectionError {
        SelectionError::new(failure, self.topology.description())
    }
}
