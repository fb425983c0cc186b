//! Lookups over blocking sockets: the simplest driver of the core's lookup.

use core::net::SocketAddr;
use core::time::Duration;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time;

use poolhouse_core::Instant;
use poolhouse_uri::dns::{Answer, Lookup, LookupAction, LookupError, RecordKind, Resolver, ResolverConfig, SrvAnswer};

use crate::rng::Rng;

/// The socket of one attempt.
enum Socket {
    Udp(UdpSocket),
    Tcp(TcpStream),
}

/// Queries the servers of a configuration; blocks until one has answered.
pub fn ask(config: &ResolverConfig, name: &str, kind: RecordKind) -> Result<Answer, LookupError> {
    let origin = time::Instant::now();
    let now = || Instant::ORIGIN.saturating_add(origin.elapsed());
    let mut rng = Rng::new(u64::from(std::process::id()));
    let mut entropy = move || u32::try_from(rng.next_u64() >> 32).unwrap_or(0);
    let mut lookup = Lookup::new(config, name, kind, entropy())?;
    let mut socket = None;
    while !lookup.is_done() {
        if let Some(action) = lookup.poll_action(now(), entropy()) {
            socket = open(action, &lookup).ok();
        }
        let Some(until) = lookup.poll_timeout() else { continue };
        let left = until.saturating_since(now());
        let heard = match &mut socket {
            _ if left.is_zero() => Ok(Heard::Nothing),
            Some(socket) => hear(socket, left),
            None => Err(io::Error::other("no socket")),
        };
        match heard {
            Ok(Heard::Nothing) => lookup.handle_timeout(now()),
            Ok(Heard::Datagram(from, bytes)) => lookup.handle_datagram(now(), from, &bytes),
            Ok(Heard::Stream(bytes)) => lookup.handle_stream(now(), &bytes),
            Err(_) => lookup.handle_failed(),
        }
    }
    lookup.into_result()
}

fn open(action: LookupAction, lookup: &Lookup) -> io::Result<Socket> {
    match action {
        LookupAction::Datagram(server) => {
            let local: SocketAddr = if server.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
            let socket = UdpSocket::bind(local)?;
            socket.send_to(lookup.request(), server)?;
            Ok(Socket::Udp(socket))
        }
        LookupAction::Stream(server) => {
            let mut stream = TcpStream::connect(server)?;
            stream.write_all(lookup.stream_request())?;
            Ok(Socket::Tcp(stream))
        }
    }
}

enum Heard {
    Nothing,
    Datagram(SocketAddr, Vec<u8>),
    Stream(Vec<u8>),
}

fn hear(socket: &mut Socket, left: Duration) -> io::Result<Heard> {
    let mut buffer = vec![0; 4_096];
    let heard = match socket {
        Socket::Udp(socket) => {
            socket.set_read_timeout(Some(left))?;
            socket.recv_from(&mut buffer).map(|(length, from)| Heard::Datagram(from, buffer[..length].to_vec()))
        }
        Socket::Tcp(stream) => {
            stream.set_read_timeout(Some(left))?;
            stream.read(&mut buffer).map(|length| Heard::Stream(buffer[..length].to_vec()))
        }
    };
    match heard {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(Heard::Nothing),
        heard => heard,
    }
}

/// A resolver that blocks the calling thread.
#[derive(Clone, Debug)]
pub struct BlockingResolver {
    /// The servers to query.
    pub config: ResolverConfig,
}

impl BlockingResolver {
    /// Queries this one server.
    #[must_use]
    pub fn of(server: SocketAddr) -> Self {
        Self { config: ResolverConfig::new(vec![server]) }
    }
}

#[async_trait::async_trait]
impl Resolver for BlockingResolver {
    async fn lookup_srv(&self, name: &str) -> Result<SrvAnswer, LookupError> {
        match ask(&self.config, name, RecordKind::Srv)? {
            Answer::Srv(answer) => Ok(answer),
            Answer::Txt(_) | Answer::Addresses(_) => Err(LookupError::NoRecords),
        }
    }

    async fn lookup_txt(&self, name: &str) -> Result<Vec<String>, LookupError> {
        match ask(&self.config, name, RecordKind::Txt)? {
            Answer::Txt(texts) => Ok(texts),
            Answer::Srv(_) | Answer::Addresses(_) => Err(LookupError::NoRecords),
        }
    }
}
