//! The thread that waits for events of all sockets and for the earliest timer, and runs tasks.

use super::Mutex;
use super::readiness::{News, Readiness};
use super::timers::{Key, Timers};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::future::pending;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll as Selector, Registry, Token};
use poolhouse_client::clock;
use poolhouse_client::poolhouse_core::Instant;
use poolhouse_client::poolhouse_core::observe::contain;
use poolhouse_client::poolhouse_driver::Locked;
use smol::Executor;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;
use std::thread::{self, ThreadId};

/// Maximum number of events of one system call; further ones are returned by the next.
const EVENTS_MAX: usize = 1024;

/// The token of the wake-up of the thread. No socket has it.
const WAKE_UP: Token = Token(0);

/// A socket in the reactor.
pub(super) struct Source {
    token: Token,
    pub(super) read: Readiness,
    pub(super) write: Readiness,
}

impl Source {
    /// An end of either direction makes both ready, so that every waiting task sees the error.
    fn add(&self, event: &Event) {
        if event.is_error() || event.is_read_closed() || event.is_write_closed() {
            self.read.add(News::Ended);
            self.write.add(News::Ended);
            return;
        }
        if event.is_readable() {
            self.read.add(News::Ready);
        }
        if event.is_writable() {
            self.write.add(News::Ready);
        }
    }
}

/// The registered sockets. A token is never used again, so an event of a socket that is closed
/// already reaches no other.
#[derive(Default)]
struct Sources {
    last: usize,
    by_token: HashMap<Token, Arc<Source>>,
}

/// The reactor of the process.
pub(super) struct Reactor {
    registry: Registry,
    thread: mio::Waker,
    sources: Mutex<Sources>,
    timers: Mutex<Timers>,
    /// The tasks that run on the thread, between its system calls.
    pub(super) executor: Executor<'static>,
}

static REACTOR: OnceLock<Reactor> = OnceLock::new();

impl Reactor {
    /// Returns the reactor, whose thread is started by the first call.
    ///
    /// # Panics
    ///
    /// The system provides no descriptor or no thread for it. A later call tries again.
    pub(super) fn get() -> &'static Self {
        REACTOR.get_or_init(|| match Self::start() {
            Ok(reactor) => reactor,
            Err(error) => {
                panic!("cannot start the edge-triggered reactor: {error}; raise the limit of open files or of threads")
            }
        })
    }

    fn start() -> io::Result<Self> {
        let selector = Selector::new()?;
        let registry = selector.registry().try_clone()?;
        let wake_up = mio::Waker::new(&registry, WAKE_UP)?;
        // Waits until the reactor is stored.
        thread::Builder::new().name("poolhouse-edge".into()).spawn(|| REACTOR.wait().run(selector))?;
        let (sources, timers) = (Mutex::default(), Mutex::new(Timers::new()));
        Ok(Self { registry, thread: wake_up, sources, timers, executor: Executor::new() })
    }

    /// Registers a socket until [`Reactor::deregister`].
    pub(super) fn register(&self, socket: &impl AsFd) -> io::Result<Arc<Source>> {
        // Stored first: the system reports an event only once, and may do so at once.
        let source = self.sources.with(|sources| {
            sources.last += 1;
            let token = Token(sources.last);
            let source = Arc::new(Source { token, read: Readiness::new(), write: Readiness::new() });
            sources.by_token.insert(token, Arc::clone(&source));
            source
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered = self.registry.register(&mut SourceFd(&socket.as_fd().as_raw_fd()), source.token, interest);
        if registered.is_err() {
            self.forget(&source);
        }
        registered.map(|()| source)
    }

    pub(super) fn deregister(&self, socket: &impl AsFd, source: &Source) {
        // Fails only if the application has closed the descriptor itself.
        let _ = self.registry.deregister(&mut SourceFd(&socket.as_fd().as_raw_fd()));
        self.forget(source);
    }

    fn forget(&self, source: &Source) {
        self.sources.with(|sources| sources.by_token.remove(&source.token));
    }

    fn wake_up(&self) {
        // Fails only if other code has closed the descriptor, which the thread reports.
        let _ = self.thread.wake();
    }

    fn run(&'static self, mut selector: Selector) {
        let bell = Arc::new(Bell { is_rung: AtomicBool::new(false), reactor: self, thread: thread::current().id() });
        let waker = Waker::from(Arc::clone(&bell));
        let mut tasks = Box::pin(self.executor.run(pending::<()>()));
        let (mut events, mut reported, mut due) = (Events::with_capacity(EVENTS_MAX), Vec::new(), Vec::new());
        loop {
            bell.is_rung.swap(false, Ordering::SeqCst);
            if contain(|| tasks.as_mut().poll(&mut Context::from_waker(&waker))).is_none() {
                // A task has panicked; the others go on.
                tasks = Box::pin(self.executor.run(pending()));
                continue;
            }
            let timeout = self.timers.with(|timers| timers.advance(clock::now(), &mut due));
            for waker in due.drain(..) {
                let _ = contain(|| waker.wake());
            }
            // Also with work to do, the sockets are looked at: timers that are always due must not
            // starve them.
            let timeout = if bell.is_rung.load(Ordering::SeqCst) { Some(Duration::ZERO) } else { timeout };
            match selector.poll(&mut events, timeout) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => panic!("the descriptor of the edge-triggered reactor was closed by other code: {error}"),
            }
            self.sources.with(|sources| {
                reported.extend(events.iter().map(|event| sources.by_token.get(&event.token()).map(Arc::clone)));
            });
            for (source, event) in reported.drain(..).zip(&events) {
                if let Some(source) = source {
                    // The last handle of a socket that was dropped meanwhile drops its wakers.
                    let _ = contain(move || source.add(event));
                }
            }
        }
    }
}

/// Wakes the thread when one of its tasks can run.
struct Bell {
    is_rung: AtomicBool,
    reactor: &'static Reactor,
    thread: ThreadId,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The thread itself looks at the bell before it waits.
        if !self.is_rung.swap(true, Ordering::SeqCst) && thread::current().id() != self.thread {
            self.reactor.wake_up();
        }
    }
}

/// A future that ends once the clock has reached a time.
pub(super) struct Sleep {
    at: Instant,
    /// `None` before the first poll.
    key: Option<Key>,
}

impl Sleep {
    pub(super) const fn until(at: Instant) -> Self {
        Self { at, key: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if clock::now() >= self.at {
            return Poll::Ready(());
        }
        // Cloned without the lock, because a waker may call anything.
        let waker = context.waker().clone();
        let (reactor, at) = (Reactor::get(), self.at);
        let key = &mut self.key;
        let (last, is_earlier) = reactor.timers.with(|timers| {
            let key = *key.get_or_insert_with(|| timers.key(at));
            timers.set(key, waker)
        });
        drop::<Option<Waker>>(last);
        if is_earlier {
            reactor.wake_up();
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            drop(Reactor::get().timers.with(|timers| timers.remove(key)));
        }
    }
}
