//! A server of a simple protocol, and the manager of a pool of connections to it. A request is a
//! line with a number, and its reply is the same line; a check is a line with a word.

use super::links::Event;
use super::operations::{Failed, Work};
use super::plan::{MS, nanos};
use super::platform::{Planned, Sim, Socket};
use super::state::State;
use crate::choices::Choices;
use crate::kind::Kind;
use core::fmt;
use futures_lite::future::or;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use poolhouse_client::Platform;
use poolhouse_client::pool::{Manager, Pool, PoolError};
use std::io;
use std::panic::panic_any;
use std::thread;

/// The request of a check.
const PING: &str = "ping";
/// The pause after the first failed attempt to connect.
const BACKOFF_FIRST: u64 = 50 * MS;
/// The pause of a task of the pool after a panic.
const REST: u64 = 500 * MS;
/// The time limit of a request during the faults.
const REQUEST_MAX: u64 = 2_000 * MS;

/// The pool under test.
pub(super) type PlainPool = Pool<Dialer, Sim>;
type GetError = PoolError<LineError>;

/// Faults of any reply. A duplicate may be the reply to a later request: no client can detect that.
pub(super) const TO_BYTES: [Kind; 9] = [
    Kind::ResetInstead,
    Kind::ResetAfter,
    Kind::HalfClose,
    Kind::LostReply,
    Kind::Split,
    Kind::Coalesced,
    Kind::SlowLoris,
    Kind::Truncated,
    Kind::Garbage,
];

/// Opens the connections of the pool, and checks them.
pub(super) struct Dialer(pub(super) Sim);

/// A connection.
pub(super) struct Line {
    socket: Socket,
    input: Vec<u8>,
    /// A reply is outstanding, or a request has failed.
    is_busy: bool,
    /// An operation has had it, and it was not checked since.
    is_unchecked: bool,
}

/// Why a connection cannot be opened or used.
#[derive(Clone, Debug)]
pub(super) struct LineError {
    kind: io::ErrorKind,
    /// The client's clock when it failed.
    at: u64,
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)
    }
}

impl core::error::Error for LineError {}

/// The attempts of the manager to open connections. Times are of the client's clock.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// Number of attempts in progress.
    open: u32,
    /// Number of attempts that have failed since the last success.
    failures: u32,
    /// The next attempts fail.
    is_failing: bool,
    /// The last failure.
    failed_at: u64,
    /// The last attempt that ended at its time limit.
    timed_out_at: u64,
    /// The times of all panics.
    panics: Vec<u64>,
    /// Number of checks that failed, or did not end.
    missed_checks: u64,
}

impl Attempts {
    fn fail(&mut self, now: u64) {
        self.failures += 1;
        self.failed_at = now;
    }

    /// The longest pause before the next attempt.
    fn pause_max(&self, max_backoff: u64) -> u64 {
        match self.failures {
            0 => 0,
            failures => (BACKOFF_FIRST << (failures - 1).min(16)).min(max_backoff),
        }
    }
}

/// An attempt to open a connection, or a check.
struct Attempt<'s> {
    sim: &'s Sim,
    begun: u64,
    is_check: bool,
    has_ended: bool,
}

impl<'s> Attempt<'s> {
    fn begin(sim: &'s Sim, is_check: bool) -> Self {
        let begun = sim.with(|state| {
            if !is_check {
                state.check_pause();
                state.attempts.open += 1;
            }
            state.clock_ns()
        });
        Self { sim, begun, is_check, has_ended: false }
    }

    fn end<T>(mut self, result: io::Result<T>) -> Result<T, LineError> {
        self.has_ended = true;
        self.sim.with(|state| {
            let at = state.clock_ns();
            match &result {
                Ok(_) if self.is_check => {}
                Err(_) if self.is_check => state.attempts.missed_checks += 1,
                Ok(_) => state.attempts.failures = 0,
                Err(_) => state.attempts.fail(at),
            }
            result.map_err(|error| LineError { kind: error.kind(), at })
        })
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let Self { begun, is_check, has_ended, .. } = *self;
        self.sim.with(|state| {
            let now = state.clock_ns();
            let limit = state.plan.options.connect_timeout.map(nanos);
            if is_check {
                state.attempts.missed_checks += u64::from(!has_ended);
                return;
            }
            state.attempts.open -= 1;
            if has_ended {
                return;
            }
            if thread::panicking() {
                state.attempts.panics.push(now);
                state.attempts.fail(now);
            } else if limit.is_some_and(|limit| now >= begun.saturating_add(limit)) {
                state.attempts.timed_out_at = now;
                state.attempts.fail(now);
            }
        });
    }
}

impl Dialer {
    /// Panics if the run draws it.
    fn may_panic(&self) {
        let panics = self.0.with(|state| state.draws.host.one_in(4) && state.comes(Kind::ManagerPanics));
        if panics {
            panic_any(Planned);
        }
    }
}

impl Manager for Dialer {
    type Connection = Line;
    type Error = LineError;

