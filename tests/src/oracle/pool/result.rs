//! Checks of the result of a call: whether it agrees with the events, and whether the call had its
//! effect.

use super::book::{Fate, Oracle, Place, Scene};
use super::{Action, Answer, Input, Owed};
use crate::oracle::Violation;
use poolhouse_core::ObjectId;
use poolhouse_core::pool::{CheckOutError, Clear, Health, PoolState};

type Judged = Result<(), Violation>;

impl Oracle {
    pub(super) fn result(&mut self, answer: &Answer, scene: &mut Scene<'_>) -> Judged {
        match scene.input {
            Input::New => {
                let is_new = self.state == Some(PoolState::Paused) && self.conns.is_empty();
                scene.checks.check("P37", is_new, || "a new pool is not paused and empty".into())
            }
            Input::CheckOut { .. } => self.check_out(answer, scene),
            Input::Claim { waiter } => self.claim(waiter, answer, scene),
            Input::Cancel { waiter } => self.cancel(waiter, scene),
            Input::CheckIn { conn, health } => self.check_in(conn, health, answer, scene),
            Input::Ready => {
                let should = scene.was == Some(PoolState::Paused);
                scene
                    .checks
                    .check("P29", should == scene.readied, || format!("ready on a pool that is {:?}", scene.was))
            }
            Input::Clear { clear, .. } => {
                let expected = if self.is_mode_of(clear) { Answer::Done } else { Answer::WrongMode };
                scene.checks.check("P47", *answer == expected, || format!("{clear:?}: {answer:?}"))?;
                self.after_clear(scene)
            }
            Input::Fork => self.after_clear(scene),
            Input::Close => {
                let is_closed = self.state == Some(PoolState::Closed);
                scene.checks.check("P42", is_closed, || "the pool is not closed after close".into())
            }
            Input::Service { conn, service } => self.service(conn, service, answer, scene),
            Input::Established { conn } => self.established(conn, answer, scene),
            Input::EstablishFailed { conn, .. } => {
                self.check_report(conn, answer, scene)?;
                if *answer == Answer::Done {
                    scene.checks.check("P24", scene.gone, || format!("{conn} has failed, but its slot is not free"))?;
                }
                self.after_clear(scene)
            }
            Input::Pin { conn } => {
                let expected = if self.is_in_use(conn) { Answer::Done } else { Answer::Stale };
                scene.checks.check("P47", *answer == expected, || format!("pin of {conn:?}: {answer:?}"))
            }
            Input::Timeout => self.timeout(scene),
            Input::Poll(owed) => match answer {
                Answer::Action(action) => self.polled(owed, *action, scene),
                _ => scene.checks.check("P47", false, || format!("polled {answer:?}")),
            },
            Input::Retire { conn } => {
                let is_left = self.conns.get(&conn).is_some_and(|conn| conn.place == Place::Available);
                scene.checks.check("P31", !is_left, || format!("{conn} is retired, but still available"))
            }
            Input::Unseen | Input::Reconfigure { .. } | Input::Fill { .. } => Ok(()),
        }
    }

    fn is_in_use(&self, conn: Option<u64>) -> bool {
        conn.and_then(|conn| self.conns.get(&conn)).is_some_and(|conn| conn.place == Place::InUse)
    }

