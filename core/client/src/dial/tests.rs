//! Dialing on virtual time: a platform whose addresses accept, refuse or never answer, as the test
//! configures them.

use super::*;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use core::net::IpAddr;
use core::task::Waker;
use futures_io::{AsyncRead, AsyncWrite};
use poolhouse_core::{HostAddress, Instant};
use poolhouse_driver::{ConnectError, Runtime};
use poolhouse_uri::dns::{LookupError, Resolver, SrvAnswer};
use std::path::Path;
use std::sync::Mutex;

/// How an address reacts to an attempt.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Accepts { after_ms: u64 },
    Refuses { after_ms: u64 },
    Fails { after_ms: u64, kind: io::ErrorKind },
    Never,
}
use Answer::{Accepts, Fails, Never, Refuses};

#[derive(Debug, Default)]
struct Rig {
    now_ms: u64,
    /// The times of pending sleeps.
    alarms: Vec<u64>,
    hosts: Vec<(&'static str, Vec<SocketAddr>)>,
    answers: Vec<(SocketAddr, Answer)>,
    /// The attempts, each with its start time.
    begun: Vec<(u64, SocketAddr)>,
    under_way: usize,
    resolved: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Mock {
    rig: Arc<Mutex<Rig>>,
}

impl Mock {
    fn with<T>(&self, f: impl FnOnce(&mut Rig) -> T) -> T {
        f(&mut self.rig.lock().expect("not poisoned"))
    }

    /// Runs a future, and advances the clock while the future is pending. `None` if it would wait
    /// forever.
    pub(crate) fn run<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return Some(output);
            }
            let moved = self.with(|rig| {
                let next = rig.alarms.iter().copied().filter(|at| *at > rig.now_ms).min();
                rig.now_ms = next.unwrap_or(rig.now_ms);
                next.is_some()
            });
            if !moved {
                return None;
            }
        }
    }

    /// Connects to one of these addresses. Returns the end time and the result.
    fn connect(&self, answers: &[(&str, Answer)]) -> Option<(u64, io::Result<SocketAddr>)> {
        let answers: Vec<_> = answers.iter().map(|(address, answer)| (socket_address(address), *answer)).collect();
        let addresses: Vec<_> = answers.iter().map(|(address, _)| *address).collect();
        self.with(|rig| rig.answers = answers);
        let result = self.run(connect_any(self, &addresses))?;
        assert_eq!(self.with(|rig| rig.under_way), 0, "attempts are left");
        Some((self.with(|rig| rig.now_ms), result.map(|socket| socket.0)))
    }

    /// The attempts so far.
    fn begun(&self) -> Vec<(u64, String)> {
        self.with(|rig| rig.begun.iter().map(|(at, address)| (*at, address.to_string())).collect())
    }
}

/// Counts an attempt until it is dropped.
struct UnderWay(Mock);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.with(|rig| rig.under_way -= 1);
    }
}

