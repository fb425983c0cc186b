//! Collections in memory: sufficient for insert, find and cursors of a client under test. Servers
//! can share collections; each server has its own cursors.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bson::{Bson, DateTime, Document, doc, oid::ObjectId};

use super::errors::{CommandError, number, whole};
use super::transactions::{Transactions, is_in_transaction};

const CURSORS_MAX: usize = 1024;
/// Number of sessions whose last write is kept.
const SESSIONS_MAX: usize = 4096;
const FIRST_BATCH_COUNT: usize = 101;
const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Interval at which an idle primary writes a no-op.
const NOOP_PERIOD_MS: i64 = 10_000;

/// Options of find and similar commands that have no effect in this store.
const FIND_OPTIONS: [&str; 26] = [
    "find",
    "filter",
    "skip",
    "limit",
    "batchSize",
    "singleBatch",
    "comment",
    "maxTimeMS",
    "readConcern",
    "hint",
    "lsid",
    "$db",
    "$readPreference",
    "$clusterTime",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
    "noCursorTimeout",
    "allowDiskUse",
    "allowPartialResults",
    "let",
    "startTransaction",
    "autocommit",
    "txnNumber",
    "oplogReplay",
    "maxAwaitTimeMS",
];

#[derive(Debug)]
struct Cursor {
    namespace: String,
    /// The session in which it was created, and must be used.
    session: Option<Document>,
    filter: Document,
    /// Index of the next document to match.
    position: usize,
    /// Number of documents that may still be returned.
    left: usize,
}

#[derive(Debug, Default)]
struct Collection {
    documents: Vec<Document>,
    /// The encoded `_id`s; numbers of equal value have the same encoding.
    ids: BTreeSet<Vec<u8>>,
}

/// The documents, by namespace.
#[derive(Debug)]
struct Data {
    collections: BTreeMap<String, Collection>,
    bytes: usize,
    bytes_max: usize,
    written: DateTime,
    /// The last write with a transaction number of each session, with its reply.
    numbered: BTreeMap<Vec<u8>, (i64, Document)>,
    transactions: Transactions,
}

/// Collections that can be shared by several servers.
#[derive(Debug, Clone)]
pub(crate) struct Documents(Arc<Mutex<Data>>);

impl Documents {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let data = Data {
            collections: BTreeMap::new(),
            bytes: 0,
            bytes_max,
            written: DateTime::now(),
            numbered: BTreeMap::new(),
            transactions: Transactions::default(),
        };
        Self(Arc::new(Mutex::new(data)))
    }

    /// Records a write without documents: an election or a reconfiguration.
    pub(crate) fn touch(&self) {
        self.lock().written = DateTime::now();
    }

    /// Returns the time of the last write, including the no-ops of an idle primary.
    pub(crate) fn written(&self) -> DateTime {
        let written = self.lock().written.timestamp_millis();
        let idle = DateTime::now().timestamp_millis().saturating_sub(written).max(0);
        DateTime::from_millis(written + idle / NOOP_PERIOD_MS * NOOP_PERIOD_MS)
    }

    fn lock(&self) -> MutexGuard<'_, Data> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The documents and the open cursors.
#[derive(Debug)]
pub(crate) struct Store {
    documents: Documents,
    cursors: BTreeMap<i64, Cursor>,
    cursors_made: i64,
}

impl Store {
    pub(crate) fn new(documents: Documents) -> Self {
        Self { documents, cursors: BTreeMap::new(), cursors_made: 0 }
    }

    /// Discards the cursors, as a restart does; the documents are kept.
    pub(crate) fn forget_cursors(&mut self) {
        self.cursors.clear();
    }

    /// Returns the time of the last write.
    pub(crate) fn written(&self) -> DateTime {
        self.documents.written()
    }

    /// Executes a write with a transaction number once: another attempt of it gets the same reply.
    pub(crate) fn once(
        &self,
        command: &Document,
        execute: impl FnOnce() -> Result<Document, CommandError>,
    ) -> Result<Document, CommandError> {
        let number = command.get_i64("txnNumber").ok().filter(|_| !command.contains_key("autocommit"));
        let session = command.get_document("lsid").ok().and_then(|lsid| lsid.to_vec().ok());
        let (Some(number), Some(session)) = (number, session) else { return execute() };
        if let Some((last, reply)) = self.documents.lock().numbered.get(&session) {
            if *last == number {
                return Ok(reply.clone());
            }
            if *last > number {
                let text = format!("Retryable write with txnNumber {number} is prohibited on a session with {last}");
                return Err(CommandError::new(225, text));
            }
        }
        let reply = execute()?;
        let mut data = self.documents.lock();
        if data.numbered.len() >= SESSIONS_MAX {
            data.numbered.pop_first();
        }
        data.numbered.insert(session, (number, reply.clone()));
        Ok(reply)
    }

