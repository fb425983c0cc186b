//! State that all handles of a client share: the view of the deployment, its servers, and the tasks
//! that wait for either.
//!
//! Lock order: the client core's lock, then a server's. [`ClientCore::step`] changes the control
//! machine and, under the same lock, the pools that it commands, so no task sees a description
//! without its consequence for the pools. Tasks are woken, and wakers, sockets and servers dropped,
//! after the lock is released.
//!
//! Effects are not queued: [`State::effect`] finds them again under the lock, and looks only at
//! servers that a step has touched.

use super::driven::{Drive, is_earlier};
use super::error::OperationError;
use super::event::{Publish, Tap};
#[cfg(feature = "alloc")]
use super::failure::Misfit;
use super::guard::{CheckingOut, Guard};
#[cfg(feature = "auth")]
use super::login::Keys;
use super::login::Login;
use super::runtime::{Lock, Locked, Runtime, register};
use super::select::{SelectionRequest, WakerSlot, Window};
use super::server::{PoolSnapshot, Server};
use super::task::{ServerTask, workers_of};
use super::task_guard::TaskGuard;
use core::fmt;
use core::future::{pending, poll_fn};
use core::ops::Range;
use core::pin::pin;
#[cfg(feature = "alloc")]
use core::sync::atomic::{AtomicU32, Ordering};
use core::task::{Poll, Waker};
use core::time::Duration;
use poolhouse_core::control::{Control, ControlAction, widen};
use poolhouse_core::monitor::{MonitorConfig, MonitorConnKind};
use poolhouse_core::pool::{PoolConfig, PoolId};
use poolhouse_core::selection::Candidate as _;
use poolhouse_core::storage::{Full, Store};
use poolhouse_core::topology::{self, TopologyConfig, TopologyId, TopologyType};
use poolhouse_core::{Instant, ServerId, ServerType};
use poolhouse_wire::compress::Compressors;
use poolhouse_wire::hello::{ClientMetadata, ServerApi};

/// Configuration of a client.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    /// The options of every pool at the start; [`ClientCore::reconfigure_pools`] changes them.
    pub pool: PoolConfig,
    /// The options of every monitor.
    pub monitor: MonitorConfig,
    /// `connectTimeoutMS`: how long an application's connection may take to be established, from
    /// dialing to the end of its handshake; `None` is no limit.
    pub connect_timeout: Option<Duration>,
    /// `timeoutMS`, or `socketTimeoutMS` if that is not set: how long each command of such a
    /// handshake may take, within `connect_timeout`; `None` is no limit. While an
    /// operation with a later deadline waits for the connection, that deadline applies instead.
    pub command_timeout: Option<Duration>,
    /// `serverSelectionTimeoutMS`: how long an operation waits for a suitable server; if the
    /// operation has a deadline, for its connection too ([`ClientCore::check_out_limit`]).
    pub server_selection_timeout: Duration,
    /// `compressors`: the compressors that application connections offer, in order of preference.
    /// Those that are not compiled in are left out. Monitor connections do not compress.
    pub compressors: Compressors,
    /// `zlibCompressionLevel`, 0 to 9; `None` is zlib's default.
    pub zlib_compression_level: Option<u32>,
    /// How long the reply to an operation that timed out or was cancelled is awaited in the
    /// background, to reuse its connection; with zero the connection is closed at once. At most 64
    /// such replies are awaited for each server. See [`DRAIN_TIMEOUT`]. Only with feature `alloc`.
    pub drain_timeout: Duration,
    /// The client's metadata in hello. With feature `alloc`, `ClientCore::set_metadata` changes it.
    pub metadata: ClientMetadata,
    /// The Stable API, for the commands of handshakes and monitors. If it is set,
    /// [`MonitorOptions::server_api`](poolhouse_core::monitor::MonitorOptions::server_api) must be too.
    pub server_api: Option<ServerApi<'static>>,
    /// How application connections authenticate; `None` is no authentication.
    pub login: Option<Login>,
    /// The number of the client and of its topology; unique in the process. It is the upper half of
    /// the ids of its pools ([`PoolId`]); their lower halves are consecutive.
    pub client: u32,
}

