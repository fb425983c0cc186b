//! Clients and fork(2): the parent continues undisturbed, and its clients are inert in the child.
//!
//! Each case runs in a separate process, which forks once or twice; no runtime is driven in its
//! child; a case that hangs is killed with its child. A server in the process of a case has its
//! thread in the parent, and its sockets in smol's reactor.
#![allow(unsafe_code, reason = "fork and _exit; in a child only the code under test uses processes, threads or locks")]

extern crate alloc;

use alloc::sync::Arc;
use core::future::Future;
use core::panic::AssertUnwindSafe;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write, pipe};
use std::net::UdpSocket;
use std::panic::catch_unwind;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use bson::doc;
use futures_lite::future::{block_on, or};
use poolhouse_async_std::AsyncStd;
use poolhouse_client::mux::{HostOptions, MuxOptions, RequestError, Session, SessionOptions};
use poolhouse_client::{Client, ClientOptions, Connection, DnsResolver, DriverInfo, Error, Platform, SetupError};
use poolhouse_core::monitor::ServerMonitoringMode;
use poolhouse_core::pool::{PoolCounts, PoolState};
use poolhouse_cql::Consistency;
use poolhouse_driver::{ForkReset, OperationError, SelectionRequest};
use poolhouse_smol::Smol;
use poolhouse_smol::edge::Edge;
use poolhouse_tests::cql_server::{Act, CqlServer, CqlServerOptions, Order, RequestKind, Rule, cell_of};
use poolhouse_tests::fake::{FakeOptions, FakeServer};
use poolhouse_tests::suite::Suite;
use poolhouse_tests::tls::{CertificateRequest, Folder, Holder, ServerTls};
use poolhouse_uri::dns::{LookupError, Resolver, ResolverConfig};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// Timeouts of a child and of a case; far longer than they need.
const CHILD_MAX: Duration = Duration::from_secs(40);
const CASE_MAX: Duration = Duration::from_secs(90);
/// Interval of checks whether they have ended.
const LOOK: Duration = Duration::from_millis(5);
/// Set in the process of a case, to its name.
const CASE: &str = "POOLHOUSE_FORK_CASE";

/// Names and bodies.
type Cases = Vec<(String, fn())>;

fn main() -> ExitCode {
    let cases: Cases = [cases::<Smol>("smol"), cases::<Edge>("edge"), cases::<AsyncStd>("async_std")].concat();
    if let Ok(wanted) = std::env::var(CASE) {
        let (_, case) = cases.iter().find(|(name, _)| *name == wanted).expect("a case of this name");
        case();
        return ExitCode::SUCCESS;
    }
    let add = |suite: Suite, (name, _): (String, fn())| suite.case(name.clone(), move || in_process(&name));
    cases.into_iter().fold(Suite::new("fork"), add).run()
}

fn cases<P: Platform + Default>(platform: &str) -> Cases {
    let cases: [(&str, fn()); 12] = [
        ("parent_keeps_its_connection", parent_keeps_its_connection::<P>),
        ("client_in_the_child_fails_at_once_and_is_cleared", client_in_the_child_fails_at_once_and_is_cleared::<P>),
        ("connection_in_use_fails_in_the_child_and_goes_on_in_the_parent", connection_in_use::<P>),
        ("outstanding_reply_is_received_by_the_parent", outstanding_reply_is_received_by_the_parent::<P>),
        ("drops_in_the_child_leave_the_parent_unharmed", drops_in_the_child_leave_the_parent_unharmed::<P>),
        ("child_cannot_create_a_client", child_cannot_create_a_client::<P>),
        ("both_sides_of_a_fork_before_the_first_client_work", both_sides_work::<P>),
        ("client_of_a_busy_process_is_inert_in_a_hundred_children", many_children::<P>),
        ("session_is_inert_in_the_child_and_goes_on_in_the_parent", session_is_inert::<P>),
        ("requests_of_a_session_that_wait_are_the_parents", requests_that_wait::<P>),
        ("change_of_the_keyspace_is_continued_by_the_parent", change_of_the_keyspace_is_continued_by_the_parent::<P>),
        ("session_of_a_busy_process_is_inert_in_its_children", busy_session::<P>),
    ];
    cases.map(|(name, case)| (format!("{platform}_{name}"), case)).to_vec()
}

