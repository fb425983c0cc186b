//! A device on a modem with AT commands: readings wait in a queue until a MongoDB server has them, over a serial
//! line and without a network stack of its own. To use another modem, replace `at`.
//!
//! Exit status 0 means that the server has acknowledged all readings in time, and every connection was closed.
#![no_std]
#![no_main]

mod at;
mod links;

use at::Driver;
use core::fmt::Display;
use embassy_executor::Spawner;
use embassy_time::{Duration, Ticker, Timer, with_timeout};
use links::{LINKS, Modem};
use poolhouse_board::uart::Uart;
use poolhouse_board::{executor, host, println, stack};
use poolhouse_embassy::poolhouse_wire::SliceSink;
use poolhouse_embassy::{
    Buffers, Client, Config, CoreRunner, Credential, DocumentWriter, Layout, MonitorOptions, Nal, Options, PoolOptions,
    PushError, RawDocument, Resources, ServerMonitoringMode, ServerRunner, Sizes, WhenFull, WriteQueue,
};
use static_cell::{ConstStaticCell, StaticCell};

/// One server, two connections, two waiters, one of which is the queue. `SOCKET` is 0: the modem has the memory
/// of its connections. A monitor that polls has one connection, here also with 1,024 bytes for a reply.
type Db = Sizes<1, 2, 2, 1024, 512, 0, (), 1, Nal<Modem>, 1024, 1>;
const _: () = assert!(Db::SOCKETS <= LINKS, "the modem has a link for each connection");

/// The memory of some 15 readings.
type Queue = WriteQueue<1024>;

const USAGE: &str = "modem HOST:PORT USER PASSWORD READINGS PERIOD_MS SECONDS";
const BAUD: u32 = 115_200;
const DATABASE: &str = "demo";
const COLLECTION: &str = "telemetry";
const SPAWNED: &str = "spawned once";

/// The arguments of the command line.
struct Plan {
    seeds: [&'static str; 1],
    credential: Credential<'static>,
    readings: i32,
    period: Duration,
    limit: Duration,
}

impl Plan {
    fn read(mut arguments: impl Iterator<Item = &'static str>) -> Option<Self> {
        Some(Self {
            seeds: [arguments.next()?],
            credential: Credential::new(arguments.next()?, arguments.next()?),
            readings: arguments.next()?.parse().ok()?,
            period: Duration::from_millis(arguments.next()?.parse().ok()?),
            limit: Duration::from_secs(arguments.next()?.parse().ok()?),
        })
    }

    const fn options(&'static self) -> Options {
        Options {
            seeds: &self.seeds,
            direct_connection: true,
            pool: PoolOptions { max_pool_size: 2, ..PoolOptions::DEFAULT },
            monitor: MonitorOptions { server_monitoring_mode: ServerMonitoringMode::Poll, ..MonitorOptions::DEFAULT },
            timeout: Some(core::time::Duration::from_secs(5)),
            credential: Some(self.credential),
            random: Some(host::fill_random),
            ..Options::DEFAULT
        }
    }
}

#[embassy_executor::task]
async fn serial_line(driver: Driver<Uart>) -> ! {
    driver.run().await
}

// The future of a runner that is not split would be constructed on the stack.
#[embassy_executor::task]
async fn database(runner: CoreRunner<Db>) -> ! {
    runner.run().await
}

#[embassy_executor::task]
async fn server(runner: ServerRunner<Db>) -> ! {
    runner.run().await
}

#[embassy_executor::task]
async fn send(queue: &'static Queue, client: Client<Db>) {
    let end = queue.run(&client, DATABASE, COLLECTION).await;
    println!("sender: {end}");
}

#[embassy_executor::task]
async fn device(queue: &'static Queue, client: Client<Db>, modem: &'static Modem, plan: &'static Plan) {
    let done = with_timeout(plan.limit, work(queue, client, modem, plan)).await.is_ok();
    println!(
        "sent {}, {:?}, wake-ups {}, stack {} bytes",
        queue.counts().inserted,
        queue.counts(),
        executor::wakeups(),
        stack::used_bytes(),
    );
    println!("{}", if done { "done" } else { "failed: out of time" });
    host::exit(u8::from(!done))
}

/// Takes all readings, waits until the server has them, and closes all connections.
async fn work(queue: &Queue, client: Client<Db>, modem: &Modem, plan: &Plan) {
    let mut ticker = Ticker::every(plan.period);
    let mut number = 0;
    while number < plan.readings {
        ticker.next().await;
        let mut buffer = [0; 64];
        match queue.push(reading(number, &mut buffer), WhenFull::Refuse) {
            Ok(()) => number += 1,
            // The reading is taken again.
            Err(PushError::Full) => {}
            Err(error) => fail(&error),
        }
    }
    while queue.counts().queued > 0 {
        Timer::after_millis(20).await;
    }
    client.close();
    client.closed().await;
    modem.closed().await;
}

fn reading(number: i32, buffer: &mut [u8]) -> RawDocument<'_> {
    let mut sink = SliceSink::new(buffer);
    let written = DocumentWriter::write(&mut sink, |document| {
        document
            .int32("_id", number)?
            .int32("millidegrees", 20_000 + i32::from(host::random_u64().to_le_bytes()[0]))?;
        Ok(())
    });
    if let Err(error) = written {
        fail(&error);
    }
    match RawDocument::new(sink.into_written()) {
        Ok(document) => document,
        Err(error) => fail(&error),
    }
}

fn fail(why: &dyn Display) -> ! {
    println!("failed: {why}");
    host::exit(1)
}

#[cortex_m_rt::entry]
fn main() -> ! {
    poolhouse_board::run(start)
}

// The executor never returns: whatever is inlined into its caller stays on the stack.
#[inline(never)]
fn start(spawner: Spawner) {
    static PLAN: StaticCell<Plan> = StaticCell::new();
    static CONFIG: StaticCell<Config> = StaticCell::new();
    static MODEM: StaticCell<Modem> = StaticCell::new();
    static RESOURCES: StaticCell<Resources<Db>> = StaticCell::new();
    static BUFFERS: ConstStaticCell<Buffers<Db>> = ConstStaticCell::new(Buffers::new());
    static QUEUE: ConstStaticCell<Queue> = ConstStaticCell::new(Queue::new());

    let Some(plan) = Plan::read(host::arguments()) else { fail(&format_args!("usage: {USAGE}")) };
    let plan: &'static Plan = PLAN.init(plan);
    let config: &'static Config = match plan.options().validate() {
        Ok(config) => CONFIG.init(config),
        Err(error) => fail(&error),
    };
    let Some(uart) = Uart::new(BAUD) else { fail(&"the UART is in use") };
    let modem: &'static Modem = MODEM.init_with(Modem::new);
    let queue: &'static Queue = QUEUE.take();
    let (client, runner) = match Client::new(RESOURCES.init_with(Resources::new), BUFFERS.take(), Nal(modem), config) {
        Ok(started) => started,
        Err(error) => fail(&error),
    };
    spawner.spawn(serial_line(Driver::new(modem, uart)).expect(SPAWNED));
    let (of_core, of_server) = runner.split();
    spawner.spawn(database(of_core).expect(SPAWNED));
    spawner.spawn(server(of_server).expect(SPAWNED));
    spawner.spawn(send(queue, client).expect(SPAWNED));
    spawner.spawn(device(queue, client, modem, plan).expect(SPAWNED));
}
