use super::*;
use alloc::vec::Vec;
use poolhouse_wire::bson::RawValue;

type Subject = Transaction<&'static str>;

fn started() -> Subject {
    let mut transaction = Subject::new();
    transaction.start(|| 7).expect("none is open");
    transaction
}

/// A transaction with one command, number 7.
fn in_progress() -> Subject {
    let mut transaction = started();
    assert_eq!(transaction.begin_command(), Some((7, TransactionRole::First)));
    transaction
}

fn committed() -> Subject {
    let mut transaction = in_progress();
    assert_eq!(transaction.begin_commit(), Ok(true));
    transaction
}

fn aborted() -> Subject {
    let mut transaction = in_progress();
    assert_eq!(transaction.begin_abort(), Ok(true));
    transaction.handle_abort_ended();
    transaction
}

fn fields(role: TransactionRole, number: i64) -> Vec<(alloc::string::String, bool)> {
    let mut sink = Vec::new();
    DocumentWriter::write(&mut sink, |command| role.append(command, number)).expect("room");
    let document = RawDocument::new(&sink).expect("well-formed");
    let is_set = |value: RawValue<'_>| value.as_flag().unwrap_or(value.as_integer().is_some());
    document.iter().flatten().map(|element| (element.key.into(), is_set(element.value))).collect()
}

#[test]
fn only_the_first_command_starts_the_transaction() {
    let mut transaction = in_progress();
    for _ in 0..3 {
        assert_eq!(transaction.begin_command(), Some((7, TransactionRole::Further)));
    }
    let first = fields(TransactionRole::First, 7);
    let expected = [("txnNumber", true), ("startTransaction", true), ("autocommit", false)];
    assert_eq!(first, expected.map(|(key, value)| (key.into(), value)));
    let further = fields(TransactionRole::Further, 7);
    assert_eq!(further, [("txnNumber", true), ("autocommit", false)].map(|(key, value)| (key.into(), value)));
}

#[test]
fn every_call_in_every_state_is_allowed_or_refused() {
    use TransactionMisuse as E;
    type Outcome = Result<Option<bool>, E>;
    type Create = fn() -> Subject;
    type Call = fn(&mut Subject) -> Outcome;
    let start: Call = |it| it.start(|| 8).map(|()| None);
    let commit: Call = |it| it.begin_commit().map(Some);
    let abort: Call = |it| it.begin_abort().map(Some);
    let table: [(Create, [Outcome; 3]); 5] = [
        (Subject::new, [Ok(None), Err(E::NotStarted), Err(E::NotStarted)]),
        (started, [Err(E::AlreadyStarted), Ok(Some(false)), Ok(Some(false))]),
        (in_progress, [Err(E::AlreadyStarted), Ok(Some(true)), Ok(Some(true))]),
        (committed, [Ok(None), Ok(Some(true)), Err(E::AbortAfterCommit)]),
        (aborted, [Ok(None), Err(E::CommitAfterAbort), Err(E::AbortAfterAbort)]),
    ];
    for (subject, expected) in table {
        for (call, expected) in [start, commit, abort].into_iter().zip(expected) {
            let mut transaction = subject();
            let before = transaction.state();
            assert_eq!(call(&mut transaction), expected, "{before:?}");
            if expected.is_err() {
                assert_eq!(transaction.state(), before, "a refused call changes nothing");
                assert_ne!(transaction.number(), Some(8), "nor does it take a number");
            }
        }
    }
}

#[test]
fn abort_is_owed_until_its_command_has_ended() {
    let mut transaction = in_progress();
    transaction.pin("router");
    assert!(transaction.owes_abort());
    assert_eq!(transaction.begin_abort(), Ok(true));
    assert!(transaction.owes_abort(), "the command may not have been sent");
    assert_eq!(transaction.take_pin(), Some("router"));
    transaction.pin("router");
    assert_eq!(transaction.pinned(), Some(&"router"), "the command may be repeated");
    transaction.handle_abort_ended();
    assert_eq!((transaction.owes_abort(), transaction.pinned()), (false, None));
    let mut empty = started();
    assert_eq!(empty.begin_abort(), Ok(false));
    let mut sent = committed();
    sent.send_commit();
    for transaction in [empty, started(), sent, Subject::new()] {
        assert!(!transaction.owes_abort(), "{transaction:?}");
    }
}

