//! The connections of a modem: what its driver and the tasks that use them share, and the traits of
//! embedded-nal-async. Independent of the modem's commands.
//!
//! Tasks exchange bytes and requests with the driver, which executes all commands: a dropped future leaves no command
//! without its answer.

use core::cell::RefCell;
use core::future::poll_fn;
use core::net::{IpAddr, SocketAddr};
use core::task::{Poll, Waker};
use embassy_time::{Duration, Timer};
use embedded_io_async::{ErrorKind, ErrorType, Read, Write};
use embedded_nal_async::{AddrType, Dns, TcpConnect};
use heapless::{Deque, Vec};

/// The connections that the modem has.
pub(crate) const LINKS: usize = 5;
/// The bytes of a connection in either direction, and of one command.
pub(crate) const CHUNK: usize = 256;
/// The longest name of a host, in bytes.
const NAME: usize = 96;
/// How often the modem is asked for announced bytes: it may refuse although it has some.
const ASKS: u8 = 2;
/// The interval of checks whether a link is free or closed.
const CLOSING: Duration = Duration::from_millis(20);

/// The memory of the modem, for the tasks of one executor.
pub(crate) struct Modem(RefCell<State>);

struct State {
    links: [Link; LINKS],
    /// The link that was taken last. The others are taken before it is taken again, so that late notices about a
    /// connection do not meet the next one.
    last: usize,
    driver: Option<Waker>,
}

/// A connection, or the resolution of a name.
struct Link {
    phase: Phase,
    /// Whether the modem may have a connection.
    is_dialed: bool,
    /// Whether the modem has announced bytes since it was last asked for them.
    is_announced: bool,
    /// How often to ask the modem for more bytes.
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

/// What the driver must do for a link, and then pass the outcome to [`Modem::done`].
pub(crate) enum Job {
    /// Find the address of this name.
    Resolve(Vec<u8, CHUNK>),
    Dial(SocketAddr),
    Send(Vec<u8, CHUNK>),
    /// Ask for at most [`CHUNK`] bytes, and pass them to [`Modem::received`].
    Receive,
    Close,
}

/// The outcome of a job.
#[derive(Clone, Copy)]
pub(crate) enum Outcome {
    Resolved(Option<IpAddr>),
    Dialed(bool),
    Sent(bool),
    /// The number of bytes; `None` if the modem has refused.
    Received(Option<usize>),
    Closed,
}

impl Link {
    const FREE: Self = Self {
        phase: Phase::Free,
        is_dialed: false,
        is_announced: false,
        asks: 0,
        received: Deque::new(),
        sending: Vec::new(),
        user: None,
    };

    const fn may_have_bytes(&self) -> bool {
        self.is_announced || self.asks > 0
    }

    /// The link's job. An open one has two kinds: with `is_receiving` to receive, otherwise to send.
    fn job(&mut self, is_receiving: bool) -> Option<Job> {
        match self.phase {
            Phase::Open | Phase::Closed if is_receiving => {
                if !self.may_have_bytes() || !self.received.is_empty() {
                    return None;
                }
                if core::mem::take(&mut self.is_announced) {
                    self.asks = ASKS;
                }
                Some(Job::Receive)
            }
            Phase::Open if !self.sending.is_empty() => Some(Job::Send(self.sending.clone())),
            Phase::Resolve => Some(Job::Resolve(self.sending.clone())),
            Phase::Dial(address) => {
                self.is_dialed = true;
                Some(Job::Dial(address))
            }
            Phase::Released if self.is_dialed => Some(Job::Close),
            Phase::Released => {
                *self = Self::FREE;
                None
            }
            Phase::Free | Phase::Resolved(_) | Phase::Open | Phase::Closed | Phase::Failed => None,
        }
    }

    /// Its user may have released it during the job, and the peer may have closed it.
    fn done(&mut self, outcome: Outcome) {
        match (outcome, self.phase) {
            (Outcome::Resolved(address), Phase::Resolve) => {
                self.phase = address.map_or(Phase::Failed, Phase::Resolved);
            }
            (Outcome::Dialed(is_open), Phase::Dial(_)) => {
                self.phase = if is_open { Phase::Open } else { Phase::Failed };
            }
            (Outcome::Sent(is_sent), Phase::Open) => {
                self.sending.clear();
                self.phase = if is_sent { Phase::Open } else { Phase::Failed };
            }
            (Outcome::Received(count), _) => {
                self.asks = match count {
                    Some(CHUNK) => ASKS,
                    Some(_) => 0,
                    None => self.asks.saturating_sub(1),
                };
            }
            (Outcome::Closed, _) => *self = Self::FREE,
            (Outcome::Resolved(_) | Outcome::Dialed(_) | Outcome::Sent(_), _) => {}
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
        Self(RefCell::new(State { links: [const { Link::FREE }; LINKS], last: 0, driver: None }))
    }

    /// No caller awaits or calls it again in `f`.
    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.0.borrow_mut())
    }

