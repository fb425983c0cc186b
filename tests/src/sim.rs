//! A seeded simulator of the pool. One seed is one simulated run.
//!
//! A run draws its options and a mix of operations, and applies them to a
//! [watched](crate::oracle::pool::Watched) pool. At the end the faults stop and
//! the pool is closed: each check-out must have ended, and nothing may be left (P43, P51).

#[macro_use]
mod kind;
pub mod mux;
mod ops;
mod simulation;

pub use kind::{Counters, Kind};

use crate::choices::{Choices, Decisions};
use crate::seeds::caught;
use core::cell::RefCell;
use core::time::Duration;
use poolhouse_core::pool::{Fixed, OnHeap, PoolOptions, Reuse};
use simulation::Simulation;

/// Number of seeds of a random test. With a thousand, every kind of operation and check occurs.
pub const SEEDS: u64 = 1_000;

/// The log of a run, for readers.
pub type Trace = RefCell<Vec<String>>;

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The options of the pool.
    pub options: PoolOptions,
    /// The memory of its slots.
    pub store: Store,
    /// Weights of the kinds of operation, in the order of [`Kind::ALL`]; 0 is never.
    pub weights: [u32; Kind::COUNT],
    /// Percentage of steps in which the last kind is repeated.
    pub sticky: u32,
    /// Number of operations.
    pub steps: u32,
}

/// The memory of a pool's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// On the heap.
    Heap,
    /// Inline, with capacity for 2 connections, 3 check-outs and 1 service.
    Fixed2,
    /// Inline, with capacity for 6 connections, 8 check-outs and 2 services.
    Fixed6,
}

impl Shape {
    /// Draws other valid options for a pool with these options.
    pub(crate) fn other_options(options: &PoolOptions, choices: &mut impl Choices) -> PoolOptions {
        let max_pool_size = choices.one_of(&[0, 1, 2, 3, 5, 8]);
        let min_pool_size = choices.one_of(&[0, 0, 1, 2, 4]);
        PoolOptions {
            max_pool_size,
            min_pool_size: if max_pool_size == 0 { min_pool_size } else { min_pool_size.min(max_pool_size) },
            max_idle_time: choices.one_of(&[None, None, Some(1), Some(10)]).map(Duration::from_millis),
            max_connecting: choices.below(8) + 1,
            wait_queue_timeout: choices.one_of(&[None, None, Some(1), Some(10), Some(500)]).map(Duration::from_millis),
            limits_establishing: options.limits_establishing,
            reuse: options.reuse,
            // The pool must ignore changes of these two options.
            load_balanced: options.load_balanced != choices.one_in(4),
            background: options.background != choices.one_in(4),
        }
    }

    /// Allows changes of the options during the run.
    #[must_use]
    pub fn with_reconfiguration(mut self) -> Self {
        self.weights[Kind::Reconfigure as usize] = 10;
        self
    }

    /// Allows fill targets during the run.
    #[must_use]
    pub fn with_filling(mut self) -> Self {
        self.weights[Kind::Fill as usize] = 10;
        self
    }

    /// Simulates what generic pools do beyond the specification: connections retire, the oldest
    /// available one is reused first, and the wait limit includes establishing.
    #[must_use]
    pub fn with_extensions(mut self, seed: u64) -> Self {
        self.weights[Kind::Retire as usize] = 10;
        self.options.limits_establishing = seed.is_multiple_of(2);
        self.options.reuse = if seed.is_multiple_of(3) { Reuse::Oldest } else { Reuse::Newest };
        self
    }

    /// Simulates a client without a subscriber that does not read the clock for part of its
    /// check-outs and check-ins. maxIdleTimeMS is zero until options change.
    #[must_use]
    pub fn with_untimed_calls(mut self) -> Self {
        self.options = PoolOptions { max_idle_time: None, load_balanced: false, background: true, ..self.options };
        for kind in [Kind::CheckOutUntimed, Kind::CheckInUntimed, Kind::ClockRead] {
            self.weights[kind as usize] = 100 / kind.rarity();
        }
        // These operations make connections available and change options.
        for kind in [Kind::Ready, Kind::Established, Kind::Drain, Kind::CheckOut, Kind::Claim] {
            self.weights[kind as usize] = self.weights[kind as usize].max(50);
        }
        self.weights[Kind::Reconfigure as usize] *= 10;
        self
    }

