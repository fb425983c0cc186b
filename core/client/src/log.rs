//! Log messages of pools, topology, heartbeats, server selection and commands, as events of the
//! [`tracing`] crate (feature `tracing`).
//!
//! Read first: Logging, "Components", "Representing Documents in Log Messages" and "Omitting Null
//! Values from Log Messages"; CMAP, "Connection Pool Logging"; SDAM Logging and Monitoring, "Log
//! Messages"; Server Selection, "Logging".
//!
//! Each message is one event at level *debug*: it is for diagnosis, and an error that the caller
//! receives is not logged again at a higher level. The message of an operation that waits
//! for a suitable server has the level *info*. The target of a message is its component,
//! [`CONNECTION`], [`TOPOLOGY`], [`SERVER_SELECTION`] or [`COMMAND`]: any subscriber can filter by it
//! (`RUST_LOG=poolhouse::connection=debug`). The fields have the names of the specification:
//! `message`, `serverHost`, `serverPort`, `driverConnectionId`, `durationMS` (a float),
//! `topologyId`. A field with an unknown value is left out.
//!
//! ```text
//! DEBUG poolhouse::connection: Connection ready serverHost="localhost" serverPort=27017 driverConnectionId=1 durationMS=1.25
//! ```
//!
//! With [`LogStyle::Text`] there is one field, `message`, which contains all values:
//!
//! ```text
//! DEBUG poolhouse::connection: Connection ready: address=localhost:27017, driver-generated ID=1, established in=1.25 ms
//! ```
//!
//! Durations have at most three decimals. The `reply` of a heartbeat is left out unless
//! [`LogOptions::heartbeat_replies`] is set.
//!
//! The messages of commands contain the command and its reply, that is, data of the application,
//! unless they may contain a password:
//! [`CommandEvent::document`](poolhouse_driver::CommandEvent#structfield.document). Those of server
//! selection contain the description of the topology, once for each start and end.
//!
//! # Warnings
//!
//! The specifications require these levels for their messages. For operators there are further lines at
//! *warn* and *info*, of the component [`DEPLOYMENT`]. They are plain text, one line for each fact,
//! however many pools and monitors observe the fact.
//!
//! | level | line | when |
//! |---|---|---|
//! | warn | `primary lost: a:1 of replica set rs: network error: Connection refused (os error 111)` | the set has no known primary any more; the reason is the primary's error, its new type, or that it left the set |
//! | info | `primary found: b:1 of replica set rs` | a primary is known, the first or after a loss; with `, before it was a:1` if no loss was observed |
//! | warn | `server down: c:1: network timeout` | a server became unusable, or could not be reached from the start; once, until it is known again. Not for a lost primary. For a host of Cassandra: no connection is open, and the last one failed or was not established. For a generic pool: no connection is open, and an attempt to open one failed |
//! | info | `server reconnected: c:1` | the server is known again, or a connection to it is open, or it refuses the credential |
//! | warn | `wrong replica set: a:1 is a member of "rs0", and the client looks for "rs1"` | a server was removed because of its reply |
//! | warn | `incompatible server: (versions)` | the client does not support the wire versions of a server, and operations fail |
//! | info | `operations wait for a server no more: 20 had waited, the longest 10.0s` | no operation waits any more; more than one had waited, at least one for a second, and at least one has found a server; with the number of those that waited in vain, if there are any |
//! | info | `control connection established: a:9042, 3 nodes` | a session has read the tables of its cluster from this node |
//! | warn | `control connection lost: b:9042: network error` | once, until tables were read again |
//! | info | `node added: a:9042`, `node removed`, `node up`, `node down` | what the cluster reports about a node; those of the first tables have no lines |
//! | warn | `2 rows of the tables of nodes are ignored: ..` | if their number is another than in the last tables |
//! | warn | `no node is in the local data centre "DC9": the cluster has "dc1"; ..` | requests go to other data centres, or fail |
//! | warn | `pool cleared: a:1, service 0102..: network error` | behind a load balancer, the connections to one service became stale |
//! | warn | `authentication failed: a:1: (reason)` | a connection was refused because of its credential; once, until a connection to that server is established |
//!
//! The lines about single nodes of a Cassandra session, those of a connection to one included, and about its control
//! connection are at most 60 in a minute.
//!
//! When a server is down, the clear of its pool has no line, because both are one step; [`Logs`]
//! without the driver emits a line at each clear. A server that replies, but is no longer primary
//! or refuses the credential, is not down. [`Logs`] keeps no state, so it repeats
//! `authentication failed` for each connection.
//!
//! A generic pool has its name in the place of the address, and the field `poolName` in messages, without
//! `serverHost` and `serverPort`. Events of Cassandra's pools are messages of [`CONNECTION`], those of its cluster of
//! [`TOPOLOGY`], without those of [`EventKinds::REQUESTS`].
//!
//! Of many operations that wait for a server, the first has the message of [`SERVER_SELECTION`], and then, for each
//! selector, one that begins to wait at least ten seconds after the last message, with the number of the others as
//! `othersWaiting`.
//!
//! Other warnings use the specification's targets. [`TOPOLOGY`] has these: the topology lost its
//! last server; a lookup of the hosts of a `mongodb+srv://` string failed or found no host
//! (`srvName`, `failure`); hosts were left out because they are outside the domain (`srvName`,
//! `count`, and the first eight as `hosts`). [`CONNECTION`] has the warnings about the connection
//! string and the TLS options, when a client is created. [`COMMAND`] has a warning for each command, or request of
//! Cassandra, that takes at least [`LogOptions::slow_command`], and one, once for a client, if the reply to a
//! `run_command` left a cursor open on the server.
//!
//! # Subscribers
//!
//! The subscriber determines where messages are written (stdout, stderr, a file). Without
//! a subscriber nothing is formatted: the cost is that of [`tracing::enabled!`], a few loads and
//! compares.
//!
//! [`Logs`] is an [`Observer`] for machines without the driver; it formats each message at once.
//! `LogQueue` is for the driver: it stores events under the lock, and emits them after the lock is
//! released.

