//! Initial DNS Seedlist Discovery, "Prose Tests".

use futures_lite::future::block_on;
use poolhouse_tests::dns::{BlockingResolver, DnsServer, Fault, Records};
use poolhouse_uri::ConnectionString;
use poolhouse_uri::dns::{LookupError, SeedlistError, SrvQuestion};

/// Resolves a string with a name that has this one host.
fn resolve(host: &str, target: &str) -> Result<ConnectionString, SeedlistError> {
    let mut records = Records { ttl: 60, ..Records::default() };
    records.set_srv(&format!("_mongodb._tcp.{host}"), &[&format!("{target}:27017")]);
    look_up(host, &DnsServer::start(records).expect("a port"))
}

fn look_up(host: &str, server: &DnsServer) -> Result<ConnectionString, SeedlistError> {
    let uri = ConnectionString::parse(&format!("mongodb+srv://{host}")).expect("a string");
    let question = SrvQuestion::of(&uri).expect("a connection string with SRV lookup");
    let resolver = BlockingResolver::of(server.address());
    block_on(question.look_up(&uri, &resolver, 0)).map(|(uri, _)| uri)
}

fn is_refused(host: &str, target: &str) {
    let wanted = SeedlistError::ForeignHost { name: format!("_mongodb._tcp.{host}"), target: target.to_owned() };
    assert_eq!(resolve(host, target), Err(wanted), "{host}");
}

/// Test 1.
#[test]
fn names_of_fewer_than_three_parts_are_allowed() {
    for host in ["localhost", "mongo.local"] {
        let found = resolve(host, &format!("a.{host}")).expect("it is allowed");
        assert_eq!(found.to_string(), format!("mongodb://a.{host}:27017/?tls=true"));
    }
}

/// Test 2.
#[test]
fn host_that_does_not_end_in_the_domain_is_an_error() {
    is_refused("localhost", "localhost.mongodb");
    is_refused("mongo.local", "test_1.evil.local");
    is_refused("blogs.mongodb.com", "blogs.evil.com");
}

/// Test 3.
#[test]
fn host_that_is_the_name_itself_is_an_error() {
    is_refused("localhost", "localhost");
    is_refused("mongo.local", "mongo.local");
}

/// Test 4.
#[test]
fn host_without_a_dot_before_the_domain_is_an_error() {
    is_refused("localhost", "test_1.cluster_1localhost");
    is_refused("mongo.local", "test_1.my_hostmongo.local");
    is_refused("blogs.mongodb.com", "cluster.testmongodb.com");
}

/// Test 5.
#[test]
fn host_of_a_name_with_two_parts_may_have_three() {
    assert!(resolve("mongo.local", "blogs.mongo.local").is_ok());
    assert!(resolve("blogs.mongodb.com", "cluster.mongodb.com").is_ok());
}

#[test]
fn missing_txt_record_is_no_error_but_a_failed_lookup_is() {
    let mut records = Records { ttl: 60, ..Records::default() };
    records.set_srv("_mongodb._tcp.x.example.com", &["a.example.com:27017"]);
    let server = DnsServer::start(records).expect("a port");
    assert_eq!(look_up("x.example.com", &server).expect("no text").options().replica_set, None);
    server.change(|records| {
        records.txt.insert("x.example.com".to_owned(), vec![vec!["authSource=\u{fc}".to_owned()]]);
    });
    assert_eq!(look_up("x.example.com", &server).expect("a text").options().auth_source.as_deref(), Some("\u{fc}"));
    server.set_fault(Fault::RefuseTxt(2));
    let error = look_up("x.example.com", &server).expect_err("the lookup of options failed");
    let name = "x.example.com".to_owned();
    assert_eq!(error, SeedlistError::Txt { name, error: LookupError::ServerFailed { code: 2 } });
    server.set_fault(Fault::Refuse(5));
    let error = look_up("x.example.com", &server).expect_err("the lookup of hosts failed");
    let name = "_mongodb._tcp.x.example.com".to_owned();
    assert_eq!(error, SeedlistError::Srv { name, error: LookupError::ServerFailed { code: 5 } });
}

#[test]
fn name_is_not_looked_up_in_search_domains() {
    let server = DnsServer::start(Records::default()).expect("a port");
    let mut resolver = BlockingResolver::of(server.address());
    resolver.config.search = vec!["example.com".to_owned()];
    let uri = ConnectionString::parse("mongodb+srv://db").expect("a string");
    let question = SrvQuestion::of(&uri).expect("a connection string with SRV lookup");
    let error = block_on(question.look_up(&uri, &resolver, 0)).expect_err("the name does not exist");
    let name = "_mongodb._tcp.db".to_owned();
    assert_eq!(error, SeedlistError::Srv { name, error: LookupError::NoSuchName });
    assert!(server.queries().iter().all(|query| query.name == "_mongodb._tcp.db"));
}
