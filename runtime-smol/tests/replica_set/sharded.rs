//! Routers of a sharded cluster.

use super::support::{
    Load, client, counts_agree, eventually, options, ping, ping_with, refused, run, sent, server_type,
};
use core::time::Duration;
use poolhouse_smol::poolhouse_core::ServerType;
use poolhouse_smol::{Client, CommandOptions, Error, ReadMode, ReadPreference};
use poolhouse_tests::fake::mongoses::FakeMongoses;
use poolhouse_tests::fake::{FailPoint, FailPointMode};

async fn all_known(client: &Client, routers: &FakeMongoses) {
    eventually("all routers are known", || {
        routers.servers().iter().all(|router| server_type(client, router) == ServerType::Mongos)
    })
    .await;
}

async fn cluster(count: usize) -> (FakeMongoses, Client) {
    let routers = FakeMongoses::start(count).expect("they start");
    let mut options = options(&routers.uri());
    options.local_threshold = Duration::from_secs(5);
    // Without a time limit, there is one retry.
    options.timeout = None;
    let client = client(options);
    all_known(&client, &routers).await;
    (routers, client)
}

fn pings(routers: &FakeMongoses) -> Vec<u64> {
    routers.servers().iter().map(|router| router.count_of("ping")).collect()
}

/// All routers are monitored and used.
#[test]
#[doc(alias = "SDAM-03")]
fn operations_use_all_routers_and_send_the_preference() {
    run(async {
        let (routers, client) = cluster(3).await;
        for _ in 0..90 {
            ping(&client).await.expect("a ping");
        }
        assert!(pings(&routers).iter().all(|count| *count >= 5), "{:?}", pings(&routers));
        let nearest = CommandOptions::new().read_preference(ReadPreference::of(ReadMode::Nearest));
        client.run_command_with("db", bson::doc! { "find": "c" }, nearest).await.expect("a read");
        let found: Vec<_> = routers.servers().iter().flat_map(|router| sent(router, "find")).collect();
        let [find] = &found[..] else { panic!("one find: {found:?}") };
        let body = find.body.as_ref().expect("small");
        assert_eq!(body.get_document("$readPreference").expect("it was told"), &bson::doc! { "mode": "nearest" });
        client.close().await;
    });
}

/// The router that failed is deprioritized: the second attempt always uses another one.
#[test]
fn second_attempt_goes_to_another_router() {
    run(async {
        let (routers, client) = cluster(2).await;
        for round in 0..20 {
            let before = pings(&routers);
            for router in routers.servers() {
                // HostUnreachable of a server behind the router: it does not change the router's
                // own description.
                router.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["ping"]).error(6));
            }
            let error = refused(ping_with(&client, CommandOptions::new().idempotent(true)).await);
            assert!(matches!(&error, Error::Command(error) if error.code == 6), "{error:?}");
            let after = pings(&routers);
            assert_eq!([after[0] - before[0], after[1] - before[1]], [1, 1], "round {round}");
            all_known(&client, &routers).await;
        }
        client.close().await;
    });
}

/// Also without overload retargeting. Routers are equivalent, so the overloaded one is avoided;
/// without that option only members of a set are not avoided.
#[test]
fn an_overload_is_retried_on_another_router() {
    run(async {
        let (routers, client) = cluster(2).await;
        let labels = ["SystemOverloadedError", "RetryableError"];
        for round in 0..20 {
            let before = pings(&routers);
            routers
                .server(0)
                .set_fail_point(FailPoint::new(FailPointMode::AlwaysOn, &["ping"]).error(462).labels(&labels));
            ping(&client).await.expect("the other router replies");
            let after = pings(&routers);
            assert!(after[0] - before[0] <= 1, "round {round}: the overloaded router was asked again");
        }
        client.close().await;
    });
}

/// With a single router, the second attempt uses it again.
#[test]
fn second_attempt_goes_to_the_only_router() {
    run(async {
        let (routers, client) = cluster(1).await;
        routers.server(0).set_fail_point(FailPoint::new(FailPointMode::Times(1), &["ping"]).error(6));
        ping_with(&client, CommandOptions::new().idempotent(true)).await.expect("the second attempt succeeds");
        assert_eq!(pings(&routers), [2]);
        client.close().await;
    });
}

#[test]
fn killed_router_under_load_fails_no_idempotent_operation() {
    run(async {
        let (routers, client) = cluster(3).await;
        let load = Load::start(&client, 32);
        load.more_successes(200).await;
        for router in routers.servers() {
            router.kill().expect("it dies");
            load.more_successes(200).await;
            router.restart().expect("it starts");
            all_known(&client, &routers).await;
            load.turn_over().await;
        }
        let (succeeded, errors) = load.end().await;
        assert_eq!(errors, Vec::<String>::new(), "{succeeded} succeeded");
        counts_agree(&client, routers.servers(), 2).await;
        client.close().await;
    });
}
