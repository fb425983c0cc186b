//! PostgreSQL, by the manager of the example.

#[path = "../../examples/pool_postgres.rs"]
#[expect(dead_code, reason = "main is not called")]
mod example;

use crate::pools::load;
use crate::pools::server::{Server, find};
use example::Postgres;
use poolhouse_smol::Pool;
use poolhouse_tests::mongod::Scratch;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const PASSWORD: &str = "a secret of the tests";

/// Returns the path of a `postgres` with its `initdb`, or why there is none.
pub(crate) fn available() -> Result<PathBuf, String> {
    // Debian's versions; the newest first.
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<_> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort_by(|one, other| other.cmp(one));
    let program = find("postgres", "POSTGRES", folders)?;
    // `initdb` looks for `postgres` beside itself.
    let program = fs::canonicalize(program).map_err(|error| error.to_string())?;
    if program.with_file_name("initdb").is_file() {
        Ok(program)
    } else {
        Err(format!("no initdb beside {}", program.display()))
    }
}

pub(crate) fn loses_nothing(program: &Path) {
    let server = Server::start(|scratch, port| {
        let user = user(scratch);
        let run_as = |program: &Path| {
            let mut command = Command::new(program);
            if let Some((uid, gid)) = user {
                command.uid(uid).gid(gid);
            }
            command.env("LC_ALL", "C").current_dir(scratch.path());
            command
        };
        let password = scratch.path().join("password");
        fs::write(&password, PASSWORD).unwrap();
        let mut initdb = run_as(&program.with_file_name("initdb"));
        initdb.args(["--username=pool", "--auth=scram-sha-256", "--no-sync", "--encoding=UTF8", "--pwfile"]);
        let made = initdb.arg(password).arg("--pgdata").arg(scratch.data()).output().unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));

        let mut command = run_as(program);
        command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-c", "unix_socket_directories=", "-F", "-D"]);
        command.arg(scratch.data());
        command
    });
    let text = str::to_owned;
    let (address, user, database) = (server.address(), text("pool"), text("postgres"));
    let manager = Postgres { address, user, password: text(PASSWORD), database };
    load::loses_nothing("postgres", Pool::builder(manager), server, async |connection, text| {
        let rows = connection.query(&format!("SELECT '{text}'")).await?;
        rows.into_iter().flatten().flatten().next().ok_or_else(|| io::Error::other("no row"))
    });
}

/// The user and group that run the server, which own its folders then; `None` is this user.
/// PostgreSQL refuses to run as root.
fn user(scratch: &Scratch) -> Option<(u32, u32)> {
    if fs::metadata(scratch.path()).unwrap().uid() != 0 {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let ids = |name: &str| {
        let mut fields =
            users.lines().map(|line| line.split(':')).find(|line| line.clone().next() == Some(name))?.skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    let (uid, gid) = ids("postgres").or_else(|| ids("nobody")).expect("a user who is not root");
    chown(scratch.path(), Some(uid), Some(gid)).unwrap();
    chown(scratch.data(), Some(uid), Some(gid)).unwrap();
    Some((uid, gid))
}
