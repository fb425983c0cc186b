//! Certificates and signatures of RSA: those that a hosted client accepts, keys that are refused, and signatures
//! over any encoding, made with the private key.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use std::sync::OnceLock;

use poolhouse_core::{Cause, CertificateFault};
use poolhouse_tests::tls::{CertificateRequest, Holder};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rsa::pkcs1::EncodeRsaPublicKey;
use rsa::pkcs8::{EncodePrivateKey, EncodePublicKey, LineEnding};
use rsa::rand_core::OsRng;
use rsa::traits::PublicKeyParts;
use rsa::{BigUint, RsaPrivateKey};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::sign::{Signer, SigningKey};
use rustls::{ServerConfig, SignatureAlgorithm, SignatureScheme};
use sha2::{Digest, Sha256, Sha384, Sha512};

use super::super::rsa::{Hash, Key, Padding, ServerKey, verifies};
use super::support::{HOST, Wire, check, config, der, hosted, shows, shows_identity, shows_with};

/// The two primes of each key, of which no test keeps anything secret: it takes minutes to find others.
const PRIMES: &str = include_str!("rsa/primes.txt");

/// One of the keys of the tests, by its index: two of 2,048 bits, one of 3,072 and one of 4,096.
fn key(index: usize) -> &'static RsaPrivateKey {
    static KEYS: [OnceLock<RsaPrivateKey>; 4] = [const { OnceLock::new() }; 4];
    KEYS[index].get_or_init(|| key_with(index, 65_537))
}

/// The key of these primes with this exponent.
fn key_with(index: usize, exponent: u32) -> RsaPrivateKey {
    let primes = PRIMES.lines().nth(index).unwrap().split(' ');
    let primes = primes.map(|prime| BigUint::parse_bytes(prime.as_bytes(), 16).unwrap()).collect();
    RsaPrivateKey::from_primes(primes, exponent.into()).unwrap()
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
    pkcs1_of(hash, size, MESSAGE)
}

fn pkcs1_of(hash: Hash, size: usize, message: &[u8]) -> Vec<u8> {
    let (len, arc) = match hash {
        Hash::Sha256 => (32, 1),
        Hash::Sha384 => (48, 2),
        Hash::Sha512 => (64, 3),
    };
    let algorithm = [0x30, 17 + len, 0x30, 13, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, arc, 5, 0, 4, len];
    let end = [&algorithm[..], &digest(hash, message)].concat();
    [vec![0, 1], vec![0xff; size - 3 - end.len()], vec![0], end].concat()
}

/// The encoding by EMSA-PSS with this salt, before `change` of the block.
fn pss(hash: Hash, size: usize, salt: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    pss_of(hash, size, MESSAGE, salt, change)
}

fn pss_of(hash: Hash, size: usize, message: &[u8], salt: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let signed = digest(hash, &[&[0; 8], &digest(hash, message)[..], salt].concat());
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
        let verifies = |hash, encoded: &[u8]| verifies(&public, Padding::Pkcs1, hash, MESSAGE, &sign(key, encoded));
        let good = pkcs1(hash, key.size());
        assert!(verifies(hash, &good), "{hash:?}");
        for other in HASHES.into_iter().filter(|other| *other != hash) {
            assert!(!verifies(other, &good), "{hash:?} for {other:?}");
        }
        let padding = good.iter().position(|byte| *byte == 0xff).unwrap();
        let zero = padding + good[padding..].iter().position(|byte| *byte == 0).unwrap();
        // Some of the identical bytes of the padding and of those of the digest, and all others.
        let ends = [padding, padding + 1, zero - 1, zero + 20, good.len() - 1];
        for at in (0..padding).chain(zero..zero + 20).chain(ends) {
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
    let (public, signature) = (public(key(0)), sign(key(0), &bare));
    assert!(!verifies(&public, Padding::Pkcs1, Hash::Sha256, MESSAGE, &signature));
}

#[test]
fn only_encodings_of_pss_with_a_salt_of_the_length_of_the_digest_are_accepted() {
    for index in 0..3 {
        let key = key(index);
        let server = server_key(key);
        let verifies = |hash, encoded: &[u8]| server.verifies(hash, MESSAGE, &sign(key, encoded));
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
            for (at, value) in [(0, 1), (0, 0x40), (1, 1), (end / 2, 0x80), (end - 1, 1), (end, 0), (end, 2)] {
                let encoded = pss(hash, key.size(), &salt, |block| block[at] = value);
                assert!(!verifies(hash, &encoded), "{hash:?}: byte {at} of the block");
            }
        }
        let signature = sign(key, &pss(Hash::Sha256, key.size(), &[7; 32], |_| ()));
        assert!(server.verifies(Hash::Sha256, MESSAGE, &signature));
        assert!(!server.verifies(Hash::Sha256, b"another message", &signature));
    }
}

