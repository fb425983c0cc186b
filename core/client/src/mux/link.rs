//! A connection of a session: one task that establishes it, then reads and writes until the pool
//! closes the connection or it fails.
//!
//! Each poll writes, then reads. The futures of both are created, polled once and dropped, which
//! loses no byte ([`Runtime::Stream`](poolhouse_driver::Runtime::Stream),
//! [`TlsStream`](crate::tls::TlsStream)). One write sends all requests since the previous write.
//! The replies of one read are passed on under one lock.

use super::Shared;
use super::failure::{Finding, Foreign, LinkFailure, text_of};
use super::host::{Effects, Host, Output, Turn};
use super::options::{PORT_DEFAULT, SessionOptions};
use super::reply::{Reply, copy_body};
use crate::net::{Net, Stream};
use crate::resolver::before;
use crate::{Platform, lock};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use bytes::BytesMut;
use core::future::poll_fn;
use core::pin::pin;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::task::{Context, Poll};
use core::time::Duration;
use embedded_io_async::{Read, Write};
use poolhouse_core::mux::MuxConnId;
use poolhouse_core::{Cause, HostAddress, Reason};
use poolhouse_cql::{
    Compression, CqlEstablished, CqlHandshake, CqlHandshakeError, CqlHandshakeOptions, CqlNext, Decoder, EVENT_STREAM,
    Encoder, Limits, Password, Version,
};
use poolhouse_driver::{BaseRuntime as _, Runtime as _};
use zeroize::Zeroizing;

/// The maximum number of bytes of one read.
pub(super) const INPUT_BYTES: usize = 32 * 1024;
/// The maximum number of bytes of one read before the connection is established.
const HANDSHAKE_INPUT_BYTES: usize = 2048;
/// Empty buffers, of output and of incomplete envelopes, are shrunk to this capacity in bytes.
pub(super) const KEEP_BYTES_MAX: usize = 256 * 1024;

/// Establishes a connection and serves it until its end.
pub(super) async fn run<P: Platform>(mut end: End<P>) {
    let (shared, host, conn) = (Arc::clone(&end.shared), Arc::clone(&end.host), end.conn);
    let keyspace = shared.keyspace();
    let established = until_closed(&host, conn, establish_to(&shared, &host, keyspace.as_deref())).await;
    let socket = match established {
        Some(Ok(socket)) => socket,
        Some(Err(failure)) => {
            // The text of a foreign error is not made under the lock.
            let report = text_of(&failure.reason);
            // With the others of a silent host, requests would wait as long again for each. They fail now.
            // The clock is read before they are taken: if it panics, they are still to begin.
            let now = shared.now();
            let others = if failure.cause == Cause::NetworkTimeout { shared.take_later(&host) } else { Vec::new() };
            shared.step_at(now, &host, |change| {
                change.refused(conn, report);
                others.into_iter().for_each(|other| change.failed(other, &failure));
            });
            end.failure = failure;
            return;
        }
        None => return,
    };
    let version = socket.version;
    let mut io = Io::new(&shared, &host, conn, socket);
    if shared.step(&host, |change| change.established(conn, version)).is_err() {
        return;
    }
    end.dial = None;
    if let Err(failure) = io.take_in_leftover() {
        end.failure = failure;
        return;
    }
    if let Err(failure) = poll_fn(|context| io.poll(context)).await {
        end.failure = failure;
    }
}

/// Reports to the pool, when dropped, that the connection failed or was not established.
pub(super) struct End<P: Platform> {
    shared: Arc<Shared<P>>,
    host: Arc<Host>,
    conn: MuxConnId,
    failure: LinkFailure,
    /// Until the pool has the connection, or its failure: then it is the turn of others.
    dial: Option<Dial<P>>,
}

impl<P: Platform> End<P> {
    pub(super) fn new(shared: Arc<Shared<P>>, host: Arc<Host>, conn: MuxConnId, turn: Turn) -> Self {
        let dial = Some(Dial::new(Arc::clone(&shared), Arc::clone(&host), turn == Turn::Further));
        Self { shared, host, conn, failure: LinkFailure { cause: Cause::Cancelled, reason: Reason::NONE }, dial }
    }
}

