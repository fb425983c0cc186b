//! Rows of results, and descriptions of prepared statements.
//!
//! Read first: Native Protocol, "RESULT", "Rows", "Prepared"; "Data Type Serialization Formats".

#[cfg(feature = "serde")]
mod deserialize;
#[cfg(feature = "serde")]
mod serialize;
#[cfg(test)]
mod tests;

#[cfg(feature = "serde")]
pub use deserialize::RowError;
#[cfg(feature = "serde")]
pub use serialize::{BindError, BoundValues, MaybeUnset};

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::error::CqlError;
use super::header::Version;
use super::notation::{Reader, field};
use super::response::{Outcome, OutcomeKind};

/// The maximum depth of nested types, such as a list of tuples.
pub const TYPE_DEPTH_MAX: u32 = 32;

/// The bits that indicate what a description of columns contains.
mod flag {
    pub(super) const ONE_TABLE: i32 = 1;
    pub(super) const PAGING_STATE: i32 = 2;
    pub(super) const NO_COLUMNS: i32 = 4;
    pub(super) const NEW_ID: i32 = 8;
}

/// The type of a column: its number, and the types and names that it contains.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Type<'a> {
    id: u16,
    inner: Reader<'a>,
}

impl<'a> Type<'a> {
    /// A type of the server's Java code: [`Type::class`].
    pub const CUSTOM: u16 = 0x00;
    /// A list; like a set, it contains one type.
    pub const LIST: u16 = 0x20;
    /// A map, which contains the types of its keys and its values.
    pub const MAP: u16 = 0x21;
    /// A set.
    pub const SET: u16 = 0x22;
    /// A user-defined type.
    pub const UDT: u16 = 0x30;
    /// A tuple.
    pub const TUPLE: u16 = 0x31;

    fn read(reader: &mut Reader<'a>, depth: u32) -> Result<Self, CqlError> {
        let start = *reader;
        let id = reader.u16()?;
        let inner = *reader;
        if depth > TYPE_DEPTH_MAX {
            return Err(start.error(field("depth of a type", i64::from(depth))));
        }
        let contained = match id {
            Self::CUSTOM => reader.string().map(|_| 0)?,
            Self::LIST | Self::SET => 1,
            Self::MAP => 2,
            Self::TUPLE => reader.u16()?,
            Self::UDT => {
                reader.string()?;
                reader.string()?;
                reader.u16()?
            }
            _ => 0,
        };
        for _ in 0..contained {
            if id == Self::UDT {
                reader.string()?;
            }
            Self::read(reader, depth + 1)?;
        }
        Ok(Self { id, inner })
    }

    /// Its number in the protocol, such as 13 for varchar.
    #[must_use]
    pub const fn id(&self) -> u16 {
        self.id
    }

    /// The name of the class of a custom type; `None` for other types.
    #[must_use]
    pub fn class(&self) -> Option<&'a str> {
        let mut inner = self.inner;
        if self.id == Self::CUSTOM { inner.string().ok() } else { None }
    }

    /// The type of the elements of a list, of a set or of the keys of a map; `None` for other types.
    #[must_use]
    pub fn element(&self) -> Option<Self> {
        let mut inner = self.inner;
        match self.id {
            Self::LIST | Self::SET | Self::MAP => Self::read(&mut inner, 0).ok(),
            _ => None,
        }
    }
}

impl fmt::Debug for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Type({:#04x})", self.id)
    }
}

