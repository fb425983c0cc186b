//! Decoding of request bodies, limited to the parts that the server needs, and encoding of reply bodies.

/// The parameters of a statement, as far as the server needs them.
#[derive(Debug)]
pub(super) struct Parameters<'a> {
    pub(super) values: Vec<&'a [u8]>,
    /// The description of the columns is omitted.
    pub(super) skip_metadata: bool,
}

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

    /// Reads the parameters that follow a statement.
    pub(super) fn parameters(&mut self, version: u8) -> Option<Parameters<'a>> {
        const VALUES: u8 = 0x01;
        const SKIP_METADATA: u8 = 0x02;
        const NAMES: u8 = 0x40;
        self.short()?;
        let flags = if version < 5 { self.array::<1>()?[0] } else { self.array::<4>()?[3] };
        let skip_metadata = flags & SKIP_METADATA != 0;
        if flags & VALUES == 0 {
            return Some(Parameters { values: Vec::new(), skip_metadata });
        }
        let values = self.values_with(flags & NAMES != 0)?;
        Some(Parameters { values, skip_metadata })
    }

    /// Reads the values of a statement of a batch.
    pub(super) fn values(&mut self) -> Option<Vec<&'a [u8]>> {
        self.values_with(false)
    }

    fn values_with(&mut self, are_named: bool) -> Option<Vec<&'a [u8]>> {
        let count = self.short()?;
        let mut values = Vec::new();
        for _ in 0..count {
            if are_named {
                self.short_bytes()?;
            }
            values.push(self.bytes()?.unwrap_or_default());
        }
        Some(values)
    }
}

/// Appends an `int`.
pub(super) fn int(body: &mut Vec<u8>, value: i32) {
    body.extend_from_slice(&value.to_be_bytes());
}

/// Appends a `short`.
pub(super) fn short(body: &mut Vec<u8>, value: u16) {
    body.extend_from_slice(&value.to_be_bytes());
}

/// Appends a count. Only for lengths of data of the server, which always fit.
pub(super) fn count(body: &mut Vec<u8>, value: usize) {
    int(body, i32::try_from(value).unwrap_or(i32::MAX));
}

/// Appends `short bytes`, at most 64 KiB of them.
pub(super) fn short_bytes(body: &mut Vec<u8>, bytes: &[u8]) {
    let bytes = bytes.get(..usize::from(u16::MAX)).unwrap_or(bytes);
    short(body, u16::try_from(bytes.len()).unwrap_or(u16::MAX));
    body.extend_from_slice(bytes);
}

/// Appends a `string`.
pub(super) fn string(body: &mut Vec<u8>, text: &str) {
    short_bytes(body, text.as_bytes());
}

/// Appends a `string list`.
pub(super) fn strings<'a>(body: &mut Vec<u8>, texts: impl ExactSizeIterator<Item = &'a str>) {
    short(body, u16::try_from(texts.len()).unwrap_or(u16::MAX));
    texts.for_each(|text| string(body, text));
}

/// Appends `bytes`.
pub(super) fn bytes(body: &mut Vec<u8>, bytes: &[u8]) {
    count(body, bytes.len());
    body.extend_from_slice(bytes);
}
