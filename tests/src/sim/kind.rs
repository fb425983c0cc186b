//! The kinds of operation, and how often each was done.

/// The kinds of a simulator, each with how much less common than most it is, and what counts them.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $rarity:literal,)*) => {
        /// A kind of operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $($(#[$doc])* $name,)*
        }

        impl Kind {
            /// Each kind, in the order of its number.
            pub const ALL: [Self; [$(Self::$name),*].len()] = [$(Self::$name),*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// By how much it is less common than most.
            #[must_use]
            pub const fn rarity(self) -> u32 {
                match self {
                    $(Self::$name => $rarity,)*
                }
            }
        }

        /// How often each kind was done.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Counters {
            done: [u64; Kind::COUNT],
            /// How many operations there were.
            pub steps: u64,
            /// How many events there were.
            pub events: u64,
            /// How many lives came to their end.
            pub lives: u64,
            /// What the oracle looked at in those.
            pub checks: crate::oracle::Checks,
        }

        impl Default for Counters {
            fn default() -> Self {
                let checks = crate::oracle::Checks::default();
                Self { done: [0; Kind::COUNT], steps: 0, events: 0, lives: 0, checks }
            }
        }

        impl Counters {
            /// How often this kind was done.
            #[must_use]
            pub const fn of(&self, kind: Kind) -> u64 {
                self.done[kind as usize]
            }

            pub(in crate::sim) const fn count(&mut self, kind: Kind) {
                self.done[kind as usize] += 1;
                self.steps += 1;
            }

            /// Adds what another one counted.
            pub fn add(&mut self, other: &Self) {
                for (sum, more) in self.done.iter_mut().zip(other.done) {
                    *sum += more;
                }
                self.steps += other.steps;
                self.events += other.events;
                self.lives += other.lives;
                self.checks.merge(&other.checks);
            }

            pub(in crate::sim) fn note_life(&mut self, checks: &crate::oracle::Checks) {
                self.lives += 1;
                self.checks.merge(checks);
            }

            /// Figures for the report.
            #[must_use]
            pub fn json(&self) -> serde_json::Value {
                let inputs: serde_json::Map<_, _> =
                    Kind::ALL.into_iter().map(|kind| (format!("{kind:?}"), self.of(kind).into())).collect();
                let invariants = self.checks.json();
                serde_json::json!({ "lives": self.lives, "steps": self.steps, "inputs": inputs, "invariants": invariants })
            }

            /// Kinds that were never done.
            #[must_use]
            pub fn missing(&self) -> Vec<Kind> {
                Kind::ALL.into_iter().filter(|&kind| self.of(kind) == 0).collect()
            }
        }
    };
}

kinds! {
    /// A check-out without a deadline.
    CheckOut = 1,
    /// A check-out with a deadline, perhaps one that has passed.
    CheckOutDeadline = 1,
    /// Claims the outcome of a check-out.
    Claim = 1,
    /// Claims what was claimed or cancelled before.
    ClaimUsedUp = 8,
    /// Cancels a check-out that has no connection coming.
    CancelUnbound = 3,
    /// Cancels a check-out that has a connection coming.
    CancelBound = 3,
    /// Cancels a check-out that was granted and not claimed.
    CancelGranted = 3,
    /// Cancels a check-out that failed and was not claimed.
    CancelFailed = 3,
    /// Cancels what was claimed or cancelled before.
    CancelUsedUp = 8,
    /// Returns a connection.
    CheckIn = 1,
    /// Returns a connection that failed.
    CheckInBroken = 3,
    /// Returns the connection of another pool.
    CheckInForeign = 8,
    /// Takes one action.
    PollAction = 1,
    /// Takes one establishment.
    PollEstablish = 2,
    /// Takes one other action.
    PollPrompt = 2,
    /// Takes all actions.
    Drain = 1,
    /// Tells a connection's service.
    Service = 1,
    /// Tells a service of a connection that has none to tell.
    ServiceNonsense = 8,
    /// A connection is established.
    Established = 1,
    /// A connection could not be established.
    EstablishFailed = 3,
    /// A connection could not be established, and that clears the pool.
    EstablishFailedClear = 5,
    /// News of a connection that is not being established.
    LateNews = 6,
    /// Clears the pool.
    Clear = 8,
    /// Clears the pool and interrupts.
    ClearInterrupt = 8,
    /// Clears one service.
    ClearService = 6,
    /// Clears in the way of the other mode.
    ClearWrongMode = 20,
    /// Marks the pool ready.
    Ready = 1,
    /// Closes the pool.
    Close = 100,
    /// Gives up everything after a fork.
    Fork = 30,
    /// Pins a lease.
    Pin = 6,
    /// Pins the lease of another pool.
    PinForeign = 20,
    /// Goes to the instant at which something is due.
    TimeExact = 2,
    /// Goes to just before that.
    TimeBefore = 3,
    /// Goes beyond it.
    TimePast = 3,
    /// Time goes on, and the pool is not called.
    TimeOnly = 3,
    /// The clock goes back.
    TimeBack = 8,
    /// A call although nothing need be due.
    Tick = 4,
    /// Puts other options in force.
    Reconfigure = 6,
    /// Fills the pool to a number of connections, or stops that.
    Fill = 6,
    /// A check-out by a client without a subscriber, which does not read the clock.
    CheckOutUntimed = 1,
    /// A check-in by a client without a subscriber, which does not read the clock.
    CheckInUntimed = 1,
    /// A check-out and a check-in that need the time or affect a waiter, and so read the clock.
    ClockRead = 3,
}
