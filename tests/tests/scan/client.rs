//! The client: a scan, one socket for each server, and the messages on it.

use core::fmt;
use core::hash::BuildHasher;
use core::time::Duration;
use poolhouse_core::monitor::MonitorEvent;
use poolhouse_core::pool::Health;
use poolhouse_core::scan::{Scan, ScanAction, ScanConfig, ScanOptions, ScanStep, SocketId};
use poolhouse_core::selection::{DetailedSelectionError, SelectionCriteria};
use poolhouse_core::topology::{
    AppErrorKind, CommandError, HandshakePhase, OnHeap, ReplyError, SdamEvent, TopologyConfigError,
    TopologyDescription, TopologyId, TopologyOptions,
};
use poolhouse_core::{Cause, HostAddress, Instant, Observer};
use poolhouse_wire::bson::{DocumentWriter, RawDocument};
use poolhouse_wire::command::CommandReply;
use poolhouse_wire::hello::{ClientMetadata, HandshakeHello, HelloKind, HelloReply, MetadataOptions, encode_hello};
use poolhouse_wire::message::{Decoded, Exchange, Flags, Limits, Outgoing, RequestIds, encode_command};
use poolhouse_wire::{EncodeError, Labels};
use std::collections::HashMap;
use std::hash::RandomState;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};

/// The timeout of a command.
const COMMAND_LIMIT: Duration = Duration::from_secs(10);

