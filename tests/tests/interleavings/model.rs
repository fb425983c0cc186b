//! Threads, locks and wakers whose order is the engine's choice: loom's, which takes every one, or shuttle's, which takes some by chance.

use super::engine::{self, JoinHandle, Mutex, MutexGuard, spawn};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::task::Wake;
use core::future::poll_fn;
use core::mem::ManuallyDrop;
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::{Context, Poll, Waker};
use poolhouse_driver::{Lock, Locked};

/// Which orders are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Every one of them. There are few.
    All,
    /// Every one, when there is time.
    AllInTime,
    /// When there is time, those in which a thread that could go on is stopped so many times at most: there are too many others.
    Preemptions(usize),
}

/// What is done once for each order.
pub(crate) type Work = Arc<dyn Fn() + Send + Sync>;

/// A future of a task.
pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Runs a scenario in the orders that the engine chooses, and prints how many those are. In each, `scenario` is called anew, by a thread of the
/// engine that may start others, and tells what came of it. Gives all that came of it.
///
/// # Panics
///
/// When in one of them `scenario` does, or no thread can go on: a wake-up was lost, or two threads wait for each other's locks.
pub(crate) fn explore(
    name: &str,
    depth: Depth,
    scenario: impl Fn() -> &'static str + Send + Sync + 'static,
) -> Vec<&'static str> {
    explore_with(name, |work| engine::check(depth, work), scenario)
}

/// - `check`: runs the work in the orders that it chooses, and says which those are.
pub(crate) fn explore_with(
    name: &str,
    check: impl FnOnce(Work) -> String,
    scenario: impl Fn() -> &'static str + Send + Sync + 'static,
) -> Vec<&'static str> {
    let runs = Arc::new(AtomicUsize::new(0));
    let outcomes = Arc::new(std::sync::Mutex::new(BTreeMap::<&str, usize>::new()));
    let (begun, ended) = (Arc::clone(&runs), Arc::clone(&outcomes));
    let bound = check(Arc::new(move || {
        begun.fetch_add(1, Ordering::Relaxed);
        let outcome = scenario();
        *ended.lock().expect("whole").entry(outcome).or_default() += 1;
    }));
    let runs = runs.load(Ordering::Relaxed);
    let outcomes = outcomes.lock().expect("whole");
    let told: Vec<String> = outcomes.iter().map(|(outcome, count)| format!("{outcome} {count}")).collect();
    println!("{}: {name}: {runs}, {bound} ({})", engine::NAME, told.join(", "));
    engine::note(name, runs, &outcomes);
    outcomes.keys().copied().collect()
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

/// Where a task sleeps.
pub(crate) struct Parker(engine::Bell);

impl Parker {
    fn new() -> Self {
        Self(engine::Bell::new())
    }

    /// Returns when it was woken since it last did.
    pub(crate) fn sleep(&self) {
        self.0.wait();
    }

    /// Whether it was woken since this was last asked.
    pub(crate) fn take(&self) -> bool {
        self.0.take()
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.0.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.ring();
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
