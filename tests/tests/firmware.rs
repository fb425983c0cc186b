//! The firmware under QEMU, over emulated Ethernet. The client against real servers: the documents
//! that it reports as sent are those that the servers have. The examples of the generic pool against
//! servers that close connections, restart and send wrong replies: every request has an outcome. The client over
//! a modem on a serial line, which refuses commands, loses answers, closes connections and restarts.

use alloc::collections::BTreeSet;
use core::error::Error;
use core::time::Duration;

use std::process::ExitCode;
use std::time::Instant;

use bson::{Document, doc};
use poolhouse_tests::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions};
use poolhouse_tests::fake::{FakeOptions, FakeServer};
use poolhouse_tests::firmware::{self, Firmware};
use poolhouse_tests::mongod::{self, Mongod, MongodOptions, MongodReplicaSet, MongodTls};
use poolhouse_tests::suite::Suite;
use poolhouse_tests::tls::{CertificateRequest, Folder, Holder, Identity};
use rsa::RsaPrivateKey;
use rsa::pkcs8::{EncodePrivateKey, LineEnding};
use rsa::rand_core::OsRng;

extern crate alloc;

#[path = "firmware/at_modem.rs"]
mod at_modem;
#[path = "firmware/modem.rs"]
mod modem;
#[path = "firmware/peer.rs"]
mod peer;
#[path = "firmware/pools.rs"]
mod pools;

type Outcome = Result<(), Box<dyn Error>>;

/// Far longer than any wait takes.
const LIMIT: Duration = Duration::from_secs(90);
const TASKS: i32 = 3;
/// The time without a network of a device with a queue.
const OFFLINE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let mut suite = Suite::new("firmware").skip_if(firmware::available().err());
    suite = suite
        .case("documents_arrive_at_the_fake_server", documents_arrive_at_the_fake_server)
        .case("elections_of_the_fake_set_lose_nothing", elections_of_the_fake_set_lose_nothing)
        .case("firmware_without_a_server_fails", firmware_without_a_server_fails)
        .case("documents_arrive_over_a_modem", modem::documents_arrive_over_a_modem)
        .case("mishaps_of_a_modem_lose_nothing", modem::mishaps_of_a_modem_lose_nothing)
        .case("http_tasks_share_two_connections", pools::http_tasks_share_two_connections)
        .case(
            "http_connections_that_the_server_closes_are_replaced",
            pools::http_connections_that_the_server_closes_are_replaced,
        )
        .case("http_requests_succeed_again_after_a_restart", pools::http_requests_succeed_again_after_a_restart)
        .case(
            "wrong_http_replies_are_errors_and_end_their_connections",
            pools::wrong_http_replies_are_errors_and_end_their_connections,
        )
        .case("modbus_tasks_share_two_connections", pools::modbus_tasks_share_two_connections)
        .case("modbus_readings_succeed_again_after_a_restart", pools::modbus_readings_succeed_again_after_a_restart)
        .case(
            "wrong_modbus_replies_are_errors_and_end_their_connections",
            pools::wrong_modbus_replies_are_errors_and_end_their_connections,
        )
        .case(
            "modbus_exceptions_are_errors_and_keep_their_connections",
            pools::modbus_exceptions_are_errors_and_keep_their_connections,
        );
    match mongod::available() {
        Ok(_) => {
            suite = suite
                .case("documents_arrive", documents_arrive)
                .case("only_users_authenticate", only_users_authenticate)
                .case("a_restart_loses_nothing", a_restart_loses_nothing)
                .case("unplugged_cable_loses_nothing", unplugged_cable_loses_nothing)
                .case("sleeps_and_a_minute_offline_lose_nothing", sleeps_and_a_minute_offline_lose_nothing)
                .case("a_step_down_loses_nothing", a_step_down_loses_nothing)
                .case("the_death_of_a_primary_loses_nothing", the_death_of_a_primary_loses_nothing);
            // The firmware with TLS is a separate build, with a feature.
            if firmware::available().is_ok_and(|folder| folder.join("demo_tls").is_file()) {
                suite = suite
                    .case("documents_arrive_by_tls", documents_arrive_by_tls)
                    .case("documents_arrive_at_a_server_with_rsa_2048_by_tls", || {
                        documents_arrive_by_tls_with_rsa(2048)
                    })
                    .case("documents_arrive_at_a_server_with_rsa_4096_by_tls", || {
                        documents_arrive_by_tls_with_rsa(4096)
                    })
                    .case("a_restart_by_tls_loses_nothing", a_restart_by_tls_loses_nothing)
                    .case("a_foreign_certificate_is_refused", a_foreign_certificate_is_refused);
            } else {
                suite = suite.missing("TLS", "demo_tls is not built");
            }
        }
        Err(reason) => suite = suite.missing("real servers", reason),
    }
    suite.run()
}

