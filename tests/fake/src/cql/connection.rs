//! The thread of a connection: reads, decodes and answers requests.

use alloc::sync::Arc;
use core::hash::Hasher as _;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::hash::DefaultHasher;
use std::io::{self, Read};

use super::body::{self, Body, Parameters};
use super::codec::{Compression, Decoder, Envelope, Framing, HEADER_BYTES, Header, Malformed, Reason};
use super::kind::{RequestKind, code, opcode};
use super::link::{Damage, Link, Reply};
use super::rule::{Act, Cut, RequestFacts, Script};
use super::shared::{Received, Shared};
use super::statement::{self, Description, Failure, Statement};

/// The bit of the first byte of a header that marks a reply.
const REPLY: u8 = 0x80;
/// The flag of a header with a custom payload.
const CUSTOM_PAYLOAD: u8 = 0x04;
/// The flag of a header of a version that is not released, and the first such version.
const BETA: (u8, u8) = (0x10, 6);
/// Largest length of a request's body.
const BODY_BYTES_MAX: usize = 256 * 1024 * 1024;
/// The names of events, for REGISTER.
const EVENTS: [&str; 3] = ["TOPOLOGY_CHANGE", "STATUS_CHANGE", "SCHEMA_CHANGE"];
/// Length at which texts are truncated in the log.
const LOG_TEXT_BYTES: usize = 1024;

/// Reason for which the loop of a connection ends.
enum End {
    Cut(Cut),
    Io,
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Io
    }
}

/// The change of the connection's state after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Same,
    /// STARTUP was answered, after which this framing applies.
    Framed(Framing),
}

/// Progress of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    New,
    Authenticating,
    Ready,
}

/// Serves a connection until it ends.
pub(super) fn serve(link: &Arc<Link>, shared: &Arc<Shared>) {
    let cut = match (Session::new(link, shared)).run() {
        Err(End::Cut(cut)) => cut,
        Ok(()) | Err(End::Io) => Cut::Close,
    };
    link.end(cut);
}

struct Session<'a> {
    link: &'a Arc<Link>,
    shared: &'a Arc<Shared>,
    script: Arc<Script>,
    script_number: u64,
    stage: Stage,
    /// Requests from now on have the framing that a STARTUP has negotiated, and so have their replies.
    is_framed: bool,
    version: u8,
    /// An envelope could not be decoded: this is the reply to every read, if there is one.
    stuck: Option<Option<(i16, &'static str)>>,
    /// Replies to the requests of one read, in order; `batched` is their number.
    batch: Vec<u8>,
    batched: u64,
    /// Requests that were received and not yet counted.
    uncounted: u64,
    log: Vec<Received>,
}

impl<'a> Session<'a> {
    fn new(link: &'a Arc<Link>, shared: &'a Arc<Shared>) -> Self {
        Self {
            link,
            shared,
            script: shared.script(),
            // Forces an update before the first request.
            script_number: u64::MAX,
            stage: Stage::New,
            is_framed: false,
            version: shared.node.version,
            stuck: None,
            batch: Vec::new(),
            batched: 0,
            uncounted: 0,
            log: Vec::new(),
        }
    }

