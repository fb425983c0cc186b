//! Members: they decode received bytes independently of the client's codec, execute the requests,
//! and answer.

use super::links::{Event, Packet, Purpose, Stream};
use super::plan::MS;
use super::state::State;
use super::truth::{Deployment, Version, object_id};
use crate::choices::Choices;
use crate::fake::wire::{self, EXHAUST_ALLOWED, HEADER_BYTES, MORE_TO_COME, Message};
use crate::kind::Kind;
use bson::{Document, doc};
use poolhouse_core::ServerType;

/// The longest message that a member accepts.
pub(super) const MESSAGE_BYTES_MAX: usize = 48_000_000;

/// The kind of request that is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Hello,
    Streamed,
    Sasl,
}

/// The destination of an answer, and the fields of its message header.
#[derive(Clone, Copy, Debug)]
struct Address {
    link: u64,
    answers: i32,
    more_to_come: bool,
}

/// Faults of any reply.
const TO_BYTES: [Kind; 12] = [
    Kind::ResetInstead,
    Kind::ResetAfter,
    Kind::HalfClose,
    Kind::LostReply,
    Kind::Split,
    Kind::Coalesced,
    Kind::SlowLoris,
    Kind::Duplicate,
    Kind::Truncated,
    Kind::Garbage,
    Kind::WrongResponseTo,
    Kind::MoreToComeLie,
];

impl Answer {
    /// Faults of its document.
    const fn faults(self, versioned: bool) -> &'static [Kind] {
        match (self, versioned) {
            (Self::Hello, false) => &[Kind::HelloError],
            (Self::Hello, true) => &[Kind::HelloError, Kind::VersionBack],
            (Self::Streamed, _) => &[Kind::HelloError, Kind::VersionBack, Kind::StreamStall],
            (Self::Sasl, _) => &[Kind::AuthFailure],
        }
    }
}

impl State {
    /// A member processes all received bytes.
    pub(super) fn process_input(&mut self, id: u64) {
        match self.truth.deployment {
            Deployment::Cluster => return self.process_frames(id),
            Deployment::Plain => return self.process_lines(id),
            Deployment::Set | Deployment::Sharded | Deployment::Standalone => {}
        }
        loop {
            let Some(link) = self.net.links.get_mut(&id) else { return };
            let known = &self.truth.members[link.member];
            if !known.is_running() || known.process != link.process || link.far.has_ended {
                return;
            }
            let header = wire::header(&link.far.input, MESSAGE_BYTES_MAX);
            let header = header.unwrap_or_else(|error| panic!("the client wrote malformed bytes: {error}"));
            let Some(header) = header.filter(|header| header.length <= link.far.input.len()) else { return };
            let frame: Vec<u8> = link.far.input.drain(..header.length).collect();
            let message = wire::decode(&frame);
            let message = message.unwrap_or_else(|error| panic!("the client wrote malformed bytes: {error}"));
            if self.roll_back(id, &[Kind::ResetBefore]).is_some() {
                let at = self.now + self.delay();
                self.cut(id, at);
                return;
            }
            self.act(id, &message);
        }
    }

    fn act(&mut self, id: u64, message: &Message) {
        let body = &message.body;
        let name = body.keys().next().map(String::as_str).unwrap_or_default();
        match name {
            "hello" | "isMaster" => self.greet(id, message, name == "isMaster"),
            "saslStart" => {
                let db = body.get_str("$db").unwrap_or_default();
                let random = self.random();
                let answer = self.auth.start(id, db, body, random);
                self.answer_sasl(id, message, answer.unwrap_or_else(|error| error.document(None)));
            }
            "saslContinue" => {
                let answer = self.auth.continue_conversation(id, body);
                self.answer_sasl(id, message, answer.unwrap_or_else(|error| error.document(None)));
            }
            "ping" | "insert" => self.execute(id, message, name == "insert"),
            "endSessions" => {
                let ids = body.get_array("endSessions").expect("the ids of sessions");
                assert!((1..=10_000).contains(&ids.len()), "{} sessions are ended at once", ids.len());
                self.serve(id, Purpose::Pool, body);
                let to = Address { link: id, answers: message.header.request_id, more_to_come: false };
                self.write(to, &doc! { "ok": 1.0 });
            }
            _ => panic!("the client sent an unexpected command: {name:?}"),
        }
    }

