//! The state machines alone: a pool of 4 connections and 8 waiters, the monitor of its server, and
//! the wire, driven by a blocking loop.

use core::hint::black_box;
use core::time::Duration;
use poolhouse_core::monitor::{
    CheckOutcome, HelloKind, Monitor, MonitorAction, MonitorConfig, MonitorConnId, MonitorConnKind, MonitorOptions,
};
use poolhouse_core::pool::{
    CheckOut, Claim, Clear, ConnId, EstablishError, Fixed, Health, Lease, Pool, PoolConfig, PoolId, PoolOptions,
    PoolState,
};
use poolhouse_core::{Cause, Instant, ServerId};
use poolhouse_wire::command::CommandReply;
use poolhouse_wire::handshake::{Handshake, Next};
use poolhouse_wire::hello::{ClientMetadata, HandshakeHello, HelloExchange, MetadataOptions};
use poolhouse_wire::message::{Decoded, Exchange, Flags, Limits, Matched, Outgoing, RequestIds, encode_command};
use poolhouse_wire::{Authenticator, Sink, SliceSink};
use static_cell::{ConstStaticCell, StaticCell};

use crate::peer::{self, Asked};

/// The measured pool.
pub type SmallPool = Pool<Fixed<4, 8>>;

/// The options, checked at compile time.
pub const POOL: PoolConfig =
    match (PoolOptions { max_pool_size: 4, min_pool_size: 1, ..PoolOptions::DEFAULT }).validate() {
        Ok(config) => config,
        Err(_) => panic!(),
    };
const MONITOR: MonitorConfig = match MonitorOptions::DEFAULT.validate() {
    Ok(config) => config,
    Err(_) => panic!(),
};

/// The buffer of the only connection that this loop uses at a time, instead of a socket.
struct Socket {
    request: [u8; 1024],
    reply: [u8; 1024],
}

/// The state of a server.
struct Machines {
    pool: SmallPool,
    monitor: Monitor,
    metadata: ClientMetadata,
    /// For each connection of the monitor.
    lines: [HelloExchange; 2],
    /// For each connection of the pool.
    conns: [(RequestIds, Exchange); 4],
}

/// Returns the time of the clock.
// One copy, which is small beside what is measured.
#[inline(never)]
#[must_use]
pub fn now() -> Instant {
    Instant::from_nanos(embassy_time::Instant::now().as_micros() * 1000)
}

/// Runs everything once: checks, a connection authenticated by `authenticator`, a command on it,
/// and the end.
///
/// - `begin`, `rounds`: the server's replies to a connection's hello and to the rest of its
///   handshake.
///
/// # Errors
///
/// The number of the step that failed.
pub fn run<A: Authenticator>(
    mut authenticator: impl FnMut() -> Option<A>,
    begin: Asked,
    rounds: Asked,
) -> Result<(), u8> {
    static MACHINES: StaticCell<Machines> = StaticCell::new();
    static SOCKET_BUFFERS: ConstStaticCell<Socket> =
        ConstStaticCell::new(Socket { request: [0; 1024], reply: [0; 1024] });
    let socket = SOCKET_BUFFERS.take();
    let fresh = (RequestIds::new(), Exchange::IDLE);
    let metadata =
        MetadataOptions { driver_name: "size", driver_version: "1", os_type: "none", ..MetadataOptions::default() };
    let machines = MACHINES.init(Machines {
        pool: Pool::new(now(), PoolId::new(1), POOL, &mut ()),
        monitor: Monitor::new(ServerId::new(1), MONITOR),
        metadata: ClientMetadata::new(&metadata).map_err(|_| 10)?,
        lines: [HelloExchange::new(), HelloExchange::new()],
        conns: [fresh; 4],
    });
    machines.monitor.start(now(), &mut ());
    // Enough rounds for a streaming check and for the round-trip measurements.
    for _ in 0..black_box(6) {
        machines.watch(socket);
    }
    for _ in 0..black_box(3) {
        machines.operate(socket, &mut authenticator, begin, rounds)?;
    }
    machines.monitor.request_check(now());
    machines.tick();
    machines.monitor.close(now(), &mut ());
    machines.pool.close(now(), &mut ());
    while black_box(machines.pool.poll_action(now())).is_some() {}
    machines.watch(socket);
    if machines.pool.counts().total() == 0 { Ok(()) } else { Err(11) }
}

