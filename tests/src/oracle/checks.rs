//! What an oracle finds, and how often it looked.

use core::fmt;
use serde_json::{Map, Value};

/// Something that must not happen has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which invariant was broken.
    pub id: &'static str,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.id, self.what)
    }
}

impl core::error::Error for Violation {}

/// The kinds of id, and how many there are of each.
const KINDS: [(char, usize); 3] = [('P', 54), ('M', 6), ('S', 21)];
const PLACES: usize = 54 + 6 + 21;

/// How often each invariant was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checks([u64; PLACES]);

impl Default for Checks {
    fn default() -> Self {
        Self([0; PLACES])
    }
}

impl Checks {
    /// Notes that an invariant was looked at.
    ///
    /// # Panics
    ///
    /// If there is no such id.
    #[inline]
    pub fn add(&mut self, id: &str) {
        self.0[place(id)] += 1;
    }

    /// Looks at an invariant: `what` says what is wrong if it does not hold.
    ///
    /// # Errors
    ///
    /// When it does not.
    #[inline]
    pub fn check(&mut self, id: &'static str, holds: bool, what: impl FnOnce() -> String) -> Result<(), Violation> {
        self.add(id);
        if holds { Ok(()) } else { Err(Violation { id, what: what() }) }
    }

    /// How often this one was checked.
    ///
    /// # Panics
    ///
    /// If there is no such id.
    #[must_use]
    pub fn of(&self, id: &str) -> u64 {
        self.0[place(id)]
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }

    /// Those of `ids` that were never checked.
    #[must_use]
    pub fn missing(&self, ids: &[&'static str]) -> Vec<&'static str> {
        ids.iter().copied().filter(|id| self.of(id) == 0).collect()
    }

    /// `{"P1": n, ..}`, without those that were never checked.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut object = Map::new();
        for (kind, count) in KINDS {
            for number in 1..=count {
                let id = format!("{kind}{number}");
                let times = self.of(&id);
                if times > 0 {
                    object.insert(id, times.into());
                }
            }
        }
        Value::Object(object)
    }
}

/// Where an id is counted.
#[inline]
fn place(id: &str) -> usize {
    let mut bytes = id.bytes();
    let first = match bytes.next() {
        Some(b'P') => 0,
        Some(b'M') => KINDS[0].1,
        Some(b'S') => KINDS[0].1 + KINDS[1].1,
        _ => panic!("no invariant is called {id:?}"),
    };
    let number = bytes.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'));
    assert!(number > 0, "no invariant is called {id:?}");
    first + number - 1
}
