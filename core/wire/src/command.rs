//! The fields that replies to all commands share.
//!
//! Read first: SDAM, "Error handling"; Retryable Reads and Writes, on error labels.

mod sensitive;
mod shape;
#[cfg(test)]
mod tests;

pub use sensitive::is_sensitive;
pub use shape::{CommandShape, Retry};

use super::bson::{ElementType, Raw, RawArray, RawDocument, RawValue};
use super::error::{WireError, WireErrorKind};
use super::fields::{Field, put};
use super::labels::Labels;
use crate::cause::Cause;
use crate::server::TopologyVersion;

/// The part of a reply that all commands share. The order of fields does not matter.
///
/// `ok` is required and must be a number or a boolean; `topologyVersion` must be well-formed if
/// present. Any other field of a wrong type counts as absent. If a field is repeated, the first one
/// is used. Of text that is not UTF-8, the part before the first wrong byte is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandReply<'a> {
    /// Whether the command succeeded as a whole.
    pub ok: bool,
    /// The error's number.
    pub code: Option<i32>,
    /// The error's name.
    pub code_name: Option<&'a str>,
    /// The error's text.
    pub message: Option<&'a str>,
    /// The server's topology version, in errors that report a state change.
    pub topology_version: Option<TopologyVersion>,
    /// The write concern was not satisfied; the command may have succeeded nevertheless.
    pub write_concern_error: Option<WriteConcernError<'a>>,
    /// The statements of a write that failed; the others may have succeeded.
    pub write_errors: RawArray<'a>,
    error_labels: RawArray<'a>,
}

/// Why a write concern was not satisfied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteConcernError<'a> {
    /// The error's number.
    pub code: Option<i32>,
    /// The error's name.
    pub code_name: Option<&'a str>,
    /// The error's text.
    pub message: Option<&'a str>,
    error_labels: RawArray<'a>,
}

impl<'a> CommandReply<'a> {
    /// Reads a reply. Linear in its bytes, no allocation.
    ///
    /// # Errors
    ///
    /// [`WireErrorKind::FieldMissing`] and [`WireErrorKind::FieldType`] for `ok` and
    /// `topologyVersion`, or the error of the structure at the top level.
    pub fn parse(reply: RawDocument<'a>) -> Result<Self, WireError> {
        let mut common = ErrorFields::default();
        let (mut ok, mut topology_version, mut write_concern_error) = (None, None, None);
        let mut write_errors = None;
        for raw in reply.raw_elements() {
            let raw = raw?;
            match raw.key {
                b"ok" => {
                    if let Some(field) = Field::read("ok", raw)? {
                        put(&mut ok, field.ok()?);
                    }
                }
                b"topologyVersion" => {
                    if let Some(field) = Field::read("topologyVersion", raw)? {
                        put(&mut topology_version, field.topology_version()?);
                    }
                }
                b"writeConcernError" => {
                    if let Some(document) = raw.decode()?.as_document() {
                        put(&mut write_concern_error, WriteConcernError::parse(document)?);
                    }
                }
                b"writeErrors" => write_errors = write_errors.or(raw.decode()?.as_array()),
                _ => common.take(raw),
            }
        }
        let missing = WireError::new(WireErrorKind::FieldMissing { name: "ok" }, reply.offset());
        Ok(Self {
            ok: ok.ok_or(missing)?,
            code: common.code,
            code_name: common.code_name,
            message: common.message,
            topology_version,
            write_concern_error,
            write_errors: write_errors.unwrap_or_default(),
            error_labels: common.labels.unwrap_or_default(),
        })
    }

    /// Whether a reply has a usual form of `ok: 1` and no field that requires full parsing.
    ///
    /// If so, [`CommandReply::parse`] would return it with `ok` and without write errors.
    /// A cheap check for a reply that has passed [`RawDocument::validate_structure`]; `false` only means that
    /// the reply must be parsed.
    #[must_use]
    pub fn is_plain_success(reply: RawDocument<'_>) -> bool {
        let mut ok = false;
        let plain = reply.all_raw(|key, element_type, value| match key {
            b"ok" => {
                // Parsed in full: numbers of other types, `true`, a repeated `ok`, and errors.
                let is_one = (element_type == ElementType::Double && value == 1.0_f64.to_le_bytes())
                    || (element_type == ElementType::Int32 && value == 1_i32.to_le_bytes());
                is_one && !core::mem::replace(&mut ok, true)
            }
            b"writeErrors" | b"writeConcernError" | b"topologyVersion" => false,
            _ => true,
        });
        plain && ok
    }

    /// All error labels, including unknown ones.
    pub fn error_labels(&self) -> impl Iterator<Item = &'a str> + Clone {
        self.error_labels.strings()
    }

    /// The known error labels, including those of the write concern error.
    #[must_use]
    pub fn labels(&self) -> Labels {
        let outer = collect(self.error_labels);
        self.write_concern_error.map_or(outer, |error| outer | collect(error.error_labels))
    }

    /// Whether `ok` is 1, but statements of the write failed or its write concern was not satisfied.
    #[must_use]
    pub fn has_write_errors(&self) -> bool {
        self.ok && (self.write_concern_error.is_some() || !self.write_errors.is_empty())
    }

    /// Why the command failed; `None` if it succeeded.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        if self.ok { None } else { Some(Cause::Command { code: self.code.unwrap_or(0) }) }
    }
}

impl<'a> WriteConcernError<'a> {
    fn parse(document: RawDocument<'a>) -> Result<Self, WireError> {
        let mut common = ErrorFields::default();
        for raw in document.raw_elements() {
            common.take(raw?);
        }
        Ok(Self {
            code: common.code,
            code_name: common.code_name,
            message: common.message,
            error_labels: common.labels.unwrap_or_default(),
        })
    }
}

/// The fields that all errors share.
#[derive(Default)]
struct ErrorFields<'a> {
    code: Option<i32>,
    code_name: Option<&'a str>,
    message: Option<&'a str>,
    labels: Option<RawArray<'a>>,
}

impl<'a> ErrorFields<'a> {
    /// Stores a field if it is one of these. A field of a wrong type counts as absent.
    fn take(&mut self, raw: Raw<'a>) {
        match raw.key {
            b"code" => {
                let field = Field::read("code", raw).ok().flatten();
                self.code = self.code.or(field.and_then(|field| field.integer32().ok()));
            }
            b"codeName" => self.code_name = self.code_name.or(raw.text_front()),
            b"errmsg" => self.message = self.message.or(raw.text_front()),
            b"errorLabels" => {
                self.labels = self.labels.or(raw.decode().ok().and_then(RawValue::as_array));
            }
            _ => {}
        }
    }
}

fn collect(labels: RawArray<'_>) -> Labels {
    labels.strings().fold(Labels::NONE, |set, name| set | Labels::from_name(name))
}
