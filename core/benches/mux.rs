//! The cost of a multiplexed pool, as ratios measured in one run:
//! `cargo bench -p poolhouse-core --bench mux`.
//!
//! The floor is the minimum of any pool of numbers behind a lock: lock a `std::sync::Mutex<Vec<_>>`
//! and pop, lock it and push. Figures are medians of rounds in which all cases of a table take
//! turns. Instructions are counted by `tests/scripts/instructions`; a test (`alloc_free`) checks
//! that nothing is allocated.

#[path = "support/median.rs"]
mod median;

use core::hint::black_box;
use median::medians;
use poolhouse_core::Instant;
use poolhouse_core::mux::{
    Acquire, HostOptions, Mux, MuxAction, MuxClaim, MuxFixed, MuxId, MuxMemory, MuxOnHeap, MuxOptions, Reply, Stream,
    Written, stream_words,
};
use std::sync::Mutex;

/// The number of stream ids of a connection.
const IDS: u32 = 32_768;
/// The number of free ids when 99 % are taken.
const FREE: u32 = IDS / 100;

fn main() {
    println!("machine: {} cores", std::thread::available_parallelism().map_or(1, usize::from));
    println!("memory: {} bytes of stream ids for each connection", stream_words(IDS) * 8);
    streams();
    queue();
}

/// A request cycle on empty connections, and on connections with 99 % of their ids taken, at
/// random.
fn streams() {
    let floor = Mutex::new((0..10_u64).collect::<Vec<_>>());
    let mut fixed = Case::<MuxFixed<1, 1, { stream_words(IDS) }>>::new(1, 0);
    let cases = [(1, 0), (1, IDS - FREE), (8, 0), (8, IDS - FREE)];
    let [mut one, mut one_full, mut eight, mut eight_full] =
        cases.map(|(conns, taken)| Case::<MuxOnHeap>::new(conns, taken));
    let [floor_ns, fixed_ns, one_ns, one_full_ns, eight_ns, eight_full_ns] = medians(
        200_000,
        [
            &mut || {
                let item = floor.lock().expect("not poisoned").pop();
                floor.lock().expect("not poisoned").extend(black_box(item));
            },
            &mut || fixed.request(),
            &mut || one.request(),
            &mut || one_full.request(),
            &mut || eight.request(),
            &mut || eight_full.request(),
        ],
    );
    println!("\nacquire + handle_reply + release                      ns   times the empty one (aim: 2)");
    row("Mutex<Vec<_>> pop + push (the floor)", floor_ns, one_ns);
    row("1 connection in fixed memory, empty", fixed_ns, one_ns);
    row("1 connection, empty", one_ns, one_ns);
    row("1 connection, 99 % full", one_full_ns, one_ns);
    row("8 connections, empty", eight_ns, eight_ns);
    row("8 connections, 99 % full", eight_full_ns, eight_ns);
    let [one_ns, one_full_ns, eight_ns, eight_full_ns] = medians(
        200_000,
        [&mut || one.give_back(), &mut || one_full.give_back(), &mut || eight.give_back(), &mut || {
            eight_full.give_back()
        }],
    );
    println!("\nacquire + release without a written request           ns   times the empty one (aim: 2)");
    row("1 connection, empty", one_ns, one_ns);
    row("1 connection, 99 % full", one_full_ns, one_ns);
    row("8 connections, empty", eight_ns, eight_ns);
    row("8 connections, 99 % full", eight_full_ns, eight_ns);
}

/// Hand-off to the next waiter, with queues of different lengths.
fn queue() {
    println!("\nhand-off: reply, release, wake, claim, queue again    ns   times the same with 10");
    let mut cases = [(1, 10), (1, 1_000), (1, 100_000), (8, 1_000)].map(|(conns, waiters)| {
        let mut case = Case::<MuxOnHeap>::new(conns, IDS);
        (0..waiters).for_each(|_| case.enter());
        case
    });
    let [a, b, c, d] = &mut cases;
    let figures =
        medians(50_000, [&mut || a.hand_off(), &mut || b.hand_off(), &mut || c.hand_off(), &mut || d.hand_off()]);
    let names = [
        "1 connection, 10 wait",
        "1 connection, 1,000 wait",
        "1 connection, 100,000 wait",
        "8 connections, 1,000 wait",
    ];
    for (name, figure) in names.into_iter().zip(figures) {
        row(name, figure, figures[0]);
    }
}

