use super::*;

#[test]
fn addresses_are_read_as_hosts_ports_and_paths() {
    let tcp = |host, port| Some(HostAddress::Tcp { host, port });
    let cases = [
        ("localhost", tcp("localhost", 27017)),
        ("localhost:1", tcp("localhost", 1)),
        ("127.0.0.1:65535", tcp("127.0.0.1", 65535)),
        ("[::1]", tcp("::1", 27017)),
        ("[::1]:27018", tcp("::1", 27018)),
        ("/tmp/mongodb-27017.sock", Some(HostAddress::Unix("/tmp/mongodb-27017.sock"))),
        ("relative.sock", Some(HostAddress::Unix("relative.sock"))),
        ("/no/suffix", Some(HostAddress::Unix("/no/suffix"))),
        ("", None),
        (":1", None),
        ("host:", None),
        ("host:0", None),
        ("host:65536", None),
        ("host:+1", None),
        ("host:1x", None),
        ("::1", None),
        ("[::1", None),
        ("[::1]x", None),
        ("[]:1", None),
        ("[a]:1", None),
        ("a b", None),
        ("datenbänke.example", tcp("datenbänke.example", 27017)),
        ("a\u{9b}2Jb", None),
        ("a\u{202e}b", None),
        ("a\u{2028}b", None),
        ("/a\nb", None),
    ];
    for (address, expected) in cases {
        assert_eq!(HostAddress::parse(address), expected, "{address}");
    }
    assert_eq!(HostAddress::parse_with_port("a", 9042), tcp("a", 9042));
    assert_eq!(HostAddress::parse_with_port("a:1", 9042), tcp("a", 1));
}
