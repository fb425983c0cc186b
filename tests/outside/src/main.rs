//! Documents that are deep, or have text that is not UTF-8, on every path of the client; and owners of connections that
//! panic.
//!
//! Each case runs in a process of its own, because a stack that overflows ends the process. `cargo run`
//! prints a table of all cases; with the name of a case, it runs that case.

mod cases;
mod server;

use std::process::{Command, ExitCode};
use std::thread;

/// A path of the client that a case takes.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// The stack of the thread that polls the client's futures.
    stack_bytes: usize,
    run: fn(),
}

fn main() -> ExitCode {
    let cases = cases::all();
    if let Some(name) = std::env::args().nth(1) {
        let Some(case) = cases.iter().find(|case| case.name == name) else {
            eprintln!("no case is named {name:?}");
            return ExitCode::FAILURE;
        };
        // The size is explicit: the environment may have another default.
        let thread = thread::Builder::new().stack_size(case.stack_bytes).spawn(case.run).expect("a thread");
        return if thread.join().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let program = std::env::current_exe().expect("the path of this program");
    let mut failed = 0;
    for case in &cases {
        let output = Command::new(&program).arg(case.name).output().expect("this program runs");
        let result = if output.status.success() { "ok" } else { "FAILED" };
        println!("{profile:7}  {:4} KiB  {:6}  {}", case.stack_bytes / 1024, result, case.name);
        if !output.status.success() {
            failed += 1;
            println!(
                "    {}\n    {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim().replace('\n', "\n    ")
            );
        }
    }
    println!("{profile}: {} cases, {failed} failed", cases.len());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
