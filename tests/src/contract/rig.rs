//! Shared parts of the cases: a client of a fake server, operations on both, and futures that are
//! dropped at chosen points.

use super::{Client, Shape, Subject, note_drop_point};
use crate::fake::{BlockingClient, FakeOptions, FakeServer};
use crate::patience::{PATIENCE, eventually};
use alloc::sync::Arc;
use alloc::task::Wake;
use core::future::{Future, poll_fn};
use core::ops::AsyncFnMut;
use core::pin::pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use futures_lite::FutureExt;
use futures_lite::future::poll_once;
use poolhouse_core::pool::{PoolCounts, PoolState};
use poolhouse_core::selection::SelectionCriteria;
use poolhouse_driver::{ClientCore, Guard, OperationError, PoolSnapshot, RetryPolicy, Runtime, SelectionRequest};
use poolhouse_wire::bson::RawDocument;
use poolhouse_wire::command::CommandReply;
use std::sync::Mutex;
use std::time::Instant;

/// More polls than any future of these cases needs.
const POLLS_MAX: usize = 2000;

/// A client of a fake server. Each collection of the server has one document, whose id identifies
/// the collection.
pub(crate) struct Rig<S: Subject> {
    pub(crate) server: FakeServer,
    pub(crate) client: S::Client,
    drain_timeout: bool,
    /// The client's handle of the server, stored after the first check-out. Its pool can be
    /// inspected after the client has ended.
    seen: Mutex<Option<Handle<S>>>,
}

type Handle<S> = <<S as Subject>::Runtime as Runtime>::ServerHandle;

/// A fake server with filled collections and no connections.
///
/// - `large`: length in bytes of the document of the collection `large`.
pub(crate) fn filled_server(large: usize) -> FakeServer {
    // Logged messages would stay in memory, and some are large.
    let mut options = FakeOptions::default();
    options.log_max = 0;
    let server = FakeServer::start(options).expect("the fake server starts");
    {
        let mut filler = BlockingClient::connect(server.address(), PATIENCE).expect("it listens");
        for (name, bytes) in [("one", 0), ("other", 0), ("large", large)] {
            let filling = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![0; bytes] };
            let insert = bson::doc! { "insert": name, "documents": [{ "_id": name, "filling": filling }] };
            filler.run("db", insert).expect("an insert");
        }
    }
    server.wait_until(PATIENCE, |view| view.open_count() == 0).expect("no client is connected");
    server
}

impl<S: Subject> Rig<S> {
    /// Creates a client with its own server. `change` modifies the default options.
    pub(crate) fn new(subject: &S, change: impl FnOnce(&mut Shape)) -> Self {
        Self::of(subject, filled_server(0), change)
    }

    /// Creates a client of this server. `change` modifies the default options.
    pub(crate) fn of(subject: &S, server: FakeServer, change: impl FnOnce(&mut Shape)) -> Self {
        subject.open_way_to(server.address());
        let (client, drain_timeout) = client_of(subject, &server, change);
        Self { server, client, drain_timeout, seen: Mutex::new(None) }
    }

    /// Replaces this client, which has ended, by another client of the same server.
    pub(crate) fn renew(&mut self, subject: &S, change: impl FnOnce(&mut Shape)) {
        *self.seen.lock().expect("whole") = None;
        (self.client, self.drain_timeout) = client_of(subject, &self.server, change);
    }

    pub(crate) fn core(&self) -> &ClientCore<S::Runtime> {
        self.client.core()
    }

    /// Returns the pool of the only server.
    pub(crate) fn pool(&self) -> PoolSnapshot {
        pool(self.core())
    }

    pub(crate) fn counts(&self) -> PoolCounts {
        self.pool().counts
    }

    /// Waits until the server was checked successfully.
    pub(crate) async fn known(&self) {
        // Selection requests another check if the first check failed; once the server is known, it
        // requests none.
        self.core().select_server(&SelectionRequest::WRITE, None).await.expect("a server");
        eventually("the server is known", || self.pool().state == PoolState::Ready).await;
    }

