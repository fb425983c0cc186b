//! One host of a session: its pool, the requests that it has, and what its connections are to send, all under one lock.
//!
//! Whoever changes something takes a [`Turn`]. What follows from it for others - tasks to wake, connections to establish - is noted in [`Outside`] and done
//! when the lock is free again.
//!
//! A request has a *slot* from the moment when the pool lets it wait or go until whoever made it has taken the outcome. A connection, here a *link*, knows by
//! stream id which slot a reply is for.

use super::link::Incoming;
use super::options::{CqlHost, LOWER_VERSION_FOR};
use crate::lock;
use alloc::string::String;
use alloc::vec::Vec;
use core::task::{Poll, Waker};
use poolhouse_core::machine::{Machine, Observer, Stale};
use poolhouse_core::mux::{
    Acquire, AcquireError, HostState, Mux, MuxAction, MuxClaim, MuxClosed, MuxConfig, MuxConnId, MuxEvent, MuxId,
    MuxOnHeap, MuxWaiterId, Stream, Written,
};
use poolhouse_core::observe::contain;
use poolhouse_core::storage::Heap;
use poolhouse_core::storage::deadlines::Deadlines;
use poolhouse_core::{Cause, Instant};
use poolhouse_cql::{CqlEncodeError, Flags, Header, Limits, Outgoing, Request, Version};
use poolhouse_driver::{Subscribers, Tap, register};
use std::sync::Mutex;

/// No slot.
const NONE: u32 = u32::MAX;
/// No slot, by an id by which nothing was sent yet: there can be no reply.
const UNSENT: u32 = u32::MAX - 1;
/// A connection that has as much to send, because its peer takes nothing, takes no more requests.
const OUT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A host of a session.
pub(super) struct Host {
    pub(super) id: MuxId,
    pub(super) address: String,
    state: Mutex<State>,
}

struct State {
    mux: Mux<MuxOnHeap>,
    /// The version to try first.
    version: Version,
    /// An older version that its server speaks, and until when that is tried first.
    lowered: Option<(Version, Instant)>,
    /// What its server said when it last refused a connection.
    refusal: Option<String>,
    limits: Limits,
    /// By the place of a connection.
    links: Vec<Option<Link>>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The slots of those that wait for a connection that takes them, by their place.
    queued: Vec<u32>,
    /// Until when requests may take, by slot.
    deadlines: Deadlines<Heap<Instant>>,
    /// When the session's clock comes here next, at the latest.
    alarm: Option<Instant>,
    /// Whether a connection had no free stream id when the pool's clock was last asked: then it may be due earlier once there is one.
    is_tight: bool,
}

/// A connection, from the moment when the pool wants it until the pool wants it closed.
struct Link {
    conn: MuxConnId,
    version: Version,
    /// Envelopes that are to be sent.
    out: Vec<u8>,
    /// The stream ids among them that are nobody's: of requests that were given up, of heartbeats.
    unsent: Vec<u16>,
    /// How many bytes were taken from there so far.
    taken: u64,
    /// The slots of the requests that are in flight, by stream id.
    owners: Vec<u32>,
    /// Who reads and writes.
    task: Option<Waker>,
}

impl Link {
    fn put_owner(&mut self, stream: u16, owner: u32) {
        let id = usize::from(stream);
        if self.owners.len() <= id {
            self.owners.resize((id + 1).next_power_of_two(), NONE);
        }
        self.owners[id] = owner;
    }
}

/// A request.
struct Slot {
    state: SlotState,
    waker: Option<Waker>,
}

enum SlotState {
    Free,
    Queued(MuxWaiterId),
    /// It is on its way.
    Sent {
        stream: Stream,
        /// How many bytes its connection had to send before it.
        start: u64,
    },
    Answered(Answer),
    Failed(Failure),
}

/// A server's answer.
pub(super) struct Answer {
    pub(super) header: Header,
    pub(super) body: Vec<u8>,
}

/// Why a host has no answer to a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Failure {
    /// The pool does not take it.
    Rejected(AcquireError),
    Encode(CqlEncodeError),
    TimedOut {
        sent: bool,
    },
    Lost {
        cause: Cause,
        sent: bool,
    },
}

/// What is to be sent.
#[derive(Clone, Copy)]
pub(super) struct Message<'r> {
    pub(super) request: &'r Request<'r>,
    pub(super) flags: Flags,
}

