//! Types with those that they contain, read once for all values of a column or of a variable.

#[cfg(test)]
mod tests;

use super::Columns;
use super::kind::{Described, Type, TypeName, id};
use crate::types::pass::name;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// The maximum number of types in the description of a result or of bind variables. Each takes up to 80
/// bytes, and a user-defined type 96 more.
const TYPES_MAX: usize = 8192;

/// The maximum length in bytes of such a description, because the bytes of a type are read again for
/// each type that contains it, up to 64 times. It is 128 for each of the most types: names of keyspaces
/// and tables have at most 48, and servers usually send those once for all columns.
const DESCRIPTION_BYTES_MAX: usize = 1024 * 1024;

/// A type, with those that it contains.
pub(super) struct Shape<'a> {
    pub(super) kind: Type<'a>,
    pub(super) inner: Inner<'a>,
}

/// The types that a type contains.
pub(super) enum Inner<'a> {
    None,
    /// Of a list or a set.
    Element(Box<Shape<'a>>),
    /// Of a map: keys and values.
    Entry(Box<(Shape<'a>, Shape<'a>)>),
    /// Of a tuple, where fields have no names.
    Fields(Vec<Field<'a>>),
    Udt(Box<Udt<'a>>),
    Vector(Box<Vector<'a>>),
}

/// A field, a column or a variable: its name and its type.
pub(super) type Field<'a> = (Cow<'a, str>, Shape<'a>);

// Source of the bytes named at `TYPES_MAX`.
const _: () = assert!(size_of::<Field<'_>>() <= 80 && size_of::<Udt<'_>>() <= 96);

/// A user-defined type.
pub(super) struct Udt<'a> {
    /// Its keyspace and its name.
    name: Option<(&'a str, TypeName<'a>)>,
    pub(super) fields: Vec<Field<'a>>,
    /// The places of the fields that are lists, sets or maps, in the order of their names.
    collections: Vec<u16>,
    /// The place after the last of them.
    collections_end: usize,
}

impl<'a> Udt<'a> {
    fn new(name: Option<(&'a str, TypeName<'a>)>, fields: Vec<Field<'a>>) -> Self {
        let is_collection = |shape: &Shape<'_>| matches!(shape.inner, Inner::Element(_) | Inner::Entry(_));
        let places = (0..).zip(&fields).filter(|(_, (_, shape))| is_collection(shape)).map(|(place, _)| place);
        let mut collections: Vec<u16> = places.collect();
        let collections_end = collections.last().map_or(0, |place| usize::from(*place) + 1);
        collections.sort_unstable_by_key(|place| name_at(&fields, *place));
        Self { name, fields, collections, collections_end }
    }

    /// Whether a list, a set or a map is at this place or after it.
    pub(super) const fn has_collection(&self, first: usize) -> bool {
        first < self.collections_end
    }

    /// The list, set or map with this name, unless it is before this place.
    ///
    /// Cost: a binary search.
    pub(super) fn collection(&self, name: &str, first: usize) -> Option<&Field<'a>> {
        let found = self.collections.binary_search_by_key(&name, |place| name_at(&self.fields, *place)).ok()?;
        let place = self.collections.get(found).map(|place| usize::from(*place)).filter(|place| *place >= first)?;
        self.fields.get(place)
    }
}

fn name_at<'c>(fields: &'c [Field<'_>], place: u16) -> &'c str {
    fields.get(usize::from(place)).map_or("", |(name, _)| name)
}

pub(super) struct Vector<'a> {
    pub(super) element: Shape<'a>,
    pub(super) dimension: usize,
    /// The length of each element; `None` if each has its own length in front.
    pub(super) element_bytes: Option<usize>,
}

/// Returns the names and the types of columns or variables; `None` if they have more than
/// [`TYPES_MAX`] types or [`DESCRIPTION_BYTES_MAX`] bytes.
pub(super) fn fields<'a>(mut columns: Columns<'a>) -> Option<Vec<Field<'a>>> {
    // Each column has a type. Nothing is reserved for more of them than are allowed.
    if columns.len() > TYPES_MAX {
        return None;
    }
    let mut left = TYPES_MAX;
    let bytes = columns.entries.rest.len();
    let mut fields = Vec::with_capacity(columns.len());
    while let Some(column) = columns.next() {
        if bytes - columns.entries.rest.len() > DESCRIPTION_BYTES_MAX {
            return None;
        }
        fields.push((Cow::Borrowed(column.name), Shape::of(column.kind, &mut left)?));
    }
    Some(fields)
}

/// The error of a description that is too long.
pub(super) const TOO_LONG: &str = "more than 8,192 types or 1 MiB in one description";

