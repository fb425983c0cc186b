//! The keys by which events and actions name a server and a topology.

use core::fmt;
use core::num::NonZeroU32;

/// Names a server of one topology for as long as it is a member, and no later one.
///
/// Addresses are kept once, in the topology; everything else speaks of this key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId {
    index: u32,
    serial: NonZeroU32,
}

impl ServerId {
    /// The server of this number, at the place of the same number: for hosts that know a single server, and for tests.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self::at(number, NonZeroU32::MIN.saturating_add(number))
    }

    /// The server with this serial number at this place.
    #[must_use]
    pub const fn at(index: u32, serial: NonZeroU32) -> Self {
        Self { index, serial }
    }

    /// Its place, for tables beside the topology's. Free to be taken by another server once this one was removed.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// Its serial number: 1 for the first server of the topology, then rising by 1, never used twice.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.serial.get()
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serial.fmt(f)
    }
}

const _: () = assert!(size_of::<Option<ServerId>>() == 8);

/// Names a topology in events (LOG-09). The host picks it, once, different for any two topologies whose events could meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopologyId(u32);

impl TopologyId {
    /// The topology with this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number that the host picked.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}
