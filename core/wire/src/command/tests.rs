use alloc::format;
use alloc::vec::Vec;

use super::*;
use crate::bson::{DocumentWriter, ElementType, RawValue};
use crate::error::EncodeError;
use crate::server::ObjectId;

type Write<'a> = &'a dyn Fn(&mut DocumentWriter<'_, Vec<u8>>) -> Result<(), EncodeError>;

fn bytes(write: Write<'_>) -> Vec<u8> {
    let mut sink = Vec::new();
    DocumentWriter::write(&mut sink, write).expect("room");
    sink
}

fn parse(bytes: &[u8]) -> Result<CommandReply<'_>, WireError> {
    CommandReply::parse(RawDocument::new(bytes).expect("opens"))
}

#[test]
fn ok_is_one_or_true_in_any_type_and_nothing_else() {
    let cases = [
        (RawValue::Double(1.0), true),
        (RawValue::Int32(1), true),
        (RawValue::Int64(1), true),
        (RawValue::Boolean(true), true),
        (RawValue::Double(0.0), false),
        (RawValue::Double(2.0), false),
        (RawValue::Double(1.5), false),
        (RawValue::Double(f64::NAN), false),
        (RawValue::Int32(0), false),
        (RawValue::Int64(-1), false),
        (RawValue::Boolean(false), false),
    ];
    for (value, expected) in cases {
        let reply = bytes(&|d| d.value("ok", value).map(drop));
        let reply = parse(&reply).expect("well-formed");
        assert_eq!(reply.ok, expected, "{value:?}");
        assert_eq!(reply.cause(), if expected { None } else { Some(Cause::Command { code: 0 }) });
    }
}

#[test]
fn ok_that_is_missing_or_of_a_wrong_type_is_an_error() {
    let missing = WireErrorKind::FieldMissing { name: "ok" };
    assert_eq!(parse(&bytes(&|d| d.int32("n", 1).map(drop))).map_err(WireError::kind).err(), Some(missing));
    assert_eq!(parse(&bytes(&|d| d.null("ok").map(drop))).map_err(WireError::kind).err(), Some(missing));
    let wrong = WireErrorKind::FieldType { name: "ok", found: ElementType::String };
    assert_eq!(parse(&bytes(&|d| d.str("ok", "1").map(drop))).map_err(WireError::kind).err(), Some(wrong));
}

/// For every order of the fields.
#[test]
#[doc(alias = "SDAM-84")]
fn error_is_read_in_any_order_of_its_fields() {
    let version = TopologyVersion { process_id: ObjectId([3; 12]), counter: 9 };
    let fields: [Write<'_>; 6] = [
        &|d| d.double("ok", 0.0).map(drop),
        &|d| d.str("errmsg", "down").map(drop),
        &|d| d.int32("code", 91).map(drop),
        &|d| d.str("codeName", "ShutdownInProgress").map(drop),
        &|d| d.array("errorLabels", |labels| labels.str("RetryableWriteError")?.str("Own").map(drop)).map(drop),
        &|d| {
            d.document("topologyVersion", |v| {
                v.int64("counter", 9)?.object_id("processId", ObjectId([3; 12])).map(drop)
            })
            .map(drop)
        },
    ];
    for first in 0..fields.len() {
        for second in 0..fields.len() {
            let mut order: Vec<usize> = (0..fields.len()).collect();
            order.rotate_left(first);
            order.swap(0, second);
            let reply = bytes(&|d| order.iter().try_for_each(|&index| fields[index](d)));
            let reply = parse(&reply).expect("well-formed");
            assert_eq!((reply.ok, reply.code), (false, Some(91)));
            assert_eq!((reply.code_name, reply.message), (Some("ShutdownInProgress"), Some("down")));
            assert_eq!(reply.topology_version, Some(version));
            assert_eq!(reply.labels(), Labels::RETRYABLE_WRITE_ERROR);
            assert_eq!(reply.error_labels().collect::<Vec<_>>(), ["RetryableWriteError", "Own"]);
            assert_eq!(reply.cause(), Some(Cause::Command { code: 91 }));
        }
    }
}

#[test]
fn write_concern_error_is_read_with_its_labels_though_ok_is_one() {
    let reply = bytes(&|d| {
        d.document("writeConcernError", |e| {
            e.int64("code", 11600)?.str("codeName", "InterruptedAtShutdown")?.str("errmsg", "bye")?;
            e.array("errorLabels", |labels| labels.str("RetryableWriteError").map(drop)).map(drop)
        })?;
        d.array("errorLabels", |labels| labels.str("RetryableError").map(drop))?.int32("ok", 1).map(drop)
    });
    let reply = parse(&reply).expect("well-formed");
    let error = reply.write_concern_error.expect("there");
    assert_eq!((error.code, error.code_name, error.message), (Some(11600), Some("InterruptedAtShutdown"), Some("bye")));
    assert_eq!(reply.labels(), Labels::RETRYABLE_ERROR | Labels::RETRYABLE_WRITE_ERROR);
    assert_eq!((reply.cause(), reply.code), (None, None));
}

