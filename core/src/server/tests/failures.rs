//! Failures of sockets, peers and commands.

use super::*;
use poolhouse_wire::{Phase, WireErrorKind};

#[test]
fn a_failed_hello_clears_the_pool() {
    let client = client();
    let mut rig = heap(&client);
    rig.run();
    rig.answer = Answer::Refusal(13_435);
    let failed = rig.check_out().expect_err("refused");
    assert_eq!(failed, CheckOutError::EstablishFailed { cause: Cause::Command { code: 13_435 }, overloaded: false });
    assert_eq!(rig.server.pool().generation().get(), 1);
    assert_eq!(rig.server.pool().state(), PoolState::Paused);
    assert!(matches!(rig.errors[..], [SocketError::Handshake(error)] if error.phase == Phase::Hello));
    rig.answer = Answer::Good;
    rig.advance(second(10));
    let lease = rig.check_out().expect("the next check has found the server");
    rig.check_in(lease);
}

/// The server may only be overloaded.
#[test]
#[doc(alias = "CMAP-95")]
fn a_connection_that_is_reset_during_hello_does_not_clear_the_pool() {
    let client = client();
    let mut rig = heap(&client);
    rig.run();
    rig.answer = Answer::Reset;
    let failed = rig.check_out().expect_err("reset");
    assert_eq!(failed, CheckOutError::EstablishFailed { cause: Cause::Network, overloaded: true });
    assert_eq!((rig.server.pool().generation().get(), rig.server.pool().state()), (0, PoolState::Ready));
}

#[test]
fn a_failed_check_clears_the_pool_and_the_next_one_makes_it_ready() {
    let client = client();
    let mut rig = heap(&client);
    rig.run();
    let lease = rig.check_out().expect("established");
    rig.check_in(lease);
    rig.answer = Answer::Reset;
    rig.advance(second(11));
    assert_eq!((rig.server.pool().state(), rig.server.pool().counts().total()), (PoolState::Paused, 0));
    assert_eq!(rig.sockets.len(), 0);
    rig.answer = Answer::Good;
    rig.server.request_check(rig.now);
    rig.advance(second(1));
    assert_eq!(rig.server.pool().state(), PoolState::Ready);
}

/// The socket is closed, the check-out fails, and the slot serves the next connection.
#[test]
fn a_silent_handshake_fails_after_connect_timeout() {
    let client = client();
    let mut rig = fixed(&client);
    rig.run();
    rig.answer = Answer::Silent;
    let begin = rig.now;
    let failed = rig.check_out().expect_err("silent");
    assert_eq!(failed, CheckOutError::EstablishFailed { cause: Cause::NetworkTimeout, overloaded: true });
    assert_eq!(rig.now.saturating_since(begin), second(10));
    assert!(rig.sockets.iter().all(|socket| matches!(socket.id, SocketId::Monitor(_))), "it is closed");
    rig.answer = Answer::Good;
    rig.advance(second(30));
    let lease = rig.check_out().expect("established");
    assert_eq!(lease.conn().index(), 0, "in the slot of the one before");
    rig.ping(&lease).expect("its reply");
    rig.check_in(lease);
}

#[test]
fn a_dial_that_fails_or_never_ends_fails_the_check_out() {
    let client = client();
    let mut rig = heap(&client);
    rig.run();
    rig.refuses = true;
    assert!(matches!(rig.check_out(), Err(CheckOutError::EstablishFailed { cause: Cause::Network, .. })));
    let Ok(CheckOut::Queued(waiter)) = rig.server.check_out(rig.now, None, &mut rig.events) else { panic!() };
    let Some(ServerAction::Dial(id)) = rig.server.poll_action(rig.now) else { panic!("a dial") };
    rig.server.handle_timeout(rig.now.saturating_add(second(10)), &mut rig.events);
    let claim = rig.server.claim(rig.now, waiter);
    assert!(matches!(claim, Claim::Failed(CheckOutError::EstablishFailed { cause: Cause::NetworkTimeout, .. })));
    assert_eq!(rig.server.handle_dialed(rig.now, id, &mut rig.events), Err(crate::Stale), "too late");
    assert_eq!(rig.server.poll_action(rig.now), Some(ServerAction::Close(id)));
    assert_eq!(rig.server.handle_failed(rig.now, id, Cause::Network, &mut rig.events), Err(crate::Stale));
    rig.server.assert_invariants();
}

