//! Virtual time, three servers, and the network between servers and clients.
//!
//! A server answers after a round trip. It completes handshakes one after the other, and each takes
//! [`HANDSHAKE`]; operations do not take any of that time. A server that went down resets its
//! connections and refuses new ones. Its successor is elected [`OUTAGE`] later, and its streaming
//! hello replies report that.

use super::client::Client;
use crate::measure::Waits;
use alloc::collections::BinaryHeap;
use core::cmp::{Ordering, Reverse};
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::monitor::MonitorConnId;
use poolhouse_core::pool::ConnId;

pub(super) const MEMBERS: usize = 3;
/// Number of tasks of each client.
pub(super) const TASKS: usize = 20;
pub(super) const ROUND_TRIP: Duration = Duration::from_micros(500);
pub(super) const OPERATION: Duration = Duration::from_millis(2);
/// Mean time between two operations of a task.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
pub(super) const HANDSHAKE: Duration = Duration::from_micros(100);
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time from the failure of the primary to the election.
pub(super) const OUTAGE: Duration = Duration::from_secs(3);
/// Resolution of the counts of opened connections.
pub(super) const BIN: Duration = Duration::from_millis(100);

/// Time of the failure of the primary: all clients are connected long before.
const DEATH: Duration = Duration::from_secs(4);
/// Duration of the measurement after the failure.
const WATCHED: Duration = Duration::from_secs(26);
/// Operations that are requested up to this long after the election count as affected by the
/// fail-over.
const SUFFERING: Duration = Duration::from_secs(4);
/// The indices of the old and the new primary.
const OLD: usize = 0;
const NEW: usize = 1;

/// An event of a client. Members are identified by index.
#[derive(Clone, Copy, Debug)]
pub(super) enum News {
    /// The client is created.
    Begin,
    /// A deadline of its machines has been reached.
    Clock,
    Dialed(usize, MonitorConnId),
    /// A hello was answered; the number is that of the hello.
    Reply(usize, MonitorConnId, u64),
    LineFailed(usize, MonitorConnId),
    Established(usize, ConnId),
    /// A connection was not established. The flag is set for a timeout.
    NotEstablished(usize, ConnId, bool),
    /// The operation of a task ends.
    Done(usize),
    /// A task requests its next operation.
    Wants(usize),
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Client(u32, News),
    Death,
    Election,
}

/// An event and its time. Events of the same time are ordered by when they were planned.
struct Planned {
    at: u64,
    order: u64,
    event: Event,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// A server.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) is_up: bool,
    pub(super) is_primary: bool,
    /// The counter of its topology version.
    pub(super) counter: i64,
    /// The election term that it has last won or been notified of.
    pub(super) term: u8,
    /// The time until which it is busy with handshakes.
    busy_until: u64,
    /// Outstanding awaitable hellos: client, monitor connection, number of the hello.
    watchers: Vec<(u32, MonitorConnId, u64)>,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// Connections that the new primary had to establish since the failure of the old one, by
    /// [`BIN`].
    pub(super) opened: Vec<u64>,
    /// Number of connections that were not established.
    pub(super) failed: u64,
    /// Time from the election to the end of the last operation that was requested before it.
    pub(super) served_at: Duration,
    /// Number of operations that were requested before the election and had no connection at the
    /// end.
    pub(super) unserved: usize,
    /// Latencies of operations requested during the fail-over.
    pub(super) waits: Waits,
}

/// The simulated network and servers.
pub(super) struct Net {
    pub(super) now: u64,
    planned: BinaryHeap<Reverse<Planned>>,
    order: u64,
    random: u64,
    pub(super) members: [Member; MEMBERS],
    outcome: Outcome,
    pub(super) max_connecting: u32,
}

/// Clients and the network.
pub(super) struct Simulation {
    net: Net,
    clients: Vec<Option<Box<Client>>>,
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("short times")
}

impl Simulation {
    pub(super) fn new(clients: usize, max_connecting: u32) -> Self {
        let member = |place| Member {
            is_up: true,
            is_primary: place == OLD,
            counter: 1,
            term: 1,
            busy_until: 0,
            watchers: Vec::new(),
        };
        let bins = usize::try_from(WATCHED.as_nanos() / BIN.as_nanos()).expect("not many");
        let outcome =
            Outcome { opened: vec![0; bins], failed: 0, served_at: Duration::ZERO, unserved: 0, waits: Waits::new() };
        let mut net = Net {
            now: 0,
            planned: BinaryHeap::new(),
            order: 0,
            random: 0x9e37_79b9_7f4a_7c15,
            members: core::array::from_fn(member),
            outcome,
            max_connecting,
        };
        for place in 0..clients {
            // All clients start within a second.
            let at = ns(Duration::from_secs(1)) * place as u64 / clients as u64;
            net.plan(at, Event::Client(u32::try_from(place).expect("not many"), News::Begin));
        }
        net.plan(ns(DEATH), Event::Death);
        net.plan(ns(DEATH + OUTAGE), Event::Election);
        Self { net, clients: (0..clients).map(|_| None).collect() }
    }

