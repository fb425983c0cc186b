//! Groups: many requests of one future at a host.
//!
//! The outcomes of a group are collected in one list, and its future takes all of them at once. Its
//! task is woken once for all replies of one read.

use super::{Body, Change, Failure, Host, Outcome, Slot, SlotState};
use crate::lock;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::task::Waker;
use poolhouse_core::Instant;
use poolhouse_core::mux::{AcquireError, MuxClaim};
use poolhouse_driver::register;

/// The requests of one future at a host. The deadline and the waker of its slot are those of all
/// its requests.
#[derive(Default)]
pub(super) struct Group {
    /// The slots of its requests. After a request has ended, another one may have its slot.
    slots: Vec<u32>,
    /// The number of requests that have not ended.
    running: usize,
    /// The slots of requests that the pool's queue has released: granted an id, or failed.
    granted: Vec<u32>,
    /// The outcomes that the future has not taken, each with the index of its request.
    outcomes: Vec<(usize, Outcome)>,
}

/// A request of a group.
#[derive(Clone, Copy)]
pub(super) struct Member {
    /// The slot of the group.
    group: u32,
    /// The index of the request in its group.
    index: usize,
}

impl Host {
    /// Takes the outcomes of a group. Later ones wake `waker`. Returns whether the pool's queue has
    /// released requests: [`Change::send_granted`] sends them.
    ///
    /// - `into`: is empty, and receives the outcomes.
    /// - `waker`: as [`register`] takes it.
    pub(in crate::mux) fn take_outcomes(
        &self,
        group: u32,
        into: &mut Vec<(usize, Outcome)>,
        waker: &mut Option<Waker>,
    ) -> bool {
        debug_assert!(into.is_empty(), "outcomes are not lost");
        let mut state = lock(&self.state);
        let Some(Slot { group: Some(group), waker: place, .. }) = state.slots.get_mut(group as usize) else {
            return false;
        };
        core::mem::swap(&mut group.outcomes, into);
        register(place, waker);
        !group.granted.is_empty()
    }
}

impl Change<'_> {
    /// Begins requests of a group, and returns the slot of the group. A request that cannot begin
    /// has its outcome at once.
    ///
    /// - `group`: the slot of the group; `None` for a new group.
    /// - `requests`: each with its index, and whether it waits for the first connection.
    /// - `deadline`: of the whole group.
    pub(in crate::mux) fn begin_all<'r>(
        &mut self,
        group: Option<u32>,
        requests: impl Iterator<Item = (usize, &'r Body<'r>, bool)>,
        deadline: Option<Instant>,
    ) -> u32 {
        let slot = group.unwrap_or_else(|| self.take_slot());
        // Also for a known group: its deadline may have expired since its last requests began.
        self.put_deadline(slot, deadline);
        let mut group = self.take_group(slot).unwrap_or_default();
        for (index, body, waits) in requests {
            match self.start(body, waits, deadline) {
                Ok(started) => {
                    self.state.slots[started as usize].member = Some(Member { group: slot, index });
                    group.slots.push(started);
                    group.running += 1;
                }
                Err(failure) => group.outcomes.push((index, Err(failure))),
            }
        }
        self.state.slots[slot as usize].group = Some(group);
        slot
    }

    /// Sends the requests that the pool has granted stream ids, and ends those that have waited in
    /// vain.
    pub(in crate::mux) fn send_granted<'r>(&mut self, group: u32, body: impl Fn(usize) -> &'r Body<'r>) {
        let Some(Slot { group: Some(waiting), .. }) = self.state.slots.get_mut(group as usize) else {
            return;
        };
        for slot in core::mem::take(&mut waiting.granted) {
            // The request may have ended meanwhile, and another one may have its slot.
            let Some(Slot { state: SlotState::Queued(waiter), member: Some(member), .. }) =
                self.state.slots.get(slot as usize).filter(|slot| slot.is_of(group))
            else {
                continue;
            };
            let (waiter, index) = (*waiter, member.index);
            let failure = match self.state.mux.claim(self.now, waiter) {
                MuxClaim::Waiting => continue,
                MuxClaim::Granted(stream) => match self.send(slot, stream, body(index)) {
                    Ok(()) => continue,
                    Err(failure) => failure,
                },
                MuxClaim::Failed(error) => Failure::Rejected(error),
                MuxClaim::Stale => Failure::Rejected(AcquireError::Closed),
            };
            self.state.slots[slot as usize].state = SlotState::Idle;
            self.end(slot, Err(failure));
        }
    }

    /// Cancels the requests of a group that have not ended. Returns the outcomes of the others, as
    /// [`Change::cancel`] does.
    pub(in crate::mux) fn cancel_all(&mut self, group: u32) -> Vec<(usize, Outcome)> {
        let Some(cancelled) = self.take_group(group) else { return Vec::new() };
        // If all have ended, no slot is searched.
        let mut running = cancelled.running;
        for slot in cancelled.slots {
            if running == 0 {
                break;
            }
            if self.is_member(slot, group) {
                running -= 1;
                // It is running, so it has no outcome.
                self.cancel(slot);
            }
        }
        self.free(group);
        cancelled.outcomes
    }

    /// Ends the requests of a group that has passed its deadline. Returns false if the slot is not
    /// that of a group.
    pub(super) fn time_out_group(&mut self, group: u32) -> bool {
        let Some(Slot { group: Some(late), .. }) = self.state.slots.get_mut(group as usize) else {
            return false;
        };
        for slot in core::mem::take(&mut late.slots) {
            if self.is_member(slot, group) {
                self.time_out(slot);
            }
        }
        true
    }

    /// Records the outcome of a request. Its slot is free again.
    pub(super) fn end_member(&mut self, member: Member, outcome: Outcome) {
        if let Some(Slot { group: Some(group), waker, .. }) = self.state.slots.get_mut(member.group as usize) {
            group.outcomes.push((member.index, outcome));
            group.running -= 1;
            self.effects.wake(waker);
        }
    }

    /// Records that the pool's queue has released a request.
    pub(super) fn grant_member(&mut self, member: Member, slot: u32) {
        if let Some(Slot { group: Some(group), waker, .. }) = self.state.slots.get_mut(member.group as usize) {
            group.granted.push(slot);
            self.effects.wake(waker);
        }
    }

    fn take_group(&mut self, slot: u32) -> Option<Box<Group>> {
        self.state.slots.get_mut(slot as usize)?.group.take()
    }

    fn is_member(&self, slot: u32, group: u32) -> bool {
        self.state.slots.get(slot as usize).is_some_and(|slot| slot.is_of(group))
    }
}

impl Slot {
    fn is_of(&self, group: u32) -> bool {
        self.member.is_some_and(|member| member.group == group)
    }
}
