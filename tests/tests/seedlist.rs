//! The official tests of DNS seed lists: a case per file, with the records passed directly and over
//! a name server on loopback. Set `POOLHOUSE_SPEC_DIR` and `POOLHOUSE_DNS_RECORDS`.

extern crate alloc;

use alloc::collections::BTreeSet;
use core::error::Error;
use core::time::Duration;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use poolhouse_smol::{DnsResolver, Smol};
use poolhouse_tests::dns::{DnsServer, Fault, Records};
use poolhouse_tests::sdam;
use poolhouse_tests::spec;
use poolhouse_tests::suite::Suite;
use poolhouse_uri::dns::{ResolverConfig, SeedlistError, SrvAnswer, SrvQuestion, SrvRecord};
use poolhouse_uri::{ConnectionString, OptionValue};
use serde_json::{Map, Value, json};

type Failure = Box<dyn Error + Send + Sync>;

/// The reason why no seed list resulted.
enum NoSeeds {
    /// The string was refused, as some files expect.
    Refused(Failure),
    /// The test stopped earlier, which no file expects.
    Harness(Failure),
}

/// Finds the records of a string.
type Source = fn(&ConnectionString, &Records) -> Result<ConnectionString, NoSeeds>;

const FOLDER: &str = "initial-dns-seedlist-discovery/tests";
const SOURCES: [(&str, Source); 4] =
    [("rules", by_rules), ("udp", over_udp), ("tcp", over_tcp), ("forged", among_forgeries)];

fn main() -> ExitCode {
    let mut suite = Suite::new("seedlist");
    let records = Records::of_environment();
    for folder in ["replica-set", "load-balanced", "sharded"] {
        match (spec::files(&format!("{FOLDER}/{folder}")), &records) {
            (Err(reason), _) => suite = suite.missing(folder, reason),
            // The same for every folder, so no case runs.
            (Ok(_), Err(reason)) => suite = suite.missing(folder, reason),
            (Ok(files), Ok(records)) => {
                if folder == "replica-set" {
                    for (source_name, source) in SOURCES {
                        let name = format!("{source_name}/own/database_of_a_string_needs_no_credential");
                        suite = suite.case(name, move || database_without_credential(source));
                    }
                }
                for (name, path) in files {
                    for (source_name, source) in SOURCES {
                        let (path, records) = (path.clone(), records.clone());
                        let name = format!("{source_name}/{folder}/{name}");
                        suite = suite.case(name, move || run_file(&path, folder, &records, source));
                    }
                }
            }
        }
    }
    suite.run()
}

fn run_file(path: &Path, folder: &str, records: &Records, source: Source) -> Result<(), Failure> {
    run(&serde_json::from_slice(&fs::read(path)?)?, folder, records, source)
}

/// Our own case of a connection string with a database and without a credential, like the official
/// `uri-with-admin-database`.
fn database_without_credential(source: Source) -> Result<(), Failure> {
    let mut records = Records { ttl: 60, ..Records::default() };
    records.set_srv("_mongodb._tcp.o15.example.com", &["db1.example.com:27017"]);
    let file = json!({
        "uri": "mongodb+srv://o15.example.com/adminDB?replicaSet=repl0",
        "seeds": ["db1.example.com:27017"],
        "options": { "replicaSet": "repl0", "ssl": true },
        "parsed_options": { "auth_database": "adminDB" },
    });
    run(&file, "replica-set", &records, source)
}

fn run(file: &Value, folder: &str, records: &Records, source: Source) -> Result<(), Failure> {
    let uri = file["uri"].as_str().ok_or("no uri")?;
    let parsed = ConnectionString::parse(uri).map_err(|error| NoSeeds::Refused(error.into()));
    let (resolved, uri) = match (parsed.and_then(|uri| Ok((source(&uri, records)?, uri))), file["error"] == true) {
        (Err(NoSeeds::Harness(error)), _) | (Err(NoSeeds::Refused(error)), false) => return Err(error),
        (Err(NoSeeds::Refused(_)), true) => return Ok(()),
        (Ok((resolved, _)), true) => return Err(format!("accepted as {resolved}").into()),
        (Ok(found), false) => found,
    };
    let seeds: BTreeSet<&str> = resolved.seeds().collect();
    if let Some(wanted) = file["seeds"].as_array() {
        same("the seeds", &seeds, &wanted.iter().filter_map(Value::as_str).collect())?;
    }
    if let Some(wanted) = file["numSeeds"].as_u64() {
        same("the number of seeds", &u64::try_from(seeds.len())?, &wanted)?;
    }
    for (name, wanted) in file["options"].as_object().unwrap_or(&Map::new()) {
        same(name, &option(name, &resolved, &uri).ok_or_else(|| format!("{name} is missing"))?, wanted)?;
    }
    for (name, wanted) in file["parsed_options"].as_object().unwrap_or(&Map::new()) {
        let credential = resolved.credential();
        let found = match name.as_str() {
            "user" => credential.and_then(|credential| credential.username.as_deref()),
            "password" => credential.and_then(|credential| Some(credential.password.as_ref()?.expose())),
            // All these names mean the database that follows the hosts. A string without a
            // credential has that database too.
            "db" | "defaultDatabase" | "auth_database" => resolved.database(),
            other => return Err(format!("unknown key {other}").into()),
        };
        same(name, &found, &wanted.as_str())?;
    }
    discovers(file, folder, &resolved)
}

/// The value of an option; those of the lookup itself are only in the string.
fn option(name: &str, resolved: &ConnectionString, uri: &ConnectionString) -> Option<Value> {
    if name == "ssl" {
        return Some(resolved.tls().into());
    }
    let find = |uri: &ConnectionString| {
        let (_, value) = uri.options().iter().find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        if let OptionValue::Bool(value) = value {
            Some(value.into())
        } else if let OptionValue::Number(value) = value {
            Some(value.into())
        } else if let OptionValue::Text(text) = value {
            Some(text.into())
        } else {
            Some(format!("{value:?}").into())
        }
    };
    find(resolved).or_else(|| find(uri))
}

