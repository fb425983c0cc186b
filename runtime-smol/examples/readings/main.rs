//! Readings of sensors in Cassandra, by commands from the standard input. The guide `cassandra` of
//! `poolhouse-client` explains it.
//!
//! ```sh
//! cargo run -p poolhouse-smol --example readings -- datacenter1 127.0.0.1:9042
//! add kitchen 21.5
//! latest kitchen
//! list kitchen
//! ```
//!
//! It ends at the end of its input, or at SIGTERM or SIGINT after the pending command. `readings` has all
//! that the program does with the database.

mod readings;

use async_signal::{Signal, Signals};
use readings::{Failure, Reading, Readings};
use smol::Unblock;
use smol::future::FutureExt as _;
use smol::io::{AsyncBufReadExt as _, BufReader};
use smol::stream::StreamExt as _;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let (data_center, contact_points) = (words.next(), words.collect::<Vec<_>>());
    let data_center = data_center.ok_or("usage: readings DATA_CENTER HOST[:PORT]..")?;
    smol::block_on(async {
        let readings = Readings::open(contact_points, data_center).await?;
        // Until now a signal ends the program.
        let mut signals = Signals::new([Signal::Term, Signal::Int])?;
        let mut lines = BufReader::new(Unblock::new(std::io::stdin())).lines();
        loop {
            let end = async {
                signals.next().await;
                None
            };
            // A signal takes precedence over a buffered line.
            let Some(line) = end.or(lines.next()).await else { break };
            let executed = match line {
                Ok(line) => execute(&readings, &line).await,
                Err(error) => Err(error.into()),
            };
            if let Err(failure) = executed {
                eprintln!("{failure}");
            }
        }
        readings.close().await;
        Ok(())
    })
}

async fn execute(readings: &Readings, line: &str) -> Result<(), Failure> {
    match line.split_whitespace().collect::<Vec<_>>()[..] {
        ["add", sensor, celsius] => {
            let at_ms = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
            readings.insert(&Reading { sensor: sensor.to_owned(), at_ms, celsius: celsius.parse()? }).await
        }
        ["latest", sensor] => {
            match readings.latest(sensor).await? {
                Some(Reading { at_ms, celsius, .. }) => println!("{at_ms} {celsius}"),
                None => println!("there is no reading"),
            }
            Ok(())
        }
        ["list", sensor] => {
            let print = |Reading { at_ms, celsius, .. }| println!("{at_ms} {celsius}");
            readings.for_each(sensor, print).await
        }
        _ => Err("commands: add SENSOR CELSIUS, latest SENSOR, list SENSOR".into()),
    }
}
