//! The operations of tests, each as the command that its specification prescribes.

use crate::bulk;
use crate::error::{self, Stop};
use crate::events::Watched;
use crate::matching::integer;
use crate::run::{InSession, Opened, Run, Target, documents, text};
use alloc::rc::Rc;
use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use core::time::Duration;
use poolhouse_smol::poolhouse_core::selection::{ReadPreferenceOptions, TagSet};
use poolhouse_smol::{
    CommandOptions, CursorOptions, DriverInfo, Error, ReadMode, ReadPreference, TimeoutMode, TransactionOptions, W,
    WriteConcern,
};

/// Whether a command reads or writes. Its concerns depend on that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    /// An aggregation that stores its documents: a read and a write.
    Output,
    /// A read without a read concern.
    List,
    /// As the test has it.
    Plain,
}

/// Arguments that are fields of the command.
const FIELDS: [&str; 22] = [
    "sort",
    "projection",
    "skip",
    "limit",
    "batchSize",
    "hint",
    "max",
    "min",
    "showRecordId",
    "returnKey",
    "let",
    "rawData",
    "allowDiskUse",
    "collation",
    "comment",
    "maxTimeMS",
    "arrayFilters",
    "bypassDocumentValidation",
    "ordered",
    "upsert",
    "allowPartialResults",
    "noCursorTimeout",
];

/// Arguments that are not fields of the command.
const NOT_FIELDS: [&str; 6] = ["session", "timeoutMS", "timeoutMode", "cursorType", "maxAwaitTimeMS", "filter"];

pub(crate) fn unsupported<T>(what: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Unsupported(what.into()))
}

pub(crate) fn millis(value: &Bson) -> Option<Duration> {
    u64::try_from(integer(value)?).ok().map(Duration::from_millis)
}

fn preference_of(preference: &Document) -> Result<ReadPreference<'static>, Stop> {
    let mut options = ReadPreferenceOptions::default();
    for (name, value) in preference {
        match name.as_str() {
            "mode" => options.mode = mode_of(value.as_str().unwrap_or_default())?,
            "maxStalenessSeconds" => {
                options.max_staleness_seconds = integer(value).and_then(|seconds| u64::try_from(seconds).ok());
            }
            "tagSets" => options.tag_sets = tag_sets_of(value).leak(),
            other => return unsupported(format!("{other} of a read preference")),
        }
    }
    options.validate().map_err(|error| Stop::Fault(format!("{preference}: {error}")))
}

/// The tag sets of a test, which live as long as the process: few tests have some.
fn tag_sets_of(sets: &Bson) -> Vec<TagSet<'static>> {
    let leaked = |text: &str| -> &'static str { text.to_owned().leak() };
    let tag = |(name, value): (&String, &Bson)| (leaked(name), leaked(value.as_str().unwrap_or_default()));
    let sets = sets.as_array().into_iter().flatten().filter_map(Bson::as_document);
    sets.map(|set| -> TagSet<'static> { set.iter().map(tag).collect::<Vec<_>>().leak() }).collect()
}

fn mode_of(mode: &str) -> Result<ReadMode, Stop> {
    let modes = [
        ("primary", ReadMode::Primary),
        ("primarypreferred", ReadMode::PrimaryPreferred),
        ("secondary", ReadMode::Secondary),
        ("secondarypreferred", ReadMode::SecondaryPreferred),
        ("nearest", ReadMode::Nearest),
    ];
    let found = modes.into_iter().find(|(name, _)| *name == mode.to_ascii_lowercase());
    found.map(|(_, mode)| mode).ok_or_else(|| Stop::Fault(format!("unknown read preference {mode}")))
}

/// A command that is about to run.
pub(crate) struct Call<'c> {
    pub(crate) run: &'c Rc<Run>,
    pub(crate) watched: Rc<Watched>,
    pub(crate) target: Target,
    pub(crate) arguments: &'c Document,
    pub(crate) session: Option<InSession<'c>>,
}

