//! The interface that a runtime adapter implements.

#[cfg(test)]
mod tests;

use super::event::Publish;
use super::server::{NewServer, Server, ServerState};
use super::task_guard::{Guarded, TaskGuard};
use core::ops::Deref;
use core::task::Waker;
use embedded_io_async::{ErrorType, Read, Write};
use poolhouse_core::pool::Memory;
use poolhouse_core::storage::Full;
use poolhouse_core::{Cause, HostAddress, Instant, Reason, topology};
use poolhouse_wire::Sink;

/// What every pool requires: a clock, timers, locks, storage, a publisher of events and the
/// containment of panics.
///
/// The futures of the driver are `Send` if these types allow it.
pub trait BaseRuntime: Sized + 'static {
    /// A lock around a value. It is held briefly, never across an await.
    type Lock<T>: Lock<T>;
    /// The storage of pools, and of the driver's state for each slot of a pool.
    type Memory: Memory;
    /// An owned address of a server or name of a pool.
    type Text: AsRef<str> + for<'a> TryFrom<&'a str> + Clone;
    /// The publisher of events.
    type Events: Publish;

    /// Returns the time in nanoseconds since an origin of the adapter's choice, on a monotonic
    /// clock. It is called under the locks of the driver: it must not call the client, nor panic.
    fn now(&self) -> Instant;

    /// Returns uniform random bits, for choices among equals; they need not be secret. It is called
    /// under the locks of the driver: it must not call the client, nor panic.
    fn entropy(&self) -> u32;

    /// Returns when `now()` is at least `at`; never earlier.
    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()>;

    /// Runs code that may panic; returns `None` if it did. Called at the boundaries to foreign
    /// code: background tasks, wakers that are woken, sockets that are dropped.
    ///
    /// By default, for firmware, panics are not caught. A runtime that overrides this, with
    /// `std::panic::catch_unwind`, must override [`BaseRuntime::run_task`] too.
    #[inline]
    fn contain<T>(work: impl FnOnce() -> T) -> Option<T> {
        Some(work())
    }

    /// Runs a background task until it completes.
    ///
    /// - `guard`: closes the client if the task is dropped before that.
    /// - `begin`: creates the future of the work.
    ///
    /// By default a panic of the work propagates to the task that polls it. A runtime that catches
    /// panics uses [`TaskGuard::run_restarting`] here.
    fn run_task<T, F>(guard: TaskGuard<T>, begin: impl FnMut(T) -> F) -> impl Future<Output = ()>
    where
        T: Deref<Target: Guarded<Runtime = Self>> + Clone,
        F: Future<Output = ()>,
    {
        guard.run_once(begin)
    }

    /// Whether this process was forked from the one that created the runtime: then its sockets and
    /// threads belong to the parent. False, by default.
    ///
    /// Called at each poll, so it should cost a load and a comparison, without a system call. In a
    /// forked child operations fail with [`OperationError::Forked`](super::OperationError::Forked),
    /// and their connections are not returned. The runtime must ensure the rest: a stream that is
    /// dropped in the child sends nothing and leaves its socket untouched; the tasks of servers are
    /// neither polled nor dropped.
    #[inline]
    fn is_forked(&self) -> bool {
        false
    }
}

/// What a MongoDB client requires in addition: sockets, and storage for servers.
pub trait Runtime: BaseRuntime {
    /// A connected socket, TLS included. Dropping it closes it without waiting. With
    /// [`CoreConfig::drain_timeout`](super::CoreConfig::drain_timeout), a read that is dropped
    /// before it is done must not lose bytes.
    type Stream: Read + Write;
    /// The buffer of a socket, for received bytes or for bytes to send.
    type Buffer: Buffer;
    /// The storage of the topology's servers.
    type Topology: topology::Memory;
    /// The state that all handles of one server share: [`BaseRuntime::Lock`], or a reference to a
    /// slot in a static.
    type ServerLock: Locked<ServerState<Self>>;
    /// A shared server: `Arc<Server<Self>>`, or a `Server<Self>` with a lock that is a counted
    /// reference.
    type ServerHandle: Deref<Target = Server<Self>> + Clone + Unpin;

