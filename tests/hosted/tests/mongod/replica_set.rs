//! A genuine set of three under load: every fault, and the time from it to the first successful
//! operation after it.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::Mutex;
use std::time::Instant;

use super::sleep;
use bson::doc;
use poolhouse_smol::poolhouse_client::Platform;
use poolhouse_smol::poolhouse_core::ServerType;
use poolhouse_smol::{Client, ClientOptions, CommandOptions, Error, Smol};
use poolhouse_tests::mongod::{MongodOptions, MongodReplicaSet, MongodReplicaSetOptions};
use smol::{Task, spawn, unblock};

use super::{Outcome, PATIENCE, SLACK, eventually, eventually_within};

/// Limit of each operation: longer than an election, and than the client waits for a frozen server.
/// Both take 11 s, at the same time; an election without a winner takes 5 s more.
const DEADLINE: Duration = Duration::from_secs(40);
/// Timeout until the set has recovered from a fault.
pub(super) const SETTLING: Duration = Duration::from_secs(60);
/// Half of the tasks ping, half insert.
const TASKS: usize = 32;

/// A set that elects another primary only when the primary is gone, and not when a busy machine
/// delays it for some seconds.
pub(super) fn of_three(server: MongodOptions) -> MongodReplicaSetOptions {
    let calm = Duration::from_secs(5);
    MongodReplicaSetOptions { election_timeout: calm, heartbeat_timeout: calm, server, ..Default::default() }
}

pub(super) async fn survives_what_befalls_it() -> Outcome {
    let set = Arc::new(Mutex::new(MongodReplicaSet::start_with(of_three(MongodOptions::default()))?));
    let mut options = ClientOptions::parse(&lock(&set).uri())?;
    options.monitor.heartbeat_frequency = Duration::from_millis(500);
    // An operation has two attempts, so only one of them may be lost: to the fault, and not to a
    // busy machine.
    options.monitor.connect_timeout = Some(Duration::from_secs(10));
    options.pool.max_pool_size = 10;
    let client = Client::with_options(options)?;
    // Blocking calls of the harness, on a separate thread.
    let on = |work: fn(&mut MongodReplicaSet) -> Result<usize, Failure>| {
        let set = Arc::clone(&set);
        unblock(move || work(&mut lock(&set)))
    };
    on(|set| Ok(set.settle(SETTLING)?)).await.map_err(|error| error.to_string())?;
    let load = Load::start(&client);
    load.more_successes(200).await?;

    load.round("replSetStepDown", on(|set| Ok(set.step_down(10)?))).await?;
    agree(&set, &client, &load).await?;

    let killed = load.round("kill -9 of the primary", on(kill_primary)).await?;
    eventually("the client has marked the killed server Unknown", || {
        Ok(server_type(&client, &set, killed) == ServerType::Unknown)
    })
    .await?;
    unblock({
        let set = Arc::clone(&set);
        move || lock(&set).restart(killed)
    })
    .await?;
    agree(&set, &client, &load).await?;

    let before: Vec<_> = (0..3).map(|member| generation(&client, &set, member)).collect();
    let stopped = load.round("SIGSTOP of the primary", on(stop_primary)).await?;
    load.more_successes(100).await?;
    eventually(
        "the pool of the stopped server is cleared",
        || Ok(generation(&client, &set, stopped) > before[stopped]),
    )
    .await?;
    unblock({
        let set = Arc::clone(&set);
        move || lock(&set).cont(stopped)
    })
    .await?;
    agree(&set, &client, &load).await?;

    let before = counts_before(&lock(&set));
    let removed = load.round("reconfig that removes a secondary", on(remove_secondary)).await?;
    eventually("the client has removed the server", || Ok(client.servers().len() == 2)).await?;
    // A removed member rejects aggregations, and reports only the number of its connections; a
    // remaining connection of the client would be found after the member was added again.
    let kept = before[removed].0.saturating_sub(before[removed].1);
    eventually("the client's connections to it are closed", || {
        let open = lock(&set).member(removed).other_connections();
        Ok(open.is_ok_and(|open| open <= kept))
    })
    .await?;
    let set_again = Arc::clone(&set);
    let adding = unblock(move || {
        lock(&set_again).reconfig_add(removed)?;
        Ok(removed)
    });
    load.round("reconfig that adds it again", adding).await?;
    agree(&set, &client, &load).await?;

    let (succeeded, errors) = load.end().await;
    println!("{succeeded} operations succeeded, {} failed", errors.len());
    assert_eq!(errors, Vec::<String>::new(), "operations failed although a retry was possible");
    client.close().await;
    eventually("no connection is left", || {
        let set = lock(&set);
        Ok((0..3).all(|member| clients_of(&set, member) == Some(0)))
    })
    .await
}