/// A socket that stores the address of its peer.
#[derive(Debug)]
pub(crate) struct Socket(SocketAddr);

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut [u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(0))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Platform for Mock {
    const DRIVER_NAME: &'static str = "mock";
    const DRIVER_VERSION: &'static str = "0";
    const PLATFORM_NAME: &'static str = "mock";

    type Tcp = Socket;
    type Unix = Socket;
    type Udp = ();
    type Task = ();

    fn now(&self) -> Instant {
        Instant::from_nanos(self.with(|rig| rig.now_ms) * 1_000_000)
    }

    async fn sleep_until(&self, at: Instant) {
        let at_ms = at.as_nanos().div_ceil(1_000_000);
        poll_fn(|_| {
            self.with(|rig| {
                rig.alarms.push(at_ms);
                if rig.now_ms >= at_ms { Poll::Ready(()) } else { Poll::Pending }
            })
        })
        .await;
    }

    async fn resolve(&self, host: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        self.with(|rig| rig.resolved.push(host.to_string()));
        if host.starts_with("silent") {
            return pending().await;
        }
        self.with(|rig| {
            let known = rig.hosts.iter().find(|(name, _)| *name == host);
            known.map(|(_, addresses)| addresses.clone()).ok_or_else(|| io::ErrorKind::NotFound.into())
        })
    }

    async fn connect_tcp(&self, address: SocketAddr) -> io::Result<Socket> {
        let (now_ms, answer) = self.with(|rig| {
            rig.begun.push((rig.now_ms, address));
            rig.under_way += 1;
            let answer = rig.answers.iter().find(|(known, _)| *known == address).map(|(_, answer)| *answer);
            (rig.now_ms, answer.expect("an address that the test knows"))
        });
        let _under_way = UnderWay(self.clone());
        let at_ms = |after_ms: u64| Instant::from_nanos((now_ms + after_ms) * 1_000_000);
        match answer {
            Accepts { after_ms } => {
                self.sleep_until(at_ms(after_ms)).await;
                Ok(Socket(address))
            }
            Refuses { after_ms } => {
                self.sleep_until(at_ms(after_ms)).await;
                Err(io::Error::other(address.to_string()))
            }
            Fails { after_ms, kind } => {
                self.sleep_until(at_ms(after_ms)).await;
                Err(kind.into())
            }
            Never => pending().await,
        }
    }

    async fn connect_unix(&self, path: &Path) -> io::Result<Socket> {
        assert_eq!(path, Path::new("/a.sock"));
        Ok(Socket(socket_address("0.0.0.0:0")))
    }

    async fn connect_udp(&self, _: SocketAddr) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn send_udp(&self, (): &(), _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn receive_udp(&self, (): &(), _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn spawn<F>(&self, _: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
    }
}

fn socket_address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn log(entries: &[(u64, &str)]) -> Vec<(u64, String)> {
    entries.iter().map(|(at, address)| (*at, (*address).to_string())).collect()
}

#[test]
fn address_that_accepts_at_once_is_the_only_one_dialed() {
    let mock = Mock::default();
    let (at, socket) = mock
        .connect(&[("10.0.0.1:1", Accepts { after_ms: 249 }), ("10.0.0.2:1", Accepts { after_ms: 0 })])
        .expect("an end");
    assert_eq!((at, socket.expect("connected")), (249, socket_address("10.0.0.1:1")));
    assert_eq!(mock.begun(), log(&[(0, "10.0.0.1:1")]));
}

#[test]
fn silent_address_delays_the_next_attempt_by_250_ms() {
    let mock = Mock::default();
    let (at, socket) = mock
        .connect(&[("10.0.0.1:1", Never), ("10.0.0.2:1", Never), ("10.0.0.3:1", Accepts { after_ms: 10 })])
        .expect("an end");
    assert_eq!((at, socket.expect("connected")), (510, socket_address("10.0.0.3:1")));
    assert_eq!(mock.begun(), log(&[(0, "10.0.0.1:1"), (250, "10.0.0.2:1"), (500, "10.0.0.3:1")]));
}

#[test]
fn slow_address_is_used_if_the_others_do_not_accept() {
    let mock = Mock::default();
    let (at, socket) = mock
        .connect(&[
            ("10.0.0.1:1", Accepts { after_ms: 700 }),
            ("10.0.0.2:1", Never),
            ("10.0.0.3:1", Refuses { after_ms: 1 }),
        ])
        .expect("an end");
    assert_eq!((at, socket.expect("connected")), (700, socket_address("10.0.0.1:1")));
}

#[test]
fn refusing_address_delays_no_attempt() {
    let mock = Mock::default();
    let (at, socket) = mock
        .connect(&[
            ("10.0.0.1:1", Refuses { after_ms: 3 }),
            ("10.0.0.2:1", Refuses { after_ms: 4 }),
            ("10.0.0.3:1", Accepts { after_ms: 5 }),
        ])
        .expect("an end");
    assert_eq!((at, socket.expect("connected")), (12, socket_address("10.0.0.3:1")));
    assert_eq!(mock.begun(), log(&[(0, "10.0.0.1:1"), (3, "10.0.0.2:1"), (7, "10.0.0.3:1")]));
}

/// A host may have an IPv4 and an IPv6 address of which this machine can reach only one.
#[test]
fn unreachable_network_of_one_address_does_not_hide_the_error_of_another() {
    use io::ErrorKind::{ConnectionRefused, NetworkUnreachable};
    let fails = |after_ms, kind| Fails { after_ms, kind };
    for (first, second, expected) in [
        (ConnectionRefused, NetworkUnreachable, ConnectionRefused),
        (NetworkUnreachable, ConnectionRefused, ConnectionRefused),
        (NetworkUnreachable, NetworkUnreachable, NetworkUnreachable),
    ] {
        let mock = Mock::default();
        let answers = [("10.0.0.1:1", fails(1, first)), ("[::2]:1", fails(1, second))];
        let (_, socket) = mock.connect(&answers).expect("an end");
        assert_eq!(socket.map_err(|error| error.kind()), Err(expected));
    }
}

#[test]
fn success_is_preferred_to_a_simultaneous_failure() {
    let mock = Mock::default();
    let answers = [
        ("10.0.0.1:1", Refuses { after_ms: 260 }),
        ("10.0.0.2:1", Accepts { after_ms: 10 }),
        ("10.0.0.3:1", Accepts { after_ms: 0 }),
    ];
    let (at, socket) = mock.connect(&answers).expect("an end");
    assert_eq!((at, socket.expect("connected")), (260, socket_address("10.0.0.2:1")));
    assert_eq!(mock.begun(), log(&[(0, "10.0.0.1:1"), (250, "10.0.0.2:1")]));
}

#[test]
fn families_alternate_beginning_with_the_first() {
    let mock = Mock::default();
    let answers = ["[::1]:1", "[::2]:1", "[::3]:1", "10.0.0.1:1"].map(|address| (address, Refuses { after_ms: 0 }));
    let (_, result) = mock.connect(&answers).expect("an end");
    // The last error is returned.
    assert_eq!(result.expect_err("all refuse").to_string(), "[::3]:1");
    assert_eq!(mock.begun(), log(&[(0, "[::1]:1"), (0, "10.0.0.1:1"), (0, "[::2]:1"), (0, "[::3]:1")]));
    let of = |texts: &[&str]| texts.iter().map(|text| socket_address(text)).collect::<Vec<_>>();
    let sorted: Vec<_> = interleaved(&of(&["10.0.0.1:1", "10.0.0.2:1", "[::1]:1"])).collect();
    assert_eq!(sorted, of(&["10.0.0.1:1", "[::1]:1", "10.0.0.2:1"]));
}

#[test]
fn dropped_connect_drops_every_attempt() {
    let mock = Mock::default();
    assert!(mock.connect(&[("10.0.0.1:1", Never), ("[::1]:1", Never)]).is_none());
    // The future was dropped, as the driver does at its deadline.
    assert_eq!((mock.begun().len(), mock.with(|rig| rig.under_way)), (2, 0));
}

#[test]
fn attempts_are_bounded_however_many_addresses_there_are() {
    let mock = Mock::default();
    let texts: Vec<String> = (0..1000).map(|index| alloc::format!("10.0.{}.{}:1", index / 250, index % 250)).collect();
    let answers: Vec<_> = texts.iter().map(|text| (text.as_str(), Never)).collect();
    assert!(mock.connect(&answers).is_none());
    assert_eq!(mock.begun().len(), ATTEMPTS_MAX);
}

#[test]
fn no_address_is_an_error() {
    let mock = Mock::default();
    let (_, result) = mock.connect(&[]).expect("an end");
    assert_eq!(result.expect_err("nobody to connect to").kind(), io::ErrorKind::NotFound);
}

#[test]
fn address_is_resolved_only_when_it_is_a_name() {
    let mock = Mock::default();
    let net = super::super::Net::new(mock.clone());
    let address = socket_address("10.0.0.1:7");
    mock.with(|rig| {
        rig.hosts = vec![("a.test", vec![address]), ("empty.test", vec![])];
        rig.answers = vec![(address, Accepts { after_ms: 0 }), (socket_address("[::1]:7"), Refuses { after_ms: 0 })];
    });
    let connect = |address: HostAddress<'_>| {
        let outcome = mock.run(net.connect(&address, None)).expect("an end");
        outcome.map(drop).map_err(|ConnectError { cause, .. }| cause)
    };
    let tcp = |host| HostAddress::Tcp { host, port: 7 };
    assert_eq!(connect(tcp("10.0.0.1")), Ok(()));
    assert_eq!(connect(tcp("::1")), Err(poolhouse_core::Cause::Network));
    assert_eq!(connect(HostAddress::Unix("/a.sock")), Ok(()));
    assert!(mock.with(|rig| rig.resolved.is_empty()));
    assert_eq!(connect(tcp("a.test")), Ok(()));
    assert_eq!(connect(tcp("empty.test")), Err(poolhouse_core::Cause::Dns));
    assert_eq!(connect(tcp("b.test")), Err(poolhouse_core::Cause::Dns));
    assert_eq!(mock.with(|rig| rig.resolved.clone()), ["a.test", "empty.test", "b.test"]);
}

/// A lookup that takes until the deadline fails with [`poolhouse_core::Cause::Dns`].
/// `connect` does not limit the time of dialing; the driver does.
#[test]
#[doc(alias = "CMAP-97")]
fn lookup_that_reaches_the_deadline_is_a_dns_failure() {
    let deadline = |ms: u64| Some(Instant::from_nanos(ms * 1_000_000));
    let tcp = |host| HostAddress::Tcp { host, port: 7 };
    for with_resolver in [false, true] {
        let mock = Mock::default();
        let resolver = with_resolver.then(|| Arc::new(Silent) as Arc<dyn Resolver>);
        let net = super::super::Net::new(mock.clone()).with_resolver(resolver);
        let outcome = mock.run(net.connect(&tcp("silent.test"), deadline(700))).expect("an end");
        assert_eq!(outcome.map(drop), Err(poolhouse_core::Cause::Dns.into()));
        assert_eq!(mock.with(|rig| rig.now_ms), 700);
        assert!(mock.run(net.connect(&tcp("silent.test"), None)).is_none(), "it waits for ever");
    }
    let mock = Mock::default();
    let net = super::super::Net::new(mock.clone());
    let address = socket_address("10.0.0.1:7");
    mock.with(|rig| rig.answers = vec![(address, Accepts { after_ms: 900 })]);
    let outcome = mock.run(net.connect(&tcp("10.0.0.1"), deadline(700))).expect("an end");
    assert_eq!(outcome.map(drop), Ok(()));
}

/// An attempt to connect for each second, as a monitor and a pool make them.
#[test]
fn lookups_that_hang_are_one_for_each_host_and_four_for_a_client() {
    let mock = Mock::default();
    let net = super::super::Net::new(mock.clone());
    let hosts = ["silent1.test", "silent2.test", "silent3.test", "silent4.test", "silent5.test"];
    for second in 1..=20 {
        for (place, host) in hosts.iter().enumerate() {
            let deadline = Instant::from_nanos((second * 1_000 + place as u64 * 100) * 1_000_000);
            let address = HostAddress::Tcp { host, port: 7 };
            let outcome = mock.run(net.clone().connect(&address, Some(deadline))).expect("its own deadline");
            assert_eq!(outcome.map(drop), Err(poolhouse_core::Cause::Dns.into()));
            assert_eq!(mock.now(), deadline);
        }
    }
    assert_eq!(mock.with(|rig| rig.resolved.clone()), hosts[..4]);
}

/// A user's resolver that never answers.
#[derive(Debug)]
struct Silent;

#[async_trait::async_trait]
impl Resolver for Silent {
    async fn lookup_srv(&self, _: &str) -> Result<SrvAnswer, LookupError> {
        pending().await
    }

    async fn lookup_txt(&self, _: &str) -> Result<Vec<String>, LookupError> {
        pending().await
    }

    async fn lookup_addresses(&self, _: &str) -> Option<Result<Vec<IpAddr>, LookupError>> {
        pending().await
    }
}

/// A user's resolver that finds no address of any host.
#[derive(Debug)]
struct Empty;

#[async_trait::async_trait]
impl Resolver for Empty {
    async fn lookup_srv(&self, _: &str) -> Result<SrvAnswer, LookupError> {
        Err(LookupError::NoRecords)
    }

    async fn lookup_txt(&self, _: &str) -> Result<Vec<String>, LookupError> {
        Err(LookupError::NoRecords)
    }

    async fn lookup_addresses(&self, _: &str) -> Option<Result<Vec<IpAddr>, LookupError>> {
        Some(Ok(Vec::new()))
    }
}

/// A user's resolver that does not resolve hosts.
#[derive(Debug)]
struct SrvOnly;

#[async_trait::async_trait]
impl Resolver for SrvOnly {
    async fn lookup_srv(&self, _: &str) -> Result<SrvAnswer, LookupError> {
        Err(LookupError::NoRecords)
    }

    async fn lookup_txt(&self, _: &str) -> Result<Vec<String>, LookupError> {
        Err(LookupError::NoRecords)
    }
}

#[test]
fn platform_resolves_hosts_that_the_resolver_does_not() {
    let mock = Mock::default();
    let address = socket_address("10.0.0.1:7");
    mock.with(|rig| {
        rig.hosts = vec![("a.test", vec![address])];
        rig.answers = vec![(address, Accepts { after_ms: 0 })];
    });
    let net = super::super::Net::new(mock.clone()).with_resolver(Some(Arc::new(SrvOnly)));
    let address = HostAddress::Tcp { host: "a.test", port: 7 };
    assert!(mock.run(net.connect(&address, None)).expect("an end").is_ok());
    assert_eq!(mock.with(|rig| rig.resolved.clone()), ["a.test"]);
}

#[test]
fn host_that_is_an_address_is_not_looked_up() {
    let mock = Mock::default();
    let addresses = ["10.0.0.1:7", "[::1]:7"].map(socket_address);
    mock.with(|rig| rig.answers = addresses.map(|address| (address, Accepts { after_ms: 0 })).to_vec());
    // A lookup with this resolver would wait forever.
    let net = super::super::Net::new(mock.clone()).with_resolver(Some(Arc::new(Silent)));
    for host in ["10.0.0.1", "::1"] {
        let connected = mock.run(net.connect(&HostAddress::Tcp { host, port: 7 }, None));
        assert!(connected.expect("an end").is_ok(), "{host}");
    }
    assert_eq!(mock.begun(), log(&[(0, "10.0.0.1:7"), (0, "[::1]:7")]));
}

/// The only intermediary of a Unix domain socket is this machine's kernel.
#[test]
fn kind_of_a_socket_determines_its_debug_text_and_privacy() {
    use super::super::Stream;
    let mock = Mock::default();
    let address = socket_address("10.0.0.1:7");
    mock.with(|rig| rig.answers = vec![(address, Accepts { after_ms: 0 })]);
    let net = super::super::Net::new(mock.clone());
    assert_eq!(std::format!("{net:?}"), "Net { platform: \"mock\", .. }");
    let addresses = [
        (HostAddress::Tcp { host: "10.0.0.1", port: 7 }, "Tcp(..)", false),
        (HostAddress::Unix("/a.sock"), "Unix(..)", true),
    ];
    for (host, shown, is_private) in addresses {
        let stream = mock.run(net.connect(&host, None)).expect("an end").expect("connected");
        assert_eq!((std::format!("{stream:?}").as_str(), net.is_private(&stream)), (shown, is_private));
        let socket = match stream {
            Stream::Tcp(socket) | Stream::Unix(socket) => socket,
            #[cfg(feature = "tls")]
            Stream::Tls(_) => panic!("nobody has asked for it"),
        };
        assert_eq!(std::format!("{socket:?}"), "Socket(..)", "of whom it is connected to nothing");
        assert_eq!(socket.get_ref().is_some_and(|inner| inner.0 == address), !is_private);
    }
}

/// The cause is not one of an overloaded server.
#[test]
#[doc(alias = "CMAP-97")]
fn empty_result_of_a_resolver_is_a_dns_failure() {
    let mock = Mock::default();
    let net = super::super::Net::new(mock.clone()).with_resolver(Some(Arc::new(Empty)));
    let address = HostAddress::Tcp { host: "a.test", port: 7 };
    let outcome = mock.run(net.connect(&address, None)).expect("an end");
    assert_eq!(outcome.map(drop), Err(poolhouse_core::Cause::Dns.into()));
}

#[test]
fn secret_bytes_are_supplied_by_the_system() {
    let mut bytes = [[0; 32]; 2];
    for half in &mut bytes {
        Mock::default().fill_secret(half).expect("the system has some");
    }
    assert_ne!(bytes[0], bytes[1]);
    assert_ne!(bytes[0], [0; 32]);
}
