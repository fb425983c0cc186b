//! Matching of published events against a file's expectations: the expected value must be a part of
//! the actual one.

use serde_json::Value;

/// Returns why `actual` does not match `expected`; `None` if it matches.
///
/// 42, as a number or a string, matches any value that is present and not null. Objects are
/// compared by the keys of the expected object, lists element by element; all other values must be
/// equal and of the same type.
#[must_use]
pub fn mismatch(expected: &Value, actual: Option<&Value>) -> Option<String> {
    let Some(actual) = actual else {
        return Some(format!("expected {expected}, found no value"));
    };
    if expected.as_u64() == Some(42) || expected.as_str() == Some("42") {
        return actual.is_null().then(|| "expected a value, found null".into());
    }
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => {
            expected.iter().find_map(|(key, value)| Some(format!("{key}: {}", mismatch(value, actual.get(key))?)))
        }
        (Value::Array(expected), Value::Array(actual)) => expected
            .iter()
            .enumerate()
            .find_map(|(place, value)| Some(format!("[{place}]: {}", mismatch(value, actual.get(place))?))),
        (Value::Number(expected), Value::Number(actual)) if expected.as_f64() == actual.as_f64() => None,
        (expected, actual) if expected == actual => None,
        (expected, actual) => Some(format!("expected {expected}, found {actual}")),
    }
}

/// Compares the events that are not ignored with the expected events, starting with the first;
/// further events may follow.
///
/// # Errors
///
/// The first event that differs, the difference, and a list of all events.
pub fn compare_events(expected: &[Value], actual: &[Value], ignore: &[String]) -> Result<(), String> {
    let ignored = |event: &Value| ignore.iter().any(|name| event["type"] == **name);
    let seen: Vec<&Value> = actual.iter().filter(|event| !ignored(event)).collect();
    for (place, event) in expected.iter().enumerate() {
        if let Some(difference) = mismatch(event, seen.get(place).copied()) {
            let list: String = seen.iter().map(|event| format!("\n    {event}")).collect();
            return Err(format!("event {place}: {difference}\n  compared events:{list}"));
        }
    }
    Ok(())
}