/// Runs a case in a separate process.
fn in_process(name: &str) -> Result<(), String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut process = Command::new(this)
        .env(CASE, name)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let mut errors = process.stderr.take().expect("standard output is piped");
    // The output is shorter than the buffer of a pipe.
    let end = Instant::now() + CASE_MAX;
    let ended = loop {
        match process.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break Some(status),
            None if Instant::now() > end => break None,
            None => std::thread::sleep(LOOK),
        }
    };
    if ended.is_none() {
        // Its child is killed with it.
        process.kill().and_then(|()| process.wait()).map_err(|error| error.to_string())?;
    }
    if ended.is_some_and(|status| status.success()) {
        return Ok(());
    }
    let mut text = String::new();
    let _ = errors.read_to_string(&mut text);
    let how = ended.map_or_else(|| "it hangs".to_owned(), |status| status.to_string());
    Err(format!("{how}: {text}"))
}

/// Pipes between parent and child.
struct Line {
    from: PipeReader,
    to: PipeWriter,
}

impl Line {
    fn say(&mut self) {
        self.to.write_all(b".").expect("the pipe is open");
    }

    fn hear(&mut self) {
        self.from.read_exact(&mut [0]).expect("the other side has not failed");
    }
}

/// Forks, with `subject` on both sides. Returns the result of the parent's closure when the child
/// has ended successfully.
fn forked<W, T>(subject: W, child: impl FnOnce(W, &mut Line), parent: impl FnOnce(W, &mut Line) -> T) -> T {
    let (from_child, to_parent) = pipe().expect("a pipe");
    let (from_parent, to_child) = pipe().expect("a pipe");
    // SAFETY: the child runs only the code under test, on its only thread, and ends by `_exit`.
    let id = unsafe { libc::fork() };
    if id == 0 {
        #[cfg(target_os = "linux")]
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).expect("a signal");
        drop((from_child, to_child));
        let mut line = Line { from: from_parent, to: to_parent };
        let done = catch_unwind(AssertUnwindSafe(|| child(subject, &mut line)));
        let status = i32::from(done.is_err());
        if std::env::var_os("LLVM_PROFILE_FILE").is_some() {
            // Coverage of the child counts, too. SAFETY: the call takes no pointer and does not
            // return. The exit only writes counters.
            unsafe { libc::exit(status) };
        }
        // SAFETY: the call takes no pointer and does not return. The exit handlers of the parent
        // must not run in the child.
        unsafe { libc::_exit(status) };
    }
    let id = Pid::from_raw(id).expect("fork succeeds");
    drop((from_parent, to_parent));
    let mut line = Line { from: from_child, to: to_child };
    let outcome = parent(subject, &mut line);
    drop(line);
    let end = Instant::now() + CHILD_MAX;
    let status = loop {
        match waitpid(Some(id), WaitOptions::NOHANG).expect("a child of this process") {
            Some((_, status)) => break status,
            None if Instant::now() > end => {
                kill_process(id, Signal::KILL).expect("a child of this process");
                let _ = waitpid(Some(id), WaitOptions::empty());
                panic!("the child exceeded its time limit");
            }
            None => std::thread::sleep(LOOK),
        }
    };
    assert_eq!(status.exit_status(), Some(0), "the child failed");
    outcome
}

fn start() -> FakeServer {
    FakeServer::start(FakeOptions::default()).expect("the fake server starts")
}

/// Options with a polling monitor and a long interval, which makes counts exact.
fn options(uri: &str) -> ClientOptions {
    let mut options = ClientOptions::parse(uri).expect("a valid connection string");
    options.monitor.server_monitoring_mode = ServerMonitoringMode::Poll;
    options.monitor.heartbeat_frequency = Duration::from_secs(1000);
    options
}

fn client<P: Platform + Default>(server: &FakeServer) -> Client<P> {
    Client::with_options(options(&server.uri())).expect("valid options")
}

async fn ping<P: Platform>(client: &Client<P>) {
    client.run_command("admin", doc! { "ping": 1 }).await.expect("the server answers");
}

