//! A topology and a recorder of its events, for the tests of each part.

mod direct;
mod errors;
mod events;
mod hostile;
mod members;
pub(crate) mod scarce;
mod seeds;
mod table;
mod update;

use super::*;
use crate::replies::{Lists, texts};
use crate::{HostAddress, ObjectId, Observer};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

type Hello<'a> = HelloReply<'a>;

/// A member of the set "rs" that is neither primary nor secondary.
fn member<'a>(hosts: &'a [&'a str]) -> Hello<'a> {
    HelloReply { set_name: Some("rs"), max_wire_version: 21, hosts: texts(hosts), ..HelloReply::OK }
}

fn primary<'a>(hosts: &'a [&'a str]) -> Hello<'a> {
    HelloReply { is_writable_primary: true, ..member(hosts) }
}

fn secondary<'a>(hosts: &'a [&'a str]) -> Hello<'a> {
    HelloReply { secondary: true, ..member(hosts) }
}

fn standalone<'a>() -> Hello<'a> {
    HelloReply { max_wire_version: 21, ..HelloReply::OK }
}

fn mongos<'a>() -> Hello<'a> {
    HelloReply { is_db_grid: true, ..standalone() }
}

fn elected<'a>(hosts: &'a [&'a str], election: u8, version: i64) -> Hello<'a> {
    HelloReply { election_id: Some(ObjectId([election; 12])), set_version: Some(version), ..primary(hosts) }
}

/// Events as lines.
#[derive(Default)]
struct Lines(Vec<String>);

impl Observer<SdamEvent<'_>> for Lines {
    fn on_event(&mut self, _now: Instant, event: &SdamEvent<'_>) {
        self.0.push(match event {
            SdamEvent::TopologyDescriptionChanged { previous, new, .. } => format!("{previous} -> {new}"),
            SdamEvent::ServerDescriptionChanged { address, previous, new, .. } => {
                format!("{address}: {} -> {}", previous.server_type(), new.server_type())
            }
            SdamEvent::ServerOpening { address, .. } | SdamEvent::ServerClosed { address, .. } => {
                format!("{} {address}", event.name())
            }
            SdamEvent::TopologyOpening { .. } | SdamEvent::TopologyClosed { .. } | SdamEvent::NoServers { .. } => {
                event.name().to_string()
            }
        });
    }
}

/// A topology with its host.
struct Net<M: Memory> {
    topology: Topology<M>,
    lines: Lines,
    now: Instant,
}

fn open(options: TopologyOptions<'_>) -> Net<OnHeap> {
    open_in(options)
}

fn open_in<M: Memory>(options: TopologyOptions<'_>) -> Net<M> {
    let mut lines = Lines::default();
    let now = Instant::from_nanos(1_000);
    let topology = Topology::new(now, TopologyId::new(7), options.validate().unwrap(), &mut lines).unwrap();
    Net { topology, lines, now }
}

/// Without pending events and actions.
fn ready(seeds: &[&str]) -> Net<OnHeap> {
    let mut net = open(TopologyOptions { seeds, ..TopologyOptions::default() });
    net.drain();
    net
}

impl<M: Memory> Net<M> {
    fn at(&self, address: &str) -> ServerId {
        self.topology.find(address).unwrap()
    }

    fn see(&self, address: &str) -> ServerDescription<'_> {
        self.topology.server(self.at(address)).unwrap()
    }

    fn hello(&mut self, address: &str, hello: &Hello<'_>) -> bool {
        let server = self.at(address);
        self.hello_of(server, hello)
    }

    fn hello_of(&mut self, server: ServerId, hello: &Hello<'_>) -> bool {
        let times = RoundTrip { average: Duration::from_millis(5), minimum: Duration::from_millis(4) };
        self.tick();
        let known = self.topology.handle_hello(self.now, server, hello, Some(times), &mut self.lines);
        self.topology.assert_invariants();
        known
    }

    fn fail(&mut self, address: &str, cause: Cause) {
        let server = self.at(address);
        self.tick();
        self.topology.handle_failed(self.now, server, cause, &mut self.lines);
        self.topology.assert_invariants();
    }

    fn app(&mut self, address: &str, error: &AppError<'_>) -> Verdict {
        let server = self.at(address);
        self.tick();
        let verdict = self.topology.handle_app_error(self.now, server, error, &mut self.lines);
        self.topology.assert_invariants();
        verdict
    }

    fn tick(&mut self) {
        self.now = self.now.saturating_add(Duration::from_millis(1));
    }

    fn actions(&mut self) -> Vec<TopologyAction> {
        let actions = core::iter::from_fn(|| self.topology.poll_action()).collect();
        self.topology.assert_invariants();
        actions
    }

    fn lines(&mut self) -> Vec<String> {
        core::mem::take(&mut self.lines.0)
    }

    fn drain(&mut self) {
        self.actions();
        self.lines();
    }

    fn types(&self) -> Vec<(String, ServerType)> {
        self.topology.servers().map(|server| (server.address().to_string(), server.server_type())).collect()
    }

    fn topology_type(&self) -> TopologyType {
        self.topology.description().topology_type()
    }
}
