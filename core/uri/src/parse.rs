//! Parsing of connection strings.
//!
//! Read first: Connection String, "Userinfo", "Auth Database", "Connection Options", "Repeated
//! Keys"; Initial DNS Seedlist Discovery, "Default Connection String Options".

use super::credential::{Credential, UserInfo, add_service_name};
use super::host::{Host, parse_hosts};
use super::options::{GSSAPI_SERVICE_NAME, Key, Keys, Named};
use super::value::Note;
use super::{ConnectionString, Scheme, Secret, UriError, UriErrorKind, UriOptions, UriWarning, check, text};
use alloc::string::String;
use alloc::vec::Vec;

/// Maximum number of warnings that are kept for a string.
const WARNINGS_MAX: usize = 100;
/// Maximum length of the name of an unknown option that is shown.
const NAME_MAX: usize = 64;

/// The options that are allowed in a TXT record.
const IN_TXT: [Key; 3] = [Key::AuthSource, Key::ReplicaSet, Key::LoadBalanced];

/// Parses a connection string.
pub(super) fn parse(uri: &str) -> Result<ConnectionString, UriError> {
    let (scheme, rest) = if let Some(rest) = uri.strip_prefix("mongodb://") {
        (Scheme::Mongodb, rest)
    } else if let Some(rest) = uri.strip_prefix("mongodb+srv://") {
        (Scheme::MongodbSrv, rest)
    } else {
        return Err(UriError::at(UriErrorKind::Scheme, 0));
    };
    let begin = uri.len() - rest.len();
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (Some(user_info(user, begin)?), hosts),
        None => (None, authority),
    };
    let hosts_begin = begin + end - hosts.len();
    let hosts = match scheme {
        Scheme::Mongodb => parse_hosts(hosts, hosts_begin),
        Scheme::MongodbSrv => Host::parse_srv(hosts, hosts_begin).map(|host| Vec::from([host])),
    };
    // If a slash in a password is not escaped, the list of hosts ends at it, and a part of the
    // password is parsed as a port.
    let is_password = !authority.is_empty() && ends_user_info(tail);
    let hosts = hosts.map_err(|error| if is_password { UriError::at(UriErrorKind::UserInfo, begin) } else { error })?;
    let (database, query) = match tail.split_once('?') {
        Some((database, query)) => (database, query),
        None => (tail, ""),
    };
    let database = match database.strip_prefix('/') {
        Some(name) => parse_database(name, begin + end + 1)?,
        None => None,
    };
    // An at-sign in the options may be the end of a password with an unescaped question mark.
    let mut parser = Parser { hides_names: query.contains('@'), ..Parser::default() };
    parser.query(query, uri.len() - query.len(), |_| true)?;
    check::presence(scheme, parser.seen)?;
    check::values(scheme, hosts.len(), &parser.options)?;
    let credential = Credential::derive(user, database.as_deref(), &parser.options, parser.broken_properties)?;
    let Parser { options, warnings, warnings_left_off, .. } = parser;
    Ok(ConnectionString { scheme, hosts, database, options, credential, warnings, warnings_left_off })
}

/// Parses the options of a TXT record, and adds those that the string itself does not contain.
pub(super) fn merge_txt(uri: &mut ConnectionString, txt: &str) -> Result<(), UriError> {
    let mut parser = Parser::default();
    parser.query(txt, 0, |named| matches!(named, Some(Named::Key(key)) if IN_TXT.contains(key)))?;
    let UriOptions { auth_source, replica_set, load_balanced, .. } = parser.options;
    let options = &mut uri.options;
    // Users of these mechanisms do not belong to a database, so the `authSource` of the record does
    // not apply.
    if !options.auth_mechanism.is_some_and(super::AuthMechanism::is_external) {
        options.auth_source = options.auth_source.take().or(auth_source);
    }
    options.replica_set = options.replica_set.take().or(replica_set);
    options.load_balanced = options.load_balanced.or(load_balanced);
    for warning in parser.warnings {
        keep(&mut uri.warnings, &mut uri.warnings_left_off, warning);
    }
    uri.warnings_left_off += parser.warnings_left_off;
    Ok(())
}

