//! Application of a server's new description to the topology.
//!
//! Read first: SDAM, "Updating the TopologyDescription" with its table and subroutines.

use super::description::{Data, Meta};
use super::error::{ElectionTuple, Limit, ServerError, WireMismatch};
use super::memory::{Memory, Names, Owed, ServerSlot, SlotState};
use super::texts::TextId;
use super::{CHANGES_MAX, MAX_WIRE_VERSION, MIN_WIRE_VERSION, Topology, TopologyType, memory};
use crate::storage::{Full, Store};
use crate::{Instant, ServerType};

/// From this wire version on, primaries are ordered by electionId before setVersion (MongoDB 6.0).
const ELECTION_FIRST: i32 = 17;

impl<M: Memory> Topology<M> {
    /// Begins an update.
    pub(super) fn begin(&mut self) {
        assert!(self.saved.is_empty(), "an update was not finished");
        self.meta_before = self.meta;
        self.touched = false;
    }

    /// Saves the description in this slot as it was before the update.
    pub(super) fn save(&mut self, index: usize) {
        self.touched = true;
        let slot = &mut self.servers.slots_mut()[index];
        if slot.saved.is_some() {
            return;
        }
        let spare = self.saved.len();
        assert!(spare < CHANGES_MAX, "more than CHANGES_MAX servers changed in one update");
        if self.spares[spare].copy_from(&slot.description).is_err() {
            // Out of memory: the event will contain the old description without its names.
            let data = Data { ends: [0; 3], ..slot.description.data };
            self.spares[spare].reset(data);
        }
        slot.saved = u8::try_from(spare).ok();
        let _ = self.saved.push(u32::try_from(index).unwrap_or(u32::MAX));
    }

    /// Resets the server in this slot to the default Unknown description, with this error.
    pub(super) fn set_unknown(&mut self, now: Instant, index: usize, error: ServerError) {
        self.save(index);
        self.servers.slots_mut()[index].description.reset(Data::unknown(Some(error), now));
        self.owe(index, |owed| owed.ready = false);
    }

    /// Adds a member in the first free slot; no slot before `from` is free. Returns the next index,
    /// where the search for the next member of the same reply begins, so one reply scans each slot
    /// once.
    pub(super) fn add(&mut self, address: TextId, from: usize) -> Result<usize, Full> {
        let count = self.servers.slots().len();
        let index = if self.members + self.gone < u32::try_from(count).unwrap_or(u32::MAX) {
            let mut slots = self.servers.slots().iter().skip(from);
            from + slots.position(|slot| slot.state == SlotState::Free).ok_or(Full)?
        } else {
            if self.members + self.gone >= M::SERVERS_MAX {
                return Err(Full);
            }
            self.servers.try_push(ServerSlot {
                state: SlotState::Free,
                moved: false,
                saved: None,
                owed: Owed::NONE,
                serial: 0,
                address,
                description: memory::Description::empty(),
            })?;
            count
        };
        // Serials wrap around. An input for the server with the same serial, 2^32 members ago, can
        // no longer be pending.
        self.last_serial = self.last_serial.checked_add(1).unwrap_or(1);
        self.members += 1;
        self.touched = true;
        let clock = self.clock;
        let slot = &mut self.servers.slots_mut()[index];
        slot.state = SlotState::Member;
        slot.moved = true;
        slot.serial = self.last_serial;
        slot.address = address;
        slot.description.reset(Data::unknown(None, clock));
        self.owe(index, |owed| owed.added = true);
        Ok(index + 1)
    }

    /// Removes a member from the topology. Its slot becomes free when the host has polled
    /// `ServerRemoved`, or at the end of the update if the host has not polled its `ServerAdded`.
    pub(super) fn remove(&mut self, index: usize) {
        let slot = &mut self.servers.slots_mut()[index];
        assert!(slot.state == SlotState::Member, "only a member is removed");
        debug_assert!(!slot.moved, "an update does not remove a server that it added");
        slot.state = SlotState::Gone;
        slot.moved = true;
        self.members -= 1;
        self.gone += 1;
        self.touched = true;
        self.owe(index, |owed| {
            *owed = Owed { added: owed.added, removed: !owed.added, ..Owed::NONE };
        });
    }

