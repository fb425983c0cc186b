//! A session and a cluster of three Cassandra nodes, each of which has all rows.

use crate::chaos::Members;
use crate::detour::Detour;
use crate::load::{DEADLINE, Database, Failed, Insert, Row};
use crate::soak::{Failure, Subject};
use core::net::{Ipv4Addr, SocketAddr};
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use poolhouse_smol::mux::cql::Consistency;
use poolhouse_smol::mux::{HostOptions, RequestError, Session, SessionOptions};
use poolhouse_smol::poolhouse_client::mux;
use poolhouse_smol::poolhouse_driver::Subscribers;
use poolhouse_tests::cassandra::{Cassandra, CassandraOptions};
use std::thread;
use std::time::Instant;

/// Time limit for the cluster to recover from all incidents.
const SETTLING: Duration = Duration::from_secs(180);
/// A row that is inserted twice has two keys, because the server chooses a part of it at each execution.
const TABLE: &str =
    "CREATE TABLE soak.rows (task bigint, number bigint, execution uuid, PRIMARY KEY ((task, number), execution))";

pub(crate) struct Nodes {
    nodes: [Cassandra; 3],
    /// The next one to which incidents happen.
    turn: AtomicUsize,
}

impl Nodes {
    /// A session with all nodes, without proxies.
    fn judge(&self) -> Result<Session, Failure> {
        let hosts = self.addresses().map(|address| address.to_string());
        Ok(Session::new(SessionOptions::new(hosts).consistency(Consistency::All).request_timeout(SETTLING))?)
    }

    /// Whether each node answers, and has no other that it regards as down.
    async fn all_answer(session: &Session) -> Result<(), RequestError> {
        for host in session.hosts() {
            let read = session.query("SELECT task FROM soak.rows LIMIT 1").timeout(Duration::from_secs(2));
            read.hosts(&[host.id]).send().await?;
        }
        Ok(())
    }
}

impl Members for Nodes {
    const HAS_FEW_CONNECTIONS: bool = true;

    /// Each in turn: no node is special.
    fn settle(&self) -> Result<usize, Failure> {
        let judge = self.judge()?;
        let begun = Instant::now();
        while let Err(error) = smol::block_on(Self::all_answer(&judge)) {
            if begun.elapsed() > SETTLING {
                return Err(format!("the cluster does not recover: {error}").into());
            }
            thread::sleep(Duration::from_millis(200));
        }
        smol::block_on(judge.close());
        Ok(self.turn.fetch_add(1, Ordering::SeqCst) % 3)
    }

    fn leave(&mut self, member: usize) -> Result<(), Failure> {
        Ok(self.nodes[member].shutdown()?)
    }

    fn rejoin(&mut self, member: usize) -> Result<(), Failure> {
        self.restart(member)
    }

    fn kill(&mut self, member: usize) -> Result<(), Failure> {
        self.nodes[member].kill();
        Ok(())
    }

    fn stop(&mut self, member: usize) -> Result<(), Failure> {
        Ok(self.nodes[member].stop()?)
    }

    fn cont(&mut self, member: usize) -> Result<(), Failure> {
        Ok(self.nodes[member].cont()?)
    }

    fn restart(&mut self, member: usize) -> Result<(), Failure> {
        Ok(self.nodes[member].restart()?)
    }
}

impl Subject for Nodes {
    const NAME: &'static str = "cassandra";
    /// That which finds the nodes.
    const OTHER_CONNECTIONS: i64 = 1;
    /// Heartbeats and queries find damaged connections, and surplus ones expire.
    const QUIET: Duration = Duration::from_secs(10);
    type Client = mux::Session<Detour>;

