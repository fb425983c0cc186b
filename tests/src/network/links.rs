//! The network between the client and the members: connections with their two ends, bytes in
//! transit, and arrival times.

use super::nodes::NodeChange;
use super::truth::Version;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::task::Waker;
use std::io::ErrorKind;

/// A scheduled event.
#[derive(Debug)]
pub(super) enum Event {
    /// A connection request arrives at its member.
    Arrives(u64),
    ConnectFails(u64, ErrorKind),
    ToMember(u64, Vec<u8>),
    /// With its sequence number in the order of sending.
    ToClient(u64, u64, Packet),
    /// Held bytes are released.
    Flush(u64),
    /// The client's socket accepts bytes again.
    Writable(u64),
    /// A member sends a reply, with its stream.
    Answer(u64, u16, Vec<u8>),
    /// A stream must send its next reply.
    StreamDue(u64, u64),
    Sync(usize),
    /// A member of a cluster sends an event about another one.
    NodeChange(usize, usize, NodeChange),
    Elect,
    Fault,
    /// A node of a cluster shows a bad habit.
    Habit,
    /// The end of a node that shuts down, with its process.
    ShutDown(usize, u32),
    Clog(usize),
    Unclog(usize),
    /// The application begins operations.
    Begin,
    /// The application drops the future of an operation.
    DropOperation(u64),
}

/// A packet that arrives at the client.
#[derive(Debug)]
pub(super) enum Packet {
    Bytes(Vec<u8>),
    /// Read byte by byte.
    Split(Vec<u8>),
    /// Read together with the next bytes.
    Held(Vec<u8>),
    /// End of the stream.
    End,
    Reset,
}

/// A stream of replies to an awaitable hello.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) known: Version,
    pub(super) await_ns: u64,
    pub(super) serial: u64,
    /// The request id that the next reply answers.
    pub(super) answers: i32,
    /// The client allows exhaust.
    pub(super) exhaust: bool,
    pub(super) legacy: bool,
}

/// The purpose of a connection, as its requests show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It has sent at most one hello without authentication.
    Unknown,
    Monitor,
    Pool,
}

/// The client's end of a connection.
#[derive(Debug, Default)]
pub(super) struct Near {
    /// The result of the connection attempt.
    pub(super) connected: Option<Result<(), ErrorKind>>,
    pub(super) input: VecDeque<u8>,
    /// Number of bytes at the front of the input that are read one at a time.
    pub(super) single: usize,
    /// Bytes that are held back until more arrive.
    pub(super) held: Vec<u8>,
    /// The written bytes of the message that is not written completely.
    pub(super) output: Vec<u8>,
    pub(super) has_ended: bool,
    pub(super) is_reset: bool,
    /// The socket accepts no bytes.
    pub(super) is_full: bool,
    /// The task that waits for the connection, or for bytes.
    pub(super) reader: Option<Waker>,
    /// The task that waits until the socket accepts bytes.
    pub(super) writer: Option<Waker>,
}

/// The member's end of a connection.
#[derive(Debug, Default)]
pub(super) struct Far {
    pub(super) input: Vec<u8>,
    pub(super) next_id: i32,
    pub(super) stream: Option<Stream>,
    /// Number of hello requests.
    pub(super) hellos: u32,
    /// No more bytes are sent.
    pub(super) has_ended: bool,
    /// It has sent a wrong moreToCome flag.
    pub(super) has_lied: bool,
    /// Streams of a Cassandra connection with requests that are not answered.
    pub(super) streams: BTreeSet<u16>,
    /// Errors that a Cassandra node owes, and sends on stream 0.
    pub(super) owed_on_zero: u32,
    /// A Cassandra connection has sent STARTUP.
    pub(super) is_started: bool,
    /// A Cassandra connection has registered for events.
    pub(super) is_registered: bool,
    /// The keyspace of a Cassandra connection.
    pub(super) keyspace: Option<&'static str>,
    /// At its greeting it was a member without users. It may have changed since.
    pub(super) knows_no_users: bool,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) member: usize,
    pub(super) purpose: Purpose,
    /// The process at the other end.
    pub(super) process: u32,
    pub(super) up: bool,
    /// Bytes to the member are lost.
    pub(super) lost_there: bool,
    /// Bytes to the client are lost.
    pub(super) lost_back: bool,
    /// A fault has made it unusable, or will.
    pub(super) is_broken: bool,
    /// Number of packets in transit to the client.
    pub(super) flying: u32,
    pub(super) near: Near,
    pub(super) far: Far,
    /// Arrival time of the last bytes. Bytes of one direction stay in order.
    last_there: u64,
    last_back: u64,
}

#[derive(Debug, Default)]
pub(super) struct Network {
    pub(super) links: BTreeMap<u64, Link>,
    next: u64,
    events: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    sent: u64,
    latest: u64,
    /// Held messages of members that are held back.
    pub(super) clogged: BTreeMap<usize, Vec<Event>>,
}

impl Network {
    pub(super) fn at(&mut self, time: u64, event: Event) {
        self.sequence += 1;
        self.events.insert((time, self.sequence), event);
    }

    /// Moves the start of the next operations to this time.
    pub(super) fn begin_at(&mut self, time: u64) {
        self.events.retain(|_, event| !matches!(event, Event::Begin));
        self.at(time, Event::Begin);
    }

    pub(super) fn next_time(&self) -> Option<u64> {
        self.events.first_key_value().map(|(key, _)| key.0)
    }

    pub(super) fn pop(&mut self, until: u64) -> Option<Event> {
        let entry = self.events.first_entry()?;
        (entry.key().0 <= until).then(|| entry.remove())
    }

    pub(super) fn connect(&mut self, member: usize) -> u64 {
        self.next += 1;
        let link = Link {
            member,
            purpose: Purpose::Unknown,
            process: u32::MAX,
            up: false,
            lost_there: false,
            lost_back: false,
            is_broken: false,
            flying: 0,
            near: Near::default(),
            far: Far::default(),
            last_there: 0,
            last_back: 0,
        };
        self.links.insert(self.next, link);
        self.next
    }

    pub(super) fn of_member(&self, member: usize) -> Vec<u64> {
        self.links.iter().filter(|(_, link)| link.member == member && link.up).map(|(id, _)| *id).collect()
    }

    pub(super) fn standing(&self) -> Vec<u64> {
        self.links.iter().filter(|(_, link)| link.up).map(|(id, _)| *id).collect()
    }

    /// Sends bytes to the member.
    pub(super) fn send_there(&mut self, id: u64, at: u64, bytes: Vec<u8>) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.last_there = link.last_there.max(at) + 1;
        let at = link.last_there;
        self.at(at, Event::ToMember(id, bytes));
    }

    /// Sends a packet to the client. Returns its arrival time.
    pub(super) fn send_back(&mut self, id: u64, at: u64, packet: Packet) -> u64 {
        let Some(link) = self.links.get_mut(&id).filter(|link| !link.lost_back) else { return at };
        link.last_back = link.last_back.max(at) + 1;
        link.flying += 1;
        link.is_broken |= matches!(packet, Packet::End | Packet::Reset);
        let at = link.last_back;
        self.sent += 1;
        self.at(at, Event::ToClient(id, self.sent, packet));
        at
    }

    /// A packet arrives at the client. Returns whether a packet that was sent later has already
    /// arrived.
    pub(super) fn is_reordered(&mut self, sent: u64) -> bool {
        let is_late = sent < self.latest;
        self.latest = self.latest.max(sent);
        is_late
    }
}