impl Run {
    /// Runs an operation on an entity.
    pub(crate) async fn call(
        self: &Rc<Self>,
        operation: &Document,
        name: &str,
        object: &str,
        arguments: &Document,
        session: Option<InSession<'_>>,
    ) -> Result<Option<Bson>, Stop> {
        if self.sessions.borrow().contains_key(object) {
            return match session {
                Some(session) => self.on_session(name, arguments, session).await,
                None => Err(Stop::Fault("no session".to_owned())),
            };
        }
        let is_cursor = ["iterateUntilDocumentOrError", "iterateOnce"].contains(&name);
        if is_cursor || name == "close" && self.cursors.borrow().contains_key(object) {
            return self.on_cursor(name, object, arguments).await;
        }
        let target = self.target(object)?;
        let watched = self.client(&target.client)?;
        let mut call = Call { run: self, watched, target, arguments, session };
        let result = call.execute(name).await?;
        match result {
            Outcome::Value(_) if name == "createCollection" => {
                if let Ok(id) = operation.get_str("saveResultAsEntity") {
                    let collection = text(arguments, "collection")?.to_owned();
                    self.add_target(id, Target { collection, ..call.target });
                }
                Ok(None)
            }
            Outcome::Value(value) => Ok(value),
            Outcome::Cursor(cursor) => {
                if let Ok(id) = operation.get_str("saveResultAsEntity") {
                    if name == "createChangeStream" {
                        self.change_streams.borrow_mut().insert(id.to_owned());
                    }
                    self.cursors.borrow_mut().insert(id.to_owned(), cursor);
                }
                Ok(None)
            }
        }
    }

    async fn on_cursor(&self, name: &str, id: &str, arguments: &Document) -> Result<Option<Bson>, Stop> {
        let taken = self.cursors.borrow_mut().remove(id);
        let is_change_stream = self.change_streams.borrow().contains(id);
        let mut cursor = match taken {
            Some(cursor) => cursor,
            None if is_change_stream => return unsupported("a change stream that resumes"),
            None => return Err(Stop::Fault(format!("no cursor {id}"))),
        };
        let of = if let Opened::In(of, _) = &cursor { of.clone() } else { String::new() };
        let mut session = self.sessions.borrow_mut().get_mut(&of).and_then(|it| it.session.take());
        let result = if name == "close" {
            let limit = arguments.get("timeoutMS").and_then(millis);
            let closed = match (cursor, &mut session, limit) {
                (Opened::Own(cursor), _, None) => cursor.close().await,
                (Opened::Own(cursor), _, Some(limit)) => cursor.close_within(limit).await,
                (Opened::In(_, cursor), Some(session), None) => cursor.close(session).await,
                (Opened::In(_, cursor), Some(session), Some(limit)) => cursor.close_within(session, limit).await,
                (Opened::In(..), None, _) => Ok(()),
            };
            // The client returns the error of `killCursors`, which the specification ignores.
            drop(closed);
            Ok(None)
        } else {
            let is_once = name == "iterateOnce";
            let result = match (&mut cursor, &mut session) {
                (Opened::Own(cursor), _) if is_once => cursor.next_if_any().await.map_err(Stop::from),
                (Opened::Own(cursor), _) => cursor.try_next().await.map_err(Stop::from),
                (Opened::In(_, cursor), Some(session)) if is_once => {
                    cursor.next_if_any(session).await.map_err(Stop::from)
                }
                (Opened::In(_, cursor), Some(session)) => cursor.try_next(session).await.map_err(Stop::from),
                (Opened::In(..), None) => Err(Stop::Fault(format!("session {of} is in use, or has ended"))),
            };
            // The next call on a change stream that timed out resumes it.
            if !is_change_stream || result.is_ok() {
                self.cursors.borrow_mut().insert(id.to_owned(), cursor);
            }
            result
        };
        if let (Some(of), Some(session)) = (self.sessions.borrow_mut().get_mut(&of), session) {
            of.session = Some(session);
        }
        if is_change_stream && result.as_ref().is_err_and(error::is_resumable) {
            return unsupported("a change stream that resumes");
        }
        match result? {
            None if name == "close" => Ok(None),
            Some(document) => Ok(Some(Bson::Document(document))),
            None if name == "iterateOnce" => Ok(None),
            None => Err(Stop::Fault("the cursor has ended".to_owned())),
        }
    }

    async fn on_session(
        self: &Rc<Self>,
        name: &str,
        arguments: &Document,
        session: InSession<'_>,
    ) -> Result<Option<Bson>, Stop> {
        let limit = arguments.get("timeoutMS").and_then(millis);
        match name {
            "startTransaction" => {
                let options = self.transaction(session.id, arguments)?;
                session.session.start_transaction(options)?;
            }
            "commitTransaction" => match limit {
                None => session.session.commit_transaction().await?,
                Some(limit) => session.session.commit_transaction_within(limit).await?,
            },
            "abortTransaction" => match limit {
                None => session.session.abort_transaction().await?,
                Some(limit) => session.session.abort_transaction_within(limit).await?,
            },
            "withTransaction" => {
                let options = self.transaction(session.id, arguments)?;
                let id = session.id;
                // An error that the callback returns ends the transaction, and is the result.
                let work = async |current: &mut poolhouse_smol::ClientSession| -> Result<(), Fault> {
                    for operation in documents(arguments, "callback") {
                        let current = InSession { id, session: &mut *current };
                        Box::pin(self.compared(operation, Some(current))).await.map_err(Fault)?;
                    }
                    Ok(())
                };
                session.session.with_transaction(options, work).await.map_err(|fault| fault.0)?;
            }
            "getSnapshotTime" => match session.session.snapshot_time() {
                Some(time) => return Ok(Some(Bson::Timestamp(time))),
                None => return Err(Stop::Refused("the session has no snapshot time".to_owned())),
            },
            other => return unsupported(format!("operation {other} of a session")),
        }
        Ok(None)
    }

