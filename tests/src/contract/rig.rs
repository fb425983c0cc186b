//! What the cases share: a client of a fake server, what is asked of both, and futures that are dropped.

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
use poolhouse_driver::{Guard, Hub, OperationError, PoolSnapshot, RetryPolicy, Runtime, Wanted};
use poolhouse_wire::bson::RawDocument;
use poolhouse_wire::command::CommandReply;
use std::sync::Mutex;
use std::time::Instant;

/// Polls that nothing here needs more of.
const POLLS_MAX: usize = 2000;

/// A client of a fake server, in which each collection has one document: its id tells which of them was asked.
pub(crate) struct Rig<S: Subject> {
    pub(crate) server: FakeServer,
    pub(crate) client: S::Client,
    late_reply: bool,
    /// The server as the client has it, once a connection to it was checked out. Its pool is still there when the client has ended.
    seen: Mutex<Option<Handle<S>>>,
}

type Handle<S> = <<S as Subject>::Runtime as Runtime>::ServerHandle;

/// A fake server whose collections are filled, and which nobody is connected to.
///
/// - `large`: bytes of the document of the collection `large`.
pub(crate) fn filled_server(large: usize) -> FakeServer {
    // What is logged would be kept, and some of it is large.
    let options = FakeOptions { log_max: 0, ..FakeOptions::default() };
    let server = FakeServer::start(options).expect("the fake server starts");
    {
        let mut filler = BlockingClient::connect(server.address(), PATIENCE).expect("it listens");
        for (name, bytes) in [("one", 0), ("other", 0), ("large", large)] {
            let filling = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![0; bytes] };
            let insert = bson::doc! { "insert": name, "documents": [{ "_id": name, "filling": filling }] };
            filler.run("db", insert).expect("an insert");
        }
    }
    server.wait_until(PATIENCE, |view| view.open_count() == 0).expect("nobody is connected");
    server
}

impl<S: Subject> Rig<S> {
    /// A client of a server of its own. Its options are the defaults, with what `change` makes of them.
    pub(crate) fn new(subject: &S, change: impl FnOnce(&mut Shape)) -> Self {
        Self::of(subject, filled_server(0), change)
    }

    /// A client of this server.
    pub(crate) fn of(subject: &S, server: FakeServer, change: impl FnOnce(&mut Shape)) -> Self {
        subject.open_way_to(server.address());
        let (client, late_reply) = client_of(subject, &server, change);
        Self { server, client, late_reply, seen: Mutex::new(None) }
    }

    /// Another client of the same server takes the place of this one, which has ended.
    pub(crate) fn renew(&mut self, subject: &S, change: impl FnOnce(&mut Shape)) {
        *self.seen.lock().expect("whole") = None;
        (self.client, self.late_reply) = client_of(subject, &self.server, change);
    }

    pub(crate) fn hub(&self) -> &Hub<S::Runtime> {
        self.client.hub()
    }

    /// The pool of the one server.
    pub(crate) fn pool(&self) -> PoolSnapshot {
        pool(self.hub())
    }

    pub(crate) fn counts(&self) -> PoolCounts {
        self.pool().counts
    }

    /// Waits until the server is known.
    pub(crate) async fn known(&self) {
        // It asks for checks, should the first have come to nothing, and for none afterwards.
        self.hub().select_server(&Wanted::WRITE, None).await.expect("a server");
        eventually("the server is known", || self.pool().state == PoolState::Ready).await;
    }

    pub(crate) async fn check_out(&self) -> Guard<'_, S::Runtime> {
        let guard = self.hub().check_out(&Wanted::WRITE, None).await.expect("a connection");
        *self.seen.lock().expect("whole") = Some(guard.server().clone());
        guard
    }

    /// Waits until nothing is under way in the pool, and the server has as many connections open as the client has.
    pub(crate) async fn at_rest(&self) {
        at_rest(&self.server, self.hub(), 1).await;
    }

    /// [`DropPoint::reach`] while the server stands still, until the future waits for it or is dropped.
    pub(crate) async fn reach_frozen<F: Future>(&self, point: DropPoint, future: F) -> Option<F::Output> {
        self.server.freeze();
        let done = point.reach_beside(future, || self.server.thaw()).await;
        self.server.thaw();
        done
    }

    /// Right after a future was dropped: nobody waits for a connection, and none is in use but those whose reply is waited for in the background.
    pub(crate) fn nothing_is_held(&self) {
        let counts = self.counts();
        assert_eq!(counts.waiting, 0, "{counts:?}");
        let draining = u32::from(self.late_reply && S::LIMITS.late_replies);
        assert!(counts.in_use <= draining, "{counts:?}");
    }

    /// Counts and connections agree, the next operation gets the reply to its own request, and the server is none the worse for what was dropped.
    pub(crate) async fn all_is_well(&self) {
        self.at_rest().await;
        self.works().await;
        assert_eq!(self.pool().generation, 0, "the pool was cleared");
    }

    /// The next operation gets the reply to its own request, and after that counts and connections agree.
    pub(crate) async fn works(&self) {
        assert_eq!(find(self.hub(), "other").await.expect("the next operation succeeds"), "other");
        self.at_rest().await;
    }

    /// Closes the client; the server sees all connections closed, and the pool has none and nobody who waits.
    pub(crate) async fn end(&self) {
        if let Some(Ok(known)) = poll_once(self.hub().select_server(&Wanted::WRITE, None)).await {
            *self.seen.lock().expect("whole") = Some(known);
        }
        self.hub().close();
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
    (subject.client(&shape), !shape.late_reply.is_zero())
}

