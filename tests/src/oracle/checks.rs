//! Violations found by an oracle, and counts of its checks.

use super::owners::KINDS;
use core::fmt;
use serde_json::{Map, Value};

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The id of the invariant.
    pub id: &'static str,
    /// Description of the observed violation.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.id, self.what)
    }
}

impl core::error::Error for Violation {}

const PLACES: usize = KINDS[0].1 + KINDS[1].1 + KINDS[2].1;

/// How often each invariant was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checks([u64; PLACES]);

impl Default for Checks {
    fn default() -> Self {
        Self([0; PLACES])
    }
}

impl Checks {
    /// Counts a check of an invariant.
    #[inline]
    pub fn add(&mut self, id: &str) {
        self.0[place(id)] += 1;
    }

    /// Checks an invariant. `what` describes the violation if it does not hold.
    #[inline]
    pub fn check(&mut self, id: &'static str, holds: bool, what: impl FnOnce() -> String) -> Result<(), Violation> {
        self.add(id);
        if holds { Ok(()) } else { Err(Violation { id, what: what() }) }
    }

    /// Checks that the pool and the model return the same.
    #[inline]
    pub fn same<T: PartialEq + fmt::Debug>(
        &mut self,
        id: &'static str,
        what: &str,
        actual: T,
        expected: T,
    ) -> Result<(), Violation> {
        self.check(id, actual == expected, || format!("{what}: {actual:?}, in the model {expected:?}"))
    }

    /// Number of checks of this invariant.
    #[must_use]
    pub fn of(&self, id: &str) -> u64 {
        self.0[place(id)]
    }

    /// Adds the counts of another instance.
    pub fn merge(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }

    /// The `ids` that were never checked.
    #[must_use]
    pub fn missing(&self, ids: &[&'static str]) -> Vec<&'static str> {
        ids.iter().copied().filter(|id| self.of(id) == 0).collect()
    }

    /// `{"P1": n, ..}`, without ids that were never checked.
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

/// Index of an id's counter.
#[inline]
fn place(id: &str) -> usize {
    let mut bytes = id.bytes();
    let first = match bytes.next() {
        Some(b'P') => 0,
        Some(b'M') => KINDS[0].1,
        Some(b'S') => KINDS[0].1 + KINDS[1].1,
        _ => panic!("unknown invariant {id:?}"),
    };
    let number = bytes.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'));
    assert!(number > 0, "unknown invariant {id:?}");
    first + number - 1
}
