//! Keys, from one connection to the next.

use core::fmt;

use super::conversation::Authentication;
use super::keys::ScramKeys;

/// So many keys are kept. The members of a set agree on the salt of a user, and so one place is enough for most; in a
/// sharded cluster all routers do.
pub const KEYS_MAX: usize = 4;

/// The keys of one user and password, by salt and iterations, so that a client stretches its password once and not for
/// each of its connections. When there are too many, the oldest give way.
///
/// As good as the password: wiped when dropped, and not told by `Debug`.
#[derive(Clone, Default)]
pub struct KeyRing {
    keys: heapless::Vec<ScramKeys, KEYS_MAX>,
    /// Which gives way next.
    oldest: usize,
}

impl KeyRing {
    /// Without any keys.
    #[must_use]
    pub const fn new() -> Self {
        Self { keys: heapless::Vec::new(), oldest: 0 }
    }

    /// Spares an authentication its work, if the keys are there; tells whether they are. To be asked after
    /// [`Round::Work`](poolhouse_wire::Round::Work).
    ///
    /// Cost: O([`KEYS_MAX`]).
    pub fn spare(&self, authentication: &mut Authentication<'_>) -> bool {
        self.keys.iter().any(|keys| authentication.offer_keys(keys))
    }

    /// Keeps the keys of an authentication that came to a good end: the server has proved that they are the user's.
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
            self.oldest = (self.oldest + 1) % KEYS_MAX;
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none.
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