/// The error of an operation.
#[derive(Debug)]
pub(crate) enum Error {
    /// The hosts contradict each other.
    Hosts(TopologyConfigError),
    /// No suitable server was found; contains the topology at that time.
    Selection(Box<DetailedSelectionError>),
    /// The connection failed.
    Connection(Cause),
    /// The server returned an error.
    Command {
        /// The error code.
        code: i32,
        /// The error message.
        message: String,
    },
    /// The command cannot be encoded.
    Encode(EncodeError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hosts(error) => error.fmt(f),
            Self::Selection(error) => error.fmt(f),
            Self::Connection(cause) => cause.fmt(f),
            Self::Command { code, message } => write!(f, "{message} (code {code})"),
            Self::Encode(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Error {}

/// A client that performs one operation at a time.
pub(crate) struct Client {
    scan: Scan<OnHeap>,
    sockets: HashMap<SocketId, Socket>,
    metadata: ClientMetadata,
    origin: std::time::Instant,
    random: RandomState,
    draws: u64,
    events: Events,
}

/// An observer that ignores events. Replace it to record them.
struct Events;

impl Observer<MonitorEvent> for Events {
    fn on_event(&mut self, _now: Instant, _event: &MonitorEvent) {}
}

impl Observer<SdamEvent<'_>> for Events {
    fn on_event(&mut self, _now: Instant, _event: &SdamEvent<'_>) {}
}

impl Client {
    /// Creates a client of these hosts with default options. Does not connect.
    pub(crate) fn new(hosts: &[&str]) -> Result<Self, Error> {
        let options = ScanOptions::DEFAULT.validate().expect("the defaults are valid");
        Self::with_options(TopologyOptions { seeds: hosts, ..TopologyOptions::default() }, options)
    }

    /// Creates a client with these options. Does not connect.
    pub(crate) fn with_options(topology: TopologyOptions<'_>, options: ScanConfig) -> Result<Self, Error> {
        let topology = topology.validate().map_err(Error::Hosts)?;
        let scan = Scan::new(Instant::ORIGIN, TopologyId::new(1), topology, options, &mut Events)
            .map_err(|_| Error::Connection(Cause::Resources))?;
        let metadata = MetadataOptions {
            driver_name: "poolhouse-scan",
            driver_version: env!("CARGO_PKG_VERSION"),
            os_type: std::env::consts::OS,
            ..MetadataOptions::default()
        };
        Ok(Self {
            scan,
            sockets: HashMap::new(),
            metadata: ClientMetadata::new(&metadata).expect("short names fit"),
            origin: std::time::Instant::now(),
            random: RandomState::new(),
            draws: 0,
            events: Events,
        })
    }

    /// Returns the description of the deployment.
    pub(crate) fn topology(&self) -> TopologyDescription<'_> {
        self.scan.topology().description()
    }

    /// Runs a command on a suitable server; returns the address of that server.
    pub(crate) fn run(
        &mut self,
        criteria: &SelectionCriteria<'_>,
        database: &str,
        body: impl FnOnce(&mut DocumentWriter<'_, Vec<u8>>) -> Result<(), EncodeError>,
    ) -> Result<String, Error> {
        let socket = self.select(criteria)?;
        let deadline = Some(self.now().saturating_add(COMMAND_LIMIT));
        let address = self.scan.topology().address(socket.server()).unwrap_or_default().to_owned();
        let mut connection = self.sockets.remove(&socket).ok_or(Error::Connection(Cause::Network))?;
        let sent = connection.send(deadline, self.origin, |sink, id| {
            encode_command(sink, Outgoing::request(id), &Limits::DEFAULT, database, body)?;
            Ok(Flags::NONE)
        });
        let received = sent.and_then(|()| connection.receive(deadline, self.origin).map_err(Error::Connection));
        let result = match received {
            Ok(()) => self.judge(socket, &connection),
            Err(Error::Connection(cause)) => {
                let kind = if cause == Cause::Network {
                    AppErrorKind::Network
                } else if cause == Cause::NetworkTimeout {
                    AppErrorKind::NetworkTimeout
                } else {
                    AppErrorKind::Other(cause)
                };
                self.report(socket, kind, false);
                Err(Error::Connection(cause))
            }
            Err(other) => Err(other),
        };
        self.sockets.insert(socket, connection);
        // Fails if an error has closed the connection, which is then not checked in.
        let _ = self.scan.check_in(self.now(), socket, Health::Healthy);
        self.work();
        result.map(|()| address)
    }

    /// Closes every connection.
    pub(crate) fn close(&mut self) {
        self.scan.close(self.now(), &mut self.events);
        self.work();
    }

    /// Evaluates the reply on this connection, and reports its errors to the scan.
    fn judge(&mut self, socket: SocketId, connection: &Socket) -> Result<(), Error> {
        let Ok(reply) = connection.reply().and_then(|reply| CommandReply::parse(reply).map_err(|_| Cause::Protocol))
        else {
            self.report(socket, AppErrorKind::Other(Cause::Protocol), false);
            return Err(Error::Connection(Cause::Protocol));
        };
        let error = |code, message: Option<_>| ReplyError { code, message: message.unwrap_or_default() };
        let command = (!reply.ok).then(|| error(reply.code, reply.message));
        let write_concern = reply.write_concern_error.map(|it| error(it.code, it.message));
        if command.is_some() || write_concern.is_some() {
            let overloaded = reply.labels().contains(Labels::SYSTEM_OVERLOADED_ERROR);
            let topology_version = reply.topology_version;
            let kind = AppErrorKind::Command(CommandError { command, write_concern, topology_version });
            self.report(socket, kind, overloaded);
        }
        match command {
            None => Ok(()),
            Some(error) => Err(Error::Command { code: error.code.unwrap_or(0), message: error.message.to_owned() }),
        }
    }

    fn report(&mut self, socket: SocketId, kind: AppErrorKind<'_>, overloaded: bool) {
        let now = self.now();
        // Fails if the connection was already abandoned; the error has no effect then.
        let _ = self.scan.handle_app_error(now, socket, HandshakePhase::After, kind, overloaded, &mut self.events);
    }

    /// Selects a server; the scan decides when to connect, check and sleep.
    fn select(&mut self, criteria: &SelectionCriteria<'_>) -> Result<SocketId, Error> {
        let mut selecting = self.scan.begin(self.now());
        loop {
            let (now, entropy) = (self.now(), self.entropy());
            match self.scan.select(now, &mut selecting, criteria, &[], entropy, &mut self.events) {
                Ok(ScanStep::Selected(socket)) => return Ok(socket),
                Ok(ScanStep::Work) => self.work(),
                Ok(ScanStep::Wait(until)) => std::thread::sleep(until.saturating_since(self.now())),
                Err(error) => return Err(Error::Selection(Box::new(error.detail(self.topology())))),
            }
        }
    }

    /// Performs all pending actions of the scan.
    fn work(&mut self) {
        while let Some(action) = self.scan.poll_action(self.now()) {
            match action {
                ScanAction::Hangup(socket) => drop(self.sockets.remove(&socket)),
                ScanAction::Dial { socket, deadline } => self.dial(socket, deadline),
                ScanAction::SendHello { socket, hello, deadline } => self.check(socket, hello, deadline),
            }
        }
    }

    fn dial(&mut self, socket: SocketId, deadline: Option<Instant>) {
        let Some(server) = self.scan.topology().server(socket.server()) else { return };
        let dialed = connect(&server.host_address(), deadline, self.origin);
        let now = self.now();
        // The result is an error if the socket was already abandoned; a Hangup follows then.
        let _ = match dialed {
            Ok(stream) => {
                self.sockets.insert(socket, Socket::new(stream));
                self.scan.handle_dialed(now, socket, &mut self.events)
            }
            Err(cause) => self.scan.handle_failed(now, socket, cause, &mut self.events),
        };
    }

    fn check(&mut self, socket: SocketId, hello: HelloKind, deadline: Option<Instant>) {
        let Some(mut connection) = self.sockets.remove(&socket) else {
            let _ = self.scan.handle_failed(self.now(), socket, Cause::Network, &mut self.events);
            return;
        };
        let answered = self.exchange_hello(&mut connection, hello, deadline).and_then(|()| {
            let body = connection.reply()?;
            let hello = HelloReply::parse(body).map_err(|_| Cause::Protocol)?;
            let _ = self.scan.handle_reply(self.now(), socket, &hello, &mut self.events);
            Ok(())
        });
        self.sockets.insert(socket, connection);
        if let Err(cause) = answered {
            let _ = self.scan.handle_failed(self.now(), socket, cause, &mut self.events);
        }
    }

    fn exchange_hello(
        &self,
        connection: &mut Socket,
        hello: HelloKind,
        deadline: Option<Instant>,
    ) -> Result<(), Cause> {
        let first = HandshakeHello::new(&self.metadata);
        let sent = connection.send(deadline, self.origin, |sink, id| Ok(encode_hello(sink, id, hello, &first)?.1));
        match sent {
            Ok(()) => connection.receive(deadline, self.origin),
            Err(Error::Connection(cause)) => Err(cause),
            Err(_) => Err(Cause::Resources),
        }
    }

    fn now(&self) -> Instant {
        now(self.origin)
    }

    fn entropy(&mut self) -> u32 {
        self.draws += 1;
        let hash = self.random.hash_one(self.draws);
        u32::try_from(hash >> 32).expect("32 bits")
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("scan", &self.scan).finish_non_exhaustive()
    }
}

fn now(origin: std::time::Instant) -> Instant {
    Instant::from_nanos(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// The time until a deadline; `None` means no limit. Returns an error after the deadline.
fn left(deadline: Option<Instant>, origin: std::time::Instant) -> Result<Option<Duration>, Cause> {
    match deadline.map(|deadline| deadline.saturating_since(now(origin))) {
        Some(Duration::ZERO) => Err(Cause::NetworkTimeout),
        left => Ok(left),
    }
}

fn connect(
    address: &HostAddress<'_>,
    deadline: Option<Instant>,
    origin: std::time::Instant,
) -> Result<TcpStream, Cause> {
    let HostAddress::Tcp { host, port } = *address else { return Err(Cause::Network) };
    let mut error = Cause::Dns;
    for address in (host, port).to_socket_addrs().map_err(|_| Cause::Dns)? {
        let connected = match left(deadline, origin)? {
            Some(left) => TcpStream::connect_timeout(&address, left),
            None => TcpStream::connect(address),
        };
        match connected {
            Ok(stream) => {
                // Without TCP_NODELAY small requests wait for the peer's delayed acknowledgement. A
                // failure is ignored: the socket is usable.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(failed) => error = cause_of(&failed),
        }
    }
    Err(error)
}

fn cause_of(error: &std::io::Error) -> Cause {
    if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) {
        Cause::NetworkTimeout
    } else {
        Cause::Network
    }
}

/// A connected socket with the bytes that were received on it.
struct Socket {
    stream: TcpStream,
    input: Vec<u8>,
    /// The range of the reply's document in the input.
    body: core::ops::Range<usize>,
    ids: RequestIds,
    exchange: Exchange,
}

impl Socket {
    fn new(stream: TcpStream) -> Self {
        Self { stream, input: Vec::new(), body: 0..0, ids: RequestIds::new(), exchange: Exchange::IDLE }
    }

    /// Sends one request.
    fn send(
        &mut self,
        deadline: Option<Instant>,
        origin: std::time::Instant,
        encode: impl FnOnce(&mut Vec<u8>, i32) -> Result<Flags, EncodeError>,
    ) -> Result<(), Error> {
        let mut output = Vec::new();
        let id = self.ids.next_id();
        let flags = encode(&mut output, id).map_err(Error::Encode)?;
        self.input.clear();
        self.exchange.begin(id, flags);
        let limit = left(deadline, origin).map_err(Error::Connection)?;
        let failed = |error: std::io::Error| Error::Connection(cause_of(&error));
        self.stream.set_write_timeout(limit).map_err(failed)?;
        self.stream.write_all(&output).map_err(failed)
    }

    /// Receives the reply to the request.
    fn receive(&mut self, deadline: Option<Instant>, origin: std::time::Instant) -> Result<(), Cause> {
        let mut chunk = [0; 16 * 1024];
        loop {
            let decoded = self.exchange.decode_reply(&self.input, &Limits::DEFAULT).map_err(|_| Cause::Protocol)?;
            if let Decoded::Done { value: (message, _), .. } = decoded {
                let body = message.body().as_bytes();
                let start = body.as_ptr().addr() - self.input.as_ptr().addr();
                self.body = start..start + body.len();
                return Ok(());
            }
            let limit = left(deadline, origin)?;
            self.stream.set_read_timeout(limit).map_err(|error| cause_of(&error))?;
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(Cause::Network),
                Ok(count) => self.input.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(cause_of(&error)),
            }
        }
    }

    /// Returns the received reply.
    fn reply(&self) -> Result<RawDocument<'_>, Cause> {
        let bytes = self.input.get(self.body.clone()).unwrap_or_default();
        RawDocument::new(bytes).map_err(|_| Cause::Protocol)
    }
}
