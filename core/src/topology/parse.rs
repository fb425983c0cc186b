//! Conversion of a hello reply to a description.
//!
//! Read first: SDAM, "Parsing a hello or legacy hello response".

use super::Topology;
use super::action::RoundTrip;
use super::description::Data;
use super::error::{AddressField, Limit, ServerError};
use super::memory::{Description, Memory, Names, SlotState};
use super::texts::TextId;
use crate::Instant;
use crate::address::Address;
use crate::storage::{Full, Store};
use crate::time::Past;
use core::time::Duration;
use poolhouse_wire::hello::HelloReply;

/// The longest set name, and the longest tag (its name and its value together), in bytes.
pub(super) const NAME_BYTES_MAX: u16 = 255;

impl<M: Memory> Topology<M> {
    /// If a reply equals the stored description, updates only the fields that equality ignores, and
    /// returns true.
    ///
    /// Allocates nothing. This comparison does not recognize a reply with the same sets in another
    /// order; the comparison at the end of the update does.
    pub(super) fn refresh(
        &mut self,
        now: Instant,
        index: usize,
        hello: &HelloReply<'_>,
        round_trip: Option<RoundTrip>,
    ) -> bool {
        let description = &self.servers.slots()[index].description;
        let known = &description.data;
        let same = known.error.is_none()
            && known.server_type == hello.server_type()
            && known.wire == (hello.min_wire_version, hello.max_wire_version)
            && known.set_version == hello.set_version
            && known.election_id == hello.election_id
            && known.session_timeout == hello.logical_session_timeout_minutes.map(i64::from)
            && known.topology_version == hello.topology_version
            && known.is_cryptd == hello.is_cryptd
            && self.is_text(known.set_name, hello.set_name)
            && (M::DIRECT_ONLY || self.has_names(description, hello));
        if !same {
            return false;
        }
        let data = &mut self.servers.slots_mut()[index].description.data;
        data.last_update = now;
        data.last_write_date_ms = hello.last_write_date_ms;
        data.round_trip = round_trip.map(times).or(data.round_trip);
        true
    }

    /// Whether the addresses and tags in a reply are those of the stored description.
    fn has_names(&self, description: &Description<Names<M>>, hello: &HelloReply<'_>) -> bool {
        let known = &description.data;
        let [hosts, passives, arbiters, tags] = known.parts(description.names.slots());
        self.is_address(known.me, hello.me)
            && self.is_address(known.primary, hello.primary)
            && self.are_addresses(hosts, hello.hosts.strings())
            && self.are_addresses(passives, hello.passives.strings())
            && self.are_addresses(arbiters, hello.arbiters.strings())
            && self.are_tags(tags, kept_tags::<M>(hello, usize::from(known.ends[2])))
    }

    /// Replaces a description by the content of a reply, or by the default one with an error if the
    /// reply is rejected.
    pub(super) fn replace(
        &mut self,
        now: Instant,
        index: usize,
        hello: &HelloReply<'_>,
        round_trip: Option<RoundTrip>,
    ) {
        let known = self.servers.slots()[index].description.data.round_trip;
        self.save(index);
        self.servers.slots_mut()[index].description.reset(Data::unknown(None, now));
        let parsed = self.room_for(hello).and_then(|hosts| self.parse(now, index, hello, hosts));
        match parsed {
            Ok(mut data) => {
                data.round_trip = round_trip.map(times).or(known);
                self.servers.slots_mut()[index].description.data = data;
            }
            Err(error) => self.set_unknown(now, index, error),
        }
    }

    /// Checks that a reply does not have too many hosts, and removes unused texts if their memory
    /// is needed. Returns the number of hosts.
    fn room_for(&mut self, hello: &HelloReply<'_>) -> Result<usize, ServerError> {
        let mut bytes = hello.set_name.map_or(0, str::len);
        if M::DIRECT_ONLY {
            self.sweep_if_due(1, bytes);
            return Ok(0);
        }
        let limit = u32::from(M::NAMES_MAX);
        let mut count = 0;
        bytes += 2 * 6 + [hello.me, hello.primary].into_iter().flatten().map(str::len).sum::<usize>();
        for host in hello.hosts.strings().chain(hello.passives.strings()).chain(hello.arbiters.strings()) {
            count += 1;
            // `host` is stored as `host:27017`, at most 6 bytes longer.
            bytes = bytes.saturating_add(host.len() + 6);
            if count > limit {
                return Err(ServerError::Beyond { limit: Limit::Names, count: limit });
            }
        }
        let hosts = count as usize;
        for (name, value) in kept_tags::<M>(hello, hosts) {
            count += 1;
            bytes = bytes.saturating_add(name.len() + value.len() + 1);
        }
        self.sweep_if_due(count + 3, bytes);
        Ok(hosts)
    }

