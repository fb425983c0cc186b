//! Filling the pool to `minPoolSize`, and background work.

use super::*;

const MIN_3: PoolOptions = PoolOptions { min_pool_size: 3, ..DEFAULT };

#[test]
#[doc(alias("CMAP-33", "CMAP-43", "CMAP-52", "CMAP-54"))]
fn a_ready_pool_is_filled_to_its_minimum_after_its_event() {
    on_each_memory!(MIN_3, |rig| {
        rig.events();
        rig.tick(1);
        assert_eq!(rig.names(), [""; 0], "not while it is paused");
        rig.ready();
        assert_eq!(rig.names(), ["PoolReady", "Created"]);
        rig.establish();
        assert_eq!(rig.names(), ["Ready", "Created"]);
        rig.establish();
        rig.establish();
        assert_eq!(rig.counts(), [0, 3, 0, 0]);
        assert_eq!(rig.actions(), [], "and no further");
    });
}

#[test]
#[doc(alias = "CMAP-54")]
fn connections_in_use_count_for_the_minimum() {
    on_each_memory!(MIN_3, |rig| {
        rig.ready();
        for _ in 0..3 {
            rig.establish();
        }
        let _leases = [rig.take(), rig.take(), rig.take()];
        rig.tick(1);
        assert_eq!(rig.counts(), [0, 0, 3, 0]);
    });
}

#[test]
#[doc(alias = "CMAP-54")]
fn a_failed_connection_is_replaced() {
    on_each_memory!(MIN_3, |rig| {
        rig.ready();
        for _ in 0..3 {
            rig.establish();
        }
        let lease = rig.take();
        rig.at(1_000);
        rig.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
        assert_eq!(rig.counts(), [1, 2, 0, 0]);
    });
}

/// One at a time in the background, so a waiter takes it before the next is begun
#[test]
#[doc(alias = "CMAP-56")]
fn the_background_establishes_one_connection_at_a_time() {
    on_each_memory!(PoolOptions { max_connecting: 8, ..MIN_3 }, |rig| {
        rig.ready();
        rig.tick(1);
        rig.tick(2);
        assert_eq!(rig.counts(), [1, 0, 0, 0]);
    });
}

/// The background establishes no more connections than minPoolSize requires.
/// Connections for waiters count too
#[test]
#[doc(alias("CMAP-54", "P4"))]
fn the_background_never_goes_beyond_the_minimum() {
    on_each_memory!(PoolOptions { min_pool_size: 2, ..DEFAULT }, |rig| {
        rig.ready();
        let waiters = [(); 2].map(|()| rig.queue());
        assert_eq!(rig.counts(), [2, 0, 0, 2], "the background's one and one for the waiters");
        rig.establish();
        rig.establish();
        for waiter in waiters {
            let _ = rig.granted(waiter);
        }
        assert_eq!(rig.counts(), [0, 0, 2, 0]);
    });
}

#[test]
#[doc(alias("CMAP-56", "P17"))]
fn a_populated_connection_is_available_before_another_is_created() {
    on_each_memory!(PoolOptions { min_pool_size: 1, max_connecting: 1, ..DEFAULT }, |rig| {
        rig.ready();
        let waiter = rig.queue();
        rig.events();
        rig.establish();
        assert_eq!(rig.names(), ["Ready", "CheckedOut"], "no second one is created");
        let _ = rig.granted(waiter);
    });
}