    fn check_out(&mut self, answer: &Answer, scene: &mut Scene<'_>) -> Judged {
        let turn = scene
            .newcomer
            .ok_or_else(|| Violation { id: "P28", what: "the check-out emitted no start event".into() })?;
        scene.checks.add("P28");
        let expected = match scene.outcome {
            Some(Fate::Granted(conn)) => Answer::Granted(conn),
            Some(Fate::Failed(error)) => Answer::Failed(error),
            None => match answer {
                Answer::Queued(number) => Answer::Queued(*number),
                _ => Answer::Queued(0),
            },
        };
        if matches!((scene.outcome, answer), (Some(Fate::Granted(one)), Answer::Granted(other)) if one != *other) {
            return scene
                .checks
                .check("P5", false, || format!("the events report {expected:?}, but the call returned {answer:?}"));
        }
        scene.checks.check("P28", *answer == expected, || {
            format!("{expected:?} by its events, but the call returned {answer:?}")
        })?;
        match scene.was {
            Some(PoolState::Paused) => {
                let is_refused = matches!(answer, Answer::Failed(CheckOutError::PoolCleared { .. }));
                scene.checks.check("P38", is_refused, || format!("check-out of a paused pool returned {answer:?}"))?;
            }
            Some(PoolState::Closed) => {
                let is_refused = *answer == Answer::Failed(CheckOutError::PoolClosed);
                scene.checks.check("P42", is_refused, || format!("check-out of a closed pool returned {answer:?}"))?;
            }
            Some(PoolState::Ready) | None => {
                let is_late = matches!(scene.input, Input::CheckOut { deadline: Some(at) } if at <= self.now);
                let may = match answer {
                    Answer::Failed(CheckOutError::WaitQueueTimeout { .. }) => is_late,
                    Answer::Failed(CheckOutError::Busy { .. }) => true,
                    Answer::Failed(_) => false,
                    _ => true,
                };
                scene.checks.check("P15", may, || format!("check-out of a ready pool returned {answer:?}"))?;
                if !matches!(answer, Answer::Granted(_)) {
                    let left = self.available;
                    scene
                        .checks
                        .check("P15", left == 0, || format!("{left} available connections were not considered"))?;
                }
            }
        }
        if let Answer::Queued(number) = answer {
            let numbered = self.queue.iter_mut().find(|waiter| waiter.turn == turn);
            if let Some(waiter) = numbered {
                waiter.number = *number;
            }
        }
        Ok(())
    }

    fn claim(&mut self, number: u64, answer: &Answer, scene: &mut Scene<'_>) -> Judged {
        match answer {
            Answer::Waiting => self.has_not_ended(number),
            Answer::Granted(conn) => {
                self.has_ended(number);
                self.ends_as(number, Fate::Granted(*conn));
            }
            Answer::Failed(error) => {
                self.has_ended(number);
                self.ends_as(number, Fate::Failed(*error));
            }
            _ => self.has_ended(number),
        }
        let expected = match self.settled.get(&number) {
            Some((Fate::Granted(conn), _)) => Answer::Granted(*conn),
            Some((Fate::Failed(error), _)) => Answer::Failed(*error),
            None if number > 0 && self.queue.iter().any(|waiter| waiter.number == number) => Answer::Waiting,
            None => Answer::Stale,
        };
        if let (Answer::Granted(one), Answer::Granted(other)) = (expected, *answer) {
            scene
                .checks
                .check("P9", one == other, || format!("{one} was reserved for the waiter, but it received {other}"))?;
        }
        let id = if number == 0 { "P47" } else { "P8" };
        scene.checks.check(id, *answer == expected, || {
            format!("its outcome is {expected:?}, but the call returned {answer:?}")
        })?;
        self.settled.remove(&number);
        Ok(())
    }

    fn cancel(&mut self, number: u64, scene: &mut Scene<'_>) -> Judged {
        if number == 0 {
            return Ok(());
        }
        // A wait that had not ended before would have emitted its failure in this step.
        self.has_ended(number);
        let waits = self.queue.iter().any(|waiter| waiter.number == number);
        scene.checks.check("P11", !waits, || "it still waits".into())?;
        if let Some((Fate::Granted(conn), _)) = self.settled.remove(&number) {
            let is_back = scene.checked_in == Some(conn);
            scene.checks.check("P13", is_back, || {
                format!("{conn} was granted to the cancelled check-out, but was not returned")
            })?;
            self.judge_return(conn, Health::Healthy, scene)?;
        }
        Ok(())
    }

    fn check_in(&self, conn: Option<u64>, health: Health, answer: &Answer, scene: &mut Scene<'_>) -> Judged {
        let is_ours = conn.is_some() && (scene.checked_in == conn || self.is_in_use(conn));
        if !is_ours {
            let is_refused = *answer == Answer::Stale && scene.checked_in.is_none() && scene.closed == 0;
            return scene.checks.check("P7", is_refused, || {
                format!("{conn:?} is not checked out, but its return resulted in {answer:?}")
            });
        }
        let is_taken = *answer == Answer::Done && scene.checked_in == conn;
        scene.checks.check("P16", is_taken, || format!("the return of {conn:?} was rejected: {answer:?}"))?;
        conn.map_or(Ok(()), |conn| self.judge_return(conn, health, scene))
    }

