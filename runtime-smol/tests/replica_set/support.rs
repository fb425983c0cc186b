//! Shared by the tests of sets.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use poolhouse_smol::poolhouse_core::topology::OwnedSdamEvent;
use poolhouse_smol::poolhouse_core::{Instant as ClientInstant, ServerType};
use poolhouse_smol::{Client, ClientOptions, CommandOptions, Error, Event, EventRef, Subscription};
use poolhouse_tests::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions};
use poolhouse_tests::fake::{FakeServer, Received};
use poolhouse_tests::patience::next_event;
pub(crate) use poolhouse_tests::patience::{PATIENCE, eventually, refused, run};
use smol::Task;
use std::sync::Mutex;
use std::time::Instant;

/// Three members that change only by commands of the test.
pub(crate) fn still_set() -> FakeReplicaSet {
    FakeReplicaSet::start(FakeReplicaSetOptions::of(3).by_hand()).expect("the set starts")
}

/// Three members with automatic and early elections.
pub(crate) fn set() -> FakeReplicaSet {
    FakeReplicaSet::start(FakeReplicaSetOptions::of(3)).expect("the set starts")
}

/// Options with a monitor that checks every half second, which finds a restarted member soon.
pub(crate) fn options(uri: &str) -> ClientOptions {
    let mut options = ClientOptions::parse(uri).expect("the string is right");
    options.monitor.heartbeat_frequency = Duration::from_millis(500);
    options.timeout = Some(PATIENCE);
    options
}

pub(crate) fn client(options: ClientOptions) -> Client {
    Client::with_options(options).expect("the options are right")
}

pub(crate) async fn ping(client: &Client) -> Result<(), Error> {
    client.run_command("admin", bson::doc! { "ping": 1 }).await.map(drop)
}

pub(crate) async fn ping_with(client: &Client, options: CommandOptions<'_>) -> Result<(), Error> {
    client.run_command_with("admin", bson::doc! { "ping": 1 }, options).await.map(drop)
}

pub(crate) async fn insert(client: &Client, options: CommandOptions<'_>) -> Result<(), Error> {
    client.run_command_with("db", bson::doc! { "insert": "c", "documents": [{}] }, options).await.map(drop)
}

pub(crate) fn server_type(client: &Client, server: &FakeServer) -> ServerType {
    let address = server.address().to_string();
    client.servers().iter().find(|status| status.address == address).map_or(ServerType::Unknown, |it| it.server_type)
}

/// Waits until the client knows one primary, and all other members of the configuration as
/// secondaries.
pub(crate) async fn known(client: &Client, set: &FakeReplicaSet) {
    let begun = Instant::now();
    loop {
        let members = set.config();
        let primary = set.primary();
        let is_known = client.servers().len() == members.len()
            && members.iter().all(|entry| {
                let expected =
                    if Some(entry.member) == primary { ServerType::RsPrimary } else { ServerType::RsSecondary };
                server_type(client, &set.server(entry.member)) == expected
            });
        if is_known {
            return;
        }
        let seen = client.servers();
        assert!(begun.elapsed() < PATIENCE, "the set is {members:#?}, primary {primary:?}; the client sees {seen:#?}");
        smol::Timer::after(Duration::from_millis(1)).await;
    }
}

/// The commands of this name that a server received.
pub(crate) fn sent(server: &FakeServer, name: &str) -> Vec<Received> {
    server.log().into_iter().filter(|received| received.name == name).collect()
}

/// Waits until every server of the client that answers counts as many connections as the client has
/// to it.
///
/// - `monitoring`: connections of each monitor.
pub(crate) async fn counts_agree(client: &Client, servers: &[Arc<FakeServer>], monitoring: usize) {
    let begun = Instant::now();
    loop {
        let statuses = client.servers();
        let seen: Vec<_> = servers
            .iter()
            .map(|server| {
                let address = server.address().to_string();
                let counts = statuses.iter().find(|status| status.address == address).map(|it| it.pool.counts);
                (server.open_count(), counts)
            })
            .collect();
        let agrees = seen.iter().all(|(open, counts)| match counts {
            Some(it) => it.in_use + it.pending + it.waiting == 0 && *open == monitoring + it.available as usize,
            None => *open == 0,
        });
        if agrees {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "connections open at the server, and counts of the pool: {seen:?}");
        smol::Timer::after(Duration::from_millis(1)).await;
    }
}

