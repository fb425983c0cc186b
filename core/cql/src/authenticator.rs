//! What a handshake needs to know of authentication.
//!
//! Read first: Native Protocol, "AUTHENTICATE", "AUTH_RESPONSE", "AUTH_CHALLENGE", "AUTH_SUCCESS"; RFC 4616.

use core::fmt;

use super::error::CqlEncodeError;
use super::write::BodyWriter;
use poolhouse_wire::Sink;
use poolhouse_wire::peer_text;
use poolhouse_wire::{AuthError, Unauthenticated};

/// A conversation that proves to a server who is calling: SASL, by rounds of tokens.
///
/// [`CqlHandshake`](super::CqlHandshake) asks for what is to be sent and hands in what came. What writes changes nothing and may be called again; what
/// handles moves on.
pub trait CqlAuthenticator {
    /// Takes the server's wish to know who is calling. A first token is then to be written.
    ///
    /// - `class`: the name of what checks it, such as `org.apache.cassandra.auth.PasswordAuthenticator`.
    ///
    /// # Errors
    ///
    /// [`AuthError`]: the connection is to be closed.
    fn handle_authenticate(&mut self, class: &str) -> Result<(), AuthError>;

    /// Takes a challenge. Another token is then to be written.
    ///
    /// # Errors
    ///
    /// [`AuthError`]: the connection is to be closed.
    fn handle_challenge(&mut self, token: Option<&[u8]>) -> Result<(), AuthError>;

    /// Takes the server's last word: it knows who is calling.
    ///
    /// # Errors
    ///
    /// [`AuthError`]: the connection is to be closed, if the server had to prove something too and could not.
    fn handle_success(&mut self, token: Option<&[u8]>) -> Result<(), AuthError>;

    /// Writes the bytes of the next token.
    ///
    /// # Errors
    ///
    /// [`CqlEncodeError`].
    fn write_token<S: Sink>(&self, token: &mut BodyWriter<'_, S>) -> Result<(), CqlEncodeError>;

    /// Whether a text of the server contains the secret; such a text is not kept. False by default.
    ///
    /// - `text`: the text of a server's refusal.
    fn is_revealed_by(&self, text: &str) -> bool {
        let _ = text;
        false
    }
}

/// A user name and a password, as Cassandra's PasswordAuthenticator wants them: by SASL's PLAIN. They are sent as they are, to a server by whatever name
/// of an authenticator; whoever is on the way can read them without TLS.
///
/// Borrowed, so that no copy is made but that which is sent. `Debug` tells neither.
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
    /// [`AuthError::UsernameMissing`], [`AuthError::UsernameProhibited`], [`AuthError::PasswordProhibited`]: zero characters separate the two.
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
    /// [`AuthError::NotDone`]: there is nothing more to say.
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

/// Nobody: a server that wants to know who is calling gets no answer.
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

/// `None` is [`Unauthenticated`].
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
