//! The numbers in the documents of the DataStax Java driver 3 about its pools, and those of the multiplexed
//! pool in virtual time.
//!
//! Read first: the pages "Connection pooling" and "Socket options" of the driver's manual.

#[cfg(test)]
mod tests;

use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::mux::{
    Acquire, AcquireError, HostOptions, Mux, MuxAction, MuxClosed, MuxConnId, MuxEvent, MuxId, MuxOnHeap, MuxOptions,
    Reply, Stream, Written,
};

/// The documented options, with a second connection: by default there is one, which cannot become surplus.
pub const TWO_CONNECTIONS: MuxOptions =
    MuxOptions { local: HostOptions { max_connections: 2, ..MuxOptions::DEFAULT.local }, ..MuxOptions::DEFAULT };

/// The time from the trashing of a connection to the load that it is resurrected for: shortly before its end.
pub const REST: Duration = Duration::from_secs(115);

/// The numbers. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Numbers {
    /// Requests in flight on a connection that takes no more.
    pub requests_per_connection: f64,
    /// Requests that wait when no more may wait.
    pub queue: f64,
    /// The time after which a waiting request has failed.
    pub queue_timeout_s: f64,
    /// Requests in flight without a second connection: one more opens it.
    pub threshold: f64,
    /// The time from the beginning of a surplus connection, with load in the first interval only, to its
    /// trashing: two intervals of checks.
    pub trashed_s: f64,
    /// The time from its trashing to its return, [`REST`] later: it was still there.
    pub resurrected_s: f64,
    /// The time from its trashing to its end without load.
    pub closed_s: f64,
    /// The time from one heartbeat of a connection at rest to the next.
    pub heartbeat_s: f64,
    /// The time from a heartbeat without answer to the end of its connection.
    pub heartbeat_timeout_s: f64,
}

/// The documented numbers.
pub const DOCUMENTED: Numbers = Numbers {
    requests_per_connection: 1024.0,
    queue: 256.0,
    queue_timeout_s: 5.0,
    threshold: 800.0,
    trashed_s: 2.0 * 10.0,
    resurrected_s: 115.0,
    closed_s: 120.0,
    heartbeat_s: 30.0,
    heartbeat_timeout_s: 12.0,
};

impl Numbers {
    /// Returns each number with its name.
    #[must_use]
    pub const fn rows(&self) -> [(&'static str, f64); 9] {
        [
            ("requests in flight on a connection", self.requests_per_connection),
            ("requests that wait", self.queue),
            ("a request waits, s", self.queue_timeout_s),
            ("requests in flight beyond which a second connection is opened", self.threshold),
            ("surplus connection is trashed after two checks, s", self.trashed_s),
            ("trashed connection is resurrected by load after (limit 120), s", self.resurrected_s),
            ("trashed connection is closed after, s", self.closed_s),
            ("heartbeat at rest after, s", self.heartbeat_s),
            ("unanswered heartbeat fails after, s", self.heartbeat_timeout_s),
        ]
    }
}

/// A pool, and a host that answers at once, on virtual time.
struct Host {
    mux: Mux<MuxOnHeap>,
    now: Instant,
    events: Vec<(Instant, MuxEvent)>,
    establish: Vec<MuxConnId>,
    answers_heartbeats: bool,
}

impl Host {
    /// Creates a pool whose first connection is established.
    fn new(options: MuxOptions) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let mut events = Vec::new();
        let mux = Mux::new(now, MuxId::new(1), options.validate().expect("valid options"), &mut events);
        let mut host = Self { mux, now, events, establish: Vec::new(), answers_heartbeats: true };
        host.act();
        host.establish();
        host
    }

    /// Carries out the actions of the pool, except that it establishes no connection.
    fn act(&mut self) {
        while let Some(action) = self.mux.poll_action(self.now) {
            match action {
                MuxAction::Establish(conn) => self.establish.push(conn),
                MuxAction::Heartbeat(conn, id) if self.answers_heartbeats => {
                    let reply = self.mux.handle_reply(self.now, conn, i32::from(id), &mut self.events);
                    assert_eq!(reply, Ok(Reply::Heartbeat));
                }
                MuxAction::Heartbeat(..) | MuxAction::Close(_) | MuxAction::Wake(_) => {}
            }
        }
    }

    fn establish(&mut self) {
        for conn in core::mem::take(&mut self.establish) {
            self.mux.handle_established(self.now, conn, &mut self.events).expect("it is awaited");
        }
        self.act();
    }

