//! Reads PEM: the two files that options name, and authorities in memory.

use super::authorities::Authorities;
use super::error::{FileFault, TlsError};
use alloc::vec::Vec;
use pkcs8::{EncryptedPrivateKeyInfoRef, SecretDocument};
use poolhouse_uri::Secret;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use zeroize::Zeroizing;

pub(super) const CA_FILE: &str = "tlsCAFile";
pub(super) const KEY_FILE: &str = "tlsCertificateKeyFile";

/// Limit in bytes on the length of a file.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

pub(super) fn fault(option: &'static str, path: &Path, fault: FileFault) -> TlsError {
    TlsError::File { option, path: path.into(), fault }
}

/// Reads a file, which may contain a private key.
pub(super) fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, FileFault> {
    let io = |error: std::io::Error| FileFault::Io(error.kind());
    let file = File::open(path).map_err(io)?;
    let length = file.metadata().map_err(io)?.len();
    if length > FILE_BYTES_MAX {
        return Err(FileFault::TooLong);
    }
    // Capacity for the whole file: a buffer that grows would leave copies in memory.
    let mut text = Zeroizing::new(Vec::with_capacity(usize::try_from(length).unwrap_or(0) + 1));
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(io)?;
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > FILE_BYTES_MAX {
        return Err(FileFault::TooLong);
    }
    Ok(text)
}

fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, FileFault> {
    let certificates: Result<Vec<_>, PemError> = CertificateDer::pem_slice_iter(text).collect();
    let certificates = certificates.map_err(|_| FileFault::Pem)?;
    if certificates.is_empty() { Err(FileFault::NoCertificate) } else { Ok(certificates) }
}

/// Returns the authorities of a PEM text.
pub(super) fn authorities(text: &[u8]) -> Result<Authorities, FileFault> {
    let authorities = Authorities::new(certificates(text)?);
    if authorities.is_empty() { Err(FileFault::BadCertificate) } else { Ok(authorities) }
}

/// Returns the certificates and the private key of a file.
pub(super) fn identity(
    path: &Path,
    password: Option<&Secret>,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), FileFault> {
    let text = read(path)?;
    // The old encryption of keys keeps the PEM label, and puts headers before the key.
    if contains(&text, b"Proc-Type: 4,ENCRYPTED") {
        return Err(FileFault::Encryption);
    }
    let certificates = certificates(&text)?;
    let keys: Result<Vec<PrivateKeyDer<'static>>, PemError> = PrivateKeyDer::pem_slice_iter(&text).collect();
    let mut keys = keys.map_err(|_| FileFault::Pem)?;
    if let Some(encrypted) = encrypted_section(&text)? {
        keys.push(decrypt(encrypted, password)?);
    }
    match keys.len() {
        0 => Err(FileFault::NoKey),
        1 => Ok((certificates, keys.remove(0))),
        _ => Err(FileFault::ManyKeys),
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    find(text, part).is_some()
}

const BEGIN: &[u8] = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";
const END: &[u8] = b"-----END ENCRYPTED PRIVATE KEY-----";

/// Returns the section of the encrypted key, with its first and last lines.
fn encrypted_section(text: &[u8]) -> Result<Option<&[u8]>, FileFault> {
    let Some(text) = find(text, BEGIN).and_then(|start| text.get(start..)) else { return Ok(None) };
    let end = find(text, END).ok_or(FileFault::Pem)? + END.len();
    let (section, rest) = text.split_at(end);
    if contains(rest, BEGIN) { Err(FileFault::ManyKeys) } else { Ok(Some(section)) }
}

fn decrypt(section: &[u8], password: Option<&Secret>) -> Result<PrivateKeyDer<'static>, FileFault> {
    let password = password.ok_or(FileFault::NoPassword)?;
    let section = core::str::from_utf8(section).map_err(|_| FileFault::Pem)?;
    let (_, document) = SecretDocument::from_pem(section).map_err(|_| FileFault::Pem)?;
    let encrypted = EncryptedPrivateKeyInfoRef::try_from(document.as_bytes()).map_err(|_| FileFault::Encryption)?;
    if encrypted.encryption_algorithm.pbes2().is_none() {
        return Err(FileFault::Encryption);
    }
    let key = encrypted.decrypt(password.expose()).map_err(|_| FileFault::WrongPassword)?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}