#[test]
fn abort_that_was_dropped_can_be_repeated_and_stays_owed_after_other_commands() {
    let mut transaction = in_progress();
    assert_eq!(transaction.begin_abort(), Ok(true));
    assert_eq!(transaction.begin_abort(), Ok(true), "its future was dropped");
    assert_eq!(transaction.begin_command(), None);
    assert!(transaction.owes_abort());
    assert_eq!(transaction.number(), Some(7), "of the command that aborts it");
    // A new transaction has a higher number, which ends the old one on the server.
    transaction.start(|| 8).expect("none is open");
    assert_eq!((transaction.owes_abort(), transaction.number()), (false, Some(8)));
}

#[test]
fn commit_that_was_not_sent_owes_an_abort() {
    let mut transaction = committed();
    assert!(transaction.owes_abort() && !transaction.is_commit_sent());
    let is_repeated = transaction.send_commit();
    assert!(!transaction.owes_abort() && transaction.is_commit_sent());
    transaction.handle_commit_refused(is_repeated);
    assert!(transaction.owes_abort());
    assert_eq!(transaction.begin_command(), None);
    assert!(transaction.owes_abort());
}

#[test]
fn transaction_is_transient_if_its_last_command_was() {
    let transient = Labels::TRANSIENT_TRANSACTION_ERROR;
    let failed = || {
        let mut transaction = in_progress();
        transaction.handle_error(transient);
        assert!(transaction.is_transient());
        transaction
    };
    let mut transaction = failed();
    transaction.handle_success();
    assert!(!transaction.is_transient(), "a later command succeeded");
    let mut transaction = failed();
    transaction.handle_error(Labels::NONE);
    assert!(!transaction.is_transient(), "a later command failed otherwise");

    let mut transaction = failed();
    assert_eq!(transaction.begin_commit(), Ok(true));
    assert!(!transaction.is_transient(), "the commit decides");
    transaction.handle_error(transient);
    assert!(transaction.is_transient());
    assert_eq!(transaction.begin_commit(), Ok(true));
    assert!(!transaction.is_transient(), "the repeated commit decides");

    let mut transaction = failed();
    assert_eq!(transaction.begin_abort(), Ok(true));
    transaction.handle_success();
    assert!(transaction.is_transient(), "the abort does not decide");
    let mut transaction = in_progress();
    assert_eq!(transaction.begin_abort(), Ok(true));
    transaction.handle_error(transient);
    assert!(!transaction.is_transient(), "nor does its error");
}

#[test]
fn empty_transaction_ends_without_a_command() {
    let mut transaction = started();
    assert_eq!(transaction.begin_commit(), Ok(false));
    assert_eq!(transaction.begin_commit(), Ok(false), "nor does its repetition send one");
    transaction.start(|| 8).expect("the previous one is committed");
    assert_eq!(transaction.begin_command(), Some((8, TransactionRole::First)));
}

#[test]
fn command_after_the_end_belongs_to_no_transaction() {
    for mut transaction in [committed(), aborted()] {
        transaction.pin("router");
        assert_eq!(transaction.begin_command(), None);
        assert_eq!((transaction.state(), transaction.pinned()), (TransactionState::None, None));
        assert_eq!(transaction.begin_commit(), Err(TransactionMisuse::NotStarted));
    }
}

#[test]
fn first_command_that_was_refused_is_repeated_as_the_first() {
    let mut transaction = in_progress();
    transaction.pin("router");
    transaction.handle_first_refused();
    assert_eq!((transaction.state(), transaction.pinned()), (TransactionState::Starting, None));
    assert_eq!(transaction.begin_command(), Some((7, TransactionRole::First)));
}

