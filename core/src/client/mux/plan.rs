//! The query plan: which host is asked first, and which one next.

use super::Shared;
use super::host::Host;
use crate::client::Platform;
use crate::mux::{Distance, MuxId};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

/// The hosts of a session: those that are near, then those that are farther away, then those that are ignored.
#[derive(Default)]
pub(super) struct Hosts {
    all: Vec<Arc<Host>>,
    local: usize,
    used: usize,
}

impl Hosts {
    pub(super) fn new(mut hosts: Vec<(Distance, Arc<Host>)>) -> Self {
        hosts.sort_by_key(|(distance, _)| *distance);
        let count = |farthest| hosts.iter().filter(|(distance, _)| *distance <= farthest).count();
        let (local, used) = (count(Distance::Local), count(Distance::Remote));
        Self { all: hosts.into_iter().map(|(_, host)| host).collect(), local, used }
    }

    pub(super) fn all(&self) -> &[Arc<Host>] {
        &self.all
    }
}

/// The hosts to ask, one after the other.
pub(super) struct Plan<'o> {
    hosts: Arc<Hosts>,
    chosen: Option<&'o [MuxId]>,
    /// Who begins.
    turn: usize,
    asked: usize,
}

impl<'o> Plan<'o> {
    pub(super) fn new<P: Platform>(shared: &Shared<P>, chosen: Option<&'o [MuxId]>) -> Self {
        let turn = shared.turns.fetch_add(1, Ordering::Relaxed);
        Self::of(shared.hosts(), turn, chosen)
    }

    pub(super) const fn of(hosts: Arc<Hosts>, turn: usize, chosen: Option<&'o [MuxId]>) -> Self {
        Self { hosts, chosen, turn, asked: 0 }
    }

    /// The next one; each at most once, unless it was chosen twice.
    pub(super) fn next(&mut self) -> Option<&Arc<Host>> {
        let Self { hosts, chosen, turn, asked } = self;
        if let Some(chosen) = chosen {
            loop {
                let id = chosen.get(*asked)?;
                *asked += 1;
                if let Some(host) = hosts.all.iter().find(|host| host.id == *id) {
                    return Some(host);
                }
            }
        }
        let at = *asked;
        *asked += 1;
        let (first, count) = if at < hosts.local { (0, hosts.local) } else { (hosts.local, hosts.used - hosts.local) };
        if at >= hosts.used {
            return None;
        }
        hosts.all.get(first + (*turn % count + (at - first)) % count)
    }
}
