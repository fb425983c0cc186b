//! A server in memory, and the connection to it.

use alloc::rc::Rc;
use alloc::sync::Arc;
use core::cell::RefCell;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use std::io;

use embedded_io_async::{ErrorType, Read, Write};
use poolhouse_client::tls::{TlsConfig, TlsHandshakeError, TlsOptions, TlsStream};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme};

use crate::tls::{CertificateRequest, Folder, Holder, Identity, ServerTls, Side, Versions};

/// The host name of servers in memory.
pub(super) const HOST: &str = "db.example.com";

/// An authority, and a folder for its certificate.
pub(super) struct Fixture {
    pub(super) root: Holder,
    pub(super) folder: Folder,
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self { root: Holder::root("root"), folder: Folder::new() }
    }

    /// Returns options that trust the authority.
    pub(super) fn options(&self) -> TlsOptions {
        let mut options = TlsOptions::default();
        options.ca_file = Some(self.folder.write("ca.pem", self.root.certificate()));
        options
    }

    pub(super) fn config(&self) -> TlsConfig {
        TlsConfig::build(&self.options()).unwrap()
    }

    /// Returns a server with a valid certificate.
    pub(super) fn server(&self) -> ServerTls {
        ServerTls::new(self.root.issue(&CertificateRequest::server(&[HOST, "10.1.2.3", "::1"])).identity())
    }
}

/// The other end of a connection.
#[derive(Debug)]
pub(super) struct Far {
    side: Option<Side>,
    /// Bytes for the client.
    pub(super) output: Vec<u8>,
    /// Number of bytes that the client has received.
    pub(super) given: usize,
    /// The bytes that the client wrote, decrypted.
    pub(super) heard: Vec<u8>,
    /// Whether received bytes are echoed.
    pub(super) echo: bool,
    /// The error with which the server failed.
    pub(super) failure: Option<String>,
    /// Number of bytes after which the client receives no more.
    pub(super) cut: Option<usize>,
    /// Largest number of bytes per read or write.
    pub(super) chunk: usize,
    /// Whether each read and write is pending once.
    pub(super) slow: bool,
    /// Whether a read, a write and a flush have been pending.
    pub(super) paused: [bool; 3],
    /// Whether writes fail.
    pub(super) broken: bool,
    /// Whether writes are pending forever.
    pub(super) stuck: bool,
    /// Whether reads without bytes are pending; else they return the end.
    pub(super) patient: bool,
}

impl Far {
    /// A server with TLS.
    pub(super) fn server(tls: &ServerTls) -> Wire {
        Self::wired(Some(Side::new(&tls.config().unwrap()).unwrap()), Vec::new())
    }

    /// A server whose sessions can be resumed in later connections.
    pub(super) fn of(config: &Arc<ServerConfig>) -> Wire {
        Self::wired(Some(Side::new(config).unwrap()), Vec::new())
    }

    /// A peer that sends these bytes regardless of its input.
    pub(super) fn script(bytes: &[u8]) -> Wire {
        Self::wired(None, bytes.to_vec())
    }

    fn wired(side: Option<Side>, output: Vec<u8>) -> Wire {
        Wire(Rc::new(RefCell::new(Self {
            side,
            output,
            given: 0,
            heard: Vec::new(),
            echo: true,
            failure: None,
            cut: None,
            chunk: usize::MAX,
            slow: false,
            paused: [false; 3],
            broken: false,
            stuck: false,
            patient: false,
        })))
    }

    pub(super) const fn side(&mut self) -> &mut Side {
        self.side.as_mut().unwrap()
    }

    fn hear(&mut self, bytes: &[u8]) {
        let Some(side) = &mut self.side else { return };
        for piece in bytes.chunks(Side::piece().len()) {
            side.receive(piece).unwrap();
            let mut buffer = [0; 1024];
            loop {
                match side.read(&mut buffer) {
                    Ok(None | Some(0)) => break,
                    Ok(Some(count)) => {
                        self.heard.extend_from_slice(&buffer[..count]);
                        if self.echo {
                            side.write(&buffer[..count]).unwrap();
                        }
                    }
                    Err(error) => {
                        self.failure = Some(error.to_string());
                        break;
                    }
                }
            }
        }
        self.collect();
    }

    /// Sends unsolicited bytes.
    pub(super) fn send_unsolicited(&mut self, bytes: &[u8]) {
        self.side().write(bytes).unwrap();
        self.collect();
    }

