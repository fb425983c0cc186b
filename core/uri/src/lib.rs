//! Connection strings: `mongodb://` and `mongodb+srv://`, with every option under its standard
//! name.
//!
//! Use it in a driver or a tool that reads connection strings. The clients of Poolhouse use it
//! already, in `ClientOptions::parse`.
//!
//! ```
//! use poolhouse_uri::ConnectionString;
//!
//! let uri = ConnectionString::parse("mongodb://ann:s3cret@db1.example.com,DB2.example.com:27018/shop?maxPoolSize=5&foo=1")?;
//! let seeds: Vec<&str> = uri.seeds().collect();
//! assert_eq!(seeds, ["db1.example.com", "db2.example.com:27018"]);
//! assert_eq!(uri.pool_options().max_pool_size, 5);
//! assert_eq!(uri.warnings()[0].to_string(), "foo: unknown option, ignored (at byte 78)");
//! assert_eq!(uri.to_string(), "mongodb://db1.example.com,db2.example.com:27018/shop?maxPoolSize=5");
//! # Ok::<(), poolhouse_uri::UriError>(())
//! ```
//!
//! Read next: [`ConnectionString`], and [`dns`] for `mongodb+srv://`. Specifications: Connection
//! String; URI Options; Driver Authentication, "Connection String Options"; Initial DNS Seedlist
//! Discovery, "Connection String Format" and "URI Validation".
//!
//! # Overview
//!
//! [`ConnectionString::parse`] splits a string, checks each part and the consistency of the
//! options, and stores the options as given: an absent option is `None`, and a method returns its
//! default. `mongodb+srv://` strings are only parsed; after the lookup,
//! [`ConnectionString::resolved`] adds the hosts and the options of the TXT record.
//!
//! # Errors and warnings
//!
//! As specified, an unknown option, or a value that is not allowed, is ignored with a warning; the
//! caller should write [`ConnectionString::warnings`] to the log. Errors are: a string that is not
//! a connection string, an invalid escape, contradictory options, credentials that cannot work, and
//! invalid values of TLS options. Errors and warnings contain no values, and no name of an unknown
//! option that may be a part of a password ([`UriWarning`]). `Debug` and `Display` show no
//! passwords, and passwords are overwritten in memory when they are dropped.
//!
//! # Cost
//!
//! Linear in the length of the string, which is not limited; uses about as much memory as the
//! string.
//!
//! # Decisions where the specifications are silent or disagree
//!
//! - If an option is repeated, its last allowed value counts. Repeated `tls` and `ssl` must agree,
//!   and proxy options must not be repeated.
//! - A percent sign that is not part of a valid escape is an error everywhere, not only in the
//!   username: it would be a surprise if a `proxyHost` or a `tlsCAFile` were ignored for that
//!   reason. An unknown `authMechanism` is an error too.
//! - An at-sign in the path or in an unknown option is an error: probably it ends a password in
//!   which a slash or a question mark was not escaped. A literal at-sign must be written `%40`.
//! - The old spellings of booleans (`1`, `yes`, `True`, ..) are accepted with a warning, except for
//!   `directConnection` and `loadBalanced`, for which they were never allowed.
//! - `MONGODB-AWS` takes no username, password or token from a connection string. Official tests
//!   from before that change disagree.
//! - A username without a password is allowed if no mechanism is named, although a server will
//!   reject it.
//! - The database may be a namespace (`db.collection`); a credential's source is the part before
//!   the first dot.
//! - `authSource` of a TXT record is ignored for users that do not belong to a database (X.509,
//!   AWS, OIDC, GSSAPI).
//! - A wrong value of `tls`, `ssl` or any option that begins with `tls` is an error: a client that
//!   ignored it would connect without TLS. Official tests of three of these options expect a
//!   warning.
//! - A negative `w` is an error, according to the tests of write concerns; a negative `wTimeoutMS`
//!   is ignored with a warning, according to those of options.
//! - Any option that begins with `tls` enables TLS unless `tls` is false, as `mongodb+srv://` does.
//! - A `serverSelectionTimeoutMS` of 0 is not allowed, and neither is a `maxStalenessSeconds` from
//!   0 to 89.
//! - `mongodb+srv://` requires a name, not an address; a trailing dot is removed.
//! - Semicolons separate options if there is no `&`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod check;
mod credential;
#[cfg(feature = "dns")]
pub mod dns;
mod error;
mod host;
mod options;
mod parse;
mod print;
mod secret;
#[cfg(test)]
mod tests;
mod text;
mod value;