#[test]
fn repeated_commit_needs_a_majority_unless_none_was_executed() {
    let mut transaction = committed();
    let is_repeated = transaction.send_commit();
    assert!(!is_repeated);
    transaction.handle_commit_refused(is_repeated);
    assert!(!transaction.send_commit(), "the first one was not executed");
    let is_repeated = transaction.send_commit();
    assert!(is_repeated);
    transaction.handle_commit_refused(is_repeated);
    assert!(transaction.send_commit(), "an earlier one may have been executed");
    transaction.start(|| 8).expect("the previous one is committed");
    assert!(!transaction.send_commit(), "another transaction");
}

#[test]
fn labels_of_the_client_depend_on_the_command_and_its_failure() {
    use TransactionFailure as F;
    let (none, transient) = (Labels::NONE, Labels::TRANSIENT_TRANSACTION_ERROR);
    let unknown = Labels::UNKNOWN_TRANSACTION_COMMIT_RESULT;
    let refused = |code, is_retryable| F::Command { code, is_retryable };
    let cases = [
        (F::NoReply, transient, unknown),
        (refused(11_000, false), none, none),
        (refused(91, true), none, unknown),
        (refused(50, false), none, unknown),
        (refused(251, false), none, none),
        (F::WriteConcern { code: 64 }, none, unknown),
        (F::WriteConcern { code: 91 }, none, unknown),
        (F::WriteConcern { code: 79 }, none, none),
        (F::WriteConcern { code: 100 }, none, none),
    ];
    for (failure, of_command, of_commit) in cases {
        assert_eq!((failure.label(false), failure.label(true)), (of_command, of_commit), "{failure:?}");
    }
}

#[test]
fn pin_ends_with_these_labels_and_the_next_start_only() {
    for label in [Labels::TRANSIENT_TRANSACTION_ERROR, Labels::UNKNOWN_TRANSACTION_COMMIT_RESULT] {
        let mut transaction = in_progress();
        transaction.pin("router");
        transaction.handle_error(Labels::RETRYABLE_WRITE_ERROR);
        assert_eq!(transaction.pinned(), Some(&"router"));
        transaction.handle_error(label);
        assert_eq!(transaction.pinned(), None);
        assert_eq!(transaction.is_transient(), label == Labels::TRANSIENT_TRANSACTION_ERROR);
    }
    let mut transaction = in_progress();
    transaction.pin("router");
    assert_eq!(transaction.begin_commit(), Ok(true));
    assert_eq!(transaction.pinned(), Some(&"router"), "the commit may be repeated");
    transaction.start(|| 8).expect("the previous one is committed");
    assert_eq!(transaction.pinned(), None);
    transaction.pin("router");
    assert_eq!(transaction.pinned(), None, "no command was sent yet");
    let mut transaction = aborted();
    transaction.pin("router");
    assert_eq!(transaction.pinned(), None, "an aborted transaction is not pinned again");
}

#[test]
fn recovery_token_is_that_of_the_latest_reply_of_the_transaction() {
    let token = |shard: &str| {
        let mut sink = Vec::new();
        DocumentWriter::write(&mut sink, |token| token.str("shard", shard).map(drop)).expect("room");
        sink
    };
    let mut transaction = in_progress();
    for shard in ["a", "b"] {
        let bytes = token(shard);
        transaction.handle_recovery_token(RawDocument::new(&bytes).expect("well-formed"));
        assert_eq!(transaction.recovery_token().map(|token| token.as_bytes().to_vec()), Some(bytes));
    }
    let huge = token(&"x".repeat(RECOVERY_TOKEN_BYTES_MAX));
    transaction.handle_recovery_token(RawDocument::new(&huge).expect("well-formed"));
    assert_eq!(transaction.recovery_token().map(|token| token.as_bytes().to_vec()), Some(token("b")));
    assert_eq!(transaction.begin_commit(), Ok(true));
    transaction.start(|| 8).expect("the previous one is committed");
    assert!(transaction.recovery_token().is_none());
}

#[test]
fn pause_grows_by_half_up_to_half_a_second() {
    let longest = |retry| transaction_pause(retry, u32::MAX).as_micros();
    assert_eq!(transaction_pause(1, 0), Duration::ZERO);
    assert_eq!([longest(1), longest(2), longest(3)], [4_999, 7_499, 11_249]);
    assert_eq!([longest(13), longest(1_000), longest(u32::MAX)], [499_999; 3]);
}
