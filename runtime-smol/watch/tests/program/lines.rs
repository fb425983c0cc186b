use crate::watch;
use core::time::Duration;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
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
    for arguments in [&["--tasks", "0"][..], &["--seconds"], &["--port"], &["mongodb://"], &["--serve", "65536"]] {
        assert_eq!(watch(arguments).status().unwrap().code(), Some(2), "{arguments:?}");
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
