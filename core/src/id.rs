//! The ids of servers and topologies in events and actions.

use core::fmt;
use core::num::NonZeroU32;

/// Identifies a server of one topology while it is a member. The id is never reused.
///
/// Addresses are stored once, in the topology; all other state refers to this id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId {
    index: u32,
    serial: NonZeroU32,
}

impl ServerId {
    /// The server with this number at the index of the same number. For hosts with a single server,
    /// and for tests.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self::at(number, NonZeroU32::MIN.saturating_add(number))
    }

    /// The server with this serial number at this index.
    #[must_use]
    pub const fn at(index: u32, serial: NonZeroU32) -> Self {
        Self { index, serial }
    }

    /// The server's slot index, for tables parallel to the topology's slots. Another server may use
    /// the index after this one was removed.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// The server's serial number: 1 for the first server of the topology, then rising by 1, never
    /// used twice.
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

#[cfg(feature = "defmt")]
impl defmt::Format for ServerId {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "ServerId({=u32})", self.number());
    }
}

const _: () = assert!(size_of::<Option<ServerId>>() == 8);

/// Identifies a topology in events. The host chooses the number once; two topologies with
/// events that could be mixed up need different numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct TopologyId(u32);

impl TopologyId {
    /// The topology with this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number that the host chose.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}
