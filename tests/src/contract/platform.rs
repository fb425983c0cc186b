//! The operations of a platform that clients need in addition to streams: datagrams, host name
//! resolution, tasks.

use super::{block_on, case_of_threads, limited};
use crate::patience::{PATIENCE, eventually, refused};
use crate::suite::Suite;
use core::net::SocketAddr;
use core::time::Duration;
use futures_lite::future::poll_once;
use poolhouse_client::Platform;
use std::net::UdpSocket;
use std::sync::mpsc::{Receiver, Sender, channel};

pub(super) fn add<P: Platform + Default>(suite: Suite) -> Suite {
    let suite = suite
        .case("platform::datagrams_are_exchanged_only_with_the_peer", || {
            run::<P>(datagrams_are_exchanged_only_with_the_peer)
        })
        .case("platform::local_addresses_are_resolved_with_the_port", || {
            run::<P>(local_addresses_are_resolved_with_the_port)
        })
        .case("platform::addresses_with_a_zone_are_resolved_and_invalid_names_are_errors", || {
            run::<P>(addresses_with_a_zone_are_resolved_and_invalid_names_are_errors)
        })
        .case("platform::tasks_run_to_their_end", || run::<P>(tasks_run_to_their_end))
        .case("platform::task_that_is_dropped_is_cancelled", || run::<P>(task_that_is_dropped_is_cancelled))
        .case("platform::task_that_has_panicked_is_dropped_without_another_panic", || {
            run::<P>(task_that_has_panicked_is_dropped_without_another_panic)
        });
    case_of_threads(suite, "platform::dropping_a_task_that_is_being_run_does_not_wait_for_it", || {
        run::<P>(dropping_a_task_that_is_being_run_does_not_wait_for_it)
    })
}

/// Runs one case within its time limit.
fn run<P: Platform + Default>(case: impl AsyncFnOnce(&P)) {
    block_on(limited(case(&P::default())));
}

/// A socket receives datagrams from its peer only, and truncates datagrams that exceed the buffer.
/// A cancelled receive loses no datagram.
async fn datagrams_are_exchanged_only_with_the_peer(platform: &impl Platform) {
    for any in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(peer) = UdpSocket::bind(any) else {
            // The machine has no IPv6.
            continue;
        };
        let stranger = UdpSocket::bind(any).expect("a second socket");
        let socket = platform.connect_udp(peer.local_addr().expect("bound")).await.expect("a socket");
        let mut buffer = [0; 16];
        assert!(poll_once(platform.receive_udp(&socket, &mut buffer)).await.is_none());
        assert_eq!(platform.send_udp(&socket, b"question").await.expect("sent"), 8);
        let (length, from) = peer.recv_from(&mut buffer).expect("received");
        assert_eq!(buffer.get(..length), Some(b"question".as_slice()));
        stranger.send_to(b"forged", from).expect("sent");
        peer.send_to(b"a long answer", from).expect("sent");
        let mut short = [0; 6];
        assert_eq!(platform.receive_udp(&socket, &mut short).await.expect("received"), 6);
        assert_eq!(&short, b"a long");
    }
}

/// A name of the machine is resolved to its addresses, with the port.
async fn local_addresses_are_resolved_with_the_port(platform: &impl Platform) {
    let addresses = platform.resolve("localhost", 27_018).await.expect("localhost resolves on every machine");
    assert!(addresses.iter().all(|address| address.ip().is_loopback() && address.port() == 27_018), "{addresses:?}");
    assert!(!addresses.is_empty());
}

/// The zone of an address is kept; invalid names are errors.
async fn addresses_with_a_zone_are_resolved_and_invalid_names_are_errors(platform: &impl Platform) {
    let addresses = platform.resolve("fe80::1%1", 27_017).await.expect("numeric addresses are not looked up");
    let zones: Vec<_> =
        addresses.iter().map(|address| if let SocketAddr::V6(v6) = address { v6.scope_id() } else { 0 }).collect();
    assert_eq!(zones, [1], "{addresses:?}");
    refused(platform.resolve("no\0name", 27_017).await);
}

/// Sends a message when it is dropped.
struct NotifyOnDrop(Sender<&'static str>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        // The receiver is dropped when a test has failed.
        let _ = self.0.send("dropped");
    }
}

/// Waits for the next message. It does not block: the task that sends it may need this thread.
async fn receive(received: &Receiver<&'static str>) -> &'static str {
    let mut message = None;
    eventually("a message is sent", || {
        message = received.try_recv().ok();
        message.is_some()
    })
    .await;
    message.expect("it was sent")
}

/// A task whose handle is kept runs to its end, without being awaited.
async fn tasks_run_to_their_end(platform: &impl Platform) {
    let (tell, received) = channel();
    let (tell, sleeper) = (NotifyOnDrop(tell), platform.clone());
    let task = platform.spawn(async move {
        sleeper.sleep_until(sleeper.now().saturating_add(Duration::from_millis(1))).await;
        let _ = tell.0.send("woken");
    });
    assert_eq!(receive(&received).await, "woken");
    assert_eq!(receive(&received).await, "dropped");
    drop(task);
}

/// A task whose handle is dropped is not polled again, and its future is dropped.
async fn task_that_is_dropped_is_cancelled(platform: &impl Platform) {
    let (tell, received) = channel();
    let tell = NotifyOnDrop(tell);
    let task = platform.spawn(async move {
        let _ = tell.0.send("begun");
        core::future::pending::<()>().await;
        drop(tell);
    });
    assert_eq!(receive(&received).await, "begun");
    drop(task);
    assert_eq!(receive(&received).await, "dropped");
}

/// Dropping the handle of a task that is being polled does not block; the task ends at its next
/// suspension point.
async fn dropping_a_task_that_is_being_run_does_not_wait_for_it(platform: &impl Platform) {
    let (tell, received) = channel();
    let (release, released) = channel::<()>();
    let tell = NotifyOnDrop(tell);
    let task = platform.spawn(async move {
        let _ = tell.0.send("begun");
        let _ = tell.0.send(released.recv_timeout(PATIENCE).map_or("waited for", |()| "released"));
        core::future::pending::<()>().await;
    });
    assert_eq!(received.recv_timeout(PATIENCE), Ok("begun"));
    drop(task);
    release.send(()).expect("the task is running");
    assert_eq!(received.recv_timeout(PATIENCE), Ok("released"));
    assert_eq!(received.recv_timeout(PATIENCE), Ok("dropped"));
}

/// A panic of a task does not leave the task, and the executor continues.
async fn task_that_has_panicked_is_dropped_without_another_panic(platform: &impl Platform) {
    /// Enough tasks that at least some have ended completely when all have sent their message.
    const TASKS: usize = 16;
    let (tell, received) = channel();
    let panicking = |_| {
        let tell = NotifyOnDrop(tell.clone());
        platform.spawn(async move {
            let _tell = tell;
            // Unwinds without a message from the panic hook.
            std::panic::resume_unwind(Box::new("on purpose"));
        })
    };
    let tasks: Vec<_> = (0..TASKS).map(panicking).collect();
    for _ in 0..TASKS {
        assert_eq!(receive(&received).await, "dropped");
    }
    drop(tasks);
    tasks_run_to_their_end(platform).await;
}
