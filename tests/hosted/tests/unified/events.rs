//! The events of a client, in the words of the format.

use crate::matching::{self, Entities};
use bson::{Bson, Document};
use core::cell::{Cell, RefCell};
use poolhouse_smol::poolhouse_core::monitor::MonitorEvent;
use poolhouse_smol::poolhouse_core::pool::PoolEvent;
use poolhouse_smol::poolhouse_core::topology::OwnedSdamEvent;
use poolhouse_smol::poolhouse_driver::OwnedCommandEvent;
use poolhouse_smol::poolhouse_wire::bson::RawDocument;
use poolhouse_smol::poolhouse_wire::command;
use poolhouse_smol::{Client, Event, Notice, Subscription};

/// The events of commands, pools, and servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Command,
    Cmap,
    Sdam,
}

/// A command that was started.
pub(crate) struct Started {
    /// Of the request.
    pub(crate) id: i32,
    pub(crate) name: String,
    /// Empty if it is sensitive.
    pub(crate) command: Document,
    /// The server has replied that it succeeded.
    pub(crate) has_succeeded: bool,
}

/// A client with its events.
pub(crate) struct Watched {
    pub(crate) client: Client,
    pub(crate) options: Document,
    subscriptions: RefCell<Vec<Subscription>>,
    seen: RefCell<Vec<Event>>,
    /// Events before this index are those of the preparation.
    from: Cell<usize>,
    observed: Vec<String>,
    ignored: Vec<String>,
    is_sensitive: bool,
}

impl Watched {
    pub(crate) fn new(client: Client, subscriptions: Vec<Subscription>, entity: &Document) -> Self {
        let texts = |name: &str| -> Vec<String> {
            let list = entity.get_array(name).map(Vec::as_slice).unwrap_or_default();
            list.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect()
        };
        let mut ignored = texts("ignoreCommandMonitoringEvents");
        ignored.push("configureFailPoint".to_owned());
        Self {
            client,
            options: entity.get_document("uriOptions").cloned().unwrap_or_default(),
            subscriptions: RefCell::new(subscriptions),
            seen: RefCell::default(),
            from: Cell::new(0),
            observed: texts("observeEvents"),
            ignored,
            is_sensitive: entity.get_bool("observeSensitiveCommands").unwrap_or(false),
        }
    }

    /// Takes the events so far: a subscription keeps a limited number of them.
    pub(crate) fn drain(&self) -> Result<(), String> {
        let mut subscriptions = self.subscriptions.borrow_mut();
        while let Some(notice) = subscriptions.iter_mut().find_map(|it| it.try_next()) {
            match notice {
                Notice::Event { event, .. } => self.seen.borrow_mut().push(event),
                Notice::Lagged { count } => return Err(format!("{count} events were lost")),
            }
        }
        Ok(())
    }

    /// Forgets the events of the preparation, but not that servers are known.
    pub(crate) fn begin(&self) -> Result<(), String> {
        self.drain()?;
        self.from.set(self.seen.borrow().len());
        Ok(())
    }

    /// The number of events so far.
    pub(crate) fn count(&self) -> Result<usize, String> {
        self.drain()?;
        Ok(self.seen.borrow().len())
    }

    /// The commands that were started from this event on.
    pub(crate) fn commands_since(&self, index: usize) -> Result<Vec<(String, Document)>, String> {
        self.drain()?;
        let seen = self.seen.borrow();
        let started = seen[index..].iter().filter_map(|event| match event {
            Event::Command(event) if event.get().event_name() == "CommandStarted" => {
                Some((event.get().name.to_owned(), document(event)))
            }
            _ => None,
        });
        started.map(|(name, document)| Ok((name, document?))).collect()
    }

