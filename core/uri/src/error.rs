//! Errors and warnings of connection strings.

use alloc::string::String;
use core::fmt;

/// A connection string that cannot be used.
///
/// Contains the rule, and the option or the offset if there is one; no part of the string.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct UriError {
    kind: UriErrorKind,
    option: Option<&'static str>,
    offset: Option<usize>,
}

impl UriError {
    pub(super) const fn new(kind: UriErrorKind) -> Self {
        Self { kind, option: None, offset: None }
    }

    pub(super) const fn at(kind: UriErrorKind, offset: usize) -> Self {
        Self { kind, option: None, offset: Some(offset) }
    }

    pub(super) const fn of(kind: UriErrorKind, option: &'static str) -> Self {
        Self { kind, option: Some(option), offset: None }
    }

    pub(super) const fn with_offset(self, offset: usize) -> Self {
        Self { offset: Some(offset), ..self }
    }

    pub(super) const fn with_option(self, option: &'static str) -> Self {
        Self { option: Some(option), ..self }
    }

    /// The violated rule.
    #[must_use]
    pub const fn kind(&self) -> UriErrorKind {
        self.kind
    }

    /// The standard name of the option concerned.
    #[must_use]
    pub const fn option(&self) -> Option<&'static str> {
        self.option
    }

    /// The offset in the string of the first byte of the invalid part.
    #[must_use]
    pub const fn offset(&self) -> Option<usize> {
        self.offset
    }
}

/// The rule that a connection string violates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UriErrorKind {
    /// It begins neither with `mongodb://` nor with `mongodb+srv://`.
    Scheme,
    /// The username or the password has a character that must be percent-encoded. This is also
    /// assumed for an at-sign in the path or in an unknown option.
    UserInfo,
    /// A percent sign without two hexadecimal digits after it.
    Escape,
    /// The percent-encoded bytes are not UTF-8, or contain a NUL.
    Text,
    /// There is no host, or an empty one between two commas.
    NoHost,
    /// Not a host name, an address or a path.
    Host,
    /// Not a port from 1 to 65535.
    Port,
    /// An IPv6 address without brackets: its end cannot be distinguished from a port.
    Ipv6Brackets,
    /// The path of a unix socket does not end in `.sock`, or has a port.
    Socket,
    /// `mongodb+srv://` requires exactly one host name, and no port.
    SrvHost,
    /// The database has a character that database names cannot have.
    Database,
    /// An option without `=`, or without a name.
    OptionSyntax,
    /// The option may be set only once.
    Repeated,
    /// The value of the option is not allowed, and ignoring it would be unsafe; the rule follows
    /// "must".
    Value(&'static str),
    /// The option cannot be set together with this other one.
    Conflict(&'static str),
    /// The option requires this other one.
    Needs(&'static str),
    /// The option must not be true, or not be set, with more than one host.
    ManyHosts,
    /// The option is allowed with `mongodb+srv://` only.
    NotSrv,
    /// The option is not allowed with `mongodb+srv://`.
    Srv,
    /// The option is not allowed in a TXT record.
    NotInTxt,
    /// The credential is not valid for its mechanism; the rule follows "must".
    Credential {
        /// The mechanism; `the default mechanism` if none is named.
        mechanism: &'static str,
        /// A phrase that follows "must".
        rule: &'static str,
    },
}

impl fmt::Display for UriError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(option) = self.option {
            write!(f, "{option}: ")?;
        }
        match self.kind {
            UriErrorKind::Scheme => f.write_str("a connection string must begin with mongodb:// or mongodb+srv://")?,
            UriErrorKind::UserInfo => f.write_str("username and password must be percent-encoded")?,
            UriErrorKind::Escape => f.write_str("a percent sign must be percent-encoded (%25)")?,
            UriErrorKind::Text => f.write_str("percent-encoded bytes must be UTF-8 without NUL")?,
            UriErrorKind::NoHost => {
                f.write_str("a host is missing; the path of a unix socket must be percent-encoded")?
            }
            UriErrorKind::Host => f.write_str("neither a host name, an address nor the path of a unix socket")?,
            UriErrorKind::Port => f.write_str("a port must be a number from 1 to 65535")?,
            UriErrorKind::Ipv6Brackets => f.write_str("an IPv6 address must be enclosed in [ and ]")?,
            UriErrorKind::Socket => f.write_str("the path of a unix socket must end in .sock, and has no port")?,
            UriErrorKind::SrvHost => f.write_str("mongodb+srv:// must have one host name, and no port")?,
            UriErrorKind::Database => f.write_str("a database name must not contain this character")?,
            UriErrorKind::OptionSyntax => f.write_str("an option must have the form name=value")?,
            UriErrorKind::Repeated => f.write_str("must be set once only")?,
            UriErrorKind::Value(rule) => write!(f, "must {rule}")?,
            UriErrorKind::Conflict(other) => write!(f, "cannot be set together with {other}")?,
            UriErrorKind::Needs(other) => write!(f, "requires {other}")?,
            UriErrorKind::ManyHosts => f.write_str("cannot be used with more than one host")?,
            UriErrorKind::NotSrv => f.write_str("is allowed with mongodb+srv:// only")?,
            UriErrorKind::Srv => f.write_str("cannot be used with mongodb+srv://")?,
            UriErrorKind::NotInTxt => {
                f.write_str("only authSource, replicaSet and loadBalanced are allowed in a TXT record")?
            }
            UriErrorKind::Credential { mechanism, rule } => write!(f, "a credential for {mechanism} must {rule}")?,
        }
        match self.offset {
            Some(offset) => write!(f, " (at byte {offset})"),
            None => Ok(()),
        }
    }
}