pub use credential::{AuthMechanism, Credential};
pub use error::{UriError, UriErrorKind, UriWarning};
pub use host::{Host, HostKind};
pub use options::UriOptions;
pub use secret::Secret;
pub use value::{OptionValue, Pairs, W};

use alloc::string::String;
use alloc::vec::Vec;
use core::str::FromStr;
use core::time::Duration;
use poolhouse_core::monitor::MonitorOptions;
use poolhouse_core::pool::PoolOptions;
pub use poolhouse_core::selection::ReadMode;
use poolhouse_core::selection::{LOCAL_THRESHOLD, SERVER_SELECTION_TIMEOUT};
use poolhouse_core::topology::TopologyOptions;
pub use poolhouse_wire::compress::Compressor;

/// The scheme of a connection string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `mongodb://`: the string lists the hosts.
    Mongodb,
    /// `mongodb+srv://`: the hosts must be looked up with the single name.
    MongodbSrv,
}

/// A parsed connection string.
///
/// Two are equal if all parts are equal; warnings are not compared. `Display` prints it without
/// credentials, `Debug` without passwords.
#[derive(Clone, Debug)]
pub struct ConnectionString {
    scheme: Scheme,
    hosts: Vec<Host>,
    database: Option<String>,
    options: UriOptions,
    credential: Option<Credential>,
    warnings: Vec<UriWarning>,
    warnings_left_off: usize,
}

impl ConnectionString {
    /// Parses a connection string.
    ///
    /// Cost: linear in its length; allocates.
    ///
    /// # Errors
    ///
    /// [`UriError`] contains the rule, and the option or the offset.
    ///
    /// Source: Connection String, "Reference Implementation"; URI Options.
    pub fn parse(uri: &str) -> Result<Self, UriError> {
        parse::parse(uri)
    }

    /// The result of a lookup: a `mongodb://` string with these hosts, and with those options of
    /// the TXT record that the string itself does not contain. TLS is enabled unless `tls` is
    /// false; the `srv` options are removed.
    ///
    /// - `hosts`: the hosts found, validated and selected; see [`Host::tcp`].
    /// - `txt`: the joined strings of the TXT record. Its warnings are added; their offsets refer
    ///   to `txt`.
    ///
    /// # Errors
    ///
    /// [`UriError`]: no hosts; an option in the record that is malformed, or other than authSource,
    /// replicaSet and loadBalanced; options that are contradictory in combination.
    ///
    /// Source: Initial DNS Seedlist Discovery, "Default Connection String Options", "URI
    /// Validation".
    pub fn resolved(&self, hosts: Vec<Host>, txt: Option<&str>) -> Result<Self, UriError> {
        if hosts.is_empty() {
            return Err(UriError::at(UriErrorKind::NoHost, 0));
        }
        let mut uri = self.clone();
        if let Some(txt) = txt {
            parse::merge_txt(&mut uri, txt)?;
        }
        uri.hosts = hosts;
        check::values(uri.scheme, uri.hosts.len(), &uri.options)?;
        let user = self.credential.as_ref().and_then(Credential::user);
        let broken = self.credential.as_ref().is_some_and(Credential::lacks_properties);
        uri.credential = Credential::derive(user, uri.database.as_deref(), &uri.options, broken)?;
        uri.options.tls = Some(self.tls());
        uri.options.srv_max_hosts = None;
        uri.options.srv_service_name = None;
        uri.scheme = Scheme::Mongodb;
        Ok(uri)
    }

