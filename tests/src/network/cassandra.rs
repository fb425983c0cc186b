//! Members of a Cassandra cluster: they decode and encode frames of version 4 of its protocol
//! independently of the client's codec.

use super::links::{Event, Packet};
use super::plain;
use super::plan::MS;
use super::state::State;
use super::truth::Deployment;
use crate::choices::Choices;
use crate::kind::Kind;

/// Version, flags, stream (2), opcode, length of the body (4).
const HEADER_BYTES: usize = 9;
const REQUEST: u8 = 4;
const RESPONSE: u8 = 0x84;
/// The longest body that a member accepts.
const BODY_BYTES_MAX: usize = 256 << 20;

const ERROR: u8 = 0x00;
const STARTUP: u8 = 0x01;
const READY: u8 = 0x02;
const OPTIONS: u8 = 0x05;
const SUPPORTED: u8 = 0x06;
const QUERY: u8 = 0x07;
const RESULT: u8 = 0x08;
const PREPARE: u8 = 0x09;
const EXECUTE: u8 = 0x0a;
const REGISTER: u8 = 0x0b;
const BATCH: u8 = 0x0d;

/// The keyspaces of the cluster.
pub(super) const KEYSPACES: [&str; 3] = ["ks0", "ks1", "ks2"];
/// Names that are no keyspace: one that members refuse, and one that no keyspace can have.
pub(super) const NO_KEYSPACES: [&str; 2] = ["ks9", "no keyspace"];

pub(super) const SERVER_ERROR: u32 = 0x0000;
pub(super) const OVERLOADED: u32 = 0x1001;
pub(super) const IS_BOOTSTRAPPING: u32 = 0x1002;
pub(super) const INVALID: u32 = 0x2200;
const UNPREPARED: u32 = 0x2500;
/// The kind of a result that names a keyspace.
const SET_KEYSPACE: u32 = 3;
/// The kind of a result that describes a prepared statement.
const PREPARED: u32 = 4;

/// Faults of any reply. A duplicate may belong to a later request with the same stream: no client
/// can detect that.
const TO_BYTES: [Kind; 10] = [
    Kind::ResetInstead,
    Kind::ResetAfter,
    Kind::HalfClose,
    Kind::LostReply,
    Kind::Split,
    Kind::Coalesced,
    Kind::SlowLoris,
    Kind::Truncated,
    Kind::Garbage,
    Kind::WrongResponseTo,
];

/// The text of a query with this number. Its reply contains the number, too.
pub(super) fn text_of(number: i64) -> String {
    format!("command_{number}")
}

/// The number of a query's text, with which a text to prepare may have a space behind it.
fn number_of(text: &str) -> Option<i64> {
    text.trim_end().strip_prefix("command_")?.parse().ok()
}

pub(super) fn string(body: &mut Vec<u8>, text: &str) {
    body.extend(u16::try_from(text.len()).expect("a short text").to_be_bytes());
    body.extend(text.bytes());
}

pub(super) fn frame(stream: u16, opcode: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![RESPONSE, 0];
    frame.extend(stream.to_be_bytes());
    frame.push(opcode);
    frame.extend(u32::try_from(body.len()).expect("a short body").to_be_bytes());
    frame.extend(body);
    frame
}

/// - `text`: of the statement, which is its id.
fn error(code: u32, text: &str) -> Vec<u8> {
    let mut body = code.to_be_bytes().to_vec();
    string(&mut body, "not today");
    if code == UNPREPARED {
        string(&mut body, text);
    }
    body
}

/// Reads a text behind its length in two bytes, at a position.
fn text_at(body: &[u8], at: usize) -> &str {
    let length = usize::from(u16::from_be_bytes([body[at], body[at + 1]]));
    core::str::from_utf8(&body[at + 2..at + 2 + length]).expect("UTF-8")
}

/// A result with the name of a keyspace.
fn set_keyspace(name: &str) -> Vec<u8> {
    let mut body = SET_KEYSPACE.to_be_bytes().to_vec();
    string(&mut body, name);
    body
}

impl State {
    /// A member processes all complete frames.
    pub(super) fn process_frames(&mut self, id: u64) {
        loop {
            let Some(link) = self.net.links.get_mut(&id) else { return };
            let known = &self.truth.members[link.member];
            if !known.is_running() || known.process != link.process || link.far.has_ended {
                return;
            }
            let input = &mut link.far.input;
            if input.len() < HEADER_BYTES {
                return;
            }
            assert_eq!(input[0], REQUEST, "the client wrote malformed bytes");
            let stream = u16::from_be_bytes([input[2], input[3]]);
            assert!(stream < 1 << 15, "the stream of a request is not negative");
            let opcode = input[4];
            let length = u32::from_be_bytes([input[5], input[6], input[7], input[8]]) as usize;
            assert!(length <= BODY_BYTES_MAX, "the client wrote malformed bytes");
            if input.len() < HEADER_BYTES + length {
                return;
            }
            let frame: Vec<u8> = input.drain(..HEADER_BYTES + length).collect();
            let is_new = link.far.streams.insert(stream);
            assert!(is_new || link.is_broken, "M1: stream {stream} has two requests in flight");
            if self.roll_back(id, &[Kind::ResetBefore]).is_some() {
                let at = self.now + self.delay();
                return self.cut(id, at);
            }
            self.serve_frame(id, stream, opcode, &frame[HEADER_BYTES..]);
        }
    }

