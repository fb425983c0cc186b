//! One host of a session: its pool, its requests, and the output of its connections, all under one
//! lock.
//!
//! Every change is made by a [`Change`], which holds the lock. Its [`Effects`] on other tasks
//! (tasks to wake, connections to establish) are collected under the lock and run after it is
//! released.
//!
//! A request has a *slot* while the pool queues it or it has a stream id, and until its future
//! takes the outcome. A connection, called a *link* here, maps stream ids to slots. Many requests of
//! one future are a [group], which also has a slot.

mod group;

use super::Reply;
use super::call::Body;
use super::failure::{Finding, LinkFailure};
use super::options::{CqlHost, LOWER_VERSION_FOR};
use crate::events::Events;
use crate::lock;
use alloc::boxed::Box;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::task::{Poll, Waker};
use group::{Group, Member};
use poolhouse_core::machine::{Observer, Stale};
use poolhouse_core::mux::{
    Acquire, AcquireError, HostState, Mux, MuxAction, MuxClaim, MuxClosed, MuxConfig, MuxConnId, MuxEvent, MuxId,
    MuxOnHeap, MuxWaiterId, Stream, Written,
};
use poolhouse_core::observe::{EventContext, Within, contain};
use poolhouse_core::storage::Heap;
use poolhouse_core::storage::deadlines::Deadlines;
use poolhouse_core::{Cause, Instant, Reason};
use poolhouse_cql::{CqlEncodeError, Limits, Outgoing, Request, Version};
use poolhouse_driver::{Publish as _, Tap, is_earlier, register};
use std::sync::{Mutex, PoisonError};

/// The value for "no slot".
const NONE: u32 = u32::MAX;
/// The value for "no slot, and the envelope with this stream id has not been sent". A reply on such
/// an id is a protocol error.
const UNSENT: u32 = u32::MAX - 1;
/// The maximum output of a connection in bytes. A connection with more output, because its peer
/// does not read, takes no more requests.
const OUT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The maximum number of deadlines that one call of [`Change::expire`] handles; that of a group
/// counts once. More would delay the other users of the host.
const EXPIRE_MAX: usize = 1024;

/// A host of a session.
pub(super) struct Host {
    pub(super) id: MuxId,
    pub(super) address: String,
    events: Events,
    /// Whether the server has accepted the connection of the last attempt.
    pub(super) is_accepted: AtomicBool,
    /// The number of attempts to connect.
    pub(super) dials: AtomicUsize,
    state: Mutex<State>,
}

/// When it is the turn of a connection to be established, in this order. A host without an open connection has one
/// attempt at a time: hosts that never answer cannot take the attempts of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is the first of a host that requests wait for.
    Awaited,
    /// It is the first of another host.
    First,
    /// Its host has an open one.
    Further,
    /// After the attempt of its host.
    Later,
}

struct State {
    mux: Mux<MuxOnHeap>,
    /// The version that new connections try first, unless `lowered` applies.
    version: Version,
    /// An older version that the server supports, and the time until which it is tried first.
    lowered: Option<(Version, Instant)>,
    /// The server's text, or the underlying error, of the last attempt to connect. `None` after a
    /// success.
    refusal: Option<String>,
    limits: Limits,
    /// The connections, by slot index of the pool.
    links: Vec<Option<Link>>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The slots of the requests in the pool's queue, by the waiter's slot index.
    queued: Vec<u32>,
    /// A lower bound of each slot's deadline. The bound of a request that has ended stays: it is
    /// correct for the next request in the slot, which usually has a later deadline. To remove and
    /// to insert it would be a fifth of a request's cost.
    deadlines: Deadlines<Heap<Instant>>,
    /// The latest time at which the keeper task wakes up and calls [`Change::expire`].
    armed: Option<Instant>,
    /// Whether a connection had no free stream id when the pool's timeout was last read. When an id
    /// becomes free, the pool's timeout may become earlier.
    is_tight: bool,
}

