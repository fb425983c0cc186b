//! The servers of a deployment, their descriptions, and the updates derived from them (SDAM).
//!
//! Read first: SDAM, "Parsing a hello or legacy hello response", "Updating the
//! TopologyDescription", "Error handling", "Connection Pool Management"; SDAM Logging and
//! Monitoring.
//!
//! # Overview
//!
//! A [`Topology`] stores the address of each of its servers once, and a description of each; all
//! other data refers to a server by its [`ServerId`]. Three inputs change it: a reply to a hello
//! ([`Topology::handle_hello`]), a failed check ([`Topology::handle_failed`]) and an error of an
//! application ([`Topology::handle_app_error`]). One call is one step: it updates descriptions, the
//! topology's type and the members, then emits the events. After it the topology owes
//! [`TopologyAction`]s, which its host takes ([`Topology::poll_action`]) before any other task
//! accesses the topology:
//!
//! ```text
//! topology.handle_hello(now, server, &hello, Some(round_trip), observer);   // ServerDescriptionChanged, ..
//! while let Some(action) = topology.poll_action() { .. }                    // Pool(server, Ready), .., WakeSelectors
//! ```
//!
//! Owed actions are stored with the server that they concern, not in a queue. So a revoked action
//! is never returned, such as marking a pool ready whose server has failed since.
//!
//! # Events
//!
//! In one step: ServerDescriptionChanged of each server that changed, ServerClosed, ServerOpening,
//! then TopologyDescriptionChanged. They are derived by comparing the states before and after the
//! step, so a description that was replaced twice in one step causes one event. Events borrow both
//! states from the topology.
//!
//! # Memory
//!
//! Addresses, set names and tags are texts, each stored once; descriptions hold their ids.
//! [`Fixed`] memory has a fixed number of slots for each kind, [`Direct`] those of one server with a
//! direct connection; `OnHeap` grows, up to limits that regular deployments do not reach. A reply whose
//! hosts do not fit makes its server Unknown with an error that names the limit. A hello that changes
//! nothing allocates nothing.
//!
//! # Settled where the specification is silent or disagrees with its tests
//!
//! - An error's generation is accepted only if it equals the pool's: a greater one is as stale as a
//!   lower one (6). A number in parentheses is that of an ambiguity in the list of requirements.
//! - A state-change code in a handshake marks the server Unknown *and* clears its pool; the label
//!   is checked first, in every mode (7, 14).
//! - Equal topologyVersion: a hello is accepted, an error is stale (8).
//! - A pool is marked ready after the update, and only if the server is then still known (9).
//! - A reply without `me` has no mismatch (10).
//! - The description of a load balancer has no wire versions (11).
//! - Handshakes send `backpressure: "2"`, a string, as the newer text specifies (12); see
//!   [`wire::hello`](poolhouse_wire::hello).
//! - A description contains the average and the minimum of the last round trips, and no percentile
//!   (13).
//! - In a [scan](crate::scan), a hello whose reply has the label SystemOverloadedError is reported
//!   as failed in events. Neither its connection nor the server's description changes, and the
//!   topology receives no input (15).
//! - PossiblePrimary equals Unknown: a change between the two emits no event.
//! - A removed server causes ServerClosed only, even if its description changed in the same step.
//! - ServerOpening of servers found later precedes the TopologyDescriptionChanged that contains
//!   them.
//! - `hosts`, `passives` and `arbiters` are sets: a duplicate name is counted once.
//! - A `me`, `primary` or host that is not a valid address makes its server Unknown with an error
//!   that names the field and the index. So does the path of a unix socket, unless that path is one
//!   of the seeds: a server does not choose the sockets that its client connects to. [`Direct`] memory ignores
//!   these fields.
//! - Tags beyond the limit on names, and tags of more than 255 bytes, are dropped; the rest of the
//!   reply is used.
//! - A hello of an application's connection measures no round trip and leaves the round-trip times
//!   unchanged.
//! - When the clock goes backwards, the latest instant seen is kept.

mod action;
mod description;
mod emit;
mod error;
mod event;
mod judge;
mod memory;
mod options;
#[cfg(feature = "alloc")]
mod owned;
mod parse;
mod seeds;
#[cfg(test)]
pub(crate) mod tests;
mod texts;
mod update;