    /// Checks the fields of a transaction, and starts it.
    pub(crate) fn begin_in_transaction(&self, command: &Document) -> Result<(), CommandError> {
        self.documents.lock().transactions.begin(command)
    }

    /// Records that a command of a transaction has failed.
    pub(crate) fn fail_in_transaction(&self, command: &Document) {
        self.documents.lock().transactions.fail(command);
    }

    pub(crate) fn commit_transaction(&self, command: &Document) -> Result<Document, CommandError> {
        let mut data = self.documents.lock();
        for (namespace, document) in data.transactions.commit(command)? {
            data.insert_one(&namespace, document)?;
        }
        Ok(doc! { "ok": 1.0 })
    }

    pub(crate) fn abort_transaction(&self, command: &Document) -> Result<Document, CommandError> {
        self.documents.lock().transactions.abort(command)?;
        Ok(doc! { "ok": 1.0 })
    }

    pub(crate) fn insert(&self, command: &Document, batch_count_max: i32) -> Result<Document, CommandError> {
        let namespace = namespace(command, "insert")?;
        let documents = command
            .get_array("documents")
            .map_err(|_| CommandError::new(40414, "BSON field 'insert.documents' is missing but a required field"))?;
        let count_max = usize::try_from(batch_count_max).unwrap_or(0);
        if documents.is_empty() || documents.len() > count_max {
            let message =
                format!("Write batch sizes must be between 1 and {count_max}. Got {} operations.", documents.len());
            return Err(CommandError::new(16, message));
        }
        let ordered = command.get_bool("ordered").unwrap_or(true);
        let mut inserted = 0_i32;
        let mut failures = Vec::new();
        let mut data = self.documents.lock();
        let in_transaction = is_in_transaction(command);
        let mut pending = Vec::new();
        for (index, document) in documents.iter().enumerate() {
            let outcome = match document.as_document() {
                Some(document) if in_transaction => data.check_id(&namespace, document).map(|()| {
                    pending.push((namespace.clone(), document.clone()));
                }),
                Some(document) => data.insert_one(&namespace, document.clone()),
                None => return Err(CommandError::new(14, "documents must be objects")),
            };
            match outcome {
                Ok(()) => inserted += 1,
                Err(error) => {
                    let index = i32::try_from(index).unwrap_or(i32::MAX);
                    let mut failure = doc! { "index": index, "code": error.code, "errmsg": error.message };
                    if let (11000, Some(id)) = (error.code, document.as_document().and_then(|found| found.get("_id"))) {
                        failure.insert("keyPattern", doc! { "_id": 1 });
                        failure.insert("keyValue", doc! { "_id": id.clone() });
                    }
                    failures.push(failure);
                    if ordered {
                        break;
                    }
                }
            }
        }
        if in_transaction && failures.is_empty() {
            data.transactions.insert(command, pending)?;
        } else if in_transaction {
            data.transactions.fail(command);
        }
        let mut reply = doc! { "n": inserted };
        if !failures.is_empty() {
            reply.insert("writeErrors", failures);
        }
        reply.insert("ok", 1.0);
        Ok(reply)
    }

    pub(crate) fn find(&mut self, command: &Document) -> Result<Document, CommandError> {
        let namespace = namespace(command, "find")?;
        if let Some(option) = command.keys().find(|key| !FIND_OPTIONS.contains(&key.as_str())) {
            return Err(CommandError::new(238, format!("the fake server's find has no option '{option}'")));
        }
        let filter = match command.get("filter") {
            None => Document::new(),
            Some(filter) => {
                filter.as_document().cloned().ok_or_else(|| CommandError::new(14, "filter must be an object"))?
            }
        };
        check_filter(&filter)?;
        let limit = match count(command, "limit")?.unwrap_or(0) {
            0 => usize::MAX,
            limit => limit,
        };
        let session = command.get_document("lsid").ok().cloned();
        let mut cursor = Cursor { namespace, session, filter, position: 0, left: usize::MAX };
        cursor.left = count(command, "skip")?.unwrap_or(0);
        if cursor.left > 0 {
            let data = self.documents.lock();
            while cursor.left > 0 && data.next(&mut cursor).is_some() {}
        }
        cursor.left = limit;
        let batch = self.documents.lock().batch(&mut cursor, count(command, "batchSize")?.unwrap_or(FIRST_BATCH_COUNT));
        let single = command.get_bool("singleBatch").unwrap_or(false);
        Ok(self.cursor_reply(cursor, "firstBatch", batch, single))
    }

