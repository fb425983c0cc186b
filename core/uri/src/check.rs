//! Validation of options that conflict with each other or with the hosts.
//!
//! Read first: URI Options, "Conflicting TLS options", "directConnection URI option with multiple
//! seeds or SRV URI"; Load Balancers, "URI Validation"; Initial DNS Seedlist Discovery, "URI
//! Validation"; SOCKS5 Support, "MongoClient Configuration"; Max Staleness, "API".

use super::options::{Key, Keys};
use super::{Pairs, Scheme, UriError, UriErrorKind, UriOptions, W};
use poolhouse_core::selection::ReadMode;

/// Pairs of options that must not both be present, whatever their values.
const TLS_CONFLICTS: [(Key, Key); 7] = [
    (Key::TlsInsecure, Key::TlsAllowInvalidCertificates),
    (Key::TlsInsecure, Key::TlsAllowInvalidHostnames),
    (Key::TlsInsecure, Key::TlsDisableOcspEndpointCheck),
    (Key::TlsInsecure, Key::TlsDisableCertificateRevocationCheck),
    (Key::TlsAllowInvalidCertificates, Key::TlsDisableOcspEndpointCheck),
    (Key::TlsAllowInvalidCertificates, Key::TlsDisableCertificateRevocationCheck),
    (Key::TlsDisableOcspEndpointCheck, Key::TlsDisableCertificateRevocationCheck),
];

const fn conflict(option: Key, other: Key) -> UriError {
    UriError::of(UriErrorKind::Conflict(other.name()), option.name())
}

const fn needs(option: Key, other: Key) -> UriError {
    UriError::of(UriErrorKind::Needs(other.name()), option.name())
}

/// Checks which options are present; `seen` contains all options that appear in the string,
/// whatever their values.
pub(super) fn presence(scheme: Scheme, seen: Keys) -> Result<(), UriError> {
    if let Some((option, other)) =
        TLS_CONFLICTS.iter().find(|(option, other)| seen.contains(*option) && seen.contains(*other))
    {
        return Err(conflict(*option, *other));
    }
    match [Key::SrvServiceName, Key::SrvMaxHosts].into_iter().find(|key| seen.contains(*key)) {
        Some(key) if scheme == Scheme::Mongodb => Err(UriError::of(UriErrorKind::NotSrv, key.name())),
        Some(_) | None => Ok(()),
    }
}

/// Checks the values of the options, and the number of hosts. `scheme` is `MongodbSrv` only before
/// the hosts are looked up.
pub(super) fn values(scheme: Scheme, hosts: usize, options: &UriOptions) -> Result<(), UriError> {
    let is_many = hosts > 1;
    let is_direct = options.direct_connection == Some(true);
    if options.load_balanced == Some(true) {
        if is_direct {
            return Err(conflict(Key::LoadBalanced, Key::DirectConnection));
        }
        if options.replica_set.is_some() {
            return Err(conflict(Key::LoadBalanced, Key::ReplicaSet));
        }
        if is_many {
            return Err(UriError::of(UriErrorKind::ManyHosts, Key::LoadBalanced.name()));
        }
    }
    if is_direct && scheme == Scheme::MongodbSrv {
        return Err(UriError::of(UriErrorKind::Srv, Key::DirectConnection.name()));
    }
    if is_direct && is_many {
        return Err(UriError::of(UriErrorKind::ManyHosts, Key::DirectConnection.name()));
    }
    if options.srv_max_hosts.is_some_and(|max| max > 0) {
        if options.replica_set.is_some() {
            return Err(conflict(Key::SrvMaxHosts, Key::ReplicaSet));
        }
        if options.load_balanced == Some(true) {
            return Err(conflict(Key::SrvMaxHosts, Key::LoadBalanced));
        }
    }
    proxy(options)?;
    read_preference(options)?;
    let max = options.max_pool_size.unwrap_or(100);
    if max > 0 && options.min_pool_size.is_some_and(|min| min > max) {
        return Err(UriError::of(UriErrorKind::Value("be at most maxPoolSize"), Key::MinPoolSize.name()));
    }
    if options.w == Some(W::Nodes(0)) && options.journal == Some(true) {
        return Err(UriError::of(UriErrorKind::Conflict("w=0"), Key::Journal.name()));
    }
    Ok(())
}

fn proxy(options: &UriOptions) -> Result<(), UriError> {
    let others = [
        (Key::ProxyPort, options.proxy_port.is_some()),
        (Key::ProxyUsername, options.proxy_username.is_some()),
        (Key::ProxyPassword, options.proxy_password.is_some()),
    ];
    if let (None, Some((key, _))) = (&options.proxy_host, others.iter().find(|(_, is_there)| *is_there)) {
        return Err(needs(*key, Key::ProxyHost));
    }
    match (&options.proxy_username, &options.proxy_password) {
        (Some(_), None) => Err(needs(Key::ProxyUsername, Key::ProxyPassword)),
        (None, Some(_)) => Err(needs(Key::ProxyPassword, Key::ProxyUsername)),
        (Some(_), Some(_)) | (None, None) => Ok(()),
    }
}

fn read_preference(options: &UriOptions) -> Result<(), UriError> {
    if options.read_preference.unwrap_or_default() != ReadMode::Primary {
        return Ok(());
    }
    let primary = UriErrorKind::Conflict("readPreference=primary, which is the default");
    if options.read_preference_tags.iter().flatten().any(|set: &Pairs| !set.is_empty()) {
        return Err(UriError::of(primary, Key::ReadPreferenceTags.name()));
    }
    if options.max_staleness_seconds.is_some_and(|seconds| seconds > 0) {
        return Err(UriError::of(primary, Key::MaxStalenessSeconds.name()));
    }
    Ok(())
}
