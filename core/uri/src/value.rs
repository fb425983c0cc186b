//! The values of options: types, parsing and formatting.
//!
//! Read first: Connection String, "Values"; URI Options, "List of specified options".

use super::{AuthMechanism, Compressor, Secret};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use poolhouse_core::monitor::ServerMonitoringMode;
use poolhouse_core::selection::ReadMode;

/// Maximum number of pairs in a value.
const PAIRS_MAX: usize = 100;
/// Maximum length of an application name, in bytes.
const APP_NAME_MAX: usize = 128;
/// Maximum length of a service name, in bytes: with an underscore it is a label of a DNS name.
const SERVICE_NAME_MAX: usize = 62;

/// Names with values, in the order given; names are unique.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pairs(pub(super) Vec<(String, String)>);

impl Pairs {
    /// The value of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|pair| pair.0 == name).map(|pair| pair.1)
    }

    /// All names with their values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether there are no pairs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// `w` of a write concern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum W {
    /// The number of members.
    Nodes(u32),
    /// `majority`, or a name that the deployment defines.
    Name(String),
}

/// The value of an option of any type, as returned by
/// [`UriOptions::iter`](super::UriOptions::iter).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionValue<'a> {
    /// `true` or `false`.
    Bool(bool),
    /// A number; durations have the unit given in the option's name.
    Number(i64),
    /// A text.
    Text(&'a str),
    /// A password.
    Secret(&'a Secret),
    /// A list of compressors.
    Compressors(&'a [Compressor]),
    /// Names and values.
    Pairs(&'a Pairs),
    /// A list of tag sets.
    TagSets(&'a [Pairs]),
}

/// The rule for a value: a phrase that follows "must".
pub(super) type Rule = &'static str;

/// Remarks about a value that is accepted.
#[derive(Default)]
pub(super) struct Note {
    /// The boolean has an old spelling.
    pub(super) legacy_bool: bool,
    /// The rule that a part of the value violates. That part is ignored.
    pub(super) in_part: Option<Rule>,
}

/// The type of an option's value.
pub(super) trait Value: Sized {
    /// Whether values must not be shown.
    const IS_SECRET: bool = false;

    fn view(&self) -> OptionValue<'_>;

    /// Stores a value of an option that may already have one.
    fn replace(slot: &mut Option<Self>, value: Self) {
        *slot = Some(value);
    }
}

impl Value for bool {
    fn view(&self) -> OptionValue<'_> {
        OptionValue::Bool(*self)
    }
}

impl Value for u16 {
    fn view(&self) -> OptionValue<'_> {
        OptionValue::Number((*self).into())
    }
}

impl Value for u32 {
    fn view(&self) -> OptionValue<'_> {
        OptionValue::Number((*self).into())
    }
}

impl Value for i32 {
    fn view(&self) -> OptionValue<'_> {
        OptionValue::Number((*self).into())
    }
}

impl Value for Duration {
    fn view(&self) -> OptionValue<'_> {
        OptionValue::Number(i64::try_from(self.as_millis()).unwrap_or(i64::MAX))
    }
}

impl Value for String {
    fn view(&self) -> OptionValue<'_> {
        OptionValue::Text(self)
    }
}

impl Value for Secret {
    const IS_SECRET: bool = true;

    fn view(&self) -> OptionValue<'_> {
        OptionValue::Secret(self)
    }
}

impl Value for Pairs {
    fn view(&self) -> OptionValue<'_> {
        OptionValue::Pairs(self)
    }
}

impl Value for Vec<Pairs> {
    fn view(&self) -> OptionValue<'_> {
        OptionValue::TagSets(self)
    }

    /// A repeated option adds to the list.
    fn replace(slot: &mut Option<Self>, value: Self) {
        slot.get_or_insert_default().extend(value);
    }
}

impl Value for Vec<Compressor> {
    fn view(&self) -> OptionValue<'_> {
        OptionValue::Compressors(self)
    }
}

impl Value for W {
    fn view(&self) -> OptionValue<'_> {
        match self {
            Self::Nodes(count) => OptionValue::Number((*count).into()),
            Self::Name(name) => OptionValue::Text(name),
        }
    }
}

