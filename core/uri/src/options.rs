//! Every option that a connection string can have, under its standard name.
//!
//! Read first: URI Options, "List of specified options"; Connection String, "Deprecated Key Value Pairs" and "Repeated Keys".

use super::value::{self, Note, Rule, Value};
use super::{AuthMechanism, Compressor, OptionValue, Pairs, Secret, W};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use poolhouse_core::monitor::ServerMonitoringMode;
use poolhouse_core::selection::ReadMode;

/// One line per option: key, field, type, standard name, how it is read.
macro_rules! options {
    ($($(#[$doc:meta])* $key:ident, $field:ident: $type:ty = $name:literal, $read:path;)*) => {
        /// The options of a connection string. What is not there was not said: the defaults are those of what an
        /// option is for, and [`ConnectionString`](super::ConnectionString) has a method for each.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct UriOptions {
            $($(#[$doc])* pub $field: Option<$type>,)*
        }

        /// Names an option.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Key {
            $($key,)*
        }

        impl Key {
            /// Every option.
            pub(super) const ALL: &[Self] = &[$(Self::$key),*];

            /// Whether nobody may see its value.
            pub(super) const fn is_secret(self) -> bool {
                match self {
                    $(Self::$key => <$type as Value>::IS_SECRET,)*
                }
            }

            /// Its standard name.
            pub(super) const fn name(self) -> &'static str {
                match self {
                    $(Self::$key => $name,)*
                }
            }
        }

        impl UriOptions {
            /// The standard names of all options.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// Every option that is there, under its standard name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, OptionValue<'_>)> {
                [$(self.$field.as_ref().map(|value| ($name, value.view()))),*].into_iter().flatten()
            }

            /// Reads a value. After an error it is as before.
            pub(super) fn read(&mut self, key: Key, text: &str, note: &mut Note) -> Result<(), Rule> {
                match key {
                    $(Key::$key => <$type>::replace(&mut self.$field, $read(text, note)?),)*
                }
                Ok(())
            }

            /// Forgets a value.
            pub(super) fn forget(&mut self, key: Key) {
                match key {
                    $(Key::$key => self.$field = None,)*
                }
            }
        }
    };
}

