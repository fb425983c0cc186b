//! One connection of the fake server, as a task of its thread.

mod output;
#[cfg_attr(not(feature = "tls"), path = "connection/no_tls.rs")]
mod tls;

use alloc::rc::Rc;
use alloc::sync::Arc;
use core::cell::Cell;
use core::future::{Future, pending, poll_fn};
use core::pin::{Pin, pin};
use core::task::Poll;
use core::time::Duration;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use async_io::{Async, Timer};
use bson::Document;
use event_listener::EventListener;

use super::commands::{self, Outcome};
use super::compress::{Algorithm, OP_COMPRESSED, ReplyCompression, compressed, is_forbidden};
use super::fail_point::Verdict;
use super::fault::{Cut, FaultKind};
use super::shared::{Ended, Entry, Order, Shared};
use super::wire::{self, BadInput, CHECKSUM_PRESENT, EXHAUST_ALLOWED, Form, HEADER_BYTES, MORE_TO_COME, Message};

pub(crate) use self::tls::{TlsConfig, TlsSocket, config as tls_config};

/// Size of a read buffer until a message needs more.
const INPUT_BYTES: usize = 4096;
/// A buffer larger than this is freed after its message.
const KEEP_BYTES: usize = 64 * 1024;
/// Offset of the body in an OP_MSG whose first section is of kind 0.
const BODY_AT: usize = HEADER_BYTES + 5;
/// The body `{ok: 1.0}`.
const OK_BODY: [u8; 17] = [17, 0, 0, 0, 1, b'o', b'k', 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0];

/// A socket of either family, or TLS on a TCP socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(Async<TcpStream>),
    Tls(TlsSocket),
    Unix(Async<UnixStream>),
}

impl Stream {
    async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read_with(|mut stream| stream.read(buffer)).await,
            Self::Tls(stream) => stream.read(buffer).await,
            Self::Unix(stream) => stream.read_with(|mut stream| stream.read(buffer)).await,
        }
    }

    async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write_with(|mut stream| stream.write(bytes)).await,
            Self::Tls(stream) => stream.write(bytes).await,
            Self::Unix(stream) => stream.write_with(|mut stream| stream.write(bytes)).await,
        }
    }

    /// Shuts down the sending side. Unread bytes are dropped: otherwise the kernel would send a
    /// reset, which may overtake the bytes before the end. An error means that the peer has already
    /// closed. Under TLS this is an end without close_notify.
    pub(crate) fn finish(&self) {
        const DROPPED_BYTES_MAX: usize = 1024 * 1024;
        let _ = match self {
            Self::Tcp(stream) | Self::Tls(TlsSocket { socket: stream, .. }) => {
                stream.get_ref().shutdown(std::net::Shutdown::Write)
            }
            Self::Unix(stream) => stream.get_ref().shutdown(std::net::Shutdown::Write),
        };
        let mut piece = [0; 4096];
        let mut dropped = 0;
        while dropped < DROPPED_BYTES_MAX {
            let read = match self {
                Self::Tcp(stream) | Self::Tls(TlsSocket { socket: stream, .. }) => stream.get_ref().read(&mut piece),
                Self::Unix(stream) => stream.get_ref().read(&mut piece),
            };
            match read {
                Ok(count) if count > 0 => dropped += count,
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Makes closing send a reset. A unix socket has no resets and is only closed.
    pub(crate) fn reset_on_close(&self) {
        if let Self::Tcp(stream) | Self::Tls(TlsSocket { socket: stream, .. }) = self {
            // Fails only on a socket that is already closed.
            let _ = rustix::net::sockopt::set_socket_linger(stream.get_ref(), Some(Duration::ZERO));
        }
    }
}

/// State shared by the connections of one server, on its thread.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) shared: Arc<Shared>,
    pub(crate) message_bytes_max: usize,
    /// Bytes by which input buffers may still grow, all connections together.
    pub(crate) buffer_bytes_left: Cell<usize>,
    pub(crate) request_id: Cell<i32>,
}

impl Common {
    fn next_request_id(&self) -> i32 {
        let id = self.request_id.get().wrapping_add(1);
        self.request_id.set(id);
        id
    }
}

type Step<T> = Result<T, Ended>;

impl From<BadInput> for Ended {
    fn from(bad: BadInput) -> Self {
        Self::BadInput(bad)
    }
}

#[derive(Debug)]
enum Woken {
    Read,
    Control,
    Time,
}

/// Counts a waiting hello until it is dropped.
struct Awaiting<'a> {
    shared: &'a Shared,
    exhaust: bool,
}

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.shared.with(|inner| inner.await_ended(self.exhaust));
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    id: u64,
    common: Rc<Common>,
    stream: Rc<Stream>,
    input: Vec<u8>,
    start: usize,
    end: usize,
    out: Vec<u8>,
    sent_bytes: u64,
    listener: EventListener,
    /// The connection ends before the next request, or before the next reply of a stream.
    closing: bool,
    app_name: Option<String>,
    /// The body of the last ping that was fully decoded; identical bytes are not decoded again.
    ping: Vec<u8>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.return_input();
    }
}

