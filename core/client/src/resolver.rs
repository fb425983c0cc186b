//! The built-in DNS resolver, on a platform's sockets.
//!
//! Read first: RFC 8305 (Happy Eyeballs Version 2), "Hostname Resolution Query Handling".

#[cfg(test)]
pub(super) mod tests;

use super::fork::{self, ProcessFuture, Socket};
use super::{Platform, SetupError, Stream};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use async_trait::async_trait;
use core::fmt;
use core::future::poll_fn;
use core::net::IpAddr;
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use embedded_io_async::{Read, Write};
use poolhouse_core::{Instant, Reason};
use poolhouse_uri::dns::{
    Answer, Lookup, LookupAction, LookupError, RecordKind, Resolver, ResolverConfig, SrvAnswer, hosts_addresses,
};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The resolver configuration of Unix systems.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The hosts file of Unix systems.
const HOSTS: &str = "/etc/hosts";
/// The maximum number of bytes that are read of a system file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The time to wait for a host's IPv6 addresses once the IPv4 lookup has completed.
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);
/// The receive buffer: larger than any datagram that a query permits.
const DATAGRAM_BYTES_MAX: usize = 4_096;

/// A DNS resolver that queries name servers over UDP, and over TCP if a reply is too long for UDP.
///
/// Each lookup takes at most as long as its configuration allows, whatever the servers reply: 10 s
/// for each name server with the usual configuration. The IPv6 and IPv4 addresses of a host are
/// looked up in parallel; once the IPv4 reply has arrived, the IPv6 lookup has another 50 ms.
/// Nothing is cached.
///
/// Cancel-safe: dropping a lookup cancels it. In the child of a fork, pending lookups fail, and new
/// ones fail unless the [platform](Platform::SURVIVES_FORK) survives a fork
/// ([`LookupError::Other`]).
#[derive(Clone)]
pub struct DnsResolver<P> {
    platform: P,
    config: Option<ResolverConfig>,
    hosts: PathBuf,
}

impl<P: Platform> DnsResolver<P> {
    /// Creates a resolver for the system's name servers: `/etc/resolv.conf` is read at each lookup.
    /// If the file does not exist, the name server on this host is queried. The platform resolves
    /// host addresses, because the system also has other sources for them.
    pub fn new(platform: P) -> Self {
        Self { platform, config: None, hosts: HOSTS.into() }
    }

    /// Creates a resolver for these name servers. It also resolves host addresses: from the
    /// system's hosts file, else from the name servers.
    pub fn with_config(platform: P, config: ResolverConfig) -> Self {
        Self { platform, config: Some(config), hosts: HOSTS.into() }
    }

    /// Queries the name servers until one replies.
    async fn look_up(&self, config: &ResolverConfig, name: &str, kind: RecordKind) -> Result<Answer, LookupError> {
        let mut lookup = Lookup::new(config, name, kind, self.platform.entropy())?;
        // The error of the operating system, if the last attempt failed with one.
        let mut failure = None;
        while !lookup.is_done() {
            let action = lookup.poll_action(self.platform.now(), self.secret()?);
            let Some(until) = lookup.poll_timeout() else { continue };
            let Some(action) = action else {
                // The deadline of the current attempt has not passed: a timer fired early and
                // dropped the attempt's future. Wait for the remaining time.
                self.platform.sleep_until(until).await;
                lookup.handle_timeout(self.platform.now());
                continue;
            };
            match before(&self.platform, until, self.attempt(&mut lookup, action, until)).await {
                Some(Ok(())) => failure = None,
                Some(Err(error)) => {
                    lookup.handle_failed();
                    failure = Some(error);
                }
                None => {
                    lookup.handle_timeout(self.platform.now());
                    failure = None;
                }
            }
        }
        match (lookup.into_result(), failure) {
            (Err(LookupError::Unreachable(_)), Some(error)) => Err(LookupError::Unreachable(Reason::new(error))),
            (result, _) => result,
        }
    }

    /// Runs one attempt, until the lookup starts another one or is done.
    async fn attempt(&self, lookup: &mut Lookup, action: LookupAction, until: Instant) -> io::Result<()> {
        let platform = &self.platform;
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        match action {
            LookupAction::Datagram(server) => {
                let socket = platform.connect_udp(server).await?;
                platform.send_udp(&socket, lookup.request()).await?;
                while lookup.poll_timeout() == Some(until) {
                    let length = platform.receive_udp(&socket, &mut buffer).await?;
                    lookup.handle_datagram(platform.now(), server, buffer.get(..length).unwrap_or(&buffer));
                }
            }
            LookupAction::Stream(server) => {
                let mut stream = Stream::<P>::Tcp(Socket::new(platform.connect_tcp(server).await?));
                stream.write_all(lookup.stream_request()).await?;
                while lookup.poll_timeout() == Some(until) {
                    let length = stream.read(&mut buffer).await?;
                    lookup.handle_stream(platform.now(), buffer.get(..length).unwrap_or(&buffer));
                }
            }
        }
        Ok(())
    }

    fn secret(&self) -> Result<u32, LookupError> {
        let mut bytes = [0; 4];
        match self.platform.fill_secret(&mut bytes) {
            Ok(()) => Ok(u32::from_ne_bytes(bytes)),
            Err(_) => Err(LookupError::Other("the operating system supplied no random bytes".into())),
        }
    }

    async fn ask(&self, name: &str, kind: RecordKind) -> Result<Answer, LookupError> {
        match &self.config {
            Some(config) => self.look_up(config, name, kind).await,
            None => self.look_up(&ResolverConfig::parse(&read(Path::new(RESOLV_CONF))), name, kind).await,
        }
    }