/// An attempt to connect, which counts until it is dropped.
struct Dial<P: Platform> {
    shared: Arc<Shared<P>>,
    host: Arc<Host>,
    /// Whether the host had an open connection when it began.
    is_further: bool,
}

impl<P: Platform> Dial<P> {
    fn new(shared: Arc<Shared<P>>, host: Arc<Host>, is_further: bool) -> Self {
        let dial = Self { shared, host, is_further };
        dial.count().fetch_add(1, Ordering::AcqRel);
        dial.host.dials.fetch_add(1, Ordering::AcqRel);
        dial
    }

    /// The number of such attempts.
    fn count(&self) -> &AtomicUsize {
        if self.is_further { &self.shared.further_dials } else { &self.shared.first_dials }
    }
}

impl<P: Platform> Drop for Dial<P> {
    fn drop(&mut self) {
        // In the child of a fork, the keeper is a task of the parent process.
        if self.shared.is_forked() {
            return;
        }
        self.count().fetch_sub(1, Ordering::AcqRel);
        self.host.dials.fetch_sub(1, Ordering::AcqRel);
        // The next one may begin.
        if !lock(&self.shared.starting).is_empty() {
            self.shared.keeper.notify(usize::MAX);
        }
    }
}

impl<P: Platform> Drop for End<P> {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            // In the child of a fork, the connection belongs to the parent process.
            return;
        }
        // The drop may run during a panic, in which another panic aborts the process. The clock is
        // read before any change, so a step in which the clock panics can be repeated.
        let _done = (0..3).any(|_| {
            Net::<P>::contain(|| self.shared.step(&self.host, |change| change.failed(self.conn, &self.failure)))
                .is_some()
        });
    }
}

/// Returns the result of `work`, or `None` if the pool closes the connection first.
async fn until_closed<T>(host: &Host, conn: MuxConnId, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|context| {
        if !host.is_wanted(conn, context.waker()) {
            return Poll::Ready(None);
        }
        work.as_mut().poll(context).map(Some)
    })
    .await
}

/// A socket after the handshake.
pub(super) struct Established<P: Platform> {
    pub(super) stream: Stream<P>,
    pub(super) decoder: Decoder<Vec<u8>>,
    pub(super) encoder: Encoder,
    pub(super) version: Version,
    /// Bytes received after the last message of the handshake.
    pub(super) leftover: Vec<u8>,
}

/// Establishes a connection to a host of the session. Begins with the version that the host supports.
pub(super) async fn establish_to<P: Platform>(
    shared: &Shared<P>,
    host: &Arc<Host>,
    keyspace: Option<&str>,
) -> Result<Established<P>, LinkFailure> {
    let version = host.look(shared.now(), |_, version, _| version);
    let lowered = |older| shared.step(host, |change| change.lower(older));
    let terms = Terms { keyspace, version, ..Terms::of_requests(&shared.options) };
    establish(shared, &host.address, terms, &host.is_accepted, lowered).await
}

/// What a connection is established with.
pub(super) struct Terms<'a> {
    /// The keyspace of statements that name none.
    pub(super) keyspace: Option<&'a str>,
    /// The newest version to try.
    pub(super) version: Version,
    pub(super) compressions: &'a [Compression],
    pub(super) limits: Limits,
    /// The limit on the time; `None` is no limit.
    pub(super) timeout: Option<Duration>,
}

impl<'a> Terms<'a> {
    fn of_requests(options: &'a SessionOptions) -> Self {
        let SessionOptions { version, compressions, connect_timeout, .. } = options;
        Self { keyspace: None, version: *version, compressions, limits: options.limits(), timeout: *connect_timeout }
    }
}

