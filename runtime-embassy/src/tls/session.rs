//! One session over one socket, in borrowed memory.

use core::pin::pin;
use core::task::Context;
use embedded_io_async::{Read, Write};
use embedded_tls::alert::AlertDescription;
use embedded_tls::{
    Certificate, CryptoProvider, CryptoRng, CryptoRngCore, FlushPolicy, SignatureScheme, TlsConnection, TlsContext,
    TlsError, TlsVerifier,
};
use p256::ecdsa::signature::SignerMut;
use p256::ecdsa::{DerSignature, SigningKey};
use p256::elliptic_curve::rand_core::{self, RngCore};
use poolhouse_core::{Cause, CertificateFault};
use rustls_pki_types::ServerName;

use super::options::TlsConfig;
use super::suite::Suite;
use super::verify::Verifier;
use super::watch::{Watch, Watched};
use crate::config::Random;

/// A session. Dropping it sends nothing; [`Session::goodbye`] does.
pub(super) struct Session<'m, S: Read + Write> {
    tls: TlsConnection<'m, Watched<'m, S>, Suite>,
    watch: &'m Watch,
    /// Whether the handshake, a write or a flush has started but not succeeded: close_notify cannot
    /// be sent then.
    is_torn: bool,
}

impl<'m, S: Read + Write> Session<'m, S> {
    /// Creates a session without I/O.
    ///
    /// - `receive`: one record, at most 16,640 bytes. `send`: one record, or the largest handshake
    ///   message; more than 128 bytes.
    pub(super) fn new(socket: S, watch: &'m Watch, receive: &'m mut [u8], send: &'m mut [u8]) -> Self {
        let mut tls = TlsConnection::new(Watched::new(socket, watch), receive, send);
        tls.set_flush_policy(FlushPolicy::Relaxed);
        Self { tls, watch, is_torn: true }
    }

    /// Performs the handshake.
    ///
    /// - `host`: the name or address of the server. A name is sent unencrypted (SNI), an address is
    ///   not sent.
    ///
    /// # Errors
    ///
    /// [`Cause::Certificate`], [`Cause::Protocol`], [`Cause::Network`]; [`Cause::Resources`] if the
    /// random generator always returns the same byte.
    pub(super) async fn open(&mut self, host: &str, config: &TlsConfig, random: Random) -> Result<(), Cause> {
        let name = ServerName::try_from(host).map_err(|_| Cause::Certificate(CertificateFault::WrongName))?;
        if !is_random(random) {
            return Err(Cause::Resources);
        }
        let mut tls_config = embedded_tls::TlsConfig::new();
        if matches!(name, ServerName::DnsName(_)) {
            tls_config = tls_config.with_server_name(host.strip_suffix('.').unwrap_or(host));
        }
        if cfg!(feature = "rsa") {
            tls_config = tls_config.enable_rsa_signatures();
        }
        if let Some(max_fragment) = config.options().max_fragment {
            tls_config = tls_config.with_max_fragment_length(max_fragment.wire());
        }
        let mut verifier = Verifier::new(config, name);
        let provider = Provider { config, random: Source(random), verifier: &mut verifier };
        let opened = self.tls.open(TlsContext::new(&tls_config, provider)).await;
        if let Some(fault) = verifier.fault() {
            return Err(Cause::Certificate(fault));
        }
        opened.map_err(|error| self.cause(error))?;
        // embedded-tls accepts a server that sends no certificate.
        if !verifier.is_proven() {
            return Err(Cause::Protocol);
        }
        self.watch.open();
        self.is_torn = false;
        Ok(())
    }

    /// Waits for data and passes it to `take`, which returns the number of bytes that it has taken.
    /// Returns `false` after the peer's close_notify.
    ///
    /// After a read was dropped, the session cannot be used.
    ///
    /// # Errors
    ///
    /// As [`Session::open`]. A server that refuses the client's certificate reports it only here.
    pub(super) async fn read(&mut self, take: impl FnOnce(&[u8]) -> usize) -> Result<bool, Cause> {
        let failed = match self.tls.read_buffered().await {
            Ok(mut data) => {
                let taken = take(data.peek_all());
                data.pop(taken);
                self.watch.progress();
                return Ok(true);
            }
            Err(error) => error,
        };
        if matches!(failed, TlsError::ConnectionClosed) { Ok(false) } else { Err(self.cause(failed)) }
    }