    pub(crate) fn get_more(&mut self, command: &Document) -> Result<Document, CommandError> {
        let id =
            command.get("getMore").and_then(whole).ok_or_else(|| CommandError::new(14, "getMore must be a long"))?;
        let missing = || CommandError::new(43, format!("cursor id {id} not found"));
        let namespace = namespace(command, "collection")?;
        let mut cursor = self.cursors.remove(&id).ok_or_else(missing)?;
        if cursor.namespace != namespace {
            let message = format!(
                "Requested getMore on namespace '{namespace}', but cursor belongs to a different namespace {}",
                cursor.namespace
            );
            self.cursors.insert(id, cursor);
            return Err(CommandError::new(13, message));
        }
        if cursor.session.as_ref() != command.get_document("lsid").ok() {
            self.cursors.insert(id, cursor);
            return Err(CommandError::new(13, format!("cursor {id} was created in another session")));
        }
        let wanted = match count(command, "batchSize")?.unwrap_or(0) {
            0 => usize::MAX,
            wanted => wanted,
        };
        let batch = self.documents.lock().batch(&mut cursor, wanted);
        Ok(self.cursor_reply_as(id, cursor, "nextBatch", batch, false))
    }

    pub(crate) fn kill_cursors(&mut self, command: &Document) -> Result<Document, CommandError> {
        let namespace = namespace(command, "killCursors")?;
        let ids = command.get_array("cursors").map_err(|_| CommandError::new(14, "cursors must be an array"))?;
        let mut killed = Vec::new();
        let mut unknown = Vec::new();
        for id in ids {
            let id = whole(id).ok_or_else(|| CommandError::new(14, "cursors must hold longs"))?;
            let ours = self.cursors.get(&id).is_some_and(|cursor| cursor.namespace == namespace);
            if ours {
                self.cursors.remove(&id);
                killed.push(Bson::Int64(id));
            } else {
                unknown.push(Bson::Int64(id));
            }
        }
        Ok(doc! {
            "cursorsKilled": killed, "cursorsNotFound": unknown,
            "cursorsAlive": Vec::<Bson>::new(), "cursorsUnknown": Vec::<Bson>::new(), "ok": 1.0,
        })
    }

    pub(crate) fn drop_collection(&mut self, command: &Document) -> Result<Document, CommandError> {
        let namespace = namespace(command, "drop")?;
        let mut data = self.documents.lock();
        let dropped = data.collections.remove(&namespace).ok_or_else(|| CommandError::new(26, "ns not found"))?;
        data.bytes -= dropped.documents.iter().map(size).sum::<usize>();
        data.written = DateTime::now();
        drop(data);
        self.cursors.retain(|_, cursor| cursor.namespace != namespace);
        Ok(doc! { "nIndexesWas": 1, "ns": namespace, "ok": 1.0 })
    }

    pub(crate) fn list_databases(&self) -> Document {
        let mut sizes: BTreeMap<&str, i64> = ["admin", "config", "local"].into_iter().map(|name| (name, 0)).collect();
        let data = self.documents.lock();
        for (namespace, collection) in &data.collections {
            let name = namespace.split('.').next().unwrap_or_default();
            *sizes.entry(name).or_default() +=
                i64::try_from(collection.documents.iter().map(size).sum::<usize>()).unwrap_or(i64::MAX);
        }
        let total: i64 = sizes.values().sum();
        let databases: Vec<Document> = sizes
            .into_iter()
            .map(|(name, size)| doc! { "name": name, "sizeOnDisk": size, "empty": size == 0 })
            .collect();
        doc! { "databases": databases, "totalSize": total, "totalSizeMb": total / (1024 * 1024), "ok": 1.0 }
    }

    fn cursor_reply(&mut self, cursor: Cursor, name: &str, batch: Vec<Bson>, single: bool) -> Document {
        self.cursors_made += 1;
        // Large numbers, to detect clients that truncate an id.
        let id = 0x2545_f491_4f6c_dd1d_i64.wrapping_mul(self.cursors_made) & i64::MAX;
        self.cursor_reply_as(id, cursor, name, batch, single)
    }

    fn cursor_reply_as(&mut self, id: i64, mut cursor: Cursor, name: &str, batch: Vec<Bson>, single: bool) -> Document {
        let namespace = cursor.namespace.clone();
        let (position, left) = (cursor.position, cursor.left);
        let more = !single && self.documents.lock().next(&mut cursor).is_some();
        (cursor.position, cursor.left) = (position, left);
        if more {
            while self.cursors.len() >= CURSORS_MAX {
                self.cursors.pop_first();
            }
            self.cursors.insert(id, cursor);
        }
        let id = if more { id } else { 0 };
        doc! { "cursor": { name: batch, "id": id, "ns": namespace }, "ok": 1.0 }
    }
}

