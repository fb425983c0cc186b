//! Sessions: requests to the hosts of a cluster over multiplexed pools, in Cassandra's native protocol.
//!
//! A [`Session`] has a [pool](poolhouse_core::mux) for each host. A request takes a stream id of one of its connections; many are in flight on each, and replies come in
//! any order. What is in a request and in a reply is the business of whoever sends it: see [`wire::cql`](poolhouse_cql).
//!
//! - [`Session::request`] asks the next host by the query plan. Dropping its future gives the request up at any point.
//! - Each connection has a task that establishes it, then writes what requests have left for it, and hands out the replies. One more task keeps the time of
//!   all, and starts those.
//! - [`Session::subscribe`] tells of every change: [`Event::Mux`](poolhouse_driver::Event::Mux).
//!
//! What a session does not do: find the hosts of a cluster ([`Session::set_hosts`] is for whoever does), listen to their events, know which host has
//! which data, prepare statements again.
//!
//! One request, as it travels: [`Session::request`] takes a host's `Turn`, in which the pool grants a stream id and the envelope is appended to what the connection
//! has to send; its task wakes, takes all of that, writes it, reads, and in another turn leaves the answer in the request's slot and wakes it.

mod error;
mod host;
mod link;
mod options;
mod plan;
mod reply;
mod request;
mod status;
#[cfg(test)]
mod tests;

pub use error::{Rejection, RejectionReason, RequestError, ServerError};
pub use options::{CqlCredential, CqlHost, LOWER_VERSION_FOR, PORT_DEFAULT, SessionOptions};
pub use poolhouse_core::mux::{
    AcquireError, Distance, HostOptions, HostState, MuxClosed, MuxConfig, MuxConnId, MuxEvent, MuxId, MuxOptions,
};
pub use reply::Reply;
pub use request::RequestOptions;
pub use status::{ConnectionStatus, HostStatus};

use super::fork::Bound;
use super::tasks::Tasks;
use super::{CloseOnDrop, Error, Net, Platform, SetupError, fork, lock};
#[cfg(feature = "tls")]
use crate::tls::{TlsConfig, TlsWarning};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use core::future::pending;
use core::pin::pin;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use core::task::{Poll, Waker};
use event_listener::Event as Bell;
use host::{Host, Outside, Turn};
use plan::Hosts;
use poolhouse_core::Instant;
use poolhouse_driver::{EventRef, Publish, Runtime, SUBSCRIPTION_EVENTS, Subscribers, Subscription};
use std::sync::Mutex;

/// A session: a handle that is cheap to clone and share. Its last clone's drop ends its background tasks.
///
/// In the child of a fork an inherited session is inert, and its requests fail with [`RequestError::Forked`]: see the guide
/// [`forking`](crate::guide::forking).
pub struct Session<P: Platform> {
    inner: Arc<Inner<P>>,
}

struct Inner<P: Platform> {
    shared: Arc<Shared<P>>,
    tasks: Arc<Tasks<P>>,
}

/// What the handles and the tasks of a session share.
struct Shared<P: Platform> {
    runtime: Net<P>,
    options: SessionOptions,
    hosts: Mutex<Arc<Hosts>>,
    /// The options of pools that are in force.
    mux: Mutex<MuxOptions>,
    /// Who begins the next plan.
    turns: AtomicUsize,
    events: Subscribers,
    /// Connections whose tasks are to be started.
    starting: Mutex<Vec<(Arc<Host>, MuxConnId)>>,
    /// Tells the keeper that there is something to do.
    bell: Bell,
    closed: AtomicBool,
    abandoned: AtomicBool,
}

/// Pools of all sessions of the process have different numbers.
static NEXT_POOL: AtomicU32 = AtomicU32::new(0);

impl<P: Platform + Default> Session<P> {
    /// A session with these hosts. Starts its background tasks and returns; the first requests wait for connections.
    ///
    /// With TLS it reads the files that the options name, or the platform's store of certificates.
    ///
    /// # Errors
    ///
    /// Those of [`SessionOptions::validate`]; with the feature `tls`, `SetupError::Tls` for a file that cannot be read or used. [`SetupError::Forked`] in the child of a
    /// fork: see the guide [`forking`](crate::guide::forking). Nothing was started.
    pub fn new(options: SessionOptions) -> Result<Self, Error> {
        Self::with_platform(P::default(), options, Subscribers::default())
    }

