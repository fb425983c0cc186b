//! The log messages of a client (`expectLogMessages`).
//!
//! Read first: Unified Test Format, "expectedLogMessagesForClient".
//!
//! The process has one subscriber, but several tests at once. The messages of a test are those that name
//! its servers, which no other test uses meanwhile, and those of the same topology. Clients that a test
//! does not observe log nothing.

use crate::error::Stop;
use crate::matching::{self, Entities, integer};
use crate::messages::{self, Message};
use crate::run::documents;
use bson::{Bson, Document};
use core::cell::RefCell;
use core::net::SocketAddr;
use core::time::Duration;
use poolhouse_client::log::LogOptions;
use std::time::Instant;
use tracing::level_filters::LevelFilter;

/// How long messages that are expected may follow the operations.
const PATIENCE: Duration = Duration::from_secs(10);

/// The messages of one test.
pub(crate) struct Logs {
    /// The servers that only this test uses.
    servers: Vec<SocketAddr>,
    /// Earlier messages are of other tests.
    from: usize,
    /// The client that the test observes.
    observed: RefCell<Option<String>>,
}

impl Logs {
    pub(crate) fn new(servers: Vec<SocketAddr>) -> Self {
        Self { servers, from: messages::count(), observed: RefCell::default() }
    }

    /// The options of a client.
    pub(crate) fn options(&self, id: &str, entity: &Document) -> Result<LogOptions, Stop> {
        let mut options = LogOptions::OFF;
        let Ok(levels) = entity.get_document("observeLogMessages") else { return Ok(options) };
        if self.observed.replace(Some(id.to_owned())).is_some() {
            return Err(Stop::Unsupported("messages of several clients".to_owned()));
        }
        // Tests compare whole documents.
        options.document_length_max = 10_000;
        options.heartbeat_replies = true;
        for (component, level) in levels {
            let level = level.as_str().and_then(|level| level.parse::<LevelFilter>().ok());
            let level = level.ok_or_else(|| Stop::Unsupported(format!("the levels {levels}")))?;
            match component.as_str() {
                "command" => options.command = level,
                "connection" => options.connection = level,
                "serverSelection" => options.server_selection = level,
                "topology" => options.topology = level,
                other => return Err(Stop::Unsupported(format!("messages of {other}"))),
            }
        }
        Ok(options)
    }

    /// Waits for the messages that are expected, and compares them.
    pub(crate) async fn check(&self, expected: &Document, entities: &dyn Entities) -> Result<(), String> {
        if self.observed.borrow().as_deref() != expected.get_str("client").ok() {
            return Err("the client is not observed".to_owned());
        }
        let patterns: Vec<_> = documents(expected, "messages").collect();
        let begun = Instant::now();
        let mut found = self.found(expected, entities);
        while found.len() < patterns.len() && begun.elapsed() < PATIENCE {
            smol::Timer::after(Duration::from_millis(5)).await;
            found = self.found(expected, entities);
        }
        let mut result = Ok(());
        for (index, pattern) in patterns.iter().enumerate() {
            let missing = || Err(format!("it is missing: {pattern}"));
            let compared = found.get(index).map_or_else(missing, |message| check(pattern, message, entities));
            result = result.and(compared.map_err(|error| format!("message {index}: {error}")));
        }
        if found.len() > patterns.len() && !expected.get_bool("ignoreExtraMessages").unwrap_or(false) {
            result = result.and(Err(format!("{} messages, expected {}", found.len(), patterns.len())));
        }
        result.map_err(|error| {
            let shown: Vec<_> = found.iter().map(ToString::to_string).collect();
            format!("{error}\n    {}", shown.join("\n    "))
        })
    }

    /// The messages so far, except for those that are ignored.
    fn found(&self, expected: &Document, entities: &dyn Entities) -> Vec<Message> {
        let mut found = messages::since(self.from);
        let topologies: Vec<_> = found.iter().filter(|it| names(it, &self.servers)).filter_map(topology).collect();
        found.retain(|it| names(it, &self.servers) || topology(it).is_some_and(|id| topologies.contains(&id)));
        found.retain(|it| documents(expected, "ignoreMessages").all(|pattern| check(pattern, it, entities).is_err()));
        found
    }
}

fn topology(message: &Message) -> Option<i64> {
    message.data.get("topologyId").and_then(integer)
}

/// Whether a field is, or describes, one of these servers.
fn names(message: &Message, servers: &[SocketAddr]) -> bool {
    let port = message.data.get("serverPort").and_then(integer);
    let mut texts = message.data.values().filter_map(Bson::as_str);
    servers.iter().any(|server| port == Some(server.port().into()))
        || texts.any(|text| servers.iter().any(|server| text.contains(&server.to_string())))
}

fn check(pattern: &Document, message: &Message, entities: &dyn Entities) -> Result<(), String> {
    let mut result = Ok(());
    for (name, wanted) in pattern {
        let is_right = match name.as_str() {
            "level" => wanted.as_str() == Some(&message.level),
            "component" => wanted.as_str() == Some(&message.component),
            "data" => {
                result = matching::check(wanted, Some(&message.data.clone().into()), entities);
                true
            }
            // Only the code of the server's error is left.
            "failureIsRedacted" => {
                let failure = message.data.get_str("failure").map_err(|error| error.to_string())?;
                let code = failure.strip_prefix("the command failed with code ");
                wanted.as_bool() == Some(code.is_some_and(|code| code.parse::<i32>().is_ok()))
            }
            other => return Err(format!("unknown field {other} of a message")),
        };
        if !is_right {
            return Err(format!("{message}, expected {name} {wanted}"));
        }
    }
    result
}
