//! The cryptographic primitives, selected by mechanism at run time.

use hmac::{Hmac, KeyInit, Mac as _};
#[cfg(feature = "scram-sha-1")]
use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::mechanism::ScramMechanism;

/// Length of the longest digest in bytes.
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

    /// The exclusive or of both digests.
    pub(super) fn xor(mut self, other: &Self) -> Self {
        for (mine, theirs) in self.bytes_mut().iter_mut().zip(other.bytes()) {
            *mine ^= theirs;
        }
        self
    }

    /// Whether the digest equals these bytes, in constant time.
    pub(super) fn is(&self, other: &[u8]) -> bool {
        self.bytes().ct_eq(other).into()
    }
}

/// The length of a mechanism's digests in bytes.
pub(super) const fn digest_bytes(mechanism: ScramMechanism) -> usize {
    match mechanism {
        #[cfg(feature = "scram-sha-1")]
        ScramMechanism::Sha1 => 20,
        ScramMechanism::Sha256 => 32,
    }
}

/// The mechanism's hash.
pub(super) fn hash(mechanism: ScramMechanism, bytes: &[u8]) -> Digest {
    match mechanism {
        #[cfg(feature = "scram-sha-1")]
        ScramMechanism::Sha1 => Digest::new(mechanism, &Zeroizing::new(<[u8; 20]>::from(Sha1::digest(bytes)))[..]),
        ScramMechanism::Sha256 => Digest::new(mechanism, &Zeroizing::new(<[u8; 32]>::from(Sha256::digest(bytes)))[..]),
    }
}

/// Computation of SCRAM's salted password: PBKDF2 with a single block of output, which can be
/// interrupted after any iteration.
///
/// Source: RFC 5802, section 2.2, function `Hi`; RFC 8018, section 5.2.
pub(super) struct Stretch {
    /// The MAC keyed with the password, before any input.
    keyed: Mac,
    /// The result of the last iteration.
    last: Digest,
    /// The exclusive or of all results so far.
    sum: Digest,
    /// Remaining iterations.
    left: u32,
}

impl Stretch {
    /// Starts with the first iteration. `iterations`: at least 1.
    pub(super) fn new(mechanism: ScramMechanism, password: &[u8], salt: &[u8], iterations: u32) -> Self {
        let keyed = Mac::new(mechanism, password);
        let mut mac = keyed.clone();
        mac.update(salt);
        mac.update(&1_u32.to_be_bytes());
        let last = mac.finish();
        Self { keyed, sum: last.clone(), last, left: iterations.saturating_sub(1) }
    }

    /// Performs up to `count` iterations. Returns `None` while iterations remain.
    ///
    /// Cost: two hashes of one block for each.
    pub(super) fn advance(&mut self, count: u32) -> Option<&Digest> {
        let now = count.min(self.left);
        self.left -= now;
        let Self { keyed, last, sum, left } = self;
        match keyed {
            #[cfg(feature = "scram-sha-1")]
            Mac::Sha1(mac) => iterate(mac, last.bytes_mut(), sum.bytes_mut(), now),
            Mac::Sha256(mac) => iterate(mac, last.bytes_mut(), sum.bytes_mut(), now),
        }
        (*left == 0).then_some(sum)
    }
}

fn iterate<M: hmac::Mac + Clone>(keyed: &M, last: &mut [u8], sum: &mut [u8], count: u32) {
    for _ in 0..count {
        let mut mac = keyed.clone();
        mac.update(last);
        for ((last, sum), byte) in last.iter_mut().zip(sum.iter_mut()).zip(output_of(mac)) {
            *last = byte;
            *sum ^= byte;
        }
    }
}

// Devices without a heap have little room: one copy serves both callers.
#[cfg_attr(not(feature = "alloc"), inline(never))]
fn output_of<M: hmac::Mac>(mac: M) -> hmac::digest::Output<M> {
    mac.finalize().into_bytes()
}

/// A MAC over input in several pieces.
#[derive(Clone)]
pub(super) enum Mac {
    #[cfg(feature = "scram-sha-1")]
    Sha1(Hmac<Sha1>),
    Sha256(Hmac<Sha256>),
}

impl Mac {
    pub(super) fn new(mechanism: ScramMechanism, key: &[u8]) -> Self {
        const ANY: &str = "HMAC takes keys of every length";
        match mechanism {
            #[cfg(feature = "scram-sha-1")]
            ScramMechanism::Sha1 => Self::Sha1(Hmac::new_from_slice(key).expect(ANY)),
            ScramMechanism::Sha256 => Self::Sha256(Hmac::new_from_slice(key).expect(ANY)),
        }
    }

    /// The MAC of a single piece.
    pub(super) fn of(mechanism: ScramMechanism, key: &[u8], bytes: &[u8]) -> Digest {
        let mut mac = Self::new(mechanism, key);
        mac.update(bytes);
        mac.finish()
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            #[cfg(feature = "scram-sha-1")]
            Self::Sha1(mac) => mac.update(bytes),
            Self::Sha256(mac) => mac.update(bytes),
        }
    }

    pub(super) fn finish(self) -> Digest {
        match self {
            #[cfg(feature = "scram-sha-1")]
            Self::Sha1(mac) => {
                let bytes = Zeroizing::new(<[u8; 20]>::from(output_of(mac)));
                Digest::new(ScramMechanism::Sha1, &bytes[..])
            }
            Self::Sha256(mac) => {
                let bytes = Zeroizing::new(<[u8; 32]>::from(output_of(mac)));
                Digest::new(ScramMechanism::Sha256, &bytes[..])
            }
        }
    }
}