/// The numbers of the types without further types.
#[cfg(feature = "serde")]
mod id {
    pub(super) const ASCII: u16 = 0x01;
    pub(super) const BIGINT: u16 = 0x02;
    pub(super) const BLOB: u16 = 0x03;
    pub(super) const BOOLEAN: u16 = 0x04;
    pub(super) const COUNTER: u16 = 0x05;
    pub(super) const DECIMAL: u16 = 0x06;
    pub(super) const DOUBLE: u16 = 0x07;
    pub(super) const FLOAT: u16 = 0x08;
    pub(super) const INT: u16 = 0x09;
    pub(super) const TIMESTAMP: u16 = 0x0b;
    pub(super) const UUID: u16 = 0x0c;
    pub(super) const VARCHAR: u16 = 0x0d;
    pub(super) const VARINT: u16 = 0x0e;
    pub(super) const TIMEUUID: u16 = 0x0f;
    pub(super) const INET: u16 = 0x10;
    pub(super) const DATE: u16 = 0x11;
    pub(super) const TIME: u16 = 0x12;
    pub(super) const SMALLINT: u16 = 0x13;
    pub(super) const TINYINT: u16 = 0x14;
    pub(super) const DURATION: u16 = 0x15;
}

/// The first characters of a text, of at most so many bytes.
#[cfg(feature = "serde")]
fn shortened(text: &str, bytes_max: usize) -> alloc::string::String {
    let ends = text.char_indices().map(|(at, one)| at + one.len_utf8());
    let end = ends.take_while(|end| *end <= bytes_max).last().unwrap_or_default();
    text.get(..end).unwrap_or_default().into()
}

/// A column of a result, or a bind variable of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column<'a> {
    /// Its keyspace.
    pub keyspace: &'a str,
    /// Its table.
    pub table: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its type.
    pub kind: Type<'a>,
}

/// The columns of a result. All are known to be well-formed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Columns<'a> {
    left: usize,
    /// Keyspace and table, if they are the same for all.
    table: Option<(&'a str, &'a str)>,
    entries: Reader<'a>,
}

impl<'a> Columns<'a> {
    const EMPTY: Self = Self { left: 0, table: None, entries: Reader::new(&[], 0) };

    fn read(reader: &mut Reader<'a>, count: usize, one_table: bool) -> Result<Self, CqlError> {
        let table = if one_table { Some((reader.string()?, reader.string()?)) } else { None };
        let columns = Self { left: count, table, entries: *reader };
        let mut walk = columns;
        for _ in 0..count {
            walk.read_column()?;
        }
        *reader = walk.entries;
        Ok(columns)
    }

    fn read_column(&mut self) -> Result<Column<'a>, CqlError> {
        let reader = &mut self.entries;
        let (keyspace, table) = match self.table {
            Some(names) => names,
            None => (reader.string()?, reader.string()?),
        };
        Ok(Column { keyspace, table, name: reader.string()?, kind: Type::read(reader, 0)? })
    }

    /// The position of the column with this name. Cost: linear in the columns.
    #[must_use]
    pub fn position(mut self, name: &str) -> Option<usize> {
        Iterator::position(&mut self, |column| column.name == name)
    }
}

impl<'a> Iterator for Columns<'a> {
    type Item = Column<'a>;

    fn next(&mut self) -> Option<Column<'a>> {
        self.left = self.left.checked_sub(1)?;
        self.read_column().ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Columns<'_> {}

impl fmt::Debug for Columns<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

/// The rows of one page of a result. All are known to be well-formed. As an iterator, it returns the
/// cells of one row after another.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rows<'a> {
    /// The columns; empty if the request omitted their description.
    pub columns: Columns<'a>,
    /// The number of cells of each row.
    pub column_count: usize,
    /// The position after this page; `None` if it is the last.
    pub paging_state: Option<&'a [u8]>,
    /// The new id of the result's description, if the columns of a prepared statement have changed.
    /// From v5 on.
    pub new_metadata_id: Option<&'a [u8]>,
    left: usize,
    cells: Reader<'a>,
}

/// The cells of a row, in the order of its columns; `None` is null.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cells<'a> {
    left: usize,
    cells: Reader<'a>,
}

/// The description of a prepared statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepared<'a> {
    /// The id of the statement.
    pub id: &'a [u8],
    /// The id of the description of its result. From v5 on.
    pub metadata_id: Option<&'a [u8]>,
    /// The bind variables.
    pub variables: Columns<'a>,
    /// The bind variables that are the partition key, in its order: two bytes for each, less than the
    /// number of variables. Empty in v3, and if they are not the whole key.
    key: &'a [u8],
    /// The columns of its result.
    pub columns: Columns<'a>,
}

