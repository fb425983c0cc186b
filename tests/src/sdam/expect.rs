//! Compares a topology and its events with the expectations of a test.

use alloc::collections::BTreeMap;

use poolhouse_core::topology::{OwnedSdamEvent, ServerDescription, TopologyDescription, TopologyId};
use poolhouse_core::{ServerId, ServerType};
use serde_json::Value;

use super::input;

/// Fails if an object has keys that the runner does not support.
pub(super) fn only_keys(object: &Value, known: &[&str]) -> Result<(), String> {
    let keys = object.as_object().ok_or_else(|| format!("{object} is not an object"))?.keys();
    match keys.into_iter().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(format!("the runner does not support {key}")),
        None => Ok(()),
    }
}

/// Compares a topology with a phase's outcome.
pub(super) fn outcome(
    outcome: &Value,
    topology: TopologyDescription<'_>,
    generation: impl Fn(ServerId) -> Option<u64>,
) -> Result<(), String> {
    for (key, wanted) in outcome.as_object().ok_or("the outcome is not an object")? {
        match key.as_str() {
            "topologyType" => same(key, wanted.as_str(), Some(topology.topology_type().name()))?,
            "setName" => same(key, wanted.as_str(), topology.set_name())?,
            "logicalSessionTimeoutMinutes" => {
                same(key, input::int64(Some(wanted))?, topology.logical_session_timeout_minutes())?;
            }
            "maxSetVersion" => same(key, input::int64(Some(wanted))?, topology.max_set_version())?,
            "maxElectionId" => same(key, input::oid(Some(wanted))?, topology.max_election_id())?,
            "compatible" => {
                same(key, wanted.as_bool(), Some(topology.is_compatible()))?;
                same("compatibility error", wanted.as_bool(), Some(topology.compatibility_error().is_none()))?;
            }
            "servers" => {
                let wanted = wanted.as_object().ok_or("servers is not an object")?;
                let found: BTreeMap<_, _> = topology.servers().map(|server| (server.address(), server)).collect();
                let mut addresses: Vec<&str> = wanted.keys().map(String::as_str).collect();
                addresses.sort_unstable();
                same("addresses", addresses, found.keys().copied().collect())?;
                for (address, wanted) in wanted {
                    let server = found[address.as_str()];
                    let pool = generation(server.server());
                    description(wanted, server, pool).map_err(|error| format!("{address}: {error}"))?;
                }
            }
            "events" => {}
            _ => return Err(format!("the runner does not support {key}")),
        }
    }
    Ok(())
}

/// Compares a phase's events, all of them and in order. The warning, which is not an event of the
/// specification, is left out.
pub(super) fn events(wanted: &Value, topology: TopologyId, found: &[OwnedSdamEvent]) -> Result<(), String> {
    let wanted = wanted.as_array().ok_or("events is not a list")?;
    let found: Vec<_> = found.iter().filter(|event| !matches!(event, OwnedSdamEvent::NoServers { .. })).collect();
    for (number, (wanted, found)) in wanted.iter().zip(&found).enumerate() {
        event(wanted, topology, found).map_err(|error| format!("event {number}: {error}"))?;
    }
    same("the number of events", wanted.len(), found.len()).map_err(|error| format!("{error}: {found:?}"))
}

fn event(wanted: &Value, id: TopologyId, found: &OwnedSdamEvent) -> Result<(), String> {
    let wanted =
        wanted.as_object().filter(|wanted| wanted.len() == 1).ok_or("an event is not an object with one key")?;
    let (name, fields) = wanted.iter().next().ok_or("an event is empty")?;
    only_keys(fields, &["topologyId", "address", "previousDescription", "newDescription"])?;
    let has_address = |address: &str| same("address", fields["address"].as_str(), Some(address));
    match (name.as_str(), found) {
        ("topology_opening_event", OwnedSdamEvent::TopologyOpening { topology })
        | ("topology_closed_event", OwnedSdamEvent::TopologyClosed { topology }) => same("id", *topology, id),
        ("server_opening_event", OwnedSdamEvent::ServerOpening { topology, address, .. })
        | ("server_closed_event", OwnedSdamEvent::ServerClosed { topology, address, .. }) => {
            has_address(address)?;
            same("id", *topology, id)
        }
        (
            "server_description_changed_event",
            OwnedSdamEvent::ServerDescriptionChanged { topology, address, previous, new, .. },
        ) => {
            has_address(address)?;
            same("id", *topology, id)?;
            description(&fields["previousDescription"], previous.get(), None)?;
            description(&fields["newDescription"], new.get(), None)
        }
        (
            "topology_description_changed_event",
            OwnedSdamEvent::TopologyDescriptionChanged { topology, previous, new },
        ) => {
            same("id", *topology, id)?;
            topology_description(&fields["previousDescription"], previous.get())?;
            topology_description(&fields["newDescription"], new.get())
        }
        _ => Err(format!("expected {name}, found {found:?}")),
    }
}

