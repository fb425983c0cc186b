//! The platform of the client under test: virtual time, simulated sockets, and tasks that are
//! polled in an order that the run draws.

use super::links::Event;
use super::plan::MS;
use super::state::State;
use super::truth::HOSTS;
use crate::choices::Choices;
use crate::kind::Kind;
use alloc::sync::Arc;
use alloc::task::Wake;
use async_task::{Runnable, Task};
use core::future::poll_fn;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use futures_lite::{AsyncRead, AsyncWrite};
use poolhouse_client::Platform;
use poolhouse_core::Instant;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A handle of a simulated network.
#[derive(Clone, Debug)]
pub(super) struct Sim(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    ready: Arc<Mutex<Vec<Ready>>>,
    /// Tasks that are ready, and wait for the host until these times.
    starved: Mutex<Vec<(u64, Ready)>>,
    /// A waker of each task.
    tasks: Mutex<Vec<Waker>>,
    /// The wakers of ended tasks, while there are clones of them.
    ended: Mutex<Vec<Arc<TaskWaker>>>,
}

/// A task that is ready.
#[derive(Debug)]
struct Ready {
    is_background: bool,
    task: Runnable,
}

/// The payload of a panic that the run has drawn.
pub(super) struct Planned;

/// The waker of a task, whose clones are counted.
#[derive(Debug)]
struct TaskWaker {
    task: Waker,
    is_background: bool,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.task.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.task.wake_by_ref();
    }
}

/// The work of a task. Its waker is judged when it has ended.
struct Tracked<F> {
    sim: Sim,
    work: Option<Pin<Box<F>>>,
    waker: Option<Arc<TaskWaker>>,
    is_background: bool,
}

impl<F: Future> Future for Tracked<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { work, waker, is_background, .. } = &mut *self;
        let new = || Arc::new(TaskWaker { task: context.waker().clone(), is_background: *is_background });
        let waker = Waker::from(Arc::clone(waker.get_or_insert_with(new)));
        let polled = work.as_mut().expect("it has not ended").as_mut().poll(&mut Context::from_waker(&waker));
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl<F> Drop for Tracked<F> {
    fn drop(&mut self) {
        self.work = None;
        lock(&self.sim.0.ended).extend(self.waker.take());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A failed assertion about the state poisons it, and the run still ends properly.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sim {
    pub(super) fn new(state: State) -> Self {
        let (ready, starved, tasks, ended) = Default::default();
        Self(Arc::new(Shared { state: Mutex::new(state), ready, starved, tasks, ended }))
    }

    /// Accesses the state, then wakes the tasks that wait for what happened. No code of the client
    /// runs while the state is locked.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let mut state = lock(&self.0.state);
        let result = work(&mut state);
        let wakes = state.take_wakes();
        drop(state);
        wakes.into_iter().for_each(Waker::wake);
        result
    }

    /// Takes a task that is ready. During the faults, some tasks have to wait for the host.
    pub(super) fn next_ready(&self) -> Option<Runnable> {
        let mut ready = lock(&self.0.ready);
        let mut state = lock(&self.0.state);
        loop {
            let place = match ready.len() {
                0 => return None,
                1 => 0,
                count => state.draws.schedule.index(count),
            };
            let Ready { is_background, task } = ready.remove(place);
            let Some(wait) = state.draw_wait() else { return Some(task) };
            lock(&self.0.starved).push((state.now + wait, Ready { is_background, task }));
        }
    }

    /// When the next task that waits for the host is ready.
    pub(super) fn next_starved(&self) -> Option<u64> {
        lock(&self.0.starved).iter().map(|(until, _)| *until).min()
    }

    /// Whether a task of the client waits for the host.
    pub(super) fn is_client_starved(&self) -> bool {
        lock(&self.0.starved).iter().any(|(_, ready)| ready.is_background)
    }

    /// Tasks no longer wait for the host.
    pub(super) fn release(&self, now: u64) {
        let mut starved = lock(&self.0.starved);
        lock(&self.0.ready).extend(starved.extract_if(.., |(until, _)| *until <= now).map(|(_, ready)| ready));
    }

    /// Number of tasks of the application that are ready.
    pub(super) fn ready_operations(&self) -> usize {
        lock(&self.0.ready).iter().filter(|ready| !ready.is_background).count()
    }

    /// Takes the task that became ready last.
    pub(super) fn newest_ready(&self) -> Option<Runnable> {
        lock(&self.0.ready).pop().map(|ready| ready.task)
    }

    pub(super) fn is_ready(&self) -> bool {
        !lock(&self.0.ready).is_empty()
    }

    /// Wakes all tasks.
    pub(super) fn wake_all(&self) {
        let tasks = lock(&self.0.tasks).clone();
        tasks.into_iter().for_each(Waker::wake);
    }

    /// The number of wakers of ended tasks that the client keeps, of the application's tasks and of
    /// its own.
    pub(super) fn left_wakers(&self) -> (usize, usize) {
        let mut ended = lock(&self.0.ended);
        ended.retain(|waker| Arc::strong_count(waker) > 1);
        let state = lock(&self.0.state);
        let mut counts = (0, 0);
        for waker in &*ended {
            // The sockets and timers of the platform keep clones, too. `will_wake` may be false for
            // wakers of one task, because it also compares their virtual tables.
            let kept = state.wakers().filter(|kept| kept.data() == Arc::as_ptr(waker).cast()).count();
            let left = Arc::strong_count(waker) - 1 - kept;
            *if waker.is_background { &mut counts.1 } else { &mut counts.0 } += left;
        }
        counts
    }

    /// Starts an operation, or the close of the client.
    pub(super) fn start<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Task<T> {
        self.start_as(work, false)
    }

    /// Starts a task.
    ///
    /// - `is_background`: it is no operation.
    pub(super) fn start_as<T, F>(&self, work: F, is_background: bool) -> Task<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let work = Tracked { sim: self.clone(), work: Some(Box::pin(work)), waker: None, is_background };
        let ready = Arc::clone(&self.0.ready);
        let (runnable, task) = async_task::spawn(work, move |task| lock(&ready).push(Ready { is_background, task }));
        lock(&self.0.tasks).push(runnable.waker());
        runnable.schedule();
        task
    }

    /// Waits for this time on the client's clock.
    pub(super) async fn sleep(&self, nanos: u64) {
        let at = self.with(|state| state.clock_ns() + nanos);
        self.sleep_until(Instant::from_nanos(at)).await;
    }
}

