//! Decoding of request bodies, limited to the parts that the server needs.

use poolhouse_cql::Version;

/// The unread rest of a body. Each method returns `None` if too few bytes are left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body<'a>(pub(super) &'a [u8]);

impl<'a> Body<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }

    pub(super) fn short(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn int(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    /// A `string` or `short bytes`.
    pub(super) fn short_bytes(&mut self) -> Option<&'a [u8]> {
        let count = self.short()?;
        self.take(usize::from(count))
    }

    /// A `long string`.
    pub(super) fn long_string(&mut self) -> Option<&'a [u8]> {
        let count = usize::try_from(self.int()?).ok()?;
        self.take(count)
    }

    /// A `string`.
    pub(super) fn string(&mut self) -> Option<&'a str> {
        core::str::from_utf8(self.short_bytes()?).ok()
    }

    /// `bytes`; the inner `None` is null or unset.
    pub(super) fn bytes(&mut self) -> Option<Option<&'a [u8]>> {
        match usize::try_from(self.int()?) {
            Ok(count) => self.take(count).map(Some),
            Err(_) => Some(None),
        }
    }

    /// Skips a `bytes map`.
    pub(super) fn skip_bytes_map(&mut self) -> Option<()> {
        for _ in 0..self.short()? {
            self.short_bytes()?;
            self.bytes()?;
        }
        Some(())
    }

    /// Reads the values of the parameters that follow a statement.
    pub(super) fn values(&mut self, version: Version) -> Option<Vec<&'a [u8]>> {
        const VALUES: u8 = 0x01;
        const NAMES: u8 = 0x40;
        self.short()?;
        let flags = match version {
            Version::V3 | Version::V4 => self.array::<1>()?[0],
            Version::V5 => self.array::<4>()?[3],
        };
        if flags & VALUES == 0 {
            return Some(Vec::new());
        }
        let count = self.short()?;
        let mut values = Vec::new();
        for _ in 0..count {
            if flags & NAMES != 0 {
                self.short_bytes()?;
            }
            values.push(self.bytes()?.unwrap_or_default());
        }
        Some(values)
    }
}
