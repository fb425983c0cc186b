//! Tokens of partition keys.
//!
//! Sources: Austin Appleby's `MurmurHash3.cpp`, `MurmurHash3_x64_128`; Cassandra's
//! `Murmur3Partitioner` and `MurmurHash`, which differ from it in the last bytes of a key.

#[cfg(test)]
mod tests;

/// The position of a partition on the ring of Cassandra's `Murmur3Partitioner`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(i64);

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

impl Token {
    /// Creates the token with this number.
    #[must_use]
    pub const fn new(number: i64) -> Self {
        Self(number)
    }

    /// Computes the token of a serialized partition key.
    ///
    /// - `partition_key`: the serialized value of its column. If it has several columns: for each,
    ///   the length of its value in two bytes, the value, and a byte of zero. The text and the blob
    ///   of no bytes have a token, too.
    ///
    /// Cost: linear in the key, no allocation.
    #[must_use]
    pub fn of(partition_key: &[u8]) -> Self {
        // Cassandra reserves the least number for the beginning of the ring.
        if partition_key.is_empty() {
            return Self(i64::MIN);
        }
        match hash(partition_key) {
            i64::MIN => Self(i64::MAX),
            number => Self(number),
        }
    }

    /// Reads a token as the system tables contain it: a decimal number. `None` for the tokens of
    /// other partitioners.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> i64 {
        self.0
    }
}

/// The first 64 bits of the hash.
fn hash(bytes: &[u8]) -> i64 {
    let (mut h1, mut h2) = (0_u64, 0_u64);
    let mut rest = bytes;
    while let Some((block, behind)) = rest.split_first_chunk::<16>() {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *block;
        h1 ^= mix_first(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 ^= mix_second(u64::from_le_bytes([i, j, k, l, m, n, o, p]));
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
        rest = behind;
    }
    // The bytes of the tail are signed in Cassandra: a negative one also flips the bits above it.
    let (mut k1, mut k2) = (0, 0);
    for (place, byte) in rest.iter().enumerate() {
        let signed = i64::from(byte.cast_signed()).cast_unsigned();
        let half = if place < 8 { &mut k1 } else { &mut k2 };
        *half ^= signed << (place % 8 * 8);
    }
    h2 ^= mix_second(k2);
    h1 ^= mix_first(k1);
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    h1 ^= length;
    h2 ^= length;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    finish(h1).wrapping_add(finish(h2)).cast_signed()
}

fn mix_first(k: u64) -> u64 {
    k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn mix_second(k: u64) -> u64 {
    k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn finish(mut k: u64) -> u64 {
    k ^= k >> 33;
    k = k.wrapping_mul(0xff51_afd7_ed55_8ccd);
    k ^= k >> 33;
    k = k.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ k >> 33
}
