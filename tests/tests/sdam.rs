//! The official tests of server discovery and monitoring: a case per file, named folder/file.

use std::process::ExitCode;

use poolhouse_tests::sdam;
use poolhouse_tests::suite::Suite;

fn main() -> ExitCode {
    match sdam::cases() {
        Ok(cases) => {
            let suite = Suite::new("sdam");
            cases.into_iter().fold(suite, |suite, (name, path)| suite.case(name, move || sdam::run_file(&path))).run()
        }
        Err(reason) => Suite::new("sdam").skip_if(Some(reason)).run(),
    }
}