    fn answer_sasl(&mut self, id: u64, message: &Message, answer: Document) {
        let to = Address { link: id, answers: message.header.request_id, more_to_come: false };
        self.answer(to, Answer::Sasl, answer);
    }

    fn random(&mut self) -> [u64; 3] {
        core::array::from_fn(|_| u64::from(self.draws.entropy.below(u32::MAX)))
    }

    fn greet(&mut self, id: u64, message: &Message, legacy: bool) {
        let body = &message.body;
        let (waits, versioned) = (body.contains_key("maxAwaitTimeMS"), body.contains_key("topologyVersion"));
        self.counters.checks.add("S15");
        assert_eq!(waits, versioned, "S15: both or neither of topologyVersion and maxAwaitTimeMS: {body}");
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let member = link.member;
        let authenticates = body.contains_key("speculativeAuthenticate") || body.contains_key("saslSupportedMechs");
        link.far.hellos += 1;
        if authenticates {
            self.serve(id, Purpose::Pool, body);
        } else if waits || link.far.hellos > 1 {
            self.serve(id, Purpose::Monitor, body);
        }
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let was_lied_to = core::mem::take(&mut link.far.has_lied);
        let is_free = link.far.stream.take().is_none() || was_lied_to;
        assert!(is_free, "S15: nothing is written before the last reply of a stream");
        let answers = message.header.request_id;
        if !waits {
            let mut reply = self.truth.hello(member, legacy);
            let is_arbiter = self.truth.members[member].view.server_type == ServerType::RsArbiter;
            if let Some(link) = self.net.links.get_mut(&id) {
                link.far.knows_no_users = is_arbiter;
            }
            if authenticates {
                let random = self.random();
                self.auth.greet(id, body, &mut reply, random);
            }
            return self.answer(Address { link: id, answers, more_to_come: false }, Answer::Hello, reply);
        }
        let known = body.get_document("topologyVersion").ok().and_then(|version| self.version_of(member, version));
        let await_ns = body.get_i64("maxAwaitTimeMS").ok().and_then(|ms| u64::try_from(ms).ok()).map(|ms| ms * MS);
        assert_eq!(await_ns, Some(self.plan.heartbeat), "S15: {body}");
        let now = self.truth.version(member).expect("S15: an awaitable hello requires a member with a topologyVersion");
        let await_ns = self.plan.heartbeat;
        // If the named version is of another process, the member answers immediately.
        let known = known.unwrap_or(Version { process: u32::MAX, counter: 0 });
        let exhaust = message.has(EXHAUST_ALLOWED);
        let stream = Stream { known, await_ns, serial: 0, answers, exhaust, legacy };
        let Some(link) = self.net.links.get_mut(&id) else { return };
        link.far.stream = Some(stream);
        if now == known {
            self.net.at(self.now + await_ns, Event::StreamDue(id, 0));
        } else {
            self.stream(id);
        }
    }

    /// The version that a client names, if it is of the current process.
    fn version_of(&self, member: usize, version: &Document) -> Option<Version> {
        let process = self.truth.members[member].process;
        let is_ours = version.get_object_id("processId").is_ok_and(|id| id == object_id(process));
        let counter = version.get_i64("counter").ok()?;
        is_ours.then_some(Version { process, counter })
    }

    /// Sends the next reply of a stream.
    pub(super) fn stream(&mut self, id: u64) {
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let (member, far) = (link.member, &mut link.far);
        let known = &self.truth.members[member];
        if !known.is_running() || known.process != link.process {
            // A frozen member continues the stream later.
            return;
        }
        let Some(stream) = &mut far.stream else { return };
        stream.known = self.truth.version(member).expect("it streams");
        stream.serial += 1;
        let (serial, await_ns, answers, legacy) = (stream.serial, stream.await_ns, stream.answers, stream.legacy);
        let more_to_come = self.plan.exhaust && stream.exhaust;
        if more_to_come {
            self.net.at(self.now + await_ns, Event::StreamDue(id, serial));
        } else {
            far.stream = None;
        }
        let reply = self.truth.hello(member, legacy);
        self.answer(Address { link: id, answers, more_to_come }, Answer::Streamed, reply);
    }

