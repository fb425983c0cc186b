//! The options of a session.

use super::{NodeStatus, RetryPolicy};
#[cfg(feature = "tracing")]
use crate::log::LogOptions;
#[cfg(feature = "tracing")]
use crate::spans::TracingOptions;
#[cfg(feature = "tls")]
use crate::tls::TlsOptions;
use crate::{Error, OptionError};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use poolhouse_core::ConfigError;
use poolhouse_core::HostAddress;
use poolhouse_core::cluster::ClusterOptions;
use poolhouse_core::mux::{Distance, MuxOptions};
use poolhouse_cql::{Compression, Consistency, Limits, Version, is_keyspace_name};
use poolhouse_uri::Secret;
use poolhouse_uri::dns::Resolver;
use poolhouse_wire::peer_text;

/// The port of a host address without a port.
pub const PORT_DEFAULT: u16 = 9042;

/// How long new connections to a host try an older protocol version first, after the host refused a
/// newer one. After that time, [`SessionOptions::version`] is tried first again.
///
/// Without TLS, an attacker on the network path can forge that refusal, which disables the
/// checksums of v5. This time limits the effect of such a refusal, which also concerns one host
/// only.
pub const LOWER_VERSION_FOR: Duration = Duration::from_secs(600);

/// Limit on the number of hosts; larger than any cluster.
const HOSTS_MAX: usize = 4096;

/// The rule for the name of a keyspace: a phrase that follows "must".
pub(super) const KEYSPACE_RULE: &str = "be 1 to 48 ASCII letters, digits and underscores";

/// The STARTUP options that the session itself sets.
const OWN_STARTUP_OPTIONS: [&str; 4] = ["COMPRESSION", "CQL_VERSION", "DRIVER_NAME", "DRIVER_VERSION"];

/// Limit in bytes on the STARTUP options of the user; larger than any use of them.
const STARTUP_BYTES_MAX: usize = 32_768;

/// Address and distance of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CqlHost {
    /// `host`, `host:port`, `[ipv6]:port`, or the path of a Unix domain socket. Default port 9042.
    pub address: String,
    /// Selects the pool options of the host and its position in the query plan.
    pub distance: Distance,
}

impl CqlHost {
    /// Creates a local host.
    #[must_use]
    pub fn local(address: impl Into<String>) -> Self {
        Self { address: address.into(), distance: Distance::Local }
    }

    /// Creates a remote host: it receives requests only when no local host takes them.
    #[must_use]
    pub fn remote(address: impl Into<String>) -> Self {
        Self { address: address.into(), distance: Distance::Remote }
    }
}

/// User name and password for Cassandra's PasswordAuthenticator. Without TLS they are sent
/// unencrypted: an attacker on the network path can read them.
#[derive(Clone, PartialEq, Eq)]
pub struct CqlCredential {
    /// The user.
    pub username: String,
    /// The password.
    pub password: Secret,
}

impl fmt::Debug for CqlCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CqlCredential([redacted])")
    }
}

/// The default of [`SessionOptions::connect_timeout`].
pub(super) const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// Whether a session uses a node: [`SessionOptions::host_filter`](SessionOptions#structfield.host_filter).
pub type HostFilter = dyn Fn(&NodeStatus) -> bool + Send + Sync;

/// Translates the address of a node:
/// [`SessionOptions::address_translator`](SessionOptions#structfield.address_translator).
pub type AddressTranslator = dyn Fn(SocketAddr) -> SocketAddr + Send + Sync;

