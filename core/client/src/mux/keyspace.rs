//! The keyspace of statements that name none.
//!
//! [`Session::use_keyspace`] has two steps:
//!
//! - The attempt: a connection that serves no request is established with the keyspace, like those of
//!   the pools, and closed. If its server refuses the keyspace, nothing has changed.
//! - The change, within one poll: the name is stored, then the pool of each host replaces its
//!   connections. Dropping the future has an effect before it or after it, not between.
//!
//! The task of a connection reads the name when it begins, after the pool has requested the
//! connection. If it has read the old name, its pool replaces it in the change. A host that is not
//! among those of the change was added after the name was stored.
//!
//! So a request that begins after the call gets a stream id of a connection with the new keyspace. One
//! that has a stream id before the change is executed in the old keyspace, and one that waits then is
//! executed in the new one. Of two calls at the same time, the change of the second is last for the
//! name and for all pools, because the name is locked during a change.
//!
//! The control connection has no keyspace: its statements name the tables of the system.

use super::error::{KeyspaceError, Rejection, RejectionReason, RequestError};
use super::failure::text_of;
use super::host::{Effects, Host};
use super::link::establish_to;
use super::{Session, Shared};
use crate::fork::ProcessFuture;
use crate::{Platform, lock};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use poolhouse_core::Cause;
use poolhouse_core::mux::AcquireError;
use poolhouse_cql::{ErrorCode, is_keyspace_name};

impl<P: Platform> Session<P> {
    /// Sets the keyspace of statements that name none, for all connections. Requests that begin after
    /// the call use it, on each host; those that began before it use either keyspace.
    ///
    /// First one more connection is established with the keyspace, to the first host that accepts it,
    /// those with connections first, and closed. If this succeeds, all connections are replaced: those
    /// with requests in flight take no more, and are closed when these have ended. New connections use
    /// the keyspace until the next call.
    ///
    /// Call it before the load begins. Until the first new connection of a host is established, its
    /// requests go to hosts that are connected already, or wait in the queue of its pool: they fail beyond
    /// [`max_queue_size`](super::MuxOptions::max_queue_size) and after
    /// [`pool_timeout`](super::MuxOptions::pool_timeout). A pool that has grown begins again with
    /// `core_connections`.
    ///
    /// Prepare statements again after the call; texts with values are prepared again by themselves. An
    /// existing [`Statement`](super::Statement) keeps the keyspace in which it was prepared, on the hosts that
    /// have prepared it then; another host prepares its text in the new keyspace, which fails with
    /// [`ErrorCode::UNPREPARED`] or with the error of the server. This holds for executions that are in
    /// progress, too. Also begin new [`pages`](super::Call::pages): each page is a request.
    ///
    /// - `keyspace`: as [`SessionOptions::keyspace`](super::SessionOptions::keyspace), without quotation
    ///   marks. `CREATE KEYSPACE Shop` creates `shop`, and `CREATE KEYSPACE "Shop"` creates `Shop`. After
    ///   its creation by another client, wait for [`Session::schema_agreement`] first.
    ///
    /// Dropping the future changes nothing, unless it was ready. If several calls run at the same time,
    /// the keyspace is that of the last change.
    ///
    /// Cost: a connection to one host, then new connections to all. Time limits: `connect_timeout` for
    /// each host that is tried, `request_timeout` for the call.
    ///
    /// # Errors
    ///
    /// Nothing has changed. [`RequestError::Keyspace`]: no keyspace can have the name, or a server
    /// refuses it because it does not exist. [`RequestError::NoHost`]: no host accepts connections.
    /// [`RequestError::UnknownDataCenter`], [`RequestError::TimedOut`], [`RequestError::Closed`],
    /// [`RequestError::Abandoned`], [`RequestError::Forked`].
    ///
    /// # Example
    ///
    /// ```
    /// use poolhouse_client::Platform;
    /// use poolhouse_client::mux::{RequestError, Session};
    ///
    /// async fn archive<P: Platform>(session: &Session<P>) -> Result<(), RequestError> {
    ///     session.use_keyspace("archive").await?;
    ///     session.query("SELECT id FROM orders").send().await?; // Of archive.orders.
    ///     Ok(())
    /// }
    /// ```
    pub async fn use_keyspace(&self, keyspace: &str) -> Result<(), RequestError> {
        let shared = &*self.inner.shared;
        shared.check_fork()?;
        if !is_keyspace_name(keyspace) {
            return Err(refused(keyspace, None, String::new()));
        }
        // A child of a fork must neither poll nor drop the connection of the attempt.
        let attempt = ProcessFuture::new(shared.try_keyspace(keyspace));
        match shared.unless_closed(attempt).await {
            Some(Some(outcome)) => outcome?,
            Some(None) => return Err(RequestError::Forked),
            None => {
                shared.check_open()?;
                return Err(RequestError::Closed);
            }
        }
        shared.change_keyspace(keyspace);
        Ok(())
    }

