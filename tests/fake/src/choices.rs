//! Sources of choices for a test body: a seeded generator, or the bytes of a fuzzer. A body that
//! draws only bounded choices runs with each of them.

mod decisions;

pub use decisions::{Decisions, Script, Stream};

/// A source of bounded choices.
pub trait Choices {
    /// Returns a number from 0 to `bound - 1`.
    ///
    /// # Panics
    ///
    /// Panics when `bound` is 0.
    fn below(&mut self, bound: u32) -> u32;

    /// Returns whether the source is exhausted, so that the body should end.
    fn is_over(&self) -> bool;

    /// Returns an item of `items`.
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

    /// Returns an index into a list of `len` items.
    ///
    /// # Panics
    ///
    /// Panics when `len` is 0.
    fn index(&mut self, len: usize) -> usize {
        self.below(u32::try_from(len).unwrap_or(u32::MAX)) as usize
    }

    /// Returns true once in `n` times on average.
    fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    /// Returns an index into a list of weights, with a probability proportional to its weight.
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

/// Choices derived from the bytes of a fuzzer. After the last byte, each choice returns its first
/// option.
#[derive(Clone, Debug)]
pub struct Bytes<'a> {
    left: &'a [u8],
}

impl<'a> Bytes<'a> {
    /// Creates a source from these bytes.
    #[must_use]
    pub const fn new(data: &'a [u8]) -> Self {
        Self { left: data }
    }
}

impl Choices for Bytes<'_> {
    fn below(&mut self, bound: u32) -> u32 {
        assert!(bound > 0, "the bound of a choice must be at least 1");
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

#[cfg(test)]
mod tests;
