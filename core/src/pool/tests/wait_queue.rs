//! The wait queue: order, hand-over, cancellation.

use super::*;

const ONE: PoolOptions = PoolOptions { max_pool_size: 1, ..DEFAULT };

/// CMAP-23, CMAP-24, CMAP-66
#[test]
fn waiters_are_served_in_the_order_of_their_arrival() {
    on_each_memory!(ONE, |world| {
        world.ready();
        let mut lease = world.lease();
        let waiters = [(); 6].map(|()| world.queue());
        for waiter in waiters {
            world.give_back(lease);
            assert_eq!(world.prompt(), [PoolAction::Wake(waiter)]);
            lease = world.granted(waiter);
        }
    });
}

/// CMAP-66
#[test]
fn a_new_check_out_never_overtakes_an_older_waiter() {
    on_each_memory!(ONE, |world| {
        world.ready();
        let lease = world.lease();
        let older = world.queue();
        world.give_back(lease);
        let newer = world.queue();
        assert_eq!(world.claim(newer), Claim::Waiting);
        let lease = world.granted(older);
        world.give_back(lease);
        let _ = world.granted(newer);
    });
}

/// CMAP-64, CMAP-65, P14: first come, first served
#[test]
fn a_returned_connection_serves_the_oldest_although_another_is_being_established_for_it() {
    on_each_memory!(PoolOptions { max_connecting: 1, ..DEFAULT }, |world| {
        world.ready();
        let lease = world.lease();
        let returned = lease.conn();
        let [first, second] = [(); 2].map(|()| world.queue());
        let pending = world.begin();
        world.give_back(lease);
        assert_eq!(world.granted(first).conn(), returned);
        assert_eq!(world.claim(second), Claim::Waiting);
        world.established(pending).expect("pending");
        assert_eq!(world.granted(second).conn(), pending, "the other then serves the next");
    });
}

/// First come, first served: no waiter is left
#[test]
fn a_connection_without_a_waiter_becomes_available() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        let lease = world.lease();
        let waiter = world.queue();
        let pending = world.begin();
        world.give_back(lease);
        let _lease = world.granted(waiter);
        world.established(pending).expect("pending");
        assert_eq!(world.counts(), [0, 1, 1, 0]);
        assert_eq!(world.take().conn(), pending);
    });
}

/// First come, first served: the connection of the younger waiter is established first
#[test]
fn the_connection_that_is_ready_first_goes_to_the_oldest() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        let [first, second] = [(); 2].map(|()| world.queue());
        let [for_first, for_second] = [(); 2].map(|()| world.begin());
        world.established(for_second).expect("pending");
        assert_eq!(world.granted(first).conn(), for_second);
        assert_eq!(world.claim(second), Claim::Waiting);
        world.establish_failed(for_first, REFUSED).expect("pending");
        assert_eq!(
            world.failed(second),
            CheckOutError::EstablishFailed { cause: Cause::Network, overloaded: true },
            "the two were bound to each other"
        );
    });
}

/// P11
#[test]
fn a_cancelled_waiter_leaves_the_queue_at_once() {
    on_each_memory!(ONE, |world| {
        world.ready();
        let lease = world.lease();
        let [first, second] = [(); 2].map(|()| world.queue());
        world.events();
        world.cancel(first);
        let events = world.events();
        assert_eq!(failures(&events), [(CheckOutError::Cancelled, "connectionError")], "each start has its end");
        assert_eq!(world.counts(), [0, 0, 1, 1]);
        assert_eq!(world.claim(first), Claim::Stale);
        world.give_back(lease);
        let _ = world.granted(second);
    });
}

/// P12
#[test]
fn a_cancelled_waiters_connection_goes_to_the_next_unbound_waiter() {
    on_each_memory!(PoolOptions { max_connecting: 1, ..DEFAULT }, |world| {
        world.ready();
        let [first, second] = [(); 2].map(|()| world.queue());
        let conn = world.begin();
        world.cancel(first);
        assert_eq!(world.counts(), [1, 0, 0, 1], "counted once");
        world.established(conn).expect("pending");
        assert_eq!(world.granted(second).conn(), conn);
    });
}

/// P12
#[test]
fn a_cancelled_waiters_connection_becomes_available_without_other_waiters() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        let waiter = world.queue();
        let conn = world.begin();
        world.cancel(waiter);
        assert_eq!(world.counts(), [1, 0, 0, 0]);
        world.established(conn).expect("pending");
        assert_eq!(world.counts(), [0, 1, 0, 0]);
        assert_eq!(world.prompt(), [], "nobody is woken");
    });
}