mod command;
mod deployment;
mod emit;
mod queue;
mod selection;
mod srv;
#[cfg(test)]
pub(crate) mod tests;
mod text;
mod waits;

pub use queue::{LOG_QUEUE_BYTES, LOG_QUEUE_EVENTS, LogQueue};
pub(crate) use srv::SrvPolled;

use self::deployment::Fact;
use crate::mux::PORT_DEFAULT;
use alloc::string::ToString;
use core::fmt;
use core::time::Duration;
use poolhouse_core::address::HostAddress;
use poolhouse_core::machine::Observer;
use poolhouse_core::monitor::MonitorEvent;
use poolhouse_core::mux::MuxEvent;
use poolhouse_core::observe::{EventContext, Truncated};
use poolhouse_core::pool::PoolEvent;
use poolhouse_core::topology::{SdamEvent, TopologyId};
use poolhouse_core::{Instant, Reason};
use poolhouse_driver::EventKinds;
use poolhouse_wire::bson::RelaxedJson;
use poolhouse_wire::peer_text::OneLine;
use tracing::Level;
use tracing::level_filters::LevelFilter;

/// The target of messages of pools: the component "connection".
pub const CONNECTION: &str = "poolhouse::connection";
/// The target of messages of commands: the component "command".
pub const COMMAND: &str = "poolhouse::command";
/// The target of messages of server selection: the component "serverSelection".
pub const SERVER_SELECTION: &str = "poolhouse::serverSelection";
/// The target of messages of topologies and heartbeats: the component "topology".
pub const TOPOLOGY: &str = "poolhouse::topology";
/// The target of the lines for operators: servers that are down, primaries that are lost and found.
/// Not a component of the specification.
pub const DEPLOYMENT: &str = "poolhouse::deployment";

/// Shown if the address of a server is unknown.
const UNKNOWN: &str = "an unknown server";

