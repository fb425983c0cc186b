//! Threads, locks and wakers whose every interleaving is tried.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::task::Wake;
use core::future::poll_fn;
use core::mem::ManuallyDrop;
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::{Context, Poll, Waker};
use loom::sync::{Mutex, MutexGuard};
use loom::thread::{self, JoinHandle, Thread};
use poolhouse_core::shell::{Lock, Locked};

/// How many switches between threads one run may have; what the allocations of a model are sized by.
const BRANCHES_MAX: usize = 4_000;

/// Of each thread, in words. What is not used of it costs nothing.
const STACK_WORDS: usize = 0x8000;

/// `all`: every scenario is as deep as it says. Unset, it is so only if that is no matter of seconds.
const DEPTH: &str = "POOLHOUSE_INTERLEAVINGS";

/// How deep those are that would take long.
const PREEMPTIONS_QUICK: usize = 2;

/// Which interleavings are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Every one of them. There are few.
    All,
    /// Every one, when there is time.
    AllInTime,
    /// When there is time, those in which a thread that could go on is stopped so many times at most: there are too many others.
    Preemptions(usize),
}

impl Depth {
    /// How many preemptions there are; `None` is no limit.
    fn preemptions(self) -> Option<usize> {
        let in_time = std::env::var_os(DEPTH).is_some_and(|depth| depth == "all");
        match self {
            Self::All => None,
            Self::AllInTime => (!in_time).then_some(PREEMPTIONS_QUICK),
            Self::Preemptions(count) => Some(if in_time { count } else { PREEMPTIONS_QUICK }),
        }
    }
}

/// Runs a scenario in every interleaving, and prints how many those are. In each, `scenario` is called anew, by a thread of the model that may
/// start three more, and tells what came of it. Gives all that came of it.
///
/// # Panics
///
/// When in one of them `scenario` does, or no thread can go on: a wake-up was lost, or two threads wait for each other's locks.
pub(crate) fn explore(
    name: &str,
    depth: Depth,
    scenario: impl Fn() -> &'static str + Send + Sync + 'static,
) -> Vec<&'static str> {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = BRANCHES_MAX;
    builder.preemption_bound = depth.preemptions();
    // Whatever the environment says: who counts on all of them is not to be told fewer.
    (builder.max_permutations, builder.max_duration) = (None, None);
    let scenario = Arc::new(scenario);
    let runs = Arc::new(AtomicUsize::new(0));
    let outcomes = Arc::new(std::sync::Mutex::new(BTreeMap::<&str, usize>::new()));
    let (begun, ended) = (Arc::clone(&runs), Arc::clone(&outcomes));
    builder.check(move || {
        begun.fetch_add(1, Ordering::Relaxed);
        let scenario = Arc::clone(&scenario);
        // The stack of the first thread is too small.
        let outcome = join(spawn(move || scenario()));
        *ended.lock().expect("whole").entry(outcome).or_default() += 1;
    });
    let runs = runs.load(Ordering::Relaxed);
    let bound = match depth.preemptions() {
        None => String::from("all"),
        Some(count) => format!("those of up to {count} preemptions"),
    };
    let outcomes = outcomes.lock().expect("whole");
    let told: Vec<String> = outcomes.iter().map(|(outcome, count)| format!("{outcome} {count}")).collect();
    println!("interleavings: {name}: {runs}, {bound} ({})", told.join(", "));
    outcomes.keys().copied().collect()
}

fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    thread::Builder::new().stack_size(STACK_WORDS).spawn(work).expect("a thread of the model")
}

/// Runs a future on a thread of its own.
pub(crate) fn task<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    spawn(move || block_on(future))
}

/// What a thread gives. One that panics ends the whole model.
pub(crate) fn join<T>(thread: JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|_| panic!("it has not panicked"))
}

/// Polls a future whenever it is woken, until it is done.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    block_on_with(Parker::sleep, future)
}

/// - `sleep`: returns when the parker was woken since it last did.
pub(crate) fn block_on_with<F: Future>(sleep: fn(&Parker), future: F) -> F::Output {
    let parker = Arc::new(Parker::new());
    let waker = Waker::from(Arc::clone(&parker));
    // A model that fails unwinds its threads when their locks are no more: nothing of theirs is dropped then.
    let mut future = ManuallyDrop::new(Box::pin(future));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            drop(ManuallyDrop::into_inner(future));
            return output;
        }
        sleep(&parker);
    }
}

/// Polls a future whose task nobody needs to wake.
pub(crate) fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls a future once, and drops it.
pub(crate) async fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// What a future that has nothing to wait for gives.
pub(crate) fn done<F: Future>(future: F) -> F::Output {
    match poll(&mut Box::pin(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

/// Where a task sleeps. The mutex makes the order of sleeping and waking one of the model's choices, which `park` alone would not.
pub(crate) struct Parker {
    woken: Mutex<bool>,
    thread: Thread,
}

impl Parker {
    fn new() -> Self {
        Self { woken: Mutex::new(false), thread: thread::current() }
    }

    /// Returns when it was woken since it last did.
    pub(crate) fn sleep(&self) {
        while !self.take() {
            thread::park();
        }
    }

    /// Whether it was woken since this was last asked.
    pub(crate) fn take(&self) -> bool {
        core::mem::take(&mut *lock(&self.woken))
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *lock(&self.woken) = true;
        self.thread.unpark();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("a model ends with its first panic")
}

/// The lock of the shell.
pub(crate) struct Turnstile<T>(Mutex<T>);

impl<T> Lock<T> for Turnstile<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }
}

impl<T> Locked<T> for Turnstile<T> {
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // As with futures: it is not released when a model that fails unwinds.
        let mut value = ManuallyDrop::new(lock(&self.0));
        let result = f(&mut value);
        drop(ManuallyDrop::into_inner(value));
        result
    }
}
