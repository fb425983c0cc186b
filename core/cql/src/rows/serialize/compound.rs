//! Values that contain others: collections, tuples, user-defined types, and all variables.

use super::{
    BindError, NULL, Target, VARIABLE_BYTES_MAX, Writer, close, is_length, open, takes_bytes, type_name, write_int,
};
use crate::notation::Reader;
use crate::rows::{Type, id, shortened};
use alloc::vec::Vec;
use core::ops::Range;
use serde::ser::{Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeTuple, SerializeTupleStruct};

impl<'o, 'a> Writer<'o, 'a> {
    /// Begins a list, a tuple or bytes.
    pub(super) fn begin_items(self, found: &'static str) -> Result<Items<'o, 'a>, BindError> {
        let start = self.out.len();
        let Some(kind) = self.target.kind() else {
            let Target::Row(columns) = self.target else { return Err(self.mismatch(found)) };
            let fields = Fields { entries: columns.map(|column| (column.name, column.kind)).collect(), next: 0 };
            return Ok(Items { out: self.out, start, shape: Shape::Fields(fields), is_row: true });
        };
        let shape = match kind.id() {
            Type::LIST | Type::SET => Shape::Elements { kind: contained(kind, 0)?, count: 0 },
            Type::TUPLE | Type::UDT => Shape::Fields(Fields { entries: fields(kind)?, next: 0 }),
            id if takes_bytes(id) && id != id::VARINT => Shape::Bytes(id),
            _ => return Err(self.mismatch(found)),
        };
        open(self.out);
        if matches!(shape, Shape::Elements { .. }) {
            self.out.extend([0; 4]);
        }
        Ok(Items { out: self.out, start, shape, is_row: false })
    }

    /// Begins a map or a struct.
    pub(super) fn begin_entries(self, found: &'static str) -> Result<Entries<'o, 'a>, BindError> {
        let start = self.out.len();
        let Some(kind) = self.target.kind() else {
            let Target::Row(columns) = self.target else { return Err(self.mismatch(found)) };
            let fields = columns.map(|column| NamedField::new(column.name, column.kind)).collect();
            let place = Place::Named { fields, name: Vec::new(), is_row: true };
            return Ok(Entries { out: self.out, start, place });
        };
        match kind.id() {
            Type::MAP => {
                let (key, value) = (contained(kind, 0)?, contained(kind, 1)?);
                open(self.out);
                self.out.extend([0; 4]);
                Ok(Entries { out: self.out, start, place: Place::Pairs { key, value, count: 0 } })
            }
            Type::UDT => {
                let fields = fields(kind)?.into_iter().map(|(name, kind)| NamedField::new(name, kind)).collect();
                open(self.out);
                let place = Place::Named { fields, name: Vec::new(), is_row: false };
                Ok(Entries { out: self.out, start, place })
            }
            _ => Err(self.mismatch(found)),
        }
    }
}

/// The type at this position among those that a collection contains.
fn contained(kind: Type<'_>, position: usize) -> Result<Type<'_>, BindError> {
    let mut inner = kind.inner;
    let mut found = Type::read(&mut inner, 0);
    for _ in 0..position {
        found = Type::read(&mut inner, 0);
    }
    found.map_err(BindError::new)
}

/// Returns the name and the type of each field of a user-defined type, or of a tuple: there the names
/// are empty.
fn fields(kind: Type<'_>) -> Result<Vec<(&str, Type<'_>)>, BindError> {
    fn read<'a>(reader: &mut Reader<'a>, is_named: bool) -> Result<Vec<(&'a str, Type<'a>)>, crate::CqlError> {
        if is_named {
            reader.string()?;
            reader.string()?;
        }
        let count = reader.u16()?;
        (0..count).map(|_| Ok((if is_named { reader.string()? } else { "" }, Type::read(reader, 0)?))).collect()
    }
    read(&mut { kind.inner }, kind.id == Type::UDT).map_err(BindError::new)
}

/// Writes a list, a set, a tuple, a user-defined type, bytes or all variables, in their order.
pub(super) struct Items<'o, 'a> {
    out: &'o mut Vec<u8>,
    /// Where its length is.
    start: usize,
    shape: Shape<'a>,
    is_row: bool,
}

enum Shape<'a> {
    Elements {
        kind: Type<'a>,
        count: usize,
    },
    Fields(Fields<'a>),
    /// With the number of the type.
    Bytes(u16),
}

struct Fields<'a> {
    entries: Vec<(&'a str, Type<'a>)>,
    next: usize,
}

impl Items<'_, '_> {
    fn put<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), BindError> {
        let out = &mut *self.out;
        match &mut self.shape {
            Shape::Elements { kind, count } => {
                *count += 1;
                value.serialize(Writer { target: Target::Element(*kind), out })
            }
            Shape::Bytes(_) => value.serialize(Writer { target: Target::Byte, out }),
            Shape::Fields(Fields { entries, next }) => {
                let Some((name, kind)) = entries.get(*next) else {
                    return Err(BindError::new(format_args!("more than {} values", entries.len())));
                };
                *next += 1;
                if self.is_row {
                    let written = value.serialize(Writer { target: Target::Variable(*kind), out });
                    return written.map_err(|error| error.in_variable(name));
                }
                value.serialize(Writer { target: Target::Field(*kind), out })
            }
        }
    }

    fn finish(self) -> Result<(), BindError> {
        let content = self.start + 4;
        match self.shape {
            Shape::Elements { count, .. } => write_count(self.out, content, count)?,
            Shape::Bytes(id) => {
                if !is_length(id, self.out.len() - content) {
                    return Err(BindError::new(format_args!("bytes out of the range of {}", type_name(id))));
                }
            }
            Shape::Fields(Fields { entries, next }) => {
                if next != entries.len() {
                    return Err(BindError::new(format_args!("{next} values, expected {}", entries.len())));
                }
                if self.is_row {
                    return Ok(());
                }
            }
        }
        close(self.out, content)
    }
}

