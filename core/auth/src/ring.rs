//! A cache of SCRAM keys, shared by the connections of a client.

use core::fmt;

use super::conversation::Authentication;
use super::keys::ScramKeys;

/// Maximum number of keys in a ring: 4, or 1 without feature `alloc`. The members of a replica set
/// share a user's salt, as do all routers of a sharded cluster, so a single slot is usually enough.
pub const KEYS_MAX: usize = if cfg!(feature = "alloc") { 4 } else { 1 };

/// The keys of a user with a password, by salt and iterations. With it, a client derives keys from
/// its password once, not for each connection. If the ring is full, the oldest keys are replaced.
///
/// Equivalent to the password: wiped when dropped, and not shown by `Debug`.
#[derive(Clone, Default)]
pub struct KeyRing {
    keys: heapless::Vec<ScramKeys, KEYS_MAX>,
    /// Index of the keys that are replaced next.
    oldest: usize,
}

impl KeyRing {
    /// Creates an empty ring.
    #[must_use]
    pub const fn new() -> Self {
        Self { keys: heapless::Vec::new(), oldest: 0 }
    }

    /// Supplies matching keys to an authentication, and returns whether the ring has any. Call it
    /// after [`Round::Work`](poolhouse_wire::Round::Work) was returned.
    ///
    /// Cost: O([`KEYS_MAX`]).
    pub fn spare(&self, authentication: &mut Authentication<'_>) -> bool {
        self.keys.iter().any(|keys| authentication.offer_keys(keys))
    }

    /// Stores the keys of a successful authentication: the server has proved that they are the
    /// user's.
    ///
    /// Cost: O([`KEYS_MAX`]).
    pub fn keep(&mut self, authentication: &Authentication<'_>) {
        let Some(keys) = authentication.keys() else { return };
        if self.keys.iter().any(|known| known.fit(keys.mechanism(), keys.salt(), keys.iterations())) {
            return;
        }
        if let Err(keys) = self.keys.push(keys.clone()) {
            if let Some(place) = self.keys.get_mut(self.oldest) {
                *place = keys;
            }
            self.oldest = if self.oldest + 1 < KEYS_MAX { self.oldest + 1 } else { 0 };
        }
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyRing({} keys)", self.keys.len())
    }
}
