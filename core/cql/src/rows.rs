//! Rows of results, and descriptions of prepared statements.
//!
//! Read first: Native Protocol, "RESULT", "Rows", "Prepared"; "Data Type Serialization Formats".

#[cfg(feature = "serde")]
mod deserialize;
mod kind;
#[cfg(feature = "serde")]
mod problem;
#[cfg(feature = "serde")]
mod serialize;
#[cfg(feature = "serde")]
mod shape;
#[cfg(test)]
mod tests;

#[cfg(feature = "serde")]
pub use deserialize::RowError;
pub use kind::{Type, TypeFields, TypeName};
#[cfg(feature = "serde")]
pub use serialize::{BindError, BoundValues, MaybeUnset};

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::error::CqlError;
use super::header::Version;
use super::notation::{Reader, field};
use super::response::{Outcome, OutcomeKind};

/// The maximum depth of nested types, such as a list of tuples, in each of the two forms of their
/// descriptions. The text of a class that is deeper is an unknown custom type.
pub const TYPE_DEPTH_MAX: u32 = 32;

/// The mean length in bytes of the descriptions of columns that [`Outcome::rows_within`] accepts.
const COLUMN_BYTES_MAX: usize = 1024;

/// The bits that indicate what a description of columns contains.
mod flag {
    pub(super) const ONE_TABLE: i32 = 1;
    pub(super) const PAGING_STATE: i32 = 2;
    pub(super) const NO_COLUMNS: i32 = 4;
    pub(super) const NEW_ID: i32 = 8;
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

/// The columns of a result. All are known to be well-formed. They are equal if the columns that are left
/// are.
#[derive(Clone, Copy)]
pub struct Columns<'a> {
    left: usize,
    /// Keyspace and table, if they are the same for all.
    table: Option<(&'a str, &'a str)>,
    entries: Reader<'a>,
}

impl<'a> Columns<'a> {
    /// No columns.
    pub const EMPTY: Self = Self { left: 0, table: None, entries: Reader::new(&[], 0) };

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

impl PartialEq for Columns<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.left == other.left && Iterator::eq(*self, *other)
    }
}

impl Eq for Columns<'_> {}

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
        self.rows_within(usize::MAX, usize::MAX)
    }

    /// [`Outcome::rows`], unless there are more columns or rows than these, or the description of the columns is
    /// longer than 1 KiB for each of the most columns. Then the rows are not looked at, nor is more of the description.
    ///
    /// # Errors
    ///
    /// As [`Outcome::rows`]; `FieldValue`: there are too many; `Truncated`: the description is too long.
    pub fn rows_within(&self, columns_max: usize, rows_max: usize) -> Result<Option<Rows<'a>>, CqlError> {
        if self.kind != OutcomeKind::Rows {
            return Ok(None);
        }
        let mut reader = Reader::new(self.body, 0);
        let flags = reader.i32()?;
        let start = reader;
        let column_count = count(&mut reader, "column count")?;
        if column_count > columns_max {
            return Err(start.error(field("column count", i64::try_from(column_count).unwrap_or(i64::MAX))));
        }
        let paging_state = if flags & flag::PAGING_STATE != 0 { reader.bytes()? } else { None };
        let new_metadata_id = if flags & flag::NEW_ID != 0 { Some(reader.short_bytes()?) } else { None };
        let columns = match flags & flag::NO_COLUMNS {
            0 => {
                let bytes_max = columns_max.saturating_mul(COLUMN_BYTES_MAX);
                let mut description = Reader { rest: reader.rest.get(..bytes_max).unwrap_or(reader.rest), ..reader };
                let before = description.rest.len();
                let columns = Columns::read(&mut description, column_count, flags & flag::ONE_TABLE != 0)?;
                reader.take(before - description.rest.len())?;
                columns
            }
            _ => Columns::EMPTY,
        };
        let start = reader;
        let left = count(&mut reader, "row count")?;
        // Rows without columns have no bytes, so their number would be unlimited.
        if (column_count == 0 && left > 0) || left > rows_max {
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
    #[cfg(feature = "serde")]
    const EMPTY: Self = Self(Cells { left: 0, cells: Reader::new(&[], 0) });

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
    #[cfg(feature = "serde")]
    const EMPTY: Self = Self(Cells { left: 0, cells: Reader::new(&[], 0) });

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
