//! Sessions: requests to the hosts of a cluster over multiplexed pools, in Cassandra's native
//! protocol.
//!
//! A [`Session`] has a [pool](poolhouse_core::mux) for each host. A request uses a stream id of one
//! of the pool's connections. Many requests are in flight on each connection, and replies arrive in
//! any order.
//!
//! - [`Session::query`], [`Session::execute`] and [`Session::batch`] make a [`Call`]. Its methods set
//!   its options. [`Call::send`] sends it to the next host of the query plan. Dropping its future
//!   cancels the request at any point. [`Session::request_all`] sends many calls by one future,
//!   at less cost for each.
//! - Each connection has a task. It establishes the connection, then writes the envelopes that
//!   requests have queued and passes replies to their requests. One more task, the keeper, handles
//!   the timeouts of all pools and starts the connection tasks.
//! - [`Session::subscribe`] reports every change: [`Event::Mux`](poolhouse_driver::Event::Mux),
//!   [`Event::Cluster`](poolhouse_driver::Event::Cluster).
//!
//! The hosts are those of the options, and of [`Session::set_hosts`]. With
//! [`SessionOptions::contact_points`] the session finds them: its control task has a separate
//! connection to one node, reads the tables of nodes and keyspaces, and registers for events. Then
//! hosts are local or remote by their data centre, and a call whose values contain the partition key, or
//! with a [`routing`](Call::routing), goes to a node that has the data.
//! Values are serialized for statements that were [prepared](Session::prepare), by the application or by
//! the session, which prepares them again on hosts that do not have them. [`Call::rows`] is a stream of the
//! rows of a result, page after page, and [`Reply`] decodes those of one answer.
//! [`Session::use_keyspace`] changes the keyspace of statements that name none.
//!
//! The steps of one call: [`Call::send`] changes a host under its lock: the pool grants a
//! stream id, and the envelope is appended to the connection's output. The connection's task wakes,
//! takes the whole output, writes it, and reads. When the answer arrives, the task stores it in the
//! request's slot, again under the lock, and wakes the request's task.

mod batch;
mod call;
mod control;
mod error;
mod failure;
mod host;
mod keyspace;
mod link;
mod options;
mod pages;
mod plan;
mod prepared;
mod reply;
mod request;
mod request_all;
mod retry;
mod routing;
mod schema;
mod speculation;
mod status;
#[cfg(test)]
mod tests;
mod timed;

pub use batch::Batch;
pub use call::Call;
pub use error::{KeyspaceError, Rejection, RejectionReason, RequestError, ServerError, UnknownDataCenter};
pub use options::{
    AddressTranslator, CqlCredential, CqlHost, HostFilter, LOWER_VERSION_FOR, PORT_DEFAULT, SessionOptions,
};
pub use pages::{Pages, RowStream};
pub use poolhouse_core::cluster::{ClusterEvent, ClusterOptions, ClusterQuery};
pub use poolhouse_core::mux::{
    AcquireError, Distance, HostOptions, HostState, MuxClosed, MuxConfig, MuxConnId, MuxEvent, MuxId, MuxOptions,
};
pub use prepared::Statement;
pub use reply::Reply;
pub use retry::RetryPolicy;
pub use routing::Routing;
pub use speculation::Speculation;
pub use status::{ClusterStatus, ConnectionStatus, HostStatus, NodeStatus};

use super::events::{Events, System};
use super::fork::ProcessFuture;
use super::tasks::Tasks;
use super::{CloseOnDrop, Error, Net, OptionError, Platform, fork, lock};
#[cfg(feature = "tls")]
use crate::tls::{TlsConfig, TlsWarning};
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use control::Discovery;
use core::fmt;
use core::future::pending;
use core::pin::pin;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::task::Poll;
use event_listener::Event;
use hashbrown::{HashMap, HashSet};
use host::{Change, Effects, Host, Turn};
use plan::Hosts;
use poolhouse_core::{Instant, ServerId};
use poolhouse_driver::{
    BaseRuntime as _, EventKinds, EventRef, Guarded, OperationError, Publish, SUBSCRIPTION_EVENTS, Subscribers,
    Subscription, TaskGuard,
};
use prepared::Statements;
use std::hash::RandomState;
use std::sync::Mutex;

/// A session: a handle that is cheap to clone and share. Dropping the last clone ends its
/// background tasks.
///
/// In the child of a fork, a session of the parent process is inert, and its requests fail with
/// [`RequestError::Forked`]: see the guide [`forking`](crate::guide::forking).
pub struct Session<P: Platform> {
    inner: Arc<Inner<P>>,
}