    fn transaction(&self, id: &str, arguments: &Document) -> Result<TransactionOptions, Stop> {
        let mut given = self.sessions.borrow().get(id).map(|it| it.transaction.clone()).unwrap_or_default();
        given.extend(arguments.clone());
        let mut options = TransactionOptions::new();
        self.preferences.borrow_mut().remove(id);
        for (name, value) in &given {
            match (name.as_str(), value) {
                ("readConcern", Bson::Document(concern)) => {
                    options.read_concern_level = concern.get_str("level").ok().map(str::to_owned);
                }
                ("writeConcern", Bson::Document(concern)) => options.write_concern = Some(write_concern(concern)?),
                ("maxCommitTimeMS", time) => options.max_commit_time = millis(time),
                ("timeoutMS", time) => options.timeout = millis(time),
                ("readPreference", Bson::Document(preference)) => {
                    self.preferences.borrow_mut().insert(id.to_owned(), preference.clone());
                }
                ("callback", _) => {}
                (other, _) => return unsupported(format!("{other} of a transaction")),
            }
        }
        Ok(options)
    }
}

/// The error of a callback, which the client must be able to add to.
pub(crate) struct Fault(Stop);

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self(error.into())
    }
}

fn write_concern(given: &Document) -> Result<WriteConcern, Stop> {
    let mut concern = WriteConcern::default();
    for (name, value) in given {
        match (name.as_str(), value) {
            ("w", Bson::String(name)) => concern.w = Some(W::Name(name.as_str().into())),
            ("w", count) => {
                let count = integer(count).and_then(|count| u32::try_from(count).ok());
                concern.w = Some(W::Nodes(count.ok_or("w".to_owned())?));
            }
            ("journal" | "j", journal) => concern.journal = journal.as_bool(),
            ("wtimeoutMS" | "wtimeout", time) => concern.w_timeout = millis(time),
            (other, _) => return unsupported(format!("{other} of a write concern")),
        }
    }
    Ok(concern)
}

/// The result of an operation.
pub(crate) enum Outcome {
    Value(Option<Bson>),
    Cursor(Opened),
}

impl From<Bson> for Outcome {
    fn from(value: Bson) -> Self {
        Self::Value(Some(value))
    }
}

