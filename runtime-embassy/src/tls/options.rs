//! The options of TLS.

use core::fmt;
use p256::SecretKey;
use p256::ecdsa::SigningKey;
use poolhouse_core::ConfigError;
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};

/// The maximum number of trusted authorities.
pub(super) const AUTHORITIES_MAX: usize = 8;

/// The options of encryption: TLS 1.3 with AES-128-GCM and SHA-256, keys on P-256, and certificates
/// signed with ECDSA on P-256 and SHA-256.
///
/// embedded-tls implements the protocol; rustls-webpki verifies certificates, as in a hosted
/// client: both clients accept the same certificates of the supported kinds.
///
/// - A server needs a certificate whose whole chain is of the supported kinds: the one above; with feature
///   `rsa` also RSA keys of 2,048, 3,072 and 4,096 bits, with SHA-256, SHA-384 and SHA-512; with feature
///   `p384` also ECDSA on P-384 with SHA-384. Another chain is refused as
///   [`Invalid`](poolhouse_core::CertificateFault::Invalid), or as
///   [`UnknownIssuer`](poolhouse_core::CertificateFault::UnknownIssuer) if only the key of an issuer has
///   another size. A server without such a certificate or without TLS 1.3 ends the handshake, which is
///   [`Protocol`](poolhouse_core::Cause::Protocol).
/// - The client's own key is on P-256.
/// - The host of the server's address must be among the subject's alternative names; the common
///   name is ignored. An IP address must be among the IP addresses of these names.
/// - A chain has up to four certificates between the server's and the authority's, in any order. At
///   most eight certificate signatures are verified in a handshake, to limit the processor time
///   that an untrusted server can use.
/// - A handshake message must fit into one record, and every record into
///   [`TlsBuffers`](crate::TlsBuffers).
/// - Not supported: revocation; session resumption; key updates (a server that requests one ends
///   the connection); alerts about refused certificates (the server receives only the end of the
///   connection).
///
/// ```
/// use poolhouse_embassy::{TlsConfig, TlsOptions};
///
/// # const CA: &[u8] = &[0x30];
/// /// From a clock chip or SNTP. A clock that is not set returns 0: no certificate is valid then.
/// fn seconds_since_1970() -> u64 {
///     # 0
///     // ..
/// }
///
/// // const CA: &[u8] = include_bytes!("ca.der");
/// const TLS: TlsConfig = TlsOptions::new(&[CA], seconds_since_1970).build();
/// ```
///
/// Verifying the validity period of a certificate requires the time. Options without a clock do not
/// compile:
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
    /// The certificates of all trusted authorities, DER: 1 to 8.
    pub authorities: &'static [&'static [u8]],
    /// Returns the seconds since 1970-01-01 00:00 UTC.
    pub clock: fn() -> u64,
    /// The client's certificate, for servers that request one.
    pub identity: Option<TlsIdentity>,
    /// The maximum record size that is requested from servers. Servers with OpenSSL (mongod) obey
    /// it, others may not; then a record that is too large for [`TlsBuffers`](crate::TlsBuffers)
    /// ends the connection. `None`, the default: records of up to 16 KiB.
    pub max_fragment: Option<MaxFragment>,
}

impl TlsOptions {
    /// Creates options with these authorities and this clock.
    #[must_use]
    pub const fn new(authorities: &'static [&'static [u8]], clock: fn() -> u64) -> Self {
        Self { authorities, clock, identity: None, max_fragment: None }
    }

    /// Sets [`TlsOptions::max_fragment`], in a `const`.
    #[must_use]
    pub const fn max_fragment(self, max_fragment: MaxFragment) -> Self {
        Self { max_fragment: Some(max_fragment), ..self }
    }

    /// Sets [`TlsOptions::identity`], in a `const`.
    #[must_use]
    pub const fn identity(self, identity: TlsIdentity) -> Self {
        Self { identity: Some(identity), ..self }
    }

    /// Checks the options, except certificates, which [`Client::with_tls`](crate::Client::with_tls)
    /// checks.
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

    /// [`TlsOptions::validate`] for a `const`: an invalid option fails the build.
    ///
    /// # Panics
    ///
    /// If an option is invalid; the message is the rule that it violates.
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
    /// The certificate, DER. It must be issued directly by an authority that the server trusts.
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

/// The maximum plaintext of a record.
///
/// A handshake message must fit into one record, and the server's certificate chain is one message:
/// about 400 bytes for each certificate (with RSA of 2,048 bits 900, of 4,096 bits 1,400), more for one
/// with many names. A mongod with `tlsCAFile` also sends its authority's certificate.
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
    /// Returns the number of bytes of plaintext.
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

/// Checked options.
#[derive(Clone, Copy, Debug)]
pub struct TlsConfig(TlsOptions);

impl TlsConfig {
    /// Returns the options.
    #[must_use]
    pub const fn options(&self) -> &TlsOptions {
        &self.0
    }

    /// Whether this certificate is one of the authorities.
    pub(super) fn trusts(&self, certificate: &[u8]) -> bool {
        self.0.authorities.contains(&certificate)
    }

    pub(super) fn now(&self) -> UnixTime {
        UnixTime::since_unix_epoch(core::time::Duration::from_secs((self.0.clock)()))
    }

    /// Calls `f` with the trusted authorities. Invalid certificates are omitted: the constructor of
    /// the client reports them.
    pub(super) fn with_anchors<R>(&self, f: impl FnOnce(&[TrustAnchor<'_>]) -> R) -> R {
        let mut certificates: heapless::Vec<CertificateDer<'_>, AUTHORITIES_MAX> = heapless::Vec::new();
        for der in self.0.authorities {
            // The number of authorities was checked, so this cannot fail.
            let _ = certificates.push(CertificateDer::from_slice(der));
        }
        let mut anchors: heapless::Vec<TrustAnchor<'_>, AUTHORITIES_MAX> = heapless::Vec::new();
        for anchor in certificates.iter().filter_map(|certificate| webpki::anchor_from_trusted_cert(certificate).ok()) {
            let _ = anchors.push(anchor);
        }
        f(&anchors)
    }

    /// Whether every certificate and key can be decoded.
    pub(crate) fn is_readable(&self) -> bool {
        self.with_anchors(|anchors| anchors.len()) == self.0.authorities.len()
            && self.0.identity.is_none_or(|identity| identity.signing_key().is_some())
    }
}
