//! The primitives, by name of mechanism instead of by type.

use hmac::{Hmac, KeyInit, Mac as _};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::mechanism::ScramMechanism;

/// Bytes of the longest digest.
pub(super) const DIGEST_BYTES_MAX: usize = 32;

/// The result of a hash or of a MAC. Wiped when dropped.
#[derive(Clone)]
pub(super) struct Digest {
    bytes: Zeroizing<[u8; DIGEST_BYTES_MAX]>,
    mechanism: ScramMechanism,
}

impl Digest {
    fn new(mechanism: ScramMechanism, from: &[u8]) -> Self {
        let mut digest = Self { bytes: Zeroizing::default(), mechanism };
        digest.bytes_mut().copy_from_slice(from);
        digest
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..digest_bytes(self.mechanism)).unwrap_or_default()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(..digest_bytes(self.mechanism)).unwrap_or_default()
    }

    /// This one with every bit flipped where `other` has one.
    pub(super) fn xor(mut self, other: &Self) -> Self {
        for (mine, theirs) in self.bytes_mut().iter_mut().zip(other.bytes()) {
            *mine ^= theirs;
        }
        self
    }

    /// Whether it is these bytes. The time does not depend on where they differ.
    pub(super) fn is(&self, other: &[u8]) -> bool {
        self.bytes().ct_eq(other).into()
    }
}

/// Bytes of a mechanism's digests.
pub(super) const fn digest_bytes(mechanism: ScramMechanism) -> usize {
    match mechanism {
        ScramMechanism::Sha1 => 20,
        ScramMechanism::Sha256 => 32,
    }
}

/// The mechanism's hash.
pub(super) fn hash(mechanism: ScramMechanism, bytes: &[u8]) -> Digest {
    match mechanism {
        ScramMechanism::Sha1 => Digest::new(mechanism, &Zeroizing::new(<[u8; 20]>::from(Sha1::digest(bytes)))[..]),
        ScramMechanism::Sha256 => Digest::new(mechanism, &Zeroizing::new(<[u8; 32]>::from(Sha256::digest(bytes)))[..]),
    }
}

/// The salted password of SCRAM. Cost: two hashes of a block each `iterations`.
pub(super) fn stretch(mechanism: ScramMechanism, password: &[u8], salt: &[u8], iterations: u32) -> Digest {
    let mut digest = Digest { bytes: Zeroizing::default(), mechanism };
    match mechanism {
        ScramMechanism::Sha1 => pbkdf2::pbkdf2_hmac::<Sha1>(password, salt, iterations, digest.bytes_mut()),
        ScramMechanism::Sha256 => pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, iterations, digest.bytes_mut()),
    }
    digest
}

/// A MAC over bytes that come in pieces.
pub(super) enum Mac {
    Sha1(Hmac<Sha1>),
    Sha256(Hmac<Sha256>),
}

impl Mac {
    pub(super) fn new(mechanism: ScramMechanism, key: &[u8]) -> Self {
        const ANY: &str = "HMAC takes keys of every length";
        match mechanism {
            ScramMechanism::Sha1 => Self::Sha1(Hmac::new_from_slice(key).expect(ANY)),
            ScramMechanism::Sha256 => Self::Sha256(Hmac::new_from_slice(key).expect(ANY)),
        }
    }

    /// The MAC of one piece.
    pub(super) fn of(mechanism: ScramMechanism, key: &[u8], bytes: &[u8]) -> Digest {
        let mut mac = Self::new(mechanism, key);
        mac.update(bytes);
        mac.finish()
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha1(mac) => mac.update(bytes),
            Self::Sha256(mac) => mac.update(bytes),
        }
    }

    pub(super) fn finish(self) -> Digest {
        match self {
            Self::Sha1(mac) => {
                let bytes = Zeroizing::new(<[u8; 20]>::from(mac.finalize().into_bytes()));
                Digest::new(ScramMechanism::Sha1, &bytes[..])
            }
            Self::Sha256(mac) => {
                let bytes = Zeroizing::new(<[u8; 32]>::from(mac.finalize().into_bytes()));
                Digest::new(ScramMechanism::Sha256, &bytes[..])
            }
        }
    }
}
