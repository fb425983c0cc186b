//! Tests of the harness that starts and controls a real replica set; each step prints its time.

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
use poolhouse_tests::mongod::{self, MongodError, MongodReplicaSet};
use poolhouse_tests::suite::Suite;

type Outcome = Result<(), Box<dyn Error>>;

/// Timeout of an election.
const ELECTION: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    Suite::new("harness_replica_set")
        .skip_if(mongod::available().err())
        .case("set_of_three_recovers_from_every_incident", set_of_three_recovers_from_every_incident)
        .case("panic_leaves_no_process_and_no_folder_of_a_set", panic_leaves_no_process_and_no_folder_of_a_set)
        .run()
}

/// Prints the duration of a step.
struct Timer(Instant);

impl Timer {
    fn start() -> Self {
        Self(Instant::now())
    }

    fn lap(&mut self, what: &str) {
        eprintln!("{what}: {:.3} s", self.0.elapsed().as_secs_f64());
        self.0 = Instant::now();
    }
}

fn is(reply: &Document, field: &str) -> bool {
    reply.get_bool(field).unwrap_or(false)
}

fn insert(id: i32) -> Document {
    doc! { "insert": "c", "documents": [{ "_id": id }], "writeConcern": { "w": "majority", "wtimeout": 10_000 } }
}

/// Repeats the check until it returns `true`, at most 30 s.
fn eventually(what: &str, mut yes: impl FnMut() -> Result<bool, MongodError>) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !yes()? {
        if Instant::now() >= deadline {
            return Err(format!("condition not met within 30 s: {what}").into());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn set_of_three_recovers_from_every_incident() -> Outcome {
    let mut timer = Timer::start();
    let mut set = MongodReplicaSet::start(3)?;
    timer.lap("three members to a set with a primary");
    let seeds: Vec<String> = (0..3).map(|member| set.member(member).address().to_string()).collect();
    assert_eq!(set.uri(), format!("mongodb://{}/?replicaSet=rs0", seeds.join(",")));
    let first = set.primary().ok_or("the set has no primary")?;
    let reply = set.hello(first)?;
    assert!(is(&reply, "isWritablePrimary") && reply.get_array("hosts")?.len() == 3, "{reply}");
    set.member(first).run_command(insert(1))?;

    fake_members_reply_like_real_members(&set)?;
    step_down(&set, &mut timer)?;
    kill_and_restart(&mut set, &mut timer)?;
    stop_and_go_on(&mut set, &mut timer)?;
    remove_and_add(&set, &mut timer)?;

    assert!(matches!(set.settle(ELECTION), Ok(0..3)));
    timer.lap("settling");
    let folders: Vec<PathBuf> = (0..3).map(|member| set.member(member).folder().to_owned()).collect();
    drop(set);
    timer.lap("drop");
    assert!(folders.iter().all(|folder| !folder.exists()));
    Ok(())
}

/// Compares the fields of hello replies and refusals, by name and type; the values differ in each
/// set.
fn fake_members_reply_like_real_members(set: &MongodReplicaSet) -> Outcome {
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
    let fake = FakeReplicaSet::start(FakeReplicaSetOptions::of(3))?;
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

fn step_down(set: &MongodReplicaSet, timer: &mut Timer) -> Outcome {
    let first = set.settle(ELECTION)?;
    timer.lap("settling");
    assert_eq!(set.step_down(60)?, first);
    timer.lap("replSetStepDown answered");
    let refused = set.member(first).run_command(insert(2));
    assert!(matches!(refused, Err(MongodError::Command { code: 10107, .. })), "{refused:?}");
    let second = set.wait_for_other_primary(first, ELECTION)?;
    timer.lap("step-down to the next primary");
    assert_ne!(first, second);
    set.member(second).run_command(insert(2))?;
    set.wait_for_secondary(first, ELECTION)?;
    Ok(())
}

fn kill_and_restart(set: &mut MongodReplicaSet, timer: &mut Timer) -> Outcome {
    let old = set.settle(ELECTION)?;
    timer.lap("settling");
    set.kill9(old)?;
    let new = set.wait_for_other_primary(old, ELECTION)?;
    timer.lap("kill -9 to the next primary");
    set.member(new).run_command(insert(3))?;
    set.restart(old)?;
    timer.lap("restart to its first answer");
    set.wait_for_secondary(old, ELECTION)?;
    timer.lap("until it is a secondary");
    Ok(())
}

fn stop_and_go_on(set: &mut MongodReplicaSet, timer: &mut Timer) -> Outcome {
    let old = set.settle(ELECTION)?;
    timer.lap("settling");
    set.stop(old)?;
    let new = set.wait_for_other_primary(old, ELECTION)?;
    timer.lap("SIGSTOP to the next primary");
    set.cont(old)?;
    let begun = set.hello(old)?;
    eprintln!("the old primary's first greeting after SIGCONT: primary = {}", is(&begun, "isWritablePrimary"));
    set.wait_for_secondary(old, ELECTION)?;
    timer.lap("SIGCONT to a secondary");
    assert!(set.primary() == Some(new) || set.wait_for_primary(ELECTION).is_ok());
    Ok(())
}

fn remove_and_add(set: &MongodReplicaSet, timer: &mut Timer) -> Outcome {
    let primary = set.settle(ELECTION)?;
    let gone = (primary + 1) % 3;
    timer.lap("settling");
    let mut idle = BlockingClient::connect(set.member(gone).address(), Duration::from_secs(30))?;
    idle.hello("test")?;
    set.reconfig_remove(gone)?;
    timer.lap("reconfiguration that removes a member");
    // The member ends its connections; the fake set does the same.
    assert_eq!(idle.read().map_err(|error| error.kind()).err(), Some(ErrorKind::UnexpectedEof));
    // The member may close connections for a while after it has been removed.
    let mut reply = Document::new();
    eventually("the member detects that it was removed", || {
        reply = set.hello(gone).unwrap_or_default();
        Ok(is(&reply, "isreplicaset"))
    })?;
    timer.lap("until the member detects its removal");
    assert!(!reply.contains_key("setName") && !reply.contains_key("hosts"), "{reply}");
    assert_eq!(reply.get_str("info")?, "Does not have a valid replica set config");
    eventually("two members are left", || {
        Ok(set.hello(primary)?.get_array("hosts").is_ok_and(|hosts| hosts.len() == 2))
    })?;
    set.reconfig_add(gone)?;
    timer.lap("reconfiguration that adds it again");
    set.wait_for_secondary(gone, ELECTION)?;
    timer.lap("until it is a secondary");
    Ok(())
}

fn panic_leaves_no_process_and_no_folder_of_a_set() -> Outcome {
    let mut set = MongodReplicaSet::start(1)?;
    assert_eq!(set.primary(), Some(0));
    let folder = set.member(0).folder().to_owned();
    let pid: i32 = std::fs::read_to_string(folder.join("pid"))?.parse()?;
    let process = PathBuf::from(format!("/proc/{pid}"));
    assert!(process.exists());
    let result: thread::Result<()> = catch_unwind(AssertUnwindSafe(move || {
        assert!(set.stop(0).is_ok());
        resume_unwind(Box::new("a panic without a message"))
    }));
    assert!(result.is_err());
    assert!(!process.exists());
    assert!(!folder.exists());
    Ok(())
}
