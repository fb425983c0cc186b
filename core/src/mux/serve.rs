//! Requests and their stream ids: granting, queueing, release.

use super::memory::{MuxWaiterSlot, Verdict};
use super::streams::Use;
use super::{
    Acquire, AcquireError, Mux, MuxClosed, MuxConnId, MuxEvent, MuxMemory, MuxWaiterId, ReplyError, Written, conn,
    waiter,
};
use crate::hooks::{Point, fires};
use crate::machine::Observer;
use crate::storage::Store;
use crate::time::Past;
use crate::{Cause, Instant};

impl<M: MuxMemory> Mux<M> {
    /// The connection that takes the next request: the oldest of those with the fewest requests in
    /// flight.
    #[inline]
    pub(super) fn least_busy(&self) -> Option<u32> {
        let host = self.config.host()?;
        let mut least = host.max_requests_per_connection;
        let mut found = None;
        let mut at = self.conns.front(conn::OPEN);
        while let Some(index) = at {
            let in_flight = self.conns.at(index).map_or(u32::MAX, |slot| slot.in_flight);
            let streams = self.streams.slots().get(index as usize);
            let is_less = in_flight < least || (in_flight == least && found.is_some() && fires(Point::NewestOfEqual));
            if is_less && streams.is_some_and(|streams| streams.free_count() > 0) {
                least = in_flight;
                found = Some(index);
            }
            at = self.conns.next(index);
        }
        found
    }

    /// Takes an id of a connection for a request.
    ///
    /// - `waits_since`: `None` for a request that is not in the queue.
    #[inline(always)]
    pub(super) fn grant(
        &mut self,
        now: Instant,
        index: u32,
        waits_since: Option<Instant>,
        observer: &mut impl Observer<MuxEvent>,
    ) -> Option<(MuxConnId, u16)> {
        let stream = self.take_id(index)?;
        self.conns.get_mut(index).in_flight += 1;
        self.in_flight += 1;
        self.in_flight_max = self.in_flight_max.max(self.in_flight);
        let conn = MuxConnId(self.conns.key(index));
        let waited = waits_since.map(|since| now.saturating_since(since));
        observer.on_event(now, &MuxEvent::StreamAcquired { mux: self.id, conn, stream, waited });
        Some((conn, stream))
    }

    #[inline]
    pub(super) fn take_id(&mut self, index: u32) -> Option<u16> {
        let id = self.streams.slots_mut().get_mut(index as usize)?.take()?;
        u16::try_from(id).ok()
    }

    #[inline]
    pub(super) fn free_id(&mut self, index: u32, id: u16, taken_for: Use) {
        if let Some(streams) = self.streams.slots_mut().get_mut(index as usize) {
            streams.free(u32::from(id), taken_for);
        }
    }

    /// The id as a `u16`, and its use; `None` if no reply is expected with this id.
    #[inline]
    pub(super) fn use_of(&self, index: u32, stream: i32) -> Option<(u16, Use)> {
        let id = u16::try_from(stream).ok()?;
        let taken_for = self.streams.slots().get(index as usize)?.of(u32::from(id));
        matches!(taken_for, Use::Waiting | Use::Late).then_some((id, taken_for))
    }

    /// Queues or rejects a request that no connection takes at once.
    #[cold]
    pub(super) fn acquire_slow(
        &mut self,
        now: Instant,
        deadline: Option<Instant>,
        observer: &mut impl Observer<MuxEvent>,
    ) -> Result<Acquire, AcquireError> {
        let outcome = self.try_acquire(now, deadline, observer);
        if let Err(error) = outcome {
            observer.on_event(now, &MuxEvent::AcquireFailed { mux: self.id, error, waited: None });
        }
        outcome
    }

    fn try_acquire(
        &mut self,
        now: Instant,
        deadline: Option<Instant>,
        observer: &mut impl Observer<MuxEvent>,
    ) -> Result<Acquire, AcquireError> {
        if self.closed {
            return Err(AcquireError::Closed);
        }
        if self.config.host().is_none() {
            return Err(AcquireError::Ignored);
        }
        self.open_needed(now, true, observer);
        // `open_needed` may have resurrected a connection.
        if self.waiters.len(waiter::WAITING) == 0 {
            if let Some((conn, id)) = self.least_busy().and_then(|index| self.grant(now, index, None, observer)) {
                return Ok(Acquire::Granted(super::Stream { conn, id, mux: self.id }));
            }
        }
        if let Some(cause) = self.down_cause() {
            return Err(AcquireError::Down { cause });
        }
        let options = self.config.options();
        let (in_flight, queued, queue_max) =
            (self.in_flight, self.waiters.len(waiter::WAITING), options.max_queue_size);
        let busy = AcquireError::Busy { in_flight, queued, queue_max };
        if queued >= queue_max || options.pool_timeout.is_zero() {
            return Err(busy);
        }
        let until = now.saturating_add(options.pool_timeout);
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        if until <= now {
            return Err(AcquireError::TimedOut { in_flight, queued: queued + 1 });
        }
        let slot = MuxWaiterSlot { started: Past(now), verdict: Verdict::Waiting };
        if fires(Point::RefuseRequest) {
            return Err(busy);
        }
        let key = self.waiters.insert(waiter::WAITING, slot).map_err(|_| busy)?;
        if self.deadlines.insert(key.index(), until).is_err() {
            self.waiters.remove(key.index());
            return Err(busy);
        }
        observer.on_event(now, &MuxEvent::RequestQueued { mux: self.id, queued: queued + 1 });
        Ok(Acquire::Queued(MuxWaiterId(key)))
    }

