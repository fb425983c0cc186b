//! Hosts of a connection string.
//!
//! Read first: Connection String, "Host Information"; SDAM, "Hostnames are normalized to
//! lower-case".

use super::text;
use super::{UriError, UriErrorKind};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use percent_encoding::utf8_percent_encode;
use poolhouse_core::address::{self, HOST_MAX, HostAddress, is_ipv6, is_name};

/// Maximum length of a label of a host name, in bytes.
const LABEL_MAX: usize = 63;

/// The kind of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostKind {
    /// A host name.
    Name,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// The path of a unix socket.
    Unix,
}

/// A host of a connection string: names are converted to lower case, paths are unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    /// In the form that
    /// [`TopologyOptions::seeds`](poolhouse_core::topology::TopologyOptions::seeds) requires.
    seed: String,
    port: Option<u16>,
    kind: HostKind,
}

impl Host {
    /// Creates a host from a name or address (IPv6 with or without brackets) and a port, for
    /// example from a DNS lookup.
    ///
    /// # Errors
    ///
    /// [`UriErrorKind::Host`], [`UriErrorKind::Port`].
    pub fn tcp(name: &str, port: Option<u16>) -> Result<Self, UriError> {
        if port == Some(0) {
            return Err(UriError::at(UriErrorKind::Port, 0));
        }
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        let host = match bare {
            Some(literal) => Self::literal(literal, port),
            None if name.contains(':') => Self::literal(name, port),
            None => Self::named(name, port),
        };
        host.map_err(|kind| UriError::at(kind, 0))
    }

    /// Parses the text between two commas of a connection string, which begins at `offset`.
    pub(super) fn parse(raw: &str, offset: usize) -> Result<Self, UriError> {
        if raw.is_empty() {
            return Err(UriError::at(UriErrorKind::NoHost, offset));
        }
        if let Some(rest) = raw.strip_prefix('[') {
            let bad = UriError::at(UriErrorKind::Host, offset);
            let (literal, rest) = rest.split_once(']').ok_or(bad)?;
            let port = match rest.strip_prefix(':') {
                Some(port) => Some(parse_port(port, offset + raw.len() - port.len())?),
                None if rest.is_empty() => None,
                None => return Err(bad),
            };
            let literal = text::decode(literal, offset + 1)?;
            return Self::literal(&literal, port).map_err(|kind| UriError::at(kind, offset));
        }
        if is_bare_ipv6(raw) {
            return Err(UriError::at(UriErrorKind::Ipv6Brackets, offset));
        }
        let (name, port) = match raw.split_once(':') {
            Some((name, port)) => (name, Some((port, offset + name.len() + 1))),
            None => (raw, None),
        };
        let name = text::decode(name, offset)?;
        if name.contains('/') {
            if port.is_some() || !name.ends_with(".sock") {
                return Err(UriError::at(UriErrorKind::Socket, offset));
            }
            if name.len() > HOST_MAX || name.bytes().any(|byte| byte < b' ') {
                return Err(UriError::at(UriErrorKind::Host, offset));
            }
            return Ok(Self { seed: name.as_str().into(), port: None, kind: HostKind::Unix });
        }
        let port = port.map(|(port, offset)| parse_port(port, offset)).transpose()?;
        Self::named(&name, port).map_err(|kind| UriError::at(kind, offset))
    }

    /// Parses the single name of `mongodb+srv://`; a trailing dot is removed.
    pub(super) fn parse_srv(raw: &str, offset: usize) -> Result<Self, UriError> {
        let bad = UriError::at(UriErrorKind::SrvHost, offset);
        if raw.is_empty() {
            return Err(UriError::at(UriErrorKind::NoHost, offset));
        }
        if raw.contains([',', ':', '[']) {
            return Err(bad);
        }
        let name = text::decode(raw, offset)?;
        let name = name.strip_suffix('.').unwrap_or(&name);
        let host = Self::named(name, None).map_err(|_| bad)?;
        let labels_fit = host.name().split('.').all(|label| !label.is_empty() && label.len() <= LABEL_MAX);
        if host.kind == HostKind::Name && labels_fit { Ok(host) } else { Err(bad) }
    }

    /// The host in the form that
    /// [`TopologyOptions::seeds`](poolhouse_core::topology::TopologyOptions::seeds) requires:
    /// `host`, `host:port`, `[IPv6]:port`, or a path.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.seed
    }

    /// The name or address, without brackets and port, or the path.
    #[must_use]
    pub fn name(&self) -> &str {
        let seed = self.seed.as_str();
        match self.kind {
            HostKind::Unix => seed,
            HostKind::Ipv6 => seed.strip_prefix('[').and_then(|seed| seed.split(']').next()).unwrap_or(seed),
            HostKind::Name | HostKind::Ipv4 => seed.split(':').next().unwrap_or(seed),
        }
    }

    /// The port, if specified; otherwise [`HostAddress::PORT_DEFAULT`] applies.
    #[must_use]
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// The kind of the host.
    #[must_use]
    pub const fn kind(&self) -> HostKind {
        self.kind
    }

    /// Writes the host in its form in connection strings.
    pub(super) fn print(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        match self.kind {
            HostKind::Ipv6 => write!(f, "[{}]", utf8_percent_encode(self.name(), text::LITERAL))?,
            HostKind::Name | HostKind::Ipv4 | HostKind::Unix => {
                write!(f, "{}", utf8_percent_encode(self.name(), text::COMPONENT))?;
            }
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }

    fn named(name: &str, port: Option<u16>) -> Result<Self, UriErrorKind> {
        if !is_name(name) {
            return Err(UriErrorKind::Host);
        }
        let name = name.to_ascii_lowercase();
        let kind = if name.parse::<Ipv4Addr>().is_ok() { HostKind::Ipv4 } else { HostKind::Name };
        let seed = match port {
            Some(port) => format!("{name}:{port}"),
            // A port is added, because a seed that ends in `.sock` without a port would be parsed
            // as a path.
            None if name.ends_with(".sock") => format!("{name}:{}", HostAddress::PORT_DEFAULT),
            None => name,
        };
        Ok(Self { seed, port, kind })
    }

    /// Creates a host from an IPv6 address, optionally with a zone.
    fn literal(literal: &str, port: Option<u16>) -> Result<Self, UriErrorKind> {
        if !is_ipv6(literal) {
            return Err(UriErrorKind::Host);
        }
        let literal = literal.to_ascii_lowercase();
        let seed = match port {
            Some(port) => format!("[{literal}]:{port}"),
            None => format!("[{literal}]"),
        };
        Ok(Self { seed, port, kind: HostKind::Ipv6 })
    }
}

/// As [`Host::as_str`].
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.seed)
    }
}

/// Parses the comma-separated hosts; the first begins at `offset`.
pub(super) fn parse_hosts(raw: &str, offset: usize) -> Result<Vec<Host>, UriError> {
    let mut hosts = Vec::new();
    let mut at = offset;
    for host in raw.split(',') {
        hosts.push(Host::parse(host, at)?);
        at += host.len() + 1;
    }
    Ok(hosts)
}

/// Whether the text is an IPv6 address without its brackets, optionally with a zone or a port.
fn is_bare_ipv6(raw: &str) -> bool {
    let is_address = |text: &str| text.split('%').next().is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
    is_address(raw) || raw.rsplit_once(':').is_some_and(|(address, _)| is_address(address))
}

fn parse_port(raw: &str, offset: usize) -> Result<u16, UriError> {
    address::parse_port(raw).ok_or(UriError::at(UriErrorKind::Port, offset))
}
