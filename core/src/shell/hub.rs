//! What all handles of a client share: the view of the deployment, its servers, and those who wait for either.
//!
//! Lock order: the hub's lock, then a server's. [`Hub::step`] changes the control machine and, under the same lock,
//! the pools that it commands, so that nobody sees a description without its consequence. Tasks are
//! woken and sockets dropped after the lock is released.

use super::error::{OperationError, SelectionReport};
use super::event::{Publish, Tap};
use super::guard::{CheckingOut, Guard};
use super::runtime::{Lock, Runtime, register};
use super::server::{PoolSnapshot, Server, is_earlier};
use crate::control::{Control, ControlAction};
use crate::monitor::{Line, MonitorAction, MonitorConfig};
use crate::pool::{ConnId, EstablishError, PoolConfig, PoolId};
use crate::selection::{
    Candidate, Operation, ReadMode, Selection, SelectionCriteria, SelectionError, Selector, select,
};
use crate::storage::{Full, Store};
use crate::topology::{
    self, AppError, AppErrorKind, CommandError, HandshakePhase, ReplyError, TopologyConfig, TopologyDescription,
    TopologyId,
};
use crate::wire::Labels;
use crate::wire::command::CommandReply;
use crate::wire::handshake::HandshakeError;
use crate::wire::hello::{ClientMetadata, HelloReply};
use crate::{Cause, Instant, ServerId, ServerType};
use core::fmt;
use core::future::{pending, poll_fn};
use core::pin::pin;
use core::task::{Poll, Waker};
use core::time::Duration;

/// What a client is told before it starts.
#[derive(Clone, Debug)]
pub struct HubConfig {
    /// The options of every pool.
    pub pool: PoolConfig,
    /// The options of every monitor.
    pub monitor: MonitorConfig,
    /// `connectTimeoutMS`: how long an application's connection may take to be established; zero is for ever.
    pub connect_timeout: Duration,
    /// `serverSelectionTimeoutMS`: how long an operation waits for a server that suits it.
    pub server_selection_timeout: Duration,
    /// What the client says of itself.
    pub metadata: ClientMetadata,
    /// The number of the first pool; the pools of a client have consecutive ones. Different clients of a process must not meet.
    pub first_pool: u32,
}

/// What all handles of a client share.
pub struct Hub<R: Runtime> {
    runtime: R,
    config: HubConfig,
    events: R::Events,
    state: R::Lock<State<R>>,
}

/// What is behind the lock of a hub.
struct State<R: Runtime> {
    control: Control<R::Topology>,
    servers: <R::Topology as topology::Stores>::PerServer<Option<Entry<R>>>,
    /// Tasks that wait for a suitable server.
    selectors: <R::Memory as crate::pool::Stores>::PerWaiter<Seat>,
    /// No place before this one is free.
    selectors_taken: usize,
    /// Where the waking of all selectors has come to; `None` when it is done.
    wake_selectors: Option<usize>,
    /// The one server that writes are sent to, so that most operations need not look for it. Found anew by every step.
    suitable: Option<R::ServerHandle>,
    /// Whoever starts the tasks of new servers.
    starter: Option<Waker>,
    clock: Option<Waker>,
    armed: Option<Instant>,
    next_pool: u32,
    closed: bool,
}

/// The place of a task that waits for a suitable server.
enum Seat {
    Free,
    Waiting(Waker),
    Woken,
}

/// A server and the tasks of its monitor.
struct Entry<R: Runtime> {
    id: ServerId,
    server: R::ServerHandle,
    /// Its tasks are to be started.
    fresh: bool,
    /// Its pool was commanded, and owes something.
    unsettled: bool,
    check: Option<Waker>,
    rtt: Option<Waker>,
}

enum Chore<R: Runtime> {
    Wake(Waker),
    Settle(R::ServerHandle),
}

