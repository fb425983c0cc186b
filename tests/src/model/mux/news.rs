//! Reports of the host to the pool, and actions that the host took from it.

use super::{Conn, Heartbeat, Model, Outcome, PAUSE_UP, Place, Stand, count};
use crate::machines::mux::Event;
use poolhouse_core::Cause;
use poolhouse_core::mux::{AcquireError, MuxClosed, Reply, ReplyError};

impl Model {
    fn is_at(&self, id: u64, test: impl Fn(Place) -> bool) -> bool {
        self.conn(id).is_some_and(|conn| test(conn.place))
    }

    /// A connection is established. Returns false if it was abandoned.
    pub fn handle_established(&mut self, now: u64, id: u64) -> bool {
        self.advance(now);
        if !self.is_at(id, |place| place == Place::Establishing) {
            return false;
        }
        if self.down.is_some_and(|down| down.refuses) {
            self.down = None;
        }
        self.reported_up = false;
        self.put(id, Place::Open);
        let now = self.now;
        let conn = self.conn_mut(id);
        (conn.heard, conn.polled) = (now, now);
        let created = conn.created;
        self.emit(Event::Ready(id, self.since(created)));
        self.look();
        self.serve();
        self.provide(false);
        true
    }

    /// A connection could not be established. Returns false if it was abandoned.
    pub fn handle_establish_failed(&mut self, now: u64, id: u64, cause: Cause) -> bool {
        self.advance(now);
        if !self.is_at(id, |place| place == Place::Establishing) {
            return false;
        }
        self.note_failure(cause, true);
        self.lose(id, MuxClosed::Error(cause));
        self.provide(false);
        self.fail_if_down();
        true
    }

    /// The host is reported to accept connections.
    pub fn handle_host_up(&mut self, now: u64) {
        self.advance(now);
        let is_pending = |conn: &Conn| matches!(conn.place, Place::OwesEstablish | Place::Establishing);
        self.reported_up = self.conns.iter().any(is_pending);
        if let Some(down) = &mut self.down {
            down.until = down.until.min(down.since.saturating_add(PAUSE_UP));
        }
        self.provide(false);
    }

    /// A connection failed. Returns false if it was already closed.
    pub fn handle_failed(&mut self, now: u64, id: u64, cause: Cause) -> bool {
        self.advance(now);
        let known = self.is_at(id, Place::is_established);
        if known {
            self.fail(id, cause);
        }
        known
    }

    /// A reply was read.
    pub fn handle_reply(&mut self, now: u64, id: u64, stream: i32) -> Result<Reply, ReplyError> {
        self.advance(now);
        if !self.is_at(id, Place::is_established) {
            return Err(ReplyError::Stale);
        }
        let now = self.now;
        let conn = self.conn_mut(id);
        let is_it = |known: Option<u16>| known.is_some_and(|known| i32::from(known) == stream);
        if conn.heartbeat.is_some_and(|heartbeat| is_it(heartbeat.id)) {
            let polled = conn.polled;
            conn.heard = now;
            conn.heartbeat = None;
            self.note_reply(id);
            self.emit(Event::HeartbeatSucceeded(id, self.since(polled)));
            self.serve();
            return Ok(Reply::Heartbeat);
        }
        let place = conn.requests.iter().position(|request| is_it(request.id) && request.stand != Stand::Answered);
        let Some(place) = place else {
            self.emit(Event::Unknown(id, stream));
            self.fail(id, Cause::Protocol);
            return Err(ReplyError::Unknown { stream });
        };
        conn.heard = now;
        let request = &mut conn.requests[place];
        let name = request.id.expect("it was compared");
        if request.stand == Stand::Late {
            conn.requests.remove(place);
            self.note_reply(id);
            self.emit(Event::Late(id, name));
            self.serve();
            return Ok(Reply::Late);
        }
        request.stand = Stand::Answered;
        self.note_reply(id);
        self.emit(Event::Reply(id, name));
        self.one_less(id);
        Ok(Reply::Request)
    }

