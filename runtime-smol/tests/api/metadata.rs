//! Client metadata that is added after the client was created.
//!
//! The cases are those of MongoDB Handshake, "Client Metadata Update Prose Tests".

use super::support::{client, options, refused, run, server};
use bson::{Document, doc};
use core::time::Duration;
use poolhouse_smol::{Client, DriverInfo, Error, SetupError};
use poolhouse_tests::fake::{Cut, FakeServer};
use poolhouse_tests::patience::eventually;

fn info(name: &str, version: Option<&str>, platform: Option<&str>) -> DriverInfo {
    let mut info = DriverInfo::new(name);
    info.version = version.map(str::to_owned);
    info.platform = platform.map(str::to_owned);
    info
}

fn library() -> DriverInfo {
    info("library", Some("1.2"), Some("Library Platform"))
}

/// The metadata of a new connection, which is checked out while all others are in use.
async fn told(server: &FakeServer, client: &Client) -> Document {
    let mut others = Vec::new();
    while client.servers()[0].pool.counts.available > 0 {
        others.push(client.check_out().await.expect("an idle connection"));
    }
    let before = newest(server).map(|(id, _)| id);
    let _new = client.check_out().await.expect("a new connection");
    let (id, told) = newest(server).expect("a connection");
    assert!(Some(id) > before);
    told
}

/// The id and the metadata of the newest connection.
fn newest(server: &FakeServer) -> Option<(u64, Document)> {
    let newest = server.look(|view| view.open().max_by_key(|open| open.id).cloned())?;
    Some((newest.id, newest.client?))
}

/// The texts of the libraries in the metadata, and the rest of it.
fn parts(mut told: Document) -> ([String; 3], Document) {
    let driver = told.get_document_mut("driver").expect("the driver");
    let name = driver.insert("name", "");
    let version = driver.insert("version", "");
    let texts = [name, version, told.insert("platform", "")];
    let texts = texts.map(|text| {
        let text = text.as_ref().and_then(bson::Bson::as_str).expect("a text");
        // Without those of the driver itself.
        text.split_once('|').map(|(_, libraries)| libraries.to_owned()).unwrap_or_default()
    });
    (texts, told)
}

fn joined(first: &str, other: Option<&str>) -> String {
    other.map_or(first.to_owned(), |other| format!("{first}|{other}"))
}

/// Tests 1, 2 and 3.
#[test]
fn library_is_appended_for_new_connections() {
    let others = [
        info("framework", Some("2.0"), Some("Framework Platform")),
        info("framework", Some("2.0"), None),
        info("framework", None, Some("Framework Platform")),
        info("framework", None, None),
        info("framework", Some("1.2"), Some("Library Platform")),
        info("library", Some("2.0"), Some("Library Platform")),
        info("library", Some("1.2"), Some("Framework Platform")),
        info("framework", Some("2.0"), Some("Library Platform")),
        info("framework", Some("1.2"), Some("Framework Platform")),
        info("library", Some("2.0"), Some("Framework Platform")),
    ];
    run(async {
        let server = server();
        for at_first in [true, false] {
            for other in &others {
                let options = options(&server).app_name("till");
                let client = client(if at_first { options.driver_info(library()) } else { options });
                if !at_first {
                    client.append_metadata(library()).expect("valid");
                }
                let (texts, rest) = parts(told(&server, &client).await);
                assert_eq!(texts, ["library", "1.2", "Library Platform"]);
                client.append_metadata(other.clone()).expect("valid");
                let (texts, same) = parts(told(&server, &client).await);
                let expected = [
                    format!("library|{}", other.name),
                    joined("1.2", other.version.as_deref()),
                    joined("Library Platform", other.platform.as_deref()),
                ];
                assert_eq!(texts, expected);
                assert_eq!(same, rest, "nothing else has changed");
                client.close().await;
            }
        }
    });
}

