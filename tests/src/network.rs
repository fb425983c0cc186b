//! A simulated network with faults in virtual time: a deployment, and the client that ships.
//!
//! The deployment (`truth`) is a replica set, routers, a single server, a Cassandra cluster, or a
//! server of a simple protocol (`plain`). Nodes of a cluster have bad habits of real ones: they accept
//! connections while they shut down, and refuse requests on them; they forget prepared statements; they
//! answer on stream 0 to requests on other streams. Its members receive and send bytes; their decoder is
//! independent of the client's (`member`). The faults of members, and of bytes and connections on
//! the way, are drawn (`faults`, `links`). The nodes of a cluster list each other in tables, and send
//! events, not all of which are right (`nodes`): half of the sessions find their hosts in this way.
//! The client is a [`poolhouse_client::Client`], a session or a pool on a platform with virtual time
//! (`platform`): a run draws which ready task is polled next, and how bytes are cut. The application
//! begins operations, and drops some of their futures at any poll (`operations`).
//!
//! In the first phase faults occur. In a quarter of the runs fault points of core are also armed
//! ([`POINTS`]). In the second phase the faults have stopped, and some members stay dead. Within a
//! bound in virtual time the client's view must match the deployment. From then on every operation
//! must succeed, unless it uses a connection that broke before, or has little time; a request with a
//! location goes to the node that has the data. Then the client is closed or dropped, or the executor
//! drops one of its tasks, and nothing may be left. Some runs are closed earlier.
//!
//! Checked in each run: each operation ends once, in time, and with the reply to its own request; a
//! command is executed once, or again only if it may be repeated; a request is executed in the
//! keyspace of its session; the counts of pools agree with the open sockets; no task that could
//! continue waits; no waker of a task that has ended is left; no panic in any task. Half of the runs
//! have a subscriber. Its events are judged as well (`oracle::trace`, `mux_events`, `cluster_events`,
//! `log`), those of pools only if the run does not change their options, those of selections in half
//! of these runs (`selections`).

#![expect(clippy::wildcard_enum_match_arm, reason = "other events do not affect this state")]

mod cassandra;
mod cluster_events;
mod faults;
mod links;
mod member;
mod mux_events;
mod nodes;
mod operations;
mod peace;
mod plain;
mod plan;
mod platform;
mod selections;
mod simulation;
mod state;
mod stopped;
mod truth;

pub use crate::kind::{Counters, Kind};
pub use stopped::stopped_node;

use crate::choices::Decisions;
use crate::seeds::caught;
use crate::sim::Trace;
use plan::{Draws, Plan};
use poolhouse_core::sim::chance::{self, Point};
use simulation::Simulation;

/// Rare behaviour of core that is forced in a quarter of the runs.
///
/// Left out are points that are violations here: `ServeOne` (P10), `PopulateLater` (P4),
/// `RefuseConn` (P31), `RefuseWaiter` and `RefuseRequest` (P51).
pub const POINTS: [Point; 7] = [
    Point::OtherPlace,
    Point::OtherStream,
    Point::OtherTimeout,
    Point::OtherAction,
    Point::WakeSelectors,
    Point::OldestAvailable,
    Point::NewestOfEqual,
];

/// Invariants that a run checks in addition to its oracles.
pub const CHECKED: [&str; 31] = [
    "P1", "P5", "P8", "P10", "P11", "P15", "P19", "P22", "P31", "P42", "P43", "P51", "P53", "P54", "P55", "P56", "P57",
    "P59", "P60", "P61", "P62", "M1", "M2", "M3", "M4", "M6", "S12", "S15", "S17", "S18", "S19",
];

/// Number of seeds of a random test.
pub const SEEDS: u64 = 100;

/// Executes one run.
pub fn seed(of: &Decisions, counters: &mut Counters, trace: Option<&Trace>) -> Result<(), String> {
    let before = chance::fired();
    let plan = Plan::draw(&mut of.stream("plan"), &mut of.stream("cluster"));
    let draws = Draws::of(of);
    let outcome = {
        let _armed = plan.chances.then(|| chance::arm(of.seed(), &POINTS));
        let mut simulation = Simulation::new(plan, draws, trace.is_some());
        let outcome = caught(|| simulation.run());
        let mut lines = Vec::new();
        simulation.take(counters, &mut lines);
        if let Some(trace) = trace {
            trace.borrow_mut().append(&mut lines);
        }
        // After a failure the client may be in any state.
        let stopped = caught(|| simulation.stop());
        outcome.and(stopped)
    };
    for (sum, (after, before)) in counters.points.iter_mut().zip(chance::fired().into_iter().zip(before)) {
        *sum += after - before;
    }
    outcome
}