    /// Runs until the end of the measurement.
    pub(super) fn run(mut self) -> Outcome {
        let end = ns(DEATH + WATCHED);
        while let Some(Reverse(Planned { at, event, .. })) = self.net.planned.pop() {
            if at >= end {
                break;
            }
            self.net.now = at;
            match event {
                Event::Client(place, News::Begin) => {
                    self.clients[place as usize] = Some(Box::new(Client::new(place, &mut self.net)));
                }
                Event::Client(place, news) => {
                    let client = self.clients[place as usize].as_mut().expect("the client has begun");
                    client.hear(news, &mut self.net);
                }
                Event::Death => self.die(),
                Event::Election => self.net.elect(),
            }
        }
        let waiting = self.clients.iter().flatten().flat_map(|client| client.waiting());
        self.net.outcome.unserved = waiting.filter(|at| *at < ns(DEATH + OUTAGE)).count();
        self.net.outcome
    }

    fn die(&mut self) {
        let net = &mut self.net;
        let member = &mut net.members[OLD];
        (member.is_up, member.is_primary) = (false, false);
        member.watchers.clear();
        for client in self.clients.iter().flatten() {
            for conn in client.conns_to(OLD) {
                net.after_a_leg(client.place(), News::LineFailed(OLD, conn));
            }
        }
    }
}

impl Net {
    pub(super) fn instant(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    fn plan(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.planned.push(Reverse(Planned { at, order: self.order, event }));
    }

    /// Plans an event of a client at a time.
    pub(super) fn at(&mut self, at: u64, client: u32, news: News) {
        self.plan(at.max(self.now), Event::Client(client, news));
    }

    pub(super) fn after(&mut self, time: Duration, client: u32, news: News) {
        self.at(self.now + ns(time), client, news);
    }

    /// Plans an event after half a round trip on average, between 50 % and 150 % of it.
    fn after_a_leg(&mut self, client: u32, news: News) {
        let leg = ns(ROUND_TRIP) / 2;
        let spread = self.random() % leg;
        self.at(self.now + leg / 2 + spread, client, news);
    }

    pub(super) fn after_a_round_trip(&mut self, client: u32, news: News) {
        self.after(ROUND_TRIP, client, news);
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Draws the time until a task requests its next operation.
    pub(super) fn pause(&mut self) -> Duration {
        let share = ((self.random() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
        PAUSE.mul_f64(-share.ln())
    }

    /// Registers an awaitable hello of a client, which is answered after `at_most` at the latest.
    /// Of the timed answer and the one after an election, the client ignores the later one.
    pub(super) fn watch(&mut self, member: usize, client: u32, conn: MonitorConnId, question: u64, at_most: Duration) {
        self.members[member].watchers.push((client, conn, question));
        self.after(at_most, client, News::Reply(member, conn, question));
    }

    fn elect(&mut self) {
        for place in [NEW, 2] {
            let member = &mut self.members[place];
            member.is_primary = place == NEW;
            member.counter += 1;
            member.term += 1;
            for (client, conn, question) in core::mem::take(&mut member.watchers) {
                self.after_a_leg(client, News::Reply(place, conn, question));
            }
        }
    }

    /// Starts establishing a connection of a client.
    pub(super) fn establish(&mut self, member: usize, client: u32, conn: ConnId) {
        if !self.members[member].is_up {
            self.after_a_round_trip(client, News::NotEstablished(member, conn, false));
            return;
        }
        let leg = ns(ROUND_TRIP) / 2;
        let arrival = self.now + leg;
        if let Some(bin) = self.bin_of(arrival).filter(|_| member == NEW) {
            self.outcome.opened[bin] += 1;
        }
        let served = &mut self.members[member];
        served.busy_until = served.busy_until.max(arrival) + ns(HANDSHAKE);
        let there = served.busy_until + leg;
        let limit = self.now + ns(CONNECT_TIMEOUT);
        if there > limit {
            self.at(limit, client, News::NotEstablished(member, conn, true));
        } else {
            self.at(there, client, News::Established(member, conn));
        }
    }

    fn bin_of(&self, at: u64) -> Option<usize> {
        let bin = usize::try_from(at.checked_sub(ns(DEATH))? / ns(BIN)).ok()?;
        (bin < self.outcome.opened.len()).then_some(bin)
    }

    pub(super) fn note_failure(&mut self) {
        self.outcome.failed += 1;
    }

    /// Records the end of an operation that was requested at `wanted_at`.
    pub(super) fn note_done(&mut self, wanted_at: u64) {
        let election = ns(DEATH + OUTAGE);
        if (ns(DEATH)..election + ns(SUFFERING)).contains(&wanted_at) {
            self.outcome.waits.add(Duration::from_nanos(self.now - wanted_at));
        }
        if wanted_at < election && self.now > election {
            self.outcome.served_at = Duration::from_nanos(self.now - election);
        }
    }
}
