//! The operations on the client, the session or the pool.

use super::{DropPoint, Failed, Subject, Work};
use crate::kind::Kind;
use crate::network::cassandra::text_of;
use crate::network::plain::on_pool;
use crate::network::plan::nanos;
use crate::network::platform::Sim;
use core::future::poll_fn;
use core::pin::{Pin, pin};
use core::task::{Context, Poll};
use core::time::Duration;
use poolhouse_client::mux::{Batch, RequestError, Session};
use poolhouse_client::{Client, ClientSessionOptions, CommandOptions, Error, TransactionOptions};
use poolhouse_core::selection::ReadPreference;
use poolhouse_cql::{Consistency, Response};
use poolhouse_driver::OperationError;

/// Executes the work of an operation.
pub(in crate::network) async fn execute(sim: &Sim, subject: &Subject, work: Work) -> Result<(), Failed> {
    match subject {
        Subject::Client(client) => on_client(sim, client, work).await.map_err(|error| {
            let known = client.servers().into_iter().filter_map(|server| server.round_trip_minimum);
            Failed { round_trip: known.max().map_or(0, nanos), ..error.into() }
        }),
        Subject::Session(session) => on_session(sim, session, work).await,
        Subject::Pool(pool) => on_pool(sim, pool, work).await,
    }
}

async fn on_session(sim: &Sim, session: &Session<Sim>, work: Work) -> Result<(), Failed> {
    match work {
        Work::Query { number, is_idempotent, timeout, location } => {
            let (text, key) = (text_of(number), location.map(|(_, key)| key.to_be_bytes()));
            let mut batch = Batch::unlogged();
            // Each kind of call by each kind of future: all follow the same rules.
            let (is_of_many, is_prepared, is_batch) = (number % 2 == 1, number / 2 % 3 == 1, number / 2 % 3 == 2);
            let mut call = session.query(&text);
            if is_batch {
                batch.query_with(&text, ());
                call = session.batch(&batch);
            } else if is_prepared {
                call = call.values(());
            }
            call = call.consistency(Consistency::One).idempotent(is_idempotent);
            if let Some(timeout) = timeout {
                call = call.timeout(timeout);
            }
            if let (Some((keyspace, _)), Some(key)) = (location, &key) {
                call = call.routing(keyspace, key);
            }
            sim.with(|state| state.begin_in_keyspace(number));
            let reply = if is_of_many {
                let calls = [call];
                let Some(result) = session.request_all(&calls).await.pop() else {
                    unreachable!("one result for one request")
                };
                result?
            } else {
                call.send().await?
            };
            let keyspace = match reply.response() {
                Ok(Response::Result(outcome)) => outcome.keyspace().ok().flatten(),
                _ => None,
            };
            sim.with(|state| state.replied(number, keyspace == Some(&*text)));
        }
        Work::UseKeyspace { name } => {
            let is_refused = match session.use_keyspace(name).await {
                Ok(()) => false,
                Err(RequestError::Keyspace(_)) => true,
                Err(error) => return Err(error.into()),
            };
            let shown = session.keyspace();
            sim.with(|state| state.end_of_keyspace_call(name, is_refused, shown.as_deref()));
        }
        Work::ReconfigureMux(options) => session.set_mux_options(options)?,
        Work::Subscribe(time) => {
            let _subscription = session.subscribe();
            sim.sleep(time).await;
        }
        _ => {
            let (_, shown) = (format!("{session:?}"), session.keyspace());
            sim.with(|state| state.check_shown_keyspace(shown.as_deref()));
        }
    }
    Ok(())
}

