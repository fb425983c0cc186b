//! Telemetry from a microcontroller to MongoDB: several tasks, one pool, no heap.
//!
//! Each task sends its documents one after the other, and repeats each document until the server
//! has stored it: a restart or step-down of the server delays documents but loses none. Prints the
//! events of pools and monitors, and finally the number of documents, the longest outage and the
//! memory use. Exit status 0 means that every document was acknowledged in time and every
//! connection was closed.
#![no_std]

#[cfg(feature = "tls")]
mod encryption;
mod field;
mod plan;
/// The typed commands of this program are those of the example for hosted platforms.
#[path = "../../../examples/telemetry/typed.rs"]
mod typed;

use core::cell::Cell;
use embassy_executor::Spawner;
use embassy_net::{DhcpConfig, Stack, StackResources};
use embassy_time::{Duration, Instant, Ticker, Timer, with_timeout};
use plan::{OPERATION, Plan, TASKS_MAX, USAGE};
use poolhouse_board::ethernet::Ethernet;
use poolhouse_board::{executor, host, println, stack};
use poolhouse_embassy::poolhouse_core::Instant as Moment;
use poolhouse_embassy::poolhouse_core::observe::EventContext;
use poolhouse_embassy::{
    Buffers, Client, Config, CoreRunner, EventKinds, EventRef, Layout, Publish, Resources, ServerRunner, SetupError,
    Sizes,
};
use static_cell::{ConstStaticCell, StaticCell};
use typed::Reading;

/// Server slots for a replica set of three plus one for a replacement; two connections each; four
/// waiting tasks.
type Demo = Sizes<SERVERS, 2, 4, 2048, 1024, 1024, Printer>;
/// With TLS only one server, as each connection needs about 8 KiB more.
const SERVERS: usize = if cfg!(feature = "tls") { 1 } else { 4 };

/// Sockets of the network: the client's, and one each for DHCP and DNS.
const SOCKETS: usize = Demo::SOCKETS + 2;

/// Prints each event as a line.
#[derive(Clone, Copy)]
struct Printer;

impl Publish for Printer {
    fn kinds(&self) -> EventKinds {
        EventKinds::ALL
    }

    fn publish(&self, now: Moment, event: EventRef<'_>) {
        self.publish_in(now, event, &EventContext::NONE);
    }

    fn publish_in(&self, now: Moment, event: EventRef<'_>, context: &EventContext<'_>) {
        let (ms, address) = (now.as_nanos() / 1_000_000, context.address.unwrap_or("-"));
        match event {
            EventRef::Pool(event) => println!("{ms:>6} ms {address} {event}"),
            EventRef::Heartbeat(event) => println!("{ms:>6} ms {address} {event}"),
            EventRef::Sdam(event) => println!("{ms:>6} ms {event}"),
            // Multiplexed pools do not exist on this runtime.
            EventRef::Mux(_) | _ => {}
        }
    }
}

/// The device of each task.
const DEVICES: [&str; TASKS_MAX] = ["device-0", "device-1", "device-2", "device-3"];

/// A task is spawned at most as often as its pool size.
const SPAWNED: &str = "there is room for it";

/// Counters of all tasks.
struct Tally {
    /// Tasks that have not ended.
    working: Cell<usize>,
    /// Attempts to send a document. Each is acknowledged or fails, except those in progress.
    attempts: Cell<u32>,
    /// Documents that a server has acknowledged.
    acknowledged: Cell<u32>,
    /// Failed attempts.
    failures: Cell<u32>,
    /// The longest time until a document was acknowledged.
    longest: Cell<Duration>,
}

#[embassy_executor::task]
async fn run_network(mut runner: embassy_net::Runner<'static, Ethernet>) -> ! {
    runner.run().await
}

#[embassy_executor::task]
async fn core(runner: CoreRunner<Demo>) -> ! {
    runner.run().await
}

#[embassy_executor::task(pool_size = SERVERS)]
async fn server(runner: ServerRunner<Demo>) -> ! {
    runner.run().await
}

