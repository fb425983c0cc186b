//! The program: it joins what is watched, the screen and the page.

use alloc::sync::Arc;
use core::pin::pin;
use core::time::Duration;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use async_signal::{Signal, Signals};
use poolhouse_smol::{Event, Notice, Subscription};
use smol::channel::{Receiver, Sender};
use smol::future::FutureExt;
use smol::io::AsyncReadExt;
use smol::stream::StreamExt;
use smol::{Task, Timer, Unblock};

use crate::arguments::Arguments;
use crate::cassandra::Cassandra;
use crate::command::Command;
use crate::load::{Tally, with};
use crate::mongodb::MongoDb;
use crate::page::Page;
use crate::screen;
use crate::state::{DemoState, Kind, Server, State, Words};
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
    match Arguments::parse(std::env::args().skip(1)).and_then(|arguments| smol::block_on(run(&arguments))) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

/// A client or a session, its load, and the fake servers in the process, if any.
pub(crate) trait Watched {
    fn words(&self) -> &'static Words;

    /// Lines that explain the following ones, without a screen.
    fn introduction(&self) -> Vec<String>;

    fn warnings(&self) -> Vec<String>;

    /// Starts the load, and a task that adds events to the state. The tasks end when they are dropped.
    fn start(&self, started: Instant, state: &Arc<Mutex<State>>, tally: &Arc<Mutex<Tally>>) -> Vec<Task<()>>;

    fn servers(&self) -> Vec<Server>;

    /// The state of the fake servers.
    fn demo(&self) -> Option<DemoState>;

    /// Does to the fake servers what is due. Returns what was done.
    fn handle_timeout(&mut self, now: Instant) -> Option<String>;

    /// Does to the fake servers what the user wants. Returns what was done.
    fn obey(&mut self, now: Instant, command: Command) -> Option<String>;

    /// Returns why a run that no user has ended was no success; `None` if it was.
    fn shortcoming(&self, tally: &Tally, state: &State) -> Option<&'static str>;

    async fn close(&self);
}

async fn run(arguments: &Arguments) -> Result<bool, String> {
    if let Some(hosts) = &arguments.hosts {
        let session = Cassandra::open(hosts, arguments.credential.as_ref(), arguments.tasks)?;
        return watch(arguments, session).await;
    }
    let failovers = if is_interactive(arguments) { SCREEN_FAILOVERS } else { LINE_FAILOVERS };
    let failovers = (!arguments.calm).then_some(failovers);
    watch(arguments, MongoDb::open(arguments.uri.as_deref(), failovers, arguments.tasks).await?).await
}

fn is_interactive(arguments: &Arguments) -> bool {
    Terminal::is_available() || arguments.serve.is_some()
}

async fn watch(arguments: &Arguments, watched: impl Watched) -> Result<bool, String> {
    let live = Terminal::is_available();
    let started = Instant::now();
    let (words, warnings, demo) = (watched.words(), watched.warnings(), watched.demo());
    let state = Arc::new(Mutex::new(State { words, warnings, demo, ..State::default() }));
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
        for line in watched.warnings().iter().chain(&watched.introduction()) {
            print_line(line).map_err(|error| error.to_string())?;
        }
        Output::Lines(started)
    };
    let tally = Arc::new(Mutex::new(Tally::default()));
    tasks.extend(watched.start(started, &state, &tally));
    let end = arguments.time.or((!is_interactive(arguments)).then_some(TIME)).map(|time| started + time);
    let mut run = Run { watched, state, tally, started, sampled: started, output };
    let quit = run.until(end, &commands).await;
    run.finish(tasks, quit, &commands).await
}

fn print_line(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
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

/// Adds the events of a subscription to the state: those of which `describe` returns kind and text.
pub(crate) async fn record(
    mut events: Subscription,
    started: Instant,
    state: Arc<Mutex<State>>,
    mut describe: impl FnMut(&Event, &mut State) -> Option<(Kind, String)>,
) {
    while let Some(notice) = events.next().await {
        with(&state, |state| {
            let described = match notice {
                Notice::Event { event, .. } => describe(&event, state),
                Notice::Lagged { count } => Some((Kind::Failure, format!("{count} events were not read in time"))),
            };
            if let Some((kind, text)) = described {
                state.add_event(started.elapsed(), kind, text);
            }
        });
    }
}

enum Output {
    Screen(Terminal),
    /// The time of the last line.
    Lines(Instant),
}

struct Run<W> {
    watched: W,
    state: Arc<Mutex<State>>,
    tally: Arc<Mutex<Tally>>,
    started: Instant,
    /// The time of the last sample.
    sampled: Instant,
    output: Output,
}

impl<W: Watched> Run<W> {
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
        let done = self.watched.obey(now, command);
        self.note(now, done);
    }

    /// Records what was done to the fake servers since `now`.
    fn note(&self, now: Instant, done: Option<String>) {
        let demo = self.watched.demo();
        with(&self.state, |state| {
            state.demo = demo;
            if let Some(text) = done {
                state.add_event(now - self.started, Kind::Done, text);
            }
        });
    }

    fn sample(&mut self) {
        let now = Instant::now();
        let done = self.watched.handle_timeout(now);
        self.note(now, done);
        let (sample, totals) = with(&self.tally, |tally| (tally.sample(now - self.sampled), tally.totals));
        self.sampled = now;
        let servers = self.watched.servers();
        with(&self.state, |state| {
            state.time = now - self.started;
            state.totals = totals;
            state.add_sample(sample);
            state.servers = servers;
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

    /// Ends the tasks and what was watched, and prints the summary. Returns whether operations succeeded.
    async fn finish(self, tasks: Vec<Task<()>>, quit: bool, commands: &Receiver<Command>) -> Result<bool, String> {
        let Self { watched, state, tally, started, output, .. } = self;
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
        watched.close().or(hurry).await;
        let (state, mut tally) = (with(&state, |state| state.clone()), with(&tally, core::mem::take));
        let totals = tally.totals;
        let rate = totals.succeeded as f64 / elapsed.as_secs_f64();
        let summary = format!(
            "{} operations succeeded, {} were {}, {} failed, in {:.1} s: {rate:.0} a second",
            totals.succeeded,
            totals.other,
            state.words.other,
            totals.failed,
            elapsed.as_secs_f64()
        );
        let connections = state.resized.map(|resized| format!("connections: {resized}"));
        let last_error = tally.last_error.take().map(|error| format!("the last error: {error}"));
        let shortcoming = match watched.shortcoming(&tally, &state) {
            _ if totals.succeeded == 0 => Some("no operation succeeded"),
            found => found.filter(|_| !quit),
        };
        let reason = shortcoming.map(|reason| format!("not as expected: {reason}"));
        for line in [Some(summary), connections, last_error, reason].iter().flatten() {
            // The output may be closed.
            let _ = print_line(line);
        }
        Ok(shortcoming.is_none())
    }
}
