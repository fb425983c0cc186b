//! Arbitrary reports to a topology, in any order, compared with its naive model.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use poolhouse_core::pool::Clear;
use poolhouse_core::topology::{
    AppError, AppErrorKind, CommandError, Direct, Fixed, HandshakePhase, Memory, OnHeap, PoolCommand, ReplyError,
    RoundTrip, SdamEvent, ServerDescription, Topology, TopologyAction, TopologyId, TopologyOptions, TopologyType,
};
use poolhouse_core::{Cause, CertificateFault, Instant, ObjectId, Observer, ServerId, TopologyVersion};

use crate::choices::{Bytes, Choices};
use crate::model::topology::{
    ModelAction, ModelError, ModelErrorKind, ModelEvent, ModelTopology, ModelVerdict, Reply, Server,
};

/// Executes the run of a topology that the bytes describe, on the heap and inline.
pub fn topology(data: &[u8]) {
    runs(data);
    hostile::<Fixed<3, 6, 8, 96>>(data);
    hostile::<Direct<96>>(data);
}

/// Executes one run, on the heap and inline, and with a direct connection also in the memory for one. Returns
/// its counts.
pub fn runs(data: &[u8]) -> Counts {
    let on_heap = run::<OnHeap>(data);
    let in_place = run::<Fixed<24, 32, 48, 1024>>(data);
    assert_eq!(on_heap, in_place, "the kind of memory must not affect the counts");
    // The smallest memory for "a:27017", "rs" and "other".
    let direct = run::<Direct<26>>(data).map_or(0, |counts| counts.news);
    Counts { direct, ..on_heap.expect("this memory is for all topologies") }
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reports.
    pub news: u64,
    /// Events.
    pub events: u64,
    /// Added servers.
    pub added: u64,
    /// Removed servers.
    pub removed: u64,
    /// Updates that resulted in a topology with a primary.
    pub primaries: u64,
    /// Deposed or stale primaries.
    pub stale: u64,
    /// Errors that cleared a pool.
    pub clears: u64,
    /// Reports about removed servers.
    pub late: u64,
    /// Updates that resulted in a sharded cluster.
    pub sharded: u64,
    /// Replacements of the seeds by other hosts.
    pub seeds: u64,
    /// Reports to a topology in the memory for a direct connection.
    pub direct: u64,
}

impl Counts {
    /// Adds the counts of another run.
    pub const fn add(&mut self, other: &Self) {
        self.news += other.news;
        self.events += other.events;
        self.added += other.added;
        self.removed += other.removed;
        self.primaries += other.primaries;
        self.stale += other.stale;
        self.clears += other.clears;
        self.late += other.late;
        self.sharded += other.sharded;
        self.seeds += other.seeds;
        self.direct += other.direct;
    }
}

/// Executes one run against the model. Returns its counts; `None` if the memory is for a direct connection,
/// and the run has none.
fn run<M: Memory>(data: &[u8]) -> Option<Counts> {
    let mut choices = Bytes::new(data);
    let mut run = Run::<M>::new(&mut choices)?;
    while !choices.is_over() {
        run.step(&mut choices);
        run.compare();
    }
    Some(run.end())
}

/// The hosts of this run.
const HOSTS: [&str; 7] = ["a:27017", "b:27017", "c:27017", "d:1", "[::1]:27017", "/tmp/s.sock", "x:27017"];

/// The only path among the hosts.
const PATH: &str = HOSTS[5];

/// Received events.
#[derive(Default)]
struct Told {
    /// Since the last comparison.
    events: Vec<ModelEvent>,
    count: u64,
}

impl Observer<SdamEvent<'_>> for Told {
    fn on_event(&mut self, _now: Instant, event: &SdamEvent<'_>) {
        self.count += 1;
        self.events.push(match *event {
            SdamEvent::ServerDescriptionChanged { address, previous, new, .. } => {
                assert_eq!(previous.address(), address);
                assert_eq!(new.address(), address);
                ModelEvent::ServerChanged(address.to_owned(), previous.server_type().name(), new.server_type().name())
            }
            SdamEvent::ServerClosed { address, .. } => ModelEvent::ServerClosed(address.to_owned()),
            SdamEvent::ServerOpening { address, .. } => ModelEvent::ServerOpening(address.to_owned()),
            SdamEvent::TopologyDescriptionChanged { previous, new, .. } => {
                assert!(previous.servers().count() <= HOSTS.len());
                ModelEvent::TopologyChanged(previous.topology_type().name(), new.topology_type().name())
            }
            SdamEvent::TopologyOpening { .. } | SdamEvent::TopologyClosed { .. } | SdamEvent::NoServers { .. } | _ => {
                return;
            }
        });
    }
}