impl<R: Runtime> State<R> {
    /// Carries out what the control machine owes, pools included.
    fn route(&mut self, hub: &Hub<R>, now: Instant) {
        while let Some(action) = self.control.poll_action() {
            match action {
                ControlAction::ServerAdded(id) => self.add_server(hub, now, id),
                ControlAction::ServerRemoved(id) => {
                    if let Some(entry) = self.entry(id) {
                        entry.server.close_quietly(now);
                        entry.unsettled = true;
                    }
                }
                ControlAction::Pool(id, command) => {
                    if let Some(entry) = self.entry(id) {
                        entry.server.command_quietly(now, command);
                        entry.unsettled = true;
                    }
                }
                ControlAction::WakeSelectors => self.wake_selectors = Some(0),
            }
        }
    }

    fn add_server(&mut self, hub: &Hub<R>, now: Instant, id: ServerId) {
        let Some(Ok(address)) = self.control.topology().address(id).map(R::Text::try_from) else { return };
        let pool = PoolId::new(self.next_pool);
        self.next_pool = self.next_pool.wrapping_add(1);
        let events = hub.events.of_server(address.as_ref());
        let server = Server::new(now, id, pool, address, hub.config.pool, events);
        let Ok(server) = hub.runtime.share_server(server) else { return };
        let entry = Entry { id, server, fresh: true, unsettled: true, check: None, rtt: None };
        let index = id.index() as usize;
        while self.servers.slots().len() <= index {
            if self.servers.try_push(None).is_err() {
                return;
            }
        }
        if let Some(place) = self.servers.slots_mut().get_mut(index) {
            debug_assert!(place.is_none(), "a server that is gone has left its place before another comes");
            *place = Some(entry);
        }
    }

    /// The server of every write, if there is no choice; none once the client is closed.
    fn find_suitable(&mut self) -> Option<R::ServerHandle> {
        if self.closed {
            return None;
        }
        let description = self.control.topology().description();
        if !description.is_compatible() {
            return None;
        }
        let criteria = SelectionCriteria::write();
        let selection = Selection::new(description, &criteria, &[]).ok()?;
        let id = {
            let mut servers = selection.suitable();
            let id = servers.next()?.id();
            servers.next().is_none().then_some(id)
        };
        self.entry(id?).map(|entry| entry.server.clone())
    }

    /// A server that suits, chosen by chance and load among those that are near.
    fn select(&mut self, wanted: &Wanted<'_>, entropy: u32) -> Result<Option<R::ServerHandle>, SelectionError> {
        let Self { control, servers, .. } = self;
        let load = |id: ServerId| {
            let entry = servers.slots().get(id.index() as usize).and_then(Option::as_ref);
            entry.map_or(u32::MAX, |entry| {
                let counts = entry.server.pool_snapshot().counts;
                counts.in_use.saturating_add(counts.waiting)
            })
        };
        let description = control.topology().description();
        let id = select(description, &wanted.criteria, wanted.deprioritized, load, entropy)?;
        Ok(id.and_then(|id| self.entry(id)).map(|entry| entry.server.clone()))
    }

    /// A free place for a selector, which is to be filled in the same step.
    fn take_selector(&mut self) -> Option<usize> {
        let mut place = self.selectors_taken;
        while let Some(selector) = self.selectors.slots().get(place) {
            if matches!(selector, Seat::Free) {
                break;
            }
            place += 1;
        }
        if place == self.selectors.slots().len() {
            self.selectors.try_push(Seat::Free).ok()?;
        }
        self.selectors_taken = place + 1;
        Some(place)
    }

    fn entry(&mut self, id: ServerId) -> Option<&mut Entry<R>> {
        self.servers.slots_mut().get_mut(id.index() as usize)?.as_mut().filter(|entry| entry.id == id)
    }

