//! The official tests of server discovery and monitoring: a case per file, named folder/file.

use std::process::ExitCode;

use poolhouse_tests::sdam;

fn main() -> ExitCode {
    sdam::suite().run()
}
