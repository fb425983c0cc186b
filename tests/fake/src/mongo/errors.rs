//! Errors of commands, with the texts of a real server.

use bson::{Bson, Document};

use super::state::TopologyVersion;

/// A command's failure: `ok: 0` with a code.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandError {
    pub code: i32,
    pub message: String,
    pub labels: Option<Vec<String>>,
}

impl CommandError {
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), labels: None }
    }

    /// Returns the reply's document. Code 0 = without a code, as for some errors of a real server.
    pub fn document(&self, version: Option<TopologyVersion>) -> Document {
        let mut reply = Document::new();
        if let Some(labels) = &self.labels {
            reply.insert("errorLabels", labels.clone());
        }
        if let Some(version) = version {
            reply.insert("topologyVersion", version.document());
        }
        reply.insert("ok", 0.0);
        reply.insert("errmsg", self.message.as_str());
        if self.code != 0 {
            reply.insert("code", self.code);
            reply.insert("codeName", code_name(self.code));
        }
        reply
    }
}

/// Returns whether the code means that the server is not, or no longer, primary.
pub fn is_not_primary(code: i32) -> bool {
    matches!(code, 189 | 10058 | 10107 | 11602 | 13435 | 13436)
}

/// Returns whether the code means that the server is shutting down.
pub fn is_shutdown(code: i32) -> bool {
    matches!(code, 91 | 11600)
}

/// Returns whether a member labels a write error with this code as retryable.
pub fn is_retryable_write(code: i32) -> bool {
    let network = matches!(code, 6 | 7 | 89 | 262 | 9001);
    network || is_shutdown(code) || (is_not_primary(code) && code != 10058)
}

/// Returns the server's name of a code.
pub fn code_name(code: i32) -> String {
    let name = match code {
        1 => "InternalError",
        2 => "BadValue",
        6 => "HostUnreachable",
        7 => "HostNotFound",
        8 => "UnknownError",
        9 => "FailedToParse",
        13 => "Unauthorized",
        14 => "TypeMismatch",
        16 => "InvalidLength",
        18 => "AuthenticationFailed",
        20 => "IllegalOperation",
        26 => "NamespaceNotFound",
        43 => "CursorNotFound",
        50 => "MaxTimeMSExpired",
        59 => "CommandNotFound",
        63 => "StaleShardVersion",
        64 => "WriteConcernFailed",
        72 => "InvalidOptions",
        73 => "InvalidNamespace",
        89 => "NetworkTimeout",
        91 => "ShutdownInProgress",
        79 => "UnknownReplWriteConcern",
        100 => "UnsatisfiableWriteConcern",
        112 => "WriteConflict",
        133 => "FailedToSatisfyReadPreference",
        150 => "StaleEpoch",
        183 => "ClientMetadataMissingField",
        184 => "ClientMetadataAppNameTooLarge",
        185 => "ClientMetadataDocumentTooLarge",
        186 => "ClientMetadataCannotBeMutated",
        189 => "PrimarySteppedDown",
        225 => "TransactionTooOld",
        238 => "NotImplemented",
        251 => "NoSuchTransaction",
        266 => "FailPointSetFailed",
        262 => "ExceededTimeLimit",
        352 => "UnsupportedOpQueryCommand",
        391 => "ReauthenticationRequired",
        462 => "IngressRequestRateLimitExceeded",
        9001 => "SocketException",
        10058 => "LegacyNotPrimary",
        10107 => "NotWritablePrimary",
        10334 => "BSONObjectTooLarge",
        11000 => "DuplicateKey",
        11600 => "InterruptedAtShutdown",
        11601 => "Interrupted",
        11602 => "InterruptedDueToReplStateChange",
        13388 => "StaleConfig",
        13435 => "NotPrimaryNoSecondaryOk",
        13436 => "NotPrimaryOrSecondary",
        14031 => "OutOfDiskSpace",
        other => return format!("Location{other}"),
    };
    name.to_owned()
}

/// Returns a number of any of the numeric types; `None` for other values.
pub fn number(value: &Bson) -> Option<f64> {
    if let Some(number) = value.as_i32() {
        return Some(f64::from(number));
    }
    if let Some(number) = value.as_i64() {
        #[expect(clippy::cast_precision_loss, reason = "compared with small numbers only")]
        return Some(number as f64);
    }
    value.as_f64()
}

/// Returns a whole number of any of the numeric types; `None` for other values and fractions.
pub fn whole(value: &Bson) -> Option<i64> {
    if let Some(number) = value.as_i32() {
        return Some(i64::from(number));
    }
    if let Some(number) = value.as_i64() {
        return Some(number);
    }
    let number = value.as_f64()?;
    if number.fract() != 0.0 || number.abs() > 9.0e15 {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53, as just checked")]
    let number = number as i64;
    Some(number)
}
