//! Check-in, and the reasons why a connection is perished.

use super::*;

#[test]
#[doc(alias = "CMAP-73")]
fn a_healthy_connection_becomes_available_again() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let lease = rig.lease();
        rig.events();
        rig.give_back(lease);
        assert_eq!(rig.names(), ["CheckedIn"]);
        assert_eq!(rig.counts(), [0, 1, 0, 0]);
        assert_eq!(rig.prompt(), []);
    });
}

#[test]
#[doc(alias("CMAP-20", "CMAP-73", "P31"))]
fn a_broken_connection_is_closed_for_every_cause() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        for cause in [Cause::Network, Cause::NetworkTimeout, Cause::Protocol, Cause::Cancelled] {
            let lease = rig.lease();
            let conn = lease.conn();
            rig.events();
            rig.check_in(lease, Health::Broken(cause)).expect("ours");
            let events = rig.events();
            let pool = PoolId::new(7);
            let closed = PoolEvent::ConnectionClosed { pool, conn, reason: ClosedReason::Error, cause: Some(cause) };
            assert_eq!(events, [PoolEvent::ConnectionCheckedIn { pool, conn }, closed]);
            assert_eq!(rig.actions(), [PoolAction::Close(conn)]);
        }
    });
}

#[test]
#[doc(alias("CMAP-18", "CMAP-76", "P31", "P35"))]
fn a_connection_of_an_older_generation_is_closed_as_stale() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let lease = rig.lease();
        rig.clear(ALL);
        rig.ready();
        rig.events();
        rig.give_back(lease);
        assert_eq!(closed(&rig.events()), [(1, "stale")]);
        assert_eq!(rig.counts(), [0; 4]);
    });
}

#[test]
#[doc(alias = "CMAP-14")]
fn a_closed_connection_is_never_used_again() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let lease = rig.lease();
        let conn = lease.conn();
        rig.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
        let waiter = rig.queue();
        assert_eq!(rig.claim(waiter), Claim::Waiting);
        assert_eq!(rig.established(conn), Err(Stale));
        rig.actions();
        assert_eq!(rig.pool.conn_generation(conn), None);
        assert_eq!(rig.established(conn), Err(Stale));
    });
}

#[test]
#[doc(alias = "CMAP-47")]
fn a_closed_connection_leaves_the_counts_before_its_event_and_its_socket() {
    struct Counts(Vec<&'static str>);
    impl Observer<PoolEvent> for Counts {
        fn on_event(&mut self, _: Instant, event: &PoolEvent) {
            self.0.push(event.name());
        }
    }
    on_each_memory!(PoolOptions { max_pool_size: 1, ..DEFAULT }, |rig| {
        rig.ready();
        let lease = rig.lease();
        let conn = lease.conn();
        let mut seen = Counts(Vec::new());
        let now = rig.now;
        rig.act(|pool, _, _| pool.check_in(now, lease, Health::Broken(Cause::Network), &mut seen)).expect("ours");
        assert_eq!(seen.0, ["ConnectionCheckedIn", "ConnectionClosed"]);
        assert_eq!(rig.pool.counts().total(), 0, "while its socket is still open");
        let _ = rig.queue();
        assert_eq!(rig.counts(), [1, 0, 0, 1], "so another may be created");
        assert_eq!(rig.act(|pool, now, _| pool.poll_action(now)), Some(PoolAction::Close(conn)), "then the socket");
    });
}

#[test]
#[doc(alias = "CMAP-48")]
fn closing_a_socket_is_owed_and_waits_for_nothing() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let leases: [Lease; 3] = rig.leases();
        for lease in leases {
            rig.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
        }
        let lease = rig.lease();
        rig.give_back(lease);
        assert_eq!(rig.prompt().len(), 3);
    });
}

#[test]
#[doc(alias("CMAP-13", "CMAP-72", "P7"))]
fn a_lease_of_another_pool_is_handed_back_and_nothing_changes() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let own = rig.lease();
        let mut other = Pool::<OnHeap>::new(rig.now, PoolId::new(8), PoolConfig::DEFAULT, &mut ());
        rig.events();
        let before = rig.counts();
        let conn = own.conn();
        let ForeignLease(own) = other.check_in(rig.now, own, Health::Healthy, &mut ()).expect_err("foreign");
        assert_eq!(own.conn(), conn);
        other.assert_invariants();
        let foreign = Lease { conn: own.conn(), pool: PoolId::new(8) };
        let ForeignLease(back) = rig.check_in(foreign, Health::Broken(Cause::Network)).expect_err("foreign");
        assert_eq!(back.pool(), PoolId::new(8));
        assert_eq!(rig.names(), [""; 0]);
        assert_eq!(rig.counts(), before);
        rig.give_back(own);
    });
}

/// The type system refuses a second check-in; the pool refuses a forged one
#[test]
#[doc(alias = "P7")]
fn a_lease_of_a_connection_that_is_not_in_use_is_refused() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let lease = rig.lease();
        let conn = lease.conn();
        rig.give_back(lease);
        rig.events();
        let forged = || Lease { conn, pool: PoolId::new(7) };
        assert!(rig.check_in(forged(), Health::Healthy).is_err(), "it is available");
        rig.clear(ALL);
        rig.tick(0);
        assert!(rig.check_in(forged(), Health::Healthy).is_err(), "it is closed");
        rig.actions();
        assert!(rig.check_in(forged(), Health::Healthy).is_err(), "it is gone");
        assert_eq!(rig.names(), ["PoolCleared", "Closed"]);
    });
}

#[test]
#[doc(alias("CMAP-21", "CMAP-50"))]
fn each_state_is_counted_correctly() {
    on_each_memory!(PoolOptions { max_connecting: 8, ..DEFAULT }, |rig| {
        rig.ready();
        let [_used, back, broken] = rig.leases::<3>();
        rig.give_back(back);
        rig.check_in(broken, Health::Broken(Cause::Network)).expect("ours");
        let _lease = rig.take();
        let _waiter = rig.queue();
        assert_eq!(rig.counts(), [1, 0, 2, 1], "what is closed counts nowhere");
        assert_eq!(rig.pool.counts().total(), 3);
    });
}

#[test]
#[doc(alias("CMAP-04", "CMAP-19", "P26"))]
fn a_connection_perishes_only_after_max_idle_time() {
    on_each_memory!(PoolOptions { max_idle_time: Some(ms(10)), background: false, ..DEFAULT }, |rig| {
        rig.ready();
        let lease = rig.lease();
        rig.at(1_000);
        rig.give_back(lease);
        rig.at(1_010);
        let lease = rig.take();
        rig.at(2_000);
        rig.give_back(lease);
        rig.now = at(2_010).saturating_add(Duration::from_nanos(1));
        rig.events();
        let _ = rig.queue();
        assert_eq!(closed(&rig.events()), [(1, "idle")]);
    });
}

#[test]
#[doc(alias = "CMAP-04")]
fn without_max_idle_time_a_connection_never_perishes_by_age() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        rig.fill::<1>();
        rig.tick(1_000_000_000_000);
        assert_eq!(rig.pool.poll_timeout(), None);
        assert_eq!(rig.take().conn().connection_id().get(), 1);
    });
}
