//! What happens to the servers.

use super::Deployment;
use super::client::{Client, Seen, observe, sockets};
use crate::process::RealServer;
use crate::sockets::Sockets;
use core::time::Duration;
use std::time::Instant;

/// How long killed servers are away: longer than an election.
const AWAY: Duration = Duration::from_secs(10);
const STOPPED: Duration = Duration::from_secs(20);
/// How long a client may take to connect to a server that has returned.
const RETURN_LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
pub(super) enum Incident {
    Killed,
    Retired,
    Stopped,
    Restarted,
    AllKilled,
    Rolling,
}

pub(super) const INCIDENTS: [(&str, Incident); 6] = [
    ("one is killed, for 10 s", Incident::Killed),
    ("one ends its work in order", Incident::Retired),
    ("one is stopped for 20 s", Incident::Stopped),
    ("one is restarted", Incident::Restarted),
    ("all are killed at once, and restarted one by one", Incident::AllKilled),
    ("all are restarted, one after another", Incident::Rolling),
];

/// The time until there was another primary, if there are primaries, and what was seen of each client.
type Observed = (Option<f64>, Vec<Seen>);

/// How a server works again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Return {
    /// Its process, which has ended or is about to, is started again.
    Restart,
    /// Its stopped process continues.
    Continue,
    /// It has never stopped.
    Stays,
}

impl Incident {
    /// Lets the incident happen, and waits until all servers run again.
    pub(super) fn happen(self, deployment: &mut dyn Deployment, clients: &[Client]) -> Result<Observed, String> {
        let victim = deployment.victim()?;
        let mut absence =
            Absence { clients, before: sockets(clients), begun: Instant::now(), victim, away: Duration::ZERO };
        let server = &mut deployment.servers()[victim];
        match self {
            Self::Killed => {
                server.kill();
                absence.away = AWAY;
                absence.ends(deployment, Return::Restart)
            }
            Self::Retired => {
                if !deployment.retire(victim)? {
                    return absence.ends(deployment, Return::Stays);
                }
                deployment.servers()[victim].signal("TERM")?;
                absence.ends(deployment, Return::Restart)
            }
            Self::Stopped => {
                server.signal("STOP")?;
                absence.away = STOPPED;
                absence.ends(deployment, Return::Continue)
            }
            Self::Restarted => {
                server.signal("TERM")?;
                absence.ends(deployment, Return::Restart)
            }
            Self::AllKilled => {
                deployment.servers().iter_mut().for_each(RealServer::kill);
                let mut seen = Vec::new();
                // Of Cassandra, the first one must be there before another one starts.
                for (place, server) in deployment.servers().iter_mut().enumerate() {
                    server.restart()?;
                    if place == victim {
                        seen = observe(clients, &absence.before, server.address, RETURN_LIMIT);
                    }
                }
                Ok((None, seen))
            }
            Self::Rolling => {
                let mut total = (None, vec![Seen::default(); clients.len()]);
                // The primary is the last one.
                for step in 1..=deployment.servers().len() {
                    absence.victim = (victim + step) % deployment.servers().len();
                    (absence.before, absence.begun) = (sockets(clients), Instant::now());
                    deployment.servers()[absence.victim].signal("TERM")?;
                    let (elected_s, seen) = absence.ends(deployment, Return::Restart)?;
                    if absence.victim == victim {
                        total.0 = elected_s;
                    }
                    for (total, seen) in total.1.iter_mut().zip(seen) {
                        total.return_ms = total.return_ms.max(seen.return_ms);
                        total.opened = seen.opened;
                    }
                    deployment.settle()?;
                }
                Ok(total)
            }
        }
    }
}

/// The absence of a server that has begun.
struct Absence<'c> {
    clients: &'c [Client],
    /// The connections before it.
    before: Vec<Sockets>,
    begun: Instant,
    victim: usize,
    /// How long it lasts at least.
    away: Duration,
}

impl Absence<'_> {
    /// Waits for another primary, if there are primaries, and for the end of the absence.
    fn ends(&self, deployment: &mut dyn Deployment, how: Return) -> Result<Observed, String> {
        let successor = deployment.successor(self.victim)?;
        let elected_s = successor.map(|_| self.begun.elapsed().as_secs_f64());
        let at = |deployment: &mut dyn Deployment, server: usize, limit| {
            observe(self.clients, &self.before, deployment.servers()[server].address, limit)
        };
        let elected = successor.map(|successor| at(deployment, successor, Duration::ZERO));
        std::thread::sleep(self.away.saturating_sub(self.begun.elapsed()));
        let victim = &mut deployment.servers()[self.victim];
        // A connection to a server that has only stopped may be that from before.
        let limit = match how {
            Return::Restart => {
                victim.restart()?;
                RETURN_LIMIT
            }
            Return::Continue => {
                victim.signal("CONT")?;
                Duration::ZERO
            }
            Return::Stays => Duration::ZERO,
        };
        let mut seen = at(deployment, self.victim, limit);
        for (place, seen) in seen.iter_mut().enumerate() {
            if how != Return::Restart {
                seen.return_ms = f64::NAN;
            }
            if let Some(elected) = &elected {
                seen.opened = elected[place].opened;
            }
        }
        Ok((elected_s, seen))
    }
}
