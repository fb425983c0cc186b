use crate::pty::Pty;
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Child, Command};

/// The end of the screen.
const RESTORED: &str = "\x1b[?25h\x1b[?1049l";

fn start(terminal: &Pty, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_poolhouse-watch"));
    terminal.start(command.args(arguments)).unwrap()
}

pub(crate) fn keys() {
    let mut terminal = Pty::open().unwrap();
    let before = format!("{:?}", terminal.mode().unwrap());
    let mut child = start(&terminal, &["--calm", "--tasks", "8"]);
    terminal.wait_for(&["\x1b[?1049h", "RSPrimary", "RSSecondary", "fail over", "freeze the primary", "quit"]);
    assert_ne!(format!("{:?}", terminal.mode().unwrap()), before);
    terminal.press("f").unwrap();
    terminal.wait_for(&["steps down", "was RSSecondary, is RSPrimary"]);
    terminal.press("z").unwrap();
    terminal.wait_for(&[" freezes", " thaw ", "frozen"]);
    terminal.press("z").unwrap();
    terminal.wait_for(&[" thaws", "freeze the primary"]);
    terminal.press("xq").unwrap();
    terminal.wait_for(&[RESTORED, "operations succeeded"]);
    assert!(child.wait().unwrap().success());
    assert_eq!(format!("{:?}", terminal.mode().unwrap()), before);
}

pub(crate) fn sigint() {
    let mut terminal = Pty::open().unwrap();
    let before = format!("{:?}", terminal.mode().unwrap());
    let mut child = start(&terminal, &["--calm", "--tasks", "8"]);
    terminal.wait_for(&["RSPrimary"]);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    terminal.wait_for(&[RESTORED, "operations succeeded"]);
    assert!(child.wait().unwrap().success());
    assert_eq!(format!("{:?}", terminal.mode().unwrap()), before);
}

pub(crate) fn hosts() {
    let mut terminal = Pty::open().unwrap();
    let mut child = start(&terminal, &["--cassandra"]);
    terminal.wait_for(&["fake Cassandra nodes", " v5 ", " kill 127.", " freeze 127.", "ConnectionReady connection 2"]);
    terminal.press("f").unwrap();
    // The list may be too short for the cause before its effects.
    terminal.wait_for(&["down ", " restart 127.", "ConnectionClosed"]);
    terminal.press("f").unwrap();
    terminal.wait_for(&[" restarts", " kill 127.", "ConnectionReady"]);
    terminal.press("z").unwrap();
    terminal.wait_for(&[" thaw 127.", "frozen", "HeartbeatFailed"]);
    terminal.press("z").unwrap();
    terminal.wait_for(&[" thaws", " freeze 127.", "ConnectionReady"]);
    terminal.press("q").unwrap();
    // Requests are sent again to another host.
    terminal.wait_for(&[RESTORED, "operations succeeded", ", 0 failed, in ", "connections: "]);
    assert!(child.wait().unwrap().success());
}
