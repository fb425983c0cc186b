//! Owned copies of descriptions and events.

use super::description::{Data, Meta, ServerDescription, Side, Source, TopologyDescription};
use super::error::{Incompatibility, ServerError};
use super::event::SdamEvent;
use super::texts::{TextId, TextSlot, TextsRef};
use super::{TopologyId, TopologyType};
use crate::{Instant, ObjectId, ServerId, ServerType, TopologyVersion};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

#[cfg(test)]
mod tests;

/// A copy of a topology's description, which stays valid while the topology changes. It contains
/// only the texts that the description uses.
///
/// Clones share their data. Six allocations, independent of the number of servers.
#[derive(Clone)]
pub struct OwnedTopologyDescription {
    shared: Arc<Topology>,
}

#[derive(PartialEq, Eq)]
struct Topology {
    id: TopologyId,
    meta: Meta,
    texts: Arc<Texts>,
    names: Vec<TextId>,
    servers: Vec<Server>,
}

#[derive(Clone, PartialEq, Eq)]
struct Server {
    server: ServerId,
    address: TextId,
    data: Data,
    /// The start and end of its names in the topology's list of names.
    names: (u32, u32),
}

/// The texts of a copy.
#[derive(Clone, Default, PartialEq, Eq)]
struct Texts {
    bytes: Vec<u8>,
    slots: Vec<TextSlot>,
}

impl Texts {
    fn view(&self) -> TextsRef<'_> {
        TextsRef { bytes: &self.bytes, slots: &self.slots }
    }

    #[cfg(feature = "std")]
    fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.slots.capacity() * size_of::<TextSlot>()
    }
}

/// Copies descriptions with the texts that they use, each text once.
struct Copier<'t> {
    from: TextsRef<'t>,
    to: Texts,
    names: Vec<TextId>,
    /// Maps each source text to its id in the copy, if it was copied.
    known: Vec<Option<TextId>>,
}

impl<'t> Copier<'t> {
    fn new(from: TextsRef<'t>) -> Self {
        Self { from, to: Texts::default(), names: Vec::new(), known: vec![None; from.slots.len()] }
    }

    /// Copies a text, and returns its id in the copy.
    fn text(&mut self, id: TextId) -> TextId {
        if let Some(known) = self.known[usize::from(id.0)] {
            return known;
        }
        let text = self.from.get(id).as_bytes();
        let offset = u32::try_from(self.to.bytes.len()).unwrap_or(u32::MAX);
        let copy = TextId(u16::try_from(self.to.slots.len()).unwrap_or(u16::MAX));
        self.to.bytes.extend_from_slice(text);
        self.to.slots.push(TextSlot::at(offset, u16::try_from(text.len()).unwrap_or(u16::MAX)));
        self.known[usize::from(id.0)] = Some(copy);
        copy
    }

    fn server(&mut self, server: &ServerDescription<'_>) -> Server {
        let from = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        for name in server.names {
            let name = self.text(*name);
            self.names.push(name);
        }
        let to = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        let data = Data {
            me: server.data.me.map(|id| self.text(id)),
            primary: server.data.primary.map(|id| self.text(id)),
            set_name: server.data.set_name.map(|id| self.text(id)),
            ..*server.data
        };
        Server { server: server.server, address: self.text(server.address), data, names: (from, to) }
    }

    fn topology(mut self, description: &TopologyDescription<'_>) -> Topology {
        let servers = description.servers().map(|server| self.server(&server)).collect();
        let meta = *description.source.meta(description.side);
        let meta = Meta {
            set_name: meta.set_name.map(|id| self.text(id)),
            incompatible: meta.incompatible.map(|(address, mismatch)| (self.text(address), mismatch)),
            ..meta
        };
        Topology { id: description.id(), meta, texts: Arc::new(self.to), names: self.names, servers }
    }
}

/// The accessors of a borrowed description, for its copy.
macro_rules! accessors {
    ($owned:ident, $borrowed:ident: $($name:ident($($argument:ident: $type:ty),*) -> $value:ty;)*) => {
        impl $owned {
            $(
                #[doc = concat!("See [`", stringify!($borrowed), "::", stringify!($name), "`].")]
                #[must_use = "it only reads"]
                pub fn $name(&self, $($argument: $type),*) -> $value {
                    self.get().$name($($argument),*)
                }
            )*
        }
    };
}

accessors! { OwnedTopologyDescription, TopologyDescription:
    id() -> TopologyId;
    topology_type() -> TopologyType;
    set_name() -> Option<&str>;
    is_compatible() -> bool;
    compatibility_error() -> Option<Incompatibility<'_>>;
    logical_session_timeout_minutes() -> Option<i64>;
    servers() -> impl Iterator<Item = ServerDescription<'_>> + Clone;
    server(server: ServerId) -> Option<ServerDescription<'_>>;
    has_readable_server() -> bool;
    has_writable_server() -> bool;
}

