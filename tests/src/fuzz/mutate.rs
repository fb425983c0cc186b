//! Random changes of the inputs of fuzz bodies.

use crate::choices::Choices;
use crate::rng::Rng;

/// Returns one of the inputs with one to four changes.
///
/// - `significant`: values that the format distinguishes, of which half of the new bytes are. If
///   there are any, parts of the input are also cut off and repeated.
#[must_use]
pub fn mutated(inputs: &[Vec<u8>], significant: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = if inputs.is_empty() { vec![0; 64] } else { inputs[rng.index(inputs.len())].clone() };
    for _ in 0..=rng.below(4) {
        let at = rng.index(bytes.len() + 1);
        match rng.below(if significant.is_empty() { 5 } else { 7 }) {
            0 if at < bytes.len() => bytes[at] = byte(significant, rng),
            1 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 if !inputs.is_empty() => {
                let other = &inputs[rng.index(inputs.len())];
                let from = rng.index(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            5 => bytes.truncate(at),
            6 => {
                let end = at + rng.index(bytes.len() - at + 1);
                bytes.extend_from_within(at..end);
            }
            _ => bytes.insert(at, byte(significant, rng)),
        }
    }
    bytes
}

fn byte(significant: &[u8], rng: &mut Rng) -> u8 {
    let is_any = significant.is_empty() || rng.one_in(2);
    if is_any { rng.next_u64().to_le_bytes()[0] } else { rng.one_of(significant) }
}
