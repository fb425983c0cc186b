//! Clearing, interrupting, forking, and becoming ready again.

use super::*;

/// CMAP-41, CMAP-42, P29
#[test]
fn ready_emits_one_event() {
    on_each_memory!(DEFAULT, |world| {
        world.events();
        world.ready();
        assert_eq!(world.pool.state(), PoolState::Ready);
        world.ready();
        assert_eq!(world.names(), ["PoolReady"]);
    });
}

/// CMAP-76, CMAP-77, P34
#[test]
fn a_clear_raises_the_generation_pauses_and_then_emits_its_event() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        world.fill::<2>();
        world.clear(ALL);
        assert_eq!((world.pool.state(), world.pool.generation().get()), (PoolState::Paused, 1));
        let cleared = PoolEvent::PoolCleared {
            pool: PoolId::new(7),
            service_id: None,
            interrupt_in_use_connections: false,
            cause: Some(Cause::Network),
        };
        assert_eq!(world.events(), [cleared]);
        assert_eq!(world.counts(), [0, 2, 0, 0], "what is stale is closed later");
    });
}

/// CMAP-78, CMAP-79, P29: connections that were created before the clear are stale although it
/// emits no event
#[test]
fn a_clear_of_a_paused_pool_raises_the_generation_without_an_event() {
    on_each_memory!(DEFAULT, |world| {
        world.events();
        world.clear(ALL);
        world.clear(INTERRUPT);
        assert_eq!(world.names(), [""; 0]);
        assert_eq!(world.pool.generation().get(), 2);
        assert_eq!(world.check_out(None), Err(CheckOutError::PoolCleared { cause: None }), "nobody was told a cause");
    });
}

/// CMAP-78, CMAP-79
#[test]
fn a_second_clear_makes_connections_stale_that_were_established_after_the_first() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        let lease = world.lease();
        world.clear(ALL);
        world.clear(ALL);
        world.ready();
        assert_eq!(world.pool.conn_generation(lease.conn()).map(Generation::get), Some(0));
        world.events();
        world.give_back(lease);
        assert_eq!(closed(&world.events()), [(1, "stale")]);
    });
}

/// CMAP-80, P39: also waiters whose connection is being established; that connection is closed as
/// stale when it is established
#[test]
fn a_clear_fails_every_waiter_at_once_in_the_order_of_the_queue() {
    on_each_memory!(PoolOptions { max_connecting: 2, wait_queue_timeout: Some(ms(1_000)), ..DEFAULT }, |world| {
        world.ready();
        let waiters = [(); 5].map(|()| world.queue());
        world.begin();
        world.prompt();
        world.events();
        world.clear(ALL);
        let error = CheckOutError::PoolCleared { cause: Some(Cause::Network) };
        let events = world.events();
        assert_eq!(failures(&events), [(error, "connectionError"); 5], "those with a connection coming too");
        assert_eq!(world.prompt(), waiters.map(PoolAction::Wake));
        for waiter in waiters {
            assert_eq!(world.failed(waiter), error);
        }
        assert_eq!(world.pool.poll_timeout(), None, "no deadline is left");
    });
}

/// CMAP-81
#[test]
fn the_event_contains_whether_connections_in_use_are_interrupted() {
    on_each_memory!(DEFAULT, |world| {
        for (clear, flag) in [(ALL, false), (INTERRUPT, true)] {
            world.ready();
            world.events();
            world.clear(clear);
            let events = world.events();
            assert!(
                matches!(events[..], [PoolEvent::PoolCleared { interrupt_in_use_connections, .. }] if interrupt_in_use_connections == flag)
            );
        }
    });
}

/// CMAP-82, CMAP-84, P40
#[test]
fn each_connection_in_use_is_interrupted_once_and_closed_at_its_check_in() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        let [one, two] = world.leases();
        world.actions();
        world.clear(INTERRUPT);
        assert_eq!(world.counts(), [0, 0, 2, 0], "the pool does not wait for them");
        let mut interrupted = world.actions();
        interrupted.sort_by_key(|action| match action {
            PoolAction::Interrupt(conn) => conn.connection_id().get(),
            other => panic!("{other:?}"),
        });
        assert_eq!(interrupted, [PoolAction::Interrupt(one.conn()), PoolAction::Interrupt(two.conn())]);
        world.clear(INTERRUPT);
        assert_eq!(world.actions(), [], "not twice");
        world.ready();
        world.events();
        world.give_back(one);
        world.check_in(two, Health::Broken(Cause::Interrupted)).expect("ours");
        assert_eq!(closed(&world.events()), [(1, "stale"), (2, "error")]);
    });
}

