//! What makes a conversation unlike every other.

use core::fmt;

use base64ct::{Base64, Encoding};
use sha2::{Digest, Sha256};

use crate::wire::AuthError;

/// Bytes of entropy that a nonce is made of.
pub const ENTROPY_BYTES: usize = 24;

/// The shortest nonce of ours that is accepted, in characters.
pub const NONCE_BYTES_MIN: usize = 16;

/// The longest nonce of ours that is kept, in characters.
pub const NONCE_BYTES_MAX: usize = 64;

/// The longest nonce of the server's (ours at its front) that is kept, in characters. Servers add some 30 to 50.
pub const SERVER_NONCE_BYTES_MAX: usize = 256;

/// The client's nonce. `Debug` does not tell it.
#[derive(Clone, PartialEq, Eq)]
pub struct Nonce(heapless::Vec<u8, NONCE_BYTES_MAX>);

impl Nonce {
    /// The nonce of these bytes: their base64.
    ///
    /// - `entropy`: fresh from a generator that nobody can predict, once per connection.
    #[must_use]
    pub fn from_entropy(entropy: [u8; ENTROPY_BYTES]) -> Self {
        let mut buffer = [0; NONCE_BYTES_MAX];
        let text = Base64::encode(&entropy, &mut buffer).map_or(&[][..], str::as_bytes);
        Self(heapless::Vec::from_slice(text).unwrap_or_default())
    }

    /// The nonce of that text, for hosts that make their own: printable ASCII without comma,
    /// [`NONCE_BYTES_MIN`] to [`NONCE_BYTES_MAX`] characters.
    ///
    /// # Errors
    ///
    /// [`AuthError::NonceProhibited`].
    ///
    /// Source: RFC 5802, section 5.1, attribute `r`.
    pub fn from_text(text: &str) -> Result<Self, AuthError> {
        let fits = (NONCE_BYTES_MIN..=NONCE_BYTES_MAX).contains(&text.len());
        if !fits || !text.bytes().all(is_nonce_byte) {
            return Err(AuthError::NonceProhibited);
        }
        heapless::Vec::from_slice(text.as_bytes()).map(Self).map_err(|_| AuthError::NonceProhibited)
    }

    /// Another nonce for the same connection, as unpredictable as this one, for a second conversation when
    /// the first came to nothing before it was answered.
    pub(super) fn successor(&self) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"poolhouse second nonce");
        hash.update(&self.0);
        let bytes = <[u8; 32]>::from(hash.finalize());
        let mut entropy = [0; ENTROPY_BYTES];
        for (to, from) in entropy.iter_mut().zip(bytes) {
            *to = from;
        }
        Self::from_entropy(entropy)
    }

    /// Its characters.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nonce({} characters)", self.0.len())
    }
}

/// Whether a nonce may have the byte.
pub(super) const fn is_nonce_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b','
}
