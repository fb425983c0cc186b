//! Tests of the harness that starts and controls real servers, and of the fake replica set beside a
//! real one. The suites of the client, which use each of its other functions, are in tests/mongod.

extern crate alloc;

use alloc::collections::BTreeMap;
use core::error::Error;
use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::io::ErrorKind;
use std::panic::{catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use bson::spec::{BinarySubtype, ElementType};
use bson::{Binary, Document, doc};
use poolhouse_tests::fake::BlockingClient;
use poolhouse_tests::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions};
use poolhouse_tests::mongod::{self, Mongod, MongodError, MongodOptions, MongodReplicaSet};
use poolhouse_tests::patience::Stopwatch;
use poolhouse_tests::suite::Suite;

type Outcome = Result<(), Box<dyn Error>>;

/// Timeout of an election.
const ELECTION: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    Suite::new("harness_mongod")
        .skip_if(mongod::available().err())
        .case("dropped_server_leaves_no_process_and_no_folder", dropped_server_leaves_no_process_and_no_folder)
        .case("panic_leaves_no_process_and_no_folder_of_a_set", panic_leaves_no_process_and_no_folder_of_a_set)
        .case("refused_argument_is_reported_with_the_log", refused_argument_is_reported_with_the_log)
        .case("fake_members_reply_like_real_members", fake_members_reply_like_real_members)
        .case("removed_member_closes_its_connections", removed_member_closes_its_connections)
        .run()
}

/// Whether a process exists; a killed process exists until it is reaped.
fn process_exists(pid: u32) -> bool {
    PathBuf::from(format!("/proc/{pid}")).exists()
}

fn dropped_server_leaves_no_process_and_no_folder() -> Outcome {
    let mut mongod = Mongod::start(MongodOptions::default())?;
    let (pid, folder) = (mongod.pid().ok_or("it runs")?, mongod.folder().to_owned());
    // A stopped process cannot end normally: it must be killed.
    mongod.stop()?;
    drop(mongod);
    assert!(!process_exists(pid));
    assert!(!folder.exists());
    Ok(())
}

fn panic_leaves_no_process_and_no_folder_of_a_set() -> Outcome {
    let mut set = MongodReplicaSet::start(1)?;
    assert_eq!(set.primary(), Some(0));
    let folder = set.member(0).folder().to_owned();
    let pid = std::fs::read_to_string(folder.join("pid"))?.parse()?;
    assert!(process_exists(pid));
    let result: thread::Result<()> = catch_unwind(AssertUnwindSafe(move || {
        assert!(set.stop(0).is_ok());
        resume_unwind(Box::new("a panic without a message"))
    }));
    assert!(result.is_err());
    assert!(!process_exists(pid));
    assert!(!folder.exists());
    Ok(())
}

fn refused_argument_is_reported_with_the_log() -> Outcome {
    let begun = Stopwatch::start();
    let options = MongodOptions { args: vec!["--noSuchOption".into()], ..MongodOptions::default() };
    match Mongod::start(options) {
        Err(MongodError::Exited { log, .. }) => assert!(log.contains("noSuchOption"), "{log}"),
        other => return Err(format!("{other:?}").into()),
    }
    begun.assert_below(Duration::from_secs(50));
    Ok(())
}

/// Compares the fields of hello replies and refusals, by name and type; the values differ in each
/// set.
fn fake_members_reply_like_real_members() -> Outcome {
    let fields = |reply: Document| -> BTreeMap<String, ElementType> {
        // The fake set does not send cluster times.
        let gossip = ["$clusterTime", "operationTime"];
        let own = reply.into_iter().filter(|(name, _)| !gossip.contains(&name.as_str()));
        own.map(|(name, value)| (name, value.element_type())).collect()
    };
    let ask = |address, database: &str, command: Document| -> Result<_, Box<dyn Error>> {
        let mut client = BlockingClient::connect(address, Duration::from_secs(15))?;
        client.hello("test")?;
        Ok(fields(client.run(database, command)?))
    };
    let (set, fake) = (MongodReplicaSet::start(3)?, FakeReplicaSet::start(FakeReplicaSetOptions::of(3))?);
    let primaries = (set.settle(ELECTION)?, fake.primary().ok_or("the set has no primary")?);
    let secondaries = ((primaries.0 + 1) % 3, (primaries.1 + 1) % 3);
    let read = |mode: &str| doc! { "find": "fidelity", "$readPreference": { "mode": mode } };
    let write = || doc! { "insert": "fidelity", "documents": [{}] };
    let session = Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
    let mut retryable = write();
    retryable.extend(doc! { "lsid": { "id": session }, "txnNumber": 1_i64 });
    for (part, (real, fake_member)) in [("primary", primaries), ("secondary", secondaries)] {
        for command in [doc! { "hello": 1 }, write(), retryable.clone(), read("primary"), read("secondaryPreferred")] {
            let real = ask(set.member(real).address(), "db", command.clone())?;
            let fake = ask(fake.address(fake_member), "db", command.clone())?;
            assert_eq!(real, fake, "real (left) and fake {part}: {command}");
        }
    }
    Ok(())
}

/// The fake set does the same.
fn removed_member_closes_its_connections() -> Outcome {
    let set = MongodReplicaSet::start(3)?;
    let gone = (set.settle(ELECTION)? + 1) % 3;
    let mut idle = BlockingClient::connect(set.member(gone).address(), Duration::from_secs(30))?;
    idle.hello("test")?;
    set.reconfig_remove(gone)?;
    assert_eq!(idle.read().map_err(|error| error.kind()).err(), Some(ErrorKind::UnexpectedEof));
    let deadline = Instant::now() + Duration::from_secs(30);
    let reply = loop {
        // The member may close connections for a while after it has been removed.
        let reply = set.hello(gone).unwrap_or_default();
        if reply.get_bool("isreplicaset").unwrap_or_default() {
            break reply;
        }
        assert!(Instant::now() < deadline, "the member does not detect that it was removed: {reply}");
        thread::sleep(Duration::from_millis(10));
    };
    assert!(!reply.contains_key("setName") && !reply.contains_key("hosts"), "{reply}");
    assert_eq!(reply.get_str("info")?, "Does not have a valid replica set config");
    Ok(())
}
