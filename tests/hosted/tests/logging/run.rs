//! Runs tests of the unified format that concern log messages of pools, topologies and server
//! selection.

use super::capture::{self, Message};
use super::deployment::{Deployment, PATIENCE};
use super::matching;
use bson::{Bson, Document};
use core::time::Duration;
use poolhouse_client::log::LogOptions;
use poolhouse_core::monitor::MonitorEvent;
use poolhouse_smol::{Client, ClientOptions, Event, Notice, Subscription};
use serde_json::Value;
use smol::future::FutureExt;
use std::collections::HashMap;
use std::time::Instant;
use tracing::level_filters::LevelFilter;

/// The result of a test.
pub(crate) enum Outcome {
    Passed,
    /// The test requires missing features.
    Skipped(String),
}

/// A test cannot continue: it failed, or requires missing features.
enum Stop {
    Failed(String),
    Unsupported(String),
}

impl From<String> for Stop {
    fn from(error: String) -> Self {
        Self::Failed(error)
    }
}

fn unsupported<T>(what: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Unsupported(what.into()))
}

/// A client of the test, with its events so far.
struct Entity {
    client: Client,
    subscription: Subscription,
    seen: Vec<Event>,
    closed: bool,
}

struct Runner<'t> {
    test: &'t Value,
    deployment: Deployment,
    clients: HashMap<String, Entity>,
    /// Databases and collections: the client's id, the database, and the collection.
    names: HashMap<String, (String, String, Option<String>)>,
    observed: Vec<String>,
}

/// Runs one test of a file.
pub(crate) fn test(file: &Value, test: &Value) -> Result<Outcome, String> {
    if let Some(reason) = test["skipReason"].as_str() {
        return Ok(Outcome::Skipped(reason.to_owned()));
    }
    if test["expectLogMessages"].as_array().is_none_or(Vec::is_empty) {
        return Ok(Outcome::Skipped("the test expects no log messages".into()));
    }
    let deployment = match Deployment::start(file, test)? {
        Ok(deployment) => deployment,
        Err(reason) => return Ok(Outcome::Skipped(reason)),
    };
    capture::clear();
    let mut runner = Runner { test, deployment, clients: HashMap::new(), names: HashMap::new(), observed: Vec::new() };
    let done = smol::block_on(async {
        let done = runner.run(file).await;
        for entity in runner.clients.values() {
            entity.client.close().await;
        }
        done
    });
    match done {
        Ok(()) => Ok(Outcome::Passed),
        Err(Stop::Failed(error)) => Err(error),
        Err(Stop::Unsupported(what)) => Ok(Outcome::Skipped(what)),
    }
}

