//! Connections that are established before they are needed.

use super::wide::{Bell, House};
use super::*;
use crate::driven::Drive as _;

const TEN: PoolOptions = PoolOptions { max_pool_size: 10, ..PoolOptions::DEFAULT };

/// A server that answers no connection until the test calls `answer`.
fn house(pool: PoolOptions) -> House {
    let mut house = House::open(pool, None);
    house.bench.mute(true);
    house.start(ServerTask::Clock);
    for _ in 0..2 {
        house.start(ServerTask::Worker);
    }
    house
}

/// A warm-up, and the waker that counts its wake-ups.
struct WarmUp {
    bell: Arc<Bell>,
    future: Boxed<'static, Result<(), OperationError>>,
}

impl WarmUp {
    /// Begins a warm-up, which waits.
    fn begin(house: &mut House, count: Option<u32>, deadline: Option<Instant>) -> Self {
        let (core, server) = (house.core, house.server.clone());
        let future = Box::pin(async move { core.warm_up_server(&server, count, deadline).await });
        let mut warm_up = Self { bell: Arc::new(Bell::default()), future };
        assert!(warm_up.poll().is_pending());
        house.run();
        warm_up
    }

    fn poll(&mut self) -> Poll<Result<(), OperationError>> {
        self.bell.poll(&mut self.future)
    }

