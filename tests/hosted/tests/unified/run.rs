//! Runs one test on a deployment.
//!
//! A difference does not end a test: later ones are reported, too.

use crate::deployment::{Deployment, Topology, USER};
use crate::error::{self, Stop};
use crate::events::{Started, Watched};
use crate::logs::Logs;
use crate::matching::{self, Entities, integer};
use crate::operations;
use crate::spans::Traces;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use alloc::sync::Arc;
use bson::{Bson, Document, doc};
use core::cell::RefCell;
use core::time::Duration;
use poolhouse_smol::poolhouse_core::ServerType;
use poolhouse_smol::poolhouse_core::topology::OwnedTopologyDescription;
use poolhouse_smol::poolhouse_driver::EventKinds;
use poolhouse_smol::poolhouse_wire::hello::ServerApi;
use poolhouse_smol::{Client, ClientOptions, ClientSession, ClientSessionOptions, Cursor, SessionCursor};
use smol::future::FutureExt as _;
use smol::{LocalExecutor, Task};
use std::time::Instant;

/// Time limit of a test.
const LIMIT: Duration = Duration::from_secs(120);

/// Time limit of a wait for an event. A client whose monitor was ahead of a fail point meets it with its next
/// heartbeat, ten seconds later.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long events that are expected may follow the operations.
const EVENTS: Duration = Duration::from_secs(3);

/// The operations and assertions about sessions that no public function shows.
const UNSEEN: [&str; 4] =
    ["assertSessionPinned", "assertSessionUnpinned", "assertSessionDirty", "assertSessionNotDirty"];

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// Not run, because of the servers or the file.
    Skipped(String),
    Passed,
    /// It passed, except for assertions that no public function can check.
    Partial(String),
    /// It needs an API that is missing, or the runner does not know it.
    Unsupported(String),
    /// The differences.
    Failed(Vec<String>),
}

/// A client, a database or a collection: the first two have an empty name of a collection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Target {
    pub(crate) client: String,
    pub(crate) is_client: bool,
    pub(crate) database: String,
    pub(crate) collection: String,
    pub(crate) options: Document,
}

/// A session of a test.
pub(crate) struct Session {
    client: String,
    /// `None` while an operation uses it.
    pub(crate) session: Option<ClientSession>,
    /// `defaultTransactionOptions`.
    pub(crate) transaction: Document,
}

/// A cursor of a test.
pub(crate) enum Opened {
    Own(Box<Cursor>),
    /// In the session with this id.
    In(String, Box<SessionCursor>),
}

/// A session that an operation uses.
pub(crate) struct InSession<'s> {
    pub(crate) id: &'s str,
    pub(crate) session: &'s mut ClientSession,
}

pub(crate) struct Run {
    pub(crate) deployment: Arc<Deployment>,
    /// Whether clients authenticate.
    has_user: bool,
    clients: RefCell<BTreeMap<String, Rc<Watched>>>,
    targets: RefCell<BTreeMap<String, Target>>,
    pub(crate) sessions: RefCell<BTreeMap<String, Session>>,
    lsids: RefCell<BTreeMap<String, Document>>,
    pub(crate) cursors: RefCell<BTreeMap<String, Opened>>,
    /// The cursors that are change streams.
    pub(crate) change_streams: RefCell<BTreeSet<String>>,
    values: RefCell<BTreeMap<String, Bson>>,
    topologies: RefCell<BTreeMap<String, OwnedTopologyDescription>>,
    threads: RefCell<BTreeMap<String, Vec<Task<()>>>>,
    executor: Rc<LocalExecutor<'static>>,
    /// The read preferences of transactions, by session.
    pub(crate) preferences: RefCell<BTreeMap<String, Document>>,
    logs: Logs,
    spans: Traces,
    failed: RefCell<Vec<String>>,
    /// What a fake server has refused because it is none of its commands or options.
    missing: RefCell<Option<String>>,
    unseen: RefCell<Vec<String>>,
}

