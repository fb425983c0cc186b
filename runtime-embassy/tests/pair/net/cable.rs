//! An Ethernet cable in memory. It can be cut and repaired, delay frames, and lose frames.

use super::Net;
use alloc::rc::Rc;
use core::cell::Cell;
use core::time::Duration;
use embassy_net::{Config, ConfigV4, Ipv4Address, Ipv4Cidr, Runner, Stack, StackResources, StaticConfigV4};
use embassy_net_driver_channel::driver::{HardwareAddress, LinkState};
use embassy_net_driver_channel::{Device, RxRunner, State, StateRunner, TxRunner, new};
use embassy_time::Timer;

const MTU: usize = 1514;
const FRAMES: usize = 32;
/// Sockets of a stack.
const SOCKETS: usize = 128;

/// The state of a cable, and counters of its frames.
#[derive(Default)]
pub(crate) struct Cable {
    /// No frame passes.
    cut: Cell<bool>,
    /// The cable cuts itself after this number of frames; zero: never.
    pub(crate) cut_at: Cell<u64>,
    /// How long each frame takes.
    pub(crate) delay: Cell<Duration>,
    /// Every n-th frame is lost; zero: none.
    pub(crate) lose_each: Cell<u64>,
    /// Frames that were sent, including lost ones.
    pub(crate) frames: Cell<u64>,
    pub(crate) lost: Cell<u64>,
    /// Resets of connections.
    pub(crate) resets: Cell<u64>,
    ends: Cell<Vec<StateRunner<'static>>>,
}

impl Cable {
    /// Cuts the cable. With `noticed`, the stacks lose their link, as if the cable was unplugged
    /// from the device; otherwise the link stays up, as if a cable further away was cut.
    pub(crate) fn cut(&self, noticed: bool) {
        self.cut.set(true);
        if noticed {
            self.tell(LinkState::Down);
        }
    }

    pub(crate) fn mend(&self) {
        self.cut.set(false);
        self.tell(LinkState::Up);
    }

    fn tell(&self, state: LinkState) {
        let ends = self.ends.take();
        for end in &ends {
            end.set_link_state(state);
        }
        self.ends.set(ends);
    }

    /// Whether the next frame arrives.
    fn carries(&self, frame: &[u8]) -> bool {
        self.resets.set(self.resets.get() + u64::from(is_reset(frame)));
        let number = self.frames.get() + 1;
        self.frames.set(number);
        if number == self.cut_at.get() + 1 && number > 1 {
            self.cut.set(true);
        }
        let each = self.lose_each.get();
        let lost = self.cut.get() || (each != 0 && number.is_multiple_of(each));
        self.lost.set(self.lost.get() + u64::from(lost));
        !lost
    }
}

/// A stack at one end.
pub(super) struct End {
    pub(super) stack: Stack<'static>,
    runner: Runner<'static, Device<'static, MTU>>,
    wire: embassy_net_driver_channel::Runner<'static, MTU>,
}

/// The static configuration of a stack. The name server is at the bridge.
pub(crate) fn addressed([a, b, c, d]: [u8; 4]) -> ConfigV4 {
    let [e, f, g, h] = super::BRIDGE;
    let mut dns_servers = heapless::Vec::new();
    dns_servers.push(Ipv4Address::new(e, f, g, h)).expect("there is room for one");
    ConfigV4::Static(StaticConfigV4 {
        address: Ipv4Cidr::new(Ipv4Address::new(a, b, c, d), 8),
        gateway: None,
        dns_servers,
    })
}

impl End {
    /// The memory is leaked: this is for tests only.
    pub(super) fn new(address: [u8; 4], cable: &Cable) -> Self {
        let state = Box::leak(Box::new(State::<MTU, FRAMES, FRAMES>::new()));
        let [_, _, _, last] = address;
        let (mut wire, device) = new(state, HardwareAddress::Ethernet([2, 0, 0, 0, 0, last]));
        wire.set_link_state(LinkState::Up);
        let mut ends = cable.ends.take();
        ends.push(wire.state_runner());
        cable.ends.set(ends);
        let resources = Box::leak(Box::new(StackResources::<SOCKETS>::new()));
        let mut config = Config::default();
        config.ipv4 = addressed(address);
        let (stack, runner) = embassy_net::new(device, config, resources, 0x1234_5678 + u64::from(last));
        Self { stack, runner, wire }
    }
}

/// Runs both stacks and the cable in separate tasks: every poll of a socket wakes its stack.
pub(super) fn join(net: &Net, cable: &Rc<Cable>, one: End, other: End) {
    let (_, one_in, one_out) = one.wire.split();
    let (_, other_in, other_out) = other.wire.split();
    for mut runner in [one.runner, other.runner] {
        net.spawn(async move { runner.run().await });
    }
    net.spawn(carry(Rc::clone(cable), one_out, other_in));
    net.spawn(carry(Rc::clone(cable), other_out, one_in));
}

/// Whether a frame resets a connection: IPv4 without options, TCP, and the flag.
fn is_reset(frame: &[u8]) -> bool {
    matches!(frame, [_, _, _, _, _, _, _, _, _, _, _, _, 8, 0, 0x45, ..])
        && frame.get(23) == Some(&6)
        && frame.get(47).is_some_and(|flags| flags & 4 != 0)
}

async fn carry(cable: Rc<Cable>, mut from: TxRunner<'static, MTU>, mut to: RxRunner<'static, MTU>) {
    loop {
        let frame = from.tx_buf().await;
        if cable.carries(frame) {
            let delay = cable.delay.get();
            if !delay.is_zero() {
                Timer::after(delay.try_into().expect("a short delay")).await;
            }
            let place = to.rx_buf().await;
            let len = frame.len();
            place[..len].copy_from_slice(frame);
            to.rx_done(len);
        }
        from.tx_done();
    }
}