/// The result of a future at its first poll: nothing in the child could wake it.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

#[track_caller]
fn assert_forked<T>(result: Result<T, Error>) {
    match result {
        Err(Error::Operation(OperationError::Forked, _)) => {}
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it works"),
    }
}

/// Counters of the server that the child must not change.
fn seen(server: &FakeServer) -> (u64, usize) {
    (server.accepted_count(), server.open_count())
}

/// CMAP-100: the parent is not disturbed.
fn parent_keeps_its_connection<P: Platform + Default>() {
    let server = start();
    let client = client::<P>(&server);
    let id_of = |client: &Client<P>| block_on(client.check_out()).expect("a connection").connection_id();
    let twenty = |client: &Client<P>| (0..20).for_each(|_| block_on(ping(client)));
    twenty(&client);
    let (id, before) = (id_of(&client), seen(&server));
    let client = forked(
        client,
        |client, line| {
            assert_forked(at_once(client.run_command("admin", doc! { "ping": 1 })));
            line.say();
            line.hear();
            assert_forked(at_once(client.check_out()));
            drop(client);
        },
        |client, line| {
            line.hear();
            twenty(&client);
            assert_eq!((id_of(&client), seen(&server)), (id, before), "while the child runs");
            line.say();
            twenty(&client);
            client
        },
    );
    twenty(&client);
    assert_eq!((id_of(&client), seen(&server)), (id, before));
    assert_eq!(client.reset_after_fork(), ForkReset::NotForked);
    assert_eq!(id_of(&client), id);
    assert_eq!(server.count_of("ping"), 80);
    block_on(client.close());
}

/// CMAP-30, CMAP-100: in the child.
fn client_in_the_child_fails_at_once_and_is_cleared<P: Platform + Default>() {
    let server = start();
    let client = client::<P>(&server);
    let mut events = client.subscribe();
    block_on(ping(&client));
    let commands = server.count_of("ping");
    forked(
        (),
        |(), _| {
            // The first snapshot already shows the empty pool that the first operation would find.
            let pool = client.servers()[0].pool;
            assert_eq!((pool.state, pool.generation, pool.counts), (PoolState::Paused, 1, PoolCounts::default()));
            assert_forked(at_once(client.check_out()));
            assert_forked(at_once(client.check_out_timeout(None)));
            assert_forked(at_once(client.database("admin").run_command(doc! { "ping": 1 })));
            assert_forked(at_once(client.with_connection(async |_| Ok::<_, Error>(()))));
            assert_forked(at_once(client.warm_up(None)));
            assert_forked(client.set_pool_options(client.pool_options()));
            assert_forked(client.append_metadata(DriverInfo::new("library")));
            assert!(at_once(client.core().select_server(&SelectionRequest::WRITE, None)).is_err());
            assert_eq!(client.reset_after_fork(), ForkReset::Cleared);
            assert_eq!(client.servers()[0].pool, pool, "the pool is cleared only once");
            assert!(events.try_next().is_none());
            assert!(at_once(events.next()).is_none(), "the subscription has ended in the child");
            assert!(at_once(client.subscribe().next()).is_none());
            assert_eq!((client.servers().len(), client.topology().servers().count()), (1, 1));
            assert!(format!("{client:?}").contains("Paused"));
            at_once(client.close());
            let error = at_once(client.check_out()).expect_err("the child must not use the client");
            assert!(!error.is_retryable() && !error.is_transient() && !error.is_timeout());
            assert!(error.to_string().contains("before the fork"), "{error}");
        },
        |(), _| (),
    );
    assert_eq!(server.count_of("ping"), commands);
    assert!(
        client
            .servers()
            .first()
            .is_some_and(|server| server.pool.state == PoolState::Ready && server.pool.generation == 0)
    );
    block_on(async { events.next().await.expect("the parent receives its event") });
    block_on(ping(&client));
}

