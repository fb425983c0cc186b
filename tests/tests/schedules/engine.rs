//! shuttle: randomly chosen orders of the threads of a scenario.

use super::model::{Depth, Work, lock};
use core::cell::Cell;
use core::ops::Range;
use poolhouse_tests::seeds::drawn;
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler};
use shuttle::sync::Condvar;
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
use shuttle::thread;
pub(crate) use shuttle::thread::JoinHandle;
use shuttle::{Config, MaxSteps, Runner};
use std::env;

/// Prefix of the lines with figures.
pub(crate) const NAME: &str = "schedules";

/// Number of schedules of each scenario with each scheduler, without effort.
const SCHEDULES: u64 = 20;

/// The number for a short scenario.
const SCHEDULES_OF_SHORT: u64 = 400;

/// The seeds for a scenario with a flaw, which one in some thousand of its schedules finds.
const SEEDS_OF_FLAW: Range<u64> = 20_261_122..20_271_122;

/// Environment variable: the schedule to run, instead of any other.
const SCHEDULE: &str = "POOLHOUSE_SCHEDULE";

/// Maximum number of steps, more than the longest schedule has: a run with more makes no progress.
const STEPS_MAX: usize = 200_000;

/// Stack size of each thread, in bytes. Unused pages cost nothing.
const STACK_BYTES: usize = 0x80000;

/// The depth of PCT: the number of changes of priorities, including the start.
const fn depth_of(depth: Depth) -> usize {
    match depth {
        Depth::All | Depth::Flaw | Depth::AllInTime => 3,
        Depth::Preemptions(count) => count + 1,
    }
}

/// Whether a single schedule is replayed.
pub(crate) fn is_replay() -> bool {
    env::var_os(SCHEDULE).is_some()
}

/// Runs `work` in some orders of its threads. Returns a description of these orders.
pub(crate) fn check(depth: Depth, work: Work) -> String {
    let seeds = match depth {
        Depth::Flaw => SEEDS_OF_FLAW,
        Depth::All => drawn(SCHEDULES_OF_SHORT),
        Depth::AllInTime | Depth::Preemptions(_) => drawn(SCHEDULES),
    };
    check_many(&seeds, depth_of(depth), work)
}

/// - `seeds`: the first, and their number for each scheduler.
/// - `depth`: of PCT.
pub(crate) fn check_many(seeds: &Range<u64>, depth: usize, work: Work) -> String {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    let count = usize::try_from(seeds.end - seeds.start).expect("some thousand");
    let work: Work = alloc::sync::Arc::new(move || {
        // The first thread.
        AWAKE.set(1);
        work();
    });
    if let Ok(schedule) = env::var(SCHEDULE) {
        Runner::new(ReplayScheduler::new_from_encoded(&schedule), config).run(move || work());
        return String::from("the requested schedule");
    }
    let again = Work::clone(&work);
    Runner::new(PctScheduler::new_from_seed(seeds.start, depth, count), config.clone()).run(move || again());
    Runner::new(RandomScheduler::new_from_seed(seeds.start, count), config).run(move || work());
    format!("half of them by PCT of depth {depth}")
}

std::thread_local! {
    /// The number of threads of this schedule that are ready, or wait for a lock.
    static AWAKE: Cell<usize> = const { Cell::new(0) };
}

/// Whether only the calling thread is ready, in addition to the first thread, which waits for
/// others to end.
pub(crate) fn is_quiet() -> bool {
    AWAKE.get() <= 2
}

/// Runs a closure on a separate thread.
pub(crate) fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    AWAKE.set(AWAKE.get() + 1);
    thread::spawn(move || {
        let result = work();
        AWAKE.set(AWAKE.get() - 1);
        result
    })
}

/// Wakes a thread. It does not use `park`, which shuttle treats as a yield: PCT then assigns the
/// lowest priority.
pub(crate) struct Bell {
    state: Mutex<BellState>,
    changed: Condvar,
}

#[derive(Default)]
struct BellState {
    rung: bool,
    /// Its thread is not ready until it is rung.
    awaited: bool,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::default(), changed: Condvar::new() }
    }

    /// Returns when it was rung since the last call.
    pub(crate) fn wait(&self) {
        let mut state = lock(&self.state);
        while !core::mem::take(&mut state.rung) {
            // A thread that is rung for a state it has already processed is ready without a reason.
            if !core::mem::replace(&mut state.awaited, true) {
                AWAKE.set(AWAKE.get() - 1);
            }
            state = self.changed.wait(state).expect("a model ends with its first panic");
        }
    }

    /// Whether it was rung since the last call.
    pub(crate) fn take(&self) -> bool {
        core::mem::take(&mut lock(&self.state).rung)
    }

    pub(crate) fn ring(&self) {
        let mut state = lock(&self.state);
        state.rung = true;
        if core::mem::take(&mut state.awaited) {
            AWAKE.set(AWAKE.get() + 1);
        }
        drop(state);
        self.changed.notify_one();
    }
}
