//! The active mutant. Not part of any crate: tests/scripts/mutants adds this file to its copies.

extern crate std;

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::io::Write as _;

/// The environment variable was not read yet.
const UNKNOWN: u32 = u32::MAX;
/// No mutant is active, and the executed mutants are reported.
const TOLD: u32 = u32::MAX - 1;

static AWAKE: AtomicU32 = AtomicU32::new(UNKNOWN);
static MET: [AtomicBool; 1 << 14] = [const { AtomicBool::new(false) }; 1 << 14];

/// Whether the mutant with this number is active, as selected by `POOLHOUSE_MUTANT`. In constant
/// evaluation none is active.
#[inline(always)]
pub(crate) const fn on(id: u32) -> bool {
    core::intrinsics::const_eval_select((id,), never, awake)
}

const fn never(_id: u32) -> bool {
    false
}

#[inline(always)]
fn awake(id: u32) -> bool {
    let awake = AWAKE.load(Ordering::Relaxed);
    awake == id || (awake >= TOLD && ask(id))
}

#[cold]
#[inline(never)]
fn ask(id: u32) -> bool {
    if AWAKE.load(Ordering::Relaxed) == UNKNOWN {
        let named = std::env::var("POOLHOUSE_MUTANT").ok().map_or(0, |id| id.parse().expect("a number"));
        let told = std::env::var_os("POOLHOUSE_MUTANTS_MET").is_some();
        AWAKE.store(if told { TOLD } else { named }, Ordering::Relaxed);
    }
    if AWAKE.load(Ordering::Relaxed) == TOLD && !MET[id as usize].swap(true, Ordering::Relaxed) {
        let path = std::env::var_os("POOLHOUSE_MUTANTS_MET").expect("a path");
        let mut file = std::fs::File::options().create(true).append(true).open(path).expect("a file");
        file.write_all(std::format!("{id}\n").as_bytes()).expect("written");
    }
    AWAKE.load(Ordering::Relaxed) == id
}

/// One of two iterator types, for functions that return `impl Iterator`.
#[derive(Clone, Debug)]
pub(crate) enum Either<A, B> {
    Core(A),
    Other(B),
}

impl<T, A: Iterator<Item = T>, B: Iterator<Item = T>> Iterator for Either<A, B> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        match self {
            Self::Core(core) => core.next(),
            Self::Other(other) => other.next(),
        }
    }
}