    /// Returns the keyspace of statements that name none: that of the last [`Session::use_keyspace`],
    /// or of the options.
    #[must_use]
    pub fn keyspace(&self) -> Option<String> {
        let shared = &self.inner.shared;
        if shared.is_forked() {
            shared.options.keyspace.clone()
        } else {
            shared.keyspace().as_deref().map(String::from)
        }
    }
}

impl<P: Platform> Shared<P> {
    /// Returns the keyspace of new connections.
    pub(super) fn keyspace(&self) -> Option<Arc<str>> {
        lock(&self.keyspace).clone()
    }

    /// Establishes a connection with the keyspace to the first host that accepts connections, and closes
    /// it. Hosts with connections are tried first: the others may not answer.
    async fn try_keyspace(&self, keyspace: &str) -> Result<(), RequestError> {
        let until = self.options.request_timeout.map(|limit| self.now().saturating_add(limit));
        let (hosts, now) = (self.hosts(), self.now());
        let mut rejections = Vec::new();
        let is_connected = |host: &&Arc<Host>| host.look(now, |mux, _, _| mux.state().open > 0);
        let (connected, others): (Vec<_>, Vec<_>) = hosts.used().iter().partition(is_connected);
        for host in connected.into_iter().chain(others) {
            let failure = match self.until(until, establish_to(self, host, Some(keyspace))).await {
                Some(Ok(_)) => return Ok(()),
                Some(Err(failure)) => failure,
                None => return Err(RequestError::TimedOut { address: host.address.clone(), sent: false }),
            };
            let (cause, report) = (failure.cause, text_of(&failure.reason));
            // No server refuses another message of a handshake with this code.
            if cause == (Cause::Command { code: ErrorCode::INVALID.number() }) {
                return Err(refused(keyspace, Some(host.address.clone()), report.unwrap_or_default()));
            }
            rejections.push(Rejection {
                host: host.id,
                address: host.address.clone(),
                reason: RejectionReason::Pool(AcquireError::Down { cause }),
                refusal: report,
            });
        }
        Err(if rejections.is_empty() { self.no_host(false) } else { RequestError::NoHost(rejections) })
    }

    /// Stores the keyspace, then replaces the connections of all hosts.
    fn change_keyspace(&self, keyspace: &str) {
        let (now, mut effects) = (self.now(), Effects::default());
        {
            let mut current = lock(&self.keyspace);
            *current = Some(Arc::from(keyspace));
            for host in self.hosts().all() {
                host.change(now, &mut effects, |change| change.replace_connections());
            }
        }
        lock(&self.statements).clear();
        self.run_effects(&mut effects);
    }
}

fn refused(keyspace: &str, address: Option<String>, message: String) -> RequestError {
    RequestError::Keyspace(Box::new(KeyspaceError { keyspace: keyspace.into(), address, message }))
}
