//! The resolver configuration of the system.
//!
//! Read first: the manual page of `resolv.conf`.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use core::time::Duration;

/// The port of name servers.
pub const DNS_PORT: u16 = 53;

/// Maximum number of name servers that are queried.
const SERVERS_MAX: usize = 3;
/// Maximum number of search domains.
const SEARCH_MAX: usize = 32;
/// Maximum timeout for a server, in seconds.
const TIMEOUT_MAX: u32 = 30;
/// Maximum number of queries to each server.
const ATTEMPTS_MAX: u32 = 5;
/// Maximum value of `ndots`.
const DOTS_MAX: u32 = 15;

/// The name servers, the order in which they are queried, and the timeouts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolverConfig {
    /// The servers, in order. Only the first three are queried.
    pub servers: Vec<SocketAddr>,
    /// The timeout for a reply of a server. Default 5 s.
    pub timeout: Duration,
    /// Number of passes over the servers. Default 2.
    pub attempts: u32,
    /// Whether lookups begin with different servers. Default false.
    pub rotate: bool,
    /// Whether to use TCP for all queries. Default false.
    pub tcp: bool,
    /// Search domains for incomplete host names. Not used for names of `mongodb+srv://`, which are
    /// complete.
    pub search: Vec<String>,
    /// A name with at least this number of dots is looked up unchanged before the search domains
    /// are used. Default 1.
    pub dots: u32,
}

impl ResolverConfig {
    /// Uses these servers, and defaults for all other settings.
    #[must_use]
    pub fn new(servers: Vec<SocketAddr>) -> Self {
        Self {
            servers,
            timeout: Duration::from_secs(5),
            attempts: 2,
            rotate: false,
            tcp: false,
            search: Vec::new(),
            dots: 1,
        }
    }

    /// Parses a `resolv.conf`. Invalid lines are ignored, as in other resolvers; if no server is
    /// listed, the one on this host is used.
    ///
    /// A server with a scope is accepted if the scope is numeric. Options out of range are clamped.
    ///
    /// Cost: linear in the text.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut config = Self::new(Vec::new());
        for line in text.lines() {
            // A comment may begin a line, or follow a value.
            let line = line.split(['#', ';']).next().unwrap_or_default();
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("nameserver") if config.servers.len() < SERVERS_MAX => {
                    config.servers.extend(words.next().and_then(server));
                }
                // The last line of `search` or `domain` applies.
                Some("search") => config.search = words.take(SEARCH_MAX).filter_map(domain).collect(),
                Some("domain") => config.search = words.take(1).filter_map(domain).collect(),
                Some("options") => words.for_each(|word| config.option(word)),
                Some(_) | None => {}
            }
        }
        if config.servers.is_empty() {
            config.servers.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), DNS_PORT));
        }
        config
    }

    fn option(&mut self, word: &str) {
        let (name, value) = word.split_once(':').unwrap_or((word, ""));
        // A number beyond `u32` becomes `u32::MAX` and is then clamped.
        let number = (!value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| value.parse::<u32>().unwrap_or(u32::MAX));
        match (name, number) {
            ("timeout", Some(seconds)) => self.timeout = Duration::from_secs(seconds.clamp(1, TIMEOUT_MAX).into()),
            ("attempts", Some(attempts)) => self.attempts = attempts.clamp(1, ATTEMPTS_MAX),
            ("ndots", Some(dots)) => self.dots = dots.min(DOTS_MAX),
            ("rotate", None) => self.rotate = true,
            ("use-vc", None) => self.tcp = true,
            _ => {}
        }
    }

    /// The servers to query, in order.
    pub(super) fn servers(&self) -> &[SocketAddr] {
        self.servers.get(..SERVERS_MAX).unwrap_or(&self.servers)
    }

    /// The complete names to try for a host name, in order. A trailing dot marks a name as
    /// complete.
    #[must_use]
    pub fn candidates(&self, host: &str) -> Vec<String> {
        if let Some(complete) = host.strip_suffix('.') {
            return Vec::from([complete.into()]);
        }
        let mut names: Vec<String> = self.search.iter().map(|domain| format!("{host}.{domain}")).collect();
        let dots = host.bytes().filter(|byte| *byte == b'.').count();
        let first = u32::try_from(dots).is_ok_and(|dots| dots >= self.dots);
        names.insert(if first { 0 } else { names.len() }, host.into());
        names
    }
}

impl Default for ResolverConfig {
    /// The configuration of a system without `resolv.conf`: the server on this host.
    fn default() -> Self {
        Self::parse("")
    }
}

/// A search domain; `None` for the root, which would not change a name.
fn domain(word: &str) -> Option<String> {
    let word = word.strip_suffix('.').unwrap_or(word);
    (!word.is_empty()).then(|| word.into())
}

/// An address, optionally with a scope.
fn server(word: &str) -> Option<SocketAddr> {
    if let Ok(address) = word.parse::<IpAddr>() {
        return Some(SocketAddr::new(address, DNS_PORT));
    }
    let (address, scope) = word.split_once('%')?;
    let address: Ipv6Addr = address.parse().ok()?;
    Some(SocketAddrV6::new(address, DNS_PORT, 0, scope.parse().ok()?).into())
}
