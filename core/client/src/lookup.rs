//! Lookups of host names by the platform, which the attempts of a client to connect share.
//!
//! Most platforms look a name up on a thread that cannot be interrupted (`getaddrinfo`). Such a lookup
//! that hangs therefore outlives the attempt that began it: it stays outstanding, later attempts for
//! the same host join it, and the number of outstanding ones is limited, so the client uses few of
//! the threads that it shares with the application.

#[cfg(test)]
mod tests;

use super::lock;
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::future::poll_fn;
use core::net::SocketAddr;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use event_listener::Event;
use poolhouse_core::observe::contain;
use poolhouse_core::{Cause, Instant, Reason};
use poolhouse_driver::ConnectError;
use std::io;
use std::sync::Mutex;

/// The maximum number of outstanding lookups of a client.
const LOOKUPS_MAX: usize = 4;
/// The age from which a result that nobody waited for is not used.
const RESULT_AGE_MAX: Duration = Duration::from_secs(30);

/// The addresses of a host, with any port.
pub(super) type Found = Result<Vec<SocketAddr>, ConnectError>;
/// A lookup in progress.
pub(super) type Work = Pin<Box<dyn Future<Output = Found> + Send>>;

/// The lookups of a client: at most one for each host.
#[derive(Default)]
pub(super) struct Lookups {
    outstanding: Mutex<Vec<Lookup>>,
    changed: Arc<Changed>,
}

struct Lookup {
    host: String,
    state: State,
    /// The attempts that wait for the result.
    waiters: usize,
    /// When the last attempt joined. The result of a lookup without waiters has an unknown age, which is at
    /// most the time since then.
    joined_at: Instant,
}

enum State {
    Going(Work),
    /// An attempt polls it at this moment.
    Polled,
    Done(Found),
}

/// Wakes the attempts that wait, after a change of any lookup.
#[derive(Default)]
struct Changed(Event);

impl Wake for Changed {
    fn wake(self: Arc<Self>) {
        self.0.notify(usize::MAX);
    }
}