/// Tests 3, case 1, and 4 to 8: of the options, of an earlier call, and with others in between; an
/// empty text is none.
#[test]
fn identical_library_is_ignored() {
    run(async {
        let server = server();
        let bare = DriverInfo::new("bare");
        let client = client(options(&server).driver_info(library()).driver_info(bare.clone()));
        let framework = info("framework", Some("2.0"), None);
        client.append_metadata(framework.clone()).expect("valid");
        let expected = ["library|bare|framework", "1.2|2.0", "Library Platform"].map(str::to_owned);
        let same = [library(), framework.clone(), bare.clone().version(""), bare.platform(""), framework.platform("")];
        for same in same {
            client.append_metadata(same.clone()).expect("valid");
            assert_eq!(parts(told(&server, &client).await).0, expected, "{same:?}");
        }
        assert_eq!(client.options().driver_info.len(), 2, "those of the start");
        // From several threads: each is added once.
        let tasks: Vec<_> = (0..8)
            .map(|number| {
                let client = client.clone();
                smol::unblock(move || client.append_metadata(DriverInfo::new(format!("l{}", number % 4))))
            })
            .collect();
        for task in tasks {
            task.await.expect("valid");
        }
        let names = parts(told(&server, &client).await).0[0].clone();
        let mut names: Vec<_> = names.split('|').collect();
        names.sort_unstable();
        assert_eq!(names, ["bare", "framework", "l0", "l1", "l2", "l3", "library"]);
        client.close().await;
    });
}

#[test]
fn established_connections_keep_their_metadata_and_are_kept() {
    run(async {
        let server = server();
        let client = client(options(&server).heartbeat_frequency(Duration::from_millis(500)));
        let mut connection = client.check_out().await.expect("a connection");
        let hellos = |server: &FakeServer| {
            let log = server
                .log()
                .into_iter()
                .filter(|received| received.body.as_ref().is_some_and(|it| it.contains_key("client")));
            log.map(|received| received.connection).collect::<Vec<_>>()
        };
        assert_eq!(hellos(&server).len(), 2, "of the monitor and of the pool");
        client.append_metadata(library()).expect("valid");
        connection.run_command("admin", doc! { "ping": 1 }).await.expect("a ping");
        drop(connection);
        client.run_command("admin", doc! { "ping": 1 }).await.expect("a ping");
        assert_eq!(hellos(&server).len(), 2);
        let has_library = |open: &Document| {
            open.get_document("driver").is_ok_and(|it| it.get_str("name").is_ok_and(|name| name.ends_with("|library")))
        };
        let before =
            server.look(|view| view.open().filter(|open| open.client.as_ref().is_some_and(has_library)).count());
        assert_eq!(before, 0);
        // The next connection of the monitor sends it.
        let monitor = hellos(&server)[0];
        server.cut(monitor, Cut::Rst);
        eventually("the monitor has another connection", || hellos(&server).len() > 2 && server.open_count() > 0).await;
        let again = server
            .log()
            .into_iter()
            .rev()
            .filter_map(|received| received.body?.get_document("client").ok().cloned())
            .next();
        assert!(again.as_ref().is_some_and(has_library), "{again:?}");
        client.close().await;
    });
}

#[test]
fn library_that_is_invalid_or_too_long_changes_nothing() {
    run(async {
        let server = server();
        let client = client(options(&server));
        let told_first = told(&server, &client).await;
        let bad =
            [info("", None, None), info("a|b", None, None), info("a", Some("1|2"), None), info("a", None, Some("|"))];
        for bad in bad {
            let error = refused(client.append_metadata(bad.clone()));
            assert!(matches!(error, Error::Setup(SetupError::Option(_))), "{bad:?}: {error:?}");
        }
        for long in [info(&"n".repeat(600), None, None), info("n", Some(&"1".repeat(600)), None)] {
            let error = refused(client.append_metadata(long));
            assert!(matches!(error, Error::Setup(SetupError::Metadata(_))), "{error:?}");
        }
        assert_eq!(told(&server, &client).await, told_first);
        // The platform is cut, and what follows it is lost; names and versions are kept.
        client.append_metadata(info("a", Some("1"), Some(&"p".repeat(600)))).expect("it is cut");
        client.append_metadata(info("b", Some("2"), Some("q"))).expect("valid");
        let told_now = told(&server, &client).await;
        assert_eq!(told_now.to_vec().expect("a document").len(), 512);
        let ([names, versions, platform], _) = parts(told_now);
        assert_eq!((names.as_str(), versions.as_str()), ("a|b", "1|2"));
        assert!(platform.chars().all(|letter| letter == 'p'), "{platform}");
        // The number of libraries is limited by their names.
        let fits =
            (0..).take_while(|number| client.append_metadata(DriverInfo::new(format!("{number}"))).is_ok()).count();
        assert!((1..512).contains(&fits), "{fits}");
        client.run_command("admin", doc! { "ping": 1 }).await.expect("the server accepts it");
        client.close().await;
    });
}
