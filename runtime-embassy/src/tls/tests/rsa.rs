//! Certificates and signatures of RSA: those that a hosted client accepts, keys that are refused, and signatures
//! over any encoding, made with the private key.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use alloc::{format, vec};
use std::sync::OnceLock;

use poolhouse_core::{Cause, CertificateFault};
use poolhouse_tests::tls::{CertificateRequest, Holder};
use rsa::pkcs1::EncodeRsaPublicKey;
use rsa::pkcs8::{EncodePrivateKey, EncodePublicKey, LineEnding};
use rsa::rand_core::OsRng;
use rsa::traits::PublicKeyParts;
use rsa::{BigUint, RsaPrivateKey, RsaPublicKey};
use rustls::ServerConfig;
use sha2::{Digest, Sha256, Sha384, Sha512};

use super::super::rsa::{Hash, ServerKey, verifies_pkcs1};
use super::support::{HOST, Wire, check, config, der, hosted, random, shows, shows_identity};

/// One of the keys of the tests, by its index: two of 2,048 bits, one of 3,072 and one of 4,096.
fn key(index: usize) -> &'static RsaPrivateKey {
    static KEYS: [OnceLock<RsaPrivateKey>; 4] = [const { OnceLock::new() }; 4];
    KEYS[index].get_or_init(|| RsaPrivateKey::new(&mut OsRng, [2048, 2048, 3072, 4096][index]).unwrap())
}

fn pem(key: &RsaPrivateKey) -> String {
    key.to_pkcs8_pem(LineEnding::LF).unwrap().to_string()
}

fn server_of(holder: &Holder) -> Arc<ServerConfig> {
    shows_identity(&holder.identity())
}

#[test]
fn certificates_of_rsa_are_accepted_as_a_hosted_client_does() {
    let [key, other, medium, large] = [0, 1, 2, 3].map(key).map(pem);
    let good = CertificateRequest::server(&[HOST]);
    let p256 = Holder::root("root");
    let roots = [&key, &medium, &large].map(|key| Holder::root_with_key("root", key));
    let between = roots[0].issue_with_key(&CertificateRequest::authority("middle"), &large);
    let cases = [
        ("2,048 bits", roots[0].issue_with_key(&good, &other), &roots[0], Ok(())),
        ("3,072 bits", roots[1].issue_with_key(&good, &medium), &roots[1], Ok(())),
        ("4,096 bits", roots[2].issue_with_key(&good, &large), &roots[2], Ok(())),
        ("by P-256", p256.issue_with_key(&good, &key), &p256, Ok(())),
        ("on P-256, by RSA", roots[0].issue(&good), &roots[0], Ok(())),
        ("with one between", between.issue_with_key(&good, &other), &roots[0], Ok(())),
        (
            "by another authority of the same name",
            Holder::root_with_key("root", &other).issue_with_key(&good, &other),
            &roots[0],
            Err(CertificateFault::UnknownIssuer),
        ),
    ];
    for (name, leaf, root, expected) in cases {
        let expected = expected.map_err(Cause::Certificate);
        let (root, server) = (root.certificate(), server_of(&leaf));
        assert_eq!(hosted(&[&root], HOST, Wire::to(&server)), expected, "hosted: {name}");
        assert_eq!(check(&config(&[&root]), HOST, Wire::to(&server)), expected, "{name}");
    }
    let leaf = roots[0].issue_with_key(&good, &other);
    let thief = shows(vec![der(&leaf.certificate())], &key);
    let refused = Err(Cause::Certificate(CertificateFault::UnknownIssuer));
    assert_eq!(check(&config(&[&roots[0].certificate()]), HOST, Wire::to(&thief)), refused);
}

const HASHES: [Hash; 3] = [Hash::Sha256, Hash::Sha384, Hash::Sha512];
const MESSAGE: &[u8] = b"a message";

fn digest(hash: Hash, message: &[u8]) -> Vec<u8> {
    match hash {
        Hash::Sha256 => Sha256::digest(message).to_vec(),
        Hash::Sha384 => Sha384::digest(message).to_vec(),
        Hash::Sha512 => Sha512::digest(message).to_vec(),
    }
}

/// Signs any encoding, of the length of the modulus.
fn sign(key: &RsaPrivateKey, encoded: &[u8]) -> Vec<u8> {
    let signed = rsa::hazmat::rsa_decrypt::<OsRng>(None, key, &BigUint::from_bytes_be(encoded)).unwrap();
    let bytes = signed.to_bytes_be();
    [vec![0; key.size() - bytes.len()], bytes].concat()
}

fn public(key: &RsaPrivateKey) -> Vec<u8> {
    key.to_public_key().to_pkcs1_der().unwrap().into_vec()
}

fn server_key(key: &RsaPrivateKey) -> ServerKey {
    ServerKey::of(&content(&key.to_public_key().to_public_key_der().unwrap().into_vec())).expect("it is supported")
}

