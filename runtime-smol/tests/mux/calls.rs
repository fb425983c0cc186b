//! Statements with values, and batches.

use super::{options, run, server};
use poolhouse_smol::mux::cql::{ErrorCode, MaybeUnset, Version};
use poolhouse_smol::mux::{Batch, RequestError, Session, SessionOptions};
use poolhouse_tests::cql_server::{Act, CqlServer, Cut, RequestKind, Rule};
use poolhouse_tests::patience::eventually;

/// The number of requests of a kind.
fn count(server: &CqlServer, kind: RequestKind) -> usize {
    server.log().iter().filter(|request| request.kind == kind).count()
}

/// The texts of the batches that a server has executed.
fn batches(server: &CqlServer) -> Vec<String> {
    let log = server.log().into_iter();
    log.filter(|request| request.kind == RequestKind::Batch && !request.text.is_empty()).map(|one| one.text).collect()
}

/// Sends a text with a value, which is answered with the value.
async fn echo(session: &Session, text: &str, value: &str) {
    let reply = session.query(text).values((value,)).send().await.expect("a reply");
    let found = reply.one::<(String,)>().expect("a text").expect("a row").0;
    assert!(found.ends_with(value), "{found}");
}

/// A session that is connected to all of its hosts.
async fn connected(options: SessionOptions) -> Session {
    let session = Session::new(options).expect("valid options");
    eventually("all are connected", || session.hosts().iter().all(|host| host.state.open > 0)).await;
    session
}

#[test]
fn text_with_values_is_prepared_once_and_kept_while_it_is_used() {
    for version in Version::ALL {
        let server = server();
        run(async {
            let session = connected(options(&[&server]).version(version).statements_max(2)).await;
            let sent = || (count(&server, RequestKind::Prepare), count(&server, RequestKind::Execute));
            for text in ["echo ?", "echo b ?", "echo ?"] {
                echo(&session, text, "tea").await;
            }
            assert_eq!(sent(), (2, 3), "{version}");
            // The second one was not used for the longest time, and makes room.
            for text in ["echo c ?", "echo ?", "echo b ?"] {
                echo(&session, text, "coffee").await;
            }
            assert_eq!(sent(), (4, 6), "{version}");
            // A statement belongs to the keyspace in which it was prepared.
            session.use_keyspace("shop").await.expect("any keyspace is accepted");
            echo(&session, "echo b ?", "water").await;
            assert_eq!(sent(), (5, 7), "{version}");
            session.close().await;
        });
    }
}

#[test]
fn value_that_does_not_fit_is_an_error_of_its_call_only() {
    let server = server();
    run(async {
        let session = connected(options(&[&server])).await;
        let statement = session.prepare("echo ?").await.expect("prepared");
        let calls = [
            session.execute(&statement, &(7,)),
            session.query("echo b ?").values(("tea",)),
            session.query("echo ?").values(("one", "too many")),
            session.execute(&statement, &("tea",)),
            session.query("nonsense ?").values(("tea",)),
        ];
        let results = session.request_all(&calls).await;
        let [
            Err(RequestError::Bind(kind)),
            Ok(first),
            Err(RequestError::Bind(_)),
            Ok(second),
            Err(RequestError::Server(error)),
        ] = &results[..]
        else {
            panic!("{results:?}")
        };
        assert_eq!(kind.variable(), "v0");
        assert_eq!((first.one().expect("text"), second.one().expect("text")), (Some(("b tea",)), Some(("tea",))));
        assert_eq!(error.code, ErrorCode::SYNTAX_ERROR);
        assert_eq!(count(&server, RequestKind::Execute), 2);
        let mut batch = Batch::logged();
        batch.execute(&statement, &("tea",)).execute(&statement, &(7,));
        for call in [session.execute(&statement, &(7,)), session.batch(&batch)] {
            assert!(matches!(call.send().await, Err(RequestError::Bind(_))));
        }
        assert_eq!((count(&server, RequestKind::Execute), count(&server, RequestKind::Batch)), (2, 0));
        session.close().await;
    });
}

