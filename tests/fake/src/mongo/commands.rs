//! The commands, answered as by a server of release 6.0.

use core::time::Duration;

use bson::{Bson, DateTime, Document, Timestamp, doc, oid::ObjectId};

use super::compress::agree;
use super::errors::{CommandError, whole};
use super::fail_point::{FAIL_COMMAND, FailPoint};
use super::shared::Inner;
use super::state::{Greeting, Role, hello_reply};
use super::transactions::is_in_transaction;
use super::wire::{EXHAUST_ALLOWED, Form, Message};

/// Longest `client` document and application name that a handshake may carry, bytes.
const CLIENT_BYTES_MAX: usize = 512;
const APP_NAME_BYTES_MAX: usize = 128;

/// The outcome of a command.
#[derive(Debug)]
pub(crate) enum Outcome {
    Reply(Document),
    /// A hello that waits until the state's topologyVersion differs from the given one, or until
    /// the timeout.
    Await {
        time: Duration,
    },
}

/// Returns whether the name is `hello` or one of its legacy names.
pub(crate) fn is_hello(name: &str) -> bool {
    matches!(name, "hello" | "isMaster" | "ismaster")
}

/// Stores the client metadata of a handshake. Runs before fail points are evaluated, so that they
/// can match the application name. The limit of 512 bytes is that of the handshake specification;
/// real servers were observed to accept more.
pub(crate) fn store_metadata(inner: &mut Inner, connection: u64, body: &Document) -> Result<(), CommandError> {
    let Some(info) = inner.open_mut(connection) else { return Ok(()) };
    let first = info.hellos_count == 0;
    info.hellos_count += 1;
    let Some(client) = body.get("client") else { return Ok(()) };
    if !first {
        return Err(CommandError::new(186, "The client metadata document may only be sent in the first hello"));
    }
    let client =
        client.as_document().ok_or_else(|| CommandError::new(14, "The client metadata document must be a document"))?;
    if client.to_vec().map_or(usize::MAX, |bytes| bytes.len()) > CLIENT_BYTES_MAX {
        let message = format!("The client metadata document must be less then or equal to {CLIENT_BYTES_MAX} bytes");
        return Err(CommandError::new(185, message));
    }
    for (group, field) in [("driver", "name"), ("driver", "version"), ("os", "type")] {
        let Ok(group_found) = client.get_document(group) else {
            let message = format!("Missing required sub-document '{group}' in the client metadata document");
            return Err(CommandError::new(183, message));
        };
        if group_found.get_str(field).is_err() {
            let message = format!("Missing required field '{group}.{field}' in the client metadata document");
            return Err(CommandError::new(183, message));
        }
    }
    let application = client.get_document("application").ok();
    let app_name = application.and_then(|application| application.get_str("name").ok()).map(str::to_owned);
    if app_name.as_ref().is_some_and(|name| name.len() > APP_NAME_BYTES_MAX) {
        let message = format!(
            "The 'application.name' field must be less then or equal to {APP_NAME_BYTES_MAX} bytes in the client metadata document"
        );
        return Err(CommandError::new(184, message));
    }
    info.app_name = app_name;
    info.client = Some(client.clone());
    Ok(())
}

/// Runs one command.
pub(crate) fn run(inner: &mut Inner, connection: u64, name: &str, message: &Message) -> Result<Outcome, CommandError> {
    if message.form == Form::Query {
        return run_legacy(inner, connection, name, message);
    }
    let body = &message.body;
    match body.get("$db") {
        None => return Err(CommandError::new(40571, "OP_MSG requests require a $db argument")),
        Some(Bson::String(_)) => {}
        Some(other) => {
            let message =
                format!("BSON field '$db' is the wrong type '{:?}', expected type 'string'", other.element_type());
            return Err(CommandError::new(14, message));
        }
    }
    inner.auth.check(connection, name)?;
    if is_hello(name) {
        if message.has(EXHAUST_ALLOWED) && inner.state.topology_version && !body.contains_key("maxAwaitTimeMS") {
            let text = "An isMaster or hello request with exhaust must specify 'maxAwaitTimeMS'";
            return Err(CommandError::new(51756, text));
        }
        return hello(inner, connection, name, body);
    }
    let is_end = matches!(name, "commitTransaction" | "abortTransaction");
    if !is_end {
        inner.store.begin_in_transaction(body)?;
    }
    let outcome = reply_to(inner, connection, name, body);
    if outcome.is_err() && !is_end {
        inner.store.fail_in_transaction(body);
    }
    let mut reply = outcome?;
    if inner.state.role == Role::Mongos && is_in_transaction(body) {
        reply.insert("recoveryToken", doc! { "recoveryShardId": "shard0" });
    }
    if let Some(time) = inner.add_times(&mut reply) {
        add_snapshot_time(&mut reply, body, time);
    }
    Ok(Outcome::Reply(reply))
}

