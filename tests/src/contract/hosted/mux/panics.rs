//! Panics in code outside of the session: filters, wakers, and the platform. A panic costs at most
//! one attempt or one connection; no request gets the reply to another one.

use super::{Rig, begun, holding, run, server};
use crate::contract::PLANNED_PANIC;
use crate::contract::hosted::Panic;
use crate::contract::rig::within;
use crate::cql_server::{Cut, Order};
use crate::patience::{PATIENCE, eventually, refused};
use crate::suite::Suite;
use alloc::sync::Arc;
use alloc::task::Wake;
use core::panic::AssertUnwindSafe;
use core::task::{Context, Waker};
use core::time::Duration;
use futures_lite::FutureExt;
use poolhouse_client::Platform;
use poolhouse_client::mux::{MuxEvent, RequestError};
use poolhouse_driver::{EventRef, Notice};

pub(super) fn add<P: Platform + Default>(suite: Suite) -> Suite {
    let suite = suite
        .case("hosted::mux::panics::in_an_observer", || run::<P>(in_an_observer::<P>))
        .case("hosted::mux::panics::in_a_waker", || run::<P>(in_a_waker::<P>))
        .case("hosted::mux::panics::of_a_timer_in_the_background", || run::<P>(of_a_timer::<P>))
        .case("hosted::mux::panics::of_the_clock_in_a_request", || run::<P>(of_the_clock_in_a_request::<P>))
        .case("hosted::mux::panics::of_a_new_connection_task", || {
            run::<P>(async || of_a_new_connection::<P>(Panic::Connect).await);
        })
        .case("hosted::mux::panics::of_what_starts_tasks", || {
            run::<P>(async || of_a_new_connection::<P>(Panic::Spawn).await);
        });
    [("the_clock", Panic::Now), ("a_read", Panic::Read), ("a_write", Panic::Write)].into_iter().fold(
        suite,
        |suite, (name, panic)| {
            suite.case(format!("hosted::mux::panics::of_{name}_on_a_connection"), move || {
                run::<P>(async || of_a_connection::<P>(panic).await);
            })
        },
    )
}

/// The subscription of the filter that panics ends. Another subscription misses no event, and the
/// request is answered.
async fn in_an_observer<P: Platform + Default>() {
    let rig = Rig::<P>::new(|options| options);
    rig.works().await;
    let mut good = rig.session.subscribe();
    let mut bad = rig.session.subscribe_where(|event| {
        assert!(!matches!(event, EventRef::Mux(MuxEvent::ReplyReceived { .. })), "{PLANNED_PANIC}");
        true
    });
    assert_eq!(rig.echo("one").await.expect("it continues"), "one");
    let mut seen = Vec::new();
    while let Some(Notice::Event { event, .. }) = bad.next().await {
        seen.push(event);
    }
    assert_eq!(seen.len(), 1, "the subscription ends before the event of the panic: {seen:?}");
    assert_eq!(core::iter::from_fn(|| good.try_next()).count(), 2, "acquired, answered");
    rig.works().await;
    assert_eq!(rig.server().counts().accepted, 1);
    rig.end().await;
}

/// A waker that panics.
struct PanickingWaker;

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        panic!("{PLANNED_PANIC}");
    }
}

/// Other tasks that are woken in the same pass are still woken, both when replies are dispatched
/// and when stream ids are granted.
async fn in_a_waker<P: Platform + Default>() {
    let grumpy = Waker::from(Arc::new(PanickingWaker));
    for ids in [4, 1] {
        let rig = Rig::<P>::new(|options| options.mux(super::narrow(ids)));
        rig.works().await;
        rig.server().add(holding("held"));
        let first = begun(rig.echo("held first")).await;
        let mut bad: super::Waiting<'_> = Box::pin(rig.echo("held bad"));
        assert!(bad.poll(&mut Context::from_waker(&grumpy)).is_pending());
        let last = begun(rig.echo("held last")).await;
        if ids > 1 {
            rig.held(0, 3).await;
        } else {
            // The waker panics when the request is granted the id of the first one.
            rig.held(0, 1).await;
        }
        rig.server().clear_rules();
        rig.server().release(Order::Kept);
        let answered = |found: Result<String, RequestError>| found.expect("it succeeds");
        assert_eq!(answered(within(PATIENCE, "it is answered", first).await), "held first");
        // This task polls again without having been woken.
        assert_eq!(answered(within(PATIENCE, "it is answered", bad).await), "held bad");
        assert_eq!(answered(within(PATIENCE, "it is answered", last).await), "held last");
        rig.works().await;
        assert_eq!(rig.server().counts().accepted, 1, "all requests used the same connection");
        rig.end().await;
    }
}