#[test]
fn batch_is_executed_by_hosts_that_did_not_have_its_statements() {
    for version in Version::ALL {
        let (one, two) = (server(), server());
        run(async {
            let session = connected(options(&[&one, &two]).version(version)).await;
            let statement = session.prepare("void of ?").await.expect("prepared");
            let mut batch = Batch::unlogged();
            batch
                .query("void a")
                .query_with("void b ?", ("c",))
                .execute(&statement, &("d",))
                .execute(&statement, &("e",));
            for _ in 0..4 {
                session.batch(&batch).send().await.expect("it is executed");
            }
            let calls = vec![session.batch(&batch); 6];
            for result in session.request_all(&calls).await {
                result.expect("it is executed");
            }
            let (of_one, of_two) = (batches(&one), batches(&two));
            assert_eq!(of_one.len() + of_two.len(), 10, "{version}");
            assert!(!of_one.is_empty() && !of_two.is_empty(), "{version}");
            assert!(of_one.iter().chain(&of_two).all(|text| text == "void a; void b c; void of d; void of e"));
            // Each has one of the statements, and prepares both again, once: first with a space behind them.
            assert_eq!([&one, &two].map(|server| count(server, RequestKind::Prepare)), [5, 5], "{version}");
            session.close().await;
        });
    }
}

/// The connection of the host is cut while it prepares the statement, or before.
#[test]
fn request_all_prepares_statements_on_hosts_that_do_not_have_them() {
    for (fault, idempotent) in [(None, false), (Some(RequestKind::Prepare), false), (Some(RequestKind::Execute), true)]
    {
        let (one, two) = (server(), server());
        run(async {
            let session = connected(options(&[&one, &two])).await;
            let id_of = |server: &CqlServer| {
                let address = server.address().to_string();
                session.hosts().iter().find(|host| host.address == address).expect("a host").id
            };
            let hosts = [id_of(&one), id_of(&two)];
            let texts: Vec<_> = (0..100).map(|number| number.to_string()).collect();
            let statement = session.prepare("echo ?").await.expect("prepared");
            let prepared = [&one, &two].map(|server| count(server, RequestKind::Prepare));
            // The host that has not prepared it comes first.
            let hosts = if prepared == [1, 0] { [hosts[1], hosts[0]] } else { hosts };
            let other = if prepared == [1, 0] { &two } else { &one };
            if let Some(kind) = fault {
                other.add(Rule::on(kind, Act::Close(Cut::Reset)).times(1));
            }
            let call = |text| session.execute(&statement, &(text,)).hosts(&hosts).idempotent(idempotent);
            let calls: Vec<_> = texts.iter().map(call).collect();
            for (result, text) in session.request_all(&calls).await.into_iter().zip(&texts) {
                let reply = result.unwrap_or_else(|error| panic!("{fault:?}, {text}: {error}"));
                assert_eq!(reply.one().expect("a text"), Some((text.as_str(),)), "{fault:?}");
            }
            if fault.is_none() {
                let expected = if prepared == [1, 0] { [1, 2] } else { [2, 1] };
                assert_eq!([&one, &two].map(|server| count(server, RequestKind::Prepare)), expected);
            }
            for host in session.hosts() {
                assert_eq!((host.state.in_flight, host.state.queued), (0, 0));
            }
            session.close().await;
        });
    }
}

#[test]
fn unset_value_is_refused_before_version_4() {
    for version in Version::ALL {
        let server = server();
        run(async {
            let session = connected(options(&[&server]).version(version)).await;
            let values = (MaybeUnset::<&str>::Unset,);
            let result = session.query("echo ?").values(values).send().await;
            assert_eq!(result.is_ok(), version != Version::V3, "{version}: {result:?}");
            if let Err(error) = result {
                assert!(matches!(error, RequestError::Encode(_) | RequestError::Bind(_)), "{error:?}");
            }
            session.close().await;
        });
    }
}
