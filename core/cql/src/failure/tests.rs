use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::*;
use crate::CqlErrorKind;
use crate::tests::{hex, string};

/// The body of an error.
fn body(code: ErrorCode, details: &[u8]) -> Vec<u8> {
    [&code.number().to_be_bytes()[..], &string("why"), details].concat()
}

fn details(bytes: &[u8]) -> Result<FailureDetails<'_>, CqlError> {
    let failure = Failure::read(&mut Reader::new(bytes, 9)).expect("code and message are there");
    assert_eq!(failure.message, "why");
    failure.details()
}

#[test]
fn codes_have_the_numbers_and_names_of_the_protocol() {
    let numbers = [
        0x0000, 0x000a, 0x0100, 0x1000, 0x1001, 0x1002, 0x1003, 0x1100, 0x1200, 0x1300, 0x1400, 0x1500, 0x1600, 0x1700,
        0x2000, 0x2100, 0x2200, 0x2300, 0x2400, 0x2500,
    ];
    assert_eq!(ErrorCode::ALL.iter().map(|code| code.number()).collect::<Vec<_>>(), numbers);
    assert!(ErrorCode::ALL.iter().all(|code| code.name().is_some_and(|name| !name.is_empty())));
    assert_eq!(ErrorCode::OVERLOADED.to_string(), "overloaded (0x1001)");
    assert_eq!(format!("{:?}", ErrorCode::new(0x9999)), "unknown error (0x9999)");
    assert_eq!(ErrorCode::new(-1).name(), None);
}

#[test]
fn details_of_an_error_depend_on_its_code() {
    let (consistency, unavailable) = (Consistency::Quorum, hex("00040000000300000001"));
    let expected = FailureDetails::Unavailable { consistency, required: 3, alive: 1 };
    assert_eq!(details(&body(ErrorCode::UNAVAILABLE, &unavailable)), Ok(expected));

    let write = [hex("00040000000100000002"), string("BATCH_LOG")].concat();
    let expected = FailureDetails::WriteTimeout { consistency, received: 1, required: 2, write_type: "BATCH_LOG" };
    assert_eq!(details(&body(ErrorCode::WRITE_TIMEOUT, &write)), Ok(expected));
    // In v5 a number follows, for conditional writes.
    assert_eq!(details(&body(ErrorCode::WRITE_TIMEOUT, &[write.clone(), hex("0005")].concat())), Ok(expected));

    for (byte, data_present) in [(0, false), (1, true), (0xff, true)] {
        let read = [hex("00040000000100000002"), [byte].to_vec()].concat();
        let expected = FailureDetails::ReadTimeout { consistency, received: 1, required: 2, data_present };
        assert_eq!(details(&body(ErrorCode::READ_TIMEOUT, &read)), Ok(expected));
    }
    let unprepared = FailureDetails::Unprepared { id: &[0xab, 0xcd] };
    assert_eq!(details(&body(ErrorCode::UNPREPARED, &hex("0002abcd"))), Ok(unprepared));
    for code in [ErrorCode::OVERLOADED, ErrorCode::ALREADY_EXISTS, ErrorCode::READ_FAILURE, ErrorCode::new(77)] {
        assert_eq!(details(&body(code, &[1, 2, 3])), Ok(FailureDetails::Other(&[1, 2, 3])));
    }
}

#[test]
fn details_that_end_too_early_are_truncated() {
    for (code, whole) in [
        (ErrorCode::UNAVAILABLE, hex("00040000000300000001")),
        (ErrorCode::WRITE_TIMEOUT, [hex("00040000000100000002"), string("CAS")].concat()),
        (ErrorCode::READ_TIMEOUT, hex("0004000000010000000201")),
        (ErrorCode::UNPREPARED, hex("0002abcd")),
    ] {
        for end in 0..whole.len() {
            let bytes = body(code, &whole[..end]);
            let error = details(&bytes).expect_err("cut");
            assert!(matches!(error.kind(), CqlErrorKind::Truncated { .. }), "{error}");
        }
    }
    let bytes = body(ErrorCode::UNAVAILABLE, &hex("000b0000000300000001"));
    let error = details(&bytes).expect_err("no such consistency");
    let kind = CqlErrorKind::FieldValue { name: "consistency", value: 11 };
    assert_eq!((error.kind(), error.offset()), (kind, 9 + 4 + 5));
}
