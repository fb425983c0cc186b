//! A proxy on loopback that injects faults into the connections through it, without privileges or
//! kernel support.
//!
//! Each connection is assigned a fault, or none, by the weather at the time at which it is
//! accepted; faults can also be injected into open connections. Faults apply to the stream of
//! bytes: the proxy does not parse messages, so that a cut may occur at any byte.

use alloc::sync::Arc;
use core::net::{Ipv4Addr, SocketAddr};
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use event_listener::Event;

use crate::choices::Choices;
use crate::fake::bind;
use crate::rng::Rng;

mod carry;
mod thread;

#[cfg(test)]
mod tests;

/// A fault of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Delays bytes in both directions, for the connection's lifetime.
    Delay,
    /// Forwards one byte at a time in both directions, for the connection's lifetime.
    Trickle,
    /// After some bytes: closes both sides, with FIN.
    Cut,
    /// After some bytes: resets the client's side (`SO_LINGER` 0).
    Reset,
    /// After some bytes: shuts down the sending side to the client, and drops all further bytes of
    /// the client.
    HalfClose,
    /// After some bytes: forwards no further bytes in either direction, without closing.
    Stall,
    /// Accepts the connection, and never answers.
    Silence,
    /// After some bytes: sends random bytes in place of the server's, and then no more.
    Garbage,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 8] = [
        Self::Delay,
        Self::Trickle,
        Self::Cut,
        Self::Reset,
        Self::HalfClose,
        Self::Stall,
        Self::Silence,
        Self::Garbage,
    ];

    /// Returns its name, in words joined by underscores.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Delay => "delay",
            Self::Trickle => "trickle",
            Self::Cut => "cut",
            Self::Reset => "reset",
            Self::HalfClose => "half_close",
            Self::Stall => "stall",
            Self::Silence => "silence",
            Self::Garbage => "garbage",
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// The distribution of faults of new connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// Percentage of connections with a fault.
    pub spoiled_percent: u32,
    /// The possible faults, with equal probability.
    pub faults: Vec<Fault>,
    /// Number of bytes before the fault, counted in one of the two directions; `None`: random: in
    /// the handshake, soon after it, or later.
    pub after_bytes: Option<u64>,
}

impl Weather {
    /// No faults.
    #[must_use]
    pub fn calm() -> Self {
        Self::default()
    }

    /// A fault, one of these, on this percentage of connections.
    #[must_use]
    pub fn of(spoiled_percent: u32, faults: &[Fault]) -> Self {
        Self { spoiled_percent, faults: faults.to_vec(), after_bytes: None }
    }
}

/// The counts of a proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProxyCounts {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections whose server could not be reached; they are reset.
    pub unreached: u64,
    /// Injected faults, in the order of [`Fault::ALL`]; includes those of strikes.
    pub faults: [u64; Fault::ALL.len()],
}

