//! The program, which is the same on every runtime. The root of each example has a module `runtime`
//! that re-exports the runtime's names.

use crate::runtime::mux::cql::Consistency;
use crate::runtime::mux::{
    ConnectionStatus, HostOptions, HostStatus, MuxEvent, MuxId, MuxOptions, RequestError, Session, SessionOptions,
};
use crate::runtime::{Event, EventRef, Notice, block_on, sleep, spawn};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::f64::consts::PI;
use core::future::poll_fn;
use core::pin::pin;
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::Poll;
use core::time::Duration;
use poolhouse_tests::cql_server::{Act, CqlServer, CqlServerOptions, Rule};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The period of the load.
const SWELL: Duration = Duration::from_secs(4);
/// Time until the fake servers answer.
const ANSWER_TIME: Duration = Duration::from_millis(30);
/// Interval of cancelled requests, and the time after which each is cancelled.
const CANCEL: (Duration, Duration) = (Duration::from_millis(700), Duration::from_millis(5));
/// Requests in flight on a connection.
const REQUESTS: u32 = 16;

const USAGE: &str = "usage: watch_mux [HOST[:PORT]..] [--peak N] [--seconds S] [--user NAME --password WORD]

  HOST[:PORT]   a node of a cluster; default port 9042. Without hosts: three fake servers in this process
  --peak N      requests in flight at the peak of the load (120)
  --seconds S   the duration (20)
  --user, --password
                the credential for PasswordAuthenticator";

struct Arguments {
    hosts: Vec<String>,
    peak: u32,
    seconds: u32,
    user: Option<String>,
    password: Option<String>,
}

/// Parses the arguments. The error is a message, or `None` if help was requested.
fn arguments() -> Result<Arguments, Option<String>> {
    let wrong = |message: &str| Some(message.to_owned());
    let mut parsed = Arguments { hosts: Vec::new(), peak: 120, seconds: 20, user: None, password: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let number = |value: Option<String>| value.and_then(|value| value.parse().ok()).filter(|value| *value > 0);
        match word.as_str() {
            "--peak" => parsed.peak = number(words.next()).ok_or_else(|| wrong("--peak requires a number from 1"))?,
            "--seconds" => {
                parsed.seconds = number(words.next()).ok_or_else(|| wrong("--seconds requires a number from 1"))?;
            }
            "--user" => parsed.user = Some(words.next().ok_or_else(|| wrong("--user requires a name"))?),
            "--password" => {
                parsed.password = Some(words.next().ok_or_else(|| wrong("--password requires a password"))?)
            }
            "--help" | "-h" => return Err(None),
            other if other.starts_with('-') => return Err(wrong(&format!("{other}: not understood"))),
            host => parsed.hosts.push(host.to_owned()),
        }
    }
    if parsed.user.is_some() != parsed.password.is_some() {
        return Err(wrong("--user and --password must be set together"));
    }
    Ok(parsed)
}

