//! What a client is told.

use crate::Error;
use core::time::Duration;
use poolhouse_core::ConfigError;
use poolhouse_core::monitor::MonitorOptions;
use poolhouse_core::pool::PoolOptions;
use poolhouse_core::selection::{LOCAL_THRESHOLD, ReadPreference, SERVER_SELECTION_TIMEOUT};

/// The options of a [`Client`](crate::Client). Checked when the client is made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// The servers to begin with: `host`, `host:port`, `[ipv6]:port`, or the path of a Unix domain socket. One of a replica set
    /// will do, the others are found.
    pub hosts: Vec<String>,
    /// `replicaSet`: the name that the set must have.
    pub replica_set: Option<String>,
    /// `directConnection`: speak to the one host whatever it is, and look for no others. Default false.
    pub direct_connection: bool,
    /// `appName`: what the server's logs call this client; at most 128 bytes.
    pub app_name: Option<String>,
    /// The options of every pool.
    pub pool: PoolOptions,
    /// The options of every monitor. Its `connect_timeout` is the pools' connections' too.
    pub monitor: MonitorOptions,
    /// `serverSelectionTimeoutMS`: how long an operation waits for a server that suits it. Default 30 s.
    pub server_selection_timeout: Duration,
    /// `localThresholdMS`: how much slower than the nearest a server may be to be chosen. Default 15 ms.
    pub local_threshold: Duration,
    /// `timeoutMS`: how long an operation may take in all, unless it says otherwise; `None` is for ever.
    pub timeout: Option<Duration>,
}

impl ClientOptions {
    /// The defaults, for the server at this address.
    #[must_use]
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            hosts: vec![address.into()],
            replica_set: None,
            direct_connection: false,
            app_name: None,
            pool: PoolOptions::DEFAULT,
            monitor: MonitorOptions::DEFAULT,
            server_selection_timeout: SERVER_SELECTION_TIMEOUT,
            local_threshold: LOCAL_THRESHOLD,
            timeout: None,
        }
    }

    /// The defaults, for the servers of a plain connection string: `mongodb://host[:port][,host..][/][?replicaSet=..][&directConnection=..]`.
    ///
    /// # Errors
    ///
    /// [`Error::Uri`] for anything else: credentials and further options in the string are not implemented
    /// yet and refused, so that nothing is silently left out.
    pub fn parse(uri: &str) -> Result<Self, Error> {
        let rest = uri.strip_prefix("mongodb://").ok_or(Error::Uri("it does not begin with mongodb://"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
        if hosts.contains('@') {
            return Err(Error::Uri("credentials are not implemented"));
        }
        if !database.is_empty() {
            return Err(Error::Uri("a database in it is not implemented"));
        }
        let mut options = Self::new("");
        options.hosts = hosts
            .split(',')
            .map(|host| {
                let is_socket = host.to_ascii_lowercase().ends_with(".sock");
                if is_socket { host.replace("%2F", "/").replace("%2f", "/") } else { host.to_owned() }
            })
            .collect();
        if options.hosts.iter().any(|host| host.is_empty() || host.starts_with(':')) {
            return Err(Error::Uri("a host in it is empty"));
        }
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some((name, value)) if name.eq_ignore_ascii_case("replicaSet") && !value.is_empty() => {
                    options.replica_set = Some(value.to_owned());
                }
                Some((name, value)) if name.eq_ignore_ascii_case("directConnection") => {
                    options.direct_connection = match value {
                        "true" => true,
                        "false" => false,
                        _ => return Err(Error::Uri("directConnection is neither true nor false")),
                    };
                }
                _ => return Err(Error::Uri("an option other than replicaSet and directConnection is not implemented")),
            }
        }
        Ok(options)
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

/// How one command is run. The default: on a server that accepts writes, in the client's time, and again only if it was never sent.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct CommandOptions<'a> {
    /// Which members of a replica set may answer; `None` is the one that accepts writes.
    pub read_preference: Option<ReadPreference<'a>>,
    /// How long it may take in all, instead of what the client's options say.
    pub timeout: Option<Duration>,
    /// Whether it does no harm to run the command twice: then it is run once more, preferably on another server, after a network error, an interruption
    /// or a change of the server's state too, and not only when it was certainly never sent. Default false.
    pub repeatable: bool,
}

impl<'a> CommandOptions<'a> {
    /// The default.
    #[must_use]
    pub const fn new() -> Self {
        Self { read_preference: None, timeout: None, repeatable: false }
    }

    /// With a read preference.
    #[must_use]
    pub const fn with_read_preference(self, read_preference: ReadPreference<'a>) -> Self {
        Self { read_preference: Some(read_preference), ..self }
    }

    /// With a time limit of its own.
    #[must_use]
    pub const fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// For a command that may be run twice.
    #[must_use]
    pub const fn repeatable(self) -> Self {
        Self { repeatable: true, ..self }
    }
}
