//! Credentials of a connection string.
//!
//! Read first: Driver Authentication, "MongoCredential", its "Properties" for each mechanism, and
//! "Auth Related Options".

use super::value::{Note, Rule};
use super::{Pairs, Secret, UriError, UriErrorKind, UriOptions};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// The source of users that do not belong to a database.
const EXTERNAL: &str = "$external";
/// The default source of users.
const ADMIN: &str = "admin";

const SERVICE_NAME: &str = "SERVICE_NAME";
const CANONICALIZE_HOST_NAME: &str = "CANONICALIZE_HOST_NAME";
const ENVIRONMENT: &str = "ENVIRONMENT";
const TOKEN_RESOURCE: &str = "TOKEN_RESOURCE";
/// The names of all properties that some mechanism uses.
pub(super) const PROPERTIES: [&str; 8] = [
    SERVICE_NAME,
    "SERVICE_REALM",
    "SERVICE_HOST",
    CANONICALIZE_HOST_NAME,
    ENVIRONMENT,
    TOKEN_RESOURCE,
    "AWS_SESSION_TOKEN",
    "ALLOWED_HOSTS",
];

/// An authentication mechanism.
///
/// A connection string may name any of them, but a client may not support it: it rejects mechanisms
/// that it does not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AuthMechanism {
    /// `GSSAPI`: Kerberos.
    Gssapi,
    /// `MONGODB-AWS`; its credentials are never part of a connection string.
    MongodbAws,
    /// `MONGODB-OIDC`.
    MongodbOidc,
    /// `MONGODB-X509`: authentication by the client's certificate.
    MongodbX509,
    /// `PLAIN`: the password is sent in plain text.
    Plain,
    /// `SCRAM-SHA-1`.
    ScramSha1,
    /// `SCRAM-SHA-256`.
    ScramSha256,
}

impl AuthMechanism {
    /// Every mechanism.
    pub const ALL: [Self; 7] = [
        Self::Gssapi,
        Self::MongodbAws,
        Self::MongodbOidc,
        Self::MongodbX509,
        Self::Plain,
        Self::ScramSha1,
        Self::ScramSha256,
    ];

    /// Its name in connection strings and commands.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gssapi => "GSSAPI",
            Self::MongodbAws => "MONGODB-AWS",
            Self::MongodbOidc => "MONGODB-OIDC",
            Self::MongodbX509 => "MONGODB-X509",
            Self::Plain => "PLAIN",
            Self::ScramSha1 => "SCRAM-SHA-1",
            Self::ScramSha256 => "SCRAM-SHA-256",
        }
    }

    /// Whether its users do not belong to a database.
    pub(super) const fn is_external(self) -> bool {
        match self {
            Self::Gssapi | Self::MongodbAws | Self::MongodbOidc | Self::MongodbX509 => true,
            Self::Plain | Self::ScramSha1 | Self::ScramSha256 => false,
        }
    }

    pub(super) fn read(text: &str, _note: &mut Note) -> Result<Self, Rule> {
        let rule = "be GSSAPI, MONGODB-AWS, MONGODB-OIDC, MONGODB-X509, PLAIN, SCRAM-SHA-1 or SCRAM-SHA-256";
        Self::ALL.into_iter().find(|mechanism| mechanism.name() == text).ok_or(rule)
    }

    /// The names of the properties that it accepts.
    const fn properties(self) -> &'static [&'static str] {
        match self {
            Self::Gssapi => &[SERVICE_NAME, "SERVICE_REALM", "SERVICE_HOST", CANONICALIZE_HOST_NAME],
            Self::MongodbOidc => &[ENVIRONMENT, TOKEN_RESOURCE],
            Self::MongodbAws | Self::MongodbX509 | Self::Plain | Self::ScramSha1 | Self::ScramSha256 => &[],
        }
    }
}

