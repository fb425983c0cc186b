//! One socket with its buffers: it sends requests and receives replies.

#[cfg(feature = "std")]
#[cfg(test)]
mod tests;

#[cfg(feature = "alloc")]
use super::failure::hinted;
use super::failure::{Finding, NotEstablished};
use super::packing::{Front, Packing};
#[cfg(feature = "alloc")]
use super::runtime::ConnectError;
use super::runtime::{Buffer, Runtime};
use core::fmt;
use core::future::poll_fn;
use core::ops::Range;
use core::task::Poll;
use embedded_io_async::{ErrorType, Read, Write};
#[cfg(feature = "alloc")]
use poolhouse_core::Instant;
use poolhouse_core::storage::Full;
use poolhouse_core::{Cause, Reason};
use poolhouse_wire::bson::RawDocument;
#[cfg(feature = "alloc")]
use poolhouse_wire::command::CommandReply;
use poolhouse_wire::compress::Compressors;
use poolhouse_wire::handshake::{Established, Handshake, HandshakeError, Next};
use poolhouse_wire::hello::HelloReply;
#[cfg(feature = "alloc")]
use poolhouse_wire::message::decode_message;
use poolhouse_wire::message::{Decoded, Exchange, Flags, Limits, Matched, RequestIds};
use poolhouse_wire::{Authenticator, EncodeError, Phase, Sink, WireError, WireErrorKind};

/// An exchange failed: a request was not written, or its reply was not received.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum ExchangeError {
    /// The request cannot be encoded. Nothing was written; the connection remains usable.
    Encode(EncodeError),
    /// The socket failed, or the peer closed it. The reason is the operating system's error.
    Network(Reason),
    /// The layer below the wire protocol failed, but not the network: TLS.
    Transport {
        /// The cause.
        cause: Cause,
        /// The error of the TLS library.
        reason: Reason,
    },
    /// The peer violated the protocol.
    Wire(WireError),
    /// There is no memory for the reply. The connection is closed.
    NoMemory,
    /// The reply is larger than the receive buffer can become. It was not read completely; the
    /// connection is closed.
    ReplyTooLarge {
        /// The minimum size of the reply in bytes, header included.
        bytes: u32,
        /// The limit in bytes.
        limit: u32,
    },
}

impl ExchangeError {
    /// Returns the cause of the failure. `None` if the connection remains usable.
    #[must_use]
    pub const fn cause(&self) -> Option<Cause> {
        match self {
            Self::Encode(_) => None,
            Self::Network(_) => Some(Cause::Network),
            Self::Transport { cause, .. } => Some(*cause),
            Self::Wire(_) => Some(Cause::Protocol),
            Self::NoMemory | Self::ReplyTooLarge { .. } => Some(Cause::Resources),
        }
    }

    /// The underlying error.
    pub(super) fn into_reason(self) -> Reason {
        match self {
            Self::Network(reason) | Self::Transport { reason, .. } => reason,
            Self::Wire(error) => Reason::new(error),
            Self::Encode(error) => Reason::new(error),
            Self::NoMemory | Self::ReplyTooLarge { .. } => Reason::new(self),
        }
    }
}

impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Encode(error) => error.fmt(f),
            Self::Network(reason) if reason.is_none() => f.write_str("the connection failed, or the server closed it"),
            Self::Network(reason) => write!(f, "the connection failed: {reason}"),
            Self::Transport { cause, reason } => {
                write!(f, "the connection failed: {cause}")?;
                reason.append(f)
            }
            Self::Wire(error) => error.fmt(f),
            Self::NoMemory => f.write_str("there is no memory for the reply"),
            Self::ReplyTooLarge { bytes, limit } => {
                write!(f, "the reply of {bytes} bytes is larger than this side can hold, which is {limit}")
            }
        }
    }
}

poolhouse_wire::debug_as_display!(ExchangeError);

impl core::error::Error for ExchangeError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Encode(error) => Some(error),
            Self::Network(reason) => reason.source(),
            Self::Transport { cause, reason } => Some(reason.source().unwrap_or(cause)),
            Self::Wire(error) => Some(error),
            Self::NoMemory | Self::ReplyTooLarge { .. } => None,
        }
    }
}