/// Connects and performs the handshake. Repeats both with older versions until the server supports
/// one.
///
/// - `is_accepted`: is set when the server has accepted the connection: then it is its turn.
/// - `lowered`: receives each older version before it is tried.
pub(super) async fn establish<P: Platform>(
    shared: &Shared<P>,
    address: &str,
    mut terms: Terms<'_>,
    is_accepted: &AtomicBool,
    lowered: impl Fn(Version),
) -> Result<Established<P>, LinkFailure> {
    let platform = shared.runtime.platform();
    let limit = terms.timeout;
    let deadline = limit.map(|limit| platform.now().saturating_add(limit));
    let attempts = async {
        let address = HostAddress::parse_with_port(address, PORT_DEFAULT).ok_or(LinkFailure::from(Cause::Dns))?;
        loop {
            is_accepted.store(false, Ordering::Relaxed);
            let connected = shared.runtime.connect(&address, deadline).await;
            let stream = connected.map_err(|error| {
                if error.cause == Cause::NetworkTimeout && error.reason.get().is_none() {
                    LinkFailure::of(Cause::NetworkTimeout, Finding::NotAccepted { limit })
                } else {
                    LinkFailure { cause: error.cause, reason: error.reason }
                }
            })?;
            is_accepted.store(true, Ordering::Relaxed);
            match perform_handshake(shared, stream, &terms).await? {
                Ok(established) => return Ok(established),
                // Each attempt uses an older version than the previous one, so the loop ends even
                // if the version of the host changes meanwhile.
                Err(older) => {
                    debug_assert!(older < terms.version, "the handshake never requests a newer version");
                    terms.version = older;
                    lowered(older);
                }
            }
        }
    };
    let established = match deadline {
        Some(at) => before(platform, at, attempts).await,
        None => Some(attempts.await),
    };
    established.unwrap_or_else(|| {
        let finding = match is_accepted.load(Ordering::Relaxed) {
            true => Finding::NoAnswer { limit },
            false => Finding::NotAccepted { limit },
        };
        Err(LinkFailure { cause: Cause::NetworkTimeout, reason: finding.into() })
    })
}

/// Performs the handshake. Returns an older version to try if the server does not support this one.
async fn perform_handshake<P: Platform>(
    shared: &Shared<P>,
    mut stream: Stream<P>,
    terms: &Terms<'_>,
) -> Result<Result<Established<P>, Version>, LinkFailure> {
    let options = &shared.options;
    let startup_options: Vec<_> =
        options.startup_options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let handshake_options = CqlHandshakeOptions {
        version: terms.version,
        compressions: terms.compressions,
        ask_supported: true,
        driver_name: Some(P::DRIVER_NAME),
        driver_version: Some(P::DRIVER_VERSION),
        startup_options: &startup_options,
        keyspace: terms.keyspace,
        limits: terms.limits,
    };
    let who = options
        .credential
        .as_ref()
        .map(|who| Password { username: who.username.as_str(), password: who.password.expose() });
    let credential_bytes = who.as_ref().map_or(0, |who| who.username.len() + who.password.len());
    let mut handshake = CqlHandshake::new(handshake_options, who, Vec::new(), Vec::new());
    let mut input = vec![0; HANDSHAKE_INPUT_BYTES];
    // The first bytes of the server, until they were an envelope.
    let mut first = Some(Vec::new());
    loop {
        // The output may contain the password. Its capacity suffices for all of it, because a
        // buffer that grows would leave copies in memory.
        let mut output = Zeroizing::new(Vec::with_capacity(HANDSHAKE_INPUT_BYTES + credential_bytes));
        if handshake.poll_transmit(&mut *output).map_err(|error| refused(&handshake, error))? {
            write_all::<P>(&mut stream, &output).await?;
        }
        let count = stream.read(&mut input).await.map_err(LinkFailure::of_stream::<P>)?;
        if count == 0 {
            return Err(match first.as_deref() {
                Some([]) => LinkFailure::of(Cause::Network, Finding::ClosedAtOnce),
                Some(first) => Foreign::of(first)
                    .map_or_else(closed, |foreign| LinkFailure::of(Cause::Protocol, Finding::Foreign(foreign))),
                None => closed(),
            });
        }
        let mut rest = input.get(..count).unwrap_or_default();
        if let Some(first) = first.as_mut().filter(|first| first.len() < Foreign::BYTES) {
            first.extend_from_slice(rest);
        }
        loop {
            let handled = handshake.handle_input(rest).map_err(|error| {
                // Another protocol violates this one by its first bytes.
                let foreign = first.as_deref().filter(|_| error.cause() == Cause::Protocol).and_then(Foreign::of);
                foreign.map_or_else(
                    || refused(&handshake, error),
                    |foreign| LinkFailure::of(Cause::Protocol, Finding::Foreign(foreign)),
                )
            })?;
            rest = rest.get(handled.consumed_bytes..).unwrap_or_default();
            match handled.next {
                // Bytes arrived before the request that they could answer. The handshake rejects
                // them.
                CqlNext::Transmit if !rest.is_empty() => {}
                CqlNext::Transmit => {
                    first = None;
                    break;
                }
                CqlNext::Receive => break,
                CqlNext::Reconnect { version } => return Ok(Err(version)),
                CqlNext::Established(CqlEstablished { version, compression, .. }) => {
                    let (decoder, _) = handshake.into_parts();
                    let encoder = Encoder::new(version, compression);
                    let leftover = rest.to_vec();
                    return Ok(Ok(Established { stream, decoder, encoder, version, leftover }));
                }
            }
        }
    }
}