    /// Applies the SDAM rules for the description in this slot.
    pub(super) fn update(&mut self, now: Instant, index: usize) {
        use ServerType as S;
        use TopologyType as T;
        if M::DIRECT_ONLY {
            return self.update_single(now, index);
        }
        let server_type = self.data(index).server_type;
        match (self.meta.topology_type, server_type) {
            (T::Single, _) => self.update_single(now, index),
            (T::LoadBalanced, _)
            | (T::Unknown | T::ReplicaSetNoPrimary, S::Unknown | S::PossiblePrimary | S::RsGhost | S::LoadBalancer)
            | (T::Sharded, S::Unknown | S::PossiblePrimary | S::Mongos) => {}
            (T::Unknown, S::Standalone) if self.seeds == 1 => self.meta.topology_type = T::Single,
            (T::Unknown, S::Mongos) => self.meta.topology_type = T::Sharded,
            (T::Unknown, S::Standalone)
            | (T::ReplicaSetNoPrimary, S::Standalone | S::Mongos)
            | (
                T::Sharded,
                S::Standalone
                | S::RsPrimary
                | S::RsSecondary
                | S::RsArbiter
                | S::RsOther
                | S::RsGhost
                | S::LoadBalancer,
            ) => self.remove(index),
            (T::Unknown | T::ReplicaSetNoPrimary, S::RsSecondary | S::RsArbiter | S::RsOther) => {
                self.meta.topology_type = T::ReplicaSetNoPrimary;
                self.update_without_primary(now, index);
            }
            (T::Unknown | T::ReplicaSetNoPrimary | T::ReplicaSetWithPrimary, S::RsPrimary) => {
                self.meta.topology_type = T::ReplicaSetWithPrimary;
                self.update_from_primary(now, index);
            }
            (T::ReplicaSetWithPrimary, S::Unknown | S::PossiblePrimary | S::RsGhost | S::LoadBalancer) => {
                self.check_if_has_primary();
            }
            (T::ReplicaSetWithPrimary, S::Standalone | S::Mongos) => {
                self.remove(index);
                self.check_if_has_primary();
            }
            (T::ReplicaSetWithPrimary, S::RsSecondary | S::RsArbiter | S::RsOther) => {
                self.update_with_primary_from_member(index);
            }
        }
    }

    /// A direct connection never changes its type, but its set name is checked.
    fn update_single(&mut self, now: Instant, index: usize) {
        let data = self.data(index);
        let is_wrong = self.meta.set_name.is_some() && data.set_name != self.meta.set_name;
        if data.server_type.is_known() && is_wrong {
            self.set_unknown(now, index, ServerError::WrongSetName);
        }
    }

    /// A member's reply while no primary is known: its hosts are added, no other member is removed.
    fn update_without_primary(&mut self, now: Instant, index: usize) {
        let data = self.data(index);
        if self.meta.set_name.is_some() && self.meta.set_name != data.set_name {
            self.remove(index);
            return;
        }
        if let Err(error) = self.make_room(index) {
            if self.meta.set_name.is_none() {
                // A rejected reply must not turn the topology into a replica set.
                self.meta.topology_type = self.meta_before.topology_type;
            }
            self.set_unknown(now, index, error);
            return;
        }
        self.meta.set_name = data.set_name;
        self.add_hosts(index);
        self.hint_primary(data.primary);
        if self.is_misnamed(index) {
            self.remove(index);
        }
    }

    /// A member's reply while a primary is known: its hosts are ignored.
    fn update_with_primary_from_member(&mut self, index: usize) {
        let data = self.data(index);
        if self.meta.set_name != data.set_name || self.is_misnamed(index) {
            self.remove(index);
            self.check_if_has_primary();
        } else if !self.has_primary() {
            self.meta.topology_type = TopologyType::ReplicaSetNoPrimary;
            self.hint_primary(data.primary);
        }
    }