fn connection_in_use<P: Platform + Default>() {
    let server = start();
    let client = client::<P>(&server);
    let connection = block_on(client.check_out()).expect("a connection");
    let before = seen(&server);
    let mut connection = forked(
        connection,
        |mut connection, line| {
            assert_forked(at_once(connection.run_command("admin", doc! { "ping": 1 })));
            assert_forked(at_once(connection.run_command("admin", doc! { "ping": 1 })));
            drop(connection);
            line.say();
            line.hear();
        },
        |mut connection, line| {
            line.hear();
            block_on(connection.run_command("admin", doc! { "ping": 1 })).expect("the parent uses its connection");
            line.say();
            connection
        },
    );
    block_on(connection.run_command("admin", doc! { "ping": 1 })).expect("the parent uses its connection");
    drop(connection);
    assert_eq!((seen(&server), server.count_of("ping")), (before, 2));
}

type Running<'c> = Pin<Box<dyn Future<Output = Result<bson::Document, Error>> + 'c>>;

fn outstanding_reply_is_received_by_the_parent<P: Platform + Default>() {
    let server = start();
    let client = client::<P>(&server);
    block_on(ping(&client));
    server.freeze();
    let mut command: Running<'_> = Box::pin(client.run_command("admin", doc! { "ping": 1, "comment": "outstanding" }));
    // Sent, and not answered.
    let polled = command.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    let reply = forked(
        command,
        |command, _| assert_forked(at_once(command)),
        |command, _| {
            server.thaw();
            block_on(command)
        },
    );
    assert_eq!(reply.expect("the server answers").get_f64("ok").ok(), Some(1.0));
    assert_eq!(server.count_of("ping"), 2);
}

const CONNECTIONS: u32 = 20;

/// All values of a client that can be dropped.
struct ClientValues<'c, P: Platform> {
    plain: Vec<Connection<'c, P>>,
    encrypted: Vec<Connection<'c, P>>,
    waiting: Running<'c>,
    lookup: Pin<Box<dyn Future<Output = Result<Vec<String>, LookupError>>>>,
}

fn drops_in_the_child_leave_the_parent_unharmed<P: Platform + Default>() {
    let (root, folder) = (Holder::root("root"), Folder::new());
    let ca = folder.write("ca.pem", root.certificate());
    let mut tls = FakeOptions::default();
    tls.tls = Some(ServerTls::new(root.issue(&CertificateRequest::server(&["127.0.0.1"])).identity()));
    let servers = [start(), FakeServer::start(tls).expect("the fake server starts")];
    let ca = ca.to_str().expect("text").replace('/', "%2F");
    let made = |server: &FakeServer, more: &str| {
        let options = options(&(server.uri() + more)).max_pool_size(CONNECTIONS);
        Client::<P>::with_options(options).expect("valid options")
    };
    let clients = [made(&servers[0], ""), made(&servers[1], &format!("&tls=true&tlsCAFile={ca}"))];
    connections_are_dropped(&servers, &clients);
    // Handles share the state of the client.
    let handles = clients.each_ref().map(Client::clone);
    forked(
        (handles, clients),
        |all, line| {
            drop(all);
            line.say();
            line.hear();
        },
        |all, line| {
            line.hear();
            all.0.iter().for_each(|client| block_on(ping(client)));
            line.say();
        },
    );
    assert_eq!(servers[0].count_of("ping"), u64::from(2 * CONNECTIONS) + 2);
    assert_eq!(servers[1].count_of("ping"), u64::from(2 * CONNECTIONS) + 1);
}

