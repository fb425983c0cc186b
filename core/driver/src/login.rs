//! Authentication of an application's connections.
//!
//! Read first: Authentication, "Authentication Handshake", "Caching Credentials in SCRAM"; CMAP,
//! "Establishing a Connection".

use super::client_core::ClientCore;
use super::connection::Connection;
use super::error::ServerAddress;
use super::failure::NotEstablished;
#[cfg(feature = "alloc")]
use super::runtime::ConnectError;
use super::runtime::Runtime;
use core::fmt;
use poolhouse_core::pool::CheckOutError;
use poolhouse_wire::AuthError;
#[cfg(feature = "alloc")]
use poolhouse_wire::Phase;
use poolhouse_wire::handshake::HandshakeError;

#[cfg(not(feature = "auth"))]
pub(super) use absent::ConnAuthentication;
#[cfg(not(feature = "auth"))]
pub use absent::Login;
#[cfg(all(feature = "alloc", not(feature = "auth")))]
use absent::mechanism_of;
#[cfg(feature = "auth")]
pub use present::Login;
#[cfg(all(feature = "alloc", feature = "auth"))]
use present::mechanism_of;
#[cfg(feature = "auth")]
pub(super) use present::{ConnAuthentication, Keys};

/// Why a connection was not authenticated.
#[cfg(feature = "alloc")]
pub type LoginReport = alloc::boxed::Box<LoginFailure>;
/// Why a connection was not authenticated.
#[cfg(not(feature = "alloc"))]
pub type LoginReport = LoginFailure;

/// A connection was not authenticated. Contains no secret, even if the server sent one.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct LoginFailure {
    /// The error of the check-out.
    pub check_out: CheckOutError,
    /// The server.
    pub address: ServerAddress,
    /// The error of the authentication.
    pub error: AuthError,
    /// The server's message, if it refused: at most 256 bytes on one line; `None` if it contains
    /// the password.
    #[cfg(feature = "alloc")]
    pub message: Option<alloc::string::String>,
    /// The database that the user belongs to (`authSource`).
    #[cfg(feature = "alloc")]
    pub source: alloc::boxed::Box<str>,
    /// The mechanism; `None` if the server chooses it, and has not done so yet.
    #[cfg(feature = "alloc")]
    pub mechanism: Option<&'static str>,
}

impl fmt::Display for LoginFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.introduce(f)?;
        write!(f, "{}: {}", self.check_out, self.error)?;
        #[cfg(feature = "alloc")]
        if let Some(message) = &self.message {
            write!(f, ": {message}")?;
        }
        #[cfg(feature = "alloc")]
        {
            write!(f, " (authSource {}", self.source)?;
            if let Some(mechanism) = self.mechanism {
                write!(f, ", authMechanism {mechanism}")?;
            }
            f.write_str(")")?;
        }
        Ok(())
    }
}

poolhouse_wire::debug_as_display!(LoginFailure);

impl core::error::Error for LoginFailure {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// The last authentication failure since the last success, for the check-outs that waited for the
/// connection.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) cause: poolhouse_core::Cause,
    pub(super) error: AuthError,
    #[cfg(feature = "alloc")]
    pub(super) message: Option<alloc::string::String>,
    #[cfg(feature = "alloc")]
    pub(super) source: alloc::boxed::Box<str>,
    #[cfg(feature = "alloc")]
    pub(super) mechanism: Option<&'static str>,
}

impl Refusal {
    /// The error of a check-out, if this refusal is its cause.
    pub(super) fn explain(&self, check_out: CheckOutError, address: &str) -> Option<LoginReport> {
        let CheckOutError::EstablishFailed { cause, .. } = check_out else { return None };
        if cause != self.cause {
            return None;
        }
        let failure = LoginFailure {
            check_out,
            address: ServerAddress::new(address),
            error: self.error,
            #[cfg(feature = "alloc")]
            message: self.message.clone(),
            #[cfg(feature = "alloc")]
            source: self.source.clone(),
            #[cfg(feature = "alloc")]
            mechanism: self.mechanism,
        };
        #[cfg(feature = "alloc")]
        let failure = alloc::boxed::Box::new(failure);
        Some(failure)
    }
}

