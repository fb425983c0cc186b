//! Arbitrary documents as hello replies, and their effect on a topology, compared with a naive
//! reader.

#![expect(clippy::wildcard_enum_match_arm, reason = "most types of values are wrong for a field, and there are many")]

use bson::{RawBsonRef, RawDocument as Theirs};
use poolhouse_core::topology::{
    Fixed, Memory, OnHeap, Topology, TopologyAction, TopologyId, TopologyOptions, TopologyType,
};
use poolhouse_core::{Instant, ServerType};
use poolhouse_wire::bson::RawDocument;
use poolhouse_wire::hello::HelloReply;

use super::wire::framed;

#[cfg(test)]
mod tests;

/// The result of reading a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// It is no well-formed document.
    Malformed,
    /// It is no hello reply.
    Refused,
    /// It reports that the command failed.
    Failed,
    /// It describes a server of this kind.
    Described(ServerType),
}

/// Reads `data` as a reply, and as the elements of one.
pub fn hello(data: &[u8]) {
    read(data);
    read(&framed(data));
}

/// Reads one reply.
pub fn read(bytes: &[u8]) -> Read {
    let Ok(document) = RawDocument::new(bytes) else { return Read::Malformed };
    if document.validate().is_err() {
        // A rejection must not panic.
        let _ = HelloReply::parse(document);
        return Read::Malformed;
    }
    let theirs: &Theirs = document.try_into().expect("opened by both");
    let naive = Naive::read(theirs);
    // Duplicate fields are covered by other tests.
    let twice = comes_twice(theirs)
        || first(theirs, "topologyVersion").and_then(RawBsonRef::as_document).is_some_and(comes_twice);
    if twice {
        return HelloReply::parse(document).map_or(Read::Refused, |reply| match reply.ok {
            true => Read::Described(reply.server_type()),
            false => Read::Failed,
        });
    }
    let reply = match HelloReply::parse(document) {
        Ok(reply) => reply,
        Err(error) => {
            assert!(error.offset() as usize <= bytes.len());
            assert!(naive.is_none_or(|naive| !naive.is_good), "a valid reply was rejected: {error}");
            return Read::Refused;
        }
    };
    let naive = naive.expect("a reply without ok is refused");
    assert_eq!(reply.ok, naive.ok);
    if !reply.ok {
        assert_eq!(reply.server_type(), ServerType::Unknown);
        return Read::Failed;
    }
    assert!(naive.is_good, "accepted although a field has the wrong type");
    assert_eq!(reply.server_type(), naive.server_type);
    assert_eq!(reply.set_name, naive.set_name);
    assert_eq!(reply.me, naive.me);
    assert_eq!(reply.primary, naive.primary);
    assert_eq!((reply.min_wire_version, reply.max_wire_version), naive.wire);
    assert!(reply.hosts.strings().eq(naive.hosts.iter().copied()));
    assert!(reply.passives.strings().eq(naive.passives.iter().copied()));
    assert!(reply.arbiters.strings().eq(naive.arbiters.iter().copied()));
    assert!((1..=i32::MAX.unsigned_abs()).contains(&reply.sizes.max_message_bytes));
    assert!((1..=i32::MAX.unsigned_abs()).contains(&reply.sizes.max_bson_object_bytes));
    assert!((1..=i32::MAX.unsigned_abs()).contains(&reply.sizes.max_write_batch_count));
    let _ = format!("{reply:?}");
    for (replica_set, direct) in [(None, true), (None, false), (Some("rs"), false)] {
        describes::<OnHeap>(&reply, &naive, replica_set, direct);
        describes::<Fixed<3, 4, 10, 96>>(&reply, &naive, replica_set, direct);
    }
    Read::Described(naive.server_type)
}