#[test]
#[doc(alias("CMAP-53", "P53"))]
fn after_a_failure_in_the_background_the_next_attempt_waits_longer_each_time() {
    on_each_memory!(PoolOptions { min_pool_size: 1, ..DEFAULT }, |rig| {
        rig.ready();
        let mut waits = Vec::new();
        for _ in 0..10 {
            let conn = rig.begin();
            rig.establish_failed(conn, REFUSED).expect("pending");
            let due = rig.pool.poll_timeout().expect("it tries again");
            waits.push(due.saturating_since(rig.now).as_millis());
            rig.now = due;
            rig.act(|pool, now, seen| pool.handle_timeout(now, seen));
        }
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000, 10_000]);
        rig.establish();
        let lease = rig.take();
        rig.now = rig.now.saturating_add(ms(1_000));
        rig.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
        let conn = rig.begin();
        rig.establish_failed(conn, REFUSED).expect("pending");
        assert_eq!(rig.pool.poll_timeout(), Some(rig.now.saturating_add(ms(100))), "a success forgets them");
    });
}

#[test]
#[doc(alias("CMAP-53", "CMAP-86"))]
fn a_failure_in_the_background_that_clears_pauses_the_pool_without_a_further_attempt() {
    on_each_memory!(PoolOptions { min_pool_size: 1, ..DEFAULT }, |rig| {
        rig.ready();
        let conn = rig.begin();
        rig.events();
        rig.establish_failed(conn, EstablishError { clear: Some(ALL), ..REFUSED }).expect("pending");
        assert_eq!(rig.names(), ["PoolCleared", "Closed"]);
        assert_eq!(rig.pool.poll_timeout(), None);
        rig.ready();
        assert_eq!(rig.names(), ["PoolReady", "Created"], "at once, when it is ready again");
    });
}

#[test]
#[doc(alias("CMAP-51", "CMAP-55"))]
fn without_background_work_a_check_out_triggers_the_filling() {
    on_each_memory!(PoolOptions { background: false, ..MIN_3 }, |rig| {
        rig.ready();
        rig.tick(1);
        assert_eq!(rig.counts(), [0; 4]);
        let waiter = rig.queue();
        assert_eq!(rig.counts(), [2, 0, 0, 1], "one for the waiter, one for the minimum");
        rig.establish();
        let lease = rig.granted(waiter);
        rig.give_back(lease);
        let lease = rig.take();
        assert_eq!(rig.counts(), [1, 0, 1, 0]);
        rig.establish();
        rig.give_back(lease);
        let _lease = rig.take();
        assert_eq!(rig.counts(), [1, 1, 1, 0], "each check-out goes on with it");
    });
}

#[test]
#[doc(alias("CMAP-55", "CMAP-57"))]
fn without_background_work_only_waiters_have_timeouts() {
    on_each_memory!(
        PoolOptions { background: false, min_pool_size: 2, max_idle_time: Some(ms(10)), ..DEFAULT },
        |rig| {
            rig.ready();
            let waiter = rig.queue();
            let [one, two] = [(); 2].map(|()| rig.begin());
            rig.established(one).expect("pending");
            rig.establish_failed(two, REFUSED).expect("pending");
            let lease = rig.granted(waiter);
            rig.give_back(lease);
            assert_eq!(rig.pool.poll_timeout(), None);
            rig.clear(ALL);
            assert_eq!(rig.pool.poll_timeout(), None);
        }
    );
}

#[test]
#[doc(alias("CMAP-55", "P53"))]
fn without_background_work_the_filling_continues_after_its_pause() {
    on_each_memory!(PoolOptions { background: false, min_pool_size: 2, ..DEFAULT }, |rig| {
        rig.ready();
        let waiter = rig.queue();
        let [one, two] = [(); 2].map(|()| rig.begin());
        rig.established(one).expect("pending");
        rig.establish_failed(two, REFUSED).expect("pending");
        let lease = rig.granted(waiter);
        rig.give_back(lease);
        rig.at(99);
        let lease = rig.take();
        rig.give_back(lease);
        assert_eq!(rig.counts(), [0, 1, 0, 0]);
        rig.at(100);
        let _lease = rig.take();
        assert_eq!(rig.counts(), [1, 0, 1, 0]);
    });
}