    /// Waits for a free link, and takes it, with a request to the driver.
    async fn take(&self, request: Phase, name: &[u8]) -> Result<Line<'_>, ErrorKind> {
        let sending = Vec::from_slice(name).map_err(|_| ErrorKind::NotFound)?;
        while !self.any_link(Phase::Free) {
            Timer::after(CLOSING).await;
        }
        self.with(|state| {
            let mut indices = (1..=LINKS).map(|step| (state.last + step) % LINKS);
            let is_free = |index: &usize| state.links[*index].phase == Phase::Free;
            let index = indices.find(is_free).ok_or(ErrorKind::OutOfMemory)?;
            state.last = index;
            state.links[index] = Link { phase: request, sending, ..Link::FREE };
            state.wake_driver();
            Ok(Line { modem: self, index })
        })
    }

    /// Waits until the modem has closed the connections that are no longer used.
    pub(crate) async fn closed(&self) {
        while self.any_link(Phase::Released) {
            Timer::after(CLOSING).await;
        }
    }

    fn any_link(&self, phase: Phase) -> bool {
        self.with(|state| state.links.iter().any(|link| link.phase == phase))
    }

    /// Waits for the next job after `turn`, which it advances: the links have their turns to receive, and then to do
    /// all else.
    pub(crate) async fn job(&self, turn: &mut usize) -> (usize, Job) {
        poll_fn(|context| {
            self.with(|state| {
                for _ in 0..2 * LINKS {
                    *turn = (*turn + 1) % (2 * LINKS);
                    let index = *turn % LINKS;
                    if let Some(job) = state.links[index].job(*turn < LINKS) {
                        return Poll::Ready((index, job));
                    }
                }
                state.driver = Some(context.waker().clone());
                Poll::Pending
            })
        })
        .await
    }

    pub(crate) fn done(&self, index: usize, outcome: Outcome) {
        self.with(|state| state.links[index].done(outcome));
    }

    /// Stores a received byte. `false` if there is no room: the modem has sent more than was asked for.
    pub(crate) fn received(&self, index: usize, byte: u8) -> bool {
        self.with(|state| state.links[index].received.push_back(byte).is_ok())
    }

    /// The modem has bytes for a link. A link that it does not have is ignored.
    pub(crate) fn announced(&self, index: usize) {
        self.with(|state| {
            if let Some(link) = state.links.get_mut(index) {
                link.is_announced = true;
                state.wake_driver();
            }
        });
    }

    /// The peer of a link has closed it. A link that the modem does not have is ignored.
    pub(crate) fn closed_by_peer(&self, index: usize) {
        self.with(|state| {
            let Some(link) = state.links.get_mut(index) else { return };
            if let Phase::Open | Phase::Dial(_) = link.phase {
                link.phase = if link.phase == Phase::Open { Phase::Closed } else { Phase::Failed };
                link.wake();
            }
        });
    }

    /// Ends all connections: the modem has lost them.
    pub(crate) fn fail_all(&self) {
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
    type Error = ErrorKind;
    type Connection<'a> = Line<'a>;

    async fn connect<'a>(&'a self, remote: SocketAddr) -> Result<Line<'a>, ErrorKind> {
        let line = self.take(Phase::Dial(remote), &[]).await?;
        let phase = line.next_phase(Phase::Dial(remote)).await;
        if phase == Phase::Open { Ok(line) } else { Err(ErrorKind::ConnectionRefused) }
    }
}

impl Dns for Modem {
    type Error = ErrorKind;

    async fn get_host_by_name(&self, host: &str, kind: AddrType) -> Result<IpAddr, ErrorKind> {
        // A quotation mark would end the parameter of the command.
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if kind == AddrType::IPv6 || host.len() > NAME || !host.bytes().all(is_name) {
            return Err(ErrorKind::NotFound);
        }
        let line = self.take(Phase::Resolve, host.as_bytes()).await?;
        let phase = line.next_phase(Phase::Resolve).await;
        if let Phase::Resolved(address) = phase { Ok(address) } else { Err(ErrorKind::NotFound) }
    }

    async fn get_host_by_address(&self, _: IpAddr, _: &mut [u8]) -> Result<usize, ErrorKind> {
        Err(ErrorKind::NotFound)
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
    type Error = ErrorKind;
}

impl Read for Line<'_> {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, ErrorKind> {
        self.until(|link| {
            let count = buf.len().min(link.received.len());
            if count > 0 || buf.is_empty() {
                buf.iter_mut().zip(core::iter::from_fn(|| link.received.pop_front())).for_each(|(to, byte)| *to = byte);
                return Poll::Ready(Ok(count));
            }
            if link.phase == Phase::Open || link.phase == Phase::Closed && link.may_have_bytes() {
                return Poll::Pending;
            }
            Poll::Ready(if link.phase == Phase::Closed { Ok(0) } else { Err(ErrorKind::ConnectionReset) })
        })
        .await
    }
}

impl Write for Line<'_> {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, ErrorKind> {
        self.flush().await?;
        let count = buf.len().min(CHUNK);
        let stored = self.until(|link| Poll::Ready(link.sending.extend_from_slice(&buf[..count]))).await;
        stored.map(|()| count).map_err(|_| ErrorKind::ConnectionReset)
    }

    /// Waits until the modem has accepted all bytes.
    async fn flush(&mut self) -> Result<(), ErrorKind> {
        self.until(|link| match link.phase == Phase::Open {
            true if link.sending.is_empty() => Poll::Ready(Ok(())),
            true => Poll::Pending,
            false => Poll::Ready(Err(ErrorKind::ConnectionReset)),
        })
        .await
    }
}
