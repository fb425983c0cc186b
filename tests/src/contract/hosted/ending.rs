//! The end of a hosted client: its tasks end, and handles keep it open as long as they live.

use super::{Hosted, find, find_by, join};
use crate::contract::rig::{Rig, within};
use crate::contract::run_case;
use crate::fake::{Fault, FaultRule};
use crate::patience::{PATIENCE, eventually, refused};
use crate::suite::Suite;
use core::pin::pin;
use core::time::Duration;
use futures_lite::future::poll_once;
use poolhouse_client::{Error, Platform};
use poolhouse_core::pool::CheckOutError;
use poolhouse_driver::OperationError;

pub(super) fn add<P: Platform + Default>(suite: Suite) -> Suite {
    suite
        .case("hosted::ending::closed_under_load", || run_case(closed_under_load::<P>))
        .case("hosted::ending::last_handle_is_that_of_who_has_a_lease", || run_case(last_handle::<P>))
        .case("hosted::ending::runner_dropped", || run_case(runner_dropped::<P>))
}

/// The client is closed while tasks on the executor use it. When `close` returns, the client's own
/// tasks have ended, even if connections are still checked out.
async fn closed_under_load<P: Platform + Default>(subject: &Hosted<P>) {
    const TASKS: usize = 32;
    let rig = Rig::new(subject, |_| ());
    let client = rig.client.client();
    rig.all_is_well().await;
    let finds = rig.server.count_of("find");
    let load = join(
        rig.client.platform(),
        (0..TASKS).map(|task| {
            let client = client.clone();
            async move {
                let name = if task % 2 == 0 { "one" } else { "other" };
                loop {
                    match find(&client, name).await {
                        Ok(found) => assert_eq!(found, name),
                        Err(error) => return error,
                    }
                }
            }
        }),
    );
    let closing = async {
        eventually("operations succeed", || rig.server.count_of("find") > finds + 300).await;
        within(PATIENCE, "it is closed", client.close()).await;
    };
    let (errors, ()) = futures_lite::future::zip(load, closing).await;
    for error in errors {
        let closed = matches!(error, Error::Operation(OperationError::Closed, _));
        assert!(closed || error.check_out() == Some(&CheckOutError::PoolClosed), "{error:?}");
    }
    rig.end().await;
    eventually("all tasks have ended", || rig.client.platform().tasks_count() == 0).await;
}

/// A client ends when its last handle is dropped. Here a task owns that handle, and operates on a
/// connection meanwhile.
async fn last_handle<P: Platform + Default>(subject: &Hosted<P>) {
    let rig = Rig::new(subject, |_| ());
    rig.all_is_well().await;
    let Rig { server, client, .. } = rig;
    let platform = client.platform().clone();
    let mut events = client.client().subscribe();
    let last = client.client().clone();
    let database = last.database("db");
    let mut leased = last.check_out().await.expect("a connection");
    drop((client, database));
    server.inject(FaultRule::once(Fault::Trickle { gap: Duration::from_micros(200) }).on_command("find"));
    assert_eq!(find_by(&mut leased, "one").await.expect("it continues"), "one");
    assert_eq!(find(&last, "other").await.expect("and so do others"), "other");
    // The last lease has a reply outstanding.
    server.freeze();
    assert!(poll_once(pin!(find_by(&mut leased, "one"))).await.is_none());
    drop(leased);
    drop(last);
    within(PATIENCE, "the subscription ends", async { while events.next().await.is_some() {} }).await;
    eventually("all tasks have ended", || platform.tasks_count() == 0).await;
    server.thaw();
    eventually("the server has no connection", || server.open_count() == 0).await;
}

/// The runner is dropped; then subscribers, closing and new handles are checked.
async fn runner_dropped<P: Platform + Default>(subject: &Hosted<P>) {
    let rig = Rig::new(subject, |_| ());
    rig.all_is_well().await;
    let client = rig.client.client();
    let mut events = client.subscribe();
    rig.client.platform().drop_tasks();
    within(PATIENCE, "the subscription ends", async { while events.next().await.is_some() {} }).await;
    let error = within(PATIENCE, "it ends", async { refused(find(&client.clone(), "one").await) }).await;
    assert!(matches!(error, Error::Operation(OperationError::Abandoned, _)), "{error:?}");
    within(PATIENCE, "closing again returns at once", client.close()).await;
    rig.end().await;
}
