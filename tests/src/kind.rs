//! Counters of the events of a run.

use crate::oracle::Checks;
use poolhouse_core::sim::chance::Point;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// An event that must occur often enough.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $($(#[$doc])* $name,)*
        }

        impl Kind {
            /// Each kind, in the order of its number.
            pub const ALL: [Self; [$(Self::$name),*].len()] = [$(Self::$name),*];
            /// Number of kinds.
            pub const COUNT: usize = Self::ALL.len();
        }
    };
}

kinds! {
    // Members.
    /// An election, after the set had no primary.
    Election,
    /// An election before the old primary has noticed that it was replaced.
    TwoPrimaries,
    /// A primary steps down.
    StepDown,
    /// A member is killed, and its connections are reset.
    Kill,
    /// A member disappears without a reset of its connections.
    Vanish,
    /// A member restarts as a new process.
    Restart,
    /// A member freezes.
    Freeze,
    /// A frozen member continues.
    Thaw,
    /// A member joins the set.
    Join,
    /// A member leaves the set.
    Leave,
    /// A member stays dead after the faults stop.
    DeadForGood,
    // The network path to a member.
    /// All messages to and from a member are lost.
    Partition,
    /// All messages to a member are lost; its replies arrive.
    PartitionThere,
    /// All messages from a member are lost; requests to it arrive.
    PartitionBack,
    /// Connections to a member are refused, and existing ones are reset.
    Refuse,
    /// The faults of the path to a member end.
    Heal,
    /// Some members are held back one after the other, and released in another order.
    Swizzle,
    /// The held messages of a member are delivered.
    Unclog,
    // Connections.
    /// A connection is refused.
    ConnectRefused,
    /// A connection attempt is never answered.
    ConnectBlackHole,
    /// A connection attempt takes long.
    ConnectSlow,
    /// A host name cannot be resolved.
    DnsFailure,
    /// A host name is resolved late.
    DnsSlow,
    /// A read returns fewer bytes than have arrived.
    ShortRead,
    /// A write accepts fewer bytes than it is given.
    ShortWrite,
    /// A socket accepts no bytes for some time.
    WriteStall,
    /// A socket accepts no bytes until it is closed.
    Blocked,
    /// A connection is reset.
    Reset,
    /// The writes of the client are lost without an error.
    HalfOpen,
    /// A member sends unsolicited bytes.
    Unsolicited,
    // Replies.
    /// The connection is reset before the member has executed the command.
    ResetBefore,
    /// The connection is reset after the member has executed the command, instead of the reply.
    ResetInstead,
    /// The connection is reset after the reply.
    ResetAfter,
    /// The member closes its half after the reply.
    HalfClose,
    /// A reply is lost, with all later bytes on its connection.
    LostReply,
    /// A message is delayed for long.
    Slow,
    /// A message arrives before an earlier message of another connection.
    Reordered,
    /// A reply arrives byte by byte.
    Split,
    /// A reply is held back, and arrives together with the next bytes.
    Coalesced,
    /// A reply arrives slowly, in small parts.
    SlowLoris,
    /// A reply is duplicated.
    Duplicate,
    /// A reply is truncated, and the connection is reset.
    Truncated,
    /// A reply is corrupted.
    Garbage,
    /// A reply answers another request.
    WrongResponseTo,
    /// The flag moreToCome of a reply is wrong.
    MoreToComeLie,
    /// A hello is answered with an error.
    HelloError,
    /// A hello contains an older topologyVersion than the one before.
    VersionBack,
    /// A stream of replies stops.
    StreamStall,
    /// A command fails with a state change error that the client already knows.
    StateChangeStale,
    /// A command fails with a state change error that is new to the client.
    StateChangeFresh,
    /// A Cassandra node refuses a request because it is overloaded.
    ServerOverloaded,
    /// A Cassandra node refuses a request because it is starting.
    Bootstrapping,
    /// An authentication is rejected.
    AuthFailure,
    // The client's host.
    /// The client's clock jumps forward.
    ClockForward,
    /// The host processes its timers late.
    LateTimer,
    /// Bytes arrive before ready tasks are polled.
    Busy,
    /// A task that is ready is not polled for some time.
    Starved,
    /// All tasks are polled although nothing has happened.
    Spurious,
    /// The client has no subscriber.
    Unobserved,
    /// The client is closed before the faults stop.
    ClosedEarly,
    // The application.
    /// A write.
    Write,
    /// A write that may be repeated.
    IdempotentWrite,
    /// A command on any member.
    Read,
    /// Commands on a connection that is checked out, and pauses between them.
    Session,
    /// A request to a Cassandra cluster.
    Query,
    /// Requests on a connection of a pool of any connections.
    Use,
    /// A pool of any connections is cleared by the application.
    Clear,
    /// The wait for established connections.
    WarmUp,
    /// A change of the pools' options.
    Reconfigure,
    /// A second subscription.
    Subscribe,
    /// A look at the state of servers and pools.
    Inspect,
    /// The future of an operation is dropped right after one of its polls.
    DropAfterPoll,
    /// The future of an operation is dropped when it was woken, before it is polled.
    DropWhenWoken,
    /// The future of a command is dropped, and its connection is used again.
    GivenUp,
    /// An operation with little time after the faults.
    Hurried,
    /// A router refuses new connections after the faults, because it is overloaded.
    Shedding,
    /// The future of an operation is dropped at any time.
    DropLater,
    /// The last handle of a client is dropped.
    ClientDropped,
    /// The future of a close is dropped.
    CloseDropped,
    /// The executor drops a task of the client.
    TaskDropped,
    /// The manager of a pool panics.
    ManagerPanics,
    /// The manager of a pool refuses to open a connection.
    ManagerFails,
    // Results.
    /// An operation succeeds.
    OpDone,
    /// An operation fails with a network error.
    OpNetwork,
    /// An operation times out.
    OpTimeout,
    /// An operation fails because its reply violates the protocol.
    OpProtocol,
    /// An operation fails with an error reply of the server.
    OpRefused,
    /// An operation is interrupted by the pool.
    OpInterrupted,
    /// An operation is never answered and never cancelled.
    OpHangs,
    /// A command on a connection that has failed before.
    OpBroken,
    /// A request to a Cassandra cluster fails because no host takes it.
    NoHost,
    /// An operation fails because no server is suitable.
    NotSelected,
    /// An operation fails because the client is closed.
    OpClosed,
    /// An operation fails because a task of the client was dropped.
    OpAbandoned,
    /// An operation fails because its connection is not authenticated.
    NotAuthenticated,
    /// A command is executed by a member.
    Executed,
    /// A command that may be repeated is executed again.
    ExecutedAgain,
    /// A check-out fails because of the state of the pool, or of its connection.
    CheckOutFailed,
    /// A check-out times out.
    CheckOutTimeout,
    /// A check-out of a pool of any connections times out while the pool has its maximum size.
    PoolFull,
    /// A connection is established.
    Established,
    /// A connection is not established because the server is overloaded.
    Overloaded,
    /// A polled check succeeds.
    Polled,
    /// A streamed reply succeeds.
    Streamed,
    /// A check fails.
    CheckFailed,
    /// A check is cancelled.
    CheckCancelled,
    /// An immediate retry.
    Retried,
    /// A server is added.
    Added,
    /// A server is removed.
    Removed,
    /// A pool is marked ready.
    Readied,
    /// A pool is cleared.
    Cleared,
    /// A primary of the client's view is deposed by another primary.
    Deposed,
    // Without a weight.
    /// A write without an acknowledgement.
    Unacknowledged,
    /// A write that is acknowledged because of `j: true`, although `w` is 0.
    Journaled,
    /// A write without an acknowledgement on a connection that is checked out.
    UnacknowledgedOnConnection,
    /// A write without an acknowledgement is refused in a session.
    RefusedInSession,
    /// A write without an acknowledgement is refused in a transaction.
    RefusedInTransaction,
    /// A write without an acknowledgement arrives at a member that is no primary.
    WriteDiscarded,
    /// The selection of a server begins.
    SelectionStarted,
    /// The selection of a server waits.
    SelectionWaits,
    /// The wait of an operation has ended.
    SelectionWaited,
    /// A server is selected.
    Selected,
    /// The selection of a server fails.
    SelectionFailed,
    /// The future of a selection is dropped.
    SelectionDropped,
    /// A session has another keyspace.
    KeyspaceUsed,
    /// A Cassandra node refuses a keyspace, or no keyspace can have the name.
    KeyspaceRefused,
    /// A session finds the nodes of its cluster.
    Discovers,
    /// A Cassandra node sends an event.
    EventSent,
    /// A Cassandra node sends an event twice.
    EventRepeated,
    /// A Cassandra node does not send an event.
    EventLost,
    /// A Cassandra node sends an event late.
    EventLate,
    /// A Cassandra node sends an event of a node that does not exist.
    EventLie,
    /// A Cassandra node has no table of its peers in the form of version 4.0.
    OldPeers,
    /// A table of nodes has a row that is of no other node.
    RowLie,
    /// A table of nodes does not have the row of a node.
    RowMissing,
    /// A request is sent to the node that has its data.
    Routed,
    /// A Cassandra node that shuts down accepts connections, and refuses requests on them.
    ShutsDown,
    /// A Cassandra node forgets its prepared statements.
    Forgets,
    /// A Cassandra node answers on stream 0 to a request on another stream.
    AnswersOnZero,
}

