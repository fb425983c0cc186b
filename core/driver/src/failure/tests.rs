use super::*;
use crate::ExchangeError;
use alloc::string::ToString;
use core::error::Error;
use poolhouse_wire::{WireError, WireErrorKind};
use std::io;

fn refused() -> Reason {
    Reason::new(io::Error::from(io::ErrorKind::ConnectionRefused))
}

#[test]
fn first_bytes_of_another_protocol_are_recognized() {
    let wire = || Reason::new(WireError::new(WireErrorKind::MessageTooShort { length_bytes: 3 }, 0));
    let closed = || Reason::from(Finding::Closed);
    let http = "the bytes are not MongoDB's protocol; the server replies in HTTP";
    let tls = "the server replies in TLS; does it require TLS? (tls=true)";
    for (reason, received, is_private, expected) in [
        (wire(), b"HTTP/1.1 400".as_slice(), false, http),
        (closed(), b"HTTP", true, http),
        (closed(), b"\x15\x03\x03\x00\x02\x02\x46", false, tls),
        (closed(), b"\x15\x03\x03\x00\x02\x02\x46", true, "the server closed the connection"),
        (closed(), b"", false, "the server closed the connection; does the server require TLS? (tls=true)"),
        (refused(), b"", true, "connection refused"),
        (wire(), b"\x03\0\0\0", false, "message length 3 is too small at byte 0"),
        (closed(), b"\x15\x03\x00\x00", false, "the server closed the connection"),
    ] {
        let failure = hinted(ConnectError::new(Cause::Network, reason), received, is_private);
        assert_eq!(failure.reason.to_string(), expected, "{received:?}");
    }
    let late = ConnectError::new(Cause::NetworkTimeout, Finding::TimedOut(Phase::Hello).into());
    let text = hinted(late, b"", false).reason.to_string();
    assert_eq!(text, "the server did not reply to hello in time", "a slow server gets no hint");
    let failure = hinted(ConnectError::new(Cause::Network, refused()), b"", false);
    let source = failure.reason.get().and_then(Error::source).and_then(|error| error.downcast_ref::<io::Error>());
    assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::ConnectionRefused));
}

#[test]
fn each_finding_has_its_text() {
    let shown = |finding: Finding| Reason::from(finding).to_string();
    for (finding, expected) in [
        (Finding::Closed, "the server closed the connection"),
        (Finding::TimedOut(Phase::Connect), "the connection (name lookup, TCP, TLS) was not established in time"),
        (Finding::TimedOut(Phase::Hello), "the server did not reply to hello in time"),
        (Finding::TimedOut(Phase::Authentication), "the server did not reply to the authentication in time"),
        (
            Finding::Exhausted { in_use: 2, pending: 0, max_pool_size: 2, waiting: 0 },
            "maxPoolSize 2, 2 in use, 0 being established, 0 others waiting",
        ),
        (
            Finding::Exhausted { in_use: 9, pending: 1, max_pool_size: 0, waiting: 3 },
            "9 in use, 1 being established, 3 others waiting",
        ),
    ] {
        assert_eq!(shown(finding), expected);
    }
}

#[test]
fn out_of_memory_error_of_an_exchange_is_its_own_reason() {
    let error = ExchangeError::NoMemory;
    assert_eq!(error.clone().into_reason().to_string(), error.to_string());
}