    async fn connect(&self) -> Result<Line, LineError> {
        let attempt = Attempt::begin(&self.0, false);
        self.may_panic();
        let (wait, fails) = self.0.with(State::draw_connect);
        if wait > 0 {
            self.0.sleep(wait).await;
        }
        if fails {
            return attempt.end(Err(io::ErrorKind::PermissionDenied.into()));
        }
        let opened = async {
            let addresses = self.0.resolve("n0", 27_017).await?;
            let address = addresses.last().ok_or(io::ErrorKind::NotFound)?;
            self.0.connect_tcp(*address).await
        };
        let socket = opened.await;
        let line = |socket| Line { socket, input: Vec::new(), is_busy: false, is_unchecked: false };
        attempt.end(socket.map(line))
    }

    async fn check(&self, line: &mut Line) -> Result<(), LineError> {
        let attempt = Attempt::begin(&self.0, true);
        self.may_panic();
        let reply = line.exchange(PING).await;
        let reply = reply.and_then(|reply| if reply == PING { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) });
        attempt.end(reply)?;
        line.is_unchecked = false;
        Ok(())
    }

    fn is_broken(&self, line: &Line) -> bool {
        line.is_busy
    }
}

impl Line {
    /// Sends a request, and reads its reply.
    async fn exchange(&mut self, text: &str) -> io::Result<String> {
        self.is_busy = true;
        self.socket.write_all(format!("{text}\n").as_bytes()).await?;
        let mut buffer = [0; 64];
        let end = loop {
            if let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
                break end;
            }
            let count = self.socket.read(&mut buffer).await?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.input.extend(&buffer[..count]);
        };
        if end + 1 != self.input.len() || self.input[0] == b'?' {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let reply = core::mem::take(&mut self.input);
        self.is_busy = false;
        String::from_utf8(reply[..end].to_vec()).map_err(|_| io::ErrorKind::InvalidData.into())
    }
}

/// The begin of a check-out.
#[derive(Clone, Copy)]
struct Begun {
    clock: u64,
    real: u64,
    /// The tolerance for its end.
    late: u64,
    missed_checks: u64,
}

/// The conditions under which a check-out may fail.
impl State {
    /// Checks that a pool does not connect in a hot loop.
    fn check_pause(&mut self) {
        let (now, max) = (self.clock_ns(), nanos(self.plan.options.max_backoff));
        let least = self.attempts.failed_at + self.attempts.pause_max(max) / 4 * 3;
        self.counters.checks.add("P53");
        if self.attempts.failures > 0 && now < least {
            let failures = self.attempts.failures;
            self.violate(|| format!("P53: an attempt {} ns too early after {failures} failures", least - now));
        }
    }

    /// Draws the time that the manager needs in addition, and whether its attempt fails.
    fn draw_connect(&mut self) -> (u64, bool) {
        if self.peace || !self.plan.fails_often {
            return (0, false);
        }
        // Fast attempts fail in streaks, which causes a long pause; slow ones end within it, often
        // at the same instant.
        self.attempts.is_failing ^= self.draws.network.one_in(4);
        let takes = self.draws.network.one_of(&[0, 0, 100, 800]);
        let fails = if takes == 0 { self.attempts.is_failing } else { self.draws.network.one_in(2) };
        if fails {
            self.counters.count(Kind::ManagerFails);
        }
        (takes * MS, fails)
    }

    /// Checks that each connection that is pending is being opened, unless earlier failures require
    /// a pause.
    ///
    /// - `pending`: the number of connections that the pool counts as pending.
    pub(super) fn check_attempts(&mut self, pending: u32) {
        let (now, max) = (self.clock_ns(), nanos(self.plan.options.max_backoff));
        let attempts = &self.attempts;
        let resting = attempts.panics.iter().filter(|at| now < **at + REST).count();
        let idle = pending.saturating_sub(attempts.open) as usize;
        let is_paused = now < attempts.failed_at + attempts.pause_max(max);
        self.counters.checks.add("P10");
        if idle > resting && !is_paused {
            let text = format!("{pending} connections are pending, but {} are being opened", attempts.open);
            self.violate(|| format!("P10: {text}"));
        }
    }

    fn begin_check_out(&self) -> Begun {
        Begun {
            clock: self.clock_ns(),
            real: self.now,
            late: self.late_max(),
            missed_checks: self.attempts.missed_checks,
        }
    }

    /// Checks that a check-out has ended within its time limit.
    fn judge_check_out(&mut self, begun: Begun, is_timeout: bool) {
        let options = &self.plan.options;
        let jumped = self.jumped_at.is_some_and(|at| at >= begun.real);
        let Some(limit) = options.wait_timeout.map(nanos) else { return };
        // The time limit begins anew after a check that failed.
        if jumped || self.attempts.missed_checks != begun.missed_checks {
            return;
        }
        let check =
            if options.check_before_reuse && !is_timeout { options.connect_timeout.map_or(0, nanos) } else { 0 };
        let took = self.clock_ns() - begun.clock;
        self.counters.checks.add("P22");
        if took > limit.saturating_add(check) + begun.late {
            self.violate(|| format!("P22: a check-out takes {took} ns, but its limit is {limit} ns"));
        }
    }

