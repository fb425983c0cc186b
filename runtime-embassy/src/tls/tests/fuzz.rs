//! Servers with random errors: the client may return an error, but never panics.

use alloc::boxed::Box;
use alloc::vec::Vec;

use poolhouse_core::Cause;
use poolhouse_tests::choices::Choices;
use poolhouse_tests::rng::Rng;
use poolhouse_tests::seeds::each_seed;
use poolhouse_tests::tls::{CertificateRequest, Versions};

use super::liar::Liar;
use super::support::{Fixture, HOST, Memory, Wire, random, run, speaks};

/// The number of servers that a test meets by default.
const RUNS: u64 = 150;

fn byte(rng: &mut Rng) -> u8 {
    u8::try_from(rng.below(256)).unwrap()
}

fn index(rng: &mut Rng, len: usize) -> usize {
    usize::try_from(rng.below(u32::try_from(len.max(1)).unwrap())).unwrap()
}

/// Applies one to three changes: replaces a byte, truncates, inserts or removes bytes.
fn mutate(rng: &mut Rng, message: &mut Vec<u8>) {
    for _ in 0..=rng.below(3) {
        let at = index(rng, message.len());
        match rng.below(6) {
            0 | 1 if !message.is_empty() => message[at] = byte(rng),
            2 if !message.is_empty() => message[at] = [0, 1, 0x7f, 0x80, 0xff][index(rng, 5)],
            3 => message.truncate(at),
            4 => {
                let more: Vec<u8> = (0..rng.below(40)).map(|_| byte(rng)).collect();
                message.splice(at..at, more);
            }
            _ => {
                let end = (at + index(rng, 8)).min(message.len());
                message.drain(at..end);
            }
        }
    }
}

/// Performs the handshake and reads until the end.
fn meet(fixture: &Fixture, wire: Wire) -> Result<(), Cause> {
    let mut memory = Memory::new();
    let mut session = memory.session(wire);
    run(session.open(HOST, &fixture.config(), random))?;
    while run(session.read(<[u8]>::len))? {}
    Ok(())
}

fn is_of_the_peer(outcome: Result<(), Cause>) {
    if let Err(cause) = outcome {
        assert!(matches!(cause, Cause::Network | Cause::Protocol | Cause::Certificate(_)), "{cause}");
    }
}

#[test]
fn mutated_messages_of_the_handshake_are_an_error_or_not_and_never_a_panic() {
    let fixture = Fixture::new();
    let identity = fixture.root.issue(&CertificateRequest::server(&[HOST])).identity();
    let mut refused = 0;
    let met = each_seed(RUNS, |seed| {
        let identity = identity.clone();
        let wire = Liar::who(move |talk| {
            let mut rng = Rng::new(seed);
            // One of the five messages of the handshake; the certificate in three of seven cases.
            let victim = [2, 8, 11, 11, 11, 15, 20][index(&mut rng, 7)];
            talk.mutate = Box::new(move |message| {
                if message.first() == Some(&victim) {
                    mutate(&mut rng, message);
                }
            });
            talk.honest(&identity);
        });
        let outcome = meet(&fixture, wire);
        refused += u64::from(outcome.is_err());
        is_of_the_peer(outcome);
    });
    // Every connection ends with an error, because the server sends no data after the handshake.
    assert_eq!(refused, met);
}

#[test]
fn random_messages_are_an_error_or_not_and_never_a_panic() {
    let fixture = Fixture::new();
    let identity = fixture.root.issue(&CertificateRequest::server(&[HOST])).identity();
    each_seed(RUNS, |seed| {
        let identity = identity.clone();
        let wire = Liar::who(move |talk| {
            let mut rng = Rng::new(seed);
            let is_open = rng.below(2) == 0;
            if is_open {
                talk.honest(&identity);
            } else {
                talk.greet();
            }
            for _ in 0..4 {
                let kind = [4, 8, 11, 13, 15, 20, 24, byte(&mut rng)][index(&mut rng, 8)];
                let mut plaintext: Vec<u8> =
                    (0..rng.below(80)).map(|_| [0, 0, 1, byte(&mut rng)][index(&mut rng, 4)]).collect();
                if rng.below(4) > 0 {
                    plaintext = super::liar::message(kind, &plaintext);
                }
                plaintext.push([20, 21, 22, 22, 22, 23, byte(&mut rng)][index(&mut rng, 7)]);
                plaintext.resize(plaintext.len() + index(&mut rng, 3), 0);
                talk.seal(&plaintext);
            }
        });
        is_of_the_peer(meet(&fixture, wire));
    });
}

#[test]
fn damaged_bytes_are_an_error_and_never_a_panic() {
    let fixture = Fixture::new();
    let server = speaks(fixture.server(), Versions::Tls13);
    let mut rng = Rng::new(1);
    for _ in 0..250 {
        let at = index(&mut rng, 1100);
        let change = byte(&mut rng).max(1);
        let wire = Wire::to(&server).with(|far| far.damage = Some((at, change)));
        is_of_the_peer(meet(&fixture, wire));
    }
}

#[test]
fn random_bytes_are_an_error_and_never_a_panic() {
    let fixture = Fixture::new();
    let mut rng = Rng::new(2);
    for _ in 0..500 {
        let mut bytes: Vec<u8> = (0..rng.below(300)).map(|_| byte(&mut rng)).collect();
        match rng.below(3) {
            // Some begin like the hello of a server, some like another handshake record.
            0 => drop(bytes.splice(0..0, [22, 3, 3, 0, 100, 2, 0, 0, 96, 3, 3])),
            1 => drop(bytes.splice(0..0, [22, 3, 3, 0, byte(&mut rng), byte(&mut rng), 0, 0, byte(&mut rng)])),
            _ => {}
        }
        let outcome = meet(&fixture, Wire::script(&bytes));
        assert!(matches!(outcome, Err(Cause::Network | Cause::Protocol | Cause::Certificate(_))), "{outcome:?}");
    }
}

/// CMAP-98.
#[test]
#[doc(alias = "CMAP-98")]
fn handshake_that_is_cut_at_any_byte_is_a_network_error() {
    let fixture = Fixture::new();
    let server = speaks(fixture.server(), Versions::Tls13);
    let whole = Wire::to(&server);
    let far = whole.far();
    run(Memory::new().session(whole).open(HOST, &fixture.config(), random)).unwrap();
    let given = far.borrow().given;
    assert!(given > 500);
    for cut in (0..given).step_by(3) {
        let wire = Wire::to(&server).with(|far| {
            far.cut = Some(cut);
            far.chunk = 100;
        });
        let outcome = run(Memory::new().session(wire).open(HOST, &fixture.config(), random));
        // The length of a signature varies.
        assert!(outcome == Err(Cause::Network) || cut + 4 > given, "cut at {cut} of {given}: {outcome:?}");
    }
}
