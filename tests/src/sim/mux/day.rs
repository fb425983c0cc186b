//! A day of load in virtual time, on a pool with healthy peers. It measures the number of
//! connections and how often one is opened. The model of the simulated runs checks when one is
//! opened or trashed.

use crate::choices::Choices;
use crate::rng::Rng;
use alloc::collections::BTreeMap;
use core::f64::consts::TAU;
use core::time::Duration;
use poolhouse_core::mux::{
    Acquire, HostOptions, Mux, MuxAction, MuxClaim, MuxConnId, MuxEvent, MuxId, MuxOnHeap, MuxOptions, Reply, Stream,
    Written,
};
use poolhouse_core::{Instant, Observer};

const SECOND: u64 = 1_000_000_000;
const HOURS: usize = 24;
const HOUR: u64 = 3_600 * SECOND;

/// The options of this pool: up to 8 connections. The second and later ones are opened at 26, 58,
/// 90, .. requests in flight.
pub const OPTIONS: MuxOptions = MuxOptions {
    local: HostOptions {
        core_connections: 1,
        max_connections: 8,
        max_requests_per_connection: 32,
        new_connection_threshold: 25,
    },
    ..MuxOptions::DEFAULT_128
};

/// Measurements of a day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Requests that were answered.
    pub requests: u64,
    /// Requests that had to wait for a stream id.
    pub queued: u64,
    /// Requests that were rejected.
    pub rejected: u64,
    /// Opened connections, by hour.
    pub opened: [u32; HOURS],
    /// Trashed connections.
    pub trashed: u32,
    /// Resurrected connections.
    pub resurrected: u32,
    /// Open connections, without those in the trash.
    pub open: u32,
    /// Maximum of `open`.
    pub most: u32,
}

impl Report {
    /// Number of opened connections, including the first.
    #[must_use]
    pub fn opened_in_all(&self) -> u32 {
        self.opened.iter().sum()
    }
}

impl Observer<MuxEvent> for Report {
    fn on_event(&mut self, now: Instant, event: &MuxEvent) {
        #[allow(clippy::wildcard_enum_match_arm, reason = "other events do not affect these counts")]
        match *event {
            MuxEvent::ConnectionCreated { .. } => {
                let hour = usize::try_from(now.as_nanos() / HOUR).expect("an hour").min(HOURS - 1);
                self.opened[hour] += 1;
            }
            MuxEvent::ConnectionReady { .. } => self.open += 1,
            MuxEvent::ConnectionTrashed { .. } => {
                self.open -= 1;
                self.trashed += 1;
            }
            MuxEvent::ConnectionResurrected { .. } => {
                self.open += 1;
                self.resurrected += 1;
            }
            _ => {}
        }
        self.most = self.most.max(self.open);
    }
}

/// A pool, its host and a peer that answers.
struct Host {
    mux: Mux<MuxOnHeap>,
    report: Report,
    now: u64,
    /// Future events, by time and then by order of insertion.
    agenda: BTreeMap<(u64, u64), What>,
    found: u64,
    /// Random durations of establishments and requests.
    rng: Rng,
    mean_service: f64,
}

enum What {
    Established(MuxConnId),
    Heartbeat(MuxConnId, u16),
    Reply(Stream),
}

impl Host {
    fn new(seed: u64, mean_service: f64) -> Self {
        let mut report = Report::default();
        let config = OPTIONS.validate().expect("valid options");
        let mux = Mux::new(Instant::ORIGIN, MuxId::new(1), config, &mut report);
        let rng = Rng::stream(seed, "service");
        let mut host = Self { mux, report, now: 0, agenda: BTreeMap::new(), found: 0, rng, mean_service };
        host.drain();
        host
    }