impl Entities for Run {
    fn value(&self, id: &str) -> Option<Bson> {
        self.values.borrow().get(id).cloned()
    }

    fn lsid(&self, id: &str) -> Option<Document> {
        self.lsids.borrow().get(id).cloned()
    }
}

/// Runs a test of a file.
pub(crate) fn test(file: &Document, test: &Document, has_user: bool, deployment: Arc<Deployment>) -> Verdict {
    let executor = Rc::new(LocalExecutor::new());
    let run = Rc::new(Run {
        logs: Logs::new(deployment.addresses()),
        spans: Traces::default(),
        deployment,
        has_user,
        clients: RefCell::default(),
        targets: RefCell::default(),
        sessions: RefCell::default(),
        lsids: RefCell::default(),
        cursors: RefCell::default(),
        change_streams: RefCell::default(),
        values: RefCell::default(),
        topologies: RefCell::default(),
        threads: RefCell::default(),
        executor: Rc::clone(&executor),
        preferences: RefCell::default(),
        failed: RefCell::default(),
        missing: RefCell::default(),
        unseen: RefCell::default(),
    });
    let limit = async {
        smol::Timer::after(LIMIT).await;
        Err(Stop::Fault(format!("no end in {LIMIT:?}")))
    };
    let subscribed = test.contains_key("expectTracingMessages").then(|| run.spans.subscribe());
    let result = smol::block_on(executor.run(run.test(file, test).or(limit)));
    drop(subscribed);
    smol::block_on(executor.run(run.end()));
    let mut failed = run.failed.take();
    let unseen = run.unseen.take();
    let is_failure = !failed.is_empty() || matches!(&result, Err(stop) if !matches!(stop, Stop::Unsupported(_)));
    // Of a command of the runner; of a fail point.
    let is_refusal = |error: &String| error.contains("no such command") || error.contains("with code 266");
    let stopped = result.as_ref().err().map(Stop::to_string);
    let refused = failed.iter().chain(&stopped).find(|error| is_refusal(error)).filter(|_| run.deployment.is_fake());
    let missing = run.missing.take().or_else(|| refused.cloned());
    if let Some(missing) = missing.filter(|_| is_failure) {
        return Verdict::Skipped(format!("the fake servers do not serve it: {missing}"));
    }
    match result {
        Err(Stop::Unsupported(what)) if failed.is_empty() => return Verdict::Unsupported(what),
        Err(Stop::Unsupported(what)) => failed.push(format!("unsupported: {what}")),
        Err(stop) => failed.push(stop.to_string()),
        Ok(()) => {}
    }
    match (failed.is_empty(), unseen.is_empty()) {
        (true, true) => Verdict::Passed,
        (true, false) => Verdict::Partial(unseen.join(", ")),
        (false, _) => Verdict::Failed(failed),
    }
}

/// The objects of a list.
pub(crate) fn documents<'d>(of: &'d Document, name: &str) -> impl Iterator<Item = &'d Document> + use<'d> {
    of.get_array(name).map(Vec::as_slice).unwrap_or_default().iter().filter_map(Bson::as_document)
}

pub(crate) fn text<'d>(of: &'d Document, name: &str) -> Result<&'d str, Stop> {
    of.get_str(name).map_err(|error| Stop::Fault(format!("{name}: {error} in {of}")))
}

