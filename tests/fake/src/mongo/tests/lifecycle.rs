//! Starting, refusing, freezing, killing, restarting, stopping.

use core::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixStream;

use super::super::{Ended, FailPoint, FailPointMode, FaultKind};
use super::*;

fn refused(server: &FakeServer) -> bool {
    let error = BlockingClient::connect(server.address(), PATIENCE).map(|_| ());
    error.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[test]
fn only_loopback_is_served() {
    let options = FakeOptions { ip: IpAddr::V4(Ipv4Addr::UNSPECIFIED), ..FakeOptions::default() };
    assert_eq!(FakeServer::start(options).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn port_in_use_is_an_error() {
    let server = start();
    let options = FakeOptions { port: server.address().port(), ..FakeOptions::default() };
    assert_eq!(FakeServer::start(options).unwrap_err().kind(), ErrorKind::AddrInUse);
}

#[test]
fn drop_resets_connections_and_frees_the_port() {
    let server = start();
    let address = server.address();
    let mut client = connect(&server);
    client.hello("app").unwrap();
    drop(server);
    assert_eq!(client.read().unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(BlockingClient::connect(address, PATIENCE).is_err());
    let again = FakeServer::start(FakeOptions { port: address.port(), ..FakeOptions::default() }).unwrap();
    assert_eq!(again.address(), address);
}

#[test]
fn refusing_keeps_open_connections() {
    let (server, mut client) = connected();
    client.hello("app").unwrap();
    server.refuse().unwrap();
    server.refuse().unwrap();
    assert!(refused(&server));
    assert!(is_ok(&client.run("admin", ping()).unwrap()));
    server.resume().unwrap();
    assert!(is_ok(&connect(&server).run("admin", ping()).unwrap()));
    assert_eq!(server.look(|view| view.fault_count(FaultKind::Refuse)), 2);
}

#[test]
fn frozen_server_accepts_and_is_silent_until_it_thaws() {
    let server = start();
    let mut old = connect(&server);
    let first = old.hello("old").unwrap();
    let mut waiting = connect(&server);
    waiting.send(0, awaitable(&first, 3_600_000)).unwrap();
    server.wait_until(PATIENCE, |view| view.awaiting_count() == 1).unwrap();
    server.freeze();
    server.update_state(|_| {});
    let mut new = connect(&server);
    for client in [&mut old, &mut new] {
        client.send(0, ping()).unwrap();
    }
    for client in [&mut old, &mut new, &mut waiting] {
        assert!(is_silent(client));
    }
    assert_eq!(server.count_of("ping"), 0);
    server.thaw();
    for client in [&mut old, &mut new, &mut waiting] {
        assert!(is_ok(&client.read().unwrap().body));
    }
    assert_eq!(server.look(|view| view.fault_count(FaultKind::Freeze)), 1);
}

#[test]
fn killed_server_resets_all_and_refuses() {
    let server = start();
    let mut idle = connect(&server);
    let first = idle.hello("app").unwrap();
    let mut waiting = connect(&server);
    waiting.send(EXHAUST_ALLOWED, awaitable(&first, 3_600_000)).unwrap();
    server.set_fail_point(FailPoint::new(FailPointMode::AlwaysOn, &["ping"]).block(Duration::from_secs(3600)));
    let mut blocked = connect(&server);
    blocked.send(0, ping()).unwrap();
    server.wait_until(PATIENCE, |view| view.awaiting_count() == 1 && view.count_of("ping") == 1).unwrap();
    server.kill().unwrap();
    server.kill().unwrap();
    for client in [&mut idle, &mut waiting, &mut blocked] {
        assert_eq!(client.read().unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    assert!(refused(&server));
    assert!(server.resume().is_err());
    server.refuse().unwrap();
    server.look(|view| {
        assert_eq!((view.open_count(), view.awaiting_count()), (0, 0));
        assert!(view.closed().all(|info| info.ended == Some(Ended::Stopped)));
    });
}

#[test]
fn restarted_server_is_another_process_on_the_same_port() {
    let (server, mut client) = connected();
    client.run("db", doc! { "insert": "c", "documents": [{}] }).unwrap();
    server.update_state(|_| {});
    let before = client.hello("app").unwrap();
    server.set_fail_point(FailPoint::new(FailPointMode::AlwaysOn, &["ping"]).error(91));
    server.freeze();
    server.restart().unwrap();
    assert!(client.read().is_err());
    let mut client = connect(&server);
    let after = client.hello("app").unwrap();
    let process = |reply: &Document| reply.get_document("topologyVersion").unwrap().get_object_id("processId").unwrap();
    assert_ne!(process(&before), process(&after));
    assert_eq!((counter(&before), counter(&after)), (1, 0));
    assert!(is_ok(&client.run("admin", ping()).unwrap()));
    let found = client.run("db", doc! { "find": "c" }).unwrap();
    assert_eq!(found.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len(), 1);
    let awaited = client.run("admin", awaitable(&before, 3_600_000)).unwrap();
    assert_eq!(process(&awaited), process(&after));
}

#[test]
fn kill_and_restart_can_be_repeated_under_load() {
    let server = start();
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut answered = 0;
            let mut client = None;
            while server.look(|view| view.fault_count(FaultKind::Kill)) < 20 {
                let open = client.take().map_or_else(|| BlockingClient::connect(server.address(), PATIENCE), Ok);
                if let Ok(mut open) = open {
                    if open.run("admin", ping()).is_ok() {
                        answered += 1;
                        client = Some(open);
                    }
                }
            }
            answered
        });
        for _ in 0..20 {
            let seen = server.count_of("ping");
            server.wait_until(PATIENCE, |view| view.count_of("ping") > seen).unwrap();
            server.restart().unwrap();
        }
        assert!(load.join().unwrap() > 0);
    });
    server.wait_until(PATIENCE, |view| view.open_count() == 0).unwrap();
}

#[test]
fn kill_reaches_a_connection_whose_client_does_not_read() {
    let server = start();
    server.inject(super::super::Fault::Oversized { bytes: 100_000_000 });
    let mut client = connect(&server);
    client.send(0, ping()).unwrap();
    server.wait_until(PATIENCE, |view| view.fault_count(FaultKind::Oversized) == 1).unwrap();
    server.kill().unwrap();
    assert_eq!(server.open_count(), 0);
    drop(client);
}

#[test]
fn unix_socket_is_served_and_removed() {
    let path = std::env::temp_dir().join(format!("poolhouse-fake-{}.sock", std::process::id()));
    let server = FakeServer::start(FakeOptions { unix_path: Some(path.clone()), ..FakeOptions::default() }).unwrap();
    let mut client = BlockingClient::over(UnixStream::connect(&path).unwrap());
    assert!(is_ok(&client.hello("app").unwrap()));
    server.look(|view| assert_eq!(view.open().next().unwrap().peer, None));
    server.refuse().unwrap();
    assert!(UnixStream::connect(&path).is_err());
    server.resume().unwrap();
    let mut second = BlockingClient::over(UnixStream::connect(&path).unwrap());
    assert!(is_ok(&second.run("admin", ping()).unwrap()));
    server.kill().unwrap();
    assert!(client.read().is_err());
    server.restart().unwrap();
    assert!(UnixStream::connect(&path).is_ok());
    drop(server);
    assert!(!path.exists());
}

#[test]
fn connections_beyond_the_limit_are_closed() {
    let server = FakeServer::start(FakeOptions { connections_max: 2, ..FakeOptions::default() }).unwrap();
    let mut kept: Vec<BlockingClient> = (0..2).map(|_| connect(&server)).collect();
    for client in &mut kept {
        client.run("admin", ping()).unwrap();
    }
    let mut third = connect(&server);
    assert!(third.stream().read(&mut [0; 1]).is_ok_and(|count| count == 0));
    let ended = Some(Ended::TooMany);
    server.wait_until(PATIENCE, |view| view.connection(3).is_some_and(|info| info.ended == ended)).unwrap();
    drop(kept.pop());
    server.wait_until(PATIENCE, |view| view.open_count() == 1).unwrap();
    assert!(is_ok(&connect(&server).run("admin", ping()).unwrap()));
}

#[test]
fn connections_are_counted_and_the_last_closed_ones_kept() {
    let (server, mut client) = connected();
    client.hello("app").unwrap();
    client.run("admin", ping()).unwrap();
    let port = client.stream().local_addr().unwrap().port();
    drop(client);
    server.wait_until(PATIENCE, |view| view.open_count() == 0).unwrap();
    server.look(|view| {
        let info = view.connection(1).unwrap();
        assert_eq!(info.ended, Some(Ended::ByClient));
        assert_eq!((info.commands_count, info.replies_count, info.hellos_count), (2, 2, 1));
        assert_eq!(info.app_name.as_deref(), Some("app"));
        assert_eq!(info.peer.unwrap().port(), port);
        assert_eq!((view.accepted_count(), view.commands_count(), view.replies_count()), (1, 2, 2));
    });
}

#[test]
fn wait_for_a_condition_that_never_holds_ends_at_the_limit() {
    let server = start();
    let limit = Duration::from_millis(30);
    let timed_out = server.wait_until(limit, |view| view.accepted_count() > 0).unwrap_err();
    assert!(timed_out.after >= limit);
    assert!(timed_out.to_string().starts_with("not within"));
}
