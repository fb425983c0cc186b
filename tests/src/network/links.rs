//! The network between the client and the members: connections with their two ends, bytes in
//! transit, and arrival times.

use super::truth::Version;
use alloc::collections::{BTreeMap, VecDeque};
use poolhouse_auth::Authentication;
use poolhouse_core::monitor::MonitorConnId;
use poolhouse_core::pool::ConnId;
use poolhouse_core::{Cause, ServerId};
use poolhouse_wire::handshake::Handshake;
use poolhouse_wire::message::{Exchange, Limits, RequestIds};

/// A scheduled event.
#[derive(Debug)]
pub(super) enum Event {
    /// A connection request arrives at its member.
    Arrives(u64),
    ConnectFails(u64, Cause),
    ToMember(u64, Vec<u8>),
    /// With its sequence number in the order of sending.
    ToClient(u64, u64, Packet),
    /// Held bytes are released.
    Flush(u64),
    /// A stream must send its next reply.
    StreamDue(u64, u64),
    Sync(usize),
    Elect,
    Fault,
    Clog(usize),
    Unclog(usize),
    Task,
    /// A command has timed out.
    TaskLate(u64, u32),
    Cancel(u64),
    Claim(u64),
    /// The establishment of a connection has timed out.
    EstablishLate(ServerId, ConnId),
}

/// A packet that arrives at the client.
#[derive(Debug)]
pub(super) enum Packet {
    Bytes(Vec<u8>),
    /// Byte by byte.
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

/// The owner of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Monitor(MonitorConnId),
    Conn(ConnId),
}

/// The use of a connection by the client.
pub(super) enum Work {
    Connect,
    MonitorConnKind,
    Shake(Box<Handshake<'static, Option<Authentication<'static>>>>),
    Idle,
    /// A task waits for a reply.
    Task(u64),
}

/// The client's end of a connection.
pub(super) struct Near {
    pub(super) work: Work,
    pub(super) input: Vec<u8>,
    /// Bytes that are held back until more arrive.
    pub(super) held: Vec<u8>,
    pub(super) has_ended: bool,
    pub(super) exchange: Exchange,
    pub(super) ids: RequestIds,
    pub(super) limits: Limits,
    /// A reply is expected.
    pub(super) reads: bool,
}

/// The member's end of a connection.
#[derive(Debug, Default)]
pub(super) struct Far {
    pub(super) input: Vec<u8>,
    pub(super) next_id: i32,
    pub(super) stream: Option<Stream>,
    /// No more bytes are sent.
    pub(super) has_ended: bool,
    /// It has sent a wrong moreToCome flag.
    pub(super) has_lied: bool,
    /// At its greeting it was a member without users. It may have changed since.
    pub(super) knows_no_users: bool,
}

pub(super) struct Link {
    pub(super) server: ServerId,
    pub(super) owner: Owner,
    pub(super) member: usize,
    /// The process at the other end.
    pub(super) process: u32,
    pub(super) up: bool,
    /// Bytes to the member are lost.
    pub(super) lost_there: bool,
    /// Bytes to the client are lost.
    pub(super) lost_back: bool,
    pub(super) near: Near,
    pub(super) far: Far,
    /// Arrival time of the last bytes. Bytes of one direction stay in order.
    last_there: u64,
    last_back: u64,
}

/// The number of a server, and the number of one of its monitor or pool connections.
type Place = (u32, u64);
/// The socket of each.
type Index = BTreeMap<Place, u64>;

#[derive(Default)]
pub(super) struct Network {
    pub(super) links: BTreeMap<u64, Link>,
    by_monitor_conn: Index,
    by_conn: Index,
    next: u64,
    events: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    /// Sockets were opened or closed since the last check.
    pub(super) changed: bool,
    sent: u64,
    latest: u64,
    /// Abandoned monitor connections.
    pub(super) gone_monitor_conns: VecDeque<(ServerId, MonitorConnId)>,
    /// Closed pool connections.
    pub(super) gone_conns: VecDeque<(ServerId, ConnId)>,
    /// Held messages of members that are held back.
    pub(super) clogged: BTreeMap<usize, Vec<Event>>,
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

    pub(super) fn connect(&mut self, server: ServerId, owner: Owner, member: usize) -> u64 {
        self.next += 1;
        let near = Near {
            work: Work::Connect,
            input: Vec::new(),
            held: Vec::new(),
            has_ended: false,
            exchange: Exchange::IDLE,
            ids: RequestIds::new(),
            limits: Limits::DEFAULT,
            reads: false,
        };
        let link = Link {
            server,
            owner,
            member,
            process: u32::MAX,
            up: false,
            lost_there: false,
            lost_back: false,
            near,
            far: Far::default(),
            last_there: 0,
            last_back: 0,
        };
        self.links.insert(self.next, link);
        self.changed = true;
        let id = self.next;
        let (index, key) = self.index(server, owner);
        let before = index.insert(key, id);
        assert!(before.is_none(), "a socket is connected once");
        id
    }

    fn index(&mut self, server: ServerId, owner: Owner) -> (&mut Index, Place) {
        match owner {
            Owner::Monitor(conn) => (&mut self.by_monitor_conn, (server.number(), conn.number())),
            Owner::Conn(conn) => (&mut self.by_conn, (server.number(), conn.connection_id().get())),
        }
    }

    /// The socket of a monitor or pool connection.
    pub(super) fn find(&mut self, server: ServerId, owner: Owner) -> Option<u64> {
        let (index, key) = self.index(server, owner);
        index.get(&key).copied()
    }

    /// The client closes its socket.
    pub(super) fn drop_link(&mut self, id: u64) {
        let Some(gone) = self.links.remove(&id) else { return };
        self.changed = true;
        let (index, key) = self.index(gone.server, gone.owner);
        index.remove(&key);
        match gone.owner {
            Owner::Monitor(conn) => {
                remember(&mut self.gone_monitor_conns, (gone.server, conn));
            }
            Owner::Conn(conn) => {
                remember(&mut self.gone_conns, (gone.server, conn));
            }
        }
    }

    pub(super) fn hang_up(&mut self, server: ServerId, owner: Owner) {
        if let Some(link) = self.find(server, owner) {
            self.drop_link(link);
        }
    }

    /// Closes the monitor connections of a removed server.
    pub(super) fn forget_conns(&mut self, server: ServerId) {
        let is_monitor = |link: &Link| link.server == server && matches!(link.owner, Owner::Monitor(_));
        let gone: Vec<u64> = self.links.iter().filter(|(_, link)| is_monitor(link)).map(|(id, _)| *id).collect();
        for link in gone {
            self.drop_link(link);
        }
    }

    pub(super) fn of_member(&self, member: usize) -> Vec<u64> {
        self.links.iter().filter(|(_, link)| link.member == member && link.up).map(|(id, _)| *id).collect()
    }

    pub(super) fn standing(&self) -> Vec<u64> {
        self.links.iter().filter(|(_, link)| link.up).map(|(id, _)| *id).collect()
    }

    /// Number of sockets of a pool.
    pub(super) fn conn_count(&self, server: ServerId) -> usize {
        let range = (server.number(), 0)..=(server.number(), u64::MAX);
        self.by_conn.range(range).count()
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

/// Keeps the latest few.
fn remember<T>(kept: &mut VecDeque<T>, one: T) {
    const KEPT: usize = 8;
    kept.push_back(one);
    if kept.len() > KEPT {
        kept.pop_front();
    }
}
