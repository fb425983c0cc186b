//! Whether the nodes have the same schema.

use super::request::RequestOptions;
use super::{RequestError, Session};
use crate::{Platform, lock};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;
use poolhouse_core::mux::MuxId;
use poolhouse_cql::{Consistency, Parameters, Request, read_inet};
use poolhouse_driver::BaseRuntime as _;

/// The pause between two readings.
const PAUSE: Duration = Duration::from_millis(200);

const LOCAL: &str = "SELECT schema_version FROM system.local WHERE key = 'local'";
const PEERS: &str = "SELECT peer, rpc_address, schema_version FROM system.peers";

/// A version of the schema.
type SchemaVersion = Vec<u8>;

impl<P: Platform> Session<P> {
    /// Waits until all nodes have the same schema. Returns false if they do not after this time.
    ///
    /// Call it after a statement that changes the schema, and send no second such statement before it
    /// returns true: nodes execute them independently. Without it, the next request may go to a node
    /// that does not have the new table yet.
    ///
    /// Reads the versions in `system.local` and `system.peers` of one host, and reads them again
    /// after a pause of 200 ms while they differ. If the session
    /// [discovers its hosts](super::SessionOptions#structfield.discovers_hosts), the versions of nodes
    /// that are unavailable or unknown do not count. If not, they count, so the result is false while
    /// a node is down.
    ///
    /// # Errors
    ///
    /// As [`Session::request`]; [`RequestError::Unexpected`] if the answer has no rows.
    ///
    /// # Example
    ///
    /// ```
    /// use core::time::Duration;
    /// use poolhouse_client::Platform;
    /// use poolhouse_client::mux::{RequestError, Session};
    /// use poolhouse_cql::Consistency;
    ///
    /// async fn create<P: Platform>(session: &Session<P>) -> Result<bool, RequestError> {
    ///     session.query("CREATE TABLE shop.orders (id int PRIMARY KEY)", Consistency::One).await?;
    ///     session.schema_agreement(Duration::from_secs(10)).await
    /// }
    /// ```
    pub async fn schema_agreement(&self, limit: Duration) -> Result<bool, RequestError> {
        let shared = &*self.inner.shared;
        let deadline = shared.now().saturating_add(limit);
        loop {
            let left = deadline.saturating_since(shared.now());
            match self.schema_versions(left).await {
                Ok(versions) if versions.len() <= 1 => return Ok(true),
                Err(error) if !error.is_timeout() => return Err(error),
                Ok(_) | Err(_) => {}
            }
            let next = shared.now().saturating_add(PAUSE);
            if next >= deadline {
                return Ok(false);
            }
            shared.runtime.sleep_until(next).await;
        }
    }

    /// Returns the versions of all nodes, each once.
    async fn schema_versions(&self, limit: Duration) -> Result<BTreeSet<SchemaVersion>, RequestError> {
        let options = RequestOptions { timeout: Some(limit), idempotent: true, ..RequestOptions::default() };
        let select = |text| Request::Query { text, parameters: Parameters::new(Consistency::One) };
        let reply = self.request_with(&select(LOCAL), options).await?;
        let mut versions = BTreeSet::new();
        versions.extend(reply.rows()?.flatten().flatten().map(<[u8]>::to_vec));
        // Its table lists all other nodes.
        let host: [MuxId; 1] = [reply.host()];
        let reply = self.request_with(&select(PEERS), RequestOptions { hosts: Some(&host), ..options }).await?;
        for mut cells in reply.rows()? {
            let mut address = || cells.next().flatten().and_then(read_inet);
            let (peer, rpc_address) = (address(), address());
            let node = rpc_address.filter(|address| !address.is_unspecified()).or(peer);
            // A node without a version is still starting.
            let version = cells.next().flatten();
            versions.extend(version.filter(|_| self.counts(node)).map(<[u8]>::to_vec));
        }
        Ok(versions)
    }

    /// Whether the version of the node with this address counts.
    fn counts(&self, node: Option<IpAddr>) -> bool {
        let Some(discovery) = &self.inner.shared.discovery else { return true };
        lock(discovery).is_up(node)
    }
}
