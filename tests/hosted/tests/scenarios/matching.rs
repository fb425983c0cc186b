//! Patterns of values.
//!
//! A pattern of an object has the fields that the object must have; an object inside of it has no
//! others. Numbers of all types are equal if their values are. These objects are patterns:
//!
//! - `{ "$exists": false }`: the field is absent; `true`: any value;
//! - `{ "$type": "long" | "timestamp" }`;
//! - `{ "$between": [1, 5] }`: a number, with the limits;
//! - `{ "$part": { .. } }`: an object that may have further fields;
//! - `{ "$as": "name" }`: the first value gets this name, all others equal it;
//! - `{ "$new": "name" }`: as `$as`, but the first value differs from all that have names.

use crate::file::Fields;
use alloc::collections::BTreeMap;
use bson::{Bson, Document};
use poolhouse_smol::Error;

/// The names of patterns.
const OPERATORS: [&str; 6] = ["$exists", "$type", "$between", "$part", "$as", "$new"];

/// The values that have names.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<String, Bson>);

impl Names {
    pub(crate) fn set(&mut self, name: &str, value: impl Into<Bson>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// Checks a value, which may be absent.
    pub(crate) fn check(&mut self, pattern: &Bson, value: Option<&Bson>) -> Result<(), String> {
        self.matches(pattern, value, true)
    }

    fn matches(&mut self, pattern: &Bson, value: Option<&Bson>, is_part: bool) -> Result<(), String> {
        if let Bson::Document(fields) = pattern {
            let operator = fields.iter().next().filter(|(name, _)| OPERATORS.contains(&name.as_str()));
            if let Some((operator, argument)) = operator {
                return self.operator(operator, argument, value);
            }
        }
        let Some(value) = value else { return Err(format!("absent, expected {pattern}")) };
        let is_equal = match (pattern, value) {
            (Bson::Document(pattern), Bson::Document(value)) => return self.fields(pattern, value, is_part),
            (Bson::Array(patterns), Bson::Array(values)) if patterns.len() == values.len() => {
                for (index, (pattern, value)) in patterns.iter().zip(values).enumerate() {
                    self.matches(pattern, Some(value), false).map_err(|error| format!("[{index}]: {error}"))?;
                }
                true
            }
            _ => is_same(pattern, value),
        };
        if is_equal { Ok(()) } else { Err(format!("{value}, expected {pattern}")) }
    }

    fn fields(&mut self, pattern: &Document, value: &Document, is_part: bool) -> Result<(), String> {
        for (name, pattern) in pattern {
            self.matches(pattern, value.get(name), false).map_err(|error| format!("{name}: {error}"))?;
        }
        match value.keys().find(|name| !is_part && !pattern.contains_key(name)) {
            Some(name) => Err(format!("unexpected field {name} of {value}")),
            None => Ok(()),
        }
    }

    fn operator(&mut self, name: &str, argument: &Bson, value: Option<&Bson>) -> Result<(), String> {
        let wrong = || format!("{value:?}, expected {name} {argument}");
        if name == "$exists" {
            return if argument.as_bool() == Some(value.is_some()) { Ok(()) } else { Err(wrong()) };
        }
        let value = value.ok_or_else(wrong)?;
        let is_right = match name {
            "$type" => matches!(
                (argument.as_str(), value),
                (Some("long"), Bson::Int64(_)) | (Some("timestamp"), Bson::Timestamp(_))
            ),
            "$between" => {
                let limits: Vec<_> = argument.as_array().into_iter().flatten().filter_map(number).collect();
                let [from, to] = limits[..] else { return Err(format!("{argument} is no range")) };
                number(value).is_some_and(|value| (from..=to).contains(&value))
            }
            "$part" => return self.matches(argument, Some(value), true),
            "$as" | "$new" => {
                let key = argument.as_str().ok_or("a name is a text")?;
                if let Some(known) = self.0.get(key) {
                    is_same(known, value)
                } else {
                    if let Some((other, _)) = self.0.iter().find(|(_, known)| name == "$new" && is_same(known, value)) {
                        return Err(format!("{key} is {value}, as {other} is"));
                    }
                    self.set(key, value.clone());
                    true
                }
            }
            _ => return Err(format!("unknown operator {name}")),
        };
        if is_right { Ok(()) } else { Err(wrong()) }
    }
}

fn is_same(one: &Bson, other: &Bson) -> bool {
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of scenarios are small, and ids are compared with themselves")]
fn number(value: &Bson) -> Option<f64> {
    value.as_f64().or(value.as_i32().map(f64::from)).or(value.as_i64().map(|value| value as f64))
}

/// An error that is expected. All of its fields are optional: `kind` (`operation`, `command`, `session`),
/// `code`, `labels` that it has, labels that it is `without`, and a `text` in its message.
#[derive(Debug)]
pub(crate) struct Fault {
    kind: Option<String>,
    code: Option<i64>,
    labels: Vec<Bson>,
    without: Vec<Bson>,
    text: Option<String>,
}

impl Fault {
    pub(crate) fn new(value: &Bson, of: &str) -> Result<Self, String> {
        let mut fields = Fields::new(value, &format!("{of}: error"))?;
        let fault = Self {
            kind: fields.text("kind")?,
            code: fields.number("code")?,
            labels: fields.list("labels")?.unwrap_or_default(),
            without: fields.list("without")?.unwrap_or_default(),
            text: fields.text("text")?,
        };
        fields.end()?;
        Ok(fault)
    }

    pub(crate) fn check(&self, error: &Error) -> Result<(), String> {
        let is_kind = match self.kind.as_deref() {
            None => true,
            Some("operation") => matches!(error, Error::Operation(..)),
            Some("command") => matches!(error, Error::Command(_)),
            Some("session") => matches!(error, Error::Session(_)),
            Some(_) => false,
        };
        let has = |label: &Bson| label.as_str().is_some_and(|label| error.has_label(label));
        let is_right = is_kind
            && self.code.is_none_or(|code| error.code().map(i64::from) == Some(code))
            && self.labels.iter().all(has)
            && !self.without.iter().any(has)
            && self.text.as_ref().is_none_or(|text| error.to_string().contains(text));
        if is_right { Ok(()) } else { Err(format!("another error than {self:?}: {error:?}")) }
    }
}