/// The options of a [`Session`](super::Session).
#[derive(Clone)]
#[non_exhaustive]
pub struct SessionOptions {
    /// The servers; at least one, each address once. With `discovers_hosts`: the contact points.
    pub hosts: Vec<CqlHost>,
    /// Whether the session finds the nodes of the cluster, and uses `hosts` only until then. Default
    /// false; true in the options of [`SessionOptions::contact_points`].
    pub discovers_hosts: bool,
    /// The data centre whose nodes are local, with `discovers_hosts`. Default `None`: all nodes are
    /// local.
    pub local_data_center: Option<String>,
    /// The number of nodes in each other data centre that receive the requests which no local node
    /// takes, with `discovers_hosts`. Default 0.
    pub remote_hosts: usize,
    /// When the tables of nodes are read, with `discovers_hosts`.
    pub cluster: ClusterOptions,
    /// Whether each node is reached at the port that the tables name, with `discovers_hosts`. Default false: at
    /// the port of the contact point. Enable it if nodes listen on different ports of one address: otherwise all but
    /// one of them are ignored, which [`ClusterEvent::RowsIgnored`](super::ClusterEvent::RowsIgnored) and
    /// [`ClusterStatus::ignored_rows`](super::ClusterStatus#structfield.ignored_rows) report.
    pub node_ports: bool,
    /// Selects the nodes that the session uses, with `discovers_hosts`: no connection is opened to those for
    /// which it returns false or panics, apart from the contact points. Default `None`: all.
    pub host_filter: Option<Arc<HostFilter>>,
    /// Returns the address at which the session reaches a node, for the address that the node has in the tables,
    /// with `discovers_hosts`. It is called at each reading, and must return the same each time. Of nodes with the
    /// same translated address, all but one are ignored, as is a node for which it panics:
    /// [`ClusterStatus::ignored_rows`](super::ClusterStatus#structfield.ignored_rows). Default `None`: the same
    /// address.
    pub address_translator: Option<Arc<AddressTranslator>>,
    /// Options of the pools. `distance` is replaced by that of each host.
    pub mux: MuxOptions,
    /// The newest version of the protocol to try. If a server does not support it, older versions
    /// are tried, down to v3. For [`LOWER_VERSION_FOR`], new connections to that server begin with
    /// the version that it supports; then they try this one again. Default v5.
    pub version: Version,
    /// Compressions in order of preference. Those that the server, this build or the version does
    /// not support are skipped. Default none.
    pub compressions: Vec<Compression>,
    /// User name and password. Default none.
    pub credential: Option<CqlCredential>,
    /// Limit on the time to establish a connection: name resolution, connect, TLS and handshake;
    /// `None` is no limit, except for the control connection of `discovers_hosts`, which is opened to
    /// another node after the default. Default 5 s.
    pub connect_timeout: Option<Duration>,
    /// Limit on the time of a request, including all waiting; `None` is no limit. Default 12 s.
    pub request_timeout: Option<Duration>,
    /// Whether requests are sent again after errors of servers. Default [`RetryPolicy::Default`].
    pub retry: RetryPolicy,
    /// The number of replicas that must answer, unless a call names another. Default
    /// [`Consistency::LocalQuorum`].
    pub consistency: Consistency,
    /// Limit on the time for which a statement that has changed the schema waits until all hosts have the new
    /// one: [`Session::schema_agreement`](super::Session::schema_agreement). `None`: it does not wait.
    /// Default 10 s.
    pub schema_agreement: Option<Duration>,
    /// Limit on the number of prepared statements that the session keeps for texts with values:
    /// [`Session::query`](super::Session::query). Beyond it, the one that was not used for the longest time is
    /// forgotten. One that the server describes by more than 1 MiB is not kept. Default 1,000.
    pub statements_max: usize,
    /// Limit on the body of a received or sent envelope, in bytes. Default 256 MiB, the protocol's
    /// own limit.
    pub body_bytes_max: u32,
    /// Further options of STARTUP, in addition to the driver's name and version, such as
    /// `APPLICATION_NAME`. At most 32,768 bytes.
    pub startup_options: Vec<(String, String)>,
    /// The keyspace of statements that name none: 1 to 48 ASCII letters, digits and underscores, in the
    /// case in which the server stores them. No connection for requests is established while it does
    /// not exist. [`Session::use_keyspace`](super::Session::use_keyspace) changes it. Default none.
    pub keyspace: Option<String>,
    /// Encryption of TCP connections. Default none.
    #[cfg(feature = "tls")]
    pub tls: Option<TlsOptions>,
    /// What is logged, and the time from which a request is slow. Default all; no time.
    #[cfg(feature = "tracing")]
    pub log: LogOptions,
    /// Whether requests have spans. Default none.
    #[cfg(feature = "tracing")]
    pub tracing: TracingOptions,
    /// Resolves the names of hosts. The platform resolves the names for which it returns `None`.
    /// Default: the platform resolves all names.
    pub resolver: Option<Arc<dyn Resolver>>,
}

