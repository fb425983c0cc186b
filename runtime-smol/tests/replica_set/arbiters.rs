//! Servers that report to be arbiters, on which authentication is skipped.

use super::support::{client, eventually, options, run};
use core::time::Duration;
use poolhouse_smol::ServerMonitoringMode;
use poolhouse_smol::poolhouse_core::ServerType;
use poolhouse_tests::fake::{FakeOptions, FakeServer, FakeUser, Role};

/// A set of one server, with a user.
fn server() -> FakeServer {
    let users = FakeOptions::with_users(vec![FakeUser::new("ada", "pencil")]);
    let server = FakeServer::start(users).expect("the server starts");
    let address = server.address().to_string();
    server.update_state(|state| {
        state.role = Role::Primary;
        state.fields = bson::doc! { "setName": "rs", "hosts": [&address], "me": &address };
    });
    server
}

/// New connections to a known member that changes into an arbiter must still be authenticated.
#[test]
fn connection_to_a_member_that_becomes_an_arbiter_is_authenticated() {
    run(async {
        let server = server();
        let mut options = options(&format!("mongodb://ada:pencil@{}/?replicaSet=rs", server.address()));
        options.monitor.server_monitoring_mode = ServerMonitoringMode::Poll;
        options.monitor.heartbeat_frequency = Duration::from_secs(600);
        let client = client(options);
        let is_known = || client.servers().iter().any(|server| server.server_type == ServerType::RsPrimary);
        eventually("it is the primary", is_known).await;
        server.update_state(|state| state.role = Role::Arbiter);
        let connection = client.check_out().await.expect("it proves itself");
        assert_eq!(server.look(|view| view.open().flat_map(|open| view.users_on(open.id).to_vec()).count()), 1);
        drop(connection);
        client.close().await;
    });
}

/// A direct connection uses the server whatever its type.
#[test]
fn direct_connection_to_an_arbiter_is_not_authenticated() {
    run(async {
        let server = server();
        server.update_state(|state| state.role = Role::Arbiter);
        let uri = format!("mongodb://nobody:pencil@{}/?directConnection=true", server.address());
        let client = client(options(&uri));
        drop(client.check_out().await.expect("an arbiter has no users"));
        client.close().await;
    });
}
