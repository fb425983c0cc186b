//! Writes that failed although the command succeeded.
//!
//! Read first: Retryable Writes, "Determining Retryable Errors"; the servers' documentation of
//! `insert`, on its output.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use poolhouse_wire::peer_text::OneLine;

/// A reply with `ok: 1` that has `writeErrors` or a `writeConcernError`: some or all of the writes
/// of a command failed, or were not acknowledged as its write concern requires.
///
/// If the reply has several errors, the fields describe the first write error. All of them are in
/// the reply.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct WriteError {
    /// The address of the server that replied.
    pub server: String,
    /// The numeric error code; 0 if the reply has none. A duplicate key is 11000.
    pub code: i32,
    /// The name of the code, if the reply has one.
    pub code_name: Option<String>,
    /// The index of the failed statement in the command, from 0. `None` for a write concern error:
    /// the server executed the writes, but did not acknowledge them as required.
    pub index: Option<i32>,
    /// The error message, if the reply has one.
    pub message: Option<String>,
    /// The error labels of the reply and of its write concern error.
    pub labels: Vec<String>,
    /// The server's details (`errInfo`), such as the violated rule of a validator; empty if the
    /// reply has none.
    pub details: bson::Document,
    /// The whole reply: `n`, all `writeErrors` and `writeConcernError`.
    pub reply: bson::Document,
}

impl WriteError {
    /// Reads the errors of a reply. A field of a wrong type counts as absent.
    pub(crate) fn new(server: &str, reply: bson::Document) -> Self {
        let write_concern = reply.get_document("writeConcernError").ok();
        let first = reply.get_array("writeErrors").ok().and_then(|errors| errors.first()?.as_document());
        let error = first.or(write_concern);
        let text = |key| error.and_then(|error| error.get_str(key).ok()).map(str::to_owned);
        let number = |key| error.and_then(|error| integer(error.get(key)?));
        let labels = [Some(&reply), write_concern].into_iter().flatten().flat_map(labels).collect();
        Self {
            server: server.to_owned(),
            code: number("code").unwrap_or(0),
            code_name: text("codeName"),
            index: first.and_then(|_| number("index")).or(first.map(|_| 0)),
            message: text("errmsg"),
            labels,
            details: error.and_then(|error| error.get_document("errInfo").ok()).cloned().unwrap_or_default(),
            reply,
        }
    }
}

/// Returns the error labels of a reply.
pub(crate) fn labels(reply: &bson::Document) -> Vec<String> {
    let labels = reply.get_array("errorLabels").map(Vec::as_slice).unwrap_or_default();
    labels.iter().filter_map(|label| label.as_str().map(str::to_owned)).collect()
}

/// Returns a whole number of any numeric type that fits into 32 bits.
fn integer(value: &bson::Bson) -> Option<i32> {
    let wide = value.as_i64().and_then(|number| i32::try_from(number).ok());
    #[expect(clippy::cast_possible_truncation, reason = "compared with the number that it came from")]
    let float = value.as_f64().filter(|number| f64::from(*number as i32) == *number).map(|number| number as i32);
    value.as_i32().or(wide).or(float)
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.server)?;
        match self.index {
            Some(index) => write!(f, "write {index} of the command failed with code {}", self.code)?,
            None => write!(f, "the write concern was not satisfied: code {}", self.code)?,
        }
        if let Some(name) = &self.code_name {
            write!(f, " ({})", OneLine(name))?;
        }
        self.message.as_ref().map_or(Ok(()), |message| write!(f, ": {}", OneLine(message)))
    }
}

poolhouse_wire::debug_as_display!(WriteError);

impl core::error::Error for WriteError {}