struct Run<M: Memory> {
    topology: Topology<M>,
    model: ModelTopology,
    reported: Told,
    /// All servers of the run, including removed ones.
    ids: Vec<(ServerId, String)>,
    /// Whether the hosts mostly agree.
    calm: bool,
    now: Instant,
    counts: Counts,
}

impl<M: Memory> Run<M> {
    fn new(choices: &mut Bytes<'_>) -> Option<Self> {
        let calm = choices.below(3) != 0;
        let count = 1 + choices.index(3);
        let direct_connection = count == 1 && choices.one_in(4);
        let replica_set = choices.one_in(3).then_some("rs");
        // If the path is a seed, servers may also name it.
        let seeds = [[HOSTS[0], "", ""], [HOSTS[0], HOSTS[1], ""], [HOSTS[0], HOSTS[1], PATH]];
        let seeds = &seeds[count - 1][..count];
        let options = TopologyOptions { seeds, replica_set, direct_connection, load_balanced: false };
        let config = options.validate().expect("compatible options");
        let now = Instant::from_nanos(u64::from(choices.below(256)));
        let mut reported = Told::default();
        let topology = Topology::new(now, TopologyId::new(1), config, &mut reported);
        if M::DIRECT_ONLY && !direct_connection {
            assert!(topology.is_err() && reported.count == 0, "memory for a direct connection has no other topology");
            return None;
        }
        let topology = topology.expect("room for three seeds");
        reported.events.clear();
        let names: Vec<String> = seeds.iter().map(|&seed| seed.to_owned()).collect();
        let model = ModelTopology::new(&names, config.topology_type(), replica_set.map(str::to_owned));
        let mut run = Self { topology, model, reported, ids: Vec::new(), calm, now, counts: Counts::default() };
        run.note_ids();
        Some(run)
    }

    fn step(&mut self, choices: &mut Bytes<'_>) {
        self.now = self.now.saturating_add(Duration::from_millis(1));
        self.counts.news += 1;
        let (server, address) = self.ids[choices.index(self.ids.len())].clone();
        let is_late = self.topology.server(server).is_none();
        self.counts.late += u64::from(is_late);
        // The model identifies servers by address: a report about a removed server must not reach a
        // later server of the same address.
        let address = if is_late { "nobody" } else { address.as_str() };
        match choices.below(12) {
            8 | 9 => self.seeds(choices),
            0 => {
                let cause = choices.one_of(&[Cause::Network, Cause::NetworkTimeout, Cause::Command { code: 18 }]);
                self.topology.handle_failed(self.now, server, cause, &mut self.reported);
                self.model.failed(address, cause);
            }
            1 | 10 | 11 => self.app_error(server, address, choices),
            2 => self.take_actions(),
            _ => {
                let reply = reply(address, self.calm, choices);
                let spelled = if choices.one_in(4) { respelled(&reply) } else { reply.clone() };
                let times = choices.one_in(2).then_some(RoundTrip::default());
                let known = self.topology.handle_hello(
                    self.now,
                    server,
                    &spelled.hello(&spelled.lists()),
                    times,
                    &mut self.reported,
                );
                let kept = if M::DIRECT_ONLY { without_names(&reply) } else { reply };
                assert_eq!(known, self.model.hello(address, &kept), "whether the server is known");
            }
        }
        self.note_ids();
    }

    /// Replaces the seeds by newly resolved hosts.
    fn seeds(&mut self, choices: &mut Bytes<'_>) {
        let wanted = choices.below(256);
        let seeds = HOSTS.iter().enumerate().filter(|(place, _)| wanted >> place & 1 == 1).map(|(_, host)| *host);
        // A path among the resolved hosts is ignored.
        let names: Vec<String> = seeds.clone().filter(|host| *host != PATH).map(str::to_owned).collect();
        // Upper case, duplicates and invalid addresses must have no effect.
        let spelled: Vec<String> = seeds.clone().map(|host| host.replace(":27017", "")).collect();
        let spelled = spelled.iter().map(String::as_str);
        let all = seeds.chain(spelled).chain(["no address:x"]);
        self.topology.handle_seeds(self.now, all, &mut self.reported).expect("room for all hosts");
        let is_open = [TopologyType::Unknown, TopologyType::Sharded].contains(&self.model.state.topology_type);
        self.counts.seeds += u64::from(is_open && !names.is_empty());
        self.model.seeds(&names);
    }

