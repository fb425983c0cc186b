//! Instruction counts by valgrind's callgrind, where it is installed. A program runs N cycles, then
//! 2N; the difference excludes the cost of starting and ending.

use crate::report::Table;
use core::net::SocketAddr;
use std::ffi::OsString;
use std::io::Write;
use std::process::{Command, Stdio};

/// A program that runs a case a number of times.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The program and its arguments.
    pub(crate) words: Vec<OsString>,
    /// The standard input of the program.
    pub(crate) input: String,
}

impl Program {
    /// This program, with the subcommand that repeats one case of a section.
    pub(crate) fn own(section: &str, case: &str, times: u32, server: SocketAddr) -> Self {
        let this = std::env::current_exe().expect("this program has a path").into_os_string();
        let rest = ["repeat", section, case, &times.to_string(), &server.to_string()].map(OsString::from);
        Self { words: [this].into_iter().chain(rest).collect(), input: String::new() }
    }
}

/// Creates the table of some cases. Each case is a name and a title; `program` returns the program
/// that runs a case a number of times.
pub(crate) fn table(
    title: &str,
    cases: &[(&str, &str)],
    times: u32,
    mut program: impl FnMut(&str, u32) -> Result<Program, String>,
) -> Table {
    let mut table = Table::new(title, &["instructions", "of the first"]);
    let mut first = None;
    for (name, title) in cases {
        let mut counted = |times| count(&program(name, times)?);
        let each = counted(times).and_then(|one| Ok((counted(times * 2)? - one) / f64::from(times)));
        match each {
            Ok(each) => table.row(*title, &[each, each / *first.get_or_insert(each)]),
            Err(why) => table.skip(*title, why),
        }
    }
    table
}

/// Counts the instructions of the whole process, on all of its threads.
fn count(program: &Program) -> Result<f64, String> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).args(&program.words);
    command.env("SMOL_THREADS", "1").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|_| "valgrind is not installed".to_owned())?;
    if let Some(mut input) = child.stdin.take() {
        // A program that does not read its input may have ended.
        let _ = input.write_all(program.input.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said.lines().find_map(|line| Some(line.split_once("Collected :")?.1.trim().parse().ok()));
    collected.flatten().filter(|_| output.status.success()).ok_or_else(|| "valgrind counted nothing".to_owned())
}
