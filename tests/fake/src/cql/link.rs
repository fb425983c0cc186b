//! The server's side of a connection, shared between its thread and other threads: output and end.

#[cfg(test)]
mod tests;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Condvar, Mutex};
use std::time::Instant;

use super::codec::{Encoder, Framing};
use super::rule::{Cut, Order, Part};
use super::shared::{Shared, Waiting, lock};
use crate::choices::Choices;
use crate::rng::Rng;

/// A writer that holds the lock for this many checks, one millisecond apart, counts as stuck.
const STUCK_CHECKS: u32 = 100;

/// A reply that is sent separately from the replies of the same read.
#[derive(Debug)]
pub(super) struct Reply {
    /// One or more envelopes.
    pub(super) envelopes: Vec<u8>,
    /// The request preceded the reply to STARTUP: the reply is not framed, even if framing was
    /// negotiated since.
    pub(super) plain: bool,
    /// Damage to the bytes that are sent.
    pub(super) damage: Option<Damage>,
}

/// Damage to the bytes that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    Checksum(Part),
    Length(i32),
    Truncate(usize, Cut),
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) id: u64,
    stream: TcpStream,
    shared: Arc<Shared>,
    output: Mutex<Output>,
    late: Mutex<Late>,
    late_changed: Condvar,
    held: Mutex<Vec<Reply>>,
    pub(super) waiting: Waiting,
    /// No further reply is sent.
    pub(super) mute: AtomicBool,
    ended: AtomicBool,
}

#[derive(Debug)]
struct Output {
    /// Plain until the reply to STARTUP is sent.
    encoder: Encoder,
    wire: Vec<u8>,
}

/// Delayed replies.
#[derive(Debug, Default)]
struct Late {
    /// Sorted by due time.
    replies: Vec<(Instant, Reply)>,
    has_thread: bool,
}

