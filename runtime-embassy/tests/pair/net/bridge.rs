//! The bridge forwards connections of the client to the server on the host that has the same
//! address, with ends and resets in both directions.

use super::Net;
use alloc::rc::Rc;
use async_io::Async;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::future::{Future, poll_fn};
use core::net::SocketAddr;
use core::pin::pin;
use core::task::{Poll, Waker};
use core::time::Duration;
use embassy_net::Stack;
use embassy_net::tcp::{Error, State, TcpSocket};
use embassy_net::udp::{PacketMetadata, UdpMetadata, UdpSocket};
use embassy_time::{Timer, with_timeout};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use std::net::{Shutdown, TcpStream};

/// Size of the host's buffer for bytes that a client has sent.
const HOST_BYTES: usize = 1 << 16;
/// Size of the buffers of one connection.
const BUFFER: usize = 4096;
/// Interval of TCP keep-alives to a silent peer, and the time after which an unanswered peer is
/// dead.
const KEEP_ALIVE: embassy_time::Duration = embassy_time::Duration::from_secs(15);
const DEAD: embassy_time::Duration = embassy_time::Duration::from_secs(60);
/// How long the last bytes may take to be acknowledged.
const LINGER: embassy_time::Duration = embassy_time::Duration::from_secs(60);

/// The requests that servers have not answered yet, and the connections in transition.
#[derive(Default)]
pub(super) struct Traffic {
    /// Ports to which connections are being established or closed.
    busy: RefCell<Vec<u16>>,
    /// Ports of servers that are not expected to answer.
    silent: RefCell<Vec<u16>>,
    lines: RefCell<Vec<Rc<Line>>>,
    /// Connections that servers have ended, by an orderly end or by a reset.
    pub(super) server_ends: Cell<u64>,
}

/// One connection.
#[derive(Default)]
struct Line {
    port: u16,
    requests: RefCell<Frames>,
    replies: RefCell<Frames>,
}

impl Traffic {
    /// Whether every request was answered.
    pub(super) fn is_quiet(&self) -> bool {
        let silent = self.silent.borrow();
        self.busy.borrow().iter().all(|port| silent.contains(port))
            && self.lines.borrow().iter().all(|line| !line.owes() || silent.contains(&line.port))
    }

    /// Sets whether the clock waits for answers of the server at this port.
    pub(super) fn expect(&self, port: u16, answers: bool) {
        let mut silent = self.silent.borrow_mut();
        silent.retain(|each| *each != port);
        if !answers {
            silent.push(port);
        }
    }
}

impl Line {
    fn owes(&self) -> bool {
        let (requests, replies) = (self.requests.borrow(), self.replies.borrow());
        requests.whole > replies.whole || requests.is_within() || replies.is_within()
    }
}

impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owing = self.lines.borrow().iter().filter(|line| line.owes()).count();
        write!(f, "{} connections begin or end, {owing} have no answer", self.busy.borrow().len())
    }
}

/// Counts messages, each of which begins with its length.
#[derive(Default)]
struct Frames {
    whole: u64,
    /// Bytes of the length that have arrived.
    length: Vec<u8>,
    /// Bytes of the message that are missing.
    left: usize,
}

impl Frames {
    fn is_within(&self) -> bool {
        self.left > 0 || !self.length.is_empty()
    }

    fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.left == 0 {
                self.length.push(bytes[0]);
                bytes = &bytes[1..];
                if let [a, b, c, d] = self.length[..] {
                    self.length.clear();
                    let length = u32::from_le_bytes([a, b, c, d]);
                    // A message with a wrong length counts as whole at once: the rest is not
                    // awaited.
                    self.left = if (16..=48_000_000).contains(&length) { length as usize - 4 } else { 0 };
                    self.whole += u64::from(self.left == 0);
                }
                continue;
            }
            let taken = self.left.min(bytes.len());
            bytes = &bytes[taken..];
            self.left -= taken;
            self.whole += u64::from(self.left == 0);
        }
    }
}

/// Exists while a connection is being established or closed.
struct Busy {
    traffic: Rc<Traffic>,
    port: u16,
}

