//! Sessions on smol against fake Cassandra servers.

#![allow(missing_docs, reason = "a test")]

#[path = "mux/calls.rs"]
mod calls;
#[path = "mux/keyspace.rs"]
mod keyspace;

use core::time::Duration;
use futures_lite_join::join_all;
use poolhouse_smol::Event;
use poolhouse_smol::Notice;
use poolhouse_smol::Smol;
use poolhouse_smol::mux::cql::{Compression, Consistency, ErrorCode, Response, Version};
use poolhouse_smol::mux::{
    AcquireError, HostOptions, MuxEvent, MuxOptions, RejectionReason, RequestError, Session, SessionOptions,
};
use poolhouse_smol::poolhouse_client::mux;
use poolhouse_smol::poolhouse_driver::Subscribers;
use poolhouse_tests::contract::hosted::Probe;
use poolhouse_tests::cql_server::{Act, CqlServer, CqlServerOptions, Cut, Order, Rule, cell_of};
use poolhouse_tests::patience::eventually;
use smol::future::or;

/// No step of these tests takes longer, unless it hangs.
const LONG: Duration = Duration::from_secs(60);

fn server() -> CqlServer {
    CqlServer::start(CqlServerOptions::default()).expect("a server")
}

fn options(servers: &[&CqlServer]) -> SessionOptions {
    SessionOptions::new(servers.iter().map(|server| server.address().to_string())).request_timeout(LONG)
}

/// The number of requests, except those of handshakes (two each).
fn statements(server: &CqlServer) -> u64 {
    let counts = server.counts();
    counts.requests - 2 * counts.startups
}

fn run<T>(work: impl Future<Output = T>) -> T {
    smol::block_on(or(work, async {
        smol::Timer::after(LONG * 2).await;
        panic!("it hangs");
    }))
}

async fn echo(session: &Session, text: &str) -> Result<String, RequestError> {
    let reply = session.query(&format!("echo {text}")).consistency(Consistency::One).send().await?;
    let cell = cell_of(reply.body()).expect("a row with a cell");
    Ok(String::from_utf8(cell.to_vec()).expect("text"))
}

/// Polls all futures concurrently, in one task.
mod futures_lite_join {
    use core::future::poll_fn;
    use core::task::Poll;