/// The monitor still finds the server, so only the connection has failed.
#[test]
fn a_command_fails_at_its_deadline_and_its_connection_is_closed() {
    let client = client();
    let mut rig = heap(&client);
    rig.run();
    let lease = rig.check_out().expect("established");
    rig.answer = Answer::Silent;
    rig.begin(&lease).expect("sent");
    rig.answer = Answer::Good;
    rig.advance(second(60));
    assert_eq!(rig.server.failure(&lease), Some(Cause::NetworkTimeout));
    assert!(rig.server.established(&lease).is_none());
    assert_eq!(rig.begin(&lease), Err(CommandNotSent::Failed(Cause::NetworkTimeout)));
    rig.check_in(lease);
    assert_eq!((rig.server.pool().generation().get(), rig.server.pool().counts().total()), (0, 0));
}

#[test]
fn a_failed_check_of_a_silent_server_interrupts_a_command() {
    let client = client();
    let mut rig = heap(&client);
    rig.run();
    let lease = rig.check_out().expect("established");
    rig.answer = Answer::Silent;
    assert_eq!(rig.ping(&lease), Err(Cause::Interrupted));
    assert_eq!(rig.sockets.len(), 1, "that of the next check");
    rig.check_in(lease);
    assert_eq!(rig.server.pool().counts().total(), 0);
}

/// SDAM-78 to SDAM-83, for each code: whether the server becomes Unknown, and the pool is cleared.
#[test]
#[doc(alias("SDAM-78", "SDAM-79", "SDAM-80", "SDAM-81", "SDAM-82", "SDAM-83"))]
fn errors_in_replies_are_applied() {
    for (code, unknown, cleared) in [(10_107, true, 0), (91, true, 1), (26, false, 0)] {
        let client = client();
        let mut rig = heap(&client);
        rig.run();
        let lease = rig.check_out().expect("established");
        rig.answer = Answer::Command(code);
        assert_eq!(rig.ping(&lease), Err(Cause::Command { code }));
        let server = rig.server.topology().servers().next().expect("the server");
        assert_eq!(!server.server_type().is_known(), unknown, "{code}");
        assert_eq!(rig.server.pool().generation().get(), cleared, "{code}");
        assert_eq!(rig.server.failure(&lease), None, "the reply was complete");
        rig.check_in(lease);
    }
}

#[test]
fn a_connection_that_breaks_in_a_command_clears_the_pool() {
    let client = client();
    let mut rig = heap(&client);
    rig.run();
    let lease = rig.check_out().expect("established");
    rig.answer = Answer::Reset;
    assert_eq!(rig.ping(&lease), Err(Cause::Network));
    assert_eq!(rig.server.pool().generation().get(), 1);
    rig.check_in(lease);
    assert_eq!(rig.server.pool().counts().total(), 0);
}

#[test]
fn a_connection_that_fails_while_it_is_available_is_replaced() {
    let client = client();
    let mut rig = heap(&client);
    rig.run();
    let lease = rig.check_out().expect("established");
    let conn = lease.conn();
    rig.check_in(lease);
    rig.server.handle_failed(rig.now, SocketId::Pool(conn), Cause::Network, &mut rig.events).expect("known");
    let lease = rig.check_out().expect("a new one");
    assert_ne!(lease.conn(), conn);
    assert_eq!(rig.server.pool().generation().get(), 0, "no operation has failed");
    rig.check_in(lease);
    assert_eq!(rig.server.pool().counts().total(), 1);
}

