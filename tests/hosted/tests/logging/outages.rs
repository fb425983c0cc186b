//! The lines of a session, a generic pool and a client whose servers are killed, refuse or are wrong.

use crate::messages::{self, Message};
use crate::text;
use core::time::Duration;
use libtest_mimic::Failed;
use poolhouse_client::log::LogOptions;
use poolhouse_smol::bson::doc;
use poolhouse_smol::mux::{Session, SessionOptions};
use poolhouse_smol::{Client, ClientOptions, Manager, Pool};
use poolhouse_tests::cql_server::{CqlServer, CqlServerOptions};
use poolhouse_tests::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions};
use poolhouse_tests::patience::{PATIENCE, connection_refused, eventually, run};
use smol::net::{TcpListener, TcpStream};
use std::io;

/// Waits until a line contains this text, and returns all lines for operators since `from`.
async fn lines_until(from: usize, part: &str) -> Vec<String> {
    let lines = || -> Vec<String> {
        let messages = messages::since(from);
        messages.iter().filter(|message| message.component == "deployment").map(of_operator).collect()
    };
    eventually(part, || lines().iter().any(|line| line.contains(part))).await;
    lines()
}

fn of_operator(message: &Message) -> String {
    format!("{} {}", message.level, text(message))
}

/// A node of Cassandra is killed under a session, and returns.
pub(crate) fn killed_node() -> Result<(), Failed> {
    let node = CqlServer::start(CqlServerOptions::default()).map_err(|error| error.to_string())?;
    let address = node.address();
    let from = messages::count();
    run(async {
        let mut options = SessionOptions::new([address.to_string()]);
        options.mux.backoff_min = Duration::from_millis(20);
        options.mux.backoff_max = Duration::from_millis(20);
        let session = Session::new(options).expect("good options");
        session.query("SELECT key FROM system.local").send().await.expect("an answer");
        node.kill().expect("sockets");
        let lines = lines_until(from, "server down").await;
        let [line] = &lines[..] else { panic!("one line: {lines:?}") };
        assert!(line.starts_with(&format!("warn server down: {address}: network error: ")), "{line}");
        eventually("an attempt to connect has failed", || session.hosts()[0].refusal.is_some()).await;
        node.resume().expect("its port is free");
        let lines = lines_until(from, "server reconnected").await;
        assert_eq!(lines[1..], [format!("info server reconnected: {address}")]);
        session.close().await;
    });
    Ok(())
}

/// A node refuses the password.
pub(crate) fn refused_password() -> Result<(), Failed> {
    let options = CqlServerOptions::default().with_credentials("ann", "right");
    let node = CqlServer::start(options).map_err(|error| error.to_string())?;
    let from = messages::count();
    run(async {
        let options = SessionOptions::new([node.address().to_string()]).credential("ann", "wrong-secret");
        let session = Session::new(options).expect("good options");
        session.query("SELECT key FROM system.local").send().await.expect_err("it refuses");
        let lines = lines_until(from, "authentication failed").await;
        let all = messages::since(from);
        assert!(lines.iter().any(|line| line.starts_with(&format!("warn authentication failed: {}", node.address()))));
        assert!(all.iter().all(|message| !message.to_string().contains("wrong-secret")), "{all:?}");
        session.close().await;
    });
    Ok(())
}

/// The local data centre has no node.
pub(crate) fn unknown_data_center() -> Result<(), Failed> {
    let node = CqlServer::start(CqlServerOptions::default()).map_err(|error| error.to_string())?;
    let from = messages::count();
    run(async {
        // A line has the name as it was configured.
        let name = format!("localhost:{}", node.address().port());
        let options = SessionOptions::contact_points([name.clone()]);
        let session = Session::new(options.local_data_center("DC9")).expect("good options");
        let lines = lines_until(from, "no node is in").await;
        let is_named =
            |line: &&String| line.starts_with("warn no node is in the local data centre \"DC9\": the cluster has ");
        assert_eq!(lines.iter().filter(is_named).count(), 1, "{lines:?}");
        let found = format!("info control connection established: {name}, 1 node");
        assert!(lines.contains(&found), "{lines:?}");
        session.close().await;
    });
    Ok(())
}

