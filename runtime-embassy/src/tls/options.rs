//! What a user says of TLS.

use core::fmt;
use p256::SecretKey;
use p256::ecdsa::SigningKey;
use poolhouse_core::ConfigError;
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};

/// How many authorities can be trusted at once.
pub(super) const AUTHORITIES_MAX: usize = 8;

/// How connections are encrypted: by TLS 1.3 with AES-128-GCM and SHA-256, keys on P-256, and certificates that are signed with ECDSA on P-256 and SHA-256.
///
/// The protocol is embedded-tls'; what becomes of certificates is up to rustls-webpki, as with a hosted client: what one refuses the other refuses.
///
/// - A server needs a certificate whose whole chain is of the kind above. One with RSA or P-384 in it is refused as [`Invalid`](poolhouse_core::CertificateFault::Invalid); a
///   server that has nothing else, or no TLS 1.3, ends the handshake, which is [`Protocol`](poolhouse_core::Cause::Protocol).
/// - Names are those among the subject's alternative names; a common name does not count. The name is the host of the server's address; an address is looked for among the
///   addresses.
/// - A chain has up to four certificates between the server's and the authority's, in any order, and no more than eight signatures of certificates are verified in a handshake: a
///   stranger must not keep the processor busy.
/// - A message of the handshake must fit into one record, and every record into [`TlsBuffers`](crate::TlsBuffers).
/// - Not there: revocation, resumption of sessions, other keys than the first (a server that wants new ones ends the connection), alerts about refused certificates (the
///   server sees the end of the connection).
///
/// ```
/// use poolhouse_embassy::{TlsConfig, TlsOptions};
///
/// # const CA: &[u8] = &[0x30];
/// /// From a clock chip or SNTP. A clock that has not been set says 0, and no certificate is valid yet.
/// fn seconds_since_1970() -> u64 {
///     # 0
///     // ..
/// }
///
/// // const CA: &[u8] = include_bytes!("ca.der");
/// const TLS: TlsConfig = TlsOptions::new(&[CA], seconds_since_1970).build();
/// ```
///
/// Whether a certificate is valid nobody can say who does not know the time. Without a clock it does not compile:
///
/// ```compile_fail,E0061
/// use poolhouse_embassy::{TlsConfig, TlsOptions};
///
/// # const CA: &[u8] = &[0x30];
/// const TLS: TlsConfig = TlsOptions::new(&[CA]).build();
/// # let _ = TLS;
/// ```
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct TlsOptions {
    /// The certificates of the authorities to trust, DER, and no others: 1 to 8.
    pub authorities: &'static [&'static [u8]],
    /// The seconds since the beginning of 1970, UTC.
    pub clock: fn() -> u64,
    /// Who this client is, for servers that ask.
    pub identity: Option<TlsIdentity>,
    /// What servers are asked not to exceed in a record. Those that use OpenSSL heed it (mongod), others may not; then what is too large for
    /// [`TlsBuffers`](crate::TlsBuffers) ends the connection. `None`, the default: records of up to 16 KiB.
    pub max_fragment: Option<MaxFragment>,
}

impl TlsOptions {
    /// Whom to trust, and when.
    #[must_use]
    pub const fn new(authorities: &'static [&'static [u8]], clock: fn() -> u64) -> Self {
        Self { authorities, clock, identity: None, max_fragment: None }
    }

    /// [`TlsOptions::max_fragment`], for a `const`.
    #[must_use]
    pub const fn max_fragment(self, max_fragment: MaxFragment) -> Self {
        Self { max_fragment: Some(max_fragment), ..self }
    }

    /// [`TlsOptions::identity`], for a `const`.
    #[must_use]
    pub const fn identity(self, identity: TlsIdentity) -> Self {
        Self { identity: Some(identity), ..self }
    }

    /// Checks what can be checked without reading certificates, which [`Client::with_tls`](crate::Client::with_tls) does.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]: no authority, or too many.
    pub const fn validate(self) -> Result<TlsConfig, ConfigError> {
        if self.authorities.is_empty() || self.authorities.len() > AUTHORITIES_MAX {
            return Err(ConfigError::new("authorities", self.authorities.len() as u64, "be from 1 to 8"));
        }
        Ok(TlsConfig(self))
    }

    /// [`TlsOptions::validate`] for a `const`: a bad option fails the build.
    ///
    /// # Panics
    ///
    /// With the rule that an option breaks.
    #[must_use]
    pub const fn build(self) -> TlsConfig {
        match self.validate() {
            Ok(config) => config,
            Err(error) => panic!("{}", error.rule()),
        }
    }
}