/// Counters of the events.
#[derive(Default)]
struct Tally {
    answered: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    opened: AtomicU64,
    /// Of the opened connections, those that were opened in addition to another one.
    grown: AtomicU64,
    trashed: AtomicU64,
    resurrected: AtomicU64,
    closed: AtomicU64,
    orphaned: AtomicU64,
    last_error: Mutex<Option<RequestError>>,
    /// Events to be shown.
    lines: Mutex<VecDeque<String>>,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn with<T, R>(shared: &Mutex<T>, f: impl FnOnce(&mut T) -> R) -> R {
    f(&mut shared.lock().unwrap_or_else(PoisonError::into_inner))
}

pub(crate) fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(Some(message)) => {
            eprintln!("{message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match block_on(watch(&arguments)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

async fn watch(arguments: &Arguments) -> Result<bool, String> {
    let mut servers = Vec::new();
    let mut hosts = arguments.hosts.clone();
    let mut statement = "SELECT release_version FROM system.local";
    if hosts.is_empty() {
        for _ in 0..3 {
            let server = CqlServer::start(CqlServerOptions::fast()).map_err(|error| format!("fake server: {error}"))?;
            server.add(Rule::statements(Act::Delay(ANSWER_TIME)));
            hosts.push(server.address().to_string());
            servers.push(server);
        }
        statement = "echo hello";
        println!("No host: watching three fake servers in this process, which take {ANSWER_TIME:?} to answer.");
    }
    let session = Session::new(options(arguments, hosts)).map_err(|error| error.to_string())?;
    let events = session.subscribe_where(is_shown);

    let tally = Arc::new(Tally::default());
    let origin = session.now();
    let names = session.hosts().into_iter().map(|host| (host.id, host.address)).collect();
    let listener = spawn(listen(events, origin, names, Arc::clone(&tally)));
    let started = Instant::now();
    let load = Load { started, end: started + Duration::from_secs(arguments.seconds.into()), peak: arguments.peak };
    let request_repeatedly =
        |number| spawn(request_repeatedly(session.clone(), statement, load, number, Arc::clone(&tally)));
    let workers: Vec<_> = (0..arguments.peak).map(request_repeatedly).collect();
    let cancelling = spawn(cancel_periodically(session.clone(), statement, load, Arc::clone(&tally)));

    let live = std::io::stdout().is_terminal();
    let mut screen = Screen { live, recent: VecDeque::new(), last: (started, 0) };
    let period = Duration::from_millis(if live { 200 } else { 1000 });
    while Instant::now() < load.end {
        sleep(period.min(load.end.saturating_duration_since(Instant::now()))).await;
        screen.draw(&session.hosts(), &tally, load);
    }
    for worker in workers {
        worker.await;
    }
    cancelling.await;
    session.close().await;
    listener.await;
    screen.draw_events(&tally);
    Ok(summary(&tally, started.elapsed(), !servers.is_empty()))
}

/// Small pools that resize soon.
fn options(arguments: &Arguments, hosts: Vec<String>) -> SessionOptions {
    let local = HostOptions {
        core_connections: 1,
        max_connections: 4,
        max_requests_per_connection: REQUESTS,
        new_connection_threshold: REQUESTS * 3 / 4,
    };
    let mux = MuxOptions {
        local,
        max_queue_size: arguments.peak.saturating_add(1),
        pool_timeout: Duration::from_secs(20),
        idle_timeout: Duration::from_secs(4),
        shrink_interval: Duration::from_secs(1),
        ..MuxOptions::DEFAULT
    };
    let options = SessionOptions::new(hosts).mux(mux).request_timeout(Duration::from_secs(30));
    match (&arguments.user, &arguments.password) {
        (Some(user), Some(password)) => options.credential(user, password),
        (None, _) | (_, None) => options,
    }
}

/// Load that rises and falls; every second peak is half as high.
#[derive(Clone, Copy)]
struct Load {
    started: Instant,
    end: Instant,
    peak: u32,
}

impl Load {
    /// The required number of requests in flight now; `None` after the end.
    fn now(&self) -> Option<f64> {
        let now = Instant::now();
        if now >= self.end {
            return None;
        }
        let swells = now.duration_since(self.started).as_secs_f64() / SWELL.as_secs_f64();
        let height = if swells % 2.0 < 1.0 { 1.0 } else { 0.5 };
        Some(f64::from(self.peak) * height * (swells * PI).sin().powi(2))
    }
}

/// Sends requests one after another, while the load requires this task.
async fn request_repeatedly(session: Session, statement: &'static str, load: Load, number: u32, tally: Arc<Tally>) {
    while let Some(wanted) = load.now() {
        // The first task always runs.
        if number > 0 && f64::from(number) >= wanted {
            sleep(Duration::from_millis(20)).await;
            continue;
        }
        match session.query(statement, Consistency::One).await {
            Ok(_) => count(&tally.answered),
            Err(error) => {
                count(&tally.failed);
                with(&tally.last_error, |last| *last = Some(error));
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Sends requests and cancels each before its answer arrives.
async fn cancel_periodically(session: Session, statement: &str, load: Load, tally: Arc<Tally>) {
    let (pause, patience) = CANCEL;
    loop {
        sleep(pause).await;
        if load.now().is_none() {
            break;
        }
        let mut request = pin!(session.query(statement, Consistency::One));
        let mut patience = pin!(sleep(patience));
        let answered = poll_fn(|context| match request.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending => patience.as_mut().poll(context).map(|()| false),
        });
        if !answered.await {
            count(&tally.cancelled);
        }
    }
}

/// Records events of connections, and the stream ids reserved for late replies.
async fn listen(
    mut events: crate::runtime::Subscription,
    origin: crate::runtime::poolhouse_core::Instant,
    names: Vec<(MuxId, String)>,
    tally: Arc<Tally>,
) {
    let mut open = vec![0_u32; names.len()];
    while let Some(notice) = events.next().await {
        let (at, event) = match notice {
            Notice::Event { at, event: Event::Mux(event) } => (at, event),
            Notice::Event { .. } => continue,
            Notice::Lagged { count } => {
                with(&tally.lines, |lines| {
                    lines.push_back(format!("            {count} events were not read in time"))
                });
                continue;
            }
        };
        let Some(place) = names.iter().position(|(id, _)| *id == event.mux()) else { continue };
        if matches!(event, MuxEvent::ConnectionReady { .. }) {
            count(&tally.opened);
            if open[place] > 0 {
                count(&tally.grown);
            }
            open[place] += 1;
        } else if matches!(event, MuxEvent::ConnectionTrashed { .. }) {
            count(&tally.trashed);
        } else if matches!(event, MuxEvent::ConnectionResurrected { .. }) {
            count(&tally.resurrected);
        } else if matches!(event, MuxEvent::ConnectionClosed { .. }) {
            count(&tally.closed);
            open[place] = open[place].saturating_sub(1);
        } else if matches!(event, MuxEvent::StreamOrphaned { .. }) {
            count(&tally.orphaned);
        }
        let time = at.saturating_since(origin).as_secs_f64();
        let line = format!("{time:8.3} s  {:<21} {event}", names[place].1);
        with(&tally.lines, |lines| lines.push_back(line));
    }
}

/// Whether an event is shown: all except those of single requests.
fn is_shown(event: &EventRef<'_>) -> bool {
    let EventRef::Mux(event) = event else { return false };
    !matches!(
        event,
        MuxEvent::StreamAcquired { .. }
            | MuxEvent::ReplyReceived { .. }
            | MuxEvent::RequestQueued { .. }
            | MuxEvent::AcquireFailed { .. }
    )
}

struct Screen {
    live: bool,
    recent: VecDeque<String>,
    last: (Instant, u64),
}

/// Number of event lines on a terminal.
const RECENT_LINES: usize = 16;

impl Screen {
    fn draw(&mut self, hosts: &[HostStatus], tally: &Tally, load: Load) {
        let now = Instant::now();
        let answered = get(&tally.answered);
        let rate = (answered - self.last.1) as f64 / now.duration_since(self.last.0).as_secs_f64().max(1e-9);
        self.last = (now, answered);
        let requests = format!(
            "{:.0} requests required in flight, {rate:.0} answered/s; {answered} answered, {} failed, {} cancelled",
            load.now().unwrap_or_default(),
            get(&tally.failed),
            get(&tally.cancelled)
        );
        let time = load.started.elapsed().as_secs_f64();
        let mut out = String::new();
        if self.live {
            with(&tally.lines, |lines| self.recent.extend(lines.drain(..)));
            while self.recent.len() > RECENT_LINES {
                self.recent.pop_front();
            }
            out.push_str(&format!("\x1b[H\x1b[JPoolhouse, {time:.0} s: {requests}\n\n{HEADING}\n"));
            for host in hosts {
                out.push_str(&format!("{}\n", row(host)));
            }
            out.push('\n');
            for line in &self.recent {
                out.push_str(&format!("{line}\n"));
            }
        } else {
            self.draw_events(tally);
            out.push_str(&format!("{time:8.1} s  {requests}\n"));
            for host in hosts {
                out.push_str(&format!("            {}\n", row(host)));
            }
        }
        print!("{out}");
        // An error of the output is ignored, because the run continues without it.
        let _ = std::io::stdout().flush();
    }

    fn draw_events(&self, tally: &Tally) {
        for line in with(&tally.lines, |lines| lines.drain(..).collect::<Vec<_>>()) {
            println!("{line}");
        }
    }
}

const HEADING: &str =
    "host                  open trash  flight queued late  connections, oldest first ((in the trash))";

fn row(host: &HostStatus) -> String {
    let state = host.state;
    let bars: Vec<String> = host.connections.iter().map(bar).collect();
    let coming = if state.establishing > 0 { " +" } else { "" };
    format!(
        "{:<21} {:>4} {:>5} {:>7} {:>6} {:>4}  {}{coming}",
        host.address,
        state.open,
        state.trashed,
        state.in_flight,
        state.queued,
        state.orphaned,
        bars.join(" "),
    )
}

/// A connection with its requests in flight, two for each character.
fn bar(connection: &ConnectionStatus) -> String {
    let places = REQUESTS.div_ceil(2) as usize;
    let full = (connection.in_flight.div_ceil(2) as usize).min(places);
    let bar = format!("{}{}", "#".repeat(full), ".".repeat(places - full));
    let number = connection.number;
    if connection.takes_requests { format!("{number}[{bar}]") } else { format!("(({number} {bar}))") }
}

/// Prints the summary. Returns whether the run met its conditions.
fn summary(tally: &Tally, elapsed: Duration, must_resize: bool) -> bool {
    let [answered, failed, cancelled] = [&tally.answered, &tally.failed, &tally.cancelled].map(get);
    let [opened, grown, trashed, resurrected, closed, orphaned] =
        [&tally.opened, &tally.grown, &tally.trashed, &tally.resurrected, &tally.closed, &tally.orphaned].map(get);
    println!(
        "\n{answered} requests answered, {failed} failed, {cancelled} cancelled ({orphaned} stream ids waited for late replies), in {:.1} s",
        elapsed.as_secs_f64()
    );
    println!(
        "connections: {opened} opened, {grown} of them for load; {trashed} trashed, {resurrected} resurrected, {closed} closed"
    );
    if let Some(error) = with(&tally.last_error, Option::take) {
        println!("the last error: {error}");
    }
    let resized = grown > 0 && trashed > 0 && resurrected > 0;
    if must_resize && !resized {
        println!("growth, trashing and resurrection did not all occur");
    }
    answered > 0 && failed == 0 && (resized || !must_resize)
}