/// A request that takes longer than the limit is a warning with its host.
pub(crate) fn slow_request() -> Result<(), Failed> {
    let node = CqlServer::start(CqlServerOptions::default()).map_err(|error| error.to_string())?;
    let from = messages::count();
    let slow = |limit| {
        run(async {
            let mut log = LogOptions::DEFAULT;
            log.slow_command = Some(limit);
            let options = SessionOptions::new([node.address().to_string()]).log(log);
            let session = Session::new(options).expect("good options");
            session.query("SELECT key FROM system.local WHERE key = 'secret'").send().await.expect("an answer");
            let results = session.request_all(&[session.query("SELECT key FROM system.local")]).await;
            assert!(results[0].is_ok(), "{results:?}");
            session.close().await;
        });
        let mut seen = messages::since(from);
        seen.retain(|message| message.component == "command");
        seen
    };
    assert!(slow(PATIENCE).is_empty(), "not slow");
    let seen = slow(Duration::ZERO);
    assert_eq!(seen.len(), 2, "{seen:?}");
    for message in &seen {
        assert_eq!((message.level.as_str(), text(message)), ("warn", "Slow request"));
        assert_eq!(message.data.get_str("requestName").ok(), Some("QUERY"));
        assert_eq!(message.data.get_i64("serverPort").ok(), Some(i64::from(node.address().port())), "{message}");
        assert!(message.data.get_f64("durationMS").is_ok() && !message.to_string().contains("secret"), "{message}");
    }
    Ok(())
}

struct Sockets(String);

impl Manager for Sockets {
    type Connection = TcpStream;
    type Error = io::Error;

    async fn connect(&self) -> io::Result<TcpStream> {
        TcpStream::connect(&*self.0).await
    }
}

/// The server of a generic pool is gone, and returns.
pub(crate) fn gone_server_of_a_pool() -> Result<(), Failed> {
    let from = messages::count();
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let pool = Pool::builder(Sockets(address.to_string())).name("cache").max_backoff(Duration::from_millis(20));
        let pool = pool.build().expect("good options");
        drop(listener);
        for _ in 0..3 {
            pool.get().await.expect_err("nobody listens");
        }
        let listener = TcpListener::bind(address).await.expect("its port is free");
        while pool.get().await.is_err() {}
        let lines = lines_until(from, "server reconnected").await;
        let down = format!("warn server down: cache: {}", connection_refused());
        assert_eq!(lines, [down.as_str(), "info server reconnected: cache"]);
        pool.close().await;
        drop(listener);
    });
    let seen = messages::since(from);
    let of_pool: Vec<_> = seen.iter().filter(|message| message.component == "connection").collect();
    assert!(!of_pool.is_empty());
    for message in of_pool {
        assert_eq!(message.data.get_str("poolName").ok(), Some("cache"), "{message}");
        assert!(!message.data.contains_key("serverPort") && !message.data.contains_key("serverHost"), "{message}");
    }
    Ok(())
}

/// The client looks for another set than that of its servers, and many operations wait.
pub(crate) fn wrong_set_and_many_waits() -> Result<(), Failed> {
    let set = FakeReplicaSet::start(FakeReplicaSetOptions::of(1)).map_err(|error| error.to_string())?;
    let address = set.address(0);
    let from = messages::count();
    run(async {
        let uri = format!("mongodb://{address}/?replicaSet=nope&serverSelectionTimeoutMS=300");
        let client = Client::with_options(ClientOptions::parse(&uri).expect("a connection string")).expect("a client");
        let waits: Vec<_> = (0..50)
            .map(|_| {
                let client = client.clone();
                smol::spawn(async move { client.run_command("admin", doc! { "ping": 1 }).await })
            })
            .collect();
        for wait in waits {
            wait.await.expect_err("no server is suitable");
        }
        // On a busy machine, the first check may end after the operations.
        lines_until(from, "wrong replica set").await;
        client.close().await;
    });
    let seen = messages::since(from);
    let name = set.uri();
    let name = name.rsplit_once("replicaSet=").map_or("", |(_, name)| name);
    let expected =
        format!("warn wrong replica set: {address} is a member of \"{name}\", and the client looks for \"nope\"");
    assert!(seen.iter().map(of_operator).any(|line| line == expected), "{expected}: {seen:?}");
    let waiting = seen.iter().filter(|message| text(message).starts_with("Waiting for suitable server")).count();
    assert_eq!(waiting, 1, "fifty operations wait");
    Ok(())
}