    fn acquire(&mut self) -> Result<Acquire, AcquireError> {
        let acquired = self.mux.acquire(self.now, None, &mut self.events);
        self.act();
        acquired
    }

    /// Begins requests until another connection is opened or resurrected.
    fn grow(&mut self) -> Vec<Stream> {
        let count = self.count("ConnectionCreated") + self.count("ConnectionResurrected");
        let mut streams = Vec::new();
        while self.count("ConnectionCreated") + self.count("ConnectionResurrected") == count {
            let Ok(Acquire::Granted(stream)) = self.acquire() else { panic!("no growth: {:?}", self.mux.state()) };
            streams.push(stream);
        }
        streams
    }

    fn answer(&mut self, streams: Vec<Stream>) {
        for stream in streams {
            let (conn, id) = (stream.conn(), i32::from(stream.id()));
            assert_eq!(self.mux.handle_reply(self.now, conn, id, &mut self.events), Ok(Reply::Request));
            self.mux.release(self.now, stream, Written::Perhaps, &mut self.events).expect("of this pool");
        }
        self.act();
        self.mux.assert_invariants();
    }

    /// Advances the clock to the first event with this name from now on; returns its time.
    fn wait_for(&mut self, name: &str) -> Instant {
        let seen = self.events.len();
        loop {
            if let Some((at, _)) = self.events[seen..].iter().find(|(_, event)| event.name() == name) {
                return *at;
            }
            self.now = self.mux.poll_timeout().expect("something is due");
            self.mux.handle_timeout(self.now, &mut self.events);
            self.act();
        }
    }

    /// Advances the clock by a duration.
    fn wait(&mut self, time: Duration) {
        let end = self.now.saturating_add(time);
        while let Some(at) = self.mux.poll_timeout().filter(|at| *at <= end) {
            self.now = at;
            self.mux.handle_timeout(at, &mut self.events);
            self.act();
        }
        self.now = end;
    }

    fn count(&self, name: &str) -> usize {
        self.events.iter().filter(|(_, event)| event.name() == name).count()
    }
}

/// Measures the numbers of the machine.
#[must_use]
pub fn of_machine() -> Numbers {
    let since = |later: Instant, earlier: Instant| later.saturating_since(earlier).as_secs_f64();
    let mut host = Host::new(MuxOptions::DEFAULT);
    let (mut streams, mut waiting) = (Vec::new(), 0_u32);
    let begun = host.now;
    loop {
        match host.acquire() {
            Ok(Acquire::Granted(stream)) => streams.push(stream),
            Ok(Acquire::Queued(_)) => waiting += 1,
            Err(error) => {
                assert!(matches!(error, AcquireError::Busy { .. }), "{error}");
                break;
            }
        }
    }
    let requests_per_connection = streams.len() as f64;
    // Rejections are this event as well.
    let queue_timeout_s = since(host.wait_for("AcquireFailed"), begun);
    host.answer(streams);

    let mut host = Host::new(TWO_CONNECTIONS);
    let streams = host.grow();
    let threshold = (streams.len() - 1) as f64;
    host.establish();
    let ready = host.now;
    host.answer(streams);
    let trashed = host.wait_for("ConnectionTrashed");
    let mut idle = Host { mux: host.mux.clone(), events: Vec::new(), establish: Vec::new(), ..host };
    host.wait(REST);
    let (created, streams) = (host.count("ConnectionCreated"), host.grow());
    assert_eq!(
        (host.count("ConnectionCreated"), streams.len() - 1),
        (created, 800),
        "it is resurrected at the threshold"
    );
    let resurrected_s = since(host.now, trashed);
    host.answer(streams);
    let closed = idle.wait_for("ConnectionClosed");
    assert!(matches!(idle.events.last(), Some((_, MuxEvent::ConnectionClosed { reason: MuxClosed::Idle, .. }))));

    let mut host = Host::new(MuxOptions::DEFAULT);
    let rested = host.now;
    host.answers_heartbeats = false;
    let started = host.wait_for("HeartbeatStarted");
    let failed = host.wait_for("HeartbeatFailed");
    Numbers {
        requests_per_connection,
        queue: f64::from(waiting),
        queue_timeout_s,
        threshold,
        trashed_s: since(trashed, ready),
        resurrected_s,
        closed_s: since(closed, trashed),
        heartbeat_s: since(started, rested),
        heartbeat_timeout_s: since(failed, started),
    }
}
