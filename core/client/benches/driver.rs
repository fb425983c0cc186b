//! The cost that the driver adds to the pool, and the effect of a second thread:
//! `cargo bench -p poolhouse-client --bench driver`.
//!
//! The server is a stream in memory, so no I/O is done. Threads check out and drop connections of
//! one pool as fast as possible; the floor is a `std::sync::Mutex<Vec<_>>` of the same number of
//! items, popped and pushed. Figures are medians of rounds in which all cases take turns.

extern crate alloc;

#[path = "support/memory.rs"]
mod memory;

use core::hint::black_box;
use std::sync::{Barrier, Mutex};
use std::time::Instant;

/// The number of figures of a median.
const ROUNDS: usize = 9;
/// Cycles of each thread per round.
const CYCLES: u32 = 400_000;
const CONNECTIONS: u32 = 10;

fn main() {
    println!("machine: {} cores", std::thread::available_parallelism().map_or(1, usize::from));
    let client = memory::warm(1, CONNECTIONS);
    let floor = Mutex::new((0..CONNECTIONS).collect::<Vec<_>>());
    let driver = || drop(black_box(memory::guard(&client)));
    let whole = || drop(black_box(memory::now(client.check_out()).expect("a connection")));
    let least = || {
        let item = floor.lock().expect("not poisoned").pop();
        floor.lock().expect("not poisoned").extend(black_box(item));
    };
    let cases: [(&str, &(dyn Fn() + Sync)); 3] = [
        ("Mutex<Vec<_>> pop + push (the floor)", &least),
        ("driver: check-out + drop", &driver),
        ("client: check-out + drop", &whole),
    ];
    println!("\n{:<40}{:>14}{:>26}{:>10}", "", "ns, 1 thread", "ns, 2 threads together", "ratio");
    let mut rounds = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for ((_, step), figures) in cases.iter().zip(&mut rounds) {
            figures.push((time_of(1, *step), time_of(2, *step)));
        }
    }
    for ((name, _), figures) in cases.iter().zip(rounds) {
        let one = median(figures.iter().map(|(one, _)| *one).collect());
        let two = median(figures.iter().map(|(_, two)| *two).collect());
        // The ratio of throughputs: two threads together to one thread.
        let ratio = median(figures.iter().map(|(one, two)| one / two).collect());
        println!("{name:<40}{one:>14.1}{two:>26.1}{ratio:>10.2}");
    }
}

/// The time of one cycle in nanoseconds: the total time divided by the cycles of all threads.
fn time_of(threads: u32, step: &(dyn Fn() + Sync)) -> f64 {
    let begin = Barrier::new(threads as usize + 1);
    let start = std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                begin.wait();
                (0..CYCLES).for_each(|_| step());
            });
        }
        begin.wait();
        Instant::now()
    });
    start.elapsed().as_secs_f64() * 1e9 / f64::from(threads * CYCLES)
}

/// The median of the figures.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
