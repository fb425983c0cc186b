//! Warnings about the options of a client.

#[cfg(feature = "tls")]
use crate::tls::TlsWarning;
use alloc::vec::Vec;
use core::fmt;
use poolhouse_uri::{Compressor, ConnectionString, HostKind, UriWarning};

/// An option of a client that does not do what its author may expect: see
/// [`Client::warnings`](crate::Client::warnings).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClientWarning {
    /// A part of the connection string was ignored, or is deprecated.
    Uri(UriWarning),
    /// The number of further parts of the connection string that were ignored or are deprecated.
    More(usize),
    /// An option of the connection string applies to some operations only, or to none.
    NoEffect {
        /// The standard name of the option.
        option: &'static str,
        /// What it applies to, and the alternative.
        reason: &'static str,
    },
    /// A risk or defect of the TLS options. An application should show it prominently.
    #[cfg(feature = "tls")]
    Tls(TlsWarning),
}

impl fmt::Display for ClientWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uri(warning) => warning.fmt(f),
            Self::More(count) => write!(f, "further warnings about the connection string: {count}"),
            Self::NoEffect { option, reason } => write!(f, "{option}: {reason}"),
            #[cfg(feature = "tls")]
            Self::Tls(warning) => warning.fmt(f),
        }
    }
}

/// Lists the options of a connection string that are accepted, but do not apply to all that they
/// apply to in other drivers.
pub(super) fn without_effect(uri: &ConnectionString) -> Vec<ClientWarning> {
    let listed = uri
        .options()
        .iter()
        .filter_map(|(option, _)| reason(option, uri).map(|reason| ClientWarning::NoEffect { option, reason }));
    listed.chain((uri.warnings_left_off() > 0).then(|| ClientWarning::More(uri.warnings_left_off()))).collect()
}

/// What an option applies to, if not to all operations.
fn reason(option: &str, uri: &ConnectionString) -> Option<&'static str> {
    let is_limited = uri.options().timeout.is_some();
    let uses_zlib = uri.compressors().contains(&Compressor::Zlib);
    let has_tcp = uri.hosts().iter().any(|host| host.kind() != HostKind::Unix);
    match option {
        "w" | "journal" | "wTimeoutMS" => {
            Some("applies to transactions only; other commands need their own writeConcern: WriteConcern::to_document")
        }
        "readConcernLevel" => Some("applies to transactions only; other commands need their own readConcern"),
        "readPreference" | "readPreferenceTags" | "maxStalenessSeconds" => {
            Some("applies only to commands with CommandOptions::client_read_preference")
        }
        "serverSelectionTryOnce" => Some("has no effect: it is for clients without monitors"),
        "tlsDisableOCSPEndpointCheck" | "tlsDisableCertificateRevocationCheck" => {
            Some("has no effect: revocation of certificates is never checked")
        }
        "tls" => (uri.tls() && !has_tcp).then_some("has no effect on Unix domain sockets"),
        option if option.starts_with("tls") && !uri.tls() => Some("has no effect, because tls is false"),
        "authSource" if uri.credential().is_none() => Some("has no effect without a user"),
        "socketTimeoutMS" | "waitQueueTimeoutMS" if is_limited => Some("has no effect, because timeoutMS is set"),
        "zlibCompressionLevel" if !uses_zlib => Some("has no effect without compressors=zlib"),
        "heartbeatFrequencyMS" | "serverMonitoringMode" if uri.load_balanced() => {
            Some("has no effect, because a load balancer is not monitored")
        }
        _ => None,
    }
}
