//! Inserts, updates and deletes: of one statement, or of many.
//!
//! Read first: CRUD, "Bulk Write Operations" and "Results".

use crate::error::Stop;
use crate::matching::integer;
use crate::operations::{Call, Kind, Outcome, unsupported, with_id};
use crate::run::documents;
use bson::{Bson, Document, doc};
use poolhouse_smol::Error;

/// Arguments of the command, not of its statements.
const OF_COMMAND: [&str; 6] = ["let", "comment", "bypassDocumentValidation", "rawData", "ordered", "maxTimeMS"];

/// Fields of a statement of an update or a delete.
const OF_STATEMENT: [&str; 5] = ["arrayFilters", "hint", "collation", "sort", "upsert"];

/// A kind of write with its statements, and the index of each in the request.
struct Batch {
    command: &'static str,
    statements: Vec<Document>,
    indexes: Vec<usize>,
}

/// The counts and ids of a bulk.
#[derive(Default)]
struct Tally {
    inserted: i64,
    matched: i64,
    modified: i64,
    deleted: i64,
    inserted_ids: Document,
    upserted_ids: Document,
}

impl Tally {
    /// Adds the reply to a batch, also one with errors.
    fn add(&mut self, batch: &Batch, is_ordered: bool, reply: &Document) {
        let n = reply.get("n").and_then(integer).unwrap_or_default();
        let failed: Vec<_> = documents(reply, "writeErrors").filter_map(|error| integer(error.get("index")?)).collect();
        let is_done = |index: usize| {
            let index = i64::try_from(index).unwrap_or(i64::MAX);
            !failed.contains(&index) && (!is_ordered || failed.iter().all(|failed| *failed > index))
        };
        let written = batch.indexes.iter().zip(&batch.statements).enumerate();
        for (_, (index, document)) in written.filter(|(at, _)| batch.command == "insert" && is_done(*at)) {
            self.inserted_ids.insert(index.to_string(), document.get("_id").cloned().unwrap_or(Bson::Null));
        }
        let upserted = documents(reply, "upserted").count();
        match batch.command {
            "insert" => self.inserted += n,
            "delete" => self.deleted += n,
            _ => {
                self.matched += n - i64::try_from(upserted).unwrap_or_default();
                self.modified += reply.get("nModified").and_then(integer).unwrap_or_default();
            }
        }
        for upsert in documents(reply, "upserted") {
            let index = upsert.get("index").and_then(integer).and_then(|index| usize::try_from(index).ok());
            if let (Some(index), Some(id)) = (index.and_then(|index| batch.indexes.get(index)), upsert.get("_id")) {
                self.upserted_ids.insert(index.to_string(), id.clone());
            }
        }
    }

    fn result(&self) -> Document {
        let upserted = i64::try_from(self.upserted_ids.len()).unwrap_or_default();
        doc! {
            "insertedCount": self.inserted,
            "matchedCount": self.matched,
            "modifiedCount": self.modified,
            "deletedCount": self.deleted,
            "upsertedCount": upserted,
            "insertedIds": self.inserted_ids.clone(),
            "upsertedIds": self.upserted_ids.clone(),
        }
    }
}

/// An update must have operators, or be a pipeline.
pub(crate) fn check_update(update: &Bson) -> Result<(), Stop> {
    let is_update = match update {
        Bson::Document(update) => update.keys().next().is_some_and(|first| first.starts_with('$')),
        other => other.as_array().is_some(),
    };
    if is_update { Ok(()) } else { Err(Stop::Refused("an update has operators".to_owned())) }
}

pub(crate) fn check_replacement(replacement: &Bson) -> Result<(), Stop> {
    let is_update = match replacement {
        Bson::Document(replacement) => replacement.keys().next().is_some_and(|first| first.starts_with('$')),
        _ => true,
    };
    if is_update { Err(Stop::Refused("a replacement has no operators".to_owned())) } else { Ok(()) }
}

/// The command of a write and its statement. An insert gets an `_id`.
fn statement(name: &str, model: &Document) -> Result<(&'static str, Document), Stop> {
    let part = |name: &str| model.get(name).cloned().ok_or_else(|| Stop::Fault(format!("no {name} in {model}")));
    let (command, mut statement) = match name {
        "insertOne" => {
            let Bson::Document(document) = part("document")? else { return Err(Stop::Fault("no document".to_owned())) };
            return Ok(("insert", with_id(document).0));
        }
        "updateOne" | "updateMany" => {
            check_update(&part("update")?)?;
            let mut statement = doc! { "q": part("filter")?, "u": part("update")? };
            if name == "updateMany" {
                statement.insert("multi", true);
            }
            ("update", statement)
        }
        "replaceOne" => {
            check_replacement(&part("replacement")?)?;
            ("update", doc! { "q": part("filter")?, "u": part("replacement")? })
        }
        "deleteOne" | "deleteMany" => {
            ("delete", doc! { "q": part("filter")?, "limit": i32::from(name == "deleteOne") })
        }
        other => return unsupported(format!("a write {other}")),
    };
    for (name, value) in model {
        if OF_STATEMENT.contains(&name.as_str()) {
            statement.insert(name, value.clone());
        }
    }
    Ok((command, statement))
}

