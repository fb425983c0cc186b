//! The asynchronous driver: client, guard and tasks, written once for every runtime.
//!
//! It uses `core::future` and `core::task` only. An adapter implements [`Runtime`] (clock, timers, sockets, lock) and starts
//! the tasks that the driver asks for; see `poolhouse-smol` for one of a few hundred lines.
//!
//! - [`Hub`]: what all handles of a client share; selection and check-out begin here.
//! - [`Server`]: one server's pool, with its sockets and those who wait for them.
//! - [`Guard`]: a connection that is checked out.
//! - [`ServerTask`]: what runs in the background for each server.
//!
//! # Cancellation
//!
//! Any future of the driver may be dropped at any await. A check-out that is dropped leaves its queue, and returns a
//! connection that it had been granted; a guard that is dropped while a reply is outstanding has its
//! connection closed, unless the reply comes soon and can be thrown away. Nothing is lost, and nobody reads somebody else's reply.
//!
//! The tasks in the background are what everybody else relies on: one that is dropped closes the client ([`Attendance`]). Where the runtime catches panics
//! ([`Runtime::contain`]), one of a timer, a socket or a waker costs one attempt, and the task begins again.
//!
//! # What a check-out costs
//!
//! With a connection available, no subscriber and no `maxIdleTimeMS`, [`Hub::check_out_of`] and the drop of its guard allocate nothing, read no clock, and take
//! some 490 instructions on x86-64, the hosted client's own future and the choice of the server not counted; `tests/scripts/instructions` counts all three. Of these the pool
//! itself is a quarter, the two locks a seventh, the future with its waker and its server's handle a third; the guard and the socket's way into it and back are the
//! rest. Where the time matters, two reads of a hosted clock and the work with the times add some 250. After a change that leaves a pool owing nothing the driver
//! does not search for effects, and where there is a heap a connection is moved by its address.
//!
//! In the child of a fork a hub is inert: see [`Hub::reset_after_fork`] and [`Runtime::is_inherited`].
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod attend;
#[cfg(feature = "std")]
mod backlog;
mod connection;
#[cfg(feature = "alloc")]
mod drain;
mod error;
mod event;
mod failure;
mod fork;
mod guard;
mod hub;
mod login;
mod operation;
mod packing;
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
#[cfg(feature = "std")]
#[cfg(test)]
mod tests;
mod warm_up;

pub use attend::{Attendance, restart};
#[doc(hidden)]
#[cfg(feature = "std")]
pub use backlog::{Backlog, Next};
pub use connection::ExchangeError;
pub use error::{CheckOutFailure, OperationError, SelectionReport, ServerAddress};
#[cfg(feature = "alloc")]
pub use event::Event;
#[doc(hidden)]
pub use event::Tap;
pub use event::{EventRef, Publish};
#[doc(hidden)]
#[cfg(feature = "std")]
pub use fork::Birth;
pub use fork::ForkReset;
pub use guard::{CheckingOut, Guard};
pub use hub::{Hub, HubConfig, LATE_REPLY, ServerSnapshot};
pub use login::{Login, LoginFailure, LoginReport};
pub use operation::{AttemptError, Attempts, CommandOptions, RetryPolicy};
pub use read_preference::append_read_preference;
#[doc(hidden)]
pub use runtime::register;
pub use runtime::{Buffer, ConnectError, Lock, Locked, Runtime};
pub use select::Wanted;
pub use server::{NewServer, PoolSnapshot, Server, ServerState};
#[cfg(feature = "std")]
pub use subscriber::{Notice, SUBSCRIPTION_BYTES, SUBSCRIPTION_EVENTS, Subscribers, Subscription};
pub use task::ServerTask;
