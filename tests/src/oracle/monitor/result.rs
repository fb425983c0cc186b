//! Effects of a call on a monitor, and checks of these effects.

use super::book::{Judged, Next, Oracle, PAUSE_MIN, Phase, Scene};
use super::lines::Doing;
use super::{Answer, Input};
use crate::reply::CheckReply;
use poolhouse_core::Cause;
use poolhouse_core::monitor::MonitorConnKind;

impl Oracle {
    /// Applies a call to the state before its events are processed.
    pub(super) fn apply_call(&mut self, scene: &mut Scene<'_>) {
        scene.current = self.is_current(scene.input);
        match scene.input {
            Input::Request => {
                let now = self.now;
                if let Phase::Waiting { ended, due, asked } = &mut self.phase {
                    let soonest = ended.saturating_add(PAUSE_MIN);
                    if soonest < poolhouse_core::Instant::MAX {
                        let soonest = soonest.max(now);
                        *asked |= due.is_none_or(|due| soonest < due);
                        *due = Some(due.map_or(soonest, |due| due.min(soonest)));
                    }
                }
            }
            Input::Known(known) => self.known = known,
            Input::Dialed(wire) if scene.current => {
                let wiring = *self.wiring(wire.kind);
                if self.is_late(wiring) {
                    scene.failure = Some(Cause::NetworkTimeout);
                } else {
                    self.dialed(wire.kind);
                }
            }
            Input::Reply(wire, reply) if scene.current => scene.failure = self.failure_of(wire.kind, &reply),
            Input::Failed(wire, cause) if scene.current => {
                let wiring = *self.wiring(wire.kind);
                scene.dialing = wiring.doing == Doing::Dial;
                let is_late = self.is_late(wiring);
                scene.failure = Some(if is_late { Cause::NetworkTimeout } else { cause });
            }
            Input::Timeout => {
                let is_checking = matches!(self.phase, Phase::Checking { .. });
                scene.failure = (is_checking && self.is_late(self.check)).then_some(Cause::NetworkTimeout);
            }
            Input::Settle { known } => {
                if let Phase::Settling { next, .. } = self.phase {
                    self.known = known;
                    if next == Next::Retry {
                        self.retried = Some(self.now);
                    }
                }
            }
            _ => {}
        }
    }

    /// The failure that a reply causes, if any.
    fn failure_of(&mut self, kind: MonitorConnKind, reply: &CheckReply) -> Option<Cause> {
        let wiring = *self.wiring(kind);
        let is_expected = !wiring.owed && !matches!(wiring.doing, Doing::Nothing | Doing::Dial);
        if self.is_late(wiring) {
            Some(Cause::NetworkTimeout)
        } else if !is_expected {
            Some(Cause::Protocol)
        } else if !reply.ok {
            Some(Cause::Command { code: reply.code })
        } else if reply.more_to_come && !wiring.is_awaited() {
            Some(Cause::Protocol)
        } else {
            None
        }
    }

    pub(super) fn result(&mut self, answer: &Answer, scene: &mut Scene<'_>) -> Judged {
        match scene.input {
            Input::Start => {
                let should = scene.was == Phase::New;
                scene.checks.check("S2", should == scene.started, || format!("start of {:?}", scene.was))
            }
            Input::StartAfter(dialed) => {
                scene.checks.check("S2", !scene.started, || "a check began before it was due".into())?;
                if scene.was == Phase::New {
                    let due = Some(dialed.saturating_add(PAUSE_MIN));
                    self.phase = Phase::Waiting { ended: dialed, due, asked: false };
                }
                Ok(())
            }
            Input::Request | Input::Known(_) => {
                scene.checks.check("S5", scene.reported == 0, || format!("{:?} caused events", scene.input))
            }
            Input::Cancel => self.cancelled(scene),
            Input::Close => {
                let should = matches!(scene.was, Phase::Checking { .. });
                scene.checks.check("S18", scene.ended == should, || format!("close of {:?}", scene.was))?;
                self.hang_up_all();
                self.phase = Phase::Closed;
                Ok(())
            }
            Input::Settle { .. } => self.settled(scene),
            Input::Dialed(wire) | Input::Reply(wire, _) | Input::Failed(wire, _) => {
                let expected = if scene.current { Answer::Done } else { Answer::Stale };
                let is_quiet = scene.current || scene.reported == 0;
                scene
                    .checks
                    .check("S21", *answer == expected && is_quiet, || format!("{:?}: {answer:?}", scene.input))?;
                if scene.current { self.check_report(wire.kind, scene) } else { Ok(()) }
            }
            Input::Timeout => self.timed(scene),
            Input::Poll(conn) => match answer {
                Answer::Action(action) => self.polled(conn, *action, scene),
                _ => scene.checks.check("S21", false, || format!("polled {answer:?}")),
            },
        }
    }

