//! What an adapter supplies.

#[cfg(test)]
mod tests;

use super::event::Publish;
use super::server::{NewServer, Server, ServerState};
use core::ops::Deref;
use core::task::Waker;
use embedded_io_async::{ErrorType, Read, Write};
use poolhouse_core::pool::Memory;
use poolhouse_core::storage::Full;
use poolhouse_core::{Cause, HostAddress, Instant, Reason, topology};
use poolhouse_wire::Sink;

/// A runtime: its clock, its timers, its sockets, its lock, and where things are kept.
///
/// Whether the futures of the shell are `Send` follows from these types.
pub trait Runtime: Sized + 'static {
    /// A connected socket, TLS included. Dropping it closes it without waiting. With [`HubConfig::late_reply`](super::HubConfig::late_reply),
    /// a read that is dropped before it is done must lose no bytes.
    type Stream: Read + Write;
    /// What bytes are read into and written from.
    type Buffer: Buffer;
    /// A lock around a value. Held for short, never across an await.
    type Lock<T>: Lock<T>;
    /// Where pools keep their slots, and the shell what belongs to them.
    type Memory: Memory;
    /// Where the topology keeps its servers.
    type Topology: topology::Memory;
    /// An address, or another short text.
    type Text: AsRef<str> + for<'a> TryFrom<&'a str> + Clone;
    /// What all handles of one server share: [`Runtime::Lock`], or a reference to a place in a static.
    type ServerLock: Locked<ServerState<Self>>;
    /// A shared server: `Arc<Server<Self>>`, or a `Server<Self>` whose lock is itself a counted reference.
    type ServerHandle: Deref<Target = Server<Self>> + Clone + Unpin;
    /// Where events go.
    type Events: Publish;

    /// Nanoseconds since an origin of the adapter's choice, on a clock that does not go back.
    fn now(&self) -> Instant;

    /// Uniform random bits, for choices among equals; need not be secret.
    fn entropy(&self) -> u32;

    /// Random bytes that nobody can guess, for the nonces of authentication. `None`, the default, is that there are none:
    /// then no connection is authenticated.
    fn secret_entropy(&self) -> Option<[u8; 24]> {
        None
    }

    /// Returns once `now()` is at least `at`; never earlier.
    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()>;

    /// Connects to an address, TLS included. The shell bounds the time, and drops the future when it gives up.
    ///
    /// - `deadline`: when it will, as far as it says so. An address that is still being looked up then is for the runtime to give up, with
    ///   [`Cause::Dns`]: only it knows that it was not the server that did not answer.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] with the cause: [`Cause::Dns`], [`Cause::Network`], and of TLS [`Cause::Certificate`] or [`Cause::Protocol`], with the
    /// error itself as the reason on hosts with a heap.
    fn connect(
        &self,
        address: &HostAddress<'_>,
        deadline: Option<Instant>,
    ) -> impl Future<Output = Result<Self::Stream, ConnectError>>;

    /// What an error of a stream is: [`Cause::Network`], unless the stream does TLS and it is of that.
    fn stream_cause(_error: &<Self::Stream as ErrorType>::Error) -> Cause {
        Cause::Network
    }

    /// An error of a stream as the reason of another one. [`Reason::NONE`], by default.
    fn stream_reason(_error: <Self::Stream as ErrorType>::Error) -> Reason {
        Reason::NONE
    }

    /// Whether only the server can read what a connection carries: TLS that verifies the server, or a Unix domain socket. No, by default: then
    /// passwords are not sent as they are, unless [`Login`](super::Login) allows it.
    fn is_private(&self, _stream: &Self::Stream) -> bool {
        false
    }

    /// Whether a connection is encrypted, also to a server that is not verified, or is a Unix domain socket. If it is neither, an error gets the hint that the
    /// server may require TLS. [`Runtime::is_private`], by default.
    fn is_encrypted(&self, stream: &Self::Stream) -> bool {
        self.is_private(stream)
    }

    /// The buffers of a new connection: what it reads into, and what it writes from.
    ///
    /// # Errors
    ///
    /// [`Full`] when there are none left.
    fn buffers(&self, stream: &Self::Stream) -> Result<(Self::Buffer, Self::Buffer), Full>;

    /// Runs what may panic; `None` if it did. That is caught at the seams to what is not the shell's: tasks of the background, wakers that are woken,
    /// sockets that are dropped.
    ///
    /// By default nothing is caught, for firmware. Whoever overrides it, with `std::panic::catch_unwind`, overrides [`Runtime::keep_up`] too.
    #[inline]
    fn contain<T>(work: impl FnOnce() -> T) -> Option<T> {
        Some(work())
    }

    /// Does work of the background until it comes to its own end. Whether it did: if not, the client is closed, see [`Attendance`](super::Attendance).
    ///
    /// - `begin`: makes a future of the work.
    ///
    /// By default a panic of the work is one of the task that polls it. Where panics are caught, [`restart`](super::restart) is this method.
    fn keep_up<F: Future<Output = ()>>(&self, mut begin: impl FnMut() -> F) -> impl Future<Output = bool> {
        async move {
            begin().await;
            true
        }
    }

    /// Whether there is a place for one more server. Asked before each; one that has none now has its turn with the next news of any other, and whenever
    /// [`Hub::next_server`](super::Hub::next_server) is asked.
    fn has_place(&self) -> bool {
        true
    }

    /// Whether this process is a fork of the one that the runtime was made in, so that its sockets and threads are another's. No, by default.
    ///
    /// Asked at each poll: a load and a comparison, no system call. In such a child operations fail with
    /// [`OperationError::Forked`](super::OperationError::Forked), and what they have is not returned. Left for the runtime to see to: a stream
    /// that is dropped there says nothing and leaves its socket alone; the tasks of servers are neither polled nor dropped.
    #[inline]
    fn is_inherited(&self) -> bool {
        false
    }

    /// Puts a server where it can be shared: see [`NewServer::share`].
    ///
    /// # Errors
    ///
    /// [`Full`] when there is no place left.
    fn share_server(&self, server: NewServer<Self>) -> Result<Self::ServerHandle, Full>;
}

