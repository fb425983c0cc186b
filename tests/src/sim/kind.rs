//! The kinds of operation, and their counters.

/// Declares the kinds of a simulator, each with its rarity, and their counters.
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
            /// Number of kinds.
            pub const COUNT: usize = Self::ALL.len();

            /// The factor by which it is less common than the most common kinds.
            #[must_use]
            pub const fn rarity(self) -> u32 {
                match self {
                    $(Self::$name => $rarity,)*
                }
            }
        }

        /// Counters for each kind.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Counters {
            done: [u64; Kind::COUNT],
            /// Number of operations.
            pub steps: u64,
            /// Number of events.
            pub events: u64,
            /// Number of completed runs.
            pub runs: u64,
            /// The checks of the oracle in these runs.
            pub checks: crate::oracle::Checks,
        }

        impl Default for Counters {
            fn default() -> Self {
                let checks = crate::oracle::Checks::default();
                Self { done: [0; Kind::COUNT], steps: 0, events: 0, runs: 0, checks }
            }
        }

        impl Counters {
            /// Number of operations of this kind.
            #[must_use]
            pub const fn of(&self, kind: Kind) -> u64 {
                self.done[kind as usize]
            }

            pub(in crate::sim) const fn count(&mut self, kind: Kind) {
                self.done[kind as usize] += 1;
                self.steps += 1;
            }

            /// Adds the counts of another instance.
            pub fn add(&mut self, other: &Self) {
                for (sum, more) in self.done.iter_mut().zip(other.done) {
                    *sum += more;
                }
                self.steps += other.steps;
                self.events += other.events;
                self.runs += other.runs;
                self.checks.merge(&other.checks);
            }

            pub(in crate::sim) fn note_life(&mut self, checks: &crate::oracle::Checks) {
                self.runs += 1;
                self.checks.merge(checks);
            }

            /// Figures for the report.
            #[must_use]
            pub fn json(&self) -> serde_json::Value {
                let inputs: serde_json::Map<_, _> =
                    Kind::ALL.into_iter().map(|kind| (format!("{kind:?}"), self.of(kind).into())).collect();
                let invariants = self.checks.json();
                serde_json::json!({ "runs": self.runs, "steps": self.steps, "inputs": inputs, "invariants": invariants })
            }

            /// Kinds that did not occur.
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
    /// A check-out with a deadline that may have passed.
    CheckOutDeadline = 1,
    /// Claims the outcome of a check-out.
    Claim = 1,
    /// Claims an outcome that was claimed or cancelled before.
    ClaimUsedUp = 8,
    /// Cancels a waiter without a bound connection.
    CancelUnbound = 3,
    /// Cancels a waiter with a bound connection.
    CancelBound = 3,
    /// Cancels a check-out that was granted and not claimed.
    CancelGranted = 3,
    /// Cancels a check-out that failed and was not claimed.
    CancelFailed = 3,
    /// Cancels a check-out that was claimed or cancelled before.
    CancelUsedUp = 8,
    /// Returns a connection.
    CheckIn = 1,
    /// Returns a failed connection.
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
    /// Reports the service of a connection.
    Service = 1,
    /// Reports a service for a connection that has none.
    ServiceNonsense = 8,
    /// A connection is established.
    Established = 1,
    /// A connection could not be established.
    EstablishFailed = 3,
    /// A connection could not be established, and the failure clears the pool.
    EstablishFailedClear = 5,
    /// A report about a connection that is not being established.
    LateNews = 6,
    /// Clears the pool.
    Clear = 8,
    /// Clears the pool and interrupts connections in use.
    ClearInterrupt = 8,
    /// Clears one service.
    ClearService = 6,
    /// Clears in a way that belongs to the other mode.
    ClearWrongMode = 20,
    /// Marks the pool ready.
    Ready = 1,
    /// Closes the pool.
    Close = 100,
    /// Resets the pool after a fork.
    Fork = 30,
    /// Pins a lease.
    Pin = 6,
    /// Pins the lease of another pool.
    PinForeign = 20,
    /// Advances the time to the next deadline.
    TimeExact = 2,
    /// Advances the time to just before the next deadline.
    TimeBefore = 3,
    /// Advances the time past the next deadline.
    TimePast = 3,
    /// Advances the time without a call of the pool.
    TimeOnly = 3,
    /// The clock jumps back.
    TimeBack = 8,
    /// Calls `handle_timeout` although nothing need be due.
    Tick = 4,
    /// Changes the options.
    Reconfigure = 6,
    /// Sets or cancels a fill target.
    Fill = 6,
    /// Retires a connection in any state, or one that is gone.
    Retire = 4,
    /// A check-out by a client without a subscriber, which does not read the clock.
    CheckOutUntimed = 1,
    /// A check-in by a client without a subscriber, which does not read the clock.
    CheckInUntimed = 1,
    /// A check-out and a check-in that need the time or affect a waiter, and therefore read the
    /// clock.
    ClockRead = 3,
}