    /// A primary's reply: unless it is stale, its host list replaces the members.
    fn update_from_primary(&mut self, now: Instant, index: usize) {
        let data = self.data(index);
        if self.meta.set_name.is_some() && self.meta.set_name != data.set_name {
            self.remove(index);
            self.check_if_has_primary();
            return;
        }
        if let Err(error) = self.make_room(index) {
            if self.meta.set_name.is_none() {
                self.meta.topology_type = self.meta_before.topology_type;
            }
            self.make_way(index, &data);
            self.set_unknown(now, index, error);
            if self.meta.topology_type == TopologyType::ReplicaSetWithPrimary {
                self.check_if_has_primary();
            }
            return;
        }
        if let Err(error) = self.order_primary(&data) {
            self.set_unknown(now, index, error);
            self.meta.set_name = data.set_name;
            self.check_if_has_primary();
            return;
        }
        self.meta.set_name = data.set_name;
        for other in 0..self.servers.slots().len() {
            let slot = &self.servers.slots()[other];
            let is_primary = slot.description.data.server_type == ServerType::RsPrimary;
            if other != index && slot.state == SlotState::Member && is_primary {
                self.set_unknown(now, other, ServerError::NewerPrimary);
                self.owe(other, |owed| owed.check = true);
            }
        }
        self.add_hosts(index);
        self.remove_others(index);
        self.check_if_has_primary();
    }

    /// Compares a primary with the newest one seen, and stores its values if it is not older.
    fn order_primary(&mut self, data: &Data) -> Result<(), ServerError> {
        let new = ElectionTuple { election_id: data.election_id, set_version: data.set_version };
        let meta = &mut self.meta;
        let known = ElectionTuple { election_id: meta.max_election_id, set_version: meta.max_set_version };
        let stale = ServerError::StalePrimary { stale: new, known };
        if data.wire.1 >= ELECTION_FIRST {
            if new < known {
                return Err(stale);
            }
            meta.max_election_id = new.election_id;
            meta.max_set_version = new.set_version;
            return Ok(());
        }
        if let (Some(version), Some(election)) = (new.set_version, new.election_id) {
            if let (Some(max_version), Some(max_election)) = (known.set_version, known.election_id) {
                if (version, election) < (max_version, max_election) {
                    return Err(stale);
                }
            }
            meta.max_election_id = Some(election);
        }
        meta.max_set_version = meta.max_set_version.max(new.set_version);
        Ok(())
    }

    /// Reserves slots for the hosts that are not yet members.
    fn make_room(&mut self, index: usize) -> Result<(), ServerError> {
        self.mark_members();
        let mut wanted = 0_u32;
        for at in 0..self.hosts(index) {
            let host = self.name(index, at);
            wanted += u32::from(self.texts.mark(host));
        }
        let limit = M::SERVERS_MAX.min(self.servers.limit());
        self.reserve(wanted).map_err(|Full| ServerError::Beyond { limit: Limit::Servers, count: limit })
    }

    /// Called when the hosts of a primary do not fit in addition to the members that they replace.
    /// If they would fit without those members, removes them at once and requests a check of the
    /// primary. A check that begins after the host has polled the removals finds their slots free.
    /// Otherwise nothing changes.
    fn make_way(&mut self, index: usize, data: &Data) {
        self.texts.unmark_all();
        let mut wanted = u32::from(self.texts.mark(self.servers.slots()[index].address));
        for at in 0..self.hosts(index) {
            let host = self.name(index, at);
            wanted += u32::from(self.texts.mark(host));
        }
        if wanted > M::SERVERS_MAX.min(self.servers.limit()) || self.order_primary(data).is_err() {
            return;
        }
        for other in 0..self.servers.slots().len() {
            let slot = &self.servers.slots()[other];
            if slot.state == SlotState::Member && !self.texts.is_marked(slot.address) {
                self.remove(other);
            }
        }
        self.owe(index, |owed| owed.check = true);
    }

    /// Reserves slots for `wanted` new members.
    pub(super) fn reserve(&mut self, wanted: u32) -> Result<(), Full> {
        if wanted == 0 {
            return Ok(());
        }
        let limit = M::SERVERS_MAX.min(self.servers.limit());
        let room = limit.saturating_sub(self.members + self.gone);
        if wanted > room {
            return Err(Full);
        }
        self.servers.reserve(self.members + self.gone + wanted)
    }

