//! A modem with Espressif's AT commands (ESP-AT) on a serial line: TCP connections and names by the traits of
//! embedded-nal-async. Of another modem, the commands and the notices differ.
//!
//! [`Driver::run`] owns the line, and executes one command after the other. The tasks that use connections
//! exchange only bytes and wishes with it, in the memory of [`Modem`]. So a dropped future leaves no command
//! without its answer.
//!
//! The modem may send anything. Its lines and bytes are limited, unknown lines are ignored, and a command without
//! an answer in time restarts the modem, which ends all connections.
//!
//! The modem itself joins its network, with the settings that it has stored. While it connects it executes nothing
//! else: a host that is silent delays all links.
//!
//! Read first: ESP-AT User Guide, "TCP/IP AT Commands".

use core::cell::RefCell;
use core::fmt::{self, Write as _};
use core::future::poll_fn;
use core::net::{IpAddr, SocketAddr};
use core::task::{Poll, Waker};
use embassy_futures::select::{Either, select};
use embassy_futures::yield_now;
use embassy_time::{Duration, Timer, with_timeout};
use embedded_io_async::{ErrorKind, ErrorType, Read, Write};
use embedded_nal_async::{AddrType, Dns, TcpConnect};
use heapless::{Deque, String, Vec};

/// The connections of the modem.
pub(crate) const LINKS: usize = 5;
/// The bytes of a connection in either direction, and of one command.
const CHUNK: usize = 256;
/// The longest line, in bytes; longer ones are ignored.
const LINE: usize = 128;
/// The longest name of a host, in bytes.
const NAME: usize = 96;
/// The most that is read from the line before other tasks run.
const INPUT: usize = 32;
/// The time limit of a command.
const ANSWER: Duration = Duration::from_secs(5);
/// The time limit of a command that uses the network to connect or to resolve.
const REMOTE: Duration = Duration::from_secs(20);
/// The pause before a command that the modem was too busy for is sent again, and after a failed restart.
const PAUSE: Duration = Duration::from_millis(100);
/// How often the modem is asked for announced bytes: it may refuse although it has some.
const ASKS: u8 = 2;

/// The memory of the modem, for the tasks of one executor.
pub(crate) struct Modem(RefCell<State>);

struct State {
    links: [Link; LINKS],
    driver: Option<Waker>,
}

/// A connection, or the resolution of a name.
struct Link {
    phase: Phase,
    /// Whether the modem may have a connection.
    is_dialed: bool,
    /// How often to ask the modem for bytes.
    asks: u8,
    received: Deque<u8, CHUNK>,
    /// Bytes to send, or the name to resolve.
    sending: Vec<u8, CHUNK>,
    user: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Free,
    Resolve,
    Resolved(IpAddr),
    Dial(SocketAddr),
    Open,
    /// By the peer. The modem may still have bytes.
    Closed,
    Failed,
    /// No longer used, to be closed.
    Released,
}

/// Why a connection or a name cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// All links are in use.
    NoLink,
    /// Connecting failed.
    Refused,
    /// The peer has closed the connection, or the modem has lost it.
    Lost,
    /// The name cannot be resolved.
    Name,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoLink => "all links of the modem are in use",
            Self::Refused => "the modem could not connect",
            Self::Lost => "the connection was lost",
            Self::Name => "the modem could not resolve the name",
        })
    }
}

impl core::error::Error for Error {}

impl embedded_io_async::Error for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoLink => ErrorKind::OutOfMemory,
            Self::Refused => ErrorKind::ConnectionRefused,
            Self::Lost => ErrorKind::ConnectionReset,
            Self::Name => ErrorKind::NotFound,
        }
    }
}

impl Link {
    const FREE: Self =
        Self { phase: Phase::Free, is_dialed: false, asks: 0, received: Deque::new(), sending: Vec::new(), user: None };

    /// The next phase, if it is still in `from`: its user may have released it, or the peer closed it.
    fn advance(&mut self, from: Phase, to: Phase) {
        if self.phase == from {
            self.phase = to;
        }
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(user) = self.user.take() {
            user.wake();
        }
    }
}

impl State {
    fn wake_driver(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }
}