    /// Checks that the error of a check-out is its own.
    fn judge_error(&mut self, begun: Begun, error: &GetError, is_try: bool) -> Failed {
        let attempts = &self.attempts;
        let (kind, is_own) = match error {
            PoolError::Connect(error) => (Kind::CheckOutFailed, error.at >= begun.clock),
            PoolError::ConnectTimeout => (Kind::CheckOutFailed, attempts.timed_out_at >= begun.clock),
            PoolError::Interrupted => {
                (Kind::OpInterrupted, attempts.panics.last().is_some_and(|at| *at >= begun.clock))
            }
            PoolError::WaitTimeout { counts, .. } => {
                let options = &self.plan.options;
                let limit = options.wait_timeout.map(nanos);
                let is_over = limit.is_some_and(|limit| self.clock_ns() >= begun.clock.saturating_add(limit));
                let is_full =
                    counts.in_use + counts.pending >= options.max_size || counts.pending >= options.max_connecting;
                (if is_full { Kind::PoolFull } else { Kind::CheckOutTimeout }, is_try || is_over)
            }
            PoolError::Closed => (Kind::OpClosed, self.is_closed),
            PoolError::Abandoned => (Kind::OpAbandoned, self.is_abandoned),
            _ => (Kind::OpProtocol, false),
        };
        self.counters.checks.add("P31");
        if !is_own {
            self.violate(|| format!("P31: a check-out fails for a reason that is not its own: {error:?}"));
        }
        if matches!(error, PoolError::WaitTimeout { .. }) && !is_try {
            self.judge_check_out(begun, true);
        }
        Failed::new(kind, error.to_string())
    }
}

/// Executes the work of an operation on a pool.
pub(super) async fn on_pool(sim: &Sim, pool: &PlainPool, work: Work) -> Result<(), Failed> {
    match work {
        Work::Use { is_try, commands, pause, is_detached } => {
            let begun = sim.with(|state| state.begin_check_out());
            let got = if is_try { pool.try_get() } else { pool.get().await };
            let mut line = match got {
                Ok(line) => line,
                Err(error) => return Err(sim.with(|state| state.judge_error(begun, &error, is_try))),
            };
            sim.with(|state| {
                state.judge_check_out(begun, false);
                state.counters.checks.add("P15");
                if !is_try && line.is_unchecked && state.plan.options.check_before_reuse {
                    state.violate(|| "P15: a connection that was used before is not checked".to_owned());
                }
            });
            line.is_unchecked = true;
            for (pause, number) in commands {
                if pause > 0 {
                    sim.sleep(pause).await;
                }
                let text = number.to_string();
                let limit = sim.with(|state| if state.peace { u64::MAX >> 1 } else { REQUEST_MAX });
                let over = async {
                    sim.sleep(limit).await;
                    Err(io::ErrorKind::TimedOut.into())
                };
                match or(line.exchange(&text), over).await {
                    Ok(reply) => sim.with(|state| state.replied(number, reply == text)),
                    Err(error) => {
                        let is_timeout = error.kind() == io::ErrorKind::TimedOut;
                        let kind = if is_timeout { Kind::OpTimeout } else { Kind::OpNetwork };
                        return Err(Failed::new(kind, error.to_string()));
                    }
                }
            }
            if pause > 0 {
                sim.sleep(pause).await;
            }
            if is_detached {
                drop(line.detach());
            }
        }
        Work::Clear => pool.clear(),
        Work::Resize(max_size) => pool.resize(max_size).map_err(|error| Failed::unexpected(error.to_string()))?,
        Work::Subscribe(time) => {
            let _subscription = pool.subscribe();
            sim.sleep(time).await;
        }
        _ => drop(format!("{pool:?} {:?}", pool.status())),
    }
    Ok(())
}

/// Members of this deployment.
impl State {
    /// A member processes all complete lines.
    pub(super) fn process_lines(&mut self, id: u64) {
        loop {
            let Some(link) = self.net.links.get_mut(&id) else { return };
            let known = &self.truth.members[link.member];
            if !known.is_running() || known.process != link.process || link.far.has_ended {
                return;
            }
            let Some(end) = link.far.input.iter().position(|byte| *byte == b'\n') else { return };
            let line: Vec<u8> = link.far.input.drain(..=end).collect();
            let unread = link.flying as usize + link.near.input.len() + link.near.held.len();
            assert!(
                unread == 0 || link.is_broken,
                "P5: a request was sent before the reply to the previous one was read"
            );
            if self.roll_back(id, &[Kind::ResetBefore]).is_some() {
                let at = self.now + self.delay();
                return self.cut(id, at);
            }
            let text = core::str::from_utf8(&line[..end]).expect("UTF-8");
            if text != PING {
                let number = text.parse().expect("a request of the application");
                if !self.is_executed(number) {
                    continue;
                }
            }
            let at = self.now + self.delay();
            self.net.at(at, Event::Answer(id, 0, line));
        }
    }

    /// Corrupts a line.
    pub(super) fn spoil_line(bytes: &mut [u8]) {
        bytes[0] = b'?';
    }
}
