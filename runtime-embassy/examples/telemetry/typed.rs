//! The typed commands of a device: ping, hello, and inserts of measurements. They need no heap, and
//! are the same on the host and on a device.

use core::fmt;
use core::time::Duration;
use poolhouse_embassy::poolhouse_wire::bson::RawValue;
use poolhouse_embassy::poolhouse_wire::{EncodeError, Sink};
use poolhouse_embassy::{Buffer, Client, CommandOptions, DocumentWriter, Layout, OperationError, RawDocument};

/// Replies to these commands are small, except a reply to hello from a set with many members.
const REPLY_BYTES: usize = 1024;

/// A measurement of a device.
///
/// Its id consists of the device and the number: if it is inserted twice, it is stored once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reading<'a> {
    pub(crate) device: &'a str,
    /// Counts the measurements since the device's start, or, if the count is kept in flash, all of
    /// its measurements.
    pub(crate) number: i64,
    /// Milliseconds since 1970.
    pub(crate) at_ms: i64,
    /// Thousandths of a degree: avoids floating point.
    pub(crate) millidegrees: i32,
}

impl Reading<'_> {
    pub(crate) fn write<S: Sink>(&self, document: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError> {
        document.document("_id", |id| {
            id.str("device", self.device)?.int64("number", self.number)?;
            Ok(())
        })?;
        document.date_time("at", self.at_ms)?.int32("millidegrees", self.millidegrees)?;
        Ok(())
    }
}

/// The part of a server's hello reply that a device uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) is_writable_primary: bool,
    pub(crate) wire_version_max: i64,
}

/// A reading was not stored, or its reply does not show whether it was stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StoreError {
    /// The command failed.
    Operation(OperationError),
    /// The server refused the document with this code.
    Write(i64),
    /// The server's reply does not mention the document.
    Reply,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation(error) => error.fmt(f),
            Self::Write(code) => write!(f, "the document was refused with code {code}"),
            Self::Reply => f.write_str("the reply does not show whether the document was stored"),
        }
    }
}

impl core::error::Error for StoreError {}

impl From<OperationError> for StoreError {
    fn from(error: OperationError) -> Self {
        Self::Operation(error)
    }
}

/// Waits until a server that accepts writes replies.
pub(crate) async fn ping<L: Layout>(client: &Client<L>) -> Result<(), OperationError> {
    let mut reply = [0; REPLY_BYTES];
    client.run_command("admin", |command| command.int32("ping", 1).map(drop), &mut reply).await.map(drop)
}

/// Asks a server for its hello. The reply is read in the connection's buffer, not copied.
pub(crate) async fn hello<L: Layout>(client: &Client<L>) -> Result<Hello, OperationError> {
    let mut guard = client.check_out().await?;
    let reply = guard.run_command("admin", |command| command.int32("hello", 1).map(drop)).await?;
    Ok(Hello {
        is_writable_primary: field(reply, "isWritablePrimary").and_then(RawValue::as_flag).unwrap_or(false),
        wire_version_max: field(reply, "maxWireVersion").and_then(RawValue::as_integer).unwrap_or(0),
    })
}

/// Stores a reading. An insert that fails without a reply is repeated.
///
/// - `timeout`: of all attempts together.
pub(crate) async fn store<L: Layout>(
    client: &Client<L>,
    database: &str,
    collection: &str,
    reading: &Reading<'_>,
    timeout: Duration,
) -> Result<(), StoreError> {
    /// The server's code for a document with an id that exists: an earlier attempt has stored it.
    const DUPLICATE: i64 = 11000;
    let mut reply = [0; REPLY_BYTES];
    let insert = |command: &mut DocumentWriter<'_, Buffer>| {
        command.str("insert", collection)?;
        command.array("documents", |documents| {
            documents.document(|document| reading.write(document))?;
            Ok(())
        })?;
        // In a replica set, only writes on a majority of members survive an election.
        command.document("writeConcern", |concern| concern.str("w", "majority").map(drop))?;
        Ok(())
    };
    let options = CommandOptions::new().idempotent(true).timeout(timeout);
    let reply = client.run_command_with(database, insert, &mut reply, options).await?;
    match refusal(reply) {
        Some(code) if code != DUPLICATE => Err(StoreError::Write(code)),
        Some(_) => Ok(()),
        None if field(reply, "n").and_then(RawValue::as_integer) == Some(1) => Ok(()),
        None => Err(StoreError::Reply),
    }
}

/// The code of the first document that was refused.
fn refusal(reply: RawDocument<'_>) -> Option<i64> {
    let errors = field(reply, "writeErrors")?.as_array()?;
    let first = errors.iter().next()?.ok()?.as_document()?;
    field(first, "code")?.as_integer()
}

fn field<'a>(document: RawDocument<'a>, name: &str) -> Option<RawValue<'a>> {
    document.get(name).ok()?
}
