//! The authentication mechanisms, and their negotiation.

use core::fmt;

use poolhouse_wire::bson::RawArray;

/// An authentication mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// Challenge and response with a salted password; both sides prove that they know it.
    Scram(ScramMechanism),
    /// The client certificate of the TLS connection.
    X509,
    /// User name and password in plain text, for servers that check them with a directory service.
    Plain,
}

/// The hash function of SCRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScramMechanism {
    /// SHA-1, over MongoDB's MD5 digest of user and password. For old servers and users. Only with
    /// feature `auth`.
    #[cfg(feature = "scram-sha-1")]
    Sha1,
    /// SHA-256, over the password prepared by SASLprep.
    Sha256,
}

impl Mechanism {
    /// SCRAM-SHA-1. Only with feature `auth`.
    #[cfg(feature = "scram-sha-1")]
    pub const SCRAM_SHA_1: Self = Self::Scram(ScramMechanism::Sha1);
    /// SCRAM-SHA-256.
    pub const SCRAM_SHA_256: Self = Self::Scram(ScramMechanism::Sha256);

    /// Its name on the wire and in connection strings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scram(scram) => scram.name(),
            Self::X509 => "MONGODB-X509",
            Self::Plain => "PLAIN",
        }
    }

    /// The mechanism with this name, in capital letters; `None` for an unknown one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let known = [
            Self::SCRAM_SHA_256,
            #[cfg(feature = "scram-sha-1")]
            Self::SCRAM_SHA_1,
            Self::X509,
            Self::Plain,
        ];
        known.into_iter().find(|each| each.name() == name)
    }

    /// The database of the mechanism's users, unless another one is specified.
    #[must_use]
    pub const fn default_source(self) -> &'static str {
        match self {
            Self::Scram(_) => "admin",
            Self::X509 | Self::Plain => EXTERNAL,
        }
    }
}

/// The database of users that an external service authenticates.
pub(super) const EXTERNAL: &str = "$external";

impl ScramMechanism {
    /// Its name on the wire and in connection strings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            #[cfg(feature = "scram-sha-1")]
            Self::Sha1 => "SCRAM-SHA-1",
            Self::Sha256 => "SCRAM-SHA-256",
        }
    }

    /// The mechanism to use if none was specified: SHA-256 if the user has it, otherwise SHA-1,
    /// listed or not. Never a mechanism other than SCRAM, whatever the server offers. Without
    /// feature `auth` always SHA-256: a server whose user does not have it refuses the
    /// authentication.
    ///
    /// - `supported`: `saslSupportedMechs` of the reply to hello, if present.
    ///
    /// Source: Authentication, "Default Authentication Methods".
    #[must_use]
    pub fn negotiate(supported: Option<RawArray<'_>>) -> Self {
        #[cfg(feature = "scram-sha-1")]
        if !supported.is_some_and(|names| names.strings().any(|name| name == Self::Sha256.name())) {
            return Self::Sha1;
        }
        #[cfg(not(feature = "scram-sha-1"))]
        let _ = supported;
        Self::Sha256
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for ScramMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