/// The default of [`CoreConfig::drain_timeout`]: 1 s.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The client core: the state that all handles of a client share.
pub struct ClientCore<R: Runtime> {
    runtime: R,
    config: CoreConfig,
    events: R::Events,
    #[cfg(feature = "auth")]
    keys: Keys<R>,
    pub(super) state: R::Lock<State<R>>,
    /// `logicalSessionTimeoutMinutes` of the deployment, outside of the lock: sessions are taken and
    /// returned without it.
    #[cfg(feature = "alloc")]
    session_minutes: AtomicU32,
}

/// The state behind the lock of a client core.
pub(super) struct State<R: Runtime> {
    pub(super) control: Control<R::Topology>,
    pub(super) servers: <R::Topology as topology::Memory>::PerServer<Option<Entry<R>>>,
    /// Indices of the server slots that may have effects.
    dirty: Range<usize>,
    /// Tasks that wait for a suitable server.
    pub(super) selectors: <R::Memory as poolhouse_core::pool::Memory>::PerWaiter<WakerSlot>,
    /// No selector slot below this index is free.
    pub(super) selectors_taken: usize,
    /// The index of the next selector to wake; `None` when all were woken.
    pub(super) wake_selectors: Option<usize>,
    /// The latency windows of writes and reads of the primary, and of other reads.
    pub(super) windows: [Window<R>; 2],
    /// Wakers of tasks that wait in [`ClientCore::next_server`]. Bounded by the maximum number of
    /// servers; further tasks are never woken.
    pub(super) starters: <R::Topology as topology::Memory>::PerServer<WakerSlot>,
    clock: Option<Waker>,
    armed: Option<Instant>,
    pub(super) next_pool: u32,
    /// The topology has a server that found no slot. It is added once a slot is free.
    pub(super) unplaced: bool,
    /// The last server that does not belong to the deployment.
    #[cfg(feature = "alloc")]
    pub(super) misfit: Option<Misfit>,
    /// The client's metadata, if it was changed.
    #[cfg(feature = "alloc")]
    pub(super) metadata: Option<alloc::sync::Arc<ClientMetadata>>,
    /// The options of every pool.
    pool: PoolConfig,
    pub(super) closed: bool,
    /// It was opened before.
    opened: bool,
    /// The client was closed because a task was dropped.
    pub(super) abandoned: bool,
    /// In the child of a fork: all pools were cleared.
    pub(super) forked: bool,
}

/// No timeout, in [`ClientCore`]'s `session_minutes`.
#[cfg(feature = "alloc")]
const NO_SESSION_TIMEOUT: u32 = u32::MAX;

/// A server and the wakers of its monitor's tasks.
pub(super) struct Entry<R: Runtime> {
    pub(super) id: ServerId,
    pub(super) server: R::ServerHandle,
    /// [`ClientCore::next_server`] must return the server: some of its tasks were not started yet.
    pub(super) fresh: bool,
    /// Whether its monitor and clock tasks were started.
    started: bool,
    /// The number of workers that were started.
    workers: u32,
    /// Its pool was changed and may have effects.
    unsettled: bool,
    pub(super) check: Option<Waker>,
    pub(super) rtt: Option<Waker>,
}

/// An effect of a change, which runs after the lock is released.
enum Effect<R: Runtime> {
    Wake(Waker),
    Settle(R::ServerHandle),
    Drop(Entry<R>),
}

impl<R: Runtime> Effect<R> {
    fn run(self) {
        match self {
            Self::Wake(waker) => waker.wake(),
            Self::Settle(server) => server.settle(),
            Self::Drop(entry) => drop(entry),
        }
    }
}

