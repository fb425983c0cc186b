//! The client over a modem with AT commands on the serial line of a board without a network.

use core::time::Duration;

use bson::doc;
use poolhouse_tests::fake::{BlockingClient, Cut, FakeOptions, FakeServer, FakeUser, Fault, FaultRule};
use poolhouse_tests::firmware::Firmware;
use poolhouse_tests::tls::Folder;

use crate::at_modem::{AtModem, Mishap, NAME, Plan};
use crate::{LIMIT, Outcome};

/// So many that all mishaps happen, even if a slow emulator sends several of them with each insert.
const READINGS: i32 = 200;

/// The server closes a connection after it has executed an insert, and before it has replied.
fn cut_after_insert() -> FaultRule {
    FaultRule::once(Fault::TruncatedFrame { bytes: 5, by: Cut::Fin }).on_command("insert").skip(3)
}

/// Sends readings over a modem with these mishaps. The server has each of them once, and no connection is left.
fn run(case: &str, faults: Option<FaultRule>, plans: Vec<Plan>) -> Outcome {
    let mut options = FakeOptions::default();
    options.users = vec![FakeUser::new("ada", "pencil")];
    let server = FakeServer::start(options)?;
    if let Some(rule) = faults {
        server.inject(rule);
    }
    let folder = Folder::new();
    let line = folder.path().join("line");
    let modem = AtModem::start(&line, plans)?;
    let address = format!("{NAME}:{}", server.address().port());
    let arguments = [&address, "ada", "pencil", &READINGS.to_string(), "50", "80"].map(str::to_owned);
    let mut firmware = Firmware::start_on_line("modem", &arguments, &line)?;
    let status = firmware.finish(LIMIT)?;
    let summary = firmware.output().iter().find(|line| line.starts_with("sent ")).cloned().unwrap_or_default();
    println!(
        "firmware: {case}: {summary}, {} restarts of the modem, {} sends",
        modem.count_of("AT+RST"),
        modem.count_of("AT+CIPSEND")
    );
    if status != 0 || !summary.starts_with(&format!("sent {READINGS}, ")) {
        return Err(format!("exit status {status}:\n{}", firmware.output().join("\n")).into());
    }
    if modem.open_count() > 0 || !modem.outstanding().is_empty() || !modem.errors().is_empty() {
        let (open, outstanding, errors) = (modem.open_count(), modem.outstanding(), modem.errors());
        return Err(format!("{open} links are open, outstanding {outstanding:?}, errors {errors:?}").into());
    }
    server.wait_until(LIMIT, |view| view.open_count() == 0)?;
    let mut client = BlockingClient::connect(server.address(), Duration::from_secs(20))?;
    let reply = client.run("demo", doc! { "find": "telemetry", "batchSize": 2 * READINGS })?;
    let found = reply.get_document("cursor")?.get_array("firstBatch")?;
    let ids = found.iter().map(|it| it.as_document().ok_or("no document")?.get_i32("_id").map_err(|_| "no _id"));
    let mut ids = ids.collect::<Result<Vec<_>, _>>()?;
    ids.sort_unstable();
    if ids == Vec::from_iter(0..READINGS) { Ok(()) } else { Err(format!("found {ids:?}").into()) }
}

pub(crate) fn documents_arrive_over_a_modem() -> Outcome {
    run("documents arrive over a modem", None, Vec::new())
}

pub(crate) fn mishaps_of_a_modem_lose_nothing() -> Outcome {
    // Readings are stored between two mishaps.
    let plans = vec![
        ("AT+CIPDOMAIN", 1, Mishap::Error),
        ("AT+CIPSTART", 1, Mishap::Error),
        ("AT+CIPSTART", 2, Mishap::Busy),
        ("AT+CIPCLOSE", 1, Mishap::Error),
        ("AT+CIPRECVDATA", 4, Mishap::Error),
        ("AT+CIPRECVDATA", 9, Mishap::Silence),
        ("AT+CIPSEND", 5, Mishap::Busy),
        ("AT+CIPSEND", 12, Mishap::Error),
        ("AT+CIPSEND", 20, Mishap::Garbage(b"\0\xff\r\n9,CLOSED\r\n+IPD,7,1\r\n+IPD,,\r\n+CIPDOMAIN:\"x\"\r\n,,,\r\n")),
        ("AT+CIPSEND", 26, Mishap::Close),
        // The board does not receive the prompt.
        ("AT+CIPSEND", 40, Mishap::Silence),
        ("AT+CIPSEND", 56, Mishap::Reset),
    ];
    run("mishaps of a modem lose nothing", Some(cut_after_insert()), plans)
}
