//! The wait queue: order, hand-over, cancellation.

use super::*;

const ONE: PoolOptions = PoolOptions { max_pool_size: 1, ..DEFAULT };

#[test]
#[doc(alias("CMAP-23", "CMAP-24", "CMAP-66"))]
fn waiters_are_served_in_the_order_of_their_arrival() {
    on_each_memory!(ONE, |rig| {
        rig.ready();
        let mut lease = rig.lease();
        let waiters = [(); 6].map(|()| rig.queue());
        for waiter in waiters {
            rig.give_back(lease);
            assert_eq!(rig.prompt(), [PoolAction::Wake(waiter)]);
            lease = rig.granted(waiter);
        }
    });
}

#[test]
#[doc(alias = "CMAP-66")]
fn a_new_check_out_never_overtakes_an_older_waiter() {
    on_each_memory!(ONE, |rig| {
        rig.ready();
        let lease = rig.lease();
        let older = rig.queue();
        rig.give_back(lease);
        let newer = rig.queue();
        assert_eq!(rig.claim(newer), Claim::Waiting);
        let lease = rig.granted(older);
        rig.give_back(lease);
        let _ = rig.granted(newer);
    });
}

/// First come, first served
#[test]
#[doc(alias("CMAP-64", "CMAP-65", "P14"))]
fn a_returned_connection_serves_the_oldest_although_another_is_being_established_for_it() {
    on_each_memory!(PoolOptions { max_connecting: 1, ..DEFAULT }, |rig| {
        rig.ready();
        let lease = rig.lease();
        let returned = lease.conn();
        let [first, second] = [(); 2].map(|()| rig.queue());
        let pending = rig.begin();
        rig.give_back(lease);
        assert_eq!(rig.granted(first).conn(), returned);
        assert_eq!(rig.claim(second), Claim::Waiting);
        rig.established(pending).expect("pending");
        assert_eq!(rig.granted(second).conn(), pending, "the other then serves the next");
    });
}

/// First come, first served: no waiter is left
#[test]
fn a_connection_without_a_waiter_becomes_available() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let lease = rig.lease();
        let waiter = rig.queue();
        let pending = rig.begin();
        rig.give_back(lease);
        let _lease = rig.granted(waiter);
        rig.established(pending).expect("pending");
        assert_eq!(rig.counts(), [0, 1, 1, 0]);
        assert_eq!(rig.take().conn(), pending);
    });
}

/// First come, first served: the connection of the younger waiter is established first
#[test]
fn the_connection_that_is_ready_first_goes_to_the_oldest() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let [first, second] = [(); 2].map(|()| rig.queue());
        let [for_first, for_second] = [(); 2].map(|()| rig.begin());
        rig.established(for_second).expect("pending");
        assert_eq!(rig.granted(first).conn(), for_second);
        assert_eq!(rig.claim(second), Claim::Waiting);
        rig.establish_failed(for_first, REFUSED).expect("pending");
        assert_eq!(
            rig.failed(second),
            CheckOutError::EstablishFailed { cause: Cause::Network, overloaded: true },
            "the two were bound to each other"
        );
    });
}

#[test]
#[doc(alias = "P11")]
fn a_cancelled_waiter_leaves_the_queue_at_once() {
    on_each_memory!(ONE, |rig| {
        rig.ready();
        let lease = rig.lease();
        let [first, second] = [(); 2].map(|()| rig.queue());
        rig.events();
        rig.cancel(first);
        let events = rig.events();
        assert_eq!(failures(&events), [(CheckOutError::Cancelled, "connectionError")], "each start has its end");
        assert_eq!(rig.counts(), [0, 0, 1, 1]);
        assert_eq!(rig.claim(first), Claim::Stale);
        rig.give_back(lease);
        let _ = rig.granted(second);
    });
}

#[test]
#[doc(alias = "P12")]
fn a_cancelled_waiters_connection_goes_to_the_next_unbound_waiter() {
    on_each_memory!(PoolOptions { max_connecting: 1, ..DEFAULT }, |rig| {
        rig.ready();
        let [first, second] = [(); 2].map(|()| rig.queue());
        let conn = rig.begin();
        rig.cancel(first);
        assert_eq!(rig.counts(), [1, 0, 0, 1], "counted once");
        rig.established(conn).expect("pending");
        assert_eq!(rig.granted(second).conn(), conn);
    });
}

#[test]
#[doc(alias = "P12")]
fn a_cancelled_waiters_connection_becomes_available_without_other_waiters() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let waiter = rig.queue();
        let conn = rig.begin();
        rig.cancel(waiter);
        assert_eq!(rig.counts(), [1, 0, 0, 0]);
        rig.established(conn).expect("pending");
        assert_eq!(rig.counts(), [0, 1, 0, 0]);
        assert_eq!(rig.prompt(), [], "nobody is woken");
    });
}

