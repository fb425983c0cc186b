//! A server that sends messages which no TLS library sends: a minimal TLS 1.3 that a client
//! accepts.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use aes_gcm::Aes128Gcm;
use aes_gcm::aead::{AeadInPlace, KeyInit};
use hkdf::Hkdf;
use hmac::{Mac, SimpleHmac};
use p256::elliptic_curve::sec1::ToEncodedPoint;
use p256::{PublicKey, SecretKey, ecdh};
use poolhouse_tests::tls::Identity;
use rustls::SignatureScheme;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};

use super::support::{Peer, Wire};

pub(super) const CHANGE_CIPHER_SPEC: u8 = 20;
pub(super) const ALERT: u8 = 21;
pub(super) const HANDSHAKE: u8 = 22;
pub(super) const DATA: u8 = 23;

/// Writes the server's output after a client hello.
type Plan = Box<dyn FnOnce(&mut Talk)>;

pub(super) struct Liar {
    heard: Vec<u8>,
    plan: Option<Plan>,
}

impl Liar {
    /// A transport to a server with this plan.
    pub(super) fn who(plan: impl FnOnce(&mut Talk) + 'static) -> Wire {
        Wire::new(Peer::Liar(Box::new(Self { heard: Vec::new(), plan: Some(Box::new(plan)) })))
    }

    /// Receives bytes from the client; returns bytes for the client.
    pub(super) fn hear(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.heard.extend_from_slice(bytes);
        let [_, _, _, high, low, rest @ ..] = self.heard.as_slice() else { return Vec::new() };
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        let Some(hello) = rest.get(..len) else { return Vec::new() };
        let Some(plan) = self.plan.take() else { return Vec::new() };
        let mut talk = Talk::new(hello);
        plan(&mut talk);
        talk.output
    }
}

/// Changes a message.
type Mutate = Box<dyn FnMut(&mut Vec<u8>)>;

/// The output of the server.
pub(super) struct Talk {
    hello: Vec<u8>,
    output: Vec<u8>,
    /// The hash of all messages so far.
    pub(super) transcript: Sha256,
    /// The secret that the next secrets are derived from.
    master: [u8; 32],
    traffic: [u8; 32],
    count: u64,
    /// Changes messages before they are encrypted.
    pub(super) mutate: Mutate,
}

impl Talk {
    fn new(hello: &[u8]) -> Self {
        Self {
            hello: hello.to_vec(),
            output: Vec::new(),
            transcript: Sha256::new().chain_update(hello),
            master: [0; 32],
            traffic: [0; 32],
            count: 0,
            mutate: Box::new(|_| {}),
        }
    }

    /// Writes an unencrypted record.
    pub(super) fn plain(&mut self, kind: u8, bytes: &[u8]) {
        self.output.extend_from_slice(&[kind, 3, 3]);
        self.output.extend_from_slice(&u16::try_from(bytes.len()).unwrap().to_be_bytes());
        self.output.extend_from_slice(bytes);
    }

    /// Writes bytes without a record header.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    /// Writes the server's hello and derives the handshake keys.
    pub(super) fn greet(&mut self) {
        let at = self.hello.windows(4).position(|window| window == [0, 0x17, 0, 65]).unwrap() + 4;
        let theirs = PublicKey::from_sec1_bytes(&self.hello[at..at + 65]).unwrap();
        let secret = SecretKey::from_slice(&[7; 32]).unwrap();
        let shared = ecdh::diffie_hellman(secret.to_nonzero_scalar(), theirs.as_affine());
        let message = server_hello(secret.public_key().to_encoded_point(false).as_bytes());
        let message = self.mutated(message);
        self.plain(HANDSHAKE, &message);
        self.transcript.update(&message);
        let early = extract(&[0; 32], &[0; 32]);
        let handshake = extract(&expand(&early, "derived", &Sha256::digest([])), shared.raw_secret_bytes());
        self.traffic(&handshake, "s hs traffic");
        self.master = extract(&expand(&handshake, "derived", &Sha256::digest([])), &[0; 32]);
    }

    /// Switches to the keys for data.
    pub(super) fn open(&mut self) {
        let master = self.master;
        self.traffic(&master, "s ap traffic");
    }

    fn traffic(&mut self, secret: &[u8; 32], label: &str) {
        self.traffic = expand(secret, label, &self.hash());
        self.count = 0;
    }

    fn hash(&self) -> [u8; 32] {
        self.transcript.clone().finalize().into()
    }

    /// Encrypts a complete plaintext, including its type and padding.
    pub(super) fn seal(&mut self, plaintext: &[u8]) {
        let key: [u8; 16] = expand_to(&self.traffic, "key", &[]);
        let mut nonce: [u8; 12] = expand_to(&self.traffic, "iv", &[]);
        for (to, from) in nonce.iter_mut().skip(4).zip(self.count.to_be_bytes()) {
            *to ^= from;
        }
        self.count += 1;
        let mut bytes = plaintext.to_vec();
        let len = u16::try_from(bytes.len() + 16).unwrap().to_be_bytes();
        let header = [DATA, 3, 3, len[0], len[1]];
        let cipher = Aes128Gcm::new(&key.into());
        let tag = cipher.encrypt_in_place_detached(&nonce.into(), &header, &mut bytes).unwrap();
        bytes.extend_from_slice(&tag);
        self.plain(DATA, &bytes);
    }