/// Runs a write, and returns the result of its operation.
pub(crate) async fn write(call: &mut Call<'_>, name: &str) -> Result<Outcome, Stop> {
    let arguments = call.arguments;
    for argument in arguments.keys() {
        let known = ["document", "documents", "filter", "update", "replacement", "requests", "session", "timeoutMS"];
        let argument = argument.as_str();
        if !known.contains(&argument) && !OF_COMMAND.contains(&argument) && !OF_STATEMENT.contains(&argument) {
            return unsupported(format!("argument {argument}"));
        }
    }
    let mut models = Vec::new();
    match name {
        "insertMany" => {
            models.extend(documents(arguments, "documents").map(|it| ("insertOne", doc! { "document": it.clone() })));
        }
        "bulkWrite" => {
            for request in documents(arguments, "requests") {
                let (kind, model) = request.iter().next().ok_or("an empty request".to_owned())?;
                models.push((kind, model.as_document().cloned().unwrap_or_default()));
            }
        }
        _ => models.push((name, arguments.clone())),
    }
    if models.is_empty() {
        return Err(Stop::Refused("no writes".to_owned()));
    }
    let is_ordered = arguments.get_bool("ordered").unwrap_or(true);
    let mut batches: Vec<Batch> = Vec::new();
    for (index, (kind, model)) in models.iter().enumerate() {
        let (command, statement) = statement(kind, model)?;
        // An ordered bulk keeps the order of its kinds, another one has a batch of each.
        let open = if is_ordered {
            batches.last_mut().filter(|batch| batch.command == command)
        } else {
            batches.iter_mut().find(|batch| batch.command == command)
        };
        match open {
            Some(batch) => {
                batch.statements.push(statement);
                batch.indexes.push(index);
            }
            None => batches.push(Batch { command, statements: vec![statement], indexes: vec![index] }),
        }
    }
    let mut tally = Tally::default();
    let mut failed: Option<Box<Error>> = None;
    let mut is_acknowledged = true;
    for batch in &batches {
        let field = match batch.command {
            "insert" => "documents",
            "update" => "updates",
            _ => "deletes",
        };
        let mut command = doc! { batch.command: call.target.collection.as_str(), field: batch.statements.clone() };
        command.insert("ordered", is_ordered);
        for name in OF_COMMAND {
            if let Some(value) = arguments.get(name).filter(|_| name != "ordered") {
                command.insert(name, value.clone());
            }
        }
        match call.run(Kind::Write, command).await {
            Ok(reply) => {
                is_acknowledged &= !reply.is_empty();
                tally.add(batch, is_ordered, &reply);
            }
            Err(Stop::Error(error, _)) => {
                let Error::Write(write) = &*error else {
                    return Err(Stop::Error(error, Some(tally.result())));
                };
                tally.add(batch, is_ordered, &write.reply);
                let ends = write.index.is_some() && is_ordered;
                failed.get_or_insert(error);
                if ends {
                    break;
                }
            }
            Err(stop) => return Err(stop),
        }
    }
    if let Some(error) = failed {
        return Err(Stop::Error(error, Some(tally.result())));
    }
    if !is_acknowledged {
        return Ok(Outcome::Value(Some(doc! { "acknowledged": false }.into())));
    }
    let result = match name {
        "insertOne" => doc! { "insertedId": tally.inserted_ids.get("0").cloned().unwrap_or(Bson::Null) },
        "updateOne" | "updateMany" | "replaceOne" => {
            let mut result = doc! { "matchedCount": tally.matched, "modifiedCount": tally.modified };
            result.insert("upsertedCount", i64::try_from(tally.upserted_ids.len()).unwrap_or_default());
            if let Some(id) = tally.upserted_ids.get("0") {
                result.insert("upsertedId", id.clone());
            }
            result
        }
        "deleteOne" | "deleteMany" => doc! { "deletedCount": tally.deleted },
        _ => tally.result(),
    };
    Ok(Bson::Document(result).into())
}
