//! Cancel-safety: each future of the driver is dropped at each of its polls. No connection is lost
//! or leaked, and no operation receives the reply to another one.

use super::rig::{Bell, DropIt, DropPoint, Rig, at_every_point, filled_server, find, find_at_length, find_by, ping_by};
use super::{Shape, Subject, run_case};
use crate::fake::{Cut, Fault, FaultRule};
use crate::patience::{PATIENCE, eventually, refused};
use crate::suite::Suite;
use alloc::sync::Arc;
use core::fmt::Debug;
use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use poolhouse_core::Cause;
use poolhouse_driver::{OperationError, SelectionRequest};

pub(super) fn add<S: Subject>(suite: Suite) -> Suite {
    let suite = suite
        .case("dropping::check_out_of_an_idle_connection", || run_case::<S>(idle_check_out))
        .case("dropping::check_out_that_waits_for_a_connection_in_use", || run_case::<S>(waiting_check_out))
        .case("dropping::check_out_that_waits_for_its_connection_to_be_established", || {
            run_case::<S>(establishing_check_out);
        })
        .case("dropping::first_check_out_of_a_client", || run_case::<S>(first_check_out))
        .case("dropping::selection_of_a_server", || run_case::<S>(selection))
        .case("dropping::dropped_futures_keep_no_waker", || run_case::<S>(dropped_futures_keep_no_waker))
        .case("dropping::warming_up", || run_case::<S>(warming_up))
        .case("dropping::operation_from_its_beginning_to_its_end", || run_case::<S>(operation))
        .case("dropping::operation_that_has_a_second_attempt", || run_case::<S>(second_attempt))
        .case("dropping::guard_whose_command_was_dropped_is_of_no_more_use", || run_case::<S>(used_guard));
    [("closed", Duration::ZERO), ("waited_for", PATIENCE)].into_iter().fold(suite, |suite, (late, drain_timeout)| {
        if !drain_timeout.is_zero() && !S::LIMITS.late_replies {
            return suite.left_out(
                "dropping::commands_with_late_replies_waited_for",
                "this subject never waits for late replies",
            );
        }
        suite
            .case(format!("dropping::command_with_late_replies_{late}"), move || {
                run_case::<S>(async |subject: &S| command(subject, drain_timeout, None).await);
            })
            .case(format!("dropping::command_answered_byte_by_byte_with_late_replies_{late}"), move || {
                run_case::<S>(async |subject: &S| command(subject, drain_timeout, Some(GAP)).await);
            })
            .case(format!("dropping::large_command_with_late_replies_{late}"), move || {
                run_case::<S>(async |subject: &S| large_command(subject, drain_timeout).await);
            })
    })
}

/// Limits the pool to one connection.
fn single(shape: &mut Shape) {
    shape.max_pool_size = 1;
}

async fn idle_check_out<S: Subject>(subject: &S) {
    let rig = Rig::new(subject, single);
    rig.all_is_well().await;
    at_every_point(0, async |point| {
        let done = point.reach(rig.core().check_out(&SelectionRequest::WRITE, None)).await;
        let over = done.is_some();
        drop(done);
        let counts = rig.counts();
        assert_eq!((counts.in_use, counts.available, counts.waiting), (0, 1, 0), "{point:?}");
        rig.all_is_well().await;
        over
    })
    .await;
    rig.end().await;
}

/// The connection in use is returned after the check-out started waiting. The waiter is dropped
/// while it is queued, or after the connection was granted and before its next poll.
async fn waiting_check_out<S: Subject>(subject: &S) {
    let rig = Rig::new(subject, single);
    rig.all_is_well().await;
    let accepted = rig.server.accepted_count();
    at_every_point(1, async |point| {
        let mut guard = Some(rig.check_out().await);
        let done =
            point.reach_beside(rig.core().check_out(&SelectionRequest::WRITE, None), async || drop(guard.take())).await;
        let over = done.is_some();
        drop((done, guard));
        let counts = rig.counts();
        assert_eq!((counts.in_use, counts.available, counts.waiting), (0, 1, 0), "{point:?}");
        rig.all_is_well().await;
        over
    })
    .await;
    assert_eq!(rig.server.accepted_count(), accepted, "all requests used the same connection");
    rig.end().await;
}

/// P12: the waiter of a connection that is being established is dropped; the connection serves the
/// next check-out.
async fn establishing_check_out<S: Subject>(subject: &S) {
    let mut rig = Rig::new(subject, single);
    at_every_point(1, async |point| {
        rig.known().await;
        let done = rig.reach_frozen(point, rig.core().check_out(&SelectionRequest::WRITE, None)).await;
        let over = done.is_some();
        drop(done);
        rig.nothing_is_held();
        rig.at_rest().await;
        assert_eq!(rig.counts().available, u32::from(point.polls > 0), "{point:?}");
        rig.all_is_well().await;
        rig.end().await;
        rig.renew(subject, single);
        over
    })
    .await;
    rig.end().await;
}

