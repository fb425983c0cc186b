//! The fake server over TLS.

use core::time::Duration;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;

use async_io::Async;
use bson::doc;
use embedded_io_async::{ErrorType, Read, Write};
use futures_lite::future::block_on;
use poolhouse_client::tls::{TlsConfig, TlsOptions, TlsStream};
use poolhouse_core::{Cause, HostAddress};

use super::support::Fixture;
use crate::fake::{BlockingClient, Cut, FakeOptions, FakeServer, Fault};
use crate::tls::{CertificateRequest, Versions};

const PATIENCE: Duration = Duration::from_secs(20);

struct Socket(Async<TcpStream>);

impl ErrorType for Socket {
    type Error = io::Error;
}

impl Read for Socket {
    async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read_with(|mut socket| socket.read(buf)).await
    }
}

impl Write for Socket {
    async fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write_with(|mut socket| socket.write(buf)).await
    }

    async fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The blocking client of the fake server, over poolhouse's TLS.
struct Blocking(TlsStream<Socket>);

impl io::Read for Blocking {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        block_on(self.0.read(buffer))
    }
}

impl io::Write for Blocking {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        block_on(self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        block_on(self.0.flush())
    }
}

fn fake(fixture: &Fixture, versions: Versions) -> FakeServer {
    let mut tls =
        crate::tls::ServerTls::new(fixture.root.issue(&CertificateRequest::server(&["127.0.0.1"])).identity());
    tls.versions = versions;
    let mut options = FakeOptions::default();
    options.tls = Some(tls);
    FakeServer::start(options).unwrap()
}

fn client(server: &FakeServer, config: &TlsConfig) -> Result<BlockingClient<Blocking>, Cause> {
    let socket = TcpStream::connect(server.address()).unwrap();
    socket.set_nodelay(true).unwrap();
    let socket = Socket(Async::new(socket).unwrap());
    let stream = block_on(TlsStream::connect(config, "127.0.0.1", socket)).map_err(|error| error.cause())?;
    Ok(BlockingClient::over(Blocking(stream)))
}

#[test]
fn fake_server_greets_and_answers_over_tls() {
    let fixture = Fixture::new();
    for versions in [Versions::Tls12, Versions::Tls13] {
        let server = fake(&fixture, versions);
        let config = fixture.config();
        for _ in 0..2 {
            let mut client = client(&server, &config).unwrap();
            assert!(client.hello("app").unwrap().get_bool("isWritablePrimary").unwrap());
            for _ in 0..3 {
                assert_eq!(client.run("admin", doc! { "ping": 1 }).unwrap().get_f64("ok").unwrap(), 1.0);
            }
            // A large document in both directions.
            let payload = "x".repeat(2_000_000);
            let insert = doc! { "insert": "c", "documents": [{ "_id": 1, "payload": payload.as_str() }] };
            client.run("db", insert).unwrap();
            let found = client.run("db", doc! { "find": "c", "filter": { "_id": 1 } }).unwrap();
            assert!(found.to_string().contains(&payload));
            client.run("db", doc! { "delete": "c", "deletes": [{ "q": { "_id": 1 }, "limit": 1 }] }).unwrap();
        }
        server.wait_until(PATIENCE, |view| view.open_count() == 0).unwrap();
    }
}

#[test]
fn faults_of_the_fake_server_work_under_tls() {
    let fixture = Fixture::new();
    let server = fake(&fixture, Versions::All);
    let config = fixture.config();
    let mut client = client(&server, &config).unwrap();
    client.hello("app").unwrap();
    server.inject(Fault::Trickle { gap: Duration::ZERO });
    client.run("admin", doc! { "ping": 1 }).unwrap();
    server.clear_faults();
    let id = server.look(|view| view.open().last().map(|connection| connection.id)).unwrap();
    server.cut(id, Cut::Fin);
    server.wait_until(PATIENCE, |view| view.open_count() == 0).unwrap();
    let error = client.run("admin", doc! { "ping": 1 }).unwrap_err();
    assert_ne!(error.kind(), io::ErrorKind::InvalidData, "{error}");
}

#[test]
fn client_without_tls_cannot_connect() {
    let fixture = Fixture::new();
    let server = fake(&fixture, Versions::All);
    let mut plain = BlockingClient::connect(server.address(), PATIENCE).unwrap();
    assert!(plain.hello("app").is_err());
    // The server still works.
    assert!(client(&server, &fixture.config()).unwrap().hello("app").is_ok());
}

/// The client's sockets: an encrypted connection to a verified server is private, and its debug
/// output shows no content.
#[test]
fn sockets_of_a_client_are_private_once_they_are_encrypted_to_a_verified_server() {
    use poolhouse_client::{Net, Stream};
    use poolhouse_driver::{ConnectError, Runtime};
    let fixture = Fixture::new();
    let server = fake(&fixture, Versions::All);
    let net = Net::new(poolhouse_smol::Smol);
    let port = server.address().port();
    let address = HostAddress::Tcp { host: "127.0.0.1", port };
    let plain = block_on(net.connect(&address, None)).unwrap();
    assert_eq!((format!("{plain:?}").as_str(), net.is_private(&plain)), ("Tcp(..)", false));
    let encrypting = net.clone().with_tls(Some(fixture.config()));
    let stream = block_on(encrypting.connect(&address, None)).unwrap();
    assert_eq!((format!("{stream:?}").as_str(), encrypting.is_private(&stream)), ("Tls(..)", true));
    // Encrypted, but the server was not verified.
    let mut insecure = TlsOptions::default();
    insecure.allow_invalid_certificates = true;
    let trusting = net.clone().with_tls(Some(TlsConfig::build(&insecure).unwrap()));
    let unverified = block_on(trusting.connect(&address, None)).unwrap();
    assert_eq!((format!("{unverified:?}").as_str(), trusting.is_private(&unverified)), ("Tls(..)", false));
    let Stream::Tls(stream) = stream else { panic!("it is encrypted") };
    let socket = stream.get_ref().get_ref().expect("of this process");
    assert_eq!(socket.get_ref().peer_addr().unwrap().port(), port);
    // The host name then differs from that in the certificate.
    let named = HostAddress::Tcp { host: "localhost", port };
    let refused = block_on(encrypting.connect(&named, None)).map(drop);
    assert!(matches!(refused, Err(ConnectError { cause: Cause::Certificate(_), .. })), "{refused:?}");
}