impl Value for ReadMode {
    fn view(&self) -> OptionValue<'_> {
        OptionValue::Text(self.name())
    }
}

impl Value for ServerMonitoringMode {
    fn view(&self) -> OptionValue<'_> {
        OptionValue::Text(self.name())
    }
}

impl Value for AuthMechanism {
    fn view(&self) -> OptionValue<'_> {
        OptionValue::Text(self.name())
    }
}

/// Parses `true`, `false`, or one of their deprecated spellings.
pub(super) fn boolean(text: &str, note: &mut Note) -> Result<bool, Rule> {
    strict_boolean(text, note).or_else(|rule| {
        note.legacy_bool = true;
        let is_one_of = |spellings: &[&str]| spellings.iter().any(|spelling| spelling.eq_ignore_ascii_case(text));
        if is_one_of(&["true", "1", "yes", "y", "t"]) {
            Ok(true)
        } else if is_one_of(&["false", "0", "-1", "no", "n", "f"]) {
            Ok(false)
        } else {
            Err(rule)
        }
    })
}

pub(super) fn strict_boolean(text: &str, _note: &mut Note) -> Result<bool, Rule> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("be true or false"),
    }
}

/// Parses a number within `i32`, the range of all numbers in connection strings.
pub(super) fn number(text: &str, _note: &mut Note) -> Result<u32, Rule> {
    Ok(digits(text, i32::MAX.unsigned_abs().into()).ok_or("be a number from 0 to 2147483647")?.0)
}

pub(super) fn positive(text: &str, note: &mut Note) -> Result<u32, Rule> {
    number(text, note).ok().filter(|number| *number > 0).ok_or("be a number from 1 to 2147483647")
}

pub(super) fn millis(text: &str, note: &mut Note) -> Result<Duration, Rule> {
    Ok(Duration::from_millis(number(text, note)?.into()))
}

pub(super) fn positive_millis(text: &str, note: &mut Note) -> Result<Duration, Rule> {
    Ok(Duration::from_millis(positive(text, note)?.into()))
}

pub(super) fn long_millis(text: &str, _note: &mut Note) -> Result<Duration, Rule> {
    let (_, millis) = digits(text, i64::MAX.unsigned_abs()).ok_or("be a number from 0 to 9223372036854775807")?;
    Ok(Duration::from_millis(millis))
}

pub(super) fn heartbeat_frequency(text: &str, note: &mut Note) -> Result<Duration, Rule> {
    let frequency =
        millis(text, note).ok().filter(|frequency| *frequency >= poolhouse_core::monitor::MIN_HEARTBEAT_FREQUENCY);
    frequency.ok_or("be a number from 500 to 2147483647")
}

pub(super) fn max_staleness(text: &str, note: &mut Note) -> Result<i32, Rule> {
    if text == "-1" {
        return Ok(-1);
    }
    let seconds = number(text, note).ok().and_then(|seconds| i32::try_from(seconds).ok());
    seconds.filter(|seconds| *seconds >= 90).ok_or("be -1 or a number from 90 to 2147483647")
}

pub(super) fn zlib_level(text: &str, note: &mut Note) -> Result<i32, Rule> {
    if text == "-1" {
        return Ok(-1);
    }
    let level = number(text, note).ok().and_then(|level| i32::try_from(level).ok());
    level.filter(|level| *level <= 9).ok_or("be a number from -1 to 9")
}

pub(super) fn port(text: &str, note: &mut Note) -> Result<u16, Rule> {
    let port = number(text, note).ok().and_then(|port| u16::try_from(port).ok());
    port.filter(|port| *port > 0).ok_or("be a number from 1 to 65535")
}

pub(super) fn text(text: &str, _note: &mut Note) -> Result<String, Rule> {
    if text.is_empty() { Err("not be empty") } else { Ok(text.into()) }
}

pub(super) fn secret(text: &str, _note: &mut Note) -> Result<Secret, Rule> {
    if text.is_empty() { Err("not be empty") } else { Ok(text.into()) }
}