/// The check-out waits for the server, then for its connection.
async fn first_check_out<S: Subject>(subject: &S) {
    let mut rig = Rig::new(subject, single);
    rig.server.inject(FaultRule::always(Fault::Trickle { gap: Duration::ZERO }));
    at_every_point(1, async |point| {
        let done = point.reach(rig.core().check_out(&SelectionRequest::WRITE, None)).await;
        let over = done.is_some();
        drop(done);
        rig.nothing_is_held();
        rig.all_is_well().await;
        rig.end().await;
        rig.renew(subject, single);
        over
    })
    .await;
    rig.end().await;
}

async fn selection<S: Subject>(subject: &S) {
    let mut rig = Rig::new(subject, single);
    at_every_point(1, async |point| {
        rig.end().await;
        rig.server.freeze();
        rig.renew(subject, single);
        // Dropped selectors have released their slots: as many as before fit.
        for _ in 0..=S::LIMITS.waiters.min(64) {
            let once = DropPoint { polls: 1, drop_it: DropIt::AtOnce };
            assert!(once.reach(rig.core().select_server(&SelectionRequest::WRITE, None)).await.is_none());
        }
        let done = rig.reach_frozen(point, rig.core().select_server(&SelectionRequest::WRITE, None)).await;
        rig.all_is_well().await;
        done.is_some()
    })
    .await;
    rig.end().await;
}

/// A dropped future does not keep its task's waker: the waker is dropped at once, or at the latest
/// when the future's timer would have fired.
async fn dropped_futures_keep_no_waker<S: Subject>(subject: &S) {
    let unlimited = |shape: &mut Shape| {
        single(shape);
        // Without the timeout, no check ends during the test and wakes the selector.
        shape.connect_timeout = None;
    };
    // Only the timer of the dropped selector ends soon: the selections of the other parts must succeed,
    // also on a machine that stands still for longer.
    let soon = |shape: &mut Shape| {
        unlimited(shape);
        shape.server_selection_timeout = Duration::from_millis(100);
    };
    let mut rig = Rig::new(subject, soon);
    rig.end().await;
    rig.server.freeze();
    rig.renew(subject, soon);
    let bell = Arc::new(Bell::default());
    // A task that takes a waker to wake its waiter may have it for a moment after the waiter was dropped.
    let is_dropped = async |whose: &str| eventually(whose, || Arc::strong_count(&bell) == 1).await;
    // A waiter for the server.
    poll_and_drop(&bell, rig.core().select_server(&SelectionRequest::WRITE, None));
    is_dropped("the selector's waker is dropped").await;
    rig.server.thaw();
    rig.end().await;
    rig.renew(subject, unlimited);
    rig.known().await;
    // Waiters for a connection that is established, for a connection in use, for a reply, and for
    // the pool to be filled. The server is frozen while the first one is polled: otherwise the
    // connection could be established before.
    rig.server.freeze();
    poll_and_drop(&bell, rig.core().check_out(&SelectionRequest::WRITE, None));
    is_dropped("the waker of the waiter for a connection that is established is dropped").await;
    rig.server.thaw();
    rig.at_rest().await;
    let mut guard = rig.check_out().await;
    poll_and_drop(&bell, rig.core().check_out(&SelectionRequest::WRITE, None));
    is_dropped("the waker of the waiter for a connection in use is dropped").await;
    rig.server.freeze();
    poll_and_drop(&bell, ping_by(&mut guard));
    drop(guard);
    is_dropped("the waker of the reply's waiter is dropped").await;
    poll_and_drop(&bell, rig.core().warm_up(&SelectionRequest::WRITE, Some(1), None));
    is_dropped("the waker of the warm-up is dropped").await;
    rig.server.thaw();
    rig.all_is_well().await;
    rig.end().await;
}

/// Polls a future once; it must be pending.
fn poll_and_drop<T, E: Debug>(bell: &Arc<Bell>, future: impl Future<Output = Result<T, E>>) {
    let waker = Waker::from(Arc::clone(bell));
    if let Poll::Ready(result) = pin!(future).poll(&mut Context::from_waker(&waker)) {
        panic!("the future has ended; its error: {:?}", result.err());
    }
}

/// The pool creates no further connections after the future that waits for warm-up is dropped.
async fn warming_up<S: Subject>(subject: &S) {
    let most = Shape::of(([127, 0, 0, 1], 1).into()).max_pool_size.min(S::LIMITS.connections);
    let mut rig = Rig::new(subject, |_| ());
    at_every_point(1, async |point| {
        let over = point.reach(rig.core().warm_up(&SelectionRequest::WRITE, Some(most), None)).await.is_some();
        rig.nothing_is_held();
        // Connections that are being established are completed.
        rig.at_rest().await;
        assert!(rig.counts().available <= most);
        rig.all_is_well().await;
        rig.core().warm_up(&SelectionRequest::WRITE, Some(most), None).await.expect("a waiter slot is free");
        rig.at_rest().await;
        assert_eq!(rig.counts().available, most);
        rig.end().await;
        rig.renew(subject, |_| ());
        over
    })
    .await;
    rig.end().await;
}