accessors! { OwnedServerDescription, ServerDescription:
    server() -> ServerId;
    address() -> &str;
    server_type() -> ServerType;
    error() -> Option<ServerError>;
    round_trip_time() -> Option<Duration>;
    min_round_trip_time() -> Option<Duration>;
    min_wire_version() -> Option<i32>;
    max_wire_version() -> Option<i32>;
    me() -> Option<&str>;
    hosts() -> impl ExactSizeIterator<Item = &str> + Clone;
    passives() -> impl ExactSizeIterator<Item = &str> + Clone;
    arbiters() -> impl ExactSizeIterator<Item = &str> + Clone;
    tags() -> impl ExactSizeIterator<Item = (&str, &str)> + Clone;
    set_name() -> Option<&str>;
    set_version() -> Option<i64>;
    election_id() -> Option<ObjectId>;
    primary() -> Option<&str>;
    last_write_date_ms() -> Option<i64>;
    last_update_time() -> Instant;
    logical_session_timeout_minutes() -> Option<i64>;
    topology_version() -> Option<TopologyVersion>;
}

accessors! { OwnedSdamEvent, SdamEvent:
    topology() -> TopologyId;
    name() -> &'static str;
}

impl OwnedTopologyDescription {
    /// The description, borrowed.
    #[must_use]
    pub fn get(&self) -> TopologyDescription<'_> {
        TopologyDescription { source: &*self.shared, side: Side::Now }
    }

    /// The bytes of its heap memory, including shared parts.
    #[doc(hidden)]
    #[cfg(feature = "std")]
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let Topology { texts, names, servers, .. } = &*self.shared;
        let lists = names.capacity() * size_of::<TextId>() + servers.capacity() * size_of::<Server>();
        size_of::<Topology>() + size_of::<Texts>() + texts.heap_bytes() + lists
    }
}

impl fmt::Debug for OwnedTopologyDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl fmt::Display for OwnedTopologyDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl Source for Topology {
    fn id(&self) -> TopologyId {
        self.id
    }

    fn meta(&self, _side: Side) -> &Meta {
        &self.meta
    }

    fn texts(&self) -> TextsRef<'_> {
        self.texts.view()
    }

    fn slot_count(&self) -> usize {
        self.servers.len()
    }

    fn server_at(&self, index: usize, _side: Side) -> Option<ServerDescription<'_>> {
        let server = self.servers.get(index)?;
        let names = &self.names[server.names.0 as usize..server.names.1 as usize];
        let Server { server, address, ref data, .. } = *server;
        Some(ServerDescription { server, address, data, names, texts: self.texts() })
    }
}

impl TopologyDescription<'_> {
    /// Copies the description with the texts that it uses.
    #[must_use]
    pub fn to_owned(&self) -> OwnedTopologyDescription {
        let topology = Copier::new(self.source.texts()).topology(self);
        OwnedTopologyDescription { shared: Arc::new(topology) }
    }

    /// [`TopologyDescription::to_owned`], or a clone of `last` if both are equal. Equal texts are
    /// shared.
    #[doc(hidden)]
    #[must_use]
    pub fn copy_like(&self, last: Option<&OwnedTopologyDescription>) -> OwnedTopologyDescription {
        let mut topology = Copier::new(self.source.texts()).topology(self);
        if let Some(last) = last {
            if *last.shared == topology {
                return last.clone();
            }
            if last.shared.texts == topology.texts {
                topology.texts = Arc::clone(&last.shared.texts);
            }
        }
        OwnedTopologyDescription { shared: Arc::new(topology) }
    }
}

/// A copy of a server's description.
#[derive(Clone)]
pub struct OwnedServerDescription {
    texts: Texts,
    names: Vec<TextId>,
    server: Server,
}

impl OwnedServerDescription {
    /// The description, borrowed.
    #[must_use]
    pub fn get(&self) -> ServerDescription<'_> {
        let Server { server, address, ref data, .. } = self.server;
        ServerDescription { server, address, data, names: &self.names, texts: self.texts.view() }
    }

    /// The bytes of its memory.
    #[cfg(feature = "std")]
    fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.texts.heap_bytes() + self.names.capacity() * size_of::<TextId>()
    }
}

impl fmt::Debug for OwnedServerDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl fmt::Display for OwnedServerDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl ServerDescription<'_> {
    /// Copies the description with the texts that it uses.
    #[must_use]
    pub fn to_owned(&self) -> OwnedServerDescription {
        let mut copier = Copier::new(self.texts);
        let server = copier.server(self);
        OwnedServerDescription { texts: copier.to, names: copier.names, server }
    }
}

