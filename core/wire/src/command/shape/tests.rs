use alloc::vec::Vec;

use super::*;
use crate::bson::DocumentWriter;
use crate::error::EncodeError;

type Write<'a> = &'a dyn Fn(&mut DocumentWriter<'_, Vec<u8>>) -> Result<(), EncodeError>;

/// Examines the command of this name with these fields.
fn with<T>(name: &str, fields: Write<'_>, check: impl FnOnce(CommandShape<'_>) -> T) -> T {
    let mut sink = Vec::new();
    DocumentWriter::write(&mut sink, |command| {
        command.str(name, "c")?;
        fields(command)
    })
    .expect("room");
    check(CommandShape::parse(RawDocument::new(&sink).expect("opens")).expect("well-formed"))
}

fn retry(name: &str, fields: Write<'_>) -> Retry {
    with(name, fields, |shape| shape.retry)
}

#[test]
fn reads_and_writes_are_recognized_by_their_names() {
    let plain: Write<'_> = &|_| Ok(());
    for name in ["find", "aggregate", "distinct", "count", "listDatabases", "listCollections", "listIndexes"] {
        assert_eq!(retry(name, plain), Retry::Read, "{name}");
        assert!(!with(name, plain, |shape| shape.writes), "{name}");
    }
    for name in ["insert", "update", "delete", "bulkWrite", "findAndModify", "findandmodify"] {
        assert_eq!(retry(name, plain), Retry::Write, "{name}");
        assert!(with(name, plain, |shape| shape.writes), "{name}");
    }
    for name in ["ping", "getMore", "killCursors", "drop", "createIndexes", "hello", "Find"] {
        assert_eq!(retry(name, plain), Retry::None, "{name}");
    }
}

#[test]
fn statement_that_affects_many_documents_is_not_retried() {
    let update = |multi: RawValue<'static>| {
        retry("update", &|d| {
            d.array("updates", |a| a.document(|s| s.value("multi", multi).map(drop)).map(drop)).map(drop)
        })
    };
    assert_eq!(update(RawValue::Boolean(false)), Retry::Write);
    assert_eq!(update(RawValue::Boolean(true)), Retry::None);
    assert_eq!(update(RawValue::Int32(1)), Retry::None);
    let delete = |limits: &[RawValue<'static>]| {
        retry("delete", &|d| {
            let all = |a: &mut crate::bson::ArrayWriter<'_, '_, Vec<u8>>| {
                limits.iter().try_for_each(|limit| a.document(|s| s.value("limit", *limit).map(drop)).map(drop))
            };
            d.array("deletes", all).map(drop)
        })
    };
    assert_eq!(delete(&[RawValue::Int32(1)]), Retry::Write);
    assert_eq!(delete(&[RawValue::Int32(1), RawValue::Double(0.0)]), Retry::None);
    assert_eq!(delete(&[RawValue::Int64(0)]), Retry::None);
}

#[test]
fn aggregation_whose_last_stage_writes_is_not_retried() {
    let aggregate = |stages: &[&str]| {
        retry("aggregate", &|d| {
            let all = |a: &mut crate::bson::ArrayWriter<'_, '_, Vec<u8>>| {
                stages.iter().try_for_each(|stage| a.document(|s| s.str(stage, "x").map(drop)).map(drop))
            };
            d.array("pipeline", all).map(drop)
        })
    };
    assert_eq!(aggregate(&["$match"]), Retry::Read);
    assert_eq!(aggregate(&["$match", "$out"]), Retry::None);
    assert_eq!(aggregate(&["$merge"]), Retry::None);
}

