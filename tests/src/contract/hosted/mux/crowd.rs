//! Many tasks on the platform's executor, and few connections.

use super::{CALM, Rig, run};
use crate::contract::crowd::{TASKS, assert_fair};
use crate::contract::hosted::join;
use crate::cql_server::{CqlServer, CqlServerOptions};
use crate::patience::eventually;
use crate::suite::Suite;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};
use poolhouse_client::Platform;
use poolhouse_client::mux::{HostOptions, MuxOptions};
use poolhouse_cql::Consistency;

pub(super) fn add<P: Platform + Default>(suite: Suite) -> Suite {
    suite.case("hosted::mux::crowd::every_task_has_its_turn", || run::<P>(async || crowd::<P>("void", 0).await)).case(
        "hosted::mux::crowd::no_task_has_twice_the_turns_of_another",
        || {
            run::<P>(async || crowd::<P>(DELAYED, TASKS * TURNS).await);
        },
    )
}

/// Average number of turns of each task in the comparison. With the delay of [`DELAYED`], all turns
/// together take six seconds. If the system does not run one of the server's threads for half a
/// second, the tasks on its connection still keep more than half of their turns.
const TURNS: u32 = 32;
/// A statement whose reply is delayed by 75 ms. Without the delay, six seconds are five million turns.
const DELAYED: &str = "delay 75 void";
const CONNECTIONS: u32 = 4;
const REQUESTS: u32 = 1024;

/// Each task sends `statement` once, and again until all tasks together had `turns` turns.
async fn crowd<P: Platform + Default>(statement: &'static str, turns: u32) {
    let local = HostOptions {
        core_connections: CONNECTIONS,
        max_connections: CONNECTIONS,
        max_requests_per_connection: REQUESTS,
        new_connection_threshold: REQUESTS,
    };
    let mux = MuxOptions { local, max_queue_size: TASKS, ..CALM };
    let server = CqlServer::start(CqlServerOptions::fast()).expect("a server");
    let rig = Rig::<P>::of(vec![server], |options| options.mux(mux));
    eventually("it is connected", || rig.state(0).open == CONNECTIONS).await;
    rig.works().await;
    // The server stops reading, so all tasks start together.
    rig.server().pause_reading();
    let before = rig.server().counts().requests;
    let all = Arc::new(AtomicU32::new(0));
    let tasks = join(
        &rig.platform,
        (0..TASKS).map(|_| {
            let (session, all) = (rig.session.clone(), Arc::clone(&all));
            async move {
                let mut had = 0;
                loop {
                    session.query(statement).consistency(Consistency::One).send().await.expect("it is answered");
                    had += 1;
                    if all.fetch_add(1, Ordering::Relaxed) + 1 >= turns {
                        return had;
                    }
                }
            }
        }),
    );
    let begin = async {
        let state = || rig.state(0);
        eventually("all wait", || state().in_flight + state().queued == TASKS).await;
        assert_eq!(state().in_flight, CONNECTIONS * REQUESTS);
        rig.server().resume_reading();
    };
    let (had, ()) = futures_lite::future::zip(tasks, begin).await;
    assert!(had.iter().all(|had| *had > 0));
    if turns > 0 {
        assert_fair(had.iter().copied());
    }
    let all: u32 = had.iter().sum();
    assert_eq!(rig.server().counts().requests - before, u64::from(all), "each request is sent once");
    rig.works().await;
    assert_eq!(rig.server().counts().accepted, u64::from(CONNECTIONS));
    rig.end().await;
}