impl Machines {
    /// Handles timeouts that are due.
    fn tick(&mut self) {
        let now = now();
        if self.pool.poll_timeout().is_some_and(|at| at <= now) {
            self.pool.handle_timeout(now, &mut ());
        }
        while self.monitor.poll_timeout().is_some_and(|at| at <= now) {
            let outcome = self.monitor.handle_timeout(now, self.is_known(), &mut ());
            self.apply(now, outcome);
        }
    }

    /// Performs the actions of the monitor on both of its connections.
    fn watch(&mut self, socket: &mut Socket) {
        for line in [MonitorConnKind::Check, MonitorConnKind::Rtt] {
            while let Some(action) = self.monitor.poll_conn(now(), line) {
                let (id, asked) = match action {
                    MonitorAction::Dial(id) => {
                        self.lines[usize::from(line == MonitorConnKind::Rtt)] = HelloExchange::new();
                        let outcome = self.monitor.handle_dialed(now(), id, self.is_known(), &mut ());
                        self.apply(now(), outcome.ok().flatten());
                        continue;
                    }
                    MonitorAction::Hangup(_) => continue,
                    MonitorAction::SendHello { conn, hello } => (conn, Some(hello)),
                    MonitorAction::ReadNext { conn } => (conn, None),
                };
                let outcome = match self.check(socket, id, asked) {
                    Some(outcome) => outcome,
                    None => {
                        let known = self.is_known();
                        self.monitor.handle_failed(now(), id, Cause::Network, known, &mut ()).ok().flatten()
                    }
                };
                let streams = self.monitor.is_streaming();
                self.apply(now(), outcome);
                self.tick();
                if streams && line == MonitorConnKind::Check {
                    break;
                }
            }
        }
        self.tick();
    }

    /// Sends one hello and handles its reply. Not inlined: its frame and that of an operation are
    /// never on the stack together.
    #[inline(never)]
    fn check(
        &mut self,
        socket: &mut Socket,
        conn: MonitorConnId,
        hello: Option<HelloKind>,
    ) -> Option<Option<CheckOutcome>> {
        let known = self.is_known();
        let exchange = &mut self.lines[usize::from(conn.kind() == MonitorConnKind::Rtt)];
        let mut sink = SliceSink::new(&mut socket.request);
        if let Some(hello) = hello {
            exchange.send_hello(hello, &HandshakeHello::new(&self.metadata), &mut sink).ok()?;
        }
        let received = peer::answer(Asked::Hello, sink.written(), &mut socket.reply);
        // By reference: each copy of the reply would be on the stack.
        let decoded = exchange.handle_input(socket.reply.get(..received)?);
        let Ok(Decoded::Done { value: (reply, matched), .. }) = &decoded else { return None };
        self.monitor.handle_reply(now(), conn, reply, *matched, known, &mut ()).ok()
    }

    /// Whether the last check succeeded.
    fn is_known(&self) -> bool {
        self.pool.state() == PoolState::Ready
    }

    /// Applies the outcome of a check to the pool.
    fn apply(&mut self, now: Instant, outcome: Option<CheckOutcome>) {
        match outcome {
            Some(CheckOutcome::Succeeded { .. }) => self.pool.ready(now, &mut ()),
            Some(CheckOutcome::Failed { cause, interrupt }) => {
                let clear = Clear::All { interrupt_in_use_connections: interrupt };
                let _ = self.pool.clear(now, clear, Some(cause), &mut ());
            }
            None => {}
        }
    }