/// What a connection has to send.
pub(super) enum Output {
    /// The pool wants the connection closed.
    Gone,
    Nothing,
    /// This was put where it is sent from.
    Taken,
}

/// What is to be done when the lock is free.
#[derive(Default)]
pub(super) struct Outside {
    /// Most have one.
    waker: Option<Waker>,
    wakers: Vec<Waker>,
    replaced: Option<Waker>,
    /// Connections to establish.
    pub(super) establish: Vec<MuxConnId>,
    /// The clock is to look anew when it comes.
    pub(super) ring: bool,
}

impl Outside {
    /// With room for wakers.
    pub(super) fn with_room(wakers: Vec<Waker>) -> Self {
        Self { wakers, ..Self::default() }
    }

    fn wake(&mut self, waker: &mut Option<Waker>) {
        let Some(waker) = waker.take() else { return };
        match &mut self.waker {
            place @ None => *place = Some(waker),
            Some(_) => self.wakers.push(waker),
        }
    }

    /// Wakes whoever is to be woken. The room for the next.
    pub(super) fn wake_all(mut self) -> Vec<Waker> {
        for waker in self.waker.into_iter().chain(self.wakers.drain(..)) {
            // The others hear of it whatever this one does.
            let _ = contain(|| waker.wake());
        }
        self.wakers
    }
}

/// Hears why connections are closed, and hands everything on.
struct Ears<'a> {
    tap: Tap<'a, Subscribers>,
    closed: Vec<(MuxConnId, Cause)>,
    /// Whether there was more than requests that came and went: only then may the pool's clock be due earlier than before.
    has_news: bool,
}

impl Observer<MuxEvent> for Ears<'_> {
    #[inline]
    fn on_event(&mut self, now: Instant, event: &MuxEvent) {
        if !matches!(event, MuxEvent::StreamAcquired { .. } | MuxEvent::ReplyReceived { .. }) {
            self.has_news = true;
        }
        if let MuxEvent::ConnectionClosed { conn, reason: MuxClosed::Error(cause), .. } = event {
            self.closed.push((*conn, *cause));
        }
        self.tap.on_event(now, event);
    }
}

impl Host {
    /// A host, which wants connections from its first turn on.
    pub(super) fn new(
        now: Instant,
        id: MuxId,
        address: &CqlHost,
        config: MuxConfig,
        version: Version,
        limits: Limits,
        events: &Subscribers,
    ) -> Self {
        let address = address.address.clone();
        let mux = Mux::new(now, id, config, &mut Tap::of_server(events, &address));
        let state = State {
            mux,
            version,
            lowered: None,
            refusal: None,
            limits,
            links: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            queued: Vec::new(),
            deadlines: Deadlines::empty(),
            alarm: None,
            is_tight: false,
        };
        Self { id, address, state: Mutex::new(state) }
    }

