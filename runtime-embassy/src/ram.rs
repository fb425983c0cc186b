//! The memory of a client, calculated from its sizes.

use crate::client::{Buffers, Resources};
use crate::layout::Layout;
use crate::run::{CoreRunner, ServerRunner};

/// The static memory of a client, in bytes, on the target that is compiled for.
///
/// It does not include the stack, the network stack with its `StackResources`, the header of some
/// 20 bytes that an executor adds to each task, and `TlsBuffers`.
///
/// ```
/// use poolhouse_embassy::{Ram, Sizes};
///
/// // Fails the build if the client outgrows its share of the RAM.
/// const _: () = assert!(Ram::of::<Sizes<1, 2, 4, 1024, 512, 512>>().total_bytes() < 40 * 1024);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ram {
    /// [`Resources`]: the pools, monitors and the topology.
    pub resources_bytes: usize,
    /// [`Buffers`]: the messages and the TCP windows of all connections.
    pub buffers_bytes: usize,
    /// The task that runs a [`CoreRunner`].
    pub core_task_bytes: usize,
    /// The tasks that run a [`ServerRunner`], one for each server.
    pub server_tasks_bytes: usize,
}

impl Ram {
    /// The memory of a client with these sizes.
    #[must_use]
    pub const fn of<L: Layout>() -> Self {
        Self {
            resources_bytes: size_of::<Resources<L>>(),
            buffers_bytes: size_of::<Buffers<L>>(),
            core_task_bytes: future_bytes(&CoreRunner::<L>::run),
            server_tasks_bytes: L::SERVERS * future_bytes(&ServerRunner::<L>::run),
        }
    }

    /// All of it.
    #[must_use]
    pub const fn total_bytes(self) -> usize {
        self.resources_bytes + self.buffers_bytes + self.core_task_bytes + self.server_tasks_bytes
    }
}

/// The size of the future that a function returns.
const fn future_bytes<A, F: Future>(_run: &impl Fn(A) -> F) -> usize {
    size_of::<F>()
}
