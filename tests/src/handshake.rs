//! The core's handshake over a blocking socket.

use std::io::{self, Read, Write};

use poolhouse_core::Cause;
use poolhouse_wire::Authenticator;
use poolhouse_wire::handshake::{Established, Handshake, HandshakeError, Next};
use poolhouse_wire::hello::{ClientMetadata, HandshakeHello, MetadataOptions};

/// Executes a handshake to its end, reading `read_bytes` at a time.
pub fn perform_handshake<A: Authenticator>(
    stream: &mut (impl Read + Write),
    handshake: &mut Handshake<'_, A>,
    read_bytes: usize,
) -> Result<Established, HandshakeError> {
    assert!(read_bytes > 0, "read_bytes must be at least 1");
    let (mut out, mut input, mut piece) = (Vec::new(), Vec::new(), vec![0; read_bytes]);
    loop {
        out.clear();
        if handshake.poll_transmit(&mut out)? {
            stream.write_all(&out).map_err(|error| handshake.failed(cause(&error)))?;
        }
        let handled = handshake.handle_input(&input)?;
        let (consumed, next) = (handled.consumed_bytes, handled.next);
        input.drain(..consumed);
        match next {
            Next::Transmit | Next::Work => {}
            Next::Established(established) => return Ok(established),
            Next::Receive { .. } => match stream.read(&mut piece) {
                Ok(0) => return Err(handshake.failed(Cause::Network)),
                Ok(count) => input.extend_from_slice(piece.get(..count).unwrap_or_default()),
                Err(error) => return Err(handshake.failed(cause(&error))),
            },
        }
    }
}

/// Returns the client metadata of a test.
#[must_use]
pub fn client() -> ClientMetadata {
    let options =
        MetadataOptions { driver_name: "poolhouse-tests", driver_version: "0", os_type: "any", ..Default::default() };
    ClientMetadata::new(&options).expect("short")
}

/// Creates a handshake with authentication.
#[must_use]
pub fn with<'a, A: Authenticator>(client: &'a ClientMetadata, authenticator: A) -> Handshake<'a, A> {
    Handshake::with_authenticator(HandshakeHello::new(client), authenticator)
}

fn cause(error: &io::Error) -> Cause {
    let timed_out = matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
    if timed_out { Cause::NetworkTimeout } else { Cause::Network }
}
