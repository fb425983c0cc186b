use super::*;

#[test]
fn servers_and_options_of_resolv_conf_are_parsed() {
    let config = ResolverConfig::parse(
        "# made by hand\n; as ever\nnameserver 192.0.2.1 # the first\n\tnameserver\t2001:db8::1\nnameserver fe80::1%3\n\
         nameserver 192.0.2.9\nsearch a.example.com example.com.\noptions timeout:3 attempts:4 rotate use-vc ndots:2 trust-ad\n",
    );
    let servers: Vec<String> = config.servers.iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["192.0.2.1:53", "[2001:db8::1]:53", "[fe80::1%3]:53"]);
    assert_eq!(config.timeout, Duration::from_secs(3));
    assert_eq!((config.attempts, config.dots), (4, 2));
    assert!(config.rotate && config.tcp);
    assert_eq!(config.search, ["a.example.com", "example.com"]);
}

#[test]
fn empty_configuration_queries_this_host() {
    for text in ["", "nameserver\n", "nameserver example.com\nfoo bar\n", "\u{0}\u{ff}\n", "nameserver fe80::1%eth0"] {
        let config = ResolverConfig::parse(text);
        assert_eq!(config, ResolverConfig::new(vec![SocketAddr::from(([127, 0, 0, 1], 53))]), "{text:?}");
        assert_eq!((config.timeout, config.attempts), (Duration::from_secs(5), 2));
    }
    assert_eq!(ResolverConfig::default(), ResolverConfig::parse(""));
}

#[test]
fn options_out_of_range_are_clamped() {
    for (text, timeout, attempts, dots) in [
        ("options timeout:0 attempts:0 ndots:0", 1, 1, 0),
        ("options timeout:99999999999999999999 attempts:99 ndots:99", 30, 5, 15),
        ("options timeout:-1 attempts: ndots:x", 5, 2, 1),
        ("options timeout:9\noptions timeout:7", 7, 2, 1),
    ] {
        let config = ResolverConfig::parse(text);
        assert_eq!(
            (config.timeout, config.attempts, config.dots),
            (Duration::from_secs(timeout), attempts, dots),
            "{text}"
        );
    }
}

#[test]
fn last_line_of_search_domains_is_used() {
    assert_eq!(ResolverConfig::parse("search a b\ndomain c d").search, ["c"]);
    assert_eq!(ResolverConfig::parse("domain c\nsearch a .").search, ["a"]);
    assert_eq!(ResolverConfig::parse("domain c\nsearch").search, [""; 0]);
}

#[test]
fn incomplete_host_is_looked_up_in_the_search_domains() {
    let config = ResolverConfig::parse("search x y\noptions ndots:2");
    for (host, names) in [
        ("a", &["a.x", "a.y", "a"][..]),
        ("a.b", &["a.b.x", "a.b.y", "a.b"]),
        ("a.b.c", &["a.b.c", "a.b.c.x", "a.b.c.y"]),
        ("a.", &["a"]),
    ] {
        assert_eq!(config.candidates(host), names, "{host}");
    }
}
