//! What a connection string says, part by part.

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

/// Parses a string that is in order.
fn parse(uri: &str) -> ConnectionString {
    ConnectionString::parse(uri).unwrap()
}

/// Parses a string that is in order and gives cause for no warning.
fn quiet(uri: &str) -> ConnectionString {
    let parsed = parse(uri);
    assert_eq!(parsed.warnings(), []);
    parsed
}

/// What is wrong with a string.
fn error(uri: &str) -> UriError {
    ConnectionString::parse(uri).unwrap_err()
}

/// What is wrong with an option of a string.
fn option_error(uri: &str) -> (Option<&'static str>, UriErrorKind) {
    let error = error(uri);
    (error.option(), error.kind())
}

/// The warnings of a string, as texts.
fn warnings(uri: &str) -> Vec<String> {
    parse(uri).warnings().iter().map(ToString::to_string).collect()
}
