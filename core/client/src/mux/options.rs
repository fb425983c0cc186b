//! What a session is told before it starts.

#[cfg(feature = "tls")]
use crate::tls::TlsOptions;
use crate::{Error, OptionError};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use poolhouse_core::ConfigError;
use poolhouse_core::HostAddress;
use poolhouse_core::mux::{Distance, MuxConfig, MuxOptions};
use poolhouse_cql::{Compression, Limits, Version};
use poolhouse_uri::Secret;
use poolhouse_uri::dns::Resolver;
use poolhouse_wire::peer_text;

/// The port of a host that names none.
pub const PORT_DEFAULT: u16 = 9042;

/// How long a host is spoken to in an older version of the protocol after it refused a newer one; then [`SessionOptions::version`] is tried again.
///
/// Without TLS, an attacker on the path can forge that refusal, to take away the checksums of v5: with a limit only for so long, and for one host.
pub const LOWER_VERSION_FOR: Duration = Duration::from_secs(600);

/// More than this is more than any cluster has.
const HOSTS_MAX: usize = 4096;

/// What a session says in STARTUP by itself.
const OWN_STARTUP_OPTIONS: [&str; 4] = ["COMPRESSION", "CQL_VERSION", "DRIVER_NAME", "DRIVER_VERSION"];

/// More than this is more than anybody has to say.
const STARTUP_BYTES_MAX: usize = 32_768;

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CqlHost {
    /// `host`, `host:port`, `[ipv6]:port`, or the path of a Unix domain socket. Without a port it is 9042.
    pub address: String,
    /// How far away it is: which of the options it gets, and when its turn is.
    pub distance: Distance,
}

impl CqlHost {
    /// A host that is near.
    #[must_use]
    pub fn local(address: impl Into<String>) -> Self {
        Self { address: address.into(), distance: Distance::Local }
    }

    /// A host that is farther away: it has requests when no near one takes them.
    #[must_use]
    pub fn remote(address: impl Into<String>) -> Self {
        Self { address: address.into(), distance: Distance::Remote }
    }
}

/// Who is calling, for Cassandra's PasswordAuthenticator. It is sent as it is: without TLS whoever is on the way can read it.
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

/// The options of a [`Session`](super::Session).
#[derive(Clone)]
#[non_exhaustive]
pub struct SessionOptions {
    /// The servers; one at least. Each address once.
    pub hosts: Vec<CqlHost>,
    /// Of the pools. Their distance is that of each host.
    pub mux: MuxOptions,
    /// The newest version of the protocol to speak. A server that does not speak it is asked for an older one, down to v3, for
    /// [`LOWER_VERSION_FOR`]; then new connections to it try this one again. Default v5.
    pub version: Version,
    /// What to compress by, the best first. Those that a server, this build or the version does not have are passed over. Default none.
    pub compressions: Vec<Compression>,
    /// Who is calling. Default nobody.
    pub credential: Option<CqlCredential>,
    /// How long it may take to establish a connection: to resolve the host's name, to connect, TLS, handshake. Default 5 s.
    pub connect_timeout: Duration,
    /// How long a request may take, with all that it waits for; `None` is no limit. Default 12 s.
    pub request_timeout: Option<Duration>,
    /// The longest body that is taken or sent, in bytes. Default 256 MiB, the protocol's own limit.
    pub body_bytes_max: u32,
    /// What servers are told besides the driver's name and version: options of STARTUP, such as `APPLICATION_NAME`. At most 32,768 bytes.
    pub startup_options: Vec<(String, String)>,
    /// How TCP connections are encrypted. Default not.
    #[cfg(feature = "tls")]
    pub tls: Option<TlsOptions>,
    /// Who resolves the names of hosts, as far as it does. Default the platform.
    pub resolver: Option<Arc<dyn Resolver>>,
}

impl SessionOptions {
    /// The defaults for these hosts, which are near.
    #[must_use]
    pub fn new<H: Into<String>>(hosts: impl IntoIterator<Item = H>) -> Self {
        Self {
            hosts: hosts.into_iter().map(CqlHost::local).collect(),
            mux: MuxOptions::DEFAULT,
            version: Version::NEWEST,
            compressions: Vec::new(),
            credential: None,
            connect_timeout: Duration::from_secs(5),
            request_timeout: Some(Duration::from_secs(12)),
            body_bytes_max: Limits::DEFAULT.body_bytes_max,
            startup_options: Vec::new(),
            #[cfg(feature = "tls")]
            tls: None,
            resolver: None,
        }
    }

    /// With a host that is farther away.
    #[must_use]
    pub fn remote_host(mut self, address: impl Into<String>) -> Self {
        self.hosts.push(CqlHost::remote(address));
        self
    }

