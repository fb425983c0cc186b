//! Reading of the protocol's notations, of which bodies consist.
//!
//! Read first: Native Protocol, "Notations".

#[cfg(test)]
mod tests;

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::error::{CqlError, CqlErrorKind};
use poolhouse_wire::saturate;

/// The unread bytes, and the offset of the first of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Reader<'a> {
    pub(super) rest: &'a [u8],
    pub(super) at: u32,
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Content may be secret: only length and offset are shown.
        write!(f, "Reader({} bytes at {})", self.rest.len(), self.at)
    }
}

impl<'a> Reader<'a> {
    pub(super) const fn new(rest: &'a [u8], at: u32) -> Self {
        Self { rest, at }
    }

    pub(super) const fn error(&self, kind: CqlErrorKind) -> CqlError {
        CqlError::new(kind, self.at)
    }

    #[cold]
    fn truncated(&self, needed: usize) -> CqlError {
        self.error(CqlErrorKind::Truncated { needed_bytes: saturate(needed), found_bytes: saturate(self.rest.len()) })
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], CqlError> {
        let Some((head, tail)) = self.rest.split_at_checked(count) else {
            return Err(self.truncated(count));
        };
        self.rest = tail;
        self.at = self.at.saturating_add(saturate(count));
        Ok(head)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], CqlError> {
        let Some((head, tail)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.truncated(N));
        };
        self.rest = tail;
        self.at = self.at.saturating_add(saturate(N));
        Ok(*head)
    }

    /// Reads a `byte`.
    pub(super) fn u8(&mut self) -> Result<u8, CqlError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    /// Reads a `short`.
    pub(super) fn u16(&mut self) -> Result<u16, CqlError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// Reads an `int`.
    pub(super) fn i32(&mut self) -> Result<i32, CqlError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// Reads a `string`.
    pub(super) fn string(&mut self) -> Result<&'a str, CqlError> {
        let len = self.u16()?;
        let at = self.at;
        let bytes = self.take(usize::from(len))?;
        core::str::from_utf8(bytes).map_err(|_| CqlError::new(CqlErrorKind::Utf8, at))
    }

    /// Reads `bytes`, which may be null.
    pub(super) fn bytes(&mut self) -> Result<Option<&'a [u8]>, CqlError> {
        match usize::try_from(self.i32()?) {
            Ok(len) => self.take(len).map(Some),
            // Any negative length means null.
            Err(_) => Ok(None),
        }
    }

    /// Reads `short bytes`.
    pub(super) fn short_bytes(&mut self) -> Result<&'a [u8], CqlError> {
        let len = self.u16()?;
        self.take(usize::from(len))
    }

    /// Reads a `string list`. Linear in its bytes.
    pub(super) fn strings(&mut self) -> Result<Strings<'a>, CqlError> {
        let count = self.u16()?;
        let mut walk = *self;
        for _ in 0..count {
            walk.string()?;
        }
        Ok(Strings { left: count, entries: core::mem::replace(self, walk) })
    }

    /// Reads a `bytes map`. Linear in its bytes.
    pub(super) fn bytes_map(&mut self) -> Result<BytesMap<'a>, CqlError> {
        let count = self.u16()?;
        let mut walk = *self;
        for _ in 0..count {
            walk.string()?;
            walk.bytes()?;
        }
        Ok(BytesMap { left: count, entries: core::mem::replace(self, walk) })
    }

    /// Reads a `string multimap`. Linear in its bytes.
    pub(super) fn multimap(&mut self) -> Result<Multimap<'a>, CqlError> {
        let count = self.u16()?;
        let mut walk = *self;
        for _ in 0..count {
            walk.string()?;
            walk.strings()?;
        }
        Ok(Multimap { left: count, entries: core::mem::replace(self, walk) })
    }

    /// Reads an `inet`.
    pub(super) fn inet(&mut self) -> Result<SocketAddr, CqlError> {
        let start = *self;
        let ip = match self.u8()? {
            4 => IpAddr::V4(Ipv4Addr::from(self.array::<4>()?)),
            16 => IpAddr::V6(Ipv6Addr::from(self.array::<16>()?)),
            size => return Err(start.error(field("address size", i64::from(size)))),
        };
        let start = *self;
        let port = self.i32()?;
        let port = u16::try_from(port).map_err(|_| start.error(field("port", i64::from(port))))?;
        Ok(SocketAddr::new(ip, port))
    }
}

/// The error of a field with a value that is not allowed.
pub(super) const fn field(name: &'static str, value: i64) -> CqlErrorKind {
    CqlErrorKind::FieldValue { name, value }
}

/// The strings of a list. All are known to be well-formed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Strings<'a> {
    left: u16,
    entries: Reader<'a>,
}

/// The entries of a map from strings to bytes. All are known to be well-formed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BytesMap<'a> {
    left: u16,
    entries: Reader<'a>,
}

/// The entries of a map from strings to lists of strings. All are known to be well-formed; keys may
/// repeat.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Multimap<'a> {
    left: u16,
    entries: Reader<'a>,
}

impl Strings<'_> {
    /// The empty list.
    pub const EMPTY: Self = Self { left: 0, entries: Reader::new(&[], 0) };
}

impl BytesMap<'_> {
    /// The empty map.
    pub const EMPTY: Self = Self { left: 0, entries: Reader::new(&[], 0) };
}

impl<'a> Multimap<'a> {
    /// The empty map.
    pub const EMPTY: Self = Self { left: 0, entries: Reader::new(&[], 0) };

    /// All values of a key, in order; those of repeated keys are concatenated. Cost: linear in the
    /// map.
    pub fn values<'k>(self, key: &'k str) -> impl Iterator<Item = &'a str> + use<'a, 'k> {
        self.filter(move |(name, _)| *name == key).flat_map(|(_, values)| values)
    }
}

impl<'a> Iterator for Strings<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.left = self.left.checked_sub(1)?;
        self.entries.string().ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        exactly(self.left)
    }
}

impl ExactSizeIterator for Strings<'_> {}

impl<'a> Iterator for BytesMap<'a> {
    type Item = (&'a str, Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some((self.entries.string().ok()?, self.entries.bytes().ok()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        exactly(self.left)
    }
}

impl ExactSizeIterator for BytesMap<'_> {}

impl<'a> Iterator for Multimap<'a> {
    type Item = (&'a str, Strings<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some((self.entries.string().ok()?, self.entries.strings().ok()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        exactly(self.left)
    }
}

impl ExactSizeIterator for Multimap<'_> {}

fn exactly(left: u16) -> (usize, Option<usize>) {
    (usize::from(left), Some(usize::from(left)))
}

impl fmt::Debug for Strings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

impl fmt::Debug for BytesMap<'_> {
    /// Omits the bytes, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.map(|(key, bytes)| (key, bytes.map(<[u8]>::len)))).finish()
    }
}

impl fmt::Debug for Multimap<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(*self).finish()
    }
}
