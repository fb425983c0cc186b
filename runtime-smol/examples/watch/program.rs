//! The program, which is the same on every runtime. The root of each example has a module `runtime`
//! that re-exports the runtime's names.

use crate::runtime::poolhouse_uri::{ConnectionString, UriOptions};
use crate::runtime::{
    Client, ClientOptions, Error, EventRef, MonitorEvent, Notice, PoolEvent, ServerStatus, block_on, sleep, spawn,
};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use bson::doc;
use core::time::Duration;
use hdrhistogram::Histogram;
use poolhouse_tests::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

struct Arguments {
    uri: Option<String>,
    tasks: u32,
    seconds: u64,
}

const USAGE: &str = "usage: watch [mongodb://host:port[,host:port..][/?replicaSet=name]] [--tasks N] [--seconds S]";

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments { uri: None, tasks: 64, seconds: 10 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|value| value.parse().ok()).filter(|value| *value > 0);
        match word.as_str() {
            "--tasks" => {
                let count = number().and_then(|count: u64| u32::try_from(count).ok());
                parsed.tasks = count.ok_or("--tasks requires a number from 1")?;
            }
            "--seconds" => parsed.seconds = number().ok_or("--seconds requires a number from 1")?,
            "--help" | "-h" => return Err(USAGE.to_owned()),
            uri if uri.starts_with("mongodb") && parsed.uri.is_none() => parsed.uri = Some(uri.to_owned()),
            other => return Err(format!("{other}: not understood\n{USAGE}")),
        }
    }
    Ok(parsed)
}

/// Measurements of the tasks, since the last output and in total.
struct Tally {
    waits: Histogram<u64>,
    succeeded: u64,
    retried: u64,
    failed: u64,
    last_error: Option<String>,
    last_succeeded: bool,
}

type Shared<T> = Arc<Mutex<T>>;

fn with<T, R>(shared: &Mutex<T>, f: impl FnOnce(&mut T) -> R) -> R {
    f(&mut shared.lock().unwrap_or_else(PoisonError::into_inner))
}

