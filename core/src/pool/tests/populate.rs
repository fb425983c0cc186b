//! Filling the pool to `minPoolSize`, and background work.

use super::*;

const MIN_3: PoolOptions = PoolOptions { min_pool_size: 3, ..DEFAULT };

/// CMAP-33, CMAP-43, CMAP-52, CMAP-54
#[test]
fn a_ready_pool_is_filled_to_its_minimum_after_its_event() {
    on_each_memory!(MIN_3, |world| {
        world.events();
        world.tick(1);
        assert_eq!(world.names(), [""; 0], "not while it is paused");
        world.ready();
        assert_eq!(world.names(), ["PoolReady", "Created"]);
        world.establish();
        assert_eq!(world.names(), ["Ready", "Created"]);
        world.establish();
        world.establish();
        assert_eq!(world.counts(), [0, 3, 0, 0]);
        assert_eq!(world.actions(), [], "and no further");
    });
}

/// CMAP-54
#[test]
fn connections_in_use_count_for_the_minimum() {
    on_each_memory!(MIN_3, |world| {
        world.ready();
        for _ in 0..3 {
            world.establish();
        }
        let _leases = [world.take(), world.take(), world.take()];
        world.tick(1);
        assert_eq!(world.counts(), [0, 0, 3, 0]);
    });
}

/// CMAP-54
#[test]
fn a_failed_connection_is_replaced() {
    on_each_memory!(MIN_3, |world| {
        world.ready();
        for _ in 0..3 {
            world.establish();
        }
        let lease = world.take();
        world.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
        assert_eq!(world.counts(), [1, 2, 0, 0]);
    });
}

/// CMAP-56: one at a time in the background, so a waiter takes it before the next is begun
#[test]
fn the_background_establishes_one_connection_at_a_time() {
    on_each_memory!(PoolOptions { max_connecting: 8, ..MIN_3 }, |world| {
        world.ready();
        world.tick(1);
        world.tick(2);
        assert_eq!(world.counts(), [1, 0, 0, 0]);
    });
}

/// CMAP-54, P4: the background establishes no more connections than minPoolSize requires.
/// Connections for waiters count too
#[test]
fn the_background_never_goes_beyond_the_minimum() {
    on_each_memory!(PoolOptions { min_pool_size: 2, ..DEFAULT }, |world| {
        world.ready();
        let waiters = [(); 2].map(|()| world.queue());
        assert_eq!(world.counts(), [2, 0, 0, 2], "the background's one and one for the waiters");
        world.establish();
        world.establish();
        for waiter in waiters {
            let _ = world.granted(waiter);
        }
        assert_eq!(world.counts(), [0, 0, 2, 0]);
    });
}

/// CMAP-56, P17
#[test]
fn a_populated_connection_is_available_before_another_is_created() {
    on_each_memory!(PoolOptions { min_pool_size: 1, max_connecting: 1, ..DEFAULT }, |world| {
        world.ready();
        let waiter = world.queue();
        world.events();
        world.establish();
        assert_eq!(world.names(), ["Ready", "CheckedOut"], "no second one is created");
        let _ = world.granted(waiter);
    });
}

/// CMAP-53, P53
#[test]
fn after_a_failure_in_the_background_the_next_attempt_waits_longer_each_time() {
    on_each_memory!(PoolOptions { min_pool_size: 1, ..DEFAULT }, |world| {
        world.ready();
        let mut waits = Vec::new();
        for _ in 0..10 {
            let conn = world.begin();
            world.establish_failed(conn, REFUSED).expect("pending");
            let due = world.pool.poll_timeout().expect("it tries again");
            waits.push(due.saturating_since(world.now).as_millis());
            world.now = due;
            world.act(|pool, now, seen| pool.handle_timeout(now, seen));
        }
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000, 10_000]);
        world.establish();
        let lease = world.take();
        world.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
        let conn = world.begin();
        world.establish_failed(conn, REFUSED).expect("pending");
        assert_eq!(world.pool.poll_timeout(), Some(world.now.saturating_add(ms(100))), "a success forgets them");
    });
}

/// CMAP-53, CMAP-86
#[test]
fn a_failure_in_the_background_that_clears_pauses_the_pool_without_a_further_attempt() {
    on_each_memory!(PoolOptions { min_pool_size: 1, ..DEFAULT }, |world| {
        world.ready();
        let conn = world.begin();
        world.events();
        world.establish_failed(conn, EstablishError { clear: Some(ALL), ..REFUSED }).expect("pending");
        assert_eq!(world.names(), ["PoolCleared", "Closed"]);
        assert_eq!(world.pool.poll_timeout(), None);
        world.ready();
        assert_eq!(world.names(), ["PoolReady", "Created"], "at once, when it is ready again");
    });
}

/// CMAP-51, CMAP-55
#[test]
fn without_background_work_a_check_out_triggers_the_filling() {
    on_each_memory!(PoolOptions { background: false, ..MIN_3 }, |world| {
        world.ready();
        world.tick(1);
        assert_eq!(world.counts(), [0; 4]);
        let waiter = world.queue();
        assert_eq!(world.counts(), [2, 0, 0, 1], "one for the waiter, one for the minimum");
        world.establish();
        let lease = world.granted(waiter);
        world.give_back(lease);
        let lease = world.take();
        assert_eq!(world.counts(), [1, 0, 1, 0]);
        world.establish();
        world.give_back(lease);
        let _lease = world.take();
        assert_eq!(world.counts(), [1, 1, 1, 0], "each check-out goes on with it");
    });
}

