//! The commands of this program, typed: a layer as thin as an application's own might be.

use poolhouse_embassy::poolhouse_core::wire::{EncodeError, Sink};
use poolhouse_embassy::{Client, CommandOptions, DocumentWriter, ExchangeError, Layout, OperationError, RawDocument};

/// Replies to these commands are small.
const REPLY_BYTES: usize = 768;
/// The code of an insert of a document that is there already.
const DUPLICATE_KEY: i64 = 11_000;

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Telemetry {
    /// Which device measured.
    pub(crate) device: &'static str,
    /// Which of its tasks.
    pub(crate) task: i32,
    /// Its number among those of the task.
    pub(crate) number: i32,
    /// When: milliseconds since the device started.
    pub(crate) uptime_ms: i64,
    /// What: hundredths of a degree.
    pub(crate) temperature: i32,
}

impl Telemetry {
    /// Its `_id` says which one it is, so that one that is sent twice is there once.
    fn write<S: Sink>(&self, document: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError> {
        document.document("_id", |id| {
            id.str("device", self.device)?.int32("task", self.task)?.int32("number", self.number).map(drop)
        })?;
        document.int64("uptime_ms", self.uptime_ms)?.int32("temperature", self.temperature).map(drop)
    }
}

/// Asks a server that accepts writes whether it is there.
pub(crate) async fn ping<L: Layout>(client: Client<L>) -> Result<(), OperationError> {
    let ping = |body: &mut DocumentWriter<'_, _>| body.int32("ping", 1).map(drop);
    client.run_command("admin", ping, &mut [0; REPLY_BYTES]).await.map(drop)
}

/// What became of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// It is there.
    Yes,
    /// The server did not take it, with this code.
    Refused(i64),
}

/// Inserts one measurement, once, however often it has to be sent.
pub(crate) async fn insert<L: Layout>(client: Client<L>, telemetry: &Telemetry) -> Result<Inserted, OperationError> {
    let insert = |body: &mut DocumentWriter<'_, _>| {
        body.str("insert", "telemetry")?
            .array("documents", |documents| documents.document(|document| telemetry.write(document)).map(drop))?;
        // Only what a majority of a set has is still there after a step-down.
        body.document("writeConcern", |concern| concern.str("w", "majority").map(drop)).map(drop)
    };
    let mut reply = [0; REPLY_BYTES];
    let reply = client.run_command_with("demo", insert, &mut reply, CommandOptions::new().repeatable()).await?;
    let code = refusal(reply).map_err(ExchangeError::Wire)?;
    Ok(code.filter(|code| *code != DUPLICATE_KEY).map_or(Inserted::Yes, Inserted::Refused))
}

/// The code of the first error of a write.
fn refusal(reply: RawDocument<'_>) -> Result<Option<i64>, poolhouse_embassy::poolhouse_core::wire::WireError> {
    let Some(errors) = reply.get("writeErrors")?.and_then(|errors| errors.as_array()) else { return Ok(None) };
    let Some(first) = errors.iter().next().transpose()?.and_then(|error| error.as_document()) else { return Ok(None) };
    Ok(first.get("code")?.and_then(|code| code.as_integer()))
}