pub use crate::id::TopologyId;
pub use action::{
    AppError, AppErrorKind, CheckAction, CommandError, HandshakePhase, PoolCommand, ReplyError, RoundTrip,
    TopologyAction, Verdict,
};
pub use description::{ServerDescription, TopologyDescription};
pub use error::{
    AddressField, ElectionTuple, Incompatibility, Limit, ServerError, StateChange, TopologyConfigError, WireMismatch,
};
pub use event::{SdamEvent, SdamObserver};
#[cfg(feature = "alloc")]
pub use memory::OnHeap;
pub use memory::{Direct, Fixed, Memory};
pub use options::{TopologyConfig, TopologyOptions};
#[cfg(feature = "alloc")]
pub use owned::{OwnedSdamEvent, OwnedServerDescription, OwnedTopologyDescription};

use crate::address::{Address, is_path};
use crate::hooks::origin;
use crate::storage::{Full, Store};
use crate::{Cause, Instant, ServerId, ServerType, TopologyVersion};
use core::fmt;
use core::num::NonZeroU32;
use description::{Data, Meta, Side, Source};
use memory::{Description, Names, Owed, ServerSlot, Servers, SlotState};
use poolhouse_wire::hello::HelloReply;
use texts::{TextId, Texts, TextsRef};

/// The oldest wire version that this client supports.
pub const MIN_WIRE_VERSION: i32 = 8;
/// The newest wire version that this client supports.
pub const MAX_WIRE_VERSION: i32 = 25;
/// The server release of [`MIN_WIRE_VERSION`].
const MIN_SERVER_VERSION: &str = "4.2";

/// The type of a deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum TopologyType {
    /// Not known yet.
    #[default]
    Unknown,
    /// One server of any type, with a direct connection.
    Single,
    /// A replica set without a known primary.
    ReplicaSetNoPrimary,
    /// A replica set with a primary.
    ReplicaSetWithPrimary,
    /// Routers of a sharded cluster.
    Sharded,
    /// A load balancer; the servers behind it are not visible.
    LoadBalanced,
}

impl TopologyType {
    /// The name in the specifications.
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

/// The maximum number of servers whose descriptions change in one update: the server that replied,
/// a primary that it deposes, and a server that it names as primary.
const CHANGES_MAX: usize = 3;

/// The servers of a deployment and their descriptions. See the [module](self) for an overview.
///
/// Equal topologies have processed the same inputs and answer every call in the same way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Topology<M: Memory> {
    id: TopologyId,
    /// The number of initial hosts.
    seeds: usize,
    closed: bool,
    /// The latest instant seen.
    clock: Instant,
    meta: Meta,
    /// `meta` at the start of the update in progress.
    meta_before: Meta,
    servers: Servers<M>,
    members: u32,
    /// The number of removed servers whose `ServerRemoved` the host has not polled yet.
    gone: u32,
    last_serial: u32,
    texts: Texts<M>,
    /// Descriptions at the start of the update in progress. The entry at the same index in `saved`
    /// is the server's slot index.
    spares: [Description<Names<M>>; CHANGES_MAX],
    saved: heapless::Vec<u32, CHANGES_MAX>,
    /// Whether the update in progress changed a server field that the topology's own fields depend
    /// on.
    touched: bool,
    /// The number of slots with owed actions, and the first slot that may have one.
    owing: u32,
    owing_from: u32,
    /// The number of slots with an owed check action.
    owing_checks: u32,
    wake: bool,
}