fn connections_are_dropped<P: Platform + Default>(servers: &[FakeServer; 2], clients: &[Client<P>; 2]) {
    let events = clients.each_ref().map(Client::subscribe);
    let (plain, encrypted) = (hold(&clients[0]), hold(&clients[1]));
    let mut waiting: Running<'_> = Box::pin(clients[0].run_command("admin", doc! { "ping": 1, "comment": "waiting" }));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let name_server = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let config = ResolverConfig::new(vec![name_server.local_addr().expect("bound")]);
    let resolver = Arc::new(DnsResolver::with_config(P::default(), config));
    let mut lookup: Pin<Box<dyn Future<Output = _>>> =
        Box::pin(async move { resolver.lookup_txt("db.example.com").await });
    let mut question = [0; 512];
    let (length, resolver) = loop {
        assert!(lookup.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        name_server.set_read_timeout(Some(LOOK)).expect("a limit");
        if let Ok(received) = name_server.recv_from(&mut question) {
            break received;
        }
    };
    let before = servers.each_ref().map(seen);
    let values = ClientValues { plain, encrypted, waiting, lookup };
    let values = forked(
        (values, events),
        |(mut values, events), line| {
            let refused = at_once(values.lookup.as_mut());
            assert!(matches!(refused, Err(LookupError::Other(ref why)) if why.contains("forked")), "{refused:?}");
            drop((values, events));
            line.say();
            line.hear();
        },
        |(values, events), line| {
            line.hear();
            let values = go_on(values);
            line.say();
            drop(events);
            values
        },
    );
    let values = go_on(values);
    // NXDOMAIN.
    question[2] |= 0x80;
    question[3] = 3;
    name_server.send_to(&question[..length], resolver).expect("sent");
    assert_eq!(block_on(values.lookup), Err(LookupError::NoSuchName));
    assert_eq!(servers.each_ref().map(seen), before);
    drop((values.plain, values.encrypted));
    block_on(values.waiting).expect("the waiter receives its connection");
}

fn hold<P: Platform>(client: &Client<P>) -> Vec<Connection<'_, P>> {
    (0..CONNECTIONS).map(|_| block_on(client.check_out()).expect("a connection")).collect()
}

fn go_on<P: Platform>(mut values: ClientValues<'_, P>) -> ClientValues<'_, P> {
    for connection in values.plain.iter_mut().chain(&mut values.encrypted) {
        block_on(connection.run_command("admin", doc! { "ping": 1 })).expect("the parent uses its connection");
    }
    values
}

fn child_cannot_create_a_client<P: Platform + Default>() {
    let server = start();
    let client = client::<P>(&server);
    block_on(ping(&client));
    let before = seen(&server);
    let refused = |line: &mut Line| {
        let error = Client::<P>::with_options(client.options().clone()).expect_err("the runtime belongs to the parent");
        assert!(matches!(error, Error::Setup(SetupError::Forked)), "{error}");
        let error = at_once(Client::<P>::new(&server.uri())).expect_err("the runtime belongs to the parent");
        assert!(matches!(error, Error::Setup(SetupError::Forked)), "{error}");
        let nowhere = ResolverConfig::new(vec![server.address()]);
        let found = at_once(DnsResolver::with_config(P::default(), nowhere).lookup_txt("db.example.com"));
        assert!(matches!(found, Err(LookupError::Other(_))), "{found:?}");
        line.say();
    };
    forked(
        (),
        |(), line| {
            refused(line);
            // A child of the child is refused, too.
            forked((), |(), line| refused(line), |(), line| line.hear());
        },
        |(), line| line.hear(),
    );
    // The parent may create clients.
    let second = Client::<P>::with_options(client.options().clone()).expect("the parent may create clients");
    block_on(ping(&second));
    block_on(ping(&client));
    assert_eq!(seen(&server).0, before.0 + 2, "a monitor and a connection");
}

/// The server runs in a separate process: in this one it would have started the reactor.
fn both_sides_work<P: Platform + Default>() {
    let mut server = Command::new(env!("CARGO_BIN_EXE_fake_server"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the fake server starts");
    let mut lines = BufReader::new(server.stdout.take().expect("standard output is piped"));
    let mut uri = String::new();
    lines.read_line(&mut uri).expect("the server prints its address");
    let work = |(): (), line: &mut Line| {
        let client = Client::<P>::with_options(options(uri.trim())).expect("no runtime was started before the fork");
        for _ in 0..20 {
            block_on(ping(&client));
        }
        line.say();
        line.hear();
        for _ in 0..20 {
            block_on(ping(&client));
        }
        assert_eq!(client.reset_after_fork(), ForkReset::NotForked);
        block_on(client.close());
    };
    forked((), work, work);
    drop(server.stdin.take());
    let mut output = String::new();
    lines.read_to_string(&mut output).expect("the server prints its counts");
    assert!(server.wait().expect("our child").success());
    assert!(output.starts_with("4 connections,"), "a monitor and a connection on each side: {output}");
}

/// At any position of the other threads when the process forks, and with any locks held.
fn many_children<P: Platform + Default>() {
    let server = start();
    let client = client::<P>(&server);
    block_on(ping(&client));
    let busy = core::sync::atomic::AtomicBool::new(true);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while busy.load(core::sync::atomic::Ordering::Relaxed) {
                    block_on(ping(&client));
                }
            });
        }
        for _ in 0..100 {
            forked(
                client.clone(),
                |inherited, _| {
                    assert_forked(at_once(inherited.run_command("admin", doc! { "ping": 1 })));
                    assert!(inherited.servers().iter().all(|server| server.pool.counts == PoolCounts::default()));
                    drop(inherited.subscribe());
                    drop(inherited);
                },
                |inherited, _| drop(inherited),
            );
        }
        busy.store(false, core::sync::atomic::Ordering::Relaxed);
    });
    block_on(ping(&client));
}