/// Passes the reply twice to a topology with one seed. The resulting description must match the
/// reply, or the reason for its rejection.
fn describes<M: Memory>(reply: &HelloReply<'_>, naive: &Naive<'_>, replica_set: Option<&str>, direct: bool) {
    let options = TopologyOptions { seeds: &["a:27017"], replica_set, direct_connection: direct, load_balanced: false };
    let config = options.validate().expect("compatible options");
    let mut topology: Topology<M> =
        Topology::new(Instant::ORIGIN, TopologyId::new(1), config, &mut ()).expect("room for a seed");
    let server = topology.servers().next().expect("the seed").server();
    for times in 1..=2 {
        let now = Instant::from_nanos(times * 1_000_000);
        let known = topology.handle_hello(now, server, reply, None, &mut ());
        topology.assert_invariants();
        assert_eq!(known, topology.server(server).is_some_and(|server| server.server_type().is_known()));
        if let Some(described) = topology.server(server).filter(|server| server.server_type().is_known()) {
            assert_eq!(described.server_type(), naive.server_type);
            assert_eq!(described.set_name(), naive.set_name);
            assert!(described.me().is_none_or(|me| naive.me.is_some_and(|said| is_same_address(me, said))));
            assert_eq!(described.topology_version(), reply.topology_version);
        }
        if direct {
            assert_eq!(
                topology.description().topology_type(),
                TopologyType::Single,
                "the type of a direct connection does not change"
            );
            assert_eq!(topology.servers().count(), 1, "a direct connection has one server");
        }
        while let Some(action) = topology.poll_action() {
            assert!(!matches!(action, TopologyAction::CancelCheck(_)), "a reply cancels nothing");
        }
        assert!(topology.servers().all(|member| !member.address().is_empty()));
    }
    topology.close(Instant::from_nanos(3_000_000), &mut ());
    while topology.poll_action().is_some() {}
    topology.assert_invariants();
}

/// Whether `kept` is the normal form of `said`: paths unchanged, else the host in lower case and
/// the port as a number.
fn is_same_address(kept: &str, said: &str) -> bool {
    if said.starts_with('/') || said.ends_with(".sock") {
        return kept == said;
    }
    let (host, port) = match said.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port),
        _ => (said, "27017"),
    };
    let number = port.parse::<u32>().unwrap_or(0);
    kept == format!("{}:{number}", host.to_ascii_lowercase())
}

/// The fields of a reply, read with the bson crate. Of duplicate fields the first counts.
struct Naive<'a> {
    ok: bool,
    /// Whether all fields with a required type have that type.
    is_good: bool,
    server_type: ServerType,
    set_name: Option<&'a str>,
    me: Option<&'a str>,
    primary: Option<&'a str>,
    wire: (i32, i32),
    hosts: Vec<&'a str>,
    passives: Vec<&'a str>,
    arbiters: Vec<&'a str>,
}