impl SessionOptions {
    /// Creates the default options with these local hosts.
    #[must_use]
    pub fn new<H: Into<String>>(hosts: impl IntoIterator<Item = H>) -> Self {
        Self {
            hosts: hosts.into_iter().map(CqlHost::local).collect(),
            discovers_hosts: false,
            local_data_center: None,
            remote_hosts: 0,
            cluster: ClusterOptions::DEFAULT,
            node_ports: false,
            host_filter: None,
            address_translator: None,
            mux: MuxOptions::DEFAULT,
            version: Version::NEWEST,
            compressions: Vec::new(),
            credential: None,
            connect_timeout: Some(CONNECT_TIMEOUT_DEFAULT),
            request_timeout: Some(Duration::from_secs(12)),
            retry: RetryPolicy::Default,
            consistency: Consistency::LocalQuorum,
            schema_agreement: Some(Duration::from_secs(10)),
            statements_max: 1_000,
            body_bytes_max: Limits::DEFAULT.body_bytes_max,
            startup_options: Vec::new(),
            keyspace: None,
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(feature = "tracing")]
            log: LogOptions::DEFAULT,
            #[cfg(feature = "tracing")]
            tracing: TracingOptions::DEFAULT,
            resolver: None,
        }
    }

    /// Creates the default options of a session that finds the nodes of the cluster to which these
    /// hosts belong.
    #[must_use]
    pub fn contact_points<H: Into<String>>(hosts: impl IntoIterator<Item = H>) -> Self {
        // A node has the same address as its contact point, if possible: then its pool is kept.
        let hosts = hosts.into_iter().map(|host| {
            let text = host.into();
            let socket = socket_address(&text).filter(|socket| !socket.ip().is_unspecified());
            socket.map_or(text, |socket| socket.to_string())
        });
        Self { discovers_hosts: true, ..Self::new(hosts) }
    }

    /// Sets the data centre whose nodes are local, for a session that finds its hosts.
    #[must_use]
    pub fn local_data_center(self, name: impl Into<String>) -> Self {
        Self { local_data_center: Some(name.into()), ..self }
    }

    /// Sets the number of nodes that are used in each other data centre.
    #[must_use]
    pub fn remote_hosts(self, count: usize) -> Self {
        Self { remote_hosts: count, ..self }
    }

    /// Sets whether each node is reached at the port that the tables name, instead of that of the contact point.
    #[must_use]
    pub fn node_ports(self, enabled: bool) -> Self {
        Self { node_ports: enabled, ..self }
    }

    /// Sets which nodes the session uses: those for which `filter` returns true.
    #[must_use]
    pub fn host_filter(self, filter: impl Fn(&NodeStatus) -> bool + Send + Sync + 'static) -> Self {
        Self { host_filter: Some(Arc::new(filter)), ..self }
    }

    /// Sets how the address of a node is translated: see
    /// [`SessionOptions::address_translator`](#structfield.address_translator).
    #[must_use]
    pub fn address_translator(self, translate: impl Fn(SocketAddr) -> SocketAddr + Send + Sync + 'static) -> Self {
        Self { address_translator: Some(Arc::new(translate)), ..self }
    }

    /// Adds a remote host.
    #[must_use]
    pub fn remote_host(mut self, address: impl Into<String>) -> Self {
        self.hosts.push(CqlHost::remote(address));
        self
    }

    /// Sets the options of the pools.
    #[must_use]
    pub fn mux(self, mux: MuxOptions) -> Self {
        Self { mux, ..self }
    }

    /// Sets the newest version.
    #[must_use]
    pub fn version(self, version: Version) -> Self {
        Self { version, ..self }
    }

    /// Sets the compressions, in order of preference.
    #[must_use]
    pub fn compressions(self, compressions: impl Into<Vec<Compression>>) -> Self {
        Self { compressions: compressions.into(), ..self }
    }

    /// Sets the user name and the password.
    #[must_use]
    pub fn credential(self, username: impl Into<String>, password: impl Into<String>) -> Self {
        let credential = CqlCredential { username: username.into(), password: Secret::new(password.into()) };
        Self { credential: Some(credential), ..self }
    }

    /// Sets the limit on the time to establish a connection; `None` is no limit.
    #[must_use]
    pub fn connect_timeout(self, limit: impl Into<Option<Duration>>) -> Self {
        Self { connect_timeout: limit.into(), ..self }
    }

    /// Sets the limit on the time of a request; `None` is no limit.
    #[must_use]
    pub fn request_timeout(self, limit: impl Into<Option<Duration>>) -> Self {
        Self { request_timeout: limit.into(), ..self }
    }

    /// Sets whether requests are sent again after errors of servers.
    #[must_use]
    pub fn retry(self, policy: RetryPolicy) -> Self {
        Self { retry: policy, ..self }
    }

    /// Sets the number of replicas that must answer, unless a call names another.
    #[must_use]
    pub fn consistency(self, consistency: Consistency) -> Self {
        Self { consistency, ..self }
    }

    /// Sets the limit on the time for which a statement that has changed the schema waits for the hosts;
    /// `None`: it does not wait.
    #[must_use]
    pub fn schema_agreement(self, limit: impl Into<Option<Duration>>) -> Self {
        Self { schema_agreement: limit.into(), ..self }
    }

    /// Sets the limit on the number of prepared statements that are kept for texts with values.
    #[must_use]
    pub fn statements_max(self, count: usize) -> Self {
        Self { statements_max: count, ..self }
    }

    /// Sets the keyspace of statements that name none.
    #[must_use]
    pub fn keyspace(self, name: impl Into<String>) -> Self {
        Self { keyspace: Some(name.into()), ..self }
    }

    /// Enables TLS.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(self, tls: TlsOptions) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Sets what is logged, and the time from which a request is slow.
    #[cfg(feature = "tracing")]
    #[must_use]
    pub fn log(self, log: LogOptions) -> Self {
        Self { log, ..self }
    }

    /// Sets whether requests have spans.
    #[cfg(feature = "tracing")]
    #[must_use]
    pub fn tracing(self, tracing: TracingOptions) -> Self {
        Self { tracing, ..self }
    }

    /// Checks the options as [`Session::new`](super::Session::new) does, and starts nothing. Does
    /// not read TLS files.
    ///
    /// # Errors
    ///
    /// [`SetupError::Config`](crate::SetupError::Config) and
    /// [`SetupError::Option`](crate::SetupError::Option) name the option, its value and the rule;
    /// with the feature `tls`, `SetupError::Tls`.
    pub fn validate(&self) -> Result<(), Error> {
        MuxOptions { distance: Distance::Local, ..self.mux }.validate()?;
        self.cluster.validate()?;
        check_hosts(&self.hosts)?;
        if self.connect_timeout == Some(Duration::ZERO) {
            return Err(ConfigError::new("connectTimeoutMS", 0, "be more than 0; None is no limit").into());
        }
        if self.request_timeout == Some(Duration::ZERO) {
            return Err(ConfigError::new("requestTimeoutMS", 0, "be more than 0; None is no limit").into());
        }
        let bytes_max = u64::from(Limits::DEFAULT.body_bytes_max);
        if self.body_bytes_max == 0 || u64::from(self.body_bytes_max) > bytes_max {
            return Err(ConfigError::new("bodyBytesMax", self.body_bytes_max.into(), "be from 1 to 268435456").into());
        }
        self.check_startup()?;
        if let Some(name) = self.keyspace.as_deref().filter(|name| !is_keyspace_name(name)) {
            return Err(OptionError::new("keyspace", name, KEYSPACE_RULE).into());
        }
        #[cfg(feature = "tls")]
        self.tls.as_ref().map_or(Ok(()), TlsOptions::check)?;
        Ok(())
    }

    /// Prepares a server's text for an error: one line; empty if the text contains the password.
    pub(super) fn shown(&self, text: &str) -> String {
        let is_told = self.credential.as_ref().is_some_and(|who| peer_text::reveals(text, who.password.expose()));
        if is_told { String::new() } else { peer_text::one_line(text).collect() }
    }

    fn check_startup(&self) -> Result<(), Error> {
        let mut bytes = 0;
        for (name, value) in &self.startup_options {
            if OWN_STARTUP_OPTIONS.contains(&name.as_str()) {
                return Err(OptionError::new("startupOptions", name, "not be an option that the session sets").into());
            }
            bytes += name.len() + value.len() + 4;
        }
        if bytes > STARTUP_BYTES_MAX {
            return Err(OptionError::new("startupOptions", "[too long]", "be at most 32768 bytes long in all").into());
        }
        Ok(())
    }

    pub(super) const fn limits(&self) -> Limits {
        Limits { body_bytes_max: self.body_bytes_max }
    }
}

