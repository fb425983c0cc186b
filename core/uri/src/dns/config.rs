//! Where and how to ask: the resolver configuration of the system.
//!
//! Read first: the manual page of `resolv.conf`.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use core::time::Duration;

/// The port of name servers.
pub const DNS_PORT: u16 = 53;

/// The most name servers that are asked.
const SERVERS_MAX: usize = 3;
/// The most domains that are searched.
const SEARCH_MAX: usize = 32;
/// The longest time that a server has, in seconds.
const TIMEOUT_MAX: u32 = 30;
/// How often each server is asked at most.
const ATTEMPTS_MAX: u32 = 5;
/// The most dots that can be asked for.
const DOTS_MAX: u32 = 15;

/// Which name servers to ask, in which order and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolverConfig {
    /// The servers, in their order. The first three are asked.
    pub servers: Vec<SocketAddr>,
    /// How long one server has for one answer. Default 5 s.
    pub timeout: Duration,
    /// How often the servers are gone through. Default 2.
    pub attempts: u32,
    /// Whether the servers take turns in being the first. Default false.
    pub rotate: bool,
    /// Whether to ask over TCP in the first place. Default false.
    pub tcp: bool,
    /// Domains in which incomplete names are looked for. Names of `mongodb+srv://` are complete: these are for hosts.
    pub search: Vec<String>,
    /// A name with so many dots is looked up as it is first, and in the domains only then. Default 1.
    pub dots: u32,
}

impl ResolverConfig {
    /// Asks these servers, and all else by default.
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

    /// Reads a `resolv.conf`. What is not understood is passed over, as every resolver does; without a server the one on this host is asked.
    ///
    /// A server with a scope counts if the scope is a number. Out of range options are taken to the end of their range.
    ///
    /// Cost: linear in the text.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut config = Self::new(Vec::new());
        for line in text.lines() {
            // A comment begins a line, or follows a value.
            let line = line.split(['#', ';']).next().unwrap_or_default();
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("nameserver") if config.servers.len() < SERVERS_MAX => {
                    config.servers.extend(words.next().and_then(server));
                }
                // The last of these lines counts.
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
        // Digits beyond what a number can hold mean much.
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

    /// The servers to ask, the first one first.
    pub(super) fn servers(&self) -> &[SocketAddr] {
        self.servers.get(..SERVERS_MAX).unwrap_or(&self.servers)
    }

    /// The complete names that a host's name may stand for, in the order to try them. A dot at its end says that it is complete.
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
    /// Of a system that has no configuration: the server on this host.
    fn default() -> Self {
        Self::parse("")
    }
}

/// A domain to search in; the root adds nothing to a name.
fn domain(word: &str) -> Option<String> {
    let word = word.strip_suffix('.').unwrap_or(word);
    (!word.is_empty()).then(|| word.into())
}

/// An address, perhaps with a scope.
fn server(word: &str) -> Option<SocketAddr> {
    if let Ok(address) = word.parse::<IpAddr>() {
        return Some(SocketAddr::new(address, DNS_PORT));
    }
    let (address, scope) = word.split_once('%')?;
    let address: Ipv6Addr = address.parse().ok()?;
    Some(SocketAddrV6::new(address, DNS_PORT, 0, scope.parse().ok()?).into())
}
