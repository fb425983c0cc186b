//! Cancel-safety of sessions: each of their futures is dropped at each of its polls.

use super::{CALM, FORMATS, Format, Rig, begun, cell, echo, holding, narrow, run, server, session, speaking};
use crate::contract::hosted::Probe;
use crate::contract::rig::{Bell, at_every_point, within};
use crate::cql_server::{Act, Cut, Order, Rule};
use crate::patience::{PATIENCE, eventually, refused};
use crate::suite::Suite;
use alloc::sync::Arc;
use core::pin::pin;
use core::task::{Context, Waker};
use futures_lite::future::poll_once;
use poolhouse_client::Platform;
use poolhouse_client::mux::{MuxOptions, RequestError};
use poolhouse_cql::{Consistency, ErrorCode};

pub(super) fn add<P: Platform + Default>(suite: Suite) -> Suite {
    let suite = FORMATS.into_iter().fold(suite, |suite, format| {
        let name = format.0;
        suite
            .case(format!("hosted::mux::dropping::request_{name}"), move || {
                run::<P>(async || granted::<P>(format, 0).await);
            })
            .case(format!("hosted::mux::dropping::large_request_{name}"), move || {
                run::<P>(async || large::<P>(format, 3 << 20).await);
            })
            .case(format!("hosted::mux::dropping::request_that_waits_for_an_id_{name}"), move || {
                run::<P>(async || queued_for_an_id::<P>(format).await);
            })
    });
    suite
        .case("hosted::mux::dropping::request_all", || run::<P>(all::<P>))
        .case("hosted::mux::dropping::text_that_is_prepared_first", || run::<P>(prepared::<P>))
        .case("hosted::mux::dropping::request_that_waits_for_its_connection", || {
            run::<P>(queued_for_a_connection::<P>);
        })
        .case("hosted::mux::dropping::request_that_goes_on_to_the_next_host", || {
            run::<P>(async || second_host::<P>(Act::Error(ErrorCode::IS_BOOTSTRAPPING.number(), "later".into())).await);
        })
        .case("hosted::mux::dropping::request_that_is_repeated_when_its_connection_is_lost", || {
            run::<P>(async || second_host::<P>(Act::Close(Cut::Reset)).await);
        })
        .case("hosted::mux::dropping::many_that_wear_a_connection_out", || run::<P>(worn::<P>))
        .case("hosted::mux::dropping::dropped_futures_keep_no_waker", || run::<P>(dropped_futures_keep_no_waker::<P>))
        .case("hosted::mux::dropping::close", || run::<P>(close::<P>))
        .case("hosted::mux::dropping::session_as_soon_as_it_is_made", || run::<P>(at_once::<P>))
}

/// The reply is held until the request waits or was dropped. All rounds use one connection.
async fn granted<P: Platform + Default>(format: Format, bytes: usize) {
    let rig = Rig::<P>::new(|options| speaking(options, format));
    rig.works().await;
    rig.server().add(holding("one"));
    let accepted = rig.server().counts().accepted;
    let text = format!("one{}", "x".repeat(bytes));
    at_every_point(1, async |point| {
        let mut released = false;
        let release = async || {
            rig.held(0, 1).await;
            assert_eq!(rig.server().release(Order::Kept), 1);
            released = true;
        };
        let done = point.reach_beside(rig.echo(&text), release).await;
        rig.nothing_is_held();
        if point.polls > 0 && !released {
            // The stream id stays reserved until the reply arrives, which is discarded.
            assert_eq!(rig.state(0).orphaned, 1, "{point:?}");
            rig.held(0, 1).await;
            assert_eq!(rig.server().release(Order::Kept), 1);
        }
        rig.works().await;
        done.map(|found| assert_eq!(found.expect("it succeeds"), text)).is_some()
    })
    .await;
    assert_eq!(rig.server().counts().accepted, accepted, "all requests used the same connection");
    rig.end().await;
}

/// Neither the request nor its reply can be sent at once: the server starts reading when the
/// request waits.
async fn large<P: Platform + Default>(format: Format, bytes: usize) {
    let rig = Rig::<P>::new(|options| speaking(options, format));
    rig.works().await;
    let text = "one".repeat(bytes / 3);
    at_every_point(1, async |point| {
        rig.server().pause_reading();
        let done = point.reach_beside(rig.echo(&text), async || rig.server().resume_reading()).await;
        rig.nothing_is_held();
        rig.server().resume_reading();
        rig.works().await;
        done.map(|found| assert!(found.expect("it succeeds") == text)).is_some()
    })
    .await;
    assert_eq!(rig.server().counts().accepted, 1, "all requests used the same connection");
    rig.end().await;
}

