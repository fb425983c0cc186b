//! Time limits of the steps before an operation.

use super::workers::guard;
use super::*;
#[cfg(feature = "auth")]
use poolhouse_auth::{Credential, Mechanism};
#[cfg(feature = "auth")]
use poolhouse_core::pool::PoolState;

fn after_secs(seconds: u64) -> Instant {
    Bench::new().now().saturating_add(Duration::from_secs(seconds))
}

/// Checks that a future is pending until just before an instant. Returns its output at that
/// instant. `task` is the server's task that completes it.
fn output_at<T>(bench: &Bench, at: Instant, task: &mut Boxed<'_, ()>, future: &mut Boxed<'_, T>) -> T {
    bench.advance_to(Instant::from_nanos(at.as_nanos() - 1));
    assert!(poll(task).is_pending());
    assert!(poll(future).is_pending(), "too early");
    bench.advance_to(at);
    assert!(poll(task).is_pending());
    match poll(future) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("too late"),
    }
}

/// With a deadline, selection and check-out have serverSelectionTimeoutMS together, and
/// waitQueueTimeoutMS does not apply; without one, each has its own limit.
#[test]
#[doc(alias = "CMAP-28")]
fn selection_and_check_out_share_one_limit_if_a_deadline_is_set() {
    for (deadline, ends) in [(Some(60), 30), (Some(25), 25), (None, 21)] {
        let (bench, core, server) = open_as(|config| {
            let options = PoolOptions { wait_queue_timeout: Some(Duration::from_secs(1)), ..PoolOptions::DEFAULT };
            config.pool = options.validate().unwrap();
        });
        let mut clock: Boxed<'_, ()> = Box::pin(core.run_server_task(&server, ServerTask::Clock));
        let mut waiting: Boxed<'_, _> = Box::pin(core.check_out(&SelectionRequest::WRITE, deadline.map(after_secs)));
        assert!(poll(&mut waiting).is_pending());
        bench.advance_to(after_secs(20));
        assert!(poll(&mut waiting).is_pending());
        assert_eq!(counts(&server).waiting, 0, "no server is known");
        // The pool is limited to this connection. Its hello makes the server known.
        let held = guard(&core, &server);
        assert!(poll(&mut waiting).is_pending());
        assert_eq!(counts(&server).waiting, 1);
        let Err(error) = output_at(&bench, after_secs(ends), &mut clock, &mut waiting) else { panic!("none is free") };
        assert_eq!(error, OperationError::check_out_of("a:27017", CheckOutError::WaitQueueTimeout { usage: None }));
        drop((waiting, held));
    }
}

/// The limit of the check-out does not apply to later steps.
#[test]
#[doc(alias = "CMAP-28")]
fn operations_after_the_check_out_have_the_whole_deadline() {
    let (bench, core, server) = open();
    let mut clock: Boxed<'_, ()> = Box::pin(core.run_server_task(&server, ServerTask::Clock));
    drop(guard(&core, &server));
    let mut guard = done(core.check_out(&SelectionRequest::WRITE, Some(after_secs(60)))).unwrap();
    bench.mute(true);
    let mut command: Boxed<'_, _> =
        Box::pin(async { guard.run_command("db", |body| body.int32("ping", 1).map(drop)).await.map(drop) });
    assert!(poll(&mut command).is_pending());
    let outcome = output_at(&bench, after_secs(60), &mut clock, &mut command);
    assert_eq!(outcome, Err(OperationError::Timeout));
}

#[test]
#[doc(alias = "CMAP-28")]
fn each_attempt_has_a_limit_of_its_own_within_the_deadline() {
    let (bench, core, _server) = open();
    assert_eq!(core.check_out_limit(None), None);
    for (now, limit) in [(0, 30), (10, 40), (30, 60), (40, 60), (70, 60)] {
        bench.advance_to(after_secs(now));
        assert_eq!(core.check_out_limit(Some(after_secs(60))), Some(after_secs(limit)), "after {now} s");
    }
}

#[cfg(feature = "auth")]
fn after_millis(millis: u64) -> Instant {
    Bench::new().now().saturating_add(Duration::from_millis(millis))
}

/// A check-out for which a worker has begun to establish a connection.
fn establishing<'a>(
    core: &'a ClientCore<Bench>,
    server: &'a Arc<Server<Bench>>,
) -> (Boxed<'a, ()>, Boxed<'a, Result<(), OperationError>>) {
    let mut waiting: Boxed<'a, _> =
        Box::pin(async { core.check_out_of(Arc::clone(server), None, None).await.map(drop) });
    let mut establishing = worker(core, server);
    assert!(poll(&mut waiting).is_pending() && poll(&mut establishing).is_pending());
    (establishing, waiting)
}

