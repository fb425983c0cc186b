//! The properties of a command, from its name and fields, that decide its retries and its session.
//!
//! Read first: Retryable Reads, "Supported Read Operations"; Retryable Writes, "Supported Write
//! Operations"; Driver Sessions, "Sending the session ID to the server on all commands"; Causal
//! Consistency, "Causally consistent read and write commands"; OP_MSG, "moreToCome On Requests".

#[cfg(test)]
mod tests;

use crate::bson::{RawArray, RawDocument, RawValue};
use crate::error::WireError;

/// When a command may be executed again although it may have been executed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Never.
    None,
    /// Always: it reads.
    Read,
    /// With the same `lsid` and `txnNumber`, by which the server recognizes it: it writes a known
    /// number of documents.
    Write,
}

/// The properties of a command that decide how it is sent and retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandShape<'a> {
    /// The command's name: its first key. Empty if the command is.
    pub name: &'a str,
    /// When it may be executed again.
    pub retry: Retry,
    /// Whether `lsid` may be added: it is not present, the command is none of those that take no
    /// session, and its write concern requires an acknowledgement.
    pub takes_session: bool,
    /// Whether the command has `lsid`.
    pub has_session: bool,
    /// Whether the command has `txnNumber`, and can be retried with it.
    pub has_txn_number: bool,
    /// Whether the command writes documents.
    pub writes: bool,
    /// Whether the command belongs to a transaction: it has `autocommit`, or ends one.
    pub in_transaction: bool,
    /// Whether the command has `$clusterTime`.
    pub has_cluster_time: bool,
    /// Whether the command is a read or a write that takes `readConcern.afterClusterTime`, which it has
    /// in a causally consistent session.
    pub takes_cluster_time: bool,
    /// The `readConcern` of the command.
    pub read_concern: Option<RawDocument<'a>>,
    /// Whether the command has `writeConcern`.
    pub has_write_concern: bool,
    /// Whether the command has no write concern, or one that requires an acknowledgement: its `w` is
    /// not 0, or its `j` is true.
    ///
    /// Source: Read and Write Concern, "Unacknowledged WriteConcern".
    pub is_acknowledged: bool,
    /// Whether its reply is awaited. If not, it must be sent with
    /// [`Flags::MORE_TO_COME`](crate::message::Flags::MORE_TO_COME): it is `insert`, `update`,
    /// `delete` or `bulkWrite`, replies to which have only the outcome of the write, and it is not
    /// acknowledged. Other commands have a reply in any case, because it has data (`findAndModify`)
    /// or an error that is no failed write (`createIndexes`).
    pub has_reply: bool,
    /// Whether `maxTimeMS` may be added: it is not present, and the command is neither `getMore`,
    /// for which it means something else, nor one of those that take no session.
    pub takes_max_time: bool,
}

impl<'a> CommandShape<'a> {
    /// Examines a command. Linear in its bytes at most, no allocation; a write is examined for
    /// statements that affect many documents, and an aggregation for a last stage that writes.
    ///
    /// # Errors
    ///
    /// The command is malformed at the top level.
    pub fn parse(command: RawDocument<'a>) -> Result<Self, WireError> {
        let mut shape = Self {
            name: "",
            retry: Retry::None,
            takes_session: true,
            has_session: false,
            has_txn_number: false,
            writes: false,
            in_transaction: false,
            has_cluster_time: false,
            takes_cluster_time: false,
            read_concern: None,
            has_write_concern: false,
            is_acknowledged: true,
            has_reply: true,
            takes_max_time: true,
        };
        let (mut is_single, mut writes_output) = (true, false);
        for element in command {
            let element = element?;
            if shape.name.is_empty() {
                shape.name = element.key;
            }
            match (element.key, element.value) {
                ("lsid", _) => shape.has_session = true,
                ("txnNumber", _) => shape.has_txn_number = true,
                ("autocommit", _) => shape.in_transaction = true,
                ("$clusterTime", _) => shape.has_cluster_time = true,
                ("maxTimeMS" | "getMore", _) => shape.takes_max_time = false,
                ("readConcern", RawValue::Document(concern)) => shape.read_concern = Some(concern),
                ("writeConcern", RawValue::Document(concern)) => {
                    shape.has_write_concern = true;
                    shape.is_acknowledged = !is_zero(concern, "w") || is_true(concern, "j");
                }
                ("updates" | "ops", RawValue::Array(statements)) => {
                    is_single &= documents(statements).all(|statement| !is_true(statement, "multi"));
                }
                ("deletes", RawValue::Array(statements)) => {
                    is_single &= documents(statements).all(|statement| !is_zero(statement, "limit"));
                }
                ("pipeline", RawValue::Array(stages)) => {
                    let last = documents(stages).last().and_then(|stage| stage.iter().next()?.ok());
                    writes_output = last.is_some_and(|stage| matches!(stage.key, "$out" | "$merge"));
                }
                _ => {}
            }
        }
        shape.writes = match shape.name {
            "insert" | "update" | "delete" | "bulkWrite" | "findAndModify" | "findandmodify" => true,
            "aggregate" => writes_output,
            _ => false,
        };
        shape.retry = match shape.name {
            "find" | "distinct" | "count" | "listDatabases" | "listCollections" | "listIndexes" => Retry::Read,
            "aggregate" if !writes_output => Retry::Read,
            "insert" | "update" | "delete" | "bulkWrite" if is_single => Retry::Write,
            "findAndModify" | "findandmodify" => Retry::Write,
            _ => Retry::None,
        };
        shape.has_reply = shape.is_acknowledged || !matches!(shape.name, "insert" | "update" | "delete" | "bulkWrite");
        if !shape.is_acknowledged || shape.in_transaction {
            shape.retry = Retry::None;
        }
        if matches!(shape.name, "commitTransaction" | "abortTransaction") {
            shape.in_transaction = true;
            shape.retry = if shape.is_acknowledged { Retry::Write } else { Retry::None };
        }
        let is_alone = matches!(
            shape.name,
            "hello"
                | "isMaster"
                | "ismaster"
                | "saslStart"
                | "saslContinue"
                | "authenticate"
                | "logout"
                | "getnonce"
                | "parallelCollectionScan"
        );
        shape.takes_max_time &= !is_alone;
        shape.takes_session = !is_alone && shape.is_acknowledged && !shape.has_session;
        shape.takes_cluster_time = matches!(
            shape.name,
            "find"
                | "aggregate"
                | "distinct"
                | "count"
                | "insert"
                | "update"
                | "delete"
                | "findAndModify"
                | "findandmodify"
                | "bulkWrite"
                | "create"
                | "createIndexes"
                | "drop"
                | "dropDatabase"
                | "dropIndexes"
        );
        Ok(shape)
    }
}

/// The documents of an array; other values and malformed ones are skipped.
fn documents(array: RawArray<'_>) -> impl Iterator<Item = RawDocument<'_>> {
    array.iter().filter_map(|value| value.ok()?.as_document())
}

fn is_zero(document: RawDocument<'_>, key: &str) -> bool {
    document.get(key).ok().flatten().and_then(RawValue::as_integer) == Some(0)
}

fn is_true(document: RawDocument<'_>, key: &str) -> bool {
    document.get(key).ok().flatten().and_then(RawValue::as_flag).unwrap_or(false)
}
