//! Equality of states for the [search](crate::search): includes everything that determines further
//! behaviour, and excludes history. State machines and models hash themselves into it.

use core::hash::Hasher;
use poolhouse_core::sim::Word;

/// Hashes a state to 128 bits.
///
/// - Times are relative to now; times older than the horizon count as equal to it.
/// - The numbers of connections and check-outs are ignored: only slots and owners matter. A state
///   that stores such a number must hash the slot that it refers to.
/// - Generations are either current or old, unless a scope distinguishes them.
/// - Start times that are only reported in events are ignored.
///
/// The probability that two states of one search have the same 128 bits is one in 10^24 for a
/// search of a million states.
#[derive(Clone, Debug)]
pub struct Canon {
    now: u64,
    horizon: u64,
    generation: Option<u64>,
    lanes: [u64; 2],
}

const KEYS: [u64; 4] = [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db, 0x8ebc_6af0_9c88_c6e3, 0x5899_65cc_7537_4cc3];

impl Canon {
    /// - `now`: in nanoseconds.
    /// - `horizon`: age in nanoseconds from which on all times are equal.
    /// - `generation`: the current one, if all others count as equal.
    #[must_use]
    pub const fn new(now: u64, horizon: u64, generation: Option<u64>) -> Self {
        Self { now, horizon, generation, lanes: [KEYS[2], KEYS[3]] }
    }

    /// A point in time, in nanoseconds.
    pub fn time(&mut self, at: u64) {
        let word = if at >= u64::MAX - 1 {
            u64::MAX
        } else if at >= self.now {
            at - self.now
        } else {
            (self.now - at).min(self.horizon) | 1 << 63
        };
        self.write_u64(word);
    }

    /// A generation.
    pub fn generation(&mut self, number: u64) {
        self.write_u64(self.generation.map_or(number, |now| u64::from(number == now)));
    }

    /// The hash.
    #[must_use]
    pub fn print(&self) -> u128 {
        let [one, other] = self.lanes;
        u128::from(folded(one ^ KEYS[0], other)) << 64 | u128::from(folded(other ^ KEYS[1], one))
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "both halves")]
fn folded(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product as u64) ^ ((product >> 64) as u64)
}

impl Hasher for Canon {
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    fn finish(&self) -> u64 {
        self.print() as u64
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    #[inline]
    fn write_u16(&mut self, number: u16) {
        self.write_u64(u64::from(number));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let [one, other] = self.lanes;
        self.lanes = [folded(one ^ number, KEYS[0]), folded(other.rotate_left(23) ^ number, KEYS[1])];
    }

    #[inline]
    fn write_u128(&mut self, word: u128) {
        match Word::of(word) {
            Some((Word::Time, number)) => self.time(number - 1),
            Some((Word::Generation, number)) => self.generation(number),
            Some((Word::Serial, _)) => {}
            None => panic!("a word of an unknown kind: {word:#x}"),
        }
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

#[cfg(test)]
mod tests;