/// Mutual exclusion.
pub trait Locked<T> {
    /// Runs `f` with the value. `f` is short, awaits nothing and takes no lock that is ordered before this one.
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R;

    /// The same if nobody holds the lock now; `None` if somebody does. For the child of a fork, where that may be a thread that is not there; a lock
    /// that no fork can find held needs no other than this.
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        Some(self.with(f))
    }
}

/// A lock that holds its value: `std::sync::Mutex`, or a critical section.
pub trait Lock<T>: Locked<T> {
    /// A lock around `value`.
    fn new(value: T) -> Self;
}

/// Bytes of one connection: a [`Sink`] to encode into, and a place to read into.
pub trait Buffer: Sink {
    /// Makes the written part exactly `len` bytes long; new bytes have any value.
    ///
    /// # Errors
    ///
    /// [`Full`] when the buffer cannot become as long; it stays as it was.
    fn resize(&mut self, len: usize) -> Result<(), Full>;

    /// How long the written part can become without the buffer growing.
    fn capacity(&self) -> usize;

    /// How long the written part can ever become.
    fn limit(&self) -> usize;

    /// Gives memory back after an unusually large message.
    fn shrink(&mut self, _len: usize) {}
}

/// A connection could not be made: `could not connect: network error: Connection refused (os error 111)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ConnectError {
    /// Why.
    pub cause: Cause,
    /// The error of the operating system, TLS or the resolver.
    pub reason: Reason,
}

impl ConnectError {
    /// For this cause, with the error beneath it.
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

impl core::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(self.reason.source().unwrap_or(&self.cause))
    }
}

/// Keeps the waker of one task under a lock, unless `place` has one of the same task.
///
/// - `waker`: a clone that the caller made before it took the lock. Afterwards it is the waker that is not kept, which the caller drops when it has
///   released the lock: `clone` and `drop` of a waker run code of the executor, which may panic or call the client.
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
    /// A panic under the lock does not poison it: the machines change themselves in steps that leave them whole.
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
            self.try_reserve(len - self.len()).map_err(|_| Full)?;
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
