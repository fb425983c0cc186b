//! The format of a file: `{ "scenarios": [..] }`. A field that is not listed here is an error.
//!
//! A scenario has
//!
//! - `name`; `only`: `{ "servers": "fake" | "mongod", "because": ".." }`;
//! - `topology`: `set` (three members, the default), `standalone`, `sharded` (two routers);
//! - `data`: the documents of the collection `db.c` at the start;
//! - `clients`: options of the connection string of each client; by default one, `client`;
//! - `steps`: see [`Step`]; `events`: of each client, see [`Expected`]; `observe`: `started` (the
//!   default) or `all` events;
//! - `outcome`: the documents of `db.c` at the end, in any order.
//!
//! A step is named by its first field, whose value is its subject. Its further fields are `client`,
//! `database` (`db`), `options` of the command, and the result: `expect`, a pattern of the reply, or
//! `error` (see [`Fault`]). Without `error`, the step must succeed.

use crate::matching::Fault;
use bson::{Bson, Document};
use core::time::Duration;
use poolhouse_smol::{
    ClientSessionOptions, CommandOptions, CursorOptions, ReadMode, ReadPreference, TransactionOptions, W, WriteConcern,
};

/// The kind of servers on which a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Servers {
    Fake,
    Mongod,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    Set,
    Standalone,
    Sharded,
}

#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    only: Option<(Servers, String)>,
    pub(crate) topology: Topology,
    pub(crate) data: Vec<Bson>,
    pub(crate) clients: Vec<(String, Document)>,
    pub(crate) steps: Vec<Step>,
    pub(crate) observes_all: bool,
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

/// A command, and how it is run.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) database: String,
    pub(crate) command: Document,
    pub(crate) options: CommandOptions<'static>,
}

/// The members that a fail point is set on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Members {
    Primary,
    Secondaries,
}

#[derive(Debug)]
pub(crate) enum Action {
    /// `failPoint`: the data of `failCommand`; `times` (1, or `always`); `on`.
    FailPoint {
        data: Document,
        mode: Bson,
        on: Members,
    },
    /// `reply`: the next `command` is executed, and answered with this document. Fake servers only.
    Reply {
        command: String,
        reply: Document,
    },
    /// `run`: a command, in `session` or none; `tasks` run it at the same time.
    Run {
        call: Call,
        session: Option<String>,
        tasks: i64,
    },
    /// `replace_primary`: runs a command that the primary delays, and replaces the primary meanwhile.
    ReplacePrimary {
        call: Call,
    },
    /// `read`: a command that replies with a cursor, which is read until its end; `session`,
    /// `cursor_options`, and the `count` of documents.
    Read {
        call: Call,
        session: Option<String>,
        further: CursorOptions,
        count: Option<i64>,
    },
    /// `open`: such a command, whose cursor is kept as `cursor`.
    Open {
        call: Call,
        cursor: String,
        further: CursorOptions,
    },
    /// `next`: the next document of a cursor: `expect`, which is null at the end.
    Next(String),
    /// `close_cursor`, `drop_cursor`.
    CloseCursor(String),
    DropCursor(String),
    /// `start_session`, with `causal`, `snapshot` and `default_timeout`; `drop_session`.
    StartSession(String, ClientSessionOptions),
    DropSession(String),
    /// `start_transaction` in a session, with `transaction`: its options.
    StartTransaction(String, TransactionOptions),
    Commit(String),
    Abort(String),
    /// `with_transaction` in a session, with `transaction` and `commands`; `works`: how often the
    /// commands are begun.
    WithTransaction {
        session: String,
        transaction: TransactionOptions,
        calls: Vec<Call>,
        works: i64,
    },
    /// `close` of a client.
    Close,
}

/// An event of a command, by its name: `started`, `succeeded` or `failed`. The other fields are
/// patterns: of the command or the reply (`with`), and of the `server`, `connection` and `operation`.
/// `redacted`: whether the document is left out. The name `primary` is that of the primary's address.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) stage: &'static str,
    pub(crate) name: String,
    pub(crate) with: Option<Bson>,
    pub(crate) server: Option<Bson>,
    pub(crate) connection: Option<Bson>,
    pub(crate) operation: Option<Bson>,
    pub(crate) is_redacted: bool,
}

impl Scenario {
    pub(crate) fn skipped_on(&self, servers: Servers) -> Option<&str> {
        self.only.as_ref().filter(|(only, _)| *only != servers).map(|(_, because)| because.as_str())
    }
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

