mod config;
mod errors;
mod hosts;
mod lookup;
mod poll;
mod replies;
mod seedlist;

use super::*;
use crate::ConnectionString;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::topology::TopologyType;
use simple_dns::rdata::{A, CNAME, NS, NULL, OPT, RData, SOA, SRV, TXT};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, RCODE, ResourceRecord, TYPE};

const NAME: &str = "_mongodb._tcp.cluster.example.com";

/// The instant this many milliseconds after the origin.
fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn server(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], DNS_PORT))
}

/// Options for this many name servers, everything else by default.
fn config(servers: u8) -> ResolverConfig {
    ResolverConfig::new((1..=servers).map(server).collect())
}

fn lookup(config: &ResolverConfig) -> Lookup {
    Lookup::new(config, NAME, RecordKind::Srv, 0).unwrap()
}

fn record(owner: &str, ttl: u32, data: RData<'_>) -> ResourceRecord<'static> {
    ResourceRecord::new(Name::new(owner).unwrap(), CLASS::IN, ttl, data).into_owned()
}

fn srv(owner: &str, ttl: u32, target: &str, port: u16) -> ResourceRecord<'static> {
    record(owner, ttl, RData::SRV(SRV { priority: 0, weight: 0, port, target: Name::new(target).unwrap() }))
}

fn txt(owner: &str, strings: &[&str]) -> ResourceRecord<'static> {
    let txt = strings.iter().fold(TXT::new(), |txt, string| txt.with_string(string).unwrap());
    record(owner, 60, RData::TXT(txt))
}

fn cname(owner: &str, ttl: u32, target: &str) -> ResourceRecord<'static> {
    record(owner, ttl, RData::CNAME(CNAME(Name::new(target).unwrap())))
}

fn soa(owner: &str) -> ResourceRecord<'static> {
    let name = || Name::new("ns.example.com").unwrap();
    let soa = SOA { mname: name(), rname: name(), serial: 1, refresh: 1, retry: 1, expire: 1, minimum: 1 };
    record(owner, 60, RData::SOA(soa))
}

/// The answer to a request, with these records.
fn reply(request: &[u8], answers: Vec<ResourceRecord<'_>>) -> Vec<u8> {
    reply_with(request, |packet| packet.answers = answers.into_iter().map(ResourceRecord::into_owned).collect())
}

/// The answer to a request, modified by `change`.
fn reply_with(request: &[u8], change: impl FnOnce(&mut Packet<'_>)) -> Vec<u8> {
    let mut packet = Packet::parse(request).unwrap().into_reply();
    packet.set_flags(PacketFlag::RECURSION_AVAILABLE);
    change(&mut packet);
    packet.build_bytes_vec().unwrap()
}

/// The answer to a request, with this response code.
fn refusal(request: &[u8], code: RCODE) -> Vec<u8> {
    reply_with(request, |packet| *packet.rcode_mut() = code)
}

/// A message with its length prefix, as on a stream.
fn prefixed(message: &[u8]) -> Vec<u8> {
    let mut bytes = u16::try_from(message.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend_from_slice(message);
    bytes
}

fn question(uri: &str) -> SrvQuestion {
    SrvQuestion::of(&ConnectionString::parse(uri).unwrap()).unwrap()
}

/// Records of hosts, `host:port` each.
fn answer(hosts: &[&str], ttl: u64) -> SrvAnswer {
    let records = hosts.iter().map(|host| {
        let (target, port) = host.split_once(':').unwrap();
        SrvRecord::new(target, port.parse().unwrap())
    });
    SrvAnswer { records: records.collect(), ttl: Duration::from_secs(ttl) }
}