/// The contents of `writeErrors` are ignored.
#[test]
#[doc(alias = "SDAM-79")]
fn write_errors_are_ignored() {
    let reply = bytes(&|d| {
        d.array("writeErrors", |errors| errors.document(|e| e.int32("code", 11600).map(drop)).map(drop))?
            .int32("ok", 1)
            .map(drop)
    });
    let reply = parse(&reply).expect("well-formed");
    assert_eq!((reply.code, reply.write_concern_error), (None, None));
}

#[test]
fn uncritical_fields_of_a_wrong_type_count_as_absent() {
    let reply = bytes(&|d| {
        d.int32("ok", 0)?.str("code", "91")?.int32("codeName", 1)?.null("errmsg")?.str("errorLabels", "x")?;
        d.boolean("writeConcernError", true).map(drop)
    });
    let reply = parse(&reply).expect("tolerated");
    assert_eq!((reply.code, reply.code_name, reply.message), (None, None, None));
    assert_eq!((reply.labels(), reply.write_concern_error), (Labels::NONE, None));
    let large = bytes(&|d| d.int32("ok", 0)?.int64("code", i64::MAX).map(drop));
    assert_eq!(parse(&large).expect("tolerated").cause(), Some(Cause::Command { code: 0 }));
    let labels = bytes(&|d| {
        d.int32("ok", 0)?;
        d.array("errorLabels", |labels| labels.value(RawValue::Int32(1))?.str("RetryableError").map(drop)).map(drop)
    });
    assert_eq!(parse(&labels).expect("tolerated").labels(), Labels::RETRYABLE_ERROR);
}

#[test]
fn malformed_topology_version_is_an_error_with_its_reason() {
    let kind = |write: Write<'_>| parse(&bytes(write)).expect_err("refused").kind();
    assert_eq!(
        kind(&|d| d.int32("ok", 0)?.int32("topologyVersion", 1).map(drop)),
        WireErrorKind::FieldType { name: "topologyVersion", found: ElementType::Int32 }
    );
    assert_eq!(
        kind(&|d| d.int32("ok", 0)?.document("topologyVersion", |v| v.int64("counter", 1).map(drop)).map(drop)),
        WireErrorKind::FieldMissing { name: "topologyVersion.processId" }
    );
    assert_eq!(
        kind(&|d| {
            d.int32("ok", 0)?;
            d.document("topologyVersion", |v| v.object_id("processId", ObjectId([0; 12])).map(drop)).map(drop)
        }),
        WireErrorKind::FieldMissing { name: "topologyVersion.counter" }
    );
    assert_eq!(
        kind(&|d| d.int32("ok", 0)?.document("topologyVersion", |v| v.str("counter", "1").map(drop)).map(drop)),
        WireErrorKind::FieldType { name: "topologyVersion.counter", found: ElementType::String }
    );
}

#[test]
fn first_of_repeated_fields_is_used() {
    let reply = bytes(&|d| d.int32("ok", 0)?.int32("ok", 1)?.int32("code", 1)?.int32("code", 2).map(drop));
    let reply = parse(&reply).expect("well-formed");
    assert_eq!((reply.ok, reply.code), (false, Some(1)));
}

