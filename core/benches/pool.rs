//! The cost of the pool, as ratios measured in one run: `cargo bench -p poolhouse-core`.
//!
//! The floor is the minimum of any pool behind a lock: lock a `std::sync::Mutex<Vec<_>>` and pop,
//! lock it and push. Figures are medians of rounds in which all cases of a table take turns, so a
//! slowdown of the machine affects all of them. Instructions are counted by
//! `tests/scripts/instructions`.

#[path = "support/median.rs"]
mod median;

use core::hint::black_box;
use median::{ROUNDS, median, medians, time_of};
use poolhouse_core::Instant;
use poolhouse_core::pool::{
    CheckOut, Claim, Fixed, Health, Lease, Memory, OnHeap, Pool, PoolAction, PoolId, PoolOptions, WaiterId,
};
use std::sync::Mutex;

/// The numbers of waiters in the queue.
const QUEUES: [u32; 4] = [10, 1_000, 100_000, 1_000_000];

fn main() {
    println!("machine: {} cores", std::thread::available_parallelism().map_or(1, usize::from));
    sizes();
    cycles();
    for deadlines in [Deadlines::Equal, Deadlines::Random] {
        queue(deadlines);
    }
    abandoned();
}

/// Bytes per connection and per waiter, from the difference of two pools in fixed memory.
fn sizes() {
    let conn = size_of::<Pool<Fixed<11, 1>>>() - size_of::<Pool<Fixed<1, 1>>>();
    let waiter = size_of::<Pool<Fixed<1, 65>>>() - size_of::<Pool<Fixed<1, 1>>>();
    let service = size_of::<Pool<Fixed<1, 1, 11>>>() - size_of::<Pool<Fixed<1, 1, 1>>>();
    println!(
        "\nmemory: {} bytes for each connection, {} for each waiter, {} for each service",
        conn / 10,
        waiter / 64,
        service / 10
    );
    println!("        {} further bytes for a pool on the heap", size_of::<Pool<OnHeap>>());
}

/// Check-out and check-in with an available connection.
fn cycles() {
    let mut bare = warm_pool::<OnHeap>(10);
    let mut fixed = warm_pool::<Fixed<16, 16>>(10);
    let locked = Mutex::new(warm_pool::<OnHeap>(10));
    let floor = Mutex::new((0..10_u64).collect::<Vec<_>>());
    let mut clock = Clock(1_000);
    let mut clock_fixed = Clock(1_000);
    let mut clock_locked = Clock(1_000);
    let [floor_ns, bare_ns, fixed_ns, locked_ns] = medians(
        400_000,
        [
            &mut || {
                let item = floor.lock().expect("not poisoned").pop();
                floor.lock().expect("not poisoned").extend(black_box(item));
            },
            &mut || cycle(&mut bare, &mut clock),
            &mut || cycle(&mut fixed, &mut clock_fixed),
            &mut || {
                let now = clock_locked.tick();
                let granted = locked.lock().expect("not poisoned").check_out(now, None, &mut ());
                let Ok(CheckOut::Granted(lease)) = black_box(granted) else {
                    unreachable!("a connection is available")
                };
                let back = locked.lock().expect("not poisoned").check_in(now, lease, Health::Healthy, &mut ());
                back.expect("ours");
            },
        ],
    );
    println!("\ncheck-out + check-in                          ns   times the floor (aim: 3 with the lock)");
    row("Mutex<Vec<_>> pop + push (the floor)", floor_ns, floor_ns);
    row("pool on the heap, no lock", bare_ns, floor_ns);
    row("pool in fixed memory, no lock", fixed_ns, floor_ns);
    row("Mutex<pool on the heap>", locked_ns, floor_ns);
}

fn cycle<M: Memory>(pool: &mut Pool<M>, clock: &mut Clock) {
    let now = clock.tick();
    let granted = pool.check_out(now, None, &mut ());
    let Ok(CheckOut::Granted(lease)) = black_box(granted) else { unreachable!("a connection is available") };
    pool.check_in(now, lease, Health::Healthy, &mut ()).expect("ours");
}