impl Lookups {
    /// Returns the addresses of a host: joins its lookup, or begins one as soon as fewer than
    /// [`LOOKUPS_MAX`] are outstanding. Cancel-safe: the lookup stays outstanding.
    ///
    /// - `begin`: creates a lookup of this host. Its panic is an error of the lookup.
    pub(super) async fn find(&self, host: &str, now: impl Fn() -> Instant, begin: impl Fn() -> Work) -> Found {
        let mut waiter = Waiter { lookups: self, host, has_joined: false };
        let mut listener = None;
        poll_fn(|context| {
            // Registered before the state is examined, so no change is missed.
            let changed = listener.get_or_insert_with(|| self.changed.0.listen());
            if let Some(found) = waiter.step(&now, &begin) {
                return Poll::Ready(found);
            }
            if Pin::new(changed).poll(context).is_ready() {
                // Other tasks run first: a lookup may wake itself each time that it is polled.
                listener = None;
                context.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await
    }

    /// Discards the lookups that nobody waits for. Their threads end when the system has answered.
    pub(super) fn discard_abandoned(&self) {
        let mut abandoned = Vec::new();
        let mut outstanding = lock(&self.outstanding);
        while let Some(place) = outstanding.iter().position(|lookup| lookup.waiters == 0) {
            abandoned.push(outstanding.swap_remove(place));
        }
        // Futures of the platform are dropped without the lock.
        drop(outstanding);
    }

    /// Polls the lookup of a host, without the lock.
    fn poll(&self, host: &str) {
        let Some(mut work) = lock(&self.outstanding).iter_mut().find_map(|lookup| lookup.take_work(host)) else {
            return;
        };
        let waker = Waker::from(Arc::clone(&self.changed));
        let polled = contain(|| work.as_mut().poll(&mut Context::from_waker(&waker)));
        let state = match polled {
            Some(Poll::Pending) => State::Going(work),
            Some(Poll::Ready(found)) => State::Done(found),
            None => {
                let reason = Reason::new(io::Error::other("the name lookup panicked"));
                State::Done(Err(ConnectError::new(Cause::Dns, reason)))
            }
        };
        let is_done = matches!(state, State::Done(_));
        if let Some(lookup) = lock(&self.outstanding).iter_mut().find(|lookup| lookup.host == host) {
            lookup.state = state;
        }
        if is_done {
            self.changed.0.notify(usize::MAX);
        }
    }

    /// Polls the lookups that nobody waits for, and removes those whose results are of no use.
    fn tidy(&self, now: Instant) {
        let is_abandoned = |lookup: &&Lookup| lookup.waiters == 0;
        let abandoned: Vec<_> =
            lock(&self.outstanding).iter().filter(is_abandoned).map(|lookup| lookup.host.clone()).collect();
        abandoned.iter().for_each(|host| self.poll(host));
        let mut outstanding = lock(&self.outstanding);
        // An attempt that joined one while it was polled here has not polled it, and must.
        let is_joined = outstanding.iter().any(|lookup| lookup.waiters > 0 && abandoned.contains(&lookup.host));
        outstanding.retain(|lookup| lookup.waiters > 0 || lookup.is_useful(now));
        drop(outstanding);
        if is_joined {
            self.changed.0.notify(usize::MAX);
        }
    }
}

impl Lookup {
    fn take_work(&mut self, host: &str) -> Option<Work> {
        if self.host != host || !matches!(self.state, State::Going(_)) {
            return None;
        }
        match core::mem::replace(&mut self.state, State::Polled) {
            State::Going(work) => Some(work),
            State::Polled | State::Done(_) => None,
        }
    }

    const fn is_done(&self) -> bool {
        matches!(self.state, State::Done(_))
    }

    /// Whether a later attempt can use the lookup: it goes on, or has found addresses a short time ago.
    fn is_useful(&self, now: Instant) -> bool {
        match &self.state {
            State::Going(_) | State::Polled => true,
            State::Done(found) => found.is_ok() && now < self.joined_at.saturating_add(RESULT_AGE_MAX),
        }
    }
}

/// An attempt that waits for a lookup.
struct Waiter<'l> {
    lookups: &'l Lookups,
    host: &'l str,
    has_joined: bool,
}

impl Waiter<'_> {
    /// Returns the result if the lookup has ended.
    fn step(&mut self, now: &impl Fn() -> Instant, begin: &impl Fn() -> Work) -> Option<Found> {
        let Self { lookups, host, .. } = *self;
        if !self.has_joined {
            self.join(now(), begin)?;
        }
        lookups.poll(host);
        let outstanding = lock(&lookups.outstanding);
        match &outstanding.iter().find(|lookup| lookup.host == host)?.state {
            State::Done(found) => Some(found.clone()),
            State::Going(_) | State::Polled => None,
        }
    }

    /// Joins the lookup of the host, or begins it. `None` if too many lookups are outstanding.
    fn join(&mut self, now: Instant, begin: &impl Fn() -> Work) -> Option<()> {
        let Self { lookups, host, .. } = *self;
        lookups.tidy(now);
        // Created without the lock: it clones the platform.
        let work = begin();
        let mut outstanding = lock(&lookups.outstanding);
        let place = match outstanding.iter().position(|lookup| lookup.host == host) {
            Some(place) => place,
            None if outstanding.iter().filter(|lookup| !lookup.is_done()).count() >= LOOKUPS_MAX => return None,
            None => {
                outstanding.push(Lookup {
                    host: host.to_owned(),
                    state: State::Going(work),
                    waiters: 0,
                    joined_at: now,
                });
                outstanding.len() - 1
            }
        };
        let lookup = outstanding.get_mut(place)?;
        lookup.waiters += 1;
        lookup.joined_at = now;
        self.has_joined = true;
        Some(())
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let Self { lookups, host, has_joined } = *self;
        let mut ended = None;
        if has_joined {
            let mut outstanding = lock(&lookups.outstanding);
            if let Some(place) = outstanding.iter().position(|lookup| lookup.host == host) {
                outstanding[place].waiters -= 1;
                if outstanding[place].waiters == 0 && outstanding[place].is_done() {
                    ended = Some(outstanding.swap_remove(place));
                }
            }
        }
        // Another attempt must poll the lookup, or can begin its own.
        lookups.changed.0.notify(usize::MAX);
        drop(ended);
    }
}
