//! All decoders of `poolhouse_wire`, MongoDB's and Cassandra's, with input that is unknown at
//! compile time, so all their panics are linked in.
#![no_std]
#![no_main]

use core::hint::black_box;
use embassy_executor::Spawner;
use poolhouse_board::host;
use poolhouse_cql as cql;
use poolhouse_cql::{Compression, CqlHandshake, CqlHandshakeOptions, Direction, Envelope, Password, Response, Version};
use poolhouse_size::end;
use poolhouse_wire::bson::{RawDocument, RawValue};
use poolhouse_wire::command::CommandReply;
use poolhouse_wire::hello::HelloReply;
use poolhouse_wire::message::{Decoded, Exchange, Limits, decode_header, decode_message};
use poolhouse_wire::{SliceSink, WireError};

/// Memory for a decoder, and for a handshake.
type Memory = [u8; 256];

#[embassy_executor::task]
async fn work() {
    for argument in host::arguments() {
        let bytes = argument.as_bytes();
        message(bytes);
        for version in Version::ALL {
            for direction in [Direction::Request, Direction::Response] {
                let _ = black_box(cql::decode_header(bytes, Some(version), direction, &cql::Limits::DEFAULT));
                envelopes(bytes, version, direction);
            }
            handshake(bytes, version);
        }
    }
    end(Ok(()));
}

/// Decodes a message of MongoDB's protocol, and the reply of an exchange.
fn message(bytes: &[u8]) {
    let _ = black_box(decode_header(bytes, &Limits::DEFAULT));
    if let Ok(Decoded::Done { value, .. }) = decode_message(bytes, &Limits::DEFAULT) {
        let _ = black_box(document(value.body()));
    }
    let mut exchange = Exchange::IDLE;
    let _ = black_box(exchange.decode_reply(bytes, &Limits::DEFAULT).is_ok());
    if let Ok((first, rest)) = RawDocument::split_first(bytes) {
        let _ = black_box((document(first), rest));
    }
}

/// Reads all fields of a document.
fn document(document: RawDocument<'_>) -> Result<(), WireError> {
    document.validate()?;
    black_box(HelloReply::parse(document)?.server_type());
    let command = CommandReply::parse(document)?;
    black_box((command.cause(), command.labels(), command.error_labels().count()));
    for element in document {
        let value = element?.value;
        black_box((value.as_integer(), value.as_flag(), value.as_binary(), value.as_object_id()));
        if let RawValue::Array(array) = value {
            black_box((array.strings().count(), array.iter().count()));
        }
    }
    black_box(document.get("key")?);
    Ok(())
}

/// Decodes envelopes, and each as every type of message.
fn envelopes(bytes: &[u8], version: Version, direction: Direction) {
    let (mut received, mut assembled): (Memory, Memory) = ([0; 256], [0; 256]);
    let sinks = (SliceSink::new(&mut received), SliceSink::new(&mut assembled));
    let mut decoder = cql::Decoder::new(version, direction, cql::Limits::DEFAULT, sinks.0, sinks.1);
    decoder.set_compression(bytes.first().filter(|first| **first > 9).map(|_| Compression::Snappy));
    if bytes.len() > 9 {
        decoder.set_started();
    }
    while let Ok(step) = decoder.decode(bytes) {
        let Some(envelope) = step.envelope else { break };
        response(&envelope);
    }
}

fn response(envelope: &Envelope<'_>) {
    if let Ok(parts) = envelope.parts() {
        black_box((parts.message(), parts.warnings.count(), parts.custom_payload.count()));
    }
    let Ok(response) = envelope.response() else { return };
    match black_box(response) {
        Response::Error(failure) => {
            let _ = black_box((failure.code.name(), failure.details()));
        }
        Response::Supported(supported) => {
            black_box(supported.options().map(|(_, values)| values.count()).sum::<usize>());
            black_box(supported.protocol_versions().count());
        }
        Response::Result(outcome) => {
            let _ = black_box((outcome.keyspace(), outcome.prepared_id(), outcome.schema_change()));
        }
        Response::Ready
        | Response::Authenticate(_)
        | Response::Event(_)
        | Response::AuthChallenge(_)
        | Response::AuthSuccess(_)
        | _ => {}
    }
}

/// Decodes replies of a server during the handshake.
fn handshake(bytes: &[u8], version: Version) {
    let (mut received, mut assembled, mut request): (Memory, Memory, Memory) = ([0; 256], [0; 256], [0; 256]);
    let options = CqlHandshakeOptions { version, ..CqlHandshakeOptions::DEFAULT };
    let sinks = (SliceSink::new(&mut received), SliceSink::new(&mut assembled));
    let who = Password { username: "ada", password: "hunter2" };
    let mut handshake = CqlHandshake::new(options, who, sinks.0, sinks.1);
    for piece in bytes.chunks(7) {
        let _ = black_box(handshake.poll_transmit(&mut SliceSink::new(&mut request)));
        let _ = black_box(handshake.handle_input(piece));
    }
}

#[cortex_m_rt::entry]
fn main() -> ! {
    poolhouse_board::run(|spawner: Spawner| match work() {
        Ok(token) => spawner.spawn(token),
        Err(_) => end(Err(2)),
    })
}
