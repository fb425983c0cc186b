//! Shared by the tests of the client.

use alloc::sync::Arc;
use alloc::task::Wake;
use core::fmt::Debug;
use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use poolhouse_smol::poolhouse_core::Instant as ClientInstant;
use poolhouse_smol::poolhouse_core::pool::{ClosedReason, PoolEvent};
use poolhouse_smol::poolhouse_driver::OperationError;
use poolhouse_smol::{Client, ClientOptions, Error, Event, Notice, ServerMonitoringMode, Subscription};
use poolhouse_tests::fake::{FakeOptions, FakeServer};
pub(crate) use poolhouse_tests::patience::{PATIENCE, eventually, refused, run};
use smol::future::FutureExt;
use std::sync::{Condvar, Mutex};
use std::time::Instant;

pub(crate) fn server() -> FakeServer {
    FakeServer::start(FakeOptions::default()).expect("the fake server starts")
}

/// The interval of checks, which is longer than any test. So each fault and each fail point applies
/// to the intended handshake, and no result is caused by a scheduled check.
pub(crate) const UNASKED: Duration = Duration::from_secs(600);

/// Options for the fake server with a polling monitor (one connection, one check), which makes
/// counts exact.
pub(crate) fn options(server: &FakeServer) -> ClientOptions {
    let mut options = ClientOptions::new(server.address().to_string());
    options.monitor.server_monitoring_mode = ServerMonitoringMode::Poll;
    options.monitor.heartbeat_frequency = UNASKED;
    options.timeout = Some(PATIENCE);
    options
}

pub(crate) fn client(options: ClientOptions) -> Client {
    Client::with_options(options).expect("the options are right")
}

/// One attempt, without the client's own retry.
pub(crate) async fn ping(client: &Client) -> Result<(), Error> {
    client.check_out().await?.run_command("admin", bson::doc! { "ping": 1 }).await.map(drop)
}

/// Waits until nothing is in progress in the pool, and the server has as many connections open as
/// the client has.
///
/// - `monitoring`: connections of the monitor.
pub(crate) async fn at_rest(server: &FakeServer, client: &Client, monitoring: usize) {
    let mut seen = (None, 0);
    let begun = Instant::now();
    loop {
        let snapshot = client.servers()[0].pool;
        let counts = snapshot.counts;
        let open = server.open_count();
        seen = if seen == (Some(snapshot), open) { seen } else { (Some(snapshot), open) };
        let quiet = counts.in_use == 0 && counts.pending == 0 && counts.waiting == 0;
        if quiet && open == monitoring + counts.available as usize {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "not at rest: {seen:?}");
        smol::Timer::after(Duration::from_millis(1)).await;
    }
}

pub(crate) fn operation(error: &Error) -> OperationError {
    let Error::Operation(error, _) = error else { panic!("no error of an operation: {error:?}") };
    error.clone()
}

/// All events since the start of the client, or since the creation of this value.
pub(crate) struct Watch {
    subscription: Subscription,
    pub(crate) seen: Vec<Event>,
    /// The time of each event.
    pub(crate) times: Vec<ClientInstant>,
}

impl Watch {
    pub(crate) fn of(client: &Client) -> Self {
        Self::over(client.subscribe())
    }

    pub(crate) fn over(subscription: Subscription) -> Self {
        Self { subscription, seen: Vec::new(), times: Vec::new() }
    }

    fn keep(&mut self, notice: Notice) -> &Event {
        let Notice::Event { at, event } = notice else { panic!("events were lost: {notice:?}") };
        self.times.push(at);
        self.seen.push(event);
        self.seen.last().expect("just pushed")
    }

    /// Waits for the next event that matches, and skips the others.
    pub(crate) async fn until(&mut self, what: &str, mut wanted: impl FnMut(&Event) -> bool) -> Event {
        let limit = async {
            smol::Timer::after(PATIENCE).await;
            None
        };
        let mut limit = pin!(limit);
        loop {
            let next = async { Some(self.subscription.next().await) };
            match next.or(limit.as_mut()).await {
                Some(Some(notice)) => {
                    let event = self.keep(notice);
                    if wanted(event) {
                        return event.clone();
                    }
                }
                Some(None) => panic!("the subscription ended before {what}: {:#?}", self.seen),
                None => panic!("never seen: {what}: {:#?}", self.seen),
            }
        }
    }

    pub(crate) async fn until_pool(&mut self, what: &str, mut wanted: impl FnMut(&PoolEvent) -> bool) -> PoolEvent {
        let event = self.until(what, |event| matches!(event, Event::Pool(event) if wanted(event))).await;
        let Event::Pool(event) = event else { panic!("no event of a pool: {event:?}") };
        event
    }

    /// The reason of the next closed connection.
    pub(crate) async fn until_closed(&mut self) -> ClosedReason {
        let event =
            self.until_pool("ConnectionClosed", |event| matches!(event, PoolEvent::ConnectionClosed { .. })).await;
        let PoolEvent::ConnectionClosed { reason, .. } = event else { panic!("not asked for: {event:?}") };
        reason
    }

    /// All events so far.
    pub(crate) fn catch_up(&mut self) -> &[Event] {
        while let Some(notice) = self.subscription.try_next() {
            self.keep(notice);
        }
        &self.seen
    }

    /// All events up to the end, which the end of the client causes.
    pub(crate) async fn read_to_the_end(&mut self) -> &[Event] {
        let rest = async {
            while let Some(notice) = self.subscription.next().await {
                self.keep(notice);
            }
        };
        let limit = async {
            smol::Timer::after(PATIENCE).await;
            panic!("the subscription does not end");
        };
        rest.or(limit).await;
        &self.seen
    }

    pub(crate) fn pool_names(&mut self) -> Vec<&'static str> {
        pool_names(self.catch_up())
    }
}

pub(crate) fn pool_names(events: &[Event]) -> Vec<&'static str> {
    events.iter().filter_map(|event| if let Event::Pool(event) = event { Some(event.name()) } else { None }).collect()
}

pub(crate) fn count(names: &[&str], name: &str) -> usize {
    names.iter().filter(|each| **each == name).count()
}

/// A waker for a thread that polls futures itself.
#[derive(Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

impl Bell {
    pub(crate) fn ring(&self) {
        *self.rung.lock().expect("not poisoned") = true;
        self.changed.notify_all();
    }

    /// Waits until the waker was woken, and resets it. Returns whether it was woken in time.
    pub(crate) fn wait(&self) -> bool {
        let rung = self.rung.lock().expect("not poisoned");
        let (mut rung, _) = self.changed.wait_timeout_while(rung, PATIENCE, |rung| !*rung).expect("not poisoned");
        core::mem::take(&mut *rung)
    }
}

/// The time at which a future is dropped after its last poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DropIt {
    AtOnce,
    /// When its waker was woken: its result is available, but was not polled.
    WhenWoken,
}

/// Polls a future a number of times, then drops it. Returns its output if it was ready by then.
pub(crate) fn poll_times<F: Future>(future: F, times: usize, drop_it: DropIt) -> Option<F::Output> {
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    for polled in 1..=times {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        if polled < times || drop_it == DropIt::WhenWoken {
            assert!(bell.wait(), "never woken after poll {polled}");
        }
    }
    None
}
