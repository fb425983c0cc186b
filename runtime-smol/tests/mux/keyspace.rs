//! Changes of the keyspace of a session.

use super::{LONG, echo, join_all, options, run, server};
use core::cell::Cell;
use core::pin::pin;
use core::time::Duration;
use poolhouse_smol::mux::cql::ErrorCode;
use poolhouse_smol::mux::{ConnectionStatus, HostOptions, MuxOptions, RequestError, Session};
use poolhouse_tests::cql_server::{Act, CqlServer, Cut, Order, RequestKind, Rule};
use poolhouse_tests::patience::eventually;
use smol::future::{or, zip};

/// The keyspace in which the server has executed each statement with this text.
fn keyspaces(server: &CqlServer, text: &str) -> Vec<Option<String>> {
    let log = server.log();
    let executed = log.iter().enumerate().filter(|(_, one)| one.text.contains(text));
    executed
        .map(|(place, one)| {
            let mut earlier = log[..place].iter().rev().filter(|other| other.connection == one.connection);
            earlier.find_map(|other| Some(other.text.strip_prefix("USE \"")?.trim_end_matches('"').to_owned()))
        })
        .collect()
}

fn connections(session: &Session) -> Vec<Vec<ConnectionStatus>> {
    session.hosts().into_iter().map(|host| host.connections).collect()
}

/// Refuses a keyspace as a server does that has none with this name.
fn refuse(server: &CqlServer, keyspace: &str) {
    let message = format!("Keyspace '{keyspace}' does not exist");
    let refused = Act::Error(ErrorCode::INVALID.number(), message);
    server.add(Rule::on(RequestKind::Query, refused).text(&format!("USE \"{keyspace}\"")));
}

#[test]
fn requests_after_the_call_use_the_keyspace_on_every_connection() {
    let (one, two) = (server(), server());
    let servers = [&one, &two];
    for server in servers {
        server.add(Rule::statements(Act::Hold { count: usize::MAX, order: Order::Kept }).text("echo held"));
    }
    let local = HostOptions {
        core_connections: 2,
        max_connections: 4,
        max_requests_per_connection: 5,
        new_connection_threshold: 4,
    };
    run(async {
        let options = options(&servers).mux(MuxOptions { local, ..MuxOptions::DEFAULT });
        let session = Session::new(options).expect("a session");
        eventually("all are connected", || session.hosts().iter().all(|host| host.state.open == 2)).await;
        let held = join_all((0..8).map(|_| echo(&session, "held first")));
        let change = async {
            eventually("all are held", || one.held_count() + two.held_count() == 8).await;
            assert_eq!(session.keyspace(), None);
            session.use_keyspace("shop").await.expect("any keyspace is accepted");
            assert_eq!(session.keyspace().as_deref(), Some("shop"));
            eventually("all are connected", || session.hosts().iter().all(|host| host.state.open == 2)).await;
            let replies = join_all((0..20).map(|_| echo(&session, "second"))).await;
            assert!(replies.iter().all(Result::is_ok), "{replies:?}");
            // The old connections wait for the replies to their requests.
            assert!(session.hosts().iter().all(|host| (host.state.retired, host.state.in_flight) == (2, 4)));
            assert_eq!(servers.map(|server| server.release(Order::Kept)), [4; 2]);
        };
        let (replies, ()) = zip(held, change).await;
        assert!(replies.iter().all(Result::is_ok), "{replies:?}");
        eventually("the old connections are closed", || session.hosts().iter().all(|host| host.state.retired == 0))
            .await;
        // Connections that the load requires.
        let held = join_all((0..40).map(|_| echo(&session, "held third")));
        let watch = async {
            eventually("all are held", || one.held_count() + two.held_count() == 40).await;
            assert!(session.hosts().iter().all(|host| host.state.open == 4));
            assert_eq!(servers.map(|server| server.release(Order::Kept)), [20; 2]);
        };
        zip(held, watch).await;
        for server in servers {
            assert_eq!(keyspaces(server, "held first"), vec![None; 4]);
            assert_eq!(keyspaces(server, "second"), vec![Some("shop".to_owned()); 10]);
            assert_eq!(keyspaces(server, "held third"), vec![Some("shop".to_owned()); 20]);
        }
        // A connection that replaces a lost one.
        for server in servers {
            let accepted = server.counts().accepted;
            server.cut_all(Cut::Reset);
            eventually("others are accepted", || server.counts().accepted >= accepted + 2).await;
        }
        eventually("they are open", || session.hosts().iter().all(|host| host.state.open == 2)).await;
        let replies = join_all((0..8).map(|_| echo(&session, "fourth"))).await;
        assert!(replies.iter().all(Result::is_ok), "{replies:?}");
        for server in servers {
            assert_eq!(keyspaces(server, "fourth"), vec![Some("shop".to_owned()); 4]);
        }
    });
}