/// An error that can be sent between threads.
type Failure = Box<dyn core::error::Error + Send + Sync>;

fn lock(set: &Mutex<MongodReplicaSet>) -> std::sync::MutexGuard<'_, MongodReplicaSet> {
    set.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn kill_primary(set: &mut MongodReplicaSet) -> Result<usize, Failure> {
    let primary = set.wait_for_primary(SETTLING)?;
    set.kill9(primary)?;
    Ok(primary)
}

fn stop_primary(set: &mut MongodReplicaSet) -> Result<usize, Failure> {
    let primary = set.wait_for_primary(SETTLING)?;
    set.stop(primary)?;
    Ok(primary)
}

fn remove_secondary(set: &mut MongodReplicaSet) -> Result<usize, Failure> {
    let secondary = (set.wait_for_primary(SETTLING)? + 1) % 3;
    set.reconfig_remove(secondary)?;
    Ok(secondary)
}

fn server_type(client: &Client, set: &Mutex<MongodReplicaSet>, member: usize) -> ServerType {
    let address = lock(set).member(member).address().to_string();
    client.servers().iter().find(|it| it.address == address).map_or(ServerType::Unknown, |it| it.server_type)
}

/// The generation of the client's pool to a member; `None` without a pool.
fn generation(client: &Client, set: &Mutex<MongodReplicaSet>, member: usize) -> Option<u64> {
    let address = lock(set).member(member).address().to_string();
    client.servers().iter().find(|it| it.address == address).map(|it| it.pool.generation)
}

/// The connections of our clients to a member, identified by the driver name in their metadata.
///
/// `None` while the member does not answer: during a change of state it also closes the harness's
/// connection.
fn clients_of(set: &MongodReplicaSet, member: usize) -> Option<u64> {
    let ours = doc! { "clientMetadata.driver.name": Smol::DRIVER_NAME };
    let count = doc! {
        "aggregate": 1, "cursor": {}, "$readPreference": { "mode": "secondaryPreferred" },
        "pipeline": [
            { "$currentOp": { "allUsers": true, "idleConnections": true } }, { "$match": ours }, { "$count": "n" },
        ],
    };
    let reply = set.member(member).run_command(count).ok()?;
    let first = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let first = first.ok().and_then(|batch| batch.first()).and_then(bson::Bson::as_document);
    Some(first.and_then(|it| it.get_i32("n").ok()).and_then(|n| u64::try_from(n).ok()).unwrap_or(0))
}

/// For each member: all connections, and those of our client.
fn counts_before(set: &MongodReplicaSet) -> Vec<(u64, u64)> {
    let all = |member| set.member(member).other_connections().unwrap_or(0);
    (0..set.members_count()).map(|member| (all(member), clients_of(set, member).unwrap_or(0))).collect()
}

/// Waits until the set is stable, the client has its current state, and each member counts the
/// client's connections: those of its pool and two of its monitor. The load is paused meanwhile.
async fn agree(set: &Arc<Mutex<MongodReplicaSet>>, client: &Client, load: &Load) -> Outcome {
    let primary = unblock({
        let set = Arc::clone(set);
        move || lock(&set).settle(SETTLING)
    })
    .await?;
    load.more_successes(50).await?;
    load.rest().await?;
    let begun = Instant::now();
    loop {
        let mut seen = Vec::new();
        for member in 0..3 {
            let address = lock(set).member(member).address().to_string();
            let open = clients_of(&lock(set), member);
            // The server's own count includes connections of the other members.
            let all = lock(set).member(member).other_connections().ok();
            let status = client.servers().into_iter().find(|it| it.address == address);
            let status = status.map(|it| (it.server_type, it.pool.counts));
            seen.push((open, all, status));
        }
        let agrees = seen.iter().enumerate().all(|(member, (open, all, status))| {
            let expected = if member == primary { ServerType::RsPrimary } else { ServerType::RsSecondary };
            status.is_some_and(|(server_type, counts)| {
                let quiet = counts.in_use + counts.pending + counts.waiting == 0;
                quiet && server_type == expected && *open == Some(2 + u64::from(counts.total())) && all >= open
            })
        });
        if agrees {
            load.go_on();
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("counts of the members and of the pools differ: {seen:#?}").into());
        }
        sleep(Duration::from_millis(20)).await;
    }
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    pause: AtomicBool,
    running: AtomicUsize,
    succeeded: AtomicUsize,
    /// The time of the fault, and the time from it to the first success of an operation that began
    /// after it.
    fault: Mutex<Option<Instant>>,
    first: Mutex<Option<Duration>>,
    slowest: Mutex<Duration>,
    errors: Mutex<Vec<String>>,
}

