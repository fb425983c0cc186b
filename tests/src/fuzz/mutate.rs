//! Random changes of the inputs of fuzz bodies.

use crate::choices::Choices;
use crate::rng::Rng;

/// Values that lengths, kinds and signs of the formats distinguish.
const SIGNIFICANT: [u8; 16] = [0, 1, 2, 3, 4, 5, 8, 9, 0x0f, 0x10, 0x7f, 0x80, 0x84, 0x85, 0xfe, 0xff];

/// Returns one of the inputs with one to four changes.
#[must_use]
pub fn mutated(inputs: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = if inputs.is_empty() { vec![0; 64] } else { inputs[rng.index(inputs.len())].clone() };
    for _ in 0..=rng.below(4) {
        let at = rng.index(bytes.len() + 1);
        match rng.below(8) {
            0 if at < bytes.len() => bytes[at] = byte(rng),
            1 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 => bytes.truncate(at),
            4 => {
                let end = at + rng.index(bytes.len() - at + 1);
                bytes.extend_from_within(at..end);
            }
            5 if !inputs.is_empty() => {
                let other = &inputs[rng.index(inputs.len())];
                let from = rng.index(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => bytes.insert(at, byte(rng)),
        }
    }
    bytes
}

fn byte(rng: &mut Rng) -> u8 {
    if rng.one_in(2) { rng.one_of(&SIGNIFICANT) } else { rng.next_u64().to_le_bytes()[0] }
}