/// The content of a sequence of 256 bytes or more.
fn content(sequence: &[u8]) -> Vec<u8> {
    assert_eq!(sequence[..2], [0x30, 0x82]);
    sequence[4..].to_vec()
}

/// The encoding by EMSA-PKCS1-v1_5.
fn pkcs1(hash: Hash, size: usize) -> Vec<u8> {
    let (len, arc) = match hash {
        Hash::Sha256 => (32, 1),
        Hash::Sha384 => (48, 2),
        Hash::Sha512 => (64, 3),
    };
    let algorithm = [0x30, 17 + len, 0x30, 13, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, arc, 5, 0, 4, len];
    let end = [&algorithm[..], &digest(hash, MESSAGE)].concat();
    [vec![0, 1], vec![0xff; size - 3 - end.len()], vec![0], end].concat()
}

/// The encoding by EMSA-PSS with this salt, before `change` of the block.
fn pss(hash: Hash, size: usize, salt: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let signed = digest(hash, &[&[0; 8], &digest(hash, MESSAGE)[..], salt].concat());
    let len = size - signed.len() - 1;
    let mut block = [vec![0; len - salt.len() - 1], vec![1], salt.to_vec()].concat();
    change(&mut block);
    for (counter, chunk) in (0_u32..).zip(block.chunks_mut(signed.len())) {
        let mask = digest(hash, &[&signed[..], &counter.to_be_bytes()].concat());
        chunk.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    }
    block[0] &= 0x7f;
    [block, signed, vec![0xbc]].concat()
}

#[test]
fn only_the_exact_encoding_of_pkcs1_is_accepted() {
    for (key, hash) in [(key(0), Hash::Sha256), (key(1), Hash::Sha384), (key(2), Hash::Sha512)] {
        let public = public(key);
        let verifies = |hash, encoded: &[u8]| verifies_pkcs1(&public, hash, MESSAGE, &sign(key, encoded));
        let good = pkcs1(hash, key.size());
        assert!(verifies(hash, &good), "{hash:?}");
        for other in HASHES.into_iter().filter(|other| *other != hash) {
            assert!(!verifies(other, &good), "{hash:?} for {other:?}");
        }
        let padding = good.iter().position(|byte| *byte == 0xff).unwrap();
        let zero = padding + good[padding..].iter().position(|byte| *byte == 0).unwrap();
        // Some of the identical bytes of the padding and of those of the digest, and all others.
        let ends = [padding, padding + 1, zero - 1, zero + 20, good.len() - 1];
        for at in (1..padding).chain(zero..zero + 20).chain(ends) {
            let mut damaged = good.clone();
            damaged[at] ^= 1;
            assert!(!verifies(hash, &damaged), "{hash:?}, byte {at}");
        }
        // The padding ends earlier, and other bytes follow the digest.
        let early = [&good[..padding + 8], &good[zero..], &vec![0x55; zero - padding - 8][..]].concat();
        assert!(!verifies(hash, &early), "{hash:?}: bytes after the digest");
    }
    // Without the parameters of the algorithm, as some implementations sign.
    let algorithm = [0x30, 47, 0x30, 11, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1, 4, 32];
    let end = [&algorithm[..], &digest(Hash::Sha256, MESSAGE)].concat();
    let bare = [vec![0, 1], vec![0xff; 256 - 3 - end.len()], vec![0], end].concat();
    assert!(!verifies_pkcs1(&public(key(0)), Hash::Sha256, MESSAGE, &sign(key(0), &bare)));
}

#[test]
fn only_encodings_of_pss_with_a_salt_of_the_length_of_the_digest_are_accepted() {
    for index in 0..3 {
        let key = key(index);
        let server = server_key(key);
        let verifies = |hash, encoded: &[u8]| server.verifies_pss(hash, MESSAGE, &sign(key, encoded));
        // Signing with the larger keys takes long.
        for hash in HASHES.into_iter().skip(index) {
            let len = digest(hash, b"").len();
            let salt = vec![7; len];
            let good = pss(hash, key.size(), &salt, |_| ());
            assert!(verifies(hash, &good), "{hash:?}");
            for other in HASHES.into_iter().filter(|other| *other != hash) {
                assert!(!verifies(other, &good), "{hash:?} for {other:?}");
            }
            let changed = |name: &str, at: usize, value: u8| {
                let mut encoded = good.clone();
                encoded[at] = value;
                assert!(!verifies(hash, &encoded), "{hash:?}: {name}");
            };
            changed("the last byte", key.size() - 1, 0xbd);
            changed("the digest", key.size() - 2, good[key.size() - 2] ^ 1);
            changed("the salt", key.size() - len - 2, good[key.size() - len - 2] ^ 1);
            for wrong in [0, 1, 20, len - 1, len + 1] {
                let encoded = pss(hash, key.size(), &vec![7; wrong], |_| ());
                assert!(!verifies(hash, &encoded), "{hash:?}: a salt of {wrong} bytes");
            }
            let end = key.size() - 2 * len - 2;
            for (at, value) in [(1, 1), (end / 2, 0x80), (end - 1, 1), (end, 0), (end, 2)] {
                let encoded = pss(hash, key.size(), &salt, |block| block[at] = value);
                assert!(!verifies(hash, &encoded), "{hash:?}: byte {at} of the block");
            }
        }
        assert!(!server.verifies_pss(
            Hash::Sha256,
            b"another message",
            &sign(key, &pss(Hash::Sha256, key.size(), &[7; 32], |_| ()))
        ));
    }
}

