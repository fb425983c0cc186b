//! Where a test body draws its choices from: a seeded generator, the bytes of a fuzzer, or a counter that
//! goes through every possibility. A body that draws bounded choices only runs with any of them.

mod decisions;

pub use decisions::{Decisions, Script, Stream};

/// A source of bounded choices.
pub trait Choices {
    /// A number from 0 to `bound - 1`.
    ///
    /// # Panics
    ///
    /// Panics when `bound` is 0.
    fn below(&mut self, bound: u32) -> u32;

    /// Whether the source has nothing more to say, so that the body should come to its end.
    fn is_over(&self) -> bool;

    /// One of `items`.
    ///
    /// # Panics
    ///
    /// Panics when `items` is empty.
    fn one_of<T: Copy>(&mut self, items: &[T]) -> T
    where
        Self: Sized,
    {
        items[self.index(items.len())]
    }

    /// A place in a list of `len` items.
    ///
    /// # Panics
    ///
    /// Panics when `len` is 0.
    fn index(&mut self, len: usize) -> usize {
        self.below(u32::try_from(len).unwrap_or(u32::MAX)) as usize
    }

    /// True once in `n` times on average.
    fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    /// A place in a list of weights, as likely as its weight. An exhaustive source takes each that is not 0 once.
    ///
    /// # Panics
    ///
    /// Panics when every weight is 0.
    fn weighted(&mut self, weights: &[u32]) -> usize {
        let mut at = self.below(weights.iter().sum());
        for (place, &weight) in weights.iter().enumerate() {
            if at < weight {
                return place;
            }
            at -= weight;
        }
        unreachable!("a number below the sum of the weights falls into one of them")
    }
}

/// Choices out of the bytes of a fuzzer; the first of each choice once they are used up.
#[derive(Clone, Debug)]
pub struct Bytes<'a> {
    left: &'a [u8],
}

impl<'a> Bytes<'a> {
    /// The choices that these bytes make.
    #[must_use]
    pub const fn new(data: &'a [u8]) -> Self {
        Self { left: data }
    }
}

impl Choices for Bytes<'_> {
    fn below(&mut self, bound: u32) -> u32 {
        assert!(bound > 0, "a choice among nothing");
        if bound == 1 {
            return 0;
        }
        let width = match bound {
            0..=0x100 => 1,
            0x101..=0x1_0000 => 2,
            _ => 4,
        };
        let mut value = 0_u32;
        for _ in 0..width {
            let Some((&byte, rest)) = self.left.split_first() else { break };
            value = value << 8 | u32::from(byte);
            self.left = rest;
        }
        value % bound
    }

    fn is_over(&self) -> bool {
        self.left.is_empty()
    }
}

/// Goes through every sequence of choices that a body can make: run the body, [`Exhaustive::advance`], run it
/// again, until that says that there is no other.
#[derive(Clone, Debug, Default)]
pub struct Exhaustive {
    /// Choice and bound of each draw so far.
    path: Vec<(u32, u32)>,
    at: usize,
}

impl Exhaustive {
    /// Starts with the first choice everywhere.
    #[must_use]
    pub const fn new() -> Self {
        Self { path: Vec::new(), at: 0 }
    }

    /// Moves on to the next sequence of choices; false when that was the last one.
    pub fn advance(&mut self) -> bool {
        self.path.truncate(self.at);
        self.at = 0;
        while let Some((choice, bound)) = self.path.pop() {
            if choice + 1 < bound {
                self.path.push((choice + 1, bound));
                return true;
            }
        }
        false
    }
}

impl Choices for Exhaustive {
    fn below(&mut self, bound: u32) -> u32 {
        assert!(bound > 0, "a choice among nothing");
        let at = self.at;
        self.at += 1;
        if let Some(&(choice, known)) = self.path.get(at) {
            assert_eq!(known, bound, "the body is not deterministic");
            return choice;
        }
        self.path.push((0, bound));
        0
    }

    fn is_over(&self) -> bool {
        false
    }

    fn weighted(&mut self, weights: &[u32]) -> usize {
        let places: Vec<usize> = (0..weights.len()).filter(|&place| weights[place] > 0).collect();
        places[self.index(places.len())]
    }
}

#[cfg(test)]
mod tests;
