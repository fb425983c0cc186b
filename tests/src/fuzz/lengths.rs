//! Repairs length prefixes after random changes. Without this, hardly any changed input gets past
//! its first wrong length.

use poolhouse_wire::message::{HEADER_BYTES, OP_MSG};

/// Maximum depth of repairs.
const DEPTH_MAX: usize = 40;

/// Length of an envelope header of Cassandra's protocol; its last four bytes are the body length.
const ENVELOPE_BYTES: usize = 9;

/// Repairs the lengths in `data`, interpreted as `seed` chooses: not at all, as a message, as a
/// document, or as the elements of one.
///
/// Only lengths, and the terminators at the positions they imply, are changed.
pub fn repair(data: &mut [u8], seed: u32) {
    match seed % 4 {
        0 => {}
        1 => message(data),
        2 => document(data, 0),
        _ => drop(elements(data, 0, 0)),
    }
}

/// Repairs the lengths of consecutive envelopes of Cassandra's protocol, from the second byte on.
/// In one of four cases nothing is repaired.
pub fn repair_envelopes(data: &mut [u8], seed: u32) {
    if seed.is_multiple_of(4) {
        return;
    }
    let mut at = 1;
    while let Some(rest) = data.get_mut(at..).filter(|rest| rest.len() >= ENVELOPE_BYTES) {
        let most = rest.len() - ENVELOPE_BYTES;
        let found = u32::from_be_bytes([rest[5], rest[6], rest[7], rest[8]]) as usize;
        let length = found.min(most);
        rest[5..ENVELOPE_BYTES].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        at += ENVELOPE_BYTES + length;
    }
}

/// Writes a length at the beginning of `data`.
fn put(data: &mut [u8], length: usize) {
    if let (Some(place), Ok(length)) = (data.get_mut(..4), i32::try_from(length)) {
        place.copy_from_slice(&length.to_le_bytes());
    }
}

fn message(data: &mut [u8]) {
    put(data, data.len());
    let opcode = data.get(12..HEADER_BYTES).and_then(|bytes| bytes.try_into().ok()).map(i32::from_le_bytes);
    if opcode != Some(OP_MSG) || data.len() < 21 {
        return;
    }
    let mut at = 20;
    while let Some((kind, section)) = data.get_mut(at..).and_then(<[u8]>::split_first_mut) {
        let claimed = section.first_chunk().map_or(-1, |bytes| i32::from_le_bytes(*bytes));
        let length = usize::try_from(claimed).unwrap_or(usize::MAX).min(section.len());
        let section = &mut section[..length];
        match *kind {
            0 => document(section, 0),
            1 => {
                put(section, length);
                let name = section.iter().skip(4).position(|byte| *byte == 0).map_or(length, |end| end + 5);
                if let Some(documents) = section.get_mut(name..) {
                    document(documents, 0);
                }
            }
            _ => return,
        }
        at += 1 + length.max(1);
    }
}

/// Makes all of `data` one document.
fn document(data: &mut [u8], depth: usize) {
    let length = data.len();
    if length < 5 {
        return;
    }
    put(data, length);
    data[length - 1] = 0;
    let _ = elements(&mut data[4..], depth, 0);
}

/// Repairs elements. Returns the position after the terminator.
fn elements(data: &mut [u8], depth: usize, from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        let kind = *data.get(at)?;
        at += 1;
        if kind == 0 {
            return Some(at);
        }
        at += data.get(at..)?.iter().position(|byte| *byte == 0)? + 1;
        at = value(data, kind, depth, at)?;
    }
}

/// Repairs the lengths of one value. Returns its end.
fn value(data: &mut [u8], kind: u8, depth: usize, at: usize) -> Option<usize> {
    let rest = data.get_mut(at..)?;
    let claimed = rest.first_chunk().map_or(0, |bytes| i32::from_le_bytes(*bytes));
    Some(match kind {
        0x01 | 0x09 | 0x11 | 0x12 => at + 8,
        // Text ends with the first NUL after its length.
        0x02 | 0x0d | 0x0e => {
            let length = rest.iter().skip(4).position(|byte| *byte == 0)? + 1;
            put(rest, length);
            at + 4 + length
        }
        0x03 | 0x04 if depth < DEPTH_MAX => {
            let end = elements(rest, depth + 1, 4)?;
            put(rest, end);
            at + end
        }
        0x05 => {
            let length = usize::try_from(claimed).unwrap_or(0).min(rest.len().checked_sub(6)?);
            put(rest, length);
            if rest[4] == 2 && length >= 4 {
                put(&mut rest[5..], length - 4);
            }
            at + 5 + length
        }
        0x07 => at + 12,
        0x08 => {
            let value = rest.first_mut()?;
            *value &= 1;
            at + 1
        }
        0x0b => {
            let pattern = rest.iter().position(|byte| *byte == 0)? + 1;
            at + pattern + rest.get(pattern..)?.iter().position(|byte| *byte == 0)? + 1
        }
        0x0f if depth < DEPTH_MAX => {
            let code = value_end(rest)?;
            let end = elements(rest, depth + 1, code + 4)?;
            put(rest.get_mut(code..)?, end - code);
            put(rest, end);
            at + end
        }
        0x10 => at + 4,
        0x13 => at + 16,
        0x06 | 0x0a | 0x7f | 0xff => at,
        _ => return None,
    })
}

/// The end of the text of code with scope, after its length was repaired.
fn value_end(code: &mut [u8]) -> Option<usize> {
    let length = code.iter().skip(8).position(|byte| *byte == 0)? + 1;
    put(code.get_mut(4..)?, length);
    Some(8 + length)
}

#[cfg(test)]
mod tests;