/// CMAP-55, CMAP-57
#[test]
fn without_background_work_only_waiters_have_timeouts() {
    on_each_memory!(
        PoolOptions { background: false, min_pool_size: 2, max_idle_time: Some(ms(10)), ..DEFAULT },
        |world| {
            world.ready();
            let waiter = world.queue();
            let [one, two] = [(); 2].map(|()| world.begin());
            world.established(one).expect("pending");
            world.establish_failed(two, REFUSED).expect("pending");
            let lease = world.granted(waiter);
            world.give_back(lease);
            assert_eq!(world.pool.poll_timeout(), None);
            world.clear(ALL);
            assert_eq!(world.pool.poll_timeout(), None);
        }
    );
}

/// CMAP-55, P53
#[test]
fn without_background_work_the_filling_continues_after_its_pause() {
    on_each_memory!(PoolOptions { background: false, min_pool_size: 2, ..DEFAULT }, |world| {
        world.ready();
        let waiter = world.queue();
        let [one, two] = [(); 2].map(|()| world.begin());
        world.established(one).expect("pending");
        world.establish_failed(two, REFUSED).expect("pending");
        let lease = world.granted(waiter);
        world.give_back(lease);
        world.at(99);
        let lease = world.take();
        world.give_back(lease);
        assert_eq!(world.counts(), [0, 1, 0, 0]);
        world.at(100);
        let _lease = world.take();
        assert_eq!(world.counts(), [1, 0, 1, 0]);
    });
}

/// CMAP-57, CMAP-58, P44
#[test]
fn a_clear_makes_the_background_run_due_which_closes_stale_connections() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        world.fill::<3>();
        assert_eq!(world.pool.poll_timeout(), None);
        world.clear(ALL);
        assert_eq!(world.pool.poll_timeout(), Some(world.now), "now");
        world.events();
        world.tick(0);
        assert_eq!(closed(&world.events()), [(1, "stale"), (2, "stale"), (3, "stale")]);
        assert_eq!(world.pool.poll_timeout(), None);
    });
}

/// CMAP-57, P20
#[test]
fn idle_connections_are_closed_when_they_perish_the_oldest_first() {
    on_each_memory!(PoolOptions { max_idle_time: Some(ms(10)), ..DEFAULT }, |world| {
        world.ready();
        let [one, two] = world.leases();
        world.give_back(one);
        world.at(5);
        world.give_back(two);
        world.actions();
        let due = at(10).saturating_add(Duration::from_nanos(1));
        assert_eq!(world.pool.poll_timeout(), Some(due), "longer than, not as long as");
        world.tick(10);
        assert_eq!(world.counts(), [0, 2, 0, 0], "an early call changes nothing");
        world.now = due;
        world.events();
        world.act(|pool, now, seen| pool.handle_timeout(now, seen));
        assert_eq!(closed(&world.events()), [(1, "idle")]);
        assert_eq!(world.pool.poll_timeout(), Some(due.saturating_add(ms(5))));
    });
}

/// CMAP-54, CMAP-57
#[test]
fn idle_connections_below_the_minimum_are_replaced() {
    on_each_memory!(PoolOptions { max_idle_time: Some(ms(10)), min_pool_size: 1, ..DEFAULT }, |world| {
        world.ready();
        world.establish();
        world.tick(11);
        assert_eq!(world.counts(), [1, 0, 0, 0]);
    });
}

/// CMAP-59, P44
#[test]
fn a_background_run_does_all_possible_work() {
    on_each_memory!(PoolOptions { max_connecting: 1, ..MIN_3 }, |world| {
        world.ready();
        let _black_hole = world.begin();
        for time in 0..5 {
            world.tick(time);
            assert_eq!(world.actions(), []);
            assert_eq!(world.pool.poll_timeout(), None, "it waits for news, not for time");
        }
    });
}

/// CMAP-54: only a failure of a background establishment delays the next one
#[test]
fn a_failure_for_a_waiter_does_not_delay_the_background() {
    on_each_memory!(PoolOptions { min_pool_size: 1, ..DEFAULT }, |world| {
        world.ready();
        world.establish();
        let lease = world.take();
        let _waiter = world.queue();
        world.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
        let conn = world.begin();
        world.events();
        world.establish_failed(conn, REFUSED).expect("pending");
        assert_eq!(world.names(), ["Closed", "CheckOutFailed", "Created"]);
        assert_eq!(world.counts(), [1, 0, 0, 0]);
    });
}

/// CMAP-19: the time of establishing does not count
#[test]
fn a_connection_is_idle_from_the_moment_it_was_established() {
    on_each_memory!(PoolOptions { min_pool_size: 1, max_idle_time: Some(ms(10)), ..DEFAULT }, |world| {
        world.ready();
        let conn = world.begin();
        world.at(8);
        world.established(conn).expect("pending");
        assert_eq!(world.pool.poll_timeout(), Some(at(18).saturating_add(Duration::from_nanos(1))));
        world.at(18);
        assert_eq!(world.take().conn(), conn);
    });
}
