//! The supported statements, and the encoding of their rows.

use core::time::Duration;

use super::body::{int, short, short_bytes, string};
use super::kind::{code, result};
use super::tables::{Node, Query};

/// Largest blob of `bytes`.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest delay of `delay`.
const DELAY_MAX: Duration = Duration::from_secs(3600);

/// The column name of the replies' cells.
const COLUMN: &str = "reply";
const VARCHAR: u16 = 0x0d;
const BLOB: u16 = 0x03;

/// The code and the message of an error, instead of a RESULT.
#[derive(Debug)]
pub(super) struct Failure(pub(super) i32, pub(super) String);

/// Whether rows of the server's own tables are sent with a description of their columns. The cells of `echo`
/// and `bytes` always are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Description<'a> {
    Whole,
    Omitted,
    /// With the id of the description, because the client has that of another one.
    New(&'a [u8]),
}

/// A parsed statement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Statement<'a> {
    /// The text without `delay`.
    text: &'a [u8],
    /// Delay of the reply.
    pub(super) delay: Duration,
}

impl<'a> Statement<'a> {
    #[inline]
    pub(super) fn of(text: &'a [u8]) -> Self {
        let Some(rest) = text.strip_prefix(b"delay ") else { return Self { text, delay: Duration::ZERO } };
        let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        let (number, rest) = rest.split_at(end);
        let delay = number_of(number).and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        Self { text: rest.strip_prefix(b" ").unwrap_or(rest), delay: delay.unwrap_or_default().min(DELAY_MAX) }
    }

    /// Returns whether the statement reads the server's own tables or sets its keyspace, as the
    /// statements of drivers that connect do.
    #[inline]
    pub(super) fn is_of_system(&self) -> bool {
        matches!(self.text.first(), Some(b'S' | b's' | b'U' | b'u'))
    }

    /// Writes the body of the RESULT. A failure may have written a part of it.
    #[inline]
    pub(super) fn answer(&self, body: &mut Vec<u8>, node: &Node, description: Description<'_>) -> Result<(), Failure> {
        if let Some(rest) = self.text.strip_prefix(b"echo ") {
            return cell(body, VARCHAR, rest.len(), |body| body.extend_from_slice(rest));
        }
        self.answer_other(body, node, description)
    }

    fn answer_other(&self, body: &mut Vec<u8>, node: &Node, description: Description<'_>) -> Result<(), Failure> {
        let text = self.text;
        if text == b"echo" {
            return cell(body, VARCHAR, 0, |_| ());
        }
        if text == b"void" || text.starts_with(b"void ") {
            int(body, result::VOID);
            return Ok(());
        }
        if let Some(rest) = text.strip_prefix(b"bytes ") {
            return bytes(rest, body);
        }
        self.query(node)?.answer(body, description);
        Ok(())
    }

    /// Parses a statement on the server's own tables.
    fn query(&self, node: &Node) -> Result<Query<'a>, Failure> {
        let not_utf8 = |_| Failure(code::SYNTAX_ERROR, "the statement is not UTF-8".to_owned());
        Query::parse(core::str::from_utf8(self.text).map_err(not_utf8)?, node)
    }

    /// Whether it is one of the statements that only this server has.
    fn is_own(&self) -> bool {
        let word = self.text.split(|byte| *byte == b' ').next().unwrap_or_default();
        [&b"echo"[..], b"bytes", b"void"].contains(&word)
    }
}

/// Answers `N`, or `N` and a text that is repeated.
fn bytes(rest: &[u8], body: &mut Vec<u8>) -> Result<(), Failure> {
    let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
    let (number, pattern) = rest.split_at(end);
    let Some(count) = number_of(number).filter(|count| *count <= BYTES_MAX) else {
        return Err(Failure(code::INVALID, format!("bytes requires a number up to {BYTES_MAX}")));
    };
    let pattern = pattern.strip_prefix(b" ").filter(|pattern| !pattern.is_empty()).unwrap_or(b"0123456789abcdef");
    cell(body, BLOB, count, |body| {
        let end = body.len() + count;
        while body.len() < end {
            let some = pattern.len().min(end - body.len());
            body.extend_from_slice(&pattern[..some]);
        }
    })
}

fn number_of(digits: &[u8]) -> Option<usize> {
    core::str::from_utf8(digits).ok()?.parse().ok()
}

