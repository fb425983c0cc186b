//! A keep-alive HTTP/1.1 client: four tasks send GET requests over two pooled connections.
//!
//! A reply has a maximum size and must have a length; a body in chunks and a status below 200 are
//! refused. Prints the outcome of each request. Exit status 0 means that each request had an outcome.
#![no_std]
#![no_main]

use embassy_executor::Spawner;
use embassy_futures::join::join3;
use embassy_net::{IpEndpoint, Stack, tcp::ConnectError};
use embedded_io_async::{Read as _, Write as _};
use poolhouse_embassy::pool::{Manager, Pool, TcpBuffers, TcpConnection, TcpSockets, open};
use poolhouse_pool_examples::{CONFIG, Failure, Run, lease, start};
use static_cell::{ConstStaticCell, StaticCell};

const TASKS: usize = 4;
const CONNECTIONS: usize = 2;

type Web = Pool<Server, CONNECTIONS, TASKS>;

struct Server {
    sockets: &'static TcpSockets<CONNECTIONS>,
    endpoint: IpEndpoint,
}

struct Connection {
    tcp: TcpConnection,
    /// Whether a reply is outstanding, or was the last one of the connection.
    is_spent: bool,
}

impl Manager for Server {
    type Connection = Connection;
    type Error = ConnectError;

    async fn connect(&self) -> Result<Connection, ConnectError> {
        Ok(Connection { tcp: self.sockets.connect(self.endpoint).await?, is_spent: false })
    }

    /// The server may have closed the connection while no task used it.
    async fn check(&self, connection: &mut Connection) -> Result<(), ConnectError> {
        if self.is_broken(connection) { Err(ConnectError::ConnectionReset) } else { Ok(()) }
    }

    fn is_broken(&self, connection: &Connection) -> bool {
        connection.is_spent || !connection.tcp.is_quiet()
    }
}

/// Requests `path`. Returns the status and the body, which is in `reply`. If the future is dropped,
/// the connection is closed.
async fn get<'r>(web: &Web, path: &str, reply: &'r mut [u8]) -> Result<(u16, &'r [u8]), Failure> {
    path.bytes().all(|byte| byte.is_ascii_graphic()).then_some(()).ok_or(Failure::Invalid("the path"))?;
    let mut connection = web.get().await.map_err(Failure::Pool)?;
    connection.is_spent = true;
    for part in ["GET ", path, " HTTP/1.1\r\nHost: plant\r\n\r\n"] {
        connection.tcp.write_all(part.as_bytes()).await.map_err(|_| Failure::Cut)?;
    }
    let mut received = 0;
    let body = loop {
        match connection.tcp.read(&mut reply[received..]).await.map_err(|_| Failure::Cut)? {
            0 if received < reply.len() => return Err(Failure::Cut),
            0 => return Err(Failure::Invalid("the head is too large")),
            count => received += count,
        }
        if let Some(end) = reply[..received].windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let (status, length, is_last) = parse(&reply[..body]).ok_or(Failure::Invalid("the head"))?;
    let end = body.saturating_add(length);
    let rest =
        reply.get_mut(received..end).ok_or(Failure::Invalid("the reply is too large, or larger than its length"))?;
    connection.tcp.read_exact(rest).await.map_err(|_| Failure::Cut)?;
    connection.is_spent = is_last;
    Ok((status, &reply[body..end]))
}

/// The status, the length of the body, and whether the server closes the connection after it.
fn parse(head: &[u8]) -> Option<(u16, usize, bool)> {
    let head = core::str::from_utf8(head).ok()?;
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
    let status = u16::try_from(number(head.strip_prefix("HTTP/1.1 ")?.split(' ').next()?)?).ok()?;
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let values = |name| fields.clone().filter(move |it| it.0.trim().eq_ignore_ascii_case(name)).map(|it| it.1.trim());
    let mut lengths = values("content-length");
    let length: usize = number(lengths.next()?)?;
    let is_ambiguous = lengths.next().is_some() || values("transfer-encoding").next().is_some();
    let is_last = values("connection").flat_map(|it| it.split(',')).any(|it| it.trim().eq_ignore_ascii_case("close"));
    (!is_ambiguous && (200..600).contains(&status)).then_some((status, length, is_last))
}

/// The clock of the pool, and a worker for each connection that may be opened at the same time.
#[embassy_executor::task]
async fn background(web: &'static Web) {
    join3(Pool::run_clock(web), Pool::run_worker(web), Pool::run_worker(web)).await;
}

#[embassy_executor::task(pool_size = TASKS)]
async fn client(task: u8, web: &'static Web, run: &'static Run) {
    // The maximum size of a reply with its head.
    let mut reply = [0; 1024];
    for request in 0..run.requests {
        run.request(task, request, get(web, "/", &mut reply)).await;
    }
}

#[embassy_executor::task]
async fn begin(spawner: Spawner, network: Stack<'static>, run: &'static Run) {
    static SOCKET_BUFFERS: ConstStaticCell<TcpBuffers<CONNECTIONS>> = ConstStaticCell::new(TcpBuffers::new());
    static SOCKETS: StaticCell<TcpSockets<CONNECTIONS>> = StaticCell::new();
    static WEB: StaticCell<Web> = StaticCell::new();
    lease(network).await;
    let sockets: &_ = SOCKETS.init_with(|| TcpSockets::new(network, SOCKET_BUFFERS.take()));
    let web: &_ = WEB.init_with(|| open(Server { sockets, endpoint: run.server }, CONFIG, &()));
    spawner.spawn(background(web).expect("spawned once"));
    for task in (0..).take(TASKS) {
        spawner.spawn(client(task, web, run).expect("there is room for it"));
    }
    run.finish(web, sockets).await;
}

#[cortex_m_rt::entry]
fn main() -> ! {
    start(begin)
}
