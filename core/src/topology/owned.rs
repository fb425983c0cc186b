//! Copies of descriptions and events, to be kept.

use super::TopologyId;
use super::description::{Data, Meta, ServerDescription, Side, Source, TopologyDescription};
use super::event::SdamEvent;
use super::texts::{TextId, TextSlot, TextsRef};
use crate::ServerId;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// A copy of a topology's description: what readers hold while the topology goes on.
///
/// Four allocations, whatever the number of servers.
#[derive(Clone)]
pub struct OwnedTopologyDescription {
    id: TopologyId,
    meta: Meta,
    bytes: Vec<u8>,
    slots: Vec<TextSlot>,
    names: Vec<TextId>,
    servers: Vec<Server>,
}

#[derive(Clone)]
struct Server {
    server: ServerId,
    address: TextId,
    data: Data,
    /// Where its names begin and end.
    names: (u32, u32),
}

impl OwnedTopologyDescription {
    /// The description, to be read.
    #[must_use]
    pub fn get(&self) -> TopologyDescription<'_> {
        TopologyDescription { source: self, side: Side::Now }
    }
}

impl fmt::Debug for OwnedTopologyDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl Source for OwnedTopologyDescription {
    fn id(&self) -> TopologyId {
        self.id
    }

    fn meta(&self, _side: Side) -> &Meta {
        &self.meta
    }

    fn texts(&self) -> TextsRef<'_> {
        TextsRef { bytes: &self.bytes, slots: &self.slots }
    }

    fn places(&self) -> usize {
        self.servers.len()
    }

    fn server_at(&self, place: usize, _side: Side) -> Option<ServerDescription<'_>> {
        let server = self.servers.get(place)?;
        let names = &self.names[server.names.0 as usize..server.names.1 as usize];
        let Server { server, address, ref data, .. } = *server;
        Some(ServerDescription { server, address, data, names, texts: self.texts() })
    }
}

impl TopologyDescription<'_> {
    /// Copies it.
    #[must_use]
    pub fn to_owned(&self) -> OwnedTopologyDescription {
        let texts = self.source.texts();
        let mut names = Vec::new();
        let mut servers = Vec::new();
        for server in self.servers() {
            servers.push(copied(&server, &mut names));
        }
        OwnedTopologyDescription {
            id: self.id(),
            meta: *self.source.meta(self.side),
            bytes: texts.bytes.to_vec(),
            slots: texts.slots.to_vec(),
            names,
            servers,
        }
    }
}

fn copied(server: &ServerDescription<'_>, names: &mut Vec<TextId>) -> Server {
    let from = u32::try_from(names.len()).unwrap_or(u32::MAX);
    names.extend_from_slice(server.names);
    let to = u32::try_from(names.len()).unwrap_or(u32::MAX);
    Server { server: server.server, address: server.address, data: *server.data, names: (from, to) }
}

/// A copy of a server's description.
#[derive(Clone)]
pub struct OwnedServerDescription {
    bytes: Vec<u8>,
    slots: Vec<TextSlot>,
    names: Vec<TextId>,
    server: Server,
}

impl OwnedServerDescription {
    /// The description, to be read.
    #[must_use]
    pub fn get(&self) -> ServerDescription<'_> {
        let Server { server, address, ref data, .. } = self.server;
        let texts = TextsRef { bytes: &self.bytes, slots: &self.slots };
        ServerDescription { server, address, data, names: &self.names, texts }
    }

    /// Copies a text, and gives its number in the copy.
    fn adopt(&mut self, texts: TextsRef<'_>, id: TextId) -> TextId {
        let text = texts.get(id).as_bytes();
        let offset = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        let number = u16::try_from(self.slots.len()).unwrap_or(u16::MAX);
        self.bytes.extend_from_slice(text);
        self.slots.push(TextSlot::at(offset, u16::try_from(text.len()).unwrap_or(u16::MAX)));
        TextId(number)
    }
}

impl fmt::Debug for OwnedServerDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl ServerDescription<'_> {
    /// Copies it, with the texts that it names.
    #[must_use]
    pub fn to_owned(&self) -> OwnedServerDescription {
        let mut names = Vec::new();
        let server = copied(self, &mut names);
        let mut owned = OwnedServerDescription { bytes: Vec::new(), slots: Vec::new(), names, server };
        for place in 0..owned.names.len() {
            owned.names[place] = owned.adopt(self.texts, self.names[place]);
        }
        owned.server.address = owned.adopt(self.texts, self.address);
        owned.server.data.me = self.data.me.map(|id| owned.adopt(self.texts, id));
        owned.server.data.primary = self.data.primary.map(|id| owned.adopt(self.texts, id));
        owned.server.data.set_name = self.data.set_name.map(|id| owned.adopt(self.texts, id));
        owned
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
        /// As it was.
        previous: Box<OwnedTopologyDescription>,
        /// As it is.
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
        /// As it was.
        previous: Box<OwnedServerDescription>,
        /// As it is.
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
    /// Copies it.
    #[must_use]
    pub fn to_owned(&self) -> OwnedSdamEvent {
        match *self {
            Self::TopologyOpening { topology } => OwnedSdamEvent::TopologyOpening { topology },
            Self::TopologyDescriptionChanged { topology, previous, new } => {
                OwnedSdamEvent::TopologyDescriptionChanged {
                    topology,
                    previous: Box::new(previous.to_owned()),
                    new: Box::new(new.to_owned()),
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
    /// The event as it was.
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