impl<R: Runtime> State<R> {
    /// Executes the actions of the control machine, including the commands to pools.
    fn execute_actions(&mut self, core: &ClientCore<R>, now: Instant) {
        let unplaced = core::mem::take(&mut self.unplaced);
        for place in self.control.take_touched() {
            widen(&mut self.dirty, place);
            #[cfg(feature = "alloc")]
            if let Some(Some(entry)) = self.servers.slots().get(place) {
                let description = self.control.topology().server(entry.id);
                entry.server.note_round_trip(description.and_then(|known| known.min_round_trip_time()));
            }
        }
        while let Some(action) = self.control.poll_action() {
            match action {
                ControlAction::ServerAdded(id) => self.add_server(core, now, id),
                ControlAction::ServerRemoved(id) => self.command(id, |server| server.close(now)),
                ControlAction::Pool(id, command) => self.command(id, |server| server.command(now, command)),
                ControlAction::WakeSelectors => {
                    self.wake_selectors = Some(0);
                    // Each change of the description emits this action.
                    self.windows.iter_mut().for_each(Window::forget);
                    #[cfg(feature = "alloc")]
                    {
                        let minutes = self.control.topology().description().logical_session_timeout_minutes();
                        let minutes = minutes.and_then(|minutes| u32::try_from(minutes).ok());
                        core.session_minutes.store(minutes.unwrap_or(NO_SESSION_TIMEOUT), Ordering::Relaxed);
                    }
                }
            }
        }
        // Last: all servers that the loop added have their entries now, so none is added twice.
        if unplaced {
            self.add_unplaced(core, now);
        }
    }

    /// Changes the pool of a server and marks its effects as pending.
    pub(super) fn command(&mut self, id: ServerId, change: impl FnOnce(&Server<R>)) {
        let Some(entry) = self.entry(id) else { return };
        change(&entry.server);
        entry.unsettled = true;
        widen(&mut self.dirty, id.index() as usize);
    }

    /// Adds the servers that found no slot earlier. Cold: with a heap, every server has a slot.
    #[cold]
    fn add_unplaced(&mut self, core: &ClientCore<R>, now: Instant) {
        let mut ids: <R::Topology as topology::Memory>::PerServer<ServerId> = Store::empty();
        for server in self.control.topology().servers() {
            let placed = self.servers.slots().iter().flatten().any(|entry| entry.id == server.id());
            if !placed && ids.try_push(server.id()).is_err() {
                self.unplaced = true;
            }
        }
        for id in ids.slots() {
            self.add_server(core, now, *id);
        }
    }

    fn add_server(&mut self, core: &ClientCore<R>, now: Instant, id: ServerId) {
        let Some(Ok(address)) = self.control.topology().address(id).map(R::Text::try_from) else { return };
        if !core.runtime.has_slot() {
            self.unplaced = true;
            return;
        }
        // A number repeats only after 2^32 servers.
        let pool = PoolId::new(u64::from(core.config.client) << 32 | u64::from(self.next_pool));
        self.next_pool = self.next_pool.wrapping_add(1);
        let events = core.events.of_server(address.as_ref());
        let server = Server::create(now, id, pool, address, self.pool, events);
        let Ok(server) = core.runtime.share_server(server) else {
            self.unplaced = true;
            return;
        };
        let entry =
            Entry { id, server, fresh: true, started: false, workers: 0, unsettled: true, check: None, rtt: None };
        let index = id.index() as usize;
        while self.servers.slots().len() <= index {
            if self.servers.try_push(None).is_err() {
                return;
            }
        }
        if let Some(place) = self.servers.slots_mut().get_mut(index) {
            // The topology reuses a slot only after the removal of its former server was polled,
            // and each change that can add servers goes through `ClientCore::step`, which first
            // runs the effects of that removal.
            assert!(place.is_none(), "a server that is gone has left its place before another comes");
            *place = Some(entry);
            widen(&mut self.dirty, index);
        }
    }

    pub(super) fn entry(&mut self, id: ServerId) -> Option<&mut Entry<R>> {
        self.servers.slots_mut().get_mut(id.index() as usize)?.as_mut().filter(|entry| entry.id == id)
    }

    /// Returns the next effect of the changes so far.
    fn effect(&mut self) -> Option<Effect<R>> {
        while !self.dirty.is_empty() {
            let effect = self.server_effect(self.dirty.start);
            if effect.is_some() {
                return effect;
            }
            self.dirty.start += 1;
        }
        while let Some(place) = self.wake_selectors {
            let Some(selector) = self.selectors.slots_mut().get_mut(place) else {
                self.wake_selectors = None;
                break;
            };
            self.wake_selectors = Some(place + 1);
            if let Some(waker) = selector.take_waiting() {
                return Some(Effect::Wake(waker));
            }
        }
        if self.has_ended() {
            return self.take_starter().or_else(|| self.clock.take()).map(Effect::Wake);
        }
        if self.clock.is_some() && is_earlier(self.control.poll_timeout(), self.armed) {
            return self.clock.take().map(Effect::Wake);
        }
        None
    }