impl Connection {
    pub(crate) fn new(id: u64, common: Rc<Common>, stream: Rc<Stream>) -> Self {
        let listener = common.shared.listen();
        Self {
            id,
            common,
            stream,
            input: vec![0; INPUT_BYTES],
            start: 0,
            end: 0,
            out: Vec::with_capacity(INPUT_BYTES),
            sent_bytes: 0,
            listener,
            closing: false,
            app_name: None,
            ping: Vec::new(),
        }
    }

    /// Serves the connection to its end and returns the reason for the end.
    pub(crate) async fn run(&mut self) -> Ended {
        loop {
            if let Err(ended) = self.serve_all().await {
                return ended;
            }
        }
    }

    async fn serve_all(&mut self) -> Step<()> {
        self.run_orders().await?;
        loop {
            let length = self.next_frame().await?;
            if self.quick_ping(length) {
                self.send("ping").await?;
                continue;
            }
            let message = wire::decode(&self.input[self.start..self.start + length])?;
            if message.form == Form::Reply {
                return Err(BadInput::OpCode(wire::OP_REPLY).into());
            }
            self.check_compressed(&message, length)?;
            self.remember_ping(&message, length);
            self.consume(length);
            self.serve(message, length).await?;
        }
    }

    // Input.

    async fn next_frame(&mut self) -> Step<usize> {
        loop {
            self.check_closing()?;
            let header = wire::header(&self.input[self.start..self.end], self.common.message_bytes_max)?;
            let needed = match header {
                None => HEADER_BYTES,
                Some(header) if !matches!(header.op_code, wire::OP_MSG | wire::OP_QUERY | OP_COMPRESSED) => {
                    return Err(BadInput::OpCode(header.op_code).into());
                }
                Some(header) if self.end - self.start >= header.length => return Ok(header.length),
                Some(header) => header.length,
            };
            self.make_room(needed)?;
            match self.wait(None).await? {
                Woken::Read | Woken::Time => {}
                Woken::Control => self.run_orders().await?,
            }
        }
    }

