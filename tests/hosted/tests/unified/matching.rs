//! Compares values with the patterns of a test.
//!
//! Read first: Unified Test Format, "Evaluating Matches".

use bson::spec::{BinarySubtype, ElementType};
use bson::{Bson, Document};

/// What patterns refer to.
pub(crate) trait Entities {
    /// The value that an operation has stored under this name.
    fn value(&self, id: &str) -> Option<Bson>;

    /// The `lsid` of a session.
    fn lsid(&self, id: &str) -> Option<Document>;
}

/// Checks a value that may be absent. An object of the root may have fields that the pattern has not.
pub(crate) fn check(pattern: &Bson, value: Option<&Bson>, entities: &dyn Entities) -> Result<(), String> {
    matches(pattern, value, true, entities)
}

fn matches(pattern: &Bson, value: Option<&Bson>, is_root: bool, entities: &dyn Entities) -> Result<(), String> {
    if let Bson::Document(fields) = pattern {
        if let Some((operator, argument)) = operator(fields) {
            return operate(operator, argument, value, is_root, entities);
        }
    }
    let Some(value) = value else { return Err(format!("absent, expected {pattern}")) };
    let is_equal = match (pattern, value) {
        (Bson::Document(pattern), Bson::Document(value)) => {
            for (name, pattern) in pattern {
                matches(pattern, value.get(name), false, entities).map_err(|error| format!("{name}: {error}"))?;
            }
            return match value.keys().find(|name| !is_root && !pattern.contains_key(name)) {
                Some(name) => Err(format!("unexpected field {name} of {value}")),
                None => Ok(()),
            };
        }
        (Bson::Array(patterns), Bson::Array(values)) if patterns.len() == values.len() => {
            for (index, (pattern, value)) in patterns.iter().zip(values).enumerate() {
                matches(pattern, Some(value), is_root, entities).map_err(|error| format!("[{index}]: {error}"))?;
            }
            true
        }
        _ => is_same(pattern, value),
    };
    if is_equal { Ok(()) } else { Err(format!("{value}, expected {pattern}")) }
}

fn operator(fields: &Document) -> Option<(&str, &Bson)> {
    let (name, argument) = fields.iter().next()?;
    (fields.len() == 1 && name.starts_with("$$")).then_some((name, argument))
}

fn operate(
    name: &str,
    argument: &Bson,
    value: Option<&Bson>,
    is_root: bool,
    entities: &dyn Entities,
) -> Result<(), String> {
    let wrong = || format!("{}, expected {name} {argument}", value.map_or("absent".to_owned(), Bson::to_string));
    let is_right = match name {
        "$$exists" => argument.as_bool() == Some(value.is_some()),
        "$$unsetOrMatches" => {
            return value.map_or(Ok(()), |value| matches(argument, Some(value), is_root, entities));
        }
        "$$type" => {
            let value = value.ok_or_else(wrong)?;
            let single = core::slice::from_ref(argument);
            let names = argument.as_array().map_or(single, Vec::as_slice);
            let names: Vec<_> = names.iter().filter_map(Bson::as_str).collect();
            if let Some(unknown) = names.iter().find(|name| !TYPES.iter().any(|(known, _)| known == *name)) {
                return Err(format!("unsupported type {unknown}"));
            }
            names.iter().any(|name| is_of_type(value, name))
        }
        "$$matchesEntity" => {
            let id = argument.as_str().unwrap_or_default();
            let stored = entities.value(id).ok_or_else(|| format!("no value {id}"))?;
            return matches(&stored, value, is_root, entities);
        }
        "$$matchesHexBytes" => match value {
            Some(Bson::Binary(binary)) => Some(hex(&binary.bytes).as_str()) == argument.as_str(),
            _ => false,
        },
        "$$sessionLsid" => {
            let id = argument.as_str().unwrap_or_default();
            let lsid = entities.lsid(id).ok_or_else(|| format!("the lsid of {id} is not known"))?;
            value == Some(&Bson::Document(lsid))
        }
        "$$lte" => match (value.and_then(number), number(argument)) {
            (Some(value), Some(limit)) => value <= limit,
            _ => false,
        },
        "$$matchAsDocument" => {
            let text = value.and_then(Bson::as_str).ok_or_else(wrong)?;
            let document: Document = serde_json::from_str(text).map_err(|error| format!("{error}: {text}"))?;
            return matches(argument, Some(&document.into()), false, entities);
        }
        "$$matchAsRoot" => return matches(argument, value, true, entities),
        _ => return Err(format!("unknown operator {name}")),
    };
    if is_right { Ok(()) } else { Err(wrong()) }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn is_same(one: &Bson, other: &Bson) -> bool {
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

#[expect(clippy::cast_precision_loss, reason = "the numbers of tests are small, and ids are compared with themselves")]
fn number(value: &Bson) -> Option<f64> {
    value.as_f64().or(value.as_i32().map(f64::from)).or(value.as_i64().map(|value| value as f64))
}

/// A whole number.
pub(crate) fn integer(value: &Bson) -> Option<i64> {
    value.as_i64().or(value.as_i32().map(i64::from))
}

const TYPES: [(&str, Option<ElementType>); 21] = [
    ("double", Some(ElementType::Double)),
    ("string", Some(ElementType::String)),
    ("object", Some(ElementType::EmbeddedDocument)),
    ("array", Some(ElementType::Array)),
    ("binData", Some(ElementType::Binary)),
    ("undefined", Some(ElementType::Undefined)),
    ("objectId", Some(ElementType::ObjectId)),
    ("bool", Some(ElementType::Boolean)),
    ("date", Some(ElementType::DateTime)),
    ("null", Some(ElementType::Null)),
    ("regex", Some(ElementType::RegularExpression)),
    ("dbPointer", Some(ElementType::DbPointer)),
    ("javascript", Some(ElementType::JavaScriptCode)),
    ("symbol", Some(ElementType::Symbol)),
    ("javascriptWithScope", Some(ElementType::JavaScriptCodeWithScope)),
    ("int", Some(ElementType::Int32)),
    ("timestamp", Some(ElementType::Timestamp)),
    ("long", Some(ElementType::Int64)),
    ("decimal", Some(ElementType::Decimal128)),
    ("number", None),
    ("uuid", None),
];

fn is_of_type(value: &Bson, name: &str) -> bool {
    match TYPES.iter().find(|(known, _)| *known == name) {
        Some((_, Some(kind))) => value.element_type() == *kind,
        Some(("number", None)) => {
            use ElementType::{Decimal128, Double, Int32, Int64};
            [Double, Int32, Int64, Decimal128].contains(&value.element_type())
        }
        Some((_, None)) => matches!(value, Bson::Binary(binary) if binary.subtype == BinarySubtype::Uuid),
        None => false,
    }
}
