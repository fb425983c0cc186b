//! Wakers of a faulty executor: their `clone` or `drop` panics, or calls the client. The client must hold no
//! lock while it clones a waker.
#![allow(unsafe_code, reason = "a waker whose clone does something cannot be written without; libraries forbid it")]

extern crate alloc;

use alloc::sync::Arc;
use core::fmt::Debug;
use core::future::Future;
use core::panic::AssertUnwindSafe;
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use core::time::Duration;
use poolhouse_smol::{Client, ClientOptions, ServerMonitoringMode};
use poolhouse_tests::fake::{FailPoint, FailPointMode, FakeOptions, FakeServer};
use poolhouse_tests::patience::{PATIENCE, eventually, run};
use std::panic::catch_unwind;
use std::sync::{Mutex, mpsc};

/// The functions that are called first when the waker is cloned, and when it is dropped. Waking does
/// nothing, because the tests poll the futures themselves.
struct Trick {
    on_clone: Box<dyn Fn() + Send + Sync>,
    on_drop: Box<dyn Fn() + Send + Sync>,
}

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: the waker that is cloned owns a count of this Arc.
    let trick = unsafe { &*data.cast::<Trick>() };
    (trick.on_clone)();
    // SAFETY: as above; the clone owns the new count.
    unsafe { Arc::increment_strong_count(data.cast::<Trick>()) };
    RawWaker::new(data, &VTABLE)
}

unsafe fn wake_by_ref(_: *const ()) {}

unsafe fn drop_waker(data: *const ()) {
    // SAFETY: the waker that is dropped owns this count.
    let trick = unsafe { Arc::from_raw(data.cast::<Trick>()) };
    (trick.on_drop)();
}

const VTABLE: RawWakerVTable = RawWakerVTable::new(clone, drop_waker, wake_by_ref, drop_waker);

fn waker(on_clone: impl Fn() + Send + Sync + 'static) -> Waker {
    waker_of(on_clone, || ())
}

fn waker_of(on_clone: impl Fn() + Send + Sync + 'static, on_drop: impl Fn() + Send + Sync + 'static) -> Waker {
    let data = Arc::into_raw(Arc::new(Trick { on_clone: Box::new(on_clone), on_drop: Box::new(on_drop) }));
    // SAFETY: the functions above keep the contract of RawWaker: thread-safe, and each waker owns
    // one count.
    unsafe { Waker::from_raw(RawWaker::new(data.cast(), &VTABLE)) }
}

fn panicking() -> Waker {
    waker(|| panic!("this waker cannot be cloned"))
}

fn poll_with<F: Future + ?Sized>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

/// Polls once with a waker that panics when it is cloned, and drops the future.
fn poll_and_panic<F: Future<Output: Debug>>(what: &str, future: F) {
    let mut future = pin!(future);
    let polled = catch_unwind(AssertUnwindSafe(|| poll_with(future.as_mut(), &panicking())));
    assert!(polled.is_err(), "{what}: the future waits, so it must clone the waker: {polled:?}");
}

fn server() -> FakeServer {
    FakeServer::start(FakeOptions::default()).expect("the fake server starts")
}

fn client(server: &FakeServer) -> Client {
    let mut options = ClientOptions::new(server.address().to_string()).max_pool_size(1);
    options.monitor.server_monitoring_mode = ServerMonitoringMode::Poll;
    options.monitor.heartbeat_frequency = Duration::from_secs(600);
    options.timeout = Some(PATIENCE);
    Client::with_options(options).expect("the options are right")
}

/// A client that never finds its server.
fn lonely() -> Client {
    Client::with_options(ClientOptions::new("127.0.0.1:1")).expect("the options are right")
}

fn ping() -> bson::Document {
    bson::doc! { "ping": 1 }
}

#[test]
fn a_waker_whose_clone_panics_leaks_no_slot() {
    run(async {
        let server = server();
        let client = client(&server);
        // A waker is cloned before the check-out is queued if the last one waited, and otherwise after it.
        drop(client.check_out().await.expect("a connection"));
        let held = client.check_out().await.expect("a connection");
        poll_and_panic("check_out", client.check_out());
        // The same with a subscriber, for which every step emits events, and after a check-out that
        // waited.
        let mut subscription = client.subscribe();
        poll_and_panic("check_out", client.check_out());
        poll_and_panic("check_out", client.check_out());
        drop(held);
        let held = client.check_out().await.expect("the only connection is not lost");
        eventually("no other check-out waits", || {
            client
                .servers()
                .first()
                .is_some_and(|server| server.pool.counts.waiting == 0 && server.pool.counts.in_use == 1)
        })
        .await;
        while subscription.try_next().is_some() {}
        poll_and_panic("next", subscription.next());
        drop(held);
        // A waiter that is polled with another waker than before.
        let held = client.check_out().await.expect("a connection");
        {
            let mut waiting = pin!(client.check_out());
            assert!(poll_with(waiting.as_mut(), Waker::noop()).is_pending());
            assert!(catch_unwind(AssertUnwindSafe(|| poll_with(waiting.as_mut(), &panicking()))).is_err());
        }
        drop(held);
        client.run_command("admin", ping()).await.expect("the only connection is not lost");
        poll_and_panic("run_command", client.run_command("admin", ping()));
        client.run_command("admin", ping()).await.expect("a second command");
        client.close().await;
        let lonely = lonely();
        for _ in 0..3 {
            poll_and_panic("select", lonely.run_command("admin", ping()));
            poll_and_panic("warm_up", lonely.warm_up(PATIENCE));
        }
        lonely.close().await;
    });
}