/// Which messages are logged, and how. The subscriber can restrict them further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogOptions {
    /// The most verbose level of messages of commands. Default all levels.
    pub command: LevelFilter,
    /// The most verbose level of messages of pools. Default all levels.
    pub connection: LevelFilter,
    /// The most verbose level of messages of server selection. Default all levels.
    pub server_selection: LevelFilter,
    /// The most verbose level of messages of topologies and heartbeats. Default all levels.
    pub topology: LevelFilter,
    /// The most verbose level of lines for operators. Default all levels.
    pub deployment: LevelFilter,
    /// Whether the message of a heartbeat contains the server's reply. Default false: a reply has
    /// up to some thousand bytes, and each server sends one every ten seconds.
    pub heartbeat_replies: bool,
    /// The time from which a command, or a request of Cassandra, is slow, and logged at *warn*; `None`, the
    /// default, is never.
    pub slow_command: Option<Duration>,
    /// The maximum length of a document in bytes; a longer one is cut, and `...` is appended.
    /// Default 1000.
    pub document_length_max: usize,
    /// The form of messages. Default fields.
    pub style: LogStyle,
}

/// The form of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LogStyle {
    /// Each value is a field.
    #[default]
    Structured,
    /// All values are in one sentence.
    Text,
}

impl LogOptions {
    /// The defaults.
    pub const DEFAULT: Self = Self {
        command: LevelFilter::TRACE,
        connection: LevelFilter::TRACE,
        server_selection: LevelFilter::TRACE,
        topology: LevelFilter::TRACE,
        deployment: LevelFilter::TRACE,
        heartbeat_replies: false,
        slow_command: None,
        document_length_max: 1000,
        style: LogStyle::Structured,
    };

    /// Logs nothing.
    pub const OFF: Self = Self {
        command: LevelFilter::OFF,
        connection: LevelFilter::OFF,
        server_selection: LevelFilter::OFF,
        topology: LevelFilter::OFF,
        deployment: LevelFilter::OFF,
        ..Self::DEFAULT
    };

    /// The defaults, changed by environment variables: `MONGODB_LOG_COMMAND`,
    /// `MONGODB_LOG_CONNECTION`, `MONGODB_LOG_SERVER_SELECTION`, `MONGODB_LOG_TOPOLOGY`,
    /// `MONGODB_LOG_ALL` for components without a variable and for the lines for operators, and
    /// `MONGODB_LOG_MAX_DOCUMENT_LENGTH` (a number, or `unlimited`). An invalid value counts as not set.
    ///
    /// - `variable`: returns the value of an environment variable.
    ///
    /// ```
    /// # use poolhouse_client::log::LogOptions;
    /// let options = LogOptions::from_environment(|name| std::env::var(name).ok());
    /// ```
    #[must_use]
    pub fn from_environment<S: AsRef<str>>(mut variable: impl FnMut(&str) -> Option<S>) -> Self {
        let mut level = |name: &str| variable(name).and_then(|value| parse_level(value.as_ref()));
        let all = level("MONGODB_LOG_ALL").unwrap_or(LevelFilter::TRACE);
        let command = level("MONGODB_LOG_COMMAND").unwrap_or(all);
        let connection = level("MONGODB_LOG_CONNECTION").unwrap_or(all);
        let server_selection = level("MONGODB_LOG_SERVER_SELECTION").unwrap_or(all);
        let topology = level("MONGODB_LOG_TOPOLOGY").unwrap_or(all);
        let length = variable("MONGODB_LOG_MAX_DOCUMENT_LENGTH").and_then(|value| {
            let value = value.as_ref().trim();
            if value.eq_ignore_ascii_case("unlimited") { Some(usize::MAX) } else { value.parse().ok() }
        });
        let document_length_max = length.unwrap_or(Self::DEFAULT.document_length_max);
        Self { command, connection, server_selection, topology, deployment: all, document_length_max, ..Self::DEFAULT }
    }
}

impl Default for LogOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Parses a level of the specification, which has more levels than `tracing`.
fn parse_level(name: &str) -> Option<LevelFilter> {
    const LEVELS: [(&str, LevelFilter); 10] = [
        ("off", LevelFilter::OFF),
        ("emergency", LevelFilter::ERROR),
        ("alert", LevelFilter::ERROR),
        ("critical", LevelFilter::ERROR),
        ("error", LevelFilter::ERROR),
        ("warn", LevelFilter::WARN),
        ("notice", LevelFilter::INFO),
        ("info", LevelFilter::INFO),
        ("debug", LevelFilter::DEBUG),
        ("trace", LevelFilter::TRACE),
    ];
    let name = name.trim();
    LEVELS.iter().find(|(level, _)| name.eq_ignore_ascii_case(level)).map(|(_, filter)| *filter)
}