    /// [`Session::new`] with a subscription that misses nothing.
    ///
    /// # Errors
    ///
    /// As [`Session::new`].
    pub fn new_subscribed(options: SessionOptions) -> Result<(Self, Subscription), Error> {
        let events = Subscribers::default();
        let subscription = events.subscribe(SUBSCRIPTION_EVENTS, |_| true);
        Ok((Self::with_platform(P::default(), options, events)?, subscription))
    }
}

impl<P: Platform> Session<P> {
    /// A session on this platform, whose events go to `events` from the first.
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
        #[cfg(all(feature = "tls", feature = "tracing"))]
        for warning in runtime.tls().map_or(&[][..], TlsConfig::warnings) {
            crate::log::Logs::default().warn_of_options(warning);
        }
        fork::begin::<P>()?;
        let tasks = Arc::new(Tasks::new(events.clone()));
        let shared = Arc::new(Shared {
            runtime,
            hosts: Mutex::default(),
            mux: Mutex::new(options.mux),
            turns: AtomicUsize::new(0),
            events,
            starting: Mutex::default(),
            bell: Bell::new(),
            closed: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            options,
        });
        shared.put_hosts(&shared.options.hosts)?;
        let attendance = Attendance { shared: Arc::clone(&shared), ended: false };
        let starting = Arc::downgrade(&tasks);
        tasks.spawn(shared.runtime.platform(), async move {
            let mut attendance = attendance;
            let shared = Arc::clone(&attendance.shared);
            let keeping = || keep(Arc::clone(&shared), Weak::clone(&starting));
            attendance.ended = shared.runtime.keep_up(keeping).await;
        });
        Ok(Self { inner: Arc::new(Inner { shared, tasks }) })
    }

    /// The options that it was made with. Those of its pools and its hosts may have changed since.
    #[must_use]
    pub fn options(&self) -> &SessionOptions {
        &self.inner.shared.options
    }

    /// What is known of each host and its pool, the near ones first; one after the other. Nothing in the child of a fork.
    #[must_use]
    pub fn hosts(&self) -> Vec<HostStatus> {
        let shared = &self.inner.shared;
        if shared.is_inherited() {
            return Vec::new();
        }
        let now = shared.now();
        shared.hosts().all().iter().map(|host| HostStatus::of(now, host)).collect()
    }

    /// Puts other hosts in force. Those that were there keep their pools and get the distance that they have now; the pools of those that are not there any more are
    /// closed, and the requests on them fail.
    ///
    /// # Errors
    ///
    /// [`SetupError::Config`], [`SetupError::Option`]: nothing has changed. [`SetupError::Forked`].
    pub fn set_hosts(&self, hosts: &[CqlHost]) -> Result<(), Error> {
        let shared = &self.inner.shared;
        if shared.is_inherited() {
            return Err(SetupError::Forked.into());
        }
        options::check_hosts(hosts)?;
        shared.put_hosts(hosts)
    }

    /// The options of pools that are in force.
    #[must_use]
    pub fn mux_options(&self) -> MuxOptions {
        if self.inner.shared.is_inherited() { self.inner.shared.options.mux } else { *lock(&self.inner.shared.mux) }
    }

    /// Puts other options in force for the pools of all hosts, those that will be added too. Their distance is that of each host, and `streams_per_connection` stays
    /// as it is.
    ///
    /// # Errors
    ///
    /// [`SetupError::Config`]: an option is out of its range; nothing has changed. [`SetupError::Forked`].
    pub fn set_mux_options(&self, options: MuxOptions) -> Result<(), Error> {
        let shared = &self.inner.shared;
        if shared.is_inherited() {
            return Err(SetupError::Forked.into());
        }
        options.validate()?;
        let (now, mut changes) = (shared.now(), Changes::default());
        {
            // One such change at a time.
            let mut mux = lock(&shared.mux);
            let options = MuxOptions { streams_per_connection: mux.streams_per_connection, ..options };
            options.validate()?;
            *mux = options;
            for host in shared.hosts().all() {
                let distance = host.look(now, |mux, _, _| mux.config().options().distance);
                let config = MuxOptions { distance, ..options }.validate()?;
                changes.make(shared, host, |turn| turn.reconfigure(config));
            }
        }
        changes.carry_out(shared);
        Ok(())
    }

    /// Listens to everything that happens from now on. Up to 1,024 events are kept for a reader that is behind.
    #[must_use]
    pub fn subscribe(&self) -> Subscription {
        self.subscribe_where(|_| true)
    }

    /// Listens to the events that pass a filter, which must only look. If it panics, the subscription ends before that event.
    #[must_use]
    pub fn subscribe_where(&self, filter: impl Fn(&EventRef<'_>) -> bool + Send + Sync + 'static) -> Subscription {
        self.inner.shared.events.subscribe(SUBSCRIPTION_EVENTS, filter)
    }

    /// What is to be said, loudly, about the TLS options; nothing where there is no TLS. With the feature `tracing` it has been logged.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_warnings(&self) -> &[TlsWarning] {
        self.inner.shared.runtime.tls().map_or(&[], TlsConfig::warnings)
    }

    /// The clock of events and deadlines.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.inner.shared.now()
    }

    /// Closes the session: its connections are closed, and requests fail with [`RequestError::Closed`]. Returns when all background tasks have ended, and
    /// ends the subscriptions; if it is dropped before, those end at once, and the tasks by themselves. In the child of a fork it returns, and nothing is closed.
    pub async fn close(&self) {
        let shared = &self.inner.shared;
        if shared.is_inherited() {
            return;
        }
        let _subscribers = CloseOnDrop(&shared.events);
        shared.close();
        self.inner.tasks.all_ended().await;
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
        if self.shared.is_inherited() {
            // What they hold is kept for ever: tasks, and the wakers of those who wait, are other threads'.
            core::mem::forget((Arc::clone(&self.shared), Arc::clone(&self.tasks)));
            return;
        }
        self.shared.close();
        self.shared.events.close();
    }
}