impl<'a> Shape<'a> {
    /// Its depth is limited, because the description was checked: see [`TYPE_DEPTH_MAX`](super::TYPE_DEPTH_MAX).
    ///
    /// - `left`: the number of types that may be read.
    fn of(kind: Type<'a>, left: &mut usize) -> Option<Self> {
        *left = left.checked_sub(1)?;
        if !matches!(kind.id(), Type::CUSTOM | Type::LIST..) {
            return Some(Self { kind, inner: Inner::None });
        }
        let mut contained = kind.contained();
        let mut next = |left: &mut usize| contained.next().and_then(|(_, kind)| Self::of(kind, left));
        let inner = match kind.id() {
            Type::LIST | Type::SET => Inner::Element(Box::new(next(left)?)),
            Type::MAP => Inner::Entry(Box::new((next(left)?, next(left)?))),
            id @ (Type::TUPLE | Type::UDT) => {
                let fields = kind.fields().map(|(name, kind)| Some((text(name), Self::of(kind, left)?)));
                let fields = fields.collect::<Option<_>>()?;
                if id == Type::UDT {
                    Inner::Udt(Box::new(Udt::new(kind.udt_name(), fields)))
                } else {
                    Inner::Fields(fields)
                }
            }
            Type::CUSTOM => match kind.vector() {
                Some(vector) => Inner::Vector(Box::new(Vector {
                    element: Self::of(vector.element, left)?,
                    dimension: vector.dimension,
                    element_bytes: vector.element_bytes,
                })),
                None => Inner::None,
            },
            _ => Inner::None,
        };
        Some(Self { kind, inner })
    }

    pub(super) const fn id(&self) -> u16 {
        self.kind.id()
    }

    /// Whether a value without any bytes is a value of the type. Of a collection it is one without
    /// elements, of a tuple or a user-defined type one whose fields are all null.
    pub(super) const fn has_empty(&self) -> bool {
        match self.inner {
            Inner::Element(_) | Inner::Entry(_) | Inner::Fields(_) | Inner::Udt(_) => true,
            Inner::Vector(_) => false,
            Inner::None => self.is_bytes() || matches!(self.id(), id::ASCII | id::VARCHAR),
        }
    }

    /// Whether values of the type of this crate with this name are values of this type.
    pub(super) fn is_own(&self, name: &str) -> bool {
        match name {
            name::TIMESTAMP => self.id() == id::TIMESTAMP,
            name::DATE => self.id() == id::DATE,
            name::TIME => self.id() == id::TIME,
            name::DURATION => self.id() == id::DURATION,
            name::VARINT => self.id() == id::VARINT,
            name::DECIMAL => self.id() == id::DECIMAL,
            name::UUID => matches!(self.id(), id::UUID | id::TIMEUUID),
            name::CUSTOM => self.is_bytes() && self.id() == Type::CUSTOM,
            _ => false,
        }
    }

    /// Checks the length of a value that is read or given as bytes.
    pub(super) const fn is_length(&self, length: usize) -> bool {
        match self.id() {
            id::UUID | id::TIMEUUID => length == 16,
            id::INET => length == 4 || length == 16,
            _ => true,
        }
    }

    /// Whether values are bytes without a meaning that is known here.
    pub(super) const fn is_bytes(&self) -> bool {
        match self.id() {
            id::BLOB => true,
            Type::CUSTOM => matches!(self.inner, Inner::None),
            id => (id == 0x0a || id > id::DURATION) && matches!(self.inner, Inner::None),
        }
    }
}

/// Unlike a [`Type`], which is read again for each of its texts, a shape has been read: a text takes no
/// longer than its length. Hence errors show shapes, of which there may be one for each value.
impl<'a> Described<'a> for &Shape<'a> {
    fn kind(&self) -> Type<'a> {
        self.kind
    }

    fn name(&self) -> Option<(&'a str, TypeName<'a>)> {
        if let Inner::Udt(udt) = &self.inner { udt.name } else { None }
    }

    fn dimensioned(&self) -> Option<(Self, usize)> {
        if let Inner::Vector(vector) = &self.inner { Some((&vector.element, vector.dimension)) } else { None }
    }

    fn parts(&self) -> impl Iterator<Item = Self> {
        let (one, two, fields) = match &self.inner {
            Inner::Element(element) => (Some(&**element), None, &[][..]),
            Inner::Entry(shapes) => (Some(&shapes.0), Some(&shapes.1), &[][..]),
            Inner::Fields(fields) => (None, None, &fields[..]),
            Inner::None | Inner::Udt(_) | Inner::Vector(_) => (None, None, &[][..]),
        };
        one.into_iter().chain(two).chain(fields.iter().map(|(_, shape)| shape))
    }
}

impl fmt::Display for Shape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Described::fmt(&self, f)
    }
}

fn text(name: TypeName<'_>) -> Cow<'_, str> {
    name.as_str().map_or_else(|| Cow::Owned(name.chars().collect()), Cow::Borrowed)
}
