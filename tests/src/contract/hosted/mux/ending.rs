//! The end of sessions: each request ends exactly once and at once, in whatever state it waits.

use super::{Rig, begun, echo_by, hold, narrow, run, server};
use crate::contract::Hole;
use crate::contract::hosted::join;
use crate::contract::rig::within;
use crate::cql_server::Rule;
use crate::patience::{PATIENCE, eventually, refused};
use crate::suite::Suite;
use core::time::Duration;
use poolhouse_client::Platform;
use poolhouse_client::mux::{RequestError, SessionOptions};

pub(super) fn add<P: Platform + Default>(suite: Suite) -> Suite {
    suite
        .case("hosted::mux::ending::closed_under_load", || run::<P>(closed_under_load::<P>))
        .case("hosted::mux::ending::dropped_under_load", || run::<P>(dropped_under_load::<P>))
        .case("hosted::mux::ending::runner_dropped_under_load", || run::<P>(runner_dropped::<P>))
        .case("hosted::mux::ending::closed_while_a_peer_takes_nothing", || run::<P>(closed_while_blocked::<P>))
}

/// Maximum number of requests in flight on the first host.
const IDS: usize = 16;
/// Number of those requests that are never answered.
const LOST: usize = 8;

/// Adds a second host to which no connection is ever established.
fn with_a_hole(hole: &Hole) -> impl FnOnce(SessionOptions) -> SessionOptions {
    let address = hole.address().to_string();
    move |mut options| {
        options.hosts.push(poolhouse_client::mux::CqlHost::local(address));
        let narrow = narrow(u32::try_from(IDS).expect("a few"));
        options.mux(narrow).connect_timeout(Duration::from_secs(3600))
    }
}

/// The host and the text of the request of each task of the load.
fn request_of(task: usize) -> (usize, String) {
    match task {
        0..LOST => (0, format!("lost {task}")),
        _ if task.is_multiple_of(4) => (1, format!("never {task}")),
        _ => (0, format!("task {task}")),
    }
}

async fn closed_under_load<P: Platform + Default>() {
    const TASKS: usize = 64;
    let hole = Hole::dig().await;
    let rig = Rig::<P>::of(vec![server()], with_a_hole(&hole));
    rig.server().add(Rule::statements(hold()).text("echo lost"));
    let before = rig.server().counts().requests;
    let load = join(
        &rig.platform,
        (0..TASKS).map(|task| {
            let session = rig.session.clone();
            async move {
                let (host, text) = request_of(task);
                loop {
                    match echo_by(&session, host, &text, None).await {
                        Ok(found) => assert_eq!(found, text),
                        Err(error) => return error,
                    }
                }
            }
        }),
    );
    let closing = async {
        eventually("requests are answered", || rig.server().counts().requests > before + 1000).await;
        rig.held(0, LOST).await;
        eventually("they wait", || rig.session.hosts()[1].state.queued == 14).await;
        let hosts = rig.session.hosts();
        assert_eq!((hosts[1].state.queued, hosts[1].state.establishing), (14, 1));
        within(PATIENCE, "it is closed", rig.session.close()).await;
    };
    let (errors, ()) = futures_lite::future::zip(load, closing).await;
    assert_eq!(errors.len(), TASKS);
    for error in errors {
        assert!(matches!(error, RequestError::Closed), "{error:?}");
    }
    rig.is_gone().await;
}

/// Tasks are cancelled with their requests. Each owns a handle, and one of them owns the last one.
async fn dropped_under_load<P: Platform + Default>() {
    const TASKS: usize = 64;
    let hole = Hole::dig().await;
    let rig = Rig::<P>::of(vec![server()], with_a_hole(&hole));
    rig.server().add(Rule::statements(hold()).text("echo lost"));
    let load: Vec<_> = (0..TASKS)
        .map(|task| {
            let session = rig.session.clone();
            rig.platform.spawn(async move {
                let (host, text) = request_of(task);
                while echo_by(&session, host, &text, None).await.is_ok_and(|found| found == text) {}
                unreachable!("it is cancelled before");
            })
        })
        .collect();
    rig.held(0, LOST).await;
    eventually("the others wait", || rig.session.hosts()[1].state.queued == 14).await;
    let mut events = rig.session.subscribe();
    let Rig { servers, session, platform } = rig;
    drop(session);
    drop(load);
    within(PATIENCE, "the subscription ends", async { while events.next().await.is_some() {} }).await;
    eventually("all tasks have ended", || platform.tasks_count() == 0).await;
    eventually("the server has no connection", || servers[0].counts().open == 0).await;
}

async fn runner_dropped<P: Platform + Default>() {
    let hole = Hole::dig().await;
    let rig = Rig::<P>::of(vec![server()], with_a_hole(&hole));
    rig.works().await;
    rig.server().add(Rule::statements(hold()));
    let mut events = rig.session.subscribe();
    let mut waiting = Vec::new();
    for _ in 0..IDS {
        waiting.push(begun(rig.echo_of(0, "in flight")).await);
    }
    for host in [0, 0, 1, 1] {
        waiting.push(begun(rig.echo_of(host, "queued")).await);
    }
    rig.held(0, IDS).await;
    let hosts = rig.session.hosts();
    assert_eq!((hosts[0].state.queued, hosts[1].state.queued), (2, 2));
    rig.platform.drop_tasks();
    for request in waiting {
        let error = refused(within(PATIENCE, "it ends", request).await);
        assert!(matches!(error, RequestError::Abandoned), "{error:?}");
    }
    let error = refused(within(PATIENCE, "it ends", rig.echo("late")).await);
    assert!(matches!(error, RequestError::Abandoned), "{error:?}");
    within(PATIENCE, "the subscription ends", async { while events.next().await.is_some() {} }).await;
    within(PATIENCE, "closing again returns at once", rig.session.close()).await;
    rig.is_gone().await;
}

/// A connection whose write is blocked is notified when it must close.
async fn closed_while_blocked<P: Platform + Default>() {
    let rig = Rig::<P>::new(|options| options);
    rig.works().await;
    rig.server().pause_reading();
    let text = "x".repeat(1 << 20);
    let mut waiting = Vec::new();
    for _ in 0..24 {
        waiting.push(begun(rig.echo(&text)).await);
    }
    // The requests exceed the socket buffers. The connection's write is then pending, and no event
    // wakes its task.
    eventually("a write is blocked", || rig.platform.blocked_count() > 0).await;
    rig.quiet().await;
    let last = begun(rig.echo(&text)).await;
    within(PATIENCE, "it is closed", rig.session.close()).await;
    for request in waiting.into_iter().chain([last]) {
        let error = refused(within(PATIENCE, "it ends", request).await);
        assert!(matches!(error, RequestError::Closed), "{error:?}");
    }
    rig.server().resume_reading();
    rig.is_gone().await;
}