#[test]
#[doc(alias = "P13")]
fn an_unclaimed_grant_goes_to_the_next_waiter_in_the_same_step() {
    on_each_memory!(ONE, |rig| {
        rig.ready();
        let lease = rig.lease();
        let [first, second] = [(); 2].map(|()| rig.queue());
        rig.give_back(lease);
        rig.events();
        rig.cancel(first);
        assert_eq!(rig.names(), ["CheckedIn", "CheckedOut"]);
        assert_eq!(rig.prompt(), [PoolAction::Wake(second)], "the first one's wake is revoked");
        let _ = rig.granted(second);
    });
}

#[test]
#[doc(alias = "P13")]
fn an_unclaimed_grant_becomes_available_without_other_waiters() {
    on_each_memory!(ONE, |rig| {
        rig.ready();
        let waiter = rig.queue();
        rig.establish();
        rig.cancel(waiter);
        assert_eq!(rig.counts(), [0, 1, 0, 0]);
        assert_eq!(rig.prompt(), []);
    });
}

#[test]
#[doc(alias = "P13")]
fn an_unclaimed_failure_is_dropped_by_a_cancel() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let waiter = rig.queue();
        let conn = rig.begin();
        rig.establish_failed(conn, REFUSED).expect("pending");
        rig.events();
        rig.cancel(waiter);
        assert_eq!(rig.names(), [""; 0], "its end was told");
        assert_eq!(rig.claim(waiter), Claim::Stale);
        assert_eq!(rig.prompt(), []);
    });
}

#[test]
#[doc(alias("CMAP-65", "P16"))]
fn waiters_never_block_a_check_in() {
    on_each_memory!(PoolOptions { max_pool_size: 3, max_connecting: 1, ..DEFAULT }, |rig| {
        rig.ready();
        let leases: [Lease; 2] = rig.leases();
        let waiters = [(); 4].map(|()| rig.queue());
        for (lease, waiter) in leases.into_iter().zip(waiters) {
            rig.give_back(lease);
            let _ = rig.granted(waiter);
        }
        assert_eq!(rig.counts(), [1, 0, 2, 2]);
    });
}

#[test]
#[doc(alias = "CMAP-71")]
fn a_failed_establishment_frees_its_slot_for_the_next_waiter() {
    on_each_memory!(PoolOptions { max_pool_size: 1, max_connecting: 1, ..DEFAULT }, |rig| {
        rig.ready();
        let [first, second] = [(); 2].map(|()| rig.queue());
        let conn = rig.begin();
        rig.events();
        rig.establish_failed(conn, REFUSED).expect("pending");
        assert_eq!(rig.names(), ["Closed", "CheckOutFailed", "Created"]);
        let _ = rig.failed(first);
        assert_eq!(rig.counts(), [1, 0, 0, 1]);
        rig.establish();
        let _ = rig.granted(second);
    });
}

#[test]
#[doc(alias("CMAP-66", "CMAP-71"))]
fn a_broken_connection_makes_room_for_one_for_the_next_waiter() {
    on_each_memory!(ONE, |rig| {
        rig.ready();
        let lease = rig.lease();
        let waiter = rig.queue();
        rig.events();
        rig.check_in(lease, Health::Broken(Cause::NetworkTimeout)).expect("ours");
        assert_eq!(rig.names(), ["CheckedIn", "Closed", "Created"]);
        rig.actions();
        let conn = ConnId(rig.pool.conns.key(rig.pool.conns.front(conn::ESTABLISHING).expect("one")));
        rig.established(conn).expect("pending");
        let _ = rig.granted(waiter);
    });
}

#[test]
#[doc(alias = "P10")]
fn no_waiter_waits_while_it_could_be_served() {
    // `assert_invariants`, which every step ends with, checks the rule. This test covers every kind
    // of step.
    on_each_memory!(
        PoolOptions { max_pool_size: 3, max_connecting: 2, wait_queue_timeout: Some(ms(10)), ..DEFAULT },
        |rig| {
            rig.ready();
            let waiters = [(); 8].map(|()| rig.queue());
            let [one, two] = [(); 2].map(|()| rig.begin());
            rig.established(one).expect("pending");
            rig.establish_failed(two, REFUSED).expect("pending");
            rig.cancel(waiters[3]);
            rig.tick(10);
            rig.cancel(waiters[0]);
            while let Some(conn) = rig.act(|pool, _, _| pool.poll_establish()) {
                rig.established(conn).expect("pending");
            }
            assert_eq!(rig.counts()[3], 0, "all were served, failed or cancelled");
        }
    );
}

/// No establishment is unbound while a check-out waits
#[test]
#[doc(alias("CMAP-26", "CMAP-35"))]
fn a_new_waiter_is_bound_to_an_unbound_pending_connection() {
    on_each_memory!(PoolOptions { wait_queue_timeout: Some(ms(10)), ..DEFAULT }, |rig| {
        rig.ready();
        let gone = rig.queue();
        let conn = rig.begin();
        rig.cancel(gone);
        let newcomer = rig.queue();
        assert_eq!(rig.counts(), [1, 0, 0, 1], "no second one is created");
        assert_eq!(rig.pool.poll_timeout(), None, "it has a connection coming");
        rig.tick(1_000);
        rig.established(conn).expect("pending");
        assert_eq!(rig.granted(newcomer).conn(), conn);
    });
}
