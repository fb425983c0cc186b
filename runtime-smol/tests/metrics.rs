//! The metrics of a client, as a Prometheus recorder receives them.
#![cfg(feature = "metrics")]
#![forbid(unsafe_code)]

use metrics_exporter_prometheus::PrometheusBuilder;
use poolhouse_smol::{Client, ClientOptions, Error};
use poolhouse_tests::fake::{FakeOptions, FakeServer};

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
    let value = |series: &str| {
        let text = rendered.render();
        let line =
            text.lines().find(|line| line.starts_with(series)).unwrap_or_else(|| panic!("no {series} in {text}"));
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
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
