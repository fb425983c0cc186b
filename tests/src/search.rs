//! Exhaustive breadth-first search over the states of the real state machines.
//!
//! A [`Scope`] consists of a state machine, its model or [oracle](crate::oracle), a simulated
//! driver, and the possible inputs. [`search`] visits every reachable state, checks each step, and
//! ends when no new state is found: states are left out only by a limit, which is an error. States
//! are [equal](crate::canon::Canon) if they differ only in history, so that no limit on steps is
//! needed: a scope of three clients covers all interactions of three clients, of any duration.
//!
//! A finding is reported with the shortest list of inputs that leads to it.
//!
//! The search itself is checked in three ways: each scope must reach the situations that it was
//! made for ([`Scope::reaches`]); for some pairs of states that count as equal, the successors are
//! compared; and from some states the state machine is led to its [end](Scope::end).

pub mod control;
pub mod monitor;
pub mod mux;
pub mod pool;

use crate::oracle::Checks;
use crate::patience::processor_time;
use crate::seeds::caught;
use core::fmt::{self, Debug};
use core::hash::{BuildHasherDefault, Hasher};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The definition of a search.
pub trait Scope {
    /// State machine, model and simulated driver.
    type State: Clone;
    /// The possible inputs.
    type Input: Copy + Debug;

    /// Returns the initial state.
    fn start(&self) -> Self::State;

    /// Collects every input that is possible in this state.
    fn inputs(&self, state: &Self::State, inputs: &mut Vec<Self::Input>);

    /// Applies an input, and checks the result.
    fn step(&self, state: &mut Self::State, input: Self::Input);

    /// Returns the hash that identifies this state.
    fn print(&self, state: &Self::State) -> u128;

    /// Returns the situations that occurred in the last step, one bit each.
    fn marks(&self, state: &Self::State) -> u64;

    /// Takes the oracle's checks of the last step, if there is an oracle.
    fn take_checks(&self, state: &mut Self::State) -> Option<Checks>;

    /// Returns the situations that a search must reach: bit and name.
    fn reaches(&self) -> Vec<(u64, &'static str)>;

    /// Leads the state to its end without faults, and checks that nothing is left.
    fn end(&self, state: Self::State);
}

/// The limits of a search.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest number of states; exceeding it is an error.
    pub states: usize,
    /// Largest distance of a state from the start, in steps; `None`: unlimited.
    /// [`Figures::complete`] shows whether the limit was reached.
    pub depth: Option<u32>,
    /// One state of this many is led to its end.
    pub end_every: usize,
}

impl Limits {
    /// All states, up to this many.
    #[must_use]
    pub const fn all(states: usize) -> Self {
        Self { states, depth: None, end_every: 8 }
    }
}

/// The figures of a search.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Number of different states.
    pub states: usize,
    /// Number of steps between them.
    pub transitions: u64,
    /// The largest distance of a state from the start.
    pub depth: u32,
    /// Whether all states were expanded.
    pub complete: bool,
    /// CPU time, seconds.
    pub seconds: f64,
    /// The checks of the oracle.
    pub checks: Checks,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, transitions, depth, complete, seconds, checks: _ } = self;
        let end = if *complete { "complete" } else { "to that depth" };
        write!(f, "{states} states, {transitions} transitions, depth {depth}, {seconds:.1} CPU-s, {end}")
    }
}

/// The reason why a search failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// A check failed: the inputs of the shortest path to it, and the result of the last one.
    Wrong(String),
    /// There are more states than the limit, which is this.
    Limit(usize),
    /// A situation that the scope was made for did not occur.
    NeverMet {
        /// The situation.
        what: String,
        /// Number of states searched.
        states: usize,
    },
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong(way) => f.write_str(way),
            Self::Limit(states) => write!(f, "there are more than {states} states"),
            Self::NeverMet { what, states } => write!(f, "a search of {states} states did not reach: {what}"),
        }
    }
}

/// A hasher that returns its input: the hashes of states are already uniformly distributed.
#[derive(Clone, Copy, Debug, Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only hashes are stored");
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    fn write_u128(&mut self, print: u128) {
        self.0 = print as u64;
    }
}

/// One of this many repeated states is compared with the state that it counts as equal to.
const COMPARE_EVERY: u64 = 512;

struct Search<'s, S: Scope> {
    scope: &'s S,
    limits: Limits,
    /// The index of each state.
    seen: HashMap<u128, u32, BuildHasherDefault<AsIs>>,
    /// The parent of each state and the input from it; in the order of discovery.
    from: Vec<(u32, Option<S::Input>)>,
    transitions: u64,
    again: u64,
    marks: u64,
    checks: Checks,
}