fn measure(device: &str, number: i64) -> Reading<'_> {
    let at_ms = i64::try_from(host::unix_time().as_millis()).unwrap_or(i64::MAX);
    Reading { device, number, at_ms, millidegrees: 20_000 + i32::from(host::random_u64().to_le_bytes()[0]) }
}

#[embassy_executor::task(pool_size = TASKS_MAX)]
async fn sensor(client: Client<Demo>, plan: &'static Plan, device: &'static str, tally: &'static Tally) {
    let mut ticker = Ticker::every(Duration::from_millis(plan.period_ms));
    for number in 0..plan.documents {
        ticker.next().await;
        let begun = Instant::now();
        let reading = measure(device, i64::from(number));
        loop {
            tally.attempts.set(tally.attempts.get() + 1);
            let Err(error) = typed::store(&client, "demo", "telemetry", &reading, OPERATION).await else { break };
            println!("{device}, reading {number}: {error}");
            tally.failures.set(tally.failures.get() + 1);
            Timer::after_millis(200).await;
        }
        tally.acknowledged.set(tally.acknowledged.get() + 1);
        tally.longest.set(tally.longest.get().max(begun.elapsed()));
    }
    tally.working.set(tally.working.get() - 1);
}

/// Prints periodically the resources in use, which must not grow.
#[embassy_executor::task]
async fn tell_status(client: Client<Demo>, plan: &'static Plan, tally: &'static Tally) {
    let mut ticker = Ticker::every(Duration::from_secs(plan.status_s));
    loop {
        ticker.next().await;
        let mut connections = 0;
        client.core().for_each_server(|server| connections += server.pool.counts.total());
        println!(
            "status: ms {}, attempts {}, acknowledged {}, failures {}, connections {connections}, free sockets {}, stack {}, wake-ups {}",
            Instant::now().as_millis(),
            tally.attempts.get(),
            tally.acknowledged.get(),
            tally.failures.get(),
            client.core().runtime().free_sockets(),
            stack::used_bytes(),
            executor::wakeups(),
        );
    }
}

#[embassy_executor::task]
async fn watch(spawner: Spawner, network: Stack<'static>, plan: &'static Plan, tally: &'static Tally) {
    let limit = Duration::from_secs(plan.limit_s);
    let done = with_timeout(limit, work(spawner, network, plan, tally)).await.is_ok();
    println!(
        "sent {}, failures {}, longest {} ms, wake-ups {}, stack {} bytes",
        tally.acknowledged.get(),
        tally.failures.get(),
        tally.longest.get().as_millis(),
        executor::wakeups(),
        stack::used_bytes(),
    );
    println!("{}", if done { "done" } else { "failed: out of time" });
    host::exit(u8::from(!done))
}

/// Runs the whole demo, from the DHCP lease to the end of the last connection.
async fn work(spawner: Spawner, network: Stack<'static>, plan: &'static Plan, tally: &'static Tally) {
    let client = begin(spawner, network, plan).await;
    while let Err(error) = typed::ping(&client).await {
        println!("ping: {error}");
        Timer::after_millis(200).await;
    }
    println!("first reply after {} ms", Instant::now().as_millis());
    match typed::hello(&client).await {
        Ok(hello) => println!("{hello:?}"),
        Err(error) => println!("hello: {error}"),
    }
    if plan.status_s > 0 {
        spawner.spawn(tell_status(client, plan, tally).expect(SPAWNED));
    }
    for device in DEVICES.iter().take(plan.tasks) {
        spawner.spawn(sensor(client, plan, device, tally).expect(SPAWNED));
    }
    while tally.working.get() > 0 {
        Timer::after_millis(20).await;
    }
    client.close();
    client.closed().await;
}