/// Events of the topology and states of pools, without the events of single operations.
pub(crate) fn rare(event: &EventRef<'_>) -> bool {
    use poolhouse_smol::poolhouse_core::pool::PoolEvent;
    matches!(
        event,
        EventRef::Sdam(_)
            | EventRef::Pool(
                PoolEvent::PoolCreated { .. }
                    | PoolEvent::PoolReady { .. }
                    | PoolEvent::PoolCleared { .. }
                    | PoolEvent::PoolClosed { .. }
            )
    )
}

/// The next event that matches, and its time.
pub(crate) async fn next(
    events: &mut Subscription,
    what: &str,
    wanted: impl FnMut(&Event) -> bool,
) -> (ClientInstant, Event) {
    next_event(events, PATIENCE, what, wanted).await
}

/// Whether the event reports that this server is now of this type.
pub(crate) fn turned(event: &Event, server: &FakeServer, expected: ServerType) -> bool {
    let Event::Sdam(event) = event else { return false };
    if let OwnedSdamEvent::ServerDescriptionChanged { address, new, .. } = &**event {
        *address == server.address().to_string() && new.server_type() == expected
    } else {
        false
    }
}

/// Tasks that repeat an operation until they are stopped.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    succeeded: Arc<AtomicUsize>,
    /// The number of ended operations of each task.
    ended: Arc<Vec<AtomicUsize>>,
    errors: Arc<Mutex<Vec<String>>>,
    tasks: Vec<Task<()>>,
}

impl Load {
    /// Every second task inserts, the others ping; both are idempotent.
    pub(crate) fn start(client: &Client, tasks: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let succeeded = Arc::new(AtomicUsize::new(0));
        let ended: Arc<Vec<_>> = Arc::new((0..tasks).map(|_| AtomicUsize::new(0)).collect());
        let errors = Arc::new(Mutex::new(Vec::new()));
        let tasks = (0..tasks)
            .map(|task| {
                let (client, stop) = (client.clone(), Arc::clone(&stop));
                let (succeeded, ended, errors) = (Arc::clone(&succeeded), Arc::clone(&ended), Arc::clone(&errors));
                smol::spawn(async move {
                    while !stop.load(Ordering::Acquire) {
                        let options = CommandOptions::new().idempotent(true);
                        let outcome = if task.is_multiple_of(2) {
                            insert(&client, options).await
                        } else {
                            ping_with(&client, options).await
                        };
                        match outcome {
                            Ok(()) => {
                                succeeded.fetch_add(1, Ordering::Release);
                            }
                            Err(error) => errors.lock().expect("not poisoned").push(format!("{error:?}")),
                        }
                        ended[task].fetch_add(1, Ordering::Release);
                        smol::future::yield_now().await;
                    }
                })
            })
            .collect();
        Self { stop, succeeded, ended, errors, tasks }
    }

    pub(crate) async fn more_successes(&self, count: usize) {
        let from = self.succeeded.load(Ordering::Acquire);
        eventually("operations succeed", || self.succeeded.load(Ordering::Acquire) >= from + count).await;
    }

    /// Waits until every operation in flight has ended, so each later operation meets only the next
    /// fault.
    pub(crate) async fn turn_over(&self) {
        let from: Vec<_> = self.ended.iter().map(|count| count.load(Ordering::Acquire)).collect();
        let has_ended = |(count, from): (&AtomicUsize, &usize)| count.load(Ordering::Acquire) > *from;
        eventually("all operations end", || self.ended.iter().zip(&from).all(has_ended)).await;
    }

    /// Ends the load. Returns the number of successful operations, and the errors of the others.
    pub(crate) async fn end(self) -> (usize, Vec<String>) {
        self.stop.store(true, Ordering::Release);
        for task in self.tasks {
            task.await;
        }
        let errors = core::mem::take(&mut *self.errors.lock().expect("not poisoned"));
        (self.succeeded.load(Ordering::Acquire), errors)
    }
}
