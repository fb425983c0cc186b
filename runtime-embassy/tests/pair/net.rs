//! A network in memory: the client's stack, a cable, and the stack of a bridge to servers on the
//! host.
//!
//! Every test has its own network and its own clock, on its own thread. The bridge has the host's
//! loopback address, so the servers' own addresses reach them.

mod bridge;
pub(crate) mod cable;
pub(crate) mod clock;

use self::bridge::{Bridge, Traffic};
use self::cable::{Cable, End};
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::task::Wake;
use async_executor::{LocalExecutor, Task};
use core::cell::{Cell, RefCell};
use core::fmt::Debug;
use core::future::{Future, poll_fn};
use core::net::SocketAddr;
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use embassy_net::Stack;
use poolhouse_tests::fake::FakeServer;
use poolhouse_tests::patience::{self, PATIENCE, eventually};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;

/// The client's address.
pub(crate) const CLIENT: [u8; 4] = [127, 0, 0, 2];
/// The address of the bridge and of the host.
const BRIDGE: [u8; 4] = [127, 0, 0, 1];

/// Simultaneous connections to a server.
const CONNECTIONS: usize = 30;

/// Two stacks and the cable between them.
pub(crate) struct Net {
    pub(crate) executor: Rc<LocalExecutor<'static>>,
    polls: Rc<Cell<u64>>,
    pub(crate) cable: Rc<Cable>,
    /// The client's stack.
    pub(crate) stack: Stack<'static>,
    bridge: Stack<'static>,
    traffic: Rc<Traffic>,
    bridges: RefCell<HashMap<u16, Bridge>>,
}

/// Runs a test on a separate network.
pub(crate) fn run(test: impl AsyncFnOnce(&Net)) {
    let executor = Rc::new(LocalExecutor::new());
    let running = Rc::clone(&executor);
    patience::run(executor.run(async move {
        let net = Net::on(running);
        net.spawn(clock::run());
        test(&net).await;
    }));
}

impl Net {
    /// A network on this executor, with a running clock.
    pub(crate) fn on(executor: Rc<LocalExecutor<'static>>) -> Self {
        let cable = Rc::new(Cable::default());
        let client = End::new(CLIENT, &cable);
        let bridge = End::new(BRIDGE, &cable);
        let net = Self {
            executor,
            polls: Rc::default(),
            cable: Rc::clone(&cable),
            stack: client.stack,
            bridge: bridge.stack,
            traffic: Rc::default(),
            bridges: RefCell::default(),
        };
        cable::join(&net, &cable, client, bridge);
        net
    }

