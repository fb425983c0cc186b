//! Whole sessions with the clock, sockets and tasks of the test.

use super::*;
use crate::mux::options::CONNECT_TIMEOUT_DEFAULT;
use crate::mux::{Call, ClusterEvent, Error, MuxClosed, MuxEvent, Session, SessionOptions};
use crate::{Platform, SetupError, lock};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use core::future::{pending, poll_fn};
use core::net::SocketAddr;
use core::pin::Pin;
use core::task::Context;
use futures_io::{AsyncRead, AsyncWrite};
use poolhouse_cql::Response;
use poolhouse_driver::{Event, EventKinds, Notice, Subscription};
use std::io;
use std::path::Path;
use std::sync::Mutex;

/// The bytes that a server sends after each write to it.
type Script = VecDeque<Vec<u8>>;

type Work = Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>;

#[derive(Default)]
struct Rig {
    now: Duration,
    /// How far the clock advances at each read.
    pace: Duration,
    /// The number of reads of the clock before one that panics.
    panic_in: Option<u32>,
    tasks: Vec<Arc<Work>>,
    /// The scripts of the next connections, in order. Further connections are never established.
    scripts: VecDeque<Script>,
    /// The host refuses connections.
    refuses: bool,
    /// Sockets accept no byte.
    full: bool,
    /// The version of the first envelope on each connection.
    versions: Arc<Mutex<Vec<u8>>>,
    /// The number of events that arrive after a connection's script, at once.
    flood: Arc<AtomicU32>,
}

/// A platform that does nothing unless the test advances it.
#[derive(Clone, Default)]
struct Still(Arc<Mutex<Rig>>);

