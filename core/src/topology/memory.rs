//! Storage of a topology's servers and texts.

use super::description::Data;
use super::texts::TextId;
use crate::storage::{Slots, Store};
use crate::{Cause, Instant};

#[cfg(test)]
mod tests;

/// A server's description: the data of fixed size, and its names (hosts, passives, arbiters, tags).
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

    /// Replaces the data and removes all names.
    pub(super) fn reset(&mut self, data: Data) {
        self.data = data;
        clear(&mut self.names);
    }

    /// Copies another description. Allocates only if the other one has more names than this one
    /// ever had.
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

/// Empties a store and keeps its capacity.
pub(super) fn clear<T>(store: &mut impl Store<T>) {
    while store.pop().is_some() {}
}

/// The use of a server slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum SlotState {
    /// Not in use.
    Free,
    /// Used by a member of the topology.
    Member,
    /// Used by a removed server, until the host has polled its removal.
    Gone,
}

/// Actions owed to the host for one server.
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

/// A slot for a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ServerSlot<N> {
    pub(super) state: SlotState,
    /// Whether its server was added or removed in the update in progress.
    pub(super) moved: bool,
    /// The index of the spare that holds its previous description, during an update.
    pub(super) saved: Option<u8>,
    pub(super) owed: Owed,
    pub(super) serial: u32,
    pub(super) address: TextId,
    pub(super) description: Description<N>,
}

/// The storage types of a topology: [`Fixed`], [`Direct`] or, with feature `alloc`, `OnHeap`.
pub trait Memory {
    /// Storage with one entry for each server.
    type PerServer<T>: Store<T>;
    /// Storage with one entry for each name in one server's reply.
    type PerName<T>: Store<T>;
    /// Storage with one entry for each distinct text.
    type PerText<T>: Store<T>;
    /// The bytes of all texts.
    type Bytes: Store<u8>;
    /// The maximum number of names in one reply.
    const NAMES_MAX: u16;
    /// The maximum number of servers.
    const SERVERS_MAX: u32;
    /// The maximum number of texts.
    const TEXTS_MAX: u16;
    /// The maximum number of bytes of all texts together.
    const BYTES_MAX: u32;
    /// Whether the topology is always of type Single. Most code for other types is then left out of
    /// programs.
    const DIRECT_ONLY: bool = false;
}

pub(super) type Names<M> = Slots<TextId, <M as Memory>::PerName<TextId>>;
pub(super) type Servers<M> = Slots<ServerSlot<Names<M>>, <M as Memory>::PerServer<ServerSlot<Names<M>>>>;

/// Storage of fixed size, without allocation.
///
/// - `SERVERS`: members, including those that are being replaced: one update may add new members
///   before the slots of the old ones are free. One or two more than the maximum size of the set
///   are enough.
/// - `NAMES`: hosts, passives, arbiters and tags in one server's reply. Tags that do not fit in
///   addition to the hosts are dropped.
/// - `TEXTS`: distinct addresses, set names and tags in the whole topology, and `BYTES`: their
///   bytes, plus 4 for each text.
///
/// When a primary names so many new members that they do not fit in addition to the members that
/// they replace, those are removed at once, and a check is requested. That check adds the new
/// members. A tag whose name and value together have more than 255 bytes is dropped. Any other
/// entry that does not fit makes the server of the reply Unknown with
/// [`ServerError::Beyond`](super::ServerError::Beyond).
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

/// Storage of the one server of a direct connection. Most code for other deployments is left out of
/// programs.
///
/// Its description has no hosts, no tags, no `me` and no `primary`: a topology of type Single does not use
/// them. They are not checked either, and a reply in which only they are new emits no event.
///
/// - `BYTES`: those of the server's address with its port, and of two set names, the one that is expected
///   or was in the last reply, and the one in the next reply; plus 4 for each. A reply whose set name does
///   not fit makes the server Unknown with [`ServerError::Beyond`](super::ServerError::Beyond), with
///   [`Limit::Texts`](super::Limit::Texts).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Direct<const BYTES: usize>;

impl<const BYTES: usize> Memory for Direct<BYTES> {
    type PerServer<T> = heapless::Vec<T, 1>;
    type PerName<T> = heapless::Vec<T, 0>;
    type PerText<T> = heapless::Vec<T, 3>;
    type Bytes = heapless::Vec<u8, BYTES>;
    const NAMES_MAX: u16 = 0;
    const SERVERS_MAX: u32 = 1;
    const TEXTS_MAX: u16 = 3;
    const BYTES_MAX: u32 = Fixed::<1, 0, 3, BYTES>::BYTES_MAX;
    const DIRECT_ONLY: bool = true;
}

/// Limits `count` to 65,534; the id 65,535 stands for no text.
const fn at_most_u16(count: usize) -> u16 {
    if count >= 0xffff { 0xfffe } else { (truncated(count) & 0xffff) as u16 }
}

#[allow(clippy::cast_possible_truncation, reason = "the callers have compared")]
const fn truncated(count: usize) -> u32 {
    count as u32
}

/// Storage on the heap, which grows with the servers and their names: up to 2,048 servers, 512
/// names in a reply and 16,384 distinct texts of 4 MiB together. The limits keep a peer from making
/// it grow without bound. A reply that does not fit is treated as in [`Fixed`].
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