    fn serve_frame(&mut self, id: u64, stream: u16, opcode: u8, body: &[u8]) {
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let mut reply = Vec::new();
        let answer = match opcode {
            OPTIONS => {
                reply.extend(1_u16.to_be_bytes());
                string(&mut reply, "CQL_VERSION");
                reply.extend(1_u16.to_be_bytes());
                string(&mut reply, "3.4.7");
                SUPPORTED
            }
            STARTUP => {
                link.far.is_started = true;
                READY
            }
            REGISTER => {
                let is_first = !core::mem::replace(&mut link.far.is_registered, true);
                assert!(is_first && link.far.is_started, "a REGISTER is sent once, after STARTUP");
                READY
            }
            QUERY | PREPARE | EXECUTE | BATCH => {
                assert!(link.far.is_started, "a query before STARTUP");
                if self.answers_on_zero(id, stream) {
                    return;
                }
                let text = match opcode {
                    EXECUTE => text_at(body, 0),
                    BATCH => {
                        assert_eq!(body[..4], [1, 0, 1, 1], "an unlogged batch of one prepared statement");
                        text_at(body, 4)
                    }
                    // The length has four bytes.
                    _ => text_at(body, 2),
                };
                let outcome = match text.split_once(' ') {
                    // Also with a space behind it: see `prepare_on` of the session.
                    _ if opcode == PREPARE => Some(self.prepare(id, text)),
                    Some(("USE", name)) => Some(self.use_keyspace(id, name)),
                    Some(_) => Some(self.select(id, text)),
                    None if opcode != QUERY && !self.has_prepared(id, text) => Some(Err(UNPREPARED)),
                    None => self.run_command(id, text),
                };
                match outcome {
                    Some(Ok(result)) => {
                        reply = result;
                        RESULT
                    }
                    Some(Err(code)) => {
                        if let Some(command) = number_of(text).and_then(|number| self.commands.get_mut(&number)) {
                            command.is_refused = true;
                        }
                        reply = error(code, text);
                        ERROR
                    }
                    None => return,
                }
            }
            _ => panic!("the client sent an unexpected opcode: {opcode}"),
        };
        // Replies are sent in any order.
        let at = self.now + self.delay() + u64::from(self.draws.network.below(5)) * MS;
        self.net.at(at, Event::Answer(id, stream, frame(stream, answer, &reply)));
    }

    /// Whether a request is not executed, because it has waited for too long. The error for it is sent on stream
    /// 0: at once if another request has that stream, or when one gets it.
    ///
    /// Seen with Cassandra 5.0.
    fn answers_on_zero(&mut self, id: u64, stream: u16) -> bool {
        if !self.plan.cluster.answers_on_zero || self.peace {
            return false;
        }
        let is_drawn = self.draws.habits.below(16) == 15;
        let is_next = self.draws.habits.one_in(4);
        let Some(link) = self.net.links.get_mut(&id) else { return false };
        let is_used = link.far.streams.contains(&0);
        let is_dropped = stream != 0 && (is_used || is_drawn);
        link.far.owed_on_zero += u32::from(is_dropped);
        link.is_broken |= is_dropped;
        if (is_used || is_next) && link.far.owed_on_zero > 0 {
            link.far.owed_on_zero -= 1;
            let at = self.now + self.delay();
            self.net.at(at, Event::Answer(id, 0, frame(0, ERROR, &error(OVERLOADED, ""))));
            self.note(Kind::AnswersOnZero, id);
        }
        is_dropped
    }

    /// Sets the keyspace of a connection. Returns the result, or the code of an error.
    fn use_keyspace(&mut self, id: u64, name: &str) -> Result<Vec<u8>, u32> {
        let known = KEYSPACES.into_iter().find(|known| format!("\"{known}\"") == name).ok_or(INVALID)?;
        if let Some(link) = self.net.links.get_mut(&id) {
            link.far.keyspace = Some(known);
        }
        Ok(set_keyspace(known))
    }

    /// Reads a table. Returns the rows, or the code of an error.
    fn select(&mut self, id: u64, text: &str) -> Result<Vec<u8>, u32> {
        let (columns, rest) = text.split_once(" FROM ").expect("a reading of a table");
        let member = self.net.links[&id].member;
        match self.roll_back(id, &[Kind::ServerOverloaded, Kind::Bootstrapping]) {
            Some(Kind::ServerOverloaded) => Err(OVERLOADED),
            Some(_) => Err(IS_BOOTSTRAPPING),
            None => self.read_table(member, columns, rest.split(' ').next().unwrap_or_default()),
        }
    }

