//! A pool of any connections in static memory: keep-alive HTTP, Modbus-TCP or one's own protocol.
//!
//! Implement [`Manager`] for a type that opens connections. The pool has at most `CONNS`
//! connections and `WAITERS` waiting check-outs; nothing is allocated. The application runs
//! [`Pool::run_clock`] and [`Options::max_connecting`] times [`Pool::run_worker`] in its tasks; if
//! one of them is dropped, the pool is closed. [`poolhouse_driver::pool`] describes one check-out.
//!
//! [`TcpSockets`] has the sockets of connections by TCP, and closes them in order. The guide
//! [`firmware`](poolhouse_core::guide::firmware) begins with a pool of such connections.
//!
//! ```no_run
//! use poolhouse_embassy::pool::{Config, Manager, Options, Pool, open};
//!
//! struct Sensors;
//!
//! /// A connection to a sensor: here without a network.
//! struct Line;
//!
//! impl Manager for Sensors {
//!     type Connection = Line;
//!     type Error = &'static str;
//!
//!     async fn connect(&self) -> Result<Line, &'static str> {
//!         Ok(Line)
//!     }
//! }
//!
//! // A bad option fails the build.
//! const CONFIG: Config = match (Options { max_size: 2, max_connecting: 1, ..Options::DEFAULT }).validate() {
//!     Ok(config) => config,
//!     Err(_) => panic!("an option is out of its range"),
//! };
//!
//! // In a static, with static_cell: its tasks and check-outs borrow it for ever.
//! let pool: &'static Pool<Sensors, 2, 8> = Box::leak(Box::new(open(Sensors, CONFIG, &())));
//! let worker = async || Pool::run_worker(pool).await;
//! let clock = async || Pool::run_clock(pool).await;
//! let check_out = async || {
//!     let line = pool.get().await?;
//!     // Dropping the connection returns it.
//!     drop(line);
//!     Ok::<(), poolhouse_embassy::pool::PoolError<&'static str>>(())
//! };
//! # let _ = (worker, clock, check_out);
//! ```

mod tcp;

use crate::clock;
use crate::lock::ExecutorLock;
use core::fmt;
use core::marker::PhantomData;
use poolhouse_core::Instant;
pub use poolhouse_core::pool::Reuse;
use poolhouse_core::pool::{Fixed, PoolId};
pub use poolhouse_driver::pool::{Config, Manager, Options, PoolError, Pooled};
use poolhouse_driver::{BaseRuntime, Publish};
pub use tcp::{TcpBuffers, TcpConnection, TcpSockets};

/// A pool with room for `CONNS` connections and `WAITERS` waiting check-outs. `E` receives its
/// events.
pub type Pool<M, const CONNS: usize, const WAITERS: usize, E = ()> =
    poolhouse_driver::pool::Pool<M, PoolRuntime<CONNS, WAITERS, E>>;

/// Creates a pool. It opens no connection before its tasks run.
pub fn open<M: Manager, const CONNS: usize, const WAITERS: usize, E: Publish + 'static>(
    manager: M,
    config: Config,
    events: &E,
) -> Pool<M, CONNS, WAITERS, E> {
    Pool::new(manager, PoolRuntime(PhantomData), config, PoolId::new(0), heapless::String::new(), events)
}

/// The clock, timers and memory of a [`Pool`].
pub struct PoolRuntime<const CONNS: usize, const WAITERS: usize, E = ()>(PhantomData<fn() -> E>);

impl<const CONNS: usize, const WAITERS: usize, E: Publish + 'static> BaseRuntime for PoolRuntime<CONNS, WAITERS, E> {
    type Lock<T> = ExecutorLock<T>;
    type Memory = Fixed<CONNS, WAITERS>;
    type Text = heapless::String<16, u8>;
    type Events = E;

    #[inline]
    fn now(&self) -> Instant {
        clock::now()
    }

    fn entropy(&self) -> u32 {
        clock::entropy()
    }

    async fn sleep_until(&self, at: Instant) {
        clock::sleep_until(at).await;
    }
}

impl<const CONNS: usize, const WAITERS: usize, E> fmt::Debug for PoolRuntime<CONNS, WAITERS, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolRuntime").field("connections", &CONNS).field("waiters", &WAITERS).finish()
    }
}
