//! The contract that every adapter must pass, with a client in static memory.
//!
//! The runtime and each client have separate devices: a network stack, and a cable to a bridge that
//! forwards to sockets of this process. The clock is the host's and is never advanced by the tests:
//! a case waits for servers and for time at once, and their order is not determined.

extern crate alloc;

mod pair {
    #[allow(dead_code, reason = "the contract puts no clock forward, and breaks no cable")]
    pub(crate) mod net;
}

use alloc::rc::Rc;
use async_executor::{LocalExecutor, Task};
use core::cell::{Cell, RefCell};
use core::net::SocketAddr;
use core::time::Duration;
use pair::net::{self, Net};
use poolhouse_embassy::poolhouse_driver::{ClientCore, Subscribers};
use poolhouse_embassy::{
    Buffers, Client, Embassy, MonitorOptions, Options, PoolOptions, Resources, Runner, ServerMonitoringMode, Sizes,
};
use poolhouse_tests::contract::{self, Contract, Hole, Limits, Shape, Subject, Witness};
use poolhouse_tests::suite::as_one;
use std::process::ExitCode;

/// Connections of a pool.
const CONNECTIONS: u32 = 4;
/// Waiters of a pool.
const WAITERS: u32 = 32;
/// Bytes of a message, in either direction.
const MESSAGE: usize = 4096;

type Small = Sizes<1, { CONNECTIONS as usize }, { WAITERS as usize }, MESSAGE, MESSAGE, 1024, Subscribers>;

/// An address on the cable that no device has.
const NOBODY: [u8; 4] = [127, 0, 0, 9];

/// Simultaneous connections to the socket of a case, and to the server of a client.
const WAYS: usize = 4;
const WAYS_OF_A_CLIENT: usize = 12;

fn main() -> ExitCode {
    as_one(|| Contract::new("embassy").run::<Pair>())
}

/// Devices, and the addresses that they can reach.
struct Pair {
    executor: Rc<LocalExecutor<'static>>,
    /// The device of the runtime that is used without a client.
    device: Device,
    ways: RefCell<Vec<SocketAddr>>,
}

/// A client on a separate network.
struct Device {
    net: Net,
    client: Client<Small>,
    runner: Cell<Option<Task<()>>>,
    _witness: Witness,
}

impl Device {
    fn new(
        executor: &Rc<LocalExecutor<'static>>,
        options: Options,
        run: impl FnOnce(&Net, Runner<Small>) -> Task<()>,
    ) -> Self {
        let net = Net::on(Rc::clone(executor));
        let config = Box::leak(Box::new(options.validate().expect("the options are right")));
        let (resources, buffers) = (Box::leak(Box::new(Resources::new())), Box::leak(Box::new(Buffers::new())));
        let events = Subscribers::default();
        let witness = Witness::new(&events);
        let (client, runner) =
            Client::with_events(resources, buffers, net.stack, config, events).expect("it can begin");
        let runner = Cell::new(Some(run(&net, runner)));
        Self { net, client, runner, _witness: witness }
    }
}

/// Options for this server. The monitor checks only on request.
fn options(server: SocketAddr) -> Options {
    let seed: &'static str = server.to_string().leak();
    Options {
        seeds: vec![seed].leak(),
        direct_connection: true,
        monitor: MonitorOptions {
            server_monitoring_mode: ServerMonitoringMode::Poll,
            heartbeat_frequency: Duration::from_secs(1000),
            ..MonitorOptions::DEFAULT
        },
        ..Options::DEFAULT
    }
}

impl Subject for Pair {
    type Runtime = Embassy<Small>;
    type Client = Device;

    const LIMITS: Limits = {
        let mut limits = Limits::NONE;
        limits.connections = CONNECTIONS;
        limits.waiters = WAITERS;
        limits.message_bytes = MESSAGE;
        limits.open = 96;
        limits.late_replies = false;
        limits
    };

    fn with(case: impl AsyncFnOnce(&Self)) {
        net::run(async |net| {
            let executor = Rc::clone(&net.executor);
            // The client has no server: only the task that closes sockets runs.
            let device = Device::new(&executor, options((NOBODY, 9).into()), |net, runner| {
                let (core, _servers) = runner.split();
                net.spawn_task(async move { core.run().await })
            });
            case(&Self { executor, device, ways: RefCell::default() }).await;
        });
    }

    fn runtime(&self) -> &Embassy<Small> {
        self.device.client.core().runtime()
    }

    fn open_way_to(&self, peer: SocketAddr) {
        self.device.net.open_for(peer, WAYS);
        self.ways.borrow_mut().push(peer);
    }

    async fn black_hole(&self) -> Hole {
        Hole::at((NOBODY, 9).into())
    }

    fn client(&self, shape: &Shape) -> Device {
        let mut options = options(shape.server);
        options.pool = PoolOptions {
            max_pool_size: shape.max_pool_size,
            min_pool_size: shape.min_pool_size,
            wait_queue_timeout: shape.wait_queue_timeout,
            ..PoolOptions::DEFAULT
        };
        options.monitor.connect_timeout = shape.connect_timeout;
        options.server_selection_timeout = shape.server_selection_timeout;
        let device =
            Device::new(&self.executor, options, |net, runner| net.spawn_task(async move { runner.run().await }));
        if self.ways.borrow().contains(&shape.server) {
            device.net.open_for(shape.server, WAYS_OF_A_CLIENT);
        }
        device
    }
}

impl contract::Client for Device {
    type Runtime = Embassy<Small>;

    fn core(&self) -> &ClientCore<Embassy<Small>> {
        self.client.core()
    }

    fn drop_runner(&self) {
        drop(self.runner.take());
    }
}