/// A connected socket. Its owner has exclusive access.
pub(super) struct Connection<R: Runtime> {
    stream: R::Stream,
    /// The first `received` bytes are received data.
    input: R::Buffer,
    received: usize,
    /// The reply at the front of `input`, until the next read or request.
    reply: Reply,
    output: R::Buffer,
    packing: Packing,
    /// Whether `input` keeps its size until the connection is returned: it was lent by the caller, who
    /// expects a long reply.
    lent: bool,
    ids: RequestIds,
    exchange: Exchange,
    /// Whether a request may be written to the socket partly: its write has begun, and has not ended
    /// successfully.
    writing: bool,
    /// [`Limits::HANDSHAKE`] until the connection is established.
    limits: Limits,
    /// Whether written bytes may contain a secret.
    secret: bool,
    /// When the last command began, if the event of its start was published, and not that of its end.
    #[cfg(feature = "alloc")]
    pub(super) observed: Option<Instant>,
    /// The operation of the commands, for their events; 0 if it has no id.
    #[cfg(feature = "alloc")]
    pub(super) operation_id: i64,
}

/// An owned connection. With a heap it is boxed: a connection has some hundred bytes, and each move
/// of them would cost as much as the check-out that it is moved for.
#[cfg(feature = "alloc")]
pub(super) type Held<R> = alloc::boxed::Box<Connection<R>>;
/// An owned connection.
#[cfg(not(feature = "alloc"))]
pub(super) type Held<R> = Connection<R>;

/// Boxes a connection if there is a heap.
pub(super) fn hold<R: Runtime>(connection: Connection<R>) -> Held<R> {
    #[cfg(feature = "alloc")]
    let connection = alloc::boxed::Box::new(connection);
    connection
}

/// The next step of a handshake.
pub(super) enum Shaken {
    /// Send the next command, with [`Connection::perform_handshake`].
    Command,
    /// Run the authenticator's computations, with [`Connection::work`].
    Work,
    /// The handshake is complete.
    Established(Established),
}

/// The position of a reply.
#[derive(Clone, Copy, Debug, Default)]
struct Reply {
    /// Its length in the input.
    length: usize,
    /// Whether it was compressed: then its body is in the inflated message, otherwise in the input.
    inflated: bool,
    /// Whether it has `ok: 1` and write errors, once it was evaluated.
    write_errors: bool,
    /// Whether it is [`ASSUMED_REPLY`], because the request has none.
    assumed: bool,
    body_start: usize,
    body_end: usize,
}

/// `{ ok: 1 }`, which stands for the reply to a request that has none.
///
/// Source: Command Logging and Monitoring, on unacknowledged writes.
const ASSUMED_REPLY: &[u8] = &[13, 0, 0, 0, 0x10, b'o', b'k', 0, 1, 0, 0, 0, 0];

/// Free bytes for the first read of a reply, and the least step by which the buffer grows.
const READ_BYTES_MIN: usize = 2048;
/// A buffer that is larger than this after a large message is shrunk before the connection becomes
/// idle.
const KEEP_BYTES_MAX: usize = 256 * 1024;

impl<R: Runtime> Connection<R> {
    pub(super) fn new(stream: R::Stream, input: R::Buffer, output: R::Buffer) -> Self {
        Self {
            stream,
            input,
            received: 0,
            reply: Reply::default(),
            output,
            packing: Packing::NONE,
            lent: false,
            ids: RequestIds::new(),
            exchange: Exchange::IDLE,
            writing: false,
            limits: Limits::HANDSHAKE,
            secret: false,
            #[cfg(feature = "alloc")]
            observed: None,
            #[cfg(feature = "alloc")]
            operation_id: 0,
        }
    }

    /// The message of the last command.
    #[cfg(feature = "alloc")]
    pub(super) fn request(&self) -> &[u8] {
        self.output.written()
    }