struct Inner<P: Platform> {
    shared: Arc<Shared<P>>,
    tasks: Arc<Tasks<P>>,
}

/// State that the handles and the tasks of a session share.
struct Shared<P: Platform> {
    runtime: Net<P>,
    options: SessionOptions,
    hosts: Mutex<Arc<Hosts>>,
    /// The pool options in force.
    mux: Mutex<MuxOptions>,
    /// The keyspace of new connections. Locked before a host, not after it.
    keyspace: Mutex<Option<Arc<str>>>,
    /// The statements that were prepared for texts with values.
    statements: Mutex<Statements>,
    /// Counts query plans. Each plan begins at the next host.
    turns: AtomicUsize,
    /// Counts the plans of speculative requests: their attempts also count in `turns`.
    speculations: AtomicUsize,
    events: Events,
    /// The nodes of the cluster, if the session discovers its hosts.
    discovery: Option<Mutex<Discovery>>,
    /// Ends the control task.
    closing: Event,
    /// Connections that need a task, in their order. Locked before a host, not after it.
    starting: Mutex<VecDeque<(Arc<Host>, MuxConnId)>>,
    /// The number of attempts to connect, for hosts without an open connection when they began.
    first_dials: AtomicUsize,
    /// The number of attempts for hosts that had one.
    further_dials: AtomicUsize,
    /// Wakes the keeper task: to start connection tasks, for an earlier deadline, or to end.
    keeper: Event,
    /// Whether a batch near the server's limit was logged.
    #[cfg(feature = "tracing")]
    has_warned_of_batch: AtomicBool,
    closed: AtomicBool,
    abandoned: AtomicBool,
}

/// Returns the id of a new pool. It is unique among all sessions of the process, also if hosts come and go for
/// years.
fn next_pool() -> MuxId {
    // Not an atomic number, because some platforms have none of 64 bits.
    static NEXT: Mutex<u64> = Mutex::new(0);
    let mut next = lock(&NEXT);
    *next += 1;
    MuxId::new(*next)
}

/// The maximum number of attempts to connect at the same time, so that a server that names thousands of nodes
/// does not use up the process's descriptors.
const DIALS_MAX: usize = 32;
/// As many of these are kept for hosts without a connection for which requests wait, and as many for further
/// connections of hosts that have one: nodes that never answer cannot use them up.
const DIALS_RESERVED: usize = 8;

impl<P: Platform + Default> Session<P> {
    /// Creates a session with these hosts. Starts its background tasks and returns; the first
    /// requests wait for connections.
    ///
    /// With TLS, reads the files that the options name, or the platform's certificate store.
    ///
    /// # Errors
    ///
    /// The errors of [`SessionOptions::validate`]. With the feature `tls`, `SetupError::Tls`: a
    /// file cannot be read or used. [`SetupError::Forked`](crate::SetupError::Forked): in the child
    /// of a fork, see the guide [`forking`](crate::guide::forking). On an error no task was
    /// started.
    pub fn new(options: SessionOptions) -> Result<Self, Error> {
        Self::with_platform(P::default(), options, Subscribers::default())
    }

    /// [`Session::new`] with a subscription that receives all events from the first.
    ///
    /// # Errors
    ///
    /// As [`Session::new`].
    pub fn new_subscribed(options: SessionOptions) -> Result<(Self, Subscription), Error> {
        let events = Subscribers::default();
        let subscription = events.subscribe(EventKinds::ALL, SUBSCRIPTION_EVENTS, |_| true);
        Ok((Self::with_platform(P::default(), options, events)?, subscription))
    }
}