/// Logs the events of pools, monitors, scans and topologies.
///
/// For machines without the driver. A pool's events do not contain the address of the server;
/// [`Within`](poolhouse_core::observe::Within) adds it:
///
/// ```
/// use poolhouse_core::Instant;
/// use poolhouse_client::log::{LogOptions, Logs};
/// use poolhouse_core::observe::{EventContext, Within};
/// use poolhouse_core::pool::{OnHeap, Pool, PoolConfig, PoolId};
///
/// let now = Instant::from_nanos(0);
/// let mut logs = Within::new(Logs::new(LogOptions::DEFAULT), EventContext::of_server("localhost:27017"));
/// let mut pool = Pool::<OnHeap>::new(now, PoolId::new(1), PoolConfig::DEFAULT, &mut logs);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Logs {
    options: LogOptions,
}

impl Logs {
    /// Creates a logger with these options.
    #[must_use]
    pub const fn new(options: LogOptions) -> Self {
        Self { options }
    }

    /// Returns the options.
    #[must_use]
    pub const fn options(&self) -> &LogOptions {
        &self.options
    }

    /// Whether a subscriber receives messages of pools.
    #[inline]
    #[must_use]
    pub fn logs_connections(&self) -> bool {
        self.options.connection >= LevelFilter::DEBUG && tracing::enabled!(target: CONNECTION, Level::DEBUG)
    }

    /// Whether a subscriber receives messages of topologies and heartbeats.
    #[inline]
    #[must_use]
    pub fn logs_topology(&self) -> bool {
        self.options.topology >= LevelFilter::DEBUG && tracing::enabled!(target: TOPOLOGY, Level::DEBUG)
    }

    /// Whether a subscriber receives warnings of topologies.
    #[inline]
    #[must_use]
    fn warns_of_topology(&self) -> bool {
        self.options.topology >= LevelFilter::WARN && tracing::enabled!(target: TOPOLOGY, Level::WARN)
    }

    /// Whether a subscriber receives warnings about the deployment.
    #[inline]
    #[must_use]
    fn logs_deployment(&self) -> bool {
        self.options.deployment >= LevelFilter::WARN && tracing::enabled!(target: DEPLOYMENT, Level::WARN)
    }

    /// The kinds of events that are of use.
    fn kinds(&self) -> EventKinds {
        let when = |is_logged: bool, kinds: EventKinds| if is_logged { kinds } else { EventKinds::NONE };
        when(self.logs_connections(), EventKinds::POOLS | EventKinds::CHECK_OUTS)
            | when(self.logs_topology(), EventKinds::HEARTBEATS | EventKinds::TOPOLOGY)
            | when(self.warns_of_topology(), EventKinds::TOPOLOGY)
            | when(self.logs_deployment(), EventKinds::POOLS | EventKinds::TOPOLOGY)
            | when(self.logs_deployment_at_info(), EventKinds::SELECTION_WAITS)
            | self.command_kinds()
            | self.selection_kinds()
    }

    /// The kinds of events of Cassandra that may be of use, by the options alone.
    fn cassandra_kinds(&self) -> EventKinds {
        let has_lines = self.options.deployment >= LevelFilter::WARN;
        let when = |is_logged: bool, kinds| if has_lines || is_logged { kinds } else { EventKinds::NONE };
        when(self.options.connection >= LevelFilter::DEBUG, EventKinds::MUX)
            | when(self.options.topology >= LevelFilter::DEBUG, EventKinds::CLUSTER)
    }

    /// Whether a subscriber receives lines about the deployment at *info*.
    fn logs_deployment_at_info(&self) -> bool {
        self.options.deployment >= LevelFilter::INFO && tracing::enabled!(target: DEPLOYMENT, Level::INFO)
    }