/// The read concern of a command outside of transactions, if it is that of a snapshot.
fn snapshot(body: &Document) -> Option<&Document> {
    let concern = body.get_document("readConcern").ok().filter(|_| !body.contains_key("autocommit"))?;
    concern.get_str("level").is_ok_and(|level| level == "snapshot").then_some(concern)
}

/// Adds the time of a snapshot read to its reply.
fn add_snapshot_time(reply: &mut Document, body: &Document, time: Timestamp) {
    let Some(concern) = snapshot(body) else { return };
    let time = concern.get_timestamp("atClusterTime").unwrap_or(time);
    if let Ok(cursor) = reply.get_document_mut("cursor") {
        cursor.insert("atClusterTime", time);
    }
}

/// Returns the reply to a command other than hello.
fn reply_to(inner: &mut Inner, connection: u64, name: &str, body: &Document) -> Result<Document, CommandError> {
    let db = body.get_str("$db").unwrap_or_default();
    if snapshot(body).is_some() && !matches!(name, "find" | "getMore") {
        return Err(CommandError::new(72, format!("Command {name} does not support read concern snapshot")));
    }
    let reply = match name {
        "saslStart" => {
            let random = [inner.entropy(), inner.entropy(), inner.entropy()];
            inner.auth.start(connection, db, body, random)?
        }
        "saslContinue" => inner.auth.continue_conversation(connection, body)?,
        "ping" => doc! { "ok": 1.0 },
        "buildInfo" | "buildinfo" => build_info(inner),
        "endSessions" | "killSessions" | "refreshSessions" => {
            body.get_array(name).map_err(|_| CommandError::new(14, format!("{name} must be an array")))?;
            doc! { "ok": 1.0 }
        }
        "startSession" => start_session(inner),
        "serverStatus" => server_status(inner),
        "getParameter" => get_parameter(body)?,
        "configureFailPoint" => configure_fail_point(inner, body)?,
        "listDatabases" => {
            check_read(inner, body)?;
            inner.store.list_databases()
        }
        "insert" => {
            check_write(inner, body)?;
            let count_max = inner.state.batch_count_max;
            let mut reply = inner.store.once(body, || inner.store.insert(body, count_max))?;
            add_write_times(inner, &mut reply);
            reply
        }
        "find" => {
            check_read(inner, body)?;
            inner.store.find(body)?
        }
        "getMore" => inner.store.get_more(body)?,
        "killCursors" => inner.store.kill_cursors(body)?,
        "commitTransaction" | "abortTransaction" => {
            check_write(inner, body)?;
            match name {
                "commitTransaction" => inner.store.commit_transaction(body)?,
                _ => inner.store.abort_transaction(body)?,
            }
        }
        "drop" => {
            check_write(inner, body)?;
            inner.store.drop_collection(body)?
        }
        "whatsmyuri" => {
            let peer = inner.open_mut(connection).and_then(|info| info.peer);
            doc! { "you": peer.map_or_else(|| "anonymous unix socket:27017".to_owned(), |peer| peer.to_string()), "ok": 1.0 }
        }
        _ => return Err(CommandError::new(59, format!("no such command: '{name}'"))),
    };
    Ok(reply)
}

fn run_legacy(inner: &mut Inner, connection: u64, name: &str, message: &Message) -> Result<Outcome, CommandError> {
    if !message.collection.ends_with(".$cmd") {
        let text = "OP_QUERY is no longer supported. The client driver may require an upgrade.";
        return Err(CommandError::new(5_739_101, text));
    }
    if !is_hello(name) {
        let text = format!("Unsupported OP_QUERY command: {name}. The client driver may require an upgrade.");
        return Err(CommandError::new(352, text));
    }
    hello(inner, connection, name, &message.body)
}