    fn at(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    fn expect(&mut self, after: u64, what: What) {
        self.found += 1;
        self.agenda.insert((self.now + after, self.found), what);
    }

    /// Executes the actions of the pool.
    fn drain(&mut self) {
        while let Some(action) = self.mux.poll_action(self.at()) {
            match action {
                MuxAction::Establish(conn) => {
                    let time = u64::from(self.rng.below(80_000_000)) + 20_000_000;
                    self.expect(time, What::Established(conn));
                }
                MuxAction::Heartbeat(conn, stream) => self.expect(1_000_000, What::Heartbeat(conn, stream)),
                MuxAction::Close(conn) => assert_eq!(self.mux.conn_in_flight(conn), None),
                MuxAction::Wake(waiter) => match self.mux.claim(self.at(), waiter) {
                    MuxClaim::Granted(stream) => self.serve(stream),
                    MuxClaim::Failed(_) => self.report.rejected += 1,
                    MuxClaim::Waiting | MuxClaim::Stale => panic!("woken without an outcome"),
                },
            }
        }
    }

    /// Schedules the reply to a request that has a stream id.
    fn serve(&mut self, stream: Stream) {
        let time = exponential(&mut self.rng, self.mean_service);
        self.expect(time, What::Reply(stream));
    }

    fn acquire(&mut self) -> Option<Stream> {
        match self.mux.acquire(self.at(), None, &mut self.report) {
            Ok(Acquire::Granted(stream)) => return Some(stream),
            Ok(Acquire::Queued(_)) => self.report.queued += 1,
            Err(_) => self.report.rejected += 1,
        }
        None
    }

    fn answer(&mut self, stream: Stream) {
        let (now, conn, id) = (self.at(), stream.conn(), i32::from(stream.id()));
        assert_eq!(self.mux.handle_reply(now, conn, id, &mut self.report), Ok(Reply::Request));
        self.mux.release(now, stream, Written::Perhaps, &mut self.report).expect("its own");
        self.report.requests += 1;
        self.drain();
    }

    /// Processes all events up to an instant.
    fn run_until(&mut self, end: u64) {
        loop {
            let due = self.mux.poll_timeout().map(Instant::as_nanos).filter(|due| *due <= end);
            let next = self.agenda.first_key_value().map(|((at, _), _)| *at).filter(|at| *at <= end);
            if let Some(due) = due.filter(|due| next.is_none_or(|next| *due <= next)) {
                assert!(due >= self.now, "the next deadline is in the past");
                self.now = due;
                self.mux.handle_timeout(self.at(), &mut self.report);
                let again = self.mux.poll_timeout();
                assert!(again.is_none_or(|again| again > self.at()), "the call at the deadline {due} left a due timer");
            } else if next.is_some() {
                let Some(((at, _), what)) = self.agenda.pop_first() else { unreachable!("it was seen") };
                self.now = at;
                let now = self.at();
                match what {
                    What::Established(conn) => {
                        self.mux
                            .handle_established(now, conn, &mut self.report)
                            .expect("the pool has not abandoned it");
                    }
                    What::Heartbeat(conn, stream) => {
                        let reported = self.mux.handle_reply(now, conn, i32::from(stream), &mut self.report);
                        assert!(reported.is_err() || reported == Ok(Reply::Heartbeat));
                    }
                    What::Reply(stream) => self.answer(stream),
                }
            } else {
                break;
            }
            self.drain();
        }
        self.now = end;
    }

    fn report(self) -> Report {
        self.mux.assert_invariants();
        self.report
    }
}

/// An exponentially distributed duration with this mean in seconds, in nanoseconds.
fn exponential(rng: &mut Rng, mean: f64) -> u64 {
    let uniform = (f64::from(rng.below(1 << 30)) + 1.0) / f64::from(1 << 30);
    let time = Duration::from_secs_f64(-uniform.ln() * mean);
    u64::try_from(time.as_nanos()).expect("a time of some seconds")
}

/// The load at a time of day: 10 requests in flight at night, 200 at noon.
fn curve(at: u64) -> f64 {
    let hours = Duration::from_nanos(at).as_secs_f64() / 3_600.0;
    105.0 - 95.0 * (hours / 24.0 * TAU).cos()
}

/// A day of random requests at a rate that follows the curve and varies by up to a fifth from
/// minute to minute. The mean duration of a request is 2 s.
#[must_use]
pub fn noisy(seed: u64) -> Report {
    let service = 2.0;
    let mut host = Host::new(seed, service);
    let mut rng = Rng::stream(seed, "arrivals");
    let (mut at, mut minute, mut weather) = (0, u64::MAX, 1.0);
    loop {
        if minute != at / (60 * SECOND) {
            minute = at / (60 * SECOND);
            weather = 0.8 + f64::from(rng.below(1_000)) * 0.4 / 1_000.0;
        }
        at += exponential(&mut rng, service / (curve(at) * weather));
        if at >= 24 * HOUR {
            break;
        }
        host.run_until(at);
        if let Some(stream) = host.acquire() {
            host.serve(stream);
        }
        host.drain();
    }
    host.report()
}

/// A day on which the number of requests in flight in each second follows the curve within 2.
#[must_use]
pub fn smooth(seed: u64) -> Report {
    let mut rng = Rng::stream(seed, "jitter");
    held(seed, 24 * 3_600, |second| {
        let level = (curve(second * SECOND) - 2.0).round();
        // The level is between 8 and 198.
        let level = (0..200_u32).find(|number| f64::from(*number) >= level).unwrap_or(0);
        level + rng.below(5)
    })
}

/// An hour at a threshold: `level` and `level + 1` requests are in flight alternately, each for
/// `period` seconds.
#[must_use]
pub fn at_threshold(level: u32, period: u64) -> Report {
    held(0, 3_600, |second| level + u32::from(second / period % 2 == 1))
}

/// Holds a given number of requests in flight in each second.
fn held(seed: u64, seconds: u64, mut level: impl FnMut(u64) -> u32) -> Report {
    let mut host = Host::new(seed, 1.0);
    let mut streams = Vec::new();
    host.run_until(SECOND / 2);
    for second in 0..seconds {
        let wanted = level(second) as usize;
        while streams.len() > wanted {
            let stream = streams.remove(host.rng.index(streams.len()));
            host.answer(stream);
        }
        while streams.len() < wanted {
            // No request waits: a request is sent only when an id is free, and the next connection
            // is opened in the meantime.
            host.run_until(host.now + 1_000_000);
            let state = host.mux.state();
            if state.in_flight < state.capacity {
                streams.extend(host.acquire());
                host.drain();
            }
        }
        host.run_until((second + 1) * SECOND + SECOND / 2);
    }
    host.report()
}
