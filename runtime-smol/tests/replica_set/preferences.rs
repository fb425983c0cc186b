//! Read preferences: the selected servers, and the preferences in the commands that they receive.

use super::support::{client, known, options, ping_with, refused, run, sent, still_set};
use bson::doc;
use core::time::Duration;
use poolhouse_smol::poolhouse_driver::OperationError;
use poolhouse_smol::{CommandOptions, Error, ReadMode, ReadPreference, ReadPreferenceOptions};
use poolhouse_tests::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions, MemberOptions};
use poolhouse_tests::fake::{FakeOptions, FakeServer};

fn preferring(preference: ReadPreference<'_>) -> CommandOptions<'_> {
    CommandOptions::new().read_preference(preference)
}

fn tagged() -> FakeReplicaSet {
    let mut options = FakeReplicaSetOptions::of(0).by_hand();
    let tags = [bson::doc! { "dc": "ny" }, bson::doc! { "dc": "ny", "rack": "1" }, bson::doc! { "dc": "sf" }];
    options.members = tags.into_iter().map(|tags| MemberOptions::default().tags(tags)).collect();
    FakeReplicaSet::start(options).expect("the set starts")
}

/// The number of pings that each member has received.
fn pings(set: &FakeReplicaSet) -> Vec<u64> {
    (0..set.servers_count()).map(|member| set.server(member).count_of("ping")).collect()
}

#[test]
fn secondary_reads_use_all_secondaries_and_send_the_preference() {
    run(async {
        let set = still_set();
        let primary = set.primary().expect("a primary");
        let mut options = options(&set.uri());
        options.local_threshold = Duration::from_secs(5);
        let client = client(options);
        known(&client, &set).await;
        for _ in 0..60 {
            ping_with(&client, preferring(ReadPreference::of(ReadMode::Secondary))).await.expect("a ping");
        }
        let counts = pings(&set);
        assert_eq!(counts[primary], 0, "{counts:?}");
        assert!((0..3).filter(|&member| member != primary).all(|member| counts[member] >= 5), "{counts:?}");
        for member in (0..3).filter(|&member| member != primary) {
            for ping in sent(&set.server(member), "ping") {
                let body = ping.body.expect("small");
                let told = body.get_document("$readPreference").expect("it was told");
                assert_eq!(told, &bson::doc! { "mode": "secondary" });
            }
        }
        client.close().await;
    });
}

#[test]
fn nearest_reads_use_all_members() {
    run(async {
        let set = still_set();
        let mut options = options(&set.uri());
        options.local_threshold = Duration::from_secs(5);
        let client = client(options);
        known(&client, &set).await;
        for _ in 0..90 {
            ping_with(&client, preferring(ReadPreference::of(ReadMode::Nearest))).await.expect("a ping");
        }
        let counts = pings(&set);
        assert!(counts.iter().all(|count| *count >= 5), "{counts:?}");
        client.close().await;
    });
}

/// The first tag set that any member has decides; the server receives all of them, and the
/// staleness.
#[test]
fn tag_sets_and_staleness_select_members_and_are_sent() {
    run(async {
        let set = tagged();
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        let tag_sets: &[&[(&str, &str)]] = &[&[("dc", "tokyo")], &[("dc", "ny"), ("rack", "1")], &[]];
        let preference = ReadPreferenceOptions { mode: ReadMode::Nearest, tag_sets, max_staleness_seconds: Some(120) };
        let preference = preference.validate().expect("a right preference");
        for _ in 0..10 {
            ping_with(&client, preferring(preference)).await.expect("a ping");
        }
        assert_eq!(pings(&set), [0, 10, 0]);
        let told = sent(&set.server(1), "ping").pop().expect("a ping").body.expect("small");
        let expected = bson::doc! {
            "mode": "nearest",
            "tags": [{ "dc": "tokyo" }, { "dc": "ny", "rack": "1" }, {}],
            "maxStalenessSeconds": 120_i64,
        };
        assert_eq!(told.get_document("$readPreference").expect("it was told"), &expected);
        client.close().await;
    });
}

/// No member has the tags: the error contains them after the timeout, and no server receives a
/// command.
#[test]
fn tags_that_no_member_has_fail_selection() {
    run(async {
        let set = tagged();
        let mut options = options(&set.uri());
        options.server_selection_timeout = Duration::from_millis(200);
        let client = client(options);
        known(&client, &set).await;
        let preference = ReadPreferenceOptions {
            mode: ReadMode::Nearest,
            tag_sets: &[&[("dc", "tokyo")]],
            max_staleness_seconds: None,
        };
        let error = refused(ping_with(&client, preferring(preference.validate().expect("right"))).await);
        assert!(matches!(error, Error::Operation(OperationError::ServerSelection(_), _)), "{error:?}");
        assert_eq!(pings(&set), [0, 0, 0]);
        client.close().await;
    });
}

/// A staleness below the minimum fails at once, without waiting for any server.
#[test]
fn staleness_below_the_minimum_fails_at_once() {
    run(async {
        let set = still_set();
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        let preference =
            ReadPreferenceOptions { mode: ReadMode::Nearest, tag_sets: &[], max_staleness_seconds: Some(20) };
        let error = refused(ping_with(&client, preferring(preference.validate().expect("right"))).await);
        assert!(error.to_string().contains("maxStalenessSeconds"), "{error}");
        client.close().await;
    });
}

/// `primaryPreferred` and `secondaryPreferred` fall back when the set has no member of the kind.
#[test]
fn preferred_modes_fall_back() {
    run(async {
        let set = still_set();
        let primary = set.primary().expect("a primary");
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        ping_with(&client, preferring(ReadPreference::of(ReadMode::PrimaryPreferred))).await.expect("a ping");
        assert_eq!(pings(&set)[primary], 1);
        set.step_down();
        known(&client, &set).await;
        ping_with(&client, preferring(ReadPreference::of(ReadMode::PrimaryPreferred))).await.expect("a ping");
        assert_eq!(pings(&set).iter().sum::<u64>(), 2);
        set.elect(primary);
        for member in (0..3).filter(|&member| member != primary) {
            set.kill(member).expect("it dies");
        }
        super::support::eventually("the secondaries are gone", || {
            let secondaries = client.servers();
            let known = secondaries.iter().filter(|server| server.server_type.is_data_bearing());
            known.count() == 1
        })
        .await;
        let before = pings(&set)[primary];
        ping_with(&client, preferring(ReadPreference::of(ReadMode::SecondaryPreferred))).await.expect("a ping");
        assert_eq!(pings(&set)[primary], before + 1);
        client.close().await;
    });
}

/// The read preference of each `find` that the server received.
fn told(server: &FakeServer) -> Vec<Option<bson::Document>> {
    let finds = sent(server, "find").into_iter().map(|find| find.body.expect("small"));
    finds.map(|find| find.get_document("$readPreference").ok().cloned()).collect()
}

/// A connection that was checked out by a preference sends it with each command: a secondary
/// refuses commands without one.
#[test]
fn connection_sends_the_preference_of_its_check_out() {
    run(async {
        let set = tagged();
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        let primary = set.primary().expect("a primary");
        let (secondary, tags) = if primary == 1 { (2, ("dc", "sf")) } else { (1, ("rack", "1")) };
        let mut connection = {
            // The preference remains in use after the caller's arguments are dropped.
            let set = [tags];
            let tag_sets: [&[(&str, &str)]; 1] = [&set];
            let preference = ReadPreferenceOptions {
                mode: ReadMode::Secondary,
                tag_sets: &tag_sets,
                max_staleness_seconds: Some(120),
            };
            client.check_out_preferring(preference.validate().expect("right")).await.expect("a connection")
        };
        let server = set.server(secondary);
        assert_eq!(connection.raw().server().address(), server.address().to_string());
        connection.run_command("db", doc! { "find": "c" }).await.expect("a secondary may answer");
        let raw = bson::rawdoc! { "find": "c" };
        connection.run_raw_command("db", &raw).await.expect("a secondary may answer");
        let (name, value) = tags;
        let expected = doc! { "mode": "secondary", "tags": [{ name: value }], "maxStalenessSeconds": 120_i64 };
        assert_eq!(told(&server), [Some(expected.clone()), Some(expected)]);
        drop(connection);

        let mut connection = client.check_out().await.expect("a connection");
        connection.run_command("db", doc! { "find": "c" }).await.expect("the primary answers");
        assert_eq!(told(&set.server(primary)), [None], "it does without");
        drop(connection);
        client.close().await;
    });
}

/// On a direct connection a read preference permits any member to answer; the preference of the
/// check-out takes precedence.
#[test]
fn direct_connection_permits_any_member_to_answer() {
    run(async {
        let set = still_set();
        let secondary = set.server((set.primary().expect("a primary") + 1) % 3);
        let client = client(options(&secondary.uri()));
        let find = || doc! { "find": "c" };
        client.check_out().await.expect("a connection").run_command("db", find()).await.expect("a read");
        let read = client.with_connection(async |connection| connection.run_command("db", find()).await);
        read.await.expect("a read");
        let nearest = client.check_out_preferring(ReadPreference::of(ReadMode::Nearest)).await;
        nearest.expect("a connection").run_command("db", find()).await.expect("a read");
        let primary = client.check_out_preferring(ReadPreference::of(ReadMode::Primary)).await;
        primary.expect("a connection").run_command("db", find()).await.expect("a read");
        let mode = |mode: &str| Some(doc! { "mode": mode });
        let any = || mode("primaryPreferred");
        assert_eq!(told(&secondary), [any(), any(), mode("nearest"), any()]);
        client.close().await;
    });
}

#[test]
fn connection_to_a_standalone_sends_no_preference() {
    run(async {
        let server = FakeServer::start(FakeOptions::default()).expect("it starts");
        let client = client(options(&server.uri()));
        for mode in ReadMode::ALL {
            let connection = client.check_out_preferring(ReadPreference::of(mode)).await;
            connection.expect("a connection").run_command("db", doc! { "find": "c" }).await.expect("a read");
        }
        assert_eq!(told(&server), [None, None, None, None, None]);
        client.close().await;
    });
}
