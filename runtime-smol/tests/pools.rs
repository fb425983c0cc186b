//! Pools for other protocols under load, while their servers are killed and started again: the
//! managers of the examples against Redis, PostgreSQL and an HTTP server.
#![expect(clippy::unwrap_used, reason = "its functions are tests, although without the attribute")]

extern crate alloc;

mod pools {
    pub(crate) mod http;
    pub(crate) mod load;
    pub(crate) mod postgres;
    pub(crate) mod redis;
    pub(crate) mod server;
}

use poolhouse_tests::suite::Suite;
use pools::{http, postgres, redis};
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(port) = http::requested_port() {
        http::serve(port);
    }
    let mut suite = Suite::new("pools");
    let name = "http_loses_nothing_when_its_server_is_killed";
    suite = suite.case(name, http::loses_nothing);
    let name = "redis_loses_nothing_when_its_server_is_killed";
    suite = match redis::available() {
        Ok(program) => suite.case(name, move || redis::loses_nothing(program)),
        Err(reason) => suite.missing(name, reason),
    };
    let name = "postgres_loses_nothing_when_its_server_is_killed";
    suite = match postgres::available() {
        Ok(program) => suite.case(name, move || postgres::loses_nothing(&program)),
        Err(reason) => suite.missing(name, reason),
    };
    suite.run()
}
