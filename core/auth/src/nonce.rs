//! What makes a conversation unlike every other.

use core::fmt;

use base64ct::{Base64, Encoding};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use poolhouse_wire::AuthError;

/// Bytes of entropy that the nonces of a connection are made of.
pub const ENTROPY_BYTES: usize = 24;

/// The shortest nonce of ours that is accepted, in characters.
pub const NONCE_BYTES_MIN: usize = 16;

/// The longest nonce of ours that is kept, in characters.
pub const NONCE_BYTES_MAX: usize = 64;

/// The longest nonce of the server's (ours at its front) that is kept, in characters. Servers add some 30 to 50.
pub const SERVER_NONCE_BYTES_MAX: usize = 256;

/// What the first nonce is made of, besides the entropy.
const FIRST: &[u8] = b"poolhouse first nonce";
/// What the second nonce is made of, besides the entropy.
const SECOND: &[u8] = b"poolhouse second nonce";

type Text = heapless::Vec<u8, NONCE_BYTES_MAX>;

/// The client's nonce, and perhaps a second one for the same connection: a conversation that was begun with hello, and came to nothing
/// because the server did not answer it, is begun anew under that. `Debug` tells neither.
#[derive(Clone, PartialEq, Eq)]
pub struct Nonce {
    text: Text,
    second: Option<Text>,
}

impl Nonce {
    /// The nonces of these bytes: base64 of a digest of them, a different one for the second. Who has seen the first knows nothing of
    /// the second. The bytes are wiped; where they came from is the caller's affair.
    ///
    /// - `entropy`: fresh from a generator that nobody can predict, once per connection.
    ///
    /// Cost: two digests of one block each.
    #[must_use]
    pub fn from_entropy(entropy: [u8; ENTROPY_BYTES]) -> Self {
        let entropy = Zeroizing::new(entropy);
        Self { text: derived(FIRST, &entropy), second: Some(derived(SECOND, &entropy)) }
    }

    /// The nonce of that text, for hosts that make their own: printable ASCII without comma,
    /// [`NONCE_BYTES_MIN`] to [`NONCE_BYTES_MAX`] characters.
    ///
    /// It serves one conversation: an [`Authentication`](super::Authentication) without a [second](Self::with_second) begins none
    /// by SCRAM together with hello.
    ///
    /// # Errors
    ///
    /// [`AuthError::NonceProhibited`].
    ///
    /// Source: RFC 5802, section 5.1, attribute `r`.
    pub fn from_text(text: &str) -> Result<Self, AuthError> {
        Ok(Self { text: checked(text)?, second: None })
    }

    /// The same with a second one, which must be another, and be as hard to predict for whoever has seen the first.
    ///
    /// # Errors
    ///
    /// [`AuthError::NonceProhibited`], also for the same text again.
    pub fn with_second(self, text: &str) -> Result<Self, AuthError> {
        let second = Some(checked(text)?).filter(|second| *second != self.text).ok_or(AuthError::NonceProhibited)?;
        Ok(Self { second: Some(second), ..self })
    }

    /// The second one by itself, for a second conversation on the same connection.
    pub(super) fn second(&self) -> Option<Self> {
        self.second.clone().map(|text| Self { text, second: None })
    }

    /// Whether there is a second one.
    pub(super) const fn has_second(&self) -> bool {
        self.second.is_some()
    }

    /// Its characters.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.text
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nonce({} characters)", self.text.len())
    }
}

/// Whether a nonce may have the byte.
pub(super) const fn is_nonce_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b','
}

fn checked(text: &str) -> Result<Text, AuthError> {
    let fits = (NONCE_BYTES_MIN..=NONCE_BYTES_MAX).contains(&text.len());
    if !fits || !text.bytes().all(is_nonce_byte) {
        return Err(AuthError::NonceProhibited);
    }
    heapless::Vec::from_slice(text.as_bytes()).map_err(|_| AuthError::NonceProhibited)
}

fn derived(label: &[u8], entropy: &[u8; ENTROPY_BYTES]) -> Text {
    let digest = <[u8; 32]>::from(Sha256::new().chain_update(label).chain_update(entropy).finalize());
    let mut buffer = [0; NONCE_BYTES_MAX];
    // As many characters as the entropy is worth.
    let bytes = digest.first_chunk::<ENTROPY_BYTES>().map_or(&[][..], |bytes| bytes);
    let text = Base64::encode(bytes, &mut buffer).map_or(&[][..], str::as_bytes);
    heapless::Vec::from_slice(text).unwrap_or_default()
}