    /// The scheme.
    #[must_use]
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The hosts, in order; at least one. With [`Scheme::MongodbSrv`] the single name to look up.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The hosts in the form that [`TopologyOptions::seeds`] requires.
    pub fn seeds(&self) -> impl ExactSizeIterator<Item = &str> {
        self.hosts.iter().map(Host::as_str)
    }

    /// The part after the hosts: a database, or a namespace with dots. Without credentials it does
    /// not cause authentication.
    #[must_use]
    pub fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// The options as given in the string.
    #[must_use]
    pub const fn options(&self) -> &UriOptions {
        &self.options
    }

    /// The credential. `None` means no authentication.
    #[must_use]
    pub const fn credential(&self) -> Option<&Credential> {
        self.credential.as_ref()
    }

    /// The first hundred warnings, about ignored and deprecated parts, in the order of the string.
    #[must_use]
    pub fn warnings(&self) -> &[UriWarning] {
        &self.warnings
    }

    /// Number of further warnings.
    #[must_use]
    pub const fn warnings_left_off(&self) -> usize {
        self.warnings_left_off
    }

    /// The options of the client's pools. [`PoolOptions::validate`] always accepts them.
    #[must_use]
    pub fn pool_options(&self) -> PoolOptions {
        let default = PoolOptions::DEFAULT;
        PoolOptions {
            max_pool_size: self.options.max_pool_size.unwrap_or(default.max_pool_size),
            min_pool_size: self.options.min_pool_size.unwrap_or(default.min_pool_size),
            max_idle_time: limit(self.options.max_idle_time, default.max_idle_time),
            max_connecting: self.options.max_connecting.unwrap_or(default.max_connecting),
            wait_queue_timeout: limit(self.options.wait_queue_timeout, default.wait_queue_timeout),
            limits_establishing: default.limits_establishing,
            load_balanced: self.load_balanced(),
            reuse: default.reuse,
            background: default.background,
        }
    }

    /// The options of the client's monitors. [`MonitorOptions::validate`] always
    /// accepts them.
    #[must_use]
    pub fn monitor_options(&self) -> MonitorOptions {
        let default = MonitorOptions::DEFAULT;
        MonitorOptions {
            heartbeat_frequency: self.options.heartbeat_frequency.unwrap_or(default.heartbeat_frequency),
            connect_timeout: self.connect_timeout(),
            server_monitoring_mode: self.options.server_monitoring_mode.unwrap_or(default.server_monitoring_mode),
            is_faas: default.is_faas,
            server_api: default.server_api,
        }
    }

