//! Documents as relaxed extended JSON. The text is written while the document is read, without
//! recursion: nothing is allocated, and the formatter can stop at any time by returning an error.
//!
//! Read first: MongoDB Extended JSON (v2), "Conversion table" and "Relaxed Extended JSON".

#[cfg(test)]
mod tests;

use super::document::{DEPTH_MAX, RawDocument};
use super::value::{RawValue, next_raw};
use crate::peer_text::is_unsafe;
use crate::read::saturate;
use core::fmt::{self, Write};

/// Displays a document as relaxed extended JSON. Returned by [`RawDocument::relaxed_json`].
///
/// `<malformed>` replaces an element that cannot be decoded, such as one with text that is not UTF-8.
/// `<too deep>` replaces values nested deeper than [`DEPTH_MAX`]. The output is for people, not for
/// parsers.
#[derive(Clone, Copy, Debug)]
pub struct RelaxedJson<'a>(RawDocument<'a>);

impl<'a> RawDocument<'a> {
    /// The document as relaxed extended JSON, for display. Linear in the bytes that are displayed,
    /// no allocation.
    #[must_use]
    pub const fn relaxed_json(self) -> RelaxedJson<'a> {
        RelaxedJson(self)
    }
}

impl fmt::Display for RelaxedJson<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut around = [Around { kind: Kind::Document, resume: 0, end: 0 }; DEPTH_MAX];
        let (mut depth, mut kind, mut is_first) = (0_usize, Kind::Document, true);
        let mut elements = self.0.interior();
        f.write_char('{')?;
        loop {
            let raw = next_raw(&mut elements);
            let Ok(Some(raw)) = raw else {
                if raw.is_err() {
                    f.write_str(if is_first { MALFORMED } else { ",<malformed>" })?;
                }
                f.write_str(kind.close())?;
                let Some(outer) = depth.checked_sub(1) else { return Ok(()) };
                let Some(rest) = around.get(outer) else { return Ok(()) };
                (depth, kind, is_first) = (outer, rest.kind, false);
                elements = self.0.part(rest.resume, rest.end);
                continue;
            };
            if !core::mem::take(&mut is_first) {
                f.write_char(',')?;
            }
            let Ok(element) = raw.element() else {
                f.write_str(MALFORMED)?;
                continue;
            };
            if !matches!(kind, Kind::Array) {
                string(f, element.key)?;
                f.write_char(':')?;
            }
            let Some((inner, inner_kind)) = nested(element.value) else {
                value(f, element.value)?;
                continue;
            };
            let Some(place) = around.get_mut(depth) else {
                f.write_str("<too deep>")?;
                continue;
            };
            let end = elements.at.saturating_add(saturate(elements.rest.len()));
            *place = Around { kind, resume: elements.at, end };
            if let RawValue::JavaScriptWithScope { code, .. } = element.value {
                f.write_str("{\"$code\":")?;
                string(f, code)?;
                f.write_str(",\"$scope\":")?;
            }
            f.write_char(if matches!(inner_kind, Kind::Array) { '[' } else { '{' })?;
            (depth, kind, is_first) = (depth + 1, inner_kind, true);
            elements = inner.interior();
        }
    }
}

const MALFORMED: &str = "<malformed>";

/// A document or array whose text is not complete, and the offsets of its other elements.
#[derive(Clone, Copy)]
struct Around {
    kind: Kind,
    resume: u32,
    end: u32,
}

#[derive(Clone, Copy)]
enum Kind {
    Document,
    Array,
    /// The scope of code.
    Scope,
}

impl Kind {
    const fn close(self) -> &'static str {
        match self {
            Self::Document => "}",
            Self::Array => "]",
            Self::Scope => "}}",
        }
    }
}