/// Visits every state of a scope.
///
/// # Errors
///
/// The failed check and the shortest path to it; or that there are more states than the limit, or
/// that a situation was not reached.
pub fn search<S: Scope>(scope: &S, limits: Limits) -> Result<Figures, Stopped> {
    let began = processor_time();
    let mut search = Search {
        scope,
        limits,
        seen: HashMap::default(),
        from: Vec::new(),
        transitions: 0,
        again: 0,
        marks: 0,
        checks: Checks::default(),
    };
    let start = scope.start();
    search.enter(scope.print(&start), 0, None);
    let mut layer = vec![(0, start)];
    let mut depth = 0;
    while !layer.is_empty() && limits.depth.is_none_or(|last| depth < last) {
        let mut next = Vec::new();
        for (place, state) in layer {
            search.leave(place, state, &mut next)?;
        }
        depth += u32::from(!next.is_empty());
        layer = next;
    }
    let missing: Vec<_> = scope.reaches().into_iter().filter(|(bit, _)| search.marks & bit == 0).collect();
    if !missing.is_empty() {
        let names: Vec<_> = missing.iter().map(|(_, name)| *name).collect();
        return Err(Stopped::NeverMet { what: names.join(", "), states: search.from.len() });
    }
    Ok(Figures {
        states: search.from.len(),
        transitions: search.transitions,
        depth,
        complete: layer.is_empty(),
        seconds: (processor_time() - began).as_secs_f64(),
        checks: search.checks,
    })
}

impl<S: Scope> Search<'_, S> {
    /// Records a state; returns its index if it is new.
    fn enter(&mut self, print: u128, parent: u32, input: Option<S::Input>) -> Option<u32> {
        let Entry::Vacant(vacant) = self.seen.entry(print) else { return None };
        let place = u32::try_from(self.from.len()).expect("fewer than 2^32 states");
        vacant.insert(place);
        self.from.push((parent, input));
        Some(place)
    }

    /// Applies every possible input to a state.
    fn leave(&mut self, place: u32, state: S::State, next: &mut Vec<(u32, S::State)>) -> Result<(), Stopped> {
        let mut inputs = Vec::new();
        self.scope.inputs(&state, &mut inputs);
        for &input in &inputs {
            let mut after = state.clone();
            let scope = self.scope;
            let print = caught(|| scope.step(&mut after, input)).map(|()| scope.print(&after));
            let print = print.map_err(|error| self.way(place, Some(input), &error))?;
            self.transitions += 1;
            self.marks |= scope.marks(&after);
            if let Some(checks) = scope.take_checks(&mut after) {
                self.checks.merge(&checks);
            }
            match self.enter(print, place, Some(input)) {
                Some(new) => next.push((new, after)),
                None => {
                    self.again += 1;
                    if self.again.is_multiple_of(COMPARE_EVERY) {
                        self.compare(&after, print, place, input)?;
                    }
                }
            }
            if self.from.len() > self.limits.states {
                return Err(Stopped::Limit(self.limits.states));
            }
        }
        if (place as usize).is_multiple_of(self.limits.end_every) {
            caught(|| self.scope.end(state))
                .map_err(|error| self.way(place, None, &format!("led to its end: {error}")))?;
        }
        Ok(())
    }

    /// Checks that a state and the one that it counts as equal to have the same successors.
    fn compare(&self, state: &S::State, print: u128, parent: u32, input: S::Input) -> Result<(), Stopped> {
        let place = self.seen[&print];
        let first = self.replayed(place);
        let after = |state: &S::State| {
            let mut inputs = Vec::new();
            self.scope.inputs(state, &mut inputs);
            let follow = inputs.into_iter().map(|input| {
                let mut after = state.clone();
                let outcome = caught(|| self.scope.step(&mut after, input));
                (outcome.map_or(0, |()| self.scope.print(&after)), format!("{input:?}"))
            });
            let mut follow: Vec<_> = follow.collect();
            follow.sort_unstable();
            follow
        };
        let (one, other) = (after(&first), after(state));
        let prints = |follow: &[(u128, String)]| follow.iter().map(|(print, _)| *print).collect::<Vec<_>>();
        if prints(&one) == prints(&other) {
            return Ok(());
        }
        let only = |one: &[(u128, String)], other: &[(u128, String)]| -> Vec<String> {
            let found = one.iter().filter(|(print, _)| other.iter().all(|(known, _)| known != print));
            found.map(|(_, input)| input.clone()).collect()
        };
        let text = format!(
            "two different states count as equal. The successor of this one is {:?}, that of the other {:?}. The other:\n{}",
            only(&other, &one),
            only(&one, &other),
            self.describe(place, None, "")
        );
        Err(self.way(parent, Some(input), &text))
    }

    /// Returns the inputs that lead to a state.
    fn inputs_to(&self, place: u32) -> Vec<S::Input> {
        let mut inputs = Vec::new();
        let mut at = place;
        while let (parent, Some(input)) = self.from[at as usize] {
            inputs.push(input);
            at = parent;
        }
        inputs.reverse();
        inputs
    }

    fn replayed(&self, place: u32) -> S::State {
        let mut state = self.scope.start();
        for input in self.inputs_to(place) {
            self.scope.step(&mut state, input);
        }
        state
    }

    /// Returns the error with the inputs that lead to it.
    fn way(&self, place: u32, last: Option<S::Input>, error: &str) -> Stopped {
        Stopped::Wrong(self.describe(place, last, error))
    }

    fn describe(&self, place: u32, last: Option<S::Input>, error: &str) -> String {
        let inputs = self.inputs_to(place).into_iter().chain(last);
        let lines: Vec<String> = (1..).zip(inputs).map(|(number, input)| format!("{number:>4} {input:?}")).collect();
        format!("{} inputs:\n{}\n{error}", lines.len(), lines.join("\n"))
    }
}

#[cfg(test)]
mod tests;
