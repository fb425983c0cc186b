//! The program: it joins the load, the fake set, the screen and the page.

use alloc::sync::Arc;
use core::pin::pin;
use core::time::Duration;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use async_signal::{Signal, Signals};
use poolhouse_smol::poolhouse_uri::{ConnectionString, UriOptions};
use poolhouse_smol::{
    Client, ClientOptions, Event, EventRef, Notice, OwnedSdamEvent, PoolEvent, ServerType, Subscription,
};
use smol::channel::{Receiver, Sender};
use smol::future::FutureExt;
use smol::io::AsyncReadExt;
use smol::stream::StreamExt;
use smol::{Task, Timer, Unblock};

use crate::arguments::Arguments;
use crate::command::Command;
use crate::demo::Demo;
use crate::load::{self, Tally, with};
use crate::page::Page;
use crate::screen;
use crate::state::{DemoState, Kind, Server, State};
use crate::terminal::Terminal;

/// The time between two states on a screen, and between two lines elsewhere.
const SCREEN_PERIOD: Duration = Duration::from_millis(250);
const LINE_PERIOD: Duration = Duration::from_secs(1);
/// How long it runs without a screen.
const TIME: Duration = Duration::from_secs(10);
/// The time between automatic failovers, with a screen and without.
const SCREEN_FAILOVERS: Duration = Duration::from_secs(10);
const LINE_FAILOVERS: Duration = Duration::from_secs(3);

pub(crate) fn main() -> ExitCode {
    match Arguments::parse(std::env::args().skip(1)).and_then(|arguments| smol::block_on(watch(&arguments))) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

async fn watch(arguments: &Arguments) -> Result<bool, String> {
    let live = Terminal::is_available();
    let interactive = live || arguments.serve.is_some();
    let failovers = if interactive { SCREEN_FAILOVERS } else { LINE_FAILOVERS };
    let demo = match arguments.uri {
        Some(_) => None,
        None => {
            Some(Demo::start((!arguments.calm).then_some(failovers)).map_err(|error| format!("fake set: {error}"))?)
        }
    };
    let uri = arguments.uri.clone().or_else(|| demo.as_ref().map(Demo::uri)).unwrap_or_default();
    let parsed = ConnectionString::parse(&uri).map_err(|error| error.to_string())?;
    let client = Client::new_with(&uri, |options| completed(options, parsed.options())).await;
    let client = client.map_err(|error| error.to_string())?;

    let started = Instant::now();
    let state =
        State { warnings: warnings(&client), demo: demo.as_ref().map(|_| DemoState::default()), ..State::default() };
    let state = Arc::new(Mutex::new(state));
    let (sender, commands) = smol::channel::bounded(16);
    let _signals = smol::spawn(receive_signals(sender.clone())?);
    let mut tasks = Vec::new();
    if let Some(port) = arguments.serve {
        let page = Page::bind(port, Arc::clone(&state), sender.clone()).await;
        let page = page.map_err(|error| format!("the page: {error}"))?;
        with(&state, |state| state.page = Some(page.url()));
        if !live {
            print_line(&format!("The page is at {}", page.url())).map_err(|error| error.to_string())?;
        }
        tasks.push(smol::spawn(page.serve()));
    }
    let output = if live {
        tasks.push(smol::spawn(read_keys(sender)));
        Output::Screen(Terminal::enter().map_err(|error| format!("the terminal: {error}"))?)
    } else {
        lines_begin(&state, demo.is_some()).map_err(|error| error.to_string())?;
        Output::Lines(started)
    };
    tasks.push(smol::spawn(record(subscribe(&client), started, Arc::clone(&state))));
    let tally = Arc::new(Mutex::new(Tally::default()));
    tasks.extend(load::start(&client, &tally, arguments.tasks));
    let end = arguments.time.or((!interactive).then_some(TIME)).map(|time| started + time);
    let mut run = Run { client, demo, state, tally, started, sampled: started, output };
    let quit = run.until(end, &commands).await;
    run.finish(tasks, quit, &commands).await
}

/// The options of a connection string, with defaults of this program for those that it does not
/// set. A TXT record has none of these options.
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
    let ignored = client.options().warnings.iter().map(|warning| format!("warning: {warning}"));
    #[cfg(feature = "tls")]
    let ignored = ignored.chain(client.tls_warnings().iter().map(|warning| format!("warning: {warning}")));
    ignored.collect()
}