fn write_count(out: &mut [u8], at: usize, count: usize) -> Result<(), BindError> {
    let count = i32::try_from(count).map_err(|_| BindError::new("too many elements"))?;
    write_int(out, at, count);
    Ok(())
}

/// Writes a map, a user-defined type or all variables, by names.
pub(super) struct Entries<'o, 'a> {
    out: &'o mut Vec<u8>,
    /// Where its length is.
    start: usize,
    place: Place<'a>,
}

enum Place<'a> {
    Pairs {
        key: Type<'a>,
        value: Type<'a>,
        count: usize,
    },
    Named {
        fields: Vec<NamedField<'a>>,
        /// The name whose value follows.
        name: Vec<u8>,
        is_row: bool,
    },
}

struct NamedField<'a> {
    name: &'a str,
    kind: Type<'a>,
    /// Where its value is, with its length.
    written: Option<Range<usize>>,
}

impl<'a> NamedField<'a> {
    const fn new(name: &'a str, kind: Type<'a>) -> Self {
        Self { name, kind, written: None }
    }
}

impl Entries<'_, '_> {
    fn put_key<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), BindError> {
        match &mut self.place {
            Place::Pairs { key, count, .. } => {
                *count += 1;
                value.serialize(Writer { target: Target::Element(*key), out: self.out })
            }
            Place::Named { name, .. } => {
                name.clear();
                value.serialize(Writer { target: Target::Name, out: name })
            }
        }
    }

    fn put_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), BindError> {
        let (fields, name, is_row) = match &mut self.place {
            Place::Pairs { value: kind, .. } => {
                return value.serialize(Writer { target: Target::Element(*kind), out: self.out });
            }
            Place::Named { fields, name, is_row } => (fields, name, *is_row),
        };
        let mut is_known = false;
        for field in fields.iter_mut().filter(|field| field.name.as_bytes() == name.as_slice()) {
            is_known = true;
            if field.written.is_some() {
                let error = BindError::new("two values");
                return Err(if is_row { error.in_variable(field.name) } else { error });
            }
            let start = self.out.len();
            let target = if is_row { Target::Variable(field.kind) } else { Target::Field(field.kind) };
            let written = value.serialize(Writer { target, out: self.out });
            written.map_err(|error| if is_row { error.in_variable(field.name) } else { error })?;
            field.written = Some(start..self.out.len());
        }
        if is_known {
            return Ok(());
        }
        let name = core::str::from_utf8(name).unwrap_or_default();
        let name = shortened(name, VARIABLE_BYTES_MAX);
        let of = if is_row { "the statement has no such variable" } else { "the type has no such field" };
        Err(BindError::new(format_args!("field {}: {of}", name.escape_debug())))
    }

    fn finish(self) -> Result<(), BindError> {
        let content = self.start + 4;
        let (fields, is_row) = match self.place {
            Place::Pairs { count, .. } => {
                write_count(self.out, content, count)?;
                return close(self.out, content);
            }
            Place::Named { fields, is_row, .. } => (fields, is_row),
        };
        let start = if is_row { self.start } else { content };
        // Usually the fields were written in their order.
        let mut end = start;
        let in_order = fields.iter().all(|field| {
            let is_next = field.written.as_ref().is_some_and(|range| range.start == end);
            end = field.written.as_ref().map_or(end, |range| range.end);
            is_next
        });
        if !in_order {
            let mut ordered = Vec::with_capacity(self.out.len() - start);
            for field in &fields {
                match &field.written {
                    Some(range) => ordered.extend_from_slice(self.out.get(range.clone()).unwrap_or_default()),
                    None if is_row => return Err(BindError::new("no value").in_variable(field.name)),
                    None => ordered.extend(NULL.to_be_bytes()),
                }
            }
            self.out.truncate(start);
            self.out.append(&mut ordered);
        }
        if is_row { Ok(()) } else { close(self.out, content) }
    }
}

impl SerializeSeq for Items<'_, '_> {
    type Ok = ();
    type Error = BindError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), BindError> {
        self.put(value)
    }

    fn end(self) -> Result<(), BindError> {
        self.finish()
    }
}

impl SerializeTuple for Items<'_, '_> {
    type Ok = ();
    type Error = BindError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), BindError> {
        self.put(value)
    }

    fn end(self) -> Result<(), BindError> {
        self.finish()
    }
}

impl SerializeTupleStruct for Items<'_, '_> {
    type Ok = ();
    type Error = BindError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), BindError> {
        self.put(value)
    }

    fn end(self) -> Result<(), BindError> {
        self.finish()
    }
}

impl SerializeMap for Entries<'_, '_> {
    type Ok = ();
    type Error = BindError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), BindError> {
        self.put_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), BindError> {
        self.put_value(value)
    }

    fn end(self) -> Result<(), BindError> {
        self.finish()
    }
}

impl SerializeStruct for Entries<'_, '_> {
    type Ok = ();
    type Error = BindError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), BindError> {
        self.put_key(key)?;
        self.put_value(value)
    }

    fn end(self) -> Result<(), BindError> {
        self.finish()
    }
}
