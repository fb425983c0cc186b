//! Values that contain others: collections, tuples, user-defined types, and all variables.

use super::{BindError, Form, NULL, Target, Writer, close, open, write_int};
use crate::rows::kind::{cut, id};
use crate::rows::shape::{Field, Inner, Shape, Vector};
use crate::types::vint::Vint;
use alloc::vec::Vec;
use core::any::type_name;
use core::ops::Range;
use serde::ser::{Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeTuple, SerializeTupleStruct};

/// The maximum length in bytes of the name of a field in an error; the rest is left out.
const FIELD_BYTES_MAX: usize = 48;

impl<'o, 'c> Writer<'o, 'c> {
    /// Begins a list, a tuple or bytes.
    pub(super) fn begin_items(self, found: &'static str) -> Result<Items<'o, 'c>, BindError> {
        let start = self.out.len();
        let Some(shape) = self.target.shape() else {
            let Target::Row(variables) = self.target else { return Err(self.mismatch(found)) };
            return Ok(Items { out: self.out, start, kind: ItemsOf::Row(variables), count: 0 });
        };
        let kind = match &shape.inner {
            Inner::Element(element) => ItemsOf::List(element),
            Inner::Vector(vector) => ItemsOf::Vector(vector),
            Inner::Fields(fields) => ItemsOf::Fields(fields),
            Inner::Udt(udt) => ItemsOf::Fields(&udt.fields),
            Inner::None if matches!(shape.id(), id::BLOB | id::UUID | id::TIMEUUID | id::INET) => ItemsOf::Bytes(shape),
            Inner::None | Inner::Entry(_) => return Err(self.mismatch(found)),
        };
        open(self.out);
        if matches!(kind, ItemsOf::List(_)) {
            self.out.extend([0; 4]);
        }
        Ok(Items { out: self.out, start, kind, count: 0 })
    }

    /// Begins a map or a struct.
    pub(super) fn begin_entries(self, found: &'static str) -> Result<Entries<'o, 'c>, BindError> {
        let start = self.out.len();
        let named = |fields: &'c [Field<'c>], is_row| EntriesOf::Named {
            fields,
            written: fields.iter().map(|_| None).collect(),
            name: Vec::new(),
            is_row,
        };
        let Some(shape) = self.target.shape() else {
            let Target::Row(variables) = self.target else { return Err(self.mismatch(found)) };
            return Ok(Entries { out: self.out, start, kind: named(variables, true) });
        };
        let kind = match &shape.inner {
            Inner::Entry(shapes) => EntriesOf::Map { shapes, count: 0 },
            Inner::Udt(udt) => named(&udt.fields, false),
            Inner::None if self.form == Form::Own => EntriesOf::Custom { target: self.target, count: 0 },
            Inner::None | Inner::Element(_) | Inner::Fields(_) | Inner::Vector(_) => return Err(self.mismatch(found)),
        };
        if !matches!(kind, EntriesOf::Custom { .. }) {
            open(self.out);
        }
        if matches!(kind, EntriesOf::Map { .. }) {
            self.out.extend([0; 4]);
        }
        Ok(Entries { out: self.out, start, kind })
    }
}

/// Writes a list, a set, a vector, a tuple, a user-defined type, bytes or all variables, in their order.
pub(super) struct Items<'o, 'c> {
    out: &'o mut Vec<u8>,
    /// Where its length is.
    start: usize,
    kind: ItemsOf<'c>,
    /// The number of items, with those that are too many and were not written.
    count: usize,
}

enum ItemsOf<'c> {
    Row(&'c [Field<'c>]),
    Fields(&'c [Field<'c>]),
    /// Of a list or a set.
    List(&'c Shape<'c>),
    Vector(&'c Vector<'c>),
    Bytes(&'c Shape<'c>),
}

/// The error of a tuple with too few or too many values.
fn wrong_count(count: usize, expected: usize) -> BindError {
    BindError::new(format_args!("{count} values, expected {expected}"))
}

