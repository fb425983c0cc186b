//! The end of an update: emits its events in order. Also checks a topology's invariants.
//!
//! Read first: SDAM Logging and Monitoring, "Order of events".

use super::description::{ServerDescription, Side, Source, TopologyDescription};
use super::event::{SdamEvent, SdamObserver};
use super::memory::{Memory, SlotState};
use super::texts::TextId;
use super::{CHANGES_MAX, Topology, TopologyType};
use crate::storage::Store;
use crate::{Instant, ServerType};

impl<M: Memory> Topology<M> {
    /// Emits the events of a new topology, whose seeds were all added in the update in progress.
    pub(super) fn emit_opening(&mut self, now: Instant, observer: &mut impl SdamObserver) {
        let topology = self.id;
        observer.on_event(now, &SdamEvent::TopologyOpening { topology });
        self.emit_topology(now, observer);
        self.emit_moved(now, SlotState::Member, observer);
        self.discard_update();
    }

    /// Ends an update: updates the topology's own fields, emits all events, and owes
    /// `WakeSelectors`.
    pub(super) fn finish(&mut self, now: Instant, observer: &mut impl SdamObserver) {
        self.wake = true;
        if self.touched {
            self.summarize();
        }
        let mut changes = [false; CHANGES_MAX];
        for (at, change) in changes.iter_mut().enumerate().take(self.saved.len()) {
            *change = self.is_changed(at);
        }
        let mut changed = self.meta != self.meta_before;
        for (at, index) in self.saved.iter().enumerate() {
            let index = *index as usize;
            let slot = &self.servers.slots()[index];
            changed |= changes[at];
            if changes[at] && slot.state == SlotState::Member {
                let sides = (self.server_at(index, Side::Before), self.server_at(index, Side::Now));
                if let (Some(previous), Some(new)) = sides {
                    self.emit_server(now, previous, new, observer);
                }
            }
        }
        if self.touched {
            changed |= self.servers.slots().iter().any(|slot| slot.moved);
            self.emit_moved(now, SlotState::Gone, observer);
            self.emit_moved(now, SlotState::Member, observer);
        }
        if changed {
            self.emit_topology(now, observer);
        }
        let is_last_gone = self.members == 0 && !self.closed && self.servers.slots().iter().any(|slot| slot.moved);
        if is_last_gone {
            observer.on_event(now, &SdamEvent::NoServers { topology: self.id });
        }
        self.discard_update();
    }

    fn emit_server(
        &self,
        now: Instant,
        previous: ServerDescription<'_>,
        new: ServerDescription<'_>,
        observer: &mut impl SdamObserver,
    ) {
        let (server, address) = (new.server(), new.address());
        let event = SdamEvent::ServerDescriptionChanged { topology: self.id, server, address, previous, new };
        observer.on_event(now, &event);
    }

    /// Emits ServerClosed of removed servers, or ServerOpening of added ones.
    fn emit_moved(&self, now: Instant, which: SlotState, observer: &mut impl SdamObserver) {
        let topology = self.id;
        for (index, slot) in self.servers.slots().iter().enumerate() {
            if slot.moved && slot.state == which {
                let (server, address) = (slot.id(index), self.texts.view().get(slot.address));
                let event = if which == SlotState::Gone {
                    SdamEvent::ServerClosed { topology, server, address }
                } else {
                    SdamEvent::ServerOpening { topology, server, address }
                };
                observer.on_event(now, &event);
            }
        }
    }

    fn emit_topology(&self, now: Instant, observer: &mut impl SdamObserver) {
        let previous = TopologyDescription { source: self, side: Side::Before };
        let new = TopologyDescription { source: self, side: Side::Now };
        observer.on_event(now, &SdamEvent::TopologyDescriptionChanged { topology: self.id, previous, new });
    }

    /// Whether the description saved at this index differs from the current one.
    fn is_changed(&mut self, at: usize) -> bool {
        let slot = &self.servers.slots()[self.saved[at] as usize];
        let (old, new) = (&self.spares[at], &slot.description);
        if !old.data.is_equal(&new.data) {
            return true;
        }
        let (old_names, new_names) = (old.names.slots(), new.names.slots());
        if M::DIRECT_ONLY || old_names == new_names {
            return false;
        }
        let parts = old.data.parts(old_names).into_iter().zip(new.data.parts(new_names));
        let texts = &mut self.texts;
        parts.into_iter().any(|(old, new)| {
            // The names of a part are distinct, so sets of equal size are equal if one contains the
            // other.
            let is_same = |old: &[TextId], new: &[TextId], texts: &mut super::texts::Texts<M>| {
                texts.unmark_all();
                for name in old {
                    texts.mark(*name);
                }
                old.len() == new.len() && new.iter().all(|name| texts.is_marked(*name))
            };
            !is_same(old, new, texts)
        })
    }

