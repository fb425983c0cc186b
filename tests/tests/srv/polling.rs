//! Polling SRV Records for mongos Discovery, "Prose Tests". On virtual time, over a name server on
//! loopback.

use alloc::collections::BTreeSet;
use core::time::Duration;

use futures_lite::future::block_on;
use poolhouse_core::Instant;
use poolhouse_core::topology::TopologyType;
use poolhouse_tests::dns::{BlockingResolver, DnsServer, Fault, Records};
use poolhouse_uri::ConnectionString;
use poolhouse_uri::dns::{Resolver, SrvPoll, SrvQuestion};

const HEARTBEAT: Duration = Duration::from_secs(10);
const NAME: &str = "_mongodb._tcp.test1.test.build.10gen.cc";
const A: &str = "localhost.test.build.10gen.cc:27017";
const B: &str = "localhost.test.build.10gen.cc:27018";
const C: &str = "localhost.test.build.10gen.cc:27019";
const D: &str = "localhost.test.build.10gen.cc:27020";
const FOREIGN: &str = "localhost.evil.10gen.cc:27017";

/// Test 1.
#[test]
fn new_record_is_added() {
    change(&[A, B, C]);
}

/// Test 2.
#[test]
fn existing_record_is_removed() {
    change(&[A]);
}

/// Test 3.
#[test]
fn existing_record_is_replaced() {
    change(&[A, C]);
}

/// Test 4.
#[test]
fn all_records_are_replaced_by_one() {
    change(&[C]);
}

/// Test 5.
#[test]
fn all_records_are_replaced_by_two() {
    change(&[C, D]);
}

/// Test 6.
#[test]
fn lookup_without_answer_changes_nothing() {
    unchanged(Some(Fault::Silent), &[C]);
}

/// Test 7.
#[test]
fn lookup_that_fails_changes_nothing() {
    unchanged(Some(Fault::Refuse(2)), &[C]);
}

/// Test 7.
#[test]
fn answer_without_records_changes_nothing() {
    unchanged(None, &[]);
}

/// Test 7.
#[test]
fn answer_with_foreign_records_only_changes_nothing() {
    unchanged(None, &[FOREIGN]);
}

/// Test 8.
#[test]
fn load_balancer_is_not_polled() {
    stops(TopologyType::LoadBalanced);
}

/// Test 8.
#[test]
fn replica_set_is_not_polled() {
    stops(TopologyType::ReplicaSetNoPrimary);
}

/// Test 9.
#[test]
fn all_records_are_taken_without_srv_max_hosts() {
    limited("?srvMaxHosts=0", &[C, D], 2);
}

/// Test 10.
#[test]
fn all_records_are_taken_up_to_srv_max_hosts() {
    limited("?srvMaxHosts=2", &[C, D], 2);
}

/// Test 11.
#[test]
fn new_records_are_chosen_up_to_srv_max_hosts() {
    limited("?srvMaxHosts=2", &[A, C, D], 2);
}

/// The parts of a client that polling uses: its hosts, and its clock.
struct Client {
    server: DnsServer,
    resolver: BlockingResolver,
    poll: SrvPoll,
    hosts: Vec<String>,
    now: Instant,
}

impl Client {
    /// Starts with the hosts A and B.
    fn start(options: &str) -> Self {
        Self::of(NAME, options)
    }

    fn of(name: &str, options: &str) -> Self {
        let mut records = Records { ttl: 30, ..Records::default() };
        records.set_srv(name, &[A, B]);
        let server = DnsServer::start(records).expect("a port");
        let mut resolver = BlockingResolver::of(server.address());
        resolver.config.attempts = 1;
        let uri = ConnectionString::parse(&format!("mongodb+srv://test1.test.build.10gen.cc/{options}"));
        let uri = uri.expect("a string");
        let question = SrvQuestion::of(&uri).expect("a connection string with SRV lookup");
        let (uri, answer) = block_on(question.look_up(&uri, &resolver, 1)).expect("two hosts");
        let now = Instant::ORIGIN;
        let mut poll = SrvPoll::new(now, question, answer.ttl, HEARTBEAT);
        poll.handle_topology(TopologyType::Sharded);
        Self { server, resolver, poll, hosts: uri.seeds().map(str::to_owned).collect(), now }
    }

