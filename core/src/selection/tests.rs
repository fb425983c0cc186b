use super::*;
use crate::replies::Lists;
use crate::topology::{
    Fixed, MAX_WIRE_VERSION, RoundTrip, Topology, TopologyId, TopologyOptions, TopologyType, WireMismatch,
};
use crate::{Cause, ConfigError, Instant, ServerId, ServerType};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;
use poolhouse_wire::hello::HelloReply;

type Memory = Fixed<8, 16, 64, 2048>;

/// A reply of a server of this type, which belongs to the set `rs` if it is a member.
pub(crate) fn hello<'a>(server_type: ServerType, lists: Lists<'a>) -> HelloReply<'a> {
    let is_member = matches!(
        server_type,
        ServerType::RsPrimary | ServerType::RsSecondary | ServerType::RsArbiter | ServerType::RsOther
    );
    lists.of(HelloReply {
        is_writable_primary: matches!(server_type, ServerType::RsPrimary | ServerType::Standalone | ServerType::Mongos),
        secondary: server_type == ServerType::RsSecondary,
        arbiter_only: server_type == ServerType::RsArbiter,
        hidden: false,
        is_replica_set: server_type == ServerType::RsGhost,
        is_db_grid: server_type == ServerType::Mongos,
        is_cryptd: false,
        set_name: is_member.then_some("rs"),
        set_version: None,
        election_id: None,
        me: None,
        primary: None,
        min_wire_version: 0,
        max_wire_version: MAX_WIRE_VERSION,
        last_write_date_ms: Some(1_000_000),
        logical_session_timeout_minutes: Some(30),
        topology_version: None,
        ..HelloReply::OK
    })
}

fn at_ms(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn topology(seeds: &[&str], options: TopologyOptions<'_>) -> Topology<Memory> {
    let config = TopologyOptions { seeds, ..options }.validate().expect("valid");
    Topology::new(Instant::ORIGIN, TopologyId::new(1), config, &mut ()).expect("room")
}

/// Applies a hello reply of this address's server to a topology.
fn tell(topology: &mut Topology<Memory>, address: &str, rtt_ms: u64, hello: &HelloReply<'_>) {
    let server = topology.find(address).expect("a member");
    let average = Duration::from_millis(rtt_ms);
    let round_trip = RoundTrip { average, minimum: Duration::ZERO };
    topology.handle_hello(at_ms(1), server, hello, Some(round_trip), &mut ());
}

const HOSTS: [&str; 3] = ["a:1", "b:1", "c:1"];

/// A primary at `a:1` and secondaries at `b:1` and `c:1`.
fn set() -> Topology<Memory> {
    let mut set = topology(&HOSTS, TopologyOptions { replica_set: Some("rs"), ..TopologyOptions::default() });
    let of = |server_type, tags| hello(server_type, Lists { hosts: &HOSTS, tags, ..Lists::default() });
    tell(&mut set, "a:1", 5, &of(ServerType::RsPrimary, &[("dc", "ny")]));
    tell(&mut set, "b:1", 10, &of(ServerType::RsSecondary, &[("dc", "ny"), ("rack", "1")]));
    tell(&mut set, "c:1", 30, &of(ServerType::RsSecondary, &[("dc", "sf")]));
    set
}

fn addresses<'a>(servers: impl Iterator<Item = crate::topology::ServerDescription<'a>>) -> Vec<&'a str> {
    servers.map(|server| server.address()).collect()
}

fn suitable<'a>(
    topology: &'a Topology<Memory>,
    preference: ReadPreferenceOptions<'_>,
    left_out: &[&str],
) -> Vec<&'a str> {
    let left_out: Vec<ServerId> = left_out.iter().map(|address| topology.find(address).expect("a member")).collect();
    let criteria = SelectionCriteria::read(preference.validate().expect("valid"));
    addresses(Selection::new(topology.description(), &criteria, &left_out).expect("valid").suitable())
}

fn mode(mode: ReadMode) -> ReadPreferenceOptions<'static> {
    ReadPreferenceOptions { mode, ..ReadPreferenceOptions::default() }
}