    pub(crate) fn take(&mut self, name: &str) -> Option<Bson> {
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

    pub(crate) fn flag(&mut self, name: &str) -> Result<Option<bool>, String> {
        self.maybe(name, Bson::as_bool)
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

    /// A time in milliseconds, whole or with a fraction.
    fn millis(&mut self, name: &str) -> Result<Option<Duration>, String> {
        let millis = |value: &Bson| value.as_f64().or(value.as_i32().map(f64::from));
        self.maybe(name, |value| Duration::try_from_secs_f64(millis(value)? / 1e3).ok())
    }

    fn fields(&mut self, name: &str) -> Result<Option<Self>, String> {
        self.take(name).map(|value| Self::new(&value, &format!("{}: {name}", self.of))).transpose()
    }

    /// Every field was read.
    pub(crate) fn end(self) -> Result<(), String> {
        match self.left.keys().next() {
            Some(name) => Err(format!("{}: unknown field {name}", self.of)),
            None => Ok(()),
        }
    }
}

/// Reads a file.
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
    let only = match fields.fields("only")? {
        None => None,
        Some(mut only) => {
            let servers = match only.text("servers")?.as_deref() {
                Some("fake") => Servers::Fake,
                Some("mongod") => Servers::Mongod,
                other => return Err(format!("{name}: unknown servers {other:?}")),
            };
            let because = only.text("because")?.ok_or_else(|| format!("{name}: only has no reason"))?;
            only.end()?;
            Some((servers, because))
        }
    };
    let topology = match fields.text("topology")?.as_deref() {
        None | Some("set") => Topology::Set,
        Some("standalone") => Topology::Standalone,
        Some("sharded") => Topology::Sharded,
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
    let observes_all = match fields.text("observe")?.as_deref() {
        None | Some("started") => false,
        Some("all") => true,
        Some(other) => return Err(format!("{name}: unknown events {other}")),
    };
    let mut events = Vec::new();
    for (client, list) in fields.document("events")?.unwrap_or_default() {
        let list = list.as_array().cloned().ok_or_else(|| format!("{name}: events of {client}"))?;
        events.push((client, list.into_iter().map(|value| event(value, &name)).collect::<Result<_, _>>()?));
    }
    let outcome = fields.list("outcome")?;
    fields.end()?;
    let is_scripted = steps.iter().any(|step| matches!(step.action, Action::Reply { .. }));
    if (is_scripted || topology == Topology::Sharded) && only.as_ref().is_none_or(|only| only.0 != Servers::Fake) {
        return Err(format!("{name}: replies and routers are those of fake servers"));
    }
    if steps.is_empty() || (events.is_empty() && outcome.is_none() && steps.iter().all(|step| !step.has_result())) {
        return Err(format!("{name}: nothing is checked"));
    }
    Ok(Scenario { name, only, topology, data, clients, steps, observes_all, events, outcome })
}

impl Step {
    fn has_result(&self) -> bool {
        self.expect.is_some() || self.error.is_some()
    }
}

fn step(value: Bson, of: &str) -> Result<Step, String> {
    let action = value.as_document().and_then(|step| step.keys().next().cloned());
    let action = action.ok_or_else(|| format!("{of}: a step has no fields"))?;
    let mut fields = Fields::new(&value, &format!("{of}: {action}"))?;
    let client = fields.text("client")?.unwrap_or_else(|| "client".to_owned());
    let action = self::action(&action, &mut fields)?;
    let expect = fields.take("expect");
    let error = fields.take("error").map(|fault| Fault::new(fault, of)).transpose()?;
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
        "failPoint" => {
            let data = document(fields)?;
            let mode = match fields.take("times") {
                None => bson::doc! { "times": 1 }.into(),
                Some(Bson::String(always)) if always == "always" => "alwaysOn".into(),
                Some(times) => bson::doc! { "times": times }.into(),
            };
            let on = match fields.text("on")?.as_deref() {
                None | Some("primary") => Members::Primary,
                Some("secondaries") => Members::Secondaries,
                Some(other) => return Err(format!("unknown members {other}")),
            };
            Action::FailPoint { data, mode, on }
        }
        "reply" => {
            let command = fields.text("command")?;
            Action::Reply { reply: document(fields)?, command: fields.need(command, "command")? }
        }
        "run" => {
            let (session, tasks) = (fields.text("session")?, fields.number("tasks")?.unwrap_or(1));
            Action::Run { call: call(name, fields)?, session, tasks }
        }
        "replace_primary" => Action::ReplacePrimary { call: call(name, fields)? },
        "read" => {
            let (session, count) = (fields.text("session")?, fields.number("count")?);
            Action::Read { call: call(name, fields)?, session, further: cursor_options(fields)?, count }
        }
        "open" => {
            let cursor = fields.text("cursor")?.unwrap_or_else(|| "cursor".to_owned());
            Action::Open { call: call(name, fields)?, cursor, further: cursor_options(fields)? }
        }
        "next" => Action::Next(text(fields)?),
        "close_cursor" => Action::CloseCursor(text(fields)?),
        "drop_cursor" => Action::DropCursor(text(fields)?),
        "start_session" => {
            let mut options = ClientSessionOptions::new();
            options.causal_consistency = fields.flag("causal")?.unwrap_or(options.causal_consistency);
            options.snapshot = fields.flag("snapshot")?.unwrap_or(options.snapshot);
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
            let commands = fields.need(commands, "commands")?;
            let call = |command: Bson| {
                let command = command.as_document().cloned().ok_or("commands has no command")?;
                Ok::<_, String>(Call { database: "db".to_owned(), command, options: CommandOptions::new() })
            };
            let calls = commands.into_iter().map(call).collect::<Result<Vec<_>, _>>()?;
            Action::WithTransaction { session, transaction, calls, works: fields.number("works")?.unwrap_or(1) }
        }
        "close" => {
            fields.take(name);
            Action::Close
        }
        other => return Err(format!("{}: unknown step {other}", fields.of)),
    })
}