    fn parse(&mut self, now: Instant, index: usize, hello: &HelloReply<'_>, hosts: usize) -> Result<Data, ServerError> {
        // Most replies repeat the previous values of setName, me and primary.
        let before = self.servers.slots()[index].saved.map(|saved| self.spares[usize::from(saved)].data);
        let mut data = Data {
            server_type: hello.server_type(),
            wire: (hello.min_wire_version, hello.max_wire_version),
            set_version: hello.set_version,
            election_id: hello.election_id,
            last_write_date_ms: hello.last_write_date_ms,
            session_timeout: hello.logical_session_timeout_minutes.map(i64::from),
            topology_version: hello.topology_version,
            is_cryptd: hello.is_cryptd,
            ..Data::unknown(None, now)
        };
        if let Some(name) = hello.set_name {
            if name.len() > usize::from(NAME_BYTES_MAX) {
                return Err(ServerError::Beyond { limit: Limit::SetName, count: u32::from(NAME_BYTES_MAX) });
            }
            let known = before.and_then(|before| before.set_name).filter(|known| self.texts.view().get(*known) == name);
            data.set_name = Some(known.map_or_else(|| self.intern([name.as_bytes(), &[], &[]]), Ok)?);
        }
        if M::DIRECT_ONLY {
            return Ok(data);
        }
        if let Some(me) = hello.me {
            let known = before.and_then(|before| before.me);
            data.me = Some(self.intern_again(known, me, AddressField::Me)?);
        }
        if let Some(primary) = hello.primary {
            let known = before.and_then(|before| before.primary);
            data.primary = Some(self.intern_again(known, primary, AddressField::Primary)?);
        }
        data.ends[0] = self.parse_hosts(index, hello.hosts.strings(), AddressField::Hosts)?;
        data.ends[1] = self.parse_hosts(index, hello.passives.strings(), AddressField::Passives)?;
        data.ends[2] = self.parse_hosts(index, hello.arbiters.strings(), AddressField::Arbiters)?;
        self.texts.unmark_all();
        for (name, value) in kept_tags::<M>(hello, hosts) {
            let tag = self.intern([name.as_bytes(), b"\0", value.as_bytes()])?;
            if self.texts.mark(tag) {
                self.push_name(index, tag)?;
            }
        }
        Ok(data)
    }

