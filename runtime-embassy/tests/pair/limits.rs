//! Buffers are bounded, and a message that does not fit is a specific error.

use super::net::run;
use super::support::{Log, Rig, Small, document, eventually, options, refused, rig, server, small};
use core::time::Duration;
use poolhouse_embassy::poolhouse_core::pool::ClosedReason;
use poolhouse_embassy::poolhouse_core::{Cause, ServerType};
use poolhouse_embassy::{ExchangeError, OperationError, Options, Sizes};
use poolhouse_tests::fake::{Fault, FaultRule};

#[test]
fn reply_larger_than_the_receive_buffer_is_an_error_with_both_sizes() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        rig.ping().await.expect("a ping");
        rig.at_rest(&server, 1).await;
        for bytes in [4097, 5000, 100_000, 47_000_000] {
            rig.log.clear();
            server.inject(FaultRule::once(Fault::Oversized { bytes }).on_command("ping"));
            let error = refused(rig.ping().await);
            let expected = ExchangeError::ReplyTooLarge { bytes, limit: 4096 };
            assert_eq!(error, OperationError::Exchange(expected));
            assert_eq!(rig.log.closed(), [ClosedReason::Error]);
            // The next reply is intact, and nothing was cleared.
            rig.ping().await.expect("a ping");
            rig.at_rest(&server, 1).await;
            assert_eq!(rig.pool().generation, 0);
        }
        rig.end(&[&server]).await;
    });
}

#[test]
fn reply_that_fills_the_receive_buffer_is_read() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        rig.ping().await.expect("a ping");
        for bytes in [4095, 4096] {
            server.inject(FaultRule::once(Fault::Oversized { bytes }).on_command("ping"));
            rig.ping().await.expect("it fits");
        }
        assert_eq!(server.accepted_count(), 2);
        rig.end(&[&server]).await;
    });
}

/// The command was executed, and its connection stays usable.
#[test]
fn reply_larger_than_the_callers_buffer_is_an_error_and_keeps_the_connection() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        let mut small = [0; 16];
        let error = refused(rig.client.run_command("admin", |it| it.int32("ping", 1).map(drop), &mut small).await);
        assert_eq!(error, OperationError::Exchange(ExchangeError::ReplyTooLarge { bytes: 17, limit: 16 }));
        let mut enough = [0; 17];
        let reply = rig.client.run_command("admin", |it| it.int32("ping", 1).map(drop), &mut enough).await;
        assert_eq!(document(reply.expect("it fits")), bson::doc! { "ok": 1.0 });
        rig.at_rest(&server, 1).await;
        assert_eq!(server.accepted_count(), 2);
        assert_eq!(server.count_of("ping"), 2);
        rig.end(&[&server]).await;
    });
}

#[test]
fn command_larger_than_the_send_buffer_is_an_error_and_keeps_the_connection() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        rig.ping().await.expect("a ping");
        let before = server.look(|view| view.commands_count());
        let mut largest = 0;
        let mut reply = [0; 256];
        for length in 900..1100 {
            let text = "x".repeat(length);
            let outcome = rig
                .client
                .run_command("db", |writer| writer.int32("ping", 1)?.str("text", &text).map(drop), &mut reply)
                .await;
            match outcome {
                Ok(_) => largest = length,
                Err(error) => {
                    assert!(matches!(error, OperationError::Exchange(ExchangeError::Encode(_))), "{error:?}");
                }
            }
        }
        // All sizes up to the largest fit and none beyond; the rest is header, flags, the command's
        // name and the database's.
        assert_eq!(server.look(|view| view.commands_count()) - before, largest as u64 - 899);
        assert!((940..1000).contains(&largest), "{largest}");
        rig.at_rest(&server, 1).await;
        assert_eq!(server.accepted_count(), 2);
        rig.end(&[&server]).await;
    });
}

/// When its hello is too large for the monitor, the server is Unknown; it is known again when the hello fits.
#[test]
fn hello_that_does_not_fit_leaves_the_server_unknown() {
    run(async |net| {
        let server = server();
        server.update_state(|state| {
            state.fields.insert("much", "x".repeat(2048));
        });
        net.open_to(&server);
        let rig: Rig<Small> =
            rig(net, Options { server_selection_timeout: Duration::from_secs(5), timeout: None, ..options(&server) });
        let error = refused(net.skipping(Duration::from_secs(10), rig.ping()).await);
        assert!(matches!(error, OperationError::ServerSelection(_)), "{error:?}");
        assert_eq!(rig.server_type(), ServerType::Unknown);
        assert!(rig.log.heartbeat_failures().contains(&Cause::Resources), "{:?}", rig.log.heartbeat_failures());
        server.update_state(|state| {
            state.fields.remove("much");
        });
        net.skipping(Duration::from_secs(10), rig.ping()).await.expect("it is known");
        rig.at_rest(&server, 1).await;
        rig.end(&[&server]).await;
    });
}

/// A TCP window that is much smaller than the messages.
#[test]
fn small_windows_carry_large_messages() {
    type Narrow = Sizes<1, 1, 2, 8192, 4096, 64, Log>;
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let rig: Rig<Narrow> = rig(net, options(&server));
        let text = "x".repeat(3500);
        let mut reply = [0; 8192];
        for id in 0..2 {
            let insert = rig.client.run_command(
                "db",
                |writer| {
                    writer.str("insert", "some")?.array("documents", |documents| {
                        documents.document(|it| it.int32("_id", id)?.str("text", &text).map(drop)).map(drop)
                    })?;
                    Ok(())
                },
                &mut reply,
            );
            net.skipping(Duration::from_secs(60), insert).await.expect("an insert");
        }
        let find = rig.client.run_command("db", |writer| writer.str("find", "some").map(drop), &mut reply);
        let found = document(net.skipping(Duration::from_secs(60), find).await.expect("a reply"));
        let batch = found.get_document("cursor").and_then(|it| it.get_array("firstBatch")).expect("a batch");
        assert_eq!(batch.len(), 2);
        eventually("at rest", || rig.pool().counts.in_use == 0).await;
        rig.end(&[&server]).await;
    });
}
