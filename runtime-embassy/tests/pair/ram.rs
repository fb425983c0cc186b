//! The memory that is calculated is that of the values.

use super::support::Small;
use embassy_net::Stack;
use poolhouse_embassy::{Buffers, Layout, Ram, Resources, Sizes};

fn is_that_of_the_statics<L: Layout>(buffers_bytes: usize) {
    let ram = Ram::of::<L>();
    assert_eq!(ram.resources_bytes, size_of::<Resources<L>>());
    assert_eq!(ram.buffers_bytes, size_of::<Buffers<L>>());
    assert_eq!(ram.buffers_bytes, buffers_bytes);
    let statics = ram.resources_bytes + ram.buffers_bytes;
    assert_eq!(ram.total_bytes(), statics + ram.core_task_bytes + ram.server_tasks_bytes);
}

#[test]
fn calculated_memory_is_that_of_the_statics() {
    is_that_of_the_statics::<Small>(4 * 7_168 + 2 * 4_608);
    is_that_of_the_statics::<Sizes<1, 4, 8, 512, 512, 256, (), 1, Stack<'static>, 512, 1>>(5 * 1_536);
    is_that_of_the_statics::<Sizes<3, 2, 8, 2_048, 1_024, 512>>(3 * (2 * 4_096 + 2 * 3_584));
}

#[test]
fn every_server_and_every_worker_adds_to_the_tasks() {
    let [one, three] = [Ram::of::<Sizes<1, 2, 8>>(), Ram::of::<Sizes<3, 2, 8>>()];
    // The future of a server does not depend on the number of servers.
    assert_eq!(three.server_tasks_bytes, 3 * one.server_tasks_bytes);
    let two_workers = Ram::of::<Sizes<1, 2, 8, 4096, 1024, 1024, (), 2>>();
    assert!(two_workers.server_tasks_bytes > one.server_tasks_bytes + 1_024, "{one:?}, {two_workers:?}");
    assert_eq!(two_workers.buffers_bytes, one.buffers_bytes);
}