    /// The socket.
    pub(super) const fn stream(&self) -> &R::Stream {
        &self.stream
    }

    /// Marks everything that is written during the handshake as secret: it is wiped once it is
    /// sent, or when the connection is dropped.
    ///
    /// - `bytes`: the maximum size of a request that contains a secret. The buffer is grown to it
    ///   first, because growing later would leave a copy of the secret in the old memory.
    pub(super) fn expect_secrets(&mut self, bytes: usize) {
        self.secret = true;
        // If the buffer cannot grow to this size, it does not move either.
        let _ = self.output.resize(bytes);
        self.output.truncate(0);
    }

    /// Wipes the written bytes if they may contain a secret.
    fn wipe(&mut self) {
        if self.secret {
            let len = self.output.capacity();
            let _ = self.output.resize(len);
            #[cfg(feature = "auth")]
            zeroize::Zeroize::zeroize(self.output.written_mut());
            self.output.truncate(0);
        }
    }

    /// The server's message when it refused to continue the handshake.
    #[cfg(feature = "alloc")]
    pub(super) fn refusal(&self) -> Option<&str> {
        let input = self.input.written().get(..self.received)?;
        // A compressed reply is in the inflated message.
        [input, self.packing.inflated()].into_iter().find_map(|bytes| match decode_message(bytes, &Limits::HANDSHAKE) {
            Ok(Decoded::Done { value: message, .. }) => CommandReply::parse(message.body()).ok()?.message,
            Ok(Decoded::NeedMore { .. }) | Err(_) => None,
        })
    }

    /// Adds a hint to an error before the first reply, guessed from the peer's first bytes or their
    /// absence.
    ///
    /// - `is_encrypted`: whether the connection is encrypted, or does not leave this machine.
    #[cfg(feature = "alloc")]
    pub(super) fn hinted(&self, failure: ConnectError, is_encrypted: bool) -> ConnectError {
        hinted(failure, self.input.written().get(..self.received).unwrap_or_default(), is_encrypted)
    }

    /// Whether the connection may be reused: all replies are read, and no request was sent partly. A
    /// request without a reply can be sent partly too, so both are checked.
    pub(super) const fn is_idle(&self) -> bool {
        self.exchange.is_idle() && !self.writing
    }

    /// Prepares the connection for a hello that offers these compressors.
    ///
    /// - `zlib_level`: 0 to 9; `None` is zlib's default.
    pub(super) fn offer_compression(&mut self, offered: Compressors, zlib_level: Option<u32>) {
        self.packing.offer(offered, zlib_level);
    }

    /// Whether the connection is busy only because a reply has not arrived, or not completely.
    #[cfg(feature = "alloc")]
    pub(super) const fn owes_reply(&self) -> bool {
        !self.writing && !self.exchange.is_idle()
    }

