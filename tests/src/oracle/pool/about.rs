//! What is told of a step of a pool: the call, and everything that was seen of it.

use super::Event;
use poolhouse_core::pool::{CheckOutError, Clear, EstablishError, Health, PoolCounts, PoolOptions, PoolState};
use poolhouse_core::{Cause, Instant, ObjectId};

/// How many there may be in the memory of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Room {
    /// Connections, those included whose `Close` was not polled.
    pub conns: u32,
    /// Check-outs whose outcome was not taken.
    pub waiters: u32,
    /// Services.
    pub services: u32,
}

impl Room {
    /// On the heap.
    pub const ENDLESS: Self = Self { conns: u32::MAX, waiters: u32::MAX, services: u32::MAX };
}

/// A call. Connections go by their numbers; check-outs that wait by numbers that whoever records gives them, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// Nobody knows what was called: of traces from outside, of which only the events are known.
    Unseen,
    /// The pool was made.
    New,
    /// `check_out`.
    CheckOut {
        /// Its own deadline.
        deadline: Option<Instant>,
    },
    /// `claim`; 0 of a check-out that is over.
    Claim {
        /// Its number.
        waiter: u64,
    },
    /// `cancel`; 0 of a check-out that is over.
    Cancel {
        /// Its number.
        waiter: u64,
    },
    /// `check_in`.
    CheckIn {
        /// The connection, or `None` of another pool's.
        conn: Option<u64>,
        /// Its state.
        health: Health,
    },
    /// `ready`.
    Ready,
    /// `clear`.
    Clear {
        /// Which connections.
        clear: Clear,
        /// Why.
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
        /// What it reached.
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
        /// Why.
        error: EstablishError,
    },
    /// `pin`.
    Pin {
        /// The connection, or `None` of another pool's.
        conn: Option<u64>,
    },
    /// `reconfigure`.
    Reconfigure {
        /// The options as they are given.
        options: PoolOptions,
    },
    /// `set_fill_target`.
    Fill {
        /// How many.
        count: u32,
    },
    /// `handle_timeout`.
    Timeout,
    /// `poll_action`, `poll_establish` or `poll_prompt`.
    Poll(Owed),
}

/// What is polled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owed {
    /// Whatever is owed.
    Any,
    /// An establishment.
    Establish,
    /// Anything else.
    Prompt,
}

/// What a call returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Nothing.
    None,
    /// `Ok(())`.
    Done,
    /// A connection is granted.
    Granted(u64),
    /// A check-out waits, by this number.
    Queued(u64),
    /// It still waits.
    Waiting,
    /// It failed.
    Failed(CheckOutError),
    /// What is spoken of is not there (any more), or not this pool's.
    Stale,
    /// The call belongs to the other mode.
    WrongMode,
    /// There is no room.
    Full,
    /// The generation of a service.
    Generation(u64),
    /// What was polled, if anything.
    Action(Option<Action>),
}

/// An action, by numbers.
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

/// What was seen of a step.
#[derive(Clone, Copy, Debug)]
pub struct Outputs<'a> {
    /// What the call returned.
    pub answer: Answer,
    /// What an observer was told meanwhile.
    pub events: &'a [(Instant, Event)],
    /// Getters afterwards; `None` when nobody looked.
    pub seen: Option<Seen>,
}
