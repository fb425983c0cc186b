//! Sessions over TLS.

use super::{FORMATS, Format, Rig, begun, long, run, server, speaking};
use crate::contract::rig::within;
use crate::patience::{PATIENCE, eventually};
use crate::suite::Suite;
use crate::tls::{CertificateRequest, Folder, Holder, ServerTls, Side};
use alloc::sync::Arc;
use async_executor::LocalExecutor;
use async_io::Async;
use core::future::poll_fn;
use core::net::SocketAddr;
use core::pin::Pin;
use core::task::{Context, Poll};
use event_listener::Event;
use futures_lite::{AsyncRead, AsyncWrite, FutureExt};
use poolhouse_client::Platform;
use poolhouse_client::mux::{CqlHost, SessionOptions};
use poolhouse_client::tls::TlsOptions;
use rustls::ServerConfig;
use std::io;
use std::net::TcpStream;
use std::thread::JoinHandle;

pub(super) fn add<P: Platform + Default>(suite: Suite) -> Suite {
    FORMATS.into_iter().fold(suite, |suite, format| {
        suite.case(format!("hosted::mux::secure::large_bodies_both_ways_at_once_{}", format.0), move || {
            run::<P>(async || both_ways::<P>(format).await);
        })
    })
}

/// The server writes the reply to a request before it reads the next one. TLS must not introduce a
/// state in which either side waits for the other.
async fn both_ways<P: Platform + Default>(format: Format) {
    const REQUESTS: usize = 16;
    let (root, folder) = (Holder::root("root"), Folder::new());
    let mut tls = TlsOptions::default();
    tls.ca_file = Some(folder.write("ca.pem", root.certificate()));
    let server = server();
    let identity = root.issue(&CertificateRequest::server(&["127.0.0.1"])).identity();
    let front = Front::start(server.address(), &ServerTls::new(identity));
    let rig = Rig::<P>::of(vec![server], |options| {
        let hosts = vec![CqlHost::local(front.address.to_string())];
        speaking(with_hosts(options, hosts), format).tls(tls)
    });
    rig.works().await;
    let texts: Vec<_> = (0..REQUESTS).map(long).collect();
    let mut waiting = Vec::new();
    for text in &texts {
        waiting.push(begun(rig.echo(text)).await);
    }
    for (request, text) in waiting.into_iter().zip(&texts) {
        let found = within(PATIENCE * 2, "it is answered", request).await;
        assert!(&found.expect("it succeeds") == text);
    }
    rig.works().await;
    assert_eq!(rig.server().counts().accepted, 1);
    rig.end().await;
    eventually("no client is connected", || rig.server().counts().open == 0).await;
}

fn with_hosts(mut options: SessionOptions, hosts: Vec<CqlHost>) -> SessionOptions {
    options.hosts = hosts;
    options
}

/// A TLS proxy in front of a server. It buffers at most a few records in each direction. Dropping
/// it ends its connections.
struct Front {
    address: SocketAddr,
    over: Arc<Event>,
    thread: Option<JoinHandle<()>>,
}

impl Front {
    fn start(server: SocketAddr, tls: &ServerTls) -> Self {
        let listener = Async::<std::net::TcpListener>::bind(([127, 0, 0, 1], 0)).expect("a free port");
        let address = listener.get_ref().local_addr().expect("it is bound");
        let config = tls.config().expect("a good certificate");
        let over = Arc::new(Event::new());
        let ending = over.listen();
        let serve = async move || {
            let executor = LocalExecutor::new();
            let accepting = async {
                while let Ok((client, _)) = listener.accept().await {
                    // The client detects errors; the proxy ignores them.
                    executor.spawn(relay(client, server, Arc::clone(&config))).detach();
                }
            };
            executor.run(accepting).or(ending).await;
        };
        let thread = std::thread::spawn(move || async_io::block_on(serve()));
        Self { address, over, thread: Some(thread) }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.over.notify(usize::MAX);
        if let Some(thread) = self.thread.take() {
            // The thread does not panic; a panic would already have failed the case.
            let _ = thread.join();
        }
    }
}

/// One connection, until either side ends it.
async fn relay(client: Async<TcpStream>, server: SocketAddr, config: Arc<ServerConfig>) -> io::Result<()> {
    let server = Async::<TcpStream>::connect(server).await?;
    client.get_ref().set_nodelay(true)?;
    server.get_ref().set_nodelay(true)?;
    let mut way = Way { client, server, side: Side::new(&config)?, up: Vec::new() };
    poll_fn(|context| way.poll(context)).await
}

struct Way {
    client: Async<TcpStream>,
    server: Async<TcpStream>,
    side: Side,
    /// Decrypted bytes for the server.
    up: Vec<u8>,
}

impl Way {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut moved = false;
            if self.up.is_empty() {
                let mut piece = Side::piece();
                match Pin::new(&mut self.client).poll_read(context, &mut piece)? {
                    Poll::Ready(0) => return Poll::Ready(Ok(())),
                    Poll::Ready(count) => {
                        moved = true;
                        self.side.receive(piece.get(..count).unwrap_or_default())?;
                        while let Some(count) = self.side.read(&mut piece)? {
                            if count == 0 {
                                return Poll::Ready(Ok(()));
                            }
                            self.up.extend_from_slice(piece.get(..count).unwrap_or_default());
                        }
                    }
                    Poll::Pending => {}
                }
            }
            moved |= send(&mut self.server, &mut self.up, context)?;
            if self.side.output().is_empty() {
                let mut piece = Side::piece();
                match Pin::new(&mut self.server).poll_read(context, &mut piece)? {
                    Poll::Ready(0) => return Poll::Ready(Ok(())),
                    Poll::Ready(count) => {
                        moved = true;
                        self.side.write(piece.get(..count).unwrap_or_default())?;
                    }
                    Poll::Pending => {}
                }
            }
            moved |= send(&mut self.client, self.side.output(), context)?;
            if !moved {
                return Poll::Pending;
            }
        }
    }
}

/// Sends some of these bytes, if there are any and the socket is writable. Returns whether bytes
/// were sent.
fn send(socket: &mut Async<TcpStream>, bytes: &mut Vec<u8>, context: &mut Context<'_>) -> io::Result<bool> {
    if bytes.is_empty() {
        return Ok(false);
    }
    match Pin::new(socket).poll_write(context, bytes) {
        Poll::Ready(Ok(count)) => {
            bytes.drain(..count);
            Ok(true)
        }
        Poll::Ready(Err(error)) => Err(error),
        Poll::Pending => Ok(false),
    }
}