/// A failed handshake. The reason of a refusal is the server's text, if it may be shown.
fn refused(handshake: &CqlHandshake<'_, Vec<u8>, Option<Password<'_>>>, error: CqlHandshakeError) -> LinkFailure {
    let cause = error.cause();
    let reason = match (error, handshake.refusal()) {
        (CqlHandshakeError::Refused { .. }, "") => Reason::NONE,
        (CqlHandshakeError::Refused { .. }, text) => Finding::Refused(String::from(text)).into(),
        (error, _) => Reason::new(error),
    };
    LinkFailure { cause, reason }
}

pub(super) async fn write_all<P: Platform>(stream: &mut Stream<P>, mut bytes: &[u8]) -> Result<(), LinkFailure> {
    while !bytes.is_empty() {
        match stream.write(bytes).await.map_err(LinkFailure::of_stream::<P>)? {
            0 => return Err(closed()),
            count => bytes = bytes.get(count..).unwrap_or_default(),
        }
    }
    stream.flush().await.map_err(LinkFailure::of_stream::<P>)
}

pub(super) fn closed() -> LinkFailure {
    LinkFailure::of(Cause::Network, Finding::Closed)
}

/// An established connection.
struct Io<'a, P: Platform> {
    shared: &'a Shared<P>,
    host: &'a Arc<Host>,
    conn: MuxConnId,
    socket: Established<P>,
    /// Envelopes to send. If the encoder compresses or makes segments, `segments` is sent instead.
    envelopes: Vec<u8>,
    segments: Vec<u8>,
    /// Number of bytes of the current buffer that are sent.
    sent: usize,
    flush_is_due: bool,
    input: Vec<u8>,
    replies: Vec<Reply>,
    /// The bodies of small replies are taken from it.
    bodies: BytesMut,
    /// Empty; kept for its memory.
    effects: Effects,
}

impl<'a, P: Platform> Io<'a, P> {
    fn new(shared: &'a Shared<P>, host: &'a Arc<Host>, conn: MuxConnId, socket: Established<P>) -> Self {
        let (envelopes, segments, replies, effects) = (Vec::new(), Vec::new(), Vec::new(), Effects::default());
        let (input, bodies) = (vec![0; INPUT_BYTES], BytesMut::new());
        let (sent, flush_is_due) = (0, false);
        Self { shared, host, conn, socket, envelopes, segments, sent, flush_is_due, input, replies, bodies, effects }
    }