/// Hand-off and cancellation, with queues of different lengths.
fn queue(deadlines: Deadlines) {
    println!("\n{deadlines:?} deadlines: ns (times the same with 1,000 waiters; aim at a million: 2)");
    print!("{:<44}", "waiters");
    for waiters in QUEUES {
        print!("{waiters:>20}");
    }
    println!();
    let mut tables: Vec<Queue> = QUEUES.into_iter().map(|waiters| Queue::new(waiters, deadlines)).collect();
    line("hand-off: check-in, wake, claim, queue again", &mut tables, Queue::hand_off);
    line("poll_timeout", &mut tables, |queue| {
        black_box(queue.pool.poll_timeout());
    });
    let mut tables: Vec<Queue> = QUEUES.into_iter().map(|waiters| Queue::new(waiters, deadlines)).collect();
    line("cancel of the newest, queue again", &mut tables, Queue::cancel_newest);
    line("cancel of the oldest, queue again", &mut tables, Queue::cancel_oldest);
    line("cancel of any, queue again", &mut tables, Queue::cancel_any);
    line("the last without the pool: random reads only", &mut tables, Queue::touch_any);
    tables.iter_mut().for_each(Queue::scatter);
    line("hand-off, neighbours scattered in memory", &mut tables, Queue::hand_off);
}

fn line(name: &str, tables: &mut [Queue], step: fn(&mut Queue)) {
    let mut figures = vec![Vec::new(); tables.len()];
    for _ in 0..ROUNDS {
        for (table, figures) in tables.iter_mut().zip(&mut figures) {
            // Each round passes a large part of the queue, so caches do not hide the effect of its
            // length.
            figures.push(time_of(50_000, &mut || step(table)));
        }
    }
    let figures: Vec<f64> = figures.into_iter().map(median).collect();
    print!("{name:<44}");
    for figure in &figures {
        print!("{:>20}", format!("{figure:.0} ({:.1})", figure / figures[1]));
    }
    println!();
}

/// The cost of cancelled check-outs for the next one.
fn abandoned() {
    println!("\nabandoned waiters: ns of the next check-out with its hand-off (times that without any)");
    let mut first = 0.0;
    for gone in [0, 1_000, 1_000_000] {
        let mut queue = Queue::new(1, Deadlines::Random);
        let ids: Vec<WaiterId> = (0..gone).map(|_| queue.enter()).collect();
        for id in ids {
            queue.pool.cancel(queue.clock.tick(), id, &mut ());
        }
        while queue.pool.poll_prompt().is_some() {}
        let figure = median((0..ROUNDS).map(|_| time_of(50_000, &mut || queue.hand_off())).collect());
        if gone == 0 {
            first = figure;
        }
        println!("{gone:>44}{:>20}", format!("{figure:.0} ({:.1})", figure / first));
    }
}

/// The order of deadlines in a queue.
#[derive(Clone, Copy, Debug)]
enum Deadlines {
    /// The same timeout for all waiters: later waiters have later deadlines.
    Equal,
    /// In random order.
    Random,
}

/// A pool with one connection, which is in use, and a queue of waiters.
struct Queue {
    pool: Pool<OnHeap>,
    clock: Clock,
    lease: Option<Lease>,
    ids: Vec<WaiterId>,
    oldest: usize,
    deadlines: Deadlines,
    state: u64,
}

impl Queue {
    fn new(waiters: u32, deadlines: Deadlines) -> Self {
        let mut pool = warm_pool::<OnHeap>(1);
        pool.reserve(1, waiters + 1).expect("memory");
        let mut clock = Clock(1_000);
        let Ok(CheckOut::Granted(lease)) = pool.check_out(clock.tick(), None, &mut ()) else {
            unreachable!("a connection is available")
        };
        let mut queue =
            Self { pool, clock, lease: Some(lease), ids: Vec::new(), oldest: 0, deadlines, state: 0x9e37_79b9 };
        for _ in 0..waiters {
            let id = queue.enter();
            queue.ids.push(id);
        }
        queue
    }