#[test]
#[doc(alias("CMAP-57", "CMAP-58", "P44"))]
fn a_clear_makes_the_background_run_due_which_closes_stale_connections() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        rig.fill::<3>();
        assert_eq!(rig.pool.poll_timeout(), None);
        rig.clear(ALL);
        assert_eq!(rig.pool.poll_timeout(), Some(rig.now), "now");
        rig.events();
        rig.tick(0);
        assert_eq!(closed(&rig.events()), [(1, "stale"), (2, "stale"), (3, "stale")]);
        assert_eq!(rig.pool.poll_timeout(), None);
    });
}

#[test]
#[doc(alias("CMAP-57", "P20"))]
fn idle_connections_are_closed_when_they_perish_the_oldest_first() {
    on_each_memory!(PoolOptions { max_idle_time: Some(ms(10)), ..DEFAULT }, |rig| {
        rig.ready();
        let [one, two] = rig.leases();
        rig.give_back(one);
        rig.at(5);
        rig.give_back(two);
        rig.actions();
        let due = at(10).saturating_add(Duration::from_nanos(1));
        assert_eq!(rig.pool.poll_timeout(), Some(due), "longer than, not as long as");
        rig.tick(10);
        assert_eq!(rig.counts(), [0, 2, 0, 0], "an early call changes nothing");
        rig.now = due;
        rig.events();
        rig.act(|pool, now, seen| pool.handle_timeout(now, seen));
        assert_eq!(closed(&rig.events()), [(1, "idle")]);
        assert_eq!(rig.pool.poll_timeout(), Some(due.saturating_add(ms(5))));
    });
}

#[test]
#[doc(alias("CMAP-54", "CMAP-57"))]
fn idle_connections_below_the_minimum_are_replaced() {
    on_each_memory!(PoolOptions { max_idle_time: Some(ms(10)), min_pool_size: 1, ..DEFAULT }, |rig| {
        rig.ready();
        rig.establish();
        rig.tick(11);
        assert_eq!(rig.counts(), [0; 4]);
        assert_eq!(rig.pool.poll_timeout(), Some(at(1_000)), "at most one in a second");
        rig.tick(999);
        assert_eq!(rig.counts(), [0; 4]);
        rig.tick(1_000);
        assert_eq!(rig.counts(), [1, 0, 0, 0]);
    });
}

/// The highest number of connections that became ready in the same second.
fn most_in_a_second(seen: &[(Instant, PoolEvent)]) -> usize {
    let is_ready = |event: &PoolEvent| matches!(event, PoolEvent::ConnectionReady { .. });
    let times: Vec<_> = seen.iter().filter(|(_, event)| is_ready(event)).map(|(at, _)| *at).collect();
    let in_second =
        |from: &Instant| times.iter().filter(|at| *at >= from && at.saturating_since(*from) < ms(1_000)).count();
    times.iter().map(in_second).max().unwrap_or_default()
}

/// However the connections end: idle, at the end of their life, broken, or by a clear.
#[test]
#[doc(alias("CMAP-54", "P53"))]
fn connections_for_the_minimum_are_at_most_that_many_in_a_second() {
    type End<M> = fn(&mut Rig<M>);
    fn ends<M: Memory>() -> [End<M>; 4] {
        [
            |rig| rig.now = rig.pool.poll_timeout().filter(|due| *due < at(60_000)).expect("one is idle"),
            |rig| {
                let lease = rig.take();
                let conn = lease.conn();
                rig.give_back(lease);
                rig.act(|pool, now, seen| pool.retire(now, conn, seen));
            },
            |rig| {
                let lease = rig.take();
                rig.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
            },
            |rig| {
                rig.clear(ALL);
                rig.ready();
            },
        ]
    }
    on_each_memory!(PoolOptions { max_idle_time: Some(ms(1)), ..MIN_3 }, |rig| {
        rig.ready();
        for place in 0..4 {
            let begun = rig.now;
            rig.events();
            while rig.now < begun.saturating_add(ms(5_000)) {
                rig.act(|pool, now, seen| pool.handle_timeout(now, seen));
                while rig.pool.owes_establish() {
                    rig.establish();
                }
                rig.actions();
                if rig.counts()[1] > 0 {
                    ends()[place](&mut rig);
                } else {
                    rig.now = rig.pool.poll_timeout().expect("the end of the pause");
                }
            }
            assert_eq!(most_in_a_second(&rig.seen), 3, "end {place}");
            let opened =
                rig.seen.iter().filter(|(_, event)| matches!(event, PoolEvent::ConnectionReady { .. })).count();
            assert!((12..=18).contains(&opened), "end {place}: the minimum is kept otherwise: {opened} in 5 s");
        }
    });
}

