//! The application: operations on the client or session, their outcomes, and futures that are
//! dropped.

mod draw;
mod execute;
mod judge;

pub(super) use execute::{Running, execute};

use super::plain::PlainPool;
use super::plan::MS;
use super::platform::Sim;
use crate::kind::Kind;
use core::time::Duration;
use poolhouse_client::mux::{RequestError, Session};
use poolhouse_client::{Client, Error};
use poolhouse_core::Cause;
use poolhouse_core::mux::MuxOptions;
use poolhouse_core::pool::{CheckOutError, PoolOptions};
use poolhouse_core::selection::ReadMode;
use poolhouse_driver::{OperationError, Subscription};

/// The tolerance for the end of an operation in a run with late timers.
const LATE_MAX: u64 = 4_000 * MS;
/// The time in which a server that was lost is checked again: the minimum interval of checks, and
/// some latency.
const CHECKED_AGAIN: u64 = 2_000 * MS;
/// The time in which a connection to a node that is up is established.
pub(super) const ESTABLISHED: u64 = 250 * MS;
/// The time limit of an operation that must succeed. Limits of the client then do not apply.
const AMPLE: Duration = Duration::from_secs(600);

/// An operation that has begun.
#[derive(Debug)]
pub(super) struct Operation {
    begun: u64,
    /// The end of the operation's time limit, on the client's clock.
    deadline: Option<u64>,
    /// The client's clock when it began.
    begun_clock: u64,
    must_succeed: bool,
    /// It has little time: it may end by its limit, but by no other error.
    is_hurried: bool,
    /// The tolerance for its end.
    late: u64,
    /// Its commands are not answered, so it ends only when it is dropped or times out.
    pub(super) hangs: bool,
    /// It needs a server.
    pub(super) is_remote: bool,
    /// It is a check-out, and commands on its connection.
    is_session: bool,
    /// It changes the keyspace, and establishes a connection for this.
    pub(super) changes_keyspace: bool,
    /// The command of a request to a cluster, and whether it may be repeated.
    query: Option<(i64, bool)>,
    /// The command, and the token of its data.
    routed: Option<(i64, i64)>,
    /// The kinds of errors of which it must end with one, because the client is closed.
    closed_by: &'static [Kind],
    pub(super) text: String,
}

/// A command, and how it is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandPlan {
    number: i64,
    is_write: bool,
    is_idempotent: bool,
    mode: ReadMode,
    timeout: Option<Duration>,
    /// `maxTimeMS` that the application has set.
    max_time_ms: Option<i64>,
    concern: Concern,
}

/// The write concern of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Concern {
    /// That of the deployment.
    Default,
    /// `w: 0`.
    Unacknowledged,
    /// `w: 0` and `j: true`, which requires an acknowledgement.
    Journaled,
}

/// The work of an operation.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Command(CommandPlan),
    Session {
        timeout: Option<Duration>,
        mode: ReadMode,
        /// Each with the pause before it.
        commands: Vec<(u64, CommandPlan)>,
        /// The first command's future is dropped after this number of polls.
        gives_up: Option<u32>,
        /// The pause before the connection is returned.
        pause: u64,
    },
    WarmUp {
        timeout: Option<Duration>,
    },
    /// A write without an acknowledgement in an explicit session, which must be refused.
    InSession {
        command: CommandPlan,
        in_transaction: bool,
    },
    Query {
        number: i64,
        is_idempotent: bool,
        timeout: Option<Duration>,
        /// The keyspace and the partition of its data.
        location: Option<(&'static str, u32)>,
    },
    /// A change of the keyspace of a session.
    UseKeyspace {
        name: &'static str,
    },
    /// Of a pool of any connections.
    Use {
        /// Only a connection that is available now is taken.
        is_try: bool,
        /// Each with the pause before it.
        commands: Vec<(u64, i64)>,
        /// The pause before the connection is returned.
        pause: u64,
        /// The connection is removed from the pool.
        is_detached: bool,
    },
    Clear,
    Resize(u32),
    Reconfigure(PoolOptions),
    ReconfigureMux(MuxOptions),
    Subscribe(u64),
    Inspect,
}

/// The subject of a run.
#[derive(Clone, Debug)]
pub(super) enum Subject {
    Client(Client<Sim>),
    Session(Session<Sim>),
    Pool(PlainPool),
}

