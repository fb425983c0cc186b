//! Sockets of this process that do as they are told: what runtimes are connected to.
//!
//! What blocks does so on threads apart, and begins at once, whether its outcome is awaited or not: it depends on the runtime under test for
//! nothing, and no case blocks that one's thread.

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

/// How long a connection must not be made for a black hole to be one.
const SILENCE: Duration = Duration::from_millis(200);

/// The bytes that stand in these places of a stream that is checked: no two parts of it are the same.
pub(super) fn pattern(places: Range<usize>) -> Vec<u8> {
    places.map(|place| place.wrapping_mul(0x9e37_79b9).to_le_bytes()[3]).collect()
}

/// Listens, on a port of its own.
#[derive(Debug)]
pub(super) struct Peer {
    listener: Arc<TcpListener>,
    address: SocketAddr,
}

/// What the system keeps of each direction of a connection, at the peer's end.
const BUFFER_BYTES: usize = 1 << 16;

impl Peer {
    pub(super) fn listen() -> Self {
        Self::listen_on(Ipv4Addr::LOCALHOST.into()).expect("a free port")
    }

    pub(super) fn listen_on(ip: IpAddr) -> io::Result<Self> {
        let listener = Arc::new(TcpListener::bind((ip, 0))?);
        // Of its connections too, and left alone by the system, which would give them megabytes: what fills them takes less time.
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
            socket.set_nodelay(true).expect("a socket of ours");
            then(Line::new(socket))
        })
    }

    /// The next connection.
    pub(super) fn accept(&self) -> Task<Line> {
        self.next(|line| line)
    }

    /// Resets the next connection as soon as there is one.
    pub(super) fn reset_next(&self) -> Task<()> {
        self.next(Line::reset)
    }
}

/// Listens on a Unix domain socket.
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
        // Of a process that had the same number.
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

/// The peer's end of a connection. Dropping it ends both directions, once what was begun is done.
#[derive(Debug)]
pub(super) struct Line {
    /// Of any family: what is done with it goes with any.
    socket: Arc<TcpStream>,
}

impl Line {
    fn new(socket: TcpStream) -> Self {
        // So that no thread is left behind by a case that has failed.
        socket.set_read_timeout(Some(PATIENCE * 3)).expect("a socket of ours");
        socket.set_write_timeout(Some(PATIENCE * 3)).expect("a socket of ours");
        Self { socket: Arc::new(socket) }
    }

    fn apart<T: Send + 'static>(&self, work: impl FnOnce(&TcpStream) -> T + Send + 'static) -> Task<T> {
        let socket = Arc::clone(&self.socket);
        unblock(move || work(&socket))
    }

    /// Reads so many bytes.
    pub(super) fn read(&self, count: usize) -> Task<Vec<u8>> {
        self.apart(move |mut socket| {
            let mut bytes = vec![0; count];
            socket.read_exact(&mut bytes).expect("so many bytes");
            bytes
        })
    }

    /// Reads until the end or an error: bytes, and whether it was the end.
    pub(super) fn read_to_end(&self) -> Task<(Vec<u8>, bool)> {
        self.apart(|mut socket| {
            let mut bytes = Vec::new();
            let ended = socket.read_to_end(&mut bytes).is_ok();
            (bytes, ended)
        })
    }

    /// Writes these bytes, so many at a time.
    pub(super) fn write(&self, bytes: Vec<u8>, at_a_time: usize) -> Task<()> {
        self.apart(move |mut socket| {
            for part in bytes.chunks(at_a_time) {
                socket.write_all(part).expect("the bytes are taken");
                thread::yield_now();
            }
        })
    }

    /// Ends the direction from the peer.
    pub(super) fn end(&self) {
        self.socket.shutdown(Shutdown::Write).expect("a connection");
    }

    /// Resets the connection.
    pub(super) fn reset(self) {
        rustix::net::sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO)).expect("a socket of ours");
        assert_eq!(Arc::strong_count(&self.socket), 1, "nothing is under way");
    }
}

/// An address at which nobody answers, not even that nobody is there.
#[derive(Debug)]
pub struct Hole {
    address: SocketAddr,
    /// Listens, and has so many connections waiting that further ones are not answered.
    full: Option<(TcpListener, Vec<TcpStream>)>,
    /// Bound for its life, so that nobody else gets the port. It never listens.
    _holder: Option<OwnedFd>,
}

impl Hole {
    /// At this address, which the caller has seen to.
    #[must_use]
    pub const fn at(address: SocketAddr) -> Self {
        Self { address, full: None, _holder: None }
    }

    /// On this machine.
    ///
    /// # Panics
    ///
    /// There are no sockets left, or the system answers all the same.
    pub async fn dig() -> Self {
        unblock(|| {
            let (holder, address) = deaf();
            let (socket, _) = crate::fake::bind(address).expect("it is ours");
            rustix::net::listen(&socket, 0).expect("a socket of ours");
            let filling = (0..16).map_while(|_| TcpStream::connect_timeout(&address, SILENCE).ok()).collect::<Vec<_>>();
            assert!(filling.len() < 16, "the system takes any number of connections");
            Self { address, full: Some((socket.into(), filling)), _holder: Some(holder) }
        })
        .await
    }

    /// Where it is.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Nobody listens there from now on.
    pub(super) fn close(&mut self) {
        self.full = None;
    }

    /// How many sockets of this machine try to connect to it. Of systems that do not tell, none.
    pub(super) fn tried_by(&self) -> usize {
        let IpAddr::V4(ip) = self.address.ip() else { return 0 };
        // The address as the kernel has it in memory, in state "SYN sent".
        let wanted = format!(" {:08X}:{:04X} 02 ", u32::from_ne_bytes(ip.octets()), self.address.port());
        fs::read_to_string("/proc/net/tcp")
            .map_or(0, |table| table.lines().filter(|line| line.contains(&wanted)).count())
    }
}

/// A port that is taken, and at which nobody listens, as long as it is held.
pub(super) fn deaf() -> (OwnedFd, SocketAddr) {
    crate::fake::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port")
}

/// What a [`Sink`] has seen.
#[derive(Debug, Default)]
struct Seen {
    accepted: AtomicUsize,
    ended: AtomicUsize,
    bytes: AtomicUsize,
    stop: AtomicBool,
}

/// Accepts whoever comes, and reads each connection to its end.
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

    /// How many bytes have come.
    pub(super) fn bytes(&self) -> usize {
        self.seen.bytes.load(Ordering::SeqCst)
    }

    /// How many connections are open.
    pub(super) fn open_count(&self) -> usize {
        // In this order: one that ends in between is none too few.
        let ended = self.seen.ended.load(Ordering::SeqCst);
        self.seen.accepted.load(Ordering::SeqCst).saturating_sub(ended)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.seen.stop.store(true, Ordering::SeqCst);
        // Wakes it to see that.
        let _ = TcpStream::connect(self.address);
    }
}
