//! The commands that a client starts, and those that a scenario expects.

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
            if matches!(event.get().stage, CommandStage::Started) {
                self.seen.push(*event);
            }
        }
        Ok(())
    }

    /// Checks the events. Those of `endSessions` count only if they are expected.
    pub(crate) fn check(&mut self, expected: &[Expected], names: &mut Names) -> Result<(), String> {
        self.drain()?;
        let has_end = expected.iter().any(|expected| expected.name == "endSessions");
        let seen: Vec<_> = self.seen.iter().filter(|event| has_end || event.get().name != "endSessions").collect();
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

fn document(event: &OwnedCommandEvent) -> Result<Document, String> {
    event.get().document.try_into().map_err(|error: bson::error::Error| error.to_string())
}

fn compare(expected: &Expected, event: &OwnedCommandEvent, names: &mut Names) -> Result<(), String> {
    let seen = event.get();
    if seen.name != expected.name {
        return Err(format!("{}, expected {}", seen.name, expected.name));
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
    Ok(())
}
