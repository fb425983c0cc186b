//! Servers that violate the protocol: the client returns an error, and never panics or hangs.

use alloc::vec;
use alloc::vec::Vec;

use poolhouse_core::{Cause, CertificateFault};
use poolhouse_tests::tls::{CertificateRequest, Identity};
use sha2::{Digest, Sha256};

use super::liar::{ALERT, CHANGE_CIPHER_SPEC, DATA, HANDSHAKE, Liar, Talk, message};
use super::support::{Fixture, HOST, Memory, Wire, random, run};

const PROTOCOL: Cause = Cause::Protocol;
const REFUSED: Cause = Cause::Certificate(CertificateFault::RefusedByPeer);

/// Performs the handshake.
fn shake(fixture: &Fixture, plan: impl FnOnce(&mut Talk) + 'static) -> Result<(), Cause> {
    shake_with(fixture, Liar::who(plan))
}

fn shake_with(fixture: &Fixture, wire: Wire) -> Result<(), Cause> {
    run(Memory::new().session(wire).open(HOST, &fixture.config(), random))
}

/// Performs a correct handshake and reads.
fn read(fixture: &Fixture, plan: impl FnOnce(&mut Talk) + 'static) -> Result<Option<Vec<u8>>, Cause> {
    let identity = identity(fixture);
    let wire = Liar::who(move |talk| {
        talk.honest(&identity);
        plan(talk);
    });
    let mut memory = Memory::new();
    let mut session = memory.session(wire);
    run(session.open(HOST, &fixture.config(), random)).unwrap();
    let mut heard = Vec::new();
    let goes_on = run(session.read(|bytes| {
        heard.extend_from_slice(bytes);
        bytes.len()
    }))?;
    Ok(goes_on.then_some(heard))
}

fn identity(fixture: &Fixture) -> Identity {
    fixture.root.issue(&CertificateRequest::server(&[HOST])).identity()
}

#[test]
fn honest_server_is_accepted() {
    let fixture = Fixture::new();
    let heard = read(&fixture, |talk| talk.say(DATA, b"hello")).unwrap();
    assert_eq!(heard.as_deref(), Some(&b"hello"[..]));
}

#[test]
fn server_without_certificate_or_proof_is_refused() {
    let fixture = Fixture::new();
    let good = || identity(&fixture);
    let bare = shake(&fixture, |talk| {
        talk.greet();
        talk.extensions();
        talk.finished();
    });
    assert_eq!(bare, Err(PROTOCOL));
    let identity = good();
    let unproven = shake(&fixture, move |talk| {
        talk.greet();
        talk.extensions();
        talk.certificate(&identity);
        talk.finished();
    });
    assert_eq!(unproven, Err(PROTOCOL));
    let identity = good();
    let proof_first = shake(&fixture, move |talk| {
        talk.greet();
        talk.extensions();
        talk.proof(&identity);
        talk.certificate(&identity);
        talk.finished();
    });
    assert_eq!(proof_first, Err(PROTOCOL));
    // A signature proves only the certificate before it, not a later one.
    let identity = good();
    let swapped = shake(&fixture, move |talk| {
        talk.greet();
        talk.extensions();
        talk.certificate(&identity);
        talk.proof(&identity);
        talk.certificate(&identity);
        talk.finished();
    });
    assert_eq!(swapped, Err(PROTOCOL));
    let identity = good();
    let twice = shake(&fixture, move |talk| {
        talk.greet();
        talk.certificate(&identity);
        talk.certificate(&identity);
        talk.proof(&identity);
        talk.finished();
    });
    assert_eq!(twice, Err(PROTOCOL));
}

#[test]
fn proof_of_another_transcript_is_refused() {
    let fixture = Fixture::new();
    let (thief, impostor) = (identity(&fixture), identity(&fixture));
    type Forge = fn(&mut Talk, &Identity, &Identity);
    let forge: [(&str, Forge, Cause); 5] = [
        ("by another key", |talk, _, other| talk.proof(other), Cause::Certificate(CertificateFault::UnknownIssuer)),
        (
            "of another side",
            |talk, own, _| {
                let hash = talk.transcript.clone().finalize();
                talk.proof_of(own, "client", &hash, 0x0403);
            },
            Cause::Certificate(CertificateFault::UnknownIssuer),
        ),
        (
            "of another handshake",
            |talk, own, _| talk.proof_of(own, "server", &Sha256::digest(b"another"), 0x0403),
            Cause::Certificate(CertificateFault::UnknownIssuer),
        ),
        ("by another scheme", |talk, own, _| talk.proof_of(own, "server", &[0; 32], 0x0503), PROTOCOL),
        (
            "of no length",
            |talk, _, _| talk.message(15, &[4, 3, 0, 0]),
            Cause::Certificate(CertificateFault::UnknownIssuer),
        ),
    ];
    for (name, forge, expected) in forge {
        let (own, other) = (thief.clone(), impostor.clone());
        let outcome = shake(&fixture, move |talk| {
            talk.greet();
            talk.extensions();
            talk.certificate(&own);
            forge(talk, &own, &other);
            talk.finished();
        });
        assert_eq!(outcome, Err(expected), "{name}");
    }
    let own = identity(&fixture);
    let unfinished = shake(&fixture, move |talk| {
        talk.greet();
        talk.extensions();
        talk.certificate(&own);
        talk.proof(&own);
        talk.message(20, &[0; 32]);
    });
    assert_eq!(unfinished, Err(PROTOCOL));
}

