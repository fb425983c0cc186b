//! Typed access to the fields of replies, with errors that name the field.

use super::bson::{Element, Raw, RawArray, RawDocument, RawValue};
use super::error::{WireError, WireErrorKind};
use crate::{server::ObjectId, server::TopologyVersion};

/// A field, with the name that errors use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    name: &'static str,
    pub(super) element: Element<'a>,
}

impl<'a> Field<'a> {
    pub(super) const fn new(name: &'static str, element: Element<'a>) -> Self {
        Self { name, element }
    }

    /// Decodes the value of an element with this key; `None` if it counts as absent.
    pub(super) fn read(name: &'static str, raw: Raw<'a>) -> Result<Option<Self>, WireError> {
        let element = raw.element_of(name)?;
        let is_absent = matches!(element.value, RawValue::Null | RawValue::Undefined);
        Ok((!is_absent).then_some(Self { name, element }))
    }

    fn wrong_type(&self) -> WireError {
        let found = self.element.value.element_type();
        WireError::new(WireErrorKind::FieldType { name: self.name, found }, self.element.offset)
    }

    fn wrong_value(&self) -> WireError {
        WireError::new(WireErrorKind::FieldValue { name: self.name }, self.element.offset)
    }

    fn required<T>(&self, value: Option<T>) -> Result<T, WireError> {
        value.ok_or_else(|| self.wrong_type())
    }

    /// The text; an error for any other type.
    pub(super) fn text(&self) -> Result<&'a str, WireError> {
        self.required(self.element.value.as_str())
    }

    /// A boolean, or whether a number is not zero; an error for any other type.
    pub(super) fn flag(&self) -> Result<bool, WireError> {
        self.required(self.element.value.as_flag())
    }

    /// The `ObjectId`; an error for any other type.
    pub(super) fn object_id(&self) -> Result<ObjectId, WireError> {
        self.required(self.element.value.as_object_id())
    }

    /// A whole number of any numeric type; an error for anything else.
    pub(super) fn integer(&self) -> Result<i64, WireError> {
        self.required(self.element.value.as_integer())
    }

    /// A whole number that fits into 32 bits; an error for anything else.
    pub(super) fn integer32(&self) -> Result<i32, WireError> {
        i32::try_from(self.integer()?).map_err(|_| self.wrong_value())
    }

    /// A whole number from 0 to 2³¹ - 1; an error for anything else.
    pub(super) fn count32(&self) -> Result<i32, WireError> {
        let value = self.integer32()?;
        if value < 0 { Err(self.wrong_value()) } else { Ok(value) }
    }

    /// An array of strings only; an error for anything else.
    pub(super) fn texts(&self) -> Result<RawArray<'a>, WireError> {
        let array = self.required(self.element.value.as_array())?;
        for element in array.as_document() {
            Field::new(self.name, element?).text()?;
        }
        Ok(array)
    }

    /// A document; an error for any other type.
    pub(super) fn document(&self) -> Result<RawDocument<'a>, WireError> {
        self.required(self.element.value.as_document())
    }

    /// The value of `ok`: true for 1 of any numeric type and for `true`, false for other numbers
    /// and `false`; an error for any other type.
    pub(super) fn ok(&self) -> Result<bool, WireError> {
        let value = self.element.value;
        if let RawValue::Double(number) = value {
            return Ok(number.to_bits() == 1.0_f64.to_bits());
        }
        self.required(value.as_bool().or_else(|| value.as_integer().map(|number| number == 1)))
    }

    /// A topology version with both fields; an error for anything else.
    ///
    /// Source: SDAM, "TopologyVersion".
    pub(super) fn topology_version(&self) -> Result<TopologyVersion, WireError> {
        let (mut process_id, mut counter) = (None, None);
        for element in self.document()? {
            let element = element?;
            match element.key {
                "processId" => put(&mut process_id, Self::new("topologyVersion.processId", element).object_id()?),
                "counter" => put(&mut counter, Self::new("topologyVersion.counter", element).integer()?),
                _ => {}
            }
        }
        let missing = |name| WireError::new(WireErrorKind::FieldMissing { name }, self.element.offset);
        Ok(TopologyVersion {
            process_id: process_id.ok_or(missing("topologyVersion.processId"))?,
            counter: counter.ok_or(missing("topologyVersion.counter"))?,
        })
    }
}

/// Stores the value unless one is already stored: if a field is repeated, the first one is used, as
/// in [`RawDocument::get`].
pub(super) fn put<T>(slot: &mut Option<T>, value: T) {
    slot.get_or_insert(value);
}
