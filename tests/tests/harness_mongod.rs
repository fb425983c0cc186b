//! Tests of the harness that starts and controls a real mongod.

use core::error::Error;
use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::net::TcpStream;
use std::panic::{catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use bson::doc;
use poolhouse_tests::mongod::{self, APP_NAME, FailPointMode, Mongod, MongodError, MongodOptions};
use poolhouse_tests::suite::Suite;

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> ExitCode {
    Suite::new("harness_mongod")
        .skip_if(mongod::available().err())
        .case("started_server_answers_with_test_commands_on", started_server_answers_with_test_commands_on)
        .case("dropped_server_leaves_no_process_and_no_folder", dropped_server_leaves_no_process_and_no_folder)
        .case("panic_leaves_no_process_and_no_folder", panic_leaves_no_process_and_no_folder)
        .case("killed_server_restarts_on_the_same_port_and_data", killed_server_restarts_on_the_same_port_and_data)
        .case("stopped_server_accepts_and_stays_silent", stopped_server_accepts_and_stays_silent)
        .case("fail_points_take_effect_and_end", fail_points_take_effect_and_end)
        .case("connection_counts_follow_connections", connection_counts_follow_connections)
        .case("servers_run_in_parallel", servers_run_in_parallel)
        .case("replica_set_of_one_elects_itself", replica_set_of_one_elects_itself)
        .case("refused_argument_is_reported_with_the_log", refused_argument_is_reported_with_the_log)
        .run()
}

fn start() -> Result<Mongod, MongodError> {
    Mongod::start(MongodOptions::default())
}

/// Whether a process exists; a killed process exists until it is reaped.
fn process_exists(pid: u32) -> bool {
    PathBuf::from(format!("/proc/{pid}")).exists()
}

/// The error of a call that must fail.
fn refusal<T: core::fmt::Debug, E>(result: Result<T, E>) -> Result<E, String> {
    result.map_or_else(Ok, |value| Err(format!("the call succeeded: {value:?}")))
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

fn started_server_answers_with_test_commands_on() -> Outcome {
    let mut mongod = start()?;
    let pid = mongod.pid().ok_or("it runs")?;
    assert!(process_exists(pid));
    let hello = mongod.run_command(doc! { "hello": 1 })?;
    assert!(hello.get_i32("maxWireVersion")? >= 17, "{hello}");
    let parameter = mongod.run_command(doc! { "getParameter": 1, "enableTestCommands": 1 })?;
    assert!(parameter.get_bool("enableTestCommands")?);
    let refused = refusal(mongod.run_command(doc! { "noSuchCommand": 1 }))?;
    assert!(matches!(&refused, MongodError::Command { code: 59, .. }), "{refused}");
    assert_eq!(mongod.uri(), format!("mongodb://{}", mongod.address()));
    mongod.shutdown()?;
    // The whole log: a slow machine writes so much that the line may not be in the tail any more.
    let log = String::from_utf8_lossy(&std::fs::read(mongod.folder().join("log"))?).into_owned();
    assert!(log.contains("Waiting for connections"), "{log}");
    let last = log.lines().last().ok_or("the log is empty")?;
    assert!(mongod.log_tail().contains(last), "{last}");
    assert!(!process_exists(pid));
    assert_eq!(mongod.pid(), None);
    assert!(mongod.folder().exists());
    assert!(matches!(mongod.stop(), Err(MongodError::NotRunning)));
    Ok(())
}

fn dropped_server_leaves_no_process_and_no_folder() -> Outcome {
    let mut mongod = start()?;
    let (pid, folder) = (mongod.pid().ok_or("it runs")?, mongod.folder().to_owned());
    // A stopped process cannot end normally: it must be killed.
    mongod.stop()?;
    drop(mongod);
    assert!(!process_exists(pid));
    assert!(!folder.exists());
    Ok(())
}

fn panic_leaves_no_process_and_no_folder() -> Outcome {
    let mut mongod = start()?;
    let (pid, folder) = (mongod.pid().ok_or("it runs")?, mongod.folder().to_owned());
    let result: thread::Result<()> = catch_unwind(AssertUnwindSafe(move || {
        assert!(mongod.run_command(doc! { "ping": 1 }).is_ok());
        resume_unwind(Box::new("a panic without a message"))
    }));
    assert!(result.is_err());
    assert!(!process_exists(pid));
    assert!(!folder.exists());
    Ok(())
}

fn killed_server_restarts_on_the_same_port_and_data() -> Outcome {
    let mut mongod = start()?;
    let (pid, address) = (mongod.pid().ok_or("it runs")?, mongod.address());
    let journaled = doc! { "w": 1, "j": true };
    let insert = doc! { "insert": "kept", "documents": [{ "_id": 1 }], "writeConcern": journaled };
    mongod.run_command(insert)?;
    mongod.kill9()?;
    assert!(!process_exists(pid));
    assert!(TcpStream::connect(address).is_err(), "the port refuses connections");
    let down = refusal(mongod.run_command(doc! { "ping": 1 }))?;
    assert!(matches!(down, MongodError::Io { .. }), "{down}");
    mongod.kill9()?;
    mongod.restart()?;
    assert_eq!(mongod.address(), address);
    assert_ne!(mongod.pid(), Some(pid));
    // Not by its fast count, which may be wrong after an unclean end.
    let found = mongod.run_command(doc! { "find": "kept" })?;
    assert_eq!(found.get_document("cursor")?.get_array("firstBatch")?.len(), 1, "{found}");
    // A running server is restarted, too.
    let pid = mongod.pid();
    mongod.restart()?;
    assert_ne!(mongod.pid(), pid);
    mongod.run_command(doc! { "ping": 1 })?;
    Ok(())
}

fn stopped_server_accepts_and_stays_silent() -> Outcome {
    use std::io::{ErrorKind, Read};

    let mut mongod = start()?;
    mongod.stop()?;
    let pid = mongod.pid().ok_or("the process has ended")?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    assert!(stat.contains(") T "), "{stat}");
    let mut stream = TcpStream::connect_timeout(&mongod.address(), Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    let silence = refusal(stream.read_exact(&mut [0; 1]))?;
    assert!(matches!(silence.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{silence}");
    mongod.cont()?;
    mongod.run_command(doc! { "ping": 1 })?;
    // An orderly shutdown also works on a stopped process.
    mongod.stop()?;
    mongod.shutdown()?;
    assert!(!process_exists(pid));
    Ok(())
}

fn fail_points_take_effect_and_end() -> Outcome {
    let mongod = start()?;
    let data = doc! { "failCommands": ["ping"], "errorCode": 91, "appName": APP_NAME };
    mongod.fail_command(FailPointMode::Times(2), data.clone())?;
    for _ in 0..2 {
        let refused = refusal(mongod.run_command(doc! { "ping": 1 }))?;
        assert!(matches!(&refused, MongodError::Command { code: 91, .. }), "{refused}");
    }
    mongod.run_command(doc! { "ping": 1 })?;

    mongod.fail_command(FailPointMode::Skip(1), data)?;
    mongod.run_command(doc! { "ping": 1 })?;
    assert!(mongod.run_command(doc! { "ping": 1 }).is_err());
    mongod.fail_command(FailPointMode::Off, doc! {})?;
    mongod.run_command(doc! { "ping": 1 })?;

    let hangup = doc! { "failCommands": ["ping"], "closeConnection": true, "appName": APP_NAME };
    mongod.fail_command(FailPointMode::AlwaysOn, hangup)?;
    let lost = refusal(mongod.run_command(doc! { "ping": 1 }))?;
    assert!(matches!(lost, MongodError::Io { .. }), "{lost}");
    mongod.fail_command(FailPointMode::Off, doc! {})?;
    mongod.run_command(doc! { "ping": 1 })?;

    let block = doc! { "failCommands": ["ping"], "blockConnection": true, "blockTimeMS": 300, "appName": APP_NAME };
    mongod.fail_command(FailPointMode::Times(1), block)?;
    let begun = Instant::now();
    mongod.run_command(doc! { "ping": 1 })?;
    // The server sleeps by a different clock, which is coarser: it may wake a moment early.
    assert!(begun.elapsed() >= Duration::from_millis(200), "{:?}", begun.elapsed());
    Ok(())
}

fn connection_counts_follow_connections() -> Outcome {
    let mongod = start()?;
    eventually("only the harness is connected", || Ok(mongod.server_status_connections()?.others() == 0))?;
    let before = mongod.server_status_connections()?;
    let streams = (0..5).map(|_| TcpStream::connect(mongod.address())).collect::<Result<Vec<_>, _>>()?;
    eventually("five more are counted", || Ok(mongod.server_status_connections()?.others() == 5))?;
    let during = mongod.server_status_connections()?;
    assert_eq!(during.total_created - before.total_created, 5);
    assert_eq!(before.available - during.available, 5);
    drop(streams);
    eventually("the five connections are closed", || Ok(mongod.server_status_connections()?.others() == 0))
}

fn servers_run_in_parallel() -> Outcome {
    let threads: Vec<_> = (0..3).map(|_| thread::spawn(start)).collect();
    let mut servers = Vec::new();
    for thread in threads {
        servers.push(thread.join().map_err(|_| "a starting thread panicked")??);
    }
    let mut ports: Vec<u16> = servers.iter().map(|mongod| mongod.address().port()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 3);
    servers[0].kill9()?;
    servers[1].run_command(doc! { "ping": 1 })?;
    servers[2].run_command(doc! { "ping": 1 })?;
    Ok(())
}

fn replica_set_of_one_elects_itself() -> Outcome {
    let mongod = Mongod::start(MongodOptions { repl_set: Some("rs0".to_owned()), ..MongodOptions::default() })?;
    let members = vec![doc! { "_id": 0, "host": mongod.address().to_string() }];
    mongod.run_command(doc! { "replSetInitiate": { "_id": "rs0", "members": members } })?;
    eventually("it is primary", || {
        Ok(mongod.run_command(doc! { "hello": 1 })?.get_bool("isWritablePrimary").unwrap_or_default())
    })?;
    assert_eq!(mongod.run_command(doc! { "hello": 1 })?.get_str("setName")?, "rs0");
    Ok(())
}

fn refused_argument_is_reported_with_the_log() -> Outcome {
    let begun = Instant::now();
    let options = MongodOptions { args: vec!["--noSuchOption".into()], ..MongodOptions::default() };
    let error = refusal(Mongod::start(options))?;
    assert!(matches!(&error, MongodError::Exited { log, .. } if log.contains("noSuchOption")), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(50));
    Ok(())
}