/// P13
#[test]
fn an_unclaimed_grant_goes_to_the_next_waiter_in_the_same_step() {
    on_each_memory!(ONE, |world| {
        world.ready();
        let lease = world.lease();
        let [first, second] = [(); 2].map(|()| world.queue());
        world.give_back(lease);
        world.events();
        world.cancel(first);
        assert_eq!(world.names(), ["CheckedIn", "CheckedOut"]);
        assert_eq!(world.prompt(), [PoolAction::Wake(second)], "the first one's wake is revoked");
        let _ = world.granted(second);
    });
}

/// P13
#[test]
fn an_unclaimed_grant_becomes_available_without_other_waiters() {
    on_each_memory!(ONE, |world| {
        world.ready();
        let waiter = world.queue();
        world.establish();
        world.cancel(waiter);
        assert_eq!(world.counts(), [0, 1, 0, 0]);
        assert_eq!(world.prompt(), []);
    });
}

/// P13
#[test]
fn an_unclaimed_failure_is_dropped_by_a_cancel() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        let waiter = world.queue();
        let conn = world.begin();
        world.establish_failed(conn, REFUSED).expect("pending");
        world.events();
        world.cancel(waiter);
        assert_eq!(world.names(), [""; 0], "its end was told");
        assert_eq!(world.claim(waiter), Claim::Stale);
        assert_eq!(world.prompt(), []);
    });
}

/// P16, CMAP-65
#[test]
fn waiters_never_block_a_check_in() {
    on_each_memory!(PoolOptions { max_pool_size: 3, max_connecting: 1, ..DEFAULT }, |world| {
        world.ready();
        let leases: [Lease; 2] = world.leases();
        let waiters = [(); 4].map(|()| world.queue());
        for (lease, waiter) in leases.into_iter().zip(waiters) {
            world.give_back(lease);
            let _ = world.granted(waiter);
        }
        assert_eq!(world.counts(), [1, 0, 2, 2]);
    });
}

/// CMAP-71
#[test]
fn a_failed_establishment_frees_its_slot_for_the_next_waiter() {
    on_each_memory!(PoolOptions { max_pool_size: 1, max_connecting: 1, ..DEFAULT }, |world| {
        world.ready();
        let [first, second] = [(); 2].map(|()| world.queue());
        let conn = world.begin();
        world.events();
        world.establish_failed(conn, REFUSED).expect("pending");
        assert_eq!(world.names(), ["Closed", "CheckOutFailed", "Created"]);
        let _ = world.failed(first);
        assert_eq!(world.counts(), [1, 0, 0, 1]);
        world.establish();
        let _ = world.granted(second);
    });
}

/// CMAP-66, CMAP-71
#[test]
fn a_broken_connection_makes_room_for_one_for_the_next_waiter() {
    on_each_memory!(ONE, |world| {
        world.ready();
        let lease = world.lease();
        let waiter = world.queue();
        world.events();
        world.check_in(lease, Health::Broken(Cause::NetworkTimeout)).expect("ours");
        assert_eq!(world.names(), ["CheckedIn", "Closed", "Created"]);
        world.actions();
        let conn = ConnId(world.pool.conns.key(world.pool.conns.front(conn::ESTABLISHING).expect("one")));
        world.established(conn).expect("pending");
        let _ = world.granted(waiter);
    });
}

/// P10
#[test]
fn no_waiter_waits_while_it_could_be_served() {
    // `assert_invariants`, which every step ends with, checks the rule. This test covers every kind
    // of step.
    on_each_memory!(
        PoolOptions { max_pool_size: 3, max_connecting: 2, wait_queue_timeout: Some(ms(10)), ..DEFAULT },
        |world| {
            world.ready();
            let waiters = [(); 8].map(|()| world.queue());
            let [one, two] = [(); 2].map(|()| world.begin());
            world.established(one).expect("pending");
            world.establish_failed(two, REFUSED).expect("pending");
            world.cancel(waiters[3]);
            world.tick(10);
            world.cancel(waiters[0]);
            while let Some(conn) = world.act(|pool, _, _| pool.poll_establish()) {
                world.established(conn).expect("pending");
            }
            assert_eq!(world.counts()[3], 0, "all were served, failed or cancelled");
        }
    );
}

/// CMAP-26, CMAP-35: no establishment is unbound while a check-out waits
#[test]
fn a_new_waiter_is_bound_to_an_unbound_pending_connection() {
    on_each_memory!(PoolOptions { wait_queue_timeout: Some(ms(10)), ..DEFAULT }, |world| {
        world.ready();
        let gone = world.queue();
        let conn = world.begin();
        world.cancel(gone);
        let newcomer = world.queue();
        assert_eq!(world.counts(), [1, 0, 0, 1], "no second one is created");
        assert_eq!(world.pool.poll_timeout(), None, "it has a connection coming");
        world.tick(1_000);
        world.established(conn).expect("pending");
        assert_eq!(world.granted(newcomer).conn(), conn);
    });
}