#[test]
fn requests_during_the_call_use_either_keyspace_and_none_fails() {
    let server = server();
    run(async {
        let session = Session::new(options(&[&server]).keyspace("old")).expect("a session");
        let (is_changed, is_over) = (Cell::new(false), Cell::new(false));
        let load = join_all((0..20).map(|_| async {
            while !is_over.get() {
                let text = if is_changed.get() { "after" } else { "during" };
                echo(&session, text).await.expect("it is executed");
            }
        }));
        let change = async {
            eventually("requests are executed", || keyspaces(&server, "during").len() > 100).await;
            session.use_keyspace("new").await.expect("any keyspace is accepted");
            is_changed.set(true);
            eventually("requests are executed", || keyspaces(&server, "after").len() > 100).await;
            is_over.set(true);
        };
        zip(load, change).await;
        assert!(keyspaces(&server, "after").iter().all(|used| used.as_deref() == Some("new")));
        let used = keyspaces(&server, "during");
        assert!(used.iter().all(|used| matches!(used.as_deref(), Some("old" | "new"))), "{used:?}");
    });
}

#[test]
fn keyspace_that_does_not_exist_is_an_error_and_changes_nothing() {
    let server = server();
    refuse(&server, "absent");
    run(async {
        let session = Session::new(options(&[&server]).keyspace("shop")).expect("a session");
        echo(&session, "before").await.expect("a reply");
        let (before, accepted) = (connections(&session), server.counts().accepted);
        let error = session.use_keyspace("absent").await.expect_err("there is no such keyspace");
        assert_eq!(
            error.to_string(),
            format!(
                "{} does not accept the keyspace \"absent\": Keyspace 'absent' does not exist; \
                create it, or pass its name in the case in which the server stores it",
                server.address()
            )
        );
        assert!(!error.may_have_executed() && !error.is_timeout());
        assert!(matches!(error, RequestError::Keyspace(error) if error.keyspace == "absent"));
        assert_eq!(server.counts().accepted, accepted + 1);
        for name in ["", "two words", "\"Shop\"", "shop\"; DROP TABLE teas; --", "théâtre", &"x".repeat(49)] {
            let error = session.use_keyspace(name).await.expect_err("no keyspace has the name");
            let rule = "must be 1 to 48 ASCII letters, digits and underscores";
            assert_eq!(error.to_string(), format!("keyspace is {name:?}, but {rule}"));
        }
        assert_eq!(server.counts().accepted, accepted + 1, "nothing was sent");
        assert_eq!((session.keyspace().as_deref(), connections(&session)), (Some("shop"), before));
        echo(&session, "after").await.expect("a reply");
        assert_eq!(keyspaces(&server, "after"), [Some("shop".to_owned())]);
    });
}

#[test]
fn host_that_is_down_during_the_call_uses_the_keyspace_when_it_returns() {
    let (one, two) = (server(), server());
    run(async {
        let session = Session::new(options(&[&one, &two])).expect("a session");
        eventually("both are connected", || session.hosts().iter().all(|host| host.state.open == 1)).await;
        let down = |server: &CqlServer| {
            server.refuse().expect("it ends to listen");
            server.cut_all(Cut::Reset);
        };
        down(&one);
        eventually("one is down", || session.hosts()[0].state.open == 0).await;
        session.use_keyspace("shop").await.expect("the other host accepts it");
        down(&two);
        eventually("both are down", || session.hosts().iter().all(|host| host.state.open == 0)).await;
        let error = session.use_keyspace("other").await.expect_err("no host accepts connections");
        let RequestError::NoHost(hosts) = &error else { panic!("{error:?}") };
        let tried: Vec<_> = hosts.iter().map(|host| &host.address).collect();
        assert_eq!(tried, [&one.address().to_string(), &two.address().to_string()]);
        assert_eq!(session.keyspace().as_deref(), Some("shop"));
        for server in [&one, &two] {
            server.resume().expect("the port is free");
        }
        eventually("both are connected", || session.hosts().iter().all(|host| host.state.open == 1)).await;
        for _ in 0..2 {
            echo(&session, "again").await.expect("a reply");
        }
        for server in [&one, &two] {
            assert_eq!(keyspaces(server, "again"), [Some("shop".to_owned())]);
        }
    });
}

