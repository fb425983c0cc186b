//! What happened in a life, counted.

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
        }
    };
}

kinds! {
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
    /// Whatever is sent to or by a member is lost.
    Partition,
    /// Connections to a member are refused, and those that stand are reset.
    Refuse,
    /// A member can be reached again.
    Heal,
    /// A member joins the set.
    Join,
    /// A member leaves the set.
    Leave,
    /// A connection is reset.
    Reset,
    /// A reply is lost, and all that would follow on its connection.
    LostReply,
    /// A message takes long, so that others overtake it.
    Slow,
    /// A hello is answered with an error.
    HelloError,
    /// The client's clock jumps forward.
    ClockForward,
    /// The client's clock jumps back.
    ClockBack,
    /// News of a connection that was given up.
    LateNews,
    /// A check of a server that was asked for.
    Request,
    /// An operation that succeeds.
    OpDone,
    /// An operation that fails with its connection.
    OpNetwork,
    /// An operation that times out.
    OpTimeout,
    /// An operation that finds another state of its server.
    OpStateChange,
    /// An operation that finds its server shutting down.
    OpShutdown,
    /// An operation that is interrupted by the pool.
    OpInterrupted,
    /// A connection that is established.
    Established,
    /// A connection that is not, because the server is overloaded.
    Overloaded,
    /// A connection that is not.
    NotEstablished,
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
    /// How many steps the client made.
    pub steps: u64,
    /// Virtual time, in seconds.
    pub seconds: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Self { seen: [0; Kind::ALL.len()], steps: 0, seconds: 0 }
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
        self.steps += other.steps;
        self.seconds += other.seconds;
    }

    /// Kinds that never came.
    #[must_use]
    pub fn missing(&self) -> Vec<Kind> {
        Kind::ALL.into_iter().filter(|&kind| self.of(kind) == 0).collect()
    }
}