impl<M: Memory> Topology<M> {
    /// Creates a topology of the seeds, all Unknown; in a load-balanced topology the server's type
    /// is known at once.
    ///
    /// - `now`: must be from the same clock in all calls. `id`: chosen by the host.
    ///
    /// Cost: O(seeds). Owes `ServerAdded` for each seed; load-balanced, also `Pool(Ready)` and
    /// `WakeSelectors`.
    /// Events: `TopologyOpening`, `TopologyDescriptionChanged`, `ServerOpening` for each seed;
    /// load-balanced, also `ServerDescriptionChanged` and `TopologyDescriptionChanged`. Without
    /// seeds, `NoServers` at the end.
    ///
    /// # Errors
    ///
    /// [`Full`]: there is no room for the seeds, or the memory is [`Direct`] and the topology is not of
    /// type Single; no event was emitted.
    ///
    /// Source: SDAM, "Configuration"; SDAM Logging and Monitoring, "Initial" events.
    pub fn new(
        now: Instant,
        id: TopologyId,
        config: TopologyConfig<'_>,
        observer: &mut impl SdamObserver,
    ) -> Result<Self, Full> {
        let mut topology = Self::vacant();
        topology.open(now, id, config, observer)?;
        Ok(topology)
    }

    /// Creates a closed topology without servers, to be initialized in place by `open`.
    #[doc(hidden)]
    #[inline]
    pub fn vacant() -> Self {
        Self {
            id: TopologyId::new(0),
            seeds: 0,
            closed: true,
            clock: Instant::ORIGIN,
            meta: Meta::UNKNOWN,
            meta_before: Meta::UNKNOWN,
            servers: Store::empty(),
            members: 0,
            gone: 0,
            last_serial: origin(),
            texts: Texts::empty(),
            spares: core::array::from_fn(|_| Description::empty()),
            saved: heapless::Vec::new(),
            touched: false,
            owing: 0,
            owing_from: 0,
            owing_checks: 0,
            wake: false,
        }
    }

    /// Initializes a topology created by `vacant`, or a closed one, like [`Topology::new`]. After an error
    /// it must not be used.
    pub(crate) fn open(
        &mut self,
        now: Instant,
        id: TopologyId,
        config: TopologyConfig<'_>,
        observer: &mut impl SdamObserver,
    ) -> Result<(), Full> {
        let options = config.options();
        let topology_type = config.topology_type();
        if M::DIRECT_ONLY && topology_type != TopologyType::Single {
            return Err(Full);
        }
        (self.id, self.clock, self.closed) = (id, now, false);
        self.texts.unpin_all();
        self.sweep();
        self.seeds = options.seeds.len();
        self.meta.topology_type = topology_type;
        if let Some(name) = options.replica_set {
            self.meta.set_name = Some(self.texts.intern([name.as_bytes(), &[], &[]])?);
        }
        self.texts.unmark_all();
        for seed in options.seeds {
            let Some(address) = Address::parse(seed) else { continue };
            // A member may name the path of a unix socket as an address only if that path is a
            // seed.
            let is_pinned = is_path(seed);
            let address = self.texts.intern_address(address.as_bytes(), is_pinned)?;
            if self.texts.mark(address) {
                self.add(address, 0)?;
            }
        }
        self.emit_opening(now, observer);
        if topology_type == TopologyType::LoadBalanced {
            self.begin();
            for index in 0..self.servers.slots().len() {
                self.save(index);
                self.servers.slots_mut()[index].description.data.server_type = ServerType::LoadBalancer;
                self.owe(index, |owed| owed.ready = true);
            }
            self.finish(now, observer);
        }
        if self.members == 0 {
            observer.on_event(now, &SdamEvent::NoServers { topology: id });
        }
        Ok(())
    }

    /// Closes the topology: no servers, type Unknown. Closing again is a no-op, and later inputs
    /// change nothing.
    ///
    /// Cost: O(servers). Owes `ServerRemoved` for each server, and `WakeSelectors`.
    /// Events: `ServerClosed` for each server, `TopologyDescriptionChanged`, `TopologyClosed`.
    ///
    /// Source: SDAM, "Client closing".
    pub fn close(&mut self, now: Instant, observer: &mut impl SdamObserver) {
        if self.closed {
            return;
        }
        let now = self.advance(now);
        self.begin();
        self.closed = true;
        for index in 0..self.servers.slots().len() {
            if self.servers.slots()[index].state == SlotState::Member {
                self.remove(index);
            }
        }
        self.meta = Meta::UNKNOWN;
        self.finish(now, observer);
        observer.on_event(now, &SdamEvent::TopologyClosed { topology: self.id });
    }

