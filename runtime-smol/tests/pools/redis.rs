//! Redis, by the manager of the example.

#[path = "../../examples/pool_redis.rs"]
#[expect(dead_code, reason = "main is not called")]
mod example;

use crate::pools::load;
use crate::pools::server::{Server, find};
use example::{Redis, Reply};
use poolhouse_smol::Pool;
use std::io;
use std::path::PathBuf;
use std::process::Command;

/// Returns the path of a `redis-server`, or why there is none.
pub(crate) fn available() -> Result<PathBuf, String> {
    find("redis-server", "REDIS_SERVER", [])
}

pub(crate) fn loses_nothing(program: PathBuf) {
    let server = Server::start(|scratch, port| {
        let mut command = Command::new(program);
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]).arg("--dir").arg(scratch.data());
        command.args(["--save", "", "--appendonly", "no", "--daemonize", "no", "--set-proc-title", "no"]);
        command
    });
    // Without checks, which would find the replies to other requests before an operation does.
    let builder = Pool::builder(Redis { address: server.address(), password: None }).check_before_reuse(false);
    load::loses_nothing("redis", builder, server, async |connection, text| {
        let Reply::Value(value) = connection.command(&["ECHO", text]).await? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        String::from_utf8(value).map_err(io::Error::other)
    });
}
