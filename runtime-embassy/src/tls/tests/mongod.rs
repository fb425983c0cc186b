//! Tests with a real server that uses OpenSSL.

use alloc::vec;
use alloc::vec::Vec;
use core::task::{Context, Waker};
use core::time::Duration;
use std::io;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use embedded_io_async::{ErrorType, Read, Write};
use poolhouse_core::{Cause, CertificateFault};
use poolhouse_tests::mongod::{self, Mongod, MongodOptions, MongodTls};
use poolhouse_tests::tls::{CertificateRequest, Folder, Holder};

use super::super::options::{MaxFragment, TlsConfig};
use super::super::session::Session;
use super::support::{Fixture, Memory, options, random, run};

/// A blocking socket: polling it blocks the thread.
struct Blocking(TcpStream);

impl ErrorType for Blocking {
    type Error = io::Error;
}

impl Read for Blocking {
    async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Write for Blocking {
    async fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    async fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A command without arguments.
fn command(name: &str) -> Vec<u8> {
    let mut document = vec![0x10];
    document.extend_from_slice(name.as_bytes());
    document.extend_from_slice(&[0, 1, 0, 0, 0, 2]);
    document.extend_from_slice(b"$db\0\x06\0\0\0admin\0\0");
    let len = u32::try_from(document.len() + 4).unwrap().to_le_bytes();
    let mut message = (u32::try_from(document.len()).unwrap() + 25).to_le_bytes().to_vec();
    message.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 0xdd, 7, 0, 0, 0, 0, 0, 0, 0]);
    message.extend_from_slice(&len);
    message.extend_from_slice(&document);
    message
}

/// Sends a command and returns the length of the reply.
fn ask<S: Read + Write>(session: &mut Session<'_, S>, name: &str) -> Result<usize, Cause> {
    run(session.write_all(&command(name)))?;
    run(session.flush())?;
    let mut reply = Vec::new();
    loop {
        let goes_on = run(session.read(|bytes| {
            reply.extend_from_slice(bytes);
            bytes.len()
        }))?;
        assert!(goes_on);
        if let [a, b, c, d, ..] = *reply.as_slice() {
            let len = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap();
            if reply.len() >= len {
                assert_eq!(reply.len(), len);
                return Ok(len);
            }
        }
    }
}

fn visit(server: &Mongod, config: &TlsConfig, receive: usize) -> Result<usize, Cause> {
    let socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut memory = Memory::of(receive, 640);
    let mut session = memory.session(Blocking(socket));
    run(session.open("127.0.0.1", config, random))?;
    ask(&mut session, "ping")?;
    let len = ask(&mut session, "listCommands");
    session.goodbye(&mut Context::from_waker(Waker::noop()));
    len
}

#[test]
fn mongod_respects_the_record_size_and_a_client_without_its_root_refuses_it() {
    if let Err(why) = mongod::available() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "not run: {why} (with CI=true that is a failure)");
        // `eprintln!` is not used because libtest captures its output.
        let name = "mongod_respects_the_record_size_and_a_client_without_its_root_refuses_it";
        let _ = writeln!(std::io::stderr(), "skipped: {name}: {why}");
        return;
    }
    let fixture = Fixture::new();
    let folder = Folder::new();
    let identity = fixture.root.issue(&CertificateRequest::server(&["127.0.0.1"])).identity();
    let tls = MongodTls {
        certificate_key_file: folder.write("server.pem", identity.pem()),
        ca_file: Some(folder.write("ca.pem", fixture.root.certificate())),
        allow_without_certificate: true,
        required: false,
    };
    let server = Mongod::start(MongodOptions { tls: Some(tls), ..MongodOptions::default() }).unwrap();
    let whole = visit(&server, &fixture.config(), 16640).unwrap();
    assert!(whole > 17_000, "more than a record: {whole}");
    // Without a requested limit, the server sends records that are too large.
    assert_eq!(visit(&server, &fixture.config(), 1280), Err(Cause::Protocol));
    for fragment in [MaxFragment::Bytes1024, MaxFragment::Bytes2048, MaxFragment::Bytes4096] {
        let mut options = options(&[&fixture.root.certificate()]);
        options.max_fragment = Some(fragment);
        let config = options.validate().unwrap();
        assert_eq!(visit(&server, &config, fragment.bytes() + 256), Ok(whole), "{fragment:?}");
    }
    let stranger = super::support::config(&[&Holder::root("stranger").certificate()]);
    assert_eq!(visit(&server, &stranger, 16640), Err(Cause::Certificate(CertificateFault::UnknownIssuer)));
}
