//! A terminal for a process under test.

use core::time::Duration;
use std::fs::File;
use std::io::{self, Read, Write};
use std::process::{Child, Command};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Instant;

use rustix::fs::{Mode, OFlags};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

/// Upper bound of every wait; far longer than needed.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Pty {
    master: File,
    /// The process's side, which stays open so that its mode can be read.
    slave: File,
    output: Receiver<Vec<u8>>,
    seen: Vec<u8>,
}

impl Pty {
    pub(crate) fn open() -> io::Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        // A process that inherits the master keeps its own terminal open: its writes then wait for a reader
        // that has gone.
        fcntl_setfd(&master, FdFlags::CLOEXEC)?;
        let name = ptsname(&master, Vec::new())?;
        // Not as the terminal of this process, which would end with it if it leads its session.
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = File::from(rustix::fs::open(&*name, flags, Mode::empty())?);
        tcsetwinsize(&master, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 })?;
        let master = File::from(master);
        let mut reader = master.try_clone()?;
        let (sender, output) = mpsc::channel();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count) = reader.read(&mut piece) {
                if count == 0 || sender.send(piece[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Ok(Self { master, slave, output, seen: Vec::new() })
    }

    /// Starts a command whose input and output are the terminal.
    pub(crate) fn start(&self, command: &mut Command) -> io::Result<Child> {
        let (input, output, errors) = (self.slave.try_clone()?, self.slave.try_clone()?, self.slave.try_clone()?);
        command.env("TERM", "xterm").stdin(input).stdout(output).stderr(errors).spawn()
    }

    pub(crate) fn mode(&self) -> io::Result<Termios> {
        Ok(tcgetattr(&self.slave)?)
    }

    pub(crate) fn press(&mut self, keys: &str) -> io::Result<()> {
        self.master.write_all(keys.as_bytes())
    }

    /// Waits until the output since the last call contains these texts.
    ///
    /// # Panics
    /// If it does not.
    pub(crate) fn wait_for(&mut self, texts: &[&str]) {
        let end = Instant::now() + PATIENCE;
        loop {
            let shown = String::from_utf8_lossy(&self.seen);
            if texts.iter().all(|text| shown.contains(text)) {
                self.seen.clear();
                return;
            }
            match self.output.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(piece) => self.seen.extend(piece),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("{texts:?} is not shown: {shown:?}")
                }
            }
        }
    }
}
