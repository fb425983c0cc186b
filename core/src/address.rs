//! Addresses of servers: lower-case host and port, or the path of a unix socket.
//!
//! Read first: SDAM, "address" and "Hostnames are normalized to lower-case" (SDAM-04, SDAM-28); Connection String, "Host Information".

/// The port of a host that names none.
const DEFAULT_PORT: u16 = 27_017;
/// The longest host name or path, in bytes.
const HOST_MAX: usize = 255;
/// Brackets excluded: a host, a colon and five digits.
const ADDRESS_MAX: usize = HOST_MAX + 6;

/// Where a server is to be reached, as its address says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostAddress<'a> {
    /// By TCP.
    Tcp {
        /// A name, an IPv4 address, or an IPv6 address without brackets.
        host: &'a str,
        /// The port.
        port: u16,
    },
    /// By the unix socket at this path.
    Unix(&'a str),
}

impl<'a> HostAddress<'a> {
    /// What an address says that is in the form which a topology gives it: a host with its port, or a path.
    #[must_use]
    pub fn of(address: &'a str) -> Self {
        parts(address)
    }
}

/// An address in its normal form, on the stack.
pub(super) struct Address {
    bytes: [u8; ADDRESS_MAX],
    len: u16,
}

impl Address {
    /// The normal form of `text`: host in lower case with its port, IPv6 in brackets, paths untouched. `None` when it is no address.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut address = Self { bytes: [0; ADDRESS_MAX], len: 0 };
        if is_path(text) {
            if text.len() > HOST_MAX || text.bytes().any(|byte| byte < b' ') {
                return None;
            }
            address.push(text.as_bytes());
            return Some(address);
        }
        let (host, port) = split(text)?;
        let port = match port {
            Some(port) => parse_port(port)?,
            None => DEFAULT_PORT,
        };
        if host.is_empty() || host.len() > HOST_MAX || !is_host(host) {
            return None;
        }
        address.push(host.as_bytes());
        address.bytes[..host.len()].make_ascii_lowercase();
        address.push(b":");
        let mut divisor = 10_000;
        let mut started = false;
        while divisor > 0 {
            let digit = port / divisor % 10;
            started |= digit > 0;
            if started {
                address.push(&[b'0' + (digit & 0xf).to_le_bytes()[0]]);
            }
            divisor /= 10;
        }
        Some(address)
    }

    /// As [`Address::parse`], for a text of a server or of a name server. The path of a unix socket is none: only the application names those.
    pub(super) fn parse_host(text: &str) -> Option<Self> {
        if is_path(text) { None } else { Self::parse(text) }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    fn push(&mut self, bytes: &[u8]) {
        let at = usize::from(self.len);
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.len += u16::try_from(bytes.len()).unwrap_or(0);
    }
}

/// What a normal form says.
pub(super) fn parts(address: &str) -> HostAddress<'_> {
    if is_path(address) {
        return HostAddress::Unix(address);
    }
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    HostAddress::Tcp { host, port: port.parse().unwrap_or(DEFAULT_PORT) }
}

pub(super) fn is_path(text: &str) -> bool {
    text.starts_with('/') || text.ends_with(".sock")
}

/// Host (with its brackets) and what follows the colon.
fn split(text: &str) -> Option<(&str, Option<&str>)> {
    if text.starts_with('[') {
        let end = text.find(']')? + 1;
        let (host, rest) = text.split_at(end);
        return match rest.strip_prefix(':') {
            Some(port) => Some((host, Some(port))),
            None if rest.is_empty() => Some((host, None)),
            None => None,
        };
    }
    match text.split_once(':') {
        Some((host, port)) => Some((host, Some(port))),
        None => Some((text, None)),
    }
}

fn parse_port(text: &str) -> Option<u16> {
    if text.is_empty() || text.len() > 5 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|port| *port > 0)
}

/// Whether it can be a host: no blanks, controls or separators; between brackets an IPv6 address with an optional zone.
fn is_host(host: &str) -> bool {
    if let Some(inner) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        let (address, zone) = inner.split_once('%').map_or((inner, None), |(address, zone)| (address, Some(zone)));
        return address.parse::<core::net::Ipv6Addr>().is_ok()
            && zone.is_none_or(|zone| !zone.is_empty() && is_plain(zone));
    }
    is_plain(host)
}

fn is_plain(host: &str) -> bool {
    host.bytes().all(|byte| byte > b' ' && byte != 0x7f && !b"/\\@?#[]:,\"<>%".contains(&byte))
}
