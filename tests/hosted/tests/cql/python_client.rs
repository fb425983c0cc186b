//! PyPI's `cassandra-driver` accepts the server as a cluster. Skipped by name if it is not
//! installed; with `CI=true` that is a failure.
//!
//! `POOLHOUSE_CQL_PYTHON=$(tests/scripts/cql-client) cargo test -p poolhouse-hosted --features servers --test cql`

use poolhouse_tests::cassandra::{other_driver, script_of_other_driver};
use poolhouse_tests::cql_server::{Act, CqlServer, CqlServerOptions, Order, RequestKind, Rule};
use std::io::Write;

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
    let python = match other_driver() {
        Ok(python) => python,
        Err(reason) => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "skipped: cql/{name}: {reason}");
            // Not by eprintln: the test runner hides its output in passing tests.
            let line = format!("\nskipped: cql/{name}: {reason}\n");
            std::io::stderr().write_all(line.as_bytes()).expect("standard error is open");
            return;
        }
    };
    let server = CqlServer::start(case.options).expect("loopback");
    // None of the held requests is answered before `HELD` of them have arrived, however slowly; the
    // others continue meanwhile.
    server.add(Rule::on(RequestKind::Query, Act::Hold { count: HELD, order: Order::Shuffled(7) }).text("delay 0 "));
    let done = script_of_other_driver(&python, "cassandra_client.py", server.address())
        .args(case.words)
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
