//! Workers that end before their work does; operations that end before they are sent.

use super::*;
use crate::driven::Drive as _;

/// The pool is notified of the end, the waiting operation fails, and another worker can join.
#[test]
fn worker_dropped_during_a_handshake_leaves_no_connection() {
    let (bench, core, server) = open();
    for dial in [Dial::Hangs, Dial::Stands] {
        bench.dial(dial);
        // The peer does not answer the hello.
        bench.mute(true);
        let mut first = worker(&core, &server);
        let mut waiting = Box::pin(core.check_out_of(Arc::clone(&server), None, None));
        assert!(poll(&mut waiting).is_pending());
        assert!(poll(&mut first).is_pending());
        assert_eq!(counts(&server).pending, 1, "{dial:?}");
        drop(first);
        assert_eq!(counts(&server), PoolCounts::default(), "{dial:?}");
        let Poll::Ready(Err(error)) = poll(&mut waiting) else { panic!("it has failed") };
        let failed = CheckOutError::EstablishFailed { cause: Cause::Cancelled, overloaded: false };
        assert_eq!(error, OperationError::check_out_of("a:27017", failed));
        // The pool allows only one worker.
        bench.mute(false);
        bench.dial(Dial::Stands);
        let mut second = worker(&core, &server);
        let mut waiting = Box::pin(core.check_out_of(Arc::clone(&server), None, None));
        assert!(poll(&mut waiting).is_pending());
        assert!(poll(&mut second).is_pending());
        let Poll::Ready(Ok(guard)) = poll(&mut waiting) else { panic!("established") };
        // The connection is closed when it is returned.
        core_clear(&bench, &server);
        drop(guard);
        assert_eq!(counts(&server), PoolCounts::default());
    }
    assert_eq!(server.pool_snapshot().generation, 2, "the test's own clears only");
}

#[test]
fn worker_that_panics_leaves_no_connection() {
    let (bench, core, server) = open();
    bench.dial(Dial::Panics);
    let mut waiting = Box::pin(core.check_out_of(Arc::clone(&server), None, None));
    assert!(poll(&mut waiting).is_pending());
    let mut first = worker(&core, &server);
    let panicked = catch_unwind(AssertUnwindSafe(|| poll(&mut first)));
    assert!(panicked.is_err());
    drop(first);
    assert_eq!(counts(&server), PoolCounts::default());
    assert!(matches!(poll(&mut waiting), Poll::Ready(Err(OperationError::CheckOut(_)))));
    bench.dial(Dial::Stands);
    let mut second = worker(&core, &server);
    let mut waiting = Box::pin(core.check_out_of(Arc::clone(&server), None, None));
    assert!(poll(&mut waiting).is_pending() && poll(&mut second).is_pending());
    assert!(matches!(poll(&mut waiting), Poll::Ready(Ok(_))));
}

/// Clears the pool as a check that timed out does, and makes it ready again.
pub(super) fn core_clear(bench: &Bench, server: &Server<Bench>) {
    let cause = Cause::NetworkTimeout;
    let clear = PoolCommand::Clear { interrupt_in_use_connections: true, cause };
    server.command(bench.now(), clear);
    server.settle();
    server.command(bench.now(), PoolCommand::Ready);
    server.settle();
}

pub(super) fn guard<'h>(core: &'h ClientCore<Bench>, server: &Arc<Server<Bench>>) -> Guard<'h, Bench> {
    let mut waiting = Box::pin(core.check_out_of(Arc::clone(server), None, None));
    if let Poll::Ready(guard) = poll(&mut waiting) {
        return guard.unwrap();
    }
    let mut establishing = worker(core, server);
    assert!(poll(&mut establishing).is_pending());
    match poll(&mut waiting) {
        Poll::Ready(guard) => guard.unwrap(),
        Poll::Pending => panic!("established"),
    }
}

/// The operation was never sent, so it may be executed on another server.
#[test]
#[doc(alias = "CMAP-84")]
fn operation_that_is_interrupted_before_it_is_sent_may_be_retried() {
    let (bench, core, server) = open();
    let mut guard = guard(&core, &server);
    let sent = bench.written.load(Ordering::Relaxed);
    core_clear(&bench, &server);
    let error = done(guard.run_command("db", |body| body.int32("ping", 1).map(drop))).unwrap_err();
    let cause = Some(Cause::NetworkTimeout);
    assert_eq!(error, OperationError::check_out_of("a:27017", CheckOutError::PoolCleared { cause }));
    assert!(error.is_retryable());
    assert_eq!(bench.written.load(Ordering::Relaxed), sent);
    drop(guard);
    assert_eq!(counts(&server), PoolCounts::default(), "what was interrupted is closed");
}

#[test]
#[doc(alias = "CMAP-83")]
fn operation_that_is_interrupted_after_it_was_sent_may_not_be_retried() {
    let (bench, core, server) = open();
    let mut guard = guard(&core, &server);
    bench.mute(true);
    let mut command: Boxed<'_, bool> = Box::pin(async {
        let error = guard.run_command("db", |body| body.int32("ping", 1).map(drop)).await.unwrap_err();
        assert_eq!(error, OperationError::Interrupted(ServerAddress::new("a:27017")));
        error.is_retryable()
    });
    assert!(poll(&mut command).is_pending());
    core_clear(&bench, &server);
    assert_eq!(poll(&mut command), Poll::Ready(false));
}
