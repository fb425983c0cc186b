//! Server selection: choosing a server for an operation, and waiting for one.
//!
//! Read first: Server Selection, "Multi-threaded or asynchronous server selection".

#[cfg_attr(not(feature = "alloc"), path = "select/unobserved.rs")]
mod observed;

pub(super) use observed::Operation;

use self::observed::Observed;
use super::client_core::{ClientCore, State};
use super::error::{OperationError, SelectionReport};
#[cfg(feature = "alloc")]
use super::failure::explain_selection;
use super::runtime::{Locked, Runtime};
use core::future::poll_fn;
use core::pin::pin;
use core::task::{Poll, Waker};
use core::time::Duration;
use poolhouse_core::selection::{
    Candidate, Candidates, ReadMode, Selection, SelectionCriteria, SelectionError, Selector, draw_two, select,
    select_direct,
};
use poolhouse_core::storage::Store;
use poolhouse_core::topology::{self, Memory as _};
use poolhouse_core::{Instant, ServerId};

/// The slot of a task that waits for a suitable server, or for a new one.
pub(super) enum WakerSlot {
    Free,
    Waiting(Waker),
    Woken,
}

impl WakerSlot {
    /// Takes the waker of a waiting task, which then is woken.
    pub(super) fn take_waiting(&mut self) -> Option<Waker> {
        if !matches!(self, Self::Waiting(_)) {
            return None;
        }
        match core::mem::replace(self, Self::Woken) {
            Self::Waiting(waker) => Some(waker),
            Self::Free | Self::Woken => None,
        }
    }

    /// Stores the waker of the task that has the slot, as [`register`](super::runtime::register)
    /// does.
    pub(super) fn wait(&mut self, waker: &mut Option<Waker>) {
        match (&mut *self, waker) {
            (Self::Waiting(kept), Some(waker)) if !kept.will_wake(waker) => core::mem::swap(kept, waker),
            (Self::Free | Self::Woken, waker @ Some(_)) => *self = waker.take().map_or(Self::Woken, Self::Waiting),
            (Self::Waiting(_) | Self::Free | Self::Woken, _) => {}
        }
    }
}

/// The servers in the latency window of a read preference without tag sets and staleness, kept until
/// the description of the deployment changes: an operation draws two of them without a search.
pub(super) struct Window<R: Runtime> {
    /// `None` if the servers have to be found.
    key: Option<(ReadMode, Duration)>,
    /// The server, if it is the only one: most deployments have one that accepts writes.
    sole: Option<R::ServerHandle>,
    servers: <R::Topology as topology::Memory>::PerServer<ServerId>,
}

impl<R: Runtime> Window<R> {
    pub(super) fn new() -> Self {
        Self { key: None, sole: None, servers: Store::empty() }
    }

    pub(super) fn forget(&mut self) {
        (self.key, self.sole) = (None, None);
    }

    /// Finds the servers again. The memory is kept, so this allocates only if there are more servers
    /// than before.
    #[cold]
    fn find<T>(&mut self, description: T, criteria: &SelectionCriteria<'_>)
    where
        T: Candidates<Server: Candidate<Id = ServerId>>,
    {
        while self.servers.pop().is_some() {}
        let Ok(selection) = Selection::new(description, criteria, &[]) else { return };
        for server in selection.in_window() {
            if self.servers.try_push(server.id()).is_err() {
                return;
            }
        }
        self.key = Some(key_of(criteria));
    }
}

fn key_of(criteria: &SelectionCriteria<'_>) -> (ReadMode, Duration) {
    (criteria.read_preference().options().mode, criteria.local_threshold())
}

impl<R: Runtime> State<R> {
    /// The only suitable server for a plain request, if it is known.
    #[inline]
    fn sole(&self, request: &SelectionRequest<'_>) -> Option<R::ServerHandle> {
        if R::Topology::DIRECT_ONLY {
            return None;
        }
        let key = key_of(&request.criteria);
        let window = &self.windows[usize::from(key.0 != ReadMode::Primary)];
        if window.key == Some(key) { window.sole.clone() } else { None }
    }

    /// [`State::select`] for a plain request, without a search unless the description has changed;
    /// `None` if no server is suitable.
    #[inline(never)]
    fn choose(&mut self, request: &SelectionRequest<'_>, entropy: impl FnOnce() -> u32) -> Option<R::ServerHandle> {
        if R::Topology::DIRECT_ONLY {
            return self.direct().unwrap_or(None);
        }
        let Self { windows, control, servers, closed, .. } = self;
        let key = key_of(&request.criteria);
        let window = &mut windows[usize::from(key.0 != ReadMode::Primary)];
        if window.key != Some(key) {
            let description = control.topology().description();
            if *closed || !description.is_compatible() {
                return None;
            }
            window.forget();
            window.find(description, &request.criteria);
        }
        let Window { sole, servers: window, .. } = window;
        let window = window.slots();
        let server_at = |place: usize| {
            let id = *window.get(place)?;
            let entry = servers.slots().get(id.index() as usize)?.as_ref()?;
            (entry.id == id).then_some(&entry.server)
        };
        let drawn = if window.len() < 2 { None } else { draw_two(window.len(), entropy()) };
        let Some((first, second)) = drawn else {
            *sole = server_at(0).cloned();
            return sole.clone();
        };
        let (one, other) = (server_at(first)?, server_at(second)?);
        Some(if other.operation_count() < one.operation_count() { other.clone() } else { one.clone() })
    }