    /// Makes room for further input. The buffer at most doubles, so it grows only in proportion to
    /// the received bytes.
    fn make_room(&mut self, needed: usize) -> Step<()> {
        if self.end < self.input.len() && self.start == 0 {
            return Ok(());
        }
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            return Ok(());
        }
        let length = (self.input.len() * 2).min(needed.max(INPUT_BYTES));
        let growth = length - self.input.len();
        let left = self.common.buffer_bytes_left.get();
        let left = left.checked_sub(growth).ok_or(BadInput::Memory)?;
        self.common.buffer_bytes_left.set(left);
        self.input.resize(length, 0);
        Ok(())
    }

    fn consume(&mut self, length: usize) {
        self.start += length;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.input.len() > KEEP_BYTES {
                self.return_input();
                self.input = vec![0; INPUT_BYTES];
            }
        }
    }

    fn return_input(&self) {
        let left = &self.common.buffer_bytes_left;
        left.set(left.get() + self.input.len().saturating_sub(INPUT_BYTES));
    }

    /// Waits for bytes (if there is room for them), for an order, or until `until`.
    async fn wait(&mut self, until: Option<Instant>) -> Step<Woken> {
        let Self { input, end, stream, listener, .. } = self;
        let woken = {
            let room = &mut input[*end..];
            let mut read = pin!(async { if room.is_empty() { pending().await } else { stream.read(room).await } });
            let mut timer = until.map(Timer::at);
            poll_fn(|cx| {
                if let Poll::Ready(read) = read.as_mut().poll(cx) {
                    return Poll::Ready(Ok(read));
                }
                if Pin::new(&mut *listener).poll(cx).is_ready() {
                    return Poll::Ready(Err(Woken::Control));
                }
                if timer.as_mut().is_some_and(|timer| Pin::new(timer).poll(cx).is_ready()) {
                    return Poll::Ready(Err(Woken::Time));
                }
                Poll::Pending
            })
            .await
        };
        match woken {
            Ok(Ok(0)) => Err(Ended::ByClient),
            Ok(Ok(count)) => {
                *end += count;
                Ok(Woken::Read)
            }
            Ok(Err(error)) => Err(Ended::Io(error.to_string())),
            Err(woken) => {
                if matches!(woken, Woken::Control) {
                    *listener = self.common.shared.listen();
                }
                Ok(woken)
            }
        }
    }

    /// Executes orders; blocks while the server is frozen.
    async fn run_orders(&mut self) -> Step<()> {
        loop {
            let (frozen, orders) = self.common.shared.with(|inner| {
                let orders = if inner.frozen { None } else { inner.orders.remove(&self.id) };
                (inner.frozen, orders)
            });
            for order in orders.unwrap_or_default() {
                match order {
                    Order::Cut(by) => return Err(self.cut(by, FaultKind::CutNow)),
                    Order::Close => self.closing = true,
                }
            }
            if !frozen {
                return Ok(());
            }
            (&mut self.listener).await;
            self.listener = self.common.shared.listen();
        }
    }

    /// Waits for `time`; returns early only if the connection ends.
    async fn pause(&mut self, time: Duration) -> Step<()> {
        let Some(until) = Instant::now().checked_add(time) else { return self.mute().await };
        loop {
            match self.wait(Some(until)).await? {
                Woken::Read => {}
                Woken::Control => self.run_orders().await?,
                Woken::Time => return self.run_orders().await,
            }
        }
    }

    /// Sends no further bytes; received bytes are dropped.
    async fn mute<T>(&mut self) -> Step<T> {
        loop {
            (self.start, self.end) = (0, 0);
            match self.wait(None).await? {
                Woken::Read | Woken::Time => {}
                Woken::Control => self.run_orders().await?,
            }
        }
    }

    fn check_closing(&self) -> Step<()> {
        if self.closing { Err(self.cut(Cut::Fin, FaultKind::CutNow)) } else { Ok(()) }
    }

    // Compression.

    /// Checks that the algorithm of a compressed message was negotiated, and that the command may
    /// be compressed.
    fn check_compressed(&self, message: &Message, length: usize) -> Step<()> {
        let Some(algorithm) = message.algorithm else { return Ok(()) };
        let name = message.body.keys().next().map_or("", String::as_str);
        if is_forbidden(name) {
            return Err(BadInput::Compressed("a command that must not be").into());
        }
        let agreed = self.common.shared.with(|inner| {
            let agreed = inner.open_mut(self.id).is_some_and(|info| info.compressors.contains(&algorithm));
            if agreed {
                inner.note_compressed(algorithm, false, message.header.length, length);
            }
            agreed
        });
        if agreed { Ok(()) } else { Err(BadInput::Compressed("not agreed on").into()) }
    }

    /// Compresses the reply in the output buffer if required.
    fn compress_reply(&mut self, asked: Option<Algorithm>) {
        let (id, reply) = (self.id, &mut self.out);
        self.common.shared.with(|inner| {
            let algorithm = match inner.state.reply_compression {
                ReplyCompression::AsAsked => asked,
                ReplyCompression::Always => inner.open_mut(id).and_then(|info| info.compressors.first().copied()),
                ReplyCompression::Never => None,
            };
            if let Some(algorithm) = algorithm {
                let packed = compressed(algorithm, reply);
                inner.note_compressed(algorithm, true, reply.len(), packed.len());
                *reply = packed;
            }
        });
    }

    // Commands.

    /// Answers a ping whose body was seen before; returns true if its reply is in the output
    /// buffer.
    fn quick_ping(&mut self, length: usize) -> bool {
        let frame = &self.input[self.start..self.start + length];
        let alike = frame.len() == BODY_AT + self.ping.len()
            && !self.ping.is_empty()
            && frame[12..16] == wire::OP_MSG.to_le_bytes()
            && frame[HEADER_BYTES..BODY_AT] == [0; 5]
            && frame[BODY_AT..] == self.ping;
        if !alike {
            return false;
        }
        let request_id = wire::i32_at(frame, 4);
        let entry = Entry { request_id, flags: Some(0), algorithm: None, name: "ping", body: &self.ping };
        let taken = self.common.shared.with(|inner| {
            let always = inner.state.reply_compression == ReplyCompression::Always;
            let plain = !inner.frozen && !always && inner.fail_points.is_empty();
            if plain {
                inner.record(self.id, entry);
            }
            plain
        });
        if taken {
            self.consume(length);
            let reply_id = self.common.next_request_id();
            self.out.clear();
            self.out.extend_from_slice(&[38, 0, 0, 0]);
            self.out.extend_from_slice(&reply_id.to_le_bytes());
            self.out.extend_from_slice(&request_id.to_le_bytes());
            self.out.extend_from_slice(&wire::OP_MSG.to_le_bytes());
            self.out.extend_from_slice(&[0; 5]);
            self.out.extend_from_slice(&OK_BODY);
        }
        taken
    }

    fn remember_ping(&mut self, message: &Message, length: usize) {
        const PING_BYTES_MAX: usize = 512;
        let frame = &self.input[self.start..self.start + length];
        let plain = message.form == Form::Msg { flags: 0 }
            && message.algorithm.is_none()
            && length <= PING_BYTES_MAX
            && frame[BODY_AT - 1] == 0
            && message.body.keys().next().is_some_and(|name| name == "ping")
            && message.body.get_str("$db").is_ok()
            && usize::try_from(wire::i32_at(frame, BODY_AT)) == Ok(length - BODY_AT);
        if plain {
            self.ping.clear();
            self.ping.extend_from_slice(&frame[BODY_AT..]);
        }
    }

    /// Serves one request: one reply, no reply, or replies until the connection ends.
    async fn serve(&mut self, message: Message, length: usize) -> Step<()> {
        let name = message.body.keys().next().cloned().unwrap_or_default();
        let flags = if message.has(CHECKSUM_PRESENT) { CHECKSUM_PRESENT } else { 0 };
        let mut message = message;
        let mut response_to = message.header.request_id;
        loop {
            let (reply, more) = match self.execute(&name, &message, length).await? {
                Ok(reply) => {
                    let more = commands::is_hello(&name)
                        && message.has(EXHAUST_ALLOWED)
                        && message.body.contains_key("topologyVersion")
                        && message.body.contains_key("maxAwaitTimeMS")
                        && reply.get_document("topologyVersion").is_ok()
                        && reply.get("ok").and_then(super::errors::number) == Some(1.0);
                    (reply, more)
                }
                Err(refusal) => (refusal, false),
            };
            if message.has(MORE_TO_COME) && !self.has_unwanted_reply(&name) {
                return Ok(());
            }
            let reply_id = self.common.next_request_id();
            let more_flag = if more { MORE_TO_COME } else { 0 };
            match message.form {
                Form::Msg { .. } => wire::encode_msg(&mut self.out, reply_id, response_to, flags | more_flag, &reply),
                Form::Query | Form::Reply => wire::encode_reply(&mut self.out, reply_id, response_to, &reply),
            }
            self.compress_reply(message.algorithm);
            self.send(&name).await?;
            if !more {
                return Ok(());
            }
            self.check_closing()?;
            message.body.remove("client");
            if let Some(version) = reply.get("topologyVersion") {
                message.body.insert("topologyVersion", version.clone());
            }
            response_to = reply_id;
        }
    }

    /// Executes a command once: logs it, evaluates the fail points, runs it. The reply to a refusal
    /// is built under the same lock as the decision, so that its topologyVersion belongs to that
    /// state.
    async fn execute(&mut self, name: &str, message: &Message, length: usize) -> Step<Result<Document, Document>> {
        let flags = match message.form {
            Form::Msg { flags } => Some(flags),
            Form::Query | Form::Reply => None,
        };
        let bytes = if length <= KEEP_BYTES { message.body.to_vec().unwrap_or_default() } else { Vec::new() };
        let Message { header, algorithm, .. } = message;
        let entry = Entry { request_id: header.request_id, flags, algorithm: *algorithm, name, body: &bytes };
        let (verdict, metadata) = loop {
            self.run_orders().await?;
            let begun = self.common.shared.with(|inner| {
                if inner.frozen {
                    return None;
                }
                inner.record(self.id, entry);
                let metadata = match commands::is_hello(name) {
                    true => commands::store_metadata(inner, self.id, &message.body),
                    false => Ok(()),
                };
                let app_name = inner.open_mut(self.id).and_then(|info| info.app_name.clone());
                let random = inner.entropy();
                let verdict = inner.fail_points.judge(name, app_name.as_deref(), || random);
                self.app_name = app_name;
                Some((verdict, metadata))
            });
            if let Some(begun) = begun {
                break begun;
            }
        };
        self.apply(&verdict).await?;
        let outcome = self.common.shared.with(|inner| {
            let outcome = match (&verdict.error, metadata) {
                (Some(error), _) => Err(error.clone()),
                (None, Err(error)) => Err(error),
                (None, Ok(())) => commands::run(inner, self.id, name, message),
            };
            outcome.map_err(|error| inner.refusal(error, &message.body))
        });
        let mut reply = match outcome {
            Err(refusal) => return Ok(Err(refusal)),
            Ok(Outcome::Reply(reply)) => reply,
            Ok(Outcome::Await { time }) => self.await_change(name, message, time).await?,
        };
        verdict.amend(&mut reply);
        Ok(Ok(reply))
    }

    async fn apply(&mut self, verdict: &Verdict) -> Step<()> {
        if let Some(time) = verdict.block {
            self.pause(time).await?;
        }
        if verdict.close {
            self.stream.finish();
            return Err(Ended::FailPoint);
        }
        Ok(())
    }

    /// Waits until the topologyVersion differs from that of the request, or until the timeout.
    async fn await_change(&mut self, name: &str, message: &Message, time: Duration) -> Step<Document> {
        let common = Rc::clone(&self.common);
        let exhaust = message.has(EXHAUST_ALLOWED);
        common.shared.with(|inner| inner.await_started(exhaust));
        let _awaiting = Awaiting { shared: &common.shared, exhaust };
        let asked = message.body.get("topologyVersion").and_then(bson::Bson::as_document);
        // `time` was bounded when the command was parsed.
        let until = Instant::now() + time;
        loop {
            let reply = common.shared.with(|inner| {
                let changed = Some(&inner.version.document()) != asked || !inner.state.topology_version;
                let due = changed || Instant::now() >= until;
                (due && !inner.frozen).then(|| commands::greet(inner, self.id, name, &message.body))
            });
            if let Some(reply) = reply {
                return Ok(reply);
            }
            self.check_closing()?;
            match self.wait(Some(until)).await? {
                Woken::Read | Woken::Time => {}
                Woken::Control => self.run_orders().await?,
            }
        }
    }
}