    /// Whether a closed client may be opened again ([`ClientCore::open`](super::ClientCore::open)). Then
    /// [`ClientCore::next_server`](super::ClientCore::next_server) and
    /// [`ClientCore::run_clock`](super::ClientCore::run_clock) wait while it is closed, instead of ending.
    const REOPENS: bool = false;

    /// Returns unpredictable random bytes for the nonces of authentication. `None`, the default, if
    /// there is no source of them: then no connection is authenticated.
    fn secret_entropy(&self) -> Option<[u8; 24]> {
        None
    }

    /// Connects to an address, TLS included. The driver bounds the time, and drops the future at
    /// its deadline.
    ///
    /// - `deadline`: that deadline, if there is one. If the address is still being resolved then,
    ///   the runtime must return [`Cause::Dns`]: only the runtime can distinguish this from a
    ///   server that does not respond.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] with the cause: [`Cause::Dns`], [`Cause::Network`], and for TLS
    /// [`Cause::Certificate`] or [`Cause::Protocol`]. With a heap, its reason is the underlying
    /// error.
    fn connect(
        &self,
        address: &HostAddress<'_>,
        deadline: Option<Instant>,
    ) -> impl Future<Output = Result<Self::Stream, ConnectError>>;

    /// Connects a monitor to an address, without a deadline: the driver drops the future when the monitor
    /// gives up. By default as [`connect`](Self::connect); a runtime with sockets of fixed sizes can have
    /// smaller ones for monitors, which send and receive nothing but hello.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    fn connect_monitor(&self, address: &HostAddress<'_>) -> impl Future<Output = Result<Self::Stream, ConnectError>> {
        self.connect(address, None)
    }

    /// Returns the cause of a stream's error: [`Cause::Network`], unless it is an error of TLS.
    fn stream_cause(_error: &<Self::Stream as ErrorType>::Error) -> Cause {
        Cause::Network
    }

    /// Converts a stream's error to the reason of another error. [`Reason::NONE`], by default.
    fn stream_reason(_error: <Self::Stream as ErrorType>::Error) -> Reason {
        Reason::NONE
    }

    /// Whether only the server can read the data on a connection: TLS that verifies the server, or
    /// a Unix domain socket. False, by default: then passwords are not sent in plain text, unless
    /// [`Login`](super::Login) allows it.
    fn is_private(&self, _stream: &Self::Stream) -> bool {
        false
    }

    /// Whether a connection is encrypted, with or without verification of the server, or is a Unix
    /// domain socket. If not, errors get the hint that the server may require TLS.
    /// [`Runtime::is_private`], by default.
    fn is_encrypted(&self, stream: &Self::Stream) -> bool {
        self.is_private(stream)
    }

    /// Returns the buffers of a new connection: for received bytes, and for bytes to send.
    ///
    /// # Errors
    ///
    /// [`Full`] when no buffer is free.
    fn buffers(&self, stream: &Self::Stream) -> Result<(Self::Buffer, Self::Buffer), Full>;

    /// Whether there is a free slot for one more server. Called before each server is added. A
    /// server without a slot is added later: this is called again at the next report about any
    /// server, and when [`ClientCore::next_server`](super::ClientCore::next_server) is polled.
    fn has_slot(&self) -> bool {
        true
    }

    /// Moves a server to shared storage: see [`NewServer::share`].
    ///
    /// # Errors
    ///
    /// [`Full`] when no slot is free.
    fn share_server(&self, server: NewServer<Self>) -> Result<Self::ServerHandle, Full>;
}

/// Mutual exclusion.
pub trait Locked<T> {
    /// Calls `f` with the value. `f` is short, awaits nothing and takes no lock that is ordered
    /// before this one.
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R;

