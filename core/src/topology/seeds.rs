//! Replacement of the topology's hosts after a DNS lookup.
//!
//! Read first: Polling SRV Records for mongos Discovery, "Implementation".

use super::event::SdamObserver;
use super::memory::{Memory, SlotState};
use super::{Topology, TopologyType};
use crate::Instant;
use crate::address::Address;
use crate::storage::{Full, Store};

impl<M: Memory> Topology<M> {
    /// Handles a new lookup of the deployment's hosts, which replace the current members.
    ///
    /// Members that are not among them are removed and new ones are added, in one update. This
    /// applies only to a topology of type Sharded or Unknown; others have their members from their
    /// servers and do not change. An empty list of hosts changes nothing.
    ///
    /// - `seeds`: addresses, as in [`TopologyOptions::seeds`](super::TopologyOptions::seeds),
    ///   except paths of unix sockets, which a DNS server may not supply. A text that is not a
    ///   valid address is ignored.
    ///
    /// Cost: O(members x seeds). Owes `ServerAdded` and `ServerRemoved`, and `WakeSelectors`.
    /// Events: `ServerClosed`, `ServerOpening`, `TopologyDescriptionChanged`, for changes that
    /// occurred.
    ///
    /// # Errors
    ///
    /// [`Full`]: there is no room for the new members in addition to the old ones; nothing changed.
    ///
    /// Source: Polling SRV Records for mongos Discovery, "Implementation".
    pub fn handle_seeds<'s>(
        &mut self,
        now: Instant,
        seeds: impl Iterator<Item = &'s str> + Clone,
        observer: &mut impl SdamObserver,
    ) -> Result<(), Full> {
        let now = self.advance(now);
        let is_open = matches!(self.meta.topology_type, TopologyType::Unknown | TopologyType::Sharded);
        let addresses = seeds.filter_map(Address::parse_host);
        if self.closed || !is_open || addresses.clone().next().is_none() {
            return Ok(());
        }
        let (count, bytes) = addresses.clone().fold((0_u32, 0_usize), |(count, bytes), address| {
            (count.saturating_add(1), bytes.saturating_add(address.as_bytes().len()))
        });
        self.sweep_if_due(count, bytes);
        self.mark_members();
        let mut wanted = 0;
        for address in addresses.clone() {
            let address = self.texts.intern_address(address.as_bytes(), false)?;
            wanted += u32::from(self.texts.mark(address));
        }
        self.reserve(wanted)?;

        self.begin();
        self.replace_members(addresses);
        self.seeds = self.members as usize;
        self.finish(now, observer);
        Ok(())
    }

    /// Removes members that are not among these addresses, and adds those that are not members yet.
    /// The caller has interned all addresses and reserved slots.
    fn replace_members(&mut self, addresses: impl Iterator<Item = Address> + Clone) {
        self.texts.unmark_all();
        for address in addresses.clone() {
            if let Some(address) = self.texts.find([address.as_bytes(), &[], &[]]) {
                self.texts.mark(address);
            }
        }
        for index in 0..self.servers.slots().len() {
            let slot = &self.servers.slots()[index];
            if slot.state == SlotState::Member && !self.texts.is_marked(slot.address) {
                self.remove(index);
            }
        }
        self.mark_members();
        let mut from = 0;
        for address in addresses {
            let Some(address) = self.texts.find([address.as_bytes(), &[], &[]]) else { continue };
            if self.texts.mark(address) {
                from = self.add(address, from).unwrap_or_else(|Full| panic!("there was room for this member"));
            }
        }
    }
}