#[test]
fn an_abandoned_command_breaks_its_connection() {
    let client = client();
    let mut rig = heap(&client);
    rig.run();
    let lease = rig.check_out().expect("established");
    rig.answer = Answer::Silent;
    rig.begin(&lease).expect("sent");
    assert_eq!(rig.begin(&lease), Err(CommandNotSent::Busy));
    let socket = SocketId::Pool(lease.conn());
    rig.server.check_in(rig.now, lease, &mut rig.events).expect("its own");
    let late = rig.server.handle_input(rig.now, socket, &[0; 16], &mut rig.events);
    assert_eq!(late.expect_err("failed"), SocketError::Failed(Cause::Cancelled));
    rig.run();
    assert_eq!((rig.server.pool().counts().total(), rig.server.pool().generation().get()), (0, 0));
}

#[test]
fn a_foreign_lease_is_handed_back() {
    let client = client();
    let mut rig = heap(&client);
    let server = machine::<_, _, Unauthenticated>(HandshakeHello::new(&client), PoolOptions::DEFAULT);
    let mut other: Rig<'_, pool::OnHeap, topology::OnHeap> = Rig::new(server);
    rig.run();
    other.run();
    let lease = rig.check_out().expect("established");
    let none = other.server.write_command(&lease, None, "admin", &mut Vec::new(), |_| Ok(()));
    assert_eq!(none, Err(CommandNotSent::Failed(Cause::Closed)));
    other.server.pool = Pool::new(other.now, PoolId::new(2), PoolConfig::DEFAULT, &mut ());
    let ForeignLease(lease) = other.server.check_in(other.now, lease, &mut ()).expect_err("another machine's");
    rig.check_in(lease);
}

/// Bytes of no message, of a message of another kind, of a length beyond every limit, of a reply to
/// another request: in the check, in the handshake and in a command.
#[test]
fn hostile_bytes_are_an_error_and_close_the_connection() {
    const UNASKED: &[u8] = &[26, 0, 0, 0, 9, 0, 0, 0, 99, 0, 0, 0, 0xdd, 7, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0];
    for bytes in [&b"HTTP/1.1 400 Bad Request"[..], &[0; 64], &[0xff; 64], UNASKED] {
        let client = client();
        let mut rig = heap(&client);
        rig.answer = Answer::Bytes(bytes);
        rig.run();
        assert!(matches!(rig.errors[..], [SocketError::Wire(_)]), "{:?}", rig.errors);
        assert_eq!((rig.sockets.len(), rig.server.pool().state()), (0, PoolState::Paused));
        let cause = Some(Cause::Protocol);
        assert_eq!(rig.check_out().expect_err("not known"), CheckOutError::PoolCleared { cause });

        let mut rig = heap(&client);
        rig.run();
        rig.answer = Answer::Bytes(bytes);
        let failed = rig.check_out().expect_err("no hello");
        assert_eq!(failed, CheckOutError::EstablishFailed { cause: Cause::Protocol, overloaded: false });
        assert!(matches!(rig.errors[..], [SocketError::Handshake(error)] if error.wire.is_some()));
        assert_eq!(rig.server.pool().generation().get(), 1);

        let mut rig = heap(&client);
        rig.run();
        let lease = rig.check_out().expect("established");
        rig.answer = Answer::Bytes(bytes);
        assert_eq!(rig.ping(&lease), Err(Cause::Protocol));
        rig.check_in(lease);
        assert_eq!(rig.server.pool().counts().total(), 0);
    }
}

/// Each bit of a reply, in the check, in the handshake and in a command: the reply is used or the
/// connection is closed, and the machine recovers.
#[test]
fn each_inverted_bit_of_a_reply_is_a_value_or_an_error() {
    let client = client();
    let (mut used, mut refused) = (0, 0);
    for place in 0..150 {
        for bit in 0..8 {
            let spoiled = Answer::Spoiled(place, 1 << bit);
            let mut rig = heap(&client);
            rig.answer = spoiled;
            rig.advance(second(5));
            rig.answer = Answer::Good;
            rig.advance(second(90));
            assert_eq!(rig.server.pool().state(), PoolState::Ready, "byte {place}, bit {bit}");
            rig.answer = spoiled;
            let failed = rig.check_out().map(|lease| rig.check_in(lease));
            rig.answer = Answer::Good;
            rig.advance(second(90));
            let lease = rig.check_out().expect("the server is found again");
            rig.answer = spoiled;
            let replied = rig.ping(&lease);
            assert_eq!(
                replied.is_ok() || matches!(replied, Err(Cause::Command { .. })),
                rig.server.failure(&lease).is_none()
            );
            rig.check_in(lease);
            used += u32::from(failed.is_ok());
            refused += u32::from(failed.is_err());
        }
    }
    assert!(used > 100 && refused > 100, "{used} and {refused}");
}