    /// Whether a subscriber receives this fact about the deployment.
    fn logs_fact(&self, fact: &Fact<'_>) -> bool {
        let is_warning = fact.level() == Level::WARN;
        self.options.deployment >= fact.level() && (is_warning || tracing::enabled!(target: DEPLOYMENT, Level::INFO))
    }

    /// Logs a warning about the client's options.
    pub(crate) fn warn_of_options(&self, warning: impl fmt::Display) {
        if self.options.connection >= LevelFilter::WARN {
            tracing::warn!(target: CONNECTION, "{warning}");
        }
    }

    /// Logs a warning about a command whose reply left a cursor open on the server.
    pub(crate) fn warn_of_open_cursor(&self, command: &str) {
        if self.options.command >= LevelFilter::WARN {
            tracing::warn!(
                target: COMMAND,
                "run_command returned only the first documents of a command {command}, and left its cursor open on the \
                 server: run_cursor_command returns all of them (further such commands are not reported)"
            );
        }
    }

    /// Logs a warning about a request of Cassandra that has taken too long.
    ///
    /// - `address`: of the host that has answered.
    pub(crate) fn slow_request(
        &self,
        name: &str,
        duration: Duration,
        address: Option<&str>,
        failure: Option<&dyn fmt::Display>,
    ) {
        let (failure, duration) = (failure.map(ToString::to_string), millis(duration));
        let failure = failure.as_deref().map(OneLine);
        if self.options.style == LogStyle::Text {
            tracing::warn!(target: COMMAND, "{}", text::SlowRequest { name, address, duration, failure });
            return;
        }
        let (host, port) = host_and_port_or(address, PORT_DEFAULT);
        tracing::warn!(
            target: COMMAND,
            message = "Slow request",
            "requestName" = name,
            "serverHost" = host,
            "serverPort" = port,
            "durationMS" = duration,
            "failure" = failure.map(tracing::field::display),
        );
    }

    /// Whether a request of Cassandra that has taken this time is logged.
    pub(crate) fn is_slow(&self, duration: Duration) -> bool {
        let is_slow = self.options.slow_command.is_some_and(|limit| duration >= limit);
        is_slow && self.options.command >= LevelFilter::WARN
    }

    /// Logs a warning about a batch that Cassandra may refuse.
    pub(crate) fn warn_of_large_batch(&self, statements: usize, size_bytes: usize) {
        if self.options.command >= LevelFilter::WARN {
            tracing::warn!(
                target: COMMAND,
                "a batch of {statements} statements has {size_bytes} bytes: Cassandra refuses batches of several partitions \
                 above its batch_size_fail_threshold, by default 50 KiB (further such batches are not reported)"
            );
        }
    }

    /// Logs a warning about messages for which the queue had no room.
    fn warn_of_lost(&self, count: u64) {
        match self.options.style {
            LogStyle::Structured => {
                tracing::warn!(target: TOPOLOGY, message = "Log messages were lost", "count" = count);
            }
            LogStyle::Text => tracing::warn!(target: TOPOLOGY, "Log messages were lost: {count}"),
        }
    }

    /// Whether a subscriber receives the message of this event of a topology.
    fn logs_sdam(&self, event: &SdamEvent<'_>) -> bool {
        if matches!(event, SdamEvent::NoServers { .. }) {
            return self.warns_of_topology();
        }
        // A change of a server has no message: the message about the topology's change, which
        // follows, contains the server's description.
        !matches!(event, SdamEvent::ServerDescriptionChanged { .. }) && self.logs_topology()
    }

