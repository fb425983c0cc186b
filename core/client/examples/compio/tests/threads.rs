//! A client whose handle is used on another thread.

use compio::runtime::Runtime;
use poolhouse_compio::Client;
use poolhouse_tests::fake::{FakeOptions, FakeServer};
use std::thread;

/// The operation fails on the other thread, and the client continues to work on its own.
#[test]
fn connection_of_another_thread_is_an_error() {
    let server = FakeServer::start(FakeOptions::default()).expect("a server");
    Runtime::new().expect("a runtime").block_on(async {
        let client = Client::new(&server.uri()).await.expect("a client");
        let ping = bson::doc! { "ping": 1 };
        client.run_command("admin", ping.clone()).await.expect("a reply");
        let (other, command) = (client.clone(), ping.clone());
        let misuse = move || Runtime::new().expect("a runtime").block_on(other.run_command("admin", command));
        let error = thread::spawn(misuse).join().expect("no panic").expect_err("it has another thread's socket");
        assert!(error.to_string().ends_with("the connection belongs to another thread"), "{error}");
        client.run_command("admin", ping).await.expect("a reply");
        client.close().await;
    });
}