impl Busy {
    fn new(traffic: &Rc<Traffic>, port: u16) -> Self {
        traffic.busy.borrow_mut().push(port);
        Self { traffic: Rc::clone(traffic), port }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut busy = self.traffic.busy.borrow_mut();
        let place = busy.iter().position(|port| *port == self.port).expect("it was counted");
        busy.swap_remove(place);
    }
}

/// The forwarding to one server.
pub(super) struct Bridge {
    gate: Rc<Gate>,
}

/// Whether the port accepts connections.
#[derive(Default)]
struct Gate {
    open: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

impl Gate {
    fn set(&self, open: bool) {
        self.open.set(open);
        for waker in self.waiting.take() {
            waker.wake();
        }
    }

    async fn until(&self, open: bool) {
        poll_fn(|context| {
            if self.open.get() == open {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Bridge {
    pub(super) fn new(net: &Net, stack: Stack<'static>, address: SocketAddr, connections: usize) -> Self {
        let gate = Rc::new(Gate::default());
        for _ in 0..connections {
            let buffer = || Box::leak(vec![0; BUFFER].into_boxed_slice());
            let socket = TcpSocket::new(stack, buffer(), buffer());
            net.spawn(serve(socket, address, Rc::clone(&gate), Rc::clone(&net.traffic)));
        }
        Self { gate }
    }

    pub(super) fn open(&self) {
        self.gate.set(true);
    }

    pub(super) fn shut(&self) {
        self.gate.set(false);
    }
}

async fn serve(mut socket: TcpSocket<'static>, address: SocketAddr, gate: Rc<Gate>, traffic: Rc<Traffic>) {
    loop {
        gate.until(true).await;
        let accepted = futures_lite::future::or(async { Some(socket.accept(address.port()).await) }, async {
            gate.until(false).await;
            None
        })
        .await;
        if !matches!(accepted, Some(Ok(()))) {
            socket.abort();
            continue;
        }
        socket.set_nagle_enabled(false);
        socket.set_keep_alive(Some(KEEP_ALIVE));
        socket.set_timeout(Some(DEAD));
        let busy = Busy::new(&traffic, address.port());
        let Ok(host) = Async::<TcpStream>::connect(address).await else {
            reset(&mut socket).await;
            continue;
        };
        host.get_ref().set_nodelay(true).expect("a socket of ours");
        // By default the system's buffer is megabytes, which take a client of some KiB long to
        // fill.
        rustix::net::sockopt::set_socket_send_buffer_size(host.get_ref(), HOST_BYTES).expect("a socket of ours");
        let line = Rc::new(Line { port: address.port(), ..Line::default() });
        traffic.lines.borrow_mut().push(Rc::clone(&line));
        drop(busy);
        let end = pump(&mut socket, &host, &line, &traffic).await;
        traffic.lines.borrow_mut().retain(|each| !Rc::ptr_eq(each, &line));
        let _busy = Busy::new(&traffic, address.port());
        match end {
            End::InOrder => {}
            End::ByClient => {
                rustix::net::sockopt::set_socket_linger(host.get_ref(), Some(Duration::ZERO))
                    .expect("a socket of ours");
            }
            End::ByServer => {
                traffic.server_ends.set(traffic.server_ends.get() + 1);
                reset(&mut socket).await;
            }
        }
    }
}

async fn reset(socket: &mut TcpSocket<'static>) {
    socket.abort();
    let _ = with_timeout(LINGER, socket.flush()).await;
}

/// How a connection ends.
enum End {
    /// Both sides have sent an end.
    InOrder,
    /// A reset.
    ByClient,
    ByServer,
}

/// Forwards both directions until both have ended, or either is reset.
async fn pump(socket: &mut TcpSocket<'static>, host: &Async<TcpStream>, line: &Line, traffic: &Rc<Traffic>) -> End {
    let socket = RefCell::new(socket);
    let ending = RefCell::new(None);
    // Whether the server's end was passed on.
    let is_closing = Cell::new(false);
    let mut up = pin!(async {
        let mut bytes = [0; BUFFER];
        loop {
            let read = poll_fn(|context| pin!(socket.borrow_mut().read(&mut bytes)).poll(context)).await;
            match read {
                Ok(0) => break,
                Ok(count) => {
                    line.requests.borrow_mut().feed(&bytes[..count]);
                    let mut to = host;
                    if to.write_all(&bytes[..count]).await.is_err() {
                        return End::ByServer;
                    }
                }
                Err(Error::ConnectionReset) => return End::ByClient,
            }
        }
        ending.replace(Some(Busy::new(traffic, line.port)));
        let _ = host.get_ref().shutdown(Shutdown::Write);
        // From here on a reset is not announced, so the state is polled.
        while socket.borrow().state() != State::Closed {
            Timer::after_millis(50).await;
        }
        if is_closing.get() { End::InOrder } else { End::ByClient }
    });
    let mut down = pin!(async {
        let mut bytes = [0; BUFFER];
        loop {
            let mut from = host;
            match from.read(&mut bytes).await {
                Ok(0) => break,
                Ok(count) => {
                    let mut rest = &bytes[..count];
                    while !rest.is_empty() {
                        let written = poll_fn(|context| pin!(socket.borrow_mut().write(rest)).poll(context)).await;
                        let Ok(written) = written else { return End::ByClient };
                        rest = &rest[written..];
                    }
                    line.replies.borrow_mut().feed(&bytes[..count]);
                }
                Err(_) => return End::ByServer,
            }
        }
        let passing_on = Busy::new(traffic, line.port);
        if ending.borrow().is_none() {
            traffic.server_ends.set(traffic.server_ends.get() + 1);
        }
        is_closing.set(true);
        socket.borrow_mut().close();
        let flushed = poll_fn(|context| pin!(socket.borrow_mut().flush()).poll(context));
        let _ = with_timeout(LINGER, flushed).await;
        drop(passing_on);
        // The client may send more, and its last bytes may wait in the socket after its end.
        let ended = || {
            let socket = socket.borrow();
            (socket.state() == State::Closed && socket.recv_queue() == 0)
                || (socket.state() == State::TimeWait && ending.borrow().is_some())
        };
        let mut tick = Timer::after_millis(50);
        poll_fn(|context| {
            while pin!(&mut tick).poll(context).is_ready() {
                tick = Timer::after_millis(50);
            }
            if ended() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        End::InOrder
    });
    poll_fn(|context| {
        let up = up.as_mut().poll(context);
        if up.is_ready() { up } else { down.as_mut().poll(context) }
    })
    .await
}

/// Forwards queries to the name server on the host, and its answers back. Each query has a separate
/// socket on the host.
pub(super) fn forward_names(net: &Net, stack: Stack<'static>, address: SocketAddr) {
    let metadata = || Box::leak(vec![PacketMetadata::EMPTY; 8].into_boxed_slice());
    let buffer = || Box::leak(vec![0; BUFFER].into_boxed_slice());
    let mut socket = UdpSocket::new(stack, metadata(), buffer(), metadata(), buffer());
    socket.bind(53_u16).expect("a free port");
    let socket: &'static UdpSocket<'static> = Box::leak(Box::new(socket));
    let (executor, traffic) = (Rc::clone(&net.executor), Rc::clone(&net.traffic));
    net.spawn(async move {
        let mut bytes = [0; 512];
        loop {
            let Ok((count, from)) = socket.recv_from(&mut bytes).await else { continue };
            let question = bytes[..count].to_vec();
            executor.spawn(answer_name(question, from, socket, address, Rc::clone(&traffic))).detach();
        }
    });
}

async fn answer_name(
    question: Vec<u8>,
    from: UdpMetadata,
    socket: &'static UdpSocket<'static>,
    address: SocketAddr,
    traffic: Rc<Traffic>,
) {
    let busy = Busy::new(&traffic, address.port());
    let host = Async::<std::net::UdpSocket>::bind(([127, 0, 0, 1], 0)).expect("a free port");
    host.send_to(&question, address).await.expect("it is there");
    let mut bytes = [0; BUFFER];
    // A name server may not answer.
    let silence = async {
        async_io::Timer::after(Duration::from_millis(300)).await;
        Err(std::io::ErrorKind::TimedOut.into())
    };
    if let Ok((count, _)) = futures_lite::future::or(host.recv_from(&mut bytes), silence).await {
        let _ = socket.send_to(&bytes[..count], from).await;
    }
    drop(busy);
}
