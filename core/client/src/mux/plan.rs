//! The query plan: the order in which hosts are tried.

use super::error::{Rejection, RejectionReason};
use super::host::Host;
use super::routing::{Routes, Routing};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hashbrown::HashMap;
use poolhouse_core::mux::{AcquireError, Distance, MuxId};
use std::hash::RandomState;

/// The place of a node that is no local host.
const NOWHERE: u32 = u32::MAX;

/// The hosts of a session: local, then remote, then ignored ones.
#[derive(Default)]
pub(super) struct Hosts {
    all: Vec<Arc<Host>>,
    local: usize,
    used: usize,
    /// The index in `all` of each host, ascending by id.
    places: Vec<(MuxId, usize)>,
    /// Where replicas are, if the session discovers its hosts.
    routes: Option<Arc<Routes>>,
    /// The index in `all` of each node of `routes`; [`NOWHERE`] if it is no local host.
    nodes: Vec<u32>,
}

impl Hosts {
    pub(super) fn new(mut hosts: Vec<(Distance, Arc<Host>)>) -> Self {
        hosts.sort_by_key(|(distance, _)| *distance);
        let count = |farthest| hosts.iter().filter(|(distance, _)| *distance <= farthest).count();
        let (local, used) = (count(Distance::Local), count(Distance::Remote));
        let all: Vec<_> = hosts.into_iter().map(|(_, host)| host).collect();
        let mut places: Vec<_> = all.iter().enumerate().map(|(place, host)| (host.id, place)).collect();
        places.sort_unstable();
        Self { all, local, used, places, routes: None, nodes: Vec::new() }
    }

    /// Sets where replicas are.
    pub(super) fn with_routes(mut self, routes: Option<Arc<Routes>>) -> Self {
        if let Some(routes) = &routes {
            let local = self.all.iter().take(self.local);
            let known: HashMap<&str, u32, RandomState> =
                local.zip(0..).map(|(host, place)| (host.address.as_str(), place)).collect();
            self.nodes =
                routes.nodes().iter().map(|node| known.get(node.as_str()).copied().unwrap_or(NOWHERE)).collect();
        }
        self.routes = routes;
        self
    }

    pub(super) const fn routes(&self) -> Option<&Arc<Routes>> {
        self.routes.as_ref()
    }

    pub(super) fn all(&self) -> &[Arc<Host>] {
        &self.all
    }

    /// The hosts that take requests.
    pub(super) fn used(&self) -> &[Arc<Host>] {
        self.all.get(..self.used).unwrap_or_default()
    }

    /// Cost: O(log n). A caller that knows the location of its data names a host in each request.
    fn by_id(&self, id: MuxId) -> Option<&Arc<Host>> {
        let at = self.places.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.all.get(self.places.get(at)?.1)
    }

    /// Returns the first host of the plan with this number.
    pub(super) fn first(
        &self,
        turn: usize,
        chosen: Option<&[MuxId]>,
        routing: Option<Routing<'_>>,
    ) -> Option<&Arc<Host>> {
        let (mut place, mut first) = (Place::default(), None);
        while let Some(host) = self.step(turn, chosen, routing, &mut place) {
            if chosen.is_some() || host.is_connected() {
                return Some(host);
            }
            first = first.or(Some(host));
        }
        first
    }

    /// Returns the host at this place, or the next one, and advances the place beyond it: the chosen
    /// hosts, or the local replicas, then all hosts.
    fn step(
        &self,
        turn: usize,
        chosen: Option<&[MuxId]>,
        routing: Option<Routing<'_>>,
        place: &mut Place,
    ) -> Option<&Arc<Host>> {
        let replica = match routing {
            Some(routing) if chosen.is_none() => self.replica_at(turn, routing, &mut place.replicas),
            Some(_) | None => None,
        };
        replica.or_else(|| self.at(turn, chosen, &mut place.hosts))
    }

    /// Returns the local replica at the position `asked` of a plan, or the next one, and advances
    /// `asked` beyond it.
    fn replica_at(&self, turn: usize, routing: Routing<'_>, asked: &mut usize) -> Option<&Arc<Host>> {
        let replicas = self.routes.as_ref()?.replicas(routing);
        while *asked < replicas.len() {
            let node = replicas.get((turn % replicas.len() + *asked) % replicas.len())?;
            *asked += 1;
            let place = self.nodes.get(usize::from(*node)).copied().unwrap_or(NOWHERE);
            if let Some(host) = self.all.get(place as usize) {
                return Some(host);
            }
        }
        None
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

/// A place in a plan.
#[derive(Clone, Copy, Default)]
struct Place {
    /// The number of replicas before it.
    replicas: usize,
    /// The number of hosts before it, replicas included, that were not returned as replicas.
    hosts: usize,
}

/// The hosts to try, in their order: first those with an open connection, because a request waits for
/// a connection of the others, then the others. Chosen hosts are tried in the order of the choice.
pub(super) struct Plan<'o> {
    hosts: Arc<Hosts>,
    chosen: Option<&'o [MuxId]>,
    routing: Option<Routing<'o>>,
    place: Place,
    /// Whether hosts without an open connection are returned too.
    includes_unconnected: bool,
    /// The number of the plan. It determines the first host among the local hosts, and among the
    /// remote hosts.
    turn: usize,
    /// Hosts that are not returned again. Empty if they are chosen: a choice may name one twice.
    known: Vec<MuxId>,
}

impl<'o> Plan<'o> {
    /// Creates a plan that continues after its first host.
    pub(super) fn after(
        first: MuxId,
        hosts: Arc<Hosts>,
        turn: usize,
        chosen: Option<&'o [MuxId]>,
        routing: Option<Routing<'o>>,
    ) -> Self {
        let mut plan = Self {
            hosts,
            chosen,
            routing,
            place: Place::default(),
            includes_unconnected: chosen.is_some(),
            turn,
            known: Vec::new(),
        };
        match chosen {
            // The ids before it were those of no host.
            Some(ids) => plan.place.hosts = ids.iter().position(|id| *id == first).map_or(0, |at| at + 1),
            None => plan.known.push(first),
        }
        plan
    }

    /// If a tried host was removed meanwhile, continues with the current hosts, except those that
    /// were tried. Returns whether it continues.
    pub(super) fn renew(&mut self, hosts: Arc<Hosts>, rejections: &[Rejection]) -> bool {
        let is_gone =
            |one: &Rejection| matches!(one.reason, RejectionReason::Pool(AcquireError::Closed | AcquireError::Ignored));
        if self.chosen.is_some() || Arc::ptr_eq(&hosts, &self.hosts) || !rejections.iter().any(is_gone) {
            return false;
        }
        let known = rejections.iter().map(|one| one.host).collect();
        *self = Self { hosts, known, place: Place::default(), includes_unconnected: false, ..*self };
        true
    }

    /// Returns the next host. Each host is returned at most once, unless `chosen` contains it
    /// twice.
    pub(super) fn next(&mut self) -> Option<&Arc<Host>> {
        let Self { hosts, chosen, routing, place, includes_unconnected, turn, known } = self;
        loop {
            let Some(host) = hosts.step(*turn, *chosen, *routing, place) else {
                if core::mem::replace(includes_unconnected, true) {
                    return None;
                }
                *place = Place::default();
                continue;
            };
            if chosen.is_some() {
                return Some(host);
            }
            if (*includes_unconnected || host.is_connected()) && !known.contains(&host.id) {
                known.push(host.id);
                return Some(host);
            }
        }
    }
}
