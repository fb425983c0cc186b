//! The decision after each error.

use super::*;
use alloc::vec;
use alloc::vec::Vec;
use poolhouse_cql::{Consistency, Direction, Envelope, Flags, Header, Opcode, Response, Version};

const NEVER: [bool; 3] = [false; 3];
const IF_IDEMPOTENT: [bool; 3] = [false, true, true];
const ONCE: [bool; 3] = [true, true, false];
const ONCE_IF_IDEMPOTENT: [bool; 3] = [false, true, false];

/// Whether a request is sent again after an error with these details: one that is not idempotent, an
/// idempotent one, and an idempotent one after a retry.
fn decisions(policy: RetryPolicy, code: ErrorCode, details: &[u8]) -> [bool; 3] {
    let body: Vec<u8> = [&code.number().to_be_bytes(), &[0, 0][..], details].concat();
    let header = Header {
        version: Version::V5,
        direction: Direction::Response,
        flags: Flags::default(),
        stream: 0,
        opcode: Opcode::Error,
        length_bytes: 0,
    };
    let envelope = Envelope { header, body: &body };
    let Ok(Response::Error(failure)) = envelope.response() else { panic!("well-formed") };
    let cases = [(false, false), (true, false), (true, true)];
    cases.map(|(idempotent, has_retried)| policy.allows(&failure, idempotent, has_retried))
}

/// Consistency level, and the numbers of replicas that answered and were required.
fn replicas(consistency: Consistency, received: u8, required: u8) -> Vec<u8> {
    [&consistency.number().to_be_bytes()[..], &[0, 0, 0, received, 0, 0, 0, required]].concat()
}

fn read_timeout(consistency: Consistency, received: u8, has_data: bool) -> Vec<u8> {
    [replicas(consistency, received, 2), vec![has_data.into()]].concat()
}

fn write_timeout(write_type: &str) -> Vec<u8> {
    let length = u16::try_from(write_type.len()).expect("short").to_be_bytes();
    [&replicas(Consistency::Quorum, 1, 2), &length[..], write_type.as_bytes()].concat()
}

#[test]
fn request_is_sent_again_where_this_can_succeed_and_does_no_harm() {
    use Consistency::Quorum;
    let cases = [
        (ErrorCode::IS_BOOTSTRAPPING, vec![], [true; 3]),
        (ErrorCode::OVERLOADED, vec![], IF_IDEMPOTENT),
        (ErrorCode::SERVER_ERROR, vec![], IF_IDEMPOTENT),
        (ErrorCode::TRUNCATE_ERROR, vec![], IF_IDEMPOTENT),
        (ErrorCode::UNAVAILABLE, replicas(Quorum, 2, 1), ONCE_IF_IDEMPOTENT),
        (ErrorCode::READ_TIMEOUT, read_timeout(Quorum, 2, false), ONCE),
        (ErrorCode::READ_TIMEOUT, read_timeout(Quorum, 3, false), ONCE),
        (ErrorCode::READ_TIMEOUT, read_timeout(Quorum, 2, true), NEVER),
        (ErrorCode::READ_TIMEOUT, read_timeout(Quorum, 1, false), NEVER),
        (ErrorCode::READ_TIMEOUT, vec![], NEVER),
        (ErrorCode::WRITE_TIMEOUT, write_timeout("BATCH_LOG"), ONCE_IF_IDEMPOTENT),
        (ErrorCode::WRITE_TIMEOUT, write_timeout("SIMPLE"), NEVER),
        (ErrorCode::WRITE_TIMEOUT, vec![], NEVER),
    ];
    for (code, details, expected) in &cases {
        assert_eq!(decisions(RetryPolicy::Default, *code, details), *expected, "{code} {details:?}");
        let is_refused = *code == ErrorCode::IS_BOOTSTRAPPING;
        assert_eq!(decisions(RetryPolicy::Fallthrough, *code, details), [is_refused; 3], "{code}");
    }
    for code in ErrorCode::ALL.iter().filter(|code| cases.iter().all(|(known, ..)| known != *code)) {
        assert_eq!(decisions(RetryPolicy::Default, *code, &[]), NEVER, "{code}");
    }
}