/// A connection, from [`MuxAction::Establish`] to [`MuxAction::Close`].
struct Link {
    conn: MuxConnId,
    version: Version,
    /// Envelopes that the connection's task has not taken yet.
    out: Vec<u8>,
    /// The stream ids of envelopes in `out` that have no slot: those of cancelled requests and of
    /// heartbeats.
    unsent: Vec<u16>,
    /// Number of bytes that the connection's task has taken from `out` so far.
    taken: u64,
    /// The slots of the requests in flight, by stream id.
    owners: Vec<u32>,
    /// The connection's task.
    task: Option<Waker>,
    /// Why it has failed, if it has.
    reason: Reason,
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

/// A request, from [`Change::begin`] until its outcome is taken; or a group.
#[derive(Default)]
struct Slot {
    state: SlotState,
    waker: Option<Waker>,
    deadline: Option<Instant>,
    /// Set if the request is one of a group. Then it has no waker, and its slot is free as soon as it
    /// has ended.
    member: Option<Member>,
    /// The outcome that the request's future has not taken.
    outcome: Option<Outcome>,
    /// Set if the slot is that of a group.
    group: Option<Box<Group>>,
}

#[derive(Default)]
enum SlotState {
    /// The slot is free, or that of a group, or its request has ended.
    #[default]
    Idle,
    Queued(MuxWaiterId),
    /// Its envelope is in the connection's output, or was sent.
    Sent {
        stream: Stream,
        /// Position of the envelope in the connection's output, in bytes from its beginning. The
        /// connection's task has taken the envelope if this is less than `Link::taken`.
        start: u64,
    },
}

/// How a request at a host ended.
pub(super) type Outcome = Result<Reply, Failure>;

/// Why a request has no answer from a host.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// The pool rejected it.
    Rejected(AcquireError),
    /// No connection is open, and the request does not wait for the first one.
    Connecting,
    Encode(CqlEncodeError),
    TimedOut {
        sent: bool,
    },
    Lost {
        cause: Cause,
        reason: Reason,
        sent: bool,
    },
}

/// Result of [`Host::take_output`].
pub(super) enum Output {
    /// The connection must be closed.
    Gone,
    Nothing,
    /// The output was moved to the task's buffer.
    Taken,
}

/// Effects of changes, which run after the lock is released.
#[derive(Default)]
pub(super) struct Effects {
    /// The first waker. Most changes have only one, which then needs no allocation.
    waker: Option<Waker>,
    wakers: Vec<Waker>,
    /// A waker to drop.
    pub(super) dropped: Option<Waker>,
    /// Connections to establish.
    pub(super) establish: Vec<(Arc<Host>, MuxConnId)>,
    /// Whether the keeper task must establish connections, or read the deadlines again.
    pub(super) wake_keeper: bool,
}

impl Effects {
    fn wake(&mut self, waker: &mut Option<Waker>) {
        let Some(waker) = waker.take() else { return };
        match &mut self.waker {
            first @ None => *first = Some(waker),
            Some(_) => self.wakers.push(waker),
        }
    }

    /// Wakes all tasks.
    #[inline]
    pub(super) fn wake_all(&mut self) {
        if let Some(first) = self.waker.take() {
            let mut wakers = core::iter::once(first).chain(self.wakers.drain(..));
            // The other tasks are woken even if a waker panics.
            while contain(|| wakers.by_ref().for_each(Waker::wake)).is_none() {}
        }
    }
}

/// Records why connections are closed, and forwards every event.
struct HostObserver<'a> {
    tap: Tap<'a, Events>,
    closed: Vec<(MuxConnId, Cause)>,
    /// Whether there was an event other than `StreamAcquired` and `ReplyReceived`. Only then may
    /// the pool's timeout be earlier than before.
    is_timeout_changed: bool,
}

impl Observer<MuxEvent> for HostObserver<'_> {
    #[inline(always)]
    fn on_event(&mut self, now: Instant, event: &MuxEvent) {
        self.on_event_in(now, event, &EventContext::NONE);
    }

    #[inline(always)]
    fn on_event_in(&mut self, now: Instant, event: &MuxEvent, context: &EventContext<'_>) {
        if !matches!(event, MuxEvent::StreamAcquired { .. } | MuxEvent::ReplyReceived { .. }) {
            self.is_timeout_changed = true;
        }
        if let MuxEvent::ConnectionClosed { conn, reason: MuxClosed::Error(cause), .. } = event {
            self.closed.push((*conn, *cause));
        }
        self.tap.on_event_in(now, event, context);
    }
}

