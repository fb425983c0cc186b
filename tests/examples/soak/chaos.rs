//! Incidents of the servers and of the proxies in front of them.

use crate::soak::Failure;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use poolhouse_tests::choices::Choices;
use poolhouse_tests::proxy::{Fault, Proxy, Weather};
use poolhouse_tests::rng::Rng;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::Instant;

/// Three servers.
pub(crate) trait Members: Send + Sync {
    /// The client has few connections, which stay: new weather breaks those that are open, and more of it is bad.
    const HAS_FEW_CONNECTIONS: bool;
    /// Waits until all members are available. Returns one whose loss is the worst: the primary.
    fn settle(&self) -> Result<usize, Failure>;
    /// Ends the work of a member in order, until it [returns](Self::rejoin).
    fn leave(&mut self, member: usize) -> Result<(), Failure>;
    fn rejoin(&mut self, _member: usize) -> Result<(), Failure> {
        Ok(())
    }
    /// Ends its process at once.
    fn kill(&mut self, member: usize) -> Result<(), Failure>;
    /// It sends no bytes until it is continued.
    fn stop(&mut self, member: usize) -> Result<(), Failure>;
    fn cont(&mut self, member: usize) -> Result<(), Failure>;
    /// Shuts it down if it runs, and starts it again.
    fn restart(&mut self, member: usize) -> Result<(), Failure>;
}

/// The servers, and a flag for each that is set while it answers.
pub(crate) struct Servers<M> {
    members: RwLock<M>,
    pub(crate) answers: [AtomicBool; 3],
    pub(crate) proxies: Vec<Proxy>,
}

impl<M: Members> Servers<M> {
    pub(crate) fn new(members: M, proxies: Vec<Proxy>) -> Self {
        Self { members: RwLock::new(members), answers: [const { AtomicBool::new(true) }; 3], proxies }
    }

    pub(crate) fn members(&self) -> RwLockReadGuard<'_, M> {
        self.members.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `None` while a member is being changed, which may take seconds, or does not answer.
    pub(crate) fn at_hand(&self) -> Option<RwLockReadGuard<'_, M>> {
        let members = match self.members.try_read() {
            Ok(members) => members,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        self.answers.iter().all(|answers| answers.load(Ordering::SeqCst)).then_some(members)
    }

    fn change(&self) -> RwLockWriteGuard<'_, M> {
        self.members.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_weather(&self, weather: &Weather) {
        for proxy in &self.proxies {
            proxy.set_weather(weather.clone());
            if M::HAS_FEW_CONNECTIONS && *weather != Weather::calm() {
                proxy.strike(Fault::Cut);
            }
        }
    }
}

/// An incident of one server. The primary is that of [`Members::settle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Incident {
    Leave,
    KillPrimary,
    KillSecondary,
    StopPrimary,
    StopSecondary,
    RestartSecondary,
    /// Its proxy refuses connections for a while.
    Refuse,
    /// All open connections get this fault.
    Strike(Fault),
}