fn topology_description(wanted: &Value, found: TopologyDescription<'_>) -> Result<(), String> {
    only_keys(wanted, &["topologyType", "setName", "servers"])?;
    same("topologyType", wanted["topologyType"].as_str(), Some(found.topology_type().name()))?;
    if let Some(name) = wanted.get("setName") {
        same("setName", name.as_str(), found.set_name())?;
    }
    let wanted = wanted["servers"].as_array().ok_or("servers is no list")?;
    same("the number of servers", wanted.len(), found.servers().count())?;
    for wanted in wanted {
        let address = wanted["address"].as_str().ok_or("a server has no address")?;
        let server = found.servers().find(|server| server.address() == address);
        description(wanted, server.ok_or_else(|| format!("{address} is missing"))?, None)?;
    }
    Ok(())
}

/// Compares the keys that the test specifies.
fn description(wanted: &Value, found: ServerDescription<'_>, generation: Option<u64>) -> Result<(), String> {
    for (key, wanted) in wanted.as_object().ok_or("a server is not an object")? {
        let text = wanted.as_str();
        let int32 = || input::int32(Some(wanted));
        let int64 = || input::int64(Some(wanted));
        match key.as_str() {
            "address" => same(key, text, Some(found.address()))?,
            "type" => same(key, text.map(plain), Some(plain(found.server_type().name())))?,
            "setName" => same(key, text, found.set_name())?,
            "primary" => same(key, text, found.primary())?,
            "me" => same(key, text, found.me())?,
            "setVersion" => same(key, int64()?, found.set_version())?,
            "electionId" => same(key, input::oid(Some(wanted))?, found.election_id())?,
            "logicalSessionTimeoutMinutes" => same(key, int64()?, found.logical_session_timeout_minutes())?,
            "minWireVersion" => same(key, int32()?, found.min_wire_version())?,
            "maxWireVersion" => same(key, int32()?, found.max_wire_version())?,
            "topologyVersion" => same(key, input::topology_version(Some(wanted))?, found.topology_version())?,
            "hosts" => same(key, texts(wanted)?, found.hosts().collect())?,
            "passives" => same(key, texts(wanted)?, found.passives().collect())?,
            "arbiters" => same(key, texts(wanted)?, found.arbiters().collect())?,
            "error" => {
                let error = found.error().map(|error| error.to_string()).unwrap_or_default();
                let part = text.unwrap_or("\0");
                if !error.contains(part) {
                    return Err(format!("error is {error:?}, which should contain {part:?}"));
                }
            }
            "pool" => {
                only_keys(wanted, &["generation"])?;
                same("pool.generation", wanted["generation"].as_u64(), generation)?;
            }
            _ => return Err(format!("the runner does not support {key}")),
        }
    }
    Ok(())
}

fn texts(value: &Value) -> Result<Vec<&str>, String> {
    let list = value.as_array().ok_or_else(|| format!("{value} is not a list"))?;
    list.iter().map(|text| text.as_str().ok_or_else(|| format!("{text} is not a string"))).collect()
}

/// PossiblePrimary is a kind of Unknown.
fn plain(server_type: &str) -> &str {
    if server_type == ServerType::PossiblePrimary.name() { ServerType::Unknown.name() } else { server_type }
}

fn same<T: PartialEq + core::fmt::Debug>(what: &str, wanted: T, found: T) -> Result<(), String> {
    if wanted == found { Ok(()) } else { Err(format!("{what} is {found:?}, not {wanted:?}")) }
}
