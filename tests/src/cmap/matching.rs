//! Whether what was seen is what a file expects: the expected is a part of the actual.

use serde_json::Value;

/// Why `actual` does not match `expected`; `None` when it does.
///
/// 42, as a number or a string, stands for anything that is there and not null. Objects are compared by the
/// keys of the expected one, lists place by place, everything else must be equal and of the same type.
#[must_use]
pub fn mismatch(expected: &Value, actual: Option<&Value>) -> Option<String> {
    let Some(actual) = actual else {
        return Some(format!("{expected} is expected, and there is nothing"));
    };
    if expected.as_u64() == Some(42) || expected.as_str() == Some("42") {
        return actual.is_null().then(|| "something is expected, and there is null".into());
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
        (expected, actual) => Some(format!("{expected} is expected, and there is {actual}")),
    }
}

/// Compares the events that are not ignored with the expected ones, from the first on; more may follow.
///
/// # Errors
///
/// Says which event differs and how, and lists all that were seen.
pub fn compare_events(expected: &[Value], actual: &[Value], ignore: &[String]) -> Result<(), String> {
    let ignored = |event: &Value| ignore.iter().any(|name| event["type"] == **name);
    let seen: Vec<&Value> = actual.iter().filter(|event| !ignored(event)).collect();
    for (place, event) in expected.iter().enumerate() {
        if let Some(difference) = mismatch(event, seen.get(place).copied()) {
            let list: String = seen.iter().map(|event| format!("\n    {event}")).collect();
            return Err(format!("event {place}: {difference}\n  events that are compared:{list}"));
        }
    }
    Ok(())
}