/// The fault assigned to a connection, and its parameters.
#[derive(Clone, Copy, Debug)]
struct Fate {
    fault: Option<Fault>,
    /// Number of bytes before the fault; `None`: no fault in this direction.
    requests: Option<u64>,
    replies: Option<u64>,
    delay: Duration,
    /// Seed of the random bytes of `Garbage`.
    seed: u64,
    /// Number of calls of [`Proxy::pardon`] before the connection was accepted.
    pardons: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestedState {
    Listening,
    Refusing,
    Stopped,
}

#[derive(Debug)]
struct State {
    upstream: SocketAddr,
    wanted: RequestedState,
    /// The state of the listening socket; the error if it could not be reached.
    reached: Result<Option<RequestedState>, (io::ErrorKind, String)>,
    weather: Weather,
    rng: Rng,
    counts: ProxyCounts,
    /// The last strike, and the number of strikes.
    strike: (u64, Fault),
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Notified after changes of the state.
    changed: Event,
    /// Number of open sockets of connections, of either side.
    sockets: AtomicUsize,
    /// Number of calls of [`Proxy::pardon`].
    pardons: AtomicUsize,
}

/// A running proxy. Dropping it closes its connections and ends its thread.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy on a free port of 127.0.0.1; returns when it listens. The initial weather is
    /// calm.
    ///
    /// - `seed`: seed of its random choices.
    ///
    /// # Errors
    /// `InvalidInput` for an address that is not loopback; otherwise those of the sockets.
    pub fn start(upstream: SocketAddr, seed: u64) -> io::Result<Self> {
        if !upstream.ip().is_loopback() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the proxy forwards to loopback addresses only"));
        }
        let (socket, address) = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let state = State {
            upstream,
            wanted: RequestedState::Listening,
            reached: Ok(None),
            weather: Weather::calm(),
            rng: Rng::stream(seed, "proxy"),
            counts: ProxyCounts::default(),
            strike: (0, Fault::Cut),
        };
        let shared = Shared {
            state: Mutex::new(state),
            changed: Event::new(),
            sockets: AtomicUsize::new(0),
            pardons: AtomicUsize::new(0),
        };
        let shared = Arc::new(shared);
        let thread = std::thread::Builder::new().name("poolhouse-proxy".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || thread::run(shared, socket, address)
        })?;
        let proxy = Self { shared, address, thread: Some(thread) };
        proxy.turn_to(RequestedState::Listening)?;
        Ok(proxy)
    }

    /// Returns its address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the distribution of faults of new connections.
    pub fn set_weather(&self, weather: Weather) {
        self.shared.lock().weather = weather;
    }

    /// Cancels the assigned faults of open connections that have not occurred yet; slow connections
    /// become normal.
    pub fn pardon(&self) {
        self.shared.pardons.fetch_add(1, Ordering::SeqCst);
    }

    /// Injects a fault into all open connections, now; until then they are served normally.
    ///
    /// [`Fault::Delay`] and [`Fault::Trickle`] apply only to new connections: here they have no
    /// effect.
    pub fn strike(&self, fault: Fault) {
        {
            let mut state = self.shared.lock();
            state.strike = (state.strike.0 + 1, fault);
        }
        self.shared.changed.notify(usize::MAX);
    }

    /// Refuses new connections from now on; the port stays reserved.
    pub fn refuse(&self) -> io::Result<()> {
        self.turn_to(RequestedState::Refusing)
    }

    /// Accepts new connections again.
    pub fn resume(&self) -> io::Result<()> {
        self.turn_to(RequestedState::Listening)
    }

    /// Returns the counts.
    #[must_use]
    pub fn counts(&self) -> ProxyCounts {
        self.shared.lock().counts
    }

    /// Returns the number of open sockets of connections: one for each client, and one for each
    /// connection to the server.
    #[must_use]
    pub fn sockets(&self) -> usize {
        self.shared.sockets.load(Ordering::SeqCst)
    }

    /// Returns when the thread has changed the state.
    fn turn_to(&self, wanted: RequestedState) -> io::Result<()> {
        {
            let mut state = self.shared.lock();
            state.wanted = wanted;
            state.reached = Ok(None);
        }
        self.shared.changed.notify(usize::MAX);
        loop {
            let listener = self.shared.changed.listen();
            match &self.shared.lock().reached {
                Ok(Some(reached)) if *reached == wanted => return Ok(()),
                Ok(_) => {}
                Err((kind, text)) => return Err(io::Error::new(*kind, text.clone())),
            }
            async_io::block_on(listener);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.lock().wanted = RequestedState::Stopped;
        self.shared.changed.notify(usize::MAX);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been printed.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, fault: Fault) {
        self.lock().counts.faults[fault.index()] += 1;
    }
}

impl State {
    /// Assigns a new connection its fault.
    ///
    /// - `pardons`: number of calls of [`Proxy::pardon`] so far.
    fn assign_fault(&mut self, pardons: usize) -> Fate {
        let rng = &mut self.rng;
        let mut fate = Fate { fault: None, requests: None, replies: None, delay: Duration::ZERO, seed: 0, pardons };
        if self.weather.faults.is_empty() || rng.below(100) >= self.weather.spoiled_percent {
            return fate;
        }
        let at = rng.index(self.weather.faults.len());
        fate.fault = Some(self.weather.faults[at]);
        let bound = rng.one_of(&[700, 20_000, 300_000]);
        let after = self.weather.after_bytes.unwrap_or_else(|| u64::from(rng.below(bound)));
        // Garbage replaces replies.
        if rng.one_in(2) && fate.fault != Some(Fault::Garbage) {
            fate.requests = Some(after);
        } else {
            fate.replies = Some(after);
        }
        match fate.fault {
            Some(Fault::Silence) => fate.requests = Some(0),
            Some(Fault::Delay | Fault::Trickle) => (fate.requests, fate.replies) = (None, None),
            Some(Fault::Cut | Fault::Reset | Fault::HalfClose | Fault::Stall | Fault::Garbage) | None => {}
        }
        fate.delay = Duration::from_millis(u64::from(1 + rng.below(40)));
        fate.seed = rng.next_u64();
        fate
    }
}