/// Answers a hello, or makes it wait.
fn hello(inner: &mut Inner, connection: u64, name: &str, body: &Document) -> Result<Outcome, CommandError> {
    if inner.state.topology_version {
        if let Some(time) = hello_wait(inner, body)? {
            return Ok(Outcome::Await { time });
        }
    }
    let mut reply = greet(inner, connection, name, body);
    let random = match body.contains_key("speculativeAuthenticate") {
        true => [inner.entropy(), inner.entropy(), inner.entropy()],
        false => [0; 3],
    };
    let agreed = agree(body, &inner.state.compressors);
    if let Some(info) = inner.open_mut(connection) {
        if body.contains_key("compression") {
            info.compressors = agreed;
        }
    }
    inner.auth.greet(connection, body, &mut reply, random);
    Ok(Outcome::Reply(reply))
}

/// Returns the reply to a hello for the current state.
pub(crate) fn greet(inner: &Inner, connection: u64, name: &str, body: &Document) -> Document {
    let written = inner.store.written();
    let greeting = Greeting { legacy: name != "hello", request: body, connection, version: inner.version, written };
    hello_reply(&inner.state, greeting)
}

/// Returns how long a hello may wait; `None` = answer now.
fn hello_wait(inner: &Inner, body: &Document) -> Result<Option<Duration>, CommandError> {
    let (version, time) = match (body.get("topologyVersion"), body.get("maxAwaitTimeMS")) {
        (None, None) => return Ok(None),
        (Some(_), None) => {
            return Err(CommandError::new(31368, "A request with a 'topologyVersion' must include 'maxAwaitTimeMS'"));
        }
        (None, Some(_)) => {
            return Err(CommandError::new(31368, "A request with 'maxAwaitTimeMS' must include a 'topologyVersion'"));
        }
        (Some(version), Some(time)) => (version, time),
    };
    let wrong = || {
        CommandError::new(
            14,
            "BSON field 'hello.topologyVersion' must have an objectId 'processId' and a long 'counter'",
        )
    };
    let version = version.as_document().ok_or_else(wrong)?;
    let process_id: ObjectId = version.get_object_id("processId").map_err(|_| wrong())?;
    let counter = version.get_i64("counter").map_err(|_| wrong())?;
    if counter < 0 {
        return Err(CommandError::new(31372, "topologyVersion must have a non-negative counter"));
    }
    let time = whole(time).and_then(|time| u64::try_from(time).ok());
    let time = time.ok_or_else(|| CommandError::new(51024, "BSON field 'maxAwaitTimeMS' value must be >= 0"))?;
    if process_id != inner.version.process_id {
        return Ok(None);
    }
    if counter > inner.version.counter {
        let message = format!(
            "Received a topology version with counter: {counter} which is greater than the server topology version counter: {}",
            inner.version.counter
        );
        return Err(CommandError::new(51764, message));
    }
    if counter < inner.version.counter {
        return Ok(None);
    }
    const DAY_MS: u64 = 24 * 60 * 60 * 1000;
    Ok(Some(Duration::from_millis(time.min(DAY_MS))))
}

fn check_transaction_number(inner: &Inner, body: &Document) -> Result<(), CommandError> {
    let single = inner.state.role == Role::Standalone;
    if single && body.contains_key("txnNumber") {
        return Err(CommandError::new(20, "Transaction numbers are only allowed on a replica set member or mongos"));
    }
    Ok(())
}

fn check_write(inner: &Inner, body: &Document) -> Result<(), CommandError> {
    check_transaction_number(inner, body)?;
    if inner.state.role.is_writable() { Ok(()) } else { Err(CommandError::new(10107, "not primary")) }
}

/// Adds the electionId and the opTime to the reply to a write, as members of a replica set do.
fn add_write_times(inner: &Inner, reply: &mut Document) {
    if let (Some(id), Some(last_write)) = (inner.state.fields.get("electionId"), inner.state.last_write) {
        reply.insert("electionId", id.clone());
        reply.insert("opTime", last_write.time(inner.store.written()));
    }
}

fn check_read(inner: &Inner, body: &Document) -> Result<(), CommandError> {
    check_transaction_number(inner, body)?;
    if inner.state.role.is_writable() {
        return Ok(());
    }
    let mode = body.get_document("$readPreference").ok().and_then(|preference| preference.get_str("mode").ok());
    if mode.is_none_or(|mode| mode == "primary") {
        return Err(CommandError::new(13435, "not primary and secondaryOk=false"));
    }
    if inner.state.role != Role::Secondary {
        return Err(CommandError::new(13436, "node is not in primary or recovering state"));
    }
    Ok(())
}