#[test]
fn unencrypted_handshake_is_refused() {
    let fixture = Fixture::new();
    for kind in (0..32).chain([128, 254, u8::MAX]) {
        let identity = identity(&fixture);
        let outcome = shake(&fixture, move |talk| {
            talk.greet();
            talk.plain(HANDSHAKE, &message(kind, &[0, 0]));
            talk.extensions();
            talk.certificate(&identity);
            talk.proof(&identity);
            talk.finished();
        });
        assert_eq!(outcome, Err(PROTOCOL), "{kind}");
    }
}

#[test]
fn empty_records_end_the_session() {
    let fixture = Fixture::new();
    for plaintext in [&[][..], &[0], &[0; 40]] {
        let outcome = shake(&fixture, move |talk| {
            talk.greet();
            talk.seal(plaintext);
        });
        assert_eq!(outcome, Err(PROTOCOL), "{plaintext:?}");
        assert_eq!(read(&fixture, move |talk| talk.seal(plaintext)), Err(PROTOCOL), "{plaintext:?}");
    }
    for len in 0..=16 {
        let outcome = shake(&fixture, move |talk| {
            talk.greet();
            talk.plain(DATA, &vec![0; len]);
        });
        assert_eq!(outcome, Err(PROTOCOL), "{len}");
    }
}

/// embedded-tls would panic on any other message.
#[test]
fn messages_after_the_handshake_end_the_session_except_tickets() {
    let fixture = Fixture::new();
    let bodies: [&[u8]; 3] = [&[], &[0; 8], &[0; 40]];
    for kind in (0..32).chain([128, 254, u8::MAX]) {
        for body in bodies {
            let outcome = read(&fixture, move |talk| {
                talk.say(HANDSHAKE, &message(kind, body));
                talk.say(DATA, b"hello");
            });
            let expected = if kind == 4 { Ok(Some(b"hello".to_vec())) } else { Err(PROTOCOL) };
            assert_eq!(outcome, expected, "{kind} {body:?}");
        }
    }
    let ticket = message(4, &[0; 20]);
    let with_others =
        [[ticket.clone(), message(24, &[1])].concat(), [ticket.clone(), vec![4]].concat(), ticket[..9].to_vec()];
    for content in with_others {
        assert_eq!(read(&fixture, move |talk| talk.say(HANDSHAKE, &content)), Err(PROTOCOL));
    }
}

#[test]
fn unencrypted_records_after_the_handshake_are_refused() {
    let fixture = Fixture::new();
    for kind in (0..32).chain([128, u8::MAX]).filter(|kind| *kind != DATA) {
        for bytes in [&[][..], &[1], &[1, 0], &[4, 0, 0, 0], &[11, 0, 0, 4, 0, 0, 0, 0]] {
            let outcome = read(&fixture, move |talk| {
                talk.plain(kind, bytes);
                talk.say(DATA, b"hello");
            });
            assert_eq!(outcome, Err(PROTOCOL), "{kind} {bytes:?}");
        }
    }
}

#[test]
fn each_alert_has_its_error() {
    let fixture = Fixture::new();
    for code in 0..=u8::MAX {
        let expected = match code {
            0 => Ok(None),
            42..=46 | 48 | 49 | 116 => Err(REFUSED),
            _ => Err(PROTOCOL),
        };
        assert_eq!(read(&fixture, move |talk| talk.say(ALERT, &[2, code])), expected, "{code}");
        // Before keys are agreed.
        let expected = match code {
            0 => Cause::Network,
            42..=46 | 48 | 49 | 116 => REFUSED,
            _ => PROTOCOL,
        };
        assert_eq!(shake(&fixture, move |talk| talk.plain(ALERT, &[2, code])), Err(expected), "{code}");
    }
    for content in [&[][..], &[1], &[1, 0, 0]] {
        assert_eq!(read(&fixture, move |talk| talk.say(ALERT, content)), Err(PROTOCOL), "{content:?}");
    }
    // During the handshake an alert is not authenticated, so its description is ignored.
    let outcome = shake(&fixture, |talk| {
        talk.greet();
        talk.say(ALERT, &[2, 116]);
    });
    assert_eq!(outcome, Err(PROTOCOL));
}

