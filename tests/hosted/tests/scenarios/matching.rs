//! Patterns of values.
//!
//! A pattern of an object has the fields that the object must have; an object inside of it has no
//! others. Numbers of all types are equal if their values are. These objects are patterns:
//!
//! - `{ "$exists": false }`: the field is absent; `true`: any value;
//! - `{ "$type": "int" | "long" | "timestamp" | "string" | "object" | "array" | "bool" | "uuid" }`;
//! - `{ "$between": [1, 5] }`: a number, with the limits;
//! - `{ "$length": 2 }`: an array;
//! - `{ "$part": { .. } }`: an object that may have further fields;
//! - `{ "$as": "name" }`: the first value gets this name, all others equal it;
//! - `{ "$new": "name" }`: as `$as`, but the first value differs from all that have names.

use crate::file::Fields;
use alloc::collections::BTreeMap;
use bson::spec::{BinarySubtype, ElementType};
use bson::{Bson, Document};
use poolhouse_smol::Error;

/// The names of patterns.
const OPERATORS: [&str; 7] = ["$exists", "$type", "$between", "$length", "$part", "$as", "$new"];

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
            "$type" => argument.as_str() == Some(type_of(value)),
            "$between" => {
                let limits: Vec<_> = argument.as_array().into_iter().flatten().filter_map(number).collect();
                let [from, to] = limits[..] else { return Err(format!("{argument} is no range")) };
                number(value).is_some_and(|value| (from..=to).contains(&value))
            }
            "$length" => value.as_array().map(|list| list.len() as f64) == number(argument),
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

fn type_of(value: &Bson) -> &'static str {
    if let Bson::Binary(binary) = value {
        let is_uuid = binary.subtype == BinarySubtype::Uuid && binary.bytes.len() == 16;
        return if is_uuid { "uuid" } else { "binary" };
    }
    let known = [
        (ElementType::Int32, "int"),
        (ElementType::Int64, "long"),
        (ElementType::Timestamp, "timestamp"),
        (ElementType::String, "string"),
        (ElementType::EmbeddedDocument, "object"),
        (ElementType::Array, "array"),
        (ElementType::Boolean, "bool"),
    ];
    known.into_iter().find(|(kind, _)| *kind == value.element_type()).map_or("other", |(_, name)| name)
}

/// An error that is expected. All of its fields are optional: `kind` (the variant of the client's
/// error), `code`, `index` of the write (null: of the write concern), `labels` that it has, labels
/// that it is `without`, whether it is a `timeout` or an `overload`, a `text` in its message, and a
/// pattern of the `reply`.
#[derive(Debug)]
pub(crate) struct Fault {
    kind: Option<String>,
    code: Option<i64>,
    index: Option<Bson>,
    labels: Vec<Bson>,
    without: Vec<Bson>,
    is_timeout: Option<bool>,
    is_overload: Option<bool>,
    text: Option<String>,
    reply: Option<Bson>,
}

impl Fault {
    pub(crate) fn new(value: Bson, of: &str) -> Result<Self, String> {
        let mut fields = Fields::new(&value, &format!("{of}: error"))?;
        let fault = Self {
            kind: fields.text("kind")?,
            code: fields.number("code")?,
            index: fields.take("index"),
            labels: fields.list("labels")?.unwrap_or_default(),
            without: fields.list("without")?.unwrap_or_default(),
            is_timeout: fields.flag("timeout")?,
            is_overload: fields.flag("overload")?,
            text: fields.text("text")?,
            reply: fields.take("reply"),
        };
        fields.end()?;
        Ok(fault)
    }

    pub(crate) fn check(&self, error: &Error, names: &mut Names) -> Result<(), String> {
        let (kind, index, reply) = match error {
            Error::Setup(_) => ("setup", None, None),
            Error::Operation(..) => ("operation", None, None),
            Error::Timeout(_) => ("timeout", None, None),
            Error::Command(error) => ("command", None, Some(&error.reply)),
            Error::Write(error) => ("write", error.index, Some(&error.reply)),
            Error::Session(_) => ("session", None, None),
            Error::Cursor(_) => ("cursor", None, None),
            Error::Bson(_) => ("bson", None, None),
            _ => ("other", None, None),
        };
        let index = index.map_or(Bson::Null, Bson::Int32);
        let has = |label: &Bson| label.as_str().is_some_and(|label| error.has_label(label));
        let is_right = self.kind.as_deref().is_none_or(|expected| expected == kind)
            && self.code.is_none_or(|code| error.code().map(i64::from) == Some(code))
            && self.index.as_ref().is_none_or(|expected| is_same(expected, &index))
            && self.labels.iter().all(has)
            && !self.without.iter().any(has)
            && self.is_timeout.is_none_or(|expected| expected == error.is_timeout())
            && self.is_overload.is_none_or(|expected| expected == error.is_overload())
            && self.text.as_ref().is_none_or(|text| error.to_string().contains(text));
        if !is_right {
            return Err(format!("another error than {self:?}: {kind}: {error:?}"));
        }
        let reply = reply.cloned().map(Bson::Document);
        self.reply.as_ref().map_or(Ok(()), |pattern| names.check(pattern, reply.as_ref()))
    }
}
