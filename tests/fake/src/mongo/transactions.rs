//! The transactions of a fake server: their numbers, states and inserted documents, which become
//! visible at the commit. A `find` of a transaction does not see its own writes.
//!
//! Sections to read first: Transactions, "Constructing commands within a transaction".

use alloc::collections::BTreeMap;

use bson::Document;

use super::errors::CommandError;

/// Number of sessions whose last transaction is kept.
const SESSIONS_MAX: usize = 4096;

/// The last transaction of each session.
#[derive(Debug, Default)]
pub(crate) struct Transactions(BTreeMap<Vec<u8>, Transaction>);

#[derive(Debug)]
struct Transaction {
    number: i64,
    state: State,
}

#[derive(Debug, PartialEq)]
enum State {
    /// Its documents, with the namespace of each.
    Open(Vec<(String, Document)>),
    Committed,
    Aborted,
}

/// The session of a command and its transaction number, if the command belongs to a transaction.
fn key(command: &Document) -> Option<(Vec<u8>, i64)> {
    command.get("autocommit")?;
    Some((command.get_document("lsid").ok()?.to_vec().ok()?, command.get_i64("txnNumber").ok()?))
}

/// Whether the command belongs to a transaction.
pub(crate) fn is_in_transaction(command: &Document) -> bool {
    key(command).is_some()
}

fn no_such_transaction(number: i64) -> CommandError {
    let text = format!("Given transaction number {number} does not match any in-progress transactions.");
    transient(251, text)
}

fn transient(code: i32, text: impl Into<String>) -> CommandError {
    let labels = Some(vec!["TransientTransactionError".to_owned()]);
    CommandError { labels, ..CommandError::new(code, text) }
}

impl Transactions {
    /// Checks the fields of a command, and starts its transaction if it has `startTransaction`.
    pub(crate) fn begin(&mut self, command: &Document) -> Result<(), CommandError> {
        let Some((session, number)) = key(command) else { return Ok(()) };
        if command.contains_key("writeConcern") {
            return Err(CommandError::new(72, "writeConcern is not allowed within a multi-statement transaction"));
        }
        let starts = command.get_bool("startTransaction").unwrap_or(false);
        if !starts {
            if command.contains_key("readConcern") {
                let text = "Only the first command in a transaction may specify a readConcern";
                return Err(CommandError::new(72, text));
            }
            return self.open(&session, number).map(drop);
        }
        if self.0.get(&session).is_some_and(|last| last.number >= number) {
            let text = format!("Cannot start a transaction at given transaction number {number}");
            return Err(CommandError::new(50911, text));
        }
        if self.0.len() >= SESSIONS_MAX {
            self.0.pop_first();
        }
        self.0.insert(session, Transaction { number, state: State::Open(Vec::new()) });
        Ok(())
    }

    /// Adds the documents of an insert, which were checked.
    pub(crate) fn insert(
        &mut self,
        command: &Document,
        documents: Vec<(String, Document)>,
    ) -> Result<(), CommandError> {
        let Some((session, number)) = key(command) else { return Ok(()) };
        self.open(&session, number)?.extend(documents);
        Ok(())
    }

    /// Commits, and returns the documents to be written; none if the transaction was committed
    /// before.
    pub(crate) fn commit(&mut self, command: &Document) -> Result<Vec<(String, Document)>, CommandError> {
        self.end(command, State::Committed)
    }

    /// Aborts.
    pub(crate) fn abort(&mut self, command: &Document) -> Result<(), CommandError> {
        self.end(command, State::Aborted).map(drop)
    }

    /// Aborts the transaction of a command that failed.
    pub(crate) fn fail(&mut self, command: &Document) {
        if let Some((session, number)) = key(command) {
            if let Some(last) = self.0.get_mut(&session).filter(|last| last.number == number) {
                last.state = State::Aborted;
            }
        }
    }

    fn end(&mut self, command: &Document, state: State) -> Result<Vec<(String, Document)>, CommandError> {
        let Some((session, number)) = key(command) else {
            return Err(CommandError::new(125, "the command must run within a transaction"));
        };
        let last = self.0.get_mut(&session).filter(|last| last.number == number);
        let last = last.ok_or_else(|| no_such_transaction(number))?;
        match core::mem::replace(&mut last.state, state) {
            State::Open(documents) => Ok(documents),
            before @ (State::Committed | State::Aborted) => {
                let is_repeated = before == last.state;
                last.state = before;
                if is_repeated { Ok(Vec::new()) } else { Err(no_such_transaction(number)) }
            }
        }
    }

    fn open(&mut self, session: &[u8], number: i64) -> Result<&mut Vec<(String, Document)>, CommandError> {
        match self.0.get_mut(session).filter(|last| last.number == number) {
            Some(Transaction { state: State::Open(documents), .. }) => Ok(documents),
            _ => Err(no_such_transaction(number)),
        }
    }
}
