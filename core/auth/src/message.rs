//! Parsing of a SCRAM server's messages.
//!
//! Read first: RFC 5802, section 5.1, "SCRAM Attributes", and section 7, "Formal Syntax".

use base64ct::{Base64, Encoding};

use super::keys::SALT_BYTES_MAX;
use super::nonce::is_nonce_byte;
use poolhouse_wire::AuthError;

/// The attributes that the standard defines; all others are extensions.
const KNOWN: &[u8] = b"acdeimnprsv";

/// The server's first message.
pub(super) struct ServerFirst<'a> {
    pub(super) nonce: &'a [u8],
    pub(super) salt: heapless::Vec<u8, SALT_BYTES_MAX>,
    pub(super) iterations: u32,
}

impl<'a> ServerFirst<'a> {
    /// Parses a message: nonce, salt and iterations in this order, then extensions. Linear in its
    /// length.
    pub(super) fn parse(message: &'a [u8]) -> Result<Self, AuthError> {
        let mut attributes = Attributes::new(message)?;
        let nonce = attributes.take(b'r')?;
        if !nonce.iter().copied().all(is_nonce_byte) {
            return Err(malformed(b'r'));
        }
        let salt = attributes.take(b's')?;
        if salt.len() > SALT_BYTES_MAX.div_ceil(3) * 4 {
            return Err(AuthError::SaltTooLong);
        }
        let mut buffer = [0; SALT_BYTES_MAX + 2];
        let salt = Base64::decode(salt, &mut buffer).map_err(|_| malformed(b's'))?;
        let salt = heapless::Vec::from_slice(salt).map_err(|_| AuthError::SaltTooLong)?;
        let iterations = number(attributes.take(b'i')?).ok_or(malformed(b'i'))?;
        attributes.finish()?;
        Ok(Self { nonce, salt, iterations })
    }
}

/// Decodes a server's final message into `buffer`: the signature, then extensions.
pub(super) fn server_final<'b>(message: &[u8], buffer: &'b mut [u8]) -> Result<&'b [u8], AuthError> {
    let mut attributes = Attributes::new(message)?;
    let verifier = attributes.take(b'v')?;
    attributes.finish()?;
    Base64::decode(verifier, buffer).map_err(|_| malformed(b'v'))
}

/// An iterator over the attributes of a message.
struct Attributes<'a> {
    rest: core::slice::Split<'a, u8, fn(&u8) -> bool>,
}

impl<'a> Attributes<'a> {
    /// Fails if the message is a refusal, or begins with a mandatory extension.
    fn new(message: &'a [u8]) -> Result<Self, AuthError> {
        match message {
            [b'e', b'=', ..] => return Err(AuthError::ServerError),
            [b'm', b'=', ..] => return Err(AuthError::MandatoryExtension),
            _ => {}
        }
        let is_comma: fn(&u8) -> bool = |byte| *byte == b',';
        Ok(Self { rest: message.split(is_comma) })
    }

    /// Takes the next attribute, which must have this name.
    fn take(&mut self, wanted: u8) -> Result<&'a [u8], AuthError> {
        let missing = AuthError::AttributeMissing { name: char::from(wanted) };
        match attribute(self.rest.next().ok_or(missing)?)? {
            (name, value) if name == wanted => Ok(value),
            _ => Err(missing),
        }
    }

    /// Checks that only optional extensions follow.
    fn finish(&mut self) -> Result<(), AuthError> {
        for part in &mut self.rest {
            let (name, _) = attribute(part)?;
            if KNOWN.contains(&name) {
                return Err(AuthError::AttributeMisplaced { name: char::from(name) });
            }
        }
        Ok(())
    }
}

/// Parses a letter, an equals sign, and a value of at least one character.
fn attribute(part: &[u8]) -> Result<(u8, &[u8]), AuthError> {
    match part {
        [name, b'=', value @ ..] if name.is_ascii_alphabetic() => {
            if value.is_empty() || value.contains(&0) {
                Err(malformed(*name))
            } else {
                Ok((*name, value))
            }
        }
        _ => Err(AuthError::AttributeMalformed { name: None }),
    }
}

fn malformed(name: u8) -> AuthError {
    AuthError::AttributeMalformed { name: Some(char::from(name)) }
}

/// Parses digits without a leading zero; a number beyond 32 bits becomes `u32::MAX`.
fn number(digits: &[u8]) -> Option<u32> {
    if digits.first() == Some(&b'0') && digits.len() > 1 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0_u32, |number, digit| number.saturating_mul(10).saturating_add(u32::from(digit & 15))))
}