fn print_line(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn lines_begin(state: &Mutex<State>, demo: bool) -> io::Result<()> {
    for warning in with(state, |state| state.warnings.clone()) {
        print_line(&warning)?;
    }
    if demo {
        print_line("A fake replica set of three members in this process; \"--help\" lists the options")?;
    }
    print_line("Each server: address, type, connections in use/idle/being established, waiting tasks")
}

/// SIGINT, SIGTERM and SIGHUP end the program.
fn receive_signals(commands: Sender<Command>) -> Result<impl Future<Output = ()>, String> {
    let signals = Signals::new([Signal::Int, Signal::Term, Signal::Hup]);
    let mut signals = signals.map_err(|error| format!("signals: {error}"))?;
    Ok(async move {
        while signals.next().await.is_some() {
            if commands.send(Command::Quit).await.is_err() {
                return;
            }
        }
    })
}

async fn read_keys(commands: Sender<Command>) {
    let mut input = Unblock::new(io::stdin());
    let mut key = [0];
    while input.read_exact(&mut key).await.is_ok() {
        let command = match key[0] {
            b'f' | b'F' => Command::FailOver,
            b'z' | b'Z' => Command::Freeze,
            b'q' | b'Q' => Command::Quit,
            _ => continue,
        };
        if commands.send(command).await.is_err() {
            return;
        }
    }
}

/// Subscribes to the events of the topology and to those of whole pools.
fn subscribe(client: &Client) -> Subscription {
    client.subscribe_where(|event| match event {
        EventRef::Sdam(_) => true,
        EventRef::Pool(event) => matches!(event, PoolEvent::PoolCleared { .. }),
        EventRef::Heartbeat(_) | EventRef::Mux(_) | EventRef::Cluster(_) | EventRef::Command(_) | _ => false,
    })
}

async fn record(mut events: Subscription, started: Instant, state: Arc<Mutex<State>>) {
    while let Some(notice) = events.next().await {
        let described = match notice {
            Notice::Event { event, .. } => describe(&event),
            Notice::Lagged { count } => Some((Kind::Failure, format!("{count} events were not read in time"))),
        };
        if let Some((kind, text)) = described {
            with(&state, |state| state.add_event(started.elapsed(), kind, text));
        }
    }
}

/// Returns the kind and the text of an event; `None` for one that the screen shows elsewhere.
fn describe(event: &Event) -> Option<(Kind, String)> {
    let event = match event {
        Event::Pool(event) => return Some((Kind::Other, event.to_string())),
        Event::Sdam(event) => &**event,
        Event::Heartbeat(_) | Event::Mux(_) | Event::Cluster(_) | Event::Command(_) | _ => return None,
    };
    if let OwnedSdamEvent::ServerDescriptionChanged { address, previous, new, .. } = event {
        let (before, after) = (previous.get().server_type(), new.get().server_type());
        let error = new.get().error().map_or(String::new(), |error| format!(": {error}"));
        let kind = if !error.is_empty() {
            Kind::Failure
        } else if after == ServerType::RsPrimary {
            Kind::Primary
        } else {
            Kind::Other
        };
        let text = format!("{address} was {}, is {}{error}", before.name(), after.name());
        return (before != after).then_some((kind, text));
    }
    if let OwnedSdamEvent::ServerClosed { address, .. } = event {
        return Some((Kind::Other, format!("{address} is removed")));
    }
    None
}

enum Output {
    Screen(Terminal),
    /// The time of the last line.
    Lines(Instant),
}

struct Run {
    client: Client,
    demo: Option<Demo>,
    state: Arc<Mutex<State>>,
    tally: Arc<Mutex<Tally>>,
    started: Instant,
    /// The time of the last sample.
    sampled: Instant,
    output: Output,
}

impl Run {
    /// Runs until this time or a command of the user. Returns whether it was a command.
    async fn until(&mut self, end: Option<Instant>, commands: &Receiver<Command>) -> bool {
        // On a screen the first state is shown at once.
        let mut output = if matches!(self.output, Output::Screen(_)) { self.show() } else { Ok(()) };
        let page = with(&self.state, |state| state.page.is_some());
        let lines = matches!(self.output, Output::Lines(_)) && !page;
        let mut ticks = Timer::interval(if lines { LINE_PERIOD } else { SCREEN_PERIOD });
        // A closed output ends the program.
        while output.is_ok() && end.is_none_or(|end| Instant::now() < end) {
            let tick = async {
                ticks.next().await;
                None
            };
            let command = async { commands.recv().await.ok() };
            match pin!(command.or(tick)).await {
                Some(Command::Quit) => return true,
                Some(command) => self.obey(command),
                None => {
                    self.sample();
                    output = self.show();
                }
            }
        }
        output.is_err()
    }

    fn obey(&mut self, command: Command) {
        let now = Instant::now();
        let Some(demo) = &mut self.demo else { return };
        demo.stop_automatic();
        let done = if command == Command::Freeze { demo.freeze() } else { demo.fail_over(now) };
        self.note(now, Some(done));
    }

    /// Records what was done to the fake set since `now`.
    fn note(&self, now: Instant, done: Option<String>) {
        let frozen = self.demo.as_ref().map(|demo| DemoState { frozen: demo.frozen() });
        with(&self.state, |state| {
            state.demo = frozen;
            if let Some(text) = done {
                state.add_event(now - self.started, Kind::Done, text);
            }
        });
    }

    fn sample(&mut self) {
        let now = Instant::now();
        let done = self.demo.as_mut().and_then(|demo| demo.handle_timeout(now));
        self.note(now, done);
        let (sample, totals) = with(&self.tally, |tally| (tally.sample(now - self.sampled), tally.totals));
        self.sampled = now;
        let connections_max = self.client.pool_options().max_pool_size;
        let servers = self.client.servers();
        with(&self.state, |state| {
            state.time = now - self.started;
            state.totals = totals;
            state.add_sample(sample);
            state.servers = servers.into_iter().map(|status| Server::new(status, connections_max)).collect();
        });
    }

    fn show(&mut self) -> io::Result<()> {
        match &mut self.output {
            Output::Screen(terminal) => {
                let (columns, lines) = terminal.size();
                // A character in the last column leaves the cursor on it, and erasing the rest of
                // the line would erase it.
                let columns = columns.saturating_sub(1);
                let frame = with(&self.state, |state| screen::frame(state, columns, lines));
                terminal.draw(&frame)
            }
            // Half a period is less than any delay of a tick.
            Output::Lines(last) if last.elapsed() < LINE_PERIOD - SCREEN_PERIOD / 2 => Ok(()),
            Output::Lines(last) => {
                *last = Instant::now();
                print_line(&with(&self.state, |state| state.line()))
            }
        }
    }

    /// Ends the tasks and the client, and prints the summary. Returns whether operations succeeded.
    async fn finish(self, tasks: Vec<Task<()>>, quit: bool, commands: &Receiver<Command>) -> Result<bool, String> {
        let Self { client, tally, started, output, .. } = self;
        // Restores the terminal.
        drop(output);
        for task in tasks {
            task.cancel().await;
        }
        let elapsed = started.elapsed();
        // A second command ends it at once.
        let hurry = async {
            commands.recv().await.ok();
        };
        client.close().or(hurry).await;
        let (totals, last_error, last_succeeded) =
            with(&tally, |tally| (tally.totals, tally.last_error.take(), tally.last_succeeded));
        let rate = totals.succeeded as f64 / elapsed.as_secs_f64();
        let summary = format!(
            "{} operations succeeded, {} were retried, {} failed, in {:.1} s: {rate:.0} a second",
            totals.succeeded,
            totals.retried,
            totals.failed,
            elapsed.as_secs_f64()
        );
        // The output may be closed.
        let _ = print_line(&summary)
            .and_then(|()| last_error.map_or(Ok(()), |error| print_line(&format!("the last error: {error}"))));
        Ok(totals.succeeded > 0 && (quit || last_succeeded))
    }
}
