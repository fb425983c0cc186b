//! TLS configuration, built from options.

#[cfg(test)]
mod tests;

use super::authorities::Authorities;
use super::error::{FileFault, TlsError};
use super::options::{TlsOptions, TlsWarning};
use super::verify::{AnyCertificate, Verifier};
use super::{TlsHandshakeError, pem};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, SubjectPublicKeyInfoDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use rustls_native_certs::CertificateResult;
use std::env;
use std::ffi::OsString;
use std::path::Path;

/// The maximum number of bytes to send that a connection buffers, for plaintext and for encrypted
/// data each.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// TLS configuration of connections: validated, cheap to clone, shared by all connections of a
/// client. It stores sessions, which shorten later handshakes.
#[derive(Clone)]
pub struct TlsConfig {
    config: Arc<ClientConfig>,
    warnings: Arc<[TlsWarning]>,
    verifies_servers: bool,
}

impl TlsConfig {
    /// Reads the files that the options name. They are not read again: a renewed certificate
    /// requires a new configuration.
    ///
    /// Blocks while it reads. Without a CA file or authorities in memory, it reads the platform's
    /// store, which may be a few hundred files.
    ///
    /// # Errors
    ///
    /// [`TlsError`]: it names the option that cannot be met and its file, or the reason why the
    /// platform's store has no usable root. A part of the store that cannot be read is only a
    /// warning.
    pub fn build(options: &TlsOptions) -> Result<Self, TlsError> {
        options.check()?;
        let mut warnings = Vec::new();
        let verifier = verifier(options, &mut warnings)?;
        // An explicit provider, because another user of rustls may set the default of the process.
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Other(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match &options.certificate_key_file {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let fault = |fault| pem::fault(pem::KEY_FILE, path, fault);
                let password = options.certificate_key_file_password.as_ref();
                let (certificates, key) = pem::identity(path, password).map_err(fault)?;
                let identity = identity(certificates, key).map_err(fault)?;
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity)))
            }
        };
        let verifies_servers = options.verify_servers();
        Ok(Self { config: Arc::new(config), warnings: warnings.into(), verifies_servers })
    }

    /// Returns the warnings about the options, for the log.
    #[must_use]
    pub fn warnings(&self) -> &[TlsWarning] {
        &self.warnings
    }

    /// Whether a server must prove that it is the host that was dialed. False if the options allow
    /// invalid certificates or host names: a connection is then encrypted, but its peer may be an
    /// attacker.
    #[must_use]
    pub const fn verifies_servers(&self) -> bool {
        self.verifies_servers
    }

    /// Whether servers that request a client certificate receive one.
    #[must_use]
    pub fn has_certificate(&self) -> bool {
        self.config.client_auth_cert_resolver.has_certs()
    }

    /// Creates the state of a new connection to this host.
    pub(super) fn connection(&self, host: &str) -> Result<ClientConnection, TlsHandshakeError> {
        // The zone of an address selects the link to it, and is not part of the address (RFC 4007).
        let unzoned =
            host.split_once('%').filter(|(address, _)| address.contains(':')).map_or(host, |(address, _)| address);
        let name = match unzoned.parse::<IpAddr>() {
            Ok(address) => ServerName::from(address),
            Err(_) => ServerName::try_from(host).map_err(|_| TlsHandshakeError::NAME)?.to_owned(),
        };
        let mut connection = ClientConnection::new(Arc::clone(&self.config), name)?;
        connection.set_buffer_limit(Some(BUFFER_BYTES_MAX));
        Ok(connection)
    }
}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConfig")
            .field("has_certificate", &self.has_certificate())
            .field("warnings", &self.warnings)
            .finish_non_exhaustive()
    }
}