    pub(crate) async fn check_out(&self) -> Guard<'_, S::Runtime> {
        let guard = self.core().check_out(&SelectionRequest::WRITE, None).await.expect("a connection");
        *self.seen.lock().expect("whole") = Some(guard.server().clone());
        guard
    }

    /// Waits until no connection is being established in the pool, and the server has as many open
    /// connections as the client.
    pub(crate) async fn at_rest(&self) {
        at_rest(&self.server, self.core(), 1).await;
    }

    /// [`DropPoint::reach`] with a frozen server. The server is thawed when the future first waits,
    /// at the latest when the future completes or is dropped.
    pub(crate) async fn reach_frozen<F: Future>(&self, point: DropPoint, future: F) -> Option<F::Output> {
        self.server.freeze();
        let done = point.reach_beside(future, async || self.server.thaw()).await;
        self.server.thaw();
        done
    }

    /// Asserts, right after a future was dropped, that no task waits for a connection, and that
    /// only connections with an outstanding late reply are in use.
    pub(crate) fn nothing_is_held(&self) {
        let counts = self.counts();
        assert_eq!(counts.waiting, 0, "{counts:?}");
        let draining = u32::from(self.drain_timeout && S::LIMITS.late_replies);
        assert!(counts.in_use <= draining, "{counts:?}");
    }

    /// Asserts that counts and connections agree, that the next operation gets the reply to its own
    /// request, and that the dropped future did not cause the pool to be cleared.
    pub(crate) async fn all_is_well(&self) {
        self.at_rest().await;
        self.works().await;
        assert_eq!(self.pool().generation, 0, "the pool was cleared");
    }

    /// Asserts that the next operation gets the reply to its own request, and that counts and
    /// connections agree afterwards.
    pub(crate) async fn works(&self) {
        assert_eq!(find(self.core(), "other").await.expect("the next operation succeeds"), "other");
        self.at_rest().await;
    }

    /// Closes the client. Asserts that the server sees all connections closed, and that the pool
    /// has neither connections nor waiters.
    pub(crate) async fn end(&self) {
        if let Some(Ok(known)) = poll_once(self.core().select_server(&SelectionRequest::WRITE, None)).await {
            *self.seen.lock().expect("whole") = Some(known);
        }
        self.core().close();
        eventually("the server has no connection", || self.server.open_count() == 0).await;
        let seen = self.seen.lock().expect("whole").clone();
        if let Some(seen) = seen {
            let is_empty = || {
                let counts = seen.pool_snapshot().counts;
                counts.total() == 0 && counts.waiting == 0
            };
            eventually("the pool is empty", is_empty).await;
        }
    }
}

fn client_of<S: Subject>(subject: &S, server: &FakeServer, change: impl FnOnce(&mut Shape)) -> (S::Client, bool) {
    let mut shape = Shape::of(server.address());
    shape.max_pool_size = shape.max_pool_size.min(S::LIMITS.connections);
    change(&mut shape);
    (subject.client(&shape), !shape.drain_timeout.is_zero())
}

/// Returns the pool of the only server of a client.
pub(crate) fn pool<R: Runtime>(core: &ClientCore<R>) -> PoolSnapshot {
    let mut found = None;
    core.for_each_server(|server| found = Some(server.pool));
    found.expect("the client has a server")
}

/// Waits until no connection is being established in the pool, and the server has as many open
/// connections as the client.
///
/// - `monitoring`: number of monitor connections.
pub(crate) async fn at_rest<R: Runtime>(server: &FakeServer, core: &ClientCore<R>, monitoring: usize) {
    let look = || {
        let counts = pool(core).counts;
        let open = server.open_count();
        let quiet = counts.in_use == 0 && counts.pending == 0 && counts.waiting == 0;
        (quiet && open == monitoring + counts.available as usize, counts, open)
    };
    let begun = Instant::now();
    while !look().0 {
        if begun.elapsed() >= PATIENCE {
            let mut server_type = None;
            core.for_each_server(|server| server_type = Some(server.server_type));
            panic!("not at rest: {:?}, the server is {server_type:?}", look());
        }
        async_io::Timer::after(Duration::from_millis(1)).await;
    }
}

/// Returns the id of the one document of a collection. A complete operation, with a second attempt
/// where that is allowed.
pub(crate) async fn find<R: Runtime>(core: &ClientCore<R>, name: &str) -> Result<String, OperationError> {
    attempt(core, name, false).await
}

/// [`find`] as an idempotent operation.
pub(crate) async fn find_again<R: Runtime>(core: &ClientCore<R>, name: &str) -> Result<String, OperationError> {
    attempt(core, name, true).await
}

async fn attempt<R: Runtime>(core: &ClientCore<R>, name: &str, idempotent: bool) -> Result<String, OperationError> {
    let policy = RetryPolicy { idempotent, ..RetryPolicy::DEFAULT };
    let mut attempts = core.attempts::<OperationError>(SelectionCriteria::write(), None, policy);
    loop {
        let mut guard = attempts.next().await?;
        match find_by(&mut guard, name).await {
            Ok(found) => return Ok(found),
            Err(error) => attempts.failed(error)?,
        }
    }
}

/// Returns the id of the one document of a collection, over this connection.
pub(crate) async fn find_by<R: Runtime>(guard: &mut Guard<'_, R>, name: &str) -> Result<String, OperationError> {
    Ok(id_of(guard.run_command("db", |writer| writer.str("find", name).map(drop)).await?))
}