    /// Takes a turn, and after it what the pool wants.
    pub(super) fn turn<T>(
        &self,
        now: Instant,
        events: &Subscribers,
        outside: &mut Outside,
        act: impl FnOnce(&mut Turn<'_>) -> T,
    ) -> T {
        let ears = Ears { tap: Tap::of_server(events, &self.address), closed: Vec::new(), has_news: false };
        let mut state = lock(&self.state);
        let mut turn = Turn { state: &mut state, now, ears, outside };
        let result = act(&mut turn);
        turn.end();
        result
    }

    /// What became of a request, if that is there: then its slot is another's. A turn changes nothing more.
    pub(super) fn outcome(&self, slot: u32) -> Option<Result<Answer, Failure>> {
        let mut state = lock(&self.state);
        let place = state.slots.get_mut(slot as usize)?;
        let outcome = match core::mem::replace(&mut place.state, SlotState::Free) {
            SlotState::Answered(answer) => Ok(answer),
            SlotState::Failed(failure) => Err(failure),
            waiting @ (SlotState::Free | SlotState::Queued(_) | SlotState::Sent { .. }) => {
                place.state = waiting;
                return None;
            }
        };
        // It has neither deadline nor waker any more.
        state.free.push(slot);
        Some(outcome)
    }

    /// Whether a connection is still wanted. Its task is woken when that is no longer so.
    pub(super) fn is_wanted(&self, conn: MuxConnId, waker: &Waker) -> bool {
        let mut waker = Some(waker.clone());
        let mut state = lock(&self.state);
        let Some(link) = link_of(&mut state.links, conn) else { return false };
        register(&mut link.task, &mut waker);
        true
    }

    /// Takes what a connection has to send, all of it. Its task is woken when there is more, and when it is to be closed.
    ///
    /// - `into`: what was sent before, which is overwritten.
    pub(super) fn take_output(&self, conn: MuxConnId, into: &mut Vec<u8>, waker: &Waker) -> Output {
        let mut waker = Some(waker.clone());
        let mut state = lock(&self.state);
        let Some(link) = link_of(&mut state.links, conn) else { return Output::Gone };
        register(&mut link.task, &mut waker);
        if link.out.is_empty() {
            Output::Nothing
        } else {
            into.clear();
            for id in link.unsent.drain(..) {
                if let Some(owner) = link.owners.get_mut(usize::from(id)) {
                    *owner = NONE;
                }
            }
            link.taken += link.out.len() as u64;
            core::mem::swap(&mut link.out, into);
            Output::Taken
        }
    }

    /// When the session's clock is to come.
    pub(super) fn alarm(&self) -> Option<Instant> {
        lock(&self.state).alarm
    }

    /// The pool, the version that a new connection tries first, and the last refusal.
    pub(super) fn look<T>(&self, now: Instant, look: impl FnOnce(&Mux<MuxOnHeap>, Version, Option<&str>) -> T) -> T {
        let state = lock(&self.state);
        look(&state.mux, state.version_at(now), state.refusal.as_deref())
    }
}

impl State {
    fn version_at(&self, now: Instant) -> Version {
        self.lowered.filter(|(_, until)| now < *until).map_or(self.version, |(version, _)| version)
    }
}

/// The state of a host, while it is changed.
pub(super) struct Turn<'a> {
    state: &'a mut State,
    now: Instant,
    ears: Ears<'a>,
    outside: &'a mut Outside,
}