    /// Handles a hello reply with `ok: 1`, on a monitor's or on an application's connection. A
    /// reply that is not ok is ignored: for a monitor's, the host calls
    /// [`Topology::handle_failed`].
    ///
    /// Returns whether the server is now a member of a known type. Changes nothing if the server is
    /// not a member, or if the reply's topologyVersion is older than the stored one.
    ///
    /// - `now`: must be from the same clock in all calls. `hello`: the reply.
    /// - `round_trip`: the measured times; `None` leaves the stored ones unchanged.
    ///
    /// Cost: O(names in the reply), and O(members) in a replica set; no allocation when nothing
    /// changes. Owes `Pool(Ready)` if the server is then data-bearing, or known in a Single
    /// topology, `ServerAdded` and `ServerRemoved`, `RequestCheck` of a deposed primary, and
    /// `WakeSelectors`.
    /// Events: `ServerDescriptionChanged`, `ServerClosed`, `ServerOpening`,
    /// `TopologyDescriptionChanged`, for changes that occurred.
    ///
    /// Source: SDAM, "Updating the TopologyDescription".
    pub fn handle_hello(
        &mut self,
        now: Instant,
        server: ServerId,
        hello: &HelloReply<'_>,
        round_trip: Option<RoundTrip>,
        observer: &mut impl SdamObserver,
    ) -> bool {
        let now = self.advance(now);
        let Some(index) = self.slot_of(server) else { return false };
        if self.meta.topology_type == TopologyType::LoadBalanced {
            return true;
        }
        let known = self.servers.slots()[index].description.data;
        if !hello.ok || is_older(hello.topology_version, known.topology_version) {
            return known.server_type.is_known();
        }
        self.begin();
        if !self.refresh(now, index, hello, round_trip) {
            self.replace(now, index, hello, round_trip);
        }
        self.update(now, index);
        let slot = &self.servers.slots()[index];
        let server_type = slot.description.data.server_type;
        let is_known = slot.state == SlotState::Member && server_type.is_known();
        let is_single = self.meta.topology_type == TopologyType::Single;
        if is_known && (is_single || server_type.is_data_bearing()) {
            self.owe(index, |owed| owed.ready = true);
        }
        self.finish(now, observer);
        is_known
    }

    /// Handles a failed check of a server: a network error or timeout, a reply with `ok: 0`, or a
    /// reply that is not a hello reply.
    ///
    /// Marks the server Unknown, then owes the clear of its pool. After a network timeout,
    /// connections in use are interrupted.
    ///
    /// Cost: O(members). Owes `Pool(Clear)`, and `WakeSelectors`. Events:
    /// `ServerDescriptionChanged` and `TopologyDescriptionChanged`, for changes that occurred.
    ///
    /// Source: SDAM, "Network error when calling hello"; Server Monitoring, "Network error or
    /// command error during server check".
    pub fn handle_failed(&mut self, now: Instant, server: ServerId, cause: Cause, observer: &mut impl SdamObserver) {
        let now = self.advance(now);
        let Some(index) = self.slot_of(server) else { return };
        if self.meta.topology_type == TopologyType::LoadBalanced {
            return;
        }
        self.mark_unknown(now, index, ServerError::Failed(cause), None, observer);
        self.owe(index, |owed| {
            let timeout = owed.clear == Some(Cause::NetworkTimeout);
            owed.clear = Some(if timeout { Cause::NetworkTimeout } else { cause });
        });
    }