impl Runner<'_> {
    async fn run(&mut self, file: &Value) -> Result<(), Stop> {
        self.create(&file["createEntities"])?;
        for operation in self.test["operations"].as_array().into_iter().flatten() {
            let done = self.operate(operation).await;
            let may_fail = operation.get("expectError").is_some() || operation["ignoreResultAndError"] == true;
            match done {
                Err(Stop::Failed(_)) if may_fail => {}
                Ok(()) if operation.get("expectError").is_some() => {
                    return Err(Stop::Failed(format!("no error from {operation}")));
                }
                done => done?,
            }
        }
        for expected in self.test["expectLogMessages"].as_array().into_iter().flatten() {
            self.check_messages(expected).await?;
        }
        Ok(())
    }

    fn create(&mut self, entities: &Value) -> Result<(), Stop> {
        for entity in entities.as_array().into_iter().flatten() {
            let Some((kind, options)) = entity.as_object().and_then(|entity| entity.iter().next()) else { continue };
            let id = text(options, "id")?;
            match kind.as_str() {
                "client" => self.create_client(id, options)?,
                "database" => {
                    let names = (text(options, "client")?, text(options, "databaseName")?, None);
                    self.names.insert(id, names);
                }
                "collection" => {
                    let database = text(options, "database")?;
                    let (client, database, _) =
                        self.names.get(&database).cloned().ok_or("no such database".to_owned())?;
                    self.names.insert(id, (client, database, Some(text(options, "collectionName")?)));
                }
                other => return unsupported(format!("entity {other}")),
            }
        }
        Ok(())
    }

    fn create_client(&mut self, id: String, entity: &Value) -> Result<(), Stop> {
        let mut pairs = Vec::new();
        for (name, value) in entity["uriOptions"].as_object().into_iter().flatten() {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            pairs.push(format!("{name}={value}"));
        }
        let uri = self.deployment.uri(entity["useMultipleMongoses"] == true);
        let glue = if uri.contains('?') { "&" } else { "?" };
        let mut options =
            ClientOptions::parse(&format!("{uri}{glue}{}", pairs.join("&"))).map_err(|error| error.to_string())?;
        if let Some(warning) = options.warnings.first() {
            return unsupported(format!("a rejected option: {warning}"));
        }
        let mut log = LogOptions::OFF;
        // Tests of documents require the whole texts.
        log.document_length_max = 10_000;
        log.heartbeat_replies = true;
        if let Some(levels) = entity["observeLogMessages"].as_object() {
            let level = |component: &str| match levels.get(component).and_then(Value::as_str) {
                Some("debug") => LevelFilter::DEBUG,
                Some("trace") => LevelFilter::TRACE,
                Some("info") => LevelFilter::INFO,
                Some("warn") => LevelFilter::WARN,
                _ => LevelFilter::OFF,
            };
            (log.connection, log.topology) = (level("connection"), level("topology"));
            log.server_selection = level("serverSelection");
            self.observed.push(id.clone());
            if self.observed.len() > 1 {
                return unsupported("messages of two clients");
            }
        }
        options.log = log;
        let (client, subscription) = Client::new_subscribed(options).map_err(|error| error.to_string())?;
        let entity = Entity { client, subscription, seen: Vec::new(), closed: false };
        self.clients.insert(id, entity);
        Ok(())
    }

    fn client(&mut self, id: &str) -> Result<&mut Entity, Stop> {
        self.clients.get_mut(id).ok_or_else(|| Stop::Failed(format!("no client {id}")))
    }

    async fn operate(&mut self, operation: &Value) -> Result<(), Stop> {
        let (name, object, arguments) = (text(operation, "name")?, text(operation, "object")?, &operation["arguments"]);
        if object == "testRunner" {
            return self.direct(&name, arguments).await;
        }
        let (client, database, collection) = match self.names.get(&object) {
            Some((client, database, collection)) => (client.clone(), database.clone(), collection.clone()),
            None => (object, "admin".to_owned(), None),
        };
        let mut command = Document::new();
        match (name.as_str(), collection) {
            ("close", _) => return self.close(&client).await,
            ("listDatabases", _) => drop(command.insert("listDatabases", 1)),
            ("runCommand", _) => command = named(&text(arguments, "commandName")?, &arguments["command"]),
            ("insertOne", Some(collection)) => {
                command.insert("insert", collection);
                command.insert("documents", [document(&arguments["document"])].as_slice());
            }
            ("find", Some(collection)) => {
                command.insert("find", collection);
                command.insert("filter", document(&arguments["filter"]));
            }
            (other, _) => return unsupported(format!("operation {other}")),
        }
        let entity = self.client(&client)?;
        entity.client.run_command(&database, command).await.map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Closes a client, which first checks a connection out to end its sessions.
    async fn close(&mut self, id: &str) -> Result<(), Stop> {
        let entity = self.client(id)?;
        entity.client.close().await;
        entity.closed = true;
        Ok(())
    }

    /// Operations of the runner itself.
    async fn direct(&mut self, name: &str, arguments: &Value) -> Result<(), Stop> {
        match name {
            "createEntities" => self.create(&arguments["entities"]),
            "failPoint" => Ok(self.deployment.run(named("configureFailPoint", &arguments["failPoint"]))?),
            "wait" => {
                let millis = arguments["ms"].as_u64().unwrap_or_default();
                smol::Timer::after(Duration::from_millis(millis)).await;
                Ok(())
            }
            "waitForEvent" => {
                let count = usize::try_from(arguments["count"].as_u64().unwrap_or(1)).unwrap_or(usize::MAX);
                let id = text(arguments, "client")?;
                self.client(&id)?.wait_for(&arguments["event"], count).await
            }
            other => unsupported(format!("operation {other} of the runner")),
        }
    }

    async fn check_messages(&self, expected: &Value) -> Result<(), Stop> {
        let wanted = list(&expected["messages"]);
        let ignored = list(&expected["ignoreMessages"]);
        let is_known = |message: &&Value| {
            ["connection", "topology", "serverSelection"].iter().any(|component| message["component"] == *component)
        };
        if let Some(other) = wanted.iter().find(|message| !is_known(message)) {
            return unsupported(format!("messages of the component {}", other["component"]));
        }
        let since = Instant::now();
        let found = loop {
            let mut found = capture::taken();
            found.retain(|found| !ignored.iter().any(|pattern| matching::message(pattern, found).is_ok()));
            if found.len() >= wanted.len() || since.elapsed() > PATIENCE {
                break found;
            }
            smol::Timer::after(Duration::from_millis(10)).await;
        };
        for (place, wanted) in wanted.iter().enumerate() {
            let Some(message) = found.get(place) else {
                return Err(Stop::Failed(format!("message {place} is missing: {wanted}, of {}", shown(&found))));
            };
            matching::message(wanted, message)
                .map_err(|error| format!("message {place}: {error}: {wanted}, of {}", shown(&found)))?;
        }
        if found.len() > wanted.len() && expected["ignoreExtraMessages"] != true {
            return Err(Stop::Failed(format!("more than {} messages: {}", wanted.len(), shown(&found))));
        }
        Ok(())
    }
}

