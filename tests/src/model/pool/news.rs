//! Reports of the host to the pool, and actions that the host took from it.

use super::{BACKOFF_FIRST_MS, BACKOFF_LAST_MS, Model, Place};
use crate::machines::pool::Event;
use poolhouse_core::pool::{CheckOutError, ClosedReason, EstablishError, PoolState, ServiceError};
use poolhouse_core::{Cause, ObjectId};

impl Model {
    fn is_pending(&self, id: u64) -> bool {
        self.conn(id).is_some_and(|conn| conn.place.is_pending())
    }

    /// CMAP-90, CMAP-91: returns the generation of the service.
    pub fn service(&mut self, id: u64, service: ObjectId) -> Result<u64, ServiceError> {
        if !self.options.load_balanced {
            return Err(ServiceError::WrongMode);
        }
        if !self.is_pending(id) {
            return Err(ServiceError::Stale);
        }
        if let Some(reported) = self.conn(id).filter(|conn| conn.service.is_some()) {
            return Ok(reported.generation);
        }
        if !self.services.contains_key(&service) && self.services.len() >= self.room.services {
            return Err(ServiceError::Full);
        }
        let entry = self.services.entry(service).or_default();
        entry.1 += 1;
        let generation = entry.0;
        let conn = self.conn_mut(id);
        conn.service = Some(service);
        conn.generation = generation;
        Ok(generation)
    }

    /// CMAP-45, CMAP-49, P36. Returns false if the connection was closed.
    pub fn established(&mut self, now: u64, id: u64) -> bool {
        self.advance(now);
        if !self.is_pending(id) {
            return false;
        }
        self.begin(now);
        let Some(conn) = self.conn(id).cloned() else { return false };
        if conn.background {
            (self.opened, self.opened_at) = (self.opened() + 1, self.now);
        }
        let good = if self.is_stale(&conn) {
            self.close_conn(id, ClosedReason::Stale, None, None);
            if let Some(number) = conn.bound {
                self.waiter_mut(number).bound = None;
                self.fail(number, CheckOutError::PoolCleared { cause: self.cleared_by });
            }
            false
        } else if self.options.load_balanced && conn.service.is_none() {
            self.drop_failed(id, Cause::MissingServiceId, false);
            if conn.background {
                self.back_off();
            }
            false
        } else {
            self.emit(Event::Ready(id, self.since(conn.created)));
            if conn.background {
                self.no_back_off();
            }
            self.conn_mut(id).background = false;
            self.give(id);
            true
        };
        self.serve(self.in_background());
        good
    }

    /// CMAP-46, CMAP-71, CMAP-86. Returns false if the connection was closed.
    pub fn establish_failed(&mut self, now: u64, id: u64, error: EstablishError) -> bool {
        self.advance(now);
        if !self.is_pending(id) {
            return false;
        }
        self.begin(now);
        let clear = error.clear.filter(|&clear| self.is_of_mode(clear));
        let Some(conn) = self.conn(id).cloned() else { return false };
        let clear = clear.filter(|_| !self.is_stale(&conn));
        if let Some(clear) = clear {
            self.raise(clear, Some(error.cause));
        }
        self.drop_failed(id, error.cause, error.overloaded);
        if let Some(clear) = clear {
            self.finish_clear(clear, Some(error.cause));
        }
        if conn.background && self.state == PoolState::Ready {
            self.back_off();
        }
        self.serve(self.in_background());
        true
    }

    fn drop_failed(&mut self, id: u64, cause: Cause, overloaded: bool) {
        let bound = self.conn(id).and_then(|conn| conn.bound);
        self.close_conn(id, ClosedReason::Error, Some(cause), None);
        if let Some(number) = bound {
            self.waiter_mut(number).bound = None;
            self.fail(number, CheckOutError::EstablishFailed { cause, overloaded });
        }
    }

    /// After a background failure that did not clear the pool, the next attempt is delayed, longer
    /// each time (P53).
    fn back_off(&mut self) {
        self.populate_at = Some(self.now.saturating_add(self.backoff_ms * 1_000_000));
        self.backoff_ms = (self.backoff_ms * 2).min(BACKOFF_LAST_MS);
    }

    pub(super) fn no_back_off(&mut self) {
        self.populate_at = None;
        self.backoff_ms = BACKOFF_FIRST_MS;
    }

    /// The host took this wake action.
    pub fn took_wake(&mut self, number: u64) {
        self.waiter_mut(number).owes_wake = false;
    }

    /// The host took this interrupt action.
    pub fn took_interrupt(&mut self, id: u64) {
        self.conn_mut(id).owes_interrupt = false;
        self.conns.retain(|conn| conn.id != id || conn.place != Place::OwesAbandon);
    }

    /// The host took this close action.
    pub fn took_close(&mut self, id: u64) {
        self.conns.retain(|conn| conn.id != id);
    }

    /// The host took this establish action.
    pub fn took_establish(&mut self, id: u64) {
        self.conn_mut(id).place = Place::Establishing;
    }
}
