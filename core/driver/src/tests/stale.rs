//! Results for connections whose slot was reused, and connections that must be closed.

use super::wide::Bell;
use super::workers::{core_clear, guard};
use super::*;
use crate::connection::{Connection, hold};
use crate::driven::{Begun, Drive};
use poolhouse_core::pool::{ConnId, EstablishError, Health, WaiterId};

fn begin(bench: &Bench, server: &Server<Bench>) -> Begun<crate::connection::Held<Bench>> {
    server.check_out(|| bench.now(), |_| None, &mut None).expect("a free waiter slot")
}

fn queue(bench: &Bench, server: &Server<Bench>, waker: &Waker) -> WaiterId {
    let Begun::Queued(id) = begin(bench, server) else { panic!("none is available") };
    let mut waiter = Some(id);
    assert!(server.poll_check_out(&mut waiter, || bench.now(), |_| None, waker).is_pending());
    waiter.expect("it waits")
}

fn establish(bench: &Bench, server: &Server<Bench>, worker: usize) -> ConnId {
    match server.poll_establish(bench.now(), worker, Waker::noop()) {
        Poll::Ready(Some(conn)) => conn,
        Poll::Ready(None) | Poll::Pending => panic!("one is wanted"),
    }
}

#[test]
fn claim_by_a_stale_id_is_cancelled_and_changes_nothing() {
    let (bench, _hub, server) = open();
    let early = queue(&bench, &server, Waker::noop());
    server.cancel(bench.now(), early);
    let bell = Arc::new(Bell::default());
    let late = queue(&bench, &server, &Waker::from(Arc::clone(&bell)));
    assert_eq!(early.index(), late.index());
    assert!(matches!(
        server.claim(&mut Some(early), Some(Waker::noop().clone())),
        Poll::Ready(Err(CheckOutError::Cancelled))
    ));
    server.close(bench.now());
    server.settle();
    assert_eq!(bell.rings(), 1, "the other one's waker is where it was");
    assert!(matches!(server.claim(&mut Some(late), None), Poll::Ready(Err(CheckOutError::PoolClosed))));
}

#[test]
fn worker_is_woken_by_its_latest_waker() {
    let (bench, _hub, server) = open();
    let worker = server.join_workers().expect("a place");
    let bells = [(); 2].map(|()| Arc::new(Bell::default()));
    for bell in &bells {
        assert!(server.poll_establish(bench.now(), worker, &Waker::from(Arc::clone(bell))).is_pending());
    }
    let _waiter = queue(&bench, &server, Waker::noop());
    assert_eq!(bells.map(|bell| bell.rings()), [0, 1]);
}

/// A connection that was established too late, after its slot was reused; and an error of it.
#[test]
fn check_in_by_a_stale_id_changes_nothing() {
    let (bench, core, server) = open();
    let first = guard(&core, &server);
    let known = first.established().expect("it was told");
    core_clear(&bench, &server);
    drop(first);
    let worker = server.join_workers().expect("a place");
    let _first = queue(&bench, &server, Waker::noop());
    let early = establish(&bench, &server, worker);
    let error = EstablishError { cause: Cause::Network, overloaded: false, clear: None };
    drop(server.fail_establish(bench.now(), early, error, &poolhouse_core::Reason::NONE));
    server.settle();
    let _second = queue(&bench, &server, Waker::noop());
    let late = establish(&bench, &server, worker);
    assert_eq!(early.index(), late.index());
    let before = server.pool_snapshot();
    let connection = hold(Connection::new(Stream::of(&bench), Page::of(&bench), Page::of(&bench)));
    assert!(server.established(bench.now(), early, connection, known).is_some());
    core.report_failure(&server, early, Cause::Network);
    assert_eq!(server.pool_snapshot(), before);
    assert_eq!((before.counts.pending, before.generation), (1, 1));
}