    fn chore(&mut self) -> Option<Chore<R>> {
        let Self { control, servers, .. } = self;
        for place in servers.slots_mut() {
            let Some(entry) = place else { continue };
            if core::mem::take(&mut entry.unsettled) {
                return Some(Chore::Settle(entry.server.clone()));
            }
            let ended = control.is_ended(entry.id);
            if ended || control.owes_line(entry.id, Line::Check) {
                if let Some(waker) = entry.check.take() {
                    return Some(Chore::Wake(waker));
                }
            }
            if ended || control.owes_line(entry.id, Line::Rtt) {
                if let Some(waker) = entry.rtt.take() {
                    return Some(Chore::Wake(waker));
                }
            }
            if ended {
                // Also one that is gone before its tasks were started: they are needed no more, and its place may be.
                *place = None;
            } else if entry.fresh && self.starter.is_some() {
                return self.starter.take().map(Chore::Wake);
            }
        }
        while let Some(place) = self.wake_selectors {
            let Some(selector) = self.selectors.slots_mut().get_mut(place) else {
                self.wake_selectors = None;
                break;
            };
            self.wake_selectors = Some(place + 1);
            if matches!(selector, Seat::Waiting(_)) {
                if let Seat::Waiting(waker) = core::mem::replace(selector, Seat::Woken) {
                    return Some(Chore::Wake(waker));
                }
            }
        }
        if self.closed {
            return self.starter.take().or_else(|| self.clock.take()).map(Chore::Wake);
        }
        if self.clock.is_some() && is_earlier(self.control.poll_timeout(), self.armed) {
            return self.clock.take().map(Chore::Wake);
        }
        None
    }
}

impl<R: Runtime> Hub<R> {
    /// A hub for these seeds. No I/O is performed before its tasks run.
    ///
    /// # Errors
    ///
    /// [`Full`]: no room for the seeds.
    ///
    /// Source: SDAM, "Initial TopologyType" and "Client construction" (SDAM-04..09).
    pub fn new(runtime: R, config: HubConfig, topology: TopologyConfig<'_>, events: R::Events) -> Result<Self, Full> {
        let now = runtime.now();
        let id = TopologyId::new(config.first_pool);
        let control = Control::new(now, id, topology, config.monitor, &mut Tap::new(&events))?;
        let state = State {
            control,
            servers: Store::EMPTY,
            selectors: Store::EMPTY,
            selectors_taken: 0,
            wake_selectors: None,
            suitable: None,
            starter: None,
            clock: None,
            armed: None,
            next_pool: config.first_pool,
            closed: false,
        };
        let hub = Self { runtime, config, events, state: R::Lock::new(state) };
        hub.step(|_, _, _| ());
        Ok(hub)
    }

    /// The runtime.
    pub const fn runtime(&self) -> &R {
        &self.runtime
    }

    /// The configuration.
    pub const fn config(&self) -> &HubConfig {
        &self.config
    }

    /// Where events go.
    pub const fn events(&self) -> &R::Events {
        &self.events
    }

    pub(super) fn now(&self) -> Instant {
        self.runtime.now()
    }

    /// Sleeps until an instant, or for ever.
    pub(super) async fn sleep_until(&self, at: Option<Instant>) {
        match at {
            Some(at) => self.runtime.sleep_until(at).await,
            None => pending().await,
        }
    }

