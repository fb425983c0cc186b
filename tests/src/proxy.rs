//! A proxy on loopback that spoils the connections that go through it, without rights and without help of the kernel's.
//!
//! Each connection is dealt a fault, or none, by the weather of the moment it is accepted in; what is open can be struck as well. What is spoiled
//! is of the stream of bytes: the proxy knows nothing of messages, so that a cut falls anywhere.

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

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// What is carried comes late, both ways, for as long as the connection lives.
    Delay,
    /// One byte at a time, both ways, for as long as the connection lives.
    Trickle,
    /// After some bytes: both sides are closed, with FIN.
    Cut,
    /// After some bytes: the client's side is reset (`SO_LINGER` 0).
    Reset,
    /// After some bytes: the client is told that nothing more comes, and goes unheard from then on.
    HalfClose,
    /// After some bytes: nothing more comes and nothing more arrives, and nobody is told.
    Stall,
    /// Accepted, and no answer ever.
    Silence,
    /// After some bytes: others come in the place of those of the server, and then no more.
    Garbage,
}

impl Fault {
    /// All there are.
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

    /// Its name, in words joined by underscores.
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

/// What new connections have to reckon with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// How many of a hundred are spoiled.
    pub spoiled_percent: u32,
    /// By one of these, all alike.
    pub faults: Vec<Fault>,
    /// After how many bytes, counted in one of the two directions; `None`: somewhere in the handshake, soon after it, or later.
    pub after_bytes: Option<u64>,
}

impl Weather {
    /// Nothing happens.
    #[must_use]
    pub fn calm() -> Self {
        Self::default()
    }

    /// So many of a hundred are spoiled, by one of these faults.
    #[must_use]
    pub fn of(spoiled_percent: u32, faults: &[Fault]) -> Self {
        Self { spoiled_percent, faults: faults.to_vec(), after_bytes: None }
    }
}

/// What a proxy has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProxyCounts {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections whose server could not be reached; they are reset.
    pub unreached: u64,
    /// Faults that came true, as [`Fault::ALL`] lists them; those of a strike included.
    pub faults: [u64; Fault::ALL.len()],
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug)]
struct Fate {
    fault: Option<Fault>,
    /// After how many bytes; `None`: never.
    requests: Option<u64>,
    replies: Option<u64>,
    delay: Duration,
    /// What garbage is made of.
    seed: u64,
    /// How many pardons there were before.
    pardons: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Listening,
    Refusing,
    Stopped,
}

#[derive(Debug)]
struct State {
    upstream: SocketAddr,
    wanted: Wanted,
    /// What the listening socket is; the error when it could not be made so.
    reached: Result<Option<Wanted>, (io::ErrorKind, String)>,
    weather: Weather,
    rng: Rng,
    counts: ProxyCounts,
    /// The last strike, and how many there were.
    strike: (u64, Fault),
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Something of the state has changed.
    changed: Event,
    /// Sockets of connections, of either side.
    sockets: AtomicUsize,
    /// How often those were pardoned that were open.
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
    /// Starts a proxy on a free port of 127.0.0.1; returns when it listens. The weather is calm.
    ///
    /// - `seed`: of what it chooses.
    ///
    /// # Errors
    /// `InvalidInput` for an address that is not loopback; otherwise those of the sockets.
    pub fn start(upstream: SocketAddr, seed: u64) -> io::Result<Self> {
        if !upstream.ip().is_loopback() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the proxy leads to loopback only"));
        }
        let (socket, address) = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let state = State {
            upstream,
            wanted: Wanted::Listening,
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
        proxy.turn_to(Wanted::Listening)?;
        Ok(proxy)
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what new connections have to reckon with.
    pub fn set_weather(&self, weather: Weather) {
        self.shared.lock().weather = weather;
    }

    /// Connections that are open, and have not met the fault that they were dealt, meet none; slow ones go on as others do.
    pub fn pardon(&self) {
        self.shared.pardons.fetch_add(1, Ordering::SeqCst);
    }

    /// Brings a fault upon all connections that are open, now; each goes on until then.
    ///
    /// [`Fault::Delay`] and [`Fault::Trickle`] are of new connections only: here they do nothing.
    pub fn strike(&self, fault: Fault) {
        {
            let mut state = self.shared.lock();
            state.strike = (state.strike.0 + 1, fault);
        }
        self.shared.changed.notify(usize::MAX);
    }

    /// Refuses new connections from now on; the port stays its own.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn refuse(&self) -> io::Result<()> {
        self.turn_to(Wanted::Refusing)
    }

    /// Takes new connections again.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn resume(&self) -> io::Result<()> {
        self.turn_to(Wanted::Listening)
    }

    /// What it has seen.
    #[must_use]
    pub fn counts(&self) -> ProxyCounts {
        self.shared.lock().counts
    }

    /// How many sockets it has open for its connections: one for each client, and one for each that has reached the server.
    #[must_use]
    pub fn sockets(&self) -> usize {
        self.shared.sockets.load(Ordering::SeqCst)
    }

    /// Returns when the thread has done it.
    fn turn_to(&self, wanted: Wanted) -> io::Result<()> {
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
        self.shared.lock().wanted = Wanted::Stopped;
        self.shared.changed.notify(usize::MAX);
        if let Some(thread) = self.thread.take() {
            // A panic of it has been printed.
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
    /// Deals a new connection its fate.
    ///
    /// - `pardons`: how many there were.
    fn deal(&mut self, pardons: usize) -> Fate {
        let rng = &mut self.rng;
        let mut fate = Fate { fault: None, requests: None, replies: None, delay: Duration::ZERO, seed: 0, pardons };
        if self.weather.faults.is_empty() || rng.below(100) >= self.weather.spoiled_percent {
            return fate;
        }
        let at = rng.index(self.weather.faults.len());
        fate.fault = Some(self.weather.faults[at]);
        let bound = rng.one_of(&[700, 20_000, 300_000]);
        let after = self.weather.after_bytes.unwrap_or_else(|| u64::from(rng.below(bound)));
        // Garbage stands in the place of replies.
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
