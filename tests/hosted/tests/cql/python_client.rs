//! PyPI's `cassandra-driver` accepts the server as a cluster. Skipped by name if it is not
//! installed; with `CI=true` that is a failure.
//!
//! `POOLHOUSE_CQL_PYTHON=$(tests/scripts/cql-client) cargo test -p poolhouse-hosted --test cql`

use poolhouse_tests::cql_server::{Act, CqlServer, CqlServerOptions, Order, RequestKind, Rule};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Number of replies that are sent together. `cassandra_client.py` sends a multiple of it of the
/// held requests.
const HELD: usize = 50;

/// The server's options, and the arguments of `cassandra_client.py`.
struct Case {
    options: CqlServerOptions,
    /// Version, compression, user and password, expected result.
    words: [&'static str; 4],
    /// The final version of the connections.
    version: Option<u8>,
}

fn runs(name: &str, case: Case) {
    let Some(python) = std::env::var_os("POOLHOUSE_CQL_PYTHON") else {
        let reason = std::env::var("POOLHOUSE_CQL_PYTHON_MISSING");
        let reason = reason.unwrap_or_else(|_| "POOLHOUSE_CQL_PYTHON is not set (see tests/scripts/cql-client)".into());
        assert!(std::env::var("CI").as_deref() != Ok("true"), "skipped: cql/{name}: {reason}");
        // Not by eprintln: the test runner hides its output in passing tests.
        let line = format!("\nskipped: cql/{name}: {reason}\n");
        std::io::stderr().write_all(line.as_bytes()).expect("standard error is open");
        return;
    };
    let server = CqlServer::start(case.options).expect("loopback");
    // None of the held requests is answered before `HELD` of them have arrived, however slowly; the
    // others continue meanwhile.
    server.add(Rule::on(RequestKind::Query, Act::Hold { count: HELD, order: Order::Shuffled(7) }).text("delay 0 "));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients/cassandra_client.py");
    let address = server.address();
    // Far longer than the script's own limits.
    let done = Command::new("timeout")
        .arg("200")
        .arg(python)
        .arg(script)
        .args([address.ip().to_string(), address.port().to_string()])
        .args(case.words)
        .stdin(Stdio::null())
        .output()
        .expect("the program timeout is installed");
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{name}: {}: {said}\n{:?}", done.status, server.counts());
    if let Some(version) = case.version {
        let log = server.log();
        assert_eq!(log.last().map(|last| last.version), Some(version), "{said}");
        assert!(server.counts().waiting_max >= HELD as u64, "too few requests in flight: {:?}", server.counts());
    }
}

macro_rules! cases {
    ($($name:ident: $options:expr, $words:expr, $version:expr;)+) => {
        $(
            #[test]
            fn $name() {
                runs(stringify!($name), Case { options: $options, words: $words, version: $version });
            }
        )+
    };
}

fn plain() -> CqlServerOptions {
    CqlServerOptions::default()
}

fn closed() -> CqlServerOptions {
    plain().with_credentials("ada", "pencil")
}

cases! {
    cassandra_driver_works_in_v3: plain(), ["3", "none", "none", "ok"], Some(3);
    cassandra_driver_works_in_v3_with_snappy_and_a_password: closed(), ["3", "snappy", "ada:pencil", "ok"], Some(3);
    cassandra_driver_works_in_v4_with_a_password: closed(), ["4", "none", "ada:pencil", "ok"], Some(4);
    cassandra_driver_works_in_v4_with_lz4: plain(), ["4", "lz4", "none", "ok"], Some(4);
    cassandra_driver_works_in_v5: plain(), ["5", "none", "none", "ok"], Some(5);
    cassandra_driver_works_in_v5_with_lz4_and_a_password: closed(), ["5", "lz4", "ada:pencil", "ok"], Some(5);
    cassandra_driver_goes_down_to_v5_by_itself: plain(), ["any", "none", "none", "ok"], Some(5);
    cassandra_driver_goes_down_to_v3_by_itself:
        CqlServerOptions::with_versions(&[3]), ["any", "lz4", "none", "ok"], Some(3);
    cassandra_driver_is_refused_with_a_wrong_password: closed(), ["4", "none", "ada:pen", "refused"], None;
}
