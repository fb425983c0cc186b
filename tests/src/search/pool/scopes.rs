//! The scopes of the pool.

use super::{Can, Input, Shape, Store, mark};
use core::time::Duration;
use poolhouse_core::pool::PoolOptions;

/// A tick, in nanoseconds.
const TICK: u64 = 1_000_000;

/// A duration of some ticks, minus a nanosecond, so that it has elapsed at the tick.
const fn ticks(count: u64) -> Duration {
    Duration::from_nanos(count * TICK)
}

const fn sized(max_pool_size: u32, max_connecting: u32) -> PoolOptions {
    PoolOptions { max_pool_size, max_connecting, ..PoolOptions::DEFAULT }
}

fn shape(name: &'static str, options: PoolOptions, clients: usize, can: &[Can], reaches: u64) -> Shape {
    Shape {
        name,
        options,
        others: Vec::new(),
        store: Store::Fixed4,
        clients,
        can: can.to_vec(),
        eager: true,
        limits: [u8::MAX; Input::LIMITED],
        tick: TICK,
        horizon: TICK,
        never_ready: false,
        reaches,
        states: 1_000_000,
    }
}

impl Shape {
    fn lazy(mut self) -> Self {
        self.eager = false;
        self
    }

    fn in_place(mut self) -> Self {
        self.store = Store::Fixed2;
        self
    }

    fn on_heap(mut self) -> Self {
        self.store = Store::Heap;
        self
    }

    /// Limits the number of an input.
    fn at_most(mut self, input: Input, count: u8) -> Self {
        self.limits[input.limit().expect("an input that can be limited")] = count;
        self
    }

    fn looking_back(mut self, count: u64) -> Self {
        self.horizon = count * TICK;
        self
    }

    fn others(mut self, others: &[PoolOptions]) -> Self {
        self.others = others.to_vec();
        self
    }

    fn never_ready(mut self) -> Self {
        self.never_ready = true;
        self
    }
}

