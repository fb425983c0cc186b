//! Shared by these tests.

use alloc::sync::Arc;
use core::net::SocketAddr;
use poolhouse_smol::{ClientOptions, DnsResolver, ResolverConfig, Smol};
use poolhouse_tests::dns::{DnsServer, Records};
use poolhouse_tests::fake::mongoses::FakeMongoses;
pub(crate) use poolhouse_tests::patience::{PATIENCE, eventually, run};

/// The host name of the connection strings.
pub(crate) const HOST: &str = "cluster.example.test";
/// The name of the SRV records.
pub(crate) const NAME: &str = "_mongodb._tcp.cluster.example.test";

/// The hosts of these routers, each under a separate name, all on loopback.
pub(crate) fn hosts(routers: &FakeMongoses) -> Vec<String> {
    let host = |(place, port): (usize, u16)| format!("r{place}.example.test:{port}");
    routers.servers().iter().map(|router| router.address().port()).enumerate().map(host).collect()
}

/// A name server with these hosts.
pub(crate) fn name_server(hosts: &[&str]) -> DnsServer {
    let mut records = Records { ttl: 60, ..Records::default() };
    records.set_srv(NAME, hosts);
    for place in 0..9 {
        records.a.insert(format!("r{place}.example.test"), vec![[127, 0, 0, 1].into()]);
    }
    DnsServer::start(records).expect("the name server starts")
}

/// One name server, with a long timeout.
pub(crate) fn config(server: SocketAddr) -> ResolverConfig {
    ResolverConfig { timeout: PATIENCE, attempts: 1, ..ResolverConfig::new(vec![server]) }
}

pub(crate) fn resolver(server: &DnsServer) -> Arc<DnsResolver> {
    Arc::new(DnsResolver::with_config(Smol, config(server.address())))
}

pub(crate) fn uri(options: &str) -> String {
    format!("mongodb+srv://{HOST}/?tls=false{options}")
}

pub(crate) async fn options(server: &DnsServer, more: &str) -> ClientOptions {
    ClientOptions::resolve(&uri(more), resolver(server)).await.expect("hosts are found")
}
