//! The operations.

use super::Shape;
use super::kind::Kind;
use super::simulation::{SERVICES, Simulation, TIME_MAX};
use crate::choices::Choices;
use crate::model::pool::Outcome;
use crate::oracle::pool::Bounded;
use poolhouse_core::pool::{
    CheckOut, Claim, Clear, ConnId, EstablishError, Health, Lease, Pinned, Pool, ServiceError, WaiterId,
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
        let model = self.pool.model();
        let stand_of = |number| match model.waiter(number).map(|waiter| waiter.outcome) {
            Some(Outcome::Waiting) if model.is_bound(number) => Stand::Bound,
            Some(Outcome::Waiting) => Stand::Unbound,
            Some(Outcome::Granted(_)) => Stand::Granted,
            _ => Stand::Failed,
        };
        let waiters = self.pool.waiters();
        (0..waiters.len()).filter(|&place| stand_of(waiters[place].1) == stand).collect()
    }

    pub(super) fn is_enabled(&self, kind: Kind) -> bool {
        match kind {
            Kind::CheckOutUntimed => self.pool.model().is_untimed_check_out(),
            Kind::CheckInUntimed => !self.untimed_leases(true).is_empty(),
            Kind::ClockRead => !self.pool.model().is_untimed_check_out() || !self.untimed_leases(false).is_empty(),
            Kind::CheckOut | Kind::CheckOutDeadline => self.pool.waiters().len() < 40,
            Kind::Claim => !self.pool.waiters().is_empty(),
            Kind::ClaimUsedUp | Kind::CancelUsedUp => !self.used_up.is_empty(),
            Kind::CancelUnbound => !self.stands(Stand::Unbound).is_empty(),
            Kind::CancelBound => !self.stands(Stand::Bound).is_empty(),
            Kind::CancelGranted => !self.stands(Stand::Granted).is_empty(),
            Kind::CancelFailed => !self.stands(Stand::Failed).is_empty(),
            Kind::CheckIn | Kind::CheckInBroken | Kind::Pin => !self.leases.is_empty(),
            Kind::Service => self.shape.options.load_balanced && self.without_service().next().is_some(),
            Kind::Established | Kind::EstablishFailed | Kind::EstablishFailedClear => !self.establishing.is_empty(),
            Kind::ServiceNonsense | Kind::LateNews => !self.pool.gone().is_empty() || !self.leases.is_empty(),
            Kind::TimeExact => self.pool.poll_timeout().is_some(),
            Kind::CheckInForeign
            | Kind::PollAction
            | Kind::PollEstablish
            | Kind::PollPrompt
            | Kind::Drain
            | Kind::Ready
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

    fn without_service(&self) -> impl Iterator<Item = ConnId> {
        self.establishing.iter().copied().filter(|&conn| self.pool.conn_service(conn).is_none())
    }

    /// Indices of the leases that can be checked in without the time and an observer, or (`false`)
    /// of the others.
    fn untimed_leases(&self, is_untimed: bool) -> Vec<usize> {
        // After a change of options, the pool may read the clock at any check-in.
        let is_reconfigured = self.pool.model().is_reconfigured();
        let is_one = |lease: &Lease| {
            let id = lease.conn().connection_id().get();
            (!is_reconfigured && self.pool.model().is_untimed_check_in(id)) == is_untimed
        };
        (0..self.leases.len()).filter(|&place| is_one(&self.leases[place])).collect()
    }

    pub(super) fn operate(&mut self, kind: Kind, choices: &mut impl Choices) {
        match kind {
            Kind::CheckOut => self.check_out(None),
            Kind::CheckOutDeadline => {
                let now = self.now;
                let far = [now + MS, now + 5 * MS, now + 10 * MS, now + 10_000 * MS, now, now - 1, 0, u64::MAX - 1];
                // A random offset, so deadlines of callers hardly ever equal those of the option.
                let odd = u64::from(choices.below(100_000));
                self.check_out(Some(far[choices.index(far.len())].saturating_add(odd)));
            }
            Kind::Claim => self.claim(choices.index(self.pool.waiters().len())),
            Kind::ClaimUsedUp => {
                let waiter = self.used_up[choices.index(self.used_up.len())];
                let now = self.at();
                let _stale = self.pool.claim(now, waiter);
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
                let clear = Self::any_clear(choices);
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
                let _pinned = self.pool.pin(&self.leases[place], pinned);
            }
            Kind::Reconfigure => {
                let options = Shape::other_options(&self.shape.options, choices);
                self.note(|| format!("reconfigure {options:?}"));
                let now = self.at();
                self.pool.reconfigure(now, options.validate().expect("options that are valid"), &mut self.log);
            }
            Kind::Fill => {
                let counts = [2, 0, 1, 3, 5, 8, 100];
                let count = choices.one_of(&counts);
                self.note(|| format!("fill to {count}"));
                let now = self.at();
                self.pool.set_fill_target(now, count, &mut self.log);
            }
            Kind::CheckOutUntimed => self.check_out_untimed(),
            Kind::CheckInUntimed => {
                let places = self.untimed_leases(true);
                self.check_in_untimed(places[choices.index(places.len())]);
            }
            Kind::ClockRead => {
                if !self.pool.model().is_untimed_check_out() && self.is_enabled(Kind::CheckOut) {
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
                        observed.check_out_with(|| now, |_| None, &mut Vec::new()),
                        unobserved.check_out_with(clock, |_| None, &mut ()),
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
                let _refused = self.pool.pin(&lease, Pinned::Cursor);
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
    }

    pub(super) fn tick(&mut self) {
        self.note(|| "handle_timeout".into());
        let now = self.at();
        self.pool.handle_timeout(now, &mut self.log);
    }

    fn check_out(&mut self, deadline: Option<u64>) {
        let now = self.at();
        let outcome = self.pool.check_out(now, deadline.map(Instant::from_nanos), &mut self.log);
        self.note(|| format!("check_out until {deadline:?}: {outcome:?}"));
        if let Ok(CheckOut::Granted(lease)) = outcome {
            self.leases.push(lease);
        }
    }

    /// Checks out like a client without a subscriber.
    fn check_out_untimed(&mut self) {
        let lease = self.pool.check_out_without_clock();
        self.note(|| format!("check_out without the clock: {lease:?}"));
        self.leases.push(lease);
    }

    /// Checks in like a client without a subscriber.
    fn check_in_untimed(&mut self, place: usize) {
        let lease = self.leases.remove(place);
        let id = lease.conn().connection_id().get();
        self.note(|| format!("check_in without the clock of {id}"));
        self.pool.check_in_without_clock(lease);
    }

    pub(super) fn claim(&mut self, place: usize) {
        let (waiter, _) = self.pool.waiters()[place];
        let now = self.at();
        let outcome = self.pool.claim(now, waiter);
        self.note(|| format!("claim {waiter:?}: {outcome:?}"));
        if outcome == Claim::Waiting {
            return;
        }
        self.use_up(waiter);
        if let Claim::Granted(lease) = outcome {
            self.leases.push(lease);
        }
    }

    fn use_up(&mut self, waiter: WaiterId) {
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
        let (waiter, _) = self.pool.waiters()[place];
        self.note(|| format!("cancel {waiter:?}"));
        let now = self.at();
        self.pool.cancel(now, waiter, &mut self.log);
        self.use_up(waiter);
    }

    pub(super) fn check_in(&mut self, place: usize, broken: Option<Cause>) {
        let lease = self.leases.remove(place);
        let health = broken.map_or(Health::Healthy, Health::Broken);
        self.note(|| format!("check_in {:?} {health:?}", lease.conn()));
        let now = self.at();
        self.pool.check_in(now, lease, health, &mut self.log).expect("a lease of this pool");
    }

    fn check_in_foreign(&mut self) {
        let (now, lease) = (self.at(), self.foreign_lease());
        self.note(|| format!("check_in of a foreign {lease:?}"));
        let refused = self.pool.check_in(now, lease, Health::Healthy, &mut self.log);
        self.foreign = Some(refused.expect_err("the lease of another pool").0);
    }

    /// Returns true when the capacity for services is exhausted.
    pub(super) fn service(&mut self, conn: ConnId, service: ObjectId) -> bool {
        let reported = self.pool.handle_service(conn, service);
        self.note(|| format!("service of {conn:?} is {service}: {reported:?}"));
        reported == Err(ServiceError::Full)
    }

    pub(super) fn established(&mut self, conn: ConnId) {
        let now = self.at();
        let reported = self.pool.handle_established(now, conn, &mut self.log);
        self.note(|| format!("established {conn:?}: {reported:?}"));
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
    }

    /// A connection that is not being established.
    fn not_pending(&self, choices: &mut impl Choices) -> ConnId {
        let in_use = self.leases.iter().map(poolhouse_core::pool::Lease::conn);
        let conns: Vec<_> = self.pool.gone().iter().copied().chain(in_use).collect();
        conns[choices.index(conns.len())]
    }

    fn any_clear(choices: &mut impl Choices) -> Clear {
        choices.one_of(&[
            Clear::All { interrupt_in_use_connections: false },
            Clear::All { interrupt_in_use_connections: true },
            Clear::Service(SERVICES[0]),
            Clear::Service(SERVICES[1]),
        ])
    }

    fn clear(&mut self, clear: Clear, choices: &mut impl Choices) {
        let cause = choices.one_of(&[None, Some(Cause::Network)]);
        let now = self.at();
        let reported = self.pool.clear(now, clear, cause, &mut self.log);
        self.note(|| format!("clear {clear:?} because of {cause:?}: {reported:?}"));
    }

    pub(super) fn ready(&mut self) {
        self.note(|| "ready".into());
        let now = self.at();
        self.pool.ready(now, &mut self.log);
    }

    pub(super) fn close(&mut self) {
        self.note(|| "close".into());
        let now = self.at();
        self.pool.close(now, &mut self.log);
    }

    fn fork(&mut self) {
        self.note(|| "reset_after_fork".into());
        let now = self.at();
        self.pool.reset_after_fork(now, &mut self.log);
    }
}