    /// Selects a suitable server in the latency window, by load among random candidates.
    fn select(
        &mut self,
        request: &SelectionRequest<'_>,
        entropy: u32,
    ) -> Result<Option<R::ServerHandle>, SelectionError> {
        if R::Topology::DIRECT_ONLY {
            return self.direct();
        }
        let Self { control, servers, .. } = self;
        let load = |id: ServerId| {
            let entry = servers.slots().get(id.index() as usize).and_then(Option::as_ref);
            entry.map_or(u32::MAX, |entry| entry.server.operation_count())
        };
        let description = control.topology().description();
        let id = select(description, &request.criteria, request.deprioritized, load, entropy)?;
        Ok(id.and_then(|id| self.entry(id)).map(|entry| entry.server.clone()))
    }

    /// The server of a direct connection, if it has answered.
    fn direct(&mut self) -> Result<Option<R::ServerHandle>, SelectionError> {
        let id = select_direct(self.control.topology().description())?;
        Ok(id.and_then(|id| self.entry(id)).map(|entry| entry.server.clone()))
    }

    /// Takes a free selector slot, which the caller must fill in the same step.
    fn take_selector(&mut self) -> Option<usize> {
        let mut place = self.selectors_taken;
        while let Some(selector) = self.selectors.slots().get(place) {
            if matches!(selector, WakerSlot::Free) {
                break;
            }
            place += 1;
        }
        if place == self.selectors.slots().len() {
            self.selectors.try_push(WakerSlot::Free).ok()?;
        }
        self.selectors_taken = place + 1;
        Some(place)
    }
}

impl<R: Runtime> ClientCore<R> {
    /// Waits until a server is suitable, and returns it.
    ///
    /// - `request`: the operation's requirements for the server.
    /// - `deadline`: the operation's own, or its [`ClientCore::check_out_limit`];
    ///   `serverSelectionTimeoutMS` applies too.
    ///
    /// If several servers are suitable, two of those in the latency window are chosen at random,
    /// and the one with fewer operations is returned. While none is suitable, checks are requested,
    /// and each change of the topology and each finished check starts another attempt.
    ///
    /// # Errors
    ///
    /// [`OperationError::ServerSelection`]: the time is over, or no server can become suitable.
    /// [`OperationError::Closed`] or [`OperationError::Abandoned`] once the client is closed.
    /// [`OperationError::Forked`] in the child of a fork.
    ///
    /// Source: Server Selection, "Multi-threaded or asynchronous server selection".
    pub async fn select_server(
        &self,
        request: &SelectionRequest<'_>,
        deadline: Option<Instant>,
    ) -> Result<R::ServerHandle, OperationError> {
        self.select_server_for(&mut self.operation(), request, deadline).await
    }

    /// [`ClientCore::select_server`] for an operation, which the events name.
    pub(super) async fn select_server_for(
        &self,
        operation: &mut Operation<'_>,
        request: &SelectionRequest<'_>,
        deadline: Option<Instant>,
    ) -> Result<R::ServerHandle, OperationError> {
        match self.suitable_server(request, operation.is_observed())? {
            Some(server) => Ok(server),
            None => self.wait_for_server(operation, request, deadline).await,
        }
    }

    /// Returns a suitable server if that needs no waiting, the request is plain, and the selection has
    /// no events.
    // Without it, the result is passed through memory, 15 instructions of each check-out. Devices without
    // a heap have less room for a second copy.
    #[cfg_attr(feature = "alloc", inline(always))]
    pub(super) fn suitable_server(
        &self,
        request: &SelectionRequest<'_>,
        is_observed: bool,
    ) -> Result<Option<R::ServerHandle>, OperationError> {
        self.check_fork()?;
        if is_observed || !request.is_plain() {
            return Ok(None);
        }
        Ok(self.state.with(|state| state.sole(request).or_else(|| state.choose(request, || self.runtime().entropy()))))
    }

    /// With a heap, the future is boxed: few operations wait for a server, and the futures of the
    /// others are smaller.
    pub(super) fn wait_for_server(
        &self,
        operation: &mut Operation<'_>,
        request: &SelectionRequest<'_>,
        deadline: Option<Instant>,
    ) -> impl Future<Output = Result<R::ServerHandle, OperationError>> {
        let waiting = self.wait_for_suitable(operation, request, deadline);
        #[cfg(feature = "alloc")]
        let waiting = alloc::boxed::Box::pin(waiting);
        waiting
    }

