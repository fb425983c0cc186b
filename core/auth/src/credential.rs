//! Credentials of a user.

use core::fmt;

use super::mechanism::{EXTERNAL, Mechanism};
use poolhouse_wire::AuthError;

/// A user, the secret and the mechanism, and the database of the user. Borrowed, to avoid a copy of
/// the password.
///
/// `Debug` shows neither user nor password.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Credential<'a> {
    /// The user. Optional for MONGODB-X509, where the certificate identifies the user.
    pub username: Option<&'a str>,
    /// The password as the user types it: not escaped, not prepared by SASLprep.
    pub password: Option<&'a str>,
    /// The database of the user; if `None`, the default of the mechanism.
    pub source: Option<&'a str>,
    /// The mechanism; if `None`, it is negotiated with the server. A named mechanism is never
    /// replaced by another.
    pub mechanism: Option<Mechanism>,
}

impl<'a> Credential<'a> {
    /// A user with a password, of database `admin`, with the best mechanism that the server has for
    /// that user.
    #[must_use]
    pub const fn new(username: &'a str, password: &'a str) -> Self {
        Self { username: Some(username), password: Some(password), source: None, mechanism: None }
    }

    /// The subject of the client certificate; `username` is needed only for servers that require
    /// it.
    #[must_use]
    pub const fn x509(username: Option<&'a str>) -> Self {
        Self { username, password: None, source: None, mechanism: Some(Mechanism::X509) }
    }

    /// Sets the database of the user.
    #[must_use]
    pub const fn source(self, source: &'a str) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Sets the mechanism.
    #[must_use]
    pub const fn mechanism(self, mechanism: Mechanism) -> Self {
        Self { mechanism: Some(mechanism), ..self }
    }

    /// The database of the user.
    ///
    /// Source: Authentication, "authSource" under "Connection String Options".
    #[must_use]
    pub fn source_database(&self) -> &'a str {
        let default = self.mechanism.map_or("admin", Mechanism::default_source);
        self.source.filter(|source| !source.is_empty()).unwrap_or(default)
    }

    /// Checks that all parts needed by the mechanism are present, and no others.
    ///
    /// # Errors
    ///
    /// [`AuthError::UsernameMissing`], [`AuthError::UsernameProhibited`], [`AuthError::PasswordMissing`],
    /// [`AuthError::PasswordProhibited`], [`AuthError::PasswordUnexpected`], [`AuthError::SourceNotExternal`].
    ///
    /// Source: Authentication, "MongoCredential".
    pub fn check(&self) -> Result<(), AuthError> {
        let has_username = self.username.is_some_and(|username| !username.is_empty());
        if self.username.is_some_and(|username| username.contains('\0')) {
            return Err(AuthError::UsernameProhibited);
        }
        if self.mechanism == Some(Mechanism::X509) {
            if self.password.is_some() {
                return Err(AuthError::PasswordUnexpected);
            }
            if self.username.is_some() && !has_username {
                return Err(AuthError::UsernameMissing);
            }
            let external = self.source_database() == EXTERNAL;
            return if external { Ok(()) } else { Err(AuthError::SourceNotExternal) };
        }
        if !has_username {
            return Err(AuthError::UsernameMissing);
        }
        match self.password {
            None | Some("") => Err(AuthError::PasswordMissing),
            Some(password) if password.contains('\0') => Err(AuthError::PasswordProhibited),
            Some(_) => Ok(()),
        }
    }
}

impl fmt::Debug for Credential<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("source", &self.source)
            .field("mechanism", &self.mechanism)
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "alloc")]
pub use owned::OwnedCredential;

#[cfg(feature = "alloc")]
mod owned {
    use alloc::string::String;
    use core::fmt;

    use zeroize::Zeroizing;

    use super::{Credential, Mechanism};

    /// An owned [`Credential`]. Its password is wiped when it is dropped.
    ///
    /// `Debug` shows neither user nor password.
    #[derive(Clone, PartialEq, Eq)]
    pub struct OwnedCredential {
        username: Option<String>,
        password: Option<Zeroizing<String>>,
        source: Option<String>,
        mechanism: Option<Mechanism>,
    }

    impl OwnedCredential {
        /// Borrows it as a [`Credential`].
        #[must_use]
        pub fn as_credential(&self) -> Credential<'_> {
            Credential {
                username: self.username.as_deref(),
                password: self.password.as_ref().map(|password| password.as_str()),
                source: self.source.as_deref(),
                mechanism: self.mechanism,
            }
        }
    }

    impl From<Credential<'_>> for OwnedCredential {
        fn from(credential: Credential<'_>) -> Self {
            Self {
                username: credential.username.map(String::from),
                password: credential.password.map(|password| Zeroizing::new(String::from(password))),
                source: credential.source.map(String::from),
                mechanism: credential.mechanism,
            }
        }
    }

    impl fmt::Debug for OwnedCredential {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.as_credential().fmt(f)
        }
    }
}