async fn on_client(sim: &Sim, client: &Client<Sim>, work: Work) -> Result<(), Error> {
    match work {
        Work::Command(command) => {
            let mut options = CommandOptions::new().idempotent(command.is_idempotent);
            // Both mean no limit.
            let is_zero = command.timeout == Some(Duration::MAX) && command.number % 2 == 0;
            options.timeout = if is_zero { Some(Duration::ZERO) } else { command.timeout };
            if !command.is_write {
                options = options.read_preference(ReadPreference::of(command.mode));
            }
            let reply = client.run_command_with("test", command.document(), options).await?;
            sim.with(|state| state.replied(command.number, command.is_answered_by(&reply)));
        }
        Work::Session { timeout, mode, commands, gives_up, pause } => {
            let (deadline, check_out, pace) = sim.with(|state| state.session_limits(timeout));
            let check_out_text = "the check-out of a connection";
            let mut connection = match timeout {
                None => {
                    let work = client.check_out_preferring(ReadPreference::of(mode));
                    timed(sim, check_out_text, deadline.or(check_out), work).await?
                }
                Some(timeout) => timed(sim, check_out_text, deadline, client.check_out_timeout(timeout)).await?,
            };
            let mut commands = commands.into_iter();
            if let (Some(polls), Some((_, command))) = (gives_up, commands.next()) {
                if let Some(result) =
                    polled_at_most(sim, polls, connection.run_command("test", command.document())).await
                {
                    let reply = result?;
                    sim.with(|state| state.replied(command.number, command.is_answered_by(&reply)));
                } else {
                    sim.with(|state| state.counters.count(Kind::GivenUp));
                    let Some((_, command)) = commands.next() else { return Ok(()) };
                    // The connection is still usable only if nothing was sent.
                    let again = connection.run_command("test", command.document()).await;
                    return match again {
                        Ok(reply) => {
                            sim.with(|state| state.replied(command.number, command.is_answered_by(&reply)));
                            Ok(())
                        }
                        Err(Error::Operation(OperationError::Broken(_), _)) => {
                            sim.with(|state| state.counters.count(Kind::OpBroken));
                            Ok(())
                        }
                        Err(error) => Err(error),
                    };
                }
            }
            for (pause, command) in commands {
                if pause > 0 {
                    sim.sleep(pause).await;
                }
                let end = deadline.or_else(|| Some(sim.with(|state| state.clock_ns()).saturating_add(pace?)));
                let text = "a command on a connection that is checked out";
                match timed(sim, text, end, connection.run_command("test", command.document())).await {
                    Ok(reply) => sim.with(|state| state.replied(command.number, command.is_answered_by(&reply))),
                    Err(error) => {
                        // The connection is still usable only if the command was not executed.
                        let again = connection.run_command("test", command.document()).await;
                        if let Ok(reply) = &again {
                            sim.with(|state| state.replied(command.number, command.is_answered_by(reply)));
                        }
                        if matches!(again, Err(Error::Operation(OperationError::Broken(_), _))) {
                            sim.with(|state| state.counters.count(Kind::OpBroken));
                        }
                        return Err(error);
                    }
                }
            }
            if pause > 0 {
                sim.sleep(pause).await;
            }
        }
        Work::WarmUp { timeout } => client.warm_up(timeout).await?,
        Work::InSession { command, in_transaction } => {
            let mut session = client.start_session(ClientSessionOptions::new());
            if in_transaction {
                session.start_transaction(TransactionOptions::new())?;
            }
            let outcome = session.run_command("test", command.document()).await;
            sim.with(|state| {
                state.counters.checks.add("P60");
                if !matches!(outcome, Err(Error::Session(_))) {
                    let what = if in_transaction { "transaction" } else { "session" };
                    state.violate(|| format!("P60: a write without an acknowledgement in a {what}: {outcome:?}"));
                }
            });
        }
        Work::Reconfigure(options) => client.set_pool_options(options)?,
        Work::Subscribe(time) => {
            let _subscription = client.subscribe();
            sim.sleep(time).await;
        }
        Work::Query { .. }
        | Work::UseKeyspace { .. }
        | Work::ReconfigureMux(_)
        | Work::Use { .. }
        | Work::Clear
        | Work::Resize(_) => unreachable!("these are for others"),
        Work::Inspect => {
            let _ = (format!("{client:?} {:?}", client.topology()), client.pool_options());
        }
    }
    Ok(())
}

/// Runs a part of an operation, and checks that it ends in time.
///
/// - `end`: on the client's clock. A part that begins later ends at once.
async fn timed<F: Future>(sim: &Sim, what: &str, end: Option<u64>, work: F) -> F::Output {
    let (begun, begun_clock, late) = sim.with(|state| (state.now, state.clock_ns(), state.late_max()));
    let result = work.await;
    sim.with(|state| {
        let jumped = state.jumped_at.is_some_and(|at| at >= begun);
        let Some(end) = end.map(|end| end.max(begun_clock)).filter(|_| !jumped) else { return };
        state.counters.checks.add("P19");
        let clock = state.clock_ns();
        if clock > end + late {
            state.violate(|| format!("P19: {what} ends {} ns late", clock - end));
        }
    });
    result
}

/// Polls a future at most this many times. `None`: it was dropped.
async fn polled_at_most<F: Future>(sim: &Sim, polls: u32, work: F) -> Option<F::Output> {
    let mut work = pin!(work);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        // A poll without a reason is not counted.
        left -= u32::from(!sim.with(|state| state.is_disturbing));
        match work.as_mut().poll(context) {
            Poll::Pending if left > 0 => Poll::Pending,
            Poll::Pending => Poll::Ready(None),
            Poll::Ready(result) => Poll::Ready(Some(result)),
        }
    })
    .await
}

/// An operation, and when its future is dropped. Its end is recorded in the state.
pub(in crate::network) struct Running<F> {
    pub(in crate::network) sim: Sim,
    pub(in crate::network) id: u64,
    /// `None` once it was dropped.
    pub(in crate::network) work: Option<Pin<Box<F>>>,
    pub(in crate::network) drop_point: DropPoint,
    pub(in crate::network) polls: u32,
}

impl<F: Future<Output = Result<(), Failed>>> Future for Running<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // A poll without a reason is not counted.
        let is_disturbing = self.sim.with(|state| state.is_disturbing);
        let drop_point = if is_disturbing { DropPoint::Never } else { self.drop_point };
        if drop_point == DropPoint::WhenWoken(self.polls) {
            self.sim.with(|state| state.counters.count(Kind::DropWhenWoken));
            return Poll::Ready(());
        }
        self.polls += u32::from(!is_disturbing);
        let Some(work) = &mut self.work else { return Poll::Ready(()) };
        if let Poll::Ready(result) = work.as_mut().poll(context) {
            self.work = None;
            let (sim, id) = (self.sim.clone(), self.id);
            sim.with(|state| state.end_operation(id, Some(&result)));
            return Poll::Ready(());
        }
        if drop_point == DropPoint::AfterPoll(self.polls) {
            self.sim.with(|state| state.counters.count(Kind::DropAfterPoll));
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl<F> Drop for Running<F> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            drop(work);
            let id = self.id;
            self.sim.with(|state| state.end_operation(id, None));
        }
    }
}
