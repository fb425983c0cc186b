//! The suite: the client against a real mongod.

mod authentication;
mod compression;
mod preferences;
mod replica_set;
mod sessions;
mod stored;
mod tls;
mod tls_users;
mod unacknowledged;

use alloc::sync::Arc;
use core::future::Future;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use std::process::ExitCode;
use std::time::Instant;

use bson::{Bson, doc};
use futures_lite::FutureExt;
use poolhouse_smol::poolhouse_core::monitor::MonitorEvent;
use poolhouse_smol::poolhouse_core::pool::{CheckOutError, PoolEvent, PoolState};
use poolhouse_smol::poolhouse_core::{Cause, ServerType};
use poolhouse_smol::poolhouse_driver::OperationError;
use poolhouse_smol::{
    Client, ClientOptions, CommandOptions, Connection, Error, Event, Notice, ServerMonitoringMode, Subscription,
};
use poolhouse_tests::mongod::{self, FailPointMode, Mongod, MongodOptions};
use poolhouse_tests::suite::Suite;
use smol::{Task, block_on, spawn};

type Outcome = Result<(), Box<dyn core::error::Error>>;

/// Upper bound of every wait; far longer than needed.
const PATIENCE: Duration = Duration::from_secs(30);
/// The application name of the clients under test.
const APP_NAME: &str = "poolhouse-suite";

pub(crate) fn main() -> ExitCode {
    let suite = Suite::new("mongod")
        .skip_if(mongod::available().err())
        .case("sixty_four_tasks_share_ten_connections", || run(sixty_four_tasks_share_ten_connections()))
        .case("documents_are_inserted_and_found", || run(documents_are_inserted_and_found()))
        .case("deep_documents_are_read", || run(stored::deep_documents_are_read()))
        .case("text_that_is_not_utf8_hides_no_other_document", || {
            run(stored::text_that_is_not_utf8_hides_no_other_document())
        })
        .case("hello_that_fails_with_91_clears_the_pool", || run(hello_that_fails_with_91_clears_the_pool()))
        .case("hello_on_a_closed_connection_clears_nothing", || run(hello_on_a_closed_connection_clears_nothing()))
        .case("hello_that_is_blocked_ends_at_the_connect_timeout", || {
            run(hello_that_is_blocked_ends_at_the_connect_timeout())
        })
        .case("replies_are_streamed", || run(replies_are_streamed()))
        .case("killed_server_recovers_under_load", || run(killed_server_recovers_under_load()))
        .case("stopped_server_causes_interrupts_and_recovers", || run(stopped_server_causes_interrupts_and_recovers()))
        .case("shut_down_server_clears_the_pool", || run(shut_down_server_clears_the_pool()))
        .case("closed_client_leaves_no_connection", || run(closed_client_leaves_no_connection()))
        .case("only_users_authenticate", || run(authentication::only_users_authenticate()))
        .case("members_of_a_set_know_the_user", || run(authentication::members_of_a_set_know_the_user()))
        .case("each_compressor_is_counted_by_the_server", || run(compression::each_compressor_is_counted()))
        .case("connections_read_from_secondaries", || run(preferences::connections_read_from_secondaries()))
        .case("writes_without_acknowledgement", || run(unacknowledged::writes_without_acknowledgement()))
        .case("cursor_is_read_in_batches", || run(sessions::cursor_is_read_in_batches()))
        .case("sessions_and_retries_on_a_set", || run(sessions::sessions_and_retries_on_a_set()))
        .case("transactions_on_a_set", || run(sessions::transactions_on_a_set()))
        .case("replica_set_under_load", || run(replica_set::survives_what_befalls_it()))
        .case("set_with_tls_and_users_survives_faults", || run(tls_users::survives_faults()));
    tls::cases(suite).run()
}

async fn sleep(time: Duration) {
    smol::Timer::after(time).await;
}