    /// The state of a member has changed: its streams send a reply.
    pub(super) fn changed(&mut self, member: usize) {
        for link in self.net.of_member(member) {
            self.stream(link);
        }
    }

    /// A request shows the purpose of its connection. A monitor neither authenticates nor runs
    /// commands.
    fn serve(&mut self, id: u64, purpose: Purpose, body: &Document) {
        let Some(link) = self.net.links.get_mut(&id) else { return };
        self.counters.checks.add("S17");
        assert!(
            link.purpose == Purpose::Unknown || link.purpose == purpose,
            "S17: a connection of a monitor is also used by operations: {body}"
        );
        link.purpose = purpose;
    }

    fn execute(&mut self, id: u64, message: &Message, is_write: bool) {
        let body = &message.body;
        self.serve(id, Purpose::Pool, body);
        let Some(link) = self.net.links.get(&id) else { return };
        let member = link.member;
        let unread = link.flying as usize + link.near.input.len() + link.near.held.len();
        assert!(
            unread == 0 || link.is_broken,
            "P5: a command was sent before the reply to the previous one was read: {body}"
        );
        let number = body.get_i64("n").expect("each command has its number");
        // The server of a direct connection may be an arbiter, which has no users.
        if self.plan.login && !link.far.knows_no_users {
            assert!(!self.auth.users_on(id).is_empty(), "a command before authentication: {body}");
        }
        self.check_max_time(body, number);
        let answers = message.header.request_id;
        let to = Address { link: id, answers, more_to_come: false };
        let faults: &[Kind] = match self.plan.versioned {
            true => &[Kind::StateChangeFresh, Kind::StateChangeStale],
            false => &[Kind::StateChangeFresh],
        };
        let is_refused = is_write && !self.truth.members[member].is_writable();
        if self.is_unacknowledged(message, number) {
            if is_refused {
                // No reply reports it.
                self.counters.count(Kind::WriteDiscarded);
                let at = self.now + self.delay();
                return self.cut(id, at);
            }
            let _ = self.is_executed(number);
            return;
        }
        let fault = if is_refused { None } else { self.roll_back(id, faults) };
        if is_refused {
            self.write_refused_at = self.now;
        }
        if is_refused || fault.is_some() {
            let is_fresh = fault == Some(Kind::StateChangeFresh);
            let code = match fault {
                Some(_) => self.draws.network.one_of(&[10_107, 13_435, 10_058, 11_602, 13_436, 189, 91, 11_600]),
                None => 10_107,
            };
            if is_fresh {
                self.truth.members[member].counter += 1;
            }
            let reply = self.state_change(member, code, i64::from(fault == Some(Kind::StateChangeStale)));
            if is_fresh {
                self.changed(member);
            }
            return self.write(to, &reply);
        }
        if self.is_repeated(body) || self.is_executed(number) {
            self.write(to, &doc! { "n": number, "ok": 1.0 });
        }
    }

    /// An error reply for a state change.
    ///
    /// - `back`: the topologyVersion is older by this number of changes.
    fn state_change(&self, member: usize, code: i32, back: i64) -> Document {
        let text = "it is not what it was";
        let mut reply = doc! { "ok": 0.0, "errmsg": text, "code": code, "codeName": "State" };
        if let Some(version) = self.truth.version(member) {
            let version = Version { counter: version.counter - back, ..version };
            reply.insert("topologyVersion", version.document());
        }
        reply
    }

    /// Draws a fault for a message.
    pub(super) fn roll(&mut self, among: &[Kind]) -> Option<Kind> {
        self.roll_for(among, true)
    }

    /// Draws a fault for a reply of a member. It is counted only if the reply can arrive.
    pub(super) fn roll_back(&mut self, id: u64, among: &[Kind]) -> Option<Kind> {
        let link = self.net.links.get(&id);
        let is_heard = link.is_some_and(|link| !link.lost_back && !self.truth.members[link.member].way.lost_back);
        self.roll_for(among, is_heard)
    }

