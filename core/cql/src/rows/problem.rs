//! The common part of the errors of rows and of bind variables.

#[cfg(test)]
mod tests;

use super::kind::cut;
use super::shape::Shape;
use alloc::format;
use alloc::string::{String, ToString as _};
use core::fmt;

/// The maximum length in bytes of the name of a column or a variable in an error; the rest is left out.
const NAME_BYTES_MAX: usize = 48;
/// The maximum length in bytes of the name of a type of Rust in an error; the rest is left out.
const RUST_BYTES_MAX: usize = 64;
/// The maximum length in bytes of each other text in an error; the rest is left out.
const TEXT_BYTES_MAX: usize = 128;

/// The reason why a value of a column or of a variable is refused.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Problem {
    /// The column or the variable; empty if the problem is not that of one of them.
    pub(super) name: String,
    text: String,
    /// The right form; empty if it is not known.
    expected: String,
    /// Whether the problem is only that the types do not fit. Then the text is that of the found type.
    is_mismatch: bool,
    /// Whether the problem is that of a value inside the value of the column or variable.
    is_inside: bool,
    /// Whether the text begins with the name of a field.
    has_field: bool,
}

/// The value whose problem it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// Of a column, which is read: a type of Rust is wanted.
    Column,
    /// Of a variable, which is written: a type of CQL is wanted.
    Variable,
}

impl Problem {
    pub(super) fn new(text: impl fmt::Display) -> Self {
        let text = cut(&text.to_string(), TEXT_BYTES_MAX).into();
        let expected = String::new();
        Self { name: String::new(), text, expected, is_mismatch: false, is_inside: false, has_field: false }
    }

    /// The value of the type is wrong.
    pub(super) fn value(text: impl fmt::Display, expected: impl fmt::Display) -> Self {
        Self { expected: cut(&expected.to_string(), TEXT_BYTES_MAX).into(), ..Self::new(text) }
    }

    /// The type is wrong.
    pub(super) fn mismatch(found: impl fmt::Display, expected: impl fmt::Display) -> Self {
        Self { is_mismatch: true, ..Self::value(found, expected) }
    }

    /// Notes that the problem is that of a value inside.
    ///
    /// - `found`: its type, if that was found and is not expected.
    pub(super) fn inside(mut self, found: Option<&Shape<'_>>) -> Self {
        if let (false, true, Some(found)) = (self.is_inside, self.is_mismatch, found) {
            self.text = found.to_string();
        }
        self.is_inside = true;
        self
    }

    /// Notes that the problem is that of a value inside this field. Only the innermost field is named.
    pub(super) fn in_field(mut self, name: &str) -> Self {
        if !self.has_field && !name.is_empty() {
            // The name is the server's text.
            self.text = format!("field {}: {}", cut(name, NAME_BYTES_MAX).escape_debug(), self.text);
            self.has_field = true;
        }
        self
    }

    pub(super) fn named(mut self, name: &str) -> Self {
        if self.name.is_empty() {
            self.name = cut(name, NAME_BYTES_MAX).into();
        }
        self
    }

    /// Notes the name and the type of the column or of the variable, and the type of Rust.
    pub(super) fn of(mut self, subject: Subject, name: &str, shape: &Shape<'_>, rust: &str) -> Self {
        if !self.name.is_empty() {
            return self;
        }
        let is_plain = self.is_mismatch && !self.is_inside;
        if is_plain && subject == Subject::Column {
            self.text = shape.to_string();
        }
        let mut detail = core::mem::take(&mut self.text);
        let rust = rust_name(rust);
        if !self.expected.is_empty() && (self.is_inside || is_plain && rust.is_none()) {
            detail = format!("{detail}, expected {}", self.expected);
        }
        self.text = match rust {
            Some(rust) => {
                let fits = match subject {
                    Subject::Column => format!("{shape} does not fit {rust}"),
                    Subject::Variable => format!("{rust} does not fit {shape}"),
                };
                if is_plain { fits } else { format!("{fits}: {detail}") }
            }
            None if is_plain => detail,
            None => format!("{shape}: {detail}"),
        };
        self.expected.clear();
        self.named(name)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        if self.expected.is_empty() { Ok(()) } else { write!(f, ", expected {}", self.expected) }
    }
}

/// The name of a type without the paths of modules, such as `Vec<Option<i64>>`; `None` if it is a type
/// of serde's macros, which says nothing to the reader.
fn rust_name(full: &str) -> Option<String> {
    let is_serde = full.starts_with("serde::") || full.starts_with("serde_core::");
    if is_serde || full.contains("serde_core::private::") || full.contains("__") || full.contains('{') {
        return None;
    }
    // Some compilers name lifetimes, none of which says more than this.
    let full = full.replace("<'_>", "").replace("'_, ", "");
    let is_path = |one: char| one.is_alphanumeric() || matches!(one, '_' | ':');
    let mut name = String::new();
    for part in full.split_inclusive(|one| !is_path(one)) {
        name.push_str(part.rsplit("::").next().unwrap_or_default());
        if name.len() > RUST_BYTES_MAX {
            let kept = cut(&name, RUST_BYTES_MAX).len();
            name.truncate(kept);
            name.push_str("..");
            break;
        }
    }
    Some(name)
}