    /// The cause of the last failure to establish, if no connection is open or pending. Otherwise
    /// requests wait: the next attempt begins after the pause, or as soon as a connection slot is free.
    pub(super) fn down_cause(&self) -> Option<Cause> {
        let none = self.conns.len(conn::OPEN) + self.pending_count() == 0;
        self.pause.filter(|pause| none && !pause.is_lost).map(|pause| pause.cause)
    }

    /// Fails waiting requests if no connection is open or pending.
    pub(super) fn fail_if_down(&mut self, now: Instant, observer: &mut impl Observer<MuxEvent>) {
        if let Some(cause) = self.down_cause() {
            self.fail_waiters(now, AcquireError::Down { cause }, observer);
        }
    }

    pub(super) fn fail_waiters(&mut self, now: Instant, error: AcquireError, observer: &mut impl Observer<MuxEvent>) {
        while let Some(index) = self.waiters.front(waiter::WAITING) {
            self.record_outcome(now, index, Verdict::Failed(error), observer);
        }
    }

    /// Records the outcome of a waiting request.
    pub(super) fn record_outcome(
        &mut self,
        now: Instant,
        index: u32,
        verdict: Verdict,
        observer: &mut impl Observer<MuxEvent>,
    ) {
        let slot = self.waiters.get_mut(index);
        debug_assert!(slot.verdict == Verdict::Waiting, "a request ends once");
        slot.verdict = verdict;
        let started = slot.started.0;
        self.deadlines.remove(index);
        self.waiters.move_to(index, waiter::OWES_WAKE);
        if let Verdict::Failed(error) = verdict {
            let waited = Some(now.saturating_since(started));
            observer.on_event(now, &MuxEvent::AcquireFailed { mux: self.id, error, waited });
        }
    }

    /// Grants ids to waiting requests, the oldest first, while a connection takes requests.
    pub(super) fn serve(&mut self, now: Instant, observer: &mut impl Observer<MuxEvent>) {
        while let Some(waiting) = self.waiters.front(waiter::WAITING) {
            let Some(index) = self.least_busy() else { return };
            let started = self.waiters.get(waiting).started.0;
            let Some((conn, id)) = self.grant(now, index, Some(started), observer) else { return };
            self.record_outcome(now, waiting, Verdict::Granted(conn, id), observer);
        }
    }

    /// Takes back a stream id.
    #[inline]
    pub(super) fn return_stream(
        &mut self,
        now: Instant,
        conn: MuxConnId,
        id: u16,
        written: Written,
        observer: &mut impl Observer<MuxEvent>,
    ) {
        // The ids of a closed connection are no longer valid.
        let Some(index) = self.established(conn) else { return };
        let Some(streams) = self.streams.slots_mut().get_mut(index as usize) else { return };
        match streams.of(u32::from(id)) {
            Use::Answered => {
                streams.free(u32::from(id), Use::Answered);
                if self.waiters.len(waiter::WAITING) > 0 {
                    self.serve(now, observer);
                }
            }
            Use::Waiting if written == Written::No => {
                streams.free(u32::from(id), Use::Waiting);
                self.conns.get_mut(index).in_flight -= 1;
                self.in_flight -= 1;
                self.after_reply(now, index, observer);
            }
            Use::Waiting => self.orphan(now, index, id, observer),
            Use::Free | Use::Late => debug_assert!(false, "the id of an issued stream is in use"),
        }
    }

    /// Abandons a request whose reply may still arrive.
    #[cold]
    fn orphan(&mut self, now: Instant, index: u32, id: u16, observer: &mut impl Observer<MuxEvent>) {
        let Some(streams) = self.streams.slots_mut().get_mut(index as usize) else { return };
        streams.abandon(u32::from(id));
        let (orphaned, ids) = (streams.late_count(), streams.ids());
        self.conns.get_mut(index).in_flight -= 1;
        self.in_flight -= 1;
        let conn = MuxConnId(self.conns.key(index));
        observer.on_event(now, &MuxEvent::StreamOrphaned { mux: self.id, conn, stream: id, orphaned });
        // Less than three quarters of the ids are usable.
        if orphaned * 4 > ids && self.conns.list_of(index) != conn::RETIRED {
            self.retire(now, index, observer);
            self.open_needed(now, false, observer);
            self.fail_if_down(now, observer);
        } else {
            self.after_reply(now, index, observer);
        }
    }

    /// Serves waiting requests, or closes the connection, after the number of requests in flight on
    /// it has fallen by one.
    #[inline]
    pub(super) fn after_reply(&mut self, now: Instant, index: u32, observer: &mut impl Observer<MuxEvent>) {
        if self.conns.list_of(index) == conn::OPEN {
            if self.waiters.len(waiter::WAITING) > 0 {
                self.serve(now, observer);
            }
        } else {
            self.close_if_empty(now, index, observer);
        }
    }

    /// Closes a connection because of an unexpected reply.
    #[cold]
    pub(super) fn refuse_reply(
        &mut self,
        now: Instant,
        index: u32,
        stream: i32,
        observer: &mut impl Observer<MuxEvent>,
    ) -> ReplyError {
        let conn = MuxConnId(self.conns.key(index));
        observer.on_event(now, &MuxEvent::UnknownReply { mux: self.id, conn, stream });
        self.fail(now, index, Cause::Protocol, observer);
        ReplyError::Unknown { stream }
    }

    /// Closes an established connection that has failed.
    pub(super) fn fail(&mut self, now: Instant, index: u32, cause: Cause, observer: &mut impl Observer<MuxEvent>) {
        self.note_failure(now, cause, true);
        self.drop_conn(now, index, MuxClosed::Error(cause), observer);
        self.open_needed(now, false, observer);
        self.fail_if_down(now, observer);
    }
}