/// The times of the ends are random.
#[test]
#[doc(alias("CMAP-54", "P53"))]
fn no_second_has_more_connections_for_the_minimum_than_it() {
    on_each_memory!(MIN_3, |rig| {
        rig.ready();
        let mut random = 1_u64;
        for _ in 0..2_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            rig.now = rig.now.saturating_add(ms(random >> 56));
            rig.act(|pool, now, seen| pool.handle_timeout(now, seen));
            while rig.pool.owes_establish() {
                rig.establish();
            }
            rig.actions();
            if rig.counts()[1] > 0 {
                let lease = rig.take();
                rig.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
            }
        }
        assert_eq!(most_in_a_second(&rig.seen), 3);
    });
}

#[test]
#[doc(alias("CMAP-54", "CMAP-61"))]
fn a_check_out_gets_a_connection_at_once_although_the_minimum_must_wait() {
    on_each_memory!(PoolOptions { min_pool_size: 1, ..DEFAULT }, |rig| {
        rig.ready();
        rig.establish();
        let lease = rig.take();
        rig.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
        assert_eq!(rig.counts(), [0; 4]);
        let waiter = rig.queue();
        rig.establish();
        let _ = rig.granted(waiter);
        assert_eq!(rig.pool.poll_timeout(), None, "the minimum is reached");
    });
}

#[test]
#[doc(alias("CMAP-59", "P44"))]
fn a_background_run_does_all_possible_work() {
    on_each_memory!(PoolOptions { max_connecting: 1, ..MIN_3 }, |rig| {
        rig.ready();
        let _black_hole = rig.begin();
        for time in 0..5 {
            rig.tick(time);
            assert_eq!(rig.actions(), []);
            assert_eq!(rig.pool.poll_timeout(), None, "it waits for news, not for time");
        }
    });
}

/// Only a failure of a background establishment delays the next one
#[test]
#[doc(alias = "CMAP-54")]
fn a_failure_for_a_waiter_does_not_delay_the_background() {
    on_each_memory!(PoolOptions { min_pool_size: 1, ..DEFAULT }, |rig| {
        rig.ready();
        rig.establish();
        rig.at(1_000);
        let lease = rig.take();
        let _waiter = rig.queue();
        rig.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
        let conn = rig.begin();
        rig.events();
        rig.establish_failed(conn, REFUSED).expect("pending");
        assert_eq!(rig.names(), ["Closed", "CheckOutFailed", "Created"]);
        assert_eq!(rig.counts(), [1, 0, 0, 0]);
    });
}

/// The time of establishing does not count
#[test]
#[doc(alias = "CMAP-19")]
fn a_connection_is_idle_from_the_moment_it_was_established() {
    on_each_memory!(PoolOptions { min_pool_size: 1, max_idle_time: Some(ms(10)), ..DEFAULT }, |rig| {
        rig.ready();
        let conn = rig.begin();
        rig.at(8);
        rig.established(conn).expect("pending");
        assert_eq!(rig.pool.poll_timeout(), Some(at(18).saturating_add(Duration::from_nanos(1))));
        rig.at(18);
        assert_eq!(rig.take().conn(), conn);
    });
}