impl Run {
    async fn test(self: &Rc<Self>, file: &Document, test: &Document) -> Result<(), Stop> {
        self.deployment.clean()?;
        drop(self.deployment.take_sent());
        for (database, collection) in collections(file) {
            self.deployment.remove(database, collection)?;
        }
        let empty = Vec::new();
        self.deployment.fill(file.get_array("initialData").unwrap_or(&empty))?;
        self.create(file, "createEntities").await?;
        for operation in documents(test, "operations") {
            self.step(operation, None).await?;
        }
        // A fail point must not affect the runner.
        self.deployment.clean_fail_points()?;
        for expected in documents(test, "expectEvents") {
            let id = text(expected, "client")?;
            let watched = self.client(id)?;
            let begun = Instant::now();
            while !watched.is_complete(expected)? && begun.elapsed() < EVENTS {
                smol::Timer::after(Duration::from_millis(5)).await;
            }
            if let Err(error) = watched.check(expected, &**self) {
                self.differs(format!("{id}: {error}"));
            }
        }
        for expected in documents(test, "outcome") {
            let (database, collection) = (text(expected, "databaseName")?, text(expected, "collectionName")?);
            let found = Bson::Array(self.deployment.documents(database, collection)?);
            let expected = expected.get("documents").cloned().unwrap_or_default();
            // Documents of an outcome must be equal, not only match.
            if let Err(error) =
                matching::check(&doc! { "it": expected }.into(), Some(&doc! { "it": found }.into()), &**self)
            {
                self.differs(format!("outcome: {error}"));
            }
        }
        for expected in documents(test, "expectLogMessages") {
            if let Err(error) = self.logs.check(expected, &**self).await {
                self.differs(format!("messages: {error}"));
            }
        }
        for expected in documents(test, "expectTracingMessages") {
            if let Err(error) = self.spans.check(expected, &**self) {
                self.differs(format!("spans: {error}"));
            }
        }
        Ok(())
    }

    /// Ends everything that the test has opened.
    async fn end(&self) {
        let threads = self.threads.take();
        drop(threads);
        drop(self.cursors.take());
        drop(self.sessions.take());
        // Open transactions must not keep locks that the next test waits for.
        let _ = self.deployment.clean();
        let clients = self.clients.take();
        for watched in clients.values() {
            watched.client.close().await;
        }
        if self.deployment.has_relays() {
            self.compare_sent(&clients).await;
        }
        if self.deployment.is_fake() {
            let refused = clients.values().find_map(|watched| watched.refused());
            *self.missing.borrow_mut() = refused;
        }
    }

    /// Compares the commands that the relays saw with the events.
    async fn compare_sent(&self, clients: &BTreeMap<String, Rc<Watched>>) {
        let mut events: Vec<_> = clients.values().flat_map(|watched| watched.started()).collect();
        let begun = Instant::now();
        let mut sent = self.deployment.take_sent();
        // A relay may be reading what a client sent before it closed its connection.
        let is_unsent =
            |it: &Started, sent: &[(i32, Document)]| it.has_succeeded && sent.iter().all(|(id, _)| *id != it.id);
        while events.iter().any(|it| is_unsent(it, &sent)) && begun.elapsed() < EVENTS {
            smol::Timer::after(Duration::from_millis(5)).await;
            sent.extend(self.deployment.take_sent());
        }
        for (id, command) in sent {
            let name = command.keys().next().cloned().unwrap_or_default();
            let is_it =
                |it: &Started| it.id == id && it.name == name && (it.command == command || it.command.is_empty());
            match events.iter().position(is_it) {
                Some(index) => drop(events.swap_remove(index)),
                // A write without an acknowledgement may arrive after its test.
                None if is_handshake(&name) || is_unacknowledged(&command) => {}
                None => self.differs(format!("no event has the command that was sent: {command}")),
            }
        }
        if let Some(event) = events.into_iter().find(|it| it.has_succeeded) {
            self.differs(format!("the command of an event was not sent: {} {}", event.name, event.command));
        }
    }

    fn differs(&self, what: String) {
        self.failed.borrow_mut().push(what);
    }

    pub(crate) fn client(&self, id: &str) -> Result<Rc<Watched>, Stop> {
        self.clients.borrow().get(id).cloned().ok_or_else(|| Stop::Fault(format!("no client {id}")))
    }

    pub(crate) fn target(&self, id: &str) -> Result<Target, Stop> {
        if let Some(target) = self.targets.borrow().get(id) {
            return Ok(target.clone());
        }
        self.client(id)?;
        Ok(Target { client: id.to_owned(), is_client: true, database: "admin".to_owned(), ..Target::default() })
    }

    pub(crate) fn add_target(&self, id: &str, target: Target) {
        self.targets.borrow_mut().insert(id.to_owned(), target);
    }

