//! The command events of a client, and those that a scenario expects.

use crate::deployment::Deployment;
use crate::file::Expected;
use crate::matching::Names;
use bson::{Bson, Document};
use poolhouse_smol::poolhouse_driver::{CommandStage, OwnedCommandEvent};
use poolhouse_smol::{Client, Event, Notice, Subscription};

/// A client with its events.
pub(crate) struct Watched {
    pub(crate) client: Client,
    subscription: Subscription,
    seen: Vec<OwnedCommandEvent>,
}

impl Watched {
    pub(crate) const fn new(client: Client, subscription: Subscription) -> Self {
        Self { client, subscription, seen: Vec::new() }
    }

    /// Takes the events so far: a subscription keeps a limited number of them.
    pub(crate) fn drain(&mut self) -> Result<(), String> {
        while let Some(notice) = self.subscription.try_next() {
            let Notice::Event { event: Event::Command(event), .. } = notice else {
                return Err(format!("no event of a command: {notice:?}"));
            };
            self.seen.push(*event);
        }
        Ok(())
    }

    /// Waits until this number of commands of this name were started.
    pub(crate) async fn wait(&mut self, name: &str, count: usize) -> Result<(), String> {
        let mut result = Ok(());
        let is_reached = || {
            result = self.drain();
            result.is_err() || self.count(name) >= count
        };
        Deployment::eventually("commands are started", is_reached).await?;
        result
    }

    /// The number of commands of this name that were started.
    pub(crate) fn count(&self, name: &str) -> usize {
        let is_start = |event: &&OwnedCommandEvent| event.get().name == name && stage(event) == "started";
        self.seen.iter().filter(is_start).count()
    }

    /// Checks the events. Those of `endSessions` count only if they are expected.
    pub(crate) fn check(&mut self, expected: &[Expected], all: bool, names: &mut Names) -> Result<(), String> {
        self.drain()?;
        let has_end = expected.iter().any(|expected| expected.name == "endSessions");
        let is_compared = |event: &&OwnedCommandEvent| {
            (all || stage(event) == "started") && (has_end || event.get().name != "endSessions")
        };
        let seen: Vec<_> = self.seen.iter().filter(is_compared).collect();
        let result = expected.iter().zip(&seen).enumerate().try_for_each(|(index, (expected, event))| {
            compare(expected, event, names).map_err(|error| format!("event {index}: {error}"))
        });
        let result = result.and_then(|()| {
            let (count, expected) = (seen.len(), expected.len());
            if count == expected { Ok(()) } else { Err(format!("{count} events, expected {expected}")) }
        });
        result.map_err(|error| {
            let shown: Vec<_> =
                seen.iter().map(|event| format!("{} {:?}", event.get(), document(event).ok())).collect();
            format!("{error}\n{}", shown.join("\n"))
        })
    }
}

fn stage(event: &OwnedCommandEvent) -> &'static str {
    match event.get().stage {
        CommandStage::Started => "started",
        CommandStage::Succeeded { .. } => "succeeded",
        CommandStage::Failed { .. } => "failed",
    }
}

fn document(event: &OwnedCommandEvent) -> Result<Document, String> {
    event.get().document.try_into().map_err(|error: bson::error::Error| error.to_string())
}

fn compare(expected: &Expected, event: &OwnedCommandEvent, names: &mut Names) -> Result<(), String> {
    let seen = event.get();
    if (stage(event), seen.name) != (expected.stage, expected.name.as_str()) {
        return Err(format!("{} {}, expected {} {}", stage(event), seen.name, expected.stage, expected.name));
    }
    let connection = i64::try_from(seen.connection_id).map_err(|error| error.to_string())?;
    let parts: [(&str, &Option<Bson>, Bson); 4] = [
        ("server", &expected.server, seen.address.into()),
        // The number of a connection is unique in its pool only.
        ("connection", &expected.connection, format!("{}/{connection}", seen.address).into()),
        ("operation", &expected.operation, seen.operation_id.into()),
        ("with", &expected.with, document(event)?.into()),
    ];
    for (name, pattern, value) in parts {
        if let Some(pattern) = pattern {
            names.check(pattern, Some(&value)).map_err(|error| format!("{}: {name}: {error}", seen.name))?;
        }
    }
    let is_empty = document(event)?.is_empty();
    // A command that failed without a reply has no document either.
    if is_empty != expected.is_redacted && !(is_empty && expected.stage == "failed") {
        return Err(format!("{}: the document is {}", seen.name, if is_empty { "left out" } else { "shown" }));
    }
    Ok(())
}
