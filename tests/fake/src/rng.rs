//! A small seeded random number generator: the same numbers on every machine and in every version.

/// xoshiro256++, seeded by splitmix64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// Creates the generator of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut mix = SplitMix(seed);
        Self { state: [mix.next(), mix.next(), mix.next(), mix.next()] }
    }

    /// Creates a separate generator for one part of a simulation: its numbers do not depend on the
    /// draws of other parts.
    #[must_use]
    pub fn stream(seed: u64, part: &str) -> Self {
        // FNV-1a over the name.
        let name = part
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        Self::new(SplitMix(seed ^ name).next())
    }

    /// Returns the next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        let (b, a) = (b ^ c, a ^ d);
        self.state = [a, b, c ^ (self.state[1] << 17), d.rotate_left(45)];
        result
    }
}

struct SplitMix(u64);

impl SplitMix {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests;