    /// Returns the next effect for the server in this slot.
    fn server_effect(&mut self, place: usize) -> Option<Effect<R>> {
        let slot = self.servers.slots_mut().get_mut(place)?;
        let entry = slot.as_mut()?;
        if core::mem::take(&mut entry.unsettled) {
            return Some(Effect::Settle(entry.server.clone()));
        }
        let ended = self.control.is_ended(entry.id);
        if ended || self.control.owes_conn(entry.id, MonitorConnKind::Check) {
            if let Some(waker) = entry.check.take() {
                return Some(Effect::Wake(waker));
            }
        }
        if ended || self.control.owes_conn(entry.id, MonitorConnKind::Rtt) {
            if let Some(waker) = entry.rtt.take() {
                return Some(Effect::Wake(waker));
            }
        }
        if ended {
            // Also drops servers that were removed before their tasks started; the slot may be
            // needed.
            return slot.take().map(Effect::Drop);
        }
        // Wakes all tasks that wait in `next_server`, because each may be dropped before it polls.
        // A task that finds no server registers its waker again.
        if entry.fresh { self.take_starter().map(Effect::Wake) } else { None }
    }
}

impl<R: Runtime> ClientCore<R> {
    /// Creates the client core for these seeds. No I/O is performed before its tasks run.
    ///
    /// # Errors
    ///
    /// [`Full`]: no capacity for the seeds.
    ///
    /// Source: SDAM, "Initial TopologyType" and "Client construction".
    pub fn new(runtime: R, config: CoreConfig, topology: TopologyConfig<'_>, events: R::Events) -> Result<Self, Full> {
        let core = Self::vacant(runtime, config, events);
        core.open(topology)?;
        Ok(core)
    }

    /// Creates a closed client core without a deployment. It is large: a host can move it to its final
    /// location before it calls [`open`](Self::open).
    #[inline]
    pub fn vacant(runtime: R, config: CoreConfig, events: R::Events) -> Self {
        let state = State {
            control: Control::vacant(config.monitor),
            servers: Store::empty(),
            dirty: 0..0,
            selectors: Store::empty(),
            selectors_taken: 0,
            wake_selectors: None,
            windows: [Window::new(), Window::new()],
            starters: Store::empty(),
            clock: None,
            armed: None,
            #[cfg(feature = "alloc")]
            misfit: None,
            #[cfg(feature = "alloc")]
            metadata: None,
            pool: config.pool,
            next_pool: 0,
            unplaced: false,
            closed: true,
            opened: false,
            abandoned: false,
            forked: false,
        };
        Self {
            runtime,
            config,
            events,
            #[cfg(feature = "auth")]
            keys: Keys::<R>::new(poolhouse_auth::KeyRing::new()),
            state: R::Lock::new(state),
            #[cfg(feature = "alloc")]
            session_minutes: AtomicU32::new(NO_SESSION_TIMEOUT),
        }
    }

    /// Opens a vacant client core for these seeds, or, with [`Runtime::REOPENS`], a closed one: its tasks
    /// continue with new servers. An operation that was not polled since the close waits for these servers.
    /// [`ClientCore::new`] is [`ClientCore::vacant`] and this. Nothing happens if the client core is open, or
    /// closed without `REOPENS`, or because a task was dropped.
    ///
    /// # Errors
    ///
    /// [`Full`]: no capacity for the seeds. The client core cannot be used then.
    pub fn open(&self, topology: TopologyConfig<'_>) -> Result<(), Full> {
        // Ends the servers of the closed deployment: the new ones take their places.
        self.step(|_, _, _| ());
        let (now, id) = (self.now(), TopologyId::new(self.config.client));
        self.state.with(|state| {
            if !state.closed || state.abandoned || (state.opened && !R::REOPENS) {
                return Ok(());
            }
            state.control.open(now, id, topology, &mut Tap::new(&self.events))?;
            (state.opened, state.closed) = (true, false);
            Ok(())
        })?;
        self.step(|_, _, _| ());
        Ok(())
    }

