//! Connection strings, part by part.

mod credentials;
mod hosts;
mod limits;
mod options;
mod resolved;
mod secrets;
mod texts;
mod warnings;

use super::*;
use alloc::format;
use alloc::string::ToString;

/// Parses a valid string.
fn parse(uri: &str) -> ConnectionString {
    ConnectionString::parse(uri).unwrap()
}

/// Parses a valid string that causes no warning.
fn quiet(uri: &str) -> ConnectionString {
    let parsed = parse(uri);
    assert_eq!(parsed.warnings(), []);
    parsed
}

/// Returns the error of a string.
fn error(uri: &str) -> UriError {
    ConnectionString::parse(uri).unwrap_err()
}

/// Returns the error of an option of a string.
fn option_error(uri: &str) -> (Option<&'static str>, UriErrorKind) {
    let error = error(uri);
    (error.option(), error.kind())
}

/// Returns the warnings of a string, as texts.
fn warnings(uri: &str) -> Vec<String> {
    parse(uri).warnings().iter().map(ToString::to_string).collect()
}
