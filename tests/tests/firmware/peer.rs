//! A small server for the examples of the generic pool: it counts its connections, can be stopped,
//! and then listens again at the same port.

use alloc::sync::Arc;
use core::error::Error;
use core::net::{Ipv4Addr, SocketAddr};
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use poolhouse_tests::{mongod, patience};

/// Serves one connection until its end. An error of [`io::ErrorKind::Other`] is a mistake of the
/// client.
type Serve = dyn Fn(&mut TcpStream) -> io::Result<()> + Send + Sync;

pub(crate) struct Peer {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// `None` while the server is stopped.
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    serve: Box<Serve>,
    is_stopped: AtomicBool,
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    accepted: usize,
    open: HashMap<usize, TcpStream>,
    most_open: usize,
    complaints: Vec<String>,
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) -> io::Result<()> {
        loop {
            let (mut stream, _) = listener.accept()?;
            if self.is_stopped.load(Ordering::SeqCst) {
                return Ok(());
            }
            // A client may have ended it already.
            let _ = stream.set_nodelay(true);
            let mut connections = self.connections();
            let number = connections.accepted;
            connections.accepted += 1;
            connections.open.insert(number, stream.try_clone()?);
            connections.most_open = connections.most_open.max(connections.open.len());
            drop(connections);
            let shared = Arc::clone(self);
            thread::spawn(move || {
                let served = (shared.serve)(&mut stream);
                let mut connections = shared.connections();
                connections.open.remove(&number);
                // All other errors are those of a connection that was cut.
                if let Some(error) = served.err().filter(|error| error.kind() == io::ErrorKind::Other) {
                    connections.complaints.push(error.to_string());
                }
            });
        }
    }
}

impl Peer {
    /// Starts a server on the loopback interface.
    pub(crate) fn start(
        serve: impl Fn(&mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Result<Self, Box<dyn Error>> {
        let shared = Arc::new(Shared {
            serve: Box::new(serve),
            is_stopped: AtomicBool::new(true),
            connections: Mutex::default(),
        });
        // The system assigns this port to nobody else while the server is stopped.
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, mongod::pick_ports(1)?));
        let mut peer = Self { address, shared, acceptor: None };
        peer.resume()?;
        Ok(peer)
    }

    /// The arguments of an example: this server, and the requests of each of its tasks.
    pub(crate) fn arguments(&self, requests: usize, pause_ms: u32) -> Vec<String> {
        vec![self.address.ip().to_string(), self.address.port().to_string(), requests.to_string(), pause_ms.to_string()]
    }

    /// Ends all connections, and refuses new ones.
    pub(crate) fn stop(&mut self) -> io::Result<()> {
        let Some(acceptor) = self.acceptor.take() else { return Ok(()) };
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        drop(TcpStream::connect(self.address)?);
        acceptor.join().map_err(|_| io::Error::other("the thread that accepts has panicked"))?;
        for stream in self.shared.connections().open.values() {
            // A client may have ended it before.
            let _ = stream.shutdown(Shutdown::Both);
        }
        patience::run(patience::eventually("the connections end", || self.open() == 0));
        Ok(())
    }

    /// Accepts connections again.
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        let listener = TcpListener::bind(self.address)?;
        self.shared.is_stopped.store(false, Ordering::SeqCst);
        let shared = Arc::clone(&self.shared);
        self.acceptor = Some(thread::spawn(move || {
            if let Err(error) = shared.accept(&listener) {
                eprintln!("the server of the test has ended: {error}");
            }
        }));
        Ok(())
    }

    /// The number of connections so far.
    pub(crate) fn accepted(&self) -> usize {
        self.shared.connections().accepted
    }

    /// The number of connections that are open.
    pub(crate) fn open(&self) -> usize {
        self.shared.connections().open.len()
    }

    /// What the server refused.
    pub(crate) fn complaints(&self) -> Vec<String> {
        self.shared.connections().complaints.clone()
    }

    /// The maximum number of connections that were open at the same time.
    pub(crate) fn most_open(&self) -> usize {
        self.shared.connections().most_open
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}
