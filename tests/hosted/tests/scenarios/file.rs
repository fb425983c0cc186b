//! The format of the file: `{ "scenarios": [..] }`. A field that is not listed here is an error.
//!
//! A scenario has
//!
//! - `name`; `topology`: `set` (three members, the default) or `standalone`;
//! - `data`: the documents of the collection `db.c` at the start;
//! - `clients`: options of the connection string of each client; by default one, `client`;
//! - `steps`: see [`Step`]; `events`: the commands that each client starts, see [`Expected`];
//! - `outcome`: the documents of `db.c` at the end, in any order.
//!
//! A step is named by its first field, whose value is its subject. Its further fields are `client`
//! and the result: `expect`, a pattern of the reply, or `error` (see [`Fault`]). Without `error`, the
//! step must succeed. Commands are run on the database `db`.

use crate::matching::Fault;
use bson::{Bson, Document};
use core::time::Duration;
use poolhouse_smol::{ClientSessionOptions, CursorOptions, TransactionOptions};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    Set,
    Standalone,
}

#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) topology: Topology,
    pub(crate) data: Vec<Bson>,
    pub(crate) clients: Vec<(String, Document)>,
    pub(crate) steps: Vec<Step>,
    pub(crate) events: Vec<(String, Vec<Expected>)>,
    pub(crate) outcome: Option<Vec<Bson>>,
}

#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) action: Action,
    pub(crate) client: String,
    pub(crate) expect: Option<Bson>,
    pub(crate) error: Option<Fault>,
}

#[derive(Debug)]
pub(crate) enum Action {
    /// `failPoint` of the primary: the data of `failCommand`; `times` (1).
    FailPoint {
        data: Document,
        times: i64,
    },
    /// `run`: a command, in `session` or none.
    Run {
        command: Document,
        session: Option<String>,
    },
    /// `read`: a command that replies with a cursor, which is read until its end, in `session` or none;
    /// `batch_size` of further batches, and the `count` of documents.
    Read {
        command: Document,
        session: Option<String>,
        further: CursorOptions,
        count: i64,
    },
    /// `start_session`, with `snapshot` and `default_timeout`; `drop_session`.
    StartSession(String, ClientSessionOptions),
    DropSession(String),
    /// `start_transaction` in a session, with `timeout`.
    StartTransaction(String, TransactionOptions),
    Commit(String),
    Abort(String),
    /// `with_transaction` in a session, with `timeout` and `commands`; `works`: how often the commands
    /// are begun.
    WithTransaction {
        session: String,
        transaction: TransactionOptions,
        commands: Vec<Document>,
        works: i64,
    },
    /// `close` of a client.
    Close,
}

/// A command that is `started`. The other fields are patterns: of the command (`with`), and of the
/// `server`, `connection` and `operation`. The name `primary` is that of the primary's address.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) name: String,
    pub(crate) with: Option<Bson>,
    pub(crate) server: Option<Bson>,
    pub(crate) connection: Option<Bson>,
    pub(crate) operation: Option<Bson>,
}

/// The fields of a document that were not read yet.
pub(crate) struct Fields {
    of: String,
    left: Document,
}

impl Fields {
    pub(crate) fn new(value: &Bson, of: &str) -> Result<Self, String> {
        let left = value.as_document().cloned().ok_or_else(|| format!("{of} is no object: {value}"))?;
        Ok(Self { of: of.to_owned(), left })
    }

    fn take(&mut self, name: &str) -> Option<Bson> {
        self.left.remove(name)
    }

    fn need<T>(&self, value: Option<T>, name: &str) -> Result<T, String> {
        value.ok_or_else(|| format!("{}: {name} is missing or of another type", self.of))
    }

    fn maybe<T>(&mut self, name: &str, read: impl FnOnce(&Bson) -> Option<T>) -> Result<Option<T>, String> {
        let Some(value) = self.take(name) else { return Ok(None) };
        self.need(read(&value), name).map(Some)
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, String> {
        self.maybe(name, |value| value.as_str().map(str::to_owned))
    }

    pub(crate) fn number(&mut self, name: &str) -> Result<Option<i64>, String> {
        self.maybe(name, |value| value.as_i64().or(value.as_i32().map(i64::from)))
    }

    pub(crate) fn list(&mut self, name: &str) -> Result<Option<Vec<Bson>>, String> {
        self.maybe(name, |value| value.as_array().cloned())
    }

    fn document(&mut self, name: &str) -> Result<Option<Document>, String> {
        self.maybe(name, |value| value.as_document().cloned())
    }

    fn millis(&mut self, name: &str) -> Result<Option<Duration>, String> {
        let millis = self.number(name)?;
        Ok(millis.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis))
    }

    /// Every field was read.
    pub(crate) fn end(self) -> Result<(), String> {
        match self.left.keys().next() {
            Some(name) => Err(format!("{}: unknown field {name}", self.of)),
            None => Ok(()),
        }
    }
}

/// Reads the file.
pub(crate) fn scenarios(file: Document) -> Result<Vec<Scenario>, String> {
    let mut fields = Fields::new(&file.into(), "file")?;
    let scenarios = fields.list("scenarios")?.ok_or("no scenarios")?;
    fields.end()?;
    scenarios.into_iter().map(scenario).collect()
}

