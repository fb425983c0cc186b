//! Addresses of servers: lower-case host and port, or the path of a unix socket.
//!
//! Read first: SDAM, "address" and "Hostnames are normalized to lower-case" (SDAM-04, SDAM-28); Connection String, "Host Information".

#[cfg(test)]
mod tests;

/// The longest host name or path, in bytes; of an IPv6 address with its brackets.
#[doc(hidden)]
pub const HOST_MAX: usize = 255;
/// A host, a colon and five digits.
const ADDRESS_MAX: usize = HOST_MAX + 6;

/// The address of a server: what a runtime connects to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostAddress<'a> {
    /// By TCP.
    Tcp {
        /// A name, an IPv4 address, or an IPv6 address without brackets.
        host: &'a str,
        /// The port.
        port: u16,
    },
    /// By the Unix domain socket at this path.
    Unix(&'a str),
}

impl<'a> HostAddress<'a> {
    /// MongoDB's port, of a host that names none.
    pub const PORT_DEFAULT: u16 = 27_017;

    /// Reads `host`, `host:port`, `[ipv6]:port`, or a path: a text that begins with `/` or ends in `.sock`. The port of a host that
    /// names none is [`HostAddress::PORT_DEFAULT`].
    ///
    /// `None` when the text is no address.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        Self::parse_with_port(text, Self::PORT_DEFAULT)
    }

    /// The same, with another port for a host that names none.
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

/// An address in its normal form, on the stack.
pub(crate) struct Address {
    bytes: [u8; ADDRESS_MAX],
    len: u16,
}

impl Address {
    /// The normal form of `text`: host in lower case with its port, IPv6 in brackets, paths untouched. `None` when it is no address.
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

    /// As [`Address::parse`], for a text of a server or of a name server. The path of a unix socket is none: only the application names those.
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

/// A number from 1 to 65535 in at most five digits.
#[doc(hidden)]
pub fn parse_port(text: &str) -> Option<u16> {
    let is_digits = (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_digits && *port > 0)
}

/// Whether it can be a name or an IPv4 address: no blanks, controls or separators.
#[doc(hidden)]
pub fn is_name(host: &str) -> bool {
    let is_plain = |byte: u8| byte > b' ' && byte != 0x7f && !b"/\\@?#[]:,\"<>%".contains(&byte);
    (1..=HOST_MAX).contains(&host.len()) && host.bytes().all(is_plain)
}

/// Whether it is an IPv6 address, perhaps with a zone.
#[doc(hidden)]
pub fn is_ipv6(host: &str) -> bool {
    let (address, zone) = host.split_once('%').map_or((host, None), |(address, zone)| (address, Some(zone)));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    host.len() <= HOST_MAX - 2
        && address.parse::<core::net::Ipv6Addr>().is_ok()
        && zone.is_none_or(|zone| !zone.is_empty() && zone.bytes().all(is_plain))
}