/// CMAP-82, P41
#[test]
fn a_check_in_before_the_interrupt_was_polled_revokes_it() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        let lease = world.lease();
        let conn = lease.conn();
        world.actions();
        world.clear(INTERRUPT);
        world.give_back(lease);
        assert_eq!(world.actions(), [PoolAction::Close(conn)]);
    });
}

/// CMAP-83, P40
#[test]
fn a_second_interrupt_reaches_connections_two_generations_old_and_none_that_is_newer() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        let old = world.lease();
        world.clear(ALL);
        world.actions();
        world.clear(INTERRUPT);
        assert_eq!(world.actions(), [PoolAction::Interrupt(old.conn())], "on a paused pool as well");
        world.ready();
        let new = world.lease();
        assert_eq!(world.actions(), []);
        world.events();
        world.give_back(new);
        assert_eq!(world.names(), ["CheckedIn"], "created after the clear: untouched");
    });
}

/// CMAP-85, P30: with the flag, establishments are interrupted at once
#[test]
fn an_interrupt_ends_establishments_in_the_order_cleared_closed_failed() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        let [one, two] = [(); 2].map(|()| world.queue());
        let begun = world.begin();
        world.events();
        world.clear(INTERRUPT);
        assert_eq!(world.names(), ["PoolCleared", "Closed", "Closed", "CheckOutFailed", "CheckOutFailed"]);
        assert_eq!(world.counts(), [0; 4]);
        let _ = (world.failed(one), world.failed(two));
        assert_eq!(world.actions(), [PoolAction::Interrupt(begun)], "the other was never begun");
        assert_eq!(world.established(begun), Err(Stale));
    });
}

/// CMAP-82
#[test]
fn a_grant_that_was_not_claimed_yet_is_interrupted_like_any_other() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        let waiter = world.queue();
        let conn = world.establish();
        world.clear(INTERRUPT);
        assert_eq!(world.prompt(), [PoolAction::Wake(waiter), PoolAction::Interrupt(conn)]);
        world.events();
        world.cancel(waiter);
        assert_eq!(world.names(), ["CheckedIn", "Closed"]);
    });
}

/// CMAP-75
#[test]
fn a_clear_by_service_is_refused_without_services() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        world.events();
        let clear = Clear::Service(ObjectId([1; 12]));
        assert_eq!(world.act(|pool, now, seen| pool.clear(now, clear, None, seen)), Err(WrongMode));
        assert_eq!((world.names(), world.pool.generation().get()), (Vec::new(), 0));
    });
}

/// CMAP-75: a verdict of the wrong mode clears nothing, and the failure is still reported
#[test]
fn a_verdict_of_the_other_mode_is_ignored() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        let waiter = world.queue();
        let conn = world.begin();
        let clear = Some(Clear::Service(ObjectId([1; 12])));
        world.establish_failed(conn, EstablishError { clear, ..REFUSED }).expect("pending");
        assert_eq!(world.pool.state(), PoolState::Ready);
        assert!(matches!(world.failed(waiter), CheckOutError::EstablishFailed { .. }));
    });
}

/// CMAP-87
#[test]
fn an_operation_error_clears_before_the_connection_is_checked_in() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        let lease = world.lease();
        world.events();
        world.clear(ALL);
        world.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
        assert_eq!(world.names(), ["PoolCleared", "CheckedIn", "Closed"]);
    });
}

/// CMAP-30, CMAP-100
#[test]
fn a_forked_child_abandons_every_connection_and_every_waiter() {
    on_each_memory!(PoolOptions { max_pool_size: 3, max_connecting: 1, ..DEFAULT }, |world| {
        world.ready();
        let [used, idle] = world.leases();
        let used_conn = used.conn();
        let waiter = world.queue();
        let pending = world.begin();
        world.give_back(idle);
        let granted = world.granted(waiter);
        world.give_back(granted);
        world.actions();
        world.events();
        world.act(|pool, now, seen| pool.reset_after_fork(now, seen));
        assert_eq!(world.names(), ["PoolCleared", "Closed", "Closed"]);
        assert_eq!((world.pool.state(), world.counts()), (PoolState::Paused, [0, 0, 1, 0]));
        let actions = world.actions();
        assert!(
            actions.contains(&PoolAction::Interrupt(used_conn)) && actions.contains(&PoolAction::Interrupt(pending))
        );
        assert_eq!(world.check_out(None), Err(CheckOutError::PoolCleared { cause: Some(Cause::Forked) }));
        world.ready();
        world.give_back(used);
        assert_eq!(world.counts(), [0; 4], "the parent's connection is not kept");
        let lease = world.lease();
        assert_eq!(world.pool.conn_generation(lease.conn()), Some(world.pool.generation()));
    });
}