fn scenario(value: Bson) -> Result<Scenario, String> {
    let mut fields = Fields::new(&value, "scenario")?;
    let name = fields.text("name")?.ok_or("a scenario has no name")?;
    fields.of.clone_from(&name);
    let topology = match fields.text("topology")?.as_deref() {
        None | Some("set") => Topology::Set,
        Some("standalone") => Topology::Standalone,
        Some(other) => return Err(format!("{name}: unknown topology {other}")),
    };
    let mut clients = Vec::new();
    for (client, options) in fields.document("clients")?.unwrap_or_else(|| bson::doc! { "client": {} }) {
        let options = options.as_document().cloned().ok_or_else(|| format!("{name}: options of {client}"))?;
        clients.push((client, options));
    }
    let data = fields.list("data")?.unwrap_or_default();
    let steps = fields.list("steps")?.unwrap_or_default();
    let steps = steps.into_iter().map(|value| step(value, &name)).collect::<Result<Vec<_>, _>>()?;
    let mut events = Vec::new();
    for (client, list) in fields.document("events")?.unwrap_or_default() {
        let list = list.as_array().cloned().ok_or_else(|| format!("{name}: events of {client}"))?;
        events.push((client, list.into_iter().map(|value| event(value, &name)).collect::<Result<_, _>>()?));
    }
    let outcome = fields.list("outcome")?;
    fields.end()?;
    let has_result = |step: &Step| step.expect.is_some() || step.error.is_some();
    if steps.is_empty() || (events.is_empty() && outcome.is_none() && !steps.iter().any(has_result)) {
        return Err(format!("{name}: nothing is checked"));
    }
    Ok(Scenario { name, topology, data, clients, steps, events, outcome })
}

fn step(value: Bson, of: &str) -> Result<Step, String> {
    let action = value.as_document().and_then(|step| step.keys().next().cloned());
    let action = action.ok_or_else(|| format!("{of}: a step has no fields"))?;
    let mut fields = Fields::new(&value, &format!("{of}: {action}"))?;
    let client = fields.text("client")?.unwrap_or_else(|| "client".to_owned());
    let action = self::action(&action, &mut fields)?;
    let expect = fields.take("expect");
    let error = fields.take("error").map(|fault| Fault::new(&fault, of)).transpose()?;
    fields.end()?;
    Ok(Step { action, client, expect, error })
}

fn action(name: &str, fields: &mut Fields) -> Result<Action, String> {
    let text = |fields: &mut Fields| {
        let subject = fields.text(name)?;
        fields.need(subject, name)
    };
    let document = |fields: &mut Fields| {
        let subject = fields.document(name)?;
        fields.need(subject, name)
    };
    Ok(match name {
        "failPoint" => Action::FailPoint { data: document(fields)?, times: fields.number("times")?.unwrap_or(1) },
        "run" => Action::Run { command: document(fields)?, session: fields.text("session")? },
        "read" => {
            let (session, count) = (fields.text("session")?, fields.number("count")?);
            let mut further = CursorOptions::new();
            further.batch_size = fields.number("batch_size")?.and_then(|size| u32::try_from(size).ok());
            Action::Read { command: document(fields)?, session, further, count: fields.need(count, "count")? }
        }
        "start_session" => {
            let mut options = ClientSessionOptions::new();
            options.snapshot = fields.maybe("snapshot", Bson::as_bool)?.unwrap_or(options.snapshot);
            options.default_timeout = fields.millis("default_timeout")?;
            Action::StartSession(text(fields)?, options)
        }
        "drop_session" => Action::DropSession(text(fields)?),
        "start_transaction" => Action::StartTransaction(text(fields)?, transaction(fields)?),
        "commit" => Action::Commit(text(fields)?),
        "abort" => Action::Abort(text(fields)?),
        "with_transaction" => {
            let (session, transaction) = (text(fields)?, transaction(fields)?);
            let commands = fields.list("commands")?;
            let commands = fields.need(commands, "commands")?.into_iter();
            let command = |command: Bson| command.as_document().cloned().ok_or("commands has no command");
            let commands = commands.map(command).collect::<Result<Vec<_>, _>>()?;
            Action::WithTransaction { session, transaction, commands, works: fields.number("works")?.unwrap_or(1) }
        }
        "close" => {
            fields.take(name);
            Action::Close
        }
        other => return Err(format!("{}: unknown step {other}", fields.of)),
    })
}

fn transaction(fields: &mut Fields) -> Result<TransactionOptions, String> {
    let mut options = TransactionOptions::new();
    options.timeout = fields.millis("timeout")?;
    Ok(options)
}

fn event(value: Bson, of: &str) -> Result<Expected, String> {
    let mut fields = Fields::new(&value, &format!("{of}: event"))?;
    let name = fields.text("started")?.ok_or_else(|| format!("{of}: an event has no name"))?;
    let (with, server) = (fields.take("with"), fields.take("server"));
    let (connection, operation) = (fields.take("connection"), fields.take("operation"));
    fields.end()?;
    Ok(Expected { name, with, server, connection, operation })
}