    /// Changes the control machine, carries out what it owes under the same lock, then does the rest without it.
    ///
    /// What others have left to do is done first: a server that is added may take the place of one that was removed, whose
    /// tasks and waiters must have been woken by then.
    fn step<T>(&self, change: impl FnOnce(&mut Control<R::Topology>, Instant, &mut Tap<'_, R::Events>) -> T) -> T {
        let mut change = Some(change);
        loop {
            let left = self.state.with(|state| match (state.chore(), change.take()) {
                (None, Some(change)) => Ok(self.change(state, |state, now, tap| change(&mut state.control, now, tap))),
                (chore, kept) => {
                    change = kept;
                    Err(chore)
                }
            });
            match left {
                Ok((result, chore)) => {
                    self.finish(chore);
                    return result;
                }
                Err(chore) => self.finish(chore),
            }
        }
    }

    fn step_state<T>(&self, change: impl FnOnce(&mut State<R>, Instant, &mut Tap<'_, R::Events>) -> T) -> T {
        let (result, chore) = self.state.with(|state| self.change(state, change));
        self.finish(chore);
        result
    }

    fn change<T>(
        &self,
        state: &mut State<R>,
        change: impl FnOnce(&mut State<R>, Instant, &mut Tap<'_, R::Events>) -> T,
    ) -> (T, Option<Chore<R>>) {
        let now = self.now();
        let result = change(state, now, &mut Tap::new(&self.events));
        state.route(self, now);
        state.suitable = state.find_suitable();
        (result, state.chore())
    }

    /// Does what is left to do without the lock.
    fn finish(&self, mut chore: Option<Chore<R>>) {
        while let Some(due) = chore {
            match due {
                Chore::Wake(waker) => waker.wake(),
                Chore::Settle(server) => server.settle(),
            }
            chore = self.state.with(State::chore);
        }
        self.events.deliver();
    }

    /// Waits until a server suits, and gives it.
    ///
    /// - `wanted`: what the operation wants of its server.
    /// - `deadline`: the operation's own; `serverSelectionTimeoutMS` applies besides.
    ///
    /// Several that suit are chosen from by chance: of two in the latency window, the one with fewer operations.
    /// While none suits, every change of the topology and every finished check is a new attempt, and checks are asked for.
    ///
    /// # Errors
    ///
    /// [`OperationError::ServerSelection`]: the time is over, or none will ever suit.
    /// [`OperationError::Closed`] once the client is closed.
    ///
    /// Source: Server Selection, "Multi-threaded or asynchronous server selection" (SDAM-85, MON-18).
    pub async fn select_server(
        &self,
        wanted: &Wanted<'_>,
        deadline: Option<Instant>,
    ) -> Result<R::ServerHandle, OperationError> {
        if wanted.is_plain() {
            if let Some(server) = self.state.with(|state| state.suitable.clone()) {
                return Ok(server);
            }
        }
        self.wait_for_server(wanted, deadline).await
    }

    async fn wait_for_server(
        &self,
        wanted: &Wanted<'_>,
        deadline: Option<Instant>,
    ) -> Result<R::ServerHandle, OperationError> {
        let now = self.now();
        let timeout = self.config.server_selection_timeout;
        let timeout = deadline.map_or(timeout, |deadline| deadline.saturating_since(now).min(timeout));
        let selector = Selector::new(now, Some(timeout));
        let mut place = SelectorPlace { hub: self, index: None };
        let mut expiry = pin!(self.sleep_until(selector.deadline()));
        poll_fn(|context| {
            let selected = place.poll_select(wanted, &selector, context.waker());
            if selected.is_pending() && expiry.as_mut().poll(context).is_ready() {
                // The last look, which finds a server or says what there was instead.
                return place.poll_select(wanted, &selector, context.waker());
            }
            selected
        })
        .await
    }

    /// Selects a server and checks a connection out of its pool.
    ///
    /// - `wanted`: what the operation wants of its server.
    /// - `deadline`: for selection, waiting and establishing, and then for the operations under the guard.
    ///
    /// # Errors
    ///
    /// [`OperationError::ServerSelection`], [`OperationError::CheckOut`], [`OperationError::Closed`].
    pub async fn check_out(
        &self,
        wanted: &Wanted<'_>,
        deadline: Option<Instant>,
    ) -> Result<Guard<'_, R>, OperationError> {
        let server = self.select_server(wanted, deadline).await?;
        self.check_out_of(server, deadline).await
    }

    /// Checks a connection out of the pool of a server that was selected.
    ///
    /// # Errors
    ///
    /// [`OperationError::CheckOut`].
    pub async fn check_out_of(
        &self,
        server: R::ServerHandle,
        deadline: Option<Instant>,
    ) -> Result<Guard<'_, R>, OperationError> {
        CheckingOut::new(self, server, deadline).await.map_err(OperationError::CheckOut)
    }

    /// Closes the client: its monitors and pools. Operations that wait fail at once; connections in use are closed
    /// when they are returned. The tasks of the runner end.
    ///
    /// Source: SDAM, "Client closing"; CMAP, "Closing a Connection Pool" (SDAM-10, MON-49, CMAP-36).
    pub fn close(&self) {
        self.step_state(|state, now, tap| {
            state.control.close(now, tap);
            state.closed = true;
            state.wake_selectors = Some(0);
        });
    }

    /// Whether [`Hub::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.state.with(|state| state.closed)
    }