/// The fast check may accept a reply only if the full parser also finds it successful,
/// whatever other fields the reply has.
#[test]
#[doc(alias = "SDAM-84")]
fn plain_success_is_a_success_in_the_full_parser() {
    let ok: [(Write<'_>, bool); 8] = [
        (&|d| d.double("ok", 1.0).map(drop), true),
        (&|d| d.int32("ok", 1).map(drop), true),
        (&|d| d.int64("ok", 1).map(drop), false),
        (&|d| d.value("ok", RawValue::Boolean(true)).map(drop), false),
        (&|d| d.double("ok", 0.0).map(drop), false),
        (&|d| d.int32("ok", 0).map(drop), false),
        (&|d| d.str("ok", "1").map(drop), false),
        (&|_| Ok(()), false),
    ];
    let beside: [(Write<'_>, bool); 9] = [
        (&|_| Ok(()), true),
        (&|d| d.array("writeErrors", |a| a.document(|_| Ok(())).map(drop)).map(drop), false),
        (&|d| d.int32("n", 0).map(drop), true),
        (&|d| d.document("$clusterTime", |d| d.int32("ok", 0).map(drop)).map(drop), true),
        (&|d| d.str("errmsg", "of no consequence").map(drop), true),
        (&|d| d.document("writeConcernError", |d| d.int32("code", 91).map(drop)).map(drop), false),
        (&|d| d.int32("topologyVersion", 1).map(drop), false),
        (&|d| d.int32("ok", 1).map(drop), false),
        (&|d| d.double("ok", 0.0).map(drop), false),
    ];
    for (ok_index, (write_ok, usual)) in ok.iter().enumerate() {
        for (beside_index, (write_beside, harmless)) in beside.iter().enumerate() {
            for ok_first in [true, false] {
                let (one, other) = if ok_first { (write_ok, write_beside) } else { (write_beside, write_ok) };
                let reply = bytes(&|d| {
                    one(d)?;
                    other(d)
                });
                let plain = CommandReply::is_plain_success(RawDocument::new(&reply).expect("opens"));
                let case = format!("{ok_index}, {beside_index}, {ok_first}");
                if plain {
                    let closer = parse(&reply).expect(&case);
                    assert!(closer.ok && !closer.has_write_errors(), "{case}");
                }
                if *usual && *harmless {
                    assert!(plain, "{case}: a usual reply needs no closer look");
                }
                if *usual && !*harmless {
                    assert!(!plain, "{case}");
                }
            }
        }
    }
}

#[test]
fn malformed_reply_is_no_plain_success() {
    let mut reply = bytes(&|d| d.double("ok", 1.0)?.int32("n", 1).map(drop));
    assert!(CommandReply::is_plain_success(RawDocument::new(&reply).expect("opens")));
    // The type byte of `n`.
    reply[16] = 0x55;
    assert!(!CommandReply::is_plain_success(RawDocument::new(&reply).expect("opens")));
}

#[test]
fn fields_of_a_write_concern_error_that_are_null_count_as_absent() {
    let reply = bytes(&|d| {
        d.int32("ok", 1)?;
        d.document("writeConcernError", |e| {
            e.null("code")?.null("errmsg")?.null("errorLabels")?.int32("code", 64)?.str("errmsg", "waited").map(drop)
        })
        .map(drop)
    });
    let reply = parse(&reply).expect("well-formed");
    let error = reply.write_concern_error.expect("there");
    assert_eq!((error.code, error.code_name, error.message), (Some(64), None, Some("waited")));
    assert_eq!(reply.labels(), Labels::NONE);
}

/// Command Logging and Monitoring, "Security".
#[test]
fn commands_of_authentication_and_users_are_sensitive() {
    let is = |name: &str, speculates: bool| {
        let mut bytes = Vec::new();
        DocumentWriter::write(&mut bytes, |body| {
            body.int32(name, 1)?;
            if speculates { body.document("speculativeAuthenticate", |_| Ok(())).map(drop) } else { Ok(()) }
        })
        .expect("room");
        is_sensitive(RawDocument::new(&bytes).expect("BSON"))
    };
    let of_users = ["authenticate", "saslStart", "saslContinue", "getnonce", "createUser", "updateUser"];
    for name in of_users.into_iter().chain(["copydbgetnonce", "copydbsaslstart", "copydb"]) {
        assert!(is(name, false), "{name}");
    }
    for hello in ["hello", "isMaster", "ismaster"] {
        assert!(!is(hello, false) && is(hello, true), "{hello}");
    }
    assert!(!is("find", true) && !is_sensitive(RawDocument::EMPTY));
}

#[test]
fn error_whose_text_is_not_utf8_keeps_its_code_name_and_labels() {
    let mut bytes = Vec::new();
    DocumentWriter::write(&mut bytes, |reply| {
        reply.double("ok", 0.0)?.str("errmsg", "bad ? value")?.int32("code", 112)?.str("codeName", "WriteConflict")?;
        reply.array("errorLabels", |labels| labels.str("?")?.str("RetryableWriteError").map(drop))?;
        reply.document("writeConcernError", |error| error.str("errmsg", "?")?.int32("code", 91).map(drop))?;
        reply.document("other", |other| other.str("?", "?").map(drop)).map(drop)
    })
    .expect("room");
    bytes.iter_mut().filter(|byte| **byte == b'?').for_each(|byte| *byte = 0xff);
    let reply = CommandReply::parse(RawDocument::new(&bytes).expect("opens")).expect("a reply");
    assert_eq!((reply.ok, reply.code, reply.code_name), (false, Some(112), Some("WriteConflict")));
    assert_eq!(reply.message, Some("bad "));
    assert!(reply.labels().contains(Labels::RETRYABLE_WRITE_ERROR));
    assert_eq!(reply.write_concern_error.and_then(|error| error.code), Some(91));
}

#[test]
fn commands_with_secrets_are_recognized_whatever_their_first_value_is() {
    let mut bytes = Vec::new();
    DocumentWriter::write(&mut bytes, |body| body.str("saslStart", "?")?.str("payload", "secret").map(drop))
        .expect("room");
    bytes.iter_mut().filter(|byte| **byte == b'?').for_each(|byte| *byte = 0xff);
    assert!(is_sensitive(RawDocument::new(&bytes).expect("opens")));
}

#[test]
fn request_for_stored_credentials_is_sensitive() {
    let is = |name: &str, shows: Option<RawValue<'_>>| {
        let mut bytes = Vec::new();
        DocumentWriter::write(&mut bytes, |body| {
            body.str(name, "ann")?;
            shows.map_or(Ok(()), |shows| body.value("showCredentials", shows).map(drop))
        })
        .expect("room");
        is_sensitive(RawDocument::new(&bytes).expect("BSON"))
    };
    let yes = RawValue::Boolean(true);
    assert!(is("usersInfo", Some(yes)) && is("usersinfo", Some(yes)) && is("usersInfo", Some(RawValue::Int32(1))));
    assert!(!is("usersInfo", None) && !is("usersInfo", Some(RawValue::Boolean(false))) && !is("find", Some(yes)));
}
