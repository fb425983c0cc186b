//! Virtual time, three servers, and the network between them and the clients.
//!
//! A server answers after a round trip. It completes handshakes one after the other, each of which costs it [`HANDSHAKE`]; operations cost it nothing of that. One that has died
//! resets its connections and refuses new ones. Its successor is elected [`OUTAGE`] later, and tells whoever streams from it.

use super::client::Client;
use crate::measure::Waits;
use alloc::collections::BinaryHeap;
use core::cmp::{Ordering, Reverse};
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::monitor::LineId;
use poolhouse_core::pool::ConnId;

pub(super) const MEMBERS: usize = 3;
/// Tasks of each client.
pub(super) const TASKS: usize = 20;
pub(super) const ROUND_TRIP: Duration = Duration::from_micros(500);
pub(super) const OPERATION: Duration = Duration::from_millis(2);
/// Between two operations of a task, in the mean.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
pub(super) const HANDSHAKE: Duration = Duration::from_micros(100);
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// From the death of the primary to the election.
pub(super) const OUTAGE: Duration = Duration::from_secs(3);
/// How finely opened connections are counted.
pub(super) const BIN: Duration = Duration::from_millis(100);

/// When the primary dies: all clients are long there.
const DEATH: Duration = Duration::from_secs(4);
/// How long it is watched from then on.
const WATCHED: Duration = Duration::from_secs(26);
/// Operations that are begun so long after the election count among those that suffered.
const SUFFERING: Duration = Duration::from_secs(4);
/// The old primary, and the new one.
const OLD: usize = 0;
const NEW: usize = 1;

/// What happens to a client. Members are numbered.
#[derive(Clone, Copy, Debug)]
pub(super) enum News {
    /// It is made.
    Begin,
    /// Something of its machines is due.
    Clock,
    Dialed(usize, LineId),
    /// A hello is answered; the number is the question's.
    Reply(usize, LineId, u64),
    LineFailed(usize, LineId),
    Established(usize, ConnId),
    /// Whether it took too long.
    NotEstablished(usize, ConnId, bool),
    /// The operation of a task ends.
    Done(usize),
    /// A task wants its next operation.
    Wants(usize),
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Client(u32, News),
    Death,
    Election,
}

/// What happens when; what was planned first happens first.
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
    /// Its changes so far.
    pub(super) counter: i64,
    /// Elections that it won, or heard of.
    pub(super) term: u8,
    /// It has handshakes to do until then.
    busy_until: u64,
    /// Who waits for news of it: client, line, question.
    watchers: Vec<(u32, LineId, u64)>,
}

/// What was seen.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// Connections that the new primary was asked for since the old one died, by [`BIN`].
    pub(super) opened: Vec<u64>,
    /// Connections that were not established.
    pub(super) failed: u64,
    /// The last operation that was wanted before the election ended so long after it.
    pub(super) served_at: Duration,
    /// Operations that were wanted before the election and had no connection at the end.
    pub(super) unserved: usize,
    /// How long operations took in the time of the fail-over.
    pub(super) waits: Waits,
}

/// Everything but the clients.
pub(super) struct Net {
    pub(super) now: u64,
    planned: BinaryHeap<Reverse<Planned>>,
    order: u64,
    random: u64,
    pub(super) members: [Member; MEMBERS],
    outcome: Outcome,
    pub(super) max_connecting: u32,
}

/// Clients and what is between them.
pub(super) struct World {
    net: Net,
    clients: Vec<Option<Box<Client>>>,
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("short times")
}

impl World {
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
            // All within a second.
            let at = ns(Duration::from_secs(1)) * place as u64 / clients as u64;
            net.plan(at, Event::Client(u32::try_from(place).expect("not many"), News::Begin));
        }
        net.plan(ns(DEATH), Event::Death);
        net.plan(ns(DEATH + OUTAGE), Event::Election);
        Self { net, clients: (0..clients).map(|_| None).collect() }
    }

    /// Until the end.
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
                    let client = self.clients[place as usize].as_mut().expect("it has begun");
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
            for line in client.lines_to(OLD) {
                net.after_a_leg(client.place(), News::LineFailed(OLD, line));
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

    /// At an instant.
    pub(super) fn at(&mut self, at: u64, client: u32, news: News) {
        self.plan(at.max(self.now), Event::Client(client, news));
    }

    pub(super) fn after(&mut self, time: Duration, client: u32, news: News) {
        self.at(self.now + ns(time), client, news);
    }

    /// After half a round trip, a little more or less.
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

    /// When a task wants its next operation.
    pub(super) fn pause(&mut self) -> Duration {
        let share = ((self.random() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
        PAUSE.mul_f64(-share.ln())
    }

    /// A client waits for news of a member: at most for so long. Whichever answer comes second, nobody waits for it any more.
    pub(super) fn watch(&mut self, member: usize, client: u32, line: LineId, question: u64, at_most: Duration) {
        self.members[member].watchers.push((client, line, question));
        self.after(at_most, client, News::Reply(member, line, question));
    }

    fn elect(&mut self) {
        for place in [NEW, 2] {
            let member = &mut self.members[place];
            member.is_primary = place == NEW;
            member.counter += 1;
            member.term += 1;
            for (client, line, question) in core::mem::take(&mut member.watchers) {
                self.after_a_leg(client, News::Reply(place, line, question));
            }
        }
    }

    /// A client begins to establish a connection.
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

    /// An operation has ended that somebody had wanted since then.
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