impl Entity {
    async fn wait_for(&mut self, event: &Value, count: usize) -> Result<(), Stop> {
        let Some((name, fields)) = event.as_object().and_then(|event| event.iter().next()) else {
            return Err(Stop::Failed("no event to wait for".into()));
        };
        let awaited = fields.get("awaited").and_then(Value::as_bool);
        if fields.as_object().is_some_and(|fields| fields.keys().any(|field| field != "awaited")) {
            return unsupported(format!("an event by {fields}"));
        }
        let since = Instant::now();
        loop {
            let found = self.seen.iter().filter(|event| {
                let heartbeat = if let Event::Heartbeat(event) = event { Some(event.awaited()) } else { None };
                is_named(event, name) && awaited.is_none_or(|awaited| heartbeat == Some(awaited))
            });
            if found.count() >= count {
                return Ok(());
            }
            let left = PATIENCE.saturating_sub(since.elapsed());
            let next = async { self.subscription.next().await };
            let late = async {
                smol::Timer::after(left).await;
                None
            };
            match next.or(late).await {
                Some(Notice::Event { event, .. }) => self.seen.push(event),
                Some(Notice::Lagged { .. }) | None => {
                    return Err(Stop::Failed(format!("{name} did not occur {count} times: {:?}", self.seen)));
                }
            }
        }
    }
}

/// Whether an event has this name in the unified format.
fn is_named(event: &Event, name: &str) -> bool {
    let own = if let Event::Pool(event) = event {
        event.name()
    } else if let Event::Sdam(event) = event {
        event.name()
    } else if let Event::Heartbeat(event) = event {
        if matches!(event, MonitorEvent::HeartbeatStarted { .. }) {
            "ServerHeartbeatStarted"
        } else if matches!(event, MonitorEvent::HeartbeatSucceeded { .. }) {
            "ServerHeartbeatSucceeded"
        } else {
            "ServerHeartbeatFailed"
        }
    } else {
        return false;
    };
    name.strip_suffix("Event").is_some_and(|name| name.eq_ignore_ascii_case(own))
}

fn shown(messages: &[Message]) -> String {
    let lines: Vec<String> =
        messages.iter().map(|message| format!("{} {} {}", message.level, message.component, message.data)).collect();
    lines.join("\n")
}

fn text(of: &Value, key: &str) -> Result<String, Stop> {
    of[key].as_str().map(str::to_owned).ok_or_else(|| Stop::Failed(format!("no {key} in {of}")))
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// A command: its name is its first key; the parser of the file does not keep that order.
fn named(name: &str, command: &Value) -> Document {
    let mut first = Document::new();
    first.insert(name, converted(&command[name]));
    first.extend(document(command));
    first
}

fn document(value: &Value) -> Document {
    let members = value.as_object().into_iter().flatten();
    members.map(|(name, value)| (name.clone(), converted(value))).collect()
}

fn converted(value: &Value) -> Bson {
    match value {
        Value::Null => Bson::Null,
        Value::Bool(value) => Bson::Boolean(*value),
        Value::String(text) => Bson::String(text.clone()),
        Value::Array(items) => Bson::Array(items.iter().map(converted).collect()),
        Value::Object(_) => Bson::Document(document(value)),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => i32::try_from(whole).map_or(Bson::Int64(whole), Bson::Int32),
            None => Bson::Double(number.as_f64().unwrap_or_default()),
        },
    }
}
