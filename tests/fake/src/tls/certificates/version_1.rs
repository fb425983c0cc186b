//! Certificates of version 1, which rcgen does not make: those of version 3 without their version and
//! extensions, signed again.
//!
//! Read first: RFC 5280, "Basic Certificate Fields"; ITU-T X.690, "Identifier octets", "Length octets".

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, SigningKey};

const BIT_STRING: u8 = 0x03;
const SEQUENCE: u8 = 0x30;
/// The tags of the two fields that only later versions have.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

/// Returns this certificate as PEM, in version 1.
pub(super) fn of(certificate: &[u8], issuer: &KeyPair) -> String {
    let (whole, _) = split(certificate);
    let (content, rest) = split(whole.content);
    let (algorithm, _) = split(rest);
    let mut fields = Vec::new();
    let mut left = content.content;
    while !left.is_empty() {
        let (field, after) = split(left);
        if ![VERSION, EXTENSIONS].contains(&field.all[0]) {
            fields.extend_from_slice(field.all);
        }
        left = after;
    }
    let content = element(SEQUENCE, &fields);
    let signature = issuer.sign(&content).expect("it can be signed");
    // No bit of the last byte is unused.
    let signature = element(BIT_STRING, &[&[0], signature.as_slice()].concat());
    let text = STANDARD.encode(element(SEQUENCE, &[&content, algorithm.all, &signature].concat()));
    let lines = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned());
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.collect::<Vec<_>>().join("\n"))
}

struct Element<'a> {
    all: &'a [u8],
    content: &'a [u8],
}

/// Splits the first element from what follows it. The lengths are those that rcgen has written.
fn split(der: &[u8]) -> (Element<'_>, &[u8]) {
    let long = usize::from(der[1]).checked_sub(0x80);
    let digits = long.map_or(&der[1..2], |count| &der[2..2 + count]);
    let start = 2 + long.unwrap_or_default();
    let length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
    let (all, after) = der.split_at(start + length);
    (Element { all, content: &all[start..] }, after)
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).expect("a certificate is short").to_be_bytes();
    let header: &[u8] = match (high, low) {
        (0, ..0x80) => &[tag, low],
        (0, _) => &[tag, 0x81, low],
        _ => &[tag, 0x82, high, low],
    };
    [header, content].concat()
}