    /// Encrypts bytes. Sends each record that is full.
    ///
    /// After a write or flush was dropped, the session cannot be used.
    ///
    /// # Errors
    ///
    /// As [`Session::open`].
    pub(super) async fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), Cause> {
        self.is_torn = true;
        while !bytes.is_empty() {
            let written = self.tls.write(bytes).await.map_err(|error| self.cause(error))?;
            bytes = bytes.get(written..).unwrap_or_default();
        }
        self.is_torn = false;
        Ok(())
    }

    /// Sends all written bytes.
    ///
    /// # Errors
    ///
    /// As [`Session::open`].
    pub(super) async fn flush(&mut self) -> Result<(), Cause> {
        self.is_torn = true;
        self.tls.flush().await.map_err(|error| self.cause(error))?;
        self.is_torn = false;
        Ok(())
    }

    /// Sends close_notify, if that is possible without waiting.
    ///
    /// Not `async`: the session would be moved into the future, and the lane would reserve memory
    /// for a second and a third copy of it.
    pub(super) fn goodbye(self, context: &mut Context<'_>) {
        if !self.is_torn {
            // The result is ignored: no caller is left that could receive it.
            let _ = pin!(self.tls.close()).poll(context);
        }
    }

    /// Maps an error of embedded-tls to a cause. Many of its errors contain no details.
    fn cause(&self, error: TlsError) -> Cause {
        if let Some(fault) = self.watch.fault() {
            return fault;
        }
        let is_end = matches!(
            error,
            TlsError::IoError
                | TlsError::Io(_)
                | TlsError::ConnectionClosed
                | TlsError::HandshakeAborted(_, AlertDescription::CloseNotify)
        );
        // `Unimplemented` is the suite's substitute for such an alert, see `REFUSED_BY_PEER`;
        // alerts in the handshake are not encrypted.
        let is_refusal = if self.watch.is_open() {
            matches!(error, TlsError::Unimplemented)
        } else {
            matches!(
                error,
                TlsError::HandshakeAborted(
                    _,
                    AlertDescription::BadCertificate
                        | AlertDescription::UnsupportedCertificate
                        | AlertDescription::CertificateRevoked
                        | AlertDescription::CertificateExpired
                        | AlertDescription::CertificateUnknown
                        | AlertDescription::UnknownCa
                        | AlertDescription::AccessDenied
                        | AlertDescription::CertificateRequired
                )
            )
        };
        if is_end {
            Cause::Network
        } else if is_refusal {
            Cause::Certificate(CertificateFault::RefusedByPeer)
        } else {
            Cause::Protocol
        }
    }
}

/// The provider that embedded-tls requires: random generator, suite, verifier and key.
struct Provider<'p, 'a> {
    config: &'p TlsConfig,
    random: Source,
    verifier: &'p mut Verifier<'a>,
}

impl CryptoProvider for Provider<'_, '_> {
    type CipherSuite = Suite;
    type Signature = DerSignature;

    fn rng(&mut self) -> impl CryptoRngCore {
        &mut self.random
    }

    fn verifier(&mut self) -> Result<&mut impl TlsVerifier<Suite>, TlsError> {
        Ok(&mut *self.verifier)
    }

    fn signer(&mut self) -> Result<(impl SignerMut<DerSignature>, SignatureScheme), TlsError> {
        let key: Option<SigningKey> = self.config.options().identity.and_then(|identity| identity.signing_key());
        Ok((key.ok_or(TlsError::InvalidPrivateKey)?, SignatureScheme::EcdsaSecp256r1Sha256))
    }

    fn client_cert(&mut self) -> Option<Certificate<impl AsRef<[u8]>>> {
        self.config.options().identity.map(|identity| Certificate::X509(identity.certificate))
    }
}

/// The random generator of the options.
struct Source(Random);

impl RngCore for Source {
    fn next_u32(&mut self) -> u32 {
        let mut bytes = [0; 4];
        (self.0)(&mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        (self.0)(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn fill_bytes(&mut self, dest: &mut [u8]) {
        (self.0)(dest);
    }

    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), rand_core::Error> {
        self.fill_bytes(dest);
        Ok(())
    }
}

impl CryptoRng for Source {}

/// Whether a generator returns more than one byte value. With zeros only, generating a key would
/// never end.
fn is_random(random: Random) -> bool {
    let mut bytes = [0; 32];
    random(&mut bytes);
    bytes.iter().any(|byte| Some(byte) != bytes.first())
}