/// The encoding has one bit less than the modulus: with that bit, it is another number below the modulus.
#[test]
fn first_bit_of_an_encoding_of_pss_must_be_zero() {
    let key = [0, 1].map(key).into_iter().max_by_key(|key| key.n().to_bytes_be()[0]).unwrap();
    let encodings = (0_u8..=255).map(|salt| {
        let mut encoded = pss(Hash::Sha256, key.size(), &[salt; 32], |_| ());
        encoded[0] |= 0x80;
        encoded
    });
    let encoded = encodings.into_iter().find(|encoded| *encoded < key.n().to_bytes_be()).expect("one is small enough");
    assert!(!server_key(key).verifies(Hash::Sha256, MESSAGE, &sign(key, &encoded)));
}

#[test]
fn signatures_of_a_wrong_length_or_value_are_refused() {
    let (modulus, public) = (key(0).n(), public(key(0)));
    for padding in [Padding::Pkcs1, Padding::Pss] {
        let verifies = |message: &[u8], signature: &[u8]| verifies(&public, padding, Hash::Sha256, message, signature);
        // The sum of this message's signature and the modulus is not longer than the modulus.
        let signed = (0_u32..2000).find_map(|number| {
            let message = number.to_be_bytes();
            let encoded = match padding {
                Padding::Pkcs1 => pkcs1_of(Hash::Sha256, 256, &message),
                Padding::Pss => pss_of(Hash::Sha256, 256, &message, &[7; 32], |_| ()),
            };
            let signature = sign(key(0), &encoded);
            let larger = (BigUint::from_bytes_be(&signature) + modulus).to_bytes_be();
            (larger.len() == 256).then_some((message, signature, larger))
        });
        let (message, good, larger) = signed.expect("one of the signatures is small");
        assert!(verifies(&message, &good));
        for (name, signature) in [
            ("empty", vec![]),
            ("zero", vec![0; 256]),
            ("one", [vec![0; 255], vec![1]].concat()),
            ("the modulus", modulus.to_bytes_be()),
            ("one below the modulus", (modulus - 1_u32).to_bytes_be()),
            ("the largest number", vec![0xff; 256]),
            ("the same modulo the modulus", larger),
            ("with a zero before it", [vec![0], good.clone()].concat()),
            ("without its last byte", good[..255].to_vec()),
            ("with a byte after it", [good.clone(), vec![0]].concat()),
        ] {
            assert!(!verifies(&message, &signature), "{padding:?}: {name}");
        }
    }
}

/// An element of DER.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let head = match content.len().to_be_bytes() {
        [.., 0, len @ 0..0x80] => vec![tag, len],
        [.., 0, len] => vec![tag, 0x81, len],
        [.., high, low] => vec![tag, 0x82, high, low],
    };
    [&head, content].concat()
}

/// A key with these numbers, which need not be valid.
fn encoded(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    element(0x30, &[element(2, modulus), element(2, exponent)].concat())
}

/// A modulus of this many bits, all of which are 1; with a zero before it, as a positive number has.
fn ones(bits: usize) -> Vec<u8> {
    let first = if bits.is_multiple_of(8) { vec![0, 0xff] } else { vec![0xff >> (8 - bits % 8)] };
    [first, vec![0xff; bits.div_ceil(8) - 1]].concat()
}