#[test]
fn modes_pick_their_members() {
    let set = set();
    assert_eq!(suitable(&set, mode(ReadMode::Primary), &[]), ["a:1"]);
    assert_eq!(suitable(&set, mode(ReadMode::PrimaryPreferred), &[]), ["a:1"]);
    assert_eq!(suitable(&set, mode(ReadMode::Secondary), &[]), ["b:1", "c:1"]);
    assert_eq!(suitable(&set, mode(ReadMode::SecondaryPreferred), &[]), ["b:1", "c:1"]);
    assert_eq!(suitable(&set, mode(ReadMode::Nearest), &[]), ["a:1", "b:1", "c:1"]);
}

#[test]
fn deprioritized_servers_are_selected_only_without_others() {
    let set = set();
    assert_eq!(suitable(&set, mode(ReadMode::Secondary), &["b:1"]), ["c:1"]);
    assert_eq!(suitable(&set, mode(ReadMode::Secondary), &["b:1", "c:1"]), ["b:1", "c:1"]);
    assert_eq!(suitable(&set, mode(ReadMode::SecondaryPreferred), &["b:1", "c:1"]), ["a:1"]);
    assert_eq!(suitable(&set, mode(ReadMode::PrimaryPreferred), &["a:1"]), ["b:1", "c:1"]);
    assert_eq!(suitable(&set, mode(ReadMode::Primary), &["a:1"]), ["a:1"]);
    assert_eq!(suitable(&set, mode(ReadMode::Nearest), &HOSTS), HOSTS);
}

#[test]
fn the_first_tag_set_that_a_member_has_is_used() {
    let set = set();
    let tagged = |mode, tag_sets| suitable(&set, ReadPreferenceOptions { mode, tag_sets, ..Default::default() }, &[]);
    assert_eq!(tagged(ReadMode::Secondary, &[&[("dc", "none")], &[("dc", "sf")], &[]]), ["c:1"]);
    assert_eq!(tagged(ReadMode::Secondary, &[&[("rack", "1"), ("dc", "ny")]]), ["b:1"]);
    assert_eq!(tagged(ReadMode::Nearest, &[&[("dc", "ny")]]), ["a:1", "b:1"]);
    assert!(tagged(ReadMode::Secondary, &[&[("dc", "none")]]).is_empty());
    assert_eq!(tagged(ReadMode::SecondaryPreferred, &[&[("dc", "none")]]), ["a:1"], "the primary whatever its tags");
    assert_eq!(tagged(ReadMode::PrimaryPreferred, &[&[("dc", "none")]]), ["a:1"]);
    assert_eq!(tagged(ReadMode::Primary, &[&[]]), ["a:1"]);
}

#[test]
fn the_window_includes_both_of_its_ends() {
    let set = set();
    let window = |threshold_ms| {
        let criteria = SelectionCriteria::read(ReadPreference::of(ReadMode::Nearest))
            .with_local_threshold(Duration::from_millis(threshold_ms));
        addresses(Selection::new(set.description(), &criteria, &[]).expect("valid").in_window())
    };
    assert_eq!(window(0), ["a:1"]);
    assert_eq!(window(4), ["a:1"]);
    assert_eq!(window(5), ["a:1", "b:1"]);
    assert_eq!(window(24), ["a:1", "b:1"]);
    assert_eq!(window(25), HOSTS);
    let criteria = SelectionCriteria::write();
    let selection = Selection::new(set.description(), &criteria, &[]).expect("valid");
    let suits = |address| selection.is_suitable(set.find(address).expect("a member"));
    assert_eq!(HOSTS.map(suits).iter().filter(|suits| **suits).count(), 1, "the primary, and nobody else");
    let criteria = SelectionCriteria::read(ReadPreference::of(ReadMode::Nearest)).with_local_threshold(Duration::MAX);
    assert_eq!(Selection::new(set.description(), &criteria, &[]).expect("valid").in_window().count(), 3);
}

#[test]
fn the_less_busy_of_two_servers_is_selected() {
    let set = set();
    let criteria = SelectionCriteria::read(ReadPreference::of(ReadMode::Nearest));
    let (a, b) = (set.find("a:1").expect("a"), set.find("b:1").expect("b"));
    for entropy in [0, 1, u32::MAX / 2, u32::MAX / 2 + 1, u32::MAX] {
        let busy_a = |server| u32::from(server == a);
        assert_eq!(select(set.description(), &criteria, &[], busy_a, entropy), Ok(Some(b)));
        let busy_b = |server| u32::from(server == b);
        assert_eq!(select(set.description(), &criteria, &[], busy_b, entropy), Ok(Some(a)));
    }
    let ties: Vec<_> = [0, u32::MAX].map(|entropy| select(set.description(), &criteria, &[], |_| 7, entropy)).into();
    assert_eq!(ties, [Ok(Some(a)), Ok(Some(b))], "a tie is decided by chance");
}