/// The socket address that a host's address names without a name to resolve. The IP address is
/// unspecified if there is a name.
pub(super) fn socket_address(address: &str) -> Option<SocketAddr> {
    match HostAddress::parse_with_port(address, PORT_DEFAULT)? {
        HostAddress::Tcp { host, port } => {
            Some(SocketAddr::new(host.parse().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), port))
        }
        HostAddress::Unix(_) => None,
    }
}

/// Checks that there are hosts, that each address is valid, and that none is repeated.
pub(super) fn check_hosts(hosts: &[CqlHost]) -> Result<(), Error> {
    if hosts.is_empty() || hosts.len() > HOSTS_MAX {
        let count = u64::try_from(hosts.len()).unwrap_or(u64::MAX);
        return Err(ConfigError::new("hosts", count, "be from 1 to 4096").into());
    }
    let mut places = Vec::with_capacity(hosts.len());
    for host in hosts {
        match HostAddress::parse_with_port(&host.address, PORT_DEFAULT) {
            Some(HostAddress::Tcp { host: name, port }) => places.push((name, port, host.address.as_str())),
            Some(HostAddress::Unix(path)) => places.push((path, 0, host.address.as_str())),
            None => {
                let rule = "be host, host:port, [ipv6]:port, or the path of a unix socket";
                // A user may have passed a whole connection string, which may contain a password.
                let shown = if host.address.contains('@') { "[redacted]" } else { &host.address };
                return Err(OptionError::new("hosts", shown, rule).into());
            }
        }
    }
    places.sort_unstable();
    for pair in places.windows(2) {
        if let [(one, port, _), (other, other_port, address)] = *pair {
            if (one, port) == (other, other_port) {
                return Err(OptionError::new("hosts", address, "be listed once").into());
            }
        }
    }
    Ok(())
}

impl fmt::Debug for SessionOptions {
    /// Omits options that may contain secrets, and the content of functions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionOptions")
            .field("hosts", &self.hosts)
            .field("discovers_hosts", &self.discovers_hosts)
            .field("local_data_center", &self.local_data_center)
            .field("node_ports", &self.node_ports)
            .field("host_filter", &self.host_filter.is_some())
            .field("address_translator", &self.address_translator.is_some())
            .field("keyspace", &self.keyspace)
            .field("mux", &self.mux)
            .field("version", &self.version)
            .field("compressions", &self.compressions)
            .field("credential", &self.credential)
            .field("connect_timeout", &self.connect_timeout)
            .field("request_timeout", &self.request_timeout)
            .field("retry", &self.retry)
            .field("consistency", &self.consistency)
            .field("schema_agreement", &self.schema_agreement)
            .finish_non_exhaustive()
    }
}