/// Runs a case. A case that hangs fails.
fn run(case: impl Future<Output = Outcome>) -> Result<(), String> {
    let limit = async {
        sleep(Duration::from_secs(240)).await;
        Err("the case exceeded its time limit".into())
    };
    block_on(case.or(limit)).map_err(|error| error.to_string())
}

fn start() -> Result<Mongod, mongod::MongodError> {
    Mongod::start(MongodOptions::default())
}

/// Options with a polling monitor and a long interval, so no other hello triggers a fail point, and
/// connection counts are exact. After a failed check it checks only on request, as by [`in_use`].
fn polling(mongod: &Mongod) -> ClientOptions {
    let mut options = streaming(mongod);
    options.monitor.server_monitoring_mode = ServerMonitoringMode::Poll;
    options.monitor.heartbeat_frequency = PATIENCE * 4;
    options
}

fn streaming(mongod: &Mongod) -> ClientOptions {
    let mut options = ClientOptions::new(mongod.address().to_string());
    options.app_name = Some(APP_NAME.to_owned());
    options.timeout = Some(PATIENCE);
    options
}

/// One attempt, without the client's own retry.
async fn ping(client: &Client) -> Result<(), Error> {
    client.check_out().await?.run_command("admin", doc! { "ping": 1 }).await.map(drop)
}

/// Waits for a state that no event announces.
async fn eventually(what: &str, condition: impl FnMut() -> Result<bool, mongod::MongodError>) -> Outcome {
    eventually_within(PATIENCE, what, condition).await
}