#[test]
fn staleness_is_measured_against_the_primary_even_if_it_is_deprioritized() {
    let mut set = topology(&HOSTS, TopologyOptions { replica_set: Some("rs"), ..TopologyOptions::default() });
    let lists = Lists { hosts: &HOSTS, tags: &[], ..Lists::default() };
    let of = |server_type, date_ms| HelloReply { last_write_date_ms: date_ms, ..hello(server_type, lists) };
    tell(&mut set, "a:1", 5, &of(ServerType::RsPrimary, Some(1_000_000)));
    tell(&mut set, "b:1", 5, &of(ServerType::RsSecondary, Some(920_000)));
    tell(&mut set, "c:1", 5, &of(ServerType::RsSecondary, Some(919_999)));
    let limit = ReadPreferenceOptions { max_staleness_seconds: Some(90), ..mode(ReadMode::Secondary) };
    assert_eq!(suitable(&set, limit, &[]), ["b:1"], "80 s behind and 10 s of heartbeat are just allowed");
    assert_eq!(suitable(&set, limit, &["a:1"]), ["b:1"]);
    let nearest = ReadPreferenceOptions { mode: ReadMode::Nearest, ..limit };
    assert_eq!(suitable(&set, nearest, &["a:1"]), ["b:1"]);
    tell(&mut set, "b:1", 5, &of(ServerType::RsSecondary, None));
    assert!(suitable(&set, limit, &[]).is_empty(), "nothing is known of its staleness");
    tell(&mut set, "b:1", 5, &of(ServerType::RsSecondary, Some(i64::MIN)));
    assert!(suitable(&set, limit, &[]).is_empty());
    tell(&mut set, "a:1", 5, &of(ServerType::RsPrimary, None));
    assert_eq!(suitable(&set, limit, &[]), ["c:1"], "the freshest secondary is the measure");
}

#[test]
fn read_preferences_that_contradict_themselves_are_refused_by_name_value_and_rule() {
    let refused = |options: ReadPreferenceOptions<'_>| options.validate().expect_err("refused").to_string();
    let staleness = ReadPreferenceOptions { max_staleness_seconds: Some(120), ..mode(ReadMode::Primary) };
    assert_eq!(refused(staleness), "maxStalenessSeconds is 120, but must be absent when readPreference is primary");
    let tags = ReadPreferenceOptions { tag_sets: &[&[("dc", "ny")], &[]], ..mode(ReadMode::Primary) };
    assert_eq!(refused(tags), "readPreferenceTags is 1, but must be absent when readPreference is primary");
    let zero = ReadPreferenceOptions { max_staleness_seconds: Some(0), ..mode(ReadMode::Primary) };
    assert!(zero.validate().is_ok(), "only in a replica set zero is too small");
}

#[test]
fn a_small_max_staleness_is_refused_in_replica_sets_only() {
    let criteria = |seconds| {
        let options = ReadPreferenceOptions { max_staleness_seconds: Some(seconds), ..mode(ReadMode::Nearest) };
        SelectionCriteria::read(options.validate().expect("valid"))
    };
    for set in [TopologyType::ReplicaSetNoPrimary, TopologyType::ReplicaSetWithPrimary] {
        assert_eq!(criteria(89).check(set), Err(ConfigError::new("maxStalenessSeconds", 89, "be at least 90")));
        assert!(criteria(0).check(set).is_err());
        assert_eq!(criteria(90).check(set), Ok(()));
        let slow = |seconds| criteria(seconds).with_heartbeat_frequency(Duration::from_secs(90)).check(set);
        assert!(slow(99).is_err());
        assert_eq!(slow(100), Ok(()));
    }
    for other in [TopologyType::Unknown, TopologyType::Single, TopologyType::Sharded, TopologyType::LoadBalanced] {
        assert_eq!(criteria(1).check(other), Ok(()));
    }
}

