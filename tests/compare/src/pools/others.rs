//! Other projects' pools and Poolhouse's, with connections that do nothing, and Poolhouse's client.

use super::peer::{LIMIT, Peer};
use core::convert::Infallible;
use core::time::Duration;
use mobc::async_trait;
use poolhouse_client::pool::{Manager, Pool, Pooled};
use poolhouse_client::{Client, Connection, Platform};

/// A manager that creates numbers, which are always healthy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers;

impl deadpool::managed::Manager for Numbers {
    type Type = u64;
    type Error = Infallible;

    async fn create(&self) -> Result<u64, Infallible> {
        Ok(0)
    }

    async fn recycle(
        &self,
        _: &mut u64,
        _: &deadpool::managed::Metrics,
    ) -> deadpool::managed::RecycleResult<Infallible> {
        Ok(())
    }
}

/// deadpool; `limit` is the time limit of a check-out.
pub(crate) fn deadpool(connections: usize, limit: Option<Duration>) -> Deadpool {
    let builder = deadpool::managed::Pool::builder(Numbers).max_size(connections).wait_timeout(limit);
    Deadpool(builder.runtime(deadpool::Runtime::Tokio1).build().expect("valid options"))
}

#[derive(Clone)]
pub(crate) struct Deadpool(deadpool::managed::Pool<Numbers>);

impl Peer for Deadpool {
    type Held<'a> = deadpool::managed::Object<Numbers>;

    async fn get(&self) -> Self::Held<'_> {
        self.0.get().await.expect("no wait reaches the time limit")
    }
}

impl bb8::ManageConnection for Numbers {
    type Connection = u64;
    type Error = Infallible;

    async fn connect(&self) -> Result<u64, Infallible> {
        Ok(0)
    }

    async fn is_valid(&self, _: &mut u64) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, _: &mut u64) -> bool {
        false
    }
}

/// bb8, which limits each wait.
pub(crate) async fn bb8(connections: u32) -> Bb8 {
    let builder = bb8::Pool::builder().max_size(connections).connection_timeout(LIMIT).test_on_check_out(false);
    match builder.min_idle(connections).build(Numbers).await {
        Ok(pool) => Bb8(pool),
        Err(error) => match error {},
    }
}

#[derive(Clone)]
pub(crate) struct Bb8(bb8::Pool<Numbers>);

impl Peer for Bb8 {
    type Held<'a> = bb8::PooledConnection<'a, Numbers>;

    async fn get(&self) -> Self::Held<'_> {
        self.0.get().await.expect("no wait reaches the time limit")
    }
}

#[async_trait]
impl mobc::Manager for Numbers {
    type Connection = u64;
    type Error = Infallible;

    async fn connect(&self) -> Result<u64, Infallible> {
        Ok(0)
    }

    async fn check(&self, connection: u64) -> Result<u64, Infallible> {
        Ok(connection)
    }
}

/// mobc, which keeps all its connections and limits each wait.
pub(crate) fn mobc(connections: u64) -> Mobc {
    let builder = mobc::Pool::builder().max_open(connections).max_idle(connections).get_timeout(Some(LIMIT));
    Mobc(builder.test_on_check_out(false).build(Numbers))
}

#[derive(Clone)]
pub(crate) struct Mobc(mobc::Pool<Numbers>);

impl Peer for Mobc {
    type Held<'a> = mobc::Connection<Numbers>;

    async fn get(&self) -> Self::Held<'_> {
        self.0.get().await.expect("no wait reaches the time limit")
    }
}

impl r2d2::ManageConnection for Numbers {
    type Connection = u64;
    type Error = Infallible;

    fn connect(&self) -> Result<u64, Infallible> {
        Ok(0)
    }

    fn is_valid(&self, _: &mut u64) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, _: &mut u64) -> bool {
        false
    }
}

#[qp::async_trait]
impl qp::resource::Manage for Numbers {
    type Output = u64;
    type Error = Infallible;

    async fn try_create(&self) -> Result<u64, Infallible> {
        Ok(0)
    }
}

/// qp, which has no time limits and no queue of waiters in their order.
pub(crate) fn qp(connections: usize) -> Qp {
    Qp(qp::Pool::new(Numbers, connections))
}

#[derive(Clone)]
pub(crate) struct Qp(qp::Pool<Numbers>);

impl Peer for Qp {
    type Held<'a> = qp::Pooled<'a, Numbers>;

    async fn get(&self) -> Self::Held<'_> {
        // Unchecked: `acquire` boxes a future for the check of the connection.
        match self.0.acquire_unchecked().await {
            Ok(held) => held,
            Err(error) => match error {},
        }
    }
}

/// r2d2, which blocks threads and limits each wait.
pub(crate) fn r2d2(connections: u32) -> r2d2::Pool<Numbers> {
    let builder = r2d2::Pool::builder().max_size(connections).connection_timeout(LIMIT).test_on_check_out(false);
    builder.build(Numbers).expect("connections that are always healthy")
}

impl Manager for Numbers {
    type Connection = u64;
    type Error = Infallible;

    async fn connect(&self) -> Result<u64, Infallible> {
        Ok(0)
    }
}

/// Poolhouse's pool of any connections; `limit` is the time limit of a check-out.
pub(crate) fn pool<P: Platform + Default>(connections: u32, limit: Option<Duration>) -> Generic<P> {
    let builder = Pool::builder(Numbers).max_size(connections).max_connecting(connections).wait_timeout(limit);
    Generic(builder.idle_timeout(None).max_lifetime(None).build().expect("valid options"))
}

pub(crate) struct Generic<P: Platform>(Pool<Numbers, P>);

impl<P: Platform> Clone for Generic<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Platform> Peer for Generic<P> {
    type Held<'a> = Pooled<Numbers, P>;

    async fn get(&self) -> Self::Held<'_> {
        self.0.get().await.expect("no wait reaches the time limit")
    }
}

/// Poolhouse's client: a check-out includes server selection, and the connections are real.
pub(crate) struct Shell<P: Platform> {
    pub(crate) client: Client<P>,
    /// Time limit of a check-out.
    pub(crate) limit: Option<Duration>,
}

impl<P: Platform> Clone for Shell<P> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), limit: self.limit }
    }
}

impl<P: Platform> Peer for Shell<P> {
    type Held<'a> = Connection<'a, P>;

    async fn get(&self) -> Self::Held<'_> {
        let connection = match self.limit {
            None => self.client.check_out().await,
            limit => self.client.check_out_timeout(limit).await,
        };
        connection.expect("no wait reaches the time limit")
    }
}
