use crate::pty::Pty;
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Child, Command};

/// The end of the screen.
const RESTORED: &str = "\x1b[?25h\x1b[?1049l";

fn start(terminal: &Pty) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_poolhouse-watch"));
    terminal.start(command.args(["--calm", "--tasks", "8"])).unwrap()
}

pub(crate) fn keys() {
    let mut terminal = Pty::open().unwrap();
    let before = format!("{:?}", terminal.mode().unwrap());
    let mut child = start(&terminal);
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
    let mut child = start(&terminal);
    terminal.wait_for(&["RSPrimary"]);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    terminal.wait_for(&[RESTORED, "operations succeeded"]);
    assert!(child.wait().unwrap().success());
    assert_eq!(format!("{:?}", terminal.mode().unwrap()), before);
}