struct Socket {
    script: Script,
    heard: usize,
    full: bool,
    /// The list that receives the version of the first envelope; `None` after that.
    versions: Option<Arc<Mutex<Vec<u8>>>>,
    flood: Arc<AtomicU32>,
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let is_flood = self.script.is_empty()
            && self.flood.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        if is_flood {
            let event = envelope(-1, EVENT, b"whatever");
            buf[..event.len()].copy_from_slice(&event);
            return Poll::Ready(Ok(event.len()));
        }
        let Some(left) = self.heard.checked_sub(1) else { return Poll::Pending };
        let Some(bytes) = self.script.pop_front() else { return Poll::Pending };
        self.heard = left;
        buf[..bytes.len()].copy_from_slice(&bytes);
        Poll::Ready(Ok(bytes.len()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.heard += 1;
        if let (Some(versions), Some(version)) = (self.versions.take(), buf.first()) {
            versions.lock().expect("not poisoned").push(*version);
        }
        Poll::Ready(Ok(if self.full { 0 } else { buf.len() }))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Still {
    fn with<T>(&self, act: impl FnOnce(&mut Rig) -> T) -> T {
        act(&mut self.0.lock().expect("not poisoned"))
    }

    /// Polls each task several times.
    fn run(&self) {
        for _ in 0..20 {
            for task in self.with(|rig| rig.tasks.clone()) {
                let Some(mut work) = task.lock().expect("not poisoned").take() else { continue };
                if poll(&mut work).is_pending() {
                    *task.lock().expect("not poisoned") = Some(work);
                }
            }
        }
    }

    fn drop_tasks(&self) {
        for task in self.with(|rig| core::mem::take(&mut rig.tasks)) {
            drop(task.lock().expect("not poisoned").take());
        }
    }
}

impl Platform for Still {
    const DRIVER_NAME: &'static str = "still";
    const DRIVER_VERSION: &'static str = "0";
    const PLATFORM_NAME: &'static str = "still";

    type Tcp = Socket;
    type Unix = Socket;
    type Udp = ();
    type Task = Arc<Work>;

    fn now(&self) -> Instant {
        let panics = self.with(|rig| {
            rig.now += rig.pace;
            let is_due = rig.panic_in == Some(0);
            rig.panic_in = rig.panic_in.and_then(|left| left.checked_sub(1));
            is_due
        });
        assert!(!panics, "a clock that panics");
        self.with(|rig| Instant::ORIGIN.saturating_add(rig.now))
    }

    async fn sleep_until(&self, at: Instant) {
        poll_fn(|_| if self.now() >= at { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    async fn resolve(&self, _: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![([10, 0, 0, 1], port).into()])
    }

    async fn connect_tcp(&self, _: SocketAddr) -> io::Result<Socket> {
        if self.with(|rig| rig.refuses) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let made = self.with(|rig| {
            let (full, versions) = (rig.full, Some(Arc::clone(&rig.versions)));
            let flood = Arc::clone(&rig.flood);
            rig.scripts.pop_front().map(|script| Socket { script, heard: 0, full, versions, flood })
        });
        match made {
            Some(socket) => Ok(socket),
            None => pending().await,
        }
    }

    async fn connect_unix(&self, _: &Path) -> io::Result<Socket> {
        Err(io::ErrorKind::Unsupported.into())
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

    fn spawn<F>(&self, work: F) -> Arc<Work>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let work: Arc<Work> = Arc::new(Mutex::new(Some(Box::pin(work))));
        self.with(|rig| rig.tasks.push(Arc::clone(&work)));
        work
    }
}

/// A session, its platform, and its events.
struct Stage {
    platform: Still,
    session: Session<Still>,
    events: Subscription,
}

impl Drop for Stage {
    fn drop(&mut self) {
        // The tasks hold the platform, which holds them.
        self.platform.drop_tasks();
    }
}

impl Stage {
    fn new(options: SessionOptions, scripts: impl IntoIterator<Item = Script>) -> Self {
        let platform = Still::default();
        platform.with(|rig| rig.scripts = scripts.into_iter().collect());
        let events = Subscribers::default();
        let heard = events.subscribe(EventKinds::ALL, 64, |_| true);
        let session = Session::with_platform(platform.clone(), options.version(Version::V4), events);
        Self { platform, session: session.expect("the options are right"), events: heard }
    }

    /// Returns the number of established connections, and the reasons of closed ones, since the
    /// last call.
    fn told(&mut self) -> (usize, Vec<MuxClosed>) {
        let (mut established, mut closed) = (0, Vec::new());
        while let Some(notice) = self.events.try_next() {
            let Notice::Event { event: Event::Mux(event), .. } = notice else { panic!("no such event: {notice:?}") };
            established += usize::from(matches!(event, MuxEvent::ConnectionReady { .. }));
            if let MuxEvent::ConnectionClosed { reason, .. } = event {
                closed.push(reason);
            }
        }
        (established, closed)
    }

    /// The number of established connections.
    fn connections(&self) -> usize {
        self.session.hosts().iter().map(|host| host.connections.len()).sum()
    }
}

fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// An envelope that a server sends in version 4.
fn envelope(stream: i16, opcode: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("short").to_be_bytes();
    [&[0x84, 0][..], &stream.to_be_bytes(), &[opcode], &length, body].concat()
}

const ERROR: u8 = 0x00;
const READY: u8 = 0x02;
const SUPPORTED: u8 = 0x06;
const RESULT: u8 = 0x08;
const EVENT: u8 = 0x0c;
/// The only entry that SUPPORTED requires: a version of the language.
const LANGUAGE: &[u8] = b"\0\x01\0\x0bCQL_VERSION\0\x01\0\x053.4.5";
/// A RESULT without rows.
const VOID: &[u8] = &[0, 0, 0, 1];

/// The two answers of a valid handshake, each followed by further bytes.
fn handshake(behind_supported: &[u8], behind_ready: &[u8]) -> Script {
    let answer = |opcode, body: &[u8], behind: &[u8]| [&envelope(0, opcode, body), behind].concat();
    [answer(SUPPORTED, LANGUAGE, behind_supported), answer(READY, &[], behind_ready)].into()
}

fn options() -> SessionOptions {
    SessionOptions::new(["a"])
}

#[test]
fn protocol_violation_around_the_handshake_closes_the_connection() {
    let junk = [0x7f; 9];
    // An envelope that arrives before its request, and bytes with which no envelope begins.
    for (script, established) in [(handshake(&envelope(0, READY, &[]), &[]), 0), (handshake(&[], &junk), 1)] {
        let mut stage = Stage::new(options(), [script]);
        stage.platform.run();
        assert_eq!(stage.told(), (established, vec![MuxClosed::Error(Cause::Protocol)]));
        assert_eq!(stage.connections(), 0);
    }
}

/// The session did not register for events. Events that a server sends nevertheless are ignored.
#[test]
fn events_of_a_server_are_ignored() {
    let mut script = handshake(&[], &envelope(-1, EVENT, b"whatever"));
    script.push_back([envelope(-1, EVENT, b"more"), envelope(1, RESULT, VOID)].concat());
    let mut stage = Stage::new(options(), [script]);
    stage.platform.run();
    assert_eq!((stage.connections(), stage.told()), (1, (1, Vec::new())));
    let session = stage.session.clone();
    let mut query = Box::pin(session.query("a").send());
    assert!(poll(&mut query).is_pending());
    stage.platform.run();
    let Poll::Ready(Ok(reply)) = poll(&mut query) else { panic!("its answer") };
    assert_eq!(reply.body(), VOID);
    assert_eq!((stage.connections(), stage.told()), (1, (0, Vec::new())));
}

/// The task of the control connection reads once each time that it is polled.
#[test]
fn flood_of_events_does_not_keep_other_tasks_from_running() {
    let stage = Stage::new(SessionOptions::contact_points(["a"]), [handshake(&[], &[])]);
    let flood = stage.platform.with(|rig| Arc::clone(&rig.flood));
    flood.store(1000, Ordering::Relaxed);
    stage.platform.run();
    let read = 1000 - flood.load(Ordering::Relaxed);
    assert!((1..=20).contains(&read), "{read}");
}

/// A limit that the options do not set: without the control connection nothing is discovered.
#[test]
fn control_connection_without_an_answer_is_left() {
    let options = SessionOptions::contact_points(["a"]).connect_timeout(None);
    let mut stage = Stage::new(options, [Script::new()]);
    let platform = stage.platform.clone();
    let mut causes = || {
        platform.run();
        core::iter::from_fn(|| stage.events.try_next())
            .filter_map(|notice| match notice {
                Notice::Event { event: Event::Cluster(ClusterEvent::ControlFailed { cause }), .. } => Some(cause),
                Notice::Event { .. } | Notice::Lagged { .. } => None,
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(causes(), []);
    platform.with(|rig| rig.now += Duration::from_secs(5));
    assert_eq!(causes(), [Cause::NetworkTimeout]);
}

#[test]
fn connection_that_accepts_no_byte_fails() {
    let mut stage = Stage::new(options(), []);
    stage.platform.with(|rig| {
        rig.full = true;
        rig.scripts.push_back(handshake(&[], &[]));
    });
    stage.platform.run();
    assert_eq!(stage.told(), (0, vec![MuxClosed::Error(Cause::Network)]));
}

#[test]
fn request_that_is_too_long_is_not_sent() {
    let stage = Stage::new(SessionOptions { body_bytes_max: 100, ..options() }, [handshake(&[], &[])]);
    stage.platform.run();
    let long = "x".repeat(200);
    let mut query = Box::pin(stage.session.query(&long).send());
    let Poll::Ready(Err(RequestError::Encode(error))) = poll(&mut query) else { panic!("it is too long") };
    assert!(matches!(error, CqlEncodeError::BodyTooLarge { max_bytes: 100, .. }), "{error}");
    assert_eq!((stage.connections(), stage.session.hosts()[0].state.in_flight), (1, 0));
}

#[test]
fn malformed_response_fails_its_request_only() {
    let mut script = handshake(&[], &[]);
    // The body of an error begins with a code of four bytes.
    script.push_back(envelope(1, ERROR, &[0, 0]));
    let stage = Stage::new(options(), [script]);
    stage.platform.run();
    let mut query = Box::pin(stage.session.query("a").send());
    assert!(poll(&mut query).is_pending());
    stage.platform.run();
    let outcome = poll(&mut query);
    assert!(matches!(outcome, Poll::Ready(Err(RequestError::Reply(_)))), "{outcome:?}");
    assert_eq!((stage.connections(), stage.session.hosts()[0].state.in_flight), (1, 0));
}

/// The body of an ERROR.
fn refusal(code: u32, text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).expect("short").to_be_bytes();
    [&code.to_be_bytes()[..], &length, text.as_bytes()].concat()
}

#[test]
fn text_of_a_server_is_filtered_in_errors_and_in_the_status() {
    let options = || options().credential("ann", "hunter2");
    let message = |text: &str| {
        let mut script = handshake(&[], &[]);
        script.push_back(envelope(1, ERROR, &refusal(0x2000, text)));
        let stage = Stage::new(options(), [script]);
        stage.platform.run();
        let mut query = Box::pin(stage.session.query("a").send());
        assert!(poll(&mut query).is_pending());
        stage.platform.run();
        let Poll::Ready(Err(RequestError::Server(error))) = poll(&mut query) else { panic!("the server's error") };
        let Ok(Response::Error(whole)) = error.reply.response() else { panic!("an error") };
        assert_eq!(whole.message, text);
        error.to_string()
    };
    assert_eq!(message("no\n\u{1b}[31mviable"), "syntax error (0x2000): no  [31mviable");
    assert_eq!(message(&"x".repeat(1000)).len(), "syntax error (0x2000): ".len() + 256);
    assert_eq!(message("at hunter2"), "syntax error (0x2000)");
    let status = |text: &str| {
        let stage = Stage::new(options(), [[envelope(0, ERROR, &refusal(0x0100, text))].into()]);
        stage.platform.run();
        stage.session.hosts()[0].refusal.clone()
    };
    assert_eq!(status("no\u{1b}[31m\nroot: done").as_deref(), Some("no [31m root: done"));
    assert_eq!(status("not hunter2"), None);
}

#[test]
fn refused_version_is_tried_again_after_a_time() {
    use crate::mux::LOWER_VERSION_FOR;
    // A server, or an attacker on the path, that supports only version 3.
    let of_version_3 = |mut envelope: Vec<u8>| {
        envelope[0] = 0x83;
        envelope
    };
    let refusal = || [of_version_3(envelope(0, ERROR, &refusal(0x000a, "unsupported protocol version")))].into();
    // Its connections fail as soon as they are established, because the bytes after READY are not
    // an envelope.
    let failing = || handshake(&[], &[0x7f; 9]).into_iter().map(of_version_3).collect::<Script>();
    let mut stage = Stage::new(options(), [refusal(), failing(), failing()]);
    let versions = stage.platform.with(|rig| Arc::clone(&rig.versions));
    let versions = || core::mem::take(&mut *versions.lock().expect("not poisoned"));
    stage.platform.run();
    // The lower version is tried at once, and again after a pause. No third connection is accepted.
    assert_eq!((stage.told().0, versions()), (1, vec![4, 3]));
    stage.platform.with(|rig| rig.now += MuxOptions::DEFAULT.backoff_min);
    stage.platform.run();
    assert_eq!((stage.told().0, versions()), (1, vec![3]));
    assert_eq!(stage.session.hosts()[0].version, Version::V3);
    stage.platform.with(|rig| rig.now += LOWER_VERSION_FOR);
    stage.platform.run();
    stage.platform.with(|rig| rig.scripts.push_back(handshake(&[], &[])));
    for _ in 0..5 {
        stage.platform.with(|rig| rig.now += Duration::from_secs(60));
        stage.platform.run();
    }
    assert_eq!((stage.told().0, versions()), (1, vec![4]));
    assert_eq!(stage.session.hosts()[0].version, Version::V4);
}

#[test]
fn host_that_listens_again_is_used_within_half_a_second() {
    const STEP: Duration = Duration::from_millis(5);
    for (outage, mux, within) in [
        (Duration::from_secs(1), MuxOptions::DEFAULT, Duration::from_millis(500)),
        (Duration::from_secs(120), MuxOptions::DEFAULT, Duration::from_millis(500)),
        (
            Duration::from_secs(120),
            MuxOptions { backoff_max: Duration::from_secs(10), ..MuxOptions::DEFAULT },
            Duration::from_secs(10),
        ),
    ] {
        let platform = Still::default();
        platform.with(|rig| rig.refuses = true);
        let session =
            Session::with_platform(platform.clone(), options().mux(mux).version(Version::V4), Subscribers::default());
        let session = session.expect("the options are right");
        let pass = |time: Duration| {
            platform.with(|rig| rig.now += time);
            platform.run();
        };
        let ends = session.inner.shared.now().saturating_add(outage);
        while session.inner.shared.now() < ends {
            pass(STEP * 20);
        }
        platform.with(|rig| {
            rig.refuses = false;
            rig.scripts.push_back(handshake(&[], &[]));
        });
        let mut waited = Duration::ZERO;
        while session.hosts()[0].state.open == 0 {
            assert!(waited <= within, "after an outage of {outage:?}");
            waited += STEP;
            pass(STEP);
        }
        drop(session);
        platform.drop_tasks();
    }
}

/// The request waits for the first connection of its host.
#[test]
fn request_that_times_out_before_it_is_sent_was_not_executed() {
    let stage = Stage::new(options(), []);
    stage.platform.run();
    let session = &stage.session;
    let mut request = Box::pin(session.query("a").timeout(Duration::from_secs(1)).send());
    assert!(poll(&mut request).is_pending());
    stage.platform.with(|rig| rig.now += Duration::from_secs(1));
    stage.platform.run();
    let Poll::Ready(Err(error)) = poll(&mut request) else { panic!("its time is over") };
    assert!(error.is_timeout() && !error.may_have_executed(), "{error}");
    assert_eq!(session.hosts()[0].state.queued, 0);
}

/// Time passes while hosts refuse the request.
#[test]
fn request_refused_by_hosts_until_its_deadline_has_timed_out() {
    let mux = MuxOptions { max_queue_size: 0, ..MuxOptions::DEFAULT };
    let stage = Stage::new(SessionOptions::new(["a", "b"]).mux(mux), []);
    let outcome = |pace| {
        stage.platform.with(|rig| rig.pace = pace);
        let call = stage.session.query("a").timeout(Duration::from_secs(1));
        let Poll::Ready(Err(error)) = poll(&mut Box::pin(call.send())) else { panic!("there is no room for it") };
        error
    };
    let RequestError::NoHost(rejections) = outcome(Duration::ZERO) else { panic!("there was time for both") };
    assert_eq!(rejections.len(), 2);
    let error = outcome(Duration::from_secs(2));
    assert!(matches!(&error, RequestError::TimedOut { sent: false, .. }), "{error}");
}

/// Also if a connection could take it at once.
#[test]
fn request_without_time_is_not_sent() {
    let stage = Stage::new(options(), [handshake(&[], &[])]);
    stage.platform.run();
    assert_eq!(stage.connections(), 1);
    let call = stage.session.query("a").timeout(Duration::ZERO);
    let Poll::Ready(Err(error)) = poll(&mut Box::pin(call.send())) else { panic!("its time is over") };
    assert!(matches!(error, RequestError::TimedOut { sent: false, .. }), "{error}");
    let state = stage.session.hosts()[0].state;
    assert_eq!((state.in_flight, state.orphaned, state.queued), (0, 0, 0));
}

/// The server prepares no statement.
#[test]
fn text_with_values_ends_in_time_and_is_prepared_on_the_hosts_of_its_call() {
    let stage = Stage::new(options(), [handshake(&[], &[])]);
    stage.platform.run();
    let session = &stage.session;
    let call = session.query("a ?").values((7,));
    // Only PREPARE may be sent, so nothing was executed.
    for nowhere in [call.clone().hosts(&[]), call.clone().timeout(Duration::ZERO)] {
        assert!(matches!(poll(&mut Box::pin(nowhere.send())), Poll::Ready(Err(_))));
        assert_eq!(held(session), (0, 0, 0));
    }
    let calls = [call.timeout(Duration::from_secs(1)), session.query("b").timeout(Duration::from_millis(1))];
    let (mut one, mut all) = (Box::pin(calls[0].clone().send()), Box::pin(session.request_all(&calls)));
    assert!(poll(&mut one).is_pending() && poll(&mut all).is_pending());
    assert_eq!(held(session), (2, 0, 0), "each prepares the statement");
    stage.platform.with(|rig| rig.now += Duration::from_secs(1));
    stage.platform.run();
    assert!(matches!(poll(&mut one), Poll::Ready(Err(RequestError::TimedOut { sent: false, .. }))));
    let Poll::Ready(results) = poll(&mut all) else { panic!("their time is over") };
    assert!(matches!(
        results[..],
        [Err(RequestError::TimedOut { sent: false, .. }), Err(RequestError::TimedOut { sent: false, .. })]
    ));
}

#[test]
fn request_continues_with_replaced_hosts() {
    let stage = Stage::new(options(), []);
    let session = &stage.session;
    let mut query = Box::pin(session.query("a").send());
    assert!(poll(&mut query).is_pending());
    session.set_hosts(&[CqlHost::local("b")]).expect("a good host");
    assert!(poll(&mut query).is_pending(), "it waits for the other one");
    let [host] = &session.hosts()[..] else { panic!("one host") };
    assert_eq!((host.address.as_str(), host.state.queued), ("b", 1));
    drop(query);
    assert_eq!(session.hosts()[0].state.queued, 0);
    assert!(matches!(session.set_hosts(&[]), Err(Error::Setup(SetupError::Config(_)))));
}

#[test]
fn session_without_tasks_refuses_a_keyspace_as_abandoned() {
    let stage = Stage::new(options(), []);
    let mut waiting = Box::pin(stage.session.use_keyspace("shop"));
    assert!(poll(&mut waiting).is_pending());
    stage.platform.drop_tasks();
    for mut call in [waiting, Box::pin(stage.session.use_keyspace("shop"))] {
        let ended = poll(&mut call);
        assert!(matches!(ended, Poll::Ready(Err(RequestError::Abandoned))), "{ended:?}");
    }
    assert_eq!(stage.session.keyspace(), None);
}

/// An executor that ends drops its tasks. Hosts that are added after that have no connections.
#[test]
fn session_without_tasks_fails_requests() {
    let stage = Stage::new(options(), []);
    let mut query = Box::pin(stage.session.query("a").send());
    assert!(poll(&mut query).is_pending());
    stage.platform.drop_tasks();
    assert!(matches!(poll(&mut query), Poll::Ready(Err(RequestError::Abandoned))));
    stage.session.set_hosts(&[CqlHost::local("b")]).expect("a good host");
    let mut query = Box::pin(stage.session.query("b").send());
    assert!(matches!(poll(&mut query), Poll::Ready(Err(RequestError::Abandoned))));
    stage.platform.run();
    assert_eq!(stage.connections(), 0);
    let mut closing = Box::pin(stage.session.close());
    assert!(poll(&mut closing).is_ready(), "there is nothing to wait for");
}

/// Requests in flight, queued, or reserved for a late reply, on all hosts.
fn held(session: &Session<Still>) -> (u32, u32, u32) {
    session.hosts().iter().map(|host| host.state).fold((0, 0, 0), |(in_flight, queued, orphaned), state| {
        (in_flight + state.in_flight, queued + state.queued, orphaned + state.orphaned)
    })
}

#[test]
fn futures_of_requests_are_small() {
    let stage = Stage::new(options(), []);
    assert!(size_of_val(&stage.session.query("a").send()) <= 256);
}

#[test]
#[should_panic(expected = "polled after it was ready")]
fn future_of_a_request_that_is_polled_after_its_end_sends_nothing() {
    let stage = Stage::new(options(), [handshake(&[], &[])]);
    stage.platform.run();
    let mut done = Box::pin(stage.session.query("a").hosts(&[]).send());
    assert!(poll(&mut done).is_ready());
    let _ = poll(&mut done);
}

#[test]
fn results_of_request_all_have_the_order_of_the_requests() {
    let mut script = handshake(&[], &[]);
    script.push_back([envelope(3, RESULT, VOID), envelope(1, ERROR, &refusal(0x2000, "no"))].concat());
    let stage = Stage::new(SessionOptions { body_bytes_max: 100, ..options() }, [script]);
    stage.platform.run();
    let long = "x".repeat(200);
    let session = &stage.session;
    let calls = [session.query("a"), session.query("c").hosts(&[]), session.query(&long), session.query("b")];
    let mut all = Box::pin(stage.session.request_all(&calls));
    assert!(poll(&mut all).is_pending());
    assert_eq!(held(&stage.session), (2, 0, 0));
    stage.platform.run();
    let Poll::Ready(results) = poll(&mut all) else { panic!("all are answered") };
    let [Err(RequestError::Server(error)), Err(RequestError::NoHost(_)), Err(RequestError::Encode(_)), Ok(reply)] =
        &results[..]
    else {
        panic!("{results:?}")
    };
    assert_eq!((error.message.as_str(), reply.body()), ("no", VOID));
    assert_eq!(held(&stage.session), (0, 0, 0));
    let Poll::Ready(none) = poll(&mut Box::pin(stage.session.request_all(&[]))) else { panic!("nothing to wait for") };
    assert!(none.is_empty());
}

/// Each request of a session is one operation of its metrics, however it ends.
#[cfg(feature = "metrics")]
#[test]
fn requests_are_measured() {
    let kept = crate::metrics::tests::Kept::default();
    ::metrics::with_local_recorder(&kept, || {
        let mut script = handshake(&[], &[]);
        script.push_back(envelope(1, ERROR, &refusal(0x2000, "no")));
        script.push_back([envelope(2, RESULT, VOID), envelope(3, RESULT, VOID)].concat());
        let stage = Stage::new(options(), [script]);
        stage.platform.run();
        let of_query = |error: &str| {
            kept.count(&format!(
                "db.client.operation.duration{{db.system.name=cassandra,db.operation.name=QUERY{error}}}"
            ))
        };
        let active = || kept.last("poolhouse.operation.active{db.system.name=cassandra}").unwrap_or_default();

        let mut refused = Box::pin(stage.session.query("a").send());
        assert!(poll(&mut refused).is_pending());
        assert_eq!(active(), 1.0);
        stage.platform.run();
        assert!(matches!(poll(&mut refused), Poll::Ready(Err(RequestError::Server(_)))));
        assert_eq!((active(), of_query(",error.type=0x2000"), of_query("")), (0.0, 1, 0));

        let calls = [stage.session.query("a"), stage.session.query("b"), stage.session.query("c").hosts(&[])];
        let mut all = Box::pin(stage.session.request_all(&calls));
        assert!(poll(&mut all).is_pending());
        assert_eq!((active(), of_query(",error.type=no_server")), (2.0, 1), "one has failed at once");
        stage.platform.run();
        let Poll::Ready(results) = poll(&mut all) else { panic!("all are answered") };
        assert_eq!((active(), of_query("")), (0.0, 2), "{results:?}");

        let mut dropped = Box::pin(stage.session.query("a").send());
        assert!(poll(&mut dropped).is_pending());
        let mut all = Box::pin(stage.session.request_all(&calls));
        assert!(poll(&mut all).is_pending());
        drop((dropped, all, stage.session.query("never polled").send(), stage.session.request_all(&calls)));
        assert_eq!((active(), of_query(",error.type=cancelled")), (0.0, 3));

        let mut preparing = Box::pin(stage.session.prepare("a"));
        assert!(poll(&mut preparing).is_pending());
        assert_eq!(active(), 1.0);
        drop(preparing);
        let with_values = [stage.session.query("a").values((1,)), stage.session.query("b").hosts(&[])];
        let mut all = Box::pin(stage.session.request_all(&with_values));
        assert!(poll(&mut all).is_pending());
        assert_eq!(active(), 2.0, "while a text is prepared");
        drop(all);
        let of_execute = kept.count(
            "db.client.operation.duration{db.system.name=cassandra,db.operation.name=EXECUTE,error.type=cancelled}",
        );
        assert_eq!((active(), of_execute, of_query(",error.type=cancelled")), (0.0, 1, 4));
        let other = Stage::new(options(), []);
        let Poll::Ready(foreign) = poll(&mut Box::pin(other.session.request_all(&calls))) else { panic!("refused") };
        assert!(matches!(&foreign[..], [Err(RequestError::Foreign), ..]));
        assert_eq!((active(), of_query(",error.type=invalid")), (0.0, 3));
        let retries = kept.last("poolhouse.operation.retries{db.system.name=cassandra}").unwrap_or_default();
        assert_eq!(retries, 0.0, "there is one host");
    });
}

/// The first host accepts two requests, the second one has no connection.
#[test]
fn requests_of_request_all_go_to_the_next_host_one_by_one() {
    let mux = MuxOptions { max_queue_size: 1, ..one_connection(2) };
    let mut script = handshake(&[], &[]);
    script.push_back([envelope(2, RESULT, VOID), envelope(1, RESULT, VOID)].concat());
    let stage = Stage::new(SessionOptions::new(["a", "b"]).mux(mux), [script]);
    stage.platform.run();
    let hosts = stage.session.hosts();
    let id_of = |open| hosts.iter().find(|host| host.state.open == open).expect("one of each").id;
    let chosen = [id_of(1), id_of(0)];
    let calls = [(); 5].map(|()| stage.session.query("a").hosts(&chosen));
    let mut all = Box::pin(stage.session.request_all(&calls));
    assert!(poll(&mut all).is_pending());
    // Two in flight and one queued on the first, one queued on the second; the last one has failed.
    assert_eq!(held(&stage.session), (2, 2, 0));
    drop(all);
    assert_eq!(held(&stage.session), (0, 0, 2));
}

#[test]
fn request_all_without_time_or_session_sends_nothing() {
    let stage = Stage::new(options(), [handshake(&[], &[])]);
    stage.platform.run();
    let results = |call: &Call<'_, Still>| {
        let calls = [call.clone(), call.clone(), call.clone()];
        let Poll::Ready(results) = poll(&mut Box::pin(stage.session.request_all(&calls))) else {
            panic!("it does not wait")
        };
        assert_eq!(held(&stage.session), (0, 0, 0));
        assert_eq!(results.len(), 3);
        results
    };
    let query = stage.session.query("a");
    let is_over = |result: &Result<_, _>| matches!(result, Err(RequestError::TimedOut { sent: false, .. }));
    assert!(results(&query.clone().timeout(Duration::ZERO)).iter().all(is_over));
    let has_no_host = |result: &Result<_, _>| matches!(result, Err(RequestError::NoHost(hosts)) if hosts.is_empty());
    assert!(results(&query.clone().hosts(&[])).iter().all(has_no_host));
    stage.platform.drop_tasks();
    let is_abandoned = |result: &Result<_, _>| matches!(result, Err(RequestError::Abandoned));
    assert!(results(&query).iter().all(is_abandoned));
}

/// One of three is answered in time.
#[test]
fn request_all_returns_results_and_timeouts_at_its_deadline() {
    let mut script = handshake(&[], &[]);
    script.push_back(envelope(2, RESULT, VOID));
    let stage = Stage::new(options(), [script]);
    stage.platform.run();
    let calls = [(); 3].map(|()| stage.session.query("a").timeout(Duration::from_secs(1)));
    let mut all = Box::pin(stage.session.request_all(&calls));
    assert!(poll(&mut all).is_pending());
    stage.platform.run();
    assert!(poll(&mut all).is_pending(), "two are not answered");
    stage.platform.with(|rig| rig.now += Duration::from_secs(1));
    stage.platform.run();
    let Poll::Ready(results) = poll(&mut all) else { panic!("their time is over") };
    let timed_out = |result: &Result<_, _>| matches!(result, Err(RequestError::TimedOut { sent: true, .. }));
    assert!(timed_out(&results[0]) && results[1].is_ok() && timed_out(&results[2]), "{results:?}");
    assert_eq!(held(&stage.session), (0, 0, 2));
}

#[test]
fn request_all_continues_with_replaced_hosts() {
    let stage = Stage::new(options(), []);
    let session = &stage.session;
    let calls = [(); 3].map(|()| session.query("a"));
    let mut all = Box::pin(session.request_all(&calls));
    assert!(poll(&mut all).is_pending());
    assert_eq!(held(session), (0, 3, 0));
    session.set_hosts(&[CqlHost::local("b")]).expect("a good host");
    assert!(poll(&mut all).is_pending(), "they wait for the other one");
    assert_eq!(held(session), (0, 3, 0));
    drop(all);
    assert_eq!(held(session), (0, 0, 0));
}

#[cfg(feature = "tls")]
#[test]
fn session_returns_the_tls_warnings() {
    use crate::tls::{TlsOptions, TlsWarning};
    let insecure = TlsOptions { allow_invalid_certificates: true, ..TlsOptions::default() };
    let start = || Stage::new(options().tls(insecure.clone()), []);
    assert_eq!(start().session.tls_warnings(), [TlsWarning::InvalidCertificates]);
    assert_eq!(Stage::new(options(), []).session.tls_warnings(), []);
    #[cfg(feature = "tracing")]
    {
        let captured = crate::log::tests::capture::capture(|| drop(start()));
        let mut warnings = captured.iter().filter(|message| message.level == tracing::Level::WARN);
        let (Some(warning), None) = (warnings.next(), warnings.next()) else { panic!("one warning: {captured:?}") };
        assert_eq!(warning.message(), TlsWarning::InvalidCertificates.to_string());
    }
}

#[test]
fn few_hosts_are_connected_to_at_a_time_and_those_that_requests_wait_for_first() {
    let hosts: Vec<String> = (0..40).map(|number| alloc::format!("host{number}")).collect();
    let stage = Stage::new(SessionOptions::new(hosts.clone()).mux(one_connection(1)), []);
    let (session, platform) = (stage.session.clone(), stage.platform.clone());
    let shared = &session.inner.shared;
    let counts = || {
        platform.run();
        (shared.first_dials.load(Ordering::Relaxed), lock(&shared.starting).len())
    };
    assert_eq!(counts(), (16, 24));
    // Those of the reserve are for these hosts only, also if there are more of them.
    let ids: Vec<MuxId> = session.hosts().iter().map(|host| host.id).collect();
    let mut queries: Vec<_> =
        ids[30..].iter().map(|id| Box::pin(session.query("a").hosts(core::slice::from_ref(id)).send())).collect();
    assert!(queries.iter_mut().take(2).all(|query| poll(query).is_pending()));
    assert_eq!(counts(), (18, 22));
    assert!(queries.iter_mut().all(|query| poll(query).is_pending()));
    assert_eq!(counts(), (24, 16));
    let waiting = lock(&shared.starting).iter().map(|(host, _)| host.id).collect::<Vec<_>>();
    assert_eq!(
        waiting.iter().filter(|id| ids[30..].contains(id)).count(),
        2,
        "the others have their turn: {waiting:?}"
    );
    // Connections that are no longer needed do not wait for their turn.
    session.set_hosts(&[CqlHost::local("host0")]).expect("valid hosts");
    assert_eq!(counts(), (1, 0));
}

#[test]
fn silent_hosts_of_many_connections_leave_attempts_to_others() {
    let host = HostOptions { core_connections: 11, max_connections: 11, ..MuxOptions::DEFAULT.local };
    let long = Duration::from_secs(3600);
    let options = MuxOptions { local: host, pool_timeout: long, ..MuxOptions::DEFAULT };
    let silent: Vec<String> = (0..3).map(|number| alloc::format!("silent{number}")).collect();
    let options = SessionOptions::new(silent.clone()).mux(options).request_timeout(long);
    let stage = Stage::new(options, []);
    let (session, platform) = (stage.session.clone(), stage.platform.clone());
    let shared = &session.inner.shared;
    let dials = || (shared.first_dials.load(Ordering::Relaxed), shared.further_dials.load(Ordering::Relaxed));
    platform.run();
    assert_eq!(dials(), (3, 0));
    // Nor do they get another one because requests wait for them.
    let ids: Vec<MuxId> = session.hosts().iter().map(|host| host.id).collect();
    let mut queries: Vec<_> = ids.chunks(1).map(|id| Box::pin(session.query("a").hosts(id).send())).collect();
    assert!(queries.iter_mut().all(|query| poll(query).is_pending()));
    platform.run();
    assert_eq!(dials(), (3, 0));
    // The others of a host follow when its first is open.
    platform.with(|rig| rig.scripts.push_back(handshake(&[], &[])));
    let hosts: Vec<CqlHost> = silent.iter().map(String::as_str).chain(["good"]).map(CqlHost::local).collect();
    session.set_hosts(&hosts).expect("valid hosts");
    platform.run();
    assert_eq!((stage.connections(), dials()), (1, (3, 10)));
    // A request waits for one attempt, not for one after the other.
    platform.with(|rig| rig.now += CONNECT_TIMEOUT_DEFAULT);
    platform.run();
    assert!(queries.iter_mut().all(|query| matches!(poll(query), Poll::Ready(Err(RequestError::NoHost(_))))));
}

#[test]
fn connection_is_begun_or_fails_whenever_the_clock_panics() {
    let host = HostOptions { core_connections: 3, max_connections: 3, ..MuxOptions::DEFAULT.local };
    let mux = MuxOptions { local: host, ..MuxOptions::DEFAULT };
    let mut has_panicked = true;
    for reads in 0.. {
        if !core::mem::replace(&mut has_panicked, false) {
            assert!(reads > 2, "{reads}");
            break;
        }
        let stage = Stage::new(options().mux(mux), []);
        let shared = &stage.session.inner.shared;
        stage.platform.run();
        stage.platform.with(|rig| {
            rig.now += CONNECT_TIMEOUT_DEFAULT;
            rig.panic_in = Some(reads);
        });
        let _ = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| stage.platform.run()));
        has_panicked = stage.platform.with(|rig| rig.panic_in.take().is_none());
        stage.platform.run();
        let begun = shared.first_dials.load(Ordering::Relaxed) + lock(&shared.starting).len();
        let establishing = shared.hosts().all()[0].look(Instant::ORIGIN, |mux, _, _| mux.state().establishing);
        assert_eq!(Ok(establishing), u32::try_from(begun), "after {reads} reads");
    }
}

#[test]
fn host_with_a_connection_gets_further_ones_beside_silent_hosts() {
    let long = Duration::from_secs(3600);
    let local = HostOptions { max_connections: 2, ..one_connection(1).local };
    let options = MuxOptions { local, pool_timeout: long, ..MuxOptions::DEFAULT };
    for are_awaited in [false, true] {
        let options = SessionOptions::new(["good"]).mux(options).request_timeout(long);
        let stage = Stage::new(options, [handshake(&[], &[])]);
        let (session, platform) = (stage.session.clone(), stage.platform.clone());
        platform.run();
        assert_eq!(stage.connections(), 1);
        let names: Vec<String> = (0..30).map(|number| format!("silent{number}")).collect();
        let hosts: Vec<CqlHost> =
            ["good"].into_iter().chain(names.iter().map(String::as_str)).map(CqlHost::local).collect();
        session.set_hosts(&hosts).expect("valid hosts");
        let ids: Vec<MuxId> = session.hosts().iter().map(|host| host.id).collect();
        let query = |id: &[MuxId]| Box::pin(session.query("a").hosts(id.to_vec().leak()).send());
        let count = if are_awaited { 30 } else { 0 };
        let mut waiting: Vec<_> = ids[1..].chunks(1).take(count).map(query).collect();
        assert!(waiting.iter_mut().all(|query| poll(query).is_pending()));
        platform.run();
        let mut queries = [(); 2].map(|()| query(&ids[..1]));
        assert!(queries.iter_mut().all(|query| poll(query).is_pending()));
        assert_eq!(session.hosts()[0].state.establishing, 1, "it needs another one");
        platform.run();
        let hosts = session.inner.shared.hosts();
        assert_eq!(hosts.all()[0].dials.load(Ordering::Relaxed), 1, "{are_awaited}");
    }
}

#[test]
fn request_without_hosts_names_the_missing_data_center() {
    use crate::mux::{Speculation, UnknownDataCenter};
    let stage = Stage::new(options(), []);
    let missing = UnknownDataCenter { data_center: "east".into(), found: vec!["west".into()] };
    *lock(&stage.session.inner.shared.hosts) = Arc::new(Hosts::new(Vec::new()).with_missing(Some(Arc::new(missing))));
    let speculation = Speculation { delay: Duration::from_secs(1), hosts_max: 2 };
    let call = || stage.session.query("a");
    for call in [call(), call().speculation(speculation)] {
        let ended = poll(&mut Box::pin(call.send()));
        assert!(matches!(ended, Poll::Ready(Err(RequestError::UnknownDataCenter(_)))), "{ended:?}");
    }
    let ended = poll(&mut Box::pin(stage.session.use_keyspace("shop")));
    assert!(matches!(ended, Poll::Ready(Err(RequestError::UnknownDataCenter(_)))), "{ended:?}");
    let ended = poll(&mut Box::pin(stage.session.schema_agreement(Duration::ZERO)));
    assert!(matches!(ended, Poll::Ready(Err(RequestError::UnknownDataCenter(_)))), "{ended:?}");
    let ended = poll(&mut Box::pin(call().hosts(&[]).speculation(speculation).send()));
    assert!(matches!(&ended, Poll::Ready(Err(RequestError::NoHost(none))) if none.is_empty()), "{ended:?}");
    stage.platform.drop_tasks();
    let ended = poll(&mut Box::pin(call().speculation(speculation).send()));
    assert!(matches!(ended, Poll::Ready(Err(RequestError::Abandoned))), "{ended:?}");
}

#[test]
fn discovered_hosts_have_the_options_in_force() {
    use crate::mux::control::create_hosts;
    let stage = Stage::new(options(), []);
    let options = MuxOptions { max_queue_size: 3, ..MuxOptions::DEFAULT };
    stage.session.set_mux_options(options).expect("good options");
    let new = [CqlHost::remote("b")];
    let hosts = finish(create_hosts(&stage.session.inner.shared, &Hosts::default(), &new));
    let found = hosts[0].look(Instant::ORIGIN, |mux, _, _| *mux.config().options());
    assert_eq!(found, MuxOptions { distance: Distance::Remote, ..options });
}

/// The other thread does both of its steps between those of the first one.
#[test]
fn pools_have_the_distance_of_the_hosts_that_were_set_last() {
    let stage = Stage::new(options(), []);
    let shared = &stage.session.inner.shared;
    let address = shared.hosts().all()[0].address.clone();
    let ignored = [CqlHost { address: address.clone(), distance: Distance::Ignored }];
    let [first, removed] = shared.replace_hosts(&ignored, &[], |hosts| hosts).expect("valid");
    shared.put_hosts(&[CqlHost::local(address)]).expect("valid");
    shared.reconfigure(&first, &removed);
    let hosts = shared.hosts();
    let distance = hosts.used()[0].look(Instant::ORIGIN, |mux, _, _| mux.config().options().distance);
    assert_eq!(distance, Distance::Local);
}

#[cfg(feature = "tracing")]
#[test]
fn lost_control_connection_is_logged_with_its_node_and_reason() {
    let captured = crate::log::tests::capture::capture(|| {
        // A read without bytes: the server has closed the connection.
        let mut script = handshake(&[], &[]);
        script.push_back(Vec::new());
        let stage = Stage::new(SessionOptions::contact_points(["a"]), [script]);
        stage.platform.run();
    });
    let lost: Vec<_> = captured.iter().map(|line| line.message()).filter(|line| line.starts_with("control")).collect();
    assert_eq!(lost, ["control connection lost: a: network error: the server closed the connection"]);
}