impl<R: Runtime> ClientCore<R> {
    /// Stores why a connection was not established, for the operations that wait for it. Returns
    /// the error.
    pub(super) fn note_refusal(
        &self,
        server: &R::ServerHandle,
        connection: &Connection<R>,
        authentication: &ConnAuthentication<'_>,
        failed: NotEstablished,
    ) -> HandshakeError {
        let NotEstablished { error, reason } = failed;
        #[cfg(feature = "alloc")]
        {
            let is_encrypted = self.runtime().is_encrypted(connection.stream());
            let failure = ConnectError::new(error.cause, reason);
            let is_first = error.phase == Phase::Hello;
            server.note_failure(if is_first { connection.hinted(failure, is_encrypted) } else { failure });
        }
        #[cfg(not(feature = "alloc"))]
        let _ = (connection, authentication, reason);
        if let Some(wrong) = error.authentication {
            server.note_refusal(Refusal {
                cause: error.cause,
                error: wrong,
                #[cfg(feature = "alloc")]
                message: self.message(connection, wrong),
                #[cfg(feature = "alloc")]
                source: self.config().login.as_ref().map_or("", Login::source).into(),
                #[cfg(feature = "alloc")]
                mechanism: mechanism_of(authentication),
            });
        }
        error
    }

    /// The server's message, on one line and without control characters; `None` if it contains the
    /// password.
    #[cfg(feature = "alloc")]
    fn message(&self, connection: &Connection<R>, error: AuthError) -> Option<alloc::string::String> {
        if !matches!(error, AuthError::Refused { .. }) {
            return None;
        }
        let text = connection.refusal()?;
        if self.config().login.as_ref().is_some_and(|login| login.is_contained_in(text)) {
            return None;
        }
        Some(poolhouse_wire::peer_text::one_line(text).collect())
    }
}

#[cfg(feature = "auth")]
mod present {
    use super::super::client_core::ClientCore;
    use super::super::runtime::{Locked, Runtime};
    use poolhouse_auth::{Authentication, AuthenticationOptions, Credential, ITERATIONS_MAX, KeyRing, Mechanism};
    use poolhouse_core::Cause;
    use poolhouse_wire::handshake::HandshakeError;
    use poolhouse_wire::{AuthError, Phase};

    #[cfg(not(feature = "alloc"))]
    type Kept = Credential<'static>;
    #[cfg(feature = "alloc")]
    type Kept = poolhouse_auth::OwnedCredential;

    /// How the connections of an application authenticate. Monitors never authenticate.
    ///
    /// `Debug` shows neither user nor password.
    #[derive(Clone, Debug)]
    pub struct Login {
        credential: Kept,
        allow_plain_without_tls: bool,
        iterations_max: u32,
    }

    impl Login {
        /// Creates a login with this credential.
        ///
        /// # Errors
        ///
        /// [`AuthError`]: the credential is invalid for all servers.
        pub fn new(credential: impl Into<Kept>) -> Result<Self, AuthError> {
            let credential = credential.into();
            Authentication::check(&lend(&credential))?;
            Ok(Self { credential, allow_plain_without_tls: false, iterations_max: ITERATIONS_MAX })
        }

        /// Allows PLAIN to send the password over connections that are not private. Everyone on the
        /// network path can then read it.
        #[must_use]
        pub fn allow_plain_without_tls(self, allowed: bool) -> Self {
            Self { allow_plain_without_tls: allowed, ..self }
        }

        /// Sets another limit than [`ITERATIONS_MAX`]: the maximum work that a server can request
        /// for a connection.
        #[must_use]
        pub fn iterations_max(self, iterations: u32) -> Self {
            Self { iterations_max: iterations, ..self }
        }

        /// Whether this login is refused on a connection that is not private.
        #[must_use]
        pub fn needs_privacy(&self) -> bool {
            lend(&self.credential).mechanism == Some(Mechanism::Plain) && !self.allow_plain_without_tls
        }

        /// The database that the user belongs to.
        #[cfg(feature = "alloc")]
        pub(in super::super) fn source(&self) -> &str {
            lend(&self.credential).source_database()
        }

        /// The maximum size of a request with the password, in bytes.
        pub(in super::super) fn secret_bytes(&self) -> usize {
            const REST: usize = 512;
            let Credential { username, password, .. } = lend(&self.credential);
            let parts = username.unwrap_or_default().len().saturating_add(password.unwrap_or_default().len());
            parts.saturating_add(REST)
        }