/// Whether the at-sign after username and password is in `tail`, the text after the hosts. If so, a
/// slash or a question mark before it was not escaped. An at-sign in the value of a known option
/// belongs to that value.
fn ends_user_info(tail: &str) -> bool {
    let Some((before, _)) = tail.split_once('@') else { return false };
    let option = before.rsplit_once(['?', '&', ';']).and_then(|(_, pair)| pair.split_once('='));
    option.is_none_or(|(name, _)| Named::find(name).is_none())
}

/// Parses `name` or `name:password`.
fn user_info(raw: &str, offset: usize) -> Result<UserInfo, UriError> {
    let (name, password) = match raw.split_once(':') {
        Some((name, password)) => (name, Some((password, offset + name.len() + 1))),
        None => (raw, None),
    };
    let is_bad = |byte: u8| byte < b' ' || byte == 0x7f || b"@:#[]".contains(&byte);
    if name.bytes().any(is_bad) || password.is_some_and(|(password, _)| password.bytes().any(is_bad)) {
        return Err(UriError::at(UriErrorKind::UserInfo, offset));
    }
    let username = String::clone(&*text::decode(name, offset)?);
    let password = match password {
        Some((password, offset)) => Some(Secret::from(text::decode(password, offset)?.as_str())),
        None => None,
    };
    Ok(UserInfo { username, password })
}

fn parse_database(raw: &str, offset: usize) -> Result<Option<String>, UriError> {
    let name = text::decode(raw, offset)?;
    // The at-sign is more likely the end of an unescaped password than a part of the database name.
    if raw.contains('@') {
        return Err(UriError::at(UriErrorKind::UserInfo, offset));
    }
    if name.contains(['/', '\\', ' ', '"', '$']) {
        return Err(UriError::at(UriErrorKind::Database, offset));
    }
    Ok(if name.is_empty() { None } else { Some(name.as_str().into()) })
}

fn keep(warnings: &mut Vec<UriWarning>, left_off: &mut usize, warning: UriWarning) {
    if warnings.len() < WARNINGS_MAX {
        warnings.push(warning);
    } else {
        *left_off += 1;
    }
}

/// The state of parsing a list of options.
#[derive(Default)]
struct Parser {
    options: UriOptions,
    /// The options present so far, whatever their values.
    seen: Keys,
    /// Options present by their old names only; their standard names would replace these values.
    by_old_name: Keys,
    /// Whether the properties of a mechanism are present but malformed.
    broken_properties: bool,
    /// Whether the names of unknown options are omitted from warnings, because they may be parts of
    /// a password.
    hides_names: bool,
    /// The value of `gssapiServiceName`, and its offset.
    service_name: Option<(String, usize)>,
    warnings: Vec<UriWarning>,
    warnings_left_off: usize,
}

impl Parser {
    /// Parses `name=value&name=value`, which begins at `offset`.
    fn query(&mut self, query: &str, offset: usize, is_allowed: fn(&Option<Named>) -> bool) -> Result<(), UriError> {
        // The old delimiter is used only if the standard one is absent.
        let delimiter = if query.contains('&') { '&' } else { ';' };
        let mut at = offset;
        for pair in query.split(delimiter) {
            let offset = at;
            at += pair.len() + 1;
            if pair.is_empty() {
                continue;
            }
            let Some((name, value)) = pair.split_once('=').filter(|(name, _)| !name.is_empty()) else {
                return Err(UriError::at(UriErrorKind::OptionSyntax, offset));
            };
            let named = Named::find(name);
            if !is_allowed(&named) {
                return Err(UriError::at(UriErrorKind::NotInTxt, offset));
            }
            let value = text::decode(value, offset + name.len() + 1).map_err(|error| match &named {
                Some(named) => error.with_option(named.name()),
                None => error,
            })?;
            match named {
                Some(Named::Key(key)) => self.option(key, &value, offset)?,
                Some(Named::Alias(key)) => self.value(key, &value, offset)?,
                Some(Named::Deprecated(name, key)) => self.old_option(name, key, &value, offset)?,
                Some(Named::GssapiServiceName) if value.is_empty() || value.contains(',') => {
                    let rule = "not be empty, and not contain a comma";
                    self.warn(UriWarning::Invalid { option: GSSAPI_SERVICE_NAME, rule, offset });
                }
                Some(Named::GssapiServiceName) => self.service_name = Some((value.as_str().into(), offset)),
                Some(Named::Retired(option, instead)) => self.warn(UriWarning::Retired { option, instead, offset }),
                // The at-sign is more likely the end of an unescaped password than a part of an
                // unknown option.
                None if pair.contains('@') => return Err(UriError::at(UriErrorKind::UserInfo, offset)),
                None => {
                    let is_plain = name.len() <= NAME_MAX && name.bytes().all(|byte| byte.is_ascii_graphic());
                    let similar = if is_plain { Named::similar(name) } else { None };
                    let name = (is_plain && !self.hides_names).then(|| name.into());
                    self.warn(UriWarning::Unknown { name, similar, offset });
                }
            }
        }
        self.finish();
        Ok(())
    }