impl Call<'_> {
    fn argument(&self, name: &str) -> Result<Bson, Stop> {
        self.arguments.get(name).cloned().ok_or_else(|| Stop::Fault(format!("no argument {name}")))
    }

    fn document(&self, name: &str) -> Result<Document, Stop> {
        match self.argument(name)? {
            Bson::Document(document) => Ok(document),
            other => Err(Stop::Fault(format!("{name} is {other}"))),
        }
    }

    /// The arguments that are fields of the command. `except`: those that the caller has put elsewhere.
    fn fields(&self, command: &mut Document, except: &[&str]) -> Result<(), Stop> {
        for (name, value) in self.arguments {
            let is_known = NOT_FIELDS.contains(&name.as_str()) || except.contains(&name.as_str());
            if is_known {
                continue;
            }
            if !FIELDS.contains(&name.as_str()) {
                return unsupported(format!("argument {name}"));
            }
            command.insert(name, value.clone());
        }
        Ok(())
    }

    /// An option of the operation, the collection, the database or the client.
    fn option<'o>(&'o self, of_operation: &str, of_client: &str) -> Option<&'o Bson> {
        let own = self.arguments.get(of_operation).or_else(|| self.target.options.get(of_operation));
        own.or_else(|| self.watched.options.get(of_client))
    }

    /// Whether a time limit applies, which replaces `wtimeout` and `maxTimeMS`.
    fn has_limit(&self) -> bool {
        self.option("timeoutMS", "timeoutMS").is_some()
    }

    fn is_in_transaction(&self) -> bool {
        self.session.as_ref().is_some_and(|it| it.session.in_transaction())
    }

    /// Adds the concerns that a collection of the client will add.
    fn concerns(&self, command: &mut Document, kind: Kind) -> Result<(), Stop> {
        if self.is_in_transaction() {
            return Ok(());
        }
        let client = &self.watched.options;
        if matches!(kind, Kind::Read | Kind::Output) {
            let level = || client.get_str("readConcernLevel").ok().map(|level| doc! { "level": level });
            let own = self.target.options.get_document("readConcern").ok().cloned();
            if let Some(concern) = own.or_else(level).filter(|concern| !concern.is_empty()) {
                command.insert("readConcern", concern);
            }
        }
        if matches!(kind, Kind::Write | Kind::Output) {
            let mut concern = Document::new();
            for (option, field) in
                [("w", "w"), ("journal", "j"), ("wTimeoutMS", "wtimeout"), ("wtimeoutMS", "wtimeout")]
            {
                if let Some(value) = client.get(option) {
                    concern.insert(field, value.clone());
                }
            }
            for options in [&self.target.options, self.arguments] {
                if let Ok(own) = options.get_document("writeConcern") {
                    concern = crate::operations::write_concern(own)?.to_document();
                }
            }
            if self.has_limit() {
                concern.remove("wtimeout");
            }
            if !concern.is_empty() {
                command.insert("writeConcern", concern);
            }
        }
        Ok(())
    }

    /// The options of a command.
    fn options(&self, kind: Kind) -> Result<CommandOptions<'static>, Stop> {
        let mut options = CommandOptions::new();
        options.timeout =
            self.arguments.get("timeoutMS").or_else(|| self.target.options.get("timeoutMS")).and_then(millis);
        options.retry = kind != Kind::Plain;
        // Members before 5.0 store documents on the primary only.
        let reads = kind == Kind::Read || kind == Kind::Output && self.run.deployment.version.as_slice() >= &[5];
        let own = |of: &Document| of.get_document("readPreference").ok().map(preference_of).transpose();
        let mut preference = None;
        if let Some(session) = self.session.as_ref().filter(|it| it.session.in_transaction()) {
            let preferences = self.run.preferences.borrow();
            preference = preferences.get(session.id).filter(|_| reads).map(preference_of).transpose()?;
        } else if reads {
            preference = own(self.arguments)?.map_or_else(|| own(&self.target.options), |it| Ok(Some(it)))?;
        } else if kind == Kind::Plain {
            preference = own(self.arguments)?;
        }
        if let (true, None, Ok(mode)) = (reads, preference, self.watched.options.get_str("readPreference")) {
            preference = Some(preference_of(&doc! { "mode": mode })?);
        }
        options.read_preference = preference.filter(|it| it.options().mode != ReadMode::Primary);
        Ok(options)
    }

    /// Removes what a time limit or the server's release forbids, and adds the concerns.
    fn adapt(&self, kind: Kind, command: &mut Document) -> Result<(), Stop> {
        if self.has_limit() {
            command.remove("maxTimeMS");
        }
        if self.run.deployment.version.as_slice() < &[8, 2] {
            command.remove("rawData");
        }
        self.concerns(command, kind)
    }

    /// Runs a command with the concerns of its kind.
    pub(crate) async fn run(&mut self, kind: Kind, mut command: Document) -> Result<Document, Stop> {
        self.adapt(kind, &mut command)?;
        let options = self.options(kind)?;
        let (client, database) = (self.watched.client.clone(), self.target.database.clone());
        Ok(match &mut self.session {
            None => client.run_command_with(&database, command, options).await?,
            Some(it) => it.session.run_command_with(&database, command, options).await?,
        })
    }

    /// Runs a command that replies with a cursor.
    async fn open(&mut self, kind: Kind, mut command: Document) -> Result<Opened, Stop> {
        let (options, further) = self.prepare(kind, &mut command)?;
        let database = &self.target.database;
        Ok(match &mut self.session {
            None => {
                let cursor = self.watched.client.run_cursor_command(database, command, options, further).await?;
                Opened::Own(Box::new(cursor))
            }
            Some(it) => {
                let cursor = it.session.run_cursor_command(database, command, options, further).await?;
                Opened::In(it.id.to_owned(), Box::new(cursor))
            }
        })
    }

    fn prepare(&self, kind: Kind, command: &mut Document) -> Result<(CommandOptions<'static>, CursorOptions), Stop> {
        self.adapt(kind, command)?;
        let mut further = CursorOptions::new();
        let size = self.arguments.get("batchSize").and_then(integer).and_then(|size| u32::try_from(size).ok());
        further.batch_size = size.filter(|size| *size > 0);
        further.comment = self.arguments.get("comment").cloned();
        // `maxTimeMS` of a command that the test has written is that of `getMore`.
        let of_batches = if kind == Kind::Plain { "maxTimeMS" } else { "maxAwaitTimeMS" };
        let time = self.arguments.get("maxAwaitTimeMS").or_else(|| self.arguments.get(of_batches));
        further.max_await_time = time.and_then(millis);
        let is_limited = self.option("timeoutMS", "timeoutMS").and_then(integer).is_some_and(|limit| limit > 0);
        let is_tailable = self.arguments.get_str("cursorType").is_ok_and(|kind| kind != "nonTailable")
            || is_change_stream(command)
            || further.max_await_time.is_some();
        let mode = self.arguments.get_str("timeoutMode");
        further.timeout_mode = match mode {
            Ok("iteration") => Some(TimeoutMode::Iteration),
            Ok("cursorLifetime") => Some(TimeoutMode::CursorLifetime),
            Ok(other) => return Err(Stop::Fault(format!("unknown mode {other}"))),
            Err(_) if is_limited && !is_tailable => Some(TimeoutMode::CursorLifetime),
            Err(_) => None,
        };
        Ok((self.options(kind)?, further))
    }

    /// All documents of a cursor.
    async fn all(&mut self, kind: Kind, command: Document) -> Result<Vec<Bson>, Stop> {
        let mut found = Vec::new();
        let mut cursor = self.open(kind, command).await?;
        while let Some(document) = match (&mut cursor, &mut self.session) {
            (Opened::Own(cursor), _) => cursor.try_next().await?,
            (Opened::In(_, cursor), Some(it)) => cursor.try_next(it.session).await?,
            (Opened::In(..), None) => None,
        } {
            found.push(Bson::Document(document));
        }
        Ok(found)
    }

    fn find(&self) -> Result<Document, Stop> {
        let mut command = doc! { "find": self.target.collection.as_str(), "filter": self.argument("filter")? };
        self.fields(&mut command, &[])?;
        match self.arguments.get_str("cursorType") {
            Ok("tailable") => drop(command.insert("tailable", true)),
            Ok("tailableAwait") => {
                command.insert("tailable", true);
                command.insert("awaitData", true);
            }
            Ok("nonTailable") | Err(_) => {}
            Ok(other) => return Err(Stop::Fault(format!("unknown type {other}"))),
        }
        let number = |name| self.arguments.get(name).and_then(integer);
        if let (Some(limit), Some(size)) = (number("limit"), number("batchSize")) {
            if limit == size {
                // Otherwise a cursor stays open for nothing.
                command.insert("batchSize", size + 1);
            }
        }
        Ok(command)
    }

    fn aggregate(&self, pipeline: Bson) -> Result<(Document, Kind), Stop> {
        let of = match self.target.collection.as_str() {
            "" => Bson::Int32(1),
            name => name.into(),
        };
        let mut command = doc! { "aggregate": of, "pipeline": pipeline };
        let writes = documents(&command, "pipeline")
            .last()
            .is_some_and(|stage| stage.contains_key("$out") || stage.contains_key("$merge"));
        self.fields(&mut command, &["pipeline", "batchSize"])?;
        let mut cursor = Document::new();
        if let Some(size) = self.arguments.get("batchSize").filter(|_| !writes) {
            cursor.insert("batchSize", size.clone());
        }
        command.insert("cursor", cursor);
        Ok((command, if writes { Kind::Output } else { Kind::Read }))
    }

    fn change_stream(&mut self) -> Result<Document, Stop> {
        let mut stage = Document::new();
        let mut command = Document::new();
        let mut cursor = Document::new();
        for (name, value) in self.arguments {
            match name.as_str() {
                "fullDocument"
                | "fullDocumentBeforeChange"
                | "showExpandedEvents"
                | "resumeAfter"
                | "startAfter"
                | "startAtOperationTime" => drop(stage.insert(name, value.clone())),
                "batchSize" => drop(cursor.insert("batchSize", value.clone())),
                "comment" | "collation" => drop(command.insert(name, value.clone())),
                "pipeline" | "timeoutMS" | "maxAwaitTimeMS" => {}
                other => return unsupported(format!("argument {other}")),
            }
        }
        let of: Bson = match (self.target.collection.as_str(), self.target.is_client) {
            ("", true) => {
                stage.insert("allChangesForCluster", true);
                self.target.database = "admin".to_owned();
                1.into()
            }
            ("", false) => 1.into(),
            (name, _) => name.into(),
        };
        let mut pipeline = vec![Bson::Document(doc! { "$changeStream": stage })];
        pipeline.extend(self.arguments.get_array("pipeline").cloned().unwrap_or_default());
        let mut whole = doc! { "aggregate": of, "pipeline": pipeline, "cursor": cursor };
        whole.extend(command);
        Ok(whole)
    }

    async fn execute(&mut self, name: &str) -> Result<Outcome, Stop> {
        let collection = self.target.collection.clone();
        Ok(match name {
            "find" => Bson::Array(self.all(Kind::Read, self.find()?).await?).into(),
            "findOne" => {
                let mut command = self.find()?;
                command.insert("limit", 1);
                command.insert("singleBatch", true);
                let found = self.all(Kind::Read, command).await?;
                Outcome::Value(Some(found.into_iter().next().unwrap_or(Bson::Null)))
            }
            "createFindCursor" => Outcome::Cursor(self.open(Kind::Read, self.find()?).await?),
            "aggregate" => {
                let (command, kind) = self.aggregate(self.argument("pipeline")?)?;
                Bson::Array(self.all(kind, command).await?).into()
            }
            "countDocuments" => self.count_documents().await?.into(),
            "estimatedDocumentCount" | "count" => {
                let mut command = doc! { "count": collection };
                if let Some(filter) = self.arguments.get("filter") {
                    command.insert("query", filter.clone());
                }
                self.fields(&mut command, &[])?;
                let reply = self.run(Kind::Read, command).await?;
                reply.get("n").cloned().unwrap_or(Bson::Null).into()
            }
            "distinct" => {
                let mut command = doc! {
                    "distinct": collection, "key": self.argument("fieldName")?, "query": self.argument("filter")?,
                };
                self.fields(&mut command, &["fieldName"])?;
                let reply = self.run(Kind::Read, command).await?;
                reply.get("values").cloned().unwrap_or(Bson::Null).into()
            }
            "insertOne" | "insertMany" | "updateOne" | "updateMany" | "replaceOne" | "deleteOne" | "deleteMany"
            | "bulkWrite" => bulk::write(self, name).await?,
            "findOneAndUpdate" | "findOneAndReplace" | "findOneAndDelete" => self.find_and_modify(name).await?,
            "clientBulkWrite" => return unsupported("the client's bulkWrite"),
            "createIndex" => self.create_index().await?,
            "dropIndex" | "dropIndexes" => {
                let index = if name == "dropIndex" { self.argument("name")? } else { "*".into() };
                let mut command = doc! { "dropIndexes": collection, "index": index };
                self.fields(&mut command, &["name"])?;
                self.run(Kind::Write, command).await?;
                Outcome::Value(None)
            }
            "listIndexes" | "listIndexNames" => {
                let mut command = doc! { "listIndexes": collection };
                self.batches(&mut command)?;
                names_of(self.all(Kind::List, command).await?, name == "listIndexNames")
            }
            "createSearchIndex" | "createSearchIndexes" => {
                let models = match name {
                    "createSearchIndex" => vec![self.argument("model")?],
                    _ => self.argument("models")?.as_array().cloned().unwrap_or_default(),
                };
                let command = doc! { "createSearchIndexes": collection, "indexes": models };
                let reply = self.run(Kind::Plain, command).await?;
                let created = documents(&reply, "indexesCreated").filter_map(|index| index.get("name").cloned());
                let names: Vec<_> = created.collect();
                if name == "createSearchIndex" {
                    names.into_iter().next().unwrap_or(Bson::Null).into()
                } else {
                    Bson::Array(names).into()
                }
            }
            "updateSearchIndex" | "dropSearchIndex" => {
                let mut command = doc! { name: collection, "name": self.argument("name")? };
                if let Some(definition) = self.arguments.get("definition") {
                    command.insert("definition", definition.clone());
                }
                self.run(Kind::Plain, command).await?;
                Outcome::Value(None)
            }
            "listSearchIndexes" => {
                let index = self.arguments.get("name").map(|name| doc! { "name": name.clone() }).unwrap_or_default();
                let pipeline = Bson::Array(vec![doc! { "$listSearchIndexes": index }.into()]);
                let mut command = doc! { "aggregate": collection, "pipeline": pipeline };
                let options = self.arguments.get_document("aggregationOptions").cloned().unwrap_or_default();
                command.insert("cursor", options);
                Bson::Array(self.all(Kind::List, command).await?).into()
            }
            "rename" => {
                let namespace = |name: &str| format!("{}.{name}", self.target.database);
                let to = self.argument("to")?;
                let to = namespace(to.as_str().unwrap_or_default());
                let mut command = doc! { "renameCollection": namespace(&collection), "to": to };
                self.fields(&mut command, &["to"])?;
                self.target.database = "admin".to_owned();
                self.run(Kind::Write, command).await?;
                Outcome::Value(None)
            }
            "mapReduce" => {
                let mut command = doc! { "mapReduce": collection };
                for (name, value) in self.arguments {
                    command.insert(name, value.clone());
                }
                let is_inline = self.arguments.get_document("out").is_ok_and(|out| out.contains_key("inline"));
                let reply = self.run(if is_inline { Kind::Read } else { Kind::Write }, command).await?;
                reply.get("results").cloned().unwrap_or(Bson::Null).into()
            }
            "runCommand" => {
                let command = self.command()?;
                Outcome::Value(Some(self.run(Kind::Plain, command).await?.into()))
            }
            "runCursorCommand" | "createCommandCursor" => {
                let command = self.command()?;
                if name == "createCommandCursor" {
                    Outcome::Cursor(self.open(Kind::Plain, command).await?)
                } else {
                    Bson::Array(self.all(Kind::Plain, command).await?).into()
                }
            }
            "createCollection" | "modifyCollection" => {
                let first = if name == "createCollection" { "create" } else { "collMod" };
                let mut command = doc! { first: self.argument("collection")? };
                for (name, value) in self.arguments {
                    if !["collection", "session", "timeoutMS"].contains(&name.as_str()) {
                        command.insert(name, value.clone());
                    }
                }
                self.run(Kind::Write, command).await?;
                Outcome::Value(None)
            }
            "dropCollection" => {
                let command = doc! { "drop": self.argument("collection")? };
                match self.run(Kind::Write, command).await {
                    Err(Stop::Error(error, _)) if error.code() == Some(26) => {}
                    other => drop(other?),
                }
                Outcome::Value(None)
            }
            "dropDatabase" => {
                if let Ok(database) = self.arguments.get_str("database") {
                    self.target.database = database.to_owned();
                }
                self.run(Kind::Write, doc! { "dropDatabase": 1 }).await?;
                Outcome::Value(None)
            }
            "listCollections" | "listCollectionNames" | "listCollectionObjects" => {
                let mut command = doc! { "listCollections": 1 };
                if let Some(filter) = self.arguments.get("filter") {
                    command.insert("filter", filter.clone());
                }
                if name == "listCollectionNames" {
                    command.insert("nameOnly", true);
                }
                self.batches(&mut command)?;
                names_of(self.all(Kind::List, command).await?, name == "listCollectionNames")
            }
            "listDatabases" | "listDatabaseNames" | "listDatabaseObjects" => {
                let mut command = doc! { "listDatabases": 1 };
                if let Some(filter) = self.arguments.get("filter") {
                    command.insert("filter", filter.clone());
                }
                if name == "listDatabaseNames" {
                    command.insert("nameOnly", true);
                }
                self.fields(&mut command, &[])?;
                let reply = self.run(Kind::List, command).await?;
                let found = reply.get_array("databases").cloned().unwrap_or_default();
                names_of(found, name == "listDatabaseNames")
            }
            "createChangeStream" => {
                let command = self.change_stream()?;
                Outcome::Cursor(self.open(Kind::Read, command).await?)
            }
            "close" => {
                self.watched.client.close().await;
                Outcome::Value(None)
            }
            "appendMetadata" => {
                let given = self.document("driverInfoOptions")?;
                let part = |name: &str| given.get_str(name).unwrap_or_default().to_owned();
                let mut info = DriverInfo::new(part("name"));
                if given.contains_key("version") {
                    info = info.version(part("version"));
                }
                if given.contains_key("platform") {
                    info = info.platform(part("platform"));
                }
                self.watched.client.append_metadata(info)?;
                Outcome::Value(None)
            }
            other => return unsupported(format!("operation {other}")),
        })
    }

    /// The command of a test, with its name as the first field.
    fn command(&self) -> Result<Document, Stop> {
        let given = self.document("command")?;
        let first = given.keys().next().map(String::as_str);
        let name = self.arguments.get_str("commandName").ok().or(first).unwrap_or_default();
        let mut command = doc! { name: given.get(name).cloned().unwrap_or(Bson::Int32(1)) };
        command.extend(given.clone());
        Ok(command)
    }

    fn batches(&self, command: &mut Document) -> Result<(), Stop> {
        self.fields(command, &["batchSize"])?;
        let size = self.arguments.get("batchSize").map(|size| doc! { "batchSize": size.clone() });
        command.insert("cursor", size.unwrap_or_default());
        Ok(())
    }

    async fn count_documents(&mut self) -> Result<Bson, Stop> {
        let mut pipeline = vec![Bson::Document(doc! { "$match": self.argument("filter")? })];
        for (name, stage) in [("skip", "$skip"), ("limit", "$limit")] {
            if let Some(count) = self.arguments.get(name) {
                pipeline.push(doc! { stage: count.clone() }.into());
            }
        }
        pipeline.push(doc! { "$group": { "_id": 1, "n": { "$sum": 1 } } }.into());
        let mut command = doc! { "aggregate": self.target.collection.as_str(), "pipeline": pipeline, "cursor": {} };
        self.fields(&mut command, &["skip", "limit"])?;
        let reply = self.run(Kind::Read, command).await?;
        let cursor = reply.get_document("cursor").map_err(|error| error.to_string())?;
        let count = documents(cursor, "firstBatch").next().and_then(|group| group.get("n").cloned());
        Ok(count.unwrap_or(Bson::Int32(0)))
    }

    async fn find_and_modify(&mut self, name: &str) -> Result<Outcome, Stop> {
        let mut command = doc! { "findAndModify": self.target.collection.as_str(), "query": self.argument("filter")? };
        match name {
            "findOneAndDelete" => drop(command.insert("remove", true)),
            "findOneAndUpdate" => {
                bulk::check_update(&self.argument("update")?)?;
                command.insert("update", self.argument("update")?);
            }
            _ => {
                bulk::check_replacement(&self.argument("replacement")?)?;
                command.insert("update", self.argument("replacement")?);
            }
        }
        match self.arguments.get_str("returnDocument") {
            Ok("After") => drop(command.insert("new", true)),
            Ok("Before") | Err(_) => {}
            Ok(other) => return Err(Stop::Fault(format!("unknown value {other} of returnDocument"))),
        }
        self.fields(&mut command, &["update", "replacement", "returnDocument", "projection"])?;
        if let Some(projection) = self.arguments.get("projection") {
            command.insert("fields", projection.clone());
        }
        let reply = self.run(Kind::Write, command).await?;
        let concern = self.target.options.get_document("writeConcern");
        let is_acknowledged = self.is_in_transaction() || concern.map_or(true, |it| !is_unacknowledged(it));
        Ok(Outcome::Value(is_acknowledged.then(|| reply.get("value").cloned().unwrap_or(Bson::Null))))
    }

    async fn create_index(&mut self) -> Result<Outcome, Stop> {
        let keys = self.document("keys")?;
        let default =
            || keys.iter().map(|(key, order)| format!("{key}_{}", shown(order))).collect::<Vec<_>>().join("_");
        let name = self.arguments.get_str("name").map_or_else(|_| default(), str::to_owned);
        let mut index = doc! { "key": keys.clone(), "name": name.as_str() };
        let mut further = Document::new();
        for (name, value) in self.arguments {
            match name.as_str() {
                "keys" | "name" | "session" | "timeoutMS" => {}
                "maxTimeMS" | "comment" | "rawData" => drop(further.insert(name, value.clone())),
                _ => drop(index.insert(name, value.clone())),
            }
        }
        let mut command = doc! { "createIndexes": self.target.collection.as_str(), "indexes": [index] };
        command.extend(further);
        self.run(Kind::Write, command).await?;
        Ok(Bson::String(name).into())
    }
}

fn shown(order: &Bson) -> String {
    order.as_str().map_or_else(|| order.to_string(), str::to_owned)
}

fn is_unacknowledged(concern: &Document) -> bool {
    concern.get("w").and_then(integer) == Some(0)
}

fn is_change_stream(command: &Document) -> bool {
    documents(command, "pipeline").next().is_some_and(|stage| stage.contains_key("$changeStream"))
}

fn names_of(found: Vec<Bson>, are_names: bool) -> Outcome {
    if !are_names {
        return Bson::Array(found).into();
    }
    let names = found.iter().filter_map(|it| it.as_document()?.get("name").cloned());
    Bson::Array(names.collect()).into()
}

/// A document with an `_id`, which is its first field.
pub(crate) fn with_id(document: Document) -> (Document, Bson) {
    if let Some(id) = document.get("_id") {
        let id = id.clone();
        return (document, id);
    }
    let id = Bson::ObjectId(ObjectId::new());
    let mut whole = doc! { "_id": id.clone() };
    whole.extend(document);
    (whole, id)
}
