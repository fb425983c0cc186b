//! Metrics of operations, pools and servers, by OpenTelemetry's names where it has them, for any
//! recorder of the [`metrics`] crate (feature `metrics`).
//!
//! Read first: OpenTelemetry's "Semantic conventions for database client metrics".
//!
//! Of a MongoDB client and of a Cassandra session, with the label `db.system.name` (`mongodb`,
//! `cassandra`):
//!
//! | name | kind | unit | meaning |
//! |---|---|---|---|
//! | `db.client.operation.duration` | histogram | seconds | from the call of an operation to its result, with `db.operation.name` and, unless it succeeded, `error.type` |
//! | `poolhouse.operation.active` | gauge | operations | operations in progress |
//! | `poolhouse.operation.waiting` | gauge | operations | operations that wait because no server is suitable, or for a connection to a host of Cassandra; those of check-outs by the application and of a warm-up are not `active` |
//! | `poolhouse.operation.retries` | counter | attempts | attempts after the first of an operation |
//! | `poolhouse.operation.speculative` | counter | attempts | attempts of Cassandra requests while an earlier one was not answered |
//! | `poolhouse.primary.changes` | counter | elections | how often a replica set has another primary than before, or one again. The first one is not counted |
//!
//! `db.operation.name` is the name of the command, or `QUERY`, `EXECUTE`, `BATCH` or `PREPARE`. Spans have
//! `createCollection` and `dropCollection` instead of `create` and `drop`: MongoDB's specification defines their names.
//! `error.type` is the code of the server's error, or one of these: `timeout`, `no_server` (no server was suitable,
//! or no host took the request), `network`, `authentication`, `check_out`, `cancelled` (the future was dropped),
//! `closed`, `reply` (the reply is malformed or of another kind), `invalid` (it cannot be encoded or converted, or
//! is misuse); of Cassandra also `keyspace`, `outdated` and `schema_disagreement`. There are at most 256 pairs of
//! both in a client, and then `_OTHER`. Preparations and readings by which a session repairs a call or waits for the
//! schema are part of the call.
//!
//! Of each pool, with the label `db.client.connection.pool.name`, which is the server's address
//! (`localhost:27017`, or the path of a Unix domain socket), or the name of a generic pool:
//!
//! | name | kind | unit | meaning |
//! |---|---|---|---|
//! | `db.client.connection.count` | gauge | connections | connections with `db.client.connection.state` = `idle` or `used`; those that are being established are not counted. All of Cassandra's are `used` |
//! | `db.client.connection.max` | gauge | connections | the maximum; absent without one |
//! | `db.client.connection.idle.max` | gauge | connections | the maximum, too: all connections may be idle. Not of Cassandra |
//! | `db.client.connection.idle.min` | gauge | connections | the number that is kept open |
//! | `db.client.connection.pending_requests` | gauge | requests | check-outs that wait for a connection, or Cassandra requests in the queue of their host |
//! | `db.client.connection.timeouts` | counter | timeouts | those that timed out while they waited |
//! | `db.client.connection.create_time` | histogram | seconds | from the creation of a connection until it is ready |
//! | `db.client.connection.wait_time` | histogram | seconds | from the start of a check-out until it has a connection; of Cassandra, for requests that were in the queue |
//! | `db.client.connection.use_time` | histogram | seconds | from the end of the check-out until the check-in. Not of Cassandra |
//! | `poolhouse.connection.establishing` | gauge | connections | connections that are being established, or of Cassandra wait for that: a session establishes 32 at a time |
//! | `poolhouse.connection.errors` | counter | connections | connections that failed, or were not established |
//! | `poolhouse.pool.clears` | counter | clears | how often the connections became stale. Not of Cassandra |
//! | `poolhouse.server.down` | gauge | clients | the clients, sessions and pools of this process that cannot reach the server now |
//! | `poolhouse.heartbeat.duration` | histogram | seconds | heartbeats that were answered at once. Not of a generic pool |
//! | `poolhouse.heartbeat.failures` | counter | heartbeats | heartbeats that were not answered. Not of a generic pool |
//! | `poolhouse.stream.orphaned` | gauge | streams | stream ids of Cassandra that are reserved for late replies |
//!
//! Pools of several clients with the same address share their series, which then contain sums. Of a client or session,
//! at most 1,024 servers have series of their own, and the others `_OTHER`.
//!
//! Install the recorder first: a client registers its series when it is created, and a pool when it is
//! created, with the recorder that is installed then. If there is none, nothing is measured, at no cost
//! but a branch. A recorder without fields counts as none, because that of the `metrics` crate which does
//! nothing has none. The cost of an event is that of the recorder's handles, which are called under the lock of the
//! pool: a recorder must not call the client, and a slow one delays the pool. A pool allocates nothing for
//! it; an operation allocates for the first pair of its name and error.

mod client;
mod mux;
mod pool;
mod publish;
#[cfg(test)]
pub(crate) mod tests;

pub use pool::PoolMetrics;
pub use publish::Metrics;