    /// Handles an option by its standard name.
    fn option(&mut self, key: Key, value: &str, offset: usize) -> Result<(), UriError> {
        if self.by_old_name.contains(key) {
            self.by_old_name.remove(key);
            self.options.forget(key);
            self.warn(UriWarning::Deprecated {
                option: Named::old_name(key).unwrap_or(key.name()),
                instead: key.name(),
                ignored: true,
                offset,
            });
        } else if self.seen.contains(key) {
            if [Key::ProxyHost, Key::ProxyPort, Key::ProxyUsername, Key::ProxyPassword].contains(&key) {
                return Err(UriError::of(UriErrorKind::Repeated, key.name()).with_offset(offset));
            }
            if ![Key::ReadPreferenceTags, Key::Tls].contains(&key) {
                self.warn(UriWarning::Repeated { option: key.name(), offset });
            }
        }
        self.value(key, value, offset)
    }

    /// Handles an option by its old name.
    fn old_option(&mut self, name: &'static str, key: Key, value: &str, offset: usize) -> Result<(), UriError> {
        let ignored = self.seen.contains(key) && !self.by_old_name.contains(key);
        self.warn(UriWarning::Deprecated { option: name, instead: key.name(), ignored, offset });
        if ignored {
            return Ok(());
        }
        self.by_old_name.insert(key);
        self.value(key, value, offset)
    }

    fn value(&mut self, key: Key, value: &str, offset: usize) -> Result<(), UriError> {
        // The delimiter after a password may be an unescaped character of that password.
        self.hides_names |= key.is_secret();
        let before = self.options.tls;
        let mut note = Note::default();
        self.seen.insert(key);
        if let Err(rule) = self.options.read(key, value, &mut note) {
            return self.invalid(key, value, rule, offset);
        }
        // All values of `tls` and `ssl` must be equal.
        if key == Key::Tls && before.is_some_and(|before| Some(before) != self.options.tls) {
            return Err(
                UriError::of(UriErrorKind::Conflict("another value of tls or ssl"), key.name()).with_offset(offset)
            );
        }
        if note.legacy_bool {
            self.warn(UriWarning::DeprecatedBool { option: key.name(), offset });
        }
        if let Some(rule) = note.in_part {
            self.warn(UriWarning::Invalid { option: key.name(), rule, offset });
        }
        Ok(())
    }

    /// Handles a value that is not allowed. Most are ignored with a warning. It is an error if the
    /// client would continue with less protection than the string requests: without TLS, as another
    /// user, or with another write concern.
    fn invalid(&mut self, key: Key, value: &str, rule: &'static str, offset: usize) -> Result<(), UriError> {
        let is_protection = [Key::AuthMechanism, Key::AuthSource].contains(&key) || key.name().starts_with("tls");
        // Only a negative number begins with `-`: other texts are names of write concerns.
        if is_protection || (key == Key::W && value.starts_with('-')) {
            return Err(UriError::of(UriErrorKind::Value(rule), key.name()).with_offset(offset));
        }
        self.broken_properties |= key == Key::AuthMechanismProperties;
        self.warn(UriWarning::Invalid { option: key.name(), rule, offset });
        Ok(())
    }

    /// Performs the checks that need all options.
    fn finish(&mut self) {
        if self.options.auth_mechanism_properties.is_some() {
            self.broken_properties = false;
        }
        if let Some((name, offset)) = self.service_name.take() {
            let ignored = !add_service_name(&mut self.options, &name);
            let instead = "authMechanismProperties=SERVICE_NAME";
            self.warn(UriWarning::Deprecated { option: GSSAPI_SERVICE_NAME, instead, ignored, offset });
        }
    }

    fn warn(&mut self, warning: UriWarning) {
        keep(&mut self.warnings, &mut self.warnings_left_off, warning);
    }
}
