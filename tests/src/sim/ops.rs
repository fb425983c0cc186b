//! The operations. Each is applied to the pool and to the model, and their results are compared.

use super::kind::Kind;
use super::simulation::{SERVICES, Simulation, TIME_MAX};
use super::{Shape, same};
use crate::choices::Choices;
use crate::model::pool::Outcome;
use crate::oracle::pool::Bounded;
use poolhouse_core::pool::{
    Claim, Clear, ConnId, EstablishError, Health, Lease, Pinned, Pool, PoolOptions, PoolState, ServiceError, Stale,
    WrongMode,
};
use poolhouse_core::sim::chance;
use poolhouse_core::{Cause, Instant, ObjectId};

const MS: u64 = 1_000_000;

/// State of an unclaimed check-out, according to the model.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stand {
    Unbound,
    Bound,
    Granted,
    Failed,
}

impl<M: Bounded> Simulation<'_, M> {
    fn stands(&self, stand: Stand) -> Vec<usize> {
        let stand_of = |number| match self.model.waiter(number).map(|waiter| waiter.outcome) {
            Some(Outcome::Waiting) if self.model.is_bound(number) => Stand::Bound,
            Some(Outcome::Waiting) => Stand::Unbound,
            Some(Outcome::Granted(_)) => Stand::Granted,
            _ => Stand::Failed,
        };
        (0..self.waiters.len()).filter(|&place| stand_of(self.waiters[place].1) == stand).collect()
    }

    pub(super) fn is_enabled(&self, kind: Kind) -> bool {
        match kind {
            Kind::CheckOutUntimed => self.model.is_untimed_check_out(),
            Kind::CheckInUntimed => !self.untimed_leases(true).is_empty(),
            Kind::ClockRead => !self.model.is_untimed_check_out() || !self.untimed_leases(false).is_empty(),
            Kind::CheckOut | Kind::CheckOutDeadline => self.waiters.len() < if self.shape.tiny { 2 } else { 40 },
            Kind::Claim => !self.waiters.is_empty(),
            Kind::ClaimUsedUp | Kind::CancelUsedUp => !self.used_up.is_empty(),
            Kind::CancelUnbound => !self.stands(Stand::Unbound).is_empty(),
            Kind::CancelBound => !self.stands(Stand::Bound).is_empty(),
            Kind::CancelGranted => !self.stands(Stand::Granted).is_empty(),
            Kind::CancelFailed => !self.stands(Stand::Failed).is_empty(),
            Kind::CheckIn | Kind::CheckInBroken | Kind::Pin => !self.leases.is_empty(),
            Kind::Service => self.shape.options.load_balanced && self.without_service().next().is_some(),
            Kind::Established | Kind::EstablishFailed | Kind::EstablishFailedClear => !self.establishing.is_empty(),
            Kind::ServiceNonsense | Kind::LateNews => !self.gone.is_empty() || !self.leases.is_empty(),
            // In a tiny run, operations without effect are left out.
            Kind::Ready => !self.shape.tiny || self.pool.state() == PoolState::Paused,
            Kind::Drain => !self.shape.tiny || self.owes(),
            Kind::PollEstablish => !self.shape.tiny || !self.model.owed_establishes().is_empty(),
            Kind::TimeExact => self.pool.poll_timeout().is_some(),
            Kind::CheckInForeign
            | Kind::PollAction
            | Kind::PollPrompt
            | Kind::Clear
            | Kind::ClearInterrupt
            | Kind::ClearService
            | Kind::ClearWrongMode
            | Kind::Close
            | Kind::Fork
            | Kind::PinForeign
            | Kind::TimeBefore
            | Kind::TimePast
            | Kind::TimeOnly
            | Kind::TimeBack
            | Kind::Tick
            | Kind::Reconfigure
            | Kind::Fill
            | Kind::Retire => true,
        }
    }

    fn owes(&self) -> bool {
        let model = &self.model;
        let lists = [model.owed_wakes(), model.owed_interrupts(), model.owed_closes(), model.owed_establishes()];
        lists.iter().any(|list| !list.is_empty())
    }

    fn without_service(&self) -> impl Iterator<Item = ConnId> {
        self.establishing.iter().copied().filter(|&conn| self.pool.conn_service(conn).is_none())
    }

    /// Indices of the leases that can be checked in without the time and an observer, or (`false`)
    /// of the others.
    fn untimed_leases(&self, is_untimed: bool) -> Vec<usize> {
        // After a change of options, the pool may read the clock at any check-in.
        let is_reconfigured = self.model.is_reconfigured();
        let is_one = |lease: &Lease| {
            let id = lease.conn().connection_id().get();
            (!is_reconfigured && self.model.is_untimed_check_in(id)) == is_untimed
        };
        (0..self.leases.len()).filter(|&place| is_one(&self.leases[place])).collect()
    }

    pub(super) fn operate(&mut self, kind: Kind, choices: &mut impl Choices) {
        match kind {
            Kind::CheckOut => self.check_out(None),
            Kind::CheckOutDeadline => {
                let now = self.now;
                let far = [now + MS, now + 5 * MS, now + 10 * MS, now + 10_000 * MS, now, now - 1, 0, u64::MAX - 1];
                let count = if self.shape.tiny { 2 } else { far.len() };
                // A random offset, so deadlines of callers hardly ever equal those of the option.
                let odd = if self.shape.tiny { 0 } else { u64::from(choices.below(100_000)) };
                self.check_out(Some(far[choices.index(count)].saturating_add(odd)));
            }
            Kind::Claim => self.claim(choices.index(self.waiters.len())),
            Kind::ClaimUsedUp => {
                let waiter = self.used_up[choices.index(self.used_up.len())];
                let now = self.at();
                assert_eq!(self.pool.claim(now, waiter), Claim::Stale);
                self.model.advance(self.now);
            }
            Kind::CancelUnbound => self.cancel_one(Stand::Unbound, choices),
            Kind::CancelBound => self.cancel_one(Stand::Bound, choices),
            Kind::CancelGranted => self.cancel_one(Stand::Granted, choices),
            Kind::CancelFailed => self.cancel_one(Stand::Failed, choices),
            Kind::CancelUsedUp => {
                let waiter = self.used_up[choices.index(self.used_up.len())];
                self.note(|| format!("cancel used up {waiter:?}"));
                let now = self.at();
                self.pool.cancel(now, waiter, &mut self.log);
                // The call has no effect except on the time.
                self.model.cancel(self.now, 0);
            }
            Kind::CheckIn => self.check_in(choices.index(self.leases.len()), None),
            Kind::CheckInBroken => {
                let cause = choices.one_of(&[Cause::Network, Cause::NetworkTimeout, Cause::Protocol]);
                self.check_in(choices.index(self.leases.len()), Some(cause));
            }
            Kind::CheckInForeign => self.check_in_foreign(),
            Kind::PollAction => drop(self.poll(true, true)),
            Kind::PollEstablish => drop(self.poll(true, false)),
            Kind::PollPrompt => drop(self.poll(false, true)),
            Kind::Drain => self.drain(),
            Kind::Service => {
                let conns: Vec<_> = self.without_service().collect();
                let conn = conns[choices.index(conns.len())];
                let _full = self.service(conn, choices.one_of(&SERVICES));
            }
            Kind::Retire => {
                // The newest eight, most of which still exist.
                let newest = self.begun.len().min(8);
                if newest > 0 {
                    let conn = self.begun[self.begun.len() - 1 - choices.index(newest)];
                    let now = self.at();
                    self.pool.retire(now, conn, &mut self.log);
                    self.model.retire(self.now, conn.connection_id().get());
                }
            }
            Kind::ServiceNonsense => {
                let conn = self.not_pending(choices);
                let _full = self.service(conn, SERVICES[0]);
            }
            Kind::Established => {
                let conn = self.establishing.swap_remove(choices.index(self.establishing.len()));
                self.established(conn);
            }
            Kind::EstablishFailed => self.establish_failed(None, choices),
            Kind::EstablishFailedClear => {
                let clear = self.any_clear(choices);
                self.establish_failed(Some(clear), choices);
            }
            Kind::LateNews => {
                let conn = self.not_pending(choices);
                if choices.one_in(2) {
                    self.established(conn);
                } else {
                    let error = EstablishError { cause: Cause::Network, overloaded: true, clear: None };
                    self.fail_conn(conn, error);
                }
            }
            Kind::Clear | Kind::ClearInterrupt if self.shape.options.load_balanced => self.fork(),
            Kind::Clear => self.clear(Clear::All { interrupt_in_use_connections: false }, choices),
            Kind::ClearInterrupt => self.clear(Clear::All { interrupt_in_use_connections: true }, choices),
            Kind::ClearService => {
                let service = choices.one_of(&SERVICES);
                self.clear(Clear::Service(service), choices);
            }
            Kind::ClearWrongMode => {
                let clear = match self.shape.options.load_balanced {
                    true => Clear::All { interrupt_in_use_connections: true },
                    false => Clear::Service(SERVICES[0]),
                };
                self.clear(clear, choices);
            }
            Kind::Ready => self.ready(),
            Kind::Close => self.close(),
            Kind::Fork => self.fork(),
            Kind::Pin => {
                let place = choices.index(self.leases.len());
                let pinned = choices.one_of(&[Pinned::Cursor, Pinned::Transaction, Pinned::No]);
                self.note(|| format!("pin {:?} {pinned:?}", self.leases[place].conn()));
                assert_eq!(self.pool.pin(&self.leases[place], pinned), Ok(()));
                self.model.pin(self.leases[place].conn().connection_id().get(), pinned);
            }
            Kind::Reconfigure => {
                let options = Shape::other_options(&self.shape.options, choices);
                self.note(|| format!("reconfigure {options:?}"));
                let now = self.at();
                self.pool.reconfigure(now, options.validate().expect("options that are valid"), &mut self.log);
                self.model.reconfigure(self.now, options);
                let PoolOptions { load_balanced, background, .. } = self.shape.options;
                let expected = PoolOptions { load_balanced, background, ..options };
                assert!(self.pool.state() == PoolState::Closed || *self.pool.config().options() == expected);
            }
            Kind::Fill => {
                let counts = [2, 0, 1, 3, 5, 8, 100];
                let count = counts[choices.index(if self.shape.tiny { 2 } else { counts.len() })];
                self.note(|| format!("fill to {count}"));
                let now = self.at();
                self.pool.set_fill_target(now, count, &mut self.log);
                self.model.set_fill_target(self.now, count);
            }
            Kind::CheckOutUntimed => self.check_out_untimed(),
            Kind::CheckInUntimed => {
                let places = self.untimed_leases(true);
                self.check_in_untimed(places[choices.index(places.len())]);
            }
            Kind::ClockRead => {
                if !self.model.is_untimed_check_out() && self.is_enabled(Kind::CheckOut) {
                    let now = self.at();
                    let asked = chance::asked();
                    let mut observed = Pool::clone(&self.pool);
                    let mut unobserved = Pool::clone(&self.pool);
                    let mut reads = 0;
                    let clock = || {
                        reads += 1;
                        now
                    };
                    let outcomes = (
                        observed.check_out_with(|| now, None, &mut Vec::new()),
                        unobserved.check_out_with(clock, None, &mut ()),
                    );
                    assert_eq!(reads, 1, "an unobserved check-out that needs the time reads the clock");
                    // Armed fault points fire in one of the two only.
                    let is_alike = outcomes.0 == outcomes.1 && observed == unobserved;
                    assert!(
                        is_alike || chance::asked() != asked,
                        "an observer must not change the result of a check-out"
                    );
                    self.check_out(None);
                }
                if let Some(&place) = self.untimed_leases(false).first() {
                    self.check_in(place, None);
                }
            }
            Kind::PinForeign => {
                let lease = self.foreign_lease();
                assert_eq!(self.pool.pin(&lease, Pinned::Cursor), Err(Stale));
                self.foreign = Some(lease);
            }
            Kind::TimeExact | Kind::TimeBefore | Kind::TimePast | Kind::TimeOnly | Kind::TimeBack | Kind::Tick => {
                self.pass_time(kind, choices);
            }
        }
    }

    fn pass_time(&mut self, kind: Kind, choices: &mut impl Choices) {
        let due = self.pool.poll_timeout().map(Instant::as_nanos);
        // The end of time is excluded: after it everything is always due.
        let due = due.filter(|&due| due < TIME_MAX);
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
        if kind == Kind::TimeExact {
            let due = self.pool.poll_timeout();
            assert!(due.is_none_or(|due| due > self.at()), "handle_timeout left a due timer");
        }
    }

    pub(super) fn tick(&mut self) {
        self.note(|| "handle_timeout".into());
        let now = self.at();
        self.pool.handle_timeout(now, &mut self.log);
        self.model.handle_timeout(self.now);
    }

    fn check_out(&mut self, deadline: Option<u64>) {
        let now = self.at();
        let outcome = self.pool.check_out(now, deadline.map(Instant::from_nanos), &mut self.log);
        self.note(|| format!("check_out until {deadline:?}: {outcome:?}"));
        let expected = self.model.check_out(self.now, deadline);
        same::check_out(outcome, expected, &mut self.leases, &mut self.waiters);
    }

    /// Checks out like a client without a subscriber.
    fn check_out_untimed(&mut self) {
        let lease = self.pool.check_out_without_clock();
        self.note(|| format!("check_out without the clock: {lease:?}"));
        let events = self.model.events.len();
        let expected = self.model.check_out_without_clock();
        // No observer receives these events.
        self.model.events.truncate(events);
        assert_eq!(lease.conn().connection_id().get(), expected, "the newest connection");
        self.leases.push(lease);
    }

    /// Checks in like a client without a subscriber.
    fn check_in_untimed(&mut self, place: usize) {
        let lease = self.leases.remove(place);
        let id = lease.conn().connection_id().get();
        self.note(|| format!("check_in without the clock of {id}"));
        self.pool.check_in_without_clock(lease);
        let events = self.model.events.len();
        self.model.check_in_without_clock(id);
        self.model.events.truncate(events);
    }

    pub(super) fn claim(&mut self, place: usize) {
        let (waiter, number) = self.waiters[place];
        let now = self.at();
        let outcome = self.pool.claim(now, waiter);
        self.note(|| format!("claim {waiter:?}: {outcome:?}"));
        if same::claim(outcome, self.model.claim(self.now, number), &mut self.leases) {
            self.use_up(place);
        }
    }

    fn use_up(&mut self, place: usize) {
        let (waiter, _) = self.waiters.remove(place);
        if self.used_up.len() == 4 {
            self.used_up.remove(0);
        }
        self.used_up.push(waiter);
    }

    fn cancel_one(&mut self, stand: Stand, choices: &mut impl Choices) {
        let places = self.stands(stand);
        self.cancel(places[choices.index(places.len())]);
    }

    pub(super) fn cancel(&mut self, place: usize) {
        let (waiter, number) = self.waiters[place];
        self.note(|| format!("cancel {waiter:?}"));
        let now = self.at();
        self.pool.cancel(now, waiter, &mut self.log);
        self.model.cancel(self.now, number);
        self.use_up(place);
    }

    pub(super) fn check_in(&mut self, place: usize, broken: Option<Cause>) {
        let lease = self.leases.remove(place);
        let health = broken.map_or(Health::Healthy, Health::Broken);
        self.note(|| format!("check_in {:?} {health:?}", lease.conn()));
        let (now, id) = (self.at(), lease.conn().connection_id().get());
        assert_eq!(self.pool.check_in(now, lease, health, &mut self.log), Ok(()));
        self.model.check_in(self.now, id, health);
    }

    fn check_in_foreign(&mut self) {
        let (now, lease) = (self.at(), self.foreign_lease());
        self.note(|| format!("check_in of a foreign {lease:?}"));
        let refused = self.pool.check_in(now, lease, Health::Healthy, &mut self.log);
        self.model.advance(self.now);
        self.foreign = Some(refused.expect_err("the lease of another pool").0);
    }

    /// Returns true when the capacity for services is exhausted.
    pub(super) fn service(&mut self, conn: ConnId, service: ObjectId) -> bool {
        let reported = self.pool.handle_service(conn, service);
        self.note(|| format!("service of {conn:?} is {service}: {reported:?}"));
        let expected = self.model.service(conn.connection_id().get(), service);
        assert_eq!(reported.map(|generation| generation.get()), expected, "handle_service");
        reported == Err(ServiceError::Full)
    }

    pub(super) fn established(&mut self, conn: ConnId) {
        let now = self.at();
        let reported = self.pool.handle_established(now, conn, &mut self.log);
        self.note(|| format!("established {conn:?}: {reported:?}"));
        assert_eq!(
            reported.is_ok(),
            self.model.established(self.now, conn.connection_id().get()),
            "handle_established"
        );
    }

    fn establish_failed(&mut self, clear: Option<Clear>, choices: &mut impl Choices) {
        let conn = self.establishing.swap_remove(choices.index(self.establishing.len()));
        let cause = choices.one_of(&[Cause::Network, Cause::Command { code: 91 }, Cause::Authentication]);
        self.fail_conn(conn, EstablishError { cause, overloaded: cause == Cause::Network, clear });
    }

    fn fail_conn(&mut self, conn: ConnId, error: EstablishError) {
        let now = self.at();
        let reported = self.pool.handle_establish_failed(now, conn, error, &mut self.log);
        self.note(|| format!("failed {conn:?} {error:?}: {reported:?}"));
        let expected = self.model.establish_failed(self.now, conn.connection_id().get(), error);
        assert_eq!(reported.is_ok(), expected, "handle_establish_failed");
    }

    /// A connection that is not being established.
    fn not_pending(&self, choices: &mut impl Choices) -> ConnId {
        let in_use = self.leases.iter().map(poolhouse_core::pool::Lease::conn);
        let conns: Vec<_> = self.gone.iter().copied().chain(in_use).collect();
        conns[choices.index(conns.len())]
    }

    fn any_clear(&self, choices: &mut impl Choices) -> Clear {
        let kinds = [
            Clear::All { interrupt_in_use_connections: false },
            Clear::All { interrupt_in_use_connections: true },
            Clear::Service(SERVICES[0]),
            Clear::Service(SERVICES[1]),
        ];
        kinds[choices.index(if self.shape.tiny { 1 } else { kinds.len() })]
    }

    fn clear(&mut self, clear: Clear, choices: &mut impl Choices) {
        let cause = if self.shape.tiny { None } else { choices.one_of(&[None, Some(Cause::Network)]) };
        let now = self.at();
        let reported = self.pool.clear(now, clear, cause, &mut self.log);
        self.note(|| format!("clear {clear:?} because of {cause:?}: {reported:?}"));
        let expected = if self.model.clear(self.now, clear, cause) { Ok(()) } else { Err(WrongMode) };
        assert_eq!(reported, expected, "clear");
    }

    pub(super) fn ready(&mut self) {
        self.note(|| "ready".into());
        let now = self.at();
        self.pool.ready(now, &mut self.log);
        self.model.ready(self.now);
    }

    pub(super) fn close(&mut self) {
        self.note(|| "close".into());
        let now = self.at();
        self.pool.close(now, &mut self.log);
        self.model.close(self.now);
    }

    fn fork(&mut self) {
        self.note(|| "reset_after_fork".into());
        let now = self.at();
        self.pool.reset_after_fork(now, &mut self.log);
        self.model.reset_after_fork(self.now);
    }
}
