//! What stands where in a message, found out before it is parsed.
//!
//! Read first: RFC 1035, 4.1 (sections, records, compression); RFC 6891, 6.1.3 (the rest of a response code).
//!
//! The parser follows pointers from one to the next as often as names say so, and reads records of every kind: a short message can
//! keep it at work for long. So whatever it has no need to read is kept from it, and each name that is left is followed here first, where
//! every step is paid for by the length of the message.

use alloc::vec::Vec;

/// How many labels and pointers of names there may be for each byte of a message. The shortest record that counts, an address, has 16 bytes.
const STEPS_PER_BYTE: usize = 4;
const HEADER_BYTES: usize = 12;
/// Where the header counts questions, answers, name servers and what is added.
const COUNTS: [usize; 4] = [4, 6, 8, 10];

const SRV: u16 = 33;
const CNAME: u16 = 5;
const SOA: u16 = 6;
const OPT: u16 = 41;
/// A kind of record that is taken as bytes.
const NULL: u16 = 10;
/// Where the host begins in a record of it.
const SRV_TARGET: usize = 6;

/// What a message says besides its questions and answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outline {
    /// The response code, all twelve bits of it.
    pub(super) code: u16,
    /// Whether a start of authority stands among the name servers.
    pub(super) names_authority: bool,
}

/// Looks at a message as a whole, and leaves of it what is to be parsed: the questions and the answers, those of another kind than
/// `kind` and aliases as mere bytes.
///
/// `None`: it ends too early, or its names take more steps than it has bytes to pay for. Linear in its length.
pub(super) fn outline(message: &mut Vec<u8>, kind: u16) -> Option<Outline> {
    let steps_left = message.len().saturating_mul(STEPS_PER_BYTE);
    let mut code = u16::from(message.get(3)? & 0x0F);
    let mut names_authority = false;
    let mut walk = Walk { message: message.as_mut_slice(), at: HEADER_BYTES, steps_left };
    let [questions, answers, name_servers, added] = COUNTS;
    for _ in 0..walk.u16_at(questions)? {
        // Behind its name: kind and class.
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
    /// Where its kind stands.
    place: usize,
    kind: u16,
    /// The first byte of its time to live.
    ttl_high: u8,
    /// Where its data begin.
    data: usize,
    is_empty: bool,
}

struct Walk<'m> {
    message: &'m mut [u8],
    at: usize,
    /// How many labels and pointers may still be met.
    steps_left: usize,
}

impl Walk<'_> {
    fn u16_at(&self, place: usize) -> Option<u16> {
        self.message.get(place..)?.first_chunk().copied().map(u16::from_be_bytes)
    }

    /// Goes behind the next record.
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

    /// Follows a name to its end; gives where it ends in its own place.
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
                    // What has been before, and nothing else: RFC 1035, 4.1.4.
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
