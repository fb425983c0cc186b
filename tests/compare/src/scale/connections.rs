//! Many connections in one pool: in the machine without a driver, and in clients with sockets.

use crate::allocator::counted;
use crate::clients::official;
use crate::measure::{Rounds, ns_each};
use crate::pools::locked::config;
use crate::pools::tokio;
use crate::report::{Section, Table};
use crate::settings::Settings;
use core::hint::black_box;
use core::net::SocketAddr;
use core::time::Duration;
use mongodb::event::EventHandler;
use mongodb::event::cmap::CmapEvent;
use poolhouse_core::Instant;
use poolhouse_core::pool::{CheckOut, Health, Lease, OnHeap, Pool, PoolId};
use poolhouse_smol::{Client, ClientOptions};

/// Time limit for filling a pool; far more than it needs.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) fn run(server: SocketAddr, settings: &Settings) -> Section {
    let mut section = Section::new("scale");
    section.tables.push(machine(settings));
    section.tables.push(clients(server, settings));
    section.note("The bytes of a client's idle connection are all memory in its process: buffers, tasks and slots in pool and runtime; memory of the kernel is not included.");
    section
}

/// Check-out and check-in in pools of ten connections and of ten thousand.
fn machine(settings: &Settings) -> Table {
    let counts = [10, 10_000];
    let mut pools = counts.map(Warm::new);
    let times = u32::try_from(settings.of(2_000, 200_000)).expect("not many");
    let rounds = Rounds::of(settings.rounds(), counts.len(), |case| ns_each(times, || pools[case].0.cycle()));
    let columns = ["ns", "of ten", "bytes a connection"];
    let mut table = Table::new("poolhouse-core, no lock: check-out + check-in by connections in the pool", &columns);
    for (place, count) in counts.iter().enumerate() {
        table.row(
            format!("{count}"),
            &[rounds.median(place), rounds.ratio(place, 0), pools[place].1 / f64::from(*count)],
        );
    }
    table
}

struct Machine {
    pool: Pool<OnHeap>,
    nanos: u64,
}

/// A pool with all connections established, and its size in bytes.
struct Warm(Machine, f64);

impl Warm {
    fn new(count: u32) -> Self {
        let (mut machine, held) = counted(|| {
            let mut pool = Pool::new(Instant::ORIGIN, PoolId::new(0), config(count), &mut ());
            pool.ready(Instant::ORIGIN, &mut ());
            let mut machine = Machine { pool, nanos: 1 };
            machine.fill(count);
            machine
        });
        machine.cycle();
        Self(machine, held.bytes as f64)
    }
}

impl Machine {
    fn now(&mut self) -> Instant {
        self.nanos += 1;
        Instant::from_nanos(self.nanos)
    }

    fn fill(&mut self, count: u32) {
        let mut leases: Vec<Lease> = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let now = self.now();
            let Ok(CheckOut::Queued(waiter)) = self.pool.check_out(now, None, &mut ()) else {
                unreachable!("all connections are in use")
            };
            let conn = self.pool.poll_establish().expect("the limits allow it");
            self.pool.handle_established(now, conn, &mut ()).expect("it is pending");
            let poolhouse_core::pool::Claim::Granted(lease) = self.pool.claim(now, waiter) else {
                unreachable!("it is established")
            };
            leases.push(lease);
        }
        for lease in leases {
            self.pool.check_in(Instant::from_nanos(self.nanos), lease, Health::Healthy, &mut ()).expect("ours");
        }
    }

    fn cycle(&mut self) {
        let now = self.now();
        let granted = black_box(&mut self.pool).check_out(now, None, &mut ());
        let Ok(CheckOut::Granted(lease)) = granted else { unreachable!("a connection is available") };
        self.pool.check_in(now, lease, Health::Healthy, &mut ()).expect("ours");
    }
}

/// Clients with sockets to the server.
fn clients(server: SocketAddr, settings: &Settings) -> Table {
    let (few, many) = if settings.quick { (50, 200) } else { (1_000, 8_000) };
    let mut table = Table::new("whole clients, idle connections", &["bytes a connection", "of the driver"]);
    let driver = driver_bytes(server, few);
    for count in [few, many] {
        let own = own_bytes(server, count);
        table.row(format!("poolhouse-smol, {count}"), &[own, own / driver]);
    }
    table.row(format!("mongodb on tokio, {few}"), &[driver, 1.0]);
    table
}

fn own_bytes(server: SocketAddr, count: u32) -> f64 {
    let options = ClientOptions::new(server.to_string()).max_pool_size(count).min_pool_size(0);
    let client = Client::with_options(options).expect("valid options");
    let warm_up = || smol::block_on(client.warm_up(PATIENCE)).expect("a server that answers");
    warm_up();
    let mut pool = client.pool_options();
    pool.min_pool_size = count;
    let ((), held) = counted(|| {
        client.set_pool_options(pool).expect("valid options");
        warm_up();
    });
    smol::block_on(client.close());
    held.bytes as f64 / f64::from(count - 1)
}

fn driver_bytes(server: SocketAddr, count: u32) -> f64 {
    let runtime = tokio(1);
    let (put, ready) = smol::channel::unbounded();
    let mut options = official(server);
    (options.min_pool_size, options.max_pool_size) = (Some(count), Some(count));
    // The official driver creates this number of connections each half second.
    options.max_connecting = Some(count.div_ceil(10));
    options.cmap_event_handler = Some(EventHandler::callback(move |event| {
        if matches!(event, CmapEvent::ConnectionReady(_)) {
            // The receiver may be dropped already.
            let _ = put.try_send(());
        }
    }));
    // The memory includes the client and its monitor, which is little compared with these
    // connections.
    let (client, held) = counted(|| {
        runtime.block_on(async {
            let client = mongodb::Client::with_options(options).expect("valid options");
            let filled = async {
                client.warm_connection_pool().await;
                for _ in 0..count {
                    ready.recv().await.expect("the client is open");
                }
            };
            ::tokio::time::timeout(PATIENCE, filled).await.expect("the pool is filled in time");
            client
        })
    });
    runtime.block_on(client.shutdown().into_future());
    held.bytes as f64 / f64::from(count)
}
