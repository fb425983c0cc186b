//! Signatures by RSA keys of 2,048, 3,072 or 4,096 bits, verified without allocation.
//!
//! Read first: RFC 8017, "EMSA-PSS", "EMSA-PKCS1-v1_5". Everything here is public, so the time may
//! depend on it.

use crypto_bigint::modular::montgomery_reduction;
use crypto_bigint::{Encoding, Limb, U2048, U3072, U4096, Uint};
use pkcs1::RsaPublicKey;
use pkcs1::der::Decode;
use pkcs1::der::asn1::BitStringRef;
use rustls_pki_types::alg_id;
use sha2::{Digest, Sha256, Sha384, Sha512};

/// The bytes of the largest modulus.
const MODULUS_MAX: usize = U4096::BYTES;
/// The bytes of an encoded key: the modulus, an exponent, and the headers of three elements.
const KEY_BYTES_MAX: usize = MODULUS_MAX + 20;
/// The bytes of the longest digest.
const DIGEST_MAX: usize = 64;

/// The key of a server, in the encoding of PKCS #1.
pub(super) struct ServerKey(heapless::Vec<u8, KEY_BYTES_MAX>);

impl ServerKey {
    /// Reads the key from the content of a `SubjectPublicKeyInfo`; `None` if it is not a supported RSA key.
    pub(super) fn of(subject_public_key_info: &[u8]) -> Option<Self> {
        let algorithm = alg_id::RSA_ENCRYPTION;
        let len = u8::try_from(algorithm.as_ref().len()).ok()?;
        let rest = subject_public_key_info.strip_prefix(&[0x30, len])?.strip_prefix(algorithm.as_ref())?;
        let key = BitStringRef::from_der(rest).ok()?.as_bytes()?;
        Key::read(key)?;
        Some(Self(heapless::Vec::from_slice(key).ok()?))
    }

    /// Verifies a signature by RSASSA-PSS: TLS 1.3 allows PKCS #1 version 1.5 only in certificates.
    pub(super) fn verifies(&self, hash: Hash, message: &[u8], signature: &[u8]) -> bool {
        verifies(&self.0, Padding::Pss, hash, message, signature)
    }
}

/// How a message is encoded before it is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Padding {
    /// RSASSA-PKCS1-v1_5.
    Pkcs1,
    /// RSASSA-PSS with MGF1 and a salt of the length of the digest.
    Pss,
}

/// Verifies a signature.
///
/// - `key`: in the encoding of PKCS #1.
pub(super) fn verifies(key: &[u8], padding: Padding, hash: Hash, message: &[u8], signature: &[u8]) -> bool {
    let Some(key) = Key::read(key) else { return false };
    let mut buffer = [0; MODULUS_MAX];
    key.recover(signature, &mut buffer).is_some_and(|encoded| match padding {
        Padding::Pkcs1 => is_pkcs1(hash, message, encoded),
        Padding::Pss => is_pss(hash, message, encoded),
    })
}

/// A hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    /// The bytes of a digest.
    const fn len(self) -> u8 {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// The last byte of its object identifier.
    const fn arc(self) -> u8 {
        match self {
            Self::Sha256 => 1,
            Self::Sha384 => 2,
            Self::Sha512 => 3,
        }
    }

    fn digest(self, parts: &[&[u8]]) -> heapless::Vec<u8, DIGEST_MAX> {
        fn of<D: Digest>(parts: &[&[u8]]) -> heapless::Vec<u8, DIGEST_MAX> {
            let mut digest = D::new();
            parts.iter().for_each(|part| digest.update(part));
            heapless::Vec::from_slice(&digest.finalize()).unwrap_or_default()
        }
        match self {
            Self::Sha256 => of::<Sha256>(parts),
            Self::Sha384 => of::<Sha384>(parts),
            Self::Sha512 => of::<Sha512>(parts),
        }
    }
}

/// A key of a supported size.
#[derive(Debug)]
pub(super) struct Key<'a> {
    /// Without leading zeros.
    modulus: &'a [u8],
    exponent: u32,
}

impl<'a> Key<'a> {
    /// Reads a key in the encoding of PKCS #1.
    pub(super) fn read(der: &'a [u8]) -> Option<Self> {
        let key = RsaPublicKey::from_der(der).ok()?;
        let (modulus, exponent) = (key.modulus.as_bytes(), key.public_exponent.as_bytes());
        let is_odd = |bytes: &[u8]| bytes.last().is_some_and(|last| last & 1 == 1);
        // The arithmetic below requires an odd modulus of exactly so many bits.
        let has_size = [U2048::BYTES, U3072::BYTES, U4096::BYTES].contains(&modulus.len());
        let is_whole = modulus.first().is_some_and(|first| first & 0x80 != 0);
        if !has_size || !is_whole || !is_odd(modulus) || !is_odd(exponent) || exponent.len() > 4 {
            return None;
        }
        let exponent = exponent.iter().fold(0, |value, byte| value << 8 | u32::from(*byte));
        (exponent > 1).then_some(Self { modulus, exponent })
    }

    /// Returns the encoded message that was signed, of the length of the modulus.
    fn recover<'b>(&self, signature: &[u8], buffer: &'b mut [u8; MODULUS_MAX]) -> Option<&'b [u8]> {
        // Of two numbers of the same length, the one that is larger as bytes is larger.
        if signature.len() != self.modulus.len() || signature >= self.modulus {
            return None;
        }
        match signature.len() {
            U2048::BYTES => power::<{ U2048::LIMBS }, _>(self, signature, buffer.first_chunk_mut()?)?,
            U3072::BYTES => power::<{ U3072::LIMBS }, _>(self, signature, buffer.first_chunk_mut()?)?,
            _ => power::<{ U4096::LIMBS }, _>(self, signature, buffer)?,
        }
        buffer.get(..signature.len())
    }
}