    fn roll_for(&mut self, among: &[Kind], counts: bool) -> Option<Kind> {
        if self.peace || !self.plan.is_trouble(&mut self.draws.network) {
            return None;
        }
        let kind = self.plan.pick(among, self.last_fault, &mut self.draws.network)?;
        self.last_fault = Some(kind);
        if counts {
            self.counters.count(kind);
        }
        self.trace_line(|| format!("== {kind:?}"));
        Some(kind)
    }

    /// A member answers. The faults of the answer on its way are drawn.
    fn answer(&mut self, to: Address, answer: Answer, mut reply: Document) {
        let Some(link) = self.net.links.get(&to.link) else { return };
        let member = link.member;
        let fault = self.roll_back(to.link, answer.faults(self.plan.versioned));
        match fault {
            Some(Kind::HelloError) => reply = doc! { "ok": 0.0, "code": 6, "errmsg": "no hello today" },
            Some(Kind::VersionBack) => {
                if let Some(version) = self.truth.version(member) {
                    let version = Version { counter: version.counter - 1, ..version };
                    reply.insert("topologyVersion", version.document());
                }
            }
            Some(Kind::StreamStall) => {
                if let Some(link) = self.net.links.get_mut(&to.link) {
                    link.far.stream = None;
                    link.far.has_ended = true;
                    link.is_broken = true;
                }
                return;
            }
            Some(Kind::AuthFailure) => {
                reply = match self.draws.network.below(3) {
                    0 => doc! { "ok": 0.0, "code": 18, "errmsg": "Authentication failed." },
                    1 => doc! { "ok": 0.0, "code": 11, "errmsg": "no such user" },
                    // A signature that was made without the credentials of the user.
                    _ => doc! { "conversationId": 1, "done": true, "payload": "v=AAAA", "ok": 1.0 },
                };
            }
            _ => {}
        }
        // An error reply ends a stream.
        let more_to_come = to.more_to_come && fault != Some(Kind::HelloError);
        let Some(link) = self.net.links.get_mut(&to.link) else { return };
        if !more_to_come {
            link.far.stream = None;
        }
        self.write(Address { more_to_come, ..to }, &reply);
    }

    /// Sends a reply, with its fault if there is one.
    fn write(&mut self, to: Address, reply: &Document) {
        let fault = self.roll_back(to.link, &TO_BYTES);
        let id = to.link;
        let at = self.now + self.delay();
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let member = link.member;
        link.far.next_id += 1;
        let own = link.far.next_id;
        let lies = fault == Some(Kind::MoreToComeLie);
        link.far.has_lied |= lies;
        // Its bytes are right, although they arrive in parts.
        let is_harmless = matches!(fault, None | Some(Kind::Split | Kind::Coalesced | Kind::SlowLoris));
        link.is_broken |= !is_harmless;
        let flags = if to.more_to_come != lies { MORE_TO_COME } else { 0 };
        let answers = if fault == Some(Kind::WrongResponseTo) { to.answers.wrapping_add(7) } else { to.answers };
        if let Some(stream) = &mut link.far.stream {
            stream.answers = own;
        }
        if self.truth.members[member].way.lost_back || fault == Some(Kind::LostReply) {
            (link.lost_back, link.is_broken) = (true, true);
            return;
        }
        let mut bytes = Vec::new();
        wire::encode_msg(&mut bytes, own, answers, flags, reply);
        self.trace_line(|| format!("n{member} -> {id}: {} bytes, answer to {}, {reply}", bytes.len(), to.answers));
        self.counters.bytes += bytes.len() as u64;
        self.damage(id, at, bytes, fault);
    }

