//! The thread of the fake server: its listening sockets and the tasks of its connections.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::sync::Arc;
use core::cell::{Cell, RefCell};
use core::net::SocketAddr;
use core::time::Duration;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use async_executor::{LocalExecutor, Task};
use async_io::{Async, Timer};
use futures_lite::future;
use rustix::net::{AddressFamily, SocketType};

use super::FakeOptions;
use super::connection::{Common, Connection, Stream, TlsConfig, TlsSocket};
use super::fault::{Cut, Fault, FaultKind, ReplyFacts};
use super::shared::{Ended, RequestedState, Shared, Sockets};

const BACKLOG: i32 = 1024;
/// Pause after a failed accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(5);

/// Binds a TCP socket; its port stays reserved whether it listens or not.
///
/// # Errors
///
/// The address cannot be bound.
pub fn bind(address: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = socket(if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 })?;
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    let bound = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
    Ok((socket, bound))
}

#[cfg(not(target_vendor = "apple"))]
fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(family, SocketType::STREAM, rustix::net::SocketFlags::CLOEXEC, None)?)
}

#[cfg(target_vendor = "apple")]
fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket(family, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    // Two sockets are bound to one port, of which one listens.
    rustix::net::sockopt::set_socket_reuseport(&socket, true)?;
    Ok(socket)
}

struct Entry {
    stream: Rc<Stream>,
    task: Task<()>,
}

type Connections = Rc<RefCell<BTreeMap<u64, Entry>>>;

/// Reports the end of a connection after all its other state was dropped.
struct Registered {
    shared: Arc<Shared>,
    id: u64,
    reason: Cell<Option<Ended>>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let reason = self.reason.take().unwrap_or(Ended::Stopped);
        self.shared.with(|inner| inner.end(self.id, reason));
    }
}

enum Accepted {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

pub(crate) struct Supervisor<'a> {
    executor: &'a LocalExecutor<'static>,
    common: Rc<Common>,
    connections: Connections,
    connections_max: usize,
    address: SocketAddr,
    unix_path: Option<PathBuf>,
    tls: Option<TlsConfig>,
    /// Bound but not listening; new connections are refused.
    idle: Option<OwnedFd>,
    tcp: Option<Async<TcpListener>>,
    unix: Option<Async<UnixListener>>,
}

/// Runs the server to its end. `socket` is bound to `address`.
pub(crate) fn run(
    shared: Arc<Shared>,
    options: FakeOptions,
    tls: Option<TlsConfig>,
    socket: OwnedFd,
    address: SocketAddr,
) {
    let executor = LocalExecutor::new();
    let common = Rc::new(Common {
        shared,
        message_bytes_max: options.message_bytes_max,
        buffer_bytes_left: Cell::new(options.buffer_bytes_max),
        request_id: Cell::new(0),
    });
    let supervisor = Supervisor {
        executor: &executor,
        common,
        connections: Connections::default(),
        connections_max: options.connections_max,
        address,
        unix_path: options.unix_path,
        tls,
        idle: Some(socket),
        tcp: None,
        unix: None,
    };
    async_io::block_on(executor.run(supervisor.run()));
}