    fn app_error(&mut self, server: ServerId, address: &str, choices: &mut Bytes<'_>) {
        let codes = [11_600, 91, 11_602, 13_436, 189, 10_107, 13_435, 10_058, 18, 0];
        let kind = match choices.below(6) {
            0 => ModelErrorKind::Network,
            1 => ModelErrorKind::Timeout,
            2 => ModelErrorKind::Certificate,
            _ => ModelErrorKind::Code(choices.one_of(&codes), version(choices)),
        };
        let error =
            ModelError { current: !choices.one_in(8), before: choices.one_in(2), kind, overloaded: choices.one_in(4) };
        let app_error = AppError {
            generation: if error.current { 3 } else { choices.one_of(&[0, 2, 4, u64::MAX]) },
            pool_generation: 3,
            phase: if error.before { HandshakePhase::Before } else { HandshakePhase::After },
            kind: match kind {
                ModelErrorKind::Network => AppErrorKind::Network,
                ModelErrorKind::Timeout => AppErrorKind::NetworkTimeout,
                ModelErrorKind::Certificate => AppErrorKind::Other(Cause::Certificate(CertificateFault::Expired)),
                ModelErrorKind::Code(code, topology_version) => AppErrorKind::Command(CommandError {
                    command: Some(ReplyError { code: Some(code), message: "not master" }),
                    write_concern: None,
                    topology_version,
                }),
            },
            overloaded: error.overloaded,
            service_id: None,
        };
        let verdict = self.topology.handle_app_error(self.now, server, &app_error, &mut self.reported);
        let expected = self.model.app_error(address, &error);
        let found = ModelVerdict {
            clear: verdict.clear == Some(Clear::All { interrupt_in_use_connections: false }),
            unknown: verdict.marked_unknown,
            check: verdict.request_check,
            cancel: verdict.cancel_check,
            scan: verdict.scan_stale,
        };
        assert_eq!(found, expected, "the verdict on {error:?}");
        self.counts.clears += u64::from(found.clear);
    }

    /// The host takes all owed actions.
    fn take_actions(&mut self) {
        let names: BTreeMap<ServerId, String> = self.ids.iter().cloned().collect();
        let name = |server| names[&server].clone();
        let mut found = BTreeSet::new();
        let mut is_over = false;
        while let Some(action) = self.topology.poll_action() {
            assert!(!is_over, "selectors must be woken last, and once");
            let is_new = found.insert(match action {
                TopologyAction::ServerAdded(server) => ModelAction::Added(name(server)),
                TopologyAction::ServerRemoved(server) => {
                    assert_eq!(self.topology.address(server), None);
                    ModelAction::Removed(name(server))
                }
                TopologyAction::Pool(server, PoolCommand::Ready) => ModelAction::Ready(name(server)),
                TopologyAction::Pool(server, PoolCommand::Clear { interrupt_in_use_connections, .. }) => {
                    ModelAction::Clear(name(server), interrupt_in_use_connections)
                }
                TopologyAction::CancelCheck(server) => ModelAction::Cancel(name(server)),
                TopologyAction::RequestCheck(server) => ModelAction::Check(name(server)),
                TopologyAction::WakeSelectors => {
                    is_over = true;
                    continue;
                }
            });
            // A server that was removed and added again may be removed again.
            assert!(is_new || matches!(action, TopologyAction::ServerRemoved(_)), "{action:?} is owed twice");
        }
        self.topology.assert_invariants();
        let expected = core::mem::take(&mut self.model.actions);
        assert_eq!(found, expected, "what is owed");
        let count = |which: fn(&ModelAction) -> bool| found.iter().filter(|action| which(action)).count() as u64;
        self.counts.added += count(|action| matches!(action, ModelAction::Added(_)));
        self.counts.removed += count(|action| matches!(action, ModelAction::Removed(_)));
    }

    fn note_ids(&mut self) {
        for server in self.topology.servers() {
            if !self.ids.iter().any(|(id, _)| *id == server.server()) {
                self.ids.push((server.server(), server.address().to_owned()));
            }
        }
    }

