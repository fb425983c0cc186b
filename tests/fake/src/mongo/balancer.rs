//! A TCP load balancer in front of fake routers, each of which is a separate service.
//!
//! Sections to read first: Load Balancers, "Connection Establishment" and "Service IDs".

use alloc::sync::Arc;
use core::net::{Ipv4Addr, SocketAddr};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use async_executor::LocalExecutor;
use async_io::Async;
use bson::oid::ObjectId;
use event_listener::Event;
use futures_lite::FutureExt;

use super::store::Documents;
use super::{FakeOptions, FakeServer, ServerState};

/// A running balancer and the routers behind it, which share their documents. Dropping it ends them
/// all.
///
/// Each connection is forwarded to one router for its whole lifetime. Routers are selected in turn;
/// those that refuse are skipped. If all refuse, the connection is closed. A fault of a router
/// ([`FakeServer::kill`], a fail point, an injected fault) affects the connections to it.
#[derive(Debug)]
pub struct FakeBalancer {
    backends: Vec<Arc<FakeServer>>,
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    routes: Mutex<Routes>,
    stop: Event,
}

#[derive(Debug)]
struct Routes {
    backends: Vec<SocketAddr>,
    /// The index of the next router.
    next: usize,
    /// The router for all connections, if set.
    only: Option<usize>,
}

impl FakeBalancer {
    /// Starts a balancer with `count` routers behind it.
    ///
    /// # Errors
    /// Those of the sockets.
    pub fn start(count: usize) -> io::Result<Self> {
        let documents = Documents::new(FakeOptions::default().store_bytes_max);
        let backends: Vec<_> = (0..count)
            .map(|place| {
                let state = ServerState::load_balanced(vec![service_of(place)]);
                FakeServer::start_on(FakeOptions::with_state(state), documents.clone()).map(Arc::new)
            })
            .collect::<io::Result<_>>()?;
        let listener = Async::<TcpListener>::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.get_ref().local_addr()?;
        let routes = Routes { backends: backends.iter().map(|it| it.address()).collect(), next: 0, only: None };
        let shared = Arc::new(Shared { routes: Mutex::new(routes), stop: Event::new() });
        let stopped = shared.stop.listen();
        let thread = std::thread::Builder::new().name("poolhouse-balancer".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                let executor = LocalExecutor::new();
                let serve = accept(&executor, &listener, &shared);
                async_io::block_on(executor.run(serve.or(stopped)));
            }
        })?;
        Ok(Self { backends, address, shared, thread: Some(thread) })
    }

    /// Returns the balancer's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the connection string.
    pub fn uri(&self) -> String {
        format!("mongodb://{}/?loadBalanced=true", self.address)
    }

    /// Returns a router, to be killed, frozen, failed and observed.
    ///
    /// # Panics
    /// If there is no such router.
    pub fn backend(&self, place: usize) -> &Arc<FakeServer> {
        &self.backends[place]
    }

    /// Returns all routers.
    pub fn backends(&self) -> &[Arc<FakeServer>] {
        &self.backends
    }

    /// Returns the service id of a router.
    pub fn service(&self, place: usize) -> ObjectId {
        service_of(place)
    }

    /// Forwards new connections only to this router; with `None` to all in turn again.
    pub fn route_to(&self, only: Option<usize>) {
        self.shared.routes.lock().unwrap_or_else(PoisonError::into_inner).only = only;
    }
}

impl Drop for FakeBalancer {
    fn drop(&mut self) {
        self.shared.stop.notify(usize::MAX);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been printed.
            let _ = thread.join();
        }
    }
}

fn service_of(place: usize) -> ObjectId {
    let number = u8::try_from(place + 1).expect("few routers");
    ObjectId::from_bytes([number; 12])
}

impl Shared {
    /// Returns the routers in the order in which they are tried for the next connection.
    fn candidates(&self) -> Vec<SocketAddr> {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(only) = routes.only {
            return routes.backends.get(only).copied().into_iter().collect();
        }
        let count = routes.backends.len().max(1);
        let first = routes.next % count;
        routes.next = first + 1;
        let (after, from) = (&routes.backends[..first], &routes.backends[first..]);
        from.iter().chain(after).copied().collect()
    }
}

async fn accept(executor: &LocalExecutor<'_>, listener: &Async<TcpListener>, shared: &Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let shared = Arc::clone(shared);
        executor.spawn(async move { forward(client, &shared).await }).detach();
    }
}

/// Copies bytes in both directions until one side ends.
async fn forward(client: Async<TcpStream>, shared: &Shared) {
    for address in shared.candidates() {
        let Ok(backend) = Async::<TcpStream>::connect(address).await else { continue };
        for stream in [&client, &backend] {
            // On failure small messages are delayed, but still correct.
            let _ = stream.get_ref().set_nodelay(true);
        }
        let there = futures_lite::io::copy(&client, &backend);
        let back = futures_lite::io::copy(&backend, &client);
        // In all cases both sockets are closed.
        let _ = there.or(back).await;
        return;
    }
}