/// The encoding has one bit less than the modulus: with that bit, it is another number below the modulus, or
/// none.
#[test]
fn first_bit_of_an_encoding_of_pss_must_be_zero() {
    let key = [0, 1].map(key).into_iter().max_by_key(|key| key.n().to_bytes_be()[0]).unwrap();
    for _ in 0..64 {
        let mut salt = [0; 32];
        random(&mut salt);
        let mut encoded = pss(Hash::Sha256, key.size(), &salt, |_| ());
        encoded[0] |= 0x80;
        if encoded < key.n().to_bytes_be() {
            assert!(!server_key(key).verifies_pss(Hash::Sha256, MESSAGE, &sign(key, &encoded)));
            return;
        }
    }
}

#[test]
fn signatures_of_a_wrong_length_or_value_are_refused() {
    let key = key(0);
    let public = public(key);
    let good = sign(key, &pkcs1(Hash::Sha256, key.size()));
    let modulus = key.n().to_bytes_be();
    let larger = (BigUint::from_bytes_be(&good) + key.n()).to_bytes_be();
    for (name, signature) in [
        ("empty", vec![]),
        ("zero", vec![0; 256]),
        ("one", [vec![0; 255], vec![1]].concat()),
        ("the modulus", modulus.clone()),
        ("one below the modulus", (key.n() - 1_u32).to_bytes_be()),
        ("the largest number", vec![0xff; 256]),
        ("the same modulo the modulus", larger),
        ("with a zero before it", [vec![0], good.clone()].concat()),
        ("without its last byte", good[..255].to_vec()),
        ("with a byte after it", [good.clone(), vec![0]].concat()),
    ] {
        assert!(!verifies_pkcs1(&public, Hash::Sha256, MESSAGE, &signature), "{name}");
        assert!(!server_key(key).verifies_pss(Hash::Sha256, MESSAGE, &signature), "{name}");
    }
    assert!(verifies_pkcs1(&public, Hash::Sha256, MESSAGE, &good));
}

/// A key of any numbers.
fn encoded(modulus: &BigUint, exponent: &BigUint) -> Option<Vec<u8>> {
    let key = RsaPublicKey::new_with_max_size(modulus.clone(), exponent.clone(), 8192).ok()?;
    Some(key.to_pkcs1_der().unwrap().into_vec())
}

/// No key makes the verification panic or take long; keys that are not supported verify nothing.
#[test]
fn unsupported_and_malformed_keys_verify_nothing() {
    let key = key(0);
    let good = public(key);
    let signature = sign(key, &pkcs1(Hash::Sha256, key.size()));
    let (three, usual) = (BigUint::from(3_u32), BigUint::from(65537_u32));
    let odd = |bits: usize| (BigUint::from(1_u32) << (bits - 1)) + 1_u32;
    let mut malformed: Vec<(String, Vec<u8>)> =
        (0..good.len()).map(|len| (format!("{len} bytes"), good[..len].to_vec())).collect();
    malformed.push(("a byte after it".into(), [&good[..], &[0]].concat()));
    for bits in [512, 1024, 2040, 2047, 2049, 4095, 4097, 4104, 8192] {
        malformed.extend(encoded(&odd(bits), &usual).map(|key| (format!("{bits} bits"), key)));
    }
    for exponent in [1_u64, 2, 65536, 1 << 32 | 1] {
        let key = encoded(key.n(), &BigUint::from(exponent));
        malformed.extend(key.map(|key| (format!("exponent {exponent}"), key)));
    }
    malformed.extend(encoded(&(odd(2048) + 1_u32), &usual).map(|key| ("an even modulus".into(), key)));
    for (name, malformed) in malformed {
        let signature = [vec![0; malformed.len().saturating_sub(signature.len() + 20)], signature.clone()].concat();
        for len in [256, 512, signature.len()] {
            let signature = signature.get(..len).unwrap_or(&signature);
            assert!(!verifies_pkcs1(&malformed, Hash::Sha256, MESSAGE, signature), "{name}");
        }
    }
    // Valid keys that nobody uses: small and large exponents.
    for exponent in [three, BigUint::from(u32::MAX)] {
        let key = encoded(key.n(), &exponent).expect("a key");
        assert!(!verifies_pkcs1(&key, Hash::Sha256, MESSAGE, &signature), "another exponent");
    }
    assert!(ServerKey::of(&[]).is_none());
    let info = content(&key.to_public_key().to_public_key_der().unwrap().into_vec());
    assert!((0..info.len()).all(|len| ServerKey::of(&info[..len]).is_none()));
}
