//! Events of commands, and of the selections of their servers.

use super::support::{client, eventually, known, options, refused, run, still_set};
use bson::{Document, doc};
use core::time::Duration;
use poolhouse_smol::poolhouse_driver::{CommandStage, EventKinds, OperationError, OwnedCommandEvent, SelectionStage};
use poolhouse_smol::{Client, CommandOptions, Cursor, CursorOptions, Event, Notice, Subscription};
use poolhouse_tests::fake::replica_set::FakeReplicaSet;
use poolhouse_tests::fake::{FailPoint, FailPointMode};
use smol::future::FutureExt as _;

/// A client that knows the set, and a subscription to its commands.
async fn observed() -> (FakeReplicaSet, Client, Subscription) {
    let set = still_set();
    let client = client(options(&set.uri()));
    known(&client, &set).await;
    let events = client.subscribe_to(EventKinds::COMMANDS);
    (set, client, events)
}

/// The events so far.
fn taken(events: &mut Subscription) -> Vec<OwnedCommandEvent> {
    core::iter::from_fn(|| events.try_next())
        .map(|notice| {
            let Notice::Event { event: Event::Command(event), .. } = notice else {
                panic!("no event of a command: {notice:?}")
            };
            *event
        })
        .collect()
}

fn names(events: &[OwnedCommandEvent]) -> Vec<String> {
    events.iter().map(|event| format!("{} {}", event.get().event_name(), event.get().name)).collect()
}

fn document(event: &OwnedCommandEvent) -> Document {
    event.get().document.try_into().expect("BSON")
}

#[test]
fn events_of_a_command_have_its_documents_and_identify_its_connection() {
    run(async {
        let (set, client, mut events) = observed().await;
        let primary = set.primary().expect("a primary");
        client.run_command("db", doc! { "insert": "c", "documents": [{ "_id": 7 }] }).await.expect("a reply");
        let seen = taken(&mut events);
        assert_eq!(names(&seen), ["CommandStarted insert", "CommandSucceeded insert"]);
        let sent = document(&seen[0]);
        assert_eq!(sent.get_array("documents").map(Vec::len).ok(), Some(1));
        assert!(
            sent.contains_key("lsid") && sent.get_str("$db").is_ok_and(|name| name == "db"),
            "as it is sent: {sent}"
        );
        assert_eq!(document(&seen[1]).get_i32("n").ok(), Some(1));
        let [started, ended] = [seen[0].get(), seen[1].get()];
        assert_eq!((started.duration(), ended.duration().is_some()), (None, true));
        assert_eq!((started.request_id, started.operation_id), (ended.request_id, ended.operation_id));
        assert_eq!(started.address, set.address(primary).to_string());
        assert_eq!((started.database, started.connection_id, started.service_id), ("db", 1, None));
        assert!(started.server_connection_id.is_some());
        // Other subscriptions have no copies of documents.
        let mut others = client.subscribe();
        client.run_command("db", doc! { "ping": 1 }).await.expect("a ping");
        while let Some(Notice::Event { event, .. }) = others.try_next() {
            assert!(!matches!(event, Event::Command(_)), "{event}");
        }
        client.close().await;
    });
}

#[test]
fn attempts_of_an_operation_have_its_id() {
    run(async {
        let (set, client, mut events) = observed().await;
        let primary = set.server(set.primary().expect("a primary"));
        primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["find"]).error(134));
        client.run_command("db", doc! { "find": "c" }).await.expect("the second attempt succeeds");
        let seen = taken(&mut events);
        let expected = ["CommandStarted find", "CommandFailed find", "CommandStarted find", "CommandSucceeded find"];
        assert_eq!(names(&seen), expected);
        let CommandStage::Failed { error: OperationError::Command { code: 134, .. }, .. } = seen[1].get().stage else {
            panic!("{seen:?}")
        };
        assert_eq!(document(&seen[1]).get_i32("code").ok(), Some(134));
        assert!(seen.iter().all(|event| event.get().operation_id == seen[0].get().operation_id));
        assert_ne!(seen[0].get().request_id, seen[2].get().request_id);
        client.run_command("db", doc! { "ping": 1 }).await.expect("a ping");
        assert_ne!(taken(&mut events)[0].get().operation_id, seen[0].get().operation_id);

        // Each command of a cursor has its events.
        client.run_command("db", doc! { "insert": "c", "documents": vec![doc! {}; 3] }).await.expect("a reply");
        let find = doc! { "find": "c", "batchSize": 2 };
        let cursor = client.run_cursor_command("db", find, CommandOptions::new(), CursorOptions::new()).await;
        let mut cursor: Cursor = cursor.expect("a cursor");
        while cursor.next_raw().await.expect("a document").is_some() {}
        let seen = taken(&mut events);
        assert_eq!(names(&seen)[4..], ["CommandStarted getMore", "CommandSucceeded getMore"]);
        client.close().await;
    });
}

