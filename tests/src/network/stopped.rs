//! A node of a Cassandra cluster that stops under load: its sockets stay open, its host accepts connections
//! and bytes, and nothing is answered.

use super::cassandra::text_of;
use super::operations::Subject;
use super::plan::{Draws, MS, Plan, nanos};
use super::platform::Sim;
use super::simulation::Simulation;
use super::state::{MaxTime, START};
use crate::choices::Decisions;
use alloc::sync::Arc;
use core::time::Duration;
use poolhouse_client::mux::Session;
use poolhouse_core::mux::MuxOptions;
use std::sync::{Mutex, PoisonError};

/// A few tasks, so that soon all of them wait for the stopped node.
const TASKS: usize = 4;
const PAUSE: u64 = 250 * MS;
/// The interval of heartbeats, long enough that all tasks wait for the node before it is noticed.
const INTERVAL: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the longest time without a success of requests that may be repeated, and its bound: the node stops after
/// this part of the interval of heartbeats, so one is sent after the rest of it.
#[must_use]
pub fn stopped_node(part: f64) -> (Duration, Duration) {
    let of = Decisions::of_seed(0);
    let mut plan = Plan::calm_cluster(&of);
    plan.mux = MuxOptions { heartbeat_interval: INTERVAL, heartbeat_timeout: TIMEOUT, ..plan.mux };
    let mut simulation = Simulation::new(plan, Draws::of(&of), false);
    let Subject::Session(session) = simulation.subject().clone() else { unreachable!("a cluster has a session") };
    let successes = Arc::<Mutex<Vec<u64>>>::default();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| simulation.sim.start(repeat(simulation.sim.clone(), session.clone(), Arc::clone(&successes))))
        .collect();
    drop(session);
    // The connections are established at the start.
    let stops_at = START + nanos(INTERVAL * 2 + INTERVAL.mul_f64(part));
    simulation.step_until(stops_at);
    simulation.sim.with(|state| state.freeze(1));
    let end = stops_at + nanos(2 * (INTERVAL + TIMEOUT));
    simulation.step_until(end);
    drop(tasks);
    simulation.stop();
    let mut moments = successes.lock().unwrap_or_else(PoisonError::into_inner).clone();
    moments.retain(|at| *at >= stops_at);
    moments.insert(0, stops_at);
    moments.push(end);
    let gap = moments.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(u64::MAX);
    (Duration::from_nanos(gap), INTERVAL.mul_f64(1.0 - part) + TIMEOUT + Duration::from_millis(100))
}

async fn repeat(sim: Sim, session: Session<Sim>, successes: Arc<Mutex<Vec<u64>>>) {
    loop {
        let number = sim.with(|state| state.number(u32::MAX, false, MaxTime::AtMost(None)));
        if session.query(&text_of(number)).idempotent(true).send().await.is_ok() {
            let now = sim.with(|state| state.now);
            successes.lock().unwrap_or_else(PoisonError::into_inner).push(now);
        }
        sim.sleep(PAUSE).await;
    }
}