    /// Returns when the client has closed the connection.
    fn run(&mut self) -> Result<(), End> {
        let mut buffer = vec![0; self.shared.read_bytes];
        // The version is the first byte of every request.
        let mut front = Vec::new();
        while !front.first().is_some_and(|number| self.shared.versions.contains(number)) {
            let count = self.read(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            front.extend_from_slice(&buffer[..count]);
            if front.len() >= HEADER_BYTES && !self.shared.versions.contains(&front[0]) {
                self.refuse_version(front[0])?;
                front.clear();
            }
        }
        self.version = front[0];
        let mut decoder = Decoder::new(BODY_BYTES_MAX);
        self.take(&mut decoder, &front)?;
        drop(front);
        loop {
            let count = self.read(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            self.take(&mut decoder, &buffer[..count])?;
        }
    }

    fn read(&self, buffer: &mut [u8]) -> Result<usize, End> {
        self.link.wait_to_read();
        loop {
            match self.link.stream().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
                Ok(count) => {
                    // Reading may have been paused during this read.
                    self.link.wait_to_read();
                    if self.link.has_ended() {
                        return Ok(0);
                    }
                    if count > 0 {
                        self.shared.reads.fetch_add(1, Ordering::SeqCst);
                    }
                    return Ok(count);
                }
            }
        }
    }

    /// Processes the bytes of one read and sends the replies by one write, unless a rule applies.
    fn take(&mut self, decoder: &mut Decoder, input: &[u8]) -> Result<(), End> {
        if let Some(reply) = self.stuck {
            if let Some((stream, message)) = reply {
                self.refuse(stream, code::PROTOCOL_ERROR, message);
            }
            return self.flush();
        }
        decoder.push(input);
        loop {
            let envelope = match decoder.envelope() {
                Ok(Some(envelope)) => envelope,
                Ok(None) => return self.flush(),
                Err(malformed) => return self.give_up(&malformed),
            };
            if let Some((message, is_stuck)) = self.misfit(envelope.header) {
                self.refuse(envelope.header.stream, code::PROTOCOL_ERROR, message);
                if is_stuck {
                    self.stuck = Some(Some((envelope.header.stream, message)));
                    return self.flush();
                }
                continue;
            }
            let Some(kind) = RequestKind::of(envelope.header.opcode) else { continue };
            if let Next::Framed(framing) = self.handle(kind, envelope)? {
                self.is_framed = true;
                decoder.set_framing(framing);
            }
        }
    }

    /// Why a header is not that of a request in the version of the connection, and whether no later envelope is
    /// read: Cassandra does not consume such an envelope in versions 3 and 4.
    fn misfit(&self, header: Header) -> Option<(&'static str, bool)> {
        let is_stuck = self.version < 5;
        if header.version & REPLY != 0 {
            Some(("the direction is that of a reply", is_stuck))
        } else if header.version != self.version {
            Some(("the version is not that of the first request", false))
        } else if RequestKind::of(header.opcode).is_none() {
            Some(("the opcode is not that of a request", is_stuck))
        } else {
            None
        }
    }

    /// Ends the connection after bytes that are no envelope. In versions 3 and 4, Cassandra waits for the whole
    /// of a body whose length is impossible, without a reply.
    fn give_up(&mut self, malformed: &Malformed) -> Result<(), End> {
        match &malformed.reason {
            Reason::Length(_) if self.version < 5 => {
                self.stuck = Some(None);
                return self.flush();
            }
            Reason::Length(length) => {
                let message = format!("the length of the body is {length}");
                self.error(malformed.stream, code::PROTOCOL_ERROR, &message);
            }
            Reason::Incomplete => self.error(malformed.stream, code::SERVER_ERROR, "a segment ends within an envelope"),
            Reason::Other(reason) => self.error(malformed.stream, code::PROTOCOL_ERROR, reason),
        }
        self.flush()?;
        Err(End::Cut(Cut::Close))
    }

    /// Appends an error that is the reply to a request which is not handled.
    fn refuse(&mut self, stream: i16, code: i32, message: &str) {
        self.uncounted += 1;
        self.batched += 1;
        self.error(stream, code, message);
    }

    /// Sends the batched replies.
    fn flush(&mut self) -> Result<(), End> {
        self.shared.append_log(&mut self.log);
        let uncounted = core::mem::take(&mut self.uncounted);
        if uncounted > 0 {
            self.link.count_requests(uncounted);
        }
        let batched = core::mem::take(&mut self.batched);
        self.link.send(&self.batch, batched, false)?;
        self.batch.clear();
        Ok(())
    }

    /// Answers one request.
    fn handle(&mut self, kind: RequestKind, envelope: Envelope<'_>) -> Result<Next, End> {
        self.uncounted += 1;
        let number = self.shared.script_number();
        if number != self.script_number {
            self.script = self.shared.script();
            self.script_number = number;
        }
        let Envelope { header, body } = envelope;
        let mut body = Body(body);
        if header.flags & CUSTOM_PAYLOAD != 0 {
            // Without the map the request is malformed, which is detected below.
            let _ = body.skip_bytes_map();
        }
        let start = self.batch.len();
        let stage = self.stage;
        let mut text = Text::default();
        let next = self.answer(kind, header.stream, body, &mut text);
        self.batched += 1;
        if self.shared.log_max > 0 {
            self.note(kind, header.stream, body, &text);
        }

        let is_statement =
            matches!(kind, RequestKind::Query | RequestKind::Prepare | RequestKind::Execute | RequestKind::Batch)
                && stage == Stage::Ready
                && !text.of_system;
        if self.script.rules.is_empty() && text.delay.is_zero() && next == Next::Same {
            return Ok(next);
        }

        let looked =
            RequestFacts { kind, text: text.bytes.as_deref().unwrap_or_else(|| plain_text(kind, body)), is_statement };
        let script = Arc::clone(&self.script);
        let act = script.act(&looked);
        if act.is_none() && text.delay.is_zero() && next == Next::Same {
            return Ok(next);
        }
        // The other replies are sent first; this one is sent separately.
        let envelopes = self.batch.split_off(start);
        self.batched -= 1;
        self.flush()?;
        let reply = Reply { envelopes, plain: !self.is_framed, damage: None };
        let has_effect = match act {
            Some(act) => self.perform(act, header.stream, reply)?,
            None if !text.delay.is_zero() => {
                self.link.delay(text.delay, reply)?;
                true
            }
            None => {
                self.link.send_reply(&reply)?;
                true
            }
        };
        if !has_effect {
            self.stage = stage;
            return Ok(Next::Same);
        }
        if let Next::Framed(framing) = next {
            self.link.set_framing(framing);
        }
        Ok(next)
    }

    /// Applies an action to a reply. Returns false if the client receives another message or none:
    /// then the handshake does not advance.
    fn perform(&mut self, act: &Act, stream: i16, mut reply: Reply) -> Result<bool, End> {
        match act {
            Act::Delay(delay) => self.link.delay(*delay, reply)?,
            Act::Lose => return Ok(false),
            Act::Hold { count, order } => self.link.hold(reply, *count, *order)?,
            Act::Stream(stream) => {
                reply.envelopes[2..4].copy_from_slice(&stream.to_be_bytes());
                self.link.send_reply(&reply)?;
            }
            Act::Twice => {
                reply.envelopes.extend_from_within(..);
                self.link.send_reply(&reply)?;
            }
            Act::Version(number) => {
                reply.envelopes[0] = REPLY | number;
                self.link.send_reply(&reply)?;
            }
            Act::Direction => {
                reply.envelopes[0] &= !REPLY;
                self.link.send_reply(&reply)?;
            }
            Act::Checksum(part) => self.damage(reply, Damage::Checksum(*part))?,
            Act::Length(length) => self.damage(reply, Damage::Length(*length))?,
            Act::Truncate { bytes, cut } => {
                self.damage(reply, Damage::Truncate(*bytes, *cut))?;
                return Err(End::Cut(*cut));
            }
            Act::Close(cut) => return Err(End::Cut(*cut)),
            Act::Error(code, message) => {
                self.error(stream, *code, message);
                reply.envelopes = core::mem::take(&mut self.batch);
                self.link.send_reply(&reply)?;
                return Ok(false);
            }
            Act::Raw(bytes) => {
                self.link.send_raw(bytes, 1)?;
                return Ok(false);
            }
            Act::Mute => {
                self.link.mute.store(true, Ordering::SeqCst);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn damage(&self, reply: Reply, damage: Damage) -> Result<(), End> {
        Ok(self.link.send_reply(&Reply { damage: Some(damage), ..reply })?)
    }

    // Replies, appended to the batch.

    fn message(&mut self, stream: i16, opcode: u8, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.batch.len();
        let header = Header { version: REPLY | self.version, flags: 0, stream, opcode };
        self.batch.extend_from_slice(&header.bytes(0));
        write(&mut self.batch);
        self.set_length(start);
    }

    /// Sets the length in the header of the last envelope, which begins at `start`.
    fn set_length(&mut self, start: usize) {
        // At most 64 MiB.
        let length = u32::try_from(self.batch.len() - start - HEADER_BYTES).unwrap_or(u32::MAX);
        self.batch[start + 5..start + 9].copy_from_slice(&length.to_be_bytes());
    }

    fn error(&mut self, stream: i16, code: i32, message: &str) {
        self.message(stream, opcode::ERROR, |body| {
            body::int(body, code);
            body::string(body, message);
        });
    }

    /// Appends a RESULT. Its body is written directly into the batch, and removed again if the
    /// statement fails.
    fn result(&mut self, stream: i16, write: impl FnOnce(&mut Vec<u8>) -> Result<(), Failure>) {
        let start = self.batch.len();
        let header = Header { version: REPLY | self.version, flags: 0, stream, opcode: opcode::RESULT };
        self.batch.extend_from_slice(&header.bytes(0));
        match write(&mut self.batch) {
            Ok(()) => self.set_length(start),
            Err(Failure(code, message)) => {
                self.batch.truncate(start);
                self.error(stream, code, &message);
            }
        }
    }

    fn malformed(&mut self, stream: i16, kind: RequestKind) -> Next {
        self.error(stream, code::PROTOCOL_ERROR, &format!("the body of {kind:?} is malformed"));
        Next::Same
    }

    /// Appends the reply to a request.
    fn answer(&mut self, kind: RequestKind, stream: i16, body: Body<'_>, text: &mut Text) -> Next {
        match (kind, self.stage) {
            (RequestKind::Query, Stage::Ready) => self.query(stream, body, text),
            (RequestKind::Execute, Stage::Ready) => self.execute(stream, body, text),
            (RequestKind::Options, _) => self.supported(stream),
            (RequestKind::Startup, Stage::New) => self.startup(stream, body, text),
            (RequestKind::AuthResponse, Stage::Authenticating) => self.authenticate(stream, body),
            (RequestKind::AuthResponse, Stage::Ready) if self.shared.credentials.is_none() => {
                self.message(stream, opcode::AUTH_SUCCESS, |body| body::int(body, -1));
                Next::Same
            }
            (RequestKind::Prepare, Stage::Ready) => self.prepare(stream, body, text),
            (RequestKind::Batch, Stage::Ready) => self.execute_batch(stream, body, text),
            (RequestKind::Register, Stage::Ready) => self.register(stream, body),
            (other, stage) => {
                let message = format!("{other:?} is not allowed in this state of the connection: {stage:?}");
                // As Cassandra does.
                let stream = if stage == Stage::New { 0 } else { stream };
                self.error(stream, code::PROTOCOL_ERROR, &message);
                Next::Same
            }
        }
    }

    #[inline]
    fn query(&mut self, stream: i16, mut body: Body<'_>, text: &mut Text) -> Next {
        let Some(query) = body.long_string() else { return self.malformed(stream, RequestKind::Query) };
        let Some(parameters) = body.parameters(self.version) else {
            return self.malformed(stream, RequestKind::Query);
        };
        let description = if parameters.skip_metadata { Description::Omitted } else { Description::Whole };
        self.bound(stream, query, &parameters.values, description, text)
    }

    /// Answers a statement with the values of its variables.
    #[inline]
    fn bound(
        &mut self,
        stream: i16,
        query: &[u8],
        values: &[&[u8]],
        description: Description<'_>,
        text: &mut Text,
    ) -> Next {
        let mut statement = Statement::of(query);
        let whole;
        if !values.is_empty() || statement.is_of_system() {
            let Some(bound) = statement::bound(query, values) else {
                let message = format!("{} values do not match the number of variables", values.len());
                self.error(stream, code::INVALID, &message);
                return Next::Same;
            };
            // Conditions on system tables are ignored, so their values are not needed.
            if !statement.is_of_system() {
                whole = bound;
                statement = Statement::of(&whole);
            }
        }
        text.delay = statement.delay;
        text.of_system = statement.is_of_system();
        let shared = Arc::clone(self.shared);
        self.result(stream, |body| statement.answer(body, &shared.node, description));
        Next::Same
    }

    fn prepare(&mut self, stream: i16, mut body: Body<'_>, text: &mut Text) -> Next {
        let Some(query) = body.long_string() else { return self.malformed(stream, RequestKind::Prepare) };
        text.of_system = Statement::of(query).is_of_system();
        let id = statement_id(query);
        let (shared, version) = (Arc::clone(self.shared), self.version);
        self.result(stream, |body| {
            statement::prepared(query, &id, version, &shared.node, body)?;
            if shared.prepare(id, query) {
                Ok(())
            } else {
                Err(Failure(code::OVERLOADED, "too many statements are prepared".to_owned()))
            }
        });
        Next::Same
    }

    fn execute(&mut self, stream: i16, mut body: Body<'_>, text: &mut Text) -> Next {
        let Some(id) = body.short_bytes() else { return self.malformed(stream, RequestKind::Execute) };
        let Some(query) = self.shared.prepared(id) else { return self.unprepared(stream, id) };
        text.bytes = Some(Arc::clone(&query));
        let mut columns_id = id;
        if self.version > 4 {
            let Some(sent) = body.short_bytes() else { return self.malformed(stream, RequestKind::Execute) };
            columns_id = sent;
        }
        let Some(Parameters { values, skip_metadata }) = body.parameters(self.version) else {
            return self.malformed(stream, RequestKind::Execute);
        };
        // The id of a description is that of its statement.
        let description = if columns_id != id {
            Description::New(id)
        } else if skip_metadata {
            Description::Omitted
        } else {
            Description::Whole
        };
        self.bound(stream, &query, &values, description, text)
    }

    fn unprepared(&mut self, stream: i16, id: &[u8]) -> Next {
        self.message(stream, opcode::ERROR, |body| {
            body::int(body, code::UNPREPARED);
            body::string(body, "no prepared statement has this id");
            body::short_bytes(body, id);
        });
        Next::Same
    }

    /// Answers a batch, whose text is that of its statements with their values. Their replies are not sent.
    fn execute_batch(&mut self, stream: i16, mut body: Body<'_>, text: &mut Text) -> Next {
        let Some((_, count)) = body.take(1).zip(body.short()) else {
            return self.malformed(stream, RequestKind::Batch);
        };
        let mut texts = Vec::new();
        for _ in 0..count {
            let is_text = body.take(1) == Some(&[0]);
            let query = if is_text {
                body.long_string().map(Arc::from)
            } else {
                let Some(id) = body.short_bytes() else { return self.malformed(stream, RequestKind::Batch) };
                let Some(query) = self.shared.prepared(id) else { return self.unprepared(stream, id) };
                Some(query)
            };
            let Some((query, values)) = query.zip(body.values()) else {
                return self.malformed(stream, RequestKind::Batch);
            };
            // A question mark of a text may be a part of a string.
            if is_text && values.is_empty() {
                texts.push(query.to_vec());
                continue;
            }
            let Some(bound) = statement::bound(&query, &values) else {
                let message = format!("{} values do not match the number of variables", values.len());
                self.error(stream, code::INVALID, &message);
                return Next::Same;
            };
            texts.push(bound);
        }
        text.bytes = Some(texts.join(&b"; "[..]).into());
        let node = &Arc::clone(self.shared).node;
        self.result(stream, |body| Statement::of(b"void").answer(body, node, Description::Whole));
        Next::Same
    }

    fn register(&mut self, stream: i16, mut body: Body<'_>) -> Next {
        let Some(count) = body.short() else { return self.malformed(stream, RequestKind::Register) };
        let events: Option<Vec<&str>> = (0..count).map(|_| body.string()).collect();
        if events.is_some_and(|events| events.iter().all(|event| EVENTS.contains(event))) {
            self.message(stream, opcode::READY, |_| ());
        } else {
            self.error(stream, code::PROTOCOL_ERROR, "there is no such event");
        }
        Next::Same
    }

    // Handshake.

    fn supported(&mut self, stream: i16) -> Next {
        let shared = Arc::clone(self.shared);
        let versions: Vec<String> = shared.versions.iter().map(|version| format!("{version}/v{version}")).collect();
        self.message(stream, opcode::SUPPORTED, |body| {
            body::short(body, 3);
            body::string(body, "CQL_VERSION");
            body::strings(body, [super::CQL_VERSION].into_iter());
            body::string(body, "COMPRESSION");
            body::strings(body, shared.compressions.iter().map(|one| one.name()));
            body::string(body, "PROTOCOL_VERSIONS");
            body::strings(body, versions.iter().map(String::as_str));
        });
        Next::Same
    }

    fn startup(&mut self, stream: i16, mut body: Body<'_>, text: &mut Text) -> Next {
        self.shared.startups.fetch_add(1, Ordering::SeqCst);
        let mut options = Vec::new();
        // On stream 0, as Cassandra does.
        let Some(count) = body.short() else { return self.malformed(0, RequestKind::Startup) };
        for _ in 0..count {
            let (Some(key), Some(value)) = (body.string(), body.string()) else {
                return self.malformed(0, RequestKind::Startup);
            };
            options.push((key, value));
        }
        let words: Vec<String> = options.iter().map(|(key, value)| format!("{key}={value}")).collect();
        text.bytes = Some(words.join(" ").into_bytes().into());
        let option = |name| options.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let compression = option("COMPRESSION").filter(|name| !name.is_empty()).map(|name| {
            let known = self.shared.compressions.iter().copied();
            known
                .filter(|one| self.version < 5 || *one != Compression::Snappy)
                .find(|one| one.name().eq_ignore_ascii_case(name))
                .ok_or(name)
        });
        let compression = match compression.transpose() {
            Ok(compression) => compression,
            Err(name) => {
                let message = format!("no compression {name:?} in version {}", self.version);
                self.error(stream, code::PROTOCOL_ERROR, &message);
                return Next::Same;
            }
        };
        if !option("CQL_VERSION").is_some_and(is_cql_version) {
            self.error(stream, code::PROTOCOL_ERROR, "CQL_VERSION is absent or not supported");
            // Cassandra sends segments after any STARTUP that it could decode.
            return if self.version < 5 { Next::Same } else { Next::Framed(Framing::of(self.version, compression)) };
        }
        if self.shared.credentials.is_some() {
            self.stage = Stage::Authenticating;
            self.message(stream, opcode::AUTHENTICATE, |body| {
                body::string(body, "org.apache.cassandra.auth.PasswordAuthenticator");
            });
        } else {
            self.stage = Stage::Ready;
            self.message(stream, opcode::READY, |_| ());
        }
        Next::Framed(Framing::of(self.version, compression))
    }

    fn authenticate(&mut self, stream: i16, mut body: Body<'_>) -> Next {
        let token = body.bytes().flatten().unwrap_or_default();
        let mut parts = token.splitn(3, |byte| *byte == 0);
        let (_, user, password) = (parts.next(), parts.next(), parts.next());
        let is_right = self.shared.credentials.as_ref().is_some_and(|(right_user, right_password)| {
            user == Some(right_user.as_bytes()) && password == Some(right_password.as_bytes())
        });
        if is_right {
            self.stage = Stage::Ready;
            self.message(stream, opcode::AUTH_SUCCESS, |body| body::int(body, -1));
        } else {
            self.error(stream, code::BAD_CREDENTIALS, "user name or password is wrong");
        }
        Next::Same
    }

    /// Sends an error with the supported versions, encoded in the newest of them, or in the requested version if
    /// that is an old one or one that is not released.
    fn refuse_version(&mut self, number: u8) -> Result<(), End> {
        let spoken: Vec<String> = self.shared.versions.iter().map(|version| format!("{version}/v{version}")).collect();
        let message = format!(
            "Invalid or unsupported protocol version ({number}); supported versions are ({})",
            spoken.join(", ")
        );
        let start = self.batch.len();
        self.refuse(0, code::PROTOCOL_ERROR, &message);
        let (beta_flag, beta) = BETA;
        if number == beta {
            self.batch[start..start + 2].copy_from_slice(&[REPLY | number, beta_flag]);
        } else if matches!(number, 1 | 2) {
            // The stream has one byte.
            self.batch[start] = REPLY | number;
            self.batch.remove(start + 2);
        }
        self.flush()
    }

    fn note(&mut self, kind: RequestKind, stream: i16, mut body: Body<'_>, text: &Text) {
        let bytes = text.bytes.as_deref().unwrap_or_else(|| plain_text(kind, body));
        let bytes = bytes.get(..LOG_TEXT_BYTES).unwrap_or(bytes);
        let has_metadata_id = kind == RequestKind::Execute && self.version > 4;
        let metadata_id = if has_metadata_id { body.short_bytes().and_then(|_| body.short_bytes()) } else { None };
        self.log.push(Received {
            connection: self.link.id,
            version: self.version,
            kind,
            stream,
            text: String::from_utf8_lossy(bytes).into_owned(),
            metadata_id: metadata_id.unwrap_or_default().to_vec(),
        });
        if self.log.len() > self.shared.log_max {
            self.shared.append_log(&mut self.log);
        }
    }
}

/// Whether a version of CQL is supported: a number from 3 on, a dot, and further numbers.
fn is_cql_version(text: &str) -> bool {
    let numbers: Option<Vec<u32>> = text.split('.').map(|number| number.parse().ok()).collect();
    numbers.is_some_and(|numbers| numbers.len() > 1 && numbers[0] >= 3)
}

/// Properties of a request's text.
#[derive(Debug, Default)]
struct Text {
    /// The text, if it is not contained in the body.
    bytes: Option<Arc<[u8]>>,
    delay: Duration,
    of_system: bool,
}

/// Returns the id of a prepared statement, the same on all servers of the process.
fn statement_id(query: &[u8]) -> [u8; 16] {
    let mut hasher = DefaultHasher::new();
    let mut hash = || {
        hasher.write(query);
        hasher.finish()
    };
    (u128::from(hash()) << 64 | u128::from(hash())).to_be_bytes()
}

/// Returns the text at the start of a QUERY or a PREPARE; empty for other requests.
fn plain_text(kind: RequestKind, mut body: Body<'_>) -> &[u8] {
    match kind {
        RequestKind::Query | RequestKind::Prepare => body.long_string().unwrap_or_default(),
        RequestKind::Startup
        | RequestKind::Options
        | RequestKind::Execute
        | RequestKind::Register
        | RequestKind::Batch
        | RequestKind::AuthResponse => &[],
    }
}
