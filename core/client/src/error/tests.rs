use super::*;
use alloc::string::ToString;
use alloc::vec;
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::selection::SelectionError;
use poolhouse_core::topology::{self, Topology, TopologyId, TopologyOptions, WireMismatch};
use poolhouse_driver::{CheckOutFailure, ExchangeError, ServerAddress};

/// The error of a selection with this failure.
fn selection(failure: SelectionFailure) -> Error {
    let config = TopologyOptions { seeds: &["a:1"], ..TopologyOptions::default() }.validate().expect("valid");
    let topology =
        Topology::<topology::OnHeap>::new(Instant::ORIGIN, TopologyId::new(1), config, &mut ()).expect("room");
    let description = topology.description();
    let report = SelectionError::new(failure, description).detail(description);
    Error::from(OperationError::ServerSelection(Box::new(report)))
}

fn check_out(error: CheckOutError) -> Error {
    Error::from(OperationError::CheckOut(CheckOutFailure::new(error, "a:1")))
}

fn establishing(cause: Cause) -> Error {
    check_out(CheckOutError::EstablishFailed { cause, overloaded: false })
}

#[test]
fn every_expired_limit_is_a_timeout() {
    let timeouts = [
        Error::from(OperationError::Timeout),
        selection(SelectionFailure::TimedOut { waited: Duration::from_secs(30) }),
        check_out(CheckOutError::WaitQueueTimeout { usage: None }),
        establishing(Cause::NetworkTimeout),
    ];
    for error in timeouts {
        assert!(error.is_timeout(), "{error}");
    }
}

#[test]
fn immediate_failure_is_no_timeout() {
    let others = [
        selection(SelectionFailure::Incompatible(WireMismatch::ServerTooOld(5))),
        selection(SelectionFailure::Closed),
        establishing(Cause::Network),
        establishing(Cause::Dns),
        check_out(CheckOutError::PoolCleared { cause: Some(Cause::NetworkTimeout) }),
        check_out(CheckOutError::PoolClosed),
        Error::from(OperationError::Exchange(ExchangeError::Network(poolhouse_core::Reason::NONE))),
        Error::from(OperationError::Interrupted(ServerAddress::new("a:1"))),
        Error::from(OperationError::Closed),
        Error::from(OperationError::Abandoned),
        Error::Setup(SetupError::Unsupported("tls")),
        Error::Setup(SetupError::OutOfMemory),
        Error::Bson(String::new()),
    ];
    for error in others {
        assert!(!error.is_timeout(), "{error}");
    }
}