    /// The options of the client's topology; `seeds` must be the result of
    /// [`ConnectionString::seeds`].
    ///
    /// They are valid, except for a `mongodb+srv://` string, whose name is not a seed.
    #[must_use]
    pub fn topology_options<'a>(&'a self, seeds: &'a [&'a str]) -> TopologyOptions<'a> {
        TopologyOptions {
            seeds,
            replica_set: self.options.replica_set.as_deref(),
            direct_connection: self.options.direct_connection == Some(true),
            load_balanced: self.load_balanced(),
        }
    }

    /// Whether connections use TLS: the value of `tls` if present; otherwise true if the string
    /// begins with `mongodb+srv://` or has another option that begins with `tls`.
    #[must_use]
    pub fn tls(&self) -> bool {
        let implied = || self.options.iter().any(|(name, _)| name.starts_with("tls"));
        self.options.tls.unwrap_or_else(|| self.scheme == Scheme::MongodbSrv || implied())
    }

    /// `loadBalanced`; default false.
    #[must_use]
    pub fn load_balanced(&self) -> bool {
        self.options.load_balanced == Some(true)
    }

    /// `connectTimeoutMS`; `None` means no limit, default 10 s.
    #[must_use]
    pub fn connect_timeout(&self) -> Option<Duration> {
        limit(self.options.connect_timeout, MonitorOptions::DEFAULT.connect_timeout)
    }

    /// `timeoutMS`; `None` if it is absent, [`Duration::MAX`] if it is zero, which means no limit.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.options.timeout.map(|given| limit(Some(given), None).unwrap_or(Duration::MAX))
    }

    /// `socketTimeoutMS`; `None`, the default, means no limit.
    #[must_use]
    pub fn socket_timeout(&self) -> Option<Duration> {
        limit(self.options.socket_timeout, None)
    }

    /// `wTimeoutMS`; `None`, the default, means no limit.
    #[must_use]
    pub fn w_timeout(&self) -> Option<Duration> {
        limit(self.options.w_timeout, None)
    }

    /// `serverSelectionTimeoutMS`; default 30 s.
    #[must_use]
    pub fn server_selection_timeout(&self) -> Duration {
        self.options.server_selection_timeout.unwrap_or(SERVER_SELECTION_TIMEOUT)
    }

    /// `serverSelectionTryOnce`, for clients without monitors; default true.
    #[must_use]
    pub fn server_selection_try_once(&self) -> bool {
        self.options.server_selection_try_once.unwrap_or(true)
    }

    /// `localThresholdMS`; default 15 ms.
    #[must_use]
    pub fn local_threshold(&self) -> Duration {
        self.options.local_threshold.unwrap_or(LOCAL_THRESHOLD)
    }

    /// `readPreference`; default `primary`.
    #[must_use]
    pub fn read_mode(&self) -> ReadMode {
        self.options.read_preference.unwrap_or_default()
    }

    /// `readPreferenceTags`; the default is none.
    #[must_use]
    pub fn tag_sets(&self) -> &[Pairs] {
        self.options.read_preference_tags.as_deref().unwrap_or_default()
    }

    /// `maxStalenessSeconds`; `None`, written as -1, means no limit and is the default.
    #[must_use]
    pub fn max_staleness_seconds(&self) -> Option<u64> {
        self.options.max_staleness_seconds.and_then(|seconds| u64::try_from(seconds).ok())
    }

    /// `retryReads`; default true.
    #[must_use]
    pub fn retry_reads(&self) -> bool {
        self.options.retry_reads.unwrap_or(true)
    }

    /// `retryWrites`; default true.
    #[must_use]
    pub fn retry_writes(&self) -> bool {
        self.options.retry_writes.unwrap_or(true)
    }

    /// `compressors`, in order of preference; the default is none.
    #[must_use]
    pub fn compressors(&self) -> &[Compressor] {
        self.options.compressors.as_deref().unwrap_or_default()
    }

    /// `zlibCompressionLevel`, 0 to 9; `None`, written as -1, is the default of zlib.
    #[must_use]
    pub fn zlib_compression_level(&self) -> Option<u32> {
        self.options.zlib_compression_level.and_then(|level| u32::try_from(level).ok())
    }

    /// `srvMaxHosts`; `None`, written as 0, means no limit and is the default.
    #[must_use]
    pub fn srv_max_hosts(&self) -> Option<u32> {
        self.options.srv_max_hosts.filter(|max| *max > 0)
    }

    /// `srvServiceName`; default `mongodb`.
    #[must_use]
    pub fn srv_service_name(&self) -> &str {
        self.options.srv_service_name.as_deref().unwrap_or("mongodb")
    }

    /// The SOCKS5 proxy to connect through, and its port; default 1080.
    #[must_use]
    pub fn proxy(&self) -> Option<(&str, u16)> {
        let host = self.options.proxy_host.as_deref()?;
        Some((host, self.options.proxy_port.unwrap_or(1_080)))
    }
}

impl PartialEq for ConnectionString {
    fn eq(&self, other: &Self) -> bool {
        let Self { scheme, hosts, database, options, credential, warnings: _, warnings_left_off: _ } = self;
        *scheme == other.scheme
            && *hosts == other.hosts
            && *database == other.database
            && *options == other.options
            && *credential == other.credential
    }
}

impl Eq for ConnectionString {}

impl FromStr for ConnectionString {
    type Err = UriError;

    fn from_str(uri: &str) -> Result<Self, UriError> {
        Self::parse(uri)
    }
}

/// The limit of an option, in which zero means no limit; `default` if the option is absent.
fn limit(given: Option<Duration>, default: Option<Duration>) -> Option<Duration> {
    given.map_or(default, |limit| Some(limit).filter(|limit| !limit.is_zero()))
}
