//! Repeated lookups of the hosts of a `mongodb+srv://` string.
//!
//! Read first: Polling SRV Records for mongos Discovery, "Implementation".

#[cfg(all(test, feature = "tracing"))]
mod tests;

use super::{Net, Platform};
#[cfg(feature = "tracing")]
use crate::log::SrvPolled;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::poll_fn;
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use event_listener::Event;
#[cfg(feature = "tracing")]
use poolhouse_core::observe::contain;
#[cfg(feature = "tracing")]
use poolhouse_core::topology::TopologyId;
use poolhouse_driver::ClientCore;
use poolhouse_uri::dns::{Resolver, SrvPoll, SrvQuestion};

/// The result of the first SRV lookup of a client.
#[derive(Clone, Debug)]
pub(super) struct Srv {
    pub(super) question: SrvQuestion,
    /// The time to live of the records of the first lookup.
    pub(super) ttl: Duration,
}

/// Repeats the lookup of the hosts at each due time, until the topology is neither sharded nor
/// unknown, or the client is closed. With the feature `tracing`, failed lookups and ignored hosts
/// are logged.
///
/// - `closing`: notified after the client core was closed.
pub(super) async fn run<P: Platform>(
    core: Arc<ClientCore<Net<P>>>,
    closing: Arc<Event>,
    resolver: Arc<dyn Resolver>,
    mut poll: SrvPoll,
) {
    while !poll.is_stopped() {
        let closed = closing.listen();
        if core.is_closed() {
            return;
        }
        let mut closed = pin!(closed);
        let mut step = pin!(step(&core, &mut poll, &*resolver));
        let is_closed = poll_fn(|context| match closed.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending => step.as_mut().poll(context).map(|()| false),
        });
        if is_closed.await {
            return;
        }
    }
}

/// Waits until the next lookup is due, performs it, and applies its result.
async fn step<P: Platform>(core: &ClientCore<Net<P>>, poll: &mut SrvPoll, resolver: &dyn Resolver) {
    let platform = core.runtime().platform();
    if let Some(at) = poll.poll_timeout() {
        platform.sleep_until(at).await;
    }
    poll.handle_topology(core.topology_type());
    let Some(question) = poll.poll_question(platform.now()) else { return };
    let name = question.srv_name();
    let answer = resolver.lookup_srv(&name).await;
    poll.handle_topology(core.topology_type());
    let mut current: Vec<String> = Vec::new();
    core.for_each_server(|server| current.push(server.address.to_owned()));
    let entropy = u64::from(platform.entropy()) << 32 | u64::from(platform.entropy());
    let current = current.iter().map(String::as_str);
    // After a failed lookup, the hosts stay unchanged and the next lookup is due after
    // heartbeatFrequencyMS.
    let changed = poll.handle_answer(platform.now(), answer.as_ref().map_err(Clone::clone), current, entropy);
    #[cfg(feature = "tracing")]
    let _ = contain(|| {
        core.events().logs().srv_polled(&SrvPolled {
            topology: TopologyId::new(core.config().client),
            name: &name,
            failure: changed.as_ref().err(),
            poll,
        });
    });
    if let Ok(Some(hosts)) = changed {
        // Heap storage has room for every host that a DNS message can contain.
        let _ = core.change_seeds(hosts.iter().map(|host| host.as_str()));
    }
}