    /// Reports the facts about the deployment in an event, if a subscriber receives them.
    fn report_facts(&self, event: &SdamEvent<'_>, context: &EventContext<'_>, mut report: impl FnMut(&Fact<'_>)) {
        if let SdamEvent::TopologyDescriptionChanged { previous, new, .. } = event {
            if self.logs_deployment() {
                Fact::of_topology(*previous, *new, context, |fact| {
                    if self.logs_fact(fact) {
                        report(fact);
                    }
                });
            }
        }
    }

    /// [`Self::pool`] for an event with this context. Not inlined, so the code of a pool contains
    /// only the check for a subscriber.
    #[inline(never)]
    fn pool_in(&self, event: &PoolEvent, context: &EventContext<'_>) {
        self.pool(event, &self.extra(context));
    }

    /// Emits the fact about the deployment in a pool's event, if a subscriber receives it.
    #[cold]
    fn report_fact_of_pool(&self, event: &PoolEvent, context: &EventContext<'_>) {
        if let Some(fact) = Fact::of_pool(event, context) {
            if self.logs_deployment() {
                deployment::emit(fact.level(), &fact, fact.reason());
            }
        }
    }

    fn extra<'a>(&self, context: &EventContext<'a>) -> Extra<'a> {
        let reply = context
            .reply
            .filter(|_| self.options.heartbeat_replies)
            .map(|reply| Reply::Document(Truncated::new(reply.relaxed_json(), self.options.document_length_max)));
        Extra { topology: context.topology, address: context.address, is_name: false, reply, reason: context.reason }
    }

    fn pool(&self, event: &PoolEvent, extra: &Extra<'_>) {
        match self.options.style {
            LogStyle::Structured => emit::pool(event, extra),
            LogStyle::Text => tracing::debug!(target: CONNECTION, "{}", text::Pool(event, extra)),
        }
    }

    fn mux(&self, event: &MuxEvent, extra: &Extra<'_>) {
        match self.options.style {
            LogStyle::Structured => emit::mux(event, extra),
            LogStyle::Text => tracing::debug!(target: CONNECTION, "{}", text::Mux(event, extra)),
        }
    }

    fn heartbeat(&self, event: &MonitorEvent, extra: &Extra<'_>) {
        match self.options.style {
            LogStyle::Structured => emit::heartbeat(event, extra),
            LogStyle::Text => tracing::debug!(target: TOPOLOGY, "{}", text::Heartbeat(event, extra)),
        }
    }

    fn sdam(&self, event: &SdamEvent<'_>) {
        match (self.options.style, event) {
            (LogStyle::Structured, _) => emit::sdam(event),
            (LogStyle::Text, SdamEvent::NoServers { .. }) => {
                tracing::warn!(target: TOPOLOGY, "{}", text::Sdam(event));
            }
            (LogStyle::Text, _) => tracing::debug!(target: TOPOLOGY, "{}", text::Sdam(event)),
        }
    }
}

impl Observer<PoolEvent> for Logs {
    #[inline]
    fn on_event(&mut self, now: Instant, event: &PoolEvent) {
        self.on_event_in(now, event, &EventContext::NONE);
    }

    /// Lines for operators do not need an enabled observer, because a machine emits the events that
    /// they report to every observer.
    #[inline]
    fn is_enabled(&self) -> bool {
        self.logs_connections()
    }

    #[inline]
    fn on_event_in(&mut self, _now: Instant, event: &PoolEvent, context: &EventContext<'_>) {
        if self.logs_connections() {
            self.pool_in(event, context);
        }
        if Fact::may_be_in(event) {
            self.report_fact_of_pool(event, context);
        }
    }
}

impl Observer<MonitorEvent> for Logs {
    #[inline]
    fn on_event(&mut self, now: Instant, event: &MonitorEvent) {
        self.on_event_in(now, event, &EventContext::NONE);
    }

    #[inline]
    fn on_event_in(&mut self, _now: Instant, event: &MonitorEvent, context: &EventContext<'_>) {
        if self.logs_topology() {
            self.heartbeat(event, &self.extra(context));
        }
    }
}

impl<'e> Observer<SdamEvent<'e>> for Logs {
    #[inline]
    fn on_event(&mut self, now: Instant, event: &SdamEvent<'e>) {
        self.on_event_in(now, event, &EventContext::NONE);
    }

    #[inline]
    fn on_event_in(&mut self, _now: Instant, event: &SdamEvent<'e>, context: &EventContext<'_>) {
        if self.logs_sdam(event) {
            self.sdam(event);
        }
        self.report_facts(event, context, |fact| deployment::emit(fact.level(), fact, fact.reason()));
    }
}