/// The operation is dropped during selection, check-out, establishing, sending and receiving.
async fn operation<S: Subject>(subject: &S) {
    let mut rig = Rig::new(subject, single);
    at_every_point(1, async |point| {
        let done = point.reach(find(rig.core(), "one")).await;
        rig.nothing_is_held();
        rig.all_is_well().await;
        rig.end().await;
        rig.renew(subject, single);
        done.map(|found| assert_eq!(found.expect("it succeeds"), "one")).is_some()
    })
    .await;
    rig.end().await;
}

/// The first attempt fails because its connection is cut while it is established. The second
/// attempt is dropped at each poll too.
async fn second_attempt<S: Subject>(subject: &S) {
    let mut rig = Rig::new(subject, single);
    at_every_point(2, async |point| {
        rig.known().await;
        rig.server.inject(FaultRule::once(Fault::CutStream { after_bytes: 20, by: Cut::Fin }));
        let done = point.reach(find(rig.core(), "one")).await;
        rig.nothing_is_held();
        rig.server.clear_faults();
        rig.all_is_well().await;
        rig.end().await;
        rig.renew(subject, single);
        done.map(|found| assert_eq!(found.expect("it succeeds"), "one")).is_some()
    })
    .await;
    rig.end().await;
}

/// A guard is used again after its caller cancelled a wait for a reply. The result is an error,
/// neither a panic nor the old reply.
async fn used_guard<S: Subject>(subject: &S) {
    let rig = Rig::new(subject, single);
    at_every_point(0, async |point| {
        let mut guard = rig.check_out().await;
        if point.reach(find_by(&mut guard, "one")).await.is_some() {
            return true;
        }
        if point.polls > 0 {
            assert_eq!(refused(find_by(&mut guard, "other").await), OperationError::Broken(Cause::Cancelled));
            assert_eq!(refused(ping_by(&mut guard).await), OperationError::Broken(Cause::Cancelled));
        } else {
            ping_by(&mut guard).await.expect("nothing was sent");
        }
        drop(guard);
        rig.all_is_well().await;
        false
    })
    .await;
    rig.end().await;
}

/// Time between two bytes of a reply; each byte wakes the task that waits for the reply.
const GAP: Duration = Duration::from_millis(1);

/// A command over a checked-out connection is dropped, and then its guard.
///
/// - `gap`: the time between two bytes of the reply. The reply must be short, because the number of
///   bytes of all rounds grows with the square of its length.
async fn command<S: Subject>(subject: &S, drain_timeout: Duration, gap: Option<Duration>) {
    let rig = Rig::new(subject, |shape| {
        single(shape);
        shape.drain_timeout = drain_timeout;
    });
    rig.all_is_well().await;
    at_every_point(if gap.is_some() { 5 } else { 0 }, async |point| {
        let accepted = rig.server.accepted_count();
        if let Some(gap) = gap {
            rig.server.inject(FaultRule::always(Fault::Trickle { gap }).on_command("ping"));
        }
        let mut guard = rig.check_out().await;
        let done = point.reach(ping_by(&mut guard)).await;
        drop(guard);
        rig.nothing_is_held();
        rig.server.clear_faults();
        rig.all_is_well().await;
        let kept = done.is_some() || point.polls == 0 || (S::LIMITS.late_replies && !drain_timeout.is_zero());
        assert_eq!(rig.server.accepted_count(), accepted + u64::from(!kept), "{point:?}");
        done.map(|pinged| pinged.expect("it succeeds")).is_some()
    })
    .await;
    rig.end().await;
}

/// A request and a reply that are too large for a single write or read of the socket.
async fn large_command<S: Subject>(subject: &S, drain_timeout: Duration) {
    let bytes = S::LIMITS.message_bytes / 4 * 3;
    let rig = Rig::of(subject, filled_server(bytes.min(1 << 20)), |shape| {
        single(shape);
        shape.drain_timeout = drain_timeout;
    });
    rig.all_is_well().await;
    let more = vec![0; bytes.min(6 << 20)];
    at_every_point(1, async |point| {
        let mut guard = rig.check_out().await;
        // The server resumes reading when the socket takes no more bytes.
        let done = rig.reach_frozen(point, find_at_length(&mut guard, "large", &more)).await;
        drop(guard);
        rig.nothing_is_held();
        rig.all_is_well().await;
        done.map(|found| assert_eq!(found.expect("it succeeds"), "large")).is_some()
    })
    .await;
    rig.end().await;
}
