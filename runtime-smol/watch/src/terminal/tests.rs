#[path = "pty.rs"]
mod pty;

use std::process::Command;

use super::*;
use pty::Pty;

const CHILD: &str = "terminal::tests::panic_of_a_thread_on_a_screen";

/// Runs in a process of its own, which [`panic_restores_the_terminal`] starts.
#[test]
#[ignore = "it ends its process"]
fn panic_of_a_thread_on_a_screen() {
    let _terminal = Terminal::enter().unwrap();
    let _ = std::thread::spawn(|| panic!("a bug")).join();
    panic!("the process goes on");
}

#[test]
fn panic_restores_the_terminal() {
    let mut terminal = Pty::open().unwrap();
    let before = terminal.mode().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut child = terminal.start(command.args(["--exact", CHILD, "--ignored", "--nocapture"])).unwrap();
    // The screen, its end, and then the message.
    terminal.wait_for(&["\x1b[?1049h", "\x1b[?25h\x1b[?1049l", "a bug"]);
    assert_eq!(child.wait().unwrap().code(), Some(101));
    let after = terminal.mode().unwrap();
    assert!(after.local_modes.contains(LocalModes::ICANON | LocalModes::ECHO));
    assert_eq!(format!("{after:?}"), format!("{before:?}"));
}

#[test]
fn frame_is_drawn_over_the_previous_one() {
    let lines = [Line(vec![(Style::Bold, "a".to_owned()), (Style::Plain, "b".to_owned())]), Line::default()];
    assert_eq!(escaped(&lines), "\x1b[H\x1b[1ma\x1b[0m\x1b[0mb\x1b[0m\x1b[K\r\n\x1b[K\x1b[J");
}
