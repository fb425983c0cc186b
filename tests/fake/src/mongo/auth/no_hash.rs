//! No hash: without the feature `scram` no SCRAM mechanism is known.

use core::convert::Infallible;

use super::{FakeUser, Keys};

/// The mechanisms that a server offers by default.
pub(in crate::mongo) const MECHANISMS: [&str; 0] = [];

/// The hash of a SCRAM mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hash(Infallible);

impl Hash {
    pub(super) fn named(_mechanism: &str) -> Option<Self> {
        None
    }

    pub(super) fn of(self, _bytes: &[u8]) -> Vec<u8> {
        match self.0 {}
    }

    pub(super) fn mac(self, _key: &[u8], _bytes: &[u8]) -> Vec<u8> {
        match self.0 {}
    }

    pub(super) fn keys(self, _user: &FakeUser, _salt: &[u8]) -> Keys {
        match self.0 {}
    }

    pub(super) const fn salt_bytes(self) -> usize {
        match self.0 {}
    }
}
