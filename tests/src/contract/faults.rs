//! Servers that crash or stop responding, and connections that are cut after each of their bytes.
//! An operation fails once with the cause, or is retried where that is allowed; the pool is
//! consistent afterwards.

use super::rig::{Rig, at_rest, filled_server, find, find_again, find_by, ping_by, pool};
use super::{Client, Shape, Subject, run_case};
use crate::fake::{Cut, FakeServer, Fault, FaultKind, FaultRule};
use crate::patience::{eventually, refused};
use crate::suite::Suite;
use core::time::Duration;
use poolhouse_core::Cause;
use poolhouse_core::pool::CheckOutError;
use poolhouse_driver::{BaseRuntime as _, ExchangeError, OperationError, SelectionRequest};

pub(super) fn add<S: Subject>(suite: Suite) -> Suite {
    let suite = suite
        .case("faults::server_killed_in_the_middle_of_a_reply", || run_case::<S>(killed))
        .case("faults::server_that_stands_still", || run_case::<S>(frozen))
        .case("faults::server_that_answers_byte_by_byte", || run_case::<S>(trickling));
    [("ended", Cut::Fin), ("reset", Cut::Rst)].into_iter().fold(suite, |suite, (name, by)| {
        suite
            .case(format!("faults::connection_{name}_at_each_byte_of_its_handshake"), move || {
                run_case::<S>(async |subject: &S| cut_handshake(subject, by).await);
            })
            .case(format!("faults::connection_{name}_at_each_byte_of_a_reply"), move || {
                run_case::<S>(async |subject: &S| cut_reply(subject, by).await);
            })
    })
}

fn single(shape: &mut Shape) {
    shape.max_pool_size = 1;
}

async fn killed<S: Subject>(subject: &S) {
    let rig = Rig::new(subject, single);
    rig.all_is_well().await;
    let mut guard = rig.check_out().await;
    rig.server.inject(FaultRule::always(Fault::Trickle { gap: Duration::from_secs(1) }).on_command("find"));
    {
        let mut finding = core::pin::pin!(find_by(&mut guard, "one"));
        assert_eq!(futures_lite::future::poll_once(finding.as_mut()).await, None);
        eventually("it answers", || rig.server.look(|view| view.fault_count(FaultKind::Trickle)) > 0).await;
        rig.server.kill().expect("it is killed");
        assert_eq!(
            refused(finding.await),
            OperationError::Exchange(ExchangeError::Network(poolhouse_core::Reason::NONE))
        );
    }
    assert_eq!(refused(ping_by(&mut guard).await), OperationError::Broken(Cause::Network));
    drop(guard);
    rig.server.clear_faults();
    assert_eq!(rig.counts().total(), 0);
    eventually("no client is connected", || rig.server.open_count() == 0).await;
    rig.server.restart().expect("it starts");
    subject.open_way_to(rig.server.address());
    assert_eq!(find(rig.core(), "other").await.expect("the next operation succeeds"), "other");
    rig.at_rest().await;
    assert!(rig.pool().generation > 0, "the pool was cleared");
    rig.end().await;
}

/// An operation ends at its deadline, and so does an operation that waits for its connection to be
/// established.
async fn frozen<S: Subject>(subject: &S) {
    const SOON: Duration = Duration::from_millis(500);
    let rig = Rig::new(subject, |shape| {
        single(shape);
        // Far more than establishing a connection needs.
        shape.connect_timeout = Some(SOON * 8);
    });
    rig.known().await;
    rig.server.freeze();
    let error = refused(rig.core().check_out(&SelectionRequest::WRITE, None).await);
    let timed_out =
        matches!(error.check_out(), Some(CheckOutError::EstablishFailed { cause: Cause::NetworkTimeout, .. }));
    assert!(timed_out, "{error:?}");
    rig.server.thaw();
    rig.all_is_well().await;
    let mut guard = rig.check_out().await;
    rig.server.freeze();
    let begun = rig.core().runtime().now();
    guard.set_deadline(Some(begun.saturating_add(SOON)));
    assert_eq!(refused(find_by(&mut guard, "one").await), OperationError::Timeout);
    assert!(rig.core().runtime().now() >= begun.saturating_add(SOON), "it ended before its deadline");
    assert_eq!(refused(find_by(&mut guard, "one").await), OperationError::Broken(Cause::NetworkTimeout));
    drop(guard);
    assert_eq!(rig.counts().total(), 0);
    rig.server.thaw();
    rig.all_is_well().await;
    rig.end().await;
}

async fn trickling<S: Subject>(subject: &S) {
    let rig = Rig::new(subject, |_| ());
    rig.server.inject(FaultRule::always(Fault::Trickle { gap: Duration::ZERO }));
    rig.core().warm_up(&SelectionRequest::WRITE, Some(S::LIMITS.connections.min(3)), None).await.expect("connections");
    for name in ["one", "other", "one"] {
        assert_eq!(find(rig.core(), name).await.expect("it succeeds"), name);
    }
    rig.all_is_well().await;
    rig.end().await;
}