    async fn create(self: &Rc<Self>, of: &Document, name: &str) -> Result<(), Stop> {
        for entity in documents(of, name) {
            let (kind, options) = entity.iter().next().ok_or("an entity without a kind".to_owned())?;
            let options = options.as_document().ok_or("an entity is an object".to_owned())?;
            let id = text(options, "id")?.to_owned();
            match kind.as_str() {
                "client" => self.create_client(id, options).await?,
                "database" => {
                    let target = Target {
                        client: text(options, "client")?.to_owned(),
                        database: text(options, "databaseName")?.to_owned(),
                        options: options.get_document("databaseOptions").cloned().unwrap_or_default(),
                        ..Target::default()
                    };
                    self.client(&target.client)?;
                    self.targets.borrow_mut().insert(id, target);
                }
                "collection" => {
                    let mut target = self.target(text(options, "database")?)?;
                    target.collection = text(options, "collectionName")?.to_owned();
                    target.options.extend(options.get_document("collectionOptions").cloned().unwrap_or_default());
                    self.targets.borrow_mut().insert(id, target);
                }
                "session" => self.create_session(id, options)?,
                "thread" => drop(self.threads.borrow_mut().insert(id, Vec::new())),
                "bucket" => return Err(Stop::Unsupported("GridFS".to_owned())),
                "clientEncryption" => return Err(Stop::Unsupported("encryption".to_owned())),
                other => return Err(Stop::Unsupported(format!("entity {other}"))),
            }
        }
        Ok(())
    }

    async fn create_client(&self, id: String, entity: &Document) -> Result<(), Stop> {
        for name in entity.keys() {
            let known = [
                "id",
                "uriOptions",
                "useMultipleMongoses",
                "observeEvents",
                "ignoreCommandMonitoringEvents",
                "observeSensitiveCommands",
                "serverApi",
                "observeLogMessages",
                "observeTracingMessages",
                "awaitMinPoolSizeMS",
            ];
            if !known.contains(&name.as_str()) {
                return Err(Stop::Unsupported(format!("{name} of a client")));
            }
        }
        let given = entity.get_document("uriOptions").cloned().unwrap_or_default();
        let mut uri = if given.get_bool("directConnection").unwrap_or(false) {
            self.deployment.direct_uri()?
        } else {
            self.deployment.uri(entity.get_bool("useMultipleMongoses").unwrap_or(true))
        };
        if self.has_user {
            uri = uri.replacen("://", &format!("://{USER}"), 1);
        }
        for (name, value) in &given {
            if name == "loadBalanced" && self.deployment.topology() == Topology::LoadBalanced {
                continue;
            }
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            uri += &format!("&{name}={value}");
        }
        // After a failure that ends no connection, a client waits for the next reply to hello: for 10 s by default.
        let observed = entity.get_array("observeEvents").map(Vec::as_slice).unwrap_or_default();
        let sees_heartbeats = observed.iter().filter_map(Bson::as_str).any(|event| event.contains("Heartbeat"));
        if !sees_heartbeats && !given.contains_key("heartbeatFrequencyMS") {
            uri += "&heartbeatFrequencyMS=500";
        }
        let mut options = ClientOptions::parse(&uri).map_err(|error| Stop::Fault(format!("{uri}: {error}")))?;
        if let Some(warning) = options.warnings.first() {
            return Err(Stop::Unsupported(format!("an option of the connection string: {warning}")));
        }
        if let Ok(api) = entity.get_document("serverApi") {
            if text(api, "version")? != "1" {
                return Err(Stop::Fault(format!("unknown version of the API: {api}")));
            }
            let mut server_api = ServerApi::V1;
            server_api.strict = api.get_bool("strict").ok();
            server_api.deprecation_errors = api.get_bool("deprecationErrors").ok();
            options = options.server_api(server_api);
        }
        options.log = self.logs.options(&id, entity)?;
        options.tracing = self.spans.options(&id, entity)?;
        let (client, subscription) =
            Client::new_subscribed(options).map_err(|error| Stop::Fault(format!("{uri}: {error}")))?;
        let commands = client.subscribe_to(EventKinds::COMMANDS);
        let watched = Rc::new(Watched::new(client, vec![subscription, commands], entity));
        self.clients.borrow_mut().insert(id, Rc::clone(&watched));
        if let Some(limit) = entity.get("awaitMinPoolSizeMS").and_then(integer) {
            filled(&watched, limit).await?;
            watched.begin()?;
        }
        Ok(())
    }

