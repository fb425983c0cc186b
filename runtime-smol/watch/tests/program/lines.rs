use crate::watch;
use core::time::Duration;
use poolhouse_tests::cassandra::{Cassandra, CassandraOptions};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Instant;

pub(crate) fn one_a_second() {
    let started = Instant::now();
    let mut child = watch(&["--seconds", "3", "--tasks", "8"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut shown = vec![lines.next().unwrap().unwrap()];
    let first = started.elapsed();
    shown.extend(lines.map(Result::unwrap));
    assert!(child.wait().unwrap().success(), "{shown:#?}");
    assert!(first < Duration::from_secs(5), "the first line is printed after {first:?}");
    let seconds: Vec<_> = shown.iter().filter(|line| line.contains(" operations/s, p50 ")).collect();
    assert!((2..=3).contains(&seconds.len()), "{shown:#?}");
    // Two lines explain, and one sums up.
    assert_eq!(shown.len(), seconds.len() + 3, "{shown:#?}");
    assert!(seconds.iter().all(|line| line.split(" | ").count() == 4), "{shown:#?}");
    assert!(seconds.iter().any(|line| line.contains(" RSPrimary ")), "{shown:#?}");
    assert!(shown.last().unwrap().contains("operations succeeded"), "{shown:#?}");
}

pub(crate) fn wrong_arguments() {
    for arguments in [
        &["--tasks", "0"][..],
        &["--seconds"],
        &["--port"],
        &["mongodb://"],
        &["--serve", "65536"],
        &["127.0.0.1:9042"],
        &["--cassandra", "--calm"],
        &["--cassandra", "--serve", "65536"],
        &["--cassandra", "127.0.0.1:x"],
        &["--cassandra", "--user", "ada", "--password", "pencil"],
        &["--cassandra", "127.0.0.1", "--user", "ada"],
        &["--user", "ada", "--password", "pencil"],
    ] {
        let output = watch(arguments).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!String::from_utf8(output.stderr).unwrap().contains("pencil"), "{arguments:?}");
    }
}

pub(crate) fn closed_output() {
    let mut child = watch(&["--seconds", "60", "--tasks", "1"]).spawn().unwrap();
    drop(child.stdout.take());
    // Not by a panic, which has status 101.
    let code = child.wait().unwrap().code();
    assert!(matches!(code, Some(0..=2)), "{code:?}");
}

pub(crate) fn sigint() {
    let mut child = watch(&["--seconds", "60", "--tasks", "8"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains(" operations/s, p50 ")));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert!(lines.any(|line| line.contains("operations succeeded")));
    assert!(child.wait().unwrap().success());
}

pub(crate) fn hosts() {
    let mut child = watch(&["--cassandra"]).spawn().unwrap();
    let shown: Vec<_> = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
    // Only if no request failed, and pools grew, trashed connections and resurrected some.
    assert!(child.wait().unwrap().success(), "{shown:#?}");
    let seconds: Vec<_> = shown.iter().filter(|line| line.contains(" operations/s, p50 ")).collect();
    assert!(seconds.iter().all(|line| line.split(" | ").count() == 4), "{shown:#?}");
    // A host with several connections.
    let connections = |host: &str| host.split('/').nth(3)?.parse::<u32>().ok();
    let mut hosts = seconds.iter().flat_map(|line| line.split(" | ").skip(1));
    assert!(hosts.any(|host| host.contains(" v5 ") && connections(host) > Some(1)), "{shown:#?}");
    assert!(shown.iter().any(|line| line.contains(" operations succeeded, ") && line.contains(" were cancelled, ")));
    assert!(shown.last().unwrap().starts_with("connections: "), "{shown:#?}");
}

pub(crate) fn genuine_host() {
    let node = Cassandra::start(CassandraOptions { requires_password: true, ..CassandraOptions::default() }).unwrap();
    let address = node.address().to_string();
    let run = |password: &str| {
        let credential = ["--user", "cassandra", "--password", password];
        let mut command = watch(&["--cassandra", &address, "--seconds", "5"]);
        let output = command.args(credential).stderr(Stdio::piped()).output().unwrap();
        let texts = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(texts).unwrap())
    };
    let (code, shown) = run("cassandra");
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains(&format!(" | {address} v5 dc1 ")), "{shown}");
    let (code, shown) = run("pencil");
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains(&format!(" | {address} down")) && !shown.contains("pencil"), "{shown}");
}