options! {
    /// `appName`: 1 to 128 bytes, told to servers.
    AppName, app_name: String = "appName", value::app_name;
    /// `authMechanism`. See [`ConnectionString::credential`](super::ConnectionString::credential).
    AuthMechanism, auth_mechanism: AuthMechanism = "authMechanism", AuthMechanism::read;
    /// `authMechanismProperties`. No value may hold a comma.
    AuthMechanismProperties, auth_mechanism_properties: Pairs = "authMechanismProperties", value::properties;
    /// `authSource`: the database that has the user.
    AuthSource, auth_source: String = "authSource", value::text;
    /// `compressors`, best first; names that are not known are left out, with a warning.
    Compressors, compressors: Vec<Compressor> = "compressors", value::compressors;
    /// `connectTimeoutMS`; zero is without limit. Default 10 s (MON-07).
    ConnectTimeout, connect_timeout: Duration = "connectTimeoutMS", value::millis;
    /// `directConnection`: speak to the one host, whatever it is. Default false.
    DirectConnection, direct_connection: bool = "directConnection", value::strict_boolean;
    /// `enableOverloadRetargeting`: whether a command that an overloaded server refused is retried on another server. Default false.
    EnableOverloadRetargeting, enable_overload_retargeting: bool = "enableOverloadRetargeting", value::boolean;
    /// `heartbeatFrequencyMS`, 500 at least. Default 10 s (MON-23, MON-24).
    HeartbeatFrequency, heartbeat_frequency: Duration = "heartbeatFrequencyMS", value::heartbeat_frequency;
    /// `journal`: `j` of the write concern.
    Journal, journal: bool = "journal", value::boolean;
    /// `loadBalanced`: the one host is a load balancer. Default false.
    LoadBalanced, load_balanced: bool = "loadBalanced", value::strict_boolean;
    /// `localThresholdMS`. Default 15 ms.
    LocalThreshold, local_threshold: Duration = "localThresholdMS", value::millis;
    /// `maxAdaptiveRetries`: how often a command that an overloaded server refused is retried; 0 is never. Default 2.
    MaxAdaptiveRetries, max_adaptive_retries: u32 = "maxAdaptiveRetries", value::number;
    /// `maxConnecting`, 1 at least. Default 2 (CMAP-05).
    MaxConnecting, max_connecting: u32 = "maxConnecting", value::positive;
    /// `maxIdleTimeMS`; zero is without limit, the default (CMAP-04).
    MaxIdleTime, max_idle_time: Duration = "maxIdleTimeMS", value::millis;
    /// `maxPoolSize`; 0 is without limit. Default 100 (CMAP-01, CMAP-02).
    MaxPoolSize, max_pool_size: u32 = "maxPoolSize", value::number;
    /// `maxStalenessSeconds`: -1, which is without limit and the default, or at least 90.
    MaxStalenessSeconds, max_staleness_seconds: i32 = "maxStalenessSeconds", value::max_staleness;
    /// `minPoolSize`. Default 0 (CMAP-03).
    MinPoolSize, min_pool_size: u32 = "minPoolSize", value::number;
    /// `proxyHost`: a SOCKS5 proxy. Whoever dials must go through it, or refuse to dial.
    ProxyHost, proxy_host: String = "proxyHost", value::text;
    /// `proxyPassword`.
    ProxyPassword, proxy_password: Secret = "proxyPassword", value::secret;
    /// `proxyPort`. Default 1080.
    ProxyPort, proxy_port: u16 = "proxyPort", value::port;
    /// `proxyUsername`.
    ProxyUsername, proxy_username: String = "proxyUsername", value::text;
    /// `readConcernLevel`: any text, as servers may come to know more of them.
    ReadConcernLevel, read_concern_level: String = "readConcernLevel", value::text;
    /// `readPreference`. Default `primary`.
    ReadPreference, read_preference: ReadMode = "readPreference", value::read_mode;
    /// `readPreferenceTags`, once for each tag set, best first.
    ReadPreferenceTags, read_preference_tags: Vec<Pairs> = "readPreferenceTags", value::tag_set;
    /// `replicaSet`: the wanted set name.
    ReplicaSet, replica_set: String = "replicaSet", value::text;
    /// `retryReads`. Default true.
    RetryReads, retry_reads: bool = "retryReads", value::boolean;
    /// `retryWrites`. Default true.
    RetryWrites, retry_writes: bool = "retryWrites", value::boolean;
    /// `serverMonitoringMode`. Default `auto` (MON-01).
    ServerMonitoringMode, server_monitoring_mode: ServerMonitoringMode = "serverMonitoringMode", value::monitoring_mode;
    /// `serverSelectionTimeoutMS`, 1 at least. Default 30 s.
    ServerSelectionTimeout, server_selection_timeout: Duration = "serverSelectionTimeoutMS", value::positive_millis;
    /// `serverSelectionTryOnce`: for clients without monitors. Default true (MON-60).
    ServerSelectionTryOnce, server_selection_try_once: bool = "serverSelectionTryOnce", value::boolean;
    /// `socketTimeoutMS`; zero is without limit, the default. `timeoutMS` is the better one.
    SocketTimeout, socket_timeout: Duration = "socketTimeoutMS", value::millis;
    /// `srvMaxHosts`; 0 is without limit, the default.
    SrvMaxHosts, srv_max_hosts: u32 = "srvMaxHosts", value::number;
    /// `srvServiceName`. Default `mongodb`.
    SrvServiceName, srv_service_name: String = "srvServiceName", value::service_name;
    /// `timeoutMS`: for an operation as a whole; zero is without limit.
    Timeout, timeout: Duration = "timeoutMS", value::millis;
    /// `tls` or `ssl`. See [`ConnectionString::tls`](super::ConnectionString::tls).
    Tls, tls: bool = "tls", value::boolean;
    /// `tlsAllowInvalidCertificates`. Default false.
    TlsAllowInvalidCertificates, tls_allow_invalid_certificates: bool = "tlsAllowInvalidCertificates", value::boolean;
    /// `tlsAllowInvalidHostnames`. Default false.
    TlsAllowInvalidHostnames, tls_allow_invalid_hostnames: bool = "tlsAllowInvalidHostnames", value::boolean;
    /// `tlsCAFile`: the path of the certificates to trust.
    TlsCaFile, tls_ca_file: String = "tlsCAFile", value::text;
    /// `tlsCertificateKeyFile`: the path of the client's certificate and private key.
    TlsCertificateKeyFile, tls_certificate_key_file: String = "tlsCertificateKeyFile", value::text;
    /// `tlsCertificateKeyFilePassword`.
    TlsCertificateKeyFilePassword, tls_certificate_key_file_password: Secret = "tlsCertificateKeyFilePassword", value::secret;
    /// `tlsDisableCertificateRevocationCheck`. Default false.
    TlsDisableCertificateRevocationCheck, tls_disable_certificate_revocation_check: bool
        = "tlsDisableCertificateRevocationCheck", value::boolean;
    /// `tlsDisableOCSPEndpointCheck`. Default false.
    TlsDisableOcspEndpointCheck, tls_disable_ocsp_endpoint_check: bool = "tlsDisableOCSPEndpointCheck", value::boolean;
    /// `tlsInsecure`: invalid certificates and host names alike are let through. Default false.
    TlsInsecure, tls_insecure: bool = "tlsInsecure", value::boolean;
    /// `w` of the write concern.
    W, w: W = "w", value::w;
    /// `waitQueueTimeoutMS`; zero is without limit, the default (CMAP-06). `timeoutMS` is the better one.
    WaitQueueTimeout, wait_queue_timeout: Duration = "waitQueueTimeoutMS", value::millis;
    /// `wTimeoutMS` of the write concern; zero is without limit. `timeoutMS` is the better one.
    WTimeout, w_timeout: Duration = "wTimeoutMS", value::long_millis;
    /// `zlibCompressionLevel`: -1, which leaves it to zlib and is the default, to 9.
    ZlibCompressionLevel, zlib_compression_level: i32 = "zlibCompressionLevel", value::zlib_level;
}