    /// Returns the next owed action, or `None`: servers in slot order, `WakeSelectors` last.
    ///
    /// Cost: O(1) when one server has owed actions, else O(servers) for all actions together.
    pub fn poll_action(&mut self) -> Option<TopologyAction> {
        while self.owing > 0 {
            let index = self.owing_from as usize;
            let slot = &mut self.servers.slots_mut()[index];
            let server = slot.id(index);
            let owed = &mut slot.owed;
            if owed.added {
                owed.added = false;
                self.count_taken(index);
                return Some(TopologyAction::ServerAdded(server));
            }
            if let Some(cause) = owed.clear.take() {
                let interrupt_in_use_connections = cause == Cause::NetworkTimeout;
                self.count_taken(index);
                return Some(TopologyAction::Pool(server, PoolCommand::Clear { interrupt_in_use_connections, cause }));
            }
            if owed.ready {
                owed.ready = false;
                self.count_taken(index);
                return Some(TopologyAction::Pool(server, PoolCommand::Ready));
            }
            if owed.cancel {
                owed.cancel = false;
                self.owing_checks -= u32::from(!owed.check);
                self.count_taken(index);
                return Some(TopologyAction::CancelCheck(server));
            }
            if owed.check {
                owed.check = false;
                self.owing_checks -= 1;
                self.count_taken(index);
                return Some(TopologyAction::RequestCheck(server));
            }
            if owed.removed {
                owed.removed = false;
                slot.free();
                self.gone -= 1;
                self.count_taken(index);
                return Some(TopologyAction::ServerRemoved(server));
            }
            self.owing_from += 1;
        }
        core::mem::take(&mut self.wake).then_some(TopologyAction::WakeSelectors)
    }

    /// Returns the next owed action for a monitor, before [`Topology::poll_action`], which then no
    /// longer returns it. For hosts that combine a topology with monitors.
    ///
    /// Cost: O(1) when no such action is owed, else O(servers) for all of them together.
    pub fn poll_check_action(&mut self) -> Option<CheckAction> {
        if self.owing_checks == 0 {
            return None;
        }
        let index = self.servers.slots().iter().position(|slot| slot.owed.has_check())?;
        let slot = &mut self.servers.slots_mut()[index];
        let server = slot.id(index);
        let action = if core::mem::take(&mut slot.owed.cancel) {
            CheckAction::Cancel(server)
        } else {
            slot.owed.check = false;
            CheckAction::Request(server)
        };
        self.owing_checks -= u32::from(!slot.owed.has_check());
        self.count_taken(index);
        Some(action)
    }

    /// A value that changes whenever a server is added or removed.
    pub(crate) const fn membership(&self) -> (u32, u32) {
        (self.last_serial, self.members)
    }

    /// The id that the host chose.
    #[must_use]
    pub const fn id(&self) -> TopologyId {
        self.id
    }

