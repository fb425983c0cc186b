//! The official tests of server discovery and monitoring: a case per file, named folder/file.

use std::process::ExitCode;

use poolhouse_tests::sdam;
use poolhouse_tests::suite::as_one;

/// The maximum percentage of tests that are too large for the fixed memory. These run only on the
/// heap.
const BEYOND_PERCENT_MAX: u32 = 5;

fn main() -> ExitCode {
    as_one(run)
}

fn run() -> ExitCode {
    let code = sdam::suite().run();
    let (within, beyond, direct) = sdam::in_place();
    println!(
        "sdam: {within} of {} tests also ran in fixed memory, {direct} in that of a direct connection",
        within + beyond
    );
    // A test that was selected by name may be too large.
    let is_whole = std::env::args_os().len() == 1;
    if is_whole && beyond * 100 > (within + beyond) * BEYOND_PERCENT_MAX {
        println!("sdam: too few tests fit into the fixed memory");
        return ExitCode::FAILURE;
    }
    if is_whole && within > 0 && direct == 0 {
        println!("sdam: no test ran in the memory of a direct connection");
        return ExitCode::FAILURE;
    }
    code
}
