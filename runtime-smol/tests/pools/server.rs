//! A server's process, which is killed and started again on the same port.

use poolhouse_tests::mongod::{Scratch, pick_ports};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A running server; killed and its folder removed when dropped.
pub(crate) struct Server {
    child: Option<Child>,
    command: Command,
    port: u16,
    scratch: Scratch,
}

impl Server {
    /// Starts a server. It is not waited for.
    ///
    /// - `command`: the command line for a folder and a port, with the data folder as an argument.
    pub(crate) fn start(command: impl FnOnce(&Scratch, u16) -> Command) -> Self {
        let (scratch, port) = (Scratch::create().unwrap(), pick_ports(1).unwrap());
        let mut command = command(&scratch, port);
        let (output, errors) = (scratch.output().unwrap(), scratch.output().unwrap());
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let mut server = Self { child: None, command, port, scratch };
        server.restart();
        server
    }

    /// `host:port`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Sends SIGKILL, and waits for the end.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts the server again after it was killed.
    pub(crate) fn restart(&mut self) {
        let child = self.command.spawn().unwrap_or_else(|error| panic!("starting {:?}: {error}", self.command));
        self.scratch.record_pid(child.id()).unwrap();
        self.child = Some(child);
    }

    /// Starts the server again if it has ended without being killed. PostgreSQL does so while
    /// processes of its predecessor exist.
    pub(crate) fn ensure_started(&mut self) {
        if self.child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_some()) {
            self.restart();
        }
    }

    /// Returns the end of its log.
    pub(crate) fn log(&self) -> String {
        self.scratch.log_tail()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the path of a program.
///
/// - `variable`: names an environment variable with the path, or with `_MISSING` appended the
///   reason why there is none.
/// - `folders`: where the program is looked for otherwise.
pub(crate) fn find(
    program: &str,
    variable: &str,
    folders: impl IntoIterator<Item = PathBuf>,
) -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os(variable).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        return if path.is_file() { Ok(path) } else { Err(format!("{variable} = {} is no file", path.display())) };
    }
    if let Ok(reason) = std::env::var(format!("{variable}_MISSING")) {
        return Err(format!("no {program} ({reason})"));
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::env::split_paths(&paths).collect::<Vec<_>>();
    let found = folders.into_iter().chain(paths).map(|folder| folder.join(program)).find(|path| path.is_file());
    found.ok_or_else(|| format!("no {program} (it is not installed; {variable} may name it)"))
}