poolhouse_wire::debug_as_display!(UriError);

impl core::error::Error for UriError {}

/// A part of a connection string that was ignored, or that is deprecated. For the log.
///
/// Contains the option's standard name and the offset of its name in the string; no value. For an
/// unknown option it contains the name in the string, unless that may be a part of a password that
/// was not escaped: after an option with a password, or if any option contains an at-sign. If the
/// name is probably misspelled, `Display` suggests a known option, such as
/// `maxPoolSzie: unknown option, ignored; did you mean maxPoolSize? (at byte 13)`. `{:#}` does not
/// say that a part was ignored, for a program that refuses such a string.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UriWarning {
    /// The option is unknown and was ignored.
    Unknown {
        /// Its name, if it is at most 64 bytes of plain text and cannot be a part of a password.
        name: Option<String>,
        /// The known option that it resembles.
        similar: Option<&'static str>,
        /// The offset in the string.
        offset: usize,
    },
    /// The value is not allowed and was ignored.
    Invalid {
        /// The option.
        option: &'static str,
        /// A phrase that follows "must".
        rule: &'static str,
        /// The offset in the string.
        offset: usize,
    },
    /// The option is repeated; the last value is used.
    Repeated {
        /// The option.
        option: &'static str,
        /// The offset in the string.
        offset: usize,
    },
    /// The option was renamed. Its value is used unless the new name is present too.
    Deprecated {
        /// The old name.
        option: &'static str,
        /// The new name.
        instead: &'static str,
        /// Whether it was ignored because the new name is present too.
        ignored: bool,
        /// The offset in the string.
        offset: usize,
    },
    /// A deprecated spelling of `true` or `false`. The value is used.
    DeprecatedBool {
        /// The option.
        option: &'static str,
        /// The offset in the string.
        offset: usize,
    },
    /// A part of the value requires a feature that this build does not have, and was ignored.
    NotBuilt {
        /// The option.
        option: &'static str,
        /// The feature.
        feature: &'static str,
        /// The offset in the string.
        offset: usize,
    },
    /// The option was removed and is ignored.
    Retired {
        /// The option.
        option: &'static str,
        /// The alternative: a phrase that follows "instead,".
        instead: &'static str,
        /// The offset in the string.
        offset: usize,
    },
}

impl UriWarning {
    /// The offset in the string.
    #[must_use]
    pub const fn offset(&self) -> usize {
        match self {
            Self::Unknown { offset, .. }
            | Self::Invalid { offset, .. }
            | Self::Repeated { offset, .. }
            | Self::Deprecated { offset, .. }
            | Self::DeprecatedBool { offset, .. }
            | Self::NotBuilt { offset, .. }
            | Self::Retired { offset, .. } => *offset,
        }
    }

    /// Whether the string probably does not mean what its author wants: a value is not allowed, or
    /// an unknown option resembles a known one.
    #[must_use]
    pub const fn is_mistake(&self) -> bool {
        match self {
            Self::Unknown { similar, .. } => similar.is_some(),
            Self::Invalid { .. } => true,
            Self::Repeated { .. }
            | Self::Deprecated { .. }
            | Self::DeprecatedBool { .. }
            | Self::NotBuilt { .. }
            | Self::Retired { .. } => false,
        }
    }

    /// The option's name. `None` for an unknown option with a name that may be a part of a
    /// password.
    #[must_use]
    pub fn option(&self) -> Option<&str> {
        match self {
            Self::Unknown { name, .. } => name.as_deref(),
            Self::Invalid { option, .. }
            | Self::Repeated { option, .. }
            | Self::Deprecated { option, .. }
            | Self::DeprecatedBool { option, .. }
            | Self::NotBuilt { option, .. }
            | Self::Retired { option, .. } => Some(option),
        }
    }
}

impl fmt::Display for UriWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_short = f.alternate();
        let ignored = |text| if is_short { "" } else { text };
        match self {
            Self::Unknown { name, similar, .. } => {
                if let Some(name) = name {
                    write!(f, "{name}: ")?;
                }
                write!(f, "unknown option{}", ignored(", ignored"))?;
                if let (Some(_), Some(similar)) = (name, similar) {
                    write!(f, "; did you mean {similar}?")?;
                }
            }
            Self::Invalid { option, rule, .. } => write!(f, "{option}: must {rule}{}", ignored("; ignored"))?,
            Self::Repeated { option, .. } => write!(f, "{option}: set more than once; the last value is used")?,
            Self::Deprecated { option, instead, ignored: false, .. } => {
                write!(f, "{option}: deprecated; use {instead}")?
            }
            Self::Deprecated { option, instead, ignored: true, .. } => {
                write!(f, "{option}: deprecated, and ignored because {instead} is set")?;
            }
            Self::DeprecatedBool { option, .. } => write!(f, "{option}: should be true or false")?,
            Self::NotBuilt { option, feature, .. } => {
                write!(f, "{option}: partly ignored, because this build lacks the feature {feature}")?;
            }
            Self::Retired { option, instead, .. } => write!(f, "{option}: removed, ignored; instead, {instead}")?,
        }
        write!(f, " (at byte {})", self.offset())
    }
}