    /// Processes the deadlines that have passed.
    pub fn handle_timeout(&mut self, now: u64) {
        self.advance(now);
        if self.closed {
            return;
        }
        let now = self.now;
        self.look_at_peers();
        let over = |model: &Self| {
            let mut trash = model.at(Place::Trashed);
            trash.find(|conn| conn.until <= now && conn.in_flight() == 0).map(|conn| conn.id)
        };
        while let Some(id) = over(self) {
            self.lose(id, MuxClosed::Idle);
        }
        self.provide(false);
        loop {
            let first = self.queue().filter(|waiter| waiter.until <= now).min_by_key(|waiter| waiter.until);
            let Some(number) = first.map(|waiter| waiter.number) else { break };
            let error = AcquireError::TimedOut { in_flight: self.in_flight(), queued: count(self.queue()) };
            self.settle(number, Outcome::Failed(error));
        }
        if let Some((_, most)) = self.window.filter(|(at, _)| *at <= now) {
            if self.queue().next().is_none() {
                self.trash_beyond(self.needed(most));
            }
            self.window = None;
            self.look();
        }
        self.fail_if_down();
    }

    /// Number of connections for a load. Keeping an open connection needs a quarter less load than
    /// opening one.
    fn needed(&self, load: u32) -> u32 {
        let Some(host) = self.host() else { return 0 };
        let kept = host.new_connection_threshold - host.new_connection_threshold.div_ceil(4);
        let mut needed = 1;
        let mut left = load;
        while left >= host.max_requests_per_connection {
            left -= host.max_requests_per_connection;
            needed += 1;
        }
        if left > kept {
            needed += 1;
        }
        needed.max(host.core_connections)
    }

    fn look_at_peers(&mut self) {
        let now = self.now;
        loop {
            let due = self.established().find(|conn| self.peer_due(conn).is_some_and(|at| at <= now));
            let Some((id, can_ask)) = due.map(|conn| (conn.id, conn.heartbeat.is_none() && conn.has_free_id())) else {
                return;
            };
            if can_ask {
                let conn = self.conn_mut(id);
                (conn.polled, conn.heartbeat) = (now, Some(Heartbeat { asked: now, id: None }));
                self.emit(Event::HeartbeatStarted(id));
            } else {
                self.emit(Event::HeartbeatFailed(id));
                self.fail(id, Cause::NetworkTimeout);
            }
        }
    }

    /// The host took the wake action of a waiter.
    pub fn took_wake(&mut self, number: u64) {
        let waiter = self.waiters.iter_mut().find(|waiter| waiter.number == number).expect("it is known");
        assert!(waiter.owes_wake, "P8: a Wake that is not owed");
        waiter.owes_wake = false;
    }

    /// The host took the establish action of a connection: the oldest owed one.
    pub fn took_establish(&mut self, id: u64) {
        let first = self.first_at(Place::OwesEstablish);
        assert_eq!(first, Some(id), "M6: the oldest is established first");
        self.put(id, Place::Establishing);
    }

    /// The host took the close action of a connection: the one that was closed first.
    pub fn took_close(&mut self, id: u64) {
        let first = self.first_at(Place::OwesClose);
        assert_eq!(first, Some(id), "M6: connections are closed in the order of their ends");
        self.conns.retain(|conn| conn.id != id);
    }

    /// The host took the heartbeat action of a connection, with this stream id.
    pub fn took_heartbeat(&mut self, id: u64, stream: u16) {
        let conn = self.conn_mut(id);
        let is_free = (conn.first..conn.ids).contains(&stream.into()) && !conn.is_taken(stream);
        assert!(is_free, "M1: stream {stream} was not free");
        let heartbeat = conn.heartbeat.as_mut().expect("M6: a Heartbeat that is not owed");
        assert_eq!(heartbeat.id, None, "M6: a Heartbeat is taken twice");
        heartbeat.id = Some(stream);
    }
}
