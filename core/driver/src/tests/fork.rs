//! The child of a fork, simulated in one process: the runtime reports that the process was forked.

use super::wide::Bell;
use super::workers::guard;
use super::*;
use crate::client_core::State;
use poolhouse_core::pool::PoolState;

fn fork(bench: &Bench) {
    bench.inherited.store(true, Ordering::Relaxed);
}

fn return_to_parent(bench: &Bench) {
    bench.inherited.store(false, Ordering::Relaxed);
}

fn snapshots(core: &ClientCore<Bench>) -> Vec<PoolSnapshot> {
    let mut seen = Vec::new();
    core.for_each_server(|server| seen.push(server.pool));
    seen
}

/// Runs `work` while the lock is held, as by a thread that does not exist in the child.
fn while_held<T: Send>(state: &Mutex<T>, work: impl FnOnce()) {
    let held = state.lock();
    work();
    drop(held);
}

#[test]
#[doc(alias("CMAP-30", "CMAP-100"))]
fn operations_fail_at_once_and_have_cleared_the_pool() {
    let (bench, core, server) = open();
    drop(guard(&core, &server));
    let mut held = guard(&core, &server);
    let mut waiting = Box::pin(core.check_out_of(Arc::clone(&server), None, None));
    let mut selecting: Boxed<'_, _> = Box::pin(core.check_out(&SelectionRequest::WRITE, None));
    let mut warming: Boxed<'_, _> = Box::pin(core.warm_up_server(&server, Some(1), None));
    assert!(poll(&mut waiting).is_pending());
    let _ = (poll(&mut selecting), poll(&mut warming));
    let written = bench.written.load(Ordering::Relaxed);
    fork(&bench);
    let run = done(held.run_command("admin", |body| body.int32("ping", 1).map(drop)));
    assert_eq!(run.err(), Some(OperationError::Forked));
    assert_eq!(
        snapshots(&core),
        [PoolSnapshot { state: PoolState::Paused, generation: 1, counts: PoolCounts::default() }]
    );
    assert_eq!(core.reset_after_fork(), ForkReset::Cleared);
    assert_eq!(snapshots(&core).first().map(|pool| pool.generation), Some(1), "once is enough");
    assert!(matches!(poll(&mut waiting), Poll::Ready(Err(OperationError::Forked))));
    for result in
        [done(core.check_out(&SelectionRequest::WRITE, None)), done(core.check_out_of(Arc::clone(&server), None, None))]
    {
        assert_eq!(result.err(), Some(OperationError::Forked));
    }
    assert_eq!(done(core.warm_up(&SelectionRequest::WRITE, None, None)), Err(OperationError::Forked));
    assert!(held.established().is_none());
    assert_eq!(bench.written.load(Ordering::Relaxed), written, "nothing was sent");
}

#[test]
fn pending_futures_fail_in_the_child_when_polled_and_no_waker_is_called() {
    let (bench, core, server) = open();
    bench.dial(Dial::Hangs);
    let bell = Arc::new(Bell::default());
    let mut selecting: Boxed<'_, _> = Box::pin(core.check_out(&SelectionRequest::WRITE, None));
    let mut warming: Boxed<'_, _> = Box::pin(core.warm_up_server(&server, Some(1), None));
    let mut waiting: Boxed<'_, _> = Box::pin(core.check_out_of(Arc::clone(&server), None, None));
    assert!(bell.poll(&mut selecting).is_pending());
    assert!(bell.poll(&mut warming).is_pending());
    assert!(bell.poll(&mut waiting).is_pending());
    let rings = bell.rings();
    fork(&bench);
    assert_eq!(core.reset_after_fork(), ForkReset::Cleared);
    assert_eq!(bell.rings(), rings);
    assert!(matches!(bell.poll(&mut selecting), Poll::Ready(Err(OperationError::Forked))));
    assert!(matches!(bell.poll(&mut warming), Poll::Ready(Err(OperationError::Forked))));
    assert!(matches!(bell.poll(&mut waiting), Poll::Ready(Err(OperationError::Forked))));
}