impl Modem {
    pub(crate) const fn new() -> Self {
        Self(RefCell::new(State { links: [const { Link::FREE }; LINKS], driver: None }))
    }

    /// No caller awaits or calls it again in `f`.
    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.0.borrow_mut())
    }

    /// Takes a free link, with a wish for the driver.
    fn take(&self, wish: Phase, name: &[u8]) -> Result<Line<'_>, Error> {
        let sending = Vec::from_slice(name).map_err(|_| Error::Name)?;
        self.with(|state| {
            let index = state.links.iter().position(|link| link.phase == Phase::Free).ok_or(Error::NoLink)?;
            state.links[index] = Link { phase: wish, sending, ..Link::FREE };
            state.wake_driver();
            Ok(Line { modem: self, index })
        })
    }

    /// Waits until the modem has closed the connections that are no longer used.
    pub(crate) async fn closed(&self) {
        while self.with(|state| state.links.iter().any(|link| link.phase == Phase::Released)) {
            Timer::after(PAUSE).await;
        }
    }

    /// Ends all connections, because the modem has none any more.
    fn fail_all(&self) {
        self.with(|state| {
            for link in &mut state.links {
                let user = link.user.take();
                let is_used = !matches!(link.phase, Phase::Free | Phase::Released);
                *link = Link { phase: if is_used { Phase::Failed } else { Phase::Free }, user, ..Link::FREE };
                link.wake();
            }
        });
    }
}

impl TcpConnect for Modem {
    type Error = Error;
    type Connection<'a> = Line<'a>;

    async fn connect<'a>(&'a self, remote: SocketAddr) -> Result<Line<'a>, Error> {
        let line = self.take(Phase::Dial(remote), &[])?;
        let phase = line.next_phase(Phase::Dial(remote)).await;
        if phase == Phase::Open { Ok(line) } else { Err(Error::Refused) }
    }
}

impl Dns for Modem {
    type Error = Error;

    async fn get_host_by_name(&self, host: &str, kind: AddrType) -> Result<IpAddr, Error> {
        // A quotation mark would end the parameter of the command.
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if kind == AddrType::IPv6 || host.len() > NAME || !host.bytes().all(is_name) {
            return Err(Error::Name);
        }
        let line = self.take(Phase::Resolve, host.as_bytes())?;
        let phase = line.next_phase(Phase::Resolve).await;
        if let Phase::Resolved(address) = phase { Ok(address) } else { Err(Error::Name) }
    }

    async fn get_host_by_address(&self, _: IpAddr, _: &mut [u8]) -> Result<usize, Error> {
        Err(Error::Name)
    }
}

/// A link in use. Dropping it closes the connection.
pub(crate) struct Line<'a> {
    modem: &'a Modem,
    index: usize,
}

impl Line<'_> {
    /// Waits until `ready` has a result.
    async fn until<R>(&self, mut ready: impl FnMut(&mut Link) -> Poll<R>) -> R {
        poll_fn(|context| {
            self.modem.with(|state| {
                let link = &mut state.links[self.index];
                let polled = ready(link);
                match polled {
                    Poll::Pending => link.user = Some(context.waker().clone()),
                    Poll::Ready(_) => state.wake_driver(),
                }
                polled
            })
        })
        .await
    }

    async fn next_phase(&self, phase: Phase) -> Phase {
        self.until(|link| if link.phase == phase { Poll::Pending } else { Poll::Ready(link.phase) }).await
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        self.modem.with(|state| {
            state.links[self.index].phase = Phase::Released;
            state.wake_driver();
        });
    }
}

impl ErrorType for Line<'_> {
    type Error = Error;
}

impl Read for Line<'_> {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, Error> {
        self.until(|link| {
            let count = buf.len().min(link.received.len());
            if count > 0 || buf.is_empty() {
                buf.iter_mut().zip(core::iter::from_fn(|| link.received.pop_front())).for_each(|(to, byte)| *to = byte);
                return Poll::Ready(Ok(count));
            }
            if link.phase == Phase::Open || link.phase == Phase::Closed && link.asks > 0 {
                return Poll::Pending;
            }
            Poll::Ready(if link.phase == Phase::Closed { Ok(0) } else { Err(Error::Lost) })
        })
        .await
    }
}

