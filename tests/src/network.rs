//! A simulated network with faults in virtual time: a deployment, and a client with the real
//! control machine, real pools and the real codec.
//!
//! The deployment (`truth`) is a replica set, routers, or a single server. Its members receive and
//! send bytes; their decoder is independent of the client's (`member`). The faults of bytes and
//! connections on the way are drawn (`network`). The client (`client`, `near`, `tasks`) runs a
//! [`Control`](poolhouse_core::control::Control) and a [`Pool`](poolhouse_core::pool::Pool) for
//! each server as a host does, performs the handshake on each connection, and sends commands on
//! connections that it checks out.
//!
//! In the first phase faults occur. After each step, the oracles check all observable state of
//! pools, of the control machine and of each of its monitors. In a quarter of the runs fault points
//! of core are also armed ([`POINTS`]). In the second phase the faults have stopped, and some
//! members stay dead. Within a bound in virtual time the client's view must match the deployment,
//! and its pools must work. Then the client is closed, and nothing may be left. Some runs are
//! closed earlier.

#![expect(clippy::wildcard_enum_match_arm, reason = "other events do not affect this state")]

mod client;
mod faults;
mod host;
mod kind;
mod links;
pub(crate) mod log;
mod member;
mod monitors;
mod near;
mod peace;
mod plan;
mod simulation;
mod tasks;
mod truth;

pub use kind::{Counters, Kind};

use crate::choices::Decisions;
use crate::sim::{Trace, caught};
use plan::{Draws, Plan, Store};
use poolhouse_core::pool::{Fixed, OnHeap};
use poolhouse_core::sim::chance::{self, Point};
use simulation::Simulation;

/// Rare behaviour of core that is forced in a quarter of the runs.
///
/// The points of multiplexed pools are left out, because a run has none. Also left out are points
/// that change what the pool's model predicts: `ServeOne`, `PopulateLater` and `RefuseConn`.
pub const POINTS: [Point; 5] =
    [Point::OtherPlace, Point::OtherTimeout, Point::OtherAction, Point::WakeSelectors, Point::OldestAvailable];

/// The points for pools with inline slots: a waiter may also be refused for lack of capacity.
pub const POINTS_IN_PLACE: [Point; 6] = [
    Point::OtherPlace,
    Point::OtherTimeout,
    Point::OtherAction,
    Point::WakeSelectors,
    Point::OldestAvailable,
    Point::RefuseWaiter,
];

/// Invariants that a run checks in addition to its oracles.
pub const CHECKED: [&str; 10] = ["P20", "P41", "P43", "P51", "P53", "P54", "S15", "S17", "S18", "S19"];

/// Executes one run.
///
/// # Errors
///
/// The message of the panic, when an invariant is broken or the client's view does not converge.
pub fn seed(of: &Decisions, counters: &mut Counters, trace: Option<&Trace>) -> Result<(), String> {
    let before = chance::fired();
    let outcome = caught(|| {
        let plan = Plan::draw(&mut of.stream("plan"));
        let draws = Draws::of(of);
        let points: &[Point] = if plan.store == Store::Heap { &POINTS } else { &POINTS_IN_PLACE };
        let _armed = plan.chances.then(|| chance::arm(of.seed(), points));
        match plan.store {
            Store::Heap => Simulation::<OnHeap>::new(plan, draws, counters, trace).run(),
            Store::Fixed2 => Simulation::<Fixed<2, 2>>::new(plan, draws, counters, trace).run(),
        }
    });
    for (sum, (after, before)) in counters.points.iter_mut().zip(chance::fired().into_iter().zip(before)) {
        *sum += after - before;
    }
    outcome
}
