//! Serves a fake mongod on loopback: `fake_server [--port P] [--seconds S] [--user NAME:PASSWORD[:MECHANISM]]..`.
//!
//! With users it has access control; a user without a mechanism has both of SCRAM. Prints its connection string. Ends when standard input is closed, or after S seconds if they are given.

use core::time::Duration;
use std::io::Read;
use std::process::ExitCode;

use poolhouse_tests::fake::{FakeOptions, FakeServer, FakeUser};

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fake_server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), Box<dyn core::error::Error>> {
    let mut options = FakeOptions::default();
    let mut seconds = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{name} needs a value"));
        match name.as_str() {
            "--port" => options.port = value()?.parse().map_err(|error| format!("--port: {error}"))?,
            "--user" => {
                let value = value()?;
                let mut parts = value.splitn(3, ':');
                let user = FakeUser::new(parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                options.users.push(match parts.next() {
                    None => user,
                    Some("PLAIN") => user.with_mechanisms(&["PLAIN"]).with_source("$external"),
                    Some(mechanism) => user.with_mechanisms(&[mechanism]),
                });
                options.auth_required = true;
            }
            "--seconds" => seconds = Some(value()?.parse::<f64>().map_err(|error| format!("--seconds: {error}"))?),
            _ => return Err(format!("unknown argument {name}; usage: fake_server [--port P] [--seconds S] [--user NAME:PASSWORD[:MECHANISM]]..").into()),
        }
    }
    let limit = seconds.map(Duration::try_from_secs_f64).transpose().map_err(|error| format!("--seconds: {error}"))?;
    let server = FakeServer::start(options)?;
    println!("{}", server.uri());
    match limit {
        Some(limit) => std::thread::sleep(limit),
        None => {
            let mut sink = [0; 1024];
            while std::io::stdin().read(&mut sink)? > 0 {}
        }
    }
    let (accepted, commands) = server.look(|view| (view.accepted_count(), view.commands_count()));
    println!("{accepted} connections, {commands} commands");
    Ok(())
}
