//! Repeats one request of a session a given number of times; `tests/scripts/instructions` counts its
//! instructions.
//!
//! Usage: `instructions_session <case> <times>`, with the cases
//!
//! - `query`: 1,024 requests in flight, a future and a waker for each;
//! - `chosen1`, `chosen10`, ..: the same, and each request names its host, the last of this number;
//! - `request_all`: one future for 1,024 requests.
//!
//! Sockets, server and executor are in this process and make no system call. Their share of the
//! count is about 150 instructions a request.

extern crate alloc;

use alloc::sync::Arc;
use alloc::task::Wake;
use core::future::pending;
use core::hint::black_box;
use core::net::SocketAddr;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use futures_io::{AsyncRead, AsyncWrite};
use poolhouse_client::mux::{CqlHost, Distance, HostOptions, MuxId, MuxOptions, Session, SessionOptions};
use poolhouse_client::{Platform, clock};
use poolhouse_core::Instant;
use poolhouse_cql::{Consistency, HEADER_BYTES, Version};
use std::io;
use std::path::Path;
use std::sync::Mutex;

const IN_FLIGHT: usize = 1024;
const STATEMENT: &str = "echo a cell of twenty-four.";
/// As long as the body of a result of one row with one cell.
const RESULT: [u8; 41] = [0; 41];
/// The only entry that SUPPORTED requires: a version of the language.
const SUPPORTED: &[u8] = b"\0\x01\0\x0bCQL_VERSION\0\x01\0\x053.4.5";

fn main() {
    let mut args = std::env::args().skip(1);
    let case = args.next().expect("a case");
    let times: usize = args.next().expect("a number of times").parse().expect("a number");
    let platform = Memory::default();
    let host = HostOptions {
        core_connections: 1,
        max_connections: 1,
        max_requests_per_connection: 32_768,
        new_connection_threshold: 32_768,
    };
    let mux = MuxOptions { local: host, ..MuxOptions::DEFAULT };
    let mut options = SessionOptions::new(["10.0.0.1"]).version(Version::V4).mux(mux);
    let name = case.trim_end_matches(|digit: char| digit.is_ascii_digit());
    let others = case[name.len()..].parse().map_or(0, |hosts: usize| hosts - 1);
    let other = |number| CqlHost { address: format!("10.0.1.{number}:{number}"), distance: Distance::Ignored };
    options.hosts.splice(0..0, (1..=others).map(other));
    let session = Session::with_platform(platform.clone(), options, poolhouse_driver::Subscribers::default());
    let session = session.expect("a session");
    let local: Vec<MuxId> =
        session.hosts().iter().filter(|host| host.address == "10.0.0.1").map(|host| host.id).collect();
    let query = || session.query(STATEMENT).consistency(Consistency::One);
    // Establishes the connection.
    while session.hosts().iter().all(|host| host.connections.is_empty()) {
        platform.poll_tasks();
    }
    match name {
        "query" => repeat(&platform, times, || query().send()),
        "chosen" => repeat(&platform, times, || query().hosts(&local).send()),
        "request_all" => {
            let calls: Vec<_> = (0..IN_FLIGHT).map(|_| query()).collect();
            for begun in (0..times).step_by(IN_FLIGHT) {
                let some = &calls[..IN_FLIGHT.min(times - begun)];
                let mut all = Task::new(session.request_all(some));
                let results = loop {
                    match all.poll() {
                        Poll::Ready(results) => break results,
                        Poll::Pending => platform.poll_tasks(),
                    }
                };
                assert!(black_box(results).iter().all(Result::is_ok));
            }
        }
        other => panic!("unknown case {other}"),
    }
    // The tasks hold the platform, which holds them.
    platform.0.lock().expect("not poisoned").clear();
}