    /// [`Locked::with`] if the lock is free; `None` if it is held. For a forked child, where the
    /// holder may be a thread that does not exist. A lock that cannot be held at a fork needs only
    /// this default.
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        Some(self.with(f))
    }
}

/// A lock that holds its value: `std::sync::Mutex`, or a critical section.
pub trait Lock<T>: Locked<T> {
    /// Creates a lock around `value`.
    fn new(value: T) -> Self;
}

/// The bytes of one connection: a [`Sink`] to encode into, and a buffer to read into.
pub trait Buffer: Sink {
    /// Changes the length of the written part to `len` bytes; new bytes have any value.
    ///
    /// # Errors
    ///
    /// [`Full`] when the buffer cannot become that long; it is unchanged then.
    fn resize(&mut self, len: usize) -> Result<(), Full>;

    /// Returns the length that the written part can have without growing the buffer.
    fn capacity(&self) -> usize;

    /// Returns the maximum length of the written part.
    fn limit(&self) -> usize;

    /// Frees memory after an unusually large message.
    fn shrink(&mut self, _len: usize) {}
}

/// A connection was not established:
/// `could not connect: network error: Connection refused (os error 111)`.
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ConnectError {
    /// The cause.
    pub cause: Cause,
    /// The error of the operating system, TLS or the resolver.
    pub reason: Reason,
}

impl ConnectError {
    /// Creates the error with this cause and the underlying error.
    #[must_use]
    pub const fn new(cause: Cause, reason: Reason) -> Self {
        Self { cause, reason }
    }
}

impl From<Cause> for ConnectError {
    fn from(cause: Cause) -> Self {
        Self::new(cause, Reason::NONE)
    }
}

impl core::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "could not connect: {}", self.cause)?;
        self.reason.append(f)
    }
}

poolhouse_wire::debug_as_display!(ConnectError);

impl core::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(self.reason.source().unwrap_or(&self.cause))
    }
}

/// Whether this thread unwinds from a panic.
#[cfg(feature = "std")]
#[inline]
pub(super) fn is_unwinding() -> bool {
    std::thread::panicking()
}

/// Whether this thread unwinds from a panic: firmware aborts instead.
#[cfg(not(feature = "std"))]
#[inline]
pub(super) const fn is_unwinding() -> bool {
    false
}

/// Stores the waker of a task under a lock, unless `place` has a waker of the same task.
///
/// - `waker`: a clone that the caller made before it took the lock. Afterwards it is the waker that
///   is not stored, and the caller drops it after it has released the lock: `clone` and `drop` of a
///   waker run code of the executor, which may panic or call the client.
#[inline]
#[doc(hidden)]
pub fn register(place: &mut Option<Waker>, waker: &mut Option<Waker>) {
    let is_kept = place.as_ref().zip(waker.as_ref()).is_some_and(|(kept, waker)| kept.will_wake(waker));
    if !is_kept {
        core::mem::swap(place, waker);
    }
}

#[cfg(feature = "std")]
impl<T> Lock<T> for std::sync::Mutex<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }
}

#[cfg(feature = "std")]
impl<T> Locked<T> for std::sync::Mutex<T> {
    /// A panic under the lock does not poison it: each step of a machine leaves it consistent.
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        match self.try_lock() {
            Ok(mut value) => Some(f(&mut value)),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(f(&mut poisoned.into_inner())),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(feature = "alloc")]
impl Buffer for alloc::vec::Vec<u8> {
    fn resize(&mut self, len: usize) -> Result<(), Full> {
        if len > self.capacity() {
            // The caller doubles the length of a buffer that grows.
            self.try_reserve_exact(len - self.len()).map_err(|_| Full)?;
        }
        self.resize(len, 0);
        Ok(())
    }

    fn capacity(&self) -> usize {
        self.capacity()
    }

    fn limit(&self) -> usize {
        usize::MAX
    }

    fn shrink(&mut self, len: usize) {
        self.truncate(len);
        self.shrink_to(len);
    }
}