    pub(super) async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
        let mut waiting: Vec<_> = futures.into_iter().map(|future| (Some(Box::pin(future)), None)).collect();
        poll_fn(|context| {
            let mut left = 0;
            for (future, outcome) in &mut waiting {
                let Some(polled) = future.as_mut() else { continue };
                match polled.as_mut().poll(context) {
                    Poll::Ready(value) => (*future, *outcome) = (None, Some(value)),
                    Poll::Pending => left += 1,
                }
            }
            if left == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        waiting.into_iter().filter_map(|(_, outcome)| outcome).collect()
    }
}

#[test]
fn replies_reach_their_requests_in_every_version_and_compression() {
    let compressions = [None, Some(Compression::Lz4), Some(Compression::Snappy)];
    for version in Version::ALL {
        for compression in compressions {
            let server = server();
            server.add(Rule::statements(Act::Hold { count: 7, order: Order::Shuffled(3) }).text("echo ").times(490));
            let options = options(&[&server])
                .version(version)
                .compressions(compression.into_iter().collect::<Vec<_>>())
                .mux(MuxOptions { max_queue_size: 1000, ..MuxOptions::DEFAULT });
            run(async {
                let session = Session::new(options).expect("a session");
                let texts: Vec<_> = (0..490).map(|number| format!("{number:0>width$}", width = number % 200)).collect();
                let replies = join_all(texts.iter().map(|text| echo(&session, text))).await;
                for (reply, text) in replies.into_iter().zip(&texts) {
                    assert_eq!(reply.as_ref().ok(), Some(text), "{version} {compression:?} {reply:?}");
                }
                let [host] = &session.hosts()[..] else { panic!("one host") };
                assert_eq!((host.state.in_flight, host.state.queued, host.state.open), (0, 0, 1));
                session.close().await;
                assert!(matches!(echo(&session, "late").await, Err(RequestError::Closed)));
            });
        }
    }
}

#[test]
fn large_bodies_are_sent_and_received() {
    let server = server();
    run(async {
        for version in Version::ALL {
            let session = Session::new(options(&[&server]).version(version)).expect("a session");
            let large = "x".repeat(3_000_000);
            assert_eq!(echo(&session, &large).await.expect("a reply"), large);
            let replies =
                join_all((0..8).map(|_| session.query("bytes 2000000 ab").consistency(Consistency::One).send())).await;
            for reply in replies {
                assert_eq!(cell_of(reply.expect("a reply").body()).map(<[u8]>::len), Some(2_000_000));
            }
        }
    });
}

#[test]
fn older_version_of_a_server_is_used() {
    for (spoken, expected) in [(&[3, 4][..], Version::V4), (&[3], Version::V3)] {
        let server = CqlServer::start(CqlServerOptions::with_versions(spoken)).expect("a server");
        run(async {
            let session = Session::new(options(&[&server])).expect("a session");
            assert_eq!(echo(&session, "a").await.expect("a reply"), "a");
            assert_eq!(session.hosts()[0].version, expected);
        });
    }
}

#[test]
fn credential_is_sent_and_a_refusal_is_in_the_error() {
    let options_of = CqlServerOptions::default().with_credentials("ann", "hunter2");
    let server = CqlServer::start(options_of).expect("a server");
    run(async {
        let session = Session::new(options(&[&server]).credential("ann", "hunter2")).expect("a session");
        assert_eq!(echo(&session, "a").await.expect("a reply"), "a");
        let session = Session::new(options(&[&server]).credential("ann", "hunter3")).expect("a session");
        let error = echo(&session, "a").await.expect_err("a wrong password");
        let RequestError::NoHost(hosts) = &error else { panic!("{error:?}") };
        assert_eq!(hosts.len(), 1);
        assert!(hosts[0].refusal.is_some(), "{error}");
        assert!(!format!("{error} {error:?} {session:?} {:?}", session.options()).contains("hunter"));
        let session = Session::new(options(&[&server])).expect("a session");
        assert!(matches!(echo(&session, "a").await, Err(RequestError::NoHost(_))));
    });
}

#[test]
fn requests_rotate_over_local_hosts_and_use_remote_ones_without_a_local() {
    let (one, two, far) = (server(), server(), server());
    run(async {
        let options = options(&[&one, &two]).remote_host(far.address().to_string());
        let session = Session::new(options).expect("a session");
        eventually("all are connected", || session.hosts().iter().all(|host| host.state.open > 0)).await;
        for number in 0..20 {
            echo(&session, &number.to_string()).await.expect("a reply");
        }
        assert_eq!((statements(&one), statements(&two), statements(&far)), (10, 10, 0));
        one.kill().expect("it ends");
        two.kill().expect("it ends");
        let mut answered = 0;
        for number in 0..20 {
            // A request in flight may be lost; the next ones are not.
            answered += u32::from(echo(&session, &number.to_string()).await.is_ok());
        }
        assert!(answered >= 18, "{answered}");
        far.kill().expect("it ends");
        let _ = echo(&session, "perhaps lost").await;
        let error = echo(&session, "nobody").await.expect_err("nobody is there");
        let RequestError::NoHost(hosts) = &error else { panic!("{error:?}") };
        assert_eq!(hosts.len(), 3, "{error}");
        assert!(
            hosts.iter().all(|host| matches!(host.reason, RejectionReason::Pool(AcquireError::Down { .. }))),
            "{error}"
        );
        let text = error.to_string();
        for server in [&one, &two, &far] {
            assert!(text.contains(&server.address().to_string()), "{text}");
        }
    });
}

#[test]
fn a_request_that_times_out_fails_and_its_late_reply_is_dropped() {
    let server = server();
    let lost = server.add(Rule::statements(Act::Hold { count: usize::MAX, order: Order::Kept }).text("echo slow"));
    run(async {
        let session = Session::new(options(&[&server])).expect("a session");
        assert_eq!(echo(&session, "first").await.expect("a reply"), "first");
        let call = session.query("echo slow").consistency(Consistency::One).timeout(Duration::from_secs(1));
        let error = call.send().await.expect_err("nothing comes");
        assert!(matches!(error, RequestError::TimedOut { sent: true, .. }), "{error:?}");
        assert!(error.is_timeout() && error.may_have_executed());
        let state = session.hosts()[0].state;
        assert_eq!((state.in_flight, state.orphaned), (0, 1));
        let mut events = session.subscribe();
        assert!(server.wait_until(LONG, |server| server.held_count() == 1));
        assert_eq!(server.release(Order::Kept), 1);
        loop {
            match events.next().await {
                Some(Notice::Event { event: Event::Mux(MuxEvent::LateReply { .. }), .. }) => break,
                Some(_) => {}
                None => panic!("the session is open"),
            }
        }
        assert_eq!(session.hosts()[0].state.orphaned, 0);
        assert_eq!(server.struck(lost), 1);
        assert_eq!(echo(&session, "last").await.expect("a reply"), "last");
    });
}

#[test]
fn protocol_violation_closes_the_connection_and_fails_each_request_once() {
    let acts = [
        Act::Stream(999),
        Act::Stream(-1),
        Act::Stream(-7),
        Act::Twice,
        Act::Version(0x99),
        Act::Direction,
        Act::Length(-1),
        Act::Length(i32::MAX),
        Act::Truncate { bytes: 5, cut: Cut::Close },
        Act::Close(Cut::Close),
        Act::Close(Cut::Reset),
        Act::Checksum(poolhouse_tests::cql_server::Part::Header),
        Act::Checksum(poolhouse_tests::cql_server::Part::Payload),
        Act::Raw(vec![0xff; 100]),
    ];
    for act in acts {
        let server = server();
        let name = format!("{act:?}");
        let silent = server.add(Rule::statements(Act::Lose).text("echo silent"));
        let bad = server.add(Rule::statements(act.clone()).text("echo bad").times(1));
        run(async {
            let session = Session::new(options(&[&server])).expect("a session");
            assert_eq!(echo(&session, "first").await.expect("a reply"), "first", "{name}");
            let mut events = session.subscribe_where(|event| {
                matches!(event, poolhouse_smol::EventRef::Mux(MuxEvent::ConnectionClosed { .. }))
            });
            let waiting = async {
                let outcomes = join_all((0..5).map(|_| echo(&session, "silent"))).await;
                outcomes.into_iter().map(|outcome| outcome.expect_err("it is silent")).collect::<Vec<_>>()
            };
            let poison = async {
                while server.struck(silent) < 5 {
                    smol::Timer::after(Duration::from_millis(1)).await;
                }
                echo(&session, "bad").await
            };
            let (errors, outcome) = smol::future::zip(waiting, poison).await;
            for error in &errors {
                assert!(matches!(error, RequestError::Lost { .. }), "{name}: {error:?}");
            }
            let answered = matches!(act, Act::Twice);
            assert_eq!(outcome.is_ok(), answered, "{name}: {outcome:?}");
            assert_eq!(server.struck(bad), 1, "{name}");
            assert!(matches!(events.next().await, Some(Notice::Event { .. })), "{name}");
            // A new connection replaces it.
            assert_eq!(echo(&session, "again").await.expect("a reply"), "again", "{name}");
            let state = session.hosts()[0].state;
            assert_eq!((state.in_flight, state.orphaned, state.queued), (0, 0, 0), "{name}");
        });
    }
}

#[test]
fn errors_of_servers_are_returned_and_a_starting_server_is_skipped() {
    let (one, two) = (server(), server());
    one.add(Rule::statements(Act::Error(ErrorCode::IS_BOOTSTRAPPING.number(), "not yet".into())).text("echo boot"));
    for server in [&one, &two] {
        server.add(Rule::statements(Act::Error(ErrorCode::OVERLOADED.number(), "too much".into())).text("echo busy"));
    }
    run(async {
        let session = Session::new(options(&[&one, &two])).expect("a session");
        for _ in 0..4 {
            assert_eq!(echo(&session, "boot").await.expect("a reply"), "boot");
        }
        let error = session.query("nonsense").consistency(Consistency::One).send().await.expect_err("it is nonsense");
        let RequestError::Server(error) = error else { panic!("{error:?}") };
        assert_eq!(error.code, ErrorCode::SYNTAX_ERROR);
        assert!(matches!(error.reply.response(), Ok(Response::Error(_))));
        let error = echo(&session, "busy").await.expect_err("too much");
        assert!(matches!(error, RequestError::Server(_)), "it may have been executed: {error:?}");
        let call = session.query("echo busy").consistency(Consistency::One).idempotent(true);
        let error = call.send().await.expect_err("too much");
        let RequestError::NoHost(hosts) = error else { panic!("{error:?}") };
        assert_eq!(hosts.len(), 2);
    });
}

/// More than two hosts take at a time: the ids and the queues of both are full, and some requests
/// are rejected. Each has its own result.
#[test]
fn request_all_returns_the_result_of_each_request() {
    let (one, two) = (server(), server());
    for server in [&one, &two] {
        server.add(Rule::statements(Act::Error(ErrorCode::OVERLOADED.number(), "too much".into())).text("echo 130"));
    }
    run(async {
        let hosts = HostOptions {
            core_connections: 1,
            max_connections: 1,
            max_requests_per_connection: 200,
            new_connection_threshold: 200,
        };
        let mux = MuxOptions { local: hosts, max_queue_size: 150, ..MuxOptions::DEFAULT };
        let session = Session::new(options(&[&one, &two]).mux(mux)).expect("a session");
        eventually("both are connected", || session.hosts().iter().all(|host| host.state.open == 1)).await;
        let texts: Vec<String> = (0..900).map(|number| format!("echo {number}")).collect();
        let calls: Vec<_> = texts.iter().map(|text| session.query(text).consistency(Consistency::One)).collect();
        let results = session.request_all(&calls).await;
        let (mut answered, mut rejected) = (0, 0);
        for (number, result) in results.iter().enumerate() {
            match result {
                Ok(reply) => {
                    assert_eq!(cell_of(reply.body()), Some(number.to_string().as_bytes()));
                    answered += 1;
                }
                Err(RequestError::Server(error)) if number == 130 => assert_eq!(error.code, ErrorCode::OVERLOADED),
                Err(RequestError::NoHost(hosts)) => {
                    let is_busy = |reason| matches!(reason, RejectionReason::Pool(AcquireError::Busy { .. }));
                    assert!(hosts.len() == 2 && hosts.iter().all(|host| is_busy(host.reason)), "{hosts:?}");
                    rejected += 1;
                }
                Err(error) => panic!("{number}: {error:?}"),
            }
        }
        assert_eq!((answered, rejected, results.len()), (699, 200, 900));
        assert_eq!((statements(&one), statements(&two)), (350, 350));
        for host in session.hosts() {
            let state = host.state;
            assert_eq!((state.in_flight, state.queued, state.orphaned), (0, 0, 0), "{state:?}");
        }
    });
}

/// The connection of one host fails after some answers: idempotent requests are sent to the other.
#[test]
fn request_all_repeats_idempotent_requests_when_a_host_is_lost() {
    for idempotent in [true, false] {
        let (one, two) = (server(), server());
        one.add(Rule::statements(Act::Close(Cut::Reset)).text("echo 50"));
        run(async {
            let session = Session::new(options(&[&one, &two])).expect("a session");
            eventually("both are connected", || session.hosts().iter().all(|host| host.state.open > 0)).await;
            let id_of = |server: &CqlServer| {
                let address = server.address().to_string();
                session.hosts().iter().find(|host| host.address == address).expect("a host").id
            };
            let hosts = [id_of(&one), id_of(&two)];
            let texts: Vec<String> = (0..100).map(|number| format!("echo {number}")).collect();
            let call = |text| session.query(text).consistency(Consistency::One).idempotent(idempotent).hosts(&hosts);
            let calls: Vec<_> = texts.iter().map(|text| call(text)).collect();
            let results = session.request_all(&calls).await;
            for (number, result) in results.iter().enumerate() {
                match result {
                    Ok(reply) => assert_eq!(cell_of(reply.body()), Some(number.to_string().as_bytes())),
                    Err(RequestError::Lost { .. }) if !idempotent => {}
                    Err(error) => panic!("{number}: {error:?}"),
                }
            }
            assert_eq!(results[50].is_ok(), idempotent);
        });
    }
}

/// B1: sockets take no bytes until all requests are in flight. The requests are then written
/// together, even on a busy machine.
#[test]
fn concurrent_requests_are_written_together() {
    let server = CqlServer::start(CqlServerOptions::fast()).expect("a server");
    let probe = Probe::<Smol>::default();
    let options = options(&[&server]).mux(MuxOptions { max_queue_size: 0, ..MuxOptions::DEFAULT });
    run(async {
        let session = mux::Session::with_platform(probe.clone(), options, Subscribers::default()).expect("a session");
        eventually("a connection is open", || session.hosts()[0].state.open > 0).await;
        let (requests, writes) = (server.counts().requests, probe.writes_count());
        probe.hold_writes();
        let load = join_all((0..1000).map(|_| session.query("void").consistency(Consistency::One).send()));
        let release = async {
            eventually("all requests are in flight", || session.hosts()[0].state.in_flight == 1000).await;
            probe.release_writes();
        };
        let (replies, ()) = smol::future::zip(load, release).await;
        assert!(replies.iter().all(Result::is_ok));
        assert_eq!(server.counts().requests - requests, 1000);
        let writes = probe.writes_count() - writes;
        assert!(writes <= 10, "1,000 requests took {writes} writes");
    });
}

#[test]
fn a_pool_grows_with_its_load_and_shrinks_after_it() {
    let server = server();
    server.add(Rule::statements(Act::Hold { count: usize::MAX, order: Order::Kept }).text("echo held"));
    let hosts = HostOptions {
        core_connections: 1,
        max_connections: 3,
        max_requests_per_connection: 10,
        new_connection_threshold: 8,
    };
    let mux = MuxOptions {
        local: hosts,
        shrink_interval: Duration::from_millis(20),
        idle_timeout: Duration::from_millis(50),
        ..MuxOptions::DEFAULT
    };
    run(async {
        let (session, mut events) = Session::new_subscribed(options(&[&server]).mux(mux)).expect("a session");
        let load = join_all((0..30).map(|_| echo(&session, "held")));
        let watch = async {
            while server.held_count() < 30 {
                smol::Timer::after(Duration::from_millis(1)).await;
            }
            assert_eq!(session.hosts()[0].state.open, 3);
            assert_eq!(server.release(Order::Reversed), 30);
        };
        let (replies, ()) = smol::future::zip(load, watch).await;
        assert!(replies.iter().all(Result::is_ok), "{replies:?}");
        let (mut trashed, mut closed) = (0, 0);
        while closed < 2 {
            match events.next().await {
                Some(Notice::Event { event: Event::Mux(event), .. }) => {
                    trashed += u32::from(matches!(event, MuxEvent::ConnectionTrashed { .. }));
                    closed += u32::from(matches!(event, MuxEvent::ConnectionClosed { .. }));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(trashed, 2);
        assert_eq!(session.hosts()[0].state.open, 1);
    });
}

#[test]
fn hosts_and_options_can_be_changed_while_the_session_is_open() {
    let (one, two) = (server(), server());
    run(async {
        let session = Session::new(options(&[&one])).expect("a session");
        echo(&session, "a").await.expect("a reply");
        session.set_hosts(&[poolhouse_smol::mux::CqlHost::local(two.address().to_string())]).expect("a host");
        echo(&session, "b").await.expect("a reply");
        assert_eq!((statements(&one), statements(&two)), (1, 1));
        assert!(one.wait_until(LONG, |one| one.counts().open == 0));
        assert!(session.set_hosts(&[]).is_err());
        let options = MuxOptions { max_queue_size: 7, ..MuxOptions::DEFAULT };
        session.set_mux_options(options).expect("they are good");
        assert_eq!(session.hosts()[0].config.options().max_queue_size, 7);
        assert_eq!(session.mux_options().max_queue_size, 7);
        let bad = MuxOptions { shrink_interval: Duration::ZERO, ..options };
        assert!(session.set_mux_options(bad).is_err());
        assert_eq!(session.mux_options().shrink_interval, options.shrink_interval);
        drop(session);
        assert!(two.wait_until(LONG, |two| two.counts().open == 0));
    });
}

#[test]
fn invalid_options_are_named() {
    let said = |options: SessionOptions| options.validate().expect_err("it is wrong").to_string();
    assert_eq!(said(SessionOptions::new(Vec::<String>::new())), "hosts is 0, but must be from 1 to 4096");
    assert!(said(SessionOptions::new(["a:b"])).starts_with("hosts is \"a:b\", but must be host"));
    assert!(!said(SessionOptions::new(["ann:hunter2@db"])).contains("hunter2"));
    assert_eq!(said(SessionOptions::new(["a", "a"])), "hosts is \"a\", but must be listed once");
    assert!(said(SessionOptions::new(["a"]).connect_timeout(Duration::ZERO)).starts_with("connectTimeoutMS is 0"));
}