/// The scopes that every build searches.
#[must_use]
pub fn scopes() -> Vec<Shape> {
    use Can::{
        Again, Break, Cancel, Clear, ClearService, Close, Deadline, Due, Fail, FailClear, Fill, Fork, Interrupt, Pass,
        Tick, Untimed,
    };
    use mark::{ABANDON, BACKGROUND, BUSY, CANCEL_BOUND, CANCEL_GRANTED, CLEARED, CLOSED, DUE, ERROR, HANDED_ON, IDLE};
    use mark::{INTERRUPT, QUEUE, SERVICE_FULL, STALE, STALE_NEWS, SURPLUS, TIMEOUT, UNTIMED};
    let filled = |options: PoolOptions, min_pool_size| PoolOptions { min_pool_size, ..options };
    let balanced = PoolOptions { load_balanced: true, ..sized(2, 2) };
    let timed = PoolOptions { wait_queue_timeout: Some(ticks(2)), ..sized(1, 1) };
    let idle = PoolOptions { max_idle_time: Some(ticks(2) - Duration::from_nanos(1)), ..sized(2, 2) };
    let all = [Cancel, Again, Break, Fail, FailClear, Clear, Interrupt, Close, Fork];
    let faults = [Cancel, Break, Fail, Clear, Interrupt, Close];
    vec![
        shape("one client, anything", sized(1, 1), 1, &all, STALE | ERROR | INTERRUPT | ABANDON | STALE_NEWS | CLOSED)
            .lazy()
            .in_place(),
        shape(
            "two clients, one connection",
            sized(1, 1),
            2,
            &faults,
            QUEUE | HANDED_ON | CANCEL_GRANTED | CANCEL_BOUND | CLEARED,
        )
        .lazy()
        .in_place(),
        shape(
            "two clients, two connections",
            sized(2, 1),
            2,
            &[Cancel, Break, Fail, Close],
            QUEUE | CANCEL_BOUND | ERROR,
        )
        .lazy(),
        shape("three clients, one connection", sized(1, 1), 3, &faults, QUEUE | STALE | INTERRUPT),
        shape(
            "three clients, two connections",
            sized(2, 1),
            3,
            &[Cancel, Fail, Clear, Close],
            QUEUE | STALE | HANDED_ON | CLOSED,
        ),
        shape("three clients, two at a time", sized(2, 2), 3, &[Cancel, Fail, Break], QUEUE | ERROR | CANCEL_BOUND),
        shape("no limit", sized(0, 2), 3, &[Cancel, Fail, Break, Close], QUEUE | CANCEL_GRANTED).on_heap(),
        shape("never ready", sized(1, 1), 2, &[Cancel, Clear, Interrupt, Close, Fork, Due], CLEARED).never_ready(),
        shape(
            "filled in the background",
            filled(sized(2, 1), 1),
            2,
            &[Cancel, Fail, Clear, Close, Due],
            BACKGROUND | STALE | DUE,
        ),
        shape(
            "filled to the maximum",
            filled(sized(2, 2), 2),
            2,
            &[Cancel, Break, Fail, FailClear, Due],
            BACKGROUND | ERROR,
        ),
        shape(
            "filled by check-outs",
            PoolOptions { background: false, ..filled(sized(2, 1), 2) },
            2,
            &[Cancel, Break, Fail, Clear, Close, Due],
            BACKGROUND | QUEUE,
        ),
        shape("idle connections", idle, 2, &[Cancel, Clear, Tick, Pass], IDLE | STALE).looking_back(3),
        shape("waiting with a limit", timed, 3, &[Cancel, Fail, Tick, Pass], TIMEOUT | QUEUE).looking_back(3),
        shape("deadlines of check-outs", sized(1, 1), 3, &[Deadline, Cancel, Fail, Tick], TIMEOUT | QUEUE)
            .looking_back(3),
        shape("load-balanced", balanced, 2, &[Cancel, Fail, ClearService, Fork, Due], STALE | ERROR)
            .at_most(Input::Clear, 1),
        shape("load-balanced, one service", balanced, 2, &[Cancel, Fail, ClearService], SERVICE_FULL)
            .at_most(Input::Clear, 1)
            .in_place(),
        shape("no slot left", sized(0, 2), 4, &[Break, Clear, Due], BUSY | DUE | STALE).in_place().lazy(),
        shape("other options", sized(2, 2), 2, &[Cancel, Fail, Due], SURPLUS | IDLE | QUEUE).others(&[
            sized(1, 1),
            sized(2, 1),
            sized(2, 2),
        ]),
        shape("filled once", sized(2, 1), 2, &[Cancel, Clear, Fail, Fill, Due], BACKGROUND | STALE)
            .at_most(Input::Clear, 1)
            .at_most(Input::Fail(0), 2)
            .at_most(Input::Fill(0), 4),
        shape(
            "interrupted again and again",
            sized(2, 2),
            2,
            &[Clear, Interrupt, Break],
            INTERRUPT | ABANDON | STALE_NEWS | CLEARED,
        )
        .lazy()
        .in_place(),
        shape("cancelled everywhere", sized(2, 2), 3, &[Cancel, Again], CANCEL_GRANTED | CANCEL_BOUND | QUEUE).lazy(),
        shape("forked", filled(sized(2, 1), 1), 2, &[Cancel, Fork, Fail, Due], STALE | INTERRUPT).lazy().in_place(),
        shape("four clients, one connection", sized(1, 1), 4, &[Cancel, Fail, Clear], QUEUE | STALE | HANDED_ON),
        shape(
            "no subscriber",
            sized(2, 1),
            2,
            &[Untimed, Cancel, Clear, Close, Break],
            UNTIMED | QUEUE | STALE | CLOSED,
        ),
    ]
}

/// The scopes that take minutes.
#[must_use]
pub fn bigger() -> Vec<Shape> {
    use Can::{Again, Break, Cancel, Clear, Close, Deadline, Due, Fail, FailClear, Fill, Fork, Interrupt, Pass, Tick};
    use mark::{BACKGROUND, IDLE, INTERRUPT, QUEUE, STALE, TIMEOUT};
    let all = [Cancel, Again, Break, Fail, FailClear, Clear, Interrupt, Close, Fork];
    let alive = PoolOptions {
        min_pool_size: 1,
        max_idle_time: Some(ticks(2) - Duration::from_nanos(1)),
        wait_queue_timeout: Some(ticks(2)),
        ..sized(2, 1)
    };
    let big = |mut shape: Shape| {
        shape.states = 60_000_000;
        shape
    };
    vec![
        big(shape("three clients, two connections, anything", sized(2, 2), 3, &all, QUEUE | STALE | INTERRUPT)),
        big(shape("two clients, two connections, anything, one action at a time", sized(2, 2), 2, &all, QUEUE | STALE)
            .lazy()),
        big(shape(
            "four clients, two connections",
            sized(2, 1),
            4,
            &[Cancel, Fail, Clear, Interrupt],
            QUEUE | INTERRUPT,
        )),
        big(shape(
            "time, idling, filling",
            alive,
            2,
            &[Cancel, Fail, Clear, Tick, Pass, Deadline],
            IDLE | TIMEOUT | BACKGROUND,
        )
        .looking_back(3)),
        big(shape(
            "filled once, anything",
            sized(3, 1),
            3,
            &[Cancel, Break, Fail, Clear, Fill, Due],
            BACKGROUND | STALE,
        )),
    ]
}