    /// Sends close_notify.
    pub(super) fn end(&mut self) {
        self.side().end().unwrap();
        self.collect();
    }

    fn collect(&mut self) {
        let Self { side, output, .. } = self;
        output.append(side.as_mut().unwrap().output());
    }
}

/// A server that uses any key with its certificate, and accepts any certificate of a client.
pub(super) fn lenient(identity: &Identity, versions: Versions) -> Arc<ServerConfig> {
    let provider = Arc::new(ring::default_provider());
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let key = provider.key_provider.load_private_key(key).unwrap();
    let chain = CertificateDer::pem_slice_iter(identity.certificates.as_bytes()).map(Result::unwrap).collect();
    let versions: &[_] = match versions {
        Versions::Tls12 => &[&TLS12],
        Versions::Tls13 => &[&TLS13],
        Versions::All => &[&TLS13, &TLS12],
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(versions).unwrap();
    let builder = builder.with_client_cert_verifier(Arc::new(AnyClient(provider.signature_verification_algorithms)));
    Arc::new(builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key)))))
}

#[derive(Debug)]
struct AnyClient(WebPkiSupportedAlgorithms);

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// A socket whose other end is in memory.
#[derive(Clone, Debug)]
pub(super) struct Wire(pub(super) Rc<RefCell<Far>>);

impl Wire {
    pub(super) fn with(self, change: impl FnOnce(&mut Far)) -> Self {
        change(&mut self.0.borrow_mut());
        self
    }

    /// Is pending once for each operation. A future that replaces a dropped one continues its
    /// state, as with real sockets.
    ///
    /// - `which`: index into [`Far::paused`].
    async fn pause(&self, which: usize) {
        poll_fn(|cx| {
            let far = &mut *self.0.borrow_mut();
            let paused = &mut far.paused[which];
            *paused = far.slow && !*paused;
            if *paused {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }
}

impl ErrorType for Wire {
    type Error = io::Error;
}

impl Read for Wire {
    async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.pause(0).await;
        poll_fn(|_| {
            let mut far = self.0.borrow_mut();
            let left = far.cut.map_or(usize::MAX, |cut| cut - far.given);
            let count = far.output.len().min(buf.len()).min(far.chunk).min(left);
            if count == 0 && far.patient {
                return Poll::Pending;
            }
            buf[..count].copy_from_slice(&far.output[..count]);
            far.output.drain(..count);
            far.given += count;
            Poll::Ready(Ok(count))
        })
        .await
    }
}

impl Write for Wire {
    async fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.pause(1).await;
        poll_fn(|_| {
            let mut far = self.0.borrow_mut();
            if far.broken {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
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
        self.pause(2).await;
        Ok(())
    }
}

/// A connection that changes one byte.
#[derive(Debug)]
pub(super) struct Damaged {
    pub(super) wire: Wire,
    /// Index of the byte, among those to the client.
    pub(super) at: usize,
    /// The value added to it.
    pub(super) change: u8,
}

impl ErrorType for Damaged {
    type Error = io::Error;
}

impl Read for Damaged {
    async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let before = self.wire.0.borrow().given;
        let count = self.wire.read(buf).await?;
        if let Some(byte) = self.at.checked_sub(before).and_then(|at| buf[..count].get_mut(at)) {
            *byte = byte.wrapping_add(self.change);
        }
        Ok(count)
    }
}

impl Write for Damaged {
    async fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.wire.write(buf).await
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.wire.flush().await
    }
}

/// Runs a future that waits only for itself.
pub(super) fn run<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..10_000_000 {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
    panic!("the future never completes");
}

/// Polls a future this many times, then drops it.
pub(super) fn run_for<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    (0..polls).find_map(|_| match future.as_mut().poll(&mut context) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    })
}

pub(super) fn connect(config: &TlsConfig, host: &str, wire: &Wire) -> Result<TlsStream<Wire>, TlsHandshakeError> {
    run(TlsStream::connect(config, host, wire.clone()))
}

/// Writes and flushes all bytes.
pub(super) async fn send(stream: &mut TlsStream<Wire>, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

/// Reads exactly this many bytes.
pub(super) async fn receive(stream: &mut TlsStream<Wire>, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    let mut done = 0;
    while done < count {
        match stream.read(&mut bytes[done..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => done += more,
        }
    }
    Ok(bytes)
}
