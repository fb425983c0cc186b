//! The record of a step of a pool: the call and all observed outputs.

use super::Event;
use poolhouse_core::pool::{CheckOutError, Clear, EstablishError, Health, PoolCounts, PoolOptions, PoolState};
use poolhouse_core::{Cause, Instant, ObjectId};

/// Capacities of the memory of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Room {
    /// Connections, including closed ones with an unpolled `Close`.
    pub conns: u32,
    /// Check-outs with an unclaimed outcome.
    pub waiters: u32,
    /// Services.
    pub services: u32,
}

impl Room {
    /// No limits: memory on the heap.
    pub const ENDLESS: Self = Self { conns: u32::MAX, waiters: u32::MAX, services: u32::MAX };
}

/// A call. Connections are identified by their numbers, and waiters by numbers that the recorder
/// assigns, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// The call is unknown: a trace that contains only events.
    Unseen,
    /// The pool was created.
    New,
    /// `check_out`.
    CheckOut {
        /// The deadline of the check-out.
        deadline: Option<Instant>,
    },
    /// `claim`; 0 for a check-out that has ended.
    Claim {
        /// Its number.
        waiter: u64,
    },
    /// `cancel`; 0 for a check-out that has ended.
    Cancel {
        /// Its number.
        waiter: u64,
    },
    /// `check_in`.
    CheckIn {
        /// The connection, or `None` for one of another pool.
        conn: Option<u64>,
        /// Its health.
        health: Health,
    },
    /// `ready`.
    Ready,
    /// `clear`.
    Clear {
        /// The connections to clear.
        clear: Clear,
        /// The cause.
        cause: Option<Cause>,
    },
    /// `close`.
    Close,
    /// `reset_after_fork`.
    Fork,
    /// `handle_service`.
    Service {
        /// The connection.
        conn: u64,
        /// The service that it reached.
        service: ObjectId,
    },
    /// `handle_established`.
    Established {
        /// The connection.
        conn: u64,
    },
    /// `handle_establish_failed`.
    EstablishFailed {
        /// The connection.
        conn: u64,
        /// The cause.
        error: EstablishError,
    },
    /// `pin`.
    Pin {
        /// The connection, or `None` for one of another pool.
        conn: Option<u64>,
    },
    /// `retire`.
    Retire {
        /// The connection.
        conn: u64,
    },
    /// `reconfigure`.
    Reconfigure {
        /// The options as they were passed.
        options: PoolOptions,
    },
    /// `set_fill_target`.
    Fill {
        /// The fill target.
        count: u32,
    },
    /// `handle_timeout`.
    Timeout,
    /// `poll_action`, `poll_establish` or `poll_prompt`.
    Poll(Owed),
}

/// The kind of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owed {
    /// Any owed action.
    Any,
    /// An establishment.
    Establish,
    /// Any action except an establishment.
    Prompt,
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// No value.
    None,
    /// `Ok(())`.
    Done,
    /// A connection is granted.
    Granted(u64),
    /// The check-out waits, under this number.
    Queued(u64),
    /// It still waits.
    Waiting,
    /// It failed.
    Failed(CheckOutError),
    /// The id is stale, or of another pool.
    Stale,
    /// The call belongs to the other mode.
    WrongMode,
    /// The capacity is exhausted.
    Full,
    /// The generation of a service.
    Generation(u64),
    /// The result of a poll.
    Action(Option<Action>),
}

/// An action, with numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Establish this connection.
    Establish(u64),
    /// Interrupt this connection.
    Interrupt(u64),
    /// Close this connection.
    Close(u64),
    /// Wake this check-out.
    Wake(u64),
}

/// Getters after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// `counts`.
    pub counts: PoolCounts,
    /// `state`.
    pub state: PoolState,
    /// `generation`.
    pub generation: u64,
    /// `service_count`.
    pub services: u32,
    /// `fill_target`.
    pub fill_target: u32,
    /// `poll_timeout`.
    pub timeout: Option<Instant>,
}

/// The observed outputs of a step.
#[derive(Clone, Copy, Debug)]
pub struct Outputs<'a> {
    /// The result of the call.
    pub answer: Answer,
    /// The events that an observer received during the call.
    pub events: &'a [(Instant, Event)],
    /// Getters after the call; `None` if they were not read.
    pub seen: Option<Seen>,
}