impl fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsOptions")
            .field("authorities", &self.authorities.len())
            .field("identity", &self.identity)
            .field("max_fragment", &self.max_fragment)
            .finish_non_exhaustive()
    }
}

/// A certificate and its key.
#[derive(Clone, Copy)]
pub struct TlsIdentity {
    /// The certificate, DER. An authority that the server trusts has issued it itself.
    pub certificate: &'static [u8],
    /// Its private key on P-256, DER as `openssl ec -outform DER` writes it (SEC 1).
    pub key: &'static [u8],
}

impl TlsIdentity {
    pub(super) fn signing_key(&self) -> Option<SigningKey> {
        SecretKey::from_sec1_der(self.key).ok().map(SigningKey::from)
    }
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsIdentity(..)")
    }
}

/// The most plaintext that a record may hold.
///
/// A message of the handshake must fit into one record, and the server's chain of certificates is one: some 400 bytes for each, and more for one with many names. A mongod
/// that has a `tlsCAFile` sends its authority's certificate, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxFragment {
    /// 1,024 bytes.
    Bytes1024,
    /// 2,048 bytes.
    Bytes2048,
    /// 4,096 bytes.
    Bytes4096,
}

impl MaxFragment {
    /// How many bytes of plaintext.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bytes1024 => 1024,
            Self::Bytes2048 => 2048,
            Self::Bytes4096 => 4096,
        }
    }

    pub(super) const fn wire(self) -> embedded_tls::MaxFragmentLength {
        match self {
            Self::Bytes1024 => embedded_tls::MaxFragmentLength::Bits10,
            Self::Bytes2048 => embedded_tls::MaxFragmentLength::Bits11,
            Self::Bytes4096 => embedded_tls::MaxFragmentLength::Bits12,
        }
    }
}

/// Options that were checked.
#[derive(Clone, Copy, Debug)]
pub struct TlsConfig(TlsOptions);

impl TlsConfig {
    /// The options as they were given.
    #[must_use]
    pub const fn options(&self) -> &TlsOptions {
        &self.0
    }

    pub(super) fn now(&self) -> UnixTime {
        UnixTime::since_unix_epoch(core::time::Duration::from_secs((self.0.clock)()))
    }

    /// Calls `f` with those whom to trust. One that is no certificate is left out: that was said when the client was made.
    pub(super) fn with_anchors<R>(&self, f: impl FnOnce(&[TrustAnchor<'_>]) -> R) -> R {
        let mut certificates: heapless::Vec<CertificateDer<'_>, AUTHORITIES_MAX> = heapless::Vec::new();
        for der in self.0.authorities {
            // There are no more than there is room for.
            let _ = certificates.push(CertificateDer::from_slice(der));
        }
        let mut anchors: heapless::Vec<TrustAnchor<'_>, AUTHORITIES_MAX> = heapless::Vec::new();
        for anchor in certificates.iter().filter_map(|certificate| webpki::anchor_from_trusted_cert(certificate).ok()) {
            let _ = anchors.push(anchor);
        }
        f(&anchors)
    }

    /// Whether every certificate and key can be read.
    pub(super) fn is_readable(&self) -> bool {
        self.with_anchors(|anchors| anchors.len()) == self.0.authorities.len()
            && self.0.identity.is_none_or(|identity| identity.signing_key().is_some())
    }
}