/// The error at the end of the chain of sources.
fn root(error: &Error) -> &(dyn core::error::Error + 'static) {
    let mut end: &(dyn core::error::Error + 'static) = error;
    while let Some(source) = end.source() {
        end = source;
    }
    end
}

#[test]
fn chain_of_sources_ends_at_the_underlying_error() {
    use poolhouse_uri::dns::LookupError;
    use poolhouse_wire::{WireError, WireErrorKind};
    let wire = WireError::new(WireErrorKind::MessageTooShort { length_bytes: 3 }, 0);
    assert!(root(&establishing(Cause::Network)).is::<Cause>());
    assert!(root(&Error::from(OperationError::Broken(Cause::Closed))).is::<Cause>());
    assert!(root(&Error::from(OperationError::Exchange(ExchangeError::Wire(wire)))).is::<WireError>());
    let lookup = SeedlistError::Srv { name: "a".into(), error: LookupError::Timeout };
    assert!(root(&Error::Setup(SetupError::Seedlist(Box::new(lookup)))).is::<LookupError>());
    let criteria = selection(SelectionFailure::Criteria(ConfigError::new("a", 1, "b")));
    let Error::Operation(OperationError::ServerSelection(report), _) = &criteria else { panic!("{criteria:?}") };
    assert!(core::error::Error::source(report.error()).is_some_and(|source| source.is::<ConfigError>()));
}

#[test]
fn variant_without_text_is_no_link_of_the_chain() {
    for error in [
        Error::from(ConfigError::new("maxPoolSize", 1, "be more")),
        Error::from(OptionError::new("replicaSet", "", "not be empty")),
        Error::from(TopologyConfigError::LoadBalancedAndDirect),
        Error::from(AuthError::PlainWithoutTls),
        Error::Setup(SetupError::LookupNeeded),
        Error::from(OperationError::Busy),
        Error::from(OperationError::Exchange(ExchangeError::NoMemory)),
        selection(SelectionFailure::Closed),
        refused(1),
    ] {
        assert!(root(&error).is::<Error>(), "{error}");
    }
}

fn refused(code: i32) -> Error {
    let (code_name, message) = (Some("NotWritablePrimary".into()), Some("not primary".into()));
    let reply = bson::Document::new();
    let server = "a:1".into();
    Error::Command(Box::new(CommandError { server, code, code_name, message, labels: Vec::new(), reply, hint: None }))
}

#[test]
fn each_error_has_its_text() {
    let texts = [
        (Error::from(ConfigError::new("maxPoolSize", 1, "be more")), "maxPoolSize"),
        (Error::from(OptionError::new("replicaSet", "", "not be empty")), "replicaSet is \"\", but must not be empty"),
        (Error::from(TopologyConfigError::LoadBalancedAndDirect), "loadBalanced and directConnection are both true"),
        (
            Error::from(AuthError::PlainWithoutTls),
            "PLAIN sends the password itself, so it needs TLS that verifies the server: set tls=true without tlsInsecure and \
             tlsAllowInvalid.., or set allow_plain_without_tls",
        ),
        (
            Error::Setup(SetupError::LookupNeeded),
            "the hosts of a mongodb+srv:// string must be looked up: use ClientOptions::resolve",
        ),
        (
            Error::Setup(SetupError::Seedlist(Box::new(SeedlistError::NoHosts { name: "a.b".into() }))),
            "SRV lookup of a.b: the reply contains no host",
        ),
        (Error::Setup(SetupError::Unsupported("this")), "not implemented: this"),
        (
            Error::Setup(SetupError::Forked),
            "this process was forked from a process that had created a client: fork before the first client is created, or call exec after the fork",
        ),
        (Error::Setup(SetupError::OutOfMemory), "out of memory: the client was not created"),
        (Error::from(OperationError::Closed), "the client is closed"),
        (refused(10_107), "a:1: the command failed with code 10107 (NotWritablePrimary): not primary"),
        (Error::Bson("odd".into()), "BSON: odd"),
    ];
    for (error, text) in texts {
        let said = alloc::format!("{error}");
        assert!(said.starts_with(text), "{said}");
    }
}

/// `fn main() -> Result<(), E>` and `unwrap` print `Debug`.
#[test]
fn debug_of_each_public_error_is_its_text() {
    use crate::mux;
    use poolhouse_cql::CqlEncodeError;
    use poolhouse_driver::ConnectError;
    use poolhouse_driver::pool::PoolError;
    fn is_text<E: core::error::Error>(error: &E) {
        let text = error.to_string();
        assert!(!text.is_empty());
        assert_eq!(alloc::format!("{error:?}"), text);
    }
    let refused_connection = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    is_text(&selection(SelectionFailure::TimedOut { waited: Duration::from_secs(30) }));
    is_text(&SetupError::LookupNeeded);
    is_text(&OptionError::new("replicaSet", "", "not be empty"));
    is_text(&ConfigError::new("maxPoolSize", 1, "be more"));
    is_text(&TopologyConfigError::LoadBalancedAndDirect);
    is_text(&AuthError::PlainWithoutTls);
    is_text(&MetadataError::TooLong);
    is_text(&poolhouse_uri::ConnectionString::parse("x").expect_err("no scheme"));
    is_text(&SeedlistError::NoHosts { name: "a.b".into() });
    is_text(&LookupError::Timeout);
    let Error::Command(command) = refused(13) else { panic!("a command") };
    is_text(&*command);
    is_text(&write_error(bson::doc! { "writeErrors": [{ "code": 11_000 }] }));
    is_text(&OperationError::Closed);
    is_text(&CheckOutFailure::new(CheckOutError::PoolClosed, "a:1"));
    is_text(&ExchangeError::NoMemory);
    is_text(&ConnectError::from(Cause::Network));
    is_text(&PoolError::Connect(refused_connection()));
    is_text(&PoolError::WaitTimeout {
        counts: poolhouse_core::pool::PoolCounts::default(),
        last: Some(refused_connection()),
    });
    is_text(&mux::RequestError::Encode(CqlEncodeError::Full));
    is_text(&CqlEncodeError::Full);
    #[cfg(feature = "tls")]
    {
        is_text(&TlsError::NoPlatformRoots);
        is_text(&crate::tls::TlsHandshakeError::from(refused_connection()));
    }
}

#[test]
fn only_operations_that_a_server_did_not_execute_are_retryable() {
    use poolhouse_driver::AttemptError;
    let of = |error: &Error| (AttemptError::is_retryable(error), AttemptError::is_transient(error));
    assert_eq!(of(&establishing(Cause::Network)), (true, true));
    assert_eq!(of(&check_out(CheckOutError::WaitQueueTimeout { usage: None })), (false, false));
    assert_eq!(
        of(&Error::from(OperationError::Exchange(ExchangeError::Network(poolhouse_core::Reason::NONE)))),
        (false, true)
    );
    assert_eq!(of(&refused(10_107)), (false, true), "a change of state");
    assert_eq!(of(&refused(11_000)), (false, false));
    let own = [
        Error::Setup(SetupError::Uri(Box::new(poolhouse_uri::ConnectionString::parse("x").expect_err("no scheme")))),
        Error::Setup(SetupError::LookupNeeded),
        Error::Setup(SetupError::Seedlist(Box::new(SeedlistError::Srv {
            name: "a.b".into(),
            error: LookupError::Timeout,
        }))),
        Error::Setup(SetupError::Unsupported("this")),
        Error::from(ConfigError::new("maxPoolSize", 1, "be more")),
        Error::from(OptionError::new("replicaSet", "", "not be empty")),
        Error::from(TopologyConfigError::LoadBalancedAndDirect),
        Error::from(AuthError::PlainWithoutTls),
        Error::Setup(SetupError::Forked),
        Error::Setup(SetupError::OutOfMemory),
        Error::Bson(String::new()),
    ];
    for error in own {
        assert_eq!(of(&error), (false, false), "{error}");
        assert_eq!(error.check_out(), None, "{error}");
        assert_eq!(error.is_timeout(), matches!(error, Error::Setup(SetupError::Seedlist(_))), "{error}");
    }
    assert_eq!(establishing(Cause::Dns).check_out().map(CheckOutError::name), Some("ConnectionError"));
}

#[test]
fn error_of_a_command_contains_the_server_and_its_code_and_message_only() {
    use alloc::string::ToString;
    let error = CommandError {
        server: "a:1".into(),
        code: 13,
        code_name: None,
        message: None,
        labels: Vec::new(),
        reply: bson::Document::new(),
        hint: None,
    };
    let named = CommandError { code_name: Some("Unauthorized".into()), ..error.clone() };
    let told = CommandError { message: Some("not you".into()), ..error.clone() };
    let whole = CommandError { message: told.message.clone(), ..named.clone() };
    let texts = [
        (error, "a:1: the command failed with code 13"),
        (named, "a:1: the command failed with code 13 (Unauthorized)"),
        (told, "a:1: the command failed with code 13: not you"),
        (whole, "a:1: the command failed with code 13 (Unauthorized): not you"),
    ];
    for (error, text) in texts {
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn usual_mistakes_in_commands_have_a_hint() {
    let hinted = [
        (
            59,
            "no such command: 'findOneAndUpdate'",
            "the command is findAndModify, with `query`, and `update` or `remove: true`",
        ),
        (59, "no such command: 'insertMany'", "the command is insert, with `documents: [..]`"),
        (59, "no such command: 'updateOne'", "the command is update, with `updates: [{ q, u, multi }]`"),
        (
            59,
            "no such command: 'deleteOne'",
            "the command is delete, with `deletes: [{ q, limit }]`; `limit: 0` is all",
        ),
        (59, "no such command: 'filter'", "the command's name must be the first key of its document"),
        (
            40_415,
            "BSON field 'update.filter' is an unknown field.",
            "the filter of a statement is `q`: `updates: [{ q, u }]`",
        ),
        (40_415, "BSON field 'findAndModify.filter' is an unknown field.", "the filter of this command is `query`"),
    ];
    for (code, message, hint) in hinted {
        assert_eq!(hint::of_refusal(code, message), Some(hint));
    }
    for (code, message) in [(59, "no such command: 'fnid'"), (59, "no such command"), (13, "'insertOne'"), (40_415, "")]
    {
        assert_eq!(hint::of_refusal(code, message), None, "{message}");
    }
}

fn write_error(reply: bson::Document) -> WriteError {
    WriteError::new("a:1", reply)
}

#[test]
fn first_write_error_is_described_and_the_others_are_in_the_reply() {
    use alloc::string::ToString;

    let failed = bson::doc! { "index": 2_i64, "code": 121.0, "errmsg": "validation", "errInfo": { "rule": 1 } };
    let late = bson::doc! { "code": 64, "codeName": "WriteConcernFailed", "errorLabels": ["Inner"] };
    let both = bson::doc! {
        "ok": 1, "n": 2, "writeErrors": [failed, { "index": 5, "code": 7 }],
        "writeConcernError": late.clone(), "errorLabels": ["Outer"],
    };
    let error = write_error(both.clone());
    assert_eq!((error.code, error.index, error.code_name.clone()), (121, Some(2), None));
    assert_eq!(error.labels, ["Outer", "Inner"]);
    assert_eq!((error.details.clone(), error.reply.clone()), (bson::doc! { "rule": 1 }, both));
    assert_eq!(error.to_string(), "a:1: write 2 of the command failed with code 121: validation");
    let error = write_error(bson::doc! { "ok": 1, "writeConcernError": late });
    assert_eq!((error.code, error.index, error.labels.clone()), (64, None, vec![String::from("Inner")]));
    assert_eq!(error.to_string(), "a:1: the write concern was not satisfied: code 64 (WriteConcernFailed)");
    // Hostile: nothing of the right type.
    let error = write_error(bson::doc! { "writeErrors": [1], "writeConcernError": "late", "errorLabels": [1] });
    assert_eq!((error.code, error.index, error.labels.len()), (0, None, 0));
    let error = write_error(bson::doc! { "writeErrors": [{ "index": "1", "code": 1e40 }] });
    assert_eq!((error.code, error.index), (0, Some(0)));
}

#[test]
fn errors_of_old_servers_are_retryable_by_code() {
    let write = |reply| Error::Write(Box::new(write_error(reply)));
    let statement =
        |code: i32, label: &str| write(bson::doc! { "writeErrors": [{ "code": code }], "errorLabels": [label] });
    let concern = |code: i32| write(bson::doc! { "writeConcernError": { "code": code } });
    let both = write(bson::doc! { "writeErrors": [{ "code": 11_000 }], "writeConcernError": { "code": 189 } });
    for version in [8, 9, 17] {
        assert!(
            !statement(189, "Other").is_retryable_write_by_code(version, false),
            "the code of a statement does not count"
        );
        assert!(!both.is_retryable_write_by_code(version, false), "the statement failed");
        assert!(!concern(134).is_retryable_write_by_code(version, false), "it concerns reads");
        assert!(!concern(189).is_retryable_write_by_code(version, true), "of a router");
        let is_old = version < 9;
        assert_eq!(concern(189).is_retryable_write_by_code(version, false), is_old, "servers since 4.4 label it");
        assert_eq!(refused(10_107).is_retryable_write_by_code(version, true), is_old, "servers since 4.4 label it");
        assert!(!Error::Bson(String::new()).is_retryable_write_by_code(version, false));
    }
    let error = statement(11_000, "RetryableWriteError");
    assert_eq!(
        (error.code(), error.has_label("RetryableWriteError"), error.has_label("x")),
        (Some(11_000), true, false)
    );
}

/// If a reply has `ok: 1`, the server has executed the command.
#[test]
fn only_a_refused_command_or_connection_is_an_overload() {
    let labels = ["SystemOverloadedError", "RetryableError"];
    let reply = bson::doc! { "ok": 1, "writeConcernError": { "code": 462 }, "errorLabels": labels.to_vec() };
    assert!(!Error::Write(Box::new(write_error(reply))).is_overload());
    let mut error = refused(462);
    assert!(!error.is_overload());
    if let Error::Command(error) = &mut error {
        error.labels = labels.map(String::from).to_vec();
    }
    assert!(error.is_overload());
    // The client adds the labels if the server did not establish the connection.
    for overloaded in [false, true] {
        let cause = Cause::NetworkTimeout;
        let error = check_out(CheckOutError::EstablishFailed { cause, overloaded });
        let error = error.with_label(Labels::RETRYABLE_WRITE_ERROR);
        assert!(error.is_overload() == overloaded && error.has_label("RetryableWriteError"));
        assert_eq!(labels.map(|label| error.has_label(label)), [overloaded; 2]);
    }
}

#[test]
fn label_is_added_once_and_changes_nothing_else() {
    let transient = Labels::TRANSIENT_TRANSACTION_ERROR;
    let name = "TransientTransactionError";
    let error = Error::from(OperationError::Timeout).with_label(transient);
    assert!(matches!(&error, Error::Operation(..)) && error.has_label(name) && error.is_timeout());
    assert_eq!(error.to_string(), OperationError::Timeout.to_string());
    let Error::Command(twice) = refused(112).with_label(transient).with_label(transient) else { panic!("a command") };
    assert_eq!(twice.labels, [name]);
    let unknown = establishing(Cause::Network).with_label(Labels::UNKNOWN_TRANSACTION_COMMIT_RESULT);
    assert!(unknown.check_out().is_some() && unknown.is_retryable() && !unknown.has_label(name));
    assert!(root(&unknown).is::<Cause>());
    assert!(matches!(refused(1).with_label(Labels::NONE), Error::Command(error) if error.labels.is_empty()));
    assert!(matches!(Error::Session("s").with_label(transient), Error::Session(_)));
}

#[test]
fn error_without_time_for_another_attempt_is_a_timeout_with_all_of_the_last_error() {
    use alloc::string::ToString;
    use poolhouse_driver::AttemptError;
    let label = "TransientTransactionError";
    let last = refused(10_107);
    let error = AttemptError::timed_out(last.clone()).with_label(Labels::TRANSIENT_TRANSACTION_ERROR);
    assert!(error.is_timeout() && error.is_transient() && error.has_label(label), "{error}");
    assert_eq!((error.code(), error.is_retryable(), error.is_overload()), (Some(10_107), false, false));
    assert!(error.to_string().ends_with(&last.to_string()), "{error}");
    let Error::Timeout(cause) = AttemptError::timed_out(error.clone()) else { panic!("{error:?}") };
    assert!(matches!(&*cause, Error::Command(refused) if refused.labels == [label]), "it is no cause of itself");
    assert!(core::error::Error::source(&error).is_some_and(|source| source.is::<Error>()));
    assert!(error.is_retryable_write_by_code(8, true));
    let unsent = AttemptError::timed_out(establishing(Cause::Network));
    assert!(unsent.is_retryable() && unsent.check_out().is_some() && AttemptError::is_unsent(&unsent));
    assert!(root(&unsent).is::<Cause>());
    let passed = AttemptError::timed_out(Error::from(OperationError::Timeout));
    assert!(matches!(passed, Error::Operation(OperationError::Timeout, _)), "it is one already");
}

#[test]
fn errors_of_the_bson_crate_are_converted() {
    let convert = || -> Result<bson::Document, Error> { Ok(bson::serialize_to_document(&7)?) };
    let error = convert().expect_err("a number is no document");
    assert!(matches!(error, Error::Bson(_)) && error.to_string().starts_with("BSON: "), "{error}");
}

#[test]
fn texts_of_servers_are_shown_on_one_line_and_kept_as_they_were() {
    let text = "no\r\nINFO forged\u{1b}[2J\u{9b}1m\u{2028}\u{202e}é";
    let shown = "no  INFO forged [2J 1m  é";
    let reply = bson::doc! { "writeErrors": [{ "code": 7, "codeName": text, "errmsg": text }] };
    let write = WriteError::new("a:1", reply);
    let command = CommandError {
        server: "a:1".into(),
        code: 7,
        code_name: Some(text.into()),
        message: Some(text.into()),
        labels: Vec::new(),
        reply: bson::Document::new(),
        hint: None,
    };
    assert_eq!((command.message.as_deref(), write.message.as_deref()), (Some(text), Some(text)));
    for error in [Error::Command(Box::new(command)), Error::Write(Box::new(write))] {
        assert!(error.to_string().ends_with(&alloc::format!(" 7 ({shown}): {shown}")), "{error}");
    }
    assert_eq!(Error::Bson(text.into()).to_string(), alloc::format!("BSON: {shown}"));
}