impl<'a> Prepared<'a> {
    /// The positions of the bind variables that are the partition key, in the order of the key.
    /// Empty in v3, and if the statement does not bind the whole key.
    pub fn key_positions(&self) -> impl ExactSizeIterator<Item = usize> + use<'a> {
        positions(self.key)
    }
}

/// The positions of bind variables: two bytes for each.
fn positions<'a>(key: &'a [u8]) -> impl ExactSizeIterator<Item = usize> + use<'a> {
    key.chunks_exact(2).map(|pair| match *pair {
        [high, low] => usize::from(u16::from_be_bytes([high, low])),
        _ => 0,
    })
}

/// Reads the count of a list.
fn count(reader: &mut Reader<'_>, name: &'static str) -> Result<usize, CqlError> {
    let start = *reader;
    let number = reader.i32()?;
    usize::try_from(number).map_err(|_| start.error(field(name, i64::from(number))))
}

impl<'a> Outcome<'a> {
    /// Decodes the rows; `None` for any other kind.
    ///
    /// Cost: linear in the body. No allocation.
    ///
    /// # Errors
    ///
    /// [`CqlErrorKind`](super::CqlErrorKind): `Truncated`, `Utf8`, `FieldValue`; their offsets count
    /// from the end of the kind.
    pub fn rows(&self) -> Result<Option<Rows<'a>>, CqlError> {
        if self.kind != OutcomeKind::Rows {
            return Ok(None);
        }
        let mut reader = Reader::new(self.body, 0);
        let flags = reader.i32()?;
        let column_count = count(&mut reader, "column count")?;
        let paging_state = if flags & flag::PAGING_STATE != 0 { reader.bytes()? } else { None };
        let new_metadata_id = if flags & flag::NEW_ID != 0 { Some(reader.short_bytes()?) } else { None };
        let columns = match flags & flag::NO_COLUMNS {
            0 => Columns::read(&mut reader, column_count, flags & flag::ONE_TABLE != 0)?,
            _ => Columns::EMPTY,
        };
        let start = reader;
        let left = count(&mut reader, "row count")?;
        // Rows without columns have no bytes, so their number would be unlimited.
        if column_count == 0 && left > 0 {
            return Err(start.error(field("row count", i64::try_from(left).unwrap_or(i64::MAX))));
        }
        let mut walk = reader;
        for _ in 0..left {
            for _ in 0..column_count {
                walk.bytes()?;
            }
        }
        Ok(Some(Rows { columns, column_count, paging_state, new_metadata_id, left, cells: reader }))
    }

    /// Decodes the description of a prepared statement; `None` for any other kind.
    ///
    /// - `version`: of the connection.
    ///
    /// Cost: linear in the body. No allocation.
    ///
    /// # Errors
    ///
    /// [`CqlErrorKind`](super::CqlErrorKind): `Truncated`, `Utf8`, `FieldValue`; their offsets count
    /// from the end of the kind.
    pub fn prepared(&self, version: Version) -> Result<Option<Prepared<'a>>, CqlError> {
        if self.kind != OutcomeKind::Prepared {
            return Ok(None);
        }
        let mut reader = Reader::new(self.body, 0);
        let id = reader.short_bytes()?;
        let metadata_id = if version == Version::V5 { Some(reader.short_bytes()?) } else { None };
        let flags = reader.i32()?;
        let variable_count = count(&mut reader, "column count")?;
        let start = reader;
        let key_count = if version == Version::V3 { 0 } else { count(&mut reader, "key count")? };
        if key_count > variable_count {
            return Err(start.error(field("key count", i64::try_from(key_count).unwrap_or(i64::MAX))));
        }
        let start = reader;
        let key = reader.take(key_count.saturating_mul(2))?;
        if let Some(wrong) = positions(key).find(|position| *position >= variable_count) {
            return Err(start.error(field("key position", i64::try_from(wrong).unwrap_or(i64::MAX))));
        }
        let variables = Columns::read(&mut reader, variable_count, flags & flag::ONE_TABLE != 0)?;
        let flags = reader.i32()?;
        let column_count = count(&mut reader, "column count")?;
        if flags & flag::PAGING_STATE != 0 {
            reader.bytes()?;
        }
        let columns = match flags & flag::NO_COLUMNS {
            0 => Columns::read(&mut reader, column_count, flags & flag::ONE_TABLE != 0)?,
            _ => Columns::EMPTY,
        };
        Ok(Some(Prepared { id, metadata_id, variables, key, columns }))
    }
}