    /// The runtime.
    pub const fn runtime(&self) -> &R {
        &self.runtime
    }

    /// The configuration.
    pub const fn config(&self) -> &CoreConfig {
        &self.config
    }

    /// Derived keys that the connections share.
    #[cfg(feature = "auth")]
    pub(super) const fn keys(&self) -> &Keys<R> {
        &self.keys
    }

    /// How long the servers keep a session that is not used: the least `logicalSessionTimeoutMinutes` of
    /// those that hold data now. `None` if none of them is known, if one of them has no timeout, or
    /// behind a load balancer.
    ///
    /// Cost: reads an atomic.
    ///
    /// Source: Driver Sessions, "Driver responsibilities"; SDAM, "logicalSessionTimeoutMinutes".
    #[cfg(feature = "alloc")]
    pub fn session_timeout(&self) -> Option<Duration> {
        let minutes = self.session_minutes.load(Ordering::Relaxed);
        (minutes != NO_SESSION_TIMEOUT).then(|| Duration::from_secs(60 * u64::from(minutes)))
    }

    /// The publisher of events.
    pub const fn events(&self) -> &R::Events {
        &self.events
    }

    pub(super) fn now(&self) -> Instant {
        self.runtime.now()
    }

    /// Sleeps until an instant; for ever if `None`.
    pub(super) async fn sleep_until(&self, at: Option<Instant>) {
        match at {
            Some(at) => self.runtime.sleep_until(at).await,
            None => pending().await,
        }
    }

    /// Changes the state and executes the actions of the control machine under the lock, then runs
    /// the effects without the lock.
    ///
    /// First runs pending effects of earlier steps: a server that is added may take the slot of a
    /// removed one, and the tasks and waiters of that must be woken before.
    pub(super) fn step<T>(&self, change: impl FnOnce(&mut State<R>, Instant, &mut Tap<'_, R::Events>) -> T) -> T {
        let mut change = Some(change);
        loop {
            let (result, effect) = self.state.with(|state| match (state.effect(), change.take()) {
                (None, Some(change)) => {
                    let now = self.now();
                    let result = change(state, now, &mut Tap::new(&self.events));
                    state.execute_actions(self, now);
                    (Some(result), state.effect())
                }
                (effect, kept) => {
                    change = kept;
                    (None, effect)
                }
            });
            self.run_effects(effect);
            if let Some(result) = result {
                return result;
            }
        }
    }

    /// Runs effects without the lock, until none is left.
    fn run_effects(&self, mut effect: Option<Effect<R>>) {
        while let Some(due) = effect {
            // Wakers and sockets run foreign code: a panic there must not lose the result of the
            // step.
            let _ = R::contain(|| due.run());
            effect = self.state.with(State::effect);
        }
        self.events.deliver();
    }

    /// Returns the time limit for server selection and check-out together, for an attempt that
    /// begins now: `serverSelectionTimeoutMS` from now, or the operation's deadline if that is
    /// earlier. `None` if the operation has no deadline: then `serverSelectionTimeoutMS` bounds the
    /// selection, and `waitQueueTimeoutMS` the wait for a connection.
    ///
    /// - `deadline`: the operation's own, for all its attempts.
    ///
    /// Source: Client Side Operations Timeout, "Server Selection".
    pub fn check_out_limit(&self, deadline: Option<Instant>) -> Option<Instant> {
        deadline.and_then(|_| self.limit_at(self.now(), deadline))
    }

    /// [`ClientCore::check_out_limit`] of an attempt that begins at `now`.
    fn limit_at(&self, now: Instant, deadline: Option<Instant>) -> Option<Instant> {
        deadline.map(|at| at.min(now.saturating_add(self.config.server_selection_timeout)))
    }

    /// Selects a server and checks a connection out of its pool.
    ///
    /// - `request`: the operation's requirements for the server.
    /// - `deadline`: the operation's own. Selection and check-out end at
    ///   [`ClientCore::check_out_limit`] at the latest; commands under the guard end at the
    ///   deadline itself.
    ///
    /// # Errors
    ///
    /// [`OperationError::ServerSelection`], [`OperationError::CheckOut`],
    /// [`OperationError::Authentication`], [`OperationError::Closed`],
    /// [`OperationError::Abandoned`].
    pub async fn check_out(
        &self,
        request: &SelectionRequest<'_>,
        deadline: Option<Instant>,
    ) -> Result<Guard<'_, R>, OperationError> {
        let Some(server) = self.suitable_server(request, self.observes_selections())? else {
            let limit = self.check_out_limit(deadline);
            let server = self.wait_for_server(&mut self.operation(), request, limit).await?;
            return CheckingOut::new(self, server, limit, deadline).await;
        };
        let mut checking_out = CheckingOut::new(self, server, None, deadline);
        // Most check-outs end here.
        match checking_out.begin(|now| self.limit_at(now, deadline)) {
            Some(outcome) => outcome,
            None => {
                checking_out.limit = self.check_out_limit(deadline);
                checking_out.await
            }
        }
    }