/// Server Selection, "Logging".
#[test]
fn selections_of_an_operation_have_the_id_of_its_commands() {
    run(async {
        let (set, client, _) = observed().await;
        let mut events = client.subscribe_to(EventKinds::COMMANDS | EventKinds::SELECTIONS);
        let primary = set.server(set.primary().expect("a primary"));
        primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["find"]).error(134));
        client.run_command("db", doc! { "find": "c" }).await.expect("the second attempt succeeds");
        let (mut names, mut ids, mut addresses) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(Notice::Event { event, .. }) = events.try_next() {
            if let Event::Command(event) = event {
                names.push(event.get().event_name());
                ids.push(Some(event.get().operation_id));
                continue;
            }
            let Event::Selection(event) = event else { panic!("{event}") };
            let event = event.get();
            assert_eq!((event.operation, event.selector), (Some("find"), "write"));
            if let SelectionStage::Succeeded { address } = event.stage {
                addresses.push(address.to_owned());
            }
            names.push(event.event_name());
            ids.push(event.operation_id);
        }
        let attempt = |end| ["ServerSelectionStarted", "ServerSelectionSucceeded", "CommandStarted", end];
        assert_eq!(names, [attempt("CommandFailed"), attempt("CommandSucceeded")].concat());
        assert!(ids.iter().all(|id| id.is_some() && *id == ids[0]), "{ids:?}");
        assert_eq!(addresses, [primary.address().to_string(), primary.address().to_string()]);

        // Without the events of commands, the operation has an id too.
        let mut events = client.subscribe_to(EventKinds::SELECTIONS);
        client.run_command("db", doc! { "ping": 1 }).await.expect("a ping");
        let Some(Notice::Event { event: Event::Selection(event), .. }) = events.try_next() else { panic!("a start") };
        assert!(event.get().operation_id.is_some_and(|id| id > i64::from(u32::MAX)));
        client.close().await;
    });
}

/// Command Logging and Monitoring, "Security".
#[test]
fn documents_that_may_contain_secrets_are_left_out() {
    run(async {
        let (_set, client, mut events) = observed().await;
        let speculative = doc! { "hello": 1, "speculativeAuthenticate": { "saslStart": 1 } };
        let secrets = [
            doc! { "saslStart": 1, "payload": "secret" },
            doc! { "saslContinue": 1, "payload": "secret" },
            doc! { "authenticate": 1, "key": "secret" },
            doc! { "createUser": "u", "pwd": "secret" },
            doc! { "updateUser": "u", "pwd": "secret" },
            doc! { "getnonce": 1 },
            speculative,
        ];
        for command in secrets {
            // The server may refuse it.
            let _: Result<_, _> = client.run_command("admin", command.clone()).await;
            let seen = taken(&mut events);
            assert_eq!(seen.len(), 2, "{command}: {seen:?}");
            assert!(seen.iter().all(|event| document(event).is_empty()), "{command}: {seen:?}");
            let texts: Vec<_> = seen.iter().map(|event| event.get().to_string()).collect();
            assert!(!texts.concat().contains("secret"), "{command}: {texts:?}");
        }
        client.run_command("admin", doc! { "hello": 1 }).await.expect("a reply");
        assert!(taken(&mut events).iter().all(|event| !document(event).is_empty()));
        client.close().await;
    });
}

#[test]
fn command_without_a_reply_fails_once() {
    run(async {
        let (set, client, mut events) = observed().await;
        let primary = set.server(set.primary().expect("a primary"));
        let never = Duration::from_secs(60);
        primary.set_fail_point(FailPoint::new(FailPointMode::Times(2), &["ping"]).block(never));
        let hurried = CommandOptions::new().timeout(Duration::from_millis(100));
        let mut seen = Vec::new();
        // On a machine that stalls, the limit may pass before the command is sent.
        while seen.is_empty() {
            refused(client.run_command_with("db", doc! { "ping": 1 }, hurried).await);
            seen = taken(&mut events);
        }
        assert_eq!(names(&seen), ["CommandStarted ping", "CommandFailed ping"]);
        assert!(matches!(seen[1].get().stage, CommandStage::Failed { error: OperationError::Timeout, .. }));

        // The future of the command is dropped.
        let pinging = async { client.run_command("db", doc! { "ping": 1 }).await.map(drop) };
        let impatient = async {
            eventually("the server has the second ping", || primary.count_of("ping") == 2).await;
            Ok(())
        };
        pinging.or(impatient).await.expect("no reply");
        let seen = taken(&mut events);
        assert_eq!(names(&seen), ["CommandStarted ping", "CommandFailed ping"]);
        assert!(matches!(seen[1].get().stage, CommandStage::Failed { error: OperationError::Broken(_), .. }));

        // A command that is not sent has no events.
        let late = CommandOptions::new().timeout(Duration::from_nanos(1));
        refused(client.run_command_with("db", doc! { "ping": 1 }, late).await);
        assert_eq!(taken(&mut events).len(), 0);
        client.close().await;
    });
}