/// No call waits for a lock that is held forever: no operation, no snapshot and no drop.
#[test]
fn child_of_a_fork_awaits_no_lock() {
    let (bench, core, server) = open();
    let mut held = guard(&core, &server);
    let mut waiting = Box::pin(core.check_out_of(Arc::clone(&server), None, None));
    let mut selecting: Boxed<'_, _> = Box::pin(core.select_server(&SelectionRequest::WRITE, None));
    let mut warming: Boxed<'_, _> = Box::pin(core.warm_up_server(&server, Some(2), None));
    assert!(poll(&mut waiting).is_pending());
    let _ = (poll(&mut selecting), poll(&mut warming));
    fork(&bench);
    while_held(&server.state, || {
        assert_eq!(core.reset_after_fork(), ForkReset::Locked);
        assert_eq!(
            snapshots(&core),
            [PoolSnapshot { state: PoolState::Paused, generation: 0, counts: PoolCounts::default() }]
        );
        let run = done(held.run_command("admin", |body| body.int32("ping", 1).map(drop)));
        assert_eq!(run.err(), Some(OperationError::Forked));
        held.pin(poolhouse_core::pool::Pinned::Cursor);
        drop((held, waiting, selecting, warming));
    });
    while_held::<State<Bench>>(&core.state, || {
        assert_eq!(core.reset_after_fork(), ForkReset::Locked);
        assert!(snapshots(&core).is_empty());
        assert!(core.topology().get().servers().next().is_none());
        assert_eq!(done(core.check_out(&SelectionRequest::WRITE, None)).err(), Some(OperationError::Forked));
        assert!(core.is_closed(), "for all that is known");
        core.close();
        core.request_check();
        core.reconfigure_pools(core.pool_config());
    });
    assert_eq!(core.reset_after_fork(), ForkReset::Cleared);
}

/// The command has its end in the parent. In the child its event would await the lock of the server.
#[test]
fn command_of_the_parent_has_no_event_in_the_child() {
    let (bench, core, server) = open();
    let mut events = core.events().subscribe(EventKinds::COMMANDS, 16, |_| true);
    let mut held = guard(&core, &server);
    bench.mute(true);
    let mut running: Boxed<'_, _> =
        Box::pin(async { held.run_command("admin", |body| body.int32("ping", 1).map(drop)).await.map(drop) });
    assert!(poll(&mut running).is_pending());
    assert!(events.try_next().is_some(), "the start");
    fork(&bench);
    while_held(&server.state, || {
        assert!(matches!(poll(&mut running), Poll::Ready(Err(OperationError::Forked))));
    });
    drop(running);
    while_held(&server.state, || drop(held));
    assert!(events.try_next().is_none());
}

/// The selection has its end in the parent. In the child its event would await the lock of the core.
#[test]
fn selection_of_the_parent_has_no_event_in_the_child() {
    let (bench, core, _server) = open();
    let mut events = core.events().subscribe(EventKinds::SELECTIONS, 16, |_| true);
    let mut selecting = Box::pin(core.select_server(&SelectionRequest::WRITE, None));
    assert!(poll(&mut selecting).is_pending());
    let other = {
        let mut other = Box::pin(core.select_server(&SelectionRequest::WRITE, None));
        assert!(poll(&mut other).is_pending());
        other
    };
    assert!(events.try_next().is_some() && events.try_next().is_some(), "the starts");
    fork(&bench);
    while_held(&core.state, || {
        assert!(matches!(poll(&mut selecting), Poll::Ready(Err(OperationError::Forked))));
        drop((selecting, other));
    });
    assert!(events.try_next().is_none());
}

/// In one process, the child's actions change the parent's state. Drops must not.
#[test]
fn guards_dropped_in_the_child_return_no_connection() {
    let (bench, core, server) = open();
    let held = guard(&core, &server);
    let waiting = {
        let mut waiting = Box::pin(core.check_out_of(Arc::clone(&server), None, None));
        assert!(poll(&mut waiting).is_pending());
        waiting
    };
    let before = server.pool_snapshot();
    fork(&bench);
    drop((held, waiting));
    core.close();
    return_to_parent(&bench);
    assert_eq!(server.pool_snapshot(), before);
    assert!(!core.is_closed());
    assert_eq!(core.reset_after_fork(), ForkReset::NotForked);
    assert_eq!(server.pool_snapshot(), before);
}
