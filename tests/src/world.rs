//! A seeded world in virtual time: a deployment with faults, and a client made of the real control machine, real pools and the real codec.
//!
//! The deployment (`truth`) is a replica set, routers, or a server on its own. Its members hear and say bytes: they read them by other
//! code than the client's, act, and answer (`member`); what becomes of bytes and connections on the way is drawn (`network`). The client
//! (`client`, `near`, `tasks`) drives a [`Control`](poolhouse_core::control::Control) and a [`Pool`](poolhouse_core::pool::Pool) for each
//! server as a host does, shakes hands on each connection, and runs commands on those that it checks out.
//!
//! First come faults: the oracles check everything that is observable after each step, of pools, of the control machine and of each of its
//! monitors. In a quarter of the lives fault points of core are armed besides ([`POINTS`]). Then they stop, and within a bound in virtual time the
//! client must see the deployment as it is, some of its members dead for good, and its pools must work; then it closes, and nothing may be
//! left. Some lives are closed before.

#![expect(clippy::wildcard_enum_match_arm, reason = "the others have no part in it")]

mod client;
mod faults;
mod host;
mod kind;
mod life;
pub(crate) mod log;
mod member;
mod monitors;
mod near;
mod network;
mod peace;
mod plan;
mod tasks;
mod truth;

pub use kind::{Counters, Kind};

use crate::choices::Decisions;
use crate::sim::{Trace, caught};
use life::World;
use plan::{Draws, Plan, Store};
use poolhouse_core::pool::{Fixed, OnHeap};
use poolhouse_core::sim::chance::{self, Point};

/// What core may do in a quarter of the lives although it hardly ever does.
///
/// Not what multiplexed pools do, which no world has; nor what the pool's oracle takes for a fault: `ServeOne` (P10), `PopulateLater` (P4) and
/// `RefuseConn` (P31).
pub const POINTS: [Point; 5] =
    [Point::OtherPlace, Point::OtherTimeout, Point::OtherAction, Point::WakeSelectors, Point::OldestAvailable];

/// And where pools keep their slots in place: there is no room for one more check-out that waits. Of a pool on the heap the oracle takes that for a
/// fault (P31).
pub const POINTS_IN_PLACE: [Point; 6] = [
    Point::OtherPlace,
    Point::OtherTimeout,
    Point::OtherAction,
    Point::WakeSelectors,
    Point::OldestAvailable,
    Point::RefuseWaiter,
];

/// What a world checks besides its oracles.
pub const CHECKED: [&str; 10] = ["P20", "P41", "P43", "P51", "P53", "P54", "S15", "S17", "S18", "S19"];

/// Lives one life.
///
/// # Errors
///
/// The message of the panic, when an invariant is broken or the view does not converge.
pub fn seed(of: &Decisions, counters: &mut Counters, trace: Option<&Trace>) -> Result<(), String> {
    let before = chance::fired();
    let outcome = caught(|| {
        let plan = Plan::draw(&mut of.stream("plan"));
        let draws = Draws::of(of);
        let points: &[Point] = if plan.store == Store::Heap { &POINTS } else { &POINTS_IN_PLACE };
        let _armed = plan.chances.then(|| chance::arm(of.seed(), points));
        match plan.store {
            Store::Heap => World::<OnHeap>::new(plan, draws, counters, trace).live(),
            Store::Fixed2 => World::<Fixed<2, 2>>::new(plan, draws, counters, trace).live(),
        }
    });
    for (sum, (after, before)) in counters.points.iter_mut().zip(chance::fired().into_iter().zip(before)) {
        *sum += after - before;
    }
    outcome
}