impl Write for Line<'_> {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, Error> {
        self.flush().await?;
        self.until(|link| {
            let count = buf.len().min(CHUNK);
            let is_stored = link.sending.extend_from_slice(&buf[..count]).is_ok();
            Poll::Ready(if is_stored { Ok(count) } else { Err(Error::Lost) })
        })
        .await
    }

    /// Waits until the modem has accepted all bytes.
    async fn flush(&mut self) -> Result<(), Error> {
        self.until(|link| match link.phase == Phase::Open {
            true if link.sending.is_empty() => Poll::Ready(Ok(())),
            true => Poll::Pending,
            false => Poll::Ready(Err(Error::Lost)),
        })
        .await
    }
}

/// A command for a link.
enum Job {
    Resolve(String<NAME>),
    Dial(SocketAddr),
    Send(Vec<u8, CHUNK>),
    Receive,
    Close,
}

impl State {
    /// The next job after `turn`, which it advances: all links, and receiving and all else, have their turns.
    fn next_job(&mut self, turn: &mut usize) -> Option<(usize, Job)> {
        for _ in 0..2 * LINKS {
            *turn = (*turn + 1) % (2 * LINKS);
            let (index, is_receiving) = (*turn % LINKS, *turn < LINKS);
            let link = &mut self.links[index];
            let job = match link.phase {
                Phase::Open | Phase::Closed if is_receiving => {
                    (link.asks > 0 && link.received.is_empty()).then_some(Job::Receive)
                }
                Phase::Open if !link.sending.is_empty() => Some(Job::Send(link.sending.clone())),
                Phase::Resolve => {
                    str::from_utf8(&link.sending).ok().and_then(|name| name.try_into().ok()).map(Job::Resolve)
                }
                Phase::Dial(address) => Some(Job::Dial(address)),
                Phase::Released if link.is_dialed => Some(Job::Close),
                Phase::Released => {
                    *link = Link::FREE;
                    None
                }
                Phase::Free | Phase::Resolved(_) | Phase::Open | Phase::Closed | Phase::Failed => None,
            };
            if let Some(job) = job {
                return Some((index, job));
            }
        }
        None
    }
}

/// The state of the modem is unknown.
enum Fault {
    /// It did not answer in time, or wrongly.
    Unanswered,
    /// It has restarted.
    Restarted,
}

/// The end of an answer.
enum Reply {
    Ok,
    Error,
    Busy,
    /// It waits for the bytes to send.
    Prompt,
}

/// The side of the modem that owns the serial line.
pub(crate) struct Driver<U> {
    modem: &'static Modem,
    uart: U,
    input: Deque<u8, INPUT>,
    /// The beginning of a line.
    line: String<LINE>,
    is_too_long: bool,
    turn: usize,
    /// The link that has asked for bytes, and the bytes that it has got.
    asking: Option<(usize, usize)>,
    /// The address in the answer.
    address: Option<IpAddr>,
}

impl<U: Read + Write> Driver<U> {
    pub(crate) const fn new(modem: &'static Modem, uart: U) -> Self {
        Self {
            modem,
            uart,
            input: Deque::new(),
            line: String::new(),
            is_too_long: false,
            turn: 0,
            asking: None,
            address: None,
        }
    }

    /// Serves all connections, for ever.
    pub(crate) async fn run(mut self) -> ! {
        let mut fault = Fault::Unanswered;
        loop {
            self.asking = None;
            let started = match fault {
                Fault::Unanswered => with_timeout(ANSWER, self.restart()).await,
                Fault::Restarted => with_timeout(ANSWER, self.set_up()).await,
            };
            fault = match started.unwrap_or(Err(Fault::Unanswered)) {
                Ok(()) => self.serve().await,
                Err(fault) => {
                    Timer::after(PAUSE).await;
                    fault
                }
            };
            self.modem.fail_all();
        }
    }

    async fn restart(&mut self) -> Result<(), Fault> {
        // If the modem still waits for bytes to send, these are taken for them. No valid message ends with them.
        for _ in 0..CHUNK / 2 {
            self.write(b"\r\n").await?;
        }
        self.write(b"AT+RST\r\n").await?;
        while !matches!(self.reply().await, Err(Fault::Restarted)) {}
        self.set_up().await
    }