    /// Prepares a command of the application, whose id is its text. Returns the result, or the code of an
    /// error.
    fn prepare(&mut self, id: u64, text: &str) -> Result<Vec<u8>, u32> {
        match self.roll_back(id, &[Kind::ServerOverloaded, Kind::Bootstrapping]) {
            Some(Kind::ServerOverloaded) => Err(OVERLOADED),
            Some(_) => Err(IS_BOOTSTRAPPING),
            None => {
                self.prepared.insert((self.net.links[&id].member, text.to_owned()));
                let mut body = PREPARED.to_be_bytes().to_vec();
                string(&mut body, text);
                // No variables and no columns: flags, their number, and that of the variables of the key.
                body.extend([0; 5 * 4]);
                Ok(body)
            }
        }
    }

    fn has_prepared(&self, id: u64, text: &str) -> bool {
        self.prepared.contains(&(self.net.links[&id].member, text.to_owned()))
    }

    /// Executes a command of the application. Returns the result, or the code of an error; `None`: it
    /// is not answered.
    fn run_command(&mut self, id: u64, text: &str) -> Option<Result<Vec<u8>, u32>> {
        let number = number_of(text).expect("a command of the application");
        if let Some(code) = self.truth.members[self.net.links[&id].member].refusal {
            self.refused_at = self.now;
            return Some(Err(code));
        }
        match self.roll_back(id, &[Kind::ServerOverloaded, Kind::Bootstrapping]) {
            Some(Kind::ServerOverloaded) => Some(Err(OVERLOADED)),
            Some(_) => Some(Err(IS_BOOTSTRAPPING)),
            None => {
                self.check_keyspace(id, number);
                if let (Some(command), Some(link)) = (self.commands.get_mut(&number), self.net.links.get(&id)) {
                    command.executed_by = Some(link.member);
                }
                self.is_executed(number).then(|| Ok(set_keyspace(text)))
            }
        }
    }

    /// Checks that a command is executed in a keyspace that the session has had since the command began.
    fn check_keyspace(&mut self, id: u64, number: i64) {
        let Some(link) = self.net.links.get(&id) else { return };
        let (keyspace, allowed) = (link.far.keyspace, &self.keyspaces[self.commands[&number].keyspaces_from..]);
        self.counters.checks.add("P61");
        assert!(
            allowed.contains(&keyspace),
            "P61: command {number} is executed in the keyspace {keyspace:?} instead of {allowed:?}"
        );
    }

    /// A reply is ready to be sent. Its fault is drawn.
    pub(super) fn send_answer(&mut self, id: u64, stream: u16, mut bytes: Vec<u8>) {
        let Some(link) = self.net.links.get(&id) else { return };
        let (member, process) = (link.member, link.process);
        let known = &self.truth.members[member];
        if !known.up || known.process != process || link.far.has_ended {
            return;
        }
        if known.frozen {
            return self.net.at(self.now + 50 * MS, Event::Answer(id, stream, bytes));
        }
        let is_lost = known.way.lost_back;
        let faults = match self.truth.deployment {
            Deployment::Plain => &plain::TO_BYTES[..],
            _ => &TO_BYTES[..],
        };
        let fault = self.roll_back(id, faults);
        let at = self.now + self.delay();
        let Some(link) = self.net.links.get_mut(&id) else { return };
        link.far.streams.remove(&stream);
        let is_harmless = matches!(fault, None | Some(Kind::Split | Kind::Coalesced | Kind::SlowLoris));
        link.is_broken |= !is_harmless;
        if is_lost || fault == Some(Kind::LostReply) {
            (link.lost_back, link.is_broken) = (true, true);
            return;
        }
        if fault == Some(Kind::WrongResponseTo) {
            // A stream that the client does not use yet.
            bytes[2..4].copy_from_slice(&0x7ff0_u16.to_be_bytes());
        }
        self.trace_line(|| format!("n{member} -> {id}: {} bytes, stream {stream}", bytes.len()));
        self.counters.bytes += bytes.len() as u64;
        self.damage(id, at, bytes, fault);
    }

    /// Corrupts a frame so no client may accept it.
    pub(super) fn spoil_frame(&mut self, bytes: &mut [u8]) {
        match self.draws.network.below(4) {
            // The version of a request, and an unknown one.
            0 => bytes[0] = REQUEST,
            1 => bytes[0] = 0xff,
            2 => bytes[4] = 0x7f,
            // A negative length.
            _ => bytes[5] = 0x80,
        }
    }

    /// Sends a reply that was not requested.
    pub(super) fn send_unsolicited_frame(&mut self, id: u64) {
        self.net.send_back(id, self.now, Packet::Bytes(frame(0x7ff1, READY, &[])));
    }
}
