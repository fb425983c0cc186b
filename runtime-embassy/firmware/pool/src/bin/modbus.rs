//! A Modbus-TCP client: four tasks read holding registers of units behind one server, over two pooled
//! connections.
//!
//! Each task has its own unit. A reply that does not match its request ends its connection. Prints
//! the outcome of each request. Exit status 0 means that each request had an outcome.
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
/// The number of registers that a task reads at a time; at most 125.
const REGISTERS: u8 = 4;
const _: () = assert!(REGISTERS >= 1 && REGISTERS <= 125);
/// The function that reads holding registers.
const READ_HOLDING: u8 = 3;
/// The bit that marks a function as failed, in a reply.
const EXCEPTION: u8 = 0x80;

type Plant = Pool<Server, CONNECTIONS, TASKS>;

struct Server {
    sockets: &'static TcpSockets<CONNECTIONS>,
    endpoint: IpEndpoint,
}

struct Connection {
    tcp: TcpConnection,
    /// The number of the last request.
    transaction: u16,
    /// Whether a reply is outstanding.
    is_busy: bool,
}

impl Manager for Server {
    type Connection = Connection;
    type Error = ConnectError;

    async fn connect(&self) -> Result<Connection, ConnectError> {
        Ok(Connection { tcp: self.sockets.connect(self.endpoint).await?, transaction: 0, is_busy: false })
    }

    /// The server may have closed the connection while no task used it.
    async fn check(&self, connection: &mut Connection) -> Result<(), ConnectError> {
        if self.is_broken(connection) { Err(ConnectError::ConnectionReset) } else { Ok(()) }
    }

    fn is_broken(&self, connection: &Connection) -> bool {
        connection.is_busy || !connection.tcp.is_quiet()
    }
}

/// Reads the holding registers of a unit from `first` on. If the future is dropped, the connection is
/// closed.
async fn read(plant: &Plant, unit: u8, first: u16) -> Result<[u16; REGISTERS as usize], Failure> {
    let mut connection = plant.get().await.map_err(Failure::Pool)?;
    let Connection { tcp, transaction, is_busy } = &mut *connection;
    *is_busy = true;
    *transaction = transaction.wrapping_add(1);
    let (id, [high, low]) = (transaction.to_be_bytes(), first.to_be_bytes());
    let request = [id[0], id[1], 0, 0, 0, 6, unit, READ_HOLDING, high, low, 0, REGISTERS];
    tcp.write_all(&request).await.map_err(|_| Failure::Cut)?;
    let mut head = [0; 9];
    tcp.read_exact(&mut head).await.map_err(|_| Failure::Cut)?;
    let [t0, t1, 0, 0, l0, l1, from, function, detail] = head else { return Err(Failure::Invalid("not Modbus")) };
    if ([t0, t1], from) != (id, unit) {
        return Err(Failure::Invalid("the reply to another request"));
    }
    match (function, u16::from_be_bytes([l0, l1])) {
        (READ_HOLDING, length) if detail == 2 * REGISTERS && length == 3 + u16::from(detail) => {}
        (code, 3) if code == READ_HOLDING | EXCEPTION => {
            *is_busy = false;
            return Err(Failure::Exception(detail));
        }
        _ => return Err(Failure::Invalid("the function or the length")),
    }
    let mut values = [0; REGISTERS as usize];
    for value in &mut values {
        let mut bytes = [0; 2];
        tcp.read_exact(&mut bytes).await.map_err(|_| Failure::Cut)?;
        *value = u16::from_be_bytes(bytes);
    }
    *is_busy = false;
    Ok(values)
}

/// The clock of the pool, and a worker for each connection that may be opened at the same time.
#[embassy_executor::task]
async fn background(plant: &'static Plant) {
    join3(Pool::run_clock(plant), Pool::run_worker(plant), Pool::run_worker(plant)).await;
}

/// Reads registers of the task's unit, others each time.
#[embassy_executor::task(pool_size = TASKS)]
async fn reader(unit: u8, plant: &'static Plant, run: &'static Run) {
    for request in 0..run.requests {
        run.request(unit, request, read(plant, unit, request.wrapping_mul(REGISTERS.into()))).await;
    }
}

#[embassy_executor::task]
async fn begin(spawner: Spawner, network: Stack<'static>, run: &'static Run) {
    static SOCKET_BUFFERS: ConstStaticCell<TcpBuffers<CONNECTIONS>> = ConstStaticCell::new(TcpBuffers::new());
    static SOCKETS: StaticCell<TcpSockets<CONNECTIONS>> = StaticCell::new();
    static PLANT: StaticCell<Plant> = StaticCell::new();
    lease(network).await;
    let sockets: &_ = SOCKETS.init_with(|| TcpSockets::new(network, SOCKET_BUFFERS.take()));
    let plant: &_ = PLANT.init_with(|| open(Server { sockets, endpoint: run.server }, CONFIG, &()));
    spawner.spawn(background(plant).expect("spawned once"));
    for unit in (0..).take(TASKS) {
        spawner.spawn(reader(unit, plant, run).expect("there is room for it"));
    }
    run.finish(plant, sockets).await;
}

#[cortex_m_rt::entry]
fn main() -> ! {
    start(begin)
}
