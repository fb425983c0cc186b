//! Servers in memory and the transports to them.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use alloc::{format, vec};
use core::cell::RefCell;
use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use std::io::{self, Read as _, Write as _};

use embedded_io_async::{ErrorType, Read, Write};
use poolhouse_core::Cause;
use poolhouse_tests::tls::{CertificateRequest, Holder, Identity, ServerTls, Versions};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{ServerConfig, ServerConnection};

use super::super::options::{TlsConfig, TlsOptions};
use super::super::session::Session;
use super::super::watch::Watch;

/// The name of servers in memory.
pub(super) const HOST: &str = "db.example.com";

pub(super) fn clock() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

/// Pseudorandom bytes, different for each call.
pub(super) fn random(bytes: &mut [u8]) {
    use core::hash::{BuildHasher, Hasher};
    for chunk in bytes.chunks_mut(8) {
        let value = std::collections::hash_map::RandomState::new().build_hasher().finish().to_le_bytes();
        chunk.copy_from_slice(&value[..chunk.len()]);
    }
}

pub(super) fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

pub(super) fn leak<T: ?Sized>(value: Box<T>) -> &'static mut T {
    Box::leak(value)
}

/// Options that trust these authorities, PEM.
pub(super) fn options(authorities: &[&str]) -> TlsOptions {
    let ders: Vec<&'static [u8]> =
        authorities.iter().map(|pem| &*leak(der(pem).as_ref().to_vec().into_boxed_slice())).collect();
    TlsOptions::new(leak(ders.into_boxed_slice()), clock)
}

pub(super) fn config(authorities: &[&str]) -> TlsConfig {
    options(authorities).validate().unwrap()
}

/// An authority, and a server whose certificate it has issued.
pub(super) struct Fixture {
    pub(super) root: Holder,
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self { root: Holder::root("root") }
    }

    pub(super) fn config(&self) -> TlsConfig {
        config(&[&self.root.certificate()])
    }

    pub(super) fn server(&self) -> ServerTls {
        ServerTls::new(self.root.issue(&CertificateRequest::server(&[HOST, "10.1.2.3"])).identity())
    }
}

/// Selects a fixed certificate chain and key, without checking them.
#[derive(Debug)]
struct Shown(Arc<CertifiedKey>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// A server that sends these certificates and signs with this key, even if they do not match.
pub(super) fn shows(chain: Vec<CertificateDer<'static>>, key: &str) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    shows_with(chain, provider.key_provider.load_private_key(key).unwrap())
}

/// [`shows`] with a key that may sign in its own way.
pub(super) fn shows_with(chain: Vec<CertificateDer<'static>>, key: Arc<dyn SigningKey>) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
    let builder = builder.unwrap().with_no_client_auth();
    Arc::new(builder.with_cert_resolver(Arc::new(Shown(Arc::new(CertifiedKey::new(chain, key))))))
}

pub(super) fn shows_identity(identity: &Identity) -> Arc<ServerConfig> {
    let chain = CertificateDer::pem_slice_iter(identity.certificates.as_bytes()).map(Result::unwrap).collect();
    shows(chain, &identity.key)
}

/// The server's end of a transport.
pub(super) struct Far {
    pub(super) peer: Peer,
    /// Bytes for the client.
    pub(super) output: Vec<u8>,
    /// The number of bytes that the client has read.
    pub(super) given: usize,
    /// Decrypted bytes from the client.
    pub(super) heard: Vec<u8>,
    /// Whether the server returns all data to the client.
    pub(super) echo: bool,
    /// The error with which the server has failed.
    pub(super) failure: Option<String>,
    /// Whether the client has sent close_notify.
    pub(super) said_goodbye: bool,
    /// The index of a byte that is changed on its way to the client, and the value that changes it.
    pub(super) damage: Option<(usize, u8)>,
    /// The number of bytes after which the client receives no more.
    pub(super) cut: Option<usize>,
    /// The maximum number of bytes for each read or write.
    pub(super) chunk: usize,
    /// Whether a read without available bytes waits; otherwise it returns the end of the stream.
    pub(super) patient: bool,
    /// Whether writes never complete.
    pub(super) stuck: bool,
    /// The number of dropped client ends.
    pub(super) dropped: usize,
}

pub(super) enum Peer {
    Rustls(Box<ServerConnection>),
    Liar(Box<super::liar::Liar>),
    /// Its output is fixed; the client's bytes are ignored.
    Script,
}

impl Far {
    /// Sends data that the client has not requested.
    pub(super) fn say(&mut self, bytes: &[u8]) {
        match &mut self.peer {
            Peer::Rustls(tls) => tls.writer().write_all(bytes).unwrap(),
            Peer::Liar(_) | Peer::Script => unreachable!(),
        }
        self.collect();
    }

    /// Ends the session with close_notify.
    pub(super) fn end(&mut self) {
        match &mut self.peer {
            Peer::Rustls(tls) => tls.send_close_notify(),
            Peer::Liar(_) | Peer::Script => unreachable!(),
        }
        self.collect();
    }

    fn collect(&mut self) {
        if let Peer::Rustls(tls) = &mut self.peer {
            while tls.wants_write() {
                tls.write_tls(&mut self.output).unwrap();
            }
        }
    }

    fn hear(&mut self, mut bytes: &[u8]) {
        match &mut self.peer {
            Peer::Script => {}
            Peer::Liar(liar) => self.output.extend(liar.hear(bytes)),
            Peer::Rustls(tls) => {
                while !bytes.is_empty() {
                    tls.read_tls(&mut bytes).unwrap();
                    match tls.process_new_packets() {
                        Ok(state) => self.said_goodbye |= state.peer_has_closed(),
                        Err(error) => self.failure = Some(format!("{error}")),
                    }
                    let mut buffer = vec![0; 20_000];
                    while let Ok(count @ 1..) = tls.reader().read(&mut buffer) {
                        self.heard.extend_from_slice(&buffer[..count]);
                        if self.echo {
                            tls.writer().write_all(&buffer[..count]).unwrap();
                        }
                    }
                }
                self.collect();
            }
        }
    }
}

/// The client's end of a transport.
pub(super) struct Wire(pub(super) Rc<RefCell<Far>>);

impl Wire {
    pub(super) fn new(peer: Peer) -> Self {
        Self(Rc::new(RefCell::new(Far {
            peer,
            output: Vec::new(),
            given: 0,
            heard: Vec::new(),
            echo: true,
            failure: None,
            said_goodbye: false,
            damage: None,
            cut: None,
            chunk: usize::MAX,
            patient: false,
            stuck: false,
            dropped: 0,
        })))
    }

    pub(super) fn to(config: &Arc<ServerConfig>) -> Self {
        let mut connection = ServerConnection::new(Arc::clone(config)).unwrap();
        connection.set_buffer_limit(None);
        Self::new(Peer::Rustls(Box::new(connection)))
    }

    pub(super) fn script(bytes: &[u8]) -> Self {
        let wire = Self::new(Peer::Script);
        wire.0.borrow_mut().output = bytes.to_vec();
        wire
    }

    pub(super) fn with(self, change: impl FnOnce(&mut Far)) -> Self {
        change(&mut self.0.borrow_mut());
        self
    }

    /// The server's end of this transport.
    pub(super) fn far(&self) -> Rc<RefCell<Far>> {
        Rc::clone(&self.0)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.0.borrow_mut().dropped += 1;
    }
}

impl ErrorType for Wire {
    type Error = io::Error;
}

impl Read for Wire {
    async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        core::future::poll_fn(|_| {
            let mut far = self.0.borrow_mut();
            let mut count = far.output.len().min(buf.len()).min(far.chunk);
            if let Some(cut) = far.cut {
                count = count.min(cut - far.given);
            }
            if count == 0 {
                return if far.patient { Poll::Pending } else { Poll::Ready(Ok(0)) };
            }
            for (to, from) in buf.iter_mut().zip(far.output.drain(..count)) {
                *to = from;
            }
            if let Some((at, change)) = far.damage
                && let Some(byte) = at.checked_sub(far.given).and_then(|at| buf[..count].get_mut(at))
            {
                *byte ^= change;
            }
            far.given += count;
            Poll::Ready(Ok(count))
        })
        .await
    }
}

