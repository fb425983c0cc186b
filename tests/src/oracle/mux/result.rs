//! Checks of the result of a call against its events.

use super::book::{Fate, Oracle, Place, Scene};
use super::{Action, Answer, Input};
use crate::oracle::Violation;

type Judged = Result<(), Violation>;

impl Oracle {
    pub(super) fn result(&mut self, answer: &Answer, scene: &mut Scene<'_>) -> Judged {
        match scene.input {
            Input::Acquire { .. } => {
                let expected = match (scene.outcome, answer) {
                    (Some(Fate::Granted(conn, id)), _) => Answer::Granted(conn, id),
                    (Some(Fate::Failed(error)), _) => Answer::Failed(error),
                    (None, Answer::Queued(number)) => Answer::Queued(*number),
                    (None, _) => Answer::Queued(0),
                };
                scene.checks.check("M4", *answer == expected, || {
                    format!("{expected:?} by its events, but the call returned {answer:?}")
                })?;
                if let Answer::Queued(number) = answer {
                    if let Some(waiter) = self.queue.iter_mut().find(|waiter| waiter.number == 0) {
                        waiter.number = *number;
                    }
                }
                Ok(())
            }
            Input::Claim { waiter } => {
                let expected = match self.settled.get(&waiter) {
                    Some((Fate::Granted(conn, id), _)) => Answer::Granted(*conn, *id),
                    Some((Fate::Failed(error), _)) => Answer::Failed(*error),
                    None if waiter > 0 && self.queue.iter().any(|it| it.number == waiter) => Answer::Waiting,
                    None => Answer::Stale,
                };
                // Waiters that time out in the same call may do so in any order.
                let same = core::mem::discriminant(answer) == core::mem::discriminant(&expected);
                let holds = *answer == expected || (same && matches!(answer, Answer::Failed(_)));
                scene
                    .checks
                    .check("M4", holds, || format!("its outcome is {expected:?}, but the call returned {answer:?}"))?;
                self.settled.remove(&waiter);
                Ok(())
            }
            Input::Cancel { waiter } => {
                let waits = waiter > 0 && self.queue.iter().any(|it| it.number == waiter);
                scene.checks.check("M4", !waits, || "it still waits".into())?;
                self.settled.remove(&waiter);
                Ok(())
            }
            Input::Release { stream, .. } => {
                let expected = if stream.is_some() { Answer::Done } else { Answer::Stale };
                let is_quiet = stream.is_some() || scene.reported == 0;
                scene
                    .checks
                    .check("M4", *answer == expected && is_quiet, || format!("release of {stream:?}: {answer:?}"))
            }
            Input::Reply { conn, .. } => self.replied(conn, answer, scene),
            Input::Established { conn } | Input::EstablishFailed { conn, .. } | Input::Failed { conn, .. } => {
                self.check_report(conn, answer, scene)
            }
            Input::Received { conn } => {
                let is_up = self.conns.get(&conn).is_some_and(|it| it.place != Place::Pending);
                let expected = if is_up { Answer::Done } else { Answer::Stale };
                scene.checks.check("M6", *answer == expected, || format!("bytes on {conn}: {answer:?}"))
            }
            Input::Poll => match answer {
                Answer::Action(action) => self.polled(*action, scene),
                _ => scene.checks.check("M6", false, || format!("polled {answer:?}")),
            },
            Input::New | Input::Reconfigure | Input::Close | Input::Timeout => Ok(()),
        }
    }

    fn replied(&self, conn: u64, answer: &Answer, scene: &mut Scene<'_>) -> Judged {
        let expected = scene.reply.unwrap_or(Answer::Stale);
        scene.checks.check("M2", *answer == expected, || {
            format!("{expected:?} by its events, but the call returned {answer:?}")
        })?;
        let is_gone = scene.gone.contains(&conn);
        let holds = *answer != Answer::Unknown || is_gone;
        scene.checks.check("M2", holds, || format!("{conn} violated the protocol, but stays open"))?;
        let is_up = self.conns.get(&conn).is_some_and(|it| it.place != Place::Pending);
        let is_silent = *answer != Answer::Stale || !is_up;
        scene.checks.check("M2", is_silent, || format!("the reply on {conn} causes no event"))
    }

    fn check_report(&self, conn: u64, answer: &Answer, scene: &mut Scene<'_>) -> Judged {
        let is_gone = scene.gone.contains(&conn);
        match answer {
            Answer::Stale => {
                scene.checks.check("M6", scene.reported == 0, || format!("a stale report about {conn} caused events"))
            }
            _ if matches!(scene.input, Input::Established { .. }) => {
                let is_pending = self.conns.get(&conn).is_some_and(|it| it.place == Place::Pending);
                scene.checks.check("M6", !is_pending, || format!("{conn} is established, but counts as pending"))
            }
            _ => scene.checks.check("M4", is_gone, || format!("{conn} has failed, but still exists")),
        }
    }

    fn polled(&mut self, action: Option<Action>, scene: &mut Scene<'_>) -> Judged {
        match action {
            None => {
                let left =
                    self.conns.iter().find(|(_, it)| it.place == Place::Pending && !it.reported).map(|(conn, _)| conn);
                scene.checks.check("M6", left.is_none(), || format!("{left:?} is never established"))?;
                let left = &self.owed_closes;
                scene.checks.check("M6", left.is_empty(), || format!("{left:?} are never closed"))?;
                let left = self.settled.iter().find(|(_, (_, is_woken))| !is_woken);
                scene.checks.check("P8", left.is_none(), || format!("{left:?} is never woken"))
            }
            Some(Action::Establish(number)) => {
                let found = self.conns.get_mut(&number).filter(|it| it.place == Place::Pending && !it.reported);
                let is_owed = found.is_some();
                if let Some(conn) = found {
                    conn.reported = true;
                }
                scene
                    .checks
                    .check("M6", is_owed, || format!("{number} is polled to be established twice, or after its end"))
            }
            Some(Action::Close(number)) => {
                let is_owed = self.owed_closes.remove(&number);
                scene
                    .checks
                    .check("M6", is_owed, || format!("{number} is polled to be closed twice, or before its end"))
            }
            Some(Action::Wake(number)) => {
                let found = self.settled.get_mut(&number).filter(|(_, is_woken)| !is_woken);
                let is_owed = found.is_some();
                if let Some((_, is_woken)) = found {
                    *is_woken = true;
                }
                scene.checks.check("P8", is_owed, || format!("{number} is woken twice, or without an outcome"))
            }
            Some(Action::Heartbeat(number, id)) => {
                let Some(conn) = self.conns.get_mut(&number).filter(|it| it.heartbeat == Some(None)) else {
                    return scene.checks.check("M6", false, || format!("a heartbeat on {number} is not due"));
                };
                conn.heartbeat = Some(Some(id));
                let taken = conn.ids.get(&id).copied();
                scene.checks.check("M1", taken.is_none(), || {
                    format!("{id} of {number} is {taken:?}, but is used for a heartbeat")
                })
            }
        }
    }
}
