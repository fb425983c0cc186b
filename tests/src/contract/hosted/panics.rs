//! Panics in code outside of the client: observers, closures of applications, and the platform. No
//! connection is lost, and the client continues to work.

use super::{Hosted, HostedClient, Panic, Probe, find, find_by, options};
use crate::contract::rig::{Rig, filled_server};
use crate::contract::{PLANNED_PANIC, Shape, run_case};
use crate::patience::{PATIENCE, eventually, refused};
use crate::suite::Suite;
use core::panic::AssertUnwindSafe;
use core::pin::pin;
use core::time::Duration;
use futures_lite::FutureExt;
use futures_lite::future::poll_once;
use poolhouse_client::{Connection, Error, Platform};
use poolhouse_core::Cause;
use poolhouse_core::pool::{CheckOutError, PoolEvent};
use poolhouse_driver::{EventRef, Notice, Subscribers};

pub(super) fn add<P: Platform + Default>(suite: Suite) -> Suite {
    suite
        .case("hosted::panics::in_an_observer", || run_case(in_an_observer::<P>))
        .case("hosted::panics::in_a_closure_whose_connection_is_idle", || {
            run_case(in_a_closure::<P>);
        })
        .case("hosted::panics::in_a_closure_whose_reply_is_outstanding", || run_case(in_a_busy_closure::<P>))
        .case("hosted::panics::under_the_lock_of_the_client", || run_case(under_the_lock::<P>))
        .case("hosted::panics::of_a_timer_in_the_background", || run_case(of_a_timer::<P>))
        .case("hosted::panics::of_the_clock_in_the_background", || run_case(of_the_clock::<P>))
        .case("hosted::panics::of_a_new_connection_task", || run_case(of_a_new_connection_task::<P>))
        .case("hosted::panics::of_the_monitor_connection_task", || run_case(of_the_monitor_connection_task::<P>))
}

fn single(shape: &mut Shape) {
    shape.max_pool_size = 1;
}

/// Asserts that counts, connections and the next operation are correct, and that the monitor still
/// checks.
async fn all_is_well<P: Platform + Default>(rig: &Rig<Hosted<P>>) {
    rig.all_is_well().await;
    monitor_checks(rig).await;
}

async fn monitor_checks<P: Platform + Default>(rig: &Rig<Hosted<P>>) {
    let hellos = || rig.server.count_of("hello") + rig.server.count_of("isMaster");
    let before = hellos();
    // A request for a check during a check has no effect, so it is repeated.
    eventually("the monitor checks", || {
        rig.client.client().core().request_check();
        hellos() > before
    })
    .await;
}

/// The subscription of the observer that panics ends; another subscription misses no event.
async fn in_an_observer<P: Platform + Default>(subject: &Hosted<P>) {
    let rig = Rig::new(subject, single);
    all_is_well(&rig).await;
    let client = rig.client.client();
    let mut good = client.subscribe_where(|event| matches!(event, EventRef::Pool(_)));
    let mut bad = client.subscribe_where(|event| {
        assert!(!matches!(event, EventRef::Pool(PoolEvent::ConnectionCheckedOut { .. })), "{PLANNED_PANIC}");
        matches!(event, EventRef::Pool(_))
    });
    assert_eq!(find(client, "one").await.expect("it continues"), "one");
    let mut seen = Vec::new();
    while let Some(Notice::Event { event, .. }) = bad.next().await {
        seen.push(event);
    }
    assert_eq!(seen.len(), 1, "the subscription ends before the event of the panic: {seen:?}");
    assert_eq!(core::iter::from_fn(|| good.try_next()).count(), 3, "started, checked out, checked in");
    all_is_well(&rig).await;
    rig.end().await;
}

async fn in_a_closure<P: Platform + Default>(subject: &Hosted<P>) {
    let rig = Rig::new(subject, single);
    all_is_well(&rig).await;
    let accepted = rig.server.accepted_count();
    for commands in 0..3_u32 {
        let work = async |connection: &mut Connection<'_, Probe<P>>| {
            for _ in 0..commands {
                assert_eq!(find_by(connection, "one").await.expect("it succeeds"), "one");
            }
            panic!("{PLANNED_PANIC}")
        };
        let panicked = AssertUnwindSafe(rig.client.client().with_connection::<(), Error>(work)).catch_unwind().await;
        assert!(panicked.is_err());
        let counts = rig.counts();
        assert_eq!((counts.in_use, counts.available), (0, 0), "the connection is closed");
        rig.all_is_well().await;
        assert_eq!(rig.server.accepted_count(), accepted + u64::from(commands) + 1);
    }
    monitor_checks(&rig).await;
    rig.end().await;
}

