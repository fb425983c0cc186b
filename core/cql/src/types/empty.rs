//! Values that may be empty.

/// A value that may be empty: without bytes, although its type has no such value, as an int has none.
/// Such values are rare: clients of old protocols and tables without CQL have written them. Empty is not
/// null; `Option<MaybeEmpty<T>>` distinguishes the three.
///
/// With formats other than CQL it is an `Option`, but not within serde's `flatten` or `untagged`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MaybeEmpty<T> {
    /// A value without bytes.
    #[default]
    Empty,
    /// A value of the type.
    Value(T),
}

impl<T> MaybeEmpty<T> {
    /// The value; `None` if it is empty.
    pub fn value(self) -> Option<T> {
        match self {
            Self::Empty => None,
            Self::Value(value) => Some(value),
        }
    }
}