#[test]
fn command_without_acknowledgement_takes_no_session_and_is_not_retried() {
    let unacknowledged: Write<'_> =
        &|d| d.document("writeConcern", |concern| concern.int32("w", 0).map(drop)).map(drop);
    for (name, has_reply) in [
        ("insert", false),
        ("update", false),
        ("delete", false),
        ("bulkWrite", false),
        ("findAndModify", true),
        ("aggregate", true),
        ("createIndexes", true),
        ("getMore", true),
    ] {
        with(name, unacknowledged, |shape| {
            assert_eq!((shape.retry, shape.takes_session), (Retry::None, false), "{name}");
            assert_eq!((shape.is_acknowledged, shape.has_reply), (false, has_reply), "{name}");
        });
    }
    for zero in [RawValue::Int64(0), RawValue::Double(0.0), RawValue::Double(-0.0)] {
        let zero: Write<'_> = &|d| d.document("writeConcern", |c| c.value("w", zero).map(drop)).map(drop);
        with("insert", zero, |shape| assert!(!shape.has_reply));
    }
    // The journal is an acknowledgement.
    for journal in [false, true] {
        let concern: Write<'_> =
            &|d| d.document("writeConcern", |c| c.int32("w", 0)?.boolean("j", journal).map(drop)).map(drop);
        with("insert", concern, |shape| {
            assert_eq!((shape.is_acknowledged, shape.has_reply, shape.takes_session), (journal, journal, journal));
            assert_eq!(shape.retry == Retry::Write, journal);
        });
    }
    // `w: 0` is a write concern only there, and not if it is a text.
    with("insert", &|d| d.int32("w", 0).map(drop), |shape| assert!(shape.is_acknowledged && shape.has_reply));
    let text: Write<'_> = &|d| d.document("writeConcern", |c| c.str("w", "0").map(drop)).map(drop);
    with("insert", text, |shape| assert!(shape.is_acknowledged && shape.has_reply));
    with("insert", &|d| d.document("writeConcern", |c| c.str("w", "majority").map(drop)).map(drop), |shape| {
        assert_eq!((shape.retry, shape.takes_session), (Retry::Write, true));
        assert!(shape.is_acknowledged && shape.has_reply);
    });
}

#[test]
fn commands_outside_of_sessions_take_none() {
    for name in ["hello", "isMaster", "ismaster", "saslStart", "saslContinue", "authenticate", "parallelCollectionScan"]
    {
        with(name, &|_| Ok(()), |shape| assert!(!shape.takes_session, "{name}"));
    }
    with("ping", &|_| Ok(()), |shape| assert!(shape.takes_session));
}

#[test]
fn fields_of_the_application_are_recognized() {
    let own: Write<'_> = &|d| {
        d.document("lsid", |_| Ok(()))?.int64("txnNumber", 3)?.boolean("autocommit", false)?;
        d.document("$clusterTime", |_| Ok(()))?.document("readConcern", |c| c.str("level", "local").map(drop)).map(drop)
    };
    with("find", own, |shape| {
        assert!(shape.has_session && shape.has_txn_number && shape.in_transaction && shape.has_cluster_time);
        assert!(!shape.takes_session && shape.takes_cluster_time && shape.read_concern.is_some());
        assert_eq!(shape.retry, Retry::None, "a statement of a transaction is not retried alone");
    });
    for name in ["commitTransaction", "abortTransaction"] {
        with(name, own, |shape| assert_eq!(shape.retry, Retry::Write));
        with(name, &|_| Ok(()), |shape| assert!(shape.in_transaction, "it ends one"));
    }
}

/// The commands of the official tests causal-consistency-write-commands.json and
/// causal-consistency-clientBulkWrite.json, and the reads. Servers refuse the field in some of the others,
/// such as `ping`.
#[test]
fn reads_and_writes_take_the_time_of_an_operation() {
    let plain: Write<'_> = &|_| Ok(());
    let takes = ["find", "aggregate", "distinct", "count", "insert", "update", "delete", "findAndModify"];
    let schema = ["findandmodify", "bulkWrite", "create", "createIndexes", "drop", "dropDatabase", "dropIndexes"];
    for name in takes.into_iter().chain(schema) {
        assert!(with(name, plain, |shape| shape.takes_cluster_time), "{name}");
    }
    for name in ["ping", "getMore", "killCursors", "commitTransaction", "hello", "listIndexes"] {
        assert!(!with(name, plain, |shape| shape.takes_cluster_time), "{name}");
    }
}

#[test]
fn malformed_command_is_an_error() {
    let bytes = [12, 0, 0, 0, 0x02, b'x', 0, 9, 0, 0, 0, 0];
    assert!(CommandShape::parse(RawDocument::new(&bytes).expect("opens")).is_err());
    let empty = CommandShape::parse(RawDocument::EMPTY).expect("well-formed");
    assert_eq!((empty.name, empty.retry), ("", Retry::None));
}

#[test]
fn max_time_is_added_unless_it_is_present_or_means_something_else() {
    let plain: Write<'_> = &|_| Ok(());
    let own: Write<'_> = &|command| command.int64("maxTimeMS", 5).map(drop);
    for (name, fields, expected) in
        [("find", plain, true), ("find", own, false), ("getMore", plain, false), ("hello", plain, false)]
    {
        assert_eq!(with(name, fields, |shape| shape.takes_max_time), expected, "{name}");
    }
}
