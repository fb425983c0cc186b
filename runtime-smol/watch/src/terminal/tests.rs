#[path = "pty.rs"]
mod pty;

use std::io::Read;
use std::process::Command;

use super::*;
use pty::Pty;

/// In the environment of the process that panics, which the test starts as another run of itself.
const PANICS: &str = "POOLHOUSE_WATCH_PANICS";

#[test]
fn panic_restores_the_terminal() {
    if std::env::var_os(PANICS).is_some() {
        let _terminal = Terminal::enter().unwrap();
        io::stdin().read_exact(&mut [0]).unwrap();
        let _ = std::thread::spawn(|| panic!("a bug")).join();
        // The process continues: a status that the test does not expect.
        std::process::exit(0);
    }
    let mut terminal = Pty::open().unwrap();
    let before = format!("{:?}", terminal.mode().unwrap());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "terminal::tests::panic_restores_the_terminal", "--nocapture"]).env(PANICS, "yes");
    let mut child = terminal.start(&mut command).unwrap();
    terminal.wait_for(&["\x1b[?1049h"]);
    // A key arrives without the end of a line.
    terminal.press("x").unwrap();
    terminal.wait_for(&["\x1b[?25h\x1b[?1049l", "a bug"]);
    assert_eq!(child.wait().unwrap().code(), Some(101));
    assert_eq!(format!("{:?}", terminal.mode().unwrap()), before);
}

#[test]
fn frame_is_drawn_over_the_previous_one() {
    let lines = [Line(vec![(Style::Bold, "a".to_owned()), (Style::Plain, "b".to_owned())]), Line::default()];
    assert_eq!(escaped(&lines), "\x1b[H\x1b[1ma\x1b[0m\x1b[0mb\x1b[0m\x1b[K\r\n\x1b[K\x1b[J");
}
