//! Validation of client options, of each one and of their combinations.

use super::super::{Error, OptionError};
use super::ClientOptions;
#[cfg(feature = "tls")]
use crate::tls::TlsOptions;
use alloc::string::String;
use alloc::vec::Vec;
use poolhouse_core::ConfigError;
use poolhouse_core::topology::{TopologyConfigError, TopologyOptions};

const HOST_RULE: &str = "be host, host:port, [ipv6]:port, or the path of a unix socket";
const HOST_RULE_URI: &str =
    "be host, host:port, [ipv6]:port, or the path of a unix socket; ClientOptions::parse takes connection strings";

impl ClientOptions {
    /// Performs the same checks as [`Client::with_options`](crate::Client::with_options), and
    /// starts nothing. Does not read the files of the TLS options.
    ///
    /// # Errors
    ///
    /// The first option that violates a rule, or two that contradict each other, by their standard
    /// names: [`SetupError::Config`](crate::SetupError::Config) and
    /// [`SetupError::Option`](crate::SetupError::Option) contain the value and the rule,
    /// [`SetupError::Topology`](crate::SetupError::Topology) and
    /// [`SetupError::Metadata`](crate::SetupError::Metadata) contain the rule.
    /// [`SetupError::Credential`](crate::SetupError::Credential) describes a missing or unsupported
    /// part, and contains no secret. With the feature `tls`, `SetupError::Tls` for an option that
    /// requires another one.
    pub fn validate(&self) -> Result<(), Error> {
        self.pool.validate()?;
        self.monitor.validate()?;
        let seeds = self.seeds();
        if seeds.is_empty() {
            return Err(ConfigError::new("hosts", 0, "be at least one").into());
        }
        match self.topology_options(&seeds).validate() {
            Ok(_) => {}
            Err(TopologyConfigError::BadSeed(place)) => return Err(bad_host(&self.hosts, place)),
            Err(error) => return Err(error.into()),
        }
        if self.server_selection_timeout.as_millis() == 0 {
            return Err(ConfigError::new("serverSelectionTimeoutMS", 0, "be at least 1").into());
        }
        if let Some(level) = self.zlib_compression_level.filter(|level| *level > 9) {
            return Err(ConfigError::new("zlibCompressionLevel", level.into(), "be at most 9").into());
        }
        self.read_preference.validate()?;
        self.check_metadata()?;
        #[cfg(feature = "tls")]
        self.tls.as_ref().map_or(Ok(()), TlsOptions::check)?;
        // Called for its checks only; the copy of the secrets is wiped on drop.
        self.login()?;
        self.validate_texts()
    }

    fn validate_texts(&self) -> Result<(), Error> {
        let texts = [
            ("appName", &self.app_name),
            ("replicaSet", &self.replica_set),
            ("default_database", &self.default_database),
            ("readConcernLevel", &self.read_concern_level),
        ];
        for (option, text) in texts {
            if text.as_ref().is_some_and(String::is_empty) {
                return Err(OptionError::new(option, "", "not be empty").into());
            }
        }
        for info in &self.driver_info {
            info.check()?;
        }
        Ok(())
    }

    pub(in super::super) fn seeds(&self) -> Vec<&str> {
        self.hosts.iter().map(String::as_str).collect()
    }

    pub(in super::super) fn topology_options<'a>(&'a self, seeds: &'a [&'a str]) -> TopologyOptions<'a> {
        TopologyOptions {
            seeds,
            replica_set: self.replica_set.as_deref(),
            direct_connection: self.direct_connection,
            load_balanced: self.pool.load_balanced,
        }
    }
}

/// Redacts the value if it may be a connection string, because that may contain a password.
fn bad_host(hosts: &[String], place: usize) -> Error {
    let host = hosts.get(place).map_or("", String::as_str);
    let is_uri = host.contains("://");
    let rule = if is_uri { HOST_RULE_URI } else { HOST_RULE };
    let shown = if is_uri || host.contains('@') { "[redacted]" } else { host };
    OptionError::new("hosts", shown, rule).into()
}