/// The demo, which sends `documents` documents from each of its tasks.
fn demo(seeds: &str, documents: i32, period_ms: u32, more: &[&str]) -> Result<Firmware, Box<dyn Error>> {
    Ok(Firmware::start("demo", &arguments(seeds, documents, period_ms, more), None)?)
}

fn arguments(seeds: &str, documents: i32, period_ms: u32, more: &[&str]) -> Vec<String> {
    let mut arguments = vec![
        format!("seeds={seeds}"),
        format!("tasks={TASKS}"),
        format!("documents={documents}"),
        format!("period={period_ms}"),
        "seconds=80".into(),
    ];
    arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
    arguments
}

/// A server that accepts TLS only, and the argument with its authority.
fn start_with_tls() -> Result<(Mongod, Folder, String), Box<dyn Error>> {
    let root = Holder::root("root");
    let identity = root.issue(&CertificateRequest::server(&["127.0.0.1"])).identity();
    start_with_identity(&root, &identity)
}

/// The same with keys of RSA, of the server and of the authority between. The root is on P-256, so that its
/// certificate is short enough for the command line.
fn start_with_rsa(bits: usize) -> Result<(Mongod, Folder, String), Box<dyn Error>> {
    let key =
        || -> Result<_, Box<dyn Error>> { Ok(RsaPrivateKey::new(&mut OsRng, bits)?.to_pkcs8_pem(LineEnding::LF)?) };
    let root = Holder::root("root");
    let between = root.issue_with_key(&CertificateRequest::authority("between"), &key()?);
    let identity = between.issue_with_key(&CertificateRequest::server(&["127.0.0.1"]), &key()?).identity();
    start_with_identity(&root, &identity)
}

fn start_with_identity(root: &Holder, identity: &Identity) -> Result<(Mongod, Folder, String), Box<dyn Error>> {
    let folder = Folder::new();
    let tls = MongodTls {
        certificate_key_file: folder.write("server.pem", identity.pem()),
        ca_file: Some(folder.write("ca.pem", root.certificate())),
        allow_without_certificate: true,
        required: true,
    };
    let server = Mongod::start(MongodOptions { tls: Some(tls), ..MongodOptions::default() })?;
    Ok((server, folder, authority(root)))
}

/// The text of a PEM file between its first line and its last.
fn authority(root: &Holder) -> String {
    let pem = root.certificate();
    let lines: Vec<&str> = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    format!("ca={}", lines.concat())
}

/// The demo with TLS.
fn demo_tls(server: &Mongod, documents: i32, more: &[&str]) -> Result<Firmware, Box<dyn Error>> {
    Ok(Firmware::start("demo_tls", &arguments(&server.address().to_string(), documents, 200, more), None)?)
}

/// The firmware must succeed. Prints its totals; the time of its longest document is the time of a
/// recovery.
fn end_well(case: &str, firmware: &mut Firmware, documents: i32) -> Outcome {
    let status = firmware.finish(LIMIT)?;
    let line = |start: &str| firmware.output().iter().find(|line| line.starts_with(start)).cloned().unwrap_or_default();
    let summary = line("sent ");
    println!("firmware: {case}: {}, {summary}", line("first reply "));
    if status != 0 || !summary.starts_with(&format!("sent {}, ", documents * TASKS)) {
        return Err(format!("exit status {status}:\n{}", firmware.output().join("\n")).into());
    }
    Ok(())
}

