//! Matching of messages: Unified Test Format, "Evaluating Matches".

use super::capture::Message;
use serde_json::Value;

/// Whether a message is as expected.
pub(crate) fn message(expected: &Value, found: &Message) -> Result<(), String> {
    if expected["level"] != found.level.as_str() || expected["component"] != found.component.as_str() {
        return Err(format!("the message is {} of {}", found.level, found.component));
    }
    value(&expected["data"], Some(&found.data), true)
}

/// Whether a value is as expected.
///
/// - `is_root`: whether additional keys are permitted.
pub(crate) fn value(expected: &Value, found: Option<&Value>, is_root: bool) -> Result<(), String> {
    let wrong = || Err(format!("expected {expected}, found {found:?}"));
    if let Some((name, operand)) = operator(expected) {
        return match name {
            "$$exists" => {
                if operand.as_bool() == Some(found.is_some()) {
                    Ok(())
                } else {
                    wrong()
                }
            }
            "$$type" => {
                let names: Vec<&str> = match operand.as_array() {
                    Some(names) => names.iter().filter_map(Value::as_str).collect(),
                    None => operand.as_str().into_iter().collect(),
                };
                if found.is_some_and(|found| names.iter().any(|name| is_type(name, found))) { Ok(()) } else { wrong() }
            }
            "$$unsetOrMatches" => found.map_or(Ok(()), |found| value(operand, Some(found), is_root)),
            "$$matchAsDocument" => {
                let text = found.and_then(Value::as_str).ok_or("the value is not the text of a document")?;
                let document: Value = serde_json::from_str(text).map_err(|error| format!("{error}: {text}"))?;
                value(operand, Some(&document), false)
            }
            "$$matchAsRoot" => value(operand, found, true),
            other => Err(format!("unknown operator {other}")),
        };
    }
    let Some(found) = found else { return wrong() };
    match (expected, found) {
        (Value::Object(expected), Value::Object(members)) => {
            for (key, expected) in expected {
                value(expected, members.get(key), false).map_err(|error| format!("{key}: {error}"))?;
            }
            match members.keys().find(|key| !is_root && !expected.contains_key(*key)) {
                Some(key) => Err(format!("unexpected key {key}")),
                None => Ok(()),
            }
        }
        (Value::Array(expected), Value::Array(items)) if expected.len() == items.len() => {
            expected.iter().zip(items).try_for_each(|(expected, item)| value(expected, Some(item), false))
        }
        (Value::Number(one), Value::Number(other)) if one.as_f64() == other.as_f64() => Ok(()),
        _ if expected == found => Ok(()),
        _ => wrong(),
    }
}

/// The operator and its operand, if the object is an operator.
fn operator(expected: &Value) -> Option<(&str, &Value)> {
    let mut entries = expected.as_object()?.iter();
    match (entries.next(), entries.next()) {
        (Some((name, operand)), None) if name.starts_with("$$") => Some((name.as_str(), operand)),
        _ => None,
    }
}

fn is_type(name: &str, found: &Value) -> bool {
    match name {
        "string" => found.is_string(),
        "int" | "long" => found.is_i64() || found.is_u64(),
        "double" => found.is_f64(),
        "bool" => found.is_boolean(),
        "object" => found.is_object(),
        "array" => found.is_array(),
        _ => false,
    }
}