fn timed_out(overloaded: bool) -> Result<(), OperationError> {
    let cause = Cause::NetworkTimeout;
    Err(OperationError::check_out_of("a:27017", CheckOutError::EstablishFailed { cause, overloaded }))
}

const SECOND: Duration = Duration::from_secs(1);

/// The earlier of the two limits applies, and none if neither is set.
#[test]
#[doc(alias("CMAP-60", "CMAP-95"))]
fn hello_that_is_not_answered_ends_at_the_limit_of_a_command() {
    let cases = [(None, Some(1), 1), (Some(2), Some(1), 1), (Some(1), Some(2), 1), (Some(1), None, 1)];
    for (connect_timeout, command_timeout, ends) in cases {
        let (bench, core, server) = open_as(|config| {
            config.connect_timeout = connect_timeout.map(Duration::from_secs);
            config.command_timeout = command_timeout.map(Duration::from_secs);
        });
        bench.mute(true);
        let (mut worker, mut waiting) = establishing(&core, &server);
        assert_eq!(output_at(&bench, after_secs(ends), &mut worker, &mut waiting), timed_out(true));
        assert_eq!(counts(&server), PoolCounts::default(), "its place is free");
    }
    let (bench, core, server) = open();
    bench.mute(true);
    let (mut worker, mut waiting) = establishing(&core, &server);
    bench.advance_to(after_secs(1_000_000_000));
    assert!(poll(&mut worker).is_pending() && poll(&mut waiting).is_pending());
}

/// The limit of a command does not apply to dialing.
#[test]
#[doc(alias = "CMAP-60")]
fn dialing_ends_at_the_limit_of_establishing_only() {
    let (bench, core, server) = open_as(|config| {
        config.connect_timeout = Some(3 * SECOND);
        config.command_timeout = Some(SECOND);
    });
    bench.dial(Dial::Hangs);
    let (mut worker, mut waiting) = establishing(&core, &server);
    assert_eq!(output_at(&bench, after_secs(3), &mut worker, &mut waiting), timed_out(true));
}

/// A check-out with this deadline, which waits after one poll.
fn waiting_until<'a>(
    core: &'a ClientCore<Bench>,
    server: &'a Arc<Server<Bench>>,
    deadline: Instant,
) -> Boxed<'a, Result<(), OperationError>> {
    let mut waiting: Boxed<'a, _> =
        Box::pin(async move { core.check_out_of(Arc::clone(server), Some(deadline), Some(deadline)).await.map(drop) });
    assert!(poll(&mut waiting).is_pending());
    waiting
}

fn ran_out() -> Result<(), OperationError> {
    Err(OperationError::check_out_of("a:27017", CheckOutError::WaitQueueTimeout { usage: None }))
}

/// The client's shorter limit does not apply.
#[test]
#[doc(alias = "CMAP-28")]
fn a_connection_for_one_operation_is_established_within_the_time_of_that_operation() {
    let (bench, core, server) = open_as(|config| config.command_timeout = Some(5 * SECOND));
    bench.mute(true);
    let mut waiting = waiting_until(&core, &server, after_secs(10));
    let mut worker = worker(&core, &server);
    assert!(poll(&mut worker).is_pending());
    bench.advance_to(after_secs(5));
    assert!(poll(&mut worker).is_pending() && poll(&mut waiting).is_pending());
    assert_eq!(output_at(&bench, after_secs(10), &mut worker, &mut waiting), ran_out());
    assert_eq!(counts(&server), PoolCounts::default(), "the connection is abandoned");
}

/// An operation with a short deadline ends at its deadline. Its connection is still established for
/// the next operation, within the client's limit, and the pool is not cleared.
#[test]
fn a_short_deadline_neither_ends_the_establishment_nor_clears_the_pool() {
    let (bench, core, server) = open_as(|config| config.command_timeout = Some(5 * SECOND));
    bench.delay.store(4_000_000_000, Ordering::Relaxed);
    let mut clock: Boxed<'_, ()> = Box::pin(core.run_server_task(&server, ServerTask::Clock));
    let mut first = waiting_until(&core, &server, after_secs(1));
    let mut worker = worker(&core, &server);
    assert!(poll(&mut worker).is_pending());
    assert_eq!(output_at(&bench, after_secs(1), &mut clock, &mut first), ran_out());
    assert_eq!(counts(&server).pending, 1, "the connection is still being established");
    bench.advance_to(after_secs(4));
    assert!(poll(&mut worker).is_pending());
    let snapshot = server.pool_snapshot();
    assert_eq!((snapshot.state, snapshot.generation, snapshot.counts.available), (PoolState::Ready, 0, 1));
}

