//! The keys that SCRAM derives from a password.

use core::fmt;

use super::crypto::{Digest, Mac, Stretch};
use super::mechanism::ScramMechanism;
use super::password::prepare;
use poolhouse_wire::AuthError;

/// The minimum number of iterations. A server that requests fewer is rejected, because it may try
/// to obtain the password.
///
/// Source: RFC 7677, section 4; Authentication, "SCRAM-SHA-1".
pub const ITERATIONS_MIN: u32 = 4096;

/// The default maximum number of iterations;
/// [`Scram::with_iterations_max`](super::Scram::with_iterations_max) sets another one. Servers use
/// 10,000 and 15,000 by default. A million takes a fifth of a second on a fast core, and minutes on
/// a small one, which should set a lower limit.
pub const ITERATIONS_MAX: u32 = 1_000_000;

/// Iterations in a step of [`Scram::work`](super::Scram::work): some 50 microseconds on a fast
/// core, and short enough for other tasks on the thread of a small one.
pub const ITERATIONS_PER_STEP: u32 = 256;

/// Maximum length of a salt, in bytes. Servers use 16 and 28.
pub const SALT_BYTES_MAX: usize = 128;

/// The keys that SCRAM derives from a password, a salt and an iteration count.
///
/// The derivation is deliberately expensive, and its result is the same for all connections of a
/// user: keep the keys for the next conversation, which uses them if the server sends the same salt
/// and iterations. For this server they are equivalent to the password; they are wiped when
/// dropped, and `Debug` does not show them.
#[derive(Clone)]
pub struct ScramKeys {
    mechanism: ScramMechanism,
    salt: heapless::Vec<u8, SALT_BYTES_MAX>,
    iterations: u32,
    pub(super) client_key: Digest,
    pub(super) server_key: Digest,
}

impl ScramKeys {
    /// Derives the keys.
    ///
    /// - `password`: as the user types it.
    /// - `username`: unescaped; SCRAM-SHA-1 hashes it together with the password.
    /// - `iterations`: at least [`ITERATIONS_MIN`].
    ///
    /// Cost: two hashes of one block for each of `iterations`: some 3 ms for the server default of
    /// 15,000 on a desktop, seconds on a microcontroller. No allocation for ASCII passwords.
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

    /// The mechanism of the keys.
    #[must_use]
    pub const fn mechanism(&self) -> ScramMechanism {
        self.mechanism
    }

    /// The salt that the keys were derived with.
    #[must_use]
    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// The iteration count that the keys were derived with.
    #[must_use]
    pub const fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Whether the keys match what a server requests.
    #[must_use]
    pub fn fit(&self, mechanism: ScramMechanism, salt: &[u8], iterations: u32) -> bool {
        self.mechanism == mechanism && self.iterations == iterations && self.salt == salt
    }
}

/// A derivation of keys in progress.
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

    /// Performs up to `count` iterations. Returns `None` while iterations remain.
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

    /// Whether `keys` are the result of this derivation.
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