impl<P: Platform> Shared<P> {
    #[inline]
    fn now(&self) -> Instant {
        self.runtime.now()
    }

    #[inline]
    fn is_inherited(&self) -> bool {
        self.runtime.is_inherited()
    }

    #[inline]
    fn check_fork(&self) -> Result<(), RequestError> {
        if self.is_inherited() { Err(RequestError::Forked) } else { Ok(()) }
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

    /// Changes a host, and does what follows from it.
    #[inline]
    fn turn<T>(&self, host: &Arc<Host>, act: impl FnOnce(&mut Turn<'_>) -> T) -> T {
        self.turn_at(self.now(), host, act)
    }

    /// The same for who has just looked at the clock.
    #[inline]
    fn turn_at<T>(&self, now: Instant, host: &Arc<Host>, act: impl FnOnce(&mut Turn<'_>) -> T) -> T {
        let mut outside = Outside::default();
        let result = host.turn(now, &self.events, &mut outside, act);
        self.carry_out(host, outside);
        result
    }

    #[inline]
    fn turn_with<T>(&self, host: &Host, outside: &mut Outside, act: impl FnOnce(&mut Turn<'_>) -> T) -> T {
        host.turn(self.now(), &self.events, outside, act)
    }

    /// What is to be done after a turn. The room of its wakers.
    #[inline]
    fn carry_out(&self, host: &Arc<Host>, mut outside: Outside) -> Vec<Waker> {
        if !outside.establish.is_empty() {
            let new = outside.establish.drain(..).map(|conn| (Arc::clone(host), conn));
            lock(&self.starting).extend(new);
            outside.ring = true;
        }
        if outside.ring {
            self.bell.notify(usize::MAX);
        }
        let room = outside.wake_all();
        self.events.deliver();
        room
    }

    /// Makes the list of hosts what it is to be.
    fn put_hosts(&self, wanted: &[CqlHost]) -> Result<(), Error> {
        let mut changes = Changes::default();
        let mux = lock(&self.mux);
        let before = self.hosts();
        let mut hosts = Vec::with_capacity(wanted.len());
        for address in wanted {
            let config = MuxOptions { distance: address.distance, ..*mux }.validate()?;
            let known = before.all().iter().find(|host| host.address == address.address);
            let host = match known {
                Some(host) => Arc::clone(host),
                None => {
                    let id = MuxId::new(NEXT_POOL.fetch_add(1, Ordering::Relaxed));
                    let (version, limits) = (self.options.version, self.options.limits());
                    Arc::new(Host::new(self.now(), id, address, config, version, limits, &self.events))
                }
            };
            hosts.push((address.distance, host, config));
        }
        let listed = hosts.iter().map(|(distance, host, _)| (*distance, Arc::clone(host))).collect();
        *lock(&self.hosts) = Arc::new(Hosts::new(listed));
        for (_, host, config) in &hosts {
            changes.make(self, host, |turn| turn.reconfigure(*config));
        }
        for host in before.all().iter().filter(|host| !hosts.iter().any(|(_, kept, _)| Arc::ptr_eq(host, kept))) {
            changes.make(self, host, |turn| turn.close());
        }
        drop(mux);
        changes.carry_out(self);
        if self.closed.load(Ordering::Acquire) {
            self.close();
        }
        Ok(())
    }

    /// The next connection whose task is to be started.
    fn next_to_start(&self) -> Option<(Arc<Host>, MuxConnId)> {
        lock(&self.starting).pop()
    }

    /// Closes every pool for good. Whoever has a request hears of it.
    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for host in self.hosts().all() {
            self.turn(host, |turn| turn.close());
        }
        self.bell.notify(usize::MAX);
    }
}

/// Changes that are made together, under a lock: what follows from them is done after it.
#[derive(Default)]
struct Changes(Vec<(Arc<Host>, Outside)>);

impl Changes {
    fn make<P: Platform>(&mut self, shared: &Shared<P>, host: &Arc<Host>, change: impl FnOnce(&mut Turn<'_>)) {
        let mut outside = Outside::default();
        shared.turn_with(host, &mut outside, change);
        self.0.push((Arc::clone(host), outside));
    }

    fn carry_out<P: Platform>(self, shared: &Shared<P>) {
        for (host, outside) in self.0 {
            shared.carry_out(&host, outside);
        }
    }
}

/// Held by each task of a session. One that is dropped before its end, as by an executor that ends, closes the session.
struct Attendance<P: Platform> {
    shared: Arc<Shared<P>>,
    ended: bool,
}

impl<P: Platform> Drop for Attendance<P> {
    fn drop(&mut self) {
        if self.ended || self.shared.is_inherited() {
            return;
        }
        if !self.shared.closed.load(Ordering::Acquire) {
            self.shared.abandoned.store(true, Ordering::Release);
        }
        // Perhaps in the middle of a panic, in which there must be no other. A clock that panics once more has panicked before anything was done.
        let _closed = (0..3).any(|_| Net::<P>::contain(|| self.shared.close()).is_some());
    }
}

/// Keeps the time of all pools, and starts the tasks of their connections, until the session is closed.
async fn keep<P: Platform>(shared: Arc<Shared<P>>, tasks: Weak<Tasks<P>>) {
    loop {
        // From here on nothing is missed.
        let bell = shared.bell.listen();
        while let Some((host, conn)) = shared.next_to_start() {
            // Whatever becomes of its task, begun or not, the pool hears of it.
            let end = link::End::new(Arc::clone(&shared), host, conn);
            let Some(tasks) = tasks.upgrade() else { return };
            let platform = shared.runtime.platform();
            let shared = Arc::clone(&shared);
            tasks.spawn(platform, async move {
                let mut end = Some(end);
                // What panics is at its end: the second time there is nothing to do.
                let linked = || {
                    let end = end.take();
                    async {
                        if let Some(end) = end {
                            link::run(end).await;
                        }
                    }
                };
                let work = Arc::clone(&shared);
                let mut linking = pin!(work.runtime.keep_up(linked));
                // Dropped before the work: whoever has a request on it hears that the session is abandoned.
                let mut attendance = Attendance { shared, ended: false };
                linking.as_mut().await;
                attendance.ended = true;
            });
        }
        let mut next = None;
        for host in shared.hosts().all() {
            let due = match host.alarm() {
                Some(at) if at <= shared.now() => shared.turn(host, |turn| turn.expire()),
                later => later,
            };
            next = [next, due].into_iter().flatten().min();
        }
        if shared.closed.load(Ordering::Acquire) {
            return;
        }
        let mut bell = pin!(Bound::new(bell));
        let mut alarm = pin!(async {
            match next {
                Some(at) => shared.runtime.sleep_until(at).await,
                None => pending().await,
            }
        });
        core::future::poll_fn(|context| match bell.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => alarm.as_mut().poll(context),
        })
        .await;
    }
}