    /// Whether the topology was closed.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// The current description, borrowed. `TopologyDescription::to_owned` makes a copy for readers.
    #[must_use]
    pub fn description(&self) -> TopologyDescription<'_> {
        TopologyDescription { source: self, side: Side::Now }
    }

    /// The members.
    pub fn servers(&self) -> impl Iterator<Item = ServerDescription<'_>> + Clone {
        self.description().servers()
    }

    /// The description of a member. Cost: O(1).
    #[must_use]
    pub fn server(&self, server: ServerId) -> Option<ServerDescription<'_>> {
        self.server_at(self.slot_of(server)?, Side::Now)
    }

    /// The number of members. Cost: O(1).
    #[must_use]
    pub const fn server_count(&self) -> u32 {
        self.members
    }

    /// The address of a server; also of a removed one, until its `ServerRemoved` was polled. Cost:
    /// O(1).
    #[must_use]
    pub fn address(&self, server: ServerId) -> Option<&str> {
        let index = usize::try_from(server.index()).ok()?;
        let slot = self.servers.slots().get(index)?;
        let is_it = slot.state != SlotState::Free && slot.serial == server.number();
        is_it.then(|| self.texts.view().get(slot.address))
    }

    /// The member with this address, in any spelling. Cost: O(members).
    #[must_use]
    pub fn find(&self, address: &str) -> Option<ServerId> {
        let address = Address::parse(address)?;
        let index = self.member_at(self.texts.find([address.as_bytes(), &[], &[]])?)?;
        Some(self.servers.slots()[index].id(index))
    }

    /// Checks every internal invariant, O(n). For tests, fuzzing and simulation.
    ///
    /// # Panics
    ///
    /// Panics when an invariant is broken, which is a bug in this crate.
    pub fn assert_invariants(&self) {
        self.check();
    }

    /// Advances the stored clock to `now`, unless the clock has gone backwards, and returns it.
    fn advance(&mut self, now: Instant) -> Instant {
        self.clock = self.clock.max(now);
        self.clock
    }

    /// The slot of a member.
    fn slot_of(&self, server: ServerId) -> Option<usize> {
        let index = usize::try_from(server.index()).ok()?;
        let slot = self.servers.slots().get(index)?;
        (slot.state == SlotState::Member && slot.serial == server.number()).then_some(index)
    }

    /// The slot of the member with this address.
    fn member_at(&self, address: TextId) -> Option<usize> {
        self.servers.slots().iter().position(|slot| slot.state == SlotState::Member && slot.address == address)
    }

    /// Changes the owed actions of a slot, and updates the counters.
    fn owe(&mut self, index: usize, change: impl FnOnce(&mut Owed)) {
        let owed = &mut self.servers.slots_mut()[index].owed;
        let before = *owed;
        change(owed);
        self.count_owed(index, before);
    }

    /// Updates the counters after the owed actions of a slot were changed.
    fn count_owed(&mut self, index: usize, before: Owed) {
        let owed = self.servers.slots()[index].owed;
        match (before.has_check(), owed.has_check()) {
            (false, true) => self.owing_checks += 1,
            (true, false) => self.owing_checks -= 1,
            (false, false) | (true, true) => {}
        }
        match (before.is_any(), owed.is_any()) {
            (false, true) => self.owing += 1,
            (true, false) => self.owing -= 1,
            (false, false) | (true, true) => {}
        }
        self.owing_from = self.owing_from.min(u32::try_from(index).unwrap_or(0));
    }

    /// Updates the counter after an owed action of a slot was taken.
    fn count_taken(&mut self, index: usize) {
        if !self.servers.slots()[index].owed.is_any() {
            self.owing -= 1;
        }
    }

    /// Runs a complete step that makes a server Unknown.
    fn mark_unknown(
        &mut self,
        now: Instant,
        index: usize,
        error: ServerError,
        topology_version: Option<TopologyVersion>,
        observer: &mut impl SdamObserver,
    ) {
        self.begin();
        self.set_unknown(now, index, error);
        self.servers.slots_mut()[index].description.data.topology_version = topology_version;
        self.update(now, index);
        self.finish(now, observer);
    }
}

/// Whether `new` is older than `known`: the same process with a lower counter.
fn is_older(new: Option<TopologyVersion>, known: Option<TopologyVersion>) -> bool {
    match (new, known) {
        (Some(new), Some(known)) => new.process_id == known.process_id && new.counter < known.counter,
        (None, _) | (_, None) => false,
    }
}

impl<N: Store<TextId>> ServerSlot<N> {
    /// The id of the server in this slot.
    fn id(&self, index: usize) -> ServerId {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        ServerId::at(index, NonZeroU32::new(self.serial).unwrap_or(NonZeroU32::MIN))
    }

    /// Frees the slot.
    fn free(&mut self) {
        self.state = SlotState::Free;
        self.owed = Owed::NONE;
        self.description.reset(Data::unknown(None, Instant::ORIGIN));
    }
}

impl<M: Memory> Source for Topology<M> {
    fn id(&self) -> TopologyId {
        self.id
    }

    fn meta(&self, side: Side) -> &Meta {
        match side {
            Side::Now => &self.meta,
            Side::Before => &self.meta_before,
        }
    }

    fn texts(&self) -> TextsRef<'_> {
        self.texts.view()
    }

    fn slot_count(&self) -> usize {
        self.servers.slots().len()
    }

    fn server_at(&self, index: usize, side: Side) -> Option<ServerDescription<'_>> {
        let slot = self.servers.slots().get(index)?;
        let is_present = match (side, slot.state) {
            (_, SlotState::Free) => false,
            (Side::Now, at) => at == SlotState::Member,
            (Side::Before, at) => (at == SlotState::Gone) == slot.moved,
        };
        if !is_present {
            return None;
        }
        let description = match (side, slot.saved) {
            (Side::Before, Some(spare)) => &self.spares[usize::from(spare)],
            (Side::Before, None) | (Side::Now, _) => &slot.description,
        };
        Some(ServerDescription {
            server: slot.id(index),
            address: slot.address,
            data: &description.data,
            names: description.names.slots(),
            texts: self.texts.view(),
        })
    }
}