/// The servers that a client knows once each seed has answered: as a set of three, as a router, or
/// not at all.
fn discovers(file: &Value, folder: &str, resolved: &ConnectionString) -> Result<(), Failure> {
    let seeds: Vec<String> = resolved.seeds().map(str::to_owned).collect();
    let hosts = match (file["hosts"].as_array(), file["numHosts"].as_u64()) {
        (Some(hosts), _) => hosts.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        (None, Some(count)) => {
            same("the number of hosts", &u64::try_from(seeds.len())?, &count)?;
            seeds.clone()
        }
        (None, None) => return Ok(()),
    };
    let wire = json!({ "ok": 1, "helloOk": true, "minWireVersion": 0, "maxWireVersion": 21 });
    let (topology, server, hello) = match folder {
        "replica-set" => {
            let set = json!({ "isWritablePrimary": true, "setName": "repl0", "setVersion": 1, "me": "localhost:27017",
                "hosts": ["localhost:27017", "localhost:27018", "localhost:27019"] });
            ("ReplicaSetNoPrimary", "Unknown", merged(&wire, &set))
        }
        "sharded" => {
            let router = json!({ "isWritablePrimary": true, "msg": "isdbgrid" });
            ("Sharded", "Mongos", merged(&wire, &router))
        }
        _ => ("LoadBalanced", "LoadBalancer", Value::Null),
    };
    let responses: Vec<Value> = if hello.is_null() {
        Vec::new()
    } else {
        // A set answers once: afterwards its members are known by other names.
        let count = if folder == "replica-set" { 1 } else { seeds.len() };
        seeds.iter().take(count).map(|seed| json!([seed, hello])).collect()
    };
    let servers: Map<String, Value> = hosts.iter().map(|host| (host.clone(), json!({ "type": server }))).collect();
    let options = resolved.options();
    let mut uri = format!("mongodb://{}/?directConnection=false", seeds.join(","));
    if let Some(set) = &options.replica_set {
        uri += &format!("&replicaSet={set}");
    }
    if resolved.load_balanced() {
        uri += "&loadBalanced=true";
    }
    let outcome = json!({ "topologyType": topology, "servers": servers });
    Ok(sdam::run(&json!({ "uri": uri, "phases": [{ "responses": responses, "outcome": outcome }] }))?)
}

fn merged(first: &Value, second: &Value) -> Value {
    let both = [first, second].into_iter().filter_map(Value::as_object).flatten();
    Value::Object(both.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// The question of a string. A string that was accepted and has no question is in the wrong file.
fn question(uri: &ConnectionString) -> Result<SrvQuestion, NoSeeds> {
    SrvQuestion::of(uri).ok_or_else(|| NoSeeds::Harness("not a connection string with SRV lookup".into()))
}

/// The records are passed to the rules directly.
fn by_rules(uri: &ConnectionString, records: &Records) -> Result<ConnectionString, NoSeeds> {
    let question = question(uri)?;
    let hosts = records.srv.get(&question.srv_name()).cloned().unwrap_or_default();
    let answer = SrvAnswer {
        records: hosts.into_iter().map(|(target, port)| SrvRecord::new(target, port)).collect(),
        ttl: Duration::from_secs(60),
    };
    let texts = records.txt.get(question.txt_name()).cloned().unwrap_or_default();
    let texts: Vec<String> = texts.iter().map(|strings| strings.concat()).collect();
    question.resolve(uri, &answer, &texts, 0x1234_5678_9ABC_DEF0).map_err(|error| NoSeeds::Refused(error.into()))
}

fn over_udp(uri: &ConnectionString, records: &Records) -> Result<ConnectionString, NoSeeds> {
    over_server(uri, records, Fault::None)
}

fn over_tcp(uri: &ConnectionString, records: &Records) -> Result<ConnectionString, NoSeeds> {
    over_server(uri, records, Fault::Truncate)
}

fn among_forgeries(uri: &ConnectionString, records: &Records) -> Result<ConnectionString, NoSeeds> {
    over_server(uri, records, Fault::Forge)
}

fn over_server(uri: &ConnectionString, records: &Records, fault: Fault) -> Result<ConnectionString, NoSeeds> {
    let server = DnsServer::start(records.clone()).map_err(|error| NoSeeds::Harness(error.into()))?;
    server.set_fault(fault);
    let resolver = DnsResolver::with_config(Smol, ResolverConfig::new(vec![server.address()]));
    let question = question(uri)?;
    let result = smol::block_on(question.look_up(uri, &resolver, 0x0F1E_2D3C_4B5A_6978));
    let queries = server.queries();
    if queries.is_empty() || queries.iter().any(|query| query.over_tcp) != (fault == Fault::Truncate) {
        return Err(NoSeeds::Harness(format!("unexpected queries: {queries:?}").into()));
    }
    match result {
        Ok((resolved, _)) => Ok(resolved),
        // The name server answers every question, so a failed exchange is no statement about the
        // records.
        Err(SeedlistError::Srv { error, .. } | SeedlistError::Txt { error, .. }) if !error.is_not_found() => {
            Err(NoSeeds::Harness(error.into()))
        }
        Err(error) => Err(NoSeeds::Refused(error.into())),
    }
}

fn same<T: PartialEq + core::fmt::Debug>(what: &str, found: &T, wanted: &T) -> Result<(), Failure> {
    if found == wanted { Ok(()) } else { Err(format!("{what}: {found:?}, not {wanted:?}").into()) }
}