/// For whoever has a request.
impl Turn<'_> {
    /// Begins a request: the slot that it has from now on.
    ///
    /// - `deadline`: of it all. - `waker`: made before, as that may run anybody's code.
    ///
    /// # Errors
    ///
    /// [`Failure::Rejected`], [`Failure::Encode`]: it has none.
    pub(super) fn begin(
        &mut self,
        message: Message<'_>,
        deadline: Option<Instant>,
        waker: Waker,
    ) -> Result<u32, Failure> {
        let acquired = match self.state.mux.acquire(self.now, deadline, &mut self.ears) {
            Ok(acquired) => acquired,
            Err(error) => {
                self.outside.replaced = Some(waker);
                return Err(Failure::Rejected(error));
            }
        };
        let slot = self.state.free.pop().unwrap_or_else(|| {
            self.state.slots.push(Slot { state: SlotState::Free, waker: None });
            // One for each request of a user's that has not taken its outcome.
            u32::try_from(self.state.slots.len() - 1).unwrap_or(NONE)
        });
        match acquired {
            Acquire::Granted(stream) => {
                if let Err(failure) = self.send(slot, stream, message) {
                    self.outside.replaced = Some(waker);
                    self.state.free.push(slot);
                    return Err(failure);
                }
            }
            Acquire::Queued(waiter) => {
                let place = waiter.index() as usize;
                if self.state.queued.len() <= place {
                    self.state.queued.resize(place + 1, NONE);
                }
                self.state.queued[place] = slot;
                self.state.slots[slot as usize].state = SlotState::Queued(waiter);
            }
        }
        self.state.slots[slot as usize].waker = Some(waker);
        if let Some(at) = deadline {
            // Without memory for its place it has none; the pool's own still end it.
            let _ = self.state.deadlines.insert(slot, at);
        }
        Ok(slot)
    }

    /// [`Host::outcome`], or else its waker is kept. A request that has waited and may go is sent.
    ///
    /// - `waker`: as [`register`] takes it.
    pub(super) fn poll(
        &mut self,
        slot: u32,
        message: Message<'_>,
        waker: &mut Option<Waker>,
    ) -> Poll<Result<Answer, Failure>> {
        let Some(place) = self.state.slots.get_mut(slot as usize) else {
            return Poll::Ready(Err(Failure::Lost { cause: Cause::Closed, sent: true }));
        };
        match core::mem::replace(&mut place.state, SlotState::Free) {
            SlotState::Answered(answer) => {
                self.free(slot);
                return Poll::Ready(Ok(answer));
            }
            SlotState::Failed(failure) => {
                self.free(slot);
                return Poll::Ready(Err(failure));
            }
            SlotState::Queued(waiter) => match self.state.mux.claim(self.now, waiter) {
                MuxClaim::Waiting => self.state.slots[slot as usize].state = SlotState::Queued(waiter),
                MuxClaim::Granted(stream) => {
                    if let Err(failure) = self.send(slot, stream, message) {
                        self.free(slot);
                        return Poll::Ready(Err(failure));
                    }
                }
                MuxClaim::Failed(error) => {
                    self.free(slot);
                    return Poll::Ready(Err(Failure::Rejected(error)));
                }
                MuxClaim::Stale => {
                    self.free(slot);
                    return Poll::Ready(Err(Failure::Rejected(AcquireError::Closed)));
                }
            },
            state @ SlotState::Sent { .. } => place.state = state,
            SlotState::Free => {}
        }
        register(&mut self.state.slots[slot as usize].waker, waker);
        Poll::Pending
    }

    /// Whoever made a request wants to hear no more of it.
    pub(super) fn give_up(&mut self, slot: u32) {
        if let Some(place) = self.state.slots.get_mut(slot as usize) {
            let state = core::mem::replace(&mut place.state, SlotState::Free);
            self.call_off(state);
            self.free(slot);
        }
    }

    /// Gives what it has back to the pool. Whether some of it was sent, or will be.
    fn call_off(&mut self, state: SlotState) -> bool {
        match state {
            SlotState::Queued(waiter) => {
                self.state.mux.cancel(self.now, waiter, &mut self.ears);
                false
            }
            SlotState::Sent { stream, start } => {
                if let Some(link) = link_of(&mut self.state.links, stream.conn()) {
                    let sent = start < link.taken;
                    link.put_owner(stream.id(), if sent { NONE } else { UNSENT });
                    // It will be: it stands between others.
                    if !sent {
                        link.unsent.push(stream.id());
                    }
                }
                let foreign = self.state.mux.release(self.now, stream, Written::Perhaps, &mut self.ears);
                debug_assert!(foreign.is_ok(), "of this pool");
                true
            }
            SlotState::Free | SlotState::Answered(_) | SlotState::Failed(_) => false,
        }
    }

    fn free(&mut self, slot: u32) {
        self.state.deadlines.remove(slot);
        if let Some(place) = self.state.slots.get_mut(slot as usize) {
            self.outside.replaced = place.waker.take();
        }
        self.state.free.push(slot);
    }

    /// Puts a request where its connection sends it from.
    fn send(&mut self, slot: u32, stream: Stream, message: Message<'_>) -> Result<(), Failure> {
        let State { links, slots, mux, limits, .. } = &mut *self.state;
        let Some(link) = link_of(links, stream.conn()) else {
            // It was granted, and its connection failed before it was claimed.
            let _ = mux.release(self.now, stream, Written::No, &mut self.ears);
            return Err(Failure::Lost { cause: Cause::Closed, sent: false });
        };
        if link.out.len() > OUT_BYTES_MAX {
            let _ = mux.release(self.now, stream, Written::No, &mut self.ears);
            let HostState { in_flight, queued, .. } = mux.state();
            let queue_max = mux.config().options().max_queue_size;
            return Err(Failure::Rejected(AcquireError::Busy { in_flight, queued, queue_max }));
        }
        let was_empty = link.out.is_empty();
        let start = link.taken + link.out.len() as u64;
        let outgoing = Outgoing::new(link.version, stream.id().cast_signed())
            .with_flags(message.flags.without(Flags::COMPRESSION));
        if let Err(error) = message.request.encode(&mut link.out, outgoing, limits) {
            let _ = mux.release(self.now, stream, Written::No, &mut self.ears);
            return Err(Failure::Encode(error));
        }
        if was_empty {
            self.outside.wake(&mut link.task);
        }
        link.put_owner(stream.id(), slot);
        slots[slot as usize].state = SlotState::Sent { stream, start };
        Ok(())
    }
}