    fn compare(&mut self) {
        self.topology.assert_invariants();
        let found = self.topology.description();
        let state = &self.model.state;
        assert_eq!(found.topology_type(), state.topology_type);
        assert_eq!(found.set_name(), state.set_name.as_deref());
        assert_eq!(found.max_set_version(), state.max_set_version);
        assert_eq!(found.max_election_id(), state.max_election_id, "the greatest electionId");
        assert_eq!(found.is_compatible(), state.is_compatible());
        assert_eq!(found.logical_session_timeout_minutes(), state.session_timeout());
        assert_eq!(found.servers().count(), state.servers.len(), "the number of members");
        for server in found.servers() {
            let wanted = state.servers.get(server.address());
            compare_server(server, wanted.expect("the server is in the model"));
        }
        let copy = found.to_owned();
        assert_eq!(copy.get().to_string(), found.to_string());
        self.counts.events += self.reported.events.len() as u64;
        let mut events = core::mem::take(&mut self.reported.events);
        let rank = |event: &ModelEvent| match event {
            ModelEvent::ServerChanged(..) => 0,
            ModelEvent::ServerClosed(_) => 1,
            ModelEvent::ServerOpening(_) => 2,
            ModelEvent::TopologyChanged(..) => 3,
        };
        assert!(events.is_sorted_by_key(rank), "the order of {events:?}");
        let mut expected = core::mem::take(&mut self.model.events);
        assert_eq!(events.first().map(rank), expected.first().map(rank));
        events.sort();
        expected.sort();
        assert_eq!(events, expected, "the events");
        use poolhouse_core::topology::ServerError;
        self.counts.primaries += u64::from(found.topology_type() == TopologyType::ReplicaSetWithPrimary);
        self.counts.sharded += u64::from(found.topology_type() == TopologyType::Sharded);
        let stale = |error| matches!(error, ServerError::StalePrimary { .. } | ServerError::NewerPrimary);
        self.counts.stale += u64::from(found.servers().any(|server| server.error().is_some_and(stale)));
    }

    fn end(mut self) -> Counts {
        self.take_actions();
        self.topology.close(self.now, &mut self.reported);
        self.topology.assert_invariants();
        let removed = core::iter::from_fn(|| self.topology.poll_action())
            .filter(|action| matches!(action, TopologyAction::ServerRemoved(_)))
            .count();
        assert_eq!(removed, self.model.state.servers.len(), "all servers are removed at the end");
        assert_eq!(self.topology.servers().count(), 0);
        self.counts
    }
}

fn compare_server(found: ServerDescription<'_>, wanted: &Server) {
    let reply = &wanted.reply;
    assert_eq!(found.server_type(), wanted.server_type, "{}", found.address());
    assert_eq!(found.error().map(|error| error.to_string()), wanted.error, "{}", found.address());
    assert_eq!(found.set_name(), reply.set_name.as_deref());
    assert_eq!(found.set_version(), reply.set_version);
    assert_eq!(found.election_id(), reply.election_id);
    assert_eq!(found.me(), reply.me.as_deref());
    assert_eq!(found.primary(), reply.primary.as_deref());
    assert_eq!(found.min_wire_version().zip(found.max_wire_version()), Some(reply.wire));
    assert_eq!(found.logical_session_timeout_minutes(), reply.session_timeout.map(i64::from));
    assert_eq!(found.topology_version(), reply.version);
    let set = |list: &[String]| list.iter().cloned().collect::<BTreeSet<_>>();
    let of = |list: &mut dyn Iterator<Item = &str>| list.map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(of(&mut found.hosts()), set(&reply.hosts));
    assert_eq!(of(&mut found.passives()), set(&reply.passives));
    assert_eq!(of(&mut found.arbiters()), set(&reply.arbiters));
    let tags: BTreeSet<_> = found.tags().collect();
    assert_eq!(tags, reply.tags.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect());
}

fn version(choices: &mut Bytes<'_>) -> Option<TopologyVersion> {
    let process_id = ObjectId([choices.one_of(&[1, 1, 1, 2]); 12]);
    let counter = choices.one_of(&[1, 1, 2, 2, i64::MIN, i64::MAX]);
    choices.one_in(2).then_some(TopologyVersion { process_id, counter })
}

