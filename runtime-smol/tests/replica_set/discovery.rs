//! Discovery of a set, and wrong seeds or names.

use super::support::{client, counts_agree, eventually, insert, known, options, ping, refused, sent, set, still_set};
use core::time::Duration;
use poolhouse_smol::poolhouse_core::ServerType;
use poolhouse_smol::poolhouse_driver::OperationError;
use poolhouse_smol::{CommandOptions, Error, ReadMode, ReadPreference};
use poolhouse_tests::fake::{FakeOptions, FakeServer};

/// One seed suffices, even a secondary.
#[test]
#[doc(alias = "SDAM-02")]
fn set_is_discovered_from_one_seed_that_is_a_secondary() {
    run_set(|set, secondary| async move {
        let client = client(options(&set.uri_of(&[secondary])));
        insert(&client, CommandOptions::new()).await.expect("an insert");
        known(&client, &set).await;
        client.close().await;
    });
}

/// Also without `replicaSet` in the string.
#[test]
#[doc(alias = "SDAM-02")]
fn set_is_discovered_without_its_name() {
    run_set(|set, secondary| async move {
        let client = client(options(&format!("mongodb://{}", set.address(secondary))));
        insert(&client, CommandOptions::new()).await.expect("an insert");
        known(&client, &set).await;
        client.close().await;
    });
}

fn run_set<F: Future<Output = ()>>(test: impl FnOnce(poolhouse_tests::fake::replica_set::FakeReplicaSet, usize) -> F) {
    super::support::run(async {
        let set = set();
        let primary = set.primary().expect("a primary");
        test(set, (primary + 1) % 3).await;
    });
}

#[test]
fn commands_are_sent_to_the_primary_only() {
    super::support::run(async {
        let set = still_set();
        let primary = set.primary().expect("a primary");
        let client = client(options(&set.uri()));
        for _ in 0..20 {
            ping(&client).await.expect("a ping");
        }
        for member in 0..3 {
            let expected = if member == primary { 20 } else { 0 };
            let pings = sent(&set.server(member), "ping");
            assert_eq!(pings.len(), expected, "member {member}");
            assert!(pings.iter().all(|ping| !ping.body.as_ref().expect("small").contains_key("$readPreference")));
        }
        client.close().await;
        eventually("no connection is left", || (0..3).all(|member| set.server(member).open_count() == 0)).await;
    });
}

/// A member of another set is not a member of this one.
#[test]
#[doc(alias = "SDAM-46")]
fn set_of_another_name_is_never_selected_and_the_error_shows_it() {
    super::support::run(async {
        let set = still_set();
        let mut options = options(&set.uri());
        options.replica_set = Some("other".to_owned());
        options.server_selection_timeout = Duration::from_millis(200);
        let client = client(options);
        let error = refused(ping(&client).await);
        assert!(matches!(error, Error::Operation(OperationError::ServerSelection(_), _)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("ReplicaSetNoPrimary") && text.contains("other"), "{text}");
        assert!((0..3).all(|member| sent(&set.server(member), "ping").is_empty()));
        eventually("the members are removed", || client.servers().is_empty()).await;
        eventually("no connection is left", || (0..3).all(|member| set.server(member).open_count() == 0)).await;
        client.close().await;
    });
}

/// A direct connection checks the name, and keeps the server.
#[test]
#[doc(alias = "SDAM-34")]
fn direct_connection_to_a_member_of_another_set_fails_selection() {
    super::support::run(async {
        let set = still_set();
        let mut options = options(&set.server(0).uri());
        options.replica_set = Some("other".to_owned());
        options.server_selection_timeout = Duration::from_millis(200);
        let client = client(options);
        let text = refused(ping(&client).await).to_string();
        assert!(text.contains("Single") && text.contains(&set.address(0).to_string()), "{text}");
        assert_eq!(client.servers().len(), 1);
        client.close().await;
    });
}

/// The text of a selection error names each server with its type and error.
#[test]
#[doc(alias = "SDAM-22")]
fn selection_error_shows_the_topology() {
    super::support::run(async {
        let set = still_set();
        let primary = set.primary().expect("a primary");
        let mut options = options(&set.uri());
        options.server_selection_timeout = Duration::from_millis(300);
        let client = client(options);
        known(&client, &set).await;
        set.kill(primary).expect("it dies");
        eventually("the primary is gone", || {
            super::support::server_type(&client, &set.server(primary)) == ServerType::Unknown
        })
        .await;
        let error = refused(ping(&client).await);
        assert!(error.is_timeout());
        let text = error.to_string();
        assert!(text.contains("ReplicaSetNoPrimary rs0"), "{text}");
        for member in 0..3 {
            let address = set.address(member).to_string();
            let shown = format!("{address}: {}", if member == primary { "Unknown (" } else { "RSSecondary" });
            assert!(text.contains(&shown), "{shown} in {text}");
        }
        client.close().await;
    });
}

/// A direct connection reads from a secondary, with a read preference that permits it, and
/// discovers no other members.
#[test]
fn direct_connection_to_a_secondary_may_read_there() {
    super::support::run(async {
        let set = still_set();
        let secondary = (set.primary().expect("a primary") + 1) % 3;
        let mut options = options(&set.server(secondary).uri());
        // The refused write is retried once, not as often as the limit permits.
        options.timeout = None;
        let client = client(options);
        let find = || bson::doc! { "find": "c" };
        client.run_command("db", find()).await.expect("a read");
        let nearest = CommandOptions::new().read_preference(ReadPreference::of(ReadMode::Nearest));
        client.run_command_with("db", find(), nearest).await.expect("a read");
        let modes: Vec<String> = sent(&set.server(secondary), "find")
            .iter()
            .map(|find| {
                let told = find.body.as_ref().expect("small").get_document("$readPreference").expect("it was told");
                told.get_str("mode").expect("a mode").to_owned()
            })
            .collect();
        assert_eq!(modes, ["primaryPreferred", "nearest"]);
        // A write is sent to the secondary, which refuses it.
        let Error::Command(error) = refused(insert(&client, CommandOptions::new()).await) else {
            panic!("the server refuses")
        };
        assert_eq!(error.code, 10107);
        assert_eq!(client.servers().len(), 1);
        assert!((0..3).filter(|&member| member != secondary).all(|member| set.server(member).accepted_count() == 0));
        counts_agree(&client, &[set.server(secondary)], 2).await;
        client.close().await;
    });
}

/// Commands to a standalone contain no read preference, and every preference selects it.
#[test]
fn standalone_receives_no_read_preference() {
    super::support::run(async {
        let server = FakeServer::start(FakeOptions::default()).expect("it starts");
        for uri in [server.uri(), format!("mongodb://{}", server.address())] {
            let client = client(options(&uri));
            for mode in ReadMode::ALL {
                let preferring = CommandOptions::new().read_preference(ReadPreference::of(mode));
                super::support::ping_with(&client, preferring).await.expect("a ping");
            }
            client.close().await;
        }
        let pings = sent(&server, "ping");
        assert_eq!(pings.len(), 10);
        assert!(pings.iter().all(|ping| !ping.body.as_ref().expect("small").contains_key("$readPreference")));
    });
}