        /// Whether a text of the server contains the password.
        #[cfg(feature = "alloc")]
        pub(in super::super) fn is_contained_in(&self, text: &str) -> bool {
            lend(&self.credential).password.is_some_and(|password| poolhouse_wire::peer_text::reveals(text, password))
        }
    }

    #[cfg(feature = "alloc")]
    fn lend(kept: &Kept) -> Credential<'_> {
        kept.as_credential()
    }

    #[cfg(not(feature = "alloc"))]
    const fn lend(kept: &Kept) -> Credential<'_> {
        *kept
    }

    /// The authenticator of one connection.
    pub(in super::super) type ConnAuthentication<'a> = Option<Authentication<'a>>;

    /// The name of the mechanism, once it is chosen.
    #[cfg(feature = "alloc")]
    pub(in super::super) fn mechanism_of(authentication: &ConnAuthentication<'_>) -> Option<&'static str> {
        authentication.as_ref()?.mechanism().map(Mechanism::name)
    }

    /// Derived keys that all connections of a client share.
    pub(in super::super) type Keys<R> = <R as crate::BaseRuntime>::Lock<KeyRing>;

    impl<R: Runtime> ClientCore<R> {
        /// Creates the authenticator of a new connection in `place`, because it is large.
        #[inline(never)]
        pub(in super::super) fn begin_authentication<'a>(
            &'a self,
            stream: &R::Stream,
            place: &mut ConnAuthentication<'a>,
        ) -> Result<(), HandshakeError> {
            let Some(login) = &self.config().login else { return Ok(()) };
            let failed = |cause| HandshakeError::new(Phase::Authentication, cause);
            let entropy = self.runtime().secret_entropy().ok_or(failed(Cause::Resources))?;
            let options = AuthenticationOptions {
                secure: self.runtime().is_private(stream),
                allow_plain_without_tls: login.allow_plain_without_tls,
                iterations_max: login.iterations_max,
                ..AuthenticationOptions::new(entropy)
            };
            match Authentication::new(lend(&login.credential), options) {
                Ok(authentication) => {
                    *place = Some(authentication);
                    Ok(())
                }
                Err(error) => Err(HandshakeError { authentication: Some(error), ..failed(Cause::Authentication) }),
            }
        }

        /// Uses derived keys of an earlier connection, if there are any.
        pub(in super::super) fn reuse_keys(&self, authentication: &mut ConnAuthentication<'_>) {
            if let Some(authentication) = authentication {
                self.keys().with(|keys| keys.spare(authentication));
            }
        }

        /// Stores the derived keys of a connection, for later ones.
        pub(in super::super) fn store_keys(&self, authentication: &ConnAuthentication<'_>) {
            if let Some(authentication) = authentication {
                self.keys().with(|keys| keys.keep(authentication));
            }
        }
    }
}

#[cfg(not(feature = "auth"))]
mod absent {
    use super::super::client_core::ClientCore;
    use super::super::runtime::Runtime;
    use core::convert::Infallible;
    use poolhouse_wire::Unauthenticated;
    use poolhouse_wire::handshake::HandshakeError;

    /// How the connections of an application authenticate. Without the feature `auth` there is no
    /// login.
    #[derive(Clone, Debug)]
    pub struct Login {
        never: Infallible,
    }

    impl Login {
        pub(in super::super) const fn secret_bytes(&self) -> usize {
            match self.never {}
        }

        #[cfg(feature = "alloc")]
        pub(in super::super) const fn is_contained_in(&self, _: &str) -> bool {
            match self.never {}
        }

        #[cfg(feature = "alloc")]
        pub(in super::super) const fn source(&self) -> &str {
            match self.never {}
        }
    }

    #[cfg(feature = "alloc")]
    pub(in super::super) const fn mechanism_of(_: &ConnAuthentication<'_>) -> Option<&'static str> {
        None
    }

    pub(in super::super) type ConnAuthentication<'a> = Unauthenticated;

    impl<R: Runtime> ClientCore<R> {
        pub(in super::super) fn begin_authentication<'a>(
            &'a self,
            _: &R::Stream,
            _: &mut ConnAuthentication<'a>,
        ) -> Result<(), HandshakeError> {
            Ok(())
        }

        pub(in super::super) fn reuse_keys(&self, _: &mut ConnAuthentication<'_>) {}

        pub(in super::super) fn store_keys(&self, _: &ConnAuthentication<'_>) {}
    }
}
