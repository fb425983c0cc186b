//! Server addresses: a lower-case host and a port, or the path of a Unix socket.
//!
//! Read first: SDAM, "address" and "Hostnames are normalized to lower-case";
//! Connection String, "Host Information".

#[cfg(test)]
mod tests;

/// The maximum length of a host name or path, in bytes; for an IPv6 address its brackets are
/// included.
#[doc(hidden)]
pub const HOST_MAX: usize = 255;
/// The maximum length of an address: host, colon and five digits.
const ADDRESS_MAX: usize = HOST_MAX + 6;

/// The address that a runtime connects to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostAddress<'a> {
    /// A TCP address.
    Tcp {
        /// A name, an IPv4 address, or an IPv6 address without brackets.
        host: &'a str,
        /// The port.
        port: u16,
    },
    /// The path of a Unix domain socket.
    Unix(&'a str),
}

impl<'a> HostAddress<'a> {
    /// The default port of MongoDB.
    pub const PORT_DEFAULT: u16 = 27_017;

    /// Parses `host`, `host:port`, `[ipv6]:port`, or a path: a text that begins with `/` or ends in
    /// `.sock`. The port is [`HostAddress::PORT_DEFAULT`] if the text contains none.
    ///
    /// `None` if the text is not an address.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        Self::parse_with_port(text, Self::PORT_DEFAULT)
    }

    /// Parses like [`HostAddress::parse`], with another default port.
    #[must_use]
    pub fn parse_with_port(text: &'a str, port_default: u16) -> Option<Self> {
        if is_path(text) {
            let fits = text.len() <= HOST_MAX && text.bytes().all(|byte| byte >= b' ');
            return fits.then_some(Self::Unix(text));
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').filter(|(host, _)| is_ipv6(host))?;
                (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
            }
            None => {
                let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
                (Some(host).filter(|host| is_name(host))?, port)
            }
        };
        Some(Self::Tcp { host, port: port.map_or(Some(port_default), parse_port)? })
    }
}

/// An address in normal form, on the stack.
pub(crate) struct Address {
    bytes: [u8; ADDRESS_MAX],
    len: u16,
}

impl Address {
    /// Converts `text` to normal form: the host in lower case with its port, IPv6 in brackets,
    /// paths unchanged. `None` if it is not an address.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut address = Self { bytes: [0; ADDRESS_MAX], len: 0 };
        let (host, port) = match HostAddress::parse(text)? {
            HostAddress::Tcp { host, port } => (host, port),
            HostAddress::Unix(path) => {
                address.push(path.as_bytes());
                return Some(address);
            }
        };
        let (open, close) = if host.contains(':') { ("[", "]:") } else { ("", ":") };
        address.push(open.as_bytes());
        address.push(host.as_bytes());
        address.bytes.make_ascii_lowercase();
        address.push(close.as_bytes());
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

    /// Parses like [`Address::parse`], but rejects paths of Unix sockets. For text from a server or
    /// a name server: only the application may configure a path.
    pub(crate) fn parse_host(text: &str) -> Option<Self> {
        if is_path(text) { None } else { Self::parse(text) }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    fn push(&mut self, bytes: &[u8]) {
        let at = usize::from(self.len);
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.len += u16::try_from(bytes.len()).unwrap_or(0);
    }
}

pub(crate) fn is_path(text: &str) -> bool {
    text.starts_with('/') || text.ends_with(".sock")
}

/// Parses a port: a number from 1 to 65535 in at most five digits.
#[doc(hidden)]
pub fn parse_port(text: &str) -> Option<u16> {
    let is_digits = (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_digits && *port > 0)
}

/// Whether the text can be a name or an IPv4 address: no blanks, control characters, separators or
/// other characters that are unsafe in logs.
#[doc(hidden)]
pub fn is_name(host: &str) -> bool {
    let is_plain = |byte: u8| byte > b' ' && byte != 0x7f && !b"/\\@?#[]:,\"<>%".contains(&byte);
    (1..=HOST_MAX).contains(&host.len())
        && host.bytes().all(is_plain)
        && (host.is_ascii() || !host.chars().any(poolhouse_wire::peer_text::is_unsafe))
}

/// Whether the text is an IPv6 address, with or without a zone.
#[doc(hidden)]
pub fn is_ipv6(host: &str) -> bool {
    let (address, zone) = host.split_once('%').map_or((host, None), |(address, zone)| (address, Some(zone)));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    host.len() <= HOST_MAX - 2
        && address.parse::<core::net::Ipv6Addr>().is_ok()
        && zone.is_none_or(|zone| !zone.is_empty() && zone.bytes().all(is_plain))
}