/// A session with one connection, which takes `requests` requests at a time. Background activity is
/// off.
fn session<P: Platform + Default>(server: &CqlServer, requests: u32) -> Session<P> {
    let local = HostOptions {
        core_connections: 1,
        max_connections: 1,
        max_requests_per_connection: requests,
        new_connection_threshold: requests,
    };
    let mux = MuxOptions { local, remote: local, heartbeat_interval: Duration::ZERO, ..MuxOptions::DEFAULT };
    let options = SessionOptions::new([server.address().to_string()]).mux(mux).request_timeout(None);
    Session::new(options).expect("valid options")
}

fn node() -> CqlServer {
    CqlServer::start(CqlServerOptions::default()).expect("the fake server starts")
}

async fn echo<P: Platform>(session: &Session<P>, text: &str) -> Result<String, RequestError> {
    let reply = session.query(&format!("echo {text}")).consistency(Consistency::One).send().await?;
    let cell = cell_of(reply.body()).expect("a row with a cell");
    Ok(String::from_utf8(cell.to_vec()).expect("text"))
}

fn echoes<P: Platform>(session: &Session<P>) {
    for number in 0..20 {
        let text = format!("number {number}");
        assert_eq!(block_on(echo(session, &text)).expect("the server answers"), text);
    }
}

/// Counters of the server that the child must not change.
fn seen_by(server: &CqlServer) -> (u64, u64) {
    let counts = server.counts();
    (counts.accepted, counts.open)
}

fn session_is_inert<P: Platform + Default>() {
    let server = node();
    let session = session::<P>(&server, 4);
    let mut events = session.subscribe();
    echoes(&session);
    block_on(session.query("echo ?").values(("known",)).send()).expect("a reply");
    let before = seen_by(&server);
    let session = forked(
        session,
        |session, line| {
            assert!(matches!(at_once(echo(&session, "inherited")), Err(RequestError::Forked)));
            let calls = [session.query("void"), session.query("echo ?").values(("inherited",))];
            let results = at_once(session.request_all(&calls));
            assert!(matches!(*results, [Err(RequestError::Forked), Err(RequestError::Forked)]));
            drop(calls);
            let known = session.query("echo ?").values(("known",)).send();
            assert!(matches!(at_once(known), Err(RequestError::Forked)));
            assert!(matches!(at_once(session.use_keyspace("shop")), Err(RequestError::Forked)));
            assert_eq!(session.keyspace(), None);
            assert!(session.hosts().is_empty());
            assert!(matches!(
                session.set_hosts(&session.options().hosts),
                Err(Error::Operation(OperationError::Forked, _))
            ));
            assert!(matches!(
                session.set_mux_options(session.mux_options()),
                Err(Error::Operation(OperationError::Forked, _))
            ));
            assert!(events.try_next().is_none() && at_once(events.next()).is_none());
            assert!(at_once(session.subscribe().next()).is_none());
            assert!(format!("{session:?}").contains("Session"));
            assert!(matches!(Session::<P>::new(session.options().clone()), Err(Error::Setup(SetupError::Forked))));
            at_once(session.close());
            line.say();
            line.hear();
            assert!(matches!(at_once(echo(&session, "closed")), Err(RequestError::Forked)));
            drop((session, events));
            line.say();
            line.hear();
        },
        |session, line| {
            for _ in 0..2 {
                line.hear();
                echoes(&session);
                assert_eq!(seen_by(&server), before, "while the child runs");
                line.say();
            }
            session
        },
    );
    echoes(&session);
    assert_eq!(seen_by(&server), before);
    // Two requests of the handshake, and two of the text with a value.
    assert_eq!(server.counts().requests, 80 + 2 + 2);
    block_on(session.close());
}