impl Incident {
    pub(crate) const NAMES: [&'static str; 8] =
        ["leave", "kill_primary", "kill_secondary", "stop_primary", "stop_secondary", "restart", "refuse", "strike"];
}

/// The faults of `Incident::Strike`.
const STRIKES: [Fault; 5] = [Fault::Cut, Fault::Reset, Fault::HalfClose, Fault::Stall, Fault::Garbage];

/// Number of incidents of each kind.
pub(crate) type Incidents = [u64; Incident::NAMES.len()];

/// Causes incidents until `stop` is signalled, then restores normal operation. Returns the number
/// of incidents by kind.
///
/// - `pace`: duration of the weather (set of proxy faults) before an incident, and of each outage, which has another.
pub(crate) fn cause_incidents<M: Members>(
    servers: &Servers<M>,
    seed: u64,
    pace: Duration,
    stop: &Receiver<()>,
) -> Result<Incidents, Failure> {
    let mut rng = Rng::stream(seed, "chaos");
    let mut incidents = Incidents::default();
    let begun = Instant::now();
    let goes_on = |time: Duration| stop.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
    // Each kind occurs once before any kind occurs again, so that most kinds also occur in a short
    // run.
    let (mut left, mut faults) = (Vec::new(), Vec::new());
    loop {
        let weather = draw_weather::<M>(&mut rng, &mut faults);
        servers.set_weather(&weather);
        if left.is_empty() {
            left = (0..Incident::NAMES.len()).collect();
        }
        let kind = left.swap_remove(rng.index(left.len()));
        let incident = match kind {
            0 => Incident::Leave,
            1 => Incident::KillPrimary,
            2 => Incident::KillSecondary,
            3 => Incident::StopPrimary,
            4 => Incident::StopSecondary,
            5 => Incident::RestartSecondary,
            6 => Incident::Refuse,
            _ => Incident::Strike(rng.one_of(&STRIKES)),
        };
        let names: Vec<_> = weather.faults.iter().map(|fault| fault.name()).collect();
        println!(
            "{:7.1} s  {incident:?}; {} % {}",
            begun.elapsed().as_secs_f64(),
            weather.spoiled_percent,
            names.join(" ")
        );
        incidents[kind] += 1;
        let mut more = goes_on(pace);
        let primary = servers.members().settle()?;
        let secondary = (primary + 1 + rng.index(2)) % 3;
        let is_of_secondary =
            matches!(incident, Incident::KillSecondary | Incident::StopSecondary | Incident::RestartSecondary);
        let at = if is_of_secondary { secondary } else { primary };
        let is_of_proxies = matches!(incident, Incident::Refuse | Incident::Strike(_));
        servers.answers[at].store(is_of_proxies, Ordering::SeqCst);
        servers.set_weather(&draw_weather::<M>(&mut rng, &mut faults));
        begin(servers, incident, at)?;
        more = more && goes_on(pace);
        end(servers, incident, at)?;
        servers.answers[at].store(true, Ordering::SeqCst);
        if !more {
            servers.set_weather(&Weather::calm());
            servers.members().settle()?;
            return Ok(incidents);
        }
    }
}

fn begin(servers: &Servers<impl Members>, incident: Incident, at: usize) -> Result<(), Failure> {
    match incident {
        Incident::Leave => servers.change().leave(at),
        Incident::KillPrimary | Incident::KillSecondary => servers.change().kill(at),
        Incident::StopPrimary | Incident::StopSecondary => servers.change().stop(at),
        Incident::RestartSecondary => servers.change().restart(at),
        Incident::Refuse => Ok(servers.proxies[at].refuse()?),
        Incident::Strike(fault) => {
            servers.proxies.iter().for_each(|proxy| proxy.strike(fault));
            Ok(())
        }
    }
}

fn end(servers: &Servers<impl Members>, incident: Incident, at: usize) -> Result<(), Failure> {
    match incident {
        Incident::Leave => servers.change().rejoin(at),
        Incident::KillPrimary | Incident::KillSecondary => servers.change().restart(at),
        Incident::StopPrimary | Incident::StopSecondary => servers.change().cont(at),
        Incident::Refuse => Ok(servers.proxies[at].resume()?),
        Incident::RestartSecondary | Incident::Strike(_) => Ok(()),
    }
}

/// One time in four no faults, one time all kinds; else one kind. They are on a share of the new connections.
///
/// - `left`: the kinds that occur before any kind occurs again.
fn draw_weather<M: Members>(rng: &mut Rng, left: &mut Vec<Fault>) -> Weather {
    let percents = if M::HAS_FEW_CONNECTIONS { [80; 3] } else { [20, 50, 80] };
    match rng.below(4) {
        0 => Weather::calm(),
        1 => Weather::of(30, &Fault::ALL),
        _ => {
            if left.is_empty() {
                left.extend(Fault::ALL);
            }
            let fault = left.swap_remove(rng.index(left.len()));
            Weather::of(rng.one_of(&percents), &[fault])
        }
    }
}