    /// Sends one command of the handshake, and receives its reply.
    ///
    /// - `on_hello`: called with the server's hello, which the client core evaluates. An error ends
    ///   the handshake.
    pub(super) async fn perform_handshake<A: Authenticator>(
        &mut self,
        handshake: &mut Handshake<'_, A>,
        on_hello: &mut impl FnMut(&HelloReply<'_>) -> Result<(), Cause>,
    ) -> Result<Shaken, NotEstablished> {
        self.output.truncate(0);
        if handshake.poll_transmit(&mut self.output)? {
            // Commands of a handshake are not compressed.
            self.flush(false).await.map_err(|error| shaking_failed(handshake, error))?;
            self.wipe();
        }
        loop {
            let input = self.input.written().get(..self.received).unwrap_or_default();
            // Replies may be compressed, including the first.
            let front = self.packing.unpack(input, &self.limits).map_err(|error| shaking_failed(handshake, error))?;
            let (whole, packed) = match front {
                Front::Plain => (input, None),
                Front::NeedMore { bytes_min } => {
                    self.read_some(bytes_min).await.map_err(|error| shaking_failed(handshake, error))?;
                    continue;
                }
                Front::Inflated { length } => {
                    check_alone(input, length).map_err(|error| shaking_failed(handshake, error))?;
                    (self.packing.inflated(), Some(length))
                }
            };
            let handled = handshake.handle_input(whole)?;
            if let Some(hello) = &handled.hello {
                on_hello(hello).map_err(|cause| HandshakeError::new(Phase::Hello, cause))?;
            }
            let (next, consumed) = (handled.next, packed.unwrap_or(handled.consumed_bytes));
            self.consume(consumed);
            match next {
                Next::Receive { bytes_min } => {
                    self.read_some(bytes_min).await.map_err(|error| shaking_failed(handshake, error))?;
                }
                Next::Transmit | Next::Work | Next::Established(_) => return Ok(self.shaken(next)),
            }
        }
    }

    /// Runs the authenticator's computations between two commands of a handshake.
    ///
    /// - `work`: called before each step of the authenticator; it may supply a cached result for
    ///   the step.
    pub(super) async fn work<A: Authenticator>(
        &mut self,
        handshake: &mut Handshake<'_, A>,
        mut work: impl FnMut(&mut A),
    ) -> Result<Shaken, NotEstablished> {
        loop {
            work(handshake.authenticator_mut());
            yield_now().await;
            let next = handshake.handle_input(&[])?.next;
            if next != Next::Work {
                return Ok(self.shaken(next));
            }
        }
    }

    fn shaken(&mut self, next: Next) -> Shaken {
        match next {
            Next::Transmit | Next::Receive { .. } => Shaken::Command,
            Next::Work => Shaken::Work,
            Next::Established(established) => {
                self.secret = false;
                self.limits = established.sizes.limits();
                self.ids = established.request_ids;
                self.packing.agree(established.compressors);
                Shaken::Established(established)
            }
        }
    }

    /// Writes one request.
    ///
    /// - `encode`: writes the request with the given id and limits, and returns its flags.
    pub(super) async fn send(
        &mut self,
        encode: impl FnOnce(&mut R::Buffer, i32, &Limits) -> Result<Flags, EncodeError>,
    ) -> Result<(), ExchangeError> {
        self.discard_reply();
        self.output.truncate(0);
        let id = self.ids.next_id();
        let flags = encode(&mut self.output, id, &self.limits).map_err(ExchangeError::Encode)?;
        let packed = self.packing.pack(self.output.written(), &self.limits).map_err(ExchangeError::Encode)?;
        // From here on the request is incomplete or its reply is outstanding: if this future is dropped
        // before it is done, the connection stays busy and is not reused.
        self.exchange.begin(id, flags);
        self.writing = true;
        self.flush(packed).await?;
        self.writing = false;
        self.reply.assumed = flags.contains(Flags::MORE_TO_COME);
        Ok(())
    }

    /// Writes the encoded or compressed request.
    async fn flush(&mut self, packed: bool) -> Result<(), ExchangeError> {
        let mut rest = if packed { self.packing.packed() } else { self.output.written() };
        while !rest.is_empty() {
            match self.stream.write(rest).await {
                Ok(0) => return Err(ExchangeError::Network(Finding::Closed.into())),
                Err(error) => return Err(stream_error::<R>(error)),
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            }
        }
        self.stream.flush().await.map_err(stream_error::<R>)
    }

    /// Reads until a reply is complete. [`Connection::reply`] returns it.
    pub(super) async fn receive(&mut self) -> Result<Matched, ExchangeError> {
        self.discard_reply();
        let limit = u32::try_from(self.input.limit()).unwrap_or(u32::MAX);
        let limits = Limits { message_bytes_max: self.limits.message_bytes_max.min(limit), ..self.limits };
        loop {
            let input = self.input.written().get(..self.received).unwrap_or_default();
            let (whole, packed) = match self.packing.unpack(input, &limits)? {
                Front::Plain => (input, None),
                Front::NeedMore { bytes_min } => {
                    self.read_some(bytes_min).await?;
                    continue;
                }
                Front::Inflated { length } => (self.packing.inflated(), Some(length)),
            };
            match self.exchange.decode_reply(whole, &limits).map_err(|error| self.reading_failed(error))? {
                Decoded::Done { value: (message, matched), rest } => {
                    let body = span(whole, message.body().as_bytes());
                    if let (Some(length), Matched::Last) = (packed, matched) {
                        check_alone(input, length)?;
                    }
                    let length = packed.unwrap_or(whole.len() - rest.len());
                    let inflated = packed.is_some();
                    let (body_start, body_end) = (body.start, body.end);
                    self.reply = Reply { length, inflated, body_start, body_end, ..Reply::default() };
                    return Ok(matched);
                }
                Decoded::NeedMore { bytes_min } => self.read_some(bytes_min).await?,
            }
        }
    }

    /// The error of a reply that cannot be decoded. If the reply is within the peer's limit and
    /// exceeds only the buffer's, the peer did not violate the protocol.
    fn reading_failed(&self, error: WireError) -> ExchangeError {
        if let WireErrorKind::MessageTooLong { length_bytes, .. } = error.kind() {
            if length_bytes.unsigned_abs() <= self.limits.message_bytes_max {
                return too_large(usize::try_from(length_bytes).unwrap_or_default(), self.input.limit());
            }
        }
        ExchangeError::Wire(error)
    }

    /// Reads available bytes, and waits for at least one.
    async fn read_some(&mut self, bytes_min: usize) -> Result<(), ExchangeError> {
        // The buffer grows by received bytes, not by the length that the peer declares.
        let step = bytes_min.min(self.received.max(READ_BYTES_MIN));
        let wanted = self.received.saturating_add(step);
        if self.input.written().len() < wanted {
            let limit = self.input.limit();
            let len = wanted.max(READ_BYTES_MIN).max(self.input.capacity()).min(limit);
            if len < wanted {
                return Err(too_large(self.received.saturating_add(bytes_min), limit));
            }
            self.input.resize(len).map_err(|Full| ExchangeError::NoMemory)?;
        }
        let room = self.input.written_mut().get_mut(self.received..).unwrap_or_default();
        match self.stream.read(room).await {
            Ok(0) => Err(ExchangeError::Network(Finding::Closed.into())),
            Err(error) => Err(stream_error::<R>(error)),
            Ok(count) => {
                self.received += count;
                Ok(())
            }
        }
    }

    /// The last reply, or what stands for it.
    pub(super) fn reply(&self) -> Result<RawDocument<'_>, ExchangeError> {
        let Reply { inflated, assumed, body_start, body_end, .. } = self.reply;
        if assumed {
            return RawDocument::new(ASSUMED_REPLY).map_err(ExchangeError::Wire);
        }
        let whole = if inflated { self.packing.inflated() } else { self.input.written() };
        RawDocument::new(whole.get(body_start..body_end).unwrap_or_default()).map_err(ExchangeError::Wire)
    }