    /// Encrypts content of this type.
    pub(super) fn say(&mut self, kind: u8, content: &[u8]) {
        let mut plaintext = content.to_vec();
        plaintext.push(kind);
        self.seal(&plaintext);
    }

    /// Writes a handshake message.
    pub(super) fn message(&mut self, kind: u8, body: &[u8]) {
        let message = self.mutated(message(kind, body));
        self.transcript.update(&message);
        self.say(HANDSHAKE, &message);
    }

    pub(super) fn extensions(&mut self) {
        self.message(8, &[0, 0]);
    }

    pub(super) fn certificate(&mut self, identity: &Identity) {
        let mut list = Vec::new();
        for der in CertificateDer::pem_slice_iter(identity.certificates.as_bytes()).map(Result::unwrap) {
            list.extend_from_slice(&u24(der.len()));
            list.extend_from_slice(&der);
            list.extend_from_slice(&[0, 0]);
        }
        let mut body = alloc::vec![0];
        body.extend_from_slice(&u24(list.len()));
        body.extend_from_slice(&list);
        self.message(11, &body);
    }

    /// Writes a signature of the messages so far.
    pub(super) fn proof(&mut self, identity: &Identity) {
        let hash = self.hash();
        self.proof_of(identity, "server", &hash, 0x0403);
    }

    pub(super) fn proof_of(&mut self, identity: &Identity, side: &str, hash: &[u8], scheme: u16) {
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = provider.key_provider.load_private_key(key).unwrap();
        let mut signed = [0x20; 64].to_vec();
        signed.extend_from_slice(alloc::format!("TLS 1.3, {side} CertificateVerify\0").as_bytes());
        signed.extend_from_slice(hash);
        let signer = key.choose_scheme(&[SignatureScheme::ECDSA_NISTP256_SHA256]).unwrap();
        let signature = signer.sign(&signed).unwrap();
        let mut body = scheme.to_be_bytes().to_vec();
        body.extend_from_slice(&u16::try_from(signature.len()).unwrap().to_be_bytes());
        body.extend_from_slice(&signature);
        self.message(15, &body);
    }

    pub(super) fn finished(&mut self) {
        let key = expand(&self.traffic, "finished", &[]);
        let mac = <SimpleHmac<Sha256> as Mac>::new_from_slice(&key).unwrap().chain_update(self.hash());
        let proof = mac.finalize().into_bytes();
        self.message(20, &proof);
    }

    /// A correct handshake, up to the keys for data.
    pub(super) fn honest(&mut self, identity: &Identity) {
        self.greet();
        self.extensions();
        self.certificate(identity);
        self.proof(identity);
        self.finished();
        self.open();
    }

    fn mutated(&mut self, mut message: Vec<u8>) -> Vec<u8> {
        (self.mutate)(&mut message);
        message
    }
}

/// A handshake message: type, length and body.
pub(super) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = alloc::vec![kind];
    message.extend_from_slice(&u24(body.len()));
    message.extend_from_slice(body);
    message
}

/// The hello of a server that has chosen TLS 1.3 and the only suite.
fn server_hello(point: &[u8]) -> Vec<u8> {
    let mut body = [3, 3].to_vec();
    body.extend_from_slice(&[9; 32]);
    body.extend_from_slice(&[0, 0x13, 1, 0]);
    // The supported_versions extension, then the key_share extension.
    body.extend_from_slice(&[0, 79, 0, 43, 0, 2, 3, 4, 0, 51, 0, 69, 0, 0x17, 0, 65]);
    body.extend_from_slice(point);
    message(2, &body)
}

fn u24(len: usize) -> [u8; 3] {
    let [_, a, b, c] = u32::try_from(len).unwrap().to_be_bytes();
    [a, b, c]
}

fn extract(salt: &[u8], input: &[u8]) -> [u8; 32] {
    Hkdf::<Sha256>::extract(Some(salt), input).0.into()
}

fn expand(secret: &[u8; 32], label: &str, context: &[u8]) -> [u8; 32] {
    expand_to(secret, label, context)
}

fn expand_to<const N: usize>(secret: &[u8; 32], label: &str, context: &[u8]) -> [u8; N] {
    let mut info = u16::try_from(N).unwrap().to_be_bytes().to_vec();
    info.push(u8::try_from(label.len() + 6).unwrap());
    info.extend_from_slice(b"tls13 ");
    info.extend_from_slice(label.as_bytes());
    info.push(u8::try_from(context.len()).unwrap());
    info.extend_from_slice(context);
    let mut bytes = [0; N];
    Hkdf::<Sha256>::from_prk(secret).unwrap().expand(&info, &mut bytes).unwrap();
    bytes
}
