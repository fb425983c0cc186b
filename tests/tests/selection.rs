//! The official tests of server selection: suitable servers, the latency window, the choice in it,
//! round-trip times, staleness.
//!
//! A case per file, named after its folders and itself: `server_selection/Sharded/read/Nearest`,
//! `max-staleness/Single/..`.

extern crate alloc;

use alloc::collections::BTreeMap;
use core::time::Duration;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use poolhouse_core::ServerType;
use poolhouse_core::monitor::Rtt;
use poolhouse_core::selection::{Candidate, ReadMode, Selection};
use poolhouse_core::topology::TopologyType;
use poolhouse_tests::model::selection::{Deployment, Query, Seen, Server, selected, with_core};
use poolhouse_tests::spec;
use poolhouse_tests::suite::Suite;
use serde_json::Value;

type Run = fn(&Value) -> Result<(), String>;

fn main() -> ExitCode {
    let folders: [(&str, &str, Run); 4] = [
        ("server_selection", "server-selection/tests/server_selection", suitable_servers),
        ("in_window", "server-selection/tests/in_window", in_window),
        ("rtt", "server-selection/tests/rtt", rtt),
        ("max-staleness", "max-staleness/tests", suitable_servers),
    ];
    let mut suite = Suite::new("selection");
    for (name, folder, run) in folders {
        let files = match spec::files(folder) {
            Ok(files) => files,
            Err(reason) => {
                suite = suite.missing(name, reason);
                continue;
            }
        };
        for (_, path) in files {
            let case = format!("{name}/{}", below(&path, folder));
            suite = suite.case(case, move || {
                let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
                let test = serde_json::from_str(&text).map_err(|error| error.to_string())?;
                run(&test)
            });
        }
    }
    suite.run()
}

/// The path below `folder`, without its ending.
fn below(path: &Path, folder: &str) -> String {
    let path = path.with_extension("").to_string_lossy().replace('\\', "/");
    match path.rsplit_once(&format!("{folder}/")) {
        Some((_, name)) => name.to_owned(),
        None => path,
    }
}

// Suitable servers and staleness.

fn suitable_servers(test: &Value) -> Result<(), String> {
    let deployment = deployment(&test["topology_description"])?;
    let query = query(test, &deployment)?;
    let expects_error = test["error"].as_bool().unwrap_or(false);
    with_core(&query, |criteria| {
        let selection = criteria.and_then(|criteria| Selection::new(&deployment, &criteria, &query.deprioritized));
        let model = selected(&deployment, &query);
        let selection = match selection {
            Err(error) if expects_error => {
                return if model.is_err() { Ok(()) } else { Err(format!("the model accepts the criteria: {error}")) };
            }
            Err(error) => return Err(format!("refused: {error}")),
            Ok(_) if expects_error => return Err("accepted, but it must be refused".to_owned()),
            Ok(selection) => selection,
        };
        let suitable = addresses(&deployment, selection.suitable());
        compare("suitable_servers", &suitable, expected(&test["suitable_servers"])?)?;
        let window = addresses(&deployment, selection.in_window());
        compare("in_latency_window", &window, expected(&test["in_latency_window"])?)?;
        let (model, _) = model.map_err(|_| "the model rejects the criteria".to_owned())?;
        compare(
            "model",
            &suitable,
            Some(sorted(model.into_iter().map(|place| deployment.servers[place].address.clone()))),
        )?;
        for turn in 0..64_u32 {
            let chosen = selection.choose(|_| 0, turn.wrapping_mul(0x9e37_79b9));
            let address = chosen.map(|server| deployment.servers[server.place()].address.clone());
            match address {
                Some(address) if window.contains(&address) => {}
                None if window.is_empty() => {}
                other => return Err(format!("chose {other:?} of {window:?}")),
            }
        }
        Ok(())
    })
}

fn addresses<'a>(deployment: &Deployment, servers: impl Iterator<Item = Seen<'a>>) -> Vec<String> {
    sorted(servers.map(|server| deployment.servers[server.id()].address.clone()))
}

fn sorted(addresses: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = addresses.collect();
    all.sort();
    all
}

fn compare(what: &str, found: &[String], expected: Option<Vec<String>>) -> Result<(), String> {
    match expected {
        Some(expected) if expected == found => Ok(()),
        Some(expected) => Err(format!("{what}: {found:?} instead of {expected:?}")),
        None => Err(format!("the file has no {what}")),
    }
}