/// Raises `base` to the exponent of the key, modulo its modulus.
#[inline(never)]
fn power<const LIMBS: usize, const BYTES: usize>(key: &Key<'_>, base: &[u8], result: &mut [u8; BYTES]) -> Option<()>
where
    Uint<LIMBS>: Encoding<Repr = [u8; BYTES]>,
{
    let number = |bytes: &[u8]| bytes.try_into().ok().map(Uint::<LIMBS>::from_be_bytes);
    let field = Field::of(number(key.modulus)?);
    let base = field.multiply(&number(base)?, &field.radix_squared());
    let value = field.raise(&base, key.exponent.into());
    *result = field.multiply(&value, &Uint::ONE).to_be_bytes();
    Some(())
}

/// Arithmetic modulo an odd number whose first bit is 1, by Montgomery's method: a number is stored as its
/// product with the radix, two to the power of the number of bits.
struct Field<const LIMBS: usize> {
    modulus: Uint<LIMBS>,
    /// The negated inverse of the modulus, modulo two to the power of the bits of a limb.
    inverse: Limb,
}

impl<const LIMBS: usize> Field<LIMBS> {
    fn of(modulus: Uint<LIMBS>) -> Self {
        let lowest = modulus.as_words().first().copied().unwrap_or(1);
        // The inverse of its lowest three bits is the same three bits. Newton's method doubles them each time.
        let inverse = (0..5).fold(lowest, |inverse, _| {
            inverse.wrapping_mul(crypto_bigint::Word::wrapping_sub(2, lowest.wrapping_mul(inverse)))
        });
        Self { modulus, inverse: Limb(inverse.wrapping_neg()) }
    }

    /// The product of two numbers that are stored as their products with the radix, stored likewise.
    fn multiply(&self, one: &Uint<LIMBS>, other: &Uint<LIMBS>) -> Uint<LIMBS> {
        montgomery_reduction(&one.mul_wide(other), &self.modulus, self.inverse)
    }

    /// A power of a number that is stored as its product with the radix, stored likewise.
    ///
    /// - `exponent`: at least 1.
    fn raise(&self, base: &Uint<LIMBS>, exponent: u64) -> Uint<LIMBS> {
        let mut value = *base;
        // The highest bit of the exponent is `base` itself.
        for bit in (0..exponent.ilog2()).rev() {
            value = self.multiply(&value, &value);
            if exponent >> bit & 1 == 1 {
                value = self.multiply(&value, base);
            }
        }
        value
    }

    /// The square of the radix: the radix, stored as its product with the radix.
    fn radix_squared(&self) -> Uint<LIMBS> {
        // The first bit of the modulus is 1, so the radix modulo the modulus is their difference.
        let one = self.modulus.wrapping_neg();
        let two = one.add_mod(&one, &self.modulus);
        self.raise(&two, Uint::<LIMBS>::BITS as u64)
    }
}

/// Whether this is the encoding of a message by EMSA-PKCS1-v1_5: the bytes 0 and 1, bytes 255, 0, the
/// algorithm and the digest.
fn is_pkcs1(hash: Hash, message: &[u8], encoded: &[u8]) -> bool {
    let digest = hash.digest(&[message]);
    let len = hash.len();
    let algorithm = [0x30, 17 + len, 0x30, 13, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, hash.arc(), 5, 0, 4, len];
    let Some(padding) = encoded.len().checked_sub(3 + algorithm.len() + digest.len()) else { return false };
    let expected = [0, 1].into_iter().chain(core::iter::repeat_n(0xff, padding)).chain([0]);
    encoded.iter().copied().eq(expected.chain(algorithm).chain(digest))
}

/// Whether this is an encoding of a message by EMSA-PSS: a masked block that ends with 1 and the salt, a
/// digest, and 0xbc. The first bit is 0, because the encoding has one bit less than the modulus.
fn is_pss(hash: Hash, message: &[u8], encoded: &[u8]) -> bool {
    let len = usize::from(hash.len());
    let Some((encoded, 0xbc)) = encoded.split_last().map(|(last, rest)| (rest, *last)) else { return false };
    let Some((masked, digest)) = encoded.len().checked_sub(len).and_then(|at| encoded.split_at_checked(at)) else {
        return false;
    };
    if masked.first().is_none_or(|first| first & 0x80 != 0) {
        return false;
    }
    let mut block = [0; MODULUS_MAX];
    let Some(block) = block.get_mut(..masked.len()) else { return false };
    block.copy_from_slice(masked);
    // MGF1: the digests of the digest and a counter.
    for (counter, chunk) in (0_u32..).zip(block.chunks_mut(len)) {
        let mask = hash.digest(&[digest, &counter.to_be_bytes()]);
        chunk.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    }
    if let Some(first) = block.first_mut() {
        *first &= 0x7f;
    }
    let Some((padding, salt)) = block.len().checked_sub(len).and_then(|at| block.split_at_checked(at)) else {
        return false;
    };
    let Some((1, zeros)) = padding.split_last().map(|(last, rest)| (*last, rest)) else { return false };
    zeros.iter().all(|byte| *byte == 0) && hash.digest(&[&[0; 8], &hash.digest(&[message]), salt]) == digest
}
