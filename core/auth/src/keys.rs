//! What is left of a password after it was stretched.

use core::fmt;

use super::crypto::{Digest, Mac, Stretch};
use super::mechanism::ScramMechanism;
use super::password::prepare;
use poolhouse_wire::AuthError;

/// Fewer iterations than this are refused: a server that asks for less may be after the password.
///
/// Source: RFC 7677, section 4; Authentication, "SCRAM-SHA-1".
pub const ITERATIONS_MIN: u32 = 4096;

/// More iterations than this are refused unless [`Scram::with_iterations_max`](super::Scram::with_iterations_max)
/// says otherwise. Servers ask for 10,000 and 15,000 by default; a million takes a fifth of a second of a fast core,
/// and minutes of a small one, which should set a lower limit.
pub const ITERATIONS_MAX: u32 = 1_000_000;

/// So many iterations are done in one step of [`Scram::work`](super::Scram::work): some 50 microseconds of a fast core, and
/// no more than what others on the same thread of a small one can wait for.
pub const ITERATIONS_PER_STEP: u32 = 256;

/// The longest salt that is kept, in bytes. Servers use 16 and 28.
pub const SALT_BYTES_MAX: usize = 128;

/// The keys that SCRAM makes of a password, a salt and a number of iterations.
///
/// Making them is meant to be dear, and the same for every connection of a user: keep them, and give them to the
/// next conversation, which uses them if the server still asks for the same salt and iterations. As
/// good as the password towards this server; wiped when dropped, and not told by `Debug`.
#[derive(Clone)]
pub struct ScramKeys {
    mechanism: ScramMechanism,
    salt: heapless::Vec<u8, SALT_BYTES_MAX>,
    iterations: u32,
    pub(super) client_key: Digest,
    pub(super) server_key: Digest,
}

impl ScramKeys {
    /// Makes the keys.
    ///
    /// - `password`: as the user types it. `username`: as it is; SCRAM-SHA-1 hashes it together with the password.
    /// - `iterations`: from [`ITERATIONS_MIN`] up.
    ///
    /// Cost: two hashes of one block for each of `iterations`: some 3 ms for the 15,000 of a server's default on a
    /// desktop, seconds on a microcontroller. No allocation for ASCII passwords.
    ///
    /// # Errors
    ///
    /// [`AuthError::IterationsTooFew`], [`AuthError::SaltTooLong`], [`AuthError::PasswordMissing`],
    /// [`AuthError::PasswordProhibited`], [`AuthError::PasswordNotAscii`].
    ///
    /// Source: RFC 5802, section 3, "SCRAM Algorithm Overview".
    pub fn derive(
        mechanism: ScramMechanism,
        username: &str,
        password: &str,
        salt: &[u8],
        iterations: u32,
    ) -> Result<Self, AuthError> {
        let salt = heapless::Vec::from_slice(salt).map_err(|_| AuthError::SaltTooLong)?;
        let mut derivation = Derivation::new(mechanism, username, password, salt, iterations)?;
        loop {
            if let Some(keys) = derivation.advance(u32::MAX) {
                return Ok(keys);
            }
        }
    }

    /// The mechanism that they are for.
    #[must_use]
    pub const fn mechanism(&self) -> ScramMechanism {
        self.mechanism
    }

    /// The salt that they were made with.
    #[must_use]
    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// The iterations that they took.
    #[must_use]
    pub const fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Whether they are what a server asks for.
    #[must_use]
    pub fn fit(&self, mechanism: ScramMechanism, salt: &[u8], iterations: u32) -> bool {
        self.mechanism == mechanism && self.iterations == iterations && self.salt == salt
    }
}

/// Keys in the making.
pub(super) struct Derivation {
    mechanism: ScramMechanism,
    salt: heapless::Vec<u8, SALT_BYTES_MAX>,
    iterations: u32,
    stretch: Stretch,
}

impl Derivation {
    pub(super) fn new(
        mechanism: ScramMechanism,
        username: &str,
        password: &str,
        salt: heapless::Vec<u8, SALT_BYTES_MAX>,
        iterations: u32,
    ) -> Result<Self, AuthError> {
        if iterations < ITERATIONS_MIN {
            return Err(AuthError::IterationsTooFew { found: iterations });
        }
        let prepared = prepare(mechanism, username, password)?;
        let stretch = Stretch::new(mechanism, prepared.as_bytes(), &salt, iterations);
        Ok(Self { mechanism, salt, iterations, stretch })
    }

    /// Does up to `count` iterations. `None` while there are more to do.
    pub(super) fn advance(&mut self, count: u32) -> Option<ScramKeys> {
        let Self { mechanism, salt, iterations, stretch } = self;
        let salted = stretch.advance(count)?;
        Some(ScramKeys {
            mechanism: *mechanism,
            salt: salt.clone(),
            iterations: *iterations,
            client_key: Mac::of(*mechanism, salted.bytes(), b"Client Key"),
            server_key: Mac::of(*mechanism, salted.bytes(), b"Server Key"),
        })
    }

    /// Whether these are the keys that it makes.
    pub(super) fn makes(&self, keys: &ScramKeys) -> bool {
        keys.fit(self.mechanism, &self.salt, self.iterations)
    }
}

impl fmt::Debug for ScramKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramKeys")
            .field("mechanism", &self.mechanism)
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}