    /// Performs a check-out, a command and a check-in.
    fn operate<A: Authenticator>(
        &mut self,
        socket: &mut Socket,
        authenticator: &mut impl FnMut() -> Option<A>,
        begin: Asked,
        rounds: Asked,
    ) -> Result<(), u8> {
        let deadline = Some(now().saturating_add(Duration::from_secs(60)));
        let lease = match self.pool.check_out(now(), deadline, &mut ()).map_err(|_| 20)? {
            CheckOut::Granted(lease) => lease,
            CheckOut::Queued(waiter) => {
                while let Some(conn) = self.pool.poll_establish() {
                    match self.establish(socket, conn, authenticator(), begin, rounds) {
                        Ok(()) => drop(self.pool.handle_established(now(), conn, &mut ())),
                        Err(error) => drop(self.pool.handle_establish_failed(now(), conn, error, &mut ())),
                    }
                }
                while black_box(self.pool.poll_prompt()).is_some() {}
                match self.pool.claim(now(), waiter) {
                    Claim::Granted(lease) => lease,
                    Claim::Failed(_) => return Err(21),
                    Claim::Stale => return Err(22),
                    Claim::Waiting => {
                        self.pool.cancel(now(), waiter, &mut ());
                        return Err(23);
                    }
                }
            }
        };
        let done = self.ping(socket, &lease);
        let health = if done.is_some() { Health::Healthy } else { Health::Broken(Cause::Network) };
        self.pool.check_in(now(), lease, health, &mut ()).map_err(|_| 24)?;
        while black_box(self.pool.poll_prompt()).is_some() {}
        done.ok_or(25)
    }

    fn establish<A: Authenticator>(
        &mut self,
        socket: &mut Socket,
        conn: ConnId,
        authenticator: Option<A>,
        begin: Asked,
        rounds: Asked,
    ) -> Result<(), EstablishError> {
        let lost = EstablishError { cause: Cause::Network, overloaded: false, clear: None };
        let failed = |cause| EstablishError { cause, ..lost };
        let hello = HandshakeHello::new(&self.metadata);
        let mut handshake = Handshake::with_authenticator(hello, authenticator).with_arbiters_exempt(false);
        let (mut received, mut asked) = (0, begin);
        loop {
            let mut sink = SliceSink::new(&mut socket.request);
            if handshake.poll_transmit(&mut sink).map_err(|error| failed(error.cause))? {
                received = peer::answer(asked, sink.written(), &mut socket.reply);
                asked = rounds;
            }
            let input = socket.reply.get(..received).unwrap_or_default();
            match handshake.handle_input(input).map_err(|error| failed(error.cause))?.next {
                Next::Transmit | Next::Work => received = 0,
                Next::Receive { .. } => return Err(failed(handshake.failed(Cause::Network).cause)),
                Next::Established(known) => {
                    if let Some(place) = self.conns.get_mut(conn.index() as usize) {
                        *place = (known.request_ids, Exchange::IDLE);
                    }
                    return Ok(());
                }
            }
        }
    }

    fn ping(&mut self, socket: &mut Socket, lease: &Lease) -> Option<()> {
        let (ids, exchange) = self.conns.get_mut(lease.conn().index() as usize)?;
        let mut sink = SliceSink::new(&mut socket.request);
        let id = ids.next_id();
        encode_command(&mut sink, Outgoing::request(id), &Limits::DEFAULT, black_box("admin"), |body| {
            body.int32(black_box("ping"), 1).map(drop)
        })
        .ok()?;
        exchange.begin(id, Flags::NONE);
        let received = peer::answer(Asked::Command, sink.written(), &mut socket.reply);
        let input = socket.reply.get(..received)?;
        let Decoded::Done { value: (message, Matched::Last), .. } =
            exchange.decode_reply(input, &Limits::DEFAULT).ok()?
        else {
            return None;
        };
        let reply = CommandReply::parse(message.body()).ok()?;
        black_box(reply.cause()).is_none().then_some(())
    }
}
