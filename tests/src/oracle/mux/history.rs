//! Checks of each event of a multiplexed pool: whether it is allowed now, and whether its data are
//! correct.

use super::book::{Conn, Fate, Oracle, Place, Scene, Use, Waiter};
use super::{Answer, Event, Input};
use crate::oracle::Violation;
use alloc::collections::BTreeMap;
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::mux::{AcquireError, MuxClosed, Reply};

type Judged = Result<(), Violation>;

impl Oracle {
    pub(super) fn event(&mut self, event: Event, scene: &mut Scene<'_>) -> Judged {
        if self.closed {
            let is_end = matches!(event, Event::Failed(AcquireError::Closed, _));
            scene.checks.check("M6", is_end, || format!("{event:?} after the end"))?;
        }
        match event {
            Event::Options(config) => {
                self.config = config;
                Ok(())
            }
            Event::PoolClosed => {
                scene.checks.check("M6", scene.input == Input::Close, || format!("closed by {:?}", scene.input))?;
                self.closed = true;
                Ok(())
            }
            Event::Created(conn) => self.created(conn, scene),
            Event::Acquired(conn, id, duration) => self.acquired(conn, id, duration, scene),
            Event::Queued(queued) => self.queued(queued, scene),
            Event::Failed(error, duration) => self.failed(error, duration, scene),
            Event::Ready(number, _)
            | Event::Trashed(number, _)
            | Event::Resurrected(number)
            | Event::Retired(number, _)
            | Event::Closed(number, ..)
            | Event::HeartbeatStarted(number)
            | Event::HeartbeatSucceeded(number)
            | Event::HeartbeatFailed(number)
            | Event::Replied(number, _)
            | Event::Orphaned(number, ..)
            | Event::Late(number, _)
            | Event::Unknown(number, _) => {
                let Some(mut conn) = self.conns.remove(&number) else {
                    return scene.checks.check("M6", false, || format!("{event:?} of an unknown connection"));
                };
                let is_gone = self.of_conn(number, &mut conn, event, scene)?;
                if !is_gone {
                    self.conns.insert(number, conn);
                }
                Ok(())
            }
        }
    }

    fn created(&mut self, number: u64, scene: &mut Scene<'_>) -> Judged {
        let expected = self.newest + 1;
        scene.checks.check("P6", number == expected, || format!("connection {number} after {}", self.newest))?;
        self.newest = number;
        let conn = Conn {
            place: Place::Pending,
            created: self.now,
            reported: false,
            ids: BTreeMap::new(),
            in_flight: 0,
            late: 0,
            heartbeat: None,
        };
        self.conns.insert(number, conn);
        let count = self.count(Place::Open) + self.count(Place::Pending);
        let max = self.config.host().map_or(0, |host| host.max_connections);
        scene.checks.check("P2", count <= max, || format!("{count} connections, but {max} are allowed"))
    }