#[test]
fn connection_without_a_socket_is_closed_at_check_in() {
    let (bench, core, server) = open();
    drop(guard(&core, &server));
    let Begun::Granted(Some(connection), lease) = begin(&bench, &server) else { panic!("one is there") };
    drop(connection);
    server.check_in(|| bench.now(), lease, &mut None, Health::Healthy);
    assert_eq!(counts(&server), PoolCounts::default());
}

/// If the connection stays usable, it is checked out and returned without a clock read.
#[test]
fn stale_connection_is_closed_at_check_in_without_a_clock() {
    for is_answered in [true, false] {
        let (bench, core, server) = open();
        drop(guard(&core, &server));
        let take = || done(core.check_out_of(Arc::clone(&server), None, None)).expect("one is available");
        // The one after a check-out that waited reads the clock.
        drop(take());
        let looks = bench.looks.load(Ordering::Relaxed);
        let mut guard = take();
        assert_eq!(bench.looks.load(Ordering::Relaxed), looks);
        *bench.answer.lock().unwrap() = if is_answered { Answer::Babbles } else { Answer::KeepsSilent };
        let mut command = Box::pin(guard.run_command("db", |body| body.int32("saslStart", 1).map(drop)));
        let first = poll(&mut command).map(|reply| reply.map(drop));
        assert_eq!(matches!(first, Poll::Ready(Err(OperationError::Exchange(ExchangeError::Wire(_))))), is_answered);
        drop(command);
        if is_answered {
            let second = done(guard.run_command("db", |body| body.int32("ping", 1).map(drop))).map(drop);
            assert_eq!(second, Err(OperationError::Broken(Cause::Protocol)));
        }
        let looks = bench.looks.load(Ordering::Relaxed);
        drop(guard);
        assert!(bench.looks.load(Ordering::Relaxed) > looks, "now it does");
        assert_eq!(counts(&server), PoolCounts::default());
    }
}

#[test]
fn socket_that_takes_no_bytes_has_failed() {
    let (bench, core, server) = open();
    let mut first = guard(&core, &server);
    bench.deaf.store(true, Ordering::Relaxed);
    let failed = done(first.run_command("db", |body| body.int32("ping", 1).map(drop))).map(drop);
    assert_eq!(failed, Err(OperationError::Exchange(ExchangeError::Network(poolhouse_core::Reason::NONE))));
    drop(first);
    assert_eq!(counts(&server), PoolCounts::default());
}

/// Server Selection, "Determine compatibility": no server of the deployment is selected, not even
/// the only one.
#[test]
fn incompatible_deployment_fails_selection_with_a_reason() {
    use alloc::string::ToString;
    use poolhouse_core::monitor::{MonitorAction, MonitorConnKind};
    use poolhouse_wire::hello::HelloReply;
    use poolhouse_wire::message::Matched;
    for (max_wire_version, is_good) in [(21, true), (1, false)] {
        let (_, core, server) = open();
        let hello = HelloReply { is_writable_primary: true, max_wire_version, ..HelloReply::OK };
        core.step(|state, now, tap| {
            loop {
                match state.control.poll_conn(now, server.id(), MonitorConnKind::Check).expect("a check is due") {
                    MonitorAction::Hangup(_) => {}
                    MonitorAction::Dial(conn) => {
                        state.control.handle_dialed(now, server.id(), conn, tap).expect("wanted")
                    }
                    MonitorAction::SendHello { conn, .. } | MonitorAction::ReadNext { conn } => {
                        let told = state.control.handle_reply(now, server.id(), conn, &hello, Matched::Last, tap);
                        return told.expect("wanted");
                    }
                }
            }
        });
        match poll(&mut Box::pin(core.select_server(&SelectionRequest::WRITE, None))) {
            Poll::Ready(Ok(found)) => assert!(is_good && Arc::ptr_eq(&found, &server)),
            Poll::Ready(Err(error)) => assert!(!is_good && error.to_string().contains("wire version"), "{error}"),
            Poll::Pending => panic!("it waits"),
        }
    }
}