    fn create_session(&self, id: String, entity: &Document) -> Result<(), Stop> {
        let client = text(entity, "client")?.to_owned();
        let mut options = ClientSessionOptions::new();
        let mut transaction = Document::new();
        for (name, value) in entity.get_document("sessionOptions").into_iter().flatten() {
            match name.as_str() {
                "causalConsistency" => options.causal_consistency = value.as_bool().unwrap_or(true),
                "snapshot" => options.snapshot = value.as_bool().unwrap_or(false),
                "defaultTransactionOptions" => transaction = value.as_document().cloned().unwrap_or_default(),
                "defaultTimeoutMS" => options.default_timeout = operations::millis(value),
                "snapshotTime" => {
                    let stored = value.as_str().and_then(|id| self.value(id));
                    let time = stored.and_then(|time| time.as_timestamp()).ok_or("no snapshot time".to_owned())?;
                    options.snapshot_time = Some(time);
                }
                other => return Err(Stop::Unsupported(format!("option {other} of a session"))),
            }
        }
        let session = self.client(&client)?.client.start_session(options);
        self.sessions.borrow_mut().insert(id, Session { client, session: Some(session), transaction });
        Ok(())
    }

    /// Runs an operation, and compares its result.
    pub(crate) async fn step(
        self: &Rc<Self>,
        operation: &Document,
        current: Option<InSession<'_>>,
    ) -> Result<(), Stop> {
        match self.compared(operation, current).await {
            Err(stop @ (Stop::Unsupported(_) | Stop::Fault(_))) => Err(stop),
            _ => Ok(()),
        }
    }

    /// Runs an operation, compares its result, and returns its error, whether it is expected or not.
    pub(crate) async fn compared(
        self: &Rc<Self>,
        operation: &Document,
        current: Option<InSession<'_>>,
    ) -> Result<(), Stop> {
        let name = text(operation, "name")?;
        let result = self.operate(operation, current).await;
        if let Err(stop @ (Stop::Unsupported(_) | Stop::Fault(_))) = result {
            return Err(stop);
        }
        if operation.get_bool("ignoreResultAndError").unwrap_or(false) {
            return result.map(drop);
        }
        let difference = match (&result, operation.get_document("expectError")) {
            (Err(stop), Ok(expected)) => {
                if let Stop::Refused(what) = stop {
                    self.unseen.borrow_mut().push(format!("a refusal by the runner: {what}"));
                }
                error::check(stop, expected, &**self)
            }
            (Ok(value), Ok(expected)) => Err(format!("it succeeded, expected {expected}: {value:?}")),
            (Err(stop), Err(_)) => Err(stop.to_string()),
            (Ok(value), Err(_)) => match operation.get("expectResult") {
                Some(pattern) => matching::check(pattern, value.as_ref(), &**self),
                None => Ok(()),
            },
        };
        if let Err(error) = difference {
            self.differs(format!("{name}: {error}"));
        }
        if let (Ok(id), Some(value)) = (operation.get_str("saveResultAsEntity"), result?) {
            self.values.borrow_mut().insert(id.to_owned(), value);
        }
        Ok(())
    }

