//! Sessions: the behaviour of requests, connections and pools of a session on any platform, against
//! fake Cassandra nodes.
//!
//! - `dropping`: a request is dropped at each of its polls, in each of its states: granted at once,
//!   queued, sent, answered, retried on the next host.
//! - `ending`: sessions are closed, are dropped, or lose their executor, with requests in flight
//!   and queued, and connections being established.
//! - `panics`: panics of filters, wakers and the platform. Each costs at most one attempt or one
//!   connection; other requests get their own replies.
//! - `crowd`: ten thousand tasks on four connections, and the fairness of their turns.
//! - `faults`: peers that are silent, stop reading, cut connections, send replies in pieces or out
//!   of order, or violate the protocol.
//! - `secure`: large bodies in both directions at once, over TLS.

mod crowd;
mod dropping;
mod ending;
mod faults;
mod panics;
mod secure;

use super::Probe;
use crate::contract::rig::within;
use crate::contract::{Hosted, run_case};
use crate::cql_server::{Act, CqlServer, CqlServerOptions, Order, Rule, cell_of};
use crate::patience::{PATIENCE, eventually};
use crate::suite::Suite;
use core::pin::Pin;
use core::time::Duration;
use futures_lite::future::poll_once;
use poolhouse_client::Platform;
use poolhouse_client::mux::{HostOptions, HostState, MuxOptions, Reply, RequestError, Session, SessionOptions};
use poolhouse_cql::{Compression, Consistency, Version};
use poolhouse_driver::Subscribers;

pub(super) fn add<P: Platform + Default>(suite: Suite) -> Suite {
    let suite = dropping::add::<P>(suite);
    let suite = ending::add::<P>(suite);
    let suite = panics::add::<P>(suite);
    let suite = crowd::add::<P>(suite);
    let suite = faults::add::<P>(suite);
    secure::add::<P>(suite)
}

/// Runs one case within its time limit.
fn run<P: Platform + Default>(case: impl AsyncFnOnce()) {
    run_case(async |_: &Hosted<P>| case().await);
}

