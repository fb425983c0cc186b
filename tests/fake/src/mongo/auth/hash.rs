//! The hashes of SCRAM.

use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::{FakeUser, Keys};

/// The mechanisms that a server offers by default.
pub(in crate::mongo) const MECHANISMS: [&str; 2] = ["SCRAM-SHA-1", "SCRAM-SHA-256"];

/// The hash of a SCRAM mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hash {
    Sha1,
    Sha256,
}

impl Hash {
    pub(super) fn named(mechanism: &str) -> Option<Self> {
        match mechanism {
            "SCRAM-SHA-1" => Some(Self::Sha1),
            "SCRAM-SHA-256" => Some(Self::Sha256),
            _ => None,
        }
    }

    pub(super) fn of(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha1 => Sha1::digest(bytes).to_vec(),
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
        }
    }

    pub(super) fn mac(self, key: &[u8], bytes: &[u8]) -> Vec<u8> {
        const ANY: &str = "HMAC takes keys of every length";
        match self {
            Self::Sha1 => {
                Hmac::<Sha1>::new_from_slice(key).expect(ANY).chain_update(bytes).finalize().as_bytes().to_vec()
            }
            Self::Sha256 => {
                Hmac::<Sha256>::new_from_slice(key).expect(ANY).chain_update(bytes).finalize().as_bytes().to_vec()
            }
        }
    }

    /// Derives what a server stores of a password.
    pub(super) fn keys(self, user: &FakeUser, salt: &[u8]) -> Keys {
        let salted = match self {
            Self::Sha1 => {
                let digest = Md5::digest(format!("{}:mongo:{}", user.name, user.password));
                let password: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
                let mut salted = vec![0; 20];
                pbkdf2::pbkdf2_hmac::<Sha1>(password.as_bytes(), salt, user.iterations, &mut salted);
                salted
            }
            Self::Sha256 => {
                let prepared = stringprep::saslprep(&user.password);
                let password = prepared.map_or_else(|_| user.password.clone(), Into::into);
                let mut salted = vec![0; 32];
                pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), salt, user.iterations, &mut salted);
                salted
            }
        };
        Keys { stored_key: self.of(&self.mac(&salted, b"Client Key")), server_key: self.mac(&salted, b"Server Key") }
    }

    pub(super) const fn salt_bytes(self) -> usize {
        match self {
            Self::Sha1 => 16,
            Self::Sha256 => 28,
        }
    }
}