/// Neither the deadline of the first operation nor the client's limit ends the establishment.
#[test]
fn a_connection_is_established_within_the_time_of_another_operation_that_waits_for_it() {
    let (bench, core, server) = open_as(|config| config.command_timeout = Some(SECOND));
    bench.delay.store(5_000_000_000, Ordering::Relaxed);
    let mut first = waiting_until(&core, &server, after_secs(3));
    let mut second = waiting_until(&core, &server, after_secs(10));
    let mut worker = worker(&core, &server);
    assert!(poll(&mut worker).is_pending());
    assert_eq!(output_at(&bench, after_secs(3), &mut worker, &mut first), ran_out());
    assert!(poll(&mut second).is_pending());
    assert_eq!(output_at(&bench, after_secs(5), &mut worker, &mut second), Ok(()));
}

/// The client's options apply if no operation waits for the connection, or an operation
/// without a time limit does.
#[test]
#[doc(alias = "CMAP-60")]
fn the_limit_of_the_client_applies_to_a_connection_for_an_operation_without_a_deadline() {
    let (bench, core, server) = open_as(|config| config.command_timeout = Some(5 * SECOND));
    bench.mute(true);
    let mut waiting = waiting_until(&core, &server, after_secs(3));
    let mut endless: Boxed<'_, _> =
        Box::pin(async { core.check_out_of(Arc::clone(&server), None, None).await.map(drop) });
    assert!(poll(&mut endless).is_pending());
    let mut worker = worker(&core, &server);
    assert!(poll(&mut worker).is_pending());
    let mut clock: Boxed<'_, ()> = Box::pin(core.run_server_task(&server, ServerTask::Clock));
    assert_eq!(output_at(&bench, after_secs(3), &mut clock, &mut waiting), ran_out());
    assert!(poll(&mut endless).is_pending());
    assert_eq!(output_at(&bench, after_secs(5), &mut worker, &mut endless), timed_out(true));
}

/// A client core with connections that send three commands. The peer answers each after 800 ms.
#[cfg(feature = "auth")]
fn open_slow(connect_timeout: Option<Duration>) -> (Bench, Arc<ClientCore<Bench>>, Arc<Server<Bench>>) {
    let scram = Credential::new("lovelace", super::login::PASSWORD).mechanism(Mechanism::SCRAM_SHA_256);
    let (bench, core, server) = open_as(|config| {
        config.connect_timeout = connect_timeout;
        config.command_timeout = Some(SECOND);
        config.login = Some(Login::new(scram).unwrap());
    });
    bench.delay.store(800_000_000, Ordering::Relaxed);
    *bench.answer.lock().unwrap() = Answer::Scram("salt");
    (bench, core, server)
}

/// Polls a worker until it waits for its peer.
#[cfg(feature = "auth")]
fn work(worker: &mut Boxed<'_, ()>) {
    for _ in 0..1000 {
        assert!(poll(worker).is_pending());
    }
}

#[test]
#[doc(alias = "CMAP-60")]
#[cfg(feature = "auth")]
fn each_command_of_a_handshake_has_the_time_of_one_command() {
    let (bench, core, server) = open_slow(None);
    let (mut worker, mut waiting) = establishing(&core, &server);
    for millis in [800, 1600] {
        bench.advance_to(after_millis(millis));
        work(&mut worker);
    }
    assert_eq!(output_at(&bench, after_millis(2400), &mut worker, &mut waiting), Ok(()));
}

#[test]
#[doc(alias("CMAP-60", "CMAP-96"))]
#[cfg(feature = "auth")]
fn all_of_a_handshake_has_the_time_of_establishing() {
    let (bench, core, server) = open_slow(Some(2 * SECOND));
    let (mut worker, mut waiting) = establishing(&core, &server);
    for millis in [800, 1600] {
        bench.advance_to(after_millis(millis));
        work(&mut worker);
    }
    assert_eq!(output_at(&bench, after_secs(2), &mut worker, &mut waiting), timed_out(false));
}

#[test]
#[doc(alias("CMAP-60", "CMAP-96"))]
#[cfg(feature = "auth")]
fn round_of_authentication_that_is_not_answered_ends_at_the_limit_of_a_command() {
    let (bench, core, server) = open_slow(None);
    *bench.answer.lock().unwrap() = Answer::KeepsSilent;
    let (mut worker, mut waiting) = establishing(&core, &server);
    bench.advance_to(after_millis(800));
    work(&mut worker);
    assert_eq!(output_at(&bench, after_millis(1800), &mut worker, &mut waiting), timed_out(false));
    assert_eq!(counts(&server), PoolCounts::default(), "its place is free");
    assert_eq!(server.pool_snapshot().state, PoolState::Paused);
}
