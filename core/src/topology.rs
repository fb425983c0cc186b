//! Every server of a deployment, what each one is, and what follows from that (SDAM).
//!
//! Read first: SDAM, "Parsing a hello or legacy hello response", "Updating the TopologyDescription", "Error handling",
//! "Connection Pool Management"; SDAM Logging and Monitoring. SDAM-01..86, LOG-01..10, LOG-18..20.
//!
//! # What it does
//!
//! A [`Topology`] holds the addresses of its servers, once, and the description of each; everything else speaks of a
//! server by its [`ServerId`]. Three kinds of news change it: a reply to a hello ([`Topology::handle_hello`]), a check that failed
//! ([`Topology::handle_failed`]), an error of an application ([`Topology::handle_app_error`]). One call is one step: descriptions,
//! the topology's type, members that come and go, then the events, and then it owes [`TopologyAction`]s, which its host
//! takes ([`Topology::poll_action`]) before anybody else sees the topology:
//!
//! ```text
//! topology.handle_hello(now, server, &hello, Some(round_trip), observer);   // ServerDescriptionChanged, ..
//! while let Some(action) = topology.poll_action() { .. }                    // Pool(server, Ready), .., WakeSelectors
//! monitor.settle(now, known, ..);
//! ```
//!
//! What is owed is kept with the server that it concerns, not in a queue: what was revoked meanwhile (a pool that was to
//! be marked ready before its server failed) is never seen.
//!
//! # Events
//!
//! In one step: ServerDescriptionChanged of each server that changed, ServerClosed, ServerOpening, then
//! TopologyDescriptionChanged. They are found by comparing before and after, so a description that was replaced twice
//! in one step is told once. They borrow both sides from the topology.
//!
//! # Memory
//!
//! Addresses, set names and tags are texts, each kept once; descriptions hold their numbers. [`Fixed`] memory
//! has a place for so many of each, and [`OnHeap`] grows, up to limits that no honest deployment meets. A reply that does not fit
//! makes its server Unknown with an error that says so. A hello that changes nothing allocates nothing.
//!
//! # Settled where the specification is silent or disagrees with its tests
//!
//! - An error's generation counts only if it equals the pool's: a greater one is as stale as a lower one (ambiguity 6).
//! - A state-change code in a handshake marks Unknown *and* clears; the label is looked at first, in every mode (7, 14).
//! - Equal topologyVersion: a hello is accepted, an error is stale (8).
//! - A pool is marked ready after the update, and only if the server is then still known (9).
//! - A reply without `me` has no mismatch (10).
//! - The description of a load balancer has no wire versions (11).
//! - PossiblePrimary equals Unknown: that change alone makes no event.
//! - A removed server is told by ServerClosed only, even if its description changed in the same step.
//! - ServerOpening of servers found later comes before the TopologyDescriptionChanged that has them.
//! - `hosts`, `passives` and `arbiters` are sets: a name that is given twice counts once.
//! - A `me`, `primary` or host that is no address makes its server Unknown with an error that names the place.
//! - A hello of an application's connection, which measures no round trip, leaves the round-trip times as they are.
//! - Clocks that go back are held at the last value seen.

mod action;
mod address;
mod description;
mod error;
mod event;
mod hello;
mod memory;
mod options;
#[cfg(feature = "alloc")]
mod owned;
mod texts;

pub use action::{
    AppError, AppErrorKind, CommandError, HandshakePhase, PoolCommand, ReplyError, TopologyAction, Verdict,
};
pub use address::HostAddress;
pub use description::{ServerDescription, TopologyDescription};
pub use error::{
    AddressField, ElectionTuple, Incompatibility, Limit, ServerError, StateChange, TopologyConfigError, WireMismatch,
};
pub use event::{SdamEvent, SdamObserver};
pub use hello::{HelloInfo, HelloLists, RoundTrip};
#[cfg(feature = "alloc")]
pub use memory::OnHeap;
pub use memory::{Fixed, Memory};
pub use options::{TopologyConfig, TopologyOptions};
#[cfg(feature = "alloc")]
pub use owned::{OwnedSdamEvent, OwnedServerDescription, OwnedTopologyDescription};

use crate::storage::{Full, Store};
use crate::{Cause, Instant, ServerId};
use core::fmt;
use description::{Meta, Side, Source};
use memory::{Description, Place, ServerSlot};
use texts::{Texts, TextsRef};

/// The oldest wire version that this client speaks.
pub const MIN_WIRE_VERSION: i32 = 8;
/// The newest wire version that this client knows.
pub const MAX_WIRE_VERSION: i32 = 25;
/// The release that [`MIN_WIRE_VERSION`] belongs to.
const MIN_SERVER_VERSION: &str = "4.2";

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

