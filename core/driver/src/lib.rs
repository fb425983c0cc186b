//! The asynchronous driver: client, guard and tasks, written once for every runtime.
//!
//! Use it for an adapter without a heap, without threads or with custom memory. Platforms with
//! threads and sockets need only `poolhouse-client`, and applications only an adapter, such as
//! `poolhouse-smol`.
//!
#![cfg_attr(not(doctest), doc = include_str!("example.md"))]
//!
//! The driver uses only `core::future` and `core::task`. An adapter implements [`BaseRuntime`]
//! (clock, timers, locks) and [`Runtime`] (sockets), and starts the tasks that the driver requires.
//! Read next: the guide `adapter` of `poolhouse-client`, which has a complete one.
//!
//! - [`ClientCore`]: the client core, which all handles of a client share; selects servers and
//!   checks connections out.
//! - [`Server`]: one server's pool, with its sockets and its waiters.
//! - [`Guard`]: a connection that is checked out.
//! - [`ServerTask`]: a background task of a server.
//! - [`pool::Pool`]: a pool of any other connections.
//!
//! # Cancellation
//!
//! Each future of the driver may be dropped at each await. A check-out that is dropped leaves the
//! queue, and returns a connection that was already granted. A guard that is dropped while a reply
//! is outstanding closes its connection, unless the reply arrives soon and can be discarded. No
//! connection is lost, and no operation receives the reply to another one.
//!
//! All operations depend on the background tasks: if one is dropped, the client is closed
//! ([`TaskGuard`]). If the runtime catches panics ([`BaseRuntime::contain`]), a panic of a timer, a
//! socket or a waker fails one attempt, and the task starts again.
//!
//! # Cost of a check-out
//!
//! With a connection available, no subscriber, no `maxIdleTimeMS` and no check-out just before that
//! waited, [`ClientCore::check_out_of`] and the drop of its guard allocate nothing, do not read the
//! clock, and execute some 530 instructions on x86-64, without the hosted client's own future and
//! the selection of the server; `tests/scripts/instructions` counts all three. Of these the pool
//! itself is a quarter, the two locks a seventh, the future with its waker and its server's handle
//! a third; the guard and moving the socket into it and back are the rest. If the time matters, two
//! reads of a hosted clock and the computations with times add some 250. After a change without
//! effects the driver does not search for effects, and with a heap a connection is moved by its
//! address.
//!
//! In the child of a fork a client core is inert: see [`ClientCore::reset_after_fork`] and
//! [`BaseRuntime::is_forked`].
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

#[cfg(feature = "std")]
mod backlog;
mod client_core;
mod close;
mod connection;
#[cfg(feature = "alloc")]
mod drain;
mod driven;
mod error;
mod event;
mod failure;
mod fork;
mod guard;
mod login;
mod metadata;
mod operation;
mod packing;
pub mod pool;
mod read_preference;
mod report;
mod runtime;
mod select;
mod server;
#[cfg(feature = "alloc")]
mod snapshot;
mod start;
#[cfg(feature = "std")]
mod subscriber;
mod task;
mod task_guard;
#[cfg(feature = "std")]
#[cfg(test)]
mod tests;
mod warm_up;

#[doc(hidden)]
#[cfg(feature = "std")]
pub use backlog::{Backlog, Next};
pub use client_core::{ClientCore, CoreConfig, DRAIN_TIMEOUT, ServerSnapshot};
pub use connection::ExchangeError;
#[doc(hidden)]
pub use connection::yield_now;
#[doc(hidden)]
pub use driven::is_earlier;
pub use error::{CheckOutFailure, OperationError, SelectionReport, ServerAddress};
#[doc(hidden)]
pub use event::Tap;
#[cfg(feature = "alloc")]
pub use event::{
    CommandEvent, CommandStage, Event, OwnedCommandEvent, OwnedSelectionEvent, SelectionEvent, SelectionStage,
};
pub use event::{EventKinds, EventRef, Publish};
#[doc(hidden)]
#[cfg(feature = "std")]
pub use fork::ForkGuard;
pub use fork::ForkReset;
pub use guard::{CheckingOut, Guard, Parked};
pub use login::{Login, LoginFailure, LoginReport};
pub use operation::{AttemptError, Attempts, CommandOptions, RetryPolicy, overload_pause};
pub use read_preference::append_read_preference;
#[doc(hidden)]
pub use runtime::register;
pub use runtime::{BaseRuntime, Buffer, ConnectError, Lock, Locked, Runtime};
pub use select::SelectionRequest;
pub use server::{NewServer, PoolSnapshot, Server, ServerState};
#[cfg(feature = "std")]
pub use subscriber::{Notice, SUBSCRIPTION_BYTES, SUBSCRIPTION_EVENTS, Subscribers, Subscription};
pub use task::ServerTask;
pub use task_guard::{Guarded, TaskGuard};