/// For whoever has a connection.
impl Turn<'_> {
    /// The server refused the versions above this one: it is tried first for [`LOWER_VERSION_FOR`].
    pub(super) fn lower(&mut self, version: Version) {
        if version < self.state.version_at(self.now) {
            self.state.lowered = Some((version, self.now.saturating_add(LOWER_VERSION_FOR)));
        }
    }

    /// What the server said when it refused.
    pub(super) fn refused(&mut self, refusal: Option<String>) {
        self.state.refusal = refusal;
    }

    /// A connection can be used; not if it is not wanted any more.
    pub(super) fn established(&mut self, conn: MuxConnId, version: Version) -> Result<(), Stale> {
        self.state.refusal = None;
        if let Some(link) = link_of(&mut self.state.links, conn) {
            link.version = version;
        }
        self.state.mux.handle_established(self.now, conn, &mut self.ears)
    }

    /// A connection is of no use any more, or never was.
    pub(super) fn failed(&mut self, conn: MuxConnId, cause: Cause) {
        let establishing = self.state.mux.handle_establish_failed(self.now, conn, cause, &mut self.ears);
        if establishing.is_err() {
            // If it is not known either, the pool has closed it.
            let _ = self.state.mux.handle_failed(self.now, conn, cause, &mut self.ears);
        }
    }

    /// Hands out what was received. A reply that nobody asked for, or that came before what it answers was sent, closes the connection.
    pub(super) fn dispatch(&mut self, conn: MuxConnId, batch: &mut Vec<Incoming>) {
        // If it is not known, nothing that follows is.
        let _ = self.state.mux.handle_received(self.now, conn);
        for incoming in batch.drain(..) {
            let Incoming { header, body } = incoming;
            let State { links, slots, mux, deadlines, .. } = &mut *self.state;
            let Some(link) = link_of(links, conn) else { return };
            let owner = usize::try_from(header.stream).ok().and_then(|id| link.owners.get_mut(id));
            let slot = owner.as_ref().and_then(|slot| slots.get_mut(**slot as usize));
            let sent = match slot.as_deref() {
                Some(Slot { state: SlotState::Sent { start, .. }, .. }) => *start < link.taken,
                _ => owner.as_ref().is_none_or(|owner| **owner != UNSENT),
            };
            if !sent {
                let _ = mux.handle_failed(self.now, conn, Cause::Protocol, &mut self.ears);
                return;
            }
            match mux.handle_reply(self.now, conn, header.stream.into(), &mut self.ears) {
                Ok(poolhouse_core::mux::Reply::Request) => {}
                Ok(poolhouse_core::mux::Reply::Late | poolhouse_core::mux::Reply::Heartbeat) => continue,
                Err(_) => return,
            }
            let (Some(owner), Some(slot)) = (owner, slot) else {
                // Its id was granted, and nothing was written by it yet.
                let _ = mux.handle_failed(self.now, conn, Cause::Protocol, &mut self.ears);
                return;
            };
            deadlines.remove(core::mem::replace(owner, NONE));
            if let SlotState::Sent { stream, .. } =
                core::mem::replace(&mut slot.state, SlotState::Answered(Answer { header, body }))
            {
                let foreign = mux.release(self.now, stream, Written::Perhaps, &mut self.ears);
                debug_assert!(foreign.is_ok(), "of this pool");
            }
            self.outside.wake(&mut slot.waker);
        }
    }
}