impl<P: Platform> Session<P> {
    /// Creates a session on this platform. All its events, from the first, go to `events`.
    ///
    /// # Errors
    ///
    /// As [`Session::new`].
    pub fn with_platform(platform: P, options: SessionOptions, events: Subscribers) -> Result<Self, Error> {
        fork::check::<P>()?;
        options.validate()?;
        let runtime = Net::new(platform).with_resolver(options.resolver.clone());
        #[cfg(feature = "tls")]
        let runtime = runtime.with_tls(options.tls.as_ref().map(TlsConfig::build).transpose()?);
        let events = Events::new(
            System::Cassandra,
            events,
            #[cfg(feature = "tracing")]
            options.log,
        );
        #[cfg(all(feature = "tls", feature = "tracing"))]
        for warning in runtime.tls().map_or(&[][..], TlsConfig::warnings) {
            events.logs().warn_of_options(warning);
        }
        fork::begin::<P>()?;
        let tasks = Arc::new(Tasks::new(events.subscribers().clone()));
        let discovery = options.discovers_hosts.then(|| {
            let platform = runtime.platform();
            Mutex::new(Discovery::new(platform.now(), &options, platform.entropy().into()))
        });
        let shared = Arc::new(Shared {
            runtime,
            discovery,
            closing: Event::new(),
            hosts: Mutex::default(),
            mux: Mutex::new(options.mux),
            keyspace: Mutex::new(options.keyspace.as_deref().map(Arc::from)),
            statements: Mutex::new(Statements::new()),
            turns: AtomicUsize::new(0),
            speculations: AtomicUsize::new(0),
            events,
            starting: Mutex::default(),
            first_dials: AtomicUsize::new(0),
            further_dials: AtomicUsize::new(0),
            keeper: Event::new(),
            #[cfg(feature = "tracing")]
            has_warned_of_batch: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            options,
        });
        shared.put_hosts(&shared.options.hosts)?;
        let starting = Arc::downgrade(&tasks);
        let keeper = TaskGuard::new(Arc::clone(&shared), None).run(move |shared| keep(shared, Weak::clone(&starting)));
        tasks.spawn(shared.runtime.platform(), keeper);
        if shared.discovery.is_some() {
            let control = TaskGuard::new(Arc::clone(&shared), None).run(control::run);
            tasks.spawn(shared.runtime.platform(), control);
        }
        Ok(Self { inner: Arc::new(Inner { shared, tasks }) })
    }

    /// Returns the options with which the session was created. The options of its pools, its hosts
    /// and its keyspace may have changed since then.
    #[must_use]
    pub fn options(&self) -> &SessionOptions {
        &self.inner.shared.options
    }

    /// Returns the status of each host and its pool, local hosts first. Hosts are read one after
    /// the other. Empty in the child of a fork.
    #[must_use]
    pub fn hosts(&self) -> Vec<HostStatus> {
        let shared = &self.inner.shared;
        if shared.is_forked() {
            return Vec::new();
        }
        let now = shared.now();
        shared.hosts().all().iter().map(|host| HostStatus::of(now, host)).collect()
    }