/// Counters for each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    seen: [u64; Kind::ALL.len()],
    /// Number of times that each fault point of core fired, in the order of [`Point::ALL`].
    pub(super) points: [u64; Point::COUNT],
    /// Number of polls of tasks.
    pub steps: u64,
    /// Virtual time, in seconds.
    pub seconds: u64,
    /// Bytes on the wire, in both directions.
    pub bytes: u64,
    /// Number of checks of each invariant, by the oracles and by the run itself.
    pub checks: Checks,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            seen: [0; Kind::ALL.len()],
            points: [0; Point::COUNT],
            steps: 0,
            seconds: 0,
            bytes: 0,
            checks: Checks::default(),
        }
    }
}

impl Counters {
    /// Number of occurrences of this kind.
    #[must_use]
    pub const fn of(&self, kind: Kind) -> u64 {
        self.seen[kind as usize]
    }

    /// Counts an occurrence of this kind.
    pub const fn count(&mut self, kind: Kind) {
        self.seen[kind as usize] += 1;
    }

    /// Adds the counts of another instance.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.seen.iter_mut().zip(other.seen) {
            *sum += more;
        }
        for (sum, more) in self.points.iter_mut().zip(other.points) {
            *sum += more;
        }
        self.steps += other.steps;
        self.seconds += other.seconds;
        self.bytes += other.bytes;
        self.checks.merge(&other.checks);
    }

    /// Number of times that this fault point of core fired.
    #[must_use]
    pub const fn fired(&self, point: Point) -> u64 {
        self.points[point as usize]
    }

    /// Kinds that did not occur.
    #[must_use]
    pub fn missing(&self) -> Vec<Kind> {
        Kind::ALL.into_iter().filter(|&kind| self.of(kind) == 0).collect()
    }
}