fn call(name: &str, fields: &mut Fields) -> Result<Call, String> {
    let command = fields.document(name)?;
    let command = fields.need(command, name)?;
    let database = fields.text("database")?.unwrap_or_else(|| "db".to_owned());
    let mut options = CommandOptions::new();
    if let Some(mut given) = fields.fields("options")? {
        let mode = match given.text("read_preference")?.as_deref() {
            None => None,
            Some("primaryPreferred") => Some(ReadMode::PrimaryPreferred),
            Some("secondary") => Some(ReadMode::Secondary),
            Some(other) => return Err(format!("{}: unknown read preference {other}", given.of)),
        };
        options.read_preference = mode.map(ReadPreference::of);
        options.timeout = given.millis("timeout")?;
        options.idempotent = given.flag("idempotent")?.unwrap_or(options.idempotent);
        options.retry = given.flag("retry")?.unwrap_or(options.retry);
        let in_reply = given.flag("write_errors_in_reply")?;
        options.write_errors_in_reply = in_reply.unwrap_or(options.write_errors_in_reply);
        given.end()?;
    }
    Ok(Call { database, command, options })
}

fn cursor_options(fields: &mut Fields) -> Result<CursorOptions, String> {
    let mut options = CursorOptions::new();
    if let Some(mut given) = fields.fields("cursor_options")? {
        options.batch_size = given.number("batch_size")?.and_then(|size| u32::try_from(size).ok());
        options.max_await_time = given.millis("max_await_time")?;
        options.comment = given.take("comment");
        given.end()?;
    }
    Ok(options)
}

fn transaction(fields: &mut Fields) -> Result<TransactionOptions, String> {
    let mut options = TransactionOptions::new();
    if let Some(mut given) = fields.fields("transaction")? {
        options.read_concern_level = given.text("read_concern_level")?;
        options.max_commit_time = given.millis("max_commit_time")?;
        options.timeout = given.millis("timeout")?;
        if let Some(mut concern) = given.fields("write_concern")? {
            let w = match concern.take("w") {
                None => None,
                Some(Bson::String(name)) => Some(W::Name(name)),
                Some(number) => Some(W::Nodes(number.as_i32().and_then(|nodes| u32::try_from(nodes).ok()).ok_or("w")?)),
            };
            let (journal, w_timeout) = (concern.flag("journal")?, concern.millis("w_timeout")?);
            options.write_concern = Some(WriteConcern { w, journal, w_timeout });
            concern.end()?;
        }
        given.end()?;
    }
    Ok(options)
}

fn event(value: Bson, of: &str) -> Result<Expected, String> {
    let mut fields = Fields::new(&value, &format!("{of}: event"))?;
    let mut found = None;
    for stage in ["started", "succeeded", "failed"] {
        if let Some(name) = fields.text(stage)? {
            found = Some((stage, name));
        }
    }
    let (stage, name) = found.ok_or_else(|| format!("{of}: an event has no name"))?;
    let (with, server) = (fields.take("with"), fields.take("server"));
    let (connection, operation) = (fields.take("connection"), fields.take("operation"));
    let is_redacted = fields.flag("redacted")?.unwrap_or_default();
    fields.end()?;
    Ok(Expected { stage, name, with, server, connection, operation, is_redacted })
}