/// Waits for the network, and starts a client with its tasks.
async fn begin(spawner: Spawner, network: Stack<'static>, plan: &'static Plan) -> Client<Demo> {
    // Without a network, a client would only fail and retry. Only one task may wait for it, because
    // embassy-net wakes only one.
    network.wait_config_up().await;
    println!("lease after {} ms", Instant::now().as_millis());
    let (client, runner) = match start(network, plan) {
        Ok(started) => started,
        Err(error) => fail(&error),
    };
    #[cfg(not(feature = "tls"))]
    let (of_hub, of_server) = runner.split();
    #[cfg(feature = "tls")]
    let (of_hub, of_server) = {
        let (of_hub, of_server, sessions) = runner.split();
        for of_socket in sessions {
            spawner.spawn(encryption::sessions(of_socket).expect(SPAWNED));
        }
        (of_hub, of_server)
    };
    spawner.spawn(core(of_hub).expect(SPAWNED));
    for _ in 0..SERVERS {
        spawner.spawn(server(of_server).expect(SPAWNED));
    }
    client
}

/// The runners of a client.
#[cfg(not(feature = "tls"))]
type Runner = poolhouse_embassy::Runner<Demo>;
#[cfg(feature = "tls")]
type Runner = encryption::Runner;

/// Creates a client for this plan. Not inlined, so the stack that it needs is free again
/// afterwards.
#[inline(never)]
fn start(network: Stack<'static>, plan: &'static Plan) -> Result<(Client<Demo>, Runner), SetupError> {
    static RESOURCES: StaticCell<Resources<Demo>> = StaticCell::new();
    static BUFFERS: ConstStaticCell<Buffers<Demo>> = ConstStaticCell::new(Buffers::new());
    static CONFIG: StaticCell<Config> = StaticCell::new();
    let config = match plan.options(host::fill_random).validate() {
        Ok(config) => CONFIG.init(config),
        Err(error) => fail(&error),
    };
    let (resources, buffers) = (RESOURCES.init_with(Resources::new), BUFFERS.take());
    #[cfg(feature = "tls")]
    return encryption::start(resources, buffers, network, config, plan);
    #[cfg(not(feature = "tls"))]
    Client::with_events(resources, buffers, network, config, Printer)
}

fn fail(why: &dyn core::fmt::Display) -> ! {
    println!("failed: {why}");
    host::exit(1)
}

/// Runs the demo with the arguments of the command line.
///
/// # Panics
///
/// When called a second time.
pub fn run() -> ! {
    static TALLY: StaticCell<Tally> = StaticCell::new();
    let plan = read_plan();
    let tally: &'static Tally = TALLY.init(Tally {
        working: Cell::new(plan.tasks),
        attempts: Cell::new(0),
        acknowledged: Cell::new(0),
        failures: Cell::new(0),
        longest: Cell::new(Duration::MIN),
    });
    poolhouse_board::run(|spawner: Spawner| {
        let stack = start_network(spawner);
        spawner.spawn(watch(spawner, stack, plan, tally).expect(SPAWNED));
    })
}

/// Runs the device that sleeps, with the arguments of the command line: see the module.
///
/// # Panics
///
/// When called a second time.
pub fn run_field() -> ! {
    let plan = read_plan();
    poolhouse_board::run(|spawner: Spawner| {
        let stack = start_network(spawner);
        spawner.spawn(field::live(spawner, stack, plan).expect(SPAWNED));
    })
}

// The executor never returns: whatever is inlined into its caller stays on the stack.

#[inline(never)]
fn read_plan() -> &'static Plan {
    static PLAN: StaticCell<Plan> = StaticCell::new();
    let Some(plan) = Plan::read(host::arguments()) else { fail(&format_args!("usage: {USAGE}")) };
    PLAN.init(plan)
}

#[inline(never)]
fn start_network(spawner: Spawner) -> Stack<'static> {
    static NETWORK: StaticCell<StackResources<SOCKETS>> = StaticCell::new();
    let ethernet = match Ethernet::new([0x52, 0x54, 0, 0x12, 0x34, 0x56]) {
        Ok(ethernet) => ethernet,
        Err(error) => fail(&error),
    };
    let config = embassy_net::Config::dhcpv4(DhcpConfig::default());
    let resources = NETWORK.init_with(StackResources::new);
    let (stack, net) = embassy_net::new(ethernet, config, resources, host::random_u64());
    spawner.spawn(run_network(net).expect(SPAWNED));
    stack
}
