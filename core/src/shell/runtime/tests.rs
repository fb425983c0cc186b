use super::*;

#[test]
fn addresses_are_read_as_hosts_ports_and_paths() {
    let tcp = |host, port| Some(Endpoint::Tcp { host, port });
    let cases = [
        ("localhost", tcp("localhost", 27017)),
        ("localhost:1", tcp("localhost", 1)),
        ("127.0.0.1:65535", tcp("127.0.0.1", 65535)),
        ("[::1]", tcp("::1", 27017)),
        ("[::1]:27018", tcp("::1", 27018)),
        ("/tmp/mongodb-27017.sock", Some(Endpoint::Unix { path: "/tmp/mongodb-27017.sock" })),
        ("relative.sock", Some(Endpoint::Unix { path: "relative.sock" })),
        ("/no/suffix", Some(Endpoint::Unix { path: "/no/suffix" })),
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
    ];
    for (address, endpoint) in cases {
        assert_eq!(Endpoint::parse(address), endpoint, "{address}");
    }
}

#[cfg(feature = "alloc")]
#[test]
fn heap_buffer_grows_and_shrinks_as_told() {
    let mut buffer = alloc::vec::Vec::new();
    Buffer::resize(&mut buffer, 5000).expect("memory");
    assert_eq!(buffer.len(), 5000);
    Buffer::resize(&mut buffer, 10).expect("memory");
    assert_eq!((buffer.len(), Buffer::capacity(&buffer) >= 5000), (10, true));
    Buffer::shrink(&mut buffer, 100);
    assert!(Buffer::capacity(&buffer) < 5000);
    assert_eq!(Buffer::resize(&mut buffer, usize::MAX), Err(Full));
    assert_eq!(buffer.len(), 10);
}
