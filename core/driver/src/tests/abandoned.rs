//! Tasks that are dropped before their end: no operation waits for work that they will not do.

use super::workers::guard;
use super::*;
use poolhouse_core::pool::PoolState;

/// Every task of a client, of this server and of the client core.
fn tasks<'a>(core: &'a ClientCore<Bench>, server: &'a Arc<Server<Bench>>) -> Vec<(String, Boxed<'a, ()>)> {
    let of_server = [ServerTask::Check, ServerTask::Rtt, ServerTask::Clock, ServerTask::Worker];
    let mut tasks: Vec<(String, Boxed<'a, ()>)> = of_server
        .map(|task| (alloc::format!("{task:?}"), Box::pin(core.run_server_task(server, task)) as Boxed<'a, ()>))
        .into_iter()
        .chain([("run_check".into(), Box::pin(core.run_check(server)) as Boxed<'a, ()>)])
        .chain([("run_rtt".into(), Box::pin(core.run_rtt(server)) as Boxed<'a, ()>)])
        .chain([("run_pool_clock".into(), Box::pin(core.run_pool_clock(server)) as Boxed<'a, ()>)])
        .chain([("run_worker".into(), Box::pin(core.run_worker(server)) as Boxed<'a, ()>)])
        .collect();
    tasks.push(("run_clock".into(), Box::pin(core.run_clock())));
    tasks
}

/// Returns one task by its index in [`tasks`]. The others were not polled, and are leaked instead
/// of dropped.
fn task<'a>(core: &'a ClientCore<Bench>, server: &'a Arc<Server<Bench>>, place: usize) -> (String, Boxed<'a, ()>) {
    let mut tasks = tasks(core, server);
    let task = tasks.swap_remove(place);
    core::mem::forget(tasks);
    task
}

const TASKS: usize = 9;

fn of<T>(result: Poll<Result<T, OperationError>>) -> OperationError {
    match result {
        Poll::Ready(Err(error)) => error,
        Poll::Ready(Ok(_)) => panic!("a success"),
        Poll::Pending => panic!("it waits"),
    }
}

/// Check-outs that wait for a connection, and later ones.
#[test]
fn dropped_task_fails_all_waiters_with_a_reason_and_closes_the_client() {
    for (place, polled) in (0..TASKS).flat_map(|place| [(place, 0), (place, 2)]) {
        let (_, core, server) = open();
        let in_use = guard(&core, &server);
        let (name, mut dropped) = task(&core, &server, place);
        for _ in 0..polled {
            assert!(poll(&mut dropped).is_pending(), "{name}");
        }
        let mut queued = Box::pin(core.check_out_of(Arc::clone(&server), None, None));
        assert!(poll(&mut queued).is_pending());
        drop(dropped);
        assert_eq!(of(poll(&mut queued)), OperationError::Abandoned, "{name}, polled {polled} times");
        assert!(core.is_closed());
        assert_eq!(of(poll(&mut Box::pin(core.check_out(&SelectionRequest::WRITE, None)))), OperationError::Abandoned);
        let later = of(poll(&mut Box::pin(core.check_out_of(Arc::clone(&server), None, None))));
        assert_eq!(later, OperationError::Abandoned);
        assert!(!later.is_retryable() && !later.is_transient());
        // A connection that is checked out stays usable, and is closed when it is returned.
        let mut in_use = in_use;
        done(in_use.run_command("db", |body| body.int32("ping", 1).map(drop))).expect("its reply");
        assert_eq!(counts(&server).in_use, 1);
        drop(in_use);
        assert_eq!(counts(&server), PoolCounts::default());
        assert_eq!(server.pool_snapshot().state, PoolState::Closed);
        core.state.with(|state| state.control.assert_invariants());
        // The other tasks complete, `next_server` included.
        assert!(done(core.next_server()).is_none());
        for place in 0..TASKS {
            let (name, mut other) = task(&core, &server, place);
            // A task that hangs up first yields once.
            assert!(poll(&mut other).is_ready() || poll(&mut other).is_ready(), "{name}");
        }
        assert_eq!(of(poll(&mut Box::pin(core.check_out(&SelectionRequest::WRITE, None)))), OperationError::Abandoned);
    }
}

/// A selection that waits because no server is known, and a warm-up that waits for the same.
#[test]
fn selection_fails_as_abandoned_when_the_monitors_are_dropped() {
    let (_, core, server) = open();
    let mut check = Box::pin(core.run_check(&server));
    let mut selecting = Box::pin(core.check_out(&SelectionRequest::WRITE, None));
    let mut warming = Box::pin(core.warm_up(&SelectionRequest::WRITE, Some(1), None));
    assert!(poll(&mut selecting).is_pending() && poll(&mut warming).is_pending());
    let dial =
        core.state.with(|state| state.control.owes_conn(server.id(), poolhouse_core::monitor::MonitorConnKind::Check));
    assert!(dial, "a check is due");
    drop(core::mem::replace(&mut check, Box::pin(core.run_check(&server))));
    assert_eq!(of(poll(&mut selecting)), OperationError::Abandoned);
    assert_eq!(of(poll(&mut warming)), OperationError::Abandoned);
}

/// The action of the monitor is never left pending, whichever it was.
#[test]
fn monitor_task_dropped_at_any_poll_leaves_a_valid_monitor() {
    for (dial, mute, polls) in
        [(Dial::Hangs, false, 1), (Dial::Stands, true, 1), (Dial::Stands, false, 1), (Dial::Stands, false, 5)]
    {
        let (bench, core, server) = open();
        bench.dial(dial);
        bench.mute(mute);
        let mut check = Box::pin(core.run_check(&server));
        for _ in 0..polls {
            assert!(poll(&mut check).is_pending());
        }
        drop(check);
        core.state.with(|state| {
            state.control.assert_invariants();
            assert!(state.control.is_ended(server.id()));
            assert_eq!(state.control.poll_timeout(), None, "nothing is due any more");
        });
    }
}

/// A waiter of a connection that the worker was establishing receives the error of the worker, not
/// of the connection.
#[test]
fn operation_fails_as_abandoned_when_the_worker_is_dropped_during_its_handshake() {
    for dial in [Dial::Hangs, Dial::Stands] {
        let (bench, core, server) = open();
        bench.dial(dial);
        bench.mute(true);
        let mut work = Box::pin(core.run_worker(&server));
        let mut waiting = Box::pin(core.check_out_of(Arc::clone(&server), None, None));
        let mut warming = Box::pin(core.warm_up_server(&server, Some(1), None));
        assert!(poll(&mut waiting).is_pending() && poll(&mut warming).is_pending() && poll(&mut work).is_pending());
        assert_eq!(counts(&server).pending, 1);
        drop(work);
        assert_eq!(of(poll(&mut waiting)), OperationError::Abandoned, "{dial:?}");
        assert_eq!(of(poll(&mut warming)), OperationError::Abandoned, "{dial:?}");
        assert_eq!(of(poll(&mut Box::pin(core.warm_up_server(&server, Some(1), None)))), OperationError::Abandoned);
        assert_eq!(counts(&server), PoolCounts::default());
    }
}

/// The loss of one worker of several also closes the client.
#[test]
fn dropped_worker_closes_the_client_unless_it_was_surplus() {
    let house = wide::House::open(PoolOptions { max_connecting: 2, ..PoolOptions::DEFAULT }, None);
    let (core, server) = (house.core, Arc::clone(&house.server));
    let (mut one, mut other) = (Box::pin(core.run_worker(&server)), Box::pin(core.run_worker(&server)));
    assert!(poll(&mut one).is_pending() && poll(&mut other).is_pending());
    drop(other);
    assert!(core.is_closed());
    // Here the pool is limited to one connection.
    let (_, core, server) = open();
    let mut one = Box::pin(core.run_worker(&server));
    assert!(poll(&mut one).is_pending());
    done(core.run_worker(&server));
    assert!(!core.is_closed(), "there was nothing to do for it");
}

#[test]
fn ended_tasks_of_removed_servers_and_closed_clients_are_no_failure() {
    let bench = Bench::new();
    let topology = TopologyOptions { seeds: &["a", "b"], ..Default::default() };
    let core = core_for(bench, topology, |_| ());
    let gone = done(core.next_server()).expect("the first");
    let kept = done(core.next_server()).expect("the second");
    let held: Vec<_> = (0..TASKS - 1).map(|place| task(&core, &gone, place).1).collect();
    core.change_seeds([kept.address()].into_iter()).expect("there is room");
    drop(held);
    assert!(!core.is_closed());
    let held: Vec<_> = (0..TASKS).map(|place| task(&core, &kept, place).1).collect();
    core.close();
    drop(held);
    assert_eq!(of(poll(&mut Box::pin(core.check_out(&SelectionRequest::WRITE, None)))), OperationError::Closed);
}

/// The clock is read before anything changes, so closing the client can be attempted again.
#[test]
fn task_guard_attempts_three_times_to_close_its_client() {
    for (panics, closed) in [(2, true), (3, false)] {
        let (bench, core, _server) = open();
        let guard = TaskGuard::new(Arc::clone(&core), None);
        bench.break_down(Part::Now, panics);
        drop(guard);
        bench.break_down(Part::Now, 0);
        assert_eq!(core.is_closed(), closed, "{panics} panics");
    }
}

/// The host's own tasks: the one that starts tasks, and tasks that are not yet created.
#[test]
fn task_guard_is_active_until_its_task_ends() {
    let (_, core, _server) = open();
    let mut next = Box::pin(core.next_server());
    assert!(poll(&mut next).is_pending());
    drop(next);
    assert!(!core.is_closed(), "another may wait in its place");
    TaskGuard::new(Arc::clone(&core), None).end();
    assert!(!core.is_closed());
    drop(TaskGuard::new(Arc::clone(&core), None));
    assert!(core.is_closed());
    assert_eq!(of(poll(&mut Box::pin(core.check_out(&SelectionRequest::WRITE, None)))), OperationError::Abandoned);
}

/// Its tasks have ended, and no other tasks would serve it.
#[test]
fn closed_client_of_a_runtime_whose_tasks_end_is_not_opened_again() {
    let (_, core, server) = open();
    core.close();
    let options = poolhouse_core::topology::TopologyOptions { seeds: &["a"], ..Default::default() };
    core.open(options.validate().unwrap()).unwrap();
    assert!(core.is_closed());
    assert_eq!(of(poll(&mut Box::pin(core.check_out(&SelectionRequest::WRITE, None)))), OperationError::Closed);
    drop(server);
}