/// At the first poll of a check-out, and while the check-out waits.
#[test]
fn a_connection_that_is_returned_while_the_waker_is_cloned_is_granted() {
    run(async {
        let server = server();
        // The client is leaked, because the guard in the waker borrows it.
        let client: &'static Client = Box::leak(Box::new(client(&server)));
        // Afterwards a waker is cloned when the check-out is queued, and not before it.
        drop(client.check_out().await.expect("a connection"));
        for waits in [false, true] {
            let held = Arc::new(Mutex::new(Some(client.check_out().await.expect("a connection"))));
            let returning = {
                let held = Arc::clone(&held);
                waker(move || drop(held.lock().expect("not poisoned").take()))
            };
            let mut check_out = pin!(client.check_out());
            if waits {
                assert!(poll_with(check_out.as_mut(), Waker::noop()).is_pending());
            }
            let Poll::Ready(granted) = poll_with(check_out.as_mut(), &returning) else {
                panic!("the connection was returned")
            };
            // The slot of the waiter is free for the next one.
            {
                let mut next = pin!(client.check_out());
                assert!(poll_with(next.as_mut(), Waker::noop()).is_pending());
                drop(granted.expect("a connection"));
                assert!(poll_with(next.as_mut(), Waker::noop()).is_ready());
            }
        }
        client.close().await;
    });
}

/// The clone of the waker is not needed: the connection is available, or it is returned while the
/// waker is cloned.
#[test]
fn a_connection_is_granted_although_the_drop_of_a_waker_panics() {
    run(async {
        let server = server();
        // The client is leaked, because the guard in the waker borrows it.
        let client: &'static Client = Box::leak(Box::new(client(&server)));
        for waits in [false, true] {
            let held = Arc::new(Mutex::new(Some(client.check_out().await.expect("a connection"))));
            let panics = Arc::new(AtomicUsize::new(0));
            let faulty = {
                let (held, panics) = (Arc::clone(&held), Arc::clone(&panics));
                let fail = move || {
                    // The first waker to be dropped is the clone.
                    if panics.fetch_add(1, Ordering::Relaxed) == 0 {
                        panic!("this waker cannot be dropped");
                    }
                };
                waker_of(move || drop(held.lock().expect("not poisoned").take()), fail)
            };
            // Afterwards the last check-out has waited.
            let mut waiting = pin!(client.check_out());
            assert!(poll_with(waiting.as_mut(), Waker::noop()).is_pending());
            let granted = if waits {
                poll_with(waiting.as_mut(), &faulty)
            } else {
                drop(held.lock().expect("not poisoned").take());
                drop(waiting.await.expect("the returned connection"));
                poll_with(pin!(client.check_out()), &faulty)
            };
            assert_eq!(panics.load(Ordering::Relaxed), 1, "waits: {waits}");
            let Poll::Ready(Ok(connection)) = granted else { panic!("the connection was returned") };
            drop(connection);
        }
        drop(client.check_out().await.expect("the only connection is not lost"));
        client.close().await;
    });
}

/// Runs on a separate thread, because a deadlock would not end.
#[test]
fn a_waker_whose_clone_calls_the_client_does_not_deadlock() {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        run(async {
            let server = server();
            let client = client(&server);
            let held = client.check_out().await.expect("a connection");
            let calling = {
                let client = client.clone();
                waker(move || {
                    let _ = (client.servers(), client.topology(), client.subscribe());
                })
            };
            let mut subscription = client.subscribe();
            assert!(poll_with(pin!(subscription.next()), &calling).is_pending());
            {
                let mut waiting = pin!(client.check_out());
                assert!(poll_with(waiting.as_mut(), Waker::noop()).is_pending());
                assert!(poll_with(waiting.as_mut(), &calling).is_pending());
            }
            assert!(poll_with(pin!(client.check_out()), &calling).is_pending());
            drop(held);
            let held = client.check_out().await.expect("a connection");
            let snapshot = client.servers()[0].pool;
            assert_eq!((snapshot.counts.waiting, snapshot.counts.in_use), (0, 1));
            drop(held);
            server.set_fail_point(FailPoint::new(FailPointMode::AlwaysOn, &["ping"]).block(Duration::from_secs(60)));
            assert!(poll_with(pin!(client.run_command("admin", ping())), &calling).is_pending());
            // A warm-up for more connections than the pool has, so it waits.
            let mut options = client.pool_options();
            options.max_pool_size = 2;
            client.set_pool_options(options).expect("right");
            assert!(poll_with(pin!(client.core().warm_up(&request(), Some(2), None)), &calling).is_pending());
            let lonely = lonely();
            let calling = {
                let lonely = lonely.clone();
                waker(move || drop((lonely.servers(), lonely.topology())))
            };
            assert!(poll_with(pin!(lonely.run_command("admin", ping())), &calling).is_pending());
            lonely.close().await;
            client.close().await;
        });
        done.send(()).expect("the receiver exists");
    });
    ended.recv_timeout(PATIENCE * 2).expect("no deadlock");
}

const fn request() -> poolhouse_smol::poolhouse_driver::SelectionRequest<'static> {
    poolhouse_smol::poolhouse_driver::SelectionRequest::WRITE
}