#[test]
fn modes_have_the_names_of_uris() {
    for mode in ReadMode::ALL {
        assert_eq!(ReadMode::from_name(mode.name()), Some(mode));
    }
    assert_eq!(ReadMode::from_name("Primary"), None);
    assert_eq!(ReadMode::from_name("secondaryPreferred"), Some(ReadMode::SecondaryPreferred));
}

#[test]
fn criteria_display_all_requirements() {
    let options = ReadPreferenceOptions {
        mode: ReadMode::Secondary,
        tag_sets: &[&[("dc", "ny"), ("rack", "1")], &[]],
        max_staleness_seconds: Some(120),
    };
    let criteria = SelectionCriteria::read(options.validate().expect("valid"));
    let text = "read from secondary, tag sets [{dc: ny, rack: 1}, {}], maxStalenessSeconds 120";
    assert_eq!(criteria.to_string(), text);
    assert_eq!(SelectionCriteria::write().to_string(), "write");
    let plain = ReadPreferenceOptions { tag_sets: &[], max_staleness_seconds: None, ..options };
    let untagged = ReadPreferenceOptions { tag_sets: &[], ..options };
    let lenient = ReadPreferenceOptions { tag_sets: &[&[]], max_staleness_seconds: None, ..options };
    let shown = [plain, untagged, lenient].map(|options| options.validate().expect("valid").to_string());
    assert_eq!(shown, ["secondary", "secondary, maxStalenessSeconds 120", "secondary, tag sets [{}]"]);
}

/// LOG-18, and the topology's own accessors behave the same.
#[test]
#[doc(alias = "LOG-18")]
fn readable_and_writable_by_topology_type() {
    let lists = Lists { hosts: &HOSTS, tags: &[], ..Lists::default() };
    let readable = |topology: &Topology<Memory>, mode| {
        has_readable_server(topology.description(), &SelectionCriteria::read(ReadPreference::of(mode)))
    };
    let check = |topology: &Topology<Memory>, type_of: TopologyType, primary: bool, secondary: bool, write: bool| {
        let description = topology.description();
        assert_eq!(description.topology_type(), type_of);
        assert_eq!(readable(topology, ReadMode::Primary), primary, "{type_of}");
        assert_eq!(readable(topology, ReadMode::Secondary), secondary, "{type_of}");
        assert_eq!(has_writable_server(description), write, "{type_of}");
        assert_eq!(description.has_readable_server(), primary, "{type_of}");
        assert_eq!(description.has_writable_server(), write, "{type_of}");
    };
    let options = TopologyOptions::default();
    check(&topology(&HOSTS, options), TopologyType::Unknown, false, false, false);

    let mut single = topology(&["a:1"], TopologyOptions { direct_connection: true, ..options });
    check(&single, TopologyType::Single, false, false, false);
    tell(&mut single, "a:1", 1, &hello(ServerType::RsSecondary, lists));
    check(&single, TopologyType::Single, true, true, true);

    let mut sharded = topology(&HOSTS, options);
    tell(&mut sharded, "b:1", 1, &hello(ServerType::Mongos, lists));
    check(&sharded, TopologyType::Sharded, true, true, true);
    let router = sharded.find("b:1").expect("a member");
    sharded.handle_failed(at_ms(2), router, Cause::Network, &mut ());
    check(&sharded, TopologyType::Sharded, false, false, false);

    let mut set = topology(&HOSTS, TopologyOptions { replica_set: Some("rs"), ..options });
    check(&set, TopologyType::ReplicaSetNoPrimary, false, false, false);
    tell(&mut set, "b:1", 1, &hello(ServerType::RsSecondary, lists));
    check(&set, TopologyType::ReplicaSetNoPrimary, false, true, false);
    tell(&mut set, "a:1", 1, &hello(ServerType::RsPrimary, lists));
    check(&set, TopologyType::ReplicaSetWithPrimary, true, true, true);
    let secondary = set.find("b:1").expect("a member");
    set.handle_failed(at_ms(2), secondary, Cause::Network, &mut ());
    check(&set, TopologyType::ReplicaSetWithPrimary, true, false, true);

    let balanced = topology(&["a:1"], TopologyOptions { load_balanced: true, ..options });
    check(&balanced, TopologyType::LoadBalanced, true, true, true);
}