    /// Discards the state before the update.
    fn discard_update(&mut self) {
        for index in self.saved.iter() {
            self.servers.slots_mut()[*index as usize].saved = None;
        }
        self.saved.clear();
        if self.touched {
            for index in 0..self.servers.slots().len() {
                let slot = &mut self.servers.slots_mut()[index];
                slot.moved = false;
                if slot.state == SlotState::Gone && slot.owed.added {
                    // The host has not polled `ServerAdded` of this server, so `ServerRemoved` is
                    // not owed either.
                    self.owe(index, |owed| owed.added = false);
                    self.servers.slots_mut()[index].free();
                    self.gone -= 1;
                }
            }
        }
        self.touched = false;
        self.meta_before = self.meta;
    }

    pub(super) fn check(&self) {
        self.texts.assert_invariants();
        let slots = self.servers.slots();
        let count = |which| slots.iter().filter(|slot| slot.state == which).count();
        assert_eq!(count(SlotState::Member), self.members as usize, "members are counted wrong");
        assert_eq!(count(SlotState::Gone), self.gone as usize, "removed servers are counted wrong");
        assert_eq!(
            slots.iter().filter(|slot| slot.owed.is_any()).count(),
            self.owing as usize,
            "slots with owed actions are counted wrong"
        );
        let checks = slots.iter().filter(|slot| slot.owed.has_check()).count();
        assert_eq!(checks, self.owing_checks as usize, "owed checks are counted wrong");
        let first = slots.iter().position(|slot| slot.owed.is_any());
        assert!(
            first.is_none_or(|first| first >= self.owing_from as usize),
            "the first slot with owed actions is wrong"
        );
        assert!(self.saved.is_empty() && self.meta == self.meta_before, "an update was not finished");
        for (index, slot) in slots.iter().enumerate() {
            assert!(!slot.moved && slot.saved.is_none(), "an update was not finished");
            let owed = &slot.owed;
            match slot.state {
                SlotState::Free => assert!(!owed.is_any(), "a free slot owes an action"),
                SlotState::Gone => {
                    assert!(owed.removed && !owed.added && !owed.ready, "a removed server owes ServerRemoved only")
                }
                SlotState::Member => {
                    assert!(!owed.removed, "a member owes ServerRemoved");
                    let description = &slot.description;
                    let is_known = description.data.server_type.is_known();
                    assert!(!owed.ready || is_known, "an Unknown server owes Pool(Ready)");
                    assert!(!is_known || description.data.error.is_none(), "a known server has an error");
                    assert!(is_known || description.names.slots().is_empty(), "an Unknown server has names");
                    let same = slots
                        .iter()
                        .skip(index + 1)
                        .any(|other| other.state == SlotState::Member && other.address == slot.address);
                    assert!(!same, "two members have the same address");
                }
            }
        }
        self.check_type();
    }

    fn check_type(&self) {
        let of = |wanted: ServerType| self.servers().filter(|server| server.server_type() == wanted).count();
        let primaries = of(ServerType::RsPrimary);
        let has_other_than =
            |allowed: fn(ServerType) -> bool| self.servers().any(|server| !allowed(server.server_type()));
        match self.meta.topology_type {
            TopologyType::Unknown => {
                assert!(!has_other_than(|server| !server.is_known() || server == ServerType::RsGhost));
            }
            TopologyType::Single => assert!(self.members <= 1, "a direct connection has several servers"),
            TopologyType::ReplicaSetNoPrimary => assert_eq!(primaries, 0, "a primary that is not counted"),
            TopologyType::ReplicaSetWithPrimary => assert_eq!(primaries, 1, "not exactly one primary"),
            TopologyType::Sharded => {
                // A ghost found before the first router stays until its next reply or failure.
                let may_be = |server: ServerType| matches!(server, ServerType::Mongos | ServerType::RsGhost);
                assert!(!self.servers().any(|server| server.server_type().is_known() && !may_be(server.server_type())));
            }
            TopologyType::LoadBalanced => assert!(!has_other_than(|server| server == ServerType::LoadBalancer)),
        }
        let is_set =
            matches!(self.meta.topology_type, TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary);
        assert!(!is_set || !has_other_than(|server| !matches!(server, ServerType::Standalone | ServerType::Mongos)));
    }
}
