//! A seeded simulator of the multiplexed pool. One seed is one simulated run.
//!
//! A run draws its options and a mix of operations of the host, of honest and of hostile peers, and
//! applies them to a [watched](crate::oracle::mux::Watched) pool. Its model records the owner of
//! each stream id: a reply may reach only the request that holds its id on its connection, each
//! request ends once, and each id is freed or ends with its connection.
//!
//! [`day`] simulates a day of load in virtual time.

pub mod day;
mod kind;
mod ops;
mod simulation;

pub use kind::{Counters, Kind};

use super::Trace;
use crate::choices::{Choices, Decisions};
use crate::seeds::caught;
use core::time::Duration;
use poolhouse_core::mux::{Distance, HostOptions, MuxFixed, MuxOnHeap, MuxOptions, stream_words};
use simulation::Simulation;

/// Number of seeds of a random test.
pub const SEEDS: u64 = 250;

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The options of the pool.
    pub options: MuxOptions,
    /// The memory of its slots.
    pub store: Store,
    /// Weights of the kinds of operation, in the order of [`Kind::ALL`]; 0 is never.
    pub weights: [u32; Kind::COUNT],
    /// Percentage of steps in which the last kind is repeated.
    pub sticky: u32,
    /// Number of operations.
    pub steps: u32,
    /// The source of the random parts of pauses.
    pub entropy: u32,
    /// The first stream is never assigned.
    pub keeps_first: bool,
}

/// The memory of a pool's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// On the heap.
    Heap,
    /// Inline, with capacity for 2 connections, 3 waiters and 64 ids.
    Fixed2,
    /// Inline, with capacity for 6 connections, 8 waiters and 128 ids.
    Fixed6,
    /// Inline, without capacity for connections.
    Fixed0,
}

impl Shape {
    /// Draws all parameters (swarm testing): extremes are as likely as ordinary values, and some
    /// kinds of operation never occur.
    pub fn draw(choices: &mut impl Choices) -> Self {
        let options = options(choices);
        let store =
            choices.one_of(&[Store::Heap, Store::Heap, Store::Heap, Store::Fixed2, Store::Fixed6, Store::Fixed6]);
        let store = if choices.one_in(40) { Store::Fixed0 } else { store };
        let uniform = choices.one_in(4);
        let hostile = choices.one_in(2);
        let changing = choices.one_in(3);
        let mut weights = [40; Kind::COUNT];
        for (kind, weight) in Kind::ALL.into_iter().zip(&mut weights) {
            if !uniform {
                *weight = if choices.one_in(8) { 0 } else { choices.below(100) + 1 };
            }
            let left_out = (!hostile && kind.is_attack()) || (!changing && kind.is_change());
            *weight = if left_out { 0 } else { (*weight).div_ceil(kind.rarity()) };
        }
        for kind in [Kind::Established, Kind::Acquire, Kind::PollAction] {
            weights[kind as usize] = weights[kind as usize].max(2);
        }
        let sticky = choices.one_of(&[0, 0, 30, 80]);
        let steps = choices.below(300) + 10;
        let entropy = choices.one_of(&[0, 1, 0x9e37_79b9, u32::MAX]);
        Self { options, store, weights, sticky, steps, entropy, keeps_first: choices.one_in(4) }
    }
}

impl Kind {
    const fn is_attack(self) -> bool {
        let replies = matches!(self, Self::ReplyTwice | Self::ReplyFreed | Self::ReplyUnwritten | Self::ReplyAny);
        replies || matches!(self, Self::ReplyOutOfRange)
    }

    const fn is_change(self) -> bool {
        matches!(self, Self::Reconfigure | Self::ReplaceConnections | Self::Ignore | Self::Close)
    }
}

/// Draws valid options.
fn options(choices: &mut impl Choices) -> MuxOptions {
    let streams_per_connection = choices.one_of(&[1, 2, 3, 4, 5, 8, 8, 20, 65, 130]);
    let millis = |choices: &mut dyn FnMut(u32) -> u32, values: &[u64]| {
        Duration::from_millis(values[choices(u32::try_from(values.len()).unwrap_or(1)) as usize])
    };
    let mut options = MuxOptions {
        distance: choices.one_of(&[Distance::Local, Distance::Local, Distance::Remote]),
        local: host(choices, streams_per_connection),
        remote: host(choices, streams_per_connection),
        streams_per_connection,
        max_queue_size: choices.one_of(&[0, 1, 3, 256]),
        ..MuxOptions::DEFAULT
    };
    let mut below = |bound| choices.below(bound);
    options.pool_timeout = millis(&mut below, &[0, 1, 10, 10, 5_000]);
    options.idle_timeout = millis(&mut below, &[0, 1, 10, 50, 1_000]);
    options.heartbeat_interval = millis(&mut below, &[0, 1, 20, 1_000]);
    options.heartbeat_timeout = millis(&mut below, &[1, 5, 1_000]);
    options.shrink_interval = millis(&mut below, &[1, 10, 10, 100]);
    options.backoff_min = millis(&mut below, &[1, 50, 50, 1_000]);
    options.backoff_max = options.backoff_min.max(millis(&mut below, &[1, 75, 500, 60_000]));
    if choices.one_in(10) {
        let longest = [
            &mut options.pool_timeout,
            &mut options.idle_timeout,
            &mut options.heartbeat_interval,
            &mut options.heartbeat_timeout,
            &mut options.shrink_interval,
            &mut options.backoff_max,
        ];
        for option in longest {
            if choices.one_in(2) {
                *option = Duration::MAX;
            }
        }
    }
    // Without heartbeats the timeout has no effect.
    if options.heartbeat_interval.is_zero() && choices.one_in(2) {
        options.heartbeat_timeout = Duration::ZERO;
    }
    options
}

fn host(choices: &mut impl Choices, streams: u32) -> HostOptions {
    let max_connections = choices.one_of(&[1, 2, 3, 3, 8]);
    let max_requests_per_connection = choices.one_of(&[1, 2, 4, streams / 2, streams, streams]).clamp(1, streams);
    let most = max_requests_per_connection;
    HostOptions {
        core_connections: choices.one_of(&[0, 1, 1, 2, 8]).min(max_connections),
        max_connections,
        max_requests_per_connection,
        new_connection_threshold: choices.one_of(&[0, 1, most / 2, most * 3 / 4, most]).min(most),
    }
}

/// Runs one simulation with these parameters.
pub fn run(shape: &Shape, choices: &mut impl Choices, counters: &mut Counters, trace: Option<&Trace>) {
    match shape.store {
        Store::Heap => Simulation::<MuxOnHeap>::new(shape, counters, trace).run(choices),
        Store::Fixed2 => {
            Simulation::<MuxFixed<2, 3, { stream_words(64) }>>::new(shape, counters, trace).run(choices);
        }
        Store::Fixed6 => {
            Simulation::<MuxFixed<6, 8, { stream_words(128) }>>::new(shape, counters, trace).run(choices);
        }
        Store::Fixed0 => Simulation::<MuxFixed<0, 1, 4>>::new(shape, counters, trace).run(choices),
    }
}

/// Runs the simulation of this seed.
pub fn seed(of: &Decisions, counters: &mut Counters, trace: Option<&Trace>) -> Result<(), String> {
    let shape = Shape::draw(&mut of.stream("shape"));
    if let Some(trace) = trace {
        trace.borrow_mut().push(format!("{:?} in {:?}", shape.options, shape.store));
    }
    let mut operations = of.stream("operations");
    caught(|| run(&shape, &mut operations, counters, trace))
}