    fn start() -> Result<Self, Failure> {
        let first = Cassandra::start(CassandraOptions::default())?;
        let join = |last| {
            let join = Some((&first, Ipv4Addr::new(127, 0, 0, last)));
            Cassandra::start(CassandraOptions { join, ..CassandraOptions::default() })
        };
        let (second, third) = (join(2)?, join(3)?);
        let nodes = Self { nodes: [first, second, third], turn: AtomicUsize::new(0) };
        let judge = nodes.judge()?;
        smol::block_on(async {
            let replication = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}";
            let create = format!("CREATE KEYSPACE soak WITH replication = {replication}");
            judge.query(&create).consistency(Consistency::One).send().await?;
            judge.query(TABLE).consistency(Consistency::One).send().await?;
            judge.close().await;
            Ok::<_, RequestError>(())
        })?;
        nodes.settle()?;
        Ok(nodes)
    }

    fn addresses(&self) -> [SocketAddr; 3] {
        core::array::from_fn(|member| self.nodes[member].address())
    }

    fn client(&self, platform: Detour, events: Subscribers) -> Result<Self::Client, Failure> {
        // Each node listens on a port of its own. Two contact points: one may be down.
        let contacts = self.addresses().into_iter().take(2).map(|address| address.to_string());
        let mut options = SessionOptions::contact_points(contacts).node_ports(true).consistency(Consistency::Quorum);
        options = options.request_timeout(DEADLINE).connect_timeout(Duration::from_secs(2));
        options.cluster.refresh_interval = Duration::from_secs(2);
        options.cluster.query_timeout = Duration::from_secs(2);
        options.cluster.backoff_max = Duration::from_secs(1);
        // Pools that grow and shrink under this load.
        options.mux.local = HostOptions {
            core_connections: 1,
            max_connections: 4,
            max_requests_per_connection: 16,
            new_connection_threshold: 2,
        };
        options.mux.idle_timeout = Duration::from_secs(3);
        options.mux.shrink_interval = Duration::from_secs(1);
        options.mux.heartbeat_interval = Duration::from_secs(1);
        options.mux.heartbeat_timeout = Duration::from_secs(2);
        Ok(mux::Session::with_platform(platform, options, events)?)
    }

    fn pooled(session: &Self::Client) -> u32 {
        let of = |it: mux::HostStatus| it.state.open + it.state.establishing + it.state.trashed + it.state.retired;
        session.hosts().into_iter().map(of).sum()
    }

    fn is_idle(session: &Self::Client) -> bool {
        let of = |it: mux::HostStatus| it.state.establishing + it.state.in_flight + it.state.orphaned + it.state.queued;
        session.hosts().into_iter().map(of).sum::<u32>() == 0
    }

    async fn close(session: &Self::Client) {
        session.close().await;
    }

    fn served(&self, proxied: i64) -> Option<i64> {
        Some(proxied / 2)
    }

    fn term(&self) -> Option<i64> {
        None
    }

    fn rows(&self, _: usize) -> Result<Vec<Row>, Failure> {
        let judge = self.judge()?;
        smol::block_on(async {
            let mut found = Vec::new();
            let mut rows = judge.query("SELECT task, number FROM soak.rows").page_size(5_000).rows::<Row>();
            while let Some(row) = rows.next_row().await {
                found.push(row?);
            }
            judge.close().await;
            Ok(found)
        })
    }
}

impl Database for mux::Session<Detour> {
    async fn insert(&self, row: Row) -> Result<Insert, Failed> {
        let insert = self.query("INSERT INTO soak.rows (task, number, execution) VALUES (?, ?, uuid())");
        insert.values(row).send().await.map_err(|error| failed(&error))?;
        Ok(Insert::Acknowledged)
    }

    async fn find(&self, row: Row) -> Result<Vec<Row>, Failed> {
        let find = self.query("SELECT task, number FROM soak.rows WHERE task = ? AND number = ?");
        let reply = find.values(row).idempotent(true).send().await.map_err(|error| failed(&error))?;
        reply.all().map_err(|error| Failed::Wrong(format!("the reply to another request: {error}")))
    }

    async fn ping(&self) -> Result<(), Failed> {
        let ping = self.query("SELECT key FROM system.local").consistency(Consistency::One).idempotent(true);
        let reply = ping.send().await.map_err(|error| failed(&error))?;
        match reply.one::<(String,)>() {
            Ok(Some(_)) => Ok(()),
            other => Err(Failed::Wrong(format!("the reply to another request: {other:?}"))),
        }
    }
}

fn failed(error: &RequestError) -> Failed {
    Failed::Error {
        text: format!("{error:?}"),
        timed_out: matches!(error, RequestError::TimedOut { .. }),
        may_be_stored: error.may_have_executed(),
    }
}
