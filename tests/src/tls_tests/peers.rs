//! Peers that do not speak TLS, stop speaking it, or speak it badly.

use poolhouse_core::Cause;
use poolhouse_wire::{Labels, Phase};

use super::support::{Far, Fixture, HOST, connect, receive, run, send};
use crate::choices::Choices;
use crate::rng::Rng;
use crate::tls::Versions;

/// CMAP-98.
#[test]
#[doc(alias = "CMAP-98")]
fn handshake_cut_at_any_byte_is_a_network_error_with_labels() {
    let fixture = Fixture::new();
    for versions in [Versions::Tls12, Versions::Tls13] {
        let mut server = fixture.server();
        server.versions = versions;
        let config = fixture.config();
        let whole = Far::server(&server);
        connect(&config, HOST, &whole).unwrap();
        let whole = whole.0.borrow().given;
        assert!(whole > 500);
        let mut failed = 0;
        for cut in 0..whole {
            // Without session resumption, so that each handshake is a full one.
            let wire = Far::server(&server).with(|far| far.cut = Some(cut));
            if let Err(error) = connect(&fixture.config(), HOST, &wire) {
                failed += 1;
                assert_eq!(error.cause(), Cause::Network, "cut at {cut}: {error}");
                assert_ne!(Labels::for_establishment(Phase::Tls, error.cause()), Labels::NONE);
            }
        }
        // The last bytes that a client receives in TLS 1.3 are not part of the handshake.
        assert!(failed > 500 && failed + 300 > whole, "{failed} of {whole}");
    }
}

/// An error other than an I/O error does not indicate overload.
#[test]
#[doc(alias = "CMAP-97")]
fn peer_of_another_protocol_violates_the_protocol() {
    let config = Fixture::new().config();
    let mongod = [36, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xdd, 7, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 0];
    let speeches: [&[u8]; 5] =
        [b"HTTP/1.1 400 Bad Request\r\n\r\n", &mongod, b"-ERR unknown command\r\n", &[0; 64], &[0xff; 64]];
    for speech in speeches {
        let error = connect(&config, HOST, &Far::script(speech)).unwrap_err();
        assert_eq!(error.cause(), Cause::Protocol, "{speech:?} {error}");
        assert_eq!(Labels::for_establishment(Phase::Tls, error.cause()), Labels::NONE);
    }
    // Alerts: no common version or cipher, and one that is not an error.
    for (alert, cause) in [(40, Cause::Protocol), (70, Cause::Protocol), (80, Cause::Protocol), (0, Cause::Network)] {
        let level = if alert == 0 { 1 } else { 2 };
        let error = connect(&config, HOST, &Far::script(&[21, 3, 3, 0, 2, level, alert])).unwrap_err();
        assert_eq!(error.cause(), cause, "{alert} {error}");
    }
}

#[test]
fn silent_peer_at_its_end_is_a_network_error() {
    let error = connect(&Fixture::new().config(), HOST, &Far::script(&[])).unwrap_err();
    assert_eq!(error.cause(), Cause::Network);
}

#[test]
fn damaged_bytes_are_an_error_and_never_a_panic() {
    let fixture = Fixture::new();
    let server = fixture.server();
    let mut rng = Rng::new(1);
    for _ in 0..300 {
        let config = fixture.config();
        let wire = Far::server(&server);
        // The server's bytes with one of them changed.
        let at = rng.below(1500);
        let change = u8::try_from(rng.below(255)).unwrap() + 1;
        let damaged = super::support::Damaged { wire, at: usize::try_from(at).unwrap(), change };
        let outcome = run(poolhouse_client::tls::TlsStream::connect(&config, HOST, damaged));
        if let Err(error) = outcome {
            assert!(matches!(error.cause(), Cause::Network | Cause::Protocol | Cause::Certificate(_)), "{error}");
        }
    }
}

#[test]
fn random_bytes_are_an_error_and_never_a_panic() {
    let config = Fixture::new().config();
    let mut rng = Rng::new(2);
    for _ in 0..300 {
        let mut bytes: Vec<u8> = (0..rng.below(300)).map(|_| u8::try_from(rng.below(256)).unwrap()).collect();
        // Some begin like a handshake record.
        if rng.below(2) == 0 {
            bytes.splice(0..0, [22, 3, 3, 0, 100, 2, 0, 0, 96, 3, 3]);
        }
        let error = connect(&config, HOST, &Far::script(&bytes)).unwrap_err();
        assert!(matches!(error.cause(), Cause::Network | Cause::Protocol), "{error}");
    }
}

#[test]
fn host_that_no_certificate_can_name_is_an_error_of_the_certificate() {
    let fixture = Fixture::new();
    for host in ["", "a b", "fe80::1%eth0", "a..b"] {
        let error = connect(&fixture.config(), host, &Far::server(&fixture.server())).unwrap_err();
        assert!(matches!(error.cause(), Cause::Certificate(_)), "{host}: {error}");
    }
}

#[test]
fn end_without_close_notify_is_an_error_and_with_it_an_end() {
    let fixture = Fixture::new();
    for versions in [Versions::Tls12, Versions::Tls13] {
        for announced in [false, true] {
            let mut server = fixture.server();
            server.versions = versions;
            let wire = Far::server(&server);
            let mut stream = connect(&fixture.config(), HOST, &wire).unwrap();
            wire.0.borrow_mut().send_unsolicited(b"last words");
            if announced {
                wire.0.borrow_mut().end();
            }
            assert_eq!(run(receive(&mut stream, 10)).unwrap(), b"last words");
            for _ in 0..2 {
                let read = run(embedded_io_async::Read::read(&mut stream, &mut [0; 8]));
                match read {
                    Ok(count) => assert!(announced && count == 0),
                    Err(error) => assert!(!announced && error.kind() == std::io::ErrorKind::UnexpectedEof, "{error}"),
                }
            }
            // The other direction is still open.
            run(send(&mut stream, b"mine")).unwrap();
            assert_eq!(wire.0.borrow().heard, b"mine");
        }
    }
}
