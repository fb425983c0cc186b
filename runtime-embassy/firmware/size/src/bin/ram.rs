//! The static memory of clients of one server, by connections, waiters and buffers.
#![no_std]
#![no_main]

use embassy_net::Stack;
use poolhouse_embassy::{Layout, Ram, Sizes};
use poolhouse_size::{end, report};

/// Small buffers, and monitors that poll.
type Small<const CONNS: usize, const WAITERS: usize> =
    Sizes<1, CONNS, WAITERS, 512, 512, 256, (), 1, Stack<'static>, 512, 1>;

fn ram<L: Layout>(name: &str) {
    report(name, u32::try_from(Ram::of::<L>().total_bytes()).unwrap_or(u32::MAX));
}

#[cortex_m_rt::entry]
fn main() -> ! {
    ram::<Small<1, 2>>("conns_1_waiters_2_buffers_small");
    ram::<Small<2, 4>>("conns_2_waiters_4_buffers_small");
    ram::<Small<4, 8>>("conns_4_waiters_8_buffers_small");
    ram::<Small<4, 32>>("conns_4_waiters_32_buffers_small");
    ram::<Sizes<1, 1, 2, 2048, 1024, 512>>("conns_1_waiters_2_buffers_medium");
    ram::<Sizes<1, 2, 4, 2048, 1024, 512>>("conns_2_waiters_4_buffers_medium");
    ram::<Sizes<1, 4, 8, 2048, 1024, 512>>("conns_4_waiters_8_buffers_medium");
    ram::<Sizes<1, 4, 32, 2048, 1024, 512>>("conns_4_waiters_32_buffers_medium");
    ram::<Sizes<1, 1, 2>>("conns_1_waiters_2_buffers_default");
    ram::<Sizes<1, 2, 4>>("conns_2_waiters_4_buffers_default");
    ram::<Sizes<1, 4, 8>>("conns_4_waiters_8_buffers_default");
    ram::<Sizes<1, 4, 32>>("conns_4_waiters_32_buffers_default");
    end(Ok(()))
}