impl<'a> Naive<'a> {
    /// Returns `None` without `ok`.
    fn read(document: &'a Theirs) -> Option<Self> {
        let mut is_good = true;
        let ok = match first(document, "ok")? {
            RawBsonRef::Boolean(ok) => ok,
            RawBsonRef::Double(number) => number.to_bits() == 1.0_f64.to_bits(),
            other => whole(other)? == 1,
        };
        let mut flag = |name| {
            let found = first(document, name);
            let value = found.map(|value| match value {
                RawBsonRef::Boolean(value) => Some(value),
                RawBsonRef::Int32(value) => Some(value != 0),
                RawBsonRef::Int64(value) => Some(value != 0),
                RawBsonRef::Double(value) => Some(value != 0.0),
                _ => None,
            });
            is_good &= value != Some(None);
            value.flatten()
        };
        let writable = flag("isWritablePrimary");
        let legacy = flag("ismaster");
        let [ghost, secondary, arbiter, hidden] =
            ["isreplicaset", "secondary", "arbiterOnly", "hidden"].map(|name| flag(name).unwrap_or(false));
        let writable = writable.or(legacy).unwrap_or(false);
        let mut text = |name| {
            let found = first(document, name);
            is_good &= found.is_none_or(|value| value.as_str().is_some());
            found.and_then(RawBsonRef::as_str)
        };
        let [set_name, me, primary] = ["setName", "me", "primary"].map(&mut text);
        let mut texts = |name| {
            let found = first(document, name);
            let array = found.and_then(RawBsonRef::as_array);
            is_good &= found.is_some() == array.is_some();
            let values: Vec<Option<&str>> =
                array.into_iter().flatten().map(|value| value.ok().and_then(|value| value.as_str())).collect();
            is_good &= values.iter().all(Option::is_some);
            values.into_iter().flatten().collect::<Vec<&str>>()
        };
        let [hosts, passives, arbiters] = ["hosts", "passives", "arbiters"].map(&mut texts);
        let mut version = |name| {
            let found = first(document, name);
            let value =
                found.map(|value| whole(value).and_then(|value| i32::try_from(value).ok()).filter(|value| *value >= 0));
            is_good &= value != Some(None);
            value.flatten().unwrap_or(0)
        };
        let wire = (version("minWireVersion"), version("maxWireVersion"));
        is_good &= wire.0 <= wire.1;
        let is_router = document.iter().flatten().any(|(key, value)| key.as_str() == "msg" && value.as_str().is_some());
        let is_router = is_router
            && document
                .iter()
                .flatten()
                .find_map(|(key, value)| (key.as_str() == "msg").then(|| value.as_str()).flatten())
                == Some("isdbgrid");
        is_good &= others_are_good(document);
        let server_type = match () {
            () if ghost => ServerType::RsGhost,
            () if is_router => ServerType::Mongos,
            () if set_name.is_none() => ServerType::Standalone,
            () if hidden => ServerType::RsOther,
            () if writable => ServerType::RsPrimary,
            () if secondary => ServerType::RsSecondary,
            () if arbiter => ServerType::RsArbiter,
            () => ServerType::RsOther,
        };
        Some(Self { ok, is_good, server_type, set_name, me, primary, wire, hosts, passives, arbiters })
    }
}

/// Checks the fields that are not compared otherwise.
fn others_are_good(document: &Theirs) -> bool {
    let id = |name| first(document, name).is_none_or(|value| value.as_object_id().is_some());
    let version = first(document, "topologyVersion").is_none_or(|value| {
        value.as_document().is_some_and(|version| {
            version.get("processId").ok().flatten().is_some_and(|id| id.as_object_id().is_some())
                && version.get("counter").ok().flatten().is_some_and(|counter| whole(counter).is_some())
        })
    });
    id("electionId") && id("serviceId") && version && first(document, "setVersion").is_none_or(|v| whole(v).is_some())
}

/// Whether a key is duplicated.
fn comes_twice(document: &Theirs) -> bool {
    let mut keys: Vec<&str> = document.iter().flatten().map(|(key, _)| key.as_str()).collect();
    keys.sort_unstable();
    keys.windows(2).any(|pair| pair[0] == pair[1])
}

/// The first value of a field that is not null or undefined.
fn first<'a>(document: &'a Theirs, name: &str) -> Option<RawBsonRef<'a>> {
    let stands = |value: &RawBsonRef<'_>| !matches!(value, RawBsonRef::Null | RawBsonRef::Undefined);
    document.iter().flatten().find_map(|(key, value)| (key.as_str() == name && stands(&value)).then_some(value))
}

/// The integer value of any numeric type.
fn whole(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(value) => Some(i64::from(value)),
        RawBsonRef::Int64(value) => Some(value),
        RawBsonRef::Double(value) => {
            #[expect(clippy::cast_possible_truncation, reason = "it is looked whether it has changed")]
            let number = value as i64;
            (number as f64 == value && value.abs() < 9.2e18).then_some(number)
        }
        _ => None,
    }
}