    /// With other options of the pools.
    #[must_use]
    pub fn mux(self, mux: MuxOptions) -> Self {
        Self { mux, ..self }
    }

    /// With another newest version.
    #[must_use]
    pub fn version(self, version: Version) -> Self {
        Self { version, ..self }
    }

    /// With compression, the best first.
    #[must_use]
    pub fn compressions(self, compressions: impl Into<Vec<Compression>>) -> Self {
        Self { compressions: compressions.into(), ..self }
    }

    /// With a user name and a password.
    #[must_use]
    pub fn credential(self, username: impl Into<String>, password: impl Into<String>) -> Self {
        let credential = CqlCredential { username: username.into(), password: Secret::new(password.into()) };
        Self { credential: Some(credential), ..self }
    }

    /// With another time to establish a connection.
    #[must_use]
    pub fn connect_timeout(self, connect_timeout: Duration) -> Self {
        Self { connect_timeout, ..self }
    }

    /// With another time for a request; `None` is no limit.
    #[must_use]
    pub fn request_timeout(self, limit: impl Into<Option<Duration>>) -> Self {
        Self { request_timeout: limit.into(), ..self }
    }

    /// With TLS.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(self, tls: TlsOptions) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Checks what [`Session::new`](super::Session::new) checks, and starts nothing. Files of TLS are not looked at.
    ///
    /// # Errors
    ///
    /// [`SetupError::Config`](crate::SetupError::Config) and [`SetupError::Option`](crate::SetupError::Option) name the option, its value and the rule; with the feature `tls`, `SetupError::Tls`.
    pub fn validate(&self) -> Result<(), Error> {
        self.config(Distance::Local)?;
        check_hosts(&self.hosts)?;
        if self.connect_timeout.is_zero() {
            return Err(ConfigError::new("connectTimeoutMS", 0, "be more than 0").into());
        }
        if self.request_timeout == Some(Duration::ZERO) {
            return Err(ConfigError::new("requestTimeoutMS", 0, "be more than 0").into());
        }
        let bytes_max = u64::from(Limits::DEFAULT.body_bytes_max);
        if self.body_bytes_max == 0 || u64::from(self.body_bytes_max) > bytes_max {
            return Err(ConfigError::new("bodyBytesMax", self.body_bytes_max.into(), "be from 1 to 268435456").into());
        }
        self.check_startup()?;
        #[cfg(feature = "tls")]
        self.tls.as_ref().map_or(Ok(()), TlsOptions::check)?;
        Ok(())
    }

    /// A server's text, made fit for an error: empty if the password is in it.
    pub(super) fn shown(&self, text: &str) -> String {
        let is_told = self.credential.as_ref().is_some_and(|who| peer_text::reveals(text, who.password.expose()));
        if is_told { String::new() } else { peer_text::one_line(text).collect() }
    }

    fn check_startup(&self) -> Result<(), Error> {
        let mut bytes = 0;
        for (name, value) in &self.startup_options {
            if OWN_STARTUP_OPTIONS.contains(&name.as_str()) {
                return Err(OptionError::new("startupOptions", name, "leave that to the session").into());
            }
            bytes += name.len() + value.len() + 4;
        }
        if bytes > STARTUP_BYTES_MAX {
            return Err(OptionError::new("startupOptions", "[too long]", "be at most 32768 bytes long in all").into());
        }
        Ok(())
    }

    /// Those of a pool of a host that is as far away.
    pub(super) fn config(&self, distance: Distance) -> Result<MuxConfig, ConfigError> {
        MuxOptions { distance, ..self.mux }.validate()
    }

    pub(super) const fn limits(&self) -> Limits {
        Limits { body_bytes_max: self.body_bytes_max }
    }
}

/// Each is a host, and none is there twice.
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
                // Who gives a whole connection string may have given a password.
                let shown = if host.address.contains('@') { "[redacted]" } else { &host.address };
                return Err(OptionError::new("hosts", shown, rule).into());
            }
        }
    }
    places.sort_unstable();
    for pair in places.windows(2) {
        if let [(one, port, _), (other, other_port, address)] = *pair {
            if (one, port) == (other, other_port) {
                return Err(OptionError::new("hosts", address, "be there once").into());
            }
        }
    }
    Ok(())
}

impl fmt::Debug for SessionOptions {
    /// Without what may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionOptions")
            .field("hosts", &self.hosts)
            .field("mux", &self.mux)
            .field("version", &self.version)
            .field("compressions", &self.compressions)
            .field("credential", &self.credential)
            .field("connect_timeout", &self.connect_timeout)
            .field("request_timeout", &self.request_timeout)
            .finish_non_exhaustive()
    }
}
