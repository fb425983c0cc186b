//! A runtime that uses only threads and sockets of the standard library.
//!
//! [`Platform`] is the complete interface of a hosted runtime: timers, sockets, name resolution,
//! tasks. `Net<P>` implements the driver's `Runtime` for it, and `Client<Std>` is the complete
//! client.
//!
//! Its cost: the standard library does not report when a socket becomes ready. A call that would
//! block is retried after 20 µs, then after twice the previous delay, up to 4 ms. Therefore
//! readiness is detected with a delay of at most the time waited so far, and at most 4 ms; each
//! waiting socket makes 250 system calls a second. Each connection attempt and each name lookup
//! uses a thread. When the future of a connection attempt is dropped, its thread continues for at
//! most a second or for as long again as it has run. A forked child process has none of the
//! threads.

use futures_io::{AsyncRead, AsyncWrite};
use poolhouse_client::{Platform, clock};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use std::{collections::BTreeMap, future::poll_fn, path::Path, pin::Pin, thread};

/// The time of a timer and its number.
type Key = (Instant, u64);

/// The thread of the timers. A message contains the waker of a timer, or `None` to cancel it.
static CLOCK: LazyLock<mpsc::Sender<(Key, Option<Waker>)>> = LazyLock::new(|| {
    let (clock, orders) = mpsc::channel();
    thread::spawn(move || {
        let mut timers = BTreeMap::<Key, Waker>::new();
        loop {
            let next = timers.first_key_value().map(|((at, _), _)| at.saturating_duration_since(Instant::now()));
            match orders.recv_timeout(next.unwrap_or(Duration::MAX)) {
                Ok((key, Some(waker))) => drop(timers.insert(key, waker)),
                Ok((key, None)) => drop(timers.remove(&key)),
                // A waker that panics does not affect other timers.
                Err(_) => drop(catch_unwind(AssertUnwindSafe(|| timers.pop_first().map(|(_, waker)| waker.wake())))),
            }
        }
    });
    clock
});

/// A timer. Dropping it cancels it.
struct Sleep(Key);

impl Sleep {
    fn until(at: Instant) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self((at, NEXT.fetch_add(1, SeqCst)))
    }

    fn poll(&self, context: &Context<'_>) -> Poll<()> {
        if Instant::now() >= self.0.0 {
            return Poll::Ready(());
        }
        let _ = CLOCK.send((self.0, Some(context.waker().clone())));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let _ = CLOCK.send((self.0, None));
    }
}

/// The threads that poll tasks: `STD_THREADS`, or one for each processor.
static READY: LazyLock<mpsc::Sender<Arc<Task>>> = LazyLock::new(|| {
    let (ready, tasks) = mpsc::channel::<Arc<Task>>();
    let tasks = Arc::new(Mutex::new(tasks));
    let threads = std::env::var("STD_THREADS").ok().and_then(|threads| threads.parse().ok());
    for _ in 0..threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from)).max(1) {
        let tasks = Arc::clone(&tasks);
        let next = move || tasks.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
        thread::spawn(move || std::iter::from_fn(next).for_each(|task| task.run()));
    }
    ready
});

/// A task: its future until it has ended; whether it is queued to be polled; whether it was
/// cancelled.
struct Task {
    work: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    queued: AtomicBool,
    cancelled: AtomicBool,
}

impl Task {
    /// Polls the task once. A panic ends the task but not the thread.
    fn run(self: Arc<Self>) {
        self.queued.store(false, SeqCst);
        let waker = Waker::from(Arc::clone(&self));
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let mut place = self.work.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(mut work) = place.take().filter(|_| !self.cancelled.load(SeqCst)) else { return };
            if work.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                *place = Some(work);
            }
        }));
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, SeqCst) {
            let _ = READY.send(self);
        }
    }
}

/// The handle of a spawned task. After it is dropped, a thread drops the task's future.
pub(crate) struct Job(Arc<Task>);

impl Drop for Job {
    fn drop(&mut self) {
        self.0.cancelled.store(true, SeqCst);
        self.0.wake_by_ref();
    }
}

/// The delay and the timer of a call that would block.
#[derive(Default)]
struct Retry(Duration, Option<Sleep>);