/// The document in a value.
fn nested(value: RawValue<'_>) -> Option<(RawDocument<'_>, Kind)> {
    if let RawValue::Document(inner) = value {
        Some((inner, Kind::Document))
    } else if let RawValue::Array(inner) = value {
        Some((inner.as_document(), Kind::Array))
    } else if let RawValue::JavaScriptWithScope { scope, .. } = value {
        Some((scope, Kind::Scope))
    } else {
        None
    }
}

/// Writes a value without a document in it.
fn value(f: &mut fmt::Formatter<'_>, value: RawValue<'_>) -> fmt::Result {
    match value {
        RawValue::Document(_) | RawValue::Array(_) | RawValue::JavaScriptWithScope { .. } => Ok(()),
        RawValue::Double(number) => double(f, number),
        RawValue::String(text) => string(f, text),
        RawValue::Binary(binary) => {
            f.write_str("{\"$binary\":{\"base64\":\"")?;
            base64(f, binary.bytes)?;
            write!(f, "\",\"subType\":\"{:02x}\"}}}}", binary.subtype)
        }
        RawValue::Undefined => f.write_str("{\"$undefined\":true}"),
        RawValue::ObjectId(id) => write!(f, "{{\"$oid\":\"{id}\"}}"),
        RawValue::Boolean(value) => write!(f, "{value}"),
        RawValue::DateTime(millis) => date_time(f, millis),
        RawValue::Null => f.write_str("null"),
        RawValue::Regex(regex) => {
            f.write_str("{\"$regularExpression\":{\"pattern\":")?;
            string(f, regex.pattern)?;
            f.write_str(",\"options\":")?;
            string(f, regex.options)?;
            f.write_str("}}")
        }
        RawValue::DbPointer { namespace, id } => {
            f.write_str("{\"$dbPointer\":{\"$ref\":")?;
            string(f, namespace)?;
            write!(f, ",\"$id\":{{\"$oid\":\"{id}\"}}}}}}")
        }
        RawValue::JavaScript(code) => {
            f.write_str("{\"$code\":")?;
            string(f, code)?;
            f.write_char('}')
        }
        RawValue::Symbol(text) => {
            f.write_str("{\"$symbol\":")?;
            string(f, text)?;
            f.write_char('}')
        }
        RawValue::Int32(number) => write!(f, "{number}"),
        RawValue::Timestamp(at) => write!(f, "{{\"$timestamp\":{{\"t\":{},\"i\":{}}}}}", at.time_s, at.increment),
        RawValue::Int64(number) => write!(f, "{number}"),
        RawValue::Decimal128(bytes) => decimal128(f, bytes),
        RawValue::MinKey => f.write_str("{\"$minKey\":1}"),
        RawValue::MaxKey => f.write_str("{\"$maxKey\":1}"),
    }
}

fn string(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        if (b' '..0x7f).contains(&byte) && byte != b'"' && byte != b'\\' {
            continue;
        }
        // `None` within a character.
        let Some(char) = text.get(at..).and_then(|rest| rest.chars().next()) else { continue };
        if !char.is_ascii() && !is_unsafe(char) {
            continue;
        }
        f.write_str(text.get(plain..at).unwrap_or_default())?;
        plain = at + char.len_utf8();
        match char {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            // No unsafe character needs more than four digits.
            _ => write!(f, "\\u{:04x}", u32::from(char))?,
        }
    }
    f.write_str(text.get(plain..).unwrap_or_default())?;
    f.write_char('"')
}

fn double(f: &mut fmt::Formatter<'_>, number: f64) -> fmt::Result {
    if number.is_finite() {
        // Debug format keeps the point or the exponent, so the number still reads as a double.
        return write!(f, "{number:?}");
    }
    let name = if number.is_nan() {
        "NaN"
    } else if number > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    };
    write!(f, "{{\"$numberDouble\":\"{name}\"}}")
}

fn base64(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4_usize {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 0x3f) as usize];
            f.write_char(if place > chunk.len() { '=' } else { char::from(digit) })?;
        }
    }
    Ok(())
}

