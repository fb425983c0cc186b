//! Where a topology keeps its servers and texts.

use super::description::Data;
use super::texts::TextId;
use crate::storage::{Slots, Store};
use crate::{Cause, Instant};

#[cfg(test)]
mod tests;

/// A server's description: what every build has of it, and its names (hosts, passives, arbiters, tags).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Description<N> {
    pub(super) data: Data,
    pub(super) names: N,
}

impl<N: Store<TextId>> Description<N> {
    #[inline]
    pub(super) fn empty() -> Self {
        Self { data: Data::unknown(None, Instant::ORIGIN), names: N::empty() }
    }

    /// Makes it the default description, with this error.
    pub(super) fn reset(&mut self, data: Data) {
        self.data = data;
        clear(&mut self.names);
    }

    /// Copies another one; allocates only when that one has more names than this one ever had.
    pub(super) fn copy_from(&mut self, other: &Self) -> Result<(), crate::storage::Full> {
        clear(&mut self.names);
        let names = other.names.slots();
        self.names.reserve(u32::try_from(names.len()).unwrap_or(u32::MAX))?;
        for name in names {
            self.names.try_push(*name)?;
        }
        self.data = other.data;
        Ok(())
    }
}

/// Empties a store, which keeps its room.
pub(super) fn clear<T>(store: &mut impl Store<T>) {
    while store.pop().is_some() {}
}

/// Whether a place is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// By nobody.
    Free,
    /// By a member of the topology.
    Member,
    /// By a server that is gone, until its host was told.
    Gone,
}

/// What is owed to the host for one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Owed {
    pub(super) added: bool,
    pub(super) clear: Option<Cause>,
    pub(super) ready: bool,
    pub(super) cancel: bool,
    pub(super) check: bool,
    pub(super) removed: bool,
}

impl Owed {
    pub(super) const fn has_check(&self) -> bool {
        self.cancel || self.check
    }

    pub(super) const NONE: Self =
        Self { added: false, clear: None, ready: false, cancel: false, check: false, removed: false };

    pub(super) const fn is_any(&self) -> bool {
        self.added || self.clear.is_some() || self.ready || self.cancel || self.check || self.removed
    }
}

/// A place for a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ServerSlot<N> {
    pub(super) place: Place,
    /// It came, or went, in the update that is under way.
    pub(super) moved: bool,
    /// Its previous description is in this spare place, while an update is under way.
    pub(super) saved: Option<u8>,
    pub(super) owed: Owed,
    pub(super) serial: u32,
    pub(super) address: TextId,
    pub(super) description: Description<N>,
}

/// Where a topology keeps its servers: [`Fixed`] or, with feature `alloc`, `OnHeap`.
pub trait Memory {
    /// As many as servers.
    type PerServer<T>: Store<T>;
    /// As many as names in one server's reply.
    type PerName<T>: Store<T>;
    /// As many as different texts.
    type PerText<T>: Store<T>;
    /// The bytes of all texts.
    type Bytes: Store<u8>;
    /// The most names in one reply.
    const NAMES_MAX: u16;
    /// The most servers.
    const SERVERS_MAX: u32;
    /// The most texts.
    const TEXTS_MAX: u16;
    /// The most bytes of all texts together.
    const BYTES_MAX: u32;
}

pub(super) type Names<M> = Slots<TextId, <M as Memory>::PerName<TextId>>;
pub(super) type Servers<M> = Slots<ServerSlot<Names<M>>, <M as Memory>::PerServer<ServerSlot<Names<M>>>>;

/// In place.
///
/// - `SERVERS`: members, and those that are being replaced: one update may bring new members before the old ones'
///   places are free. One or two more than the set is ever to have will do.
/// - `NAMES`: hosts, passives, arbiters and tags in one server's reply. Tags that do not fit beside the hosts are left out.
/// - `TEXTS`: different addresses, set names and tags in the whole topology, and `BYTES`: their bytes, each with 4 more.
///
/// When a primary names so many new members that they do not fit beside those that they replace, those are removed at once, and the new ones come with the
/// next check, which is asked for. A tag whose name and value together have more than 255 bytes is left out. Any other thing that does not fit makes the server that said it
/// Unknown with [`ServerError::Beyond`](super::ServerError::Beyond).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fixed<const SERVERS: usize, const NAMES: usize, const TEXTS: usize, const BYTES: usize>;

impl<const SERVERS: usize, const NAMES: usize, const TEXTS: usize, const BYTES: usize> Memory
    for Fixed<SERVERS, NAMES, TEXTS, BYTES>
{
    type PerServer<T> = heapless::Vec<T, SERVERS>;
    type PerName<T> = heapless::Vec<T, NAMES>;
    type PerText<T> = heapless::Vec<T, TEXTS>;
    type Bytes = heapless::Vec<u8, BYTES>;
    const NAMES_MAX: u16 = at_most_u16(NAMES);
    const SERVERS_MAX: u32 = at_most_u16(SERVERS) as u32;
    const TEXTS_MAX: u16 = at_most_u16(TEXTS);
    const BYTES_MAX: u32 = if BYTES > 0x7fff_ffff { 0x7fff_ffff } else { truncated(BYTES) };
}

/// The largest number of texts: one less names none.
const fn at_most_u16(count: usize) -> u16 {
    if count >= 0xffff { 0xfffe } else { (truncated(count) & 0xffff) as u16 }
}

#[allow(clippy::cast_possible_truncation, reason = "the callers have compared")]
const fn truncated(count: usize) -> u32 {
    count as u32
}

/// On the heap, growing with the servers and their names; up to 2,048 servers, 512 names in a reply and 16,384
/// different texts of 4 MiB together, so that no peer can make it grow without end. A reply that does not fit is treated as in [`Fixed`].
#[cfg(feature = "alloc")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OnHeap;

#[cfg(feature = "alloc")]
impl Memory for OnHeap {
    type PerServer<T> = crate::storage::Heap<T>;
    type PerName<T> = crate::storage::Heap<T>;
    type PerText<T> = crate::storage::Heap<T>;
    type Bytes = crate::storage::Heap<u8>;
    const NAMES_MAX: u16 = 512;
    const SERVERS_MAX: u32 = 2048;
    const TEXTS_MAX: u16 = 16_384;
    const BYTES_MAX: u32 = 4 << 20;
}
