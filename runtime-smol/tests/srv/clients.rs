//! Clients of looked-up hosts.

use super::support::{HOST, PATIENCE, config, eventually, hosts, name_server, options, resolver, run, uri};
use alloc::sync::Arc;
use core::time::Duration;
use poolhouse_smol::{
    Client, ClientOptions, DnsResolver, Error, LookupError, Resolver, SeedlistError, SetupError, Smol, SrvAnswer,
    SrvRecord,
};
use poolhouse_tests::dns::Fault;
use poolhouse_tests::fake::mongoses::FakeMongoses;
use smol::future::FutureExt;

fn addresses(client: &Client) -> Vec<String> {
    let mut addresses: Vec<_> = client.servers().into_iter().map(|server| server.address).collect();
    addresses.sort();
    addresses
}

async fn refused(uri: &str, resolver: Arc<dyn Resolver>) -> Error {
    match ClientOptions::resolve(uri, resolver).await {
        Ok(options) => panic!("it was accepted: {options:?}"),
        Err(error) => error,
    }
}

#[test]
fn client_finds_the_routers_and_their_addresses_by_name() {
    run(async {
        let routers = FakeMongoses::start(3).expect("they start");
        let hosts = hosts(&routers);
        let server = name_server(&hosts.iter().map(String::as_str).collect::<Vec<_>>());
        server.change(|records| {
            records.txt.insert(HOST.into(), vec![vec!["authSource=x".into()]]);
        });
        let mut options = options(&server, "&localThresholdMS=10000&maxPoolSize=7").await;
        assert_eq!((&options.hosts, options.pool.max_pool_size), (&hosts, 7));
        options.timeout = Some(PATIENCE);
        let client = Client::with_options(options).expect("the options are right");
        assert_eq!(addresses(&client), hosts);
        eventually("each router is used", || routers.servers().iter().all(|router| router.count_of("hello") > 0)).await;
        client.run_command("admin", bson::doc! { "ping": 1 }).await.expect("a ping");
        client.close().await;
    });
}

#[test]
fn number_of_hosts_is_limited_by_the_string() {
    run(async {
        let server = name_server(&["r0.example.test:1", "r1.example.test:2", "r2.example.test:3"]);
        for max in 1..=4 {
            let options = options(&server, &format!("&srvMaxHosts={max}")).await;
            assert_eq!(options.hosts.len(), max.min(3));
        }
    });
}

#[test]
fn errors_of_lookups_are_returned() {
    run(async {
        let server = name_server(&["r0.example.test:1"]);
        let seedlist = |error: Error| {
            let Error::Setup(SetupError::Seedlist(error)) = error else { panic!("{error:?}") };
            *error
        };
        let asked = resolver(&server);
        let error = seedlist(refused("mongodb+srv://nobody.example.test", asked.clone()).await);
        assert_eq!(
            error.to_string(),
            "SRV lookup of _mongodb._tcp.nobody.example.test: the name does not exist",
            "hint 01"
        );
        assert!(matches!(error, SeedlistError::Srv { error: LookupError::NoSuchName, .. }), "{error:?}");
        server.change(|records| {
            records.txt.insert(HOST.into(), vec![vec!["ssl=false".into()]]);
        });
        let error = seedlist(refused(&uri(""), asked.clone()).await);
        assert!(matches!(error, SeedlistError::Uri(_)), "{error:?}");
        server.change(|records| records.set_srv("_mongodb._tcp.cluster.example.test", &["r0.evil.test:1"]));
        let error = seedlist(refused(&uri(""), asked.clone()).await);
        let name = "_mongodb._tcp.cluster.example.test".to_owned();
        assert_eq!(error, SeedlistError::ForeignHost { name, target: "r0.evil.test".into() });
        assert!(matches!(refused("mongodb+srv://a:1", asked.clone()).await, Error::Setup(SetupError::Uri(_))));
        assert!(matches!(ClientOptions::parse(&uri("")), Err(Error::Setup(SetupError::LookupNeeded))));

        server.set_fault(Fault::Silent);
        let mut impatient = config(server.address());
        impatient.timeout = Duration::from_millis(50);
        let error = refused(&uri(""), Arc::new(DnsResolver::with_config(Smol, impatient))).await;
        assert!(error.is_timeout() && !error.is_retryable() && !error.is_transient(), "{error}");
        assert_eq!(
            error.to_string(),
            "SRV lookup of _mongodb._tcp.cluster.example.test: the name server did not reply in time"
        );
    });
}

#[test]
fn string_with_hosts_causes_no_lookup() {
    run(async {
        let server = name_server(&[]);
        let options = ClientOptions::resolve("mongodb://127.0.0.1:1/?appName=x", resolver(&server)).await;
        let options = options.expect("hosts are there");
        assert_eq!((options.hosts.len(), options.app_name.as_deref()), (1, Some("x")));
        assert!(server.queries().is_empty());
    });
}

/// A resolver with fixed answers.
#[derive(Debug)]
struct ByHeart(u16);

#[async_trait::async_trait]
impl Resolver for ByHeart {
    async fn lookup_srv(&self, name: &str) -> Result<SrvAnswer, LookupError> {
        assert_eq!(name, "_mongodb._tcp.cluster.example.test");
        Ok(SrvAnswer { records: vec![SrvRecord::new("localhost.example.test", self.0)], ttl: Duration::ZERO })
    }

    async fn lookup_txt(&self, _name: &str) -> Result<Vec<String>, LookupError> {
        Err(LookupError::Other("no texts here".into()))
    }
}

#[test]
fn custom_resolver_is_used() {
    run(async {
        let error = refused(&uri(""), Arc::new(ByHeart(27_017))).await;
        assert_eq!(error.to_string(), "TXT lookup of cluster.example.test: no texts here");
    });
}

#[test]
fn close_does_not_wait_for_the_next_lookup() {
    run(async {
        let routers = FakeMongoses::start(1).expect("they start");
        let hosts = hosts(&routers);
        let server = name_server(&[&hosts[0]]);
        let client = Client::with_options(options(&server, "").await).expect("the options are right");
        client.run_command("admin", bson::doc! { "ping": 1 }).await.expect("a ping");
        let limit = async {
            smol::Timer::after(PATIENCE).await;
            panic!("it waits for the next lookup");
        };
        client.close().or(limit).await;
    });
}