    async fn operate(
        self: &Rc<Self>,
        operation: &Document,
        current: Option<InSession<'_>>,
    ) -> Result<Option<Bson>, Stop> {
        let (name, object) = (text(operation, "name")?, text(operation, "object")?);
        let empty = Document::new();
        let arguments = operation.get_document("arguments").unwrap_or(&empty);
        if object == "testRunner" {
            return self.direct(name, arguments).await.map(|()| None);
        }
        let is_session = self.sessions.borrow().contains_key(object);
        let wanted = if is_session { Some(object) } else { arguments.get_str("session").ok() };
        let Some(wanted) = wanted else { return self.call(operation, name, object, arguments, None).await };
        if is_session && name == "endSession" {
            self.sessions.borrow_mut().get_mut(object).map(|session| session.session.take());
            return Ok(None);
        }
        let (client, mut taken) = {
            let mut sessions = self.sessions.borrow_mut();
            let session = sessions.get_mut(wanted).ok_or_else(|| Stop::Fault(format!("no session {wanted}")))?;
            (session.client.clone(), session.session.take())
        };
        let watched = self.client(&client)?;
        let before = watched.count()?;
        let result = match (current, &mut taken) {
            (Some(current), _) if current.id == wanted => {
                self.call(operation, name, object, arguments, Some(current)).await
            }
            (_, Some(session)) => {
                let session = InSession { id: wanted, session };
                self.call(operation, name, object, arguments, Some(session)).await
            }
            (_, None) => Err(Stop::Refused(format!("session {wanted} has ended"))),
        };
        if let (Some(session), Some(taken)) = (self.sessions.borrow_mut().get_mut(wanted), taken) {
            session.session = Some(taken);
        }
        // A session does not show its id, so it is that of its first command.
        for (_, command) in watched.commands_since(before)? {
            if let Ok(lsid) = command.get_document("lsid") {
                self.lsids.borrow_mut().entry(wanted.to_owned()).or_insert_with(|| lsid.clone());
            }
        }
        result
    }