    /// Returns what the session has found out about the cluster. `None` if it does not discover its
    /// hosts, and in the child of a fork.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterStatus> {
        let shared = &self.inner.shared;
        let discovery = shared.discovery.as_ref().filter(|_| !shared.is_forked())?;
        let hosts = shared.hosts();
        Some(lock(discovery).status(&hosts))
    }

    /// Replaces the hosts. Hosts that stay keep their pools and get their new distance. The pools
    /// of removed hosts are closed, and the requests on them fail.
    ///
    /// # Errors
    ///
    /// [`SetupError::Config`](crate::SetupError::Config),
    /// [`SetupError::Option`](crate::SetupError::Option): a host is invalid, or the session discovers
    /// its hosts; nothing has changed.
    /// [`OperationError::Forked`]: in the child of a fork.
    pub fn set_hosts(&self, hosts: &[CqlHost]) -> Result<(), Error> {
        let shared = &self.inner.shared;
        if shared.is_forked() {
            return Err(OperationError::Forked.into());
        }
        if shared.discovery.is_some() {
            let addresses: Vec<&str> = hosts.iter().map(|host| &*host.address).collect();
            let rule = "be left to the session, which discovers them";
            return Err(OptionError::new("hosts", &addresses.join(","), rule).into());
        }
        options::check_hosts(hosts)?;
        shared.put_hosts(hosts)
    }

    /// Returns the pool options in force.
    #[must_use]
    pub fn mux_options(&self) -> MuxOptions {
        if self.inner.shared.is_forked() { self.inner.shared.options.mux } else { *lock(&self.inner.shared.mux) }
    }

    /// Replaces the options of the pools of all hosts, including hosts that are added later.
    /// `distance` stays that of each host, and `streams_per_connection` does not change.
    ///
    /// # Errors
    ///
    /// [`SetupError::Config`](crate::SetupError::Config): an option is out of its range; nothing has
    /// changed.
    /// [`OperationError::Forked`]: in the child of a fork.
    pub fn set_mux_options(&self, options: MuxOptions) -> Result<(), Error> {
        let shared = &self.inner.shared;
        if shared.is_forked() {
            return Err(OperationError::Forked.into());
        }
        options.validate()?;
        let (now, mut effects) = (shared.now(), Effects::default());
        {
            // Locked until all pools are reconfigured: two such changes must not interleave.
            let mut mux = lock(&shared.mux);
            let options = MuxOptions { streams_per_connection: mux.streams_per_connection, ..options };
            options.validate()?;
            *mux = options;
            for host in shared.hosts().all() {
                let distance = host.look(now, |mux, _, _| mux.config().options().distance);
                let config = MuxOptions { distance, ..options }.validate()?;
                host.change(now, &mut effects, |change| change.reconfigure(config));
            }
        }
        shared.run_effects(&mut effects);
        Ok(())
    }

    /// Subscribes to all events from now on. Up to 1,024 events are kept for a reader that lags
    /// behind.
    #[must_use]
    pub fn subscribe(&self) -> Subscription {
        self.subscribe_where(|_| true)
    }

    /// Subscribes to the events for which `filter` returns true. The filter is called under a lock:
    /// it must only inspect the event, and must not call the client or session. If it panics, the
    /// subscription ends before that event.
    #[must_use]
    pub fn subscribe_where(&self, filter: impl Fn(&EventRef<'_>) -> bool + Send + 'static) -> Subscription {
        self.inner.shared.events.subscribers().subscribe(EventKinds::ALL, SUBSCRIPTION_EVENTS, filter)
    }

    /// Returns the warnings about the TLS options; empty without TLS. With the feature `tracing`,
    /// they were also logged.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_warnings(&self) -> &[TlsWarning] {
        self.inner.shared.runtime.tls().map_or(&[], TlsConfig::warnings)
    }

    /// Returns the current time of the clock of events and deadlines.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.inner.shared.now()
    }

    /// Closes the session: closes its connections, and requests fail with [`RequestError::Closed`].
    /// Returns when all background tasks have ended, and ends the subscriptions. If the future is
    /// dropped before that, the subscriptions end at once, and the tasks end in the background. In
    /// the child of a fork it returns and closes nothing.
    pub async fn close(&self) {
        let shared = &self.inner.shared;
        if shared.is_forked() {
            return;
        }
        let _subscribers = CloseOnDrop(shared.events.subscribers());
        shared.close();
        self.inner.tasks.all_ended().await;
        shared.runtime.discard_lookups();
    }
}

impl<P: Platform> Clone for Session<P> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<P: Platform> fmt::Debug for Session<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("hosts", &self.hosts()).finish_non_exhaustive()
    }
}

impl<P: Platform> Drop for Inner<P> {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            // Leaked on purpose: the tasks and the wakers belong to threads of the parent process.
            core::mem::forget((Arc::clone(&self.shared), Arc::clone(&self.tasks)));
            return;
        }
        self.shared.close();
        self.shared.events.subscribers().close();
    }
}

impl<P: Platform> Shared<P> {
    #[inline]
    fn now(&self) -> Instant {
        self.runtime.now()
    }

    #[inline]
    fn is_forked(&self) -> bool {
        self.runtime.is_forked()
    }

    #[inline]
    fn check_fork(&self) -> Result<(), RequestError> {
        if self.is_forked() { Err(RequestError::Forked) } else { Ok(()) }
    }

    fn check_open(&self) -> Result<(), RequestError> {
        if self.abandoned.load(Ordering::Acquire) {
            Err(RequestError::Abandoned)
        } else if self.closed.load(Ordering::Acquire) {
            Err(RequestError::Closed)
        } else {
            Ok(())
        }
    }

    fn hosts(&self) -> Arc<Hosts> {
        Arc::clone(&lock(&self.hosts))
    }

