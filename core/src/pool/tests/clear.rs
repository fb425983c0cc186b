//! Clearing, interrupting, forking, and becoming ready again.

use super::*;

#[test]
#[doc(alias("CMAP-41", "CMAP-42", "P29"))]
fn ready_emits_one_event() {
    on_each_memory!(DEFAULT, |rig| {
        rig.events();
        rig.ready();
        assert_eq!(rig.pool.state(), PoolState::Ready);
        rig.ready();
        assert_eq!(rig.names(), ["PoolReady"]);
    });
}

#[test]
#[doc(alias("CMAP-76", "CMAP-77", "P34"))]
fn a_clear_raises_the_generation_pauses_and_then_emits_its_event() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        rig.fill::<2>();
        rig.clear(ALL);
        assert_eq!((rig.pool.state(), rig.pool.generation().get()), (PoolState::Paused, 1));
        let cleared = PoolEvent::PoolCleared {
            pool: PoolId::new(7),
            service_id: None,
            interrupt_in_use_connections: false,
            cause: Some(Cause::Network),
        };
        assert_eq!(rig.events(), [cleared]);
        assert_eq!(rig.counts(), [0, 2, 0, 0], "what is stale is closed later");
    });
}

/// Connections that were created before the clear are stale although it
/// emits no event
#[test]
#[doc(alias("CMAP-78", "CMAP-79", "P29"))]
fn a_clear_of_a_paused_pool_raises_the_generation_without_an_event() {
    on_each_memory!(DEFAULT, |rig| {
        rig.events();
        rig.clear(ALL);
        rig.clear(INTERRUPT);
        assert_eq!(rig.names(), [""; 0]);
        assert_eq!(rig.pool.generation().get(), 2);
        assert_eq!(rig.check_out(None), Err(CheckOutError::PoolCleared { cause: None }), "nobody was told a cause");
    });
}

#[test]
#[doc(alias("CMAP-78", "CMAP-79"))]
fn a_second_clear_makes_connections_stale_that_were_established_after_the_first() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let lease = rig.lease();
        rig.clear(ALL);
        rig.clear(ALL);
        rig.ready();
        assert_eq!(rig.pool.conn_generation(lease.conn()).map(Generation::get), Some(0));
        rig.events();
        rig.give_back(lease);
        assert_eq!(closed(&rig.events()), [(1, "stale")]);
    });
}

/// Also waiters whose connection is being established; that connection is closed as
/// stale when it is established
#[test]
#[doc(alias("CMAP-80", "P39"))]
fn a_clear_fails_every_waiter_at_once_in_the_order_of_the_queue() {
    on_each_memory!(PoolOptions { max_connecting: 2, wait_queue_timeout: Some(ms(1_000)), ..DEFAULT }, |rig| {
        rig.ready();
        let waiters = [(); 5].map(|()| rig.queue());
        rig.begin();
        rig.prompt();
        rig.events();
        rig.clear(ALL);
        let error = CheckOutError::PoolCleared { cause: Some(Cause::Network) };
        let events = rig.events();
        assert_eq!(failures(&events), [(error, "connectionError"); 5], "those with a connection coming too");
        assert_eq!(rig.prompt(), waiters.map(PoolAction::Wake));
        for waiter in waiters {
            assert_eq!(rig.failed(waiter), error);
        }
        assert_eq!(rig.pool.poll_timeout(), None, "no deadline is left");
    });
}

#[test]
#[doc(alias = "CMAP-81")]
fn the_event_contains_whether_connections_in_use_are_interrupted() {
    on_each_memory!(DEFAULT, |rig| {
        for (clear, flag) in [(ALL, false), (INTERRUPT, true)] {
            rig.ready();
            rig.events();
            rig.clear(clear);
            let events = rig.events();
            assert!(
                matches!(events[..], [PoolEvent::PoolCleared { interrupt_in_use_connections, .. }] if interrupt_in_use_connections == flag)
            );
        }
    });
}

#[test]
#[doc(alias("CMAP-82", "CMAP-84", "P40"))]
fn each_connection_in_use_is_interrupted_once_and_closed_at_its_check_in() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let [one, two] = rig.leases();
        rig.actions();
        rig.clear(INTERRUPT);
        assert_eq!(rig.counts(), [0, 0, 2, 0], "the pool does not wait for them");
        let mut interrupted = rig.actions();
        interrupted.sort_by_key(|action| match action {
            PoolAction::Interrupt(conn) => conn.connection_id().get(),
            other => panic!("{other:?}"),
        });
        assert_eq!(interrupted, [PoolAction::Interrupt(one.conn()), PoolAction::Interrupt(two.conn())]);
        rig.clear(INTERRUPT);
        assert_eq!(rig.actions(), [], "not twice");
        rig.ready();
        rig.events();
        rig.give_back(one);
        rig.check_in(two, Health::Broken(Cause::Interrupted)).expect("ours");
        assert_eq!(closed(&rig.events()), [(1, "stale"), (2, "error")]);
    });
}