    /// An operation of the runner itself.
    async fn direct(self: &Rc<Self>, name: &str, arguments: &Document) -> Result<(), Stop> {
        let (client, session) = (arguments.get_str("client"), arguments.get_str("session"));
        match name {
            "createEntities" => Box::pin(self.create(arguments, "entities")).await,
            "failPoint" => {
                let point = arguments.get_document("failPoint").map_err(|error| error.to_string())?;
                self.deployment.note_fail_point(point);
                let client = self.client(client.unwrap_or_default())?;
                let set = client.client.run_command("admin", point.clone()).await;
                set.map(drop).map_err(|error| Stop::Fault(format!("{point}: {error}")))
            }
            "targetedFailPoint" => {
                let point = arguments.get_document("failPoint").map_err(|error| error.to_string())?;
                self.deployment.note_fail_point(point);
                Ok(self.deployment.run("admin", point.clone()).map(drop)?)
            }
            "wait" => {
                let time = arguments.get("ms").and_then(integer).and_then(|time| u64::try_from(time).ok());
                smol::Timer::after(Duration::from_millis(time.unwrap_or_default())).await;
                Ok(())
            }
            "waitForEvent" => {
                let watched = self.client(client.unwrap_or_default())?;
                let (pattern, count) = self.counted(arguments)?;
                let begun = Instant::now();
                while watched.matching(pattern, &**self)? < count {
                    if begun.elapsed() > PATIENCE {
                        return Err(Stop::Fault(format!("it did not occur {count} times: {pattern}")));
                    }
                    smol::Timer::after(Duration::from_millis(2)).await;
                }
                Ok(())
            }
            "assertEventCount" => {
                let (pattern, count) = self.counted(arguments)?;
                let found = self.client(client.unwrap_or_default())?.matching(pattern, &**self)?;
                if found != count {
                    self.differs(format!("{found} events, expected {count}: {pattern}"));
                }
                Ok(())
            }
            "assertNumberConnectionsCheckedOut" => {
                let expected = arguments.get("connections").and_then(integer).ok_or("connections".to_owned())?;
                let watched = self.client(client.unwrap_or_default())?;
                let in_use = || watched.client.servers().iter().map(|it| i64::from(it.pool.counts.in_use)).sum::<i64>();
                let begun = Instant::now();
                // A connection whose reply is discarded is returned later.
                while in_use() != expected && begun.elapsed() < Duration::from_secs(1) {
                    smol::Timer::after(Duration::from_millis(5)).await;
                }
                if in_use() != expected {
                    self.differs(format!("{} connections are checked out, expected {expected}", in_use()));
                }
                Ok(())
            }
            "assertSameLsidOnLastTwoCommands" | "assertDifferentLsidOnLastTwoCommands" => {
                let commands = self.client(client.unwrap_or_default())?.commands_since(0)?;
                let lsids: Vec<_> = commands.iter().rev().take(2).map(|(_, command)| command.get("lsid")).collect();
                let [Some(one), Some(other)] = lsids[..] else { return Err(Stop::Fault("no two lsids".to_owned())) };
                if (one == other) != (name == "assertSameLsidOnLastTwoCommands") {
                    self.differs(format!("{name}: {one}, {other}"));
                }
                Ok(())
            }
            "assertSessionTransactionState" => {
                let id = session.unwrap_or_default();
                let state = text(arguments, "state")?;
                let sessions = self.sessions.borrow();
                let session = sessions.get(id).and_then(|it| it.session.as_ref());
                let is_open = session.is_some_and(ClientSession::in_transaction);
                if is_open != ["starting", "in_progress"].contains(&state) {
                    self.differs(format!("a transaction is open: {is_open}, expected {state}"));
                }
                self.unseen.borrow_mut().push("the exact state of a transaction".to_owned());
                Ok(())
            }
            unseen if UNSEEN.contains(&unseen) => {
                let (_, what) = unseen.split_at("assertSession".len());
                self.unseen.borrow_mut().push(format!("whether a session is {}", what.to_ascii_lowercase()));
                Ok(())
            }
            "assertCollectionExists" | "assertCollectionNotExists" => {
                let collection = text(arguments, "collectionName")?;
                let list = doc! { "listCollections": 1, "filter": { "name": collection } };
                let found = self.has_any(text(arguments, "databaseName")?, list, |_| true)?;
                self.exists(collection, found, name == "assertCollectionExists");
                Ok(())
            }
            "assertIndexExists" | "assertIndexNotExists" => {
                let index = text(arguments, "indexName")?;
                let list = doc! { "listIndexes": text(arguments, "collectionName")? };
                let is_it = |found: &Document| found.get_str("name").is_ok_and(|name| name == index);
                let found = self.has_any(text(arguments, "databaseName")?, list, is_it)?;
                self.exists(index, found, name == "assertIndexExists");
                Ok(())
            }
            "runOnThread" => {
                let operation = arguments.get_document("operation").map_err(|error| error.to_string())?.clone();
                let run = Rc::clone(self);
                let task = self.executor.spawn(async move {
                    if let Err(stop) = Box::pin(run.step(&operation, None)).await {
                        run.differs(stop.to_string());
                    }
                });
                let thread = text(arguments, "thread")?;
                self.threads.borrow_mut().entry(thread.to_owned()).or_default().push(task);
                Ok(())
            }
            "waitForThread" => {
                let tasks = self.threads.borrow_mut().insert(text(arguments, "thread")?.to_owned(), Vec::new());
                for task in tasks.into_iter().flatten() {
                    task.await;
                }
                Ok(())
            }
            "recordTopologyDescription" => {
                let topology = self.client(client.unwrap_or_default())?.client.topology();
                self.topologies.borrow_mut().insert(text(arguments, "id")?.to_owned(), topology);
                Ok(())
            }
            "assertTopologyType" => {
                let expected = text(arguments, "topologyType")?;
                let topologies = self.topologies.borrow();
                let topology =
                    topologies.get(text(arguments, "topologyDescription")?).ok_or("no topology".to_owned())?;
                let found = topology.get().topology_type().name();
                if found != expected {
                    self.differs(format!("the topology is {found}, expected {expected}"));
                }
                Ok(())
            }
            "waitForPrimaryChange" => {
                let prior = self.topologies.borrow().get(text(arguments, "priorTopologyDescription")?).cloned();
                let prior = prior.ok_or("no topology".to_owned())?;
                let watched = self.client(client.unwrap_or_default())?;
                let primary = |topology: &OwnedTopologyDescription| {
                    let topology = topology.get();
                    let mut servers = topology.servers();
                    servers.find(|it| it.server_type() == ServerType::RsPrimary).map(|it| it.address().to_owned())
                };
                let (old, begun) = (primary(&prior), Instant::now());
                while primary(&watched.client.topology()).is_none_or(|now| Some(now) == old) {
                    if begun.elapsed() > PATIENCE {
                        return Err(Stop::Fault("no other primary".to_owned()));
                    }
                    smol::Timer::after(Duration::from_millis(10)).await;
                }
                Ok(())
            }
            other => Err(Stop::Unsupported(format!("operation {other} of the runner"))),
        }
    }