#[test]
fn unsolicited_bytes_break_the_connection() {
    let client = client();
    let mut rig = heap(&client);
    rig.run();
    let lease = rig.check_out().expect("established");
    let socket = SocketId::Pool(lease.conn());
    let error = rig.server.handle_input(rig.now, socket, &[1], &mut rig.events).expect_err("unsolicited");
    assert!(matches!(error, SocketError::Wire(wire) if matches!(wire.kind(), WireErrorKind::Unsolicited { .. })));
    assert_eq!(rig.server.failure(&lease), Some(Cause::Protocol));
    rig.check_in(lease);
    let error = rig.server.handle_input(rig.now, socket, &[1], &mut rig.events).expect_err("gone");
    assert_eq!(error, SocketError::Stale);
}

/// Every call in random order: the invariants hold after each, and all connections leave the pool.
#[test]
fn random_calls_keep_the_invariants() {
    for seed in 1..=300_u32 {
        let client = client();
        let mut rig = fixed(&client);
        let (mut leases, mut waiters) = (Vec::new(), Vec::new());
        let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as usize % below
        };
        for _ in 0..80 {
            let answers = [
                Answer::Good,
                Answer::Good,
                Answer::Streams(1),
                Answer::Silent,
                Answer::Command(91),
                Answer::Refusal(10_107),
                Answer::Bytes(&[0; 20]),
                Answer::Reset,
                Answer::Spoiled(random(300), 1 << random(8)),
                Answer::Spoiled(random(24), 1 << random(8)),
            ];
            let (now, events) = (rig.now, &mut rig.events);
            match random(10) {
                0 => rig.answer = answers[random(answers.len())],
                1 | 2 => match rig.server.check_out(now, None, events) {
                    Ok(CheckOut::Granted(lease)) => leases.push(lease),
                    Ok(CheckOut::Queued(waiter)) => waiters.push(waiter),
                    Err(_) => {}
                },
                3 if !leases.is_empty() => rig.check_in(leases.swap_remove(random(leases.len()))),
                4 if !leases.is_empty() => {
                    let lease = &leases[random(leases.len())];
                    if rig.sockets.iter().any(|one| one.id == SocketId::Pool(lease.conn())) {
                        assert!(!matches!(rig.begin(lease), Err(CommandNotSent::Encode(_))));
                    }
                }
                5 if !waiters.is_empty() => {
                    let waiter = waiters.swap_remove(random(waiters.len()));
                    match rig.server.claim(now, waiter) {
                        Claim::Granted(lease) => leases.push(lease),
                        Claim::Waiting => rig.server.cancel(now, waiter, events),
                        Claim::Failed(_) => {}
                        Claim::Stale => panic!("it was not claimed before"),
                    }
                }
                6 if !rig.sockets.is_empty() => {
                    let socket = rig.sockets.swap_remove(random(rig.sockets.len()));
                    let _ = rig.server.handle_failed(now, socket.id, Cause::Network, events);
                }
                7 => rig.refuses = random(4) == 0,
                8 => rig.advance(Duration::from_millis(random(20_000) as u64)),
                _ => rig.run(),
            }
            rig.server.assert_invariants();
        }
        rig.server.close(rig.now, &mut rig.events);
        waiters.into_iter().for_each(|waiter| rig.server.cancel(rig.now, waiter, &mut rig.events));
        leases.into_iter().for_each(|lease| rig.check_in(lease));
        rig.run();
        assert_eq!((rig.sockets.len(), rig.server.pool().counts().total()), (0, 0), "seed {seed}");
        assert_eq!(rig.server.poll_timeout(), None, "seed {seed}");
    }
}