impl Write for Wire {
    async fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        core::future::poll_fn(|_| {
            let mut far = self.0.borrow_mut();
            if far.stuck {
                return Poll::Pending;
            }
            let count = buf.len().min(far.chunk);
            far.hear(&buf[..count]);
            Poll::Ready(Ok(count))
        })
        .await
    }

    async fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Polls a future to its end, with a limit on the number of polls.
pub(super) fn run<F: Future>(future: F) -> F::Output {
    run_for(future, 1_000_000).expect("it is done")
}

/// Polls a future at most this many times.
pub(super) fn run_for<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    (0..polls).find_map(|_| match future.as_mut().poll(&mut context) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    })
}

/// The memory of a session.
pub(super) struct Memory {
    pub(super) watch: Watch,
    pub(super) receive: Vec<u8>,
    pub(super) send: Vec<u8>,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self::of(16640, 1152)
    }

    pub(super) fn of(receive: usize, send: usize) -> Self {
        Self { watch: Watch::new(), receive: vec![0xa5; receive], send: vec![0x5a; send] }
    }

    pub(super) fn session<S: Read + Write>(&mut self, socket: S) -> Session<'_, S> {
        Session::new(socket, &self.watch, &mut self.receive, &mut self.send)
    }
}

/// Performs the handshake, and writes data that the server returns.
pub(super) fn check(config: &TlsConfig, host: &str, wire: Wire) -> Result<(), Cause> {
    let mut memory = Memory::new();
    let mut session = memory.session(wire);
    run(session.open(host, config, random))?;
    run(session.write_all(b"hello"))?;
    run(session.flush())?;
    let mut heard = Vec::new();
    while heard.len() < 5 {
        assert!(run(session.read(|bytes| {
            heard.extend_from_slice(bytes);
            bytes.len()
        }))?);
    }
    assert_eq!(heard, b"hello");
    Ok(())
}

/// The result of a hosted client with the same server.
pub(super) fn hosted(authorities: &[&str], host: &str, wire: Wire) -> Result<(), Cause> {
    use poolhouse_client::tls;
    let folder = poolhouse_tests::tls::Folder::new();
    let mut options = tls::TlsOptions::default();
    options.ca_file = Some(folder.write("ca.pem", authorities.concat()));
    let config = tls::TlsConfig::build(&options).unwrap();
    let opened = run(tls::TlsStream::connect(&config, host, wire));
    opened.map(drop).map_err(|error| error.cause())
}

/// The configuration of a server, limited to these versions.
pub(super) fn speaks(mut server: ServerTls, versions: Versions) -> Arc<ServerConfig> {
    server.versions = versions;
    server.config().unwrap()
}
