//! The interface between a handshake and authentication.
//!
//! Read first: Native Protocol, "AUTHENTICATE", "AUTH_RESPONSE", "AUTH_CHALLENGE", "AUTH_SUCCESS";
//! RFC 4616.

use core::fmt;

use super::error::CqlEncodeError;
use super::write::BodyWriter;
use poolhouse_wire::Sink;
use poolhouse_wire::peer_text;
use poolhouse_wire::{AuthError, Unauthenticated};

/// A conversation that authenticates this client to a server: SASL, in rounds of tokens.
///
/// [`CqlHandshake`](super::CqlHandshake) requests the tokens to send and passes in those received.
/// `write_token` does not change state and may be called again; the `handle_*` methods advance the
/// conversation.
pub trait CqlAuthenticator {
    /// Handles the server's request to authenticate. The first token must then be written.
    ///
    /// - `class`: the name of the server's authenticator class, such as
    ///   `org.apache.cassandra.auth.PasswordAuthenticator`.
    ///
    /// # Errors
    ///
    /// [`AuthError`]: the connection must be closed.
    fn handle_authenticate(&mut self, class: &str) -> Result<(), AuthError>;

    /// Handles a challenge. Another token must then be written.
    ///
    /// # Errors
    ///
    /// [`AuthError`]: the connection must be closed.
    fn handle_challenge(&mut self, token: Option<&[u8]>) -> Result<(), AuthError>;

    /// Handles the server's final message: the client is authenticated.
    ///
    /// # Errors
    ///
    /// [`AuthError`]: the connection must be closed, because the server failed to prove its
    /// identity.
    fn handle_success(&mut self, token: Option<&[u8]>) -> Result<(), AuthError>;

    /// Writes the bytes of the next token.
    ///
    /// # Errors
    ///
    /// [`CqlEncodeError`].
    fn write_token<S: Sink>(&self, token: &mut BodyWriter<'_, S>) -> Result<(), CqlEncodeError>;

    /// Whether a text of the server contains the secret. Such a text is not stored. False by
    /// default.
    ///
    /// - `text`: the text of a server's refusal.
    fn is_revealed_by(&self, text: &str) -> bool {
        let _ = text;
        false
    }
}

/// A user name and a password for Cassandra's PasswordAuthenticator, which uses SASL PLAIN. They
/// are sent in plain text, whatever authenticator class the server names: without TLS, an attacker
/// on the network path can read them.
///
/// Borrowed: the only copy is the one that is sent. `Debug` shows neither.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Password<'a> {
    /// The user.
    pub username: &'a str,
    /// The password.
    pub password: &'a str,
}

impl fmt::Debug for Password<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

impl CqlAuthenticator for Password<'_> {
    /// # Errors
    ///
    /// [`AuthError::UsernameMissing`], [`AuthError::UsernameProhibited`],
    /// [`AuthError::PasswordProhibited`]: neither may contain a zero character, which separates the
    /// two.
    fn handle_authenticate(&mut self, _: &str) -> Result<(), AuthError> {
        if self.username.is_empty() {
            return Err(AuthError::UsernameMissing);
        }
        if self.username.contains('\0') {
            return Err(AuthError::UsernameProhibited);
        }
        if self.password.contains('\0') {
            return Err(AuthError::PasswordProhibited);
        }
        Ok(())
    }

    /// # Errors
    ///
    /// [`AuthError::NotDone`]: PLAIN has no further token.
    fn handle_challenge(&mut self, _: Option<&[u8]>) -> Result<(), AuthError> {
        Err(AuthError::NotDone)
    }

    fn handle_success(&mut self, _: Option<&[u8]>) -> Result<(), AuthError> {
        Ok(())
    }

    fn write_token<S: Sink>(&self, token: &mut BodyWriter<'_, S>) -> Result<(), CqlEncodeError> {
        for part in ["\0", self.username, "\0", self.password] {
            token.raw(part.as_bytes())?;
        }
        Ok(())
    }

    fn is_revealed_by(&self, text: &str) -> bool {
        peer_text::reveals(text, self.password)
    }
}

/// No authentication: fails if the server requires it.
impl CqlAuthenticator for Unauthenticated {
    /// # Errors
    ///
    /// [`AuthError::UsernameMissing`].
    fn handle_authenticate(&mut self, _: &str) -> Result<(), AuthError> {
        Err(AuthError::UsernameMissing)
    }

    fn handle_challenge(&mut self, _: Option<&[u8]>) -> Result<(), AuthError> {
        Err(AuthError::Ended)
    }

    fn handle_success(&mut self, _: Option<&[u8]>) -> Result<(), AuthError> {
        Err(AuthError::Ended)
    }

    fn write_token<S: Sink>(&self, _: &mut BodyWriter<'_, S>) -> Result<(), CqlEncodeError> {
        Ok(())
    }
}

/// `None` behaves as [`Unauthenticated`].
impl<A: CqlAuthenticator> CqlAuthenticator for Option<A> {
    fn handle_authenticate(&mut self, class: &str) -> Result<(), AuthError> {
        self.as_mut().map_or(Err(AuthError::UsernameMissing), |inner| inner.handle_authenticate(class))
    }

    fn handle_challenge(&mut self, token: Option<&[u8]>) -> Result<(), AuthError> {
        self.as_mut().map_or(Err(AuthError::Ended), |inner| inner.handle_challenge(token))
    }

    fn handle_success(&mut self, token: Option<&[u8]>) -> Result<(), AuthError> {
        self.as_mut().map_or(Err(AuthError::Ended), |inner| inner.handle_success(token))
    }

    fn write_token<S: Sink>(&self, token: &mut BodyWriter<'_, S>) -> Result<(), CqlEncodeError> {
        self.as_ref().map_or(Ok(()), |inner| inner.write_token(token))
    }

    fn is_revealed_by(&self, text: &str) -> bool {
        self.as_ref().is_some_and(|inner| inner.is_revealed_by(text))
    }
}
