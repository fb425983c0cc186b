//! Connection strings with common mistakes, each with the whole text of the error or the warnings.
//!
//! `cargo test -p poolhouse-smol --test connection_strings -- --nocapture` prints them as a table.
//! The number of a row is that of its kind of mistake. All rows run at the same time, with a short
//! `serverSelectionTimeoutMS`. In the texts, `T` replaces each time, and ports are those that the
//! system assigned.
#![cfg(all(feature = "tls", feature = "auth"))]

extern crate alloc;

use alloc::sync::Arc;
use core::net::SocketAddr;
use core::pin::Pin;
use core::time::Duration;
use poolhouse_smol::poolhouse_uri::dns::{LookupError, Resolver, SrvAnswer};
use poolhouse_smol::{Client, ClientOptions, Error};
use poolhouse_tests::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions};
use poolhouse_tests::fake::{FakeOptions, FakeServer, FakeUser, Role, ServerState};
use poolhouse_tests::patience::{connection_refused, run};
use poolhouse_tests::tls::{CertificateRequest, Folder, Holder, ServerTls};
use std::io::{self, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::time::Instant;

/// The time limit of each selection.
const SELECTION: &str = "serverSelectionTimeoutMS=2000";

/// A resolver that resolves no name. Its error for a host has the text of the system's resolver.
#[derive(Debug)]
struct Nobody;

#[async_trait::async_trait]
impl Resolver for Nobody {
    async fn lookup_srv(&self, _name: &str) -> Result<SrvAnswer, LookupError> {
        Err(LookupError::NoSuchName)
    }

    async fn lookup_txt(&self, _name: &str) -> Result<Vec<String>, LookupError> {
        Err(LookupError::NoSuchName)
    }

    async fn lookup_addresses(&self, _host: &str) -> Option<Result<Vec<core::net::IpAddr>, LookupError>> {
        Some(Err(LookupError::Other("Name or service not known".to_owned())))
    }
}

/// The expected outcome of a row.
enum Expected {
    /// This error.
    Error(String),
    /// Success, with these warnings.
    Works(Vec<String>),
}

struct Row {
    number: &'static str,
    uri: String,
    command: bson::Document,
    expected: Expected,
}

fn row(number: &'static str, uri: impl Into<String>, expected: impl Into<String>) -> Row {
    Row { number, uri: uri.into(), command: bson::doc! { "ping": 1 }, expected: Expected::Error(expected.into()) }
}

/// A row with one option that is ignored. Its warning names the byte at which the option begins.
fn warned(number: &'static str, uri: String, warning: &str) -> Row {
    let place = uri.find('?').expect("options") + 1;
    Row { expected: Expected::Works(vec![format!("{warning} (at byte {place})")]), ..row(number, uri, "") }
}

/// The error of a selection that found no server.
fn none(topology: &str) -> String {
    format!("no suitable server within T s; topology: {topology}")
}

/// Runs a command on a client of this string. Returns the warnings or the error, and the duration.
async fn outcome(uri: &str, command: bson::Document) -> (Result<Vec<String>, Error>, Duration) {
    let begun = Instant::now();
    let work = async {
        let mut options = ClientOptions::resolve(uri, Arc::new(Nobody)).await?;
        options.resolver = Some(Arc::new(Nobody));
        let client = Client::with_options(options)?;
        let warnings = client.warnings().iter().map(ToString::to_string).collect();
        let result = client.run_command("db", command).await;
        client.close().await;
        result.map(|_| warnings)
    };
    (work.await, begun.elapsed())
}

/// Replaces each time in a text by `T`.
fn without_times(text: &str) -> String {
    let mut words: Vec<&str> = text.split(' ').collect();
    for place in 1..words.len() {
        let is_time =
            words[place].starts_with('s') && words[place].len() <= 3 && words[place - 1].parse::<f64>().is_ok();
        if is_time {
            words[place - 1] = "T";
        }
    }
    words.join(" ")
}

/// A port of this address at which no server listens.
fn closed_port(host: &str) -> io::Result<u16> {
    Ok(TcpListener::bind((host, 0))?.local_addr()?.port())
}

/// Accepts connections and handles each one on a separate thread.
fn listen(handle: fn(std::net::TcpStream) -> io::Result<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().take(64).flatten() {
            std::thread::spawn(move || handle(stream));
        }
    });
    address
}

/// Reads until the peer closes the connection, and writes nothing.
fn keeps_silent(mut stream: std::net::TcpStream) -> io::Result<()> {
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer)? > 0 {}
    Ok(())
}

