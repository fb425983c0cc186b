//! Routers of one fake sharded cluster.

use alloc::sync::Arc;
use std::io;

use super::store::Documents;
use super::{FakeOptions, FakeServer, Role, ServerState};

/// Running fake routers that share their documents. Dropping them ends them.
#[derive(Debug)]
pub struct FakeMongoses {
    servers: Vec<Arc<FakeServer>>,
}

impl FakeMongoses {
    /// Starts `count` routers.
    ///
    /// # Errors
    /// Those of the sockets.
    pub fn start(count: usize) -> io::Result<Self> {
        let state = ServerState { role: Role::Mongos, ..ServerState::default() };
        Self::start_as(count, &FakeOptions::with_state(state))
    }

    /// Starts `count` routers with the same options; port and unix path are not used.
    ///
    /// # Errors
    /// Those of the sockets.
    pub fn start_as(count: usize, template: &FakeOptions) -> io::Result<Self> {
        let documents = Documents::new(template.store_bytes_max);
        let start = |_| {
            let options = FakeOptions { port: 0, unix_path: None, ..template.clone() };
            FakeServer::start_on(options, documents.clone()).map(Arc::new)
        };
        Ok(Self { servers: (0..count).map(start).collect::<io::Result<_>>()? })
    }

    /// Returns a router, to be killed, frozen, failed and observed.
    ///
    /// # Panics
    /// If there is no such router.
    pub fn server(&self, index: usize) -> &Arc<FakeServer> {
        &self.servers[index]
    }

    /// Returns all routers.
    pub fn servers(&self) -> &[Arc<FakeServer>] {
        &self.servers
    }

    /// Returns the connection string with all routers.
    pub fn uri(&self) -> String {
        let seeds: Vec<String> = self.servers.iter().map(|server| server.address().to_string()).collect();
        format!("mongodb://{}/", seeds.join(","))
    }
}