    fn cancelled(&mut self, scene: &mut Scene<'_>) -> Judged {
        let should = matches!(scene.was, Phase::Checking { .. });
        scene.checks.check("S18", scene.ended == should, || format!("cancelled in {:?}", scene.was))?;
        if matches!(self.phase, Phase::New | Phase::Closed) {
            return Ok(());
        }
        let frequency = self.options.heartbeat_frequency;
        if let Phase::Settling { next, .. } = &mut self.phase {
            *next = Next::Wait(frequency);
        }
        self.hang_up_all();
        self.forget_samples();
        self.known = false;
        Ok(())
    }

    fn settled(&mut self, scene: &mut Scene<'_>) -> Judged {
        let Phase::Settling { ended, next, .. } = scene.was else {
            return scene.checks.check("S3", !scene.started, || "a check follows before it is due".into());
        };
        if let Next::Wait(pause) = next {
            self.phase = Phase::Waiting { ended, due: self.after(ended, pause), asked: false };
            return Ok(());
        }
        let id = if next == Next::Retry { "S6" } else { "S15" };
        scene.checks.check(id, scene.started, || format!("{next:?} is due, but no check follows"))
    }

    /// A report of a current connection.
    fn check_report(&mut self, kind: MonitorConnKind, scene: &mut Scene<'_>) -> Judged {
        let is_dial = matches!(scene.input, Input::Dialed(_));
        if kind == MonitorConnKind::Check {
            let is_checking = matches!(scene.was, Phase::Checking { .. });
            let should = is_checking && (scene.failure.is_some() || !is_dial);
            scene.checks.check("S2", scene.ended == should, || format!("{:?} ends {should}", scene.input))?;
            if !is_checking {
                // Between two checks the connection is lost, and a stream ends with it.
                self.check.hang_up();
                if let Phase::Settling { next: next @ (Next::Read | Next::Await(_)), .. } = &mut self.phase {
                    *next = Next::Wait(PAUSE_MIN);
                    self.stop_streaming();
                }
            }
        } else if let Input::Reply(_, reply) = scene.input {
            if scene.failure.is_none() {
                let sample = self.now.saturating_since(self.ping.since);
                self.ping.answered(&reply);
                self.add_sample(sample);
                self.ping_due = self.after(self.now, self.options.heartbeat_frequency);
            } else {
                self.ping_failed();
            }
        } else if scene.failure.is_some() {
            self.ping_failed();
        }
        if scene.dialing {
            // The host has no connection to close after a failed dial.
            self.wiring(kind).hangup = None;
        }
        scene.checks.check("S13", kind == MonitorConnKind::Check || scene.reported == 0, || {
            "a measurement caused an event".into()
        })
    }

    fn timed(&mut self, scene: &mut Scene<'_>) -> Judged {
        let should_end = scene.failure.is_some();
        scene.checks.check("S16", scene.ended == should_end, || format!("the check is late: {should_end}"))?;
        let should_start = matches!(scene.was, Phase::Waiting { due: Some(due), .. } if due <= self.now);
        scene.checks.check("S4", scene.started == should_start, || format!("a check is due: {should_start}"))?;
        if self.is_late(self.ping) {
            self.ping_failed();
        }
        self.ping_if_due();
        Ok(())
    }
}