/// Reads the first message and closes the connection, as a server that requires TLS may do.
fn hangs_up(mut stream: std::net::TcpStream) -> io::Result<()> {
    let mut buffer = [0; 4096];
    stream.read(&mut buffer).map(drop)
}

fn speaks_http(mut stream: std::net::TcpStream) -> io::Result<()> {
    let mut buffer = [0; 4096];
    let _request = stream.read(&mut buffer)?;
    stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
}

/// A path, percent-encoded for a connection string.
fn escaped(path: &Path) -> String {
    path.to_str().expect("text").replace('%', "%25").replace('/', "%2F")
}

fn start(options: FakeOptions) -> FakeServer {
    FakeServer::start(options).expect("the fake server starts")
}

fn with_tls(tls: ServerTls) -> FakeServer {
    let mut options = FakeOptions::default();
    options.tls = Some(tls);
    start(options)
}

/// The only member of a replica set. The configuration of the set names it `mongo1:29114`.
fn member_of_other_name() -> FakeServer {
    let mut state = ServerState::default();
    state.role = Role::Secondary;
    state.fields = bson::doc! { "setName": "rs9", "setVersion": 1, "hosts": ["mongo1:29114"], "me": "mongo1:29114" };
    start(FakeOptions::with_state(state))
}

#[test]
fn each_mistake_in_a_connection_string_has_a_text_with_its_reason() {
    let folder = Folder::new();
    let root = Holder::root("root");
    let ca = escaped(&folder.write("ca.pem", root.certificate()));
    let other_ca = escaped(&folder.write("other.pem", Holder::root("other").certificate()));
    let encrypted = with_tls(ServerTls::new(root.issue(&CertificateRequest::server(&["127.0.0.1"])).identity()));
    let misnamed = with_tls(ServerTls::new(root.issue(&CertificateRequest::server(&["db.example"])).identity()));
    let plain = start(FakeOptions::default());
    let guarded = start(FakeOptions::with_users(vec![FakeUser::new("ada", "right")]));
    let set = FakeReplicaSet::start(FakeReplicaSetOptions::of(2).by_hand()).expect("the set starts");
    let primary = set.primary().expect("elected");
    let secondary = set.address(1 - primary);
    let renamed = member_of_other_name();
    let (silent, mute, http) = (listen(keeps_silent), listen(hangs_up), listen(speaks_http));
    let closed = closed_port("127.0.0.1").expect("a port of the loopback interface");
    let socket = folder.path().join("none.sock");
    let no_file = folder.path().join("none.pem");

    let insert = bson::doc! { "insert": "c", "documents": [{}] };
    let unknown =
        |address: &dyn core::fmt::Display, error: &str| none(&format!("Unknown [{address}: Unknown ({error})]"));
    let unresolved = "host name not resolved: Name or service not known";
    let (p, e, m, g) = (plain.address(), encrypted.address(), misnamed.address(), guarded.address());
    let r = renamed.address();
    let mut rows = vec![
        row(
            "01",
            "mongodb+srv://cluster0.ab1cd.mongodb.net/",
            "SRV lookup of _mongodb._tcp.cluster0.ab1cd.mongodb.net: the name does not exist",
        ),
        row("02", format!("mongodb://mongo:27017/?{SELECTION}"), unknown(&"mongo:27017", unresolved)),
        row(
            "03",
            format!("mongodb://mongo-0.mongo.default.svc.cluster.local/?{SELECTION}"),
            unknown(&"mongo-0.mongo.default.svc.cluster.local:27017", unresolved),
        ),
        row(
            "04b",
            format!("mongodb://{}/?{SELECTION}", escaped(&socket)),
            unknown(&socket.display(), "network error: No such file or directory (os error 2)"),
        ),
        row(
            "04c",
            "mongodb:///tmp/mongodb-27017.sock/",
            "a host is missing; the path of a unix socket must be percent-encoded (at byte 10)",
        ),
        row(
            "05",
            format!("mongodb://{e}/?tls=true&tlsCAFile={other_ca}&{SELECTION}"),
            unknown(
                &e,
                "certificate refused: its issuer is not trusted: TLS handshake: invalid peer certificate: UnknownIssuer; \
                 tlsCAFile or TlsOptions names the authorities to trust",
            ),
        ),
        row(
            "05c",
            format!("mongodb://{m}/?tls=true&tlsCAFile={ca}&{SELECTION}"),
            unknown(
                &m,
                "certificate refused: it is not valid for the name of the host: TLS handshake: invalid peer certificate: \
                 certificate not valid for name \"127.0.0.1\"; certificate is only valid for DnsName(\"db.example\")",
            ),
        ),
        row(
            "05d",
            format!("mongodb://{p}/?tls=true&tlsCAFile={ca}&{SELECTION}"),
            unknown(
                &p,
                "network error: the server closed the connection during the TLS handshake; does the server use TLS?",
            ),
        ),
        row(
            "05e",
            format!("mongodb://{e}/?{SELECTION}"),
            unknown(&e, "network error: the server replies in TLS; does it require TLS? (tls=true)"),
        ),
        row(
            "05e, as mongod",
            format!("mongodb://{mute}/?{SELECTION}"),
            unknown(&mute, "network error: the server closed the connection; does the server require TLS? (tls=true)"),
        ),
        row(
            "05f",
            format!("mongodb://{e}/?tls=true&tlsCAFile={}", escaped(&no_file)),
            format!("tlsCAFile {}: cannot be read: entity not found", no_file.display()),
        ),
        Row {
            expected: Expected::Works(vec![
                "INSECURE: tlsAllowInvalidCertificates or tlsInsecure is set; any server is trusted, and an attacker on the network \
                 path can read and change all data"
                    .to_owned(),
            ]),
            ..row("05g", format!("mongodb://{m}/?tls=true&tlsInsecure=true"), "")
        },
        row(
            "06",
            format!("mongodb://ada:wrong@{g}/?{SELECTION}"),
            format!(
                "{g}: Could not establish a connection: authentication failed: the server refused with code 18: \
                 Authentication failed. (authSource admin, authMechanism SCRAM-SHA-256)"
            ),
        ),
        Row {
            command: insert.clone(),
            ..row(
                "06b",
                format!("mongodb://{g}/?{SELECTION}"),
                format!("{g}: the command failed with code 13 (Unauthorized): command insert requires authentication"),
            )
        },
        row(
            "06c",
            format!("mongodb://ada:right@{g}/shop?{SELECTION}"),
            format!(
                "{g}: Could not establish a connection: authentication failed: the server refused with code 18: \
                 Authentication failed. (authSource shop, authMechanism SCRAM-SHA-1)"
            ),
        ),
        warned("07", format!("mongodb://{p}/?maxPoolSzie=10"), "maxPoolSzie: unknown option, ignored; did you mean maxPoolSize?"),
        warned("07b", format!("mongodb://{p}/?timeoutMS=soon"), "timeoutMS: must be a number from 0 to 2147483647; ignored"),
        row("08", "mongodb://ada:100%@localhost/", "a percent sign must be percent-encoded (%25) (at byte 17)"),
        row("08b", "mongodb://ada:p@ss@localhost/", "username and password must be percent-encoded (at byte 10)"),
        row("08c", "mongodb://ada:pa/ss@localhost/", "username and password must be percent-encoded (at byte 10)"),
        row("09b", "mongodb://::1:27017/", "an IPv6 address must be enclosed in [ and ] (at byte 10)"),
        row(
            "10",
            format!("mongodb://{secondary}/?replicaSet=rs1&{SELECTION}"),
            none(&format!(
                "ReplicaSetNoPrimary rs1 []; the client looks for replica set \"rs1\"; {secondary} is a member of \"{}\"",
                set.set_name()
            )),
        ),
        row(
            "11",
            "mongodb://a,b/?directConnection=true",
            "directConnection: cannot be used with more than one host",
        ),
        Row {
            command: insert,
            ..row(
                "11b",
                format!("mongodb://{secondary}/?directConnection=true&{SELECTION}"),
                format!(
                    "{secondary}: the command failed with code 10107 (NotWritablePrimary): not primary; \
                     directConnection=true reached a member that is not the primary; \
                     without it, the client finds the primary"
                ),
            )
        },
        row(
            "12",
            format!("mongodb://127.0.0.1:{closed}/?{SELECTION}"),
            unknown(&format!("127.0.0.1:{closed}"), &format!("network error: {}", connection_refused())),
        ),
        row("13", format!("mongodb://db.example.invalid/?{SELECTION}"), unknown(&"db.example.invalid:27017", unresolved)),
        row(
            "14",
            format!("mongodb://{silent}/?connectTimeoutMS=1000&{SELECTION}"),
            unknown(&silent, "network timeout: the server did not reply to hello in time"),
        ),
        row(
            "14b",
            format!("mongodb://{silent}/?timeoutMS=1500"),
            unknown(&silent, "no reply yet: waiting for the reply to hello for T s"),
        ),
        row(
            "15",
            format!("mongodb://{r}/?replicaSet=rs9&{SELECTION}"),
            none(&format!(
                "ReplicaSetNoPrimary rs9 [mongo1:29114: Unknown ({unresolved})]; the configuration of the replica set, which {r} is a \
                 member of, names its members by these hosts; this machine must be able to resolve them, or use directConnection=true"
            )),
        ),
        row(
            "16",
            format!("mongodb://{http}/?{SELECTION}"),
            unknown(
                &http,
                "wire protocol error: the bytes are not MongoDB's protocol; the server replies in HTTP",
            ),
        ),
        row(
            "16b",
            format!("mongodb://{http}/?tls=true&tlsCAFile={ca}&{SELECTION}"),
            unknown(&http, "wire protocol error: the server's bytes are not TLS; does the server use TLS?"),
        ),
        row(
            "17",
            "localhost:27017",
            "a connection string must begin with mongodb:// or mongodb+srv:// (at byte 0)",
        ),
    ];

    match closed_port("::1") {
        Ok(port) => rows.push(row(
            "09",
            format!("mongodb://[::1]:{port}/?{SELECTION}"),
            unknown(&format!("[::1]:{port}"), &format!("network error: {}", connection_refused())),
        )),
        Err(error) => {
            eprintln!("skipped: row 09: no IPv6: {error}");
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "row 09 needs IPv6");
        }
    }

    let outcomes: Vec<_> = run(async {
        let tasks: Vec<_> = rows
            .iter_mut()
            .map(|row| {
                let (uri, command) = (row.uri.clone(), core::mem::take(&mut row.command));
                smol::spawn(async move { outcome(&uri, command).await })
            })
            .collect();
        let mut outcomes = Vec::new();
        for task in tasks {
            outcomes.push(task.await);
        }
        outcomes
    });

    let mut wrong = Vec::new();
    println!("| # | string | text | time |\n|---|---|---|---|");
    for (row, (result, time)) in rows.iter().zip(outcomes) {
        let text = match &result {
            Ok(warnings) if warnings.is_empty() => "works".to_owned(),
            Ok(warnings) => format!("works; {}", warnings.join("; ")),
            Err(error) => without_times(&error.to_string()),
        };
        println!("| {} | `{}` | `{text}` | {:.2} s |", row.number, row.uri, time.as_secs_f64());
        let is_right = match (&row.expected, &result) {
            (Expected::Error(expected), Err(_)) => text == *expected,
            (Expected::Works(expected), Ok(warnings)) => warnings == expected,
            (Expected::Error(_), Ok(_)) | (Expected::Works(_), Err(_)) => false,
        };
        if !is_right {
            let expected = match &row.expected {
                Expected::Error(expected) => expected.clone(),
                Expected::Works(warnings) => warnings.join("; "),
            };
            wrong.push(format!("{}\n  is       {text}\n  should be {expected}", row.number));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The kind of the error at the end of the chain of sources, if that error is the operating
/// system's.
fn root(error: &Error) -> Option<io::ErrorKind> {
    let mut end: &(dyn core::error::Error + 'static) = error;
    while let Some(source) = end.source() {
        end = source;
    }
    end.downcast_ref::<io::Error>().map(io::Error::kind)
}

type Work<'a> = Pin<Box<dyn Future<Output = Error> + 'a>>;

/// A command of a client that was connected until the server was killed, and a check-out of a
/// client that was made after that.
#[test]
fn chain_of_sources_ends_at_the_error_of_the_operating_system() {
    run(async {
        let server = start(FakeOptions::default());
        let uri = format!("mongodb://{}/?{SELECTION}", server.address());
        let client = Client::with_options(ClientOptions::parse(&uri).expect("the string is right"))
            .expect("the options are right");
        client.run_command("db", bson::doc! { "ping": 1 }).await.expect("a ping");
        server.kill().expect("killed");
        let checks: [Work<'_>; 2] = [
            Box::pin(async {
                // The first command may fail because its connection was reset. The last one fails
                // because no server was selected.
                loop {
                    let error =
                        client.run_command("db", bson::doc! { "ping": 1 }).await.expect_err("the server was killed");
                    if error.is_timeout() {
                        return error;
                    }
                }
            }),
            Box::pin(async {
                let other = Client::with_options(ClientOptions::parse(&uri).expect("right")).expect("right");
                other.check_out().await.map(drop).expect_err("the server was killed")
            }),
        ];
        for check in checks {
            let error = check.await;
            assert_eq!(root(&error), Some(io::ErrorKind::ConnectionRefused), "{error:?}");
            let address = server.address();
            let reason = format!("{address}: Unknown (network error: {})", connection_refused());
            assert!(error.to_string().contains(&reason), "{error}");
        }
        client.close().await;
    });
}