    /// No echo, several links, and bytes only when the driver asks for them.
    async fn set_up(&mut self) -> Result<(), Fault> {
        for command in ["ATE0", "AT+CIPMUX=1", "AT+CIPRECVMODE=1"] {
            if !self.command(format_args!("{command}")).await? {
                return Err(Fault::Unanswered);
            }
        }
        Ok(())
    }

    /// Executes jobs, and reads notices while there is none.
    async fn serve(&mut self) -> Fault {
        let modem = self.modem;
        loop {
            let mut turn = self.turn;
            let wished = poll_fn(|context| {
                modem.with(|state| match state.next_job(&mut turn) {
                    Some(job) => Poll::Ready(job),
                    None => {
                        state.driver = Some(context.waker().clone());
                        Poll::Pending
                    }
                })
            });
            let served = match select(wished, self.reply()).await {
                Either::First((index, job)) => {
                    self.turn = turn;
                    let limit = if matches!(job, Job::Dial(_) | Job::Resolve(_)) { REMOTE } else { ANSWER };
                    with_timeout(limit, self.execute(index, job)).await.unwrap_or(Err(Fault::Unanswered))
                }
                Either::Second(reply) => reply.map(drop),
            };
            if let Err(fault) = served {
                return fault;
            }
        }
    }

    async fn execute(&mut self, index: usize, job: Job) -> Result<(), Fault> {
        match job {
            Job::Resolve(name) => {
                self.address = None;
                let is_ok = self.command(format_args!("AT+CIPDOMAIN=\"{name}\"")).await?;
                let address = self.address.filter(|_| is_ok);
                self.link(index, |link| link.advance(Phase::Resolve, address.map_or(Phase::Failed, Phase::Resolved)));
            }
            Job::Dial(remote) => {
                let (kind, ip, port) = (if remote.is_ipv4() { "TCP" } else { "TCPv6" }, remote.ip(), remote.port());
                self.link(index, |link| link.is_dialed = true);
                let is_ok = self.command(format_args!("AT+CIPSTART={index},\"{kind}\",\"{ip}\",{port}")).await?;
                let phase = if is_ok { Phase::Open } else { Phase::Failed };
                self.link(index, |link| link.advance(Phase::Dial(remote), phase));
            }
            Job::Send(bytes) => {
                let is_sent = self.send(index, &bytes).await?;
                self.link(index, |link| {
                    link.sending.clear();
                    link.advance(Phase::Open, if is_sent { Phase::Open } else { Phase::Failed });
                });
            }
            Job::Receive => {
                let asks = self.link(index, |link| core::mem::take(&mut link.asks));
                self.asking = Some((index, 0));
                let is_ok = self.command(format_args!("AT+CIPRECVDATA={index},{CHUNK}")).await?;
                let count = self.asking.take().map_or(0, |(_, count)| count);
                self.link(index, |link| {
                    // If there are as many bytes as asked for, there may be more.
                    let asks = match is_ok {
                        true if count == CHUNK => ASKS,
                        true => 0,
                        false => asks.saturating_sub(1),
                    };
                    // A notice may have set it during the command.
                    link.asks = link.asks.max(asks);
                    link.wake();
                });
            }
            Job::Close => {
                // An error means that the modem has no connection. If it has one, the next attempt to connect fails,
                // and closes again.
                self.command(format_args!("AT+CIPCLOSE={index}")).await?;
                self.link(index, |link| *link = Link::FREE);
            }
        }
        Ok(())
    }

    fn link<R>(&self, index: usize, f: impl FnOnce(&mut Link) -> R) -> R {
        self.modem.with(|state| f(&mut state.links[index]))
    }

    async fn send(&mut self, index: usize, bytes: &[u8]) -> Result<bool, Fault> {
        if !self.command(format_args!("AT+CIPSEND={index},{}", bytes.len())).await? {
            return Ok(false);
        }
        let Reply::Prompt = self.reply().await? else { return Err(Fault::Unanswered) };
        self.write(bytes).await?;
        match self.reply().await? {
            Reply::Ok => Ok(true),
            Reply::Error => Ok(false),
            Reply::Busy | Reply::Prompt => Err(Fault::Unanswered),
        }
    }