    /// Checks an event of a connection. Returns true if the event closes it.
    fn of_conn(
        &mut self,
        number: u64,
        conn: &mut Conn,
        event: Event,
        scene: &mut Scene<'_>,
    ) -> Result<bool, Violation> {
        let was = conn.place;
        let is_up = was != Place::Pending;
        let may = match event {
            Event::Ready(..) => !is_up && scene.input == Input::Established { conn: number },
            Event::Trashed(..) => was == Place::Open,
            Event::Resurrected(_) => was == Place::Trashed,
            Event::Retired(..) => is_up && was != Place::Retired,
            _ => true,
        };
        scene
            .checks
            .check("M6", may, || format!("{event:?} of a connection in state {was:?}, by {:?}", scene.input))?;
        match event {
            Event::Ready(_, duration) => {
                conn.place = Place::Open;
                self.troubled = false;
                let passed = self.now.saturating_since(conn.created);
                scene.checks.check("P32", duration == passed, || {
                    format!("the event reports {duration:?}, but {passed:?} have passed")
                })?;
            }
            Event::Trashed(_, in_flight) => {
                conn.place = Place::Trashed;
                self.is_count(conn, in_flight, scene)?;
            }
            Event::Resurrected(_) => conn.place = Place::Open,
            Event::Retired(_, orphaned) => {
                conn.place = Place::Retired;
                scene
                    .checks
                    .check("M3", orphaned == conn.late, || format!("{orphaned} orphaned, not {}", conn.late))?;
            }
            Event::Closed(_, reason, in_flight) => {
                self.is_count(conn, in_flight, scene)?;
                self.is_true(number, conn, reason, scene)?;
                if conn.reported {
                    self.owed_closes.insert(number);
                }
                scene.gone.push(number);
                return Ok(true);
            }
            Event::HeartbeatStarted(_) => {
                let may = is_up && conn.heartbeat.is_none();
                scene.checks.check("M1", may, || format!("a second heartbeat is sent on {number}"))?;
                conn.heartbeat = Some(None);
            }
            Event::HeartbeatFailed(_) => self.troubled = true,
            Event::HeartbeatSucceeded(_) => {
                let by = conn.heartbeat.take().flatten();
                let is_asked = matches!(scene.input, Input::Reply { conn, stream } if conn == number && by.map(i32::from) == Some(stream));
                scene.checks.check("M2", is_asked, || format!("{number} answered without a heartbeat: {by:?}"))?;
                scene.reply = Some(Answer::Reply(Reply::Heartbeat));
            }
            Event::Replied(_, id) => {
                let is_it = conn.ids.get(&id) == Some(&Use::Waiting) && is_reply(scene.input, number, id);
                scene
                    .checks
                    .check("M2", is_it, || format!("{id} of {number} is {:?}, but is answered", conn.ids.get(&id)))?;
                conn.ids.insert(id, Use::Answered);
                conn.in_flight -= 1;
                scene.reply = Some(Answer::Reply(Reply::Request));
            }
            Event::Late(_, id) => {
                let is_it = conn.ids.remove(&id) == Some(Use::Late) && is_reply(scene.input, number, id);
                scene.checks.check("M2", is_it, || format!("{id} of {number} is answered late"))?;
                conn.late -= 1;
                scene.reply = Some(Answer::Reply(Reply::Late));
            }
            Event::Unknown(_, stream) => {
                let id = u16::try_from(stream).ok();
                let is_known = id.is_some_and(|id| matches!(conn.ids.get(&id), Some(Use::Waiting | Use::Late)));
                let is_asked = id.is_some() && conn.heartbeat.flatten() == id;
                scene.checks.check("M2", !is_known && !is_asked, || {
                    format!("{stream} of {number} is in use, but its reply counts as unknown")
                })?;
                self.troubled = true;
                scene.reply = Some(Answer::Unknown);
            }
            Event::Orphaned(_, id, orphaned) => {
                let is_it = conn.ids.get(&id) == Some(&Use::Waiting);
                let is_given_up = matches!(scene.input, Input::Release { stream, .. } if stream == Some((number, id)));
                scene.checks.check("M3", is_it && is_given_up, || format!("{id} of {number} is orphaned"))?;
                conn.ids.insert(id, Use::Late);
                conn.in_flight -= 1;
                conn.late += 1;
                scene
                    .checks
                    .check("M3", orphaned == conn.late, || format!("{orphaned} orphaned, not {}", conn.late))?;
                let ids = self.config.options().streams_per_connection;
                if conn.late * 4 > ids {
                    scene.worn = Some(number);
                }
            }
            _ => {}
        }
        Ok(false)
    }

    fn is_count(&self, conn: &Conn, in_flight: u32, scene: &mut Scene<'_>) -> Judged {
        scene.checks.check("M4", in_flight == conn.in_flight, || {
            format!("the event reports {in_flight} in flight, but there are {}", conn.in_flight)
        })
    }

    /// Checks the reason of a close.
    fn is_true(&self, number: u64, conn: &Conn, reason: MuxClosed, scene: &mut Scene<'_>) -> Judged {
        let holds = match reason {
            MuxClosed::Idle => conn.place == Place::Trashed && conn.in_flight == 0,
            MuxClosed::Worn => conn.place == Place::Retired && conn.in_flight == 0,
            MuxClosed::Error(cause) => match scene.input {
                Input::Failed { conn, cause: reported } | Input::EstablishFailed { conn, cause: reported } => {
                    conn == number && reported == cause
                }
                Input::Reply { conn, .. } => conn == number && scene.reply == Some(Answer::Unknown),
                Input::Timeout => true,
                _ => false,
            },
            MuxClosed::PoolClosed => {
                let is_ignored = self.config.host().is_none();
                scene.input == Input::Close || scene.input == Input::Reconfigure || is_ignored
            }
            _ => false,
        };
        scene.checks.check("M6", holds, || format!("{number}, {:?}, is closed: {reason:?}", conn.place))
    }