/// What a deployment is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TopologyType {
    /// Not known yet.
    #[default]
    Unknown,
    /// One server, spoken to directly, whatever it is.
    Single,
    /// A replica set without a known primary.
    ReplicaSetNoPrimary,
    /// A replica set with a primary.
    ReplicaSetWithPrimary,
    /// Routers of a sharded cluster.
    Sharded,
    /// A load balancer, whatever is behind it.
    LoadBalanced,
}

impl TopologyType {
    /// The name that the specifications give it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::Single => "Single",
            Self::ReplicaSetNoPrimary => "ReplicaSetNoPrimary",
            Self::ReplicaSetWithPrimary => "ReplicaSetWithPrimary",
            Self::Sharded => "Sharded",
            Self::LoadBalanced => "LoadBalanced",
        }
    }
}

impl fmt::Display for TopologyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How many servers change their description in one update at most: the one that answered, a primary that is deposed by
/// it, one that it names as primary.
const CHANGES_MAX: usize = 3;

/// Every server of a deployment. See the [module](self) for how it works.
#[derive(Clone, Debug)]
pub struct Topology<M: Memory> {
    id: TopologyId,
    seeds: u32,
    closed: bool,
    /// The latest instant seen.
    clock: Instant,
    meta: Meta,
    /// `meta` as it was when the update that is under way began.
    meta_before: Meta,
    servers: M::Servers,
    members: u32,
    last_serial: u32,
    texts: Texts<M>,
    /// Descriptions as they were when the update that is under way began.
    spares: [Description<M::Names>; CHANGES_MAX],
    saved: u8,
    /// How many places owe something, and the first of them.
    owed: u32,
    owed_from: u32,
    wake: bool,
}
impl<M: Memory> Topology<M> {
    /// SIGNATURE
    pub fn new(now: Instant, id: TopologyId, config: TopologyConfig<'_>, observer: &mut impl SdamObserver) -> Result<Self, Full> { let _ = (now, id, config, observer); todo!() }
    /// SIGNATURE returns: whether the server is a member and known now (for Monitor::settle)
    pub fn handle_hello(&mut self, now: Instant, server: ServerId, hello: &HelloInfo<'_, impl HelloLists>, round_trip: Option<RoundTrip>, observer: &mut impl SdamObserver) -> bool { let _ = (now, server, hello, round_trip, observer); todo!() }
    /// SIGNATURE
    pub fn handle_failed(&mut self, now: Instant, server: ServerId, cause: Cause, observer: &mut impl SdamObserver) { let _ = (now, server, cause, observer); todo!() }
    /// SIGNATURE
    pub fn handle_app_error(&mut self, now: Instant, server: ServerId, error: &AppError<'_>, observer: &mut impl SdamObserver) -> Verdict { let _ = (now, server, error, observer); todo!() }
    /// SIGNATURE
    pub fn close(&mut self, now: Instant, observer: &mut impl SdamObserver) { let _ = (now, observer); todo!() }
    /// SIGNATURE
    pub fn poll_action(&mut self) -> Option<TopologyAction> { todo!() }
    /// SIGNATURE
    pub fn id(&self) -> TopologyId { self.id }
    /// SIGNATURE
    pub fn is_closed(&self) -> bool { self.closed }
    /// SIGNATURE
    pub fn description(&self) -> TopologyDescription<'_> { TopologyDescription { source: self, side: Side::Now } }
    /// SIGNATURE members
    pub fn servers(&self) -> impl Iterator<Item = ServerDescription<'_>> + Clone { self.description().servers() }
    /// SIGNATURE a member, O(1)
    pub fn server(&self, server: ServerId) -> Option<ServerDescription<'_>> { self.description().server(server) }
    /// SIGNATURE the address, also of a removed server until its ServerRemoved was polled
    pub fn address(&self, server: ServerId) -> Option<&str> { let _ = server; todo!() }
    /// SIGNATURE the member with this address (any spelling)
    pub fn find(&self, address: &str) -> Option<ServerId> { let _ = address; todo!() }
    /// SIGNATURE
    pub fn assert_invariants(&self) { todo!() }
}

impl<M: Memory> Source for Topology<M> {
    fn id(&self) -> TopologyId { self.id }
    fn meta(&self, side: Side) -> &Meta { match side { Side::Now => &self.meta, Side::Before => &self.meta_before } }
    fn texts(&self) -> TextsRef<'_> { self.texts.get_ref() }
    fn places(&self) -> usize { self.servers.slots().len() }
    fn server_at(&self, place: usize, side: Side) -> Option<ServerDescription<'_>> { let _ = (place, side, Place::Free); let _: Option<&ServerSlot<M::Names>> = None; todo!() }
}