impl Data {
    fn insert_one(&mut self, namespace: &str, document: Document) -> Result<(), CommandError> {
        let document = if document.contains_key("_id") {
            document
        } else {
            let mut with_id = doc! { "_id": ObjectId::new() };
            with_id.extend(document);
            with_id
        };
        let size = size(&document);
        if size > BATCH_BYTES_MAX {
            return Err(CommandError::new(10334, format!("object to insert too large. size in bytes: {size}")));
        }
        if self.bytes + size > self.bytes_max {
            return Err(CommandError::new(14031, "the store of the fake server is full"));
        }
        self.check_id(namespace, &document)?;
        let collection = self.collections.entry(namespace.to_owned()).or_default();
        collection.ids.insert(id_key(document.get("_id").unwrap_or(&Bson::Null)));
        self.bytes += size;
        self.written = DateTime::now();
        collection.documents.push(document);
        Ok(())
    }

    /// Checks that no document has the id of this one.
    fn check_id(&self, namespace: &str, document: &Document) -> Result<(), CommandError> {
        let Some(id) = document.get("_id") else { return Ok(()) };
        if self.collections.get(namespace).is_some_and(|collection| collection.ids.contains(&id_key(id))) {
            let message =
                format!("E11000 duplicate key error collection: {namespace} index: _id_ dup key: {{ _id: {id} }}");
            return Err(CommandError::new(11000, message));
        }
        Ok(())
    }

    fn next(&self, cursor: &mut Cursor) -> Option<&Document> {
        if cursor.left == 0 {
            return None;
        }
        let documents = &self.collections.get(&cursor.namespace)?.documents;
        let rest = documents.get(cursor.position..)?;
        match rest.iter().position(|document| matches(&cursor.filter, document)) {
            Some(offset) => {
                cursor.position += offset + 1;
                cursor.left -= 1;
                rest.get(offset)
            }
            None => {
                cursor.position = documents.len();
                cursor.left = 0;
                None
            }
        }
    }

    fn batch(&self, cursor: &mut Cursor, count_max: usize) -> Vec<Bson> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < count_max {
            let (position, left) = (cursor.position, cursor.left);
            let Some(document) = self.next(cursor) else { break };
            bytes += size(document);
            if bytes > BATCH_BYTES_MAX && !batch.is_empty() {
                (cursor.position, cursor.left) = (position, left);
                break;
            }
            batch.push(Bson::Document(document.clone()));
        }
        batch
    }
}

fn namespace(command: &Document, field: &str) -> Result<String, CommandError> {
    let database = command.get_str("$db").unwrap_or("admin");
    let collection = command.get_str(field).map_err(|_| CommandError::new(73, "collection name has invalid type"))?;
    if collection.is_empty() || database.is_empty() || database.contains('.') {
        return Err(CommandError::new(73, format!("Invalid namespace specified '{database}.{collection}'")));
    }
    Ok(format!("{database}.{collection}"))
}

fn count(command: &Document, field: &str) -> Result<Option<usize>, CommandError> {
    let Some(value) = command.get(field) else { return Ok(None) };
    let count = whole(value).and_then(|count| usize::try_from(count).ok());
    count.map(Some).ok_or_else(|| CommandError::new(2, format!("{field} must be a whole number that is not negative")))
}

fn check_filter(filter: &Document) -> Result<(), CommandError> {
    for (key, value) in filter {
        let operator = if key.starts_with('$') {
            Some(key)
        } else {
            value.as_document().and_then(|value| value.keys().find(|key| key.starts_with('$') && key.as_str() != "$eq"))
        };
        if let Some(operator) = operator {
            return Err(CommandError::new(238, format!("the fake server's find has no operator '{operator}'")));
        }
    }
    Ok(())
}

fn matches(filter: &Document, document: &Document) -> bool {
    filter.iter().all(|(key, wanted)| {
        let wanted =
            wanted.as_document().filter(|inner| inner.len() == 1).and_then(|inner| inner.get("$eq")).unwrap_or(wanted);
        let mut parts = key.split('.');
        let mut found = parts.next().and_then(|part| document.get(part));
        for part in parts {
            found = found.and_then(Bson::as_document).and_then(|inner| inner.get(part));
        }
        match found {
            Some(found) => equal(found, wanted),
            None => matches!(wanted, Bson::Null),
        }
    })
}

fn equal(one: &Bson, other: &Bson) -> bool {
    match (number(one), number(other)) {
        (Some(_), Some(_)) if whole(one).is_some() && whole(other).is_some() => whole(one) == whole(other),
        (Some(one), Some(other)) => one == other,
        (None, _) | (_, None) => one == other,
    }
}

fn id_key(id: &Bson) -> Vec<u8> {
    let id = whole(id).map_or_else(|| id.clone(), Bson::Int64);
    doc! { "_id": id }.to_vec().unwrap_or_default()
}

fn size(document: &Document) -> usize {
    let mut counter = Counter(0);
    // Writing to the counter cannot fail; the decoder never returns keys with a NUL.
    let _ = document.to_writer(&mut counter);
    counter.0
}

struct Counter(usize);

impl std::io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
