//! Messages of the repeated lookups of the hosts of a `mongodb+srv://` string.
//!
//! Read first: Polling SRV Records for mongos Discovery, "Implementation" (the required messages).

use super::{LogStyle, Logs, NAME_BYTES_MAX, Name, TOPOLOGY, Truncated};
use alloc::string::String;
use core::fmt;
use poolhouse_core::topology::TopologyId;
use poolhouse_uri::dns::{SeedlistError, SrvPoll};

/// The result of one lookup.
pub(crate) struct SrvPolled<'a> {
    pub(crate) topology: TopologyId,
    /// The name that was looked up.
    pub(crate) name: &'a str,
    /// Why the lookup did not change the hosts.
    pub(crate) failure: Option<&'a SeedlistError>,
    /// Contains the hosts that were ignored.
    pub(crate) poll: &'a SrvPoll,
}

impl Logs {
    /// Warns of a lookup that failed, or found no host, and of hosts that were ignored: one message
    /// for each of the two.
    ///
    /// Cost: that of [`tracing::enabled!`], unless there is a reason to warn and a subscriber.
    pub(crate) fn srv_polled(&self, polled: &SrvPolled<'_>) {
        let count = polled.poll.foreign_count();
        if (polled.failure.is_none() && count == 0) || !self.warns_of_topology() {
            return;
        }
        let (id, name, style) = (polled.topology.get(), polled.name, self.options().style);
        if let Some(failure) = polled.failure {
            let failure = Truncated::new(failure, NAME_BYTES_MAX);
            match style {
                LogStyle::Structured => tracing::warn!(
                    target: TOPOLOGY,
                    message = "SRV record lookup failed",
                    "topologyId" = id,
                    "srvName" = name,
                    "failure" = tracing::field::display(failure)
                ),
                LogStyle::Text => tracing::warn!(
                    target: TOPOLOGY,
                    "SRV record lookup of {name} failed in topology with ID {id}, whose hosts stay as they are. Failure: {failure}"
                ),
            }
        }
        if count > 0 {
            let hosts = Hosts(polled.poll.foreign_hosts());
            match style {
                LogStyle::Structured => tracing::warn!(
                    target: TOPOLOGY,
                    message = "SRV records outside the domain ignored",
                    "topologyId" = id,
                    "srvName" = name,
                    "count" = count,
                    "hosts" = tracing::field::display(hosts)
                ),
                LogStyle::Text => tracing::warn!(
                    target: TOPOLOGY,
                    "{count} SRV records of {name} are outside its domain and were ignored in topology with ID {id}, the first of them: {hosts}"
                ),
            }
        }
    }
}

/// Names of hosts, escaped to one line.
struct Hosts<'a>(&'a [String]);

impl fmt::Display for Hosts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, host) in self.0.iter().enumerate() {
            let separator = if place == 0 { "" } else { ", " };
            write!(f, "{separator}{}", Name(host))?;
        }
        Ok(())
    }
}