/// The reply is not waited for.
async fn in_a_busy_closure<P: Platform + Default>(subject: &Hosted<P>) {
    let rig = Rig::new(subject, |shape| {
        single(shape);
        shape.drain_timeout = PATIENCE;
    });
    all_is_well(&rig).await;
    let accepted = rig.server.accepted_count();
    rig.server.freeze();
    let work = async |connection: &mut Connection<'_, Probe<P>>| {
        let finding = pin!(find_by(connection, "one"));
        assert!(poll_once(finding).await.is_none());
        panic!("{PLANNED_PANIC}")
    };
    let panicked = AssertUnwindSafe(rig.client.client().with_connection::<(), Error>(work)).catch_unwind().await;
    assert!(panicked.is_err());
    rig.nothing_is_held();
    rig.server.thaw();
    all_is_well(&rig).await;
    assert_eq!(rig.server.accepted_count(), accepted + 1);
    rig.end().await;
}

/// The mutex is poisoned, which must not affect other callers.
async fn under_the_lock<P: Platform + Default>(subject: &Hosted<P>) {
    let rig = Rig::new(subject, single);
    all_is_well(&rig).await;
    let held = rig.check_out().await;
    let platform = rig.client.platform();
    // The clock is read under the lock. Another task may read it first; then the panic is planned
    // again.
    let begun = std::time::Instant::now();
    loop {
        platform.panic_next(Panic::Now);
        let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| rig.client.client().core().request_check()));
        if panicked.is_err() {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "the planned panic did not occur");
    }
    assert!(!platform.is_panic_due());
    drop(held);
    // If a panic hit another task during a check, that check has failed.
    rig.works().await;
    monitor_checks(&rig).await;
    rig.end().await;
}

/// The panic hits the client's timer, which requests checks.
async fn of_a_timer<P: Platform + Default>(subject: &Hosted<P>) {
    in_the_background(subject, Panic::Sleep).await;
}

async fn of_the_clock<P: Platform + Default>(subject: &Hosted<P>) {
    in_the_background(subject, Panic::Now).await;
}

async fn in_the_background<P: Platform + Default>(subject: &Hosted<P>, part: Panic) {
    let rig = Rig::new(subject, single);
    rig.all_is_well().await;
    let platform = rig.client.platform();
    for _ in 0..2 {
        monitor_checks(&rig).await;
        loop {
            // The next check is half a second away, unless one is in progress; no other task has
            // work.
            rig.client.client().core().request_check();
            platform.panic_next(part);
            let panics = async { eventually("it panics", || !platform.is_panic_due()).await };
            let limit = async {
                async_io::Timer::after(Duration::from_secs(1)).await;
            };
            panics.or(limit).await;
            if !platform.is_panic_due() {
                break;
            }
            platform.panic_next(Panic::Never);
        }
        // If the panic occurred during a check, that check has failed, and the client repeats it:
        // no operation requests one meanwhile.
        eventually("the panic has unwound", || platform.is_quiet()).await;
        rig.at_rest().await;
        rig.works().await;
        monitor_checks(&rig).await;
    }
    rig.end().await;
}

/// The waiter for the connection fails with the cause; the next connection is established.
async fn of_a_new_connection_task<P: Platform + Default>(subject: &Hosted<P>) {
    let rig = Rig::new(subject, single);
    rig.known().await;
    rig.client.platform().panic_next(Panic::Connect);
    let error = refused(rig.client.client().check_out().await);
    let expected = CheckOutError::EstablishFailed { cause: Cause::Cancelled, overloaded: false };
    assert_eq!(error.check_out(), Some(&expected));
    assert_eq!(rig.counts().total(), 0);
    all_is_well(&rig).await;
    rig.end().await;
}

async fn of_the_monitor_connection_task<P: Platform + Default>(_subject: &Hosted<P>) {
    let server = filled_server(0);
    let platform = Probe::default();
    platform.panic_next(Panic::Connect);
    let client = HostedClient::<P>::on(platform, options(&Shape::of(server.address())), Subscribers::default());
    assert_eq!(find(client.client(), "one").await.expect("the next check finds it"), "one");
    assert!(!client.platform().is_panic_due());
    client.client().close().await;
    eventually("the server has no connection", || server.open_count() == 0).await;
}
