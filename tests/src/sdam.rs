//! Runs the official tests of server discovery and monitoring, without a server.
//!
//! One case per file, on the growable and on a fixed topology, and on that of a direct connection. Pools are counters of generations.
//! Replies are passed to the entry point that monitors use; events are compared in full.

mod expect;
mod input;
mod uri;

use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

use poolhouse_core::pool::Clear;
use poolhouse_core::topology::{
    Direct, Fixed, HandshakePhase, Memory, OnHeap, OwnedSdamEvent, PoolCommand, RoundTrip, SdamEvent, ServerError,
    Topology, TopologyAction, TopologyId, TopologyOptions,
};
use poolhouse_core::{Cause, Instant, Observer, ServerId};
use serde_json::Value;

use crate::spec;
use crate::suite::Suite;
use uri::Uri;

/// The folder of the official files.
const FOLDER: &str = "server-discovery-and-monitoring/tests";
/// The folders with files of this format.
const FOLDERS: [&str; 6] = ["rs", "single", "sharded", "errors", "load-balanced", "monitoring"];
/// Any id: files contain "42".
const TOPOLOGY: TopologyId = TopologyId::new(42);

/// Returns the official files as cases, named `folder/file`.
pub fn suite() -> Suite {
    FOLDERS.into_iter().fold(Suite::new("sdam"), |suite, folder| match spec::files(&format!("{FOLDER}/{folder}")) {
        Ok(files) => files
            .into_iter()
            .fold(suite, |suite, (name, path)| suite.case(format!("{folder}/{name}"), move || run_file(&path))),
        Err(reason) => suite.missing(folder, reason),
    })
}

/// Runs one file on all kinds of memory.
///
/// # Errors
/// The difference from the file, or the reason why the file cannot be read.
pub fn run_file(path: &Path) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let file = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    run(&file)
}

/// Runs one test on all kinds of memory.
///
/// # Errors
/// The difference from the test, or its unsupported part.
pub fn run(file: &Value) -> Result<(), String> {
    let on_heap = Client::<OnHeap>::run(file).map_err(|error| format!("on the heap: {error}"))?;
    if on_heap == Fit::Beyond {
        return Err("on the heap: a reply did not fit".to_owned());
    }
    // Tests that are too large for the fixed memory are not run on it.
    let in_place = Client::<Fixed<12, 24, 48, 1024>>::run(file).map_err(|error| format!("in place: {error}"))?;
    let counter = if in_place == Fit::Within { &WITHIN } else { &BEYOND };
    counter.fetch_add(1, Ordering::Relaxed);
    let direct = Client::<Direct<256>>::run(file).map_err(|error| format!("direct: {error}"))?;
    let is_direct = uri_of(file)?.direct_connection;
    if (direct == Fit::Within) != is_direct {
        return Err(format!("direct: a test with directConnection {is_direct} is {direct:?}"));
    }
    DIRECT.fetch_add(u32::from(is_direct), Ordering::Relaxed);
    Ok(())
}

fn uri_of(file: &Value) -> Result<Uri, String> {
    Uri::parse(file.get("uri").and_then(Value::as_str).ok_or("the test has no uri")?)
}

static WITHIN: AtomicU32 = AtomicU32::new(0);
static BEYOND: AtomicU32 = AtomicU32::new(0);
static DIRECT: AtomicU32 = AtomicU32::new(0);

/// Returns how many of the tests that this process ran fit into the fixed memory, how many were too large
/// for it, and how many have a direct connection and passed in the memory for one.
#[must_use]
pub fn in_place() -> (u32, u32, u32) {
    (WITHIN.load(Ordering::Relaxed), BEYOND.load(Ordering::Relaxed), DIRECT.load(Ordering::Relaxed))
}

/// Whether a test fits into its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Within,
    Beyond,
}

/// Records events.
#[derive(Debug, Default)]
struct Recorder(Vec<OwnedSdamEvent>);

impl Observer<SdamEvent<'_>> for Recorder {
    fn on_event(&mut self, _now: Instant, event: &SdamEvent<'_>) {
        self.0.push(event.to_owned());
    }
}

/// The state of a pool that tests can observe.
#[derive(Debug, Default)]
struct MockPool {
    generation: u64,
}

/// A topology with the test's mocks.
struct Client<M: Memory> {
    topology: Topology<M>,
    pools: HashMap<ServerId, MockPool>,
    /// The last id of each address, kept after the server is removed, because its errors may be
    /// reported later.
    ids: HashMap<String, ServerId>,
    events: Recorder,
    now: Instant,
}

impl<M: Memory> Client<M> {
    fn run(file: &Value) -> Result<Fit, String> {
        let uri = uri_of(file)?;
        let seeds: Vec<&str> = uri.hosts.iter().map(String::as_str).collect();
        let options = TopologyOptions {
            seeds: &seeds,
            replica_set: uri.replica_set.as_deref(),
            direct_connection: uri.direct_connection,
            load_balanced: uri.load_balanced,
        };
        let config = options.validate().map_err(|error| error.to_string())?;
        let now = Instant::ORIGIN;
        let mut events = Recorder::default();
        let Ok(topology) = Topology::new(now, TOPOLOGY, config, &mut events) else { return Ok(Fit::Beyond) };
        let mut client = Self { topology, pools: HashMap::new(), ids: HashMap::new(), events, now };
        client.settle()?;
        let phases = file.get("phases").and_then(Value::as_array).ok_or("the test has no phases")?;
        for (number, phase) in phases.iter().enumerate() {
            let described = phase.get("description").and_then(Value::as_str).unwrap_or("no description");
            let context = |error| format!("phase {number} ({described}): {error}");
            if client.phase(phase).map_err(context)? == Fit::Beyond {
                return Ok(Fit::Beyond);
            }
        }
        client.close()?;
        Ok(Fit::Within)
    }