/// A copy of a [`SdamEvent`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum OwnedSdamEvent {
    /// See [`SdamEvent::TopologyOpening`].
    TopologyOpening {
        /// The topology.
        topology: TopologyId,
    },
    /// See [`SdamEvent::TopologyDescriptionChanged`].
    TopologyDescriptionChanged {
        /// The topology.
        topology: TopologyId,
        /// The description before the change.
        previous: Box<OwnedTopologyDescription>,
        /// The description after the change.
        new: Box<OwnedTopologyDescription>,
    },
    /// See [`SdamEvent::ServerOpening`].
    ServerOpening {
        /// The topology.
        topology: TopologyId,
        /// The server.
        server: ServerId,
        /// Its address.
        address: String,
    },
    /// See [`SdamEvent::ServerDescriptionChanged`].
    ServerDescriptionChanged {
        /// The topology.
        topology: TopologyId,
        /// The server.
        server: ServerId,
        /// Its address.
        address: String,
        /// The description before the change.
        previous: Box<OwnedServerDescription>,
        /// The description after the change.
        new: Box<OwnedServerDescription>,
    },
    /// See [`SdamEvent::ServerClosed`].
    ServerClosed {
        /// The topology.
        topology: TopologyId,
        /// The server.
        server: ServerId,
        /// Its address.
        address: String,
    },
    /// See [`SdamEvent::TopologyClosed`].
    TopologyClosed {
        /// The topology.
        topology: TopologyId,
    },
    /// See [`SdamEvent::NoServers`].
    NoServers {
        /// The topology.
        topology: TopologyId,
    },
}

impl SdamEvent<'_> {
    /// Copies the event.
    #[must_use]
    pub fn to_owned(&self) -> OwnedSdamEvent {
        self.copy_after(&mut None)
    }

    /// Copies the event. The copy shares unchanged parts with the previous copy.
    ///
    /// - `last`: the last copied description of the topology.
    #[doc(hidden)]
    pub fn copy_after(&self, last: &mut Option<OwnedTopologyDescription>) -> OwnedSdamEvent {
        match *self {
            Self::TopologyOpening { topology } => OwnedSdamEvent::TopologyOpening { topology },
            Self::TopologyDescriptionChanged { topology, previous, new } => {
                let previous = previous.copy_like(last.as_ref());
                let new = last.insert(new.copy_like(Some(&previous))).clone();
                OwnedSdamEvent::TopologyDescriptionChanged {
                    topology,
                    previous: Box::new(previous),
                    new: Box::new(new),
                }
            }
            Self::ServerOpening { topology, server, address } => {
                OwnedSdamEvent::ServerOpening { topology, server, address: address.into() }
            }
            Self::ServerDescriptionChanged { topology, server, address, previous, new } => {
                OwnedSdamEvent::ServerDescriptionChanged {
                    topology,
                    server,
                    address: address.into(),
                    previous: Box::new(previous.to_owned()),
                    new: Box::new(new.to_owned()),
                }
            }
            Self::ServerClosed { topology, server, address } => {
                OwnedSdamEvent::ServerClosed { topology, server, address: address.into() }
            }
            Self::TopologyClosed { topology } => OwnedSdamEvent::TopologyClosed { topology },
            Self::NoServers { topology } => OwnedSdamEvent::NoServers { topology },
        }
    }
}

impl OwnedSdamEvent {
    /// The bytes of its heap memory, including shared parts.
    #[doc(hidden)]
    #[cfg(feature = "std")]
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::TopologyDescriptionChanged { previous, new, .. } => {
                2 * size_of::<OwnedTopologyDescription>() + previous.heap_bytes() + new.heap_bytes()
            }
            Self::ServerDescriptionChanged { address, previous, new, .. } => {
                address.capacity() + previous.heap_bytes() + new.heap_bytes()
            }
            Self::ServerOpening { address, .. } | Self::ServerClosed { address, .. } => address.capacity(),
            Self::TopologyOpening { .. } | Self::TopologyClosed { .. } | Self::NoServers { .. } => 0,
        }
    }

    /// The event, borrowed.
    #[must_use]
    pub fn get(&self) -> SdamEvent<'_> {
        match self {
            Self::TopologyOpening { topology } => SdamEvent::TopologyOpening { topology: *topology },
            Self::TopologyDescriptionChanged { topology, previous, new } => {
                let (previous, new) = (previous.get(), new.get());
                SdamEvent::TopologyDescriptionChanged { topology: *topology, previous, new }
            }
            Self::ServerOpening { topology, server, address } => {
                SdamEvent::ServerOpening { topology: *topology, server: *server, address }
            }
            Self::ServerDescriptionChanged { topology, server, address, previous, new } => {
                let (previous, new) = (previous.get(), new.get());
                SdamEvent::ServerDescriptionChanged { topology: *topology, server: *server, address, previous, new }
            }
            Self::ServerClosed { topology, server, address } => {
                SdamEvent::ServerClosed { topology: *topology, server: *server, address }
            }
            Self::TopologyClosed { topology } => SdamEvent::TopologyClosed { topology: *topology },
            Self::NoServers { topology } => SdamEvent::NoServers { topology: *topology },
        }
    }
}

impl fmt::Display for OwnedSdamEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
