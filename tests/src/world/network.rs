//! What lies between the client and the members: connections, messages under way, and when they arrive.

use super::truth::Snapshot;
use alloc::collections::{BTreeMap, VecDeque};
use poolhouse_core::monitor::{HelloKind, LineId};
use poolhouse_core::pool::ConnId;
use poolhouse_core::{ServerId, TopologyVersion};

/// What happens at an instant.
#[derive(Debug)]
pub(super) enum Event {
    Dialed(u64),
    Refused(u64),
    /// A hello arrives at its member.
    AtMember(u64, HelloKind),
    /// A reply arrives at the client.
    AtClient(u64, Box<Snapshot>),
    ResetAtClient(u64),
    /// What has arrived is read.
    Deliver(u64),
    /// A stream has been silent for long enough.
    StreamDue(u64, u64),
    Sync(usize),
    Elect,
    Fault,
    Op,
    OpEnds(u64),
    /// A connection for the pool: what became of it.
    Established(ServerId, ConnId, usize),
    HelloOfEstablished(ServerId, ConnId, Box<Snapshot>),
    EstablishTimedOut(ServerId, ConnId),
}

/// A stream of replies to an awaitable hello.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) known: TopologyVersion,
    pub(super) await_ns: u64,
    pub(super) serial: u64,
}

/// A monitoring connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) server: ServerId,
    pub(super) line: LineId,
    pub(super) member: usize,
    /// The process that it was connected to.
    pub(super) process: u32,
    pub(super) up: bool,
    /// Nothing arrives any more, either way.
    pub(super) lost: bool,
    /// The client reads.
    pub(super) reading: bool,
    pub(super) inbox: VecDeque<Snapshot>,
    pub(super) stream: Option<Stream>,
    /// Messages of one direction do not overtake each other.
    pub(super) last_out: u64,
    pub(super) last_in: u64,
}

#[derive(Debug, Default)]
pub(super) struct Network {
    pub(super) links: BTreeMap<u64, Link>,
    by_line: BTreeMap<(u32, u64), u64>,
    next: u64,
    events: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    /// Lines that were given up.
    pub(super) given_up: VecDeque<(ServerId, LineId)>,
}

impl Network {
    pub(super) fn at(&mut self, time: u64, event: Event) {
        self.sequence += 1;
        self.events.insert((time, self.sequence), event);
    }

    pub(super) fn next_time(&self) -> Option<u64> {
        self.events.first_key_value().map(|(key, _)| key.0)
    }

    pub(super) fn pop(&mut self, until: u64) -> Option<Event> {
        let entry = self.events.first_entry()?;
        (entry.key().0 <= until).then(|| entry.remove())
    }

    pub(super) fn connect(&mut self, server: ServerId, line: LineId, member: usize) -> u64 {
        self.next += 1;
        let link = Link {
            server,
            line,
            member,
            process: u32::MAX,
            up: false,
            lost: false,
            reading: false,
            inbox: VecDeque::new(),
            stream: None,
            last_out: 0,
            last_in: 0,
        };
        self.links.insert(self.next, link);
        let before = self.by_line.insert((server.number(), line.number()), self.next);
        assert!(before.is_none(), "a line is dialed once");
        self.next
    }

    /// The connection of a line.
    pub(super) fn find(&self, server: ServerId, line: LineId) -> u64 {
        *self.by_line.get(&(server.number(), line.number())).expect("the line was dialed and not given up")
    }

    pub(super) fn drop_link(&mut self, link: u64) {
        if let Some(gone) = self.links.remove(&link) {
            self.by_line.remove(&(gone.server.number(), gone.line.number()));
            self.given_up.push_back((gone.server, gone.line));
            if self.given_up.len() > 8 {
                self.given_up.pop_front();
            }
        }
    }

    pub(super) fn hang_up(&mut self, server: ServerId, line: LineId) {
        if let Some(&link) = self.by_line.get(&(server.number(), line.number())) {
            self.drop_link(link);
        }
    }

    pub(super) fn forget(&mut self, server: ServerId) {
        let gone: Vec<u64> = self.links.iter().filter(|(_, link)| link.server == server).map(|(id, _)| *id).collect();
        for link in gone {
            self.drop_link(link);
        }
    }

    pub(super) fn of_member(&self, member: usize) -> Vec<u64> {
        self.links.iter().filter(|(_, link)| link.member == member && link.up).map(|(id, _)| *id).collect()
    }
}