/// The documents that a server has, by task and number.
fn found(server: &Mongod) -> Result<BTreeSet<(String, i64)>, Box<dyn Error>> {
    let reply = server.run_command_on("demo", doc! { "find": "telemetry", "batchSize": 10_000 })?;
    let batch = reply.get_document("cursor")?.get_array("firstBatch")?;
    batch.iter().map(|value| number(value.as_document().ok_or("no document")?)).collect()
}

/// The task and the number of a document.
fn number(document: &Document) -> Result<(String, i64), Box<dyn Error>> {
    let id = document.get_document("_id")?;
    Ok((id.get_str("device")?.to_owned(), id.get_i64("number")?))
}

/// The expected documents: `documents` of each task.
fn expected_documents(documents: i32) -> BTreeSet<(String, i64)> {
    (0..TASKS)
        .flat_map(|task| (0..documents).map(move |number| (format!("device-{task}"), i64::from(number))))
        .collect()
}

/// Every document is found once, and no other.
fn check_found(case: &str, server: &Mongod, documents: i32) -> Outcome {
    let found = found(server)?;
    println!("firmware: {case}: found {}", found.len());
    if found == expected_documents(documents) { Ok(()) } else { Err(format!("found {found:?}").into()) }
}

/// The firmware has closed its connections.
fn check_closed(server: &Mongod) -> Outcome {
    let begun = Instant::now();
    while server.other_connections()? > 0 {
        if begun.elapsed() > LIMIT {
            return Err("connections are left open".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Waits until a server has some of the documents.
fn wait_for_some(firmware: &mut Firmware) -> Outcome {
    // After this number of check-ins each task has sent a document.
    for _ in 0..2 * TASKS {
        firmware.wait_for(LIMIT, |line| line.contains("ConnectionCheckedIn"))?;
    }
    Ok(())
}

fn documents_arrive_at_the_fake_server() -> Outcome {
    let server = FakeServer::start(FakeOptions::default())?;
    let mut firmware = demo(&server.address().to_string(), 5, 100, &[])?;
    end_well("documents arrive at the fake server", &mut firmware, 5)?;
    server.wait_until(LIMIT, |view| view.open_count() == 0)?;
    // Each document arrived. A document arrived again only after a reported failure: on a slow
    // machine an insert may be answered too late.
    let inserts: Vec<_> = server.log().into_iter().filter(|it| it.name == "insert").collect();
    let found = inserts.iter().map(|it| inserted(it.body.as_ref())).collect::<Result<BTreeSet<_>, _>>()?;
    let failed = firmware.output().iter().filter(|line| reports_failure(line)).count();
    if found != expected_documents(5) || inserts.len() > found.len() + failed {
        return Err(format!("{} inserts, {failed} failures: {found:?}", inserts.len()).into());
    }
    Ok(())
}

/// The task and the number of the one document of an insert.
fn inserted(insert: Option<&Document>) -> Result<(String, i64), Box<dyn Error>> {
    let documents = insert.ok_or("an insert without a body")?.get_array("documents")?;
    let [document] = documents.as_slice() else { return Err(format!("{documents:?}").into()) };
    number(document.as_document().ok_or("no document")?)
}

/// Whether a line reports a failed attempt to send a document, or a failed connection. An insert is
/// repeated after either.
fn reports_failure(line: &str) -> bool {
    let closed = line.contains("ConnectionClosed") && (line.contains("(error)") || line.contains("(stale)"));
    closed || (line.starts_with("device-") && line.contains(", reading "))
}

fn elections_of_the_fake_set_lose_nothing() -> Outcome {
    let set = FakeReplicaSet::start(FakeReplicaSetOptions::default())?;
    let seeds = set.address(0).to_string();
    let mut firmware = demo(&seeds, 10, 200, &[&format!("set={}", set.set_name())])?;
    wait_for_some(&mut firmware)?;
    set.fail_over()?;
    end_well("elections of the fake set lose nothing", &mut firmware, 10)?;
    let inserts: u64 = (0..set.servers_count()).map(|member| set.server(member).count_of("insert")).sum();
    // The inserts that were refused while there was no primary were repeated.
    if inserts >= 30 { Ok(()) } else { Err(format!("{inserts} inserts").into()) }
}

fn firmware_without_a_server_fails() -> Outcome {
    // Nothing listens at port 1.
    let mut firmware = demo("127.0.0.1:1", 1, 100, &["seconds=2"])?;
    let status = firmware.finish(LIMIT)?;
    let output = firmware.output().join("\n");
    if status == 1 && output.contains("sent 0, ") && output.contains("out of time") {
        Ok(())
    } else {
        Err(output.into())
    }
}

fn documents_arrive() -> Outcome {
    let server = Mongod::start(MongodOptions::default())?;
    let mut firmware = demo(&server.address().to_string(), 10, 100, &[])?;
    end_well("documents arrive", &mut firmware, 10)?;
    check_found("documents arrive", &server, 10)?;
    check_closed(&server)
}

fn only_users_authenticate() -> Outcome {
    let server = Mongod::start(MongodOptions::default())?;
    server.run_command(doc! { "createUser": "ada", "pwd": "pencil", "roles": ["root"] })?;
    let address = server.address().to_string();
    let mut firmware = demo(&address, 5, 100, &["user=ada", "password=pencil"])?;
    end_well("only users authenticate", &mut firmware, 5)?;
    check_found("only users authenticate", &server, 5)?;
    // The time to compute a key on the emulated core depends on the machine's load, so the test
    // waits for the refusal.
    let mut firmware = demo(&address, 5, 100, &["user=ada", "password=chalk"])?;
    let refusal = firmware.wait_for(LIMIT, |line| line.contains("authentication"))?;
    println!("firmware: only users authenticate: {refusal}");
    let output = firmware.output().join("\n");
    if output.contains("chalk") || output.contains("first reply") {
        return Err(output.into());
    }
    check_found("only users authenticate", &server, 5)
}

fn a_restart_loses_nothing() -> Outcome {
    let mut server = Mongod::start(MongodOptions::default())?;
    let mut firmware = demo(&server.address().to_string(), 15, 200, &[])?;
    wait_for_some(&mut firmware)?;
    server.restart()?;
    end_well("a restart loses nothing", &mut firmware, 15)?;
    check_found("a restart loses nothing", &server, 15)?;
    check_closed(&server)
}

fn unplugged_cable_loses_nothing() -> Outcome {
    let server = Mongod::start(MongodOptions::default())?;
    let folder = Folder::new();
    let arguments = arguments(&server.address().to_string(), 25, 200, &[]);
    let mut firmware = Firmware::start("demo", &arguments, Some(folder.path().join("monitor")))?;
    wait_for_some(&mut firmware)?;
    firmware.set_link(false)?;
    firmware.wait_for(LIMIT, |line| line.contains("PoolCleared"))?;
    firmware.set_link(true)?;
    end_well("an unplugged cable loses nothing", &mut firmware, 25)?;
    check_found("an unplugged cable loses nothing", &server, 25)
}

fn a_step_down_loses_nothing() -> Outcome {
    let set = MongodReplicaSet::start(3)?;
    let primary = set.settle(LIMIT)?;
    let seeds = set.member(primary).address().to_string();
    let mut firmware = demo(&seeds, 15, 200, &[&format!("set={}", set.set_name())])?;
    wait_for_some(&mut firmware)?;
    set.step_down(10)?;
    end_well("a step down loses nothing", &mut firmware, 15)?;
    check_found("a step down loses nothing", set.member(set.wait_for_primary(LIMIT)?), 15)
}

fn the_death_of_a_primary_loses_nothing() -> Outcome {
    let mut set = MongodReplicaSet::start(3)?;
    let primary = set.wait_for_primary(LIMIT)?;
    let seeds: Vec<_> = (0..3).map(|member| set.member(member).address().to_string()).collect();
    let mut firmware = demo(&seeds.join(","), 15, 200, &[&format!("set={}", set.set_name())])?;
    wait_for_some(&mut firmware)?;
    set.kill9(primary)?;
    end_well("the death of a primary loses nothing", &mut firmware, 15)?;
    check_found("the death of a primary loses nothing", set.member(set.wait_for_other_primary(primary, LIMIT)?), 15)
}

/// The device sleeps twenty times, during an election too, and then is offline until its queue is full and
/// for a minute. It does not report readings that its queue refuses; all others are stored.
fn sleeps_and_a_minute_offline_lose_nothing() -> Outcome {
    // After the last sleep. The queue holds 24.
    const READINGS: i64 = 90;
    let set = MongodReplicaSet::start(3)?;
    let primary = set.settle(LIMIT)?;
    let folder = Folder::new();
    let arguments = [
        format!("seeds={}", set.member(primary).address()),
        format!("set={}", set.set_name()),
        format!("documents={READINGS}"),
        "period=200".into(),
        "sleeps=20".into(),
        "seconds=150".into(),
    ];
    let monitor = Some(folder.path().join("monitor"));
    let mut firmware = Firmware::start_for(2 * LIMIT, "field", &arguments, monitor)?;
    firmware.wait_for(LIMIT, |line| line.starts_with("asleep 5,"))?;
    set.step_down(10)?;
    let asleep = firmware.wait_for(LIMIT, |line| line.starts_with("asleep 20,"))?;
    firmware.wait_for(LIMIT, |line| line.contains("ConnectionCheckedIn"))?;
    firmware.set_link(false)?;
    let unplugged = Instant::now();
    let full = firmware.wait_for(LIMIT, |line| line.starts_with("the queue is full"))?;
    std::thread::sleep(OFFLINE.saturating_sub(unplugged.elapsed()));
    firmware.set_link(true)?;
    let status = firmware.finish(LIMIT)?;
    let summary = firmware.output().iter().find(|line| line.starts_with("sent ")).cloned().unwrap_or_default();
    println!("firmware: sleeps and a minute offline lose nothing: {asleep}; {full}; {summary}");
    let all_free = asleep.ends_with("16 of 16 sockets are free");
    let readings = summary.split([' ', ',']).nth(1).and_then(|sent| sent.parse::<i64>().ok()).unwrap_or(0);
    let all_sent = readings > READINGS && summary.starts_with(&format!("sent {readings}, accepted {readings}, "));
    if status != 0 || !all_free || !all_sent {
        return Err(format!("exit status {status}:\n{}", firmware.output().join("\n")).into());
    }
    let expected = (0..readings).map(|number| ("device-0".to_owned(), number)).collect::<BTreeSet<_>>();
    let server = set.member(set.wait_for_primary(LIMIT)?);
    let found = found(server)?;
    if found == expected { Ok(()) } else { Err(format!("found {found:?}").into()) }
}

fn documents_arrive_by_tls() -> Outcome {
    let (server, _folder, authority) = start_with_tls()?;
    server.run_command(doc! { "createUser": "ada", "pwd": "pencil", "roles": ["root"] })?;
    let mut firmware = demo_tls(&server, 10, &[&authority, "user=ada", "password=pencil"])?;
    end_well("documents arrive by tls", &mut firmware, 10)?;
    check_found("documents arrive by tls", &server, 10)?;
    check_closed(&server)
}

fn documents_arrive_by_tls_with_rsa(bits: usize) -> Outcome {
    let case = format!("documents arrive at a server with RSA of {bits} bits by tls");
    let (server, _folder, authority) = start_with_rsa(bits)?;
    let mut firmware = demo_tls(&server, 10, &[&authority])?;
    end_well(&case, &mut firmware, 10)?;
    check_found(&case, &server, 10)?;
    check_closed(&server)
}

fn a_restart_by_tls_loses_nothing() -> Outcome {
    let (mut server, _folder, authority) = start_with_tls()?;
    let mut firmware = demo_tls(&server, 15, &[&authority])?;
    wait_for_some(&mut firmware)?;
    server.restart()?;
    end_well("a restart by tls loses nothing", &mut firmware, 15)?;
    check_found("a restart by tls loses nothing", &server, 15)
}

fn a_foreign_certificate_is_refused() -> Outcome {
    let (server, _folder, _) = start_with_tls()?;
    let stranger = authority(&Holder::root("stranger"));
    let mut firmware = demo_tls(&server, 1, &[&stranger])?;
    let refusal = firmware.wait_for(LIMIT, |line| line.contains("certificate"))?;
    println!("firmware: a foreign certificate is refused: {}", refusal.trim());
    let output = firmware.output().join("\n");
    if output.contains("first reply") || output.contains("ConnectionReady") {
        return Err(output.into());
    }
    Ok(())
}