/// The error states that the operation was not executed and that the server may be overloaded: the
/// pool is not cleared, and an operation gets a second attempt.
///
/// Source: SDAM, "Network error when reading or writing" (CMAP-67).
async fn cut_handshake<S: Subject>(subject: &S, by: Cut) {
    let rig = Rig::new(subject, single);
    rig.known().await;
    let cuts = || rig.server.look(|view| view.fault_count(FaultKind::CutStream));
    // When a connection is cut after its last handshake byte, it may or may not complete its
    // handshake: a race.
    let length = handshake_length(&rig).await;
    assert!(length > 100, "a handshake of {length} bytes");
    for after_bytes in 0..length {
        // Applies to the next connection only: the monitor already has its own.
        let next_cut = || {
            let next = rig.server.look(|view| view.accepted_count()) + 1;
            FaultRule::once(Fault::CutStream { after_bytes, by }).on_connection(next)
        };
        let before = cuts();
        rig.server.inject(next_cut());
        let error = refused(rig.core().check_out(&SelectionRequest::WRITE, None).await.map(drop));
        let expected = CheckOutError::EstablishFailed { cause: Cause::Network, overloaded: true };
        assert_eq!(error.check_out(), Some(&expected), "after {after_bytes} bytes");
        assert_eq!(rig.counts().total(), 0, "after {after_bytes} bytes");
        rig.server.inject(next_cut());
        let found = find(rig.core(), "one").await;
        assert_eq!(found.as_deref(), Ok("one"), "it is tried once more, after {after_bytes} bytes");
        assert_eq!(cuts(), before + 2);
        rig.all_is_well().await;
        empty(&rig).await;
    }
    rig.all_is_well().await;
    rig.end().await;
}

/// The number of bytes that the server sends until a connection is established. The pool is empty
/// afterwards.
async fn handshake_length<S: Subject>(rig: &Rig<S>) -> u64 {
    rig.core().warm_up(&SelectionRequest::WRITE, Some(1), None).await.expect("a connection");
    let sent = || rig.server.look(|view| view.open().last().map_or(0, |newest| newest.sent_bytes));
    rig.at_rest().await;
    eventually("the server has counted its reply", || sent() > 0).await;
    let length = sent();
    empty(rig).await;
    length
}

/// Closes the connections of the pool.
async fn empty<S: Subject>(rig: &Rig<S>) {
    while rig.counts().total() > 0 {
        let mut guard = rig.check_out().await;
        let _ = futures_lite::future::poll_once(find_by(&mut guard, "one")).await;
    }
    rig.at_rest().await;
}

/// An operation that may have been executed is retried only if it is idempotent. The pool is
/// cleared, and the server is checked before the next operation. That check is half a second later,
/// so a batch of clients waits for it concurrently.
async fn cut_reply<S: Subject>(subject: &S, by: Cut) {
    let server = filled_server(0);
    subject.open_way_to(server.address());
    let mut shape = Shape::of(server.address());
    single(&mut shape);
    // Sockets of the monitor and of the pool, and the timers of both.
    let batch = (S::LIMITS.open / 6).clamp(1, 100);
    let length = reply_length(subject, &shape).await;
    let truncated = |bytes| FaultRule::once(Fault::TruncatedFrame { bytes, by }).on_command("find");
    let places: Vec<usize> = (0..length).collect();
    for places in places.chunks(batch) {
        let mut clients = Vec::new();
        for bytes in places {
            let client = subject.client(&shape);
            fails_once::<S>(&server, &client, truncated(*bytes)).await;
            clients.push(client);
        }
        for client in &clients {
            assert_eq!(find(client.core(), "other").await.expect("the next operation succeeds"), "other");
        }
        eventually("all connections are open", || server.open_count() == 2 * clients.len()).await;
        for client in &clients {
            client.core().close();
        }
        eventually("the server has no connection", || server.open_count() == 0).await;
    }
    // An operation that may be retried.
    let client = subject.client(&shape);
    for bytes in [0, length / 2, length - 1] {
        server.inject(truncated(bytes));
        assert_eq!(find_again(client.core(), "one").await.expect("it is tried once more"), "one");
        at_rest(&server, client.core(), 1).await;
    }
    client.core().close();
    eventually("the server has no connection", || server.open_count() == 0).await;
}

/// The length in bytes of the reply that will be cut.
async fn reply_length<S: Subject>(subject: &S, shape: &Shape) -> usize {
    // The header of a message, its flags, and the kind byte of its only section.
    const BEFORE_BODY: usize = 16 + 4 + 1;
    let client = subject.client(shape);
    let mut guard = client.core().check_out(&SelectionRequest::WRITE, None).await.expect("a connection");
    find_by(&mut guard, "one").await.expect("it succeeds");
    let length = BEFORE_BODY + guard.reply().expect("a reply").as_bytes().len();
    drop(guard);
    client.core().close();
    length
}

/// Runs the first operation of a client, which fails by this fault.
async fn fails_once<S: Subject>(server: &FakeServer, client: &S::Client, fault: FaultRule) {
    let core = client.core();
    let mut guard = core.check_out(&SelectionRequest::WRITE, None).await.expect("a connection");
    let finds = server.count_of("find");
    server.inject(fault.clone());
    assert_eq!(
        refused(find_by(&mut guard, "one").await),
        OperationError::Exchange(ExchangeError::Network(poolhouse_core::Reason::NONE)),
        "{fault:?}"
    );
    assert_eq!(refused(ping_by(&mut guard).await), OperationError::Broken(Cause::Network));
    drop(guard);
    assert_eq!(server.count_of("find"), finds + 1, "{fault:?}");
    let pool = pool(core);
    assert_eq!((pool.counts.total(), pool.counts.waiting, pool.generation), (0, 0, 1), "{fault:?}");
}