impl<'a> Iterator for Rows<'a> {
    type Item = Cells<'a>;

    fn next(&mut self) -> Option<Cells<'a>> {
        self.left = self.left.checked_sub(1)?;
        let row = Cells { left: self.column_count, cells: self.cells };
        for _ in 0..self.column_count {
            self.cells.bytes().ok()?;
        }
        Some(row)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Rows<'_> {}

impl<'a> Iterator for Cells<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        self.cells.bytes().ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Cells<'_> {}

impl fmt::Debug for Rows<'_> {
    /// Omits cells and the paging state, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows")
            .field("columns", &self.columns)
            .field("column_count", &self.column_count)
            .field("paging_state_bytes", &self.paging_state.map(<[u8]>::len))
            .field("rows", &self.left)
            .finish()
    }
}

impl fmt::Debug for Cells<'_> {
    /// Omits the bytes, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.map(|cell| cell.map(<[u8]>::len))).finish()
    }
}

/// The elements of a list or a set; `None` is null. All are known to be well-formed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Elements<'a>(Cells<'a>);

/// The entries of a map. All are known to be well-formed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Pairs<'a>(Cells<'a>);

impl<'a> Elements<'a> {
    /// Decodes the cell of a list or a set. Cost: linear in the cell.
    ///
    /// # Errors
    ///
    /// [`CqlErrorKind`](super::CqlErrorKind): `Truncated`, `FieldValue`; their offsets count from the
    /// start of the cell.
    pub fn read(cell: &'a [u8]) -> Result<Self, CqlError> {
        elements(cell, 1).map(Self)
    }
}

impl<'a> Pairs<'a> {
    /// Decodes the cell of a map. Cost: linear in the cell.
    ///
    /// # Errors
    ///
    /// [`CqlErrorKind`](super::CqlErrorKind): `Truncated`, `FieldValue`; their offsets count from the
    /// start of the cell.
    pub fn read(cell: &'a [u8]) -> Result<Self, CqlError> {
        elements(cell, 2).map(Self)
    }
}

/// Decodes the values of a collection.
///
/// - `width`: number of values for each element.
fn elements(cell: &[u8], width: usize) -> Result<Cells<'_>, CqlError> {
    let mut reader = Reader::new(cell, 0);
    let left = count(&mut reader, "element count")?.saturating_mul(width);
    let elements = Cells { left, cells: reader };
    for _ in 0..left {
        reader.bytes()?;
    }
    Ok(elements)
}

impl<'a> Iterator for Elements<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Elements<'_> {}

impl<'a> Iterator for Pairs<'a> {
    type Item = (Option<&'a [u8]>, Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        Some((self.0.next()?, self.0.next()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.left / 2, Some(self.0.left / 2))
    }
}

impl ExactSizeIterator for Pairs<'_> {}

impl fmt::Debug for Elements<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Pairs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The value of a cell of type inet; `None` if it is malformed.
#[must_use]
pub fn read_inet(cell: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(cell) {
        return Some(IpAddr::V4(Ipv4Addr::from(octets)));
    }
    <[u8; 16]>::try_from(cell).ok().map(|octets| IpAddr::V6(Ipv6Addr::from(octets)))
}
