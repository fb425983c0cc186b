//! The query plan: the order in which hosts are tried.

use super::UnknownDataCenter;
use super::error::{Rejection, RejectionReason};
use super::host::Host;
use super::routing::{Routes, Routing};
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hashbrown::HashMap;
use poolhouse_core::mux::{AcquireError, Distance, MuxId};
use poolhouse_cql::Token;
use std::hash::RandomState;
use std::sync::OnceLock;

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
    /// The index in `all` of each host by its address, once it was needed.
    addresses: OnceLock<HashMap<String, usize, RandomState>>,
    /// Where replicas are, if the session discovers its hosts.
    routes: Option<Arc<Routes>>,
    /// The index in `all` of each node of `routes`; [`NOWHERE`] if it is no local host.
    nodes: Vec<u32>,
    /// The local data centre, if no node is in it.
    missing: Option<Arc<UnknownDataCenter>>,
}

impl Hosts {
    pub(super) fn new(mut hosts: Vec<(Distance, Arc<Host>)>) -> Self {
        hosts.sort_by_key(|(distance, _)| *distance);
        let count = |farthest| hosts.iter().filter(|(distance, _)| *distance <= farthest).count();
        let (local, used) = (count(Distance::Local), count(Distance::Remote));
        let all: Vec<_> = hosts.into_iter().map(|(_, host)| host).collect();
        let mut places: Vec<_> = all.iter().enumerate().map(|(place, host)| (host.id, place)).collect();
        places.sort_unstable();
        let (addresses, nodes) = (OnceLock::new(), Vec::new());
        Self { all, local, used, places, addresses, routes: None, nodes, missing: None }
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

    /// Sets the local data centre in which no node is.
    pub(super) fn with_missing(self, missing: Option<Arc<UnknownDataCenter>>) -> Self {
        Self { missing, ..self }
    }

    pub(super) const fn missing(&self) -> Option<&Arc<UnknownDataCenter>> {
        self.missing.as_ref()
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

    /// Cost: O(1), and O(n) once.
    pub(super) fn by_address(&self, address: &str) -> Option<&Arc<Host>> {
        let addresses = self
            .addresses
            .get_or_init(|| self.all.iter().enumerate().map(|(place, host)| (host.address.clone(), place)).collect());
        self.all.get(*addresses.get(address)?)
    }

    /// Cost: O(log n). A caller that knows the location of its data names a host in each request.
    pub(super) fn by_id(&self, id: MuxId) -> Option<&Arc<Host>> {
        self.all.get(self.place(id)?)
    }

    fn place(&self, id: MuxId) -> Option<usize> {
        let at = self.places.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(self.places.get(at)?.1)
    }

    /// The distance of a host. Cost: O(log n).
    pub(super) fn distance(&self, id: MuxId) -> Option<Distance> {
        Some(match self.place(id)? {
            place if place < self.local => Distance::Local,
            place if place < self.used => Distance::Remote,
            _ => Distance::Ignored,
        })
    }

    /// Returns the first host of the plan with this number.
    #[inline]
    pub(super) fn first(
        &self,
        turn: usize,
        chosen: Option<&[MuxId]>,
        routing: Option<Routing<'_>>,
    ) -> Option<&Arc<Host>> {
        let replica = match routing {
            Some(routing) if chosen.is_none() => self.replica_at(turn, routing, &mut 0),
            Some(_) | None => None,
        };
        replica.or_else(|| self.at(turn, chosen, &mut 0))
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

/// The hosts to try, in their order.
///
/// Unless its hosts are chosen, a request does not wait for the first connection of a host while other hosts
/// of its distance have not been tried: such a host is returned a second time, after them.
pub(super) struct Plan {
    hosts: Arc<Hosts>,
    chosen: Option<Vec<MuxId>>,
    /// Keyspace and token of the data.
    routing: Option<(String, Token)>,
    /// The number of the replicas that were asked.
    replicas_asked: usize,
    /// The number of the plan. It determines the first host among the local hosts, and among the
    /// remote hosts.
    turn: usize,
    asked: usize,
    /// Hosts that are not returned: they were tried before this plan was made, or are replicas, which
    /// come first.
    known: Vec<MuxId>,
    /// Hosts that are returned a second time.
    put_off: VecDeque<Arc<Host>>,
    /// Whether the last host was returned for the second time, or the request is repeated there.
    waits: bool,
}

impl Plan {
    /// Creates a plan that continues after its first host.
    pub(super) fn after(
        first: MuxId,
        hosts: Arc<Hosts>,
        turn: usize,
        chosen: Option<&[MuxId]>,
        routing: Option<Routing<'_>>,
    ) -> Self {
        let (known, put_off) = (Vec::new(), VecDeque::new());
        let (chosen, routing) = (chosen.map(<[MuxId]>::to_vec), routing.map(Routing::to_owned));
        let mut plan = Self { hosts, chosen, routing, replicas_asked: 0, turn, asked: 0, known, put_off, waits: false };
        match &plan.chosen {
            // The ids before it were those of no host.
            Some(ids) => plan.asked = ids.iter().position(|id| *id == first).map_or(0, |at| at + 1),
            None => plan.known.push(first),
        }
        plan
    }

    /// Whether the request waits for a connection of the last host.
    pub(super) const fn waits(&self) -> bool {
        self.waits
    }

    /// The request is sent to the last host again.
    pub(super) const fn repeat(&mut self) {
        self.waits = true;
    }

    /// Returns the last host again later.
    pub(super) fn put_off(&mut self, host: &Arc<Host>) {
        self.put_off.push_back(Arc::clone(host));
    }

    /// If a tried host was removed meanwhile, continues with the current hosts, except those that
    /// were tried. Returns whether it continues.
    pub(super) fn renew(&mut self, hosts: Arc<Hosts>, rejections: &[Rejection]) -> bool {
        let is_gone =
            |one: &Rejection| matches!(one.reason, RejectionReason::Pool(AcquireError::Closed | AcquireError::Ignored));
        if self.chosen.is_some() || Arc::ptr_eq(&hosts, &self.hosts) || !rejections.iter().any(is_gone) {
            return false;
        }
        self.known = rejections.iter().map(|one| one.host).collect();
        (self.hosts, self.asked, self.replicas_asked) = (hosts, 0, 0);
        true
    }

    /// Returns the next host. Each host is returned at most once, unless it was put off or `chosen`
    /// contains it twice.
    pub(super) fn next(&mut self) -> Option<Arc<Host>> {
        let Self { hosts, chosen, routing, replicas_asked, turn, asked, known, put_off, waits } = self;
        *waits = false;
        loop {
            let replica = match routing {
                Some(routing) if chosen.is_none() => hosts.replica_at(*turn, Routing::of(routing), replicas_asked),
                Some(_) | None => None,
            };
            let is_replica = replica.is_some();
            // Local hosts are tried again before remote ones.
            let is_distance_over = !is_replica && chosen.is_none() && *asked > 0 && *asked == hosts.local;
            let found = match replica {
                None if is_distance_over && !put_off.is_empty() => None,
                None => hosts.at(*turn, chosen.as_deref(), asked),
                replica => replica,
            };
            let Some(host) = found else {
                *waits = true;
                return put_off.pop_front();
            };
            if !known.contains(&host.id) {
                if is_replica {
                    known.push(host.id);
                }
                return Some(Arc::clone(host));
            }
        }
    }
}
