//! Wakers run arbitrary code when they are woken and when they are dropped, so neither happens
//! under a lock.

use super::wide::Bell;
use super::*;
use crate::driven::Drive as _;
use alloc::sync::Weak;
use alloc::task::Wake;

/// A waker that reads the state of the whole client when it is dropped.
struct Nosy {
    core: Weak<ClientCore<Bench>>,
    dropped: Arc<AtomicUsize>,
    /// Polled when the waker is woken.
    other: Mutex<Option<Pin<Box<dyn Future<Output = bool> + Send>>>>,
}

impl Wake for Nosy {
    fn wake(self: Arc<Self>) {
        let other = self.other.lock().unwrap().take();
        if let Some(mut other) = other {
            assert_eq!(poll(&mut other), Poll::Ready(true));
        }
    }
}

impl Drop for Nosy {
    fn drop(&mut self) {
        let Some(core) = self.core.upgrade() else { return };
        let mut servers = 0;
        // Takes the lock of the client core and of each server, and then each again.
        core.for_each_server(|_| {
            core.for_each_server(|_| servers += 1);
        });
        assert_eq!(servers, 1);
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

fn nosy(core: &Arc<ClientCore<Bench>>, dropped: &Arc<AtomicUsize>) -> Arc<Nosy> {
    let (core, dropped) = (Arc::downgrade(core), Arc::clone(dropped));
    Arc::new(Nosy { core, dropped, other: Mutex::new(None) })
}

#[test]
fn waker_of_a_dropped_check_out_is_dropped_outside_the_lock() {
    let (_, core, server) = open();
    let dropped = Arc::new(AtomicUsize::new(0));
    let mut waiting = Box::pin(core.check_out_of(Arc::clone(&server), None, None));
    for replaced in 0..2 {
        let waker = Waker::from(nosy(&core, &dropped));
        assert!(Future::poll(waiting.as_mut(), &mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        assert_eq!(dropped.load(Ordering::Relaxed), replaced, "another waker takes the place of the first");
    }
    drop(waiting);
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
}

/// Two tasks wait and both must be woken. The first waker polls the second task, which finds its
/// outcome before it is woken.
#[test]
fn waker_left_over_by_a_claim_is_dropped_outside_the_lock() {
    let (bench, core, server) = open();
    let dropped = Arc::new(AtomicUsize::new(0));
    let (first, second) = (nosy(&core, &dropped), nosy(&core, &dropped));
    let mut one = Box::pin(core.check_out_of(Arc::clone(&server), None, None));
    let shared = Arc::clone(&core);
    let handle = Arc::clone(&server);
    let mut other: Pin<Box<dyn Future<Output = bool> + Send>> =
        Box::pin(async move { shared.check_out_of(handle, None, None).await.is_err() });
    let waker = Waker::from(Arc::clone(&first));
    assert!(Future::poll(one.as_mut(), &mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    let waker = Waker::from(second);
    assert!(other.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    *first.other.lock().unwrap() = Some(other);
    drop(first);
    let cause = Cause::Network;
    server.command(bench.now(), PoolCommand::Clear { interrupt_in_use_connections: false, cause });
    server.settle();
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
    let cause = Some(cause);
    let Poll::Ready(Err(error)) = poll(&mut one) else { panic!("cleared") };
    assert_eq!(error, OperationError::check_out_of("a:27017", CheckOutError::PoolCleared { cause }));
}

#[test]
fn waker_of_a_dropped_selection_is_dropped_outside_the_lock() {
    let (_, core, _server) = open();
    let dropped = Arc::new(AtomicUsize::new(0));
    let mut waiting = Box::pin(core.select_server(&SelectionRequest::WRITE, None));
    for _ in 0..2 {
        let waker = Waker::from(nosy(&core, &dropped));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    drop(waiting);
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
}

/// If a runtime has a fixed number of tasks, each task that starts servers' tasks waits separately.
#[test]
fn all_waits_for_servers_are_woken_by_new_servers() {
    let core = core_for(Bench::new(), TopologyOptions { seeds: &["a", "b"], ..Default::default() }, |_| ());
    for _ in 0..2 {
        assert!(done(core.next_server()).is_some());
    }
    let mut waiting: Vec<_> = (0..4).map(|_| (Arc::new(Bell::default()), Box::pin(core.next_server()))).collect();
    for (bell, next) in &mut waiting {
        assert!(bell.poll(next).is_pending());
    }
    // A waiter that was dropped takes no other waiter's turn.
    let _gone = waiting.pop();
    core.change_seeds(["a", "b", "c", "d"].into_iter()).expect("there is room");
    let found = waiting.iter_mut().map(|(bell, next)| {
        assert!(bell.rings() > 0, "it is not woken");
        bell.poll(next)
    });
    let found = found.filter(|next| matches!(next, Poll::Ready(Some(_)))).count();
    assert_eq!(found, 2);
    core.close();
    let rings: usize = waiting.iter().map(|(bell, _)| bell.rings()).sum();
    assert_eq!(rings, 1, "whoever found none waits on, and hears of the end");
}
