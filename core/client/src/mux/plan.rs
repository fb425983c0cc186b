//! The query plan: the order in which hosts are tried.

use super::error::{Rejection, RejectionReason};
use super::host::Host;
use alloc::sync::Arc;
use alloc::vec::Vec;
use poolhouse_core::mux::{AcquireError, Distance, MuxId};

/// The hosts of a session: local, then remote, then ignored ones.
#[derive(Default)]
pub(super) struct Hosts {
    all: Vec<Arc<Host>>,
    local: usize,
    used: usize,
    /// The index in `all` of each host, ascending by id.
    places: Vec<(MuxId, usize)>,
}

impl Hosts {
    pub(super) fn new(mut hosts: Vec<(Distance, Arc<Host>)>) -> Self {
        hosts.sort_by_key(|(distance, _)| *distance);
        let count = |farthest| hosts.iter().filter(|(distance, _)| *distance <= farthest).count();
        let (local, used) = (count(Distance::Local), count(Distance::Remote));
        let all: Vec<_> = hosts.into_iter().map(|(_, host)| host).collect();
        let mut places: Vec<_> = all.iter().enumerate().map(|(place, host)| (host.id, place)).collect();
        places.sort_unstable();
        Self { all, local, used, places }
    }

    pub(super) fn all(&self) -> &[Arc<Host>] {
        &self.all
    }

    /// Cost: O(log n). A caller that knows the location of its data names a host in each request.
    fn by_id(&self, id: MuxId) -> Option<&Arc<Host>> {
        let at = self.places.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.all.get(self.places.get(at)?.1)
    }

    /// Returns the first host of the plan with this number.
    pub(super) fn first(&self, turn: usize, chosen: Option<&[MuxId]>) -> Option<&Arc<Host>> {
        self.at(turn, chosen, &mut 0)
    }

    /// Returns the host at the position `asked` of a plan, or the next one, and advances `asked`
    /// beyond it.
    fn at(&self, turn: usize, chosen: Option<&[MuxId]>, asked: &mut usize) -> Option<&Arc<Host>> {
        if let Some(chosen) = chosen {
            let rest = chosen.get(*asked..)?;
            return rest.iter().find_map(|id| {
                *asked += 1;
                self.by_id(*id)
            });
        }
        let at = *asked;
        if at >= self.used {
            return None;
        }
        *asked += 1;
        let (first, count) = if at < self.local { (0, self.local) } else { (self.local, self.used - self.local) };
        self.all.get(first + (turn % count + (at - first)) % count)
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
    /// Hosts that are not returned, because they were tried before this plan was made.
    known: Vec<MuxId>,
}

impl<'o> Plan<'o> {
    /// Creates a plan that continues after its first host.
    pub(super) fn after(first: MuxId, hosts: Arc<Hosts>, turn: usize, chosen: Option<&'o [MuxId]>) -> Self {
        match chosen {
            // The ids before it were those of no host.
            Some(ids) => {
                let asked = ids.iter().position(|id| *id == first).map_or(0, |at| at + 1);
                Self { hosts, chosen, turn, asked, known: Vec::new() }
            }
            None => Self { hosts, chosen, turn, asked: 0, known: Vec::from([first]) },
        }
    }

    /// If a tried host was removed meanwhile, continues with the current hosts, except those that
    /// were tried. Returns whether it continues.
    pub(super) fn renew(&mut self, hosts: Arc<Hosts>, rejections: &[Rejection]) -> bool {
        let is_closed = |one: &Rejection| one.reason == RejectionReason::Pool(AcquireError::Closed);
        if self.chosen.is_some() || Arc::ptr_eq(&hosts, &self.hosts) || !rejections.iter().any(is_closed) {
            return false;
        }
        let known = rejections.iter().map(|one| one.host).collect();
        *self = Self { hosts, known, asked: 0, chosen: None, turn: self.turn };
        true
    }

    /// Returns the next host. Each host is returned at most once, unless `chosen` contains it
    /// twice.
    pub(super) fn next(&mut self) -> Option<&Arc<Host>> {
        let Self { hosts, chosen, turn, asked, known } = self;
        loop {
            let host = hosts.at(*turn, *chosen, asked)?;
            if !known.contains(&host.id) {
                return Some(host);
            }
        }
    }
}