/// SDAM-01.
#[test]
#[doc(alias = "SDAM-01")]
fn a_direct_connection_reaches_any_server_that_answers() {
    let direct = TopologyOptions { direct_connection: true, ..TopologyOptions::default() };
    for server_type in [
        ServerType::RsGhost,
        ServerType::RsOther,
        ServerType::RsArbiter,
        ServerType::RsSecondary,
        ServerType::Standalone,
        ServerType::Mongos,
    ] {
        let mut single = topology(&["a:1"], direct);
        tell(&mut single, "a:1", 1, &hello(server_type, Lists::default()));
        assert_eq!(suitable(&single, mode(ReadMode::Primary), &[]), ["a:1"], "{server_type}");
        assert!(has_writable_server(single.description()), "{server_type}");
    }
}

/// At once, and with the prescribed text.
#[test]
#[doc(alias = "SDAM-35")]
fn an_incompatible_topology_is_an_error_at_once() {
    let mut single = topology(&["a:1"], TopologyOptions { direct_connection: true, ..TopologyOptions::default() });
    let old = HelloReply { max_wire_version: 6, ..hello(ServerType::Standalone, Lists::default()) };
    tell(&mut single, "a:1", 1, &old);
    let error = select(single.description(), &SelectionCriteria::write(), &[], |_| 0, 0).expect_err("incompatible");
    assert!(matches!(error.failure(), SelectionFailure::Incompatible(_)));
    let text = error.describe(single.description()).to_string();
    assert!(text.starts_with("Server at a:1 reports wire version 6, but this version of Poolhouse requires"), "{text}");
    assert!(error.to_string().starts_with("a server reports wire version 6, which is too old"), "{error}");
}

/// A result at the deadline itself is too late.
#[test]
#[doc(alias = "MON-18")]
fn selector_fails_at_its_deadline() {
    let set = topology(&HOSTS, TopologyOptions { replica_set: Some("rs"), ..TopologyOptions::default() });
    let expire = |timeout: Option<u64>, ms| {
        let selector = Selector::new(at_ms(0), timeout.map(Duration::from_millis));
        assert_eq!(selector.deadline(), timeout.map(at_ms));
        selector.expire(at_ms(ms), set.description()).map_err(|error| error.failure())
    };
    assert_eq!(expire(Some(1_200), 1_199), Ok(()));
    let waited = Duration::from_millis(1_200);
    assert_eq!(expire(Some(1_200), 1_200), Err(SelectionFailure::TimedOut { waited }));
    assert_eq!(expire(Some(0), 0), Err(SelectionFailure::TimedOut { waited: Duration::ZERO }), "one attempt");
    assert_eq!(expire(None, 1_000_000), Ok(()));
}

#[test]
fn the_error_shows_the_topology_as_it_was() {
    let mut set = set();
    let server = set.find("b:1").expect("a member");
    set.handle_failed(at_ms(2), server, Cause::NetworkTimeout, &mut ());
    let waited = Duration::from_secs(30);
    let error = SelectionError::new(SelectionFailure::TimedOut { waited }, set.description());
    assert_eq!((error.servers(), error.known()), (3, 2));
    assert_eq!(
        error.to_string(),
        "no suitable server within 30 s; topology: ReplicaSetWithPrimary, 3 servers, 2 known"
    );
    let detail = error.detail(set.description());
    set.handle_failed(at_ms(3), server, Cause::Network, &mut ());
    assert_eq!(
        detail.to_string(),
        "no suitable server within 30 s; topology: ReplicaSetWithPrimary rs \
         [a:1: RSPrimary, b:1: Unknown (network timeout), c:1: RSSecondary]"
    );
    assert_eq!(detail.topology().servers().count(), 3);
    assert_eq!(detail.error(), &error);
}

