//! Hints for the usual mistakes in commands: names of functions and arguments of other drivers,
//! where servers have other names.

/// Names that servers do not know as commands, each group with the hint.
const COMMANDS: [(&[&str], &str); 9] = [
    (
        &["findOneAndUpdate", "findOneAndReplace", "findOneAndDelete"],
        "the command is findAndModify, with `query`, and `update` or `remove: true`",
    ),
    (&["insertOne", "insertMany"], "the command is insert, with `documents: [..]`"),
    (&["updateOne", "updateMany", "replaceOne"], "the command is update, with `updates: [{ q, u, multi }]`"),
    (&["deleteOne", "deleteMany"], "the command is delete, with `deletes: [{ q, limit }]`; `limit: 0` is all"),
    (&["findOne"], "the command is find, with `limit: 1`"),
    (&["countDocuments", "estimatedDocumentCount"], "the command is count, with `query`"),
    (&["createIndex", "ensureIndex"], "the command is createIndexes, with `indexes: [{ key, name }]`"),
    (&["bulkWrite"], "servers have bulkWrite since 8.0"),
    (
        &[
            "batchSize",
            "cursor",
            "deletes",
            "documents",
            "filter",
            "indexes",
            "key",
            "limit",
            "pipeline",
            "projection",
            "query",
            "readConcern",
            "sort",
            "updates",
            "writeConcern",
        ],
        "the command's name must be the first key of its document",
    ),
];

/// Fields that a command does not have, each with the hint.
const FIELDS: [(&str, &str); 9] = [
    ("update.filter", UPDATE),
    ("update.query", UPDATE),
    ("update.updates.filter", UPDATE),
    ("delete.filter", DELETE),
    ("delete.query", DELETE),
    ("delete.deletes.filter", DELETE),
    ("findAndModify.filter", QUERY),
    ("count.filter", QUERY),
    ("distinct.filter", QUERY),
];

const UPDATE: &str = "the filter of a statement is `q`: `updates: [{ q, u }]`";
const DELETE: &str = "the filter of a statement is `q`: `deletes: [{ q, limit }]`";
const QUERY: &str = "the filter of this command is `query`";

/// Returns the hint for a refused command, if its mistake is a usual one.
///
/// - `message`: of the server: `no such command: 'insertOne'`, or `BSON field 'update.filter' is an
///   unknown field.`
pub(in super::super) fn of_refusal(code: i32, message: &str) -> Option<&'static str> {
    const COMMAND_NOT_FOUND: i32 = 59;
    const UNKNOWN_FIELD: i32 = 40_415;
    let name = message.split('\'').nth(1)?;
    match code {
        COMMAND_NOT_FOUND => COMMANDS.iter().find(|(names, _)| names.contains(&name)).map(|(_, hint)| *hint),
        UNKNOWN_FIELD => FIELDS.iter().find(|(field, _)| *field == name).map(|(_, hint)| *hint),
        _ => None,
    }
}
