//! loom: every order of the threads of a scenario.

use super::model::{Depth, Work, join, lock};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
pub(crate) use loom::sync::{Mutex, MutexGuard};
pub(crate) use loom::thread::JoinHandle;
use loom::thread::{self, Thread};

/// What its lines of figures begin with.
pub(crate) const NAME: &str = "interleavings";

/// How many switches between threads one run may have; what the allocations of a model are sized by.
const BRANCHES_MAX: usize = 4_000;

/// Of each thread, in words. What is not used of it costs nothing.
const STACK_WORDS: usize = 0x8000;

/// `all`: every scenario is as deep as it says. Unset, it is so only if that is no matter of seconds.
const DEPTH: &str = "POOLHOUSE_INTERLEAVINGS";

/// How deep those are that would take long.
const PREEMPTIONS_QUICK: usize = 2;

/// How many preemptions there are; `None` is no limit.
fn preemptions(depth: Depth) -> Option<usize> {
    let in_time = std::env::var_os(DEPTH).is_some_and(|depth| depth == "all");
    match depth {
        Depth::All => None,
        Depth::AllInTime => (!in_time).then_some(PREEMPTIONS_QUICK),
        Depth::Preemptions(count) => Some(if in_time { count } else { PREEMPTIONS_QUICK }),
    }
}

/// Does `work` in every order of its threads, of which there may be three besides the first. Says which orders those are.
pub(crate) fn check(depth: Depth, work: Work) -> String {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = BRANCHES_MAX;
    builder.preemption_bound = preemptions(depth);
    // Whatever the environment says: who counts on all of them is not to be told fewer.
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

/// Its lines say all.
pub(crate) const fn note(_name: &str, _runs: usize, _outcomes: &BTreeMap<&str, usize>) {}

pub(crate) fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    thread::Builder::new().stack_size(STACK_WORDS).spawn(work).expect("a thread of the model")
}

/// Wakes the thread that has made it. The mutex makes the order of sleeping and waking one of the model's choices, which `park` alone would not.
pub(crate) struct Bell {
    rung: Mutex<bool>,
    thread: Thread,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self { rung: Mutex::new(false), thread: thread::current() }
    }

    /// Returns when it was rung since it was last asked.
    pub(crate) fn wait(&self) {
        while !self.take() {
            thread::park();
        }
    }

    /// Whether it was rung since it was last asked.
    pub(crate) fn take(&self) -> bool {
        core::mem::take(&mut *lock(&self.rung))
    }

    pub(crate) fn ring(&self) {
        *lock(&self.rung) = true;
        self.thread.unpark();
    }
}