    /// Draws all parameters (swarm testing): extremes are as likely as ordinary values, and some
    /// kinds of operation never occur.
    pub fn draw(choices: &mut impl Choices) -> Self {
        let max_pool_size = choices.one_of(&[0, 1, 2, 3, 5, 8, 100]);
        let min_pool_size = choices.one_of(&[0, 0, 1, 2, 4]);
        let load_balanced = choices.one_in(4);
        let options = PoolOptions {
            max_pool_size,
            min_pool_size: if max_pool_size == 0 { min_pool_size } else { min_pool_size.min(max_pool_size) },
            max_idle_time: choices.one_of(&[None, None, Some(1), Some(10), Some(1_000)]).map(Duration::from_millis),
            max_connecting: choices.below(8) + 1,
            wait_queue_timeout: choices.one_of(&[None, None, Some(1), Some(10), Some(500)]).map(Duration::from_millis),
            load_balanced,
            limits_establishing: false,
            reuse: Reuse::Newest,
            background: !choices.one_in(3),
        };
        let store = choices.one_of(&[Store::Heap, Store::Heap, Store::Fixed2, Store::Fixed6]);
        let uniform = choices.one_in(4);
        let mut weights = [10; Kind::COUNT];
        for (kind, weight) in Kind::ALL.into_iter().zip(&mut weights) {
            let is_later = matches!(
                kind,
                Kind::Reconfigure | Kind::Fill | Kind::Retire | Kind::CheckOutUntimed | Kind::CheckInUntimed
            );
            if is_later || kind == Kind::ClockRead {
                *weight = 0;
                continue;
            }
            if !uniform {
                *weight = if choices.one_in(6) { 0 } else { choices.below(100) + 1 };
            }
            *weight = (*weight).div_ceil(kind.rarity());
        }
        weights[Kind::Ready as usize] = weights[Kind::Ready as usize].max(1);
        let sticky = choices.one_of(&[0, 0, 30, 80]);
        Self { options, store, weights, sticky, steps: choices.below(150) + 10 }
    }
}

/// Runs one simulation with these parameters.
pub fn run(shape: &Shape, choices: &mut impl Choices, counters: &mut Counters, trace: Option<&Trace>) {
    match shape.store {
        Store::Heap => Simulation::<OnHeap>::new(shape, counters, trace).run(choices),
        Store::Fixed2 => Simulation::<Fixed<2, 3, 1>>::new(shape, counters, trace).run(choices),
        Store::Fixed6 => Simulation::<Fixed<6, 8, 2>>::new(shape, counters, trace).run(choices),
    }
}

/// Runs the simulation of this seed.
pub fn seed(of: &Decisions, counters: &mut Counters, trace: Option<&Trace>) -> Result<(), String> {
    let seed = of.seed();
    let mut shape = Shape::draw(&mut of.stream("shape"));
    // Runs of even seeds stay as they were before reconfiguration was added, because some of them
    // are pinned.
    if !seed.is_multiple_of(2) {
        shape = shape.with_reconfiguration();
    }
    if seed % 4 == 3 {
        shape = shape.with_filling();
    }
    // No pinned seed is a multiple of five.
    if seed.is_multiple_of(5) {
        shape = if seed.is_multiple_of(10) { shape.with_extensions(seed / 10) } else { shape.with_untimed_calls() };
    }
    if let Some(trace) = trace {
        trace.borrow_mut().push(format!("{:?} in {:?}", shape.options, shape.store));
    }
    let mut operations = of.stream("operations");
    caught(|| run(&shape, &mut operations, counters, trace))
}

/// Draws the kind of the next operation among those that are possible now. It may repeat the last
/// kind.
///
/// - `weights`: the weight of each kind.
/// - `sticky`: percentage of steps that repeat the last kind.
fn next_kind<K: Copy, const N: usize>(
    all: [K; N],
    mut weights: [u32; N],
    sticky: u32,
    last: Option<K>,
    is_enabled: impl Fn(K) -> bool,
    choices: &mut impl Choices,
) -> Option<K> {
    if let Some(kind) = last.filter(|&kind| sticky > 0 && is_enabled(kind) && choices.below(100) < sticky) {
        return Some(kind);
    }
    for (kind, weight) in all.into_iter().zip(&mut weights) {
        if *weight > 0 && !is_enabled(kind) {
            *weight = 0;
        }
    }
    let any = weights.iter().any(|&weight| weight > 0);
    any.then(|| all[choices.weighted(&weights)])
}
