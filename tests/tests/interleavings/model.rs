//! Threads, locks and wakers in an order that the engine chooses: loom explores every order,
//! shuttle a random sample.

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

/// The orders that are explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Every order, which are few.
    All,
    /// Every order, until one of them fails.
    Flaw,
    /// Every order, if time permits.
    AllInTime,
    /// If time permits, the orders with at most this number of preemptions: all orders would be too
    /// many.
    Preemptions(usize),
}

/// Runs once for each order.
pub(crate) type Work = Arc<dyn Fn() + Send + Sync>;

/// A future of a task.
pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Runs a scenario in the orders that the engine chooses, and prints their number. In each order,
/// `scenario` is called again, by a thread of the engine that may start others, and returns its
/// outcome. Returns all outcomes.
///
/// # Panics
///
/// If `scenario` panics in one of the orders, or if no thread can continue: a wake-up was lost, or
/// two threads wait for each other's locks.
pub(crate) fn explore(
    name: &str,
    depth: Depth,
    scenario: impl Fn() -> &'static str + Send + Sync + 'static,
) -> Vec<&'static str> {
    explore_with(name, |work| engine::check(depth, work), scenario)
}

/// - `check`: runs the work in the orders that it chooses, and returns their description.
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
    let reported: Vec<String> = outcomes.iter().map(|(outcome, count)| format!("{outcome} {count}")).collect();
    println!("{}: {name}: {runs}, {bound} ({})", engine::NAME, reported.join(", "));
    outcomes.keys().copied().collect()
}

/// Runs a future on a separate thread.
pub(crate) fn task<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    spawn(move || block_on(future))
}

/// The result of a thread. A thread that panics ends the whole model.
pub(crate) fn join<T>(thread: JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|_| panic!("the thread has panicked"))
}

/// Polls a future whenever it is woken, until it is done.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    block_on_with(Parker::sleep, future)
}

/// - `sleep`: returns when the parker was woken since the last call.
pub(crate) fn block_on_with<F: Future>(sleep: fn(&Parker), future: F) -> F::Output {
    let parker = Arc::new(Parker::new());
    let waker = Waker::from(Arc::clone(&parker));
    // When a model fails, its threads unwind after their locks are gone: their values must not be
    // dropped then.
    let mut future = ManuallyDrop::new(Box::pin(future));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            drop(ManuallyDrop::into_inner(future));
            return output;
        }
        sleep(&parker);
    }
}

/// Polls a future once, without a waker.
pub(crate) fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls a future once, and drops it.
pub(crate) async fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// The result of a future that is ready at its first poll.
pub(crate) fn done<F: Future>(future: F) -> F::Output {
    match poll(&mut Box::pin(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

/// Blocks a thread until its task is woken.
pub(crate) struct Parker(engine::Bell);

impl Parker {
    fn new() -> Self {
        Self(engine::Bell::new())
    }

    /// Returns when it was woken since the last call.
    pub(crate) fn sleep(&self) {
        self.0.wait();
    }

    /// Whether it was woken since the last call.
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

/// The lock of the driver.
pub(crate) struct Turnstile<T>(Mutex<T>);

impl<T> Lock<T> for Turnstile<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }
}

impl<T> Locked<T> for Turnstile<T> {
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // As with futures: it is not released when a failing model unwinds.
        let mut value = ManuallyDrop::new(lock(&self.0));
        let result = f(&mut value);
        drop(ManuallyDrop::into_inner(value));
        result
    }
}