/// One request in flight, and two that wait for its stream id.
fn requests_that_wait<P: Platform + Default>() {
    let server = node();
    let session = session::<P>(&server, 1);
    echoes(&session);
    server.add(Rule::statements(Act::Hold { count: usize::MAX, order: Order::Kept }).times(1));
    let before = seen_by(&server);
    let waiting = ["sent", "queued", "queued, too"].map(|text| {
        let mut request = Box::pin(echo(&session, text));
        assert!(request.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        request
    });
    assert!(server.wait_until(CHILD_MAX, |server| server.held_count() == 1));
    let [sent, queued, other] = forked(
        waiting,
        |[sent, queued, other], line| {
            assert!(matches!(at_once(sent), Err(RequestError::Forked)));
            assert!(matches!(at_once(queued), Err(RequestError::Forked)));
            drop((other, session.clone()));
            line.say();
            line.hear();
        },
        |waiting, line| {
            line.hear();
            let state = session.hosts()[0].state;
            assert_eq!((state.in_flight, state.queued, state.orphaned), (1, 2, 0));
            assert_eq!(server.release(Order::Kept), 1);
            line.say();
            waiting
        },
    );
    for (request, text) in [(sent, "sent"), (queued, "queued"), (other, "queued, too")] {
        assert_eq!(block_on(request).expect("the server answers"), text);
    }
    echoes(&session);
    assert_eq!(seen_by(&server), before);
}

/// The connection of a change of the keyspace belongs to the task of the caller.
fn change_of_the_keyspace_is_continued_by_the_parent<P: Platform + Default>() {
    let server = node();
    let held = Act::Hold { count: usize::MAX, order: Order::Kept };
    let rule = server.add(Rule::on(RequestKind::Query, held).text("USE \"shop\"").times(1));
    let session = session::<P>(&server, 4);
    echoes(&session);
    let mut change = Box::pin(session.use_keyspace("shop"));
    let received = poolhouse_tests::patience::eventually("the change is sent", || server.struck(rule) == 1);
    block_on(or(
        async {
            let ended = change.as_mut().await;
            panic!("the reply is held: {ended:?}");
        },
        received,
    ));
    let counts = seen_by(&server);
    let mut change = forked(
        change,
        |mut change, line| {
            assert!(matches!(at_once(change.as_mut()), Err(RequestError::Forked)));
            drop(change);
            line.say();
        },
        |change, line| {
            line.hear();
            change
        },
    );
    assert_eq!(seen_by(&server), counts, "the child has neither connected nor closed a connection");
    server.release(Order::Kept);
    block_on(change.as_mut()).expect("the server accepts the keyspace");
    drop(change);
    assert_eq!(session.keyspace().as_deref(), Some("shop"));
    echoes(&session);
}

/// At any position of the other threads when the process forks, and with any locks held.
fn busy_session<P: Platform + Default>() {
    let server = node();
    let session = session::<P>(&server, 2);
    echoes(&session);
    let busy = core::sync::atomic::AtomicBool::new(true);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while busy.load(core::sync::atomic::Ordering::Relaxed) {
                    echoes(&session);
                }
            });
        }
        for _ in 0..50 {
            forked(
                session.clone(),
                |inherited, _| {
                    assert!(matches!(at_once(echo(&inherited, "inherited")), Err(RequestError::Forked)));
                    assert!(inherited.hosts().is_empty());
                    drop(inherited.subscribe());
                    drop(inherited);
                },
                |inherited, _| drop(inherited),
            );
        }
        busy.store(false, core::sync::atomic::Ordering::Relaxed);
    });
    echoes(&session);
    assert_eq!(server.counts().accepted, 1);
}