#[test]
fn a_server_without_a_round_trip_time_is_in_the_window_only_if_no_server_has_one() {
    let mut sharded = topology(&HOSTS, TopologyOptions::default());
    for address in ["a:1", "b:1"] {
        let server = sharded.find(address).expect("a member");
        sharded.handle_hello(at_ms(1), server, &hello(ServerType::Mongos, Lists::default()), None, &mut ());
    }
    let window = |sharded: &Topology<Memory>| {
        let criteria = SelectionCriteria::write();
        Selection::new(sharded.description(), &criteria, &[]).expect("valid").in_window().count()
    };
    assert_eq!(window(&sharded), 2);
    tell(&mut sharded, "a:1", 100, &hello(ServerType::Mongos, Lists::default()));
    assert_eq!(window(&sharded), 1);
}

#[test]
fn each_failure_has_a_text_with_a_summary_of_the_topology() {
    let topology = topology(&["a", "b"], TopologyOptions::default());
    let of = |failure| SelectionError::new(failure, topology.description());
    let criteria = ConfigError::new("maxStalenessSeconds", 1, "be more");
    let texts = [
        (
            SelectionFailure::TimedOut { waited: Duration::from_secs(30) },
            String::from("no suitable server within 30 s"),
        ),
        (SelectionFailure::TriedOnce, "no suitable server after scanning once".into()),
        (SelectionFailure::Criteria(criteria), criteria.to_string()),
        (SelectionFailure::Closed, "the client is closed".into()),
        (
            SelectionFailure::Incompatible(WireMismatch::ServerTooNew(99)),
            "a server requires wire version 99, which is too new".into(),
        ),
        (
            SelectionFailure::Incompatible(WireMismatch::ServerTooOld(1)),
            "a server reports wire version 1, which is too old".into(),
        ),
    ];
    for (failure, text) in texts {
        let error = of(failure);
        assert_eq!(error.to_string(), format!("{text}; topology: Unknown, 2 servers, 0 known"));
        assert_eq!((error.failure(), error.topology_type()), (failure, TopologyType::Unknown));
        assert_eq!((error.servers(), error.known()), (2, 0));
        let detailed = error.detail(topology.description());
        assert_eq!(detailed.to_string(), format!("{text}; topology: Unknown [a:27017: Unknown, b:27017: Unknown]"));
        assert_eq!(format!("{detailed:?}"), detailed.to_string());
    }
}

#[test]
fn detailed_errors_are_equal_if_their_texts_are() {
    let (one, other) = (topology(&["a"], TopologyOptions::default()), topology(&["b"], TopologyOptions::default()));
    let error = SelectionError::new(SelectionFailure::TriedOnce, one.description());
    let closed = SelectionError::new(SelectionFailure::Closed, one.description());
    assert_eq!(error.detail(one.description()), error.detail(one.description()));
    assert_ne!(error.detail(one.description()), error.detail(other.description()), "another server");
    assert_ne!(error.detail(one.description()), closed.detail(one.description()), "another failure");
}

#[test]
#[doc(alias = "SDAM-35")]
fn direct_selection_equals_the_selection_among_all_types() {
    let tag_sets: &[&[(&str, &str)]] = &[&[("dc", "nowhere")]];
    let options = ReadPreferenceOptions { mode: ReadMode::Secondary, tag_sets, max_staleness_seconds: Some(90) };
    let read = SelectionCriteria::read(options.validate().unwrap());
    let mut outcomes = [0; 3];
    for server_type in [
        ServerType::Unknown,
        ServerType::Standalone,
        ServerType::Mongos,
        ServerType::RsPrimary,
        ServerType::RsSecondary,
        ServerType::RsArbiter,
        ServerType::RsGhost,
    ] {
        for max_wire_version in [MAX_WIRE_VERSION, 1] {
            let options = TopologyOptions { direct_connection: true, ..TopologyOptions::default() };
            let mut direct = topology(&["a:1"], options);
            let server = direct.find("a:1").unwrap();
            if server_type.is_known() {
                tell(&mut direct, "a:1", 5, &HelloReply { max_wire_version, ..hello(server_type, Lists::default()) });
            }
            let found = select_direct(direct.description());
            for criteria in [SelectionCriteria::write(), read] {
                for deprioritized in [&[][..], &[server]] {
                    assert_eq!(select(direct.description(), &criteria, deprioritized, |_| 0, 7), found);
                }
            }
            let outcome = match found {
                Ok(None) => 0,
                Ok(Some(_)) => 1,
                Err(_) => 2,
            };
            outcomes[outcome] += 1;
        }
    }
    assert_eq!(outcomes, [2, 6, 6]);
}