    /// Looks up the addresses of one family; an empty reply is an error.
    async fn addresses_of(
        &self,
        config: &ResolverConfig,
        name: &str,
        kind: RecordKind,
    ) -> Result<Vec<IpAddr>, LookupError> {
        match self.look_up(config, name, kind).await? {
            Answer::Addresses(found) if !found.is_empty() => Ok(found),
            Answer::Addresses(_) | Answer::Srv(_) | Answer::Txt(_) => Err(LookupError::NoRecords),
        }
    }

    /// Returns the addresses of a host from the hosts file, else those of the first candidate name
    /// that has any.
    async fn addresses(&self, config: &ResolverConfig, host: &str) -> Result<Vec<IpAddr>, LookupError> {
        let known = hosts_addresses(&read(&self.hosts), host);
        if !known.is_empty() {
            return Ok(known);
        }
        let mut error = LookupError::NoSuchName;
        for name in config.candidates(host) {
            let of = |kind| self.addresses_of(config, &name, kind);
            match both_families(&self.platform, of(RecordKind::Aaaa), of(RecordKind::A)).await {
                Ok(found) => return Ok(found),
                Err(failed) => error = failed,
            }
            // Only a "not found" error permits the next candidate: after any other error, this name
            // may exist.
            if !error.is_not_found() {
                break;
            }
        }
        Err(error)
    }
}

#[async_trait]
impl<P: Platform> Resolver for DnsResolver<P> {
    async fn lookup_srv(&self, name: &str) -> Result<SrvAnswer, LookupError> {
        match in_this_process::<P, _>(self.ask(name, RecordKind::Srv)).await? {
            Answer::Srv(answer) => Ok(answer),
            Answer::Txt(_) | Answer::Addresses(_) => Err(LookupError::NoRecords),
        }
    }

    async fn lookup_txt(&self, name: &str) -> Result<Vec<String>, LookupError> {
        match in_this_process::<P, _>(self.ask(name, RecordKind::Txt)).await? {
            Answer::Txt(texts) => Ok(texts),
            Answer::Srv(_) | Answer::Addresses(_) => Err(LookupError::NoRecords),
        }
    }

    async fn lookup_addresses(&self, host: &str) -> Option<Result<Vec<IpAddr>, LookupError>> {
        match &self.config {
            Some(config) => Some(in_this_process::<P, _>(self.addresses(config, host)).await),
            None => None,
        }
    }
}

impl<P> fmt::Debug for DnsResolver<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DnsResolver").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Runs a lookup if the platform can be used in this process. In the child of a later fork, the
/// lookup fails.
async fn in_this_process<P: Platform, T>(
    lookup: impl Future<Output = Result<T, LookupError>>,
) -> Result<T, LookupError> {
    let forked = || LookupError::Other(alloc::format!("{}", SetupError::Forked));
    fork::begin::<P>().map_err(|_| forked())?;
    ProcessFuture::new(lookup).await.unwrap_or_else(|| Err(forked()))
}

/// Joins the results of both address families, IPv6 first.
///
/// Some servers never reply to IPv6 queries. Once the IPv4 lookup has returned addresses or
/// `NoSuchName`, the IPv6 lookup has another [`RESOLUTION_DELAY`]. The IPv4 lookup has no such
/// limit, so one lost packet cannot reduce a host to its IPv6 addresses.
async fn both_families<P: Platform>(
    platform: &P,
    six: impl Future<Output = Result<Vec<IpAddr>, LookupError>>,
    four: impl Future<Output = Result<Vec<IpAddr>, LookupError>>,
) -> Result<Vec<IpAddr>, LookupError> {
    let (mut six, mut four) = (pin!(six), pin!(four));
    let mut six_found = None;
    let four_found = poll_fn(|context| {
        if six_found.is_none() {
            if let Poll::Ready(found) = six.as_mut().poll(context) {
                six_found = Some(found);
            }
        }
        four.as_mut().poll(context)
    })
    .await;
    let six_found = match (six_found, &four_found) {
        (Some(found), _) => found,
        (None, Ok(_) | Err(LookupError::NoSuchName)) => {
            let until = platform.now().saturating_add(RESOLUTION_DELAY);
            before(platform, until, six).await.unwrap_or(Err(LookupError::Timeout))
        }
        (None, Err(_)) => six.await,
    };
    match (six_found, four_found) {
        (Ok(mut found), four_found) => {
            found.extend(four_found.unwrap_or_default());
            Ok(found)
        }
        (Err(_), Ok(found)) => Ok(found),
        // `NoRecords`: the name exists without IPv4 addresses, so the error of the IPv6 lookup
        // decides.
        (Err(error), Err(LookupError::NoRecords)) => Err(error),
        (Err(_), Err(error)) => Err(error),
    }
}

/// Polls a future until `at`; returns `None` if it is still pending then. Each poll also compares
/// the clock, so the result does not depend on the timer alone.
pub(super) async fn before<P: Platform, T>(platform: &P, at: Instant, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut expiry = pin!(platform.sleep_until(at));
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending if platform.now() >= at => Poll::Ready(None),
        Poll::Pending => expiry.as_mut().poll(context).map(|()| None),
    })
    .await
}

/// Reads a text file of the system; returns an empty string if that fails. A blocking read is
/// acceptable: such files are short and usually cached in memory.
fn read(path: &Path) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
    if read.is_err() {
        bytes.clear();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