impl Link {
    pub(super) fn new(id: u64, stream: TcpStream, shared: Arc<Shared>) -> Self {
        Self {
            id,
            stream,
            shared,
            output: Mutex::new(Output { encoder: Encoder::default(), wire: Vec::new() }),
            late: Mutex::default(),
            late_changed: Condvar::new(),
            held: Mutex::default(),
            waiting: Waiting::default(),
            mute: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    pub(super) const fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sets the framing of all further envelopes.
    pub(super) fn set_framing(&self, framing: Framing) {
        lock(&self.output).encoder = Encoder::new(framing);
    }

    /// Counts received requests.
    pub(super) fn count_requests(&self, count: u64) {
        self.shared.requests.fetch_add(count, Ordering::SeqCst);
        self.waiting.add(count);
        self.shared.waiting.add(count);
    }

    fn count_answered(&self, count: u64) {
        let removed = self.waiting.remove(count);
        self.shared.waiting.remove(removed);
    }

    // Output.

    /// Sends envelopes by one write.
    ///
    /// - `answered`: number of requests that the envelopes answer.
    /// - `plain`: see [`Reply::plain`].
    pub(super) fn send(&self, envelopes: &[u8], answered: u64, plain: bool) -> io::Result<()> {
        if self.mute.load(Ordering::SeqCst) {
            return Ok(());
        }
        if answered > 0 {
            // Before they are sent: a client that has received a reply must find it counted.
            self.count_answered(answered);
        }
        if envelopes.is_empty() {
            return Ok(());
        }
        let mut output = lock(&self.output);
        let Output { encoder, wire } = &mut *output;
        if plain || encoder.framing().is_plain() {
            return self.write(envelopes);
        }
        wire.clear();
        encoder.encode(envelopes, wire);
        self.write(wire)
    }

    /// Sends one reply, with its damage if there is one.
    pub(super) fn send_reply(&self, reply: &Reply) -> io::Result<()> {
        let Some(damage) = reply.damage else { return self.send(&reply.envelopes, 1, reply.plain) };
        if self.mute.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.count_answered(1);
        let mut output = lock(&self.output);
        let Output { encoder, wire } = &mut *output;
        wire.clear();
        let plain = Encoder::default();
        let encoder = if reply.plain { &plain } else { &*encoder };
        match damage {
            Damage::Length(length) => damage::claim(&reply.envelopes, length, encoder, wire),
            Damage::Checksum(_) | Damage::Truncate(..) => encoder.encode(&reply.envelopes, wire),
        }
        match damage {
            Damage::Checksum(part) if encoder.framing().has_segments => damage::spoil(wire, part),
            Damage::Truncate(bytes, cut) => {
                wire.truncate(bytes);
                self.write(wire)?;
                drop(output);
                self.cut(cut);
                return Ok(());
            }
            Damage::Checksum(_) | Damage::Length(_) => {}
        }
        self.write(wire)
    }

    /// Sends bytes unmodified.
    pub(super) fn send_raw(&self, bytes: &[u8], answered: u64) -> io::Result<()> {
        if self.mute.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.count_answered(answered);
        let _output = lock(&self.output);
        self.write(bytes)
    }

    /// Writes bytes. The caller must hold the lock of the output.
    ///
    /// Fails after [`cut`](Self::cut), which leaves the socket open for writes if no write had
    /// begun.
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        if self.has_ended() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let piece = self.shared.piece_bytes.load(Ordering::SeqCst);
        let mut stream = &self.stream;
        let pieces = if piece == 0 { bytes.len() } else { piece };
        for some in bytes.chunks(pieces.max(1)) {
            let mut rest = some;
            while !rest.is_empty() {
                // Before the write: a client that has received a reply must find it counted.
                self.shared.writes.fetch_add(1, Ordering::SeqCst);
                match stream.write(rest) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            if piece != 0 {
                // Allows the client to read the piece before the next one is sent.
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    // Delayed replies.

    /// Sends a reply after `delay`.
    pub(super) fn delay(self: &Arc<Self>, delay: Duration, reply: Reply) -> io::Result<()> {
        let now = Instant::now();
        let due = now.checked_add(delay).unwrap_or(now);
        let mut late = lock(&self.late);
        let at = late.replies.partition_point(|(other, _)| *other <= due);
        late.replies.insert(at, (due, reply));
        if !late.has_thread {
            let link = Arc::clone(self);
            std::thread::Builder::new().name("poolhouse-cql-late".to_owned()).spawn(move || link.send_late())?;
            late.has_thread = true;
        }
        drop(late);
        self.late_changed.notify_all();
        Ok(())
    }

    /// The thread that sends delayed replies, until the connection has ended.
    fn send_late(&self) {
        let mut late = lock(&self.late);
        while !self.ended.load(Ordering::SeqCst) {
            let now = Instant::now();
            let count = late.replies.partition_point(|(due, _)| *due <= now);
            if count == 0 {
                let changed = &self.late_changed;
                late = match late.replies.first().map(|(due, _)| *due) {
                    Some(due) => {
                        let waited = changed.wait_timeout(late, due.saturating_duration_since(now));
                        waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
                    }
                    None => changed.wait(late).unwrap_or_else(std::sync::PoisonError::into_inner),
                };
                continue;
            }
            let replies: Vec<Reply> = late.replies.drain(..count).map(|(_, reply)| reply).collect();
            drop(late);
            if self.send_together(replies).is_err() {
                self.cut(Cut::Close);
                return;
            }
            late = lock(&self.late);
        }
    }

    /// Sends replies by as few writes as possible.
    fn send_together(&self, replies: Vec<Reply>) -> io::Result<()> {
        let (mut together, mut count) = (Vec::new(), 0);
        for reply in replies {
            if reply.damage.is_none() && !reply.plain {
                together.extend_from_slice(&reply.envelopes);
                count += 1;
                continue;
            }
            self.send(&together, count, false)?;
            together.clear();
            count = 0;
            self.send_reply(&reply)?;
        }
        self.send(&together, count, false)
    }

    /// Holds a reply; sends all held replies when there are `count` of them.
    pub(super) fn hold(&self, reply: Reply, count: usize, order: Order) -> io::Result<()> {
        let is_enough = {
            let mut held = lock(&self.held);
            held.push(reply);
            held.len() >= count
        };
        if is_enough { self.release(order).map(drop) } else { Ok(()) }
    }

    /// Sends all held replies; returns their number.
    pub(super) fn release(&self, order: Order) -> io::Result<usize> {
        let mut held = core::mem::take(&mut *lock(&self.held));
        match order {
            Order::Kept => {}
            Order::Reversed => held.reverse(),
            Order::Shuffled(seed) => shuffle(&mut held, &mut Rng::new(seed)),
        }
        let count = held.len();
        self.send_together(held)?;
        Ok(count)
    }

    pub(super) fn held_count(&self) -> usize {
        lock(&self.held).len()
    }

    // End of the connection.

    /// Ends the connection now, regardless of the state of its threads. No-op if it has ended.
    pub(super) fn cut(&self, cut: Cut) {
        if self.ended.swap(true, Ordering::SeqCst) {
            return;
        }
        if cut == Cut::Reset {
            // The reset is sent when the last reference to the socket is dropped.
            let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
        }
        // A stuck writer must be woken, which needs a shutdown of both sides; the client then reads
        // the end of the stream before the reset. Otherwise the reset alone suffices.
        let how = if cut == Cut::Reset && !self.is_stuck() { Shutdown::Read } else { Shutdown::Both };
        // The connection may already have ended.
        let _ = self.stream.shutdown(how);
        drop(lock(&self.late));
        self.late_changed.notify_all();
        self.shared.open_gate();
    }

    /// Returns whether a thread is blocked in a write for longer than a write takes while the
    /// client reads.
    fn is_stuck(&self) -> bool {
        for _ in 0..STUCK_CHECKS {
            if self.output.try_lock().is_ok() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Records that the thread of the connection has ended.
    pub(super) fn end(&self, cut: Cut) {
        self.cut(cut);
        self.count_answered(self.waiting.now());
        self.shared.unregister(self.id);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Blocks while reading is paused.
    pub(super) fn wait_to_read(&self) {
        let (paused, ended) = (&self.shared.paused, &self.ended);
        self.shared.wait_while(|| paused.load(Ordering::SeqCst) && !ended.load(Ordering::SeqCst));
    }
}

/// Shuffles by the Fisher-Yates algorithm.
fn shuffle<T>(items: &mut [T], random: &mut Rng) {
    for last in (1..items.len()).rev() {
        let bound = u32::try_from(last + 1).unwrap_or(u32::MAX);
        let other = usize::try_from(random.below(bound)).unwrap_or(0);
        items.swap(last, other);
    }
}

/// Damage that the encoder cannot produce.
mod damage {
    use super::Part;
    use crate::cql::codec::{Encoder, HEADER_BYTES};

    /// Encodes only the header of an envelope, with this body length in it.
    pub(super) fn claim(envelope: &[u8], length: i32, encoder: &Encoder, wire: &mut Vec<u8>) {
        let mut header = envelope.first_chunk::<HEADER_BYTES>().copied().unwrap_or_default();
        header[HEADER_BYTES - 4..].copy_from_slice(&length.to_be_bytes());
        if encoder.framing().has_segments {
            encoder.encode_segment(&header, true, wire);
        } else {
            wire.extend_from_slice(&header);
        }
    }

    /// Corrupts a checksum of the first segment. For the payload there must be only one segment.
    pub(super) fn spoil(wire: &mut [u8], part: Part) {
        let byte = match part {
            // In both formats the header's flags end at this byte.
            Part::Header => wire.get_mut(2),
            Part::Payload => wire.last_mut(),
        };
        if let Some(byte) = byte {
            *byte ^= 0x80;
        }
    }
}
