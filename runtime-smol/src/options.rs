//! What a client is told.

use crate::Error;
use core::time::Duration;
use poolhouse_core::ConfigError;
use poolhouse_core::monitor::MonitorOptions;
use poolhouse_core::pool::PoolOptions;
use poolhouse_core::shell::Endpoint;

/// The options of a [`Client`](crate::Client). Checked when the client is made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// The server: `host`, `host:port`, `[ipv6]:port`, or the path of a Unix domain socket.
    pub address: String,
    /// `appName`: what the server's logs call this client; at most 128 bytes.
    pub app_name: Option<String>,
    /// The options of the pool.
    pub pool: PoolOptions,
    /// The options of the monitor. Its `connect_timeout` is the pool's connections' too.
    pub monitor: MonitorOptions,
    /// `serverSelectionTimeoutMS`: how long an operation waits for the server to be there. Default 30 s.
    pub server_selection_timeout: Duration,
    /// `timeoutMS`: how long an operation may take in all, unless it says otherwise; `None` is for ever.
    pub timeout: Option<Duration>,
}

impl ClientOptions {
    /// The defaults, for the server at this address.
    #[must_use]
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            app_name: None,
            pool: PoolOptions::DEFAULT,
            monitor: MonitorOptions::DEFAULT,
            server_selection_timeout: Duration::from_secs(30),
            timeout: None,
        }
    }

    /// The defaults, for the server of a connection string of the plainest form: `mongodb://host[:port]`.
    ///
    /// # Errors
    ///
    /// [`Error::Uri`] for anything else: credentials, several hosts and options in the string are not implemented
    /// yet and refused, so that nothing is silently left out.
    pub fn parse(uri: &str) -> Result<Self, Error> {
        let rest = uri.strip_prefix("mongodb://").ok_or(Error::Uri("it does not begin with mongodb://"))?;
        let (hosts, options) = rest.split_once('/').unwrap_or((rest, ""));
        if hosts.contains('@') {
            return Err(Error::Uri("credentials are not implemented"));
        }
        if hosts.contains(',') {
            return Err(Error::Uri("more than one host is not implemented"));
        }
        if !options.trim_start_matches('?').is_empty() {
            return Err(Error::Uri("a database and options are not implemented"));
        }
        let address = if hosts.to_ascii_lowercase().ends_with(".sock") {
            hosts.replace("%2F", "/").replace("%2f", "/")
        } else {
            hosts.to_owned()
        };
        match Endpoint::parse(&address) {
            Some(_) => Ok(Self::new(address)),
            None => Err(Error::Uri("the host is no address")),
        }
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}
