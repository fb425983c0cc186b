use super::*;
use core::hash::Hash;
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::pool::{Clear, Fixed, Pool, PoolId, PoolOptions};

fn print(pool: &Pool<Fixed<2, 2>>, now: u64) -> u128 {
    let mut canon = Canon::new(now, 1_000, Some(pool.generation().get()));
    pool.hash(&mut canon);
    canon.print()
}

/// Returns a pool that was marked ready, with one available connection, after a check-out that was
/// cancelled.
fn warm(now: u64) -> Pool<Fixed<2, 2>> {
    let at = Instant::from_nanos(now);
    let config = PoolOptions { max_idle_time: Some(Duration::from_micros(9)), ..PoolOptions::DEFAULT };
    let mut pool = Pool::new(at, PoolId::new(1), config.validate().expect("valid"), &mut ());
    pool.ready(at, &mut ());
    use_once(&mut pool, now);
    pool
}

fn use_once(pool: &mut Pool<Fixed<2, 2>>, now: u64) {
    let at = Instant::from_nanos(now);
    let _waiter = pool.check_out(at, None, &mut ()).expect("ready");
    let conn = pool.poll_establish();
    if let Some(conn) = conn {
        pool.handle_established(at, conn, &mut ()).expect("pending");
    }
    if let Some(poolhouse_core::pool::PoolAction::Wake(waiter)) = pool.poll_prompt() {
        pool.cancel(at, waiter, &mut ());
    }
}

#[test]
fn states_that_differ_in_history_only_are_the_same() {
    let (one, mut other) = (warm(5_000), warm(700_000));
    assert_ne!(one, other);
    assert_eq!(print(&one, 5_000), print(&other, 700_000));
    let at = Instant::from_nanos(700_000);
    other.clear(at, Clear::All { interrupt_in_use_connections: false }, None, &mut ()).expect("not load-balanced");
    assert_ne!(print(&one, 5_000), print(&other, 700_000), "paused");
    other.ready(at, &mut ());
    assert_ne!(print(&one, 5_000), print(&other, 700_000), "with a stale connection");
    use_once(&mut other, 700_000);
    while other.poll_prompt().is_some() {}
    assert_eq!(other.counts(), one.counts());
    let connection = |pool: &Pool<Fixed<2, 2>>| pool.counts().available;
    assert_eq!((connection(&one), connection(&other)), (1, 1));
}

#[test]
fn states_that_differ_in_time_differ() {
    let pool = warm(5_000);
    let mut later = pool.clone();
    assert_eq!(later, pool);
    later.ready(Instant::from_nanos(5_500), &mut ());
    assert_ne!(print(&pool, 5_000), print(&later, 5_500), "available since half the horizon");
    let mut latest = later.clone();
    latest.ready(Instant::from_nanos(6_000), &mut ());
    let print_then = print(&latest, 6_000);
    latest.ready(Instant::from_nanos(8_000), &mut ());
    assert_eq!(print(&latest, 8_000), print_then, "available since the horizon, or earlier");
}