    fn acquired(&mut self, number: u64, id: u16, duration: Duration, scene: &mut Scene<'_>) -> Judged {
        let options = *self.config.options();
        let max = self.config.host().map_or(0, |host| host.max_requests_per_connection);
        let least = self.conns.values().filter(|conn| self.takes(conn)).map(|conn| conn.in_flight).min();
        let Some(conn) = self.conns.get_mut(&number) else {
            return scene.checks.check("M6", false, || format!("an unknown connection {number} accepts a request"));
        };
        scene.checks.check("M6", conn.place == Place::Open, || {
            format!("{number} is {:?}, but accepts a request", conn.place)
        })?;
        let taken = conn.ids.get(&id).copied();
        scene.checks.check("M3", taken != Some(Use::Late), || format!("{id} of {number} waits for a late reply"))?;
        let is_free =
            taken.is_none() && conn.heartbeat != Some(Some(id)) && u32::from(id) < options.streams_per_connection;
        scene.checks.check("M1", is_free, || format!("{id} of {number} is {taken:?}, but is granted again"))?;
        scene.checks.check("M1", conn.in_flight < max, || format!("{} in flight on {number}", conn.in_flight))?;
        let is_least = least.is_none_or(|least| conn.in_flight <= least + 1);
        scene.checks.check("M6", is_least, || {
            format!("{number} with {} in flight is chosen instead of {least:?}", conn.in_flight)
        })?;
        conn.ids.insert(id, Use::Waiting);
        conn.in_flight += 1;
        let fate = Fate::Granted(number, id);
        if self.queue.is_empty() {
            let is_asked = matches!(scene.input, Input::Acquire { .. }) && scene.outcome.is_none();
            scene.checks.check("M4", is_asked, || format!("{id} of {number} is granted without a request"))?;
            scene.outcome = Some(fate);
            return scene
                .checks
                .check("P32", duration.is_zero(), || format!("{duration:?} for a request that did not wait"));
        }
        let passed = |waiter: &Waiter| self.now.saturating_since(waiter.started);
        let other = passed(&self.queue[0]) != duration && self.queue.iter().any(|waiter| passed(waiter) == duration);
        scene.checks.check("M5", !other, || {
            format!("{id} of {number} is granted to a waiter of {duration:?}, not to the oldest")
        })?;
        let passed = passed(&self.queue[0]);
        scene.checks.check("P32", duration == passed, || {
            format!("the event reports {duration:?}, but {passed:?} have passed")
        })?;
        let oldest = self.queue.remove(0);
        self.settled.insert(oldest.number, (fate, false));
        Ok(())
    }

    fn queued(&mut self, queued: u32, scene: &mut Scene<'_>) -> Judged {
        let Input::Acquire { deadline } = scene.input else {
            return scene.checks.check("M4", false, || format!("{:?} queues a request", scene.input));
        };
        let until = self.now.saturating_add(self.config.options().pool_timeout);
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        self.queue.push(Waiter { number: 0, started: self.now, until });
        scene.queued = true;
        let own = self.queue.len();
        let max = self.config.options().max_queue_size as usize;
        scene.checks.check("M5", queued as usize == own && own <= max, || {
            format!("the event reports {queued} waiters, not {own} of at most {max}")
        })
    }

    fn failed(&mut self, error: AcquireError, duration: Duration, scene: &mut Scene<'_>) -> Judged {
        if matches!(scene.input, Input::Acquire { .. }) {
            scene.checks.check("M4", scene.outcome.is_none() && !scene.queued, || "it ends twice".into())?;
            scene.outcome = Some(Fate::Failed(error));
            return scene
                .checks
                .check("P32", duration.is_zero(), || format!("{duration:?} for a request that did not wait"));
        }
        let fits = |waiter: &Waiter| self.now.saturating_since(waiter.started) == duration;
        let is_late = |waiter: &Waiter| waiter.until <= self.now && waiter.until < Instant::MAX;
        let place = match error {
            AcquireError::Cancelled => {
                let Input::Cancel { waiter } = scene.input else {
                    return scene.checks.check("M4", false, || format!("cancelled by {:?}", scene.input));
                };
                self.queue.iter().position(|it| it.number == waiter)
            }
            AcquireError::TimedOut { .. } => {
                let place = self.queue.iter().position(|it| fits(it) && is_late(it));
                let is_early = place.is_none() && self.queue.iter().any(fits);
                scene.checks.check("P18", !is_early, || format!("timed out early, after {duration:?}"))?;
                place
            }
            _ => (!self.queue.is_empty()).then_some(0),
        };
        let Some(place) = place else {
            return scene.checks.check("M4", false, || format!("no waiter could fail: {error:?}"));
        };
        scene.checks.add("M4");
        let passed = self.now.saturating_since(self.queue[place].started);
        scene.checks.check("P32", duration == passed, || {
            format!("the event reports {duration:?}, but {passed:?} have passed")
        })?;
        let waiter = self.queue.remove(place);
        self.settled.insert(waiter.number, (Fate::Failed(error), false));
        Ok(())
    }
}

fn is_reply(input: Input, number: u64, id: u16) -> bool {
    input == Input::Reply { conn: number, stream: i32::from(id) }
}