impl Items<'_, '_> {
    fn put<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), BindError> {
        let place = self.count;
        self.count += 1;
        let out = &mut *self.out;
        // Items that are too many are counted, for the error at the end.
        let target = match self.kind {
            ItemsOf::Row(fields) => {
                let Some(field) = fields.get(place) else { return Ok(()) };
                let written = value.serialize(Writer::new(Target::Variable(&field.1), out));
                return written.map_err(|error| error.in_variable(field, type_name::<T>()));
            }
            ItemsOf::Fields(fields) => {
                let Some((name, shape)) = fields.get(place) else { return Ok(()) };
                let written = value.serialize(Writer::new(Target::Field(shape), out));
                return written.map_err(|error| error.inside().in_field(name));
            }
            ItemsOf::List(shape) => Target::Element(shape),
            ItemsOf::Vector(vector) if place >= vector.dimension => return Ok(()),
            ItemsOf::Vector(vector) => Target::Element(&vector.element),
            ItemsOf::Bytes(_) => Target::Byte,
        };
        let start = out.len();
        value.serialize(Writer::new(target, out)).map_err(BindError::inside)?;
        if let ItemsOf::Vector(vector) = self.kind {
            reframe(out, start, vector)?;
        }
        Ok(())
    }

    fn finish(self) -> Result<(), BindError> {
        let content = self.start + 4;
        match self.kind {
            ItemsOf::List(_) => write_count(self.out, content, self.count)?,
            ItemsOf::Bytes(shape) if !shape.is_length(self.count) => {
                return Err(BindError::new("bytes of another length"));
            }
            ItemsOf::Vector(vector) if self.count != vector.dimension => {
                return Err(wrong_count(self.count, vector.dimension));
            }
            ItemsOf::Row(fields) | ItemsOf::Fields(fields) if self.count != fields.len() => {
                return Err(wrong_count(self.count, fields.len()));
            }
            ItemsOf::Row(_) => return Ok(()),
            ItemsOf::Vector(_) | ItemsOf::Fields(_) | ItemsOf::Bytes(_) => {}
        }
        close(self.out, content)
    }
}

/// Gives the element of a vector that begins here its form: without the length in front, or with a
/// shorter one.
fn reframe(out: &mut Vec<u8>, start: usize, vector: &Vector<'_>) -> Result<(), BindError> {
    let content = start + 4;
    let length = out.len().saturating_sub(content);
    match vector.element_bytes {
        Some(expected) if length != expected => {
            return Err(BindError::new(format_args!("an element of {length} bytes, expected {expected}")));
        }
        Some(_) => drop(out.drain(start..content)),
        None => {
            let length = Vint::unsigned(u64::try_from(length).unwrap_or(u64::MAX));
            drop(out.splice(start..content, length.as_slice().iter().copied()));
        }
    }
    Ok(())
}

fn write_count(out: &mut [u8], at: usize, count: usize) -> Result<(), BindError> {
    let count = i32::try_from(count).map_err(|_| BindError::new("too many elements"))?;
    write_int(out, at, count);
    Ok(())
}

/// Writes a map, a user-defined type or all variables, by names.
pub(super) struct Entries<'o, 'c> {
    out: &'o mut Vec<u8>,
    /// Where its length is.
    start: usize,
    kind: EntriesOf<'c>,
}

enum EntriesOf<'c> {
    Map {
        /// Of the keys and of the values.
        shapes: &'c (Shape<'c>, Shape<'c>),
        count: usize,
    },
    Named {
        fields: &'c [Field<'c>],
        /// Where the value of each field is, with its length.
        written: Vec<Option<Range<usize>>>,
        /// The name whose value follows.
        name: Vec<u8>,
        is_row: bool,
    },
    /// The class and the bytes of a custom type.
    Custom { target: Target<'c>, count: usize },
}