    /// Writes and reads. Ready when the pool closes the connection, or with its failure.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), LinkFailure>> {
        if !self.poll_write(context)? {
            return Poll::Ready(Ok(()));
        }
        if self.poll_read(context)? {
            // The tasks that received replies run before this one, so their next requests are sent
            // together, and more input may have arrived.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Sends the output. Returns false when the pool closes the connection.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Result<bool, LinkFailure> {
        let Self { host, conn, socket, envelopes, segments, sent, flush_is_due, .. } = self;
        let plain = socket.encoder.is_plain();
        let mut has_taken = false;
        loop {
            if *sent == if plain { envelopes.len() } else { segments.len() } {
                *sent = 0;
                for bytes in [&mut *envelopes, &mut *segments] {
                    bytes.clear();
                    bytes.shrink_to(KEEP_BYTES_MAX);
                }
                // Output that is added from here on wakes the task.
                if core::mem::replace(&mut has_taken, true) {
                    break;
                }
                match host.take_output(*conn, envelopes, context.waker()) {
                    Output::Gone => return Ok(false),
                    Output::Nothing => break,
                    Output::Taken if plain => {}
                    Output::Taken => socket.encoder.encode(envelopes, segments)?,
                }
            }
            let bytes = if plain { &*envelopes } else { &*segments };
            match pin!(socket.stream.write(bytes.get(*sent..).unwrap_or_default())).poll(context) {
                Poll::Ready(Ok(0)) => return Err(closed()),
                Poll::Ready(Ok(count)) => *sent += count,
                Poll::Ready(Err(error)) => return Err(LinkFailure::of_stream::<P>(error)),
                // The peer may never read. The task registers nevertheless to be woken when the
                // pool closes the connection.
                Poll::Pending => return Ok(host.is_wanted(*conn, context.waker())),
            }
            *flush_is_due = true;
        }
        if *flush_is_due {
            match pin!(socket.stream.flush()).poll(context) {
                Poll::Ready(Ok(())) => *flush_is_due = false,
                Poll::Ready(Err(error)) => return Err(LinkFailure::of_stream::<P>(error)),
                Poll::Pending => {}
            }
        }
        Ok(true)
    }

    /// Reads once, and processes the input. Returns whether bytes were received.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Result<bool, LinkFailure> {
        let count = match pin!(self.socket.stream.read(&mut self.input)).poll(context) {
            Poll::Ready(Ok(0)) => return Err(closed()),
            Poll::Ready(Ok(count)) => count,
            Poll::Ready(Err(error)) => return Err(LinkFailure::of_stream::<P>(error)),
            Poll::Pending => return Ok(false),
        };
        let input = core::mem::take(&mut self.input);
        let taken = self.take_in(input.get(..count).unwrap_or_default());
        self.input = input;
        taken.map(|()| true)
    }

    /// Processes the input that was received with the end of the handshake.
    fn take_in_leftover(&mut self) -> Result<(), LinkFailure> {
        let leftover = core::mem::take(&mut self.socket.leftover);
        // Done even if `leftover` is empty: the decoder may hold envelopes of the segment that
        // contained the last message of the handshake.
        self.take_in(&leftover)
    }

    /// Passes complete replies to their requests, including those before a malformed one.
    fn take_in(&mut self, bytes: &[u8]) -> Result<(), LinkFailure> {
        let decoded = self.decode(bytes);
        if !self.replies.is_empty() || !bytes.is_empty() {
            let Self { shared, host, conn, replies, effects, .. } = self;
            host.change(shared.now(), effects, |change| change.dispatch(*conn, replies));
            shared.run_effects(effects);
            replies.clear();
        }
        if let Some(memory) = self.socket.decoder.idle_memory() {
            for buffer in memory {
                buffer.shrink_to(KEEP_BYTES_MAX);
            }
        }
        decoded
    }

    fn decode(&mut self, mut bytes: &[u8]) -> Result<(), LinkFailure> {
        loop {
            let step = self.socket.decoder.decode(bytes)?;
            bytes = bytes.get(step.consumed_bytes..).unwrap_or_default();
            let Some(envelope) = step.envelope else { return Ok(()) };
            // Only the control connection registers for events.
            if envelope.header.stream == EVENT_STREAM {
                continue;
            }
            let body = copy_body(envelope.body, &mut self.bodies).map_err(|_| Cause::Resources)?;
            self.replies.push(Reply { host: self.host.id, header: envelope.header, body });
        }
    }
}