#[test]
fn only_keys_of_supported_sizes_are_read() {
    let usual: &[u8] = &[1, 0, 1];
    for bits in [2048, 3072, 4096] {
        for exponent in [&[3][..], usual, &[0, 0xff, 0xff, 0xff, 0xff]] {
            assert!(Key::read(&encoded(&ones(bits), exponent)).is_some(), "{bits} bits, {exponent:?}");
        }
    }
    for bits in [8, 512, 1024, 2040, 2047, 2049, 2056, 3071, 3073, 4095, 4097, 4104, 8192] {
        assert!(Key::read(&encoded(&ones(bits), usual)).is_none(), "{bits} bits");
    }
    let even = [&ones(2048)[..256], &[0xfe]].concat();
    let negative = vec![0xff; 256];
    let superfluous = [&[0][..], &ones(2048)].concat();
    for (name, key) in [
        ("an even modulus", encoded(&even, usual)),
        ("a negative modulus", encoded(&negative, usual)),
        ("a superfluous zero", encoded(&superfluous, usual)),
        ("no modulus", encoded(&[], usual)),
        ("no exponent", encoded(&ones(2048), &[])),
        ("exponent 0", encoded(&ones(2048), &[0])),
        ("exponent 1", encoded(&ones(2048), &[1])),
        ("exponent 2", encoded(&ones(2048), &[2])),
        ("exponent 65,536", encoded(&ones(2048), &[1, 0, 0])),
        ("a negative exponent", encoded(&ones(2048), &[0xff])),
        ("an exponent of 33 bits", encoded(&ones(2048), &[1, 0, 0, 0, 1])),
        ("a third number", element(0x30, &[element(2, &ones(2048)), element(2, usual), element(2, &[1])].concat())),
        ("an indefinite length", [&[0x30, 0x80][..], &encoded(&ones(2048), usual)[4..], &[0, 0]].concat()),
        ("bytes after it", [encoded(&ones(2048), usual), vec![0]].concat()),
    ] {
        assert!(Key::read(&key).is_none(), "{name}");
    }
    let good = public(key(0));
    assert!((0..good.len()).all(|len| Key::read(&good[..len]).is_none()));
    let info = content(&key(0).to_public_key().to_public_key_der().unwrap().into_vec());
    assert!(ServerKey::of(&info).is_some());
    assert!((0..info.len()).all(|len| ServerKey::of(&info[..len]).is_none()));
    assert!(ServerKey::of(&[&info[..], &[0]].concat()).is_none(), "bytes after it");
}

#[test]
fn keys_with_other_exponents_verify_their_signatures() {
    for exponent in [3_u32, 17, 0xC000_0005, u32::MAX] {
        let key = key_with(0, exponent);
        let public = public(&key);
        let signature = sign(&key, &pkcs1(Hash::Sha256, key.size()));
        assert!(verifies(&public, Padding::Pkcs1, Hash::Sha256, MESSAGE, &signature), "{exponent}");
        assert!(!verifies(&public, Padding::Pkcs1, Hash::Sha256, b"another", &signature), "{exponent}");
    }
}

/// Signs a handshake only by one scheme, whether the client has offered it or not.
#[derive(Debug)]
struct Only(Arc<dyn SigningKey>, SignatureScheme);

impl SigningKey for Only {
    fn choose_scheme(&self, _offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        self.0.choose_scheme(&[self.1])
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }
}

#[test]
fn handshake_is_signed_by_pss_with_any_hash_and_not_by_pkcs1() {
    let root = Holder::root("root");
    let leaf = root.issue_with_key(&CertificateRequest::server(&[HOST]), &pem(key(0)));
    let private = PrivateKeyDer::from_pem_slice(pem(key(0)).as_bytes()).unwrap();
    let private = rustls::crypto::ring::sign::any_supported_type(&private).unwrap();
    for (scheme, expected) in [
        (SignatureScheme::RSA_PSS_SHA256, Ok(())),
        (SignatureScheme::RSA_PSS_SHA384, Ok(())),
        (SignatureScheme::RSA_PSS_SHA512, Ok(())),
        (SignatureScheme::RSA_PKCS1_SHA256, Err(Cause::Protocol)),
    ] {
        let only = Only(Arc::clone(&private), scheme);
        let server = shows_with(vec![der(&leaf.certificate())], Arc::new(only));
        assert_eq!(check(&config(&[&root.certificate()]), HOST, Wire::to(&server)), expected, "{scheme:?}");
    }
}

#[test]
fn certificates_are_signed_with_any_hash() {
    for algorithm in [&rcgen::PKCS_RSA_SHA256, &rcgen::PKCS_RSA_SHA384, &rcgen::PKCS_RSA_SHA512] {
        let private = KeyPair::from_pem_and_sign_algo(&pem(key(0)), algorithm).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = CertifiedIssuer::self_signed(params, private).unwrap();
        let params = CertificateParams::new(vec![HOST.into()]).unwrap();
        let leaf = CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), &root).unwrap();
        let server = shows(vec![der(&leaf.pem())], &leaf.key().serialize_pem());
        assert_eq!(hosted(&[&root.pem()], HOST, Wire::to(&server)), Ok(()), "hosted: {algorithm:?}");
        assert_eq!(check(&config(&[&root.pem()]), HOST, Wire::to(&server)), Ok(()), "{algorithm:?}");
    }
}
