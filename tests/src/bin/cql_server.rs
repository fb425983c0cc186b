//! Serves a fake Cassandra node on loopback:
//! `cql_server [--port P] [--versions 3,4,5] [--user NAME:PASSWORD] [--delay-ms D] [--seconds S]`.
//!
//! `poolhouse_tests::cql_server` documents the supported statements; `--delay-ms` delays the reply
//! to each of them. Prints the server's address. Ends when standard input is closed, or after S
//! seconds with `--seconds`; then it prints its counters.

use core::time::Duration;
use std::io::Read;
use std::process::ExitCode;

use poolhouse_cql::Version;
use poolhouse_tests::cql_server::{Act, CqlServer, CqlServerOptions, Rule};

type Failure = Box<dyn core::error::Error>;

const USAGE: &str =
    "usage: cql_server [--port P] [--versions 3,4,5] [--user NAME:PASSWORD] [--delay-ms D] [--seconds S]";

#[derive(Debug, Default)]
struct Arguments {
    options: CqlServerOptions,
    delay: Option<Duration>,
    limit: Option<Duration>,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut arguments = Self { options: CqlServerOptions::fast(), ..Self::default() };
        while let Some(name) = words.next() {
            let value = words.next().ok_or_else(|| format!("{name} requires a value; {USAGE}"))?;
            let number = || value.parse::<u64>().map_err(|error| format!("{name}: {error}"));
            match name.as_str() {
                "--port" => arguments.options.port = value.parse().map_err(|error| format!("--port: {error}"))?,
                "--versions" => {
                    let version = |number: &str| number.parse().ok().and_then(Version::from_number);
                    let versions: Option<Vec<Version>> = value.split(',').map(version).collect();
                    arguments.options.versions =
                        versions.ok_or("--versions requires a list of 3, 4 or 5, such as 3,4")?;
                }
                "--user" => {
                    let (user, password) =
                        value.split_once(':').ok_or("--user requires a name and a password, such as ada:pencil")?;
                    arguments.options = arguments.options.with_credentials(user, password);
                }
                "--delay-ms" => arguments.delay = Some(Duration::from_millis(number()?)),
                "--seconds" => arguments.limit = Some(Duration::from_secs(number()?)),
                _ => return Err(format!("unknown argument {name}; {USAGE}").into()),
            }
        }
        Ok(arguments)
    }
}

fn main() -> ExitCode {
    match Arguments::parse(std::env::args().skip(1)).and_then(serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cql_server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(arguments: Arguments) -> Result<(), Failure> {
    let server = CqlServer::start(arguments.options)?;
    if let Some(delay) = arguments.delay {
        server.add(Rule::statements(Act::Delay(delay)));
    }
    println!("{}", server.address());
    match arguments.limit {
        Some(limit) => std::thread::sleep(limit),
        None => {
            let mut sink = [0; 1024];
            while std::io::stdin().read(&mut sink).is_ok_and(|count| count > 0) {}
        }
    }
    println!("{:?}", server.counts());
    Ok(())
}
