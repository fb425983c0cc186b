//! What happened in a life, counted.

use crate::oracle::Checks;
use poolhouse_core::sim::chance::Point;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Something that is to happen often enough.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $($(#[$doc])* $name,)*
        }

        impl Kind {
            /// Each kind, in the order of its number.
            pub const ALL: [Self; [$(Self::$name),*].len()] = [$(Self::$name),*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();
        }
    };
}

kinds! {
    // What becomes of members.
    /// An election, after the set had no primary.
    Election,
    /// An election while the old primary still thinks that it is one.
    TwoPrimaries,
    /// A primary steps down.
    StepDown,
    /// A member is killed, and its connections are reset.
    Kill,
    /// A member is gone without a word.
    Vanish,
    /// A member starts again, as another process.
    Restart,
    /// A member stands still.
    Freeze,
    /// It goes on.
    Thaw,
    /// A member joins the set.
    Join,
    /// A member leaves the set.
    Leave,
    /// A member stays dead when faults stop.
    DeadForGood,
    // What becomes of the way to a member.
    /// Whatever is sent to and by a member is lost.
    Partition,
    /// Whatever is sent to a member is lost; what it sends arrives.
    PartitionThere,
    /// Whatever a member sends is lost; what is sent to it arrives.
    PartitionBack,
    /// Connections to a member are refused, and those that stand are reset.
    Refuse,
    /// TLS handshakes with a member fail.
    TlsBroken,
    /// A member can be reached again.
    Heal,
    /// Some members are held up one after the other, and let go in another order.
    Swizzle,
    /// Whatever was under way to and from a member that was held up goes on.
    Unclog,
    // What becomes of a connection.
    /// A connection is refused.
    ConnectRefused,
    /// A connection is never answered.
    ConnectBlackHole,
    /// A connection takes long to stand.
    ConnectSlow,
    /// The TLS handshake of a connection fails.
    TlsFailure,
    /// The name of a host is not found.
    DnsFailure,
    /// A connection is reset.
    Reset,
    /// What the client writes vanishes, and nobody tells.
    HalfOpen,
    /// A member sends bytes that nobody asked for.
    Unsolicited,
    // What becomes of a reply.
    /// The connection is reset before the member has acted.
    ResetBefore,
    /// The connection is reset when the member has acted, instead of the reply.
    ResetInstead,
    /// The connection is reset behind the reply.
    ResetAfter,
    /// The member closes its half behind the reply.
    HalfClose,
    /// A reply is lost, and all that would follow on its connection.
    LostReply,
    /// A message takes long.
    Slow,
    /// A message arrives before one of another connection that was sent earlier.
    Reordered,
    /// A reply arrives byte by byte.
    Split,
    /// A reply waits, and arrives together with what follows.
    Coalesced,
    /// A reply trickles.
    SlowLoris,
    /// A reply comes twice.
    Duplicate,
    /// A reply is cut, and the connection is reset.
    Truncated,
    /// A reply is rubbish.
    Garbage,
    /// A reply answers another request.
    WrongResponseTo,
    /// A reply says that more comes, or that no more does, and that is not so.
    MoreToComeLie,
    /// A hello is answered with an error.
    HelloError,
    /// A hello tells an older state than the one before.
    VersionBack,
    /// A stream of replies stops.
    StreamStall,
    /// A command fails by a change of state that the client knows already.
    StateChangeStale,
    /// A command fails by a change of state that is news.
    StateChangeFresh,
    /// A user is refused.
    AuthFailure,
    // What the client's host does.
    /// The client's clock jumps forward.
    ClockForward,
    /// The client's clock jumps back.
    ClockBack,
    /// The host looks at its timers late.
    LateTimer,
    /// The host looks at its timers, and at those who wait, for nothing.
    Spurious,
    /// Somebody who was woken looks late.
    LateClaim,
    /// News of a connection that was given up.
    LateNews,
    /// A check of a server that was asked for.
    Request,
    /// A pool is cleared and made ready many times.
    Storm,
    /// The client closes in the middle of everything.
    ClosedEarly,
    /// A check-out is cancelled while it waits.
    CancelQueued,
    /// A check-out is cancelled when it was granted a connection.
    CancelGranted,
    /// An operation is cancelled while it waits for its reply.
    CancelBusy,
    /// A connection with an error is returned.
    ErroredCheckIn,
    /// A connection is returned to a pool that it is not of.
    ForeignCheckIn,
    /// There is no place left to wait.
    MemoryFull,
    // What comes of it.
    /// An operation that succeeds.
    OpDone,
    /// A write that asks for no reply.
    Unacknowledged,
    /// An operation that fails with its connection.
    OpNetwork,
    /// An operation that times out.
    OpTimeout,
    /// An operation whose reply breaks the protocol.
    OpProtocol,
    /// An operation that fails by its server's answer.
    OpRefused,
    /// An operation that is interrupted by the pool.
    OpInterrupted,
    /// An operation that is never answered, and never given up.
    OpHangs,
    /// A check-out that fails because of the pool's state, or of its connection.
    CheckOutFailed,
    /// A check-out that times out.
    CheckOutTimeout,
    /// A connection that is established.
    Established,
    /// A connection that is established, and proved who is calling.
    Authenticated,
    /// A connection that is not, because the server is overloaded.
    Overloaded,
    /// A connection that is not.
    NotEstablished,
    /// A connection that is, when nobody wants it any more.
    EstablishedLate,
    /// A good answer to a check.
    Polled,
    /// A streamed answer to a check.
    Streamed,
    /// A check that failed.
    CheckFailed,
    /// A check that was cancelled.
    CheckCancelled,
    /// A retry at once.
    Retried,
    /// A server that was added.
    Added,
    /// A server that was removed.
    Removed,
    /// A pool that was made ready.
    Readied,
    /// A pool that was cleared by a check.
    Cleared,
    /// A primary of the client's view that was deposed by another one.
    Deposed,
}

/// How often each kind came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    seen: [u64; Kind::ALL.len()],
    /// How often each fault point of core fired, in the order of [`Point::ALL`].
    pub(super) points: [u64; Point::COUNT],
    /// How many steps the client made.
    pub steps: u64,
    /// Virtual time, in seconds.
    pub seconds: u64,
    /// Bytes that went over the wire, either way.
    pub bytes: u64,
    /// How often each invariant was checked, by the oracles and by the world itself.
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
    /// How often this kind came.
    #[must_use]
    pub const fn of(&self, kind: Kind) -> u64 {
        self.seen[kind as usize]
    }

    pub(super) const fn count(&mut self, kind: Kind) {
        self.seen[kind as usize] += 1;
    }

    /// Adds what another one counted.
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

    /// How often this fault point of core fired.
    #[must_use]
    pub const fn fired(&self, point: Point) -> u64 {
        self.points[point as usize]
    }

    /// Kinds that never came.
    #[must_use]
    pub fn missing(&self) -> Vec<Kind> {
        Kind::ALL.into_iter().filter(|&kind| self.of(kind) == 0).collect()
    }
}