impl Host {
    /// Creates a host. Its pool requests connections from the first change on.
    pub(super) fn new(
        now: Instant,
        id: MuxId,
        address: &CqlHost,
        config: MuxConfig,
        version: Version,
        limits: Limits,
        events: &Events,
    ) -> Self {
        let address = address.address.clone();
        let events = events.of_server(&address);
        let mut mux = Mux::new(now, id, config, &mut Tap::of_server(&events, &address));
        mux.keep_first_stream();
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
            armed: None,
            is_tight: false,
        };
        Self {
            id,
            address,
            events,
            is_accepted: AtomicBool::new(false),
            dials: AtomicUsize::new(0),
            state: Mutex::new(state),
        }
    }

    /// Sets the source of the random part of pauses between attempts to connect.
    pub(super) fn with_entropy(mut self, entropy: u32) -> Self {
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner).mux.set_entropy(entropy);
        self
    }

    /// Changes the host under its lock, and collects the effects. The caller runs them.
    pub(super) fn change<T>(
        self: &Arc<Self>,
        now: Instant,
        effects: &mut Effects,
        change: impl FnOnce(&mut Change<'_>) -> T,
    ) -> T {
        let tap = Tap::of_server(&self.events, &self.address);
        let observer = HostObserver { tap, closed: Vec::new(), is_timeout_changed: false };
        let mut state = lock(&self.state);
        let mut changed = Change { host: self, state: &mut state, now, observer, effects };
        let result = change(&mut changed);
        changed.collect_effects();
        result
    }

    /// Takes the outcome of a request, if it is available, and frees the slot. Needs no
    /// [`Change`], because the pool does not change.
    pub(super) fn outcome(&self, slot: u32) -> Option<Outcome> {
        let mut state = lock(&self.state);
        let outcome = state.slots.get_mut(slot as usize)?.outcome.take()?;
        // A request with an outcome has neither deadline nor waker.
        state.free.push(slot);
        Some(outcome)
    }

    /// Whether the pool still needs a connection. If so, `waker` is woken when that changes.
    pub(super) fn is_wanted(&self, conn: MuxConnId, waker: &Waker) -> bool {
        let mut waker = Some(waker.clone());
        let mut state = lock(&self.state);
        let Some(link) = link_of(&mut state.links, conn) else { return false };
        register(&mut link.task, &mut waker);
        true
    }

    /// Takes the whole output of a connection. `waker` is woken when there is more output, and when
    /// the connection must be closed.
    ///
    /// - `into`: receives the output; its content, which was sent before, is overwritten.
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

    /// Returns the instant at which the keeper task must call [`Change::expire`].
    pub(super) fn armed(&self) -> Option<Instant> {
        lock(&self.state).armed
    }

    /// Why no connection is open: the reason of the last attempt, or what this one waits for. `None` if one is.
    pub(super) fn absence(&self) -> Option<String> {
        let state = lock(&self.state);
        if state.mux.state().open > 0 {
            return None;
        }
        let waits_for = || match self.is_accepted.load(Ordering::Relaxed) {
            true => Finding::NoAnswer { limit: None }.to_string(),
            false => Finding::NotAccepted { limit: None }.to_string(),
        };
        Some(state.refusal.clone().unwrap_or_else(waits_for))
    }

    /// When it is the turn of this connection. `None` if the pool no longer needs it.
    pub(super) fn turn(&self, conn: MuxConnId) -> Option<Turn> {
        let mut state = lock(&self.state);
        link_of(&mut state.links, conn)?;
        let HostState { queued, open, .. } = state.mux.state();
        Some(match self.dials.load(Ordering::Acquire) {
            _ if open > 0 => Turn::Further,
            0 if queued > 0 => Turn::Awaited,
            0 => Turn::First,
            _ => Turn::Later,
        })
    }

    /// Passes the pool, the version that a new connection tries first, and the last refusal to
    /// `look`.
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

/// A change of a host, under its lock.
pub(super) struct Change<'a> {
    host: &'a Arc<Host>,
    state: &'a mut State,
    now: Instant,
    observer: HostObserver<'a>,
    effects: &'a mut Effects,
}