    fn random(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn enter(&mut self) -> WaiterId {
        let now = self.clock.tick();
        let away = match self.deadlines {
            Deadlines::Equal => 1 << 40,
            Deadlines::Random => (1 << 40) + (self.random() >> 24),
        };
        let deadline = Instant::from_nanos(now.as_nanos() + away);
        let Ok(CheckOut::Queued(id)) = self.pool.check_out(now, Some(deadline), &mut ()) else {
            unreachable!("the connection is in use")
        };
        id
    }

    fn hand_off(&mut self) {
        let Some(lease) = self.lease.take() else { unreachable!("put back below") };
        let now = self.clock.tick();
        if self.pool.counts().waiting == 0 {
            let _ = self.enter();
        }
        self.pool.check_in(now, lease, Health::Healthy, &mut ()).expect("ours");
        let Some(PoolAction::Wake(id)) = self.pool.poll_prompt() else { unreachable!("somebody waits") };
        let Claim::Granted(lease) = self.pool.claim(now, id) else { unreachable!("it was woken") };
        self.lease = Some(lease);
        let _ = black_box(self.enter());
    }

    fn again(&mut self, place: usize) {
        self.pool.cancel(self.clock.tick(), self.ids[place], &mut ());
        self.ids[place] = self.enter();
    }

    fn cancel_newest(&mut self) {
        self.again(self.ids.len() - 1);
    }

    fn cancel_oldest(&mut self) {
        self.again(self.oldest);
        self.oldest = (self.oldest + 1) % (self.ids.len() - 1);
    }

    fn any(&mut self) -> usize {
        let random = self.random() >> 32;
        ((random * self.ids.len() as u64) >> 32).try_into().expect("an index")
    }

    fn cancel_any(&mut self) {
        let place = self.any();
        self.again(place);
    }

    /// Cancels all waiters in random order and queues new ones, so the order in memory is unrelated
    /// to the order in the queue.
    fn scatter(&mut self) {
        for place in (1..self.ids.len()).rev() {
            let other = self.any() % (place + 1);
            self.ids.swap(place, other);
        }
        for place in 0..self.ids.len() {
            self.pool.cancel(self.clock.tick(), self.ids[place], &mut ());
        }
        for place in 0..self.ids.len() {
            self.ids[place] = self.enter();
        }
        while self.pool.poll_prompt().is_some() {}
    }

    fn touch_any(&mut self) {
        let place = self.any();
        black_box(self.ids[place]);
    }
}

/// A clock that advances by a microsecond with each reading.
struct Clock(u64);

impl Clock {
    fn tick(&mut self) -> Instant {
        self.0 += 1_000;
        Instant::from_nanos(self.0)
    }
}

/// A pool with this number of connections, all available.
fn warm_pool<M: Memory>(conns: u32) -> Pool<M> {
    let options = PoolOptions { max_pool_size: conns, max_connecting: conns, ..PoolOptions::DEFAULT };
    let now = Instant::ORIGIN;
    let mut pool = Pool::new(now, PoolId::new(0), options.validate().expect("valid"), &mut ());
    pool.ready(now, &mut ());
    let waiting: Vec<WaiterId> = (0..conns)
        .map(|_| match pool.check_out(now, None, &mut ()) {
            Ok(CheckOut::Queued(id)) => id,
            _ => unreachable!("no connection is available"),
        })
        .collect();
    while let Some(conn) = pool.poll_establish() {
        pool.handle_established(now, conn, &mut ()).expect("pending");
    }
    for id in waiting {
        let Claim::Granted(lease) = pool.claim(now, id) else { unreachable!("all are established") };
        pool.check_in(now, lease, Health::Healthy, &mut ()).expect("ours");
    }
    while pool.poll_action(now).is_some() {}
    pool
}

fn row(name: &str, ns: f64, floor: f64) {
    println!("{name:<40}{ns:>9.1}{:>12.2}", ns / floor);
}