/// The panic hits the timer of all time limits. Requests are answered meanwhile; limits are
/// enforced again after a pause.
async fn of_a_timer<P: Platform + Default>() {
    let rig = Rig::<P>::new(|options| options);
    rig.works().await;
    rig.server().add(holding("held"));
    let held = begun(rig.echo("held")).await;
    rig.quiet().await;
    rig.platform.panic_next(Panic::Sleep);
    // No earlier deadline exists, so this request starts the timer.
    let limited = begun(super::echo_by(&rig.session, 0, "held limited", Some(Duration::from_millis(100)))).await;
    eventually("it panics", || !rig.platform.is_panic_due()).await;
    assert_eq!(rig.echo("one").await.expect("it continues"), "one");
    let error = refused(within(PATIENCE, "its timeout has expired", limited).await);
    assert!(matches!(error, RequestError::TimedOut { .. }), "{error:?}");
    rig.held(0, 2).await;
    rig.server().release(Order::Kept);
    assert_eq!(within(PATIENCE, "it is answered", held).await.expect("it succeeds"), "held");
    rig.works().await;
    assert_eq!(rig.server().counts().accepted, 1, "all requests used the same connection");
    rig.end().await;
}

/// The clock panics in the task of the request: when the request starts, when its reply has
/// arrived, and when the request is dropped.
async fn of_the_clock_in_a_request<P: Platform + Default>() {
    let rig = Rig::<P>::new(|options| options);
    rig.works().await;
    rig.quiet().await;
    rig.platform.panic_next(Panic::Now);
    assert!(AssertUnwindSafe(rig.echo("one")).catch_unwind().await.is_err());
    rig.nothing_is_held();
    rig.works().await;

    rig.server().add(holding("held"));
    let answered = begun(rig.echo("held")).await;
    rig.held(0, 1).await;
    rig.server().release(Order::Kept);
    eventually("its reply has arrived", || rig.state(0).in_flight == 0).await;
    rig.quiet().await;
    rig.platform.panic_next(Panic::Now);
    // A request whose reply has arrived need not read the clock.
    if let Ok(found) = AssertUnwindSafe(answered).catch_unwind().await {
        assert_eq!(found.expect("it succeeds"), "held");
        rig.platform.panic_next(Panic::Never);
    }
    rig.nothing_is_held();
    rig.works().await;

    let dropped = begun(rig.echo("held")).await;
    rig.held(0, 1).await;
    rig.quiet().await;
    rig.platform.panic_next(Panic::Now);
    drop(dropped);
    assert!(!rig.platform.is_panic_due());
    rig.nothing_is_held();
    assert_eq!(rig.state(0).orphaned, 1);
    rig.server().release(Order::Kept);
    rig.works().await;
    assert_eq!(rig.server().counts().accepted, 1, "all requests used the same connection");
    rig.end().await;
}

/// Another attempt to connect is made a second later.
async fn of_a_new_connection<P: Platform + Default>(panic: Panic) {
    let rig = Rig::<P>::of(vec![server(), server()], |options| options);
    rig.works().await;
    rig.servers[1].add(holding("held"));
    let held = begun(rig.echo_of(1, "held")).await;
    rig.held(1, 1).await;
    rig.quiet().await;
    rig.platform.panic_next(panic);
    rig.server().cut_all(Cut::Close);
    eventually("it panics", || !rig.platform.is_panic_due()).await;
    rig.servers[1].release(Order::Kept);
    assert_eq!(within(PATIENCE, "it is answered", held).await.expect("it succeeds"), "held");
    rig.works_again().await;
    assert_eq!(rig.servers[1].counts().accepted, 1);
    rig.end().await;
}

/// The connection is lost with its requests in flight; other connections are not affected.
async fn of_a_connection<P: Platform + Default>(panic: Panic) {
    let rig = Rig::<P>::of(vec![server(), server()], |options| options);
    rig.works().await;
    for server in &rig.servers {
        server.add(holding("held"));
    }
    let here = begun(rig.echo_of(0, "held here")).await;
    let there = begun(rig.echo_of(1, "held there")).await;
    rig.held(0, 1).await;
    rig.held(1, 1).await;
    rig.quiet().await;
    rig.platform.panic_next(panic);
    let more = if panic == Panic::Write {
        // The reply is not released, so the connection receives nothing.
        Some(begun(rig.echo_of(0, "more")).await)
    } else {
        rig.server().release(Order::Kept);
        None
    };
    eventually("it panics", || !rig.platform.is_panic_due()).await;
    for lost in [Some(here), more].into_iter().flatten() {
        let error = refused(within(PATIENCE, "it ends", lost).await);
        assert!(matches!(error, RequestError::Lost { .. } | RequestError::NoHost(_)), "{error:?}");
    }
    rig.servers[1].release(Order::Kept);
    assert_eq!(within(PATIENCE, "it is answered", there).await.expect("it succeeds"), "held there");
    rig.works_again().await;
    let accepted = rig.servers.iter().map(|server| server.counts().accepted).collect::<Vec<_>>();
    assert_eq!(accepted, [2, 1]);
    rig.end().await;
}