    /// Changes a host under its lock, then runs the effects.
    #[inline]
    fn step<T>(&self, host: &Arc<Host>, change: impl FnOnce(&mut Change<'_>) -> T) -> T {
        self.step_at(self.now(), host, change)
    }

    /// [`Self::step`] with a time that was just read from the clock.
    #[inline]
    fn step_at<T>(&self, now: Instant, host: &Arc<Host>, change: impl FnOnce(&mut Change<'_>) -> T) -> T {
        let mut effects = Effects::default();
        let result = host.change(now, &mut effects, change);
        self.run_effects(&mut effects);
        result
    }

    /// [`Self::step`] in the drop of a request's future. Drops the result of `change`.
    #[cold]
    fn step_in_drop<T>(&self, host: &Arc<Host>, change: impl FnOnce(&mut Change<'_>) -> T) {
        // In the child of a fork, the request belongs to the parent process.
        if self.is_forked() {
            return;
        }
        // The drop may run during a panic of the clock. A time in the past is safe: a pool replaces
        // it by the latest time that it has received.
        let now = Net::<P>::contain(|| self.now()).unwrap_or(Instant::ORIGIN);
        drop(self.step_at(now, host, change));
    }

    /// Runs the effects of changes.
    #[inline]
    fn run_effects(&self, effects: &mut Effects) {
        if effects.wake_keeper {
            effects.wake_keeper = false;
            lock(&self.starting).extend(effects.establish.drain(..));
            self.keeper.notify(usize::MAX);
        }
        effects.wake_all();
        effects.dropped = None;
        self.events.deliver();
    }

    /// Replaces the hosts: adds and reconfigures pools, and closes those of removed hosts.
    fn put_hosts(&self, wanted: &[CqlHost]) -> Result<(), Error> {
        let [hosts, removed] = self.replace_hosts(wanted, &[], |hosts| hosts)?;
        self.reconfigure(&hosts, &removed);
        Ok(())
    }

    /// Replaces the hosts. [`Self::reconfigure`] has to follow for those that are returned: the present hosts, and the
    /// removed ones.
    ///
    /// - `created`: hosts that exist already, for new addresses.
    /// - `complete`: adds what else is known of the hosts.
    fn replace_hosts(
        &self,
        wanted: &[CqlHost],
        created: &[Arc<Host>],
        complete: impl FnOnce(Hosts) -> Hosts,
    ) -> Result<[Vec<Arc<Host>>; 2], Error> {
        let mux = lock(&self.mux);
        let before = self.hosts();
        // There may be thousands of hosts, and a search of the list for each of them would take
        // milliseconds.
        let known: HashMap<&str, &Arc<Host>, RandomState> =
            created.iter().chain(before.all()).map(|host| (host.address.as_str(), host)).collect();
        let kept: HashSet<&str, RandomState> = wanted.iter().map(|address| address.address.as_str()).collect();
        let mut hosts = Vec::with_capacity(wanted.len());
        for address in wanted {
            let host = match known.get(address.address.as_str()) {
                Some(host) => Arc::clone(host),
                None => self.new_host(address, MuxOptions { distance: address.distance, ..*mux }.validate()?),
            };
            hosts.push((address.distance, host));
        }
        *lock(&self.hosts) = Arc::new(complete(Hosts::new(hosts.clone())));
        drop(mux);
        let removed = before.all().iter().filter(|host| !kept.contains(host.address.as_str())).cloned().collect();
        if self.closed.load(Ordering::Acquire) {
            self.close();
        }
        Ok([hosts.into_iter().map(|(_, host)| host).collect(), removed])
    }

    /// Reconfigures the pools of these hosts, and closes those of removed ones.
    fn reconfigure(&self, hosts: &[Arc<Host>], removed: &[Arc<Host>]) {
        let (now, mut effects) = (self.now(), Effects::default());
        // Locked until they are reconfigured: another change of the options must not interleave. Another thread
        // may have replaced the hosts meanwhile, so their distance is that of now.
        let mux = lock(&self.mux);
        let current = self.hosts();
        for host in hosts {
            let Some(distance) = current.distance(host.id) else { continue };
            // They were valid with another distance.
            let Ok(config) = MuxOptions { distance, ..*mux }.validate() else { continue };
            host.change(now, &mut effects, |change| change.reconfigure(config));
        }
        drop(mux);
        for host in removed {
            host.change(now, &mut effects, |change| change.close());
        }
        self.run_effects(&mut effects);
        if self.closed.load(Ordering::Acquire) {
            self.close();
        }
    }

    /// Creates a host. Its pool has no connections until it is one of the hosts.
    fn new_host(&self, address: &CqlHost, config: MuxConfig) -> Arc<Host> {
        let (version, limits) = (self.options.version, self.options.limits());
        let host = Host::new(self.now(), next_pool(), address, config, version, limits, &self.events);
        Arc::new(host.with_entropy(self.runtime.platform().entropy()))
    }

    /// Takes the connections whose turn it is, as long as there are not too many attempts. Forgets those that are no
    /// longer needed: nodes may come and go faster than they are connected to.
    fn next_to_start(self: &Arc<Self>) -> Vec<link::End<P>> {
        // Before the lock, which an attempt takes that a panic drops.
        let mut taken = Vec::new();
        let mut starting = lock(&self.starting);
        for turn in [Turn::Awaited, Turn::First, Turn::Further] {
            if turn != Turn::Awaited && !self.may_dial(turn) {
                continue;
            }
            starting.retain(|(host, conn)| {
                let found = host.turn(*conn);
                let is_taken = found == Some(turn) && self.may_dial(turn);
                if is_taken {
                    taken.push(link::End::new(Arc::clone(self), Arc::clone(host), *conn, turn));
                }
                found.is_some() && !is_taken
            });
        }
        taken
    }

    /// Whether one more attempt may begin.
    fn may_dial(&self, turn: Turn) -> bool {
        let (first, further) = (self.first_dials.load(Ordering::Acquire), self.further_dials.load(Ordering::Acquire));
        let is_reserve_left = first + further < DIALS_MAX - DIALS_RESERVED;
        match turn {
            Turn::Awaited => first < DIALS_MAX - DIALS_RESERVED && first + further < DIALS_MAX,
            Turn::First => first < DIALS_MAX - 2 * DIALS_RESERVED && is_reserve_left,
            Turn::Further => further < DIALS_RESERVED || is_reserve_left,
            Turn::Later => false,
        }
    }

    /// Takes the connections of a host without an open one whose turn has not come.
    fn take_later(&self, host: &Arc<Host>) -> Vec<MuxConnId> {
        let mut starting = lock(&self.starting);
        let mut taken = Vec::new();
        starting.retain(|(other, conn)| {
            let is_taken = Arc::ptr_eq(host, other) && host.turn(*conn) == Some(Turn::Later);
            if is_taken {
                taken.push(*conn);
            }
            !is_taken
        });
        taken
    }

    /// Closes every pool permanently. Requests in progress fail.
    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for host in self.hosts().all() {
            self.step(host, |change| change.close());
        }
        self.keeper.notify(usize::MAX);
        self.closing.notify(usize::MAX);
    }

    /// Returns the output of a future, or `None` once the session is closed. The future is dropped then.
    async fn unless_closed<F: Future>(&self, work: F) -> Option<F::Output> {
        // Registered before the state is read: no notification is missed.
        let mut closing = pin!(ProcessFuture::new(self.closing.listen()));
        if self.closed.load(Ordering::Acquire) {
            return None;
        }
        let mut work = pin!(work);
        // In the child of a fork, there is no notification.
        core::future::poll_fn(|context| match closing.as_mut().poll(context) {
            Poll::Ready(Some(())) => Poll::Ready(None),
            Poll::Ready(None) | Poll::Pending => work.as_mut().poll(context).map(Some),
        })
        .await
    }
}

impl<P: Platform> Guarded for Shared<P> {
    type Runtime = Net<P>;

    fn runtime(&self) -> &Net<P> {
        &self.runtime
    }

    fn abandon(&self, _server: Option<ServerId>) {
        if self.is_forked() {
            return;
        }
        if !self.closed.load(Ordering::Acquire) {
            self.abandoned.store(true, Ordering::Release);
        }
        self.close();
    }
}

/// Handles the timeouts of all pools, and starts the tasks of their connections, until the session
/// is closed.
async fn keep<P: Platform>(shared: Arc<Shared<P>>, tasks: Weak<Tasks<P>>) {
    loop {
        // Registered before the state is read: no notification is missed.
        let woken = shared.keeper.listen();
        // Each reports the connection's end to the pool, even if its task never runs.
        for end in shared.next_to_start() {
            let Some(tasks) = tasks.upgrade() else { return };
            let platform = shared.runtime.platform();
            let shared = Arc::clone(&shared);
            tasks.spawn(platform, async move {
                let mut end = Some(end);
                // If a panic has dropped `end`, a second call has no work left.
                let link = move |_| {
                    let end = end.take();
                    async move {
                        if let Some(end) = end {
                            link::run(end).await;
                        }
                    }
                };
                TaskGuard::new(shared, None).run(link).await;
            });
        }
        let mut next = None;
        for host in shared.hosts().all() {
            let armed = match host.armed() {
                Some(at) if at <= shared.now() => shared.step(host, |change| change.expire()),
                later => later,
            };
            next = [next, armed].into_iter().flatten().min();
        }
        if shared.closed.load(Ordering::Acquire) {
            return;
        }
        let mut woken = pin!(ProcessFuture::new(woken));
        let mut expiry = pin!(async {
            match next {
                Some(at) => shared.runtime.sleep_until(at).await,
                None => pending().await,
            }
        });
        core::future::poll_fn(|context| match woken.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => expiry.as_mut().poll(context),
        })
        .await;
    }
}