    fn counted<'d>(&self, arguments: &'d Document) -> Result<(&'d Document, usize), Stop> {
        let pattern = arguments.get_document("event").map_err(|error| error.to_string())?;
        let count = arguments.get("count").and_then(integer).and_then(|count| usize::try_from(count).ok());
        Ok((pattern, count.ok_or("no count".to_owned())?))
    }

    fn exists(&self, name: &str, found: bool, expected: bool) {
        if found != expected {
            self.differs(format!("{name} exists: {found}"));
        }
    }

    /// Whether the reply to a list command has such an entry. A collection that does not exist has none.
    fn has_any(&self, database: &str, list: Document, is_it: impl Fn(&Document) -> bool) -> Result<bool, Stop> {
        let reply = match self.deployment.run(database, list) {
            Err(error) if error.contains("ns does not exist") => return Ok(false),
            reply => reply?,
        };
        let cursor = reply.get_document("cursor").map_err(|error| error.to_string())?;
        Ok(documents(cursor, "firstBatch").any(is_it))
    }
}

fn is_unacknowledged(command: &Document) -> bool {
    command.get_document("writeConcern").is_ok_and(|concern| concern.get("w").and_then(integer) == Some(0))
}

/// Whether a command belongs to a handshake or a heartbeat, which have no events of commands.
fn is_handshake(name: &str) -> bool {
    ["hello", "isMaster", "ismaster", "saslStart", "saslContinue"].contains(&name)
}

/// The collections of a file that have no initial data: another test may have left documents there.
fn collections(file: &Document) -> Vec<(&str, &str)> {
    let entities =
        |kind: &'static str| documents(file, "createEntities").filter_map(move |entity| entity.get_document(kind).ok());
    let database = |id: &str| {
        let database = entities("database").find(|it| it.get_str("id").is_ok_and(|known| known == id));
        database.and_then(|it| it.get_str("databaseName").ok())
    };
    entities("collection")
        .filter_map(|it| Some((database(it.get_str("database").ok()?)?, it.get_str("collectionName").ok()?)))
        .filter(|(database, collection)| {
            let is = |of: &Document, name: &str, value: &str| of.get_str(name).is_ok_and(|known| known == value);
            !documents(file, "initialData")
                .any(|it| is(it, "databaseName", database) && is(it, "collectionName", collection))
        })
        .collect()
}

/// Waits until the pools of all members have their minimum.
async fn filled(watched: &Watched, limit: i64) -> Result<(), Stop> {
    let limit = Duration::from_millis(u64::try_from(limit).unwrap_or_default());
    let (begun, min) = (Instant::now(), watched.client.pool_options().min_pool_size);
    loop {
        let servers = watched.client.servers();
        let is_known = |server: ServerType| server.is_data_bearing();
        let is_full = |available: u32| available >= min;
        let is_done = servers.iter().any(|it| is_known(it.server_type))
            && servers.iter().all(|it| is_known(it.server_type) && is_full(it.pool.counts.available));
        if is_done {
            return Ok(());
        }
        if begun.elapsed() > limit.max(PATIENCE) {
            return Err(Stop::Fault("the pools do not have their minimum in time".to_owned()));
        }
        smol::Timer::after(Duration::from_millis(2)).await;
    }
}
