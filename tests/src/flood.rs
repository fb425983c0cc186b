//! Names chosen by an attacker, and honest names of the same length.

use alloc::collections::BTreeMap;

use crate::choices::Choices;
use crate::rng::Rng;

/// The characters of a block, all valid in host names.
const LETTERS: [char; 32] = [
    'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm', 'n', 'o', 'p', 'q', 'r', 's', 't', 'u', 'v', 'w',
    'x', 'y', 'z', '0', '1', '2', '3', '4', '5',
];
/// Length of a block, bytes.
const BLOCK: usize = 8;

/// Returns `count` names with the same 32-bit FNV-1a hash. Their hashes stay equal if the same
/// bytes are appended to all. Each doubling of `count` adds eight bytes to a name.
///
/// The names are a multicollision: for each doubling, two blocks that lead from one state of the
/// hash to the same next state are found among some 65,536.
#[must_use]
pub fn colliding(count: usize) -> Vec<String> {
    let mut rng = Rng::new(7);
    let mut names = vec![String::new()];
    let mut state = 0x811c_9dc5_u32;
    while names.len() < count {
        let mut seen = BTreeMap::new();
        let (first, second) = loop {
            let block = block(&mut rng);
            let next = block.bytes().fold(state, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
            match seen.insert(next, block.clone()) {
                Some(other) if other != block => {
                    state = next;
                    break (other, block);
                }
                _ => {}
            }
        };
        names =
            [first, second].iter().flat_map(|block| names.iter().map(move |name| format!("{name}{block}"))).collect();
    }
    names.truncate(count);
    names
}

/// Returns `count` random names of `bytes` bytes.
#[must_use]
pub fn honest(count: usize, bytes: usize) -> Vec<String> {
    let mut rng = Rng::new(8);
    let name = |rng: &mut Rng| {
        let blocks: String = (0..bytes.div_ceil(BLOCK)).map(|_| block(rng)).collect();
        blocks[..bytes].to_owned()
    };
    (0..count).map(|_| name(&mut rng)).collect()
}

fn block(rng: &mut Rng) -> String {
    (0..BLOCK).map(|_| rng.one_of(&LETTERS)).collect()
}
