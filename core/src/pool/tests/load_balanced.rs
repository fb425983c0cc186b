//! Load-balanced mode: generations and counts by service.

use super::*;
use alloc::string::ToString;

const BALANCED: PoolOptions = PoolOptions { load_balanced: true, ..DEFAULT };
const ONE: ObjectId = ObjectId([1; 12]);
const TWO: ObjectId = ObjectId([2; 12]);

impl<M: Memory> Rig<M> {
    /// A new connection to this service, checked out.
    fn lease_of(&mut self, service: ObjectId) -> Lease {
        let waiter = self.queue();
        let conn = self.begin();
        self.act(|pool, _, _| pool.handle_service(conn, service)).expect("pending");
        self.established(conn).expect("pending");
        self.granted(waiter)
    }
}

#[test]
#[doc(alias("CMAP-88", "CMAP-89", "CMAP-91", "P45"))]
fn a_clear_of_one_service_leaves_the_pool_ready_and_the_others_alone() {
    on_each_memory!(PoolOptions { max_pool_size: 2, ..BALANCED }, |rig| {
        rig.ready();
        let (one, two) = (rig.lease_of(ONE), rig.lease_of(TWO));
        let waiter = rig.queue();
        rig.events();
        rig.clear(Clear::Service(ONE));
        let cleared = PoolEvent::PoolCleared {
            pool: PoolId::new(7),
            service_id: Some(ONE),
            interrupt_in_use_connections: false,
            cause: Some(Cause::Network),
        };
        assert_eq!(rig.events(), [cleared], "no waiter fails");
        assert_eq!((rig.pool.state(), rig.pool.generation().get()), (PoolState::Ready, 0));
        assert_eq!(rig.pool.service_generation(ONE).get(), 1);
        assert_eq!(rig.pool.service_generation(TWO).get(), 0);
        let conn = two.conn();
        rig.give_back(two);
        assert_eq!(rig.granted(waiter).conn(), conn);
        rig.events();
        rig.give_back(one);
        assert_eq!(closed(&rig.events()), [(1, "stale")]);
    });
}

#[test]
#[doc(alias = "CMAP-88")]
fn available_connections_of_a_cleared_service_are_swept_and_others_kept() {
    on_each_memory!(BALANCED, |rig| {
        rig.ready();
        for lease in [ONE, TWO, ONE].map(|service| rig.lease_of(service)) {
            rig.give_back(lease);
        }
        rig.events();
        rig.clear(Clear::Service(ONE));
        assert_eq!(rig.pool.poll_timeout(), Some(rig.now));
        rig.tick(0);
        assert_eq!(closed(&rig.events()), [(1, "stale"), (3, "stale")]);
        assert_eq!(rig.take().conn().connection_id().get(), 2);
    });
}

#[test]
#[doc(alias("CMAP-90", "P45"))]
fn a_service_is_removed_with_its_last_connection() {
    on_each_memory!(BALANCED, |rig| {
        rig.ready();
        let (one, other) = (rig.lease_of(ONE), rig.lease_of(ONE));
        assert_eq!(rig.pool.service_count(), 1);
        rig.clear(Clear::Service(ONE));
        rig.give_back(one);
        assert_eq!(rig.pool.service_count(), 1);
        rig.check_in(other, Health::Broken(Cause::Network)).expect("ours");
        assert_eq!(rig.pool.service_count(), 0);
        assert_eq!(rig.pool.service_generation(ONE).get(), 0);
    });
}

#[test]
#[doc(alias = "CMAP-91")]
fn a_connection_takes_the_generation_of_its_service_from_hello() {
    on_each_memory!(BALANCED, |rig| {
        rig.ready();
        let _kept = rig.lease_of(ONE);
        rig.clear(Clear::Service(ONE));
        let lease = rig.lease_of(ONE);
        assert_eq!(rig.pool.conn_generation(lease.conn()).map(Generation::get), Some(1));
        assert_eq!(rig.pool.conn_service(lease.conn()), Some(ONE));
        rig.events();
        rig.give_back(lease);
        assert_eq!(rig.names(), ["CheckedIn"], "it is not stale");
    });
}

#[test]
#[doc(alias("CMAP-91", "P36"))]
fn a_service_cleared_between_hello_and_the_end_of_the_handshake_makes_the_connection_stale() {
    on_each_memory!(BALANCED, |rig| {
        rig.ready();
        let _kept = rig.lease_of(ONE);
        let waiter = rig.queue();
        let conn = rig.begin();
        rig.act(|pool, _, _| pool.handle_service(conn, ONE)).expect("pending");
        rig.clear(Clear::Service(ONE));
        assert_eq!(rig.claim(waiter), Claim::Waiting);
        rig.events();
        assert_eq!(rig.established(conn), Err(Stale));
        assert_eq!(rig.names(), ["Closed", "CheckOutFailed"]);
        assert!(rig.failed(waiter).is_retryable());
    });
}

#[test]
#[doc(alias = "CMAP-92")]
fn a_connection_without_service_is_refused() {
    on_each_memory!(BALANCED, |rig| {
        rig.ready();
        let waiter = rig.queue();
        let conn = rig.begin();
        assert_eq!(rig.established(conn), Err(Stale));
        let error = rig.failed(waiter);
        assert_eq!(error, CheckOutError::EstablishFailed { cause: Cause::MissingServiceId, overloaded: false });
        assert_eq!(rig.pool.state(), PoolState::Ready);
    });
}