/// The protocol format of connections: its name, version and compression.
type Format = (&'static str, Version, Option<Compression>);

const FORMATS: [Format; 4] = [
    ("v3", Version::V3, None),
    ("v4_compressed", Version::V4, Some(Compression::Snappy)),
    ("v5", Version::V5, None),
    ("v5_compressed", Version::V5, Some(Compression::Lz4)),
];

fn speaking(options: SessionOptions, (_, version, compression): Format) -> SessionOptions {
    options.version(version).compressions(compression.into_iter().collect::<Vec<_>>())
}

/// Options without background activity: no heartbeats, no time limits, no shrinking.
const CALM: MuxOptions = MuxOptions {
    pool_timeout: Duration::from_secs(3600),
    heartbeat_interval: Duration::ZERO,
    shrink_interval: Duration::from_secs(3600),
    ..MuxOptions::DEFAULT
};

/// One connection with this maximum number of requests in flight; others can wait.
const fn narrow(max_requests_per_connection: u32) -> MuxOptions {
    let local = HostOptions {
        core_connections: 1,
        max_connections: 1,
        max_requests_per_connection,
        new_connection_threshold: max_requests_per_connection,
    };
    MuxOptions { local, remote: local, ..CALM }
}

fn server() -> CqlServer {
    CqlServer::start(CqlServerOptions::default()).expect("a server")
}

/// Holds replies until they are released.
const fn hold() -> Act {
    Act::Hold { count: usize::MAX, order: Order::Kept }
}

/// A session and its hosts.
struct Rig<P: Platform> {
    servers: Vec<CqlServer>,
    session: Session<Probe<P>>,
    platform: Probe<P>,
}

impl<P: Platform + Default> Rig<P> {
    /// A session with one host. `change` modifies the calm options.
    fn new(change: impl FnOnce(SessionOptions) -> SessionOptions) -> Self {
        Self::of(vec![server()], change)
    }

    /// A session with these hosts. `change` modifies the calm options.
    fn of(servers: Vec<CqlServer>, change: impl FnOnce(SessionOptions) -> SessionOptions) -> Self {
        let platform = Probe::default();
        let session = session(&platform, &servers, change);
        Self { servers, session, platform }
    }

    /// Replaces this session, which has ended, by another one with the same hosts.
    fn renew(&mut self, change: impl FnOnce(SessionOptions) -> SessionOptions) {
        self.session = session(&self.platform, &self.servers, change);
    }

    /// The first host's server.
    fn server(&self) -> &CqlServer {
        &self.servers[0]
    }

    /// The state of a host; the index is that of its server.
    fn state(&self, host: usize) -> HostState {
        self.session.hosts()[host].state
    }

    /// Asserts, right after requests were answered or dropped, that none is in flight and none
    /// waits.
    #[track_caller]
    fn nothing_is_held(&self) {
        for host in 0..self.servers.len() {
            let state = self.state(host);
            assert_eq!((state.in_flight, state.queued), (0, 0), "{state:?}");
        }
    }

    /// Waits until no connection is being established, no late reply is outstanding, and each
    /// server has as many open connections as the session has to it.
    async fn at_rest(&self) {
        let is_quiet = || {
            self.servers.iter().enumerate().all(|(host, server)| {
                let state = self.state(host);
                let under_way = state.in_flight + state.orphaned + state.queued + state.establishing;
                let open = u64::from(state.open + state.trashed + state.retired);
                under_way == 0 && server.counts().open == open
            })
        };
        let begun = std::time::Instant::now();
        while !is_quiet() {
            let seen: Vec<_> = self.servers.iter().map(|server| server.counts().open).collect();
            assert!(begun.elapsed() < PATIENCE, "not at rest: {:?}, {seen:?}", self.session.hosts());
            async_io::Timer::after(Duration::from_millis(1)).await;
        }
    }

    /// Asserts that each host answers the next request with the reply to that request, and is at
    /// rest after it.
    async fn works(&self) {
        for host in 0..self.servers.len() {
            let text = format!("other {host}");
            let found = within(PATIENCE, "it is answered", self.echo_of(host, &text)).await;
            assert_eq!(found.expect("the next request succeeds"), text);
        }
        self.at_rest().await;
    }

    /// [`Rig::works`] after failed attempts to connect: the next attempt is a second later.
    async fn works_again(&self) {
        for host in 0..self.servers.len() {
            let begun = std::time::Instant::now();
            while let Err(error) = self.echo_of(host, "again").await {
                assert!(begun.elapsed() < PATIENCE, "the session did not recover: {error}");
                async_io::Timer::after(Duration::from_millis(10)).await;
            }
        }
        self.works().await;
    }

    /// Waits until every task of the session waits.
    async fn quiet(&self) {
        let mut looks = 0;
        // A woken task is polled within these checks.
        eventually("all tasks wait", || {
            looks = if self.platform.is_quiet() { looks + 1 } else { 0 };
            looks > 5
        })
        .await;
    }

    /// Waits until the server holds this number of replies.
    async fn held(&self, host: usize, count: usize) {
        eventually("replies are held", || self.servers[host].held_count() == count).await;
    }

    async fn echo(&self, text: &str) -> Result<String, RequestError> {
        echo(&self.session, text).await
    }

    /// [`Rig::echo`] on this host only.
    async fn echo_of(&self, host: usize, text: &str) -> Result<String, RequestError> {
        echo_by(&self.session, host, text, None).await
    }

    /// Closes the session: its tasks end, and its servers see all connections closed.
    async fn end(&self) {
        within(PATIENCE, "it is closed", self.session.close()).await;
        self.is_gone().await;
    }

    /// Asserts that no task and no connection of the session is left.
    async fn is_gone(&self) {
        eventually("all tasks have ended", || self.platform.tasks_count() == 0).await;
        let open = || self.servers.iter().map(|server| server.counts().open).sum::<u64>();
        eventually("the servers have no connection", || open() == 0).await;
        self.nothing_is_held();
    }
}

fn session<P: Platform + Default>(
    platform: &Probe<P>,
    servers: &[CqlServer],
    change: impl FnOnce(SessionOptions) -> SessionOptions,
) -> Session<Probe<P>> {
    let options = SessionOptions::new(servers.iter().map(|server| server.address().to_string()))
        .mux(CALM)
        .request_timeout(None)
        .connect_timeout(PATIENCE);
    Session::with_platform(platform.clone(), change(options), Subscribers::default()).expect("valid options")
}

/// Sends a request that is answered with its own text.
async fn echo<P: Platform>(session: &Session<Probe<P>>, text: &str) -> Result<String, RequestError> {
    session.query(&format!("echo {text}")).consistency(Consistency::One).send().await.map(|reply| cell(&reply))
}

/// [`echo`] on one host, with an optional time limit.
async fn echo_by<P: Platform>(
    session: &Session<Probe<P>>,
    host: usize,
    text: &str,
    timeout: Option<Duration>,
) -> Result<String, RequestError> {
    let text = format!("echo {text}");
    let Some(host) = session.hosts().get(host).map(|host| host.id) else { return Err(RequestError::Closed) };
    let hosts = [host];
    let mut call = session.query(&text).consistency(Consistency::One).hosts(&hosts);
    if let Some(timeout) = timeout {
        call = call.timeout(timeout);
    }
    call.send().await.map(|reply| cell(&reply))
}

fn cell(reply: &Reply) -> String {
    let cell = cell_of(reply.body()).expect("a row with a cell");
    String::from_utf8(cell.to_vec()).expect("text")
}

/// A request that was polled and is pending.
type Waiting<'r> = Pin<Box<dyn Future<Output = Result<String, RequestError>> + 'r>>;

/// Starts a request, which must be pending after its first poll.
async fn begun<'r>(request: impl Future<Output = Result<String, RequestError>> + 'r) -> Waiting<'r> {
    let mut request: Waiting<'r> = Box::pin(request);
    assert!(poll_once(&mut request).await.is_none(), "it waits");
    request
}

/// A text of one mebibyte that begins with a number.
fn long(number: usize) -> String {
    format!("{number} {}", "x".repeat(1 << 20))
}

/// A rule that holds the replies to requests whose text begins with `text`.
fn holding(text: &str) -> Rule {
    Rule::statements(hold()).text(&format!("echo {text}"))
}
