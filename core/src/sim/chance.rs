//! Fault points: what a machine may do but hardly ever does.
//!
//! Each is within what the machine's documentation or its specification promises, and each hardly ever happens by itself: another order of
//! things that have no order, work that is put off until [`poll_timeout`](crate::Machine::poll_timeout), memory that is refused. A simulator
//! arms them for its thread, by a seed:
//!
//! ```
//! use poolhouse_core::sim::chance::{self, Point};
//!
//! let armed = chance::arm(7, &Point::UNSEEN);
//! // .. one life of a pool ..
//! let _fired = chance::fired();
//! drop(armed);
//! ```
//!
//! Of the points that are given a quarter is on with each seed, and one that is on fires a quarter of the times that it is asked.

pub use crate::hooks::Point;

use crate::hooks;
use core::cell::Cell;
use core::marker::PhantomData;

#[cfg(test)]
pub(crate) mod tests;

impl Point {
    /// How many there are.
    pub const COUNT: usize = 12;

    /// Each, in the order of its number.
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

    /// Those that nobody can see who does not look into the machine, or whose order is open: a reference model that says exactly what comes holds with them.
    pub const UNSEEN: [Self; 4] = [Self::OtherPlace, Self::OtherStream, Self::OtherTimeout, Self::OtherAction];
}

std::thread_local! {
    /// What is armed, one bit each. The first thing that is looked at, and mostly the last.
    static ON: Cell<u32> = const { Cell::new(0) };
    static STATE: Cell<u64> = const { Cell::new(0) };
    static ASKED: Cell<[u64; Point::COUNT]> = const { Cell::new([0; Point::COUNT]) };
    static FIRED: Cell<[u64; Point::COUNT]> = const { Cell::new([0; Point::COUNT]) };
}

/// Points of this thread are armed for as long as this lives.
#[must_use = "nothing is armed any more once it is dropped"]
#[derive(Debug)]
pub struct Armed(PhantomData<*const ()>);

/// Arms a quarter of these points, chosen by the seed, on this thread; what they do comes by the seed too.
///
/// # Panics
///
/// If points are armed on this thread.
pub fn arm(seed: u64, points: &[Point]) -> Armed {
    assert!(ON.get() == 0, "points are armed once at a time");
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

/// How often each point was asked on this thread while it was on, since the thread began, in the order of [`Point::ALL`].
#[must_use]
pub fn asked() -> [u64; Point::COUNT] {
    ASKED.get()
}

/// How often each point fired on this thread.
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

/// splitmix64.
fn next() -> u64 {
    let state = STATE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(state);
    let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
