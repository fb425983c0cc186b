//! The program in a process of its own: without a terminal, on one, and with its page in a browser.
#![expect(clippy::unwrap_used, reason = "its functions are tests, although without the attribute")]

mod program {
    pub(crate) mod browser;
    pub(crate) mod lines;
    pub(crate) mod page;
    pub(crate) mod terminal;
}

#[path = "../src/terminal/pty.rs"]
mod pty;

use poolhouse_tests::cassandra;
use poolhouse_tests::suite::Suite;
use program::{browser, lines, page, terminal};
use std::process::{Command, ExitCode, Stdio};

/// The program, without a terminal.
fn watch(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_poolhouse-watch"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

fn main() -> ExitCode {
    let suite = Suite::new("watch")
        .case("one_line_a_second_without_a_terminal", lines::one_a_second)
        .case("wrong_arguments_are_refused", lines::wrong_arguments)
        .case("closed_output_ends_the_program", lines::closed_output)
        .case("sigint_ends_the_program_with_its_summary", lines::sigint)
        .case("keys_fail_over_freeze_thaw_and_quit", terminal::keys)
        .case("sigint_restores_the_terminal", terminal::sigint)
        .case("fake_hosts_grow_and_resurrect_until_the_time_ends", lines::hosts)
        .case("killed_and_frozen_hosts_are_used_again", terminal::hosts)
        .case("hostile_requests_get_errors_and_others_are_served", page::hostile_requests);
    let suite = match cassandra::available() {
        Ok(_) => suite.case("genuine_host_has_version_and_data_centre", lines::genuine_host),
        Err(reason) => suite.missing("genuine_host_has_version_and_data_centre", reason),
    };
    let members = "page_in_a_browser_shows_pools_and_a_failover_within_a_second";
    let hosts = "page_in_a_browser_shows_hosts";
    match browser::available() {
        Ok(program) => {
            let other = program.clone();
            suite.case(members, move || page::in_a_browser(&program)).case(hosts, move || page::hosts(&other))
        }
        Err(reason) => suite.missing(members, reason.clone()).missing(hosts, reason),
    }
    .run()
}
