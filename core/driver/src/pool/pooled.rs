//! A connection that is checked out.

use super::{BaseRuntime, Conn, Held, Lease, Manager, Pool};
use core::fmt;
use core::future::poll_fn;
use core::ops::{Deref, DerefMut};
use core::pin::pin;
use core::task::Poll;

/// A connection that is checked out, for the exclusive use of its owner. Dropping it returns it to
/// its pool.
///
/// After an error of the connection, call [`Pooled::mark_broken`], unless
/// [`Manager::is_broken`] detects the error: otherwise the next owner gets the connection. If the owner
/// panics, the connection is closed, unless the manager keeps it ([`Manager::survives_panic`]).
pub struct Pooled<M: Manager, R: BaseRuntime, H: Deref<Target = Pool<M, R>>> {
    pool: H,
    /// `None` once the connection was returned.
    connection: Option<Held<M::Connection>>,
}

impl<M: Manager, R: BaseRuntime, H: Deref<Target = Pool<M, R>>> Pooled<M, R, H> {
    #[inline]
    pub(super) fn new(pool: H, lease: Lease, mut connection: Held<M::Connection>) -> Self {
        connection.lease = Some(lease);
        Self { pool, connection: Some(connection) }
    }

    /// The pool.
    pub const fn pool(&self) -> &H {
        &self.pool
    }

    /// Closes the connection when it is dropped: it must not be used again.
    pub fn mark_broken(&mut self) {
        if let Some(conn) = &mut self.connection {
            conn.is_broken = true;
        }
    }

    /// Removes the connection from the pool, which may open another one for it.
    #[must_use]
    pub fn detach(mut self) -> M::Connection {
        let Some(mut held) = self.connection.take() else { unreachable!("only drop takes the connection") };
        if let Some(lease) = held.lease.take() {
            self.pool.give_back(lease, &mut None);
        }
        #[cfg(feature = "alloc")]
        let held = *held;
        held.connection
    }

    /// Whether the connection can be used: it is fresh, or it passes its check. If it does not, it
    /// is marked as broken; so it is if the future is dropped or the check panics.
    pub(super) async fn is_usable(&mut self) -> bool {
        let Self { pool, connection, .. } = self;
        let Some(conn) = connection else { return false };
        let conn: &mut Conn<M::Connection> = conn;
        if core::mem::replace(&mut conn.is_fresh, false) || !pool.config.options().check_before_reuse {
            return true;
        }
        conn.is_broken = true;
        let Some(check) = R::contain(|| pool.manager.check(&mut conn.connection)) else { return false };
        let mut check = pin!(check);
        let contained = poll_fn(|context| match R::contain(|| check.as_mut().poll(context)) {
            Some(polled) => polled.map(Some),
            None => Poll::Ready(None),
        });
        let checked = pool.limited(contained).await.flatten();
        conn.is_broken = !matches!(checked, Some(Ok(())));
        !conn.is_broken
    }

    /// Records that a check-out has the connection.
    pub(super) fn mark_used(&mut self) {
        if let Some(conn) = &mut self.connection {
            conn.is_fresh = false;
        }
    }

    #[inline]
    fn conn(&self) -> &M::Connection {
        match &self.connection {
            Some(conn) => &conn.connection,
            None => unreachable!("only drop takes the connection"),
        }
    }
}

impl<M: Manager, R: BaseRuntime, H: Deref<Target = Pool<M, R>>> Deref for Pooled<M, R, H> {
    type Target = M::Connection;

    #[inline]
    fn deref(&self) -> &M::Connection {
        self.conn()
    }
}

impl<M: Manager, R: BaseRuntime, H: Deref<Target = Pool<M, R>>> DerefMut for Pooled<M, R, H> {
    #[inline]
    fn deref_mut(&mut self) -> &mut M::Connection {
        match &mut self.connection {
            Some(conn) => &mut conn.connection,
            None => unreachable!("only drop takes the connection"),
        }
    }
}

impl<M: Manager, R: BaseRuntime, H: Deref<Target = Pool<M, R>>> Drop for Pooled<M, R, H> {
    #[inline]
    fn drop(&mut self) {
        let Self { pool, connection } = self;
        if let Some(lease) = connection.as_mut().and_then(|conn| conn.lease.take()) {
            pool.give_back(lease, connection);
        }
    }
}

impl<M: Manager<Connection: fmt::Debug>, R: BaseRuntime, H: Deref<Target = Pool<M, R>>> fmt::Debug for Pooled<M, R, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pooled").field(self.conn()).finish()
    }
}
