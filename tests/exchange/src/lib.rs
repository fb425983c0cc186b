//! Common code of benchmarks: [`mongo`] exchanges a `ping` with a MongoDB server, by a client or as
//! bare bytes; [`cql`] exchanges requests with a Cassandra node as bare bytes.

pub mod cql;
pub mod mongo;
