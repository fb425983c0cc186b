use super::*;
use core::net::IpAddr;

const FILE: &str = "127.0.0.1 localhost\n::1\tlocalhost ip6-localhost # loopback\n\n# 10.0.0.9 db\n10.0.0.1 DB db.example.com\n\
                    nonsense db\n10.0.0.2   db\n10.0.0.1 db\n10.0.0.3";

fn addresses(host: &str) -> Vec<String> {
    hosts_addresses(FILE, host).iter().map(IpAddr::to_string).collect()
}

#[test]
fn hosts_file_returns_every_address_of_a_name_once() {
    assert_eq!(addresses("localhost"), ["127.0.0.1", "::1"]);
    assert_eq!(addresses("db"), ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(addresses("Db.Example.com."), ["10.0.0.1"]);
}

#[test]
fn name_that_the_hosts_file_does_not_have_has_no_address() {
    for host in ["", "10.0.0.1", "nonsense", "example.com", "loopback", "#"] {
        assert_eq!(addresses(host), [""; 0], "{host}");
    }
}

#[test]
fn addresses_of_a_name_are_bounded() {
    let file: String = (0..=255).map(|number| alloc::format!("10.0.0.{number} many\n")).collect();
    assert_eq!(hosts_addresses(&file, "many").len(), 64);
}
