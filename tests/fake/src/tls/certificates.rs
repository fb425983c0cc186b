//! Certificate authorities and the holders of certificates.

mod version_1;

use core::fmt;
use core::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// The validity period of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Validity {
    /// Now, without an end within the life of the tests.
    #[default]
    Now,
    /// In the year 2001 only.
    Over,
    /// From the year 3000 on.
    Ahead,
    /// Now, until this many seconds after 1970: for a server that does not start with an expired
    /// certificate.
    Until(u64),
}

impl Validity {
    /// Valid for this time from now on, in whole seconds.
    #[must_use]
    pub fn for_the_next(time: Duration) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::Until((now + time).as_secs())
    }
}

/// The content of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRequest {
    /// The common name.
    pub common_name: String,
    /// The organizational unit. That of clients must differ from that of servers, or mongod treats
    /// them as servers.
    pub unit: String,
    /// The subject alternative names: host names and addresses.
    pub names: Vec<String>,
    /// The validity period.
    pub validity: Validity,
    /// Whether its holder may issue certificates.
    pub is_authority: bool,
}

impl CertificateRequest {
    /// A server with these names.
    #[must_use]
    pub fn server(names: &[&str]) -> Self {
        Self {
            common_name: "server".to_owned(),
            unit: "servers".to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            validity: Validity::Now,
            is_authority: false,
        }
    }

    /// A client with this name.
    #[must_use]
    pub fn client(name: &str) -> Self {
        Self { common_name: name.to_owned(), unit: "clients".to_owned(), ..Self::server(&[]) }
    }

    /// An authority.
    #[must_use]
    pub fn authority(name: &str) -> Self {
        Self { common_name: name.to_owned(), unit: "authorities".to_owned(), is_authority: true, ..Self::server(&[]) }
    }

    /// The same with another validity period.
    #[must_use]
    pub fn valid(self, validity: Validity) -> Self {
        Self { validity, ..self }
    }

    fn params(&self) -> CertificateParams {
        let mut params = CertificateParams::new(self.names.clone()).expect("names are ASCII");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, ORGANIZATION);
        params.distinguished_name.push(DnType::OrganizationalUnitName, self.unit.as_str());
        params.distinguished_name.push(DnType::CommonName, self.common_name.as_str());
        let (begin, end) = match self.validity {
            Validity::Now | Validity::Until(_) => (2020, 4000),
            Validity::Over => (2001, 2002),
            Validity::Ahead => (3000, 4000),
        };
        params.not_before = date_time_ymd(begin, 1, 1);
        params.not_after = match self.validity {
            Validity::Until(seconds) => date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds),
            Validity::Now | Validity::Over | Validity::Ahead => date_time_ymd(end, 1, 1),
        };
        params.use_authority_key_identifier_extension = true;
        if self.is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            // One with names of hosts is that of a server too. As with `openssl req -x509`, its use is not limited.
            if self.names.is_empty() {
                params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            }
        }
        params
    }
}

const ORGANIZATION: &str = "Poolhouse";

/// The holder of a certificate and its key.
pub struct Holder {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// The certificates above its own, without that of the root.
    above: String,
    is_root: bool,
    subject: String,
}

impl Holder {
    /// Creates a self-signed authority.
    ///
    /// # Panics
    /// If the name is not ASCII.
    #[must_use]
    pub fn root(name: &str) -> Self {
        Self::self_signed(&CertificateRequest::authority(name))
    }

    /// Creates a self-signed authority with this private key: PEM, PKCS #8.
    ///
    /// # Panics
    /// If the name is not ASCII, or the key cannot be read.
    #[must_use]
    pub fn root_with_key(name: &str, key: &str) -> Self {
        Self::self_signed_with_key(&CertificateRequest::authority(name), key)
    }

    /// Creates a self-signed certificate.
    ///
    /// # Panics
    /// If a name is not ASCII.
    #[must_use]
    pub fn self_signed(wanted: &CertificateRequest) -> Self {
        Self::self_signed_with(wanted, key())
    }

    /// [`Holder::self_signed`] for this private key: PEM, PKCS #8.
    ///
    /// # Panics
    /// If a name is not ASCII, or the key cannot be read.
    #[must_use]
    pub fn self_signed_with_key(wanted: &CertificateRequest, key: &str) -> Self {
        Self::self_signed_with(wanted, read_key(key))
    }

    fn self_signed_with(wanted: &CertificateRequest, key: KeyPair) -> Self {
        let issuer = CertifiedIssuer::self_signed(wanted.params(), key).expect("it can be signed");
        Self { issuer, above: String::new(), is_root: true, subject: subject(wanted) }
    }

    /// Issues a certificate, whether its holder may do so or not.
    ///
    /// # Panics
    /// If a name is not ASCII.
    #[must_use]
    pub fn issue(&self, wanted: &CertificateRequest) -> Self {
        self.issue_to(wanted, key())
    }

    /// [`Holder::issue`] for this private key: PEM, PKCS #8.
    ///
    /// # Panics
    /// If a name is not ASCII, or the key cannot be read.
    #[must_use]
    pub fn issue_with_key(&self, wanted: &CertificateRequest, key: &str) -> Self {
        self.issue_to(wanted, read_key(key))
    }

    fn issue_to(&self, wanted: &CertificateRequest, key: KeyPair) -> Self {
        let issuer = CertifiedIssuer::signed_by(wanted.params(), key, &self.issuer).expect("it can be signed");
        let above = if self.is_root { String::new() } else { self.identity().certificates };
        Self { issuer, above, is_root: false, subject: subject(wanted) }
    }

    /// Issues a certificate of version 1, without extensions, as `openssl x509 -req` makes it without
    /// `-extfile`. It names no host.
    ///
    /// # Panics
    /// If a name is not ASCII.
    #[must_use]
    pub fn issue_version_1(&self, wanted: &CertificateRequest) -> Identity {
        let whole = self.issue(wanted);
        let certificate = version_1::of(whole.issuer.der(), self.issuer.key());
        Identity { certificates: format!("{certificate}{}", whole.above), key: whole.identity().key }
    }

    /// Returns its own certificate, PEM.
    #[must_use]
    pub fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// Returns its certificates and its key.
    #[must_use]
    pub fn identity(&self) -> Identity {
        let certificates = format!("{}{}", self.certificate(), self.above);
        Identity { certificates, key: self.issuer.key().serialize_pem() }
    }

    /// Returns its distinguished name in mongod's notation of users: the most specific part first.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holder").field("subject", &self.subject).finish_non_exhaustive()
    }
}

fn subject(wanted: &CertificateRequest) -> String {
    format!("CN={},OU={},O={ORGANIZATION}", wanted.common_name, wanted.unit)
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key can be made")
}

fn read_key(pem: &str) -> KeyPair {
    KeyPair::from_pem(pem).expect("a private key in PKCS #8")
}

/// Certificates and the key of the first of them.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// PEM, the holder's certificate first, without the root.
    pub certificates: String,
    /// PEM, PKCS#8, not encrypted.
    pub key: String,
}

impl Identity {
    /// Returns certificates and key in one PEM text.
    #[must_use]
    pub fn pem(&self) -> String {
        format!("{}{}", self.certificates, self.key)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}