/// [`find_by`] with a request that is longer by these bytes.
pub(crate) async fn find_at_length<R: Runtime>(
    guard: &mut Guard<'_, R>,
    name: &str,
    more: &[u8],
) -> Result<String, OperationError> {
    let reply =
        guard.run_command("db", |writer| writer.str("find", name)?.binary("comment", 0, more).map(drop)).await?;
    Ok(id_of(reply))
}

/// Returns the id of the first document of a reply.
fn id_of(reply: RawDocument<'_>) -> String {
    assert!(CommandReply::parse(reply).is_ok_and(|reply| reply.ok), "no success: {reply:?}");
    let cursor = reply.get("cursor").ok().flatten().and_then(|cursor| cursor.as_document()).expect("a cursor");
    let batch = cursor.get("firstBatch").ok().flatten().and_then(|batch| batch.as_array()).expect("a batch");
    let first = batch.as_document().get("0").ok().flatten().and_then(|first| first.as_document()).expect("a document");
    first.get("_id").ok().flatten().and_then(|id| id.as_str()).expect("an id").to_owned()
}

/// A ping, without a second attempt.
pub(crate) async fn ping<R: Runtime>(core: &ClientCore<R>) -> Result<(), OperationError> {
    ping_by(&mut core.check_out(&SelectionRequest::WRITE, None).await?).await
}

/// A ping over this connection.
pub(crate) async fn ping_by<R: Runtime>(guard: &mut Guard<'_, R>) -> Result<(), OperationError> {
    guard.run_command("admin", |writer| writer.int32("ping", 1).map(drop)).await.map(drop)
}

/// A waker that wakes the task that polls by hand.
#[derive(Default)]
pub(crate) struct Bell {
    rung: AtomicBool,
    listener: Mutex<Option<Waker>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::SeqCst);
        let listener = self.listener.lock().expect("not poisoned").take();
        if let Some(listener) = listener {
            listener.wake();
        }
    }
}

impl Bell {
    /// Waits until the waker was woken, and resets it.
    pub(crate) async fn rung(&self) {
        let rung = poll_fn(|context| {
            self.listener.lock().expect("not poisoned").replace(context.waker().clone());
            if self.rung.swap(false, Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        });
        within(PATIENCE, "the waker is woken", rung).await;
    }
}

/// Awaits a future that must complete within this limit.
pub(crate) async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    let late = async {
        async_io::Timer::after(limit).await;
        panic!("condition not met within {limit:?}: {what}");
    };
    future.or(late).await
}

/// When a future is dropped, relative to its last poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DropIt {
    AtOnce,
    /// After its waker was woken: the awaited event has occurred, and the future was not polled
    /// since.
    WhenWoken,
}

/// The point at which a future is dropped: after a number of polls, at once or when woken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DropPoint {
    pub(crate) polls: usize,
    pub(crate) drop_it: DropIt,
}

impl DropPoint {
    /// Polls a future up to `polls` times, then drops it. Returns its output if it completed by
    /// then.
    pub(crate) async fn reach<F: Future>(self, future: F) -> Option<F::Output> {
        self.reach_beside(future, async || ()).await
    }

    /// [`DropPoint::reach`]. `beside` runs to its end when the future first waits, except if the
    /// future is dropped right after that poll.
    pub(crate) async fn reach_beside<F: Future>(self, future: F, beside: impl AsyncFnOnce()) -> Option<F::Output> {
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        let mut beside = Some(beside);
        let mut future = pin!(future);
        for polled in 1..=self.polls {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Some(output);
            }
            if polled == self.polls && self.drop_it == DropIt::AtOnce {
                break;
            }
            if let Some(beside) = beside.take() {
                beside().await;
            }
            bell.rung().await;
        }
        note_drop_point();
        None
    }
}

/// Runs a round for each point at which a future may be dropped: before its first poll, after its
/// first poll, after its second, and so on. A round returns `true` if the future completed before
/// it was dropped. The rounds end when three consecutive numbers of polls completed it: a single
/// completion may be due to a delay of this thread. All numbers are tried twice: the future is
/// dropped at once, then when it was woken.
///
/// - `least`: the number of polls after which the future must not have completed; otherwise the
///   case covers fewer drop points than it should.
pub(crate) async fn at_every_point(least: usize, mut round: impl AsyncFnMut(DropPoint) -> bool) {
    for drop_it in [DropIt::AtOnce, DropIt::WhenWoken] {
        let (mut last, mut done) = (0, 0);
        for polls in usize::from(drop_it == DropIt::WhenWoken).. {
            assert!(polls < POLLS_MAX, "{drop_it:?}: not done after {polls} polls");
            if round(DropPoint { polls, drop_it }).await {
                done += 1;
            } else {
                (last, done) = (polls, 0);
            }
            if done == 3 {
                break;
            }
        }
        assert!(last >= least, "{drop_it:?}: done after {last} polls");
    }
}