/// Operations of requests.
impl Change<'_> {
    /// Begins a request and returns its slot.
    ///
    /// - `waits`: whether it waits for the first connection.
    /// - `deadline`: of the whole request.
    /// - `waker`: cloned before the lock is taken, because cloning may run arbitrary code.
    ///
    /// # Errors
    ///
    /// [`Failure::Rejected`], [`Failure::Connecting`], [`Failure::Encode`]: the request has no slot.
    pub(super) fn begin(
        &mut self,
        body: &Body<'_>,
        waits: bool,
        deadline: Option<Instant>,
        waker: Waker,
    ) -> Result<u32, Failure> {
        let slot = match self.start(body, waits, deadline) {
            Ok(slot) => slot,
            Err(failure) => {
                self.effects.dropped = Some(waker);
                return Err(failure);
            }
        };
        self.state.slots[slot as usize].waker = Some(waker);
        self.put_deadline(slot, deadline);
        Ok(slot)
    }

    /// Sends a request, or enters the pool's queue. Returns its slot.
    ///
    /// - `waits`: whether it waits for the first connection.
    fn start(&mut self, body: &Body<'_>, waits: bool, deadline: Option<Instant>) -> Result<u32, Failure> {
        if !waits && self.state.mux.must_connect(self.now, &mut self.observer) {
            return Err(Failure::Connecting);
        }
        let acquired = self.state.mux.acquire(self.now, deadline, &mut self.observer).map_err(Failure::Rejected)?;
        let slot = self.take_slot();
        match acquired {
            Acquire::Granted(stream) => {
                if let Err(failure) = self.send(slot, stream, body) {
                    self.state.free.push(slot);
                    return Err(failure);
                }
            }
            Acquire::Queued(waiter) => {
                // Now it is the turn of this host's connection.
                self.effects.wake_keeper |= self.state.mux.state().open == 0;
                let place = waiter.index() as usize;
                if self.state.queued.len() <= place {
                    self.state.queued.resize(place + 1, NONE);
                }
                self.state.queued[place] = slot;
                self.state.slots[slot as usize].state = SlotState::Queued(waiter);
            }
        }
        Ok(slot)
    }

    fn take_slot(&mut self) -> u32 {
        self.state.free.pop().unwrap_or_else(|| {
            self.state.slots.push(Slot::default());
            // Slots are reused: there is at most one for each request until its outcome is taken.
            u32::try_from(self.state.slots.len() - 1).unwrap_or(NONE)
        })
    }

    #[inline]
    fn put_deadline(&mut self, slot: u32, deadline: Option<Instant>) {
        let State { slots, deadlines, .. } = &mut *self.state;
        slots[slot as usize].deadline = deadline;
        let Some(at) = deadline else { return };
        if deadlines.of(slot).is_none_or(|bound| bound > at) {
            deadlines.remove(slot);
            // If there is no memory for the entry, the request has no deadline here; the pool's
            // timeouts still end it.
            let _ = deadlines.insert(slot, at);
        }
    }

    /// [`Host::outcome`]; if there is none yet, stores the waker. If the pool has granted a stream
    /// id to a queued request, sends the request.
    ///
    /// - `waker`: as [`register`] takes it.
    pub(super) fn poll(&mut self, slot: u32, body: &Body<'_>, waker: &mut Option<Waker>) -> Poll<Outcome> {
        let Some(place) = self.state.slots.get_mut(slot as usize) else {
            return Poll::Ready(Err(Failure::Lost { cause: Cause::Closed, reason: Reason::NONE, sent: true }));
        };
        if let Some(outcome) = place.outcome.take() {
            self.free(slot);
            return Poll::Ready(outcome);
        }
        match core::mem::take(&mut place.state) {
            SlotState::Queued(waiter) => match self.state.mux.claim(self.now, waiter) {
                MuxClaim::Waiting => self.state.slots[slot as usize].state = SlotState::Queued(waiter),
                MuxClaim::Granted(stream) => {
                    if let Err(failure) = self.send(slot, stream, body) {
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
            state @ (SlotState::Sent { .. } | SlotState::Idle) => place.state = state,
        }
        register(&mut self.state.slots[slot as usize].waker, waker);
        Poll::Pending
    }

    /// Cancels a request after its future was dropped. Returns its outcome, if there was one: it may hold a
    /// foreign error, which is not dropped under the lock.
    pub(super) fn cancel(&mut self, slot: u32) -> Option<Outcome> {
        let place = self.state.slots.get_mut(slot as usize)?;
        let (state, outcome) = (core::mem::take(&mut place.state), place.outcome.take());
        self.release(state);
        self.free(slot);
        outcome
    }

    /// Returns the request's waiter or stream id to the pool. The result is whether bytes of the
    /// request were sent or will be sent.
    fn release(&mut self, state: SlotState) -> bool {
        match state {
            SlotState::Queued(waiter) => {
                self.state.mux.cancel(self.now, waiter, &mut self.observer);
                false
            }
            SlotState::Sent { stream, start } => {
                if let Some(link) = link_of(&mut self.state.links, stream.conn()) {
                    let sent = start < link.taken;
                    link.put_owner(stream.id(), if sent { NONE } else { UNSENT });
                    // The envelope is in the output between other envelopes, so it will be sent.
                    if !sent {
                        link.unsent.push(stream.id());
                    }
                }
                let foreign = self.state.mux.release(self.now, stream, Written::Perhaps, &mut self.observer);
                debug_assert!(foreign.is_ok(), "the stream is of this pool");
                true
            }
            SlotState::Idle => false,
        }
    }

    fn free(&mut self, slot: u32) {
        if let Some(place) = self.state.slots.get_mut(slot as usize) {
            (place.deadline, place.member, place.outcome) = (None, None, None);
            if let Some(waker) = place.waker.take() {
                self.effects.dropped = Some(waker);
            }
        }
        self.state.free.push(slot);
    }

    /// Passes the outcome of a request to its future, and wakes its task. The slot is idle.
    fn end(&mut self, slot: u32, outcome: Outcome) {
        let Some(ended) = self.state.slots.get_mut(slot as usize) else { return };
        debug_assert!(matches!(ended.state, SlotState::Idle), "its stream id or waiter was returned");
        ended.deadline = None;
        if let Some(member) = ended.member.take() {
            self.state.free.push(slot);
            self.end_member(member, outcome);
        } else {
            ended.outcome = Some(outcome);
            self.effects.wake(&mut ended.waker);
        }
    }

    /// Ends a request that has passed its deadline.
    fn time_out(&mut self, slot: u32) {
        let Some(place) = self.state.slots.get_mut(slot as usize) else { return };
        let state = core::mem::take(&mut place.state);
        let sent = self.release(state);
        self.end(slot, Err(Failure::TimedOut { sent }));
    }

    /// Appends a request to the output of its connection.
    fn send(&mut self, slot: u32, stream: Stream, body: &Body<'_>) -> Result<(), Failure> {
        let State { links, slots, mux, limits, .. } = &mut *self.state;
        let Some(link) = link_of(links, stream.conn()) else {
            // The stream id was granted, and the connection failed before the claim.
            let _ = mux.release(self.now, stream, Written::No, &mut self.observer);
            return Err(Failure::Lost { cause: Cause::Closed, reason: Reason::NONE, sent: false });
        };
        if link.out.len() > OUT_BYTES_MAX {
            let _ = mux.release(self.now, stream, Written::No, &mut self.observer);
            let HostState { in_flight, queued, .. } = mux.state();
            let queue_max = mux.config().options().max_queue_size;
            return Err(Failure::Rejected(AcquireError::Busy { in_flight, queued, queue_max }));
        }
        let was_empty = link.out.is_empty();
        let start = link.taken + link.out.len() as u64;
        if let Err(error) = body.encode(&mut link.out, link.version, stream.id(), limits) {
            let _ = mux.release(self.now, stream, Written::No, &mut self.observer);
            return Err(Failure::Encode(error));
        }
        if was_empty {
            self.effects.wake(&mut link.task);
        }
        link.put_owner(stream.id(), slot);
        slots[slot as usize].state = SlotState::Sent { stream, start };
        Ok(())
    }
}

/// Operations of connections' tasks.
impl Change<'_> {
    /// Records that the server refused newer versions: this version is tried first for
    /// [`LOWER_VERSION_FOR`].
    pub(super) fn lower(&mut self, version: Version) {
        if version < self.state.version_at(self.now) {
            self.state.lowered = Some((version, self.now.saturating_add(LOWER_VERSION_FOR)));
        }
    }

    /// Stores the server's text, or the underlying error, of an attempt to connect that failed, unless
    /// the pool has abandoned it.
    pub(super) fn refused(&mut self, conn: MuxConnId, refusal: Option<String>) {
        if link_of(&mut self.state.links, conn).is_some() {
            self.state.refusal = refusal;
        }
    }

    /// Records that the connection is established. Fails if the pool has closed it.
    pub(super) fn established(&mut self, conn: MuxConnId, version: Version) -> Result<(), Stale> {
        self.state.refusal = None;
        if let Some(link) = link_of(&mut self.state.links, conn) {
            link.version = version;
        }
        self.state.mux.handle_established(self.now, conn, &mut self.observer)
    }

    /// Records that the connection failed, or was not established.
    pub(super) fn failed(&mut self, conn: MuxConnId, failure: &LinkFailure) {
        let LinkFailure { cause, reason } = failure;
        if let Some(link) = link_of(&mut self.state.links, conn) {
            link.reason = reason.clone();
        }
        let mut observer = Within::new(&mut self.observer, EventContext::NONE.with_reason(reason));
        let establishing = self.state.mux.handle_establish_failed(self.now, conn, *cause, &mut observer);
        if establishing.is_err() {
            // If the connection was not being established either, the pool has already closed it.
            let _ = self.state.mux.handle_failed(self.now, conn, *cause, &mut observer);
        }
    }

    /// Passes received replies to their requests. A reply that no request waits for, or that
    /// arrives before its request was sent, closes the connection: another request may wait in vain.
    /// Cassandra 5.0 sends such replies: when requests have waited in its queue for too long, the errors
    /// for them have stream 0, which therefore no request has.
    pub(super) fn dispatch(&mut self, conn: MuxConnId, replies: &mut Vec<Reply>) {
        // If the connection is already closed, the loop below finds no link.
        let _ = self.state.mux.handle_received(self.now, conn);
        for reply in replies.drain(..) {
            let stream = reply.header.stream;
            let State { links, slots, mux, .. } = &mut *self.state;
            let Some(link) = link_of(links, conn) else { return };
            let owner = usize::try_from(stream).ok().and_then(|id| link.owners.get_mut(id));
            let slot = owner.as_ref().and_then(|slot| slots.get_mut(**slot as usize));
            let sent = match slot.as_deref() {
                Some(Slot { state: SlotState::Sent { start, .. }, .. }) => *start < link.taken,
                _ => owner.as_ref().is_none_or(|owner| **owner != UNSENT),
            };
            if !sent {
                link.reason = Finding::unexpected(&reply).into();
                let _ = mux.handle_failed(self.now, conn, Cause::Protocol, &mut self.observer);
                return;
            }
            match mux.handle_reply(self.now, conn, stream.into(), &mut self.observer) {
                Ok(poolhouse_core::mux::Reply::Request) => {}
                Ok(poolhouse_core::mux::Reply::Late | poolhouse_core::mux::Reply::Heartbeat) => continue,
                Err(_) => {
                    link.reason = Finding::unexpected(&reply).into();
                    return;
                }
            }
            let (Some(owner), Some(slot)) = (owner, slot) else {
                // The stream id was granted, but its request has not been written, so no reply can
                // be expected.
                link.reason = Finding::unexpected(&reply).into();
                let _ = mux.handle_failed(self.now, conn, Cause::Protocol, &mut self.observer);
                return;
            };
            if let SlotState::Sent { stream, .. } = core::mem::take(&mut slot.state) {
                let foreign = mux.release(self.now, stream, Written::Perhaps, &mut self.observer);
                debug_assert!(foreign.is_ok(), "the stream is of this pool");
            }
            let slot = core::mem::replace(owner, NONE);
            self.end(slot, Ok(reply));
        }
    }
}

/// Operations of the session.
impl Change<'_> {
    /// Fails the requests that have passed their deadline, and handles the pool's timeout. Returns
    /// the next deadline, which has passed if more than [`EXPIRE_MAX`] were due.
    pub(super) fn expire(&mut self) -> Option<Instant> {
        for _ in 0..EXPIRE_MAX {
            if self.state.deadlines.earliest().is_none_or(|at| at > self.now) {
                break;
            }
            let Some(slot) = self.state.deadlines.first() else { break };
            self.state.deadlines.remove(slot);
            match self.state.slots.get(slot as usize).and_then(|slot| slot.deadline) {
                Some(at) if at > self.now => self.put_deadline(slot, Some(at)),
                Some(_) if !self.time_out_group(slot) => self.time_out(slot),
                Some(_) | None => {}
            }
        }
        self.state.mux.handle_timeout(self.now, &mut self.observer);
        self.execute_actions();
        self.state.armed = self.timeout();
        self.state.armed
    }

    pub(super) fn reconfigure(&mut self, config: MuxConfig) {
        if *self.state.mux.config() != config {
            self.state.mux.reconfigure(self.now, config, &mut self.observer);
        }
    }

    /// Handles a report that the host accepts connections.
    pub(super) fn handle_host_up(&mut self) {
        self.state.mux.handle_host_up(self.now, &mut self.observer);
    }

    /// Replaces all connections: no request that begins from now on uses one that exists.
    pub(super) fn replace_connections(&mut self) {
        self.state.mux.replace_connections(self.now, &mut self.observer);
    }

    pub(super) fn close(&mut self) {
        self.state.mux.close(self.now, &mut self.observer);
    }

    /// Collects the effects of the pool's actions. The keeper task is woken if it sleeps beyond the
    /// next deadline.
    fn collect_effects(&mut self) {
        self.execute_actions();
        let next = if self.observer.is_timeout_changed || self.state.is_tight || self.state.mux.has_failed() {
            self.timeout()
        } else {
            self.state.deadlines.earliest()
        };
        if is_earlier(next, self.state.armed) {
            self.state.armed = next;
            self.effects.wake_keeper = true;
        }
        debug_assert!(!is_earlier(self.state.mux.poll_timeout(), self.state.armed), "the keeper is woken in time");
    }

    /// Returns the next deadline of the pool and of its requests.
    fn timeout(&mut self) -> Option<Instant> {
        self.state.is_tight = self.state.mux.is_tight();
        [self.state.mux.poll_timeout(), self.state.deadlines.earliest()].into_iter().flatten().min()
    }

    fn execute_actions(&mut self) {
        while let Some(action) = self.state.mux.poll_action(self.now) {
            match action {
                MuxAction::Wake(waiter) => {
                    let slot = self.state.queued.get(waiter.index() as usize).copied().unwrap_or(NONE);
                    let Some(waiting) = self.state.slots.get_mut(slot as usize) else { continue };
                    match waiting.member {
                        Some(member) => self.grant_member(member, slot),
                        None => self.effects.wake(&mut waiting.waker),
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
                        reason: Reason::NONE,
                    };
                    self.state.links[place] = Some(link);
                    self.effects.establish.push((Arc::clone(self.host), conn));
                    self.effects.wake_keeper = true;
                }
                MuxAction::Heartbeat(conn, stream) => self.send_heartbeat(conn, stream),
                MuxAction::Close(conn) => self.close_link(conn),
            }
        }
    }

    /// Sends a heartbeat. If it cannot be encoded, the heartbeat timeout closes the connection.
    fn send_heartbeat(&mut self, conn: MuxConnId, stream: u16) {
        let Some(link) = link_of(&mut self.state.links, conn) else { return };
        let was_empty = link.out.is_empty();
        let outgoing = Outgoing::new(link.version, stream.cast_signed());
        let _ = Request::Options.encode(&mut link.out, outgoing, &self.state.limits);
        link.put_owner(stream, UNSENT);
        link.unsent.push(stream);
        if was_empty {
            self.effects.wake(&mut link.task);
        }
    }

    /// Wakes a connection's task to close it, and fails the requests in flight on it.
    fn close_link(&mut self, conn: MuxConnId) {
        if link_of(&mut self.state.links, conn).is_none() {
            return;
        }
        let Some(mut link) = self.state.links.get_mut(conn.index() as usize).and_then(Option::take) else { return };
        self.effects.wake(&mut link.task);
        let reason = self.observer.closed.iter().find(|(closed, _)| *closed == conn);
        let cause = reason.map_or(Cause::Closed, |(_, cause)| *cause);
        for owner in link.owners.into_iter().filter(|owner| *owner != NONE) {
            let Some(slot) = self.state.slots.get_mut(owner as usize) else { continue };
            let SlotState::Sent { stream, start } = core::mem::take(&mut slot.state) else {
                continue;
            };
            let reason = link.reason.clone();
            self.end(owner, Err(Failure::Lost { cause, reason, sent: start < link.taken }));
            // The stream id is no longer valid after the close of its connection.
            let _ = self.state.mux.release(self.now, stream, Written::Perhaps, &mut self.observer);
        }
    }
}

/// Returns the link of a connection, unless the pool has closed it.
fn link_of(links: &mut [Option<Link>], conn: MuxConnId) -> Option<&mut Link> {
    links.get_mut(conn.index() as usize)?.as_mut().filter(|link| link.conn == conn)
}