/// What a name in a connection string means.
pub(super) enum Named {
    /// This option.
    Key(Key),
    /// The same as this option.
    Alias(Key),
    /// The old name of this option.
    Deprecated(&'static str, Key),
    /// `gssapiServiceName`, an old way to give one of the properties of a mechanism.
    GssapiServiceName,
    /// It is gone; what to do instead.
    Retired(&'static str, &'static str),
}

/// The old name of [`Key::AuthMechanismProperties`] with `SERVICE_NAME`.
pub(super) const GSSAPI_SERVICE_NAME: &str = "gssapiServiceName";
const OLD_NAMES: [(&str, Key); 2] = [("wtimeout", Key::WTimeout), ("j", Key::Journal)];
const RETIRED: [(&str, &str); 2] = [
    ("waitQueueSize", "bound the number of tasks that use the client, or set timeoutMS"),
    ("waitQueueMultiple", "bound the number of tasks that use the client, or set timeoutMS"),
];

impl Named {
    /// What this name means; capital letters make no difference.
    pub(super) fn find(name: &str) -> Option<Self> {
        let is = |known: &str| known.eq_ignore_ascii_case(name);
        if let Some(key) = Key::ALL.iter().find(|key| is(key.name())) {
            return Some(Self::Key(*key));
        }
        if is("ssl") {
            return Some(Self::Alias(Key::Tls));
        }
        if is(GSSAPI_SERVICE_NAME) {
            return Some(Self::GssapiServiceName);
        }
        if let Some((old, key)) = OLD_NAMES.iter().find(|(old, _)| is(old)) {
            return Some(Self::Deprecated(old, *key));
        }
        let (name, instead) = RETIRED.iter().find(|(name, _)| is(name))?;
        Some(Self::Retired(name, instead))
    }

    /// The known name that needs the fewest edits to become this one, if those are few: a probable misspelling.
    pub(super) fn similar(name: &str) -> Option<&'static str> {
        // A name of one or two letters is near to everything. Other drivers have options of TLS that are not far from ours: tlsCRLFile is not tlsCAFile.
        let is_tls = name.get(..3).is_some_and(|front| front.eq_ignore_ascii_case("tls"));
        let edits_max = (name.len() / 3).min(if is_tls { 1 } else { 2 });
        let is_near = |known: &&str| known.len().abs_diff(name.len()) <= edits_max;
        let known = UriOptions::NAMES.iter().copied().chain(["ssl"]).filter(is_near);
        let counted = known.map(|known| (edits(name.as_bytes(), known.as_bytes()), known));
        let (edits, known) = counted.min_by_key(|(edits, _)| *edits)?;
        (edits <= edits_max).then_some(known)
    }

    /// The name that stands in errors.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Key(key) | Self::Alias(key) => key.name(),
            Self::Deprecated(name, _) | Self::Retired(name, _) => name,
            Self::GssapiServiceName => GSSAPI_SERVICE_NAME,
        }
    }

    /// The old name of an option.
    pub(super) fn old_name(key: Key) -> Option<&'static str> {
        OLD_NAMES.iter().find(|(_, renamed)| *renamed == key).map(|(name, _)| *name)
    }
}

/// The edit distance of two names: letters added, left out, changed, or swapped with a neighbour (optimal string alignment). Upper and
/// lower case are equal.
///
/// Cost: O(`one` x `other`); allocates.
fn edits(one: &[u8], other: &[u8]) -> usize {
    let is_same = |x: usize, y: usize| one[x].eq_ignore_ascii_case(&other[y]);
    // counts[x][y] is the distance of the first x letters of one and the first y of the other.
    let mut counts = vec![vec![0; other.len() + 1]; one.len() + 1];
    for x in 0..=one.len() {
        for y in 0..=other.len() {
            if x == 0 || y == 0 {
                counts[x][y] = x + y;
                continue;
            }
            let changed = counts[x - 1][y - 1] + usize::from(!is_same(x - 1, y - 1));
            let mut least = changed.min(counts[x - 1][y] + 1).min(counts[x][y - 1] + 1);
            if x > 1 && y > 1 && is_same(x - 1, y - 2) && is_same(x - 2, y - 1) {
                least = least.min(counts[x - 2][y - 2] + 1);
            }
            counts[x][y] = least;
        }
    }
    counts[one.len()][other.len()]
}

/// A set of options.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Keys(u64);

const _: () = assert!(Key::ALL.len() <= 64);

impl Keys {
    pub(super) const fn contains(self, key: Key) -> bool {
        self.0 & (1 << key as u32) != 0
    }

    pub(super) const fn insert(&mut self, key: Key) {
        self.0 |= 1 << key as u32;
    }

    pub(super) const fn remove(&mut self, key: Key) {
        self.0 &= !(1 << key as u32);
    }
}