/// A pool in which this number of ids is taken on each connection.
struct Case<M: MuxMemory = MuxOnHeap> {
    mux: Mux<M>,
    now: u64,
    held: Vec<Stream>,
    state: u64,
}

impl<M: MuxMemory> Case<M> {
    fn new(conns: u32, taken: u32) -> Self {
        let host = HostOptions {
            core_connections: conns,
            max_connections: conns,
            max_requests_per_connection: IDS,
            new_connection_threshold: IDS,
        };
        let options = MuxOptions { local: host, max_queue_size: u32::MAX, ..MuxOptions::DEFAULT };
        let mut mux = Mux::new(Instant::ORIGIN, MuxId::new(0), options.validate().expect("valid"), &mut ());
        while let Some(action) = mux.poll_action(Instant::ORIGIN) {
            let MuxAction::Establish(conn) = action else { unreachable!("nothing else is owed") };
            mux.handle_established(Instant::ORIGIN, conn, &mut ()).expect("pending");
        }
        let mut case = Self { mux, now: 0, held: Vec::new(), state: 0x9e37_79b9 };
        // All ids are taken once, then random ones are released, so the free ids are scattered.
        let all: Vec<Stream> = (0..conns * IDS).map(|_| case.acquire()).collect();
        case.held = all;
        while case.held.len() > (conns * taken) as usize {
            case.answer_any();
        }
        case
    }

    fn now(&mut self) -> Instant {
        self.now += 1;
        Instant::from_nanos(self.now)
    }

    fn any(&mut self) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (((self.state >> 32) * self.held.len() as u64) >> 32).try_into().expect("an index")
    }

    fn acquire(&mut self) -> Stream {
        let now = self.now();
        let Ok(Acquire::Granted(stream)) = self.mux.acquire(now, None, &mut ()) else { unreachable!("an id is free") };
        stream
    }

    fn answer(&mut self, stream: Stream) {
        let now = self.now();
        let told = self.mux.handle_reply(now, stream.conn(), i32::from(stream.id()), &mut ());
        assert_eq!(told, Ok(Reply::Request));
        self.mux.release(now, stream, Written::Perhaps, &mut ()).expect("ours");
    }

    fn answer_any(&mut self) {
        let place = self.any();
        let stream = self.held.swap_remove(place);
        self.answer(stream);
    }

    /// A request cycle. If other requests are in flight, the reply is to one of these.
    fn request(&mut self) {
        let stream = black_box(self.acquire());
        if self.held.is_empty() {
            self.answer(stream);
        } else {
            let place = self.any();
            let other = core::mem::replace(&mut self.held[place], stream);
            self.answer(other);
        }
    }

    /// A request that is cancelled before it is written.
    fn give_back(&mut self) {
        let now = self.now();
        let Ok(Acquire::Granted(stream)) = self.mux.acquire(now, None, &mut ()) else { unreachable!("an id is free") };
        self.mux.release(now, black_box(stream), Written::No, &mut ()).expect("ours");
    }

    fn enter(&mut self) {
        let now = self.now();
        let Ok(Acquire::Queued(_)) = self.mux.acquire(now, None, &mut ()) else { unreachable!("all ids are taken") };
    }

    fn hand_off(&mut self) {
        self.answer_any();
        let now = self.now();
        let Some(MuxAction::Wake(waiter)) = self.mux.poll_action(now) else { unreachable!("somebody waits") };
        let MuxClaim::Granted(stream) = self.mux.claim(now, waiter) else { unreachable!("it was woken") };
        self.held.push(stream);
        self.enter();
    }
}

fn row(name: &str, ns: f64, one: f64) {
    println!("{name:<46}{ns:>10.1}{:>10.2}", ns / one);
}