    async fn wait_for_suitable(
        &self,
        operation: &mut Operation<'_>,
        request: &SelectionRequest<'_>,
        deadline: Option<Instant>,
    ) -> Result<R::ServerHandle, OperationError> {
        let now = self.now();
        let timeout = self.config().server_selection_timeout;
        let timeout = deadline.map_or(timeout, |deadline| deadline.saturating_since(now).min(timeout));
        let selector = Selector::new(now, Some(timeout));
        let mut place = SelectorSlot { core: self, index: None, observed: Observed::new(operation, request) };
        let mut expiry = pin!(self.sleep_until(selector.deadline()));
        poll_fn(|context| {
            self.check_fork()?;
            let selected = place.poll_select(request, &selector, context.waker());
            if selected.is_pending() && expiry.as_mut().poll(context).is_ready() {
                // The last attempt, which finds a server or reports the topology's state.
                return place.poll_select(request, &selector, context.waker());
            }
            selected
        })
        .await
    }
}

#[cfg(feature = "alloc")]
fn report<R: Runtime>(error: &SelectionError, now: Instant, state: &State<R>) -> SelectionReport {
    let detail = error.detail(state.control.topology().description());
    alloc::boxed::Box::new(explain_selection(detail, now, state))
}

#[cfg(not(feature = "alloc"))]
const fn report<R: Runtime>(error: &SelectionError, _now: Instant, _state: &State<R>) -> SelectionReport {
    *error
}

/// An operation's requirements for its server.
#[derive(Clone, Copy, Debug)]
pub struct SelectionRequest<'a> {
    /// Whether the operation reads or writes, and its read preference.
    pub criteria: SelectionCriteria<'a>,
    /// Servers that are selected only if no other is suitable: those of failed attempts.
    pub deprioritized: &'a [ServerId],
}

impl SelectionRequest<'_> {
    /// A server that accepts writes.
    pub const WRITE: Self = Self { criteria: SelectionCriteria::write(), deprioritized: &[] };

    /// Whether the servers in its latency window can be kept.
    fn is_plain(&self) -> bool {
        let options = self.criteria.read_preference().options();
        let has_staleness = usize::from(options.max_staleness_seconds.is_some());
        // One branch for all three: each check-out evaluates this.
        self.deprioritized.len() | options.tag_sets.len() | has_staleness == 0
    }
}

/// A selection's slot in the client core; freed when the selection ends or is dropped.
struct SelectorSlot<'h, 'o, R: Runtime> {
    core: &'h ClientCore<R>,
    index: Option<usize>,
    observed: Observed<'h, 'o>,
}

impl<R: Runtime> SelectorSlot<'_, '_, R> {
    fn poll_select(
        &mut self,
        request: &SelectionRequest<'_>,
        selector: &Selector,
        waker: &Waker,
    ) -> Poll<Result<R::ServerHandle, OperationError>> {
        let mut waker = Some(waker.clone());
        let Self { core, index, observed } = self;
        let entropy = core.runtime().entropy();
        core.step(|state, now, tap| {
            observed.publish_start(state, now, tap);
            let selected = state.poll_select(now, (request, selector), entropy, index, &mut waker);
            observed.publish_outcome(state, now, selector, &selected, tap);
            selected
        })
    }
}

impl<R: Runtime> State<R> {
    /// One attempt of a selection. If no server is suitable, requests checks, and stores the waker in
    /// the selection's slot.
    ///
    /// - `index`: the index of the slot, once the selection has one.
    fn poll_select(
        &mut self,
        now: Instant,
        (request, selector): (&SelectionRequest<'_>, &Selector),
        entropy: u32,
        index: &mut Option<usize>,
        waker: &mut Option<Waker>,
    ) -> Poll<Result<R::ServerHandle, OperationError>> {
        let ready = |result| Poll::Ready(result);
        if self.closed {
            return ready(Err(self.end()));
        }
        let selected = match self.select(request, entropy) {
            Ok(Some(server)) => return ready(Ok(server)),
            Ok(None) => selector.expire(now, self.control.topology().description()),
            Err(error) => Err(error),
        };
        if let Err(error) = selected {
            let report = report(&error, now, self);
            return ready(Err(OperationError::ServerSelection(report)));
        }
        // No server is suitable: check all servers as soon as possible (SDAM-85).
        self.control.request_check(now);
        let place = match *index {
            Some(place) => place,
            None => {
                let Some(place) = self.take_selector() else { return ready(Err(OperationError::Busy)) };
                *index = Some(place);
                place
            }
        };
        if let Some(slot) = self.selectors.slots_mut().get_mut(place) {
            slot.wait(waker);
        }
        Poll::Pending
    }
}

impl<R: Runtime> Drop for SelectorSlot<'_, '_, R> {
    fn drop(&mut self) {
        if self.core.is_forked() {
            return;
        }
        self.observed.publish_drop(self.core);
        let Some(index) = self.index else { return };
        let _left = self.core.state.with(|state| {
            let slot = state.selectors.slots_mut().get_mut(index)?;
            state.selectors_taken = state.selectors_taken.min(index);
            Some(core::mem::replace(slot, WakerSlot::Free))
        });
    }
}