impl Retry {
    fn poll<T>(&mut self, context: &Context<'_>, mut call: impl FnMut() -> io::Result<T>) -> Poll<io::Result<T>> {
        loop {
            let result = call();
            if !matches!(&result, Err(error) if error.kind() == ErrorKind::WouldBlock) {
                *self = Self::default();
                return Poll::Ready(result);
            }
            if self.1.is_none() {
                self.0 = (self.0 * 2).clamp(Duration::from_micros(20), Duration::from_millis(4));
            }
            if self.1.get_or_insert_with(|| Sleep::until(Instant::now() + self.0)).poll(context).is_pending() {
                return Poll::Pending;
            }
            self.1 = None;
        }
    }
}

async fn retrying<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut retry = Retry::default();
    poll_fn(|context| retry.poll(context, &mut call)).await
}

/// Runs a blocking operation on a thread. Its argument is the time limit of the attempt. After a
/// timeout, the operation is repeated with twice the limit, unless the future was dropped.
async fn aside<T: Send + 'static>(work: impl Fn(Duration) -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new().spawn(move || {
        (0..32).map(|doubled| work(Duration::from_secs(1 << doubled))).any(|result| {
            let is_late = matches!(&result, Err(error) if error.kind() == ErrorKind::TimedOut);
            sender.send(if is_late { Err(ErrorKind::WouldBlock.into()) } else { result }).is_err() || !is_late
        })
    })?;
    retrying(move || receiver.try_recv().unwrap_or_else(|_| Err(ErrorKind::WouldBlock.into()))).await
}

/// A nonblocking socket, with a retry timer for each direction.
pub(crate) struct Socket<S>(S, [Retry; 2]);

impl<S: Read + Unpin> AsyncRead for Socket<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let Self(socket, [reading, _]) = self.get_mut();
        reading.poll(context, || socket.read(buf))
    }
}

impl<S: Write + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let Self(socket, [_, writing]) = self.get_mut();
        writing.poll(context, || socket.write(buf))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The platform that consists of these parts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Std;

impl Platform for Std {
    const DRIVER_NAME: &'static str = "std-runtime";
    const DRIVER_VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const PLATFORM_NAME: &'static str = "Rust/std";

    type Tcp = Socket<TcpStream>;
    #[cfg(unix)]
    type Unix = Socket<std::os::unix::net::UnixStream>;
    #[cfg(not(unix))]
    type Unix = Socket<TcpStream>;
    type Udp = UdpSocket;
    type Task = Job;

    async fn sleep_until(&self, at: poolhouse_core::Instant) {
        let sleep = clock::to_std(at).map(Sleep::until);
        poll_fn(|context| sleep.as_ref().map_or(Poll::Pending, |sleep| sleep.poll(context))).await;
    }

    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let host = host.to_owned();
        aside(move |_| Ok((host.as_str(), port).to_socket_addrs()?.collect())).await
    }

    async fn connect_tcp(&self, address: SocketAddr) -> io::Result<Self::Tcp> {
        let socket = aside(move |time| TcpStream::connect_timeout(&address, time)).await?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Socket(socket, Default::default()))
    }

    #[cfg(unix)]
    async fn connect_unix(&self, path: &Path) -> io::Result<Self::Unix> {
        let path = path.to_owned();
        let socket = aside(move |_| std::os::unix::net::UnixStream::connect(&path)).await?;
        socket.set_nonblocking(true)?;
        Ok(Socket(socket, Default::default()))
    }

    #[cfg(not(unix))]
    async fn connect_unix(&self, _path: &Path) -> io::Result<Self::Unix> {
        Err(ErrorKind::Unsupported.into())
    }

    async fn connect_udp(&self, peer: SocketAddr) -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind(if peer.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" })?;
        socket.connect(peer)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    async fn send_udp(&self, socket: &UdpSocket, datagram: &[u8]) -> io::Result<usize> {
        retrying(|| socket.send(datagram)).await
    }

    async fn receive_udp(&self, socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<usize> {
        retrying(|| socket.recv(buffer)).await
    }

    fn spawn<F: Future<Output = ()> + Send + 'static>(&self, work: F) -> Job {
        let work = Mutex::new(Some(Box::pin(work) as _));
        let task = Arc::new(Task { work, queued: false.into(), cancelled: false.into() });
        task.wake_by_ref();
        Job(task)
    }
}