/// Values of a message that are not part of its event.
struct Extra<'a> {
    topology: Option<TopologyId>,
    address: Option<&'a str>,
    /// Whether the address is the name of a generic pool.
    is_name: bool,
    reply: Option<Reply<'a>>,
    reason: Option<&'a Reason>,
}

impl<'a> Extra<'a> {
    /// `serverHost`, `serverPort` and `poolName`.
    fn names(&self) -> (Option<&'a str>, Option<u64>, Option<&'a str>) {
        if self.is_name {
            return (None, None, self.address);
        }
        let (host, port) = host_and_port(self.address);
        (host, port, None)
    }
}

/// A reply in the form in which it is logged.
enum Reply<'a> {
    Document(Truncated<RelaxedJson<'a>>),
    Text(&'a str),
}

impl fmt::Display for Reply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Document(document) => document.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// `serverHost` and `serverPort` of an address.
fn host_and_port(address: Option<&str>) -> (Option<&str>, Option<u64>) {
    host_and_port_or(address, HostAddress::PORT_DEFAULT)
}

/// - `port_default`: the port of an address without one.
fn host_and_port_or(address: Option<&str>, port_default: u16) -> (Option<&str>, Option<u64>) {
    match address.and_then(|address| HostAddress::parse_with_port(address, port_default)) {
        None => (None, None),
        Some(HostAddress::Tcp { host, port }) => (Some(host), Some(u64::from(port))),
        Some(HostAddress::Unix(path)) => (Some(path), None),
    }
}

const fn closed_reason(reason: poolhouse_core::pool::ClosedReason) -> &'static str {
    use poolhouse_core::pool::ClosedReason;
    match reason {
        ClosedReason::Stale => "Connection became stale because the pool was cleared",
        ClosedReason::Idle => "Connection has been available but unused for longer than the configured max idle time",
        ClosedReason::Error => "An error occurred while using the connection",
        ClosedReason::PoolClosed => "Connection pool was closed",
    }
}

const fn failed_reason(reason: poolhouse_core::pool::CheckOutFailedReason) -> &'static str {
    use poolhouse_core::pool::CheckOutFailedReason;
    match reason {
        CheckOutFailedReason::PoolClosed => "Connection pool was closed",
        CheckOutFailedReason::Timeout => "Wait queue timeout elapsed without a connection becoming available",
        CheckOutFailedReason::ConnectionError => "An error occurred while trying to establish a new connection",
    }
}

/// The error of a failed check-out, if it adds to the reason.
fn failed_error(
    reason: poolhouse_core::pool::CheckOutFailedReason,
    error: &poolhouse_core::pool::CheckOutError,
) -> Option<&poolhouse_core::pool::CheckOutError> {
    (reason == poolhouse_core::pool::CheckOutFailedReason::ConnectionError).then_some(error)
}

/// A cause and its underlying reason.
struct Failure<'a>(poolhouse_core::Cause, Option<&'a Reason>);

impl fmt::Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        self.1.map_or(Ok(()), |reason| append(reason, f))
    }
}

/// Limit in bytes on the text of a reason: it may be the error of an application, with the text of a server.
const REASON_BYTES_MAX: usize = 512;

/// The text of a reason, on one line.
struct Shown<'a>(&'a Reason);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        OneLine(&Truncated::new(self.0, REASON_BYTES_MAX).to_string()).fmt(f)
    }
}

/// Writes ": " and the text of a reason, if there is one.
fn append(reason: &Reason, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if reason.is_none() { Ok(()) } else { write!(f, ": {}", Shown(reason)) }
}

/// Milliseconds with at most three decimals.
fn millis(duration: core::time::Duration) -> f64 {
    // The quotient is the float nearest to the decimal fraction, so it is printed as that fraction.
    duration.saturating_add(core::time::Duration::from_nanos(500)).as_micros() as f64 / 1000.0
}

/// Limit in bytes on a name or a reason that is logged: the longest name in the DNS.
const NAME_BYTES_MAX: usize = 253;

/// A name chosen by a peer, escaped to one line.
struct Name<'a>(&'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Truncated::new(self.0.escape_debug(), NAME_BYTES_MAX).fmt(f)
    }
}