#[test]
fn empty_records_cannot_keep_a_session_busy() {
    let fixture = Fixture::new();
    for (count, expected) in [(31, Ok(Some(b"hello".to_vec()))), (32, Err(PROTOCOL)), (5000, Err(PROTOCOL))] {
        let outcome = read(&fixture, move |talk| {
            for _ in 0..count {
                talk.say(DATA, b"");
            }
            talk.say(DATA, b"hello");
        });
        assert_eq!(outcome, expected, "{count} records without data");
        let tickets = read(&fixture, move |talk| {
            for _ in 0..count {
                talk.say(HANDSHAKE, &message(4, &[0; 20]));
            }
            talk.say(DATA, b"hello");
        });
        assert_eq!(tickets, expected, "{count} tickets");
    }
    for (count, is_good) in [(0, true), (1, true), (100, false)] {
        let identity = identity(&fixture);
        let outcome = shake(&fixture, move |talk| {
            talk.greet();
            for _ in 0..count {
                talk.plain(CHANGE_CIPHER_SPEC, &[1]);
            }
            talk.extensions();
            talk.certificate(&identity);
            talk.proof(&identity);
            talk.finished();
        });
        assert_eq!(outcome.is_ok(), is_good, "{count} {outcome:?}");
        let outcome = shake(&fixture, move |talk| {
            talk.greet();
            for _ in 0..count {
                talk.say(HANDSHAKE, b"");
            }
        });
        assert!(outcome.is_err(), "{count}");
    }
}

#[test]
fn records_that_are_too_large_end_the_session() {
    let fixture = Fixture::new();
    // Lengths and versions that TLS does not allow.
    for header in [[DATA, 3, 3, 0x41, 0x01], [DATA, 3, 3, 0xff, 0xff], [DATA, 3, 1, 0, 20], [DATA, 2, 3, 0, 20]] {
        let outcome = read(&fixture, move |talk| {
            talk.raw(&header);
            talk.raw(&[0; 70_000]);
        });
        assert_eq!(outcome, Err(PROTOCOL), "{header:?}");
    }
    // The largest record that fits into the buffer, and one that is a byte longer.
    for (content, is_good) in [(2048 - 17, true), (2048 - 16, false)] {
        let identity = identity(&fixture);
        let wire = Liar::who(move |talk| {
            talk.honest(&identity);
            talk.say(DATA, &vec![7; content]);
        });
        let mut memory = Memory::of(2048, 1152);
        let mut session = memory.session(wire);
        run(session.open(HOST, &fixture.config(), random)).unwrap();
        let outcome = run(session.read(<[u8]>::len));
        assert_eq!(outcome, if is_good { Ok(true) } else { Err(PROTOCOL) });
    }
}

/// A server that selects another key exchange group, or another version.
#[test]
fn hello_that_chooses_what_was_not_offered_is_refused() {
    let fixture = Fixture::new();
    let change = |name: &str, at: usize, bytes: &'static [u8]| {
        let identity = identity(&fixture);
        let outcome = shake(&fixture, move |talk| {
            talk.mutate = alloc::boxed::Box::new(move |message| {
                if message.first() == Some(&2) {
                    message[at..at + bytes.len()].copy_from_slice(bytes);
                }
            });
            talk.honest(&identity);
        });
        assert_eq!(outcome, Err(PROTOCOL), "{name}");
    };
    change("a suite that there is not", 39, &[0x12, 0x34]);
    change("a share of another group", 60, &[0x30, 0x39]);
    change("a share that is no point", 64, &[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    // A HelloRetryRequest, which is not supported.
    let outcome = shake(&fixture, |talk| {
        let mut body = [3, 3].to_vec();
        body.extend_from_slice(&Sha256::digest(b"HelloRetryRequest"));
        body.extend_from_slice(&[0, 0x13, 1, 0, 0, 12, 0, 43, 0, 2, 3, 4, 0, 51, 0, 2, 0, 0x18]);
        talk.plain(HANDSHAKE, &message(2, &body));
    });
    assert_eq!(outcome, Err(PROTOCOL));
}

#[test]
fn other_protocols_are_a_protocol_error() {
    let fixture = Fixture::new();
    let mongod = [36, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xdd, 7, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 0];
    let speeches: [&[u8]; 5] =
        [b"HTTP/1.1 400 Bad Request\r\n\r\n", &mongod, b"-ERR unknown command\r\n", &[0; 64], &[0xff; 64]];
    for speech in speeches {
        assert_eq!(shake_with(&fixture, Wire::script(speech)), Err(PROTOCOL), "{speech:?}");
    }
    assert_eq!(shake_with(&fixture, Wire::script(&[])), Err(Cause::Network));
    assert_eq!(shake_with(&fixture, Wire::script(&[22, 3, 3])), Err(Cause::Network));
}