impl fmt::Display for AuthMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The credential of a connection string. `Debug` does not show the password.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Credential {
    /// The user name; never empty. `None` only for X.509, AWS and OIDC.
    pub username: Option<String>,
    /// The password; empty if the string contains an empty one. If no mechanism is named, it may be
    /// absent although the negotiated one needs it.
    pub password: Option<Secret>,
    /// The database of the user: `authSource`, otherwise the database of the string, otherwise the
    /// default of the mechanism.
    pub source: String,
    /// The mechanism. `None` means that it is negotiated: SCRAM-SHA-256, otherwise SCRAM-SHA-1.
    pub mechanism: Option<AuthMechanism>,
    /// `authMechanismProperties`, with the defaults of the mechanism.
    pub properties: Pairs,
}

/// The user name and password before the at-sign.
#[derive(Clone)]
pub(super) struct UserInfo {
    pub(super) username: String,
    pub(super) password: Option<Secret>,
}

impl Credential {
    /// Derives the credential from a connection string's parts; `None` if the string requests no
    /// authentication.
    ///
    /// `broken`: properties are present but could not be parsed; then missing properties are not an
    /// error.
    ///
    /// Source: Driver Authentication, "Credential delimiter in URI implies authentication",
    /// "Errors".
    pub(super) fn derive(
        user: Option<UserInfo>,
        database: Option<&str>,
        options: &UriOptions,
        broken: bool,
    ) -> Result<Option<Self>, UriError> {
        let mechanism = options.auth_mechanism;
        let properties = options.auth_mechanism_properties.clone().unwrap_or_default();
        if mechanism.is_none() && !properties.is_empty() {
            return Err(UriError::of(UriErrorKind::Needs("authMechanism"), "authMechanismProperties"));
        }
        if mechanism.is_none() && user.is_none() {
            return Ok(None);
        }
        // The name may be a namespace; the database is the part before the first dot.
        let database = database.and_then(|name| name.split('.').next()).filter(|name| !name.is_empty());
        let source = match (&options.auth_source, mechanism) {
            (Some(source), _) => source.as_str(),
            (None, Some(mechanism)) if mechanism.is_external() => EXTERNAL,
            (None, Some(AuthMechanism::Plain)) => database.unwrap_or(EXTERNAL),
            (None, _) => database.unwrap_or(ADMIN),
        };
        let (username, password) = match user {
            Some(user) => (Some(user.username).filter(|name| !name.is_empty()), user.password),
            None => (None, None),
        };
        let mut credential = Self { username, password, source: source.into(), mechanism, properties };
        match credential.broken_rule(broken) {
            Some(rule) => {
                let mechanism = mechanism.map_or("the default mechanism", AuthMechanism::name);
                Err(UriError::new(UriErrorKind::Credential { mechanism, rule }))
            }
            None => {
                if mechanism == Some(AuthMechanism::Gssapi) && credential.properties.get(SERVICE_NAME).is_none() {
                    credential.properties.0.push((SERVICE_NAME.into(), "mongodb".into()));
                }
                Ok(Some(credential))
            }
        }
    }

    /// Whether required properties are missing, which is accepted only if the list of properties
    /// could not be parsed.
    pub(super) fn lacks_properties(&self) -> bool {
        self.mechanism == Some(AuthMechanism::MongodbOidc) && self.properties.is_empty()
    }

    /// Returns the user name and password before the at-sign.
    pub(super) fn user(&self) -> Option<UserInfo> {
        let password = self.password.clone();
        self.username.clone().map(|username| UserInfo { username, password })
    }

