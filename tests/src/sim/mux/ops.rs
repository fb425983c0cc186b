//! The operations.

use super::kind::Kind;
use super::simulation::Simulation;
use crate::choices::Choices;
use crate::model::mux::{Conn, Outcome, Request, Stand};
use crate::oracle::mux::Bounded;
use poolhouse_core::mux::{Acquire, Distance, MuxClaim, MuxConnId, MuxOptions, MuxWaiterId, Reply, Stream, Written};
use poolhouse_core::{Cause, Instant};

const MS: u64 = 1_000_000;

/// Maximum number of requests.
const REQUESTS_MAX: usize = 60;

/// State of an unclaimed waiter, according to the model.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Granted,
    Failed,
}

/// Progress of a request that has a stream id, from the view of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It has not been written to the peer.
    Unwritten,
    /// It has been written to the peer.
    Written,
    /// The peer has answered, and the host has not taken the reply.
    Answered,
    /// It was abandoned, and the peer has not answered.
    GivenUp,
}

impl<M: Bounded> Simulation<'_, M> {
    fn waiters_in(&self, state: State) -> Vec<usize> {
        let (model, waiters) = (self.mux.model(), self.mux.waiters());
        let state_of = |number| match model.waiter(number).map(|waiter| waiter.outcome) {
            Some(Outcome::Waiting) => State::Waiting,
            Some(Outcome::Granted(..)) => State::Granted,
            _ => State::Failed,
        };
        (0..waiters.len()).filter(|&place| state_of(waiters[place].1) == state).collect()
    }

    /// Returns the id of a request, and its progress.
    fn progress(&self, conn: &Conn, request: &Request) -> Option<(u16, Progress)> {
        let id = request.id?;
        let progress = match request.stand {
            Stand::Waiting if self.written.contains(&(conn.id, id)) => Progress::Written,
            Stand::Waiting => Progress::Unwritten,
            Stand::Answered => Progress::Answered,
            Stand::Late => Progress::GivenUp,
        };
        Some((id, progress))
    }

    /// Connection and id of the requests with a progress that passes the test, in this order.
    pub(super) fn all(&self, test: impl Fn(Progress) -> bool) -> Vec<(u64, u16)> {
        let requests = self.mux.model().established().flat_map(|conn| {
            let found = conn.requests.iter().filter_map(|request| self.progress(conn, request));
            found.filter(|(_, progress)| test(*progress)).map(|(id, _)| (conn.id, id))
        });
        let mut requests: Vec<_> = requests.collect();
        requests.sort_unstable();
        requests
    }

    fn is(&self, progress: Progress) -> bool {
        !self.all(|one| one == progress).is_empty()
    }

    /// Returns the progress of the request that has an id; `None` if there is none.
    fn progress_of(&self, conn: u64, id: u16) -> Option<Progress> {
        let conn = self.mux.model().established().find(|known| known.id == conn)?;
        let mut requests = conn.requests.iter().filter_map(|request| self.progress(conn, request));
        requests.find(|(known, _)| *known == id).map(|(_, progress)| progress)
    }

    /// Streams with a request in such a state; `None` is the state of streams of closed
    /// connections.
    fn streams_where(&self, test: impl Fn(Option<Progress>) -> bool) -> Vec<usize> {
        let of = |stream: &Stream| self.progress_of(stream.conn().number().get(), stream.id());
        (0..self.streams.len()).filter(|&place| test(of(&self.streams[place]))).collect()
    }

    fn unwritten(&self) -> Vec<usize> {
        self.streams_where(|progress| progress == Some(Progress::Unwritten))
    }

    fn written(&self) -> Vec<usize> {
        self.streams_where(|progress| progress == Some(Progress::Written))
    }

    /// Streams that are answered, and streams of closed connections.
    fn done(&self) -> Vec<usize> {
        self.streams_where(|progress| matches!(progress, None | Some(Progress::Answered)))
    }

    /// Used ids that are free now.
    fn freed(&self) -> Vec<(u64, u16)> {
        self.freed.iter().copied().filter(|&(conn, id)| self.progress_of(conn, id).is_none()).collect()
    }

    /// A request has ended, so its id is free unless the peer may still answer.
    fn free(&mut self, conn: u64, id: u16) {
        if matches!(self.progress_of(conn, id), None | Some(Progress::Written)) {
            return;
        }
        if self.freed.len() == 16 {
            self.freed.remove(0);
        }
        self.freed.push((conn, id));
    }

    fn asked(&self) -> Vec<(u64, u16)> {
        self.mux.model().established().filter_map(|conn| Some((conn.id, conn.heartbeat_id()?))).collect()
    }

    /// Connections on which no reply can arrive.
    fn silent(&self) -> Vec<MuxConnId> {
        let known = |conn: &&MuxConnId| self.mux.model().established().all(|known| known.id != conn.number().get());
        self.mux.conns().iter().filter(known).chain(self.mux.gone()).copied().collect()
    }

    pub(super) fn is_enabled(&self, kind: Kind) -> bool {
        match kind {
            Kind::Acquire | Kind::AcquireDeadline | Kind::Burst => {
                self.mux.waiters().len() + self.streams.len() < REQUESTS_MAX
            }
            Kind::Claim => !self.mux.waiters().is_empty(),
            Kind::ClaimUsedUp | Kind::CancelUsedUp => !self.used_up.is_empty(),
            Kind::CancelWaiting => !self.waiters_in(State::Waiting).is_empty(),
            Kind::CancelGranted => !self.waiters_in(State::Granted).is_empty(),
            Kind::CancelFailed => !self.waiters_in(State::Failed).is_empty(),
            Kind::Write | Kind::GiveUpUnwritten => !self.unwritten().is_empty(),
            Kind::GiveUp => !self.written().is_empty(),
            Kind::Reply | Kind::ReplyMany => self.is(Progress::Written),
            Kind::ReplyLate => self.is(Progress::GivenUp),
            Kind::ReplyHeartbeat => !self.asked().is_empty(),
            Kind::Take => !self.done().is_empty(),
            Kind::ReplyTwice => self.is(Progress::Answered),
            Kind::ReplyFreed => !self.freed().is_empty(),
            Kind::ReplyUnwritten => self.is(Progress::Unwritten),
            Kind::ReplyAny | Kind::ReplyOutOfRange | Kind::Failed => self.mux.model().established().next().is_some(),
            Kind::ReplyStale | Kind::LateNews => !self.silent().is_empty(),
            Kind::Established | Kind::EstablishFailed => !self.establishing.is_empty(),
            Kind::TimeExact => self.mux.poll_timeout().is_some(),
            Kind::MustConnect
            | Kind::ReleaseForeign
            | Kind::PollAction
            | Kind::Drain
            | Kind::HostUp
            | Kind::Reconfigure
            | Kind::ReplaceConnections
            | Kind::Ignore
            | Kind::Close
            | Kind::TimeBefore
            | Kind::TimePast
            | Kind::TimeOnly
            | Kind::TimeBack
            | Kind::Tick => true,
        }
    }

    pub(super) fn operate(&mut self, kind: Kind, choices: &mut impl Choices) {
        match kind {
            Kind::Acquire => self.acquire(None),
            Kind::AcquireDeadline => {
                let now = self.now;
                let far = [now + MS, now + 5 * MS, now + 10 * MS, now + 10_000 * MS, now, now - 1, 0, u64::MAX - 1];
                let odd = u64::from(choices.below(100_000));
                self.acquire(Some(choices.one_of(&far).saturating_add(odd)));
            }
            Kind::Burst => {
                for _ in 0..choices.below(20) + 2 {
                    self.acquire(None);
                    self.look();
                }
            }
            Kind::MustConnect => {
                let now = self.at();
                let must_connect = self.mux.must_connect(now, &mut self.log);
                self.note(|| format!("must_connect: {must_connect}"));
            }
            Kind::Claim => self.claim(choices.index(self.mux.waiters().len())),
            Kind::ClaimUsedUp => {
                let waiter = self.used_up[choices.index(self.used_up.len())];
                let now = self.at();
                let _stale = self.mux.claim(now, waiter);
            }
            Kind::CancelWaiting => self.cancel_one(State::Waiting, choices),
            Kind::CancelGranted => self.cancel_one(State::Granted, choices),
            Kind::CancelFailed => self.cancel_one(State::Failed, choices),
            Kind::CancelUsedUp => {
                let waiter = self.used_up[choices.index(self.used_up.len())];
                let now = self.at();
                self.mux.cancel(now, waiter, &mut self.log);
            }
            Kind::Write => {
                let stream = &self.streams[pick(&self.unwritten(), choices)];
                self.written.insert((stream.conn().number().get(), stream.id()));
            }
            Kind::GiveUpUnwritten => self.release(pick(&self.unwritten(), choices), Written::No),
            Kind::GiveUp => self.release(pick(&self.written(), choices), Written::Perhaps),
            Kind::Take => self.release(pick(&self.done(), choices), choices.one_of(&[Written::Perhaps, Written::No])),
            Kind::ReleaseForeign => self.release_foreign(),
            Kind::Reply => self.reply_where(Progress::Written, choices),
            Kind::ReplyMany => {
                for _ in 0..choices.below(20) + 2 {
                    if self.is_enabled(Kind::Reply) {
                        self.reply_where(Progress::Written, choices);
                        self.look();
                    }
                }
            }
            Kind::ReplyLate => self.reply_where(Progress::GivenUp, choices),
            Kind::ReplyTwice => self.reply_where(Progress::Answered, choices),
            Kind::ReplyUnwritten => self.reply_where(Progress::Unwritten, choices),
            Kind::ReplyHeartbeat => self.reply_among(&self.asked(), choices),
            Kind::ReplyFreed => self.reply_among(&self.freed(), choices),
            Kind::ReplyAny | Kind::ReplyOutOfRange => {
                let conns: Vec<_> = self.mux.model().established().map(|conn| (conn.id, conn.ids)).collect();
                let (conn, ids) = conns[choices.index(conns.len())];
                let beyond = i32::try_from(ids).unwrap_or(i32::MAX);
                let wild = [-1, beyond, 32_767, 32_768, 65_535, 65_536, 65_537, i32::MIN, i32::MIN + 1, i32::MAX];
                // Adding 65,536 does not change the low 16 bits.
                let stream = if kind == Kind::ReplyOutOfRange {
                    choices.one_of(&wild)
                } else {
                    i32::try_from(choices.below(ids)).unwrap_or(0)
                };
                let conn = self.conn_of(conn);
                self.reply(conn, stream);
            }
            Kind::ReplyStale => {
                let conn = choices.one_of(&self.silent());
                self.reply(conn, choices.one_of(&[0, 1, -1]));
            }
            Kind::PollAction => drop(self.poll()),
            Kind::Drain => self.drain(),
            Kind::Established => {
                let conn = self.establishing.swap_remove(choices.index(self.establishing.len()));
                self.established(conn);
            }
            Kind::EstablishFailed => {
                let conn = self.establishing.swap_remove(choices.index(self.establishing.len()));
                self.establish_failed(conn, choices.one_of(&[Cause::Network, Cause::NetworkTimeout, Cause::Dns]));
            }
            Kind::LateNews => {
                // The connection may still be pending: then the report is not late.
                let conn = choices.one_of(&self.silent());
                let in_time = self.establishing.contains(&conn);
                match choices.below(3) {
                    0 if !in_time => self.established(conn),
                    1 if !in_time => self.establish_failed(conn, Cause::Network),
                    _ => self.failed(conn, Cause::Network),
                }
            }
            Kind::Failed => {
                let conns: Vec<_> = self.mux.model().established().map(|conn| conn.id).collect();
                let conn = self.conn_of(conns[choices.index(conns.len())]);
                self.failed(conn, choices.one_of(&[Cause::Network, Cause::Protocol]));
            }
            Kind::HostUp => {
                self.note(|| "handle_host_up".into());
                let now = self.at();
                self.mux.handle_host_up(now, &mut self.log);
            }
            Kind::Reconfigure => self.reconfigure(super::options(choices)),
            Kind::ReplaceConnections => {
                self.note(|| "replace_connections".into());
                let now = self.at();
                self.mux.replace_connections(now, &mut self.log);
            }
            Kind::Ignore => {
                let distance = choices.one_of(&[Distance::Ignored, Distance::Local, Distance::Remote]);
                self.reconfigure(MuxOptions { distance, ..*self.mux.model().options() });
            }
            Kind::Close => self.close(),
            Kind::TimeExact | Kind::TimeBefore | Kind::TimePast | Kind::TimeOnly | Kind::TimeBack | Kind::Tick => {
                self.pass_time(kind, choices);
            }
        }
    }

    fn pass_time(&mut self, kind: Kind, choices: &mut impl Choices) {
        let due = self.mux.poll_timeout().map(Instant::as_nanos);
        // The end of time is excluded: after it everything is always due.
        let due = due.filter(|&due| due < 1_000_000_000 * MS);
        let was = self.now;
        if kind == Kind::TimeExact {
            self.now = due.unwrap_or(self.now).max(self.now);
        } else if kind == Kind::TimeBefore {
            self.now = due.map_or(self.now, |due| due - 1).max(self.now);
        } else if kind == Kind::TimePast {
            self.now = due.unwrap_or(self.now).max(self.now) + choices.one_of(&[1, MS, 1_000 * MS]);
        } else if kind == Kind::TimeOnly {
            self.now += choices.one_of(&[1, MS, 5 * MS, 10 * MS, 700 * MS]);
            self.note(|| "time advances".into());
            return;
        } else if kind == Kind::TimeBack {
            // Only for this call.
            self.now -= choices.one_of(&[1, MS, 500 * MS]);
        }
        self.tick();
        self.now = self.now.max(was);
    }

    pub(super) fn tick(&mut self) {
        self.note(|| "handle_timeout".into());
        let now = self.at();
        self.mux.handle_timeout(now, &mut self.log);
    }

    fn acquire(&mut self, deadline: Option<u64>) {
        let now = self.at();
        let outcome = self.mux.acquire(now, deadline.map(Instant::from_nanos), &mut self.log);
        self.note(|| format!("acquire until {deadline:?}: {outcome:?}"));
        if let Ok(Acquire::Granted(stream)) = outcome {
            self.streams.push(stream);
        }
    }

    pub(super) fn claim(&mut self, place: usize) {
        let (waiter, _) = self.mux.waiters()[place];
        let now = self.at();
        let outcome = self.mux.claim(now, waiter);
        self.note(|| format!("claim {waiter:?}: {outcome:?}"));
        if outcome == MuxClaim::Waiting {
            return;
        }
        self.use_up(waiter);
        if let MuxClaim::Granted(stream) = outcome {
            self.streams.push(stream);
        }
    }

    fn use_up(&mut self, waiter: MuxWaiterId) {
        if self.used_up.len() == 4 {
            self.used_up.remove(0);
        }
        self.used_up.push(waiter);
    }

    fn cancel_one(&mut self, state: State, choices: &mut impl Choices) {
        self.cancel(pick(&self.waiters_in(state), choices));
    }

    pub(super) fn cancel(&mut self, place: usize) {
        let (waiter, number) = self.mux.waiters()[place];
        self.note(|| format!("cancel {waiter:?}"));
        if let Some(Outcome::Granted(conn, request)) = self.mux.model().waiter(number).map(|waiter| waiter.outcome) {
            let known = self.mux.model().conn(conn);
            let known = known.and_then(|conn| conn.requests.iter().find(|known| known.number == request));
            if let Some(id) = known.and_then(|request| request.id) {
                self.free(conn, id);
            }
        }
        let now = self.at();
        self.mux.cancel(now, waiter, &mut self.log);
        self.use_up(waiter);
    }

    pub(super) fn release(&mut self, place: usize, written: Written) {
        let stream = self.streams.remove(place);
        let conn = stream.conn().number().get();
        // An unwritten request is released as unwritten.
        let is_unwritten = self.progress_of(conn, stream.id()) == Some(Progress::Unwritten);
        let written = if is_unwritten { Written::No } else { written };
        self.note(|| format!("release {stream:?} {written:?}"));
        self.free(conn, stream.id());
        let now = self.at();
        self.mux.release(now, stream, written, &mut self.log).expect("its own");
    }

    fn release_foreign(&mut self) {
        let (now, stream) = (self.at(), self.foreign_stream());
        let refused = self.mux.release(now, stream, Written::Perhaps, &mut self.log);
        // The pool rejects the call without effect, even on its clock.
        self.foreign = Some(refused.expect_err("the stream of another pool").0);
    }

    fn reply_where(&mut self, progress: Progress, choices: &mut impl Choices) {
        self.reply_among(&self.all(|one| one == progress), choices);
    }

    fn reply_among(&mut self, ids: &[(u64, u16)], choices: &mut impl Choices) {
        let (conn, id) = choices.one_of(ids);
        let conn = self.conn_of(conn);
        self.reply(conn, i32::from(id));
    }

    /// A reply was received.
    pub(super) fn reply(&mut self, conn: MuxConnId, stream: i32) {
        let (now, number) = (self.at(), conn.number().get());
        let id = u16::try_from(stream).unwrap_or(u16::MAX);
        let progress = self.progress_of(number, id).filter(|_| i32::from(id) == stream);
        if progress == Some(Progress::GivenUp) {
            self.free(number, id);
        }
        let reported = self.mux.handle_reply(now, conn, stream, &mut self.log);
        self.note(|| format!("reply by {stream} on {conn:?}: {reported:?}"));
        if progress == Some(Progress::Unwritten) {
            // The pool does not know that the request is unwritten. The host does, and closes the
            // connection.
            assert_eq!(reported, Ok(Reply::Request));
            self.look();
            self.failed(conn, Cause::Protocol);
        }
    }

    pub(super) fn established(&mut self, conn: MuxConnId) {
        let now = self.at();
        let reported = self.mux.handle_established(now, conn, &mut self.log);
        self.note(|| format!("established {conn:?}: {reported:?}"));
    }

    fn establish_failed(&mut self, conn: MuxConnId, cause: Cause) {
        let now = self.at();
        let reported = self.mux.handle_establish_failed(now, conn, cause, &mut self.log);
        self.note(|| format!("establish failed {conn:?} {cause:?}: {reported:?}"));
    }

    fn failed(&mut self, conn: MuxConnId, cause: Cause) {
        let now = self.at();
        let reported = self.mux.handle_failed(now, conn, cause, &mut self.log);
        self.note(|| format!("failed {conn:?} {cause:?}: {reported:?}"));
    }

    fn reconfigure(&mut self, options: MuxOptions) {
        self.note(|| format!("reconfigure {options:?}"));
        let now = self.at();
        self.mux.reconfigure(now, options.validate().expect("options that are valid"), &mut self.log);
    }

    pub(super) fn close(&mut self) {
        self.note(|| "close".into());
        let now = self.at();
        self.mux.close(now, &mut self.log);
    }
}

fn pick(places: &[usize], choices: &mut impl Choices) -> usize {
    places[choices.index(places.len())]
}
