//! Scripted sockets of this process, to which runtimes under test connect.
//!
//! Blocking operations run on separate threads and start at once, also if their result is not
//! awaited yet. They do not depend on the runtime under test, and no case blocks its thread.

use crate::patience::PATIENCE;
use alloc::sync::Arc;
use blocking::{Task, unblock};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::{fs, thread};

/// How long a connect must stay pending to prove that an address is a black hole.
const SILENCE: Duration = Duration::from_millis(200);

/// The bytes at these offsets of the test pattern, in which no two parts are equal.
pub(super) fn pattern(places: Range<usize>) -> Vec<u8> {
    places.map(|place| place.wrapping_mul(0x9e37_79b9).to_le_bytes()[3]).collect()
}

/// A listener on its own port.
#[derive(Debug)]
pub(super) struct Peer {
    listener: Arc<TcpListener>,
    address: SocketAddr,
}

/// Size in bytes of the socket buffers at the peer's end of a connection.
const BUFFER_BYTES: usize = 1 << 16;

impl Peer {
    pub(super) fn listen() -> Self {
        Self::listen_on(Ipv4Addr::LOCALHOST.into()).expect("a free port")
    }

    pub(super) fn listen_on(ip: IpAddr) -> io::Result<Self> {
        let listener = Arc::new(TcpListener::bind((ip, 0))?);
        // Accepted connections inherit these sizes. Fixed sizes disable autotuning, which would
        // grow the buffers to megabytes, so the buffers fill up faster.
        rustix::net::sockopt::set_socket_recv_buffer_size(&*listener, BUFFER_BYTES)?;
        rustix::net::sockopt::set_socket_send_buffer_size(&*listener, BUFFER_BYTES)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    fn next<T: Send + 'static>(&self, then: impl FnOnce(Line) -> T + Send + 'static) -> Task<T> {
        let listener = Arc::clone(&self.listener);
        unblock(move || {
            let (socket, _) = listener.accept().expect("a connection");
            socket.set_nodelay(true).expect("a socket of this process");
            then(Line::new(socket))
        })
    }

    /// Accepts the next connection.
    pub(super) fn accept(&self) -> Task<Line> {
        self.next(|line| line)
    }

    /// Resets the next connection as soon as it is accepted.
    pub(super) fn reset_next(&self) -> Task<()> {
        self.next(Line::reset)
    }
}

/// A listener on a Unix domain socket.
#[derive(Debug)]
pub(super) struct UnixPeer {
    listener: Arc<UnixListener>,
    path: PathBuf,
}

impl UnixPeer {
    pub(super) fn listen() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("poolhouse-{}-{number}.sock", std::process::id()));
        // The file may be left from an earlier process with the same id.
        let _ = fs::remove_file(&path);
        let listener = Arc::new(UnixListener::bind(&path).expect("a free path"));
        Self { listener, path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn accept(&self) -> Task<Line> {
        let listener = Arc::clone(&self.listener);
        unblock(move || {
            let (socket, _) = listener.accept().expect("a connection");
            Line::new(OwnedFd::from(socket).into())
        })
    }
}

impl Drop for UnixPeer {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The peer's end of a connection. Dropping it ends both directions, after operations in progress
/// have completed.
#[derive(Debug)]
pub(super) struct Line {
    /// A socket of any address family: the operations used here do not depend on it.
    socket: Arc<TcpStream>,
}

impl Line {
    fn new(socket: TcpStream) -> Self {
        // Limits how long a thread of a failed case can stay blocked.
        socket.set_read_timeout(Some(PATIENCE * 3)).expect("a socket of this process");
        socket.set_write_timeout(Some(PATIENCE * 3)).expect("a socket of this process");
        Self { socket: Arc::new(socket) }
    }

    fn apart<T: Send + 'static>(&self, work: impl FnOnce(&TcpStream) -> T + Send + 'static) -> Task<T> {
        let socket = Arc::clone(&self.socket);
        unblock(move || work(&socket))
    }

    /// Reads this number of bytes.
    pub(super) fn read(&self, count: usize) -> Task<Vec<u8>> {
        self.apart(move |mut socket| {
            let mut bytes = vec![0; count];
            socket.read_exact(&mut bytes).expect("the peer sends that many bytes");
            bytes
        })
    }

    /// Reads until the end or an error. Returns the bytes, and `true` for the end.
    pub(super) fn read_to_end(&self) -> Task<(Vec<u8>, bool)> {
        self.apart(|mut socket| {
            let mut bytes = Vec::new();
            let ended = socket.read_to_end(&mut bytes).is_ok();
            (bytes, ended)
        })
    }