    /// Each server with its description and its pool, all of one instant.
    pub fn for_each_server(&self, mut visit: impl FnMut(ServerSnapshot<'_>)) {
        self.state.with(|state| {
            let State { control, servers, .. } = state;
            for entry in servers.slots().iter().flatten() {
                let Some(description) = control.topology().server(entry.id) else { continue };
                visit(ServerSnapshot {
                    id: entry.id,
                    address: entry.server.address(),
                    server_type: description.server_type(),
                    round_trip_average: description.round_trip_time(),
                    round_trip_minimum: description.min_round_trip_time(),
                    pool: entry.server.pool_snapshot(),
                });
            }
        });
    }

    /// Asks for a check of every server as soon as it may be.
    pub fn request_check(&self) {
        self.step(|control, now, _| control.request_check(now));
    }

    /// An operation failed on a connection: the topology judges it, and the pool is cleared if it says so, before the connection returns.
    pub(super) fn report_failure(&self, server: &R::ServerHandle, conn: ConnId, cause: Cause) {
        if !cause.is_network() {
            return;
        }
        let kind = if cause == Cause::NetworkTimeout { AppErrorKind::NetworkTimeout } else { AppErrorKind::Network };
        self.report(server, conn, kind);
    }

    /// An operation's reply has an error in it.
    pub(super) fn report_reply(&self, server: &R::ServerHandle, conn: ConnId, reply: &CommandReply<'_>) {
        let command = (!reply.ok).then(|| ReplyError { code: reply.code, message: reply.message.unwrap_or_default() });
        let write_concern = reply
            .write_concern_error
            .map(|error| ReplyError { code: error.code, message: error.message.unwrap_or_default() });
        let topology_version = reply.topology_version;
        self.report(server, conn, AppErrorKind::Command(CommandError { command, write_concern, topology_version }));
    }

    fn report(&self, server: &R::ServerHandle, conn: ConnId, kind: AppErrorKind<'_>) {
        self.step_state(|state, now, tap| {
            let Some(origin) = server.origin(conn) else { return };
            let error = AppError {
                generation: origin.generation,
                pool_generation: origin.pool_generation,
                phase: HandshakePhase::After,
                kind,
                overloaded: false,
                service_id: origin.service_id,
            };
            let verdict = state.control.handle_app_error(now, server.id(), &error, tap);
            if let Some(clear) = verdict.clear {
                server.clear_quietly(now, clear, error_cause(&kind));
                if let Some(entry) = state.entry(server.id()) {
                    entry.unsettled = true;
                }
            }
        });
    }

    /// A connection could not be established: judged and told to the pool in one step.
    pub(super) fn report_establish_failed(&self, server: &R::ServerHandle, conn: ConnId, error: &HandshakeError) {
        self.step_state(|state, now, tap| {
            let Some(origin) = server.origin(conn) else { return };
            let overloaded = error.labels.contains(Labels::SYSTEM_OVERLOADED_ERROR);
            let kind = establish_kind(error);
            let report = AppError {
                generation: origin.generation,
                pool_generation: origin.pool_generation,
                phase: HandshakePhase::Before,
                kind,
                overloaded,
                service_id: origin.service_id,
            };
            let verdict = state.control.handle_app_error(now, server.id(), &report, tap);
            let failed = EstablishError { cause: error.cause, overloaded, clear: verdict.clear };
            server.fail_establish_quietly(now, conn, failed);
            if let Some(entry) = state.entry(server.id()) {
                entry.unsettled = true;
            }
        });
    }

    /// The hello of an application's connection is news of the server, too (MON-20).
    ///
    /// Unless the pool was cleared since that connection was created: the server was marked after it was greeted, and only
    /// a check can tell that it is well again.
    pub(super) fn report_hello(&self, server: &R::ServerHandle, conn: ConnId, hello: &HelloReply<'_>) {
        self.step(|control, now, tap| {
            if server.origin(conn).is_some_and(|origin| origin.generation == origin.pool_generation) {
                control.handle_app_hello(now, server.id(), &crate::convert::hello_info(hello), tap);
            }
        });
    }

    /// News of a monitoring connection.
    pub(super) fn line_news<T>(
        &self,
        news: impl FnOnce(&mut Control<R::Topology>, Instant, &mut Tap<'_, R::Events>) -> T,
    ) -> T {
        self.step(news)
    }

    /// What a line of a monitor is to do next; `None` once it has ended.
    pub(super) fn poll_line(&self, server: ServerId, line: Line, waker: &Waker) -> Poll<Option<MonitorAction>> {
        self.state.with(|state| {
            let now = self.now();
            if let Some(action) = state.control.poll_line(now, server, line) {
                return Poll::Ready(Some(action));
            }
            if state.control.is_ended(server) {
                return Poll::Ready(None);
            }
            if let Some(entry) = state.entry(server) {
                register(if line == Line::Check { &mut entry.check } else { &mut entry.rtt }, waker);
            }
            Poll::Pending
        })
    }

    /// The next server whose tasks are to be started: see [`Hub::run_server_task`]. `None` once the client is closed.
    pub async fn next_server(&self) -> Option<R::ServerHandle> {
        poll_fn(|context| {
            self.state.with(|state| {
                for entry in state.servers.slots_mut().iter_mut().flatten() {
                    if core::mem::take(&mut entry.fresh) {
                        return Poll::Ready(Some(entry.server.clone()));
                    }
                }
                if state.closed {
                    return Poll::Ready(None);
                }
                register(&mut state.starter, context.waker());
                Poll::Pending
            })
        })
        .await
    }

    /// Calls the monitors when they want to be called. Ends when the client is closed.
    pub async fn run_clock(&self) {
        loop {
            let at = self.step_state(|state, now, tap| {
                if state.control.poll_timeout().is_some_and(|at| at <= now) {
                    state.control.handle_timeout(now, tap);
                }
                state.armed = state.control.poll_timeout();
                (!state.closed).then_some(state.armed)
            });
            let Some(at) = at else { return };
            let mut expiry = pin!(self.sleep_until(at));
            poll_fn(|context| {
                let due = self.state.with(|state| {
                    register(&mut state.clock, context.waker());
                    state.closed || is_earlier(state.control.poll_timeout(), state.armed)
                });
                if due { Poll::Ready(()) } else { expiry.as_mut().poll(context) }
            })
            .await;
        }
    }
}

/// What the failure of an establishment is to the topology.
fn establish_kind(error: &HandshakeError) -> AppErrorKind<'static> {
    if error.cause == Cause::Network {
        AppErrorKind::Network
    } else if error.cause == Cause::NetworkTimeout {
        AppErrorKind::NetworkTimeout
    } else if let Cause::Command { code } = error.cause {
        let command = Some(ReplyError { code: Some(code), message: "" });
        let topology_version = error.topology_version;
        AppErrorKind::Command(CommandError { command, write_concern: None, topology_version })
    } else {
        AppErrorKind::Other(error.cause)
    }
}

fn error_cause(kind: &AppErrorKind<'_>) -> Cause {
    match kind {
        AppErrorKind::Network => Cause::Network,
        AppErrorKind::NetworkTimeout => Cause::NetworkTimeout,
        AppErrorKind::Command(error) => {
            let error = error.command.or(error.write_concern);
            Cause::Command { code: error.and_then(|error| error.code).unwrap_or(0) }
        }
        AppErrorKind::Other(cause) => *cause,
    }
}

/// One server at one instant.
#[derive(Clone, Copy, Debug)]
pub struct ServerSnapshot<'a> {
    /// Its id.
    pub id: ServerId,
    /// Its address.
    pub address: &'a str,
    /// What it was at its last check.
    pub server_type: ServerType,
    /// The moving average of its round-trip time; `None` while it is unknown.
    pub round_trip_average: Option<Duration>,
    /// The minimum of its last ten round-trip times; `None` while it is unknown.
    pub round_trip_minimum: Option<Duration>,
    /// Its pool.
    pub pool: PoolSnapshot,
}