/// The pool of a client's one server.
pub(crate) fn pool<R: Runtime>(hub: &Hub<R>) -> PoolSnapshot {
    let mut found = None;
    hub.for_each_server(|server| found = Some(server.pool));
    found.expect("the client has a server")
}

/// Waits until nothing is under way in the pool, and the server has as many connections open as the client has.
///
/// - `monitoring`: connections of the monitor.
pub(crate) async fn at_rest<R: Runtime>(server: &FakeServer, hub: &Hub<R>, monitoring: usize) {
    let look = || {
        let counts = pool(hub).counts;
        let open = server.open_count();
        let quiet = counts.in_use == 0 && counts.pending == 0 && counts.waiting == 0;
        (quiet && open == monitoring + counts.available as usize, counts, open)
    };
    let begun = Instant::now();
    while !look().0 {
        assert!(begun.elapsed() < PATIENCE, "not at rest: {:?}", look());
        async_io::Timer::after(Duration::from_millis(1)).await;
    }
}

/// The id of the one document of a collection: an operation from its beginning to its end, with a second attempt where that is allowed.
pub(crate) async fn find<R: Runtime>(hub: &Hub<R>, name: &str) -> Result<String, OperationError> {
    attempt(hub, name, false).await
}

/// [`find`] that may be repeated.
pub(crate) async fn find_again<R: Runtime>(hub: &Hub<R>, name: &str) -> Result<String, OperationError> {
    attempt(hub, name, true).await
}

async fn attempt<R: Runtime>(hub: &Hub<R>, name: &str, idempotent: bool) -> Result<String, OperationError> {
    let policy = RetryPolicy { idempotent, ..RetryPolicy::DEFAULT };
    let mut attempts = hub.attempts::<OperationError>(SelectionCriteria::write(), None, policy);
    loop {
        let mut guard = attempts.next().await?;
        match find_by(&mut guard, name).await {
            Ok(found) => return Ok(found),
            Err(error) => attempts.failed(error)?,
        }
    }
}

/// The id of the one document of a collection, over this connection.
pub(crate) async fn find_by<R: Runtime>(guard: &mut Guard<'_, R>, name: &str) -> Result<String, OperationError> {
    Ok(id_of(guard.run_command("db", |writer| writer.str("find", name).map(drop)).await?))
}

/// [`find_by`] by a request that is so much longer.
pub(crate) async fn find_at_length<R: Runtime>(
    guard: &mut Guard<'_, R>,
    name: &str,
    more: &[u8],
) -> Result<String, OperationError> {
    let reply =
        guard.run_command("db", |writer| writer.str("find", name)?.binary("comment", 0, more).map(drop)).await?;
    Ok(id_of(reply))
}

/// The id of the first document that was found.
fn id_of(reply: RawDocument<'_>) -> String {
    assert!(CommandReply::parse(reply).is_ok_and(|reply| reply.ok), "no success: {reply:?}");
    let cursor = reply.get("cursor").ok().flatten().and_then(|cursor| cursor.as_document()).expect("a cursor");
    let batch = cursor.get("firstBatch").ok().flatten().and_then(|batch| batch.as_array()).expect("a batch");
    let first = batch.as_document().get("0").ok().flatten().and_then(|first| first.as_document()).expect("a document");
    first.get("_id").ok().flatten().and_then(|id| id.as_str()).expect("an id").to_owned()
}

/// One attempt of a ping.
pub(crate) async fn ping<R: Runtime>(hub: &Hub<R>) -> Result<(), OperationError> {
    ping_by(&mut hub.check_out(&Wanted::WRITE, None).await?).await
}

/// A ping over this connection.
pub(crate) async fn ping_by<R: Runtime>(guard: &mut Guard<'_, R>) -> Result<(), OperationError> {
    guard.run_command("admin", |writer| writer.int32("ping", 1).map(drop)).await.map(drop)
}

/// Wakes whoever polls by hand.
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
    /// Waits until the waker was woken, and forgets it.
    pub(crate) async fn rung(&self) {
        let rung = poll_fn(|context| {
            self.listener.lock().expect("not poisoned").replace(context.waker().clone());
            if self.rung.swap(false, Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        });
        within(PATIENCE, "the waker is woken", rung).await;
    }
}

/// Awaits what must not take longer than this.
pub(crate) async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    let late = async {
        async_io::Timer::after(limit).await;
        panic!("not within {limit:?}: {what}");
    };
    future.or(late).await
}

/// When a future is dropped after its last poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DropIt {
    AtOnce,
    /// When its waker was woken: whatever it waited for is there, and nobody has looked.
    WhenWoken,
}

/// After how many polls a future is dropped, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DropPoint {
    pub(crate) polls: usize,
    pub(crate) drop_it: DropIt,
}

impl DropPoint {
    /// Polls a future so many times, then drops it; its output if it was done by then.
    pub(crate) async fn reach<F: Future>(self, future: F) -> Option<F::Output> {
        self.reach_beside(future, || ()).await
    }

    /// [`DropPoint::reach`]; `beside` is called once the future waits for the first time, unless it is dropped before anything else happens.
    pub(crate) async fn reach_beside<F: Future>(self, future: F, beside: impl FnOnce()) -> Option<F::Output> {
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
                beside();
            }
            bell.rung().await;
        }
        note_drop_point();
        None
    }
}

/// Runs a round for each point at which a future may be dropped: before its first poll, after it, after its second, .. until it is done by
/// then, which the round tells, and is with two polls more, too: once it may be since this thread was held up. The first half of the rounds drops it
/// at once, the other one when it was woken.
///
/// - `least`: after how many polls it must not be done yet; else the case proves less than it says.
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