    /// Writes these bytes in pieces of `at_a_time` bytes.
    pub(super) fn write(&self, bytes: Vec<u8>, at_a_time: usize) -> Task<()> {
        self.apart(move |mut socket| {
            for part in bytes.chunks(at_a_time) {
                socket.write_all(part).expect("the socket accepts the bytes");
                thread::yield_now();
            }
        })
    }

    /// Ends the direction from the peer to the runtime.
    pub(super) fn end(&self) {
        self.socket.shutdown(Shutdown::Write).expect("a connection");
    }

    /// Resets the connection.
    pub(super) fn reset(self) {
        rustix::net::sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO)).expect("a socket of this process");
        assert_eq!(Arc::strong_count(&self.socket), 1, "no operation is in progress");
    }
}

/// An address that does not answer connects, not even with a refusal.
#[derive(Debug)]
pub struct Hole {
    address: SocketAddr,
    /// A listener whose accept queue is full of these connections, so further connects are not
    /// answered.
    full: Option<(TcpListener, Vec<TcpStream>)>,
    /// A bound socket that never listens; it reserves the port while the hole exists.
    _holder: Option<OwnedFd>,
}

impl Hole {
    /// A hole at this address, which the caller has prepared.
    #[must_use]
    pub const fn at(address: SocketAddr) -> Self {
        Self { address, full: None, _holder: None }
    }

    /// Creates a hole on this machine.
    pub async fn dig() -> Self {
        unblock(|| {
            let (holder, address) = reserved_port();
            let (socket, _) = crate::fake::bind(address).expect("it is ours");
            // Some systems take 0 for the longest queue.
            rustix::net::listen(&socket, 1).expect("a socket of this process");
            let filling = (0..16).map_while(|_| TcpStream::connect_timeout(&address, SILENCE).ok()).collect::<Vec<_>>();
            assert!(filling.len() < 16, "the accept queue has no limit");
            Self { address, full: Some((socket.into(), filling)), _holder: Some(holder) }
        })
        .await
    }

    /// Returns the address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops listening; connects are refused from now on.
    pub(super) fn close(&mut self) {
        self.full = None;
    }

    /// Number of sockets of this machine that are connecting to the hole. Zero on systems without
    /// `/proc/net/tcp`.
    pub(super) fn tried_by(&self) -> usize {
        let IpAddr::V4(ip) = self.address.ip() else { return 0 };
        // The address in the kernel's byte order, and the state "SYN sent".
        let wanted = format!(" {:08X}:{:04X} 02 ", u32::from_ne_bytes(ip.octets()), self.address.port());
        fs::read_to_string("/proc/net/tcp")
            .map_or(0, |table| table.lines().filter(|line| line.contains(&wanted)).count())
    }
}

/// A bound port without a listener, reserved while the socket exists.
pub(super) fn reserved_port() -> (OwnedFd, SocketAddr) {
    crate::fake::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port")
}

/// Counters of a [`Sink`].
#[derive(Debug, Default)]
struct Seen {
    accepted: AtomicUsize,
    ended: AtomicUsize,
    bytes: AtomicUsize,
    stop: AtomicBool,
}

/// Accepts all connections, and reads each to its end.
#[derive(Debug)]
pub(super) struct Sink {
    address: SocketAddr,
    seen: Arc<Seen>,
}

impl Sink {
    pub(super) fn open() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let seen = Arc::new(Seen::default());
        let all = Arc::clone(&seen);
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                if all.stop.load(Ordering::SeqCst) {
                    return;
                }
                all.accepted.fetch_add(1, Ordering::SeqCst);
                let seen = Arc::clone(&all);
                thread::spawn(move || {
                    let mut bytes = [0; 64];
                    while let Ok(count @ 1..) = (&socket).read(&mut bytes) {
                        seen.bytes.fetch_add(count, Ordering::SeqCst);
                    }
                    seen.ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, seen }
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of bytes received.
    pub(super) fn bytes(&self) -> usize {
        self.seen.bytes.load(Ordering::SeqCst)
    }

    /// Number of open connections.
    pub(super) fn open_count(&self) -> usize {
        // `ended` is read first: a connection that ends between the two reads then still counts as
        // open.
        let ended = self.seen.ended.load(Ordering::SeqCst);
        self.seen.accepted.load(Ordering::SeqCst).saturating_sub(ended)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.seen.stop.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, which then reads the flag.
        let _ = TcpStream::connect(self.address);
    }
}