    /// Checks the effect of the return of a connection in this step.
    fn judge_return(&self, number: u64, health: Health, scene: &mut Scene<'_>) -> Judged {
        let Some(conn) = self.conns.get(&number) else { return Ok(()) };
        let is_good = health == Health::Healthy;
        scene.checks.check("P5", is_good, || format!("{number} is broken, but stays"))?;
        let is_closed = self.state == Some(PoolState::Closed);
        scene.checks.check("P42", !is_closed, || format!("{number} stays in a closed pool"))?;
        scene.checks.check("P35", !self.is_stale(conn), || format!("{number} is stale, but stays"))?;
        let is_kept = conn.place == Place::Available && self.is_beyond_max();
        scene.checks.check("P2", !is_kept, || format!("{number} stays beyond maxPoolSize"))
    }

    /// A report of a connection is accepted only while it is being established. Otherwise it has no
    /// effect.
    fn check_report(&self, conn: u64, answer: &Answer, scene: &mut Scene<'_>) -> Judged {
        if scene.fresh {
            return Ok(());
        }
        let is_nothing = *answer == Answer::Stale && scene.closed == 0 && scene.created == 0 && !scene.cleared;
        scene
            .checks
            .check("P41", is_nothing, || format!("a report about {conn}, which is not being established: {answer:?}"))
    }

    fn established(&self, conn: u64, answer: &Answer, scene: &mut Scene<'_>) -> Judged {
        self.check_report(conn, answer, scene)?;
        if scene.fresh || scene.gone {
            let expected = if scene.gone { Answer::Stale } else { Answer::Done };
            scene.checks.check("P36", *answer == expected, || {
                format!("{conn} was closed: {}, but the call returned {answer:?}", scene.gone)
            })?;
        }
        let is_left = self.conns.get(&conn).is_some_and(|it| it.place == Place::Pending);
        scene.checks.check("P36", !is_left, || format!("{conn} is established, but still counts as pending"))
    }

    fn service(&mut self, conn: u64, service: ObjectId, answer: &Answer, scene: &mut Scene<'_>) -> Judged {
        let is_pending = self.conns.get(&conn).filter(|it| it.place == Place::Pending);
        let expected = match is_pending {
            _ if !self.options.load_balanced => Answer::WrongMode,
            None => Answer::Stale,
            Some(it) if it.service.is_some() => Answer::Generation(it.generation),
            Some(_) => match self.services.get(&service) {
                Some(generation) => Answer::Generation(*generation),
                None if self.services.len() >= self.room.services as usize => Answer::Full,
                None => Answer::Generation(0),
            },
        };
        scene.checks.check("P45", *answer == expected, || {
            format!("{expected:?} is expected, but the call returned {answer:?}")
        })?;
        if let (Answer::Generation(generation), Some(it)) = (expected, self.conns.get_mut(&conn)) {
            if it.service.is_none() {
                it.service = Some(service);
                it.generation = generation;
                self.services.insert(service, generation);
            }
        }
        Ok(())
    }

    /// Checks the required effects of a clear within its step.
    fn after_clear(&mut self, scene: &mut Scene<'_>) -> Judged {
        let Some(clear) = scene.clear else { return Ok(()) };
        let is_reported = scene.cleared || scene.was != Some(PoolState::Ready);
        scene.checks.check("P34", is_reported, || format!("{clear:?} emitted no event"))?;
        let Clear::All { interrupt_in_use_connections: interrupt } = clear else {
            let is_spared = scene.closed <= u32::from(scene.gone) && !scene.failing;
            return scene.checks.check("P45", is_spared, || "the clear of a service affected other services".into());
        };
        let waiting = self.queue.len();
        scene.checks.check("P39", waiting == 0, || format!("{waiting} still wait after a clear"))?;
        if interrupt {
            let pending = self.conns.values().filter(|it| it.place == Place::Pending && self.is_stale(it)).count();
            scene.checks.check("P30", pending == 0, || format!("{pending} are still being established"))?;
            for conn in self.conns.values_mut().filter(|it| it.place == Place::InUse && !it.interrupted) {
                conn.interrupted = true;
                conn.owes_interrupt = true;
            }
        }
        if scene.input == Input::Fork {
            let is_left = self.conns.values().any(|it| it.place == Place::Available);
            scene.checks.check("P35", !is_left, || "a connection of the parent process is available".into())?;
        }
        Ok(())
    }