/// Another request has the only stream id and is answered once this one waits. This one is dropped
/// in the queue, or after the id was granted and before its next poll.
async fn queued_for_an_id<P: Platform + Default>(format: Format) {
    let rig = Rig::<P>::new(|options| speaking(options, format).mux(narrow(1)));
    rig.works().await;
    rig.server().add(holding("held"));
    at_every_point(2, async |point| {
        let holder = begun(rig.echo("held")).await;
        rig.held(0, 1).await;
        let mut released = false;
        let release = async || {
            let state = rig.state(0);
            assert_eq!((state.in_flight, state.queued), (1, 1), "{point:?}");
            assert_eq!(rig.server().release(Order::Kept), 1);
            released = true;
        };
        let done = point.reach_beside(rig.echo("one"), release).await;
        if !released {
            let state = rig.state(0);
            assert_eq!((state.in_flight, state.queued), (1, 0), "{point:?}");
            assert_eq!(rig.server().release(Order::Kept), 1);
        }
        assert_eq!(within(PATIENCE, "it is answered", holder).await.expect("it succeeds"), "held");
        rig.nothing_is_held();
        rig.works().await;
        done.map(|found| assert_eq!(found.expect("it succeeds"), "one")).is_some()
    })
    .await;
    assert_eq!(rig.server().counts().accepted, 1, "all requests used the same connection");
    rig.end().await;
}

/// Of six requests of one future, two have the ids of the first host, two wait there, and two go to
/// the second host. The first reply is held until the future waits or was dropped.
async fn all<P: Platform + Default>() {
    let mux = MuxOptions { max_queue_size: 2, ..narrow(2) };
    let rig = Rig::<P>::of(vec![server(), server()], |options| options.mux(mux));
    rig.works().await;
    rig.server().add(holding("held"));
    let hosts: Vec<_> = rig.session.hosts().iter().map(|host| host.id).collect();
    let texts = ["echo held", "echo 1", "echo 2", "echo 3", "echo 4", "echo 5"];
    let calls = texts.map(|text| rig.session.query(text).consistency(Consistency::One).hosts(&hosts));
    at_every_point(1, async |point| {
        let mut released = false;
        let release = async || {
            rig.held(0, 1).await;
            assert_eq!(rig.server().release(Order::Kept), 1);
            released = true;
        };
        let done = point.reach_beside(rig.session.request_all(&calls), release).await;
        rig.nothing_is_held();
        if point.polls > 0 && !released {
            assert!(rig.state(0).orphaned > 0, "{point:?}");
            rig.held(0, 1).await;
            assert_eq!(rig.server().release(Order::Kept), 1);
        }
        rig.works().await;
        done.map(|results| {
            let found: Vec<_> = results.iter().map(|result| cell(result.as_ref().expect("it succeeds"))).collect();
            assert_eq!(found, ["held", "1", "2", "3", "4", "5"]);
        })
        .is_some()
    })
    .await;
    rig.end().await;
}

/// Neither the session nor its hosts know the text: it is prepared on both hosts.
async fn prepared<P: Platform + Default>() {
    let rig = Rig::<P>::of(vec![server(), server()], |options| options);
    rig.works().await;
    let mut number = 0;
    at_every_point(2, async |point| {
        number += 1;
        let text = format!("echo {number} ?");
        let done = point.reach(rig.session.query(&text).values(("one",)).send()).await;
        rig.nothing_is_held();
        rig.works().await;
        done.map(|reply| assert_eq!(cell(&reply.expect("it succeeds")), format!("{number} one"))).is_some()
    })
    .await;
    assert_eq!(rig.server().counts().accepted, 1, "all requests used the same connection");
    rig.end().await;
}

/// The first request of a session. Its connection is established once the request waits.
async fn queued_for_a_connection<P: Platform + Default>() {
    let mut rig = Rig::<P>::new(|options| options);
    at_every_point(2, async |point| {
        rig.end().await;
        rig.server().pause_reading();
        rig.renew(|options| options);
        let done = point.reach_beside(rig.echo("one"), async || rig.server().resume_reading()).await;
        rig.nothing_is_held();
        rig.server().resume_reading();
        rig.works().await;
        assert_eq!(rig.state(0).open, 1);
        done.map(|found| assert_eq!(found.expect("it succeeds"), "one")).is_some()
    })
    .await;
    rig.end().await;
}

/// The first host answers the request only with this fault.
async fn second_host<P: Platform + Default>(act: Act) {
    let rig = Rig::<P>::of(vec![server(), server()], |options| options);
    rig.works().await;
    rig.server().add(Rule::statements(act).text("echo one"));
    let hosts: Vec<_> = rig.session.hosts().iter().map(|host| host.id).collect();
    let call = rig.session.query("echo one").consistency(Consistency::One).idempotent(true).hosts(&hosts);
    at_every_point(2, async |point| {
        let done = point.reach(call.clone().send()).await;
        rig.nothing_is_held();
        // The dropped request may still cost its connection.
        rig.works_again().await;
        done.map(|reply| assert_eq!(cell(&reply.expect("it succeeds")), "one")).is_some()
    })
    .await;
    rig.end().await;
}

