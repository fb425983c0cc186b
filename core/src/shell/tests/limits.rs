//! Time limits of what comes before an operation.

use super::workers::guard;
use super::*;

fn after_secs(seconds: u64) -> Instant {
    Bench::new().now().saturating_add(Duration::from_secs(seconds))
}

/// A future that is pending until just before an instant, and what it gives at it.
fn output_at<T>(bench: &Bench, at: Instant, clock: &mut Boxed<'_, ()>, future: &mut Boxed<'_, T>) -> T {
    bench.advance_to(Instant::from_nanos(at.as_nanos() - 1));
    assert!(poll(clock).is_pending());
    assert!(poll(future).is_pending(), "too early");
    bench.advance_to(at);
    assert!(poll(clock).is_pending());
    match poll(future) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("too late"),
    }
}

/// CMAP-28: with a deadline, selection and check-out have serverSelectionTimeoutMS together, and waitQueueTimeoutMS does not apply;
/// without one, each has its own limit.
#[test]
fn selection_and_check_out_share_one_limit_if_there_is_a_deadline() {
    for (deadline, ends) in [(Some(60), 30), (Some(25), 25), (None, 21)] {
        let (bench, hub, server) = open_as(|config| {
            let options = PoolOptions { wait_queue_timeout: Duration::from_secs(1), ..PoolOptions::DEFAULT };
            config.pool = options.validate().unwrap();
        });
        let mut clock: Boxed<'_, ()> = Box::pin(hub.run_server_task(&server, ServerTask::Clock));
        let mut waiting: Boxed<'_, _> = Box::pin(hub.check_out(&Wanted::WRITE, deadline.map(after_secs)));
        assert!(poll(&mut waiting).is_pending());
        bench.advance_to(after_secs(20));
        assert!(poll(&mut waiting).is_pending());
        assert_eq!(counts(&server).waiting, 0, "no server is known");
        // The only connection that there can be. Its hello makes the server known.
        let held = guard(&hub, &server);
        assert!(poll(&mut waiting).is_pending());
        assert_eq!(counts(&server).waiting, 1);
        let Err(error) = output_at(&bench, after_secs(ends), &mut clock, &mut waiting) else { panic!("none is free") };
        assert_eq!(error, OperationError::CheckOut(CheckOutError::WaitQueueTimeout { usage: None }));
        drop((waiting, held));
    }
}

/// CMAP-28: the limit of the check-out is not that of what comes after it.
#[test]
fn operations_after_the_check_out_have_the_whole_deadline() {
    let (bench, hub, server) = open();
    let mut clock: Boxed<'_, ()> = Box::pin(hub.run_server_task(&server, ServerTask::Clock));
    drop(guard(&hub, &server));
    let mut guard = done(hub.check_out(&Wanted::WRITE, Some(after_secs(60)))).unwrap();
    bench.mute(true);
    let mut command: Boxed<'_, _> =
        Box::pin(async { guard.run_command("db", |body| body.int32("ping", 1).map(drop)).await.map(drop) });
    assert!(poll(&mut command).is_pending());
    let outcome = output_at(&bench, after_secs(60), &mut clock, &mut command);
    assert_eq!(outcome, Err(OperationError::Timeout));
}

/// CMAP-28
#[test]
fn each_attempt_has_a_limit_of_its_own_within_the_deadline() {
    let (bench, hub, _server) = open();
    assert_eq!(hub.check_out_limit(None), None);
    for (now, limit) in [(0, 30), (10, 40), (30, 60), (40, 60), (70, 60)] {
        bench.advance_to(after_secs(now));
        assert_eq!(hub.check_out_limit(Some(after_secs(60))), Some(after_secs(limit)), "after {now} s");
    }
}