#[test]
#[doc(alias = "CMAP-94")]
fn an_error_before_hello_clears_nothing_and_one_after_it_clears_its_service_only() {
    on_each_memory!(BALANCED, |rig| {
        rig.ready();
        let _kept = rig.lease_of(ONE);
        rig.queue();
        let conn = rig.begin();
        rig.events();
        rig.establish_failed(conn, REFUSED).expect("pending");
        assert_eq!(rig.names(), ["Closed", "CheckOutFailed"]);
        rig.queue();
        let conn = rig.begin();
        rig.act(|pool, _, _| pool.handle_service(conn, ONE)).expect("pending");
        rig.events();
        let clear = Some(Clear::Service(ONE));
        let error = EstablishError { cause: Cause::Authentication, overloaded: false, clear };
        rig.establish_failed(conn, error).expect("pending");
        assert_eq!(rig.names(), ["PoolCleared", "Closed", "CheckOutFailed"]);
        assert_eq!((rig.pool.state(), rig.pool.service_generation(ONE).get()), (PoolState::Ready, 1));
    });
}

#[test]
#[doc(alias = "CMAP-75")]
fn a_load_balanced_pool_is_not_cleared_as_a_whole() {
    on_each_memory!(BALANCED, |rig| {
        rig.ready();
        rig.events();
        for clear in [ALL, INTERRUPT] {
            assert_eq!(rig.act(|pool, now, seen| pool.clear(now, clear, None, seen)), Err(WrongMode));
        }
        assert_eq!((rig.names(), rig.pool.state()), (Vec::new(), PoolState::Ready));
    });
}

/// A service without connections has no generation to increment
#[test]
#[doc(alias = "CMAP-88")]
fn a_clear_of_an_unknown_service_keeps_no_entry() {
    on_each_memory!(BALANCED, |rig| {
        rig.ready();
        rig.clear(Clear::Service(TWO));
        assert_eq!((rig.pool.service_count(), rig.pool.service_generation(TWO).get()), (0, 0));
    });
}

#[test]
#[doc(alias = "CMAP-93")]
fn a_timeout_contains_the_use_of_the_connections() {
    on_each_memory!(PoolOptions { max_pool_size: 4, wait_queue_timeout: Some(ms(5)), ..BALANCED }, |rig| {
        rig.ready();
        let leases = [(); 4].map(|()| rig.lease_of(ONE));
        let pins = [Pinned::Cursor, Pinned::Cursor, Pinned::Transaction, Pinned::No];
        for (lease, pinned) in leases.iter().zip(pins) {
            rig.act(|pool, _, _| pool.pin(lease, pinned)).expect("ours");
        }
        let waiter = rig.queue();
        rig.tick(5);
        assert_eq!(
            rig.failed(waiter).to_string(),
            "Timed out while checking out a connection from connection pool. maxPoolSize: 4, connections in use \
             by cursors: 2, connections in use by transactions: 1, connections in use by other operations: 1"
        );
        let [one, ..] = leases;
        rig.give_back(one);
        let lease = rig.take();
        rig.act(|pool, _, _| pool.pin(&lease, Pinned::No)).expect("ours");
        let error = rig.check_out(Some(rig.now)).expect_err("too late");
        let CheckOutError::WaitQueueTimeout { usage: Some(usage) } = error else { panic!("{error:?}") };
        assert_eq!((usage.cursors, usage.transactions, usage.others), (1, 1, 2), "a check-in unpins");
    });
}

#[test]
#[doc(alias = "CMAP-90")]
fn the_service_of_a_connection_is_recorded_once_during_its_establishment() {
    on_each_memory!(BALANCED, |rig| {
        rig.ready();
        rig.queue();
        let conn = rig.begin();
        let note = |rig: &mut Rig<_>, service| rig.act(|pool, _, _| pool.handle_service(conn, service));
        assert_eq!(note(&mut rig, ONE), Ok(Generation(0)));
        assert_eq!(note(&mut rig, TWO), Ok(Generation(0)), "the first word counts");
        assert_eq!((rig.pool.conn_service(conn), rig.pool.service_count()), (Some(ONE), 1));
        rig.established(conn).expect("pending");
        assert_eq!(note(&mut rig, TWO), Err(ServiceError::Stale));
    });
}

#[test]
#[doc(alias = "CMAP-90")]
fn services_belong_to_load_balanced_pools() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        rig.queue();
        let conn = rig.begin();
        assert_eq!(rig.act(|pool, _, _| pool.handle_service(conn, ONE)), Err(ServiceError::WrongMode));
    });
}

#[test]
#[doc(alias("CMAP-30", "CMAP-100"))]
fn a_forked_child_of_a_load_balanced_pool_stays_ready_with_new_connections_only() {
    on_each_memory!(BALANCED, |rig| {
        rig.ready();
        let (used, idle) = (rig.lease_of(ONE), rig.lease_of(ONE));
        rig.give_back(idle);
        rig.act(|pool, now, seen| pool.reset_after_fork(now, seen));
        assert_eq!((rig.pool.state(), rig.counts()), (PoolState::Ready, [0, 0, 1, 0]));
        rig.events();
        rig.give_back(used);
        assert_eq!(closed(&rig.events()), [(1, "stale")]);
        assert_eq!(rig.pool.service_count(), 0);
    });
}

/// A paused pool is not cleared again, and neither is one of its services.
#[test]
fn a_clear_of_a_service_of_a_paused_pool_is_silent() {
    on_each_memory!(BALANCED, |rig| {
        rig.events();
        rig.clear(Clear::Service(ONE));
        assert_eq!(rig.events(), []);
        assert_eq!(rig.pool.state(), PoolState::Paused);
    });
}