/// For whoever has the session.
impl Turn<'_> {
    /// Does what is due. When something is next.
    pub(super) fn expire(&mut self) -> Option<Instant> {
        while self.state.deadlines.earliest().is_some_and(|at| at <= self.now) {
            let Some(slot) = self.state.deadlines.first() else { break };
            self.state.deadlines.remove(slot);
            let Some(place) = self.state.slots.get_mut(slot as usize) else { continue };
            self.outside.wake(&mut place.waker);
            let state = core::mem::replace(&mut place.state, SlotState::Free);
            let sent = self.call_off(state);
            self.state.slots[slot as usize].state = SlotState::Failed(Failure::TimedOut { sent });
        }
        self.state.mux.handle_timeout(self.now, &mut self.ears);
        self.drain();
        self.state.alarm = self.next();
        self.state.alarm
    }

    pub(super) fn reconfigure(&mut self, config: MuxConfig) {
        if *self.state.mux.config() != config {
            self.state.mux.reconfigure(self.now, config, &mut self.ears);
        }
    }

    pub(super) fn close(&mut self) {
        self.state.mux.close(self.now, &mut self.ears);
    }

    /// Does what the pool wants, and sees to it that the clock comes in time.
    fn end(&mut self) {
        self.drain();
        let next = if self.ears.has_news || self.state.is_tight || self.state.mux.has_failed() {
            self.next()
        } else {
            self.state.deadlines.earliest()
        };
        if let Some(next) = next {
            if self.state.alarm.is_none_or(|alarm| next < alarm) {
                self.state.alarm = Some(next);
                self.outside.ring = true;
            }
        }
        let comes_by = |next| self.state.alarm.is_some_and(|alarm| alarm <= next);
        debug_assert!(self.state.mux.poll_timeout().is_none_or(comes_by), "the clock comes in time");
    }

    /// When something is due next.
    fn next(&mut self) -> Option<Instant> {
        self.state.is_tight = self.state.mux.is_tight();
        [self.state.mux.poll_timeout(), self.state.deadlines.earliest()].into_iter().flatten().min()
    }

    fn drain(&mut self) {
        while let Some(action) = self.state.mux.poll_action(self.now) {
            match action {
                MuxAction::Wake(waiter) => {
                    let slot = self.state.queued.get(waiter.index() as usize).copied().unwrap_or(NONE);
                    if let Some(slot) = self.state.slots.get_mut(slot as usize) {
                        self.outside.wake(&mut slot.waker);
                    }
                }
                MuxAction::Establish(conn) => {
                    let place = conn.index() as usize;
                    if self.state.links.len() <= place {
                        self.state.links.resize_with(place + 1, || None);
                    }
                    let version = self.state.version_at(self.now);
                    let link = Link {
                        conn,
                        version,
                        out: Vec::new(),
                        unsent: Vec::new(),
                        taken: 0,
                        owners: Vec::new(),
                        task: None,
                    };
                    self.state.links[place] = Some(link);
                    self.outside.establish.push(conn);
                }
                MuxAction::Heartbeat(conn, stream) => self.ask(conn, stream),
                MuxAction::Close(conn) => self.close_link(conn),
            }
        }
    }

    /// Asks the peer whether it is there. What cannot be asked is not answered in time.
    fn ask(&mut self, conn: MuxConnId, stream: u16) {
        let Some(link) = link_of(&mut self.state.links, conn) else { return };
        let was_empty = link.out.is_empty();
        let outgoing = Outgoing::new(link.version, stream.cast_signed());
        let _ = Request::Options.encode(&mut link.out, outgoing, &self.state.limits);
        link.put_owner(stream, UNSENT);
        link.unsent.push(stream);
        if was_empty {
            self.outside.wake(&mut link.task);
        }
    }

    /// Tells a connection's task to close it, and those whose requests it has.
    fn close_link(&mut self, conn: MuxConnId) {
        if link_of(&mut self.state.links, conn).is_none() {
            return;
        }
        let Some(mut link) = self.state.links.get_mut(conn.index() as usize).and_then(Option::take) else { return };
        self.outside.wake(&mut link.task);
        let heard = self.ears.closed.iter().find(|(closed, _)| *closed == conn);
        let cause = heard.map_or(Cause::Closed, |(_, cause)| *cause);
        for owner in link.owners.into_iter().filter(|owner| *owner != NONE) {
            let Some(slot) = self.state.slots.get_mut(owner as usize) else { continue };
            let SlotState::Sent { stream, start } = core::mem::replace(&mut slot.state, SlotState::Free) else {
                continue;
            };
            slot.state = SlotState::Failed(Failure::Lost { cause, sent: start < link.taken });
            self.outside.wake(&mut slot.waker);
            self.state.deadlines.remove(owner);
            // With its connection its id is gone.
            let _ = self.state.mux.release(self.now, stream, Written::Perhaps, &mut self.ears);
        }
    }
}

/// A connection that the pool wants.
fn link_of(links: &mut [Option<Link>], conn: MuxConnId) -> Option<&mut Link> {
    links.get_mut(conn.index() as usize)?.as_mut().filter(|link| link.conn == conn)
}