    /// Adds the hosts in the description in this slot that are not yet members. The caller has
    /// reserved the slots.
    fn add_hosts(&mut self, index: usize) {
        self.mark_members();
        let mut from = 0;
        for at in 0..self.hosts(index) {
            let host = self.name(index, at);
            if self.texts.mark(host) {
                from = self.add(host, from).unwrap_or_else(|Full| panic!("there was room for this member"));
            }
        }
    }

    /// Removes every member that is not among the hosts in the description in this slot.
    fn remove_others(&mut self, index: usize) {
        self.texts.unmark_all();
        for at in 0..self.hosts(index) {
            let host = self.name(index, at);
            self.texts.mark(host);
        }
        for other in 0..self.servers.slots().len() {
            let slot = &self.servers.slots()[other];
            if slot.state == SlotState::Member && !self.texts.is_marked(slot.address) {
                self.remove(other);
            }
        }
    }

    pub(super) fn mark_members(&mut self) {
        self.texts.unmark_all();
        for slot in self.servers.slots() {
            if slot.state == SlotState::Member {
                self.texts.mark(slot.address);
            }
        }
    }

    /// Applies the `primary` field of a member's reply: that server, if Unknown, becomes
    /// PossiblePrimary.
    fn hint_primary(&mut self, primary: Option<TextId>) {
        let Some(index) = primary.and_then(|primary| self.member_at(primary)) else { return };
        if self.data(index).server_type == ServerType::Unknown {
            self.save(index);
            self.servers.slots_mut()[index].description.data.server_type = ServerType::PossiblePrimary;
        }
    }

    /// Whether the reply's `me` differs from the address in the topology. A reply without `me` is
    /// no mismatch.
    fn is_misnamed(&self, index: usize) -> bool {
        let slot = &self.servers.slots()[index];
        slot.description.data.me.is_some_and(|me| me != slot.address)
    }

    fn has_primary(&self) -> bool {
        let is_primary = |slot: &ServerSlot<Names<M>>| slot.description.data.server_type == ServerType::RsPrimary;
        self.servers.slots().iter().any(|slot| slot.state == SlotState::Member && is_primary(slot))
    }

    fn check_if_has_primary(&mut self) {
        self.meta.topology_type =
            if self.has_primary() { TopologyType::ReplicaSetWithPrimary } else { TopologyType::ReplicaSetNoPrimary };
    }

    /// Computes the fields derived from the servers: compatibility and session timeout.
    pub(super) fn summarize(&mut self) {
        let members = self.servers.slots().iter().filter(|slot| slot.state == SlotState::Member);
        let mut incompatible = None;
        let mut timeout: Option<Option<i64>> = None;
        for slot in members {
            let data = &slot.description.data;
            if data.server_type.is_data_bearing() {
                timeout = Some(match (timeout, data.session_timeout) {
                    (None, minutes) => minutes,
                    (Some(least), minutes) => least.zip(minutes).map(|(least, minutes)| least.min(minutes)),
                });
            }
            let mismatch = mismatch(data).map(|mismatch| (slot.address, mismatch));
            incompatible = incompatible.or(mismatch);
        }
        self.meta = Meta { incompatible, session_timeout: timeout.flatten(), ..self.meta };
    }

    fn data(&self, index: usize) -> Data {
        self.servers.slots()[index].description.data
    }

    /// The number of hosts, passives and arbiters in the description in this slot.
    fn hosts(&self, index: usize) -> usize {
        usize::from(self.servers.slots()[index].description.data.ends[2])
    }

    fn name(&self, index: usize, at: usize) -> TextId {
        self.servers.slots()[index].description.names.slots()[at]
    }
}

/// The wire version mismatch of a known server, if any.
fn mismatch(data: &Data) -> Option<WireMismatch> {
    if !data.server_type.is_known() || data.server_type == ServerType::LoadBalancer {
        return None;
    }
    let (min, max) = data.wire;
    if min > MAX_WIRE_VERSION {
        Some(WireMismatch::ServerTooNew(min))
    } else if max < MIN_WIRE_VERSION {
        Some(WireMismatch::ServerTooOld(max))
    } else {
        None
    }
}