    /// Advances the time until the next lookup, and performs it. Returns the time that passed, in
    /// seconds.
    fn poll(&mut self, entropy: u64) -> u64 {
        let due = self.poll.poll_timeout().expect("it continues");
        let waited = due.saturating_since(self.now).as_secs();
        self.now = due;
        let name = self.poll.poll_question(due).expect("it is due").srv_name();
        let answer = block_on(self.resolver.lookup_srv(&name));
        let current = self.hosts.iter().map(String::as_str);
        let result = self.poll.handle_answer(due, answer.as_ref().map_err(Clone::clone), current, entropy);
        if let Ok(Some(hosts)) = result {
            self.hosts = hosts.iter().map(ToString::to_string).collect();
        }
        waited
    }

    fn hosts(&self) -> BTreeSet<&str> {
        self.hosts.iter().map(String::as_str).collect()
    }
}

fn set<'a>(hosts: &[&'a str]) -> BTreeSet<&'a str> {
    hosts.iter().copied().collect()
}

fn change(hosts: &[&str]) {
    let mut client = Client::start("");
    client.server.change(|records| records.set_srv(NAME, hosts));
    assert_eq!(client.hosts(), set(&[A, B]), "no polling without a call");
    assert_eq!(client.poll(0), 60);
    assert_eq!(client.hosts(), set(hosts));
    assert_eq!(client.poll(0), 60);
    assert_eq!(client.hosts(), set(hosts));
}

fn unchanged(fault: Option<Fault>, hosts: &[&str]) {
    let mut client = Client::start("");
    client.resolver.config.timeout = Duration::from_millis(50);
    client.server.change(|records| records.set_srv(NAME, hosts));
    client.server.set_fault(fault.unwrap_or_default());
    assert_eq!((client.poll(0), client.poll(0)), (60, HEARTBEAT.as_secs()));
    assert_eq!(client.hosts(), set(&[A, B]));
    // The interval returns to normal once hosts are found again.
    client.resolver.config.timeout = Duration::from_secs(5);
    client.server.set_fault(Fault::None);
    client.server.change(|records| records.set_srv(NAME, &[C]));
    assert_eq!((client.poll(0), client.poll(0)), (HEARTBEAT.as_secs(), 60));
    assert_eq!(client.hosts(), set(&[C]));
}

fn stops(topology: TopologyType) {
    let mut client = Client::start("");
    client.poll.handle_topology(topology);
    assert_eq!(client.poll.poll_timeout(), None);
    assert_eq!(client.server.queries().len(), 2, "the first lookup of hosts and options, and none after it");
}

fn limited(options: &str, hosts: &[&str], count: usize) {
    let mut seen = BTreeSet::new();
    for entropy in 0..16 {
        let mut client = Client::start(options);
        client.server.change(|records| records.set_srv(NAME, hosts));
        client.poll(entropy);
        assert_eq!(client.hosts.len(), count);
        assert!(client.hosts().is_subset(&set(hosts)));
        // A host that was present and is still in the records has stayed.
        assert!(!hosts.contains(&A) || client.hosts().contains(A));
        seen.extend(client.hosts.clone());
    }
    assert_eq!(seen.len(), hosts.len(), "each host was chosen once");
}

/// Test 12.
#[test]
fn service_name_is_that_of_the_string() {
    let name = "_customname._tcp.test1.test.build.10gen.cc";
    let mut client = Client::of(name, "?srvServiceName=customname");
    client.server.change(|records| records.set_srv(name, &[C, D]));
    client.poll(0);
    assert_eq!(client.hosts(), set(&[C, D]));
}

#[test]
fn foreign_records_are_left_out() {
    let mut client = Client::start("");
    client.server.change(|records| records.set_srv(NAME, &[A, FOREIGN, C]));
    client.poll(0);
    assert_eq!(client.hosts(), set(&[A, C]));
    assert_eq!(client.poll.foreign_count(), 1);
}