    /// Checks a connection out of the pool of a selected server.
    ///
    /// - `limit`: the time limit for waiting and establishing: the [`ClientCore::check_out_limit`]
    ///   that also bounded the selection. With `None`, `waitQueueTimeoutMS` bounds the wait.
    /// - `deadline`: for the operations under the guard.
    ///
    /// # Errors
    ///
    /// [`OperationError::CheckOut`], [`OperationError::Authentication`],
    /// [`OperationError::Abandoned`].
    pub const fn check_out_of(
        &self,
        server: R::ServerHandle,
        limit: Option<Instant>,
        deadline: Option<Instant>,
    ) -> CheckingOut<'_, R> {
        CheckingOut::new(self, server, limit, deadline)
    }

    /// Calls `visit` with each server, its description and its pool.
    ///
    /// All descriptions are of the same instant. The counts of each pool are consistent, but pools
    /// are read one after the other, so a later pool may count an operation that an earlier one has
    /// counted. `visit` is called without a lock and may call the client. Servers for which there
    /// is no memory are skipped.
    ///
    /// Cost: O(servers); with growable memory one allocation.
    pub fn for_each_server(&self, mut visit: impl FnMut(ServerSnapshot<'_>)) {
        let mut seen: <R::Topology as topology::Memory>::PerServer<Option<Seen<R>>> = Store::empty();
        self.look(|state| {
            let State { control, servers, .. } = state;
            for entry in servers.slots().iter().flatten() {
                let Some(description) = control.topology().server(entry.id) else { continue };
                let pushed = seen.try_push(Some(Seen {
                    server: entry.server.clone(),
                    server_type: description.server_type(),
                    round_trip_average: description.round_trip_time(),
                    round_trip_minimum: description.min_round_trip_time(),
                    pool: entry.server.snapshot_in(self),
                }));
                if pushed.is_err() {
                    break;
                }
            }
        });
        for one in seen.slots().iter().flatten() {
            visit(ServerSnapshot {
                id: one.server.id(),
                address: one.server.address(),
                server_type: one.server_type,
                round_trip_average: one.round_trip_average,
                round_trip_minimum: one.round_trip_minimum,
                pool: one.pool,
            });
        }
    }

    /// The type of the deployment.
    pub fn topology_type(&self) -> TopologyType {
        self.look(|state| state.control.topology().description().topology_type()).unwrap_or(TopologyType::Unknown)
    }

    /// Replaces the hosts of the deployment: see
    /// [`Control::handle_seeds`](poolhouse_core::control::Control::handle_seeds).
    ///
    /// # Errors
    ///
    /// [`Full`]: no capacity for the new hosts; nothing changed.
    ///
    /// Source: Polling SRV Records for mongos Discovery, "Implementation".
    pub fn change_seeds<'s>(&self, seeds: impl Iterator<Item = &'s str> + Clone) -> Result<(), Full> {
        if self.is_forked() {
            return Ok(());
        }
        self.step(|state, now, tap| state.control.handle_seeds(now, seeds, tap))
    }

    /// The current options of every pool.
    pub fn pool_config(&self) -> PoolConfig {
        self.look(|state| state.pool).unwrap_or(self.config.pool)
    }

    /// Changes the options of the pools of all servers, including servers that are found later.
    /// `load_balanced` and `background` keep their values.
    /// [`Pool::reconfigure`](poolhouse_core::pool::Pool::reconfigure) specifies which changes take
    /// effect at once, and which later.
    ///
    /// If the options allow more connections to be established at once than before,
    /// [`ClientCore::next_server`] returns the servers again, and [`ClientCore::server_tasks`] the
    /// additional workers.
    pub fn reconfigure_pools(&self, pool: PoolConfig) {
        if self.is_forked() {
            return;
        }
        self.step(|state, now, _| {
            state.pool = pool.in_mode_of(state.pool);
            let workers = workers_of(state.pool.options());
            for place in 0..state.servers.slots().len() {
                let Some(Some(entry)) = state.servers.slots_mut().get_mut(place) else { continue };
                let id = entry.id;
                entry.fresh |= entry.started && workers > entry.workers;
                state.command(id, |server| server.reconfigure(now, pool));
            }
        });
    }

    /// Returns the tasks to start for a server that [`ClientCore::next_server`] returned. Each task
    /// is returned once.
    pub fn server_tasks(&self, server: &R::ServerHandle) -> impl Iterator<Item = ServerTask> + use<R> {
        let (first, workers, monitored) = self.state.with(|state| {
            let options = *state.pool.options();
            let Some(entry) = state.entry(server.id()) else { return (false, 0, false) };
            let workers = workers_of(&options);
            let missing = workers.saturating_sub(entry.workers);
            entry.workers = entry.workers.max(workers);
            (!core::mem::replace(&mut entry.started, true), missing, !options.load_balanced)
        });
        let lines = if first && monitored { [ServerTask::Check, ServerTask::Rtt].as_slice() } else { &[] };
        let clock = first.then_some(ServerTask::Clock);
        lines.iter().copied().chain(clock).chain(core::iter::repeat_n(ServerTask::Worker, workers as usize))
    }

    /// Requests a check of every server as soon as possible.
    pub fn request_check(&self) {
        if !self.is_forked() {
            self.step(|state, now, _| state.control.request_check(now));
        }
    }

    /// Calls the monitors at their deadlines. Ends when the client is closed, unless it may be opened
    /// again ([`Runtime::REOPENS`]); dropping the future earlier closes the client: see
    /// [`TaskGuard`](super::TaskGuard).
    pub fn run_clock(&self) -> impl Future<Output = ()> {
        TaskGuard::new(self, None).run(Self::keep_clock)
    }

    /// [`ClientCore::run_clock`] without its task guard.
    #[doc(hidden)]
    pub async fn keep_clock(&self) {
        loop {
            let at = self.step(|state, now, tap| {
                if state.control.poll_timeout().is_some_and(|at| at <= now) {
                    state.control.handle_timeout(now, tap);
                }
                state.armed = state.control.poll_timeout();
                (!state.has_ended()).then_some(state.armed)
            });
            let Some(at) = at else { return };
            let mut expiry = pin!(self.sleep_until(at));
            poll_fn(|context| {
                let mut waker = Some(context.waker().clone());
                let due = self.state.with(|state| {
                    register(&mut state.clock, &mut waker);
                    state.has_ended() || is_earlier(state.control.poll_timeout(), state.armed)
                });
                if due { Poll::Ready(()) } else { expiry.as_mut().poll(context) }
            })
            .await;
        }
    }
}

/// The copy of a server's state that is made under the lock.
struct Seen<R: Runtime> {
    server: R::ServerHandle,
    server_type: ServerType,
    round_trip_average: Option<Duration>,
    round_trip_minimum: Option<Duration>,
    pool: PoolSnapshot,
}

/// One server at one instant.
#[derive(Clone, Copy, Debug)]
pub struct ServerSnapshot<'a> {
    /// Its id.
    pub id: ServerId,
    /// Its address.
    pub address: &'a str,
    /// Its type at its last check.
    pub server_type: ServerType,
    /// The moving average of its round-trip time; `None` while it is unknown.
    pub round_trip_average: Option<Duration>,
    /// The minimum of its last ten round-trip times; `None` while it is unknown.
    pub round_trip_minimum: Option<Duration>,
    /// Its pool.
    pub pool: PoolSnapshot,
}

impl<R: Runtime> fmt::Debug for ClientCore<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCore").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}
