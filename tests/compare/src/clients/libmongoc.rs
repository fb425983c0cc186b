//! libmongoc, driven by a small C program, where it can be built.

use crate::process::output;
use core::net::SocketAddr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// The running program.
pub(super) struct Libmongoc {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Libmongoc {
    /// Builds and starts the program.
    pub(super) fn start(server: SocketAddr, connections: u32) -> Result<Self, String> {
        let program = Program::build()?;
        let child = Command::new(&program.path)
            .arg(uri(server, connections))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|error| format!("the program does not run: {error}"))?;
        let output = child.stdout.take().ok_or("the program has no standard output")?;
        Ok(Self { child, output: BufReader::new(output) })
    }

    /// Runs this number of pings on each of some threads. Returns seconds for each.
    pub(super) fn round(&mut self, tasks: u32, each: u32) -> f64 {
        let mut input = self.child.stdin.as_ref().expect("a pipe to the program");
        writeln!(input, "{tasks} {each}").expect("the program is running");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the server answers");
        let seconds: f64 = line.trim().parse().expect("seconds");
        seconds / f64::from(tasks * each)
    }
}

impl Drop for Libmongoc {
    fn drop(&mut self) {
        // The program ends when its standard input is closed.
        drop(self.child.stdin.take());
        // An error means that it has ended already.
        let _ = self.child.wait();
    }
}

/// The connection string.
pub(super) fn uri(server: SocketAddr, connections: u32) -> String {
    format!("mongodb://{server}/?maxPoolSize={connections}&directConnection=true")
}

/// The built program. Its file is removed on drop; a running process continues.
pub(super) struct Program {
    pub(super) path: PathBuf,
}

impl Program {
    /// Builds the program, or returns the reason why it cannot be built.
    pub(super) fn build() -> Result<Self, String> {
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let folder = this.parent().ok_or("the path of this program has no parent folder")?;
        // A path for each process: another process may be building the program too.
        let path = folder.join(format!("libmongoc-{}", std::process::id()));
        compile("src/clients/libmongoc.c", &path)?;
        Ok(Self { path })
    }
}

/// Compiles a file of this folder, and links it with libmongoc.
pub(crate) fn compile(source: &str, program: &Path) -> Result<(), String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let flags = output(Command::new(folder.join("../scripts/clients")).arg("--flags"))?;
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-O2", "-pthread", "-o"]).arg(program).arg(folder.join(source));
    output(compiler.args(flags.split_whitespace())).map(drop)
}

impl Drop for Program {
    fn drop(&mut self) {
        // An error means that the file does not exist.
        let _ = std::fs::remove_file(&self.path);
    }
}
