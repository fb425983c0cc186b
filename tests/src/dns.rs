//! A name server for tests: real packets over UDP and TCP on loopback, encoded independently of the
//! code under test.
//!
//! Records may change while it runs. [`Fault`] makes it answer wrongly, or not at all.

mod ask;
mod packet;
mod records;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

pub use ask::{BlockingResolver, ask};
pub use packet::Query;
pub use records::{DNS_RECORDS, Records};

/// Time after which a silent TCP peer is dropped. Loopback is never that slow.
const SILENCE: Duration = Duration::from_secs(5);

/// Faults of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    #[default]
    None,
    /// Sends no answer.
    Silent,
    /// Refuses with this response code.
    Refuse(u8),
    /// Refuses queries for TXT records, with this response code.
    RefuseTxt(u8),
    /// Does not answer queries for IPv6 addresses.
    DropAaaa,
    /// Truncates every answer over UDP.
    Truncate,
    /// Sends forged answers before each real one: wrong ids, wrong questions, wrong hosts.
    Forge,
}

#[derive(Debug, Default)]
struct State {
    records: Records,
    fault: Fault,
    queries: Vec<Query>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    ends: AtomicBool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the messages that answer a query.
    fn answers(&self, bytes: &[u8], over_tcp: bool) -> Vec<Vec<u8>> {
        let Some(query) = Query::parse(bytes, over_tcp) else { return Vec::new() };
        let mut state = self.state();
        state.queries.push(query.clone());
        let good = || packet::answer(&query, &state.records);
        match state.fault {
            Fault::None => vec![good()],
            Fault::Silent => Vec::new(),
            Fault::Refuse(code) => vec![packet::refusal(&query, code)],
            Fault::RefuseTxt(code) if query.kind == packet::TXT => vec![packet::refusal(&query, code)],
            Fault::DropAaaa if query.kind == packet::AAAA => Vec::new(),
            Fault::Truncate if !over_tcp => vec![packet::truncated(&query)],
            Fault::Forge if !over_tcp => [packet::forged(&query), vec![good()]].concat(),
            Fault::RefuseTxt(_) | Fault::DropAaaa | Fault::Truncate | Fault::Forge => vec![good()],
        }
    }
}

/// The server. Its threads end when it is dropped.
#[derive(Debug)]
pub struct DnsServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl DnsServer {
    /// Starts a server with these records, on a free port of loopback.
    ///
    /// # Errors
    /// No port is free for both UDP and TCP, or no thread can be started.
    pub fn start(records: Records) -> io::Result<Self> {
        let (udp, tcp) = bind()?;
        let address = udp.local_addr()?;
        let state = Mutex::new(State { records, ..State::default() });
        let shared = Arc::new(Shared { state, ends: AtomicBool::new(false) });
        let mut server = Self { address, shared: Arc::clone(&shared), threads: Vec::new() };
        let datagrams = Arc::clone(&shared);
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        server.threads.push(named("dns-udp").spawn(move || serve_udp(&udp, &datagrams))?);
        server.threads.push(named("dns-tcp").spawn(move || serve_tcp(&tcp, &shared))?);
        Ok(server)
    }

    /// Returns its address, for UDP and TCP.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the records.
    pub fn change(&self, change: impl FnOnce(&mut Records)) {
        change(&mut self.shared.state().records);
    }

    /// Sets the fault of answers from now on.
    pub fn set_fault(&self, fault: Fault) {
        self.shared.state().fault = fault;
    }

    /// Returns the queries received so far.
    #[must_use]
    pub fn queries(&self) -> Vec<Query> {
        self.shared.state().queries.clone()
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        // Each thread is blocked in a read or accept; if it cannot be woken, it is not joined.
        let datagram = UdpSocket::bind(("127.0.0.1", 0)).and_then(|socket| socket.send_to(&[], self.address));
        let stream = TcpStream::connect(self.address);
        if datagram.is_ok() && stream.is_ok() {
            for thread in self.threads.drain(..) {
                // A panic of the thread has already been printed.
                let _ = thread.join();
            }
        }
    }
}

/// Binds a port that is free for both UDP and TCP.
fn bind() -> io::Result<(UdpSocket, TcpListener)> {
    let mut last = io::Error::other("no port");
    for _ in 0..100 {
        let tcp = TcpListener::bind(("127.0.0.1", 0))?;
        match UdpSocket::bind(tcp.local_addr()?) {
            Ok(udp) => return Ok((udp, tcp)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn serve_udp(socket: &UdpSocket, shared: &Shared) {
    let mut buffer = [0; 4_096];
    while !shared.ends.load(Ordering::SeqCst) {
        // Errors of earlier sends to closed clients are also reported here.
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        for answer in shared.answers(&buffer[..length], false) {
            let _ = socket.send_to(&answer, from);
        }
    }
}

fn serve_tcp(listener: &TcpListener, shared: &Shared) {
    while let Ok((stream, _)) = listener.accept() {
        if shared.ends.load(Ordering::SeqCst) {
            return;
        }
        // Connections are served sequentially; an error affects only its own connection.
        let _ = serve_stream(stream, shared);
    }
}

fn serve_stream(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(SILENCE))?;
    let mut prefix = [0; 2];
    stream.read_exact(&mut prefix)?;
    let mut query = vec![0; usize::from(u16::from_be_bytes(prefix))];
    stream.read_exact(&mut query)?;
    for answer in shared.answers(&query, true) {
        let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
        stream.write_all(&[&length.to_be_bytes()[..], &answer].concat())?;
    }
    Ok(())
}
