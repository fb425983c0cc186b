//! One connection and a long queue of waiters, each with a deadline.
//!
//! A step: the connection is returned, the oldest waiter gets it, and a new waiter joins the end of
//! the queue.

use crate::allocator::counted;
use crate::measure::{Rounds, ns_each};
use crate::pools::floor::Floor;
use crate::pools::locked::Locked;
use crate::pools::others;
use crate::pools::peer::{LIMIT, Peer};
use crate::pools::tokio;
use crate::report::{Section, Table};
use crate::settings::Settings;
use alloc::collections::VecDeque;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

/// Numbers of waiters; other pools are measured only up to their own maximum.
const QUEUES: [usize; 3] = [1_000, 100_000, 1_000_000];
const QUICK: [usize; 3] = [1_000, 5_000, 20_000];
const OTHERS_MAX: usize = 100_000;

pub(super) fn run(settings: &Settings) -> Section {
    let runtime = tokio(1);
    let _entered = runtime.enter();
    let queues = if settings.quick { QUICK } else { QUEUES };
    let names: Vec<String> = queues.iter().map(|count| format!("{count}")).collect();
    let columns = [names[0].as_str(), &names[1], &names[2], "last of first", "bytes a waiter"];
    let mut table = Table::new("check-in, hand-off and check-out with this number of waiters, ns", &columns);
    let rows = [
        row(settings, "floor: mutex, FIFO hand-off, timer wheel", &queues, usize::MAX, || Floor::new(1)),
        row(settings, "poolhouse-core behind a mutex", &queues, usize::MAX, || Locked::new(1)),
        row(settings, "deadpool, with a time limit", &queues, OTHERS_MAX, || others::deadpool(1, Some(LIMIT))),
        row(settings, "bb8", &queues, OTHERS_MAX, || runtime.block_on(others::bb8(1))),
    ];
    for (name, figures) in rows {
        table.row(name, &figures);
    }
    let mut section = Section::new("scale");
    section.tables.push(table);
    section.note(format!("Other pools are measured with up to {OTHERS_MAX} waiters. mobc is left out, because a separate task hands its connections over. The bytes of a waiter are those of its future and of all memory that is allocated for it."));
    section
}

fn row<P: Peer>(
    settings: &Settings,
    name: &'static str,
    queues: &[usize; 3],
    most: usize,
    made: impl Fn() -> P,
) -> (&'static str, [f64; 5]) {
    let mut figures = [f64::NAN; 5];
    for (place, &count) in queues.iter().enumerate() {
        if count <= most {
            // Leaked, because futures borrow the pool. The process has no other pool.
            let pool: &'static P = Box::leak(Box::new(made()));
            let (ns, bytes) = steps(settings, pool, count);
            (figures[place], figures[4]) = (ns, bytes);
            figures[3] = ns / figures[0];
        }
    }
    (name, figures)
}

/// Nanoseconds of a step, and bytes of a waiter.
fn steps<P: Peer>(settings: &Settings, pool: &'static P, count: usize) -> (f64, f64) {
    let mut context = Context::from_waker(Waker::noop());
    let mut held = polled(&mut Box::pin(pool.get()), &mut context);
    assert!(held.is_some(), "it is free");
    let mut queue = VecDeque::with_capacity(count + 1);
    let enter = |queue: &mut VecDeque<_>, context: &mut Context<'_>| {
        let mut waiter = Box::pin(pool.get());
        assert!(polled(&mut waiter, context).is_none(), "the connection is in use");
        queue.push_back(waiter);
    };
    let ((), taken) = counted(|| (0..count).for_each(|_| enter(&mut queue, &mut context)));
    let times = u32::try_from(settings.of(500, 50_000)).expect("not many");
    let ns = Rounds::of(settings.rounds(), 1, |_| {
        ns_each(times, || {
            let mut oldest = queue.pop_front().expect("the queue is not empty");
            drop(held.take());
            held = polled(&mut oldest, &mut context);
            assert!(held.is_some(), "the oldest waiter receives the connection");
            enter(&mut queue, &mut context);
        })
    });
    (ns.median(0), taken.bytes as f64 / count as f64)
}

fn polled<F: Future>(future: &mut Pin<Box<F>>, context: &mut Context<'_>) -> Option<F::Output> {
    match future.as_mut().poll(context) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