    /// The commands that were started.
    pub(crate) fn started(&self) -> Vec<Started> {
        // A loss of events is a difference elsewhere.
        let _: Result<(), String> = self.drain();
        let seen = self.seen.borrow();
        let named = |name: &'static str| {
            seen.iter().filter_map(move |event| match event {
                Event::Command(event) if event.get().event_name() == name => Some(event),
                _ => None,
            })
        };
        // A write without an acknowledgement has no reply, and may be lost with a connection that is closed.
        let is_reply = |event: &OwnedCommandEvent| document(event).is_ok_and(|reply| reply.len() > 1);
        let has_succeeded =
            |id: i32| named("CommandSucceeded").any(|event| event.get().request_id == id && is_reply(event));
        let started = named("CommandStarted").map(|event| {
            let (id, name) = (event.get().request_id, event.get().name.to_owned());
            Started { id, name, command: document(event).unwrap_or_default(), has_succeeded: has_succeeded(id) }
        });
        started.collect()
    }

    /// The error of a fake server about a command (CommandNotFound) or an option (NotImplemented).
    pub(crate) fn refused(&self) -> Option<String> {
        let _: Result<(), String> = self.drain();
        let seen = self.seen.borrow();
        let mut replies = seen.iter().filter_map(|event| match event {
            Event::Command(event) => document(event).ok(),
            _ => None,
        });
        let refusal = replies.find(|reply| reply.get_i32("code").is_ok_and(|code| [59, 238].contains(&code)))?;
        refusal.get_str("errmsg").ok().map(str::to_owned)
    }

    /// The number of events that match a pattern, whether they are observed or not.
    pub(crate) fn matching(&self, pattern: &Document, entities: &dyn Entities) -> Result<usize, String> {
        self.drain()?;
        let seen = self.seen.borrow();
        let matching = seen[self.from.get()..].iter().filter(|event| check(pattern, event, entities).is_ok());
        Ok(matching.count())
    }

    /// Whether the test observes an event.
    fn is_observed(&self, event: &Event) -> bool {
        let name = name_of(event);
        if !self.observed.contains(&name) {
            return false;
        }
        let Event::Command(command) = event else { return true };
        let command = command.get();
        let is_hello = ["hello", "ismaster", "isMaster"].contains(&command.name);
        let is_sensitive = is_sensitive(command.name) || is_hello && command.document.is_empty();
        !self.ignored.iter().any(|ignored| ignored == command.name) && (self.is_sensitive || !is_sensitive)
    }

    /// The differences between the events and those that are expected.
    pub(crate) fn check(&self, expected: &Document, entities: &dyn Entities) -> Result<(), String> {
        self.drain()?;
        let kind = match expected.get_str("eventType") {
            Ok("cmap") => Kind::Cmap,
            Ok("sdam") => Kind::Sdam,
            Ok("command") | Err(_) => Kind::Command,
            Ok(other) => return Err(format!("unknown type of events {other}")),
        };
        let patterns = expected.get_array("events").map_err(|error| format!("expectEvents: {error}"))?;
        let seen = self.seen.borrow();
        let seen: Vec<_> = seen[self.from.get()..]
            .iter()
            .filter(|event| kind_of(event) == Some(kind) && self.is_observed(event))
            .collect();
        let mut result = Ok(());
        for (index, pattern) in patterns.iter().enumerate() {
            let compared = match (pattern.as_document(), seen.get(index)) {
                (Some(pattern), Some(event)) => check(pattern, event, entities),
                (_, None) => Err("it is missing".to_owned()),
                (None, _) => Err("the pattern is no object".to_owned()),
            };
            result = result.and(compared.map_err(|error| format!("event {index}: {error}")));
        }
        let may_have_more = expected.get_bool("ignoreExtraEvents").unwrap_or(false);
        if seen.len() > patterns.len() && !may_have_more {
            result = result.and(Err(format!("{} events, expected {}", seen.len(), patterns.len())));
        }
        result.map_err(|error| {
            let shown: Vec<_> = seen.iter().map(|event| shown(event)).collect();
            format!("{error}\n    {}", shown.join("\n    "))
        })
    }

    /// Whether as many events as expected were emitted.
    pub(crate) fn is_complete(&self, expected: &Document) -> Result<bool, String> {
        self.drain()?;
        let kind = match expected.get_str("eventType") {
            Ok("cmap") => Kind::Cmap,
            Ok("sdam") => Kind::Sdam,
            _ => Kind::Command,
        };
        let seen = self.seen.borrow();
        let count = seen[self.from.get()..]
            .iter()
            .filter(|event| kind_of(event) == Some(kind) && self.is_observed(event))
            .count();
        Ok(count >= expected.get_array("events").map_or(0, Vec::len))
    }
}

/// Whether the documents of this command are always left out.
fn is_sensitive(name: &str) -> bool {
    let command = bson::doc! { name: 1 }.to_vec().unwrap_or_default();
    RawDocument::new(&command).is_ok_and(command::is_sensitive)
}

const fn kind_of(event: &Event) -> Option<Kind> {
    match event {
        Event::Command(_) => Some(Kind::Command),
        Event::Pool(_) => Some(Kind::Cmap),
        Event::Heartbeat(_) | Event::Sdam(_) => Some(Kind::Sdam),
        _ => None,
    }
}