    /// Exchanges the receive buffer with `buffer`, and returns the range of the last reply in it, which
    /// is empty if there is none. `None` if the reply is not in the receive buffer, or if more was
    /// received: nothing is exchanged then.
    ///
    /// - `lent`: whether the new buffer keeps its size until the connection is returned.
    #[cfg(feature = "alloc")]
    pub(super) fn swap_input(&mut self, buffer: &mut R::Buffer, lent: bool) -> Option<Range<usize>> {
        let Reply { length, inflated, assumed, body_start, body_end, .. } = self.reply;
        if inflated || assumed || length != self.received || !self.is_idle() {
            return None;
        }
        core::mem::swap(&mut self.input, buffer);
        (self.received, self.reply, self.lent) = (0, Reply::default(), lent);
        Some(body_start..body_end)
    }

    /// Records whether the last reply has `ok: 1` and write errors.
    pub(super) const fn note_write_errors(&mut self, write_errors: bool) {
        self.reply.write_errors = write_errors;
    }

    /// Whether the last reply has `ok: 1` and write errors.
    pub(super) const fn has_write_errors(&self) -> bool {
        self.reply.write_errors
    }

    /// Discards the last reply. Bytes after it belong to the next reply.
    #[inline]
    pub(super) fn discard_reply(&mut self) {
        let Reply { length, .. } = core::mem::take(&mut self.reply);
        self.consume(length);
        self.packing.trim(KEEP_BYTES_MAX);
        if self.received == 0 && self.input.written().len() > KEEP_BYTES_MAX && !self.lent {
            self.input.shrink(READ_BYTES_MIN);
        }
    }