    /// The first rule that the credential violates: a phrase that follows "must".
    fn broken_rule(&self, broken: bool) -> Option<Rule> {
        let Some(mechanism) = self.mechanism else {
            return self.username.is_none().then_some("have a username");
        };
        let known = mechanism.properties();
        if self.properties.iter().any(|(name, _)| !known.contains(&name)) {
            return Some(match mechanism {
                AuthMechanism::Gssapi => {
                    "have no other properties than SERVICE_NAME, SERVICE_REALM, SERVICE_HOST and CANONICALIZE_HOST_NAME"
                }
                AuthMechanism::MongodbOidc => "have no other properties than ENVIRONMENT and TOKEN_RESOURCE",
                AuthMechanism::MongodbAws
                | AuthMechanism::MongodbX509
                | AuthMechanism::Plain
                | AuthMechanism::ScramSha1
                | AuthMechanism::ScramSha256 => "have no properties",
            });
        }
        if mechanism.is_external() && self.source != EXTERNAL {
            return Some("have the authSource $external");
        }
        match mechanism {
            AuthMechanism::Plain | AuthMechanism::ScramSha1 | AuthMechanism::ScramSha256 => {
                let is_whole = self.username.is_some() && self.password.is_some();
                (!is_whole).then_some("have a username and a password")
            }
            AuthMechanism::Gssapi => self.broken_gssapi_rule(),
            AuthMechanism::MongodbX509 => self.password.is_some().then_some("have no password"),
            AuthMechanism::MongodbAws => {
                let is_present = self.username.is_some() || self.password.is_some();
                is_present.then_some("have no username and password: AWS credentials are read from the environment")
            }
            AuthMechanism::MongodbOidc => self.broken_oidc_rule(broken),
        }
    }

    fn broken_gssapi_rule(&self) -> Option<Rule> {
        if self.username.is_none() {
            return Some("have a username");
        }
        match self.properties.get(CANONICALIZE_HOST_NAME) {
            None | Some("none" | "forward" | "forwardAndReverse" | "true" | "false") => None,
            Some(_) => Some("have none, forward or forwardAndReverse as its CANONICALIZE_HOST_NAME"),
        }
    }

    fn broken_oidc_rule(&self, broken: bool) -> Option<Rule> {
        if self.password.is_some() {
            return Some("have no password");
        }
        if broken {
            return None;
        }
        match self.properties.get(ENVIRONMENT) {
            Some("test") if self.username.is_some() => Some("have no username in the ENVIRONMENT test"),
            Some("test" | "k8s") => None,
            Some("azure" | "gcp") => {
                let lacks_resource = self.properties.get(TOKEN_RESOURCE).is_none_or(str::is_empty);
                lacks_resource.then_some("have a TOKEN_RESOURCE in this ENVIRONMENT")
            }
            _ => Some("have test, azure, gcp or k8s as its ENVIRONMENT"),
        }
    }
}

/// Adds the property `SERVICE_NAME` from the old option `gssapiServiceName`, unless it is present;
/// returns whether it was added.
pub(super) fn add_service_name(options: &mut UriOptions, name: &str) -> bool {
    let properties: &mut Vec<_> = &mut options.auth_mechanism_properties.get_or_insert_default().0;
    if properties.iter().any(|(known, _)| known == SERVICE_NAME) {
        return false;
    }
    properties.push((SERVICE_NAME.into(), name.into()));
    true
}

/// Converts the credential of a connection string.
#[cfg(feature = "auth")]
impl TryFrom<&Credential> for poolhouse_auth::OwnedCredential {
    type Error = poolhouse_auth::AuthError;

    /// # Errors
    ///
    /// [`AuthError::MechanismUnsupported`](poolhouse_auth::AuthError::MechanismUnsupported), and those of
    /// [`Credential::check`](poolhouse_auth::Credential::check).
    fn try_from(uri: &Credential) -> Result<Self, Self::Error> {
        let known = |mechanism: AuthMechanism| {
            let name = mechanism.name();
            poolhouse_auth::Mechanism::from_name(name).ok_or(Self::Error::MechanismUnsupported { name })
        };
        let credential = poolhouse_auth::Credential {
            username: uri.username.as_deref(),
            password: uri.password.as_ref().map(Secret::expose),
            source: Some(&uri.source),
            mechanism: uri.mechanism.map(known).transpose()?,
        };
        credential.check()?;
        Ok(Self::from(credential))
    }
}