    /// Executes a command. Returns whether the modem has.
    async fn command(&mut self, command: fmt::Arguments<'_>) -> Result<bool, Fault> {
        let mut text = String::<LINE>::new();
        write!(text, "{command}\r\n").map_err(|_| Fault::Unanswered)?;
        loop {
            self.write(text.as_bytes()).await?;
            match self.reply().await? {
                Reply::Ok => return Ok(true),
                Reply::Error => return Ok(false),
                Reply::Busy => Timer::after(PAUSE).await,
                Reply::Prompt => return Err(Fault::Unanswered),
            }
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.uart.write_all(bytes).await.map_err(|_| Fault::Unanswered)?;
        self.uart.flush().await.map_err(|_| Fault::Unanswered)
    }

    /// Reads until the end of an answer. The future may be dropped between commands: it keeps the line that has
    /// begun.
    async fn reply(&mut self) -> Result<Reply, Fault> {
        loop {
            match self.byte().await? {
                b'\n' => {
                    let is_too_long = core::mem::take(&mut self.is_too_long);
                    let line = core::mem::take(&mut self.line);
                    match line.trim() {
                        _ if is_too_long => {}
                        "OK" | "SEND OK" => return Ok(Reply::Ok),
                        "ERROR" | "SEND FAIL" => return Ok(Reply::Error),
                        "ready" => return Err(Fault::Restarted),
                        text if text.starts_with("busy") => return Ok(Reply::Busy),
                        text => self.notice(text),
                    }
                }
                b'>' if self.line.is_empty() => return Ok(Reply::Prompt),
                b',' if self.line.starts_with("+CIPRECVDATA:") => {
                    let line = core::mem::take(&mut self.line);
                    let count = line.trim_start_matches("+CIPRECVDATA:").parse().map_err(|_| Fault::Unanswered)?;
                    self.receive(count).await?;
                }
                // No line that matters has other bytes than ASCII.
                byte => self.is_too_long |= self.line.push(if byte.is_ascii() { byte.into() } else { '?' }).is_err(),
            }
        }
    }

    /// Passes bytes to the link that has asked for them.
    async fn receive(&mut self, count: usize) -> Result<(), Fault> {
        let Some((index, 0)) = self.asking else { return Err(Fault::Unanswered) };
        if count > CHUNK {
            return Err(Fault::Unanswered);
        }
        for _ in 0..count {
            let byte = self.byte().await?;
            // It asks only when it has none.
            self.link(index, |link| link.received.push_back(byte)).map_err(|_| Fault::Unanswered)?;
        }
        self.asking = Some((index, count));
        Ok(())
    }

    fn notice(&mut self, text: &str) {
        if let Some(address) = text.strip_prefix("+CIPDOMAIN:") {
            self.address = address.trim_matches('"').parse().ok();
        }
        let announced = text.strip_prefix("+IPD,").and_then(|rest| rest.split(',').next());
        let Some(index) = announced.or(text.strip_suffix(",CLOSED")).and_then(|link| link.parse::<usize>().ok()) else {
            return;
        };
        self.modem.with(|state| {
            let Some(link) = state.links.get_mut(index) else { return };
            if announced.is_some() {
                link.asks = ASKS;
            } else if let Phase::Open | Phase::Dial(_) = link.phase {
                link.phase = if link.phase == Phase::Open { Phase::Closed } else { Phase::Failed };
                link.wake();
            }
            state.wake_driver();
        });
    }

    async fn byte(&mut self) -> Result<u8, Fault> {
        loop {
            if let Some(byte) = self.input.pop_front() {
                return Ok(byte);
            }
            // A modem that never stops sending does not stop other tasks.
            yield_now().await;
            let mut input = [0; INPUT];
            let count = self.uart.read(&mut input).await.map_err(|_| Fault::Unanswered)?;
            if count == 0 {
                return Err(Fault::Unanswered);
            }
            self.input.extend(input[..count].iter().copied());
        }
    }
}
