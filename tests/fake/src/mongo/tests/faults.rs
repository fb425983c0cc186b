//! Conditions of faults, and how connections end. The suites of the client use each fault:
//! runtime-smol/tests/client/replies.rs, tests/src/contract/faults.rs.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;

use super::super::{Cut, Ended, Fault, FaultKind, FaultRule};
use super::*;

/// Reads the stream to its end; returns the bytes, and the error that ended it.
fn drain(stream: &mut TcpStream) -> (Vec<u8>, Option<ErrorKind>) {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return (bytes, None),
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (bytes, Some(error.kind())),
        }
    }
}

/// Unread requests must not turn the orderly end into a reset, which could overtake the bytes
/// before it.
#[test]
fn cut_by_fin_is_orderly_despite_unread_requests() {
    let server = start();
    server.inject(Fault::CutStream { after_bytes: 7, by: Cut::Fin });
    server.freeze();
    let mut client = connect(&server);
    for _ in 0..5 {
        client.send(0, ping()).unwrap();
    }
    server.thaw();
    let (bytes, end) = drain(client.stream());
    assert_eq!((bytes.len(), end), (7, None));
}

#[test]
fn connection_is_closed_right_after_accept() {
    let server = start();
    server.inject(FaultRule::once(Fault::CloseOnAccept(Cut::Fin)));
    assert_eq!(drain(connect(&server).stream()), (vec![], None));
    server.inject(FaultRule::once(Fault::CloseOnAccept(Cut::Rst)));
    // A fast reset may already fail the connect call.
    let end = match BlockingClient::connect(server.address(), PATIENCE) {
        Ok(mut client) => drain(client.stream()).1,
        Err(error) => Some(error.kind()),
    };
    assert_eq!(end, Some(ErrorKind::ConnectionReset));
    server.wait_until(PATIENCE, |view| view.closed().count() == 2).unwrap();
    server.look(|view| {
        let reasons: Vec<_> = view.closed().map(|info| info.ended.clone()).collect();
        assert_eq!(reasons, vec![Some(Ended::Fault(FaultKind::CloseOnAccept)); 2]);
    });
    assert!(is_ok(&connect(&server).run("admin", ping()).unwrap()));
}

#[test]
fn rules_match_connection_application_command_and_count() {
    let server = start();
    let mut one = connect(&server);
    one.hello("one").unwrap();
    let mut two = connect(&server);
    two.hello("two").unwrap();
    let wrong = |client: &mut BlockingClient, command: Document| client.run("admin", command).is_err();
    server.inject(FaultRule::always(Fault::WrongResponseTo).on_connection(2).on_command("ping").skip(1).times(2));
    assert!(!wrong(&mut one, ping()));
    assert!(!wrong(&mut two, doc! { "buildInfo": 1 }));
    let turns: Vec<bool> = (0..5).map(|_| wrong(&mut two, ping())).collect();
    assert_eq!(turns, [false, true, true, false, false]);
    server.inject(FaultRule::always(Fault::WrongResponseTo).on_app_name("one"));
    assert!(wrong(&mut one, ping()));
    assert!(!wrong(&mut two, ping()));
    server.clear_faults();
    assert!(!wrong(&mut one, ping()));
}

#[test]
fn faults_apply_to_the_replies_of_an_exhaust_stream() {
    let (server, mut client, first) = greeted();
    server.inject(FaultRule::once(Fault::DuplicateReply).on_command("hello").skip(1));
    client.send(EXHAUST_ALLOWED, awaitable(&first, 2)).unwrap();
    let ids: Vec<i32> = (0..3).map(|_| client.read().unwrap().request_id).collect();
    assert_ne!(ids[0], ids[1]);
    assert_eq!(ids[1], ids[2]);
}