    fn phase(&mut self, phase: &Value) -> Result<Fit, String> {
        expect::only_keys(phase, &["description", "responses", "applicationErrors", "outcome"])?;
        for response in phase.get("responses").and_then(Value::as_array).into_iter().flatten() {
            self.respond(response)?;
        }
        for error in phase.get("applicationErrors").and_then(Value::as_array).into_iter().flatten() {
            self.app_error(error)?;
        }
        let beyond = |error| matches!(error, ServerError::Beyond { .. });
        if self.topology.servers().any(|server| server.error().is_some_and(beyond)) {
            return Ok(Fit::Beyond);
        }
        let outcome = phase.get("outcome").ok_or("the phase has no outcome")?;
        expect::outcome(outcome, self.topology.description(), |server| {
            self.pools.get(&server).map(|pool| pool.generation)
        })?;
        if let Some(events) = outcome.get("events") {
            expect::events(events, TOPOLOGY, &self.events.0)?;
        }
        self.events.0.clear();
        Ok(Fit::Within)
    }

    /// Applies one `[address, reply]`.
    fn respond(&mut self, response: &Value) -> Result<(), String> {
        let address = response.get(0).and_then(Value::as_str).ok_or("a response has no address")?;
        let reply = response.get(1).filter(|reply| reply.is_object()).ok_or("a response has no reply")?;
        self.now = self.now.saturating_add(core::time::Duration::from_millis(10));
        let Some(server) = self.server(address) else { return Ok(()) };
        if reply.as_object().is_some_and(serde_json::Map::is_empty) {
            self.topology.handle_failed(self.now, server, Cause::Network, &mut self.events);
        } else if input::is_ok(reply) {
            let lists = input::lists(reply);
            let hello = input::hello(reply, &lists)?;
            let round_trip = RoundTrip { average: core::time::Duration::from_millis(5), ..RoundTrip::default() };
            self.topology.handle_hello(self.now, server, &hello, Some(round_trip), &mut self.events);
        } else {
            let code = input::int32(reply.get("code"))?.unwrap_or(0);
            self.topology.handle_failed(self.now, server, Cause::Command { code }, &mut self.events);
        }
        self.settle()
    }

    /// Applies one application error.
    fn app_error(&mut self, error: &Value) -> Result<(), String> {
        expect::only_keys(error, &["address", "generation", "maxWireVersion", "when", "type", "response"])?;
        let address = error.get("address").and_then(Value::as_str).ok_or("an error has no address")?;
        let Some(server) = self.server(address) else { return Ok(()) };
        let pool_generation = self.pools.get(&server).map_or(0, |pool| pool.generation);
        let generation = match error.get("generation") {
            Some(generation) => generation.as_u64().ok_or("a generation is not a number")?,
            None => pool_generation,
        };
        let phase = match error.get("when").and_then(Value::as_str) {
            Some("beforeHandshakeCompletes") => HandshakePhase::Before,
            Some("afterHandshakeCompletes") => HandshakePhase::After,
            other => return Err(format!("unknown value of when: {other:?}")),
        };
        let error = input::app_error(error, phase, generation, pool_generation)?;
        self.now = self.now.saturating_add(core::time::Duration::from_millis(10));
        let verdict = self.topology.handle_app_error(self.now, server, &error, &mut self.events);
        if let (Some(Clear::All { .. }), Some(pool)) = (verdict.clear, self.pools.get_mut(&server)) {
            pool.generation += 1;
        }
        self.settle()
    }

    /// Executes the pending effects of the topology.
    fn settle(&mut self) -> Result<(), String> {
        while let Some(action) = self.topology.poll_action() {
            match action {
                TopologyAction::ServerAdded(server) => {
                    let address = self.topology.address(server).ok_or("a new server has no address")?;
                    self.ids.insert(address.to_owned(), server);
                    self.pools.insert(server, MockPool::default());
                }
                TopologyAction::ServerRemoved(server) => {
                    self.pools.remove(&server).ok_or("a server was removed that had not been added")?;
                }
                TopologyAction::Pool(server, PoolCommand::Clear { .. }) => {
                    self.pools.get_mut(&server).ok_or("a command for an unknown pool")?.generation += 1;
                }
                TopologyAction::Pool(server, PoolCommand::Ready) => {
                    self.pools.get(&server).ok_or("a command for an unknown pool")?;
                }
                TopologyAction::CancelCheck(_) | TopologyAction::RequestCheck(_) | TopologyAction::WakeSelectors => {}
            }
        }
        self.topology.assert_invariants();
        Ok(())
    }

    /// Closes the topology, and checks its final events.
    fn close(&mut self) -> Result<(), String> {
        self.events.0.clear();
        self.topology.close(self.now, &mut self.events);
        self.settle()?;
        let is_last = matches!(self.events.0.last(), Some(OwnedSdamEvent::TopologyClosed { .. }));
        if is_last && self.pools.is_empty() { Ok(()) } else { Err("the topology was not closed cleanly".to_owned()) }
    }

    /// Returns the current or last server at this address.
    fn server(&self, address: &str) -> Option<ServerId> {
        self.topology.find(address).or_else(|| self.ids.get(&address.to_lowercase()).copied())
    }
}
