//! All options of connection strings, under their standard names.
//!
//! Read first: URI Options, "List of specified options"; Connection String, "Deprecated Key Value
//! Pairs" and "Repeated Keys".

use super::value::{self, Note, Rule, Value};
use super::{AuthMechanism, Compressor, OptionValue, Pairs, Secret, W};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use poolhouse_core::monitor::ServerMonitoringMode;
use poolhouse_core::selection::ReadMode;

/// One line per option: key, field, type, standard name, parser.
macro_rules! options {
    ($($(#[$doc:meta])* $key:ident, $field:ident: $type:ty = $name:literal, $read:path;)*) => {
        /// The options of a connection string. An absent option is `None`;
        /// [`ConnectionString`](super::ConnectionString) has methods that return the defaults.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct UriOptions {
            $($(#[$doc])* pub $field: Option<$type>,)*
        }

        /// The identifier of an option.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Key {
            $($key,)*
        }

        impl Key {
            /// All options.
            pub(super) const ALL: &[Self] = &[$(Self::$key),*];

            /// Whether its value must not be shown.
            pub(super) const fn is_secret(self) -> bool {
                match self {
                    $(Self::$key => <$type as Value>::IS_SECRET,)*
                }
            }

            /// The standard name of the option.
            pub(super) const fn name(self) -> &'static str {
                match self {
                    $(Self::$key => $name,)*
                }
            }
        }

        impl UriOptions {
            /// The standard names of all options.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// All options that are present, under their standard names.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, OptionValue<'_>)> {
                [$(self.$field.as_ref().map(|value| ($name, value.view()))),*].into_iter().flatten()
            }

            /// Parses and stores a value. After an error the stored value is unchanged.
            pub(super) fn read(&mut self, key: Key, text: &str, note: &mut Note) -> Result<(), Rule> {
                match key {
                    $(Key::$key => <$type>::replace(&mut self.$field, $read(text, note)?),)*
                }
                Ok(())
            }

            /// Removes a value.
            pub(super) fn forget(&mut self, key: Key) {
                match key {
                    $(Key::$key => self.$field = None,)*
                }
            }
        }
    };
}

options! {
    /// `appName`: 1 to 128 bytes, sent to servers.
    AppName, app_name: String = "appName", value::app_name;
    /// `authMechanism`. See [`ConnectionString::credential`](super::ConnectionString::credential).
    AuthMechanism, auth_mechanism: AuthMechanism = "authMechanism", AuthMechanism::read;
    /// `authMechanismProperties`. A value must not contain a comma.
    AuthMechanismProperties, auth_mechanism_properties: Pairs = "authMechanismProperties", value::properties;
    /// `authSource`: the database of the user.
    AuthSource, auth_source: String = "authSource", value::text;
    /// `compressors`, in order of preference; unknown names are ignored with a warning.
    Compressors, compressors: Vec<Compressor> = "compressors", value::compressors;
    /// `connectTimeoutMS`; zero is without limit. Default 10 s.
    ConnectTimeout, connect_timeout: Duration = "connectTimeoutMS", value::millis;
    /// `directConnection`: connect to the single host, whatever its type. Default false.
    DirectConnection, direct_connection: bool = "directConnection", value::strict_boolean;
    /// `enableOverloadRetargeting`: whether a command that an overloaded server refused is retried
    /// on another server. Default false.
    EnableOverloadRetargeting, enable_overload_retargeting: bool = "enableOverloadRetargeting", value::boolean;
    /// `heartbeatFrequencyMS`, at least 500. Default 10 s.
    HeartbeatFrequency, heartbeat_frequency: Duration = "heartbeatFrequencyMS", value::heartbeat_frequency;
    /// `journal`: `j` of the write concern.
    Journal, journal: bool = "journal", value::boolean;
    /// `loadBalanced`: the single host is a load balancer. Default false.
    LoadBalanced, load_balanced: bool = "loadBalanced", value::strict_boolean;
    /// `localThresholdMS`. Default 15 ms.
    LocalThreshold, local_threshold: Duration = "localThresholdMS", value::millis;
    /// `maxAdaptiveRetries`: maximum number of retries of a command that an overloaded server
    /// refused. Default 2.
    MaxAdaptiveRetries, max_adaptive_retries: u32 = "maxAdaptiveRetries", value::number;
    /// `maxConnecting`, at least 1. Default 2.
    MaxConnecting, max_connecting: u32 = "maxConnecting", value::positive;
    /// `maxIdleTimeMS`; zero is without limit, the default.
    MaxIdleTime, max_idle_time: Duration = "maxIdleTimeMS", value::millis;
    /// `maxPoolSize`; 0 is without limit. Default 100.
    MaxPoolSize, max_pool_size: u32 = "maxPoolSize", value::number;
    /// `maxStalenessSeconds`: -1 (the default) for no limit, or at least 90.
    MaxStalenessSeconds, max_staleness_seconds: i32 = "maxStalenessSeconds", value::max_staleness;
    /// `minPoolSize`. Default 0.
    MinPoolSize, min_pool_size: u32 = "minPoolSize", value::number;
    /// `proxyHost`: a SOCKS5 proxy. A driver must connect through it, or refuse to connect.
    ProxyHost, proxy_host: String = "proxyHost", value::text;
    /// `proxyPassword`.
    ProxyPassword, proxy_password: Secret = "proxyPassword", value::secret;
    /// `proxyPort`. Default 1080.
    ProxyPort, proxy_port: u16 = "proxyPort", value::port;
    /// `proxyUsername`.
    ProxyUsername, proxy_username: String = "proxyUsername", value::text;
    /// `readConcernLevel`: any text, because servers may add further levels.
    ReadConcernLevel, read_concern_level: String = "readConcernLevel", value::text;
    /// `readPreference`. Default `primary`.
    ReadPreference, read_preference: ReadMode = "readPreference", value::read_mode;
    /// `readPreferenceTags`, once for each tag set, in order of preference.
    ReadPreferenceTags, read_preference_tags: Vec<Pairs> = "readPreferenceTags", value::tag_set;
    /// `replicaSet`: the required set name.
    ReplicaSet, replica_set: String = "replicaSet", value::text;
    /// `retryReads`. Default true.
    RetryReads, retry_reads: bool = "retryReads", value::boolean;
    /// `retryWrites`. Default true.
    RetryWrites, retry_writes: bool = "retryWrites", value::boolean;
    /// `serverMonitoringMode`. Default `auto`.
    ServerMonitoringMode, server_monitoring_mode: ServerMonitoringMode = "serverMonitoringMode", value::monitoring_mode;
    /// `serverSelectionTimeoutMS`, at least 1. Default 30 s.
    ServerSelectionTimeout, server_selection_timeout: Duration = "serverSelectionTimeoutMS", value::positive_millis;
    /// `serverSelectionTryOnce`: for clients without monitors. Default true.
    ServerSelectionTryOnce, server_selection_try_once: bool = "serverSelectionTryOnce", value::boolean;
    /// `socketTimeoutMS`; zero is without limit, the default. Prefer `timeoutMS`.
    SocketTimeout, socket_timeout: Duration = "socketTimeoutMS", value::millis;
    /// `srvMaxHosts`; 0 is without limit, the default.
    SrvMaxHosts, srv_max_hosts: u32 = "srvMaxHosts", value::number;
    /// `srvServiceName`. Default `mongodb`.
    SrvServiceName, srv_service_name: String = "srvServiceName", value::service_name;
    /// `timeoutMS`: the limit for a whole operation; zero is without limit.
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
    /// `tlsInsecure`: accepts invalid certificates and host names. Default false.
    TlsInsecure, tls_insecure: bool = "tlsInsecure", value::boolean;
    /// `w` of the write concern.
    W, w: W = "w", value::w;
    /// `waitQueueTimeoutMS`; zero is without limit, the default. Prefer `timeoutMS`.
    WaitQueueTimeout, wait_queue_timeout: Duration = "waitQueueTimeoutMS", value::millis;
    /// `wTimeoutMS` of the write concern; zero is without limit. Prefer `timeoutMS`.
    WTimeout, w_timeout: Duration = "wTimeoutMS", value::long_millis;
    /// `zlibCompressionLevel`: -1 (the default) for the default of zlib, or 0 to 9.
    ZlibCompressionLevel, zlib_compression_level: i32 = "zlibCompressionLevel", value::zlib_level;
}