/// Performs this number of requests, `IN_FLIGHT` at a time.
fn repeat<F: Future<Output: core::fmt::Debug>>(platform: &Memory, times: usize, make: impl Fn() -> F) {
    let (mut left, mut missing) = (times, times);
    let mut flights: Vec<Task<Option<F>>> = (0..IN_FLIGHT).map(|_| Task::new(None)).collect();
    while missing > 0 {
        for flight in &mut flights {
            loop {
                if flight.work.is_none() {
                    let Some(rest) = left.checked_sub(1) else { break };
                    left = rest;
                    flight.work.set(Some(make()));
                    flight.woken.0.store(true, Ordering::Relaxed);
                }
                if !flight.woken.0.swap(false, Ordering::Relaxed) {
                    break;
                }
                let Some(work) = flight.work.as_mut().as_pin_mut() else { break };
                let Poll::Ready(result) = work.poll(&mut Context::from_waker(&flight.waker)) else { break };
                drop(black_box(result));
                flight.work.set(None);
                missing -= 1;
            }
        }
        platform.poll_tasks();
    }
}

/// A future that is polled only after it was woken.
struct Task<F: ?Sized> {
    woken: Arc<Woken>,
    waker: Waker,
    work: Pin<Box<F>>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<F> Task<F> {
    fn new(work: F) -> Self {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        Self { waker: Waker::from(Arc::clone(&woken)), woken, work: Box::pin(work) }
    }
}

impl<F: Future + ?Sized> Task<F> {
    fn poll(&mut self) -> Poll<F::Output> {
        if !self.woken.0.swap(false, Ordering::Relaxed) {
            return Poll::Pending;
        }
        self.work.as_mut().poll(&mut Context::from_waker(&self.waker))
    }
}

/// A platform with sockets that answer each request as soon as it is written.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<Task<dyn Future<Output = ()> + Send>>>>);

impl Memory {
    /// Polls the session's tasks.
    fn poll_tasks(&self) {
        let mut tasks = core::mem::take(&mut *self.0.lock().expect("not poisoned"));
        tasks.retain_mut(|task| task.poll().is_pending());
        let mut spawned = self.0.lock().expect("not poisoned");
        tasks.append(&mut spawned);
        *spawned = tasks;
    }
}

/// The client's end of a connection.
#[derive(Default)]
struct Socket {
    answers: Vec<u8>,
    reader: Option<Waker>,
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let count = self.answers.len().min(buf.len());
        if count == 0 {
            self.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        buf[..count].copy_from_slice(&self.answers[..count]);
        self.answers.drain(..count);
        Poll::Ready(Ok(count))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let mut rest = buf;
        while let Some((header, behind)) = rest.split_first_chunk::<HEADER_BYTES>() {
            let [_, _, high, low, opcode, length @ ..] = *header;
            rest = behind.get(u32::from_be_bytes(length) as usize..).expect("whole requests are written");
            let (opcode, body): (u8, &[u8]) = match opcode {
                // OPTIONS and STARTUP.
                0x05 => (0x06, SUPPORTED),
                0x01 => (0x02, &[]),
                _ => (0x08, &RESULT),
            };
            let length = u8::try_from(body.len()).expect("short");
            self.answers.extend_from_slice(&[0x84, 0, high, low, opcode, 0, 0, 0, length]);
            self.answers.extend_from_slice(body);
        }
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Platform for Memory {
    const DRIVER_NAME: &'static str = "memory";
    const DRIVER_VERSION: &'static str = "0";
    const PLATFORM_NAME: &'static str = "memory";

    type Tcp = Socket;
    type Unix = Socket;
    type Udp = ();
    type Task = ();

    /// No time limit passes in this program.
    async fn sleep_until(&self, at: Instant) {
        debug_assert!(at > clock::now(), "the program ends before any time limit");
        pending().await
    }

    async fn resolve(&self, _: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![([10, 0, 0, 1], port).into()])
    }

    async fn connect_tcp(&self, _: SocketAddr) -> io::Result<Socket> {
        Ok(Socket::default())
    }

    async fn connect_unix(&self, _: &Path) -> io::Result<Socket> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn connect_udp(&self, _: SocketAddr) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn send_udp(&self, (): &(), _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn receive_udp(&self, (): &(), _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn spawn<F>(&self, work: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Task { woken, waker, work } = Task::new(work);
        self.0.lock().expect("not poisoned").push(Task { woken, waker, work });
    }
}