    /// Discards the reply and shrinks large buffers in both directions. Called before an idle
    /// connection is returned to its pool.
    #[inline]
    pub(super) fn rest(&mut self) {
        self.lent = false;
        self.discard_reply();
        #[cfg(feature = "alloc")]
        {
            self.operation_id = 0;
        }
        if self.output.capacity() > KEEP_BYTES_MAX {
            self.output.shrink(0);
        }
    }

    /// [`Connection::rest`] after a hello or a handshake: shrinks the buffers to their first size.
    #[inline(never)]
    pub(super) fn rest_at_start_size(&mut self) {
        self.discard_reply();
        self.packing.trim(READ_BYTES_MIN);
        if self.received == 0 && self.input.written().len() > READ_BYTES_MIN {
            self.input.shrink(READ_BYTES_MIN);
        }
        if self.is_idle() && self.output.capacity() > READ_BYTES_MIN {
            self.output.shrink(0);
        }
    }

    #[inline]
    fn consume(&mut self, count: usize) {
        let count = count.min(self.received);
        if count > 0 && count < self.received {
            self.move_up(count);
        }
        self.received -= count;
    }

    /// Moves the bytes after the first `count` bytes to the front. Rare: a reply is the last data
    /// until the next request.
    #[inline(never)]
    fn move_up(&mut self, count: usize) {
        self.input.written_mut().copy_within(count..self.received, 0);
    }
}

/// The exchange error of a stream's error.
#[cold]
fn stream_error<R: Runtime>(error: <R::Stream as ErrorType>::Error) -> ExchangeError {
    let cause = R::stream_cause(&error);
    let reason = R::stream_reason(error);
    if cause.is_network() { ExchangeError::Network(reason) } else { ExchangeError::Transport { cause, reason } }
}

impl<R: Runtime> Drop for Connection<R> {
    fn drop(&mut self) {
        self.wipe();
    }
}

/// Lets the other tasks of the thread run once.
#[doc(hidden)]
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|context| {
        if core::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Checks that no bytes follow a compressed reply, because no other reply is outstanding.
fn check_alone(input: &[u8], length: usize) -> Result<(), ExchangeError> {
    let behind = input.len().saturating_sub(length);
    if behind == 0 {
        return Ok(());
    }
    let count_bytes = u32::try_from(behind).unwrap_or(u32::MAX);
    let offset = u32::try_from(length).unwrap_or(u32::MAX);
    Err(ExchangeError::Wire(WireError::new(WireErrorKind::Unsolicited { count_bytes }, offset)))
}

/// The error of a handshake that could not read or inflate its reply. Such an error always has a
/// cause.
fn shaking_failed<A: Authenticator>(handshake: &Handshake<'_, A>, error: ExchangeError) -> NotEstablished {
    let wire = match &error {
        ExchangeError::Wire(wire) => Some(*wire),
        ExchangeError::Encode(_)
        | ExchangeError::Network(_)
        | ExchangeError::Transport { .. }
        | ExchangeError::NoMemory
        | ExchangeError::ReplyTooLarge { .. } => None,
    };
    let failed = handshake.failed(error.cause().unwrap_or(Cause::Resources));
    NotEstablished { error: HandshakeError { wire, ..failed }, reason: error.into_reason() }
}

fn too_large(bytes: usize, limit: usize) -> ExchangeError {
    let saturate = |count| u32::try_from(count).unwrap_or(u32::MAX);
    ExchangeError::ReplyTooLarge { bytes: saturate(bytes), limit: saturate(limit) }
}

/// The range of `part` in `whole`. `part` must be a slice of `whole`.
fn span(whole: &[u8], part: &[u8]) -> Range<usize> {
    let start = (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize);
    start..start + part.len()
}