impl Subject {
    pub(super) fn subscribe(&self) -> Subscription {
        match self {
            Self::Client(client) => client.subscribe(),
            Self::Session(session) => session.subscribe(),
            Self::Pool(pool) => pool.subscribe(),
        }
    }

    pub(super) async fn close(&self) {
        match self {
            Self::Client(client) => client.close().await,
            Self::Session(session) => session.close().await,
            Self::Pool(pool) => pool.close().await,
        }
    }
}

/// Why an operation has failed.
#[derive(Debug)]
pub(super) struct Failed {
    /// `None` if no operation may fail in this way.
    kind: Option<Kind>,
    text: String,
    /// The longest of the minimum round-trip times that the client knows. An operation with less
    /// time may end early.
    round_trip: u64,
}

impl Failed {
    pub(super) const fn new(kind: Kind, text: String) -> Self {
        Self { kind: Some(kind), text, round_trip: 0 }
    }

    /// No operation may fail in this way.
    pub(super) const fn unexpected(text: String) -> Self {
        Self { kind: None, text, round_trip: 0 }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        let kind = match error {
            // It may end before its limit, as the pause before another attempt would end after it.
            Error::Timeout(last) => return Self { text, ..Self::from(*last) },
            Error::Command(_) => Kind::OpRefused,
            Error::Operation(error, _) => match error {
                OperationError::ServerSelection(_) => Kind::NotSelected,
                OperationError::CheckOut(failure) => match failure.error {
                    CheckOutError::WaitQueueTimeout { .. } => Kind::CheckOutTimeout,
                    CheckOutError::EstablishFailed { overloaded: true, .. } => Kind::Overloaded,
                    _ => Kind::CheckOutFailed,
                },
                OperationError::Authentication(_) => Kind::NotAuthenticated,
                OperationError::Exchange(error) if error.cause().is_some_and(Cause::is_network) => Kind::OpNetwork,
                OperationError::Exchange(_) => Kind::OpProtocol,
                OperationError::Timeout => Kind::OpTimeout,
                OperationError::Interrupted(_) => Kind::OpInterrupted,
                OperationError::Closed => Kind::OpClosed,
                OperationError::Abandoned => Kind::OpAbandoned,
                _ => return Self::unexpected(text),
            },
            _ => return Self::unexpected(text),
        };
        Self::new(kind, text)
    }
}

impl From<RequestError> for Failed {
    fn from(error: RequestError) -> Self {
        let kind = match &error {
            RequestError::NoHost(_) => Some(Kind::NoHost),
            RequestError::TimedOut { .. } => Some(Kind::OpTimeout),
            RequestError::Lost { cause, .. } if cause.is_network() => Some(Kind::OpNetwork),
            RequestError::Lost { .. } | RequestError::Reply(_) => Some(Kind::OpProtocol),
            RequestError::Server(_) => Some(Kind::OpRefused),
            RequestError::Closed => Some(Kind::OpClosed),
            RequestError::Abandoned => Some(Kind::OpAbandoned),
            _ => None,
        };
        Self { kind, text: error.to_string(), round_trip: 0 }
    }
}

/// When a future is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DropPoint {
    Never,
    /// Right after this poll.
    AfterPoll(u32),
    /// When it was woken after this poll, before it is polled again.
    WhenWoken(u32),
}

impl Operation {
    pub(super) const fn has_deadline(&self) -> bool {
        self.deadline.is_some()
    }
}

impl CommandPlan {
    fn document(&self) -> bson::Document {
        let mut document = if self.is_write {
            bson::doc! { "insert": "things", "documents": [{ "_id": self.number }], "n": self.number }
        } else {
            bson::doc! { "ping": 1, "n": self.number }
        };
        document.extend(self.max_time_ms.map(|time| ("maxTimeMS".to_owned(), time.into())));
        match self.concern {
            Concern::Default => {}
            Concern::Unacknowledged => drop(document.insert("writeConcern", bson::doc! { "w": 0 })),
            Concern::Journaled => drop(document.insert("writeConcern", bson::doc! { "w": 0, "j": true })),
        }
        document
    }

    fn is_answered_by(&self, reply: &bson::Document) -> bool {
        if self.concern == Concern::Unacknowledged {
            return *reply == bson::doc! { "ok": 1 };
        }
        reply.get_i64("n").is_ok_and(|number| number == self.number)
    }
}
