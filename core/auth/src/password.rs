//! Preparation of passwords before they are hashed.

#[cfg(feature = "scram-sha-1")]
use md5::{Digest, Md5};
#[cfg(any(feature = "scram-sha-1", feature = "std"))]
use zeroize::Zeroizing;

use super::mechanism::ScramMechanism;
use poolhouse_wire::AuthError;

/// A password as SCRAM hashes it. Wiped when dropped, unless borrowed from the caller.
pub(super) enum Prepared<'a> {
    Borrowed(&'a str),
    #[cfg(feature = "std")]
    Owned(Zeroizing<alloc::string::String>),
    #[cfg(feature = "scram-sha-1")]
    Digest(Zeroizing<[u8; 32]>),
}

impl Prepared<'_> {
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(text) => text.as_bytes(),
            #[cfg(feature = "std")]
            Self::Owned(text) => text.as_bytes(),
            #[cfg(feature = "scram-sha-1")]
            Self::Digest(digits) => &digits[..],
        }
    }
}

/// Prepares a password: with MongoDB's digest for SHA-1, with SASLprep for SHA-256. Linear in its
/// length.
///
/// Source: Authentication, "SCRAM-SHA-1", "SCRAM-SHA-256"; RFC 4013.
pub(super) fn prepare<'a>(
    mechanism: ScramMechanism,
    #[cfg_attr(not(feature = "scram-sha-1"), expect(unused_variables, reason = "hashed by SCRAM-SHA-1 alone"))]
    username: &str,
    password: &'a str,
) -> Result<Prepared<'a>, AuthError> {
    if password.is_empty() {
        return Err(AuthError::PasswordMissing);
    }
    match mechanism {
        #[cfg(feature = "scram-sha-1")]
        ScramMechanism::Sha1 => Ok(Prepared::Digest(digest(username, password))),
        ScramMechanism::Sha256 => saslprep(password),
    }
}

/// The hexadecimal MD5 digest (32 digits) of user, `mongo` and password, separated by colons.
#[cfg(feature = "scram-sha-1")]
fn digest(username: &str, password: &str) -> Zeroizing<[u8; 32]> {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut hash = Md5::new();
    hash.update(username.as_bytes());
    hash.update(b":mongo:");
    hash.update(password.as_bytes());
    let bytes = Zeroizing::new(<[u8; 16]>::from(hash.finalize()));
    let mut digits = Zeroizing::new([0; 32]);
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes.iter()) {
        for (place, nibble) in pair.iter_mut().zip([byte >> 4, byte & 15]) {
            *place = HEX.get(usize::from(nibble)).copied().unwrap_or_default();
        }
    }
    digits
}

/// ASCII without control characters needs no preparation; other text needs the tables of feature
/// `std`.
fn saslprep(password: &str) -> Result<Prepared<'_>, AuthError> {
    if password.is_ascii() {
        let prohibited = password.bytes().any(|byte| byte.is_ascii_control());
        return if prohibited { Err(AuthError::PasswordProhibited) } else { Ok(Prepared::Borrowed(password)) };
    }
    beyond_ascii(password)
}

#[cfg(feature = "std")]
fn beyond_ascii(password: &str) -> Result<Prepared<'_>, AuthError> {
    match stringprep::saslprep(password).map(alloc::borrow::Cow::into_owned) {
        Err(_) => Err(AuthError::PasswordProhibited),
        Ok(text) if text.is_empty() => Err(AuthError::PasswordMissing),
        Ok(text) => Ok(Prepared::Owned(Zeroizing::new(text))),
    }
}

#[cfg(not(feature = "std"))]
const fn beyond_ascii(_: &str) -> Result<Prepared<'_>, AuthError> {
    Err(AuthError::PasswordNotAscii)
}
