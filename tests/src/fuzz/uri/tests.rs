use super::*;
use crate::rng::Rng;
use crate::seeds::each_seed;

/// Strings that are mutated.
const SEEDS: [&str; 12] = [
    "mongodb://ann:p%40ss@a.example.com:27018,B,[::1]:1,%2Ftmp%2Fa.sock/db.c?w=majority&wtimeout=5&wTimeoutMS=6",
    "mongodb+srv://ann@a.example.com./?srvMaxHosts=2&srvServiceName=x&tls=false",
    "mongodb://a/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:azure,TOKEN_RESOURCE:mongodb://b",
    "mongodb://a?readPreference=nearest&readPreferenceTags=dc:ny,rack:1&readPreferenceTags=&maxStalenessSeconds=120",
    "mongodb://a/?compressors=zlib,snappy,zstd&zlibCompressionLevel=-1&appName=%C3%BC%26",
    "mongodb://ann@a/?authMechanism=GSSAPI&gssapiServiceName=x",
    "mongodb://a/?proxyHost=p&proxyPort=1&proxyUsername=u&proxyPassword=%3A&tlsCertificateKeyFilePassword=q",
    "mongodb://[fe80::1%25eth0]/?maxPoolSize=0&minPoolSize=7&maxIdleTimeMS=1&maxConnecting=3&waitQueueTimeoutMS=4",
    "mongodb://a/?heartbeatFrequencyMS=500;serverMonitoringMode=poll;connectTimeoutMS=0",
    "mongodb://a,b/?loadBalanced=true",
    "mongodb://a/?ssl=true&tls=1&tlsCAFile=/etc/ca.pem",
    "",
];

#[test]
fn the_body_holds_on_seeds_and_their_mutations() {
    const SIGNIFICANT: &[u8] = b"%:/?&=,;@[].+ -019aZ\0\xc3\xff";
    let mut accepted = 0;
    let runs = each_seed(300, |seed| {
        let mut rng = Rng::new(seed);
        let mut below = |bound: usize| usize::try_from(rng.next_u64() % bound.max(1) as u64).unwrap();
        let mut bytes = SEEDS[below(SEEDS.len())].as_bytes().to_vec();
        for _ in 0..below(4) {
            let at = below(bytes.len());
            match below(3) {
                0 if !bytes.is_empty() => bytes[at] = SIGNIFICANT[below(SIGNIFICANT.len())],
                1 if !bytes.is_empty() => drop(bytes.remove(at)),
                _ => bytes.insert(at, SIGNIFICANT[below(SIGNIFICANT.len())]),
            }
        }
        uri(&bytes);
        accepted += u64::from(ConnectionString::parse(&String::from_utf8_lossy(&bytes)).is_ok());
    });
    assert!(
        (runs / 6..runs.max(2)).contains(&accepted),
        "{accepted} of {runs} accepted: the mutations change too much or too little"
    );
}

#[test]
fn the_body_holds_on_strings_combined_from_pieces() {
    let mut accepted = 0;
    let runs = each_seed(500, |seed| {
        let mut rng = Rng::new(seed);
        let count = rng.next_u64() % 14;
        let bytes: Vec<u8> = (0..count).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
        uri(&bytes);
        accepted += u64::from(ConnectionString::parse(&pieces(&bytes)).is_ok());
    });
    assert!(accepted >= runs / 40, "only {accepted} of {runs} accepted");
}

#[test]
fn the_body_holds_on_every_byte_before_a_significant_one() {
    for first in 0..=255_u8 {
        uri(&[first]);
        for second in *b"%:/?&=,;@[].0a\0\xc3" {
            uri(&[first, second]);
            uri(&[b'a', first, second]);
        }
    }
}