    pub(super) fn damage(&mut self, id: u64, at: u64, mut bytes: Vec<u8>, fault: Option<Kind>) {
        match fault {
            Some(Kind::ResetInstead) => self.cut(id, at),
            Some(Kind::ResetAfter) => {
                self.net.send_back(id, at, Packet::Bytes(bytes));
                self.cut(id, at);
            }
            Some(Kind::HalfClose) => {
                self.net.send_back(id, at, Packet::Bytes(bytes));
                self.net.send_back(id, at, Packet::End);
                if let Some(link) = self.net.links.get_mut(&id) {
                    link.far.has_ended = true;
                }
            }
            Some(Kind::Split) => drop(self.net.send_back(id, at, Packet::Split(bytes))),
            Some(Kind::Coalesced) => {
                let arrives = self.net.send_back(id, at, Packet::Held(bytes));
                let patience = u64::from(self.draws.network.below(2_000)) * MS;
                self.net.at(arrives + patience, Event::Flush(id));
            }
            Some(Kind::SlowLoris) => {
                let gap = u64::from(self.draws.network.below(400)) * MS;
                let piece = self.draws.network.index(bytes.len()) + 1;
                for (place, piece) in bytes.chunks(piece.max(8)).enumerate() {
                    self.net.send_back(id, at + gap * place as u64, Packet::Bytes(piece.to_vec()));
                }
            }
            Some(Kind::Duplicate) => {
                self.net.send_back(id, at, Packet::Bytes(bytes.clone()));
                self.net.send_back(id, at, Packet::Bytes(bytes));
            }
            Some(Kind::Truncated) => {
                bytes.truncate(self.draws.network.index(bytes.len()));
                self.net.send_back(id, at, Packet::Bytes(bytes));
                self.cut(id, at);
            }
            Some(Kind::Garbage) => {
                match self.truth.deployment {
                    Deployment::Cluster => self.spoil_frame(&mut bytes),
                    Deployment::Plain => Self::spoil_line(&mut bytes),
                    _ => self.spoil(&mut bytes),
                }
                self.net.send_back(id, at, Packet::Bytes(bytes));
            }
            _ => drop(self.net.send_back(id, at, Packet::Bytes(bytes))),
        }
    }

    /// Corrupts bytes so no client may accept them as a reply.
    fn spoil(&mut self, bytes: &mut [u8]) {
        let random = &mut self.draws.network;
        match random.below(8) {
            // Invalid lengths, and one that is larger than the message.
            0 => {
                let length = random.one_of(&[i32::MIN, -1, 0, 1, 15, 48_000_001, i32::MAX]);
                bytes[..4].copy_from_slice(&length.to_le_bytes());
            }
            1 => {
                let length = i32::try_from(bytes.len()).unwrap_or(0) - 1;
                bytes[..4].copy_from_slice(&length.to_le_bytes());
            }
            // Opcodes: OP_REPLY, OP_COMPRESSED without a negotiated compressor, and an unknown one.
            2 => bytes[12..HEADER_BYTES].copy_from_slice(&random.one_of(&[1_i32, 2_012, 2_004, 77]).to_le_bytes()),
            // Required flags that are unknown.
            3 => bytes[HEADER_BYTES] |= 1 << (random.below(6) + 2),
            // A missing checksum.
            4 => bytes[HEADER_BYTES] |= 1,
            // An unknown kind of section.
            5 => bytes[HEADER_BYTES + 4] = 7,
            // The document is longer than the message, and its terminator is misplaced.
            6 => bytes[HEADER_BYTES + 5] ^= 0xff,
            _ => {
                let length = bytes.len();
                bytes[length - 1] = 1;
            }
        }
    }

    /// Resets a connection.
    pub(super) fn cut(&mut self, id: u64, at: u64) {
        self.net.send_back(id, at, Packet::Reset);
        if let Some(link) = self.net.links.get_mut(&id) {
            link.far.has_ended = true;
        }
    }

    /// Sends unsolicited bytes.
    pub(super) fn send_unsolicited(&mut self, id: u64) {
        match self.truth.deployment {
            Deployment::Cluster => self.send_unsolicited_frame(id),
            Deployment::Plain => drop(self.net.send_back(id, self.now, Packet::Bytes(b"?\n".to_vec()))),
            Deployment::Set | Deployment::Sharded | Deployment::Standalone => {
                let mut bytes = Vec::new();
                // A reply to an impossible request: ids of requests are never negative.
                wire::encode_msg(&mut bytes, 99, -98, 0, &doc! { "n": 1, "ok": 1.0 });
                self.net.send_back(id, self.now, Packet::Bytes(bytes));
            }
        }
        if let Some(link) = self.net.links.get_mut(&id) {
            link.is_broken = true;
        }
    }
}