    /// Appends the distinct addresses of a list to the names in this slot, and returns the new
    /// number of names.
    fn parse_hosts<'h>(
        &mut self,
        index: usize,
        hosts: impl Iterator<Item = &'h str>,
        field: AddressField,
    ) -> Result<u16, ServerError> {
        self.texts.unmark_all();
        for (host, at) in hosts.zip(0..) {
            let host = match self.same_as_before(index, host) {
                Some(known) => known,
                None => self.intern_address(host, field, at)?,
            };
            if self.texts.mark(host) {
                self.push_name(index, host)?;
            }
        }
        let names = self.servers.slots()[index].description.names.slots().len();
        Ok(u16::try_from(names).unwrap_or(u16::MAX))
    }

    /// The name at the next index of the previous description, if it equals this host.
    fn same_as_before(&self, index: usize, host: &str) -> Option<TextId> {
        let slot = &self.servers.slots()[index];
        let before = self.spares[usize::from(slot.saved?)].names.slots();
        let known = *before.get(slot.description.names.slots().len())?;
        self.texts.is_address(known, host).then_some(known)
    }

    fn push_name(&mut self, index: usize, name: TextId) -> Result<(), ServerError> {
        let names = &mut self.servers.slots_mut()[index].description.names;
        names.try_push(name).map_err(|Full| {
            let count = u32::try_from(names.slots().len()).unwrap_or(u32::MAX);
            ServerError::Beyond { limit: Limit::Names, count }
        })
    }

    /// Like [`Self::intern_address`]; faster if the address equals the one in the previous reply
    /// (`known`).
    fn intern_again(&mut self, known: Option<TextId>, text: &str, field: AddressField) -> Result<TextId, ServerError> {
        match known.filter(|known| self.texts.is_address(*known, text)) {
            Some(known) => Ok(known),
            None => self.intern_address(text, field, 0),
        }
    }

    fn intern_address(&mut self, text: &str, field: AddressField, index: u16) -> Result<TextId, ServerError> {
        // Fast path: the address is usually stored already, in this spelling. A path is found only
        // if it is a seed.
        if let Some(known) = self.texts.find_address(text) {
            return Ok(known);
        }
        let address = Address::parse_host(text).ok_or(ServerError::BadAddress { field, place: index })?;
        self.texts.intern_address(address.as_bytes(), false).map_err(|Full| self.no_text())
    }

    fn intern(&mut self, parts: [&[u8]; 3]) -> Result<TextId, ServerError> {
        self.texts.intern(parts).map_err(|Full| self.no_text())
    }

    fn no_text(&self) -> ServerError {
        ServerError::Beyond { limit: Limit::Texts, count: self.texts.limit() }
    }

    /// Removes unused texts if the memory of so many more texts, of so many bytes, needs it.
    pub(super) fn sweep_if_due(&mut self, texts: u32, bytes: usize) {
        if self.texts.is_sweep_due(texts, u32::try_from(bytes).unwrap_or(u32::MAX)) {
            self.sweep();
        }
    }

    /// Removes texts that are no longer used.
    pub(super) fn sweep(&mut self) {
        let texts = &mut self.texts;
        texts.unmark_all();
        let taken = self.servers.slots().iter().filter(|slot| slot.state != SlotState::Free);
        let saved = self.spares.iter().take(self.saved.len());
        let metas = [self.meta, self.meta_before];
        for name in metas.iter().filter_map(|meta| meta.set_name) {
            texts.mark(name);
        }
        for (address, _) in metas.iter().filter_map(|meta| meta.incompatible) {
            texts.mark(address);
        }
        for slot in taken.clone() {
            texts.mark(slot.address);
        }
        for description in taken.map(|slot| &slot.description).chain(saved) {
            let data = &description.data;
            for id in [data.me, data.primary, data.set_name].into_iter().flatten() {
                texts.mark(id);
            }
            for name in description.names.slots() {
                texts.mark(*name);
            }
        }
        texts.sweep();
    }

    fn is_text(&self, known: Option<TextId>, text: Option<&str>) -> bool {
        match (known, text) {
            (None, None) => true,
            (Some(known), Some(text)) => self.texts.view().get(known) == text,
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    fn is_address(&self, known: Option<TextId>, text: Option<&str>) -> bool {
        match (known, text) {
            (None, None) => true,
            (Some(known), Some(text)) => self.is_this_address(known, text),
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    fn is_this_address(&self, known: TextId, text: &str) -> bool {
        // Fast path: the address usually has the stored spelling.
        let known = self.texts.view().get(known);
        known == text || Address::parse(text).is_some_and(|address| address.as_bytes() == known.as_bytes())
    }

    fn are_addresses<'h>(&self, known: &[TextId], hosts: impl Iterator<Item = &'h str>) -> bool {
        let mut known = known.iter();
        let mut hosts = hosts;
        hosts.all(|host| known.next().is_some_and(|id| self.is_this_address(*id, host))) && known.next().is_none()
    }

    fn are_tags<'h>(&self, known: &[TextId], tags: impl Iterator<Item = (&'h str, &'h str)>) -> bool {
        let mut known = known.iter();
        let mut tags = tags;
        let is_tag = |id: TextId, name: &str, value: &str| {
            let rest = self.texts.view().get(id).strip_prefix(name);
            rest.and_then(|rest| rest.strip_prefix('\0')) == Some(value)
        };
        tags.all(|(name, value)| known.next().is_some_and(|id| is_tag(*id, name, value))) && known.next().is_none()
    }
}

/// The tags that are kept from a reply with this number of hosts: those that are short enough, up
/// to the limit on names.
fn kept_tags<'a, M: Memory>(hello: &HelloReply<'a>, hosts: usize) -> impl Iterator<Item = (&'a str, &'a str)> {
    let is_short = |(name, value): &(&str, &str)| name.len() + value.len() <= usize::from(NAME_BYTES_MAX);
    hello.tags().filter(is_short).take(usize::from(M::NAMES_MAX).saturating_sub(hosts))
}

fn times(round_trip: RoundTrip) -> Past<(Duration, Duration)> {
    Past((round_trip.average, round_trip.minimum))
}
