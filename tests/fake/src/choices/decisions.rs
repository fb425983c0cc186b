//! The decisions of a simulated run: drawn from its seed, recorded, or read from a list.

use super::Choices;
use crate::rng::Rng;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::cell::RefCell;
use core::fmt;
use core::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The decisions of one part so far. A run that panicked has them, too.
type Recording = Arc<Mutex<Vec<u32>>>;

fn lock(list: &Recording) -> MutexGuard<'_, Vec<u32>> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The source of a run's decisions. Each part of a simulation has a separate stream, so that the
/// draws of one part do not change those of the others.
#[derive(Debug)]
pub struct Decisions {
    seed: u64,
    mode: Mode,
}

#[derive(Debug)]
enum Mode {
    Seeded,
    Recorded(RefCell<BTreeMap<&'static str, Recording>>),
    Scripted(Script),
}

impl Decisions {
    /// Decisions drawn from this seed.
    #[must_use]
    pub const fn of_seed(seed: u64) -> Self {
        Self { seed, mode: Mode::Seeded }
    }

    /// The same decisions, recorded: [`Decisions::script`] returns them.
    #[must_use]
    pub const fn recorded(seed: u64) -> Self {
        Self { seed, mode: Mode::Recorded(RefCell::new(BTreeMap::new())) }
    }

    /// Decisions read from a list. After the list's end, each choice returns its first option.
    #[must_use]
    pub const fn scripted(script: Script) -> Self {
        Self { seed: script.seed, mode: Mode::Scripted(script) }
    }

    /// The seed.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the decisions of one part of the simulation. Called once per part in a run.
    ///
    /// # Panics
    ///
    /// If a recorded stream is requested twice.
    #[must_use]
    pub fn stream(&self, part: &'static str) -> Stream {
        match &self.mode {
            Mode::Seeded => Stream(Source::Seeded(Rng::stream(self.seed, part))),
            Mode::Recorded(kept) => {
                let list = Recording::default();
                let before = kept.borrow_mut().insert(part, Arc::clone(&list));
                assert!(before.is_none(), "the stream {part:?} is requested twice");
                Stream(Source::Recorded(Rng::stream(self.seed, part), list))
            }
            Mode::Scripted(script) => {
                let list = script.streams.get(part).cloned().unwrap_or_default();
                Stream(Source::Scripted(list.into_iter()))
            }
        }
    }

    /// Returns the recorded decisions; of scripted decisions, the script.
    #[must_use]
    pub fn script(&self) -> Script {
        match &self.mode {
            Mode::Seeded => Script { seed: self.seed, streams: BTreeMap::new() },
            Mode::Recorded(kept) => {
                let kept = kept.borrow();
                let streams = kept.iter().map(|(part, list)| ((*part).to_owned(), lock(list).clone()));
                Script { seed: self.seed, streams: streams.collect() }
            }
            Mode::Scripted(script) => script.clone(),
        }
    }
}

/// The decisions of one part, in sequence.
#[derive(Clone, Debug)]
pub struct Stream(Source);

#[derive(Clone, Debug)]
enum Source {
    Seeded(Rng),
    Recorded(Rng, Recording),
    Scripted(alloc::vec::IntoIter<u32>),
}

impl Choices for Stream {
    fn below(&mut self, bound: u32) -> u32 {
        match &mut self.0 {
            Source::Seeded(rng) => rng.below(bound),
            Source::Recorded(rng, list) => {
                let value = rng.below(bound);
                lock(list).push(value);
                value
            }
            Source::Scripted(list) => {
                assert!(bound > 0, "the bound of a choice must be at least 1");
                // A shortened list is replayed with other bounds than those of its recording.
                list.next().unwrap_or(0).min(bound - 1)
            }
        }
    }

    fn is_over(&self) -> bool {
        match &self.0 {
            Source::Seeded(_) | Source::Recorded(..) => false,
            Source::Scripted(list) => list.len() == 0,
        }
    }
}

/// The decisions of a run as lists of numbers, one list for each part.
///
/// As text: the seed, then each part with its numbers, such as `7: shape 1 0 3; operations 4`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// The seed of the recording; values that a run derives directly from the number stay the same.
    pub seed: u64,
    /// The decisions of each part.
    pub streams: BTreeMap<String, Vec<u32>>,
}

impl Script {
    /// Returns the number of decisions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.streams.values().map(Vec::len).sum()
    }

    /// Returns whether there are no decisions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.seed)?;
        for (place, (part, list)) in self.streams.iter().filter(|(_, list)| !list.is_empty()).enumerate() {
            write!(f, "{} {part}", if place == 0 { "" } else { ";" })?;
            list.iter().try_for_each(|value| write!(f, " {value}"))?;
        }
        Ok(())
    }
}

impl FromStr for Script {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (seed, rest) = text.split_once(':').ok_or("a script begins with its seed and a colon")?;
        let seed = seed.trim().parse().map_err(|_| format!("{seed:?} is not a seed"))?;
        let mut streams = BTreeMap::new();
        for part in rest.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let mut words = part.split_whitespace();
            let name = words.next().unwrap_or_default().to_owned();
            let numbers = words.map(|word| word.parse().map_err(|_| format!("{word:?} is not a decision")));
            streams.insert(name, numbers.collect::<Result<_, _>>()?);
        }
        Ok(Self { seed, streams })
    }
}

impl Choices for Rng {
    fn below(&mut self, bound: u32) -> u32 {
        assert!(bound > 0, "the bound of a choice must be at least 1");
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u32::try_from(wide >> 64).unwrap_or(0)
    }

    fn is_over(&self) -> bool {
        false
    }
}
