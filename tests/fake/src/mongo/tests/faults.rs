//! Faults at the byte level.

use core::time::Duration;
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::Instant;

use super::super::{Cut, Ended, Fault, FaultKind, FaultRule};
use super::*;

/// Length of the reply to a ping, bytes.
const PONG_BYTES: usize = 38;

fn count(server: &FakeServer, kind: FaultKind) -> u64 {
    server.look(|view| view.fault_count(kind))
}

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

/// Returns a server with one rule, and a client that has sent a ping.
fn with(rule: impl Into<FaultRule>) -> (FakeServer, BlockingClient) {
    let server = start();
    server.inject(rule);
    let mut client = connect(&server);
    client.send(0, ping()).unwrap();
    (server, client)
}

#[test]
fn silence_accepts_and_reads_but_never_answers() {
    let (server, mut client) = with(Fault::Silence);
    server.wait_until(PATIENCE, |view| view.fault_count(FaultKind::Silence) == 1).unwrap();
    client.send(0, ping()).unwrap();
    client.stream().set_nonblocking(true).unwrap();
    assert_eq!(client.read().unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(client);
    server.wait_until(PATIENCE, |view| view.open_count() == 0).unwrap();
    server.look(|view| assert_eq!(view.replies_count(), 0));
}

#[test]
fn delay_postpones_the_reply() {
    let start = Instant::now();
    let (server, mut client) = with(Fault::Delay(Duration::from_millis(60)));
    assert!(is_ok(&client.read().unwrap().body));
    assert!(start.elapsed() >= Duration::from_millis(60));
    assert_eq!(count(&server, FaultKind::Delay), 1);
}

/// Cuts after every byte of two replies, with an orderly end and with a reset.
#[test]
fn stream_is_cut_after_any_byte() {
    let server = start();
    for after in 0..=2 * PONG_BYTES {
        for by in [Cut::Fin, Cut::Rst] {
            server.inject(FaultRule::once(Fault::CutStream { after_bytes: u64::try_from(after).unwrap(), by }));
            let mut client = connect(&server);
            let mut whole = 0;
            if after > PONG_BYTES {
                assert!(is_ok(&client.run("admin", ping()).unwrap()));
                whole = PONG_BYTES;
            }
            client.send(0, ping()).unwrap();
            let (bytes, end) = drain(client.stream());
            match by {
                Cut::Fin => assert_eq!((whole + bytes.len(), end), (after, None)),
                // A reset may overtake the bytes before it.
                Cut::Rst => {
                    assert_eq!(end, Some(ErrorKind::ConnectionReset));
                    assert!(whole + bytes.len() <= after);
                }
            }
            server.wait_until(PATIENCE, |view| view.open_count() == 0).unwrap();
        }
    }
    let times = u64::try_from(2 * (2 * PONG_BYTES + 1)).unwrap();
    assert_eq!(count(&server, FaultKind::CutStream), times);
    assert!(is_ok(&connect(&server).run("admin", ping()).unwrap()));
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
fn trickle_sends_each_byte_separately() {
    for gap in [Duration::ZERO, Duration::from_millis(1)] {
        let start = Instant::now();
        let (server, mut client) = with(FaultRule::once(Fault::Trickle { gap }));
        assert!(is_ok(&client.read().unwrap().body));
        assert!(start.elapsed() >= gap * u32::try_from(PONG_BYTES - 1).unwrap());
        assert_eq!(count(&server, FaultKind::Trickle), 1);
        assert!(is_ok(&client.run("admin", ping()).unwrap()));
    }
}

#[test]
fn garbage_replaces_a_reply() {
    let (_server, mut client) = with(FaultRule::once(Fault::Garbage(vec![0xab; 20])));
    let mut bytes = [0; 20];
    client.stream().read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, [0xab; 20]);
    assert!(is_ok(&client.run("admin", ping()).unwrap()));
}

#[test]
fn wrong_response_to_answers_another_request() {
    let (_server, mut client) = with(FaultRule::once(Fault::WrongResponseTo));
    assert_ne!(client.read().unwrap().response_to, 1);
    client.send(0, ping()).unwrap();
    assert_eq!(client.read().unwrap().response_to, 2);
}

#[test]
fn duplicate_reply_is_sent_twice() {
    let (_server, mut client) = with(FaultRule::once(Fault::DuplicateReply));
    let first = client.read().unwrap();
    assert_eq!(client.read().unwrap(), first);
}

#[test]
fn truncated_frame_ends_inside_the_reply() {
    for (bytes, kept) in [(0, 0), (5, 5), (16, 16), (1000, PONG_BYTES - 1)] {
        let (_server, mut client) = with(Fault::TruncatedFrame { bytes, by: Cut::Fin });
        let (read, end) = drain(client.stream());
        assert_eq!((read.len(), end), (kept, None));
    }
    let (_server, mut client) = with(Fault::TruncatedFrame { bytes: 5, by: Cut::Rst });
    assert_eq!(drain(client.stream()).1, Some(ErrorKind::ConnectionReset));
}

#[test]
fn header_can_have_a_wrong_length_or_opcode() {
    for length in [i32::MIN, -1, 0, 15, 37, 39, i32::MAX] {
        let (_server, mut client) = with(Fault::LengthLie(length));
        let mut reply = [0; PONG_BYTES];
        client.stream().read_exact(&mut reply).unwrap();
        assert_eq!(reply[..4], length.to_le_bytes());
    }
    let (_server, mut client) = with(Fault::OpCodeLie(77));
    let mut reply = [0; PONG_BYTES];
    client.stream().read_exact(&mut reply).unwrap();
    assert_eq!(reply[12..16], 77_i32.to_le_bytes());
}

#[test]
fn more_to_come_can_be_set_without_a_further_reply() {
    let (_server, mut client) = with(FaultRule::once(Fault::MoreToComeLie));
    assert!(client.read().unwrap().more_to_come());
    client.send(0, ping()).unwrap();
    let reply = client.read().unwrap();
    assert_eq!((reply.response_to, reply.more_to_come()), (2, false));
}

#[test]
fn checksum_can_be_wrong() {
    let (_server, mut client) = with(FaultRule::once(Fault::BadChecksum));
    let error = client.read().unwrap_err();
    assert_eq!(error.to_string(), "checksum does not match");
    assert!(is_ok(&client.run("admin", ping()).unwrap()));
}

#[test]
fn raw_body_follows_a_valid_header() {
    let (_server, mut client) = with(FaultRule::once(Fault::RawBody(vec![1, 2, 3])));
    let mut reply = [0; 19];
    client.stream().read_exact(&mut reply).unwrap();
    assert_eq!(reply[..4], 19_i32.to_le_bytes());
    assert_eq!(reply[8..12], 1_i32.to_le_bytes());
    assert_eq!(reply[16..], [1, 2, 3]);
}

#[test]
fn never_finished_reply_lacks_its_last_byte() {
    let (server, mut client) = with(Fault::NeverFinished);
    let mut reply = [0; PONG_BYTES - 1];
    client.stream().read_exact(&mut reply).unwrap();
    client.stream().set_nonblocking(true).unwrap();
    assert_eq!(client.stream().read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(client);
    server.wait_until(PATIENCE, |view| view.open_count() == 0).unwrap();
}

#[test]
fn oversized_reply_is_well_formed() {
    for bytes in [0, 100, 1_000_000, 50_000_000] {
        let (_server, mut client) = with(FaultRule::once(Fault::Oversized { bytes }));
        let reply = client.read().unwrap();
        assert_eq!(reply.response_to, 1);
        assert!(is_ok(&reply.body));
        let filler = reply.body.get_binary_generic("filler").unwrap().len();
        assert!(filler <= usize::try_from(bytes).unwrap());
        assert!(filler + 100 >= usize::try_from(bytes).unwrap());
        assert!(is_ok(&client.run("admin", ping()).unwrap()));
    }
}

#[test]
fn unsolicited_bytes_follow_a_reply() {
    let (server, mut client) = with(FaultRule::once(Fault::Unsolicited(vec![9; 3])));
    assert!(is_ok(&client.read().unwrap().body));
    let mut bytes = [0; 3];
    client.stream().read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, [9; 3]);
    server.send_raw(1, &[7, 7]);
    client.stream().read_exact(&mut bytes[..2]).unwrap();
    assert_eq!(bytes, [7, 7, 9]);
    assert_eq!((count(&server, FaultKind::Unsolicited), count(&server, FaultKind::SendNow)), (1, 1));
    assert!(is_ok(&client.run("admin", ping()).unwrap()));
}

#[test]
fn half_closed_server_continues_to_read() {
    let (server, mut client) = with(Fault::HalfClose);
    assert!(is_ok(&client.read().unwrap().body));
    assert_eq!(drain(client.stream()), (vec![], None));
    client.send(0, ping()).unwrap();
    assert_eq!(server.open_count(), 1);
    drop(client);
    server.wait_until(PATIENCE, |view| view.open_count() == 0).unwrap();
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
fn connection_is_cut_on_demand() {
    let server = start();
    let mut one = connect(&server);
    let mut two = connect(&server);
    one.hello("one").unwrap();
    two.hello("two").unwrap();
    server.cut(1, Cut::Fin);
    server.cut(2, Cut::Rst);
    server.cut(99, Cut::Rst);
    assert_eq!(drain(one.stream()), (vec![], None));
    assert_eq!(drain(two.stream()).1, Some(ErrorKind::ConnectionReset));
    assert_eq!(count(&server, FaultKind::CutNow), 2);
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

#[test]
fn every_kind_has_a_name_and_a_counter() {
    let server = start();
    let counts = server.fault_counts();
    assert_eq!(counts.len(), FaultKind::ALL.len());
    let mut names: Vec<&str> = counts.iter().map(|(kind, _)| kind.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), FaultKind::ALL.len());
    assert!(counts.iter().all(|(_, count)| *count == 0));
}