/// [`eventually`], with another limit.
async fn eventually_within(
    limit: Duration,
    what: &str,
    mut condition: impl FnMut() -> Result<bool, mongod::MongodError>,
) -> Outcome {
    let begun = Instant::now();
    while !condition()? {
        if begun.elapsed() > limit {
            return Err(format!("condition not met in time: {what}").into());
        }
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Waits until the server is known, by checking out a connection, which requests checks. While this
/// connection is in use, the next check-out must establish another.
async fn in_use(client: &Client) -> Result<Connection<'_>, Error> {
    let begun = Instant::now();
    loop {
        match client.check_out().await {
            Err(_) if begun.elapsed() < PATIENCE => {}
            outcome => return outcome,
        }
    }
}

/// The ids of operations that the server is executing for the clients, by the command's name.
fn under_way(mongod: &Mongod, command: &str) -> Result<Vec<Bson>, mongod::MongodError> {
    let named = format!("command.{command}");
    let current = mongod.run_command(doc! { "currentOp": 1, "appName": APP_NAME, named: { "$exists": true } })?;
    let operations = current.get_array("inprog").map(Vec::as_slice).unwrap_or_default();
    Ok(operations.iter().filter_map(|operation| operation.as_document()?.get("opid").cloned()).collect())
}

/// Kills operations that a fail point blocks and no client awaits any more: the server would keep
/// their connections until they end.
fn kill(mongod: &Mongod, command: &str) -> Result<(), mongod::MongodError> {
    for id in under_way(mongod, command)? {
        mongod.run_command(doc! { "killOp": 1, "op": id })?;
    }
    Ok(())
}

/// [`kill`] for the one operation that a fail point blocks, or is about to block.
async fn kill_one(mongod: &Mongod, command: &str) -> Outcome {
    eventually("it is blocked", || Ok(under_way(mongod, command)?.len() == 1)).await?;
    Ok(kill(mongod, command)?)
}

/// Waits until nothing is in progress and the server counts the client's connections: those of its
/// pool and `monitoring` more.
async fn counts_agree(mongod: &Mongod, client: &Client, monitoring: u64) -> Outcome {
    let begun = Instant::now();
    loop {
        let counts = client.servers()[0].pool.counts;
        let open = mongod.other_connections()?;
        let quiet = counts.in_use == 0 && counts.pending == 0 && counts.waiting == 0;
        if quiet && open == monitoring + u64::from(counts.total()) {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(
                format!("the server counts {open} connections, {monitoring} for checks; the pool {counts:?}").into()
            );
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// The next event that matches.
async fn next(
    events: &mut Subscription,
    what: &str,
    mut wanted: impl FnMut(&Event) -> bool,
) -> Result<Event, Box<dyn core::error::Error>> {
    let found = async {
        loop {
            match events.next().await {
                Some(Notice::Event { event, .. }) if wanted(&event) => return Ok(event),
                Some(Notice::Event { .. }) => {}
                Some(Notice::Lagged { count }) => return Err(format!("{count} events were lost").into()),
                None => return Err(format!("the client ended before {what}").into()),
            }
        }
    };
    let limit = async {
        sleep(PATIENCE).await;
        Err(format!("event not received: {what}").into())
    };
    found.or(limit).await
}

fn is_cleared(event: &Event) -> bool {
    matches!(event, Event::Pool(PoolEvent::PoolCleared { .. }))
}

fn is_ready(event: &Event) -> bool {
    matches!(event, Event::Pool(PoolEvent::PoolReady { .. }))
}

/// How often the pool was cleared and made ready, in the events so far.
fn turns(events: &mut Subscription) -> Result<(usize, usize), String> {
    let (mut cleared, mut ready) = (0, 0);
    while let Some(notice) = events.try_next() {
        match notice {
            Notice::Event { event, .. } => {
                cleared += usize::from(is_cleared(&event));
                ready += usize::from(is_ready(&event));
            }
            Notice::Lagged { count } => return Err(format!("{count} events were lost")),
        }
    }
    Ok((cleared, ready))
}

/// The error of a call that must fail.
fn refused<T: core::fmt::Debug>(result: Result<T, Error>) -> Result<Error, String> {
    result.map_or_else(Ok, |value| Err(format!("the call succeeded: {value:?}")))
}

fn operation(error: &Error) -> Result<OperationError, String> {
    if let Error::Operation(error, _) = error {
        Ok(error.clone())
    } else {
        Err(format!("not an error of an operation: {error:?}"))
    }
}

/// Waits until a load has filled a pool of ten.
async fn is_full(client: &Client) -> Outcome {
    let full = || Ok(client.servers().first().is_some_and(|server| server.pool.counts.total() == 10));
    eventually("the pool is full", full).await
}

async fn sixty_four_tasks_share_ten_connections() -> Outcome {
    const TASKS: usize = 64;
    let mongod = start()?;
    eventually("only the harness is connected", || Ok(mongod.other_connections()? == 0)).await?;
    let mut options = streaming(&mongod);
    options.pool.max_pool_size = 10;
    let client = Client::with_options(options)?;
    let load = Load::start(&client, TASKS, PATIENCE);
    is_full(&client).await?;
    let mut most = 0;
    for _ in 0..20 {
        load.more_successes(TASKS * 5).await?;
        most = most.max(mongod.other_connections()?);
    }
    assert!(most <= 12, "{most} connections: more than ten and the monitor's two");
    assert!(most >= 10, "{most} connections: the load is too low to prove anything");
    assert_eq!(load.end().await, 0, "operations failed");
    counts_agree(&mongod, &client, 2).await?;
    let [status] = &client.servers()[..] else { return Err("one server".into()) };
    assert_eq!(status.server_type, ServerType::Standalone);
    assert!(status.round_trip_average.is_some());
    assert_eq!((status.pool.generation, status.pool.counts.total()), (0, 10));
    client.close().await;
    Ok(())
}

async fn documents_are_inserted_and_found() -> Outcome {
    let mongod = start()?;
    let client = Client::new(&mongod.uri()).await?;
    let documents: Vec<_> =
        (0..500).map(|id| doc! { "_id": id, "text": "x".repeat(1000), "nested": [{ "id": id }] }).collect();
    let inserted = client.run_command("db", doc! { "insert": "some", "documents": documents }).await?;
    assert_eq!(inserted.get_i32("n")?, 500);
    let found = client.run_command("db", doc! { "find": "some", "sort": { "_id": 1 }, "batchSize": 1000 }).await?;
    let batch = found.get_document("cursor")?.get_array("firstBatch")?;
    assert_eq!(batch.len(), 500);
    for (id, document) in batch.iter().enumerate() {
        let document = document.as_document().ok_or("a document")?;
        assert_eq!(document.get_i32("_id")?, i32::try_from(id)?);
        assert_eq!(document.get_str("text")?.len(), 1000);
    }
    // The same insert again, which the server refuses for the document but not for the command.
    let again = || doc! { "insert": "some", "documents": [{ "_id": 1 }] };
    let Error::Write(error) = refused(client.run_command("db", again()).await)? else {
        return Err("expected a write error".into());
    };
    assert_eq!((error.code, error.index), (11_000, Some(0)));
    assert_eq!(error.reply.get_array("writeErrors")?.len(), 1);
    let in_reply = CommandOptions::new().write_errors_in_reply(true);
    let reply = client.run_command_with("db", again(), in_reply).await?;
    assert_eq!(reply.get_array("writeErrors")?.len(), 1);
    let Error::Command(error) = refused(client.run_command("db", doc! { "noSuchCommand": 1 }).await)? else {
        return Err("expected an error of the server".into());
    };
    assert_eq!((error.code, error.code_name.as_deref(), error.hint), (59, Some("CommandNotFound"), None));
    usual_mistakes_have_hints(&client).await?;
    assert_eq!(client.servers()[0].pool.counts.total(), 1);
    client.close().await;
    Ok(())
}

/// The names of other drivers, for which the server's texts have no remedy.
async fn usual_mistakes_have_hints(client: &Client) -> Outcome {
    let statement = doc! { "filter": {}, "update": { "$set": { "a": 1 } } };
    let mistakes = [
        (doc! { "findOneAndUpdate": "some", "filter": {} }, "the command is findAndModify"),
        (doc! { "insertOne": "some", "document": {} }, "the command is insert"),
        (doc! { "updateMany": "some" }, "the command is update"),
        (doc! { "deleteOne": "some" }, "the command is delete"),
        (doc! { "countDocuments": "some" }, "the command is count"),
        (doc! { "filter": {}, "find": "some" }, "the command's name must be the first key"),
        (doc! { "update": "some", "filter": {}, "updates": [] }, "the filter of a statement is `q`"),
        (doc! { "update": "some", "updates": [statement] }, "the filter of a statement is `q`"),
        (doc! { "delete": "some", "deletes": [{ "filter": {}, "limit": 1 }] }, "the filter of a statement is `q`"),
        (doc! { "findAndModify": "some", "filter": {}, "remove": true }, "the filter of this command is `query`"),
    ];
    for (command, hint) in mistakes {
        let error = refused(client.run_command("db", command).await)?;
        assert!(error.to_string().contains(hint), "{error}");
    }
    Ok(())
}

async fn hello_that_fails_with_91_clears_the_pool() -> Outcome {
    let mongod = start()?;
    let client = Client::with_options(polling(&mongod))?;
    let held = in_use(&client).await?;
    let mut events = client.subscribe();
    let data = doc! { "failCommands": ["hello", "isMaster"], "errorCode": 91, "appName": APP_NAME };
    mongod.fail_command(FailPointMode::Times(1), data)?;
    let error = refused(ping(&client).await)?;
    let expected = CheckOutError::EstablishFailed { cause: Cause::Command { code: 91 }, overloaded: false };
    assert_eq!(error.check_out(), Some(&expected));
    ping(&client).await?;
    assert_eq!(turns(&mut events)?, (1, 1));
    drop(held);
    counts_agree(&mongod, &client, 1).await?;
    client.close().await;
    Ok(())
}

async fn hello_on_a_closed_connection_clears_nothing() -> Outcome {
    let mongod = start()?;
    let client = Client::with_options(polling(&mongod))?;
    let held = in_use(&client).await?;
    let mut events = client.subscribe();
    let data = doc! { "failCommands": ["hello", "isMaster"], "closeConnection": true, "appName": APP_NAME };
    mongod.fail_command(FailPointMode::Times(1), data)?;
    let error = refused(ping(&client).await)?;
    let expected = CheckOutError::EstablishFailed { cause: Cause::Network, overloaded: true };
    assert_eq!(error.check_out(), Some(&expected));
    assert!(error.is_retryable());
    ping(&client).await?;
    assert_eq!(turns(&mut events)?, (0, 0));
    drop(held);
    counts_agree(&mongod, &client, 1).await?;
    client.close().await;
    Ok(())
}

async fn hello_that_is_blocked_ends_at_the_connect_timeout() -> Outcome {
    let mongod = start()?;
    let mut options = polling(&mongod);
    options.monitor.connect_timeout = Some(Duration::from_secs(1));
    let client = Client::with_options(options)?;
    let held = in_use(&client).await?;
    let mut events = client.subscribe();
    let hello = ["hello", "isMaster"].to_vec();
    let data = doc! { "failCommands": hello, "blockConnection": true, "blockTimeMS": 25_000, "appName": APP_NAME };
    mongod.fail_command(FailPointMode::Times(1), data)?;
    let begun = Instant::now();
    let error = refused(ping(&client).await)?;
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    let expected = CheckOutError::EstablishFailed { cause: Cause::NetworkTimeout, overloaded: true };
    assert_eq!(error.check_out(), Some(&expected));
    kill_one(&mongod, "isMaster").await?;
    // On a busy machine the first attempts may exceed so short a limit.
    let begun = Instant::now();
    while let Err(error) = ping(&client).await {
        assert_eq!(error.check_out(), Some(&expected));
        assert!(begun.elapsed() < PATIENCE, "no handshake completes in time");
    }
    assert_eq!(turns(&mut events)?, (0, 0));
    drop(held);
    counts_agree(&mongod, &client, 1).await?;
    client.close().await;
    Ok(())
}

async fn replies_are_streamed() -> Outcome {
    let mongod = start()?;
    let mut options = streaming(&mongod);
    options.monitor.heartbeat_frequency = Duration::from_millis(500);
    let (client, mut events) = Client::new_subscribed(options)?;
    let mut connections = Vec::new();
    for round in 0..4 {
        let awaited = next(&mut events, "a streamed reply", |event| {
            matches!(event, Event::Heartbeat(MonitorEvent::HeartbeatSucceeded { awaited: true, .. }))
        })
        .await?;
        let Event::Heartbeat(event) = awaited else { return Err("a heartbeat".into()) };
        connections.push(event.id().connection);
        let status = mongod.run_command(doc! { "serverStatus": 1 })?;
        let counts = status.get_document("connections")?;
        let streams: i64 = ["exhaustHello", "exhaustIsMaster"]
            .iter()
            .filter_map(|name| counts.get(name))
            .filter_map(|count| count.as_i64().or_else(|| count.as_i32().map(i64::from)))
            .sum();
        assert!(streams >= 1, "round {round}: {counts}");
    }
    assert!(connections.windows(2).all(|pair| pair[0] == pair[1]), "one stream: {connections:?}");
    let hellos = |mongod: &Mongod| -> Result<i64, Box<dyn core::error::Error>> {
        let status = mongod.run_command(doc! { "serverStatus": 1 })?;
        Ok(status.get_document("metrics")?.get_document("commands")?.get_document("hello")?.get_i64("total")?)
    };
    assert!(hellos(&mongod)? >= 4);
    let [status] = &client.servers()[..] else { return Err("one server".into()) };
    assert!(status.round_trip_average.is_some());
    client.close().await;
    Ok(())
}

/// Limit of each operation of a load.
const DEADLINE: Duration = Duration::from_secs(2);
/// Tolerance for a busy machine: other processes may delay this one for seconds.
const SLACK: Duration = Duration::from_secs(10);

struct Load {
    stop: Arc<AtomicBool>,
    succeeded: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
    tasks: Vec<Task<()>>,
}

impl Load {
    /// Tasks that ping until they are stopped. Each operation ends within its deadline, by success
    /// or failure.
    fn start(client: &Client, tasks: usize, deadline: Duration) -> Self {
        let (stop, succeeded, failed) = <(Arc<AtomicBool>, Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let tasks = (0..tasks)
            .map(|_| {
                let (client, stop) = (client.clone(), Arc::clone(&stop));
                let (succeeded, failed) = (Arc::clone(&succeeded), Arc::clone(&failed));
                spawn(async move {
                    while !stop.load(Ordering::Acquire) {
                        let begun = Instant::now();
                        let outcome = match client.check_out_timeout(Some(deadline)).await {
                            Ok(mut guard) => guard.run_command("admin", doc! { "ping": 1 }).await.map(drop),
                            Err(error) => Err(error),
                        };
                        assert!(begun.elapsed() < deadline + SLACK, "{:?}: {outcome:?}", begun.elapsed());
                        let counter = if outcome.is_ok() { &succeeded } else { &failed };
                        counter.fetch_add(1, Ordering::Release);
                        if outcome.is_err() {
                            sleep(Duration::from_millis(5)).await;
                        }
                    }
                })
            })
            .collect();
        Self { stop, succeeded, failed, tasks }
    }

    async fn more_successes(&self, count: usize) -> Outcome {
        let from = self.succeeded.load(Ordering::Acquire);
        eventually("operations succeed", || Ok(self.succeeded.load(Ordering::Acquire) >= from + count)).await
    }

    /// Ends the load. Returns the number of failed operations.
    async fn end(self) -> usize {
        self.stop.store(true, Ordering::Release);
        for task in self.tasks {
            task.await;
        }
        self.failed.load(Ordering::Acquire)
    }
}

/// Events of a pool's states only, because a load would fill the subscription.
fn turning(client: &Client) -> Subscription {
    client.subscribe_where(|event| {
        matches!(event, poolhouse_smol::EventRef::Pool(PoolEvent::PoolCleared { .. } | PoolEvent::PoolReady { .. }))
    })
}

async fn killed_server_recovers_under_load() -> Outcome {
    let mut mongod = start()?;
    let mut options = streaming(&mongod);
    // A waiter requests checks, which find the server long before the next scheduled one would.
    options.monitor.heartbeat_frequency = PATIENCE * 4;
    options.pool.max_pool_size = 10;
    let client = Client::with_options(options)?;
    let load = Load::start(&client, 64, DEADLINE);
    load.more_successes(500).await?;
    for round in 1..=2 {
        let mut events = turning(&client);
        mongod.kill9()?;
        next(&mut events, "PoolCleared", is_cleared).await?;
        eventually("its connections are closed", || {
            Ok(client.servers().first().is_some_and(|server| server.pool.counts.total() == 0))
        })
        .await?;
        mongod.restart()?;
        let begun = Instant::now();
        next(&mut events, "PoolReady", is_ready).await?;
        load.more_successes(1).await?;
        println!("round {round}: recovered {:?} after the server's first answer", begun.elapsed());
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
        load.more_successes(500).await?;
        assert_eq!(turns(&mut events)?, (0, 0), "round {round}: cleared once, ready once");
    }
    is_full(&client).await?;
    assert!(load.end().await > 0, "no operation failed during the outage");
    counts_agree(&mongod, &client, 2).await?;
    assert_eq!(client.servers()[0].pool.counts.total(), 10);
    client.close().await;
    eventually("no connection is left", || Ok(mongod.other_connections()? == 0)).await
}

async fn stopped_server_causes_interrupts_and_recovers() -> Outcome {
    let mut mongod = start()?;
    let mut options = streaming(&mongod);
    options.timeout = None;
    options.monitor.heartbeat_frequency = Duration::from_millis(500);
    options.pool.max_pool_size = 4;
    let client = Client::with_options(options)?;
    ping(&client).await?;
    let mut events = turning(&client);
    // Before the server freezes, four pings are in flight and blocked, and four wait for a
    // connection.
    let data = doc! { "failCommands": ["ping"], "blockConnection": true, "blockTimeMS": 120_000, "appName": APP_NAME };
    mongod.fail_command(FailPointMode::Times(4), data)?;
    // No deadline: only the monitor can end them.
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let client = client.clone();
            spawn(async move { ping(&client).await })
        })
        .collect();
    eventually("four are in flight and four wait", || {
        let waiting = client.servers().first().map(|server| server.pool.counts.waiting);
        Ok(waiting == Some(4) && under_way(&mongod, "ping")?.len() == 4)
    })
    .await?;
    mongod.stop()?;
    let begun = Instant::now();
    let cleared = next(&mut events, "PoolCleared", is_cleared).await?;
    let flag = matches!(&cleared, Event::Pool(PoolEvent::PoolCleared { interrupt_in_use_connections: true, .. }));
    assert!(flag, "{cleared:?}");
    let mut interrupted = 0;
    for task in tasks {
        let error = operation(&refused(task.await)?)?;
        if matches!(error, OperationError::Interrupted(_)) {
            interrupted += 1;
        } else if !matches!(error, OperationError::CheckOut(_)) {
            return Err(format!("{error:?}").into());
        }
    }
    assert_eq!(interrupted, 4, "only the operations in flight are interrupted");
    println!("in flight: {interrupted}, ended after {:?}", begun.elapsed());
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    mongod.cont()?;
    kill(&mongod, "ping")?;
    ping(&client).await?;
    counts_agree(&mongod, &client, 2).await?;
    client.close().await;
    Ok(())
}

async fn shut_down_server_clears_the_pool() -> Outcome {
    let mut mongod = start()?;
    let client = Client::with_options(streaming(&mongod))?;
    ping(&client).await?;
    let mut events = turning(&client);
    let load = Load::start(&client, 8, DEADLINE);
    load.more_successes(50).await?;
    mongod.shutdown()?;
    next(&mut events, "PoolCleared", is_cleared).await?;
    eventually("its connections are closed", || {
        Ok(client
            .servers()
            .first()
            .is_some_and(|server| server.pool.counts.total() == 0 && server.pool.state == PoolState::Paused))
    })
    .await?;
    mongod.restart()?;
    load.more_successes(50).await?;
    assert!(load.end().await > 0, "no operation failed during the outage");
    counts_agree(&mongod, &client, 2).await?;
    client.close().await;
    Ok(())
}

async fn closed_client_leaves_no_connection() -> Outcome {
    let mongod = start()?;
    eventually("only the harness is connected", || Ok(mongod.other_connections()? == 0)).await?;
    for _ in 0..5 {
        let mut options = streaming(&mongod);
        options.monitor.heartbeat_frequency = PATIENCE * 4;
        let client = Client::with_options(options)?;
        let load = Load::start(&client, 8, PATIENCE);
        load.more_successes(20).await?;
        let begun = Instant::now();
        client.close().await;
        // The monitor's awaitable hello would have taken 80 seconds.
        assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
        let refused = refused(ping(&client).await)?;
        assert_eq!(operation(&refused)?, OperationError::Closed);
        load.end().await;
        eventually("no connection is left", || Ok(mongod.other_connections()? == 0)).await?;
    }
    Ok(())
}
