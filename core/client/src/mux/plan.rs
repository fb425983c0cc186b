//! The query plan: the order in which hosts are tried.

use super::Shared;
use super::error::{Rejection, RejectionReason};
use super::host::Host;
use crate::Platform;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use poolhouse_core::mux::{AcquireError, Distance, MuxId};

/// The hosts of a session: local, then remote, then ignored ones.
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

/// The hosts to try, in their order.
pub(super) struct Plan<'o> {
    hosts: Arc<Hosts>,
    chosen: Option<&'o [MuxId]>,
    /// The number of the plan. It determines the first host among the local hosts, and among the
    /// remote hosts.
    turn: usize,
    asked: usize,
    /// Hosts that were tried before the last `renew`.
    known: Vec<MuxId>,
}

impl<'o> Plan<'o> {
    pub(super) fn new<P: Platform>(shared: &Shared<P>, chosen: Option<&'o [MuxId]>) -> Self {
        let turn = shared.turns.fetch_add(1, Ordering::Relaxed);
        Self::of(shared.hosts(), turn, chosen)
    }

    pub(super) const fn of(hosts: Arc<Hosts>, turn: usize, chosen: Option<&'o [MuxId]>) -> Self {
        Self { hosts, chosen, turn, asked: 0, known: Vec::new() }
    }

    /// If a tried host was removed meanwhile, continues with the current hosts, except those that
    /// were tried. Returns whether it continues.
    pub(super) fn renew<P: Platform>(&mut self, shared: &Shared<P>, rejections: &[Rejection]) -> bool {
        self.renew_by(&shared.hosts(), rejections)
    }

    pub(super) fn renew_by(&mut self, hosts: &Arc<Hosts>, rejections: &[Rejection]) -> bool {
        let is_closed = |one: &Rejection| one.reason == RejectionReason::Pool(AcquireError::Closed);
        if self.chosen.is_some() || Arc::ptr_eq(hosts, &self.hosts) || !rejections.iter().any(is_closed) {
            return false;
        }
        let known = rejections.iter().map(|one| one.host).collect();
        *self = Self { hosts: Arc::clone(hosts), known, asked: 0, chosen: None, turn: self.turn };
        true
    }

    /// Returns the next host. Each host is returned at most once, unless `chosen` contains it
    /// twice.
    pub(super) fn next(&mut self) -> Option<&Arc<Host>> {
        let Self { hosts, chosen, turn, asked, known } = self;
        if let Some(chosen) = chosen {
            loop {
                let id = chosen.get(*asked)?;
                *asked += 1;
                if let Some(host) = hosts.all.iter().find(|host| host.id == *id) {
                    return Some(host);
                }
            }
        }
        while *asked < hosts.used {
            let at = *asked;
            *asked += 1;
            let (first, count) =
                if at < hosts.local { (0, hosts.local) } else { (hosts.local, hosts.used - hosts.local) };
            let host = hosts.all.get(first + (*turn % count + (at - first)) % count)?;
            if !known.contains(&host.id) {
                return Some(host);
            }
        }
        None
    }
}