/// Counts a background task.
struct Counted {
    sim: Sim,
    id: u64,
}

impl Counted {
    fn new(sim: Sim) -> Self {
        let id = sim.with(|state| {
            state.next_task += 1;
            state.background.insert(state.next_task, false);
            state.next_task
        });
        Self { sim, id }
    }

    /// Whether the executor drops the task.
    fn is_dropped(&self) -> bool {
        lock(&self.sim.0.state).background.get(&self.id).is_some_and(|is_dropped| *is_dropped)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.sim.with(|state| state.background.remove(&self.id));
    }
}

impl Platform for Sim {
    const DRIVER_NAME: &'static str = "poolhouse-simulated";
    const DRIVER_VERSION: &'static str = "1";
    const PLATFORM_NAME: &'static str = "Rust/virtual time";
    const SURVIVES_FORK: bool = true;

    type Tcp = Socket;
    type Unix = Socket;
    type Udp = ();
    type Task = Task<()>;

    fn now(&self) -> Instant {
        lock(&self.0.state).clock()
    }

    async fn sleep_until(&self, at: Instant) {
        let mut timer = Timer { sim: self.clone(), key: None };
        poll_fn(|context| timer.poll(at, context)).await;
    }

    fn entropy(&self) -> u32 {
        lock(&self.0.state).draws.entropy.below(u32::MAX)
    }