pub(crate) fn main() -> ExitCode {
    match arguments().and_then(|arguments| block_on(watch(&arguments))) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

async fn watch(arguments: &Arguments) -> Result<bool, String> {
    let mut trouble = None;
    let uri = match &arguments.uri {
        Some(uri) => uri.clone(),
        None => {
            let set =
                FakeReplicaSet::start(FakeReplicaSetOptions::of(3)).map_err(|error| format!("fake set: {error}"))?;
            let uri = set.uri();
            println!("No connection string: watching a fake replica set in this process at {uri}");
            println!("Every three seconds its primary steps down, or is killed and restarted.");
            trouble = Some(spawn(make_trouble(set)));
            uri
        }
    };
    let parsed = ConnectionString::parse(&uri).map_err(|error| error.to_string())?;
    let client = Client::new_with(&uri, |options| completed(options, parsed.options())).await;
    let client = client.map_err(|error| error.to_string())?;

    let events = Arc::new(Mutex::new(VecDeque::new()));
    let listener = spawn(listen(client.clone(), Arc::clone(&events)));
    let tally = Arc::new(Mutex::new(Tally {
        waits: Histogram::new(3).map_err(|error| error.to_string())?,
        succeeded: 0,
        retried: 0,
        failed: 0,
        last_error: None,
        last_succeeded: false,
    }));
    let started = Instant::now();
    let end = started + Duration::from_secs(arguments.seconds);
    let workers: Vec<_> = (0..arguments.tasks).map(|_| spawn(work(client.clone(), Arc::clone(&tally), end))).collect();

    let live = std::io::stdout().is_terminal();
    let warnings = warnings(&client);
    for warning in &warnings {
        println!("{warning}");
    }
    let mut screen = Screen { live, warnings, recent: VecDeque::new(), last: (started, 0) };
    let period = Duration::from_millis(if live { 500 } else { 1000 });
    while Instant::now() < end {
        sleep(period.min(end.saturating_duration_since(Instant::now()))).await;
        screen.draw(&client.servers(), &tally, &events, started);
    }
    for worker in workers {
        worker.await;
    }
    client.close().await;
    listener.await;
    if let Some(trouble) = trouble {
        trouble.cancel().await;
    }
    screen.draw_events(&events);
    Ok(summary(&tally, started.elapsed()))
}

/// The options of a connection string, with defaults of this program for those that the string does
/// not set. A TXT record cannot contain these options.
fn completed(mut options: ClientOptions, given: &UriOptions) -> ClientOptions {
    if given.app_name.is_none() {
        options.app_name = Some("poolhouse-watch".to_owned());
    }
    if given.max_pool_size.is_none() {
        options.pool.max_pool_size = options.pool.min_pool_size.max(10);
    }
    if given.timeout.is_none() {
        options.timeout = Some(Duration::from_secs(5));
    }
    if given.heartbeat_frequency.is_none() {
        options.monitor.heartbeat_frequency = Duration::from_secs(1);
    }
    options
}

/// Warnings about ignored options of the connection string, and about dangerous ones.
fn warnings(client: &Client) -> Vec<String> {
    let left_out = client.options().warnings.iter().map(|warning| format!("warning: {warning}"));
    #[cfg(feature = "tls")]
    let left_out = left_out.chain(client.tls_warnings().iter().map(|warning| format!("warning: {warning}")));
    left_out.collect()
}

/// Causes failovers, alternately by a step-down and by a crash of the primary.
async fn make_trouble(set: FakeReplicaSet) {
    for gentle in [true, false].into_iter().cycle() {
        sleep(Duration::from_secs(3)).await;
        let Some(primary) = set.primary() else { continue };
        if gentle {
            set.step_down();
        } else if set.kill(primary).is_ok() {
            sleep(Duration::from_secs(1)).await;
            if let Err(error) = set.restart(primary) {
                eprintln!("the fake server was not restarted: {error}");
            }
        }
    }
}

/// One task: pings the primary repeatedly. A transient failure is retried once, as an application
/// would.
async fn work(client: Client, tally: Shared<Tally>, end: Instant) {
    while Instant::now() < end {
        let mut outcome = ping(&client, &tally).await;
        if outcome.as_ref().is_err_and(|error| error.is_retryable() || error.is_transient()) {
            with(&tally, |tally| tally.retried += 1);
            outcome = ping(&client, &tally).await;
        }
        let failed = outcome.is_err();
        with(&tally, |tally| {
            tally.last_succeeded = !failed;
            match outcome {
                Ok(()) => tally.succeeded += 1,
                Err(error) => {
                    tally.failed += 1;
                    tally.last_error = Some(error.to_string());
                }
            }
        });
        if failed {
            sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn ping(client: &Client, tally: &Mutex<Tally>) -> Result<(), Error> {
    let started = Instant::now();
    let mut guard = client.check_out().await?;
    let wait = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    with(tally, |tally| tally.waits.saturating_record(wait));
    guard.run_command("admin", doc! { "ping": 1 }).await.map(drop)
}

/// Records events, except the check-outs, which are counted.
async fn listen(client: Client, events: Shared<VecDeque<String>>) {
    let mut subscription = client.subscribe_where(|event| {
        !matches!(
            event,
            EventRef::Heartbeat(MonitorEvent::HeartbeatStarted { .. })
                | EventRef::Pool(
                    PoolEvent::ConnectionCheckOutStarted { .. }
                        | PoolEvent::ConnectionCheckedOut { .. }
                        | PoolEvent::ConnectionCheckedIn { .. }
                )
        )
    });
    let origin = client.now();
    drop(client);
    while let Some(notice) = subscription.next().await {
        let line = match notice {
            Notice::Event { at, event } => {
                let time = at.saturating_since(origin).as_secs_f64();
                format!("{time:8.3} s  {event}")
            }
            Notice::Lost { count } => format!("            {count} events were not read in time"),
        };
        with(&events, |events| events.push_back(line));
    }
}

struct Screen {
    live: bool,
    /// Shown above everything else on a terminal.
    warnings: Vec<String>,
    recent: VecDeque<String>,
    last: (Instant, u64),
}

/// Number of event lines on a terminal.
const RECENT_LINES: usize = 14;

impl Screen {
    fn draw(
        &mut self,
        servers: &[ServerStatus],
        tally: &Mutex<Tally>,
        events: &Mutex<VecDeque<String>>,
        from: Instant,
    ) {
        let (succeeded, retried, failed, p50, p99) = with(tally, |tally| {
            let (p50, p99) = (tally.waits.value_at_quantile(0.5), tally.waits.value_at_quantile(0.99));
            tally.waits.reset();
            (tally.succeeded, tally.retried, tally.failed, p50, p99)
        });
        let now = Instant::now();
        let rate = (succeeded - self.last.1) as f64 / now.duration_since(self.last.0).as_secs_f64().max(1e-9);
        self.last = (now, succeeded);
        let operations = format!(
            "{rate:.0} operations/s, wait p50 {p50} us, p99 {p99} us; succeeded {succeeded}, retried {retried}, failed {failed}"
        );
        let time = from.elapsed().as_secs_f64();
        let mut out = String::new();
        if self.live {
            with(events, |events| self.recent.extend(events.drain(..)));
            while self.recent.len() > RECENT_LINES {
                self.recent.pop_front();
            }
            out.push_str(&format!("\x1b[H\x1b[JPoolhouse, {time:.0} s: {operations}\n\n"));
            for warning in &self.warnings {
                out.push_str(&format!("{warning}\n\n"));
            }
            out.push_str(&format!("{HEADING}\n"));
            for server in servers {
                out.push_str(&row(server));
                out.push('\n');
            }
            out.push('\n');
            for line in &self.recent {
                out.push_str(line);
                out.push('\n');
            }
        } else {
            self.draw_events(events);
            out.push_str(&format!("{time:8.1} s  {operations}\n"));
            for server in servers {
                out.push_str(&format!("            {}\n", row(server)));
            }
        }
        print!("{out}");
        // An error of the output is ignored, because the run continues without it.
        let _ = std::io::stdout().flush();
    }

    fn draw_events(&self, events: &Mutex<VecDeque<String>>) {
        for line in with(events, |events| events.drain(..).collect::<Vec<_>>()) {
            println!("{line}");
        }
    }
}

const HEADING: &str = "server                    type          RTT avg   RTT min  available  in use  pending  waiting";

fn row(server: &ServerStatus) -> String {
    let show =
        |time: Option<Duration>| time.map_or("-".to_owned(), |time| format!("{:.2}ms", time.as_secs_f64() * 1e3));
    let (average, minimum) = (show(server.round_trip_average), show(server.round_trip_minimum));
    let counts = server.pool.counts;
    format!(
        "{:<25} {:<12} {average:>8} {minimum:>9}  {:>9}  {:>6}  {:>7}  {:>7}",
        server.address,
        server.server_type.name(),
        counts.available,
        counts.in_use,
        counts.pending,
        counts.waiting,
    )
}

/// Prints the summary. Returns whether operations succeeded.
fn summary(tally: &Mutex<Tally>, elapsed: Duration) -> bool {
    with(tally, |tally| {
        let rate = tally.succeeded as f64 / elapsed.as_secs_f64();
        println!(
            "\n{} operations succeeded ({} of them after a retry), {} failed, in {:.1} s: {rate:.0} a second",
            tally.succeeded,
            tally.retried.saturating_sub(tally.failed),
            tally.failed,
            elapsed.as_secs_f64()
        );
        if let Some(error) = &tally.last_error {
            println!("the last error: {error}");
        }
        tally.succeeded > 0 && tally.last_succeeded
    })
}
