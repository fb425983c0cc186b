//! Commands without a reply.

use super::workers::guard;
use super::*;
use poolhouse_wire::EncodeError;
use poolhouse_wire::WireErrorKind;
use poolhouse_wire::bson::DocumentWriter;

fn insert(body: &mut DocumentWriter<'_, Page>) -> Result<(), EncodeError> {
    body.str("insert", "c")?.document("writeConcern", |concern| concern.int32("w", 0).map(drop)).map(drop)
}

fn ping(body: &mut DocumentWriter<'_, Page>) -> Result<(), EncodeError> {
    body.int32("ping", 1).map(drop)
}

#[test]
fn command_without_a_reply_ends_when_it_is_written() {
    let (bench, core, server) = open();
    let mut guard = guard(&core, &server);
    bench.mute(true);
    for _ in 0..3 {
        done(guard.send_command("db", insert)).expect("written");
        assert!(guard.is_usable());
        let reply = guard.reply().expect("what stands for it");
        assert_eq!(reply.get("ok").ok().flatten().and_then(|ok| ok.as_integer()), Some(1));
        assert_eq!(reply.iter().count(), 1);
        assert!(!guard.has_write_errors());
    }
    // The next reply is that of the next command.
    bench.mute(false);
    let reply = done(guard.run_command("db", ping)).expect("its reply");
    assert!(reply.get("maxWireVersion").is_ok_and(|field| field.is_some()));
    drop(guard);
    assert_eq!(counts(&server).available, 1);
}

/// A message may have been written partly, so no other may follow it.
#[test]
fn connection_is_closed_if_the_future_is_dropped_during_the_write() {
    let (bench, core, server) = open();
    let mut guard = guard(&core, &server);
    bench.stuck.store(true, Ordering::Relaxed);
    let mut sending = Box::pin(guard.send_command("db", insert));
    assert!(poll(&mut sending).is_pending());
    drop(sending);
    bench.stuck.store(false, Ordering::Relaxed);
    assert!(!guard.is_usable());
    assert_eq!(done(guard.run_command("db", ping)), Err(OperationError::Broken(Cause::Cancelled)));
    drop(guard);
    assert_eq!(counts(&server), PoolCounts::default());
}

#[test]
fn connection_is_closed_if_the_deadline_passes_during_the_write() {
    for in_time in [true, false] {
        let (bench, core, server) = open();
        let mut clock: Boxed<'_, ()> = Box::pin(core.run_server_task(&server, ServerTask::Clock));
        let mut guard = guard(&core, &server);
        assert!(poll(&mut clock).is_pending());
        let deadline = bench.now().saturating_add(Duration::from_secs(1));
        guard.set_deadline(Some(deadline));
        bench.stuck.store(true, Ordering::Relaxed);
        let mut sending = Box::pin(guard.send_command("db", insert));
        assert!(poll(&mut sending).is_pending());
        if in_time {
            bench.stuck.store(false, Ordering::Relaxed);
            assert_eq!(poll(&mut sending), Poll::Ready(Ok(())));
            drop(sending);
            drop(guard);
            assert_eq!(counts(&server).available, 1);
            continue;
        }
        bench.advance_to(deadline);
        assert!(poll(&mut clock).is_pending());
        assert_eq!(poll(&mut sending), Poll::Ready(Err(OperationError::Timeout)));
        drop(sending);
        bench.stuck.store(false, Ordering::Relaxed);
        assert!(!guard.is_usable());
        drop(guard);
        assert_eq!(counts(&server), PoolCounts::default());
    }
}

/// Nothing was written: the connection is as good as before.
#[test]
fn connection_is_kept_if_the_deadline_has_passed_before_the_write() {
    let (bench, core, server) = open();
    let mut guard = guard(&core, &server);
    let written = bench.written.load(Ordering::Relaxed);
    guard.set_deadline(Some(bench.now()));
    assert_eq!(done(guard.send_command("db", insert)), Err(OperationError::Timeout));
    assert_eq!(bench.written.load(Ordering::Relaxed), written);
    guard.set_deadline(None);
    done(guard.send_command("db", insert)).expect("written");
    drop(guard);
    assert_eq!(counts(&server).available, 1);
}

#[test]
fn reply_that_must_not_be_sent_is_no_reply_to_the_next_command() {
    let (bench, core, server) = open();
    let mut guard = guard(&core, &server);
    bench.talkative.store(true, Ordering::Relaxed);
    done(guard.send_command("db", insert)).expect("written");
    let error = done(guard.run_command("db", ping)).map(drop).expect_err("a reply to the other command");
    let OperationError::Exchange(ExchangeError::Wire(wire)) = &error else { panic!("{error:?}") };
    assert!(matches!(wire.kind(), WireErrorKind::ResponseTo { .. }), "{wire:?}");
    assert!(!error.is_retryable() && !error.is_transient());
    drop(guard);
    assert_eq!(counts(&server), PoolCounts::default());
}