#[test]
#[doc(alias("CMAP-82", "P41"))]
fn a_check_in_before_the_interrupt_was_polled_revokes_it() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let lease = rig.lease();
        let conn = lease.conn();
        rig.actions();
        rig.clear(INTERRUPT);
        rig.give_back(lease);
        assert_eq!(rig.actions(), [PoolAction::Close(conn)]);
    });
}

#[test]
#[doc(alias("CMAP-83", "P40"))]
fn a_second_interrupt_reaches_connections_two_generations_old_and_none_that_is_newer() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let old = rig.lease();
        rig.clear(ALL);
        rig.actions();
        rig.clear(INTERRUPT);
        assert_eq!(rig.actions(), [PoolAction::Interrupt(old.conn())], "on a paused pool as well");
        rig.ready();
        let new = rig.lease();
        assert_eq!(rig.actions(), []);
        rig.events();
        rig.give_back(new);
        assert_eq!(rig.names(), ["CheckedIn"], "created after the clear: untouched");
    });
}

/// With the flag, establishments are interrupted at once
#[test]
#[doc(alias("CMAP-85", "P30"))]
fn an_interrupt_ends_establishments_in_the_order_cleared_closed_failed() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let [one, two] = [(); 2].map(|()| rig.queue());
        let begun = rig.begin();
        rig.events();
        rig.clear(INTERRUPT);
        assert_eq!(rig.names(), ["PoolCleared", "Closed", "Closed", "CheckOutFailed", "CheckOutFailed"]);
        assert_eq!(rig.counts(), [0; 4]);
        let _ = (rig.failed(one), rig.failed(two));
        assert_eq!(rig.actions(), [PoolAction::Interrupt(begun)], "the other was never begun");
        assert_eq!(rig.established(begun), Err(Stale));
    });
}

#[test]
#[doc(alias = "CMAP-82")]
fn a_grant_that_was_not_claimed_yet_is_interrupted_like_any_other() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let waiter = rig.queue();
        let conn = rig.establish();
        rig.clear(INTERRUPT);
        assert_eq!(rig.prompt(), [PoolAction::Wake(waiter), PoolAction::Interrupt(conn)]);
        rig.events();
        rig.cancel(waiter);
        assert_eq!(rig.names(), ["CheckedIn", "Closed"]);
    });
}

#[test]
#[doc(alias = "CMAP-75")]
fn a_clear_by_service_is_refused_without_services() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        rig.events();
        let clear = Clear::Service(ObjectId([1; 12]));
        assert_eq!(rig.act(|pool, now, seen| pool.clear(now, clear, None, seen)), Err(WrongMode));
        assert_eq!((rig.names(), rig.pool.generation().get()), (Vec::new(), 0));
    });
}

/// A verdict of the wrong mode clears nothing, and the failure is still reported
#[test]
#[doc(alias = "CMAP-75")]
fn a_verdict_of_the_other_mode_is_ignored() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let waiter = rig.queue();
        let conn = rig.begin();
        let clear = Some(Clear::Service(ObjectId([1; 12])));
        rig.establish_failed(conn, EstablishError { clear, ..REFUSED }).expect("pending");
        assert_eq!(rig.pool.state(), PoolState::Ready);
        assert!(matches!(rig.failed(waiter), CheckOutError::EstablishFailed { .. }));
    });
}

#[test]
#[doc(alias = "CMAP-87")]
fn an_operation_error_clears_before_the_connection_is_checked_in() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let lease = rig.lease();
        rig.events();
        rig.clear(ALL);
        rig.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
        assert_eq!(rig.names(), ["PoolCleared", "CheckedIn", "Closed"]);
    });
}

#[test]
#[doc(alias("CMAP-30", "CMAP-100"))]
fn a_forked_child_abandons_every_connection_and_every_waiter() {
    on_each_memory!(PoolOptions { max_pool_size: 3, max_connecting: 1, ..DEFAULT }, |rig| {
        rig.ready();
        let [used, idle] = rig.leases();
        let used_conn = used.conn();
        let waiter = rig.queue();
        let pending = rig.begin();
        rig.give_back(idle);
        let granted = rig.granted(waiter);
        rig.give_back(granted);
        rig.actions();
        rig.events();
        rig.act(|pool, now, seen| pool.reset_after_fork(now, seen));
        assert_eq!(rig.names(), ["PoolCleared", "Closed", "Closed"]);
        assert_eq!((rig.pool.state(), rig.counts()), (PoolState::Paused, [0, 0, 1, 0]));
        let actions = rig.actions();
        assert!(
            actions.contains(&PoolAction::Interrupt(used_conn)) && actions.contains(&PoolAction::Interrupt(pending))
        );
        assert_eq!(rig.check_out(None), Err(CheckOutError::PoolCleared { cause: Some(Cause::Forked) }));
        rig.ready();
        rig.give_back(used);
        assert_eq!(rig.counts(), [0; 4], "the parent's connection is not kept");
        let lease = rig.lease();
        assert_eq!(rig.pool.conn_generation(lease.conn()), Some(rig.pool.generation()));
    });
}
