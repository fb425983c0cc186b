//! Check-in, and the reasons why a connection is perished.

use super::*;

/// CMAP-73
#[test]
fn a_healthy_connection_becomes_available_again() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        let lease = world.lease();
        world.events();
        world.give_back(lease);
        assert_eq!(world.names(), ["CheckedIn"]);
        assert_eq!(world.counts(), [0, 1, 0, 0]);
        assert_eq!(world.prompt(), []);
    });
}

/// CMAP-20, CMAP-73, P31
#[test]
fn a_broken_connection_is_closed_for_every_cause() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        for cause in [Cause::Network, Cause::NetworkTimeout, Cause::Protocol, Cause::Cancelled] {
            let lease = world.lease();
            let conn = lease.conn();
            world.events();
            world.check_in(lease, Health::Broken(cause)).expect("ours");
            let events = world.events();
            let pool = PoolId::new(7);
            let closed = PoolEvent::ConnectionClosed { pool, conn, reason: ClosedReason::Error, cause: Some(cause) };
            assert_eq!(events, [PoolEvent::ConnectionCheckedIn { pool, conn }, closed]);
            assert_eq!(world.actions(), [PoolAction::Close(conn)]);
        }
    });
}

/// CMAP-18, CMAP-76, P35, P31
#[test]
fn a_connection_of_an_older_generation_is_closed_as_stale() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        let lease = world.lease();
        world.clear(ALL);
        world.ready();
        world.events();
        world.give_back(lease);
        assert_eq!(closed(&world.events()), [(1, "stale")]);
        assert_eq!(world.counts(), [0; 4]);
    });
}

/// CMAP-14
#[test]
fn a_closed_connection_is_never_used_again() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        let lease = world.lease();
        let conn = lease.conn();
        world.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
        let waiter = world.queue();
        assert_eq!(world.claim(waiter), Claim::Waiting);
        assert_eq!(world.established(conn), Err(Stale));
        world.actions();
        assert_eq!(world.pool.conn_generation(conn), None);
        assert_eq!(world.established(conn), Err(Stale));
    });
}

/// CMAP-47
#[test]
fn a_closed_connection_leaves_the_counts_before_its_event_and_its_socket() {
    struct Counts(Vec<&'static str>);
    impl Observer<PoolEvent> for Counts {
        fn on_event(&mut self, _: Instant, event: &PoolEvent) {
            self.0.push(event.name());
        }
    }
    on_each_memory!(PoolOptions { max_pool_size: 1, ..DEFAULT }, |world| {
        world.ready();
        let lease = world.lease();
        let conn = lease.conn();
        let mut seen = Counts(Vec::new());
        let now = world.now;
        world.act(|pool, _, _| pool.check_in(now, lease, Health::Broken(Cause::Network), &mut seen)).expect("ours");
        assert_eq!(seen.0, ["ConnectionCheckedIn", "ConnectionClosed"]);
        assert_eq!(world.pool.counts().total(), 0, "while its socket is still open");
        let _ = world.queue();
        assert_eq!(world.counts(), [1, 0, 0, 1], "so another may be created");
        assert_eq!(world.act(|pool, now, _| pool.poll_action(now)), Some(PoolAction::Close(conn)), "then the socket");
    });
}

/// CMAP-48
#[test]
fn closing_a_socket_is_owed_and_waits_for_nothing() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        let leases: [Lease; 3] = world.leases();
        for lease in leases {
            world.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
        }
        let lease = world.lease();
        world.give_back(lease);
        assert_eq!(world.prompt().len(), 3);
    });
}

/// CMAP-13, CMAP-72, P7
#[test]
fn a_lease_of_another_pool_is_handed_back_and_nothing_changes() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        let own = world.lease();
        let mut other = Pool::<OnHeap>::new(world.now, PoolId::new(8), PoolConfig::DEFAULT, &mut ());
        world.events();
        let before = world.counts();
        let conn = own.conn();
        let ForeignLease(own) = other.check_in(world.now, own, Health::Healthy, &mut ()).expect_err("foreign");
        assert_eq!(own.conn(), conn);
        other.assert_invariants();
        let foreign = Lease { conn: own.conn(), pool: PoolId::new(8) };
        let ForeignLease(back) = world.check_in(foreign, Health::Broken(Cause::Network)).expect_err("foreign");
        assert_eq!(back.pool(), PoolId::new(8));
        assert_eq!(world.names(), [""; 0]);
        assert_eq!(world.counts(), before);
        world.give_back(own);
    });
}

/// P7: the type system refuses a second check-in; the pool refuses a forged one
#[test]
fn a_lease_of_a_connection_that_is_not_in_use_is_refused() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        let lease = world.lease();
        let conn = lease.conn();
        world.give_back(lease);
        world.events();
        let forged = || Lease { conn, pool: PoolId::new(7) };
        assert!(world.check_in(forged(), Health::Healthy).is_err(), "it is available");
        world.clear(ALL);
        world.tick(0);
        assert!(world.check_in(forged(), Health::Healthy).is_err(), "it is closed");
        world.actions();
        assert!(world.check_in(forged(), Health::Healthy).is_err(), "it is gone");
        assert_eq!(world.names(), ["PoolCleared", "Closed"]);
    });
}

/// CMAP-21, CMAP-50
#[test]
fn each_state_is_counted_correctly() {
    on_each_memory!(PoolOptions { max_connecting: 8, ..DEFAULT }, |world| {
        world.ready();
        let [_used, back, broken] = world.leases::<3>();
        world.give_back(back);
        world.check_in(broken, Health::Broken(Cause::Network)).expect("ours");
        let _lease = world.take();
        let _waiter = world.queue();
        assert_eq!(world.counts(), [1, 0, 2, 1], "what is closed counts nowhere");
        assert_eq!(world.pool.counts().total(), 3);
    });
}

/// CMAP-04, CMAP-19, P26
#[test]
fn a_connection_perishes_only_after_max_idle_time() {
    on_each_memory!(PoolOptions { max_idle_time: Some(ms(10)), background: false, ..DEFAULT }, |world| {
        world.ready();
        let lease = world.lease();
        world.at(1_000);
        world.give_back(lease);
        world.at(1_010);
        let lease = world.take();
        world.at(2_000);
        world.give_back(lease);
        world.now = at(2_010).saturating_add(Duration::from_nanos(1));
        world.events();
        let _ = world.queue();
        assert_eq!(closed(&world.events()), [(1, "idle")]);
    });
}

/// CMAP-04
#[test]
fn without_max_idle_time_a_connection_never_perishes_by_age() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        world.fill::<1>();
        world.tick(1_000_000_000_000);
        assert_eq!(world.pool.poll_timeout(), None);
        assert_eq!(world.take().conn().connection_id().get(), 1);
    });
}