    /// Returns the result if the warm-up was woken and is complete.
    fn woken(&mut self) -> Option<Result<(), OperationError>> {
        if self.bell.rings() == 0 {
            return None;
        }
        match self.poll() {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }
}

fn reconfigure(house: &mut House, pool: PoolOptions) {
    house.core.reconfigure_pools(pool.validate().unwrap());
    house.run();
}

fn target(house: &House) -> u32 {
    house.server.state.with(|state| state.driven.pool.fill_target())
}

/// Makes the server answer from now on. Connections that wait for it are closed, and are
/// established again.
fn answer(house: &mut House) {
    house.bench.mute(false);
    let cause = Cause::Network;
    house.server.command(house.core.now(), PoolCommand::Clear { interrupt_in_use_connections: true, cause });
    house.server.settle();
    house.server.command(house.core.now(), PoolCommand::Ready);
    house.server.settle();
    house.run();
}

#[test]
fn warm_up_ends_when_the_connections_are_established() {
    let mut house = house(TEN);
    house.bench.mute(false);
    let guards = house.guards(2);
    let mut warm_up = WarmUp::begin(&mut house, Some(5), None);
    assert_eq!(house.counts(), [0, 3, 2, 0], "without a check-out");
    assert_eq!(warm_up.woken(), Some(Ok(())));
    assert_eq!(target(&house), 0);
    drop(guards);
    assert_eq!(house.counts(), [0, 5, 0, 0]);
}

/// The warm-up waits for no more connections than the current maximum.
#[test]
#[doc(alias = "CMAP-01")]
fn warm_up_ends_when_max_pool_size_is_lowered_below_it() {
    let mut house = house(TEN);
    house.bench.mute(false);
    let guards = house.guards(3);
    house.bench.mute(true);
    let mut warm_up = WarmUp::begin(&mut house, Some(10), None);
    assert_eq!(house.counts(), [1, 0, 3, 0], "it holds none");
    reconfigure(&mut house, PoolOptions { max_pool_size: 4, ..TEN });
    assert_eq!(warm_up.woken(), None);
    reconfigure(&mut house, PoolOptions { max_pool_size: 3, ..TEN });
    assert_eq!(warm_up.woken(), Some(Ok(())));
    drop(guards);
}

#[test]
fn warm_up_takes_nothing_from_operations() {
    let mut house = house(PoolOptions { wait_queue_timeout: Some(Duration::from_secs(1)), ..TEN });
    house.bench.mute(false);
    drop(house.guards(2));
    house.bench.mute(true);
    let mut warm_up = WarmUp::begin(&mut house, Some(10), None);
    assert_eq!(house.counts(), [1, 2, 0, 0]);
    let guards = house.guards(2);
    // waitQueueTimeoutMS does not apply to the warm-up.
    house.pass(Duration::from_secs(5));
    assert_eq!(warm_up.woken(), None);
    assert_eq!(house.counts(), [1, 0, 2, 0]);
    drop(guards);
}

#[test]
fn warm_up_ends_when_operations_have_established_the_connections() {
    let mut house = house(TEN);
    let mut warm_up = WarmUp::begin(&mut house, Some(2), None);
    // The warm-up's connection hangs; operations get others that do not.
    house.bench.mute(false);
    let mut waiting: Vec<_> = (0..2).map(|_| house.check_out(None)).collect();
    waiting.iter_mut().for_each(|one| assert!(poll(one).is_pending()));
    house.run();
    let first = poll(&mut waiting[0]);
    assert!(matches!(first, Poll::Ready(Ok(_))));
    house.run();
    let second = poll(&mut waiting[1]);
    assert!(matches!(second, Poll::Ready(Ok(_))));
    assert_eq!(house.counts(), [1, 0, 2, 0]);
    assert_eq!(warm_up.woken(), Some(Ok(())));
}

#[test]
fn pool_is_not_filled_further_after_the_warm_up_is_dropped() {
    let mut house = house(TEN);
    let mut ten = WarmUp::begin(&mut house, Some(10), None);
    let mut three = WarmUp::begin(&mut house, Some(3), None);
    assert_eq!(target(&house), 10);
    drop(ten);
    assert_eq!(target(&house), 3);
    ten = WarmUp::begin(&mut house, Some(10), None);
    answer(&mut house);
    assert_eq!((three.woken(), ten.woken()), (Some(Ok(())), Some(Ok(()))));
    assert_eq!(house.counts(), [0, 10, 0, 0]);
    drop((ten, three));
    house.bench.mute(true);
    reconfigure(&mut house, PoolOptions { max_pool_size: 20, ..TEN });
    let last = WarmUp::begin(&mut house, Some(15), None);
    assert_eq!(house.counts(), [1, 10, 0, 0]);
    drop(last);
    assert_eq!(target(&house), 0);
}

#[test]
fn each_of_several_warm_ups_ends_at_its_own_number() {
    let mut house = house(TEN);
    let mut two = WarmUp::begin(&mut house, Some(2), None);
    let mut three = WarmUp::begin(&mut house, Some(3), None);
    // The warm-up's connection hangs; operations get others that do not.
    house.bench.mute(false);
    let mut guards = house.guards(1);
    assert_eq!((two.woken(), three.woken()), (None, None));
    guards.extend(house.guards(1));
    assert_eq!((two.woken(), three.woken()), (Some(Ok(())), None));
    drop(two);
    assert_eq!(target(&house), 3);
    guards.extend(house.guards(1));
    assert_eq!(three.woken(), Some(Ok(())));
    assert_eq!(house.counts(), [1, 0, 3, 0]);
    drop(guards);
}

/// A clear is no error: the warm-up continues when the server is known again.
#[test]
fn warm_up_continues_after_a_clear() {
    let mut house = house(TEN);
    house.bench.mute(false);
    drop(house.guards(4));
    house.bench.mute(true);
    let mut warm_up = WarmUp::begin(&mut house, Some(5), None);
    answer(&mut house);
    assert_eq!(warm_up.woken(), Some(Ok(())));
    assert_eq!(house.counts(), [0, 5, 0, 0]);
}

#[test]
fn warm_up_returns_the_reason_of_a_failed_connection() {
    let mut house = house(TEN);
    let mut warm_up = WarmUp::begin(&mut house, Some(2), None);
    assert_eq!(house.counts(), [1, 0, 0, 0]);
    // Both workers end, one of them during an establishment.
    house.stop(2);
    house.stop(1);
    let failed = CheckOutError::EstablishFailed { cause: Cause::Cancelled, overloaded: false };
    assert_eq!(warm_up.woken(), Some(Err(OperationError::check_out_of("a:27017", failed))));
    drop(warm_up);
    assert_eq!(target(&house), 0);
}

#[test]
fn warm_pool_is_no_failure() {
    let mut house = house(TEN);
    let mut warm_up = WarmUp::begin(&mut house, Some(2), None);
    house.stop(2);
    house.stop(1);
    // Another worker establishes the missing connections before the warm-up is polled.
    house.bench.mute(false);
    house.start(ServerTask::Worker);
    let guards = house.guards(2);
    assert_eq!(warm_up.woken(), Some(Ok(())));
    drop(guards);
}

#[test]
fn warm_up_ends_at_its_deadline() {
    let mut house = house(TEN);
    let at = house.core.now().saturating_add(Duration::from_secs(1));
    let mut warm_up = WarmUp::begin(&mut house, Some(2), Some(at));
    house.pass(Duration::from_secs(1));
    assert_eq!(warm_up.poll(), Poll::Ready(Err(OperationError::Timeout)));
    drop(warm_up);
    assert_eq!(target(&house), 0);
}

#[test]
fn warm_up_ends_when_the_client_is_closed() {
    let mut house = house(TEN);
    let mut warm_up = WarmUp::begin(&mut house, Some(2), None);
    house.core.close();
    house.run();
    assert_eq!(warm_up.woken(), Some(Err(OperationError::check_out_of("a:27017", CheckOutError::PoolClosed))));
}

#[test]
fn warm_up_to_the_minimum_follows_the_options() {
    let mut house = house(PoolOptions { min_pool_size: 3, ..TEN });
    let mut warm_up = WarmUp::begin(&mut house, None, None);
    reconfigure(&mut house, PoolOptions { min_pool_size: 5, ..TEN });
    assert_eq!(target(&house), 5);
    reconfigure(&mut house, TEN);
    assert_eq!(warm_up.woken(), Some(Ok(())), "nothing is asked for any more");
}

/// With memory for one connection, one task may wait.
#[test]
fn warm_up_in_fixed_memory_ends_when_that_is_full() {
    let (bench, core, server) = open();
    bench.mute(true);
    let mut first: Boxed<'_, _> = Box::pin(core.warm_up_server(&server, Some(7), None));
    assert!(poll(&mut first).is_pending());
    let mut second: Boxed<'_, _> = Box::pin(core.warm_up_server(&server, Some(7), None));
    let busy = CheckOutError::Busy { waiting: 0 };
    assert_eq!(poll(&mut second), Poll::Ready(Err(OperationError::check_out_of("a:27017", busy))));
    bench.mute(false);
    let mut establishing = worker(&core, &server);
    assert!(poll(&mut establishing).is_pending());
    assert_eq!(poll(&mut first), Poll::Ready(Ok(())));
}