/// The meaning of a name in a connection string.
pub(super) enum Named {
    /// An option by its standard name.
    Key(Key),
    /// An option by an alias.
    Alias(Key),
    /// An option by its old name.
    Deprecated(&'static str, Key),
    /// `gssapiServiceName`, the old form of a mechanism property.
    GssapiServiceName,
    /// A removed option, and the alternative.
    Retired(&'static str, &'static str),
}

/// The old form of [`Key::AuthMechanismProperties`] with `SERVICE_NAME`.
pub(super) const GSSAPI_SERVICE_NAME: &str = "gssapiServiceName";
const OLD_NAMES: [(&str, Key); 2] = [("wtimeout", Key::WTimeout), ("j", Key::Journal)];
const RETIRED: [(&str, &str); 2] = [
    ("waitQueueSize", "bound the number of tasks that use the client, or set timeoutMS"),
    ("waitQueueMultiple", "bound the number of tasks that use the client, or set timeoutMS"),
];

impl Named {
    /// The meaning of this name; names are compared case-insensitively.
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

    /// The known name with the smallest edit distance, if the distance is small: the name is
    /// probably a misspelling of it.
    pub(super) fn similar(name: &str) -> Option<&'static str> {
        // A name of one or two letters is close to many names. The maximum distance is 1 for TLS
        // options, because other drivers have similar names: tlsCRLFile is not a misspelling of
        // tlsCAFile.
        let is_tls = name.get(..3).is_some_and(|front| front.eq_ignore_ascii_case("tls"));
        let edits_max = (name.len() / 3).min(if is_tls { 1 } else { 2 });
        let is_near = |known: &&str| known.len().abs_diff(name.len()) <= edits_max;
        let known = UriOptions::NAMES.iter().copied().chain(["ssl"]).filter(is_near);
        let counted = known.map(|known| (edits(name.as_bytes(), known.as_bytes()), known));
        let (edits, known) = counted.min_by_key(|(edits, _)| *edits)?;
        (edits <= edits_max).then_some(known)
    }

    /// The name to use in errors.
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

/// The edit distance of two names: letters added, removed, changed, or swapped with a neighbour
/// (optimal string alignment). Case-insensitive.
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
