//! Sessions: what requests, connections and pools of a session do whatever it runs on, against fake Cassandra nodes.
//!
//! - `dropping`: a request is dropped at each of its polls, wherever it is by then: granted at once, queued, sent, answered, passed on to the next host.
//! - `ending`: sessions that are closed, dropped, or lose their executor, with requests in flight, queued, and connections under way.
//! - `panics`: of filters, wakers and the platform. Each costs one attempt, one connection at most, and nobody else's reply.
//! - `crowd`: ten thousand tasks on four connections, and who has how many turns.
//! - `faults`: peers that are silent, full, cut off, in pieces, out of order, or lie.
//! - `secure`: large bodies both ways at once, over TLS.

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
use poolhouse_client::mux::{
    HostOptions, HostState, MuxOptions, Reply, RequestError, RequestOptions, Session, SessionOptions,
};
use poolhouse_cql::{Compression, Consistency, Parameters, Request, Version};
use poolhouse_driver::Subscribers;

pub(super) fn add<P: Platform + Default>(suite: Suite) -> Suite {
    let suite = dropping::add::<P>(suite);
    let suite = ending::add::<P>(suite);
    let suite = panics::add::<P>(suite);
    let suite = crowd::add::<P>(suite);
    let suite = faults::add::<P>(suite);
    secure::add::<P>(suite)
}

/// One case, within its time.
fn run<P: Platform + Default>(case: impl AsyncFnOnce()) {
    run_case(async |_: &Hosted<P>| case().await);
}

/// What connections speak: a name, and how.
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

/// Nothing happens by itself: no heartbeats, no time limits, no shrinking.
const CALM: MuxOptions = MuxOptions {
    pool_timeout: Duration::from_secs(3600),
    heartbeat_interval: Duration::ZERO,
    shrink_interval: Duration::from_secs(3600),
    ..MuxOptions::DEFAULT
};

/// One connection that takes so many requests at a time, and room for others to wait.
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

/// Replies are kept until they are released.
const fn hold() -> Act {
    Act::Hold { count: usize::MAX, order: Order::Kept }
}

/// A session, and the hosts that it has.
struct Rig<P: Platform> {
    servers: Vec<CqlServer>,
    session: Session<Probe<P>>,
    platform: Probe<P>,
}

impl<P: Platform + Default> Rig<P> {
    /// A session with one host. Its options are calm, with what `change` makes of them.
    fn new(change: impl FnOnce(SessionOptions) -> SessionOptions) -> Self {
        Self::of(vec![server()], change)
    }

    /// A session with these hosts.
    fn of(servers: Vec<CqlServer>, change: impl FnOnce(SessionOptions) -> SessionOptions) -> Self {
        let platform = Probe::default();
        let session = session(&platform, &servers, change);
        Self { servers, session, platform }
    }

    /// Another session with the same hosts takes the place of this one, which has ended.
    fn renew(&mut self, change: impl FnOnce(SessionOptions) -> SessionOptions) {
        self.session = session(&self.platform, &self.servers, change);
    }

    /// The first host's server.
    fn server(&self) -> &CqlServer {
        &self.servers[0]
    }

    /// Of a host: its place is that of its server.
    fn state(&self, host: usize) -> HostState {
        self.session.hosts()[host].state
    }

    /// Right after requests were answered or dropped: none is in flight, none waits.
    #[track_caller]
    fn nothing_is_held(&self) {
        for host in 0..self.servers.len() {
            let state = self.state(host);
            assert_eq!((state.in_flight, state.queued), (0, 0), "{state:?}");
        }
    }

    /// Waits until nothing is under way, no late reply is waited for, and each server has as many connections open as the session has to it.
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

    /// Each host answers the next request with the reply to that, and is at rest after it.
    async fn works(&self) {
        for host in 0..self.servers.len() {
            let text = format!("other {host}");
            let found = within(PATIENCE, "it is answered", self.echo_of(host, &text)).await;
            assert_eq!(found.expect("the next request succeeds"), text);
        }
        self.at_rest().await;
    }

    /// [`Rig::works`], after attempts to connect have failed: the next one is a second later.
    async fn works_again(&self) {
        for host in 0..self.servers.len() {
            let begun = std::time::Instant::now();
            while let Err(error) = self.echo_of(host, "again").await {
                assert!(begun.elapsed() < PATIENCE, "it does not work again: {error}");
                async_io::Timer::after(Duration::from_millis(10)).await;
            }
        }
        self.works().await;
    }

    /// Waits until no task of the session has anything to do.
    async fn quiet(&self) {
        let mut looks = 0;
        // One that is woken is polled within these.
        eventually("all tasks wait", || {
            looks = if self.platform.is_quiet() { looks + 1 } else { 0 };
            looks > 5
        })
        .await;
    }

    /// Waits until so many requests have been kept, of which the reply is held.
    async fn held(&self, host: usize, count: usize) {
        eventually("replies are held", || self.servers[host].held_count() == count).await;
    }

    async fn echo(&self, text: &str) -> Result<String, RequestError> {
        echo(&self.session, text).await
    }

    /// [`Rig::echo`] by this host and no other.
    async fn echo_of(&self, host: usize, text: &str) -> Result<String, RequestError> {
        echo_by(&self.session, host, text, None).await
    }

    /// Closes the session: its tasks end, and its servers see all connections closed.
    async fn end(&self) {
        within(PATIENCE, "it is closed", self.session.close()).await;
        self.is_gone().await;
    }

    /// Nothing is left of the session.
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
    Session::with_platform(platform.clone(), change(options), Subscribers::default()).expect("the options are right")
}

/// A request that is answered with its own text.
async fn echo<P: Platform>(session: &Session<Probe<P>>, text: &str) -> Result<String, RequestError> {
    session.query(&format!("echo {text}"), Consistency::One).await.map(|reply| cell(&reply))
}

/// [`echo`] by one host, within a time if there is one.
async fn echo_by<P: Platform>(
    session: &Session<Probe<P>>,
    host: usize,
    text: &str,
    timeout: Option<Duration>,
) -> Result<String, RequestError> {
    let text = format!("echo {text}");
    let request = Request::Query { text: &text, parameters: Parameters::new(Consistency::One) };
    let Some(host) = session.hosts().get(host).map(|host| host.id) else { return Err(RequestError::Closed) };
    let options = RequestOptions { timeout, hosts: Some(&[host]), ..RequestOptions::default() };
    session.request_with(&request, options).await.map(|reply| cell(&reply))
}

fn cell(reply: &Reply) -> String {
    let cell = cell_of(reply.body()).expect("a row with a cell");
    String::from_utf8(cell.to_vec()).expect("text")
}

/// A request that was begun.
type Waiting<'r> = Pin<Box<dyn Future<Output = Result<String, RequestError>> + 'r>>;

/// Begins a request, which has to wait.
async fn begun<'r>(request: impl Future<Output = Result<String, RequestError>> + 'r) -> Waiting<'r> {
    let mut request: Waiting<'r> = Box::pin(request);
    assert!(poll_once(&mut request).await.is_none(), "it waits");
    request
}

/// A mebibyte that begins with a number.
fn long(number: usize) -> String {
    format!("{number} {}", "x".repeat(1 << 20))
}

/// A rule by which requests whose text begins so are kept from their reply.
fn holding(text: &str) -> Rule {
    Rule::statements(hold()).text(&format!("echo {text}"))
}
