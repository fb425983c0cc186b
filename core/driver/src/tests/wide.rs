//! The runtime of the other tests, with room for any number of connections.

use super::*;
use alloc::task::Wake;
use poolhouse_core::pool::OnHeap;

#[derive(Clone)]
pub(super) struct Wide(pub(super) Bench);

impl BaseRuntime for Wide {
    type Lock<T> = Mutex<T>;
    type Memory = OnHeap;
    type Text = String;
    type Events = Subscribers;

    of_the_bench!(0);

    fn is_forked(&self) -> bool {
        self.0.is_forked()
    }
}

impl Runtime for Wide {
    type Stream = Stream;
    type Buffer = Page;
    type Topology = topology::OnHeap;
    type ServerLock = Mutex<ServerState<Self>>;
    type ServerHandle = Arc<Server<Self>>;

    async fn connect(&self, address: &HostAddress<'_>, deadline: Option<Instant>) -> Result<Stream, ConnectError> {
        self.0.connect(address, deadline).await
    }

    fn buffers(&self, stream: &Stream) -> Result<(Page, Page), Full> {
        self.0.buffers(stream)
    }

    fn secret_entropy(&self) -> Option<[u8; 24]> {
        self.0.secret_entropy()
    }

    fn is_private(&self, stream: &Stream) -> bool {
        self.0.is_private(stream)
    }

    fn share_server(&self, server: NewServer<Self>) -> Result<Arc<Server<Self>>, Full> {
        server.share(|state| Ok(Mutex::new(state))).map(Arc::new)
    }
}

/// A waker that counts how often it is used.
#[derive(Default)]
pub(super) struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Bell {
    /// Returns the number of wake-ups since the last call.
    pub(super) fn rings(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }

    pub(super) fn poll<F: Future + ?Sized>(self: &Arc<Self>, future: &mut Pin<Box<F>>) -> Poll<F::Output> {
        future.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(self))))
    }
}

/// A client core with one server, and tasks of it that are polled when they are woken.
pub(super) struct House {
    pub(super) bench: Bench,
    pub(super) core: &'static ClientCore<Wide>,
    pub(super) server: Arc<Server<Wide>>,
    /// The tasks. A task that has ended is `None`.
    tasks: Vec<(Arc<Bell>, Option<Boxed<'static, ()>>)>,
}

impl House {
    pub(super) fn open(pool: PoolOptions, login: Option<Login>) -> Self {
        let bench = Bench::new();
        let (core, server) = core_of(Wide(bench.clone()), |config| {
            config.pool = pool.validate().unwrap();
            config.connect_timeout = login.as_ref().map(|_| Duration::from_secs(1));
            config.login = login;
        });
        // The core is leaked, because the test's tasks and guards borrow it, and a test is short.
        Self { bench, core: Box::leak(Box::new(core)), server, tasks: Vec::new() }
    }

    /// Starts a task of the server, without a task guard, and returns its index.
    pub(super) fn start(&mut self, task: ServerTask) -> usize {
        let (core, server) = (self.core, Arc::clone(&self.server));
        let work: Boxed<'static, ()> = Box::pin(async move { core.work(&server, task).await });
        self.tasks.push((Arc::default(), Some(work)));
        self.poll(self.tasks.len() - 1);
        self.tasks.len() - 1
    }

    pub(super) fn stop(&mut self, task: usize) {
        self.tasks.remove(task);
    }

    /// Returns how often each task was woken since the last call.
    pub(super) fn rings(&self) -> Vec<usize> {
        self.tasks.iter().map(|(bell, _)| bell.rings()).collect()
    }

    pub(super) fn poll(&mut self, task: usize) {
        let (bell, work) = &mut self.tasks[task];
        if work.as_mut().is_some_and(|work| bell.poll(work).is_ready()) {
            *work = None;
        }
    }

    /// Polls every task that was woken, until none is.
    pub(super) fn run(&mut self) {
        for _ in 0..1_000 {
            let mut idle = true;
            for task in 0..self.tasks.len() {
                if self.tasks[task].0.rings() > 0 {
                    idle = false;
                    self.poll(task);
                }
            }
            if idle {
                return;
            }
        }
        panic!("the tasks never come to rest");
    }

    /// Advances the clock and polls every task, because each may wait for a time.
    pub(super) fn pass(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap();
        self.bench.now.fetch_add(nanos, Ordering::Relaxed);
        for task in 0..self.tasks.len() {
            self.poll(task);
        }
        self.run();
    }

    pub(super) fn counts(&self) -> [u32; 4] {
        let PoolCounts { pending, available, in_use, waiting } = self.server.pool_snapshot().counts;
        [pending, available, in_use, waiting]
    }

    pub(super) fn check_out(&self, deadline: Option<Instant>) -> Pin<Box<CheckingOut<'static, Wide>>> {
        Box::pin(CheckingOut::new(self.core, Arc::clone(&self.server), deadline, deadline))
    }

    /// Checks out this many connections, and establishes them if necessary.
    pub(super) fn guards(&mut self, count: usize) -> Vec<Guard<'static, Wide>> {
        let mut waiting: Vec<_> = (0..count).map(|_| self.check_out(None)).collect();
        let mut guards = Vec::new();
        for one in &mut waiting {
            if let Poll::Ready(guard) = poll(one) {
                guards.push(guard.unwrap());
            }
        }
        self.run();
        for one in &mut waiting[guards.len()..] {
            match poll(one) {
                Poll::Ready(guard) => guards.push(guard.unwrap()),
                Poll::Pending => panic!("not established"),
            }
        }
        guards
    }
}
