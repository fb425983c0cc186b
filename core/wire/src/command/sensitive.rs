//! Commands with secrets: events and log messages leave out their documents.

use crate::bson::{RawDocument, RawValue};

/// Whether a command or its reply may contain a secret: those of authentication and of users, and a
/// hello that begins an authentication. Also, beyond the specification, a request for the stored
/// credentials of users (`usersInfo` with `showCredentials`).
///
/// Source: Command Logging and Monitoring, "Security".
#[must_use]
pub fn is_sensitive(command: RawDocument<'_>) -> bool {
    const ALWAYS: [&str; 9] = [
        "authenticate",
        "saslStart",
        "saslContinue",
        "getnonce",
        "createUser",
        "updateUser",
        "copydbgetnonce",
        "copydbsaslstart",
        "copydb",
    ];
    // Its value may be of any form: the documents must be left out in any case.
    let Some(Ok(first)) = command.raw_elements().next() else { return false };
    let is_one_of = |names: &[&str]| names.iter().any(|name| first.key.eq_ignore_ascii_case(name.as_bytes()));
    let authenticates = || !matches!(command.get("speculativeAuthenticate"), Ok(None));
    let shows_credentials = || !matches!(command.get("showCredentials"), Ok(None | Some(RawValue::Boolean(false))));
    is_one_of(&ALWAYS)
        || (is_one_of(&["hello", "isMaster"]) && authenticates())
        || (is_one_of(&["usersInfo"]) && shows_credentials())
}