/// The name of an event in the format: `poolClearedEvent`.
fn name_of(event: &Event) -> String {
    let name = match event {
        Event::Command(event) => event.get().event_name(),
        Event::Pool(event) => event.name(),
        Event::Heartbeat(MonitorEvent::HeartbeatStarted { .. }) => "ServerHeartbeatStarted",
        Event::Heartbeat(MonitorEvent::HeartbeatSucceeded { .. }) => "ServerHeartbeatSucceeded",
        Event::Heartbeat(_) => "ServerHeartbeatFailed",
        Event::Sdam(event) => match &**event {
            OwnedSdamEvent::TopologyOpening { .. } => "TopologyOpening",
            OwnedSdamEvent::TopologyDescriptionChanged { .. } => "TopologyDescriptionChanged",
            OwnedSdamEvent::ServerOpening { .. } => "ServerOpening",
            OwnedSdamEvent::ServerDescriptionChanged { .. } => "ServerDescriptionChanged",
            OwnedSdamEvent::ServerClosed { .. } => "ServerClosed",
            OwnedSdamEvent::TopologyClosed { .. } => "TopologyClosed",
            _ => "",
        },
        _ => "",
    };
    let mut chars = name.chars();
    let first = chars.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(chars).chain("Event".chars()).collect()
}

fn document(event: &OwnedCommandEvent) -> Result<Document, String> {
    event.get().document.try_into().map_err(|error: bson::error::Error| error.to_string())
}

fn shown(event: &Event) -> String {
    match event {
        Event::Command(event) => {
            let (shown, document) = (event.get(), document(event));
            document.map_or_else(|error| error, |document| format!("{shown} {document}"))
        }
        other => format!("{} {other:?}", name_of(other)),
    }
}

/// Compares an event with `{ name: { field: pattern .. } }`.
fn check(pattern: &Document, event: &Event, entities: &dyn Entities) -> Result<(), String> {
    let (name, fields) = pattern.iter().next().ok_or("a pattern without an event")?;
    if name_of(event) != *name {
        return Err(format!("{}, expected {name}", name_of(event)));
    }
    let fields = fields.as_document().ok_or("the fields of an event are an object")?;
    let values = values(event)?;
    for (field, pattern) in fields {
        let (_, value) = values
            .iter()
            .find(|(known, _)| known == field)
            .ok_or_else(|| format!("unsupported field {field} of {name}"))?;
        matching::check(pattern, value.as_ref(), entities).map_err(|error| format!("{name}: {field}: {error}"))?;
    }
    Ok(())
}

/// The fields of an event that a test can compare.
fn values(event: &Event) -> Result<Vec<(&'static str, Option<Bson>)>, String> {
    let described = |type_name: &str| Some(bson::doc! { "type": type_name }.into());
    Ok(match event {
        Event::Command(event) => {
            let (event, document) = (event.get(), document(event)?);
            vec![
                ("command", Some(document.clone().into())),
                ("reply", Some(document.into())),
                ("commandName", Some(event.name.into())),
                ("databaseName", Some(event.database.into())),
                ("hasServiceId", Some(event.service_id.is_some().into())),
                ("hasServerConnectionId", Some(event.server_connection_id.is_some().into())),
            ]
        }
        Event::Pool(PoolEvent::PoolCleared { service_id, interrupt_in_use_connections, .. }) => vec![
            ("hasServiceId", Some(service_id.is_some().into())),
            ("interruptInUseConnections", Some((*interrupt_in_use_connections).into())),
        ],
        Event::Pool(PoolEvent::ConnectionClosed { reason, .. }) => vec![("reason", Some(reason.name().into()))],
        Event::Pool(PoolEvent::ConnectionCheckOutFailed { reason, .. }) => {
            vec![("reason", Some(reason.name().into()))]
        }
        Event::Heartbeat(
            MonitorEvent::HeartbeatStarted { awaited, .. }
            | MonitorEvent::HeartbeatSucceeded { awaited, .. }
            | MonitorEvent::HeartbeatFailed { awaited, .. },
        ) => vec![("awaited", Some((*awaited).into()))],
        Event::Sdam(event) => match &**event {
            OwnedSdamEvent::TopologyDescriptionChanged { previous, new, .. } => vec![
                ("previousDescription", described(previous.get().topology_type().name())),
                ("newDescription", described(new.get().topology_type().name())),
            ],
            OwnedSdamEvent::ServerDescriptionChanged { previous, new, .. } => vec![
                ("previousDescription", described(previous.get().server_type().name())),
                ("newDescription", described(new.get().server_type().name())),
            ],
            _ => Vec::new(),
        },
        _ => Vec::new(),
    })
}
