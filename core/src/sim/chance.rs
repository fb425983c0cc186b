//! Fault points: behaviour that is permitted but rare.
//!
//! Each fault point stays within the promises of the machine's documentation and its specification,
//! but hardly ever occurs without a simulator: another order of unordered steps, work that is
//! delayed until `poll_timeout`, memory that is refused. A simulator arms fault points for its
//! thread, with a seed:
//!
//! ```
//! use poolhouse_core::sim::chance::{self, Point};
//!
//! let armed = chance::arm(7, &Point::UNSEEN);
//! // .. one run of a pool ..
//! let _fired = chance::fired();
//! drop(armed);
//! ```
//!
//! Each seed enables about a quarter of the given points. An enabled point fires in about a quarter
//! of its evaluations.

pub use crate::hooks::Point;

use crate::hooks;
use core::cell::Cell;
use core::marker::PhantomData;

#[cfg(test)]
pub(crate) mod tests;

impl Point {
    /// The number of points.
    pub const COUNT: usize = 12;

    /// All points, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::OtherPlace,
        Self::OtherStream,
        Self::OtherTimeout,
        Self::OtherAction,
        Self::WakeSelectors,
        Self::ServeOne,
        Self::PopulateLater,
        Self::OldestAvailable,
        Self::RefuseWaiter,
        Self::RefuseRequest,
        Self::NewestOfEqual,
        Self::RefuseConn,
    ];

    /// The points that cannot be observed from outside the machine, or that only change an
    /// unspecified order. An exact reference model of the machine stays valid with them.
    pub const UNSEEN: [Self; 4] = [Self::OtherPlace, Self::OtherStream, Self::OtherTimeout, Self::OtherAction];
}

std::thread_local! {
    /// The enabled points, one bit each. It is read first, because it is usually zero.
    static ON: Cell<u32> = const { Cell::new(0) };
    static STATE: Cell<u64> = const { Cell::new(0) };
    static ASKED: Cell<[u64; Point::COUNT]> = const { Cell::new([0; Point::COUNT]) };
    static FIRED: Cell<[u64; Point::COUNT]> = const { Cell::new([0; Point::COUNT]) };
}

/// Keeps the points of this thread armed until it is dropped.
#[must_use = "the points are disarmed when it is dropped"]
#[derive(Debug)]
pub struct Armed(PhantomData<*const ()>);

/// Arms a quarter of these points on this thread. The seed determines which, and when they fire.
///
/// # Panics
///
/// If points are already armed on this thread.
pub fn arm(seed: u64, points: &[Point]) -> Armed {
    assert!(ON.get() == 0, "points are already armed on this thread: drop `Armed` first");
    STATE.set(seed ^ 0x6a09_e667_f3bc_c908);
    let chosen = points.iter().filter(|_| next().is_multiple_of(4));
    ON.set(chosen.fold(1 << 31, |on, point| on | 1 << *point as u32));
    hooks::FIRES.set(fires);
    Armed(PhantomData)
}

impl Drop for Armed {
    fn drop(&mut self) {
        ON.set(0);
        hooks::FIRES.set(|_| false);
    }
}

/// The number of times each point was evaluated on this thread while enabled, since the thread
/// began, in the order of [`Point::ALL`].
#[must_use]
pub fn asked() -> [u64; Point::COUNT] {
    ASKED.get()
}

/// The number of times each point fired on this thread.
#[must_use]
pub fn fired() -> [u64; Point::COUNT] {
    FIRED.get()
}

fn fires(point: Point) -> bool {
    ON.get() & 1 << point as u32 != 0 && draw(point)
}

fn draw(point: Point) -> bool {
    let fires = next().is_multiple_of(4);
    add(&ASKED, point, 1);
    add(&FIRED, point, u64::from(fires));
    fires
}

fn add(counters: &'static std::thread::LocalKey<Cell<[u64; Point::COUNT]>>, point: Point, more: u64) {
    let mut counts = counters.get();
    counts[point as usize] += more;
    counters.set(counts);
}

/// The next number of the generator splitmix64.
fn next() -> u64 {
    let state = STATE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(state);
    let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
