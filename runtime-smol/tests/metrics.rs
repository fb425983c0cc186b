//! The metrics of a client, as a Prometheus recorder receives them.
#![cfg(feature = "metrics")]
#![forbid(unsafe_code)]

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use poolhouse_smol::{Client, ClientOptions, Error};
use poolhouse_tests::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions};
use poolhouse_tests::fake::{FailPoint, FailPointMode, FakeOptions, FakeServer};
use poolhouse_tests::patience::eventually_showing;

/// The value of the first series whose name and labels begin so.
fn value_of(rendered: &PrometheusHandle, series: &str) -> f64 {
    let text = rendered.render();
    let line = text.lines().find(|line| line.starts_with(series)).unwrap_or_else(|| panic!("no {series} in {text}"));
    line.rsplit(' ').next().expect("a part").parse().expect("a number")
}

#[test]
fn client_records_metrics_with_the_names_of_opentelemetry() {
    let server = FakeServer::start(FakeOptions::default()).unwrap();
    let recorder = PrometheusBuilder::new().build_recorder();
    let rendered = recorder.handle();
    let mut options = ClientOptions::parse(&server.uri()).unwrap();
    options.pool.max_pool_size = 7;
    // The pools of seeds are created together with the client, by this thread.
    let client = metrics::with_local_recorder(&recorder, || Client::with_options(options)).unwrap();
    let name = format!("db_client_connection_pool_name=\"{}\"", server.address());
    let value = |series: &str| value_of(&rendered, series);
    let count =
        |state: &str| value(&format!("db_client_connection_count{{{name},db_client_connection_state=\"{state}\"}}"));
    let of = |metric: &str| value(&format!("db_client_connection_{metric}{{{name}}}"));
    smol::block_on(async {
        let seen = client
            .with_connection(async |connection| {
                connection.run_command("admin", bson::doc! { "ping": 1 }).await.unwrap();
                Ok::<_, Error>((count("idle"), count("used")))
            })
            .await
            .unwrap();
        assert_eq!(seen, (0.0, 1.0));
        assert_eq!((count("idle"), count("used")), (1.0, 0.0));
        assert_eq!((of("max"), of("idle_max"), of("idle_min"), of("pending_requests")), (7.0, 7.0, 0.0, 0.0));
        assert_eq!(of("timeouts"), 0.0);
        for histogram in ["create_time", "wait_time", "use_time"] {
            assert_eq!(of(&format!("{histogram}_count")), 1.0, "{histogram}");
        }
        client.close().await;
        assert_eq!((count("idle"), count("used"), of("max")), (0.0, 0.0, 0.0));
    });
}

/// The recorder is that of the thread that creates the client; the monitors run on others.
#[test]
fn client_of_a_replica_set_records_elections_waits_retries_and_servers_that_are_down() {
    let set = FakeReplicaSet::start(FakeReplicaSetOptions::of(3).by_hand()).unwrap();
    let recorder = PrometheusBuilder::new().build_recorder();
    let rendered = recorder.handle();
    let uri = format!("{}&heartbeatFrequencyMS=500", set.uri());
    let options = ClientOptions::parse(&uri).unwrap();
    let client = metrics::with_local_recorder(&recorder, || Client::with_options(options)).unwrap();
    let of_client = |metric: &str| value_of(&rendered, &format!("poolhouse_{metric}{{db_system_name=\"mongodb\"}}"));
    let of = |metric: &str, member: usize| {
        let name = format!("db_client_connection_pool_name=\"{}\"", set.address(member));
        value_of(&rendered, &format!("poolhouse_{metric}{{{name}}}"))
    };
    let all = || rendered.render();
    smol::block_on(async {
        client.run_command("db", bson::doc! { "insert": "c", "documents": [{ "x": 1 }] }).await.unwrap();
        eventually_showing("heartbeats", || (0..3).all(|member| of("heartbeat_duration_count", member) >= 1.0), all)
            .await;
        assert_eq!((of_client("primary_changes"), of_client("operation_retries")), (0.0, 0.0), "the first one");
        assert_eq!(of_client("operation_waiting"), 0.0);
        assert!((0..3).all(|member| (of("heartbeat_failures", member), of("server_down", member)) == (0.0, 0.0)));

        let old = set.primary().expect("a set starts with a primary");
        set.server(old).set_fail_point(FailPoint::new(FailPointMode::Times(1), &["find"]).error(134));
        client.run_command("db", bson::doc! { "find": "c" }).await.unwrap();
        assert_eq!(of_client("operation_retries"), 1.0);

        set.kill(old).unwrap();
        eventually_showing("server down", || of("server_down", old) == 1.0, all).await;
        assert!(of("heartbeat_failures", old) >= 1.0);
        let write = client.run_command("db", bson::doc! { "insert": "c", "documents": [{ "x": 2 }] });
        let elect = async {
            eventually_showing("an operation that waits", || of_client("operation_waiting") == 1.0, all).await;
            set.settle();
        };
        let (written, ()) = smol::future::zip(write, elect).await;
        written.unwrap();
        assert_eq!(of_client("operation_waiting"), 0.0);
        assert_eq!(of_client("primary_changes"), 1.0);
        set.restart(old).unwrap();
        eventually_showing("server up", || of("server_down", old) == 0.0, all).await;
        client.close().await;
    });
}