fn expected(servers: &Value) -> Result<Option<Vec<String>>, String> {
    let Some(servers) = servers.as_array() else { return Ok(None) };
    let addresses: Result<Vec<String>, String> = servers.iter().map(|server| text(&server["address"])).collect();
    addresses.map(|addresses| Some(sorted(addresses.into_iter())))
}

fn query(test: &Value, deployment: &Deployment) -> Result<Query, String> {
    let write = match test["operation"].as_str() {
        None | Some("read") => false,
        Some("write") => true,
        Some(other) => return Err(format!("unknown operation {other}")),
    };
    let preference = &test["read_preference"];
    let mode = match preference["mode"].as_str() {
        None => ReadMode::Primary,
        Some(name) => mode(name)?,
    };
    let sets = preference["tag_sets"].as_array().map(Vec::as_slice).unwrap_or_default();
    let seconds = optional(&preference["maxStalenessSeconds"], "maxStalenessSeconds", integer)?;
    let max_staleness_seconds = match seconds.filter(|seconds| *seconds != -1) {
        Some(seconds) => Some(u64::try_from(seconds).map_err(|_| format!("maxStalenessSeconds {seconds}"))?),
        None => None,
    };
    let heartbeat_ms =
        optional(&test["heartbeatFrequencyMS"], "heartbeatFrequencyMS", Value::as_u64)?.unwrap_or(10_000);
    let mut deprioritized = Vec::new();
    for server in test["deprioritized_servers"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let address = text(&server["address"])?;
        deprioritized.extend(deployment.servers.iter().position(|server| server.address == address));
    }
    let tag_sets = sets.iter().map(tags).collect::<Result<_, _>>()?;
    Ok(Query { write, mode, tag_sets, max_staleness_seconds, heartbeat_ms, threshold_ms: 15, deprioritized })
}

/// The mode with a name that begins with a capital.
fn mode(name: &str) -> Result<ReadMode, String> {
    let found = ReadMode::ALL.into_iter().find(|mode| mode.name().eq_ignore_ascii_case(name));
    found.ok_or_else(|| format!("unknown mode {name}"))
}

fn deployment(description: &Value) -> Result<Deployment, String> {
    let name = text(&description["type"])?;
    let types = [
        TopologyType::Unknown,
        TopologyType::Single,
        TopologyType::ReplicaSetNoPrimary,
        TopologyType::ReplicaSetWithPrimary,
        TopologyType::Sharded,
        TopologyType::LoadBalanced,
    ];
    let topology_type = types.into_iter().find(|it| it.name() == name).ok_or(format!("unknown type {name}"))?;
    let servers = description["servers"].as_array().ok_or("no servers")?;
    let servers = servers.iter().map(server).collect::<Result<_, _>>()?;
    Ok(Deployment { topology_type, servers })
}

fn server(value: &Value) -> Result<Server, String> {
    let name = text(&value["type"])?;
    let types = [
        ServerType::Unknown,
        ServerType::PossiblePrimary,
        ServerType::Standalone,
        ServerType::Mongos,
        ServerType::RsPrimary,
        ServerType::RsSecondary,
        ServerType::RsArbiter,
        ServerType::RsOther,
        ServerType::RsGhost,
        ServerType::LoadBalancer,
    ];
    let server_type = types.into_iter().find(|it| it.name() == name).ok_or(format!("unknown type {name}"))?;
    let rtt_nanos = value["avg_rtt_ms"].as_f64().map(nanos);
    let milliseconds = |value: &Value| value.as_f64().or(integer(value).map(|ms| ms as f64));
    let update_nanos = optional(&value["lastUpdateTime"], "lastUpdateTime", milliseconds)?.map_or(0, nanos);
    Ok(Server {
        address: text(&value["address"])?,
        server_type,
        rtt_nanos,
        tags: tags(&value["tags"])?,
        update_nanos,
        write_ms: integer(&value["lastWrite"]["lastWriteDate"]),
    })
}

fn tags(value: &Value) -> Result<BTreeMap<String, String>, String> {
    let Some(tags) = value.as_object() else { return Ok(BTreeMap::new()) };
    tags.iter().map(|(name, value)| Ok((name.clone(), text(value)?))).collect()
}