fn held<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Tasks that ping and insert until they are stopped. Each operation ends within its deadline, by
/// success or failure.
struct Load {
    shared: Arc<Shared>,
    tasks: Vec<Task<()>>,
}

impl Load {
    fn start(client: &Client) -> Self {
        let shared = Arc::new(Shared::default());
        let tasks = (0..TASKS)
            .map(|task| {
                let (client, shared) = (client.clone(), Arc::clone(&shared));
                spawn(async move {
                    while !shared.stop.load(Ordering::SeqCst) {
                        if shared.pause.load(Ordering::SeqCst) {
                            sleep(Duration::from_millis(5)).await;
                            continue;
                        }
                        shared.running.fetch_add(1, Ordering::SeqCst);
                        let begun = Instant::now();
                        let outcome = operation(&client, task).await;
                        shared.note(begun, &outcome);
                        shared.running.fetch_sub(1, Ordering::SeqCst);
                        // A moderate load, below the machine's maximum.
                        sleep(Duration::from_millis(2)).await;
                    }
                })
            })
            .collect();
        Self { shared, tasks }
    }

    async fn more_successes(&self, count: usize) -> Outcome {
        let from = self.shared.succeeded.load(Ordering::SeqCst);
        eventually("operations succeed", || Ok(self.shared.succeeded.load(Ordering::SeqCst) >= from + count)).await
    }

    /// Causes a fault, and prints the time from it to the first success of an operation that began
    /// after it.
    async fn round(
        &self,
        what: &str,
        fault: impl Future<Output = Result<usize, Failure>>,
    ) -> Result<usize, Box<dyn core::error::Error>> {
        *held(&self.shared.slowest) = Duration::ZERO;
        *held(&self.shared.first) = None;
        let member = fault.await.map_err(|error| error.to_string())?;
        let now = Instant::now();
        *held(&self.shared.fault) = Some(now);
        let succeeded = || Ok(held(&self.shared.first).is_some());
        eventually_within(SETTLING, "an operation succeeds after the fault", succeeded).await?;
        let first = held(&self.shared.first).unwrap_or_default();
        *held(&self.shared.fault) = None;
        self.more_successes(TASKS).await?;
        println!("{what}: first success {first:?} after it, slowest operation {:?}", *held(&self.shared.slowest));
        Ok(member)
    }

    /// Waits until no operation is in flight, and lets none begin.
    async fn rest(&self) -> Outcome {
        self.shared.pause.store(true, Ordering::SeqCst);
        let rests = || Ok(self.shared.running.load(Ordering::SeqCst) == 0);
        eventually_within(SETTLING, "no operation is in flight", rests).await
    }

    fn go_on(&self) {
        self.shared.pause.store(false, Ordering::SeqCst);
    }

    /// Ends the load. Returns the number of successful operations, and the errors of the others.
    async fn end(self) -> (usize, Vec<String>) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await;
        }
        let errors = core::mem::take(&mut *held(&self.shared.errors));
        (self.shared.succeeded.load(Ordering::SeqCst), errors)
    }
}

impl Shared {
    fn note(&self, begun: Instant, outcome: &Result<(), Error>) {
        let took = begun.elapsed();
        if took > DEADLINE + SLACK {
            held(&self.errors).push(format!("exceeded its deadline: {took:?}"));
        }
        {
            let mut slowest = held(&self.slowest);
            *slowest = took.max(*slowest);
        }
        match outcome {
            Ok(()) => {
                self.succeeded.fetch_add(1, Ordering::SeqCst);
                if let Some(fault) = held(&self.fault).filter(|fault| begun >= *fault) {
                    held(&self.first).get_or_insert(fault.elapsed());
                }
            }
            Err(error) => held(&self.errors).push(format!("after {took:?}: {error:?}")),
        }
    }
}

async fn operation(client: &Client, task: usize) -> Result<(), Error> {
    let is_write = task.is_multiple_of(2);
    // A write is retried because the server executes it once.
    let options = CommandOptions::new().timeout(DEADLINE).idempotent(!is_write);
    let (database, command) =
        if is_write { ("db", doc! { "insert": "load", "documents": [{}] }) } else { ("admin", doc! { "ping": 1 }) };
    client.run_command_with(database, command, options).await.map(drop)
}