impl Supervisor<'_> {
    async fn run(mut self) {
        let shared = Arc::clone(&self.common.shared);
        let mut done = None;
        loop {
            let listener = shared.listen();
            let (wanted, frozen) = shared.with(|inner| (inner.wanted, inner.frozen));
            if done != Some(wanted) {
                let sockets = self.change_to(wanted).await;
                shared.with(|inner| inner.sockets = sockets);
                done = Some(wanted);
                if wanted == RequestedState::Stopped {
                    return;
                }
            }
            let accept = async {
                if frozen {
                    return future::pending().await;
                }
                Some(self.accept().await)
            };
            let control = async {
                listener.await;
                None
            };
            match future::or(control, accept).await {
                None => {}
                Some(Ok(accepted)) => self.admit(accepted),
                Some(Err(_)) => {
                    Timer::after(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Changes the sockets to the requested state.
    async fn change_to(&mut self, wanted: RequestedState) -> Sockets {
        let outcome = match wanted {
            RequestedState::Listening => self.listen().map(|()| Sockets::Listening),
            RequestedState::Refusing => self.unlisten().map(|()| Sockets::Refusing),
            RequestedState::Killed => {
                let outcome = self.unlisten().map(|()| Sockets::Killed);
                self.reset_all().await;
                self.common.shared.with(super::shared::Inner::forget_process);
                outcome
            }
            RequestedState::Stopped => {
                self.tcp = None;
                self.unix = None;
                self.idle = None;
                self.reset_all().await;
                self.remove_unix_path();
                Ok(Sockets::Stopped)
            }
        };
        outcome.unwrap_or_else(|error| Sockets::Failed(error.kind(), error.to_string()))
    }

    fn listen(&mut self) -> io::Result<()> {
        if self.tcp.is_none() {
            let socket = match self.idle.take() {
                Some(socket) => socket,
                None => bind(self.address)?.0,
            };
            rustix::net::listen(&socket, BACKLOG)?;
            self.tcp = Some(Async::new(TcpListener::from(socket))?);
        }
        if let (None, Some(path)) = (&self.unix, &self.unix_path) {
            self.unix = Some(Async::<UnixListener>::bind(path)?);
        }
        Ok(())
    }

    fn unlisten(&mut self) -> io::Result<()> {
        if self.tcp.take().is_some() {
            self.idle = Some(bind(self.address)?.0);
        }
        if self.unix.take().is_some() {
            self.remove_unix_path();
        }
        Ok(())
    }

    fn remove_unix_path(&self) {
        if let Some(path) = &self.unix_path {
            // The file may already have been removed.
            let _ = std::fs::remove_file(path);
        }
    }

    async fn reset_all(&self) {
        let entries = core::mem::take(&mut *self.connections.borrow_mut());
        for Entry { stream, task } in entries.into_values() {
            stream.reset_on_close();
            drop(stream);
            task.cancel().await;
        }
    }

    async fn accept(&self) -> io::Result<Accepted> {
        let tcp = async {
            match &self.tcp {
                Some(listener) => {
                    let (stream, peer) = listener.read_with(TcpListener::accept).await?;
                    Ok(Accepted::Tcp(stream, peer))
                }
                None => future::pending().await,
            }
        };
        let unix = async {
            match &self.unix {
                Some(listener) => {
                    let (stream, _) = listener.read_with(UnixListener::accept).await?;
                    Ok(Accepted::Unix(stream))
                }
                None => future::pending().await,
            }
        };
        future::or(tcp, unix).await
    }

    fn admit(&self, accepted: Accepted) {
        let shared = &self.common.shared;
        let (stream, peer) = match accepted {
            Accepted::Tcp(stream, peer) => {
                // Fails only on a socket that is already closed; its first read then returns the
                // error.
                let _ = stream.set_nodelay(true);
                let stream = Async::new(stream).and_then(|stream| match &self.tls {
                    None => Ok(Stream::Tcp(stream)),
                    Some(config) => TlsSocket::new(stream, config).map(Stream::Tls),
                });
                (stream, Some(peer))
            }
            Accepted::Unix(stream) => (Async::new(stream).map(Stream::Unix), None),
        };
        let (id, fault) = shared.with(|inner| {
            let id = inner.accept(peer);
            let reply = ReplyFacts {
                connection: id,
                app_name: None,
                command: None,
                sent_bytes: 0,
                reply_bytes: 0,
                is_unwanted: false,
            };
            (id, inner.faults.take(reply))
        });
        let stream = match stream {
            Ok(stream) => Rc::new(stream),
            Err(error) => return shared.with(|inner| inner.end(id, Ended::Io(error.to_string()))),
        };
        let reason = if let Some(Fault::CloseOnAccept(by)) = fault {
            match by {
                Cut::Fin => stream.finish(),
                Cut::Rst => stream.reset_on_close(),
            }
            Some(Ended::Fault(FaultKind::CloseOnAccept))
        } else if self.connections.borrow().len() >= self.connections_max {
            Some(Ended::TooMany)
        } else {
            None
        };
        if let Some(reason) = reason {
            drop(stream);
            return shared.with(|inner| inner.end(id, reason));
        }
        let task =
            self.executor.spawn(serve(id, Rc::clone(&self.common), Rc::clone(&stream), Rc::clone(&self.connections)));
        self.connections.borrow_mut().insert(id, Entry { stream, task });
    }
}

async fn serve(id: u64, common: Rc<Common>, stream: Rc<Stream>, connections: Connections) {
    // Dropped last, also if the task is cancelled.
    let registered = Registered { shared: Arc::clone(&common.shared), id, reason: Cell::new(None) };
    let mut connection = Connection::new(id, common, stream);
    let ended = connection.run().await;
    drop(connection);
    if let Some(entry) = connections.borrow_mut().remove(&id) {
        entry.task.detach();
    }
    registered.reason.set(Some(ended));
}
