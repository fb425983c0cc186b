//! The process of a server: its start, its signals, its end.

use core::time::Duration;
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::mongod::Scratch;

/// The interval between two checks of a process that is ending or stopping.
const PAUSE: Duration = Duration::from_millis(5);

/// Time limit for a process to stop after SIGSTOP.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// A child process; killed and reaped when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts a command with its output in the scratch folder.
    pub(crate) fn spawn(command: &mut Command, scratch: &Scratch) -> io::Result<Self> {
        let output = scratch.output()?;
        let errors = output.try_clone()?;
        let process = Self { child: command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn()? };
        scratch.record_pid(process.id())?;
        Ok(process)
    }

    /// Returns its id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns its exit status, once it has ended.
    pub(crate) fn exit_status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Sends SIGKILL, and waits for the end.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends SIGTERM, and waits for the end; sends SIGKILL if it takes longer than `limit`, which is an error
    /// of the kind `TimedOut`.
    pub(crate) fn terminate(&mut self, limit: Duration) -> io::Result<()> {
        if self.exit_status()?.is_some() {
            return Ok(());
        }
        self.signal(Signal::TERM)?;
        // A stopped process would not handle the signal. The error means that it has ended.
        let _ = self.signal(Signal::CONT);
        let deadline = Instant::now() + limit;
        while self.exit_status()?.is_none() {
            if Instant::now() >= deadline {
                self.kill()?;
                return Err(timed_out("ended", limit));
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Sends SIGSTOP, and waits until every thread is stopped.
    ///
    /// The signal alone is not enough: a thread that is running continues until its processor handles it.
    pub(crate) fn stop(&mut self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        let deadline = Instant::now() + STOP_TIMEOUT;
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while !waitid(WaitId::Pid(Pid::from_child(&self.child)), options)?.is_some_and(|status| status.stopped()) {
            if self.exit_status()?.is_some() {
                return Err(ended());
            }
            if Instant::now() >= deadline {
                return Err(timed_out("stopped", STOP_TIMEOUT));
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Sends SIGCONT.
    pub(crate) fn cont(&mut self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Signals the process. Its id cannot have been reused: the process is reaped only here.
    fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if self.exit_status()?.is_some() {
            return Err(ended());
        }
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The error cannot be reported. SIGKILL also ends a stopped process, and an ended one is
        // reaped without a signal.
        drop(self.kill());
    }
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the process has ended")
}

fn timed_out(done: &str, limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("not {done} after {limit:?}"))
}

/// The state of a process is read from `/proc`.
#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::fs;

    /// On a busy machine most of these processes wait for a processor when the signal is sent: none of them is
    /// stopped yet when `kill` returns.
    #[test]
    fn stopped_process_has_no_running_thread() {
        let scratch = Scratch::create().expect("a folder");
        let spin = || Process::spawn(Command::new("sh").args(["-c", "while :; do :; done"]), &scratch).expect("sh");
        let mut busy: Vec<_> = (0..16).map(|_| spin()).collect();
        for process in &mut busy {
            process.stop().expect("it is stopped");
            let stat = fs::read_to_string(format!("/proc/{}/stat", process.id())).expect("it exists");
            assert!(stat.contains(") T "), "{stat}");
        }
        for process in &mut busy {
            process.cont().expect("it continues");
            process.terminate(STOP_TIMEOUT).expect("it ends");
            let kind = process.stop().expect_err("it has ended").kind();
            assert_eq!(kind, io::ErrorKind::NotFound);
        }
    }
}