fn verifier(options: &TlsOptions, warnings: &mut Vec<TlsWarning>) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    // A named CA file is read even if nothing is verified, so a missing file is reported.
    let named = match &options.ca_file {
        None => options.authorities.clone(),
        Some(path) => {
            let authorities = pem::read(path).and_then(|text| pem::authorities(&text));
            Some(authorities.map_err(|fault| pem::fault(pem::CA_FILE, path, fault))?)
        }
    };
    if let Some(authorities) = &named {
        authorities.warn(warnings);
    }
    let provider = Arc::new(ring::default_provider());
    if options.allow_invalid_certificates {
        warnings.push(TlsWarning::InvalidCertificates);
        return Ok(Arc::new(AnyCertificate(provider.signature_verification_algorithms)));
    }
    let fallback = options.fallback_authorities.as_ref();
    let authorities = named.map_or_else(|| platform_roots(fallback, warnings), Ok)?;
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(authorities.store()), provider).build();
    let inner = verifier.map_err(|error| TlsError::Other(error.to_string()))?;
    let any_name = options.allow_invalid_hostnames;
    if any_name {
        warnings.push(TlsWarning::InvalidHostnames);
    }
    Ok(Arc::new(Verifier { inner, trusted: authorities.certificates(), any_name }))
}

/// Environment variables that name another certificate store than the platform's usual one.
const STORE_VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// The certificates of the platform's store.
fn platform_roots(fallback: Option<&Authorities>, warnings: &mut Vec<TlsWarning>) -> Result<Authorities, TlsError> {
    // A variable with an empty list of folders names no store.
    let names_store = |name: &str, value: &OsString| {
        name != STORE_VARIABLES[1] || env::split_paths(value).any(|path| path != Path::new(""))
    };
    let value = |name| {
        let value = env::var_os(name).filter(|value| names_store(name, value))?;
        Some(format!("{name}={}", value.display()))
    };
    let named: Vec<String> = STORE_VARIABLES.into_iter().filter_map(value).collect();
    roots_of(rustls_native_certs::load_native_certs(), &named.join(" "), fallback, warnings)
}

/// The certificates of a store that can be used. Files that cannot be read are left out with a
/// warning, as other programs leave them out.
///
/// - `named`: the environment variables that name the store, with their values; empty if none does.
/// - `fallback`: replaces a store without a usable certificate, but not one that was named.
fn roots_of(
    store: CertificateResult,
    named: &str,
    fallback: Option<&Authorities>,
    warnings: &mut Vec<TlsWarning>,
) -> Result<Authorities, TlsError> {
    let mut roots = Authorities::new(store.certs);
    if let Some(fallback) = fallback.filter(|_| roots.is_empty() && named.is_empty()) {
        fallback.warn(warnings);
        roots = fallback.clone();
    }
    let fault = match store.errors.as_slice() {
        [] if !roots.is_empty() => return Ok(roots),
        [] if named.is_empty() => return Err(TlsError::NoPlatformRoots),
        [] => "it has no certificate that can be used".to_string(),
        [error] => store_fault(error),
        [error, others @ ..] => format!("{} (and {} more)", store_fault(error), others.len()),
    };
    let reason = if named.is_empty() { fault } else { format!("{named}: {fault}") };
    if roots.is_empty() {
        return Err(TlsError::PlatformStore { reason });
    }
    warnings.push(TlsWarning::PlatformStore { reason });
    Ok(roots)
}

/// The fault of a store. If a file is not PEM, the library's error contains neither the file's name
/// nor a readable reason.
fn store_fault(error: &rustls_native_certs::Error) -> String {
    let is_of_text = matches!(error.kind, rustls_native_certs::ErrorKind::Pem(_));
    if is_of_text { "a file is not valid PEM".to_string() } else { error.to_string() }
}

/// The certificate and key of this client. The server judges the certificate, so one of version 1
/// is sent too, for example.
fn identity(
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, FileFault> {
    let key = ring::default_provider().key_provider.load_private_key(key).map_err(|_| FileFault::BadKey)?;
    // Read as that of an authority, because such a certificate may have any version.
    let mut store = RootCertStore::empty();
    let first = certificates.first().ok_or(FileFault::NoCertificate)?;
    store.add(first.clone()).map_err(|_| FileFault::BadCertificate)?;
    let certified = store.roots.first().map(|anchor| &anchor.subject_public_key_info);
    // The certificate's key lacks the header of its sequence here.
    let is_of = |own: SubjectPublicKeyInfoDer<'_>| certified.is_some_and(|certified| own.ends_with(certified));
    if key.public_key().is_none_or(is_of) {
        Ok(CertifiedKey::new(certificates, key))
    } else {
        Err(FileFault::ForeignKey)
    }
}