    fn timeout(&mut self, scene: &mut Scene<'_>) -> Judged {
        // Nothing was due.
        if self.looked && self.said.is_none_or(|said| said > self.now) {
            let is_nothing = scene.closed == 0 && scene.created == 0 && !scene.timed_out;
            scene.checks.check("P50", is_nothing, || format!("work that is due at {:?} was done early", self.said))?;
        }
        if self.is_in_background() {
            self.sweep = false;
            let left = self.conns.iter().find(|(_, it)| it.place == Place::Available && self.is_stale(it));
            scene
                .checks
                .check("P44", left.is_none(), || format!("{left:?} is stale, but background work did not close it"))?;
            let left = self.conns.iter().find(|(_, it)| it.place == Place::Available && self.is_idle(it));
            scene.checks.check("P19", left.is_none(), || format!("{left:?} exceeded its idle time, but stays"))?;
        }
        Ok(())
    }

    fn polled(&mut self, owed: Owed, action: Option<Action>, scene: &mut Scene<'_>) -> Judged {
        let (prompt, establish) = (owed != Owed::Establish, owed != Owed::Prompt);
        match action {
            None => self.nothing_owed(prompt, establish, scene),
            Some(Action::Establish(number)) => {
                let found = self.conns.get_mut(&number).filter(|it| it.place == Place::Pending && !it.reported);
                let is_owed = establish && found.is_some();
                if let Some(conn) = found {
                    conn.reported = true;
                }
                scene
                    .checks
                    .check("P5", is_owed, || format!("{number} is polled to be established twice, or after its end"))
            }
            Some(Action::Close(number)) => {
                let is_owed = prompt && self.owed_closes.remove(&number);
                scene
                    .checks
                    .check("P5", is_owed, || format!("{number} is polled to be closed twice, or before its end"))
            }
            Some(Action::Interrupt(number)) => {
                let found = self.conns.get_mut(&number).filter(|it| it.owes_interrupt);
                let is_owed = prompt && (self.owed_ends.remove(&number) || found.is_some());
                if let Some(conn) = found {
                    conn.owes_interrupt = false;
                }
                scene.checks.check("P40", is_owed, || format!("{number} is interrupted twice, or without a clear"))
            }
            Some(Action::Wake(number)) => {
                self.has_ended(number);
                let found = self.settled.get_mut(&number).filter(|(_, is_woken)| !is_woken);
                let is_owed = prompt && found.is_some();
                if let Some((_, is_woken)) = found {
                    *is_woken = true;
                    self.doubtful.remove(&number);
                }
                scene.checks.check("P8", is_owed, || format!("{number} is woken twice, or without an outcome"))
            }
        }
    }

    fn nothing_owed(&self, prompt: bool, establish: bool, scene: &mut Scene<'_>) -> Judged {
        if establish {
            let left = self.conns.iter().find(|(_, it)| it.place == Place::Pending && !it.reported);
            scene.checks.check("P5", left.is_none(), || format!("{left:?} is never established"))?;
        }
        if prompt {
            let left = &self.owed_closes;
            scene.checks.check("P5", left.is_empty(), || format!("{left:?} are never closed"))?;
            let interrupted = self.conns.iter().find(|(_, it)| it.owes_interrupt);
            let is_done = interrupted.is_none() && self.owed_ends.is_empty();
            scene
                .checks
                .check("P40", is_done, || format!("{interrupted:?}, {:?} are not interrupted", self.owed_ends))?;
            let left = self.settled.iter().find(|(_, (_, is_woken))| !is_woken);
            scene.checks.check("P8", left.is_none(), || format!("{left:?} is never woken"))?;
        }
        Ok(())
    }
}