/// Writes the body of a RESULT with one row of one cell.
fn cell(body: &mut Vec<u8>, kind: u16, count: usize, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Failure> {
    let Ok(length) = i32::try_from(count) else {
        return Err(Failure(code::INVALID, "the cell is too long".to_owned()));
    };
    body.extend_from_slice(&front_of(kind));
    body.extend_from_slice(&length.to_be_bytes());
    write(body);
    Ok(())
}

/// Length of the part before the cell's length: the kind of the result, one column of one table,
/// one row.
const FRONT_BYTES: usize = 4 + 4 + 4 + (2 + KEYSPACE.len()) + (2 + TABLE.len()) + (2 + COLUMN.len()) + 2 + 4;
/// The keyspace and the table named in the replies.
pub(super) const KEYSPACE: &str = "poolhouse";
pub(super) const TABLE: &str = "answers";

/// For a varchar; for other types the type's field differs.
const FRONT: [u8; FRONT_BYTES] = front();

const fn front() -> [u8; FRONT_BYTES] {
    let mut bytes = [0; FRONT_BYTES];
    // Kind: rows; one table for all columns; one column.
    bytes[3] = 2;
    bytes[7] = 1;
    bytes[11] = 1;
    let mut at = 12;
    let names = [KEYSPACE.as_bytes(), TABLE.as_bytes(), COLUMN.as_bytes()];
    let mut which = 0;
    while which < names.len() {
        let name = names[which];
        bytes[at + 1] = name.len().to_le_bytes()[0];
        at += 2;
        let mut index = 0;
        while index < name.len() {
            bytes[at] = name[index];
            at += 1;
            index += 1;
        }
        which += 1;
    }
    bytes[at + 1] = VARCHAR.to_le_bytes()[0];
    // One row.
    bytes[at + 5] = 1;
    bytes
}

const fn front_of(kind: u16) -> [u8; FRONT_BYTES] {
    let mut bytes = FRONT;
    bytes[FRONT_BYTES - 5] = kind.to_le_bytes()[0];
    bytes
}

/// Returns the one cell of the RESULT of an `echo` or `bytes`, out of its body; `None` for other
/// results.
#[must_use]
pub fn cell_of(result_body: &[u8]) -> Option<&[u8]> {
    let (front, rest) = result_body.split_at_checked(FRONT_BYTES)?;
    let (length, cell) = rest.split_first_chunk()?;
    let is_it = front == front_of(VARCHAR) || front == front_of(BLOB);
    (is_it && usize::try_from(i32::from_be_bytes(*length)) == Ok(cell.len())).then_some(cell)
}

/// Returns the text with each `?` replaced by a value; `None` if the number of values differs.
pub(super) fn bound(text: &[u8], values: &[&[u8]]) -> Option<Vec<u8>> {
    let mut whole = Vec::with_capacity(text.len() + values.iter().map(|value| value.len()).sum::<usize>());
    let mut values = values.iter();
    for byte in text {
        match byte {
            b'?' => whole.extend_from_slice(values.next()?),
            _ => whole.push(*byte),
        }
    }
    values.next().is_none().then_some(whole)
}

/// Writes the body of the RESULT of a PREPARE. For the statements that only this server has, every variable is a
/// varchar, and none is the partition key.
pub(super) fn prepared(text: &[u8], id: &[u8], version: u8, node: &Node, body: &mut Vec<u8>) -> Result<(), Failure> {
    let statement = Statement::of(text);
    int(body, result::PREPARED);
    short_bytes(body, id);
    if version > 4 {
        // The id of the result's description, which never changes.
        short_bytes(body, id);
    }
    if !statement.is_own() {
        return match statement.query(node)? {
            Query::Rows(rows) => rows.describe_prepared(version, body),
            Query::Use(_) => Err(Failure(code::INVALID, "USE is not prepared".to_owned())),
        };
    }
    let too_many = |_| Failure(code::INVALID, "the statement has too many variables".to_owned());
    let variables = text.iter().filter(|byte| **byte == b'?').count();
    let variables = i32::try_from(variables).map_err(too_many)?;
    // All of one table.
    int(body, 1);
    int(body, variables);
    if version > 3 {
        int(body, 0);
    }
    string(body, KEYSPACE);
    string(body, TABLE);
    for index in 0..variables {
        string(body, &format!("v{index}"));
        short(body, VARCHAR);
    }
    // The columns.
    let is_void = statement.text.starts_with(b"void");
    int(body, 1);
    int(body, i32::from(!is_void));
    string(body, KEYSPACE);
    string(body, TABLE);
    if !is_void {
        string(body, COLUMN);
        short(body, if statement.text.starts_with(b"bytes ") { BLOB } else { VARCHAR });
    }
    Ok(())
}
