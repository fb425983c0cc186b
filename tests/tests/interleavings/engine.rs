//! loom: every order of the threads of a scenario.

use super::model::{Depth, Work, join, lock};
use alloc::sync::Arc;
pub(crate) use loom::sync::{Mutex, MutexGuard};
pub(crate) use loom::thread::JoinHandle;
use loom::thread::{self, Thread};
use poolhouse_tests::effort;

/// Prefix of the lines with figures.
pub(crate) const NAME: &str = "interleavings";

/// Maximum number of switches between threads in a run; determines the size of a model's
/// allocations.
const BRANCHES_MAX: usize = 4_000;

/// Stack size of each thread, in words. Unused pages cost nothing.
const STACK_WORDS: usize = 0x8000;

/// With `all`, and with more effort, every scenario has its specified depth. Otherwise only scenarios that then
/// take seconds have it.
const DEPTH: &str = "POOLHOUSE_INTERLEAVINGS";

/// The depth of scenarios that would take long.
const PREEMPTIONS_QUICK: usize = 2;

/// The maximum number of preemptions; `None` is no limit.
fn preemptions(depth: Depth) -> Option<usize> {
    let in_time = std::env::var_os(DEPTH).is_some_and(|depth| depth == "all") || effort() > 1;
    match depth {
        Depth::All | Depth::Flaw => None,
        Depth::AllInTime => (!in_time).then_some(PREEMPTIONS_QUICK),
        Depth::Preemptions(count) => Some(if in_time { count } else { PREEMPTIONS_QUICK }),
    }
}

/// Runs `work` in every order of its threads, of which there may be three in addition to the first.
/// Returns a description of these orders.
pub(crate) fn check(depth: Depth, work: Work) -> String {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = BRANCHES_MAX;
    builder.preemption_bound = preemptions(depth);
    // Overrides the environment: a lower limit would skip orders.
    (builder.max_permutations, builder.max_duration) = (None, None);
    builder.check(move || {
        let work = Arc::clone(&work);
        // The stack of the first thread is too small.
        join(spawn(move || work()));
    });
    match preemptions(depth) {
        None => String::from("all"),
        Some(count) => format!("those of up to {count} preemptions"),
    }
}

pub(crate) fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    thread::Builder::new().stack_size(STACK_WORDS).spawn(work).expect("a thread of the model")
}

/// Wakes the thread that has created it. The mutex makes the order of sleeping and waking one of
/// the model's choices, which `park` alone would not.
pub(crate) struct Bell {
    rung: Mutex<bool>,
    thread: Thread,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self { rung: Mutex::new(false), thread: thread::current() }
    }

    /// Returns when it was rung since the last call.
    pub(crate) fn wait(&self) {
        while !self.take() {
            thread::park();
        }
    }

    /// Whether it was rung since the last call.
    pub(crate) fn take(&self) -> bool {
        core::mem::take(&mut *lock(&self.rung))
    }

    pub(crate) fn ring(&self) {
        *lock(&self.rung) = true;
        self.thread.unpark();
    }
}