    /// Runs a future concurrently with the test. Returns the counter of its polls.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) -> Rc<Cell<u64>> {
        let own = Rc::new(Cell::new(0));
        let counts = [Rc::clone(&self.polls), Rc::clone(&own)];
        self.executor.spawn(Counted { task: Box::pin(task), counts }).detach();
        own
    }

    /// Runs a future concurrently with the test. The task returns its result.
    pub(crate) fn spawn_task<T: 'static>(&self, task: impl Future<Output = T> + 'static) -> Task<T> {
        let counts = [Rc::clone(&self.polls), Rc::default()];
        self.executor.spawn(Counted { task: Box::pin(task), counts })
    }

    /// Makes a server on the host reachable at its own address.
    ///
    /// - `connections`: maximum of simultaneous connections.
    pub(crate) fn open_for(&self, address: SocketAddr, connections: usize) {
        let mut bridges = self.bridges.borrow_mut();
        let new = || Bridge::new(self, self.bridge, address, connections);
        bridges.entry(address.port()).or_insert_with(new).open();
    }

    /// [`Net::open_for`] with the address of a fake server.
    pub(crate) fn open_to(&self, server: &FakeServer) {
        self.open_for(server.address(), CONNECTIONS);
    }

    /// Forwards DNS queries to the bridge's address to a name server on the host.
    pub(crate) fn open_names(&self, address: SocketAddr) {
        bridge::forward_names(self, self.bridge, address);
    }

    /// Sets whether the server is expected to answer, and so whether the clock waits for it.
    pub(crate) fn expect(&self, server: &FakeServer, answers: bool) {
        self.traffic.expect(server.address().port(), answers);
    }

    /// The server refuses connections.
    pub(crate) fn refuse(&self, server: &FakeServer) {
        server.refuse().expect("the fake server obeys");
        self.shut(server.address());
    }

    /// Nothing listens on the port. Existing connections stay.
    pub(crate) fn shut(&self, address: SocketAddr) {
        if let Some(bridge) = self.bridges.borrow().get(&address.port()) {
            bridge.shut();
        }
    }

    /// The server listens again.
    pub(crate) fn resume(&self, server: &FakeServer) {
        server.resume().expect("the fake server obeys");
        self.open_to(server);
    }

    /// The server's process ends.
    pub(crate) fn kill(&self, server: &FakeServer) {
        self.shut(server.address());
        server.kill().expect("the fake server obeys");
    }

    /// The server's process is restarted.
    pub(crate) fn restart(&self, server: &FakeServer) {
        server.restart().expect("the fake server obeys");
        self.open_to(server);
    }

    /// Whether no task was polled since the last call.
    async fn is_idle(&self) -> bool {
        let before = self.polls.get();
        for _ in 0..2 {
            futures_lite::future::yield_now().await;
        }
        self.polls.get() == before
    }

    /// Waits until no task is ready, before the clock is advanced. Servers may still be busy.
    pub(crate) async fn idle(&self) {
        while !self.is_idle().await {}
    }

    /// Waits until no task is ready, and no request is unanswered.
    pub(crate) async fn settled(&self) {
        let begun = Instant::now();
        loop {
            self.idle().await;
            if self.traffic.is_quiet() {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "a server does not answer: {:?}", self.traffic);
            async_io::Timer::after(Duration::from_micros(100)).await;
        }
    }

    /// Advances the clock, from one timer to the next. Servers have answered all requests before
    /// each step, as if they needed no time.
    ///
    /// Not for monitors that stream, nor for servers that do not answer.
    pub(crate) async fn skip(&self, time: Duration) {
        let end = clock::now() + time;
        loop {
            self.settled().await;
            if !clock::step(end) {
                return;
            }
        }
    }

    /// [`Net::skip`] without waiting for the servers, for instance when they are down.
    pub(crate) async fn jump(&self, time: Duration) {
        let end = clock::now() + time;
        loop {
            self.idle().await;
            if !clock::step(end) {
                return;
            }
        }
    }

    /// Waits for a state that no event announces. Meanwhile the clock is advanced from one timer to
    /// the next, as by [`Net::skip`].
    pub(crate) async fn skip_until(&self, what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
        let end = clock::now() + limit;
        loop {
            self.settled().await;
            if condition() {
                return;
            }
            assert!(clock::step(end), "never came true: {what}");
        }
    }

    /// Awaits a future while the clock is advanced from one timer to the next, as by [`Net::skip`].
    pub(crate) async fn skipping<T: Debug>(&self, limit: Duration, future: impl Future<Output = T>) -> T {
        beside(future, self.skip(limit)).await
    }

    /// [`Net::skipping`] by [`Net::jump`], which begins when the server has received the request
    /// that it will not answer.
    pub(crate) async fn jumping<T: Debug>(
        &self,
        limit: Duration,
        begins: impl Fn() -> bool,
        future: impl Future<Output = T>,
    ) -> T {
        let mover = async {
            eventually("the clock moves", begins).await;
            self.jump(limit).await;
        };
        beside(future, mover).await
    }

    /// Whether a request was forwarded to a server and has no answer yet.
    pub(crate) fn is_owed(&self) -> bool {
        !self.traffic.is_quiet()
    }

    /// The number of connections that servers have ended, as counted by the bridge.
    pub(crate) fn server_ends(&self) -> u64 {
        self.traffic.server_ends.get()
    }
}

/// Awaits one future while another one runs, until the first one is done. The first is polled only
/// when it was woken itself: polling a socket keeps its stack busy.
async fn beside<T>(future: impl Future<Output = T>, other: impl Future<Output = ()>) -> T {
    let mut future = pin!(future);
    let woken = Arc::new(Woken { it_was: AtomicBool::new(true), parent: Mutex::new(None) });
    let waker = Waker::from(Arc::clone(&woken));
    let mut other = pin!(async {
        other.await;
        core::future::pending::<()>().await;
    });
    poll_fn(|context| {
        woken.parent.lock().expect("not poisoned").replace(context.waker().clone());
        while woken.it_was.swap(false, Ordering::SeqCst) {
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            if polled.is_ready() {
                return polled;
            }
        }
        let _: Poll<()> = other.as_mut().poll(context);
        Poll::Pending
    })
    .await
}

/// Whether a future was woken.
struct Woken {
    it_was: AtomicBool,
    parent: Mutex<Option<Waker>>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.it_was.store(true, Ordering::SeqCst);
        if let Some(parent) = self.parent.lock().expect("not poisoned").take() {
            parent.wake();
        }
    }
}

/// A task with a counter of its polls.
struct Counted<T> {
    task: Pin<Box<dyn Future<Output = T>>>,
    counts: [Rc<Cell<u64>>; 2],
}

impl<T> Future for Counted<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        for count in &self.counts {
            count.set(count.get() + 1);
        }
        self.task.as_mut().poll(context)
    }
}