#[cfg(feature = "alloc")]
fn report(error: &SelectionError, topology: TopologyDescription<'_>) -> SelectionReport {
    alloc::boxed::Box::new(error.detail(topology))
}

#[cfg(not(feature = "alloc"))]
fn report(error: &SelectionError, _topology: TopologyDescription<'_>) -> SelectionReport {
    *error
}

/// What an operation wants of its server.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Whether it reads or writes, and what it prefers.
    pub criteria: SelectionCriteria<'a>,
    /// Servers that are taken only if no other suits: those that a first attempt failed on.
    pub deprioritized: &'a [ServerId],
}

impl Wanted<'_> {
    /// A server that accepts writes.
    pub const WRITE: Self = Self { criteria: SelectionCriteria::write(), deprioritized: &[] };

    /// Whether any server that accepts writes will do.
    fn is_plain(&self) -> bool {
        let primary = self.criteria.read_preference().options().mode == ReadMode::Primary;
        self.deprioritized.is_empty() && (primary || self.criteria.operation() == Operation::Write)
    }
}

/// The place of a selection in the hub's table; left when it ends or is dropped.
struct SelectorPlace<'h, R: Runtime> {
    hub: &'h Hub<R>,
    index: Option<usize>,
}

impl<R: Runtime> SelectorPlace<'_, R> {
    fn poll_select(
        &mut self,
        wanted: &Wanted<'_>,
        selector: &Selector,
        waker: &Waker,
    ) -> Poll<Result<R::ServerHandle, OperationError>> {
        let index = &mut self.index;
        let entropy = self.hub.runtime.entropy();
        self.hub.step_state(|state, now, _| {
            if state.closed {
                return Poll::Ready(Err(OperationError::Closed));
            }
            let selected = match state.select(wanted, entropy) {
                Ok(Some(server)) => return Poll::Ready(Ok(server)),
                Ok(None) => selector.expire(now, state.control.topology().description()),
                Err(error) => Err(error),
            };
            if let Err(error) = selected {
                let report = report(&error, state.control.topology().description());
                return Poll::Ready(Err(OperationError::ServerSelection(report)));
            }
            // Nobody suits: look at every server as soon as may be (SDAM-85).
            state.control.request_check(now);
            let place = match *index {
                Some(place) => place,
                None => {
                    let Some(place) = state.take_selector() else { return Poll::Ready(Err(OperationError::Busy)) };
                    *index = Some(place);
                    place
                }
            };
            if let Some(selector) = state.selectors.slots_mut().get_mut(place) {
                match selector {
                    Seat::Waiting(kept) if kept.will_wake(waker) => {}
                    Seat::Waiting(_) | Seat::Free | Seat::Woken => {
                        *selector = Seat::Waiting(waker.clone());
                    }
                }
            }
            Poll::Pending
        })
    }
}

impl<R: Runtime> Drop for SelectorPlace<'_, R> {
    fn drop(&mut self) {
        let Some(index) = self.index else { return };
        self.hub.state.with(|state| {
            if let Some(selector) = state.selectors.slots_mut().get_mut(index) {
                *selector = Seat::Free;
                state.selectors_taken = state.selectors_taken.min(index);
            }
        });
    }
}

impl<R: Runtime> fmt::Debug for Hub<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}