const MILLIS_PER_DAY: i64 = 86_400_000;
/// End of the year 9999, in milliseconds since 1970. Relaxed JSON writes later dates as numbers.
const MILLIS_READABLE: i64 = 253_402_300_800_000;

fn date_time(f: &mut fmt::Formatter<'_>, millis: i64) -> fmt::Result {
    if !(0..MILLIS_READABLE).contains(&millis) {
        return write!(f, "{{\"$date\":{{\"$numberLong\":\"{millis}\"}}}}");
    }
    let (year, month, day) = civil(millis / MILLIS_PER_DAY);
    let (seconds, fraction) = (millis % MILLIS_PER_DAY / 1000, millis % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    write!(f, "{{\"$date\":\"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
    if fraction > 0 {
        write!(f, ".{fraction:03}")?;
    }
    f.write_str("Z\"}")
}

/// Converts days since 1970-01-01 to year, month and day of the Gregorian calendar. Years are
/// counted from March, which makes a leap day the last day of a year.
fn civil(days: i64) -> (i64, i64, i64) {
    const DAYS_PER_ERA: i64 = 146_097;
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

/// Writes IEEE 754-2008 decimal floating point (binary encoding) in the notation of the BSON
/// decimal128 specification.
fn decimal128(f: &mut fmt::Formatter<'_>, bytes: [u8; 16]) -> fmt::Result {
    const BIAS: i32 = 6176;
    const COEFFICIENT_MAX: u128 = 10_u128.pow(34) - 1;
    let bits = u128::from_le_bytes(bytes);
    let sign = if bits >> 127 == 1 { "-" } else { "" };
    f.write_str("{\"$numberDecimal\":\"")?;
    let combination = bits >> 122 & 0x1f;
    if combination == 0x1f {
        f.write_str("NaN")?;
    } else if combination == 0x1e {
        write!(f, "{sign}Infinity")?;
    } else {
        // A coefficient that begins with the bits 100 exceeds the maximum, and counts as zero.
        let is_large = combination >> 3 == 0b11;
        let exponent_bits = if is_large { bits >> 111 & 0x3fff } else { bits >> 113 & 0x3fff };
        let coefficient = if is_large { 0 } else { bits & ((1 << 113) - 1) };
        let coefficient = if coefficient > COEFFICIENT_MAX { 0 } else { coefficient };
        let exponent = i32::try_from(exponent_bits).unwrap_or_default() - BIAS;
        f.write_str(sign)?;
        scientific(f, coefficient, exponent)?;
    }
    f.write_str("\"}")
}

fn scientific(f: &mut fmt::Formatter<'_>, coefficient: u128, exponent: i32) -> fmt::Result {
    let mut digits = [b'0'; 39];
    let mut from = digits.len();
    let mut rest = coefficient;
    while from == digits.len() || rest > 0 {
        from -= 1;
        digits[from] = b'0' + (rest % 10).to_le_bytes()[0];
        rest /= 10;
    }
    let digits = core::str::from_utf8(&digits[from..]).unwrap_or_default();
    let count = i32::try_from(digits.len()).unwrap_or_default();
    let adjusted = exponent + count - 1;
    if exponent > 0 || adjusted < -6 {
        let (first, others) = digits.split_at(1);
        f.write_str(first)?;
        if !others.is_empty() {
            write!(f, ".{others}")?;
        }
        return write!(f, "E{adjusted:+}");
    }
    let point = count + exponent;
    match usize::try_from(point) {
        _ if exponent == 0 => f.write_str(digits),
        Ok(point) if point > 0 => {
            let (whole, fraction) = digits.split_at(point);
            write!(f, "{whole}.{fraction}")
        }
        _ => {
            f.write_str("0.")?;
            (0..point.unsigned_abs()).try_for_each(|_| f.write_char('0'))?;
            f.write_str(digits)
        }
    }
}
