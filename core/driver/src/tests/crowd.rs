//! Many at once: operations that reach their deadline, late replies, idle workers.

use super::wide::{Bell, House};
use super::*;

const CROWD: usize = 100;
const LARGE: PoolOptions = PoolOptions { max_pool_size: 1_000, max_connecting: 8, ..PoolOptions::DEFAULT };

fn ping<'g>(guard: &'g mut Guard<'static, wide::Wide>) -> Boxed<'g, Result<(), OperationError>> {
    Box::pin(async { guard.run_command("db", |body| body.int32("ping", 1).map(drop)).await.map(drop) })
}

fn house() -> (House, usize) {
    let mut house = House::open(LARGE, None);
    let clock = house.start(ServerTask::Clock);
    for _ in 0..8 {
        house.start(ServerTask::Worker);
    }
    (house, clock)
}

#[test]
fn operations_that_expire_together_are_all_woken() {
    let (mut house, _) = house();
    let mut guards = house.guards(CROWD);
    house.bench.mute(true);
    for (guard, odd) in guards.iter_mut().zip([false, true].into_iter().cycle()) {
        let limit = if odd { Duration::from_secs(1) } else { Duration::from_secs(2) };
        guard.set_deadline(Some(house.core.now().saturating_add(limit)));
    }
    let bells: Vec<_> = guards.iter().map(|_| Arc::new(Bell::default())).collect();
    let mut pings: Vec<_> = guards.iter_mut().map(ping).collect();
    for (ping, bell) in pings.iter_mut().zip(&bells) {
        assert!(bell.poll(ping).is_pending());
    }
    house.run();
    for turn in [1, 0] {
        house.pass(Duration::from_secs(1));
        for (number, (ping, bell)) in pings.iter_mut().zip(&bells).enumerate() {
            let expected = number % 2 == turn;
            assert_eq!(bell.rings(), usize::from(expected), "operation {number}");
            if expected {
                assert_eq!(bell.poll(ping), Poll::Ready(Err(OperationError::Timeout)));
            }
        }
    }
}

/// The operations continue, and observe their own deadlines from then on.
#[test]
#[doc(alias = "CMAP-38")]
fn pending_operations_are_all_woken_when_the_client_is_closed() {
    let (mut house, _) = house();
    let mut guards = house.guards(CROWD);
    house.bench.mute(true);
    let at = house.core.now().saturating_add(Duration::from_secs(1));
    guards.iter_mut().for_each(|guard| guard.set_deadline(Some(at)));
    let bells: Vec<_> = guards.iter().map(|_| Arc::new(Bell::default())).collect();
    let mut pings: Vec<_> = guards.iter_mut().map(ping).collect();
    for (ping, bell) in pings.iter_mut().zip(&bells) {
        assert!(bell.poll(ping).is_pending());
    }
    house.core.close();
    for (ping, bell) in pings.iter_mut().zip(&bells) {
        assert_eq!(bell.rings(), 1);
        assert!(bell.poll(ping).is_pending());
    }
    house.bench.now.fetch_add(1_000_000_000, Ordering::Relaxed);
    for (ping, bell) in pings.iter_mut().zip(&bells) {
        assert_eq!(bell.poll(ping), Poll::Ready(Err(OperationError::Timeout)));
    }
}

#[test]
fn number_of_awaited_late_replies_is_limited() {
    let (mut house, clock) = house();
    let mut guards = house.guards(CROWD);
    house.bench.mute(true);
    for guard in &mut guards {
        assert!(poll(&mut ping(guard)).is_pending(), "sent, and given up");
    }
    // The clock task takes over some of the connections now, and the others later.
    guards.truncate(90);
    house.poll(clock);
    drop(guards);
    assert_eq!(house.counts(), [0, 0, 64, 0], "the others are closed at once");
    house.run();
    assert_eq!(house.counts(), [0, 0, 64, 0]);
    house.pass(DRAIN_TIMEOUT);
    assert_eq!(house.counts(), [0; 4]);
    // The limit has room again.
    house.bench.mute(false);
    let mut guards = house.guards(1);
    house.bench.mute(true);
    assert!(poll(&mut ping(&mut guards[0])).is_pending());
    drop(guards);
    assert_eq!(house.counts(), [0, 0, 1, 0]);
}

#[test]
fn each_woken_worker_finds_work() {
    let (mut house, clock) = house();
    house.stop(clock);
    assert_eq!(house.rings().iter().sum::<usize>(), 0);
    let mut first = house.check_out(None);
    assert!(poll(&mut first).is_pending());
    assert_eq!(house.rings().iter().sum::<usize>(), 1, "one connection is to be established");
    // The other two check-outs, before that worker is polled.
    let mut more: Vec<_> = (0..2).map(|_| house.check_out(None)).collect();
    for one in &mut more {
        assert!(poll(one).is_pending());
    }
    assert_eq!(house.rings().iter().sum::<usize>(), 2);
    for worker in 0..8 {
        house.poll(worker);
    }
    for one in more.iter_mut().chain([&mut first]) {
        assert!(matches!(poll(one), Poll::Ready(Ok(_))));
    }
}

#[test]
fn work_of_a_worker_dropped_before_its_poll_goes_to_another() {
    let (mut house, clock) = house();
    house.stop(clock);
    let mut waiting = house.check_out(None);
    assert!(poll(&mut waiting).is_pending());
    let woken = house.rings().iter().position(|&rings| rings > 0).expect("a worker");
    house.stop(woken);
    assert_eq!(house.rings().iter().sum::<usize>(), 1);
    for worker in 0..7 {
        house.poll(worker);
    }
    assert!(matches!(poll(&mut waiting), Poll::Ready(Ok(_))));
}

/// A worker may be polled without having been woken, and it then starts to work.
#[test]
fn worker_that_took_work_without_a_wake_up_is_not_counted_as_woken() {
    let (mut house, clock) = house();
    house.stop(clock);
    house.bench.dial(Dial::Hangs);
    let mut waiting: Vec<_> = (0..2).map(|_| house.check_out(None)).collect();
    assert!(poll(&mut waiting[0]).is_pending());
    let woken = house.rings().iter().position(|&rings| rings > 0).expect("a worker");
    let other = usize::from(woken == 0);
    // This worker takes the work for which the other was woken.
    house.poll(other);
    house.poll(woken);
    assert!(poll(&mut waiting[1]).is_pending());
    assert_eq!(house.rings()[other], 0, "it is at work");
    house.run();
    assert_eq!(house.counts(), [2, 0, 0, 2]);
}
