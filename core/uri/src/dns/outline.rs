//! Preprocessing of messages before they are parsed.
//!
//! Read first: RFC 1035, 4.1 (sections, records, compression); RFC 6891, 6.1.3 (the rest of a
//! response code).
//!
//! The parser follows compression pointers without a limit, and parses records of every type, so a
//! short message can cause much work. Therefore all parts that are not needed are removed before
//! parsing. Each remaining name is followed here first, with a limit on steps that is linear in the
//! length of the message.

use alloc::vec::Vec;

/// Maximum number of labels and pointers per byte of a message. The shortest relevant record, an
/// address, has 16 bytes.
const STEPS_PER_BYTE: usize = 4;
const HEADER_BYTES: usize = 12;
/// Offsets of the counts of questions, answers, name servers and additional records.
const COUNTS: [usize; 4] = [4, 6, 8, 10];

const SRV: u16 = 33;
const CNAME: u16 = 5;
const SOA: u16 = 6;
const OPT: u16 = 41;
/// A record type that the parser does not interpret.
const NULL: u16 = 10;
/// The offset of the host name in the data of an SRV record.
const SRV_TARGET: usize = 6;

/// The properties of a message that are read before parsing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outline {
    /// The response code, all twelve bits.
    pub(super) code: u16,
    /// Whether the authority section contains a start of authority (SOA).
    pub(super) names_authority: bool,
}

/// Checks a whole message, and reduces it to the parts to parse: the questions and the answers. The
/// type of answers that are neither of type `kind` nor aliases is changed to NULL.
///
/// Returns `None` if the message ends too early, or its names need more steps than its length
/// allows. Linear in its length.
pub(super) fn outline(message: &mut Vec<u8>, kind: u16) -> Option<Outline> {
    let steps_left = message.len().saturating_mul(STEPS_PER_BYTE);
    let mut code = u16::from(message.get(3)? & 0x0F);
    let mut names_authority = false;
    let mut walk = Walk { message: message.as_mut_slice(), at: HEADER_BYTES, steps_left };
    let [questions, answers, name_servers, added] = COUNTS;
    for _ in 0..walk.u16_at(questions)? {
        // Skips type and class after the name.
        walk.at = walk.name(walk.at)?.checked_add(4)?;
    }
    for _ in 0..walk.u16_at(answers)? {
        let record = walk.record()?;
        let target = match record.kind {
            SRV => SRV_TARGET,
            _ => 0,
        };
        if record.kind != kind && record.kind != CNAME {
            walk.set_kind(&record, NULL)?;
        } else if [SRV, CNAME].contains(&record.kind) && !record.is_empty {
            walk.name(record.data + target)?;
        }
    }
    let end = walk.at;
    for _ in 0..walk.u16_at(name_servers)? {
        names_authority |= walk.record()?.kind == SOA;
    }
    for _ in 0..walk.u16_at(added)? {
        let record = walk.record()?;
        if record.kind == OPT {
            code |= u16::from(record.ttl_high) << 4;
        }
    }
    message.truncate(end);
    message.get_mut(name_servers..HEADER_BYTES)?.fill(0);
    Some(Outline { code, names_authority })
}

struct Record {
    /// Offset of its type field.
    place: usize,
    kind: u16,
    /// The most significant byte of its time to live.
    ttl_high: u8,
    /// Offset of its data.
    data: usize,
    is_empty: bool,
}

struct Walk<'m> {
    message: &'m mut [u8],
    at: usize,
    /// Remaining number of labels and pointers.
    steps_left: usize,
}

impl Walk<'_> {
    fn u16_at(&self, place: usize) -> Option<u16> {
        self.message.get(place..)?.first_chunk().copied().map(u16::from_be_bytes)
    }

    /// Reads the next record and advances past it.
    fn record(&mut self) -> Option<Record> {
        let place = self.name(self.at)?;
        let length = self.u16_at(place + 8)?;
        let data = place + 10;
        self.at = data + usize::from(length);
        self.message.get(data..self.at)?;
        let ttl_high = *self.message.get(place + 4)?;
        Some(Record { place, kind: self.u16_at(place)?, ttl_high, data, is_empty: length == 0 })
    }

    fn set_kind(&mut self, record: &Record, kind: u16) -> Option<()> {
        *self.message.get_mut(record.place..)?.first_chunk_mut()? = kind.to_be_bytes();
        Some(())
    }

    /// Follows a name to its end; returns the offset after the name's bytes at `begin`.
    fn name(&mut self, begin: usize) -> Option<usize> {
        let (mut at, mut end) = (begin, None);
        loop {
            self.steps_left = self.steps_left.checked_sub(1)?;
            let length = *self.message.get(at)?;
            match length {
                0 => return Some(end.unwrap_or(at + 1)),
                1..=0x3F => at += 1 + usize::from(length),
                0xC0.. => {
                    let target = usize::from(self.u16_at(at)? & 0x3FFF);
                    end = end.or(Some(at + 2));
                    // A pointer must refer to an earlier position: RFC 1035, 4.1.4.
                    if target >= at {
                        return None;
                    }
                    at = target;
                }
                0x40..=0xBF => return None,
            }
        }
    }
}
