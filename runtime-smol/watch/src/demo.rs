//! The fake replica set, and the faults that the user or a timer causes. At most one member is out
//! of service at a time, so that the others have a majority.

use core::time::Duration;
use std::io;
use std::time::Instant;

use poolhouse_fake::mongo::replica_set::{FakeReplicaSet, FakeReplicaSetOptions};

use crate::state::DemoState;

/// The time from a crash of a member to its restart.
const RESTART_AFTER: Duration = Duration::from_secs(1);

pub(crate) struct Demo {
    set: FakeReplicaSet,
    /// The frozen member.
    frozen: Option<usize>,
    /// The crashed member, and when it restarts.
    crashed: Option<(usize, Instant)>,
    /// Whether the next failover is a crash.
    crash_next: bool,
    /// The time between failovers, and when the next one is due; `None` = the user causes them.
    automatic: Option<(Duration, Instant)>,
}

impl Demo {
    /// - `period`: the time between automatic failovers; `None` = none.
    ///
    /// # Errors
    /// Those of the sockets.
    pub(crate) fn start(period: Option<Duration>) -> io::Result<Self> {
        let set = FakeReplicaSet::start(FakeReplicaSetOptions::of(3))?;
        let automatic = period.map(|period| (period, Instant::now() + period));
        Ok(Self { set, frozen: None, crashed: None, crash_next: false, automatic })
    }

    pub(crate) fn uri(&self) -> String {
        self.set.uri()
    }

    pub(crate) fn state(&self) -> DemoState {
        let frozen = self.frozen.map(|member| self.set.address(member).to_string());
        let freeze = frozen.as_ref().map_or("freeze the primary".to_owned(), |address| format!("thaw {address}"));
        DemoState { frozen, commands: ["fail over".to_owned(), freeze] }
    }

    /// Leaves failovers to the user.
    pub(crate) fn stop_automatic(&mut self) {
        self.automatic = None;
    }

    /// Does what is due. Returns what was done.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<String> {
        if let Some((member, at)) = self.crashed {
            if now < at {
                return None;
            }
            self.crashed = None;
            return Some(match self.set.restart(member) {
                Ok(()) => format!("{} restarts", self.set.address(member)),
                Err(error) => format!("{} does not restart: {error}", self.set.address(member)),
            });
        }
        let (period, due) = self.automatic.filter(|(_, due)| now >= *due)?;
        self.automatic = Some((period, due.max(now) + period));
        Some(self.fail_over(now))
    }

    /// Makes the primary step down or crash, in turn. Returns what was done.
    pub(crate) fn fail_over(&mut self, now: Instant) -> String {
        let Some(primary) = self.set.primary().filter(|_| self.crashed.is_none()) else {
            return "no failover during another one".to_owned();
        };
        let address = self.set.address(primary);
        if self.frozen.is_some() || !self.crash_next {
            self.crash_next = true;
            self.set.step_down();
            return format!("{address} steps down");
        }
        self.crash_next = false;
        match self.set.kill(primary) {
            Ok(()) => {
                self.crashed = Some((primary, now + RESTART_AFTER));
                format!("{address} crashes")
            }
            Err(error) => format!("{address} does not crash: {error}"),
        }
    }

    /// Freezes the primary, or thaws the frozen member. Returns what was done.
    pub(crate) fn freeze(&mut self) -> String {
        if let Some(member) = self.frozen.take() {
            self.set.thaw(member);
            return format!("{} thaws", self.set.address(member));
        }
        let Some(primary) = self.set.primary().filter(|_| self.crashed.is_none()) else {
            return "no freeze during a failover".to_owned();
        };
        self.set.freeze(primary);
        self.frozen = Some(primary);
        format!("{} freezes", self.set.address(primary))
    }
}