use ::metrics::{
    Counter, Gauge, Histogram, Label, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

const OPERATION_DURATION: &str = "db.client.operation.duration";
const OPERATION_ACTIVE: &str = "poolhouse.operation.active";
const OPERATION_WAITING: &str = "poolhouse.operation.waiting";
const OPERATION_RETRIES: &str = "poolhouse.operation.retries";
const OPERATION_SPECULATIVE: &str = "poolhouse.operation.speculative";
const PRIMARY_CHANGES: &str = "poolhouse.primary.changes";
const SYSTEM: &str = "db.system.name";
const OPERATION: &str = "db.operation.name";
const ERROR_TYPE: &str = "error.type";

const COUNT: &str = "db.client.connection.count";
const MAX: &str = "db.client.connection.max";
const IDLE_MAX: &str = "db.client.connection.idle.max";
const IDLE_MIN: &str = "db.client.connection.idle.min";
const PENDING_REQUESTS: &str = "db.client.connection.pending_requests";
const TIMEOUTS: &str = "db.client.connection.timeouts";
const CREATE_TIME: &str = "db.client.connection.create_time";
const WAIT_TIME: &str = "db.client.connection.wait_time";
const USE_TIME: &str = "db.client.connection.use_time";
const ESTABLISHING: &str = "poolhouse.connection.establishing";
const ERRORS: &str = "poolhouse.connection.errors";
const CLEARS: &str = "poolhouse.pool.clears";
const DOWN: &str = "poolhouse.server.down";
const HEARTBEAT_DURATION: &str = "poolhouse.heartbeat.duration";
const HEARTBEAT_FAILURES: &str = "poolhouse.heartbeat.failures";
const ORPHANED: &str = "poolhouse.stream.orphaned";
const POOL_NAME: &str = "db.client.connection.pool.name";
const STATE: &str = "db.client.connection.state";

/// Whether a recorder is installed. That of the crate, which does nothing, has no fields.
fn has_recorder() -> bool {
    ::metrics::with_recorder(|recorder| size_of_val(recorder) > 0)
}

fn of_pool(name: &str) -> Vec<Label> {
    alloc::vec![Label::new(POOL_NAME, name.to_string())]
}

/// A gauge of one owner: what the owner has added to it is subtracted when the owner is dropped, because
/// others may add to the same series.
struct Share {
    gauge: Gauge,
    added: f64,
}

impl Share {
    const fn new(gauge: Gauge) -> Self {
        Self { gauge, added: 0.0 }
    }

    #[inline]
    fn add(&mut self, count: f64) {
        if count != 0.0 {
            self.added += count;
            self.gauge.increment(count);
        }
    }

    fn set(&mut self, count: f64) {
        self.add(count - self.added);
    }
}

fn record(histogram: &Histogram, duration: Duration) {
    histogram.record(duration.as_secs_f64());
}

fn describe() {
    describe_histogram!(OPERATION_DURATION, Unit::Seconds, "The time from the call of an operation to its result");
    describe_gauge!(OPERATION_ACTIVE, Unit::Count, "Operations in progress");
    describe_gauge!(OPERATION_WAITING, Unit::Count, "Operations that wait for a server");
    describe_counter!(OPERATION_RETRIES, Unit::Count, "Attempts of operations after the first");
    describe_counter!(OPERATION_SPECULATIVE, Unit::Count, "Attempts while an earlier one was not answered");
    describe_counter!(PRIMARY_CHANGES, Unit::Count, "Times that a replica set has another primary, or one again");
    describe_gauge!(COUNT, Unit::Count, "Connections in the state that the label names");
    describe_gauge!(MAX, Unit::Count, "The maximum number of connections");
    describe_gauge!(IDLE_MAX, Unit::Count, "The maximum number of idle connections");
    describe_gauge!(IDLE_MIN, Unit::Count, "The minimum number of connections");
    describe_gauge!(PENDING_REQUESTS, Unit::Count, "Check-outs or requests that wait for a connection");
    describe_counter!(TIMEOUTS, Unit::Count, "Check-outs or requests that timed out while they waited");
    describe_histogram!(CREATE_TIME, Unit::Seconds, "The time to establish a connection");
    describe_histogram!(WAIT_TIME, Unit::Seconds, "The time from the start of a check-out until it has a connection");
    describe_histogram!(USE_TIME, Unit::Seconds, "The time from a check-out to the check-in");
    describe_gauge!(ESTABLISHING, Unit::Count, "Connections that are being established");
    describe_counter!(ERRORS, Unit::Count, "Connections that failed or were not established");
    describe_counter!(CLEARS, Unit::Count, "Times that the connections became stale");
    describe_gauge!(DOWN, Unit::Count, "Clients, sessions and pools that cannot reach the server");
    describe_histogram!(HEARTBEAT_DURATION, Unit::Seconds, "The time until a heartbeat was answered");
    describe_counter!(HEARTBEAT_FAILURES, Unit::Count, "Heartbeats that were not answered");
    describe_gauge!(ORPHANED, Unit::Count, "Stream ids that are reserved for late replies");
}
