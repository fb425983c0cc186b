//! The clients that send requests.

use alloc::sync::Arc;
use core::net::SocketAddr;
use core::num::NonZeroUsize;
use core::sync::atomic::{AtomicU32, Ordering};
use poolhouse_exchange::cql::Bare;
use poolhouse_smol::mux::cql::{Consistency, Version};
use poolhouse_smol::mux::{HostOptions, MuxOptions, Session, SessionOptions};
use scylla::client::PoolSize;
use scylla::client::session::Session as Scylla;
use scylla::client::session_builder::SessionBuilder;
use smol::Async;
use std::net::TcpStream;
use std::time::Instant;

/// The cases by name. The first is the baseline.
pub(super) const NAMES: &[(&str, &str)] = &[
    ("bare", "floor: bare exchange on async-io"),
    ("session", "poolhouse-smol, Session"),
    ("scylla", "scylla on tokio"),
];

/// The statement: the server returns its text in one cell.
const STATEMENT: &str = "echo a cell of twenty-four.";

/// Options of a pool with one connection for all requests.
pub(crate) fn one_connection() -> MuxOptions {
    let most = 32_768;
    let local = HostOptions {
        core_connections: 1,
        max_connections: 1,
        max_requests_per_connection: most,
        new_connection_threshold: most,
    };
    MuxOptions { local, ..MuxOptions::DEFAULT }
}

/// All clients, with one connection each.
pub(super) struct Askers {
    bare: Option<Bare<Async<TcpStream>>>,
    session: Session,
    runtime: tokio::runtime::Runtime,
    scylla: Arc<Scylla>,
}

impl Askers {
    pub(super) fn new(server: SocketAddr, threads: usize) -> Self {
        let bare = smol::block_on(async {
            let stream = Async::<TcpStream>::connect(server).await.expect("a server that listens");
            stream.get_ref().set_nodelay(true).expect("a socket");
            Bare::over(stream, STATEMENT).await
        });
        let options = SessionOptions::new([server.to_string()]).version(Version::V4).mux(one_connection());
        let session = Session::new(options).expect("a session");
        smol::block_on(session.query(STATEMENT).consistency(Consistency::One).send()).expect("an answer");
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(threads).enable_all().build().expect("a runtime");
        let building = SessionBuilder::new()
            .known_node_addr(server)
            .pool_size(PoolSize::PerHost(NonZeroUsize::MIN))
            .fetch_schema_metadata(false);
        let scylla = runtime.block_on(building.build()).expect("a scylla session");
        Self { bare: Some(bare), session, runtime, scylla: Arc::new(scylla) }
    }

    /// Runs this number of requests, with `in_flight` of them at a time. Returns seconds for each.
    pub(super) fn round(&mut self, name: &str, in_flight: u32, operations: u32) -> f64 {
        let left = Arc::new(AtomicU32::new(operations));
        let start = Instant::now();
        match name {
            "bare" => {
                let mut own = self.bare.take().expect("one establishment at a time");
                // Runs on the executor's thread, like the other cases.
                let work = smol::spawn(async move {
                    own.exchange(in_flight, operations).await;
                    own
                });
                self.bare = Some(smol::future::block_on(work));
            }
            "session" => {
                let ask = |_| smol::spawn(ask_session(self.session.clone(), Arc::clone(&left)));
                let running: Vec<_> = (0..in_flight).map(ask).collect();
                smol::future::block_on(async {
                    for task in running {
                        task.await;
                    }
                });
            }
            "scylla" => {
                let ask = |_| self.runtime.spawn(ask_scylla(Arc::clone(&self.scylla), Arc::clone(&left)));
                let running: Vec<_> = (0..in_flight).map(ask).collect();
                self.runtime.block_on(async {
                    for task in running {
                        task.await.expect("no panic");
                    }
                });
            }
            other => panic!("unknown case {other}"),
        }
        start.elapsed().as_secs_f64() / f64::from(operations)
    }
}

/// Takes one request from the remaining number; `false` if none is left.
fn take(left: &AtomicU32) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

async fn ask_session(session: Session, left: Arc<AtomicU32>) {
    while take(&left) {
        session.query(STATEMENT).consistency(Consistency::One).send().await.expect("an answer");
    }
}

async fn ask_scylla(session: Arc<Scylla>, left: Arc<AtomicU32>) {
    while take(&left) {
        session.query_unpaged(STATEMENT, ()).await.expect("an answer");
    }
}