impl Entries<'_, '_> {
    fn put_key<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), BindError> {
        match &mut self.kind {
            EntriesOf::Map { shapes, count } => {
                *count += 1;
                let written = value.serialize(Writer::new(Target::Element(&shapes.0), self.out));
                written.map_err(BindError::inside)
            }
            EntriesOf::Named { name, .. } => {
                name.clear();
                value.serialize(Writer::new(Target::Name, name))
            }
            EntriesOf::Custom { target, .. } => {
                let mut class = Vec::new();
                value.serialize(Writer::new(Target::Name, &mut class))?;
                let expected = target.shape().and_then(|shape| shape.kind.class());
                if expected.is_some_and(|expected| expected.as_bytes() == class) {
                    Ok(())
                } else {
                    Err(BindError::new("a value of another class"))
                }
            }
        }
    }

    fn put_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), BindError> {
        let (fields, written, name, is_row) = match &mut self.kind {
            EntriesOf::Map { shapes, .. } => {
                let written = value.serialize(Writer::new(Target::Element(&shapes.1), self.out));
                return written.map_err(BindError::inside);
            }
            EntriesOf::Custom { target, count } => {
                *count += 1;
                return value.serialize(Writer { target: *target, form: Form::Own, out: self.out });
            }
            EntriesOf::Named { fields, written, name, is_row } => (*fields, written, name, *is_row),
        };
        let mut is_known = false;
        for (field, written) in fields.iter().zip(written).filter(|(field, _)| field.0.as_bytes() == name.as_slice()) {
            is_known = true;
            if written.is_some() {
                let error = BindError::new("two values");
                return Err(if is_row { error.named(&field.0) } else { error.in_field(&field.0) });
            }
            let start = self.out.len();
            let target = if is_row { Target::Variable(&field.1) } else { Target::Field(&field.1) };
            let result = value.serialize(Writer::new(target, self.out));
            result.map_err(|error| {
                if is_row { error.in_variable(field, type_name::<T>()) } else { error.inside().in_field(&field.0) }
            })?;
            *written = Some(start..self.out.len());
        }
        if is_known {
            return Ok(());
        }
        let name = cut(core::str::from_utf8(name).unwrap_or_default(), FIELD_BYTES_MAX);
        let of = if is_row { "the statement has no such variable" } else { "the type has no such field" };
        Err(BindError::new(format_args!("field {}: {of}", name.escape_debug())))
    }

    fn finish(self) -> Result<(), BindError> {
        let content = self.start + 4;
        let (fields, written, is_row) = match self.kind {
            EntriesOf::Map { count, .. } => {
                write_count(self.out, content, count)?;
                return close(self.out, content);
            }
            EntriesOf::Custom { count, .. } => return if count == 1 { Ok(()) } else { Err(wrong_count(count, 1)) },
            EntriesOf::Named { fields, written, is_row, .. } => (fields, written, is_row),
        };
        let start = if is_row { self.start } else { content };
        // Usually the fields were written in their order.
        let mut end = start;
        let in_order = written.iter().all(|range| {
            let is_next = range.as_ref().is_some_and(|range| range.start == end);
            end = range.as_ref().map_or(end, |range| range.end);
            is_next
        });
        if !in_order {
            let mut ordered = Vec::with_capacity(self.out.len() - start);
            for (range, (name, _)) in written.iter().zip(fields) {
                match range {
                    Some(range) => ordered.extend_from_slice(self.out.get(range.clone()).unwrap_or_default()),
                    None if is_row => return Err(BindError::new("no value").named(name)),
                    None => ordered.extend(NULL.to_be_bytes()),
                }
            }
            self.out.truncate(start);
            self.out.append(&mut ordered);
        }
        if is_row { Ok(()) } else { close(self.out, content) }
    }
}

/// Items are the same to serde in each of its traits.
macro_rules! items {
    ($($trait:ident: $method:ident,)+) => {$(
        impl $trait for Items<'_, '_> {
            type Ok = ();
            type Error = BindError;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), BindError> {
                self.put(value)
            }

            fn end(self) -> Result<(), BindError> {
                self.finish()
            }
        }
    )+};
}

items! {
    SerializeSeq: serialize_element,
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
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