fn build_info(inner: &Inner) -> Document {
    let mut parts: Vec<Bson> =
        inner.state.version.split('.').map(|part| Bson::Int32(part.parse().unwrap_or(0))).take(3).collect();
    parts.resize(4, Bson::Int32(0));
    doc! {
        "version": inner.state.version.as_str(),
        "gitVersion": "fake",
        "modules": Vec::<Bson>::new(),
        "sysInfo": "deprecated",
        "versionArray": parts,
        "bits": 64,
        "debug": false,
        "maxBsonObjectSize": inner.state.document_bytes_max,
        "storageEngines": ["ephemeral"],
        "ok": 1.0,
    }
}

fn start_session(inner: &mut Inner) -> Document {
    let mut bytes = Vec::with_capacity(16);
    bytes.extend_from_slice(&inner.entropy().to_le_bytes());
    bytes.extend_from_slice(&inner.entropy().to_le_bytes());
    let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes };
    doc! { "id": { "id": id }, "timeoutMinutes": inner.state.session_timeout_minutes.unwrap_or(30), "ok": 1.0 }
}

fn server_status(inner: &Inner) -> Document {
    let view = inner.view();
    let open = i32::try_from(view.open_count()).unwrap_or(i32::MAX);
    let up = inner.started.elapsed();
    doc! {
        "host": "localhost",
        "version": inner.state.version.as_str(),
        "process": if inner.state.role == Role::Mongos { "mongos" } else { "mongod" },
        "pid": i64::from(std::process::id()),
        "uptime": up.as_secs_f64().floor(),
        "uptimeMillis": i64::try_from(up.as_millis()).unwrap_or(i64::MAX),
        "localTime": DateTime::now(),
        "connections": {
            "current": open,
            "available": 1_000_000 - open,
            "totalCreated": i64::try_from(view.accepted_count()).unwrap_or(i64::MAX),
            "active": open,
            "exhaustIsMaster": 0,
            "exhaustHello": i32::try_from(view.exhausting_count()).unwrap_or(i32::MAX),
            "awaitingTopologyChanges": i32::try_from(view.awaiting_count()).unwrap_or(i32::MAX),
        },
        "network": {
            "numRequests": i64::try_from(view.commands_count()).unwrap_or(i64::MAX),
            "compression": compression_status(inner),
        },
        "ok": 1.0,
    }
}

/// Returns the counters of each algorithm, with the field names of a real server.
fn compression_status(inner: &Inner) -> Document {
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let mut status = Document::new();
    for &algorithm in &inner.state.compressors {
        let done = inner.view().compression(algorithm);
        let entry = doc! {
            "compressor": { "bytesIn": number(done.replied_bytes), "bytesOut": number(done.replied_packed_bytes) },
            "decompressor": { "bytesIn": number(done.received_packed_bytes), "bytesOut": number(done.received_bytes) },
        };
        status.insert(algorithm.name(), entry);
    }
    status
}

fn get_parameter(body: &Document) -> Result<Document, CommandError> {
    let known = doc! {
        "enableTestCommands": true,
        "featureCompatibilityVersion": { "version": "6.0" },
        "authenticationMechanisms": ["SCRAM-SHA-1", "SCRAM-SHA-256"],
        "requireApiVersion": false,
        "acceptApiVersion2": false,
    };
    let all = body.get_str("getParameter").is_ok_and(|word| word == "*");
    let mut reply = Document::new();
    for (name, value) in known {
        if all || body.contains_key(&name) {
            reply.insert(name, value);
        }
    }
    if reply.is_empty() {
        return Err(CommandError::new(0, "no option found to get"));
    }
    reply.insert("ok", 1.0);
    Ok(reply)
}

fn configure_fail_point(inner: &mut Inner, body: &Document) -> Result<Document, CommandError> {
    if body.get_str("$db").ok() != Some("admin") {
        return Err(CommandError::new(13, "configureFailPoint may only be run against the admin database."));
    }
    let name = body
        .get_str("configureFailPoint")
        .map_err(|_| CommandError::new(14, "configureFailPoint must name a fail point"))?;
    if name != FAIL_COMMAND {
        return Err(CommandError::new(266, format!("{name} not found")));
    }
    let point = FailPoint::parse(body)?;
    let count = inner.fail_points.set(name, point);
    Ok(doc! { "count": i64::try_from(count).unwrap_or(i64::MAX), "ok": 1.0 })
}
