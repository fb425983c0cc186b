use core::{error::Error, net::SocketAddr, time::Duration};
use poolhouse_core::monitor::{MonitorOptions, ServerMonitoringMode};
use poolhouse_core::pool::{CheckOut, CheckOutError, Claim, Lease, PoolConfig};
use poolhouse_core::server::{Received, ServerAction, ServerOnHeap, SocketId};
use poolhouse_core::{Cause, Instant, topology::TopologyOptions};
use poolhouse_wire::hello::{ClientMetadata, HandshakeHello};
use poolhouse_wire::{EncodeError, bson::DocumentWriter};
use std::io::{ErrorKind, Read, Write};
use std::{collections::HashMap, net::TcpStream};

type Fields = fn(&mut DocumentWriter<'_, Vec<u8>>) -> Result<(), EncodeError>;

/// A client of one server with one thread, which waits for one reply at a time.
pub(crate) struct Client<'a> {
    pub(crate) server: ServerOnHeap<'a>,
    address: SocketAddr,
    connect_timeout: Duration,
    origin: std::time::Instant,
    /// The sockets, and the bytes that were received and not consumed.
    sockets: HashMap<SocketId, (TcpStream, Vec<u8>)>,
}

impl<'a> Client<'a> {
    pub(crate) fn new(address: SocketAddr, own: &'a ClientMetadata, limit: Duration) -> Result<Self, Box<dyn Error>> {
        let seeds = &[&*address.to_string()];
        let topology = TopologyOptions { seeds, direct_connection: true, ..Default::default() }.validate()?;
        let monitor = MonitorOptions { connect_timeout: Some(limit), ..Default::default() };
        // A streaming server replies when its state changes, and this thread would wait for it.
        let monitor = MonitorOptions { server_monitoring_mode: ServerMonitoringMode::Poll, ..monitor }.validate()?;
        let (origin, hello) = (std::time::Instant::now(), HandshakeHello::new(own));
        let server = ServerOnHeap::new(Instant::ORIGIN, 1, topology, PoolConfig::DEFAULT, monitor, hello, &mut ())?;
        Ok(Self { server, address, connect_timeout: limit, origin, sockets: HashMap::new() })
    }

    /// Runs a command, and returns the document of its reply.
    pub(crate) fn run(&mut self, limit: Duration, fields: Fields) -> Result<Vec<u8>, Box<dyn Error>> {
        let (deadline, mut request) = (self.now().saturating_add(limit), Vec::new());
        let lease = self.check_out(deadline)?;
        let written = self.server.write_command(&lease, Some(deadline), "admin", &mut request, fields);
        let reply = written.is_ok().then(|| self.exchange(SocketId::Pool(lease.conn()), &request)).flatten();
        let failure = self.server.failure(&lease).unwrap_or(Cause::Closed);
        self.server.check_in(self.now(), lease, &mut ())?;
        self.work();
        written?;
        Ok(reply.ok_or(failure)?)
    }

    fn check_out(&mut self, deadline: Instant) -> Result<Lease, CheckOutError> {
        loop {
            self.work();
            let waiter = match self.server.check_out(self.now(), Some(deadline), &mut ()) {
                Ok(CheckOut::Granted(lease)) => return Ok(lease),
                Ok(CheckOut::Queued(waiter)) => waiter,
                // The server is not known. The next check may succeed.
                Err(CheckOutError::PoolCleared { .. }) if self.now() < deadline => {
                    self.server.request_check(self.now());
                    std::thread::sleep(self.time_left());
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.work();
            match self.server.claim(self.now(), waiter) {
                Claim::Granted(lease) => return Ok(lease),
                Claim::Failed(error) => return Err(error),
                Claim::Waiting | Claim::Stale => unreachable!("its connection was established, or has failed"),
            }
        }
    }

    /// Handles the timeout if it is due, and carries out all owed actions.
    fn work(&mut self) {
        self.server.handle_timeout(self.now(), &mut ());
        while let Some(action) = self.server.poll_action(self.now()) {
            match action {
                ServerAction::Dial(id) => match TcpStream::connect_timeout(&self.address, self.connect_timeout) {
                    Ok(stream) => {
                        self.sockets.insert(id, (stream, Vec::new()));
                        // Stale if the deadline of the dial has passed; a `Close` follows.
                        let _ = self.server.handle_dialed(self.now(), id, &mut ());
                    }
                    Err(_) => self.fail(id),
                },
                ServerAction::Transmit(id) => {
                    let mut request = Vec::new();
                    self.server.poll_transmit(id, &mut request).expect("memory");
                    self.exchange(id, &request);
                }
                ServerAction::Close(id) => drop(self.sockets.remove(&id)),
                // A client with tasks would wake them.
                ServerAction::Wake(_) | ServerAction::Checked => {}
            }
        }
    }

    /// Sends a request, and receives until a message was handled. Returns the reply to a command.
    fn exchange(&mut self, id: SocketId, request: &[u8]) -> Option<Vec<u8>> {
        let mut is_open = self.sockets.get_mut(&id)?.0.write_all(request).is_ok();
        while is_open {
            let (now, left) = (self.now(), self.time_left());
            // A timeout may have closed the socket.
            let (stream, input) = self.sockets.get_mut(&id)?;
            let (used, reply) = match self.server.handle_input(now, id, input, &mut ()) {
                Ok(Received::Handled { consumed_bytes: used }) => (used, None),
                Ok(Received::Reply { message, consumed_bytes: used, .. }) => {
                    (used, Some(message.body().as_bytes().into()))
                }
                Ok(Received::NeedMore { .. }) => {
                    let mut chunk = [0; 4096];
                    match stream.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut chunk)) {
                        Ok(count @ 1..) => input.extend(&chunk[..count]),
                        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => self.work(),
                        Ok(0) | Err(_) => is_open = false,
                    }
                    continue;
                }
                Err(_) => break,
            };
            input.drain(..used);
            return reply;
        }
        self.fail(id);
        None
    }

    fn fail(&mut self, id: SocketId) {
        // Stale if the machine has already abandoned the socket.
        let _ = self.server.handle_failed(self.now(), id, Cause::Network, &mut ());
        self.sockets.remove(&id);
    }

    /// The time until the machine's next timeout, rounded up.
    fn time_left(&self) -> Duration {
        let left = |at: Instant| at.saturating_since(self.now()) + Duration::from_millis(1);
        self.server.poll_timeout().map_or(Duration::MAX, left)
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