/// Each dropped request keeps a stream id of the connection until its reply arrives. When a quarter
/// of the ids is in use this way, the connection is replaced. A request that still waits on it is
/// answered.
async fn worn<P: Platform + Default>() {
    const IDS: u32 = 64;
    let mux = MuxOptions { streams_per_connection: IDS, ..narrow(IDS) };
    let rig = Rig::<P>::new(|options| options.mux(mux));
    rig.works().await;
    rig.server().add(holding("given up"));
    rig.server().add(holding("kept"));
    let kept = begun(rig.echo("kept")).await;
    for number in 0..=IDS / 4 {
        let given_up = begun(rig.echo("given up")).await;
        rig.held(0, 2 + number as usize).await;
        if number == IDS / 4 {
            // Delays the connection that replaces this one.
            rig.server().pause_reading();
        }
        drop(given_up);
        assert_eq!(rig.state(0).orphaned, number + 1);
    }
    let state = rig.state(0);
    assert_eq!((state.open, state.retired, state.in_flight), (0, 1, 1), "{state:?}");
    rig.server().resume_reading();
    // Answered on the new connection.
    assert_eq!(within(PATIENCE, "it is answered", rig.echo("one")).await.expect("it succeeds"), "one");
    rig.held(0, 2 + IDS as usize / 4).await;
    rig.server().release(Order::Reversed);
    assert_eq!(within(PATIENCE, "it is answered", kept).await.expect("it succeeds"), "kept");
    // The retired connection is closed.
    rig.works().await;
    assert_eq!((rig.state(0).open, rig.state(0).retired, rig.server().counts().accepted), (1, 0, 2));
    rig.end().await;
}

/// A dropped future does not keep its task's waker, in any state.
async fn dropped_futures_keep_no_waker<P: Platform + Default>() {
    let server = server();
    server.pause_reading();
    let rig = Rig::<P>::of(vec![server], |options| options.mux(narrow(1)));
    let bell = Arc::new(Bell::default());
    let waker = || Waker::from(Arc::clone(&bell));
    let ask = || {
        let waker = waker();
        let mut asking = pin!(rig.echo("one"));
        for _ in 0..2 {
            assert!(asking.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
    };
    ask();
    assert_eq!(Arc::strong_count(&bell), 1, "the waiter for a connection");
    rig.server().resume_reading();
    rig.works().await;
    rig.server().add(Rule::statements(super::hold()));
    let holder = begun(rig.echo("held")).await;
    ask();
    assert_eq!(Arc::strong_count(&bell), 1, "the waiter for an id");
    rig.held(0, 1).await;
    rig.server().release(Order::Kept);
    holder.await.expect("it succeeds");
    ask();
    assert_eq!(Arc::strong_count(&bell), 1, "the waiter for a reply");
    rig.held(0, 1).await;
    rig.server().clear_rules();
    rig.server().release(Order::Kept);
    rig.works().await;
    rig.end().await;
}

/// The session is closed although the future is dropped: requests fail, subscriptions and tasks
/// end.
async fn close<P: Platform + Default>() {
    let mut rig = Rig::<P>::new(|options| options);
    at_every_point(0, async |point| {
        rig.works().await;
        rig.server().add(holding("held"));
        let holder = begun(rig.echo("held")).await;
        let mut events = rig.session.subscribe();
        let over = point.reach(rig.session.close()).await.is_some();
        if point.polls > 0 {
            let error = refused(within(PATIENCE, "it fails at once", holder).await);
            assert!(matches!(error, RequestError::Closed), "{error:?}");
            let error = refused(within(PATIENCE, "it fails at once", rig.echo("one")).await);
            assert!(matches!(error, RequestError::Closed), "{error:?}");
            within(PATIENCE, "the subscription ends", async { while events.next().await.is_some() {} }).await;
            // Closing completes although `close` is not called again.
            eventually("all tasks have ended", || rig.platform.tasks_count() == 0).await;
        } else {
            drop(holder);
        }
        rig.end().await;
        rig.server().clear_rules();
        rig.renew(|options| options);
        over
    })
    .await;
    rig.end().await;
}

/// The session is dropped while its connections are being established, at various stages, or
/// before.
async fn at_once<P: Platform + Default>() {
    let servers = vec![server(), server()];
    servers[1].pause_reading();
    let platform = Probe::<P>::default();
    for round in 0..30_u32 {
        let session = session(&platform, &servers, |options| options.mux(CALM));
        for _ in 0..round {
            futures_lite::future::yield_now().await;
            std::thread::yield_now();
        }
        if round % 3 == 0 {
            // The request borrows the session, so it is dropped first.
            drop(poll_once(echo(&session, "one")).await);
        }
        drop(session);
    }
    eventually("all tasks have ended", || platform.tasks_count() == 0).await;
    servers[1].resume_reading();
    for server in &servers {
        eventually("the server has no connection", || server.counts().open == 0).await;
    }
}