// The choice in the window.

/// Seeds that each file is run with.
const SEEDS: u64 = 50;

fn in_window(test: &Value) -> Result<(), String> {
    let deployment = deployment(&test["topology_description"])?;
    let mut loads = BTreeMap::new();
    for server in test["mocked_topology_state"].as_array().ok_or("no mocked_topology_state")? {
        let count = server["operation_count"].as_u64().and_then(|count| u32::try_from(count).ok());
        loads.insert(text(&server["address"])?, count.ok_or("no operation_count")?);
    }
    let iterations = test["iterations"].as_u64().ok_or("no iterations")?;
    let tolerance = test["outcome"]["tolerance"].as_f64().ok_or("no tolerance")?;
    let expected = test["outcome"]["expected_frequencies"].as_object().ok_or("no expected_frequencies")?;
    let query = Query {
        write: false,
        mode: ReadMode::Nearest,
        tag_sets: Vec::new(),
        max_staleness_seconds: None,
        heartbeat_ms: 10_000,
        threshold_ms: 15,
        deprioritized: Vec::new(),
    };
    with_core(&query, |criteria| {
        let criteria = criteria.map_err(|error| error.to_string())?;
        let selection = Selection::new(&deployment, &criteria, &[]).map_err(|error| error.to_string())?;
        for seed in 0..SEEDS {
            let mut state = seed;
            let mut counts: BTreeMap<String, u64> = BTreeMap::new();
            for _ in 0..iterations {
                let load = |place: usize| loads.get(&deployment.servers[place].address).copied().unwrap_or(0);
                let chosen = selection.choose(load, random(&mut state)).ok_or("no server was chosen")?;
                *counts.entry(deployment.servers[chosen.place()].address.clone()).or_default() += 1;
            }
            for (address, expected) in expected {
                let expected = expected.as_f64().ok_or("a bad frequency")?;
                let found = counts.remove(address).unwrap_or(0) as f64 / iterations as f64;
                let exact = expected == 0.0 || expected == 1.0;
                if (found - expected).abs() > if exact { 0.0 } else { tolerance } {
                    return Err(format!("seed {seed}: {address} was chosen with frequency {found}, not {expected}"));
                }
            }
            if let Some((address, count)) = counts.pop_first() {
                return Err(format!("seed {seed}: {address} was chosen {count} times, but must not be chosen"));
            }
        }
        Ok(())
    })
}

/// The upper half of splitmix64.
fn random(state: &mut u64) -> u32 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut value = *state;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    u32::try_from((value ^ (value >> 31)) >> 32).unwrap_or(0)
}

// Round-trip times (MON-47).

fn rtt(test: &Value) -> Result<(), String> {
    let sample = test["new_rtt_ms"].as_f64().ok_or("no new_rtt_ms")?;
    let expected = test["new_avg_rtt"].as_f64().ok_or("no new_avg_rtt")?;
    let mut rtt = Rtt::new();
    let average = &test["avg_rtt_ms"];
    if average.as_str() != Some("NULL") {
        if let Some(average) = optional(average, "avg_rtt_ms", Value::as_f64)? {
            rtt.add_sample(Duration::from_nanos(nanos(average)));
        }
    }
    rtt.add_sample(Duration::from_nanos(nanos(sample)));
    let average = rtt.average_femtos().ok_or("no average")? as f64 / 1e12;
    if (average - expected).abs() <= 1e-9 { Ok(()) } else { Err(format!("expected {expected}, found {average}")) }
}

// Values.

fn text(value: &Value) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("{value} is not a string"))
}

/// Converts a value that may be absent.
fn optional<T>(value: &Value, name: &str, read: impl Fn(&Value) -> Option<T>) -> Result<Option<T>, String> {
    if value.is_null() { Ok(None) } else { read(value).map(Some).ok_or_else(|| format!("{name} is {value}")) }
}

/// A number in JSON or extended JSON.
fn integer(value: &Value) -> Option<i64> {
    let extended = ["$numberLong", "$numberInt"].iter().find_map(|key| value[key].as_str()?.parse().ok());
    value.as_i64().or(extended)
}

/// Whole nanoseconds of a non-negative number of milliseconds.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded, and far below the limit")]
fn nanos(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}
