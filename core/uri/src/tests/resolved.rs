use super::*;

const SRV: &str = "mongodb+srv://ann:x@cluster.example.com/db?";

fn hosts(count: u16) -> Vec<Host> {
    (1..=count).map(|port| Host::tcp("h.example.com", Some(port)).unwrap()).collect()
}

fn resolve(options: &str, count: u16, txt: &str) -> Result<ConnectionString, UriError> {
    quiet(&format!("{SRV}{options}")).resolved(hosts(count), Some(txt))
}

#[test]
fn hosts_and_record_of_a_lookup_replace_the_name() {
    let uri = resolve("srvMaxHosts=0&srvServiceName=x", 2, "authSource=thisDB&replicaSet=rs").unwrap();
    assert_eq!(uri.scheme(), Scheme::Mongodb);
    assert_eq!(uri.seeds().collect::<Vec<_>>(), ["h.example.com:1", "h.example.com:2"]);
    assert_eq!(uri.options().replica_set.as_deref(), Some("rs"));
    assert_eq!(uri.credential().unwrap().source, "thisDB");
    assert!(uri.tls());
    assert_eq!(
        uri,
        quiet("mongodb://ann:x@h.example.com:1,h.example.com:2/db?tls=true&replicaSet=rs&authSource=thisDB")
    );
}

#[test]
fn string_takes_precedence_over_the_record() {
    let uri = resolve("authSource=mine&replicaSet=a&tls=false", 1, "authSource=thisDB&replicaSet=rs").unwrap();
    assert_eq!(uri.options().replica_set.as_deref(), Some("a"));
    assert_eq!(uri.credential().unwrap().source, "mine");
    assert!(!uri.tls());
    assert_eq!(resolve("loadBalanced=false", 2, "loadBalanced=true").unwrap().options().load_balanced, Some(false));
}

#[test]
fn source_of_the_record_does_not_apply_to_external_users() {
    let uri =
        quiet("mongodb+srv://a/?authMechanism=MONGODB-X509").resolved(hosts(1), Some("authSource=admin")).unwrap();
    assert_eq!(uri.credential().unwrap().source, "$external");
}

#[test]
fn other_option_in_the_record_is_an_error() {
    for (txt, kind, offset) in [
        ("ssl=false", UriErrorKind::NotInTxt, 0),
        ("replicaSet=a&socketTimeoutMS=500", UriErrorKind::NotInTxt, 13),
        ("foo=1", UriErrorKind::NotInTxt, 0),
        ("authSource", UriErrorKind::OptionSyntax, 0),
    ] {
        assert_eq!(resolve("", 1, txt), Err(UriError::at(kind, offset)), "{txt}");
    }
    assert_eq!(resolve("", 1, "authSource=").unwrap_err().option(), Some("authSource"));
    assert_eq!(resolve("", 1, "replicaSet=%").unwrap_err().kind(), UriErrorKind::Escape);
    assert_eq!(resolve("", 1, "loadBalanced=x").unwrap().warnings().len(), 1);
}

#[test]
fn contradictions_after_the_lookup_are_errors() {
    for (options, count, txt, option) in [
        ("", 2, "loadBalanced=true", "loadBalanced"),
        ("replicaSet=a", 1, "loadBalanced=true", "loadBalanced"),
        ("srvMaxHosts=1", 1, "loadBalanced=true", "srvMaxHosts"),
        ("srvMaxHosts=1", 1, "replicaSet=a", "srvMaxHosts"),
    ] {
        assert_eq!(resolve(options, count, txt).unwrap_err().option(), Some(option), "{options} {txt}");
    }
    assert_eq!(quiet(SRV).resolved(Vec::new(), None).unwrap_err().kind(), UriErrorKind::NoHost);
}