    fn fill_secret(&self, bytes: &mut [u8]) -> io::Result<()> {
        let entropy = &mut lock(&self.0.state).draws.entropy;
        bytes.fill_with(|| u8::try_from(entropy.below(256)).unwrap_or_default());
        Ok(())
    }

    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let (delay, fault, dual) = self.with(|state| {
            let fault = state.roll(&[Kind::DnsFailure, Kind::DnsSlow]);
            let slow = if fault == Some(Kind::DnsSlow) { u64::from(state.draws.network.below(12_000)) } else { 0 };
            if slow > 0 {
                state.lookup_ends_at = state.lookup_ends_at.max(state.now + slow * MS);
            }
            (slow * MS, fault, state.plan.dual)
        });
        if delay > 0 {
            self.sleep(delay).await;
        }
        let known = HOSTS.iter().zip(1_u8..).find(|(name, _)| name.split(':').next() == Some(host));
        let Some((_, number)) = known.filter(|_| fault != Some(Kind::DnsFailure)) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let v4 = SocketAddr::from((Ipv4Addr::new(10, 0, 0, number), port));
        let v6 = SocketAddr::from((Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number)), port));
        Ok(if dual { vec![v6, v4] } else { vec![v4] })
    }

    async fn connect_tcp(&self, address: SocketAddr) -> io::Result<Socket> {
        let member = State::member_at(address.ip()).ok_or(io::ErrorKind::HostUnreachable)?;
        let socket = Socket { link: self.with(|state| state.dial(member)), sim: self.clone() };
        poll_fn(|context| {
            self.with(|state| {
                let near = &mut state.net.links.get_mut(&socket.link).expect("it is dialed").near;
                if near.connected.is_none() {
                    near.reader = Some(context.waker().clone());
                }
                near.connected.map_or(Poll::Pending, Poll::Ready)
            })
        })
        .await?;
        Ok(socket)
    }

    async fn connect_unix(&self, _path: &Path) -> io::Result<Socket> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn connect_udp(&self, _peer: SocketAddr) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn send_udp(&self, _socket: &(), _datagram: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn receive_udp(&self, _socket: &(), _buffer: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn spawn<F>(&self, work: F) -> Task<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let counted = Counted::new(self.clone());
        let mut work = Some(Box::pin(work));
        let work = poll_fn(move |context| {
            if counted.is_dropped() {
                work = None;
            }
            work.as_mut().map_or(Poll::Ready(()), |work| work.as_mut().poll(context))
        });
        self.start_as(work, true)
    }
}

/// A timer of a task.
struct Timer {
    sim: Sim,
    key: Option<u64>,
}

impl Timer {
    fn poll(&mut self, at: Instant, context: &Context<'_>) -> Poll<()> {
        let Self { sim, key } = self;
        sim.with(|state| match *key {
            None if at <= state.clock() => Poll::Ready(()),
            None => {
                *key = Some(state.set_timer(at, context.waker().clone()));
                Poll::Pending
            }
            Some(key) if state.is_set(key, context.waker()) => Poll::Pending,
            Some(_) => Poll::Ready(()),
        })
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.sim.with(|state| state.clear_timer(key));
        }
    }
}

/// A socket of the client, or a connection attempt. Dropping it closes the connection.
#[derive(Debug)]
pub(super) struct Socket {
    sim: Sim,
    link: u64,
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.sim.with(|state| state.close_link(self.link));
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.sim.with(|state| {
            let is_short = state.comes(Kind::ShortRead);
            let id = self.link;
            if state.net.links.get(&id).is_some_and(|link| !link.near.input.is_empty()) {
                state.affect(|| format!("connection {id} reads"));
            }
            let State { net, draws, .. } = state;
            let near = &mut net.links.get_mut(&self.link).expect("an open socket").near;
            let mut count = near.input.len().min(buf.len());
            if count > 0 {
                if near.single > 0 {
                    (count, near.single) = (1, near.single - 1);
                } else if is_short {
                    count = draws.host.index(count) + 1;
                }
                buf.iter_mut().zip(near.input.drain(..count)).for_each(|(to, byte)| *to = byte);
                Poll::Ready(Ok(count))
            } else if near.is_reset {
                Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            } else if near.has_ended {
                Poll::Ready(Ok(0))
            } else {
                near.reader = Some(context.waker().clone());
                Poll::Pending
            }
        })
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let id = self.link;
        self.sim.with(|state| {
            state.cut_write.take_if(|cut| *cut == id);
            let near = &mut state.net.links.get_mut(&id).expect("an open socket").near;
            if near.is_reset {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            // A stall ends when the socket becomes writable; the task then writes without another.
            let is_stalled = near.is_full || near.writer.is_none() && state.comes(Kind::WriteStall);
            let near = &mut state.net.links.get_mut(&id).expect("an open socket").near;
            if is_stalled {
                near.writer = Some(context.waker().clone());
                if !core::mem::replace(&mut near.is_full, true) {
                    let is_endless = state.draws.host.one_in(4) && state.comes(Kind::Blocked);
                    if is_endless {
                        state.net.links.get_mut(&id).expect("an open socket").is_broken = true;
                        return Poll::Pending;
                    }
                    let at = state.now + u64::from(state.draws.host.below(1_000)) * MS;
                    state.net.at(at, Event::Writable(id));
                }
                return Poll::Pending;
            }
            near.writer = None;
            let is_short = state.comes(Kind::ShortWrite);
            let count = if is_short { state.draws.host.index(buf.len()) + 1 } else { buf.len() };
            state.send(id, &buf[..count]);
            if count < buf.len() {
                state.cut_write = Some(id);
            }
            Poll::Ready(Ok(count))
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
