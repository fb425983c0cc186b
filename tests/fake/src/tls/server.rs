//! The TLS configuration of a server, and the TLS state of one connection.

use alloc::sync::Arc;
use std::io::{self, Read, Write};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion, version};

use super::Identity;

/// The supported versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Versions {
    /// Both.
    #[default]
    All,
    /// 1.2 only.
    Tls12,
    /// 1.3 only.
    Tls13,
}

/// The check of client certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCheck {
    /// The authority that must have issued them: PEM.
    pub authority: String,
    /// Whether a client without one is refused.
    pub required: bool,
}

/// The TLS configuration of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerTls {
    /// Its certificates and its key.
    pub identity: Identity,
    /// The check of client certificates, if any.
    pub clients: Option<ClientCheck>,
    /// The supported versions.
    pub versions: Versions,
}

impl ServerTls {
    /// A server that does not request client certificates.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self { identity, clients: None, versions: Versions::All }
    }

    /// Returns the configuration for rustls.
    ///
    /// # Errors
    /// `InvalidInput`: invalid PEM texts, or a key that does not match its certificate.
    pub fn config(&self) -> io::Result<Arc<ServerConfig>> {
        const TLS12: &[&SupportedProtocolVersion] = &[&version::TLS12];
        const TLS13: &[&SupportedProtocolVersion] = &[&version::TLS13];
        let versions = match self.versions {
            Versions::All => rustls::ALL_VERSIONS,
            Versions::Tls12 => TLS12,
            Versions::Tls13 => TLS13,
        };
        let provider = Arc::new(ring::default_provider());
        let key = PrivateKeyDer::from_pem_slice(self.identity.key.as_bytes()).map_err(invalid)?;
        let key = provider.key_provider.load_private_key(key).map_err(invalid)?;
        let identity = CertifiedKey::new(certificates(&self.identity.certificates)?, key);
        match identity.keys_match() {
            // It cannot be parsed, and is presented nevertheless: one of version 1.
            Ok(()) | Err(rustls::Error::InvalidCertificate(_)) => {}
            Err(error) => return Err(invalid(error)),
        }
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_protocol_versions(versions).map_err(invalid)?;
        let builder = match &self.clients {
            None => builder.with_no_client_auth(),
            Some(check) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(&check.authority)? {
                    roots.add(certificate).map_err(invalid)?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = if check.required { verifier } else { verifier.allow_unauthenticated() };
                builder.with_client_cert_verifier(verifier.build().map_err(invalid)?)
            }
        };
        Ok(Arc::new(builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(identity)))))
    }
}

fn certificates(pem: &str) -> io::Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(invalid)
}

fn invalid(error: impl core::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error.to_string())
}

/// Number of encrypted bytes that are read at a time. Their plaintext fits into the buffer of
/// rustls.
const PIECE_BYTES: usize = 4096;

/// The server's side of one connection, without its socket.
#[derive(Debug)]
pub struct Side {
    tls: ServerConnection,
    input: Vec<u8>,
    output: Vec<u8>,
    said_goodbye: bool,
}

impl Side {
    /// Begins the server's side of a connection.
    ///
    /// # Errors
    ///
    /// The configuration is refused.
    pub fn new(config: &Arc<ServerConfig>) -> io::Result<Self> {
        let mut tls = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        // The caller of `write` sends the output before it writes again.
        tls.set_buffer_limit(None);
        Ok(Self { tls, input: Vec::new(), output: Vec::new(), said_goodbye: false })
    }

    /// Reads decrypted bytes; `None` if there are none.
    ///
    /// # Errors
    ///
    /// The peer violated the protocol or sent an alert.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match self.tls.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The peer has closed without close_notify, as some clients do.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Some(0)),
                read => return read.map(Some),
            }
            if self.input.is_empty() {
                return Ok(None);
            }
            let taken = self.tls.read_tls(&mut self.input.as_slice())?;
            self.input.drain(..taken);
            let processed = self.tls.process_new_packets();
            self.collect()?;
            let state = processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            self.said_goodbye |= state.peer_has_closed();
            if taken == 0 {
                return Ok(Some(0));
            }
        }
    }

    /// Processes encrypted bytes; an empty slice is the end.
    ///
    /// # Errors
    ///
    /// The end could not be recorded.
    ///
    /// # Panics
    ///
    /// Panics if there are more bytes than [`Side::piece`] has.
    pub fn receive(&mut self, bytes: &[u8]) -> io::Result<()> {
        assert!(bytes.len() <= PIECE_BYTES, "a piece at a time");
        if bytes.is_empty() {
            self.tls.read_tls(&mut io::empty())?;
        }
        self.input.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns a buffer for encrypted bytes.
    pub const fn piece() -> [u8; PIECE_BYTES] {
        [0; PIECE_BYTES]
    }

    /// Encrypts bytes.
    ///
    /// # Errors
    ///
    /// The connection is closed.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.tls.writer().write_all(bytes)?;
        self.collect()
    }

    /// Appends close_notify to the output.
    ///
    /// # Errors
    ///
    /// The output could not be collected.
    pub fn end(&mut self) -> io::Result<()> {
        self.tls.send_close_notify();
        self.collect()
    }

    /// Returns whether the peer has sent close_notify.
    pub const fn said_goodbye(&self) -> bool {
        self.said_goodbye
    }

    /// Returns the connection state of rustls.
    pub const fn connection(&self) -> &ServerConnection {
        &self.tls
    }

    /// Returns the bytes to send; the caller must remove sent bytes from the front.
    pub const fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    fn collect(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.output)?;
        }
        Ok(())
    }
}
