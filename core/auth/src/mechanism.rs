//! The mechanisms, and which one a server and a user have in common.

use core::fmt;

use poolhouse_wire::bson::RawArray;

/// A way to prove who is calling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// Challenge and response on a salted password, proved by both sides.
    Scram(ScramMechanism),
    /// The client certificate of the TLS connection.
    X509,
    /// User name and password as they are, for servers that ask a directory.
    Plain,
}

/// The hash that SCRAM is built on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScramMechanism {
    /// SHA-1, over MongoDB's own MD5 digest of user and password. For servers and users of old. Only with feature `auth`.
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

    /// The mechanism of that name, in capital letters; `None` for one that is not known here.
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

    /// The database that users of the mechanism belong to unless something else is said.
    #[must_use]
    pub const fn default_source(self) -> &'static str {
        match self {
            Self::Scram(_) => "admin",
            Self::X509 | Self::Plain => EXTERNAL,
        }
    }
}

/// The database of users that somebody else knows.
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

    /// The one to use when nobody asked for a mechanism: SHA-256 if the user has it, else SHA-1, whether
    /// listed or not. Never anything that is not SCRAM, whatever the server offers. Without feature `auth` there is nothing to choose:
    /// a server whose user does not have SHA-256 refuses it.
    ///
    /// - `supported`: `saslSupportedMechs` of the reply to hello, if it was there.
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