pub(super) fn app_name(text: &str, _note: &mut Note) -> Result<String, Rule> {
    if (1..=APP_NAME_MAX).contains(&text.len()) { Ok(text.into()) } else { Err("be 1 to 128 bytes long") }
}

/// Parses a service name according to RFC 6335, but with a larger maximum length.
pub(super) fn service_name(text: &str, _note: &mut Note) -> Result<String, Rule> {
    let is_fit = text.len() <= SERVICE_NAME_MAX
        && text.bytes().any(|byte| byte.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
        && !text.contains("--");
    if is_fit { Ok(text.into()) } else { Err("be a service name: letters, digits and single hyphens, 62 at most") }
}

pub(super) fn w(text: &str, note: &mut Note) -> Result<W, Rule> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    if text.is_empty() || (!unsigned.is_empty() && unsigned.bytes().all(|byte| byte.is_ascii_digit())) {
        return number(text, note).map(W::Nodes).map_err(|_| "be a number from 0 to 2147483647, or a name");
    }
    Ok(W::Name(text.into()))
}

pub(super) fn compressors(text: &str, note: &mut Note) -> Result<Vec<Compressor>, Rule> {
    const RULE: Rule = "name snappy, zlib or zstd";
    let mut list = Vec::new();
    for name in text.split(',') {
        match Compressor::ALL.into_iter().find(|compressor| compressor.name() == name) {
            Some(compressor) if list.contains(&compressor) => {}
            Some(compressor) => list.push(compressor),
            None => note.in_part = Some(RULE),
        }
    }
    if list.is_empty() { Err(RULE) } else { Ok(list) }
}

pub(super) fn read_mode(text: &str, _note: &mut Note) -> Result<ReadMode, Rule> {
    ReadMode::from_name(text).ok_or("be primary, primaryPreferred, secondary, secondaryPreferred or nearest")
}

pub(super) fn monitoring_mode(text: &str, _note: &mut Note) -> Result<ServerMonitoringMode, Rule> {
    let modes = [ServerMonitoringMode::Auto, ServerMonitoringMode::Stream, ServerMonitoringMode::Poll];
    modes.into_iter().find(|mode| mode.name() == text).ok_or("be auto, stream or poll")
}

/// Parses pairs; the text may be empty.
pub(super) fn tag_set(text: &str, note: &mut Note) -> Result<Vec<Pairs>, Rule> {
    let set = if text.is_empty() { Pairs::default() } else { pairs(text, note)? };
    Ok(Vec::from([set]))
}

/// Parses pairs of property names and values; known names are converted to upper case.
pub(super) fn properties(text: &str, note: &mut Note) -> Result<Pairs, Rule> {
    let mut properties = pairs(text, note)?;
    for (name, _) in &mut properties.0 {
        if super::credential::PROPERTIES.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            name.make_ascii_uppercase();
        }
    }
    if is_repeated(&properties) { Err(PAIRS_RULE) } else { Ok(properties) }
}

const PAIRS_RULE: Rule =
    "be name:value pairs with commas between them, 100 at most, each name once, no comma in a value";

fn pairs(text: &str, _note: &mut Note) -> Result<Pairs, Rule> {
    let mut pairs = Pairs::default();
    for pair in text.split(',') {
        let (name, value) = pair.split_once(':').ok_or(PAIRS_RULE)?;
        if name.is_empty() || pairs.0.len() == PAIRS_MAX {
            return Err(PAIRS_RULE);
        }
        pairs.0.push((name.into(), value.into()));
    }
    if is_repeated(&pairs) { Err(PAIRS_RULE) } else { Ok(pairs) }
}

fn is_repeated(pairs: &Pairs) -> bool {
    pairs.0.iter().enumerate().any(|(place, (name, _))| pairs.0[..place].iter().any(|(other, _)| other == name))
}

/// Parses a number of digits only, up to `max`; the first result is limited to `u32::MAX`.
fn digits(text: &str, max: u64) -> Option<(u32, u64)> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = text.parse::<u64>().ok().filter(|number| *number <= max)?;
    Some((u32::try_from(number).unwrap_or(u32::MAX), number))
}
