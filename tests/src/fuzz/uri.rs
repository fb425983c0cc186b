//! Arbitrary connection strings: parsed, printed and parsed again.

use core::fmt::Write;

use poolhouse_core::topology::TopologyOptions;
use poolhouse_uri::{ConnectionString, Host, Scheme};

#[cfg(test)]
mod tests;

/// The password in the generated strings.
const PASSWORD: &str = "pa55w0rd-0f-ann";

/// Parses the bytes unchanged, as options of a valid string, and as combined pieces.
pub fn uri(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    whole(&text);
    whole(&format!("mongodb://{text}"));
    whole(&format!("mongodb+srv://a.example.com/?{text}"));
    let named = format!("mongodb://ann:{PASSWORD}@a/?{text}");
    if let Some(uri) = whole(&named) {
        shows_no_password(&uri);
        resolves(&uri, &text);
    }
    if let Err(error) = ConnectionString::parse(&named) {
        assert!(!format!("{error} {error:?}").contains(PASSWORD), "the error contains the password");
    }
    // Strings that contain a part of a password because a character was not escaped.
    for broken in [
        format!("mongodb://ann:p@1?{PASSWORD}={text}@a/"),
        format!("mongodb://a/?tlsCertificateKeyFilePassword=p&{PASSWORD}={text}"),
    ] {
        if let Some(uri) = whole(&broken) {
            let warned = uri.warnings().iter().any(|warning| format!("{warning} {warning:?}").contains(PASSWORD));
            assert!(!warned, "the warning contains a part of the password");
        }
    }
    if let Some(uri) = whole(&pieces(data)) {
        resolves(&uri, "replicaSet=rs&authSource=b");
    }
}

/// Checks that a printed string parses to the same value, with and without credentials.
fn whole(text: &str) -> Option<ConnectionString> {
    let uri = match ConnectionString::parse(text) {
        Ok(uri) => uri,
        Err(error) => {
            assert!(error.offset().is_none_or(|offset| offset <= text.len()));
            assert!(!error.to_string().is_empty());
            return None;
        }
    };
    for warning in uri.warnings() {
        assert!(warning.offset() < text.len(), "the offset of a warning is within the string");
        assert!(!warning.to_string().is_empty());
    }
    let printed = uri.to_string_with_credentials();
    let again = ConnectionString::parse(printed.expose()).expect("a printed string can be parsed");
    assert_eq!(again, uri, "printed as {}", printed.expose());
    assert!(again.to_string_with_credentials() == printed, "printing again results in the same string");

    let bare = uri.without_credentials();
    assert_eq!(bare.credential(), None);
    let again = ConnectionString::parse(&uri.to_string()).expect("a printed string can be parsed");
    assert_eq!(again, bare, "printed as {uri}");

    assert!(!uri.hosts().is_empty());
    uri.pool_options().validate().expect("checked options of pools");
    uri.monitor_options().validate().expect("checked options of monitors");
    let seeds: Vec<&str> = uri.seeds().collect();
    if uri.scheme() == Scheme::Mongodb {
        uri.topology_options(&seeds).validate().expect("checked options of topologies");
    }
    TopologyOptions { seeds: &seeds, ..TopologyOptions::default() }.validate().expect("hosts are addresses");
    Some(uri)
}

fn shows_no_password(uri: &ConnectionString) {
    assert!(uri.credential().is_none_or(|credential| credential.password.is_some()));
    let mut shown = format!("{uri} {uri:?}");
    for warning in uri.warnings() {
        write!(shown, " {warning} {warning:?}").expect("writing to a string does not fail");
    }
    assert!(!shown.contains(PASSWORD), "the password is shown");
}

/// The result of any lookup must leave a string that can be printed.
fn resolves(uri: &ConnectionString, txt: &str) {
    let hosts = ["B.example.com", "::1", "127.0.0.1"].map(|name| Host::tcp(name, Some(27_018)).expect("a host"));
    for count in 1..=hosts.len() {
        for txt in [None, Some(txt)] {
            let Ok(resolved) = uri.resolved(hosts[..count].to_vec(), txt) else { continue };
            assert_eq!(resolved.scheme(), Scheme::Mongodb);
            assert_eq!(resolved.hosts().len(), count);
            assert_eq!(resolved.tls(), uri.tls());
            let printed = resolved.to_string_with_credentials();
            let again = ConnectionString::parse(printed.expose()).expect("a printed string can be parsed");
            assert_eq!(again, resolved, "printed as {}", printed.expose());
        }
    }
}

/// Strings that are often valid: each byte chooses the next piece.
fn pieces(data: &[u8]) -> String {
    const AUTHORITY: [&str; 16] = [
        "ann:p%40ss@",
        "ann@",
        ":@",
        "@",
        "a",
        "B.Example.com",
        ":27018",
        ":0",
        ",",
        "[::1]",
        "[fe80::1%25eth0]",
        "127.0.0.1",
        "%2Ftmp%2Fa.sock",
        "x.sock",
        "rel%2Fa.sock",
        "\u{fc}",
    ];
    const OPTIONS: [&str; 48] = [
        "authMechanism=GSSAPI",
        "authMechanism=MONGODB-AWS",
        "authMechanism=MONGODB-OIDC",
        "authMechanism=MONGODB-X509",
        "authMechanism=PLAIN",
        "authMechanism=SCRAM-SHA-256",
        "authMechanismProperties=ENVIRONMENT:azure,token_resource:a:b",
        "authMechanismProperties=ENVIRONMENT:test",
        "authMechanismProperties=a,b",
        "authSource=$external",
        "authSource=x",
        "gssapiServiceName=s",
        "compressors=zlib,snappy,x",
        "compressors=zstd",
        "directConnection=true",
        "directConnection=false",
        "loadBalanced=true",
        "replicaSet=rs",
        "maxPoolSize=5",
        "minPoolSize=3",
        "minPoolSize=300",
        "maxPoolSize=0",
        "heartbeatFrequencyMS=500",
        "heartbeatFrequencyMS=499",
        "j=1",
        "journal=true",
        "w=0",
        "w=5",
        "w=%35",
        "w=+5",
        "w=-5",
        "wtimeout=5",
        "wTimeoutMS=9223372036854775807",
        "wTimeoutMS=x",
        "readPreference=nearest",
        "readPreferenceTags=a:b,c:",
        "readPreferenceTags=",
        "maxStalenessSeconds=90",
        "maxStalenessSeconds=-1",
        "proxyHost=p",
        "proxyUsername=u",
        "proxyPassword=%00",
        "proxyPassword=q",
        "ssl=true",
        "tls=false",
        "tlsInsecure=true",
        "srvMaxHosts=2",
        "waitQueueSize=1",
    ];
    let mut bytes = data.iter().map(|byte| usize::from(*byte));
    let mut uri = String::from(if bytes.next().unwrap_or(0) % 4 == 3 { "mongodb+srv://" } else { "mongodb://" });
    for _ in 0..bytes.next().unwrap_or(0) % 6 {
        uri.push_str(AUTHORITY[bytes.next().unwrap_or(4) % AUTHORITY.len()]);
    }
    uri.push_str(["a/", "/", "/db.c", "/d%3F", "", "/a@b"][bytes.next().unwrap_or(0) % 6]);
    let mut delimiter = "?";
    for byte in bytes {
        uri.push_str(delimiter);
        uri.push_str(OPTIONS[byte % OPTIONS.len()]);
        delimiter = "&";
    }
    uri
}