#[test]
fn change_ends_the_pause_of_a_host_that_refused_the_keyspace() {
    let server = server();
    refuse(&server, "absent");
    // A pause that is longer than the test may take.
    let mux = MuxOptions { backoff_min: LONG * 10, backoff_max: LONG * 10, ..MuxOptions::DEFAULT };
    run(async {
        let session = Session::new(options(&[&server]).keyspace("absent").mux(mux)).expect("a session");
        eventually("the keyspace is refused", || session.hosts()[0].refusal.is_some()).await;
        let error = echo(&session, "before").await.expect_err("no connection");
        assert!(error.to_string().contains("absent"), "{error}");
        session.use_keyspace("shop").await.expect("it is accepted");
        echo(&session, "after").await.expect("a reply");
    });
}

#[test]
fn call_that_is_dropped_changes_nothing_and_one_that_is_pending_ends_with_the_session() {
    let server = server();
    let lost = server.add(Rule::on(RequestKind::Query, Act::Lose).text("USE \"lost\""));
    run(async {
        let options = options(&[&server]).request_timeout(None).connect_timeout(None);
        let session = Session::new(options).expect("a session");
        echo(&session, "before").await.expect("a reply");
        let before = connections(&session);
        {
            let mut call = pin!(session.use_keyspace("lost"));
            or(
                async {
                    let ended = call.as_mut().await;
                    panic!("it has no answer: {ended:?}");
                },
                eventually("the server has received it", || server.struck(lost) == 1),
            )
            .await;
        }
        eventually("its connection is closed", || server.counts().open == 1).await;
        assert_eq!((session.keyspace(), connections(&session)), (None, before));
        let close = async {
            eventually("the server has received it", || server.struck(lost) == 2).await;
            session.close().await;
        };
        let (ended, ()) = zip(session.use_keyspace("lost"), close).await;
        assert!(matches!(ended, Err(RequestError::Closed)), "{ended:?}");
        let error = session.use_keyspace("shop").await.expect_err("it is closed");
        assert!(matches!(error, RequestError::Closed), "{error:?}");
    });
}

#[test]
fn call_without_an_answer_times_out_and_changes_nothing() {
    let server = server();
    server.add(Rule::on(RequestKind::Query, Act::Lose).text("USE \"lost\""));
    run(async {
        let options = options(&[&server]).request_timeout(Duration::from_millis(300)).connect_timeout(None);
        let session = Session::new(options).expect("a session");
        eventually("it is connected", || session.hosts()[0].state.open == 1).await;
        let before = connections(&session);
        let error = session.use_keyspace("lost").await.expect_err("it has no answer");
        assert!(matches!(error, RequestError::TimedOut { sent: false, .. }), "{error:?}");
        assert_eq!((session.keyspace(), connections(&session)), (None, before));
    });
}

#[test]
fn last_of_several_calls_at_the_same_time_decides() {
    let server = server();
    run(async {
        let session = Session::new(options(&[&server])).expect("a session");
        for round in 0..20 {
            let names = ["one", "two", "three"];
            let calls = join_all(names.map(|name| session.use_keyspace(name))).await;
            assert!(calls.iter().all(Result::is_ok), "{calls:?}");
            let text = format!("round {round}.");
            let replies = join_all((0..5).map(|_| echo(&session, &text))).await;
            assert!(replies.iter().all(Result::is_ok), "{replies:?}");
            let keyspace = session.keyspace();
            assert!(names.contains(&keyspace.as_deref().expect("a keyspace")));
            assert_eq!(keyspaces(&server, &text), vec![keyspace; 5]);
        }
    });
}