/// A reply of the server at this address.
fn reply(address: &str, calm: bool, choices: &mut Bytes<'_>) -> Reply {
    let role = if calm { choices.below(12) } else { choices.below(16) };
    let mut reply = Reply {
        writable: role < 4,
        secondary: (4..8).contains(&role) || (!calm && choices.one_in(8)),
        arbiter: role == 8,
        hidden: role == 9 || (!calm && choices.one_in(16)),
        ghost: role == 12,
        mongos: role == 13,
        set_name: (role < 12).then(|| "rs".to_owned()),
        set_version: choices.one_of(&[None, Some(1), Some(2), Some(3)]),
        election_id: choices.one_of(&[None, Some(1), Some(2), Some(3)]).map(|id| ObjectId([id; 12])),
        me: choices.one_in(2).then(|| address.to_owned()),
        primary: choices.one_in(3).then(|| choices.one_of(&HOSTS).to_owned()),
        wire: (choices.one_of(&[0, 0, 0, 6, 26]), choices.one_of(&[21, 21, 25, 17, 16, 16, 7])),
        session_timeout: choices.one_of(&[None, Some(30), Some(20), Some(20)]),
        version: version(choices),
        ..Reply::default()
    };
    if choices.one_in(16) {
        reply.set_name = choices.one_of(&[None, Some("other")]).map(str::to_owned);
    }
    if choices.one_in(12) {
        reply.me = Some(choices.one_of(&HOSTS).to_owned());
    }
    let members = if calm { choices.one_of(&[0b000_0111, 0b000_0111, 0b001_0011]) } else { choices.below(256) };
    for (place, host) in HOSTS.iter().enumerate() {
        if members >> place & 1 == 1 {
            let lists = [&mut reply.hosts, &mut reply.passives, &mut reply.arbiters];
            let [hosts, passives, arbiters] = lists;
            match choices.below(8) {
                0 => passives.push((*host).to_owned()),
                1 => arbiters.push((*host).to_owned()),
                2 => hosts.insert(0, (*host).to_owned()),
                _ => hosts.push((*host).to_owned()),
            }
        }
    }
    if choices.one_in(8) {
        reply.hosts.extend(reply.hosts.first().cloned());
    }
    if choices.one_in(4) {
        let value = choices.one_of(&["ny", "sf"]);
        reply.tags = vec![("dc".to_owned(), value.to_owned()), ("use".to_owned(), String::new())];
    }
    reply
}

/// The reply as the memory for a direct connection stores it.
fn without_names(reply: &Reply) -> Reply {
    let (hosts, passives, arbiters) = (Vec::new(), Vec::new(), Vec::new());
    Reply { me: None, primary: None, hosts, passives, arbiters, tags: Vec::new(), ..reply.clone() }
}

/// The same reply with other spellings: upper case, no default port.
fn respelled(reply: &Reply) -> Reply {
    let spell = |text: &String| match text.strip_suffix(":27017") {
        Some(host) => host.to_uppercase(),
        None => text.clone(),
    };
    let all = |list: &[String]| list.iter().map(spell).collect();
    Reply {
        me: reply.me.as_ref().map(spell),
        primary: reply.primary.as_ref().map(spell),
        hosts: all(&reply.hosts),
        passives: all(&reply.passives),
        arbiters: all(&reply.arbiters),
        ..reply.clone()
    }
}

/// Passes replies with arbitrary texts to a topology with little capacity. Only values and errors
/// are allowed as results.
fn hostile<M: Memory>(data: &[u8]) {
    let options = TopologyOptions { seeds: &["a"], direct_connection: M::DIRECT_ONLY, ..TopologyOptions::default() };
    let config = options.validate().expect("compatible options");
    let mut topology: Topology<M> =
        Topology::new(Instant::ORIGIN, TopologyId::new(1), config, &mut ()).expect("room for a seed");
    let text = String::from_utf8_lossy(data);
    let mut pieces = text.split(['\n', '\u{fffd}', '|', '\u{7}']).map(str::to_owned);
    while let Some(piece) = pieces.next() {
        let kind = piece.len();
        let reply = Reply {
            writable: kind % 3 == 0,
            secondary: kind % 2 == 0,
            set_name: pieces.next(),
            me: pieces.next().filter(|_| kind % 5 == 0),
            primary: pieces.next().filter(|_| kind % 7 == 0),
            wire: (0, 21),
            hosts: piece.split(',').map(str::to_owned).chain(["a".to_owned()]).collect(),
            // A reply cannot express a name with a zero byte.
            tags: pieces.next().into_iter().filter(|tag| !tag.contains('\0')).map(|tag| (tag.clone(), tag)).collect(),
            ..Reply::default()
        };
        let Some(server) = topology.servers().map(|server| server.server()).nth(kind % 3) else { continue };
        topology.handle_hello(Instant::ORIGIN, server, &reply.hello(&reply.lists()), None, &mut ());
        topology.assert_invariants();
        if kind % 4 != 0 {
            while topology.poll_action().is_some() {}
        }
    }
    topology.close(Instant::ORIGIN, &mut ());
    topology.assert_invariants();
}
