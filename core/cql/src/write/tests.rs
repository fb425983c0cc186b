use alloc::vec::Vec;

use super::*;
use crate::tests::hex;

const OUTGOING: Outgoing = Outgoing::new(Version::V4, 5);

fn written(
    write: impl FnOnce(&mut BodyWriter<'_, Vec<u8>>) -> Result<(), CqlEncodeError>,
) -> Result<Vec<u8>, CqlEncodeError> {
    let mut sink = hex("aa");
    encode_envelope(&mut sink, OUTGOING, Opcode::Query, &Limits::DEFAULT, write)?;
    Ok(sink.split_off(1))
}

#[test]
fn notations_are_written_as_they_are_read() {
    let bytes = written(|body| {
        body.byte(1)?.short(0x0203)?.int(-2)?.long(0x0405)?.string("né")?.long_string("ok")?.short_bytes(&[8])?;
        body.bytes(None)?.bytes(Some(&[]))?.strings(["a", ""].into_iter())?;
        body.bytes_with(|inner| inner.raw(&[9, 9]).map(drop))?.raw(&[7]).map(drop)
    });
    let body = "01 0203 fffffffe 0000000000000405 00036ec3a9 000000026f6b 000108 ffffffff 00000000 0002000161 0000 000000020909 07";
    let body = hex(&body.replace(' ', ""));
    let expected = [&[4, 0, 0, 5, 7, 0, 0, 0, u8::try_from(body.len()).expect("short")][..], &body].concat();
    assert_eq!(bytes, Ok(expected));
}

#[test]
fn direction_follows_from_the_opcode_and_the_stream_must_fit_it() {
    let encode = |stream, opcode| {
        let mut sink = Vec::new();
        let outgoing = Outgoing::new(Version::V3, stream).with_flags(Flags::TRACING);
        encode_envelope(&mut sink, outgoing, opcode, &Limits::DEFAULT, |_| Ok(())).map(|_| sink)
    };
    assert_eq!(encode(0, Opcode::Ready), Ok(hex("830200000200000000")));
    assert_eq!(encode(i16::MAX, Opcode::Options), Ok(hex("03027fff0500000000")));
    assert_eq!(encode(-1, Opcode::Event), Ok(hex("8302ffff0c00000000")));
    assert_eq!(encode(-1, Opcode::Options), Err(CqlEncodeError::Stream { stream: -1 }));
    assert_eq!(encode(0, Opcode::Event), Err(CqlEncodeError::Stream { stream: 0 }));
}

#[test]
fn too_long_values_are_refused_and_nothing_is_written() {
    let limits = Limits { body_bytes_max: 10 };
    let mut sink = hex("aabb");
    let mut encode = |length: usize| {
        let body = alloc::vec![1; length];
        let result = encode_envelope(&mut sink, OUTGOING, Opcode::Query, &limits, |writer| writer.raw(&body).map(drop));
        (result, sink.len())
    };
    assert_eq!(encode(11), (Err(CqlEncodeError::BodyTooLarge { length_bytes: 11, max_bytes: 10 }), 2));
    assert_eq!(encode(10), (Ok(19), 21));
    let long = "x".repeat(65_536);
    let text = written(|body| body.string(&long).map(drop));
    assert_eq!(text, Err(CqlEncodeError::StringTooLong { length_bytes: 65_536 }));
    assert!(written(|body| body.string(&long[1..]).map(drop)).is_ok());
    let list = written(|body| body.strings(core::iter::repeat_n("", 65_536)).map(drop));
    assert_eq!(list, Err(CqlEncodeError::ListTooLong { count: 65_536 }));
}

#[test]
fn sink_that_is_full_at_any_byte_is_left_as_it_was() {
    let whole = written(|body| body.string("abc")?.bytes(Some(&[1]))?.int(3).map(drop)).expect("it grows");
    for room in 0..=whole.len() {
        let mut buffer = alloc::vec![0; room];
        let mut sink = poolhouse_wire::SliceSink::new(&mut buffer);
        let result = encode_envelope(&mut sink, OUTGOING, Opcode::Query, &Limits::DEFAULT, |body| {
            body.string("abc")?.bytes_with(|inner| inner.byte(1).map(drop))?.int(3).map(drop)
        });
        if room < whole.len() {
            assert_eq!((result, sink.written()), (Err(CqlEncodeError::Full), &[][..]), "room for {room}");
        } else {
            assert_eq!((result, sink.written()), (Ok(whole.len()), &whole[..]));
        }
    }
}

#[test]
fn debug_shows_lengths_only() {
    let mut shown = alloc::string::String::new();
    written(|body| {
        body.string("hunter2")?;
        shown = alloc::format!("{body:?}");
        Ok(())
    })
    .expect("room");
    assert_eq!(shown, "BodyWriter(19 bytes)");
}

/// `Unauthenticated` writes an empty token, and refuses every message of the server.
#[test]
fn unauthenticated_writes_an_empty_token_and_refuses_messages() {
    use crate::CqlAuthenticator;
    use poolhouse_wire::{AuthError, Unauthenticated};
    let mut nobody = Unauthenticated;
    let token = written(|body| body.bytes_with(|token| nobody.write_token(token)).map(drop));
    assert_eq!(token, written(|body| body.bytes(Some(&[])).map(drop)));
    assert_eq!(nobody.handle_authenticate("any"), Err(AuthError::UsernameMissing));
    assert_eq!(nobody.handle_challenge(Some(&[1])), Err(AuthError::Ended));
    assert_eq!(nobody.handle_success(None), Err(AuthError::Ended));
    let mut none = None::<Unauthenticated>;
    assert_eq!(none.handle_authenticate("any"), Err(AuthError::UsernameMissing));
    assert_eq!(
        (none.handle_challenge(None), none.handle_success(None)),
        (Err(AuthError::Ended), Err(AuthError::Ended))
    );
    assert_eq!(written(|body| body.bytes_with(|token| none.write_token(token)).map(drop)), token);
}
