//! A client of one server with 4 connections and 8 waiters on the network of the `network` module.

use core::hint::black_box;
use core::time::Duration;
use embassy_executor::Spawner;
use embassy_net::Stack;
use embassy_time::{Instant, Timer};
use poolhouse_board::{executor, host};
use poolhouse_embassy::{
    Buffers, Client, Config, CoreRunner, DocumentWriter, Layout, MonitorOptions, Options, PoolOptions, Resources,
    ServerMonitoringMode, ServerRunner, Sizes,
};
#[cfg(feature = "auth")]
use poolhouse_embassy::{Credential, Mechanism};
use static_cell::{ConstStaticCell, StaticCell};

use crate::network::{self, CLIENT_SOCKETS};
use crate::{end, report};

/// The sizes that are measured.
#[cfg(not(feature = "direct"))]
pub type Small = Sizes<1, 4, 8>;
/// The same, without the code that only other deployments need.
#[cfg(feature = "direct")]
pub type Small = Sizes<1, 4, 8, 4096, 1024, 1024, (), 1, Stack<'static>, 2048, 2, poolhouse_embassy::Direct<128>>;
const _: () = assert!(Small::SOCKETS == CLIENT_SOCKETS);

/// The arguments of the command line: `ADDRESS:PORT [SECONDS [CYCLES]] [USER PASSWORD]`; USER and
/// PASSWORD only with authentication.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// A list of one seed.
    pub seeds: &'static [&'static str],
    /// The idle time.
    pub seconds: u64,
    /// The number of check-outs and check-ins.
    pub cycles: u32,
}

#[embassy_executor::task]
async fn core(runner: CoreRunner<Small>) -> ! {
    runner.run().await
}

#[embassy_executor::task]
async fn server(runner: ServerRunner<Small>) -> ! {
    runner.run().await
}

#[embassy_executor::task]
async fn work(spawner: Spawner, stack: Stack<'static>, config: &'static Config, plan: Plan) {
    end(operate(spawner, stack, config, plan).await)
}

/// Parses the plan of the command line; the remaining arguments are the credential.
fn plan(arguments: &mut impl Iterator<Item = &'static str>) -> Option<Plan> {
    static SEEDS: StaticCell<[&str; 1]> = StaticCell::new();
    let seeds = SEEDS.init([arguments.next()?]);
    network::server(seeds[0])?;
    let seconds = arguments.next().map_or(Ok(0), str::parse).ok()?;
    let cycles = arguments.next().map_or(Ok(0), str::parse).ok()?;
    Some(Plan { seeds, seconds, cycles })
}

/// The options of all clients. The caller adds the credential.
fn options(plan: Plan) -> Options {
    Options {
        seeds: plan.seeds,
        direct_connection: true,
        pool: PoolOptions { max_pool_size: 4, min_pool_size: 1, ..PoolOptions::DEFAULT },
        monitor: MonitorOptions::DEFAULT,
        timeout: Some(Duration::from_secs(20)),
        random: Some(host::fill_random),
        ..Options::DEFAULT
    }
}

/// Runs a client with the arguments of the command line: `ADDRESS:PORT [SECONDS [CYCLES]]`.
pub fn run() -> ! {
    let (plan, config) = configured();
    poolhouse_board::run(|spawner: Spawner| start(spawner, plan, config))
}

/// Runs a client with the arguments of the command line: `ADDRESS:PORT SECONDS stream|poll HEARTBEAT`, the last one
/// in seconds.
pub fn run_idle() -> ! {
    let (plan, config) = configured_monitor();
    poolhouse_board::run(|spawner: Spawner| start(spawner, plan, config))
}

/// Runs a client with SCRAM-SHA-256 with the arguments of the command line:
/// `ADDRESS:PORT SECONDS CYCLES USER PASSWORD`.
#[cfg(feature = "auth")]
pub fn run_with_user() -> ! {
    let (plan, config) = configured_with_user();
    poolhouse_board::run(|spawner: Spawner| start(spawner, plan, config))
}

// The executor never returns. Whatever is inlined into its caller stays on the stack, and would be
// counted as that of the client.

#[inline(never)]
fn configured() -> (Plan, &'static Config) {
    let Some(plan) = plan(&mut host::arguments()) else { end(Err(1)) };
    (plan, checked(options(plan)))
}

#[inline(never)]
fn configured_monitor() -> (Plan, &'static Config) {
    let mut arguments = host::arguments();
    let (Some(seed), Some(seconds)) = (arguments.next(), arguments.next()) else { end(Err(1)) };
    let Some(plan) = plan(&mut [seed, seconds].into_iter()) else { end(Err(1)) };
    let server_monitoring_mode = match arguments.next() {
        Some("stream") => ServerMonitoringMode::Stream,
        Some("poll") => ServerMonitoringMode::Poll,
        _ => end(Err(4)),
    };
    let Some(Ok(heartbeat)) = arguments.next().map(str::parse) else { end(Err(5)) };
    let heartbeat_frequency = Duration::from_secs(heartbeat);
    let monitor = MonitorOptions { server_monitoring_mode, heartbeat_frequency, ..MonitorOptions::DEFAULT };
    (plan, checked(Options { monitor, ..options(plan) }))
}

