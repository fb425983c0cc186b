//! The client's nonces.

use core::fmt;

use base64ct::{Base64, Encoding};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use poolhouse_wire::AuthError;

/// Bytes of entropy for the nonces of a connection.
pub const ENTROPY_BYTES: usize = 24;

/// Minimum length of the client's nonce, in characters.
pub const NONCE_BYTES_MIN: usize = 16;

/// Maximum length of the client's nonce, in characters.
pub const NONCE_BYTES_MAX: usize = 64;

/// Maximum length of the server's nonce (which begins with the client's), in characters. Servers
/// add some 30 to 50.
pub const SERVER_NONCE_BYTES_MAX: usize = 256;

/// Label that is hashed with the entropy into the first nonce.
const FIRST: &[u8] = b"poolhouse first nonce";
/// Label that is hashed with the entropy into the second nonce.
const SECOND: &[u8] = b"poolhouse second nonce";

type Text = heapless::Vec<u8, NONCE_BYTES_MAX>;

/// The client's nonce, and optionally a second one for the same connection: if the server ignores
/// the conversation that was begun with hello, it is restarted with the second nonce. `Debug` shows
/// neither.
#[derive(Clone, PartialEq, Eq)]
pub struct Nonce {
    text: Text,
    second: Option<Text>,
}

impl Nonce {
    /// Derives both nonces from these bytes: each is the base64 of a different digest, so the first
    /// does not reveal the second. The bytes are wiped; the caller must wipe its own copy.
    ///
    /// - `entropy`: fresh bytes of an unpredictable generator, once per connection.
    ///
    /// Cost: two digests of one block each.
    #[must_use]
    pub fn from_entropy(entropy: [u8; ENTROPY_BYTES]) -> Self {
        let entropy = Zeroizing::new(entropy);
        Self { text: derived(FIRST, &entropy), second: Some(derived(SECOND, &entropy)) }
    }

    /// Uses this text as nonce, for hosts that generate their own: printable ASCII without comma,
    /// [`NONCE_BYTES_MIN`] to [`NONCE_BYTES_MAX`] characters.
    ///
    /// It serves one conversation: without a [second](Self::with_second) nonce an
    /// [`Authentication`](super::Authentication) with SCRAM does not begin with hello.
    ///
    /// # Errors
    ///
    /// [`AuthError::NonceProhibited`].
    ///
    /// Source: RFC 5802, section 5.1, attribute `r`.
    pub fn from_text(text: &str) -> Result<Self, AuthError> {
        Ok(Self { text: checked(text)?, second: None })
    }

    /// Adds a second nonce. It must differ from the first, and must not be predictable from it.
    ///
    /// # Errors
    ///
    /// [`AuthError::NonceProhibited`], also if both texts are equal.
    pub fn with_second(self, text: &str) -> Result<Self, AuthError> {
        let second = Some(checked(text)?).filter(|second| *second != self.text).ok_or(AuthError::NonceProhibited)?;
        Ok(Self { second: Some(second), ..self })
    }

    /// The second nonce alone, for a second conversation on the same connection.
    pub(super) fn second(&self) -> Option<Self> {
        self.second.clone().map(|text| Self { text, second: None })
    }

    /// Whether there is a second nonce.
    pub(super) const fn has_second(&self) -> bool {
        self.second.is_some()
    }

    /// The characters of the nonce.
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

/// Whether a nonce may contain the byte.
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
    // Uses as many digest bytes as there is entropy.
    let bytes = digest.first_chunk::<ENTROPY_BYTES>().map_or(&[][..], |bytes| bytes);
    let text = Base64::encode(bytes, &mut buffer).map_or(&[][..], str::as_bytes);
    heapless::Vec::from_slice(text).unwrap_or_default()
}
