//! Formatting of connection strings.

use super::options::Key;
use super::{ConnectionString, OptionValue, Scheme, Secret, text};
use core::fmt;
use core::fmt::Write;
use percent_encoding::utf8_percent_encode;

/// The options that are removed together with a credential.
const SECRETIVE: [Key; 6] = [
    Key::AuthMechanism,
    Key::AuthMechanismProperties,
    Key::AuthSource,
    Key::ProxyPassword,
    Key::ProxyUsername,
    Key::TlsCertificateKeyFilePassword,
];

impl ConnectionString {
    /// Removes all credentials: username, passwords, and the options that begin with `auth`; also
    /// those of the proxy.
    ///
    /// The result causes no authentication, and is the text that `Display` prints.
    #[must_use]
    pub fn without_credentials(&self) -> Self {
        let mut bare = self.clone();
        for key in SECRETIVE {
            bare.options.forget(key);
        }
        bare.credential = None;
        bare
    }

    /// The whole string, including username and passwords. Parsing it returns an equal value.
    ///
    /// `Display` prints the string without them.
    #[must_use]
    pub fn to_string_with_credentials(&self) -> Secret {
        Secret::written(|f| self.print(f))
    }

    /// Writes all parts.
    pub(super) fn print(&self, f: &mut dyn Write) -> fmt::Result {
        f.write_str(match self.scheme {
            Scheme::Mongodb => "mongodb://",
            Scheme::MongodbSrv => "mongodb+srv://",
        })?;
        if let Some(user) = self.credential.as_ref().and_then(super::Credential::user) {
            write!(f, "{}", utf8_percent_encode(&user.username, text::COMPONENT))?;
            if let Some(password) = &user.password {
                write!(f, ":{}", utf8_percent_encode(password.expose(), text::COMPONENT))?;
            }
            f.write_str("@")?;
        }
        for (place, host) in self.hosts.iter().enumerate() {
            if place > 0 {
                f.write_str(",")?;
            }
            host.print(f)?;
        }
        f.write_str("/")?;
        if let Some(database) = &self.database {
            write!(f, "{}", utf8_percent_encode(database, text::COMPONENT))?;
        }
        let mut separator = '?';
        for (name, value) in self.options.iter() {
            print_option(f, &mut separator, name, value)?;
        }
        // Malformed properties are written too, because the string would be invalid without them.
        if self.credential.as_ref().is_some_and(super::Credential::lacks_properties) {
            write!(f, "{separator}{}=", Key::AuthMechanismProperties.name())?;
        }
        Ok(())
    }
}

/// Without credentials: see [`ConnectionString::without_credentials`].
impl fmt::Display for ConnectionString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.without_credentials().print(f)
    }
}

fn print_option(f: &mut dyn Write, separator: &mut char, name: &str, value: OptionValue<'_>) -> fmt::Result {
    if let OptionValue::TagSets(sets) = value {
        for set in sets {
            print_option(f, separator, name, OptionValue::Pairs(set))?;
        }
        return Ok(());
    }
    write!(f, "{separator}{name}=")?;
    *separator = '&';
    match value {
        OptionValue::Bool(value) => write!(f, "{value}"),
        OptionValue::Number(number) => write!(f, "{number}"),
        OptionValue::Text(value) => write!(f, "{}", utf8_percent_encode(value, text::VALUE)),
        OptionValue::Secret(secret) => write!(f, "{}", utf8_percent_encode(secret.expose(), text::VALUE)),
        OptionValue::Compressors(list) => {
            for (place, compressor) in list.iter().enumerate() {
                write!(f, "{}{}", if place > 0 { "," } else { "" }, compressor.name())?;
            }
            Ok(())
        }
        OptionValue::Pairs(pairs) => {
            for (place, (name, value)) in pairs.iter().enumerate() {
                let comma = if place > 0 { "," } else { "" };
                let (name, value) = (utf8_percent_encode(name, text::VALUE), utf8_percent_encode(value, text::VALUE));
                write!(f, "{comma}{name}:{value}")?;
            }
            Ok(())
        }
        OptionValue::TagSets(_) => Ok(()),
    }
}