#[cfg(feature = "auth")]
#[inline(never)]
fn configured_with_user() -> (Plan, &'static Config) {
    let mut arguments = host::arguments();
    let Some(plan) = plan(&mut arguments) else { end(Err(1)) };
    let (Some(user), Some(password)) = (arguments.next(), arguments.next()) else { end(Err(3)) };
    let credential = Credential::new(user, password).mechanism(Mechanism::SCRAM_SHA_256);
    (plan, checked(Options { credential: Some(credential), ..options(plan) }))
}

fn checked(options: Options) -> &'static Config {
    static CONFIG: StaticCell<Config> = StaticCell::new();
    let Ok(config) = options.validate() else { end(Err(60)) };
    CONFIG.init(config)
}

/// Starts the network, the client and its tasks.
#[inline(never)]
fn start(spawner: Spawner, plan: Plan, config: &'static Config) {
    let stack = network::start(spawner);
    match work(spawner, stack, config, plan) {
        Ok(token) => spawner.spawn(token),
        Err(_) => end(Err(61)),
    }
}

#[cfg(not(feature = "tls"))]
type Runner = poolhouse_embassy::Runner<Small>;
#[cfg(feature = "tls")]
type Runner = encryption::Runner;

#[inline(never)]
fn make(stack: Stack<'static>, config: &'static Config) -> Result<(Client<Small>, Runner), u8> {
    static RESOURCES: StaticCell<Resources<Small>> = StaticCell::new();
    static SOCKET_BUFFERS: ConstStaticCell<Buffers<Small>> = ConstStaticCell::new(Buffers::new());
    let (resources, buffers) = (RESOURCES.init_with(Resources::new), SOCKET_BUFFERS.take());
    #[cfg(not(feature = "tls"))]
    return Client::new(resources, buffers, stack, config).map_err(|_| 62);
    #[cfg(feature = "tls")]
    encryption::make(resources, buffers, stack, config)
}

/// The options of TLS, with records of 4 KiB.
#[cfg(feature = "tls")]
mod encryption {
    use super::{Buffers, Client, Config, ConstStaticCell, Layout, Resources, Small, Spawner, Stack, black_box, host};
    use poolhouse_embassy::{MaxFragment, TlsBuffers, TlsConfig, TlsOptions, TlsRunner, TlsSessions};

    pub(super) type Runner = TlsRunner<Small, RECEIVE, SEND, PIECE>;

    const RECEIVE: usize = MaxFragment::Bytes4096.bytes() + 256;
    const SEND: usize = 1152;
    const PIECE: usize = 512;

    static TLS: TlsConfig =
        TlsOptions::new(&[&[0x30, 0]], || host::unix_time().as_secs()).max_fragment(MaxFragment::Bytes4096).build();

    #[embassy_executor::task(pool_size = Small::SOCKETS)]
    async fn sessions(sessions: TlsSessions<RECEIVE, SEND, PIECE>) -> ! {
        sessions.run().await
    }

    pub(super) fn make(
        resources: &'static mut Resources<Small>,
        buffers: &'static mut Buffers<Small>,
        stack: Stack<'static>,
        config: &'static Config,
    ) -> Result<(Client<Small>, Runner), u8> {
        static RECORDS: ConstStaticCell<TlsBuffers<Small, RECEIVE, SEND, PIECE>> =
            ConstStaticCell::new(TlsBuffers::new());
        Client::with_tls(resources, buffers, RECORDS.take(), stack, config, black_box(&TLS), ()).map_err(|_| 67)
    }

    pub(super) fn spawn(
        spawner: Spawner,
        all: impl Iterator<Item = TlsSessions<RECEIVE, SEND, PIECE>>,
    ) -> Result<(), u8> {
        for of_socket in all {
            spawner.spawn(sessions(of_socket).map_err(|_| 68)?);
        }
        Ok(())
    }
}

async fn ping(client: Client<Small>) -> Result<(), u8> {
    let ping = |body: &mut DocumentWriter<'_, _>| body.int32(black_box("ping"), 1).map(drop);
    client.run_command(black_box("admin"), ping, &mut [0; 256]).await.map(drop).map_err(|_| 63)
}

async fn operate(spawner: Spawner, stack: Stack<'static>, config: &'static Config, plan: Plan) -> Result<(), u8> {
    stack.wait_config_up().await;
    let (client, runner) = make(stack, config)?;
    #[cfg(not(feature = "tls"))]
    let (of_hub, of_server) = runner.split();
    #[cfg(feature = "tls")]
    let (of_hub, of_server, of_sockets) = runner.split();
    #[cfg(feature = "tls")]
    encryption::spawn(spawner, of_sockets)?;
    spawner.spawn(core(of_hub).map_err(|_| 64)?);
    spawner.spawn(server(of_server).map_err(|_| 65)?);
    ping(client).await?;
    if plan.cycles > 0 {
        let begun = Instant::now();
        for _ in 0..plan.cycles {
            drop(client.check_out().await.map_err(|_| 66)?);
        }
        report("cycles_us", u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
    if plan.seconds > 0 {
        // The monitor's first measurements end within this time.
        Timer::after_secs(2).await;
        let (wakeups, polls) = (executor::wakeups(), executor::polls());
        Timer::after_secs(plan.seconds).await;
        report("idle_wakeups", executor::wakeups().wrapping_sub(wakeups));
        report("idle_polls", executor::polls().wrapping_sub(polls));
    }
    ping(client).await?;
    client.close();
    while client.core().runtime().free_sockets() < Small::SOCKETS {
        Timer::after_millis(20).await;
    }
    Ok(())
}
