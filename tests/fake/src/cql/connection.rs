//! The thread of a connection: reads, decodes and answers requests.

use alloc::sync::Arc;
use core::hash::Hasher as _;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::hash::DefaultHasher;
use std::io::{self, Read};

use poolhouse_cql::{
    BodyWriter, Compression, CqlEncodeError, Decoder, Direction, Encoder, Envelope, ErrorCode, Flags, Limits, Opcode,
    Outgoing, Version, encode_envelope,
};

use super::body::Body;
use super::link::{Damage, Link, Reply};
use super::rule::{Act, Cut, RequestFacts, Script};
use super::shared::{Received, Shared};
use super::statement::{self, Answer, Statement};

/// Length of the shortest header, that of the oldest version: version, flags, stream, opcode.
const FRONT_BYTES: usize = 8;
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

impl From<CqlEncodeError> for End {
    /// A reply never exceeds the limits of the protocol.
    fn from(_: CqlEncodeError) -> Self {
        Self::Io
    }
}

/// The change of the connection's state after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Same,
    /// STARTUP was answered; it requested this compression.
    Started(Option<Compression>),
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
    version: Version,
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
            version: shared.node.version,
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
        while front.len() < FRONT_BYTES {
            let count = self.read(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            front.extend_from_slice(&buffer[..count]);
        }
        let number = front[0];
        let Some(version) = Version::from_number(number).filter(|version| self.shared.versions.contains(version))
        else {
            return self.refuse_version(&front);
        };
        self.version = version;
        self.link.set_version(version);
        let mut decoder = Decoder::new(version, Direction::Request, Limits::DEFAULT, Vec::new(), Vec::new());
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
    fn take(&mut self, decoder: &mut Decoder<Vec<u8>>, mut input: &[u8]) -> Result<(), End> {
        loop {
            let step = match decoder.decode(input) {
                Ok(step) => step,
                Err(error) => {
                    self.flush()?;
                    let message = format!("{error}");
                    self.error(0, ErrorCode::PROTOCOL_ERROR, &message)?;
                    self.batched = 0;
                    self.flush()?;
                    return Err(End::Cut(Cut::Close));
                }
            };
            input = input.get(step.consumed_bytes..).unwrap_or_default();
            let Some(envelope) = step.envelope else { break };
            if let Next::Started(compression) = self.handle(envelope)? {
                decoder.set_compression(compression);
                decoder.set_started();
            }
        }
        self.flush()
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
    fn handle(&mut self, envelope: Envelope<'_>) -> Result<Next, End> {
        self.uncounted += 1;
        let number = self.shared.script_number();
        if number != self.script_number {
            self.script = self.shared.script();
            self.script_number = number;
        }
        let Envelope { header, body } = envelope;
        let mut body = Body(body);
        if header.flags.contains(Flags::CUSTOM_PAYLOAD) {
            // Without the map the request is malformed, which is detected below.
            let _ = body.skip_bytes_map();
        }
        let start = self.batch.len();
        let stage = self.stage;
        let mut text = Text::default();
        let next = self.answer(header.opcode, header.stream, body, &mut text)?;
        self.batched += 1;
        if self.shared.log_max > 0 {
            self.note(&envelope, body, &text);
        }

        let is_statement = matches!(header.opcode, Opcode::Query | Opcode::Prepare | Opcode::Execute | Opcode::Batch)
            && stage == Stage::Ready
            && !text.of_system;
        if self.script.rules.is_empty() && text.delay.is_zero() && next == Next::Same {
            return Ok(next);
        }

        let looked = RequestFacts {
            opcode: header.opcode,
            text: text.bytes.as_deref().unwrap_or_else(|| plain_text(header.opcode, body)),
            is_statement,
        };
        let script = Arc::clone(&self.script);
        let act = script.act(&looked);
        if act.is_none() && text.delay.is_zero() && next == Next::Same {
            return Ok(next);
        }
        // The other replies are sent first; this one is sent separately.
        let envelopes = self.batch.split_off(start);
        self.batched -= 1;
        self.flush()?;
        let reply = Reply { envelopes, plain: matches!(stage, Stage::New), damage: None };
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
        if let Next::Started(compression) = next {
            self.link.set_encoder(Encoder::new(self.version, compression));
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
                reply.envelopes[0] = 0x80 | number;
                self.link.send_reply(&reply)?;
            }
            Act::Direction => {
                reply.envelopes[0] &= 0x7f;
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
                self.error(stream, *code, message)?;
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

    fn message(
        &mut self,
        stream: i16,
        opcode: Opcode,
        write: impl FnOnce(&mut BodyWriter<'_, Vec<u8>>) -> Result<(), CqlEncodeError>,
    ) -> Result<(), End> {
        let outgoing = Outgoing::new(self.version, stream);
        encode_envelope(&mut self.batch, outgoing, opcode, &Limits::DEFAULT, write)?;
        Ok(())
    }

    fn error(&mut self, stream: i16, code: ErrorCode, message: &str) -> Result<(), End> {
        self.message(stream, Opcode::Error, |body| {
            body.int(code.number())?.string(message)?;
            Ok(())
        })
    }

    /// Appends a RESULT. Its body is written directly into the batch, and removed again if the
    /// statement fails.
    fn result(&mut self, stream: i16, statement: &Statement<'_>) -> Result<(), End> {
        let start = self.batch.len();
        let outgoing = Outgoing::new(self.version, stream);
        let length = encode_envelope(&mut self.batch, outgoing, Opcode::Result, &Limits::DEFAULT, |_| Ok(()))?;
        match statement.answer(&mut self.batch, &self.shared.node) {
            Answer::Result => {
                let length = self.batch.len() - start - length;
                // At most 64 MiB.
                let length = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
                self.batch[start + 5..start + 9].copy_from_slice(&length);
                Ok(())
            }
            Answer::Failed(code, message) => {
                self.batch.truncate(start);
                self.error(stream, code, &message)
            }
        }
    }

    fn malformed(&mut self, stream: i16, opcode: Opcode) -> Result<Next, End> {
        self.error(stream, ErrorCode::PROTOCOL_ERROR, &format!("the body of {opcode} is malformed"))?;
        Ok(Next::Same)
    }

    /// Appends the reply to a request.
    fn answer(&mut self, opcode: Opcode, stream: i16, body: Body<'_>, text: &mut Text) -> Result<Next, End> {
        match (opcode, self.stage) {
            (Opcode::Query, Stage::Ready) => self.query(stream, body, text),
            (Opcode::Execute, Stage::Ready) => self.execute(stream, body, text),
            (Opcode::Options, _) => self.supported(stream),
            (Opcode::Startup, Stage::New) => self.startup(stream, body, text),
            (Opcode::AuthResponse, Stage::Authenticating) => self.authenticate(stream, body),
            (Opcode::Prepare, Stage::Ready) => self.prepare(stream, body, text),
            (Opcode::Batch, Stage::Ready) => {
                self.result(stream, &Statement::of(b"void"))?;
                Ok(Next::Same)
            }
            (Opcode::Register, Stage::Ready) => {
                self.message(stream, Opcode::Ready, |_| Ok(()))?;
                Ok(Next::Same)
            }
            (other, stage) => {
                let message = format!("{other} is not allowed in this state of the connection: {stage:?}");
                self.error(stream, ErrorCode::PROTOCOL_ERROR, &message)?;
                Ok(Next::Same)
            }
        }
    }

    #[inline]
    fn query(&mut self, stream: i16, mut body: Body<'_>, text: &mut Text) -> Result<Next, End> {
        let Some(query) = body.long_string() else { return self.malformed(stream, Opcode::Query) };
        let Some(values) = body.values(self.version) else { return self.malformed(stream, Opcode::Query) };
        if values.is_empty() {
            return self.state(stream, query, text);
        }
        self.bound(stream, query, &values, text)
    }

    fn state(&mut self, stream: i16, query: &[u8], text: &mut Text) -> Result<Next, End> {
        let statement = Statement::of(query);
        text.delay = statement.delay;
        text.of_system = statement.is_of_system();
        self.result(stream, &statement)?;
        Ok(Next::Same)
    }

    fn bound(&mut self, stream: i16, query: &[u8], values: &[&[u8]], text: &mut Text) -> Result<Next, End> {
        // Values are not bound for statements on system tables.
        if Statement::of(query).is_of_system() {
            return self.state(stream, query, text);
        }
        let Some(whole) = statement::bound(query, values) else {
            let message = format!("{} values do not match the number of variables", values.len());
            self.error(stream, ErrorCode::INVALID, &message)?;
            return Ok(Next::Same);
        };
        self.state(stream, &whole, text)
    }

    fn prepare(&mut self, stream: i16, mut body: Body<'_>, text: &mut Text) -> Result<Next, End> {
        let Some(query) = body.long_string() else { return self.malformed(stream, Opcode::Prepare) };
        text.of_system = Statement::of(query).is_of_system();
        let id = statement_id(query);
        if !self.shared.prepare(id, query) {
            self.error(stream, ErrorCode::OVERLOADED, "too many statements are prepared")?;
            return Ok(Next::Same);
        }
        let mut result = Vec::new();
        match statement::prepared(query, &id, self.version, &mut result) {
            Some(()) => self.message(stream, Opcode::Result, |body| body.raw(&result).map(drop))?,
            None => self.error(stream, ErrorCode::INVALID, "the statement has too many variables")?,
        }
        Ok(Next::Same)
    }

    fn execute(&mut self, stream: i16, mut body: Body<'_>, text: &mut Text) -> Result<Next, End> {
        let Some(id) = body.short_bytes() else { return self.malformed(stream, Opcode::Execute) };
        let Some(query) = self.shared.prepared(id) else {
            self.message(stream, Opcode::Error, |body| {
                let code = ErrorCode::UNPREPARED.number();
                body.int(code)?.string("no prepared statement has this id")?.short_bytes(id)?;
                Ok(())
            })?;
            return Ok(Next::Same);
        };
        text.bytes = Some(Arc::clone(&query));
        if self.version == Version::V5 && body.short_bytes().is_none() {
            return self.malformed(stream, Opcode::Execute);
        }
        match body.values(self.version) {
            Some(values) => self.bound(stream, &query, &values, text),
            None => self.malformed(stream, Opcode::Execute),
        }
    }

    // Handshake.

    fn supported(&mut self, stream: i16) -> Result<Next, End> {
        let shared = Arc::clone(self.shared);
        let versions: Vec<String> = shared.versions.iter().map(|version| format!("{version}/v{version}")).collect();
        self.message(stream, Opcode::Supported, |body| {
            body.short(3)?;
            body.string("CQL_VERSION")?.strings([super::CQL_VERSION].into_iter())?;
            body.string("COMPRESSION")?.strings(shared.compressions.iter().map(|one| one.name()))?;
            body.string("PROTOCOL_VERSIONS")?.strings(versions.iter().map(String::as_str))?;
            Ok(())
        })?;
        Ok(Next::Same)
    }

    fn startup(&mut self, stream: i16, mut body: Body<'_>, text: &mut Text) -> Result<Next, End> {
        self.shared.startups.fetch_add(1, Ordering::SeqCst);
        let mut options = Vec::new();
        let Some(count) = body.short() else { return self.malformed(stream, Opcode::Startup) };
        for _ in 0..count {
            let (Some(key), Some(value)) = (body.string(), body.string()) else {
                return self.malformed(stream, Opcode::Startup);
            };
            options.push((key, value));
        }
        let words: Vec<String> = options.iter().map(|(key, value)| format!("{key}={value}")).collect();
        text.bytes = Some(words.join(" ").into_bytes().into());
        if !options.iter().any(|(key, _)| *key == "CQL_VERSION") {
            self.error(stream, ErrorCode::PROTOCOL_ERROR, "STARTUP lacks CQL_VERSION")?;
            return Ok(Next::Same);
        }
        let asked = options.iter().find(|(key, _)| *key == "COMPRESSION").map(|(_, value)| *value);
        let compression = asked.filter(|name| !name.is_empty()).map(|name| {
            let known = self.shared.compressions.iter().copied();
            known.filter(|one| one.is_in(self.version)).find(|one| one.name().eq_ignore_ascii_case(name)).ok_or(name)
        });
        let compression = match compression.transpose() {
            Ok(compression) => compression,
            Err(name) => {
                let message = format!("no compression {name:?} in version {}", self.version);
                self.error(stream, ErrorCode::PROTOCOL_ERROR, &message)?;
                return Ok(Next::Same);
            }
        };
        if self.shared.credentials.is_some() {
            self.stage = Stage::Authenticating;
            self.message(stream, Opcode::Authenticate, |body| {
                body.string("org.apache.cassandra.auth.PasswordAuthenticator").map(drop)
            })?;
        } else {
            self.stage = Stage::Ready;
            self.message(stream, Opcode::Ready, |_| Ok(()))?;
        }
        Ok(Next::Started(compression))
    }

    fn authenticate(&mut self, stream: i16, mut body: Body<'_>) -> Result<Next, End> {
        let token = body.bytes().flatten().unwrap_or_default();
        let shared = Arc::clone(self.shared);
        let mut parts = token.splitn(3, |byte| *byte == 0);
        let (_, user, password) = (parts.next(), parts.next(), parts.next());
        let is_right = shared.credentials.as_ref().is_some_and(|(right_user, right_password)| {
            user == Some(right_user.as_bytes()) && password == Some(right_password.as_bytes())
        });
        if is_right {
            self.stage = Stage::Ready;
            self.message(stream, Opcode::AuthSuccess, |body| body.bytes(None).map(drop))?;
        } else {
            self.error(stream, ErrorCode::BAD_CREDENTIALS, "user name or password is wrong")?;
        }
        Ok(Next::Same)
    }

    /// Sends an error with the supported versions, encoded in the newest of them, and ends the
    /// connection.
    fn refuse_version(&mut self, front: &[u8]) -> Result<(), End> {
        let number = front[0];
        let spoken: Vec<String> = self.shared.versions.iter().map(|version| format!("{version}/v{version}")).collect();
        let message = format!(
            "Invalid or unsupported protocol version ({number}); supported versions are ({})",
            spoken.join(", ")
        );
        // In versions 1 and 2 stream ids have one byte.
        let stream = if number < 3 { 0 } else { i16::from_be_bytes([front[2], front[3]]).max(0) };
        self.uncounted += 1;
        self.batched += 1;
        self.error(stream, ErrorCode::PROTOCOL_ERROR, &message)?;
        self.flush()?;
        Err(End::Cut(Cut::Close))
    }

    fn note(&mut self, envelope: &Envelope<'_>, mut body: Body<'_>, text: &Text) {
        let bytes = text.bytes.as_deref().unwrap_or_else(|| plain_text(envelope.header.opcode, body));
        let bytes = bytes.get(..LOG_TEXT_BYTES).unwrap_or(bytes);
        let has_metadata_id = envelope.header.opcode == Opcode::Execute && self.version == Version::V5;
        let metadata_id = if has_metadata_id { body.short_bytes().and_then(|_| body.short_bytes()) } else { None };
        self.log.push(Received {
            connection: self.link.id,
            version: self.version,
            opcode: envelope.header.opcode,
            stream: envelope.header.stream,
            text: String::from_utf8_lossy(bytes).into_owned(),
            metadata_id: metadata_id.unwrap_or_default().to_vec(),
        });
        if self.log.len() > self.shared.log_max {
            self.shared.append_log(&mut self.log);
        }
    }
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
fn plain_text(opcode: Opcode, mut body: Body<'_>) -> &[u8] {
    match opcode {
        Opcode::Query | Opcode::Prepare => body.long_string().unwrap_or_default(),
        Opcode::Error
        | Opcode::Startup
        | Opcode::Ready
        | Opcode::Authenticate
        | Opcode::Options
        | Opcode::Supported
        | Opcode::Result
        | Opcode::Execute
        | Opcode::Register
        | Opcode::Event
        | Opcode::Batch
        | Opcode::AuthChallenge
        | Opcode::AuthResponse
        | Opcode::AuthSuccess => &[],
    }
}
