//! Incidents of the servers and of the proxies in front of them.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use poolhouse_tests::choices::Choices;
use poolhouse_tests::mongod::{MongodError, MongodReplicaSet};
use poolhouse_tests::proxy::{Fault, Proxy, Weather};
use poolhouse_tests::rng::Rng;
use std::sync::mpsc::Receiver;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::Instant;

/// Time limit for the set to recover from all incidents.
const SETTLING: Duration = Duration::from_secs(90);

/// The servers, and a flag for each that is set while it answers.
pub(crate) struct Servers {
    set: RwLock<MongodReplicaSet>,
    pub(crate) answers: [AtomicBool; 3],
    pub(crate) proxies: Vec<Proxy>,
}

impl Servers {
    pub(crate) fn new(set: MongodReplicaSet, proxies: Vec<Proxy>) -> Self {
        Self { set: RwLock::new(set), answers: [const { AtomicBool::new(true) }; 3], proxies }
    }

    pub(crate) fn set(&self) -> RwLockReadGuard<'_, MongodReplicaSet> {
        self.set.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `None` while the set is being changed: starting a member takes seconds.
    pub(crate) fn set_at_hand(&self) -> Option<RwLockReadGuard<'_, MongodReplicaSet>> {
        match self.set.try_read() {
            Ok(set) => Some(set),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn change(&self) -> RwLockWriteGuard<'_, MongodReplicaSet> {
        self.set.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_weather(&self, weather: &Weather) {
        for proxy in &self.proxies {
            proxy.set_weather(weather.clone());
        }
    }
}

/// An incident of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Incident {
    StepDown,
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
    pub(crate) const NAMES: [&'static str; 8] = [
        "step_down",
        "kill_primary",
        "kill_secondary",
        "stop_primary",
        "stop_secondary",
        "restart",
        "refuse",
        "strike",
    ];

    const fn index(self) -> usize {
        match self {
            Self::StepDown => 0,
            Self::KillPrimary => 1,
            Self::KillSecondary => 2,
            Self::StopPrimary => 3,
            Self::StopSecondary => 4,
            Self::RestartSecondary => 5,
            Self::Refuse => 6,
            Self::Strike(_) => 7,
        }
    }
}

/// The faults of `Incident::Strike`.
const STRIKES: [Fault; 5] = [Fault::Cut, Fault::Reset, Fault::HalfClose, Fault::Stall, Fault::Garbage];

/// Number of incidents of each kind.
pub(crate) type Incidents = [u64; Incident::NAMES.len()];

/// Causes incidents until `stop` is signalled, then restores normal operation. Returns the number
/// of incidents by kind.
///
/// - `pace`: duration of each weather (set of proxy faults) and of each outage.
pub(crate) fn cause_incidents(
    servers: &Servers,
    seed: u64,
    pace: Duration,
    stop: &Receiver<()>,
) -> Result<Incidents, MongodError> {
    let mut rng = Rng::stream(seed, "chaos");
    let mut incidents = Incidents::default();
    let begun = Instant::now();
    let goes_on =
        |time: Duration| stop.recv_timeout(time).is_err_and(|it| it == std::sync::mpsc::RecvTimeoutError::Timeout);
    // Each kind occurs once before any kind occurs again, so that most kinds also occur in a short
    // run.
    let mut left: Vec<usize> = Vec::new();
    loop {
        let weather = weather(&mut rng);
        servers.set_weather(&weather);
        if left.is_empty() {
            left = (0..Incident::NAMES.len()).collect();
        }
        let incident = match left.swap_remove(rng.index(left.len())) {
            0 => Incident::StepDown,
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
        incidents[incident.index()] += 1;
        let mut more = goes_on(pace);
        let primary = settle(servers)?;
        let secondary = (primary + 1 + rng.index(2)) % 3;
        let (at, outage) = match incident {
            Incident::KillPrimary | Incident::StopPrimary => (primary, true),
            Incident::KillSecondary | Incident::StopSecondary | Incident::RestartSecondary => (secondary, true),
            Incident::StepDown | Incident::Refuse | Incident::Strike(_) => (primary, false),
        };
        if outage {
            servers.answers[at].store(false, Ordering::SeqCst);
        }
        begin(servers, incident, at)?;
        more = more && goes_on(pace);
        end(servers, incident, at)?;
        servers.answers[at].store(true, Ordering::SeqCst);
        if !more {
            servers.set_weather(&Weather::calm());
            settle(servers)?;
            return Ok(incidents);
        }
    }
}

fn begin(servers: &Servers, incident: Incident, at: usize) -> Result<(), MongodError> {
    match incident {
        Incident::StepDown => match servers.set().step_down(3) {
            // The primary refuses while a secondary lags behind, and closes the connections of some
            // callers.
            Ok(_) | Err(MongodError::Command { .. } | MongodError::Io { .. }) => Ok(()),
            Err(error) => Err(error),
        },
        Incident::KillPrimary | Incident::KillSecondary => servers.change().kill9(at),
        Incident::StopPrimary | Incident::StopSecondary => servers.change().stop(at),
        Incident::RestartSecondary => servers.change().restart(at),
        Incident::Refuse => servers.proxies[at].refuse().map_err(refused),
        Incident::Strike(fault) => {
            servers.proxies.iter().for_each(|proxy| proxy.strike(fault));
            Ok(())
        }
    }
}

fn end(servers: &Servers, incident: Incident, at: usize) -> Result<(), MongodError> {
    match incident {
        Incident::KillPrimary | Incident::KillSecondary => servers.change().restart(at),
        Incident::StopPrimary | Incident::StopSecondary => servers.change().cont(at),
        Incident::Refuse => servers.proxies[at].resume().map_err(refused),
        Incident::StepDown | Incident::RestartSecondary | Incident::Strike(_) => Ok(()),
    }
}

fn refused(source: std::io::Error) -> MongodError {
    MongodError::Io { doing: "starting or stopping a proxy".to_owned(), source }
}

/// Waits until all members are available. Returns the primary.
pub(crate) fn settle(servers: &Servers) -> Result<usize, MongodError> {
    servers.set().settle(SETTLING)
}

/// One time in four no faults; else one kind of fault, or all kinds, on a share of the new
/// connections.
fn weather(rng: &mut Rng) -> Weather {
    match rng.below(4) {
        0 => Weather::calm(),
        1 => Weather::of(30, &Fault::ALL),
        _ => {
            let fault = rng.one_of(&Fault::ALL);
            Weather::of(rng.one_of(&[20, 50, 80]), &[fault])
        }
    }
}
